"""The calls of URLFrontier with one request each: lists, counts, and the orders of operators.

An empty crawl id is `DEFAULT`. This server is one node, so `local` changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from outrider.engine.url_exchange import KnownUrl, UrlExchange
from outrider.errors import SettingsError
from outrider.journey import Link, State
from outrider.limits import MICROSECONDS
from outrider.service.access import Role
from outrider.service.grpc_status import GrpcError, GrpcStatus
from outrider.url import host_of, spell

DEFAULT_CRAWL: Final = "DEFAULT"
KEY_CHARACTERS_MAX: Final = 255
PAGE_ROWS: Final = 100
"""How many rows a page has if the request says 0."""
DATE_MAX: Final = 253_402_300_799
"""The last second of the year 9999. A later date is a mistake: most are milliseconds."""
_ACTIVE: Final = "urlfrontier.active"
_DELAY: Final = "urlfrontier.delay"
_LEVELS: Final = (5, logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)

Request = Mapping[str, Any]
Answer = dict[str, Any]

ROLES: Final[dict[str, Role]] = {
    "ListNodes": Role.READ, "ListCrawls": Role.READ, "ListQueues": Role.READ, "GetStats": Role.READ,
    "GetActive": Role.READ, "GetURLStatus": Role.READ, "ListURLs": Role.READ, "CountURLs": Role.READ,
    "GetURLs": Role.WORK, "PutURLs": Role.WORK, "PutDiscovered": Role.WORK,
    "DeleteCrawl": Role.OPERATE, "DeleteQueue": Role.OPERATE, "BlockQueueUntil": Role.OPERATE,
    "SetActive": Role.OPERATE, "SetDelay": Role.OPERATE, "SetCrawlLimit": Role.OPERATE, "PurgeURLs": Role.OPERATE,
    "SetLogLevel": Role.ADMIN,
}  # fmt: skip
"""The role that each call needs. Those of operators have a line in audit.jsonl."""


def crawl_of(request: Request) -> str:
    """The crawl that a request names."""
    return str(request.get("crawlID", "")).strip() or DEFAULT_CRAWL


def key_of(request: Request) -> str | None:
    """The key that a request names, None without one."""
    return str(request.get("key", "")) or None


class Calls:
    """The answers to calls with one request. node: the address of this server."""

    def __init__(self, exchange: UrlExchange, node: str) -> None:
        self._exchange, self._node = exchange, node
        self.active = exchange.noted(_ACTIVE) != b"0"
        self._delay = exchange.noted(_DELAY)
        self.unary: dict[str, Callable[[Request], Answer]] = {
            "ListNodes": lambda request: {"values": [self._node]},
            "ListCrawls": lambda request: {"values": self._exchange.crawls()},
            "DeleteCrawl": self._delete_crawl,
            "ListQueues": self._list_queues,
            "GetStats": self._stats,
            "DeleteQueue": self._delete_queue,
            "BlockQueueUntil": self._block,
            "SetActive": self._set_active,
            "GetActive": lambda request: {"state": self.active},
            "SetDelay": self._set_delay,
            "SetLogLevel": self._set_log_level,
            "SetCrawlLimit": self._set_crawl_limit,
            "GetURLStatus": self._url_status,
            "CountURLs": self._count,
            "PurgeURLs": self._purge,
        }

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

    def _list_queues(self, request: Request) -> Answer:
        start, size = int(request.get("start", 0)), int(request.get("size", 0)) or PAGE_ROWS
        inactive, now = bool(request.get("include_inactive")), self._exchange.now()
        keys: dict[str, None] = {}
        total = 0
        for queue in self._exchange.queues(crawl_of(request)):
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
        if not url or (key is None and not _has_key(url)):
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

    def list_urls(self, request: Request) -> Iterator[Answer]:
        """The items of `ListURLs`."""
        start, size = int(request.get("start", 0)), int(request.get("size", 0)) or PAGE_ROWS
        wanted = _filter_of(request)
        place = 0
        for found in self._exchange.urls(crawl_of(request), key_of(request)):
            if not wanted(found.status.url):
                continue
            place += 1
            if place > start:
                name = Link(found.status.url, key=found.status.key)
                yield self._item(self._exchange.url(name, crawl_of(request)) or found)
            if place >= start + size:
                return

    def _count(self, request: Request) -> Answer:
        if not request.get("filter"):
            return {"value": self._exchange.totals(crawl_of(request), key_of(request)).urls}
        wanted = _filter_of(request)
        urls = self._exchange.urls(crawl_of(request), key_of(request))
        return {"value": sum(wanted(found.status.url) for found in urls)}

    # -- orders -------------------------------------------------------------------------------------------------------

    def _delete_crawl(self, request: Request) -> Answer:
        crawl = str(request.get("value", "")).strip() or DEFAULT_CRAWL
        return {"value": self._exchange.delete(crawl, None)}

    def _delete_queue(self, request: Request) -> Answer:
        key = key_of(request)
        return {"value": 0 if key is None else self._exchange.delete(crawl_of(request), key)}

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
        self._delay = str(delay).encode()
        self._exchange.note(_DELAY, self._delay)
        for crawl in self._exchange.crawls():
            self._exchange.set_delay(float(delay), crawl, None)
        return {}

    def _set_active(self, request: Request) -> Answer:
        self.active = bool(request.get("state", False))
        self._exchange.note(_ACTIVE, b"1" if self.active else b"0")
        return {}

    def _set_log_level(self, request: Request) -> Answer:
        name, level = str(request.get("package", "")), int(request.get("level", 0))
        if level >= len(_LEVELS):
            raise GrpcError(GrpcStatus.INVALID_ARGUMENT, f"level {level}: use 0 (TRACE) to {len(_LEVELS) - 1} (ERROR)")
        logging.getLogger(name if name.startswith("outrider") else "outrider").setLevel(_LEVELS[level])
        return {}

    def _set_crawl_limit(self, request: Request) -> Answer:
        raise GrpcError(GrpcStatus.UNIMPLEMENTED, "SetCrawlLimit is not available yet")

    def _purge(self, request: Request) -> Answer:
        raise GrpcError(GrpcStatus.UNIMPLEMENTED, "PurgeURLs is not available yet")


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
    import msgspec

    return msgspec.json.encode(value).decode()


def _has_key(url: str) -> bool:
    canonical = spell([url])[0]
    return bool(canonical and host_of(canonical)) or bool(key_of_url(url))


def key_of_url(url: str) -> str:
    """The key of a URL that has none of its own and is not a web URL."""
    from outrider.frontier.verbs.unique import key_of_text

    return key_of_text(url)


def _filter_of(request: Request) -> Callable[[str], bool]:
    text = str(request.get("filter") or "")
    if request.get("ignoreCase"):
        text = text.lower()
        return lambda url: text in url.lower()
    return lambda url: text in url
