"""Robots rules: the URLs that they refuse, the URLs that wait for them, and the errands that fetch them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt

from outrider.causes import STOPPED
from outrider.clock import Instant, instant
from outrider.frontier.format.card_columns import Cards
from outrider.frontier.format.card_records import CardRecord
from outrider.frontier.format.facts import Fact
from outrider.frontier.state.authorities import Authority, JudgeAgain, RobotsState, robots_cells
from outrider.frontier.state.robots_answers import (
    ERRORS_OF_VERDICTS,
    RobotsStanding,
    RobotsUpdate,
    RobotsVerdict,
    after_answer,
    again_after,
    asked_anew,
    asked_sooner,
    costs_of,
    is_closed,
    judged,
    standing_at,
    unanswered,
)
from outrider.frontier.state.tables import Tables
from outrider.frontier.state.url_table import GONE, PARKED, QUEUED, WAITING, Reason
from outrider.frontier.stores.ledger import FINGERPRINT_MAX, before_slot
from outrider.frontier.verbs import arguments
from outrider.frontier.verbs.deciding import Part
from outrider.frontier.verbs.draft import Draft
from outrider.frontier.verbs.gates import Place
from outrider.journey import RobotsAnswer, Word
from outrider.kernels.card_layout import HEAD, Heads
from outrider.limits import (
    OWN_SLOT,
    RECHECK_READ_BYTES,
    RECHECK_ROWS_LEAST,
    RECHECK_ROWS_MAX,
    RESTS_PER_FRAME_MAX,
    RULES_READ_BYTES_AT_ONCE,
)
from outrider.robots import AgentRules, preferences_of, verdict_of_status
from outrider.url import authority_of, host_of
from outrider.url.keys import has_host
from outrider.uses import USE_REFUSED

THROUGH: Place = (1 << 32, -1)
"""The place after the last URL."""
NO_HEADS = np.zeros(0, HEAD)


def parked_after(
    tables: Tables,
    crawls: Sequence[int],
    slot: int,
    place: Place,
    most: int,
    chosen_of: Callable[[Heads], npt.NDArray[np.bool_]],
) -> tuple[Cards, Place, int]:
    """Returns up to `most` parked URLs after a place in a slot of the ledger, the place of the last row that was read,
    and how many rows were read. crawls: the rows of crawls that are searched; chosen_of: selects heads."""
    crawl = next((crawl for crawl in crawls if crawl >= place[0]), None)
    if crawl is None:
        return Cards.none(), THROUGH, 1
    behind = place[1] if crawl == place[0] else -1
    after = (crawl, slot, behind) if behind >= 0 else before_slot(crawl, slot)
    heads = next(tables.urls.ledger.scan_heads(after=after, bytes_at_once=RECHECK_READ_BYTES), NO_HEADS)
    here = int(np.count_nonzero((heads["crawl"] == crawl) & (heads["slot"] == slot)))
    if not here:
        return Cards.none(), (crawl + 1, -1), RECHECK_ROWS_LEAST
    heads = heads[:here]
    chosen = (heads["state"] == PARKED) & chosen_of(heads)
    if tables.urls.voids():
        chosen &= ~tables.urls.void(heads)
    rows = np.flatnonzero(chosen)
    last = int(rows[most]) - 1 if len(rows) > most else here - 1
    some = heads[rows[:most]]
    _, cards = tables.urls.find(some["crawl"], some["slot"], some["fingerprint"])
    end = int(heads["fingerprint"][last]) & FINGERPRINT_MAX
    return cards, (crawl, end), max(last + 1, RECHECK_ROWS_LEAST)


class RobotsFiles(Part):
    """Judges URLs by robots.txt files, and decides when to request a file again."""

    def living(self, cards: Cards) -> Cards:
        """Returns the cards that are not void."""
        return cards.filter(~self.tables.urls.void(cards.heads)) if self.tables.urls.voids() else cards

    def requeue(self, draft: Draft, cards: Cards, old: int, now: Instant) -> None:
        """Queues cards that are not forbidden any more, or lets them wait if their due time is in the future."""
        if not len(cards):
            return
        heads = cards.changed()
        heads["state"] = np.where(heads["due"] > now, WAITING, QUEUED)
        heads["reason"] = 0
        states = np.full(len(cards), old, np.uint8)
        draft.heads(cards.with_heads(heads), np.zeros(len(cards), np.uint64), states)

    def set_robots(self, authority: str, status: int | None, body: bytes, now: Instant) -> None:
        """Sets the rules for an authority (scheme://host[:port]) from the caller, by the answer to its robots.txt
        request. Raises SettingsError."""
        arguments.robots(RobotsAnswer(status, body))
        found = arguments.robots_url(authority)
        now = self._core.advance(now)
        draft = self._core.draft(now)
        self._homes.add(draft, host_of(found))
        self._core.commit(draft)
        owner = self.tables.robots.authority(authority_of(found))
        draft = self._core.draft(now)
        self.take_answer(draft, owner, RobotsAnswer(status, body), None, None, now, told=True)
        self._core.commit(draft)

    def standing(self, now: Instant) -> Callable[[Authority], RobotsStanding]:
        """Returns a function that judges an authority's pages at this instant, with its rules and the settings."""
        stands = standing_at(
            now,
            errands=self._core.errands_mode,
            opens=self._opens(),
            of_file=self._of_file,
            since=self._core.verdicts_since,
        )
        if self.settings.obey_robots:
            return stands
        return lambda authority: found if (found := stands(authority)) is not RobotsVerdict.REFUSE else RobotsVerdict.GO

    def _of_file(self, digest: int) -> RobotsStanding:
        """Returns the verdict on pages, or the rules, by a file and the settings."""
        if not self.settings.obey_robots:
            return RobotsVerdict.GO
        rulebook = self.tables.robots.rulebook
        most = self.settings.crawl_delay_max if self.settings.crawl_delay_over == "skip" else None
        rules = rulebook.rules(digest)
        if rules is not None and most is not None and rulebook.crawl_delay(digest) > most:
            return RobotsVerdict.REFUSE
        return rules or RobotsVerdict.READ

    def standings(self, hosts: npt.NDArray[np.intp], cards: Cards, now: Instant) -> list[RobotsStanding]:
        """Returns the standings of these cards' authorities. hosts: the rows of their hosts."""
        robots = self.tables.robots
        known, digests = robots.open_files(hosts, cards, now)
        files = digests.tolist()
        told = {digest: self._of_file(digest) for digest in dict.fromkeys(files)}
        found = [told[digest] for digest in files]
        if np.count_nonzero(known) < len(known):
            urls, stands = cards.urls(), self.standing(now)
            for row in np.flatnonzero(~known).tolist():
                if not has_host(urls[row]):
                    found[row] = RobotsVerdict.GO
                    continue
                owner = robots.authority(authority_of(urls[row]))
                found[row] = stands(owner)
                if self._core.errands_mode:
                    robots.note_open(owner)
        return found

    def _opens(self) -> bool:
        """Whether the owner's settings open a host whose robots.txt is unreachable."""
        return self.settings.robots_unreachable == "open" or not self.settings.obey_robots

    def unanswered(self, authority: Authority, now: Instant) -> bool:
        """Whether an errand must fetch a robots.txt, or fetch it again, before any page of the authority."""
        return unanswered(authority, now, self._core.verdicts_since)

    def is_closed(self, authority: Authority, now: Instant) -> bool:
        return is_closed(authority, now, errands=self._core.errands_mode, opens=self._opens())

    def refuse(
        self, draft: Draft, record: CardRecord, authority: Authority, verdict: RobotsVerdict, now: Instant
    ) -> None:
        if verdict is RobotsVerdict.DEAD:
            draft.move(record, GONE, Reason.ERROR, error=authority.error)
            draft.record(record, QUEUED)
            draft.error(authority.error)
            draft.refusal(record, now, outcome=Word.ERROR, error=authority.error)
            return
        error = "robots_unreachable" if self.is_closed(authority, now) else ERRORS_OF_VERDICTS[verdict]
        first = draft.error_text(record.error) not in ("robots_unreachable", *ERRORS_OF_VERDICTS.values())
        draft.move(record, PARKED, Reason.ROBOTS, error=error)
        draft.record(record, QUEUED)
        if first:
            draft.error(error)
            lines = self.tables.robots.rulebook.about_uses(authority.digest, record.url) if error == USE_REFUSED else ()
            error_told = None if error == "robots" else error
            draft.refusal(record, now, outcome=Word.ROBOTS, error=error_told, preferences=preferences_of(lines))

    # -- parked URLs whose rules changed -------------------------------------------------------------------------------

    def judge_again(self, now: Instant, most: int) -> int:
        """Judges parked URLs again after changes of their authority's rules: at most `most`, and `RECHECK_ROWS_MAX`
        rows of the ledger, per call. Returns how many verdicts were used."""
        count, room = 0, RECHECK_ROWS_MAX
        for name in list(self._gates.again):
            authority = self.tables.robots.by_name.get(name)
            if authority is None or not authority.again:
                del self._gates.again[name]  # its host became cold, and has no parked URL
                continue
            while name in self._gates.again and count < most and room > 0:
                state = self._judgeable(authority, now)
                if state is not RobotsVerdict.GO:
                    if state is not RobotsVerdict.READ:  # a fact about its robots.txt adds it again
                        del self._gates.again[name]
                    if state is RobotsVerdict.HOLD:
                        self._gates.line_up(authority)
                    break
                judged, rows = self._judge_some(authority, now, most - count)
                count, room = count + judged, room - rows
        self._core.settle(now)
        return count

    def _judgeable(self, authority: Authority, now: Instant) -> RobotsVerdict:
        """Returns GO if the rules of an authority are available, HOLD if an errand must fetch them first, REFUSE if the
        caller must. READ: they are too long for this call, so the reading thread reads them."""
        if self._core.errands_mode and (authority.token or self.unanswered(authority, now)):
            return RobotsVerdict.HOLD
        if self.is_closed(authority, now):
            return RobotsVerdict.REFUSE
        if authority.state == RobotsState.RULES and self.tables.robots.rulebook.rules(authority.digest) is None:
            self._gates.unread[authority.name] = authority
            return RobotsVerdict.READ
        return RobotsVerdict.GO

    def _judge_some(self, authority: Authority, now: Instant, most: int) -> tuple[int, int]:
        """Judges some parked URLs of an authority again, in a frame of their own. Returns the cost of the verdicts, and
        how many rows of the ledger were read."""
        stands = self.standing(now)(authority)
        each = 1 + sum(costs_of([stands]))
        cards, place, rows = self._parked_after(authority, self._gates.again[authority.name], max(1, most // each))
        draft = self._core.draft(now)
        if len(cards):
            verdicts = judged([stands] * len(cards), cards.urls(), self.settings.use)
            self.requeue(draft, cards.filter(_is(verdicts, RobotsVerdict.GO)), PARKED, now)
            for verdict, error in ERRORS_OF_VERDICTS.items():
                self._refuse_again(draft, cards.filter(_is(verdicts, verdict)), error)
        if place is THROUGH:
            draft.add(Fact.ROBOTS, robots_cells(authority, again=JudgeAgain.NONE))
        self._core.commit(draft, reserve=True)
        if place is not THROUGH:
            self._gates.again[authority.name] = place
        return len(cards) * each, rows

    def _refuse_again(self, draft: Draft, cards: Cards, error: str) -> None:
        """Updates cards that were refused for another reason and are refused with this error now."""
        if not len(cards):
            return
        number = draft.error_number(error)
        cards = cards.filter(cards.heads["error"] != number)
        if len(cards):
            heads = cards.changed()
            heads["error"] = number
            draft.heads(cards.with_heads(heads), np.zeros(len(cards), np.uint64), np.full(len(cards), PARKED, np.uint8))

    def _parked_after(self, authority: Authority, place: Place, most: int) -> tuple[Cards, Place, int]:
        """Returns up to `most` parked URLs of an authority after a place in its slot of the ledger, the place of the
        last row that was read, and how many rows were read."""
        tables, slot = self.tables, authority.slot
        own = [queue for queue in tables.queues_of(authority.host) if tables.queues.parked[queue]]
        crawls = sorted({int(tables.queues.crawl[queue]) for queue in own})

        def chosen_of(heads: Heads) -> npt.NDArray[np.bool_]:
            chosen: npt.NDArray[np.bool_] = heads["reason"] == Reason.ROBOTS
            if authority.again == JudgeAgain.UNREACHABLE:
                chosen &= heads["error"] == tables.registry.error_numbers.get("robots_unreachable", -1)
            return chosen & np.isin(heads["queue"], tables.queues.hash[np.array(own, np.intp)])

        cards, place, rows = parked_after(tables, crawls, slot, place, most, chosen_of)
        mine = np.array([authority_of(url) == authority.name for url in cards.urls()], np.bool_)
        return cards.filter(mine), place, rows

    # -- verdicts that are dropped ------------------------------------------------------------------------------------

    def ask_sooner(self, now: Instant) -> int:
        """Handles a new process or worker, which may have better access: verdicts with a possible cause on our own side
        are valid for a minute at most. Returns how many robots.txt files are requested sooner."""
        now = self._core.advance(now)
        self._core.verdicts_since = now
        if not self._core.errands_mode:
            return 0
        found = [(one, cells) for one in self.tables.robots.listed if (cells := asked_sooner(one, now)) is not None]
        for first in range(0, len(found), RESTS_PER_FRAME_MAX):
            draft = self._core.draft(now)
            for one, cells in found[first : first + RESTS_PER_FRAME_MAX]:
                draft.authority(one)
                draft.add(Fact.ROBOTS, cells.row(one))
            self._core.commit(draft, reserve=True)
        return len(found)

    def recheck(self, host: int, now: Instant) -> tuple[int, list[str]]:
        """Drops all verdicts on robots.txt files of a host: each is requested before the host's next page, and at once
        if pages are parked. Returns the number of these pages, and the classes of errors that ended pages."""
        now = self._core.advance(now)
        known = [one for one in self.tables.robots.of_host.get(host, ()) if one.state != RobotsState.UNKNOWN]
        errors = sorted({one.error for one in known if one.state == RobotsState.DEAD and one.error})
        draft = self._core.draft(now)
        for one in known:
            cells = asked_anew(one, now)
            if one.token:  # the place that its errand has reached
                cells = replace(cells, hops=one.hops, url=one.url)
            draft.authority(one)
            draft.add(Fact.ROBOTS, cells.row(one))
            if one.token:
                draft.add(*one.opening(one.token, one.deadline, one.holder))
        self._core.commit(draft)
        return len(known), errors

    # -- answers -------------------------------------------------------------------------------------------------------

    def take_answer(
        self,
        draft: Draft,
        authority: Authority,
        answer: RobotsAnswer,
        error: str | None,
        retry_after: float | None,
        now: Instant,
        *,
        told: bool = False,
    ) -> None:
        """Adds the meaning of an answer to the draft as a fact, which ends the authority's errand. told: a caller set
        the rules without a request. Then an open errand continues, because its request may be under way, and the host
        gets no second request at the same time."""
        opens, retries = self._opens(), self._core.errands_mode and self.settings.obey_robots
        of_answer = partial(after_answer, authority, answer, error, retry_after, now, retries=retries, opens=opens)
        of_answer = partial(of_answer, elsewhere=not told and authority.holder != 0)
        found = of_answer()
        if found.asks_next is not None and not self._homes.owns(found.asks_next):
            found = of_answer(follows=False)
        if told and authority.token:  # the place that its errand has reached
            found = replace(found, hops=authority.hops, url=authority.url)
        draft.authority(authority)
        failed = _failed(answer, error, found)
        if failed is not None and not told:
            draft.error(failed)
        digest = self.digest_of(found.body) if found.body is not None else authority.digest
        parked = any(self.tables.queues.parked[queue] for queue in self.tables.queues_of(authority.host))
        again = again_after(authority, found, digest) if parked else JudgeAgain.NONE
        found = found if found.again == again else replace(found, again=again)
        draft.add(Fact.ROBOTS, found.row(authority))
        if told and authority.token:
            draft.add(*authority.opening(authority.token, authority.deadline, authority.holder))
        if found.asks_next is not None:
            self._homes.add(draft, found.asks_next)
        body = found.body
        if body is None:
            return
        delay = self._rests.obeyed(self.tables.robots.rulebook.delay_of(digest, body))
        if delay:
            # The delay counts from the last request to the host, also from one that ends in this call. This applies to
            # the rules of another host after a redirect, too.
            draft.crawl_delays[authority.host] = max(delay, draft.crawl_delays.get(authority.host, 0.0))
            clock = draft.clock(authority.host)
            if clock.ended:
                clock.rest_at_least(clock.ended + instant(delay))
        if digest != authority.digest:
            if not self.tables.robots.rulebook.has(digest) and digest not in draft.robots_files:
                draft.robots_files.add(digest)
                draft.add(Fact.ROBOTS_FILE, (OWN_SLOT, digest, body))
            draft.add(Fact.RULES, (authority.slot, authority.name, digest, b""))

    # -- rules that are too long to be read in a call ------------------------------------------------------------------

    def digest_of(self, body: bytes) -> int:
        """Returns the keyed hash by which authorities name a robots.txt, 0 for an empty file. Any thread may call
        it."""
        return self.tables.hash_of(body.decode("latin-1")) if body else 0

    @property
    def unread(self) -> bool:
        """Whether URLs wait for rules that are too long to be read inside a call."""
        return bool(self._gates.unread)

    def to_be_read(self) -> list[tuple[int, bytes]]:
        """Returns files to read outside of the calls: (digest, body) for `AgentRules`, which `read_now` accepts. It
        returns at least one file, of any length. Several have at most `RULES_READ_BYTES_AT_ONCE` together."""
        found: dict[int, bytes] = {}
        room = RULES_READ_BYTES_AT_ONCE
        for authority in self._gates.unread.values():
            room -= 0 if authority.digest in found else self.tables.robots.rulebook.size(authority.digest)
            if found and room < 0:
                break
            if self.tables.robots.rulebook.size(authority.digest):
                found[authority.digest] = self.tables.robots.rulebook.body(authority.digest)
        return list(found.items())

    def read_now(self, read: Iterable[tuple[int, float, AgentRules | None]]) -> None:
        """Accepts files that were read: digest, Crawl-delay, rules (None if only the delay was needed). Hosts with URLs
        that waited for these rules are checked again."""
        known: set[int] = set()
        for digest, delay, rules in read:
            self.tables.robots.rulebook.note_delay(digest, delay)
            if rules is not None:
                self.tables.robots.rulebook.keep(digest, rules)
                known.add(digest)
        for authority in list(self._gates.unread.values()):
            if self.tables.robots.by_name.get(authority.name) is not authority:
                del self._gates.unread[authority.name]  # its host became cold: no URL waits
            elif authority.digest in known or not self.tables.robots.rulebook.size(authority.digest):
                del self._gates.unread[authority.name]
                if self.turns.gates.get(authority.host) is authority and not authority.token:
                    self.turns.open_gate(authority.host)
                    self.tables.changed.append(np.array([authority.host], np.uint32))
        self._core.settle(self._core.now)


def _failed(answer: RobotsAnswer, error: str | None, found: RobotsUpdate) -> str | None:
    """Returns the class under which a failed request for a robots.txt is counted; None for a request that did not fail.
    If no server answers for an authority, each of its pages is counted instead."""
    if found.state == RobotsState.DEAD or error == STOPPED:
        return None
    if error is None and answer.status and verdict_of_status(answer.status) == "unreachable":
        return f"http_{answer.status}"
    return error


def _is(verdicts: Sequence[RobotsVerdict], wanted: RobotsVerdict) -> npt.NDArray[np.bool_]:
    return np.array([verdict is wanted for verdict in verdicts], np.bool_)
