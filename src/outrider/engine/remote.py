"""A frontier elsewhere: the same verbs as `Frontier`, from a server (`outrider serve`) over HTTP or gRPC.

Instants are those of the server's clock. A call returns when the server has answered. An interrupted call is repeated
with its key, so that it takes effect once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from outrider import journey
from outrider.clock import Instant, elapsed, instant, seconds
from outrider.connections import way_to
from outrider.engine import messages as m
from outrider.engine.awaited import OpeningFrontier
from outrider.engine.calls import row_after, takes_builtins
from outrider.engine.derived import RemoteVerbs
from outrider.engine.http_requests import RepeatedRequests, path_of, transport_to
from outrider.engine.owner import Frontier
from outrider.engine.verbs import filled, like, served_of
from outrider.errors import ClosedError, SettingsError
from outrider.frontier.format.metadata import metadata_bytes_max, packed
from outrider.frontier.priority import possible as possible_priority
from outrider.frontier.verbs import arguments
from outrider.frontier.verbs.checking import checked, sendable
from outrider.frontier.verbs.outcome_columns import outcomes_of
from outrider.frontier.verbs.reporting import by_outcome
from outrider.frontier.verbs.transfer import checked_records
from outrider.journey import (
    LEASE_KEYWORDS,
    Code,
    Kind,
    Lease,
    LeaseBatch,
    Link,
    ListPage,
    Outcome,
    OutcomeBatch,
    Report,
    RequestId,
    Settled,
    Verbs,
)
from outrider.limits import (
    DISCOVER_ROWS_PER_FRAME,
    REMOTE_BODY_BYTES,
    REMOTE_PATIENCE_SECONDS,
    REMOTE_ROWS_MAX,
    SERVICE_BATCH_MAX,
    SERVICE_WAIT_SECONDS_MAX,
)
from outrider.url import UrlBatch

Made = TypeVar("Made")
_EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_INSTANTS: Final = {
    field.name
    for kind in vars(journey).values()
    if is_dataclass(kind)
    for field in fields(kind)
    if "Instant" in str(field.type)
}
"""The fields of answers that are instants."""


@takes_builtins
class RemoteFrontier(RemoteVerbs):
    """A client for a served frontier. Any thread may call it.

    Errors: those of `Frontier`, and UnreachableError if no server answers for `patience_seconds`.
    """

    def __init__(
        self,
        remote: RepeatedRequests,
        *,
        worker: str | None = None,
        close: Callable[[], None] = lambda: None,
        ticks: Callable[[], int] = elapsed,
    ) -> None:
        """worker: the name for leases without one. ticks: passing microseconds, from any start."""
        self._ticks = ticks
        self._remote = remote
        self._worker = arguments.name("worker", worker) or f"client-{remote.key()[:12]}"
        self._close = close
        self._closed = False
        self.ready_seconds: float | None = None
        """When more leases can be had, as the last answer with fewer leases than wanted said; None for never by waiting
        alone."""
        self._ahead = self._ask_ready()[0]  # the server's instant less ours, at the most

    # -- the three verbs ----------------------------------------------------------------------------------------------

    def discover(self, links: Iterable[str | Link] | UrlBatch, *, request_id: RequestId | None = None) -> list[Code]:
        """As `Frontier.discover`."""
        codes: list[Code] = []
        request = arguments.request(request_id)
        for number, rows in enumerate(_parts(_listed(links), _link_bytes)):
            body = m.AddUrls(rows)
            codes += map(Code, self._post(("frontier", "urls"), body, m.Added, self._key(request, number)).codes)
        return codes

    @like(Verbs.lease)
    def lease(self, want: int, **named: Any) -> LeaseBatch:
        """As `Frontier.lease`, for leases of a named worker: they survive this process. Without `errands` the server
        fetches each robots.txt itself, if it can."""
        wish = checked("lease", {"want": want, **filled("lease", LEASE_KEYWORDS, named)})
        if not wish["want"]:
            return LeaseBatch([])
        train, queues, request = wish["train_seconds"], wish["queues_max"], wish["request_id"]
        query = {
            "worker_id": wish["worker"] or self._worker,
            "batch_size": min(wish["want"], SERVICE_BATCH_MAX),
            "ttl_ms": max(1, round(wish["ttl_seconds"] * 1000)),
            "per_queue": min(wish["per_queue"], SERVICE_BATCH_MAX),
            "train_ms": None if train is None else round(train * 1000),
            "queues_max": None if queues is None else min(queues, SERVICE_BATCH_MAX),
            "crawl_id": wish["crawl"],
            "queue_key": wish["key"],
            "robots": "worker" if wish["errands"] else "server",
        }
        ends = self._ticks() + instant(wish["wait_seconds"])
        while True:
            wait = min(wish["wait_seconds"], max(0.0, seconds(ends - self._ticks())), SERVICE_WAIT_SECONDS_MAX)
            began = self._ticks()
            ask = partial(self._remote.get, path_of("frontier", "next"), m.Leased, key=self._key(request, 0), wait=wait)
            found: m.Leased = self._asked(ask, timeout_ms=int(wait * 1000), **query)
            self._set_clock(found.now_us, self._ticks() - began - found.waited_ms * 1000)
            self.ready_seconds = None if found.next_ready_in_ms is None else found.next_ready_in_ms / 1000
            if found.urls or self._ticks() >= ends or request is not None:
                return LeaseBatch([_lease(one) for one in found.urls])

    def report(
        self,
        outcomes: Sequence[Outcome] | OutcomeBatch,
        links: Sequence[tuple[int, str | Link]] | UrlBatch = (),
        *,
        request_id: RequestId | None = None,
        watermark: tuple[str, bytes] | None = None,
    ) -> Report:
        """As `Frontier.report`, for a sequence of outcomes. A long report is several ones: an outcome is never there
        without its links. Lines and watermarks are the caller's own, and do not travel."""
        if isinstance(outcomes, OutcomeBatch) or isinstance(links, UrlBatch):
            raise SettingsError("report: a remote frontier takes a list of outcomes, and links by row")
        request = arguments.request(request_id)
        arguments.watermark(watermark, {})
        outcomes = arguments.listed("outcomes", outcomes) if isinstance(outcomes, Iterable) else outcomes
        outcomes_of(outcomes)
        if isinstance(links, list | tuple):
            for link in links:
                row_after(0, link)
        more: Mapping[int, Any] = by_outcome(links, len(outcomes))
        rows = [outcome_body(one, more.get(row, [])) for row, one in enumerate(outcomes)]
        codes: list[Settled] = []
        found: list[tuple[Code, ...]] = []
        for number, some in enumerate(_parts(rows, _outcome_bytes)):
            told = self.report_bodies(some, self._key(request, number))
            codes += map(Settled, told.codes)
            found += (tuple(map(Code, row)) for row in told.links)
        return Report(tuple(codes), tuple(found))

    def report_bodies(self, bodies: list[m.OutcomeBody], key: str) -> m.Reported:
        """Reports outcomes that fit into one body, under this key; the same call has the same answer."""
        return self._post(("frontier", "report"), m.Outcomes(bodies), m.Reported, key)

    # -- around them --------------------------------------------------------------------------------------------------

    def extend(self, tokens: Sequence[int], ttl_seconds: float) -> list[Settled]:
        """As `Frontier.extend`."""
        how = checked("extend", {"ttl_seconds": ttl_seconds, "tokens": tokens})
        # A number that can be no token of a server's is that of no lease.
        sent = [one for one in how["tokens"] if 0 < one < 1 << 63]
        body = m.Tokens(sent, max(1, round(how["ttl_seconds"] * 1000)))
        codes = iter(self._post(("frontier", "extend"), body, m.Codes).codes)
        return [Settled(next(codes)) if 0 < one < 1 << 63 else Settled.STALE for one in how["tokens"]]

    def set_address(self, host: str, address: str | None) -> None:
        """As `Frontier.set_address`."""
        self.set_addresses({arguments.host(host): address})

    def register(self, user_agent: str | None = None) -> m.Registered:
        """Registers this worker with the server; its crawl's User-Agent, for which robots.txt files are read."""
        return self._post(("workers",), m.Register(self._worker, user_agent), m.Registered)

    # -- looking ------------------------------------------------------------------------------------------------------

    def now(self) -> Instant:
        """The latest possible instant of the server: the last one received, and the time since."""
        return self._ahead + self._ticks()

    def records(self) -> Iterator[dict[str, Any]]:
        """As `Frontier.records`. The server reads piece by piece, and drops an abandoned reading."""
        cursor: str | None = None
        while True:
            piece = self._get(("records",), after=cursor)
            yield from piece["rows"]
            cursor = piece["cursor"]
            if cursor is None:
                return

    def restore(self, records: Iterable[Mapping[str, Any]]) -> int:
        """As `Frontier.restore`, in as many calls as the records need."""
        return sum(self._in_parts(Frontier.restore, checked_records(records)))

    def put(self, records: Iterable[Mapping[str, Any]]) -> list[Code]:
        """As `Frontier.put`, in as many calls as the records need."""
        pieces = list(checked_records(records))  # all are checked before the first is sent
        return [code for codes in self._in_parts(Frontier.put, pieces) for code in codes]

    def _in_parts(self, method: Callable[..., Made], pieces: Iterable[Sequence[Mapping[str, Any]]]) -> Iterator[Made]:
        """Yields the answers of a verb to as many calls as the records of these pieces need."""
        for piece in pieces:
            for some in _parts(piece, lambda record: len(msgspec.json.encode(record))):
                yield self._verb(method, {"records": some})

    def statistics(self) -> dict[str, Any]:
        """Counts for machines: the fields of `status --json`."""
        return self._get(("status",))

    # -- the end ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes the connections; leases last until their deadlines."""
        self._closed = True
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<RemoteFrontier {self._remote.address}>"

    def key(self) -> str:
        """A fresh key for a call that may be repeated."""
        return self._remote.key()

    # -- requests -----------------------------------------------------------------------------------------------------

    def _verb(self, method: Callable[..., Made], given: Mapping[str, Any]) -> Made:
        """The answer of a verb that a server declares."""
        name = method.__name__
        found = self._post(("verbs", name), checked(name, given), m.VerbAnswer)
        answer: Made = made(ANSWERS[name], found.answer)
        return answer

    def _key(self, request: RequestId | None, number: int) -> str:
        """The key of a call: the caller's, for each part of it, or a fresh one."""
        return self._remote.key() if request is None else f"{request[0]}.{request[1]}.{number}"

    def _asked(self, ask: Callable[..., Made], **query: Any) -> Made:
        if self._closed:
            raise ClosedError
        return ask(**query)

    def _get(self, parts: tuple[str, ...], **query: Any) -> dict[str, Any]:
        return self._asked(partial(self._remote.get, path_of(*parts), dict[str, Any]), **query)

    def _post(self, parts: tuple[str, ...], body: Any, gives: type[Made], key: str | None = None) -> Made:
        return self._asked(partial(self._remote.post, path_of(*parts), body, gives, key=key))

    def _ask_ready(self) -> tuple[Instant, m.NextReady]:
        began = self._ticks()
        found = self._asked(partial(self._remote.get, path_of("frontier", "ready"), m.NextReady))
        self._set_clock(found.now_us, self._ticks() - began)
        return self._ahead, found

    def _set_clock(self, now: Instant, ago_at_most: Instant) -> None:
        """Notes that the server's clock was `now` at most this long ago: its instant may be later by that time, and a
        lease does not end later because of it."""
        self._ahead = now + max(0, ago_at_most) - self._ticks()


