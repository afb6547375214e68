"""Descriptors of open files and sockets: how many this process may have, and how many it has."""

from __future__ import annotations

import contextlib
import os
from typing import Final

DESCRIPTORS_SPARE: Final = 256


def open_files() -> int:
    """Returns the number of open descriptors; a guess if the system does not report it."""
    try:
        return len(os.listdir("/dev/fd"))
    except OSError:
        return DESCRIPTORS_SPARE


def allow_descriptors(wanted: int) -> int | None:
    """Raises this process's own limit of open files if possible, and returns it; None if the limit is unknown or
    absent."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft == resource.RLIM_INFINITY:
            return None
        if soft < wanted:
            most = max(soft, wanted if hard == resource.RLIM_INFINITY else min(wanted, hard))
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
                soft = most
        return soft
    return None
