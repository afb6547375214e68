"""Sitemaps and feeds that a revisit rule reads again: their errands wait for the next visit in place of their end."""

from __future__ import annotations

from outrider.clock import instant
from outrider.frontier.format.facts import Fact, Row
from outrider.frontier.policy.file_visits import Crowd, FileVisits, next_after_failure, next_file_visit
from outrider.frontier.state.errand import KINDS, CallersErrand
from outrider.frontier.state.url_table import LEASED, QUEUED, WAITING
from outrider.frontier.verbs import outcome_columns as verdicts
from outrider.frontier.verbs.deciding import Core
from outrider.frontier.verbs.draft import Draft
from outrider.frontier.verbs.outcome_columns import OutcomeColumns
from outrider.kernels.card_layout import NOT_MODIFIED
from outrider.limits import FILES_REVISITED_MAX, MICROSECONDS


class RevisitedFiles:
    """The visits of sitemaps and feeds of one frontier."""

    def __init__(self, core: Core) -> None:
        self._core, self._tables = core, core.tables

    def may_read_again(self, errand: CallersErrand) -> bool:
        """Whether a rule reads this file again after an answer that would end its errand."""
        plan, called = self._core.revisits.plan, self._tables.errands.called
        room = len(called) <= FILES_REVISITED_MAX or bool(errand.visits.fetched)
        return plan is not None and KINDS[errand.kind].revisited and room

    def after_visit(
        self, draft: Draft, errand: CallersErrand, outcomes: OutcomeColumns, row: int, new: int
    ) -> tuple[Fact, Row]:
        """Returns the fact after an answer: its next visit, or its end. new: how many new URLs the file named."""
        plan, before, status = self._core.revisits.plan, errand.visits, int(outcomes.statuses[row])
        assert plan is not None
        news = new + self._core.signals.news.pop(errand.name, 0)
        waited = max(0, draft.now - before.fetched) / MICROSECONDS if before.fetched else 0.0
        good = int(outcomes.verdicts[row]) == verdicts.DONE and (status // 100 == 2 or status == NOT_MODIFIED)
        if not good:
            pause = next_after_failure(before.fetched, waited)
            if pause is None:
                return errand.cells(errand.name, ended=True)
            return errand.cells(errand.name, draft.now + instant(pause))
        digest = outcomes.digests.get(row, before.digest if status == NOT_MODIFIED else b"")
        same = status == NOT_MODIFIED or (digest != b"" and digest == before.digest)
        seconds, *numbers = next_file_visit(plan, before, waited, changed=not same and news > 0, crowd=self._crowd())
        validators = outcomes.etags.get(row, ""), outcomes.last_modified.get(row, "")
        if status == NOT_MODIFIED and not any(validators):
            validators = before.etag, before.last_modified
        if errand.hops:  # a redirect led to them
            validators = "", ""
        visits = FileVisits(*validators, digest, draft.now, *numbers)
        return errand.cells(errand.name, draft.now + instant(seconds), visits=visits)

    def _crowd(self) -> Crowd:
        revisits, counts = self._core.revisits, self._tables.urls.counts
        rate = None if revisits.rate is None else revisits.rate.per_second
        pages = counts[QUEUED] + counts[WAITING] + counts[LEASED]
        return Crowd(len(self._tables.errands.called), pages, rate, revisits.level)
