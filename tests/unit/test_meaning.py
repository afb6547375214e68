"""A status or an error means the same in a crawl and in the results of workers over REST."""

from __future__ import annotations

import pytest

from outrider.crawl.visit import Visit, judged
from outrider.engine.messages import Result
from outrider.fetch.downloader import Decoding, Headers, Response
from outrider.fetch.outcomes import FetchError
from outrider.journey import Kind, Lease
from outrider.service.verdicts import outcome_of

TARGET = "http://a.test/other"


def lease(etag: str | None) -> Lease:
    rest = {"token": 7, "deadline": 9, "priority": 0.5, "depth": 0, "attempt": 1, "not_before": 0, "etag": etag}
    return Lease("http://a.test/", "a.test", Kind.PAGE, "http://a.test", "a.test", **rest)


def crawled(of: Lease, status: int | None, error: FetchError | None, target: str | None, *, challenged: bool):
    fields = [("location", target)] * (target is not None) + [("cf-mitigated", "challenge")] * challenged
    head = b"HTTP/1.1 200 OK\r\n\r\n" if status is not None else b""
    plain = {"error_text": "", "request_head": b"GET / HTTP/1.1\r\n\r\n", "head": head, "body": b"x", "content": b"x"}
    times = {"started_at": 0, "first_byte_at": 0, "ended_at": 0, "seconds": 0.0, "truncated": None}
    plain |= {"decoding": Decoding.WHOLE, "new_connection": True}
    answer = Response(
        url=of.url, address="127.0.0.1", status=status, error=error, headers=Headers(tuple(fields)), **plain, **times
    )
    found = judged(Visit(of, 0, 0, answer))
    return found.verdict, found.error, found.refused, found.location


def reported(of: Lease, status: int | None, error: FetchError | None, target: str | None, *, challenged: bool):
    good = error is None and status is not None
    told = {"http_status": status, "error": error, "location": target, "challenged": challenged}
    found = outcome_of(Result("success" if good else "error", token=of.token, **told), of)
    return found.verdict, found.error, found.refused, found.location


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
