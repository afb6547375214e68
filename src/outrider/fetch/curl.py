"""A downloader on libcurl's multi interface under asyncio: one GET to one checked address, exact bytes, all bounded."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import certifi
import pycurl

from outrider.clock import ClockFunction, Instant, instant
from outrider.errors import ClosedError
from outrider.fetch.addresses import is_web_port, parsed
from outrider.fetch.downloader import Headers, Request, Response, Target
from outrider.fetch.failures import FetchError
from outrider.fetch.large_answers import LargeAnswers
from outrider.fetch.request_turns import RequestTurns
from outrider.fetch.response_bytes import AwkwardOrigins, TransferEnd, is_ambiguous, response_of, unsent
from outrider.fetch.roots import roots_pem
from outrider.limits import (
    CONNECTIONS_MAX,
    HEAD_BYTES_MAX,
    HEADER_LINES_MAX,
    IDLE_CONNECTION_SECONDS_MAX,
    LARGE_BYTES_MAX,
    LARGE_WAIT_SECONDS_MAX,
    RATE_BYTES_PER_SECOND_MIN,
    RATE_SECONDS_FIRST,
)

_TLS_CODES = {
    pycurl.E_SSL_CONNECT_ERROR,
    pycurl.E_PEER_FAILED_VERIFICATION,
    pycurl.E_SSL_CACERT_BADFILE,
    pycurl.E_SSL_CERTPROBLEM,
    pycurl.E_SSL_CIPHER,
    pycurl.E_SSL_ISSUER_ERROR,
    pycurl.E_SSL_PINNEDPUBKEYNOTMATCH,
    pycurl.E_SSL_INVALIDCERTSTATUS,
    pycurl.E_USE_SSL_FAILED,
}
_MALFORMED_CODES = {
    pycurl.E_UNSUPPORTED_PROTOCOL,  # HTTP/0.9
    pycurl.E_FTP_WEIRD_SERVER_REPLY,  # its name before it was used for HTTP too
    pycurl.E_FILESIZE_EXCEEDED,  # a Content-Length beyond 63 bits
    pycurl.E_BAD_CONTENT_ENCODING,  # a Transfer-Encoding that the request did not accept
}
_BROKEN_CODES = {pycurl.E_PARTIAL_FILE, pycurl.E_RECV_ERROR, pycurl.E_SEND_ERROR, pycurl.E_GOT_NOTHING}
_CONNECT_ERRORS = {
    errno.ECONNREFUSED: FetchError.CONNECT_REFUSED,
    errno.ETIMEDOUT: FetchError.CONNECT_TIMEOUT,
    errno.ECONNRESET: FetchError.RESET,
}
# The same as the fetch kernel offers: ephemeral keys, and ciphers that authenticate.
_MODERN_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
_MODERN_CURVES = "X25519:P-256:P-384"
_KEPT_DIED = "a kept connection was closed instead of an answer"
_NO_ROOM = "no room for more of it beside other large answers"
_TOO_LARGE = 100  # CURLE_TOO_LARGE; pycurl has no name for it


@dataclass(frozen=True, slots=True)
class _CurlEnd:
    """How a transfer ended: libcurl's code and words, or our own reason for stopping it."""

    code: int
    text: str
    errno: int = 0


