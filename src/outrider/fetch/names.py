"""From a host name to its addresses: the --hosts file, literals, special names, then the system in a few threads."""

from __future__ import annotations

import asyncio
import queue
import re
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from outrider.clock import ClockFunction, elapsed, instant
from outrider.errors import SettingsError
from outrider.fetch.addresses import host_key, parsed
from outrider.fetch.outcomes import FetchError, FetchFailure, safe_text
from outrider.limits import (
    DNS_ADDRESSES_MAX,
    DNS_CACHE_NAMES_MAX,
    DNS_KNOWN_SECONDS,
    DNS_SECONDS_MAX,
    DNS_TEMPORARY_SECONDS,
    DNS_THREADS,
    DNS_UNKNOWN_SECONDS,
    HOSTS_FILE_BYTES_MAX,
)

_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*\Z", re.ASCII)
_NOWHERE = ("invalid", "onion")  # RFC 6761 section 6.4, RFC 7686 section 2: never asked for
_UNKNOWN_CODES = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}

LookUp = Callable[[str, int], tuple[str, ...]]  # (host, port) -> addresses; raises OSError as getaddrinfo does


def parse_hosts(text: str) -> dict[str, tuple[str, ...]]:
    """The names of a hosts file (`ADDRESS NAME [NAME…]  # remark`, one per line) with their addresses in order.

    Names are lower case without a final dot. Raises SettingsError that names the line.
    """
    if len(text) > HOSTS_FILE_BYTES_MAX:
        raise SettingsError(f"the hosts file is longer than {HOSTS_FILE_BYTES_MAX} bytes")
    found: dict[str, list[str]] = {}
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        address = parsed(words[0])
        if address is None:
            raise SettingsError(
                f"hosts file, line {number}: {safe_text(words[0], 60)!r} is no IP address; "
                "a line is `ADDRESS NAME [NAME…]`"
            )
        if len(words) == 1:
            raise SettingsError(f"hosts file, line {number}: the address {address} is followed by no name")
        for word in words[1:]:
            name = host_key(word)
            if not _NAME.match(name):
                raise SettingsError(f"hosts file, line {number}: {safe_text(word, 60)!r} is no host name")
            addresses = found.setdefault(name, [])
            if str(address) not in addresses:
                addresses.append(str(address))
    return {name: tuple(addresses) for name, addresses in found.items()}


