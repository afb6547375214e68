"""WARC/1.1 files, one gzip member per record, appended after a watermark: an opening cuts the bytes beyond it.

Names: PREFIX-NNNNNN.warc.gz, numbered from 000000. Each file begins with a `warcinfo`; then pairs of `response` and its
`request`. Blocks contain the bytes as received: status line and fields, chunk framing and content coding untouched.
A 304 that confirms an earlier response is a `revisit` in place of the `response`, and so is an answer whose payload is
in the archive already.
Source: ISO 28500:2017, https://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from typing import NamedTuple

import numpy as np
from isal import igzip_lib

from outrider import kernels
from outrider.archive.tail import Tail
from outrider.clock import Instant, rfc3339_exact
from outrider.errors import DamagedStoreError, InvalidUrlError, SettingsError
from outrider.kernels.warc import IDS_BYTES, record_id
from outrider.limits import WARC_GZIP_LEVEL, WARC_MARK_BYTES, WARC_RECORD_BYTES_MAX, WARC_ROLL_BYTES
from outrider.storage.files import File, Files

Watermark = tuple[str, int]  # (file, offset): everything before it is synced and was reported
RandomBytes = Callable[[int], bytes]  # os.urandom, or a seeded one in tests

TOKEN_FIELD = "Outrider-Token"  # noqa: S105 - the lease's number, no secret
PREFERENCES_FIELD = "Outrider-Preferences"
NOT_MODIFIED_PROFILE = "http://netpreserve.org/warc/1.1/revisit/server-not-modified"
SAME_PAYLOAD_PROFILE = "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"
_FORMAT = "http://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/"
_SERIAL = re.compile(r"-([0-9]{6,12})\.warc\.gz\Z", re.ASCII)
_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z", re.ASCII)
_URI = re.compile(r"[\x21-\x7e]+\Z")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_TRUNCATED = frozenset({None, "length", "time", "disconnect", "unspecified"})
_END = b"\r\n\r\n"
_INSTANT_BYTES = 8
_ID_BYTES = IDS_BYTES // 2
_RESPONSE = b"WARC-Type: response"
_PAYLOAD_DIGEST = b"WARC-Payload-Digest:"
_BLOCK_DIGEST = b"WARC-Block-Digest:"
_LENGTH = b"Content-Length:"
_TYPE = b"Content-Type:"
_HEAD_STEP_BYTES = 4_096  # of a record, unpacked at once: most heads are shorter
# Base 32, ten bits at a time: a third of the time of base64.b32encode.
_DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_PAIRS = [first + second for first in _DIGITS for second in _DIGITS]
_SHIFTS = range(150, -1, -10)


class Exchange(NamedTuple):
    """One request and its answer, as bytes. A tuple, because one is made for each page.

    `head` is the status line and the fields with their empty line, `body` the rest. `at` is wall time in
    microseconds. `truncated` is the reason why the body ends early. `token` is that of the lease. `content` is the
    payload with its content codings undone, `payload` the body with its transfer codings undone, each only if it
    differs. `confirms` is set for a 304 that makes a `revisit` record: the mark of the response that it confirms, b""
    if no mark is known. `preferences` is what the site says about uses, as JSON in ASCII.
    """

    url: str
    address: str
    at: Instant
    request_head: bytes
    head: bytes
    body: bytes
    truncated: str | None = None
    token: int | None = None
    content: bytes | None = None
    payload: bytes | None = None
    confirms: bytes | None = None
    preferences: str | None = None


class Records(NamedTuple):
    """The two records of an exchange, each packed into its gzip member, and two digests.

    `payload_digest` is that of the payload, `content_digest` the SHA-1 of the content (20 bytes). `mark` has 24 bytes,
    by which a later `revisit` refers to the response: its instant (u64, little-endian) and its random id. `head` is the
    head of the answer if its payload may be that of another record; b"" if it is empty or incomplete.
    """

    url: str
    at: Instant
    payload_digest: str
    content_digest: bytes
    response: bytes
    request: bytes
    mark: bytes
    head: bytes = b""


@dataclass(frozen=True, slots=True)
class WarcPlace:
    """The place of a record's gzip member: file name, first byte, length in bytes. `payload` is the place of the
    response with the payload, if this record is a `revisit` of the same payload."""

    file: str
    offset: int
    length: int
    payload: WarcPlace | None = None


@dataclass(frozen=True, slots=True)
class WarcRecord:
    """A record read back: its fields by lower-case name, and its block."""

    fields: Mapping[str, str]
    block: bytes


def payload_digest(payload: bytes) -> str:
    """SHA-1 of a payload as WARC tools write it: `sha1:` and 32 characters of base 32.

    The payload of an HTTP response is its content without transfer codings, and with its content codings (WARC 1.1
    section 5.9, RFC 9110 section 6.4).
    """
    return shown_digest(hashlib.sha1(payload, usedforsecurity=False).digest())


@lru_cache(maxsize=1_024)
def shown_digest(digest: bytes) -> str:
    """A SHA-1 of 20 bytes as WARC tools write it."""
    bits = int.from_bytes(digest, "big")
    return "sha1:" + "".join([_PAIRS[bits >> shift & 1_023] for shift in _SHIFTS])


@lru_cache(maxsize=1_024)
def _shown_address(address: str) -> str:
    """Returns an IP address in its usual spelling. Raises ValueError for another text."""
    return str(ip_address(address))


def file_name(prefix: str, serial: int) -> str:
    """The name of the file with this number."""
    return f"{prefix}-{serial:06d}.warc.gz"


def serial_of(prefix: str, name: str) -> int | None:
    """The number in the name of a WARC file with this prefix, None for any other name."""
    match = _SERIAL.search(name)
    if match is None or name[: match.start()] != prefix or name != file_name(prefix, int(match.group(1))):
        return None
    return int(match.group(1))


class WarcWriter:
    """Appends exchanges to the WARC files of one directory.

    `add` writes, `sync` makes durable, and `watermark` is the durable end. The next opening passes the logged
    watermark, and the bytes written after it are cut. A failed write leaves no half record for the next one.
    """

    def __init__(
        self,
        files: Files,
        *,
        prefix: str,
        software: str,
        random_bytes: RandomBytes,
        roll_bytes: int = WARC_ROLL_BYTES,
        roll_age: Instant | None = None,
        info: Mapping[str, str] | None = None,
    ) -> None:
        """For a directory without WARC files of this prefix; `open_at` continues in one that has some.

        `software` and `info` (for example operator, robots, http-header-user-agent) are written into each `warcinfo`.
        `random_bytes` makes record ids: they must not repeat when the directory is opened again. `roll_age`: a record
        that was fetched this time after the first one of a file, or later, begins the next file.
        """
        if not _PREFIX.match(prefix):
            raise SettingsError(
                f"WARC prefix {prefix!r}: letters, digits, dot, dash and underscore can be in a file name"
            )
        self._files = files
        self._prefix = prefix
        self._random_bytes = random_bytes
        self._roll_bytes = roll_bytes
        self._roll_age = roll_age
        self._is_sealed = False
        self._begun_at: Instant | None = None  # the instant of the first record in the file, as far as it is known
        lines = {"software": software, "format": "WARC File Format 1.1", "conformsTo": _FORMAT, **(info or {})}
        self._info = "".join(
            f"{_CONTROLS.sub('?', name)}: {_CONTROLS.sub('?', value)}\r\n" for name, value in lines.items()
        ).encode()
        self._tail: Tail | None = None
        self._name = ""
        self._serial = -1
        self._finished: list[Tail] = []  # full files that are not yet synced
        self._new_names = False
        self._records = 0
        self._bytes = 0

    @classmethod
    def open_at(
        cls,
        files: Files,
        watermark: Watermark | None,
        *,
        prefix: str,
        software: str,
        random_bytes: RandomBytes,
        roll_bytes: int = WARC_ROLL_BYTES,
        roll_age: Instant | None = None,
        info: Mapping[str, str] | None = None,
    ) -> WarcWriter:
        """Cuts the archive back to `watermark` (None: nothing was ever reported) and continues there.

        Files with higher numbers are removed. Raises DamagedStoreError when the file is missing or ends before.
        """
        writer = cls(
            files,
            prefix=prefix,
            software=software,
            random_bytes=random_bytes,
            roll_bytes=roll_bytes,
            roll_age=roll_age,
            info=info,
        )
        writer._cut(watermark)
        return writer

    def __repr__(self) -> str:
        return f"<WarcWriter {self._name or 'no file yet'} at byte {self._length()}>"

    @property
    def watermark(self) -> Watermark | None:
        """Where the last record ends, None before the first; durable after `sync`. After `seal` it is the beginning of
        the next file, which does not exist yet."""
        if self._is_sealed:
            return file_name(self._prefix, self._serial + 1), 0
        return (self._name, self._length()) if self._name else None

    def statistics(self) -> dict[str, int]:
        """Response records written and compressed bytes written since opening, number of the current file."""
        return {"records": self._records, "bytes": self._bytes, "files": self._serial + 1}

    def records(self, exchange: Exchange) -> Records:
        """The records of one exchange; as `records_of`."""
        return self.records_of((exchange,))[0]

    def records_of(self, exchanges: Sequence[Exchange]) -> list[Records]:
        """Returns the response and request record of each exchange as they will be in a file. Any thread may call it.

        An exchange without a head (no answer at all) cannot be recorded. Raises InvalidUrlError, ValueError.
        """
        rows = []
        for one in exchanges:
            assert one.head, "a response record needs a head"
            if not _URI.match(one.url):
                raise InvalidUrlError(f"{_CONTROLS.sub('?', one.url)[:200]!r} cannot stand in a WARC record")
            if one.truncated not in _TRUNCATED:
                raise ValueError(f"truncated = {one.truncated!r} is no value of WARC-Truncated")
            rows.append((one.url, _shown_address(one.address), *one[2:-2]))
        ids = self._random_bytes(IDS_BYTES * len(rows))
        records = []
        for at, (one, made) in enumerate(zip(exchanges, kernels.warc_records(rows, ids), strict=True)):
            shown, digest, response, request = made
            if one.confirms is not None:
                response = _revisit(response, one.url, one.confirms)
            if one.preferences is not None:
                response = _with_field(response, PREFERENCES_FIELD, one.preferences)
            mark = one.at.to_bytes(_INSTANT_BYTES, "little") + ids[IDS_BYTES * at :][:_ID_BYTES]
            may_repeat = one.body and one.truncated is None and one.confirms is None
            head = one.head if may_repeat else b""
            records.append(Records(one.url, one.at, shown, digest, _member(response), _member(request), mark, head))
        return records

    def add(self, given: Exchange | Records) -> WarcPlace:
        """Appends the response and its request; returns the place of the response.

        Raises as `records` does, and StoreFullError, StoreFailedError: then nothing of it is in the archive.
        """
        return self.add_all([self.records(given) if isinstance(given, Exchange) else given])[0]

    def add_all(self, records: Sequence[Records]) -> list[WarcPlace]:
        """Appends many in one write, to one file; returns the places of the responses. Raises as `add` does, and then
        nothing of them is in the archive."""
        if not records:
            return []
        # A file without a byte is one whose first write failed.
        begin = self._tail is None or self._tail.length == 0 or self._tail.length >= self._roll_bytes
        begin = begin or self._is_sealed or self._is_old(records[0].at)
        prelude = self._begin_file(records[0].at) if begin else b""
        assert self._tail is not None
        at = self._tail.length + len(prelude)
        pieces, places = [prelude], []
        for one in records:
            pieces += (one.response, one.request)
            places.append(WarcPlace(self._name, at, len(one.response)))
            at += len(one.response) + len(one.request)
        self._tail.append(b"".join(pieces))
        self._bytes += sum(map(len, pieces))
        self._records += len(records)
        return places

    def _is_old(self, at: Instant) -> bool:
        """Whether the file is older than it may be at this instant."""
        if self._begun_at is None:
            self._begun_at = at
        return self._roll_age is not None and at - self._begun_at >= self._roll_age

    def seal(self) -> bool:
        """Ends the current file: the next record begins another one. Returns whether there was one with records."""
        if self._tail is None or self._tail.length == 0 or self._is_sealed:
            return False
        self._is_sealed = True
        return True

    def sync(self) -> None:
        """Returns when everything added is on the device. Raises StoreFailedError, and StoreFullError before that."""
        while self._finished:
            self._finished[0].sync()
            self._finished.pop(0).close()
        if self._tail is not None:
            self._tail.sync()
        if self._new_names:
            self._files.sync_directory()
            self._new_names = False

    def close(self) -> None:
        """Closes the descriptors; syncs nothing."""
        for tail in (*self._finished, *([self._tail] if self._tail is not None else [])):
            tail.close()
        self._finished.clear()

    # Files

    def _cut(self, watermark: Watermark | None) -> None:
        name, offset = watermark if watermark is not None else ("", 0)
        serial = -1
        if name:
            found = serial_of(self._prefix, name)
            if found is None:
                raise DamagedStoreError(f"the archive's watermark names {name!r}, which is no file of {self._prefix!r}")
            serial = found
            self._open_existing(name, serial, offset)
            serial = self._serial
        numbered = [(serial_of(self._prefix, other), other) for other in self._files.names()]
        later = [other for number, other in numbered if number is not None and number > serial]
        for other in later:
            self._files.remove(other)
        if later:
            self._files.sync_directory()

    def _open_existing(self, name: str, serial: int, offset: int) -> None:
        try:
            file = self._files.open(name)
        except FileNotFoundError:
            if offset == 0:  # a repair, which found no archive, left this number to the next file
                self._serial = serial - 1
                return
            raise DamagedStoreError(
                f"{self._files.describe(name)} is missing; the log says it has {offset} bytes of records"
            ) from None
        size = file.size()
        if size < offset:
            file.close()
            raise DamagedStoreError(f"{self._files.describe(name)} ends at byte {size}; the log says {offset}")
        if size > offset:
            file.truncate(offset)
        self._tail, self._name, self._serial = Tail(file, offset), name, serial

    def _begin_file(self, at: Instant) -> bytes:
        """Opens the next file and returns its first record; a file that is still empty is begun again."""
        if self._tail is None or self._tail.length > 0:
            serial = self._serial + 1
            name = file_name(self._prefix, serial)
            if self._tail is not None:
                self._tail.mend()
            file = self._files.open(name, create=True)
            if self._tail is not None:
                self._finished.append(self._tail)
            self._tail, self._name, self._serial = Tail(file, 0, torn=file.size() > 0, unsynced=True), name, serial
            self._begun_at, self._is_sealed = at, False
            self._new_names = True
        header = (
            "WARC/1.1\r\nWARC-Type: warcinfo\r\n"
            f"WARC-Record-ID: {record_id(self._random_bytes(IDS_BYTES // 2))}\r\nWARC-Date: {rfc3339_exact(at)}\r\n"
            f"WARC-Filename: {self._name}\r\n"
            f"WARC-Block-Digest: {payload_digest(self._info)}\r\n"
            f"Content-Type: application/warc-fields\r\nContent-Length: {len(self._info)}\r\n\r\n"
        )
        return _member(header.encode() + self._info + _END)

    def _length(self) -> int:
        return self._tail.length if self._tail is not None else 0


def _member(record: bytes) -> bytes:
    return igzip_lib.compress(record, WARC_GZIP_LEVEL, igzip_lib.COMP_GZIP)


def _with_field(record: bytes, name: str, value: str) -> bytes:
    """Returns a record with one more field at the end of its head. value: visible ASCII."""
    end = record.index(_END)
    return b"%b\r\n%b: %b%b" % (record[:end], name.encode(), value.encode("ascii"), record[end:])


def _revisit(response: bytes, url: str, mark: bytes) -> bytes:
    """Returns the `revisit` record of a 304, made from its `response` record (WARC 1.1 section 6.7.3).

    mark: of the response that the 304 confirms. For any other length of bytes, the date and the id of that response are
    left out. The payload is that of the earlier response, so the record has no digest of it.
    """
    head, end, block = response.partition(_END)
    fields = [line for line in head.split(b"\r\n") if not line.startswith(_PAYLOAD_DIGEST)]
    fields[fields.index(_RESPONSE)] = b"WARC-Type: revisit"
    more = [f"WARC-Profile: {NOT_MODIFIED_PROFILE}", f"WARC-Refers-To-Target-URI: {url}"]
    if len(mark) == WARC_MARK_BYTES:
        at = int.from_bytes(mark[:_INSTANT_BYTES], "little")
        more += [f"WARC-Refers-To-Date: {rfc3339_exact(at)}", f"WARC-Refers-To: {record_id(mark[_INSTANT_BYTES:])}"]
    place = next(row for row, line in enumerate(fields) if line.startswith(_TYPE))
    fields[place:place] = [line.encode("ascii") for line in more]
    return b"\r\n".join(fields) + end + block


def repeated(records: Records, original: Mapping[str, str]) -> Records | None:
    """Returns records whose response is a `revisit` of an earlier response with the same payload (WARC 1.1 section
    6.7.2). original: the fields of that response. None if it is no such response."""
    same = original.get("warc-type") == "response" and "warc-truncated" not in original
    names = ("warc-target-uri", "warc-date", "warc-record-id")
    url, date, identity = (original.get(name, "") for name in names)
    if not (same and url and date and identity and original.get("warc-payload-digest") == records.payload_digest):
        return None
    inflater, head = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP), b""
    while _END not in head:
        head += inflater.decompress(b"" if head else records.response, _HEAD_STEP_BYTES)
    left_out = (_BLOCK_DIGEST, _LENGTH)
    fields = [line for line in head.partition(_END)[0].split(b"\r\n") if not line.startswith(left_out)]
    fields[fields.index(_RESPONSE)] = b"WARC-Type: revisit"
    more = (
        f"WARC-Profile: {SAME_PAYLOAD_PROFILE}\r\nWARC-Refers-To-Target-URI: {url}\r\nWARC-Refers-To-Date: {date}\r\n"
        f"WARC-Refers-To: {identity}\r\nWARC-Block-Digest: {payload_digest(records.head)}\r\n"
        f"Content-Length: {len(records.head)}"
    )
    response = b"\r\n".join((*fields, more.encode("utf-8"))) + _END + records.head + _END
    mark = mark_of(date, identity) if url == records.url else None
    return records._replace(response=_member(response), mark=mark or records.mark, head=b"")


def mark_of(date: str, identity: str) -> bytes | None:
    """Returns the mark of a response of ours by its date and its id; None for other forms of these."""
    digits = identity.removeprefix("<urn:uuid:").removesuffix(">").replace("-", "")
    try:
        at = np.datetime64(date.removesuffix("Z"), "us").astype(np.int64)
        mark = int(at).to_bytes(_INSTANT_BYTES, "little") + bytes.fromhex(digits)
    except (ValueError, OverflowError):
        return None
    return mark if len(mark) == WARC_MARK_BYTES else None


def read_fields(files: Files, place: WarcPlace) -> Mapping[str, str]:
    """Reads the fields of one record. Raises FileNotFoundError, and DamagedStoreError without a record there."""
    file = files.open(place.file)
    try:
        packed = file.read_at(place.offset, min(place.length, _HEAD_STEP_BYTES))
        inflater, head = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP), b""
        try:
            while _END not in head and (piece := inflater.decompress(b"" if head else packed, _HEAD_STEP_BYTES)):
                head += piece
        except (igzip_lib.IsalError, EOFError):  # type: ignore[misc]  # an instance in the stub
            head = b""
        return _fields_of(head, f"{files.describe(place.file)} at byte {place.offset}")[0]
    finally:
        file.close()


def read_record(files: Files, place: WarcPlace) -> WarcRecord:
    """Reads one record by its place. Raises FileNotFoundError, and DamagedStoreError without a whole record there."""
    file = files.open(place.file)
    try:
        return record_in(file, place, files.describe(place.file))
    finally:
        file.close()


def record_in(file: File, place: WarcPlace, name: str) -> WarcRecord:
    """Reads a record of an open file, which `name` describes. Raises DamagedStoreError without a whole record there."""
    where = f"{name} at byte {place.offset}"
    packed = file.read_at(place.offset, place.length)
    if len(packed) < place.length:
        raise DamagedStoreError(f"{where}: the file ends inside the record")
    inflater = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
    try:
        record = inflater.decompress(packed, WARC_RECORD_BYTES_MAX)
    except igzip_lib.IsalError as error:  # type: ignore[misc]  # an instance in the stub
        raise DamagedStoreError(f"{where}: {error}") from None
    if not inflater.eof or inflater.unused_data:
        raise DamagedStoreError(f"{where}: {place.length} bytes are not one gzip member")
    fields, rest = _fields_of(record, where)
    length = fields.get("content-length", "")
    if not length.isdigit() or rest[int(length) :] != _END:
        raise DamagedStoreError(f"{where}: Content-Length {length!r} is not the length of its block")
    return WarcRecord(fields, rest[: int(length)])


def _fields_of(record: bytes, where: str) -> tuple[dict[str, str], bytes]:
    """Returns the fields of a record by their lower-case names, and the bytes after its head."""
    head, separator, rest = record.partition(_END)
    lines = head.decode("utf-8", "replace").split("\r\n")
    if not separator or not lines[0].startswith("WARC/1."):
        raise DamagedStoreError(f"{where}: no WARC record begins there")
    return {name.lower(): value.strip(" \t") for name, _, value in (line.partition(":") for line in lines[1:])}, rest