class AwaitedRemote:
    """Each method of `RemoteFrontier` to await, made in a thread."""

    def __init__(self, frontier: RemoteFrontier) -> None:
        self.sync = frontier

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        return partial(asyncio.to_thread, getattr(self.sync, name))

    async def records(self) -> AsyncIterator[dict[str, Any]]:
        """As `RemoteFrontier.records`; each piece is read in a thread."""
        rows = self.sync.records()
        while some := await asyncio.to_thread(lambda: list(islice(rows, DISCOVER_ROWS_PER_FRAME))):
            for row in some:
                yield row

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.sync.close()


class OpeningRemote(OpeningFrontier[RemoteFrontier, AwaitedRemote]):
    """A served frontier that is being opened."""


def connect(
    address: str,
    *,
    token: str | None = None,
    ca: str | None = None,
    worker: str | None = None,
    patience_seconds: float = REMOTE_PATIENCE_SECONDS,
) -> RemoteFrontier:
    """The frontier of the server at an address: http, https, grpc or grpcs. Other addresses have ways of their own."""
    if (way := way_to(str(address))) is not None:
        other: RemoteFrontier = way(address, token=token, ca=ca, worker=worker, patience_seconds=patience_seconds)
        return other
    patience = arguments.seconds("patience_seconds", patience_seconds)
    transport = transport_to(address, token=token, ca=ca)
    remote = RepeatedRequests(address, transport, patience_seconds=patience)
    return RemoteFrontier(remote, worker=worker, close=transport.close)


