"""The cases of http-tests/cache-tests that concern a crawler: what it sends again, and what it makes of a 304.

A case is a list of requests of a client and of answers of its origin. The crawl is the client and the cache in one: it
visits the page of a case as often as the case has requests, and the origin here answers as the case says. Cases in
which a client sends a condition to a cache are run with the answer of their origin alone. docs/conditional.md lists all
other cases with the reason; a test compares the list with the cases.
"""

from __future__ import annotations

import json
import re
import socketserver
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from pathlib import Path
from typing import Any, Final

import pytest
from warcio.archiveiterator import ArchiveIterator

import outrider
from outrider.crawl.run.hooks import CrawledPage
from outrider.fetch.downloader import Request
from outrider.journey import Lease

pytestmark = pytest.mark.conformance

AS_WRITTEN: Final = re.compile(
    r"cc-resp-no-cache-revalidate-fresh|conditional-lm-stale|conditional-etag-vary-headers(-mismatch)?"
    r"|304-etag-update-response-.*"
)
"""The origin of the case gets a condition, which the cache makes of the first answer."""
ANSWER_ALONE: Final = re.compile(
    r"conditional-lm-fresh(-earlier|-no-lm|-rfc850)?|conditional-304-etag|conditional-etag-precedence"
    r"|conditional-etag-(strong|quoted|unquoted|weak)-respond-.*"
)
"""A client sends the condition to a cache. A crawler has no client: it sends the validators of the first answer."""
QUESTION: Final = "conditional-etag-strong-generate-unquoted"
"""Asks whether quotation marks are added to an ETag without them. Outrider adds none."""
BODY_BYTES: Final = 36
"""As long as the bodies of the project that the cases are from: one of them names this Content-Length."""
REVISIT_PROFILE: Final = "http://netpreserve.org/warc/1.1/revisit/server-not-modified"


@dataclass
class Case:
    """A case, and the heads of the requests for its page: names in lower case to values, as latin-1."""

    told: Mapping[str, Any]
    heads: list[dict[str, str]] = field(default_factory=list)
    sent: list[dict[str, str]] = field(default_factory=list)

    @property
    def visits(self) -> int:
        return max(2, len(self.told["requests"]))

    def answer(self, head: dict[str, str], began: float) -> bytes:
        """Returns the answer of the origin: a 304 if the condition has the validator of the first answer."""
        number = len(self.heads)
        self.heads.append(head)
        requests = self.told["requests"]
        fields = self._fields(requests[min(number, len(requests) - 1)], began)
        known = self.sent[0] if self.sent else {}
        tag, date = head.get("if-none-match"), head.get("if-modified-since")
        same_date = date is not None and date == known.get("last-modified")
        confirmed = number > 0 and (tag == known.get("etag") if tag is not None else same_date)
        body = b"" if confirmed else f"{self.told['id']:-<36}"[:BODY_BYTES].encode()
        names = {name.lower() for name, _ in fields}
        if body:
            usual = (("Content-Length", str(len(body))), ("Content-Type", "text/html"))
            fields += [(name, value) for name, value in usual if name.lower() not in names]
        self.sent.append({name.lower(): value for name, value in fields})
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields)
        status = "304 Not Modified" if confirmed else "200 OK"
        return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode("latin-1") + body

    def _fields(self, request: Mapping[str, Any], began: float) -> list[tuple[str, str]]:
        """Returns the fields of an answer. A number is a date, in seconds from now."""
        fields = []
        for name, value, *_ in request.get("response_headers", ()):
            if isinstance(value, int):
                value = formatdate(began + value, usegmt=True)
                if name == "Last-Modified" and self._has_old_dates:
                    value = time.strftime("%A, %d-%b-%y %H:%M:%S GMT", time.gmtime(began - 3_000))
            fields.append((name, value))
        return fields

    @property
    def _has_old_dates(self) -> bool:
        return any("rfc850date" in request for request in self.told["requests"])


