"""Real URLs against the rules that judge one URL alone: at most one in 10,000 counts as a trap."""

from __future__ import annotations

import gzip
import json
import lzma
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.clock import instant
from outrider.crawl.setup.options import CrawlOptions
from outrider.url import UrlBatch
from outrider.url.traps import RULES, Traps

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

DATA = Path(__file__).resolve().parents[3] / "shared/data"
LISTS = sorted(
    path
    for path in (*DATA.glob("urls/*"), *DATA.glob("url/real/*"))
    if path.name.endswith((".txt.xz", "links.txt.zst", "homepages.tsv.zst", ".jsonl.gz"))
)
NOW = instant(1_795_737_600.0)  # the end of November 2026, when the lists were made
ONE_IN = 10_000

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(not LISTS, reason="the reference material is not beside the project"),
]


def lines_of(path: Path) -> Iterator[str]:
    octets = path.read_bytes()
    if path.suffix == ".gz":
        for line in gzip.decompress(octets).splitlines():
            yield json.loads(line)[1] or ""
        return
    text = (lzma.decompress(octets) if path.suffix == ".xz" else zstd.decompress(octets)).decode("utf-8", "replace")
    for line in text.splitlines():
        yield line.split("\t")[0].strip('\ufeff" ')


def test_at_most_one_real_url_in_ten_thousand_counts_as_a_trap(capsys) -> None:
    traps = CrawlOptions().frontier_settings()["traps"]
    assert isinstance(traps, Traps)
    told, all_urls, all_found = [], 0, 0
    for path in LISTS:
        batch = UrlBatch.of(sorted({line for line in lines_of(path) if line.startswith(("http:", "https:"))}))
        urls = {url for url, valid in zip(batch.strings(), batch.valid.tolist(), strict=True) if valid}
        found = Counter(RULES[rule - 1] for url in urls if (rule := traps.rule_of(url, NOW)))
        if not urls:
            continue  # files of one machine
        told.append(f"{path.name}: {found.total()} of {len(urls):,} URLs {dict(found)}")
        assert found.total() * ONE_IN <= len(urls), told[-1]
        all_urls, all_found = all_urls + len(urls), all_found + found.total()
    with capsys.disabled():
        print("\ntaken for a trap:", *told, f"in all: {ONE_IN * all_found / all_urls:.2f} of {ONE_IN:,}", sep="\n  ")
    assert all_urls > 300_000
