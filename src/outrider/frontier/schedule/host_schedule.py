"""The order in which hosts are visited: hosts in their delay, and queues that are ready. It is rebuilt on opening,
never stored.

A host is in the timetable until its clock allows a request; then its queues with URLs are in the rings. Most hosts have
one queue: `settle_turns` handles them in columns, `settle_shared_turns` if hosts share clocks. The remaining hosts are
handled one by one: those with several queues, with keys that span hosts, with operators' rules, with a robots.txt to
request, or with a queue whose best class is on disk. While the robots rules of an authority are unknown, a gate keeps
all pages of its host out of the rings. Then the errand for its robots.txt is the next request, to that host or to the
target of a redirect. A host in groups is in the rings as long as it has their turns; otherwise it waits for them in
group_turns.py. Until it is drawn it may lose them, to a better host or to one that a call selects by crawl or key. If
addresses are resolved, a host without a known address is in separate rings (`seekers`) until its errand is finished.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from outrider import kernels
from outrider.clock import Instant
from outrider.frontier.policy.budgets import Budgets
from outrider.frontier.policy.grouping import Grouping
from outrider.frontier.schedule.errand_queue import ErrandQueue
from outrider.frontier.schedule.group_turns import GroupTurns
from outrider.frontier.state.authorities import Authority, JudgeAgain, RobotsState
from outrider.frontier.state.crawls import CrawlState
from outrider.frontier.state.errand import CallersErrand, Errand
from outrider.frontier.state.hosts import ASKED, GATED, GROUPED, LIMITED, MANY, NONE, RULED, QueueRules, Rows
from outrider.frontier.state.tables import Tables
from outrider.frontier.stores.tailed_backlog import DUE_BIAS
from outrider.limits import LINE_LOOKED_AT_MAX, WAKES_PER_CALL_MAX
from outrider.url import authority_of

EMPTY = 255
"""The class of an empty queue."""
NOT_ALONE = MANY | RULED | GATED | ASKED
"""Flags of hosts that are handled one by one."""


class HostSchedule:
    """Timetable, rings, and the errands that are lined up at hosts. shared: the clocks of groups."""

    def __init__(self, tables: Tables, seed: int, grouping: Grouping, budgets: Budgets, *, locates: bool) -> None:
        self._tables, self._budgets = tables, budgets
        self.shared = GroupTurns(tables, grouping, locates=locates)
        self.timetable = kernels.Timetable()
        self.ready = kernels.Ready(seed)
        self.seekers = kernels.Ready(seed)
        self.errands_at: dict[int, ErrandQueue] = {}  # by host
        self._asking = kernels.Timetable()  # hosts with errands, while no caller leases errands
        self.gates: dict[int, Authority] = {}  # by host: the authority whose rules are not known
        self.runs_errands = False
        self.judges_errands = False  # whether robots.txt files also apply to errands of callers

    # -- looking at hosts ----------------------------------------------------------------------------------------------

    def touch(self, hosts: Iterable[npt.NDArray[np.uint32]], now: Instant) -> None:
        """Adds these hosts to the timetable or their queues to the rings, or removes them from both, as clocks, turns
        and queues require."""
        parts = list({id(part): part for part in hosts if len(part)}.values())
        if not parts:
            return
        if len(parts) == 2 and parts[0].tobytes() == parts[1].tobytes():
            del parts[1]  # the same hosts twice: their clocks changed, and their leases ended
        rows = parts[0] if len(parts) == 1 else np.concatenate(parts)
        self.shared.follow(rows)
        self._wake_shared(now)  # hosts that wait for a turn precede hosts that need one now
        self._look(rows, now)
        self._wake_shared(now)  # more hosts may wait for the turns that these returned

    def _wake_shared(self, now: Instant) -> None:
        left = WAKES_PER_CALL_MAX if self.shared.used else 0
        while left and len(woken := self.shared.wake(now, left)):
            left -= len(woken)
            self._look(woken, now)

    def _look(self, rows: Rows, now: Instant) -> None:
        backlog = self._tables.urls.backlog.kernel
        led = self._tables.urls.backlog.led_by_tail(self._tables.hosts.first_queue[rows])
        if led is not None:
            rows = self._without(rows[led], rows, now)
        if self._tables.queues.rules and len(some := self._partly_open(rows)):
            rows = self._without(some, rows, now)
        if self.shared.used:
            self._look_shared(rows, now, backlog)
            return
        cells, crawls = self._tables.hosts.cells, self._tables.queues.crawl
        odd = kernels.settle_turns(rows, now, NOT_ALONE, cells, crawls, backlog, self.ready, self.timetable)
        if odd:
            rows = self._without(np.frombuffer(odd, np.uint32), rows, now)
            kernels.settle_turns(rows, now, NOT_ALONE, cells, crawls, backlog, self.ready, self.timetable)

    def _without(self, some: Rows, rows: Rows, now: Instant) -> Rows:
        """Handles some of these hosts one by one. Returns the rest."""
        for row in some.tolist():
            self._touch_one(row, now)
        return rows[~np.isin(rows, some)]

    def _partly_open(self, rows: Rows) -> Rows:
        """Which of these hosts have open requests and a limit, which may allow more; in order, each once."""
        columns = self._tables.hosts
        found = (columns.flags[rows] & np.uint16(LIMITED)) != 0
        return np.unique(rows[found & (columns.in_flight[rows] > 0)])

    def _look_shared(self, rows: Rows, now: Instant, backlog: kernels.Backlog) -> None:
        cells, crawls, shared = self._tables.hosts.cells, self._tables.queues.crawl, self.shared
        located = shared.located_column(rows, now)
        told = (cells, crawls, located, backlog, shared.kernel, self.ready, self.timetable)
        odd, gone, seek = kernels.settle_shared_turns(rows, now, NOT_ALONE, *told)
        if odd:
            rows = self._without(np.frombuffer(odd, np.uint32), rows, now)
            _, gone, seek = kernels.settle_shared_turns(rows, now, NOT_ALONE, *told)
        self._give_way(np.frombuffer(gone, np.uint32))
        if shared.seeking:
            shared.seeking.difference_update(rows.tolist())
            self.seekers.withdraw(self._tables.hosts.first_queue[rows])
        seeking = np.frombuffer(seek, np.uint32)
        if len(seeking):
            queues = self._tables.hosts.first_queue[seeking]
            self._send_seekers(seeking, queues, self._tables.urls.backlog.best(queues), now)
        shared.settled(rows, seeking)

    def _send_seekers(self, rows: Rows, queues: Rows, classes: npt.NDArray[np.uint8], now: Instant) -> None:
        for host, queue, klass in zip(rows.tolist(), queues.tolist(), classes.tolist(), strict=True):
            later = self._seek(host, [(queue, klass)], now)
            one = np.array([host], np.uint32)
            if later is None:
                self.timetable.cancel(one)
            else:
                self.timetable.rest(one, np.array([later], np.int64))

    def _seek(self, host: int, offered: list[tuple[int, int]], now: Instant) -> Instant | None:
        """Adds the host to the seekers: one of the next errands resolves its address. Returns the instant at which that
        is allowed if it is in the future, otherwise None."""
        self.shared.step_aside(np.array([host], np.uint32))
        self.shared.seeking.add(host)
        place = self._tables.addresses.by_host.get(host)
        if place is not None and place.token:
            return None
        if place is not None and place.next_at > now:
            return place.next_at
        queues = np.array([queue for queue, _ in offered], np.uint32)
        classes = np.array([klass for _, klass in offered], np.uint8)
        self.seekers.offer(queues, self._tables.queues.crawl[queues], classes)
        return None

    def seekers_of(self, most: int, crawl: int | None, key: str | None, oldest: Rows) -> list[int]:
        """Up to `most` hosts that need an address, each once, drawn like ready ones. oldest: queues that are drawn
        already, whose hosts are the first."""
        hosts: dict[int, None] = dict.fromkeys(self._tables.queues.host[oldest].tolist())
        self._withdraw_seekers(hosts)
        rows = self._with_key(key, crawl) if key is not None else None
        while len(hosts) < most and len(self.seekers):
            left = most - len(hosts)
            if rows is not None:
                drawn: Rows = rows[np.frombuffer(self.seekers.standing(rows), np.bool_)][:left]
            else:
                drawn = np.frombuffer(self.seekers.draw(left, crawl), np.uint32)
            if not len(drawn):
                break
            hosts |= dict.fromkeys(self._tables.queues.host[drawn].tolist())
            self._withdraw_seekers(hosts)
        return list(hosts)

    def _withdraw_seekers(self, hosts: Iterable[int]) -> None:
        """Removes all queues of these hosts: a host with several gets one errand."""
        some = [queue for host in hosts for queue in self._tables.queues_of(host)]
        self.seekers.withdraw(np.array(some, np.uint32))

    def hold(self, until: Mapping[int, Instant], now: Instant) -> None:
        """Removes these hosts from the rings until one instant for each, or until they are touched."""
        rows = np.fromiter(until, np.uint32)
        queues = np.array([queue for host in until for queue in self._tables.queues_of(host)], np.uint32)
        self.ready.withdraw(queues)
        self.seekers.withdraw(queues)
        if self.shared.used:
            self.shared.seeking.difference_update(until)
            for host in until:
                self.shared.forgo(host)
        self.timetable.rest(rows, np.fromiter(until.values(), np.int64))
        self._wake_shared(now)  # more hosts may wait for the turns that these returned

    def _touch_one(self, host: int, now: Instant) -> None:
        tables = self._tables
        columns, queues = tables.hosts, tables.queues
        rows = list(tables.queues_of(host))
        rest_until = int(columns.rest_until[host])
        in_flight = int(columns.in_flight[host])
        best = tables.urls.backlog.best(np.array(rows, np.uint32)).tolist() if rows else []
        if host in self.gates:
            self._look_at_gate(host, rows, best, now)
        gated = host in self.gates
        offered: list[tuple[int, int]] = []
        withdrawn: list[int] = []
        book: Instant | None = None
        errand_class = -1
        if host in self.errands_at:
            errand_class, book = self._look_at_line(host, now)
        for queue, klass in zip(rows, best, strict=True):
            has_turn = klass != EMPTY and not gated and in_flight < self.capacity(queue)
            free = self.free_at(queue, rest_until) if has_turn else None
            if free is not None and free > now:
                book = free if book is None else min(book, free)
                free = None
            if free is not None or errand_class >= 0:
                offered.append((queue, max(klass if free is not None else 0, errand_class)))
            else:
                withdrawn.append(queue)
        one = np.array([host], np.uint32)
        if in_flight and offered and not self.shared.stays(host, now):
            # it continues when its open requests have ended: they are sent to its old address
            withdrawn, offered = rows, []
        seeks = False
        if self.shared.asks:
            if host in self.shared.seeking:
                self.shared.seeking.discard(host)
                self.seekers.withdraw(np.array(rows, np.uint32))
            seeks = bool(offered) and not self.shared.located(one, now)[0]
        if seeks:
            later = self._seek(host, offered, now)
            book = min((when for when in (book, later) if when is not None), default=None)
            withdrawn, offered = rows, []
        elif columns.flags[host] & GROUPED:
            if offered:
                wanted = [(klass, int(queues.crawl[queue])) for queue, klass in offered]
                admitted, displaced = self.shared.ask(host, wanted, now)
                self._give_way(displaced)
                if not admitted:
                    withdrawn, offered = rows, []
            else:
                self.shared.forgo(host)
        if withdrawn:
            self.ready.withdraw(np.array(withdrawn, np.uint32))
        if offered:
            some = np.array([queue for queue, _ in offered], np.uint32)
            self._offer(some, np.array([klass for _, klass in offered], np.uint8))
        if book is None:
            self.timetable.cancel(one)
        else:
            self.timetable.rest(one, np.array([book], np.int64))

    def _offer(self, rows: Rows, classes: npt.NDArray[np.uint8]) -> None:
        """Adds queues to the rings: of crawls with an exact order at the places of their best cards."""
        crawls, orders = self._tables.queues.crawl[rows], self._tables.crawls.orders
        if orders:
            ordered = np.array([crawl in orders for crawl in crawls.tolist()], np.bool_)  # few rows: one host's queues
            keys = [self._tables.urls.backlog.best_key(queue) for queue in rows[ordered].tolist()]
            dues, numbers = np.array([due - DUE_BIAS for _, due, _ in keys], np.int64), [order for *_, order in keys]
            self.ready.offer_in_order(rows[ordered], crawls[ordered], dues, np.array(numbers, np.uint64))
            rows, crawls, classes = rows[~ordered], crawls[~ordered], classes[~ordered]
        self.ready.offer(rows, crawls, classes)

    def _look_at_line(self, host: int, now: Instant) -> tuple[int, Instant | None]:
        """Returns the best class among the errands of a host that may be leased now (-1 if there is no such errand),
        and the instant at which another may be leased. While no caller leases errands, they have a separate
        timetable."""
        columns, line = self._tables.hosts, self.errands_at[host]
        rest_until = int(columns.rest_until[host])
        klass: int = -1
        at: Instant | None = None
        # The rules of the host's own queues apply to each errand of its line.
        queues = self._living(host) if columns.flags[host] & RULED else []
        open_at = self._first_allowed(queues) if queues else 0
        if open_at is not None and columns.in_flight[host] < self.room(host):
            if open_at > now and len(line) > LINE_LOOKED_AT_MAX:
                at = max(open_at, line.begins())
            else:
                klass, at = line.look(now, lambda errand: self.may_ask_at(errand, host))
            if rest_until > now:
                at = rest_until if klass >= 0 else at
                klass, at = -1, None if at is None else max(rest_until, at)
        if self.runs_errands:
            return klass, at
        one = np.array([host], np.uint32)
        if klass < 0 and at is None:
            self._asking.cancel(one)
        else:
            self._asking.rest(one, np.array([now if klass >= 0 else at], np.int64))
        return -1, None

    def _look_at_gate(self, host: int, queues: list[int], classes: list[int], now: Instant) -> None:
        """Opens the gate of a host without queued URLs and errands. Otherwise the errand gets the best class among
        them, at the host where it is lined up."""
        crawls, states = self._tables.queues.crawl, self._tables.crawls.states
        waiting = [
            klass
            for queue, klass in zip(queues, classes, strict=True)
            if klass != EMPTY and states[int(crawls[queue])] != CrawlState.DELETED
        ]
        authority = self.gates[host]
        waiting += [errand.klass for errand in self._held_by(authority)]
        if not waiting:
            self.open_gate(host)
            there = self.leave_line(authority) if not self.is_sought(authority) else NONE
        else:
            there = authority.wanted if authority.klass != max(waiting) else NONE
            self.set_class(authority, max(waiting))
        if there not in (NONE, host):
            self._touch_one(there, now)

    def _held_by(self, authority: Authority) -> list[CallersErrand]:
        """The errands of callers at the host of an authority that wait for its robots.txt."""
        line = self.errands_at.get(authority.host, ())
        called = [errand for errand in line if isinstance(errand, CallersErrand)] if self.judges_errands else []
        return [errand for errand in called if authority_of(errand.url) == authority.name]

    def closed_until(self, errand: CallersErrand) -> Instant:
        """The instant until which an unreachable robots.txt forbids an errand of a caller; 0 if it is allowed."""
        if not self.judges_errands:
            return 0
        authority = self._tables.robots.by_name.get(authority_of(errand.url))
        return authority.expires if authority is not None and authority.state == RobotsState.REFUSED else 0

    def is_sought(self, authority: Authority) -> bool:
        """Whether parked URLs wait for the robots.txt of an authority."""
        if authority.state != RobotsState.REFUSED and authority.again == JudgeAgain.NONE:
            return False
        parked = self._tables.queues.parked
        return any(parked[queue] for queue in self._tables.queues_of(authority.host))

    def is_awaited(self, errand: Errand) -> bool:
        """Whether a crawl continues until the robots.txt of an authority in line is fetched. The daily request for one
        that never responded keeps no crawl open."""
        if not isinstance(errand, Authority):
            return False  # errands of callers are counted where they are kept
        gated = self.gates.get(errand.host) is errand
        return gated or (errand.state != RobotsState.REFUSED and self.is_sought(errand))

    def _give_way(self, hosts: Rows) -> None:
        """Removes these hosts, which lost their turns, from the rings."""
        if not len(hosts):
            return
        queues = [queue for host in hosts.tolist() for queue in self._tables.queues_of(host)]
        self.ready.withdraw(np.array(queues, np.uint32))

    def claim(self, crawl: int | None, key: str | None, most: int, now: Instant) -> bool:
        """Moves turns to hosts of a crawl, or with a key, that wait for groups. The turns are those of hosts in the
        rings that the call does not select. Returns whether any were moved."""
        if not self.shared.used:
            return False
        if key is not None:
            queues = [queue for queue in self._with_key(key, crawl).tolist() if self._may_stand(queue, now)]
            hosts = np.unique(self._tables.queues.host[np.array(queues, np.intp)])[:most]
        elif crawl is not None:
            hosts = self.shared.claimants(crawl, now, most)
        else:
            return False
        claimed, displaced = self.shared.claim(hosts, now)
        self._give_way(displaced)
        if len(claimed):
            self._look(np.sort(claimed), now)
        return len(claimed) > 0

    def _may_stand(self, queue: int, now: Instant) -> bool:
        if self._tables.urls.backlog.best(np.array([queue], np.uint32))[0] == EMPTY:
            return False
        free = self.free_at(queue, 0)
        return free is not None and free <= now

    def free_at(self, queue: int, rest_until: Instant) -> Instant | None:
        """The first instant at which a queue's own rules and its key's clock allow a request; None while they forbid
        any."""
        queues = self._tables.queues
        said = self._allowed_at(queue)
        if said is None or self._tables.crawls.states[int(queues.crawl[queue])] != CrawlState.RUNNING:
            return None
        at = max(rest_until, said)
        group = self._tables.keys.group_of.get(queue)
        free = group.free_at() if group is not None else at
        return None if free is None else max(at, free)

    def judged(
        self, queues: Rows, now: Instant
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
        """Three columns for these queues: whether `free_at` allows a request now, whether operators forbid requests
        (paused, or blocked until later), and the `capacity` of each."""
        tables = self._tables
        crawls, states = tables.queues.crawl[queues], tables.crawls.states
        held: npt.NDArray[np.bool_] = tables.crawls.are_gone(crawls)
        for crawl in crawls.tolist() if len(crawls) < len(states) else states:
            if states[crawl] != CrawlState.RUNNING:
                held |= crawls == crawl
        free, capacity = ~held, np.ones(len(queues), np.int64)
        for told in (tables.queues.rules, tables.keys.group_of):
            for place in _places_in(queues, told):
                queue = int(queues[place])
                at = self.free_at(queue, 0)
                free[place] &= at is not None and at <= now
                allowed = self._allowed_at(queue)
                held[place] |= allowed is None or allowed > now
                capacity[place] = self.capacity(queue)
        return free, held, capacity

    def _allowed_at(self, queue: int) -> Instant | None:
        """The first instant at which the rules of a queue allow a request; None while it is paused."""
        return _allowed_by(self._tables.queues.rules.get(queue))

    def capacity(self, queue: int) -> int:
        """How many requests of a queue may be open at once: never more than its budgets allow. In a deleted
        crawl the limits of queues count no more."""
        tables = self._tables
        rules = tables.queues.rules.get(queue)
        most = max(1, rules.limit) if rules is not None and not tables.crawls.gone[tables.queues.crawl[queue]] else 1
        return self._budgets.at_once(int(tables.queues.host[queue]), most) if most > 1 else most

    def capacities(self, queues: Rows) -> list[int]:
        """As `capacity`, of each of these queues."""
        if not self._tables.queues.rules:
            return [1] * len(queues)
        return list(map(self.capacity, queues.tolist()))

    def room(self, host: int) -> int:
        """How many requests to a host may be open at once, errands included: the highest limit of its queues. With
        less, an errand would wait until the queue that keeps the host busy is empty."""
        return max(map(self.capacity, self._tables.queues_of(host)), default=1)

    def wake(self, now: Instant) -> None:
        """Handles hosts whose delay is over or that a group woke, a bounded number of them."""
        self._wake_shared(now)
        due = np.frombuffer(self.timetable.due(now, WAKES_PER_CALL_MAX), np.uint32)
        if len(due):
            self.touch((due,), now)

    def next(self, now: Instant) -> Instant | None:
        """The first instant at which any host is ready, `now` if one is ready; None if time alone makes no host
        ready."""
        if len(self.ready) or len(self.seekers):
            return now
        at = self.timetable.next()
        times = [at] if at >= 0 else []
        if not self.runs_errands and (asked := self._asking.next()) >= 0:  # rings and timetable leave them out
            times.append(asked)
        if (turn := self.shared.next()) is not None:
            times.append(turn)
        return max(now, min(times)) if times else None

    # -- errands -------------------------------------------------------------------------------------------------------

    def line_up(self, errand: Errand, host: int) -> None:
        """Lines up an errand at the host to which the request will be sent."""
        errand.wanted = host
        self.errands_at.setdefault(host, ErrandQueue()).add(errand)
        self._tables.hosts.flags[host] |= ASKED

    def set_class(self, errand: Errand, klass: int) -> None:
        """Changes the class of an errand, in line or not."""
        if errand.wanted == NONE:
            errand.klass = klass
        elif klass != errand.klass:
            self.errands_at[errand.wanted].set_class(errand, klass)

    def gate(self, authority: Authority) -> None:
        """Lets no page of an authority's host be leased until its rules are known."""
        self.gates[authority.host] = authority
        self._tables.hosts.flags[authority.host] |= GATED

    def open_gate(self, host: int) -> None:
        """Lets the pages of a host be leased again."""
        if self.gates.pop(host, None) is not None:
            self._tables.hosts.flags[host] &= ~np.uint16(GATED)

    def may_ask_at(self, errand: Errand, host: int) -> Instant | None:
        """The first instant at which operators allow an errand to a host; None while they forbid it.

        One of the queues that wait for the result must be allowed. If a redirect leads to another host, the rules of
        that host's queues must allow it, too. An errand of a caller also waits while its host has a gate, or the
        robots.txt of its URL is unreachable.
        """
        closed: Instant = 0
        if isinstance(errand, CallersErrand):
            if self.judges_errands and host in self.gates:
                return None
            closed = self.closed_until(errand)
        at = self._operators_allow(errand, host)
        return None if at is None else max(at, closed)

    def _operators_allow(self, errand: Errand, host: int) -> Instant | None:
        tables = self._tables
        if not (tables.hosts.flags[errand.host] | tables.hosts.flags[host]) & RULED:
            return 0  # thousands of authorities may be in line at one host, and each check of it reads all of them
        crawls, states = tables.queues.crawl, tables.crawls.states
        queues = list(tables.queues_of(errand.host))
        for queue in queues:
            if states[int(crawls[queue])] == CrawlState.RUNNING and self._allowed_at(queue) is not None:
                break
        else:
            return None  # thousands of a paused crawl may precede one that is allowed
        own = np.array(queues, np.uint32)
        waiting = own[self._waits(errand, own)].tolist()
        running = [queue for queue in waiting if states[int(crawls[queue])] == CrawlState.RUNNING]
        at = self._first_allowed(running)
        if at is None or host == errand.host:
            return at
        there = self._living(host)
        mine = {int(crawls[queue]) for queue in running}
        if there:
            hop = self._first_allowed([queue for queue in there if int(crawls[queue]) in mine] or there)
        else:
            name = tables.hosts.name(host)
            rules = tables.rules_of_new(np.array(sorted(mine), np.uint32), [name] * len(mine))
            hop = _first(map(_allowed_by, rules))
        return None if hop is None else max(at, hop)

    def _waits(self, errand: Errand, queues: Rows) -> npt.NDArray[np.bool_]:
        """Which of these queues wait for an errand: those of its crawl, or those with URLs that its result releases."""
        tables = self._tables
        if isinstance(errand, CallersErrand):
            found: npt.NDArray[np.bool_] = tables.queues.crawl[queues] == errand.crawl
            return found
        waits: npt.NDArray[np.bool_] = tables.queues.parked[queues] > 0
        if self.gates.get(errand.host) is errand:
            waits |= tables.urls.backlog.waiting(queues) > 0
            if isinstance(errand, Authority) and (held := {one.crawl for one in self._held_by(errand)}):
                waits |= np.isin(tables.queues.crawl[queues], list(held))
        return waits

    def _living(self, host: int) -> list[int]:
        """The queues of a host, without those of deleted crawls, whose rules can no longer be changed."""
        crawls, gone = self._tables.queues.crawl, self._tables.crawls.gone
        return [queue for queue in self._tables.queues_of(host) if not gone[crawls[queue]]]

    def _first_allowed(self, queues: Iterable[int]) -> Instant | None:
        return _first(map(self._allowed_at, queues))

    def errand_for(self, host: int, now: Instant) -> Errand | None:
        """The errand in the line of a host that may be leased now: those for robots.txt files first, then the best
        class, then the oldest."""
        line = self.errands_at.get(host)
        return None if line is None else line.first(now, lambda errand: self.may_ask_at(errand, host))

    def hops(self) -> Rows:
        """The hosts to which errands of another host are sent after a redirect."""
        lines = self.errands_at.items()
        found = [host for host, line in lines if any(errand.host != host for errand in line)]
        return np.array(found, np.uint32)

    def leave_line(self, errand: Errand) -> int:
        """Removes an errand from its line. Returns the host where it waited, or NONE."""
        host = errand.wanted
        if host != NONE:
            errand.wanted = NONE
            line = self.errands_at[host]
            line.remove(errand)
            if not line:
                del self.errands_at[host]
                self._tables.hosts.flags[host] &= ~np.uint16(ASKED)
                self._asking.cancel(np.array([host], np.uint32))
        return host

    def asking(self, hosts: Iterable[int]) -> dict[int, Instant]:
        """The hosts among these at which operators allow a waiting errand, each with the first instant at which one may
        be leased."""
        found: dict[int, Instant] = {}
        for host in hosts:
            for errand in self.errands_at.get(host, ()):
                allowed = self.may_ask_at(errand, host)
                if allowed is not None:
                    at = max(errand.next_at, allowed)
                    found[host] = min(at, found.get(host, at))
        return found

    def queues_by_key(self, key: str, crawl: int | None) -> Rows:
        """The ready queues with a key, of one crawl or of all."""
        rows = self._with_key(key, crawl)
        standing: Rows = rows[np.frombuffer(self.ready.standing(rows), np.bool_)]
        return standing

    def _with_key(self, key: str, crawl: int | None) -> Rows:
        return np.unique(np.fromiter(self._tables.keys.queues_with(key, crawl), np.uint32))

    def __repr__(self) -> str:
        return f"<HostSchedule {len(self.ready)} ready, {len(self.timetable)} resting>"


def _allowed_by(rules: QueueRules | None) -> Instant | None:
    if rules is None:
        return 0
    return None if rules.paused else rules.blocked_until


def _first(times: Iterable[Instant | None]) -> Instant | None:
    return min((at for at in times if at is not None), default=None)


def _places_in(rows: Rows, told: Mapping[int, object]) -> list[int]:
    """The places of the queues that a mapping has. The cost is that of the shorter side: `hosts` calls this for each
    host alone, and an operator may have rules for every queue."""
    if not told:
        return []
    if len(rows) < len(told):
        return [at for at, row in enumerate(rows.tolist()) if row in told]
    places: list[int] = np.flatnonzero(np.isin(rows, np.fromiter(told, np.uint32, len(told)))).tolist()
    return places
