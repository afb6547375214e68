"""Processes of `outrider serve` for tests."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager


@contextmanager
def servers():
    """Gives a function that starts a server and returns it with the first line that it says. Each server is ended by
    its id."""
    running = []

    def start(directory, *flags):
        environment = {**os.environ, "OUTRIDER_DELAY": "0.3", "OUTRIDER_DELAY_FACTOR": "0"}
        command = [sys.executable, "-m", "outrider", "serve", str(directory), *flags]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        running.append(process)
        return process, process.stderr.readline()

    try:
        yield start
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()
            process.wait()
            process.stderr.close()
