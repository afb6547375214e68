"""Sorted keys (a slot and a fingerprint of 56 bits) in pages of 4,096 bytes, packed by Elias and Fano. The plain twin.

docs/formats/seen.md draws a page. The first 24 bytes of a page contain its checksum and its number, so a damaged page,
or one that is read from the wrong place, is noticed.
"""

from __future__ import annotations

import struct
from array import array
from itertools import pairwise

from outrider.kernels.columns import Column, column
from outrider.kernels.fingerprint_set import columns_of, keys_of
from outrider.kernels.framing import crc32c

PAGE_BYTES = 4_096
_HEAD = struct.Struct("<IIHBxHQxx")
_BITS = 8 * (PAGE_BYTES - _HEAD.size)
_FINGERPRINT = (1 << 56) - 1
_LOW_BITS_MAX = 67

Keys = tuple[bytes, bytes]
"""Slots (u16) and fingerprints (u64)."""


def sort_keys(slots: Column, fingerprints: Column) -> Keys:
    """Returns the keys in ascending order, each once."""
    return columns_of(sorted(set(keys_of(slots, fingerprints))))


def rank_keys(slots: Column, fingerprints: Column) -> tuple[bytes, bytes, bytes]:
    """Returns the keys as `sort_keys`, and the place (u32) of each given key among them."""
    keys = keys_of(slots, fingerprints)
    distinct = sorted(set(keys))
    places = {key: place for place, key in enumerate(distinct)}
    return *columns_of(distinct), array("I", [places[key] for key in keys]).tobytes()


def pack_keys(slots: Column, fingerprints: Column, first: int, whole: bool) -> tuple[bytes, int]:
    """Returns pages of ascending keys, numbered from `first`, and how many keys they contain: all, or with `whole`
    False only those of pages that are full. Raises ValueError for keys that do not ascend."""
    keys = _ascending(slots, fingerprints)
    pages: list[bytes] = []
    at = 0
    while at < len(keys):
        low_bits, end = 0, at + 1
        while end < len(keys):
            last, count = keys[end] - keys[at], end - at + 1
            wanted = _low_bits(last, count)
            if _lower_bytes(count, wanted) * 8 + count + (last >> wanted) > _BITS:
                break
            low_bits, end = wanted, end + 1
        if end == len(keys) and not whole:
            break
        pages.append(_page(keys[at:end], low_bits, first + len(pages)))
        at = end
    return b"".join(pages), at


def _low_bits(last: int, count: int) -> int:
    """How many lower bits keys have whose last distance is `last`: then there are one to two buckets for each key."""
    low_bits = max(last.bit_length() - count.bit_length(), 0)
    return max(low_bits - 1, 0) if last >> low_bits < count else low_bits


def _lower_bytes(count: int, low_bits: int) -> int:
    return (count * low_bits + 7) // 8


def _page(keys: list[int], low_bits: int, number: int) -> bytes:
    lower = upper = 0
    for place, key in enumerate(keys):
        distance = key - keys[0]
        lower |= (distance & (1 << low_bits) - 1) << (place * low_bits)
        upper |= 1 << ((distance >> low_bits) + place)
    head = _HEAD.pack(0, number & 0xFFFF_FFFF, len(keys), low_bits, keys[0] >> 56, keys[0] & _FINGERPRINT)
    packed = lower | upper << 8 * _lower_bytes(len(keys), low_bits)
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
    crc, here, count, low_bits, slot, fingerprint = _HEAD.unpack_from(page)
    sound = crc == crc32c(page[4:]) and here == number and count > 0 and low_bits <= _LOW_BITS_MAX
    if not sound or _lower_bytes(count, low_bits) * 8 + count > _BITS:
        raise ValueError(f"page {place} is damaged")
    packed = int.from_bytes(page[_HEAD.size :], "little")
    upper = packed >> 8 * _lower_bytes(count, low_bits)
    keys: list[int] = []
    while upper and len(keys) < count:
        bucket = (upper & -upper).bit_length() - 1 - len(keys)
        low = packed >> (len(keys) * low_bits) & (1 << low_bits) - 1
        keys.append((slot << 56 | fingerprint & _FINGERPRINT) + (bucket << low_bits | low))
        upper &= upper - 1
    if len(keys) < count:
        raise ValueError(f"page {place} is damaged")
    return keys


def _ascending(slots: Column, fingerprints: Column) -> list[int]:
    keys = keys_of(slots, fingerprints)
    for place, (before, key) in enumerate(pairwise(keys), 1):
        if before >= key:
            raise ValueError(f"place {place}: the keys do not ascend")
    return keys
