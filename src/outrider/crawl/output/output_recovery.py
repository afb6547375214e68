"""The true ends of a crawl's archive and line files: for a repair, and for an opening, which cuts the files there.

An opening cuts these files at the lengths in the crawl's store. A store that lost the newest facts would cut too much.
So a repair finds the ends of the last whole record and line, and the log lines that are missing in the files. A store
that is missing, older than the files or of another crawl would cut too much as well. So an opening reads the
bytes that it would cut, and refuses if no process of this store can have written them. A process writes a line
only after the log contains it, and a record only under a token that the log contains.
"""

from __future__ import annotations

import errno
import os
import shlex
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import BinaryIO, Final, Protocol

import msgspec

from outrider.archive.projection import tame
from outrider.archive.warc import TOKEN_FIELD, file_name, serial_of
from outrider.crawl.output.output import ARCHIVE_PREFIX, ARCHIVE_WRITER, FILES, Logged, logged_lines, noted_place
from outrider.crawl.setup.directory import ARCHIVE_NAME, FRONTIER_NAME
from outrider.engine import Recovered
from outrider.errors import NamedPathError, UnknownOutputError
from outrider.limits import OUTPUT_LINE_BYTES_MAX
from outrider.storage.files import LOCK_NAME, TEMPORARY_SUFFIX
from outrider.storage.losses import Loss
from outrider.storage.manifest import MANIFEST_NAME

_STEP_BYTES: Final = 1 << 20  # read at once
_HEAD_BYTES: Final = 64 << 10  # the fields of a record, with its URL, end before


def judge_of(path: str) -> Callable[[Recovered], None]:
    """Returns a judge for the opening of the store of the crawl in `path`. If the opening would cut lines that are not
    in the store, the judge raises UnknownOutputError and changes nothing.
    """

    def judge(known: Recovered) -> None:
        place = unknown_place(path, known)
        if place is not None:
            raise _unknown(path, place)

    return judge


class KnownOutput(Logged, Protocol):
    """The output that a store, or the report log of a worker, knows."""

    @property
    def token(self) -> int: ...
    def watermarks(self) -> dict[str, bytes]: ...


def unknown_place(path: str, known: KnownOutput) -> str | None:
    """Returns in words the first unknown line or record in `path` that an opening would cut; None without one."""
    for stream, name in FILES.items():
        at = _unknown_line(os.path.join(path, name), stream, known)
        if at is not None:
            return f"line at byte {at:,} of {os.path.join(path, name)}"
    for name, at in _unknown_records(path, known):
        return f"record at byte {at:,} of {os.path.join(path, ARCHIVE_NAME, name)}"
    return None


def cut_short(path: str, known: KnownOutput) -> Iterator[Loss]:
    """Yields the files of the crawl in `path` that are shorter than its store says. An opening refuses them."""
    for stream, name in FILES.items():
        if known.projection(stream)[0]:
            yield from _cut_short(path, name, known.projection(stream)[0], b"\n")
    place = known.watermarks().get(ARCHIVE_WRITER)
    if place is not None:
        name, offset = unpacked_watermark(place)
        yield from _cut_short(path, os.path.join(ARCHIVE_NAME, name), offset, b"")


def _cut_short(path: str, name: str, length: int, end: bytes) -> Iterator[Loss]:
    file = _opened(os.path.join(path, name))
    if file is None:
        if length:
            yield Loss(name, 0, 0, f"it is missing; the store says {length:,} bytes")
        return
    with file:
        size = os.fstat(file.fileno()).st_size
        if size < length:
            yield Loss(name, size, length, "it is shorter than the store says")
        elif end and os.pread(file.fileno(), len(end), length - len(end)) != end:
            yield Loss(name, 0, 0, f"no line ends at byte {length:,}, where the store says one does")


def refuse_output_alone(path: str) -> None:
    """Raises UnknownOutputError if `path` has a crawl's output and not its store."""
    try:
        names = set(os.listdir(os.path.join(path, FRONTIER_NAME)))
    except OSError:
        names = set()
    if names - {LOCK_NAME, MANIFEST_NAME + TEMPORARY_SUFFIX}:
        return  # a store, whole or not; its opening checks it
    found = first_output(path)
    if found is not None:
        store = os.path.join(path, FRONTIER_NAME)
        raise UnknownOutputError(f"{store} is missing, but its output {found} exists; {_ways_out(path)}")


