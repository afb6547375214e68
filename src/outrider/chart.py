"""Scales, axes and marks of an SVG picture, without a library and without anything loaded from elsewhere.

The report, `outrider sim utilisation` and the benches draw with it. A picture is part of a page and uses its style
(`COLOURS` and `MARKS` belong in it), or it is alone, with its own style for light and for dark screens. Lengths are in
units of the drawing (SVG user units). Every text is escaped here; callers make control characters visible before.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Self

Anchor = Literal["start", "middle", "end"]

_LIGHT: Final = (
    "--paper:#fbfaf7;--ink:#1d2329;--soft:#5c6670;--line:#dcdad3;--card:#fff;--mark:#0b6e74;--rest:#e3e8e2;"
    "--bad:#b3261e;--robots:#a86a00"
)
_DARK: Final = (
    "--paper:#14181c;--ink:#e6e8ea;--soft:#9aa4ad;--line:#2c343b;--card:#1a2026;--mark:#5cc2c2;--rest:#273038;"
    "--bad:#ff8a80;--robots:#f0b35a"
)
MARKS: Final = (
    ".name,.title,.value{fill:var(--ink)}.title{font-size:16px;font-weight:600}.paper{fill:var(--paper)}"
    ".mark{fill:var(--mark)}.rest{fill:var(--rest)}.robots{fill:var(--robots)}.early{fill:var(--bad)}"
    ".axis{stroke:var(--line);stroke-width:1}.law{fill:none;stroke:var(--robots);stroke-width:2}"
)
"""The style of each class of a drawing."""
SERIES: Final = ("#0b6e74", "#7a3fa0", "#a86a00", "#b3261e", "#2f5fb3", "#4c7a1f", "#8a5a44", "#c0408a")
"""Colours of neighbouring lines, readable on light and dark paper."""


def colours(selector: str) -> str:
    """The colours as CSS variables below a selector, for light and for dark screens."""
    return (
        f"{selector}{{color-scheme:light dark;{_LIGHT}}}@media (prefers-color-scheme:dark){{{selector}{{{_DARK}}}}}\n"
    )


@dataclass(frozen=True, slots=True)
class Scale:
    """Values from `first` to `last` on the stretch from `start` to `end`; by their logarithms where `log` is set."""

    first: float
    last: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Returns the position of a value."""
        first, last, at = (math.log10(one) for one in (self.first, self.last, value)) if self.log else (
            self.first, self.last, value
        )  # fmt: skip
        return self.start + (at - first) / (last - first) * (self.end - self.start)


