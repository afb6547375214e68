"""Both kinds of every kernel, the native build and its plain twin, and columns as the tests write and read them."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

NATIVE: Any
try:
    NATIVE = importlib.import_module("outrider._native")
except ImportError:
    NATIVE = None
WITHOUT_NATIVE = pytest.mark.skipif(NATIVE is None, reason="there is no native build here")

NONE = 2**32 - 1
U32_MAX, U64_MAX = 2**32 - 1, 2**64 - 1
MANY = 10**6
STALL_SECONDS_MAX = 0.010


def native_of(twin: Any) -> Any:
    """Returns the native kind of a class, or None without a build. For a module of functions it is the build itself."""
    return getattr(NATIVE, twin.__name__, None) if isinstance(twin, type) else NATIVE


def both(twin: Any) -> pytest.MarkDecorator:
    """The test gets each kind as `kernel`."""
    native = pytest.param(native_of(twin), id="native", marks=WITHOUT_NATIVE)
    return pytest.mark.parametrize("kernel", [pytest.param(twin, id="python"), native])


def u8(*numbers: int) -> npt.NDArray[np.uint8]:
    return np.array(numbers, np.uint8)


def u32(*numbers: int) -> npt.NDArray[np.uint32]:
    return np.array(numbers, np.uint32)


def u64(*numbers: int) -> npt.NDArray[np.uint64]:
    return np.array(numbers, np.uint64)


def i64(*numbers: int) -> npt.NDArray[np.int64]:
    return np.array(numbers, np.int64)


def rows(answer: bytes) -> list[int]:
    return np.frombuffer(answer, np.uint32).tolist()


def tokens(answer: bytes) -> list[int]:
    return np.frombuffer(answer, np.uint64).tolist()


def instants(answer: bytes) -> list[int]:
    return np.frombuffer(answer, np.int64).tolist()


def longest(calls: Iterable[Callable[[], object]]) -> float:
    """Returns the CPU seconds of the longest of the calls."""
    worst = 0.0
    for call in calls:
        start = time.thread_time()
        call()
        worst = max(worst, time.thread_time() - start)
    return worst


def too_long(measured: Callable[[], dict[str, float]]) -> dict[str, float]:
    """Returns the delay that occurs in each of three runs: the system's own pauses (a page to zero, memory to collect)
    occur once."""
    late: dict[str, float] = {}
    for _ in range(3):
        late = {name: spent for name, spent in measured().items() if spent >= STALL_SECONDS_MAX}
        if not late:
            break
    return late
