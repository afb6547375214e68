"""A served frontier from its opening to its end: one socket, SIGTERM and SIGINT drain it.

The first signal ends leasing: requests that wait are answered, results are taken until every lease is settled or the
time for that is over. A second signal ends it at once. Leases that are still out live on in the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from outrider.crawl.control import Answer, Control
from outrider.crawl.looks import ORDERS, changing, settings_of, store_of
from outrider.crawl.permission import Permission
from outrider.crawl.seeds import read_hosts
from outrider.engine import AsyncFrontier
from outrider.errors import NoCrawlError, SettingsError, UnreachableError
from outrider.fetch.addresses import AddressGuard
from outrider.limits import SERVICE_CONNECTIONS_MAX, SERVICE_HEAD_BYTES_MAX
from outrider.service.access import Hosts, Listening, Tokens
from outrider.service.app import application
from outrider.service.audit import Audit
from outrider.service.desk import Desk
from outrider.service.errands import Errands, visits_of
from outrider.service.otlp import Endpoint, exporting
from outrider.service.problems import MEDIA_TYPE, Problem

SWITCH_SECONDS = 0.0005  # the loop is kept from going on no longer by a thread that looks at a million hosts
ANSWERS_SECONDS_MAX = 5  # behind the drain, for answers that are under way


class _Connection(H11Protocol):
    """Refuses what is no request of HTTP, and requests beyond the connections that it bears, as everything else is
    refused."""

    def handle_events(self) -> None:
        """Requests are answered, or all of them refused while too many connections are open."""
        full = max(len(self.connections), len(self.tasks)) >= SERVICE_CONNECTIONS_MAX
        self.app = _full if full else self.config.loaded_app
        super().handle_events()

    def send_400_response(self, msg: str) -> None:
        """Is called while the error of the parser is handled: its status tells a head that is too long."""
        error = sys.exc_info()[1]
        long = getattr(error, "error_status_hint", 400) == 431
        problem = (
            Problem(
                "head-too-large", f"the request line and its headers have more than {SERVICE_HEAD_BYTES_MAX:,} bytes"
            )
            if long
            else Problem("no-request", str(error)[:200] if error is not None else msg)
        )
        body = problem.body()
        headers = [("content-type", MEDIA_TYPE), ("content-length", str(len(body))), ("connection", "close")]
        reason = STATUS_PHRASES[problem.status]
        for event in (
            h11.Response(status_code=problem.status, headers=headers, reason=reason),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event))
        self.transport.close()


async def _full(_scope: Any, _receive: Any, send: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
    """Answers as uvicorn's own limit of connections would, with words and `Retry-After`."""
    problem = Problem("too-many-connections", f"{SERVICE_CONNECTIONS_MAX:,} connections are open; ask again later")
    body = problem.body()
    told = {**problem.headers(), "content-type": MEDIA_TYPE, "content-length": str(len(body)), "connection": "close"}
    headers = [(name.encode(), value.encode()) for name, value in told.items()]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class _Server(uvicorn.Server):
    """Signals are ours, so that the first one drains."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def serve(
    directory: str,
    listening: Listening,
    tokens: Tokens,
    *,
    flags: Mapping[str, object] | None = None,
    names: frozenset[str] = frozenset(),
    drain_seconds: float = 10.0,
    collector: Endpoint | None = None,
    say: Callable[[str], None],
) -> bool:
    """Serve the frontier of a crawl's directory until a signal; whether all its work was done by then.

    flags: settings of the crawl as they were typed, which outrider.toml keeps. collector: where metrics are sent, if
    anywhere. say: is told the address once it listens, and what happens at the end. Raises SettingsError for a port in
    use, and the errors of opening a store.
    """
    options = settings_of(directory, flags)
    hosts = read_hosts(options.hosts)
    alone = _is_store_alone(directory)
    if alone and flags:
        raise SettingsError(
            f"{directory} is a store that a program keeps alone, and keeps no settings; leave out "
            f"{', '.join('--' + name.replace('_', '-') for name in flags)}"
        )
    listener = bound(listening)
    with contextlib.closing(listener), changing(directory, create=True, options=options) as frontier:
        audit = Audit(directory)
        try:
            at = listened_at(listening, listener)
            permission = None if alone else Permission.of_directory(directory, options, hosts)
            desk = Desk(
                AsyncFrontier(frontier),
                hosts=hosts_of(listening, names),
                tokens=tokens,
                audit=audit,
                directory=directory,
                permission=permission,
            )
            guard = permission.guard if permission is not None else AddressGuard(options.allow_address, hosts)
            fetching = visits_of(options, desk.frontier, hosts, guard)
            desk.errands = Errands(desk.frontier, fetching)
            return asyncio.run(_run(desk, directory, at, listener, drain_seconds, collector, say))
        finally:
            audit.close()


def _is_store_alone(directory: str) -> bool:
    """Whether a program keeps a store alone in `directory`, without a crawl's settings."""
    with contextlib.suppress(NoCrawlError):
        return store_of(directory) == directory
    return False


