"""Robots rules: whom they refuse, what waits for them, and the errands that fetch them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from outrider import kernels
from outrider.clock import Instant, instant
from outrider.errors import SettingsError, StoreFullError
from outrider.frontier import arguments
from outrider.frontier.cards import Cards
from outrider.frontier.deciding import Deciding
from outrider.frontier.draft import Draft
from outrider.frontier.errands import Judgement, after_answer, judged
from outrider.frontier.facts import Fact
from outrider.frontier.tables import (
    PARKED,
    QUEUED,
    WAITING,
    Authority,
)
from outrider.journey import (
    RobotsAnswer,
)
from outrider.robots import Rules
from outrider.url import authority_of, host_of


class Asking(Deciding):
    """What robots.txt files say, and when to ask for them again."""

    def _living(self, cards: Cards) -> Cards:
        """The cards that are not void."""
        return cards.filter(~self.tables.void(cards.heads)) if self.tables.voids() else cards

    def _requeue(self, draft: Draft, cards: Cards, old: int, now: Instant) -> None:
        """Cards that nothing forbids any more: queued, or waiting for their time."""
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
        return judged(authority, url, now, errands=self.errands_mode, rules=self._rules)

    def _judge_again(self, now: Instant, most: int) -> int:
        """Parked URLs of authorities whose rules changed, a bounded number per call."""
        tables = self.tables
        draft = self._draft(now)
        taken: list[tuple[Authority, int, Cards]] = []
        refused_again: list[tuple[Authority, Cards]] = []
        count = 0
        while self._recheck and count < most:
            authority = self._recheck[-1]
            holds = False
            while authority.again and count < most and not holds:
                shelf = authority.again[-1]
                cards = tables.refused.drain(shelf, most - count)
                if not len(cards):
                    authority.again.pop()
                    continue
                taken.append((authority, shelf, cards))
                count += len(cards)
                cards = self._living(cards)
                go = np.zeros(len(cards), np.bool_)
                for row, url in enumerate(cards.urls()):
                    verdict = self._judge(authority, url, now)
                    if verdict is Judgement.HOLD:
                        holds = True  # its rules are out of date: it goes on when the new ones are here
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
        """What an answer means is a fact, and ends the authority's errand. told: by a caller unasked; an errand that is
        open goes on, for its request may be under way, and the host is not visited beside it."""
        found = after_answer(authority, answer, error, retry_after, now, retries=self.errands_mode)
        if told and authority.token:  # where its errand has come to
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
            draft.add(Fact.RULES, (authority.slot, authority.name, digest, body))
