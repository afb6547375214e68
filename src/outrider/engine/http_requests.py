"""Requests to a served frontier, repeated until they are answered: kept connections, TLS, a token, jitter.

Each request may be repeated: it carries an Idempotency-Key where its answer must be the first one's.
"""

from __future__ import annotations

import contextlib
import errno
import http
import http.client
import ipaddress
import os
import random
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from outrider.errors import (
    InvalidUrlError,
    NamedPathError,
    SettingsError,
    StoreFullError,
    UnreachableError,
    shown,
)
from outrider.limits import (
    REMOTE_ANSWER_BYTES_MAX,
    REMOTE_CONNECT_SECONDS_MAX,
    REMOTE_CONNECTIONS_KEPT,
    REMOTE_ERROR_BYTES_MAX,
    REMOTE_PATIENCE_SECONDS,
    REMOTE_PAUSE_SECONDS_MAX,
    REMOTE_PAUSE_SECONDS_MIN,
    REMOTE_SECONDS_MAX,
    REMOTE_TARGET_BYTES_MAX,
)

API: Final = "/api/v1"
GRPC_PORT: Final = 7071
_ENCRYPTED: Final = {"http": "https", "grpc": "grpcs"}
"""The scheme with TLS, by the one without."""
_HOST_AND_PORT: Final = re.compile(r"(?:[\w.-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}/?")
_PORTS: Final = {"http": 80, "https": 443, "grpc": GRPC_PORT, "grpcs": GRPC_PORT}
_PASSING: Final = frozenset({408, 429, 500, 502, 503, 504})
_SILENCE = (OSError, http.client.HTTPException)
Given = TypeVar("Given")

_DECODERS: Final[dict[Any, msgspec.json.Decoder[Any]]] = {}  # one for each type of `messages.py` that is an answer
_MAKES_DECODER: Final = threading.Lock()


def _decoder_of(gives: type[Given]) -> msgspec.json.Decoder[Given]:
    """Returns the decoder of a type. It is made under a lock: two threads that decode a type for the first time can
    crash the interpreter (msgspec 0.22)."""
    with _MAKES_DECODER:
        found = _DECODERS.get(gives)
        if found is None:
            found = _DECODERS[gives] = msgspec.json.Decoder(gives)
        return found


@dataclass(frozen=True, slots=True)
class SentRequest:
    """One request. seconds_max: the longest time for its answer."""

    method: str
    path: str
    body: bytes | None = None
    key: str | None = None
    seconds_max: float = REMOTE_SECONDS_MAX


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """The answer to a request: its status, body, and the seconds of its `Retry-After`."""

    status: int
    body: bytes
    retry_after: float | None = None


class OneTry(Protocol):
    """One try of a request. Raises OSError or HTTPException without an answer."""

    def __call__(self, sent: SentRequest) -> ServerAnswer: ...


class Transport(OneTry, Protocol):
    """The way to one server."""

    def cut(self) -> None:
        """Ends the requests that wait for their answers, and all later ones."""

    def close(self) -> None:
        """Closes what is open."""


def transport_to(address: str, *, token: str | None = None, ca: str | None = None) -> Transport:
    """Returns the way to the server at an address of any scheme. Raises SettingsError."""
    if parsed(address).scheme in ("grpc", "grpcs"):
        from outrider.engine.grpc_requests import GrpcConnection

        return GrpcConnection(address, token=token, ca=ca)
    return Connections(address, token=token, ca=ca)


