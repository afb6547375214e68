"""Text for a terminal or a log: one line, with escaped text from the web."""

from __future__ import annotations

import os
from typing import TextIO

from outrider.crawl.output.summary import visible
from outrider.limits import TALK_CHARACTERS_MAX


def safe(text: object, characters_max: int = TALK_CHARACTERS_MAX) -> str:
    """Returns `text` with control, format and direction characters escaped (`\\x1b`), cut to a bounded length."""
    shown = visible(str(text)[: characters_max + 1])
    return shown if len(shown) <= characters_max else shown[: characters_max - 1] + "…"


def drawable(stream: TextIO, environment: dict[str, str] | None = None) -> bool:
    """Whether the stream can show moving lines: a capable terminal without a wish for plain text (no-color.org)."""
    env = os.environ if environment is None else environment
    try:
        terminal = stream.isatty()
    except (ValueError, OSError):  # closed, or not a file
        return False
    return terminal and not env.get("NO_COLOR") and env.get("TERM", "") != "dumb"


def say(line: str, stream: TextIO) -> None:
    """Prints one line. A closed reader does not stop a crawl."""
    try:
        stream.write(safe(line) + "\n")
        stream.flush()
    except (OSError, ValueError):
        return
