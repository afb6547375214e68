"""From a host name to its addresses: the --hosts file, literals, special names, then DNS servers or the system."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import re
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from outrider.clock import ClockFunction, elapsed, instant
from outrider.errors import SettingsError
from outrider.fetch.addresses import parsed
from outrider.fetch.dns import NameServers, open_channel, system_servers
from outrider.fetch.failures import FetchError, FetchFailure, safe_text
from outrider.fetch.lookups import Lanes, LookUp, NameAnswer
from outrider.limits import (
    DNS_ADDRESSES_MAX,
    DNS_CACHE_NAMES_MAX,
    DNS_KNOWN_SECONDS,
    DNS_QUEUE_SECONDS_MAX,
    DNS_SECONDS_MAX,
    DNS_SLOW_THREADS,
    DNS_STALE_SECONDS,
    DNS_STALE_SECONDS_MAX,
    DNS_TEMPORARY_SECONDS,
    DNS_THREADS,
    DNS_THREADS_MAX,
    DNS_TTL_SECONDS_LEAST,
    DNS_TTL_SECONDS_MAX,
    DNS_UNKNOWN_SECONDS,
    HOSTS_FILE_BYTES_MAX,
)
from outrider.url import host_key

_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*\Z", re.ASCII)
_NOWHERE = ("invalid", "onion")  # RFC 6761 section 6.4, RFC 7686 section 2: never resolved
_UNKNOWN_CODES = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}

Value = TypeVar("Value")
AskSystem = Callable[[str, int], tuple[str, ...]]  # (host, port) -> addresses; raises OSError as getaddrinfo does


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
                f"hosts file, line {number}: {safe_text(words[0], 60)!r} is not an IP address; "
                "a line is `ADDRESS NAME [NAME…]`"
            )
        if len(words) == 1:
            raise SettingsError(f"hosts file, line {number}: the address {address} is followed by no name")
        for word in words[1:]:
            name = host_key(word)
            if not _NAME.match(name):
                raise SettingsError(f"hosts file, line {number}: {safe_text(word, 60)!r} is not a host name")
            addresses = found.setdefault(name, [])
            if str(address) not in addresses:
                addresses.append(str(address))
    return {name: tuple(addresses) for name, addresses in found.items()}


def system_look_up(host: str, port: int) -> tuple[str, ...]:
    """Returns the addresses of getaddrinfo, in its order (RFC 6724); blocks."""
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
    told_at: int = 0  # the time of the name service's last answer with these addresses


def _addresses_known(known: _Known) -> tuple[str, ...]:
    """The addresses that are remembered. Raises FetchFailure where a failure is."""
    if known.failure is not None:
        raise FetchFailure(*known.failure)
    return known.addresses


class _Threads(Lanes):
    """A daemon thread for each look-up; unlike a pool's, these never delay the end of the process."""

    def __init__(self, prompt_max: int, threads_max: int, slow_max: int, look_up: AskSystem) -> None:
        super().__init__(prompt_max, threads_max, slow_max)
        self._look_up = look_up

    def _start(self, one: LookUp, loop: asyncio.AbstractEventLoop) -> None:
        try:
            threading.Thread(target=self._run, args=(one, loop), name="outrider-names", daemon=True).start()
        except RuntimeError as error:  # the machine has no more threads
            raise OSError(errno.EAGAIN, str(error)) from None

    def _run(self, one: LookUp, loop: asyncio.AbstractEventLoop) -> None:
        outcome: NameAnswer | Exception
        try:
            outcome = NameAnswer(self._look_up(one.host, one.port))
        except Exception as error:  # noqa: BLE001 - it is handed to the one who asked
            outcome = error
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: no task waits
            loop.call_soon_threadsafe(self._settle, one, outcome)


