"""The calls of operators on queues and crawls."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from outrider.clock import Instant, instant
from outrider.errors import SettingsError
from outrider.frontier.format.facts import Fact
from outrider.frontier.policy.block_detection import is_silent
from outrider.frontier.policy.politeness import GapReason
from outrider.frontier.state.crawls import CrawlState
from outrider.frontier.state.hosts import NONE, QueueRules, Rows, words_of_crawls, words_of_keys
from outrider.frontier.state.tables import rules_cells
from outrider.frontier.verbs import arguments
from outrider.frontier.verbs.deciding import Core, Part
from outrider.frontier.verbs.discovering import Discovering
from outrider.frontier.verbs.draft import CrawlRules, Draft, check_rules
from outrider.frontier.verbs.robots_files import RobotsFiles
from outrider.journey import Unique
from outrider.limits import OWN_SLOT, WAKES_PER_CALL_MAX
from outrider.url import undotted


class Operations(Part):
    """The part of the machine that operators call."""

    def __init__(self, core: Core, links: Discovering, robots: RobotsFiles) -> None:
        super().__init__(core)
        self._links, self._robots = links, robots

    # -- queues and crawls --------------------------------------------------------------------------------------------

    def chosen(self, key: str | None, crawl: str | None) -> Rows:
        """Returns the queues with a key in a crawl. key None: all queues of the crawl; crawl None: all crawls for a
        key, else the default crawl. Raises SettingsError for an unknown crawl or key."""
        key, crawl = arguments.name("key", key), arguments.name("crawl", crawl)
        if key is None:
            row = self.crawl_row(crawl or "default")
            queues = self.tables.queues
            found: Rows = np.flatnonzero(queues.crawl[: queues.count] == row).astype(np.uint32)
            return found
        of_crawl = self.crawl_row(crawl) if crawl is not None else None
        rows = self._queues_with(key, of_crawl)
        if not rows:
            with contextlib.suppress(SettingsError):  # a text that is not a host name may still be a key
                rows = self._queues_with(arguments.host(key), of_crawl)
        if not rows and (of_crawl is not None or not self._word_of(key)):
            raise SettingsError(f"key {key!r:.200}: no queue has it; `queues` lists all keys")
        return np.array(sorted(rows), np.uint32)

    def _word_of(self, key: str) -> list[int]:
        """Returns the number of the order about a key in all crawls; nothing if there is no such order. The order
        remains after the queues of the key are deleted, and can be withdrawn without them."""
        number = int(words_of_keys(np.array([self.tables.hash_of(undotted(key))], np.uint64))[0])
        return [number] if number in self.tables.words else []

    def _queues_with(self, key: str, crawl: int | None) -> set[int]:
        """Returns the living queues with a key in this spelling, with or without a final dot, of one crawl or of
        all."""
        tables, spellings = self.tables, (undotted(key), undotted(key) + ".")
        rows = {queue for spelling in spellings for queue in tables.keys.queues_with(spelling, crawl)}
        return {row for row in rows if tables.crawls.states[int(tables.queues.crawl[row])] != CrawlState.DELETED}

    def host_named(self, host: str) -> int:
        """Returns the row of a host by any spelling, NONE for an unknown host. Raises SettingsError for an invalid host
        name."""
        name = arguments.listed_host(host)
        row = self.tables.host_row(name)
        return row if row != NONE else self.tables.host_row(name + ".")

    def crawl_row(self, crawl: str) -> int:
        row = self.tables.crawls.rows.get(crawl)
        if row is None:
            known = ", ".join(sorted(self.tables.crawls.rows)[:10])
            raise SettingsError(f"crawl {crawl!r:.200}: this frontier has no crawl of that name, only {known}")
        return row

    def pause(self, key: str | None, crawl: str | None, now: Instant, *, paused: bool) -> int:
        """Pauses or resumes queues: no URL of a paused queue is leased. Returns how many queues."""
        key, crawl = arguments.name("key", key), arguments.name("crawl", crawl)
        if key is None:
            row = self.crawl_row(crawl or "default")
            state = CrawlState.PAUSED if paused else CrawlState.RUNNING
            draft = self._core.draft(self._core.advance(now))
            draft.add(Fact.CRAWL_RULES, (OWN_SLOT, row, int(state)))
            self._core.commit(draft, reserve=True)
            self.turns.touch([self.turns.hops()], now)
            return self.tables.queues_in(row)[0]
        if paused:
            return self._rule(key, crawl, now, lambda rules: replace(rules, paused=True))
        queues = self.chosen(key, crawl)
        cells = self.tables.hosts.block_score[self.tables.queues.host[queues.astype(np.intp)]]
        silent = bool(is_silent(cells).any())
        woken = {"blocked_until": 0} if silent else {}
        count = self._rule(key, crawl, now, lambda rules: replace(rules, paused=False, **woken))
        self._forget_signs(queues, now)
        return count

    def _forget_signs(self, queues: Rows, now: Instant) -> None:
        """Forgets the signs of hosts that an operator resumes."""
        draft = self._core.draft(self._core.advance(now))
        for host in np.unique(self.tables.queues.host[queues.astype(np.intp)]).tolist():
            if self.tables.hosts.block_score[host]:
                draft.clock(host).block_score = 0
        self._core.commit(draft, reserve=True)

    def block_until(self, until: Instant, key: str | None, crawl: str | None, now: Instant) -> int:
        """Blocks these queues until an instant."""
        until = arguments.until(until)
        return self._rule(key, crawl, now, lambda rules: replace(rules, blocked_until=until))

    def set_delay(self, seconds: float | None, key: str | None, crawl: str | None, now: Instant) -> int:
        """Sets the least gap after a request of these queues, in seconds; None: the gap of the settings."""
        seconds = arguments.delay(seconds)
        return self._rule(key, crawl, now, lambda rules: replace(rules, delay=seconds))

    def set_limit(self, limit: int | None, key: str | None, crawl: str | None, now: Instant) -> int:
        """Sets how many requests of each of these queues may be open at once; None: one."""
        limit = arguments.requests_at_once(limit)
        return self._rule(
            key, crawl, now, lambda rules: replace(rules, limit=limit or 0), rests=limit is not None and limit > 1
        )

    def _rule(
        self,
        key: str | None,
        crawl: str | None,
        now: Instant,
        change: Callable[[QueueRules], QueueRules],
        *,
        rests: bool = False,
    ) -> int:
        """Changes the rules of present and later queues: of a crawl, or of a key in all crawls.

        rests: a host with an open request rests one whole delay, because another request may now begin during it.
        """
        tables = self.tables
        key, crawl = arguments.name("key", key), arguments.name("crawl", crawl)
        cold = tables.cold.scan() if key is None else iter(())
        rows = self.chosen(key, crawl)
        now = self._core.advance(now)
        self._note_word(key, crawl, rows, change, now)
        self._rule_these(rows, change, now, rests=rests)
        count = len(rows)
        of = self.crawl_row(crawl or "default") if key is None else NONE
        for told in cold:
            own = [place for place in range(len(told)) if any(queue.crawl == of for queue in told.queues(place))]
            if not own or not tables.recall(told.hashes[own]):
                continue
            homes = tables.hosts.find(told.hashes[own])
            queues = np.array([queue for home in homes.tolist() for queue in tables.queues_of(home)], np.uint32)
            mine = queues[tables.queues.crawl[queues] == of]
            self._rule_these(mine, change, now, rests=rests)
            count += len(mine)
            self._core.cooling.put_back(homes, now)
        self.turns.touch([self.turns.hops()], now)
        return count

    def rule_key(self, key: str, crawl: str, now: Instant, change: Callable[[QueueRules], QueueRules]) -> None:
        """Changes the rules of a key in one crawl, also before its first URL. Raises SettingsError for an unknown
        crawl."""
        tables, row = self.tables, self.crawl_row(crawl)
        if self._queues_with(key, row):
            self._rule(key, crawl, now, change)
            return
        draft = self._core.draft(self._core.advance(now))
        (number,) = tables.words_ahead([undotted(key)], np.array([row], np.uint32))
        draft.add(Fact.QUEUE_RULES, rules_cells(OWN_SLOT, number, change(tables.words.get(number) or QueueRules())))
        self._core.commit(draft, reserve=True)

    def _note_word(
        self,
        key: str | None,
        crawl: str | None,
        rows: Rows,
        change: Callable[[QueueRules], QueueRules],
        now: Instant,
    ) -> None:
        """Notes the change for later queues. A key in one crawl needs no note, because its later queues use the rules
        of its present ones."""
        tables = self.tables
        if key is None:
            numbers = words_of_crawls(np.array([self.crawl_row(crawl or "default")], np.uint32)).tolist()
        elif crawl is None:
            names = sorted({tables.key_of(queue) for queue in rows.tolist()})  # in the spelling of queues
            numbers = words_of_keys(np.array([tables.hash_of(name) for name in names], np.uint64)).tolist()
            numbers = numbers or self._word_of(key)
        else:
            return
        draft = self._core.draft(now)
        for number in numbers:
            rules = change(tables.words.get(number) or QueueRules())
            draft.add(Fact.QUEUE_RULES, rules_cells(OWN_SLOT, number, rules))
        self._core.commit(draft, reserve=True)

    def _rule_these(self, rows: Rows, change: Callable[[QueueRules], QueueRules], now: Instant, *, rests: bool) -> None:
        for first in range(0, len(rows), WAKES_PER_CALL_MAX):
            some = rows[first : first + WAKES_PER_CALL_MAX]
            draft = self._core.draft(now)
            slower: dict[int, float] = {}  # hosts that rest longer, with the longest delay of their queues
            for queue in some.tolist():
                rules = change(self.tables.queues.rules.get(queue) or QueueRules())
                draft.add(Fact.QUEUE_RULES, self.tables.queue_rules(queue, rules))
                host = int(self.tables.queues.host[queue])
                if rests and self.tables.hosts.in_flight[host]:
                    self._rests.whole(draft, host, self._rests.floor_of_host(host), now, over=False)
                delay = self._rests.floor_under(rules)
                if delay > self._rests.floor(queue):
                    slower[host] = max(delay, slower.get(host, 0.0))
            for host, delay in slower.items():
                self._rest_longer(draft, host, delay)
            self._core.commit(draft, reserve=True)

    def _rest_longer(self, draft: Draft, host: int, delay: float) -> None:
        """Extends the rest after a host's last request to at least a delay. A rest that is over stays over."""
        hosts = self.tables.hosts
        until = int(hosts.rest_until[host])
        if until <= draft.now:
            return
        # After a lease without a report, or with several open leases, the last request may be younger than the last
        # reported end. The length of the booked rest shows its time.
        floor = min(map(self._rests.floor, self.tables.queues_of(host)))
        last = max(int(hosts.ended[host]), until - instant(max(float(hosts.gap[host]), floor)))
        longer = min(last, draft.now) + instant(delay)
        if longer > until:
            clock = draft.clock(host)
            clock.rest_at_least(longer)
            if delay > clock.gap:
                clock.gap, clock.reason = delay, int(GapReason.FLOOR)  # so the next rest in doubt is as long

    def recheck(self, host: str, now: Instant) -> tuple[int, list[str]]:
        """Drops all verdicts on robots.txt files of a host, as `RobotsFiles.recheck`. Raises SettingsError for an
        unknown host."""
        row = self.host_named(arguments.text("host", host))
        if row == NONE:
            raise SettingsError(f"host {host!r:.200}: this frontier has no such host; `hosts` lists all hosts")
        return self._robots.recheck(row, now)

    def delete(self, key: str | None, crawl: str | None, now: Instant) -> int:
        """Deletes these queues, or a whole crawl, as if they had never existed: one fact each, in one frame. Returns
        how many queues."""
        key, crawl = arguments.name("key", key), arguments.name("crawl", crawl)
        now = self._core.advance(now)
        tables = self.tables
        draft = self._core.draft(now)
        if key is None:
            row = self.crawl_row(crawl or "default")
            count, _ = tables.queues_in(row)
            draft.add(Fact.CRAWL_RULES, (OWN_SLOT, row, int(CrawlState.DELETED)))
            self._core.commit(draft, reserve=True)
            tables.leaving.drop(WAKES_PER_CALL_MAX)
            return count
        rows = self.chosen(key, crawl)
        for queue in rows.tolist():
            slot = int(tables.hosts.slot[tables.queues.host[queue]])
            draft.add(Fact.VOID, (slot, int(tables.queues.hash[queue]), tables.urls.order))
        self._core.commit(draft, reserve=True)
        return len(rows)

    def make_crawl(self, name: str, unique: str, order: str, now: Instant) -> bool:
        """Makes a crawl. Returns whether it is new. Raises SettingsError for a crawl with other rules."""
        found, rules = crawl_name(name), CrawlRules(arguments.unique(unique), arguments.order(order))
        now = self._core.advance(now)
        crawls = self.tables.crawls
        row = crawls.rows.get(found)
        if row is not None:
            unique_by = Unique.CALLER if row in crawls.callers else Unique.URL
            check_rules(found, CrawlRules(unique_by, crawls.order_of(row)), rules)
            return False
        draft = self._core.draft(now)
        draft.make_crawl(found, rules)
        self._core.commit(draft, reserve=True)
        return True


def crawl_name(value: object) -> str:
    """Returns the name of a crawl that is made. Raises SettingsError."""
    found = arguments.name("crawl", value)
    if found is None:
        raise SettingsError("crawl None: a crawl needs a name")
    return found
