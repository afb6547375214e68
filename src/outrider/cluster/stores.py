"""The partitions that a node owns, as one frontier: each call goes to the stores that it concerns, several at once.

A token names its partition: those of partition p begin at p times 2^40. A call waits for the changelog of each store,
so the stores of one call are called by several threads.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from outrider.clock import Instant, elapsed, wall
from outrider.cluster.description import ClusterManifest
from outrider.cluster.owning import Owned
from outrider.cluster.page_shares import PageShares
from outrider.cluster.rate_shares import RateShares
from outrider.errors import ClosedError, StoreFailedError, StoreFullError, UnreachableError
from outrider.journey import (
    Code,
    LeaseBatch,
    Line,
    Link,
    Outcome,
    OutcomeBatch,
    Report,
    RequestId,
    Settled,
    State,
    UrlStatus,
)
from outrider.limits import (
    CLUSTER_IDLE_SECONDS,
    CLUSTER_LOOK_SECONDS,
    CLUSTER_STORES_AT_ONCE,
    CLUSTER_WAIT_SECONDS,
    TOKEN_BITS,
)
from outrider.url import UrlBatch

T = TypeVar("T")
_PAGES: Final = "pages"
"""The name of the place of a store that says how many pages it may fetch."""


@dataclass(eq=False)
class OwnStore:
    """One store of this node. ready_at: when it may have leases, by the monotonic clock; touches: how often something
    arrived that may make it ready. leased: its open leases of this node. lsn: of its last line. leaves: it leases
    nothing any more. heard: the offset of `words` up to which it has carried out orders; heard_noted: the offset that
    the store itself has noted. pages_given: of all its shares (`PageShares`); pages_left: how many more it may lease,
    at least; at_limit: no share was left. rate_from: when its share of the rate may be used, by `elapsed`;
    rate_lent_to: the last node that has borrowed it. slow_target: a partition for which links wait here, because too
    many wait there; leases_wait: many links wait here, so nothing is leased."""

    number: int
    owned: Owned
    ready_at: float = 0.0
    touches: int = 0
    leased: set[int] = field(default_factory=set)
    lsn: int = 0
    leaves: bool = False
    pages_given: int = 0
    pages_left: int = 0
    at_limit: bool = False
    heard: int = 0
    heard_noted: int = 0
    rate_from: Instant = 0
    rate_lent_to: str = ""
    slow_target: int | None = None
    leases_wait: bool = False

    @property
    def frontier(self) -> Any:
        """Its frontier."""
        return self.owned.frontier

    def holds(self) -> bool:
        """Whether this node still owns the partition, as far as it knows."""
        return self.owned.is_open and self.owned.changelog.is_held

    def touch(self) -> None:
        """Notes that it may have leases now."""
        self.touches += 1
        self.ready_at = 0.0

    def rest(self, seconds: float, touches: int) -> None:
        """Leases nothing for some time, unless something has arrived since a call of the store. touches: their number
        before that call."""
        self.ready_at = time.monotonic() + seconds
        if self.touches != touches:  # after the assignment, because another thread may touch it at any moment
            self.ready_at = 0.0


class OutputPlaces(Protocol):
    """How far the files of the node reach, as a frontier keeps it."""

    def projection(self, stream: str) -> tuple[int, int]: ...
    def note_projection(self, stream: str, length: int, lsn: int, /) -> None: ...
    def watermarks(self) -> dict[str, bytes]: ...
    def note_watermark(self, writer: str, value: bytes) -> None: ...


class OwnStores:
    """The stores of a node, with the methods of a frontier that a crawl needs. Any thread may call it."""

    def __init__(
        self,
        manifest: ClusterManifest,
        *,
        send: Callable[[Sequence[Link]], None],
        lost: Callable[[int], None],
        places: OutputPlaces,
        shares: PageShares | None = None,
        rate: RateShares | None = None,
    ) -> None:
        """send: sends links to the partitions that own them, durably. lost: is called with the number of a partition
        whose claim was lost. places: how far the files of the node reach. shares: of a limit of pages. rate: of the
        whole crawl."""
        self._manifest, self._send, self._lost, self._places = manifest, send, lost, places
        self._shares, self._rate = shares, rate
        self._stores: dict[int, OwnStore] = {}
        self._turn = 0
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(CLUSTER_STORES_AT_ONCE, thread_name_prefix="outrider-stores")
        self._answers: dict[int, tuple[Settled, tuple[Code, ...]]] = {}  # whose caller did not get them, by token
        self._lines: list[Line] = []  # of these
        self.is_finished = False
        """Whether the whole crawl is over."""
        self.borrowed_shares: Callable[[], int] = int
        """Returns how many shares of the rate this node has borrowed now."""

    # -- which stores -------------------------------------------------------------------------------------------------

    def add(self, store: OwnStore) -> None:
        """Adds a store."""
        if self._shares is not None:
            store.pages_given = int(store.frontier.watermarks().get(_PAGES, b"0"))
        with self._lock:
            self._stores = {**self._stores, store.number: store}

    def remove(self, number: int) -> OwnStore | None:
        """Removes the store of a partition, and returns it."""
        with self._lock:
            found = self._stores.get(number)
            self._stores = {key: one for key, one in self._stores.items() if key != number}
            return found

    def all(self) -> list[OwnStore]:
        """Returns the stores."""
        return [*self._stores.values()]

    def get(self, number: int) -> OwnStore | None:
        """Returns the store of a partition, if this node owns it."""
        return self._stores.get(number)

    def may_request(self, token: int) -> bool:
        """Whether this node may send the request of a lease now."""
        store = self._stores.get(token >> TOKEN_BITS)
        return store is not None and store.owned.changelog.may_request()

    def close(self) -> None:
        """Ends the threads."""
        self._pool.shutdown()

    @contextlib.contextmanager
    def may_be_lost(self, store: OwnStore) -> Iterator[None]:
        """Ends a call of a store in silence if another node owns its partition by now."""
        try:
            yield
        except (StoreFailedError, ClosedError):
            if store.holds():
                raise
            self._lost(store.number)

    def each(
        self, stores: Sequence[OwnStore], work: Callable[[OwnStore], T], *, threads: ThreadPoolExecutor | None = None
    ) -> list[T | None]:
        """Calls several stores at once. None for one whose claim was lost meanwhile. threads: None for those of the
        crawl; with others, the crawl does not wait for this work."""

        def made(store: OwnStore) -> T | None:
            answers: list[T] = []
            with self.may_be_lost(store):
                answers.append(work(store))
            return answers[0] if answers else None

        if len(stores) < 2:
            return [made(store) for store in stores]
        return list((threads or self._pool).map(made, stores))

    def _asked(self, store: OwnStore | None, work: Callable[[OwnStore], T], other: T) -> T:
        """Asks one store. other: the answer where this node has no store, or not any more."""
        if store is None:
            return other
        (answer,) = self.each([store], work)
        return other if answer is None else answer

    def _of_host(self, host: str) -> OwnStore | None:
        return self._of_urls([f"http://{host}/"])[0]

    def _of_urls(self, urls: Sequence[str]) -> list[OwnStore | None]:
        if not urls:
            return []
        numbers = self._manifest.partitions_of(UrlBatch.of(urls)).tolist()
        return [self._stores.get(number) for number in numbers]

    # -- the verbs ----------------------------------------------------------------------------------------------------

    def discover(self, links: Iterable[str | Link], *, request_id: RequestId | None = None) -> list[Code]:
        """Sends links to the partitions that own them. All are `held`: the answers are known elsewhere."""
        sent = [Link(one) if isinstance(one, str) else one for one in links]
        self._send(sent)
        return [Code.HELD] * len(sent)

    def lease(self, want: int, **how: Any) -> LeaseBatch:
        """As the frontier's, from several stores in turn."""
        if self._rate is None:
            return self._leased(want, how)
        with self._rate.turn:
            allowed = self._rate.available(self._rate_shares())
            leases = self._leased(min(want, allowed), how)
            self._rate.take(len(leases), allowed=allowed, wanted=want)
        return leases

    def _rate_shares(self) -> int:
        """Returns how many shares of the rate this node may use now."""
        now = elapsed()
        own = sum(one.rate_from <= now and one.owned.changelog.may_request() for one in self.all())
        return own + self.borrowed_shares()

    def _leased(self, want: int, how: Mapping[str, Any]) -> LeaseBatch:
        now = time.monotonic()
        stores = [one for one in self.all() if not (one.leaves or one.leases_wait) and one.ready_at <= now]
        if not stores or want < 1:
            return LeaseBatch()
        queues_max: int | None = how.get("queues_max")
        first = self._turn % len(stores)
        stores = [*stores[first:], *stores[:first]][: max(1, want if queues_max is None else min(want, queues_max))]
        self._turn += len(stores)
        wanted_of = dict(zip(stores, _shares(want, len(stores)), strict=True))
        queues_of = {} if queues_max is None else dict(zip(stores, _shares(queues_max, len(stores)), strict=True))
        how = {name: value for name, value in how.items() if name != "request_id"}

        full: list[StoreFullError] = []

        def made(store: OwnStore) -> LeaseBatch:
            wanted, touches = wanted_of[store], store.touches
            if self._shares is not None:
                wanted = min(wanted, self._pages_left(store, self._shares))
            if wanted < 1:
                store.rest(CLUSTER_LOOK_SECONDS, touches)
                return LeaseBatch()
            try:
                queues = {"queues_max": queues_of[store]} if queues_of else {}
                leases: LeaseBatch = store.frontier.lease(wanted, **how | queues)
            except StoreFullError as error:
                full.append(error)
                return LeaseBatch()
            store.leased.update(leases.tokens)
            store.lsn = max(store.lsn, leases.lsn)
            store.pages_left -= len(leases)
            if len(leases) < wanted:
                ready = store.frontier.next_ready_seconds()
                store.rest(min(CLUSTER_IDLE_SECONDS, math.inf if ready is None else ready), touches)
            return leases

        found = [one for one in self.each(stores, made) if one is not None]
        if full and not any(found):
            raise full[0]
        return LeaseBatch(
            [lease for one in found for lease in one], lines=[line for one in found for line in one.lines]
        )

    def _pages_left(self, store: OwnStore, shares: PageShares) -> int:
        """Returns how many pages a store may lease now. It takes another share if it has used up the earlier ones."""
        if store.pages_left > 0 or store.frontier.finished():
            return store.pages_left
        statistics = store.frontier.statistics()
        # Leases without an answer return their pages: they are neither answered nor open.
        leased = max(statistics["urls"]["leased"], len(store.leased))
        store.pages_left = store.pages_given - statistics["answered"] - leased
        if store.pages_left > 0 or store.at_limit:
            return store.pages_left
        try:
            more = shares.take(store.number, store.pages_given)
        except UnreachableError:
            return 0  # without the objects this store waits
        store.at_limit = not more
        store.pages_given += more
        store.pages_left += more
        if more:
            store.frontier.note_watermark(_PAGES, str(store.pages_given).encode())
        return store.pages_left

    def report(
        self,
        outcomes: Sequence[Outcome] | OutcomeBatch,
        links: Sequence[tuple[int, str | Link]] = (),
        *,
        request_id: RequestId | None = None,
        watermark: tuple[str, bytes] | None = None,
    ) -> Report:
        """As the frontier's. Outcomes of a partition whose claim was lost are stale."""
        assert not isinstance(outcomes, OutcomeBatch)
        rows: dict[int, list[int]] = {}
        for row, outcome in enumerate(outcomes):
            if outcome.token not in self._answers:
                rows.setdefault(outcome.token >> TOKEN_BITS, []).append(row)
        full: list[StoreFullError] = []
        stores = [store for number in rows if (store := self._stores.get(number)) is not None]

        def made(store: OwnStore) -> Report | None:
            try:
                some = [outcomes[row] for row in rows[store.number]]
                report: Report = store.frontier.report(some, request_id=request_id)
            except StoreFullError as error:
                full.append(error)
                return None
            store.lsn = max(store.lsn, report.lsn)
            store.leased.difference_update(outcomes[row].token for row in rows[store.number])
            store.touch()
            return report

        for store, report in zip(stores, self.each(stores, made), strict=True):
            if report is None:
                continue
            self._lines += report.lines
            # A repeated request has its first answer, whose rows may be fewer.
            for place, row in enumerate(rows[store.number][: len(report.outcomes)]):
                links_of = report.links[place] if place < len(report.links) else ()
                self._answers[outcomes[row].token] = report.outcomes[place], links_of
        if full:
            raise full[0]  # the same outcomes are reported again, and those of other stores keep their answers
        answers = [self._answers.pop(outcome.token, (Settled.STALE, ())) for outcome in outcomes]
        lines, self._lines = tuple(self._lines), []
        return Report(tuple(code for code, _ in answers), tuple(row for _, row in answers), lines)

    def _settled(self, tokens: Sequence[int], work: Callable[[OwnStore, list[int]], list[Settled]]) -> list[Settled]:
        by_store: dict[int, list[int]] = {}
        for token in tokens:
            by_store.setdefault(token >> TOKEN_BITS, []).append(token)
        stores = [store for number in by_store if (store := self._stores.get(number)) is not None]
        answers = self.each(stores, lambda store: work(store, by_store[store.number]))
        codes: dict[int, Settled] = {}
        for store, answer in zip(stores, answers, strict=True):
            if answer is not None:
                codes.update(zip(by_store[store.number], answer, strict=True))
        return [codes.get(token, Settled.STALE) for token in tokens]

    def extend(self, tokens: Sequence[int], ttl_seconds: float) -> list[Settled]:
        """As the frontier's."""
        return self._settled(tokens, lambda store, some: store.frontier.extend(some, ttl_seconds))

    def release(self, tokens: Sequence[int]) -> list[Settled]:
        """As the frontier's."""

        def made(store: OwnStore, some: list[int]) -> list[Settled]:
            answer: list[Settled] = store.frontier.release(some)
            store.leased.difference_update(some)
            store.touch()
            return answer

        return self._settled(tokens, made)

    # -- the rest that a crawl needs ----------------------------------------------------------------------------------

    def now(self) -> Instant:
        """The wall clock: each store has a clock of its own, which is near it."""
        return wall()

    def next_ready_seconds(self) -> float | None:
        """Returns when a store may have leases. Links of other nodes arrive at any time, so the wait is short."""
        if self.is_finished:
            return None
        soon = time.monotonic() + CLUSTER_WAIT_SECONDS
        first = min((one.ready_at for one in self.all() if not (one.leaves or one.leases_wait)), default=soon)
        if self._rate is not None:
            rests = self._rate.wait_seconds(self._rate_shares())
            first = soon if rests is None else max(first, time.monotonic() + rests)
        return max(0.0, min(first, soon) - time.monotonic())

    def finished(self) -> bool:
        """Whether the whole crawl is over."""
        return self.is_finished

    def at_limit(self) -> bool:
        """Whether all own stores are at a limit."""
        stores = self.all()
        return bool(stores) and all(self._asked(one, lambda store: store.frontier.at_limit(), False) for one in stores)

    def set_delay(self, delay_seconds: float | None, key: str) -> int:
        """As the frontier's, for the host's own store."""
        return self._asked(self._of_host(key), lambda store: store.frontier.set_delay(delay_seconds, key), 0)

    def set_limit(self, limit: int | None, key: str) -> int:
        """As the frontier's, for the host's own store."""
        return self._asked(self._of_host(key), lambda store: store.frontier.set_limit(limit, key), 0)

    def set_addresses(self, addresses: Mapping[str, str | None]) -> int:
        """As the frontier's."""
        by_store: dict[int, dict[str, str | None]] = {}
        hosts = list(addresses)
        for host, store in zip(hosts, self._of_urls([f"http://{host}/" for host in hosts]), strict=True):
            if store is not None:
                by_store.setdefault(store.number, {})[host] = addresses[host]
        return sum(
            self._asked(self._stores.get(number), partial(_set_addresses, of_store), 0)
            for number, of_store in by_store.items()
        )

    def seen_content(self, digests: Sequence[bytes]) -> list[bool]:
        """Whether a page of an own store has such a content."""
        seen = [False] * len(digests)
        for store in self.all():
            here = self._asked(store, lambda store: store.frontier.seen_content(digests), seen)
            seen = [one or other for one, other in zip(seen, here, strict=True)]
        return seen

    def status(self, url: str) -> UrlStatus:
        """As the frontier's. A URL of another node is not known here."""
        unknown = UrlStatus(url, State.UNKNOWN)
        return self._asked(self._of_urls([url])[0], lambda store: store.frontier.status(url), unknown)

    def queue_errands(self, kind: str, urls: str | Sequence[str]) -> list[Code]:
        """As the frontier's. An errand to a host of another node is out of scope."""
        wanted = [urls] if isinstance(urls, str) else list(urls)

        def queued(some: list[str], store: OwnStore) -> list[Code]:
            codes = list(store.frontier.queue_errands(kind, some))
            store.touch()
            return codes

        return self._of_each(wanted, queued, Code.OUT_OF_SCOPE)

    def _of_each(self, urls: Sequence[str], work: Callable[[list[str], OwnStore], list[T]], other: T) -> list[T]:
        """Asks the store of each URL. other: the answer for a URL of another node."""
        found = [other] * len(urls)
        rows: dict[int, list[int]] = {}
        for row, store in enumerate(self._of_urls(urls)):
            if store is not None:
                rows.setdefault(store.number, []).append(row)
        for number, places in rows.items():
            some = [urls[row] for row in places]
            answers = self._asked(self._stores.get(number), partial(work, some), [other] * len(some))
            for row, answer in zip(places, answers, strict=True):
                found[row] = answer
        return found

    def robots_allow(self, urls: Sequence[str]) -> list[bool | None]:
        """As the frontier's; None for a URL of another node."""
        return self._of_each(urls, lambda some, store: list(store.frontier.robots_allow(some)), None)

    def projection(self, stream: str) -> tuple[int, int]:
        """The length of a line file of the node."""
        return self._places.projection(stream)

    def note_projection(self, stream: str, length: int, lsn: int) -> None:
        """As the frontier's, for the node."""
        self._places.note_projection(stream, length, lsn)

    def watermarks(self) -> dict[str, bytes]:
        """As the frontier's, for the node."""
        return self._places.watermarks()

    def note_watermark(self, writer: str, value: bytes) -> None:
        """As the frontier's, for the node."""
        self._places.note_watermark(writer, value)

    def lines(self, stream: str, after: int) -> Iterator[tuple[int, bytes]]:
        """No lines: those of a store are written when it is opened."""
        return iter(())


def _set_addresses(addresses: Mapping[str, str | None], store: OwnStore) -> int:
    return int(store.frontier.set_addresses(addresses))


def _shares(number: int, stores: int) -> list[int]:
    """Divides a number among stores, as evenly as whole numbers can be."""
    share, more = divmod(number, stores)
    return [share + (place < more) for place in range(stores)]
