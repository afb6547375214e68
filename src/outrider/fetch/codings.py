"""Undoes chunked transfer and the codings of content, with a bound on output, memory and steps for any input."""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import brotli
from isal import isal_zlib

from outrider.fetch.downloader import Decoding
from outrider.limits import CONTENT_CODINGS_MAX, GZIP_MEMBERS_MAX, ZSTD_WINDOW_BITS_MAX

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_PIECE_BYTES = 1 << 18  # unpacked at once
_ZSTD_OPTIONS = {int(zstd.DecompressionParameter.window_log_max): ZSTD_WINDOW_BITS_MAX}
# The frame of content, and the sixteen that are to be skipped: RFC 8878 section 3.1.
_ZSTD_FRAME = re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")

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
    if not fields:
        return []  # nearly always
    names = (name.strip(" \t").lower() for field in fields for name in field.split(","))
    return [name for name in names if name not in _NO_CODINGS]


def decoded(body: bytes, codings: Sequence[str], bytes_max: int) -> tuple[bytes, Decoding]:
    """The body with its content codings undone, at most `bytes_max` of it, and the result of undoing them.

    gzip (members one after another too), deflate (RFC 9110 section 8.4.1; raw deflate as some servers send it), br (RFC
    7932) and zstd (RFC 8878, windows up to 8 MB as RFC 9659 has it), at most two layers. A body that says gzip or zstd
    and is not is given as it is, as BROKEN. An empty body is WHOLE.
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


def _unbrotli(body: bytes, bytes_max: int) -> tuple[bytes, Decoding]:
    inflater = brotli.Decompressor()
    pieces: list[bytes] = []
    left = bytes_max + 1
    feed = body
    try:
        while left > 0 and not inflater.is_finished():
            # The decoder gives out whole blocks of its own, which may be a little longer than what is asked for.
            piece = inflater.process(feed, output_buffer_limit=min(left, _PIECE_BYTES))
            pieces.append(piece)
            left -= len(piece)
            feed = b""
            if not piece and inflater.can_accept_more_data():
                break
    except brotli.error:
        return b"".join(pieces)[:bytes_max], Decoding.BROKEN
    content = b"".join(pieces)
    if len(content) > bytes_max:
        return content[:bytes_max], Decoding.CUT
    return content, Decoding.WHOLE if inflater.is_finished() else Decoding.BROKEN


def _unzstd(body: bytes, bytes_max: int) -> tuple[bytes, Decoding]:
    if not _ZSTD_FRAME.match(body):
        return body, Decoding.BROKEN
    pieces: list[bytes] = []
    left = bytes_max + 1
    for _ in range(GZIP_MEMBERS_MAX):
        inflater = zstd.ZstdDecompressor(options=_ZSTD_OPTIONS)
        feed = body
        try:
            while left > 0 and not inflater.eof:
                piece = inflater.decompress(feed, min(left, _PIECE_BYTES))
                pieces.append(piece)
                left -= len(piece)
                feed = b""
                if inflater.needs_input:
                    break
        except zstd.ZstdError:
            return b"".join(pieces)[:bytes_max], Decoding.BROKEN
        if left <= 0:
            return b"".join(pieces)[:bytes_max], Decoding.CUT
        if not inflater.eof:
            return b"".join(pieces), Decoding.BROKEN
        body = inflater.unused_data
        if not _ZSTD_FRAME.match(body):  # padding and rubbish after the last frame are passed over, as with gzip
            return b"".join(pieces), Decoding.WHOLE
    return b"".join(pieces), Decoding.CUT


_UNDO: dict[str, Callable[[bytes, int], tuple[bytes, Decoding]]] = {
    "gzip": _ungzip,
    "x-gzip": _ungzip,
    "deflate": _undeflate,
    "br": _unbrotli,
    "zstd": _unzstd,
}
