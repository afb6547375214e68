"""Confines a child process to an amount of memory, its pages of files included, by a memory cgroup (v1 or v2). Without
the right to make one, the child is not confined, and the figure says so."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
VARIABLE = "OUTRIDER_BENCH_CGROUP"
"""The variable of the child's environment with the folder of its cgroup."""


@contextlib.contextmanager
def confined(bytes_max: int) -> Iterator[dict[str, str]]:
    """Yields variables for the environment of a child, which calls `join`. Yields nothing if no cgroup can be made."""
    made = _made(bytes_max)
    try:
        yield {} if made is None else {VARIABLE: str(made)}
    finally:
        if made is not None:
            with contextlib.suppress(OSError):
                made.rmdir()


def _made(bytes_max: int) -> Path | None:
    name = f"outrider-bench-{os.getpid()}"
    for parent, limit in _places():
        folder = parent / name
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            (folder / limit).write_text(str(bytes_max))
        except OSError:
            folder.rmdir()
            continue
        return folder
    return None


def _places() -> Iterator[tuple[Path, str]]:
    """Yields the folders below which a cgroup may be made, with the names of their limits."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            yield ROOT / "memory" / path.lstrip("/"), "memory.limit_in_bytes"
        elif not controllers:
            yield ROOT / path.lstrip("/"), "memory.max"


def join() -> bool:
    """Puts this process into the cgroup that its environment names. Returns whether there is one. Call it before
    anything large is allocated: a process takes along no memory."""
    folder = os.environ.get(VARIABLE)
    if folder is None:
        return False
    (Path(folder) / "cgroup.procs").write_text(str(os.getpid()))
    return True