def first_output(path: str) -> str | None:
    """Returns the first file of a crawl's output in `path` that is not empty; None without one."""
    held = [os.path.join(path, name) for name in FILES.values()]
    held += [os.path.join(path, ARCHIVE_NAME, name) for _, name in archive_files(path)]
    return next((name for name in held if os.path.isfile(name) and os.path.getsize(name)), None)


def _unknown(path: str, place: str) -> UnknownOutputError:
    store = os.path.join(path, FRONTIER_NAME)
    return UnknownOutputError(
        f"the {place} is not from {store}, because that store is older or belongs to another crawl; {_ways_out(path)}"
    )


def _ways_out(path: str) -> str:
    lines = shlex.quote(os.path.join(path, FILES["pages"]))
    return (
        f"restore the {FRONTIER_NAME} that belongs to it, or import its pages into a new crawl: `outrider import NEW "
        f"{lines}`, or put everything into a folder and start again: "
        f"`outrider crawl URL -o {shlex.quote(path)} --anew`"
    )


def _unknown_line(path: str, stream: str, known: KnownOutput) -> int | None:
    """Returns where the first whole line begins that an opening would cut and that is not in the log; None without one.

    A line that is not JSON was torn by a power cut.
    """
    length, lsn = noted_place(known, stream)
    file = _opened(path)
    if file is None:
        return None
    with file:
        if os.fstat(file.fileno()).st_size <= length:
            return None
        logged = {tame(line) for _, line in logged_lines(known, stream, lsn)}
        at = file.seek(length)
        while line := file.readline(OUTPUT_LINE_BYTES_MAX):
            if line.endswith(b"\n") and line[:-1] not in logged and _is_record(line):
                return at
            at += len(line)
    return None


