"""The last part of the body of a card, after URL and referrer: the fields of a record that have a value; the plain
twin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from outrider.kernels.card_layout import HAS_CONTENT, HEAD
from outrider.kernels.columns import Column, column, packed, records, same_length
from outrider.kernels.framing import Bytes
from outrider.kernels.siphash import hash_messages

ExtraValues: TypeAlias = Sequence[Sequence[bytes] | Sequence[str]]
"""A column for each field: a value per card, empty for none."""
_encode = msgspec.msgpack.Encoder().encode
_TYPES = {"bytes": bytes, "str": str}


def _fields_of(fields: str) -> dict[str, type]:
    """The fields of a declaration: the name and the type of each."""
    if not isinstance(fields, str):
        raise TypeError(f"a str is asked for, not {type(fields).__name__}")
    fields.encode()
    found: dict[str, type] = {}
    for one in fields.split(" "):
        name, _, kind = one.partition(":")
        if not (len(name) == 1 and "a" <= name <= "z" and kind in _TYPES) or name in found:
            break
        found[name] = _TYPES[kind]
    else:
        if next(iter(found.values())) is bytes:
            return found
    raise ValueError(f"fields {fields}: declare them as d:bytes t:str, each letter once, and digests first")


def content_of(digest: bytes, key: Bytes) -> int:
    """The hash by which a content is known: that of the characters U+0000 to U+00FF whose numbers are the digest's
    bytes; never 0."""
    return max(1, int.from_bytes(hash_messages([digest.decode("latin-1").encode()], bytes(key)), "little"))


def with_extras(
    heads: Column, arena: Bytes, starts: Column, fields: str, values: ExtraValues, contents: Column, key: Bytes
) -> tuple[bytes, bytes, bytes]:
    """Cards with other last parts of their bodies: heads, the arena, and offsets (i64, one more than cards).

    fields: declares the columns of `values`, as `d:bytes t:str`: the letter by which the body names a field, and the
    type of its values. The first field contains digests. The body is a MessagePack map of the values that are not
    empty. starts: where each body begins in `arena` (i64); contents: the hash of a content that has no digest (u64), 0
    for none: a digest is hashed under `key`. A head gets the length of the last part, and the flag HAS_CONTENT where
    there is a content; the flag stays where it is set.
    ValueError for columns of different lengths, for a URL or referrer outside of the arena, and for fields that are
    declared otherwise; TypeError for a value of another type.
    """
    hash_messages([], bytes(key))
    types = _fields_of(fields)
    chosen = records(heads, HEAD, "heads").copy()
    begins, hashes = column(starts, "<i8", "starts").tolist(), column(contents, "<u8", "contents").tolist()
    same_length("heads", len(chosen), "starts", len(begins))
    same_length("heads", len(chosen), "contents", len(hashes))
    if len(values) != len(types):
        raise ValueError(f"{len(values)} columns of values, not {len(types)}")
    for name, cells in zip(types, values, strict=True):
        same_length("heads", len(chosen), f"values of {name}", len(cells))
    octets, bodies, offsets = bytes(arena), bytearray(), [0]
    for row, given in enumerate(zip(*values, strict=True)):
        for value, wanted in zip(given, types.values(), strict=True):
            if not isinstance(value, wanted):
                raise TypeError(f"a {wanted.__name__} is asked for, not {type(value).__name__}")
        content = content_of(given[0], key) if given[0] else hashes[row]
        there = {name: value for name, value in zip(types, given, strict=True) if value}
        extra = (content.to_bytes(8, "little") if content else b"") + (_encode(there) if there else b"")
        head, start = chosen[row], begins[row]
        end = start + int(head["url_bytes"]) + int(head["referrer_bytes"])
        if not 0 <= start <= end <= len(octets):
            raise ValueError(f"row {row}: its body lies outside, or is too long")
        bodies += octets[start:end] + extra
        offsets.append(len(bodies))
        head["extra_bytes"] = len(extra)
        head["flags"] |= HAS_CONTENT if content else 0
    return chosen.tobytes(), bytes(bodies), packed(offsets, "<i8")
