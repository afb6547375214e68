"""A gRPC stream whose messages are joined: each frame of HTTP/2 has as many of them as fit. grpcio sends each message
in a packet of its own, which costs both sides more than the work on the message.

RFC 9113 (frames, flow control) and RFC 7541 section 6.2.2 (header fields without indexing). Fields of the answer are
not decoded: the number of answers shows whether the call succeeded.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Sequence

_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GO_AWAY, _WINDOW = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _ACK, _END_HEADERS = 1, 1, 4
_INITIAL_WINDOW = 4
_FRAME_BYTES = 16_384
_WINDOW_FIRST, _WINDOW_MAX = 65_535, (1 << 31) - 1
_STREAM = 1
SECONDS_MAX = 600.0
"""How long a stream may be silent."""


def send_joined(port: int, path: str, messages: Sequence[bytes]) -> list[bytes]:
    """Sends messages in one stream to a server on loopback, and ends it. Returns the answers. Raises ConnectionError if
    the server ends the stream or the connection early."""
    body = b"".join(b"\0" + struct.pack(">I", len(one)) + one for one in messages)
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS_MAX) as connection:
        stream = _Stream(connection)
        stream.begin(path, f"127.0.0.1:{port}")
        reading = threading.Thread(target=stream.read, daemon=True)
        reading.start()
        stream.send(body)
        reading.join()
    if stream.error:
        raise ConnectionError(stream.error)
    return _messages(b"".join(stream.answer))


class _Stream:
    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._lock = threading.Lock()  # of the sending half
        self._room = threading.Condition()
        self._windows = {0: _WINDOW_FIRST, _STREAM: _WINDOW_FIRST}
        self._initial = _WINDOW_FIRST
        self._ended = False
        self.answer: list[bytes] = []
        self.error = ""

    def begin(self, path: str, authority: str) -> None:
        fields = {":method": "POST", ":scheme": "http", ":path": path, ":authority": authority}
        fields |= {"te": "trailers", "content-type": "application/grpc"}
        block = b"".join(b"\0" + _text(name) + _text(value) for name, value in fields.items())
        settings = struct.pack(">HI", _INITIAL_WINDOW, _WINDOW_MAX)
        frames = _frame(_SETTINGS, 0, 0, settings)
        frames += _frame(_WINDOW, 0, 0, struct.pack(">I", _WINDOW_MAX - _WINDOW_FIRST))
        self._put(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frames + _frame(_HEADERS, _END_HEADERS, _STREAM, block))

    def send(self, body: bytes) -> None:
        at = 0
        while at < len(body):
            with self._room:
                while not (most := min(_FRAME_BYTES, *self._windows.values())) > 0 and not self._ended:
                    self._room.wait(SECONDS_MAX)
                if self._ended:
                    return
                piece = body[at : at + most]
                for stream in self._windows:
                    self._windows[stream] -= len(piece)
            self._put(_frame(_DATA, 0, _STREAM, piece))
            at += len(piece)
        self._put(_frame(_DATA, _END_STREAM, _STREAM, b""))

    def read(self) -> None:
        """Reads until the answer ends."""
        try:
            with self._connection.makefile("rb") as frames:
                while not self._ended and len(head := frames.read(9)) == 9:
                    size = int.from_bytes(head[:3], "big")
                    self._take(head[3], head[4], int.from_bytes(head[5:], "big"), frames.read(size))
            if not self._ended:
                self.error = "the server closed the connection"
        except OSError as error:
            self.error = str(error)
        with self._room:
            self._ended = True
            self._room.notify_all()

    def _take(self, kind: int, flags: int, stream: int, content: bytes) -> None:
        if kind == _DATA:
            self.answer.append(content)
        elif kind == _SETTINGS and not flags & _ACK:
            self._put(_frame(_SETTINGS, _ACK, 0, b""))
            for name, value in struct.iter_unpack(">HI", content):
                if name == _INITIAL_WINDOW:
                    self._grow(_STREAM, value - self._initial)
                    self._initial = value
        elif kind == _WINDOW:
            self._grow(stream, int.from_bytes(content, "big"))
        elif kind == _PING and not flags & _ACK:
            self._put(_frame(_PING, _ACK, 0, content))
        elif kind in (_RESET, _GO_AWAY):
            self.error = f"the server ended the stream with code {int.from_bytes(content[-4:], 'big')}"
            self._ended = True
        if kind in (_DATA, _HEADERS) and flags & _END_STREAM:
            self._ended = True

    def _grow(self, stream: int, more: int) -> None:
        with self._room:
            self._windows[stream] += more
            self._room.notify_all()

    def _put(self, frames: bytes) -> None:
        with self._lock:
            self._connection.sendall(frames)


def _frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    return len(content).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + content


def _text(value: str) -> bytes:
    assert len(value) < 127, "longer texts need a longer prefix"
    return bytes((len(value),)) + value.encode()


def _messages(octets: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(octets):
        end = at + 5 + int.from_bytes(octets[at + 1 : at + 5], "big")
        found.append(octets[at + 5 : end])
        at = end
    return found
