"""Requests about keys, answered together with the sorted rows of their range: a bucket of a DRUM. The plain twin.

A request is | key u64 | value u64 | operation u8 | payload |, a row of a run is | key u64 | value u64 |, all little
endian. A layout without values has neither of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from itertools import pairwise
from typing import Any

import numpy as np

from outrider.kernels.columns import number, octets, packed
from outrider.kernels.framing import Bytes


class Operation(IntEnum):
    """The kinds of requests. A check asks whether its key is there; an update writes its value, and adds the key if it
    is missing; the third does both, in this order. An append adds its value to that of the key, modulo 2⁶⁴; a missing
    key is added with 0 before."""

    CHECK = 1
    UPDATE = 2
    CHECK_UPDATE = 3
    APPEND = 4


def row_type(valued: bool) -> np.dtype[Any]:
    """Returns the layout of a row."""
    return np.dtype([("key", "<u8"), *([("value", "<u8")] if valued else [])])


def request_type(payload_bytes: int, valued: bool) -> np.dtype[Any]:
    """Returns the layout of a request."""
    payload = ("payload", np.dtype((np.void, payload_bytes)))
    return np.dtype([*row_type(valued).descr, ("operation", "u1"), payload])


def answer_requests(
    requests: Bytes, payload_bytes: int, valued: bool, blocks: Sequence[Bytes], whole: bool
) -> tuple[bytes, bytes, bytes]:
    """Answers requests in their order. blocks: rows that ascend within a block; a later block replaces an earlier one.

    Returns 1 for each request whose key was there before it, otherwise 0; the value of its key then (u64, 0 for a
    missing key); and rows that ascend: those of the keys that changed and, with `whole`, of all others, too. Raises
    ValueError for bytes that are not whole requests or rows, operations that do not exist and rows that do not ascend.
    """
    kind, rows = request_type(number(payload_bytes, "u32", "payload_bytes"), valued), row_type(valued)
    asked = np.frombuffer(octets(requests, kind.itemsize, "requests"), kind)
    runs = [
        np.frombuffer(octets(block, rows.itemsize, f"block {place}"), rows).tolist()
        for place, block in enumerate(blocks)
    ]
    operations = asked["operation"].tolist()
    for place, operation in enumerate(operations):
        if not Operation.CHECK <= operation <= Operation.APPEND:
            raise ValueError(f"place {place}: an operation is 1 to 4, not {operation}")
    there: dict[int, int] = {}
    for place, run in enumerate(runs):
        if any(before[0] >= after[0] for before, after in pairwise(run)):
            raise ValueError(f"block {place}: the keys do not ascend")
        there.update((row[0], row[1] if valued else 0) for row in run)
    given = asked["value"].tolist() if valued else [0] * asked.size
    known, values, changed = bytearray(), list[int](), set[int]()
    for key, operation, value in zip(asked["key"].tolist(), operations, given, strict=True):
        known.append(key in there)
        values.append(there.get(key, 0))
        if operation != Operation.CHECK:
            there[key] = (values[-1] + value) % 2**64 if operation == Operation.APPEND else value
            changed.add(key)
    written = sorted(there if whole else changed)
    made = np.array([(key, there[key]) if valued else (key,) for key in written], rows)
    return bytes(known), packed(values, "<u8"), made.tobytes()
