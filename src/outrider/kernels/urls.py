"""Canonical spelling of http and https URLs in batches, and operations on columns of text: the plain twin.

An ordinary row is spelled by the WHATWG URL Standard, then RFC 3986 section 6.2.2 (`outrider.url.spelling` says which
URLs become equal):

    ends        C0 controls and blanks are cut off, as are the fragment and its "#"
    scheme      http or https in any case, then "//"; or no scheme at all, relative to a page
    userinfo    dropped
    host        printable ASCII without " #%/:<>?@[\\]^|", without an empty label except a last one, without a label
    that
                begins with "xn--"; the last non-empty label does not begin with a digit; or an IPv4 address of four
                plain numbers
    port        up to five digits, at most 65535; no port is the same as the scheme's own
    path        any bytes; "\\" is read as "/"; dot segments are removed, percent-encoded ones too
    query       any bytes; dropped when it is empty
    no tab, line feed or carriage return before the fragment; UTF-8 if path or query contain bytes beyond ASCII

A row with another scheme, or with neither scheme nor page, is invalid. All others are odd: they need a full parser.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from outrider.kernels.framing import Bytes, as_octets
from outrider.kernels.siphash import hash_messages

SPELLED, ODD, INVALID = 0, 1, 2
"""The result for a row."""
HTTPS, USERINFO = 1, 2
"""Bits of a row's flags: its scheme is https; the row itself had a user or password."""

Columns = tuple[bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes]
"""The result of `spell_urls` and `spell_arena`, numbers in little endian:

    arena              the canonical texts one after the other, ASCII; empty for rows that are not spelled
    offsets            i64: the start of each row in the arena, and the end of the last (as in Arrow's LargeUtf8)
    states             u8: SPELLED, ODD or INVALID
    flags              u8: HTTPS and USERINFO
    host lengths       u32: the length of the host, which begins after "http://" or "https://"
    path starts        u32, from the row's first byte on; 0 for a row that is not spelled
    fingerprints       u64 of each text, and
    host fingerprints  u64 of each host; both empty without a key
"""
Numbers = npt.NDArray[np.int64] | memoryview
"""A contiguous buffer of i64."""
Marks = npt.NDArray[np.bool_] | Bytes
"""One byte per row, 0 for no."""

_ROW_BYTES_MAX = 1 << 28
_BLANKS = bytes(range(0x21))
_SCHEME = re.compile(rb"([A-Za-z][A-Za-z0-9+.-]*):")
_LINE_OR_TAB = re.compile(rb"[\t\n\r]")
_AUTHORITY = re.compile(rb"[^/?\\]*")
_HOST_AND_PORT = re.compile(rb"([A-Za-z0-9._!\"$&'()*+,;=`{}~-]+)(?::([0-9]{0,5}))?")
_BYTE = rb"(?:[0-9]|[1-9][0-9]|1[0-9][0-9]|2[0-4][0-9]|25[0-5])"
_QUAD = re.compile(rb"(?:" + _BYTE + rb"\.){3}" + _BYTE)
_ENCODED_IN_PATH = re.compile(rb'[\x00-\x20"<>^`{}\x7f-\xff]')
_ENCODED_IN_QUERY = re.compile(rb"[\x00-\x20\"<>'\x7f-\xff]")
_DOT = re.compile(rb"%2[eE]")
# The first alternative keeps a triplet whose decoding would complete another one: "%%361" means the octets
# "%61"; with %36 decoded it would read "%61" and mean "a". So one pass reaches the fixed point.
_PERCENT = re.compile(
    rb"%(?![0-9A-Fa-f]{2})[0-9A-Fa-f]?%(?:3[0-9]|[46][1-6])"
    rb"|%[0-9A-Fa-f]{2}"
)
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


class BasePieces(NamedTuple):
    """The page that references are relative to, in pieces of its canonical URL."""

    text: bytes
    origin: bytes
    directory: bytes
    """The path up to its last slash."""
    path: bytes
    host_length: int

    @classmethod
    def of(cls, text: str | None) -> BasePieces | None:
        """Raises ValueError when the text is not a canonical http or https URL."""
        if text is None:
            return None
        match = re.fullmatch(r"(https?://(\[[^/\]]*\]|[^/:\[][^/:]*)[^/]*)(/[^?]*)(?:\?.*)?", text, re.DOTALL)
        if match is None or not text.isascii() or len(text) >= _ROW_BYTES_MAX:
            raise ValueError("a page is a canonical http or https URL, or None")
        path = match[3].encode()
        directory = path[: path.rindex(b"/") + 1]
        return cls(text.encode(), match[1].encode(), directory, path, len(match[2]))


