"""lease: draws ready queues, checks that their URLs may be fetched, and gives tokens for them."""

from __future__ import annotations

import heapq
import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from outrider.clock import Instant, instant
from outrider.errors import SettingsError, StoreFullError
from outrider.frontier.format.cards import Cards
from outrider.frontier.format.facts import Fact
from outrider.frontier.format.records import Record
from outrider.frontier.schedule.turns import EMPTY
from outrider.frontier.state.errands import Judgement
from outrider.frontier.state.hosts import (
    GROUPED,
    ROBOTS,
    VOIDED,
    Group,
    Rows,
)
from outrider.frontier.state.tables import (
    GONE,
    LEASED,
    PARKED,
    QUEUED,
    Authority,
    Hand,
    Reason,
    RobotsState,
)
from outrider.frontier.verbs import arguments
from outrider.frontier.verbs.asking import Asking
from outrider.frontier.verbs.draft import Draft
from outrider.frontier.verbs.leased import Leased, errand_lease
from outrider.journey import (
    Lease,
    LeaseBatch,
    RequestId,
)
from outrider.limits import (
    CALL_ROWS_MAX,
    OLDEST_DRAW_EVERY,
    ROBOTS_REFUSALS_PER_CALL_MAX,
)
from outrider.url import authority_of

_NOT_ALONE = ~np.uint8(VOIDED | GROUPED | ROBOTS)  # flags of hosts that need a closer look
_NO_ROWS: Rows = np.zeros(0, np.uint32)
_NO_PLACES = np.zeros(0, np.intp)
_NOTHING = (Cards.none(), _NO_ROWS, np.zeros(0, np.int64))


class _Picks:
    """The pages that a lease call has drawn: cards, the rows of their queues, and the gap between the URLs of one
    queue."""

    def __init__(self) -> None:
        self._cards: list[Cards] = []
        self._queues: list[Rows] = []
        self._gaps: list[Instant] = []
        self.count = 0

    def add(self, cards: Cards, queues: Rows, gap: Instant = 0) -> None:
        self._cards.append(cards)
        self._queues.append(queues)
        self._gaps.append(gap)
        self.count += len(cards)

    def columns(self, now: Instant) -> tuple[Cards, Rows, npt.NDArray[np.int64]]:
        """All cards and queues, and the instants before which the URLs must not be fetched."""
        if not self.count:
            return _NOTHING
        cards = Cards.concatenate(self._cards)
        queues = self._queues[0] if len(self._queues) == 1 else np.concatenate([_NO_ROWS, *self._queues])
        not_before = np.full(len(cards), now, np.int64)
        if any(self._gaps):
            at = 0
            for some, gap in zip(self._queues, self._gaps, strict=True):
                not_before[at : at + len(some)] += np.arange(len(some)) * gap
                at += len(some)
        return cards, queues, not_before