class Connections:
    """Kept connections to one server; any thread may use them."""

    def __init__(self, address: str, *, token: str | None = None, ca: str | None = None) -> None:
        """Raises SettingsError for an invalid address, and for a token that would be sent unencrypted."""
        access = checked_access(address, token=token, ca=ca)
        self.host, self.port = access.host, access.port
        self._context: ssl.SSLContext | None = None
        if access.encrypted:
            try:
                self._context = ssl.create_default_context(cafile=ca)
            except (OSError, ssl.SSLError) as error:
                raise NamedPathError(f"ca {ca}: no certificates can be read there ({error})") from None
        self._headers = {"Accept": "application/json", "User-Agent": "outrider"}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._kept: list[http.client.HTTPConnection] = []
        self._busy: set[http.client.HTTPConnection] = set()
        self._cut = False
        self._lock = threading.Lock()

    def __call__(self, sent: SentRequest) -> ServerAnswer:
        with self._lock:
            kept = self._kept.pop() if self._kept else None
        if kept is not None:
            try:
                return self._asked(kept, sent)
            except (ConnectionError, http.client.BadStatusLine):
                kept.close()  # the server closed it meanwhile
                if self._cut:
                    raise
        return self._asked(self._fresh(), sent)

    def _fresh(self) -> http.client.HTTPConnection:
        if self._context is not None:
            return http.client.HTTPSConnection(
                self.host, self.port, timeout=REMOTE_CONNECT_SECONDS_MAX, context=self._context
            )
        return http.client.HTTPConnection(self.host, self.port, timeout=REMOTE_CONNECT_SECONDS_MAX)

    def _asked(self, connection: http.client.HTTPConnection, sent: SentRequest) -> ServerAnswer:
        headers = dict(self._headers)
        if sent.body is not None:
            headers["Content-Type"] = "application/json"
        if sent.key is not None:
            headers["Idempotency-Key"] = sent.key
        ends = time.monotonic() + sent.seconds_max
        try:
            if connection.sock is None:
                connection.connect()
            connection.sock.settimeout(sent.seconds_max)
            with self._lock:
                if self._cut:
                    raise ConnectionAbortedError(errno.ECONNABORTED, "the request was cut off")
                self._busy.add(connection)
            connection.request(sent.method, sent.path, sent.body, headers)
            answer = connection.getresponse()
            body = bytearray()
            while piece := answer.read1(1 << 16):
                body += piece
                if len(body) > REMOTE_ANSWER_BYTES_MAX or time.monotonic() > ends:
                    raise http.client.HTTPException(f"an answer of {len(body):,} bytes is too long or too slow")
            if answer.length or (answer.length is None and not answer.chunked):
                # The end of a connection could be the end of a body or of a head; our own server sends the length.
                raise http.client.IncompleteRead(bytes(body), answer.length)
        except BaseException:
            with self._lock:
                self._busy.discard(connection)
            connection.close()
            raise
        answer.close()  # read1 leaves it open at its end: the next request of the connection would be sent in vain
        with self._lock:
            self._busy.discard(connection)
            if answer.will_close or len(self._kept) >= REMOTE_CONNECTIONS_KEPT:
                connection.close()
            else:
                self._kept.append(connection)
        return ServerAnswer(answer.status, bytes(body), _seconds(answer.getheader("Retry-After")))

    def cut(self) -> None:
        """Ends the requests that wait for their answers, from any thread, and all later ones: each raises OSError
        or HTTPException."""
        with self._lock:
            self._cut = True
            for one in self._busy:
                with contextlib.suppress(OSError):
                    # Not that of an SSLSocket, which would remove its state while another thread reads.
                    socket.socket.shutdown(one.sock, socket.SHUT_RDWR)

    def close(self) -> None:
        """Closes the kept connections."""
        with self._lock:
            kept, self._kept = self._kept, []
        for one in kept:
            one.close()


@dataclass(frozen=True, slots=True)
class Address:
    """A server's address."""

    scheme: str
    host: str
    port: int

    @property
    def encrypted(self) -> bool:
        """Whether requests travel over TLS."""
        return self.scheme in _ENCRYPTED.values()


