"""Cards in columns: the records of many URLs, chosen, joined and read in batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from outrider import kernels
from outrider.clock import Instant
from outrider.kernels.card_layout import FETCHED_FROM, HEAD, OPAQUE, Heads
from outrider.limits import MICROSECONDS
from outrider.storage.record_columns import body_bytes

Int64s = npt.NDArray[np.int64]
NO_BODIES = np.zeros(1, np.int64)


def fetched_cells(ended: npt.ArrayLike) -> npt.NDArray[np.uint32]:
    """The cells `fetched` of heads for these instants; 0 for those before 2020."""
    seconds = np.asarray(ended, np.int64) // MICROSECONDS - FETCHED_FROM
    found: npt.NDArray[np.uint32] = np.minimum(np.maximum(seconds, 0), 0xFFFF_FFFF).astype(np.uint32)
    return found


def fetched_at(cell: int) -> Instant | None:
    """The instant of a cell `fetched`, to the second; None for never."""
    return (cell + FETCHED_FROM) * MICROSECONDS if cell else None


@dataclass(frozen=True, slots=True, eq=False)
class Cards:
    """heads: a structured array (`outrider.kernels.card_layout.HEAD`), one row per card. The body of row i, | url |
    referrer
    | extra |, lies in the arena from offsets[i] to offsets[i + 1]."""

    heads: Heads
    arena: bytes
    offsets: Int64s
    _urls: list[list[str]] = field(default_factory=list)  # computed on first use

    @classmethod
    def none(cls) -> Cards:
        """No cards."""
        return cls(np.zeros(0, HEAD), b"", NO_BODIES)

    @classmethod
    def of_columns(cls, heads: bytes, arena: bytes, offsets: bytes) -> Cards:
        """Cards from the columns that a kernel returns: bytes of heads, the arena, bytes of int64 offsets.
        Read-only."""
        return cls(np.frombuffer(heads, HEAD), arena, np.frombuffer(offsets, np.int64))

    @classmethod
    def concatenate(cls, parts: Iterable[Cards]) -> Cards:
        """Returns all cards, one part after the other; a single part is returned uncopied."""
        some = [part for part in parts if len(part)]
        if not some:
            return cls.none()
        if len(some) == 1:
            return some[0]
        offsets, size = [some[0].offsets], int(some[0].offsets[-1])
        for part in some[1:]:
            offsets.append(part.offsets[1:] + size)
            size += int(part.offsets[-1])
        return cls(
            joined([part.heads for part in some]),
            b"".join([part.arena for part in some]),
            np.concatenate(offsets),
        )

    def __len__(self) -> int:
        return len(self.heads)

    def take(self, rows: npt.ArrayLike) -> Cards:
        """The cards of these rows, in this order; the caller may write to the heads, which are a copy."""
        chosen = np.asarray(rows, np.intp)
        starts, ends = self.offsets[:-1][chosen], self.offsets[1:][chosen]
        offsets = np.zeros(len(chosen) + 1, np.int64)
        (ends - starts).cumsum(out=offsets[1:])
        return Cards(self.heads.take(chosen), kernels.gather_spans(self.arena, starts, ends), offsets)

    def filter(self, mask: npt.NDArray[np.bool_]) -> Cards:
        """The cards where the mask is true; this object itself, not a copy, when it is true for all."""
        return self if mask.all() else self.take(np.flatnonzero(mask))

    def with_heads(self, heads: Heads) -> Cards:
        """The same bodies under other heads."""
        return Cards(heads, self.arena, self.offsets)

    def changed(self) -> Heads:
        """A copy of the heads that the caller may write to."""
        return np.frombuffer(bytearray(self.heads.tobytes()), HEAD)

    def misfit(self, body_bytes_max: int) -> str:
        """Why heads and bodies do not belong together, or a body is longer than it may be; "" when all is well."""
        heads, offsets = self.heads, np.asarray(self.offsets, np.int64)
        if len(offsets) != len(heads) + 1 or offsets[0] < 0 or offsets[-1] > len(self.arena):
            return f"{len(offsets)} offsets for {len(heads)} cards in {len(self.arena)} bytes"
        lengths, told = offsets[1:] - offsets[:-1], body_bytes(heads)
        if lengths.tobytes() != told.tobytes():
            row = int(np.flatnonzero(lengths != told)[0])
            return f"card {row} has a body of {lengths[row]} bytes, not as many as its head says"
        if len(self.arena) > body_bytes_max and lengths.max(initial=0) > body_bytes_max:
            return f"a card with a body of {lengths.max()} bytes; it may have {body_bytes_max}"
        return ""

    def urls(self) -> list[str]:
        """The URL of each card, made once: the list is not the caller's to change."""
        if not self._urls:
            starts = self.offsets[:-1]
            self._urls.append(kernels.texts_of_spans(self.arena, starts, starts + self.heads["url_bytes"]))
        return self._urls[0]

    def url(self, row: int) -> str:
        """The URL of one card."""
        start = int(self.offsets[row])
        return self.arena[start : start + int(self.heads["url_bytes"][row])].decode("ascii")

    def referrer(self, row: int) -> str:
        """The page where the URL was found first; empty without one."""
        start = int(self.offsets[row]) + int(self.heads["url_bytes"][row])
        return self.arena[start : start + int(self.heads["referrer_bytes"][row])].decode("utf-8", "surrogatepass")

    def extra_of(self, row: int) -> bytes:
        """The rest of one URL's record, as `card_records.py` packs it; empty where there is nothing."""
        end = int(self.offsets[row + 1])
        return self.arena[end - int(self.heads["extra_bytes"][row]) : end]


def joined(parts: Sequence[Heads]) -> Heads:
    """Heads one after the other. Joins them as opaque bytes: numpy would compare the fields of the record types each
    time."""
    heads: Heads = np.concatenate([np.ascontiguousarray(part).view(OPAQUE) for part in parts]).view(HEAD)
    return heads
