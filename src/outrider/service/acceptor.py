"""Accepts connections: as many as there are descriptors in addition to those of the store.

If there is no room for one more, the connection is closed that has waited for its client for the longest time.
Connections without any request are closed first. So a client that sends its request at once is served, whatever the
number of clients that keep connections open and send nothing.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, Final

from outrider.crawl.setup.descriptors import allow_descriptors, open_files
from outrider.limits import (
    SERVICE_ACCEPTS_PER_TURN_MAX,
    SERVICE_CONNECTIONS_MAX,
    SERVICE_DESCRIPTORS_RESERVED,
    SERVICE_DROPS_AT_ONCE,
    SERVICE_GRACE_SECONDS,
    SERVICE_HEAD_SECONDS_MAX,
    SERVICE_PAUSE_SECONDS,
    SERVICE_REPORT_SECONDS,
    SERVICE_REST_SECONDS_MAX,
    SERVICE_WATCH_SECONDS,
)
from outrider.service.connection import Connection

_LOG: Final = logging.getLogger("outrider.service")
_SCARCE: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Acceptor:
    """Accepts the connections of one socket, on the running loop. It has the methods of an asyncio server that uvicorn
    calls."""

    def __init__(
        self,
        listener: socket.socket,
        make: Callable[[], asyncio.BaseProtocol],
        connections: Collection[Any],
        context: ssl.SSLContext | None,
    ) -> None:
        """make: makes a protocol for a new connection. connections: the open connections."""
        self._listener, self._make, self._connections, self._context = listener, make, connections, context
        self._loop = asyncio.get_running_loop()
        self._beginning: dict[asyncio.Task[None], float] = {}
        self._files = allow_descriptors(open_files() + SERVICE_CONNECTIONS_MAX + SERVICE_DESCRIPTORS_RESERVED)
        self._room = _room(self._files)
        self._reported: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._watching = self._loop.call_later(SERVICE_WATCH_SECONDS, self._watch)
        self._listener.setblocking(False)
        self._listen()

    def _listen(self) -> None:
        self._timer = None
        self._loop.add_reader(self._listener.fileno(), self._accept)

    def _pause(self, seconds: float) -> None:
        """Accepts nothing for a while. The system makes new connections wait."""
        self._loop.remove_reader(self._listener.fileno())
        self._timer = self._loop.call_later(seconds, self._listen)

    def _accept(self) -> None:
        for _ in range(SERVICE_ACCEPTS_PER_TURN_MAX):
            count = len(self._connections) + len(self._beginning)
            if count >= min(self._room, SERVICE_CONNECTIONS_MAX - 1):
                dropped, young = self._drop()
                if dropped:
                    return  # their descriptors are free in the next turn of the loop
                if young:
                    self._pause(SERVICE_GRACE_SECONDS)
                    return
                if count >= self._room:
                    self._report(f"{count:,} connections use all descriptors that the store leaves free")
                    self._pause(SERVICE_PAUSE_SECONDS)
                    return
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _SCARCE:
                    self._report(f"a connection could not be accepted ({error.strerror})")
                    self._drop()
                    self._pause(SERVICE_PAUSE_SECONDS)
                    return
                continue  # the connection ended before it was accepted (see accept(2))
            task = self._loop.create_task(self._begin(connection))
            self._beginning[task] = self._loop.time()
            task.add_done_callback(self._beginning.pop)

    async def _begin(self, connection: socket.socket) -> None:
        """Makes the handshake of a TLS connection."""
        made = False

        def make() -> asyncio.BaseProtocol:
            nonlocal made
            made = True
            return self._make()

        words = (
            {"ssl_handshake_timeout": SERVICE_HEAD_SECONDS_MAX, "ssl_shutdown_timeout": SERVICE_REST_SECONDS_MAX}
            if self._context is not None
            else {}
        )
        try:
            connection.setblocking(False)
            await self._loop.connect_accepted_socket(make, connection, ssl=self._context, **words)
        except OSError:
            pass  # a failed handshake, or a client that disconnected
        finally:
            if not made:
                connection.close()  # otherwise its transport closes it

    def _drop(self) -> tuple[int, int]:
        """Closes some connections that have waited for their clients for the longest time. Returns how many, and how
        many connections have a new client, whose request may be under way."""
        before = self._loop.time() - SERVICE_GRACE_SECONDS
        waiting = [one for one in self._connections if isinstance(one, Connection) and one.awaits_client]
        old = sorted((one for one in waiting if one.since <= before), key=lambda one: (one.served, one.since))
        at_once = min(SERVICE_DROPS_AT_ONCE, max(1, self._room // 8))
        for one in old[:at_once]:
            one.drop()
        handshakes = [task for task, since in self._beginning.items() if since <= before] if not old else []
        for task in handshakes[:at_once]:
            task.cancel()
        return len(old) + len(handshakes), len(waiting) + len(self._beginning)

    def _report(self, words: str) -> None:
        """Prints one line for a time without descriptors, however many connections it concerns."""
        now = self._loop.time()
        if self._reported is None or now - self._reported > SERVICE_REPORT_SECONDS:
            _LOG.warning(
                "%s; idle connections are closed and new ones wait. This process may open %s files; "
                "`ulimit -n` raises the limit",
                words,
                "any number of" if self._files is None else f"{self._files:,}",
            )
        self._reported = now

    def _watch(self) -> None:
        now = self._loop.time()
        for one in list(self._connections):
            if isinstance(one, Connection):
                one.watch(now)
        self._watching = self._loop.call_later(SERVICE_WATCH_SECONDS, self._watch)

    def close(self) -> None:
        """Accepts nothing more. Open connections continue."""
        if self._timer is not None:
            self._timer.cancel()
        with suppress(ValueError, OSError):
            self._loop.remove_reader(self._listener.fileno())
        for task in self._beginning:
            task.cancel()

    async def wait_closed(self) -> None:
        """Returns when no handshake is under way and connections are not watched any more."""
        await asyncio.gather(*self._beginning, return_exceptions=True)
        self._watching.cancel()


def _room(files: int | None) -> int:
    """Returns how many connections may be open. Of few descriptors, half are reserved for the store and its own
    requests."""
    if files is None:
        return SERVICE_CONNECTIONS_MAX
    left = max(2, files - open_files())
    return min(SERVICE_CONNECTIONS_MAX, left - min(SERVICE_DESCRIPTORS_RESERVED, left // 2))
