"""Addresses by DNS, without a thread for each question: c-ares (`pycares`) sends it, one channel for each server.

If a server fails, or is silent for `DNS_HEDGE_SECONDS`, the next one is queried at the same time, and the
first answer counts. A failed server is avoided for some seconds, longer each time in a row.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import re
import socket
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outrider.clock import ClockFunction, elapsed, instant
from outrider.errors import SettingsError
from outrider.fetch.failures import FetchError, FetchFailure, safe_text
from outrider.fetch.lookups import Lanes, LookUp, NameAnswer
from outrider.limits import (
    DNS_ALONE_MAX,
    DNS_ALONE_OPEN_MAX,
    DNS_ALONE_TRIES,
    DNS_CHANNEL_NAMES,
    DNS_HEDGE_SECONDS,
    DNS_OPEN_MAX,
    DNS_PROMPT,
    DNS_PROMPT_SECONDS,
    DNS_REST_SECONDS,
    DNS_REST_SECONDS_MAX,
    DNS_SERVERS_MAX,
    DNS_SLOW_OPEN_MAX,
    DNS_TRIES,
    DNS_TRY_SECONDS,
)

if TYPE_CHECKING:
    import pycares

DNS_PORT = 53
_SERVER = re.compile(r"(?:\[(?P<six>[^\[\]]+)\]|(?P<any>[^:\[\]]+))(?::(?P<port>[0-9]{1,5}))?", re.ASCII)
_NAMESERVER = re.compile(r"^\s*nameserver\s+(\S+)", re.MULTILINE)


def read_server(text: str) -> str:
    """`IP`, `IP:PORT` or `[IPv6]:PORT` as c-ares wants it: `IP:PORT`, IPv6 in brackets. Raises SettingsError."""
    parts = _SERVER.fullmatch(text)
    try:
        address = ipaddress.ip_address((parts["six"] or parts["any"]) if parts else text)
    except ValueError:
        raise SettingsError(f"{safe_text(text, 60)!r} is not the IP address of a DNS server") from None
    if getattr(address, "scope_id", None) is not None:
        raise SettingsError(f"{safe_text(text, 60)!r} names an interface, which is not possible here")
    number = int(parts["port"] or DNS_PORT) if parts else DNS_PORT
    if not 0 < number < 65_536:
        raise SettingsError(f"the port of {safe_text(text, 60)!r} is not between 1 and 65535")
    return f"[{address}]:{number}" if address.version == 6 else f"{address}:{number}"


def system_servers(path: Path = Path("/etc/resolv.conf")) -> tuple[str, ...]:
    """Returns the servers of resolv.conf, as `read_server` spells them; no servers without such a file."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            text = file.read(1 << 16)
    except OSError:
        return ()
    found = []
    for word in _NAMESERVER.findall(text)[:DNS_SERVERS_MAX]:
        with contextlib.suppress(SettingsError):
            found.append(read_server(f"[{word}]:{DNS_PORT}" if ":" in word else word))
    return tuple(found)


@dataclass(slots=True)
class _Channel:
    """A channel and its state. c-ares keeps each answer for its TTL, without a limit on their number. So a channel with
    `DNS_CHANNEL_NAMES` names is replaced by a new one, and is closed after its last answer."""

    channel: Any
    asked: int = 0
    waiting: int = 0
    retired: bool = False

    def let_go(self) -> None:
        """Closes a retired channel of which no answer is awaited."""
        if self.retired and not self.waiting:
            self.channel.close()


@dataclass(slots=True)
class _NameServer:
    """One server: its record, and until when others are preferred (microseconds)."""

    name: str
    line: _Channel
    asked: int = 0
    answered: int = 0
    failed: int = 0
    waiting: int = 0
    in_a_row: int = 0
    rests_until: int = 0


Channels = Callable[[str], "pycares.Channel"]


