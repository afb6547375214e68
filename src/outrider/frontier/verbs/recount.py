"""A recount: counts everything again from the records, and compares the counts with the counters."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from outrider.frontier.state.cold import weigh
from outrider.frontier.state.hosts import NONE
from outrider.frontier.state.tables import Tables
from outrider.frontier.state.url_table import DONE, GONE, LEASED, PARKED, QUEUED, STATES, WAITING
from outrider.frontier.verbs.statuses import leased_heads
from outrider.journey import Verification
from outrider.kernels.card_layout import Heads


def recount(tables: Tables) -> Verification:
    """Counts everything again from the ledger and the leases, and compares it with the counters."""
    found = _Recount(tables)
    for cards in tables.urls.ledger.scan():
        if tables.urls.voids():
            cards = cards.filter(~tables.urls.void(cards.heads))
        if len(cards):
            found.take(cards.heads)
    found.wake()
    problems = (
        *found.problems,
        *found.wrong_totals(),
        *found.wrong_queues(),
        *found.wrong_crawls(),
        *found.wrong_cold(),
        *_wrong_turns(tables),
        *tables.robots.problems(),
    )
    names = {STATES[state].value: found.counts[state] for state in range(1, 7)}
    return Verification(not problems, problems, {"accepted": sum(found.counts), **names})


class _Recount:
    """Counts of the records themselves: URLs by state, in total, by queue, and for cold hosts."""

    def __init__(self, tables: Tables) -> None:
        leased = leased_heads(tables)
        self.counts = [0] * 7
        self.problems: list[str] = []
        self._tables = tables
        self._unseen = 0  # URLs without a key in the seen-set
        self._of_queues = {state: np.zeros(tables.queues.count, np.int64) for state in range(1, 7)}
        self._of_crawls: defaultdict[int, npt.NDArray[np.int64]] = defaultdict(lambda: np.zeros(7, np.int64))
        self._of_cold = {
            state: [0, 0] for state in (QUEUED, WAITING, DONE, GONE)
        }  # how many, and the sum of their weights
        self._open = set(zip(leased["crawl"].tolist(), leased["order"].tolist(), strict=True))

    def take(self, heads: Heads) -> None:
        """Counts some records."""
        tables = self._tables
        rows = tables.queues.find(np.ascontiguousarray(heads["queue"]))
        cold = rows == NONE
        if cold.any():
            homeless = int(cold.sum()) - int(tables.cold.have_queues(heads["queue"][cold], heads["crawl"][cold]).sum())
            if homeless:
                self.problems.append(f"{homeless} URLs name a queue that does not exist")
                return
        self._look_up(heads)
        states = heads["state"].copy()
        if self._open:
            places = zip(heads["crawl"].tolist(), heads["order"].tolist(), strict=True)
            states[np.array([place in self._open for place in places], np.bool_)] = LEASED
        for state, number in enumerate(np.bincount(states, minlength=7).tolist()):
            self.counts[state] += number
        for crawl in np.unique(heads["crawl"]).tolist():
            self._of_crawls[crawl] += np.bincount(states[heads["crawl"] == crawl], minlength=7)
        for state, column in self._of_queues.items():
            np.add.at(column, rows[(states == state) & ~cold], 1)
            some = heads["queue"][(states == state) & cold]
            if state in self._of_cold:
                self._of_cold[state][0] += len(some)
                self._of_cold[state][1] += weigh(some, state)
            elif len(some):
                self.problems.append(f"{len(some)} URLs of cold hosts are {STATES[state].value}")
        if (cold & (states == LEASED)).any():
            self.problems.append("URLs of cold hosts are leased")

    def _look_up(self, heads: Heads) -> None:
        for crawl in np.unique(heads["crawl"]).tolist():
            some = heads[heads["crawl"] == crawl]
            crawls, slots, prints = (some[name] for name in ("crawl", "slot", "fingerprint"))
            if crawl in self._tables.crawls.callers:
                known, own = self._tables.urls.seen.slots_of(crawl, prints)
                known &= own == slots
            else:
                known = self._tables.urls.seen.check(crawls, slots, prints)
            self._unseen += len(some) - int(np.count_nonzero(known))

    def wake(self) -> None:
        """Counts URLs as queued that left the calendars: their records still say waiting."""
        urls = self._tables.urls
        woken = self.counts[WAITING] - (len(urls.calendar) + len(urls.planned) - urls.void_waiting)
        if woken >= 0:
            self.counts[WAITING] -= woken
            self.counts[QUEUED] += woken

    def wrong_totals(self) -> Iterator[str]:
        """Yields totals that differ from the records."""
        tables, counts = self._tables, self.counts
        if self._unseen:
            yield f"{self._unseen} URLs have no key in the seen-set"
        for state, counted in enumerate(tables.urls.counts):
            if state and counts[state] != counted:
                yield f"{STATES[state].value}: the counter says {counted}, the records say {counts[state]}"
        queued = len(tables.urls.backlog) + tables.cold.queued
        if queued < counts[QUEUED]:
            yield f"{counts[QUEUED]} URLs are queued, the queues contain {queued}"
        transit = sum(len(home.outbox) for home in tables.transit.homes.values())
        if transit != tables.transit.under_way:
            yield f"in_transit: the counter says {tables.transit.under_way}, the outboxes contain {transit}"

    def wrong_queues(self) -> Iterator[str]:
        """Yields, for each count, the first queue where it differs from the records."""
        queues, each = self._tables.queues, self._of_queues
        columns = {"parked": (each[PARKED], queues.parked), "done": (each[DONE], queues.done)}
        columns |= {"gone": (each[GONE], queues.gone)}
        columns |= {"open": (each[QUEUED] + each[LEASED] + each[WAITING] + each[PARKED], queues.open)}
        for word, (there, column) in columns.items():
            wrong = np.flatnonzero(there != column[: queues.count])
            if len(wrong):
                row = int(wrong[0])
                name = self._tables.key_of(row)
                yield f"queue {name}: {int(column[row])} {word} are counted, there are {int(there[row])}"

    def wrong_crawls(self) -> Iterator[str]:
        """Yields the counts of crawls that differ from the records and queues. A record says waiting of URLs that are
        queued since they were due, so both states are compared together."""
        tables, queues = self._tables, self._tables.queues
        for name, crawl in tables.crawls.rows.items():
            told, there = np.array(tables.urls.counts_of(crawl)), self._of_crawls[crawl].copy()
            for counts in (told, there):
                counts[WAITING] += counts[QUEUED]
                counts[QUEUED] = 0
            own = queues.crawl[: queues.count] == crawl
            with_open = own & (queues.open[: queues.count] > 0)
            found = int(np.count_nonzero(own)), int(np.count_nonzero(with_open))
            counted = tuple(queues.of_crawls.get(crawl, (0, 0)))
            if (told != there).any() or found != counted:
                yield (
                    f"crawl {name}: {told.tolist()} URLs and {counted} queues are counted, there are {there.tolist()} "
                    f"and {found}"
                )
        for crawl in tables.cold.crawls_with_wrong_counts(tables.crawls.gone):
            yield f"crawl {tables.crawls.name_of(crawl)}: its queues at cold hosts are not those that are counted"

    def wrong_cold(self) -> Iterator[str]:
        """Yields totals of cold hosts that differ from the records."""
        told, weights = self._tables.cold.totals(self._tables.crawls.gone)
        for state, (count, weight) in self._of_cold.items():
            if (count, weight & 0xFFFF_FFFF_FFFF_FFFF) != (told[state], weights[state]):
                yield f"cold hosts: {told[state]} {STATES[state].value} are counted, there are {count}"


def _wrong_turns(tables: Tables) -> Iterator[str]:
    """Yields up to ten hosts whose count of turns differs from their number of open requests."""
    turns = np.zeros(tables.hosts.count, np.int64)
    np.add.at(turns, tables.queues.host[tables.urls.requests_open()], 1)
    for errand in tables.errands.open.values():
        if errand.busy != NONE and errand.token not in tables.hosts.rested.ends:
            turns[errand.busy] += 1
    wrong = np.flatnonzero(turns != tables.hosts.in_flight[: tables.hosts.count])
    for row in wrong[:10].tolist():
        yield (
            f"host {tables.hosts.name(row)}: {int(tables.hosts.in_flight[row])} turns are used, "
            f"{int(turns[row])} requests are open"
        )
    yield from _wrong_rested(tables)


def _wrong_rested(tables: Tables) -> Iterator[str]:
    """Yields requests that are over although their lease is not open, and hosts that count others."""
    tokens = np.array(list(tables.hosts.rested.ends), np.uint64)
    leases = tables.urls.by_token(tokens, bodies=False)
    hosts: Counter[int] = Counter(tables.queues.host[leases.queues[leases.found]].tolist())
    for token in tokens[~leases.found].tolist():
        errand = tables.errands.open.get(token)
        if errand is None:
            yield f"lease {token}: its request is over, and it is not open"
        else:
            hosts[errand.busy] += 1
    if hosts != tables.hosts.rested.hosts():
        yield "hosts count other leases whose request is over than there are"
