"""Undoes chunked transfer and the codings of content, with a bound on output, memory and steps for any input."""

from __future__ import annotations

import re
import struct
import sys
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import brotli
from isal import isal_zlib

from outrider.fetch.downloader import Decoding
from outrider.limits import CONTENT_CODINGS_MAX, GZIP_MEMBERS_MAX, ZSTD_WINDOW_BITS_MAX
from outrider.sniffing import MARKS, is_binary

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_PIECE_BYTES = 1 << 18  # unpacked at once
_ZSTD_OPTIONS = {int(zstd.DecompressionParameter.window_log_max): ZSTD_WINDOW_BITS_MAX}
# The frame of content, and the sixteen that are to be skipped: RFC 8878 section 3.1.
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_CHECKSUM = 4  # the bit of the frame's descriptor that says that a checksum ends it
_ZSTD_FRAME = re.compile(rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18")

# chunk-size, then anything up to the end of the line (chunk-ext): RFC 9112 section 7.1. A bare LF is let pass.
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\n]{0,4096}|\r|)\n")
_FAULTS = (zlib.error, cast("type[Exception]", isal_zlib.IsalError))  # its stub says it were an instance


# `identity`, and words that servers write there by mistake and that change no byte: MIME encodings, charsets.
_NO_CODINGS = frozenset({"", "identity", "none", "binary", "7bit", "8bit", "utf-8", "utf8", "iso-8859-1"})
_PART_BYTES = 1 << 16  # of a body with several members or frames
_STEP_BYTES = (
    1 << 10
)  # of a broken stream, fed at once: smaller than a block, so that the bytes before the fault are kept
# The worst of two layers counts.
_BY_DAMAGE = (Decoding.WHOLE, Decoding.UNKNOWN, Decoding.CHECKSUM, Decoding.BROKEN, Decoding.CUT)


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
    """Removes the framing of a chunked body (RFC 9112 section 7.1); drops the bytes after a fault or the end."""
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
    """Returns the body with its content codings undone, at most `bytes_max` of it, and the result.

    gzip (several members too), deflate (RFC 9110 section 8.4.1; raw deflate as some servers send it), br (RFC
    7932) and zstd (RFC 8878, windows up to 8 MB as in RFC 9659), at most two layers. A list with another word
    leaves the bytes as they are (Fetch, "handle content codings"), and so does a coding that the body does not have:
    both are UNKNOWN. Of a damaged stream the content before the fault is kept, of one with a wrong checksum all of it.
    An empty body is WHOLE.
    """
    if not body:
        return body, Decoding.WHOLE  # a HEAD-like answer, 204, 304
    if len(codings) > CONTENT_CODINGS_MAX or any(name not in _UNDO for name in codings):
        return body[:bytes_max], Decoding.UNKNOWN
    verdict = Decoding.WHOLE
    for name in reversed(codings):
        body, layer = _UNDO[name](body, bytes_max)
        verdict = layer if verdict is Decoding.WHOLE else worse(verdict, layer)
    if len(body) > bytes_max:
        return body[:bytes_max], Decoding.CUT
    return body, verdict


def worse(one: Decoding, other: Decoding) -> Decoding:
    """The one of two results that says more about what is missing."""
    return max(one, other, key=_BY_DAMAGE.index)


def _is_plain(body: bytes) -> bool:
    """Whether a body that no decoder can begin to read is text that only says that it is coded."""
    return not body.startswith(MARKS[:2]) and not is_binary(body)


def _ungzip(body: bytes, bytes_max: int) -> tuple[bytes, Decoding]:
    if not body.startswith(b"\x1f\x8b"):
        return body, Decoding.UNKNOWN
    pieces = list[bytes]()
    room, at = bytes_max, 0
    for _ in range(GZIP_MEMBERS_MAX):
        piece, verdict, at = _member(body, at, room)
        pieces.append(piece)
        room -= len(piece)
        if verdict is Decoding.BROKEN:
            return _ungzip_by_steps(body, bytes_max)
        if verdict is Decoding.CUT:
            return b"".join(pieces), verdict
        if not body.startswith(b"\x1f\x8b", at):  # padding and rubbish after the last member are passed over
            return b"".join(pieces), Decoding.WHOLE
    return b"".join(pieces), Decoding.CUT