class Origin(socketserver.ThreadingTCPServer):
    """Answers `/ID` as the case of that name says."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, cases: Mapping[str, Case]) -> None:
        began = time.time()

        class Handler(socketserver.StreamRequestHandler):
            def handle(handler) -> None:
                while line := handler.rfile.readline():
                    path = line.decode("latin-1").split(" ")[1]
                    head = {}
                    while (one := handler.rfile.readline()) not in (b"\r\n", b""):
                        name, _, value = one.decode("latin-1").partition(":")
                        head[name.lower()] = value.strip(" \r\n")
                    case = cases.get(path[1:])
                    answer = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
                    handler.wfile.write(answer if case is None else case.answer(head, began))

        super().__init__(("127.0.0.1", 0), Handler)


@contextmanager
def serving(cases: Mapping[str, Case]) -> Iterator[str]:
    """Serves the pages of the cases; returns the beginning of their URLs."""
    with Origin(cases) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()


@dataclass(frozen=True)
class Crawled:
    """All cases after the crawl; the lines of their pages and the heads of their `revisit` records, in order."""

    cases: Mapping[str, Case]
    lines: Mapping[str, list[dict[str, Any]]]
    revisits: Mapping[str, list[tuple[dict[str, str], dict[str, str]]]]


def is_run(case: Mapping[str, Any]) -> bool:
    return bool(AS_WRITTEN.fullmatch(case["id"]) or ANSWER_ALONE.fullmatch(case["id"]) or case["id"] == QUESTION)


def all_cases(shared: Path) -> list[dict[str, Any]]:
    return json.loads((shared / "data/http/cache-tests.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def crawled(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Crawled:
    cases = {told["id"]: Case(told) for told in all_cases(shared) if is_run(told)}
    output = tmp_path_factory.mktemp("cases") / "out"

    def of(url: str) -> str:
        return url.rpartition("/")[2]

    def on_request(request: Request, lease: Lease) -> Request | None:
        case = cases.get(of(request.url))
        if case is None:
            return None
        requests = case.told["requests"]
        own = requests[min(len(case.heads), len(requests) - 1)].get("request_headers", ())
        return replace(
            request, headers=(*request.headers, *((name, value) for name, value in own if name[:3] != "If-"))
        )

    def revisit(page: CrawledPage) -> float | None:
        return 0.0 if page.lease.visits + 1 < cases[of(page.url)].visits else None

    with serving(cases) as root:
        settings = {"allow_address": ["127.0.0.0/8"], "delay": 0, "delay_factor": 0, "sitemaps": False}
        outrider.crawl(
            [root + one for one in cases],
            output=str(output),
            on_request=on_request,
            revisit=revisit,
            **settings,
        )
    lines: dict[str, list[dict[str, Any]]] = {}
    for line in map(json.loads, (output / "pages.jsonl").read_text(encoding="utf-8").splitlines()):
        lines.setdefault(of(line["url"]), []).append(line)
    revisits: dict[str, list[tuple[dict[str, str], dict[str, str]]]] = {}
    for path in sorted((output / "archive").iterdir()):
        with path.open("rb") as file:
            for record in ArchiveIterator(file):
                if record.rec_type == "revisit":
                    heads = (dict(record.rec_headers.headers), dict(record.http_headers.headers))
                    revisits.setdefault(of(heads[0]["WARC-Target-URI"]), []).append(heads)
    return Crawled(cases, lines, revisits)


def conditions(head: Mapping[str, str]) -> dict[str, str]:
    return {name: head[name] for name in ("if-none-match", "if-modified-since") if name in head}


def test_each_later_request_has_the_validators_of_the_first_answer_byte_for_byte(crawled: Crawled) -> None:
    found, expected = {}, {}
    for name, case in crawled.cases.items():
        first = case.sent[0]
        sent = {"if-none-match": first.get("etag"), "if-modified-since": first.get("last-modified")}
        expected[name] = [{}, *[{key: value for key, value in sent.items() if value}] * (case.visits - 1)]
        found[name] = [conditions(head) for head in case.heads]
    assert expected == found


def test_each_304_leaves_the_page_unchanged_and_brings_no_byte(crawled: Crawled) -> None:
    found = {}
    for name, case in crawled.cases.items():
        later = crawled.lines[name][1:]
        assert case.visits - 1 == len(later)
        found[name] = {(line["outcome"], line["status"], line["bytes"]) for line in later}
    whole = found.pop("conditional-lm-fresh-no-lm")  # an answer without a validator
    assert ({("unchanged", 200, BODY_BYTES)}, {("unchanged", 304, 0)}) == (whole, set.union(*found.values()))


def test_the_first_visit_gets_each_page(crawled: Crawled) -> None:
    outcomes = {name: (lines[0]["outcome"], lines[0]["status"]) for name, lines in crawled.lines.items()}
    assert dict.fromkeys(crawled.cases, ("done", 200)) == outcomes


def test_requests_have_the_fields_and_the_types_that_the_cases_expect(crawled: Crawled) -> None:
    """A question has no right answer; the one that Outrider answers otherwise is in the list of other cases."""
    wrong = []
    for name, case in crawled.cases.items():
        if name == QUESTION or not AS_WRITTEN.fullmatch(name):
            continue
        for number, request in enumerate(case.told["requests"]):
            head, kind = case.heads[number], request.get("expected_type", "")
            wanted = [(key.lower(), value) for key, value in request.get("expected_request_headers", ())]
            wanted += [("if-none-match", case.sent[0]["etag"])] if kind == "etag_validated" else []
            wanted += [("if-modified-since", case.sent[0]["last-modified"])] if kind == "lm_validated" else []
            wrong += [(name, number, key) for key, value in wanted if head.get(key) != value]
    assert [] == wrong


def test_a_304_is_archived_with_the_fields_that_it_renews(crawled: Crawled) -> None:
    """`Content-Length` of a 304 is not the length of a body: the next request of the connection was answered too."""
    for name, case in crawled.cases.items():
        if not name.startswith("304-etag-update-response-"):
            continue
        field_name = name.removeprefix("304-etag-update-response-")
        renewed = case.told["requests"][1]["response_headers"]
        (value,) = (value for key, value, *_ in renewed if key == field_name)
        assert value == crawled.revisits[name][0][1][field_name]
        profiles = {head["WARC-Profile"] for head, _ in crawled.revisits[name]}
        assert (2, {REVISIT_PROFILE}) == (len(crawled.revisits[name]), profiles)


def test_an_etag_without_quotation_marks_is_sent_back_without_them(crawled: Crawled) -> None:
    case = crawled.cases[QUESTION]
    assert ("abcdef", "abcdef") == (case.sent[0]["etag"], case.heads[1]["if-none-match"])


def test_the_documents_list_all_other_cases(shared: Path, project: Path) -> None:
    text = (project / "docs/conditional.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([a-z0-9-]+)` \| ([0-9]+) \|", text, re.MULTILINE | re.IGNORECASE))
    told = all_cases(shared)
    others = Counter(one["suite"] for one in told if not is_run(one) or one["id"] == QUESTION)
    assert {suite: str(count) for suite, count in others.items()} == rows
    run = len(told) - others.total()
    assert f"{run} of the {len(told)} cases" in text
