"""Columns of one value for all rows: memory contains the value once, and `is_constant` recognises such a column."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from outrider.storage.record_columns import distinct


def constant_column(value: int | float, rows: int, dtype: str) -> npt.NDArray[Any]:
    """A read-only column of `rows` rows with this value."""
    return np.ndarray((rows,), dtype, np.array([value], dtype), 0, (0,))


def is_constant(column: npt.NDArray[Any]) -> bool:
    """Whether `constant_column` made the column, and it has rows: then the first value is the value of each row."""
    return column.strides == (0,) and len(column) > 0


def chosen(column: npt.NDArray[Any], rows: npt.NDArray[np.intp]) -> npt.NDArray[Any]:
    """The values of these rows."""
    if column.strides == (0,):
        return column[: len(rows)] if len(rows) <= len(column) else column[rows]
    found: npt.NDArray[Any] = column[rows]
    return found


def by_value(column: npt.NDArray[Any]) -> Iterator[tuple[int, Any]]:
    """Each value of a column of whole numbers with the rows that have it; most columns have one value, which is
    cheap."""
    if not len(column):
        return
    first = column[0]
    if is_constant(column) or np.count_nonzero(column == first) == len(column):
        yield int(first), slice(None)
        return
    for value in distinct(column):
        yield int(value), np.flatnonzero(column == value)
