"""Makes `.venv` with Outrider in it, with native kernels if Rust is available: `make install` runs it.

It needs only Python 3.11 or later. Locked dependencies are installed with their hashes, with pip's own settings
(index, proxy, certificates). Rust is present if `cargo --version` succeeds. Otherwise the system's package
is installed if that is permitted (root, apt), or the plain Python kernels are used. A stamp in the environment makes
the second run end at once. `--bench` makes `.venv-bench` with the peers that `make bench` measures, `--docs`
makes `.venv-docs` with the generator of the documents' site, `--fuzz` makes `.venv-fuzz` with the fuzzer that
`make test-long` uses on the service, and `--servers` installs the servers and browsers of `make test-servers`, which
some long tests use, too.

Any Python 3 must be able to parse this file, so that an old one can name the missing version.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

PYTHON_MIN = (3, 11)
PYTHON_NAMES = ("python3.11", "python3.12", "python3.13", "python3.14", "python3", "python")
RUST_MIN = (1, 85)  # `rust-version` in Cargo.toml
ASK_SECONDS_MAX = 60  # for a program to print its version
APT_LIST_SECONDS_MAX = 120
APT_FETCH_SECONDS_MAX = 300
APT_UNPACK_SECONDS_MAX = 600  # long, because stopping dpkg half-way damages the machine more than waiting
BUILD_SECONDS_MAX = 1200
SYSTEM_PACKAGES = (("cargo-web", "rustc-web"), ("cargo", "rustc"))  # Debian 12; Debian 13 and other systems
SERVERS = {  # the programs that tests/servers starts -> their packages in Debian
    "chromium": "chromium",
    "curl": "curl",
    "go": "golang-go",
    "ip": "iproute2",
    "java": "openjdk-17-jdk-headless",
    "mvn": "maven",
    "node": "nodejs",
    "npm": "npm",
    "openssl": "openssl",
    "pg_ctl": "postgresql-15",
    "prometheus": "prometheus",
    "promtool": "prometheus",
    "unshare": "util-linux",
}
SCRAPY_TESTED = ("2.18", "2.19")  # requirements/scrapy-*.txt: the oldest and the newest that is supported
STAMP = "outrider-install.json"
ROOT = Path(os.path.abspath(__file__)).parent.parent


class InstallError(Exception):
    """A fault that only the user can repair. The text names it."""


def say(text):
    print(text, flush=True)


# ------------------------------------------------------------------------------------------------- the interpreter


def python_version(program):
    """Returns (major, minor) of an interpreter, or None if it does not run."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    answer = ask([str(program), "-c", code])
    match = re.fullmatch(r"(\d+)\.(\d+)", answer or "")
    return (int(match.group(1)), int(match.group(2))) if match else None


def find_python(path):
    """Returns the first interpreter on `path` that is new enough. Raises InstallError if there is not one."""
    for name in PYTHON_NAMES:
        program = shutil.which(name, path=path)
        if program and (python_version(program) or (0, 0)) >= PYTHON_MIN:
            return program
    raise InstallError(
        f"Outrider needs Python {PYTHON_MIN[0]}.{PYTHON_MIN[1]} or later, and PATH does not have one. "
        "Install one, or name it: make install PYTHON=/path/to/python3.11"
    )


def ask(command, environment=None):
    """Returns the standard output of a program, stripped; None if it fails, hangs or is missing."""
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            timeout=ASK_SECONDS_MAX,
            env=environment,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "replace").strip() if done.returncode == 0 else None