# -- to bodies and back ------------------------------------------------------------------------------------------------


def _listed(links: Iterable[str | Link] | UrlBatch) -> Iterator[str | m.NewUrl]:
    if isinstance(links, str | bytes | bytearray):
        raise SettingsError(f"discover takes a list of links, not one text: discover([{links!r:.80}])")
    if not isinstance(links, UrlBatch) and not isinstance(links, Iterable):
        raise SettingsError(f"links {links!r:.80}: discover takes a list of links")
    return _with_columns(links) if isinstance(links, UrlBatch) else map(_link, arguments.listed("links", links))


def _link(given: Any) -> str | m.NewUrl:
    if not isinstance(given, Link):
        return sendable(arguments.plain(given))
    given = arguments.link(given)
    if given.priority is not None:
        possible_priority(given.priority)
    packed(given.metadata, bytes_max=metadata_bytes_max(callers=True))
    return m.NewUrl(
        sendable(given.url),
        priority=given.priority,
        source_url=given.referrer,
        depth=given.depth,
        crawl_id=given.crawl,
        key=given.key,
        hops=given.hops,
        not_before_us=given.not_before,
        metadata=dict(given.metadata) if given.metadata is not None else None,
        unique_key=given.unique_key,
        modified=given.modified
        if given.modified is None or isinstance(given.modified, int)
        else sendable(given.modified),
        change_seconds=given.change_seconds,
    )