def _member(body: bytes, at: int, room: int) -> tuple[bytes, Decoding, int]:
    """Reads one gzip member and returns its end. A small part is tried first: the inflater copies the bytes after the
    end, which for a thousand small members would be the whole rest a thousand times."""
    part = _PART_BYTES
    while True:
        inflater: _Inflater = isal_zlib.decompressobj(31)
        piece, verdict = _inflated(inflater, body[at : at + part], room)
        end = min(at + part, len(body))
        if verdict is not Decoding.BROKEN or end == len(body):
            return piece, verdict, end - len(inflater.unused_data)
        part *= 8


def _ungzip_by_steps(body: bytes, bytes_max: int) -> tuple[bytes, Decoding]:
    """Reads again a stream in which the other reader met a fault: with all bytes before it, and without checking
    checksums (RFC 1952 section 2.3)."""
    pieces: list[bytes] = []
    room, verdict, at = bytes_max, Decoding.WHOLE, 0
    for _ in range(GZIP_MEMBERS_MAX):
        start = _end_of_gzip_head(body, at)
        if start is None:
            return b"".join(pieces), Decoding.BROKEN
        content, at, layer = _inflated_by_steps(body, start, room)
        pieces.append(content)
        room -= len(content)
        if layer is not Decoding.WHOLE:
            return b"".join(pieces), layer
        if len(body) - at < 8:
            return b"".join(pieces), Decoding.BROKEN
        if body[at : at + 8] != struct.pack("<II", zlib.crc32(content), len(content) & 0xFFFF_FFFF):
            verdict = Decoding.CHECKSUM
        at += 8
        if not body.startswith(b"\x1f\x8b", at):
            return b"".join(pieces), verdict
    return b"".join(pieces), Decoding.CUT


def _end_of_gzip_head(body: bytes, at: int) -> int | None:
    """Returns the start of the deflate stream of the gzip member at `at`; None without a whole head."""
    if len(body) - at < 10 or body[at + 2] != 8 or body[at + 3] & 0xE0:
        return None
    flags, at = body[at + 3], at + 10
    if flags & 4:
        at += 2 + int.from_bytes(body[at : at + 2], "little")
    for flag in (8, 16):  # a name, a comment: up to NUL
        if flags & flag:
            at = body.find(b"\0", at) + 1
            if at == 0:
                return None
    if flags & 2:
        at += 2
    return at if at <= len(body) else None


def _undeflate(body: bytes, bytes_max: int) -> tuple[bytes, Decoding]:
    wrapped = len(body) >= 2 and body[0] & 0x0F == 8 and (body[0] << 8 | body[1]) % 31 == 0
    found, verdict = _inflated(isal_zlib.decompressobj(15 if wrapped else -15), body, bytes_max)
    if verdict is not Decoding.BROKEN:
        return found, verdict
    content, end, verdict = _inflated_by_steps(body, 2 if wrapped else 0, bytes_max)
    if verdict is Decoding.BROKEN and _is_plain(body):
        return body, Decoding.UNKNOWN
    if wrapped and verdict is Decoding.WHOLE:
        verdict = Decoding.BROKEN if len(body) - end < 4 else Decoding.CHECKSUM
    return content, verdict


def _inflated_by_steps(body: bytes, at: int, room: int) -> tuple[bytes, int, Decoding]:
    """A raw deflate stream that begins at `at`, up to its fault, byte by byte near it, and where it ends."""
    inflater = zlib.decompressobj(-15)
    pieces: list[bytes] = []
    left, step = room + 1, _STEP_BYTES
    while at < len(body) and left > 0 and not inflater.eof:
        before = inflater.copy()
        feed = body[at : at + step]
        made: list[bytes] = []
        try:
            while left > sum(map(len, made)) and not inflater.eof:
                piece = inflater.decompress(feed, left - sum(map(len, made)))
                made.append(piece)
                feed = inflater.unconsumed_tail
                if not piece and not feed:
                    break
        except zlib.error:
            if step == 1:
                return b"".join(pieces), at, Decoding.BROKEN
            inflater, step = before, 1
            continue
        pieces += made
        left -= sum(map(len, made))
        at += step
    content = b"".join(pieces)
    if len(content) > room:
        return content[:room], at, Decoding.CUT
    if not inflater.eof:
        return content, at, Decoding.BROKEN
    return content, min(at, len(body)) - len(inflater.unused_data), Decoding.WHOLE


