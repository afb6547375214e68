"""A server of a crawl that fetches itself. Its socket is bound before the crawl begins, its loop has a thread of
its own, and it ends with the crawl."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future

from outrider.crawl.questions.side_server import RunningCrawl
from outrider.engine import AsyncFrontier
from outrider.service.access import Listening, TokenRoles
from outrider.service.audit import Audit
from outrider.service.http_server import bound, hosts_of, listened_at, saying, server_of
from outrider.service.otlp import Endpoint, exporting
from outrider.service.service_state import ServiceState


class CrawlServer:
    """One server of one crawl. `open` and `close` may be called in different threads."""

    def __init__(
        self,
        listening: Listening,
        tokens: TokenRoles,
        *,
        names: frozenset[str] = frozenset(),
        collector: Endpoint | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        """collector: receives the metrics, if any; say: prints a sentence when it is lost. Raises SettingsError for an
        address or port that cannot be used, and for unusable certificates."""
        self._collector, self._say = collector, say
        self._listener = bound(listening)
        self._at = listened_at(listening, self._listener)
        self._hosts, self._tokens = hosts_of(listening, names), tokens
        self._thread: threading.Thread | None = None
        self._begun: Future[Callable[[bool], None]] = Future()

    @property
    def url(self) -> str:
        """The address in the form of clients: `http://127.0.0.1:7070`."""
        return self._at.url

    def open(self, crawl: RunningCrawl) -> str:
        """Starts to answer. Raises StoreFailedError if orders cannot be logged in the directory."""
        audit = Audit(crawl.directory)
        try:
            service_state = ServiceState(
                AsyncFrontier(crawl.frontier), hosts=self._hosts, tokens=self._tokens, audit=audit, crawl=crawl
            )
        except BaseException:
            audit.close()
            raise
        self._thread = threading.Thread(
            target=self._run, args=(service_state, audit), name="outrider-http", daemon=True
        )
        self._thread.start()
        self._begun.result()
        return self.url

    def _run(self, service_state: ServiceState, audit: Audit) -> None:
        try:
            asyncio.run(self._served(service_state))
        except BaseException as error:
            if self._begun.done():
                raise
            self._begun.set_exception(error)
        finally:
            service_state.frontier._pool.shutdown(wait=True)
            audit.close()

    async def _served(self, service_state: ServiceState) -> None:
        loop = asyncio.get_running_loop()
        server = server_of(service_state, self._at)
        server.config.load()
        pace = asyncio.ensure_future(service_state.keep_pace())

        def end(at_once: bool) -> None:
            service_state.closing.set()
            server.should_exit, server.force_exit = True, server.force_exit or at_once

        self._begun.set_result(lambda at_once: _call_in_loop(loop, lambda: end(at_once)))
        try:
            async with exporting(service_state, self._collector, self._say):
                with saying(self._say):
                    await server.serve([self._listener])
        finally:
            pace.cancel()

    def close(self, *, at_once: bool = False) -> None:
        """Ends. Requests in progress are answered first, within a few seconds."""
        thread, self._thread = self._thread, None
        if thread is not None and self._begun.done() and self._begun.exception() is None:
            self._begun.result()(at_once)
            thread.join()
        self._listener.close()


def _call_in_loop(loop: asyncio.AbstractEventLoop, work: Callable[[], None]) -> None:
    """Calls a function in the loop of another thread, unless the loop has ended."""
    try:
        loop.call_soon_threadsafe(work)
    except RuntimeError:
        return
