"""From finished visits to durable outcomes: read, archive, sync, report, lines; then the next leases (one thread).

When the disk is full, what was begun is kept and taken up again by the next call: nothing is archived twice.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from outrider.clock import instant
from outrider.crawl.journal import Journal
from outrider.crawl.options import CrawlOptions
from outrider.crawl.output import Output
from outrider.crawl.visit import (
    Judgement,
    Visit,
    address_outcome,
    content_digest,
    judged,
    page_outcome,
    robots_outcome,
    stopped_outcome,
)
from outrider.engine import Frontier
from outrider.errors import StoreFullError
from outrider.journey import Code, Kind, LeaseBatch, Link, Outcome, Settled, State, Verdict
from outrider.limits import LINKS_PER_PAGE_MAX
from outrider.page import Page, read
from outrider.url import UrlBatch, canonical_target

LEASE_SECONDS: Final = 90.0  # DNS (15 s) and a fetch (60 s) end before
EXTEND_SECONDS: Final = 10.0  # leases that end within so long are extended before their outcome is written down
QUIET: Final = frozenset({"done", "truncated", "duplicate", "redirect", "gone"})  # pages.jsonl says enough of these


NO_LINKS: Final = UrlBatch.of(())


@dataclass(slots=True)
class _Settling:
    """A visit on its way to its outcome; `outcome` is there once it is archived."""

    visit: Visit
    judgement: Judgement | None = None
    page: Page | None = None
    links: UrlBatch = field(default_factory=lambda: NO_LINKS)
    digest: bytes | None = None
    shown: str | None = None
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn brought: leases, when there will be more (None: not by waiting), how many answers were reported."""

    leases: LeaseBatch
    next_ready_seconds: float | None
    answered: int