class Resolver:
    """Finds the addresses of hosts, remembers answers and failures for a while, and resolves each name once at a time.

    `hosts` is a parsed --hosts file and is first. `servers` are DNS servers; their answers are used for their TTL,
    within limits. Names that DNS does not have (without a dot, below .local), and all without `servers`, are looked up
    by the system: `look_up`, each time in a thread, `threads` at once that began lately, `threads_max` with the hanging
    ones; such an answer is used for `ttl_seconds`. A name's `seconds_max` start when its question is sent.
    `clock` returns microseconds that never run backwards.
    """

    def __init__(
        self,
        hosts: Mapping[str, tuple[str, ...]] | None = None,
        *,
        ttl_seconds: float = DNS_KNOWN_SECONDS,
        clock: ClockFunction = elapsed,
        threads: int = DNS_THREADS,
        threads_max: int = DNS_THREADS_MAX,
        seconds_max: float = DNS_SECONDS_MAX,
        names_max: int = DNS_CACHE_NAMES_MAX,
        look_up: AskSystem = system_look_up,
        servers: NameServers | None = None,
    ) -> None:
        self._hosts = {host_key(name): tuple(addresses) for name, addresses in (hosts or {}).items()}
        self._ttl = instant(ttl_seconds)
        self._clock = clock
        self._seconds_max = seconds_max
        self._names_max = names_max
        self._threads = _Threads(threads, threads_max, min(DNS_SLOW_THREADS, threads_max), look_up)
        self._servers = servers
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._silent: dict[str, LookUp] = {}  # sent, and without an answer in time
        self._were_silent: OrderedDict[str, None] = OrderedDict()  # answered late, or not at all
        self._asking: dict[str, asyncio.Task[_Known]] = {}
        self._asked = 0
        self._answered_from_memory = 0
        self._stale = 0

    def __repr__(self) -> str:
        return (
            f"<Resolver {len(self._hosts)} hosts given, {len(self._known)} remembered, {len(self._asking)} asked for>"
        )

    def statistics(self) -> dict[str, int]:
        """Returns look-ups made, answers from memory, old answers used for lack of new ones, names remembered, names
        being resolved, busy threads."""
        return {
            "look_ups": self._asked,
            "from_memory": self._answered_from_memory,
            "stale": self._stale,
            "remembered": len(self._known),
            "waiting": len(self._asking),
            "threads": self._threads.busy,
        }

    def known(self, host: str, port: int) -> tuple[str, ...] | None:
        """Returns the addresses of `host` that need no wait; None if a server is needed. Raises as `resolve` does."""
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
        if known is None or self._clock() >= known.until:
            return None
        self._answered_from_memory += 1
        return _addresses_known(known)

    async def resolve(self, host: str, port: int) -> tuple[str, ...]:
        """The addresses of `host`, best first, at least one; nothing is filtered, that is the guard's.

        Raises FetchFailure with DNS_UNKNOWN (no such name, or no address) or DNS_TEMPORARY (no server could say).
        """
        addresses = self.known(host, port)
        if addresses is not None:
            return addresses
        name = host_key(host)
        asking = self._asking.get(name)
        if asking is None:
            asking = asyncio.get_running_loop().create_task(self._ask(name, port))
            self._asking[name] = asking
        # A cancelled caller does not cancel the answer for the others.
        return _addresses_known(await asyncio.shield(asking))

    async def _ask(self, name: str, port: int) -> _Known:
        failure: FetchFailure | None = None
        told = NameAnswer(())
        try:
            one = self._silent.get(name)
            if one is None:
                self._asked += 1
                one = self._service_of(name).ask(name, port, slow=name in self._were_silent)
            await self._waited(one)
            if one.answer.done():
                told = one.answer.result()
            else:
                failure = FetchFailure(FetchError.DNS_TEMPORARY, f"{name}: no answer in {self._seconds_max:g} s")
                self._give_up(name, one)
        except FetchFailure as error:
            failure = error
        except OSError as error:
            failure = failure_of(name, error)
        finally:
            self._asking.pop(name, None)
        return self._remember(name, told, failure)

    def _service_of(self, name: str) -> NameServers | _Threads:
        if self._servers is None or "." not in name or name.endswith(".local"):  # RFC 6762: resolved by multicast
            return self._threads
        return self._servers

    def _give_up(self, name: str, one: LookUp) -> None:
        """The callers stop waiting for this look-up; a later call for this name waits for the same thread."""
        if name not in self._silent:
            self._silent[name] = one
            one.answer.add_done_callback(partial(self._answered_late, name))

    async def _waited(self, one: LookUp) -> None:
        """Waits for the answer, as long as there is time from the beginning on, which may be a second one."""
        begun = None
        while begun is not one.begun and not one.answer.done():
            begun = one.begun
            await self._begun(one)
            await asyncio.wait({one.answer}, timeout=self._seconds_max)

    async def _begun(self, one: LookUp) -> None:
        """Waits until a thread starts it: this is not an error of the name, and uses none of its time."""
        try:
            async with asyncio.timeout(DNS_QUEUE_SECONDS_MAX):
                await one.begun
        except TimeoutError:
            one.answer.cancel()
            raise OSError(
                errno.EAGAIN,
                f"{self._threads.busy} look-ups hang, and no other could begin in {DNS_QUEUE_SECONDS_MAX:g} s",
            ) from None

    def _answered_late(self, name: str, answer: asyncio.Future[NameAnswer]) -> None:
        """Remembers an answer even if its callers no longer wait; the next time, such a name gets one of few
        threads."""
        self._silent.pop(name, None)
        if not answer.cancelled() and answer.exception() is None and name not in self._asking:
            self._remember(name, answer.result(), None)
        _bounded(self._were_silent, name, None, self._names_max)

    def _remember(self, name: str, told: NameAnswer, failure: FetchFailure | None) -> _Known:
        addresses = told.addresses
        if failure is None and not addresses:
            failure = FetchFailure(FetchError.DNS_UNKNOWN, f"{name}: no address")
        now = self._clock()
        before = self._known.get(name)
        told_at = now
        if failure is None:
            reason = None
            kept = self._ttl if told.seconds is None else instant(_between(told.seconds))
            self._were_silent.pop(name, None)
        elif (
            failure.error is FetchError.DNS_TEMPORARY
            and before is not None
            and before.addresses
            and now - before.told_at < instant(DNS_STALE_SECONDS_MAX)
        ):
            # No server could say whether they changed; they are valid a little longer: RFC 8767.
            addresses, told_at, kept, reason = before.addresses, before.told_at, instant(DNS_STALE_SECONDS), None
            self._stale += 1
        else:
            unknown = failure.error is FetchError.DNS_UNKNOWN
            kept = instant(DNS_UNKNOWN_SECONDS if unknown else DNS_TEMPORARY_SECONDS)
            reason = (failure.error, failure.facts.removeprefix(f"{failure.error}: "))
        known = _Known(now + kept, addresses[:DNS_ADDRESSES_MAX], reason, told_at)
        _bounded(self._known, name, known, self._names_max)
        return known

    async def close(self) -> None:
        """Cancels the open look-ups; hanging threads end with the process."""
        self._threads.close()
        if self._servers is not None:
            self._servers.close()
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def make_resolver(
    hosts: Mapping[str, tuple[str, ...]], servers: Sequence[str] = (), *, threads_max: int = DNS_THREADS_MAX
) -> Resolver:
    """Returns a resolver for these DNS servers, else for those of this machine, else for the system."""
    asked = tuple(servers) or system_servers()
    lookups = "b" if servers else "fb"  # the hosts file of the system precedes its servers
    names = NameServers(asked, open_channel=lambda server: open_channel(server, lookups)) if asked else None
    return Resolver(hosts, threads_max=threads_max, servers=names)


def _between(seconds: float) -> float:
    """A TTL within the bounds."""
    return max(DNS_TTL_SECONDS_LEAST, min(seconds, DNS_TTL_SECONDS_MAX))


def _bounded(kept: OrderedDict[str, Value], name: str, value: Value, most: int) -> None:
    """Remembers one more; the oldest one is dropped first."""
    kept.pop(name, None)
    while len(kept) >= most:
        kept.popitem(last=False)
    kept[name] = value