class SpelledRow(NamedTuple):
    """One row: its state, and its text and parts when it is spelled."""

    state: int
    text: bytes = b""
    flags: int = 0
    host_length: int = 0
    path_start: int = 0


_IS_ODD, _IS_INVALID = SpelledRow(ODD), SpelledRow(INVALID)


def unreserved_decoded(octets: bytes) -> bytes:
    """RFC 3986 section 6.2.2: percent triplets in upper case, those of unreserved octets decoded; a fixed point."""
    return _PERCENT.sub(_triplet, octets) if b"%" in octets else octets


def _triplet(match: re.Match[bytes]) -> bytes:
    text = match[0]
    if len(text) > 3:
        return text
    octet = int(text[1:], 16)
    return bytes((octet,)) if octet in _UNRESERVED else text.upper()


def spell_row(row: bytes, page: BasePieces | None) -> SpelledRow:
    """One row; its text in UTF-8, half characters in their three-byte form."""
    if len(row) >= _ROW_BYTES_MAX:
        return _IS_ODD
    text = row.strip(_BLANKS).partition(b"#")[0]
    scheme = _SCHEME.match(text)
    if scheme is not None and scheme[1].lower() not in (b"http", b"https"):
        return _IS_INVALID
    if _LINE_OR_TAB.search(text):
        return _IS_ODD
    if scheme is not None:
        return _absolute(row, scheme[1].lower(), text[scheme.end() :])
    if page is None:
        return _IS_INVALID
    if text.startswith((b"\\", b"/\\")):
        return _IS_ODD
    if text.startswith(b"//"):
        return _absolute(row, page.origin.partition(b":")[0], text)
    flags = HTTPS if page.origin.startswith(b"https") else 0
    if not text:
        return SpelledRow(SPELLED, page.text, flags, page.host_length, len(page.origin))
    path, mark, query = text.partition(b"?")
    head = SpelledRow(SPELLED, page.origin, flags, page.host_length, len(page.origin))
    if not path:
        return _put_together(row, head, page.path, b"", mark + query)
    return _put_together(row, head, b"/" if path.startswith(b"/") else page.directory, path, mark + query)


def _absolute(row: bytes, scheme: bytes, rest: bytes) -> SpelledRow:
    if not rest.startswith(b"//"):
        return _IS_ODD
    authority = _AUTHORITY.match(rest, 2)
    assert authority is not None, "it may be empty"
    head = (_known_head if len(authority[0]) <= _KNOWN_BYTES_MAX else _head)(scheme, authority[0])
    if head.state != SPELLED:
        return head
    path, mark, query = rest[authority.end() :].partition(b"?")
    return _put_together(row, head, b"/", path, mark + query)


def _head(scheme: bytes, authority: bytes) -> SpelledRow:
    """A row up to its path."""
    userinfo, at, place = authority.rpartition(b"@")
    match = _HOST_AND_PORT.fullmatch(place)
    if match is None:
        return _IS_ODD
    host, port = match[1].lower(), int(match[2] or (443 if scheme == b"https" else 80))
    labels = host.removesuffix(b".").split(b".")
    if b"" in labels or any(label.startswith(b"xn--") for label in labels) or port > 65_535:
        return _IS_ODD
    if labels[-1][:1].isdigit() and not _QUAD.fullmatch(host):
        return _IS_ODD
    origin = scheme + b"://" + host
    if port != (443 if scheme == b"https" else 80):
        origin += b":%d" % port
    flags = (HTTPS if scheme == b"https" else 0) | (USERINFO if at and userinfo not in (b"", b":") else 0)
    return SpelledRow(SPELLED, origin, flags, len(host), len(origin))


_known_head = lru_cache(maxsize=1_024)(_head)  # links of a page, and entries of a sitemap, lead to few hosts
_KNOWN_BYTES_MAX = 256