class _Transfer:
    """One easy handle and the bytes that its transfer has received; handles are used again, state is not."""

    def __init__(self, options: dict[int, Any], large: LargeAnswers, rest: Callable[[_Transfer], None]) -> None:
        """rest: is called when the transfer pauses until it is resumed."""
        self._large = large
        self._rest = rest
        self.easy = pycurl.Curl()
        for option, value in options.items():
            self.easy.setopt(option, value)
        self.easy.setopt(pycurl.OPENSOCKETFUNCTION, self._open_socket)
        self.easy.setopt(pycurl.PREREQFUNCTION, self._before_request)
        self.easy.setopt(pycurl.HEADERFUNCTION, self._on_header)
        self.easy.setopt(pycurl.WRITEFUNCTION, self._on_body)
        self._clear()

    def _clear(self) -> None:
        self.address = ""
        self.request: Request | None = None
        self.room = 0  # for the body; known once the head is whole
        self.usual_bytes_max = 0  # for it by the usual limit
        self.rests_since: float | None = None  # loop time
        self.rested = 0.0
        self.loop: asyncio.AbstractEventLoop | None = None
        self.done: asyncio.Future[_CurlEnd] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.opened: socket.socket | None = None
        self.started = 0.0
        self.active = 0.0  # loop time of the last sign of life
        self.first = 0.0  # that of the first byte of the answer, 0 before
        self.sent = False
        self.kept_died = False
        self.stop: FetchError | None = None  # our own reason, which overrides libcurl's
        self.stop_text = ""
        self.cut = False
        self.head: list[bytes] = []
        self.head_bytes = 0
        self.head_lines = 0
        self.head_complete = False
        self.status: int | None = None
        self.body: list[bytes] = []
        self.body_bytes = 0
        self.body_began = 0.0

    def prepare(self, request: Request, target: Target, fresh: bool) -> None:
        """Sets the options that differ from request to request."""
        self._clear()
        self.loop = asyncio.get_running_loop()
        self.done = self.loop.create_future()
        self.address, self.request = request.address, request
        self.started = self.active = self.loop.time()
        ip = f"[{request.address}]" if ":" in request.address else request.address
        setopt = self.easy.setopt
        setopt(pycurl.URL, f"{target.scheme}://{target.host}:{target.port}/")
        setopt(pycurl.REQUEST_TARGET, target.path)
        setopt(pycurl.HTTPHEADER, [line.encode("latin-1") for line in request.fields()])
        setopt(pycurl.CONNECT_TO, [f"::{ip}:"])
        setopt(pycurl.CONNECTTIMEOUT_MS, max(1, int(request.connect_seconds * 1_000)))
        setopt(pycurl.FRESH_CONNECT, int(fresh))
        if request.modern_tls:
            setopt(pycurl.SSL_CIPHER_LIST, _MODERN_CIPHERS)
            setopt(pycurl.SSL_EC_CURVES, _MODERN_CURVES)
        else:
            self.easy.unsetopt(pycurl.SSL_CIPHER_LIST)
            self.easy.unsetopt(pycurl.SSL_EC_CURVES)
        setopt(pycurl.SSL_VERIFYPEER, int(request.verified))
        setopt(pycurl.SSL_VERIFYHOST, 2 if request.verified else 0)

    def slow_at(self) -> float:
        """The time at which a silent body has been too slow."""
        earned = self.body_bytes / RATE_BYTES_PER_SECOND_MIN
        return self.body_began + max(RATE_SECONDS_FIRST, earned)

    # Callbacks of libcurl. Returning something else than it expects ends the transfer.

    def _open_socket(self, purpose: int, address: Any) -> Any:
        family, kind, protocol, peer = address
        if purpose != pycurl.SOCKTYPE_IPCXN or parsed(str(peer[0])) != parsed(self.address):
            return self._refuse_socket(FetchError.BLOCKED_ADDRESS, f"a connection to {peer[0]} was refused")
        if self.sent:
            # libcurl would send the request again on a new connection when a kept one dies. That is a second request
            # to the site, without a gap and without a lease. The crawl's own retry does it later.
            self.kept_died = True
            return self._refuse_socket(FetchError.RESET, _KEPT_DIED)
        self.close_opened()
        try:
            self.opened = socket.socket(family, kind, protocol)
        except OSError as error:
            return self._refuse_socket(FetchError.INTERNAL, f"no socket: {error.strerror}")
        return self.opened

    def close_opened(self) -> None:
        """Closes the descriptor for libcurl, which uses its own duplicate."""
        if self.opened is not None:
            self.opened.close()
            self.opened = None

    def _refuse_socket(self, error: FetchError, text: str) -> int:
        self.stop, self.stop_text = error, text
        return int(pycurl.SOCKET_BAD)

    def _before_request(self, peer: str, local: str, peer_port: int, local_port: int) -> int:
        self.close_opened()
        if self.sent:
            self.kept_died = True
            self.stop, self.stop_text = FetchError.RESET, _KEPT_DIED
            return int(pycurl.PREREQFUNC_ABORT)
        if parsed(peer) != parsed(self.address):
            self.stop, self.stop_text = FetchError.BLOCKED_ADDRESS, f"the connection leads to {peer}"
            return int(pycurl.PREREQFUNC_ABORT)
        assert self.loop is not None
        self.sent = True
        self.active = self.loop.time()
        return int(pycurl.PREREQFUNC_OK)

    def _on_header(self, line: bytes) -> int | None:
        assert self.loop is not None
        self.active = self.loop.time()
        self.first = self.first or self.active
        self.head_bytes += len(line)
        self.head_lines += 1
        if self.head_bytes > HEAD_BYTES_MAX or self.head_lines > HEADER_LINES_MAX:
            self.stop = FetchError.TOO_MANY_HEADERS
            self.stop_text = f"more than {HEADER_LINES_MAX} lines or {HEAD_BYTES_MAX} bytes of head"
            return 0
        if self.head_complete:  # trailers: they are in the body's bytes too
            return None
        if not self.head:
            self.status = _status_of(line)
        self.head.append(line)
        if line in (b"\r\n", b"\n"):
            if self.status is None or self.status < 100 or self.status == 101:
                self.stop = FetchError.MALFORMED
                self.stop_text = "the answer has no status line of HTTP/1.x with a permitted status"
                return 0
            if self.status < 200:
                self.head.clear()  # an interim answer; the final one follows
                self.status = None
            else:
                self.head_complete = True
                self.body_began = self.active
                self._measure()
        return None

    def _measure(self) -> None:
        """The head is whole: its type says how much of the body there is room for."""
        assert self.request is not None
        head = b"".join(self.head)
        content_type = Headers.parse(head).get("content-type") if self.request.type_bytes_max else None
        self.room, _ = self.request.room(len(head), content_type)
        self.usual_bytes_max = max(0, self.request.bytes_max - len(head))

    def _on_body(self, piece: bytes) -> int | None:
        assert self.loop is not None
        if not self._large.goes_on(self):
            self._rest(self)
            return int(pycurl.WRITEFUNC_PAUSE)  # libcurl passes the same piece again on resuming
        self.active = self.loop.time()
        self.body.append(piece[: max(0, self.room - self.body_bytes)])
        self.body_bytes += len(piece)
        if self.body_bytes > self.room:
            self.cut = True
            return 0
        if self.body_bytes > self.usual_bytes_max:
            self._large.grow(self, self.body_bytes - self.usual_bytes_max)
        return None


