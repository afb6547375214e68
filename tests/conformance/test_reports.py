"""Inputs made after reports of people who run crawlers, each with its right value and the source of that value.

A case is an expression over a file, or a whole crawl of one host whose answers are given octet by octet.
"""

from __future__ import annotations

import gzip
import json
import socket
import socketserver
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from e2e.crawling import outrider
from outrider import Frontier
from outrider.page import read
from outrider.page.sitemap_reader import read_sitemap
from outrider.url import normalize
from outrider.url.traps import RULES, Traps

pytestmark = pytest.mark.conformance

PROJECT = Path(__file__).resolve().parents[2]
CASES = PROJECT.parent / "shared/data/reports/cases.jsonl"
NAMES = {
    "Frontier": Frontier,
    "RULES": RULES,
    "Traps": Traps,
    "normalize": normalize,
    "read": read,
    "read_sitemap": read_sitemap,
}
CRAWLS_AT_ONCE = 6
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
OWN_PAGE = b"<html><title>%s</title><p>a page of its own: %s"


def cases() -> list[dict[str, Any]]:
    if not CASES.is_file():
        return []
    return [json.loads(line) for line in CASES.read_text().splitlines()]


def of_kind(*, crawls: bool) -> list[Any]:
    """The cases as parameters."""
    return [pytest.param(case, id=case["id"]) for case in cases() if (case["call"] == "crawl") == crawls]


class Octets:
    """A server of one host: the octets of each target as they are, the last of a list for ever."""

    def __init__(self, folder: Path, case: dict[str, Any]) -> None:
        given = case["input"]
        self._replies = {
            target: [(folder / name).read_bytes() for name in ([names] if isinstance(names, str) else names)]
            for target, names in given["replies"].items()
        }
        self._host = given["host"]
        self._others_are_pages = given["other_targets"] == "page"
        self.asked: Counter[str] = Counter()
        self._lock = threading.Lock()

    def answer(self, head: bytes) -> bytes:
        line, *fields = head.split(b"\r\n")
        target = line.split(b" ")[1].decode("latin-1")
        hosts = [field.split(b":", 1)[1].strip() for field in fields if field.lower().startswith(b"host:")]
        assert [self._host] == [host.decode() for host in hosts]
        with self._lock:
            before = self.asked[target]
            self.asked[target] += 1
        replies = self._replies.get(target)
        if replies:
            return replies[min(before, len(replies) - 1)]
        if target == "/robots.txt" or not (self._others_are_pages or target.startswith("/x")):
            return NOT_FOUND
        body = OWN_PAGE % (target.encode(), target.encode() * 3)
        return b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (
            len(body),
            body,
        )


@contextmanager
def serving(octets: Octets, address: str) -> Iterator[None]:
    """Answers these octets at port 80 of a loopback address until the block ends: answers name the host without a
    port."""

    class Handler(socketserver.StreamRequestHandler):
        timeout = 20

        def handle(self) -> None:
            head = b""
            while b"\r\n\r\n" not in head:
                piece = self.request.recv(65536)
                if not piece:
                    return
                head += piece
            self.request.sendall(octets.answer(head.split(b"\r\n\r\n")[0]))

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

    with Server((address, 80), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()


def payload_digest(archive: Path, url: str) -> str | None:
    """The WARC-Payload-Digest of the response of a URL."""
    for path in sorted(archive.glob("*.warc.gz")):
        for record in gzip.decompress(path.read_bytes()).split(b"WARC/1.1\r\n"):
            lines = (line.partition(b":") for line in record.split(b"\r\n\r\n")[0].split(b"\r\n"))
            fields = {name.strip().lower(): value.strip() for name, _, value in lines}
            if fields.get(b"warc-type") == b"response" and fields.get(b"warc-target-uri", b"").decode() == url:
                return fields.get(b"warc-payload-digest", b"").decode() or None
    return None


@pytest.mark.parametrize("case", of_kind(crawls=False))
def test_an_expression_has_the_value_that_is_right(case: dict[str, Any]) -> None:
    names: dict[str, Any] = {**NAMES, **case["input"]}
    if "file" in case:
        names["body"] = (CASES.parent / case["file"]).read_bytes()
    found = eval(case["call"], names)
    right = case["right"]
    if case["id"] == "sitemap-trailing-second":  # "those of the second may come, too"
        assert right == found[: len(right)]
    else:
        assert right == found


@dataclass(frozen=True)
class Crawled:
    asked: Counter[str]
    talk: str
    output: Path


def crawled(case: dict[str, Any], address: str, folder: Path) -> Crawled:
    given = case["input"]
    octets = Octets(CASES.parent, case)
    with serving(octets, address):
        hosts = folder / "hosts"
        hosts.write_text(f"{address} {given['host']}\n")
        more = list(given["options"])
        if "revisit_seconds" in given:
            (folder / "again_hook.py").write_text(f"def again(page):\n    return {given['revisit_seconds']!r}\n")
            more += ["--revisit", "again_hook:again"]
        done = outrider(
            *("crawl", *given["seeds"], "-o", str(folder / "out"), "--hosts", str(hosts), "--retries", "0"),
            *("--delay", "0.05", "--delay-factor", "0", "--progress", "none", *more),
            PYTHONPATH=str(folder),
        )
    return Crawled(octets.asked, done.stdout + done.stderr, folder / "out")


@pytest.fixture(scope="module")
def crawls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[Crawled]]]:
    """The crawls of all cases, some at once, since they mostly wait; each has an address of its own."""
    try:
        with socket.create_server(("127.80.29.1", 80)):
            pass
    except PermissionError:
        pytest.skip("port 80 is not permitted to this user, and these answers name hosts without a port")
    wanted = [case for case in cases() if case["call"] == "crawl"]
    # The longest first: those that visit a page again need nine seconds.
    wanted.sort(key=lambda case: "revisit_seconds" not in case["input"])
    with ThreadPoolExecutor(CRAWLS_AT_ONCE) as pool:
        yield {
            case["id"]: pool.submit(crawled, case, f"127.80.29.{number}", tmp_path_factory.mktemp("crawl"))
            for number, case in enumerate(wanted, 1)
        }


@pytest.mark.parametrize("case", of_kind(crawls=True))
def test_a_crawl_requests_the_right_urls(case: dict[str, Any], crawls: dict[str, Future[Crawled]]) -> None:
    found, right = crawls[case["id"]].result(), case["right"]
    assert set(right["asked"]) <= set(found.asked), found.talk
    assert not set(right["never_asked"]) & set(found.asked), found.talk
    for target, least in right.get("times", {}).items():
        assert least <= found.asked[target], found.talk
    if "payload_digest" in right:
        assert right["payload_digest"] == payload_digest(found.output / "archive", case["input"]["seeds"][0])
    if "summary" in right:
        skipped = 10 - len([target for target in found.asked if target not in ("/", "/robots.txt")])
        talk = found.talk.lower()
        assert not skipped or (f"{skipped} " in talk and "trap" in talk), talk
