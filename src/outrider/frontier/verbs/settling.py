"""Turns outcomes into facts: rests of hosts, states and texts of URLs, lines of output. In columns; errands are
rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import astuple

from outrider import kernels
from outrider.clock import Instant, instant
from outrider.errors import SettingsError
from outrider.frontier.format.card_columns import Cards, fetched_cells
from outrider.frontier.format.card_records import (
    CARD_FIELDS,
    EMPTY,
    KEPT_FIELDS,
    KeptFields,
    number_bytes,
    parts_of,
    visits_of,
)
from outrider.frontier.format.facts import Fact
from outrider.frontier.format.metadata import metadata_bytes_max
from outrider.frontier.policy.block_detection import (
    BREAKS,
    NAMELESS,
    PARKED_FROM,
    BlockSignal,
    Signals,
    block_scores_after,
    is_silent,
    silent_seconds,
)
from outrider.frontier.policy.network import SILENT, Network
from outrider.frontier.policy.politeness import UNANSWERED, ends_of, rests_after
from outrider.frontier.policy.revisit import NEVER, bad_answer_seconds, codes_of, retries_at
from outrider.frontier.state.authorities import CELLS, WITH_COPY, Authority
from outrider.frontier.state.errand import ANSWERS, ENDED, CallersErrand, Errand
from outrider.frontier.state.host_addresses import HostAddress
from outrider.frontier.state.hosts import (
    NONE,
    RULED,
    SLOWED,
    QueueRules,
    Rows,
    Uint64s,
    has_equals,
    mixed,
    words_of_keys,
)
from outrider.frontier.state.rested import NOT_OVER
from outrider.frontier.state.tables import rules_cells
from outrider.frontier.state.url_table import DONE, GONE, LEASED, QUEUED, WAITING, OpenLeases, Reason, states_of
from outrider.frontier.verbs import arguments
from outrider.frontier.verbs import outcome_columns as verdicts
from outrider.frontier.verbs.arguments import HTTP_STATUS_MAX
from outrider.frontier.verbs.arrivals import Arrival, Origin
from outrider.frontier.verbs.deciding import Core, Part, bounded
from outrider.frontier.verbs.discovering import Discovering, origins_of
from outrider.frontier.verbs.draft import Draft
from outrider.frontier.verbs.outcome_columns import OutcomeColumns
from outrider.frontier.verbs.paying import PAYMENT_REQUIRED
from outrider.frontier.verbs.report_pieces import ByRow
from outrider.frontier.verbs.revisited_files import RevisitedFiles
from outrider.frontier.verbs.revisiting import OWN_PLACES
from outrider.frontier.verbs.robots_files import RobotsFiles
from outrider.frontier.verbs.trapping import NO_SUCH_NAME, Trapping
from outrider.journey import OUTCOME_FIELDS, Kind, RobotsAnswer
from outrider.kernels.card_layout import HAS_CONTENT, NOT_MODIFIED, SCHEDULE_SHIFT, Heads
from outrider.limits import (
    BAD_ANSWERS_MAX,
    DEPTH_MAX,
    MICROSECONDS,
    NETWORK_HOSTS_MIN,
    OWN_SLOT,
    REDIRECT_HOPS_MAX,
    RETRY_AFTER_SECONDS_MAX,
    ROBOTS_AGE_SECONDS_MIN,
    UNWELCOME_RUNS_MAX,
    UNWELCOME_SAME_BODIES,
    VISITS_MAX,
)
from outrider.robots import verdict_of_status
from outrider.url import UrlBatch, host_of

Flags = npt.NDArray[np.bool_]
Instants = npt.NDArray[np.int64]
Seconds = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]

_ALL = slice(None)
_NO_HASHES = np.zeros(0, np.uint64)
_KEPT_COLUMNS = tuple(
    (told.column or name if name in OUTCOME_FIELDS else None, EMPTY[name]) for name, told in KEPT_FIELDS.items()
)
"""The columns of outcomes that records keep, None for a field that no outcome has, and their empty values."""
_VISITS = list(KEPT_FIELDS).index("visits")
_DIGEST = list(KEPT_FIELDS).index("digest")
_STAYING = tuple(place for place, told in enumerate(KEPT_FIELDS.values()) if not told.renewed)
"""The places of fields that a record keeps until it gets another value."""
HEALTHY = int(BlockSignal.HEALTHY)  # numpy looks for names that an enumeration of Python 3.11 lacks, which is slow
_OF_STATUSES = np.full(HTTP_STATUS_MAX + 1, BlockSignal.NEUTRAL, np.uint8)
"""The sign of an answer, by its HTTP status."""
_OF_STATUSES[200:500] = HEALTHY
_OF_STATUSES[403] = BlockSignal.WALL
_OF_STATUSES[PAYMENT_REQUIRED] = BlockSignal.PAYMENT
_PHASES = np.uint64((1 << 50) - 1)  # the windows of a Crawl-delay begin at another instant for each host


@dataclass(slots=True)
class Ends:
    """The leases that the outcomes of one frame end. ended: outcomes of open leases of pages; hosts: rows of the
    pages' hosts; dead: ended ones whose URLs were deleted meanwhile; errands: open errands, by row; network: its state
    after these outcomes; spared: rows that failed in an outage of it; nameless: pages whose host has lost its
    address; unchanged: pages with the content of their own last visit, None without any; over: the ends of requests
    that were over before, NOT_OVER for the others, None without any."""

    outcomes: OutcomeColumns
    leases: OpenLeases
    ended: Flags
    hosts: Rows
    dead: Flags | None
    errands: dict[int, Errand]
    over: Instants | None = None
    network: Network = field(default_factory=Network)
    spared: frozenset[int] = frozenset()
    nameless: frozenset[int] = frozenset()
    unchanged: Flags | None = None
    files: list[int] = field(default_factory=list)

    def accepted(self) -> Flags:
        """Returns the outcomes that are not stale."""
        found = self.ended if self.dead is None else self.ended & ~self.dead
        if self.errands:
            found = found.copy()
            found[list(self.errands)] = True
        return found

    def requests_ended(self) -> Rows:
        """Returns the hosts of the page requests that end with these outcomes, one for each."""
        return self.hosts[self.ended if self.over is None else self.ended & (self.over == NOT_OVER)]


@dataclass(slots=True)
class _EndedPages:
    """The pages of a frame that end, a row each, and their new columns. until: the instants at which the rests of their
    hosts end; ended: the ends of the requests; keeps: pages whose new text counts; targets: the targets of redirects,
    by row; rows: of the frame; unchanged: as in `Ends`; planned: the values of a revisit rule, by row."""

    outcomes: OutcomeColumns
    cards: Cards
    heads: Heads
    queues: Rows
    until: Instants
    ended: Instants | Instant
    keeps: Flags | None
    targets: dict[int, Arrival]
    rows: Places | None
    unchanged: Flags | None = None
    planned: dict[int, list[bytes]] = field(default_factory=dict)

    def at(self, column: Any, rows: Places) -> Any:
        """Returns the values of these rows, of a column or a value for all."""
        return column[rows] if isinstance(column, np.ndarray) else column


class Settling(Part):
    """The part of the machine that turns outcomes into facts."""

    def __init__(self, core: Core, links: Discovering, traps: Trapping, robots: RobotsFiles) -> None:
        super().__init__(core)
        self._links, self._traps, self._robots = links, traps, robots
        self._files = RevisitedFiles(core)
        # Cells of the hosts that the present draft parks or pauses, by row.
        self.block_score: dict[int, int] = {}
        # In memory alone. A restart begins to count anew, so a host may be parked later, but never wrongly.
        self._same_bodies = kernels.SameBodies(UNWELCOME_RUNS_MAX, UNWELCOME_SAME_BODIES)

    def ends(self, outcomes: OutcomeColumns, *, bodies: bool) -> Ends:
        """Finds the leases of these outcomes. bodies: whether their texts are needed in any case."""
        tables, tokens = self.tables, outcomes.tokens
        if outcomes.text_digests and not self.settings.keep_text_digest:
            outcomes.text_digests = {}
        rows = len(outcomes)
        # A URL that was fetched without a new text needs only its head.
        bodies = bodies or self._traps.counts_returns or outcomes.needs_bodies() or bool(tables.urls.requeued)
        bodies = bodies or self._core.revisits.plan is not None or self._traps.payments.concern(outcomes)
        leases = self.tables.urls.by_token(tokens, bodies=bodies)
        if not bodies and (leases.cards.heads["flags"].any() or leases.cards.heads["fetched"].any()):
            leases = self.tables.urls.by_token(tokens)
        ended, first = leases.found, None
        if has_equals(tokens):
            first = np.zeros(rows, np.bool_)
            first[np.unique(tokens, return_index=True)[1]] = True  # a token that is named twice finds its lease ended
            ended = ended & first
        dead = ended & tables.urls.void(leases.cards.heads) if tables.urls.voids() else None
        errands = {}
        if tables.errands.open:
            for row, token in enumerate(tokens.tolist()):
                errand = tables.errands.open.get(token)
                if errand is not None and (first is None or first[row]):
                    errands[row] = errand
        hosts = tables.queues.host[leases.queues.astype(np.intp)]
        own = tables.crawls.of_callers(leases.cards.heads["crawl"])
        if own is not None:
            outcomes = outcomes.without_locations(ended & own)
        dead = dead if dead is not None and dead.any() else None
        unchanged = self._unchanged(outcomes, leases.cards, ended)
        if unchanged is not None and outcomes.duplicate is not None:
            outcomes.duplicate = outcomes.duplicate & ~unchanged
        over, network = tables.hosts.rested.ends_of(tokens), self._core.network
        return Ends(outcomes, leases, ended, hosts, dead, errands, over, network, unchanged=unchanged)

    def _unchanged(self, outcomes: OutcomeColumns, cards: Cards, ended: Flags) -> Flags | None:
        """Returns the pages with the content of their own last visit, None without any."""
        visited = ended & (cards.heads["flags"] & HAS_CONTENT != 0)
        found = visited & (outcomes.statuses == NOT_MODIFIED)
        rows = [row for row in outcomes.digests if visited[row]] if outcomes.digests and visited.any() else []
        contents = self.tables.content_hashes([outcomes.digests[row] for row in rows])
        for row, content in zip(rows, contents, strict=True):
            found[row] |= content == int.from_bytes(cards.extra_of(row)[:8], "little")
        return found if found.any() else None

    # -- our own network -----------------------------------------------------------------------------------------------

    def hear_network(self, draft: Draft, ends: Ends) -> None:
        """Detects an outage of our own network from these outcomes. In an outage no host is marked: its pages and
        errands are queued again after the pause, without a counted attempt. The hosts whose failures showed the outage
        get their old rates back."""
        outcomes, hosts, network = ends.outcomes, self.tables.hosts, self._core.network
        if not outcomes.errors and not (network.down or network.silent or network.given_up):
            return  # the usual case
        accepted = ends.accepted()
        failed = {row for row, error in outcomes.errors.items() if accepted[row] and error in SILENT}
        failed = {row for row in failed if not outcomes.statuses[row]}
        if not failed and not (network.down or network.silent or network.given_up):
            return
        silent: dict[int, float] = {}
        for row in failed:
            errand = ends.errands.get(row)
            host = int(ends.hosts[row]) if errand is None else errand.busy if errand.busy != NONE else errand.host
            if hosts.answered[host]:
                silent[int(hosts.hash[host])] = float(hosts.throttle[host])
        answered = bool((accepted & (outcomes.statuses != 0)).any())
        ends.network = network.after(answered=answered, silent=silent, now=draft.now)
        if not ends.network.down:
            return
        ends.spared = frozenset(failed)
        for name_hash, throttle in ends.network.silent.items() if not network.down else ():
            host = hosts.row(name_hash)
            if host != NONE:
                draft.clock(host).throttle = throttle
        pages = [row for row in failed if ends.ended[row] and outcomes.verdicts[row] == verdicts.RETRY]
        if pages:
            outcomes.come_again(pages, ends.network.until)

    def hear_names(self, ends: Ends) -> None:
        """Finds the pages whose host had an address and has lost it. This says nothing about a page: it returns to its
        queue without a counted attempt, and its host is paused."""
        outcomes, hosts, robots = ends.outcomes, self.tables.hosts, self.tables.robots
        found = [
            row
            for row, error in outcomes.errors.items()
            if error in NAMELESS and ends.ended[row] and not outcomes.statuses[row] and row not in ends.spared
            if outcomes.verdicts[row] in (verdicts.GONE, verdicts.RETRY)
        ]
        for row in found.copy():
            host = int(ends.hosts[row])
            if not (hosts.answered[host] or any(one.fetched for one in robots.of_host.get(host, ()))):
                found.remove(row)  # the host never answered
        if found:
            ends.nameless = frozenset(found)
            outcomes.come_again(found, verdicts.NO_INSTANT)

    # -- errands -------------------------------------------------------------------------------------------------------

    def answer_errands(self, draft: Draft, ends: Ends) -> None:
        """Handles the answers to errands, row by row."""
        outcomes = ends.outcomes
        for row, errand in ends.errands.items():
            error = outcomes.errors.get(row)
            if row in ends.spared:
                draft.error(error or "other")
                draft.add(*errand.ending(ends.network.until))
                continue
            if isinstance(errand, Authority):
                answer = _robots_of(outcomes, row)
                self._robots.take_answer(
                    draft, errand, answer, error, outcomes.seconds_of("retry_after_seconds", row), draft.now
                )
                if error == NO_SUCH_NAME and not errand.hops and not self.turns.shared.asks:
                    self._traps.count_nameless(draft, errand.slot, errand.host)
                continue
            if error is not None:
                draft.error(error)
            if isinstance(errand, CallersErrand):
                fact, cells = errand.after_answer(draft.now, **_answer_of(outcomes, row, error))
                if not cells[ENDED] and not self._homes.owns(host_of(cells[4])):
                    fact, cells = errand.cells(errand.name, ended=True)  # another frontier visits the next hop's host
                if cells[ENDED] and self._files.may_read_again(errand):
                    ends.files.append(row)  # its next visit depends on the links that it brought
                    continue
                draft.add(fact, cells)
                if not cells[ENDED]:
                    self._homes.add(draft, host_of(cells[4]))  # the host of the next hop
            if not isinstance(errand, HostAddress):
                continue
            # It was not a request to the host, so the host does not rest.
            self.turns.shared.moved([errand.host])
            cells = errand.after_answer(
                outcomes.addresses.get(row),
                draft.now,
                ttl_seconds=outcomes.seconds_of("ttl_seconds", row),
                error=error,
                after_seconds=outcomes.seconds_of("after_seconds", row),
                final=int(outcomes.verdicts[row]) == verdicts.GONE,
            )
            if cells[0] != errand.address:
                self._homes.leave_addresses(draft, [errand.host])
            draft.add(Fact.LOCATED, (*errand.place, *cells))
            if not cells[0] and cells[1]:  # it is not requested again soon
                self._traps.count_nameless(draft, errand.slot, errand.host)

    def plan_files(self, draft: Draft, ends: Ends, new_links: Mapping[int, int]) -> None:
        """Plans the next visits of sitemaps whose errands end with these outcomes. new_links: how many links were new,
        by row."""
        for row in ends.files:
            errand = ends.errands[row]
            assert isinstance(errand, CallersErrand)
            draft.add(*self._files.after_visit(draft, errand, ends.outcomes, row, new_links.get(row, 0)))

    def lengthen_copies(self, draft: Draft, ends: Ends) -> None:
        """Keeps each robots.txt that these outcomes brought valid until the next turn of its host. If the host rests
        for longer than the file is valid, the copy would be too old at every turn. No page would ever be fetched.
        The draft must contain the instants at which the hosts' rests end."""
        brought = {one.name: one for row, one in ends.errands.items() if isinstance(one, Authority)}
        rows = draft.rows.get(Fact.ROBOTS) if brought else None
        for place, row in enumerate(rows or ()):
            authority = brought.get(row[1])
            if authority is None:
                continue
            cells = dict(zip(CELLS, row[2:], strict=True))
            if cells["fetched"] != draft.now or cells["state"] not in WITH_COPY or cells["hops"]:
                continue  # no good answer yet, or an old copy that outlives a failure
            turn = draft.clock(authority.host).rest_until + instant(ROBOTS_AGE_SECONDS_MIN)
            if turn > cells["expires"]:
                draft.rows[Fact.ROBOTS][place] = (*row[:2], *(cells | {"expires": turn}).values())

    # -- hosts ---------------------------------------------------------------------------------------------------------

    def rest_hosts(self, draft: Draft, ends: Ends) -> tuple[Instants, Instants | Instant]:
        """Lets hosts rest after these requests: the longest of floor, factor, Crawl-delay, Retry-After, back-off
        and throttle. Returns for each outcome the end of the rest after it, and the end of the request."""
        outcomes = ends.outcomes
        requested = {row: one for row, one in ends.errands.items() if not isinstance(one, HostAddress)}
        rested, hosts = ends.ended, ends.hosts
        if requested:
            rested, hosts = rested.copy(), hosts.copy()
            for row, errand in requested.items():
                rested[row] = True
                hosts[row] = errand.busy if errand.busy != NONE else errand.host
        ended = self._ends_of_requests(ends.leases, requested, outcomes.ended_at, outcomes.seconds, ends.over)
        until = np.zeros(len(outcomes), np.int64)
        count = np.count_nonzero(rested)
        if not count:
            return until, ended
        rows = None if count == len(rested) else np.flatnonzero(rested)
        requests = _EndedRequests(
            seconds=outcomes.seconds,
            ended=ended,
            floor=self._floors(ends.leases, requested, hosts, rested),
            over=ends.over,
            retry_after=_retry_after_of_hosts(outcomes, requested),
            refused=outcomes.refused,
            answered=outcomes.answered if not requested else outcomes.answered & ends.ended,
            strained=_strained(outcomes, hosts, rested, ends.spared),
            first_byte=outcomes.first_byte_seconds,
            signals=self._signals(draft, ends, hosts, rested),
        )
        requests = requests if rows is None else requests.take(rows)
        some = hosts if rows is None else hosts[rows]
        until_of_some = self._rest(draft, some, requests)
        if rows is None:
            return until_of_some, ended
        until[rows] = until_of_some
        return until, ended

    def rest_early(
        self,
        draft: Draft,
        tokens: Uint64s,
        leases: OpenLeases,
        errands: Mapping[int, Errand],
        seconds: Seconds,
        reported: Instants | None,
    ) -> Instants:
        """Lets hosts rest after requests whose outcomes are not known yet. All tokens are open and differ. reported:
        the ends of the requests, as their holders say. Returns the ends that count."""
        rows, hosts = len(tokens), self.tables.queues.host[leases.queues.astype(np.intp)]
        for row, errand in errands.items():
            hosts[row] = errand.busy
        over = self.tables.hosts.rested.ends_of(tokens)
        ended = np.zeros(rows, np.int64)
        ended[:] = self._ends_of_requests(leases, errands, reported, seconds, over)
        requests = _EndedRequests(
            seconds=seconds,
            ended=np.maximum(ended, leases.not_before),  # a URL of a train may be requested later than now
            floor=self._floors(leases, errands, hosts, np.ones(rows, np.bool_)),
            over=over,
        )
        self._rest(draft, hosts, requests)
        return ended

    def _floors(self, leases: OpenLeases, errands: Mapping[int, Errand], hosts: Rows, rested: Flags) -> Seconds | float:
        """Returns the least gap after each of these requests, or one for all. errands: those that are no page."""
        if not self.tables.queues.rules:
            return self.settings.delay
        floor = np.full(len(rested), self.settings.delay)
        ruled = (self.tables.hosts.flags[np.where(rested, hosts, 0)] & np.uint16(RULED | SLOWED)) != 0
        for row in np.flatnonzero(ruled & rested).tolist():
            floor[row] = (
                self._rests.floor_of_host(int(hosts[row]))
                if row in errands
                else self._rests.floor_of_page(int(leases.queues[row]))
            )
        return floor

    def _ends_of_requests(
        self,
        leases: OpenLeases,
        errands: Mapping[int, Errand],
        reported: Instants | None,
        seconds: Seconds,
        over: Instants | None,
    ) -> Instants | Instant:
        """Returns the instants at which requests ended, as their holders reported them; now for all if no holder did
        and no request was over before."""
        now = self._core.now
        if reported is None:
            return now if over is None else np.where(over == NOT_OVER, now, over)
        begun: Instants = leases.not_before
        if errands or np.count_nonzero(leases.holders):
            # The instants of a named worker cannot be compared with ours: its clock may be off by any amount.
            begun = np.where(leases.holders == 0, begun, -1)
        for row, errand in errands.items():
            begun[row] = errand.begun if errand.begun is not None and errand.holder == 0 else -1
        return ends_of(reported, seconds, begun=begun, now=now, over=over)

    def _rest(self, draft: Draft, hosts: Rows, requests: _EndedRequests) -> Instants:
        """Sets the clocks of hosts after these requests, in order if a host appears more than once. Returns the ends
        of their rests."""
        if not has_equals(hosts):
            clocks = draft.clocks(hosts)
            delays = self._rests.crawl_delays(draft, hosts)
            self._rest_each(hosts, clocks, _ALL, requests, delays)
            return clocks["rest_until"]
        each, places = np.unique(hosts, return_inverse=True)
        clocks = draft.clocks(each)
        delays = self._rests.crawl_delays(draft, each)
        until = np.zeros(len(hosts), np.int64)
        for rows in _rounds(places):
            at = places[rows]
            self._rest_each(each, clocks, at, requests.take(rows), None if delays is None else delays[at])
            until[rows] = clocks["rest_until"][at]
        return until

    def _rest_each(
        self,
        hosts: Rows,
        clocks: Mapping[str, npt.NDArray[Any]],
        at: Places | slice,
        requests: _EndedRequests,
        delays: npt.NDArray[np.float64] | None,
    ) -> None:
        """Sets the clocks at these places, each of which appears once."""
        windows = delays is not None and self.settings.crawl_delay_as == "window"
        drawn = windows or requests.refused is not None
        hashes = self.tables.hosts.hash[hosts[at].astype(np.intp)] if drawn else _NO_HASHES
        back_off, refused_at = clocks["back_off"][at], clocks["refused_at"][at]
        throttle, latency_ms = clocks["throttle"][at], clocks["latency_ms"][at]
        rests = rests_after(
            requests.ended,
            seconds=requests.seconds,
            floor=requests.floor,
            factor=self.settings.delay_factor,
            back_off=back_off,
            refused_at=refused_at,
            crawl_delay=delays,
            window_phase=(hashes & _PHASES).astype(np.int64) if windows else None,
            retry_after=requests.retry_after,
            refused=requests.refused,
            jitter=0.0 if requests.refused is None else self._draws(hashes, requests.ended),
            throttle=throttle,
            strained=requests.strained,
            first_byte=requests.first_byte,
            latency_ms=latency_ms,
            known=requests.signals is not None,
        )
        # Of several requests at once, the last to end may be reported first. The clock has its end, so the gap after it
        # stays.
        before = clocks["ended"][at]
        last = requests.ended >= before
        gap, reason, ended = rests.gap, rests.reason, requests.ended
        if requests.over is not None:
            # After an end that is known already, only a longer rest is news.
            last &= (requests.over == NOT_OVER) | (rests.until > clocks["rest_until"][at])
        if np.count_nonzero(last) < len(last):
            gap, reason = np.where(last, gap, clocks["gap"][at]), np.where(last, reason, clocks["reason"][at])
            ended = np.maximum(before, ended)
        clocks["gap"][at], clocks["reason"][at], clocks["ended"][at] = gap, reason, ended
        clocks["rest_until"][at] = np.maximum(clocks["rest_until"][at], rests.until)
        if requests.signals is None or requests.answered is None:
            return
        for name, cells, others in (
            ("back_off", back_off, rests.back_off),
            ("refused_at", refused_at, rests.refused_at),
            ("throttle", throttle, rests.throttle),
            ("latency_ms", latency_ms, rests.latency_ms),
        ):
            if others is not cells:  # most requests leave these cells as they are
                clocks[name][at] = others
        self._count_block_signs(hosts, clocks, at, requests.signals)
        clocks["answered"][at] += requests.answered

    def _count_block_signs(
        self, hosts: Rows, clocks: Mapping[str, npt.NDArray[Any]], at: Places | slice, signals: Signals
    ) -> None:
        """Counts the block signs of these requests in the clocks of their hosts."""
        before = clocks["block_score"][at]
        if not np.count_nonzero(before) and signals.max() <= HEALTHY:
            return  # the usual case
        before = before.copy()
        signals = np.where(
            (signals == BlockSignal.BROKEN) & (clocks["answered"][at] == 0), BlockSignal.NEUTRAL, signals
        )
        lost = (signals == BlockSignal.BROKEN) | (signals == BlockSignal.NAMELESS)
        for place in np.flatnonzero(is_silent(before) & lost).tolist():
            if self._left_alone(int(hosts[at][place])):  # a request from before the host fell silent shows nothing new
                signals[place] = BlockSignal.NEUTRAL
        after = clocks["block_score"][at] = block_scores_after(before, signals)
        told = (after != before) & (is_silent(after) | (after >= PARKED_FROM))
        self.block_score.update(zip(hosts[at][told].tolist(), after[told].tolist(), strict=True))

    def _signals(self, draft: Draft, ends: Ends, hosts: Rows, rested: Flags) -> Signals:
        """Returns the signs in these requests that hosts block crawlers."""
        outcomes = ends.outcomes
        statuses = outcomes.statuses
        signals: Signals = _OF_STATUSES[statuses]
        if outcomes.refused is not None:
            signals[outcomes.refused] = BlockSignal.NEUTRAL
        for row, error in outcomes.errors.items():
            if error in BREAKS and not statuses[row] and row not in ends.spared:
                signals[row] = BlockSignal.BROKEN
        for row in ends.nameless:
            signals[row] = BlockSignal.NAMELESS
        if outcomes.digests:
            signals[self._count_bodies(ends, hosts, rested & (signals == HEALTHY))] = BlockSignal.SAME
        if outcomes.challenged is not None:
            signals[outcomes.challenged] = BlockSignal.CHALLENGE
        if self._traps.payments.concern(outcomes):
            self._traps.payments.hear(draft, outcomes, ends.leases, ends.ended, signals)
        self._traps.walls.hear(hosts, ends.leases.cards, signals)
        return signals

    def _count_bodies(self, ends: Ends, hosts: Rows, healthy: Flags) -> Places:
        """Counts the bodies of healthy answers, without pages that have not changed. Returns the rows of answers at the
        end of a long run of equal bodies."""
        outcomes, cards = ends.outcomes, ends.leases.cards
        rows = np.fromiter(outcomes.digests, np.intp, len(outcomes.digests))
        # Python's own hash is keyed: only this run can compute it.
        bodies = np.fromiter(map(hash, outcomes.digests.values()), np.int64, len(rows)).view(np.uint64)
        counted = healthy[rows] if ends.unchanged is None else (healthy & ~ends.unchanged)[rows]
        rows, bodies = rows[counted], bodies[counted]
        starts = cards.offsets[rows]
        spans = (cards.arena, starts, starts + cards.heads["url_bytes"][rows])
        paths = np.frombuffer(kernels.hash_spans(*spans, self.tables.fingerprint_key, until=ord("?")), np.uint64)
        copies = np.zeros(len(rows), np.bool_) if outcomes.duplicate is None else outcomes.duplicate[rows]
        names = self.tables.hosts.hash[hosts[rows].astype(np.intp)]
        same = self._same_bodies.take(names, bodies, outcomes.tokens[rows], copies.view(np.uint8), paths)
        return rows[np.frombuffer(same, np.uint32)]

    def _draws(self, hashes: Uint64s, ended: Instants | Instant) -> npt.NDArray[np.float64]:
        """Returns a random number from 0 to below 1 for each host, by the frontier's seed: the same request draws the
        same number."""
        instants = np.broadcast_to(np.asarray(ended, np.int64), hashes.shape).astype(np.uint64)
        drawn = mixed(hashes ^ mixed(instants ^ np.uint64(self._core.seed)))
        found: npt.NDArray[np.float64] = (drawn >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return found

    def _left_alone(self, host: int) -> bool:
        """Whether a host that fell silent is paused just now."""
        rules = [self.tables.queues.rules.get(queue) for queue in self.tables.queues_of(host)]
        return host in self.block_score or any(one is not None and one.blocked_until > self._core.now for one in rules)

    def park_blocking_hosts(self, draft: Draft) -> None:
        """Pauses the queues of hosts that block crawlers, as an operator would. Blocks the queues of silent hosts for a
        while. Both apply to present queues and to later ones under the hosts' names."""
        tables = self.tables
        for host, cell in sorted(self.block_score.items()):
            again = 0 if cell >= PARKED_FROM else draft.now + instant(silent_seconds(cell))

            def kept(rules: QueueRules | None, again: Instant = again) -> QueueRules:
                rules = rules or QueueRules()
                return replace(rules, paused=rules.paused or not again, blocked_until=max(rules.blocked_until, again))

            for queue in tables.queues_of(host):
                draft.add(Fact.QUEUE_RULES, tables.queue_rules(queue, kept(tables.queues.rules.get(queue))))
            name = np.array([tables.hash_of(tables.hosts.name(host))], np.uint64)
            (number,) = words_of_keys(name).tolist()
            draft.add(Fact.QUEUE_RULES, rules_cells(OWN_SLOT, number, kept(tables.words.get(number))))

    # -- URLs ----------------------------------------------------------------------------------------------------------

    def move_pages(self, draft: Draft, ends: Ends, until: Instants, ended: Instants | Instant) -> dict[int, Arrival]:
        """Moves the URLs of pages to their next states. Returns the targets of redirects, by row of the outcome."""
        count = np.count_nonzero(ends.ended)
        if not count:
            return {}
        rows = None if count == len(ends.ended) else np.flatnonzero(ends.ended)
        outcomes, cards, queues, dead = ends.outcomes, ends.leases.cards, ends.leases.queues, ends.dead
        if rows is not None:
            outcomes, cards, queues, until = outcomes.take(rows), cards.take(rows), queues[rows], until[rows]
            ended = ended[rows] if isinstance(ended, np.ndarray) else ended
            dead = dead[rows] if dead is not None else None
        unchanged = ends.unchanged if ends.unchanged is None or rows is None else ends.unchanged[rows]
        pages = _EndedPages(outcomes, cards, cards.changed(), queues, until, ended, None, {}, rows, unchanged)
        before = None if dead is None else pages.heads[dead]
        self._set_heads(draft, pages)
        self.tables.urls.ordered(pages.heads, outcomes.tokens, draft.now)
        if dead is not None and before is not None:  # its host rests all the same, and max_pages counts it
            before["state"] = GONE
            pages.heads[dead] = before
            pages.keeps = ~dead if pages.keeps is None else pages.keeps & ~dead
            pages.targets = {row: target for row, target in pages.targets.items() if not dead[row]}
        self._count_pages(draft, pages, dead)
        if self._traps.counts_returns:
            self._traps.count_returns(draft, pages.cards, pages.outcomes)
        self._put_pages(draft, pages)
        return pages.targets if rows is None else {int(rows[row]): target for row, target in pages.targets.items()}

    def _set_heads(self, draft: Draft, pages: _EndedPages) -> None:
        """Sets the new heads of pages: state, reason, attempts, losses, due time, status and error."""
        outcomes, heads = pages.outcomes, pages.heads
        attempts = pages.cards.heads["attempts"]
        heads["state"], heads["reason"], heads["error"], heads["losses"] = DONE, 0, 0, 0
        heads["status"] = outcomes.statuses
        if outcomes.all_done:
            heads["attempts"], heads["fetched"] = 0, fetched_cells(pages.ended)
        else:
            answered = outcomes.answered | (outcomes.verdicts == verdicts.DONE)
            heads["fetched"] = np.where(answered, fetched_cells(pages.ended), heads["fetched"])
            chosen = outcomes.verdicts
            heads["attempts"] = np.where(chosen >= verdicts.RETRY, np.minimum(attempts + 1, 65_535), attempts)
            heads["attempts"][(chosen == verdicts.DONE) | (chosen == verdicts.AGAIN)] = 0
            self._set_others(draft, pages)
        for row, error in outcomes.errors.items():
            if not outcomes.all_done and int(outcomes.verdicts[row]) == verdicts.AGAIN:
                continue
            if error:
                heads["error"][row] = draft.error_number(error)
        if outcomes.locations:
            self._set_redirects(draft, pages)
        self._set_schedules(draft, pages)
        if self._core.revisits.plan is not None:
            self._plan_visits(draft, pages)

    def _set_schedules(self, draft: Draft, pages: _EndedPages) -> None:
        """Keeps the schedules of pages that are visited regularly. A bad answer does not end their visits. It makes
        them rarer, until there are too many in a row."""
        outcomes, heads, chosen = pages.outcomes, pages.heads, pages.outcomes.verdicts
        old = pages.cards.heads
        codes = old["flags"] >> SCHEDULE_SHIFT
        if not outcomes.all_done and (again := chosen == verdicts.AGAIN).any():
            # With an error, the page is queued again without a counted attempt, and its schedule stays as it is. The
            # same applies to a redirect to another spelling of the same URL, which is requested next.
            moved = (outcomes.statuses // 100 == 3) & (outcomes.statuses != NOT_MODIFIED)
            unasked = again & (self._with_errors(outcomes) | moved)
            heads["attempts"] = np.where(unasked & (codes != 0), old["attempts"], heads["attempts"])
            rows = np.flatnonzero(again & ~unasked)
            pauses = (heads["due"][rows] - pages.at(pages.ended, rows)) / MICROSECONDS
            heads["flags"][rows] = heads["flags"][rows] & HAS_CONTENT | codes_of(pauses) << SCHEDULE_SHIFT
        if not np.count_nonzero(codes):
            return  # the usual case
        answers = np.minimum(old["attempts"].astype(np.int64) + 1, 65_535)
        ended = (codes != 0) & ((heads["state"] == DONE) | (heads["state"] == GONE))
        kept = ended & self._answered_badly(outcomes) & (answers < BAD_ANSWERS_MAX)
        # A gone URL keeps its schedule, because an operator may queue it again.
        heads["flags"][ended & ~kept & (heads["state"] == DONE)] &= HAS_CONTENT
        rows = np.flatnonzero(kept)
        if not len(rows):
            return
        waits = bad_answer_seconds(codes[rows], answers[rows])
        due = pages.at(pages.ended, rows) + np.ceil(waits * MICROSECONDS).astype(np.int64)
        heads["due"][rows] = np.maximum(due, pages.until[rows])
        heads["state"][rows] = np.where(heads["due"][rows] > draft.now, WAITING, QUEUED)
        heads["attempts"][rows], heads["reason"][rows] = answers[rows], 0
        pages.keeps = np.ones(len(outcomes), np.bool_) if pages.keeps is None else pages.keeps
        pages.keeps[rows] = False

    def _plan_visits(self, draft: Draft, pages: _EndedPages) -> None:
        """Plans the next visits of pages that are fetched well, by the revisit rule of the settings. Crawls by unique
        keys are not revisited: their callers decide."""
        outcomes, heads, cards = pages.outcomes, pages.heads, pages.cards
        statuses = outcomes.statuses
        planned = (heads["state"] == DONE) & ((statuses // 100 == 2) | (statuses == NOT_MODIFIED))
        own = self.tables.crawls.of_callers(heads["crawl"])
        if own is not None:
            planned &= ~own
        planned[list(outcomes.locations)] = False
        rows = np.flatnonzero(planned)
        if not len(rows):
            return
        flags = cards.heads["flags"].tolist()
        kept = {row: parts_of(cards.extra_of(row), flags[row])[0] for row in rows.tolist()}
        ended = np.broadcast_to(np.asarray(pages.ended, np.int64), len(heads))[rows]
        changed = np.ones(len(rows), np.bool_) if pages.unchanged is None else ~pages.unchanged[rows]
        ages = np.full(len(rows), np.nan)
        for place, row in enumerate(rows.tolist()):
            text = outcomes.text_digests.get(row)
            if text is not None and text == kept[row].text_digest:
                changed[place] = False
            stamp = outcomes.last_modified.get(row) or ("" if changed[place] else kept[row].last_modified)
            ages[place] = _age_of(stamp, int(ended[place]))
        self._learn_signals(draft, cards, rows, changed, ended, [kept[row] for row in rows.tolist()])
        at, pauses, pages.planned = self._core.revisits.planned(cards, rows, changed, ages, ended, kept)
        heads["due"][rows] = np.maximum(at, draft.now)
        heads["state"][rows], heads["reason"][rows] = WAITING, Reason.PLANNED
        heads["flags"][rows] = heads["flags"][rows] & HAS_CONTENT | codes_of(pauses) << SCHEDULE_SHIFT

    def _learn_signals(
        self, draft: Draft, cards: Cards, rows: Places, changed: Flags, ended: Instants, kept: list[KeptFields]
    ) -> None:
        """Compares the signals of pages with what these visits showed."""
        if any(one.signals for one in kept):
            waited, rates = self._core.revisits.before_visits(cards.heads[rows], kept, ended)
            self._core.signals.learn(draft, cards, rows, changed, waited, rates, kept)

    def _with_errors(self, outcomes: OutcomeColumns) -> Flags:
        """Returns the outcomes with an error."""
        found = np.zeros(len(outcomes), np.bool_)
        found[[row for row, error in outcomes.errors.items() if error]] = True
        return found

    def _answered_badly(self, outcomes: OutcomeColumns) -> Flags:
        """Returns the outcomes that a page with a schedule survives: a redirect, a status from 300 on, an error. A page
        that its caller reports as gone or done without any of these is not visited again."""
        found: Flags = self._with_errors(outcomes) | ((outcomes.statuses >= 300) & (outcomes.statuses != NOT_MODIFIED))
        found |= outcomes.verdicts == verdicts.RETRY
        found[[row for row in outcomes.locations if int(outcomes.verdicts[row]) == verdicts.DONE]] = True
        return found

    def _set_others(self, draft: Draft, pages: _EndedPages) -> None:
        """Sets the heads of pages that are not done. The heads contain `attempts` already."""
        outcomes, heads, now = pages.outcomes, pages.heads, draft.now
        chosen = outcomes.verdicts
        gone = chosen == verdicts.GONE
        heads["state"][gone] = GONE
        heads["reason"][gone] = np.where(outcomes.statuses[gone] != 0, Reason.STATUS, Reason.ERROR)
        again = np.flatnonzero(chosen == verdicts.AGAIN)
        if len(again):
            at = np.full(len(again), now) if outcomes.at is None else outcomes.at[again]
            heads["due"][again] = np.where(at == verdicts.NO_INSTANT, now, at)
        retry = np.flatnonzero(chosen == verdicts.RETRY)
        if len(retry):
            asked = None if outcomes.after_seconds is None else outcomes.after_seconds[retry]
            due = retries_at(heads["attempts"][retry], pages.at(pages.ended, retry), asked)
            left = due != NEVER
            some = retry[left]
            heads["due"][some] = np.maximum(due, pages.until[retry])[left]
            again = np.concatenate((again, some))
            if len(some):
                draft.tally("retries", len(some))
            spent = retry[~left]
            heads["state"][spent], heads["reason"][spent] = GONE, Reason.ERROR
            for row in spent.tolist():
                if not outcomes.errors.get(row):
                    heads["error"][row] = draft.error_number("retries")
        heads["state"][again] = np.where(heads["due"][again] > now, WAITING, QUEUED)
        if again.size or retry.size or gone.any():
            pages.keeps = (chosen == verdicts.DONE) | (chosen == verdicts.AGAIN)

    def _set_redirects(self, draft: Draft, pages: _EndedPages) -> None:
        """Finds the targets of redirects. A URL that redirects to itself is gone."""
        outcomes, heads = pages.outcomes, pages.heads
        for row, location in outcomes.locations.items():
            if int(outcomes.verdicts[row]) != verdicts.DONE:
                continue
            url = pages.cards.url(row)
            target = self._links.spelled([location], url)[0]
            if target == url:
                heads["state"][row], heads["reason"][row] = GONE, Reason.REDIRECT_SELF
                heads["attempts"][row] = pages.cards.heads["attempts"][row]
                heads["error"][row] = draft.error_number("redirect_self")
                pages.keeps = np.ones(len(outcomes), np.bool_) if pages.keeps is None else pages.keeps
                pages.keeps[row] = False
                continue
            head = pages.cards.heads[row]
            due, asked = int(head["due"]), outcomes.seconds_of("retry_after_seconds", row)
            if asked:
                ended = int(pages.ended[row]) if isinstance(pages.ended, np.ndarray) else pages.ended
                due = ended + instant(min(asked, RETRY_AFTER_SECONDS_MAX))
            depth, hops = int(head["depth"]), int(head["hops"])
            is_last = hops >= REDIRECT_HOPS_MAX  # from here on, a target is a link like a link on a page
            pages.targets[row] = Arrival(
                target or location,
                0,
                min(depth + 1, DEPTH_MAX) if is_last else depth,
                0 if is_last else hops + 1,
                float(head["priority"]),
                due,
                int(head["crawl"]),
                referrer=url,
                seed=depth == 0 and target is not None and not is_last,
            )

    def _count_pages(self, draft: Draft, pages: _EndedPages, dead: Flags | None) -> None:
        outcomes = pages.outcomes
        if answered := int(np.count_nonzero(outcomes.answered)):
            draft.tally("answered", answered)
            if self._core.budgets.parks:
                hosts = self.tables.queues.host[pages.queues[outcomes.answered]]
                for name, count in self._core.budgets.tallies(hosts):
                    draft.tally(name, count)
        read = 0
        if outcomes.bytes_read is not None:
            read = sum((outcomes.bytes_read if dead is None else outcomes.bytes_read[~dead]).tolist())
        if read:
            draft.tally("bytes", read)
        if outcomes.duplicate is not None:
            copies = outcomes.duplicate if dead is None else outcomes.duplicate & ~dead
            if count := int(np.count_nonzero(copies)):
                draft.tally("duplicates", count)
        for row, error in outcomes.errors.items():
            if dead is None or not dead[row]:
                draft.error(error)

    def _put_pages(self, draft: Draft, pages: _EndedPages) -> None:
        """Adds the heads of pages to the draft, and whole cards if their texts changed."""
        cards, tokens, queues = pages.cards, pages.outcomes.tokens, pages.queues
        rows, values, contents = self._new_values(pages)
        if not rows:
            draft.heads(cards.with_heads(pages.heads), tokens, states_of(LEASED, len(cards)), queues)
            return
        every = len(rows) == len(cards)
        whole: Any = _ALL if every else np.array(rows, np.intp)
        bodies = (cards.arena, cards.offsets[:-1][whole])
        print_key = self.tables.fingerprint_key
        made = kernels.with_extras(pages.heads[whole], *bodies, CARD_FIELDS, values, contents, print_key)
        draft.rewritten(Cards.of_columns(*made), tokens[whole], states_of(LEASED, len(rows)), queues[whole])
        if not every:
            bare = np.delete(np.arange(len(cards)), whole)
            cards = cards.take(bare).with_heads(pages.heads[bare])
            draft.heads(cards, tokens[bare], states_of(LEASED, len(bare)), queues[bare])

    def _new_values(self, pages: _EndedPages) -> tuple[list[int], Any, Uint64s]:
        """Returns the rows of pages whose records change, the columns of the kept fields, and the hashes of contents
        without a digest. An outcome without a kept value changes no field but the number of visits; an outcome with one
        also replaces the fields that are `renewed`."""
        outcomes, cards, heads = pages.outcomes, pages.cards, pages.heads
        rows = outcomes.rewritten()
        if pages.keeps is not None:
            rows = [row for row in rows if pages.keeps[row]]
        # The first visit needs no byte of a record.
        again = (outcomes.answered & (cards.heads["fetched"] != 0)).nonzero()[0].tolist()
        if not rows and not again and not pages.planned:
            return rows, (), _NO_HASHES
        values: Any = []
        for name, none in _KEPT_COLUMNS:
            texts = getattr(outcomes, name) if name is not None else ()
            if not texts:
                values.append([none] * len(rows))
                continue
            all_there = len(texts) == len(rows) == len(outcomes)
            values.append(list(texts.values()) if all_there else [texts.get(row, none) for row in rows])
        if not again and not pages.planned and all(values[_DIGEST]) and not np.count_nonzero(heads["extra_bytes"]):
            return rows, values, np.zeros(len(rows), np.uint64)
        new = dict(zip(rows, zip(*values, strict=True), strict=True))
        return self._changed_values(pages, new, set(again))

    def _changed_values(
        self, pages: _EndedPages, new: Mapping[int, tuple[Any, ...]], again: set[int]
    ) -> tuple[list[int], Any, Uint64s]:
        """Returns the same as `_new_values`, for records with older values. new: the values of outcomes, by row;
        again: the rows of pages that were answered before."""
        cards, heads = pages.cards, pages.heads
        sizes, flags, ends = heads["extra_bytes"].tolist(), heads["flags"].tolist(), cards.offsets[1:].tolist()
        rows, contents, changed = [], [], []
        for row in sorted(new.keys() | again | pages.planned.keys()):
            kept, content = parts_of(cards.arena[ends[row] - sizes[row] : ends[row]], flags[row])
            old = astuple(kept)
            cells = list(new.get(row, old))
            for staying in _STAYING:
                cells[staying] = cells[staying] or old[staying]
            if row in again:
                cells[_VISITS] = number_bytes(min(visits_of(kept, 1) + 1, VISITS_MAX))
            for place, value in zip(OWN_PLACES, pages.planned.get(row, ()), strict=False):
                cells[place] = value
            if tuple(cells) != old:
                rows.append(row)
                contents.append(content)
                changed.append(cells)
        columns = [list(column) for column in zip(*changed, strict=True)]
        return rows, columns, np.array(contents, np.uint64)

    # -- links and lines -----------------------------------------------------------------------------------------------

    def take_links(
        self, draft: Draft, ends: Ends, links: tuple[ByRow, ByRow], targets: Mapping[int, Arrival]
    ) -> tuple[dict[int, bytes], dict[int, int]]:
        """Accepts the links of pages. Returns the numbers of their codes by row of the outcome, and by row whether a
        redirect's target was new."""
        given, extra = links
        if not given and not extra and not targets:
            return {}, {}
        wanted: list[Arrival] = []
        spans: dict[int, tuple[int, int]] = {}  # the single links of an outcome, among `wanted`
        columns: list[tuple[int, UrlBatch]] = []
        pages = (ends.ended if ends.dead is None else ends.ended & ~ends.dead).tolist()
        called = {row: errand for row, errand in ends.errands.items() if isinstance(errand, CallersErrand)}
        rows = [row for row in sorted({*targets, *given, *extra}) if pages[row] or row in called]
        of_row = {row: place for place, row in enumerate(rows)}  # the origin of an outcome's links
        origins = origins_of(ends.leases.cards, rows, self.tables.crawls.callers)
        for row in called.keys() & of_row.keys():
            origins[of_row[row]] = origin_of_errand(called[row])
        places = {row: place for place, row in enumerate(targets)}
        for row, target in targets.items():
            wanted.append(target.of_origin(of_row[row]))
        for row, place in of_row.items():
            start = len(wanted)
            for by_row in (given, extra):
                found = by_row.get(row)
                if found is None:
                    continue
                bounded(len(found), "links of one outcome")
                if isinstance(found, UrlBatch):
                    columns.append((row, found))
                    continue
                for link in found if isinstance(found, Sequence) else found.strings():
                    wanted.append(self._links.arrival(link, place, origins[place], draft))
            if len(wanted) > start:
                spans[row] = (start, len(wanted))
        return self._links.accept_found(wanted, columns, of_row, origins, spans, places, draft)

    def add_lines(self, draft: Draft, ends: Ends, accepted: Flags, new_links: Mapping[int, int]) -> None:
        """Adds the output lines of outcomes that are not stale. new_links: how many links were new, by row."""
        outcomes, errands = ends.outcomes, ends.errands
        if not self._core.keeps_lines or not (outcomes.lines or outcomes.politeness):
            return
        slots = ends.leases.cards.heads["slot"]
        if errands:
            slots = slots.copy()
            for row, errand in errands.items():
                slots[row] = errand.slot
        every = np.count_nonzero(accepted) == len(accepted)
        for stream, texts in (("pages", outcomes.lines), ("politeness", outcomes.politeness)):
            rows = list(texts) if every else [row for row in texts if accepted[row]]
            some: Any = _ALL if len(rows) == len(accepted) else rows
            told = list(texts.values()) if len(rows) == len(texts) else [texts[row] for row in rows]
            counts = [new_links.get(row, 0) for row in rows] if new_links else [0] * len(rows)
            draft.lines_of(stream, slots[some], outcomes.tokens[some], told, counts if stream == "pages" else None)


@dataclass(slots=True)
class _EndedRequests:
    """The requests after which hosts rest, a row each. A single value means the same value for all rows, None no
    value. over: as in `Ends`. Without outcomes all that follow from these are None."""

    seconds: Seconds
    ended: Instants | Instant
    floor: Seconds | float
    over: Instants | None
    retry_after: Seconds | None = None
    refused: Flags | None = None
    answered: Flags | None = None
    strained: Flags | None = None
    first_byte: Seconds | None = None
    signals: Signals | None = None

    def take(self, rows: Places) -> _EndedRequests:
        """Returns the requests of these rows."""
        columns = (getattr(self, name) for name in self.__slots__)
        return _EndedRequests(*(one[rows] if isinstance(one, np.ndarray) else one for one in columns))


def origin_of_errand(errand: CallersErrand) -> Origin:
    """Returns the file that an errand of a caller fetched, as the origin of links."""
    return Origin(errand.name, 1, errand.crawl, errand.slot, errand.priority, True, lists=True)


def _rounds(places: Places) -> Iterator[Places]:
    """Yields rows in rounds: the first row of each place, then the second of each, and so on."""
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    nth = np.arange(len(places)) - np.repeat(starts, np.diff([*starts, len(places)]))
    for number in range(int(nth.max()) + 1):
        yield np.sort(order[nth == number])


def _robots_of(outcomes: OutcomeColumns, row: int) -> RobotsAnswer:
    """Returns the answer to an errand for a robots.txt; an outcome without one has at most a status."""
    return outcomes.robots.get(row) or RobotsAnswer(int(outcomes.statuses[row]) or None)


def _answer_of(outcomes: OutcomeColumns, row: int, error: str | None) -> dict[str, Any]:
    """Returns the arguments of `CallersErrand.after_answer` that an outcome has."""
    verdict = int(outcomes.verdicts[row])
    at = None
    if verdict == verdicts.AGAIN:
        at = 0 if outcomes.at is None else max(0, int(outcomes.at[row]))
    return {
        "location": outcomes.locations.get(row) if verdict == verdicts.DONE else None,
        "retries": verdict == verdicts.RETRY,
        "after_seconds": outcomes.seconds_of("after_seconds", row),
        "error": error,
        "again_at": at,
    }


def _retry_after_of_hosts(outcomes: OutcomeColumns, errands: Mapping[int, Errand]) -> npt.NDArray[np.float64] | None:
    """Returns the seconds of Retry-After for hosts. On a redirect Retry-After means the target (RFC 9110 §10.2.3),
    otherwise the whole host rests."""
    asked: npt.NDArray[np.float64] | None = outcomes.retry_after_seconds
    if asked is None:
        return None
    asked = asked.copy()
    for row in outcomes.locations:
        if not isinstance(errands.get(row), Authority) and int(outcomes.verdicts[row]) == verdicts.DONE:
            asked[row] = np.nan
    for row, errand in errands.items():
        if isinstance(errand, Authority) and verdict_of_status(_robots_of(outcomes, row).status) == "redirect":
            asked[row] = np.nan
    return asked


def _strained(outcomes: OutcomeColumns, hosts: Rows, rested: Flags, spared: frozenset[int]) -> Flags | None:
    """Returns the requests that show an overloaded host: answers from 500 on that are not refusals, resets, timeouts.
    None without such requests. None, too, if many hosts got requests and no host answered: then our own network is
    down. spared: rows that failed in an outage of it."""
    strained = outcomes.statuses >= 500  # a status from 600 on is read as one of these (RFC 9110 section 15)
    if outcomes.refused is not None:
        strained &= ~outcomes.refused
    silent = [
        row
        for row, error in outcomes.errors.items()
        if rested[row] and row not in spared and error in UNANSWERED and not outcomes.statuses[row]
    ]
    if silent:
        asked = np.count_nonzero(rested)
        if len(silent) < asked or len(np.unique(hosts[silent])) < NETWORK_HOSTS_MIN:
            strained[silent] = True
    return strained if np.count_nonzero(strained) else None


def of_their_kinds(outcomes: OutcomeColumns, ends: Ends, callers: Set[int]) -> None:
    """Raises SettingsError if an outcome answers an errand of another kind than its lease. So no page becomes done
    without a fetch. Also if its metadata is too long for its crawl. callers: the crawls by unique keys."""
    errands, ended = ends.errands, ends.ended
    for row, octets in outcomes.metadata.items():
        stale = not ended[row] or (ends.dead is not None and bool(ends.dead[row]))
        of_callers = bool(callers) if stale else int(ends.leases.cards.heads["crawl"][row]) in callers
        arguments.kept("metadata", octets, metadata_bytes_max(callers=of_callers))
    for row in sorted(outcomes.robots.keys() | outcomes.addresses.keys()):
        errand = errands.get(row)
        if errand is None and not ended[row]:
            continue
        kind = Kind.PAGE if errand is None else errand.kind
        for answered, answers in (("robots", outcomes.robots), ("address", outcomes.addresses)):
            if row in answers and ANSWERS[answered] is not kind:
                raise SettingsError(
                    f"lease {int(outcomes.tokens[row])} is of kind {kind}, and its outcome answers an errand of kind "
                    f"{answered}; lease.kind names the kind of answer that it needs"
                )
    for row, errand in errands.items():
        if (
            errand.kind is Kind.ROBOTS
            and row not in outcomes.robots
            and int(outcomes.verdicts[row]) == verdicts.DONE
            and int(outcomes.statuses[row]) // 100 in (0, 2)
        ):
            # Without its body, an existing robots.txt would count as a file that allows everything.
            raise SettingsError(
                f"lease {int(outcomes.tokens[row])} is of kind robots, and its outcome has no answer; "
                "report lease.robots(status, body)"
            )


def _age_of(stamp: str, ended: Instant) -> float:
    """Returns the seconds from a Last-Modified (RFC 9110 section 8.8.2) to a visit; NaN for none, an unreadable one, or
    one after the visit."""
    try:
        modified = parsedate_to_datetime(stamp).timestamp() if stamp else math.nan
    except (ValueError, TypeError, OverflowError):
        return math.nan
    age = ended / MICROSECONDS - modified
    return age if age >= 0 else math.nan
