"""Politeness clocks that several hosts share: turns, and who waits for one."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import NamedTuple

from outrider.kernels.columns import NONE, Column, classes_of, instants, number, packed, rows, same_length

GROUPS_PER_HOST = 4
CLASS_MAX = 15


class _Place(NamedTuple):
    """Where somebody stands in a waiting list: the smallest goes first."""

    below_best: int
    since: int
    host: int


@dataclass(slots=True)
class _Group:
    capacity: int
    in_flight: int = 0
    clock: int = 0
    waiting: int = 0
    heap: list[_Place] = field(default_factory=list)  # a place that its host has no longer has lapsed

    def has_free_turn(self) -> bool:
        return self.in_flight < self.capacity


@dataclass(slots=True)
class _Host:
    turns: dict[int, int] = field(default_factory=dict)  # of each of its groups, in the order of joining
    refused_by: int | None = None
    since: int = 0
    place: _Place | None = None


class Groups:
    """Groups (u32) with a number of turns each and a clock, and the hosts (u32) that belong to them, to four at most.

    A host goes when each of its groups has a turn to give and its clock is reached. One that is refused waits at the
    first group, in the order of joining, that refused it; who waits is ordered by class (0 to 15, the best first), then
    by how long. Asked again, a host has the new class; as long as the same group refuses it, also after it was woken,
    it keeps its time. Instants are int64 µs since 1970.

    The native one takes 56 B per host, and 40 B per host that waits; 10^5 hosts may wait at one group.
    """

    def __init__(self) -> None:
        self._groups: dict[int, _Group] = {}
        self._hosts: dict[int, _Host] = {}
        self._refusals = 0

    def define(self, group: int, capacity: int) -> None:
        """The group has so many turns (1 or more) from now on; those taken stay taken. A new group's clock is 0."""
        group, capacity = number(group, "u32", "group"), number(capacity, "u32", "capacity")
        if group == NONE:
            raise ValueError(f"group: {NONE} is no row")
        if capacity == 0:
            raise ValueError(f"group {group} needs a capacity above 0")
        self._groups.setdefault(group, _Group(capacity)).capacity = capacity

    def join(self, hosts: Column, groups: Column) -> None:
        """Each host (u32) belongs to its group (u32) too, behind those it belongs to already.

        ValueError, and nobody joined, when a group is not defined or a host would belong to more than four.
        """
        numbers, of_groups = rows(hosts, "hosts"), self._defined(groups)
        same_length("hosts", len(numbers), "groups", len(of_groups))
        joined: dict[int, dict[int, int]] = {}
        for host, group in zip(numbers, of_groups, strict=True):
            if host not in joined:
                joined[host] = dict(self._hosts[host].turns) if host in self._hosts else {}
            if group not in joined[host] and len(joined[host]) == GROUPS_PER_HOST:
                raise ValueError(f"host {host} belongs to {GROUPS_PER_HOST} groups already, {group} is one more")
            joined[host].setdefault(group, 0)
        for host, turns in joined.items():
            self._hosts.setdefault(host, _Host()).turns = turns

    def leave(self, hosts: Column) -> None:
        """The hosts (u32) belong to no group any more, wait no more and give their turns back; clocks stay."""
        for host in rows(hosts, "hosts"):
            self._forget(host)
            member = self._hosts.pop(host, _Host())
            for group, turns in member.turns.items():
                self._groups[group].in_flight -= turns

    def admit(self, hosts: Column, classes: Column, now: int) -> bytes:
        """1 (u8) for each host (u32) that may go and has taken a turn of each of its groups; 0 for those that wait.

        `classes` (u8) says who goes first among those who wait. A host without groups may go.
        """
        numbers, of_classes = rows(hosts, "hosts"), classes_of(classes)
        now = number(now, "i64", "now")
        same_length("hosts", len(numbers), "classes", len(of_classes))
        return bytes(self._admit(host, klass, now) for host, klass in zip(numbers, of_classes, strict=True))

    def _admit(self, host: int, klass: int, now: int) -> bool:
        for group in self._hosts[host].turns if host in self._hosts else ():
            if not self._groups[group].has_free_turn() or self._groups[group].clock > now:
                self._wait(host, group, klass)
                return False
        self._take(host)
        return True

    def take(self, hosts: Column) -> None:
        """Each host (u32) takes a turn of each of its groups without asking, for leases that are open already."""
        for host in rows(hosts, "hosts"):
            self._take(host)

    def _take(self, host: int) -> None:
        self._forget(host)
        member = self._hosts.get(host, _Host())
        for group in member.turns:
            member.turns[group] += 1
            self._groups[group].in_flight += 1

    def release(self, hosts: Column, until: Column) -> None:
        """Each host (u32) gives a turn of each of its groups back, if it has one; their clocks stand at `until` (i64)
        or later."""
        numbers, ends = rows(hosts, "hosts"), instants(until, "until")
        same_length("hosts", len(numbers), "until", len(ends))
        for host, end in zip(numbers, ends, strict=True):
            member = self._hosts.get(host, _Host())
            for name, turns in member.turns.items():
                group = self._groups[name]
                if turns:
                    member.turns[name] -= 1
                    group.in_flight -= 1
                group.clock = max(group.clock, end)

    def wake(self, now: int, most: int) -> bytes:
        """The hosts (u32) that may ask again, at most `most`; they wait no more until they are refused again.

        By group in the order of (clock, group), as many of each as it has free turns, if its clock is reached. Woken
        hosts hold no turn: a call before they asked wakes the next.
        """
        now, most = number(now, "i64", "now"), number(most, "u64", "most")
        woken: list[int] = []
        for _, name in sorted((clock, name) for clock, name in self._ripe() if clock <= now):
            group = self._groups[name]
            for _ in range(min(group.capacity - group.in_flight, group.waiting, most - len(woken))):
                place = heapq.heappop(group.heap)
                while self._hosts.get(place.host, _Host()).place is not place:
                    place = heapq.heappop(group.heap)
                self._hosts[place.host].place = None
                group.waiting -= 1
                woken.append(place.host)
        return packed(woken, "<u4")

    def next(self) -> int:
        """The earliest instant at which somebody who waits may go, which may have passed; -1 when there is none."""
        return min((clock for clock, _ in self._ripe()), default=-1)

    def forget(self, hosts: Column) -> None:
        """The hosts (u32) wait no more, and the time they have waited is gone."""
        for host in rows(hosts, "hosts"):
            self._forget(host)

    def waits_at(self, hosts: Column) -> bytes:
        """The group (u32) each host (u32) waits at, NONE where it does not wait."""
        members = [self._hosts.get(host) for host in rows(hosts, "hosts")]
        return packed([NONE if member is None or member.place is None else _at(member) for member in members], "<u4")

    def clock(self, groups: Column) -> bytes:
        """Until when (i64) each group (u32) rests. ValueError for one that is not defined, as in what follows."""
        return packed([self._groups[group].clock for group in self._defined(groups)], "<i8")

    def set_clock(self, groups: Column, clocks: Column) -> None:
        """Each group (u32) rests until its instant (i64), earlier or later than before."""
        numbers, ends = self._defined(groups), instants(clocks, "clocks")
        same_length("groups", len(numbers), "clocks", len(ends))
        for group, clock in zip(numbers, ends, strict=True):
            self._groups[group].clock = clock

    def in_flight(self, groups: Column) -> bytes:
        """How many turns (u32) of each group (u32) are taken."""
        return packed([self._groups[group].in_flight for group in self._defined(groups)], "<u4")

    def __len__(self) -> int:
        """How many hosts wait."""
        return sum(group.waiting for group in self._groups.values())

    def _defined(self, groups: Column) -> list[int]:
        numbers = rows(groups, "groups")
        for group in numbers:
            if group not in self._groups:
                raise ValueError(f"group {group} is not defined")
        return numbers

    def _ripe(self) -> list[tuple[int, int]]:
        """(clock, group) of those with a free turn and somebody who waits."""
        return [(group.clock, name) for name, group in self._groups.items() if group.waiting and group.has_free_turn()]

    def _wait(self, host: int, name: int, klass: int) -> None:
        member = self._hosts[host]
        if member.refused_by != name:
            self._forget(host)
            self._refusals += 1
            member.refused_by, member.since = name, self._refusals
        group = self._groups[name]
        group.waiting += member.place is None
        member.place = _Place(CLASS_MAX - klass, member.since, host)
        heapq.heappush(group.heap, member.place)
        if len(group.heap) > 2 * group.waiting + 64:
            group.heap = [place for place in group.heap if self._hosts.get(place.host, _Host()).place is place]
            heapq.heapify(group.heap)

    def _forget(self, host: int) -> None:
        member = self._hosts.get(host, _Host())
        if member.place is not None:
            self._groups[_at(member)].waiting -= 1
        member.refused_by = member.place = None


def _at(member: _Host) -> int:
    assert member.refused_by is not None
    return member.refused_by
