"""A status or an error means the same in a crawl, over REST and in docs/answers.md."""

from __future__ import annotations

import pytest

from fake_web import answer
from outrider.crawl.visit import Visit, judged
from outrider.engine.messages import Result
from outrider.fetch.meaning import meaning_of, page
from outrider.fetch.outcomes import FetchError
from outrider.journey import Kind, Lease
from outrider.service.verdicts import outcome_of

TARGET = "http://a.test/other"


def lease(etag: str | None) -> Lease:
    rest = {"token": 7, "deadline": 9, "priority": 0.5, "depth": 0, "attempt": 1, "not_before": 0, "etag": etag}
    return Lease("http://a.test/", "a.test", Kind.PAGE, "http://a.test", "a.test", **rest)


def crawled(of: Lease, status: int | None, error: FetchError | None, target: str | None, *, challenged: bool):
    fields = [("location", target)] * (target is not None) + [("cf-mitigated", "challenge")] * challenged
    fields += [("retry-after", "20")]
    found = judged(Visit(of, 0, 0, answer(of.url, status, b"x", fields, error=error)))
    return found.verdict, found.error, found.refused, found.location, found.retry_after


def reported(of: Lease, status: int | None, error: FetchError | None, target: str | None, *, challenged: bool):
    good = error is None and status is not None
    told = {"http_status": status, "error": error, "location": target, "challenged": challenged, "retry_after": 20}
    found = outcome_of(Result("success" if good else "error", token=of.token, **told), of)
    return found.verdict, found.error, found.refused, found.location, found.retry_after_seconds


@pytest.mark.parametrize("etag", [None, '"a"'])
@pytest.mark.parametrize("target", [None, TARGET])
@pytest.mark.parametrize("challenged", [False, True])
def test_every_status_means_the_same_in_a_crawl_and_over_rest(etag, target, challenged):
    of = lease(etag)
    differ = [
        status
        for status in range(100, 1_000)
        if crawled(of, status, None, target, challenged=challenged)
        != reported(of, status, None, target, challenged=challenged)
    ]
    assert [] == differ


@pytest.mark.parametrize("status", [None, 200, 404, 503])
@pytest.mark.parametrize("error", list(FetchError))
def test_every_error_means_the_same_in_a_crawl_and_over_rest(status, error):
    of = lease(None)
    assert crawled(of, status, error, None, challenged=False) == reported(of, status, error, None, challenged=False)


def test_the_document_is_what_the_table_says(project):
    """`python -m outrider.fetch.meaning > docs/answers.md` makes it anew."""
    assert (project / "docs" / "answers.md").read_text() == page()


@pytest.mark.parametrize(
    ("status", "word", "error", "refused"),
    [
        (100, "gone", None, False),
        (200, "done", None, False),
        (299, "done", None, False),
        (300, "gone", None, False),
        (304, "gone", None, False),
        (308, "gone", "bad_location", False),
        (408, "retry", "http_408", False),
        (429, "retry", "http_429", True),
        (503, "retry", "http_503", True),
        (599, "retry", "http_599", False),
        (600, "retry", "http_600", False),
        (999, "retry", "http_999", False),
    ],
)
def test_the_words_at_the_borders_of_the_table(status, word, error, refused):
    found = meaning_of(status, None)
    assert (word, error, refused) == (found.word, found.error, found.refused)


@pytest.mark.parametrize("error", list(FetchError))
def test_an_error_passes_for_an_address_as_for_a_page(error):
    of = Lease("dns:a.test", "a.test", Kind.ADDRESS, "", "a.test", 7, 9, 0.5, 0, 1, 0)
    told = outcome_of(Result("error", token=7, error=error), of)
    assert (meaning_of(None, error).verdict, error) == (told.verdict, told.error)


def test_a_challenge_in_place_of_a_robots_file_allows_nothing():
    of = Lease("http://a.test/robots.txt", "a.test", Kind.ROBOTS, "http://a.test", "a.test", 7, 9, 0.5, 0, 1, 0)
    told = outcome_of(Result("success", token=7, http_status=200, body="", challenged=True), of)
    assert (None, "not_welcome") == (told.robots.status, told.error)
