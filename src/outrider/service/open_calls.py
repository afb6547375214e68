"""The open calls of a gRPC server: how many of them each client has, and how many it begins."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from outrider.service.grpc_status import GrpcError, GrpcStatus


@dataclass(slots=True)
class HandOut:
    """A `GetURLs` call under way. left: how many queues more may contribute, None for any number; tokens: those of
    its URLs in the order of their messages; crawls: those that are still to be asked."""

    seconds: float
    per_queue: int
    left: int | None
    key: str | None
    crawls: list[str]
    tokens: list[int] = field(default_factory=list)


@dataclass(slots=True)
class OpenCall:
    """An open call. who: the client, as audit.jsonl names it. peer: its address; empty behind a proxy. gone: of a call
    of `outrider.v1.Frontier`, set when the client is gone."""

    name: str
    who: str
    ended: bool = False
    answered: bool = False
    hand_out: HandOut | None = None
    peer: str = ""
    gone: asyncio.Event | None = None


class OpenCalls:
    """The calls by their streams. Any thread may use it."""

    def __init__(self, per_client: int, per_second: int, now: Callable[[], float] = time.monotonic) -> None:
        """per_client: how many calls one client may have at once, over all of its connections. per_second: how many it
        may begin; those that it did not begin in the last second may follow at once."""
        self._per_client, self._per_second, self._now = per_client, per_second, now
        self._left: dict[str, tuple[float, float]] = {}  # by client: calls that it may begin at once, at an instant
        self._calls: dict[int, OpenCall] = {}
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __contains__(self, stream: int) -> bool:
        return stream in self._calls

    def get(self, stream: int) -> OpenCall | None:
        """Returns the call of a stream; None if it has ended."""
        return self._calls.get(stream)

    def add(self, stream: int, call: OpenCall) -> None:
        """Adds a call that begins. Raises GrpcError if its client has or begins too many."""
        with self._lock:
            self._begin(call.who)
            if self._counts[call.who] >= self._per_client:
                raise GrpcError(
                    GrpcStatus.RESOURCE_EXHAUSTED,
                    f"this client has {self._per_client:,} open calls, the most for one; end some of them first",
                )
            self._counts[call.who] += 1
            self._calls[stream] = call

    def _begin(self, who: str) -> None:
        most, now = 2.0 * self._per_second, self._now()
        left, before = self._left.get(who, (most, now))
        left = min(most, left + (now - before) * self._per_second)
        if left < 1:
            raise GrpcError(
                GrpcStatus.RESOURCE_EXHAUSTED,
                f"this client begins more than {self._per_second:,} calls a second, the most for one; send several "
                "URLs with each call",
            )
        self._left[who] = left - 1, now

    def pop(self, stream: int) -> OpenCall | None:
        """Removes the call of a stream, and returns it."""
        with self._lock:
            call = self._calls.pop(stream, None)
            if call is not None:
                self._counts[call.who] -= 1
                if not self._counts[call.who]:
                    del self._counts[call.who]
            return call
