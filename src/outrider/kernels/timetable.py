"""The next visit of each resting host, exact to the microsecond: never early, never late."""

from __future__ import annotations

import heapq

from outrider.kernels.columns import Column, instants, number, packed, rows, same_length


class Timetable:
    """Bookings of hosts, one per host at most. Hosts are u32 rows, instants int64 µs since 1970, not negative.

    The native kernel has leaves of some hundred hosts each, cut by (instant, row), of which only the first is sorted:
    8 B per row and some 6 B per booked host; nothing in it expires.
    """

    def __init__(self) -> None:
        self._until: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []  # (until, host); an entry that differs from the booking has lapsed

    def rest(self, hosts: Column, until: Column) -> None:
        """Books each host (u32) at its instant (i64), earlier or later than before; of several, the last counts.

        ValueError, and nothing booked, when the columns differ in length, a row is NONE or an instant is negative.
        """
        numbers, ends = rows(hosts, "hosts"), instants(until, "until")
        same_length("hosts", len(numbers), "until", len(ends))
        for host, end in zip(numbers, ends, strict=True):
            if self._until.get(host) != end:
                self._until[host] = end
                heapq.heappush(self._heap, (end, host))
        if len(self._heap) > 2 * len(self._until) + 64:
            self._heap = [(end, host) for host, end in self._until.items()]
            heapq.heapify(self._heap)

    def cancel(self, hosts: Column) -> None:
        """Ends the bookings of the hosts (u32); those without one stay as they are."""
        for host in rows(hosts, "hosts"):
            self._until.pop(host, None)

    def due(self, now: int, most: int) -> bytes:
        """Returns the hosts (u32) whose instant is `now` or earlier, ordered by (instant, row), and ends their
        bookings.

        At most `most`, the first of that order; the rest is due at the next call.
        """
        now, most = number(now, "i64", "now"), number(most, "u64", "most")
        due: list[int] = []
        while len(due) < most and 0 <= self.next() <= now:
            due.append(heapq.heappop(self._heap)[1])
            del self._until[due[-1]]
        return packed(due, "<u4")

    def next(self) -> int:
        """Returns the earliest booked instant, -1 without a booking."""
        while self._heap:
            until, host = self._heap[0]
            if self._until.get(host) == until:
                return until
            heapq.heappop(self._heap)
        return -1

    def until(self, hosts: Column) -> bytes:
        """The instant (i64) each host is booked at, -1 where it is not."""
        return packed([self._until.get(host, -1) for host in rows(hosts, "hosts")], "<i8")

    def __len__(self) -> int:
        return len(self._until)
