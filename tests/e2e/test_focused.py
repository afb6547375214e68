"""The focused crawlers of examples/, on hooks and on the three verbs, judged by the log of a hostile web."""

from __future__ import annotations

import runpy
import socket
from urllib.parse import urlsplit

import pytest

from e2e.crawling import web
from outrider.sim.verdict import judge

DELAY = 0.05
LINES_MAX = 40
EXAMPLES = ("focused.py", "own_focused.py")


def code_lines(path):
    """The lines of a program without its docstring, imports and what reads the command line."""
    text = path.read_text("utf-8").split('"""', 2)[2].split('if __name__ == "__main__":')[0]
    return [line for line in text.splitlines() if line.strip() and not line.startswith(("import ", "from "))]


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_crawler_has_forty_lines_at_most(project, name):
    assert 5 < len(code_lines(project / "examples" / name)) <= LINES_MAX


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A web with a slow host, a busy one, closed folders, a calendar without end; its names resolve here."""
    with web(tmp_path / "web", hosts=16, pages=320, quirks=True) as served:
        known = {}
        for line in served.hosts_file.read_text().splitlines():
            address, *names = line.split()
            known |= dict.fromkeys(names, address)
        ask = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", lambda host, *more, **how: ask(known.get(host, host), *more, **how))
        yield served


def seeds_of(served):
    return served.seeds_file.read_text().split()


def kept_the_rules(served, least):
    verdict = judge(served.log_file, delay=DELAY)
    assert [] == verdict.breaches
    assert len(verdict.requests) >= least
    assert len(verdict.hosts) > 3
    return verdict


def test_the_one_on_hooks_obeys(served, tmp_path, project):
    example = runpy.run_path(str(project / "examples" / "focused.py"))
    options = {"hosts": str(served.hosts_file), "delay": DELAY, "delay_factor": 0, "max_pages": 60, "sitemaps": False}
    example["crawl"](str(tmp_path / "out"), None, "the", seeds_of(served), **options)
    kept_the_rules(served, 40)


def test_the_one_on_the_three_verbs_obeys(served, tmp_path, project):
    example = runpy.run_path(str(project / "examples" / "own_focused.py"))
    example["crawl"](tmp_path / "store", "me@example.org", "the", seeds_of(served), 60, delay=DELAY, delay_factor=0)
    verdict = kept_the_rules(served, 40)
    ours = {urlsplit(seed).hostname for seed in seeds_of(served)}
    assert ours & set(verdict.hosts)
