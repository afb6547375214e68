"""Revisits: the next visit of each fetched page, by the rule of the settings, within the rate of all fetches.

A report writes the next look at a page into its record: it then waits as `planned`. A lease call looks at planned pages
that are due, and queues those whose time has come under the present level (policy/revisit_plan.py). Others wait again,
for the end of their wait or a part of the horizon, whatever is first. Looks are no facts: an opening begins with the
instants of the records, and a replay never looks.

The level follows the fetches. A page that is queued when its time has come raises it, a page that is fetched ahead of
its time, because nothing else is due, lowers it, and so does each fetch that the rate allowed and nobody used.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
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
    CHANGE_RATE_FAR,
    CHANGE_SECONDS_PRIOR,
    HOST_SIGNALS_JUDGED_MIN,
    HOST_SIGNALS_VISITS_MIN,
    INSTANT_MAX,
    MICROSECONDS,
    REVISIT_AWAITED_SECONDS,
    REVISIT_CLOSED_SECONDS,
    REVISIT_HELD_SECONDS,
    REVISIT_HORIZON,
    REVISIT_HOST_STEP,
    REVISIT_HOSTS_PRICED_MAX,
    REVISIT_LOOKS_PER_CALL,
    REVISIT_LOOKS_PER_FETCH,
    REVISIT_LOST_MAX,
    REVISIT_NOTED_EVERY,
    REVISIT_OWED_MAX,
    REVISIT_PAGES_AVERAGED,
    REVISIT_SECONDS_MAX,
    REVISIT_STEP,
    REVISIT_STEPS_AHEAD,
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
_PRIOR_RATE = 1.0 / CHANGE_SECONDS_PRIOR


class Revisits:
    """The revisit rule and the rate of one frontier. Only memory: after an opening it starts from the records."""

    def __init__(self, tables: Tables, settings: FrontierSettings, turns: HostSchedule, seed: int) -> None:
        self._tables, self._turns, self._seed = tables, turns, seed
        self.plan = Plan(settings.revisit) if settings.revisit is not None else None
        self.rate = FetchRate(settings.rate, _last_fetch(tables)) if settings.rate is not None else None
        tables.urls.planned_stay = self.plan is not None and self.rate is not None
        self.level: float | None = self.plan.known_level if self.plan is not None else None
        """The logarithm of the price or the stretch; None before the first look, if pages decide where it begins."""
        self._pages_then = 0  # when the level began
        self.step = REVISIT_STEP
        self._discovery_share = settings.discovery_share
        self._closed_until: Instant = 0  # no page is fetched ahead of its time before: the hosts of the next are closed
        self._owed = 0.0  # new URLs that the discovery share still requires
        self._awaited: deque[tuple[Instant, int]] = deque()  # pages that were queued and not leased yet
        self._waiting = 0  # the sum of these
        self._of_hosts: dict[int, float] = {}
        """By hash of a host: the logarithm by which its price is above that of all."""
        self.looks = self.fetched = self.discovered = 0
        self._turn = 0
        self._expected = np.zeros(6)  # sums over the last looks, as `_note` adds them

    def __repr__(self) -> str:
        return f"<Revisits {self.plan} {self.rate}>"

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
        pages = self._pages(heads, [kept[row] for row in rows.tolist()])
        first = heads["fetched"] == 0
        waited = np.where(first, 0.0, _since(heads, ended))
        shown = np.where(first, Shown.NOTHING, np.where(changed, Shown.CHANGED, Shown.UNCHANGED))
        if pages.heard is not None:
            ages = _ages_by_signals(pages, changed, ages, waited)
        after = self.plan.after(pages, shown, waited, ages, first)
        after = after if after.heard is None else replace(after, heard=after.heard.visited())
        guessed = self._drawn(after, heads["order"], fetched_cells(ended))
        self._grow(after)
        pauses = self.plan.waits(guessed, self._level(guessed))
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
        heads, flags = cards.heads, cards.heads["flags"].tolist()
        kept = [parts_of(cards.extra_of(row), flags[row])[0] for row in range(len(cards))]
        pages = self._drawn(self._pages(heads, kept), heads["order"], heads["fetched"])
        if self.level is None:
            self.level = self.plan.first_level(pages, count, self.rate.per_second) if self.rate is not None else 0.0
        pauses = self.plan.waits(pages, self.level)
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
        pages = self._drawn(self._pages(heads, kept), heads["order"], heads["fetched"])
        visited = (heads["fetched"].astype(np.int64) + FETCHED_FROM) * MICROSECONDS
        due = visited + _microseconds(self.plan.waits(pages, self._level(pages)))
        # The last look comes after whole horizons since the visit: counted from now, daily dates would postpone it.
        horizons = np.maximum(self._horizons(heads["order"], visited), 1.0)
        passed = np.floor(np.maximum(now - visited, 0) / MICROSECONDS / horizons) + 1.0
        horizon = visited + _microseconds(passed * horizons)
        useful = np.zeros(len(heads), np.bool_) if pages.heard is None else pages.model().evidence > 0
        return np.maximum(np.minimum(due, horizon), now), useful

    def _pages(self, heads: Heads, kept: list[KeptFields]) -> PlannedPages:
        """Returns pages as the plan has them."""
        octets = [getattr(one, name) or _NO_REAL for name in OWN for one in kept]
        numbers = np.frombuffer(b"".join(octets), "<f4").astype(np.float64).reshape(len(OWN), len(kept))
        rates, confidence, interval, memory = numbers
        known = confidence > 0
        pages = PlannedPages(
            theta_of(np.where(known, rates, _PRIOR_RATE)),
            np.where(known, confidence, CHANGE_CONFIDENCE_PRIOR),
            interval,
            memory,
            heads["priority"].astype(np.float64),
        )
        return self._with_signals(pages, heads, kept) if any(one.signals for one in kept) else pages

    def _with_signals(self, pages: PlannedPages, heads: Heads, kept: list[KeptFields]) -> PlannedPages:
        """Returns pages with their signals, and the quality of these at their hosts. A page of which hardly anything is
        known has the rate of its host, if that is far from the prior: otherwise the signals of a fast host would mean
        nothing, and its pages would need many visits to be known."""
        tables = self._tables
        rows = tables.queues.find(np.ascontiguousarray(heads["queue"]))
        there = rows != NONE
        hosts = tables.queues.host[np.where(there, rows, 0).astype(np.intp)].astype(np.intp)
        names, places = np.unique(np.where(there, tables.hosts.hash[hosts], 0), return_inverse=True)
        sums = [tables.urls.signals.get(name) for name in names.tolist()]
        quality = host_quality(sums)
        dated = np.array([bool(one.signals) for one in kept])
        counts = np.array([signals_of(one)[1] for one in kept], np.float64)
        visits = np.array([one.visits for one in sums])[places]
        host_theta = theta_of(quality.rate[places])
        vague = dated & (visits >= HOST_SIGNALS_VISITS_MIN) & (pages.confidence <= CHANGE_CONFIDENCE_VAGUE)
        vague &= np.abs(host_theta - math.log(_PRIOR_RATE)) > math.log(CHANGE_RATE_FAR)
        theta = np.where(vague, host_theta, pages.theta)
        recall, noise = (np.where(dated, column[places], 0.0) for column in (quality.recall, quality.noise))
        return replace(pages, theta=theta, heard=Heard(counts, recall, noise, visits >= HOST_SIGNALS_JUDGED_MIN))

    def _drawn(
        self, pages: PlannedPages, orders: npt.NDArray[np.uint64], fetched: npt.NDArray[np.uint32]
    ) -> PlannedPages:
        """Returns pages with change rates that are drawn from the belief about them (Thompson sampling), one draw for
        each visit. So a page that was given up by mistake is visited again. fetched: the cells of the last visits."""
        first = mixed(orders ^ mixed(fetched.astype(np.uint64) ^ np.uint64(self._seed)))
        second = mixed(first)
        # Box and Muller's transform of two numbers in (0, 1].
        radius = np.sqrt(-2.0 * np.log(((first >> np.uint64(11)).astype(np.float64) + 1.0) * 2.0**-53))
        normal = radius * np.cos(2.0 * np.pi * (second >> np.uint64(11)).astype(np.float64) * 2.0**-53)
        return replace(pages, theta=theta_of(drawn_rates(pages.theta, pages.confidence, normal)))

    def _level(self, pages: PlannedPages) -> float:
        """Returns the level; the first pages decide where it begins."""
        assert self.plan is not None
        if self.level is None:
            count = len(self._tables.urls.planned) + len(pages)
            self.level = self.plan.first_level(pages, count, self.rate.per_second) if self.rate is not None else 0.0
            self._pages_then = count
        return self.level

    def _grow(self, pages: PlannedPages) -> None:
        """Begins with another level whenever the crawl has twice as many pages: a step for each fetch is too slow for a
        crawl that grows from one seed. pages: some of them."""
        count = len(self._tables.urls.planned) + len(pages)
        if self.plan is not None and self.rate is not None and self.level is not None and count >= 2 * self._pages_then:
            self.level = max(self.level, self.plan.first_level(pages, count, self.rate.per_second))
            self._pages_then = count

    def _horizons(self, orders: npt.NDArray[np.uint64], at: Instants) -> Floats:
        """Returns the seconds until the next look at pages, whatever their wait: different for each, because pages that
        are looked at together would be queued together."""
        if self.rate is None:
            return np.full(len(orders), np.inf)
        mean = max(1, len(self._tables.urls.planned)) / self.rate.per_second
        drawn = mixed(orders ^ mixed(at.astype(np.uint64) ^ np.uint64(self._seed)))
        found: Floats = REVISIT_HORIZON * mean * (0.5 + (drawn >> np.uint64(11)).astype(np.float64) * 2.0**-53)
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
        pages = self._drawn(learned, *place)
        last = fetched_at(record.fetched) or 0
        wait = float(self.plan.waits(pages, self._level(pages))[0])
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
        return first if self.level is not None and self.level <= self.plan.level_min else min(first, ahead)

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
        self._use_lost()
        self._forget_awaited(now)
        need = want - self._waiting
        looks, tries = min(REVISIT_LOOKS_PER_FETCH * max(need, 0), REVISIT_LOOKS_PER_CALL), 0
        together, opens = need, now + instant(REVISIT_AWAITED_SECONDS)
        if self._discovery_share is not None and self._owed >= 1.0 and len(urls.backlog) > self._waiting:
            return
        while need > 0 and looks > 0:
            first = urls.planned.next()
            if first is None:
                return
            ahead = first > now
            lowest = self.level is not None and self.level <= self.plan.level_min
            if ahead and (lowest or now < self._closed_until):
                return
            if ahead and tries == REVISIT_TRIES_AHEAD:
                self._closed_until = max(opens, now + instant(REVISIT_CLOSED_SECONDS))
                return
            cards = urls.take_planned(INSTANT_MAX if ahead else now, min(looks, need if ahead else together))
            if not len(cards):
                looks -= 1  # buckets were moved
                continue
            looks -= len(cards)
            self.looks += len(cards)
            tries = tries + 1 if ahead else 0
            queued, opened_at = self._choose(cards, now, need, ahead=ahead, last=tries == REVISIT_TRIES_AHEAD)
            opens = min(opens, opened_at)
            if ahead and not queued and self.plan.known_level is not None:
                return  # no page is due by its rule, even without a stretch
            need, tries = need - queued, 0 if queued else tries
            together = need if queued else 2 * together  # many pages may be looked at before one is due

    def _choose(self, cards: Cards, now: Instant, most: int, *, ahead: bool, last: bool) -> tuple[int, Instant]:
        """Queues up to `most` of these pages whose time has come, the most overdue first, and plans the others again.
        ahead: it is earlier than their looks, and a page is queued if no other is known to be due before it. last: they
        are queued in any case, if their hosts are open. Returns how many are queued, and the first instant at which
        a host of the others may be open."""
        assert self.plan is not None
        urls, heads = self._tables.urls, cards.heads
        pages = self._pages(
            heads, [parts_of(cards.extra_of(row), int(heads["flags"][row]))[0] for row in range(len(cards))]
        )
        pages = self._drawn(pages, heads["order"], heads["fetched"])
        level = self._level(pages)
        names, until, soon, held = self._closed(heads, now)
        levels: Floats | float = level
        if self._of_hosts and self.plan.priced:
            levels = level + np.array([self._of_hosts.get(name, 0.0) for name in names.tolist()])
        visited = (heads["fetched"].astype(np.int64) + FETCHED_FROM) * MICROSECONDS
        waits = self.plan.waits(pages, levels)
        due = visited + _microseconds(waits)
        horizon = now + _microseconds(self._horizons(heads["order"], np.full(len(heads), now)))
        again = np.minimum(due, horizon)
        # Of several pages of one host, only the most overdue is queued.
        by_due = np.argsort(due, kind="stable")
        double = np.ones(len(heads), np.bool_)
        double[by_due[np.unique(names[by_due], return_index=True)[1]]] = False
        until = np.where(double, np.maximum(until, soon), until)
        open_ = until <= now if self.plan.priced else np.ones(len(heads), np.bool_)
        if ahead:
            after = urls.planned.next()
            chosen = open_ & (due <= (due if last or after is None else after))
            if self.plan.known_level is not None:
                chosen &= visited + _microseconds(self.plan.waits(pages, self.plan.known_level)) <= now
        else:
            chosen = open_ & (due <= now)
        if np.count_nonzero(chosen) > most:
            chosen[np.argsort(np.where(chosen, due, np.iinfo(np.int64).max), kind="stable")[most:]] = False
        late = ~open_ & (due <= now)
        if late.any():
            if not ahead:  # an earlier look of this call or of another one has counted it
                self._raise_hosts(names[late & ~held])
            again = np.where(late, until, again)
        if ahead and not chosen.all():
            again = np.maximum(again, now + 1)
        if not chosen.all():
            urls.planned.put(cards.filter(~chosen), np.maximum(again, now + 1)[~chosen])
            self._note(pages.take(~chosen), waits[~chosen], (again - now)[~chosen] / MICROSECONDS)
        count = int(np.count_nonzero(chosen))
        if count:
            ready = cards.filter(chosen)
            classes = None
            if self.plan.priced:
                worth = self.plan.values(pages.take(chosen), (now - visited[chosen]) / MICROSECONDS)
                classes = self._classes(worth)
                self._lower_hosts(names[chosen])
            urls.queue_waiting(ready, classes)
            self._move(-REVISIT_STEPS_AHEAD * count if ahead else count)
            self._awaited.append((now, count))
            self._waiting += count
        return count, int(until[~chosen].min(initial=INSTANT_MAX))

    def _classes(self, worth: Floats) -> npt.NDArray[np.uint8]:
        """Returns the classes of values: that of a new URL with the same value, which is priority / rate, with the rate
        of a page of which nothing is known."""
        if self._discovery_share is not None:
            return np.full(len(worth), 15, np.uint8)
        return classes_of(np.clip(worth * _PRIOR_RATE, 0.0, 1.0))

    def _closed(
        self, heads: Heads, now: Instant
    ) -> tuple[npt.NDArray[np.uint64], Instants, Instants, npt.NDArray[np.bool_]]:
        """Returns, for each page, the hash of its host, the instant until which this host is busy or resting, the
        instant at which it may be open after one more request, and whether operators hold the queue of the page."""
        tables = self._tables
        rows = tables.queues.find(np.ascontiguousarray(heads["queue"]))
        there = rows != NONE
        hosts = np.where(there, tables.queues.host[np.where(there, rows, 0).astype(np.intp)], 0).astype(np.intp)
        names = np.where(there, tables.hosts.hash[hosts], heads["queue"])
        until = np.where(there, tables.hosts.rest_until[hosts], 0)
        busy = there & (tables.hosts.in_flight[hosts] > 0)
        stopped = np.zeros(len(rows), np.bool_)
        if there.any():
            known = rows[there].astype(np.uint32)
            free, held, _ = self._turns.judged(known, now)
            stopped[there] = held
            busy[there] |= ~free | held | (tables.urls.backlog.waiting(known) > 0)
        gap = np.maximum(tables.hosts.gap[hosts], REVISIT_CLOSED_SECONDS) * MICROSECONDS
        soon = now + gap.astype(np.int64)
        until = np.where(busy, np.maximum(until, soon), until)
        # Nobody knows when an operator will resume a queue.
        return names, np.where(stopped, np.maximum(until, now + instant(REVISIT_HELD_SECONDS)), until), soon, stopped

    def _raise_hosts(self, names: npt.NDArray[np.uint64]) -> None:
        """A page that is due while its host is closed raises the price of the host."""
        for name in names.tolist():
            if name in self._of_hosts or len(self._of_hosts) < REVISIT_HOSTS_PRICED_MAX:
                self._of_hosts[name] = self._of_hosts.get(name, 0.0) + REVISIT_HOST_STEP

    def _lower_hosts(self, names: npt.NDArray[np.uint64]) -> None:
        for name in names.tolist() if self._of_hosts else ():
            left = self._of_hosts.get(name, 0.0) - REVISIT_HOST_STEP
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
        elif found and self.plan.priced and self.level is not None:
            worth = heads["priority"][new] / _PRIOR_RATE
            above = int(np.count_nonzero(np.log(np.maximum(worth, 1e-300)) >= self.level))
            self._move(above - REVISIT_STEPS_AHEAD * (found - above))

    def _use_lost(self) -> None:
        """Fetches that nobody used lower the level."""
        assert self.rate is not None
        if self.rate.lost >= 1.0:
            lost = int(self.rate.lost)
            self.rate.lost -= lost
            self._move(-REVISIT_STEPS_AHEAD * min(lost, REVISIT_LOST_MAX))

    def _move(self, steps: int) -> None:
        if self.level is not None and self.plan is not None and self.rate is not None:
            self.level = max(self.plan.level_min, self.level + steps * self.step)

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
        while self._awaited and self._awaited[0][0] <= now - instant(REVISIT_AWAITED_SECONDS):
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
