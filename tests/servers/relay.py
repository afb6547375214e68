"""A small TCP relay on loopback, for failures of a network: it passes bytes on, or cuts, halts or slows connections."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

PIECE = 65_536
LOOK_SECONDS = 0.05


class Relay:
    """Passes connections to a target port of loopback. Its state may change at any time, also for open connections.

    open: bytes pass. slow: each piece waits `slow_seconds`. cut: connections are closed, and new ones are refused.
    half: connections stay open, and no byte passes. mute: requests pass, and answers are dropped."""

    def __init__(self, target: int, port: int = 0, *, slow_seconds: float = 0.3) -> None:
        """port: where it listens; 0 for a free one."""
        self._target, self._slow_seconds = target, slow_seconds
        self.state = "open"
        self._ended = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", port))
        self._listener.settimeout(LOOK_SECONDS)
        self.port = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while not self._ended.is_set():
            try:
                near, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            if self.state == "cut":
                near.close()
                continue
            far = socket.socket()
            with suppress(OSError):
                far.connect(("127.0.0.1", self._target))
            for one, other in ((near, far), (far, near)):
                pump = threading.Thread(target=self._pump, args=(one, other, one is far), daemon=True)
                pump.start()
                self._threads.append(pump)

    def _pump(self, one: socket.socket, other: socket.socket, answers: bool) -> None:
        try:
            one.settimeout(LOOK_SECONDS)  # the other pump may have closed it already
            while not self._ended.is_set() and self.state != "cut":
                if self.state == "half":
                    self._ended.wait(LOOK_SECONDS)
                    continue
                try:
                    octets = one.recv(PIECE)
                except TimeoutError:
                    continue
                if not octets:
                    break
                if self.state == "mute" and answers:
                    continue
                if self.state == "slow":
                    self._ended.wait(self._slow_seconds)
                with suppress(TimeoutError):
                    other.sendall(octets)
        except OSError:
            pass
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self) -> None:
        """Ends it and all of its connections."""
        self._ended.set()
        self._listener.close()
        for thread in self._threads:
            thread.join()


@contextmanager
def failing_relay(target: int, states: Sequence[str]) -> Iterator[Relay]:
    """A relay that goes through these states and back to `open` again and again, until the block ends."""
    relay, ended = Relay(target), threading.Event()

    def fail() -> None:
        while not ended.wait(0.2):
            for state in (*states, "open"):
                relay.state = state
                ended.wait(3 * LOOK_SECONDS)

    failing = threading.Thread(target=fail)
    failing.start()
    try:
        yield relay
    finally:
        ended.set()
        failing.join()
        relay.close()
