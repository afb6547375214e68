"""The rules of RFC 9309 for an authority's pages and its next errand: pure functions of its cells and an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

from outrider.clock import Instant, instant
from outrider.frontier.format.facts import Row
from outrider.frontier.policy.revisit import retry_at
from outrider.frontier.state.authorities import CELLS, WITH_COPY, Authority, JudgeAgain, RobotsState, cells_of
from outrider.frontier.stores.rulebook import NO_RULES, Rulebook
from outrider.journey import RobotsAnswer
from outrider.limits import (
    REDIRECT_HOPS_MAX,
    RETRY_SECONDS,
    ROBOTS_AGE_SECONDS_MAX,
    ROBOTS_AGE_SECONDS_MIN,
    ROBOTS_GUARDED_SECONDS,
    ROBOTS_GUARDED_TIMES_MAX,
    ROBOTS_OWN_SIDE_SECONDS,
    ROBOTS_UNREACHABLE_SECONDS_MAX,
    RULES_PER_REFUSAL,
    URL_BYTES_MAX,
)
from outrider.robots import AgentRules, preferences_of, verdict_of_status, verdicts, whole_lines
from outrider.url import host_of, spell
from outrider.uses import USE_REFUSED, Use

_NOBODY_THERE = frozenset({"dns_unknown", "blocked_address", "blocked_port"})  # errors that no later attempt mends
_GUARDED = "blocked_address"  # the error of an address guard, which belongs to one process
_NOT_OURS = frozenset({"not_welcome", "asks_signature"})  # errors that are a site's answer all the same
_ELSEWHERE = "redirect_foreign"  # the class of error of a redirect to a host of another frontier


class RobotsVerdict(Enum):
    """The verdict on a page that was drawn."""

    GO = "go"
    HOLD = "hold"  # an errand must fetch its robots.txt first
    READ = "read"  # its robots.txt is known, and too long to be read in this call
    REFUSE = "refuse"
    USE = "use"  # its robots.txt refuses a use that the crawl is for
    DEAD = "dead"  # no server answers for this authority
    SPENT = "spent"  # its host has given as many pages as it may
    PAYMENT = "payment"  # its site asks for payment under the first part of its path
    TRAP = "trap"  # the site makes such URLs without end
    LOWER = "lower"  # its shape has fallen to a lower class
    LATER = "later"  # the call has judged as many pages as it may


# Python 3.11 looks a member of an enum up by a function of Python's: once here, not with each page.
_RULES, _ALLOW = WITH_COPY
_GO, _HOLD, _REFUSE, _USE = RobotsVerdict.GO, RobotsVerdict.HOLD, RobotsVerdict.REFUSE, RobotsVerdict.USE
ERRORS_OF_VERDICTS = {_REFUSE: "robots", _USE: USE_REFUSED}
"""The error of a page that is parked by a verdict."""


def crawl_delay(authorities: Iterable[Authority], rulebook: Rulebook) -> float:
    """Returns the largest Crawl-delay in seconds among a host's authorities, or 0."""
    longest = 0.0
    for one in authorities:
        if one.state == _RULES and (delay := rulebook.crawl_delay(one.digest)) > longest:
            longest = delay
    return longest


def is_own_side(authority: Authority) -> bool:
    """Whether the verdict on an authority follows from an error and not from an answer of its site. The cause may be on
    our side: guard, name service, network, certificates, decoder. Other settings or another process may mend it."""
    failed = authority.state in (RobotsState.DEAD, RobotsState.REFUSED, RobotsState.RETRYING)
    return failed and not authority.status and authority.error not in _NOT_OURS


def unanswered(authority: Authority, now: Instant, since: Instant = 0) -> bool:
    """Whether an errand must fetch the robots.txt, perhaps again, before any page of the authority. since: an older
    verdict on our own side is invalid, because a new process or worker may succeed."""
    if authority.state in (RobotsState.UNKNOWN, RobotsState.RETRYING) or authority.expires <= now:
        return True
    made = authority.expires - instant(ROBOTS_AGE_SECONDS_MAX)
    return authority.state == RobotsState.DEAD and made < since and is_own_side(authority)


