"""A served frontier from its opening to its end: a socket for HTTP, gRPC or each; SIGTERM and SIGINT drain it.

The first signal ends leasing. Waiting requests are answered, and results are accepted until every lease is settled or
the time for that is over. A second signal ends it at once. The store keeps open leases.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import uvicorn

from outrider.crawl.orders.own_faults import retry_own_faults, words_of
from outrider.crawl.questions.control import Answer, Control
from outrider.crawl.questions.crawl_queries import changing
from outrider.crawl.setup.directory import kept_settings, settings_of, store_of
from outrider.crawl.setup.options import flag_of
from outrider.crawl.setup.permission import Permission
from outrider.crawl.setup.seeds import read_hosts
from outrider.engine import AsyncFrontier
from outrider.engine.process_queries import ORDERS
from outrider.errors import NoCrawlError, SettingsError, UnreachableError
from outrider.fetch.addresses import AddressGuard
from outrider.frontier.policy.revisit_plan import NAMES as REVISIT_RULES
from outrider.limits import SERVICE_HEAD_BYTES_MAX
from outrider.service.acceptor import Acceptor
from outrider.service.access import Listening, ServerNames, TokenRoles
from outrider.service.app import application
from outrider.service.audit import Audit
from outrider.service.connection import Connection
from outrider.service.frontier_calls import FrontierCalls
from outrider.service.grpc_server import GrpcServer
from outrider.service.otlp import Endpoint, exporting
from outrider.service.served_identity import ServedIdentity
from outrider.service.server_errands import ServerErrands, visits_of
from outrider.service.service_state import ServiceState

SWITCH_SECONDS = 0.0005  # the longest pause of the loop for a thread that reads a million hosts
ANSWERS_SECONDS_MAX = 5  # after the drain, for answers in progress
_NOWHERE = Listening("127.0.0.1", 0)


class _QuietServer(uvicorn.Server):
    """A uvicorn server with our own signals, of which the first one drains, and our own acceptor."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accepts connections of these sockets."""
        config, state = self.config, self.server_state

        def make() -> Connection:
            return Connection(config=config, server_state=state, app_state=self.lifespan.state)

        await self.lifespan.startup()
        self.servers = [Acceptor(one, make, state.connections, config.ssl) for one in sockets or ()]  # type: ignore[misc]
        self.started = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _NoServer:
    """In place of a server of HTTP: it only waits for the end."""

    def __init__(self) -> None:
        self.force_exit = False
        self._ends = asyncio.Event()

    @property
    def should_exit(self) -> bool:
        """Whether the end has come."""
        return self._ends.is_set()

    @should_exit.setter
    def should_exit(self, now: bool) -> None:
        if now:
            self._ends.set()

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Returns when it should exit."""
        await self._ends.wait()


class _LogLines(logging.Handler):
    """Prints each line of a record."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        for line in self.format(record).splitlines():
            self._say(f"outrider: {line}")


@contextlib.contextmanager
def saying(say: Callable[[str], None]) -> Iterator[None]:
    """Prints faults of the server: bugs, failed errands, times without descriptors."""
    log, handler = logging.getLogger("outrider.service"), _LogLines(say)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


def serve(
    directory: str,
    listening: Listening | None,
    tokens: TokenRoles,
    *,
    grpc: Listening | None = None,
    flags: Mapping[str, object] | None = None,
    names: frozenset[str] = frozenset(),
    drain_seconds: float = 10.0,
    collector: Endpoint | None = None,
    identity: ServedIdentity | None = None,
    say: Callable[[str], None],
) -> bool:
    """Serves the frontier of a crawl's directory until a signal. Returns whether all its work was done by then.

    listening: the address of HTTP, None for no HTTP; grpc: that of gRPC. Without HTTP, clients read robots.txt
    themselves. flags: typed settings of the crawl, which outrider.toml keeps. collector: receives the metrics, if any.
    identity: whose key directory is served over HTTP. say: prints the address when the server listens, and the events
    at the end. Raises SettingsError for a port in use, and the errors of opening a store.
    """
    options = settings_of(directory, flags)
    if flags and "revisit" in flags and options.revisit is not None and options.revisit_rule is None:
        raise SettingsError(
            f"revisit {flags['revisit']!r:.80} is a function of pages, which the workers fetch: pass it to `outrider "
            f"work`, or use one of {', '.join(REVISIT_RULES)} here"
        )
    hosts = read_hosts(options.hosts)
    alone = _is_store_alone(directory)
    if alone and flags:
        raise SettingsError(
            f"{directory} is the store of a program, which has no settings; leave out {', '.join(map(flag_of, flags))}"
        )
    before = kept_settings(directory).options if os.path.isdir(directory) else {}
    robots = "caller" if listening is None else None
    with contextlib.ExitStack() as held:
        listener = held.enter_context(bound(listening)) if listening is not None else None
        grpc_listener = held.enter_context(bound(grpc, "--grpc")) if grpc is not None else None
        frontier = held.enter_context(changing(directory, create=True, options=options, robots=robots))
        if not alone and (back := retry_own_faults(frontier, before, options)):
            say(f"outrider: {words_of(back)}")
        audit = Audit(directory)
        try:
            permission = None if alone else Permission.of_directory(directory, options, hosts)
            service_state = ServiceState(
                AsyncFrontier(frontier),
                hosts=hosts_of(listening or grpc or _NOWHERE, names, identity),
                tokens=tokens,
                audit=audit,
                directory=directory,
                permission=permission,
                identity=identity,
            )
            guard = permission.guard if permission is not None else AddressGuard(options.allow_address, hosts)
            fetching = visits_of(options, service_state.frontier, hosts, guard)
            service_state.robots_by_clients = robots == "caller"
            service_state.errands = ServerErrands(service_state.frontier, fetching)
            http = None if listening is None or listener is None else (listened_at(listening, listener), listener)
            if grpc is not None and grpc_listener is not None:
                service_state.grpc = GrpcServer(
                    frontier,
                    listened_at(grpc, grpc_listener),
                    grpc_listener,
                    tokens,
                    audit,
                    FrontierCalls(service_state),
                )
            return asyncio.run(served_until_signal(service_state, directory, http, drain_seconds, collector, say))
        finally:
            audit.close()