def checked_access(address: str, *, token: str | None, ca: str | None) -> Address:
    """The parts of an address. Raises SettingsError for a token that would be sent unencrypted, and for certificates
    without TLS."""
    found = parsed(address)
    if not found.encrypted:
        way_out = f"use {_ENCRYPTED[found.scheme]}://"
        if token is not None and not _loopback(found.host):
            raise SettingsError(f"{address}: the token would be sent unencrypted; {way_out}")
        if ca is not None:
            raise SettingsError(f"ca needs TLS, and {address} has none; {way_out}")
    if token is not None and not (token.isascii() and token.isprintable() and " " not in token and token):
        raise SettingsError("token: use printable characters without a space")
    return found


def parsed(address: str) -> Address:
    """The parts of a server's address. Raises SettingsError."""
    way_out = "use http://HOST:PORT, https://HOST:PORT, grpc://HOST:PORT or grpcs://HOST:PORT"
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        raise SettingsError(f"address {shown(address)}: {way_out}") from None
    if parts.scheme not in _PORTS or not parts.hostname or parts.path not in ("", "/") or parts.query:
        raise SettingsError(f"address {shown(address)}: {way_out}")
    if parts.username is not None:
        raise SettingsError(f"address of {parts.hostname}: pass the token separately, not in the address")
    return Address(parts.scheme, parts.hostname, port or _PORTS[parts.scheme])


def is_address(text: str) -> bool:
    """Whether a word names a server rather than a directory."""
    return text.startswith(tuple(f"{scheme}://" for scheme in _PORTS))


def lacks_scheme(text: str) -> bool:
    """Whether a word is HOST:PORT: most likely the address of a server whose scheme was forgotten."""
    return _HOST_AND_PORT.fullmatch(text) is not None


def directory_or_address(place: str) -> tuple[str | None, str | None]:
    """Returns a directory or the address of a server, and None for the other one. Raises SettingsError for HOST:PORT:
    as a directory, two processes that were to share a server would each make a store."""
    if lacks_scheme(place):
        raise SettingsError(
            f"frontier {shown(place)}: it has no scheme; write http://{place} for a server, or ./{place} for a "
            "directory"
        )
    return (None, place) if "://" in place else (place, None)


def is_encrypted(text: str) -> bool:
    """Whether a word is the address of a server with TLS."""
    return text.startswith(tuple(f"{scheme}://" for scheme in _ENCRYPTED.values()))


def is_on_loopback(address: str) -> bool:
    """Whether the server at an address can only be on this machine."""
    return _loopback(urlsplit(address).hostname or "")


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _seconds(value: str | None) -> float | None:
    return float(value) if value is not None and value.isascii() and value.isdigit() and len(value) < 6 else None


