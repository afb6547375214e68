"""docs/api.md and examples/: every public name is in the reference and in an example that runs."""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys

import pytest

import outrider
from outrider import AsyncFrontier, Frontier

TOURS = {"frontier_tour.py": Frontier, "async_tour.py": AsyncFrontier}


@pytest.fixture(scope="module")
def api(project):
    spec = importlib.util.spec_from_file_location("outrider_api", project / "scripts" / "api.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def names_of(of):
    return {name for name in dir(of) if not name.startswith("_")}


def test_every_public_name_is_in_the_reference(api):
    headings = {line[4:] for line in api.page().splitlines() if line[:4] == "### "}
    wanted = {f"outrider.{name}" for name in outrider.__all__}
    for of in (Frontier, AsyncFrontier):
        wanted |= {f"{of.__name__}.{name}" for name in names_of(of)}
    assert (set(), True) == (wanted - headings, len(wanted) > 110)


def test_every_public_name_has_a_description(api):
    """A method without a docstring uses that of `Frontier`. An entry without words does not help."""
    entries = api.page().split("\n### ")[1:]
    silent = [entry.split("\n", 1)[0] for entry in entries if not entry.split("```")[-1].strip()]
    assert [] == [name for name in silent if name.startswith(("Frontier.", "AsyncFrontier.", "outrider.Front"))]


def used(path):
    """The attributes, names and imports of a program."""
    tree = ast.parse(path.read_text("utf-8"))
    found = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    found |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return found | {alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names}


@pytest.mark.parametrize("name", TOURS)
def test_every_method_is_in_an_example(project, name):
    assert set() == names_of(TOURS[name]) - {"sync"} - used(project / "examples" / name)


def test_every_name_of_the_package_is_in_an_example(project):
    found = set().union(*(used(path) for path in (project / "examples").glob("*.py")))
    assert set() == set(outrider.__all__) - found


@pytest.mark.parametrize("name", [*TOURS, "errors_tour.py"])
def test_the_example_runs(project, tmp_path, name):
    made = {**os.environ, "TMPDIR": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, str(project / "examples" / name)],
        capture_output=True,
        text=True,
        timeout=90,
        env=made,
        check=False,
    )
    assert (0, "", True) == (ran.returncode, ran.stderr, len(ran.stdout) > 40)