def hosts_of(listening: Listening, names: frozenset[str]) -> Hosts:
    """The names by which a server at this address may be asked, these among them."""
    return Hosts(listening.loopback, names if listening.loopback else names | {socket.gethostname().lower()})


def listened_at(listening: Listening, listener: socket.socket) -> Listening:
    """The address with the port that the system gave, where it was asked for any."""
    return replace(listening, port=listener.getsockname()[1])


def bound(listening: Listening) -> socket.socket:
    """A socket that listens at the address. Raises SettingsError where that cannot be had, and for a certificate or key
    that cannot be used."""
    listening.check_certificate()
    family = socket.AF_INET6 if ":" in listening.host else socket.AF_INET
    # The protocol is named, for asyncio turns Nagle's delay off only where it is: 40 ms of each answer.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((listening.host, listening.port))
        listener.listen(2_048)  # a client that asks at once waits for the loop, and is not refused
    except OSError as error:
        listener.close()
        raise SettingsError(
            f"--http {listening.host}:{listening.port}: {os.strerror(error.errno or 0)}; give another address or port"
        ) from None
    return listener


def server_of(desk: Desk, at: Listening) -> uvicorn.Server:
    """The server of a desk; it leaves signals alone."""
    return _Server(
        uvicorn.Config(
            application(desk),
            loop="asyncio",
            http=_Connection,
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


async def _run(
    desk: Desk,
    directory: str,
    at: Listening,
    listener: socket.socket,
    drain_seconds: float,
    collector: Endpoint | None,
    say: Callable[[str], None],
) -> bool:
    frontier = desk.frontier
    sys.setswitchinterval(SWITCH_SECONDS)
    control = Control(directory, _answers(desk))
    server = server_of(desk, at)
    background = {asyncio.ensure_future(desk.keep_pace())}

    async def drain() -> None:
        say(f"outrider: closing; results are taken for up to {drain_seconds:g} s")
        ends = asyncio.get_running_loop().time() + drain_seconds
        while len(desk.handed) and asyncio.get_running_loop().time() < ends:
            desk.handed.expire(await frontier.now())
            await asyncio.sleep(0.05)
        server.should_exit = True

    def stop() -> None:
        if desk.closing.is_set():
            server.should_exit = server.force_exit = True
            return
        desk.closing.set()
        background.add(asyncio.ensure_future(drain()))

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    with contextlib.suppress(UnreachableError):  # a directory that takes no socket is served all the same
        await control.open()
    say(f"outrider: serving at {at.url}")
    try:
        async with exporting(desk, collector, say):
            await server.serve([listener])
        return await frontier.finished()
    finally:
        if desk.errands is not None:
            await desk.errands.close()
        await control.close()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        for task in background:
            task.cancel()
        frontier._pool.shutdown(wait=True)


def _answers(desk: Desk) -> dict[str, Answer]:
    """The answers over DIR/control.sock, as a running crawl has them: commands work beside a served frontier, too."""

    async def status(_: Mapping[str, Any]) -> dict[str, Any]:
        return await desk.status()

    def ordered(name: str) -> Answer:
        async def answered(question: Mapping[str, Any]) -> Any:
            given = {key: value for key, value in question.items() if key not in ("ask", "urls")}
            return await desk.order("control.sock", name, question, given)

        return answered

    return {**desk.answers, **{name: ordered(name) for name in ORDERS}, "status": status}
