"""docs/urls.md describes the rules: its tables are always current, and its examples are run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from outrider.cli import main as cli
from outrider.url import LossyRules
from outrider.url.lossy_rules import PRESETS, RULES, TRACKING_NAMES, TRACKING_PREFIXES


@pytest.fixture
def page(project: Path) -> str:
    return (project / "docs/urls.md").read_text("utf-8")


def tracking_table() -> str:
    makers: dict[str, list[str]] = {"Google Analytics: the campaign": [f"{prefix}*" for prefix in TRACKING_PREFIXES]}
    for name, maker in TRACKING_NAMES.items():
        makers.setdefault(maker, []).append(name)
    rows = [f"| {maker} | {' '.join(f'`{name}`' for name in names)} |" for maker, names in makers.items()]
    return "\n".join(["| Who puts it there, to learn what | Parameters |", "|---|---|", *rows])


def test_the_table_of_tracking_parameters_is_the_list_that_is_used(page: str) -> None:
    assert f"<!-- tracking -->\n{tracking_table()}\n<!-- /tracking -->" in page


def test_the_table_of_rules_has_all_in_their_order(page: str) -> None:
    table = page.split("| Rule | What it does |")[1].split("\n\n", maxsplit=1)[0]
    assert list(RULES) == re.findall(r"^\| `([a-z_]+)` \|", table, re.MULTILINE)


def test_the_presets_are_what_the_page_says(page: str) -> None:
    assert RULES == PRESETS["aggressive"]
    said = re.search(r"`crawler_commons` is\n(.*?): what", page, re.DOTALL)
    assert said is not None
    assert sorted(PRESETS["crawler_commons"]) == sorted(re.findall(r"`([a-z_]+)`", said[1]))


def test_the_first_example_is_what_the_command_prints(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    console = page.split("```console\n")[1].split("```", maxsplit=1)[0]
    shown = ""
    for line in console.splitlines():
        if line.startswith("$ "):
            shown += line + "\n"
            assert 0 == cli.run(shlex.split(line)[2:])
            shown += capsys.readouterr().out
    assert console == shown


@pytest.mark.parametrize(
    ("rule", "one", "other"),
    [
        ("www", "http://www.pool.ntp.org/", "http://pool.ntp.org/"),
        ("repeated_slashes", "https://en.wikipedia.org/wiki//dev/null", "https://en.wikipedia.org/wiki/dev/null"),
        ("index_files", "https://en.wikipedia.org/wiki/Index.html", "https://en.wikipedia.org/wiki/"),
        ("trailing_slash", "https://en.wikipedia.org/wiki/Slash/", "https://en.wikipedia.org/wiki/Slash"),
        ("https", "http://neverssl.com/", "https://neverssl.com/"),
        ("session_ids", "http://slashdot.org/article.pl?sid=99/03/31/0137221", None),
        ("sort_query", "http://h.example/showthread.php?s=1&93112-T", "http://h.example/showthread.php?93112-T&s=1"),
        ("blank_parameters", "http://h.example/?category=", "http://h.example/"),
        ("blank_parameters", "http://h.example/?wsdl", None),
        ("empty_parameters", "http://h.example/?print=", "http://h.example/?print"),
    ],
)
def test_the_examples_of_failures_do_fail(page: str, rule: str, one: str, other: str | None) -> None:
    assert (other or one) == LossyRules.of(rule).apply(one)
