"""A drawing of lines over two logarithmic axes as one SVG: no library, nothing loaded from elsewhere."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 960, 520
LEFT, RIGHT, TOP, BOTTOM = 78, 300, 56, 58
LABEL_HEIGHT = 16  # two labels at the lines' ends are never closer
COLOURS = ("#0b6e74", "#7a3fa0", "#a86a00", "#b3261e", "#2f5fb3", "#4c7a1f", "#8a5a44", "#c0408a")
STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#5c6670}.title{font-size:15px;font-weight:600;fill:#1d2329}"
    ".paper{fill:#fbfaf7}.grid{stroke:#dcdad3;stroke-width:1}"
    "@media (prefers-color-scheme:dark){text{fill:#9aa4ad}.title{fill:#e6e8ea}.paper{fill:#14181c}"
    ".grid{stroke:#2c343b}}"
)


@dataclass(frozen=True)
class Line:
    """One line: points (x, y) above 0, at least one, x ascending. `ending` says why it ends where it does."""

    name: str
    points: tuple[tuple[float, float], ...]
    ours: bool = False  # drawn thicker
    ending: str = ""


def log_log(lines: Sequence[Line], *, title: str, x_title: str, y_title: str) -> str:
    """The drawing, axes in powers of ten. Raises ValueError when there is nothing to draw."""
    drawn = [line for line in lines if line.points]
    if not drawn:
        raise ValueError("no line has a point")
    x_first, x_last = _decades([x for line in drawn for x, _ in line.points])
    y_first, y_last = _decades([y for line in drawn for _, y in line.points])

    def across(x: float) -> float:
        return LEFT + (math.log10(x) - x_first) / (x_last - x_first) * (WIDTH - LEFT - RIGHT)

    def up(y: float) -> float:
        return HEIGHT - BOTTOM - (math.log10(y) - y_first) / (y_last - y_first) * (HEIGHT - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{html.escape(title)}</title><style>{STYLE}</style>",
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}"/>',
        f'<text class="title" x="{LEFT}" y="28">{html.escape(title)}</text>',
    ]
    for decade in range(x_first, x_last + 1):
        x = across(10.0**decade)
        parts += [
            f'<line class="grid" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}"/>',
            f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{_power(decade)}</text>',
        ]
    for decade in range(y_first, y_last + 1):
        y = up(10.0**decade)
        parts += [
            f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>',
            f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{_power(decade)}</text>',
        ]
    parts += [
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 16, x_title),
        _text(0, 0, y_title, f"translate(20 {(TOP + HEIGHT - BOTTOM) / 2:.0f}) rotate(-90)"),
    ]
    side = WIDTH - RIGHT + 10
    heights = _apart([up(line.points[-1][1]) for line in drawn])
    for row, line in enumerate(drawn):
        colour = COLOURS[row % len(COLOURS)]
        places = [(across(x), up(y)) for x, y in line.points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        end_x, end_y = places[-1]
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{3 if line.ours else 1.6}"'
            f' stroke-linejoin="round"{"" if line.ours or row % 2 else _DASHED}/>'
        )
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{4 if line.ours else 3}" fill="{colour}"/>' for x, y in places]
        label = html.escape(f"{line.name}: {line.ending}" if line.ending else line.name)
        parts += [
            f'<path d="M{end_x + 5:.1f} {end_y:.1f}L{side} {heights[row]:.1f}" stroke="{colour}" opacity=".5"/>',
            f'<text x="{side + 4}" y="{heights[row] + 4:.1f}" style="fill:{colour}">{label}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])


def _text(x: float, y: float, text: str, transform: str = "") -> str:
    turned = f' transform="{transform}"' if transform else ""
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="middle"{turned}>{html.escape(text)}</text>'


_DASHED = ' stroke-dasharray="6 3"'


def _decades(values: Sequence[float]) -> tuple[int, int]:
    """The powers of ten around these values, at least one apart."""
    first = math.floor(math.log10(min(values)) + 1e-9)
    return first, max(first + 1, math.ceil(math.log10(max(values)) - 1e-9))


def _apart(heights: Sequence[float]) -> list[float]:
    """Where labels are set that want to be at these heights: in the same order, none over another."""
    order = sorted(range(len(heights)), key=lambda row: heights[row])
    found = [0.0] * len(heights)
    low = -math.inf
    for row in order:
        low = found[row] = max(heights[row], low + LABEL_HEIGHT)
    over = low - (HEIGHT - BOTTOM)
    if over > 0:
        high = math.inf
        for row in reversed(order):
            high = found[row] = min(found[row], HEIGHT - BOTTOM if high == math.inf else high - LABEL_HEIGHT)
    return found


def _power(decade: int) -> str:
    return f"{10**decade:,}" if 0 <= decade <= 7 else f"1e{decade}"
