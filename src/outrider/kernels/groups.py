"""Politeness clocks that several hosts share: their turns, the hosts with a turn, and the hosts that wait."""

from __future__ import annotations

from bisect import insort
from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import groupby, islice

from outrider.kernels.columns import (
    NONE,
    Column,
    classes_of,
    instants,
    must_have,
    number,
    packed,
    records,
    rows,
    same_length,
)
from outrider.kernels.host_cells import HOST
from outrider.limits import CLASSES, GROUPS_PER_HOST_MAX, OLDEST_DRAW_EVERY

CLASS_MAX = CLASSES - 1
OLDEST_TURN_EVERY = OLDEST_DRAW_EVERY
BY_AGE = CLASS_MAX + 1
LOOKS_MAX = 10_000
OF_HOSTS = -1

_INSTANT_MAX = (1 << 63) - 1

_Place = tuple[int, int, int, int]
"""The place of a waiting host: (CLASS_MAX - class, round, since, host); the smallest is first."""


@dataclass(slots=True)
class _GroupState:
    number: int
    capacity: int
    gap: int = OF_HOSTS
    closed: bool = False
    in_flight: int = 0
    clock: int = 0
    owed: int = 0  # turns that began since the last turn by age
    waiting: list[_Place] = field(default_factory=list)
    ages: list[tuple[int, int]] = field(default_factory=list)  # (since, host) of the waiting hosts
    lines: dict[int, list[_Place]] = field(default_factory=dict)  # the waiting hosts, by crawl
    standing: list[tuple[int, int, int]] = field(default_factory=list)  # (class or BY_AGE, -since, host)

    def may_wake(self) -> bool:
        if self.closed:
            return False
        if not self.waiting or self.in_flight < self.capacity:
            return bool(self.waiting)
        return bool(self.standing) and self.standing[0][0] < CLASS_MAX - self.waiting[0][0]


@dataclass(slots=True)
class _GroupedHost:
    number: int
    # the number of turns of each group that the host has, in the order of joining
    turns: dict[int, int] = field(default_factory=dict)
    since: int = 0  # the number of its request for a turn, 0 without a request
    refused_by: int | None = None
    place: _Place | None = None  # while the host waits at that group
    round: int = 0
    klass: int = 0
    crawls: tuple[int, ...] = ()
    stands: bool = False
    held: bool = False
    stood_at: int = 0
    aged_at: int | None = None  # the group of its turn by age

    def rank(self) -> tuple[int, int, int]:
        return (self.klass if self.aged_at is None else BY_AGE, -self.since, self.number)


