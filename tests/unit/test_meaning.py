"""A status or an error means the same in a crawl, over REST and in docs/answers.md."""

from __future__ import annotations

import pytest

from fake_web import answer
from outrider.crawl.run.visit import Visit, judged, robots_outcome
from outrider.engine.messages import Result
from outrider.errors import SettingsError
from outrider.fetch.failures import FetchError
from outrider.fetch.fetcher import Fetched
from outrider.fetch.meaning import meaning_of, page
from outrider.journey import Kind, Lease
from outrider.robots import verdict_of_status
from outrider.service.verdicts import outcome_of

TARGET = "http://a.test/other"


def lease(etag: str | None) -> Lease:
    rest = {"token": 7, "deadline": 9, "priority": 0.5, "depth": 0, "attempt": 1, "not_before": 0, "etag": etag}
    return Lease("http://a.test/", "a.test", Kind.PAGE, "http://a.test", "a.test", **rest)


def answer_of(of: Lease, status: int | None, error: FetchError | None, target: str | None, *, challenged: bool):
    fields = [("location", target)] * (target is not None) + [("cf-mitigated", "challenge")] * challenged
    fields += [("retry-after", "20")]
    return answer(of.url, status, b"x", fields, error=error)


def crawled(of: Lease, status: int | None, error: FetchError | None, target: str | None, *, challenged: bool):
    found = judged(Visit(of, 0, 0, answer_of(of, status, error, target, challenged=challenged)))
    return found.verdict, found.error, found.refused, found.location, found.retry_after


def by_hand(of: Lease, status: int | None, error: FetchError | None, target: str | None, *, challenged: bool):
    given = answer_of(of, status, error, target, challenged=challenged)
    found = Fetched(of, of.url, given, error, "").outcome()
    return found.verdict, found.error, found.refused, found.location, found.retry_after_seconds


def reported(of: Lease, status: int | None, error: FetchError | None, target: str | None, *, challenged: bool):
    good = error is None and status is not None
    told = {"http_status": status, "error": error, "location": target, "challenged": challenged, "retry_after": 20}
    found = outcome_of(Result(status="success" if good else "error", token=of.token, **told), of)
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


@pytest.mark.parametrize("target", [None, TARGET])
@pytest.mark.parametrize("challenged", [False, True])
def test_every_status_means_the_same_in_a_crawl_and_for_a_fetcher(target, challenged):
    of = lease(None)
    differ = [
        status
        for status in range(100, 1_000)
        if crawled(of, status, None, target, challenged=challenged)
        != by_hand(of, status, None, target, challenged=challenged)
    ]
    assert [] == differ


@pytest.mark.parametrize("status", [None, 200, 404, 503])
@pytest.mark.parametrize("error", list(FetchError))
def test_every_error_means_the_same_in_a_crawl_and_for_a_fetcher(status, error):
    of = lease(None)
    assert crawled(of, status, error, None, challenged=False) == by_hand(of, status, error, None, challenged=False)


ROBOTS = Lease("http://a.test/robots.txt", "a.test", Kind.ROBOTS, "http://a.test", "a.test", 7, 9, 0.5, 0, 1, 0)


def robots_three_times(status: int | None, error: FetchError | None, target: str | None, *, challenged: bool):
    """Returns the meaning of a robots.txt in a crawl, over REST and for a Fetcher."""
    given = answer_of(ROBOTS, status, error, target, challenged=challenged)
    good = error is None and status is not None
    told = {"http_status": status, "error": error, "location": target, "challenged": challenged, "retry_after": 20}
    result = Result(status="success" if good else "error", token=7, body="x", **told)
    three = (
        robots_outcome(Visit(ROBOTS, 0, 0, given)),
        outcome_of(result, ROBOTS),
        Fetched(ROBOTS, ROBOTS.url, given, error, "").outcome(),
    )
    return {
        (
            *(one.verdict, one.error, one.refused, one.status, one.retry_after_seconds),
            *(one.robots.status, one.robots.location),
            verdict_of_status(one.robots.status) == "rules" and one.robots.body,
        )
        for one in three
    }


@pytest.mark.parametrize("target", [None, TARGET])
@pytest.mark.parametrize("challenged", [False, True])
def test_every_status_of_a_robots_file_has_one_meaning(target, challenged):
    found = {status: robots_three_times(status, None, target, challenged=challenged) for status in range(100, 1_000)}
    assert {} == {status: some for status, some in found.items() if len(some) != 1}


@pytest.mark.parametrize("status", [None, 200, 404, 503])
@pytest.mark.parametrize("error", list(FetchError))
def test_every_error_of_a_robots_file_has_one_meaning(status, error):
    (one,) = robots_three_times(status, error, None, challenged=False)
    assert (str(error), None) == (one[1], one[5])  # unreachable


@pytest.mark.parametrize(("status", "counted"), [(200, None), (206, 206), (404, 404), (503, 503), (None, None)])
def test_an_error_class_of_a_worker_makes_a_robots_file_unreachable(status, counted):
    found = outcome_of(Result(status="error", token=7, http_status=status, error="truncated", body="Allow: /"), ROBOTS)
    assert (counted, "truncated", status) == (found.robots.status, found.error, found.status)


@pytest.mark.parametrize(
    ("told", "verdict", "error"),
    [
        (Result(status="success", token=7, http_status=200, error="decode"), "done", "decode"),  # a part was decoded
        (Result(status="error", token=7, http_status=200, error="decode"), "gone", "decode"),
        (Result(status="success", token=7, http_status=404, error="decode"), "gone", None),
    ],
)
def test_a_fault_of_the_coding_means_the_same_over_rest_and_in_a_crawl(told, verdict, error):
    found = outcome_of(told, lease(None))
    assert (verdict, error) == (found.verdict, found.error)


def test_a_url_that_was_submitted_without_a_lease_has_no_outcome():
    found = Fetched("http://a.test/", "http://a.test/", None, FetchError.TLS, "")
    assert ("error", "tls") == (found.meaning.word, found.meaning.error)
    with pytest.raises(SettingsError, match="submit the lease"):
        found.outcome()


@pytest.mark.parametrize("status", [None, 200, 404, 503])
@pytest.mark.parametrize("error", list(FetchError))
def test_every_error_means_the_same_in_a_crawl_and_over_rest(status, error):
    of = lease(None)
    assert crawled(of, status, error, None, challenged=False) == reported(of, status, error, None, challenged=False)


def test_the_document_is_the_output_of_the_table(project):
    """`python -m outrider.fetch.meaning > docs/answers.md` writes it again."""
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
def test_the_words_change_at_the_borders_of_the_table(status, word, error, refused):
    found = meaning_of(status, None)
    assert (word, error, refused) == (found.word, found.error, found.refused)


@pytest.mark.parametrize("error", list(FetchError))
def test_an_error_is_retried_for_an_address_like_for_a_page(error):
    of = Lease("dns:a.test", "a.test", Kind.ADDRESS, "", "a.test", 7, 9, 0.5, 0, 1, 0)
    told = outcome_of(Result(status="error", token=7, error=error), of)
    assert (meaning_of(None, error).verdict, error) == (told.verdict, told.error)


def test_a_challenge_in_place_of_a_robots_file_allows_no_page():
    of = Lease("http://a.test/robots.txt", "a.test", Kind.ROBOTS, "http://a.test", "a.test", 7, 9, 0.5, 0, 1, 0)
    told = outcome_of(Result(status="success", token=7, http_status=200, body="", challenged=True), of)
    assert (None, "not_welcome") == (told.robots.status, told.error)