class Settler:
    """Takes finished visits and hands out leases; only one thread may use it."""

    def __init__(self, frontier: Frontier, output: Output, options: CrawlOptions, journal: Journal) -> None:
        self._frontier = frontier
        self._output = output
        self._options = options
        self._journal = journal
        self._pending: list[_Settling] = []

    def turn(self, visits: Sequence[Visit], want: int, ending: Sequence[int] = ()) -> Turn:
        """Reports these visits and those of calls that found the disk full, then leases. Raises StoreError.

        ending: tokens of visits under way whose leases are to be extended.
        """
        answered = self.settle(visits)
        if ending:
            self._frontier.extend(ending, LEASE_SECONDS)
        leases = LeaseBatch()
        ready: float | None = None
        if want:
            leases = self._frontier.lease(want, ttl_seconds=LEASE_SECONDS, errands=True)
            if leases.lines:
                self._output.write(leases.lines, leases.lsn)
            if len(leases) < want:
                ready = self._frontier.next_ready_seconds()
        self._journal.flush()
        return Turn(leases, ready, answered)

    def settle(self, visits: Sequence[Visit]) -> int:
        """Makes the outcomes of these visits durable; answers how many were answers of a site. Raises StoreError."""
        self._pending.extend(_Settling(visit) for visit in visits)
        self._output.settle_debts()
        pending = self._pending
        unsent = [one.visit.lease.token for one in pending if one.visit.stopped and one.visit.began is None]
        if unsent:
            self._frontier.release(unsent)
            pending = self._pending = [one for one in pending if not one.visit.stopped or one.visit.began is not None]
        if not pending:
            return 0
        self._extend(pending)
        self._read([one for one in pending if one.outcome is None and one.judgement is None])
        for one in pending:
            if one.outcome is None:
                one.outcome = self._archived(one)
        watermark = self._output.sync_archive()
        outcomes = [one.outcome for one in pending if one.outcome is not None]
        report = self._frontier.report(outcomes, watermark=watermark)
        self._pending = []
        answered = 0
        for one, outcome, code in zip(pending, outcomes, report.outcomes, strict=True):
            answered += code is Settled.OK and bool(outcome.answered)
            self._note(one, outcome, code)
        self._output.write(report.lines, report.lsn)
        self._forget_addresses(pending)
        return answered

    def _forget_addresses(self, settled: Sequence[_Settling]) -> None:
        """A host that took no connection at the address that its lease named is asked for again: it may have others."""
        visits = [one.visit for one in settled if one.visit.lease.address is not None]
        gone = {one.lease.host for one in visits if one.response is not None and one.response.unconnected}
        if gone:
            with contextlib.suppress(StoreFullError):
                self._frontier.set_addresses(dict.fromkeys(gone))

    @property
    def waiting(self) -> int:
        """Visits whose outcomes are not durable yet."""
        return len(self._pending)

    def _extend(self, pending: Sequence[_Settling]) -> None:
        soon = self._frontier.now() + instant(EXTEND_SECONDS)
        ending = [one.visit.lease.token for one in pending if one.visit.lease.deadline < soon]
        if ending:
            self._frontier.extend(ending, LEASE_SECONDS)

    def _read(self, fresh: Sequence[_Settling]) -> None:
        """Judges the pages, reads those that have text, and tells which of them are copies."""
        accepted: list[_Settling] = []
        for one in fresh:
            visit = one.visit
            response = visit.response
            if response is not None and response.head:
                one.digest, one.shown = content_digest(response)
            if visit.lease.kind is not Kind.PAGE or visit.stopped:
                continue
            one.judgement = judged(visit)
            if one.judgement.verdict is Verdict.DONE and one.judgement.location is None and response is not None:
                content_type = response.headers.get("content-type") or ""
                one.page = read(response.content, response.url, content_type, agent=self._options.user_agent)
                one.links = one.page.link_batch()[:LINKS_PER_PAGE_MAX]
                if response.content:
                    accepted.append(one)
        if not accepted:
            return
        known = self._frontier.seen_content([one.digest or b"" for one in accepted])
        here: set[bytes] = set()
        for one, seen in zip(accepted, known, strict=True):
            assert one.judgement is not None
            assert one.digest is not None
            if seen or one.digest in here:
                one.judgement = one.judgement.as_duplicate()
            here.add(one.digest)
        self._go_to_canonical(accepted)

    def _go_to_canonical(self, accepted: Sequence[_Settling]) -> None:
        """Where it is asked for: a page that names another URL as its own is a copy of it; that URL is its one link.

        Not where that URL is none that this crawl fetches: the page is all there will be of it. Nor back to where the
        page was found: of two pages that name each other, both would be copies.
        """
        if not self._options.honour_canonical:
            return
        named: list[tuple[_Settling, str]] = []
        for one in accepted:
            lease = one.visit.lease
            target = canonical_target(lease.url, one.page.canonical) if one.page and one.page.canonical else None
            if target is None:
                continue
            known = self._frontier.status(target)  # its URL is spelled by the lossy rules of this crawl
            if known.url not in {lease.url, lease.referrer} and known.state not in {State.GONE, State.PARKED}:
                named.append((one, known.url))
        links = [
            Link(target, depth=one.visit.lease.depth + 1, referrer=one.visit.lease.url, crawl=one.visit.lease.crawl)
            for one, target in named
        ]
        codes = self._frontier.discover(links) if links else []
        for (one, target), code in zip(named, codes, strict=True):
            if code in {Code.NEW, Code.KNOWN} and one.judgement is not None:
                one.links = UrlBatch.of([target])
                one.judgement = one.judgement.as_duplicate()

    def _archived(self, one: _Settling) -> Outcome:
        visit = one.visit
        if visit.stopped:
            return stopped_outcome(visit)
        if visit.lease.kind is Kind.ADDRESS:
            return address_outcome(visit)
        warc: dict[str, Any] | None = None
        if visit.response is not None and one.shown is not None:
            place = self._output.keep(visit.response, visit.at, visit.lease.token, one.shown)
            if place is not None:
                warc = {"file": place.file, "offset": place.offset, "length": place.length}
        if one.judgement is None:
            return robots_outcome(visit)
        return page_outcome(
            visit,
            one.judgement,
            page=one.page,
            links=one.links,
            digest=one.digest if visit.response is not None and visit.response.content else None,
            digest_shown=one.shown,
            warc=warc,
        )

    def _note(self, one: _Settling, outcome: Outcome, code: Settled) -> None:
        lease, visit = one.visit.lease, one.visit
        if code is Settled.STALE:
            self._journal.note("stale", url=lease.url, token=lease.token)
        elif visit.stopped:
            self._journal.note("broken_off", url=lease.url, token=lease.token)
        elif lease.kind is Kind.ADDRESS:
            self._journal.note(
                str(lease.kind),
                url=lease.url,
                address=visit.address,
                error=outcome.error,
                text=visit.error_text or None,
            )
        elif lease.kind is not Kind.PAGE:
            size = len(visit.response.content) if visit.response is not None else None
            location = outcome.robots.location if outcome.robots is not None else None
            self._journal.note(
                str(lease.kind),
                url=lease.url,
                status=visit.status,
                error=outcome.error,
                bytes=size,
                location=location,
                seconds=outcome.seconds,
                text=visit.error_text or None,
            )
        elif one.judgement is not None and one.judgement.word not in QUIET:
            self._journal.note(
                one.judgement.word,
                url=lease.url,
                status=visit.status,
                error=outcome.error,
                attempt=lease.attempt,
                retry_after=outcome.retry_after_seconds,
                text=visit.error_text or (visit.response.error_text if visit.response is not None else None) or None,
            )
