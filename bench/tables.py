"""The results of a bench as rows under headings: printed for people, stored as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True)
class Table:
    """One comparison. `notes` are its conditions. A cell is text or a number."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    notes: tuple[str, ...] = field(default=())

    def as_json(self) -> dict[str, object]:
        return asdict(self)

    def lines(self) -> list[str]:
        """Returns the table as text, with numbers aligned to the right."""
        texts = [self.columns, *(tuple(map(_shown, row)) for row in self.rows)]
        widths = [max(len(row[place]) for row in texts) for place in range(len(self.columns))]
        said = [self.title, ""]
        for place, row in enumerate(texts):
            cells = [
                text.ljust(width) if not column else text.rjust(width)
                for column, (text, width) in enumerate(zip(row, widths, strict=True))
            ]
            said.append("  " + "  ".join(cells).rstrip())
            if place == 0:
                said.append("  " + "  ".join("-" * width for width in widths))
        return [*said, *(f"  {note}" for note in self.notes), ""]


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else "-" if value is None else str(value)


def ratio(theirs: float | None, ours: float | None) -> str | None:
    """Returns the other cost as a multiple of ours: `4.1x`."""
    return f"{theirs / ours:.2f}x" if theirs and ours else None


def middle(values: Sequence[float]) -> float:
    """The median."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def quantile(values: Sequence[float], share: float) -> float:
    """Returns the smallest value that `share` of all do not exceed; the largest for 1."""
    ordered = sorted(values)
    return ordered[max(0, min(len(ordered), math.ceil(share * len(ordered))) - 1)]
