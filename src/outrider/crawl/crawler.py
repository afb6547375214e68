"""A crawl in a program: `outrider.crawl(…)`, and `outrider.Crawler`, which the program controls."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Unpack

from outrider.crawl.local_run import CrawlResult, CrawlRun
from outrider.crawl.page_stream import CrawlPages
from outrider.crawl.questions.status import status_of
from outrider.crawl.start import conclude, finished, prepared
from outrider.errors import SettingsError

if TYPE_CHECKING:
    from outrider.crawl.setup.keywords import CrawlKeywords


class Crawler:
    """A crawl that a program controls: `run` crawls and blocks, `pages` yields the pages to an event loop, and
    meanwhile any thread may call `stop` and `status`.

    It accepts the arguments of `outrider.crawl`, and crawls once. Another one with the same output continues where this
    one ended. `stop` and `status` are for other threads: a hook that wants to stop calls `stop` too, and its page is
    stored.
    """

    def __init__(
        self,
        seeds: Iterable[str] = (),
        *,
        output: str | os.PathLike[str] | None = None,
        **options: Unpack[CrawlKeywords],
    ) -> None:
        """seeds: URLs, or `@file`. options: those of `CrawlOptions`. Raises SettingsError for seeds that are not a
        list; everything else is checked when the crawl begins."""
        if isinstance(seeds, str):
            raise SettingsError(f"seeds is one text; pass a list: crawl([{seeds!r}])")
        if not isinstance(seeds, Iterable):
            raise SettingsError(f"seeds {seeds!r:.80}: pass a list of URLs")
        self._sources = tuple(seeds)
        self._flags: dict[str, Any] = {**options} if _on_a_terminal() else {"progress": "none", **options}
        if output is not None:
            self._flags["output"] = os.fspath(output)
        self._lock = threading.Lock()
        self._taken = False
        self._stop_reasons: list[str] = []
        self._under_way: CrawlRun | None = None

    def run(self) -> CrawlResult:
        """Crawls to the end, and blocks until then. Raises SettingsError, InvalidUrlError and StoreError; a crawl that
        stopped early has an exit code (3, 4, 7, 8, 10) in its result."""
        self._take()
        ready = prepared(self._sources, self._flags, stdin=None, talk=sys.stderr)
        return finished(ready, self._begin(ready.crawl_run()), talk=sys.stderr, summary=False)

    def pages(self) -> CrawlPages:
        """The answered pages, each once it is kept; `async for` over them crawls. Call it where an event loop runs."""
        self._take()

        def begin(pages: CrawlPages) -> CrawlRun:
            return self._begin(prepared(self._sources, self._flags, stdin=None, talk=sys.stderr).crawl_run(pages))

        return CrawlPages(begin, lambda ended, result: conclude(ended.options, result, ended.sources))

    def stop(self, reason: str = "stopped by the program") -> None:
        """Sends no new requests and lets the requests in flight end, from any thread; the second call ends them now.
        Before the crawl has begun, it ends the crawl as it begins. After the end it does nothing. `reason` is the
        `ending` of the result."""
        with self._lock:
            under_way = self._under_way
            if under_way is None:
                self._stop_reasons.append(reason)
                return
        under_way.stop_soon(reason)

    def status(self) -> dict[str, Any]:
        """Returns the fields of `outrider status --json`, from any thread except the crawl's own (a hook, its loop:
        there `await asyncio.to_thread(crawler.status)`). Raises SettingsError before the crawl has its directory, and
        UnreachableError if the crawl does not answer in time."""
        with self._lock:
            if self._under_way is None:
                raise SettingsError("the crawl has not begun: call `status` once `run` or `pages` is under way")
            output = self._under_way.options.output
        return status_of(output)

    def _take(self) -> None:
        with self._lock:
            if self._taken:
                raise SettingsError("this Crawler was run before: make another one with the same output to continue")
            self._taken = True

    def _begin(self, run: CrawlRun) -> CrawlRun:
        with self._lock:
            self._under_way = run
            for reason in self._stop_reasons:
                run.stop_soon(reason)
        return run


def _on_a_terminal() -> bool:
    """Whether standard error is a terminal."""
    return sys.stderr is not None and sys.stderr.isatty()


def crawl(
    seeds: Iterable[str] = (), *, output: str | os.PathLike[str] | None = None, **options: Unpack[CrawlKeywords]
) -> Any:
    """Crawls from `seeds` (URLs, or `@file`) to the end, and blocks until then; continues an existing directory.
    Returns a `CrawlResult`. In an event loop it returns `CrawlPages` at once; `async for` over them crawls.

    `options` are those of `CrawlOptions` (docs/options.md); an option that you do not pass comes from OUTRIDER_…
    variables, from outrider.toml in the directory, or from the defaults. If standard error is a terminal, progress is
    shown there; elsewhere it is shown only if `progress` says so. A skipped seed, a note of the opening and a stop are
    one line each on standard error. Raises SettingsError, InvalidUrlError and StoreError; a crawl that stopped early
    has an exit code (3, 4, 7, 8, 10) in its result.
    """
    crawler = Crawler(seeds, output=output, **options)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return crawler.run()
    return crawler.pages()
