"""Sorted keys (a slot and a fingerprint of 56 bits) in pages of 4,096 bytes, as differences of one width. The plain
twin.

docs/formats/seen.md draws a page. The first 24 bytes of a page contain its checksum and its number, so a damaged page,
or one that is read from the wrong place, is noticed.
"""

from __future__ import annotations

import struct
from itertools import pairwise

from outrider.kernels.columns import Column, column
from outrider.kernels.fingerprint_set import columns_of, keys_of
from outrider.kernels.framing import crc32c

PAGE_BYTES = 4_096
_HEAD = struct.Struct("<IIHBxHQxx")
_BITS = 8 * (PAGE_BYTES - _HEAD.size)
_FINGERPRINT = (1 << 56) - 1
_WIDTH_MAX = 68

Keys = tuple[bytes, bytes]
"""Slots (u16) and fingerprints (u64)."""


def sort_keys(slots: Column, fingerprints: Column) -> Keys:
    """Returns the keys in ascending order, each once."""
    return columns_of(sorted(set(keys_of(slots, fingerprints))))


def pack_keys(slots: Column, fingerprints: Column, first: int, whole: bool) -> tuple[bytes, int]:
    """Returns pages of ascending keys, numbered from `first`, and how many keys they contain: all, or with `whole`
    False only those of pages that are full. Raises ValueError for keys that do not ascend."""
    keys = _ascending(slots, fingerprints)
    pages: list[bytes] = []
    at = 0
    while at < len(keys):
        width, end = 1, at + 1
        while end < len(keys):
            wider = max(width, (keys[end] - keys[end - 1]).bit_length())
            if (end - at) * wider > _BITS:
                break
            width, end = wider, end + 1
        if end == len(keys) and not whole:
            break
        pages.append(_page(keys[at:end], width, first + len(pages)))
        at = end
    return b"".join(pages), at


def _page(keys: list[int], width: int, number: int) -> bytes:
    packed = 0
    for place, (before, key) in enumerate(pairwise(keys)):
        packed |= (key - before) << (place * width)
    head = _HEAD.pack(0, number & 0xFFFF_FFFF, len(keys), width, keys[0] >> 56, keys[0] & _FINGERPRINT)
    rest = head[4:] + packed.to_bytes(PAGE_BYTES - _HEAD.size, "little")
    return crc32c(rest).to_bytes(4, "little") + rest


def unpack_keys(pages: bytes, numbers: Column) -> Keys:
    """Returns the keys of pages with these numbers (u32). Raises ValueError naming the place of the first page that is
    damaged or has another number."""
    return columns_of([key for page in _unpacked(pages, numbers) for key in page])


def find_keys(pages: bytes, numbers: Column, slots: Column, fingerprints: Column) -> bytes:
    """Returns 1 for each of these ascending keys that is in one of these pages, which ascend too, otherwise 0. Raises
    ValueError as `unpack_keys`, and for keys that do not ascend."""
    there = {key for page in _unpacked(pages, numbers) for key in page}
    return bytes(key in there for key in _ascending(slots, fingerprints))


def _unpacked(pages: bytes, numbers: Column) -> list[list[int]]:
    wanted = column(numbers, "<u4", "numbers").tolist()
    if len(pages) != len(wanted) * PAGE_BYTES:
        raise ValueError(f"{len(pages)} bytes are not {len(wanted)} pages")
    return [_keys_of_page(bytes(pages[at * PAGE_BYTES :][:PAGE_BYTES]), number, at) for at, number in enumerate(wanted)]


def _keys_of_page(page: bytes, number: int, place: int) -> list[int]:
    crc, here, count, width, slot, fingerprint = _HEAD.unpack_from(page)
    sound = crc == crc32c(page[4:]) and here == number and count > 0 and 1 <= width <= _WIDTH_MAX
    if not sound or (count - 1) * width > _BITS:
        raise ValueError(f"page {place} is damaged")
    packed = int.from_bytes(page[_HEAD.size :], "little")
    keys = [slot << 56 | fingerprint & _FINGERPRINT]
    for _ in range(count - 1):
        keys.append(keys[-1] + (packed & (1 << width) - 1))
        packed >>= width
    return keys


def _ascending(slots: Column, fingerprints: Column) -> list[int]:
    keys = keys_of(slots, fingerprints)
    for place, (before, key) in enumerate(pairwise(keys), 1):
        if before >= key:
            raise ValueError(f"place {place}: the keys do not ascend")
    return keys