class Groups:
    """Groups (u32) with a number of turns each and a clock, and the hosts (u32) in them, each in at most four groups.

    A host *stands* when each of its groups had a free turn and its clock was reached: it has a turn of each, and begins
    when it is drawn. Until then a host of a better class may take its turns, all that it needs or no turn: from the
    lowest class first, among equals from the latest request. A host that lost its turns waits again, at the front of
    its class.

    A refused host waits at the first group, in the order of joining, that refused it. Waiting hosts are ordered by
    class (0 to 15, the best first); within a class crawls alternate, within a crawl the longest wait is first. Every
    eighth turn of a group is for the oldest request, of any class, and no class can take that turn away: with
    m older requests, a host gets a turn of the group within 8 (m + 1) turns. A repeated request has the new
    class and crawls and the old age, until the host begins or is forgotten. Instants are int64 µs since
    1970.

    The native kernel needs 80 B per host, 56 B per group, and 150 B per waiting host; 10^6 hosts may wait at one group.
    """

    def __init__(self) -> None:
        self._groups: dict[int, _GroupState] = {}
        self._hosts: dict[int, _GroupedHost] = {}
        self._asked = 0
        self._contested: dict[int, OrderedDict[int, None]] = {}
        """Returns per crawl the groups where a host of it waits and another host stands, the oldest contest first."""

    def define(self, group: int, capacity: int, gap: int = OF_HOSTS) -> None:
        """Sets the number of turns of the group (at least 1) and its gap from now on; used turns remain in use. The
        clock of a new group is 0. gap: microseconds between two requests, -1: the group rests as long as its hosts."""
        group, capacity = number(group, "u32", "group"), number(capacity, "u32", "capacity")
        gap = number(gap, "i64", "gap")
        if group == NONE:
            raise ValueError(f"group: {NONE} is no row")
        if capacity == 0:
            raise ValueError(f"group {group} needs a capacity above 0")
        if gap < OF_HOSTS:
            raise ValueError(f"group {group} needs a gap of 0 or more")
        place = self._groups.setdefault(group, _GroupState(group, capacity))
        place.capacity, place.gap = capacity, gap

    def close(self, groups: Column) -> None:
        """Makes the groups (u32) refuse all hosts and wake no host, until they are opened."""
        for group in self._defined(groups):
            self._groups[group].closed = True

    def open(self, groups: Column) -> None:
        """The groups (u32) are not closed any more."""
        for group in self._defined(groups):
            self._groups[group].closed = False

    def join(self, hosts: Column, groups: Column) -> None:
        """Adds each host (u32) to its group (u32), after its earlier groups; the host must request turns again.

        Raises ValueError, and joins no host, when a group is not defined or a host would belong to more than four.
        """
        numbers, of_groups = rows(hosts, "hosts"), self._defined(groups)
        same_length("hosts", len(numbers), "groups", len(of_groups))
        joined: dict[int, dict[int, int]] = {}
        for host, group in zip(numbers, of_groups, strict=True):
            if host not in joined:
                joined[host] = dict(self._host(host).turns)
            if group not in joined[host] and len(joined[host]) == GROUPS_PER_HOST_MAX:
                raise ValueError(f"host {host} belongs to {GROUPS_PER_HOST_MAX} groups already, {group} is one more")
            joined[host].setdefault(group, 0)
        for host, turns in sorted(joined.items()):
            member = self._hosts.setdefault(host, _GroupedHost(host))
            if len(turns) > len(member.turns):
                self._forget(member)
                member.turns = {group: member.turns.get(group, 0) for group in turns}

    def leave(self, hosts: Column) -> None:
        """Removes the hosts (u32) from all groups: they stop waiting and return their turns; clocks remain."""
        for host in rows(hosts, "hosts"):
            self._forget(self._host(host))
            for group, turns in self._hosts.pop(host, _GroupedHost(host)).turns.items():
                self._groups[group].in_flight -= turns

    def admit(self, hosts: Column, classes: Column, crawls: Column, now: int) -> tuple[bytes, bytes]:
        """Returns 1 (u8) for each host (u32) that stands now or has no groups, 0 for those that wait; and the hosts
        (u32) that lost their turns.

        classes (u8): the better ones first; crawls (u32): the requesting crawls. A host named several times in a row
        requests for all of these crawls, with the best of the classes; the first crawl counts where crawls alternate.
        """
        numbers, of_classes, of_crawls = rows(hosts, "hosts"), classes_of(classes), rows(crawls, "crawls")
        now = number(now, "i64", "now")
        same_length("hosts", len(numbers), "classes", len(of_classes))
        same_length("hosts", len(numbers), "crawls", len(of_crawls))
        displaced: list[int] = []
        asking = zip(numbers, of_classes, of_crawls, strict=True)
        for host, asked in groupby(asking, key=lambda row: row[0]):
            _, some_classes, some_crawls = zip(*asked, strict=True)
            member = self._host(host)
            if member.turns:
                self._admit(member, max(some_classes), tuple(dict.fromkeys(some_crawls)), now, displaced)
        return self._went(numbers), packed(displaced, "<u4")

    def _went(self, numbers: list[int]) -> bytes:
        members = [self._host(host) for host in numbers]
        return bytes(member.stands or not member.turns for member in members)

    def _admit(self, member: _GroupedHost, klass: int, crawls: tuple[int, ...], now: int, displaced: list[int]) -> None:
        if not member.since:
            self._asked += 1
            member.since = self._asked
        stood = member.stands
        if stood:
            self._unstand(member)
        found = self._victims(member, klass, stood and klass < member.klass, now, None)
        if isinstance(found, int):
            self._wait(member, found, klass, crawls, front=stood)
            return
        self._displace(found, displaced)
        self._stop_waiting(member)
        member.klass, member.crawls = klass, crawls
        self._stand(member, now)

    def claimants(self, crawl: int, now: int, patience: int, most: int) -> bytes:
        """Returns up to `most` hosts (u32) that wait for the crawl at a group where a claim would displace a standing
        host. Each group offers its first waiting host; the oldest contest is first."""
        crawl, now = number(crawl, "u32", "crawl"), number(now, "i64", "now")
        patience, most = number(patience, "i64", "patience"), number(most, "u64", "most")
        found: list[int] = []
        for name in islice(self._contested.get(crawl, ()), LOOKS_MAX):
            group = self._groups[name]
            yielding = (self._yields(hold, host, now, patience) for hold, _, host in group.standing)
            if len(found) < most and not group.closed and group.clock <= now and any(yielding):
                found.append(group.lines[crawl][0][-1])
        return packed(found, "<u4")

    def claim(self, hosts: Column, now: int, patience: int) -> tuple[bytes, bytes]:
        """As `admit`, for waiting hosts (u32): they displace standing hosts of any class; a turn by age is safe for
        `patience` µs. The displaced host gets the turn back as soon as it is free."""
        numbers, now, patience = rows(hosts, "hosts"), number(now, "i64", "now"), number(patience, "i64", "patience")
        displaced: list[int] = []
        for host in numbers:
            member = self._host(host)
            if member.place is None:
                continue
            found = self._victims(member, member.klass, False, now, patience)
            if isinstance(found, int):
                self._wait(member, found, member.klass, member.crawls, front=False)
                continue
            self._displace(found, displaced)
            self._stop_waiting(member)
            self._stand(member, now)
        return self._went(numbers), packed(displaced, "<u4")

    def hold(self, hosts: Column) -> None:
        """Makes the standing hosts among these (u32) keep their turns from now on: they are about to begin."""
        for host in rows(hosts, "hosts"):
            member = self._host(host)
            if member.stands and not member.held:
                self._unrank(member)
                member.held = True

    def favour(self, hosts: Column) -> None:
        """Treats the turns of the hosts (u32), current or next, as turns by age."""
        for host in rows(hosts, "hosts"):
            member = self._host(host)
            if not member.turns or member.aged_at is not None:
                continue
            ranked = member.stands and not member.held
            if ranked:
                self._unrank(member)
            member.aged_at = next(iter(member.turns))
            if ranked:
                self._rank(member)

    def take(self, hosts: Column) -> None:
        """Begins a request of each host (u32) with its turns. A host that does not stand gets turns without a request:
        this is for a request that is already open."""
        for host in rows(hosts, "hosts"):
            self._begin(self._host(host))

    def _begin(self, member: _GroupedHost) -> None:
        if member.stands and not member.held:
            self._unrank(member)
        self._stop_waiting(member)
        for name in member.turns:
            if not member.stands:
                member.turns[name] += 1
                self._groups[name].in_flight += 1
            self._groups[name].owed += 1
        self._ask_no_more(member)

    def release(self, hosts: Column, until: Column) -> None:
        """Returns one begun turn of each group for each host (u32) that has one; the clocks of the groups become at
        least `until` (i64)."""
        numbers, ends = rows(hosts, "hosts"), instants(until, "until")
        same_length("hosts", len(numbers), "until", len(ends))
        for host, end in zip(numbers, ends, strict=True):
            self._end(self._host(host), end)

    def _end(self, member: _GroupedHost, until: int) -> None:
        for name, turns in member.turns.items():
            group = self._groups[name]
            if turns > member.stands:
                member.turns[name] -= 1
                group.in_flight -= 1
            group.clock = max(group.clock, until)

    def follow(self, hosts: Column, cells: Column) -> None:
        """Updates turns and clocks from the cells of hosts (u32) (`host_cells.HOST`, by row): a turn of each group is
        used for each request that began, as by `take`, and returned for each that ended. The clock of a group becomes
        at least the host's `rest_until`; for a group with a gap, this gap after `ended`.

        Raises IndexError for a row that no record has; then nothing is done.
        """
        named, known = rows(hosts, "hosts"), records(cells, HOST, "cells")
        for host in named:
            must_have(known, host, "cells")
        for host in named:
            member, cell = self._host(host), known[host]
            if not member.turns:
                continue
            change = int(cell["in_flight"]) - (next(iter(member.turns.values())) - member.stands)
            for _ in range(abs(change)):
                self._begin(member) if change > 0 else self._end(member, 0)
            rest, ended = int(cell["rest_until"]), int(cell["ended"])
            for name in member.turns:
                group = self._groups[name]
                until = rest if group.gap == OF_HOSTS else ended + group.gap if ended > 0 else 0
                group.clock = max(group.clock, min(until, _INSTANT_MAX))

    def may_go(self, hosts: Column, now: int) -> bytes:
        """Returns 1 (u8) for each host (u32) without groups, or that stands and whose groups have rested."""
        members, now = [self._host(host) for host in rows(hosts, "hosts")], number(now, "i64", "now")
        rested = [all(self._groups[name].clock <= now for name in member.turns) for member in members]
        return bytes((m.stands or not m.turns) and over for m, over in zip(members, rested, strict=True))

    def stands(self, hosts: Column) -> bytes:
        """Returns 1 (u8) for each host (u32) that stands."""
        return bytes(self._host(host).stands for host in rows(hosts, "hosts"))

    def turns(self, hosts: Column) -> bytes:
        """Returns the number of turns (u32) of each of its groups for each host (u32), including reserved ones."""
        members = [self._host(host) for host in rows(hosts, "hosts")]
        return packed([next(iter(member.turns.values()), 0) for member in members], "<u4")

    def wake(self, now: int, most: int) -> bytes:
        """Returns the hosts (u32) that may request again, at most `most`; they wait no more until they are refused.

        Ordered by (clock, group), for groups whose clock is reached: as many hosts as there are free turns, and the
        hosts whose class displaces a standing host. Woken hosts have no turn yet: a second call before their request
        wakes the next ones.
        """
        now, most = number(now, "i64", "now"), number(most, "u64", "most")
        woken: list[int] = []
        for _, name in sorted((clock, name) for clock, name in self._ripe() if clock <= now):
            group = self._groups[name]
            free = max(0, group.capacity - group.in_flight)
            holds = [hold for hold, *_ in group.standing]
            for turn in range(free + len(holds)):
                if len(woken) == most or not group.waiting:
                    break
                rank, *_, host = group.waiting[0]
                if turn >= free and CLASS_MAX - rank <= holds[turn - free]:
                    break
                if turn == 0 < free and group.owed >= OLDEST_TURN_EVERY:
                    host = group.ages[0][1]
                    if self._hosts[host].aged_at is None:
                        self._hosts[host].aged_at = name
                self._stop_waiting(self._hosts[host])
                woken.append(host)
        return packed(woken, "<u4")

    def next(self) -> int:
        """Returns the earliest instant at which a waiting host may begin, which may be past; -1 without one."""
        return min((clock for clock, _ in self._ripe()), default=-1)

    def forget(self, hosts: Column) -> None:
        """Forgets that the hosts (u32) stand or wait, and how long they have waited."""
        for host in rows(hosts, "hosts"):
            self._forget(self._host(host))

    def step_aside(self, hosts: Column) -> None:
        """Returns the reserved turns of the hosts (u32) and ends their wait, but keeps the time they have waited: a new
        request gets the old place."""
        for host in rows(hosts, "hosts"):
            member = self._host(host)
            if member.stands:
                self._unstand(member)
            self._stop_waiting(member)

    def waits_at(self, hosts: Column) -> bytes:
        """The group (u32) each host (u32) waits at, NONE where it does not wait."""
        members = [self._host(host) for host in rows(hosts, "hosts")]
        return packed([NONE if member.place is None else _at(member) for member in members], "<u4")

    def waiting(self, groups: Column) -> bytes:
        """Returns how many hosts wait at each group (u32), as u32."""
        return packed([len(self._groups[group].waiting) for group in self._defined(groups)], "<u4")

    def waiting_for(self, groups: Column, crawls: Column, classes: Column, most: int) -> bytes:
        """Returns how many hosts wait at each group (u32) for its crawl (u32) with at least its class (u8), as u32. It
        counts at most `most` of them."""
        numbers, of_crawls, of_classes = self._defined(groups), rows(crawls, "crawls"), classes_of(classes)
        most = number(most, "u64", "most")
        same_length("groups", len(numbers), "crawls", len(of_crawls))
        same_length("groups", len(numbers), "classes", len(of_classes))
        found = []
        for group, crawl, klass in zip(numbers, of_crawls, of_classes, strict=True):
            line = self._groups[group].lines.get(crawl, ())
            found.append(min(most, sum(place[0] <= CLASS_MAX - klass for place in line)))
        return packed(found, "<u4")

    def clock(self, groups: Column) -> bytes:
        """Returns the end (i64) of the rest of each group (u32). Raises ValueError for an undefined one, as below."""
        return packed([self._groups[group].clock for group in self._defined(groups)], "<i8")

    def set_clock(self, groups: Column, clocks: Column) -> None:
        """Sets the end of the rest (i64) of each group (u32), earlier or later than before."""
        numbers, ends = self._defined(groups), instants(clocks, "clocks")
        same_length("groups", len(numbers), "clocks", len(ends))
        for group, clock in zip(numbers, ends, strict=True):
            self._groups[group].clock = clock

    def in_flight(self, groups: Column) -> bytes:
        """Returns the number of used turns (u32) of each group (u32), reserved or begun."""
        return packed([self._groups[group].in_flight for group in self._defined(groups)], "<u4")

    def __len__(self) -> int:
        """How many hosts wait."""
        return sum(len(group.waiting) for group in self._groups.values())

    def _host(self, host: int) -> _GroupedHost:
        return self._hosts.get(host) or _GroupedHost(host)

    def _defined(self, groups: Column) -> list[int]:
        numbers = rows(groups, "groups")
        for group in numbers:
            if group not in self._groups:
                raise ValueError(f"group {group} is not defined")
        return numbers

    def _ripe(self) -> list[tuple[int, int]]:
        """Yields (clock, group) of each group where a waiting host may begin."""
        return [(group.clock, name) for name, group in self._groups.items() if group.may_wake()]

    def _victims(
        self, member: _GroupedHost, klass: int, lower: bool, now: int, patience: int | None
    ) -> list[tuple[_GroupedHost, int]] | int:
        """Returns the hosts whose turns it would take, each with the group in question; or the first group that refuses
        it. lower:
        it stood with a better class, and may be displaced by a waiting host. patience: classes do not matter."""
        victims: list[tuple[_GroupedHost, int]] = []
        for name in member.turns:
            group = self._groups[name]
            gives_way = lower and member.aged_at is None and group.waiting
            if group.closed or group.clock > now or (gives_way and CLASS_MAX - group.waiting[0][0] > klass):
                return name
            taken = group.in_flight - sum(name in victim.turns for victim, _ in victims)
            while taken >= group.capacity:
                known = {victim.number for victim, _ in victims}
                others = [(hold, host) for hold, _, host in group.standing if host not in known]
                if patience is None:
                    others = [(hold, host) for hold, host in others[:1] if hold < klass]
                else:
                    others = [(hold, host) for hold, host in others if self._yields(hold, host, now, patience)]
                if not others:
                    return name
                victims.append((self._hosts[others[0][1]], name))
                taken -= 1
        return victims

    def _yields(self, hold: int, host: int, now: int, patience: int) -> bool:
        return hold < BY_AGE or self._hosts[host].stood_at + patience <= now

    def _displace(self, victims: list[tuple[_GroupedHost, int]], displaced: list[int]) -> None:
        for victim, name in victims:
            self._unstand(victim)
            self._wait(victim, name, victim.klass, victim.crawls, front=True)
            displaced.append(victim.number)

    def _stand(self, member: _GroupedHost, now: int) -> None:
        member.stands, member.held, member.stood_at = True, False, now
        for name in member.turns:
            member.turns[name] += 1
            self._groups[name].in_flight += 1
        if member.aged_at is not None:
            self._groups[member.aged_at].owed = 0
        self._rank(member)

    def _unstand(self, member: _GroupedHost) -> None:
        if not member.held:
            self._unrank(member)
        member.stands = member.held = False
        if member.aged_at is not None:  # the turn falls to the oldest request
            self._groups[member.aged_at].owed = OLDEST_TURN_EVERY
        for name in member.turns:
            member.turns[name] -= 1
            self._groups[name].in_flight -= 1

    def _rank(self, member: _GroupedHost) -> None:
        for name in member.turns:
            group = self._groups[name]
            insort(group.standing, member.rank())
            for crawl in sorted(group.lines):
                self._contested.setdefault(crawl, OrderedDict()).setdefault(name)

    def _unrank(self, member: _GroupedHost) -> None:
        for name in member.turns:
            group = self._groups[name]
            group.standing.remove(member.rank())
            for crawl in group.lines if not group.standing else ():
                del self._contested[crawl][name]

    def _wait(self, member: _GroupedHost, name: int, klass: int, crawls: tuple[int, ...], *, front: bool) -> None:
        group = self._groups[name]
        same = (member.refused_by, member.klass, member.crawls[:1]) == (name, klass, crawls[:1])
        self._stop_waiting(member)
        if front or not same:
            alike = [place[1] for place in group.waiting if place[0] == CLASS_MAX - klass]
            own = [place for place in group.lines.get(crawls[0], ()) if place[0] == CLASS_MAX - klass]
            front = front or not own or member.since < own[0][2]
            # After the last host of its crawl, or in the next round for an older request: so crawls alternate.
            member.round = min(alike, default=0) if front else own[-1][1] + 1
        member.klass, member.crawls, member.refused_by = klass, crawls, name
        member.place = (CLASS_MAX - klass, member.round, member.since, member.number)
        insort(group.waiting, member.place)
        insort(group.ages, (member.since, member.number))
        for crawl in crawls:
            insort(group.lines.setdefault(crawl, []), member.place)
            if group.standing:
                self._contested.setdefault(crawl, OrderedDict()).setdefault(name)

    def _stop_waiting(self, member: _GroupedHost) -> None:
        if member.place is None:
            return
        group = self._groups[_at(member)]
        group.waiting.remove(member.place)
        group.ages.remove((member.since, member.number))
        for crawl in member.crawls:
            group.lines[crawl].remove(member.place)
            if not group.lines[crawl]:
                del group.lines[crawl]
                self._contested.get(crawl, OrderedDict()).pop(group.number, None)
        member.place = None

    def _forget(self, member: _GroupedHost) -> None:
        if member.stands:
            self._unstand(member)
        self._stop_waiting(member)
        self._ask_no_more(member)

    def _ask_no_more(self, member: _GroupedHost) -> None:
        member.since, member.refused_by, member.aged_at = 0, None, None
        member.stands = member.held = False


def _at(member: _GroupedHost) -> int:
    assert member.refused_by is not None
    return member.refused_by