def _status_of(line: bytes) -> int | None:
    digits = line[9:12] if line.startswith(b"HTTP/1.") else b""
    return int(digits) if len(digits) == 3 and digits.isdigit() else None


class CurlDownloader:
    """Fetches over HTTP/1.1 with libcurl, many at once in one event loop, per host as many as its requests allow.

    Connects only to the request's address; follows no redirect and uses no proxy, cookie or password. TLS is
    verified against certifi's roots and those in `ca_file` (PEM), unless a request says otherwise. `clock` provides the
    instants of the responses.
    At most `connections_max` fetches run and as many sockets are open; further calls wait, uncounted.
    """

    def __init__(
        self,
        *,
        clock: ClockFunction,
        ca_file: str | None = None,
        connections_max: int = CONNECTIONS_MAX,
        large_bytes_max: int = LARGE_BYTES_MAX,
        large_wait_seconds: float = LARGE_WAIT_SECONDS_MAX,
    ) -> None:
        self._clock = clock
        self._connections_max = connections_max
        self._turns = RequestTurns(connections_max)
        self._large = LargeAnswers(large_bytes_max)
        self._large_wait_seconds = large_wait_seconds
        self._roots = _Roots(ca_file)
        self._idle: list[_Transfer] = []
        self._running: dict[Any, _Transfer] = {}
        self._watched: dict[int, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._awkward = AwkwardOrigins()
        self._closed = False
        self._fetches = 0
        self._connections = 0
        self._options: dict[int, Any] = {
            pycurl.NOSIGNAL: 1,
            pycurl.PROTOCOLS: pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS,
            pycurl.HTTP_VERSION: pycurl.CURL_HTTP_VERSION_1_1,
            pycurl.HTTP09_ALLOWED: 0,
            pycurl.HTTP_TRANSFER_DECODING: 0,  # chunks as received, for the archive
            pycurl.FOLLOWLOCATION: 0,
            pycurl.PATH_AS_IS: 1,
            pycurl.PROXY: "",
            pycurl.NOPROXY: "*",
            pycurl.NETRC: pycurl.NETRC_IGNORED,
            pycurl.CAINFO: self._roots.path,
            pycurl.SSLVERSION: pycurl.SSLVERSION_TLSv1_2,
            pycurl.TCP_NODELAY: 1,
            pycurl.MAXAGE_CONN: IDLE_CONNECTION_SECONDS_MAX,
            pycurl.BUFFERSIZE: 1 << 16,
        }
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_PIPELINING, pycurl.PIPE_NOTHING)
        self._multi.setopt(pycurl.M_MAX_TOTAL_CONNECTIONS, connections_max)
        self._multi.setopt(pycurl.M_MAXCONNECTS, connections_max)
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._on_watch)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._on_timer_wanted)

    def __repr__(self) -> str:
        return (
            f"<CurlDownloader {len(self._running)} running, {self._fetches} done, {self._connections} connections made>"
        )

    def statistics(self) -> dict[str, int]:
        """Fetches running, fetches ended, connections made for them."""
        return {"running": len(self._running), "fetches": self._fetches, "connections": self._connections}

    async def fetch(self, request: Request) -> Response:
        """Fetches one page; never raises for a fault of the site. Cancelling it closes its connection."""
        if self._closed:
            raise ClosedError("this downloader is closed and accepts no requests")
        target = request.target
        if not is_web_port(target.port):
            now = self._clock()
            return unsent(request, FetchError.BLOCKED_PORT, f"port {target.port} is not one for HTTP", now)
        # libcurl's own limit counts by address: names that share one would wait for each other.
        async with self._turns.of(target.host, request.capacity):
            transfer = self._idle.pop() if self._idle else _Transfer(self._options, self._large, self._rest)
            transfer.prepare(request, target, target in self._awkward)
            started_at = self._clock()
            end = await self._run(transfer, request)
            response = self._response(request, target, transfer, end, started_at)
            self._idle.append(transfer)
        self._fetches += 1
        self._connections += response.new_connection
        return response

    async def close(self) -> None:
        """Ends the transfers in flight (as `internal`) and closes every connection."""
        if self._closed:
            return
        self._closed = True
        for transfer in list(self._running.values()):
            self._stop(transfer, FetchError.INTERNAL, "the downloader was closed")
        # The tasks that wait for these ends run before the handles are removed.
        await asyncio.sleep(0)
        self._multi.close()
        self._cancel_timer()  # closing connections may have started one
        loop = asyncio.get_running_loop()
        for descriptor, what in self._watched.items():
            _unwatch(loop, descriptor, what)
        self._watched.clear()
        for transfer in self._idle:
            transfer.easy.close()
        self._idle.clear()
        self._roots.close()

    # One transfer

    async def _run(self, transfer: _Transfer, request: Request) -> _CurlEnd:
        assert transfer.loop is not None
        assert transfer.done is not None
        self._running[transfer.easy] = transfer
        first = min(request.total_seconds, request.idle_seconds)
        transfer.timer = transfer.loop.call_at(transfer.started + first, self._check, transfer, request)
        try:
            self._multi.add_handle(transfer.easy)
            return await transfer.done
        except asyncio.CancelledError:
            self._leave(transfer)
            transfer.easy.close()
            raise

    def _leave(self, transfer: _Transfer) -> None:
        """Removes a transfer from the multi handle, which closes its connection unless it ended cleanly."""
        if self._running.pop(transfer.easy, None) is not None:
            self._multi.remove_handle(transfer.easy)
        self._large.leave(transfer)
        transfer.close_opened()
        if transfer.timer is not None:
            transfer.timer.cancel()

    def rest(self, resting: bool) -> None:
        """Pauses or resumes answers that exceed the `bytes_max` of their requests."""
        self._large.rest(resting)

    def _rest(self, transfer: _Transfer) -> None:
        """Pauses a large answer, and its time limits, until there is room for more of it."""
        assert transfer.loop is not None
        assert transfer.timer is not None
        transfer.rests_since = transfer.loop.time()
        transfer.timer.cancel()
        left = max(0.0, self._large_wait_seconds - transfer.rested)
        transfer.timer = transfer.loop.call_later(left, self._waited, transfer)
        # In a turn of its own: this may be called by libcurl.
        self._large.wait(transfer, partial(transfer.loop.call_soon, self._go_on, transfer))

    def _stand_up(self, transfer: _Transfer) -> None:
        assert transfer.loop is not None
        assert transfer.rests_since is not None
        took = transfer.loop.time() - transfer.rests_since
        transfer.rests_since = None
        transfer.rested += took
        transfer.active += took
        transfer.body_began += took

    def _go_on(self, transfer: _Transfer) -> None:
        if transfer.rests_since is None or transfer.easy not in self._running:
            return  # it has ended meanwhile
        self._stand_up(transfer)
        assert transfer.request is not None
        assert transfer.timer is not None
        transfer.timer.cancel()
        self._check(transfer, transfer.request)
        if transfer.easy not in self._running:
            return
        try:
            transfer.easy.pause(pycurl.PAUSE_CONT)
        except pycurl.error as error:  # a piece that arrived meanwhile ended it
            self._end(transfer, _CurlEnd(*error.args))
            return
        self._act(pycurl.SOCKET_TIMEOUT, 0)

    def _waited(self, transfer: _Transfer) -> None:
        """Ends an answer that has waited too long for room, with the bytes received."""
        self._stand_up(transfer)
        transfer.cut, transfer.stop_text = True, _NO_ROOM
        self._end(transfer, _CurlEnd(pycurl.E_ABORTED_BY_CALLBACK, _NO_ROOM))

    def _stop(self, transfer: _Transfer, error: FetchError, text: str) -> None:
        transfer.stop, transfer.stop_text = error, text
        self._end(transfer, _CurlEnd(pycurl.E_ABORTED_BY_CALLBACK, text))

    def _end(self, transfer: _Transfer, end: _CurlEnd) -> None:
        self._leave(transfer)
        if transfer.done is not None and not transfer.done.done():
            transfer.done.set_result(end)

    def _check(self, transfer: _Transfer, request: Request) -> None:
        """Runs when the next limit may have passed; sets itself again when it has not."""
        assert transfer.loop is not None
        now = transfer.loop.time()
        total = transfer.started + transfer.rested + request.total_seconds
        idle = transfer.active + request.idle_seconds if transfer.sent else now + request.idle_seconds
        slow = transfer.slow_at() if transfer.head_complete else total
        if now >= total:
            self._stop(transfer, *_late(transfer, request))
        elif now >= idle:
            error = FetchError.IDLE_TIMEOUT if transfer.head_complete else FetchError.FIRST_BYTE_TIMEOUT
            self._stop(transfer, error, f"nothing came for {request.idle_seconds:g} s")
        elif now >= slow:
            text = f"slower than {RATE_BYTES_PER_SECOND_MIN} bytes a second"
            self._stop(transfer, FetchError.TOTAL_TIMEOUT, text)
        else:
            transfer.timer = transfer.loop.call_at(min(total, idle, slow), self._check, transfer, request)

    # libcurl's sockets and timer in the event loop

    def _on_watch(self, what: int, descriptor: int, multi: Any, data: Any) -> None:
        loop = asyncio.get_running_loop()
        before = self._watched.get(descriptor, 0)
        after = 0 if what == pycurl.POLL_REMOVE else what
        if after & ~before & pycurl.POLL_IN:
            loop.add_reader(descriptor, self._act, descriptor, pycurl.CSELECT_IN)
        if after & ~before & pycurl.POLL_OUT:
            loop.add_writer(descriptor, self._act, descriptor, pycurl.CSELECT_OUT)
        _unwatch(loop, descriptor, before & ~after)
        if after:
            self._watched[descriptor] = after
        else:
            self._watched.pop(descriptor, None)

    def _on_timer_wanted(self, milliseconds: int) -> None:
        self._cancel_timer()
        if milliseconds >= 0:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(milliseconds / 1_000, self._act, pycurl.SOCKET_TIMEOUT, 0)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _act(self, descriptor: int, what: int) -> None:
        if descriptor == pycurl.SOCKET_TIMEOUT:
            self._timer = None
        self._multi.socket_action(descriptor, what)
        while True:
            left, succeeded, failed = self._multi.info_read()
            for easy in succeeded:
                self._end(self._running[easy], _CurlEnd(pycurl.E_OK, ""))
            for easy, code, text in failed:
                self._end(self._running[easy], _CurlEnd(code, text, int(easy.getinfo(pycurl.OS_ERRNO))))
            if left == 0:
                return

    # The response

    def _response(
        self, request: Request, target: Target, transfer: _Transfer, end: _CurlEnd, started_at: Instant
    ) -> Response:
        ended_at = self._clock()
        easy = transfer.easy
        connections = int(easy.getinfo(pycurl.NUM_CONNECTS))
        total = easy.getinfo(pycurl.TOTAL_TIME)
        if transfer.stop is not None:  # libcurl stops counting when a transfer is removed
            total = max(total, (ended_at - started_at) / 1_000_000)
        handshake = easy.getinfo(pycurl.APPCONNECT_TIME) - easy.getinfo(pycurl.CONNECT_TIME) if connections else 0.0
        error, truncated, text = _verdict(transfer, end)
        body, transfer.body = b"".join(transfer.body), []  # a paused handle keeps no bytes
        response = response_of(
            request,
            TransferEnd(
                status=transfer.status,
                error=error,
                truncated=truncated,
                text=text,
                sent=transfer.sent,
                head=b"".join(transfer.head) if transfer.head_complete else b"",
                body=body,
                started_at=started_at,
                ended_at=ended_at,
                seconds=max(0.0, total - max(0.0, handshake) - transfer.rested),
                new_connection=connections > 0,
                first_byte_at=started_at + instant(transfer.first - transfer.started) if transfer.first else None,
            ),
        )
        if transfer.kept_died or is_ambiguous(response.headers):
            self._awkward.add(target)
        return response


