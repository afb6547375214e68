"""Why: the one reason why a URL is not being fetched now, and why nothing can be leased."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

import numpy as np

from outrider.causes import error_words, span_words, status_words
from outrider.clock import Instant, rfc3339, seconds
from outrider.errors import SettingsError, shown
from outrider.frontier.format.card_columns import fetched_at
from outrider.frontier.format.card_records import CardRecord
from outrider.frontier.policy import lives
from outrider.frontier.priority import PRIORITY_DEFAULT, PriorityFunction, Weighted, name_of
from outrider.frontier.schedule.group_turns import WaitForGroup
from outrider.frontier.state.authorities import Authority, RobotsState
from outrider.frontier.state.host_addresses import HostAddress
from outrider.frontier.state.hosts import NONE
from outrider.frontier.state.tables import Tables
from outrider.frontier.state.url_table import DONE, GONE, LEASED, PARKED, QUEUED, STATES, WAITING, Reason
from outrider.frontier.verbs.census import Census
from outrider.frontier.verbs.deciding import Core, Part
from outrider.frontier.verbs.discovering import Discovering
from outrider.frontier.verbs.leasing import Leasing
from outrider.frontier.verbs.operations import Operations
from outrider.frontier.verbs.robots_files import RobotsFiles
from outrider.frontier.verbs.statuses import host_counts, host_statuses, queue_status, reason_text, status_of
from outrider.frontier.verbs.trapping import Trapping
from outrider.journey import (
    Explanation,
    HostStatus,
    Idle,
    PriorityPart,
    QueueStatus,
    Ranking,
    State,
    UrlStatus,
)
from outrider.limits import BAD_ANSWERS_MAX, BEFORE_COUNTED_MAX, HOST_TRIALS_MAX, RETRY_SECONDS
from outrider.robots import Rules
from outrider.url import UrlBatch, authority_of, host_of
from outrider.url.traps import BY_COUNTS, BY_MIRROR, RULES

_ROBOTS_WORDS = {
    RobotsState.RULES: "no line matches: it is allowed",
    RobotsState.ALLOW: "the site has none: everything is allowed",
    RobotsState.REFUSED: "it cannot be read: nothing is allowed meanwhile",
    RobotsState.DEAD: "its site does not answer",
}
"""Where no line of a robots.txt decides about a URL."""
ROBOTS_ATTEMPTS = 1 + len(RETRY_SECONDS)
"""How often a robots.txt is asked for until its site is left alone for a day."""
_PRIORITY_SLACK = 1e-6  # a priority that differs by less is the same: sums are rounded
Why: TypeAlias = tuple[str, str, Instant | None]
"""A reason: its word, its text, and the instant at which time alone ends it, None where none does."""


class Explaining(Part):
    """The part of the machine that says why a URL is not being fetched now."""

    def __init__(
        self,
        core: Core,
        links: Discovering,
        traps: Trapping,
        robots: RobotsFiles,
        leases: Leasing,
        operators: Operations,
    ) -> None:
        super().__init__(core)
        self._links, self._traps, self._robots = links, traps, robots
        self._leases, self._operators = leases, operators

    def explain(self, url: str, crawl: str | None, now: Instant) -> Explanation:
        """The whole status of one URL, and the one reason why it is not being fetched now. Raises SettingsError."""
        tables, now = self.tables, max(now, self._core.now)
        text = self._links.spelled([url])[0]
        if text is None:
            raise no_url(url)
        row, home = tables.crawls.rows.get(crawl or "default"), tables.home_of(host_of(text))
        slot, fingerprint = self._homes.slot_of(home), tables.hash_of(text)
        records = self._operators.records_of([text], row)[1] if row is not None else []
        if not records:
            refusal = "" if row is None else self._core.scopes.of(row).refusal(text)
            return replace(_unknown(text, slot, fingerprint, refusal), robots=self._robots_line(text, now))
        tables.host_row(home)  # recalls a cold host, for the rest reads its rows
        return self._explained(records[0], slot, fingerprint, now)

    def _explained(self, record: CardRecord, slot: int, fingerprint: int, now: Instant) -> Explanation:
        tables, turns = self.tables, self.turns
        row = int(tables.queues.find(np.array([record.queue], np.uint64))[0])
        host = int(tables.queues.host[row])
        queue, (there,) = queue_status(tables, row), host_statuses(tables, (host,), now, turns)
        name = authority_of(record.url)
        authority = tables.robots.by_name.get(name)
        token, robots = self._operators.token_of(record), self._robots_line(record.url, now)
        worker, until = self._held_by(token)
        word, text, at = self._why_not(record, row, queue, there, now)
        text = self._parked(record, host, robots, now) or text
        if word == "leased" and until is not None:
            text = _leased(worker or "this process", until, now)
        word, text, at = self._sooner(record, host, there.name, (word, text, at), now)
        return Explanation(
            record.url,
            STATES[record.state],
            word,
            text,
            status_of(record, tables, token),
            slot,
            fingerprint,
            klass=record.klass,
            order=record.order,
            queue=queue,
            host=there,
            authority=name,
            robots=robots,
            robots_state=RobotsState(authority.state).name.lower() if authority is not None else None,
            next_at=at,
            due_since=record.due if record.state in (QUEUED, LEASED) and record.due <= now else None,
            worker=worker,
            lease_until=until,
            discovered_at=tables.registry.accepted_at(record.order),
            fetched_at=fetched_at(record.fetched),
            before=_before(tables, row, record) if record.state == QUEUED else None,
            held_by=tuple(turns.shared.holding(host, now)),
            ranking=_ranking_of(record, self.settings.priority),
        )

    def _sooner(self, record: CardRecord, host: int, name: str, why: Why, now: Instant) -> Why:
        """The reason, or one that comes before it: an outage of our network, or a host whose address is unknown."""
        (word, text, at), paused_until = why, self._core.network.until
        kept = word in ("paused", "not_welcome", "blocked", "limit") or (at is not None and at >= paused_until)
        if record.state == QUEUED and paused_until > now and not kept:
            word, text, at = "network", _paused(paused_until), paused_until
        if record.state == QUEUED and self._traps.trials.holds(host):
            return word, f"{HOST_TRIALS_MAX} new hosts of its domain are tried first, and show what they bring", at
        if word in ("host_busy", "host_resting", "group_busy", "group_resting", "behind", "ready"):
            place = self.tables.addresses.by_host.get(host) if self.turns.shared.asks else None
            asked_at = self.turns.shared.asked_at().get(host)
            if asked_at is not None:
                return _address_sought(name, place, asked_at, now)
            if place is not None and place.error:
                text += f"; no group by address counts it, for its address cannot be had ({place.error})"
        return word, text, at

    def _parked(self, record: CardRecord, host: int, robots: str | None, now: Instant) -> str:
        """Why a URL is parked as a trap, by its robots.txt or for a budget, in words; "" where it is not. robots: the
        line of its robots.txt that decides."""
        if record.state == PARKED and record.reason == Reason.BUDGET:
            return f"it is parked: {self._core.budgets.parked(host)}"
        if record.state == PARKED and record.reason == Reason.TRAP:
            rule, trap = self.tables.registry.errors[record.error], self._trap_text(record, now)
            why = f": {trap}" if trap else ""
            what = "because its host may be a mirror" if rule == RULES[BY_MIRROR - 1] else "as a trap"
            return f"it is parked {what} ({rule}){why}; `outrider retry --error {rule}` puts it back"
        if record.state == PARKED and record.reason == Reason.ROBOTS:
            authority = self.tables.robots.by_name.get(authority_of(record.url))
            if authority is not None and self._robots.is_closed(authority, now):
                failure = robots_failure(authority, authority.next_at, now, retried=self._core.errands_mode)
                closed = _ROBOTS_WORDS[RobotsState.REFUSED]
                return f"it is parked: its robots.txt closes it, {closed}; {failure}"
            if robots:
                return f"it is parked: its robots.txt closes it, {robots}"
        return ""

    def _robots_line(self, url: str, now: Instant) -> str | None:
        """The line of a robots.txt that decides about a URL, or why no line does; None for a file that was not read."""
        authority = self.tables.robots.by_name.get(authority_of(url))
        if authority is None or authority.state not in _ROBOTS_WORDS:
            return None
        if not self.settings.obey_robots:
            return "the settings ignore it (obey-robots is False)"
        if self._robots.is_closed(authority, now):
            return _ROBOTS_WORDS[RobotsState.REFUSED]
        if authority.state == RobotsState.RULES:
            rulebook = self.tables.robots.rulebook
            line = Rules.parse(rulebook.body(authority.digest)).explain(rulebook.agent, url)
            if line is not None:
                return f"line {line.number}: {line}"
        return _ROBOTS_WORDS[RobotsState(authority.state)]

    def _trap_text(self, record: CardRecord, now: Instant) -> str | None:
        """Which numbers make a parked URL a trap, in words; None where it is none, or where none do any more."""
        if record.state != PARKED or record.reason != Reason.TRAP or self.settings.traps is None:
            return None
        rule = self.tables.registry.errors[record.error]
        if rule in RULES and (number := RULES.index(rule) + 1) in BY_COUNTS:
            return self._traps.returns_text(record.url, number)
        return self.settings.traps.explained(record.url, now)

    def _rules_first(self, url: str, now: Instant) -> tuple[str, Instant | None] | None:
        """Why the host of a URL waits for a robots.txt, and until when; None where it does not."""
        host = self.tables.host_row(self.tables.home_of(host_of(url)))
        name = authority_of(url)
        gate = self.turns.gates.get(host)
        if gate is not None:
            return self._rules_of(gate, now, own=gate.name == name)
        own = self.tables.robots.by_name.get(name)
        closed = own is not None and self._robots.is_closed(own, now)
        known = own is not None and not (own.token or closed or self._robots.unanswered(own, now))
        if not self._core.errands_mode or known:
            return None
        if own is not None and closed:
            failure = robots_failure(own, own.next_at, now, retried=True)
            return f"{failure}; it is parked by the next lease that draws it", now
        hosts = self.tables.hosts
        at = max(int(hosts.rest_until[host]), own.next_at if own is not None else 0)
        failure = self._failure_first(own, at, now) if own is not None else ""
        if not failure and (hosts.in_flight[host] or at > now):
            return None  # the visit or the rest comes before the errand
        text = "the robots.txt of its authority is to be asked for first"
        from_ = f", from {rfc3339(at)} on" if at > now else ""
        return f"{failure}{text}{from_}, by whoever leases errands", max(at, now)

    def _failure_first(self, authority: Authority, at: Instant | None, now: Instant) -> str:
        """The failure of the last request for a robots.txt, in words that others follow; "" where it did not fail."""
        if authority.state != RobotsState.RETRYING:
            return ""
        return robots_failure(authority, at, now, retried=self._core.errands_mode) + "; "

    def _held_by(self, token: int) -> tuple[str | None, Instant | None]:
        """The holder of the lease with a token, empty for this process, and until when."""
        if not token:
            return None, None
        lease = self.tables.urls.by_token(np.array([token], np.uint64), bodies=False)
        if not lease.found[0]:
            return None, None
        holder = int(lease.holders[0])
        name = self.tables.registry.holders[holder][0] if holder else ""
        return name, int(lease.deadlines[0])

    def _rules_of(self, authority: Authority, now: Instant, *, own: bool) -> tuple[str, Instant | None]:
        """Why the pages of a host wait for the robots.txt of an authority, and the first instant at which it may be
        asked for; None where no time alone brings that. own: whether it is the authority of the URL that is
        explained."""
        text, at = self._turn_of(authority, now, own=own)
        return self._failure_first(authority, at, now) + text, at

    def _turn_of(self, authority: Authority, now: Instant, *, own: bool) -> tuple[str, Instant | None]:
        """When an authority's robots.txt is asked for, as `_rules_of` says it."""
        whose = "its authority" if own else authority.name
        hosts, turns, there = self.tables.hosts, self.turns, authority.wanted
        host = authority.busy if authority.token else there
        hop = f" at {hosts.name(host)}, where a redirect led," if host not in (NONE, authority.host) else ""
        if authority.token:
            return f"the robots.txt of {whose} is being asked for{hop.rstrip(',')}", None
        text = f"the robots.txt of {whose} is to be asked for{hop} first"
        if there == NONE:
            return f"the robots.txt of {whose} is being read", now
        allowed = turns.may_ask_at(authority, there)
        if allowed is None:
            return f"{text}, and its queues are paused", None
        if hosts.in_flight[there] >= turns.room(there):
            return f"{text}, after the request that {hosts.name(there)} has open", None
        at = max(authority.next_at, allowed, int(hosts.rest_until[there]))
        if at > now:
            return f"{text}, from {rfc3339(at)} on, by whoever leases errands", at
        return f"{text}, by whoever leases errands; that is possible now", now

    def _not_queued(self, record: CardRecord) -> Why:
        reason, error = reason_text(record, self.tables) or "", self.tables.registry.errors[record.error]
        answer = f"; the server answered {status_words(record.status)}" if record.status else ""
        failed = f"; the last attempt failed: {_error_text(error)}" if error and record.attempts else ""
        more = {
            LEASED: "",
            DONE: answer,
            GONE: f": {_cause(reason, record.status)}",
            PARKED: f": {_error_text(reason)}",
            WAITING: f" until {rfc3339(record.due)}{failed or answer}{_rarely(record)}",
        }
        state = STATES[record.state]
        at = record.due if record.state == WAITING else None
        return state.value, lives.URL.states[state] + more[record.state], at

    def _why_not(self, record: CardRecord, row: int, queue: QueueStatus, host: HostStatus, now: Instant) -> Why:
        """The reason of the URL itself, its queue and its host. row: of its queue."""
        if record.state != QUEUED:
            return self._not_queued(record)
        if held := self._core.budgets.held():
            return "limit", held, None
        if queue.paused and host.not_welcome is not None:
            text = f"{host.name} is parked, for a crawler is not welcome there: {host.not_welcome}"
            return "not_welcome", f"{text}; `outrider host DIR {host.name} resume` wakes it", None
        if queue.paused:
            return "paused", "its queue or crawl is paused", None
        if queue.blocked_until is not None and queue.blocked_until > now:
            if host.not_welcome is not None:
                text = f"{host.name} is left alone, for a crawler may not be welcome there: {host.not_welcome}"
                again = f"it is asked again at {rfc3339(queue.blocked_until)}"
                text = f"{text}; {again}, and `outrider host DIR {host.name} resume` wakes it before"
                return "not_welcome", text, queue.blocked_until
            return "blocked", f"its queue is blocked until {rfc3339(queue.blocked_until)}", queue.blocked_until
        if (rules := self._rules_first(record.url, now)) is not None:
            return "robots", *rules
        capacity = self.turns.capacity(row)
        if host.leased >= capacity:
            at_once = "one request at a time" if capacity == 1 else f"at most {capacity} requests at once"
            return "host_busy", f"{host.name} is being visited: {at_once}", None
        if host.rest_until is not None and host.rest_until > now:
            wait = seconds(host.rest_until - now)
            text = f"{host.name} rests for {wait:.3g} s more ({host.reason or 'in doubt'})"
            return "host_resting", text, host.rest_until
        own = self.tables.keys.group_of.get(row)
        if own is not None and own.busy:
            return "group_busy", f"another queue of the key {queue.key} is being visited: one request at a time", None
        if own is not None and own.rest_until > now:
            text = f"the queues of the key {queue.key} rest for {seconds(own.rest_until - now):.3g} s more"
            return "group_resting", text, own.rest_until
        if (group := self.turns.shared.holds_back(int(self.tables.queues.host[row]))) is not None:
            return _held_back(host.name, group, now)
        if queue.queued > 1:
            others = _noun(queue.queued - 1, "other URL", "other URLs")
            return "behind", f"{others} of its queue may go first, and its host is ready", now
        return "ready", "nothing: it is given to whoever leases next", now