def _is_store_alone(directory: str) -> bool:
    """Whether `directory` is the store of a program, without a crawl's settings."""
    with contextlib.suppress(NoCrawlError):
        return store_of(directory) == directory
    return False


def hosts_of(listening: Listening, names: frozenset[str], identity: ServedIdentity | None = None) -> ServerNames:
    """Returns the names of a server at this address, including these and the site of an identity."""
    if identity is not None:
        names |= {identity.name}
    return ServerNames(listening.loopback, names if listening.loopback else names | {socket.gethostname().lower()})


def listened_at(listening: Listening, listener: socket.socket) -> Listening:
    """Returns the address, with the port that the system chose for port 0."""
    return replace(listening, port=listener.getsockname()[1])


def bound(listening: Listening, flag: str = "--http") -> socket.socket:
    """Returns a socket that listens at the address, the value of an option. Raises SettingsError if the address cannot
    be used, and for an unusable certificate or key."""
    listening.check_certificate()
    family = socket.AF_INET6 if ":" in listening.host else socket.AF_INET
    # The protocol is named, because asyncio otherwise keeps Nagle's delay: 40 ms of each answer.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((listening.host, listening.port))
        listener.listen(2_048)  # clients that connect at once wait for the loop, and are not refused
    except OSError as error:
        listener.close()
        raise SettingsError(
            f"{flag} {listening.host}:{listening.port}: {os.strerror(error.errno or 0)}; use another address or port"
        ) from None
    return listener


def server_of(service_state: ServiceState, at: Listening) -> uvicorn.Server:
    """Returns the server of a state, without signal handlers."""
    return _QuietServer(
        uvicorn.Config(
            application(service_state),
            loop="asyncio",
            http=Connection,
            h11_max_incomplete_event_size=SERVICE_HEAD_BYTES_MAX,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=ANSWERS_SECONDS_MAX,
            ssl_certfile=at.certificate,
            ssl_keyfile=at.key,
        )
    )


async def served_until_signal(
    service_state: ServiceState,
    directory: str,
    http: tuple[Listening, socket.socket] | None,
    drain_seconds: float,
    collector: Endpoint | None,
    say: Callable[[str], None],
    *,
    beside: Callable[[ServiceState], Awaitable[None]] | None = None,
) -> bool:
    """Answers until a signal. beside: runs meanwhile, and its error ends the server. The other arguments are those of
    `serve`. Returns whether all work was done."""
    frontier, grpc = service_state.frontier, service_state.grpc
    sys.setswitchinterval(SWITCH_SECONDS)
    control = Control(directory, _answers(service_state))
    server = _NoServer() if http is None else server_of(service_state, http[0])
    background = {asyncio.ensure_future(service_state.keep_pace())}
    watching = None if beside is None else asyncio.ensure_future(beside(service_state))

    async def drain() -> None:
        say(f"outrider: closing; results are accepted for up to {drain_seconds:g} s")
        ends = asyncio.get_running_loop().time() + drain_seconds
        while len(service_state.registry) and asyncio.get_running_loop().time() < ends:
            service_state.registry.expire(await frontier.now())
            await asyncio.sleep(0.05)
        server.should_exit = True

    def stop() -> None:
        if service_state.closing.is_set():
            server.should_exit = server.force_exit = True
            return
        service_state.closing.set()
        if grpc is not None:
            grpc.drain()
        background.add(asyncio.ensure_future(drain()))

    if watching is not None:
        background.add(watching)
        watching.add_done_callback(lambda _: setattr(server, "should_exit", True))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    with contextlib.suppress(UnreachableError):  # without a socket in the directory, HTTP is served all the same
        await control.open()
    if grpc is not None:
        grpc.start(loop, service_state.errands if http is not None else None)
        say(f"outrider: serving gRPC at {grpc.address}")
    if http is not None:
        say(f"outrider: serving at {http[0].url}")
    try:
        async with exporting(service_state, collector, say):
            with saying(say):
                await server.serve([http[1]] if http is not None else None)
        if watching is not None and watching.done():
            watching.result()
        return await frontier.finished()
    finally:
        if grpc is not None:
            await asyncio.to_thread(grpc.close)
        if service_state.errands is not None:
            await service_state.errands.close()
        await control.close()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        for task in background:
            task.cancel()
        frontier._pool.shutdown(wait=True)


def _answers(service_state: ServiceState) -> dict[str, Answer]:
    """Returns the answers over DIR/control.sock, as for a running crawl: commands also work on a served frontier."""

    async def status(_: Mapping[str, Any]) -> dict[str, Any]:
        return await service_state.status()

    def ordered(name: str) -> Answer:
        async def answered(question: Mapping[str, Any]) -> Any:
            return await service_state.order("control.sock", name, question)

        return answered

    return {**service_state.answers, **{name: ordered(name) for name in ORDERS}, "status": status}
