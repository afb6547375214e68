"""Keyed 64-bit fingerprints of texts: SipHash-1-3, the plain twin of the native kernel.

Aumasson and Bernstein, "SipHash: a fast short-input PRF" (2012), with one compression round per 8-byte word and three
finalisation rounds. The key belongs to a store: an attacker without it cannot prepare URLs that collide.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

KEY_BYTES = 16
_MASK = 0xFFFF_FFFF_FFFF_FFFF


def _rounds(v0: int, v1: int, v2: int, v3: int, times: int) -> tuple[int, int, int, int]:
    for _ in range(times):
        v0 = (v0 + v1) & _MASK
        v1 = ((v1 << 13) & _MASK | v1 >> 51) ^ v0
        v0 = (v0 << 32) & _MASK | v0 >> 32
        v2 = (v2 + v3) & _MASK
        v3 = ((v3 << 16) & _MASK | v3 >> 48) ^ v2
        v0 = (v0 + v3) & _MASK
        v3 = ((v3 << 21) & _MASK | v3 >> 43) ^ v0
        v2 = (v2 + v1) & _MASK
        v1 = ((v1 << 17) & _MASK | v1 >> 47) ^ v2
        v2 = (v2 << 32) & _MASK | v2 >> 32
    return v0, v1, v2, v3


def fingerprints(texts: Sequence[str], key: bytes) -> bytes:
    """Returns the SipHash-1-3 of the UTF-8 bytes of each text, as little-endian u64 one after the other.

    Lone surrogates are hashed in their three-byte form (`surrogatepass`), so that every `str` has a fingerprint.
    Raises ValueError when the key is not 16 bytes, TypeError when `texts` is one string or contains a non-string.
    """
    if isinstance(texts, str):
        raise TypeError("texts must be a sequence of strings, not one string")
    return hash_messages((_octets(text) for text in texts), key)


def _octets(text: object) -> bytes:
    if not isinstance(text, str):
        raise TypeError(f"a text to fingerprint must be a str, not {type(text).__name__}")
    return text.encode("utf-8", "surrogatepass")


def hash_messages(messages: Iterable[bytes], key: bytes | bytearray | memoryview) -> bytes:
    """The same of messages that are bytes already."""
    key = bytes(key)
    if len(key) != KEY_BYTES:
        raise ValueError(f"a fingerprint key has {KEY_BYTES} bytes, not {len(key)}")
    k0, k1 = struct.unpack("<QQ", key)
    start = (k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573)
    hashes: list[int] = []
    for message in messages:
        # The last word contains the remaining bytes and, in its highest byte, the length modulo 256.
        padded = message + bytes(7 - len(message) % 8) + bytes((len(message) & 0xFF,))
        v0, v1, v2, v3 = start
        for word in struct.unpack(f"<{len(padded) // 8}Q", padded):
            v0, v1, v2, v3 = _rounds(v0, v1, v2, v3 ^ word, 1)
            v0 ^= word
        v0, v1, v2, v3 = _rounds(v0, v1, v2 ^ 0xFF, v3, 3)
        hashes.append(v0 ^ v1 ^ v2 ^ v3)
    return struct.pack(f"<{len(hashes)}Q", *hashes)