def _put_together(row: bytes, head: SpelledRow, directory: bytes, path: bytes, query: bytes) -> SpelledRow:
    if not ((path + query).isascii() or _is_utf8(row)):
        return _IS_ODD
    path = path.replace(b"\\", b"/").removeprefix(b"/")
    path = _ENCODED_IN_PATH.sub(_encoded, _without_dots(directory + path))
    query = _ENCODED_IN_QUERY.sub(_encoded, query) if query != b"?" else b""
    text = head.text + unreserved_decoded(path) + unreserved_decoded(query)
    return SpelledRow(SPELLED, text, head.flags, head.host_length, head.path_start)


def _without_dots(path: bytes) -> bytes:
    """RFC 3986 section 5.2.4: remove_dot_segments, of a path that begins with a slash."""
    if b"/." not in path and b"/%2" not in path:
        return path
    kept: list[bytes] = []
    segments = path.split(b"/")[1:]
    for place, segment in enumerate(segments):
        dots = _DOT.sub(b".", segment)
        if dots == b"..":
            del kept[-1:]
        elif dots != b".":
            kept.append(segment)
        if dots in (b".", b"..") and place == len(segments) - 1:
            kept.append(b"")
    return b"/" + b"/".join(kept)


def _encoded(match: re.Match[bytes]) -> bytes:
    return b"%%%02X" % match[0][0]


def _is_utf8(row: bytes) -> bool:
    try:
        row.decode()
    except UnicodeDecodeError:
        return False
    return True


def spell_urls(rows: Sequence[object], page: str | None = None, key: Bytes | None = None) -> Columns:
    """Returns the columns of texts, relative to the canonical URL of a `page` if there is one; a non-`str` is invalid.

    Raises TypeError when `rows` is one string, ValueError when the page is not canonical or the key is not 16 bytes.
    """
    octets = [row.encode("utf-8", "surrogatepass") if isinstance(row, str) else None for row in _sequence(rows)]
    return _columns(octets, page, key)


def spell_arena(arena: Bytes, offsets: Numbers, page: str | None = None, key: Bytes | None = None) -> Columns:
    """The same for texts in UTF-8 in one buffer: row i is arena[offsets[i]:offsets[i + 1]].

    Raises ValueError when there is no offset, or a row is outside the arena.
    """
    numbers = _int64s(offsets)
    if len(numbers) == 0:
        raise ValueError("offsets name where each row begins and the last ends")
    return _columns(spans_of(arena, numbers[:-1], numbers[1:]), page, key)


def spell_texts(rows: Sequence[object], page: str | None = None) -> tuple[list[str | None], list[int]]:
    """The canonical text of each row, None for odd and invalid ones; and which rows are odd."""
    base = BasePieces.of(page)
    texts: list[str | None] = []
    odd: list[int] = []
    for number, given in enumerate(_sequence(rows)):
        row = spell_row(given.encode("utf-8", "surrogatepass"), base) if isinstance(given, str) else _IS_INVALID
        texts.append(row.text.decode() if row.state == SPELLED else None)
        if row.state == ODD:
            odd.append(number)
    return texts, odd


def hash_spans(arena: Bytes, starts: Numbers, ends: Numbers, key: Bytes, until: int | None = None) -> bytes:
    """Returns the fingerprint of each span of an arena, as little-endian u64: SipHash-1-3 under a key of 16 bytes.
    until: an octet; the fingerprint covers the span up to the first such octet, and is 0 for a span without it."""
    spans = spans_of(arena, starts, ends)
    if until is None:
        return hash_messages(spans, key)
    mark = bytes([until])
    found = hash_messages([span.partition(mark)[0] for span in spans], key)
    return b"".join(found[8 * row : 8 * row + 8] if mark in span else bytes(8) for row, span in enumerate(spans))


def distinct_spans(arena: Bytes, starts: Numbers, ends: Numbers) -> tuple[bytes, bytes]:
    """Equal spans numbered from 0 in order of appearance: the number of each row, and the first row of each number.

    Both as little-endian u32.
    """
    numbers: dict[bytes, int] = {}
    firsts: list[int] = []
    codes: list[int] = []
    for row, text in enumerate(spans_of(arena, starts, ends)):
        number = numbers.setdefault(text, len(numbers))
        if number == len(firsts):
            firsts.append(row)
        codes.append(number)
    return _packed("I", codes), _packed("I", firsts)


