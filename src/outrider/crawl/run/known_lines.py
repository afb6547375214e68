"""Reads the line files of a crawl that are not projections of its frontier: what earlier runs found out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TypeVar

import msgspec

from outrider.storage.files import Files, lines_of

Line = TypeVar("Line", bound=msgspec.Struct)


def known_lines(files: Files, name: str, kind: type[Line], line_bytes_max: int) -> Iterator[tuple[Line, int]]:
    """Yields the synced lines of a file, each with its number of bytes; nothing for a missing file. It ends at a torn
    write, because later lines were never synced."""
    try:
        file = files.open(name)
    except FileNotFoundError:
        return
    with contextlib.closing(file):
        for octets in lines_of(file, line_bytes_max):
            try:
                line = msgspec.json.decode(octets, type=kind)
            except (msgspec.DecodeError, UnicodeDecodeError):
                return
            yield line, len(octets) + 1
