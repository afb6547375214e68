"""Requests and responses as values: checked each time, never changed, and cheap to make."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from outrider.errors import InvalidUrlError, SettingsError
from outrider.fetch.downloader import Decoding, Headers, Request, Response
from outrider.fetch.response_bytes import TransferEnd, response_of

URL, ADDRESS, AGENT = "http://site.test/a", "192.0.2.1", "Agent/1 (+http://me.test/)"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"


def request(**fields: Any) -> Request:
    return Request(**({"url": URL, "address": ADDRESS, "user_agent": AGENT} | fields))


def response(**fields: Any) -> Response:
    known: dict[str, Any] = {
        "status": 200,
        "error": None,
        "truncated": None,
        "text": "",
        "sent": True,
        "head": HEAD,
        "body": b"<html>",
        "started_at": 5,
        "ended_at": 9,
        "seconds": 0.1,
        "new_connection": True,
        "first_byte_at": 7,
    }
    return response_of(request(), TransferEnd(**(known | fields)))


def test_a_response_is_a_frozen_value_with_all_its_fields():
    made = response()
    expected = Response(
        *(URL, ADDRESS, 200, None, "", request().head(), HEAD, b"<html>", b"<html>", None, Decoding.WHOLE),
        *(made.headers, 5, 9, 0.1, True, 7, True),
    )
    assert (Response, expected, repr(expected)) == (type(made), made, repr(made))
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.content = b""  # type: ignore[misc]
    assert b"other" == dataclasses.replace(made, content=b"other").content


def test_a_body_without_codings_is_its_content_unchanged():
    made = response()
    assert made.content is made.body


def test_an_answer_ends_no_earlier_than_it_began():
    made = response(started_at=5, ended_at=3, first_byte_at=4)
    assert (5, 3) == (made.ended_at, made.first_byte_at)


@pytest.mark.parametrize(
    "fields",
    [
        {"user_agent": "a\nb"},
        {"headers": (("Host", "other.test"),)},
        {"headers": (("X Y", "1"),)},
        {"headers": (("X", "1\r\nY: 2"),)},
        {"credentials": "Basic \x00"},
        {"address": "site.test"},
    ],
)
def test_a_value_that_cannot_be_sent_is_refused_each_time(fields):
    for _ in range(3):
        with pytest.raises(SettingsError):
            request(**fields)
    with pytest.raises(InvalidUrlError):
        request(url="http://a b/")


def test_requests_that_share_their_fields_differ_in_target_and_host():
    heads = [request(url=url).head() for url in (URL, "http://site.test:8080/b", "https://other.test?q")]
    end = (
        b"User-Agent: Agent/1 (+http://me.test/)\r\n"
        b"Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\nAccept-Encoding: gzip\r\n\r\n"
    )
    assert [
        b"GET /a HTTP/1.1\r\nHost: site.test\r\n" + end,
        b"GET /b HTTP/1.1\r\nHost: site.test:8080\r\n" + end,
        b"GET /?q HTTP/1.1\r\nHost: other.test\r\n" + end,
    ] == heads


def test_secrets_are_sent_and_hidden_in_the_record():
    one = request(headers=(("X-Key", "1"), ("Cookie", "a=b")), credentials="Bearer x")
    assert (1, 1, 0, 0) == tuple(
        text.count(secret) for text in (one.head(), one.record()) for secret in (b"a=b", b"Bearer x")
    )
    assert one.record().endswith(b"\r\nX-Key: 1\r\nCookie: hidden\r\nAuthorization: hidden\r\n\r\n")
    assert request().head() == request().record()


def test_headers_of_a_hook_may_be_a_list():
    pairs: Any = [("X-Key", "1")]
    assert b"X-Key: 1\r\n" in request(headers=pairs).head()


def test_fields_of_a_head_are_found_by_name_in_any_case_and_in_order():
    headers = Headers.parse(b"HTTP/1.1 200 OK\r\nVia: a\r\nETag: x\r\nVIA: b\r\n\r\n")
    assert ("a", ["a", "b"], ["x"], []) == (headers.get("via"), *map(headers.get_all, ("Via", "etag", "Age")))
    assert (3, {"via", "etag"}, None) == (len(headers), set(headers.names), headers.get("age"))
    assert [("Via", "a"), ("ETag", "x"), ("VIA", "b")] == list(headers) == list(Headers(list(headers)))
