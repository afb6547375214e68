"""The one reason why a URL is not fetched now, and why nothing can be leased."""

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
from outrider.frontier.verbs.paying import ERROR as PAYMENT
from outrider.frontier.verbs.robots_files import RobotsFiles
from outrider.frontier.verbs.single_urls import SingleUrls, text_of
from outrider.frontier.verbs.statuses import host_counts, host_statuses, queue_status, reason_text, status_of
from outrider.frontier.verbs.trapping import Trapping
from outrider.journey import (
    Explanation,
    HostStatus,
    Idle,
    PriorityPart,
    QueueStatus,
    Ranking,
    RevisitStatus,
    State,
    UrlName,
    UrlStatus,
)
from outrider.limits import BAD_ANSWERS_MAX, BEFORE_COUNTED_MAX, HOST_TRIALS_MAX, RETRY_SECONDS
from outrider.robots import Rules, preferences_of
from outrider.url import UrlBatch, authority_of, host_of
from outrider.url.keys import has_host
from outrider.url.traps import BY_COUNTS, BY_MIRROR, RULES
from outrider.uses import USE_REFUSED, Preferences

_ROBOTS_WORDS = {
    RobotsState.RULES: "no line matches: it is allowed",
    RobotsState.ALLOW: "the site has no robots.txt: everything is allowed",
    RobotsState.REFUSED: "the file cannot be read: nothing is allowed until it can",
    RobotsState.DEAD: "its site does not answer",
}
"""The texts for URLs about which no line of a robots.txt decides."""
ROBOTS_ATTEMPTS = 1 + len(RETRY_SECONDS)
"""The number of requests for a robots.txt before its site is paused for a day."""
_PRIORITY_SLACK = 1e-6  # a priority that differs by less is the same: sums are rounded
Why: TypeAlias = tuple[str, str, Instant | None]
"""A reason: its word, its text, and the instant at which time alone ends it, None if time does not end it."""


