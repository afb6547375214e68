"""The calls of URLFrontier with one request each: lists, counts, and the orders of operators.

An empty crawl id is `DEFAULT`. This server is one node, so `local` changes nothing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from outrider.engine.url_exchange import DATE_MAX, DEFAULT_CRAWL, KEPT_FILE, KnownUrl, UrlExchange
from outrider.errors import DamagedStoreError, SettingsError
from outrider.frontier.verbs.unique import key_of_text
from outrider.journey import Link, State
from outrider.limits import MICROSECONDS
from outrider.service.access import Role
from outrider.service.grpc_status import GrpcError, GrpcStatus
from outrider.url import host_of, spell

PAGE_ROWS: Final = 100
"""How many rows a page has if the request says 0."""
DAY_SECONDS: Final = 86_400
_LEVELS: Final = (5, logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)

Request = Mapping[str, Any]
Answer = dict[str, Any]
Lives = Callable[[], bool]
"""Whether a call still has a client."""

ROLES: Final[dict[str, Role]] = {
    "ListNodes": Role.READ, "ListCrawls": Role.READ, "ListQueues": Role.READ, "GetStats": Role.READ,
    "GetActive": Role.READ, "GetURLStatus": Role.READ, "ListURLs": Role.READ, "CountURLs": Role.READ,
    "GetURLs": Role.WORK, "PutURLs": Role.WORK, "PutDiscovered": Role.WORK,
    "DeleteCrawl": Role.OPERATE, "DeleteQueue": Role.OPERATE, "BlockQueueUntil": Role.OPERATE,
    "SetActive": Role.OPERATE, "SetDelay": Role.OPERATE, "SetCrawlLimit": Role.OPERATE, "PurgeURLs": Role.OPERATE,
    "SetLogLevel": Role.ADMIN,
}  # fmt: skip
"""The role that each call needs. The calls of operators have a line in audit.jsonl."""


def crawl_of(request: Request) -> str:
    """The crawl that a request names."""
    return str(request.get("crawlID", "")).strip() or DEFAULT_CRAWL


def key_of(request: Request) -> str | None:
    """The key that a request names, None without one."""
    return str(request.get("key", "")) or None


class KeptOrders(msgspec.Struct):
    """The orders that belong to no queue. delay: of all queues, in seconds; limits: crawl, key, completed URLs."""

    active: bool = True
    delay: int | None = None
    limits: list[tuple[str, str, int]] = []


def _read_kept(exchange: UrlExchange) -> KeptOrders:
    octets = exchange.kept()
    try:
        return msgspec.json.decode(octets, type=KeptOrders) if octets else KeptOrders()
    except ValueError as error:
        raise DamagedStoreError(
            f"{KEPT_FILE} of the frontier is damaged ({error}); move it away to begin anew"
        ) from None


class Calls:
    """The answers to calls with one request. node: the address of this server."""

    def __init__(self, exchange: UrlExchange, node: str) -> None:
        self._exchange, self._node = exchange, node
        self._kept = _read_kept(exchange)
        self._lock = threading.Lock()
        delay = self._kept.delay
        exchange.default_delay = None if delay is None else float(delay)
        self.limits: dict[tuple[str, str], int] = {(crawl, key): limit for crawl, key, limit in self._kept.limits}
        """How many URLs of a (crawl, key) may be completed."""
        for crawl, key in self.limits:
            self.hold(crawl, key)  # after a kill between an update and its effect on a limit
        self.unary: dict[str, Callable[[Request], Answer]] = {
            "ListNodes": lambda request: {"values": [self._node]},
            "ListCrawls": lambda request: {"values": self._exchange.crawls()},
            "DeleteCrawl": self._delete_crawl,
            "GetStats": self._stats,
            "DeleteQueue": self._delete_queue,
            "BlockQueueUntil": self._block,
            "SetActive": self._set_active,
            "GetActive": lambda request: {"state": self.active},
            "SetDelay": self._set_delay,
            "SetLogLevel": self._set_log_level,
            "SetCrawlLimit": self._set_crawl_limit,
            "GetURLStatus": self._url_status,
        }
        self.scans: dict[str, Callable[[Request, Lives], Answer]] = {
            "ListQueues": self._list_queues,
            "CountURLs": self._count,
            "PurgeURLs": self._purge,
        }
        """Calls that may read everything. They end early if their client is gone."""

    @property
    def active(self) -> bool:
        """Whether URLs are handed out."""
        return self._kept.active

    def _keep(self) -> None:
        with self._lock:
            self._exchange.keep(msgspec.json.encode(self._kept))

    # -- reading ------------------------------------------------------------------------------------------------------

    def _stats(self, request: Request) -> Answer:
        totals = self._exchange.totals(crawl_of(request), key_of(request))
        return {
            "size": totals.open,
            "inProcess": min(totals.leased, 0xFFFF_FFFF),
            "counts": {"completed": totals.completed, "active_queues": totals.active},
            "numberOfQueues": totals.queues,
            "crawlID": crawl_of(request),
        }

    def _list_queues(self, request: Request, lives: Lives) -> Answer:
        start, size = int(request.get("start", 0)), int(request.get("size", 0)) or PAGE_ROWS
        inactive, now = bool(request.get("include_inactive")), self._exchange.now()
        keys: dict[str, None] = {}
        total = 0
        for queue in self._exchange.queues(crawl_of(request), lives):
            is_blocked = queue.paused or (queue.blocked_until or 0) > now
            is_empty = not (queue.queued or queue.leased or queue.waiting or queue.parked)
            if queue.key in keys or (not inactive and (is_blocked or is_empty)):
                continue
            total += 1
            if total > start and len(keys) < size:
                keys[queue.key] = None
        shown = {"total": total, "start": start, "size": size, "crawlID": crawl_of(request)}
        return {"values": list(keys), **shown}

    def _url_status(self, request: Request) -> Answer:
        url, key = str(request.get("url", "")), key_of(request)
        if not url or (key is None and not queue_key(url)):
            raise GrpcError(GrpcStatus.INVALID_ARGUMENT, f"url {url!r:.200} has no host; send its key")
        found = self._exchange.url(Link(url, key=key), crawl_of(request))
        if found is None:
            raise GrpcError(GrpcStatus.NOT_FOUND, f"url {url!r:.200} is not in crawl {crawl_of(request)!r:.200}")
        return self._item(found)

    def _item(self, found: KnownUrl) -> Answer:
        status = found.status
        metadata = {name: {"values": values} for name, values in listed(found.metadata).items()}
        info = {"url": status.url, "key": status.key, "metadata": metadata, "crawlID": status.crawl}
        created = status.discovered_at
        if status.state in (State.DONE, State.GONE):
            date = 0
        else:
            date = (status.due or created or self._exchange.now()) // MICROSECONDS
        known = {"info": info, "refetchable_from_date": date}
        return {"known": known, "creation_date": None if created is None else created // MICROSECONDS}

    def list_urls(self, request: Request, lives: Lives) -> Iterator[Answer]:
        """The items of `ListURLs`, while the call lives."""
        start, size = int(request.get("start", 0)), int(request.get("size", 0)) or PAGE_ROWS
        wanted = _filter_of(request)
        place = 0
        for found in self._exchange.urls(crawl_of(request), key_of(request), lives):
            if not wanted(found.status.url):
                continue
            place += 1
            if place > start:
                name = Link(found.status.url, key=found.status.key)
                yield self._item(self._exchange.url(name, crawl_of(request)) or found)
            if place >= start + size:
                return

    def _count(self, request: Request, lives: Lives) -> Answer:
        if not request.get("filter"):
            return {"value": self._exchange.totals(crawl_of(request), key_of(request)).urls}
        wanted = _filter_of(request)
        urls = self._exchange.urls(crawl_of(request), key_of(request), lives)
        return {"value": sum(wanted(found.status.url) for found in urls)}

    # -- orders -------------------------------------------------------------------------------------------------------

    def _delete_crawl(self, request: Request) -> Answer:
        crawl = str(request.get("value", "")).strip() or DEFAULT_CRAWL
        count = self._exchange.delete(crawl, None)
        self._hold_again(crawl, None)
        return {"value": count}

    def _delete_queue(self, request: Request) -> Answer:
        key = key_of(request)
        count = 0 if key is None else self._exchange.delete(crawl_of(request), key)
        self._hold_again(crawl_of(request), key)
        return {"value": count}

    def _hold_again(self, crawl: str, key: str | None) -> None:
        for of_crawl, of_key in list(self.limits):
            if of_crawl == crawl and key in (None, of_key):
                self.hold(of_crawl, of_key)

    def _block(self, request: Request) -> Answer:
        key, time = key_of(request), int(request.get("time", 0))
        if key is None:
            raise GrpcError(GrpcStatus.INVALID_ARGUMENT, "key is empty; send the key of a queue")
        # A block includes its second.
        until = 0 if time == 0 else (checked_date("time", time) + 1) * MICROSECONDS
        self._exchange.block_until(until, crawl_of(request), key)
        return {}

    def _set_delay(self, request: Request) -> Answer:
        key, delay = key_of(request), int(request.get("delay_requestable", 0))
        if key is not None:
            self._exchange.set_delay(float(delay), crawl_of(request), key)
            return {}
        self._kept.delay = delay
        self._keep()
        self._exchange.default_delay = float(delay)
        for crawl in self._exchange.crawls():
            self._exchange.set_delay(float(delay), crawl, None)
        return {}

    def _set_active(self, request: Request) -> Answer:
        self._kept.active = bool(request.get("state", False))
        self._keep()
        return {}

    def _set_log_level(self, request: Request) -> Answer:
        name, level = str(request.get("package", "")), int(request.get("level", 0))
        if level >= len(_LEVELS):
            raise GrpcError(GrpcStatus.INVALID_ARGUMENT, f"level {level}: use 0 (TRACE) to {len(_LEVELS) - 1} (ERROR)")
        logging.getLogger(name if name.startswith("outrider") else "outrider").setLevel(_LEVELS[level])
        return {}

    def _set_crawl_limit(self, request: Request) -> Answer:
        crawl, key, limit = crawl_of(request), key_of(request), int(request.get("limit", 0))
        if key is None:
            raise GrpcError(GrpcStatus.INVALID_ARGUMENT, "key is empty; send the key of a queue")
        if limit:
            self.limits[crawl, key] = limit
        else:
            self.limits.pop((crawl, key), None)
        self._kept.limits = [(*names, limit) for names, limit in list(self.limits.items())]
        self._keep()
        self.hold(crawl, key)
        return {}

    def hold(self, crawl: str, key: str) -> None:
        """Hands out nothing of a queue that has reached its limit, and something of others."""
        self._exchange.hold(crawl, key, self.limits.get((crawl, key), 0))

    def _purge(self, request: Request, lives: Lives) -> Answer:
        """Deletes URLs that were discovered a number of days ago or earlier, or, for 0 days, before this second."""
        second = self._exchange.now() // MICROSECONDS - int(request.get("days", 0)) * DAY_SECONDS
        crawl, key = crawl_of(request), key_of(request)
        count = self._exchange.purge(crawl, key, max(second, 0) * MICROSECONDS, lives)
        self._hold_again(crawl, key)
        return {"value": count}


def checked_date(name: str, seconds: int) -> int:
    """The same date. Raises SettingsError for one after the year 9999."""
    if seconds > DATE_MAX:
        raise SettingsError(f"{name} {seconds}: use seconds since 1970, at most {DATE_MAX}; milliseconds are refused")
    return seconds


def listed(metadata: Mapping[str, Any] | None) -> dict[str, list[str]]:
    """Metadata as lists of texts; JSON for values of other types."""
    return {name: _texts(value) for name, value in (metadata or {}).items()}


def _texts(value: Any) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [one if isinstance(one, str) else _json(one) for one in values]


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def queue_key(url: str, key: str | None = None) -> str:
    """The key of the queue of a URL; "" for a text that names no queue."""
    if key:
        return key
    canonical = spell([url])[0]
    return host_of(canonical) if canonical else key_of_text(url)


def _filter_of(request: Request) -> Callable[[str], bool]:
    text = str(request.get("filter") or "")
    if request.get("ignoreCase"):
        text = text.lower()
        return lambda url: text in url.lower()
    return lambda url: text in url
