"""The pages of a crawl, read while it runs: `async for page in outrider.crawl(…)`."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Self

from outrider.crawl.local_run import CrawlResult, CrawlRun
from outrider.crawl.run.hooks import CrawledPage
from outrider.limits import PAGES_READ_AHEAD_MAX


class CrawlPages:
    """The answered pages of a crawl, each once it is stored. `async for` runs the crawl, one time.

    A slow reader slows the crawl down: at most `PAGES_READ_AHEAD_MAX` pages wait, and the requests in
    flight. Leaving the loop early stops the crawl as Ctrl-C does: fetched pages are stored, and the same call continues
    another time. `async with` around the loop waits for that end.
    """

    def __init__(
        self, prepare: Callable[[CrawlPages], CrawlRun], conclude: Callable[[CrawlRun, CrawlResult], object]
    ) -> None:
        """prepare, conclude: are called before and after the run, in a thread."""
        self._prepare = prepare
        self._conclude = conclude
        self._waiting: deque[CrawledPage] = deque()
        self._news = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._crawler: CrawlRun | None = None
        self._task: asyncio.Task[CrawlResult] | None = None
        self.result: CrawlResult | None = None
        """How the crawl ended, once it did."""

    # -- for the crawl ------------------------------------------------------------------------------------------------

    def tell(self, page: CrawledPage) -> None:
        """Adds a page that is kept; called in the writer thread."""
        with contextlib.suppress(RuntimeError):  # the event loop was closed: the pages have no reader
            self._loop.call_soon_threadsafe(self._arrived, page)

    def full(self) -> bool:
        """Whether the crawl has to wait for the reader."""
        return len(self._waiting) >= PAGES_READ_AHEAD_MAX

    def _arrived(self, page: CrawledPage) -> None:
        self._waiting.append(page)
        self._news.set()

    # -- for the reader -----------------------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[CrawledPage]:
        return self._pages()

    async def _pages(self) -> AsyncIterator[CrawledPage]:
        if self._task is None:
            self._crawler = await asyncio.to_thread(self._prepare, self)
            self._task = asyncio.create_task(self._crawler.run())
            self._task.add_done_callback(lambda _: self._news.set())
        try:
            while True:
                while self._waiting:
                    page = self._waiting.popleft()
                    if len(self._waiting) == PAGES_READ_AHEAD_MAX - 1 and self._crawler is not None:
                        self._crawler.go_on()
                    yield page
                if self._task.done():
                    break
                self._news.clear()
                await self._news.wait()
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """Stops the crawl where it runs, and waits for its end. Raises what the crawl raised."""
        if self._task is None or self.result is not None or self._crawler is None:
            return
        if not self._task.done():
            self._crawler.stop("the reader of its pages stopped")
        self.result = await asyncio.shield(self._task)
        await asyncio.to_thread(self._conclude, self._crawler, self.result)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
