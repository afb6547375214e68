"""crawl.log: one line for each event, as text or JSON. A log that cannot be written never stops a crawl.

The events are records of Python's `logging`, of the logger `outrider`. crawl.log is one handler of them, and a program
may add its own. A record has the word in `event` and the facts in `facts`.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from typing import Final

import msgspec

from outrider.clock import Instant, rfc3339
from outrider.crawl.output.terminal import safe
from outrider.limits import JOURNAL_BUFFER_BYTES_MAX

JOURNAL_FILE: Final = "crawl.log"


LOGGER: Final = logging.getLogger("outrider")
LOGGER.addHandler(logging.NullHandler())  # a library writes nothing without a handler of its program
_ERRORS: Final = frozenset({"bug", "failure"})
_WARNINGS: Final = frozenset({"disk_full", "stale", "too_large"})


def level_of(event: str) -> int:
    """Returns the level of an event: an event that stops a crawl is an error, an event for its operator is a
    warning."""
    if event in _ERRORS:
        return logging.ERROR
    return logging.WARNING if event in _WARNINGS or event.startswith("hook_") else logging.INFO


class Journal(logging.Handler):
    """Writes lines `time event key=value …` (or the same as a JSON object) to the end of a file."""

    def __init__(self, path: str | os.PathLike[str], *, form: str, clock: Callable[[], Instant]) -> None:
        super().__init__()
        self._json = form == "json"
        self._clock = clock
        self._parts: list[str] = []
        self._waiting = 0
        self._descriptor = -1
        with contextlib.suppress(OSError):
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._descriptor = os.open(path, flags, 0o600)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def note(self, event: str, **facts: object) -> None:
        """Writes one line: the time, a word for the event, and facts (None is left out)."""
        known = {name: fact for name, fact in facts.items() if fact is not None}
        level = level_of(event)
        record = logging.LogRecord(LOGGER.name, level, __file__, 0, event, None, None)
        record.event, record.facts = event, known
        self.emit(record)
        if LOGGER.isEnabledFor(level):
            told = " ".join([event, *(f"{name}={_quoted(fact)}" for name, fact in known.items())])
            record.msg = told
            LOGGER.handle(record)

    def emit(self, record: logging.LogRecord) -> None:
        """Writes one line of the file."""
        event, known = str(getattr(record, "event", record.levelname)), dict(getattr(record, "facts", {}))
        at = rfc3339(self._clock())
        if self._json:
            # JSON escapes control characters itself; characters that reverse a terminal's text are escaped too.
            shown = {name: safe(fact) if isinstance(fact, str) else fact for name, fact in known.items()}
            line = msgspec.json.encode({"at": at, "event": event, **shown}, enc_hook=str).decode()
        else:
            line = " ".join([at, event, *(f"{name}={_quoted(fact)}" for name, fact in known.items())])
        self._parts.append(line + "\n")
        self._waiting += len(line)
        if self._waiting > JOURNAL_BUFFER_BYTES_MAX:
            self.flush()

    def flush(self) -> None:
        """Passes the lines to the operating system, without a sync."""
        if not self._parts:
            return
        text = "".join(self._parts).encode("utf-8", "backslashreplace")
        self._parts.clear()
        self._waiting = 0
        if self._descriptor >= 0:
            with contextlib.suppress(OSError):
                os.write(self._descriptor, text)

    def close(self) -> None:
        """Flushes and closes the file. A second call does nothing."""
        self.flush()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        super().close()


def _quoted(fact: object) -> str:
    if isinstance(fact, float):
        return f"{fact:.3f}"
    text = safe(fact)
    if text and not any(character in ' "=' for character in text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