def unique_spans(arena: Bytes, starts: Numbers, ends: Numbers, wanted: Marks) -> tuple[bytes, bytes, bytes]:
    """Returns each distinct text of the wanted spans at its first place: the texts one after the other, the start of
    each and the end of the last (little-endian i64), and the rows (u32).

    wanted: one byte per row, 0 to skip it. Raises ValueError for another number of rows.
    """
    spans = spans_of(arena, starts, ends)
    marks = wanted.tobytes() if isinstance(wanted, np.ndarray) else as_octets(wanted)
    if len(marks) != len(spans):
        raise ValueError(f"{len(spans)} spans and {len(marks)} marks do not go together")
    rows: dict[bytes, int] = {}
    for row, (text, mark) in enumerate(zip(spans, marks, strict=True)):
        if mark:
            rows.setdefault(text, row)
    offsets = [0]
    for text in rows:
        offsets.append(offsets[-1] + len(text))
    return b"".join(rows), _packed("q", offsets), _packed("I", list(rows.values()))


def gather_spans(arena: Bytes, starts: Numbers, ends: Numbers) -> bytes:
    """The spans of an arena one after the other."""
    return b"".join(spans_of(arena, starts, ends))


def texts_of_spans(arena: Bytes, starts: Numbers, ends: Numbers) -> list[str]:
    """Returns the spans of an arena as strings. Raises ValueError for a span that is not UTF-8."""
    try:
        return [text.decode() for text in spans_of(arena, starts, ends)]
    except UnicodeDecodeError:
        raise ValueError("a span holds no whole text in UTF-8") from None


def _sequence(rows: Iterable[object]) -> Iterable[object]:
    if isinstance(rows, str):
        raise TypeError("urls must be a sequence of strings, not one string")
    return rows


def spans_of(arena: Bytes, starts: Numbers, ends: Numbers) -> list[bytes]:
    """Returns the bytes of each span. Raises ValueError naming the row that is outside."""
    octets = as_octets(arena)
    first, behind = _int64s(starts), _int64s(ends)
    if len(first) != len(behind):
        raise ValueError(f"{len(first)} starts and {len(behind)} ends make no spans")
    spans = list(zip(first.tolist(), behind.tolist(), strict=True))
    for row, (start, end) in enumerate(spans):
        if not 0 <= start <= end <= len(octets):
            raise ValueError(f"row {row}: a span from {start} to {end} lies outside {len(octets)} bytes")
    return [bytes(octets[start:end]) for start, end in spans]


def _int64s(numbers: Numbers) -> npt.NDArray[np.int64]:
    if not isinstance(numbers, np.ndarray | memoryview):
        raise TypeError(f"an array of i64 is needed, not a {type(numbers).__name__}")
    found = np.asarray(numbers)
    if found.dtype != np.int64:
        raise BufferError(f"an array of i64 is needed, not one of {found.dtype}")
    return found


def _columns(octets: Sequence[bytes | None], page: str | None, key: Bytes | None) -> Columns:
    base = BasePieces.of(page)
    nothing = hash_messages([], key) if key is not None else b""  # check the key, even without rows
    rows = [_IS_INVALID if row is None else spell_row(row, base) for row in octets]
    offsets = [0]
    for row in rows:
        offsets.append(offsets[-1] + len(row.text))
    fingerprints = host_fingerprints = nothing
    if key is not None:
        starts = [8 if row.flags & HTTPS else 7 for row in rows]
        hosts = [row.text[start : start + row.host_length] for row, start in zip(rows, starts, strict=True)]
        fingerprints = hash_messages([row.text for row in rows], key)
        host_fingerprints = hash_messages(hosts, key)
    return (
        b"".join(row.text for row in rows),
        _packed("q", offsets),
        bytes(row.state for row in rows),
        bytes(row.flags for row in rows),
        _packed("I", [row.host_length for row in rows]),
        _packed("I", [row.path_start for row in rows]),
        fingerprints,
        host_fingerprints,
    )


def _packed(letter: str, numbers: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(numbers)}{letter}", *numbers)
