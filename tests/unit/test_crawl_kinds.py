"""Each kind of lease has one row in the crawl, which defines how its request ends in every case."""

from __future__ import annotations

import pytest

from outrider.clock import Instant
from outrider.crawl.run.lease_kinds import KINDS, errand_of, stopped_outcome, unkept_outcome
from outrider.crawl.run.visit import Judgement, Visit
from outrider.frontier.state.errand import KINDS as ERRANDS
from outrider.frontier.verbs.outcome_columns import outcomes_of
from outrider.journey import Kind, Lease, Verdict, Word

AT: Instant = 1_767_225_600_000_000


def lease(kind: Kind) -> Lease:
    url = "dns:a.test" if kind is Kind.ADDRESS else "http://a.test/x"
    return Lease(url, "a.test", kind, "http://a.test", "a.test", 7, AT, 0.5, 0, 1, AT)


@pytest.mark.parametrize("kind", list(Kind))
def test_each_kind_has_a_row_in_the_crawl_and_each_errand_one_in_the_frontier(kind):
    assert kind is KINDS[kind].kind
    assert (kind is not Kind.PAGE) == (kind in ERRANDS) == (KINDS[kind].outcome is not None)


@pytest.mark.parametrize("kind", list(Kind))
def test_a_cancelled_request_is_an_outcome_that_the_frontier_accepts(kind):
    visit = Visit(lease(kind), AT, AT + 2_000_000, stopped=True, began=AT)
    found = stopped_outcome(visit)
    assert (7, 2.0, "stopped", AT + 2_000_000) == (found.token, found.seconds, found.error, found.ended_at)
    assert (found.verdict is Verdict.AGAIN) == (found.at is not None)
    assert (ERRANDS[kind].answer if kind in ERRANDS else None) == ("robots" if found.robots else None) or (
        kind is Kind.ADDRESS and found.verdict is Verdict.RETRY
    )
    outcomes_of([found])


@pytest.mark.parametrize("kind", list(Kind))
def test_an_answer_that_cannot_be_stored_ends_as_too_large(kind):
    found = unkept_outcome(Visit(lease(kind), AT, AT), None, None)
    assert (7, "too_large") == (found.token, found.error)
    assert found.robots is None or found.robots.status is None
    outcomes_of([found])


def test_an_errand_without_an_answer_of_its_own_reports_its_judgement():
    found = errand_of(Visit(lease(Kind.SITEMAP), AT, AT), Judgement(Word.GONE, Verdict.GONE, "sitemap_redirect"))
    assert (Verdict.GONE, "sitemap_redirect", False) == (found.verdict, found.error, found.answered)
