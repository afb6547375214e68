"""The cards of many queues, the best of each first; the twin of crates/kernels/src/backlog.rs.

The best card has the highest class, then the earliest due, then the lowest order. Of cards that are equal in all three
it is the one with the smaller bytes. Queues are u32 rows; a row without any card is an empty queue. Columns are
contiguous buffers, little endian, as numpy has them. They must not change while a call runs.
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Iterable
from typing import Any

from outrider.kernels.card_layout import HEAD_BYTES, NO_CLASS
from outrider.kernels.columns import NONE

HeadsArenaOffsets = tuple[bytes, bytes, bytes]
"""Cards as a kernel returns them: 72 bytes a head, the bodies, int64 offsets of the bodies (one more than cards)."""
FoundCards = tuple[bytes, bytes, bytes, bytes]
"""For each row whether it had a card (u8), and the cards of those rows in row order."""

CARD_OVERHEAD_BYTES = 24
ASIDE_CARDS_MAX = 8
ASIDE_CLASS_MAX = 15
ASIDE_PLACE_BITS = 55

_Key = tuple[int, int, int, bytes]


def _key(card: bytes) -> _Key:
    """Sorts the best card first."""
    (order,) = struct.unpack_from("<Q", card, 16)
    (due,) = struct.unpack_from("<q", card, 24)
    return (-card[62], due, order, card)


def _body_bytes(head: bytes) -> int:
    (extra_bytes,) = struct.unpack_from("<I", head, 44)
    url_bytes, referrer_bytes = struct.unpack_from("<HH", head, 56)
    return int(url_bytes + referrer_bytes + extra_bytes)


def _cost(card: bytes) -> int:
    return (len(card) + 15) // 16 * 16 + CARD_OVERHEAD_BYTES


def _numbers(column: Any, name: str, code: str) -> list[int]:
    view = memoryview(column)
    size = struct.calcsize(code)
    if not view.c_contiguous:
        raise BufferError("the buffer must be contiguous")
    if view.itemsize not in (1, size):
        raise ValueError(f"{name} are numbers of {size} bytes, not {view.itemsize}")
    if view.nbytes % size:
        raise ValueError(f"{name} are numbers of {size} bytes; {view.nbytes} bytes are none")
    return [number for (number,) in struct.iter_unpack(f"<{code}", view.tobytes())]


def _bytes(column: Any, name: str, item_bytes: int) -> bytes:
    view = memoryview(column)
    if not view.c_contiguous:
        raise BufferError("the buffer must be contiguous")
    if view.itemsize not in (1, item_bytes):
        raise ValueError(f"{name} are numbers of {item_bytes} bytes, not {view.itemsize}")
    return view.tobytes()


def _rows(column: Any) -> list[int]:
    rows = _numbers(column, "queues", "I")
    for row, queue in enumerate(rows):
        if queue == NONE:
            raise IndexError(f"row {row}: {queue} is no queue")
    return rows


def _row(queue: int) -> int:
    if not 0 <= queue < NONE:
        raise IndexError(f"{queue} is no queue")
    return queue


def _count(number: int, name: str) -> int:
    if number < 0:
        raise ValueError(f"{name} is not negative, as {number} is")
    return number


def _columns(cards: Iterable[bytes]) -> HeadsArenaOffsets:
    heads, bodies, offsets = [], [], [0]
    for card in cards:
        heads.append(card[:HEAD_BYTES])
        bodies.append(card[HEAD_BYTES:])
        offsets.append(offsets[-1] + len(card) - HEAD_BYTES)
    return b"".join(heads), b"".join(bodies), struct.pack(f"<{len(offsets)}q", *offsets)


class Backlog:
    """Each queue is a sorted list, or its few cards are *aside*: the caller stores them at a place, and the kernel has
    only their number and the class of the best one. Cards that are aside can neither be taken nor added to; the caller
    must first forget them and put them here.

    Raises IndexError for the row 0xFFFFFFFF, ValueError for columns that do not fit. A call that raises changes
    nothing."""

    def __init__(self) -> None:
        self._queues: dict[int, list[_Key]] = {}
        self._cards = 0
        self._bytes = 0
        self._changed: set[int] = set()
        self._aside: dict[int, tuple[int, int, int]] = {}  # queue -> place, cards, class of the best
        self._rows = 0

    def __len__(self) -> int:
        """How many cards there are in memory."""
        return self._cards

    def __repr__(self) -> str:
        return f"<Backlog {self._cards} cards in {len(self._queues)} queues>"

    def put(self, queues: Any, heads: Any, arena: Any, offsets: Any) -> None:
        """Adds cards: the queue of each (u32), its head, and the offset of its body (int64, one more than cards)."""
        rows, ends = _numbers(queues, "queues", "I"), _numbers(offsets, "offsets", "q")
        head_octets, bodies = _bytes(heads, "heads", HEAD_BYTES), _bytes(arena, "arena", 1)
        count = len(rows)
        if len(head_octets) != HEAD_BYTES * count or len(ends) != count + 1:
            raise ValueError(
                f"{count} queues need {HEAD_BYTES * count} bytes of heads and {count + 1} offsets, "
                f"not {len(head_octets)} and {len(ends)}"
            )
        cards = []
        for row, queue in enumerate(rows):
            if queue == NONE:
                raise IndexError(f"row {row}: {queue} is no queue")
            if queue in self._aside:
                raise ValueError(f"row {row}: the cards of {queue} are aside")
            start, end = ends[row], ends[row + 1]
            if start < 0 or end < start or end > len(bodies):
                raise ValueError(f"row {row}: a body from {start} to {end} lies outside {len(bodies)} bytes")
            head = head_octets[HEAD_BYTES * row : HEAD_BYTES * (row + 1)]
            if _body_bytes(head) != end - start:
                raise ValueError(
                    f"row {row}: the head tells of {_body_bytes(head)} bytes of body, there are {end - start}"
                )
            cards.append(head + bodies[start:end])
        for queue, card in zip(rows, cards, strict=True):
            keys = self._queues.setdefault(queue, [])
            bisect.insort(keys, _key(card))
            if len(keys) > 1:
                self._changed.add(queue)
            self._cards += 1
            self._bytes += _cost(card)
            self._rows = max(self._rows, queue + 1)

    def _take_out(self, queue: int, start: int, stop: int) -> list[bytes]:
        keys = self._queues.get(queue, [])
        cards = [key[-1] for key in keys[start:stop]]
        del keys[start:stop]
        if not keys:
            self._queues.pop(queue, None)
        self._cards -= len(cards)
        self._bytes -= sum(map(_cost, cards))
        return cards

    def take(self, queues: Any) -> FoundCards:
        """Removes and returns the best card of the queue of each row; a queue named twice returns its two best."""
        taken = [self._take_out(queue, 0, 1) for queue in _rows(queues)]
        return (bytes(len(cards) for cards in taken), *_columns(card for cards in taken for card in cards))

    def remove(self, queues: Any, fingerprints: Any) -> FoundCards:
        """Removes the card with this fingerprint from the queue of each row: the best one, if there are several."""
        prints = _numbers(fingerprints, "fingerprints", "Q")
        rows = _numbers(queues, "queues", "I")
        if len(rows) != len(prints):
            raise ValueError(f"{len(rows)} queues and {len(prints)} fingerprints")
        removed = []
        for queue, print_ in zip(_rows(queues), prints, strict=True):
            wanted = struct.pack("<Q", print_)
            at = next((at for at, key in enumerate(self._queues.get(queue, ())) if key[-1][:8] == wanted), None)
            removed.append([] if at is None else self._take_out(queue, at, at + 1))
        return (bytes(len(cards) for cards in removed), *_columns(card for cards in removed for card in cards))

    def best(self, queues: Any) -> bytes:
        """Returns the class of each queue's best card (u8); 255 for an empty queue."""
        return self.best_keys(queues)[0]

    def best_keys(self, queues: Any) -> tuple[bytes, bytes, bytes]:
        """Returns the class (u8), due (int64) and order (u64) of each queue's best card. They are 255, 0 and 0 for an
        empty queue, and the class, 0 and 0 for a queue that is aside."""
        keys = [self._queues[queue][0] if queue in self._queues else self._outside(queue) for queue in _rows(queues)]
        return (
            bytes(-key[0] for key in keys),
            struct.pack(f"<{len(keys)}q", *(key[1] for key in keys)),
            struct.pack(f"<{len(keys)}Q", *(key[2] for key in keys)),
        )

    def _outside(self, queue: int) -> _Key:
        return -self._aside[queue][2] if queue in self._aside else -NO_CLASS, 0, 0, b""

    def waiting(self, queues: Any) -> bytes:
        """Returns the number of cards of each queue (u32), including cards aside."""
        counts = [len(self._queues.get(queue, ())) + self._aside.get(queue, (0, 0))[1] for queue in _rows(queues)]
        return struct.pack(f"<{len(counts)}I", *counts)

    def drain(self, queue: int, most: int) -> HeadsArenaOffsets:
        """Removes and returns the best `most` cards of one queue, the best first."""
        return _columns(self._take_out(_row(queue), 0, _count(most, "most")))

    def peek(self, queue: int, most: int) -> HeadsArenaOffsets:
        """The best `most` cards of one queue, the best first; they stay where they are."""
        keys = self._queues.get(_row(queue), [])
        return _columns(key[-1] for key in keys[: _count(most, "most")])

    def spill(self, queue: int, keep: int) -> HeadsArenaOffsets:
        """Removes and returns all but the best `keep` cards of one queue, the best of them first."""
        keys = self._queues.get(_row(queue), [])
        return _columns(self._take_out(queue, _count(keep, "keep"), len(keys)))

    def heads_over(self, most: int) -> bytes:
        """Returns the queues (u32, ascending) with new cards since the last call and more than `most` >= 1 cards."""
        if _count(most, "most") == 0:
            raise ValueError("most is at least 1, not 0")
        over = sorted(queue for queue in self._changed if len(self._queues.get(queue, ())) > most)
        self._changed.clear()
        return struct.pack(f"<{len(over)}I", *over)

    def longer_than(self, start: int, rows: int, most: int) -> tuple[bytes, int]:
        """Returns the queues (u32) with more than `most` cards among `rows` rows from `start` on, and the next start, 0
        at the end."""
        end = min(_row(start) + _count(rows, "rows"), self._rows)
        _count(most, "most")
        longer = [queue for queue in range(start, end) if len(self._queues.get(queue, ())) > most]
        return struct.pack(f"<{len(longer)}I", *longer), 0 if end >= self._rows else end

    def short(self, start: int, rows: int) -> tuple[bytes, int]:
        """Returns in the same way the queues with cards in memory, few enough to be set aside."""
        end = min(_row(start) + _count(rows, "rows"), self._rows)
        short = [queue for queue in range(start, end) if 1 <= len(self._queues.get(queue, ())) <= ASIDE_CARDS_MAX]
        return struct.pack(f"<{len(short)}I", *short), 0 if end >= self._rows else end

    def whole(self, queues: Any) -> FoundCards:
        """How many cards each queue has in memory (u32), and all of them, queue by queue, the best first; they stay."""
        found = [self._queues.get(queue, []) for queue in _rows(queues)]
        counts = struct.pack(f"<{len(found)}I", *map(len, found))
        return (counts, *_columns(key[-1] for keys in found for key in keys))

    def set_aside(self, queues: Any, places: Any) -> None:
        """Drops the cards of each queue, one to eight, from memory: from now on they are at its place (u64, 1 to
        2^55 - 1). A queue that is aside only changes its place. Raises ValueError also for a best class above 15."""
        numbers = _numbers(places, "places", "Q")
        rows = _numbers(queues, "queues", "I")
        if len(rows) != len(numbers):
            raise ValueError(f"{len(rows)} queues and {len(numbers)} places")
        for row, (queue, place) in enumerate(zip(rows, numbers, strict=True)):
            if queue == NONE:
                raise IndexError(f"row {row}: {queue} is no queue")
            if not 0 < place < 1 << ASIDE_PLACE_BITS:
                raise ValueError(f"row {row}: {place} is no place")
            keys = self._queues.get(queue, [])
            klass = -keys[0][0] if keys else NO_CLASS
            if queue not in self._aside and not (0 < len(keys) <= ASIDE_CARDS_MAX and klass <= ASIDE_CLASS_MAX):
                raise ValueError(f"row {row}: {len(keys)} cards of class {klass} cannot be set aside")
        for queue, place in zip(rows, numbers, strict=True):
            if queue in self._aside:
                self._aside[queue] = (place, *self._aside[queue][1:])
                continue
            klass = -self._queues[queue][0][0]
            self._aside[queue] = (place, len(self._take_out(queue, 0, ASIDE_CARDS_MAX)), klass)

    def aside(self, queues: Any) -> bytes:
        """Returns the place of the cards of each queue that is aside (u64), 0 for other queues."""
        places = [self._aside.get(queue, (0,))[0] for queue in _rows(queues)]
        return struct.pack(f"<{len(places)}Q", *places)

    def forget_aside(self, queues: Any) -> None:
        """Queues that were put aside are empty from now on: their cards are put anew, or forgotten."""
        for queue in _rows(queues):
            self._aside.pop(queue, None)

    def statistics(self) -> dict[str, int]:
        """Returns cards in memory; bytes: their estimated size (slots of 16 bytes, and 24 each); queues with a card;
        queues_aside, cards_aside."""
        return {
            "cards": self._cards,
            "bytes": self._bytes,
            "queues": len(self._queues),
            "queues_aside": len(self._aside),
            "cards_aside": sum(cards for _, cards, _ in self._aside.values()),
        }
