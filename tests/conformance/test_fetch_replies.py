"""Raw replies that other clients' authors collected: each ends soon, agrees with curl's verdict, and is in the WARC."""

from __future__ import annotations

import base64
import gzip
import json
import random
import time
from pathlib import Path
from typing import Any

import pytest

from conformance.test_fetch_twins import fetched, replies
from e2e.downloaders import KINDS
from outrider.archive import Exchange, WarcPlace, WarcWriter, read_record
from outrider.fetch.downloader import Decoding, Response
from outrider.fetch.failures import FetchError
from outrider.storage.files import Directory

pytestmark = [pytest.mark.conformance, pytest.mark.parametrize("kind", list(KINDS))]

# Options by which curl's verdict is no longer one on the reply, and marks of replies that curl's own tools fill in.
OF_CURL = ("-m ", "-C ", "--http0.9", "--ignore-content-length", "--max-filesize", "--raw", "--tr-encoding")
OF_CURL_FILES = ("--output-dir",)
MARKS = (b"%if", b"%hex", b"%repeat")
SECONDS_MAX = 5.0
"""A reply ends within this number of seconds; the server closes after it."""


def judged_by_curl(shared: Path) -> list[tuple[str, bool, bytes]]:
    """Name, whether curl was content, and reply: of every plain GET of one request."""
    found = []
    for row in map(json.loads, gzip.decompress((shared / "data/http/curl-replies.jsonl.gz").read_bytes()).splitlines()):
        one_get = [verb for verb, *_ in row["requests"]] == ["GET"] and set(row["responses_b64"]) == {"data"}
        if not one_get or any(option in row["command"] for option in (*OF_CURL, *OF_CURL_FILES)):
            continue
        reply = base64.b64decode(row["responses_b64"]["data"])
        if not any(mark in reply for mark in MARKS):
            # 22 is --fail: the answer arrived whole, and curl had the order to treat its status as a failure.
            found.append((row["id"], row["curl_exit"] in (0, 22), reply))
    return found


def test_success_and_failure_are_those_of_curl(shared: Path, kind: str) -> None:
    cases = judged_by_curl(shared)
    responses = fetched(kind, [reply for _, _, reply in cases])
    apart = [
        name for (name, content, _), response in zip(cases, responses, strict=True) if is_whole(response) != content
    ]
    # curl refuses a second member of gzip; RFC 1952 section 2.2 has any number of them.
    assert (True, ["test2305"]) == (len(cases) > 100, apart)


def is_whole(response: Response) -> bool:
    """Whether a crawl calls it done: neither an error, nor cut, nor in an unknown coding."""
    failed = response.error is not None or response.truncated is not None
    return response.status is not None and not failed and response.decoding is Decoding.WHOLE


def test_every_reply_ends_soon_and_as_documented(shared: Path, kind: str) -> None:
    """A request has a status or one of the listed errors, and no error is a fault of this side."""
    cases = replies(shared)
    began = time.monotonic()
    responses = fetched(kind, [reply for _, reply in cases])
    inner = (FetchError.INTERNAL, FetchError.BLOCKED_ADDRESS, FetchError.BLOCKED_PORT)
    wrong = [
        (name, response.error)
        for (name, _), response in zip(cases, responses, strict=True)
        if response.error in inner or (response.status is None and response.error is None) or late(response)
    ]
    assert [] == wrong
    assert time.monotonic() - began < SECONDS_MAX * len(cases) / 32  # 32 at once


def late(response: Response) -> bool:
    return response.seconds > SECONDS_MAX


def test_the_archive_has_the_bytes_as_they_arrived(shared: Path, kind: str, tmp_path: Path) -> None:
    """Head and body of each record are one stretch of the sent bytes. A whole answer leaves out only
    interim answers before it and bytes after it that no length counts."""
    cases = replies(shared)
    responses = fetched(kind, [reply for _, reply in cases])
    files = Directory(tmp_path)
    writer = WarcWriter(files, prefix="crawl", software="test", random_bytes=random.Random(7).randbytes)
    wrong: list[Any] = []
    places: dict[str, WarcPlace] = {}
    for (name, _), response in zip(cases, responses, strict=True):
        if not response.head:
            continue
        places[name] = writer.add(
            Exchange(
                response.url,
                response.address,
                response.started_at,
                response.request_head,
                response.head,
                response.body,
                response.truncated,
            )
        )
    writer.sync()
    for (name, sent), response in zip(cases, responses, strict=True):
        if name not in places:
            continue
        block = read_record(files, places[name]).block
        folded = kind == "curl" and b"\n " in sent.replace(b"\t", b" ")  # libcurl joins folded lines
        if block != response.head + response.body or not (folded or block in sent):
            wrong.append((name, block, sent))
    writer.close()
    files.close()
    assert (True, []) == (len(places) > 200, wrong)
