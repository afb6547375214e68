"""Builds wheels into a folder: `wheels.py [WHAT[,WHAT]...] [FOLDER]`. `make wheels` runs it (all, into dist).

all      the pure wheel and one for each platform of PLATFORMS, from one machine: Zig links for the foreign ones
         (docs/decisions/wheels.md). If a platform cannot be built, the command names it with the reason and the way
         out, builds the rest, and ends with 1.
native   with the kernels, for this machine's processor and system, by its own linker: abi3 for every Python from 3.11
         on. On Linux it has the lowest manylinux (or musllinux) tag that the build's libraries allow, by maturin.
pure     with the plain Python twins, for every machine. pip uses it if no native wheel fits. It needs no compiler.
NAME     one platform, by its name in PLATFORMS, as in `wheels.py musllinux_aarch64,pure`.

It must run where Outrider can be imported, because the manual page in the wheels is made from its commands.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

from install import (
    ROOT,
    InstallError,
    ask,
    find_cargo,
    make_environment,
    record_of,
    rust_environment,
    rust_path,
    write_wheel,
)

BUILD_SECONDS_MAX = 3600
WHEEL_BYTES_MAX = 4_000_000  # of a download; the kernels with their two TLS versions take 3 MB
TOOLS = ROOT / "target" / "wheels"


@dataclass(frozen=True)
class Platform:
    """A platform with a wheel: the name of its target in Rust, and the tag of the wheel."""

    name: str
    target: str
    tag: str | None = None  # None: maturin's own for this target
    macos_min: str | None = None
    without: tuple[str, ...] = ()  # dependencies that have no wheel there, and that only plain kernels or patterns need


NOT_ON_MUSL = ("google-re2", "pycurl")
PLATFORMS = (
    Platform("manylinux_x86_64", "x86_64-unknown-linux-gnu", "manylinux_2_17"),
    Platform("manylinux_aarch64", "aarch64-unknown-linux-gnu", "manylinux_2_17"),
    Platform("musllinux_x86_64", "x86_64-unknown-linux-musl", "musllinux_1_2", without=NOT_ON_MUSL),
    Platform("musllinux_aarch64", "aarch64-unknown-linux-musl", "musllinux_1_2", without=NOT_ON_MUSL),
    Platform("macos_x86_64", "x86_64-apple-darwin", macos_min="11.0", without=("turbohtml",)),
    Platform("macos_arm64", "aarch64-apple-darwin", macos_min="11.0"),
)


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


def with_data(wheel: Path, without: tuple[str, ...] = ()) -> Path:
    """The same wheel with the manual page and the completion scripts, and free of the dependencies in `without`.

    Raises InstallError for a name that the wheel does not depend on, and for a wheel that is too large."""
    name = "-".join(wheel.name.split("-")[:2])
    info = f"{name}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        files = {one: archive.read(one) for one in archive.namelist() if one != f"{info}/RECORD"}
    files |= data_files(name)
    files[f"{info}/METADATA"] = free_of(files[f"{info}/METADATA"].decode("utf-8"), without).encode("utf-8")
    files[f"{info}/RECORD"] = record_of(files, info)
    whole = wheel.with_suffix(".part")
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, octets in files.items():
            archive.writestr(zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0)), octets, zipfile.ZIP_DEFLATED)
    whole.replace(wheel)
    if wheel.stat().st_size > WHEEL_BYTES_MAX:
        raise InstallError(f"{wheel.name} has {wheel.stat().st_size:,} bytes; the limit is {WHEEL_BYTES_MAX:,}")
    return wheel


def free_of(metadata: str, without: tuple[str, ...]) -> str:
    """Returns the metadata without the lines that require the named dependencies.

    Markers cannot distinguish musl and glibc, so the wheels have different metadata. Raises InstallError for a name
    that is not in the metadata."""
    for name in without:
        metadata, found = re.subn(rf"^Requires-Dist: {re.escape(name)}(?![\w.-]).*\n", "", metadata, flags=re.MULTILINE)
        if found != 1:
            raise InstallError(f"the wheel does not depend on {name}, which PLATFORMS names; remove it there")
    return metadata


def locked(name: str, file: str) -> str:
    """The lines of a lock file that pin one package, with its hashes."""
    text = (ROOT / "requirements" / file).read_text("utf-8")
    match = re.search(rf"^{re.escape(name)}==.*?(?=^\S|\Z)", text, re.MULTILINE | re.DOTALL)
    if match is None:
        raise InstallError(f"requirements/{file} does not pin {name}; run `make lock`")
    return match.group(0)


def tools(names: dict[str, str]) -> dict[str, str]:
    """The environment of a build with these tools, each by its lock file. Raises InstallError without Rust."""
    cargo = find_cargo(rust_path())
    if cargo is None:
        raise InstallError("a native wheel needs Rust 1.85 or later; without Rust, use make wheels FOR=pure")
    make_environment(TOOLS)
    pinned = TOOLS / "pinned.txt"
    pinned.write_text("".join(locked(name, file) for name, file in names.items()), "utf-8")
    environment = dict(rust_environment(cargo), PYO3_PYTHON=str(TOOLS / "bin" / "python"))
    environment["PATH"] = (
        f"{environment['PATH'].split(os.pathsep)[0]}{os.pathsep}{TOOLS / 'bin'}{os.pathsep}" + (environment["PATH"])
    )
    pip = [str(TOOLS / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*pip, "--no-deps", "--require-hashes", "-r", str(pinned)], environment)
    return environment


def run(command: list[str], environment: dict[str, str]) -> None:
    """Runs a step of a build. Raises InstallError when it fails or hangs."""
    name = Path(command[0]).name
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, timeout=BUILD_SECONDS_MAX, check=False)
    except subprocess.TimeoutExpired:
        raise InstallError(f"{name} took longer than {BUILD_SECONDS_MAX} s") from None
    if done.returncode != 0:
        raise InstallError(f"{name} failed; its output is above")


def built(folder: Path, options: list[str], environment: dict[str, str]) -> Path:
    """The wheel that maturin builds with these options."""
    python = str(TOOLS / "bin" / "python")
    command = [str(TOOLS / "bin" / "maturin"), "build", "--release", "--locked", "-i", python]
    place = TOOLS / "built"
    for old in place.glob("*.whl"):
        old.unlink()
    run([*command, "--out", str(place), *options], environment)
    (wheel,) = place.glob("*.whl")
    folder.mkdir(parents=True, exist_ok=True)
    return wheel.replace(folder / wheel.name)


def native(folder: Path) -> Path:
    """A wheel with the kernels, for this machine. Raises InstallError where it cannot be built."""
    return with_data(built(folder, [], tools({"maturin": "test.txt"})))


def foreign(platform: Platform, folder: Path) -> Path:
    """A wheel with the kernels for any of PLATFORMS. Raises InstallError where it cannot be built."""
    cargo = find_cargo(rust_path())
    if cargo is not None and not has_library(platform.target, rust_environment(cargo)):
        raise InstallError(f"Rust has no library for this platform; run rustup target add {platform.target}")
    environment = tools({"maturin": "test.txt", "cargo-zigbuild": "wheels.txt", "ziglang": "wheels.txt"})
    if platform.macos_min:
        environment["MACOSX_DEPLOYMENT_TARGET"] = platform.macos_min
    tag = ["--compatibility", platform.tag] if platform.tag else []
    return with_data(built(folder, ["--zig", "--target", platform.target, *tag], environment), platform.without)


def has_library(target: str, environment: dict[str, str]) -> bool:
    """Whether the compiler has the standard library of a target."""
    place = ask(["rustc", "--print", "target-libdir", "--target", target], environment)
    return bool(place) and any(Path(str(place)).glob("libstd-*.rlib"))


def wanted(what: str) -> list[str]:
    """Returns the names in `native,pure`, with `all` spelled out. Raises InstallError for an unknown name."""
    known = ["pure", *(platform.name for platform in PLATFORMS)]
    names: list[str] = []
    for name in what.split(","):
        if name not in ("all", "native", *known):
            raise InstallError(f"{name!r} is not a wheel; use all, native, {', '.join(known)}")
        names += known if name == "all" else [name]
    return list(dict.fromkeys(names))


def build(name: str, folder: Path) -> Path:
    """One wheel by its name."""
    if name in ("pure", "native"):
        return (pure if name == "pure" else native)(folder)
    return foreign(next(platform for platform in PLATFORMS if platform.name == name), folder)


def main(arguments: list[str]) -> None:
    what, place = [*arguments, *("all", "dist")[len(arguments) :]][:2]
    if len(arguments) > 2:
        raise InstallError("usage: wheels.py [all|native|pure|NAME[,NAME]...] [FOLDER]")
    names = wanted(what)
    folder = Path(place).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    with (ROOT / "pyproject.toml").open("rb") as file:
        version = tomllib.load(file)["project"]["version"]
    told = [f"outrider {version}"]
    missing = 0
    for name in names:
        try:
            wheel = build(name, folder)
            told.append(f"  {name:18} {wheel.name}, {wheel.stat().st_size / 1e6:.1f} MB")
        except InstallError as error:
            missing += 1
            told.append(f"  {name:18} not built: {error}")
    print("\n".join(told), flush=True)
    if missing:
        raise InstallError(f"{missing} of {len(names)} not built; the reasons are above")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except InstallError as error:
        sys.exit(f"wheels: {error}")
