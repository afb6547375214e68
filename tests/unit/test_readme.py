"""README.md: each of its examples runs as it stands, and obeys robots.txt."""

from __future__ import annotations

import re

import pytest

from outrider import Frontier


def examples(project):
    return re.findall(r"```python\n(.*?)```", (project / "README.md").read_text("utf-8"), re.DOTALL)


def test_every_example_runs(project, capsys):
    for example in examples(project):
        exec(compile(example, "README.md", "exec"), {})
    assert "http://example.org/b?x=~" in capsys.readouterr().out


def test_the_frontier_of_the_example_leases_no_page_that_robots_txt_closes(project, monkeypatch):
    leased = []
    lease = Frontier.lease

    def watched(frontier, *arguments, **more):
        found = lease(frontier, *arguments, **more)
        leased.extend((one.kind, one.url) for one in found)
        return found

    monkeypatch.setattr(Frontier, "lease", watched)
    (example,) = [text for text in examples(project) if "Frontier.open" in text]
    exec(compile(example.replace("/private", "/"), "README.md", "exec"), {})
    assert [("robots", "https://example.org/robots.txt")] == leased


@pytest.mark.parametrize("name", ["robots="])
def test_the_page_names_what_makes_it_polite(project, name):
    assert name in (project / "README.md").read_text("utf-8")
