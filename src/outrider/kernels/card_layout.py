"""Cards: the frontier's record of one URL, as bytes that kernels, log and disk exchange without unpacking.

A card is | head, 72 bytes | url | referrer | extra |. Many cards are three columns: `heads` (one after the other), an
`arena` of bodies, and `offsets` (int64, one more than cards) with the start of each body in the arena.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

HEAD = np.dtype(
    {
        "names": [
            *("fingerprint", "queue", "order", "due", "priority", "crawl", "extra_bytes"),
            *("slot", "depth", "attempts", "status", "url_bytes", "referrer_bytes"),
            *("state", "reason", "klass", "hops", "losses", "flags", "error", "fetched"),
        ],
        "formats": [
            *("<u8", "<u8", "<u8", "<i8", "<f8", "<u4", "<u4"),
            *("<u2", "<u2", "<u2", "<u2", "<u2", "<u2"),
            *("u1", "u1", "u1", "u1", "u1", "u1", "<u2", "<u4"),
        ],
        "offsets": [0, 8, 16, 24, 32, 40, 44, 48, 50, 52, 54, 56, 58, 60, 61, 62, 63, 64, 65, 66, 68],
        "itemsize": 72,
    }
)
"""fingerprint: of the URL; queue: of (crawl, key, host); order: the number of its acceptance; due: an
instant; klass: 0 to 15, the best first, or ORDERED_FIFO, ORDERED_LIFO; the order within a queue is (-klass, due,
order). flags: HAS_CONTENT, and the schedule. error:
the number of its class in the frontier's table of errors, 0 for no error. fetched: the time of its last answer, in
whole seconds since `FETCHED_FROM`, 0 for never, or from a version that did not record it. Every byte has a name,
because numpy copies and joins only bytes that belong to a field."""

FETCHED_FROM = 1_577_836_800
"""2020-01-01 in seconds since 1970: from there four bytes last until 2156."""

HEAD_BYTES = HEAD.itemsize
OPAQUE = np.dtype((np.void, HEAD_BYTES))
"""A head as bytes: numpy copies the fields of records one by one."""

ORDER_OFFSET, DUE_OFFSET, KLASS_OFFSET = 16, 24, 62
ORDERED = 16
"""Classes from here on are those of crawls with an exact order: ORDERED_FIFO, ORDERED_LIFO."""
ORDERED_FIFO, ORDERED_LIFO = ORDERED, ORDERED + 1
ORDERED_CLASS = 8
"""The class with which such a crawl takes its turn among others."""
NO_CLASS = 255
"""The class of a card that is not there."""
HAS_CONTENT = 1
"""The first 8 bytes of `extra` are the hash of what was found there."""
SCHEDULE_SHIFT = 1
"""The other seven bits of `flags` are the schedule of a page that is visited regularly: 0 for no schedule, otherwise
the code of the usual pause (frontier/policy/revisit.py)."""

NOT_MODIFIED = 304
"""The status of an answer to a request with validators (RFC 9110 section 15.4.5); it is not a bad answer."""
PLANNED = 9
"""The reason of a waiting card that a revisit rule looks at when it is due."""

Heads = npt.NDArray[Any]
