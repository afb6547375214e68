"""The frames of the log and their checksum: the plain twin of the native kernel.

A frame, little endian throughout:

    | length u32 | crc32c u32 | LSN u64 | last synced LSN u64 | epoch u32 | kind u8 | version u8 | codec u8 | payload |
                              '------------------------- length bytes, covered by the crc -------------------------'

`length` counts everything after the crc field: 23 + the bytes of the payload, never zero. Unused preallocated space
begins with eight zero bytes, so it is not a frame. The checksum is CRC-32C (Castagnoli, RFC 3720 appendix B.4).
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np

FRAME_HEADER_BYTES = 31
"""Bytes before the payload: length, crc and the 23 bytes that `length` counts too."""
FRAME_BYTES_MAX = 256 * 1024 * 1024
"""The largest frame, header included: a length beyond it is damage, not a frame to wait for."""

END, ZEROS, SHORT, BAD, LIMIT = 0, 1, 2, 3, 4
"""Why a scan ended: buffer exhausted, unused space, a frame that runs past the buffer, damage, enough frames."""

Bytes = bytes | bytearray | memoryview
"""A buffer with frames or for a checksum: contiguous, and not written to while a call runs."""
Row = tuple[int, int, int, int, int, int, Bytes]
"""The input of `pack_frames` per frame: (LSN, last synced LSN, epoch, kind, version, codec, payload)."""
Frame = tuple[int, int, int, int, int, int, int, int]
"""The result of `scan_frames` per frame: (payload offset, payload length, LSN, last synced LSN, epoch, kind, version,
codec)."""

_BEFORE_COVERED = 8
_COVERED_BYTES_MIN = FRAME_HEADER_BYTES - _BEFORE_COVERED
_LENGTH_AND_CRC = struct.Struct("<II")
_FIELDS = struct.Struct("<QQIBBB")
_ALL_ONES = 0xFFFF_FFFF
_PREFIX_STEP_BYTES = 512
_CANDIDATES_STEP_BYTES = 1 << 20


@cache
def _tables() -> tuple[list[int], array[int], array[int], array[int], array[int]]:
    """The CRC register after one byte, for each of the 256; after two bytes, and after 2, 4 and 6 further zero bytes,
    for each of the 65,536 pairs. The table is made on first use: where the native kernel runs it is never needed."""
    one = list(range(256))
    for _ in range(8):
        one = [register >> 1 ^ (0x82F63B78 if register & 1 else 0) for register in one]
    two = array("I", (one[one[pair & 0xFF] & 0xFF ^ pair >> 8] ^ one[pair & 0xFF] >> 8 for pair in range(65536)))
    four = array("I", (register >> 16 ^ two[register & 0xFFFF] for register in two))
    six = array("I", (register >> 16 ^ two[register & 0xFFFF] for register in four))
    eight = array("I", (register >> 16 ^ two[register & 0xFFFF] for register in six))
    return one, two, four, six, eight


def _advance(register: int, octets: memoryview) -> int:
    """The CRC register after `octets`, eight a step: slicing (Kounavis and Berry 2005) with tables of pairs."""
    one, two, four, six, eight = _tables()
    whole = len(octets) & ~7
    for word in struct.unpack(f"<{whole // 8}Q", octets[:whole]):
        mixed = word ^ register
        register = eight[mixed & 0xFFFF] ^ six[mixed >> 16 & 0xFFFF] ^ four[mixed >> 32 & 0xFFFF] ^ two[mixed >> 48]
    for octet in octets[whole:]:
        register = one[(register ^ octet) & 0xFF] ^ register >> 8
    return register


def as_octets(buffer: Bytes) -> memoryview:
    """Its bytes; TypeError or BufferError when it is not a contiguous buffer."""
    view = memoryview(buffer)
    if not view.c_contiguous:
        raise BufferError("the buffer must be contiguous")
    return view.cast("B")


def crc32c(data: Bytes, seed: int = 0) -> int:
    """Returns the CRC-32C of `data`; `seed` is the CRC of the preceding bytes, so that pieces add up.

    Raises ValueError when the seed is not a u32.
    """
    if not 0 <= seed <= _ALL_ONES:
        raise ValueError(f"a crc32c seed is a u32, not {seed}")
    return _advance(seed ^ _ALL_ONES, as_octets(data)) ^ _ALL_ONES


def pack_frames(rows: Sequence[Row]) -> bytes:
    """The frames of `rows`, one after the other.

    Raises ValueError, naming the row, when a number does not fit its field or a frame would exceed FRAME_BYTES_MAX.
    """
    pieces: list[bytes | memoryview] = []
    for number, (lsn, synced, epoch, kind, version, codec, payload) in enumerate(rows):
        try:
            fields = _FIELDS.pack(lsn, synced, epoch, kind, version, codec)
        except struct.error:
            raise ValueError(f"row {number}: a number does not fit its field of the frame") from None
        octets = as_octets(payload)
        if FRAME_HEADER_BYTES + len(octets) > FRAME_BYTES_MAX:
            raise ValueError(f"row {number}: a payload of {len(octets)} bytes exceeds the largest frame")
        crc = crc32c(octets, crc32c(fields))
        pieces += (_LENGTH_AND_CRC.pack(_FIELDS.size + len(octets), crc), fields, octets)
    return b"".join(pieces)


def scan_frames(buffer: Bytes, start: int = 0, limit: int | None = None) -> tuple[list[Frame], int, int]:
    """Returns the whole frames from `start` on, the offset where the scan ended, and the reason.

    The reason is END (the buffer is exhausted exactly), ZEROS (eight zero bytes, or fewer up to the buffer's end),
    SHORT (a frame exceeds the buffer), BAD (an impossible length, or a wrong crc) or LIMIT (`limit` frames were found
    and bytes are left). Offsets count from the buffer's first byte. Raises ValueError when `start` is outside the
    buffer or `limit` is negative.
    """
    octets = as_octets(buffer)
    _check_start(start, len(octets))
    if limit is not None and limit < 0:
        raise ValueError(f"a limit of frames is not negative, as {limit} is")
    frames: list[Frame] = []
    at = start
    while at < len(octets):
        if len(frames) == limit:
            return frames, at, LIMIT
        if not any(octets[at : at + _BEFORE_COVERED]):
            return frames, at, ZEROS
        if at + _BEFORE_COVERED > len(octets):
            return frames, at, SHORT
        length, crc = _LENGTH_AND_CRC.unpack_from(octets, at)
        if not _COVERED_BYTES_MIN <= length <= FRAME_BYTES_MAX - _BEFORE_COVERED:
            return frames, at, BAD
        end = at + _BEFORE_COVERED + length
        if end > len(octets):
            return frames, at, SHORT
        if crc != crc32c(octets[at + _BEFORE_COVERED : end]):
            return frames, at, BAD
        fields = _FIELDS.unpack_from(octets, at + _BEFORE_COVERED)
        frames.append((at + FRAME_HEADER_BYTES, length - _COVERED_BYTES_MIN, *fields))
        at = end
    return frames, at, END


def find_frame(buffer: Bytes, start: int = 0) -> int:
    """Returns the offset of the first whole frame at or after `start`, at any alignment, or -1.

    The work is linear in the buffer, and each possible length costs a bounded number of steps, because its crc is
    derived from those of two prefixes. Raises ValueError when `start` is outside the buffer.
    """
    octets = as_octets(buffer)
    _check_start(start, len(octets))
    prefixes = _Prefixes(octets, start)
    for at in _candidates(octets, start):
        length, crc = _LENGTH_AND_CRC.unpack_from(octets, at)
        covered = at + _BEFORE_COVERED
        if crc == prefixes.crc(covered, covered + length):
            return at
    return -1


def _check_start(start: int, size: int) -> None:
    if not 0 <= start <= size:
        raise ValueError(f"a start of {start} lies outside a buffer of {size} bytes")


def _candidates(octets: memoryview, start: int) -> Iterator[int]:
    """Yields the offsets from `start` on of possible lengths whose frame would end inside the buffer."""
    last = len(octets) - FRAME_HEADER_BYTES
    whole = np.frombuffer(octets, dtype=np.uint8)
    for first in range(start, last + 1, _CANDIDATES_STEP_BYTES):
        offsets = np.arange(first, min(first + _CANDIDATES_STEP_BYTES, last + 1))
        lengths = np.zeros(len(offsets), dtype=np.int64)
        for place in range(4):
            lengths |= whole[first + place : first + place + len(offsets)].astype(np.int64) << 8 * place
        possible = (lengths >= _COVERED_BYTES_MIN) & (lengths <= FRAME_BYTES_MAX - _BEFORE_COVERED)
        possible &= offsets + _BEFORE_COVERED + lengths <= len(octets)
        yield from offsets[possible].tolist()


class _Prefixes:
    """The CRCs of any piece of a buffer, each from the registers at its two ends.

    The register is linear: after bytes a..b it is (register at b) xor (the difference at a, shifted by b - a zero
    bytes). A shift by 2^k zero bytes is a matrix of bits.
    """

    def __init__(self, octets: memoryview, start: int) -> None:
        self._octets = octets
        self._start = start
        self._registers = [0]
        one = _tables()[0]
        self._moves = [[one[bit & 0xFF] ^ bit >> 8 for bit in (1 << place for place in range(32))]]

    def crc(self, begin: int, end: int) -> int:
        different = self._register(begin) ^ _ALL_ONES
        return self._register(end) ^ self._moved(different, end - begin) ^ _ALL_ONES

    def _register(self, at: int) -> int:
        step = (at - self._start) // _PREFIX_STEP_BYTES
        while len(self._registers) <= step:
            first = self._start + (len(self._registers) - 1) * _PREFIX_STEP_BYTES
            piece = self._octets[first : first + _PREFIX_STEP_BYTES]
            self._registers.append(_advance(self._registers[-1], piece))
        return _advance(self._registers[step], self._octets[self._start + step * _PREFIX_STEP_BYTES : at])

    def _moved(self, register: int, zero_bytes: int) -> int:
        power = 0
        while zero_bytes >> power:
            if power == len(self._moves):
                self._moves.append([_times(self._moves[-1], column) for column in self._moves[-1]])
            if zero_bytes >> power & 1:
                register = _times(self._moves[power], register)
            power += 1
        return register


def _times(matrix: list[int], register: int) -> int:
    """The register multiplied by a matrix of bits, given by its 32 columns."""
    product = 0
    while register:
        lowest = register & -register
        product ^= matrix[lowest.bit_length() - 1]
        register ^= lowest
    return product
