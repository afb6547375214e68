"""The calls that only read a frontier. Most answers are made by `statuses.py`, `census.py`, `listing.py` and so on."""

from __future__ import annotations

import heapq
from collections.abc import Generator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np

from outrider.clock import Instant
from outrider.frontier.state.authorities import RobotsState
from outrider.frontier.state.host_addresses import HostAddress
from outrider.frontier.state.hosts import NONE, Rows
from outrider.frontier.state.url_table import LEASED, QUEUED, WAITING
from outrider.frontier.stores.ledger import Key
from outrider.frontier.verbs import arguments, host_lists, statuses
from outrider.frontier.verbs.census import Census, ScheduleCounts, cold_with_urls, robots_counts, schedule_counts, waits
from outrider.frontier.verbs.closed_hours import ClosedHours
from outrider.frontier.verbs.deciding import Core, Part
from outrider.frontier.verbs.discovering import Discovering
from outrider.frontier.verbs.domain_counts import fullest_domains
from outrider.frontier.verbs.explaining import idle
from outrider.frontier.verbs.leasing import Leasing
from outrider.frontier.verbs.listing import (
    Reading,
    UrlFilter,
    after_of,
    chosen_heads,
    gathered,
    listed,
    parked_by_reason,
    state_number,
)
from outrider.frontier.verbs.operations import Operations
from outrider.frontier.verbs.recount import recount
from outrider.frontier.verbs.single_urls import SingleUrls
from outrider.journey import (
    HostStatus,
    Idle,
    LeaseBatch,
    ListPage,
    QueueStatus,
    RobotsStatus,
    State,
    UrlName,
    UrlStatus,
    Verification,
    Waits,
    WorkerStatus,
)
from outrider.kernels.card_layout import Heads
from outrider.limits import HELD_ROWS_MAX, RETRIED_ROWS_AT_ONCE
from outrider.robots import Rules
from outrider.url import authority_of, spell


