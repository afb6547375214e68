"""The undocumented parts of Scrapy's engine that are used. They are checked when a spider opens.

Scrapy tells a scheduler neither when a page is processed, nor which page a request was found on, nor when to ask
again. These are in `_slot.inprogress`, in the frames of the two functions that pass on what a page gave, and in
`_slot.nextcall`.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Callable
from types import CodeType
from typing import Any, Final

import scrapy
from scrapy.core import downloader as downloader_module
from scrapy.core.engine import ExecutionEngine
from scrapy.core.scraper import Scraper
from scrapy.extensions.spiderstate import SpiderState
from scrapy.utils.misc import build_from_crawler, load_object
from scrapy.utils.reactor import is_reactor_installed

from outrider.errors import SettingsError
from outrider.limits import CALLER_FRAMES_MAX

SCRAPY_MIN: Final = (2, 18)


class InProgress(set[Any]):
    """The requests that the engine works on. left: is called with each request when its page is processed."""

    def __init__(self, requests: set[Any], left: Callable[[Any], None]) -> None:
        super().__init__(requests)
        self._left = left

    def remove(self, request: Any) -> None:
        super().remove(request)
        self._left(request)


class LongLived:
    """The objects that the garbage collector of Python skips while spiders are open: all that exist when the first one
    opens. Scrapy and what it imports have 100,000 of them. Without this, each full collection stops the event loop to
    visit them. A program that uses `gc.freeze` itself keeps its own choice."""

    def __init__(self) -> None:
        self._open: set[object] = set()
        self._skips = False

    def opened(self, scheduler: object) -> None:
        """Notes an open spider. The first one lets collections skip all objects of now."""
        if not self._open and gc.get_freeze_count() == 0:
            gc.collect()  # otherwise, garbage would be skipped too
            gc.freeze()
            self._skips = True
        self._open.add(scheduler)

    def closed(self, scheduler: object) -> None:
        """Forgets a spider. After the last one, all objects are visited again."""
        self._open.discard(scheduler)
        if self._skips and not self._open:
            gc.unfreeze()
            self._skips = False


def check_version() -> None:
    """Raises SettingsError for a Scrapy that is too old."""
    if scrapy.version_info[:2] < SCRAPY_MIN:
        raise SettingsError(
            f"SCHEDULER outrider.integrations.scrapy.Scheduler needs Scrapy {SCRAPY_MIN[0]}.{SCRAPY_MIN[1]} or later, "
            f"and {scrapy.__version__} is installed: its engine lacks parts that are needed"
        )


def keep_state(crawler: Any) -> None:
    """Lets Scrapy write no `spider.state` for a spider that could not open. Its extension opens the file for writing
    before it looks for the state, so the spider that owns the JOBDIR would lose its own."""
    for one in getattr(getattr(crawler, "extensions", None), "middlewares", ()):
        if isinstance(one, SpiderState):
            one.jobdir = None


def is_running(crawler: Any) -> bool:
    """Whether an engine of Scrapy runs this crawler. A program that calls a scheduler by itself needs none."""
    try:
        return isinstance(crawler.engine, ExecutionEngine)
    except RuntimeError:  # from Scrapy 2.19 on, before the crawl starts
        return False


def fingerprinter_of(crawler: Any) -> Any:
    """Returns what makes the fingerprints of requests. A crawler that has not started has none yet."""
    try:
        found = crawler.request_fingerprinter
    except RuntimeError:  # as above
        found = None
    kind = crawler.settings["REQUEST_FINGERPRINTER_CLASS"]
    return build_from_crawler(load_object(kind), crawler) if found is None else found


def _code(kind: type, name: str, variable: str) -> CodeType:
    method = getattr(kind, name, None)
    code = getattr(getattr(method, "__wrapped__", method), "__code__", None)
    if not isinstance(code, CodeType) or variable not in code.co_varnames:
        raise _refusal(f"{kind.__name__}.{name}(…, {variable})", "which page a request was found on")
    return code


def _refusal(part: str, why: str) -> SettingsError:
    return SettingsError(
        f"SCHEDULER outrider.integrations.scrapy.Scheduler cannot run with Scrapy {scrapy.__version__}: it needs the "
        f"private part {part} to know {why}, and this version does not have it; use Scrapy 2.18 or 2.19"
    )


class Engine:
    """The parts of the engine of one crawler. Raises SettingsError if one is missing."""

    def __init__(self, crawler: Any) -> None:
        self._crawler, self._engine = crawler, crawler.engine
        self._slot: Any = getattr(self._engine, "_slot", None)
        if not isinstance(getattr(self._slot, "inprogress", None), set):
            raise _refusal("ExecutionEngine._slot.inprogress", "when a page is processed")
        if not callable(getattr(getattr(self._slot, "nextcall", None), "schedule", None)):
            raise _refusal("ExecutionEngine._slot.nextcall.schedule", "how the engine asks for the next request")
        self._of_page = _code(Scraper, "_process_spidermw_output_async", "response")
        self._of_download = _code(ExecutionEngine, "_handle_downloader_output", "request")
        self._call: Callable[[Callable[[], None]], object] = _caller()
        ticks = "monotonic" if hasattr(downloader_module, "monotonic") else "time"
        self.ticks: Callable[[], float] = getattr(time, ticks)
        """The clock of `lastseen` of a download slot."""

    def watch(self, left: Callable[[Any], None]) -> None:
        """Calls `left` with each request whose page is processed."""
        self._slot.inprogress = InProgress(self._slot.inprogress, left)

    def call(self, function: Callable[[], None]) -> None:
        """Calls a function in the engine's thread soon; from any thread."""
        self._call(function)

    def ask_again(self) -> None:
        """Lets the engine call `next_request` soon."""
        self._slot.nextcall.schedule()

    def page_of_caller(self) -> Any:
        """Returns the request of the page that the request of the present call was found on; None without one."""
        frame = sys._getframe(2)
        for _ in range(CALLER_FRAMES_MAX):
            if frame.f_code is self._of_page:
                return getattr(frame.f_locals["response"], "request", None)
            if frame.f_code is self._of_download:
                return frame.f_locals["request"]
            if frame.f_back is None:
                break
            frame = frame.f_back
        return None

    def end(self, reason: str) -> None:
        """Closes the spider."""
        from scrapy.utils.defer import _schedule_coro

        _schedule_coro(self._engine.close_spider_async(reason=reason))

    def slot_of(self, request: Any) -> Any:
        """Returns the download slot of a request that reached the downloader, None without one."""
        downloader = self._engine.downloader
        return getattr(downloader, "slots", {}).get(request.meta.get("download_slot"))


def _caller() -> Callable[[Callable[[], None]], object]:
    if is_reactor_installed():
        from twisted.internet import reactor

        found: Callable[[Callable[[], None]], object] = reactor.callFromThread
        return found
    return asyncio.get_running_loop().call_soon_threadsafe
