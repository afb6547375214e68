"""scripts/site.py: the index names every page, and no page loads anything from another server."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path

import pytest

from outrider.crawl.setup.options import SETTINGS
from outrider.journey import PageLine


@pytest.fixture(scope="module")
def site(project):
    spec = importlib.util.spec_from_file_location("outrider_site", project / "scripts" / "site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_index_names_every_page(project):
    index = (project / "docs" / "index.md").read_text("utf-8").splitlines()
    pages = {str(path.relative_to(project / "docs").with_suffix("")) for path in (project / "docs").rglob("*.md")}
    pages = pages - {"index"} | {"api"}  # which `make docs` makes
    assert pages == {line for line in index if line in pages}


def test_the_side_navigation_has_four_groups(site, project):
    groups = site.groups((project / "docs" / "index.md").read_text("utf-8"))
    assert ["Tutorial", "How-to", "Reference", "Reasons"] == list(groups)
    assert [] == [name for name, pages in groups.items() if not pages]


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.html", '<script async src="https://cdn.example/x.js"></script>', "https://cdn.example/x.js"),
        ("a.html", "<img alt='' src=//pictures.example/x.png>", "//pictures.example/x.png"),
        ("a.html", '<link rel="stylesheet" href="http://fonts.example/css">', "http://fonts.example/css"),
        ("a.html", '<link href="https://x.example/i.png" rel="icon">', "https://x.example/i.png"),
        ("a.css", "@import 'https://fonts.example/a.css';", "https://fonts.example/a.css"),
        ("a.css", "b{background:url(https://x.example/b.png)}", "https://x.example/b.png"),
        ("a.html", '<a href="https://example.org/">a link is not loaded</a><img src="own.png">', None),
        ("a.css", "b{background:url(own.png)}", None),
    ],
)
def test_external_resources_are_found(site, tmp_path, name, text, found):
    (tmp_path / name).write_text(text)
    assert ([f"{name}: {found}"] if found else []) == list(site.loaded_from_elsewhere(tmp_path))


def test_a_page_that_the_site_lacks_is_named(site, tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "lost.md").write_text("# Lost\n")
    assert ["lost.html: it is not in the site; does docs/index.md name it?"] == list(
        site.missing(tmp_path / "made", tmp_path / "docs")
    )


@pytest.mark.long
def test_the_site_is_built_by_its_command(project):
    ran = subprocess.run(["make", "docs"], cwd=project, capture_output=True, text=True, timeout=900, check=False)
    assert (0, True) == (ran.returncode, "build/site/index.html" in ran.stdout), ran.stdout + ran.stderr
    assert "crawl_delay_max" in (project / "build" / "site" / "cli.html").read_text("utf-8")
    assert [] == unsearchable(project)


def unsearchable(project: Path) -> list[str]:
    """Returns the names of hooks, fields of lines and options that the search of the site does not find."""
    text = (project / "build" / "site" / "searchindex.js").read_text("utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    names = sorted({*SETTINGS, *PageLine.__struct_fields__})
    code = "import json,sys; from sphinx.search.en import SearchEnglish; stem = SearchEnglish({}).stem\n"
    code += "json.dump([stem(name.lower()) for name in json.load(sys.stdin)], sys.stdout)"
    command = [project / ".venv-docs" / "bin" / "python", "-c", code]
    ran = subprocess.run(command, input=json.dumps(names), capture_output=True, text=True, check=True)
    found = {*index["terms"], *index["titleterms"]}
    return [name for name, stem in zip(names, json.loads(ran.stdout), strict=True) if not {name, stem} & found]
