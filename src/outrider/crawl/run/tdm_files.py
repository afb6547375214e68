"""The tdmrep.json files of a crawl with `--tdmrep`: requested after the robots.txt of a site, and kept by site.

`tdmrep.jsonl` has the rules of each site that answered. A file is queued before the outcome that led to it is reported,
and its rules are synced before its own outcome is. So a crash between two steps repeats that outcome.
"""

from __future__ import annotations

from typing import Final

import msgspec

from outrider.crawl.output.output_frontier import OutputFrontier
from outrider.crawl.output.summary import counted
from outrider.crawl.run.known_lines import known_lines
from outrider.crawl.run.visit import Judgement, Visit
from outrider.crawl.setup.options import CrawlOptions
from outrider.errors import SettingsError
from outrider.journey import Lease, Verdict, Word
from outrider.limits import (
    REDIRECT_HOPS_MAX,
    TDMREP_CRAWL_BYTES_MAX,
    TDMREP_LINE_BYTES_MAX,
    TDMREP_SITES_MAX,
)
from outrider.robots import TdmFile
from outrider.robots.tdmrep import TDMREP_PATH
from outrider.storage.files import Files, append_synced
from outrider.url import authority_of
from outrider.uses import Statement

TDMREP_FILE: Final = "tdmrep.jsonl"
UNREADABLE: Final = "tdmrep_unreadable"  # not a JSON array, such as HTML, or too long
REDIRECT: Final = "tdmrep_redirect"  # to a place where this crawl requests no such file
LIMIT: Final = "tdmrep_limit"  # the crawl keeps as many files as it may
_HTTP_ERROR: Final = 400
_SERVER_ERROR: Final = 500


class TdmLine(msgspec.Struct, frozen=True):
    """The rules that the file of one site contains, as written. A site without a valid file gets an empty tuple."""

    authority: str
    rules: tuple[str, ...] = ()


class TdmFiles:
    """Queues and reads the tdmrep.json files of one crawl. The thread of the frontier uses it; any thread may call
    `about`."""

    def __init__(self, frontier: OutputFrontier, options: CrawlOptions, files: Files | None = None) -> None:
        """files: the crawl's directory; None keeps nothing beyond this object. Raises StoreError."""
        self._frontier, self._files = frontier, files
        self._wanted = options.tdmrep
        self._known: dict[str, TdmFile] = {}  # by authority
        self._asked: set[str] = set()  # authorities whose first file is queued
        self._bytes = self._length = 0
        self._to_queue: dict[str, None] = {}
        self._unwritten: list[TdmLine] = []
        if self._wanted and files is not None:
            self._read(files)

    def _read(self, files: Files) -> None:
        for line, size in known_lines(files, TDMREP_FILE, TdmLine, TDMREP_LINE_BYTES_MAX):
            self._remember(line.authority, TdmFile(line.rules))
            self._length += size

    def _remember(self, authority: str, found: TdmFile) -> bool:
        """Keeps the file of a site. Returns whether the limits allow it."""
        before = self._known.get(authority)
        size = self._bytes + _size(found) - (_size(before) if before is not None else 0)
        if size > TDMREP_CRAWL_BYTES_MAX or (before is None and len(self._known) >= TDMREP_SITES_MAX):
            return False
        self._known[authority], self._bytes = found, size
        return True

    def about(self, url: str) -> Statement | None:
        """Returns what the tdmrep.json of its site says about the uses of a URL."""
        known = self._known.get(authority_of(url)) if self._known else None
        return known.about(url) if known is not None else None

    def of_robots(self, lease: Lease, status: int | None) -> None:
        """Queues a request for the file of a site whose robots.txt was answered, perhaps again."""
        if self._wanted and status is not None and status < _SERVER_ERROR and not 300 <= status < _HTTP_ERROR:
            self._ask(lease.authority)

    def of_page(self, url: str) -> None:
        """Queues the first request to a site whose robots.txt was read by a run without `--tdmrep`."""
        if self._wanted and (authority := authority_of(url)) not in self._known and authority not in self._asked:
            self._ask(authority)

    def _ask(self, authority: str) -> None:
        if authority in self._known or len(self._asked) < TDMREP_SITES_MAX:
            self._asked.add(authority)
            self._to_queue[authority + TDMREP_PATH] = None

    def of_file(self, visit: Visit, judgement: Judgement) -> tuple[Judgement, str | None]:
        """Keeps the rules in an answer. Returns its judgement with regard to that, and what is wrong with the file.
        After a failure of the server, the rules of the last answer remain."""
        lease, response = visit.lease, visit.response
        authority = authority_of(lease.referrer if lease.referrer is not None else lease.url)
        if judgement.location is not None:
            if lease.hops < REDIRECT_HOPS_MAX and self._frontier.robots_allow([judgement.location]) == [True]:
                return judgement, None
            judgement = Judgement(Word.GONE, Verdict.GONE, REDIRECT)
        elif judgement.verdict is Verdict.RETRY or visit.status is None or visit.status >= _SERVER_ERROR:
            return judgement, None
        found, problem = TdmFile(()), None
        if judgement.verdict is Verdict.DONE and response is not None:
            try:
                found, left_out = TdmFile.parse(response.content)
                problem = f"{counted(left_out, 'rule')} ignored: without a location, or too many" if left_out else None
            except SettingsError as error:
                judgement, problem = Judgement(Word.ERROR, Verdict.GONE, UNREADABLE), error.facts
        before = self._known.get(authority)
        if not self._remember(authority, found):
            return Judgement(Word.ERROR, Verdict.GONE, LIMIT), "this crawl keeps as many files as it may"
        if before is None or before.rules != found.rules:
            self._unwritten.append(TdmLine(authority, found.rules))
        return judgement, problem

    def write(self) -> None:
        """Queues the wanted files, and writes the rules of the answers; the same call again changes nothing. Raises
        StoreError."""
        if self._to_queue:
            self._frontier.queue_errands("tdmrep", list(self._to_queue))
            self._to_queue = {}
        if self._files is not None and self._unwritten:
            octets = b"".join(msgspec.json.encode(line) + b"\n" for line in self._unwritten)
            self._length = append_synced(self._files, TDMREP_FILE, self._length, octets)
        self._unwritten = []


def _size(found: TdmFile) -> int:
    return sum(map(len, found.rules))
