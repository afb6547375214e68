"""A gRPC stream whose messages are joined: each frame of HTTP/2 has as many of them as fit. grpcio sends each message
in a packet of its own, which costs both sides more than the work on the message.

RFC 9113 (frames, flow control) and RFC 7541 section 6.2.2 (header fields without indexing). Fields of the answer are
not decoded: the number of answers shows whether the call succeeded.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Mapping, Sequence
from types import MappingProxyType

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
    with JoinedStream(port, path) as stream:
        stream.send(messages)
        return stream.end()


class JoinedStream:
    """A stream to a server on loopback that is open in a `with` block. Its methods raise ConnectionError if the server
    ends the stream or the connection early."""

    def __init__(self, port: int, path: str, headers: Mapping[str, str] = MappingProxyType({})) -> None:
        """headers: these are sent in addition to those of each call."""
        self._connection = socket.create_connection(("127.0.0.1", port), timeout=SECONDS_MAX)
        self._lock = threading.Lock()  # of the sending half
        self._room = threading.Condition()
        self._windows = {0: _WINDOW_FIRST, _STREAM: _WINDOW_FIRST}
        self._initial = _WINDOW_FIRST
        self._ended = False
        self._answer = bytearray()  # octets that were not returned yet
        self._error = ""
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._begin({":path": path, ":authority": f"127.0.0.1:{port}"} | dict(headers))

    def __enter__(self) -> JoinedStream:
        self._reading.start()
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(OSError):  # the server may have closed it
            self._connection.shutdown(socket.SHUT_RDWR)
        self._reading.join()
        self._connection.close()

    def send(self, messages: Sequence[bytes]) -> None:
        """Sends messages, and waits while the server reads slowly."""
        self._send(b"".join(b"\0" + struct.pack(">I", len(one)) + one for one in messages))

    def answers(self, count: int) -> list[bytes]:
        """Waits for this number of answers, and returns them."""
        found = list[bytes]()
        with self._room:
            while True:
                found += _messages_of(self._answer, count - len(found))
                if len(found) == count:
                    return found
                if self._ended:
                    raise ConnectionError(self._error or f"{len(found)} answers in place of {count}")
                self._room.wait(SECONDS_MAX)

    def end(self) -> list[bytes]:
        """Ends the stream. Returns the answers to the end."""
        self._put(_frame(_DATA, _END_STREAM, _STREAM, b""))
        return self.answers_to_the_end()

    def answers_to_the_end(self) -> list[bytes]:
        """Waits until the server ends the stream. Returns the answers that were not returned yet."""
        self._reading.join()
        if self._error:
            raise ConnectionError(self._error)
        return _messages_of(self._answer, None)

    def _begin(self, headers: dict[str, str]) -> None:
        fields = {":method": "POST", ":scheme": "http", **headers}
        fields |= {"te": "trailers", "content-type": "application/grpc"}
        block = b"".join(b"\0" + _text(name) + _text(value) for name, value in fields.items())
        settings = struct.pack(">HI", _INITIAL_WINDOW, _WINDOW_MAX)
        frames = _frame(_SETTINGS, 0, 0, settings)
        frames += _frame(_WINDOW, 0, 0, struct.pack(">I", _WINDOW_MAX - _WINDOW_FIRST))
        self._put(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frames + _frame(_HEADERS, _END_HEADERS, _STREAM, block))

    def _send(self, body: bytes) -> None:
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

    def _read(self) -> None:
        try:
            with self._connection.makefile("rb") as frames:
                while not self._ended and len(head := frames.read(9)) == 9:
                    size = int.from_bytes(head[:3], "big")
                    self._take(head[3], head[4], int.from_bytes(head[5:], "big"), frames.read(size))
            if not self._ended:
                self._error = "the server closed the connection"
        except OSError as error:
            self._error = str(error)
        with self._room:
            self._ended = True
            self._room.notify_all()

    def _take(self, kind: int, flags: int, stream: int, content: bytes) -> None:
        if kind == _DATA:
            with self._room:
                self._answer += content
                self._room.notify_all()
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
            self._error = f"the server ended the stream with code {int.from_bytes(content[-4:], 'big')}"
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


def _messages_of(octets: bytearray, most: int | None) -> list[bytes]:
    """Removes whole messages from the beginning of some octets, and returns them. most: None for all."""
    found, at = list[bytes](), 0
    while len(found) != most and at + 5 <= len(octets):
        end = at + 5 + int.from_bytes(octets[at + 1 : at + 5], "big")
        if end > len(octets):
            break
        found.append(bytes(octets[at + 5 : end]))
        at = end
    del octets[:at]
    return found
