"""Answers that other clients' authors collected: bad servers, ambiguous lengths, dates, compressed bodies."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from e2e.downloaders import each_downloader, new  # noqa: F401 - a fixture
from e2e.hostile import closes_after, hostile
from outrider.fetch.codings import codings_of, decoded
from outrider.fetch.downloader import Decoding, Request, Response
from outrider.fetch.failures import FetchError, http_date, retry_after_seconds

pytestmark = [pytest.mark.conformance, pytest.mark.usefixtures("each_downloader")]


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def fetch_each(answers: list[bytes], **limits: Any) -> list[Response]:
    """Each answer from a server of its own, which then closes."""

    async def main() -> list[Response]:
        downloader = new()
        responses = []
        for answer in answers:
            async with hostile(closes_after(answer)) as site:
                request = Request(f"http://site.test:{site.port}/", "127.0.0.1", "A", idle_seconds=2, **limits)
                responses.append(await downloader.fetch(request))
        await downloader.close()
        return responses

    return asyncio.run(main())


def test_retry_after(shared: Path) -> None:
    cases = lines_of(shared / "data/http/retry-after.jsonl")
    wrong = []
    for case in cases:
        now = http_date(case["now"], 0.0)
        assert now is not None
        expected = 31_536_000.0 if case["note"] == "clamp" else case["seconds"]
        if retry_after_seconds(case["value"], now) != expected:
            wrong.append(case)
    assert (8, []) == (len(cases), wrong)


def test_dates_in_the_forms_of_the_standard(shared: Path) -> None:
    forms = {"imf-fixdate", "rfc850", "asctime"}
    cases = [case for case in lines_of(shared / "data/http/dates.jsonl") if case["rfc9110_form"] in forms]
    assert cases
    assert [] == [case for case in cases if http_date(case["input"], 1_767_000_000.0) != case["curl_epoch"]]


def test_bad_servers(shared: Path) -> None:
    cases = lines_of(shared / "data/http/nutch-bad-server.jsonl")
    responses = []
    for case in cases:
        raw = base64.b64decode(case["raw_b64"])
        room = {"bytes_max": case["limit"] + raw.index(b"\r\n\r\n") + 4} if "limit" in case else {}
        responses += fetch_each([raw], **room)
    wrong = []
    for case, response in zip(cases, responses, strict=True):
        expected = case["expect"]
        found = {
            "status": response.status,
            "error": response.error is not None,
            "location": response.headers.get("location"),
            "truncated": response.truncated is not None or response.decoding is Decoding.CUT,
            "body": response.content.decode("latin-1"),
        }
        if response.error is FetchError.MALFORMED and (
            expected.get("alt") == "protocol-error"
            # RFC 9112 section 6.3, point 5: an invalid Content-Length makes the response one to discard.
            or case["id"] == "NUTCH-2564-content-length-nan"
        ):
            continue
        if any(found[key] != value for key, value in expected.items() if key in found):
            wrong.append((case["id"], expected, found, response.error_text))
    assert (11, []) == (len(cases), wrong)


def test_every_content_length_has_one_reading(shared: Path) -> None:
    """The table allows a network error or one length; here every doubtful one is an error or that length."""
    cases = lines_of(shared / "data/http/wpt-content-length.jsonl")
    answers = [
        b"HTTP/1.1 200 OK\r\n"
        + b"".join(b"Content-Length: %b\r\n" % value.encode() for value in case["content_length"])
        + b"\r\n"
        + b"x" * case["body_bytes_sent"]
        for case in cases
    ]
    wrong = []
    for case, response in zip(cases, fetch_each(answers), strict=True):
        length = len(response.content) if response.error is None else None
        if length not in (case["expected_body_bytes"], None):
            wrong.append((case["content_length"], case["expected_body_bytes"], length))
    assert (13, []) == (len(cases), wrong)


def test_answers_of_a_parsers_own_tests(shared: Path) -> None:
    """Each ends by itself, without an internal fault; an answer that the strict parser accepts whole is accepted."""
    cases = lines_of(shared / "data/http/llhttp-responses.jsonl")
    responses = fetch_each([base64.b64decode(case["raw_b64"]) for case in cases])
    inner = [
        (case["id"], response.error)
        for case, response in zip(cases, responses, strict=True)
        if response.error in (FetchError.INTERNAL, FetchError.BLOCKED_ADDRESS, FetchError.FIRST_BYTE_TIMEOUT)
    ]
    refused = [
        (case["id"], response.error_text)
        for case, response in zip(cases, responses, strict=True)
        if case["complete"]
        and case["strict_error"] is None
        and not case["lenient"]
        and response.status is None
        # An empty line before a response is not HTTP (RFC 9112 section 2.2 lets only servers pass over it).
        and case["id"] != "sample.md#Response starting with CRLF"
    ]
    assert (54, [], []) == (len(cases), inner, refused)


def test_compressed_bodies(shared: Path) -> None:
    folder = shared / "data/security/compression"
    wrong = []
    for case in json.loads((folder / "manifest.json").read_text()):
        body = (folder / case["file"]).read_bytes()
        if len(body) > case["compressed"]:  # kept inside one more gzip
            body = gzip.decompress(body)
        codings = codings_of([case["content_encoding"]])
        content, verdict = decoded(body, codings, 2_000_000)
        if case["expect"] == "decode":
            good = verdict is Decoding.WHOLE and case["decompressed"] in (None, len(content))
        elif "best effort" in case["expect"]:
            good = verdict is Decoding.BROKEN and len(content) > 0
        else:
            good = verdict is Decoding.CUT and len(content) == 2_000_000
        if not good:
            wrong.append((case["file"], case["expect"], verdict, len(content)))
    assert [] == wrong
