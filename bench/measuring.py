"""Measures a child process: its wall time, its CPU seconds by wait4, its largest resident size."""

from __future__ import annotations

import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[1]
PEERS_PYTHON = ROOT / ".venv-bench" / "bin" / "python"
CACHE = ROOT / "bench" / ".cache"
RESULTS = ROOT / "bench" / "results"
SIZE_EVERY_SECONDS = 0.05
SAID_BYTES_MAX = 4_000  # bytes of a failed child's last output

Answer = TypeVar("Answer")


class ChildFailedError(Exception):
    """A program under measurement ended with an error; its last words follow."""


class NoRoomError(Exception):
    """The disk has too little free space for a bench; nothing was measured."""


@dataclass(frozen=True)
class Measured:
    """The cost of one run of a program; CPU seconds are user and system, of the program and its children."""

    wall_seconds: float
    cpu_seconds: float
    peak_bytes: int
    code: int
    said: str


def run(
    command: Sequence[str | Path],
    *,
    good: tuple[int, ...] = (0,),
    seconds_max: float = 600.0,
    environment: Mapping[str, str] | None = None,
    shows_progress: bool = False,
) -> Measured:
    """Runs a program to its end. shows_progress: its standard error is ours. Raises ChildFailedError if its exit code
    is not in `good`, or if it needs too long."""
    words = [str(word) for word in command]
    with tempfile.TemporaryFile() as said:
        begun = time.monotonic()
        child = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=None if shows_progress else said,
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
        )
        late = threading.Timer(seconds_max, child.kill)
        late.start()
        size = _SizeWatch(child.pid)
        size.start()
        try:
            _, status, usage = os.wait4(child.pid, 0)
        finally:
            late.cancel()
            size.ended.set()
            size.join()
        wall = time.monotonic() - begun
        child.returncode = os.waitstatus_to_exitcode(status)
        said.seek(max(0, said.seek(0, os.SEEK_END) - SAID_BYTES_MAX))
        text = said.read().decode("utf-8", "replace")
    if child.returncode not in good:
        raise ChildFailedError(f"{words[0]} ended with {child.returncode} after {wall:.1f} s:\n{text}")
    scale = 1 if sys.platform == "darwin" else 1024
    peak = size.peak_bytes or usage.ru_maxrss * scale
    return Measured(wall, usage.ru_utime + usage.ru_stime, peak, child.returncode, text)


class _SizeWatch(threading.Thread):
    """Reads the largest resident size of a process while it runs.

    The kernel's figure after its end (ru_maxrss) is wrong: it begins with the size of the process that forked it.
    """

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.path = Path(f"/proc/{pid}/status")
        self.peak_bytes = 0
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(SIZE_EVERY_SECONDS):
            try:
                found = re.search(r"VmHWM:\s+(\d+) kB", self.path.read_text())
            except OSError:  # not Linux, or the process has just ended
                return
            if found:
                self.peak_bytes = int(found[1]) * 1024


def cpu_seconds_of(work: Callable[[], object], *, rounds: int = 5) -> float:
    """Returns the smallest CPU time of `work` in this number of rounds, because other processes can only add to it."""
    best = float("inf")
    for _ in range(rounds):
        begun = time.process_time()
        work()
        best = min(best, time.process_time() - begun)
    return best


def alternating(works: Mapping[str, Callable[[], object]], *, rounds: int = 5) -> dict[str, float]:
    """Returns the same for several rivals in turns, so that a slow minute of the machine affects all of them."""
    best = dict.fromkeys(works, float("inf"))
    for _ in range(rounds):
        for name, work in works.items():
            best[name] = min(best[name], cpu_seconds_of(work, rounds=1))
    return best


def sync_latencies(directory: Path, *, count: int = 200) -> list[float]:
    """Returns the seconds of each fdatasync after a write of 4 KiB into an existing file, in ascending order."""
    directory.mkdir(parents=True, exist_ok=True)
    descriptor, path = tempfile.mkstemp(prefix="sync-", dir=directory)  # another bench may run at the same time
    times = []
    try:
        os.write(descriptor, bytes(4_096 * count))
        os.fsync(descriptor)
        for row in range(count):
            os.pwrite(descriptor, b"x" * 4_096, row * 4_096)
            begun = time.perf_counter()
            getattr(os, "fdatasync", os.fsync)(descriptor)
            times.append(time.perf_counter() - begun)
    finally:
        os.close(descriptor)
        os.unlink(path)
    return sorted(times)


def sync_seconds(directory: Path, *, count: int = 200) -> float:
    """The median of them."""
    return statistics.median(sync_latencies(directory, count=count))


class Spent:
    """CPU and wall seconds of the calls made through it, without the caller's work between them.

    CPU time includes the calls and all other threads of the process at any time. So a checkpoint that a thread writes
    counts.
    """

    def __init__(self) -> None:
        self.walls: list[float] = []
        self.cpus: list[float] = []  # CPU times of the calling thread
        self._process = time.process_time()
        self._thread = time.thread_time()
        self._beside = 0.0

    def call(self, work: Callable[[], Answer]) -> Answer:
        """Returns the result of `work` and measures its time."""
        cpu, wall = time.thread_time(), time.perf_counter()
        answer = work()
        wall, cpu = time.perf_counter() - wall, time.thread_time() - cpu
        self.walls.append(wall)
        self.cpus.append(cpu)
        return answer

    def end(self) -> Spent:
        """Ends the measurement of the other threads."""
        self._beside = (time.process_time() - self._process) - (time.thread_time() - self._thread)
        return self

    @property
    def cpu(self) -> float:
        return sum(self.cpus) + max(0.0, self._beside)

    @property
    def wall(self) -> float:
        return sum(self.walls)


def resident_bytes() -> int:
    """Returns the resident memory of this process, or 0 without /proc."""
    return resident_bytes_of("self")


def resident_bytes_of(pid: int | str) -> int:
    """Returns the resident memory of a process, or 0 without /proc."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return 0


def cpu_seconds_of_process(pid: int) -> float:
    """Returns the user and system CPU seconds of another process until now, or 0 without /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def machine() -> dict[str, object]:
    """Describes the machine of the figures."""
    return {
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "open_files_max": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    }