class RepeatedRequests:
    """Requests that are repeated until they are answered, or until `patience_seconds` have passed.

    asks: one try of a request. chance: returns numbers from 0 to 1, for the jitter of pauses. key_bytes: returns random
    bytes, for keys. sleep, clock: for pauses, and the seconds by which they are measured.
    """

    def __init__(
        self,
        address: str,
        asks: OneTry,
        *,
        patience_seconds: float = REMOTE_PATIENCE_SECONDS,
        chance: Callable[[], float] = random.random,
        key_bytes: Callable[[int], bytes] = os.urandom,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.address = address
        self._asks = asks
        self._patience = patience_seconds
        self._chance, self._key_bytes, self._sleep, self._clock = chance, key_bytes, sleep, clock

    def key(self) -> str:
        """A fresh Idempotency-Key."""
        return self._key_bytes(16).hex()

    def get(self, path: str, gives: type[Given], *, key: str | None = None, wait: float = 0.0, **query: Any) -> Given:
        """Returns the answer to a query; parameters of None are omitted. wait: seconds that the server may wait."""
        words = {name: value for name, value in query.items() if value is not None}
        whole = f"{path}?{urlencode(words)}" if words else path
        return self._decoded(self.made(SentRequest("GET", whole, None, key, REMOTE_SECONDS_MAX + wait)), gives)

    def post(self, path: str, body: Any, gives: type[Given], *, key: str | None = None) -> Given:
        """The answer to a body."""
        return self._decoded(self.made(SentRequest("POST", path, msgspec.json.encode(body), key)), gives)

    def _decoded(self, body: bytes, gives: type[Given]) -> Given:
        try:
            return _decoder_of(gives).decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UnreachableError(f"{self.address} answered in another language ({str(error)[:200]})") from None

    def made(self, sent: SentRequest) -> bytes:
        """Returns the body of the answer. Raises UnreachableError without an answer in time, SettingsError for a
        request line longer than a server reads, and the server's refusal."""
        if len(sent.path) > REMOTE_TARGET_BYTES_MAX:
            path, _, query = sent.path.partition("?")
            longest = max((path, *query.split("&")), key=len)
            raise SettingsError(
                f"{self.address}: a question of {len(sent.path):,} bytes, with {longest[:60]}…, is longer than a "
                f"server reads ({REMOTE_TARGET_BYTES_MAX:,}); shorten what it names"
            )
        ends = self._clock() + self._patience
        tries = 0
        while True:
            try:
                answered = self._asks(sent)
            except ssl.SSLCertVerificationError as error:
                raise UnreachableError(
                    f"{self.address}: its certificate is not trusted ({error.verify_message}); `--ca FILE` names more"
                ) from None
            except _SILENCE as error:
                refusal: Exception = UnreachableError(_words(error, self.address))
                asked = None
            else:
                if answered.status < 300:
                    return answered.body
                refusal = self._refusal(answered)
                asked = answered.retry_after
                if answered.status not in _PASSING:
                    raise refusal
            pause = max(self._pause(tries), asked or 0.0)
            if self._clock() + pause > ends:
                raise refusal from None
            self._sleep(pause)
            tries += 1

    def _pause(self, tries: int) -> float:
        """Exponential, with full jitter: workers that lost one server do not all return at once."""
        most = min(REMOTE_PAUSE_SECONDS_MAX, REMOTE_PAUSE_SECONDS_MIN * 2 ** min(tries, 16))
        return float(most * (0.5 + self._chance() / 2))

    def _refusal(self, answered: ServerAnswer) -> Exception:
        try:
            told = msgspec.json.decode(answered.body[:REMOTE_ERROR_BYTES_MAX], type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError):
            told = {}
        name = str(told.get("type", "")).rpartition(":")[2]
        detail = str(told.get("detail") or f"status {answered.status}")[:2_000]
        if name == "invalid-url":
            return InvalidUrlError(detail)
        if name == "invalid-argument":
            return SettingsError(detail)  # the frontier's own words, as of one in this process
        if name == "store-full":
            return StoreFullError(f"{self.address}: {detail}")
        if 400 <= answered.status < 500 and name and answered.status not in (404, 405, 408, 421):
            return SettingsError(f"{self.address}: {detail}")
        if name:
            return UnreachableError(f"{self.address}: {detail}")
        if answered.status == http.HTTPStatus.UPGRADE_REQUIRED:
            grpc = self.address.replace("http", "grpc", 1)
            return UnreachableError(f"{self.address} serves gRPC; write {grpc}, or give its address for REST")
        return UnreachableError(f"{self.address} answered {answered.status}, and is no frontier of Outrider's")


def _words(error: Exception, address: str) -> str:
    if isinstance(error, http.client.BadStatusLine) and not isinstance(error, http.client.RemoteDisconnected):
        return f"{address} speaks no HTTP/1.1; an address for gRPC begins with grpc://"
    words = str(getattr(error, "strerror", None) or str(error) or type(error).__name__)[:200]
    return f"no answer from {address} ({words})"


def path_of(*parts: str) -> str:
    """A path of the interface, each part of it quoted."""
    return "/".join((API, *(quote(part, safe="") for part in parts)))