def is_closed(authority: Authority, now: Instant, *, errands: bool, opens: bool) -> bool:
    """Whether nothing may be fetched because the robots.txt is unreachable. If the caller passes the rules
    (errands is False), no errand is sent when the good copy is a day old: it becomes invalid at that instant."""
    if authority.state == RobotsState.REFUSED:
        return True
    copied = authority.state in (RobotsState.RULES, RobotsState.ALLOW) and authority.failing_since
    return bool(copied) and authority.expires <= now and not errands and not opens


RobotsStanding: TypeAlias = RobotsVerdict | AgentRules
"""The verdict on the pages of an authority: one judgement on all of them, or the rules that judge each."""


def standing_at(
    now: Instant, *, errands: bool, opens: bool, of_file: Callable[[int], RobotsStanding], since: Instant = 0
) -> Callable[[Authority], RobotsStanding]:
    """Returns a function with the verdict on the pages of an authority at this instant. errands: errands fetch the
    rules; without them only rules from the caller count. opens: the owner's settings open a host whose robots.txt is
    unreachable. of_file: the verdict under the rules of a file, by its digest. since: as for `unanswered`."""

    def stands(authority: Authority) -> RobotsStanding:
        state = authority.state
        fresh = errands and state in WITH_COPY and not authority.token and authority.expires > now
        if not fresh:  # nearly all are
            if errands:
                if authority.token or unanswered(authority, now, since):
                    return _HOLD
            elif state in (RobotsState.UNKNOWN, RobotsState.RETRYING):
                return _GO
            if is_closed(authority, now, errands=errands, opens=opens):
                return _REFUSE
            if state == RobotsState.DEAD:
                return RobotsVerdict.DEAD
        return _GO if state == _ALLOW else of_file(authority.digest)

    return stands


def judged(standings: Sequence[RobotsStanding], urls: Sequence[str], wanted: Sequence[Use] = ()) -> list[RobotsVerdict]:
    """Returns the judgement on each of these URLs, whose authorities have these verdicts. wanted: the uses that the
    crawl is for."""
    rules = [one if isinstance(one, AgentRules) else NO_RULES for one in standings]
    found = [_GO if verdict >= 0 else _REFUSE for verdict in verdicts(rules, urls)]
    if wanted:
        for row, (one, url) in enumerate(zip(rules, urls, strict=True)):
            if one.uses is not None and preferences_of(one.about_uses(url)).refused(wanted) is not None:
                found[row] = _USE
    if rules == standings:
        return found
    return [one if isinstance(one, RobotsVerdict) else verdict for one, verdict in zip(standings, found, strict=True)]


