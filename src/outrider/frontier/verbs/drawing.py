"""Draws the URLs and errands of one lease call from the rings, in rounds.

A round draws queues. One mask selects the queues that may be visited now: clock, open requests, gate, budget, groups
and operators' rules. The backlog returns a card of each, and robots rules judge the cards authority by authority. A
card that they refuse, or that is a trap, is parked, and the queue returns its next card. A card whose rules are unknown
returns to its queue, and its host is gated.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from outrider.clock import Instant, instant
from outrider.frontier.format.card_columns import Cards
from outrider.frontier.format.card_records import CardRecord
from outrider.frontier.policy.politeness import GapReason
from outrider.frontier.schedule.host_schedule import EMPTY, NOT_ALONE
from outrider.frontier.state.authorities import Authority
from outrider.frontier.state.errand import CallersErrand, Errand
from outrider.frontier.state.hosts import ASKED, GATED, GROUPED, LIMITED, NONE, ROBOTS, Rows
from outrider.frontier.state.robots_answers import RobotsStanding, RobotsVerdict, costs_of, judged
from outrider.frontier.state.spanning_keys import KeyGroup
from outrider.frontier.state.url_table import PARKED, QUEUED, Reason
from outrider.frontier.verbs.deciding import Core
from outrider.frontier.verbs.draft import Draft
from outrider.frontier.verbs.paying import ERROR as PAYMENT
from outrider.frontier.verbs.robots_files import RobotsFiles
from outrider.frontier.verbs.trapping import Suspect, Trapping, TrialState
from outrider.kernels.card_layout import ORDERED, ORDERED_CLASS
from outrider.limits import (
    BUDGET_REST_SECONDS,
    FRONT_RETURNS_PER_CALL,
    LEASE_BYTES_MAX,
    OLDEST_DRAW_EVERY,
    VISIT_MARGIN_SECONDS,
)
from outrider.local_hours import hours_of
from outrider.robots import AgentRules, opens_at
from outrider.storage.record_columns import distinct
from outrider.url import authority_of
from outrider.url.traps import BY_HOSTS, RULES

_NO_ROWS: Rows = np.zeros(0, np.uint32)
_NO_PLACES = np.zeros(0, np.intp)
_Places: TypeAlias = npt.NDArray[np.intp]
_Mask: TypeAlias = npt.NDArray[np.bool_]
_Verdict: TypeAlias = tuple[RobotsVerdict, Authority | None, int]
"""The authority whose rules judged, and the number of the rule of a trap, or the new class of the URL."""
_GO, _HOLD = RobotsVerdict.GO, RobotsVerdict.HOLD
_ALLOWED: _Verdict = (_GO, None, 0)
_LATER: _Verdict = (RobotsVerdict.LATER, None, 0)
_SPENT: _Verdict = (RobotsVerdict.SPENT, None, 0)
_BACK = frozenset(
    {RobotsVerdict.HOLD, RobotsVerdict.READ, RobotsVerdict.LATER}
)  # verdicts after which a card stays in its queue


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """The arguments of a lease call. want: how many leases; pages_left: how many pages at most; before: the turn of
    each URL must be before this instant; queues_max: how many queues may contribute; crawl: a row, None for all crawls;
    errands: whether the caller accepts errands; caps: whether `per_queue` also counts the open leases of earlier calls
    whose request is over."""

    want: int
    pages_left: int
    now: Instant
    deadline: Instant
    before: Instant
    per_queue: int
    queues_max: int
    crawl: int | None
    key: str | None
    errands: bool
    caps: bool = False


class _Pick:
    """Queues that may be visited now, one for each host, in columns. most: how many URLs each may contribute; gaps:
    microseconds between the URLs of one queue, None for single URLs; odd: places of hosts that are checked singly."""

    __slots__ = ("gaps", "got", "hosts", "most", "odd", "queues")

    def __init__(self, queues: Rows, hosts: Rows, odd: _Places) -> None:
        self.queues, self.hosts, self.odd = queues, hosts, odd
        self.most: npt.NDArray[np.int64] | None = None
        self.gaps: npt.NDArray[np.int64] | None = None
        self.got = np.zeros(len(queues), np.int64)


class LeaseDraw:
    """The draw of one call. refusals: how many more verdicts it may use. asked: the errands that are leased; sought:
    the hosts whose address is requested."""

    def __init__(
        self, core: Core, robots: RobotsFiles, traps: Trapping, draft: Draft, wish: LeaseRequest, refusals: int
    ) -> None:
        self._core, self._robots, self._traps = core, robots, traps
        self._draft, self._wish, self._errands_mode = draft, wish, core.errands_mode
        self._tables, self._turns, self._budgets = core.tables, core.turns, core.budgets
        self._returns_left = FRONT_RETURNS_PER_CALL
        self.refusals = refusals
        self.asked: list[Errand] = []
        self.sought: list[int] = []
        self.tried: list[Rows] = []  # hosts that were drawn
        self.count = 0  # pages
        self._gave = 0  # queues that contributed a page
        self._cards: list[Cards] = []
        self._queues: list[Rows] = []
        self._later: list[npt.NDArray[np.int64] | None] = []  # microseconds from now before each may be fetched
        self._lapsed: list[Rows] = []
        self._taken: set[int] = set()  # hosts that contributed a URL or an errand, of those checked singly
        self._refused: set[Errand] = set()  # errands that end with this call
        self._groups: set[KeyGroup] = set()
        self._claimed = False
        self._by_key = self._with_key()
        if self._by_key is not None and self._tables.changed:  # a cold host with a queue of the key has returned
            core.settle(wish.now)
            self._by_key = self._with_key()

    # -- rounds --------------------------------------------------------------------------------------------------------

    @property
    def left(self) -> int:
        """How many leases the call still needs."""
        return self._wish.want - self.count - len(self.asked) - len(self.sought)

    @property
    def uneven(self) -> bool:
        """Whether a drawn host must be checked again at the end of the call."""
        return sum(map(len, self.tried)) > self._gave or bool(self._taken)

    def run(self) -> None:
        """Draws until the call has enough leases, or nothing is ready."""
        wish = self._wish
        while self.refusals > 0:
            queues_left = wish.queues_max - self._gave - len(self.asked)
            left = min(self.left, wish.pages_left - self.count, queues_left)
            drawn = self._drawn(left) if left > 0 else None
            if drawn is None:
                break
            if len(drawn):
                self._visit(drawn)

    def settle(self) -> None:
        """Checks hosts again whose group clocks changed after they were offered, or that got a queued errand. A host
        that contributed a page has its next turn after this call."""
        if self._lapsed:
            rows = np.concatenate(self._lapsed)
            gave = self._tables.queues.host[np.concatenate([_NO_ROWS, *self._queues]).astype(np.intp)]
            self._turns.touch((rows[~np.isin(rows, gave)],), self._wish.now)
            self._lapsed = []

    def columns(self) -> tuple[Cards, Rows, npt.NDArray[np.int64]]:
        """Returns the cards of the pages, the rows of their queues, and the earliest instants to fetch them."""
        if not self.count:
            return Cards.none(), _NO_ROWS, np.zeros(0, np.int64)
        cards = Cards.concatenate(self._cards)
        queues = self._queues[0] if len(self._queues) == 1 else np.concatenate(self._queues)
        not_before = np.full(self.count, self._wish.now, np.int64)
        if any(later is not None for later in self._later):
            at = 0
            for rows, later in zip(self._queues, self._later, strict=True):
                if later is not None:
                    not_before[at : at + len(rows)] += later
                at += len(rows)
        return cards, queues, not_before

    def _with_key(self) -> Rows | None:
        key = self._wish.key
        if key is None:
            return None
        return self._turns.queues_by_key(key, self._wish.crawl)

    def _drawn(self, left: int) -> Rows | None:
        """Removes up to `left` ready queues from the rings and returns them. It returns no queue after hosts were
        offered anew, and None if nothing is ready."""
        turns, wish, came = self._turns, self._wish, False
        if self._by_key is not None:
            drawn, self._by_key = self._by_key[:left], self._by_key[left:]
            turns.ready.withdraw(drawn)
        else:
            came = self.bring(left)
            oldest = self._core.front.draw_oldest(left, wish.crawl, turns.ready)
            drawn = np.frombuffer(turns.ready.draw(left - len(oldest), wish.crawl), np.uint32)
            drawn = drawn if not len(oldest) else np.concatenate((oldest, drawn))
            came = came or (not len(drawn) and self.bring(left, nothing_drawn=True))
        if len(drawn):
            self._claimed = False
            return drawn
        if self._lapsed:
            self.settle()
        elif not self._claimed and turns.claim(wish.crawl, wish.key, left, wish.now):
            self._claimed = True  # the next round draws the claimed hosts, or ends the draw
        elif not came:  # the hosts that came wait for groups: others may not
            return None
        self._by_key = self._with_key()
        return _NO_ROWS

    def bring(self, want: int, *, nothing_drawn: bool = False) -> bool:
        """Brings cold hosts with URLs back to the rings before `want` of them are drawn, a few times in a call. Returns
        whether any returned."""
        if self._returns_left <= 0:
            return False
        wish = self._wish
        came = self._core.cooling.bring(want, wish.crawl, wish.now, nothing_drawn=nothing_drawn)
        self._returns_left -= came
        return came

    def _visit(self, drawn: Rows) -> None:
        """Draws URLs and errands from queues."""
        hosts = self._tables.queues.host[drawn.astype(np.intp)]
        self.tried.append(hosts)
        shared = self._turns.shared
        good: npt.NDArray[np.bool_] = self._tables.hosts.rest_until[hosts.astype(np.intp)] <= self._wish.now
        if shared.used:
            shared.hold(hosts)
            may_go = shared.may_go(hosts, self._wish.now)
            if np.count_nonzero(may_go) < len(hosts):  # a clock of their groups changed, or their addresses expired
                self._lapsed.append(hosts[~may_go])
                good &= may_go
        if self._robots.settings.hours:
            self._close_by_hours(hosts, good)
        pick = self._open(drawn, hosts, good)
        if len(pick.queues):
            self._take(pick)
            self._gave += int(np.count_nonzero(pick.got))
            self._note_turns(pick)

    # -- which hosts may be visited ------------------------------------------------------------------------------------

    def _open(self, drawn: Rows, hosts: Rows, good: npt.NDArray[np.bool_]) -> _Pick:
        """Returns the queues that may be visited now. good: whether the clocks of their hosts allow it. A host with
        several queues, operators' rules, a gate or an errand is checked singly: another queue of it may be first."""
        columns, places = self._tables.hosts, hosts.astype(np.intp)
        flags, busy = columns.flags[places], columns.in_flight[places]
        odd = _NO_PLACES
        if np.count_nonzero(flags):
            odd = np.flatnonzero((flags & np.uint16(NOT_ALONE | LIMITED)) != 0)
        if np.count_nonzero(busy):
            free = busy == 0
            free[odd] = True
            good &= free
        if len(odd):
            drawn = drawn.copy()
            for place in odd.tolist():
                queue = self._choose(int(hosts[place])) if good[place] else None
                good[place] = queue is not None
                drawn[place] = queue if queue is not None else 0
        if np.count_nonzero(good) < len(drawn):
            kept = np.flatnonzero(good)
            odd = np.searchsorted(kept, odd[good[odd]]) if len(odd) else odd
            drawn, hosts, flags, busy = drawn[kept], hosts[kept], flags[kept], busy[kept]
        pick = _Pick(drawn, hosts, odd)
        if len(drawn) and (self._wish.per_queue > 1 or self._wish.caps or len(odd) or self._budgets.parks):
            pick = self._measured(pick, flags, busy)
        return pick

    def _choose(self, host: int) -> int | None:
        """Returns the queue of a host that is visited next, None for none; or leases a queued errand instead."""
        flags = self._tables.hosts.flags[host]
        if host in self._taken:
            return None
        queue = None if flags & GATED else self._queue_of(host)
        if flags & ASKED and self._wish.errands and self._ask(host, queue):
            return None
        if queue is not None:
            self._taken.add(host)
            group = self._tables.keys.group_of.get(queue)
            if group is not None:
                self._groups.add(group)
        return queue

    def _ask(self, host: int, queue: int | None = None) -> bool:
        """Leases the errand that is queued at a host, if it may be leased now. An errand for a robots.txt is before all
        pages. Other errands are before pages of their class, but sitemaps and pages alternate. After pages of a better
        class an errand has every eighth turn. If the host allows several requests at once, the errand uses the next
        free one, and their beginnings keep the gap. queue: the queue whose page is next."""
        if self.left <= 0 or host in self._taken:
            return False
        room, now = self._turns.room(host), self._wish.now
        errand = self._errand_for(host) if self._tables.hosts.in_flight[host] < room else None
        if errand is None:
            return False
        if not errand.goes_first:
            if queue is not None and not self._is_turn_of(errand, host, self._class_of(queue)):
                return False
            self._tables.hosts.turns[host] += 1
        if room > 1:
            gap = self._core.rests.gap(host, self._core.rests.floor_of_host(host))
            self._draft.clock(host).rest_at_least(now + gap)
        self.asked.append(errand)
        self._taken.add(host)
        return True

    def _errand_for(self, host: int) -> Errand | None:
        """Returns the errand that is leased at a host now. If the rules for a caller's errand are unknown or too old,
        the errand for that robots.txt is first. An errand that the rules refuse ends."""
        turns, now = self._turns, self._wish.now
        errand = turns.errand_for(host, now)
        if not isinstance(errand, CallersErrand) or not turns.judges_errands:
            return errand
        if errand in self._refused:
            return None
        authority = self._tables.robots.authority(authority_of(errand.url))
        standings = [self._robots.standing(now)(authority)]
        (judgement,) = judged(standings, [errand.url])
        self.refusals -= sum(costs_of(standings))
        if judgement is _GO and self._robots.settings.visit_time == "obey" and self._rests_by_hours(host, standings[0]):
            return None
        if judgement is _GO or judgement is RobotsVerdict.DEAD:
            return errand
        if judgement is not RobotsVerdict.REFUSE:
            self._core.gates.shut(authority, unread=judgement is RobotsVerdict.READ)
            if authority.wanted not in (host, NONE):
                self._lapsed.append(np.array([authority.wanted], np.uint32))
            return turns.errand_for(host, now)
        self._refused.add(errand)
        self._draft.add(*errand.cells(errand.name, ended=True))
        self._draft.tally("errands.robots", 1)
        return None

    def _queue_of(self, host: int) -> int | None:
        """Returns the next queue of a host: the best class first, among equals the queue that was served longest
        ago. Among queues of one crawl with an exact order it is the one with the best card."""
        tables, queues, wish = self._tables, self._tables.queues, self._wish
        fair = self._is_fair_turn(host)
        candidates: list[tuple[tuple[int, int, int], int]] = []
        rows = list(tables.queues_of(host))
        busy = int(tables.hosts.in_flight[host])
        for queue, klass in zip(rows, tables.urls.backlog.best(np.array(rows, np.uint32)).tolist(), strict=True):
            if busy and busy >= self._turns.capacity(queue):
                continue
            if klass == EMPTY or (wish.crawl is not None and queues.crawl[queue] != wish.crawl):
                continue
            if wish.key is not None and tables.key_of(queue) != wish.key:
                continue
            if tables.keys.group_of.get(queue) in self._groups:
                continue
            at = self._turns.free_at(queue, 0)
            if at is None or at > wish.now:
                continue
            candidates.append(((0 if fair else -klass, int(queues.served[queue]), queue), queue))
        crawls = {int(queues.crawl[queue]) for _, queue in candidates}
        if len(candidates) > 1 and len(crawls) == 1 and crawls <= tables.crawls.orders.keys():
            candidates = [(tables.urls.backlog.best_key(queue), queue) for _, queue in candidates]
        return min(candidates)[1] if candidates else None

    def _class_of(self, queue: int) -> int:
        return int(self._tables.urls.backlog.best(np.array([queue], np.uint32))[0])

    def _is_turn_of(self, errand: Errand, host: int, klass: int) -> bool:
        """Whether an errand is before the page of a class. An index may name 50,000 sitemaps: all in a row, they would
        delay the first page for hours. A host with other open requests serves pages at the same time anyway."""
        if errand.klass < klass:
            return self._is_fair_turn(host)
        alternates = errand.alternates and not self._tables.hosts.in_flight[host]
        return not alternates or int(self._tables.hosts.turns[host]) % 2 == 0

    def _is_fair_turn(self, host: int) -> bool:
        """Whether classes do not count this time, so that nothing waits for ever after a better class."""
        return int(self._tables.hosts.turns[host]) % OLDEST_DRAW_EVERY == OLDEST_DRAW_EVERY - 1

    def _measured(self, pick: _Pick, flags: npt.NDArray[np.uint16], busy: npt.NDArray[np.uint16]) -> _Pick:
        """Sets how many URLs each queue may contribute, within the deadline and the budgets of its host, and the gaps
        between them."""
        wish = self._wish
        gaps = self._core.rests.gaps(self._draft, pick.hosts, pick.queues)
        most = np.where((flags & np.uint16(GROUPED)) != 0, 1, wish.per_queue)  # a train would break the group's gap
        if np.count_nonzero(gaps):
            # A URL whose turn is after the deadline would be lost, and gone in the end.
            in_time = 1 + (wish.before - wish.now - 1) // np.maximum(gaps, 1)
            most = np.where(gaps > 0, np.minimum(most, in_time), most)
        if wish.caps and len(self._tables.hosts.rested):
            most = np.minimum(most, wish.per_queue - self._tables.hosts.rested.of_queues(pick.queues))
        if self._tables.queues.rules:
            # A host that allows several requests at once gets no train, which would be one request with all turns.
            for place in pick.odd.tolist():
                if self._turns.capacity(int(pick.queues[place])) > 1:
                    most[place] = min(most[place], 1)
        if self._budgets.parks:
            given = self._tables.queues.host[np.concatenate([_NO_ROWS, *self._queues]).astype(np.intp)]
            rested = self._tables.hosts.rested.at_each(pick.hosts)  # their outcomes may be answers, too
            most = self._budgets.lets(pick.hosts, busy if rested is None else busy + rested, most, given)
            for host in pick.hosts[most <= 0].tolist():  # open leases of other hosts may use up a budget
                self._draft.clock(host).rest_at_least(wish.now + instant(BUDGET_REST_SECONDS))
        pick.most, pick.gaps = most, gaps
        return pick

    # -- what they give ------------------------------------------------------------------------------------------------

    def _take(self, pick: _Pick) -> None:
        """Draws cards from queues, round by round, until each has contributed its share or the call has enough. In a
        round all contribute equally: one card each, or more if the call needs more than one of each."""
        going = np.arange(len(pick.queues)) if pick.most is None else np.flatnonzero(pick.most > 0)
        first = len(self._cards)
        while len(going) and self.refusals > 0:
            rows = self._round(pick, going)
            if not len(rows):
                break
            queues = pick.queues[rows]
            found, cards = self._tables.urls.backlog.take(queues)
            if len(cards) < len(rows):
                rows, queues = rows[found], queues[found]
            if self._tables.crawls.callers:
                rows, queues, cards = self._fitting(rows, queues, cards)
            if not len(rows):
                break
            gave, away = self._sort_out(pick, rows, queues, cards)
            if away is None and (pick.most is None or self.left <= 0):
                break
            stay = np.zeros(len(rows), np.bool_) if away is None else away
            if pick.most is not None:
                stay |= gave & (pick.got[rows] < pick.most[rows])
            if away is not None and np.count_nonzero(held := ~(gave | away)):
                stay &= ~np.isin(rows, rows[held])  # these hosts are gated now, and may have contributed their errands
            going = rows[stay] if pick.most is None else distinct(rows[stay])
        if len(self._cards) - first > 1 and pick.most is not None and pick.most.max() > 1:
            self._in_trains(first, pick)

    def _fitting(self, rows: _Places, queues: Rows, cards: Cards) -> tuple[_Places, Rows, Cards]:
        """Returns as many cards as the answer of the call may have in bytes, one at least. It puts the others back, and
        then the call wants no more. Only crawls by unique keys have metadata so long that it may have fewer."""
        given = sum(int(some.offsets[-1] - some.offsets[0]) for some in self._cards)
        ends = given + cards.offsets[1:] - cards.offsets[0]
        fit = max(int(ends.searchsorted(LEASE_BYTES_MAX, "right")), 0 if self.count else 1)
        if fit < len(rows):
            self._wish = replace(self._wish, want=self._wish.want - self.left + fit)
            self._tables.urls.backlog.put(queues[fit:], cards.take(np.arange(fit, len(rows))))
            rows, queues, cards = rows[:fit], queues[:fit], cards.take(np.arange(fit))
        return rows, queues, cards

    def _round(self, pick: _Pick, going: _Places) -> _Places:
        """Returns the places of queues that contribute a card in this round, each as often as it contributes one."""
        room = max(0, min(self.left, self._wish.pages_left - self.count))
        going = going[:room]
        if pick.most is None or not len(going) or room < 2 * len(going):
            return going
        times = np.minimum(pick.most[going] - pick.got[going], room // len(going))
        return np.repeat(going, np.maximum(times, 1))

    def _sort_out(self, pick: _Pick, going: _Places, queues: Rows, cards: Cards) -> tuple[_Mask, _Mask | None]:
        """Selects the cards that may be fetched, refuses or parks others, and returns the rest to the queues. Returns
        the mask of selected cards, and the mask of the other cards that left their queues (None for none)."""
        hosts = pick.hosts[going]
        verdicts = self._verdicts(hosts, queues, cards)
        if verdicts is None:
            self._add(pick, going, queues, cards)
            return np.ones(len(going), np.bool_), None
        go = np.array([judgement is RobotsVerdict.GO for judgement, *_ in verdicts], np.bool_)
        back = np.array([judgement in _BACK for judgement, *_ in verdicts], np.bool_)
        if np.count_nonzero(go):
            self._add(pick, going[go], queues[go], cards.filter(go))
        if np.count_nonzero(back):
            self._tables.urls.backlog.put(queues[back], cards.filter(back))
        for place in np.flatnonzero(back).tolist():
            judgement, authority, _ = verdicts[place]
            if authority is not None:
                klass = int(cards.heads["klass"][place])
                self._turns.set_class(authority, max(authority.klass, klass if klass < ORDERED else ORDERED_CLASS))
                idle = not pick.got[going[place]]
                self._gate(int(hosts[place]), authority, idle=idle, unread=judgement is RobotsVerdict.READ)
        away: _Mask = ~(go | back)
        for place in np.flatnonzero(away).tolist():
            one = cards.take([place])
            self._draft.drawn.append((queues[place : place + 1], one))
            self._put_away(CardRecord.of(one, 0), *verdicts[place])
        return go, away

    def _verdicts(self, hosts: Rows, queues: Rows, cards: Cards) -> list[_Verdict] | None:
        """Returns a verdict for each card and, if it is not GO, its authority; None if all may be fetched."""
        traps, places = self._traps, hosts.astype(np.intp)
        spent = self._budgets.over(places)
        ruled = self._errands_mode or np.count_nonzero(self._tables.hosts.flags[places] & np.uint16(ROBOTS))
        paid = bool(self._tables.urls.payments.begun)
        if spent is None and not ruled and not paid and traps.settings.traps is None:
            return None
        heads, urls = cards.heads, cards.urls()
        suspects = traps.suspects(cards)
        judgements, costs = self._by_robots(places, cards, spent) if ruled else ([], [])
        if spent is None and not suspects and not paid and judgements.count(_GO) == (len(urls) if ruled else 0):
            self.refusals -= sum(costs)
            return None
        out, plain = [_ALLOWED] * len(cards), True
        slots, classes = heads["slot"].tolist(), heads["klass"].tolist()
        by_robots = zip(judgements, costs, strict=True)
        for place, url in enumerate(urls):
            verdict = _ALLOWED
            if self.refusals <= 0:
                verdict = _LATER
            elif spent is not None and spent[place]:
                verdict = _SPENT
            elif ruled:
                judgement, cost = next(by_robots)
                self.refusals -= cost
                if judgement is _HOLD and place in suspects:
                    verdict = self._by_hosts(int(hosts[place]), slots[place], url)
                if judgement is RobotsVerdict.LATER:
                    verdict = _LATER
                elif judgement is not _GO and verdict is _ALLOWED:
                    verdict = judgement, self._tables.robots.authority(authority_of(url)), 0
            if verdict is _ALLOWED and paid:
                verdict = self._by_payment(int(queues[place]), classes[place], url)
            if verdict is _ALLOWED and place in suspects:
                verdict = self._by_traps(int(queues[place]), slots[place], classes[place], url, suspects[place])
            if verdict is not _ALLOWED:
                out[place], plain = verdict, False
                self.refusals -= 1
        return None if plain else out

    def _by_payment(self, queue: int, before: int, url: str) -> _Verdict:
        """Judges a page by the last answers under the first part of its path."""
        if self._traps.payments.is_closed(url):
            return RobotsVerdict.PAYMENT, None, 0
        # As with a trap, it returns only if its queue has other pages of a better class.
        falls = before and 0 < self._class_of(queue) < EMPTY and self._traps.payments.is_doubtful(url)
        return (RobotsVerdict.LOWER, None, 0) if falls else _ALLOWED

    def _by_robots(self, hosts: _Places, cards: Cards, spent: _Mask | None) -> tuple[list[RobotsVerdict], list[int]]:
        """Returns the verdicts of robots rules on cards whose hosts are not spent, and their costs in addition to a
        refusal. If all together cost more verdicts than are left, it judges only the first cards."""
        if spent is not None:
            hosts, cards = hosts[~spent], cards.filter(~spent)
        standings = self._robots.standings(hosts, cards, self._wish.now)
        costs = costs_of(standings)
        if sum(costs) >= self.refusals:
            judged_rows = bisect_left(list(accumulate(costs)), self.refusals) + 1
            standings, costs = standings[:judged_rows], costs[:judged_rows]
        verdicts = judged(standings, cards.urls()[: len(standings)], self._robots.settings.use)
        if self._robots.settings.visit_time == "obey":
            for place, (host, standing) in enumerate(zip(hosts.tolist(), standings, strict=False)):
                if verdicts[place] is _GO and self._rests_by_hours(host, standing):
                    verdicts[place] = RobotsVerdict.LATER
        return verdicts, costs

    def _close_by_hours(self, hosts: Rows, good: _Mask) -> None:
        """Lets hosts rest that are not to be visited now, by the hours of the settings."""
        for place in np.flatnonzero(good).tolist():
            host = int(hosts[place])
            told = hours_of(self._tables.hosts.name(host), self._robots.settings.hours)
            at = None if told is None else told.opens_at(self._wish.now, until=self._open_until())
            if told is None or at is None:
                continue
            clock = self._draft.clock(host)
            if told.delay_outside is not None:
                at = min(at, clock.ended + instant(told.delay_outside))
            if at > self._wish.now:
                clock.rest_at_least(at)
                clock.reason, good[place] = int(GapReason.HOURS), False

    def _open_until(self) -> Instant:
        """Returns the instant until which a host must be open, so that no request is sent too late: some seconds from
        now, the end of the lease if that is earlier, and the end of a train."""
        wish = self._wish
        soon = min(wish.deadline, wish.now + instant(VISIT_MARGIN_SECONDS))
        return (max(soon, wish.before) if wish.per_queue > 1 else soon) - 1

    def _rests_by_hours(self, host: int, standing: RobotsStanding) -> bool:
        """Whether a host rests because Visit-time names other hours."""
        if not isinstance(standing, AgentRules) or not standing.hours:
            return False
        at = opens_at(standing.hours, self._wish.now, until=self._open_until())
        if at is None:
            return False
        clock = self._draft.clock(host)
        clock.rest_at_least(at)
        clock.reason = int(GapReason.VISIT_TIME)
        return True

    def _by_hosts(self, host: int, slot: int, url: str) -> _Verdict:
        """Judges a page whose host needs a robots.txt next, by the other new hosts of its domain."""
        found = self._traps.judge_host(self._draft, slot, host, url) if self._wish.errands else TrialState.GO
        if found is TrialState.HELD:
            return _LATER
        return (RobotsVerdict.TRAP, None, BY_HOSTS) if found is TrialState.POOR else _ALLOWED

    def seek(self, most: int) -> None:
        """Finds up to `most` hosts whose addresses are requested. If the other new hosts of a domain had no new
        content, its next ones are parked instead. While many of them are tried, the next ones wait."""
        most += len(self.sought)
        while (left := most - len(self.sought)) > 0 and self.refusals > 0:
            oldest = _NO_ROWS
            if self._wish.key is None:
                self.bring(left)
                oldest = self._core.front.draw_oldest(left, self._wish.crawl, self._turns.seekers)
            hosts = self._turns.seekers_of(left, self._wish.crawl, self._wish.key, oldest)
            if not hosts:
                break
            found = [host for host in hosts if self._may_seek(host)]
            self.sought += found
            if len(found) < len(hosts):
                self.tried.append(np.array([host for host in hosts if host not in found], np.uint32))

    def _may_seek(self, host: int) -> bool:
        """Whether the address of a host is requested: a URL of it would be fetched if only its host decides."""
        if self._tables.hosts.answered[host]:
            return True
        queues = np.array(list(self._tables.queues_of(host)), np.uint32)
        backlog = self._tables.urls.backlog
        parked = False
        while self.refusals > 0:
            found, cards = backlog.take(queues)
            if not len(cards):
                return not parked  # an errand of a caller may need the address
            own, suspects, go = queues[found], self._traps.suspects(cards), False
            back = np.ones(len(cards), np.bool_)
            for place, url in enumerate(cards.urls()):
                verdict = _ALLOWED
                if place in suspects:
                    verdict = self._by_hosts(host, int(cards.heads["slot"][place]), url)
                go |= verdict is _ALLOWED
                if verdict[0] is RobotsVerdict.TRAP:
                    back[place], parked = False, True
                    one = cards.take([place])
                    self._draft.drawn.append((own[place : place + 1], one))
                    self._put_away(CardRecord.of(one, 0), *verdict)
                self.refusals -= verdict is not _ALLOWED
            if back.any():
                backlog.put(own[back], cards.filter(back))
            if go or back.any():
                return go
        return False

    def _by_traps(self, queue: int, slot: int, before: int, url: str, suspect: Suspect) -> _Verdict:
        rule, klass = self._traps.judge(self._draft, slot, before, url, suspect, queue)
        if rule:
            return RobotsVerdict.TRAP, None, rule
        if before >= ORDERED:
            return _ALLOWED  # an exact order has no lower classes
        # A URL in a lower class returns only if its queue has better ones.
        falls = klass is not None and klass < self._class_of(queue) < EMPTY
        return (RobotsVerdict.LOWER, None, klass) if falls and klass is not None else _ALLOWED

    def _gate(self, host: int, authority: Authority, *, idle: bool, unread: bool) -> None:
        """Gates a host until the rules of its authority are known, and leases the errand at once if it may be requested
        now. idle: the call has no page of the host."""
        if host in self._turns.gates:
            return
        self._core.gates.shut(authority, unread=unread)
        if not self._wish.errands or authority.wanted == NONE:
            return
        if authority.wanted == host:
            if idle:
                self._taken.discard(host)
                self._ask(host)
        else:
            self._lapsed.append(np.array([authority.wanted], np.uint32))

    def _put_away(self, record: CardRecord, judgement: RobotsVerdict, authority: Authority | None, number: int) -> None:
        """Removes a drawn card from its queue, for good or while a rule or budget excludes it; or moves it to a lower
        class of the queue."""
        draft = self._draft
        if authority is not None:
            self._robots.refuse(draft, record, authority, judgement, self._wish.now)
            return
        if judgement is RobotsVerdict.LOWER:
            record.klass = number
        elif judgement is RobotsVerdict.TRAP:
            rule = RULES[number - 1]
            draft.move(record, PARKED, Reason.TRAP, error=rule)
            draft.tally(f"trap.{rule}", 1)
        elif judgement is RobotsVerdict.PAYMENT:
            draft.move(record, PARKED, Reason.PAYMENT, error=PAYMENT)
        else:
            draft.move(record, PARKED, Reason.BUDGET)
        draft.record(record, QUEUED)

    def _add(self, pick: _Pick, going: _Places, queues: Rows, cards: Cards) -> None:
        self._cards.append(cards)
        self._queues.append(queues)
        later = None
        if pick.gaps is not None:
            nth = pick.got[going] + np.arange(len(going)) - np.searchsorted(going, going)
            later = nth * pick.gaps[going]
        self._later.append(later)
        np.add.at(pick.got, going, 1)
        self.count += len(cards)

    def _in_trains(self, first: int, pick: _Pick) -> None:
        """Orders the URLs of one queue in a train, in the order in which they are fetched."""
        cards, queues = Cards.concatenate(self._cards[first:]), np.concatenate(self._queues[first:])
        later = np.concatenate([some for some in self._later[first:] if some is not None])
        places = {queue: place for place, queue in enumerate(pick.queues.tolist())}
        order = np.argsort([places[queue] for queue in queues.tolist()], kind="stable")
        self._cards[first:], self._queues[first:], self._later[first:] = (
            [cards.take(order)],
            [queues[order]],
            [later[order]],
        )

    def _note_turns(self, pick: _Pick) -> None:
        """Notes the turns of hosts with several queues, and the beginnings of requests to hosts with several at
        once."""
        tables = self._tables
        for place in pick.odd.tolist():
            host, queue, count = int(pick.hosts[place]), int(pick.queues[place]), int(pick.got[place])
            if not count:
                continue
            if pick.gaps is not None and self._turns.room(host) > 1:
                # Several requests at once: their beginnings keep the gap, because their ends are not known yet.
                self._draft.clock(host).rest_at_least(self._wish.now + count * int(pick.gaps[place]))
            tables.turn += 1
            tables.queues.served[queue] = tables.turn & 0xFFFFFFFF
            tables.hosts.turns[host] += 1
