"""The kinds of values in columns of Python's objects; the plain twin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_PLAIN = frozenset({type(None), bytes, str})


def kinds_of(columns: Sequence[Sequence[Any]]) -> list[tuple[frozenset[type], int]]:
    """Returns for each column the types of its values, and the length of the longest; -1 for a value that is neither
    None nor bytes nor an ASCII text. Calls only Python's own methods of a value.

    Raises TypeError for a column that is not a list or tuple.
    """
    found: list[tuple[frozenset[type], int]] = []
    for values in columns:
        if not isinstance(values, list | tuple):
            raise TypeError(f"a column is a list or tuple, not {type(values).__name__}")
        kinds, longest = frozenset(map(type, values)), -1
        if kinds <= _PLAIN and all(value.isascii() for value in values if type(value) is str):
            longest = max((len(value) for value in values if value is not None), default=0)
        found.append((kinds, longest))
    return found
