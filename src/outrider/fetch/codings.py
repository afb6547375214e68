"""Undoes chunked transfer and gzip or deflate content, with a bound on the output for any input."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from isal import isal_zlib

from outrider.fetch.downloader import Decoding
from outrider.limits import CONTENT_CODINGS_MAX, GZIP_MEMBERS_MAX

# chunk-size, then anything up to the end of the line (chunk-ext): RFC 9112 section 7.1. A bare LF is let pass.
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\n]{0,4096}|\r|)\n")
_FAULTS = (zlib.error, cast("type[Exception]", isal_zlib.IsalError))  # its stub says it were an instance


# `identity`, and words that servers write there by mistake and that change no byte: MIME encodings, charsets.
_NO_CODINGS = frozenset({"", "identity", "none", "binary", "7bit", "8bit", "utf-8", "utf8", "iso-8859-1"})


class _Inflater(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    @property
    def unconsumed_tail(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = ..., /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Unchunked:
    """`content` without the framing, `end` where the message ends in the bytes given, `complete` when it does."""

    content: bytes
    end: int
    complete: bool


def unchunk(body: bytes) -> Unchunked:
    """Takes the framing off a chunked body (RFC 9112 section 7.1); the bytes behind a fault or the end are left out."""
    pieces: list[bytes] = []
    at = 0
    while (line := _CHUNK_LINE.match(body, at)) is not None:
        size = int(line.group(1), 16)
        start = line.end()
        if size == 0:
            end = _end_of_trailers(body, start)
            return Unchunked(b"".join(pieces), len(body) if end is None else end, end is not None)
        pieces.append(body[start : start + size])
        at = start + size
        if body.startswith(b"\r\n", at):
            at += 2
        elif body.startswith(b"\n", at):
            at += 1
        else:
            break
    return Unchunked(b"".join(pieces), len(body), False)


def _end_of_trailers(body: bytes, at: int) -> int | None:
    """Where the empty line after the last chunk and its trailers ends; None when it is not there."""
    while (stop := body.find(b"\n", at)) >= 0:
        if body[at:stop] in (b"", b"\r"):
            return stop + 1
        at = stop + 1
    return None


def codings_of(fields: Sequence[str]) -> list[str]:
    """The codings that a Content-Encoding or Transfer-Encoding lists, outermost last, names of no coding left out."""
    names = (name.strip(" \t").lower() for field in fields for name in field.split(","))
    return [name for name in names if name not in _NO_CODINGS]


def decoded(body: bytes, codings: Sequence[str], bytes_max: int) -> tuple[bytes, Decoding]:
    """The body with its content codings undone, at most `bytes_max` of it, and the result of undoing them.

    gzip (members one after another too) and deflate (RFC 9110 section 8.4.1; raw deflate as some servers send it), at
    most two layers. A body that says gzip and is not is given as it is, as BROKEN. An empty body is WHOLE.
    """
    if not body:
        return body, Decoding.WHOLE  # a HEAD-like answer, 204, 304
    if len(codings) > CONTENT_CODINGS_MAX:
        return body[:bytes_max], Decoding.UNKNOWN
    verdict = Decoding.WHOLE
    for name in reversed(codings):
        undo = _UNDO.get(name)
        if undo is None:
            return body[:bytes_max], Decoding.UNKNOWN
        body, layer = undo(body, bytes_max)
        if layer is not Decoding.WHOLE and verdict is not Decoding.CUT:
            verdict = layer
    if len(body) > bytes_max:
        return body[:bytes_max], Decoding.CUT
    return body, verdict


def _ungzip(body: bytes, bytes_max: int) -> tuple[bytes, Decoding]:
    if not body.startswith(b"\x1f\x8b"):
        return body, Decoding.BROKEN
    pieces: list[bytes] = []
    room = bytes_max
    for _ in range(GZIP_MEMBERS_MAX):
        inflater: _Inflater = isal_zlib.decompressobj(31)
        piece, verdict = _inflated(inflater, body, room)
        pieces.append(piece)
        room -= len(piece)
        if verdict is not Decoding.WHOLE:
            return b"".join(pieces), verdict
        body = inflater.unused_data
        if not body.startswith(b"\x1f\x8b"):  # padding and rubbish after the last member are passed over
            return b"".join(pieces), Decoding.WHOLE
    return b"".join(pieces), Decoding.CUT


def _undeflate(body: bytes, bytes_max: int) -> tuple[bytes, Decoding]:
    wrapped = len(body) >= 2 and body[0] & 0x0F == 8 and (body[0] << 8 | body[1]) % 31 == 0
    return _inflated(isal_zlib.decompressobj(15 if wrapped else -15), body, bytes_max)


def _inflated(inflater: _Inflater, body: bytes, room: int) -> tuple[bytes, Decoding]:
    """Runs one inflater; one byte more than the room tells a cut content from one that just fits."""
    pieces: list[bytes] = []
    left = room + 1
    feed = body
    try:
        while left > 0 and not inflater.eof:
            piece = inflater.decompress(feed, min(left, 1 << 18))
            pieces.append(piece)
            left -= len(piece)
            feed = inflater.unconsumed_tail
            if not piece and not feed:
                break
    except _FAULTS:
        return b"".join(pieces)[:room], Decoding.BROKEN
    content = b"".join(pieces)
    if len(content) > room:
        return content[:room], Decoding.CUT
    return content, Decoding.WHOLE if inflater.eof else Decoding.BROKEN


_UNDO: dict[str, Callable[[bytes, int], tuple[bytes, Decoding]]] = {
    "gzip": _ungzip,
    "x-gzip": _ungzip,
    "deflate": _undeflate,
}
