"""The state machine: `discover`, `lease`, `report` and every branch between them. A verb decides, logs, applies.

It waits for nothing and knows no clock, disk or random source: `now` (an instant) and the seed are arguments, the log
is given.
What it answers is durable once the log is synced through the LSN that stands beside the answer; `engine.py` does that.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from outrider import kernels
from outrider.clock import Instant, instant, rfc3339
from outrider.errors import SettingsError, StoreFullError
from outrider.frontier import arguments
from outrider.frontier.accounts import recount, statistics, status_of
from outrider.frontier.draft import Draft
from outrider.frontier.errands import Judgement, Rulebook, after_answer, errand_of, judged, unanswered
from outrider.frontier.facts import FRAME_KIND, Fact, Row, encode
from outrider.frontier.lines import refusal
from outrider.frontier.politeness import rest_after
from outrider.frontier.priority import checked
from outrider.frontier.ready import Ready, Timetable
from outrider.frontier.revisit import retries_left, retry_seconds
from outrider.frontier.settings import FrontierSettings
from outrider.frontier.tables import (
    DONE,
    GONE,
    LEASED,
    PARKED,
    QUEUED,
    SEEN_BITS,
    STATES,
    WAITING,
    Authority,
    Group,
    Host,
    Queue,
    Reason,
    RobotsState,
    Tables,
    Url,
    robots_cells,
)
from outrider.journey import (
    Code,
    Kind,
    Lease,
    LeaseBatch,
    Line,
    Link,
    Outcome,
    Report,
    RequestId,
    RobotsAnswer,
    Settled,
    UrlStatus,
    Verdict,
    Verification,
)
from outrider.limits import (
    CALL_ROWS_MAX,
    COLUMNS_ROWS_MIN,
    DEADLINES_KEPT_MAX,
    LEASES_LOST_MAX,
    METADATA_BYTES_MAX,
    OLDEST_DRAW_EVERY,
    OWN_SLOT,
    REDIRECT_HOPS_MAX,
    RESTS_PER_FRAME_MAX,
    RETRY_AFTER_SECONDS_MAX,
    ROBOTS_REFUSALS_PER_CALL_MAX,
    URL_BYTES_MAX,
    WAKES_PER_CALL_MAX,
)
from outrider.robots import Rules, verdict_of_status
from outrider.url import Scope, UrlBatch, authority_of, host_of, registrable_domain, spell
from outrider.url.rules import Rules as UrlRules

FRAME_PAYLOAD_BYTES_MAX = kernels.FRAME_BYTES_MAX - kernels.FRAME_HEADER_BYTES
_VERBS = {"discover": 1, "lease": 2, "report": 3}
_CODES = tuple(Code)
_CODE_NUMBERS = {code: number for number, code in enumerate(_CODES)}
_NEW, _KNOWN = _CODE_NUMBERS[Code.NEW], _CODE_NUMBERS[Code.KNOWN]


class LogOut(Protocol):
    """What the machine needs of a log."""

    def append(self, kind: int, payload: bytes, *, version: int = 1, codec: int = 0, reserve: bool = False) -> int: ...


class _Wanted:
    """A link on its way in."""

    __slots__ = ("crawl", "depth", "due", "hops", "key", "metadata", "priority", "referrer", "seed", "source", "url")

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        priority: float | None = None,
        depth: int = 0,
        hops: int = 0,
        referrer: str = "",
        due: Instant | None = None,
        crawl: int = 0,
        metadata: bytes = b"",
        seed: bool = False,
        source: int | None = None,
    ) -> None:
        self.source = source
        self.url = url
        self.key = key
        self.priority = priority
        self.depth = depth
        self.hops = hops
        self.referrer = referrer
        self.due = due
        self.crawl = crawl
        self.metadata = metadata
        self.seed = seed


class _Origin(NamedTuple):
    """Where links in columns were found."""

    referrer: str
    depth: int
    crawl: int
    source: int | None
    seed: bool

    @classmethod
    def of(cls, owner: Url | Authority | None) -> _Origin:
        assert isinstance(owner, Url)
        return cls(owner.url, _below(owner.depth), owner.queue.crawl, owner.slot, False)


_NOWHERE = _Origin("", 0, 0, None, True)  # told by a caller, not found in a page


class Machine:
    """One frontier. Not thread-safe: one caller at a time, which is `engine.py`'s business."""

    def __init__(
        self,
        tables: Tables,
        log: LogOut,
        settings: FrontierSettings,
        *,
        fingerprint_key: bytes,
        slot_key: bytes,
        seed: int = 0,
        errands: bool = False,
        keeps_lines: bool = False,
        owned: frozenset[int] | None = None,
    ) -> None:
        self.tables = tables
        self._owned = owned
        self.rules = settings.url_rules or UrlRules()
        self.settings = settings
        self.errands_mode = errands
        self.keeps_lines = keeps_lines
        self._log = log
        self._fingerprint_key = fingerprint_key
        self._slot_key = slot_key
        self._timetable = Timetable()
        self._ready = Ready(seed)
        self._waiting: list[tuple[Instant, int, int, Url]] = []
        self._deadlines: list[tuple[Instant, int]] = []
        self._order = 0
        self._turns = 0
        self._rules = Rulebook(settings.user_agent)
        self._scopes: dict[int, Scope] = {}
        self._spans: dict[int, set[Scope]] = {}
        self._open_pages = 0
        self._runs_errands = False
        self._lined_up: dict[str, Authority] = {}
        self._recheck: list[Authority] = []
        self._lines_of_wakes: list[Line] = []
        self.lsn = 0
        self.now: Instant = tables.now

    # -- opening ------------------------------------------------------------------------------------------------------

    def settle_all(self, now: Instant) -> None:
        """Build the timetable, rings and heaps from the tables, after recovery.

        What was parked by robots rules is judged again, little by little: how far that had come is not in the log.
        """
        tables = self.tables
        tables.changed.clear()
        tables.placed.clear()
        for url in tables.urls():
            self._file(url)
        for token, owner in tables.leases.items():
            heapq.heappush(self._deadlines, (owner.deadline, token))
        for host in tables.hosts.values():
            for queue in host.queues:
                if queue.group is not None:
                    queue.group.rest_until = max(queue.group.rest_until, host.rest_until)
        for authority in tables.authorities.values():
            if authority.state == RobotsState.REFUSED and self.errands_mode:
                self._line_up(authority)
            if authority.parked:
                authority.recheck, authority.parked = authority.parked, []
                if authority.state in (RobotsState.RULES, RobotsState.ALLOW):
                    self._recheck.append(authority)
        tables.changed.clear()
        for host in tables.hosts.values():
            self._touch(host, now)
        self.now = max(self.now, now)

    def open_facts(
        self, opening: tuple[int, Instant, Instant, str, Instant], now: Instant, passed: Instant | None
    ) -> int:
        """Log a new opening: leases of dead processes end and their hosts rest one whole delay; what was resting goes
        on resting.

        passed: real time in microseconds since the last logged instant where it is known (same boot, or the caller's
        clock), else None.
        Returns how many leases ended.
        """
        tables = self.tables
        last = tables.now
        resting = [host for host in tables.hosts.values() if host.rest_until > last]
        dead = [owner for owner in tables.leases.values() if owner.holder == 0]
        ended = len(dead)
        while len(resting) + len(dead) > RESTS_PER_FRAME_MAX:
            # Before the opening itself and at the last logged instant: a crash in between finds hosts that rest longer.
            draft = self._draft(last)
            self._rest_on(draft, resting[:RESTS_PER_FRAME_MAX], now, passed)
            if not resting:
                for owner in dead[:RESTS_PER_FRAME_MAX]:
                    self._lose(draft, owner, now)
                del dead[:RESTS_PER_FRAME_MAX]
            del resting[:RESTS_PER_FRAME_MAX]
            self._commit(draft, reserve=True)
        draft = self._draft(now)
        draft.add(Fact.OPENING, (OWN_SLOT, *opening))
        if not tables.crawls:
            draft.add(Fact.CRAWL, (OWN_SLOT, 0, "default", 1))
        draft.add(Fact.HOLDER, (OWN_SLOT, 0, "", opening[0]))
        self._rest_on(draft, resting, now, passed)
        for owner in dead:
            self._lose(draft, owner, now)
        self._commit(draft, reserve=True)
        self._revive(now)
        return ended

    def _rest_on(self, draft: Draft, hosts: Iterable[Host], now: Instant, passed: Instant | None) -> None:
        """What was left of these hosts' rests at the last logged instant is rested from the opening on."""
        for host in hosts:
            left = host.rest_until - self.tables.now
            if passed is not None:
                draft.clock(host).rest_until = now + max(0, left - passed)
            else:
                # Another boot: the wall clock may have jumped, so in doubt one whole delay, never more than what was
                # left.
                left = min(left, instant(max(host.gap, self.settings.delay)))
                draft.clock(host).rest_at_least(now + left)

    def _revive(self, now: Instant) -> None:
        """URLs parked for a budget that has grown since go on."""
        limit = self.settings.max_pages_per_host
        if not self.tables.counts[PARKED]:
            return
        freed = [
            url
            for url in self.tables.urls()
            if url.state == PARKED
            and url.reason == Reason.BUDGET
            and (limit is None or url.queue.host.answered < limit)
        ]
        for first in range(0, len(freed), WAKES_PER_CALL_MAX):
            draft = self._draft(now)
            for url in freed[first : first + WAKES_PER_CALL_MAX]:
                draft.move(url, *_place_of(url, now), url.due)
            self._commit(draft, reserve=True)

    # -- the three verbs ----------------------------------------------------------------------------------------------

    def discover(
        self, links: Iterable[str | Link] | UrlBatch, now: Instant, *, request_id: RequestId | None = None
    ) -> list[Code]:
        """One code per link. Raises SettingsError for a priority that is no number in [0, 1], StoreFullError before
        any change."""
        now = self._advance(now)
        known = self._repeated(request_id, "discover")
        if known is not None:
            return [_CODES[number] for number in known]
        urls = links if isinstance(links, UrlBatch) else None
        links = [] if urls is not None else list(links)
        if urls is None and len(links) >= COLUMNS_ROWS_MIN and all(type(link) is str for link in links):
            urls = UrlBatch.of(links, key=self._fingerprint_key)
        _bounded(len(links) if urls is None else len(urls), "links")
        draft = self._draft(now)
        if urls is None:
            answer = bytes(
                _CODE_NUMBERS[code] for code in self._accept([self._wanted(link, draft) for link in links], draft)
            )
        else:
            depths, priorities = arguments.depths(urls, _NOWHERE.depth), arguments.priorities(urls)
            origin = np.zeros(len(urls), np.intp)
            answer = self._accept_columns(urls, depths, priorities, origin, (_NOWHERE,), draft)
        self._answered(draft, request_id, "discover", answer)
        self._commit(draft)
        return [_CODES[number] for number in answer]

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
        for what, name in (("crawl", crawl), ("key", key), ("worker", worker)):
            arguments.name(what, name)
        now = self._advance(now)
        self._wake(now)
        known = self._repeated(request_id, "lease")
        if known is not None:
            return self._same_leases(known)
        if errands and not self._runs_errands:
            self._runs_errands = True
            for authority in self._lined_up.values():
                if authority.wanted is not None:
                    self._touch(authority.wanted, now)
        refusals = ROBOTS_REFUSALS_PER_CALL_MAX
        if self._recheck:
            refusals -= self._judge_again(now, refusals)
        draft = self._draft(now)
        holder = draft.holder(worker)
        drawn: list[tuple[Kind, Url | Authority]] = []
        tried: list[Host] = []
        token = self._next_token()
        first = token
        deadline = now + instant(ttl_seconds)
        wanted_row = self.tables.crawl_rows.get(crawl) if crawl is not None else None
        pages_left = self._pages_left()
        filtered = self._matching(wanted_row, crawl, key)
        groups: set[Group] = set()
        while len(drawn) < want and refusals > 0 and pages_left > 0:
            host = self._ready.draw() if filtered is None else (filtered.pop(0) if filtered else None)
            if host is None:
                break
            self._ready.withdraw(host)
            tried.append(host)
            if host.leases:
                continue
            errand = errand_of(host, now) if errands else None
            queue = self._queue_of(host, wanted_row, key, now, groups) if errand is None else None
            urls: list[Url] = []
            gap = 0
            if queue is not None:
                most = min(per_queue, want - len(drawn), pages_left)
                if most > 1:
                    gap = instant(max(host.gap, self.settings.delay, self._rules.crawl_delay(host)))
                    # What may only be fetched when its lease is over would be lost, and after three times gone.
                    most = min(most, 1 + (deadline - now - 1) // gap) if gap else most
                urls, judged = self._take(draft, queue, most, refusals, now)
                refusals -= judged
                if errands and not urls:
                    errand = errand_of(host, now)  # what was just found to be asked for first
            if errand is not None:
                draft.add(Fact.ERRAND, (errand.slot, errand.row, token, deadline, holder))
                drawn.append((Kind.ROBOTS, errand))
                token += 1
                continue
            if queue is None:
                continue
            for place, url in enumerate(urls):
                draft.add(Fact.LEASE, (url.slot, url.row, token, deadline, holder, now + place * gap))
                drawn.append((Kind.PAGE, url))
                token += 1
                pages_left -= 1
            if urls:
                self._turns += 1
                queue.served = self._turns
                host.turns += 1
                if queue.group is not None:
                    groups.add(queue.group)
        if drawn:
            tokens = b"".join(struct.pack("<Q", first + place) for place in range(len(drawn)))
            self._answered(draft, request_id, "lease", tokens)
        try:
            self._commit(draft, reserve=True)
        except StoreFullError:
            for url in draft.drawn:
                self._file(url)
            for host in tried:
                self._touch(host, now)
            raise
        for host in tried:
            self._touch(host, now)
        leases = [self._lease_of(kind, owner) for kind, owner in drawn]
        for lease in leases:
            heapq.heappush(self._deadlines, (lease.deadline, lease.token))
        self._forget_deadlines()
        return LeaseBatch(leases, lines=self._take_lines(draft), lsn=self.lsn)

    def report(
        self,
        outcomes: Sequence[Outcome],
        links: Sequence[tuple[int, str | Link]] | UrlBatch,
        now: Instant,
        *,
        request_id: RequestId | None = None,
        watermark: tuple[str, bytes] | None = None,
    ) -> Report:
        """Ends leases by token; outcome and the links found in it are one frame. Old tokens change nothing and are
        told so."""
        now = self._advance(now)
        known = self._repeated(request_id, "report")
        if known is not None:
            return _report_of(known)
        outcomes = arguments.outcomes(outcomes)
        extra = _by_outcome(links, len(outcomes))
        self._wake(now)
        draft = self._draft(now)
        settled: list[Settled] = []
        wanted: list[_Wanted] = []
        spans: list[tuple[int, int, int]] = []  # of each outcome: a redirect's target, its links, their end
        found: list[tuple[int, UrlBatch]] = []  # of each outcome: its links in columns
        ended: set[int] = set()
        for row, outcome in enumerate(outcomes):
            start = first = len(wanted)
            owner = self.tables.leases.get(outcome.token) if outcome.token not in ended else None
            if owner is None:
                settled.append(Settled.STALE)
                draft.tally("stale", 1)
                # Its links stay unread: whoever holds the URL now will report them.
                spans.append((start, start, start))
                continue
            ended.add(outcome.token)
            settled.append(Settled.OK)
            if isinstance(owner, Authority):
                self._errand_done(draft, owner, outcome, now)
            else:
                self._page_done(draft, owner, outcome, now, wanted)
                first = len(wanted)
                for some in (outcome.links, extra.get(row, ())):
                    _bounded(len(some), "links of one outcome")
                    if isinstance(some, UrlBatch):
                        found.append((row, some))
                        continue
                    depth = _below(owner.depth)
                    for link in some if isinstance(some, Sequence) else some.strings():
                        if isinstance(link, str):
                            wanted.append(
                                _Wanted(
                                    link, depth=depth, referrer=owner.url, crawl=owner.queue.crawl, source=owner.slot
                                )
                            )
                        else:
                            wanted.append(self._wanted(link, draft, found_in=owner))
            spans.append((start, first, len(wanted)))
        numbers = bytes(_CODE_NUMBERS[code] for code in self._accept(wanted, draft))
        in_columns = self._accept_found(found, [self.tables.leases.get(one.token) for one in outcomes], draft)
        codes = [numbers[first:end] + in_columns.get(row, b"") for row, (_, first, end) in enumerate(spans)]
        for row, outcome in enumerate(outcomes):
            if settled[row] is Settled.OK:
                start, first, _ = spans[row]
                new = numbers[start:first].count(_NEW) + codes[row].count(_NEW)
                self._lines(draft, self.tables.leases[outcome.token], outcome, new)
        if watermark is not None:
            draft.add(Fact.WATERMARK, (OWN_SLOT, *watermark))
        answer = msgspec.msgpack.encode(
            [
                bytes(code is Settled.OK for code in settled),
                codes,
            ]
        )
        self._answered(draft, request_id, "report", answer)
        self._commit(draft, reserve=True)
        return Report(tuple(settled), tuple(map(_codes_of, codes)), self._take_lines(draft), self.lsn)

    # -- around them --------------------------------------------------------------------------------------------------

    def extend(self, tokens: Sequence[int], ttl_seconds: float, now: Instant) -> list[Settled]:
        """Open leases live until now + ttl_seconds."""
        arguments.ttl(ttl_seconds)
        now = self._advance(now)
        self._wake(now)
        draft = self._draft(now)
        deadline = now + instant(ttl_seconds)
        answer = []
        for token in tokens:
            owner = self.tables.leases.get(token)
            answer.append(Settled.STALE if owner is None else Settled.OK)
            if isinstance(owner, Authority):
                draft.add(Fact.ERRAND, (owner.slot, owner.row, token, deadline, owner.holder))
            elif owner is not None:
                draft.add(Fact.LEASE, (owner.slot, owner.row, token, deadline, owner.holder, owner.not_before))
            if owner is not None:
                heapq.heappush(self._deadlines, (deadline, token))
        self._commit(draft, reserve=True)
        return answer

    def release(self, tokens: Sequence[int], now: Instant) -> list[Settled]:
        """Give leases back unfetched: the URLs are queued again, their hosts keep the clocks they have."""
        now = self._advance(now)
        self._wake(now)
        draft = self._draft(now)
        answer = []
        for token in dict.fromkeys(tokens):
            owner = self.tables.leases.get(token)
            answer.append(Settled.STALE if owner is None else Settled.OK)
            if isinstance(owner, Authority):
                draft.add(Fact.ROBOTS, robots_cells(owner))  # as they are, which ends the errand
            elif owner is not None:
                draft.move(owner, QUEUED, 0, owner.due)
        self._commit(draft, reserve=True)
        return answer

    def set_robots(self, authority: str, status: int | None, body: bytes, now: Instant) -> None:
        """Rules for an authority (scheme://host[:port]) from the caller, as its robots.txt answered. Raises
        SettingsError."""
        arguments.robots(RobotsAnswer(status, body))
        now = self._advance(now)
        found = spell([authority.rstrip("/") + "/robots.txt"])[0]
        if found is None:
            raise SettingsError(f"authority {authority!r}: give it as https://example.org or http://example.org:8080")
        draft = self._draft(now)
        draft.authority(found)
        self._commit(draft)
        owner = self.tables.authorities[authority_of(found)]
        draft = self._draft(now)
        self._robots_answer(draft, owner, RobotsAnswer(status, body), None, None, now)
        self._commit(draft)
        self._line_down(owner)

    def note_projection(self, stream: str, length: int, lsn: int, now: Instant) -> None:
        """A projection is synced to this length and holds the lines up to this LSN."""
        draft = self._draft(self._advance(now))
        draft.add(Fact.PROJECTION, (OWN_SLOT, stream, length, lsn))
        self._commit(draft, reserve=True)

    def note_watermark(self, writer: str, value: bytes, now: Instant) -> None:
        """An archive writer is synced up to this opaque place."""
        draft = self._draft(self._advance(now))
        draft.add(Fact.WATERMARK, (OWN_SLOT, writer, value))
        self._commit(draft, reserve=True)

    def note_closing(self, state: str, now: Instant) -> None:
        """A clean stop; leases of this process end, which counts against no URL."""
        now = self._advance(now)
        draft = self._draft(now)
        for owner in list(self.tables.leases.values()):
            if owner.holder == 0:
                self._end(draft, owner, now)
                if isinstance(owner, Url):
                    draft.move(owner, QUEUED, 0, owner.due)
        draft.add(Fact.CLOSING, (OWN_SLOT, self.tables.opening[0], state))
        self._commit(draft, reserve=True)

    def seen_content(self, digests: Sequence[bytes]) -> list[bool]:
        """Whether content with this digest was accepted for some URL."""
        contents = self.tables.contents
        return [digest in contents for digest in digests]

    def finished(self) -> bool:
        """No URL is queued, leased, waiting, in transit or to be judged again, and no errand is open or wanted."""
        counts = self.tables.counts
        waiting = counts[QUEUED] or counts[LEASED] or counts[WAITING] or self.errands() or self.tables.in_transit
        return not (waiting or self._recheck)

    def at_limit(self) -> bool:
        """No page may be leased any more (max_pages), or URLs are parked because a budget is used up."""
        if self.settings.max_pages is not None and self.tables.tallies.get("answered", 0) >= self.settings.max_pages:
            return not self.finished() or self._parked_for_budget()
        return self.finished() and self._parked_for_budget()

    def _parked_for_budget(self) -> bool:
        if not self.tables.counts[PARKED]:
            return False
        return any(url.state == PARKED and url.reason == Reason.BUDGET for url in self.tables.urls())

    def errands(self) -> int:
        """Errands that are open or lined up."""
        open_ones = sum(1 for owner in self.tables.leases.values() if isinstance(owner, Authority))
        return open_ones + sum(1 for authority in self._lined_up.values() if not authority.token and authority.held)

    def next_ready(self, now: Instant) -> Instant | None:
        """When something can be leased at the earliest; `now` when it can already; None when waiting alone brings
        nothing."""
        if self._pages_left() <= 0:
            # A lease that ends without an answer gives its page back.
            spent = self.tables.tallies.get("answered", 0) >= (self.settings.max_pages or 0)
            return None if spent else self._next_deadline(now)
        if self._ready.anybody() or self._recheck:
            return now
        times = [self._timetable.next()]
        while self._waiting:
            due, _, place, url = self._waiting[0]
            if url.state == WAITING and url.place == place:
                times.append(due)
                break
            heapq.heappop(self._waiting)
        times.append(self._next_deadline(now))
        known = [at for at in times if at is not None]
        return max(now, min(known)) if known else None

    def _next_deadline(self, now: Instant) -> Instant | None:
        while self._deadlines:
            deadline, token = self._deadlines[0]
            owner = self.tables.leases.get(token)
            if owner is not None and owner.deadline == deadline:
                return max(now, deadline)
            heapq.heappop(self._deadlines)
        return None

    def status(self, url: str) -> UrlStatus:
        """What is known of one URL of the default crawl, by any spelling."""
        text = self._spelled([url])[0]
        found = self._find(text) if text is not None else None
        if found is None:
            return UrlStatus(text or url, STATES[0])
        return status_of(found, self.tables)

    def _find(self, text: str, crawl: int = 0) -> Url | None:
        host = self.tables.hosts.get(host_of(text))
        if host is None:
            return None
        number = int.from_bytes(kernels.fingerprints([text], self._fingerprint_key), "little")
        return self.tables.slots[host.slot].seen.get(crawl, {}).get(number & SEEN_BITS)

    def statistics(self, now: Instant) -> dict[str, object]:
        """Counts of URLs, hosts, errands and what was fetched; the names of `status --json`."""
        return statistics(self.tables, now, errands=self.errands())

    def verify(self) -> Verification:
        """Recount everything from the rows and hold it against the counters."""
        return recount(self.tables)

    # -- time ---------------------------------------------------------------------------------------------------------

    def _advance(self, now: Instant) -> Instant:
        """Time never goes back: a clock that steps back finds it standing still, and every host resting one whole
        delay."""
        self.now = now = max(now, self.now)
        return now

    def rest_everybody(self, now: Instant) -> None:
        """The clock stepped back: in doubt every host that was visited rests one whole delay from now on."""
        now = self._advance(now)
        # A lost lease rests its host, too: somebody may have been there.
        visited = [host for host in self.tables.hosts.values() if host.ended or host.rest_until]
        for first in range(0, len(visited), RESTS_PER_FRAME_MAX):
            draft = self._draft(now)
            for host in visited[first : first + RESTS_PER_FRAME_MAX]:
                draft.clock(host).rest_at_least(now + instant(max(host.gap, self.settings.delay)))
            self._commit(draft, reserve=True)

    def _wake(self, now: Instant) -> None:
        """What time alone changes: waiting URLs become queued, leases expire, resting hosts become ready."""
        draft = self._draft(now)
        while self._deadlines and self._deadlines[0][0] <= now:
            deadline, token = heapq.heappop(self._deadlines)
            owner = self.tables.leases.get(token)
            if owner is not None and owner.deadline == deadline:
                self._lose(draft, owner, now)
        woken: list[tuple[Instant, int, int, Url]] = []
        while self._waiting and self._waiting[0][0] <= now and len(woken) < WAKES_PER_CALL_MAX:
            entry = heapq.heappop(self._waiting)
            url = entry[3]
            if url.state == WAITING and url.place == entry[2]:
                woken.append(entry)
                draft.move(url, QUEUED, 0, url.due)
        try:
            self._commit(draft, reserve=True)
        except StoreFullError:
            for entry in woken:
                heapq.heappush(self._waiting, entry)
            for owner in self.tables.leases.values():
                heapq.heappush(self._deadlines, (owner.deadline, owner.token))
            raise
        self._lines_of_wakes += draft.lines
        for host in self._timetable.take_due(now):
            self._touch(host, now)

    def _take_lines(self, draft: Draft) -> tuple[Line, ...]:
        """The lines of this call, behind those that waking left for the next call that answers with lines."""
        lines, self._lines_of_wakes = (*self._lines_of_wakes, *draft.lines), []
        return lines

    def _end(self, draft: Draft, owner: Url | Authority, now: Instant) -> None:
        """A lease ends without a report; its host rests one whole delay, for somebody may have fetched from it just
        now."""
        host = owner.busy if isinstance(owner, Authority) else owner.queue.host
        if host is not None:
            whole = instant(max(host.gap, self.settings.delay, self._rules.crawl_delay(host)))
            draft.clock(host).rest_at_least(now + whole)
        if isinstance(owner, Authority):
            draft.add(Fact.ROBOTS, robots_cells(owner))  # as they are, which ends the errand

    def _lose(self, draft: Draft, owner: Url | Authority, now: Instant) -> None:
        """Its holder died or let it expire. The third time in a row a URL is gone: it may be what kills its holders."""
        draft.tally("lost", 1)
        self._end(draft, owner, now)
        if isinstance(owner, Authority):
            return
        losses = owner.losses + 1
        if losses >= LEASES_LOST_MAX:
            draft.move(owner, GONE, Reason.LOST, owner.due, losses=losses, error="lost")
            draft.error("lost")
            self._refusal_line(draft, owner, now, outcome="error", error="lost")
        else:
            draft.move(owner, QUEUED, 0, owner.due, losses=losses)

    # -- discover -----------------------------------------------------------------------------------------------------

    def _wanted(self, link: str | Link, draft: Draft, found_in: Url | None = None) -> _Wanted:
        if not isinstance(link, Link):
            return _Wanted(link, seed=found_in is None)
        arguments.link(link)
        crawl = found_in.queue.crawl if found_in is not None and link.crawl is None else draft.crawl(link.crawl)
        metadata = _metadata(link.metadata)
        return _Wanted(
            link.url,
            key=link.key,
            priority=checked(link.priority) if link.priority is not None else None,
            depth=max(link.depth, _below(found_in.depth)) if found_in is not None else link.depth,
            hops=link.hops,
            referrer=link.referrer or (found_in.url if found_in is not None else ""),
            due=link.not_before,
            crawl=crawl,
            metadata=metadata,
            seed=found_in is None and link.depth == 0 and link.referrer is None,
            source=found_in.slot if found_in is not None else None,
        )

    def _scope(self, crawl: int) -> Scope:
        scope = self._scopes.get(crawl)
        if scope is None:
            s = self.settings
            seeds = self.tables.scope.get(crawl, {})
            scope = Scope.of_seeds(s.scope, seeds, s.include, s.exclude, s.max_depth)
            self._scopes[crawl] = scope
        return scope

    def _accept(self, wanted: Sequence[_Wanted], draft: Draft) -> list[Code]:
        """Spell, scope and test links against the seen-set; new ones become facts of the draft."""
        codes = [Code.INVALID] * len(wanted)
        texts = self._spelled([link.url for link in wanted])
        rows: dict[int, list[int]] = {}
        seeds: dict[int, list[str]] = {}
        for row, text in enumerate(texts):
            if text is None:
                continue
            if wanted[row].seed:
                seeds.setdefault(wanted[row].crawl, []).append(text)
            if (
                len(text) > URL_BYTES_MAX
                or len(wanted[row].metadata) > METADATA_BYTES_MAX
                or wanted[row].hops > REDIRECT_HOPS_MAX
            ):
                codes[row] = Code.OVER_LIMIT
            else:
                rows.setdefault(wanted[row].crawl, []).append(row)
        for crawl, some in seeds.items():
            self._widen(draft, crawl, some)
        inside: list[int] = []
        for crawl, chosen in rows.items():
            verdicts = self._scope(crawl).verdicts(
                [texts[row] or "" for row in chosen], [wanted[row].depth for row in chosen]
            )
            for row, wants in zip(chosen, verdicts, strict=True):
                if wants or wanted[row].seed:
                    inside.append(row)
                else:
                    codes[row] = Code.OUT_OF_SCOPE
        prints = memoryview(kernels.fingerprints([texts[row] or "" for row in inside], self._fingerprint_key)).cast("Q")
        for row, fingerprint in sorted(zip(inside, prints, strict=True)):
            codes[row] = self._accept_one(draft, wanted[row], texts[row] or "", fingerprint)
        return codes

    def _accept_found(
        self, found: Sequence[tuple[int, UrlBatch]], owners: Sequence[Url | Authority | None], draft: Draft
    ) -> dict[int, bytes]:
        """The links in columns of many outcomes, as (row of the outcome, links); the numbers of their codes by row."""
        origins = [_Origin.of(owners[row]) for row, _ in found]
        lengths = [len(urls) for _, urls in found]
        depths = [arguments.depths(urls, one.depth) for (_, urls), one in zip(found, origins, strict=True)]
        codes = self._accept_columns(
            UrlBatch.concatenate([urls.without_columns() for _, urls in found]),
            np.concatenate([np.zeros(0, np.int64), *depths]),
            np.concatenate([np.zeros(0), *(arguments.priorities(urls) for _, urls in found)]),
            np.repeat(np.arange(len(found)), lengths),
            origins,
            draft,
        )
        answer: dict[int, bytes] = {}
        start = 0
        for (row, _), length in zip(found, lengths, strict=True):
            answer[row] = answer.get(row, b"") + codes[start : start + length]
            start += length
        return answer

    def _accept_columns(
        self,
        urls: UrlBatch,
        depths: npt.NDArray[np.int64],
        priorities: npt.NDArray[np.float64],
        origin: npt.NDArray[np.intp],
        origins: Sequence[_Origin],
        draft: Draft,
    ) -> bytes:
        """As `_accept` for columns: only what is new becomes a string. `origins[origin[row]]` is where a row was found;
        a priority that is NaN is none."""
        if not len(urls):
            return b""
        if self.rules:
            urls = self._ruled(urls)
        codes = np.full(len(urls), _CODE_NUMBERS[Code.INVALID], np.uint8)
        too_long = urls.lengths > URL_BYTES_MAX
        codes[urls.valid & too_long] = _CODE_NUMBERS[Code.OVER_LIMIT]
        fit = urls.valid & ~too_long
        seeds = np.array([one.seed for one in origins])[origin] & (depths == 0)
        for crawl in {one.crawl for one in origins}:
            here = fit & (np.array([one.crawl == crawl for one in origins])[origin])
            if self.settings.scope != "any" and (here & seeds).any():
                self._widen(draft, crawl, urls.strings(np.flatnonzero(here & seeds)))
            outside = here & ~(self._scope(crawl).verdicts(urls, depths) | seeds)
            codes[outside] = _CODE_NUMBERS[Code.OUT_OF_SCOPE]
            fit &= ~outside
        inside = np.flatnonzero(fit)
        prints = urls.fingerprints(self._fingerprint_key)[inside].tolist()
        places, names = urls.keys("host")
        homes = [self.tables.hosts.get(name) for name in names]
        fresh: list[tuple[int, int]] = []
        for row, fingerprint, place, home in zip(
            inside.tolist(), prints, places[inside].tolist(), origin[inside].tolist(), strict=True
        ):
            host = homes[place]
            seen = self.tables.slots[host.slot].seen.get(origins[home].crawl) if host is not None else None
            if seen is not None and fingerprint & SEEN_BITS in seen:
                codes[row] = _KNOWN
            else:
                fresh.append((row, fingerprint))
        for (row, fingerprint), text in zip(fresh, urls.strings([row for row, _ in fresh]), strict=True):
            from_ = origins[origin[row]]
            link = _Wanted(
                text,
                priority=None if np.isnan(priorities[row]) else float(priorities[row]),
                depth=int(depths[row]),
                referrer=from_.referrer,
                crawl=from_.crawl,
                source=from_.source,
                seed=bool(seeds[row]),
            )
            codes[row] = _CODE_NUMBERS[self._accept_one(draft, link, text, fingerprint)]
        return codes.tobytes()

    def _spelled(self, urls: Sequence[str], base: str | None = None) -> list[str | None]:
        """Canonical texts under the rules of this store, None for what is no URL."""
        texts = spell(urls, base)
        return [None if text is None else self.rules.apply(text) for text in texts] if self.rules else texts

    def _ruled(self, urls: UrlBatch) -> UrlBatch:
        texts = urls.strings()
        return UrlBatch.of(self.rules.apply_batch(texts) if urls.valid.all() else map(self._ruled_text, texts))

    def _ruled_text(self, text: str) -> str:
        return self.rules.apply(text) if text else text

    def _widen(self, draft: Draft, crawl: int, seeds: Iterable[str]) -> None:
        """The scope spans these seeds from here on."""
        if self.settings.scope == "any":
            return
        known = self._spans_of(crawl)
        wider: list[str] = []
        for text in seeds:
            span = self._span(text)
            if span not in known:
                known.add(span)
                draft.add(Fact.SCOPE, (OWN_SLOT, crawl, text))
                wider.append(text)
        if wider:
            # Kept before the frame is applied; where it is not, `_commit` forgets it again.
            self._scopes[crawl] = self._scope(crawl).widened(*wider)

    def _span(self, seed: str) -> Scope:
        """What one seed spans: a host, a domain or a prefix."""
        return Scope.of_seeds(self.settings.scope, (seed,))

    def _spans_of(self, crawl: int) -> set[Scope]:
        spans = self._spans.get(crawl)
        if spans is None:
            spans = self._spans[crawl] = {self._span(seed) for seed in self.tables.scope.get(crawl, {})}
        return spans

    def _accept_one(self, draft: Draft, link: _Wanted, text: str, fingerprint: int) -> Code:
        name = host_of(text)
        host = self.tables.hosts.get(name)
        low = fingerprint & SEEN_BITS
        if host is None and self._owned is not None:
            target = self.slot_of(name)
            if target not in self._owned:
                self._send(draft, link, text, target)
                return Code.HELD
        slot, _ = draft.host(name)
        if host is not None:
            seen = self.tables.slots[slot].seen.get(link.crawl)
            if seen is not None and low in seen:
                return Code.KNOWN
        if (slot, link.crawl, low) in draft.seen:
            return Code.KNOWN
        draft.authority(text)
        queue = draft.queue(link.crawl, link.key or name, name)
        row = draft.url_row(slot)
        state, reason, code = QUEUED, 0, Code.NEW
        due = link.due if link.due is not None else draft.now
        limit = self.settings.max_pages_per_host
        if limit is not None and host is not None and host.answered >= limit:
            state, reason, code = PARKED, int(Reason.BUDGET), Code.PARKED
        elif due > draft.now:
            state = WAITING
        priority = checked(link.priority)
        draft.add(
            Fact.URL,
            (
                slot,
                row,
                queue,
                fingerprint,
                state,
                reason,
                due,
                priority,
                link.depth,
                link.hops,
                link.referrer,
                link.metadata,
                text,
            ),
        )
        draft.seen[slot, link.crawl, low] = code
        return code

    def _send(self, draft: Draft, link: _Wanted, text: str, target: int) -> None:
        """Put a link for a slot of another log into the outbox of the slot it was found in."""
        source = link.source if link.source is not None else min(self._owned or (0,))
        sequence = draft.sequence(source)
        due = -1 if link.due is None else link.due
        crawl = draft.crawl_name(link.crawl)
        place = (source, sequence, target, crawl, link.key or "", due, checked(link.priority), link.depth, link.hops)
        draft.add(Fact.OUTBOX, (*place, int(link.seed), link.referrer, link.metadata, text))

    def outbox(self, most: int) -> list[Row]:
        """Up to `most` links on their way to other logs, as OUTBOX rows, per source slot in order."""
        rows: list[Row] = []
        for home in self.tables.slots.values():
            rows.extend(home.outbox[number] for number in sorted(home.outbox)[: most - len(rows)])
            if len(rows) >= most:
                break
        return rows

    def receive(self, parcels: Sequence[Row], now: Instant) -> list[Code]:
        """Take in OUTBOX rows of other logs: each (source slot, sequence) once, however often it is brought."""
        now = self._advance(now)
        draft = self._draft(now)
        wanted: list[_Wanted] = []
        taken: list[int] = []
        codes = [Code.KNOWN] * len(parcels)
        marks: dict[tuple[int, int], int] = {}
        for number, parcel in enumerate(parcels):
            source, sequence, target, crawl, key, due, priority, depth, hops, seed, referrer, metadata, url = parcel
            home = self.tables.slots.get(int(target))
            place = (int(target), int(source))
            if int(sequence) <= max(marks.get(place, 0), home.arrived.get(place[1], 0) if home is not None else 0):
                continue
            marks[place] = int(sequence)
            taken.append(number)
            wanted.append(
                _Wanted(
                    str(url),
                    key=str(key) or None,
                    priority=float(priority),
                    depth=int(depth),
                    hops=int(hops),
                    referrer=str(referrer),
                    due=None if due == -1 else int(due),
                    crawl=draft.crawl(str(crawl)),
                    metadata=bytes(metadata),
                    seed=bool(seed),
                )
            )
        for (target, source), sequence in marks.items():
            draft.add(Fact.ARRIVED, (target, source, sequence))
        for number, code in zip(taken, self._accept(wanted, draft), strict=True):
            codes[number] = code
        self._commit(draft)
        return codes

    def delivered(self, source: int, sequence: int, now: Instant) -> None:
        """The other log has everything from this slot up to this sequence."""
        draft = self._draft(self._advance(now))
        draft.add(Fact.DELIVERED, (source, sequence))
        self._commit(draft, reserve=True)

    def slot_of(self, name: str) -> int:
        """The slot of a host: the top 12 bits of the keyed hash of its registrable domain, or of itself if it has
        none."""
        number = int.from_bytes(kernels.fingerprints([registrable_domain(name) or name], self._slot_key), "little")
        return number >> 52

    # -- lease --------------------------------------------------------------------------------------------------------

    def _pages_left(self) -> int:
        limit = self.settings.max_pages
        if limit is None:
            return CALL_ROWS_MAX
        return limit - self.tables.tallies.get("answered", 0) - self.tables.counts[LEASED]

    def _next_token(self) -> int:
        """Epoch (the number of the opening) and counter: tokens grow within an opening and across openings."""
        return max(self.tables.token + 1, self.tables.opening[0] << 40)

    def _matching(self, crawl_row: int | None, crawl: str | None, key: str | None) -> list[Host] | None:
        """The ready hosts that have a queue of this crawl and key, longest ready first; None when there is no such
        wish."""
        if crawl is None and key is None:
            return None
        if crawl is not None and crawl_row is None:
            return []
        return [
            host
            for host in self._ready.hosts()
            if host.errands
            or any((crawl is None or q.crawl == crawl_row) and (key is None or q.key == key) for q in host.queues)
        ]

    def _queue_of(
        self, host: Host, crawl: int | None, key: str | None, now: Instant, taken: set[Group]
    ) -> Queue | None:
        """The host's queue whose turn it is: the best class first, among equals the one that was served longest ago."""
        # Every so many turns the class does not count, so that no crawl waits for ever behind a better one.
        fair = host.turns % OLDEST_DRAW_EVERY == OLDEST_DRAW_EVERY - 1
        best: tuple[int, int] | None = None
        chosen: Queue | None = None
        for queue in host.queues:
            if (crawl is not None and queue.crawl != crawl) or (key is not None and queue.key != key):
                continue
            if queue.group is not None and (queue.group in taken or queue.group.busy or queue.group.rest_until > now):
                continue
            url = queue.best()
            if url is None:
                continue
            rank = (0 if fair else -url.klass, queue.served)
            if best is None or rank < best:
                best, chosen = rank, queue
        return chosen

    def _take(self, draft: Draft, queue: Queue, most: int, budget: int, now: Instant) -> tuple[list[Url], int]:
        """Up to `most` URLs of a queue that may be fetched now, and how many were judged away; at most `budget`."""
        urls: list[Url] = []
        judged = 0
        limit = self.settings.max_pages_per_host
        while len(urls) < most and judged < budget:
            url = queue.best()
            if url is None or (limit is not None and queue.host.answered < limit <= queue.host.answered + len(urls)):
                break
            heapq.heappop(queue.heap)
            authority = self._authority(url)
            if limit is not None and queue.host.answered >= limit:
                draft.move(url, PARKED, Reason.BUDGET, url.due)
                draft.drawn.append(url)
                judged += 1
                continue
            verdict = self._judge(authority, url, now)
            if verdict is Judgement.HOLD:
                judged += 1
                authority.held.append(url)
                authority.klass = max(authority.klass, url.klass)
                self._line_up(authority)
                if urls:
                    break
                continue
            draft.drawn.append(url)
            if verdict is Judgement.GO:
                urls.append(url)
            else:
                judged += 1
                self._refuse(draft, url, authority, verdict, now)
        return urls, judged

    def _authority(self, url: Url) -> Authority:
        if url.authority is None:
            url.authority = self.tables.authorities[authority_of(url.url)]
        return url.authority

    def _judge(self, authority: Authority, url: Url, now: Instant) -> Judgement:
        return judged(authority, url.url, now, errands=self.errands_mode, rules=self._rules)

    def _refuse(self, draft: Draft, url: Url, authority: Authority, verdict: Judgement, now: Instant) -> None:
        if verdict is Judgement.DEAD:
            draft.move(url, GONE, Reason.ERROR, url.due, error=authority.error)
            draft.error(authority.error)
            self._refusal_line(draft, url, now, outcome="error", error=authority.error)
            return
        error = "robots_unreachable" if authority.state == RobotsState.REFUSED else None
        first = url.error not in ("robots", "robots_unreachable")
        draft.move(url, PARKED, Reason.ROBOTS, url.due, error=error or "robots")
        if first:
            draft.error(error or "robots")
            self._refusal_line(draft, url, now, outcome="robots", error=error)

    def _refusal_line(self, draft: Draft, url: Url, now: Instant, *, outcome: str, error: str | None) -> None:
        line = refusal(
            url.url,
            now,
            outcome=outcome,
            error=error,
            depth=url.depth,
            referrer=url.referrer,
            priority=url.priority,
        )
        draft.line(url, 0, "pages", line, 0)

    def _line_up(self, authority: Authority) -> None:
        """Line its errand up at the host that will be asked."""
        if authority.wanted is not None or authority.token:
            return
        host = self.tables.hosts.get(host_of(authority.url))
        if host is None:
            return
        authority.wanted = host
        host.errands.append(authority)
        self._lined_up[authority.name] = authority
        self.tables.changed.append(host)

    def _line_down(self, authority: Authority) -> None:
        """Its errand is answered: whoever waits for it is looked at again."""
        self._leave_line(authority)
        held, authority.held, authority.klass = authority.held, [], -1
        for url in held:
            if url.state == QUEUED:
                self._file(url)
        self._touch(authority.host, self.now)

    def _leave_line(self, authority: Authority) -> None:
        host = authority.wanted
        self._lined_up.pop(authority.name, None)
        if host is not None:
            authority.wanted = None
            host.errands.remove(authority)
            self._touch(host, self.now)

    def _judge_again(self, now: Instant, most: int) -> int:
        """Parked URLs of authorities whose rules changed, a bounded number per call."""
        draft = self._draft(now)
        taken: list[tuple[Authority, Url]] = []
        judged = 0
        while self._recheck and judged < most:
            authority = self._recheck[-1]
            while authority.recheck and judged < most:
                url = authority.recheck[-1]
                if url.state == PARKED and url.reason == Reason.ROBOTS:
                    verdict = self._judge(authority, url, now)
                    if verdict is Judgement.HOLD:
                        break  # its rules are out of date: they go on when the new ones are here
                    if verdict is Judgement.GO:
                        draft.move(url, *_place_of(url, now), url.due)
                    else:
                        authority.parked.append(url)
                    taken.append((authority, url))
                judged += 1
                authority.recheck.pop()
            if judged < most or not authority.recheck:
                self._recheck.pop()
        try:
            self._commit(draft, reserve=True)
        except StoreFullError:
            for authority, url in reversed(taken):
                authority.recheck.append(url)
                if authority not in self._recheck:
                    self._recheck.append(authority)
            raise
        return judged

    def _lease_of(self, kind: Kind, owner: Url | Authority) -> Lease:
        if isinstance(owner, Authority):
            host = owner.busy or owner.host
            return Lease(
                owner.url,
                key=host.name,
                kind=kind,
                authority=owner.name,
                host=host.name,
                token=owner.token,
                deadline=owner.deadline,
                priority=1.0,
                depth=0,
                attempt=owner.attempts + 1,
                not_before=self.now,
                hops=owner.hops,
                ended_before=host.ended or None,
                gap_seconds=host.gap if host.ended else None,
            )
        url = owner
        host = url.queue.host
        return Lease(
            url.url,
            key=url.queue.key,
            kind=kind,
            authority=self._authority(url).name,
            host=host.name,
            token=url.token,
            deadline=url.deadline,
            priority=url.priority,
            depth=url.depth,
            attempt=url.attempts + 1,
            not_before=url.not_before,
            hops=url.hops,
            referrer=url.referrer or None,
            metadata=msgspec.json.decode(url.metadata) if url.metadata else None,
            etag=url.etag or None,
            last_modified=url.modified or None,
            crawl=self.tables.crawls[url.queue.crawl][0],
            ended_before=host.ended or None,
            gap_seconds=host.gap if host.ended else None,
        )

    def _same_leases(self, tokens: bytes) -> LeaseBatch:
        """The answer to a repeated call: the leases it gave that are still open."""
        leases = []
        for (token,) in struct.iter_unpack("<Q", tokens):
            owner = self.tables.leases.get(token)
            if owner is not None:
                leases.append(self._lease_of(Kind.ROBOTS if isinstance(owner, Authority) else Kind.PAGE, owner))
        return LeaseBatch(leases, lsn=self.lsn)

    # -- report -------------------------------------------------------------------------------------------------------

    def _rested(
        self,
        draft: Draft,
        host: Host,
        outcome: Outcome,
        now: Instant,
        *,
        crawl_delay: float,
        redirect: bool,
        page: bool,
        begun: Instant,
    ) -> None:
        """The host rests after a request: the largest of floor, factor, crawl delay, Retry-After and back-off.

        begun: no request of this lease can have ended earlier, whatever the clock of whoever made it says.
        """
        clock = draft.clock(host)
        ended = now if outcome.ended_at is None else max(begun, min(outcome.ended_at, now))
        # On a redirect Retry-After speaks of the target (RFC 9110 §10.2.3); otherwise it rests the whole host.
        retry_after = None if redirect else outcome.retry_after_seconds
        rest = rest_after(
            ended,
            seconds=outcome.seconds,
            floor=self.settings.delay,
            factor=self.settings.delay_factor,
            crawl_delay=crawl_delay,
            retry_after=retry_after,
            refused=outcome.refused,
            back_off=clock.back_off,
            refused_at=clock.refused_at,
        )
        clock.ended = max(ended, clock.ended)
        clock.rest_at_least(rest.until)
        clock.gap, clock.reason = rest.gap, int(rest.reason)
        clock.back_off, clock.refused_at = rest.back_off, rest.refused_at
        if page and _answered(outcome):
            clock.answered += 1

    def _page_done(self, draft: Draft, url: Url, outcome: Outcome, now: Instant, wanted: list[_Wanted]) -> None:
        host = url.queue.host
        redirect = outcome.location is not None and outcome.verdict is Verdict.DONE
        self._rested(
            draft,
            host,
            outcome,
            now,
            crawl_delay=self._rules.crawl_delay(host),
            redirect=redirect,
            page=True,
            begun=url.not_before,
        )
        if _answered(outcome):
            draft.tally("answered", 1)
        if outcome.bytes_read:
            draft.tally("bytes", outcome.bytes_read)
        if outcome.duplicate:
            draft.tally("duplicates", 1)
        if outcome.error is not None:
            draft.error(outcome.error)
        status = outcome.status or 0
        ended = now if outcome.ended_at is None else min(outcome.ended_at, now)
        if redirect:
            target = self._spelled([outcome.location or ""], url.url)[0]
            if target == url.url:
                draft.move(url, GONE, Reason.REDIRECT_SELF, url.due, status=status, error="redirect_self", losses=0)
                return
            due = url.due
            if outcome.retry_after_seconds:
                due = ended + instant(min(outcome.retry_after_seconds, RETRY_AFTER_SECONDS_MAX))
            wanted.append(
                _Wanted(
                    target or outcome.location or "",
                    priority=url.priority,
                    depth=url.depth,
                    hops=url.hops + 1,
                    referrer=url.url,
                    due=due,
                    crawl=url.queue.crawl,
                    seed=url.depth == 0 and target is not None and url.hops < REDIRECT_HOPS_MAX,
                    source=url.slot,
                )
            )
        if outcome.verdict is Verdict.DONE:
            draft.move(url, DONE, 0, url.due, attempts=0, losses=0, status=status, error=outcome.error or "")
        elif outcome.verdict is Verdict.AGAIN:
            due = outcome.at if outcome.at is not None else now
            draft.move(url, WAITING, 0, due, attempts=0, losses=0, status=status, error="")
        elif outcome.verdict is Verdict.GONE:
            reason = Reason.STATUS if outcome.status is not None else Reason.ERROR
            draft.move(url, GONE, reason, url.due, losses=0, status=status, error=outcome.error or "")
        else:
            self._retry(draft, url, outcome, ended)
            return
        if outcome.verdict is not Verdict.GONE:
            metadata = url.metadata if outcome.metadata is None else _metadata(outcome.metadata)
            visit = (outcome.digest or b"", outcome.etag or "", outcome.last_modified or "", metadata)
            draft.add(Fact.VISIT, (url.slot, url.row, ended, *visit))

    def _retry(self, draft: Draft, url: Url, outcome: Outcome, ended: Instant) -> None:
        attempt = url.attempts + 1
        status, error = outcome.status or 0, outcome.error or ""
        if not retries_left(attempt):
            reason = Reason.ERROR
            draft.move(url, GONE, reason, url.due, attempts=attempt, losses=0, status=status, error=error or "retries")
            return
        wait = outcome.after_seconds if outcome.after_seconds is not None else retry_seconds(attempt)
        rest_until = draft.clock(url.queue.host).rest_until
        due = max(ended + instant(max(0.0, wait)), rest_until)
        draft.move(url, WAITING, 0, due, attempts=attempt, losses=0, status=status, error=error)

    def _errand_done(self, draft: Draft, authority: Authority, outcome: Outcome, now: Instant) -> None:
        host = authority.busy or authority.host
        answer = outcome.robots or RobotsAnswer(outcome.status)
        self._robots_answer(draft, authority, answer, outcome.error, outcome.retry_after_seconds, now)
        rules = Rules.parse(answer.body) if verdict_of_status(answer.status) == "rules" else None
        crawl_delay = self._rules.crawl_delay(host)
        if rules is not None and host is authority.host:
            crawl_delay = max(crawl_delay, rules.crawl_delay(self.settings.user_agent) or 0.0)
        redirect = verdict_of_status(answer.status) == "redirect"
        begun = draft.clock(host).ended
        self._rested(draft, host, outcome, now, crawl_delay=crawl_delay, redirect=redirect, page=False, begun=begun)

    def _robots_answer(
        self,
        draft: Draft,
        authority: Authority,
        answer: RobotsAnswer,
        error: str | None,
        retry_after: float | None,
        now: Instant,
    ) -> None:
        found = after_answer(authority, answer, error, retry_after, now, retries=self.errands_mode)
        draft.add(Fact.ROBOTS, found.row(authority))
        if found.asks_next is not None:
            draft.host(found.asks_next)
        body = found.body
        if body is None:
            return
        delay = Rules.parse(body).crawl_delay(self.settings.user_agent) if body else None
        if delay:
            # It counts from the last request to the host on, also where a redirect led to the rules of another one.
            clock = draft.clock(authority.host)
            if clock.ended:
                clock.rest_at_least(clock.ended + instant(delay))
        digest = 0
        if body:
            digest = int.from_bytes(kernels.fingerprints([body.decode("latin-1")], self._fingerprint_key), "little")
        if digest != authority.digest or body != authority.body:
            draft.add(Fact.RULES, (authority.slot, authority.row, digest, body))

    def _lines(self, draft: Draft, owner: Url | Authority, outcome: Outcome, new_links: int) -> None:
        if outcome.line is not None:
            draft.line(owner, outcome.token, "pages", outcome.line, new_links)
        if outcome.politeness is not None:
            draft.line(owner, outcome.token, "politeness", outcome.politeness, -1)

    # -- committing ---------------------------------------------------------------------------------------------------

    def _forget_deadlines(self) -> None:
        """Leases that ended leave their deadlines behind; with long leases they would pile up for a day."""
        leases = self.tables.leases
        if len(self._deadlines) > 2 * len(leases) + DEADLINES_KEPT_MAX:
            self._deadlines = [(owner.deadline, token) for token, owner in leases.items()]
            heapq.heapify(self._deadlines)

    def _draft(self, now: Instant) -> Draft:
        return Draft(self.tables, now, slot_of=self.slot_of, keeps_lines=self.keeps_lines)

    def _repeated(self, request_id: RequestId | None, verb: str) -> bytes | None:
        if request_id is None:
            return None
        arguments.request(request_id)
        client, sequence = request_id
        window = self.tables.requests.get(client)
        known = window.get(sequence) if window is not None else None
        if known is None:
            return None
        if known[0] != _VERBS[verb]:
            raise SettingsError(
                f"request_id {request_id!r} was used for another verb: give each call a sequence of its own"
            )
        return known[1]

    def _answered(self, draft: Draft, request_id: RequestId | None, verb: str, answer: bytes) -> None:
        if request_id is not None:
            draft.add(Fact.REQUEST, (OWN_SLOT, request_id[0], request_id[1], _VERBS[verb], answer))

    def _commit(self, draft: Draft, *, reserve: bool = False) -> None:
        """Log, then apply; the same `apply` replays the frame after a crash."""
        blocks = draft.blocks()
        if blocks:
            payload = encode(draft.now, blocks)
            if len(payload) > FRAME_PAYLOAD_BYTES_MAX:
                self._forget_scopes()
                raise SettingsError(f"{len(payload)} bytes in one call; cut it into smaller ones")
            try:
                self.lsn = self._log.append(FRAME_KIND, payload, reserve=reserve)
            except StoreFullError:
                self._forget_scopes()
                raise
            for kind, rows in blocks:
                self.tables.apply(kind, rows)
            self.tables.now = draft.now
        self._settle(draft)

    def _forget_scopes(self) -> None:
        """They are made anew from the tables."""
        self._scopes.clear()
        self._spans.clear()

    def _settle(self, draft: Draft) -> None:
        """Timetable, rings and heaps follow what was applied."""
        tables = self.tables
        placed, tables.placed = tables.placed, []
        changed, tables.changed = tables.changed, []
        groups: dict[Group, None] = {}
        for url in placed:
            self._file(url)
            queue = url.queue
            changed.append(queue.host)
            if queue.group is not None:
                queue.group.rest_until = max(queue.group.rest_until, queue.host.rest_until)
                groups[queue.group] = None
        for group in groups:
            changed.extend(queue.host for queue in group.queues)
        for row in draft.facts.get(Fact.ROBOTS, ()):
            self._robots_changed(tables.slots[int(row[0])].authorities[int(row[1])], draft)
        for row in draft.facts.get(Fact.ERRAND, ()):
            authority = tables.slots[int(row[0])].authorities[int(row[1])]
            if authority.wanted is not None:
                authority.wanted.errands.remove(authority)
                authority.wanted = None
        for host in dict.fromkeys(changed):
            self._touch(host, draft.now)

    def _robots_changed(self, authority: Authority, draft: Draft) -> None:
        changed = any(row[0] == authority.slot and row[1] == authority.row for row in draft.facts.get(Fact.RULES, ()))
        if self.errands_mode and authority.held and unanswered(authority, draft.now):
            # Another hop or attempt, or the errand was lost: who waits goes on waiting, in the line of the next host.
            self._leave_line(authority)
            self._line_up(authority)
            if authority.wanted is not None:
                self._touch(authority.wanted, draft.now)
            return
        self._line_down(authority)
        if authority.state == RobotsState.REFUSED and self.errands_mode:
            self._line_up(authority)  # tried again daily, while the crawl goes on
        if authority.state in (RobotsState.RULES, RobotsState.ALLOW) and self.tables.counts[PARKED]:
            if changed or authority.state == RobotsState.ALLOW:
                again, authority.parked = authority.parked, []
            else:
                again = [url for url in authority.parked if url.error == "robots_unreachable"]
                authority.parked = [url for url in authority.parked if url.error != "robots_unreachable"]
            authority.recheck += again
            if authority.recheck and authority not in self._recheck:
                self._recheck.append(authority)

    def _file(self, url: Url) -> None:
        """Put a URL where its state belongs: its queue's heap, the calendar, who waits for other rules, or nowhere."""
        url.place += 1
        if url.state == QUEUED:
            # Rows count up as URLs come: first come, first served, the same before and after a restart.
            heapq.heappush(url.queue.heap, (-url.klass, url.due, url.row, url.place, url))
        elif url.state == PARKED:
            if url.reason == Reason.ROBOTS:
                self._authority(url).parked.append(url)
        elif url.state == WAITING:
            self._order += 1
            heapq.heappush(self._waiting, (url.due, self._order, url.place, url))

    def _touch(self, host: Host, now: Instant) -> None:
        """Book the host, offer it, or leave it alone, as its clock, its turns and its queues say."""
        if host.leases:
            self._ready.withdraw(host)
            return
        klass = -1
        at: Instant | None = None
        for queue in host.queues:
            url = queue.best()
            if url is None:
                continue
            group = queue.group
            if group is not None and group.busy:
                continue
            klass = max(klass, url.klass)
            free = max(host.rest_until, group.rest_until if group is not None else 0)
            at = free if at is None else min(at, free)
        if self._runs_errands:
            for authority in host.errands:
                free = max(host.rest_until, authority.next_at)
                at = free if at is None else min(at, free)
                klass = max(klass, authority.klass)
        if at is None:
            self._ready.withdraw(host)
            host.stamp += 1
        elif at <= now:
            self._ready.offer(host, max(klass, 0), now)
        else:
            self._ready.withdraw(host)
            self._timetable.rest(host, at)

    def __repr__(self) -> str:
        counts = self.tables.counts
        return f"<Machine {counts[QUEUED]} queued, {counts[LEASED]} leased, {counts[DONE]} done at {rfc3339(self.now)}>"


def _place_of(url: Url, now: Instant) -> tuple[int, int]:
    """State and reason of a URL that nothing forbids any more."""
    return (WAITING if url.due > now else QUEUED), int(Reason.NONE)


def _answered(outcome: Outcome) -> bool:
    return outcome.status is not None if outcome.answered is None else outcome.answered


def _metadata(metadata: object) -> bytes:
    if metadata is None:
        return b""
    try:
        return msgspec.json.encode(metadata)
    except (TypeError, ValueError) as error:
        raise SettingsError(f"metadata cannot be kept: {error}; give a mapping of JSON values") from error


def _below(depth: int) -> int:
    """The depth of what is found on a page of this depth; beyond 16 bits it counts no further."""
    return min(depth + 1, 65_535)


def _bounded(rows: int, what: str) -> None:
    if rows > CALL_ROWS_MAX:
        raise SettingsError(f"{rows} {what} in one call; cut it into calls of at most {CALL_ROWS_MAX}")


def _codes_of(numbers: bytes) -> tuple[Code, ...]:
    return tuple(map(_CODES.__getitem__, numbers))


def _by_outcome(
    links: Sequence[tuple[int, str | Link]] | UrlBatch, outcomes: int
) -> Mapping[int, list[str | Link] | UrlBatch]:
    """Links that name their outcome, by outcome. Raises SettingsError for one that is not there."""
    if isinstance(links, UrlBatch):
        rows = arguments.outcome_rows(links, outcomes)
        return {int(row): links.filter(rows == row) for row in np.unique(rows)}
    extra: dict[int, list[str | Link]] = {}
    for row, link in arguments.pairs(links):
        if not 0 <= row < outcomes:
            raise SettingsError(f"link {link!r} names outcome {row}; there are {outcomes}")
        extra.setdefault(row, []).append(link)
    return extra


def _report_of(answer: bytes) -> Report:
    settled, links = msgspec.msgpack.decode(answer)
    return Report(tuple(Settled.OK if ok else Settled.STALE for ok in settled), tuple(map(_codes_of, links)))
