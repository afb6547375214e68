"""Requests to a served frontier over gRPC: the calls of `outrider.v1.Frontier`, with the documents of REST."""

from __future__ import annotations

import contextlib
import os
import re
import threading
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote

import msgspec

from outrider.engine.http_requests import SentRequest, ServerAnswer, checked_access
from outrider.engine.protobuf import MalformedMessageError, Protocol
from outrider.engine.service_calls import CALLS, PROBLEM, SERVICE
from outrider.errors import NamedPathError, SettingsError, UnreachableError
from outrider.install_hints import install_command
from outrider.limits import (
    REMOTE_ANSWER_BYTES_MAX,
    REMOTE_CONNECT_SECONDS_MAX,
    REMOTE_ERROR_BYTES_MAX,
    REMOTE_PAUSE_SECONDS_MIN,
)

if TYPE_CHECKING:
    import grpc

_PLACES: Final = re.compile(r"{(\w+)}")
_TEMPLATES: Final = {
    (method, re.compile(_PLACES.sub(r"(?P<\1>[^/]+)", path))): name
    for (method, path), name in CALLS.items()
    if "{" in path
}
_RECONNECT_MILLISECONDS: Final = round(REMOTE_PAUSE_SECONDS_MIN * 1000)
_OPTIONS: Final = [
    ("grpc.max_receive_message_length", REMOTE_ANSWER_BYTES_MAX),
    ("grpc.max_send_message_length", -1),  # the server has the limit
    ("grpc.enable_retries", 0),  # requests are repeated with their keys
    ("grpc.enable_http_proxy", 0),
    # A try that follows a pause must not meet a pause of the channel.
    ("grpc.initial_reconnect_backoff_ms", _RECONNECT_MILLISECONDS),
    ("grpc.min_reconnect_backoff_ms", round(REMOTE_CONNECT_SECONDS_MAX * 1000)),
    ("grpc.max_reconnect_backoff_ms", _RECONNECT_MILLISECONDS),
    # A half-open connection is noticed, also without a request.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
]


class GrpcConnection:
    """A channel to one server; any thread may use it."""

    def __init__(self, address: str, *, token: str | None = None, ca: str | None = None) -> None:
        """Raises SettingsError for an invalid address, for a token that would be sent unencrypted, and without
        grpcio."""
        access = checked_access(address, token=token, ca=ca)
        # Its library writes each failed try to stderr, and the errors of this class have the same facts.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        try:
            import grpc
        except ImportError:
            raise SettingsError(
                f"{address} needs grpcio, which is not installed; run `{install_command('grpc')}`"
            ) from None
        self._grpc = grpc
        self._address = address
        self._protocol = Protocol.of("frontier", "outrider.engine")
        self._metadata = () if token is None else (("authorization", f"Bearer {token}"),)
        host = f"[{access.host}]" if ":" in access.host else access.host
        target = f"{host}:{access.port}"
        if access.encrypted:
            self._channel = grpc.secure_channel(target, grpc.ssl_channel_credentials(_certificates(ca)), _OPTIONS)
        else:
            self._channel = grpc.insecure_channel(target, _OPTIONS)
        self._calls = {name: self._channel.unary_unary(SERVICE + name) for name in CALLS.values()}
        self._open: set[Any] = set()
        self._cut = False
        self._lock = threading.Lock()

    def __call__(self, sent: SentRequest) -> ServerAnswer:
        name, document = call_of(sent)
        request = self._protocol.write("Request", {"json": document, "idempotency_key": sent.key})
        with self._lock:
            if self._cut:
                raise ConnectionAbortedError("the request was cut off")
            call = self._calls[name].future(request, timeout=sent.seconds_max, metadata=self._metadata)
            self._open.add(call)
        try:
            octets = call.result()
        except self._grpc.FutureCancelledError:
            raise ConnectionAbortedError("the request was cut off") from None
        except self._grpc.RpcError as error:
            return self._refused(error)
        finally:
            with self._lock:
                self._open.discard(call)
        try:
            return ServerAnswer(200, self._protocol.read("Answer", octets).get("json", "").encode())
        except MalformedMessageError as error:
            raise UnreachableError(f"{self._address} answered in another language ({error})") from None

    def _refused(self, error: grpc.RpcError) -> ServerAnswer:
        """Returns the problem that ended a call. Raises OSError if the call may be repeated without one."""
        code, details = error.code(), str(error.details())[:500]
        for name, value in error.trailing_metadata() or ():
            if name == PROBLEM:
                with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):  # then its status alone counts
                    problem = msgspec.json.decode(value[:REMOTE_ERROR_BYTES_MAX], type=_Problem)
                    return ServerAnswer(problem.status, value, problem.retry_after_seconds)
        if code is self._grpc.StatusCode.UNIMPLEMENTED:
            raise UnreachableError(f"{self._address} has no frontier of Outrider's ({details})") from None
        if code is self._grpc.StatusCode.RESOURCE_EXHAUSTED:
            raise SettingsError(f"{self._address}: {details}") from None
        if "CERTIFICATE_VERIFY_FAILED" in details:
            raise UnreachableError(
                f"{self._address}: its certificate is not trusted ({details}); `--ca FILE` names more"
            ) from None
        raise ConnectionError(details) from None

    def cut(self) -> None:
        """Ends the requests that wait for their answers, from any thread, and all later ones: each raises OSError."""
        with self._lock:
            self._cut = True
            waiting = list(self._open)
        for call in waiting:
            call.cancel()

    def close(self) -> None:
        """Ends all requests, and closes the channel."""
        self.cut()
        self._channel.close()


class _Problem(msgspec.Struct):
    status: int
    retry_after_seconds: float | None = None


def call_of(sent: SentRequest) -> tuple[str, bytes]:
    """The name of the call that carries a request, and its document: parameters and body together."""
    path, _, query = sent.path.partition("?")
    name, places = CALLS.get((sent.method, path)), {}
    if name is None:
        for (method, template), one in _TEMPLATES.items():
            met = template.fullmatch(path)
            if method == sent.method and met is not None:
                name = one
                places = {key: unquote(value) for key, value in met.groupdict().items()}
    if name is None:
        raise SettingsError(f"{sent.method} {path[:200]} has no call of {SERVICE.strip('/')}; use an http:// address")
    parameters = places | dict(parse_qsl(query, keep_blank_values=True))
    if not parameters:
        return name, sent.body or b"{}"
    body = msgspec.json.decode(sent.body, type=dict[str, Any]) if sent.body is not None else {}
    return name, msgspec.json.encode(body | parameters)


def _certificates(path: str | None) -> bytes | None:
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise NamedPathError(f"ca {path}: no certificates can be read there ({error.strerror})") from None
