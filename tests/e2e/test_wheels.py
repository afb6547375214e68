"""The wheel of plain Python in an environment of its own, without a compiler: import, a crawl, the kernels that run.

Its dependencies are those of this project's environment, so that nothing is fetched.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import sysconfig
import zipfile

import pytest

from e2e.crawling import environment, fetched, on, web


@pytest.fixture(scope="module")
def wheels(project):
    sys.path.insert(0, str(project / "scripts"))
    try:
        spec = importlib.util.spec_from_file_location("outrider_wheels", project / "scripts" / "wheels.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # its frozen classes look for it there
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(project / "scripts"))
    return module


@pytest.fixture(scope="module")
def bare(wheels, tmp_path_factory):
    """An environment with the wheel; a shell in it finds no compiler."""
    folder = tmp_path_factory.mktemp("bare")
    return installed(wheels.pure(folder), folder / "venv")


def installed(wheel, place):
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    python = str(place / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]
    subprocess.run([*pip, str(wheel)], check=True, env=environment(PATH=str(place / "bin")))
    library = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    # After the wheel's own folder; a line of a .pth file there would not be read again.
    with open(f"{library}/dependencies.pth", "w") as file:
        file.write(sysconfig.get_path("purelib") + "\n")
    return place


def ran(place, *arguments):
    made = environment(PATH=str(place / "bin"))
    made.pop("OUTRIDER_KERNELS", None)
    made.pop("PYTHONPATH", None)
    return subprocess.run(
        [str(place / "bin" / arguments[0]), *map(str, arguments[1:])],
        capture_output=True,
        text=True,
        timeout=100,
        cwd=place,
        env=made,
        check=False,
    )


def test_the_wheel_of_plain_python_says_that_its_kernels_are_python(bare):
    said = ran(bare, "outrider", "version")
    assert (0, True) == (said.returncode, "kernels  python" in said.stdout), said.stdout + said.stderr
    where = ran(bare, "python", "-c", "import outrider; print(outrider.__file__)").stdout
    assert str(bare) in where


def test_it_crawls_the_bundled_web_to_the_end(bare, tmp_path):
    with web(tmp_path / "web", hosts=2, pages=12) as served:
        said = ran(bare, "outrider", *on(served, tmp_path / "out"))
    assert 0 == said.returncode, said.stderr
    assert len(fetched(tmp_path / "out")) >= 10


def test_it_brings_the_manual_page_and_the_completion_scripts(bare):
    from outrider.cli.manual import files

    assert files() == {path: (bare / path).read_text("utf-8") for path in files()}


def test_the_manual_page_names_every_command_and_option():
    from outrider.cli.main import outrider
    from outrider.cli.manual import manual
    from outrider.crawl.setup.options import SETTINGS, flag_of

    text = manual().replace("\\-", "-")
    assert [] == [name for name in outrider.commands if f".SS outrider {name}" not in text]
    assert [] == [name for name, one in SETTINGS.items() if not one.file_only and flag_of(name) not in text]


def test_the_wheel_has_the_types_and_no_build_of_this_machine(wheels, tmp_path):
    with zipfile.ZipFile(wheels.pure(tmp_path)) as wheel:
        names = wheel.namelist()
        metadata = wheel.read("outrider-0.1.0.dist-info/METADATA").decode()
    assert {"outrider/py.typed", "outrider/url/data/public_suffix_list.dat"} <= set(names)
    assert [] == [name for name in names if name.endswith((".so", ".pyc"))]
    assert "Requires-Dist: pyarrow>=18,<27; extra == 'parquet'" in metadata


@pytest.mark.long
def test_the_native_wheel_runs_its_kernels_where_no_compiler_is(wheels, tmp_path):
    place = installed(wheels.native(tmp_path), tmp_path / "venv")
    assert "kernels  native" in ran(place, "outrider", "version").stdout