def _cause(reason: str, status: int) -> str:
    """Why a URL is gone: `status` alone says nothing, so the answer of the server is in its place."""
    if reason == "status" and status:
        return f"the server answered {status_words(status)}"
    return _error_text(reason)


def _error_text(error: str) -> str:
    """A class of error, with its words."""
    words = error_words(error)
    return f"{error} ({words})" if words else error


def robots_failure(authority: Authority, at: Instant | None, now: Instant, *, retried: bool) -> str:
    """Why the last request for a robots.txt failed, how often it was tried, and in how long it is tried again.

    at: the instant of the next attempt, None where no time alone brings it. retried: whether errands ask for it."""
    host = authority.name.partition("://")[2]
    cause = error_words(authority.error) or authority.error
    if not cause:
        cause = f"the server answered {status_words(authority.status)}" if authority.status else "no answer came"
    attempts = authority.attempts or ROBOTS_ATTEMPTS
    tried = f", tried {attempts} of {ROBOTS_ATTEMPTS} times" if retried else ""
    again = f", next in {span_words(seconds(at - now))}" if at is not None and at > now else ""
    return f"robots.txt of {host}: {cause}{tried}{again}"


def _rarely(record: CardRecord) -> str:
    """Why the next visit of a page is later than its schedule says, in words; "" where it is not."""
    if not record.schedule or not record.attempts:
        return ""
    bad = _noun(record.attempts, "bad answer", "bad answers in a row")
    return f"; visits are rarer after {bad}, and end after {BAD_ANSWERS_MAX} in a row"


