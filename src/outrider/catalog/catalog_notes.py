"""How far each catalog of a crawl is: a small file for each in `DIR/catalogs/`, read by `status`.

The position that counts is in the catalog itself. A note may be some seconds old, or missing.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from typing import Final

import msgspec

from outrider.errors import OutriderError
from outrider.limits import CATALOG_COUNTED_BYTES_MAX, CATALOG_NOTE_BYTES_MAX, CATALOG_NOTES_MAX
from outrider.storage.files import Directory, replace

NOTES_FOLDER: Final = "catalogs"


class CatalogNote(msgspec.Struct, frozen=True):
    """The facts of one catalog. length: bytes of `pages.jsonl` whose lines it has. problem: why it does not follow, or
    "". cut: values that did not fit and were cut."""

    to: str
    lines: int = 0
    length: int = 0
    urls_as_of: str = ""
    cut: int = 0
    unreadable: int = 0
    problem: str = ""


def put_note(directory: str, note: CatalogNote) -> None:
    """Writes a note; one that cannot be written is left out."""
    name = hashlib.sha256(note.to.encode("utf-8", "surrogateescape")).hexdigest()[:16] + ".json"
    with contextlib.suppress(OutriderError, OSError):
        files = Directory(os.path.join(directory, NOTES_FOLDER))
        try:
            replace(files, name, msgspec.json.encode(note) + b"\n")
        finally:
            files.close()


def read_notes(directory: str) -> list[CatalogNote]:
    """Returns the notes of a crawl's catalogs, in the order of their addresses."""
    folder = os.path.join(directory, NOTES_FOLDER)
    found = []
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(folder))[:CATALOG_NOTES_MAX]:
            with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError):
                descriptor = os.open(os.path.join(folder, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
                with open(descriptor, "rb") as file:
                    found.append(msgspec.json.decode(file.read(CATALOG_NOTE_BYTES_MAX), type=CatalogNote))
    return sorted(found, key=lambda note: note.to)


def missing_lines(path: str, length: int) -> tuple[int, int]:
    """Returns how many lines and bytes of a file follow its first `length` bytes. Lines after the first
    `CATALOG_COUNTED_BYTES_MAX` bytes are estimated."""
    count, read = 0, 0
    with contextlib.suppress(OSError), open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(length)
        while read < CATALOG_COUNTED_BYTES_MAX and (data := file.read(1 << 20)):
            count += data.count(b"\n")
            read += len(data)
        left = max(0, size - length)
        return (count * left // read if read else 0), left
    return 0, 0
