"""Diminishing returns: the share of fetches with new content, by host and by shape of path, and its meaning.

The share is a running mean: of all fetches while they are few, then with more weight on later ones. A shape below a
fourth loses half of its class, one below an eighth all of it, and one below the bound of the settings is parked. The
64th, 128th, 256th … URL after that is fetched all the same. So a shape that became better is detected, and one that
links to any number of similar URLs still ends.

A shape of first copies, each of a different page of its host, is not a trap. It has no more URLs than there are such
pages. An example is the folder of a language with few translations, and it also has pages of its own. So it continues
while most of its fetches are first copies, up to `RETURNS_COPIES_MAX` in a row.

Shapes that differ in their first folder alone are of one kind. `/calm-otter/page-7` and `/quick-heron/page-7` are an
example, of a site with a session in the path. If the shapes of a kind bring nothing new, further ones are parked like
those of a poor host, while the remaining pages of the host continue.

A host that shows the pages of another one may be its mirror, or the original that was found later. So copies of pages
of a different host are counted apart, by shape and by host. If they are the reason why a shape or a host is poor, a
part of its URLs is fetched, so that pages of its own are detected and restore the rest.

The fetches of hosts are counted in steps of a fourth of an octave: how many hosts have had 16, 19, 23 … of them. So
their quantiles are known to a fifth, in bounded memory, however many hosts there are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from outrider.clock import Instant, instant
from outrider.kernels.shapes import shape
from outrider.limits import (
    HOST_FETCHES_COMPARED,
    HOST_QUANTILE_TIMES,
    HOSTS_COMPARED_MIN,
    MIRROR_OCTAVE,
    MIRROR_OWN_MIN,
    MIRROR_STEP,
    NEW_URLS_WINDOW_SECONDS,
    RETURNS_COPIES_MAX,
    RETURNS_FETCHES_MIN,
    RETURNS_FETCHES_MIN_OF_HOST,
    RETURNS_FETCHES_OF_TRIALS,
    RETURNS_HOSTS_MIN,
    RETURNS_PROBE_FIRST,
    RETURNS_WINDOW,
    RETURNS_WINDOW_OF_HOST,
    SHAPE_BYTES_MAX,
)
from outrider.url.lossy_rules import has_session

HALVED_BELOW: Final = 1 / 4
LOWEST_BELOW: Final = 1 / 8
KINDS_BELOW: Final = 7 / 8
_COUNT_MAX: Final = 2**32 - 1
JUDGED_AGAIN: Final = -1
"""As `since` of a host: its parked URLs are judged again."""
_OF_MIRROR: Final = 0x9E3779B97F4A7C15  # from the name of the returns of a shape or a host to that of its copies
LEVELS: Final = tuple(int(HOST_FETCHES_COMPARED * 2 ** (step / 4)) for step in range(4 * 27))
"""The numbers of fetches at which hosts are counted."""
_OF_LEVEL: Final = {level: step for step, level in enumerate(LEVELS)}


@dataclass(slots=True)
class Returns:
    """The columns of a RETURNS fact. fetched: how many fetches. share: of those with new content. passed: how many URLs
    were drawn since it was parked. since: the start of a window of new URLs; for a shape, how many fetches in a row had
    nothing new. found: how many URLs were found in the window. For a shape it is how many more of the last of these
    fetches had a first copy than had none; for a host, whether its shapes are counted by kind.

    Copies of pages of a different host have a row of their own. fetched: how many. since: how many pages of its own
    followed the first of them. found: how many more of the last fetches had such a copy than had nothing."""

    fetched: int = 0
    share: float = 1.0
    passed: int = 0
    since: Instant = 0
    found: int = 0

    def cells(self) -> tuple[int, float, int, Instant, int]:
        """The columns, in their order."""
        return self.fetched, self.share, self.passed, self.since, self.found

    def count(self, *, fresh: bool, window: int) -> None:
        """Counts a fetch. fresh: whether it brought new content."""
        self.fetched = min(self.fetched + 1, _COUNT_MAX)
        self.share += ((1.0 if fresh else 0.0) - self.share) / min(self.fetched, window)
        if fresh:
            self.passed = 0

    def count_copy(self, *, fresh: bool, first_copy: bool) -> None:
        """Counts whether a fetch of a shape brought a first copy."""
        self.since = 0 if fresh else min(self.since + 1, _COUNT_MAX)
        if not fresh:
            self.found = min(self.found + 1, RETURNS_WINDOW) if first_copy else max(self.found - 1, 0)

    def has_copies(self) -> bool:
        """Whether most fetches of a shape bring first copies, and not too many of them in a row."""
        return self.found > 0 and self.since < RETURNS_COPIES_MAX

    def count_foreign(self, *, fresh: bool, foreign: bool) -> None:
        """Counts whether a fetch brought the copy of a page of another host, in the row of these."""
        if fresh:
            self.since, self.passed = min(self.since + 1, _COUNT_MAX), 0
        elif foreign:
            self.fetched, self.found = min(self.fetched + 1, _COUNT_MAX), min(self.found + 1, RETURNS_WINDOW)
        else:
            self.found = max(self.found - 1, 0)

    def is_mirror(self) -> bool:
        """Whether most fetches that bring no new content bring pages of other hosts."""
        return self.found > 0

    def has_own(self) -> bool:
        """Whether there are enough pages of its own compared with the copies of pages of a different host.
        Pages before the first copy do not count: each of two sites that are crawled at the same time has some."""
        return self.since > 0 and self.since >= MIRROR_OWN_MIN * self.fetched

    def is_sampled(self) -> bool:
        """Counts a URL of a possible mirror that is drawn while it is parked. Returns whether this one is fetched,
        twice as often once a page of its own was found."""
        self.passed = min(self.passed + 1, _COUNT_MAX)
        step = max(MIRROR_STEP, (1 << self.passed.bit_length() - 1) // MIRROR_OCTAVE)
        return not self.passed % (step // 2 if self.since else step)

    def is_poor(self, least: float, fetches_min: int) -> bool:
        """Whether the number of fetches and their low return end further ones."""
        return self.fetched >= fetches_min and self.share < least

    def is_probed(self) -> bool:
        """Counts a URL that is drawn while it is parked. Returns whether this one is fetched all the same."""
        self.passed = min(self.passed + 1, _COUNT_MAX)
        return self.passed >= RETURNS_PROBE_FIRST and not self.passed & (self.passed - 1)

    def room(self, most: int, now: Instant) -> int:
        """How many more new URLs the window of this instant accepts."""
        if now >= self.since + instant(NEW_URLS_WINDOW_SECONDS) or not self.since:
            self.since, self.found = now, 0
        return max(0, most - self.found)


def class_of_shape(klass: int, shape: Returns) -> int:
    """The class of a URL whose shape has these returns."""
    if shape.fetched < RETURNS_WINDOW or shape.share >= HALVED_BELOW:
        return klass
    return klass // 2 if shape.share >= LOWEST_BELOW else 0


def is_parked(shape: Returns, host: Returns, least: float) -> Returns | None:
    """The returns for which a URL is parked, None where it is not. A shape with too few fetches is judged by those of
    its host: a site may make new shapes without end. Not while its own few are good, nor before its first one, as long
    as the host has not had many."""
    if shape.fetched >= RETURNS_FETCHES_MIN:
        return shape if shape.is_poor(least, RETURNS_FETCHES_MIN) and not shape.has_copies() else None
    if not host.is_poor(least, RETURNS_FETCHES_MIN_OF_HOST):
        return None
    good = shape.share >= HALVED_BELOW if shape.fetched else host.fetched < RETURNS_FETCHES_OF_TRIALS
    return None if good else host


def mirror_of(name: int) -> int:
    """The name under which the copies of pages of other hosts are counted, beside the returns under this name."""
    return name ^ _OF_MIRROR


def are_poor_hosts(hosts: Returns, least: float) -> bool:
    """Whether the new hosts of a domain, each by its first page or its lookup, had so few new pages that no more hosts
    are requested."""
    return hosts.is_poor(least, RETURNS_HOSTS_MIN)


def are_good_hosts(hosts: Returns) -> bool:
    """Whether enough new hosts of a domain brought content, so that any number of them is tried at once."""
    return hosts.fetched >= RETURNS_WINDOW and hosts.share >= HALVED_BELOW


def level_reached(host: Returns) -> int | None:
    """The place among `LEVELS` of a host that has reached it with its last fetch."""
    return _OF_LEVEL.get(host.fetched)


def count_level(level: Returns) -> None:
    """Counts a host that has reached a level. Such a row is among the last that are forgotten."""
    level.fetched, level.found = _COUNT_MAX, min(level.found + 1, _COUNT_MAX)


@dataclass(frozen=True, slots=True)
class Sizes:
    """The sizes of hosts. hosts: how many are compared. most: the maximum of fetches in the share `quantile` of them.
    bound: a host with this number is parked."""

    hosts: int
    quantile: float
    most: int
    bound: int


def sizes_of(reached: Iterable[int], quantile: float) -> Sizes | None:
    """The sizes of hosts, from how many have reached each of `LEVELS`, reading no more of them than needed; None while
    there are too few for a comparison."""
    hosts = 0
    for level, count in zip(LEVELS, reached, strict=True):
        hosts = hosts or count
        if hosts < HOSTS_COMPARED_MIN:
            return None
        if count <= hosts * (1.0 - quantile) + 1e-9:
            return Sizes(hosts, quantile, level, HOST_QUANTILE_TIMES * level)
    return None


def counted(shape: Returns, host: Returns, *, fresh: bool, first_copy: bool, kind: Returns | None = None) -> None:
    """Counts a fetch for both, and for the shapes of its kind if they are counted. A first copy does not count for the
    host if the shape is known for them: while one shape has many, new shapes still have their trials. A shape with a
    good record does not count for the rest of its kind."""
    own_record = shape.fetched >= RETURNS_WINDOW and shape.share >= HALVED_BELOW
    shape.count(fresh=fresh, window=RETURNS_WINDOW)
    shape.count_copy(fresh=fresh, first_copy=first_copy)
    if first_copy and not fresh and shape.fetched >= RETURNS_FETCHES_MIN and shape.has_copies():
        host.fetched = min(host.fetched + 1, _COUNT_MAX)
        return
    host.count(fresh=fresh, window=RETURNS_WINDOW_OF_HOST)
    if host.share < KINDS_BELOW:
        host.found = 1
    if kind is not None and not own_record:
        kind.count(fresh=fresh, window=RETURNS_WINDOW_OF_HOST)


def has_kinds(host: Returns) -> bool:
    """Whether the shapes of a host are counted by kind: since a part of its fetches brought nothing new."""
    return bool(host.found)


@lru_cache(maxsize=4_096)
def kind_of(rest: str) -> str | None:
    """The kind of the shape of the part after the host of a canonical URL: the shape with a star for its first folder;
    None if it has no folder."""
    found = shape_of(rest)
    end = found.find("/", 1)
    return f"/*{found[end:]}" if end > 0 else None


@lru_cache(maxsize=4_096)
def shape_of(rest: str) -> str:
    """The shape of the part after the host of a canonical URL (kernels/shapes.py). It ends with `session` if the URL
    has a session id."""
    found = shape(rest.encode("utf-8", "surrogatepass"), SHAPE_BYTES_MAX).decode("utf-8", "replace")
    return f"{found} session" if has_session(rest) else found
