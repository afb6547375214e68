"""`outrider serve` as a process, for the benches of its protocols."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

SETTINGS = {"OUTRIDER_DELAY": "0", "OUTRIDER_DELAY_FACTOR": "0"}
"""The environment of a server without pauses."""


@contextlib.contextmanager
def served(directory: Path, protocol: str = "--http", *, killed: bool = False) -> Iterator[tuple[int, int]]:
    """Starts `outrider serve`; returns its process and port. protocol: the option that names its address. killed:
    ends it by SIGKILL."""
    command = [sys.executable, "-m", "outrider", "serve", str(directory), protocol, "127.0.0.1:0", "--drain", "0"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    try:
        line = server.stderr.readline()
        assert line.startswith("outrider: serving"), line
        yield server.pid, int(line.rpartition(":")[2])
    finally:
        server.send_signal(signal.SIGKILL if killed else signal.SIGTERM)
        server.communicate()