def _ranking_of(record: CardRecord, function: PriorityFunction | None) -> Ranking:
    """Returns the parts of the priority of a URL. A weighted function is asked for its parts; no other function is
    called, for it may have forgotten the page by now."""
    parts: tuple[PriorityPart, ...] = ()
    usual = PRIORITY_DEFAULT if function is None else None
    if isinstance(function, Weighted):
        batch = UrlBatch.of([record.url]).with_columns(depth=np.array([record.depth]))
        parts = tuple(
            PriorityPart(name, float(values[0]), function.weights[name])
            for name, values in function.parts(batch, None).items()
        )
        usual = min(1.0, sum(part.value * part.weight for part in parts))
    source: str | None = "default" if function is None else "function"
    if usual is None or abs(usual - record.priority) > _PRIORITY_SLACK:
        source = "given" if function is None else None
    name = None if function is None else name_of(function)
    return Ranking(record.priority, record.klass, source, name, parts, record.depth, record.hops, record.losses)


def _unknown(url: str, slot: int, fingerprint: int, refusal: str) -> Explanation:
    """Why a URL was never accepted."""
    word, text = "unknown", "it lies inside the scope, and no link or call has named it"
    if refusal:
        word, text = "out_of_scope", f"it lies outside the scope: {refusal}"
    return Explanation(url, State.UNKNOWN, word, text, UrlStatus(url, State.UNKNOWN), slot, fingerprint)


