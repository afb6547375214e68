"""The places, counts and seen keys of all URLs in a file that a clean stop writes, so that the next opening reads no
ledger.

The file (`schedule-<number>.ckpt`, docs/formats/frames.md) is derived: it contains what a scan of the ledger would
find at the start of one checkpoint, which no call follows. It names that checkpoint by number, start and checksum, and
counts only while that one is the newest. The log after it is applied as after a scan. Nothing depends on the file: an
opening without a whole one scans.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from outrider import kernels
from outrider.errors import StoreError
from outrider.frontier.format.card_columns import Cards
from outrider.frontier.state.hosts import NONE, Rows
from outrider.frontier.state.tables import Tables
from outrider.frontier.state.url_table import LEASED, QUEUED
from outrider.frontier.stores.chunks import laid_out, read_out
from outrider.frontier.stores.ledger import FINGERPRINT_MAX
from outrider.frontier.stores.tailed_backlog import Chunks
from outrider.kernels.card_layout import HEAD_BYTES
from outrider.limits import KEPT_CARDS, KEPT_KEYS, KEPT_QUEUES, RESTORED_BYTES, SLOTS
from outrider.storage.checkpoint import Checkpoint
from outrider.storage.read_ahead import ahead

SCHEDULE_FORMAT = 1
_COUNTS = ("waiting", "parked", "done", "gone", "open")
_COUNT_BYTES = 4


class ScheduleSection(IntEnum):
    """The parts of the file, in its order: the sections of its ranges."""

    HEAD = 0
    QUEUES = 1
    CHUNKS = 2
    CARDS = 3
    CALENDAR = 4
    PLANNED = 5
    SPENT = 6
    SEEN = 7
    CONTENTS = 8


class UnfitScheduleError(Exception):
    """The file is of another checkpoint or format, or it names what is not there."""


class _KeptHead(msgspec.Struct, array_like=True):
    """The first range. chain, count: of the checkpoint; woken: as in `UrlTable`; counts: by state; of_crawls: the same
    by row; dictionary: of the chunks; ordered: whether cards are as the backlog sorts them."""

    format: int
    chain: int
    count: int
    woken: int
    counts: list[int]
    of_crawls: dict[int, list[int]]
    dictionary: bytes
    ordered: bool


def can_be_kept(tables: Tables) -> bool:
    """Whether a schedule may be written: not while seen keys are on disk or found by unique keys."""
    seen = tables.urls.seen
    in_memory = all(isinstance(keys, kernels.FingerprintSet) for keys in (*seen.of_crawls.values(), seen.contents))
    return in_memory and not seen.by_callers


# -- writing -----------------------------------------------------------------------------------------------------------


def pieces(tables: Tables, checkpoint: Checkpoint) -> Iterator[tuple[int, bytes]]:
    """The sections and payloads of a file for the tables as they were copied by this checkpoint. It removes cards
    from the tables, so nothing may use them later. Raises DamagedStoreError."""
    urls = tables.urls
    urls.backlog.settle_copies()
    counts = {row: _unleased(some) for row, some in urls.of_crawls.items()}
    head = _KeptHead(
        SCHEDULE_FORMAT,
        checkpoint.chain,
        checkpoint.count,
        urls.last_woken,
        _unleased(urls.counts),
        counts,
        urls.backlog.dictionary,
        urls.backlog.ordered,
    )
    yield ScheduleSection.HEAD, msgspec.msgpack.encode(head)
    rows = _living_queues(tables)
    for first in range(0, len(rows), KEPT_QUEUES):
        some = rows[first : first + KEPT_QUEUES]
        columns = [tables.queues.hash[some], *(getattr(tables.queues, name)[some] for name in _COUNTS)]
        yield ScheduleSection.QUEUES, _packed(columns)
    for chunks in urls.backlog.chunks(rows, RESTORED_BYTES):
        columns = [tables.queues.hash[chunks.queues], chunks.ranks, chunks.dues, chunks.orders, chunks.lengths]
        yield ScheduleSection.CHUNKS, _packed(columns) + chunks.octets
    # After the tails: a queue without one may be set aside as soon as it has cards.
    for cards in urls.backlog.in_memory(rows, KEPT_CARDS):
        yield from _cards(ScheduleSection.CARDS, cards)
    yield from _cards(ScheduleSection.CARDS, urls.backlog.in_sorted_form(_leased(tables)))
    for part, calendar in ((ScheduleSection.CALENDAR, urls.calendar), (ScheduleSection.PLANNED, urls.planned)):
        for cards in calendar.unload(KEPT_CARDS):
            yield from _cards(part, cards.filter(~urls.void(cards.heads)))
    hosts = np.arange(tables.hosts.count, dtype=np.uint32)
    for host in hosts[urls.spent.waiting(hosts) > 0].tolist():
        while len(cards := urls.spent.unload(host, KEPT_CARDS)):
            yield from _cards(ScheduleSection.SPENT, cards.filter(~urls.void(cards.heads)))
    for crawl, keys in urls.seen.of_crawls.items():
        for slots, prints in _keys_of(keys):
            yield ScheduleSection.SEEN, crawl.to_bytes(_COUNT_BYTES, "little") + _packed([slots, prints])
    for slots, prints in _keys_of(urls.seen.contents):
        yield ScheduleSection.CONTENTS, _packed([slots, prints])


def _unleased(counts: list[int]) -> list[int]:
    """Counts as a scan makes them: leased URLs count as queued ones."""
    found = list(counts)
    found[QUEUED] += found[LEASED]
    found[LEASED] = 0
    return found


def _living_queues(tables: Tables) -> Rows:
    rows = np.flatnonzero(tables.queues.there(np.arange(tables.queues.count))).astype(np.uint32)
    return rows[~tables.crawls.are_gone(tables.queues.crawl[rows])]


def _leased(tables: Tables) -> Cards:
    """The leased URLs as queued ones, as their records have them: the leases of the checkpoint lease them again."""
    heads = tables.urls.open_leases().cards.heads
    _, cards = tables.urls.find(*(heads[name] for name in ("crawl", "slot", "fingerprint")))
    queued = cards.changed()
    queued["state"] = QUEUED
    return cards.with_heads(queued)


def _cards(part: ScheduleSection, cards: Cards) -> Iterator[tuple[int, bytes]]:
    """Ranges of cards: | number u32 | heads | bodies |."""
    ends = np.searchsorted(cards.offsets, np.arange(RESTORED_BYTES, cards.offsets[-1], RESTORED_BYTES)).tolist()
    for first, end in zip([0, *ends], [*ends, len(cards)], strict=True):
        if end > first:
            some = cards.take(np.arange(first, end))
            number = np.array([len(some)], np.uint32)
            yield part, number.tobytes() + laid_out(number, some)[0]


def _keys_of(keys: Any) -> Iterator[tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint64]]]:
    """All keys of a set in their order, some at once."""
    slot, first = 0, 0
    while slot < SLOTS:
        some_slots, some_prints = keys.keys_from(slot, first, KEPT_KEYS)
        slots, prints = np.frombuffer(some_slots, np.uint16), np.frombuffer(some_prints, np.uint64)
        if not len(slots):
            return
        yield slots, prints
        slot, first = int(slots[-1]), int(prints[-1]) + 1
        if first > FINGERPRINT_MAX:
            slot, first = slot + 1, 0


def _packed(columns: list[npt.NDArray[Any]]) -> bytes:
    """Columns of one length: | rows u32 | column | column | … |."""
    number = np.array([len(columns[0])], np.uint32)
    return b"".join([number.tobytes(), *(np.ascontiguousarray(column).tobytes() for column in columns)])


# -- reading -----------------------------------------------------------------------------------------------------------


def restore(tables: Tables, checkpoint: Checkpoint, schedule: Checkpoint) -> None:
    """Fills what a scan would fill, after the hosts and queues of the checkpoint. After an error the tables have a part
    of it. Raises DamagedStoreError, UnfitScheduleError."""
    tables.urls.begin_anew()
    whole = False
    for section, payload in ahead((section, payload) for _, section, _, _, payload in schedule.ranges()):
        try:
            if not whole:
                _begin(tables, checkpoint, section, payload)
                whole = True
            else:
                _PARTS[ScheduleSection(section)](tables, payload)
        except (ValueError, IndexError, KeyError, TypeError, msgspec.DecodeError) as error:
            raise UnfitScheduleError(f"a range of section {section}: {error}") from error
    if not whole:
        raise UnfitScheduleError("it has no range")
    tables.forget_changed()


def _begin(tables: Tables, checkpoint: Checkpoint, section: int, payload: bytes) -> None:
    if section != ScheduleSection.HEAD:
        raise UnfitScheduleError(f"its first range is of section {section}")
    if (form := msgspec.msgpack.decode(payload)[0]) != SCHEDULE_FORMAT:
        raise UnfitScheduleError(f"it has format {form}, this version reads {SCHEDULE_FORMAT}")
    head = msgspec.msgpack.decode(payload, type=_KeptHead)
    if (head.chain, head.count) != (checkpoint.chain, checkpoint.count):
        raise UnfitScheduleError("it belongs to another checkpoint of this number")
    urls = tables.urls
    urls.backlog.continue_from(head.dictionary, ordered=head.ordered)
    urls.count_kept(head.counts, head.of_crawls, woken=head.woken)


def _queues(tables: Tables, payload: bytes) -> None:
    columns, _ = _columns(payload, ("<u8", *("<u4" for _ in _COUNTS)))
    hashes, *counts = columns
    rows = _known(tables.queues.find(hashes))
    for name, column in zip(_COUNTS, counts, strict=True):
        if name == "open":
            tables.queues.set_open(rows, column)
        else:
            getattr(tables.queues, name)[rows] = column


def _backlog(tables: Tables, payload: bytes) -> None:
    cards = _read_cards(payload)
    tables.urls.backlog.put_as_kept(_known(tables.queues.find(cards.heads["queue"])), cards)


def _chunks(tables: Tables, payload: bytes) -> None:
    (hashes, ranks, dues, orders, lengths), octets = _columns(payload, ("<u8", "<u2", "<u8", "<u8", "<u4"))
    rows = _known(tables.queues.find(hashes))
    tables.urls.backlog.put_chunks(Chunks(rows, ranks, dues, orders, lengths, octets))


def _calendar(tables: Tables, payload: bytes) -> None:
    tables.urls.calendar.put(_read_cards(payload))


def _planned(tables: Tables, payload: bytes) -> None:
    tables.urls.planned.put(_read_cards(payload))


def _spent(tables: Tables, payload: bytes) -> None:
    cards = _read_cards(payload)
    rows = _known(tables.queues.find(cards.heads["queue"]))
    tables.urls.spent.put(tables.queues.host[rows], cards)


def _seen(tables: Tables, payload: bytes) -> None:
    crawl = int.from_bytes(payload[:_COUNT_BYTES], "little")
    (slots, prints), _ = _columns(payload[_COUNT_BYTES:], ("<u2", "<u8"))
    tables.urls.seen.put_keys(crawl, slots, prints)


def _contents(tables: Tables, payload: bytes) -> None:
    (slots, prints), _ = _columns(payload, ("<u2", "<u8"))
    tables.urls.seen.put_keys(None, slots, prints)


_PARTS = {
    ScheduleSection.QUEUES: _queues,
    ScheduleSection.CARDS: _backlog,
    ScheduleSection.CHUNKS: _chunks,
    ScheduleSection.CALENDAR: _calendar,
    ScheduleSection.PLANNED: _planned,
    ScheduleSection.SPENT: _spent,
    ScheduleSection.SEEN: _seen,
    ScheduleSection.CONTENTS: _contents,
}


def _known(rows: Rows) -> Rows:
    if (rows == NONE).any():
        raise UnfitScheduleError("it names a queue that the checkpoint does not have")
    return rows


def _columns(payload: bytes, dtypes: tuple[str, ...]) -> tuple[list[npt.NDArray[Any]], bytes]:
    """The columns of a range, and the bytes after them."""
    (rows,) = np.frombuffer(payload, np.uint32, 1).tolist()
    at, columns = _COUNT_BYTES, []
    for dtype in map(np.dtype, dtypes):
        end = at + rows * dtype.itemsize
        columns.append(np.frombuffer(payload[at:end], dtype, rows))
        at = end
    return columns, payload[at:]


def _read_cards(payload: bytes) -> Cards:
    (number,) = np.frombuffer(payload, np.uint32, 1).tolist()
    if len(payload) < _COUNT_BYTES + number * HEAD_BYTES:
        raise ValueError(f"{number} cards in {len(payload)} bytes")
    return read_out([number], [payload[_COUNT_BYTES:]])


def describe(schedule: Checkpoint, error: Exception) -> str:
    """As `unused_because`, with the name of the file."""
    if isinstance(error, StoreError):
        return unused_because(error.facts)  # without its advice to repair the store, which is whole
    return unused_because(f"{schedule.files.describe(schedule.name)}: {error}")


def unused_because(reason: str) -> str:
    """A sentence for people about a file that was not used."""
    return f"{reason}; the opening read the ledger instead"
