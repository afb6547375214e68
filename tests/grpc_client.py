"""A client of the gRPC protocol for tests, and a server in this process."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import threading
import time
from collections.abc import Iterator

import grpc

from outrider import Frontier
from outrider.engine import AsyncFrontier
from outrider.engine.protobuf import Protocol
from outrider.service.access import Listening, ServerNames, TokenRoles
from outrider.service.audit import Audit
from outrider.service.frontier_calls import FrontierCalls
from outrider.service.grpc_server import GrpcServer
from outrider.service.service_state import ServiceState

PROTOCOL = Protocol.of("urlfrontier")
SECONDS = 20
_NAMES = itertools.count()
_RUN = time.time_ns()


class Client:
    """The calls of the protocol, with dicts in place of messages."""

    def __init__(self, address, *, token=None, ca=None, suffix="", window_grows=True):
        """suffix: is put before `.test` in all texts that are sent, and removed from answers: hosts have one clock for
        all crawls, so each test needs hosts of its own. window_grows: whether the library receives more and more of
        a stream ahead, if answers take long."""
        self.address, self.suffix = address, suffix
        options = [("grpc.max_receive_message_length", 64 << 20), ("grpc.max_send_message_length", 128 << 20)]
        options.append(("grpc.http2.bdp_probe", int(window_grows)))
        if ca is None:
            self.channel = grpc.insecure_channel(address, options)
        else:
            self.channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(ca), options)
        self.metadata = [("authorization", f"Bearer {token}")] if token is not None else []

    def close(self):
        self.channel.close()

    def ask(self, name, request=None, *, seconds=SECONDS):
        """The answer of a call with one request and one answer."""
        return self.made(name)(request or {}, timeout=seconds, metadata=self.metadata)

    def stream(self, name, requests, *, seconds=SECONDS):
        """The answers of a call, as they arrive."""
        return self.made(name)(requests, timeout=seconds, metadata=self.metadata)

    def made(self, name):
        call = PROTOCOL.calls[name]
        kinds = {
            (False, False): self.channel.unary_unary,
            (False, True): self.channel.unary_stream,
            (True, True): self.channel.stream_stream,
        }
        return kinds[call.takes_stream, call.gives_stream](
            call.path,
            request_serializer=lambda values: self._sent(call.takes, values),
            response_deserializer=lambda octets: self._changed(PROTOCOL.read(call.gives, octets), back=True),
        )

    def _sent(self, kind, values):
        return values if isinstance(values, bytes) else PROTOCOL.write(kind, self._changed(values))

    def _changed(self, value, back=False):
        if not self.suffix:
            return value
        if isinstance(value, dict):
            return {name: self._changed(one, back) for name, one in value.items()}
        if isinstance(value, list):
            return [self._changed(one, back) for one in value]
        if isinstance(value, str):
            long = f"{self.suffix}.test"
            return value.replace(long, ".test") if back else value.replace(".test", long)
        return value

    # -- shorter words -------------------------------------------------------------------------------------------------

    def put(self, *items):
        """The (id, status) of each acknowledgement."""
        return [(ack.get("ID", ""), ack.get("status", 0)) for ack in self.stream("PutURLs", iter(items))]

    def get(self, **request):
        """The URLs of `GetURLs`."""
        return [info["url"] for info in self.infos(**request)]

    def infos(self, **request):
        return list(self.stream("GetURLs", request))


def crawl_name():
    """A name that no other test uses, also on a server that lives longer than the tests."""
    return f"{next(_NAMES)}-{_RUN:x}"


def info(url, crawl="", key="", **metadata):
    found = {"url": url, "key": key, "crawlID": crawl}
    if metadata:
        found["metadata"] = {name: {"values": values} for name, values in metadata.items()}
    return found


def discovered(url, crawl="", key="", id="", **metadata):  # noqa: A002 - as the protocol names it
    return {"discovered": {"info": info(url, crawl, key, **metadata)}, "ID": id}


def known(url, date, crawl="", key="", id="", **metadata):  # noqa: A002 - as the protocol names it
    return {"known": {"info": info(url, crawl, key, **metadata), "refetchable_from_date": date}, "ID": id}


class Address(str):
    """The address of a server, with its state."""

    def __new__(cls, text, state):
        made = super().__new__(cls, text)
        made.state = state
        return made


@contextlib.contextmanager
def serving(
    frontier=None, *, roles=None, directory=None, certificate=None, key=None, port=0, frontier_calls=True
) -> Iterator[Address]:
    """The address of a server in this process. frontier_calls: whether it has `outrider.v1.Frontier`."""
    own = frontier or Frontier.memory(robots="caller")
    listener = socket.create_server(("127.0.0.1", port))
    at = Listening("127.0.0.1", listener.getsockname()[1], certificate, key)
    audit = Audit(str(directory)) if directory is not None else None
    tokens = roles or TokenRoles()
    state = ServiceState(AsyncFrontier(own), hosts=ServerNames(True), tokens=tokens, audit=audit)
    server = GrpcServer(own, at, listener, tokens, audit, FrontierCalls(state) if frontier_calls else None)
    with running_loop() as loop:
        server.start(loop)
        try:
            yield Address(server.address, state)
        finally:
            loop.call_soon_threadsafe(state.closing.set)
            server.close()
            state.frontier._pool.shutdown(wait=True)
            if audit is not None:
                audit.close()
            if frontier is None:
                own.close()


@contextlib.contextmanager
def running_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """A loop in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
