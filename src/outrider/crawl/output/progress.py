"""Progress of a running crawl on standard error: a bar on a terminal, a line now and then elsewhere, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TextIO

from outrider.causes import error_words
from outrider.crawl.output.rates import Rates
from outrider.crawl.output.summary import bytes_text, counted, seconds_text
from outrider.crawl.output.terminal import drawable, safe, say

LOG_LINE_SECONDS = 5.0  # a line every five seconds: a log of a day has 17,000 of them
LOG_LINE_SECONDS_MAX = 60.0  # later lines are rarer
DRAW_SECONDS = 0.25  # four pictures a second look live and cost nothing


class Progress(Protocol):
    """Shows the crawl's progress while it runs."""

    seconds: float

    def show(self, status: Mapping[str, Any], in_flight: int, elapsed: float) -> None:
        """Shows the current progress. Called about every `seconds`."""
        ...

    def say(self, line: str) -> None:
        """Prints one line that stays."""
        ...

    def close(self) -> None:
        """Restores the terminal."""
        ...


def progress_line(status: Mapping[str, Any], in_flight: int, elapsed: float) -> str:
    """Returns the current progress in one line of plain text."""
    hosts, urls = status["hosts"], status["urls"]
    rates = Rates(**status["pages_per_second"])
    errors = sum(status["errors"].values())
    since = f"{elapsed:.0f} s" if elapsed < 120 else seconds_text(elapsed)
    parts = [
        f"{since}: {counted(status['answered'], 'page')} ({rates.now:.1f}/s)",
        f"{urls['queued'] + urls['waiting']:,} waiting",
        f"hosts {hosts['ready']:,} ready, {hosts['resting']:,} in delay, {in_flight:,} in flight",
        bytes_text(status["bytes"]),
        counted(errors, "error") + (_cause(status["errors"]) if not status["answered"] else ""),
        eta_text(status["eta_seconds"]),
    ]
    return safe(", ".join(part for part in parts if part))


def _cause(errors: Mapping[str, int]) -> str:
    """Returns the most frequent class of error in words, for a crawl without an answer: its waits have this cause."""
    if not errors:
        return ""
    error = max(errors, key=lambda name: errors[name])
    return f" ({error_words(error) or error})"


def eta_text(eta: float | None) -> str:
    """Returns the expected remaining time of the crawl as text; "" if it is not known."""
    if eta is None:
        return ""
    if eta < 1:
        return "nearly done"
    if eta < 120:
        return f"about {eta:.0f} s left"
    if eta < 7_200:
        return f"about {eta / 60:.0f} min left"
    return f"about {eta / 3_600:.0f} h left" if eta < 172_800 else f"about {eta / 86_400:,.0f} days left"


class NoProgress:
    """Prints lines, and shows no progress."""

    seconds = 60.0

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def show(self, status: Mapping[str, Any], in_flight: int, elapsed: float) -> None:
        """Does nothing."""

    def say(self, line: str) -> None:
        say(line, self._stream)

    def close(self) -> None:
        """Does nothing."""


class LogProgress(NoProgress):
    """Prints a line from time to time, less often the longer the crawl runs."""

    seconds = 1.0

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._next = 1.0

    def show(self, status: Mapping[str, Any], in_flight: int, elapsed: float) -> None:
        if elapsed >= self._next:
            self._next = elapsed + min(LOG_LINE_SECONDS_MAX, max(LOG_LINE_SECONDS, elapsed / 20))
            say(progress_line(status, in_flight, elapsed), self._stream)


class BarProgress:
    """Draws two lines at the bottom of a terminal, again and again."""

    seconds = DRAW_SECONDS

    def __init__(self, stream: TextIO, title: str) -> None:
        from rich.console import Console
        from rich.live import Live

        self._title = safe(title, 60)
        self._console = Console(file=stream, stderr=stream.fileno() == 2, highlight=False, markup=False, emoji=False)
        # Without a thread of rich: the crawl's loop draws when it has time.
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._live.start()

    def show(self, status: Mapping[str, Any], in_flight: int, elapsed: float) -> None:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        urls = status["urls"]
        left = urls["queued"] + urls["leased"] + urls["waiting"] + status["held"]
        ended = urls["done"] + urls["gone"]
        row = Table.grid(padding=(0, 1))
        share = f"{ended:,} of {ended + left:,} known URLs"
        row.add_row(
            Text(self._title, style="bold"), ProgressBar(total=max(1, ended + left), completed=ended, width=32), share
        )
        try:
            self._live.update(Group(row, Text(progress_line(status, in_flight, elapsed))), refresh=True)
        except (OSError, ValueError):  # the terminal was closed
            return

    def say(self, line: str) -> None:
        from rich.text import Text

        try:
            self._console.print(Text(safe(line)), soft_wrap=True)
        except (OSError, ValueError):
            return

    def close(self) -> None:
        try:
            self._live.stop()
        except (OSError, ValueError):
            return


def progress_of(kind: str, stream: TextIO, title: str) -> Progress:
    """Returns the wanted progress: `auto` draws a bar on a terminal that can show it, and writes lines elsewhere."""
    if kind == "none":
        return NoProgress(stream)
    if kind == "log" or (kind == "auto" and not drawable(stream)):
        return LogProgress(stream)
    try:
        return BarProgress(stream, title)
    except (OSError, ValueError):  # a stream without a descriptor
        return LogProgress(stream)