def _before(tables: Tables, queue: int, record: CardRecord) -> int | None:
    """How many URLs of its queue go before a queued one, `BEFORE_COUNTED_MAX` for that many or more."""
    orders = tables.urls.backlog.peek(queue, BEFORE_COUNTED_MAX).heads["order"]
    places = np.flatnonzero(orders == record.order)
    if len(places):
        return int(places[0])
    return BEFORE_COUNTED_MAX if len(orders) >= BEFORE_COUNTED_MAX else None


def _leased(holder: str, until: Instant, now: Instant) -> str:
    """The holder of a lease, in words; a lease that ran out may not be taken back yet."""
    if until <= now:
        return f"it was leased until {rfc3339(until)}, and {holder} has not reported it: the next lease takes it back"
    return f"it is leased: {holder} fetches it, until {rfc3339(until)} at the latest"


def _address_sought(host: str, place: HostAddress | None, at: Instant, now: Instant) -> tuple[str, str, Instant | None]:
    """Why a host without a known address is not offered."""
    text = f"the address of {host} is to be asked for first"
    if place is None:
        return "address", f"{text}, by whoever leases errands", now
    if place.token:
        return "address", f"the address of {host} is being asked for", None
    if place.error:
        text = f"the address of {host} could not be had ({place.error}) and is to be asked for once more"
    return "address", f"{text}, by whoever leases errands", max(at, now)


