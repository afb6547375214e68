"""Near copies among thousands of real pages: no two that SimHashes call alike are different pages."""

from __future__ import annotations

import pytest

from e2e import localweb
from outrider.kernels.simhash import _WORD_ENDS, SHINGLE_WORDS
from outrider.page import SHINGLES_MIN, Page, near_pairs, read

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not localweb.available(), reason="the reference material is not beside the project"),
]


def shingles_of(page: Page) -> frozenset[tuple[bytes, ...]]:
    words = [word for word in _WORD_ENDS.split(page.octets.lower()) if word]
    return frozenset(zip(*(words[at:] for at in range(SHINGLE_WORDS)), strict=False))


def shared(one: Page, other: Page) -> float:
    """The share of the shingles of two pages that both have (Jaccard)."""
    mine, others = shingles_of(one), shingles_of(other)
    return len(mine & others) / len(mine | others)


def test_pages_within_3_bits_share_at_least_half_of_their_shingles() -> None:
    with localweb.serving("small") as web:
        files = [file for file in sorted((web.directory / "sites").rglob("*.htm*")) if file.is_file()]
    by_value: dict[int, list[Page]] = {}
    for file in files:
        page = read(file.read_bytes(), f"http://site.test/{file.name}")
        if page.shingles >= SHINGLES_MIN:
            by_value.setdefault(page.simhash, []).append(page)
    values = sorted(by_value)
    assert sum(map(len, by_value.values())) > 2_000
    pairs = [(near, value) for near, value in near_pairs(values, [values]) if near < value]
    alike = [shared(one, other) for near, value in pairs for one in by_value[near] for other in by_value[value]]
    same = [shared(pages[0], other) for pages in by_value.values() for other in pages[1:]]
    assert len(alike) >= 5
    assert [] == [share for share in [*alike, *same] if share < 0.5]
