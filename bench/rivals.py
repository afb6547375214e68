"""The other crawlers of `bench crawl`: how each is started, and its source.

Scrapy and Crawlee are in `.venv-bench`, wget2 is of the system. Colly and spider are compiled if their
sources are in the folder of peers and their compilers are available. The table names missing crawlers, with the reason.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from bench.measuring import CACHE, PEERS_PYTHON, ROOT
from bench.webs import BenchWeb

PEERS = ROOT.parent / "shared" / "peers"
BUILT = CACHE / "peers"
BUILD_SECONDS_MAX = 1_800.0

# A process with its own view of the file system: these crawlers resolve names by the system, so the web's hosts are in
# an /etc/hosts that only they can see.
_WITH_HOSTS = 'mount --bind "$0" /etc/hosts && exec "$@"'


@dataclass(frozen=True)
class Rival:
    """A crawler. command: its words for a web and its own directory; None if it is missing, for `reason`."""

    name: str
    command: Callable[[BenchWeb, Path, int], list[str | Path]] | None
    reason: str = ""


def rivals() -> list[Rival]:
    """Returns all crawlers."""
    scrapy = (_python("scrapy", "scrapy_peer.py"), _python("scrapy, lean", "scrapy_peer.py", "--lean"))
    asking = (_python("crawlee", "crawlee_peer.py"), _wget2(), _spider())
    if not may_mount():
        reason = "it asks the system for names, and this user may mount no hosts file for it"
        asking = tuple(one if one.command is None else Rival(one.name, None, reason) for one in asking)
    return [*scrapy, *asking, _colly()]


def may_mount() -> bool:
    """Whether a process may have its own /etc/hosts here."""
    tried = subprocess.run(
        ["unshare", "--mount", "mount", "--bind", "/etc/hosts", "/etc/hosts"], capture_output=True, check=False
    )
    return tried.returncode == 0


def with_hosts(names: str, place: Path, command: list[str | Path]) -> list[str | Path]:
    """Returns a command that runs another one with these lines of /etc/hosts, in addition to those of the system."""
    place.mkdir(parents=True, exist_ok=True)
    hosts = place / "hosts"
    system = Path("/etc/hosts").read_text(encoding="utf-8")
    hosts.write_text(system + names, encoding="utf-8")
    return ["unshare", "--mount", "sh", "-c", _WITH_HOSTS, hosts, *command]


def _python(name: str, script: str, *more: str) -> Rival:
    if not PEERS_PYTHON.exists():
        return Rival(name, None, "no .venv-bench here: make bench makes it")

    def command(web: BenchWeb, place: Path, concurrency: int) -> list[str | Path]:
        words: list[str | Path] = [PEERS_PYTHON, ROOT / "bench" / script, "--seeds", web.seeds]
        if script == "scrapy_peer.py":
            return [*words, "--hosts", web.hosts, "--concurrency", str(concurrency), *more]
        return with_hosts(
            web.hosts.read_text(encoding="ascii"),
            place,
            [*words, "--directory", place, "--concurrency", str(concurrency)],
        )

    return Rival(name, command)


def _wget2() -> Rival:
    if shutil.which("wget2") is None:
        return Rival("wget2", None, "no wget2 here: apt install wget2")

    def command(web: BenchWeb, place: Path, concurrency: int) -> list[str | Path]:
        seeds = web.seeds.read_text(encoding="ascii").split()
        domains = ",".join(dict.fromkeys(urlsplit(seed).hostname or "" for seed in seeds))
        words: list[str | Path] = ["wget2", "-q", "-r", "-l", "inf", "-H", "-D", domains, "--follow-tags=a/href"]
        words += [f"--max-threads={concurrency}", "--delete-after", "-P", place / "files", "-i", web.seeds]
        return with_hosts(web.hosts.read_text(encoding="ascii"), place, words)

    return Rival("wget2", command)


def _colly() -> Rival:
    program, reason = _built("colly", "collypeer", "go", ["go", "build", "-trimpath", "-o", BUILT / "collypeer", "."])
    if program is None:
        return Rival("colly", None, reason)

    def command(web: BenchWeb, place: Path, concurrency: int) -> list[str | Path]:
        return [program, "-c", str(concurrency), "-idle", "64", "-seeds", web.seeds, "-resolve", web.hosts]

    return Rival("colly", command)


def _spider() -> Rival:
    build: list[str | Path] = ["cargo", "build", "--release", "--target-dir", BUILT / "target"]
    program, reason = _built("spider", "target/release/spider_peer", "cargo", build)
    if program is None:
        return Rival("spider", None, reason)

    def command(web: BenchWeb, place: Path, concurrency: int) -> list[str | Path]:
        words: list[str | Path] = ["env", "SPIDER_RESPECT_CONCURRENCY_UNDER_LOAD=1", program, "--mode", "perhost"]
        return with_hosts(web.hosts.read_text(encoding="ascii"), place, [*words, "--per", "2", "--seeds", web.seeds])

    return Rival("spider", command)


def _built(folder: str, program: str, compiler: str, command: list[str | Path]) -> tuple[Path | None, str]:
    """Returns the program of a peer, compiled on first use, or None and the reason."""
    file = BUILT / program
    if file.exists():
        return file, ""
    if not (PEERS / folder).is_dir():
        return None, "its sources are not beside the project"
    if shutil.which(compiler) is None:
        return None, f"no {compiler} here to build it"
    print(f"  building {folder}", file=sys.stderr, flush=True)
    source = BUILT / f"{folder}-source"
    shutil.copytree(PEERS / folder, source, dirs_exist_ok=True)
    if (manifest := source / "Cargo.toml").exists() and "[workspace]" not in manifest.read_text(encoding="utf-8"):
        with manifest.open("a", encoding="utf-8") as lines:
            lines.write("\n[workspace]\n")  # without it, cargo adds the crate to the project around its folder
    made = subprocess.run(
        list(map(str, command)),
        cwd=source,
        env={**os.environ, "GOFLAGS": "-mod=mod"},
        capture_output=True,
        check=False,
        timeout=BUILD_SECONDS_MAX,
    )
    if made.returncode or not file.exists():
        said = made.stderr.decode("utf-8", "replace").strip().splitlines()
        return None, f"it could not be built ({said[-1][:100] if said else made.returncode})"
    return file, ""
