"""Lists of URLs in bounded steps, between which other calls run: by state, host, crawl and key.

The URLs of a host or key are in the ledger's ranges of their slots; leased URLs are found by their leases. Every other
list reads the ledger from its cursor on: only heads, and the bodies of the rows that it returns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from outrider.clock import Instant
from outrider.errors import SettingsError, shown
from outrider.frontier.format.card_records import CardRecord
from outrider.frontier.state.hosts import NONE, Rows
from outrider.frontier.state.tables import Tables
from outrider.frontier.state.url_table import DONE, GONE, LEASED, PARKED, QUEUED, STATES, WAITING, Reason
from outrider.frontier.stores.ledger import FINGERPRINT_MAX, Key, before_slot
from outrider.frontier.verbs.robots_files import NO_HEADS
from outrider.frontier.verbs.statuses import leased_heads, status_of
from outrider.journey import ListPage, State, UrlStatus
from outrider.kernels.card_layout import Heads
from outrider.limits import (
    LISTED_BODIES_AT_ONCE,
    LISTED_READ_BYTES,
    LISTED_SLOT_READ_BYTES,
    LISTED_URLS_PER_STEP,
    SCAN_ROWS,
)

_NAMES = [state.value for state in STATES]
_CRAWL_SHIFT = np.uint64(40)
_QUEUES_PER_STEP = 1 << 18
_FIRST_ROWS = 512
_RANGES_MAX = 256
"""For more queues than this, the whole ledger is read instead of their ranges."""
Answer = TypeVar("Answer")
Range: TypeAlias = tuple[int, int]
"""A part of the ledger: (crawl, slot)."""
Reading: TypeAlias = Generator[Callable[[], Any] | None, Any, Answer]
"""A query in steps. It yields a read that runs outside of the frontier's lock, and is sent the result. It yields None
if other calls may run in between."""


@dataclass(frozen=True, slots=True)
class UrlFilter:
    """Which URLs a list contains; None: all URLs. queues: only the rows of these queues. reason: a word of
    `reason_text`, the rule of a trap, or a class of errors."""

    state: int | None = None
    crawl: int | None = None
    queues: Rows | None = None
    reason: str | None = None


_COUNTED = {WAITING: "waiting", PARKED: "parked", DONE: "done", GONE: "gone"}
"""The states whose URLs each queue counts."""


def _ranges(tables: Tables, wish: UrlFilter) -> Reading[list[Range] | None]:
    """Returns (crawl, slot) of all URLs of a filter, in the order of the ledger; None: they may be anywhere."""
    queues = tables.queues
    rows = wish.queues
    if rows is None and wish.state is not None and not tables.urls.counts[wish.state]:
        return []
    if rows is None and wish.state in _COUNTED:
        found, counted = [], 0
        for first in range(0, queues.count, _QUEUES_PER_STEP):
            column = getattr(queues, _COUNTED[wish.state])[first : min(first + _QUEUES_PER_STEP, queues.count)]
            counted += int(column.sum())
            found.append((np.flatnonzero(column) + first).astype(np.uint32))
            yield None
        # The other slots are those of cold hosts, or became known meanwhile.
        rows = np.concatenate(found) if found and counted >= tables.urls.counts[wish.state] else None
    if rows is None or len(rows) > _RANGES_MAX:
        return None
    crawls, hosts = queues.crawl[rows], queues.host[rows]
    slots = tables.hosts.slot[hosts.astype(np.intp)]
    return sorted(set(zip(crawls.tolist(), slots.tolist(), strict=True)))


def state_number(state: str | None) -> int | None:
    """Returns the number of a state. Raises SettingsError for an unknown word."""
    if state is not None and state not in [one.value for one in State]:
        raise SettingsError(f"state {shown(state)}: use one of {', '.join(one.value for one in State)}")
    return _NAMES.index(state) if state is not None else None


def chosen_heads(
    tables: Tables, wish: UrlFilter, woken: Instant, take: Callable[[Heads], bool], after: Key | None = None
) -> Reading[None]:
    """Passes the heads of all URLs of a filter above a key to `take`, in the order of the ledger, some at a time. Each
    head has the state of now, after time and leases. It ends when `take` returns that it has enough."""
    leased = leased_heads(tables)
    if wish.state == LEASED:
        keys = np.lexsort((_prints(leased), leased["slot"], leased["crawl"]))
        take(_filtered(tables, _above(leased[keys], after), wish, woken, np.sort(_names(leased))))
        return
    names = np.sort(_names(leased))
    ranges = yield from _ranges(tables, wish)
    rows = _FIRST_ROWS  # at first a few, which are enough for most lists
    for bounds, scan in _scans(tables, ranges, after):
        while (heads := (yield partial(next, scan, None))) is not None:
            own = heads if bounds is None else heads[(heads["crawl"] == bounds[0]) & (heads["slot"] == bounds[1])]
            begin = 0
            while begin < len(own):
                if take(_filtered(tables, own[begin : begin + rows], wish, woken, names)):
                    return
                begin, rows = begin + rows, min(4 * rows, SCAN_ROWS)
            if len(own) < len(heads):
                break


def listed(
    tables: Tables,
    wish: UrlFilter,
    woken: Instant,
    after: Key | None,
    limit: int,
    token_of: Callable[[CardRecord], int],
) -> Reading[ListPage[UrlStatus]]:
    """Returns up to `limit` URLs above a key, and the cursor after them."""
    chosen: list[Heads] = []

    def take(heads: Heads) -> bool:
        if len(heads):
            chosen.append(heads[: limit + 1])
        return sum(map(len, chosen)) > limit

    yield from chosen_heads(tables, wish, woken, take, after)
    found: list[UrlStatus] = []
    heads = np.concatenate(chosen) if chosen else NO_HEADS
    more = len(heads) > limit
    heads = heads[:limit]
    for begin in range(0, len(heads), LISTED_BODIES_AT_ONCE):
        some = heads[begin : begin + LISTED_BODIES_AT_ONCE]
        keys = some["crawl"], some["slot"], some["fingerprint"]
        hit, cards = yield partial(tables.urls.ledger.find, *keys)
        changed = cards.changed()
        changed["state"] = some["state"][hit]
        cards = cards.with_heads(changed)
        for first in range(0, len(cards), LISTED_URLS_PER_STEP):
            if first:
                yield None
            rows = range(first, min(first + LISTED_URLS_PER_STEP, len(cards)))
            queues = tables.queues.find(changed["queue"][rows.start : rows.stop]).tolist()
            for row, queue in zip(rows, queues, strict=True):
                record = CardRecord.of(cards, row)
                token = token_of(record) if record.state == LEASED else 0
                found.append(status_of(record, tables, token, queue))
    return ListPage(found, cursor_of(heads, limit - 1) if more else None)


def gathered(
    tables: Tables,
    wish: UrlFilter,
    woken: Instant,
    after: Key | None,
    least: int,
    mask_of: Callable[[Heads], npt.NDArray[np.bool_]],
) -> Reading[tuple[Heads, Key | None]]:
    """Returns the heads above a key that a mask selects, `least` of them and some more, and the key after which the
    next ones follow; None: no more heads follow."""
    chosen: list[Heads] = []

    def take(heads: Heads) -> bool:
        some = heads[mask_of(heads)]
        if len(some):
            chosen.append(some)
        return sum(map(len, chosen)) >= least

    yield from chosen_heads(tables, wish, woken, take, after)
    heads = np.concatenate(chosen) if chosen else NO_HEADS
    return heads, _key_of(heads[-1]) if len(heads) >= least else None


def _key_of(head: Any) -> Key:
    return int(head["crawl"]), int(head["slot"]), int(head["fingerprint"]) & FINGERPRINT_MAX


def cursor_of(heads: Heads, row: int) -> str:
    """Returns the cursor after a head in a list of URLs: its key in the ledger."""
    head = heads[row]
    return f"{int(head['crawl'])}.{int(head['slot'])}.{int(head['fingerprint']):016x}"


def after_of(cursor: str | None) -> Key | None:
    """Returns the key after which a list of URLs continues. Raises SettingsError for an invalid cursor."""
    if cursor is None:
        return None
    try:
        crawl, slot, print_ = cursor.split(".")
        key = int(crawl), int(slot), int(print_, 16)
    except (AttributeError, TypeError, ValueError):
        key = -1, -1, -1
    if not (0 <= key[0] < 1 << 32 and 0 <= key[1] < 1 << 16 and 0 <= key[2] < 1 << 64):
        raise SettingsError(f"after {shown(cursor)}: use the cursor of an earlier list of URLs")
    return key


def _scans(
    tables: Tables, ranges: list[Range] | None, after: Key | None
) -> Iterator[tuple[Range | None, Iterator[Heads]]]:
    """Returns the parts of the ledger to read, and where each ends: after its last URL of a slot, or at the end."""
    ledger = tables.urls.ledger
    if ranges is None:
        yield None, ledger.scan_heads(after=after, bytes_at_once=LISTED_READ_BYTES)
        return
    for part in ranges:
        if after is None or part > after[:2]:
            first = before_slot(*part)
        elif part == after[:2]:
            first = after
        else:
            continue
        last = (*part, FINGERPRINT_MAX)
        yield part, ledger.scan_heads(after=first, last=last, bytes_at_once=LISTED_SLOT_READ_BYTES)


def _above(heads: Heads, after: Key | None) -> Heads:
    if after is None:
        return heads
    crawls, slots, prints = heads["crawl"], heads["slot"], _prints(heads)
    above = crawls > after[0]
    above |= (crawls == after[0]) & (slots > after[1])
    above |= (crawls == after[0]) & (slots == after[1]) & (prints > np.uint64(after[2] & FINGERPRINT_MAX))
    found: Heads = heads[above]
    return found


def _prints(heads: Heads) -> npt.NDArray[np.uint64]:
    prints: npt.NDArray[np.uint64] = heads["fingerprint"] & np.uint64(FINGERPRINT_MAX)
    return prints


def _names(heads: Heads) -> npt.NDArray[np.uint64]:
    """Returns a number for each URL: its fingerprint, and the crawl in bits that differ between two crawls."""
    names: npt.NDArray[np.uint64] = heads["fingerprint"] ^ (heads["crawl"].astype(np.uint64) << _CRAWL_SHIFT)
    return names


def _has_reason(tables: Tables, heads: Heads, states: npt.NDArray[np.uint8], word: str) -> npt.NDArray[np.bool_]:
    """Returns which URLs have this word as the class of their last error, or as the reason why they are parked, gone or
    waiting."""
    numbers, reasons = tables.registry.error_numbers, heads["reason"]
    found: npt.NDArray[np.bool_] = np.zeros(len(heads), np.bool_)
    if word and word in numbers:
        found |= heads["error"] == numbers[word]
    if word.upper() in Reason.__members__:
        ended = (states == PARKED) | (states == GONE) | (states == WAITING)
        bare = (heads["error"] == 0) | (reasons == Reason.BUDGET) | (reasons == Reason.TRAP)
        found |= ended & bare & (reasons == Reason[word.upper()])
    return found


def parked_by_reason(tables: Tables, woken: Instant) -> Reading[dict[str, int]]:
    """Counts parked URLs by the rule of a trap, or by the word of `reason_text`."""
    pairs: Counter[tuple[int, int]] = Counter()

    def take(heads: Heads) -> bool:
        columns = np.stack([heads[name].astype(np.int64) for name in ("reason", "error")])
        kinds, counts = np.unique(columns, axis=1, return_counts=True)
        for (reason, error), count in zip(kinds.T.tolist(), counts.tolist(), strict=True):
            pairs[reason, error] += count
        return False

    yield from chosen_heads(tables, UrlFilter(PARKED), woken, take)
    found: Counter[str] = Counter()
    for (reason, error), count in pairs.items():
        text = tables.registry.errors[error]
        found[text if text and reason != Reason.BUDGET else Reason(reason).name.lower()] += count
    return dict(found)


def _filtered(tables: Tables, heads: Heads, wish: UrlFilter, woken: Instant, leased: npt.NDArray[np.uint64]) -> Heads:
    """Returns the heads of a filter, copied, in their states. leased: the names of leased URLs, sorted."""
    states = heads["state"].copy()
    states[tables.urls.woken(heads, woken)] = QUEUED
    mask = np.ones(len(heads), np.bool_)
    if wish.state is not None and wish.state != LEASED:
        mask &= states == wish.state
    if wish.crawl is not None:
        mask &= heads["crawl"] == wish.crawl
    if wish.reason is not None:
        mask &= _has_reason(tables, heads, states, wish.reason)
    found: Heads = heads[mask]
    found["state"] = states[mask]
    if len(found) and tables.urls.voids():
        found = found[~tables.urls.void(found)]
    if len(found) and wish.queues is not None:
        rows = tables.queues.find(np.ascontiguousarray(found["queue"]))
        found = found[np.isin(rows, wish.queues) & (rows != NONE)]
    if len(found) and len(leased):
        names = _names(found)
        out = leased.take(leased.searchsorted(names), mode="clip") == names
        found["state"][out] = LEASED
        found = found if wish.state in (None, LEASED) else found[~out]
    return found
