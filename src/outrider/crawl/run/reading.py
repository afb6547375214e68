"""From an answer to its content: digests, records for the archive, judgement, the page and its links.

A reading needs nothing that changes, so any thread can make one. `Readings` makes them in threads other than the event
loop and the writer thread. Hashing, packing and parsing release the GIL, so that those continue meanwhile.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from outrider.archive import Records, WarcPlace
from outrider.crawl.output.output import Packed
from outrider.crawl.run.hooks import CrawledPage, HookFailed, Hooks
from outrider.crawl.run.lease_kinds import KINDS
from outrider.crawl.run.sitemaps import SitemapContent
from outrider.crawl.run.text_signature import words_of
from outrider.crawl.run.visit import Judgement, Visit, confirmed_by, content_digest, judged, visit_bytes
from outrider.crawl.setup.host_settings import PerHost
from outrider.crawl.setup.options import CrawlOptions
from outrider.fetch.downloader import Response
from outrider.fetch.failures import FetchError
from outrider.fetch.meaning import NOT_MODIFIED
from outrider.journey import Kind, Lease, Link, Outcome, Verdict, Word
from outrider.kernels.page_columns import leads_nowhere
from outrider.limits import LINKS_PER_PAGE_MAX, READ_AT_ONCE, READ_BYTES_AT_ONCE, READING_THREADS
from outrider.page import NO_LINKS as NO_FOUND
from outrider.page import Page, Unread, followed_of, read_many
from outrider.robots import PREFERENCE_FIELDS, ROBOTS_FIELD, header_directives, preferences_of, strictest
from outrider.url import UrlBatch
from outrider.uses import NOTHING_SAID, USE_REFUSED, Preferences, Statement

if TYPE_CHECKING:
    import asyncio

NO_LINKS: Final = UrlBatch.of(())
_NO_DIRECTIVES: Final[frozenset[str]] = frozenset()


class Step(IntEnum):
    """The progress of the writer thread with an answer. A full disk may stop it at any step; it continues from
    there."""

    ANSWERED = 0
    READ = 1
    COMPARED = 2  # it is known whether it is a copy
    SHOWN = 3  # to the functions of the user
    ARCHIVED = 4
    JUDGED = 5  # it has its outcome, which is to be reported


@dataclass(slots=True)
class Reading:
    """A visit on its way to its outcome: first the results of any thread, then those of the writer thread.

    `digest` and `shown` from `content_digest`; `records` with an archive, and `warc_record`, their mark; `fault`: a
    hook failed.
    """

    visit: Visit
    digest: bytes | None = None
    shown: str | None = None
    records: Records | None = None
    warc_record: bytes | None = None
    judgement: Judgement | None = None
    page: Page | None = None
    links: UrlBatch | list[Link] = field(default_factory=lambda: NO_LINKS)
    preferences: Preferences = NOTHING_SAID  # of the site, about the uses of this page
    wording: int | None = None  # from `words_of`
    passed: dict[str, int] = field(default_factory=dict)  # links that are not followed, by reason
    left_out: int = 0  # links above the limit of one page
    fault: HookFailed | None = None
    # Set by the writer thread.
    step: Step = Step.ANSWERED
    warc: dict[str, Any] | None = None
    original: WarcPlace | None = None  # of the earlier response with its payload, if its record refers to that
    may_be_repeated: bool = False  # later answers with its payload may refer to its record
    outcome: Outcome | None = None
    seen: CrawledPage | None = None
    items: msgspec.Raw | None = None  # of `on_page`, as JSON
    follows: bool = True
    due_again: float | None = None
    copy_of: tuple[str, int | None] | None = None  # URL, and in how many bits the SimHashes differ (None: same bytes)
    last: bool = False  # its links are followed last
    probe: str | None = None  # the URL by chance that was answered with such a page
    repeats: bool = False  # its host had these words before, without numbers
    differs: bool = False  # from the page that it is a near copy of, in figures of its own: it counts as content
    mirrored: bool = False  # it is a copy, but of a page of a younger site: it counts as content
    found: SitemapContent | None = None  # content of a sitemap, or sitemaps of a robots.txt


class Packs(Protocol):
    """An object that packs answers for the archive."""

    def packed(self, answers: Sequence[Packed], /) -> Sequence[Records | None]: ...


class Reader:
    """Reads visits of one crawl; those that were read ahead are given from memory."""

    def __init__(
        self,
        options: CrawlOptions,
        hooks: Hooks,
        output: Packs | None,
        *,
        keeps_links: bool = False,
        said_in_file: Callable[[str], Statement | None] | None = None,
    ) -> None:
        """output: None for pages of an archive, which are not packed again and not compared with others; then only
        `judge` and `read` are called. keeps_links: the links of pages that are not followed are looked at, too.
        said_in_file: what the tdmrep.json of its site says about a URL, None without `--tdmrep`."""
        self._agent = options.user_agent
        self._hooks = hooks
        self._output = output
        self._keeps_links = keeps_links or hooks.looks_at_pages
        self._per_host = PerHost(options)
        self._said_in_file = said_in_file
        self._uses = options.use
        self._refuses_unknown = bool(options.use) and options.use_unknown == "refuse"
        self._ahead: dict[int, Reading] = {}

    def of(self, visit: Visit) -> Reading:
        """Returns the complete reading of a visit; in the writer thread, where hooks run."""
        made = self._ahead.pop(visit.lease.token, None)
        if made is None or made.visit is not visit:
            (made,) = self._read_all([visit])
        if self._hooks.look_at_answers:
            self._contents([made])
        return made

    def is_slow(self, visit: Visit) -> bool:
        """Whether `ahead` waits for a process that reads this visit, perhaps for seconds."""
        if visit.response is None or visit.lease.kind is not Kind.PAGE or self._hooks.look_at_answers:
            return False
        return self._hooks.reads_apart(visit.response)

    def ahead(self, visits: Sequence[Visit]) -> None:
        """Reads visits for `of`, as far as no hook is needed; in any thread."""
        for one in self._read_all(visits):
            self._ahead[one.visit.lease.token] = one

    def _read_all(self, visits: Sequence[Visit]) -> list[Reading]:
        """Reads visits as far as no hook is needed."""
        made = [Reading(visit) for visit in visits]
        if not self._hooks.look_at_answers:
            self._contents(made)
        self._pack(made)
        return made

    def _pack(self, made: Sequence[Reading]) -> None:
        """Digests, and the records for the archive, with what the site says about uses."""
        assert self._output is not None, "an archived page is only judged and read"
        answers = [(one, response) for one in made if (response := one.visit.response) is not None and response.head]
        rows = [
            (response, one.visit.at, one.visit.lease.token, confirmed_by(one.visit), _as_text(one.preferences))
            for one, response in answers
        ]
        packed = self._output.packed(rows)
        for (one, response), records in zip(answers, packed, strict=True):
            one.records = records
            if records is None:
                one.digest, one.shown = content_digest(response)
            else:
                one.digest, one.shown = records.content_digest, records.payload_digest
                one.warc_record = records.mark

    def _contents(self, made: Sequence[Reading]) -> None:
        """Judges pages, and reads those that have text."""
        plain = self._judge_all(made)
        if plain:
            self.read(plain)
        for one in made:
            one.preferences = self._preferences(one)
            if one.preferences is NOTHING_SAID and not self._refuses_unknown:
                continue
            self._refuse(one)
            if one.digest is not None:  # it was packed before functions of the user looked at it
                self._pack([one])

    def _preferences(self, one: Reading) -> Preferences:
        """Returns what the site says about the uses of an answer: in its files, in fields and in the page."""
        response, about_uses = one.visit.response, one.visit.lease.about_uses
        if response is None or one.visit.lease.kind is not Kind.PAGE:
            return NOTHING_SAID
        said = one.page.robots if one.page is not None else self._directives(response)
        fields = any(response.headers.get(name) is not None for name in PREFERENCE_FIELDS)
        file = self._said_in_file(one.visit.lease.url) if self._said_in_file is not None else None
        if not about_uses and not said and not fields and file is None:
            return NOTHING_SAID
        return preferences_of(about_uses, response.headers if fields else (), said, file=file)

    def _refuse(self, one: Reading) -> None:
        """Ends a page whose site refuses a use that the crawl is for: neither its body nor its text is kept."""
        judgement, response = one.judgement, one.visit.response
        if response is None or judgement is None or judgement.verdict is not Verdict.DONE or judgement.location:
            return
        if one.preferences.refused(self._uses, unknown=self._refuses_unknown) is None:
            return
        bare = replace(response, body=b"", content=b"", truncated="unspecified")
        one.visit = replace(one.visit, response=bare)
        one.judgement = Judgement(Word.GONE, Verdict.GONE, USE_REFUSED)
        if len(one.links):
            one.passed[USE_REFUSED] = len(one.links)
        one.page, one.links, one.wording = None, NO_LINKS, None

    def _directives(self, response: Response) -> frozenset[str]:
        """Returns the directives of the head of an answer."""
        if response.headers.get(ROBOTS_FIELD) is None:
            return _NO_DIRECTIVES
        return header_directives(response.headers, self._agent)

    def judge(self, visits: Sequence[Visit]) -> tuple[list[Reading], list[Reading]]:
        """Judges visits; where hooks run. Returns the reading of each, and those of them that `read` can read. A reader
        of the user has read its pages then."""
        made = [Reading(visit) for visit in visits]
        return made, self._judge_all(made)

    def _judge_all(self, made: Sequence[Reading]) -> list[Reading]:
        plain: list[Reading] = []
        for one in made:
            try:
                response = self._judge(one)
                if response is None:
                    continue
                if self._hooks.has_reader(response):
                    page = self._hooks.read(response)
                    unread = self._unread(one, response)
                    self._take(one, page, unread, *followed_of(page, unread))
                else:
                    plain.append(one)
            except HookFailed as failed:
                one.fault = failed
        return plain

    def _judge(self, one: Reading) -> Response | None:
        """Judges a visit; returns its response if that must be read. Raises HookFailed."""
        visit = one.visit
        response = visit.response
        if visit.stopped or not KINDS[visit.lease.kind].parsed:
            return None
        one.judgement = judged(visit, self._per_host.of(visit.lease.host).retries)
        if response is None:
            return None
        response = self._hooks.response(response, visit.lease)
        if response is not visit.response:
            one.visit = replace(visit, response=response)
        new = visit.status != NOT_MODIFIED
        is_page = new and one.judgement.verdict is Verdict.DONE and one.judgement.location is None
        return response if is_page else None

    def _unread(self, one: Reading, response: Response) -> Unread:
        said = self._directives(response)
        follow_nofollow = self._per_host.of(one.visit.lease.host).follow_nofollow
        content_type = response.headers.joined("content-type")
        return Unread(response.content, response.url, content_type, follow_nofollow, said)

    def read(self, plain: Sequence[Reading]) -> None:
        """Reads pages together. One that meets a bug of ours ends alone, as a bug: then each is read by itself."""
        unread = []
        for one in plain:
            assert one.visit.response is not None
            unread.append(self._unread(one, one.visit.response))
        try:
            found = read_many(unread, agent=self._agent)
        except (KeyboardInterrupt, SystemExit, MemoryError):
            raise  # no bug of ours: the pages are read by a later run
        except BaseException as error:  # noqa: BLE001 - a page that meets a bug of ours ends alone
            # A panic in a kernel is not an Exception.
            if len(plain) > 1:
                for one in plain:
                    self.read([one])
                return
            plain[0].fault = HookFailed("reading", error, word=str(FetchError.INTERNAL))
            return
        links, bounds = found.links, found.bounds
        for row, (one, page) in enumerate(zip(plain, found.pages, strict=True)):
            first, last = bounds[row], bounds[row + 1]
            followed = links[first:last] if first < last else NO_LINKS
            self._take(one, page, unread[row], followed, found.left_alone[row])

    def _take(self, one: Reading, page: Page, unread: Unread, links: UrlBatch, left_alone: int) -> None:
        """Stores a page after reading, with the directives of its answer's head, and its followed links."""
        assert one.visit.response is not None
        headers = one.visit.response.headers
        fields, refresh = headers.get_all("link"), headers.get("refresh")
        if fields or refresh is not None:
            page = page.with_header(fields, refresh)
        if page.robots or unread.robots:
            page = replace(page, robots=strictest(page.robots | unread.robots))
        if refresh is not None and (unread.follow_nofollow or not leads_nowhere(page.robots)):
            links = page.with_refresh(links)[:LINKS_PER_PAGE_MAX]
        one.links = links
        one.left_out = page.left_out
        if left_alone:
            one.passed["nofollow"] = left_alone
        if self._output is not None:
            one.wording = words_of(page, one.visit.lease.url, links)
        if not self._keeps_links:
            if self._hooks.reads_here:  # the page is the user's object, and may be returned again
                page = replace(page, found=NO_FOUND)
            else:
                page.forget_links()
        one.page = page


