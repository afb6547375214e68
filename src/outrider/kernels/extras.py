"""The last parts of the bodies of cards, behind URL and referrer: digest, validators and metadata; the plain twin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from outrider.kernels.cards import HAS_CONTENT, HEAD
from outrider.kernels.columns import Column, column, packed, records, same_length
from outrider.kernels.framing import Bytes
from outrider.kernels.siphash import hash_messages

ExtraValues: TypeAlias = tuple[Sequence[bytes], Sequence[str], Sequence[str], Sequence[bytes]]
"""Digests, ETags, Last-Modified, metadata (JSON), each one per card and empty for none."""


class Told(msgspec.Struct, omit_defaults=True, gc=False):
    """The packed values of an extra, without empty ones."""

    digest: bytes = msgspec.field(name="d", default=b"")
    etag: str = msgspec.field(name="t", default="")
    modified: str = msgspec.field(name="l", default="")
    metadata: bytes = msgspec.field(name="m", default=b"")


_encode = msgspec.msgpack.Encoder().encode
_NOTHING = _encode(Told())
_TYPES = {"digests": bytes, "etags": str, "modified": str, "metadata": bytes}


def extra_of(digest: bytes = b"", etag: str = "", modified: str = "", metadata: bytes = b"", content: int = 0) -> bytes:
    """The last part of a body; empty when all values are. content: a hash, 0 for none."""
    told = _encode(Told(digest, etag, modified, metadata))
    if told == _NOTHING:
        told = b""
    return content.to_bytes(8, "little") + told if content else told


def content_of(digest: bytes, key: Bytes) -> int:
    """The hash by which a content is known: that of the characters U+0000 to U+00FF whose numbers are the digest's
    bytes; never 0."""
    return max(1, int.from_bytes(hash_messages([digest.decode("latin-1").encode()], bytes(key)), "little"))


def with_extras(
    heads: Column, arena: Bytes, starts: Column, values: ExtraValues, contents: Column, key: Bytes
) -> tuple[bytes, bytes, bytes]:
    """Cards with other last parts of their bodies: heads, the arena, and offsets (i64, one more than cards).

    starts: where each body begins in `arena` (i64); contents: the hash of a content that has no digest (u64), 0 for
    none: a digest is hashed under `key`. A head gets the length of the last part, and the flag HAS_CONTENT where there
    is a content; the flag stays where it is set.
    ValueError for columns of different lengths, and for a URL or referrer outside of the arena; TypeError for a value
    of another type.
    """
    hash_messages([], bytes(key))
    chosen = records(heads, HEAD, "heads").copy()
    begins, hashes = column(starts, "<i8", "starts").tolist(), column(contents, "<u8", "contents").tolist()
    same_length("heads", len(chosen), "starts", len(begins))
    same_length("heads", len(chosen), "contents", len(hashes))
    if len(values) != len(_TYPES):
        raise ValueError(f"{len(values)} columns of values, not {len(_TYPES)}")
    for name, cells in zip(_TYPES, values, strict=True):
        same_length("heads", len(chosen), name, len(cells))
    octets, bodies, offsets = bytes(arena), bytearray(), [0]
    for row, given in enumerate(zip(*values, strict=True)):
        for value, wanted in zip(given, _TYPES.values(), strict=True):
            if not isinstance(value, wanted):
                raise TypeError(f"a {wanted.__name__} is asked for, not {type(value).__name__}")
        content = content_of(given[0], key) if given[0] else hashes[row]
        extra, head, start = extra_of(*given, content), chosen[row], begins[row]
        end = start + int(head["url_bytes"]) + int(head["referrer_bytes"])
        if not 0 <= start <= end <= len(octets):
            raise ValueError(f"row {row}: its body lies outside, or is too long")
        bodies += octets[start:end] + extra
        offsets.append(len(bodies))
        head["extra_bytes"] = len(extra)
        head["flags"] |= HAS_CONTENT if content else 0
    return chosen.tobytes(), bytes(bodies), packed(offsets, "<i8")