def outcome_body(one: Outcome, more: Sequence[str | Link] = ()) -> m.OutcomeBody:
    """Returns the body that reports an outcome to a server; its lines are not sent."""
    links = one.links
    if isinstance(links, UrlBatch):
        found = list(_with_columns(links))
    elif isinstance(links, Sequence):
        found = [_link(each) for each in links]
    else:
        found = [_link(each) for each in links.strings()]
    answer = one.robots
    return m.OutcomeBody(
        **{body: getattr(one, name) for name, body in m.OUTCOME_AS_IT_IS.items()},
        verdict=str(one.verdict),
        links=[*found, *map(_link, more)],
        robots=m.RobotsBody(answer.status, answer.body, answer.location, answer.fresh_seconds)
        if answer is not None
        else None,
        metadata=dict(one.metadata) if one.metadata is not None else None,
    )


def _with_columns(batch: UrlBatch) -> Iterator[str | m.NewUrl]:
    """The rows of a batch with their depths and priorities."""
    depths, priorities = batch.columns.get("depth"), batch.columns.get("priority")
    if depths is None and priorities is None:
        yield from batch.strings()
        return
    for row, url in enumerate(batch.strings()):
        priority = None if priorities is None or priorities[row] != priorities[row] else float(priorities[row])
        yield m.NewUrl(url, priority=priority, depth=0 if depths is None else int(depths[row]))


