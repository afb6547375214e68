"""CPU time of a call, and beside that of a pace: a slow or busy machine slows both down, so a test holds their ratio.

No test asserts a time that lies near what is measured. A limit in seconds is ten times what a quiet machine takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from outrider import kernels


def scaled(count: int) -> int:
    """A tenth of the count for the plain kernels: they take 20 to 100 times as long, and are linear in less too."""
    return count if kernels.in_use() == "native" else count // 10


def seconds_of(call: Callable[[], object]) -> float:
    """Seconds of CPU that one call takes in this process."""
    begun = time.process_time()
    call()
    return time.process_time() - begun


def least_beside(call: Callable[[], object], pace: Callable[[], object], *, turns: int = 5) -> float:
    """The least time of the call as a multiple of the pace's. Both run by turns; the system's own pauses come once."""
    spent = [(seconds_of(call), seconds_of(pace)) for _ in range(turns)]
    return min(one for one, _ in spent) / min(one for _, one in spent)