def open_channel(server: str, lookups: str = "b") -> pycares.Channel:
    """Makes a channel of c-ares to one server: its own socket and thread; truncated answers are repeated over TCP.

    lookups: `b` queries the server, `fb` reads the hosts file of the system first.
    """
    import pycares

    return pycares.Channel(
        flags=pycares.ARES_FLAG_EDNS
        | pycares.ARES_FLAG_NOSEARCH
        | pycares.ARES_FLAG_NO_DFLT_SVR
        | pycares.ARES_FLAG_STAYOPEN,
        timeout=DNS_TRY_SECONDS,
        tries=DNS_TRIES,
        servers=[server],
        lookups=lookups,
    )


class MisreadAnswer(FetchFailure):
    """A server sent bytes that are not a DNS message, for this question or for another one of the same channel."""


class LostSocket(MisreadAnswer):
    """c-ares reported that no server can be reached: garbage may have closed the socket of the question."""


class NameServers(Lanes):
    """Several DNS servers as one: the healthy one with the fewest open questions is first.

    servers: as `read_server` spells them. family: with AF_INET no IPv6 addresses are requested. clock: microseconds
    that never run backwards. Used by one event loop.
    """

    def __init__(
        self,
        servers: Iterable[str],
        *,
        family: int | None = None,
        clock: ClockFunction = elapsed,
        open_channel: Channels = open_channel,
    ) -> None:
        super().__init__(DNS_PROMPT, DNS_OPEN_MAX, DNS_SLOW_OPEN_MAX)
        self._family = reachable_family() if family is None else family
        self._clock = clock
        self._open_channel = open_channel
        self._servers = [_NameServer(name, _Channel(open_channel(name))) for name in dict.fromkeys(servers)]
        self._tasks: set[asyncio.Task[None]] = set()
        self._alone = asyncio.Semaphore(DNS_ALONE_MAX)
        self._alone_open = asyncio.Semaphore(DNS_ALONE_OPEN_MAX)
        if not 0 < len(self._servers) <= DNS_SERVERS_MAX:
            raise SettingsError(f"{len(self._servers)} DNS servers were named; 1 to {DNS_SERVERS_MAX} are possible")

    def statistics(self) -> list[dict[str, str | int]]:
        """Returns a row for each server: questions, answered ones (that a name does not exist is an answer), failed."""
        return [
            {"server": one.name, "asked": one.asked, "answered": one.answered, "failed": one.failed}
            for one in self._servers
        ]

    def _start(self, one: LookUp, loop: asyncio.AbstractEventLoop) -> None:
        task = loop.create_task(self._query(one))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _query(self, one: LookUp) -> None:
        outcome: NameAnswer | Exception
        try:
            try:
                outcome = await self._first(one)
            except MisreadAnswer:
                outcome = await self._query_alone(one)
        except FetchFailure as failure:
            outcome = failure
        except asyncio.CancelledError:
            one.answer.cancel()
            raise
        self._settle(one, outcome)

    async def _first(self, one: LookUp) -> NameAnswer:
        """Returns the first answer of the servers, which are queried one after the other. Raises FetchFailure."""
        now = self._clock()
        order = deque(sorted(self._servers, key=lambda each: (each.rests_until > now, each.waiting, each.asked)))
        open_ones: set[asyncio.Future[NameAnswer]] = set()
        failure = FetchFailure(FetchError.DNS_TEMPORARY, f"{one.host}: no server answered")
        while order or open_ones:
            if order:
                open_ones.add(self._ask_server(order.popleft(), one))
            patience = DNS_HEDGE_SECONDS if order else None
            done, open_ones = await asyncio.wait(open_ones, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            for told in done:
                try:
                    return told.result()
                except FetchFailure as error:
                    if error.error is FetchError.DNS_UNKNOWN:
                        raise
                    failure = error
        raise failure

    async def _query_alone(self, one: LookUp) -> NameAnswer:
        """Repeats a question on its own channel: after garbage, c-ares drops all questions of a channel.

        A silent name yields its place to the next one after a while, and the time of a name starts again here.
        Otherwise one garbled answer would use the time of hundreds of names.
        """
        one.begin_again()
        async with self._alone_open:
            async with self._alone:
                one.begins()
                tries = DNS_ALONE_TRIES
                while True:
                    if one.answer.done():
                        raise FetchFailure(FetchError.DNS_TEMPORARY, f"{one.host}: its callers no longer wait")
                    server = min(self._servers, key=lambda each: (each.rests_until, each.waiting))
                    told = self._ask_server(server, one, _Channel(self._open_channel(server.name), retired=True))
                    await asyncio.wait({told}, timeout=DNS_PROMPT_SECONDS)
                    tries -= 1
                    if not (tries and told.done() and isinstance(told.exception(), LostSocket)):
                        break
            return await told

    def _ask_server(self, server: _NameServer, one: LookUp, line: _Channel | None = None) -> asyncio.Future[NameAnswer]:
        """Queries one server, on its shared channel or on the given one. The future ends with the answer or with
        FetchFailure."""
        loop = asyncio.get_running_loop()
        told: asyncio.Future[NameAnswer] = loop.create_future()
        told.add_done_callback(_seen)
        line = line or self._line(server)
        server.asked += 1
        server.waiting += 1
        line.asked += 1
        line.waiting += 1

        def answered(result: Any, status: int | None) -> None:  # in the thread of the channel
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(settled, result, status)

        def settled(result: Any, status: int | None) -> None:
            line.waiting -= 1
            line.let_go()
            self._answered(server, told, result, _failure(server.name, one.host, status))

        line.channel.getaddrinfo(one.host, one.port, family=self._family, type=socket.SOCK_STREAM, callback=answered)
        return told

    def _line(self, server: _NameServer) -> _Channel:
        """Returns the server's channel; a new one after the maximum number of names."""
        if server.line.asked >= DNS_CHANNEL_NAMES:
            server.line.retired = True
            server.line.let_go()
            server.line = _Channel(self._open_channel(server.name))
        return server.line

    def _answered(
        self, server: _NameServer, told: asyncio.Future[NameAnswer], result: Any, failure: FetchFailure | None
    ) -> None:
        server.waiting -= 1
        if failure is not None and failure.error is FetchError.DNS_TEMPORARY:
            server.failed += 1
            server.in_a_row += 1
            rest = min(DNS_REST_SECONDS * 2.0 ** min(server.in_a_row - 1, 20), DNS_REST_SECONDS_MAX)
            server.rests_until = self._clock() + instant(rest)
        else:
            server.answered += 1
            server.in_a_row = server.rests_until = 0
        if told.done():
            return
        if failure is not None:
            told.set_exception(failure)
        else:
            told.set_result(_addresses_of(result))

    def close(self) -> None:
        """Cancels the open questions."""
        super().close()
        for task in list(self._tasks):
            task.cancel()
        for server in self._servers:
            server.line.channel.close()


def reachable_family() -> int:
    """AF_UNSPEC, or AF_INET on a machine that has no route to IPv6 addresses. Nothing is sent."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.connect(("2001:4860:4860::8888", DNS_PORT))
    except OSError:
        return socket.AF_INET
    return socket.AF_UNSPEC


def _addresses_of(result: Any) -> NameAnswer:
    seconds: Sequence[int] = [node.ttl for node in result.nodes] + [name.ttl for name in result.cnames]
    addresses = (node.addr[0].decode("ascii", "replace") for node in result.nodes)
    return NameAnswer(tuple(dict.fromkeys(addresses)), float(min(seconds)) if seconds else None)


def _failure(server: str, host: str, status: int | None) -> FetchFailure | None:
    """Converts an answer without addresses: that there are none is final; anything else may be temporary."""
    import pycares

    if status is None:
        return None
    unknown = status in (pycares.errno.ARES_ENOTFOUND, pycares.errno.ARES_ENODATA)
    words = f"{safe_text(host)}: {server} says {pycares.errno.strerror(status)!s}"
    made = {pycares.errno.ARES_EBADRESP: MisreadAnswer, pycares.errno.ARES_ECONNREFUSED: LostSocket}.get(
        status, FetchFailure
    )
    return made(FetchError.DNS_UNKNOWN if unknown else FetchError.DNS_TEMPORARY, words)


def _seen(told: asyncio.Future[NameAnswer]) -> None:
    """Reads the exception of a future that nothing waits for any more, so that the loop does not warn."""
    if not told.cancelled():
        told.exception()
