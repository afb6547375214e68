"""Robots rules: the URLs that they refuse, the URLs that wait for them, and the errands that fetch them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from outrider import kernels
from outrider.clock import Instant, instant
from outrider.errors import SettingsError, StoreFullError
from outrider.frontier.format.cards import Cards
from outrider.frontier.format.facts import Fact
from outrider.frontier.state.errands import Judgement, after_answer, judged
from outrider.frontier.state.tables import (
    PARKED,
    QUEUED,
    WAITING,
    Authority,
)
from outrider.frontier.verbs import arguments
from outrider.frontier.verbs.deciding import Deciding
from outrider.frontier.verbs.draft import Draft
from outrider.journey import (
    RobotsAnswer,
)
from outrider.limits import RULES_PER_REFUSAL, RULES_READ_BYTES_AT_ONCE
from outrider.robots import AgentRules
from outrider.url import authority_of, host_of


class Asking(Deciding):
    """Judges URLs by robots.txt files, and decides when to ask for a file again."""

    def _living(self, cards: Cards) -> Cards:
        """The cards that are not void."""
        return cards.filter(~self.tables.void(cards.heads)) if self.tables.voids() else cards

    def _requeue(self, draft: Draft, cards: Cards, old: int, now: Instant) -> None:
        """Cards that nothing forbids any more become queued, or waiting when their due time lies ahead."""
        if not len(cards):
            return
        heads = cards.changed()
        heads["state"] = np.where(heads["due"] > now, WAITING, QUEUED)
        heads["reason"] = 0
        states = np.full(len(cards), old, np.uint8)
        draft.heads(cards.with_heads(heads), np.zeros(len(cards), np.uint64), states)

    def set_robots(self, authority: str, status: int | None, body: bytes, now: Instant) -> None:
        """Rules for an authority (scheme://host[:port]) from the caller, as its robots.txt answered. Raises
        SettingsError."""
        arguments.robots(RobotsAnswer(status, body))
        found = arguments.robots_url(authority)
        now = self._advance(now)
        draft = self._draft(now)
        self._add_host(draft, host_of(found))
        self._commit(draft)
        owner = self.tables.authority(authority_of(found))
        draft = self._draft(now)
        self._robots_answer(draft, owner, RobotsAnswer(status, body), None, None, now, told=True)
        self._commit(draft)
        if not owner.token:
            self._line_down(owner)

    def _judge(self, authority: Authority, url: str, now: Instant) -> Judgement:
        return judged(authority, url, now, errands=self.errands_mode, rulebook=self._rulebook)

    def _looked_at(self, authority: Authority) -> int:
        """The cost of a verdict on top of a refusal, counted in refusals: an authority may have many rules."""
        return self._rulebook.count(authority.digest) // RULES_PER_REFUSAL

    def _judge_again(self, now: Instant, most: int) -> int:
        """Judges parked URLs again where the rules of their authority changed, a bounded number per call."""
        tables = self.tables
        draft = self._draft(now)
        taken: list[tuple[Authority, int, Cards]] = []
        refused_again: list[tuple[Authority, Cards]] = []
        count = 0
        while self._recheck and count < most:
            authority = self._recheck[-1]
            holds = unread = False
            while authority.again and count < most and not holds:
                shelf = authority.again[-1]
                cards = tables.refused.drain(shelf, max(1, (most - count) // (1 + self._looked_at(authority))))
                if not len(cards):
                    authority.again.pop()
                    continue
                taken.append((authority, shelf, cards))
                count += len(cards) * (1 + self._looked_at(authority))
                cards = self._living(cards)
                go = np.zeros(len(cards), np.bool_)
                for row, url in enumerate(cards.urls()):
                    verdict = self._judge(authority, url, now)
                    if verdict in (Judgement.HOLD, Judgement.READ):
                        # The rules are out of date, or not read yet: the judging goes on when they are there.
                        holds, unread = True, verdict is Judgement.READ
                        break
                    go[row] = verdict is Judgement.GO
                if holds:
                    tables.refused.put(np.full(len(cards), shelf, np.uint32), cards)
                    taken.pop()
                    break
                self._requeue(draft, cards.filter(go), PARKED, now)
                if not go.all():
                    refused_again.append((authority, cards.filter(~go)))
            if holds or not authority.again:
                self._recheck.pop()
            if unread:
                self._recheck.append(authority)
                self._unread[authority.name] = authority
                break
        try:
            self._commit(draft, reserve=True)
        except (SettingsError, StoreFullError):
            for authority, shelf, cards in taken:
                tables.refused.put(np.full(len(cards), shelf, np.uint32), cards)
                if shelf not in authority.again:
                    authority.again.append(shelf)
                if authority not in self._recheck:
                    self._recheck.append(authority)
            raise
        for authority, cards in refused_again:
            tables.refused.put(np.full(len(cards), authority.refused, np.uint32), cards)
        return count

    def _robots_answer(
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
        """The draft gets the meaning of an answer as a fact, which ends the authority's errand. told: a caller gave the
        rules unasked; then an open errand goes on, for its request may be under way, and the host gets no second
        request beside it."""
        found = after_answer(authority, answer, error, retry_after, now, retries=self.errands_mode)
        if told and authority.token:  # the place that its errand has reached
            found = replace(found, hops=authority.hops, url=authority.url)
        self._name(draft, authority)
        draft.add(Fact.ROBOTS, found.row(authority))
        if told and authority.token:
            self._open_errand(draft, authority, authority.token, authority.deadline, authority.holder)
        if found.asks_next is not None:
            self._add_host(draft, found.asks_next)
        body = found.body
        if body is None:
            return
        digest = self.digest_of(body)
        delay = self._rulebook.delay_of(digest, body)
        if delay:
            # The delay counts from the last request to the host, also where a redirect led to the rules of another
            # host; and from requests that end in this call.
            draft.crawl_delays[authority.host] = max(delay, draft.crawl_delays.get(authority.host, 0.0))
            clock = draft.clock(authority.host)
            if clock.ended:
                clock.rest_at_least(clock.ended + instant(delay))
        if digest != authority.digest:
            draft.add(Fact.RULES, (authority.slot, authority.name, digest, body))

    # -- rules that are too long to be read in a call ------------------------------------------------------------------

    def digest_of(self, body: bytes) -> int:
        """The keyed hash by which authorities name a robots.txt, 0 for an empty file. Any thread may call it."""
        if not body:
            return 0
        return int.from_bytes(kernels.fingerprints([body.decode("latin-1")], self._fingerprint_key), "little")

    @property
    def unread(self) -> bool:
        """Whether URLs wait for rules that are too long to be read inside a call."""
        return bool(self._unread)

    def to_be_read(self) -> list[tuple[int, bytes]]:
        """Files to read outside of the calls: (digest, body) for `AgentRules`, which `read_now` takes. One file at
        least, whatever its length; several have `RULES_READ_BYTES_AT_ONCE` at most together."""
        found: dict[int, bytes] = {}
        room = RULES_READ_BYTES_AT_ONCE
        for authority in self._unread.values():
            room -= 0 if authority.digest in found else self._rulebook.size(authority.digest)
            if found and room < 0:
                break
            if self._rulebook.size(authority.digest):
                found[authority.digest] = self._rulebook.body(authority.digest)
        return list(found.items())

    def read_now(self, read: Iterable[tuple[int, float, AgentRules | None]]) -> None:
        """Takes files that were read: digest, Crawl-delay, rules (None where only the delay was looked for). Hosts with
        URLs that waited for these rules get their turn looked at again."""
        known: set[int] = set()
        for digest, delay, rules in read:
            self._rulebook.note_delay(digest, delay)
            if rules is not None:
                self._rulebook.keep(digest, rules)
                known.add(digest)
        for authority in list(self._unread.values()):
            if self.tables.authorities.get(authority.name) is not authority:
                del self._unread[authority.name]  # its host went cold: no URL waits
            elif authority.digest in known or not self._rulebook.size(authority.digest):
                self._line_down(authority)