def costs_of(standings: Sequence[RobotsStanding]) -> list[int]:
    """The costs of verdicts on top of a refusal, counted in refusals: an authority may have many rules."""
    return [one.count // RULES_PER_REFUSAL if isinstance(one, AgentRules) else 0 for one in standings]


@dataclass(frozen=True, slots=True)
class RobotsUpdate:
    """An authority's cells after an answer, which ends its errand. body: the new rules (b"" without any), None to keep
    the old ones. asks_next: the host of the next hop. fetched: the time of the last good answer; failing_since: the
    first failure since then; or 0. again: from `again_after` if URLs are parked."""

    state: RobotsState
    expires: Instant
    next_at: Instant
    attempts: int
    hops: int
    status: int
    url: str
    error: str
    body: bytes | None = None
    asks_next: str | None = None
    fetched: Instant = 0
    failing_since: Instant = 0
    again: JudgeAgain = JudgeAgain.NONE

    @classmethod
    def of(cls, authority: Authority) -> RobotsUpdate:
        """The cells of an authority as they are."""
        return cls(**dict(zip(CELLS, cells_of(authority), strict=True)))

    def row(self, authority: Authority) -> Row:
        """The columns of a ROBOTS fact."""
        return (authority.slot, authority.name, *cells_of(self))


def again_after(authority: Authority, found: RobotsUpdate, digest: int) -> JudgeAgain:
    """Which parked URLs are judged again after an answer. digest: of the valid rules then. URLs that no call has
    judged again yet remain among them."""
    ruled = (RobotsState.RULES, RobotsState.ALLOW)
    if found.state in ruled and found.asks_next is None:
        if digest != authority.digest:
            return JudgeAgain.ALL
        held = authority.state in ruled and not authority.failing_since
        return authority.again if held else max(authority.again, JudgeAgain.UNREACHABLE)
    if authority.state == RobotsState.REFUSED:
        return max(authority.again, JudgeAgain.UNREACHABLE)
    return authority.again


def after_answer(
    authority: Authority,
    answer: RobotsAnswer,
    error: str | None,
    retry_after: float | None,
    now: Instant,
    *,
    retries: bool,
    opens: bool = False,
    follows: bool = True,
    elsewhere: bool = False,
) -> RobotsUpdate:
    """Returns the cells after an answer, by RFC 9309 §2.3.1; 429 counts as unreachable; redirects are followed hop by
    hop.

    error: the class of the error, if there was one. retry_after: seconds. retries: whether an unreachable robots.txt is
    tried again soon (after 5, 30, 300 s) or counts as refused for a day at once. opens: whether the owner's settings
    then open the host for a day, by the last known rules, or without rules. follows: False if a redirect leads to
    a host that another frontier visits: the rules there are unknown, so they count as refused for a day.
    elsewhere: one of several workers sent the request. The address guard is its own then: another worker may try some
    seconds later, and only after `ROBOTS_GUARDED_TIMES_MAX` refusals no worker seems to be permitted.

    An answer is valid for a day, or for its own shorter time (§2.4), at least five minutes. A host
    that rests for longer after the answer uses it for its next turn: `lengthen_copies` in verbs/settling.py.
    """
    status = answer.status or 0
    own = authority.name + "/robots.txt"
    day = now + instant(ROBOTS_AGE_SECONDS_MAX)
    if error == _GUARDED and elsewhere:
        return _guarded(authority, now)
    if error in _NOBODY_THERE and not authority.hops:
        return RobotsUpdate(RobotsState.DEAD, day, 0, 0, 0, status, own, error or "", fetched=authority.fetched)
    verdict = verdict_of_status(answer.status)
    if verdict == "redirect" and not follows:
        verdict, retries, error = "unreachable", False, _ELSEWHERE
    if verdict == "redirect":
        target = spell([answer.location or ""], authority.url or own)[0] if answer.location else None
        if target is not None and len(target) <= URL_BYTES_MAX and authority.hops < REDIRECT_HOPS_MAX:
            hops = authority.hops + 1
            return replace(RobotsUpdate.of(authority), hops=hops, status=status, url=target, asks_next=host_of(target))
        verdict = "allow"  # beyond five hops a robots.txt may be treated as unavailable, RFC 9309 §2.3.1.2
    if verdict == "unreachable":
        return _unreachable(authority, status, error or "", retry_after, now, retries=retries, opens=opens)
    until = day
    if answer.fresh_seconds is not None:
        until = min(day, now + instant(max(min(answer.fresh_seconds, ROBOTS_AGE_SECONDS_MAX), ROBOTS_AGE_SECONDS_MIN)))
    if verdict == "rules":
        body = whole_lines(answer.body)
        return RobotsUpdate(RobotsState.RULES, until, 0, 0, 0, status, own, "", body, fetched=now)
    return RobotsUpdate(RobotsState.ALLOW, until, 0, 0, 0, status, own, "", b"", fetched=now)


def _guarded(authority: Authority, now: Instant) -> RobotsUpdate:
    """The cells after a worker's own guard refused the address."""
    times = authority.attempts + 1 if authority.state == RobotsState.RETRYING and authority.error == _GUARDED else 1
    own, day = authority.name + "/robots.txt", instant(ROBOTS_AGE_SECONDS_MAX)
    since = authority.failing_since or max(now, 1)
    at = now + instant(ROBOTS_GUARDED_SECONDS)
    found = RobotsUpdate(RobotsState.RETRYING, 0, at, times, 0, 0, own, _GUARDED, None, None, authority.fetched, since)
    if times < ROBOTS_GUARDED_TIMES_MAX:
        return found
    return replace(found, state=RobotsState.REFUSED, expires=now + day, next_at=now + day, attempts=0)


def asked_anew(authority: Authority, at: Instant, *, attempts: int = 0, error: str = "") -> RobotsUpdate:
    """Returns the cells of an authority whose verdict is dropped, and which is requested from an instant on. The last
    known rules remain until the next answer, as a fallback. attempts: earlier failures, so that fewer retries follow;
    error: the class of the last one."""
    return RobotsUpdate(
        *(RobotsState.RETRYING, 0, at, attempts, 0, 0, authority.name + "/robots.txt", error),
        fetched=authority.fetched,
        failing_since=authority.failing_since,
        again=max(authority.again, JudgeAgain.UNREACHABLE),
    )


def asked_sooner(authority: Authority, now: Instant) -> RobotsUpdate | None:
    """Returns the cells of an authority after a new process or worker arrived, which may succeed; None if its
    verdict remains. A verdict on our own side is then valid for at most `ROBOTS_OWN_SIDE_SECONDS` after the failure;
    another failure closes the host again at once."""
    if authority.token or not is_own_side(authority):
        return None
    soon = instant(ROBOTS_OWN_SIDE_SECONDS)
    if authority.state == RobotsState.RETRYING:
        at, attempts = now + soon, authority.attempts
        if authority.next_at <= at:
            return None
    elif authority.state == RobotsState.REFUSED:
        failed = authority.next_at - instant(ROBOTS_AGE_SECONDS_MAX)
        at, attempts = min(max(now, failed + soon), now + soon), len(RETRY_SECONDS)
    else:
        return None  # `unanswered` drops it when a page is drawn
    return asked_anew(authority, at, attempts=attempts, error=authority.error)


def _unreachable(
    authority: Authority,
    status: int,
    error: str,
    retry_after: float | None,
    now: Instant,
    *,
    retries: bool,
    opens: bool,
) -> RobotsUpdate:
    """Returns the cells after a failure, by RFC 9309 §2.3.1.4 and §2.4: a good copy is valid until it is a day old,
    then the host is closed, and after 30 days of failures the last good copy is valid again. Without one the host
    remains closed."""
    own = authority.name + "/robots.txt"
    day = instant(ROBOTS_AGE_SECONDS_MAX)
    since = authority.failing_since or max(now, 1)
    attempt = 1 if authority.error == _GUARDED else authority.attempts + 1  # refusals of guards were not attempts
    copy = RobotsState.RULES if authority.digest else RobotsState.ALLOW
    young = authority.fetched + day if authority.fetched else 0  # until then the good copy is valid
    tried = RobotsUpdate(copy, now + day, 0, 0, 0, status, own, error, fetched=authority.fetched, failing_since=since)
    asked = min(retry_after or 0.0, ROBOTS_AGE_SECONDS_MAX)
    if retries and (at := retry_at(attempt, now, at_least=asked)) is not None:
        if now < young:
            return replace(tried, expires=min(at, young), attempts=attempt)
        return replace(tried, state=RobotsState.RETRYING, expires=0, next_at=at, attempts=attempt)
    if opens or (authority.fetched and now - since >= instant(ROBOTS_UNREACHABLE_SECONDS_MAX)):
        return tried
    if now < young:
        return replace(tried, expires=young)
    return replace(tried, state=RobotsState.REFUSED, next_at=now + day)