class Explaining(Part):
    """The part of the machine that explains why a URL is not being fetched now."""

    def __init__(
        self,
        core: Core,
        links: Discovering,
        traps: Trapping,
        robots: RobotsFiles,
        leases: Leasing,
        operators: Operations,
        urls: SingleUrls,
    ) -> None:
        super().__init__(core)
        self._links, self._traps, self._robots = links, traps, robots
        self._leases, self._operators, self._urls = leases, operators, urls

    def explain(self, url: UrlName, crawl: str | None, now: Instant) -> Explanation:
        """Returns the whole status of one URL, and the one reason why it is not fetched now. Raises SettingsError."""
        tables, now = self.tables, max(now, self._core.now)
        row = tables.crawls.rows.get(crawl or "default")
        if row in tables.crawls.callers:
            return self._explain_by_caller(url, row, now)
        given = text_of(url, crawl or "default")
        text = self._links.spelled([given])[0]
        if text is None:
            raise no_url(given)
        home = tables.home_of(host_of(text))
        slot, fingerprint = self._homes.slot_of(home), tables.hash_of(text)
        records = self._urls.records_of([text], row)[1] if row is not None else []
        if not records:
            refusal = "" if row is None else self._core.scopes.of(row).refusal(text)
            return replace(_unknown(text, slot, fingerprint, refusal), robots=self._robots_line(text, now))
        tables.host_row(home)  # recalls a cold host, whose rows are read below
        return self._explained(records[0], slot, fingerprint, now)

    def _explain_by_caller(self, url: UrlName, crawl: int, now: Instant) -> Explanation:
        """The same for a URL of a crawl by unique keys."""
        (fingerprint,) = self._urls.identities_of([url]).tolist()
        _, records = self._urls.records_of([url], crawl)
        if records:
            record = records[0]
            self.tables.host_row(self.tables.home_of(host_of(record.url)))  # recalls a cold host
            return self._explained(record, record.slot, fingerprint, now)
        status = self._urls.unknown(url, crawl)
        text = "no link or call has named it: this crawl compares unique keys, or key and text, byte for byte"
        return Explanation(status.url, State.UNKNOWN, "unknown", text, status, 0, fingerprint)

    def _explained(self, record: CardRecord, slot: int, fingerprint: int, now: Instant) -> Explanation:
        tables, turns = self.tables, self.turns
        row = int(tables.queues.find(np.array([record.queue], np.uint64))[0])
        host = int(tables.queues.host[row])
        queue, (there,) = queue_status(tables, row), host_statuses(tables, (host,), now, turns)
        name = authority_of(record.url) if has_host(record.url) else None
        authority = tables.robots.by_name.get(name) if name is not None else None
        if record.state == WAITING and record.reason == Reason.PLANNED and _before(tables, row, record) is not None:
            record.state = QUEUED  # its rule has chosen it, which is no fact
        token, robots = self._urls.token_of(record), self._robots_line(record.url, now)
        worker, until = self._held_by(token)
        word, text, at = self._why_not(record, row, queue, there, now)
        text = self._parked(record, host, robots, now) or text
        if word == "leased" and until is not None:
            over = token in tables.hosts.rested.ends
            text = _leased(worker or "this process", until, now, over=over)
        word, text, at = self._sooner(record, host, there.name, (word, text, at), now)
        revisit = self._core.revisits.status(record, now)
        return Explanation(
            record.text,
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
            next_fetch_at=_next_fetch(record, revisit),
            revisit=revisit,
            ranking=_ranking_of(record, self.settings.priority if has_host(record.url) else None),
            preferences=self._preferences(authority, record.url),
        )

    def _preferences(self, authority: Authority | None, url: str) -> Preferences | None:
        """Returns what the robots.txt of an authority says about the uses of a URL; None if it says nothing."""
        if authority is None or authority.state != RobotsState.RULES:
            return None
        lines = self.tables.robots.rulebook.about_uses(authority.digest, url)
        return preferences_of(lines) if lines else None

    def _sooner(self, record: CardRecord, host: int, name: str, why: Why, now: Instant) -> Why:
        """Returns the reason, or one with precedence: an outage of our network, or a host whose address is unknown."""
        (word, text, at), paused_until = why, self._core.network.until
        kept = word in ("paused", "not_welcome", "blocked", "limit") or (at is not None and at >= paused_until)
        if record.state == QUEUED and paused_until > now and not kept:
            word, text, at = "network", _paused(paused_until), paused_until
        if record.state == QUEUED and self._traps.trials.holds(host):
            return (
                word,
                f"{HOST_TRIALS_MAX} new hosts of its domain are tried first, to see whether they have new content",
                at,
            )
        if word in ("host_busy", "host_resting", "group_busy", "group_resting", "behind", "ready"):
            place = self.tables.addresses.by_host.get(host) if self.turns.shared.asks else None
            asked_at = self.turns.shared.asked_at().get(host)
            if asked_at is not None:
                return _address_sought(name, place, asked_at, now)
            if place is not None and place.error:
                text += f"; it is in no group by address, because its address is unknown ({place.error})"
        return word, text, at

    def _parked(self, record: CardRecord, host: int, robots: str | None, now: Instant) -> str:
        """Returns why a URL is parked as a trap, by its robots.txt, for a budget or for payment, in words; "" if it is
        not. robots: the line of its robots.txt that decides."""
        if record.state == PARKED and record.reason == Reason.BUDGET:
            return f"it is parked: {self._core.budgets.parked(host)}"
        if record.state == PARKED and record.reason == Reason.TRAP:
            rule, trap = self.tables.registry.errors[record.error], self._trap_text(record, now)
            why = f": {trap}" if trap else ""
            what = "because its host may be a mirror" if rule == RULES[BY_MIRROR - 1] else "as a trap"
            return f"it is parked {what} ({rule}){why}; `outrider retry --error {rule}` queues it again"
        if record.error and self.tables.registry.errors[record.error] == PAYMENT:
            if record.state == PARKED:
                why = self._traps.payments.explained(record.url)
                return f"it is parked: {why}; `outrider retry --error payment` queues it again"
            return f"it is gone: {self._traps.payments.explained(record.url)}" if record.state == GONE else ""
        if record.state == PARKED and self.tables.registry.errors[record.error] == USE_REFUSED:
            return "it is parked: its robots.txt refuses a use of --use; `outrider retry --error use` queues it again"
        if record.state == PARKED and record.reason == Reason.ROBOTS:
            authority = self.tables.robots.by_name.get(authority_of(record.url))
            if authority is not None and self._robots.is_closed(authority, now):
                failure = robots_failure(authority, authority.next_at, now, retried=self._core.errands_mode)
                closed = _ROBOTS_WORDS[RobotsState.REFUSED]
                return f"it is parked by robots.txt, {closed}; {failure}"
            if robots:
                return f"it is parked by robots.txt, {robots}"
        return ""

    def _robots_line(self, url: str, now: Instant) -> str | None:
        """Returns the line of a robots.txt that decides about a URL, or why no line decides; None for an unread
        file."""
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
        """Returns the numbers that make a parked URL a trap, in words; None if it is not a trap, or not any more."""
        if record.state != PARKED or record.reason != Reason.TRAP or self.settings.traps is None:
            return None
        rule = self.tables.registry.errors[record.error]
        if rule in RULES and (number := RULES.index(rule) + 1) in BY_COUNTS:
            return self._traps.returns_text(record.url, number)
        return self.settings.traps.explained(record.url, now)

    def _rules_first(self, url: str, now: Instant) -> tuple[str, Instant | None] | None:
        """Returns why the host of a URL waits for a robots.txt, and until when; None if it does not wait."""
        if not has_host(url):
            return None
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
            return f"{failure}; the next lease call that draws it parks it", now
        hosts = self.tables.hosts
        at = max(int(hosts.rest_until[host]), own.next_at if own is not None else 0)
        failure = self._failure_first(own, at, now) if own is not None else ""
        if not failure and (hosts.in_flight[host] or at > now):
            return None  # the visit or the rest is before the errand
        text = "the robots.txt of its origin must be requested first"
        from_ = f", from {rfc3339(at)} on" if at > now else ""
        return f"{failure}{text}{from_}, by a lease with errands", max(at, now)

    def _failure_first(self, authority: Authority, at: Instant | None, now: Instant) -> str:
        """Returns the failure of the last request for a robots.txt, to be put before a text; "" if it did not fail."""
        if authority.state != RobotsState.RETRYING:
            return ""
        return robots_failure(authority, at, now, retried=self._core.errands_mode) + "; "

    def _held_by(self, token: int) -> tuple[str | None, Instant | None]:
        """Returns the holder of the lease with a token, empty for this process, and its deadline."""
        if not token:
            return None, None
        lease = self.tables.urls.by_token(np.array([token], np.uint64), bodies=False)
        if not lease.found[0]:
            return None, None
        holder = int(lease.holders[0])
        name = self.tables.registry.holders[holder][0] if holder else ""
        return name, int(lease.deadlines[0])

    def _rules_of(self, authority: Authority, now: Instant, *, own: bool) -> tuple[str, Instant | None]:
        """Returns why the pages of a host wait for the robots.txt of an authority, and the first instant at which it
        may be requested; None if time alone does not decide. own: whether it is the authority of the explained URL."""
        text, at = self._turn_of(authority, now, own=own)
        return self._failure_first(authority, at, now) + text, at

    def _turn_of(self, authority: Authority, now: Instant, *, own: bool) -> tuple[str, Instant | None]:
        """Returns when an authority's robots.txt is requested, in the form of `_rules_of`."""
        whose = "its origin" if own else authority.name
        hosts, turns, there = self.tables.hosts, self.turns, authority.wanted
        host = authority.busy if authority.token else there
        hop = f" at {hosts.name(host)} (after a redirect)" if host not in (NONE, authority.host) else ""
        if authority.token in self.tables.hosts.rested.ends:
            return f"the robots.txt of {whose} was requested{hop}, and is not reported yet", None
        if authority.token:
            return f"the robots.txt of {whose} is being requested{hop}", None
        text = f"the robots.txt of {whose} must be requested{hop} first"
        if there == NONE:
            return f"the robots.txt of {whose} is being read", now
        allowed = turns.may_ask_at(authority, there)
        if allowed is None:
            return f"{text}, but its queues are paused", None
        if hosts.in_flight[there] >= turns.room(there):
            return f"{text}, after the open request to {hosts.name(there)}", None
        at = max(authority.next_at, allowed, int(hosts.rest_until[there]))
        if at > now:
            return f"{text}, from {rfc3339(at)} on, by a lease with errands", at
        return f"{text}, by a lease with errands; that is possible now", now

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
        if record.state == WAITING and record.reason == Reason.PLANNED:
            return "planned", self._planned(record), at
        return state.value, lives.URL.states[state] + more[record.state], at

    def _planned(self, record: CardRecord) -> str:
        """Returns when a page is visited again, in words."""
        found = self._core.revisits.status(record, self._core.now)
        if found is None:
            return f"its next visit was planned by an earlier rule, for {rfc3339(record.due)}"
        if found.next_fetch_at is None:
            return f"the rule {found.rule} has given it up for now: a visit is worth less than other fetches"
        return f"the rule {found.rule} visits it again at {rfc3339(found.next_fetch_at)}, as things are now"

    def _why_not(self, record: CardRecord, row: int, queue: QueueStatus, host: HostStatus, now: Instant) -> Why:
        """Returns the reason of the URL itself, its queue or its host. row: the row of its queue."""
        if record.state != QUEUED:
            return self._not_queued(record)
        if held := self._core.budgets.held():
            return "limit", held, None
        if queue.paused and host.not_welcome is not None:
            text = f"{host.name} is parked because {host.not_welcome}"
            return "not_welcome", f"{text}; `outrider host DIR {host.name} resume` continues it", None
        if queue.paused:
            return "paused", "its queue or crawl is paused", None
        if queue.blocked_until is not None and queue.blocked_until > now:
            if host.not_welcome is not None:
                text = f"{host.name} is paused because it may block crawlers: {host.not_welcome}"
                again = f"it is visited again at {rfc3339(queue.blocked_until)}"
                text = f"{text}; {again}, or earlier after `outrider host DIR {host.name} resume`"
                return "not_welcome", text, queue.blocked_until
            return "blocked", f"its queue is blocked until {rfc3339(queue.blocked_until)}", queue.blocked_until
        if (rules := self._rules_first(record.url, now)) is not None:
            return "robots", *rules
        capacity = self.turns.capacity(row)
        if host.leased >= capacity:
            at_once = "one request at a time" if capacity == 1 else f"at most {capacity} requests at once"
            return "host_busy", f"{host.name} is being visited: {at_once}", None
        if host.rest_until is not None and host.rest_until > now:
            wait = span_words(seconds(host.rest_until - now))
            text = f"{host.name} pauses for {wait} more ({host.reason or 'in doubt'})"
            return "host_resting", text, host.rest_until
        own = self.tables.keys.group_of.get(row)
        if own is not None and own.busy:
            return "group_busy", f"another queue of the key {queue.key} is being visited: one request at a time", None
        if own is not None and own.rest_until > now:
            text = f"the queues of the key {queue.key} pause for {span_words(seconds(own.rest_until - now))} more"
            return "group_resting", text, own.rest_until
        if (group := self.turns.shared.holds_back(int(self.tables.queues.host[row]))) is not None:
            return _held_back(host.name, group, now)
        if queue.queued > 1:
            others = _noun(queue.queued - 1, "other URL", "other URLs")
            return "behind", f"{others} of its queue may be fetched first; its host is ready", now
        return "ready", "nothing delays it: the next lease call may return it", now