def _late(transfer: _Transfer, request: Request) -> tuple[FetchError, str]:
    text = f"not finished in {request.total_seconds:g} s"
    if not transfer.sent:
        return FetchError.CONNECT_TIMEOUT, text
    if not transfer.head_lines:
        return FetchError.FIRST_BYTE_TIMEOUT, text
    return FetchError.TOTAL_TIMEOUT, text


def _verdict(transfer: _Transfer, end: _CurlEnd) -> tuple[FetchError | None, str | None, str]:
    """Returns (error, why the body ends early, words). A whole head with a part of its body is a page, not an error, if
    a limit or the other side cut it. A body that stopped or breaks its framing is both."""
    whole = transfer.head_complete
    stop = transfer.stop
    if transfer.cut:
        return None, "length", transfer.stop_text
    if stop is FetchError.TOTAL_TIMEOUT and whole:
        return None, "time", transfer.stop_text
    if stop is not None:
        truncated = None
        if whole:
            truncated = "time" if stop is FetchError.IDLE_TIMEOUT else "unspecified"
        return stop, truncated, transfer.stop_text
    if end.code == pycurl.E_OK:
        if whole:
            return None, None, ""
        return FetchError.RESET, None, "the connection was closed within the head"
    error = _error_of(end)
    if not whole:
        if error is FetchError.RESET and not transfer.head_lines and end.code == pycurl.E_GOT_NOTHING:
            error = FetchError.EMPTY_REPLY
        return error, None, end.text
    if error is FetchError.RESET:
        return None, "disconnect", end.text
    return error, "unspecified", end.text


