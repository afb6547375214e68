"""From an answer to its content: digests, records for the archive, judgement, the page and its links.

A reading needs nothing that changes, so any thread makes one. `Readings` makes them in threads beside the event loop
and the books; hashing, packing and parsing let go of the GIL, so that those go on meanwhile.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Final

from outrider.archive import Records
from outrider.crawl.hooks import HookFailed, Hooks
from outrider.crawl.options import CrawlOptions
from outrider.crawl.output import Output
from outrider.crawl.perhost import PerHost
from outrider.crawl.visit import NOT_MODIFIED, Judgement, Visit, content_digest, judged
from outrider.crawl.wording import wording_of
from outrider.journey import Kind, Lease, Verdict
from outrider.limits import LINKS_PER_PAGE_MAX, READ_AT_ONCE, READING_THREADS
from outrider.page import NO_LINKS as NO_FOUND
from outrider.page import Page
from outrider.robots import ROBOTS_FIELD, header_directives, strictest
from outrider.url import UrlBatch

NO_LINKS: Final = UrlBatch.of(())
_NOTHING_SAID: Final[frozenset[str]] = frozenset()


@dataclass(slots=True)
class Reading:
    """The result of reading a visit. `digest` and `shown` as `content_digest` gives them; `records` where there is an
    archive; `fault`: a hook failed."""

    visit: Visit
    digest: bytes | None = None
    shown: str | None = None
    records: Records | None = None
    judgement: Judgement | None = None
    page: Page | None = None
    links: UrlBatch = field(default_factory=lambda: NO_LINKS)
    wording: int | None = None  # as `wording_of` tells it
    nofollow: int = 0  # links that were left alone because the page or their rel says so
    fault: HookFailed | None = None


class Reader:
    """Reads visits of one crawl; those that were read ahead are given from memory."""

    def __init__(self, options: CrawlOptions, hooks: Hooks, output: Output, *, keeps_links: bool = False) -> None:
        """keeps_links: somebody looks at the links of pages that are not followed, too."""
        self._agent = options.user_agent
        self._hooks = hooks
        self._output = output
        self._keeps_links = keeps_links or hooks.looks_at_pages
        self._per_host = PerHost(options)
        self._ahead: dict[int, Reading] = {}

    def of(self, visit: Visit) -> Reading:
        """The reading of a visit, whole; in the books' thread, where hooks run."""
        made = self._ahead.pop(visit.lease.token, None)
        if made is None or made.visit is not visit:
            made = self._answer(visit)
        elif not self._hooks.look_at_answers:
            return made
        self._content(made)
        return made

    def is_slow(self, visit: Visit) -> bool:
        """Whether `ahead` waits for a process that reads this visit, perhaps for seconds."""
        if visit.response is None or visit.lease.kind is not Kind.PAGE or self._hooks.look_at_answers:
            return False
        return self._hooks.reads_apart(visit.response)

    def ahead(self, visit: Visit) -> None:
        """Reads a visit for `of`, as far as no hook has to be asked; in any thread."""
        made = self._answer(visit)
        if not self._hooks.look_at_answers:
            self._content(made)
        self._ahead[visit.lease.token] = made

    def _answer(self, visit: Visit) -> Reading:
        """Digests, and the records for the archive."""
        made = Reading(visit)
        response = visit.response
        if response is not None and response.head:
            made.digest, made.shown = content_digest(response)
            made.records = self._output.packed(response, visit.at, visit.lease.token, made.shown)
        return made

    def _content(self, made: Reading) -> None:
        """Judges a page, and reads it if it has text."""
        visit = made.visit
        response = visit.response
        if visit.stopped or visit.lease.kind not in (Kind.PAGE, Kind.PROBE):
            return
        own = self._per_host.of(visit.lease.host)
        made.judgement = judged(visit, own.retries)
        if response is None:
            return
        try:
            response = self._hooks.response(response, visit.lease)
            new = visit.status != NOT_MODIFIED
            if new and made.judgement.verdict is Verdict.DONE and made.judgement.location is None:
                made.page = self._hooks.read(response, self._agent)
        except HookFailed as failed:
            made.fault = failed
            return
        if response is not visit.response:
            made.visit = replace(visit, response=response)
        if made.page is not None:
            self._links(made, made.page, own.follow_nofollow)

    def _links(self, made: Reading, page: Page, follow_nofollow: bool) -> None:
        """The links that are followed."""
        assert made.visit.response is not None
        page = page.with_header(made.visit.response.headers.get_all("link"))
        said = _NOTHING_SAID
        if made.visit.response.headers.get(ROBOTS_FIELD) is not None:
            said = header_directives(made.visit.response.headers, self._agent)
        if said or page.robots:
            page = replace(page, robots=strictest(page.robots | said))
        made.links = page.link_batch(nofollow_too=follow_nofollow)[:LINKS_PER_PAGE_MAX]
        made.nofollow = 0 if follow_nofollow else page.left_alone(len(made.links))
        made.wording = wording_of(page, made.visit.lease.url)
        made.page = page
        if not self._keeps_links:
            if self._hooks.reads_here:  # the page is the user's, who may give it again
                made.page = replace(page, found=NO_FOUND)
            else:
                page.forget_links()