class Drawing:
    """The elements of one picture, in the order in which they are added: a later one covers an earlier one."""

    def __init__(self, width: float, height: float, title: str, *, alone: bool) -> None:
        """Makes an empty picture. `alone` adds paper, a style and a visible title."""
        box = f'viewBox="0 0 {width:g} {height:g}" role="img"'
        if alone:
            style = f"{colours('svg')}text{{font:13px system-ui,sans-serif;fill:var(--soft)}}{MARKS}"
            self._parts = [
                f'<svg xmlns="http://www.w3.org/2000/svg" {box}>',
                f"<title>{html.escape(title)}</title>",
                f"<style>{style}</style>",
                f'<rect class="paper" width="{width:g}" height="{height:g}"/>',
            ]
        else:
            self._parts = [f'<svg {box} aria-label="{html.escape(title)}">']

    def __str__(self) -> str:
        return "\n".join([*self._parts, "</svg>", ""])

    def text(
        self, x: float, y: float, text: str, *, anchor: Anchor = "start", kind: str = "", colour: str = "",
        upwards: bool = False,
    ) -> Self:  # fmt: skip
        """A line of text at its anchor; `upwards` turns it by a quarter."""
        about = f' class="{kind}"' if kind else ""
        about += f' style="fill:{colour}"' if colour else ""
        about += f' transform="rotate(-90 {x:.1f} {y:.1f})"' if upwards else ""
        self._parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{about}>{html.escape(text)}</text>')
        return self

    def line(self, x1: float, y1: float, x2: float, y2: float) -> Self:
        """A line of the grid."""
        self._parts.append(f'<line class="axis" x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}"/>')
        return self

    def box(self, x: float, y: float, width: float, height: float) -> Self:
        """A filled bar."""
        self._parts.append(f'<rect class="mark" x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}"/>')
        return self

    def dot(self, x: float, y: float, radius: float, *, colour: str = "") -> Self:
        """A filled circle."""
        paint = f'fill="{colour}"' if colour else 'class="mark"'
        self._parts.append(f'<circle {paint} cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"/>')
        return self

    def curve(
        self, points: Iterable[tuple[float, float]], *, kind: str = "", colour: str = "", width: float = 2.0,
        dashed: bool = False,
    ) -> Self:  # fmt: skip
        """A line through points."""
        about = f'class="{kind}"' if kind else f'fill="none" stroke="{colour}" stroke-width="{width:g}"'
        about += ' stroke-dasharray="6 3"' if dashed else ""
        places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._parts.append(f'<polyline points="{places}" {about} stroke-linejoin="round"/>')
        return self

    def leader(self, x1: float, y1: float, x2: float, y2: float, colour: str) -> Self:
        """A thin line from a mark to its label."""
        self._parts.append(f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" stroke="{colour}" opacity=".5"/>')
        return self

    def boxes(self, kind: str, boxes: Sequence[tuple[float, float, float, float]]) -> Self:
        """Draws many bars (x, y, width, height) of one class as one path; draws nothing for an empty list."""
        if boxes:
            path = "".join(f"M{x:.1f} {y:g}h{wide:.1f}v{tall:g}h-{wide:.1f}z" for x, y, wide, tall in boxes)
            self._parts.append(f'<path class="{kind}" d="{path}"/>')
        return self

    def rows(self, scale: Scale, ticks: Iterable[tuple[float, str]], left: float, right: float) -> Self:
        """The grid of a vertical scale, a text left of each line."""
        for value, text in ticks:
            y = scale(value)
            self.line(left, y, right, y).text(left - 8, y + 4, text, anchor="end")
        return self

    def times(self, scale: Scale, y: float, *, end: str = "") -> Self:
        """A horizontal axis of seconds from 0, with whole numbers of one unit below it. end: the text at its end."""
        self.line(scale.start, y, scale.end, y)
        room = LETTER_WIDTH * (len(end) + 3) if end else 0.0
        if end:
            self.text(scale.end, y + 16, end, anchor="end")
        beyond = -1.0
        for tick in time_ticks(scale.last):
            x = scale(tick)
            if end and (x > scale.end - room or x < beyond):
                continue
            beyond = x + LETTER_WIDTH * 5
            anchor: Anchor = "end" if x > scale.end - 20 else "start" if tick == 0 else "middle"
            self.text(x, y + 16, tick_text(tick, scale.last), anchor=anchor)
        return self


def round_ticks(length: float) -> Iterator[float]:
    """Round places on an axis of `length` units: 4 to 10 of them."""
    step = 10.0**-3
    while length / step > 10:
        for factor in (2.0, 2.5, 2.0):
            step *= factor
            if length / step <= 10:
                break
    count = 0
    while count * step <= length * 1.0001:
        yield count * step
        count += 1


_TIME_STEPS: Final = (
    *(1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1_200, 1_800),
    *(3_600, 7_200, 14_400, 21_600, 43_200),
)
_DAY: Final = 86_400


def time_ticks(length: float) -> Iterator[float]:
    """Places on an axis of `length` seconds that are whole in the unit of their text: 3 to 10 of them."""
    if length <= 10:
        yield from round_ticks(length)
        return
    days = (factor * 10**power * _DAY for power in range(9) for factor in (1, 2, 5))
    _, size = _unit(length)
    step = next(step for step in (*_TIME_STEPS, *days) if step % size == 0 and length / step <= 10)
    yield from (float(count * step) for count in range(int(length * 1.0001 / step) + 1))


def tick_text(seconds: float, span: float) -> str:
    """A place on an axis of `span` seconds, in the unit of the axis."""
    unit, size = _unit(span)
    return f"{seconds / size:g} {unit}"


def _unit(span: float) -> tuple[str, int]:
    """The unit of an axis of `span` seconds: its name and its seconds."""
    for unit, size, most in (("s", 1, 120), ("min", 60, 7_200), ("h", 3_600, 4 * _DAY)):
        if span < most:
            return unit, size
    return "d", _DAY


LETTER_WIDTH: Final = 7  # about the widest of a text on an axis
LABEL_HEIGHT: Final = 16  # two labels at the ends of lines are never closer


@dataclass(frozen=True)
class ChartLine:
    """One line: points (x, y) above 0, x ascending. `ending` says why it ends where it does."""

    name: str
    points: tuple[tuple[float, float], ...]
    ours: bool = False  # drawn thicker
    ending: str = ""


def log_log(lines: Sequence[ChartLine], *, title: str, x_title: str, y_title: str) -> str:
    """Lines over two axes in powers of ten, each named at its end. Raises ValueError when there is nothing to draw."""
    drawn = [line for line in lines if line.points]
    if not drawn:
        raise ValueError("no line has a point")
    width, height, left, right, top = 960.0, 520.0, 78.0, 660.0, 56.0
    floor = height - 58.0
    columns = _decades([x for line in drawn for x, _ in line.points])
    rows = _decades([y for line in drawn for _, y in line.points])
    across = Scale(10.0 ** columns[0], 10.0 ** columns[-1], left, right, log=True)
    up = Scale(10.0 ** rows[0], 10.0 ** rows[-1], floor, top, log=True)
    made = Drawing(width, height, title, alone=True).text(left, 28, title, kind="title")
    for decade in columns:
        x = across(10.0**decade)
        made.line(x, top, x, floor).text(x, floor + 18, _power(decade), anchor="middle")
    made.rows(up, [(10.0**decade, _power(decade)) for decade in rows], left, right)
    made.text((left + right) / 2, height - 16, x_title, anchor="middle")
    made.text(20, (top + floor) / 2, y_title, anchor="middle", upwards=True)
    side = right + 10
    heights = _spread([up(line.points[-1][1]) for line in drawn], floor)
    for row, line in enumerate(drawn):
        colour = SERIES[row % len(SERIES)]
        places = [(across(x), up(y)) for x, y in line.points]
        made.curve(places, colour=colour, width=3 if line.ours else 1.6, dashed=not line.ours and row % 2 == 0)
        for x, y in places:
            made.dot(x, y, 4 if line.ours else 3, colour=colour)
        end_x, end_y = places[-1]
        label = f"{line.name}: {line.ending}" if line.ending else line.name
        made.leader(end_x + 5, end_y, side, heights[row], colour)
        made.text(side + 4, heights[row] + 4, label, colour=colour)
    return str(made)


def _decades(values: Sequence[float]) -> range:
    """The powers of ten around these values, at least two."""
    first = math.floor(math.log10(min(values)) + 1e-9)
    return range(first, max(first + 1, math.ceil(math.log10(max(values)) - 1e-9)) + 1)


def _spread(heights: Sequence[float], floor: float) -> list[float]:
    """Returns heights for labels near the wanted ones: in the same order, without overlap, none below `floor`."""
    order = sorted(range(len(heights)), key=lambda row: heights[row])
    found = [0.0] * len(heights)
    low = -math.inf
    for row in order:
        low = found[row] = max(heights[row], low + LABEL_HEIGHT)
    if low > floor:
        high = math.inf
        for row in reversed(order):
            high = found[row] = min(found[row], floor if high == math.inf else high - LABEL_HEIGHT)
    return found


def _power(decade: int) -> str:
    return f"{10**decade:,}" if 0 <= decade <= 7 else f"1e{decade}"
