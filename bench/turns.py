"""Measures something again whenever a long measurement asks for it, in a process outside of the cgroup of that one.
So a slow minute of the machine affects both sides of a ratio.

    python -m bench.turns NAME BYTES_MAX ARGUMENTS…

It runs `python -m bench.NAME ARGUMENTS… STORE ANSWER`, confined to BYTES_MAX, for each line of its input, and prints
the answer as a line of JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from bench.confined import VARIABLE
from bench.confined_frontier import answer_of
from bench.measuring import ROOT, ChildFailedError


class Turns:
    """A process that measures when it is asked. Start it before `bench.confined.join`: a process takes its cgroup from
    the one that starts it."""

    def __init__(self, name: str, arguments: Sequence[str], *, bytes_max: int) -> None:
        environment = {key: value for key, value in os.environ.items() if key != VARIABLE}
        self._command = [sys.executable, "-m", "bench.turns", name, str(bytes_max), *arguments]
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env=environment,
            text=True,
        )
        self.answers: list[Any] = []

    def take(self) -> None:
        """Measures once, and waits for the answer. Raises ChildFailedError; the messages of the child are on standard
        error then."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise ChildFailedError(f"{' '.join(self._command)} ended")
        self.answers.append(json.loads(answer))

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def main() -> None:
    name, bytes_max, *arguments = sys.argv[1:]
    for _ in sys.stdin:
        print(json.dumps(answer_of(name, arguments, bytes_max=int(bytes_max))), flush=True)


if __name__ == "__main__":
    main()