def _paused(until: Instant) -> str:
    """Why nothing is asked for in an outage of our network."""
    return f"no host answers, so our own network is at fault: it is tried again at {rfc3339(until)}"


def _held_back(host: str, group: WaitForGroup, now: Instant) -> tuple[str, str, Instant | None]:
    """Why a group keeps one of its hosts from being visited."""
    if group.clock > now:
        text = f"the group {group.name} rests for {seconds(group.clock - now):.3g} s more, and {host} belongs to it"
        return "group_resting", text, group.clock
    text = f"{host} waits for its turn in the group {group.name}"
    if group.full:
        return "group_busy", f"{text}, which is being visited", None
    if group.others:
        return (
            "group_busy",
            f"{text}, and {_noun(group.others, 'other host waits', 'other hosts wait')} there, too",
            None,
        )
    return "group_busy", f"{text}, which comes with the next lease", now


def idle(
    tables: Tables,
    now: Instant,
    census: Census,
    *,
    next_at: Instant | None,
    at_limit: bool,
    errands_wanted: bool = False,
    paused_until: Instant = 0,
) -> Idle:
    """Why nothing, or no more, can be leased now. paused_until: of an outage of our network. errands_wanted: robots
    rules come by errands, and nobody has leased any since the opening."""
    counts = host_counts(tables, census)
    known = counts.pop("known")
    counts["resting"], counts["leased"] = counts["resting"] - census.leased, census.leased
    urls = {STATES[state].value: tables.urls.counts[state] for state in range(1, 7)}
    errands, hint = census.errands, ""
    if at_limit:
        word, text = "limit", "a limit of pages is reached, and work is left"
    elif not (tables.urls.counts[QUEUED] or tables.urls.counts[LEASED] or tables.urls.counts[WAITING] or errands):
        word, text, next_at = "finished", "nothing is left to do", None
        if parked := tables.urls.counts[PARKED]:
            text += f"; {_noun(parked, 'URL is', 'URLs are')} parked, beyond a limit or closed by robots.txt"
    elif paused_until > now:
        word, text = "network", _paused(paused_until)
    elif counts["ready"]:
        hint = _how_to_lease(counts["ready"], census.pages, errands_wanted=errands_wanted)
        word, text = "ready", f"{_noun(counts['ready'], 'host is', 'hosts are')} ready{hint}"
    elif counts["resting"]:
        word, text = "resting", _resting(counts["resting"], census)
    elif counts["leased"]:
        word, text = (
            "leased",
            f"{_noun(counts['leased'], 'host is', 'hosts are')} being visited, the others have nothing",
        )
    elif tables.urls.counts[WAITING]:
        word, text = "waiting", f"{_noun(tables.urls.counts[WAITING], 'URL waits', 'URLs wait')} for the time when due"
    elif errands or counts["blocked"]:
        some = _noun(counts["blocked"], "host is", "hosts are")
        word, text = "blocked", f"{some} paused, blocked, silent or without a robots.txt yet"
    else:
        word, text = "paused", "what is queued is paused or blocked"
    text += _failing(tables, now, census)
    tail_host, tail_urls, tail_seconds = census.tail or (None, 0, None)
    return Idle(
        word,
        text,
        known,
        counts,
        urls,
        next_at,
        None if next_at is None else seconds(max(0, next_at - now)),
        errands,
        tail_host,
        tail_urls,
        tail_seconds,
        hint,
    )


