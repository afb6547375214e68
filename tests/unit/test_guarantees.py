"""docs/guarantees.md: every cell of its tables names tests, and these tests exist."""

from __future__ import annotations

import re

import pytest

from outrider.engine import Frontier
from outrider.journey import State


def cells(text: str) -> list[str]:
    """Returns all cells of all tables except the heads and the first columns."""
    rows = [line for line in text.splitlines() if line.startswith("| ") and "---" not in line]
    heads = {before for before, after in zip(text.splitlines(), text.splitlines()[1:], strict=False) if "|---" in after}
    return [cell for row in rows if row not in heads for cell in row.strip("|").split("|")[1:]]


@pytest.fixture(scope="module")
def page(project):
    return (project / "docs" / "guarantees.md").read_text("utf-8")


def test_every_cell_names_a_test(page):
    assert [] == [cell for cell in cells(page) if not re.search(r"`test_\w+`", cell)]


def test_every_named_test_exists(page, project):
    files = (project / "tests").rglob("test_*.py")
    there = {name for file in files for name in re.findall(r"^def (test_\w+)", file.read_text("utf-8"), re.M)}
    named = set(re.findall(r"`(test_\w+)`", page))
    assert len(named) > 50
    assert set() == named - there


def test_stores_in_memory_share_no_state_and_keep_no_files():
    with Frontier.memory(robots="caller") as first:
        first.discover(["http://a.com/"])
        with Frontier.memory(robots="caller") as second:
            assert State.UNKNOWN == second.status("http://a.com/").state
    with Frontier.memory(robots="caller") as third:
        assert State.UNKNOWN == third.status("http://a.com/").state