def _lease(one: m.Record) -> Lease:
    return Lease(
        **{name: getattr(one, there) for name, there in m.LEASE_AS_IT_IS.items()},
        kind=Kind(one.kind),
        metadata=one.metadata,
    )


def made(kind: Any, sent: Any) -> Any:
    """The answer of a verb from its JSON."""
    if kind is LeaseBatch:
        return LeaseBatch(map(_lease, msgspec.convert(sent, _sent_as(kind))))
    if get_origin(kind) is ListPage:
        return ListPage(msgspec.convert(_undated(sent["rows"]), _sent_as(kind)), sent["cursor"])
    return msgspec.convert(_undated(sent), kind)


def _sent_as(kind: Any) -> Any:
    """Returns the type of an answer in JSON."""
    if kind is LeaseBatch:
        return list[m.Record]
    return list[get_args(kind)[0]] if get_origin(kind) is ListPage else kind  # type: ignore[misc]


def _undated(value: Any, name: str = "") -> Any:
    """Returns JSON with its instants and fingerprints as the numbers that the library has."""
    if isinstance(value, dict):
        return {key: _undated(one, key) for key, one in value.items()}
    if isinstance(value, list):
        return [_undated(one, name) for one in value]
    if not isinstance(value, str) or name not in (*_INSTANTS, "fingerprint"):
        return value
    if name == "fingerprint":
        return int(value, 16)
    return (datetime.fromisoformat(value) - _EPOCH) // timedelta(microseconds=1)


ANSWERS: Final = {name: get_type_hints(method)["return"] for name, (_, method) in served_of(Frontier).items()}
"""The type of each answer. All are decoded once here, in one thread, because two threads that decode a type for the
first time can crash the interpreter (msgspec 0.22)."""
for _kind in ANSWERS.values():
    msgspec.json.Decoder(_sent_as(_kind))


def _link_bytes(one: str | m.NewUrl) -> int:
    if isinstance(one, str):
        return len(one)
    return len(one.url) + len(one.source_url or "") + 300 + _encoded_bytes(one.unique_key) + _json_bytes(one.metadata)


def _outcome_bytes(one: m.OutcomeBody) -> int:
    links = sum(map(_link_bytes, one.links))
    return 400 + links + _encoded_bytes(one.robots.body if one.robots else None) + _json_bytes(one.metadata)


def _encoded_bytes(octets: bytes | None) -> int:
    """The length of octets as base64."""
    return 0 if octets is None else len(octets) * 4 // 3


def _json_bytes(metadata: Mapping[str, Any] | None) -> int:
    return len(msgspec.json.encode(metadata)) if metadata else 0


def _parts(rows: Iterable[Made], size: Callable[[Made], int]) -> Iterator[list[Made]]:
    """The rows in pieces that fit into one body each."""
    piece: list[Made] = []
    total = 0
    for row in rows:
        length = size(row)
        if piece and (total + length > REMOTE_BODY_BYTES or len(piece) >= REMOTE_ROWS_MAX):
            yield piece
            piece, total = [], 0
        piece.append(row)
        total += length
    if piece:
        yield piece


if TYPE_CHECKING:

    def _speaks(frontier: RemoteFrontier) -> Verbs:
        """Lets the type checker prove that a remote frontier has the verbs of `journey`."""
        return frontier
