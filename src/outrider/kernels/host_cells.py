"""Cells of hosts: the values that most calls read or change, in one record, so that it costs one or two cache lines."""

from __future__ import annotations

import numpy as np

HOST = np.dtype(
    {
        "names": [
            *("hash", "ended", "rest_until", "gap", "answered", "first_queue"),
            *("slot", "in_flight", "reason", "there", "flags"),
        ],
        "formats": ["<u8", "<i8", "<i8", "<f8", "<u4", "<u4", "<u2", "<u2", "u1", "?", "<u2"],
        "offsets": [0, 8, 16, 24, 32, 36, 40, 42, 44, 45, 46],
        "itemsize": 48,
    }
)
"""As `outrider.frontier.state.hosts.Hosts` draws them; nothing of it is on disk."""

HOST_BYTES = HOST.itemsize
