"""Crawls of thousands of real pages, where the web of them is next to the project; its own judge decides."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest

from e2e import crawling, localweb
from e2e.test_kill import kill_after, leases_open, verified
from outrider.crawl.questions.politeness_proof import prove

DELAY = 0.1

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.long,
    pytest.mark.timeout(1_800),
    pytest.mark.skipif(not localweb.available(), reason="the reference material is not beside the project"),
]


def crawled(output: Path, kills: int, seed: int, *, sitemaps: bool = False) -> dict[str, dict[str, Any]]:
    """Crawls the small web, killed this number of times at random moments, and checks the promises. Returns the
    findings of the web's own judge, host for host."""
    chance = random.Random(seed)
    with localweb.serving("small") as web:
        since = time.time()
        offset = web.log.stat().st_size if web.log.exists() else 0
        settings = ["--hosts", str(web.hosts), "--ca", str(web.directory / "ca" / "ca.pem"), "--delay", str(DELAY)]
        more = ["-o", str(output), "--delay-factor", "0", "--progress", "none"]
        more.append("--sitemaps" if sitemaps else "--no-sitemaps")
        first = ["crawl", f"@{web.seeds}", *settings, *more]
        crawl = crawling.started(*first)
        leases = 0
        for _ in range(kills):
            kill_after(crawl, chance.uniform(0.3, 5.0))
            leases += leases_open(output)
            crawl = crawling.started(*(["resume", output] if (output / "outrider.toml").exists() else first))
        assert 0 == crawl.wait(1_500)
        must = web.must_fetch(sitemaps=sitemaps)
        assert must == crawling.fetched(output)
        answered = [url for url in web.asked(offset, 200) if not is_sitemap(url)]
        assert must == set(answered)
        if sitemaps:
            assert len(must - web.must_fetch()) > 90  # pages that no link leads to
            mapped = [url for url in web.asked(offset) if is_sitemap(url)]
            assert len(mapped) - len(set(mapped)) <= leases
        refetched = len(answered) - len(must)
        assert refetched <= leases, f"seed {seed}: {refetched} refetched, {leases} leases were open"
        code, words = web.check(DELAY, since=since)
        assert 0 == code, words
        judged = web.judged(DELAY, since=since)
    assert ([], []) == (crawling.doubled(output), crawling.final_twice(output))
    assert [] == crawling.not_kept_once(output)
    assert () == verified(output)
    return judged


def is_sitemap(url: str) -> bool:
    return url.endswith("/sitemap.xml")


def edited(lines: list[bytes]) -> list[bytes]:
    told = json.loads(lines[99]) | {"gap_required": 0.0}
    return [*lines[:99], json.dumps(told, separators=(",", ":")).encode(), *lines[100:]]


def test_a_crawl_fetches_exactly_what_the_manifest_says_and_its_record_agrees_with_the_webs_log(tmp_path):
    """An edited, a removed and a reordered line of the record are each found."""
    output = tmp_path / "out"
    judged = crawled(output, 0, 0)
    proof = prove(str(output))
    assert [] == proof.violations
    assert {host: (told["requests"], []) for host, told in judged.items()} == {
        host: (told.requests, []) for host, told in proof.hosts.items()
    }
    assert [] == [host for host, told in judged.items() if told["violations"]]
    record = output / "politeness.jsonl"
    whole = record.read_bytes()
    lines = whole.splitlines()
    for changed in (edited(lines), [*lines[:99], *lines[100:]], [*lines[:99], lines[100], lines[99], *lines[101:]]):
        record.write_bytes(b"".join(line + b"\n" for line in changed))
        assert not prove(str(output)).ok
    record.write_bytes(whole)
    assert prove(str(output)).ok


def test_a_crawl_that_is_killed_ten_times_fetches_exactly_that_too(tmp_path):
    crawled(tmp_path / "out", 10, 5)


def test_pages_that_only_sitemaps_name_are_fetched_over_ten_kills_and_each_only_once(tmp_path):
    crawled(tmp_path / "out", 10, 6, sitemaps=True)
