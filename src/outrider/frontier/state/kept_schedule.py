"""A file next to a checkpoint, from which an opening takes what it would otherwise find by a scan of the ledger.

A clean stop writes the places, counts and seen keys of all URLs, except the cards of cold hosts. Every other checkpoint
of a large store has the counts alone. Then the opening reads the places and keys of a slot when they are needed
(`unread_slots`).

The file (`schedule-<number>.ckpt`, docs/formats/frames.md) is derived. It names its checkpoint by number, start and
checksum, and is used only while that one is the newest. The log after it is applied as after a scan. Nothing depends on
the file: if it is missing, damaged or of another checkpoint, the opening scans the ledger.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
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
from outrider.frontier.state.unread_slots import UnreadSlots
from outrider.frontier.state.url_table import LEASED, PARKED, QUEUED
from outrider.frontier.stores.chunks import laid_out, read_out
from outrider.frontier.stores.spilled_keys import keys_in_order
from outrider.frontier.stores.tailed_backlog import Chunks
from outrider.kernels.card_layout import HEAD_BYTES
from outrider.limits import (
    KEPT_CARDS,
    KEPT_CRAWLS_MAX,
    KEPT_KEYS,
    KEPT_QUEUES,
    KEPT_URLS_MIN,
    OWN_SLOT,
    RESTORED_BYTES,
    SLOTS,
)
from outrider.storage.checkpoint import SCHEDULES, Checkpoint, CheckpointWriter
from outrider.storage.files import Files
from outrider.storage.read_ahead import ahead

SCHEDULE_FORMAT = 2
COUNTS_FORMAT = 3  # the file has counts alone
_FORMATS_READ = (1, 2, 3)  # with 2, cold hosts may have queued URLs, which earlier releases would not find
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
    WOKEN = 9


class UnfitScheduleError(Exception):
    """The file is of another checkpoint or format, or it names a queue that the checkpoint does not have."""


class _KeptHead(msgspec.Struct, array_like=True):
    """The first range. chain, count: of the checkpoint; woken: as in `UrlTable`; counts: by state; of_crawls: the same
    by row; dictionary: of the chunks; ordered: whether cards are as the backlog sorts them; plans: whether there may be
    planned URLs."""

    format: int
    chain: int
    count: int
    woken: int
    counts: list[int]
    of_crawls: dict[int, list[int]]
    dictionary: bytes
    ordered: bool
    plans: bool = True  # earlier releases did not note it


def can_be_kept(tables: Tables) -> bool:
    """Whether a schedule may be written: not while seen keys are on disk or found by unique keys, nor while slots are
    unread."""
    seen = tables.urls.seen
    if tables.urls.unread is not None:
        return False
    in_memory = all(isinstance(keys, kernels.FingerprintSet) for keys in (*seen.of_crawls.values(), seen.contents))
    return in_memory and not seen.by_callers


@dataclass(slots=True)
class CopiedCounts:
    """The counts of all URLs at the start of a checkpoint. woken: by slot, as in `UnreadSlots`; queues: a column of
    crawls (NONE for a row without a queue), one of hashes, and one for each of `_COUNTS`; the others as in the head of
    the file."""

    woken: npt.NDArray[np.int64]
    counts: list[int]
    of_crawls: dict[int, list[int]]
    queues: list[npt.NDArray[Any]]

    @classmethod
    def of(cls, tables: Tables) -> CopiedCounts | None:
        """Returns the counts now. None if the next opening cannot leave slots for later with them, or need not: few
        URLs were accepted, or their places depend on more than their records."""
        urls, crawls = tables.urls, tables.crawls
        due = urls.calendar.next() if len(urls.calendar) else None
        if (
            urls.accepted() < KEPT_URLS_MIN
            or urls.plans
            or urls.voids()
            or (due is not None and due <= urls.last_woken)  # some of the URLs that are due still wait
            or (len(urls.spent) and urls.counts[PARKED])
            or (urls.unread is not None and not urls.unread.may_be_kept())
            or crawls.orders
            or crawls.callers
            or len(crawls.names) > KEPT_CRAWLS_MAX
        ):
            return None
        queues, count = tables.queues, tables.queues.count
        # Whole columns: choosing rows of a million queues would need ten times as long.
        columns = [getattr(queues, name)[:count].copy() for name in ("crawl", "hash", *_COUNTS)]
        of_crawls = {row: _unleased(counts) for row, counts in urls.of_crawls.items()}
        woken = np.full(SLOTS, urls.last_woken, np.int64)
        if urls.unread is not None:
            woken = urls.unread.woken_until(urls.last_woken)
        return cls(woken, _unleased(urls.counts), of_crawls, columns)


# -- writing -----------------------------------------------------------------------------------------------------------


def write(files: Files, store: bytes, checkpoint: Checkpoint, content: Tables | CopiedCounts) -> None:
    """Writes the file of a checkpoint. content: the tables, which nothing may use later, or the counts alone. If the
    disk is full or fails, or a file of tails is damaged, there is no file."""
    writer: CheckpointWriter | None = None
    with contextlib.suppress(StoreError):  # nothing depends on the file
        try:
            writer = CheckpointWriter(
                files, store=store, number=checkpoint.number, start_lsn=checkpoint.start_lsn, stem=SCHEDULES
            )
            found = pieces(content, checkpoint) if isinstance(content, Tables) else _counts(content, checkpoint)
            for section, payload in found:
                writer.add(OWN_SLOT, section, 0, checkpoint.lsn, payload)
            writer.finish(checkpoint.lsn)
        finally:
            if writer is not None:
                writer.abandon()


def _counts(copied: CopiedCounts, checkpoint: Checkpoint) -> Iterator[tuple[int, bytes]]:
    """Yields the sections and payloads of a file with counts alone."""
    yield (
        ScheduleSection.HEAD,
        msgspec.msgpack.encode(
            _KeptHead(
                COUNTS_FORMAT,
                checkpoint.chain,
                checkpoint.count,
                int(copied.woken.max()),
                copied.counts,
                copied.of_crawls,
                dictionary=b"",
                ordered=False,
                plans=False,
            )
        ),
    )
    yield ScheduleSection.WOKEN, _packed([copied.woken])
    crawls, *columns = copied.queues
    for first in range(0, len(crawls), KEPT_QUEUES):
        part = slice(first, first + KEPT_QUEUES)
        there = crawls[part] != NONE
        yield ScheduleSection.QUEUES, _packed([column[part][there] for column in columns])


def pieces(tables: Tables, checkpoint: Checkpoint) -> Iterator[tuple[int, bytes]]:
    """Yields the sections and payloads of a file for the tables as they were copied by this checkpoint. It removes
    cards from the tables, so nothing may use them later. Raises DamagedStoreError."""
    urls = tables.urls
    urls.backlog.settle_copies()
    counts_of_crawls = {row: _unleased(counts) for row, counts in urls.of_crawls.items()}
    head = _KeptHead(
        SCHEDULE_FORMAT,
        checkpoint.chain,
        checkpoint.count,
        urls.last_woken,
        _unleased(urls.counts),
        counts_of_crawls,
        urls.backlog.dictionary,
        urls.backlog.ordered,
        urls.plans,
    )
    yield ScheduleSection.HEAD, msgspec.msgpack.encode(head)
    rows = _living_queues(tables)
    for first in range(0, len(rows), KEPT_QUEUES):
        part = rows[first : first + KEPT_QUEUES]
        columns = [tables.queues.hash[part], *(getattr(tables.queues, name)[part] for name in _COUNTS)]
        yield ScheduleSection.QUEUES, _packed(columns)
    for chunks in urls.backlog.chunks(rows, RESTORED_BYTES):
        columns = [tables.queues.hash[chunks.queues], chunks.ranks, chunks.dues, chunks.orders, chunks.lengths]
        yield ScheduleSection.CHUNKS, _packed(columns) + chunks.octets
    # After the tails: a queue without one may be set aside as soon as it has cards.
    for cards in urls.backlog.in_memory(rows, KEPT_CARDS):
        yield from _cards(ScheduleSection.CARDS, cards)
    yield from _cards(ScheduleSection.CARDS, urls.backlog.in_sorted_form(_leased(tables)))
    for section, calendar in ((ScheduleSection.CALENDAR, urls.calendar), (ScheduleSection.PLANNED, urls.planned)):
        for cards in calendar.unload(KEPT_CARDS):
            yield from _cards(section, cards.filter(~urls.void(cards.heads)))
    for queue in rows[urls.spent.waiting(rows) > 0].tolist():
        while len(cards := urls.spent.unload(queue, KEPT_CARDS)):
            yield from _cards(ScheduleSection.SPENT, cards.filter(~urls.void(cards.heads)))
    for crawl, keys in urls.seen.of_crawls.items():
        assert isinstance(keys, kernels.FingerprintSet)  # as `can_be_kept` says
        for slots, prints in keys_in_order(keys, KEPT_KEYS):
            yield ScheduleSection.SEEN, crawl.to_bytes(_COUNT_BYTES, "little") + _packed([slots, prints])
    assert isinstance(urls.seen.contents, kernels.FingerprintSet)
    for slots, prints in keys_in_order(urls.seen.contents, KEPT_KEYS):
        yield ScheduleSection.CONTENTS, _packed([slots, prints])


def _unleased(counts: list[int]) -> list[int]:
    """Returns counts as a scan makes them: leased URLs count as queued ones."""
    counts = list(counts)
    counts[QUEUED] += counts[LEASED]
    counts[LEASED] = 0
    return counts


def _living_queues(tables: Tables) -> Rows:
    rows = np.flatnonzero(tables.queues.there(np.arange(tables.queues.count))).astype(np.uint32)
    return rows[~tables.crawls.are_gone(tables.queues.crawl[rows])]


def _leased(tables: Tables) -> Cards:
    """Returns the leased URLs as queued ones, as their records have them. The checkpoint has their leases."""
    heads = tables.urls.open_leases().cards.heads
    _, cards = tables.urls.find(*(heads[name] for name in ("crawl", "slot", "fingerprint")))
    queued = cards.changed()
    queued["state"] = QUEUED
    return cards.with_heads(queued)


def _cards(section: ScheduleSection, cards: Cards) -> Iterator[tuple[int, bytes]]:
    """Yields ranges of cards: | number u32 | heads | bodies |."""
    ends = np.searchsorted(cards.offsets, np.arange(RESTORED_BYTES, cards.offsets[-1], RESTORED_BYTES)).tolist()
    for first, end in zip([0, *ends], [*ends, len(cards)], strict=True):
        if end > first:
            number = np.array([end - first], np.uint32)
            yield section, number.tobytes() + laid_out(number, cards.take(np.arange(first, end)))[0]


def _packed(columns: list[npt.NDArray[Any]]) -> bytes:
    """Returns columns of one length: | rows u32 | column | column | … |."""
    number = np.array([len(columns[0])], np.uint32)
    return b"".join([number.tobytes(), *(np.ascontiguousarray(column).tobytes() for column in columns)])


# -- reading -----------------------------------------------------------------------------------------------------------


def restore(tables: Tables, checkpoint: Checkpoint, schedule: Checkpoint) -> None:
    """Fills what a scan would fill, after the hosts and queues of the checkpoint; with counts alone, slots stay unread.
    After an error the tables have a part of it. Raises DamagedStoreError, UnfitScheduleError."""
    begun = False
    for section, payload in ahead((section, payload) for _, section, _, _, payload in schedule.ranges()):
        try:
            if not begun:
                _begin(tables, checkpoint, section, payload)
                begun = True
            else:
                _PARTS[ScheduleSection(section)](tables, payload)
        except (ValueError, IndexError, KeyError, TypeError, msgspec.DecodeError) as error:
            raise UnfitScheduleError(f"a range of section {section}: {error}") from error
    if not begun:
        raise UnfitScheduleError("it has no range")
    if tables.urls.unread is None:
        tables.hosts.woken[: tables.hosts.count] = True  # the file does not say which cards have left a calendar
    tables.forget_changed()


def _begin(tables: Tables, checkpoint: Checkpoint, section: int, payload: bytes) -> None:
    if section != ScheduleSection.HEAD:
        raise UnfitScheduleError(f"its first range is of section {section}")
    if (number := msgspec.msgpack.decode(payload)[0]) not in _FORMATS_READ:
        raise UnfitScheduleError(f"it has format {number}, this version reads up to {max(_FORMATS_READ)}")
    head = msgspec.msgpack.decode(payload, type=_KeptHead)
    if (head.chain, head.count) != (checkpoint.chain, checkpoint.count):
        raise UnfitScheduleError("it belongs to another checkpoint of this number")
    urls = tables.urls
    counts_alone = head.format == COUNTS_FORMAT
    urls.begin_anew(recounts=not counts_alone)
    if counts_alone:
        urls.unread = UnreadSlots(tables, np.full(SLOTS, head.woken, np.int64))
    else:
        urls.backlog.continue_from(head.dictionary, ordered=head.ordered)
        urls.plans = head.plans
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
    tables.urls.plans = True
    tables.urls.planned.put(_read_cards(payload))


def _spent(tables: Tables, payload: bytes) -> None:
    cards = _read_cards(payload)
    tables.urls.spent.put(_known(tables.queues.find(cards.heads["queue"])), cards)


def _seen(tables: Tables, payload: bytes) -> None:
    crawl = int.from_bytes(payload[:_COUNT_BYTES], "little")
    (slots, prints), _ = _columns(payload[_COUNT_BYTES:], ("<u2", "<u8"))
    tables.urls.seen.put_keys(crawl, slots, prints)


def _woken(tables: Tables, payload: bytes) -> None:
    (woken,), _ = _columns(payload, ("<i8",))
    if len(woken) != SLOTS:
        raise ValueError(f"instants of {len(woken)} slots")
    tables.urls.unread = UnreadSlots(tables, woken)


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
    ScheduleSection.WOKEN: _woken,
}


def _known(rows: Rows) -> Rows:
    """Returns the rows. Raises UnfitScheduleError if one is missing."""
    if (rows == NONE).any():
        raise UnfitScheduleError("it names a queue that the checkpoint does not have")
    return rows


def _columns(payload: bytes, dtypes: tuple[str, ...]) -> tuple[list[npt.NDArray[Any]], bytes]:
    """Returns the columns of a range, and the bytes after them."""
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
    """Returns the sentence of `unused_because` for an error of `restore`, with the name of the file."""
    if isinstance(error, StoreError):
        return unused_because(error.facts)  # without its advice to repair the store, which is undamaged
    return unused_because(f"{schedule.files.describe(schedule.name)}: {error}")


def unused_because(reason: str) -> str:
    """Returns a sentence for people about a file that was not used."""
    return f"{reason}; the opening read the ledger instead"