@dataclass(slots=True)
class _Lane:
    """Visits that wait to be read, and the threads that take them, so many at once."""

    at_once: int
    pool: ThreadPoolExecutor
    waiting: deque[Visit] = field(default_factory=deque)
    active: int = 0


class Readings:
    """Threads in which a reader reads ahead: each takes a few visits at once, and tells the event loop of them.

    Documents that a process of its own reads may take seconds each. They have threads of their own, so that no page
    waits for them, and each is told of by itself.
    """

    def __init__(
        self,
        read: Callable[[Visit], None],
        told: Callable[[Sequence[Visit], BaseException | None], None],
        *,
        threads: int = READING_THREADS,
        is_slow: Callable[[Visit], bool] = lambda _: False,
    ) -> None:
        """told: is called in the event loop with visits that were read, and the error of one that could not be.
        is_slow: whether a visit may take seconds."""
        self._read = read
        self._told = told
        self._threads = threads
        self._is_slow = is_slow
        self._lock = threading.Lock()
        self._quick = _Lane(READ_AT_ONCE, ThreadPoolExecutor(threads, thread_name_prefix="outrider-reading"))
        self._slow = _Lane(1, ThreadPoolExecutor(threads, thread_name_prefix="outrider-documents"))
        self._leases: dict[int, Lease] = {}
        self._slow_tokens: set[int] = set()

    def __len__(self) -> int:
        """Visits that are being read."""
        return len(self._leases)

    @property
    def slow(self) -> int:
        """The ones among them that may take seconds."""
        return len(self._slow_tokens)

    @property
    def leases(self) -> list[Lease]:
        """The leases of visits that are being read."""
        return list(self._leases.values())

    def put(self, visits: Sequence[Visit]) -> None:
        """Has visits read; called in the event loop."""
        loop = asyncio.get_running_loop()
        begun: list[_Lane] = []
        with self._lock:
            for visit in visits:
                token = visit.lease.token
                self._leases[token] = visit.lease
                lane = self._quick
                if self._is_slow(visit):
                    lane = self._slow
                    self._slow_tokens.add(token)
                lane.waiting.append(visit)
            for lane in (self._quick, self._slow):
                threads = min(self._threads - lane.active, -(-len(lane.waiting) // lane.at_once))
                lane.active += threads
                begun += [lane] * threads
        for lane in begun:
            lane.pool.submit(self._drain, lane, loop)

    def _drain(self, lane: _Lane, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            with self._lock:
                some = [lane.waiting.popleft() for _ in range(min(lane.at_once, len(lane.waiting)))]
                if not some:
                    lane.active -= 1
                    return
            fault: BaseException | None = None
            try:
                for visit in some:
                    self._read(visit)
            except BaseException as error:  # noqa: BLE001 - a bug ends the crawl, and the loop says so
                fault = error
            loop.call_soon_threadsafe(self._ended, some, fault)

    def _ended(self, some: Sequence[Visit], fault: BaseException | None) -> None:
        for visit in some:
            del self._leases[visit.lease.token]
            self._slow_tokens.discard(visit.lease.token)
        self._told(some, fault)

    def close(self) -> None:
        """Waits until the visits in hand are read, and ends the threads."""
        lanes = (self._quick, self._slow)
        with self._lock:
            for lane in lanes:
                lane.waiting.clear()
        for lane in lanes:
            lane.pool.shutdown()
