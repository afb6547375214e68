"""Programs of this machine that tests start: a test without its program is skipped, and the last line names it."""

from __future__ import annotations

import http.client
import re
import runpy
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
INSTALL = runpy.run_path(str(PROJECT / "scripts" / "install.py"))
PACKAGES: dict[str, str] = INSTALL["SERVERS"]
"""A program -> Debian's package of it, as `make test-servers` installs it."""
MISSING: dict[str, str] = {}
UNREACHED = {
    *("EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "EHOSTUNREACH", "ENETUNREACH", "ENOTFOUND", "ETIMEDOUT"),
    *("ERR_SOCKET_TIMEOUT", "E407", "E502", "E503", "SELF_SIGNED_CERT_IN_CHAIN"),
    *("UNABLE_TO_GET_ISSUER_CERT_LOCALLY", "UNABLE_TO_VERIFY_LEAF_SIGNATURE"),
}
"""Codes of npm for a registry that it cannot reach, or whose proxy it does not trust."""
CARGO_UNREACHED = ("failed to download", "spurious network error", "offline mode")
"""Words of cargo about a registry that it cannot reach."""
START_SECONDS_MAX = 60
STOP_SECONDS_MAX = 20


def program(name: str) -> str:
    """Returns the path of a program; skips the test where this machine lacks it."""
    path = shutil.which(name)
    if path is None:
        MISSING[name] = PACKAGES[name]
        pytest.skip(f"{name} is missing: apt install {PACKAGES[name]}")
    return path


def npm_package(package: str, folder: Path) -> None:
    """Installs a package of npm into a folder, without its peers. Skips the test where npm cannot reach its registry,
    and names the package in the last line. Other faults of npm are failures."""
    quick = ("--no-package-lock", "--ignore-scripts", "--legacy-peer-deps", "--omit=optional")
    words = ("install", "--loglevel", "error", *quick, "--prefix", str(folder), package)
    done = subprocess.run([program("npm"), *words], capture_output=True, timeout=240, check=False, text=True)
    code = re.search(r"npm err(?:or|!) code (\w+)", done.stderr, re.IGNORECASE)
    if code is not None and code[1] in UNREACHED:
        MISSING[package] = f"npm (its registry cannot be reached: {code[1]})"
        pytest.skip(f"{package}: npm cannot reach its registry ({code[1]})")
    assert 0 == done.returncode, done.stderr


def cargo_program(folder: Path) -> Path:
    """Builds a program in Rust into `target`, with the crates of its lock file. Skips the test where cargo is missing
    or cannot reach its registry, and names the program in the last line. Other faults of cargo are failures."""
    cargo = INSTALL["find_cargo"](INSTALL["rust_path"]())
    if cargo is None:
        MISSING["cargo"] = "cargo"
        pytest.skip("cargo is missing, or it is older than Rust {}.{}".format(*INSTALL["RUST_MIN"]))
    target = PROJECT / "target" / folder.name
    words = (cargo, "build", "--locked", "--quiet", "--manifest-path", folder / "Cargo.toml", "--target-dir", target)
    environment = INSTALL["rust_environment"](cargo)
    done = subprocess.run(words, capture_output=True, timeout=280, check=False, text=True, env=environment)
    if done.returncode != 0 and any(words in done.stderr for words in CARGO_UNREACHED):
        MISSING[folder.name] = "cargo (its registry cannot be reached)"
        pytest.skip(f"{folder.name}: cargo cannot reach its registry")
    assert 0 == done.returncode, done.stderr
    return target / "debug" / folder.name


def skip_unfetched(what: str, told: str) -> None:
    """Skips a test if Maven could not get its libraries from their repository, and names them in the last line. Other
    faults of Maven are failures."""
    if any(words in told for words in ("Could not transfer", "Non-resolvable", "UnknownHost", "Could not resolve")):
        MISSING[what] = "maven (its repository cannot be reached)"
        pytest.skip(f"{what}: Maven cannot reach its repository")


def java_program(source: Path, folder: Path, what: str, *protos: Path) -> list[str]:
    """Builds a program in Java into `folder`, with stubs of these protos. Returns the words that start it, without the
    name of its class. Skips the test where Java or Maven is missing, or if Maven cannot get the libraries (`what`), and
    names them in the last line. Other faults of Maven are failures."""
    java, maven = program("java"), program("mvn")
    shutil.copytree(source, folder)
    for proto in protos:
        (folder / "src/main/proto").mkdir(parents=True, exist_ok=True)
        shutil.copy(proto, folder / "src/main/proto")
    command = [maven, "-q", "-B", "compile", "dependency:copy-dependencies", "-DoutputDirectory=lib"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=280, check=False)
    if done.returncode:
        skip_unfetched(what, done.stdout)
    assert 0 == done.returncode, done.stdout[-3000:]
    return [java, "-cp", f"{folder}/lib/*:{folder}/target/classes"]


def free_port() -> int:
    """A port of loopback that nothing listens at now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def running(
    command: Sequence[str | Path], *, log: Path, ready: Callable[[], bool]
) -> Iterator[subprocess.Popen[bytes]]:
    """Starts a server, waits until it is ready, and stops it by its process id at the end of the block."""
    with log.open("wb") as out:
        process = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        try:
            wait_for(lambda: process.poll() is not None or ready(), lambda: log.read_text("utf-8", "replace"))
            assert process.poll() is None, log.read_text("utf-8", "replace")
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(STOP_SECONDS_MAX)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def wait_for(condition: Callable[[], bool], trouble: Callable[[], str]) -> None:
    """Waits for an act of another program. trouble: what to show where it does not happen."""
    end = time.monotonic() + START_SECONDS_MAX
    while not condition():
        assert time.monotonic() < end, trouble()
        time.sleep(0.05)


def listens(port: int) -> bool:
    """Whether an HTTP server without an error of its own answers at this port of loopback."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status < 500
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def answers(url: str) -> bool:
    """Whether a server answers 200 at this address."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.HTTPError):
        return False