def _as_text(preferences: Preferences) -> str | None:
    """Returns preferences as JSON in ASCII on one line, None if a site says nothing."""
    if not preferences.said:
        return None
    text = msgspec.json.encode(preferences).decode()
    return text if text.isascii() else json.dumps(msgspec.to_builtins(preferences), separators=(",", ":"))


@dataclass(slots=True)
class _Lane:
    """Visits that wait to be read, and the limited number of threads that read them."""

    at_once: int
    pool: ThreadPoolExecutor
    waiting: deque[Visit] = field(default_factory=deque)
    active: int = 0


class Readings:
    """Threads in which a reader reads ahead: each reads a few visits at once, and reports them to the event loop.

    Visits of one host are reported in their order of arrival, as its record needs it: a visit that is read
    before an earlier one of its host waits for that.
    Documents that a separate process reads may need seconds each. They have their own threads, so that no page
    waits for them, and each is reported alone.
    """

    def __init__(
        self,
        read: Callable[[Sequence[Visit]], None],
        told: Callable[[Sequence[Visit], BaseException | None], None],
        *,
        threads: int = READING_THREADS,
        is_slow: Callable[[Visit], bool] = lambda _: False,
    ) -> None:
        """told: is called in the event loop with visits after reading, and the error of one that failed.
        is_slow: whether a visit may need seconds."""
        self._read = read
        self._told = told
        self._threads = threads
        self._is_slow = is_slow
        self._lock = threading.Lock()
        self._quick = _Lane(READ_AT_ONCE, ThreadPoolExecutor(threads, thread_name_prefix="outrider-reading"))
        self._slow = _Lane(1, ThreadPoolExecutor(threads, thread_name_prefix="outrider-documents"))
        self._leases: dict[int, Lease] = {}
        self._slow_tokens: set[int] = set()
        self._lines: dict[str, deque[Visit]] = {}  # by host: those that are not reported
        self._early: set[int] = set()  # tokens of visits that are read, and wait for an earlier one of their host

    def __len__(self) -> int:
        """Visits that are being read, or wait for one that is."""
        return len(self._leases)

    @property
    def slow(self) -> int:
        """The number of visits being read that may need seconds."""
        return len(self._slow_tokens)

    @property
    def leases(self) -> list[Lease]:
        """The leases of visits that are being read, or wait for one that is."""
        return list(self._leases.values())

    def put(self, visits: Sequence[Visit]) -> None:
        """Has visits read; called in the event loop."""
        import asyncio  # a replay has no loop, and starts without it

        loop = asyncio.get_running_loop()
        begun: list[_Lane] = []
        with self._lock:
            for visit in visits:
                token = visit.lease.token
                self._leases[token] = visit.lease
                self._lines.setdefault(visit.lease.host, deque()).append(visit)
                lane = self._quick
                if self._is_slow(visit):
                    lane = self._slow
                    self._slow_tokens.add(token)
                lane.waiting.append(visit)
            for lane in (self._quick, self._slow):
                threads = min(self._threads - lane.active, len(lane.waiting))
                lane.active += threads
                begun += [lane] * threads
        for lane in begun:
            lane.pool.submit(self._drain, lane, loop)

    def _drain(self, lane: _Lane, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            with self._lock:
                some = self._share_of(lane)
                if not some:
                    lane.active -= 1
                    return
            fault: BaseException | None = None
            try:
                self._read(some)
            except BaseException as error:  # noqa: BLE001 - a bug ends the crawl, and the loop says so
                fault = error
            loop.call_soon_threadsafe(self._ended, some, fault)

    def _share_of(self, lane: _Lane) -> list[Visit]:
        """Returns the visits for a thread: its share of the waiting ones, within the limits of a batch."""
        share = min(lane.at_once, -(-len(lane.waiting) // self._threads))
        some: list[Visit] = []
        size = 0
        while len(some) < share and size < READ_BYTES_AT_ONCE:
            some.append(lane.waiting.popleft())
            size += visit_bytes(some[-1])
        return some

    def _ended(self, some: Sequence[Visit], fault: BaseException | None) -> None:
        told: list[Visit] = []
        for visit in some:
            self._slow_tokens.discard(visit.lease.token)
            self._early.add(visit.lease.token)
            told += self._in_order(visit.lease.host)
        if told or fault is not None:
            self._told(told, fault)

    def _in_order(self, host: str) -> Iterator[Visit]:
        """Returns the visits of a host that were read, up to the first unread one."""
        line = self._lines[host]
        while line and (token := line[0].lease.token) in self._early:
            self._early.remove(token)
            del self._leases[token]
            yield line.popleft()
        if not line:
            del self._lines[host]

    def close(self) -> None:
        """Waits until the visits in hand are read, and ends the threads."""
        lanes = (self._quick, self._slow)
        with self._lock:
            for lane in lanes:
                lane.waiting.clear()
        for lane in lanes:
            lane.pool.shutdown()
