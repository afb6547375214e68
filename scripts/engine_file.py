"""Puts a made file of `outrider.engine` into the package that is imported, or prints it: for scripts that make one."""

from __future__ import annotations

import importlib
from pathlib import Path


def put(name: str, text: str, given: list[str]) -> int:
    """Writes the file `name`, or prints its text for `--print`. Returns the exit code."""
    if given == ["--print"]:
        print(text, end="")
        return 0
    where = importlib.import_module("outrider.engine").__file__
    assert where is not None
    Path(where).with_name(name).write_text(text, "utf-8")
    return 0
