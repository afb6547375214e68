"""Politeness clocks that hosts share: the groups of each host, their turns, and when they may be visited.

The store contains none of it. A host may go cold although it is in groups, because then it no longer changes a clock.
Membership follows from names, addresses and settings. A group's clock follows from the cells of its hosts: it is the
latest end of their delays or, with its own gap, the latest end of a request plus this gap. A host has one turn of each
of its groups from the moment at which its queues are offered (it is *standing*) until its request is reported. Until
it is drawn, it may lose its turns to hosts of a better class, and to hosts that a call selects by crawl or key.

If many hosts wait for a group, most of them may become cold with their URLs and wait in lines of this group, in the
front tier. As long as a group has such lines, some hosts wait for it in memory. When these are few, hosts return.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from outrider import kernels
from outrider.clock import Instant, instant
from outrider.frontier.policy.grouping import Grouping, GroupKind, IpAddress, Members, NamedGroup, address_of
from outrider.frontier.state.host_addresses import FOREVER
from outrider.frontier.state.hosts import GROUPED, NONE, RULED, Column, Columns, Rows
from outrider.frontier.state.tables import Tables
from outrider.frontier.stores.front_tier import NO_GROUP
from outrider.journey import GroupStatus
from outrider.limits import (
    GROUP_AGED_TURN_SECONDS,
    GROUP_VAIN_WAKES_MAX,
    GROUP_WAITING_LEAST,
    GROUP_WAITING_MOST,
    GROUP_WAITING_PER_TURN,
    GROUPS_PER_HOST_MAX,
    GROUPS_ROWS_AT_ONCE,
)
from outrider.url import domain_spans
from outrider.url.keys import key_of_name

Masks = npt.NDArray[np.bool_]
_OF_HOSTS = -1  # the gap of a group whose delay is that of its hosts
_NO_COLUMN = np.zeros(0, np.int64)
_PATIENCE = instant(GROUP_AGED_TURN_SECONDS)


class _HostColumns(Columns):
    """joined: whether the host of the row is in its groups. groups: up to four, 0 for an empty place. located_until:
    the instant until which its address counts as known, 0 if `located` must find it. returned: 0, or for a host that
    returned from the front tier, 1 + the end of its last visit then. keeps_place: it must wait in memory until its next
    visit: it returned from a line of a group, or is too large for a record."""

    joined: Column
    groups: Column
    located_until: Column
    returned: Column
    keeps_place: Column

    def __init__(self) -> None:
        groups = f"{GROUPS_PER_HOST_MAX}u4"
        super().__init__({"joined": "?", "groups": groups, "located_until": "i8", "returned": "i8", "keeps_place": "?"})

    def grow(self, count: int) -> None:
        self._room(count - self.count)
        self.count = count

    def clear(self, rows: Rows) -> None:
        """Zeroes these rows."""
        for name, dtype in self._dtypes.items():
            getattr(self, name)[rows] = np.zeros((), dtype)


class _Clocks(Columns):
    """capacity: turns. kept: whether it is reserved for one host. members: hosts in memory. hash: of its domain or
    address, 0 for a named group. Row 0 is not a group. A row is reused after its last member has become cold. Clocks,
    gaps and turns are in the kernel."""

    capacity: Column
    kept: Column
    members: Column
    hash: Column

    def __init__(self) -> None:
        super().__init__({"capacity": "u4", "kept": "?", "members": "u4", "hash": "u8"})
        self.count = 1

    def add(self, rows: int, capacity: int) -> Rows:
        new = self._take(rows)
        self.capacity[new] = capacity
        return new

    def drop(self, rows: Rows) -> None:
        """Frees the rows of groups without members."""
        self._give(rows)


@dataclass(frozen=True, slots=True)
class WaitForGroup:
    """The group that a host waits for. clock: the end of its delay. full: whether all its turns are in use. others: how
    many more hosts wait there."""

    name: str
    clock: Instant
    full: bool
    others: int


class GroupTurns:
    """The turns of hosts in groups. Hosts are rows of `Tables.hosts`; a host in a group has the flag GROUPED. used:
    whether there are groups at all; without groups no host waits here. locates: whether errands may resolve
    addresses."""

    def __init__(self, tables: Tables, grouping: Grouping, *, locates: bool) -> None:
        self._tables = tables
        self._grouping = grouping
        self.used = grouping != Grouping()
        self.kernel = self._turns = kernels.Groups()
        self._hosts = _HostColumns()
        self._groups = _Clocks()
        self._index = kernels.Index()  # keyed hash of a domain, or of an address -> its group
        self._clocked = [group for group in grouping.named if group.capacity is not None]
        self._named = Members(self._clocked)
        self._exempt = Members(group for group in grouping.named if group.exempt)
        self._has_exempt = any(group.exempt for group in grouping.named)
        self._vainly: dict[int, int] = {}  # hosts of several groups: vain wakes since they last had all turns
        self._kept: dict[int, Rows] = {}  # hosts with reserved groups, and these groups
        self._floor: Instant = 0  # no group may be visited before
        self._moving: set[int] = set()  # hosts with a new address that are still in their old groups
        self._still_at: dict[int, str] = {}  # while hosts join: addresses of open requests, where their hosts left them
        self.asks = locates and grouping.needs_addresses  # whether errands resolve unknown addresses
        self._told: set[int] = set()  # hosts whose addresses callers gave in this process
        self.seeking: set[int] = set()  # hosts that are offered as soon as their addresses are known
        self._front = tables.cold.front  # its lines of groups name groups by row
        self.active: set[int] = set()
        """Groups with such lines whose turns or waiting hosts changed, until `FrontReturns` needs no host of them. So a
        group from whose lines hosts are to return is always here."""
        self._without_hosts: set[int] = set()  # groups whose last host left while they had such lines
        for group in self._clocked:
            self._define(1, group)
        gaps = [kind.gap for kind in (grouping.domain, grouping.address, *self._clocked) if kind is not None]
        self.gap_max: Instant = instant(max((gap for gap in gaps if gap is not None), default=0.0))

    def __len__(self) -> int:
        """How many groups there are."""
        return len(self._groups) - 1

    @property
    def waiting(self) -> int:
        """How many hosts wait for a group's turn."""
        return len(self._turns)

    # -- who belongs where ---------------------------------------------------------------------------------------------

    def _define(self, rows: int, kind: GroupKind | NamedGroup) -> Rows:
        assert kind.capacity is not None
        new = self._groups.add(rows, kind.capacity)
        for group in new.tolist():
            self._turns.define(group, kind.capacity, _OF_HOSTS if kind.gap is None else instant(kind.gap))
        self._turns.set_clock(new, np.full(len(new), self._floor))
        return new

    def _numbers(self, hashes: npt.NDArray[np.uint64], kind: GroupKind) -> Rows:
        """The groups of domains or addresses by hash; makes new ones."""
        found = np.frombuffer(self._index.find(np.ascontiguousarray(hashes)), np.uint32)
        new = found == NONE
        if not new.any():
            return found
        fresh, inverse = np.unique(hashes[new], return_inverse=True)
        made = self._define(len(fresh), kind)
        self._index.add(fresh, made)
        self._groups.hash[made] = fresh
        found = found.copy()
        found[new] = made[inverse]
        return found

    def meet(self) -> None:
        """Adds hosts that are new since the last call to their groups, with their delays and requests."""
        if not self.used:
            return
        if not self._hosts.count:  # after a kill; a new host has no open request
            self._still_at = self._tables.addresses.still_at()
            self._moving.update(self._still_at)
        while self._hosts.count < self._tables.hosts.count:
            first = self._hosts.count
            last = min(first + GROUPS_ROWS_AT_ONCE, self._tables.hosts.count)
            self._hosts.grow(last)
            self._come(np.arange(first, last, dtype=np.uint32))
        self._still_at = {}

    def _come(self, rows: Rows) -> None:
        """Lets these hosts join their groups. A row without a host joins when one has it."""
        strange = ~self._hosts.joined[rows]
        if np.count_nonzero(strange):
            rows = np.unique(rows[strange])
            rows = rows[self._tables.hosts.there[rows]]
            self._join(rows, self._groups_of(rows))
            self._hosts.joined[rows] = True
            self._turns.follow(np.ascontiguousarray(rows), self._tables.hosts.cells)

    def may_leave(self, rows: Rows, now: Instant) -> Masks:
        """Which of these hosts, whose own delays are over, may go cold: their last requests no longer delay another
        host of their groups, and callers of this process have not reported their addresses."""
        ended = self._tables.hosts.ended[rows]
        found: Masks = (ended == 0) | (ended + self.gap_max <= now)
        for place in np.flatnonzero(found).tolist() if self._told or self._kept else ():
            found[place] = int(rows[place]) not in self._told and int(rows[place]) not in self._kept
        return found

    def leave(self, rows: Rows, lines: Rows, now: Instant) -> None:
        """Removes hosts that become cold from their groups. Groups without hosts in memory are removed too, after their
        delay. lines: the groups in whose lines some of the hosts will wait: these remain."""
        if not self.used:
            return
        rows = rows[self._hosts.joined[rows]]
        groups = self._hosts.groups[rows]
        self._part(rows)
        self._hosts.clear(rows)
        for some in (self._moving, self.seeking):
            some.difference_update(rows.tolist() if some else ())
        own = np.unique(np.concatenate((groups[groups != 0], np.array(sorted(self._without_hosts), np.uint32))))
        spent = (self._groups.members[own] == 0) & (self._clocks(own) <= now) & (self._groups.hash[own] != 0)
        own = own[spent & ~self._groups.kept[own]]
        lined = self._have_lines(own) | np.isin(own, lines)
        self._without_hosts = set(own[lined].tolist())
        own = own[~lined]
        if len(own):
            self._index.remove(np.ascontiguousarray(self._groups.hash[own]))
            self._groups.drop(own)

    def _part(self, rows: Rows) -> None:
        """Removes hosts from their groups."""
        if self._vainly:
            for row in rows.tolist():
                self._vainly.pop(row, None)
        groups = self._hosts.groups[rows]
        self._note_activity(rows)
        np.subtract.at(self._groups.members, groups[groups != 0], 1)
        self._turns.leave(np.ascontiguousarray(rows[(groups != 0).any(axis=1)]))

    def _clocks(self, groups: Rows) -> npt.NDArray[np.int64]:
        """The end of the delay of each of these groups."""
        return np.frombuffer(self._turns.clock(np.ascontiguousarray(groups)), np.int64)

    def rest_all(self, until: Instant) -> None:
        """Delays all groups until an instant, including those that are added later."""
        if until <= self._floor:
            return
        self._floor = until
        groups = np.arange(1, self._groups.count, dtype=np.uint32)
        groups = groups[self._groups.capacity[groups] != 0]
        self._turns.set_clock(groups, np.maximum(self._clocks(groups), until))

    def _groups_of(self, rows: Rows) -> npt.NDArray[np.uint32]:
        """The groups of these hosts, one row of GROUPS_PER_HOST_MAX each."""
        tables, grouping = self._tables, self._grouping
        found = np.zeros((len(rows), GROUPS_PER_HOST_MAX), np.uint32)
        column = 0
        exempt = np.zeros(len(rows), np.bool_)
        singly = self._clocked or self._has_exempt or grouping.address is not None
        names: list[str] = []
        where: list[IpAddress | None] = []
        if singly:
            names = [tables.hosts.name(row) for row in rows.tolist()]
            where = [self._address(row, name) for row, name in zip(rows.tolist(), names, strict=True)]
            if self._has_exempt:
                of_machines: dict[IpAddress | None, bool] = {None: False}
                of_machines |= {address: self._exempt.has_address(address) for address in set(where) if address}
                exempt[:] = [
                    of_machines[address] or bool(self._exempt.by_name(name))
                    for name, address in zip(names, where, strict=True)
                ]
        if grouping.domain is not None:
            hosts = tables.hosts.names(rows)
            arena, lengths = hosts.octets, hosts.lengths
            ends = np.cumsum(lengths, dtype=np.int64)
            starts, ends = domain_spans(arena, ends - lengths, ends)
            hashes = np.frombuffer(kernels.hash_spans(arena, starts, ends, tables.fingerprint_key), np.uint64)
            found[~exempt, column] = self._numbers(hashes[~exempt], grouping.domain)
            column += 1
        if grouping.address is not None:
            known = np.flatnonzero(np.array([address is not None for address in where], np.bool_) & ~exempt)
            # The space keeps the hashes of addresses apart from those of domains.
            texts = [f"address {where[place]}" for place in known.tolist()]
            hashes = np.frombuffer(kernels.fingerprints(texts, tables.fingerprint_key), np.uint64)
            found[known, column] = self._numbers(hashes, grouping.address)
            column += 1
        if self._clocked:
            for place, (name, address) in enumerate(zip(names, where, strict=True)):
                for at, number in enumerate(sorted(self._matching(self._named, name, address)), column):
                    found[place, at] = number + 1
        return found

    @staticmethod
    def _matching(members: Members, name: str, address: IpAddress | None) -> set[int]:
        by_name = members.by_name(name)
        return by_name if address is None else by_name | members.by_address(address)

    def _address(self, host: int, name: str) -> IpAddress | None:
        """The last known address of a host, or the one to which its open requests are sent. A host name that is an
        address is its own address."""
        if name[-1:].isdigit() or name[:1] == "[":
            try:
                return address_of(name.strip("[]"))
            except ValueError:
                pass  # a name that ends in a digit and is no address: it counts as a name
        place = self._tables.addresses.by_host.get(host)
        text = self._still_at.get(host, "" if place is None else place.address)
        return address_of(text) if text else None

    def _join(self, rows: Rows, groups: npt.NDArray[np.uint32]) -> None:
        self._hosts.groups[rows] = groups
        flags = self._tables.hosts.flags
        anywhere = (groups != 0).any(axis=1)
        flags[rows] = np.where(anywhere, flags[rows] | GROUPED, flags[rows] & ~np.uint16(GROUPED))
        for column in groups.T:
            some = column != 0
            if some.any():
                self._turns.join(np.ascontiguousarray(rows[some]), np.ascontiguousarray(column[some]))
        np.add.at(self._groups.members, groups[groups != 0], 1)

    def moved(self, hosts: Iterable[int]) -> None:
        """Notes that the addresses of these hosts changed: they change groups at their next offer."""
        hosts = list(hosts) if self.used else []
        self._moving.update(hosts)
        self._hosts.located_until[[host for host in hosts if host < self._hosts.count]] = 0

    def note_given_addresses(self, hosts: Iterable[int]) -> Rows:
        """Notes hosts whose addresses are reported by callers of this process: no errand resolves them while it runs.
        Returns the new ones among them, which `touch` must handle."""
        new = [host for host in hosts if host not in self._told] if self.asks else []
        self._told.update(new)
        return np.array(new, np.uint32)

    def located(self, rows: Rows, now: Instant) -> Masks:
        """Whether the address of each host is known now, or is known to be missing. True for all hosts if no errands
        resolve addresses."""
        if not self.asks:
            return np.ones(len(rows), np.bool_)
        until = self._hosts.located_until
        old = until[rows] <= now
        for row in rows[old].tolist():
            place = self._tables.addresses.by_host.get(row)
            # An address that a caller reported to an earlier process does not count: no call would ever correct it.
            if place is not None and place.expires and (place.expires != FOREVER or row in self._told):
                until[row] = place.expires
            elif place is None:
                name = self._tables.hosts.name(row)
                if self._address(row, name) is not None or key_of_name(name) is not None:
                    until[row] = FOREVER
        found: Masks = until[rows] > now
        return found

    def located_column(self, rows: Rows, now: Instant) -> npt.NDArray[np.int64]:
        """By row, the instants until which addresses count as known, updated for these hosts. Empty if no errands
        resolve addresses."""
        if not self.asks:
            return _NO_COLUMN
        self.located(rows, now)
        return self._hosts.located_until

    def stays(self, host: int, now: Instant) -> bool:
        """Whether a host with an open request still has the address, and so the groups, with which it began."""
        return host not in self._moving and bool(self.located(np.array([host], np.uint32), now)[0])

    def step_aside(self, rows: Rows) -> None:
        """Removes the turns of these hosts and ends their waiting until they are handled again. They keep their place
        among waiting hosts."""
        self._turns.step_aside(rows)
        self._note_activity(rows)

    def asked_at(self) -> dict[int, Instant]:
        """The hosts that need an address first, with the instant of their next errand, or the deadline of the open
        one."""
        found: dict[int, Instant] = {}
        for host in self.seeking:
            place = self._tables.addresses.by_host.get(host)
            found[host] = 0 if place is None else place.deadline if place.token else place.next_at
        return found

    def _move(self, rows: Rows) -> None:
        """Moves hosts with a new address and without open requests from their old groups to the new ones."""
        in_flight = self._tables.hosts.in_flight
        some = sorted({row for row in rows.tolist() if row in self._moving and not in_flight[row]})
        self._moving.difference_update(some)
        if not some:
            return
        gone = np.array(some, np.uint32)
        groups = self._groups_of(gone)
        other = (groups != self._hosts.groups[gone]).any(axis=1)
        gone, groups = gone[other], groups[other]
        for row in gone.tolist() if self._kept else ():
            self._open(row)
        self._part(gone)
        self._join(gone, groups)
        self._turns.follow(gone, self._tables.hosts.cells)

    # -- turns and clocks ----------------------------------------------------------------------------------------------

    def follow(self, rows: Rows) -> None:
        """Updates turns and clocks with these hosts: with requests that began or ended, delays and addresses."""
        if not self.used:
            return
        self.meet()
        self._come(rows)  # a new or recalled host may have the row of a host that has become cold
        self._turns.follow(rows, self._tables.hosts.cells)
        if self._moving:
            self._move(rows)
        self._note_activity(rows)

    def ask(self, host: int, queues: list[tuple[int, int]], now: Instant) -> tuple[bool, Rows]:
        """Requests a turn of each group of a host, for queues with these (class, crawl). Returns whether the host may
        be offered, and the hosts that lost their turns to it. A refused host waits."""
        queues = sorted(queues, reverse=True)
        rows = np.full(len(queues), host, np.uint32)
        classes = np.array([klass for klass, _ in queues], np.uint8)
        crawls = np.array([crawl for _, crawl in queues], np.uint32)
        went, displaced = self._turns.admit(rows, classes, crawls, now)
        self._note_vain(rows)
        return bool(went[0]), np.frombuffer(displaced, np.uint32)

    def forgo(self, host: int) -> None:
        """Returns the turns of a host that needs no turn now."""
        one = np.array([host], np.uint32)
        self._turns.forget(one)
        self._note_activity(one)
        if self._vainly:
            self._vainly.pop(host, None)
            self._open(host)

    def _note_vain(self, rows: Rows) -> None:
        """Checks the hosts among these that were woken in vain before: whether each is standing, waiting, or
        neither."""
        some = [row for row in rows.tolist() if row in self._vainly] if self._vainly else []
        if not some:
            return
        own = np.array(some, np.uint32)
        places = np.frombuffer(self._turns.waits_at(own), np.uint32).tolist()
        for row, place, stands in zip(some, places, self._turns.stands(own), strict=True):
            if stands or place == NONE:
                self._vainly.pop(row, None)
                if not stands:
                    self._open(row)
            elif self._vainly.get(row, 0) >= GROUP_VAIN_WAKES_MAX:
                self._keep(row)

    def settled(self, rows: Rows, seeking: Rows) -> None:
        """Notes the result of settling hosts by columns."""
        if self._vainly:
            self._note_vain(rows[~np.isin(rows, seeking)])

    def hold(self, rows: Rows) -> None:
        """Notes that these hosts were drawn: they keep their turns until they are handled again."""
        self._turns.hold(rows)

    def claimants(self, crawl: int, now: Instant, most: int) -> Rows:
        """Up to `most` hosts that wait for this crawl at groups in which a standing host could lose its turn."""
        return np.frombuffer(self._turns.claimants(crawl, now, _PATIENCE, most), np.uint32)

    def claim(self, rows: Rows, now: Instant) -> tuple[Rows, Rows]:
        """Moves turns from standing hosts of any class to waiting hosts. Returns the hosts that have their turns now,
        and those that lost theirs. A turn that was granted by age is safe for GROUP_AGED_TURN_SECONDS."""
        rows = rows[np.frombuffer(self._turns.waits_at(rows), np.uint32) != NONE]
        went, displaced = self._turns.claim(rows, now, _PATIENCE)
        claimed, gone = rows[np.frombuffer(went, np.bool_)], np.frombuffer(displaced, np.uint32)
        self._note_activity(np.concatenate((rows, gone)))  # a host of several groups may wait for another one now
        return claimed, gone

    def _keep(self, host: int) -> None:
        """Reserves the groups of a host that was woken often and found them free one after the other, never together.
        All further hosts wait until these groups are free together."""
        groups = self._hosts.groups[host]
        groups = groups[groups != 0]
        if host in self._kept or self._groups.kept[groups].any():
            return  # two hosts that reserve groups of each other would wait for ever
        self._kept[host] = groups
        self._groups.kept[groups] = True
        self._turns.close(groups)

    def _open(self, host: int) -> None:
        groups = self._kept.pop(host, None)
        if groups is not None:
            self._groups.kept[groups] = False
            self._turns.open(groups)

    def _free_for(self, host: int) -> Instant | None:
        """The instant at which all groups reserved for a host are free; None while one of them has no free turn."""
        groups = self._kept[host]
        taken = np.frombuffer(self._turns.in_flight(groups), np.uint32)
        return int(self._clocks(groups).max()) if (taken < self._groups.capacity[groups]).all() else None

    def may_go(self, rows: Rows, now: Instant) -> Masks:
        """Whether each host has the turns for a request, the delays of its groups are over, and its address is
        known."""
        found = np.frombuffer(self._turns.may_go(np.ascontiguousarray(rows), now), np.bool_)
        return found & self.located(rows, now) if self.asks else found

    def wake(self, now: Instant, most: int) -> Rows:
        """Up to `most` waiting hosts that may try again."""
        for host in self._kept:
            free = self._free_for(host)
            if free is not None and free <= now:
                self._open(host)
                one = np.array([host], np.uint32)
                self._turns.favour(one)
                return one
        if not 0 <= self._turns.next() <= now:
            return np.zeros(0, np.uint32)
        woken = np.frombuffer(self._turns.wake(now, most), np.uint32)
        self._note_activity(woken)
        several = (self._hosts.groups[woken] != 0).sum(axis=1) > 1
        for host in woken[several].tolist():
            self._vainly[host] = self._vainly.get(host, 0) + 1
        return woken

    def next(self) -> Instant | None:
        """The first instant at which a waiting host may try again."""
        at = self._turns.next()
        times = [at] if at >= 0 else []
        times += [free for host in self._kept if (free := self._free_for(host)) is not None]
        return min(times, default=None)

    # -- lines of groups on disk ---------------------------------------------------------------------------------------

    def _have_lines(self, groups: Rows) -> Masks:
        """Whether hosts on disk wait for each of these groups."""
        known = self._front.of_groups
        return np.array([group in known for group in groups.tolist()], np.bool_)

    def _note_activity(self, rows: Rows) -> None:
        """Notes the groups of these hosts, whose turns or waiting hosts may have changed."""
        if self._front.of_groups:
            groups = np.unique(self._hosts.groups[rows[rows < self._hosts.count]])
            self.active.update(groups[self._have_lines(groups)].tolist())

    def begun(self, rows: Rows) -> None:
        """As `follow`, for hosts whose requests begin with this call: they use a turn of each of their groups."""
        self.follow(rows)
        if self.used and self._front.of_groups:
            for group in self._hosts.groups[rows].ravel().tolist():
                if group in self._front.of_groups:
                    self._front.of_groups[group].turns += 1

    def must_stay(self, rows: Rows, lines: Rows) -> Masks:
        """Whether each of these hosts must not move to the line of its crawl and class: it is in several groups, hosts
        on disk wait for its group, or it returned from the front tier, or was too large to leave, and was not visited
        since. lines: the groups in whose lines some of these hosts will wait."""
        found = np.zeros(len(rows), np.bool_)
        known = np.flatnonzero(rows < self._hosts.count) if self.used else rows[:0]
        if len(known):
            own = self._hosts.groups[rows[known]]
            groups, places = np.unique(own, return_inverse=True)
            lined = (self._have_lines(groups) | np.isin(groups, lines[lines != NO_GROUP]))[places].reshape(own.shape)
            found[known] = lined.any(axis=1) | self._in_several(rows[known])
            found[known] |= self._unvisited(rows[known])
        return found

    def _in_several(self, rows: Rows) -> Masks:
        found: Masks = np.count_nonzero(self._hosts.groups[rows], axis=1) > 1
        return found

    def wait_since_return(self, rows: Rows) -> Masks:
        """Whether each of these hosts returned from the front tier, was not visited since, and waits for a group."""
        found = self.waits(rows)
        some = rows[found]
        found[found] = self._unvisited(some)
        return found

    def _unvisited(self, rows: Rows) -> Masks:
        """Whether each of these hosts was not visited since `note_returned` named it."""
        found: Masks = self._hosts.returned[rows] == self._tables.hosts.ended[rows] + 1
        return found

    def kept_waiting(self, groups: Rows) -> npt.NDArray[np.int64]:
        """How many hosts of each crawl and class wait in memory for each of these groups while more do on disk."""
        turns = GROUP_WAITING_PER_TURN * self._groups.capacity[groups].astype(np.int64)
        return np.maximum(turns, GROUP_WAITING_LEAST)

    def kept_waiting_for(self, group: int) -> int:
        """As `kept_waiting`, for one group."""
        return int(self.kept_waiting(np.array([group], np.uint32))[0])

    def waiting_for(self, group: int, crawl: int, klass: int, most: int) -> int:
        """How many hosts with at least a class wait in memory for a group and a crawl, counted up to `most`."""
        columns = np.array([group], np.uint32), np.array([crawl], np.uint32), np.array([klass], np.uint8)
        return int(np.frombuffer(self._turns.waiting_for(*columns, most), np.uint32)[0])

    def lines_for(self, rows: Rows, crawls: Rows, classes: npt.NDArray[np.uint8]) -> Rows:
        """The group in whose line on disk each of these hosts may wait, NO_GROUP without one: of the hosts that wait
        for a crowded group, all but the `kept_waiting` of each crawl and class. A host of several groups is never
        among them: in each line it would wait anew. crawls, classes: of their queues."""
        found = np.full(len(rows), NO_GROUP, np.uint32)
        at = np.frombuffer(self._turns.waits_at(np.ascontiguousarray(rows)), np.uint32)
        some = np.flatnonzero(at != NONE)
        stay = self._hosts.keeps_place[rows[some]] & self._unvisited(rows[some])
        some = some[~(stay | self._in_several(rows[some]))]
        waiting = np.frombuffer(self._turns.waiting(at[some]), np.uint32)
        some = some[(waiting > GROUP_WAITING_MOST) | self._have_lines(at[some])]
        if not len(some):
            return found
        groups, crawls, classes = at[some], crawls[some], classes[some]
        kept = self.kept_waiting(groups)
        most = len(rows) + int(kept.max())
        count = np.frombuffer(self._turns.waiting_for(groups, crawls, classes, most), np.uint32)
        # Among hosts with the same group, crawl and class the youngest rows leave.
        order = np.lexsort((-rows[some].astype(np.int64), classes, crawls, groups))
        alike = np.ones(len(some), np.bool_)
        for column in (groups, crawls, classes):
            alike[1:] &= column[order][1:] == column[order][:-1]
        place = np.arange(len(some))
        first = np.maximum.accumulate(np.where(alike, 0, place))
        goes = order[(place - first) < (count - kept)[order]]
        found[some[goes]] = groups[goes]
        return found

    def note_returned(self, rows: Rows, *, from_groups: bool) -> None:
        """Notes hosts that returned from the front tier: until their next visit they wait in memory. from_groups: from
        lines of groups. Hosts of other lines may still move to these."""
        rows = rows[rows < self._hosts.count] if self.used else rows[:0]
        self._hosts.returned[rows] = self._tables.hosts.ended[rows] + 1
        self._hosts.keeps_place[rows] = from_groups
        for row in rows.tolist() if from_groups else ():
            for group in self._hosts.groups[row].tolist():
                if group in self._front.of_groups:
                    lines = self._front.of_groups[group]
                    lines.returned = np.append(lines.returned, np.uint32(row))

    def note_too_large(self, rows: Rows) -> None:
        """Notes hosts whose cards do not fit into a record: until their next visit they keep their places."""
        rows = rows[rows < self._hosts.count] if self.used else rows[:0]
        self._hosts.returned[rows] = self._tables.hosts.ended[rows] + 1
        self._hosts.keeps_place[rows] = True

    def waits_elsewhere(self, group: int, now: Instant) -> int:
        """How many hosts of a group that returned from its lines, and were not visited since, do not wait for it: they
        have its turn, or need an address or a robots.txt first. Hosts that rest, or that operators pause or slow, do
        not count: they may need hours."""
        lines, hosts = self._front.of_groups[group], self._tables.hosts
        rows = np.unique(lines.returned)
        rows = rows[self._hosts.keeps_place[rows] & self._unvisited(rows)]
        rows = rows[(self._hosts.groups[rows] == group).any(axis=1)]  # without hosts that have another address now
        queues = hosts.first_queue[rows]
        rows = rows[self._tables.urls.backlog.waiting(queues) > 0]
        lines.returned = rows
        free = ((hosts.flags[rows] & np.uint16(RULED)) == 0) & (hosts.rest_until[rows] <= now)
        return int(np.count_nonzero(free & (np.frombuffer(self._turns.waits_at(rows), np.uint32) != group)))

    # -- looking -------------------------------------------------------------------------------------------------------

    def waits(self, hosts: Rows) -> Masks:
        """Whether each of these hosts waits for a turn."""
        found = np.zeros(len(hosts), np.bool_)
        known = np.flatnonzero(hosts < self._hosts.count)
        rows = np.ascontiguousarray(hosts[known])
        found[known] = np.frombuffer(self._turns.waits_at(rows), np.uint32) != NONE
        return found

    def holds_back(self, host: int) -> WaitForGroup | None:
        """The group that a host waits for. Of several groups this is the one with the longest delay, because the host
        needs a turn of each."""
        if host >= self._hosts.count:
            return None
        place = int(np.frombuffer(self._turns.waits_at(np.array([host], np.uint32)), np.uint32)[0])
        if place == NONE:
            return None
        told = {group: cells for group, *cells in self._groups_of_host(host)}
        longest = max(told, key=lambda group: told[group][0])
        group = longest if told[longest][0] > told[place][0] else place
        members = np.flatnonzero((self._hosts.groups[: self._hosts.count] == group).any(axis=1)).astype(np.uint32)
        at = np.frombuffer(self._turns.waits_at(members), np.uint32)
        others = int(np.count_nonzero((at == group) & (members != host)))
        clock, taken, capacity = told[group]
        return WaitForGroup(self._name(host, group), clock, taken >= capacity, others)

    def holding(self, host: int, now: Instant) -> list[GroupStatus]:
        """All groups that delay a host now: their delay is not over, or all their turns are in use."""
        if host >= self._hosts.count:
            return []
        return [
            GroupStatus(self._name(host, group), clock if clock > now else None, taken, capacity)
            for group, clock, taken, capacity in self._groups_of_host(host)
            if clock > now or taken >= capacity
        ]

    def _groups_of_host(self, host: int) -> list[tuple[int, Instant, int, int]]:
        """The groups of a host: the end of the delay of each, its turns in use, and its capacity."""
        own = self._hosts.groups[host]
        own = own[own != 0]
        taken = np.frombuffer(self._turns.in_flight(own), np.uint32)
        columns = own, self._clocks(own), taken, self._groups.capacity[own]
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def _name(self, host: int, group: int) -> str:
        if group <= len(self._clocked):
            return self._clocked[group - 1].name
        name = self._tables.hosts.name(host)
        if self._grouping.domain is not None and self._hosts.groups[host][0] == group:
            octets = name.encode()
            starts, ends = domain_spans(octets, np.zeros(1, np.int64), np.array([len(octets)], np.int64))
            return octets[int(starts[0]) : int(ends[0])].decode()
        return str(self._address(host, name))

    def problems(self) -> list[str]:
        """Errors inside, in words: groups and hosts whose turns do not add up."""
        own, hosts = self._hosts, self._tables.hosts
        rows = np.arange(own.count, dtype=np.uint32)
        held = np.frombuffer(self._turns.turns(rows), np.uint32).astype(np.int64)
        turns = np.zeros(self._groups.count, np.int64)
        for column in own.groups[: own.count].T:
            np.add.at(turns, column, held)
        numbers = np.arange(1, self._groups.count, dtype=np.uint32)
        taken = np.frombuffer(self._turns.in_flight(numbers), np.uint32)
        found = [
            f"group {number}: {int(turns[number])} turns are held, {int(taken[number - 1])} are taken"
            for number in (np.flatnonzero(taken != turns[1:]) + 1).tolist()
        ]
        grouped = (hosts.flags[: own.count] & GROUPED) != 0
        busy = held - np.frombuffer(self._turns.stands(rows), np.bool_)
        wrong = rows[grouped & (busy != hosts.in_flight[: own.count])].tolist()
        found += [f"host {hosts.name(row)}: its turns are not those of its requests" for row in wrong[:10]]
        lost = [group for group in self._front.of_groups if not self._groups.capacity[group]]
        return found + [f"group {group}: hosts on disk wait for it, and it is not known" for group in lost]

    def __repr__(self) -> str:
        return f"<GroupTurns {len(self)} groups, {self.waiting} hosts wait>"
