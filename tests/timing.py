"""CPU time of a call, and of a pace to compare it with: a slow or busy machine slows both down, so a test checks their
ratio.

No test asserts a time near the measured one. A limit in seconds is ten times the time of a quiet machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from outrider import kernels


def scaled(count: int) -> int:
    """A tenth of the count for the plain kernels: they need 20 to 100 times as long, and are linear in less too."""
    return count if kernels.in_use() == "native" else count // 10


def seconds_of(call: Callable[[], object]) -> float:
    """Returns the CPU seconds of one call in this process."""
    begun = time.process_time()
    call()
    return time.process_time() - begun


def least_beside(call: Callable[[], object], pace: Callable[[], object], *, turns: int = 5) -> float:
    """Returns the least time of the call as a multiple of the pace's. Both run alternately; system pauses occur
    once."""
    spent = [(seconds_of(call), seconds_of(pace)) for _ in range(turns)]
    return min(one for one, _ in spent) / min(one for _, one in spent)