class Leasing(Asking):
    """The part of the machine that gives leases."""

    _odd = 0  # how `_seekers_share` halved an odd number the last time: 1 rounded up

    def lease(
        self,
        want: int,
        now: Instant,
        *,
        ttl_seconds: float = 60,
        per_queue: int = 1,
        crawl: str | None = None,
        key: str | None = None,
        worker: str | None = None,
        errands: bool = False,
        request_id: RequestId | None = None,
    ) -> LeaseBatch:
        """Up to `want` leases of queues whose clocks allow it now. Raises SettingsError for numbers that make no
        sense."""
        arguments.whole("want", want, 0, CALL_ROWS_MAX)
        arguments.whole("per_queue", per_queue, 1, CALL_ROWS_MAX)
        arguments.ttl(ttl_seconds)
        arguments.flag("errands", errands)
        for what, name in (("crawl", crawl), ("key", key), ("worker", worker)):
            arguments.name(what, name)
        tables = self.tables
        now = self._advance(now)
        self._wake(now)
        known = self._repeated(request_id, "lease")
        if known:  # empty where the leases never reached the caller
            return self._same_leases(known)
        if errands and not self.turns.runs_errands:
            self.turns.runs_errands = True
            self.turns.touch([np.fromiter(self.turns.errands_at, np.uint32)], now)
        refusals = ROBOTS_REFUSALS_PER_CALL_MAX
        self._rulebook.begin_call()
        if self._recheck:
            # Half of them are left for URLs that are drawn, or nobody would be leased until all are judged.
            refusals = max(refusals - self._judge_again(now, refusals - refusals // 2), refusals // 2)
        draft = self._draft(now)
        holder = draft.holder(worker)
        first = self._next_token()
        deadline = now + instant(ttl_seconds)
        row = tables.crawl_rows.get(crawl) if crawl is not None else None
        pages_left = self._pages_left()
        picks = _Picks()
        asked: list[Authority] = []
        sought: list[int] = []  # hosts that get an errand for their address
        tried: list[Rows] = []
        lapsed: list[Rows] = []
        taken: set[int] = set()  # hosts that gave a URL or an errand in a closer look
        groups: set[Group] = set()
        claimed = False
        key = None if key is None else self.turns.key_meant(key)
        by_key = self.turns.queues_by_key(key, row) if key is not None and (crawl is None or row is not None) else None
        plain = per_queue == 1 and self.settings.max_pages_per_host is None
        seeks = errands and (crawl is None or row is not None)
        if seeks:
            sought += self.turns.seekers_of(self._seekers_share(min(want, pages_left)), row, key)
        while (left := min(want - picks.count - len(asked) - len(sought), pages_left - picks.count)) > 0 < refusals:
            if crawl is not None and row is None:
                break
            if by_key is not None:
                drawn, by_key = by_key[:left], by_key[left:]
                self.turns.ready.withdraw(drawn)
            else:
                drawn = np.frombuffer(self.turns.ready.draw(left, row), np.uint32)
            if not len(drawn):
                if lapsed:
                    self.turns.touch(lapsed, now)
                    lapsed = []
                    by_key = self.turns.queues_by_key(key, row) if key is not None else None
                    continue
                if claimed or not self.turns.claim(row, key, left, now):
                    break
                claimed = True  # the next round draws the claimed hosts, or ends the loop
                by_key = self.turns.queues_by_key(key, row) if key is not None else None
                continue
            claimed = False
            hosts = tables.queues.host[drawn.astype(np.intp)]
            tried.append(hosts)
            if self.turns.shared is not None:
                self.turns.shared.hold(hosts)
                over = ~self.turns.shared.may_go(hosts, now)
                if np.count_nonzero(over):  # a clock of their groups moved on, or their addresses expired
                    lapsed.append(hosts[over])
            alone = self._may_go(hosts, now, errands) if plain else np.zeros(len(drawn), np.bool_)
            count = np.count_nonzero(alone)
            odd = _NO_PLACES if count == len(drawn) else np.flatnonzero(~alone)
            if count:
                some, homes = (drawn, hosts) if count == len(drawn) else (drawn[alone], hosts[alone])
                found, cards = tables.backlog.take(some)  # each host comes once: it has no other queue
                if len(cards) < count:
                    some, homes = some[found], homes[found]
                go, judged = self._judge_drawn(some, homes, cards, refusals, now)
                refusals -= judged
                if go is None:
                    picks.add(cards, some)
                else:
                    picks.add(cards.filter(go), some[go])
                    odd = np.concatenate([odd, np.flatnonzero(np.isin(drawn, some[~go]))])
                if not len(odd):
                    continue
            for queue, host in zip(drawn[odd].tolist(), hosts[odd].tolist(), strict=True):
                if refusals <= 0 or picks.count + len(asked) + len(sought) >= want or picks.count >= pages_left:
                    break
                if host in taken:
                    continue
                got, errand, judged_away = self._look_closely(
                    draft,
                    queue,
                    host,
                    now,
                    most=min(per_queue, want - picks.count - len(asked) - len(sought), pages_left - picks.count),
                    deadline=deadline,
                    crawl=row,
                    key=key,
                    errands=errands,
                    groups=groups,
                    refusals=refusals,
                    picks=picks,
                )
                refusals -= judged_away
                if got or errand is not None:
                    taken.add(host)
                if errand is not None:
                    asked.append(errand)
        if seeks and pages_left > picks.count:
            self.turns.touch(lapsed, now)
            sought += self.turns.seekers_of(want - picks.count - len(asked) - len(sought), row, key)
        if sought:
            tried.append(np.array(sought, np.uint32))
        cards, queues, not_before = picks.columns(now)
        self._log_leases(draft, cards, queues, not_before, asked, sought, first, deadline, holder)
        given = picks.count + len(asked) + len(sought)
        if request_id is not None and given:
            tokens = b"".join(struct.pack("<Q", first + place) for place in range(given))
            self._answered(draft, request_id, "lease", tokens)
        draft.drawn.append((queues, cards))
        try:
            self._commit(draft, reserve=True)
        except (SettingsError, StoreFullError):
            self.turns.touch(tried, now)
            raise
        if sum(map(len, tried)) > picks.count or taken:
            self.turns.touch(tried, now)
        if not given:
            return LeaseBatch((), lines=self._take_lines(draft), lsn=self.lsn)
        opened = [tables.errands[token] for token in range(first + picks.count, first + given)]
        errand_leases = [errand_lease(errand, tables, now) for errand in opened]
        leases = Leased(tables, first, cards, queues, not_before, deadline, errand_leases)
        for one in opened:
            if isinstance(one, Authority):
                one.begun = now
            heapq.heappush(self._deadlines, (one.deadline, one.token))
        return LeaseBatch(leases, lines=self._take_lines(draft), lsn=self.lsn)

    def _seekers_share(self, most: int) -> int:
        """How many leases of a call go to errands for addresses: half while hosts are ready (an odd number is rounded
        up and down by turns), all while none is ready."""
        if not len(self.turns.seekers) or most <= 0:
            return 0
        if not len(self.turns.ready):
            return most
        self._odd = 1 - self._odd
        return (most + self._odd) // 2

    def _may_go(self, hosts: Rows, now: Instant, errands: bool) -> npt.NDArray[np.bool_]:
        """Which of these hosts, each the first of its name, may be visited as far as clocks and flags tell. Robots
        rules judge their URLs afterwards. errands: a host that waits for one needs a closer look."""
        columns, places = self.tables.hosts, hosts.astype(np.intp)
        good: npt.NDArray[np.bool_] = columns.rest_until[places] <= now
        busy = columns.in_flight[places]
        if np.count_nonzero(busy):
            good &= busy == 0
        flags = columns.flags[places]
        if np.count_nonzero(flags):
            good &= (flags & _NOT_ALONE) == 0
        if self.turns.shared is not None:
            good &= self.turns.shared.may_go(hosts, now)
        waiting = self.turns.errands_at
        if errands and waiting:
            good &= np.array([host not in waiting for host in hosts.tolist()], np.bool_)
        return good

    def _judge_drawn(
        self, queues: Rows, hosts: Rows, cards: Cards, budget: int, now: Instant
    ) -> tuple[npt.NDArray[np.bool_] | None, int]:
        """Which of these cards, one of each queue, robots rules allow (None: all), and how much of the budget of
        verdicts that took. The other cards go back into their queues: their hosts need a closer look."""
        flags = self.tables.hosts.flags[hosts.astype(np.intp)]
        if not self.errands_mode and not np.count_nonzero(flags):
            return None, 0
        ruled = (flags & ROBOTS) != 0
        go = np.ones(len(cards), np.bool_)
        judged = 0
        for place, url in enumerate(cards.urls()):
            if judged >= budget:
                go[place:] = False
                break
            if self.errands_mode or ruled[place]:
                authority = self.tables.authority(authority_of(url))
                go[place] = self._judge(authority, url, now) is Judgement.GO
                judged += self._looked_at(authority)
        if go.all():
            return None, judged
        back = np.flatnonzero(~go)
        self.tables.backlog.put(queues[back], cards.take(back))
        return go, judged

    def _look_closely(
        self,
        draft: Draft,
        queue: int,
        host: int,
        now: Instant,
        *,
        most: int,
        deadline: Instant,
        crawl: int | None,
        key: str | None,
        errands: bool,
        groups: set[Group],
        refusals: int,
        picks: _Picks,
    ) -> tuple[int, Authority | None, int]:
        """Draws from a host that needs more than a look at its clock: (URLs picked, errand, URLs judged away)."""
        tables = self.tables
        columns = tables.hosts
        if columns.rest_until[host] > now:
            return 0, None, 0
        if self.turns.shared is not None and not self.turns.shared.may_go(np.array([host], np.uint32), now)[0]:
            return 0, None, 0
        if columns.flags[host] & GROUPED:
            most = 1  # several URLs would not keep the gaps of its groups
        errand = self._errand_at(draft, host, now) if errands else None
        if errand is not None:
            return 0, errand, 0
        chosen = self._queue_of(host, crawl, key, now, groups)
        if chosen is None:
            return 0, None, 0
        gap = 0
        several = self.turns.room(host) > 1
        if most > 1 or several:
            gap = self._gap(host, self._floor(chosen))
            # A URL whose turn comes after the deadline would be lost, and gone in the end.
            most = min(most, 1 + (deadline - now - 1) // gap) if gap else most
        cards, judged_away = self._take(draft, chosen, host, most, refusals, now)
        if not len(cards):
            # `_take` may have lined up an errand: it goes first.
            return 0, self._errand_at(draft, host, now) if errands else None, judged_away
        picks.add(cards, np.full(len(cards), chosen, np.uint32), gap)
        if several:
            # Several requests at once: their beginnings keep the gap, for their ends are not known yet.
            draft.clock(host).rest_at_least(now + len(cards) * gap)
        tables.turn += 1
        tables.queues.served[chosen] = tables.turn & 0xFFFFFFFF
        columns.turns[host] += 1
        group = tables.queues.group_of.get(chosen)
        if group is not None:
            groups.add(group)
        return len(cards), None, judged_away

    def _errand_at(self, draft: Draft, host: int, now: Instant) -> Authority | None:
        """The authority whose errand goes to this host now. The errand comes before the host's pages; with several
        requests at once it takes the next free one, and keeps the gap between their beginnings."""
        if host not in self.turns.errands_at:
            return None
        room = self.turns.room(host)
        errand = self.turns.errand_for(host, now) if self.tables.hosts.in_flight[host] < room else None
        if errand is not None and room > 1:
            draft.clock(host).rest_at_least(now + self._gap(host, self._floor_of_host(host)))
        return errand

    def _gap(self, host: int, floor: float) -> Instant:
        """The gap between the beginnings of requests to a host whose ends are not known yet."""
        return instant(max(float(self.tables.hosts.gap[host]), floor, self._crawl_delay(host)))

    def _log_leases(
        self,
        draft: Draft,
        cards: Cards,
        queues: Rows,
        not_before: npt.NDArray[np.int64],
        asked: Sequence[Authority],
        sought: Sequence[int],
        first: int,
        deadline: Instant,
        holder: int,
    ) -> None:
        tables, rows = self.tables, len(cards)
        if rows:
            heads = cards.changed()
            old = cards.heads["state"]
            assert old.tobytes().count(QUEUED) == rows
            heads["state"] = LEASED
            draft.add_columns(
                Fact.LEASE,
                [
                    heads["slot"],
                    tables.queues.hash[queues.astype(np.intp)],
                    heads["fingerprint"],
                    heads["order"],
                    np.arange(first, first + rows, dtype=np.uint64),
                    np.full(rows, deadline, np.int64),
                    np.full(rows, holder, np.uint32),
                    not_before,
                ],
                Hand(cards.with_heads(heads), old, queues),
            )
        for place, authority in enumerate(asked):
            self._name(draft, authority)
            self._open_errand(draft, authority, first + rows + place, deadline, holder)
        for token, host in enumerate(sought, first + rows + len(asked)):
            hosts = tables.hosts
            draft.add(Fact.LOCATING, (int(hosts.slot[host]), int(hosts.hash[host]), token, deadline, holder))

    def _spent(self) -> bool:
        """Whether URLs are parked for a budget. The count decides, too: `spent` may hold cards of deleted queues."""
        return len(self.tables.spent) > 0 and self.tables.counts[PARKED] > 0

    def _pages_left(self) -> int:
        limit = self.settings.max_pages
        if limit is None:
            return CALL_ROWS_MAX
        # This counts leases, not leased URLs: leases of deleted URLs are in flight, too.
        return limit - self.tables.tallies.get("answered", 0) - len(self.tables.leases)

    def _next_token(self) -> int:
        """Epoch (the number of the opening) and counter: tokens grow within an opening and across openings."""
        return max(self.tables.token + 1, self.tables.opening[0] << 40)

    def _queue_of(self, host: int, crawl: int | None, key: str | None, now: Instant, taken: set[Group]) -> int | None:
        """The next queue of a host: the best class first, among equals the queue that was served longest ago."""
        tables = self.tables
        queues = tables.queues
        # Every OLDEST_DRAW_EVERY turns the class does not count, so that no crawl waits for ever behind a better one.
        fair = int(tables.hosts.turns[host]) % OLDEST_DRAW_EVERY == OLDEST_DRAW_EVERY - 1
        best: tuple[int, int, int] | None = None
        chosen: int | None = None
        rows = list(tables.queues_of(host))
        busy = int(tables.hosts.in_flight[host])
        for queue, klass in zip(rows, tables.backlog.best(np.array(rows, np.uint32)).tolist(), strict=True):
            if busy and busy >= self.turns.capacity(queue):
                continue
            if klass == EMPTY or (crawl is not None and queues.crawl[queue] != crawl):
                continue
            if key is not None and tables.key_of(queue) != key:
                continue
            group = queues.group_of.get(queue)
            if group is not None and group in taken:
                continue
            at = self.turns.free_at(queue, 0)
            if at is None or at > now:
                continue
            rank = (0 if fair else -klass, int(queues.served[queue]), queue)
            if best is None or rank < best:
                best, chosen = rank, queue
        return chosen

    def _take(self, draft: Draft, queue: int, host: int, most: int, budget: int, now: Instant) -> tuple[Cards, int]:
        """Takes up to `most` URLs of a queue that may be fetched now. Returns them, and how many were judged away; it
        stops at `budget`."""
        tables = self.tables
        row = np.array([queue], np.uint32)
        picked: list[Cards] = []
        judged_away = 0
        limited = self.settings.max_pages_per_host is not None
        left = self.turns.pages_left(host) if limited else 0
        busy = int(tables.hosts.in_flight[host])
        while len(picked) < most and judged_away < budget:
            if limited and 0 < left <= busy + len(picked):
                break  # pages in flight may use the budget up
            found, cards = tables.backlog.take(row)
            if not found[0]:
                break
            if limited and left <= 0:
                draft.drawn.append((row, cards))
                record = Record.of(cards, 0)
                self._move(draft, record, PARKED, Reason.BUDGET)
                draft.record(record, QUEUED)
                judged_away += 1
                continue
            if not self.errands_mode and not tables.hosts.flags[host] & ROBOTS:
                picked.append(cards)
                continue
            url = cards.url(0)
            authority = tables.authority(authority_of(url))
            verdict = self._judge(authority, url, now)
            judged_away += self._looked_at(authority)
            if verdict is Judgement.GO:
                picked.append(cards)
                continue
            judged_away += 1
            if verdict is not Judgement.HOLD and verdict is not Judgement.READ:
                draft.drawn.append((row, cards))
                self._refuse(draft, Record.of(cards, 0), authority, verdict, now)
                continue
            tables.held.put(np.array([authority.shelf], np.uint32), cards)
            tables.held_of[queue] = tables.held_of.get(queue, 0) + 1
            authority.held += 1
            authority.klass = max(authority.klass, int(cards.heads["klass"][0]))
            if verdict is Judgement.READ:
                self._unread[authority.name] = authority
            else:
                self._line_up(authority)
            if picked or verdict is Judgement.READ:  # most other URLs of the queue wait for the same rules
                break
        return Cards.concatenate(picked), judged_away

    def _refuse(self, draft: Draft, record: Record, authority: Authority, verdict: Judgement, now: Instant) -> None:
        if verdict is Judgement.DEAD:
            self._move(draft, record, GONE, Reason.ERROR, error=authority.error)
            draft.record(record, QUEUED)
            draft.error(authority.error)
            self._refusal_line(draft, record, now, outcome="error", error=authority.error)
            return
        error = "robots_unreachable" if authority.state == RobotsState.REFUSED else None
        first = draft.error_text(record.error) not in ("robots", "robots_unreachable")
        self._move(draft, record, PARKED, Reason.ROBOTS, error=error or "robots")
        draft.record(record, QUEUED)
        if first:
            draft.error(error or "robots")
            self._refusal_line(draft, record, now, outcome="robots", error=error)

    def _same_leases(self, tokens: bytes) -> LeaseBatch:
        """The answer to a repeated call: those of its leases that are still open."""
        given = np.frombuffer(tokens, np.uint64)
        found = self._by_token(given)
        leases: list[Lease] = []
        for row, token in enumerate(given.tolist()):
            authority = self.tables.errands.get(token)
            if authority is not None:
                leases.append(errand_lease(authority, self.tables, self.now))
            elif found.found[row]:
                one = slice(row, row + 1)
                deadline = int(found.deadlines[row])
                columns = Leased(
                    self.tables, token, found.cards.take([row]), found.queues[one], found.not_before[one], deadline, []
                )
                leases += columns.leases()
        return LeaseBatch(leases, lsn=self.lsn)
