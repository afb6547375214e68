"""Raw replies that other clients' authors collected end alike on libcurl and on the fetch kernel."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from e2e.downloaders import KINDS
from e2e.hostile import closes_after, hostile
from outrider.clock import wall
from outrider.fetch.downloader import Request, Response

pytestmark = pytest.mark.conformance


def replies(shared: Path) -> list[tuple[str, bytes]]:
    """Name and bytes of each reply that is sent unchanged."""
    folder = shared / "data/http"
    found: list[tuple[str, bytes]] = []
    for row in map(json.loads, gzip.decompress((folder / "curl-replies.jsonl.gz").read_bytes()).splitlines()):
        for key, packed in row["responses_b64"].items():
            found.append((f"{row['id']} {key}", base64.b64decode(packed)))
    for name in ("llhttp-responses.jsonl", "nutch-bad-server.jsonl"):
        rows = map(json.loads, (folder / name).read_text().splitlines())
        found += [(row["id"], base64.b64decode(row["raw_b64"])) for row in rows]
    for row in map(json.loads, (folder / "wpt-content-length.jsonl").read_text().splitlines()):
        lengths = b"".join(b"Content-Length: %b\r\n" % value.encode() for value in row["content_length"])
        answer = b"HTTP/1.1 200 OK\r\n" + lengths + b"\r\n" + b"x" * row["body_bytes_sent"]
        found.append((f"wpt {row['content_length']}", answer))
    return found


def fetched(kind: str, answers: list[bytes]) -> list[Response]:
    async def main() -> list[Response]:
        downloader = KINDS[kind](clock=wall)

        async def one(number: int, answer: bytes) -> Response:
            async with hostile(closes_after(answer)) as site:
                url = f"http://h{number}.test:{site.port}/"
                return await downloader.fetch(Request(url, "127.0.0.1", "A", idle_seconds=3, total_seconds=5))

        responses: list[Response] = []
        for start in range(0, len(answers), 32):
            some = answers[start : start + 32]
            responses += await asyncio.gather(*(one(start + at, answer) for at, answer in enumerate(some)))
        await downloader.close()
        return responses

    return asyncio.run(main())


def seen(response: Response) -> tuple[Any, ...]:
    return (response.status, response.error, response.truncated, response.content)


def test_replies_end_alike(shared: Path) -> None:
    if "native" not in KINDS:
        pytest.skip("the fetch kernel was not built")
    cases = replies(shared)
    answers = [answer for _, answer in cases]
    pairs = zip(cases, fetched("curl", answers), fetched("native", answers), strict=True)
    apart = [name for (name, _), curl, native in pairs if seen(curl) != seen(native)]
    assert (len(cases) > 250, []) == (True, apart)
