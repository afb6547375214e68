"""lease: draws ready queues, checks that their URLs may be fetched, and makes tokens for them."""

from __future__ import annotations

import heapq
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from outrider.clock import Instant, instant
from outrider.errors import SettingsError, StoreFullError, shown
from outrider.frontier.format.card_columns import Cards
from outrider.frontier.format.facts import Fact
from outrider.frontier.policy.lives import check_moves
from outrider.frontier.state.authorities import Authority
from outrider.frontier.state.errand import Errand
from outrider.frontier.state.hosts import Rows
from outrider.frontier.state.url_table import LEASED, PARKED, KnownRows
from outrider.frontier.verbs import arguments
from outrider.frontier.verbs.deciding import Core, Part
from outrider.frontier.verbs.draft import Draft
from outrider.frontier.verbs.drawing import LeaseDraw, LeaseRequest
from outrider.frontier.verbs.leased import LeasedColumns, errand_lease
from outrider.frontier.verbs.robots_files import RobotsFiles
from outrider.frontier.verbs.trapping import Trapping
from outrider.frontier.verbs.unparking import Unparking
from outrider.journey import LEASE_KEYWORDS, Lease, LeaseBatch, RequestId
from outrider.limits import (
    CALL_ROWS_MAX,
    NETWORK_PROBES,
    ROBOTS_REFUSALS_PER_CALL_MAX,
    SLOTS_READ_ROWS_PER_CALL,
    SLOTS_READ_STEPS,
    TOKEN_BITS,
)


def _flag(value: Any) -> bool:
    arguments.flag("errands", value)
    return bool(value)


CHECKS: Final[dict[str, Callable[[Any], Any]]] = {
    "want": lambda value: arguments.whole("want", value, 0, CALL_ROWS_MAX),
    "per_queue": lambda value: arguments.whole("per_queue", value, 1, CALL_ROWS_MAX),
    "ttl_seconds": arguments.ttl,
    "train_seconds": arguments.train,
    "queues_max": lambda value: None if value is None else arguments.whole("queues_max", value, 1, CALL_ROWS_MAX),
    "errands": _flag,
    **{what: partial(arguments.name, what) for what in ("crawl", "key", "worker")},
    "request_id": arguments.request,
}
"""The check of each argument of `lease`, which returns it as a value of Python's own types."""