class Queries(Part):
    """The part of the machine that answers queries."""

    def __init__(
        self, core: Core, links: Discovering, leases: Leasing, operators: Operations, urls: SingleUrls
    ) -> None:
        super().__init__(core)
        self._links, self._leases, self._operators, self._urls = links, leases, operators, urls

    def seen_content(self, digests: Sequence[bytes]) -> list[bool]:
        """Returns whether content with each digest was accepted for any URL."""
        hashes = np.array(self.tables.content_hashes(digests), np.uint64)
        return self.tables.urls.seen.has_contents(hashes)

    def finished(self) -> bool:
        """Whether no work is left. URLs that are queued, leased, waiting, in transit or to be judged again are work,
        and open or needed errands."""
        counts = self.tables.urls.counts
        waiting = counts[QUEUED] or counts[LEASED] or counts[WAITING] or self.errands() or self.tables.transit.under_way
        return not (waiting or self._gates.again or self._gates.returning)

    def at_limit(self) -> bool:
        """Whether a budget ends the crawl: no page may be leased any more, or all other URLs are parked for a
        budget."""
        return self._core.budgets.ends(finished=self.finished(), parked=self._leases.spent())

    def errands(self, lined_up: int | None = None) -> int:
        """Returns how many errands are open or needed. An errand of a caller does not count while its host is closed,
        because an unreachable robots.txt does not keep a crawl running. lined_up: the number of awaited errands in
        errand queues, if a census counted them."""
        open_ones = {errand.host for errand in self.tables.errands.open.values() if isinstance(errand, HostAddress)}
        if lined_up is None:
            lined_up = sum(map(self.turns.is_awaited, chain.from_iterable(self.turns.errands_at.values())))
        lined_up += sum(host not in open_ones for host in self.turns.shared.seeking)
        lined_up += cold_with_urls(self.tables, seeks=self.turns.shared.asks).seeking
        closed = self.turns.closed_until
        queued = sum(not errand.token and not closed(errand) for errand in self.tables.errands.called)
        return len(self.tables.errands.open) + lined_up + queued

    def pages_need_errands(self) -> bool:
        """Whether pages wait for errands, and no call has ever leased errands in this process."""
        if self.tables.urls.unread is not None:
            return False  # pages of an unread slot may need none
        return self._core.errands_mode and not self.turns.runs_errands and self.errands() > 0

    def next_ready(self, now: Instant) -> Instant | None:
        """Returns the first instant at which anything can be leased: `now` if that is possible already, None if time
        alone changes nothing."""
        budgets = self._core.budgets
        if budgets.pages_left() <= 0:
            # A lease that ends without an answer returns its page.
            return None if budgets.is_over() else self._next_deadline(now)
        if self._gates.again or self._gates.unread or self._gates.returning or self._leases.releases_hosts():
            return now
        if self.tables.changed:
            return now  # a question brought a cold host with queued URLs back
        counts = self.tables.urls.counts
        if self.tables.urls.unread is not None and (counts[QUEUED] or counts[WAITING]):
            return now  # a call that leases reads more slots
        times = [
            self.turns.next(now),
            self._core.front.next(now),
            self.tables.urls.calendar.next(),
            self._next_deadline(now),
        ]
        times.append(self._core.revisits.next_at(now))
        known = [at for at in times if at is not None]
        if not known:
            return None
        if self._core.network.down and not self._leases.network_lets(max(now, self._core.network.until), 1):
            return self._next_deadline(now)  # the requests that try the network are under way
        rate = self._core.revisits.rate
        earliest = now if rate is None else rate.next_at(now)
        return max(now, earliest, self._core.network.until, min(known))

    def _next_deadline(self, now: Instant) -> Instant | None:
        found = self.tables.urls.leases.next()
        times = [found] if found >= 0 else []
        while self._gates.deadlines:
            deadline, token = self._gates.deadlines[0]
            errand = self.tables.errands.open.get(token)
            if errand is not None and errand.deadline == deadline:
                times.append(deadline)
                break
            heapq.heappop(self._gates.deadlines)
        return max(now, min(times)) if times else None

    def status(self, url: UrlName, crawl: str | None = None) -> UrlStatus:
        """Returns the status of one URL, by any spelling, in the default crawl or the named one."""
        row = self.tables.crawls.rows.get(crawl or "default")
        records = self._urls.records_of([url], row)[1] if row is not None else []
        if not records:
            return self._urls.unknown(url, row)
        return statuses.status_of(records[0], self.tables, self._urls.token_of(records[0]))

    def explain_idle(self, now: Instant) -> Generator[None, None, Idle]:
        """Returns why nothing, or no more, can be leased now. It yields between its steps."""
        census = yield from self._census(now)
        now = max(now, self._core.now)
        return idle(
            self.tables,
            now,
            census,
            next_at=self.next_ready(now),
            at_limit=self._core.budgets.pages_left() <= 0,
            errands_wanted=self._core.errands_mode and not self.turns.runs_errands,
            paused_until=self._core.network.until,
        )

    def _census(self, now: Instant) -> Generator[None, None, Census]:
        census = Census()
        closed = ClosedHours(self.tables, self.settings)
        yield from census.take(self.tables, self.turns, max(now, self._core.now), closed, self.settings.delay)
        census.errands = self.errands(census.errands)
        return census

    def waits(self, now: Instant, beyond_seconds: float, within_seconds: float | None) -> Generator[None, None, Waits]:
        """Returns hosts that have URLs and rest for longer than one and at most the other number of seconds. Raises
        SettingsError."""
        least = arguments.span("beyond_seconds", beyond_seconds)
        most = None if within_seconds is None else arguments.span("within_seconds", within_seconds)
        return waits(self.tables, self.turns, max(now, self._core.now), beyond_seconds=least, within_seconds=most)

    def queues(self, crawl: str | None, after: str | None, limit: int) -> ListPage[QueueStatus]:
        """Returns a piece of the list of queues."""
        return host_lists.list_queues(self.tables, crawl, after, limit)

    def hosts(
        self, now: Instant, state: str | None, after: str | None, limit: int
    ) -> Generator[None, None, ListPage[HostStatus]]:
        """Returns a piece of the list of hosts. It yields between its steps."""
        now = max(now, self._core.now)
        if state is None:
            return host_lists.list_hosts(self.tables, self.turns, now, after, limit)
        return host_lists.list_hosts_in(state, self.tables, self.turns, now, after, limit)

    def robots_files(
        self, after: str | None, bytes_max: int
    ) -> Generator[None, None, ListPage[tuple[RobotsStatus, bytes]]]:
        """Returns a piece of the list of robots.txt files with their bodies. It yields between its steps."""
        return host_lists.list_robots_files(self.tables, after, bytes_max)

    def fullest_domains(self, limit: int) -> Generator[None, None, list[tuple[str, int]]]:
        """Returns the domains with the most queued URLs, and their numbers. It yields between its steps."""
        return fullest_domains(self.tables, arguments.rows(limit))

    def _filter(self, state: str | None, host: str | None, crawl: str | None, key: str | None) -> UrlFilter:
        number = state_number(state)
        queues: Rows | None = None
        if host is not None:
            home = self._operators.host_named(host)
            queues = np.array(list(self.tables.queues_of(home)) if home != NONE else [], np.uint32)
        if key is not None:
            keyed = self._operators.chosen(key, crawl)
            queues = keyed if queues is None else np.intersect1d(queues, keyed)
        return UrlFilter(number, self._operators.crawl_row(crawl) if crawl is not None else None, queues)

    def urls(
        self,
        *,
        state: str | None,
        host: str | None,
        crawl: str | None,
        key: str | None,
        after: str | None,
        reason: str | None,
        limit: int,
    ) -> Reading[ListPage[UrlStatus]]:
        """Returns a piece of the list of URLs, in the order of their keys."""
        limit = arguments.rows(limit)
        wish = replace(self._filter(state, host, crawl, key), reason=arguments.name("reason", reason))
        return listed(self.tables, wish, self._core.woken, after_of(after), limit, self._urls.token_of)

    def given_up(self, error: str | None, host: str | None, after: Key | None) -> Reading[tuple[Heads, Key | None]]:
        """Returns heads of dead letters for `retry`, some at a time, and the key after them. Raises SettingsError."""
        if error is not None:
            arguments.text("error", error)
            arguments.unicode("error", error)
        wish = self._filter(State.GONE.value if error is None else None, host, None, None)
        mask_of = partial(self._urls.given_up_mask, error=error)
        return gathered(self.tables, wish, self._core.woken, after, RETRIED_ROWS_AT_ONCE, mask_of)

    def parked(self) -> Reading[dict[str, int]]:
        """Counts parked URLs by reason."""
        return parked_by_reason(self.tables, self._core.woken)

    def count(self, *, state: str | None, host: str | None, crawl: str | None, key: str | None) -> Reading[int]:
        """Counts the URLs that match."""
        if host is crawl is key is None:
            number = state_number(state)
            if number != 0:
                return self.tables.urls.accepted() if number is None else self.tables.urls.counts[number]
        count = 0

        def take(heads: Heads) -> bool:
            nonlocal count
            count += len(heads)
            return False

        yield from chosen_heads(self.tables, self._filter(state, host, crawl, key), self._core.woken, take)
        return count

    def statistics(self, now: Instant) -> Generator[None, None, dict[str, object]]:
        """Returns counts of URLs, hosts, errands and fetches, under the names of `status --json`. It yields between its
        steps."""
        census = yield from self._census(now)
        return self._statistics(census.errands, census)

    def metrics(self, now: Instant) -> Generator[None, None, dict[str, object]]:
        """Returns numbers of this process, of a census and of robots.txt files, in addition to those of `statistics`.
        It yields between its steps."""
        census = yield from self._census(now)
        files = yield from robots_counts(self.tables, max(now, self._core.now))
        return {
            "statistics": self._statistics(census.errands, census),
            "front": len(self.turns.ready) + len(self.turns.seekers) + len(self.tables.cold.front),
            "busiest": census.busiest,
            "largest": {name: count for count, name in census.largest},
            "robots_status": files.by_status,
            "robots_age_p95": files.age_p95,
            "found": self._core.delays.found,
            "due": self._core.delays.due,
        }

    def standing(self, now: Instant) -> ScheduleCounts:
        """Returns counts of hosts with URLs, from the schedule."""
        return schedule_counts(self.tables, self.turns, max(now, self._core.now), self._core.network.until)

    def tallies(self) -> dict[str, object]:
        """Returns the counts of URLs and fetches, whose cost does not grow with hosts or structures."""
        return statuses.url_counts(self.tables, errands=self.errands()) | statuses.fetch_counts(self.tables)

    def _revisits(self) -> dict[str, object] | None:
        found = self._core.revisits.statistics()
        return found if found is None or found["rule"] is None else found | self._core.signals.statistics()

    def _statistics(self, errands: int, census: Census) -> dict[str, object]:
        return statuses.statistics(
            self.tables,
            revisits=self._revisits(),
            errands=errands,
            census=census,
            shared=self.turns.shared,
            recent_bytes=self._core.recent.bytes(),
            memory_bytes=self.settings.memory_bytes,
        )

    def host(self, name: str, now: Instant) -> HostStatus | None:
        """Returns one host by any spelling; None for an unknown host."""
        row = self._operators.host_named(name)
        if row == NONE:
            return None
        return statuses.host_statuses(self.tables, (row,), max(now, self._core.now), self.turns)[0]

    def crawl_delays(self, authorities: Sequence[str]) -> list[float | None]:
        """Returns the Crawl-delay of each authority in seconds, or 0; None if its rules were not read. Raises
        SettingsError."""
        found: list[float | None] = []
        robots = self.tables.robots
        for name in arguments.authorities(authorities, robots.by_name):
            authority = robots.by_name.get(name)
            ruled = authority is not None and authority.state == RobotsState.RULES
            found.append(robots.rulebook.crawl_delay(authority.digest) if authority is not None and ruled else None)
        return found

    def robots_allow(self, urls: Sequence[str]) -> list[bool | None]:
        """Returns whether robots.txt allows each URL; None for an invalid URL, and if the robots.txt of its authority
        was not read. `/x?` is judged with its empty query, because it may be requested so, although its URL is `/x`."""
        found: list[bool | None] = []
        rulebook = self.tables.robots.rulebook
        rulebook.begin_call()
        texts = [arguments.text("url", url) for url in arguments.listed("urls", urls)]
        for text, url in zip(texts, spell(texts), strict=True):
            authority = self.tables.robots.by_name.get(authority_of(url)) if url is not None else None
            state = authority.state if authority is not None else RobotsState.UNKNOWN
            if url is None or authority is None or state in (RobotsState.UNKNOWN, RobotsState.RETRYING):
                found.append(None)
            elif state == RobotsState.RULES:
                digest = authority.digest
                rules = rulebook.rules(digest)
                if rules is None:
                    rules = Rules.parse(rulebook.body(digest)).of(rulebook.agent)
                    rulebook.keep(digest, rules)
                bare = text.partition("#")[0].endswith("?") and "?" not in url
                found.append(rules.allowed(f"{url}?" if bare else url))
            else:
                found.append(state == RobotsState.ALLOW)
        return found

    def workers(self) -> list[WorkerStatus]:
        """Returns the named workers with open leases, by name."""
        return statuses.workers(self.tables)

    def held(self, lease_id: int) -> LeaseBatch:
        """Returns the open leases of one call, by its first token: the following leases with its holder and deadline.
        Two calls at different instants cannot share both. Empty if that token is not open."""
        lease_id = arguments.lease_id(lease_id)
        tokens = np.arange(lease_id, lease_id + HELD_ROWS_MAX, dtype=np.uint64)
        found = self.tables.urls.by_token(tokens, bodies=False)
        held = {
            int(tokens[row]): (int(found.holders[row]), int(found.deadlines[row]))
            for row in np.flatnonzero(found.found).tolist()
        }
        for token, errand in self.tables.errands.open.items():
            if lease_id <= token < lease_id + HELD_ROWS_MAX:
                held[token] = (errand.holder, errand.deadline)
        wanted = held.get(lease_id)
        same = sorted(token for token, whose in held.items() if whose == wanted)
        return self._leases.same_leases(np.array(same, np.uint64).tobytes())

    def verify(self) -> Verification:
        """Counts everything again from the records and compares it with the counters."""
        return recount(self.tables)

    def pressure(self) -> float:
        """Returns the used share of the limit of URLs: from 1 on callers should slow down."""
        limit = self.settings.max_urls
        counts = self.tables.urls.counts
        return (counts[QUEUED] + counts[WAITING] + counts[LEASED]) / limit if limit else 0.0