def make_environment(place):
    """Makes a virtual environment at `place`, unless a working one exists."""
    if python_version(place / "bin" / "python") == sys.version_info[:2] and (place / "bin" / "pip").exists():
        return
    shutil.rmtree(place, ignore_errors=True)
    done = subprocess.run(
        [sys.executable, "-m", "venv", str(place)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if done.returncode != 0:
        shutil.rmtree(place, ignore_errors=True)
        raise InstallError(
            f"{sys.executable} -m venv failed; on Debian and Ubuntu `apt install python3-venv` helps.\n"
            + done.stdout.decode("utf-8", "replace").strip()
        )


def install_locked(place, lock):
    """Installs the dependencies of a lock file, each checked against its hash."""
    command = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if subprocess.run([*command, "--require-hashes", "-r", str(lock)], check=False).returncode != 0:
        raise InstallError(f"pip could not install {lock.name}; its output is above.")


# ----------------------------------------------------------------------------------------------------------- Rust


def cargo_version(cargo):
    """Returns (major, minor) of a cargo that works together with the rustc in its folder, or None.

    A rustup shim without its home fails here, and must not start to download a toolchain.
    """
    environment = rust_environment(cargo)
    match = re.match(r"cargo (\d+)\.(\d+)\.", ask([cargo, "--version"], environment) or "")
    if not match or not (ask(["rustc", "--version"], environment) or "").startswith("rustc "):
        return None
    return int(match.group(1)), int(match.group(2))


def rust_environment(cargo):
    """Returns the environment in which `cargo` and the rustc of its folder are first on PATH."""
    environment = dict(os.environ, RUSTUP_AUTO_INSTALL="0", CARGO=cargo)
    environment["PATH"] = os.path.dirname(cargo) + os.pathsep + os.environ.get("PATH", "")
    return environment


def rust_path():
    """Returns the folders to search for Rust: PATH, and the folder of the system's package."""
    return os.pathsep.join((os.environ.get("PATH", ""), "/usr/bin"))


def find_cargo(path):
    """Returns the first cargo on `path` that works and is new enough, or None. A broken shim does not hide a good
    one."""
    for folder in path.split(os.pathsep):
        cargo = shutil.which("cargo", path=folder) if folder else None
        if cargo and (cargo_version(cargo) or (0, 0)) >= RUST_MIN:
            return os.path.abspath(cargo)
    return None


def install_system_rust():
    """Tries the system's package: quietly, for a limited time, and without damage if it fails."""
    apt = shutil.which("apt-get")
    if not apt or os.geteuid() != 0:
        return
    packages = next((pair for pair in SYSTEM_PACKAGES if all(map(is_offered, pair))), None)
    if packages is None:
        run_bounded([apt, "update", "--quiet", *APT_OPTIONS], APT_LIST_SECONDS_MAX)
        packages = next((pair for pair in SYSTEM_PACKAGES if all(map(is_offered, pair))), None)
    if packages is None:
        return
    say(f"No Rust toolchain here: trying the system's packages {' and '.join(packages)}.")
    install = [apt, "install", "--yes", "--quiet", "--no-install-recommends", *APT_OPTIONS]
    if not run_bounded([*install, "--download-only", *packages], APT_FETCH_SECONDS_MAX):
        # The lists may be older than their archive.
        run_bounded([apt, "update", "--quiet", *APT_OPTIONS], APT_LIST_SECONDS_MAX)
        if not run_bounded([*install, "--download-only", *packages], APT_FETCH_SECONDS_MAX):
            return
    run_bounded([*install, "--no-download", *packages], APT_UNPACK_SECONDS_MAX)


APT_OPTIONS = (
    *("-o", "Dpkg::Use-Pty=0"),
    *("-o", "DPkg::Lock::Timeout=30"),
    *("-o", "Acquire::Retries=1"),
    *("-o", "Acquire::http::Timeout=20"),
    *("-o", "Acquire::https::Timeout=20"),
)


def is_offered(package):
    """Whether apt has the package in a version that is new enough."""
    match = re.search(r"Candidate: (?:\d+:)?(\d+)\.(\d+)", ask(["apt-cache", "policy", package]) or "")
    if not match:
        return False
    version = (int(match.group(1)), int(match.group(2)))
    # Old cargo packages have their own numbers: cargo 0.66 belongs to Rust 1.65.
    return version >= RUST_MIN


def run_bounded(command, seconds, folder=None):
    """Whether a quiet command succeeded within its time. folder: its working directory."""
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            timeout=seconds,
            env=environment,
            cwd=folder,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def build_native(root, place, cargo):
    """Builds the kernels into src/outrider. Returns the fault in one line, or None."""
    log = root / "target" / "install.log"
    log.parent.mkdir(exist_ok=True)
    environment = dict(rust_environment(cargo), VIRTUAL_ENV=str(place), PYO3_PYTHON=str(place / "bin" / "python"))
    environment.pop("CONDA_PREFIX", None)
    maturin = [str(place / "bin" / "maturin"), "develop", "--release", "--locked", "--skip-install"]
    with open(log, "wb") as out:
        try:
            done = subprocess.run(
                maturin,
                cwd=root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=BUILD_SECONDS_MAX,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
    if done.returncode != 0:
        lines = log.read_text("utf-8", "replace").splitlines()
        reasons = [line.strip() for line in lines if line.lstrip().lower().startswith(("error", "caused by"))]
        reason = reasons[0] if reasons else "no word"
        return f"the build failed with {reason!r}, see {log.relative_to(root)}"
    code = "import outrider._native"
    if ask([str(place / "bin" / "python"), "-c", code], dict(os.environ, PYTHONPATH=str(root / "src"))) is None:
        return f"the build cannot be imported, see {log.relative_to(root)}"
    return None


def native_files(root):
    return sorted((root / "src" / "outrider").glob("_native*.so"))


# --------------------------------------------------------------------------------------------------- the package


def write_wheel(root, folder, content=None):
    """Makes a wheel of plain Python with the metadata and the `outrider` command. Returns its path.

    content: the files of the package by path; None makes an editable wheel, with a .pth file to `src`.
    """
    import tomllib

    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    name, version = project["name"], project["version"]
    files = content if content is not None else {f"{name}.pth": f"{root / 'src'}\n".encode()}
    info = f"{name}-{version}.dist-info"
    files |= {f"{info}/{entry}": text.encode("utf-8") for entry, text in wheel_metadata(root, project).items()}
    files[f"{info}/RECORD"] = record_of(files, info)
    wheel = Path(folder) / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, octets in files.items():
            archive.writestr(zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0)), octets, zipfile.ZIP_DEFLATED)
    return wheel


def record_of(files, info):
    """Returns the list of a wheel's files, with their hashes."""
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    for path, octets in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(octets).digest()).rstrip(b"=").decode("ascii")
        rows.writerow((path, "sha256=" + digest, len(octets)))
    rows.writerow((f"{info}/RECORD", "", ""))
    return record.getvalue().encode()


