"""A scheduler and a duplicate filter for Scrapy that keep the requests of a spider in a frontier.

    SCHEDULER = "outrider.integrations.scrapy.Scheduler"
    DUPEFILTER_CLASS = "outrider.integrations.scrapy.DupeFilter"

A spider can be killed at any moment. It continues with the requests that were not processed. docs/howto/scrapy.md has
the settings and the promises.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import logging
import math
import os
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

try:
    from scrapy import Request, signals
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "outrider.integrations.scrapy needs Scrapy, which is not installed; run pip install 'outrider[scrapy]'"
    ) from error
from scrapy.core.scheduler import BaseScheduler
from scrapy.dupefilters import BaseDupeFilter, RFPDupeFilter
from scrapy.utils.job import job_dir
from scrapy.utils.misc import load_object
from scrapy.utils.request import referer_str, request_from_dict

from outrider import kernels
from outrider.clock import Instant, elapsed, seconds, wall
from outrider.engine.http_requests import directory_or_address
from outrider.errors import OutriderError, SettingsError, StoreInUseError, UnreachableError
from outrider.fetch.failures import retry_after_seconds
from outrider.integrations.scrapy_engine import (
    Engine,
    LongLived,
    check_version,
    fingerprinter_of,
    is_running,
    keep_state,
)
from outrider.integrations.store_thread import AnyFrontier, Ended, StoreThread, left_in, opened
from outrider.integrations.stored_requests import (
    FILTERED,
    SINGLE,
    START,
    UnstorableError,
    check_identity,
    crawl_of,
    link_of,
    values_of,
)
from outrider.journey import Code, Lease, Link, Outcome, Verdict
from outrider.limits import (
    CRAWL_DELAY_SECONDS_MAX,
    INTEGRATION_AHEAD_MAX,
    INTEGRATION_AHEAD_MIN,
    INTEGRATION_CLOSE_SECONDS_MAX,
    INTEGRATION_PATIENCE_SECONDS,
    INTEGRATION_REFUSALS_PER_CALL,
    MICROSECONDS,
)

logger = logging.getLogger(__name__)
_filter_logger = logging.getLogger("scrapy.dupefilters")  # users filter its lines by this name

SCHEDULER: Final = "outrider.integrations.scrapy.Scheduler"
DUPEFILTER: Final = "outrider.integrations.scrapy.DupeFilter"
_REFUSED: Final = frozenset({429, 503})
_long_lived: Final = LongLived()


class DupeFilter(BaseDupeFilter):  # type: ignore[misc]  # Scrapy is an extra, so its types are not known here
    """Filters requests by their fingerprints. The frontier knows requests of earlier runs; see `Scheduler`."""

    def __init__(self, fingerprinter: Any, *, debug: bool = False) -> None:
        self.fingerprinter, self.debug = fingerprinter, debug
        self._seen = kernels.FingerprintSet()
        self._logged = False

    @classmethod
    def from_crawler(cls, crawler: Any) -> DupeFilter:
        """Raises SettingsError if the scheduler is another one."""
        scheduler = crawler.settings["SCHEDULER"]
        if Scheduler not in load_object(scheduler).__mro__:  # `issubclass` only asks whether it has the same methods
            raise SettingsError(
                f"DUPEFILTER_CLASS {DUPEFILTER} needs SCHEDULER {SCHEDULER}, and SCHEDULER is {scheduler}; set both"
            )
        return cls(crawler.request_fingerprinter, debug=crawler.settings.getbool("DUPEFILTER_DEBUG"))

    def request_seen(self, request: Any) -> bool:
        """Whether an equal request was seen in this run; if not, it was seen from now on."""
        digest = hashlib.blake2b(self.fingerprinter.fingerprint(request), digest_size=10).digest()
        slot = (int.from_bytes(digest[:2], "little") & 0xFFF).to_bytes(2, "little")
        return not self._seen.add(slot, digest[2:])[0]

    def log(self, request: Any, spider: Any) -> None:
        """Logs and counts a request that was filtered, as Scrapy's own filter does."""
        if self.debug:
            told = {"request": request, "referer": referer_str(request)}
            _filter_logger.debug(
                "Filtered duplicate request: %(request)s (referer: %(referer)s)", told, extra={"spider": spider}
            )
        elif not self._logged:
            self._logged = True
            message = (
                "Filtered duplicate request: %(request)s - no more duplicates will be shown"
                " (see DUPEFILTER_DEBUG to show all duplicates)"
            )
            _filter_logger.debug(message, {"request": request}, extra={"spider": spider})
        spider.crawler.stats.inc_value("dupefilter/filtered")


