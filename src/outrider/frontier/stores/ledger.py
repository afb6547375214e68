"""The ledger: the newest card of every accepted URL, found by key, listed in the order of keys.

Appended cards are in memory, in pieces that are sorted when they are full. Frozen pieces are written as one run, for a
checkpoint or to free their memory; after a crash, replay of the log appends later cards again. Later appends count
before earlier ones, memory before runs, newer runs before older ones (`outrider.storage.tiers`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import is_
from typing import Any

import numpy as np
import numpy.typing as npt

from outrider.frontier.format.card_columns import Cards
from outrider.kernels.card_layout import HEAD, Heads
from outrider.limits import (
    DIRECTORY_PIECES_MIN,
    DIRECTORY_PIECES_SORTED,
    KEYS_LOOKED_FOR_ALONE_MAX,
    MEMTABLE_APPENDS_JOINED,
    MEMTABLE_CHUNK_BYTES,
    MEMTABLE_CHUNK_ROWS,
    MERGE_ROWS,
    RUN_BODY_BYTES_MAX,
    RUN_READ_BYTES,
    SCAN_ROWS,
)
from outrider.storage.files import Files
from outrider.storage.record_columns import Int64s, Keys, RecordColumns, distinct, merged, newest, pack_keys, prints_of
from outrider.storage.runs import LEDGER
from outrider.storage.tiers import Layers, Tiers

Key = tuple[int, int, int]
"""(crawl, slot, fingerprint); of the fingerprint the low 56 bits count."""
FINGERPRINT_MAX = (1 << 56) - 1
_WHOLE = np.ones(MEMTABLE_CHUNK_ROWS, np.bool_)
_NO_BODIES: Int64s = np.zeros(MEMTABLE_CHUNK_ROWS + 1, np.int64)


def before_slot(crawl: int, slot: int) -> Key | None:
    """Returns the last key before those of a slot, for `scan`: all keys of the slot are after it. None: all keys
    are."""
    if slot:
        return crawl, slot - 1, FINGERPRINT_MAX
    return (crawl - 1, 0xFFFF, FINGERPRINT_MAX) if crawl else None


@dataclass(frozen=True, slots=True)
class LedgerStatistics:
    """The size of a ledger."""

    records: int
    """An upper bound of the number of URLs: a URL with versions in several layers counts in each."""
    runs: int
    bytes: int
    """The size of the files of runs."""
    memtable_bytes: int
    """The size of records in memory that are in no run yet."""


class Ledger:
    """One record per accepted URL: its newest card."""

    def __init__(self, tiers: Tiers) -> None:
        self._tiers = tiers
        self._sealed: list[RecordColumns] = []
        self._open: list[RecordColumns] = []
        self._open_rows = self._open_bytes = 0
        self._joined = 0  # how many of the open pieces join several appends
        self._tail: RecordColumns | None = None
        self._directory = _Directory()
        self.unfrozen_bytes = 0
        """About how many bytes of memory the cards use that were appended since the last `freeze`."""

    @classmethod
    def open(cls, files: Files, *, store: bytes, names: Sequence[str], family: str = LEDGER) -> Ledger:
        """The ledger as a checkpoint left it: `names` are the runs it lists, in that order. Nothing is written. family:
        the family of runs, another one where cards keep something else than URLs.

        Raises DamagedStoreError, naming file and byte, and ForeignStoreError for a newer format.
        """
        return cls(Tiers(files, store=store, names=names, family=family))

    # ------------------------------------------------------------------------------------------------ writing

    def append(self, cards: Cards) -> None:
        """New versions, whole. A card of state 0 ends its record. Raises ValueError for cards whose heads and bodies
        disagree."""
        why = cards.misfit(RUN_BODY_BYTES_MAX)
        if why:
            raise ValueError(why)
        self.take(cards)

    def take(self, cards: Cards) -> None:
        """As `append`, for cards that were checked before they were logged."""
        heads = cards.heads
        self._add(
            RecordColumns(_copy(heads), _first(_WHOLE, len(heads)), cards.arena, np.asarray(cards.offsets, np.int64))
        )

    def append_heads(self, heads: Heads) -> None:
        """New versions that keep the bodies of the versions before, and so their lengths in the heads.

        A head of state 0 ends its record; a later head of that URL has no body.
        """
        rows = len(heads)
        self._add(RecordColumns(_copy(heads), ~_first(_WHOLE, rows), b"", _first(_NO_BODIES, rows + 1)))

    def _add(self, records: RecordColumns) -> None:
        if not len(records):
            return
        with self._tiers.lock:
            self._open.append(records)
            self._open_rows += len(records)
            self._open_bytes += records.nbytes
            self.unfrozen_bytes += records.nbytes
            self._tail = None
            if self._open_rows >= MEMTABLE_CHUNK_ROWS or self._open_bytes >= MEMTABLE_CHUNK_BYTES:
                self._seal()
            elif len(self._open) - self._joined >= MEMTABLE_APPENDS_JOINED:
                self._open[self._joined :] = [RecordColumns.concatenate(self._open[self._joined :])]
                self._joined += 1

    def _seal(self) -> None:
        if self._open:
            self._sealed.append(self._sorted_tail())
            self._open, self._joined, self._tail = [], 0, None
            self._open_rows = self._open_bytes = 0

    def _sorted_tail(self) -> RecordColumns:
        if self._tail is None:
            self._open, self._joined = [RecordColumns.concatenate(self._open)], 1
            self._tail = newest(_with_ends(self._open[0]))
            self._tail.heads.flags.writeable = False  # scans hand out pieces of it
        return self._tail

    def freeze(self, *, for_checkpoint: bool = False) -> None:
        """Lets everything appended until now wait for `write_frozen`. for_checkpoint: a checkpoint begins. Until
        `settled` or `give_up`, `names` returns the runs of everything appended until now, and of nothing later."""
        with self._tiers.lock:
            self._seal()
            self._tiers.hold(self._sealed)
            self._sealed = []
            self.unfrozen_bytes = 0
            if for_checkpoint:
                self._tiers.mark()

    def give_up(self) -> None:
        """Forgets the checkpoint that began last, which will not be made."""
        self._tiers.unmark()

    @property
    def frozen_bytes(self) -> int:
        """The memory of frozen pieces that no finished run has."""
        return self._tiers.frozen_bytes

    @property
    def pending_bytes(self) -> int:
        """How many of these bytes the thread that writes has not handled yet."""
        return self._tiers.pending_bytes

    def write_frozen(self, *, for_checkpoint: bool = False) -> None:
        """Writes the frozen pieces as a new run, synced with its directory; for a separate thread. During a checkpoint
        the first call writes the pieces that it lists, and a further one those that were frozen later. for_checkpoint:
        writes only pieces that the checkpoint lists.

        Raises StoreFullError and StoreFailedError; the frozen pieces stay readable, and the next attempt writes them.
        """
        self._tiers.write(only_marked=for_checkpoint)

    def merge(self, *, leaves_bytes: int = 0) -> bool:
        """Makes one run of the newest ones as `outrider.storage.tiers.due` says. Returns whether there was something to
        do.

        For a thread of its own, in a loop. Other threads write frozen pieces, and begin and end checkpoints meanwhile.
        leaves_bytes: how much free space a checkpoint needs. Raises StoreFullError, StoreFailedError,
        DamagedStoreError, and ClosedError after `end_merges`; then the old runs count as before.
        """
        return self._tiers.merge(leaves_bytes=leaves_bytes)

    def give_room(self) -> None:
        """Ends the current merge at its next step: its file may have the room that the log needs."""
        self._tiers.give_room()

    @property
    def merges_wait(self) -> bool:
        """Whether runs wait to be merged, because the disk has too little room."""
        return self._tiers.merges_wait

    def end_merges(self) -> None:
        """Ends the current merge at its next step, and allows no further one: the store closes."""
        self._tiers.end_merges()

    def names(self) -> list[str]:
        """The runs for the checkpoint to list: those that count now, or did when it began (`freeze`)."""
        return self._tiers.names()

    def settled(self) -> None:
        """The checkpoint with the last `names` is durable: files that it does not list are removed."""
        self._tiers.settled()

    def remove_leftovers(self) -> None:
        """Removes files of runs that a crash left and no checkpoint lists; for the owner, after opening."""
        self._tiers.remove_leftovers()

    def close(self) -> None:
        """Closes the files and writes nothing: the log has everything that is in memory."""
        self._tiers.close()

    # ------------------------------------------------------------------------------------------------ reading

    def find(
        self, crawls: npt.ArrayLike, slots: npt.ArrayLike, fingerprints: npt.ArrayLike
    ) -> tuple[npt.NDArray[np.bool_], Cards]:
        """Returns whether each of these URLs has a record (n of bool), and the cards of those with one, in the order of
        the request.

        The columns are u32, u16 and u64 of one length. Raises DamagedStoreError.
        """
        keys = pack_keys(crawls, slots, fingerprints)
        missing = distinct(keys)
        layers, pieces = self._look()
        found: list[RecordColumns] = []
        for piece in reversed(self._with_any((*layers.frozen, *pieces), missing)):
            missing = _without(missing, found, _find_piece(piece, missing))
        for run in reversed(layers.runs):
            if not len(missing):
                break
            missing = _without(missing, found, run.find(missing))
        records = newest(RecordColumns.concatenate(found[::-1])).living()
        if not len(records):
            return np.zeros(len(keys), np.bool_), Cards.none()
        rows = np.minimum(records.keys.searchsorted(keys), len(records) - 1)
        hit = records.keys[rows] == keys
        return hit, _cards(records.take(rows[hit]))

    def scan(
        self, *, after: Key | None = None, last: Key | None = None, bytes_at_once: int = RUN_READ_BYTES
    ) -> Iterator[Cards]:
        """Every record with a key above `after`, in the order of keys, some thousand at once, as of the first step.
        last, bytes_at_once: as for `scan_heads`.

        Raises DamagedStoreError when a block is damaged; the records given before that are good.
        """
        return self._scan(after, last=last, bodies=True, bytes_at_once=bytes_at_once)

    def scan_heads(
        self, *, after: Key | None = None, last: Key | None = None, bytes_at_once: int = RUN_READ_BYTES
    ) -> Iterator[Heads]:
        """As `scan`, only the heads, at a fraction of the cost. last: the last key that the caller reads; later cards
        in memory are skipped. bytes_at_once: the size of a read of a run; a small one makes a cheap first step."""
        for cards in self._scan(after, last=last, bodies=False, bytes_at_once=bytes_at_once):
            yield cards.heads

    def _scan(
        self, after: Key | None, *, last: Key | None = None, bodies: bool, bytes_at_once: int = RUN_READ_BYTES
    ) -> Iterator[Cards]:
        bound = b"" if after is None else bytes(_packed(after)[0])
        layers, memory = self._look()
        pieces = _between((*layers.frozen, *memory), after, last)
        if sum(map(len, pieces)) <= MERGE_ROWS:
            pieces = [newest(RecordColumns.concatenate(pieces))]  # part by part is slower if the parts are short
        streams = [run.read(after=bound, bodies=bodies, bytes_at_once=bytes_at_once) for run in layers.runs]
        for records in merged(streams, pieces):
            for begin in range(0, len(records), SCAN_ROWS):
                living = records.slice(begin, min(begin + SCAN_ROWS, len(records))).living()
                if len(living):
                    yield _cards(living) if bodies else Cards(living.heads, b"", np.zeros(len(living) + 1, np.int64))

    def _with_any(self, pieces: Sequence[RecordColumns], keys: Keys) -> Sequence[RecordColumns]:
        """Returns those of these pieces that may have any of the keys, in their order; all of them if there are few
        pieces or many keys."""
        if len(pieces) < DIRECTORY_PIECES_MIN or not 0 < len(keys) <= KEYS_LOOKED_FOR_ALONE_MAX:
            return pieces
        *settled, last = pieces  # each append makes the last one anew
        directory = self._directory
        if not directory.is_of(settled):
            directory = self._directory = _Directory(tuple(settled), directory)
        return [*directory.with_any(keys), last]

    def _look(self) -> tuple[Layers, list[RecordColumns]]:
        """The sources of a read at this moment: layers, and above them the pieces that are not frozen."""
        with self._tiers.lock:
            tail = [self._sorted_tail()] if self._open else []
            return self._tiers.layers, [*self._sealed, *tail]

    def check(self) -> Iterator[str]:
        """Reads every run again, to its last byte. Yields a sentence for each damage, naming file and byte."""
        yield from self._tiers.check()

    def statistics(self) -> LedgerStatistics:
        """The sizes at this moment; no file is read."""
        with self._tiers.lock:
            layers = self._tiers.layers
            pieces = [*layers.frozen, *self._sealed, *self._open]
        return LedgerStatistics(
            records=sum(len(run) for run in layers.runs) + sum(len(piece) for piece in pieces),
            runs=len(layers.runs),
            bytes=sum(run.bytes for run in layers.runs),
            memtable_bytes=sum(piece.nbytes for piece in pieces),
        )


class _Directory:
    """A part of the fingerprints of many sorted pieces: one look finds the pieces that may have a key. Searching each
    of 200 pieces by itself would need two milliseconds."""

    def __init__(self, pieces: tuple[RecordColumns, ...] = (), before: _Directory | None = None) -> None:
        """before: the directory of fewer of these pieces, which has some of the groups already."""
        self._pieces = pieces
        self._groups: list[tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]] = []
        """For each `DIRECTORY_PIECES_SORTED` pieces the parts in order, and the piece of each."""
        whole = len(pieces) // DIRECTORY_PIECES_SORTED
        if before is not None and all(map(is_, before._pieces, pieces)):
            self._groups = before._groups[:whole]
        for group in range(len(self._groups), whole):
            prints, places = self._joined(group * DIRECTORY_PIECES_SORTED, (group + 1) * DIRECTORY_PIECES_SORTED)
            order = prints.argsort()
            self._groups.append((prints[order], places[order]))
        self._rest, self._places = self._joined(whole * DIRECTORY_PIECES_SORTED, len(pieces))

    def _joined(self, first: int, last: int) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
        """Returns the parts of these pieces, and the piece of each."""
        some = [piece.prints for piece in self._pieces[first:last]]
        places = np.arange(first, last, dtype=np.uint32).repeat([len(prints) for prints in some])
        return np.concatenate(some or [np.zeros(0, np.uint32)]), places

    def is_of(self, pieces: Sequence[RecordColumns]) -> bool:
        """Whether it is the directory of these pieces."""
        return len(self._pieces) == len(pieces) and all(map(is_, self._pieces, pieces))

    def with_any(self, keys: Keys) -> list[RecordColumns]:
        """Returns the pieces that may have any of these keys, in their order."""
        places: set[int] = set()
        for key in prints_of(keys):
            places.update(self._places[self._rest == key].tolist())
            for prints, of in self._groups:
                places.update(of[prints.searchsorted(key) : prints.searchsorted(key, "right")].tolist())
        return [self._pieces[place] for place in sorted(places)]


def _copy(heads: Heads) -> Heads:
    return np.frombuffer(heads.tobytes(), HEAD)


def _first(column: npt.NDArray[Any], rows: int) -> npt.NDArray[Any]:
    """The first `rows` values of a column whose values are all alike."""
    return column[:rows] if rows <= len(column) else np.resize(column, rows)


def _with_ends(records: RecordColumns) -> RecordColumns:
    """Makes versions of state 0 whole and empty, so that no older version shows through them."""
    ended = records.heads["state"] == 0
    if not ended.any():
        return records
    rows = np.arange(len(records))
    result = records.take(rows, np.where(records.whole & ~ended, rows, -1))
    for name in ("url_bytes", "referrer_bytes", "extra_bytes"):
        result.heads[name][ended] = 0
    result.whole[ended] = True
    return result


def _find_piece(piece: RecordColumns, keys: Keys) -> RecordColumns | None:
    rows = piece.rows_of(keys)
    return piece.take(rows) if len(rows) else None


def _without(missing: Keys, found: list[RecordColumns], some: RecordColumns | None) -> Keys:
    """Notes the records that a layer has. Returns the keys to look for in older layers."""
    if some is None or not len(some):
        return missing
    found.append(some)
    return missing[~np.isin(missing, some.keys[some.whole])]


def _packed(key: Key) -> Keys:
    return pack_keys(*([part] for part in key))


def _between(pieces: Iterable[RecordColumns], after: Key | None, last: Key | None) -> list[RecordColumns]:
    """Returns the records of each piece after one key up to another, None for no bound; without empty pieces."""
    if after is None and last is None:
        return [piece for piece in pieces if len(piece)]
    # One search of each piece for both ends: of the pieces, which are many, few have URLs of one host.
    ends = np.concatenate([_packed(key) for key in (after, last) if key is not None])
    found = []
    for piece in pieces:
        places = piece.keys.searchsorted(ends, "right").tolist()
        begin = 0 if after is None else places[0]
        end = len(piece) if last is None else places[-1]
        if begin < end:
            found.append(piece if begin == 0 and end == len(piece) else piece.slice(begin, end))
    return found


def _cards(records: RecordColumns) -> Cards:
    first, last = int(records.offsets[0]), int(records.offsets[-1])
    if first or last != len(records.arena):
        return Cards(records.heads, bytes(memoryview(records.arena)[first:last]), records.offsets - first)
    return Cards(records.heads, bytes(records.arena), records.offsets)
