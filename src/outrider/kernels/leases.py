"""Open leases by token, each with the card of its URL."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from outrider.kernels.card_layout import HEAD_BYTES
from outrider.kernels.columns import Column, column, instant, number, octets, packed, rows, same_length

LeaseColumns: TypeAlias = tuple[bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes]
"""found u8, queues u32, deadlines i64, holders u32, not_before i64, and the cards: heads, arena, offsets i64.

A row of a token that is not open has zeros and an empty body."""


@dataclass(slots=True)
class _Lease:
    queue: int
    deadline: int
    holder: int
    not_before: int
    head: bytes
    body: bytes

    @property
    def fingerprint(self) -> int:
        return int.from_bytes(self.head[:8], "little")


class _Due(NamedTuple):
    deadline: int
    token: int


class Leases:
    """Open leases: tokens are u64 above 0, queues and holders u32, deadlines int64 µs since 1970.

    The native kernel needs about 110 B per lease in addition to its card, and nothing for ended leases.
    """

    def __init__(self) -> None:
        self._leases: dict[int, _Lease] = {}
        self._heap: list[_Due] = []  # an entry whose deadline is not its lease's has lapsed
        self._of_url: dict[int, set[int]] = {}

    def open(
        self,
        first_token: int,
        queues: Column,
        deadline: int,
        holder: int,
        not_before: Column,
        heads: Column,
        arena: Column,
        offsets: Column,
    ) -> None:
        """Opens one lease per queue (u32), under the tokens from `first_token` on, all with one deadline and holder.

        `not_before` (i64) is stored for each and returned. The cards are columns: n heads of 72 bytes, an arena of
        bodies, n + 1 offsets (i64) into it. Raises ValueError, and opens nothing, when lengths do not fit, a token is
        0, beyond u64 or open already, or a body is outside the arena.
        """
        first = number(first_token, "u64", "first_token")
        numbers = rows(queues, "queues")
        deadline, holder = instant(deadline, "deadline"), number(holder, "u32", "holder")
        waits = column(not_before, "<i8", "not_before").tolist()
        all_heads, bodies = octets(heads, HEAD_BYTES, "heads"), octets(arena, 1, "arena")
        ends = column(offsets, "<i8", "offsets").tolist()
        count = len(numbers)
        same_length("queues", count, "not_before", len(waits))
        same_length("queues", count, "heads", len(all_heads) // HEAD_BYTES)
        if len(ends) != count + 1:
            raise ValueError(f"{count} queues take {count + 1} offsets, not {len(ends)}")
        for row in range(count):
            if not 0 <= ends[row] <= ends[row + 1] <= len(bodies):
                raise ValueError(
                    f"row {row}: a span from {ends[row]} to {ends[row + 1]} lies outside {len(bodies)} bytes"
                )
        if count and not 0 < first <= 2**64 - count:
            raise ValueError(f"{count} tokens from {first} on are not all u64 above 0")
        for token in range(first, first + count):
            if token in self._leases:
                raise ValueError(f"token {token} is open already")
        for row, queue in enumerate(numbers):
            head = all_heads[row * HEAD_BYTES : (row + 1) * HEAD_BYTES]
            lease = _Lease(queue, deadline, holder, waits[row], head, bodies[ends[row] : ends[row + 1]])
            self._leases[first + row] = lease
            self._of_url.setdefault(lease.fingerprint, set()).add(first + row)
            heapq.heappush(self._heap, _Due(deadline, first + row))
        self._drop_lapsed()

    def find(self, tokens: Column) -> bytes:
        """Returns 1 (u8) for each token (u64) that is open, otherwise 0."""
        return bytes(token in self._leases for token in column(tokens, "<u8", "tokens").tolist())

    def get(self, tokens: Column, bodies: bool = True) -> LeaseColumns:
        """The leases of these tokens (u64), in their order; without `bodies` all of these are empty."""
        return _columns([self._leases.get(token) for token in column(tokens, "<u8", "tokens").tolist()], bodies=bodies)

    def end(self, tokens: Column) -> tuple[bytes, bytes]:
        """As `close`, for callers that have the cards: found (u8) and queues (u32)."""
        return self.close(tokens)[:2]

    def close(self, tokens: Column) -> LeaseColumns:
        """The leases of these tokens (u64), which end; of a token named twice, the second is not found."""
        closed: list[_Lease | None] = []
        for token in column(tokens, "<u8", "tokens").tolist():
            lease = self._leases.pop(token, None)
            closed.append(lease)
            if lease is not None:
                tokens_of_url = self._of_url[lease.fingerprint]
                tokens_of_url.remove(token)
                if not tokens_of_url:
                    del self._of_url[lease.fingerprint]
        self._drop_lapsed()
        return _columns(closed)

    def extend(self, tokens: Column, deadline: int) -> bytes:
        """Sets the deadline of the leases of these tokens (u64), earlier or later; returns 1 (u8) for each open one."""
        found = bytearray()
        numbers = column(tokens, "<u8", "tokens").tolist()
        deadline = instant(deadline, "deadline")
        for token in numbers:
            lease = self._leases.get(token)
            found.append(lease is not None)
            if lease is not None and lease.deadline != deadline:
                lease.deadline = deadline
                heapq.heappush(self._heap, _Due(deadline, token))
        self._drop_lapsed()
        return bytes(found)

    def expire(self, now: int, most: int) -> bytes:
        """Returns the tokens (u64) whose deadline is `now` or earlier, at most `most`, ordered by (deadline, token).

        They stay open, and the next call returns them again, until they are closed or extended.
        """
        now, most = number(now, "i64", "now"), number(most, "u64", "most")
        if not 0 <= self.next() <= now:
            return b""
        due = sorted((lease.deadline, token) for token, lease in self._leases.items() if lease.deadline <= now)
        return packed([token for _, token in due[:most]], "<u8")

    def next(self) -> int:
        """The earliest deadline, -1 when nothing is open."""
        while self._heap:
            lease = self._leases.get(self._heap[0].token)
            if lease is not None and lease.deadline == self._heap[0].deadline:
                return lease.deadline
            heapq.heappop(self._heap)
        return -1

    def find_urls(self, fingerprints: Column) -> bytes:
        """Returns for each fingerprint (u64) the lowest token (u64) of that URL's open leases, 0 without a lease."""
        numbers = column(fingerprints, "<u8", "fingerprints").tolist()
        return packed([min(self._of_url.get(fingerprint, {0})) for fingerprint in numbers], "<u8")

    def tokens(self) -> bytes:
        """All open tokens (u64), ascending."""
        return packed(sorted(self._leases), "<u8")

    def of_holder(self, holder: int) -> bytes:
        """The open tokens (u64) of one holder, ascending."""
        holder = number(holder, "u32", "holder")
        return packed(sorted(token for token, lease in self._leases.items() if lease.holder == holder), "<u8")

    def __len__(self) -> int:
        return len(self._leases)

    def _drop_lapsed(self) -> None:
        if len(self._heap) > 2 * len(self._leases) + 64:
            self._heap = [_Due(lease.deadline, token) for token, lease in self._leases.items()]
            heapq.heapify(self._heap)


def _columns(leases: list[_Lease | None], *, bodies: bool = True) -> LeaseColumns:
    said = [lease or _Lease(0, 0, 0, 0, bytes(HEAD_BYTES), b"") for lease in leases]
    offsets = [0]
    for lease in said:
        offsets.append(offsets[-1] + (len(lease.body) if bodies else 0))
    return (
        bytes(lease is not None for lease in leases),
        packed([lease.queue for lease in said], "<u4"),
        packed([lease.deadline for lease in said], "<i8"),
        packed([lease.holder for lease in said], "<u4"),
        packed([lease.not_before for lease in said], "<i8"),
        b"".join(lease.head for lease in said),
        b"".join(lease.body for lease in said) if bodies else b"",
        packed(offsets, "<i8"),
    )