def _cause(reason: str, status: int) -> str:
    """Returns why a URL is gone. `status` alone explains nothing, so the answer of the server replaces it."""
    if reason == "status" and status:
        return f"the server answered {status_words(status)}"
    return _error_text(reason)


def _error_text(error: str) -> str:
    """Returns a class of error with its words."""
    words = error_words(error)
    return f"{error} ({words})" if words else error


def robots_failure(authority: Authority, at: Instant | None, now: Instant, *, retried: bool) -> str:
    """Returns why the last request for a robots.txt failed, the number of attempts, and the time to the next one.

    at: the instant of the next attempt, None if time alone does not decide. retried: whether errands request it."""
    host = authority.name.partition("://")[2]
    cause = error_words(authority.error) or authority.error
    if not cause:
        cause = f"the server answered {status_words(authority.status)}" if authority.status else "no answer came"
    attempts = authority.attempts or ROBOTS_ATTEMPTS
    tried = f", tried {attempts} of {ROBOTS_ATTEMPTS} times" if retried else ""
    again = f", next in {span_words(seconds(at - now))}" if at is not None and at > now else ""
    return f"robots.txt of {host}: {cause}{tried}{again}"


def _rarely(record: CardRecord) -> str:
    """Returns why the next visit of a page is later than its schedule says, in words; "" if it is not later."""
    if not record.schedule or not record.attempts:
        return ""
    bad = _noun(record.attempts, "bad answer", "bad answers in a row")
    return f"; visits are rarer after {bad}, and end after {BAD_ANSWERS_MAX} in a row"


