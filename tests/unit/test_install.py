"""The decisions of the installer: which Python, which Rust, what is outdated, and what it puts into the environment."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
import zipfile

import pytest


@pytest.fixture(scope="module")
def install(project):
    spec = importlib.util.spec_from_file_location("outrider_install", project / "scripts" / "install.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tools(tmp_path):
    """Makes folders of programs that print these answers."""

    def make(folder, **answers):
        place = tmp_path / folder
        place.mkdir()
        for name, answer in answers.items():
            program = place / name
            program.write_text(f"#!/bin/sh\n{answer}\n")
            program.chmod(0o755)
        return str(place)

    return make


GOOD_CARGO, GOOD_RUSTC = "echo 'cargo 1.95.0 (f2d3ce0bd 2026-03-21)'", "echo 'rustc 1.95.0'"
BROKEN_SHIM = "echo 'error: rustup could not choose a version of cargo to run' >&2; exit 1"


def test_a_cargo_that_prints_its_version_is_rust(install, tools):
    folder = tools("good", cargo=GOOD_CARGO, rustc=GOOD_RUSTC)
    assert os.path.join(folder, "cargo") == install.find_cargo(folder)


def test_a_shim_without_its_home_is_not_rust(install, tools):
    assert install.find_cargo(tools("shim", cargo=BROKEN_SHIM, rustc=BROKEN_SHIM)) is None


def test_a_broken_shim_does_not_hide_a_good_cargo(install, tools):
    shim, good = tools("shim", cargo=BROKEN_SHIM, rustc=BROKEN_SHIM), tools("good", cargo=GOOD_CARGO, rustc=GOOD_RUSTC)
    assert os.path.join(good, "cargo") == install.find_cargo(os.pathsep.join((shim, good)))


def test_a_cargo_without_a_compiler_is_not_rust(install, tools):
    assert install.find_cargo(tools("half", cargo=GOOD_CARGO, rustc="exit 1")) is None


@pytest.mark.parametrize(
    ("version", "found"), [("1.84.1", False), ("1.85.0", True), ("2.0.0", True), ("0.66.0", False)]
)
def test_a_cargo_that_is_too_old_is_not_rust(install, tools, version, found):
    folder = tools("some", cargo=f"echo 'cargo {version} (abc 2025-01-01)'", rustc=GOOD_RUSTC)
    assert found == (install.find_cargo(folder) is not None)


def test_without_cargo_no_rust_is_found(install, tmp_path):
    assert install.find_cargo(os.pathsep.join((str(tmp_path), "", "/no/such/folder"))) is None


def test_a_check_for_rust_never_starts_a_download(install, tools):
    """rustup would fetch a toolchain by itself."""
    folder = tools("shim", cargo='test "$RUSTUP_AUTO_INSTALL" = 0 && ' + GOOD_CARGO, rustc=GOOD_RUSTC)
    assert install.find_cargo(folder) is not None


def test_the_minimum_rust_version_is_that_of_the_crates(install, project):
    stated = tomllib.loads((project / "Cargo.toml").read_text())["workspace"]["package"]["rust-version"]
    assert ".".join(map(str, install.RUST_MIN)) == stated


def test_the_minimum_python_version_is_that_of_the_package(install, project):
    stated = tomllib.loads((project / "pyproject.toml").read_text())["project"]["requires-python"]
    assert ">=" + ".".join(map(str, install.PYTHON_MIN)) == stated


def test_the_first_python_that_is_new_enough_is_used(install, tools):
    old = tools("old", **{"python3.11": "exit 127", "python3": "echo 3.9"})
    new = tools("new", **{"python3.12": "echo 3.12"})
    assert os.path.join(new, "python3.12") == install.find_python(os.pathsep.join((old, new)))


def test_without_python_the_error_shows_a_way_out(install, tools):
    with pytest.raises(install.InstallError, match=r"needs Python 3\.11 or later.*make install PYTHON="):
        install.find_python(tools("old", python3="echo 3.9"))


@pytest.mark.parametrize(("answer", "expected"), [("3.12", (3, 12)), ("3.9", (3, 9)), ("Python 3", None), ("", None)])
def test_the_version_of_an_interpreter_is_read_by_running_it(install, tools, answer, expected):
    assert expected == install.python_version(os.path.join(tools("some", python=f"echo '{answer}'"), "python"))


@pytest.mark.parametrize(
    ("policy", "offered"),
    [
        ("  Candidate: 1.96.0+dfsg1-1~deb12u2", True),
        ("  Candidate: 1.63.0+dfsg1-2", False),
        ("  Candidate: 0.66.0+ds1-1", False),
        ("  Candidate: (none)", False),
        ("", False),
    ],
)
def test_a_system_package_counts_when_it_is_new_enough(install, tools, monkeypatch, policy, offered):
    monkeypatch.setenv("PATH", tools("apt", **{"apt-cache": f"echo '{policy}'"}) + os.pathsep + os.environ["PATH"])
    assert offered == install.is_offered("cargo-web")


@pytest.mark.parametrize("change", ["Cargo.lock", "crates/kernels/src/lib.rs", "crates/new.rs"])
def test_a_changed_source_makes_the_build_outdated(install, tmp_path, change):
    (tmp_path / "crates" / "kernels" / "src").mkdir(parents=True)
    for name in ("Cargo.toml", "Cargo.lock", "crates/kernels/src/lib.rs"):
        (tmp_path / name).write_text("one")
    names = ["Cargo.toml", "Cargo.lock", "crates"]
    before = install.digest_of(tmp_path, names)
    assert before == install.digest_of(tmp_path, names)
    (tmp_path / change).write_text("two")
    assert before != install.digest_of(tmp_path, names)


@pytest.mark.parametrize("text", ["", "not json", "[1]"])
def test_an_unreadable_stamp_counts_as_missing(install, tmp_path, text):
    (tmp_path / install.STAMP).write_text(text)
    assert {} == install.read_stamp(tmp_path)


def test_the_editable_wheel_points_at_the_sources_and_contains_the_command(install, project, tmp_path):
    with zipfile.ZipFile(install.write_wheel(project, tmp_path)) as wheel:
        assert f"{project / 'src'}\n" == wheel.read("outrider.pth").decode()
        scripts = wheel.read("outrider-0.1.0.dist-info/entry_points.txt").decode()
        listed = wheel.read("outrider-0.1.0.dist-info/RECORD").decode().splitlines()
        names = wheel.namelist()
    assert "[console_scripts]\noutrider = outrider.cli.main:main\n" == scripts
    assert sorted(names) == sorted(line.split(",")[0] for line in listed)


def test_pip_installs_the_editable_wheel(install, project, tmp_path):
    wheel = install.write_wheel(project, tmp_path)
    target = tmp_path / "target"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(target)]
    subprocess.run([*command, str(wheel)], check=True)
    assert (target / "outrider.pth").is_file()
    assert (target / "bin" / "outrider").is_file()


def test_an_unknown_choice_of_kernels_is_refused(project):
    environment = dict(os.environ, OUTRIDER_KERNELS="fast")
    command = [sys.executable, str(project / "scripts" / "install.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (1, "install: OUTRIDER_KERNELS is 'fast'; it may be 'native', 'python' or unset.\n") == (
        done.returncode,
        done.stderr,
    )


# ------------------------------------------------------------------------------------------------- the lock files


def names_of(lines):
    found = (re.match(r"([A-Za-z0-9._-]+)", line) for line in lines)
    return {re.sub(r"[._]", "-", match.group(1).lower()) for match in found if match}


def test_the_package_needs_what_the_runtime_is_locked_for(project):
    stated = tomllib.loads((project / "pyproject.toml").read_text())["project"]["dependencies"]
    lines = (project / "requirements" / "runtime.in").read_text().splitlines()
    assert sorted(stated) == sorted(line for line in lines if line and not line.startswith("#"))


def test_the_image_is_locked_for_the_runtime_with_its_extras(project):
    extras = tomllib.loads((project / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    folder = project / "requirements"
    lines = [line for line in (folder / "image.in").read_text().splitlines() if line and not line.startswith("#")]
    assert sorted(["-r runtime.in", *extras["pdf"], *extras["serve"]]) == sorted(lines)
    image, tested = (
        set(re.findall(r"^\S+==\S+", (folder / name).read_text(), re.MULTILINE)) for name in ("image.txt", "test.txt")
    )
    assert len(image) > 20
    assert image <= tested, "the image brings versions that no test runs: run `make lock`"


def test_the_image_contains_only_files_that_are_built_from_the_sources(project):
    recipe = (project / "Containerfile").read_text()
    ignored = (project / ".dockerignore").read_text().splitlines()
    given = {line[1:] for line in ignored if line.startswith("!")}
    assert {"*", "**/*.so", "**/__pycache__"} <= set(ignored)
    assert {"Cargo.lock", "Cargo.toml", "crates", "pyproject.toml", "requirements", "scripts", "src"} <= given
    assert [] == [name for name in given if not (project / name).exists()]
    for name in re.findall(r"^COPY (requirements/\S+)", recipe, re.MULTILINE):
        assert (project / name).is_file(), name


def test_every_dependency_has_bounds_and_the_locked_version_is_within(project):
    from packaging.requirements import Requirement

    stated = tomllib.loads((project / "pyproject.toml").read_text())["project"]
    wanted = [*stated["dependencies"], *(one for extra in stated["optional-dependencies"].values() for one in extra)]
    locked = "".join((project / "requirements" / f"{kind}.txt").read_text() for kind in ("test", "peers"))
    pins: dict[str, list[str]] = {}
    for name, version in re.findall(r"^([a-z0-9.-]+)==(\S+)", locked, re.MULTILINE):
        pins.setdefault(name, []).append(version)
    assert len(wanted) > 14
    for requirement in map(Requirement, wanted):
        operators = {one.operator for one in requirement.specifier}
        # certifi uses dates as versions: the newest one is always wanted.
        assert ({">="} if requirement.name == "certifi" else {">=", "<"}) == operators, requirement
        versions = pins[re.sub(r"[._]", "-", requirement.name)]
        assert all(version in requirement.specifier for version in versions), requirement


@pytest.mark.parametrize("kind", ["runtime", "test", "bench", "docs", "wheels", "fuzz"])
def test_a_lock_file_names_all_requirements_each_with_a_hash(project, kind):
    asked = set()
    for line in (project / "requirements" / f"{kind}.in").read_text().splitlines():
        included = re.match(r"-r (.+)", line)
        lines = (project / "requirements" / included.group(1)).read_text().splitlines() if included else [line]
        asked |= names_of(lines)
    locked = (project / "requirements" / f"{kind}.txt").read_text()
    entries = re.split(r"\n(?=\S)", locked.strip())
    assert asked <= names_of(entries)
    assert [] == [entry for entry in entries if "--hash=sha256:" not in entry or "==" not in entry]


@pytest.mark.parametrize("kind", ["test", "bench"])
def test_every_lock_file_contains_the_same_runtime(project, kind):
    def pins(name):
        text = (project / "requirements" / f"{name}.txt").read_text()
        return dict(re.findall(r"^([a-z0-9.-]+)==(\S+)", text, re.MULTILINE))

    runtime = pins("runtime")
    assert runtime == {name: version for name, version in pins(kind).items() if name in runtime}


@pytest.mark.parametrize(
    "name",
    [f"{kind}.{end}" for kind in ("runtime", "test", "bench", "docs", "wheels", "fuzz") for end in ("txt", "in")],
)
def test_no_lock_file_names_an_index_or_a_local_path(project, name):
    text = (project / "requirements" / name).read_text()
    assert [] == re.findall(r"https?://|file:|--(?:extra-)?index-url|--find-links|--trusted-host|(?<!\S)/\w+", text)
