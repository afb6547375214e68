"""Revisits: the next visit of each fetched page, by the rule of the settings, within the rate of all fetches.

A report writes the next look at a page into its record: it then waits as `planned`. A lease call looks at planned pages
that are due, and queues those whose time has come under the present level (policy/revisit_plan.py). Others wait again,
for the end of their wait or a part of the horizon, whatever is first. Looks are no facts: an opening begins with the
instants of the records, and a replay never looks.

The level follows the fetches (policy/revisit_level.py). A page of which its visits showed hardly anything has the
change rate of its host (policy/host_rates.py).
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from outrider.clock import Instant, instant
from outrider.frontier.format.card_columns import Cards, fetched_at, fetched_cells
from outrider.frontier.format.card_records import (
    CardRecord,
    KeptFields,
    parts_of,
    real_bytes,
    signal_bytes,
    signals_of,
    visits_of,
)
from outrider.frontier.policy.change_rates import drawn_rates, error_of, rate_of, theta_of
from outrider.frontier.policy.fetch_rate import FetchRate
from outrider.frontier.policy.frontier_settings import FrontierSettings
from outrider.frontier.policy.host_rates import HostRates
from outrider.frontier.policy.revisit_level import RevisitLevel
from outrider.frontier.policy.revisit_plan import Heard, Plan, PlannedPages
from outrider.frontier.policy.revisit_rules import Shown
from outrider.frontier.policy.signal_values import host_quality
from outrider.frontier.policy.visit_values import age, freshness
from outrider.frontier.priority import classes_of
from outrider.frontier.schedule.host_schedule import HostSchedule
from outrider.frontier.state.hosts import NONE, mixed
from outrider.frontier.state.tables import Tables
from outrider.frontier.state.url_table import WAITING
from outrider.journey import RECORD_FIELDS, RevisitStatus
from outrider.kernels.card_layout import FETCHED_FROM, HEAD, PLANNED, Heads
from outrider.limits import (
    CHANGE_CONFIDENCE_PRIOR,
    CHANGE_CONFIDENCE_VAGUE,
    CHANGE_SECONDS_PRIOR,
    CLASSES,
    HOST_SIGNALS_JUDGED_MIN,
    INSTANT_MAX,
    MICROSECONDS,
    REVISIT_AWAITED_FETCHES,
    REVISIT_AWAITED_SECONDS,
    REVISIT_CLASSES_ABOVE,
    REVISIT_CLOSED_SECONDS,
    REVISIT_DRAWN,
    REVISIT_HELD_SECONDS,
    REVISIT_HORIZON,
    REVISIT_HOST_COMPETING,
    REVISIT_HOST_STEP,
    REVISIT_HOSTS_PRICED_MAX,
    REVISIT_LOOKS_PER_CALL,
    REVISIT_LOOKS_PER_FETCH,
    REVISIT_MOVES_PER_CALL,
    REVISIT_NOTED_EVERY,
    REVISIT_OWED_MAX,
    REVISIT_PAGES_AVERAGED,
    REVISIT_SECONDS_MAX,
    REVISIT_TRIES_AHEAD,
    WAKES_PER_CALL_MAX,
)

Floats = npt.NDArray[np.float64]
Instants = npt.NDArray[np.int64]

OWN = ("change_rate", "change_confidence", "revisit_interval", "revisit_memory")
"""The fields of a record that a revisit rule computes, in the order of `own_values`."""
OWN_PLACES = tuple(list(RECORD_FIELDS).index(name) for name in (*OWN, "signals"))
"""The places of the fields that a visit changes: it ends the count of signals."""
_NO_REAL = bytes(4)
_PRIOR_WORTH = CHANGE_SECONDS_PRIOR * math.exp(0.5 / CHANGE_CONFIDENCE_PRIOR)
"""The mean of the seconds between changes of a new page, where the logarithm of their rate is normal."""
_RANKS = 1_000  # the microseconds within which the pages of one host are looked at in the order of their values


@dataclass(frozen=True, slots=True)
class _Hosts:
    """The hosts of pages, in columns."""

    names: npt.NDArray[np.uint64]
    """Their hashes."""
    until: Instants
    """When a page that is not queued now may be queued."""
    open_: npt.NDArray[np.bool_]
    """Whether a request may begin now."""
    resting: npt.NDArray[np.bool_]
    """Whether a page may be queued already, which is leased as soon as the host has rested."""
    taken: npt.NDArray[np.bool_]
    """Whether another page of the host is queued, and nothing but its clock holds it."""


class Revisits:
    """The revisit rule and the rate of one frontier. Only memory: after an opening it starts from the records."""

    def __init__(self, tables: Tables, settings: FrontierSettings, turns: HostSchedule, seed: int) -> None:
        self._tables, self._turns, self._seed = tables, turns, seed
        self.plan = Plan(settings.revisit) if settings.revisit is not None else None
        self.rate = FetchRate(settings.rate, _last_fetch(tables)) if settings.rate is not None else None
        tables.urls.planned_stay = self.plan is not None and self.rate is not None
        per_second = None if self.rate is None else self.rate.per_second
        self._level = RevisitLevel(self.plan, per_second) if self.plan is not None else None
        self._host_rates = HostRates()
        self._discovery_share = settings.discovery_share
        self._closed_until: Instant = 0  # no page is fetched ahead of its time before: the hosts of the next are closed
        self._owed = 0.0  # new URLs that the discovery share still requires
        self._awaited: deque[tuple[Instant, int]] = deque()  # pages that were queued and not leased yet
        self._waiting = 0  # the sum of these
        fetches = 0.0 if self.rate is None else REVISIT_AWAITED_FETCHES / self.rate.per_second
        self._awaited_most = instant(min(max(REVISIT_AWAITED_SECONDS, fetches), REVISIT_SECONDS_MAX))
        self._resting: list[Instant] = []  # a heap: when the hosts of other queued pages will have rested
        self._aside: list[tuple[Cards, Instants]] = []  # planned pages that this call does not look at again
        self._of_hosts: dict[int, float] = {}
        """By hash of a host: the logarithm by which its price is above that of all."""
        self.looks = self.fetched = self.discovered = 0
        self._turn = 0
        self._expected = np.zeros(6)  # sums over the last looks, as `_note` adds them

    def __repr__(self) -> str:
        return f"<Revisits {self.plan} {self.rate}>"

    @property
    def level(self) -> float | None:
        """The logarithm of the price or the stretch; None without a rule, and where pages decide where it begins."""
        return None if self._level is None else self._level.now

    def begin(self, level: float, step: float) -> None:
        """Begins with this level, and moves it by this step for each fetch. An experiment shows what they change."""
        assert self._level is not None
        self._level.begin(level, step, len(self._tables.urls.planned))

    # -- after a visit -------------------------------------------------------------------------------------------------

    def planned(
        self,
        cards: Cards,
        rows: npt.NDArray[np.intp],
        changed: npt.NDArray[np.bool_],
        ages: Floats,
        ended: Instants,
        kept: Mapping[int, KeptFields],
    ) -> tuple[Instants, Floats, dict[int, list[bytes]]]:
        """Plans the next visits of pages.

        cards: of the pages before this visit; rows: those that are planned; changed, ages, ended: what the visits of
        these rows showed, and the ends of their requests; kept: the fields of their records by row. Returns the
        instants of the next looks, the pauses in seconds, and by row the fields in the order of `OWN`.
        """
        assert self.plan is not None
        heads = cards.heads[rows]
        assert self._level is not None
        pages = self._pages(heads, [kept[row] for row in rows.tolist()])
        first = heads["fetched"] == 0
        waited = np.where(first, 0.0, _since(heads, ended))
        shown = np.where(first, Shown.NOTHING, np.where(changed, Shown.CHANGED, Shown.UNCHANGED))
        if pages.heard is not None:
            ages = _ages_by_signals(pages, changed, ages, waited)
        self._host_rates.learn(self._names(heads), waited, shown == Shown.CHANGED, ages)
        after = self.plan.after(pages, shown, waited, ages, first)
        after = after if after.heard is None else replace(after, heard=after.heard.visited())
        guessed = self._drawn(after, heads["order"], fetched_cells(ended), ended)
        self._level.reported(after, heads["order"], self._count(after))
        pauses = self.plan.waits(guessed, self._level_of(guessed))
        looks = np.minimum(pauses, self._horizons(heads["order"], ended))
        at = ended + _microseconds(looks)
        self._note(guessed, pauses, np.minimum(looks, REVISIT_SECONDS_MAX))
        found: dict[int, list[bytes]] = {}
        rates = np.exp(after.theta)
        for place, row in enumerate(rows.tolist()):
            if not first[place] or after.interval[place]:
                # The rate of a first visit is that of the prior, so it needs no byte.
                known = not first[place] or kept[row].change_confidence
                found[row] = [
                    real_bytes(float(rates[place])) if known else b"",
                    real_bytes(float(after.confidence[place])) if known else b"",
                    real_bytes(float(after.interval[place])),
                    real_bytes(float(after.memory[place])),
                    signal_bytes(signals_of(kept[row])[0], 0),
                ]
        return at, np.minimum(pauses, REVISIT_SECONDS_MAX), found

    def planned_later(self, cards: Cards, count: int, now: Instant) -> tuple[Instants, Floats]:
        """Returns the same for pages that were fetched without a rule: `count` in all, of which these are some."""
        assert self.plan is not None
        assert self._level is not None
        heads, flags = cards.heads, cards.heads["flags"].tolist()
        kept = [parts_of(cards.extra_of(row), flags[row])[0] for row in range(len(cards))]
        pages = self._drawn(self._pages(heads, kept), heads["order"], heads["fetched"], now)
        pauses = self.plan.waits(pages, self._level.of(pages, count))
        last = (heads["fetched"].astype(np.int64) + FETCHED_FROM) * MICROSECONDS
        looks = self._horizons(heads["order"], np.full(len(heads), now))
        at = np.minimum(last + _microseconds(pauses), now + _microseconds(looks))
        return np.maximum(at, now), np.minimum(pauses, REVISIT_SECONDS_MAX)

    def before_visits(self, heads: Heads, kept: list[KeptFields], ended: Instants) -> tuple[Floats, Floats]:
        """Returns the seconds since the last visit of each page, 0 for a first visit, and its change rate."""
        waited = np.where(heads["fetched"] == 0, 0.0, _since(heads, ended))
        return waited, rate_of(self._pages(heads, kept).theta)

    def heard(self, heads: Heads, kept: list[KeptFields], now: Instant) -> tuple[Instants, npt.NDArray[np.bool_]]:
        """Returns the next looks at planned pages that got a date, and whether their signals have any weight."""
        assert self.plan is not None
        pages = self._drawn(self._pages(heads, kept), heads["order"], heads["fetched"], now)
        visited = (heads["fetched"].astype(np.int64) + FETCHED_FROM) * MICROSECONDS
        due = visited + _microseconds(self.plan.waits(pages, self._level_of(pages)))
        # The last look comes after whole horizons since the visit: counted from now, daily dates would postpone it.
        horizons = np.maximum(self._horizons(heads["order"], visited), 1.0)
        passed = np.floor(np.maximum(now - visited, 0) / MICROSECONDS / horizons) + 1.0
        horizon = visited + _microseconds(passed * horizons)
        useful = np.zeros(len(heads), np.bool_) if pages.heard is None else pages.model().evidence > 0
        return np.maximum(np.minimum(due, horizon), now), useful

    def _pages(self, heads: Heads, kept: Sequence[KeptFields]) -> PlannedPages:
        """Returns pages as the plan has them. Those of which hardly anything is known have the rate of their hosts:
        otherwise each page of a fast host would need many visits to be known."""
        octets = [getattr(one, name) or _NO_REAL for name in OWN for one in kept]
        numbers = np.frombuffer(b"".join(octets), "<f4").astype(np.float64).reshape(len(OWN), len(kept))
        rates, confidence, interval, memory = numbers
        confidence = np.where(confidence > 0, confidence, CHANGE_CONFIDENCE_PRIOR)
        vague = confidence <= CHANGE_CONFIDENCE_VAGUE
        theta = theta_of(rates)
        if vague.any():
            theta[vague] = self._host_rates.thetas(self._names(heads[vague]))
        pages = PlannedPages(theta, confidence, interval, memory, heads["priority"].astype(np.float64))
        return self._with_signals(pages, heads, kept) if any(one.signals for one in kept) else pages

    def _names(self, heads: Heads) -> npt.NDArray[np.uint64]:
        """Returns the hashes of the hosts of pages, 0 for a page without a queue."""
        tables = self._tables
        rows = tables.queues.find(np.ascontiguousarray(heads["queue"]))
        there = rows != NONE
        hosts = tables.queues.host[np.where(there, rows, 0).astype(np.intp)].astype(np.intp)
        return np.where(there, tables.hosts.hash[hosts], np.uint64(0))

    def _with_signals(self, pages: PlannedPages, heads: Heads, kept: Sequence[KeptFields]) -> PlannedPages:
        """Returns pages with their signals, and the quality of these at their hosts."""
        names, places = np.unique(self._names(heads), return_inverse=True)
        sums = [self._tables.urls.signals.get(name) for name in names.tolist()]
        quality = host_quality(sums)
        dated = np.array([bool(one.signals) for one in kept])
        counts = np.array([signals_of(one)[1] for one in kept], np.float64)
        visits = np.array([one.visits for one in sums])[places]
        recall, noise = (np.where(dated, column[places], 0.0) for column in (quality.recall, quality.noise))
        return replace(pages, heard=Heard(counts, recall, noise, visits >= HOST_SIGNALS_JUDGED_MIN))

    def _drawn(
        self, pages: PlannedPages, orders: npt.NDArray[np.uint64], fetched: npt.NDArray[np.uint32], now: Instants | int
    ) -> PlannedPages:
        """Returns pages with change rates that are drawn from the belief about them (Thompson sampling), one draw for
        each visit, and another one whenever a horizon has passed since then. So a page that was given up by mistake is
        visited again. fetched: the cells of the last visits."""
        cells = fetched.astype(np.uint64)
        if self.rate is not None:
            passed = (now - (fetched.astype(np.int64) + FETCHED_FROM) * MICROSECONDS) / (self._horizon * MICROSECONDS)
            cells = cells ^ np.clip(passed, 0, 1e6).astype(np.uint64) << np.uint64(32)
        first = mixed(orders ^ mixed(cells ^ np.uint64(self._seed)))
        second = mixed(first)
        # Box and Muller's transform of two numbers in (0, 1].
        radius = np.sqrt(-2.0 * np.log(((first >> np.uint64(11)).astype(np.float64) + 1.0) * 2.0**-53))
        normal = radius * np.cos(2.0 * np.pi * (second >> np.uint64(11)).astype(np.float64) * 2.0**-53)
        return replace(pages, theta=theta_of(drawn_rates(pages.theta, pages.confidence, REVISIT_DRAWN * normal)))

    def _level_of(self, pages: PlannedPages) -> float:
        """Returns the level; the first pages decide where it begins."""
        assert self._level is not None
        return self._level.of(pages, self._count(pages))

    def _count(self, pages: PlannedPages) -> int:
        """Returns the number of planned pages with these, which wait nowhere at the moment."""
        return len(self._tables.urls.planned) + len(pages)

    @property
    def _horizon(self) -> float:
        """The mean of the seconds until the next look at a page that is not due before."""
        assert self.rate is not None
        return REVISIT_HORIZON * max(1, len(self._tables.urls.planned)) / self.rate.per_second

    def _horizons(self, orders: npt.NDArray[np.uint64], at: Instants) -> Floats:
        """Returns the seconds until the next look at pages, whatever their wait: different for each, because pages that
        are looked at together would be queued together."""
        if self.rate is None:
            return np.full(len(orders), np.inf)
        drawn = mixed(orders ^ mixed(at.astype(np.uint64) ^ np.uint64(self._seed)))
        found: Floats = self._horizon * (0.5 + (drawn >> np.uint64(11)).astype(np.float64) * 2.0**-53)
        return found

    def _note(self, pages: PlannedPages, waits: Floats, seconds: Floats) -> None:
        """Adds what is expected of these copies until the next looks at them, at some of the looks. Each page counts
        for the time until then, so pages that are looked at often do not count more."""
        self._turn += 1
        if self._turn % REVISIT_NOTED_EVERY:
            return
        never = np.isinf(waits)
        rates, weights = np.exp(pages.theta), pages.importance * seconds
        ages = np.where(never, 0.0, age(rates, np.where(never, 1.0, waits)))
        kept = 1.0 - len(pages) / max(REVISIT_PAGES_AVERAGED, 2 * len(self._tables.urls.planned), len(pages))
        columns = (
            seconds,
            seconds * never,
            weights,
            weights * freshness(rates, waits),
            weights * ~never,
            weights * ages,
        )
        self._expected = kept * self._expected + np.array([column.sum() for column in columns])

    def statistics(self) -> dict[str, Any] | None:
        """Returns the numbers of rule and rate; None without both.

        rule, rate, price, stretch, discovery_share: as set, and as they are now. fetches, discoveries: leased pages of
        this process that were planned, and new. looks: at planned pages. planned: pages that wait for a visit. Of these
        pages, weighted by priority: freshness, the expected share of the time in which copies are fresh; age_seconds,
        the expected age of copies; given_up, pages that are never due at the present price.
        """
        if self.plan is None and self.rate is None:
            return None
        planned = len(self._tables.urls.planned)
        mass, never, weight, fresh, visited, ages = self._expected.tolist()
        price, stretch = self._numbers()
        return {
            "rule": self.plan.name if self.plan is not None else None,
            "rate": self.rate.per_second if self.rate is not None else None,
            "price": price,
            "stretch": stretch,
            "discovery_share": self._discovery_share,
            "planned": planned,
            "fetches": self.fetched,
            "discoveries": self.discovered,
            "looks": self.looks,
            "freshness": round(fresh / weight, 6) if weight else None,
            "age_seconds": round(ages / visited, 3) if visited else None,
            "given_up": round(planned * never / mass) if mass else 0,
        }

    def _numbers(self) -> tuple[float | None, float | None]:
        """Returns the price and the stretch; None for the one that the rule does not use."""
        if self.plan is None or self.level is None:
            return None, None
        number = math.exp(self.level)
        return (number, None) if self.plan.priced else (None, number)

    def status(self, record: CardRecord, now: Instant) -> RevisitStatus | None:
        """Returns what the rule knows of a page; None without a rule, or before the first visit."""
        if self.plan is None or not record.fetched:
            return None
        heads = np.zeros(1, HEAD)
        heads["priority"], heads["queue"] = record.priority, record.queue
        learned = self._pages(heads, [record.kept])
        place = np.array([record.order], np.uint64), np.array([record.fetched], np.uint32)
        pages = self._drawn(learned, *place, now)
        last = fetched_at(record.fetched) or 0
        wait = float(self.plan.waits(pages, self._level_of(pages))[0])
        waits = record.state == WAITING and record.reason == PLANNED
        price, stretch = self._numbers()
        value = float(self.plan.values(pages, max(0, now - last) / MICROSECONDS)[0]) if self.plan.priced else None
        return RevisitStatus(
            self.plan.name,
            float(np.exp(learned.theta[0])),
            float(error_of(learned.confidence)[0]),
            value,
            price,
            stretch,
            visits_of(record.kept, record.fetched),
            record.due if waits else None,
            last + instant(min(wait, REVISIT_SECONDS_MAX)) if waits and math.isfinite(wait) else None,
            *_heard_of(learned, record.kept),
        )

    # -- before a lease ------------------------------------------------------------------------------------------------

    def allows(self, now: Instant, want: int) -> int:
        """Returns how many leases the rate allows now."""
        return want if self.rate is None else min(want, self.rate.available(now))

    def next_at(self, now: Instant) -> Instant | None:
        """Returns the first instant at which a planned page may be queued; None if none waits."""
        first = self._tables.urls.planned.next()
        if first is None or self.rate is None or self.plan is None or first <= now:
            return first
        # A page may be fetched ahead of its time where the level may still fall.
        ahead = max(now, self._closed_until)
        return first if self._level is not None and self._level.lowest else min(first, ahead)

    def look(self, now: Instant, want: int) -> None:
        """Queues planned pages for a call that may lease `want` URLs. Raises DamagedStoreError."""
        urls = self._tables.urls
        if not len(urls.planned):
            return
        if self.plan is None or self.rate is None:
            # Without a rate nothing is stretched, and without a rule its pages keep the visits that they were promised.
            cards = urls.take_planned(now, WAKES_PER_CALL_MAX)
            if len(cards):
                self.looks += len(cards)
                urls.queue_waiting(cards)
            return
        assert self._level is not None
        if self.rate.lost >= 1.0:
            lost = int(self.rate.lost)
            self.rate.lost -= lost
            self._level.lost(lost)
        self._forget_awaited(now)
        need = want - self._waiting
        # New URLs come before pages ahead of their time, unless a share says how many of each.
        early = need if self._discovery_share is not None else min(need, want - len(self._turns.ready))
        looks, tries, moves = min(REVISIT_LOOKS_PER_FETCH * max(need, 0), REVISIT_LOOKS_PER_CALL), 0, 0
        together, opens = need, now + instant(REVISIT_AWAITED_SECONDS)
        if (
            self._discovery_share is not None
            and self._owed >= 1.0
            and len(urls.backlog) > self._waiting + len(self._resting)
        ):
            return
        try:
            while need > 0 and looks > 0:
                first = urls.planned.next()
                if first is None:
                    break
                ahead = first > now
                if ahead and (early <= 0 or self._level.lowest or now < self._closed_until):
                    return
                cards = urls.take_planned(INSTANT_MAX if ahead else now, min(looks, early if ahead else together))
                if not len(cards):  # buckets were moved
                    moves += 1
                    if moves >= REVISIT_MOVES_PER_CALL:
                        return  # `next_at` says when: at once
                    continue
                looks -= len(cards)
                self.looks += len(cards)
                closed = len(self._aside)
                most, last = early if ahead else need, tries + 1 >= REVISIT_TRIES_AHEAD
                queued, opened_at = self._choose(cards, now, most, ahead=ahead, last=last)
                opens = min(opens, opened_at)
                if ahead and not queued and self.plan.known_level is not None:
                    return  # no page is due by its rule, even without a stretch
                if not ahead or queued:
                    tries = 0
                elif len(self._aside) == closed:  # a page of a closed host says nothing about the others
                    tries += 1
                need, early = need - queued, early - queued
                together = need if queued else 2 * together  # many pages may be looked at before one is due
            if need > 0 and self._aside:
                self._closed_until = max(opens, now + instant(REVISIT_CLOSED_SECONDS))
        finally:
            for cards, at in self._aside:
                urls.planned.put(cards, at)
            self._aside.clear()

    def _choose(self, cards: Cards, now: Instant, most: int, *, ahead: bool, last: bool) -> tuple[int, Instant]:
        """Queues up to `most` of these pages whose time has come, the most overdue first, and plans the others again.
        ahead: it is earlier than their looks, and a page is queued if no other is known to be due before it. last: they
        are queued in any case, if their hosts are open. Returns how many are queued, and the first instant at which
        a host of the others may be open."""
        assert self.plan is not None
        assert self._level is not None
        urls, heads = self._tables.urls, cards.heads
        pages = self._pages(
            heads, [parts_of(cards.extra_of(row), int(heads["flags"][row]))[0] for row in range(len(cards))]
        )
        pages = self._drawn(pages, heads["order"], heads["fetched"], now)
        level = self._level_of(pages)
        visited = (heads["fetched"].astype(np.int64) + FETCHED_FROM) * MICROSECONDS
        waits = self.plan.waits(pages, level)
        due = visited + _microseconds(waits)
        horizon = now + _microseconds(self._horizons(heads["order"], np.full(len(heads), now)))
        again = np.minimum(due, horizon)
        worth = self.plan.values(pages, np.maximum(now - visited, 0) / MICROSECONDS)
        hosts = self._hosts_of(heads, worth if self.plan.priced else -due, now)
        open_ = hosts.open_ if self.plan.priced else np.ones(len(heads), np.bool_)
        if ahead:
            after = urls.planned.next()
            chosen = open_ & (due <= (due if last or after is None else after))
            if self.plan.known_level is not None:
                chosen &= visited + _microseconds(self.plan.waits(pages, self.plan.known_level)) <= now
        else:
            chosen = open_ & (due <= now)
        if np.count_nonzero(chosen) > most:
            chosen[np.argsort(np.where(chosen, due, np.iinfo(np.int64).max), kind="stable")[most:]] = False
        count = int(np.count_nonzero(chosen))
        if self.plan.priced and not open_.all():
            after_rest, in_turn = self._after_rest(pages, hosts, visited, horizon)
            again = np.where(open_, again, after_rest)
            chosen |= hosts.resting & in_turn & (due <= now)
        # A page ahead of its time whose host is closed would be the first one again for the next look of this call.
        aside = ~chosen & ~open_ & ahead
        if aside.any():
            self._aside.append((cards.filter(aside), again[aside]))
        back = ~chosen & ~aside
        if back.any():
            urls.planned.put(cards.filter(back), np.maximum(again, now + 1)[back])
        if not chosen.all():
            self._note(pages.take(~chosen), waits[~chosen], (again - now)[~chosen] / MICROSECONDS)
        if chosen.any():
            classes = None
            if self.plan.priced:
                classes = self._classes(worth[chosen])
                self._lower_hosts(hosts.names[chosen])
            urls.queue_waiting(cards.filter(chosen), classes)
            early = int(np.count_nonzero(due[chosen] > now))
            self._level.chose(int(np.count_nonzero(chosen)) - early, early)
            self._awaited.append((now, count))
            self._waiting += count
            for at in hosts.until[chosen & ~open_].tolist():
                heapq.heappush(self._resting, at)
        return count, int(hosts.until[~chosen].min(initial=INSTANT_MAX))

    def _classes(self, worth: Floats) -> npt.NDArray[np.uint8]:
        """Returns the classes of the values of due pages.

        They are above that of a new URL with the same value, because classes are drawn by chance: otherwise all new
        URLs below the price together would get as many visits as the due pages. While a crawl grows from one seed, the
        price is far below the value of any new URL, so these come first.
        """
        if self._discovery_share is not None:
            return np.full(len(worth), CLASSES - 1, np.uint8)
        same = classes_of(np.clip(worth / _PRIOR_WORTH, 0.0, 1.0))
        return np.minimum(same.astype(np.intp) * REVISIT_CLASSES_ABOVE, CLASSES - 1).astype(np.uint8)

    def _hosts_of(self, heads: Heads, rank: npt.NDArray[Any], now: Instant) -> _Hosts:
        """Returns the hosts of these pages. Each with a gap has one queued page at most, of these the one of the
        highest rank. Hosts without a gap may have any number: their pages are leased in trains."""
        tables = self._tables
        rows = tables.queues.find(np.ascontiguousarray(heads["queue"]))
        there = rows != NONE
        hosts = np.where(there, tables.queues.host[np.where(there, rows, 0).astype(np.intp)], 0).astype(np.intp)
        names = np.where(there, tables.hosts.hash[hosts], heads["queue"])
        gap = (np.maximum(tables.hosts.gap[hosts], REVISIT_CLOSED_SECONDS) * MICROSECONDS).astype(np.int64)
        until = np.maximum(np.where(there, tables.hosts.rest_until[hosts], 0), now)
        gapless, busy = (
            there & (tables.hosts.gap[hosts] <= 0) & (until <= now),
            there & (tables.hosts.in_flight[hosts] > 0),
        )
        until += np.where(busy, gap, 0)
        taken, shut, stopped = (np.zeros(len(rows), np.bool_) for _ in range(3))
        if there.any():
            known = rows[there].astype(np.uint32)
            free, held, _ = self._turns.judged(known, now)
            shut[there], stopped[there] = ~free | held, held
            taken[there] = tables.urls.backlog.waiting(known) > 0
        first = np.argsort(-rank, kind="stable")
        double = np.ones(len(rows), np.bool_)
        double[first[np.unique(names[first], return_index=True)[1]]] = False
        gapless &= ~shut | busy & ~stopped
        taken = (taken | double) & ~gapless
        # Nobody knows when an operator will resume a queue.
        until = np.where(stopped, np.maximum(until, now + instant(REVISIT_HELD_SECONDS)), until)
        usable, soon = ~taken & ~shut, until <= now + instant(REVISIT_AWAITED_SECONDS)
        # The page after the next one is chosen in the middle of the rest between them, of all that are due by then.
        return _Hosts(
            names,
            np.where(taken, until + gap // 2, np.where(shut, np.maximum(until, now + gap), until)),
            usable & (until <= now) | gapless,
            usable & (until > now) & soon,
            taken & ~stopped,
        )

    def _after_rest(
        self, pages: PlannedPages, hosts: _Hosts, visited: Instants, horizon: Instants
    ) -> tuple[Instants, npt.NDArray[np.bool_]]:
        """Returns when to look again at pages whose hosts are closed, and which of them may be next at their hosts.

        A host with more due pages than its gap allows has a price of its own above that of all, so that few pages
        compete for each of its visits, and the most valuable of these is looked at first.
        """
        assert self.plan is not None
        levels = self._level_of(pages) + np.array([self._of_hosts.get(name, 0.0) for name in hosts.names.tolist()])
        due = visited + _microseconds(self.plan.waits(pages, levels))
        in_turn = due <= hosts.until
        for name in hosts.names[in_turn & hosts.taken].tolist():
            if name in self._of_hosts or len(self._of_hosts) < REVISIT_HOSTS_PRICED_MAX:
                self._of_hosts[name] = self._of_hosts.get(name, 0.0) + REVISIT_HOST_STEP
        with np.errstate(divide="ignore"):
            worth = np.log(self.plan.values(pages, (hosts.until - visited) / MICROSECONDS)) - levels
        rank = np.clip(_RANKS / 2 - _RANKS / 4 * worth, 0, _RANKS).astype(np.int64)
        return np.where(in_turn, hosts.until + rank, np.maximum(hosts.until, np.minimum(due, horizon))), in_turn

    def _lower_hosts(self, names: npt.NDArray[np.uint64]) -> None:
        for name in names.tolist() if self._of_hosts else ():
            left = self._of_hosts.get(name, 0.0) - REVISIT_HOST_STEP * REVISIT_HOST_COMPETING
            if left > 0:
                self._of_hosts[name] = left
            else:
                self._of_hosts.pop(name, None)

    def leased(self, heads: Heads, errands: int, now: Instant) -> None:
        """Counts what a call has leased. heads: of the pages; errands: other requests."""
        if self.rate is not None:
            self.rate.take(len(heads) + errands, now)
        if self.plan is None or not len(heads):
            return
        chosen = heads["reason"] == PLANNED
        count = int(np.count_nonzero(chosen))
        self.fetched += count
        self._leave_awaited(count)
        new = (heads["fetched"] == 0) & (heads["attempts"] == 0) & ~chosen
        found = int(np.count_nonzero(new))
        self.discovered += found
        if self._discovery_share is not None and found + count:
            owed = self._owed + self._discovery_share * (found + count) - found
            self._owed = min(max(owed, -REVISIT_OWED_MAX), REVISIT_OWED_MAX)
        elif found and self.plan.priced and self._level is not None and self._level.now is not None:
            worth = heads["priority"][new] * _PRIOR_WORTH
            below = int(np.count_nonzero(np.log(np.maximum(worth, 1e-300)) < self._level.now))
            if below:
                self._level.chose(0, below)

    def _leave_awaited(self, count: int) -> None:
        while count > 0 and self._awaited:
            at, there = self._awaited[0]
            used = min(count, there)
            count -= used
            self._waiting -= used
            if used < there:
                self._awaited[0] = (at, there - used)
            else:
                self._awaited.popleft()

    def _forget_awaited(self, now: Instant) -> None:
        """Counts pages no more that cannot be leased soon: their queue was paused or deleted meanwhile."""
        while self._resting and self._resting[0] <= now:
            self._awaited.append((heapq.heappop(self._resting), 1))
            self._waiting += 1
        while self._awaited and self._awaited[0][0] <= now - self._awaited_most:
            self._waiting -= self._awaited.popleft()[1]
        self._leave_awaited(self._waiting - len(self._tables.urls.backlog))


def _ages_by_signals(pages: PlannedPages, changed: npt.NDArray[np.bool_], ages: Floats, waited: Floats) -> Floats:
    """Returns the ages from which pages with signals learn that they changed.

    Signals cause visits soon after changes. Taken for visits at any moment, these would show much higher rates. The
    likelihood of n true signals in a time t is (recall * rate)^n e^(-recall * rate * t): one change for each of them,
    and an age of recall * t / n. As long as the signals of a host are not proven, they are one.
    """
    assert pages.heard is not None
    heard = pages.heard
    used = changed & (heard.signals > 0) & (~heard.proven | (pages.model().evidence > 0))
    count = np.where(heard.proven, np.maximum(heard.signals, 1.0), 1.0)
    return np.where(used, heard.recall * waited / count, ages)


def _heard_of(page: PlannedPages, kept: KeptFields) -> tuple[Any, ...]:
    """Returns what is known of the signals of one page, in the order of `RevisitStatus`."""
    if page.heard is None:
        return None, 0, None, None, None
    recall, noise, worth = (
        float(column[0])
        for column in (page.heard.recall, page.heard.noise, np.minimum(page.model().beta, REVISIT_SECONDS_MAX))
    )
    return signals_of(kept)[0], int(page.heard.signals[0]), recall, noise, worth


def _last_fetch(tables: Tables) -> Instant:
    """Returns the end of the last request to any host in memory, 0 for none."""
    return int(tables.hosts.ended[: tables.hosts.count].max(initial=0))


def _since(heads: Heads, ended: Instants) -> Floats:
    """Returns the seconds from the last visit of each page to these instants."""
    last = (heads["fetched"].astype(np.int64) + FETCHED_FROM) * MICROSECONDS
    found: Floats = np.maximum(ended - last, 0) / MICROSECONDS
    return found


def _microseconds(seconds: Floats) -> Instants:
    found: Instants = np.ceil(np.minimum(seconds, REVISIT_SECONDS_MAX) * MICROSECONDS).astype(np.int64)
    return found