def wheel_metadata(root, project):
    """Returns the files of a wheel's dist-info, without its list of files."""
    name, version = project["name"], project["version"]
    lines = ["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}"]
    lines += [f"Summary: {project['description']}", f"Requires-Python: {project['requires-python']}"]
    lines += [f"License-Expression: {project['license']}"]
    lines += [f"Requires-Dist: {dependency}" for dependency in project["dependencies"]]
    for extra, dependencies in project.get("optional-dependencies", {}).items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f"Requires-Dist: {dependency}; extra == '{extra}'" for dependency in dependencies]
    scripts = ["[console_scripts]", *(f"{command} = {target}" for command, target in project["scripts"].items())]
    return {
        "METADATA": "\n".join(lines) + "\n",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: outrider\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "entry_points.txt": "\n".join(scripts) + "\n",
    }


def install_package(root, place):
    """Puts `outrider` into an environment: importable from `src`, with its command in `bin`."""
    with tempfile.TemporaryDirectory() as folder:
        wheel = write_wheel(root, folder)
        command = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        command += ["--no-index", "--no-deps", "--force-reinstall", str(wheel)]
        if subprocess.run(command, check=False).returncode != 0:
            raise InstallError("pip could not install the package itself; its output is above.")
    # The manual page and completion scripts. An environment works without them too.
    ask([str(place / "bin" / "python"), "-m", "outrider.cli.manual", str(place)], dict(os.environ, OUTRIDER_KERNELS=""))


# ---------------------------------------------------------------------------------------------------- the stamp


def digest_of(root, files):
    """Returns one hash over files (folders are walked), their names and this place."""
    digest = hashlib.sha256((f"{root}\0{sys.version}").encode())
    for name in files:
        path = root / name
        below = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        for file in below:
            digest.update(f"{file.relative_to(root)}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\0".encode())
    return digest.hexdigest()