def _ranking_of(record: CardRecord, function: PriorityFunction | None) -> Ranking:
    """Returns the parts of the priority of a URL. Only a weighted function is called, for its parts. Other
    functions are not called, because they may have forgotten the page by now."""
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
    """Returns why a URL was never accepted."""
    word, text = "unknown", "it is in scope, but no link or call has named it"
    if refusal:
        word, text = "out_of_scope", f"it is out of scope: {refusal}"
    return Explanation(url, State.UNKNOWN, word, text, UrlStatus(url, State.UNKNOWN), slot, fingerprint)


def _before(tables: Tables, queue: int, record: CardRecord) -> int | None:
    """Returns how many URLs of its queue are before a queued one, at most `BEFORE_COUNTED_MAX`."""
    orders = tables.urls.backlog.peek(queue, BEFORE_COUNTED_MAX).heads["order"]
    places = np.flatnonzero(orders == record.order)
    if len(places):
        return int(places[0])
    return BEFORE_COUNTED_MAX if len(orders) >= BEFORE_COUNTED_MAX else None


def _next_fetch(record: CardRecord, revisit: RevisitStatus | None) -> Instant | None:
    """Returns when a waiting page is visited again by its rule or its schedule; None for any other URL."""
    if record.state != WAITING:
        return None
    if record.reason == Reason.PLANNED:
        return record.due if revisit is None else revisit.next_fetch_at
    return record.due if record.schedule else None