def system_look_up(host: str, port: int) -> tuple[str, ...]:
    """The addresses that getaddrinfo gives, in its order (RFC 6724); blocks."""
    answers = socket.getaddrinfo(host.encode("ascii"), port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    return tuple(dict.fromkeys(str(answer[4][0]) for answer in answers))


def failure_of(host: str, error: OSError) -> FetchFailure:
    """Which of the two DNS errors an error of getaddrinfo is."""
    unknown = isinstance(error, socket.gaierror) and error.errno in _UNKNOWN_CODES
    kind = FetchError.DNS_UNKNOWN if unknown else FetchError.DNS_TEMPORARY
    return FetchFailure(kind, f"{safe_text(host)}: {safe_text(error.strerror or str(error))}")


@dataclass(frozen=True, slots=True)
class _Known:
    until: int
    addresses: tuple[str, ...]
    failure: tuple[FetchError, str] | None


class _Threads:
    """A few daemon threads that look names up; unlike a pool's they never hold the process at its exit."""

    def __init__(self, count: int, look_up: LookUp) -> None:
        self._count = count
        self._look_up = look_up
        self._jobs: queue.SimpleQueue[tuple[Any, ...] | None] = queue.SimpleQueue()
        self._started = 0
        self._busy = 0

    def ask(self, host: str, port: int) -> asyncio.Future[tuple[str, ...]]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[tuple[str, ...]] = loop.create_future()
        self._busy += 1
        if self._started < min(self._count, self._busy):
            self._started += 1
            threading.Thread(target=self._run, name=f"outrider-names-{self._started}", daemon=True).start()
        self._jobs.put((loop, answer, host, port))
        return answer

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            loop, answer, host, port = job
            outcome: tuple[str, ...] | Exception
            if answer.cancelled():
                outcome = ()
            else:
                try:
                    outcome = self._look_up(host, port)
                except Exception as error:  # noqa: BLE001 - it is handed to the one who asked
                    outcome = error
            try:
                loop.call_soon_threadsafe(self._settle, answer, outcome)
            except RuntimeError:  # the loop was closed meanwhile: nobody waits
                continue

    def _settle(self, answer: asyncio.Future[tuple[str, ...]], outcome: tuple[str, ...] | Exception) -> None:
        self._busy -= 1
        if answer.done():
            return
        if isinstance(outcome, Exception):
            answer.set_exception(outcome)
        else:
            answer.set_result(outcome)

    def close(self) -> None:
        for _ in range(self._started):
            self._jobs.put(None)


class Resolver:
    """Finds the addresses of hosts, remembers answers and failures for a while, and asks for each name once at a time.

    `hosts` is a parsed --hosts file and comes first. `ttl_seconds` is how long an answer of the system is used. `clock`
    gives microseconds that never step back. `look_up` is what asks the system, in one of `threads` threads.
    """

    def __init__(
        self,
        hosts: Mapping[str, tuple[str, ...]] | None = None,
        *,
        ttl_seconds: float = DNS_KNOWN_SECONDS,
        clock: ClockFunction = elapsed,
        threads: int = DNS_THREADS,
        seconds_max: float = DNS_SECONDS_MAX,
        names_max: int = DNS_CACHE_NAMES_MAX,
        look_up: LookUp = system_look_up,
    ) -> None:
        self._hosts = {host_key(name): tuple(addresses) for name, addresses in (hosts or {}).items()}
        self._ttl = instant(ttl_seconds)
        self._clock = clock
        self._seconds_max = seconds_max
        self._names_max = names_max
        self._threads = _Threads(threads, look_up)
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._asking: dict[str, asyncio.Task[_Known]] = {}
        self._asked = 0
        self._answered_from_memory = 0

    def __repr__(self) -> str:
        return (
            f"<Resolver {len(self._hosts)} hosts given, {len(self._known)} remembered, {len(self._asking)} asked for>"
        )

    def statistics(self) -> dict[str, int]:
        """Look-ups made, answers given from memory, names remembered, names being asked for."""
        return {
            "look_ups": self._asked,
            "from_memory": self._answered_from_memory,
            "remembered": len(self._known),
            "waiting": len(self._asking),
        }

    async def resolve(self, host: str, port: int) -> tuple[str, ...]:
        """The addresses of `host`, best first, at least one; nothing is filtered, that is the guard's.

        Raises FetchFailure with DNS_UNKNOWN (no such name, or no address) or DNS_TEMPORARY (no server could say).
        """
        name = host_key(host)
        given = self._hosts.get(name)
        if given:
            return given
        literal = parsed(name)
        if literal is not None:
            return (str(literal),)
        if name == "localhost" or name.endswith(".localhost"):  # RFC 6761 section 6.3
            return ("127.0.0.1", "::1")
        if not _NAME.match(name) or name.rsplit(".", 1)[-1] in _NOWHERE:
            raise FetchFailure(FetchError.DNS_UNKNOWN, f"{safe_text(host)}: no such name")
        known = self._known.get(name)
        if known is not None and self._clock() < known.until:
            self._answered_from_memory += 1
        else:
            asking = self._asking.get(name)
            if asking is None:
                asking = asyncio.get_running_loop().create_task(self._ask(name, port))
                self._asking[name] = asking
            # One caller that gives up does not take the answer from the others.
            known = await asyncio.shield(asking)
        if known.failure is not None:
            raise FetchFailure(*known.failure)
        return known.addresses

    async def _ask(self, name: str, port: int) -> _Known:
        self._asked += 1
        failure: FetchFailure | None = None
        addresses: tuple[str, ...] = ()
        try:
            async with asyncio.timeout(self._seconds_max):
                addresses = (await self._threads.ask(name, port))[:DNS_ADDRESSES_MAX]
            if not addresses:
                failure = FetchFailure(FetchError.DNS_UNKNOWN, f"{name}: no address")
        except TimeoutError:
            failure = FetchFailure(FetchError.DNS_TEMPORARY, f"{name}: no answer in {self._seconds_max:g} s")
        except OSError as error:
            failure = failure_of(name, error)
        finally:
            self._asking.pop(name, None)
        if failure is None:
            kept, reason = self._ttl, None
        else:
            unknown = failure.error is FetchError.DNS_UNKNOWN
            kept = instant(DNS_UNKNOWN_SECONDS if unknown else DNS_TEMPORARY_SECONDS)
            reason = (failure.error, failure.facts.removeprefix(f"{failure.error}: "))
        known = _Known(self._clock() + kept, addresses, reason)
        self._known.pop(name, None)
        while len(self._known) >= self._names_max:
            self._known.popitem(last=False)
        self._known[name] = known
        return known

    async def close(self) -> None:
        """Gives up what is being asked for and lets the threads end."""
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._threads.close()
