"""A bench of a frontier in a child process with a limited amount of memory: its store, its answer, its clock."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.confined import confined
from bench.frontier_engine import STARTED_AT
from bench.measuring import CACHE, NoRoomError, run

SECONDS_MAX = 7_200.0


class VirtualClock:
    """A clock that its owner moves."""

    def __init__(self) -> None:
        self.at = STARTED_AT

    def __call__(self) -> int:
        return self.at


def check_room(name: str, urls: int, bytes_per_url: int, option: str) -> None:
    """Raises NoRoomError if this number of URLs needs more disk than is free. option: the one that makes it smaller."""
    CACHE.mkdir(parents=True, exist_ok=True)
    needed, free = urls * bytes_per_url, shutil.disk_usage(CACHE).free
    if free < needed:
        raise NoRoomError(
            f"{name}: {urls:,} URLs need {needed / 1e9:.1f} GB in {CACHE}, and {free / 1e9:.1f} GB are free: use a "
            f"smaller {option}"
        )


def answer_of(name: str, arguments: Sequence[str], *, bytes_max: int) -> Any:
    """Runs `python -m bench.NAME ARGUMENTS STORE ANSWER` in a new folder, and returns the JSON that it wrote. Raises
    ChildFailedError."""
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=CACHE))
    try:
        with confined(bytes_max) as environment:
            command = [sys.executable, "-m", f"bench.{name}", *arguments, folder / "store", folder / "answer"]
            run(command, seconds_max=SECONDS_MAX, environment=environment, shows_progress=True)
        return json.loads((folder / "answer").read_text())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def where(is_confined: bool, more_bytes: int) -> str:
    """Returns a note about the memory of the child. more_bytes: those in addition to `memory_bytes`."""
    return f"a cgroup confines the process to this and {more_bytes // 1_000_000} MB" if is_confined else "not confined"
