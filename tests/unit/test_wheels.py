"""The decisions of the builder: which wheels are requested, which cannot be built here, and the dependencies of
each."""

from __future__ import annotations

import importlib.util
import re
import sys
import tomllib
import zipfile

import pytest


@pytest.fixture(scope="module")
def wheels(project):
    sys.path.insert(0, str(project / "scripts"))
    try:
        spec = importlib.util.spec_from_file_location("outrider_wheels_unit", project / "scripts" / "wheels.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(project / "scripts"))
    return module


def test_all_means_linux_and_macos_for_both_processors_and_plain_python(wheels):
    system = "manylinux_{0} musllinux_{0}"
    expected = f"{system.format('x86_64')} {system.format('aarch64')} macos_x86_64 macos_arm64 pure".split()
    assert sorted(expected) == sorted(wheels.wanted("all"))


def test_a_wheel_that_is_requested_twice_is_built_once(wheels):
    assert ["native", "pure"] == wheels.wanted("native,pure,native")


@pytest.mark.parametrize("what", ["", "windows", "pure,", "pure, native", "ALL"])
def test_an_unknown_wheel_is_refused_with_the_known_ones(wheels, what):
    with pytest.raises(wheels.InstallError, match=r"is not a wheel; use all, native, pure, manylinux_x86_64, "):
        wheels.wanted(what)


def test_a_platform_without_rust_library_is_named_and_the_other_wheels_are_built(wheels, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(wheels, "find_cargo", lambda path: "/somewhere/cargo")
    monkeypatch.setattr(wheels, "has_library", lambda target, environment: False)
    with pytest.raises(wheels.InstallError, match=r"^1 of 2 not built; the reasons are above$"):
        wheels.main(["musllinux_aarch64,pure", str(tmp_path / "to")])
    told = capsys.readouterr().out
    assert (
        "not built: Rust has no library for this platform; run rustup target add aarch64-unknown-linux-musl\n" in told
    )
    assert ["outrider-0.1.0-py3-none-any.whl"] == [path.name for path in (tmp_path / "to").iterdir()]


def test_without_rust_the_error_names_the_wheel_that_does_not_need_it(wheels, monkeypatch):
    monkeypatch.setattr(wheels, "find_cargo", lambda path: None)
    with pytest.raises(wheels.InstallError, match=r"Rust 1\.85 or later.*make wheels FOR=pure"):
        wheels.build("macos_arm64", None)


def test_a_library_exists_when_its_folder_has_the_standard_library(wheels, monkeypatch, tmp_path):
    monkeypatch.setattr(wheels, "ask", lambda command, environment: str(tmp_path))
    assert not wheels.has_library("aarch64-apple-darwin", {})
    (tmp_path / "libstd-1234.rlib").touch()
    assert wheels.has_library("aarch64-apple-darwin", {})


def test_a_target_that_is_unknown_to_the_compiler_has_no_library(wheels, monkeypatch):
    monkeypatch.setattr(wheels, "ask", lambda command, environment: None)
    assert not wheels.has_library("no-such-target", {})


METADATA = "Name: outrider\nRequires-Dist: pycurl>=7,<8\nRequires-Dist: pycurl-other>=1\n\nOf Requires-Dist: pycurl\n"


def test_a_wheel_leaves_out_the_dependencies_that_do_not_exist_for_its_platform(wheels):
    assert METADATA.replace("Requires-Dist: pycurl>=7,<8\n", "") == wheels.free_of(METADATA, ("pycurl",))


def test_leaving_out_a_missing_dependency_is_an_error(wheels):
    with pytest.raises(wheels.InstallError, match="does not depend on pyc, which PLATFORMS names"):
        wheels.free_of(METADATA, ("pyc",))


def test_every_dependency_that_is_left_out_is_one_of_the_package(wheels, project):
    stated = tomllib.loads((project / "pyproject.toml").read_text())["project"]["dependencies"]
    names = {re.match(r"[\w.-]+", one)[0] for one in stated}
    assert [] == [name for platform in wheels.PLATFORMS for name in platform.without if name not in names]


def test_a_wheel_that_is_too_large_is_an_error(wheels, monkeypatch, tmp_path):
    monkeypatch.setattr(wheels, "WHEEL_BYTES_MAX", 1000)
    with pytest.raises(
        wheels.InstallError, match=r"outrider-0\.1\.0-py3-none-any\.whl has [\d,]+ bytes; the limit is 1,000"
    ):
        wheels.pure(tmp_path)


def test_leaving_out_keeps_the_list_of_files_correct(wheels, install_record, tmp_path):
    wheel = wheels.with_data(wheels.pure(tmp_path), ("pycurl", "google-re2"))
    names, listed, metadata = install_record(wheel)
    assert sorted(names) == sorted(listed)
    assert "pycurl" not in metadata


@pytest.fixture
def install_record():
    def read(wheel):
        with zipfile.ZipFile(wheel) as archive:
            info = next(name for name in archive.namelist() if name.endswith("/RECORD"))
            rows = archive.read(info).decode().splitlines()
            metadata = archive.read(info.replace("RECORD", "METADATA")).decode()
            return archive.namelist(), [row.split(",")[0] for row in rows], metadata

    return read


def test_the_tools_are_pinned_with_hashes(wheels):
    for name, file in {"maturin": "test.txt", "cargo-zigbuild": "wheels.txt", "ziglang": "wheels.txt"}.items():
        assert re.match(rf"{name}==\S+ .*?\n( +--hash=sha256:[0-9a-f]{{64}}.*\n?)+\Z", wheels.locked(name, file))
