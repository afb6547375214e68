"""The cards of all queues, the best of each first: heads in memory, tails on disk, one exact order over both.

A queue that grows past its head writes its worst cards to disk in chunks of one class. Memory keeps 24 bytes per chunk,
its class, the due and order of its best card, and its place, and a byte per queue. `take` first loads every chunk that
could contain a better card. Tails are scratch: after a restart, recovery fills the backlog anew from the ledger.
"""

from __future__ import annotations

import contextlib
import itertools
from array import array
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from outrider import kernels
from outrider.errors import DamagedStoreError, StoreError, StoreFullError
from outrider.frontier.format.card_columns import Cards
from outrider.frontier.stores.chunks import CARDS_MAX, Packer, fingerprints_of, laid_out, read_out
from outrider.frontier.stores.moved_cards import MovedCards
from outrider.frontier.stores.ordered_cards import plain_form, sorted_form
from outrider.frontier.stores.tails import NOTHING, PLACES, Key, QueueTail, Tails
from outrider.kernels.card_layout import NO_CLASS, ORDERED, ORDERED_CLASS
from outrider.kernels.columns import NONE
from outrider.limits import (
    BACKLOG_ASIDE_CARD_BYTES,
    BACKLOG_ASIDE_CARDS_STEP,
    BACKLOG_ASIDE_QUEUES,
    BACKLOG_CHUNK_CARDS,
    BACKLOG_COLLECT_CHUNKS,
    BACKLOG_HEAD_CARDS_MAX,
    BACKLOG_MANY_CARDS,
    BACKLOG_MOVED_CARDS_ALL_MAX,
    BACKLOG_MOVED_CARDS_MAX,
    BACKLOG_RELEASE_CHUNKS,
    BACKLOG_SPILL_CARDS_STEP,
    BACKLOG_SPILL_PATIENCE,
    BACKLOG_SPILL_QUEUES,
    BACKLOG_SWEEP_CARDS_MIN,
    BACKLOG_SWEEP_ROWS,
    CLASSES,
    RUN_BODY_BYTES_MAX,
)
from outrider.storage.files import Files
from outrider.storage.scratch import PLACE_BITS, Scratch

Rows = npt.NDArray[np.uint32]

DUE_BIAS = 1 << 63  # makes an int64 a u64 of the same order
_SWEEP_CARDS_FIRST = 1 << 10
_ONE = np.uint8(1)  # a class + 1 is 0 for NO_CLASS
_SWEEP_KEEP = 2  # cards that remain of a swept queue, so that not every take reads the disk


@dataclass(frozen=True, slots=True)
class Chunks:
    """Chunks of tails, those of one queue together and the best first. ranks, dues, orders: their keys; lengths: their
    bytes, which `octets` joins."""

    queues: Rows
    ranks: npt.NDArray[np.uint16]
    dues: npt.NDArray[np.uint64]
    orders: npt.NDArray[np.uint64]
    lengths: Rows
    octets: bytes


