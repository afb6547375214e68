"""The progress of a command that reads or writes many records."""

from __future__ import annotations

import time
from typing import Final, TextIO

from outrider.crawl.output.summary import counted
from outrider.crawl.output.terminal import drawable, say

SHOW_SECONDS: Final = 1.0  # between two lines about the progress


class Counter:
    """Prints the number of records and the rate from time to time: on one line of a terminal, or on new lines."""

    def __init__(self, stream: TextIO, verb: str) -> None:
        self._stream = stream
        self._verb = verb
        self._drawn = drawable(stream)
        self._began = self._shown = time.monotonic()
        self.total = 0

    def add(self, count: int) -> None:
        """Adds `count` rows. From time to time it prints the number."""
        self.total += count
        now = time.monotonic()
        if now - self._shown < SHOW_SECONDS:
            return
        self._shown = now
        if self._drawn:
            self._stream.write(f"\r{self._line(now)}\x1b[K")
            self._stream.flush()
        else:
            say(self._line(now), self._stream)

    def end(self, words: str) -> None:
        """Prints the last line, which stays."""
        if self._drawn:
            self._stream.write("\r\x1b[K")
        say(f"{self._line(time.monotonic())}{words}", self._stream)

    def _line(self, now: float) -> str:
        seconds = now - self._began
        rate = f", {self.total / seconds:,.0f} a second" if seconds >= 0.1 else ""
        return f"{self._verb} {counted(self.total, 'record')}{rate}"