def _failing(tables: Tables, now: Instant, census: Census) -> str:
    """The robots.txt files of which the last request failed, those that are tried again first."""
    rests = tables.hosts.rest_until
    told = [
        robots_failure(one, max(one.next_at, int(rests[one.wanted]) if one.wanted != NONE else 0), now, retried=True)
        for one in census.failing
    ]
    if census.failed > len(told):
        told.append(_noun(census.failed - len(told), "more robots.txt fails", "more robots.txt files fail"))
    return "".join(f"; {one}" for one in told)


def _resting(count: int, census: Census) -> str:
    text = "the one host that holds something rests" if count == 1 else f"all {count} hosts that hold something rest"
    if census.waits_for_group:
        text += f", {census.waits_for_group} of them because a group they belong to rests or is being visited"
    if census.waits_for_address:
        text += f", {census.waits_for_address} because their addresses are to be asked for first, by errands"
    return text


def _how_to_lease(ready: int, pages: int, *, errands_wanted: bool) -> str:
    """How a program leases of the ready hosts: of some of them, perhaps, by errands alone."""
    text = f": lease from {'it' if ready == 1 else 'them'}"
    if pages < ready:
        text += (
            f" with errands=True: {_noun(ready - pages, 'waits', 'wait')} for a robots.txt, which may be asked for now"
        )
    elif errands_wanted:
        text += " with errands=True: the robots.txt of each is asked for first"
    return text


def _noun(count: int, one: str, many: str) -> str:
    """A count with the noun and verb that go with it."""
    return f"{count:,} {one if count == 1 else many}"


def no_url(text: str) -> SettingsError:
    """The error for a text that is no URL."""
    return SettingsError(f"{shown(text, 200)} is no http or https URL")