class TailedBacklog:
    """Queues are u32 rows. One thread at a time.

    A queue keeps its best `head_cards_max` cards in memory, and up to `chunk_cards` more before it spills. When the
    cards in memory use more than `bytes_max`, each call visits some rows and spills queues down to their two best
    cards: queues of a thousand cards first, then shorter ones down to eight. After that it sets short queues aside
    whole.

    Without `files`, and while the disk is full, all cards remain in memory.
    """

    def __init__(
        self,
        files: Files | None,
        *,
        name: str,
        head_cards_max: int = BACKLOG_HEAD_CARDS_MAX,
        bytes_max: int | None = None,
        chunk_cards: int = BACKLOG_CHUNK_CARDS,
        orders: Collection[int] = (),
    ) -> None:
        """Removes files `NAME-*.tail` that an earlier process left. orders: the crawls with an exact order, as the
        caller has them. Raises StoreError, ValueError."""
        if head_cards_max < 1 or not 1 <= chunk_cards <= CARDS_MAX:
            raise ValueError(f"a head of {head_cards_max} cards and chunks of {chunk_cards} cannot be kept")
        self._name = name
        self._head_cards_max = head_cards_max
        self._chunk_cards = chunk_cards
        self._bytes_max = bytes_max
        self._orders, self._ordered = orders, False
        self._kernel = kernels.Backlog()
        self._scratch = None if files is None else Scratch(files, name=name)
        self._packer = Packer()
        self._tails = Tails()
        self._moved: dict[int, MovedCards] = {}  # by queue: old copies in its tail, which count no more
        self._moved_cards = 0  # all old copies
        self._tail_cards = 0
        self._aside = 0  # queues
        self._long: set[int] = set()
        self._patience = 0
        self._sweep_row, self._sweep_most = 0, _SWEEP_CARDS_FIRST
        self._dropped: deque[array[int]] = deque()
        self._spilled = self._loaded = self._refused = 0

    def __repr__(self) -> str:
        return f"<Backlog {self._name} {len(self._kernel)} cards in memory, {self._tail_cards} on disk>"

    def __len__(self) -> int:
        """How many cards there are, tails included."""
        aside: int = self._kernel.statistics()["cards_aside"] if self._aside else 0
        return len(self._kernel) + self._tail_cards + aside

    # ------------------------------------------------------------------------------------------------- the verbs

    def put(self, queues: npt.ArrayLike, cards: Cards) -> None:
        """Adds cards, each to the queue of its row. Raises ValueError, IndexError and DamagedStoreError before it adds
        a card, StoreFailedError after it has added all."""
        rows = _rows(queues)
        if self._orders or self._ordered:
            self._ordered, cards = True, sorted_form(cards)
        loaded = self._bring_aside(rows)
        if len(cards) < BACKLOG_MANY_CARDS or not self._put_many(rows, cards):
            self._put(rows, cards)
        self._settle(len(cards) + loaded)

    def take(self, queues: npt.ArrayLike) -> tuple[npt.NDArray[np.bool_], Cards]:
        """Removes the best card of the queue of each row; a queue named twice returns its two best. Returns which rows
        had one, and their cards in row order. Raises DamagedStoreError; then nothing is removed."""
        rows = _rows(queues)
        loaded = self._bring_aside(rows)
        if self._tails:
            loaded += self._bring_best(rows)
        found, *columns = self._kernel.take(rows)
        if loaded:
            self._settle(loaded)
        return np.frombuffer(found, np.bool_), self._in_plain_form(Cards.of_columns(*columns))

    def _in_plain_form(self, cards: Cards) -> Cards:
        """Returns cards as callers have them."""
        return plain_form(cards) if self._ordered else cards

    @property
    def kernel(self) -> kernels.Backlog:
        """The kernel with the best card of every queue that is not `led_by_tail`, for another kernel to read."""
        return self._kernel

    def led_by_tail(self, queues: Rows) -> npt.NDArray[np.bool_] | None:
        """Returns the queues among these with a better class on disk than in memory; None without one, the usual
        case."""
        if not self._tails:
            return None
        on_disk = self._tails.best(queues)
        (some,) = np.nonzero(on_disk)
        if not len(some):
            return None
        in_memory = np.frombuffer(self._kernel.best(queues[some]), np.uint8)
        led = np.zeros(len(queues), np.bool_)
        led[some] = on_disk[some] > in_memory + _ONE
        if self._ordered:
            ordered = some[(in_memory >= ORDERED) & (in_memory < NO_CLASS)]
            heads = self._head_keys(queues[ordered])
            for row, head in zip(ordered.tolist(), heads, strict=True):
                led[row] |= self._tails[int(queues[row])].first < head
        return led if led.any() else None

    def best(self, queues: npt.ArrayLike) -> npt.NDArray[np.uint8]:
        """Returns the class of each queue's best card, 255 for an empty queue."""
        rows = _rows(queues)
        best = np.frombuffer(self._kernel.best(rows), np.uint8)
        if self._tails:
            best = np.maximum(best + _ONE, self._tails.best(rows)) - _ONE
        return np.where((best >= ORDERED) & (best < NO_CLASS), ORDERED_CLASS, best) if self._ordered else best

    def best_key(self, queue: int) -> Key:
        """Returns the key of the best card of one queue, on disk or in memory."""
        (key,) = self._head_keys(_rows([queue]))
        tail = self._tails.get(queue)
        return key if tail is None else min(key, tail.first)

    def waiting(self, queues: npt.ArrayLike) -> Rows:
        """Returns the number of cards of each queue."""
        rows = _rows(queues)
        counts = np.frombuffer(self._kernel.waiting(rows), np.uint32)
        if self._tails:
            counts = counts.copy()
            for row in np.flatnonzero(self._tails.best(rows)).tolist():
                counts[row] += self._tails[int(rows[row])].cards
        return counts

    def remove(
        self, queues: npt.ArrayLike, fingerprints: npt.ArrayLike, *, tails: bool = True
    ) -> tuple[npt.NDArray[np.bool_], Cards]:
        """Removes the URL of each row from its queue. Returns which rows were found, and their cards in row order. It
        searches memory first, then the chunks of the queue on disk, one read each; of several cards with one
        fingerprint it removes the first. tails: whether it searches these chunks. Raises DamagedStoreError; then
        nothing is removed."""
        found, cards = self._removed(queues, fingerprints, tails=tails)
        return found, self._in_plain_form(cards)

    def _removed(
        self, queues: npt.ArrayLike, fingerprints: npt.ArrayLike, *, tails: bool
    ) -> tuple[npt.NDArray[np.bool_], Cards]:
        rows = _rows(queues)
        prints = np.ascontiguousarray(fingerprints, np.uint64)
        aside = self._bring_aside(rows)
        found, *columns = self._kernel.remove(rows, prints)
        mask, cards = np.frombuffer(found, np.bool_), Cards.of_columns(*columns)
        if aside:
            self._settle(aside)
        if mask.all() or not self._tails or not tails:
            return mask, cards
        missing = np.flatnonzero(~mask)
        wanted: dict[int, list[int]] = {}
        for row in missing.tolist():
            queue = int(rows[row])
            if queue in self._tails:
                wanted.setdefault(queue, []).append(int(prints[row]))
        try:
            loaded = sum(self._bring_these(queue, np.array(some, np.uint64)) for queue, some in wanted.items())
        except BaseException:
            self._put(rows[mask], cards)
            raise
        if not loaded:
            return mask, cards
        found, *columns = self._kernel.remove(rows[missing], prints[missing])
        again = np.frombuffer(found, np.bool_)
        together = Cards.concatenate([cards, Cards.of_columns(*columns)])
        back = np.argsort(np.concatenate([np.flatnonzero(mask), missing[again]]), kind="stable")
        mask = mask.copy()
        mask[missing[again]] = True
        self._settle(loaded)
        return mask, together.take(back)

    def has_tail(self, queues: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Returns which queues have cards on disk besides those in memory."""
        found: npt.NDArray[np.bool_] = self._tails.best(_rows(queues)) != 0
        return found

    def forget(self, queues: npt.ArrayLike, cards: Cards) -> None:
        """Removes these cards, each of which is in the queue of its row, without a search of its tail. A card that
        leads a chunk on disk is removed from that. The copy of another one stays there until its chunk is read. A card
        of a queue without a tail that is not in memory is nowhere. Raises DamagedStoreError."""
        rows = _rows(queues)
        loaded = self._bring_aside(rows)  # a call after the search of the heads may have set a queue aside
        cards = sorted_form(cards) if self._ordered else cards
        for place, queue in enumerate(rows.tolist()):
            head, tail = cards.heads[place], self._tails.get(queue)
            at = tail.led_by(int(head["order"])) if tail is not None else None
            if tail is not None and at is not None:
                loaded += self._load(queue, tail, at)
            found, *_ = self._kernel.remove(rows[place : place + 1], np.array([head["fingerprint"]], np.uint64))
            if found[0] or tail is None:
                continue  # an earlier card of this call may have brought it into memory
            moved = self._moved.setdefault(queue, MovedCards())
            moved.note(cards.take([place]))
            self._moved_cards += 1
            tail.cards -= 1
            self._tail_cards -= 1
            if len(moved) >= BACKLOG_MOVED_CARDS_MAX:
                loaded += self._bring_these(queue, moved.fingerprints())
            if self._moved_cards >= BACKLOG_MOVED_CARDS_ALL_MAX:
                most = max(self._moved, key=lambda row: len(self._moved[row]))
                loaded += self._bring_these(most, self._moved[most].fingerprints())
        if loaded:
            self._settle(loaded)

    def drain(self, queue: int, most: int) -> Cards:
        """Removes and returns the best `most` cards of one queue, the best first. Raises DamagedStoreError; then
        nothing is removed."""
        return self._best_of(queue, most, self._kernel.drain)

    def peek(self, queue: int, most: int) -> Cards:
        """The best `most` cards of one queue, the best first; they stay. Raises DamagedStoreError."""
        return self._best_of(queue, most, self._kernel.peek)

    def _best_of(self, queue: int, most: int, verb: Callable[[int, int], tuple[bytes, bytes, bytes]]) -> Cards:
        loaded = self._bring_aside(_rows([queue])) + self._bring(queue, most)
        cards = Cards.of_columns(*verb(queue, most))
        if loaded:
            self._settle(loaded)
        return self._in_plain_form(cards)

    def unload(self, queue: int, most: int) -> Cards:
        """Removes and returns some cards of one queue, unordered, at the least cost: at least one if there is one, and
        less than a chunk more than `most`. Raises DamagedStoreError; then nothing is removed."""
        parts: list[Cards] = []
        count = 0
        self._bring_aside(_rows([queue]))
        tail = self._tails.get(queue)
        try:
            while tail is not None and tail.refs and count < most:
                cards = self._take_chunk(queue, tail, len(tail) - 1)
                parts.append(cards)
                count += len(cards)
        except BaseException:
            for part in parts:
                self._put_all(queue, part)
            raise
        if count < most:
            parts.append(Cards.of_columns(*self._kernel.drain(queue, most - count)))
        self._collect()
        return self._in_plain_form(Cards.concatenate(parts))

    def drop(self, queue: int) -> int:
        """Forgets every card of one queue. Returns how many there were."""
        row = _rows([queue])
        count = int(self.waiting(row)[0])
        self._kernel.drain(queue, count)
        (place,) = np.frombuffer(self._kernel.aside(row), np.uint64).tolist()
        if place and self._scratch is not None:
            self._kernel.forget_aside(row)
            self._aside -= 1
            self._scratch.release(place)
        self._long.discard(queue)
        tail = self._tails.pop(queue)
        self._forget_moved(queue)
        if tail is not None:
            self._tail_cards -= tail.cards
            self._dropped.append(tail.refs)
            self._collect()
        return count

    def _forget_moved(self, queue: int) -> None:
        self._moved_cards -= len(self._moved.pop(queue, ()))

    # --------------------------------------------------------------------------------------- kept between processes

    @property
    def dictionary(self) -> bytes:
        """The dictionary of the chunks."""
        return self._packer.dictionary

    @property
    def ordered(self) -> bool:
        """Whether the backlog keeps cards in their sorted form."""
        return self._ordered

    def in_sorted_form(self, cards: Cards) -> Cards:
        """Returns cards in the form that the backlog keeps."""
        return sorted_form(cards) if self._ordered else cards

    def settle_copies(self) -> None:
        """Reads the chunks with old copies, so that no tail has one. Raises DamagedStoreError."""
        for queue in list(self._moved):
            self._bring_these(queue, self._moved[queue].fingerprints())
        if self._moved:
            raise DamagedStoreError(f"{len(self._moved)} queues have moved cards that no chunk has")

    def in_memory(self, queues: Rows, most: int) -> Iterator[Cards]:
        """Yields the cards of these queues outside of tails, in their form here, about `most` at once; they stay. It
        reads those of queues that are set aside. Raises DamagedStoreError."""
        places = np.frombuffer(self._kernel.aside(queues), np.uint64)
        for part in _parts(queues[places == 0], self._kernel, most):
            yield Cards.of_columns(*self._kernel.whole(part)[1:])
        place_of = dict(zip(queues[places != 0].tolist(), places[places != 0].tolist(), strict=True))
        for part in _parts(queues[places != 0], self._kernel, most):
            assert self._scratch is not None
            counts = np.frombuffer(self._kernel.waiting(part), np.uint32).tolist()
            yield read_out(counts, [self._scratch.read(place_of[queue], queue) for queue in part.tolist()])

    def chunks(self, queues: Rows, bytes_at_once: int) -> Iterator[Chunks]:
        """Yields the chunks of the tails of these queues, about `bytes_at_once` bytes at once; they stay. Call
        `settle_copies` before. Raises DamagedStoreError."""
        rows: list[int] = []
        keys: list[Key] = []
        chunks: list[bytes] = []
        size = 0
        for queue in queues.tolist() if self._tails else ():
            for key, place in self._tails[queue].in_order() if queue in self._tails else ():
                assert self._scratch is not None
                chunks.append(self._scratch.read(place, queue))
                rows.append(queue)
                keys.append(key)
                size += len(chunks[-1])
                if size >= bytes_at_once:
                    yield _chunks(rows, keys, chunks)
                    rows, keys, chunks, size = [], [], [], 0
        if chunks:
            yield _chunks(rows, keys, chunks)

    def continue_from(self, dictionary: bytes, *, ordered: bool) -> None:
        """Prepares an empty backlog for cards and chunks of an earlier one."""
        self._packer.continue_from(dictionary)
        self._ordered = ordered

    def put_as_kept(self, rows: Rows, cards: Cards) -> None:
        """Adds cards of `in_memory`. Raises ValueError, IndexError and DamagedStoreError before it adds a card."""
        loaded = self._bring_aside(rows)  # with little memory, earlier cards of these queues may be on disk
        self._put(rows, cards)
        self._settle(len(cards) + loaded)

    def put_chunks(self, chunks: Chunks) -> None:
        """Adds chunks to the tails of their queues, after all better ones of a queue. Without `files` and while the
        disk is full, their cards remain in memory. Raises ValueError for lengths that do not fit and for classes that
        do not exist."""
        ends = chunks.lengths.cumsum(dtype=np.int64).tolist()
        if not ends or ends[-1] != len(chunks.octets) or not chunks.lengths.all():
            raise ValueError(f"{len(ends)} chunks in {len(chunks.octets)} bytes")
        if not ((chunks.ranks > 0) & (chunks.ranks < NOTHING[0])).all():
            raise ValueError(f"a chunk of the class {255 - int(chunks.ranks.max())}")
        pieces = [chunks.octets[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        owners = chunks.queues.tolist()
        try:
            places = self._scratch.append_all(owners, pieces) if self._scratch is not None else None
        except StoreFullError:
            places = None
        if places is None:
            for queue, piece in zip(owners, pieces, strict=True):
                self._put_all(queue, self._packer.unpack(piece))
            return
        refs = np.empty((len(pieces), 3), np.uint64)
        refs[:, 0] = chunks.ranks.astype(np.uint64) << np.uint64(PLACE_BITS) | np.array(places, np.uint64)
        refs[:, 1], refs[:, 2] = chunks.dues, chunks.orders
        starts = [0, *(np.flatnonzero(np.diff(chunks.queues)) + 1).tolist()]
        for start, end in zip(starts, [*starts[1:], len(pieces)], strict=True):
            cards = sum(piece[0] for piece in pieces[start:end])
            self._tails.follow(owners[start], refs[start:end], cards)
            self._tail_cards += cards

    def close(self) -> None:
        """Forgets everything and removes the files."""
        self._kernel = kernels.Backlog()
        self._tails.clear()
        self._moved.clear()
        self._tail_cards = self._moved_cards = self._aside = 0
        self._long.clear()
        self._dropped.clear()
        if self._scratch is not None:
            self._scratch.close()

    def statistics(self) -> dict[str, int]:
        """Returns counts by name. cards, cards_in_memory, cards_on_disk; bytes: in memory, references included; queues:
        those with cards in memory; queues_on_disk; chunks; disk_bytes: garbage included; since the start: spilled and
        loaded (cards), refused (times the disk was full)."""
        memory = self._kernel.statistics()
        scratch = self._scratch
        return {
            "cards": len(self),
            "cards_in_memory": memory["cards"],
            "cards_on_disk": self._tail_cards + memory["cards_aside"],
            "bytes": memory["bytes"] + self._tails.memory_bytes,
            "queues": memory["queues"],
            "queues_on_disk": len(self._tails) + memory["queues_aside"],
            "chunks": 0 if scratch is None else scratch.chunks,
            "disk_bytes": 0 if scratch is None else scratch.disk_bytes,
            "spilled": self._spilled,
            "loaded": self._loaded,
            "refused": self._refused,
        }

    # ------------------------------------------------------------------------------------------ from disk to memory

    def _bring_aside(self, rows: Rows) -> int:
        """Loads the cards of these queues that are set aside. Returns how many it loaded. Raises DamagedStoreError;
        nothing is changed then."""
        if self._scratch is None or not self._aside:
            return 0
        places = np.frombuffer(self._kernel.aside(rows), np.uint64)
        if not np.count_nonzero(places):
            return 0
        there = dict(zip(rows[places != 0].tolist(), places[places != 0].tolist(), strict=True))
        chunks = [self._scratch.read(place, queue) for queue, place in there.items()]
        queues = np.fromiter(there, np.uint32, len(there))
        counts = np.frombuffer(self._kernel.waiting(queues), np.uint32)
        cards = read_out(counts.tolist(), chunks)
        self._kernel.forget_aside(queues)
        self._put(queues.repeat(counts), cards)
        self._aside -= len(there)
        self._loaded += len(cards)
        for place in there.values():
            self._scratch.release(place)
        return len(cards)

    def _put(self, rows: Rows, cards: Cards) -> None:
        self._kernel.put(rows, cards.heads.tobytes(), cards.arena, np.ascontiguousarray(cards.offsets, np.int64))

    def _put_all(self, queue: int, cards: Cards) -> None:
        self._put(np.full(len(cards), queue, np.uint32), cards)

    def _take_chunk(self, queue: int, tail: QueueTail, at: int) -> Cards:
        """Removes one chunk from disk and returns its cards that were not moved."""
        assert self._scratch is not None
        place = tail.place(at)
        cards = self._packer.unpack(self._scratch.read(place, queue))
        if queue in self._moved:
            old = self._moved[queue].met(cards)
            self._moved_cards -= int(np.count_nonzero(old))
            cards = cards.filter(~old)
        tail.cards -= len(cards)
        self._tail_cards -= len(cards)
        self._loaded += len(cards)
        self._tails.remove(queue, at)
        if queue not in self._tails:
            self._forget_moved(queue)
        self._scratch.release(place)
        return cards

    def _load(self, queue: int, tail: QueueTail, at: int = 0) -> int:
        cards = self._take_chunk(queue, tail, at)
        self._put_all(queue, cards)
        return len(cards)

    def _bring_best(self, rows: Rows) -> int:
        """Loads the cards that a take of these rows will return. Returns the number of loaded cards."""
        needed: dict[int, int] = {}
        for queue in rows.tolist():
            if queue in self._tails:
                needed[queue] = needed.get(queue, 0) + 1
        if not needed:
            return 0
        loaded = 0
        heads = self._head_keys(np.fromiter(needed, np.uint32, len(needed)))
        for (queue, count), head in zip(needed.items(), heads, strict=True):
            if count > 1 or self._tails[queue].first <= head:
                loaded += self._bring(queue, count)
        return loaded

    def _head_keys(self, rows: Rows) -> list[Key]:
        """The key of the best card in memory, for each queue."""
        classes, dues, orders = self._kernel.best_keys(rows)
        numbers = zip(
            classes, np.frombuffer(dues, np.int64).tolist(), np.frombuffer(orders, np.uint64).tolist(), strict=True
        )
        return [NOTHING if klass == NO_CLASS else (255 - klass, due + DUE_BIAS, order) for klass, due, order in numbers]

    def _bring(self, queue: int, most: int) -> int:
        """Loads chunks until the best `most` cards of one queue are in memory. Returns how many cards it loaded."""
        tail = self._tails.get(queue)
        if tail is None or most < 1:
            return 0
        row = _rows([queue])
        loaded = 0
        (waiting,) = np.frombuffer(self._kernel.waiting(row), np.uint32).tolist()
        while tail.refs:
            if waiting >= most:
                if most == 1:
                    (worst,) = self._head_keys(row)
                else:
                    last = Cards.of_columns(*self._kernel.peek(queue, most)).heads[-1]
                    worst = (255 - int(last["klass"]), int(last["due"]) + DUE_BIAS, int(last["order"]))
                if worst < tail.first:
                    break
            # One chunk at a time, the best first, until no chunk can contain a better card.
            count = self._load(queue, tail)
            waiting += count
            loaded += count
        return loaded

    def _bring_these(self, queue: int, fingerprints: npt.NDArray[np.uint64]) -> int:
        """Loads the chunks with one of these fingerprints. Returns the number of loaded cards."""
        assert self._scratch is not None
        tail = self._tails[queue]
        places = [tail.place(at) for at in range(len(tail))]
        loaded = 0
        for place in places:
            if np.isin(fingerprints_of(self._scratch.read(place, queue)), fingerprints).any():
                at = tail.find(place)
                assert at is not None
                loaded += self._load(queue, tail, at)
        return loaded

    # ------------------------------------------------------------------------------------------ from memory to disk

    def _put_many(self, rows: Rows, cards: Cards) -> bool:
        """Adds cards of which whole chunks are of one queue, as an opening does: the worst of these queues are written
        without a way through memory. Returns False, having added no card, where that does not pay or cannot be done."""
        if self._scratch is None or self._patience:
            return False
        limit, ordered = self._head_cards_max + self._chunk_cards, np.sort(rows)
        long = np.unique(ordered[limit:][ordered[limit:] == ordered[:-limit]])
        if not len(long) or ordered[-1] == NONE or cards.misfit(RUN_BODY_BYTES_MAX):
            return False
        some = np.flatnonzero(np.isin(rows, long))
        heads, queues = cards.heads[some], rows[some]
        columns = (heads["order"], heads["due"], 255 - heads["klass"], queues)
        some = some[np.lexsort([column for column in columns if (column != column[0]).any()] or columns)]
        counts = np.unique(queues, return_counts=True)[1]
        ranks = np.arange(len(some)) - (counts.cumsum() - counts).repeat(counts)  # the place of each in its queue
        worst = some[ranks >= self._head_cards_max]
        ends = (counts - self._head_cards_max).cumsum().tolist()
        try:
            kept = self._write(long.tolist(), ends, cards.take(worst), [self._chunk_cards] * len(ends))
        except StoreFullError:
            return False
        except StoreError:
            self._put(rows, cards)
            raise
        self._spilled += len(worst) - len(kept)
        here = np.ones(len(rows), np.bool_)
        here[worst] = False
        here[worst[kept]] = True
        self._put(rows[here], cards.filter(here))
        return True

    def _settle(self, cards: int) -> None:
        """Ends a call that brought `cards` cards into memory: spills queues that are too long, and clears up."""
        if self._scratch is None:
            return
        over = self._kernel.heads_over(self._head_cards_max + self._chunk_cards)
        if over:
            self._long.update(np.frombuffer(over, np.uint32).tolist())
        if self._patience:
            self._patience -= 1
            self._release_dropped()
            return
        try:
            budget = cards + BACKLOG_SPILL_CARDS_STEP
            while self._long and budget > 0:
                queues = list(itertools.islice(self._long, BACKLOG_SPILL_QUEUES))
                _, count, whole = self._spill(queues, self._head_cards_max, budget)
                budget -= count
                self._long.difference_update(whole)
            if self._bytes_max is not None:
                memory = self._kernel.statistics()
                if memory["bytes"] > self._bytes_max:
                    self._sweep(cards, budget, memory["cards"] // memory["queues"])
            self._collect()
        except StoreFullError:
            self._refused += 1
            self._patience = BACKLOG_SPILL_PATIENCE

    def _spill(self, queues: list[int], keep: int, budget: int) -> tuple[int, int, list[int]]:
        """Writes about `budget` cards of these queues to disk, the worst of each first. Returns how many queues and
        cards it handled, and the queues that are short enough now. Raises StoreFullError, StoreFailedError; the cards
        are in memory then."""
        waiting = np.frombuffer(self._kernel.waiting(_rows(queues)), np.uint32).tolist()
        parts: list[Cards] = []
        ends: list[int] = []
        rooms: list[int] = []
        whole: list[int] = []
        count = 0
        for queue, there in zip(queues, waiting, strict=True):
            if count >= budget:
                break
            keep_now = max(keep, there - BACKLOG_SPILL_CARDS_STEP)
            if keep_now == keep:
                whole.append(queue)
            room = self._chunk_cards if keep == self._head_cards_max else 0
            rest = (there - keep_now) % self._chunk_cards
            if 2 * rest < self._chunk_cards and rest <= room and there - keep_now > self._chunk_cards:
                # They would be a small chunk, if the others have one class, and come back.
                keep_now, room = keep_now + rest, room - rest
            rooms.append(room)
            parts.append(Cards.of_columns(*self._kernel.spill(queue, keep_now)))
            count += len(parts[-1])
            ends.append(count)
        cards = Cards.concatenate(parts)
        if not count:
            return len(parts), 0, whole
        rows = _rows(queues[: len(parts)]).repeat([len(part) for part in parts])
        try:
            kept = self._write(queues[: len(parts)], ends, cards, rooms)
        except BaseException:
            self._put(rows, cards)
            raise
        if kept:
            self._put(rows[kept], cards.take(kept))
        self._spilled += count - len(kept)
        return len(parts), count, whole

    def _write(self, queues: list[int], ends: list[int], cards: Cards, rooms: list[int]) -> list[int]:
        """Writes cards as chunks of one queue and class. The cards of a queue follow each other, in order; ends: their
        ends. Returns the rows of cards that would make small chunks; rooms: how many of them at most, of each queue."""
        assert self._scratch is not None
        classes = cards.heads["klass"]
        owners: list[int] = []
        spans: list[tuple[int, int]] = []
        kept: list[int] = []
        start = place = 0
        left = rooms[0]
        for end in np.union1d(np.flatnonzero(classes[1:] != classes[:-1]) + 1, ends).tolist():
            while start == ends[place]:
                place += 1
                left = rooms[place]
            first = start + (end - start) % self._chunk_cards
            before = len(spans)
            if first > start:
                if 2 * (first - start) >= self._chunk_cards or first - start > left:
                    spans.append((start, first))
                else:
                    kept.extend(range(start, first))
                    left -= first - start
            spans.extend((at, at + self._chunk_cards) for at in range(first, end, self._chunk_cards))
            owners += [queues[place]] * (len(spans) - before)
            start = end
        places = self._scratch.append_all(owners, self._packer.pack(cards, spans))
        for owner, key, (first, end), chunk in zip(owners, _keys_of(cards, spans), spans, places, strict=True):
            self._tails.push(owner, key, chunk, end - first)
            self._tail_cards += end - first
        return kept

    def _sweep(self, came: int, budget: int, mean: int) -> None:
        """Searches some rows for queues to spill or to set aside. came: cards of this call; mean: cards per queue
        in memory."""
        if self._sweep_row == 0:
            # Skips lengths far above the mean at once: few queues are that long.
            while self._sweep_most and self._sweep_most > 2 * mean:
                self._sweep_most = self._shorter()
        if not self._sweep_most:
            following = self._sweep_aside(came + BACKLOG_ASIDE_CARDS_STEP)
        else:
            longer, following = self._kernel.longer_than(self._sweep_row, BACKLOG_SWEEP_ROWS, self._sweep_most)
            queues = np.frombuffer(longer, np.uint32).tolist()
            handled, _, _ = self._spill(queues, _SWEEP_KEEP, budget)
            if handled < len(queues):
                self._sweep_row = queues[handled]
                return
        self._sweep_row = following
        if following == 0:
            # The sweep has seen all rows. The next one looks for shorter queues; after the shortest, for long ones that
            # grew meanwhile.
            self._sweep_most = self._shorter() if self._sweep_most else _SWEEP_CARDS_FIRST

    def _shorter(self) -> int:
        shorter = self._sweep_most // 2
        return shorter if shorter >= BACKLOG_SWEEP_CARDS_MIN else 0

    def _sweep_aside(self, budget: int) -> int:
        """Sets short queues of some rows aside, about `budget` cards. Returns the next row, 0 at the end.
        Raises StoreFullError, StoreFailedError; then the cards are in memory."""
        short, following = self._kernel.short(self._sweep_row, BACKLOG_SWEEP_ROWS)
        queues = np.frombuffer(short, np.uint32)
        for start in range(0, len(queues), BACKLOG_ASIDE_QUEUES):
            if budget <= 0:
                return int(queues[start])
            budget -= self._set_aside(queues[start : start + BACKLOG_ASIDE_QUEUES])
        return following

    def _set_aside(self, queues: Rows) -> int:
        """Writes all cards of these queues to disk, except queues with tails or with cards above class 15. Returns the
        cost: the number of cards, or more when they are long."""
        assert self._scratch is not None
        best = np.frombuffer(self._kernel.best(queues), np.uint8)
        if self._tails or best.max() >= CLASSES:
            queues = queues[(self._tails.best(queues) == 0) & (best < CLASSES)]
        told, *columns = self._kernel.whole(queues)
        counts, cards = np.frombuffer(told, np.uint32), Cards.of_columns(*columns)
        places = self._scratch.append_all(queues.tolist(), laid_out(counts, cards))
        self._kernel.set_aside(queues, np.array(places, np.uint64))
        self._aside += len(queues)
        self._spilled += len(cards)
        return max(len(cards), len(cards.arena) // BACKLOG_ASIDE_CARD_BYTES)

    def _collect(self) -> None:
        """Releases some chunks of dropped queues, or else writes some chunks of a wasteful file anew."""
        scratch = self._scratch
        if scratch is None or self._release_dropped():
            return
        survivors = scratch.survivors(BACKLOG_COLLECT_CHUNKS)
        if self._aside and survivors:
            survivors = self._move_aside(survivors)
        for owner, place, chunk in survivors:
            tail = self._tails.get(owner)
            at = None if tail is None else tail.find(place)
            if tail is not None and at is not None:
                with contextlib.suppress(StoreFullError):  # the chunk stays where it is
                    tail.move(at, scratch.append(owner, [chunk])[0])
                    scratch.release(place)

    def _move_aside(self, survivors: list[tuple[int, int, bytes]]) -> list[tuple[int, int, bytes]]:
        """Writes the chunks of queues that are set aside anew. Returns the other chunks."""
        assert self._scratch is not None
        owners = np.array([owner for owner, _, _ in survivors], np.uint32)
        places = np.frombuffer(self._kernel.aside(owners), np.uint64).tolist()
        mine = [one for one, place in zip(survivors, places, strict=True) if one[1] == place]
        with contextlib.suppress(StoreFullError):  # the chunks stay where they are
            moved = self._scratch.append_all([owner for owner, _, _ in mine], [chunk for _, _, chunk in mine])
            self._kernel.set_aside(_rows([owner for owner, _, _ in mine]), np.array(moved, np.uint64))
            for _, place, _ in mine:
                self._scratch.release(place)
        return [one for one, place in zip(survivors, places, strict=True) if one[1] != place]

    def _release_dropped(self) -> bool:
        """Releases some chunks of dropped queues. Returns whether there were any."""
        if self._scratch is None or not self._dropped:
            return False
        refs = self._dropped[-1]
        for _ in range(min(BACKLOG_RELEASE_CHUNKS, len(refs) // 3)):
            self._scratch.release(refs[-3] & PLACES)
            del refs[-3:]
        if not refs:
            self._dropped.pop()
        return True


def _rows(queues: npt.ArrayLike | Sequence[int]) -> Rows:
    return np.ascontiguousarray(queues, np.uint32)


def _parts(queues: Rows, kernel: kernels.Backlog, most: int) -> Iterator[Rows]:
    """Yields these queues without empty ones, in parts of about `most` cards."""
    counts = np.frombuffer(kernel.waiting(queues), np.uint32)
    queues, counts = queues[counts > 0], counts[counts > 0]
    ends = np.flatnonzero(np.diff(counts.cumsum(dtype=np.int64) // most, prepend=0)).tolist()
    for start, end in zip([0, *ends], [*ends, len(queues)], strict=True):
        if end > start:
            yield queues[start:end]


def _chunks(rows: list[int], keys: Sequence[Key], chunks: list[bytes]) -> Chunks:
    ranks, dues, orders = zip(*keys, strict=True)
    lengths = np.array([len(chunk) for chunk in chunks], np.uint32)
    columns = np.array(ranks, np.uint16), np.array(dues, np.uint64), np.array(orders, np.uint64)
    return Chunks(_rows(rows), *columns, lengths, b"".join(chunks))


def _keys_of(cards: Cards, spans: Sequence[tuple[int, int]]) -> list[Key]:
    """Returns the key of the first card of each span of rows."""
    heads = cards.heads[[first for first, _ in spans]]
    columns = zip(heads["klass"].tolist(), heads["due"].tolist(), heads["order"].tolist(), strict=True)
    return [(255 - klass, due + DUE_BIAS, order) for klass, due, order in columns]