@dataclass(slots=True)
class _Sent:
    """A request that the engine has. lease: None if it is only in memory. found: the requests of its page. began,
    ended: of the download, in microseconds of `elapsed`."""

    lease: Lease | None
    found: list[Link] = field(default_factory=list)
    began: int | None = None
    ended: int | None = None
    status: int | None = None
    retry_after: str | None = None
    error: str | None = None

    def outcome(self, ended_at: Instant | None) -> Outcome:
        """Returns the outcome. ended_at: the end of the download, as an instant of the frontier."""
        assert self.lease is not None
        token = self.lease.token
        if self.began is None:
            return Outcome(token, Verdict.DONE, answered=False)
        took = None if self.ended is None else seconds(self.ended - self.began)
        if self.status is None:
            return Outcome(token, Verdict.GONE, error="no_answer", seconds=took, ended_at=ended_at)
        refused = self.status in _REFUSED
        after = retry_after_seconds(self.retry_after, wall() / MICROSECONDS) if refused and self.retry_after else None
        return Outcome(
            token,
            Verdict.DONE,
            seconds=took,
            ended_at=ended_at,
            status=self.status,
            answered=True,
            refused=refused,
            retry_after_seconds=after,
        )


@dataclass(frozen=True, slots=True)
class _Settings:
    """The settings of a spider that the frontier needs. source: the setting that names the store, with its value."""

    source: str
    directory: str | None
    address: str | None
    token: str | None
    ca: str | None
    delay: float
    per_domain: int
    ahead: int
    unstored_max: int
    slots: dict[str, dict[str, Any]]
    auto_throttle: bool

    @property
    def place(self) -> str:
        """Where the requests are, in words for the log."""
        return (
            self.address
            or self.directory
            or "memory, and end with this process; set JOBDIR or OUTRIDER_FRONTIER to keep them"
        )

    @property
    def per_queue(self) -> int:
        """How many leases of one host a turn takes. Without a delay they are many, and the slot of the downloader
        limits how many of them are sent at once."""
        return 1 if self.delay or self.address is not None else min(self.ahead, 4 * self.per_domain)

    @property
    def per_host(self) -> int:
        """How many leases of one host are open at once. A slow page uses one of them; the others go on."""
        return max(self.per_domain, self.per_queue)

    @classmethod
    def of(cls, settings: Any) -> _Settings:
        """Raises SettingsError for settings that contradict each other, or with which no request would be sent."""
        told = {name: settings.get(name) or os.environ.get(name) for name in _NAMES}
        place = told["OUTRIDER_FRONTIER"]
        job = job_dir(settings)
        if place:
            directory, address = directory_or_address(place)
        else:
            directory, address = os.path.join(job, "outrider") if job else None, None
        if address is None:
            for name in ("OUTRIDER_TOKEN", "OUTRIDER_CA"):
                if settings.get(name):
                    where = f"OUTRIDER_FRONTIER is {place!r}" if place else "OUTRIDER_FRONTIER is not set"
                    raise SettingsError(
                        f"{name} is only for a server, and {where}; remove {name}, or set OUTRIDER_FRONTIER to the "
                        "address of the server"
                    )
        delay, slots = settings.getfloat("DOWNLOAD_DELAY"), settings.getdict("DOWNLOAD_SLOTS")
        _check_delay("DOWNLOAD_DELAY", delay)
        if not (settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN") > 0 or settings.getint("CONCURRENT_REQUESTS_PER_IP")):
            raise SettingsError(
                f"CONCURRENT_REQUESTS_PER_DOMAIN is {settings['CONCURRENT_REQUESTS_PER_DOMAIN']}, so Scrapy would send "
                "no request; use 1 or more"
            )
        for key, slot in slots.items():
            _check_slot(key, slot)
        concurrent = settings.getint("CONCURRENT_REQUESTS")
        ahead = min(INTEGRATION_AHEAD_MAX, max(INTEGRATION_AHEAD_MIN, 2 * concurrent or INTEGRATION_AHEAD_MAX))
        return cls(
            f"OUTRIDER_FRONTIER {place}" if place else f"JOBDIR {job}",
            directory,
            address,
            told["OUTRIDER_TOKEN"],
            told["OUTRIDER_CA"],
            delay,
            max(1, settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN")),
            ahead,
            concurrent or INTEGRATION_AHEAD_MAX,
            slots,
            settings.getbool("AUTOTHROTTLE_ENABLED"),
        )


_NAMES: Final = ("OUTRIDER_FRONTIER", "OUTRIDER_TOKEN", "OUTRIDER_CA")


def _check_delay(name: str, delay: object) -> None:
    if not isinstance(delay, (int, float)) or not 0 <= delay <= CRAWL_DELAY_SECONDS_MAX:
        raise SettingsError(f"{name} is {delay!r:.80}; use a number of seconds from 0 to {CRAWL_DELAY_SECONDS_MAX:.0f}")


def _check_slot(key: object, slot: object) -> None:
    """Checks an entry of DOWNLOAD_SLOTS."""
    name = f"DOWNLOAD_SLOTS[{key!r:.80}]"
    if not isinstance(slot, dict):
        raise SettingsError(f"{name} is {slot!r:.80}; use a dict such as {{'delay': 1.0, 'concurrency': 1}}")
    _check_delay(f"{name}['delay']", slot.get("delay", 0))
    concurrency = slot.get("concurrency", 1)
    if not isinstance(concurrency, int) or concurrency < 1:
        raise SettingsError(f"{name}['concurrency'] is {concurrency!r:.80}; use a whole number from 1 on")


class Scheduler(BaseScheduler):  # type: ignore[misc]  # as above
    """Keeps the requests of a spider in a frontier: one crawl, with the name of the spider.

    A request is durable together with the page that it was found on, after the callback and the item pipelines of that
    page. A request that cannot be stored stays in memory.
    """

    def __init__(self, crawler: Any, dupefilter: Any) -> None:
        self.crawler, self.stats, self.df = crawler, crawler.stats, dupefilter
        self.settings: _Settings
        self._debug = crawler.settings.getbool("SCHEDULER_DEBUG")
        self.spider: Any = None
        self._crawl = ""
        self._fingerprinter: Any = None
        self._engine: Engine | None = None
        self._store: StoreThread | None = None
        self._frontier: AnyFrontier = None
        self._sent: dict[Any, _Sent] = {}
        self._unstorable: list[tuple[int, int, Any]] = []  # (-priority, number, request)
        self._kinds: set[str] = set()
        self._numbers = itertools.count()
        self._starts: Counter[bytes] = Counter()
        self._start_numbers = itertools.count(1)
        self._methods: dict[Any, str] = {}
        self._classes: dict[type, str] = {}
        self._slots: set[str] = set()
        self._delays: dict[str, float] = {}
        self._since = 0.0
        self._woken = False

    @classmethod
    def from_crawler(cls, crawler: Any) -> Scheduler:
        """Raises SettingsError."""
        kind = load_object(crawler.settings["DUPEFILTER_CLASS"])
        make = getattr(kind, "from_crawler", None)
        return cls(crawler, make(crawler) if make is not None else kind())

    # -- opening and closing ------------------------------------------------------------------------------------------

    def open(self, spider: Any) -> Any:
        """Opens the store. Raises SettingsError, StoreInUseError, UnreachableError and the other errors of a store."""
        with ExitStack() as unless_opened:
            unless_opened.callback(keep_state, self.crawler)
            opened = self._open(spider)
            unless_opened.pop_all()
        return opened

    def _open(self, spider: Any) -> Any:
        check_version()
        if type(self.df) is RFPDupeFilter:
            raise SettingsError(
                f"SCHEDULER {SCHEDULER} needs DUPEFILTER_CLASS {DUPEFILTER}, and DUPEFILTER_CLASS is Scrapy's own: it "
                "would filter requests that a kill lost; set both"
            )
        self.settings = _Settings.of(self.crawler.settings)
        self.spider = spider
        self._crawl, self._fingerprinter = crawl_of(spider.name), fingerprinter_of(self.crawler)
        if is_running(self.crawler):
            self._engine = Engine(self.crawler)
        self._frontier = self._opened(spider.name)
        logger.info("The requests of this spider are in %s", self.settings.place, extra={"spider": spider})
        left = left_in(self._frontier, self._crawl)
        if left:
            logger.info(
                "Resuming crawl (%(queuesize)d requests scheduled)", {"queuesize": left}, extra={"spider": spider}
            )
        self._store = StoreThread(
            self._frontier,
            self._crawl,
            ahead=self.settings.ahead,
            per_queue=self.settings.per_queue,
            wake=self._wake,
            failed=self._failed,
        )
        if self._engine is not None:
            self._since = self._engine.ticks()
            self._engine.watch(self._left)
            for signal, handler in (
                (signals.request_reached_downloader, self._reached),
                (signals.request_left_downloader, self._left_downloader),
                (signals.response_downloaded, self._downloaded),
                (signals.robots_parsed, self._robots_parsed),
            ):
                self.crawler.signals.connect(handler, signal=signal)
            self._store.start()
            _long_lived.opened(self)
        return self.df.open()

    def _opened(self, name: str) -> AnyFrontier:
        told = self.settings
        rules: dict[str, object] = {"delay": told.delay, "delay_factor": 0}
        try:
            frontier = opened(
                told.directory,
                told.address,
                settings=rules,
                token=told.token,
                ca=told.ca,
                worker=f"scrapy-{name}-{os.getpid()}-{os.urandom(3).hex()}",
                patience_seconds=INTEGRATION_PATIENCE_SECONDS,
            )
        except UnreachableError as error:
            raise UnreachableError(
                f"OUTRIDER_FRONTIER {told.address}: no server answered for {INTEGRATION_PATIENCE_SECONDS:.0f} s; start "
                "it with `outrider serve`, or correct the address"
            ) from error
        except StoreInUseError as error:
            raise StoreInUseError(
                f"{told.source}: another spider or program uses {told.directory}; end it, use another JOBDIR for this "
                "spider, or let spiders share a server (`outrider serve`)"
            ) from error
        except OutriderError as error:
            raise type(error)(f"{told.source}: {error.facts}") from error
        try:
            if told.directory is not None:
                kind = type(self._fingerprinter)
                check_identity(Path(told.directory), name, f"{kind.__module__}.{kind.__qualname__}")
            frontier.make_crawl(self._crawl, unique="caller", order="lifo")
            if told.per_host > 1:
                frontier.set_limit(told.per_host, crawl=self._crawl)
            if told.address is not None and told.delay:
                frontier.set_delay(told.delay, crawl=self._crawl)
        except BaseException:
            frontier.close()
            raise
        return frontier

    def close(self, reason: str) -> Any:
        """Stores what is left, and closes the store."""
        store, self._store = self._store, None
        _long_lived.closed(self)
        if store is not None:
            if self._unstorable:
                logger.warning(
                    "%d requests that cannot be stored are lost with this process (scheduler/unserializable)",
                    len(self._unstorable),
                )
            if self._engine is None:
                self._write_alone(store)
            if not store.close(INTEGRATION_CLOSE_SECONDS_MAX):
                logger.error("The frontier did not store everything within %.0f s", INTEGRATION_CLOSE_SECONDS_MAX)
            self.stats.set_value("frontier/turns", store.turns)
            try:
                self._close_frontier(failed=store.error is not None)
            except OutriderError as error:
                logger.error("The frontier could not be closed: %s", error)
        return self.df.close(reason)

    def _close_frontier(self, *, failed: bool) -> None:
        if failed:  # a question would wait for the server again
            self._frontier.close()
            return
        left = left_in(self._frontier, self._crawl)
        self.stats.set_value("frontier/left", left)
        known = self.stats.get_value("frontier/start_requests_known") or self.stats.get_value("dupefilter/filtered")
        if left == 0 and known and not self.stats.get_value("scheduler/dequeued"):
            logger.info(
                "No request was sent: all requests of this spider in %s are processed; to crawl again, begin a new "
                "JOBDIR or OUTRIDER_FRONTIER",
                self.settings.place,
            )
        self._frontier.close(*(("finished",) if left == 0 and self.settings.address is None else ()))

    def _failed(self, error: Exception) -> None:
        reason = "frontier_unreachable" if isinstance(error, UnreachableError) else "frontier_failed"
        logger.error("The frontier failed, so the spider is closed (%s): %s", reason, error)
        if self._engine is not None:
            self._engine.call(partial(self._engine.end, reason))

    # -- the engine's calls -------------------------------------------------------------------------------------------

    def has_pending_requests(self) -> bool:
        """Whether the crawl has requests, or pages that are not stored yet; also while all hosts rest."""
        store = self._store
        if store is None or store.error is not None:
            return False
        if self._engine is None:
            self._write_alone(store)
        return bool(self._unstorable or self._sent or not store.finished)

    def __len__(self) -> int:
        """How many requests are scheduled, for programs that ask."""
        if self._store is not None and self._engine is None:
            self._write_alone(self._store)
        return left_in(self._frontier, self._crawl) + len(self._unstorable)

    def enqueue_request(self, request: Any) -> bool:
        """Notes a request. Returns False for one that is filtered."""
        filtered = not request.dont_filter
        if filtered and self.df.request_seen(request):
            self.df.log(request, self.spider)
            return False
        page = self._engine.page_of_caller() if self._engine is not None else None
        sent = self._sent.get(page) if page is not None else None
        try:
            link = self._link_of(request, filtered=filtered, starts=sent is None)
        except UnstorableError as error:
            self._keep(request, error)
            return True
        if sent is not None and sent.lease is not None:
            sent.found.append(link)
        elif self._store is not None:
            self._store.add(link)
        self._count("enqueued")
        return True

    def next_request(self) -> Any:
        """Returns a request that may be sent now, or None. Never waits."""
        store = self._store
        if store is None:
            return None
        while True:
            if self._unstorable:
                request = heapq.heappop(self._unstorable)[2]
                self._sent[request] = _Sent(None)
                self._counts("dequeued", "memory")
                return self._handed_out(request)
            # A kill fetches again what is not stored, so this is limited like what is sent.
            is_full = store.unstored >= self.settings.unstored_max
            if self._engine is None and (is_full or not store.ready):
                self._write_alone(store)
                is_full = False
            lease = None if is_full else store.take()
            if lease is None:
                return None
            request = self._leased(lease)
            if request is not None:
                self._sent[request] = _Sent(lease)
                self._count("dequeued")
                return self._handed_out(request)

    # -- requests -----------------------------------------------------------------------------------------------------

    def _handed_out(self, request: Any) -> Any:
        if self._engine is None:  # a program without an engine says nothing more of it
            self._left(request)
        return request

    def _link_of(self, request: Any, *, filtered: bool, starts: bool) -> Link:
        fingerprint = self._fingerprinter.fingerprint(request)
        start = next(self._start_numbers) if request.meta.get("is_start_request") else 0
        if filtered and isinstance(self.df, DupeFilter):
            unique = FILTERED + fingerprint
        elif starts and not filtered and start:
            self._starts[fingerprint] += 1
            unique = START + self._starts[fingerprint].to_bytes(4, "big") + fingerprint
        else:
            unique = SINGLE + os.urandom(8) + fingerprint
        return link_of(self._values_of(request), self._crawl, unique, start=start)

    def _values_of(self, request: Any) -> dict[str, Any]:
        """Returns what `request.to_dict` returns; the names of callbacks are searched once."""
        kind = type(request)
        if kind.to_dict is not Request.to_dict:
            found: dict[str, Any] = request.to_dict(spider=self.spider)
            return found
        values = {
            "url": request.url,
            "callback": self._method(request.callback),
            "errback": self._method(request.errback),
            "headers": dict(request.headers),
        }
        for name in request.attributes:
            if name not in values:
                values[name] = getattr(request, name)
        if kind is not Request:
            values["_class"] = self._class_of(kind)
        return values

    def _class_of(self, kind: type) -> str:
        """Returns the name of a class of requests, with which a later run finds it."""
        name = self._classes.get(kind)
        if name is None:
            name = f"{kind.__module__}.{kind.__qualname__}"
            try:
                found = load_object(name)
            except (ValueError, ImportError, NameError):
                found = None
            if found is not kind:
                raise UnstorableError(f"its class {name} cannot be imported; define it at the top of a module")
            self._classes[kind] = name
        return name

    def _method(self, function: Any) -> Any:
        if not callable(function):
            return function
        inner = getattr(function, "__func__", None)
        name = self._methods.get(inner) if inner is not None else None
        if name is None:
            if getattr(function, "__self__", None) is self.spider and inner is not None:
                name = next((one for one in dir(type(self.spider)) if _is_method(self.spider, one, inner)), None)
            if name is None:
                raise UnstorableError(f"{function!r} is not a method of the spider")
            self._methods[inner] = name
        return name

    def _leased(self, lease: Lease) -> Any:
        """Returns the request of a lease, or None. One that cannot be made anew ends."""
        request = self._request_of(lease)
        if request is None and self._store is not None:
            self._store.end(Ended(Outcome(lease.token, Verdict.GONE, error="unreadable")))
        return request

    def _request_of(self, stored: Lease | Link) -> Any:
        """Returns the request of a lease or link. If it cannot be made anew, counts and logs this, and returns None."""
        try:
            values = values_of(stored)
            if values is None:
                return Request(stored.url)
            named = values.get("_class")
            if named is not None and not (isinstance(named, str) and issubclass(load_object(named), Request)):
                raise ValueError(f"{named!r} is not a class of requests")
            return request_from_dict(values, spider=self.spider)
        except (ValueError, TypeError, ImportError, AttributeError, NameError) as error:
            logger.error("A stored request for %s cannot be made: %s", stored.url, error)
            self.stats.inc_value("frontier/unreadable")
            return None

    def _keep(self, request: Any, error: UnstorableError) -> None:
        """Keeps a request in memory, and logs the first of its kind."""
        kind = str(error)
        if kind not in self._kinds and (self._debug or len(self._kinds) < 1_000):
            self._kinds.add(kind)
            logger.warning(
                "Unable to serialize request: %(request)s - reason: %(reason)s - it stays in memory and is lost if the "
                "process ends (stats being collected)",
                {"request": request, "reason": error},
                extra={"spider": self.spider},
            )
        self.stats.inc_value("scheduler/unserializable")
        heapq.heappush(self._unstorable, (-request.priority, next(self._numbers), request))
        self._counts("enqueued", "memory")

    def _refused(self, link: Link, code: Code) -> None:
        """Handles a request that the frontier did not store. It is made anew: only the links of waiting requests are
        kept, because the garbage collector would visit the ten objects of each request."""
        self._count("enqueued", -1)
        request = self._request_of(link)
        if request is None:
            return
        if code is not Code.KNOWN:
            self._keep(request, UnstorableError(f"the frontier answered {code.value}"))
        elif request.dont_filter:
            self.stats.inc_value("frontier/start_requests_known")
        else:
            self.df.log(request, self.spider)
            self.crawler.signals.send_catch_log(signal=signals.request_dropped, request=request, spider=self.spider)

    # -- what happens to requests -------------------------------------------------------------------------------------

    def _left(self, request: Any) -> None:
        """A page is processed: its callback and its item pipelines ended."""
        sent = self._sent.pop(request, None)
        if sent is None or self._store is None:
            return
        if sent.lease is None:
            for link in sent.found:
                self._store.add(link)
            return
        if sent.began is not None and sent.ended is None:
            self._store.rest(sent.lease.token, None, None)
        ended_at = None if sent.ended is None else self._store.instant(sent.ended)
        self._store.end(Ended(sent.outcome(ended_at), sent.found))

    def _reached(self, request: Any, spider: Any) -> None:
        sent = self._sent.get(request)
        if sent is not None:
            sent.began = elapsed()
        if self._engine is None:
            return
        key = request.meta.get("download_slot", "")
        slot = self._engine.slot_of(request)
        if slot is not None and not self.settings.auto_throttle:
            self._guard(key, slot)

    def _guard(self, key: str, slot: Any) -> None:
        """Lets a download slot keep the same gap as the frontier, without its random variation. It also applies to
        requests that no scheduler sees, such as those for robots.txt. The first request of a run waits one delay,
        because the last request of the run before may have been any."""
        if hasattr(slot, "jitter"):
            slot.jitter = 0.0
        else:
            slot.randomize_delay = False
        slot.delay = max(slot.delay, self._delays.get(key, 0.0))
        if slot.lastseen == 0:
            slot.lastseen = self._since
        if key not in self._slots:
            self._slots.add(key)
            self._set_slot(key)

    def _set_slot(self, key: str) -> None:
        """Passes the entry of DOWNLOAD_SLOTS for a slot to the frontier."""
        told, crawl = self.settings.slots.get(key), self._crawl
        if told and self._store is not None:
            if "delay" in told:
                self._store.order(lambda f: f.set_delay(told["delay"], key, crawl=crawl))
            if "concurrency" in told:
                self._store.order(lambda f: f.set_limit(told["concurrency"], key, crawl=crawl))

    def _left_downloader(self, request: Any, spider: Any) -> None:
        sent = self._sent.get(request)
        if sent is not None and sent.lease is not None and sent.began is not None and self._store is not None:
            sent.ended = elapsed()
            self._store.rest(sent.lease.token, seconds(sent.ended - sent.began), self._store.instant(sent.ended))

    def _downloaded(self, response: Any, request: Any, spider: Any) -> None:
        sent = self._sent.get(request)
        if sent is not None:
            sent.status = response.status
            after = response.headers.get("Retry-After")
            sent.retry_after = after.decode("latin-1") if after else None
        slot = self._engine.slot_of(request) if self._engine is not None else None
        if slot is not None and self._engine is not None and (sent is None or self.settings.per_domain == 1):
            slot.lastseen = self._engine.ticks()  # the delay begins at the end of a request, also for one of robots.txt

    def _robots_parsed(self, robotparser: Any, request: Any) -> None:
        """Keeps the Crawl-delay of a host, if it is longer than the delay of the settings."""
        agent = self.crawler.settings["ROBOTSTXT_USER_AGENT"] or self.crawler.settings["USER_AGENT"]
        ask = getattr(robotparser, "crawl_delay", None)
        delay = ask(agent) if ask is not None else None
        if delay is None or not math.isfinite(delay) or delay <= self.settings.delay or self._store is None:
            return
        key = request.meta.get("download_slot") or request.url.split("/")[2].rsplit("@", 1)[-1].split(":")[0]
        if self._delays.get(key) != delay:
            self._delays[key] = float(delay)
            crawl = self._crawl
            self._store.order(lambda f: f.set_delay(float(delay), key, crawl=crawl))
            self.stats.inc_value("frontier/crawl_delays")

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        if self._engine is not None and not self._woken:
            self._woken = True
            self._engine.call(self._take_refused)

    def _take_refused(self) -> None:
        """Handles what the thread changed, and lets the engine ask for requests."""
        self._woken = False
        store = self._store
        if store is None or self._engine is None:
            return
        for _ in range(min(len(store.refused), INTEGRATION_REFUSALS_PER_CALL)):
            self._refused(*store.refused.popleft())
        if store.refused:
            self._wake()
        self._engine.ask_again()

    def _write_alone(self, store: StoreThread) -> None:
        """Makes a turn in this thread: of a program that calls a scheduler without an engine."""
        store.turn()
        while store.refused:
            self._refused(*store.refused.popleft())

    def _count(self, what: str, by: int = 1) -> None:
        kept = self.settings.directory is not None or self.settings.address is not None
        self._counts(what, "disk" if kept else "memory", by)

    def _counts(self, what: str, where: str, by: int = 1) -> None:
        self.stats.inc_value(f"scheduler/{what}", by)
        self.stats.inc_value(f"scheduler/{what}/{where}", by)


def _is_method(spider: Any, name: str, function: Callable[..., Any]) -> bool:
    return getattr(getattr(spider, name, None), "__func__", None) is function
