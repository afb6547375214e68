"""The loop of `outrider serve --grpc`: one thread takes the waiting events of all calls, and answers them together.

The threads of `crates/wire` read and write. All items that arrived together are one turn: one sync, then all their
acknowledgements. Calls that read much run in other threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from outrider.engine.owner import Frontier
from outrider.engine.protobuf import Protocol
from outrider.engine.url_exchange import (
    DATE_MAX,
    DEFAULT_CRAWL,
    KEY_CHARACTERS_MAX,
    Put,
    UrlExchange,
)
from outrider.errors import ClosedError, SettingsError, StoreError, StoreFullError
from outrider.frontier.verbs.arrivals import KeyedUrls
from outrider.journey import Code, Kind, Lease, LeaseBatch
from outrider.limits import MICROSECONDS, SERVICE_BODY_BYTES_MAX
from outrider.service import reflection
from outrider.service.access import Listening, Role, TokenRoles
from outrider.service.audit import Audit
from outrider.service.grpc_calls import ROLES, Calls, listed, queue_key
from outrider.service.grpc_status import GrpcError, GrpcStatus, status_of
from outrider.service.open_calls import HandOut, OpenCall, OpenCalls
from outrider.service.problems import Problem
from outrider.service.reflection import Reflection
from outrider.service.server_errands import OWN_KINDS, ServerErrands

if TYPE_CHECKING:
    from outrider._native import WireServer, WireTurn
    from outrider.service.frontier_calls import FrontierCalls

MESSAGE_BYTES_MAX: Final = 4 << 20
UNFINISHED_BYTES_MAX: Final = 128 << 20
"""The limit of the bytes of messages that have not arrived whole, for all calls together."""
STREAMS_MAX: Final = 4_096
CALLS_PER_CLIENT_MAX: Final = 4_096
"""How many calls a client, a token, may have open over all of its connections."""
CALLS_PER_SECOND_MAX: Final = 2_000
"""How many calls a client may begin each second."""
LEASES_PER_CLIENT_MAX: Final = 1_000_000
"""How many URLs a client may have in process."""
CONNECTIONS_MAX: Final = 4_096
LEASE_SECONDS: Final = 30
"""How long URLs are handed out for if the request says 0."""
LEASE_SECONDS_MAX: Final = 86_400
PIECE_URLS: Final = 512
"""How many URLs are leased at once. More follow when these are on their way."""
_TURN_SECONDS: Final = 0.5
_ANSWERS_SECONDS_MAX: Final = 1.0
_OK, _SKIPPED, _FAIL = 0, 1, 2
_DISCOVERED, _KNOWN, _MALFORMED = 1, 2, 3
_RAW, _ITEMS, _BATCHES = 0, 1, 2
_ACCEPTED: Final = frozenset({Code.NEW, Code.HELD})
Octets = npt.NDArray[np.uint8]
Rows = npt.NDArray[np.intp]
_LOG: Final = logging.getLogger("outrider.service")
HEALTH: Final = "/grpc.health.v1.Health/Check"
_SERVING: Final = b"\x08\x01"


class _Items:
    """The items of a turn in columns."""

    def __init__(self, turn: WireTurn) -> None:
        self.urls, self.keys, self.metadata = turn.urls, turn.keys, turn.metadata
        names = turn.crawls
        crawl_of = {name: name.strip() or DEFAULT_CRAWL for name in set(names)}
        self.crawls = [crawl_of[name] for name in names] if len(crawl_of) > 1 else [*crawl_of.values()] * len(names)

    def name(self, row: int) -> tuple[str, str, str]:
        """Returns crawl, key and URL of an item, which are equal for items of one URL."""
        return self.crawls[row], self.keys[row], self.urls[row]

    def complete(self) -> npt.NDArray[np.bool_]:
        """Returns which items have a URL and a key, or a URL that has a key."""
        found = np.ones(len(self.urls), np.bool_)
        if "" in self.urls:
            found &= np.array([bool(url) for url in self.urls], np.bool_)
        if max(map(len, self.keys), default=0) > KEY_CHARACTERS_MAX:
            found &= np.array([len(key) <= KEY_CHARACTERS_MAX for key in self.keys], np.bool_)
        if "" in self.keys:
            pairs = zip(self.urls, self.keys, strict=True)
            found &= np.array([bool(key) or "://" in url or bool(queue_key(url)) for url, key in pairs], np.bool_)
        return found

    def by_crawl(self, rows: Rows) -> Iterator[tuple[str, Rows]]:
        """Yields each crawl of these rows, with its rows."""
        if len(names := set(self.crawls)) == 1:
            if len(rows):
                yield names.pop(), rows
            return
        of_crawl: dict[str, list[int]] = {}
        for row in rows.tolist():
            of_crawl.setdefault(self.crawls[row], []).append(row)
        yield from ((crawl, np.array(some, np.intp)) for crawl, some in of_crawl.items())

    def put(self, crawl: str, rows: Rows, due: npt.NDArray[np.int64] | None = None) -> Put:
        """Returns the items of these rows, all of one crawl. due: instants of all rows."""
        columns: list[list[Any]] = [self.urls, self.keys, self.metadata]
        if len(rows) < len(self.urls):
            columns = [[column[row] for row in rows.tolist()] for column in columns]
        return Put(crawl, KeyedUrls(*columns), None if due is None else due[rows])


class GrpcServer:
    """Serves one frontier over gRPC, from `start` to `close`."""

    def __init__(
        self,
        frontier: Frontier,
        listening: Listening,
        listener: socket.socket,
        roles: TokenRoles,
        audit: Audit | None,
        frontier_calls: FrontierCalls | None = None,
    ) -> None:
        """frontier_calls: the calls of `outrider.v1.Frontier`, which are answered on the loop of `start`."""
        from outrider._native import WireServer  # only a native build has it

        self._exchange = UrlExchange(frontier)
        self._roles, self._audit = roles, audit
        self._calls = Calls(self._exchange, f"{listening.host}:{listening.port}")
        self._protocol = Protocol.of("urlfrontier")
        kinds = {"PutURLs": _ITEMS, "PutDiscovered": _BATCHES}
        self._frontier_calls = frontier_calls
        paths = list(frontier_calls.calls) if frontier_calls is not None else []
        served = [self._protocol] if frontier_calls is None else [self._protocol, frontier_calls.protocol]
        self._reflection = Reflection(served)
        self._names = [*self._protocol.calls, "health", *reflection.PATHS, *paths]
        methods = [
            *((call.path, kinds.get(name, _RAW), MESSAGE_BYTES_MAX) for name, call in self._protocol.calls.items()),
            *((path, _RAW, MESSAGE_BYTES_MAX) for path in (HEALTH, *reflection.PATHS)),
            *((path, _RAW, SERVICE_BODY_BYTES_MAX) for path in paths),
        ]
        self._server: WireServer = WireServer(
            listener.detach(),
            methods,
            certificate=_octets_of(listening.certificate),
            key=_octets_of(listening.key),
            unfinished_bytes_max=UNFINISHED_BYTES_MAX,
            streams_max=STREAMS_MAX,
            connections_max=CONNECTIONS_MAX,
        )
        self.address = f"{listening.host}:{listening.port}"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._errands: ServerErrands | None = None
        self._open = OpenCalls(CALLS_PER_CLIENT_MAX, CALLS_PER_SECOND_MAX)
        self._pool = ThreadPoolExecutor(4, "outrider-grpc")
        self._room = threading.Condition()
        self._full: set[int] = set()  # lists that wait for room
        self._closing = self._stopped = False
        self.counts: Counter[str] = Counter()
        self.hand_out_seconds = 0.0
        self._thread = threading.Thread(target=self._run, name="outrider-grpc", daemon=True)

    def start(self, loop: asyncio.AbstractEventLoop | None = None, errands: ServerErrands | None = None) -> None:
        """Begins to answer. errands: fetches what URLs need first, on this loop; None for a server without errands."""
        self._loop, self._errands = loop, errands
        self._thread.start()

    def drain(self) -> None:
        """Hands out nothing more. Results are accepted until `close`."""
        self._closing = True

    def close(self) -> None:
        """Tells clients to begin no more calls here, answers those that are open for a second, and ends all calls."""
        self._server.drain()
        self._server.wait_idle(_ANSWERS_SECONDS_MAX)
        self._stopped = True
        self._server.wake()
        self._thread.join()
        with self._room:
            self._full.clear()
            self._room.notify_all()
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._server.close()

    # -- turns --------------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        gathers = False
        while not self._stopped:
            if gathers:
                self._server.gather()
            turn = self._server.take(_TURN_SECONDS)
            gathers = turn is not None and len(turn) > 1
            if turn is None:
                continue
            try:
                self._turn(turn)
            except Exception:  # noqa: BLE001 - a bug in one turn must not end all calls
                _LOG.exception("a turn of the gRPC server failed")

    def _turn(self, turn: WireTurn) -> None:
        for stream, method, header, peer in turn.opened:
            self._begin(stream, self._names[method], header, peer)
        self._server.acknowledge(turn, self._statuses(turn) if len(turn) else b"")
        for stream, message in turn.messages:
            self._ask(stream, message)
        for stream in turn.room:
            self._continue(stream)
        for stream in turn.ended:
            self._end(stream)
        for stream, sent in turn.gone:
            self._forget(stream, sent)

    def _begin(self, stream: int, name: str, header: str | None, peer: str) -> None:
        try:
            if self._frontier_calls is not None and name in self._frontier_calls.calls:
                who = self._frontier_calls.permitted(name, header)
            elif name in reflection.PATHS:
                who = self._roles.check(header, Role.READ)
            else:
                who = self._roles.check(header, ROLES[name]) if name in ROLES else ""
            self._open.add(stream, OpenCall(name, who, peer=peer))
        except (Problem, GrpcError) as error:
            self._finish(stream, error)
            return
        if name in ("PutURLs", "PutDiscovered"):
            self.counts[f"{name}_calls"] += 1

    def _finish(self, stream: int, error: BaseException | None = None) -> None:
        self._open.pop(stream)
        if error is None:
            self._server.finish(stream, GrpcStatus.OK, "")
            return
        status, message = status_of(error)
        if status is GrpcStatus.INTERNAL:
            _LOG.error("a call failed", exc_info=error)
        self._server.finish(stream, status, message, error.trailer() if isinstance(error, Problem) else "")

    def _end(self, stream: int) -> None:
        call = self._open.get(stream)
        if call is None:
            return
        call.ended = True
        if call.name in ("PutURLs", "PutDiscovered", *reflection.PATHS):
            self._finish(stream)  # all its messages have their answers
        elif not call.answered:
            self._finish(stream, GrpcError(GrpcStatus.INVALID_ARGUMENT, "the call has no message"))

    def _forget(self, stream: int, sent: int) -> None:
        """A call was cancelled, broke, or is past its deadline: what did not reach it returns to its queue."""
        call = self._open.pop(stream)
        with self._room:
            self._full.discard(stream)
            self._room.notify_all()
        if call is not None and call.gone is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(call.gone.set)
        if call is None or call.hand_out is None:
            return
        tokens = call.hand_out.tokens
        self._exchange.rest(tokens[:sent])
        self._exchange.release(tokens[sent:])

    # -- URLs in ------------------------------------------------------------------------------------------------------

    def _statuses(self, turn: WireTurn) -> bytes:
        """Returns the status of each item of a turn: of all the same if the frontier does not answer."""
        try:
            return self._put(turn)
        except (ClosedError, StoreError):
            return bytes([_FAIL]) * len(turn)
        except Exception:  # noqa: BLE001 - each item has its answer, and the client may repeat it
            _LOG.exception("the items of a turn failed")
            return bytes([_FAIL]) * len(turn)

    def _put(self, turn: WireTurn) -> bytes:
        """Returns the status of each item of a turn, when those that are OK are durable."""
        branches = np.frombuffer(turn.branches, np.uint8)
        statuses = np.full(len(turn), _SKIPPED, np.uint8)
        items = _Items(turn)
        dates = np.frombuffer(turn.dates, np.uint64)
        fit = self._fit(np.frombuffer(turn.streams, np.uint64), branches, items)
        discovered = np.flatnonzero(fit & (branches == _DISCOVERED))
        dated = np.flatnonzero(fit & (branches == _KNOWN) & (dates <= DATE_MAX))
        if len(discovered) and len(dated):
            # An item of this turn that follows a date of its URL is about a known URL.
            first: dict[tuple[str, str, str], int] = {}
            for row in dated.tolist():
                first.setdefault(items.name(row), row)
            unseen = [row < first.get(items.name(row), len(turn)) for row in discovered.tolist()]
            discovered = discovered[np.array(unseen, np.bool_)]
        due = dates.astype(np.int64) * MICROSECONDS if len(dated) else None
        puts = [(rows, items.put(crawl, rows)) for crawl, rows in items.by_crawl(discovered)]
        puts += [(rows, items.put(crawl, rows, due)) for crawl, rows in items.by_crawl(dated)]
        if puts:
            self._store(puts, statuses)
        if len(dated) and self._calls.limits:
            changed = {(items.crawls[row], queue_key(items.urls[row], items.keys[row])) for row in dated.tolist()}
            for crawl, changed_key in changed & self._calls.limits.keys():
                self._calls.hold(crawl, changed_key)
        self._count(branches, statuses, dates)
        return statuses.tobytes()

    def _fit(self, streams: npt.NDArray[np.uint64], branches: Octets, items: _Items) -> npt.NDArray[np.bool_]:
        """Returns which items can be stored. Ends the calls with messages of another type, and those that use a crawl
        that is refused; their later items are not stored."""
        fit: npt.NDArray[np.bool_] = (branches == _DISCOVERED) | (branches == _KNOWN)
        for stream in set(streams.tolist()):
            if stream not in self._open:
                fit &= streams != stream
        refused = self._exchange.refused(set(items.crawls))
        wrong = branches == _MALFORMED
        if refused:
            wrong = wrong | np.array([crawl in refused for crawl in items.crawls], np.bool_)
        for row in np.flatnonzero(wrong).tolist():
            stream = int(streams[row])
            fit[row:] &= streams[row:] != stream
            if stream not in self._open:
                continue
            if branches[row] == _MALFORMED:
                message = "a message is not of the type of this call"
                self._finish(stream, GrpcError(GrpcStatus.INVALID_ARGUMENT, message))
            else:
                self._finish(stream, GrpcError(GrpcStatus.FAILED_PRECONDITION, refused[items.crawls[row]]))
        return fit & items.complete()

    def _store(self, puts: Sequence[tuple[Rows, Put]], statuses: Octets) -> None:
        """Stores items, and sets the status of each of these rows."""
        try:
            found = self._exchange.put([put for _, put in puts])
        except (StoreFullError, ClosedError, StoreError):
            for rows, _ in puts:
                statuses[rows] = _FAIL
            return
        for (rows, put), codes in zip(puts, found, strict=True):
            if not isinstance(codes, SettingsError):
                accepted = [_OK if code in _ACCEPTED else _SKIPPED for code in codes]
                statuses[rows] = accepted if put.due is None else _OK
            elif len(rows) > 1:
                # One of them is refused: each gets its own answer.
                self._store([(rows[place : place + 1], put.row(place)) for place in range(len(rows))], statuses)
            else:
                statuses[rows] = _SKIPPED

    def _count(self, branches: Octets, statuses: Octets, dates: npt.NDArray[np.uint64]) -> None:
        counts = self.counts
        counts["put"] += len(branches)
        counts["put_ignored"] += int(np.count_nonzero(statuses == _SKIPPED))
        discovered = int(np.count_nonzero(branches == _DISCOVERED))
        counts["put_discovered"] += discovered
        counts["put_known"] += len(branches) - discovered
        counts["put_completed"] += int(np.count_nonzero((dates == 0) & (branches == _KNOWN)))

    # -- calls with one request ---------------------------------------------------------------------------------------

    def _ask(self, stream: int, message: bytes) -> None:
        call = self._open.get(stream)
        if call is None or call.answered:
            return
        if call.name in reflection.PATHS:
            self._guarded(stream, lambda: self._reflect(stream, message))
            return
        call.answered = True
        if call.name == "GetURLs":
            self._guarded(stream, lambda: self._hand_out(stream, call, self._protocol.read("GetParams", message)))
        elif call.name == "health":
            self._server.send(stream, [_SERVING])
            self._finish(stream)
        elif self._frontier_calls is not None and call.name in self._frontier_calls.calls:
            self._ask_frontier(stream, call, message, self._frontier_calls)
        else:
            self._pool.submit(self._guarded, stream, lambda: self._answer(stream, call, message))

    def _reflect(self, stream: int, message: bytes) -> None:
        self._server.send(stream, [self._reflection.answered(message)])

    def _ask_frontier(self, stream: int, call: OpenCall, message: bytes, calls: FrontierCalls) -> None:
        """Begins to answer a call of `outrider.v1.Frontier` on the loop."""
        if self._loop is None:
            raise RuntimeError("these calls need the loop of a server")
        call.gone = asyncio.Event()
        answer = calls.answered(call.name, call.who, call.peer, message, call.gone)

        def done(made: Future[bytes]) -> None:
            if made.cancelled():
                self._finish(stream, ClosedError())
            elif (error := made.exception()) is not None:
                self._finish(stream, error)
            else:
                self._server.send(stream, [made.result()])
                self._finish(stream)

        asyncio.run_coroutine_threadsafe(answer, self._loop).add_done_callback(done)

    def _guarded(self, stream: int, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - each error ends its call with a status
            self._finish(stream, error)

    def _answer(self, stream: int, call: OpenCall, message: bytes) -> None:
        types = self._protocol.calls[call.name]
        request = self._protocol.read(types.takes, message)
        if ROLES[call.name] >= Role.OPERATE and self._audit is not None:
            self._audit.note(call.who, call.name, **_facts(request))

        def lives() -> bool:
            return stream in self._open

        if call.name == "ListURLs":
            self._stream(stream, types.gives, self._calls.list_urls(request, lives))
        else:
            scan = self._calls.scans.get(call.name)
            answer = scan(request, lives) if scan is not None else self._calls.unary[call.name](request)
            self._server.send(stream, [self._protocol.write(types.gives, answer)])
        self._finish(stream)

    def _stream(self, stream: int, kind: str, rows: Iterator[Mapping[str, Any]]) -> None:
        """Sends rows, and waits while the client reads slowly."""
        for row in rows:
            with self._room:
                self._full.add(stream)
            if self._server.send(stream, [self._protocol.write(kind, row)]):
                continue
            with self._room:
                while stream in self._full and stream in self._open and not self._stopped:
                    self._room.wait(1.0)
            if stream not in self._open:
                return

    # -- URLs out -----------------------------------------------------------------------------------------------------

    def _hand_out(self, stream: int, call: OpenCall, request: Mapping[str, Any]) -> None:
        self.counts["get_calls"] += 1
        begun = time.perf_counter()
        try:
            self._hand_out_now(stream, call, request)
        finally:
            self.hand_out_seconds += time.perf_counter() - begun

    def _hand_out_now(self, stream: int, call: OpenCall, request: Mapping[str, Any]) -> None:
        if self._closing or not self._calls.active:
            self._finish(stream)
            return
        crawls = self._crawls_of(request)
        seconds = int(request.get("delay_requestable", 0)) or LEASE_SECONDS
        call.hand_out = HandOut(
            float(min(seconds, LEASE_SECONDS_MAX)),
            min(int(request.get("max_urls_per_queue", 0)), 1_000_000) or 1_000_000,
            int(request.get("max_queues", 0)) or None,
            str(request.get("key", "")) or None,
            crawls,
        )
        self._more(stream, call, call.hand_out)

    def _crawls_of(self, request: Mapping[str, Any]) -> list[str]:
        if "crawlID" in request:
            return [str(request["crawlID"]).strip() or DEFAULT_CRAWL]
        if request.get("key"):
            return [DEFAULT_CRAWL]
        crawls = self._exchange.own_crawls()
        # Crawls take turns at being first.
        first = self.counts["get_calls"] % len(crawls) if crawls else 0
        return crawls[first:] + crawls[:first]

    def _continue(self, stream: int) -> None:
        with self._room:
            self._full.discard(stream)
            self._room.notify_all()
        call = self._open.get(stream)
        if call is not None and call.hand_out is not None:
            wish = call.hand_out
            self._guarded(stream, lambda: self._more(stream, call, wish))

    def _more(self, stream: int, call: OpenCall, wish: HandOut) -> None:
        """Hands out pieces while the client reads them."""
        while wish.crawls and not self._closing and self._calls.active:
            leases = self._leased(wish, call.who)
            if leases is None and not wish.tokens:
                raise GrpcError(
                    GrpcStatus.RESOURCE_EXHAUSTED,
                    f"this client has {LEASES_PER_CLIENT_MAX:,} URLs in process, the most for one; send their updates",
                )
            if leases is None:
                break
            if not leases:
                wish.crawls.pop(0)
                continue
            pages = [one for one in leases if one.kind is Kind.PAGE]
            if len(pages) < len(leases):
                self._do_errands([one for one in leases if one.kind is not Kind.PAGE])
                if not pages:
                    continue
            rows = [(one.url, one.key, one.crawl, _lists(one.metadata)) for one in pages]
            wish.tokens += [one.token for one in pages]
            self.counts["get"] += len(rows)
            if wish.left is not None:
                wish.left -= len({(one.crawl, one.key) for one in pages})
                if wish.left <= 0:
                    wish.crawls.clear()
            if not self._server.send_infos(stream, rows) and wish.crawls:
                return
        self._exchange.rest(wish.tokens)
        call.hand_out = None
        self._finish(stream)

    def _do_errands(self, leases: list[Lease]) -> None:
        """Requests robots.txt files and addresses before the pages that wait for them."""
        own = [one for one in leases if one.kind in OWN_KINDS]
        self._exchange.release([one.token for one in leases if one.kind not in OWN_KINDS])
        loop, errands = self._loop, self._errands
        if loop is not None and errands is not None:
            asyncio.run_coroutine_threadsafe(errands.take(own), loop)

    def _leased(self, wish: HandOut, who: str) -> LeaseBatch | None:
        """Leases the next URLs; None for a client that has too many."""
        queues = PIECE_URLS if wish.left is None else min(wish.left, PIECE_URLS)
        try:
            return self._exchange.hand_out(
                min(PIECE_URLS, wish.per_queue * queues),
                wish.seconds,
                per_queue=wish.per_queue,
                queues_max=queues,
                crawl=wish.crawls[0],
                key=wish.key,
                errands=self._errands is not None,
                client=who,
                leases_max=LEASES_PER_CLIENT_MAX,
            )
        except SettingsError:
            return LeaseBatch()  # no queue has this key


def _lists(metadata: Mapping[str, Any] | None) -> dict[str, list[str]] | None:
    return listed(metadata) if metadata else None


def _facts(request: Mapping[str, Any]) -> dict[str, Any]:
    return {f"request_{name}": value for name, value in request.items()}


def _octets_of(path: str | None) -> bytes | None:
    if path is None:
        return None
    with open(path, "rb") as file:
        return file.read()


def check_native() -> None:
    """Raises SettingsError in a build without the native transport."""
    if os.environ.get("OUTRIDER_KERNELS") != "python":
        with contextlib.suppress(ImportError):
            from outrider._native import WireServer

            if WireServer is not None:
                return
    raise SettingsError(
        "--grpc needs the native build of Outrider, and this one has plain Python kernels: install a wheel for this "
        "system, or Rust and build it again; --http works without"
    )
