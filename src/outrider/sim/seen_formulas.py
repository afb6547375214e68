"""The sizes of filters of seen URLs, and the disk traffic of exact seen-sets, by the published formulas.

Filters: Bloom 1970; blocks of one cache line: Putze, Sanders, Singler 2007. Disk traffic: Lee, Leonard, Wang, Loguinov,
"IRLbot: Scaling to 6 Billion Pages and Beyond", 2008, for seen-sets on disk of Mercator, Polybot and IRLbot (DRUM).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from outrider.chart import ChartLine, log_log
from outrider.errors import SettingsError

URLS_MAX: Final = 10**15
LINE_BITS: Final = 512
RATE_MIN: Final = 1e-12
BITS_MAX: Final = 100.0  # a key; blocks of 512 bits do not reach every rate
HASHES_MAX: Final = 32

# -- filters -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter for a number of URLs. rate: the share of new URLs that it does not deny when it is full; rate_at_twice:
    that share if it has twice as many URLs."""

    kind: str
    bits: int
    bits_per_url: float
    hashes: int
    bytes: int
    rate: float
    rate_at_twice: float


def plain_rate(bits_per_url: float, hashes: int) -> float:
    """The share of new URLs that a full Bloom filter does not deny."""
    return float((-math.expm1(-hashes / bits_per_url)) ** hashes)


def blocked_rate(bits_per_url: float, hashes: int) -> float:
    """The same for a filter of blocks of 512 bits. The number of URLs in a block is a Poisson number."""
    mean = LINE_BITS / bits_per_url
    last = math.ceil(mean + 12 * math.sqrt(mean) + 20)
    found = 0.0
    for urls in range(1, last + 1):
        share = math.exp(urls * math.log(mean) - mean - math.lgamma(urls + 1))
        found += share * (1 - (1 - 1 / LINE_BITS) ** (hashes * urls)) ** hashes
    return found


def filters(urls: int, rate: float) -> list[Filter]:
    """The plain filter for these URLs and this rate, and the smallest one of blocks, which is missing if blocks cannot
    reach the rate. Raises SettingsError."""
    if not 1 <= urls <= URLS_MAX:
        raise SettingsError(f"--urls {urls}: use 1 to {URLS_MAX:,}")
    if not RATE_MIN <= rate < 1:
        raise SettingsError(f"--rate {rate:g}: use a share from {RATE_MIN:g} to below 1, such as 0.01")
    bits = max(math.ceil(-urls * math.log(rate) / math.log(2) ** 2), 1)
    per_url = bits / urls
    hashes = max(round(per_url * math.log(2)), 1)
    found = [_filter("plain", bits, per_url, hashes, plain_rate)]
    tenth = math.floor(10 * per_url)
    while (tenth := tenth + 1) <= 10 * BITS_MAX:
        per_url = tenth / 10
        near = range(min(max(1, round(per_url * 0.4)), HASHES_MAX), min(HASHES_MAX, round(per_url * 0.75) + 1) + 1)
        hashes = min(near, key=lambda number: blocked_rate(per_url, number))
        if blocked_rate(per_url, hashes) <= rate:
            lines = math.ceil(urls * tenth / 10 / LINE_BITS)
            found.append(_filter("blocked", lines * LINE_BITS, per_url, hashes, blocked_rate))
            break
    return found


def _filter(kind: str, bits: int, per_url: float, hashes: int, rate: Callable[[float, int], float]) -> Filter:
    return Filter(kind, bits, per_url, hashes, math.ceil(bits / 8), rate(per_url, hashes), rate(per_url / 2, hashes))


# -- seen-sets on disk -------------------------------------------------------------------------------------------------

PAGES: Final = (8 * 10**8, 8 * 10**9, 8 * 10**10, 8 * 10**11, 8 * 10**12)
MEMORY_GB: Final = (1, 8)
HASH_BYTES, POINTER_BYTES, URL_BYTES = 8, 4, 110
LINKS_PER_PAGE, NEW_SHARE, URLS_AT_START = 59, 1 / 9, 10**8
COMPRESSED_SHARE = 0.05  # of a sorted URL in Polybot's file
BUFFER_BYTES = 32 << 10  # of a bucket of DRUM
DISK_BYTES_PER_SECOND = 100 << 20
METHODS: Final = ("Mercator-B", "Polybot", "DRUM")


@dataclass(frozen=True, slots=True)
class Traffic:
    """overhead: how often the bytes of each URL are read or written; pages_per_second: the rate that a disk of 100
    MiB/s allows."""

    method: str
    pages: int
    memory_gb: int
    overhead: float
    pages_per_second: float


def overhead(method: str, pages: float, memory_gb: float) -> float:
    """How often the bytes of each URL are read or written, for a crawl of so many pages. As in the paper, memory has
    10⁹ bytes for each GB, and the buckets of DRUM are those of 2³⁰."""
    memory_bytes = memory_gb * 1e9
    links = LINKS_PER_PAGE * pages
    hashes = 2 * URLS_AT_START * HASH_BYTES + NEW_SHARE * HASH_BYTES * links
    if method == "Mercator-B":
        return 2 * hashes * (HASH_BYTES + POINTER_BYTES) / (URL_BYTES * memory_bytes) + 2 + NEW_SHARE
    if method == "Polybot":
        urls = hashes / HASH_BYTES * URL_BYTES * COMPRESSED_SHARE
        return 2 * urls * (URL_BYTES + 4 * POINTER_BYTES) / (URL_BYTES * memory_bytes) + NEW_SHARE
    buckets = (memory_gb * 2**30) ** 2 / (8 * BUFFER_BYTES)
    fixed = 2 + NEW_SHARE + 2 * HASH_BYTES / URL_BYTES
    return (HASH_BYTES + URL_BYTES) * hashes / (URL_BYTES * buckets) + fixed


def traffic() -> list[Traffic]:
    """The published table."""
    found = []
    for memory in MEMORY_GB:
        for pages in PAGES:
            for method in METHODS:
                times = overhead(method, pages, memory)
                rate = DISK_BYTES_PER_SECOND / (times * URL_BYTES * LINKS_PER_PAGE)
                found.append(Traffic(method, pages, memory, times, rate))
    return found


def traffic_svg(memory_gb: int = 1) -> str:
    """Returns the overheads for one size of memory as a drawing."""
    steps = [10 ** (8 + step / 2) for step in range(11)]
    lines = [
        ChartLine(method, tuple((pages, overhead(method, pages, memory_gb)) for pages in steps)) for method in METHODS
    ]
    return log_log(
        lines,
        title=f"How often the bytes of each URL are read or written, with {memory_gb} GB of memory",
        x_title="pages of the crawl",
        y_title="times",
    )