def _error_of(end: _CurlEnd) -> FetchError:
    """Maps an error of libcurl to one of ours; a chunk fault is a receive error there, recognised by its words."""
    words = end.text.lower()
    if end.code == _TOO_LARGE or "response headers" in words or "header line" in words:
        return FetchError.TOO_MANY_HEADERS
    if end.code in _MALFORMED_CODES or "chunk" in words:
        return FetchError.MALFORMED
    if end.code in _BROKEN_CODES:
        return FetchError.RESET
    if end.code in _TLS_CODES:
        return FetchError.TLS
    if end.code == pycurl.E_OPERATION_TIMEDOUT:
        return FetchError.CONNECT_TIMEOUT
    if end.code == pycurl.E_COULDNT_CONNECT:
        return _CONNECT_ERRORS.get(end.errno, FetchError.UNREACHABLE)
    return FetchError.INTERNAL


def _unwatch(loop: asyncio.AbstractEventLoop, descriptor: int, what: int) -> None:
    if what & pycurl.POLL_IN:
        loop.remove_reader(descriptor)
    if what & pycurl.POLL_OUT:
        loop.remove_writer(descriptor)


class _Roots:
    """The file of trusted roots: certifi's, or a copy with the user's added, removed at the end.

    A file, not a buffer: only then does libcurl parse the roots once and not for each connection.
    """

    def __init__(self, ca_file: str | None) -> None:
        self.path = certifi.where()
        self._own: Any = None
        if ca_file is None:
            return
        roots = roots_pem(ca_file)
        if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
            # A file without a name: it disappears with this process, however that ends.
            self._own = os.fdopen(os.memfd_create("outrider-roots"), "wb", buffering=0)
            self.path = f"/proc/self/fd/{self._own.fileno()}"
        else:
            named = tempfile.NamedTemporaryFile(prefix="outrider-roots-", suffix=".pem", buffering=0)  # noqa: SIM115 - closed by `close`
            self._own = named
            self.path = self._own.name
        self._own.write(roots)

    def close(self) -> None:
        if self._own is not None:
            self._own.close()
            self._own = None