class Leasing(Part):
    """The part of the machine that makes leases."""

    def __init__(self, core: Core, robots: RobotsFiles, traps: Trapping, returning: Unparking) -> None:
        super().__init__(core)
        self._robots, self._traps, self._returning = robots, traps, returning
        self._odd = 0  # how `_seekers_share` halved an odd number the last time: 1 rounded up

    def lease(
        self, want: int, now: Instant, *, request_id: RequestId | None = None, caps: bool = False, **how: Any
    ) -> LeaseBatch:
        """Returns up to `want` leases of queues whose clocks allow it now. caps: as for `LeaseRequest`; how: the other
        arguments of `Verbs.lease`. Raises SettingsError for invalid numbers."""
        how = {**LEASE_KEYWORDS, **how, "want": want, "request_id": request_id}
        how = {name: check(how[name]) for name, check in CHECKS.items()}
        want, per_queue, errands, request_id = how["want"], how["per_queue"], how["errands"], how["request_id"]
        queues_max = CALL_ROWS_MAX if how["queues_max"] is None else how["queues_max"]
        train_seconds, crawl, key = how["train_seconds"], how["crawl"], how["key"]
        tables = self.tables
        now = self._core.advance(now)
        self._core.wake(now)
        self._read_slots(want if crawl is None else CALL_ROWS_MAX, key)
        known = self._core.repeated(request_id, "lease")
        if known:  # empty if the leases never reached the caller
            return self.same_leases(known)
        key = None if key is None else self._key_meant(key)
        if errands and not self.turns.runs_errands:
            self.turns.runs_errands = True
            self.turns.touch([np.fromiter(self.turns.errands_at, np.uint32)], now)
        if len(released := self._traps.released()):
            self.turns.touch((released,), now)
        refusals = self._left_to_judge(now)
        draft = self._core.draft(now)
        holder = draft.holder(how["worker"])
        row = tables.crawls.rows.get(crawl) if crawl is not None else None
        deadline = now + instant(how["ttl_seconds"])
        before = deadline if train_seconds is None else min(deadline, now + instant(train_seconds) + 1)
        want, pages_left = self.network_lets(now, want), self._core.budgets.pages_left()
        want = self._core.revisits.allows(now, want)
        if want:
            self._core.revisits.look(now, min(want, pages_left))
            self._core.settle(now)
        wish = LeaseRequest(want, pages_left, now, deadline, before, per_queue, queues_max, row, key, errands, caps)
        drawing = LeaseDraw(self._core, self._robots, self._traps, draft, wish, refusals)
        if crawl is None or row is not None:
            self._draw(drawing, wish)
        return self._logged_leases(draft, drawing, wish, holder, request_id)

    def _read_slots(self, want: int, key: str | None) -> None:
        """Reads some unread slots: more of them while fewer hosts are ready than the call wants, and those of the
        queues with a key."""
        tables = self.tables
        if key is not None and tables.urls.unread is not None:
            queues = np.fromiter(tables.keys.queues_with(self._key_meant(key), None), np.uint32)
            tables.urls.unread.read(tables.hosts.slot[tables.queues.host[queues]])
        for _ in range(SLOTS_READ_STEPS if tables.urls.unread is not None else 0):
            self._core.read_slots(SLOTS_READ_ROWS_PER_CALL)
            if len(self.turns.ready) >= want:
                break

    def _key_meant(self, key: str) -> str:
        """Returns the key that a text means: the text itself if a queue has it, else the host that it spells, known or
        not yet. Raises SettingsError for any other text, because no queue can match it."""
        queues = self.tables.keys
        if next(queues.queues_with(key, None), None) is not None:
            return key
        try:
            name = arguments.host(key)
        except SettingsError:
            raise SettingsError(
                f"key {shown(key, 200)}: no queue has this key, and it is not a valid host name; use a host such as "
                "`example.org`, or the key of a Link"
            ) from None
        # A store of an earlier version may have the host only with a dot at its end.
        dotted = name + "."
        known = next(queues.queues_with(name, None), None) is not None
        return dotted if not known and next(queues.queues_with(dotted, None), None) is not None else name

    def network_lets(self, now: Instant, want: int) -> int:
        """Returns how many leases our own network allows: all, or in an outage only a few attempts after each pause."""
        if not self._core.network.down:
            return want
        tried = len(self.tables.urls.leases) + len(self.tables.errands.open)
        return 0 if now < self._core.network.until else min(want, max(0, NETWORK_PROBES - tried))

    def releases_hosts(self) -> bool:
        """Whether the next call may try hosts that waited for other new hosts of their domain."""
        return self._traps.releases()

    def _left_to_judge(self, now: Instant) -> int:
        """Judges parked URLs again after changes of rules, or after new content of their host. Returns how many
        verdicts are left for drawn URLs."""
        refusals = ROBOTS_REFUSALS_PER_CALL_MAX
        self.tables.robots.rulebook.begin_call()
        if self._gates.again:
            # Half of them are left for drawn URLs. Otherwise no URL would be leased until all are judged.
            refusals = max(refusals - self._robots.judge_again(now, refusals - refusals // 2), refusals // 2)
        if self._gates.returning:
            refusals = max(refusals - self._returning.judge_again(now, refusals - refusals // 2), refusals // 2)
        return refusals

    def _draw(self, drawing: LeaseDraw, wish: LeaseRequest) -> None:
        """Draws pages and errands, and hosts that need an address: some of these before the pages, the rest after."""
        if wish.errands:
            most = min(wish.want, wish.pages_left)
            if wish.key is None:
                drawing.bring(most)
            drawing.seek(self._seekers_share(most))
        drawing.run()
        if wish.errands and wish.pages_left > drawing.count:
            drawing.settle()
            drawing.seek(drawing.left)
        if drawing.sought:
            drawing.tried.append(np.array(drawing.sought, np.uint32))

    def _logged_leases(
        self, draft: Draft, drawing: LeaseDraw, wish: LeaseRequest, holder: int, request_id: RequestId | None
    ) -> LeaseBatch:
        """Logs the drawn cards and errands as leases, and returns them."""
        tables, now, asked, sought = self.tables, wish.now, drawing.asked, drawing.sought
        first = self._next_token()
        cards, queues, not_before = drawing.columns()
        self._log_leases(draft, cards, queues, not_before, asked, sought, first, wish.deadline, holder)
        given = drawing.count + len(asked) + len(sought)
        self._core.revisits.leased(cards.heads, len(asked), now)
        if request_id is not None and given:
            tokens = b"".join(struct.pack("<Q", first + place) for place in range(given))
            self._core.answered(draft, request_id, "lease", tokens)
        draft.drawn.append((queues, cards))
        try:
            self._core.commit(draft, reserve=True)
        except (SettingsError, StoreFullError):
            self.turns.touch(drawing.tried, now)
            raise
        if drawing.uneven:
            self.turns.touch(drawing.tried, now)
        if held := self._traps.trials.just_held(now):
            self.turns.hold(held, now)
        if not given:
            return LeaseBatch((), lines=self._core.take_lines(draft), lsn=self._core.lsn)
        opened = [tables.errands.open[token] for token in range(first + drawing.count, first + given)]
        errand_leases = [errand_lease(errand, tables, self.turns, now) for errand in opened]
        leases = LeasedColumns(tables, self.turns, first, cards, queues, not_before, wish.deadline, errand_leases)
        if len(cards):
            self._core.delays.note(cards.heads, tables.hosts.rest_until[tables.queues.host[queues]], not_before, now)
        for one in opened:
            one.begun = now
            heapq.heappush(self._gates.deadlines, (one.deadline, one.token))
        return LeaseBatch(leases, lines=self._core.take_lines(draft), lsn=self._core.lsn)

    def _seekers_share(self, most: int) -> int:
        """Returns how many leases of a call are errands for addresses: half while hosts are ready (an odd number is
        rounded up and down alternately), otherwise all."""
        if not len(self.turns.seekers) or most <= 0:
            return 0
        if not len(self.turns.ready):
            return most
        self._odd = 1 - self._odd
        return (most + self._odd) // 2

    def _log_leases(
        self,
        draft: Draft,
        cards: Cards,
        queues: Rows,
        not_before: npt.NDArray[np.int64],
        asked: Sequence[Errand],
        sought: Sequence[int],
        first: int,
        deadline: Instant,
        holder: int,
    ) -> None:
        tables, rows = self.tables, len(cards)
        if rows:
            heads = cards.changed()
            old = cards.heads["state"]
            heads["state"] = LEASED
            check_moves(old, heads["state"])
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
                KnownRows(cards.with_heads(heads), old, queues),
            )
        for place, errand in enumerate(asked):
            if isinstance(errand, Authority):
                draft.authority(errand)
            draft.add(*errand.opening(first + rows + place, deadline, holder))
        for token, host in enumerate(sought, first + rows + len(asked)):
            hosts = tables.hosts
            draft.add(Fact.LOCATING, (int(hosts.slot[host]), int(hosts.hash[host]), token, deadline, holder))

    def spent(self) -> bool:
        """Whether URLs are parked for a budget. The count decides, too: the cards of a deleted crawl are dropped step
        by step."""
        urls = self.tables.urls
        return (len(urls.spent) > 0 or (urls.unread is not None and urls.unread.parked)) and urls.counts[PARKED] > 0

    def _next_token(self) -> int:
        """Returns a token that is higher than all before. Those of a partition of a cluster are of its own range, those
        of other stores begin at the number of the opening."""
        part = self._homes.partition
        return max(self.tables.token + 1, (self.tables.registry.opening[0] if part is None else part) << TOKEN_BITS)

    def same_leases(self, tokens: bytes) -> LeaseBatch:
        """Returns the answer to a repeated call: its leases that are still open."""
        given = np.frombuffer(tokens, np.uint64)
        found = self.tables.urls.by_token(given)
        leases: list[Lease] = []
        for row, token in enumerate(given.tolist()):
            errand = self.tables.errands.open.get(token)
            if errand is not None:
                leases.append(errand_lease(errand, self.tables, self.turns, self._core.now))
            elif found.found[row]:
                one = slice(row, row + 1)
                deadline = int(found.deadlines[row])
                columns = LeasedColumns(
                    self.tables,
                    self.turns,
                    token,
                    found.cards.take([row]),
                    found.queues[one],
                    found.not_before[one],
                    deadline,
                    [],
                )
                leases += columns.leases()
        return LeaseBatch(leases, lsn=self._core.lsn)
