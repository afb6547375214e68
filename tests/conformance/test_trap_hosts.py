"""Hosts that make endless URLs, crawled together with an honest one: the crawl ends within the stated budgets."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest

import outrider
from e2e import localweb
from outrider import Frontier
from outrider.limits import RETURNS_FETCHES_MIN, RETURNS_FETCHES_OF_TRIALS

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not localweb.available(), reason="the reference material is not beside the project"),
]

PORTS: Final = (18780, 18743)
ENDLESS: Final = ("calendar", "sessions", "repeated-path", "facets", "soft-404", "link-farm")
BUDGET: Final = RETURNS_FETCHES_OF_TRIALS + 223 + 64
"""Of a host that makes new shapes without end (docs/traps.md): trials, fetches after the last new content, leases
already open."""
SHAPES: Final = {"calendar": 2, "link-farm": 2, "sessions": 5}
"""Hosts with few shapes of URLs, the front page among them."""


def test_a_crawl_of_endless_hosts_ends_within_the_budget_with_all_honest_pages(tmp_path: Path) -> None:
    output = tmp_path / "out"
    with localweb.misbehaving(tmp_path / "web", *PORTS) as web:
        seeds = [f"http://{name}.fault.test:{PORTS[0]}/" for name in (*ENDLESS, "duplicates", "ok")]
        result = outrider.crawl(seeds, output=str(output), hosts=str(web.hosts), delay=0.01, delay_factor=0, warc=False)
    assert (0, 0) == (result.exit_code, result.statistics["urls"]["queued"])
    fetched: dict[str, list[str]] = {}
    errors: set[tuple[str, str]] = set()
    for line in map(json.loads, (output / "pages.jsonl").read_text().splitlines()):
        name = str(urlsplit(line["url"]).hostname).partition(".")[0]
        fetched.setdefault(name, []).append(line["url"])
        errors |= {(name, line["error"])} if "error" in line else set()
    counts = Counter({name: len(urls) for name, urls in fetched.items()})
    assert [] == [(name, counts[name]) for name in ENDLESS if counts[name] > BUDGET]
    most = {name: shapes * (RETURNS_FETCHES_MIN + 16) for name, shapes in SHAPES.items()}
    assert [] == [(name, counts[name]) for name in SHAPES if counts[name] > most[name]]
    numbers = {int(found[1]) for url in fetched["sessions"] if (found := re.search(r"/page/([0-9]+)", url))}
    assert set(range(1, 21)) == numbers
    documents = {found[1] for url in fetched["duplicates"] if (found := re.search(r"/doc/+([0-9])(?![0-9])", url))}
    assert set("0123456789") == documents
    assert 21 == counts["ok"]
    with Frontier.look(output / "frontier") as frontier:
        rows = {name: frontier.urls(state="parked", host=f"{name}.fault.test") for name in counts}
    reasons = {name: {row.reason for row in some} for name, some in rows.items()}
    # Pages that say "not found" in words, as two answers to probes do, count as gone: their links are not a trap.
    assert {name: {"trap"} if name in ENDLESS and name != "soft-404" else set() for name in counts} == reasons
    assert {("soft-404", "soft_404")} == errors
