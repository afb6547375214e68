"""DIR/audit.jsonl: a line for each order, written and synced before the order is answered."""

from __future__ import annotations

import os
from typing import Any, Final

import msgspec

from outrider.clock import rfc3339, wall
from outrider.crawl.output.terminal import safe
from outrider.errors import StoreFailedError

AUDIT_FILE: Final = "audit.jsonl"


class Audit:
    """Appends lines to the file. The owner of the store opens it once."""

    def __init__(self, directory: str) -> None:
        self._path = os.path.join(directory, AUDIT_FILE)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._descriptor = os.open(self._path, flags, 0o600)
        except OSError as error:
            raise StoreFailedError(f"{self._path} cannot be written ({error.strerror})") from None

    def note(self, who: str, order: str, **facts: Any) -> None:
        """Writes one line: time, client, order, and its target. Raises StoreFailedError."""
        told = {name: safe(fact) if isinstance(fact, str) else fact for name, fact in facts.items() if fact is not None}
        line = msgspec.json.encode({"at": rfc3339(wall()), "who": who, "order": order, **told}) + b"\n"
        try:
            # A disk that becomes full may store a part of the line.
            while line:
                line = line[os.write(self._descriptor, line) :]
            os.fsync(self._descriptor)
        except OSError as error:
            raise StoreFailedError(f"{self._path} cannot be written ({error.strerror})") from None

    def close(self) -> None:
        """Closes the file."""
        os.close(self._descriptor)
