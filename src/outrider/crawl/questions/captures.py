"""Captures of pages in files of web archives (WARC, ARC, CDXJ, WACZ), as records of URLs for a frontier.

A file of any program is read in bounded memory, and nothing of a WACZ is unpacked to the disk. Whatever cannot be read
is a `Fault` with its place; captures before it and after it count as far as they can be found.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import struct
import zipfile
import zlib
from base64 import b32decode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, BinaryIO, Final

import msgspec

from outrider.archive.warc import mark_of
from outrider.archive.warc_reader import Damage, ReadRecord, read_records
from outrider.clock import Instant
from outrider.crawl.output.tabular import read_lines
from outrider.errors import InvalidUrlError, NamedPathError
from outrider.fetch.codings import codings_of, unchunk
from outrider.fetch.downloader import Headers, is_validator
from outrider.fetch.meaning import NOT_MODIFIED, REDIRECTS, meaning_of
from outrider.fetch.response_bytes import uncoded
from outrider.journey import Link
from outrider.limits import (
    BODY_BYTES_MAX,
    IMPORT_BLOCK_BYTES_MAX,
    IMPORT_LINE_BYTES_MAX,
    INSTANT_MAX,
    LINE_FIELD_CHARACTERS_MAX,
    LINKS_PER_PAGE_MAX,
    URL_BYTES_MAX,
    WACZ_FILES_BYTES_MAX,
    WACZ_UNPACKED_TIMES_MAX,
)
from outrider.page import read
from outrider.url import as_received, join, normalize

RECORD_FILES: Final = (".warc.gz", ".warc", ".arc.gz", ".arc")
INDEX_FILE: Final = ".cdxj"
PACKAGE: Final = ".wacz"
ARCHIVES: Final = (*RECORD_FILES, INDEX_FILE, PACKAGE)
DEPTH: Final = 1
"""The depth of captured pages. Files do not have it, and a page of depth 0 would be a seed, which widens the scope."""
_KINDS: Final = frozenset({"response", "revisit", "resource"})
_REVISIT: Final = "revisit"
_REVISIT_TYPE: Final = "warc/revisit"
_WEB: Final = re.compile(r"<?\s*https?:", re.IGNORECASE).match
_STATUS_LINE: Final = re.compile(rb"HTTP/[0-9.]+[ \t]+([0-9]{3})(?![0-9])").match
_HEAD_END: Final = re.compile(rb"\r?\n\r?\n").search
_DATE: Final = re.compile(
    r"([0-9]{4})(?:-?([0-9]{2})(?:-?([0-9]{2})(?:T?([0-9]{2}):?([0-9]{2})(?::?([0-9]{2})(?:\.([0-9]{1,9}))?)?Z?)?)?)?"
).fullmatch
_DIGEST: Final = re.compile(r"(?:sha-?1:)?([A-Z2-7]{32}|[0-9a-fA-F]{40})", re.IGNORECASE).fullmatch
_HEX_DIGITS: Final = 40
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# The errors of `zipfile` for a package that it cannot unpack. It raises NotImplementedError for a compression method
# that it does not support, and RuntimeError for an encrypted file.
_NOT_UNPACKED: Final = (zipfile.BadZipFile, zlib.error, EOFError, struct.error, NotImplementedError, RuntimeError)
_ZIP_END: Final = struct.Struct("<4s4H2IH")  # of the list of files: section 4.3.16 of the ZIP specification
_ZIP_TAIL_BYTES: Final = _ZIP_END.size + 0xFFFF
_ZIP64_PLACE: Final = struct.Struct("<4sIQI")
_ZIP64_END: Final = struct.Struct("<4sQ2H2I4Q")


class Capture(msgspec.Struct, array_like=True):
    """One capture of a URL. state: "" if the answer says to try again. digest: of the content, hexadecimal.
    payload: the digest of the payload, as the file has it. is_revisit: the content is that of an earlier capture."""

    url: str
    at: Instant
    state: str
    status: int | None = None
    digest: str | None = None
    payload: str | None = None
    etag: str | None = None
    last_modified: str | None = None
    warc_record: str | None = None
    is_revisit: bool = False


class Fault(msgspec.Struct):
    """A place of a file that cannot be used, and why. is_damage: the file is damaged there."""

    place: str
    why: str
    is_damage: bool = False


class RecordSource(msgspec.Struct):
    """A stream of records in a file, and its name in a WACZ."""

    stream: Any
    name: str = ""

    def place(self, offset: int) -> str:
        """Returns a place in words."""
        where = f"byte {offset:,}"
        return f"{self.name} at {where}" if self.name else where


def form_of_archive(path: str) -> str | None:
    """Returns the form of a file of web archives by the end of its name; None for another one."""
    return next((ending for ending in ARCHIVES if path.lower().endswith(ending)), None)


def captures_of(path: str) -> Iterator[Capture | Fault]:
    """Yields the captures of a file in order. Raises NamedPathError for a file that cannot be read at all."""
    try:
        if form_of_archive(path) == INDEX_FILE:
            with open(path, "rb") as file:
                yield from _of_index(file)
            return
        for record in records_of(path):
            if isinstance(record, Fault):
                yield record
            else:
                found = _of_record(*record)
                if found is not None:
                    yield found
    except OSError as error:
        raise NamedPathError(f"{path!r} cannot be read ({error.strerror or error})") from None


def records_of(path: str) -> Iterator[tuple[RecordSource, ReadRecord] | Fault]:
    """Yields the records of a WARC, an ARC or a WACZ. Raises NamedPathError, OSError."""
    with open(path, "rb") as file:
        if form_of_archive(path) != PACKAGE:
            yield from _read(RecordSource(file))
            return
        for name, package in _records_in_package(file, path):
            try:
                with package.open(name) as stream:
                    yield from _read(RecordSource(stream, name))
            except _NOT_UNPACKED as error:
                yield Fault(name, f"it cannot be unpacked ({error})", is_damage=True)


def _read(source: RecordSource) -> Iterator[tuple[RecordSource, ReadRecord] | Fault]:
    for read_one in read_records(source.stream, IMPORT_BLOCK_BYTES_MAX):
        if isinstance(read_one, Damage):
            yield Fault(source.place(read_one.offset), read_one.why, is_damage=True)
        else:
            yield source, read_one


def _records_in_package(file: BinaryIO, path: str) -> Iterator[tuple[str, zipfile.ZipFile]]:
    """Yields the names of the files with records in a WACZ. Nothing is written, so names with `..` do no harm. Raises
    NamedPathError for a ZIP that is damaged, or made to fill memory."""
    listed = _list_bytes(file)
    if listed is None:
        raise NamedPathError(f"{path!r} is not a WACZ: it has no list of files as a ZIP has; it may be cut off")
    if listed > WACZ_FILES_BYTES_MAX:
        raise NamedPathError(
            f"{path!r}: its list of files has {listed:,} bytes; a WACZ may have {WACZ_FILES_BYTES_MAX:,}"
        )
    file.seek(0, 2)
    size = file.tell()
    try:
        package = zipfile.ZipFile(file)
    except (*_NOT_UNPACKED, ValueError) as error:
        raise NamedPathError(f"{path!r} is not a WACZ ({error})") from None
    with package:
        infos = [one for one in package.infolist() if form_of_archive(one.filename) in RECORD_FILES]
        unpacked = sum(one.file_size for one in infos)
        if unpacked > WACZ_UNPACKED_TIMES_MAX * size:
            raise NamedPathError(
                f"{path!r} unpacks to {unpacked:,} bytes, more than {WACZ_UNPACKED_TIMES_MAX} times its size; import "
                "its WARC files instead"
            )
        if not infos:
            raise NamedPathError(f"{path!r} has no WARC file; a WACZ has some in its folder `archive`")
        for one in infos:
            yield one.filename, package


def _list_bytes(file: BinaryIO) -> int | None:
    """Returns the length of the list of files in a ZIP; None without one."""
    file.seek(0, 2)
    size = file.tell()
    begin = max(0, size - _ZIP_TAIL_BYTES - _ZIP64_PLACE.size)
    file.seek(begin)
    tail = file.read(_ZIP_TAIL_BYTES + _ZIP64_PLACE.size)
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < _ZIP_END.size:
        return None
    length = int(_ZIP_END.unpack_from(tail, at)[5])
    if length == 0xFFFF_FFFF and at >= _ZIP64_PLACE.size:
        magic, _, place, _ = _ZIP64_PLACE.unpack_from(tail, at - _ZIP64_PLACE.size)
        file.seek(min(place, size))
        large = file.read(_ZIP64_END.size)
        if magic == b"PK\x06\x07" and len(large) == _ZIP64_END.size:
            length = int(_ZIP64_END.unpack(large)[8])
    return length


# -- one capture -------------------------------------------------------------------------------------------------------


def rules_of(path: str) -> Iterator[bytes]:
    """Yields the contents of the robots.txt files in a file of web archives, as far as it can be read."""
    with contextlib.suppress(OSError):
        for found in records_of(path):
            if isinstance(found, Fault) or found[1].kind != "response":
                continue
            record = found[1]
            if record.fields.get("warc-target-uri", "").rstrip(">").endswith("/robots.txt"):
                _, headers, body = _parted(record)
                yield _content(headers, body)


def _of_record(source: RecordSource, record: ReadRecord) -> Capture | Fault | None:
    """Returns the capture of a record; None for one that is not about a page of the web."""
    uri = record.fields.get("warc-target-uri", "")
    if record.kind not in _KINDS or (uri and not _WEB(uri)):
        return None
    try:
        url, at = _url(uri), _instant(record.fields.get("warc-date", ""))
        return _answer(record, url, at)
    except ValueError as error:
        facts = error.facts if isinstance(error, InvalidUrlError) else str(error)
        return Fault(source.place(record.offset), facts)


def _answer(record: ReadRecord, url: str, at: Instant) -> Capture:
    """Returns the capture of a record about a page. Raises ValueError for one without an answer."""
    shown = record.fields.get("warc-payload-digest")
    if record.kind == "resource":
        return Capture(url, at, "done", digest=_content_digest(record, record.block, shown), payload=shown)
    status, headers, body = _parted(record)
    if status is None and record.kind == _REVISIT:
        return Capture(url, at, "done", digest=_hex(shown), payload=shown, is_revisit=True)
    if status is None:
        raise ValueError(f"a response without an HTTP head: {record.block[:40].decode('latin-1')!r}")
    capture = Capture(url, at, _state(status, headers, url), status, payload=shown)
    if record.kind == _REVISIT:
        capture.is_revisit, capture.digest = True, _hex(shown)
    elif 200 <= status < 300:
        capture.digest = _content_digest(record, _content(headers, body), shown)
    if 200 <= status < 300:
        capture.etag, capture.last_modified = (_validator(headers.get(name)) for name in ("etag", "last-modified"))
    if record.kind == "response" and (capture.etag or capture.last_modified):
        mark = mark_of(record.fields.get("warc-date", ""), record.fields.get("warc-record-id", ""))
        capture.warc_record = mark.hex() if mark is not None else None
    return capture


def _parted(record: ReadRecord) -> tuple[int | None, Headers, bytes]:
    """Returns the status, the fields and the body of an HTTP answer. None for the status: the block has no answer."""
    end = _HEAD_END(record.block)
    head = record.block[: end.start()] if end is not None else record.block
    status = _STATUS_LINE(head)
    return (
        int(status[1]) if status is not None else None,
        Headers.parse(head),
        record.block[end.end() :] if end is not None else b"",
    )


def _content(headers: Headers, body: bytes) -> bytes:
    """Returns a body without its codings. Some programs store it without chunks, and the head as it was."""
    if "chunked" in codings_of(headers.get_all("transfer-encoding")):
        unchunked = unchunk(body)
        body = unchunked.content if unchunked.content or unchunked.complete else body
    return uncoded(headers, body, BODY_BYTES_MAX)[0]


def _content_digest(record: ReadRecord, content: bytes, shown: str | None) -> str | None:
    """Returns the SHA-1 of the content; of a block that is not in memory as a whole, that of the payload."""
    if record.block_bytes > len(record.block):
        return _hex(shown)
    return hashlib.sha1(content, usedforsecurity=False).hexdigest() if content else None


def _state(status: int, headers: Headers, url: str) -> str:
    moved = status in REDIRECTS and _target(headers, url) is not None
    found = meaning_of(status, None, moved=moved, validated=True)
    return "" if not found.word.final else "gone" if found.word.failed else "done"


def _target(headers: Headers, url: str) -> str | None:
    """Returns the URL that a redirect names."""
    written = headers.get("location")
    try:
        return None if written is None else join(url, as_received(written))
    except InvalidUrlError:
        return None


def _url(text: str) -> str:
    """Returns the canonical URL of a record. Raises InvalidUrlError, ValueError."""
    if not text:
        raise ValueError("a record without WARC-Target-URI")
    url = normalize(text.strip().removeprefix("<").removesuffix(">"))
    if len(url) > URL_BYTES_MAX:
        raise ValueError(f"its URL has {len(url):,} bytes; a URL may have {URL_BYTES_MAX:,} at most")
    return url


def _instant(text: str) -> Instant:
    """Returns the instant of a date in a record or an index. Raises ValueError."""
    found = _DATE(text)
    try:
        if found is None:
            raise ValueError
        year, month, day, hour, minute, second = (
            int(part or low) for part, low in zip(found.groups()[:6], _LEAST, strict=True)
        )
        at = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=UTC)
        micro = int((found[7] or "").ljust(6, "0")[:6])
        instant = (at - _EPOCH) // timedelta(microseconds=1) + micro
    except ValueError:
        raise ValueError(f"{text[:60]!r} is not the time of a record") from None
    if not 0 <= instant <= INSTANT_MAX:
        raise ValueError(f"{text[:60]!r} is before 1970")
    return instant


_LEAST: Final = (0, 1, 1, 0, 0, 0)


def _hex(digest: object) -> str | None:
    """Returns a SHA-1 of an archive in hex digits; None for another text."""
    found = _DIGEST(digest) if isinstance(digest, str) else None
    if found is None:
        return None
    text = found[1]
    return text.lower() if len(text) == _HEX_DIGITS else b32decode(text.upper()).hex()


def _validator(text: str | None) -> str | None:
    if text is None or not text or len(text) > LINE_FIELD_CHARACTERS_MAX or not is_validator(text):
        return None
    return text


# -- an index ----------------------------------------------------------------------------------------------------------


class _IndexFields(msgspec.Struct):
    url: str = ""
    status: str | int | None = None
    mime: str | None = None
    digest: str | None = None
    method: str | None = None


def _of_index(file: BinaryIO) -> Iterator[Capture | Fault]:
    """Yields the captures of a CDXJ. A line without JSON is a fault, also one of an older form of index."""
    decode = msgspec.json.Decoder(_IndexFields).decode
    for number, line in read_lines(file):
        place = f"line {number:,}"
        if line is None:
            yield Fault(place, f"it is longer than {IMPORT_LINE_BYTES_MAX:,} bytes")
            continue
        head, brace, rest = line.strip().partition(b"{")
        if not head or head.startswith((b"!", b"#")):
            continue
        try:
            found = _of_entry(head.decode("utf-8", "replace").split(), decode(brace + rest))
        except InvalidUrlError as error:
            yield Fault(place, error.facts)
        except (ValueError, RecursionError) as error:
            yield Fault(place, f"not a line of CDXJ ({error})")
        else:
            if found is not None:
                yield found


def _of_entry(words: list[str], fields: _IndexFields) -> Capture | None:
    """Returns the capture of a line; None for one that is not about a page of the web. Raises ValueError."""
    if len(words) < 2:
        raise ValueError("it has no time")
    if (fields.url and not _WEB(fields.url)) or fields.method not in (None, "GET"):
        return None
    url, at = _url(fields.url), _instant(words[1])
    is_revisit = fields.mime == _REVISIT_TYPE
    digest, text = _hex(fields.digest), str(fields.status or "")
    if not (text.isascii() and text.isdigit() and len(text) == 3):
        return Capture(url, at, "done", digest=digest, payload=fields.digest, is_revisit=is_revisit)
    status = int(text)
    found = meaning_of(status, None, moved=True, validated=True)
    state = "" if not found.word.final else "gone" if found.word.failed else "done"
    has_content = 200 <= status < 300
    return Capture(
        url, at, state, status, digest if has_content else None, fields.digest, is_revisit=is_revisit and has_content
    )


# -- many captures of a URL, and their links ---------------------------------------------------------------------------


def record_of_captures(captures: list[Capture]) -> dict[str, Any]:
    """Returns the record of a URL by its captures in the order of time. The last answer counts that does not say to try
    again; a 304 and a revisit confirm the content before it."""
    finals = [one for one in captures if one.state]
    url = captures[0].url
    if not finals:
        return {"url": url, "depth": DEPTH, "state": "queued"}
    last = finals[-1]
    record: dict[str, Any] = {"url": url, "depth": DEPTH, "state": last.state, "fetched_at": last.at}
    record |= {"status": last.status, "visits": sum(one.status is not None for one in captures)}
    if last.state == "gone":
        return record | {"reason": "status"}
    known: dict[str, Any] = {}
    payload: str | None = None
    for one in finals:
        if one.status == NOT_MODIFIED:
            continue
        found = {"digest": one.digest, "etag": one.etag, "last_modified": one.last_modified}
        found["warc_record"] = one.warc_record
        if one.is_revisit and known and one.payload == payload:
            # The digest of the payload is not that of the content, if it is compressed.
            found |= {"digest": known["digest"], "warc_record": known["warc_record"]}
        known, payload = found, one.payload
    return record | known


def links_of_record(record: ReadRecord) -> list[Link] | None:
    """Returns the links of a captured page, or the target of a redirect; None for a record without an answer that
    can have some."""
    uri = record.fields.get("warc-target-uri", "")
    if record.kind != "response" or not _WEB(uri):
        return None
    try:
        url = _url(uri)
    except ValueError:
        return None
    status, headers, body = _parted(record)
    if status in REDIRECTS:
        target = _target(headers, url)
        return [Link(target, depth=DEPTH, hops=1, referrer=url)] if target is not None else []
    if status is None or not 200 <= status < 300:
        return []
    page = read(_content(headers, body), url, headers.joined("content-type"))
    page = page.with_header(headers.get_all("link"), headers.get("refresh"))
    return [Link(link, depth=DEPTH + 1, referrer=url) for link in page.followed()[:LINKS_PER_PAGE_MAX]]
