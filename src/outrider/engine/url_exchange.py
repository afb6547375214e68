"""A frontier for servers of other protocols: URLs go in and out in batches of many clients, with one sync for each.

All crawls here are by unique keys. A crawl is made by its first URL.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from outrider.clock import Instant
from outrider.engine.owner import Frontier
from outrider.errors import SettingsError
from outrider.frontier.format.metadata import unpacked
from outrider.frontier.machine import Machine
from outrider.frontier.state.crawls import CrawlState
from outrider.frontier.state.hosts import QueueRules
from outrider.frontier.verbs import statuses
from outrider.frontier.verbs.arrivals import KeyedUrls
from outrider.journey import Code, CrawlOrder, LeaseBatch, Link, QueueStatus, Unique, UrlName, UrlStatus
from outrider.limits import MICROSECONDS
from outrider.storage.files import read_whole
from outrider.storage.files import replace as replace_file

Answer = TypeVar("Answer")
DEFAULT_CRAWL = "DEFAULT"
KEY_CHARACTERS_MAX = 255
DATE_MAX = 253_402_300_799
"""The last second of the year 9999. A later date is a mistake: most are milliseconds."""
KEPT_FILE = "protocol.json"
KEPT_BYTES_MAX = 64 << 20
WORKER = "grpc"
"""The holder of URLs that were handed out, before the name of a client with a token. Its leases outlive a restart."""
PURGED_URLS_PER_CALL = 256
TOKEN_BYTES = 8
_COUNTS = ("queued", "leased", "waiting", "parked", "done", "gone")


@dataclass(frozen=True, slots=True)
class QueueTotals:
    """The URLs of some queues. active: queues with URLs that are not completed."""

    queues: int = 0
    active: int = 0
    queued: int = 0
    leased: int = 0
    waiting: int = 0
    parked: int = 0
    done: int = 0
    gone: int = 0

    @property
    def open(self) -> int:
        """URLs that are not completed."""
        return self.queued + self.leased + self.waiting + self.parked

    @property
    def completed(self) -> int:
        """URLs that are completed."""
        return self.done + self.gone

    @property
    def urls(self) -> int:
        """All URLs."""
        return self.open + self.completed


@dataclass(frozen=True, slots=True)
class Put:
    """URLs of one crawl. due: from when each may be requested, 0 for one that is done; None for URLs that were
    discovered."""

    crawl: str
    urls: KeyedUrls
    due: npt.NDArray[np.int64] | None = None

    def row(self, row: int) -> Put:
        """The URL of one row."""
        urls = self.urls
        one = KeyedUrls(urls.urls[row : row + 1], urls.keys[row : row + 1], urls.metadata[row : row + 1])
        return Put(self.crawl, one, None if self.due is None else self.due[row : row + 1])


@dataclass(frozen=True, slots=True)
class KnownUrl:
    """One URL as it is stored."""

    status: UrlStatus
    metadata: Mapping[str, Any] | None


def _always() -> bool:
    return True


class UrlExchange:
    """The calls of a server. Any thread may make them."""

    def __init__(self, frontier: Frontier) -> None:
        self._frontier = frontier
        self.default_delay: float | None = None
        """The delay of the queues of new crawls; None for that of the settings."""

    # -- URLs ---------------------------------------------------------------------------------------------------------

    def put(self, puts: Sequence[Put]) -> list[list[Code] | SettingsError]:
        """Adds URLs, or sets their dates, in this order. Returns when all are durable: for each put the codes of its
        URLs, no codes for URLs with dates, or the error of a put that changed nothing. Raises StoreFullError."""

        def verb(machine: Machine, now: Instant) -> list[list[Code] | SettingsError]:
            return [self._put(put, machine, now) for put in puts]

        found = self._frontier._call("put", verb, wait=False)
        self._frontier._wait_durable()
        return found

    def _put(self, put: Put, machine: Machine, now: Instant) -> list[Code] | SettingsError:
        try:
            _make_crawls([put.crawl], self.default_delay, machine, now)
            if put.due is None:
                return machine.links.discover(put.urls, now, crawl=put.crawl)
            machine.carried.put_dated(put.urls, put.due, now, crawl=put.crawl)
        except SettingsError as error:
            return error
        return []

    def refused(self, crawls: set[str]) -> dict[str, str]:
        """The crawls among these that cannot be used here, each with the reason."""

        def look(machine: Machine) -> dict[str, str]:
            tables = machine.tables
            return {
                crawl: f"crawl {crawl!r:.200} was made by URL, and this protocol needs one by unique keys; use another "
                "crawl id, or delete that crawl"
                for crawl in crawls
                if (row := tables.crawls.rows.get(crawl)) is not None and row not in tables.crawls.callers
            }

        return self._glance(look)

    def hand_out(
        self,
        want: int,
        seconds: float,
        *,
        per_queue: int,
        queues_max: int,
        crawl: str | None,
        key: str | None,
        errands: bool = False,
        client: str = "",
        leases_max: int | None = None,
    ) -> LeaseBatch | None:
        """Leases URLs for some seconds. per_queue: how many URLs of a queue may be leased at once, also by several
        calls. leases_max: how many this client may have; returns None if it has them. Raises SettingsError for a key
        that no queue has."""
        worker = f"{WORKER} {client}" if client else WORKER
        how: dict[str, Any] = {
            "ttl_seconds": seconds,
            "per_queue": per_queue,
            "queues_max": queues_max,
            "crawl": crawl,
            "key": key,
            "worker": worker,
            "errands": errands,
            "caps": True,
        }

        def verb(machine: Machine, now: Instant) -> LeaseBatch | None:
            left = want
            if leases_max is not None:
                left = min(want, leases_max - _leases_of(machine, worker, leases_max - want))
            return machine.leases.lease(left, now, **how) if left > 0 else None

        return self._frontier._call("lease", verb)

    def rest(self, tokens: Sequence[int]) -> None:
        """The clocks of the hosts of these leases run from now on."""
        if tokens:
            self._frontier._call("rest", lambda m, now: m.requests.rest(tokens, None, None, now), wait=False)

    def release(self, tokens: Sequence[int]) -> None:
        """Returns URLs that did not reach their client."""
        if tokens:
            self._frontier.release(tokens)

    def url(self, name: Link, crawl: str) -> KnownUrl | None:
        """One URL; None for an unknown one."""

        def look(machine: Machine) -> KnownUrl | None:
            row = machine.tables.crawls.rows.get(crawl)
            records = machine.urls.records_of([name], row)[1] if row is not None else []
            if not records:
                return None
            status = statuses.status_of(records[0], machine.tables, machine.urls.token_of(records[0]))
            return KnownUrl(status, unpacked(records[0].kept.metadata))

        return self._glance(look)

    def urls(self, crawl: str, key: str | None, lives: Callable[[], bool] = _always) -> Iterator[KnownUrl]:
        """All URLs of a crawl or of a key, some at a time; other calls run between the pieces. lives: is asked before
        each piece whether to continue."""
        after: str | None = None
        while lives():
            try:
                page = self._frontier.urls(crawl=crawl, key=key, after=after, limit=1_000)
            except SettingsError:
                return  # no such crawl or key
            for status in page:
                yield KnownUrl(status, None)
            after = page.cursor
            if after is None:
                return

    # -- queues -------------------------------------------------------------------------------------------------------

    def totals(self, crawl: str, key: str | None) -> QueueTotals:
        """The counts of the queues with a key, or of a whole crawl; zeros for unknown ones."""
        return self._glance(lambda machine: _totals(machine, crawl, key))

    def queues(self, crawl: str, lives: Callable[[], bool] = _always) -> Iterator[QueueStatus]:
        """The queues of a crawl, some at a time. lives: as in `urls`."""
        after: str | None = None
        while lives():
            try:
                page = self._frontier.queues(crawl=crawl, after=after, limit=1_000)
            except SettingsError:
                return
            yield from page
            after = page.cursor
            if after is None:
                return

    def own_crawls(self) -> list[str]:
        """The crawls by unique keys, also those without a queue. Its cost does not depend on the number of queues."""
        frontier = self._frontier
        with frontier._alone():
            frontier._check()
            crawls = frontier._machine.tables.crawls
            return sorted(
                name
                for name, row in crawls.rows.items()
                if row in crawls.callers and crawls.states[row] != CrawlState.DELETED
            )

    def crawls(self) -> list[str]:
        """The crawls by unique keys that have a queue."""

        def look(machine: Machine) -> list[str]:
            tables = machine.tables
            return sorted(
                name
                for name, row in tables.crawls.rows.items()
                if row in tables.crawls.callers
                and tables.crawls.states[row] != CrawlState.DELETED
                and tables.queues_in(row)[0]
            )

        return self._glance(look)

    def delete(self, crawl: str, key: str | None) -> int:
        """Deletes the URLs of a key, or a whole crawl. Returns their number, 0 for unknown ones."""

        def verb(machine: Machine, now: Instant) -> int:
            count = _totals(machine, crawl, key).urls
            try:
                machine.operators.delete(key, crawl, now)
            except SettingsError:
                return 0
            return count

        return self._frontier._call("delete", verb)

    def purge(self, crawl: str, key: str | None, before: Instant, lives: Callable[[], bool] = _always) -> int:
        """Deletes the URLs of a crawl or a key that were discovered before an instant. Returns their number, when that
        is durable. Other calls run between the pieces, so an interrupted call has deleted some. lives: is asked before
        each piece whether to continue."""
        count, piece = 0, list[UrlName]()
        for found in self.urls(crawl, key, lives):
            if found.status.discovered_at is None or found.status.discovered_at < before:
                piece.append(_name_of(found.status))
            if len(piece) >= PURGED_URLS_PER_CALL:
                if not lives():
                    break
                count += self._purge(piece, crawl, before)
                piece.clear()
        if lives():
            count += self._purge(piece, crawl, before)
        self._frontier._wait_durable()
        return count

    def _purge(self, names: Sequence[UrlName], crawl: str, before: Instant) -> int:
        """Deletes some URLs. One that was deleted and discovered again meanwhile stays."""

        def verb(machine: Machine, now: Instant) -> int:
            before_it = machine.tables.urls.accepted()
            with contextlib.suppress(SettingsError):  # the crawl was deleted meanwhile
                machine.urls.delete(names, crawl, now, before=before)
            return before_it - machine.tables.urls.accepted()

        return self._frontier._call("delete_urls", verb, wait=False) if names else 0

    def block_until(self, until: Instant, crawl: str, key: str) -> None:
        """Hands out nothing of a queue before an instant, also if its first URL comes later."""
        self._rule(crawl, key, lambda rules: replace(rules, blocked_until=until))

    def set_delay(self, seconds: float, crawl: str, key: str | None) -> None:
        """Sets the delay of a queue, also if its first URL comes later, or that of all queues of a crawl."""
        if key is not None:
            self._rule(crawl, key, lambda rules: replace(rules, delay=seconds))
        else:
            self._frontier._call("set_delay", lambda m, now: m.operators.set_delay(seconds, None, crawl, now))

    def hold(self, crawl: str, key: str, completed: int) -> None:
        """Hands out nothing of a queue while it has so many completed URLs; 0 for any number."""

        def verb(machine: Machine, now: Instant) -> None:
            _make_crawls([crawl], self.default_delay, machine, now)
            is_full = 0 < completed <= _totals(machine, crawl, key).completed
            machine.operators.rule_key(key, crawl, now, lambda rules: replace(rules, paused=is_full))

        self._frontier._call("pause", verb)

    def _rule(self, crawl: str, key: str, change: Callable[[QueueRules], QueueRules]) -> None:
        def verb(machine: Machine, now: Instant) -> None:
            _make_crawls([crawl], self.default_delay, machine, now)
            machine.operators.rule_key(key, crawl, now, change)

        self._frontier._call("set_delay", verb)

    # -- what the protocol itself keeps -------------------------------------------------------------------------------

    def keep(self, value: bytes) -> None:
        """Keeps what the protocol itself must remember, durably, in place of the value before."""
        with self._frontier._alone():
            self._frontier._check()
            self._frontier._check_owner()
            replace_file(self._frontier._files, KEPT_FILE, value)

    def kept(self) -> bytes:
        """The value, b"" before it was kept."""
        try:
            return read_whole(self._frontier._files, KEPT_FILE, bytes_max=KEPT_BYTES_MAX)
        except FileNotFoundError:
            return b""

    def now(self) -> Instant:
        """The frontier's instant."""
        return self._frontier.now()

    def _glance(self, look: Callable[[Machine], Answer]) -> Answer:
        frontier = self._frontier
        frontier._read_slots()
        with frontier._alone():
            frontier._check()
            frontier._machine.core.wake(frontier._machine.core.advance(frontier._instant()))
            return look(frontier._machine)