def _opened(path: str) -> BinaryIO | None:
    """Returns an output file, open for reading. None if its path is not a regular file: then nothing can be cut, and
    the opening of the output names the thing in its place. Raises NamedPathError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP, errno.ENXIO):  # nothing, a link, a socket
            return None
        raise NamedPathError(f"{path} cannot be read ({error.strerror}); make it readable") from None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return open(descriptor, "rb")
    os.close(descriptor)
    return None


def _is_record(line: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(line), dict)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False


def _unknown_records(path: str, known: KnownOutput) -> Iterator[tuple[str, int]]:
    """(file, offset) of the whole records that an opening would cut, made under tokens that do not exist."""
    value = known.watermarks().get(ARCHIVE_WRITER)
    name, offset = unpacked_watermark(value) if value is not None else ("", 0)
    serial = serial_of(ARCHIVE_PREFIX, name)
    for number, other in archive_files(path):
        if serial is not None and number < serial:
            continue
        at = offset if number == serial else 0
        file = _opened(os.path.join(path, ARCHIVE_NAME, other))
        if file is None:
            continue
        with file:
            file.seek(at)
            for length, begin in _members(_pieces(file)):
                if not _is_known_record(begin, known.token):
                    yield other, at
                at += length


def _is_known_record(record: bytes, last: int) -> bool:
    """Whether a record, by its beginning, was made under a token up to the last one, or is about its file."""
    fields = {}
    for line in record.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        fields[name.strip().lower()] = value.strip()
    if fields.get(b"warc-type") == b"warcinfo":
        return True
    token = fields.get(TOKEN_FIELD.lower().encode(), b"")
    return token.isdigit() and int(token) <= last


def line_file_end(
    path: str, stream: str, noted: tuple[int, int], lines: Iterable[tuple[int, bytes]], tail_bytes_max: int
) -> tuple[tuple[int, int], Loss | None]:
    """Returns (length, LSN) at which a projection is to be opened, and the loss in it.

    noted: the pair in the store. lines: the lines in the log with their LSNs, in order. tail_bytes_max: the longest
    distance of a line of the log from the end of the file.
    """
    name = FILES[stream]
    try:
        with open(os.path.join(path, name), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            begin = max(0, size - tail_bytes_max)
            file.seek(begin)
            tail = file.read()
    except FileNotFoundError:
        return (0, noted[1]), (
            Loss(name, 0, 0, f"it is missing; the store says {noted[0]:,} bytes") if noted[0] else None
        )
    tail = tail[: tail.rfind(b"\n") + 1]
    if begin and not tail:
        return noted, None
    length, lsn = begin + len(tail), noted[1]
    loss = None
    if length < noted[0]:
        loss = Loss(name, length, noted[0], "it is shorter than the store says")
    here = set(tail.split(b"\n"))
    for number, some in groupby(lines, key=lambda one: one[0]):
        frame = [tame(line) for _, line in some]
        found = [line in here for line in frame]
        if all(found):
            lsn = max(lsn, number)
        elif any(found):
            # The file was cut inside a frame: all of its lines are written again.
            ended = b"".join(line + b"\n" for line in frame[: found.index(False)])
            if tail.endswith(ended):
                length -= len(ended)
    return (length, lsn), loss


def archive_end(path: str, noted: tuple[str, int] | None) -> tuple[tuple[str, int] | None, Loss | None]:
    """Returns (file, offset) after the last whole record of the archive, and the loss in it. For a missing archive it
    is the next file, because lines name places in the lost files."""
    numbered = archive_files(path)
    known = serial_of(ARCHIVE_PREFIX, noted[0]) if noted is not None else None
    for number, name in reversed(numbered):
        place = os.path.join(path, ARCHIVE_NAME, name)
        size = os.path.getsize(place)
        begin = noted[1] if noted is not None and number == known and noted[1] <= size else 0
        end = _whole_members(place, begin)
        if end > 0:
            break
    else:
        if noted is None or known is None or not noted[1]:
            return None, None
        free = max([known, *(number for number, _ in numbered)]) + 1
        what = "it has no whole record" if numbered else "it is missing"
        return (file_name(ARCHIVE_PREFIX, free), 0), Loss(noted[0], 0, noted[1], what)
    if noted is not None and known is not None and (number, end) < (known, noted[1]):
        return (name, end), Loss(noted[0], end if number == known else 0, noted[1], "it is shorter than the store says")
    return (name, end), None


def archive_files(path: str) -> list[tuple[int, str]]:
    """(number, name) of the files of the archive, in order."""
    try:
        names = os.listdir(os.path.join(path, ARCHIVE_NAME))
    except OSError:
        return []
    return sorted((number, name) for name in names if (number := serial_of(ARCHIVE_PREFIX, name)) is not None)


def _whole_members(path: str, begin: int) -> int:
    """Returns the end of the last whole gzip member after `begin`."""
    end = begin
    with open(path, "rb") as file:
        file.seek(begin)
        for length, _ in _members(_pieces(file)):
            end += length
    return end


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    return iter(lambda: file.read(_STEP_BYTES), b"")


def _members(pieces: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yields the length of each whole member, and the beginning of its content."""
    member, length, begin = zlib.decompressobj(wbits=31), 0, b""
    for piece in pieces:
        rest = piece
        while rest:
            given = len(rest)
            try:
                held = member.decompress(rest, _STEP_BYTES)
                begin += held[: _HEAD_BYTES - len(begin)]
                while not member.eof and member.unconsumed_tail:
                    member.decompress(member.unconsumed_tail, _STEP_BYTES)
            except zlib.error:
                return
            if not member.eof:
                length += given
                break
            rest = member.unused_data
            yield length + given - len(rest), begin
            member, length, begin = zlib.decompressobj(wbits=31), 0, b""


def unpacked_watermark(value: bytes) -> tuple[str, int]:
    """Returns the place that a report carried."""
    return msgspec.json.decode(value, type=tuple[str, int])


def packed_watermark(place: tuple[str, int]) -> bytes:
    """Returns the place in the form of the crawl's reports."""
    return msgspec.json.encode(place)
