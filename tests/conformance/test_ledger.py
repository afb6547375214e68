"""The ledger on real addresses: every URL is returned, and a record with its text needs half of the target size."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from outrider.frontier.format.card_columns import Cards
from outrider.frontier.stores.ledger import Ledger
from outrider.kernels import hash_spans
from outrider.kernels.card_layout import HEAD
from outrider.sim.disk import FaultyFiles
from outrider.url import UrlBatch

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

pytestmark = pytest.mark.conformance
STORE = b"s" * 16
BYTES_PER_URL_MAX = 90


def test_real_urls_are_returned_and_need_less_than_90_bytes_each(shared: Path) -> None:
    packed = (shared / "data" / "urls" / "doc-links.txt.zst").read_bytes()
    lines = zstd.decompress(packed).decode("utf-8", "surrogateescape").split("\n")
    batch = UrlBatch.of([line.encode("utf-8", "replace").decode() for line in lines])
    urls = [url.encode() for url in dict.fromkeys(batch.filter(batch.valid).strings()) if url]
    hosts = [url.split(b"/", 3)[2] for url in urls]
    assert len(urls) > 200_000
    offsets = np.array([0, *map(len, urls)]).cumsum()
    arena = b"".join(urls)
    heads = np.zeros(len(urls), HEAD)
    heads["fingerprint"] = np.frombuffer(hash_spans(arena, offsets[:-1], offsets[1:], b"f" * 16), np.uint64)
    ends = np.array([0, *map(len, hosts)]).cumsum()
    heads["queue"] = np.frombuffer(hash_spans(b"".join(hosts), ends[:-1], ends[1:], b"q" * 16), np.uint64)
    heads["slot"] = heads["queue"] >> np.uint64(52)
    heads["order"] = np.random.default_rng(1).permutation(len(urls))  # in the order of a crawl, not sorted
    heads["depth"] = heads["order"] % np.uint64(9)
    heads["priority"] = 0.5 * 0.9 ** heads["depth"]
    heads["state"], heads["url_bytes"] = 1, np.diff(offsets)
    cards = Cards(heads, arena, offsets)

    files = FaultyFiles()
    ledger = Ledger.open(files, store=STORE, names=[])
    for begin in range(0, len(urls), 10_000):
        ledger.append(cards.take(np.arange(begin, min(begin + 10_000, len(urls)))))
    ledger.freeze()
    ledger.write_frozen()
    again = Ledger.open(files, store=STORE, names=ledger.names())
    assert set(urls) == {url.encode() for some in again.scan() for url in some.urls()}
    assert 77 < len(arena) / len(urls) < 85
    assert again.statistics().bytes / len(urls) < BYTES_PER_URL_MAX / 2
