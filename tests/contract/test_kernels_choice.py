"""The choice of a process between kernels, and its message when it cannot have the selected ones."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from outrider import kernels
from outrider.errors import OutriderError
from outrider.kernels import framing, siphash

SAY = "from outrider import kernels; print(kernels.in_use(), kernels.crc32c.__module__)"
HIDE = "import sys; sys.modules['outrider._native'] = None; "
HIDE_LIBRARY = """import sys
class Without:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        return None if name == "{0}" else self.finder.find_spec(name, path, target)
sys.meta_path[:] = map(Without, sys.meta_path)
"""
OTHER_INTERFACE = """import sys
class Build:
    INTERFACE = 0
    def __getattr__(self, name):
        return self
sys.modules["outrider._native"] = Build()
"""
OUTDATED = "import sys, types; sys.modules['outrider._native'] = types.ModuleType('outrider._native'); "


def run(code, wish):
    environment = {name: value for name, value in os.environ.items() if name != "OUTRIDER_KERNELS"}
    if wish is not None:
        environment["OUTRIDER_KERNELS"] = wish
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)


def native_is_built():
    return run("import outrider._native", None).returncode == 0


def test_python_is_forced_by_the_environment():
    assert "python outrider.kernels.framing" == run(SAY, "python").stdout.strip()


@pytest.mark.parametrize("wish", [None, "", "native"])
def test_native_is_used_where_it_was_built(wish):
    if not native_is_built():
        pytest.skip("there is no native build here")
    assert "native" == run(SAY, wish).stdout.split()[0]


@pytest.mark.parametrize("wish", [None, ""])
def test_the_twins_serve_where_nothing_was_built(wish):
    assert "python" == run(HIDE + SAY, wish).stdout.split()[0]


@pytest.mark.parametrize("missing", ["pycurl", "turbohtml"])
def test_twins_without_their_libraries_are_refused_with_a_way_out(missing):
    """The wheels for musl and for Macs with Intel leave out libraries that have no wheel there."""
    last = run(HIDE_LIBRARY.format(missing) + SAY, "python").stderr.strip().splitlines()[-1]
    assert f"the plain kernels take {missing}, which this environment has not; `pip install {missing}`" in last


def test_the_native_kernels_crawl_without_the_libraries_of_the_twins():
    if not native_is_built():
        pytest.skip("there is no native build here")
    hide = "".join(map(HIDE_LIBRARY.format, ("pycurl", "turbohtml", "re2")))
    said = run(hide + "import outrider.crawl.run.loop, outrider.cli.main as main; main.say_version()", "native")
    assert "kernels  native" in said.stdout, said.stderr


def test_a_pattern_without_its_library_is_refused_with_a_way_out():
    code = "from outrider.url.patterns import compiled; compiled('exclude pattern', 'x.*', groups=False)"
    last = run(HIDE_LIBRARY.format("re2") + code, None).stderr.strip().splitlines()[-1]
    assert "exclude pattern 'x.*': patterns take google-re2, which is not installed; `pip install google-re2`" in last


def test_native_without_a_build_is_refused_with_a_way_out():
    last = run(HIDE + SAY, "native").stderr.strip().splitlines()[-1]
    assert "KernelsError" in last
    assert "make install" in last


@pytest.mark.parametrize("wish", [None, "native"])
def test_a_build_older_than_its_sources_is_refused_with_a_way_out(wish):
    last = run(OUTDATED + SAY, wish).stderr.strip().splitlines()[-1]
    assert "KernelsError: The kernels that OUTRIDER_KERNELS selects cannot be used: the native build is older" in last
    assert "make install" in last


def test_a_build_whose_functions_have_other_parameters_is_refused_with_a_way_out():
    last = run(OTHER_INTERFACE + SAY, "native").stderr.strip().splitlines()[-1]
    assert "the native build is older" in last
    assert "make install" in last


def test_an_unknown_wish_is_refused_and_named():
    last = run(SAY, "fast").stderr.strip().splitlines()[-1]
    assert "OUTRIDER_KERNELS is 'fast'; it may be 'native', 'python' or unset" in last


def test_the_error_is_an_import_error_and_one_of_outriders():
    assert issubclass(kernels.KernelsError, ImportError)
    assert issubclass(kernels.KernelsError, OutriderError)


def test_the_package_and_its_twins_state_the_same_limits():
    names = ("FRAME_HEADER_BYTES", "FRAME_BYTES_MAX", "END", "ZEROS", "SHORT", "BAD", "LIMIT")
    assert [getattr(framing, name) for name in names] == [getattr(kernels, name) for name in names]
    assert siphash.KEY_BYTES == kernels.FINGERPRINT_KEY_BYTES