def _inflated(inflater: _Inflater, body: bytes, room: int) -> tuple[bytes, Decoding]:
    """Runs one inflater; one byte more than the room separates cut content from content that just fits."""
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
    pieces, verdict = _unbrotli_by(len(body), body, bytes_max)
    if verdict is Decoding.BROKEN:
        pieces, verdict = _unbrotli_by(_STEP_BYTES, body, bytes_max)
        if not any(pieces) and _is_plain(body):
            return body, Decoding.UNKNOWN
    return b"".join(pieces)[:bytes_max], verdict


def _unbrotli_by(step: int, body: bytes, bytes_max: int) -> tuple[list[bytes], Decoding]:
    """Feeds this number of bytes at once. The decoder returns nothing of a step with a fault."""
    inflater = brotli.Decompressor()
    pieces: list[bytes] = []
    left, at, feed = bytes_max + 1, step, body[:step]
    try:
        while left > 0 and not inflater.is_finished():
            # The decoder returns whole blocks, which may be a little longer than requested.
            piece = inflater.process(feed, output_buffer_limit=min(left, _PIECE_BYTES))
            pieces.append(piece)
            left -= len(piece)
            feed = b""
            if not piece and inflater.can_accept_more_data():
                if at >= len(body):
                    break
                feed = body[at : at + step]
                at += step
    except brotli.error:
        return pieces, Decoding.BROKEN
    if left <= 0:
        return pieces, Decoding.CUT
    return pieces, Decoding.WHOLE if inflater.is_finished() else Decoding.BROKEN


def _unzstd(body: bytes, bytes_max: int) -> tuple[bytes, Decoding]:
    if not _ZSTD_FRAME.match(body):
        return body, Decoding.UNKNOWN
    content, verdict = _unzstd_by(_PART_BYTES, body, bytes_max, checks=True)
    if verdict is Decoding.BROKEN:
        content, verdict = _unzstd_by(_STEP_BYTES, body, bytes_max, checks=False)
        if verdict is Decoding.WHOLE:  # the fault was in a checksum
            verdict = Decoding.CHECKSUM
    return content, verdict


def _unzstd_by(step: int, body: bytes, bytes_max: int, *, checks: bool) -> tuple[bytes, Decoding]:
    """Feeds this number of bytes at once; without `checks` it ignores checksums of frames (RFC 8878 section 3.1.1)."""
    pieces: list[bytes] = []
    left, at = bytes_max + 1, 0
    for _ in range(GZIP_MEMBERS_MAX):
        check_bytes, feed = 0, body[at : at + step]
        if not checks and feed.startswith(_ZSTD_MAGIC) and len(feed) > 4 and feed[4] & _ZSTD_CHECKSUM:
            feed, check_bytes = feed[:4] + bytes((feed[4] & ~_ZSTD_CHECKSUM,)) + feed[5:], 4
        inflater = zstd.ZstdDecompressor(options=_ZSTD_OPTIONS)
        at += step
        try:
            while left > 0 and not inflater.eof:
                piece = inflater.decompress(feed, min(left, _PIECE_BYTES))
                pieces.append(piece)
                left -= len(piece)
                feed = b""
                if inflater.needs_input:
                    if at >= len(body):
                        break
                    feed = body[at : at + step]
                    at += step
        except zstd.ZstdError:
            return b"".join(pieces)[:bytes_max], Decoding.BROKEN
        if left <= 0:
            return b"".join(pieces)[:bytes_max], Decoding.CUT
        if not inflater.eof:
            return b"".join(pieces), Decoding.BROKEN
        at = min(at, len(body)) - len(inflater.unused_data) + check_bytes
        if at > len(body):
            return b"".join(pieces), Decoding.BROKEN
        if not _ZSTD_FRAME.match(body, at):  # padding and rubbish after the last frame are passed over, as with gzip
            return b"".join(pieces), Decoding.WHOLE
    return b"".join(pieces), Decoding.CUT


_UNDO: dict[str, Callable[[bytes, int], tuple[bytes, Decoding]]] = {
    "gzip": _ungzip,
    "x-gzip": _ungzip,
    "deflate": _undeflate,
    "br": _unbrotli,
    "zstd": _unzstd,
}