def _leased(holder: str, until: Instant, now: Instant, *, over: bool) -> str:
    """Returns the holder of a lease, in words. An expired lease may still be open. over: its request is."""
    if until <= now:
        return f"it was leased until {rfc3339(until)}, not reported by {holder}: the next lease call queues it again"
    if over:
        return f"it is leased: {holder} has fetched it, and reports by {rfc3339(until)} at the latest"
    return f"it is leased: {holder} fetches it, until {rfc3339(until)} at the latest"


def _address_sought(host: str, place: HostAddress | None, at: Instant, now: Instant) -> tuple[str, str, Instant | None]:
    """Returns why a host without a known address is not offered."""
    text = f"the address of {host} must be resolved first"
    if place is None:
        return "address", f"{text}, by a lease with errands", now
    if place.token:
        return "address", f"the address of {host} is being resolved", None
    if place.error:
        text = f"the address of {host} could not be resolved ({place.error}) and must be resolved again"
    return "address", f"{text}, by a lease with errands", max(at, now)


def _paused(until: Instant) -> str:
    """Returns why nothing is requested in an outage of our network."""
    return f"no host answers, so our own network is considered down; next try at {rfc3339(until)}"


def _held_back(host: str, group: WaitForGroup, now: Instant) -> tuple[str, str, Instant | None]:
    """Returns why a group delays one of its hosts."""
    if group.clock > now:
        text = f"{host} is in the group {group.name}, which pauses for {span_words(seconds(group.clock - now))} more"
        return "group_resting", text, group.clock
    text = f"{host} waits for its turn in the group {group.name}"
    if group.full:
        return "group_busy", f"{text}, whose turns are all in use", None
    if group.others:
        return (
            "group_busy",
            f"{text}, and {_noun(group.others, 'other host waits', 'other hosts wait')} there, too",
            None,
        )
    return "group_busy", f"{text} and gets it at the next lease call", now


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
    """Returns why nothing, or no more, can be leased now. paused_until: the end of the pause in an outage of our
    network. errands_wanted: errands fetch robots rules, and no errand was leased since the opening."""
    counts = host_counts(tables, census)
    known = counts.pop("known")
    counts["resting"], counts["leased"] = counts["resting"] - census.leased, census.leased
    urls = {STATES[state].value: tables.urls.counts[state] for state in range(1, 7)}
    errands, hint = census.errands, ""
    if at_limit:
        word, text = "limit", "a page limit is reached, and URLs are left"
    elif not (tables.urls.counts[QUEUED] or tables.urls.counts[LEASED] or tables.urls.counts[WAITING] or errands):
        word, text, next_at = "finished", "nothing is left to do", None
        if parked := tables.urls.counts[PARKED]:
            text += f"; {_noun(parked, 'URL is', 'URLs are')} parked, above a limit or forbidden by robots.txt"
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
            f"{_noun(counts['leased'], 'host is', 'hosts are')} being visited, the other hosts have no URLs left",
        )
    elif tables.hosts.rested:
        over = _noun(
            len(tables.hosts.rested), "request is over, and its outcome is", "requests are over, and their outcomes are"
        )
        word, text = "leased", f"{over} not reported yet, the other hosts have no URLs left"
    elif tables.urls.counts[WAITING]:
        word, text = "waiting", f"{_noun(tables.urls.counts[WAITING], 'URL waits', 'URLs wait')} for their due time"
    elif errands or counts["blocked"]:
        some = _noun(counts["blocked"], "host is", "hosts are")
        word, text = "blocked", f"{some} paused, blocked, silent or without a robots.txt yet"
    else:
        word, text = "paused", "all queued URLs are paused or blocked"
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
    """Returns the robots.txt files whose last request failed, the earliest retry first."""
    rests = tables.hosts.rest_until
    told = [
        robots_failure(one, max(one.next_at, int(rests[one.wanted]) if one.wanted != NONE else 0), now, retried=True)
        for one in census.failing
    ]
    if census.failed > len(told):
        told.append(_noun(census.failed - len(told), "more robots.txt fails", "more robots.txt files fail"))
    return "".join(f"; {one}" for one in told)


def _resting(count: int, census: Census) -> str:
    text = (
        "the one host with URLs left is in its delay"
        if count == 1
        else f"all {count} hosts with URLs left are in their delay"
    )
    if census.waits_for_group:
        text += f", {census.waits_for_group} of them because a group of theirs is busy or in its delay"
    if census.waits_for_address:
        text += f", {census.waits_for_address} because their addresses must be resolved first, by errands"
    return text


def _how_to_lease(ready: int, pages: int, *, errands_wanted: bool) -> str:
    """Returns how a program leases from the ready hosts; some may need a lease with errands."""
    text = f": lease from {'it' if ready == 1 else 'them'}"
    if pages < ready:
        text += (
            f" with errands=True: {_noun(ready - pages, 'waits', 'wait')} for a robots.txt, which may be requested now"
        )
    elif errands_wanted:
        text += " with errands=True: the robots.txt of each is requested first"
    return text


def _noun(count: int, one: str, many: str) -> str:
    """Returns a count with the matching noun and verb."""
    return f"{count:,} {one if count == 1 else many}"


def no_url(text: str) -> SettingsError:
    """Returns the error for a text that is not a URL."""
    return SettingsError(f"{shown(text, 200)} is not an http or https URL")
