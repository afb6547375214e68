"""Where a crawl's archive and line files really end, for a repair: what they hold is kept though the store forgot it.

On opening, a crawl cuts these files to what its store says. A store that lost the newest facts would cut too much: so a
repair tells it where the last whole record and the last whole line end, and which log lines are not in the files yet.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final

import msgspec

from outrider.archive.projection import tame
from outrider.archive.warc import serial_of
from outrider.crawl.directory import ARCHIVE_NAME
from outrider.crawl.output import ARCHIVE_PREFIX, FILES
from outrider.storage.losses import Loss

_STEP_BYTES: Final = 1 << 20  # read at once


def line_file_end(
    path: str, stream: str, noted: tuple[int, int], lines: Iterable[tuple[int, bytes]], tail_bytes_max: int
) -> tuple[tuple[int, int], Loss | None]:
    """(length, LSN) that a projection is to be opened at, and what is missing of it.

    noted: what the store says. lines: those that the log holds, with their LSNs, in order. tail_bytes_max: how far
    before its end a line of the log may stand in the file.
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
            Loss(name, 0, 0, f"it is not there; the store says {noted[0]:,} bytes") if noted[0] else None
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
            # The file was cut inside a frame: its lines come again, all of them.
            ended = b"".join(line + b"\n" for line in frame[: found.index(False)])
            if tail.endswith(ended):
                length -= len(ended)
    return (length, lsn), loss


def archive_end(path: str, noted: tuple[str, int] | None) -> tuple[tuple[str, int] | None, Loss | None]:
    """(file, offset) behind the last whole record of the archive, and what is missing of it."""
    folder = os.path.join(path, ARCHIVE_NAME)
    try:
        names = os.listdir(folder)
    except OSError:
        names = []
    numbered = sorted((number, name) for name in names if (number := serial_of(ARCHIVE_PREFIX, name)) is not None)
    known = serial_of(ARCHIVE_PREFIX, noted[0]) if noted is not None else None
    if not numbered:
        return None, (Loss(noted[0], 0, noted[1], "it is not there") if noted is not None else None)
    for number, name in reversed(numbered):
        place = os.path.join(folder, name)
        size = os.path.getsize(place)
        begin = noted[1] if noted is not None and number == known and noted[1] <= size else 0
        end = _whole_members(place, begin)
        if end > 0:
            break
    else:
        return None, None
    if noted is not None and known is not None and (number, end) < (known, noted[1]):
        return (name, end), Loss(noted[0], end if number == known else 0, noted[1], "it is shorter than the store says")
    return (name, end), None


def _whole_members(path: str, begin: int) -> int:
    """Where the last whole gzip member behind `begin` ends."""
    end = begin
    with open(path, "rb") as file:
        file.seek(begin)
        for length in _members(iter(lambda: file.read(_STEP_BYTES), b"")):
            end += length
    return end


def _members(pieces: Iterator[bytes]) -> Iterator[int]:
    """The length of each whole member."""
    member, length = zlib.decompressobj(wbits=31), 0
    for piece in pieces:
        rest = piece
        while rest:
            given = len(rest)
            try:
                member.decompress(rest, _STEP_BYTES)
                while not member.eof and member.unconsumed_tail:
                    member.decompress(member.unconsumed_tail, _STEP_BYTES)
            except zlib.error:
                return
            if not member.eof:
                length += given
                break
            rest = member.unused_data
            yield length + given - len(rest)
            member, length = zlib.decompressobj(wbits=31), 0


def packed_watermark(place: tuple[str, int]) -> bytes:
    """As the crawl's reports carry it."""
    return msgspec.json.encode(place)