def record_of_known(
    url: str, key: str, crawl: str, date: int, metadata: Mapping[str, Any], now: Instant
) -> dict[str, Any]:
    """Returns the record of a known URL. date: from when it may be requested, in seconds; 0 if it is done."""
    due = date * MICROSECONDS
    state = "done" if date == 0 else "waiting" if due > now else "queued"
    return {
        "url": url,
        "key": key or None,
        "crawl": crawl,
        "unique": "caller",
        "state": state,
        "due": due or None,
        "metadata": metadata,
    }


def _name_of(status: UrlStatus) -> UrlName:
    return status.unique_key if status.unique_key is not None else Link(status.url, key=status.key)


def _make_crawls(names: Sequence[str], delay: float | None, machine: Machine, now: Instant) -> None:
    for name in names:
        if machine.operators.make_crawl(name, Unique.CALLER, CrawlOrder.CLASSES, now) and delay is not None:
            machine.operators.set_delay(delay, None, name, now)


def _leases_of(machine: Machine, worker: str, few: int) -> int:
    """Returns how many leases a worker has; 0 if all workers have few, so that they need not be counted."""
    tables = machine.tables
    if len(tables.urls.leases) <= few:
        return 0
    holder = tables.registry.holder_rows.get(worker)
    return 0 if holder is None else len(tables.urls.leases.of_holder(holder)) // TOKEN_BYTES


def _totals(machine: Machine, crawl: str, key: str | None) -> QueueTotals:
    tables = machine.tables
    row = tables.crawls.rows.get(crawl)
    if row is None:
        return QueueTotals()
    if key is not None:
        try:
            rows = machine.operators.chosen(key, crawl)
        except SettingsError:
            return QueueTotals()
        if not len(rows):
            return QueueTotals()
        each = [statuses.queue_status(tables, queue) for queue in rows.tolist()]
        sums = {name: sum(getattr(one, name) for one in each) for name in _COUNTS}
        active = any(one.queued + one.leased + one.waiting + one.parked for one in each)
        return QueueTotals(queues=1, active=int(active), **sums)
    return QueueTotals(*tables.queues_in(row), *tables.urls.counts_of(row)[1:])
