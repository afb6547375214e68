"""Builds wheels into a folder: `wheels.py [native|pure|all] [FOLDER]`, what `make wheels` runs (into dist).

native   with the kernels, for this machine's processor and system: abi3 for every Python from 3.11 on. On Linux the
         lowest manylinux (or musllinux) tag that the build's own libraries allow, as maturin finds it: a build on an
         older system runs on more of them.
pure     with the plain Python twins, for every machine. pip takes it where no native wheel fits; no compiler is needed.

It runs where Outrider can be imported, for the manual page in the wheels is made of its commands. The same command
makes the wheels of other platforms where it runs on them, or in their containers.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

from install import (
    ROOT,
    InstallError,
    find_cargo,
    make_environment,
    record_of,
    rust_environment,
    rust_path,
    write_wheel,
)

BUILD_SECONDS_MAX = 3600
TOOLS = ROOT / "target" / "wheels"


def package_files(root: Path) -> dict[str, bytes]:
    """The files of the package without what was built or cached, by path in a wheel."""
    source = root / "src"
    return {
        path.relative_to(source).as_posix(): path.read_bytes()
        for path in sorted((source / "outrider").rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts and path.suffix not in (".so", ".pyd")
    }


def data_files(name: str) -> dict[str, bytes]:
    """The manual page and the completion scripts, by path in a wheel."""
    from outrider.cli.manual import files

    return {f"{name}.data/data/{path}": text.encode("utf-8") for path, text in files().items()}


def pure(folder: Path) -> Path:
    """A wheel with the twins alone."""
    return with_data(write_wheel(ROOT, folder, package_files(ROOT)))


def with_data(wheel: Path) -> Path:
    """The same wheel with the manual page and the completion scripts."""
    name = "-".join(wheel.name.split("-")[:2])
    info = f"{name}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        files = {one: archive.read(one) for one in archive.namelist() if one != f"{info}/RECORD"}
    files |= data_files(name)
    files[f"{info}/RECORD"] = record_of(files, info)
    whole = wheel.with_suffix(".part")
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, octets in files.items():
            archive.writestr(zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0)), octets, zipfile.ZIP_DEFLATED)
    whole.replace(wheel)
    return wheel


def locked_maturin() -> str:
    """The lines of the lock file that pin maturin, with its hashes."""
    text = (ROOT / "requirements" / "test.txt").read_text("utf-8")
    match = re.search(r"^maturin==.*?(?=^\S)", text, re.MULTILINE | re.DOTALL)
    if match is None:
        raise InstallError("requirements/test.txt pins no maturin; `make lock` writes it anew")
    return match.group(0)


def native(folder: Path) -> Path:
    """A wheel with the kernels, for this platform. Raises InstallError where it cannot be built."""
    cargo = find_cargo(rust_path())
    if cargo is None:
        raise InstallError("a native wheel takes Rust 1.85 or later; the pure one needs none: wheels.py pure")
    make_environment(TOOLS)
    pinned = TOOLS / "maturin.txt"
    pinned.write_text(locked_maturin(), "utf-8")
    pip = [str(TOOLS / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command = [str(TOOLS / "bin" / "maturin"), "build", "--release", "--locked", "--out", str(folder)]
    before = set(folder.glob("*.whl"))
    environment = dict(rust_environment(cargo), PYO3_PYTHON=str(TOOLS / "bin" / "python"))
    for step in ([*pip, "--require-hashes", "-r", str(pinned)], [*command, "-i", str(TOOLS / "bin" / "python")]):
        done = subprocess.run(step, cwd=ROOT, env=environment, timeout=BUILD_SECONDS_MAX, check=False)
        if done.returncode != 0:
            raise InstallError(f"{Path(step[0]).name} failed; what it says is above")
    made = set(folder.glob("*.whl")) - before or {path for path in folder.glob("*.whl") if "none-any" not in path.name}
    return with_data(max(made, key=os.path.getmtime))


def main(arguments: list[str]) -> None:
    which, place = [*arguments, *("all", "dist")[len(arguments) :]][:2]
    if which not in ("native", "pure", "all") or len(arguments) > 2:
        raise InstallError("usage: wheels.py [native|pure|all] [FOLDER]")
    folder = Path(place).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    with (ROOT / "pyproject.toml").open("rb") as file:
        version = tomllib.load(file)["project"]["version"]
    print(f"outrider {version}")
    if which in ("pure", "all"):
        print(pure(folder))
    if which in ("native", "all"):
        print(native(folder))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except InstallError as error:
        sys.exit(f"wheels: {error}")