def read_stamp(place):
    try:
        stamp = json.loads((place / STAMP).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def write_stamp(place, stamp):
    (place / STAMP).write_text(json.dumps(stamp, indent=1, sort_keys=True) + "\n", "utf-8")


# ------------------------------------------------------------------------------------------------------ the two acts


def install(root, wish):
    """Makes `.venv`. `wish` is OUTRIDER_KERNELS: 'python', 'native' or '' for the best that is available."""
    place = root / ".venv"
    wanted = {
        "dependencies": digest_of(root, ["requirements/test.txt"]),
        "package": digest_of(root, ["pyproject.toml", "scripts/install.py"]),
        "native": digest_of(root, ["Cargo.toml", "Cargo.lock", "crates"]),
    }
    stamp = read_stamp(place)
    if stamp.get("dependencies") != wanted["dependencies"] or not (place / "bin" / "python").exists():
        say("Installing the locked dependencies into .venv ...")
        make_environment(place)
        install_locked(place, root / "requirements" / "test.txt")
        stamp = {"dependencies": wanted["dependencies"]}
        write_stamp(place, stamp)
    if stamp.get("package") != wanted["package"] or not (place / "bin" / "outrider").exists():
        install_package(root, place)
        stamp["package"] = wanted["package"]
        write_stamp(place, stamp)
    if stamp.get("native") == wanted["native"] and native_files(root):
        return
    if wish == "python":
        remove_native(root)
        conclude(place, stamp, "python", "asked for by OUTRIDER_KERNELS")
        return
    cargo = find_cargo(rust_path())
    if cargo is None and not stamp.get("asked_for_rust"):
        # Once is enough: if the system refused the package once, it refuses it at every `make`.
        stamp["asked_for_rust"] = True
        install_system_rust()
        cargo = find_cargo(rust_path())
    if cargo is None:
        trouble = f"no Rust {RUST_MIN[0]}.{RUST_MIN[1]} or later to be found or installed"
    else:
        say("Building the native kernels (about a minute) ...")
        trouble = build_native(root, place, cargo)
    if trouble is None:
        stamp["native"] = wanted["native"]
        conclude(place, stamp, "native", None)
        return
    remove_native(root)
    if wish == "native":
        raise InstallError(f"OUTRIDER_KERNELS is 'native', but {trouble}.")
    conclude(place, stamp, "python", trouble)


def conclude(place, stamp, kernels, why):
    """Stamps the reached state. If it is new, prints it in one line."""
    stamp["kernels"] = kernels
    if kernels == "python":
        stamp.pop("native", None)
    changed = stamp != read_stamp(place)
    write_stamp(place, stamp)
    if kernels == "native":
        say("Outrider is installed in .venv with its native kernels.")
    elif changed:
        say(f"Outrider is installed in .venv with the plain Python kernels ({why}): everything works, slower.")


def remove_native(root):
    """Removes the native build, which must not outlive the sources that it was made from."""
    for file in native_files(root):
        file.unlink()


def compile_sources(root):
    """Stores the compiled sources, even if Python must not write them. Otherwise each start of `outrider` compiles
    80 files again, in half a second."""
    ask([str(root / ".venv" / "bin" / "python"), "-m", "compileall", "-q", str(root / "src" / "outrider")])


def install_bench(root):
    """Makes `.venv-bench`, with the peers and Outrider, and `.venv-judges`, whose tools some rows measure or need."""
    install_judges(root)
    if install_beside(root, "bench", "the peers to measure beside", ["pyproject.toml"]):
        install_package(root, root / ".venv-bench")


def install_docs(root):
    """Makes `.venv-docs`: the generator of the documents' site, without Outrider."""
    install_beside(root, "docs", "the generator of the documents' site")


def install_fuzz(root):
    """Makes `.venv-fuzz`: the fuzzer of the service, without Outrider."""
    install_beside(root, "fuzz", "the fuzzer of the service")


def install_beside(root, name, what, more=()):
    """Makes an environment from requirements/NAME.txt. Returns whether it was new. more: further files that it depends
    on."""
    place = root / f".venv-{name}"
    wanted = digest_of(root, [f"requirements/{name}.txt", *more, "scripts/install.py"])
    if read_stamp(place).get("dependencies") == wanted and (place / "bin" / "python").exists():
        return False
    say(f"Installing {what} into .venv-{name} ...")
    make_environment(place)
    install_locked(place, root / "requirements" / f"{name}.txt")
    write_stamp(place, {"dependencies": wanted})
    return True


# ------------------------------------------------------------------------------------------------------------ tools


def install_servers(root):
    """Installs the servers and browsers that `make test-servers` starts, from Debian's packages, if PATH lacks them and
    this user may install. None of them starts by itself. Tests of a missing program are skipped, and say so. Other
    crawlers are installed into `.venv-peers`, together with Outrider, the tests of Scrapy into `target/scrapy`, and
    tools of web archives into `.venv-judges`."""
    if install_beside(root, "peers", "the crawlers that use Outrider, or are compared with it", ["pyproject.toml"]):
        install_package(root, root / ".venv-peers")
    for version in SCRAPY_TESTED:
        install_scrapy_tests(root, version)
    install_judges(root)
    install_packages()


def install_scrapy_tests(root, version):
    """Unpacks a source distribution of Scrapy into target/scrapy/VERSION: its own tests are only there."""
    place, lock = root / "target" / "scrapy" / version, root / "requirements" / f"scrapy-{version}.txt"
    wanted = digest_of(root, [f"requirements/scrapy-{version}.txt"])
    if read_stamp(place).get("dependencies") == wanted:
        return
    say(f"Fetching the tests of Scrapy {version} ...")
    shutil.rmtree(place, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        command = [str(root / ".venv-peers" / "bin" / "python"), "-m", "pip", "download", "--quiet", "--no-deps"]
        options = ["--disable-pip-version-check", "--no-binary", "scrapy", "--require-hashes", "-d", folder]
        if subprocess.run([*command, *options, "-r", str(lock)], check=False).returncode != 0:
            raise InstallError(f"pip could not fetch {lock.name}; its output is above.")
        (archive,) = Path(folder).glob("*.tar.gz")
        with tarfile.open(archive) as content:
            # tarfile has filters since Python 3.11.4. The archive is safe without one: pip compared its hash.
            content.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
        shutil.copytree(archive.with_name(archive.name.removesuffix(".tar.gz")), place)
    write_stamp(place, {"dependencies": wanted})


def install_judges(root):
    """Makes `.venv-judges`."""
    install_beside(root, "judges", "the tools of web archives and the object storage that tests use")


def install_packages():
    """Installs the system's packages of the servers that tests start."""
    packages = sorted({package for program, package in SERVERS.items() if not shutil.which(program)})
    apt = shutil.which("apt-get")
    if not packages or not apt or os.geteuid() != 0:
        return
    say(f"Installing the system's packages {', '.join(packages)} ...")
    # At run level 1, the script of a package starts no server.
    install = ["env", "RUNLEVEL=1", apt, "install", "--yes", "--quiet", "--no-install-recommends", *APT_OPTIONS]
    run_bounded([apt, "update", "--quiet", *APT_OPTIONS], APT_LIST_SECONDS_MAX)
    for package in packages:  # one by one: if one is not available, the rest is installed
        run_bounded([*install, package], APT_UNPACK_SECONDS_MAX)


def main(arguments):
    if sys.version_info < PYTHON_MIN:
        python = find_python(os.environ.get("PATH", ""))
        os.execv(python, [python, os.path.abspath(__file__), *arguments])
    others = {
        "--bench": install_bench,
        "--docs": install_docs,
        "--fuzz": install_fuzz,
        "--servers": install_servers,
    }
    if len(arguments) > 1 or set(arguments) - set(others):
        raise InstallError(f"usage: install.py [{' | '.join(others)}]")
    wish = os.environ.get("OUTRIDER_KERNELS", "")
    if wish not in ("", "python", "native"):
        raise InstallError(f"OUTRIDER_KERNELS is {wish!r}; it may be 'native', 'python' or unset.")
    import fcntl

    lock = os.open(ROOT, os.O_RDONLY)
    try:
        # Two at once would damage each other's environment. The second one finds everything done.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if arguments:
            others[arguments[0]](ROOT)
        else:
            install(ROOT, wish)
            compile_sources(ROOT)
    finally:
        os.close(lock)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except InstallError as error:
        sys.exit(f"install: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
