"""Makes docs/lives.md and its drawings, docs/pictures/life-*.svg, from the tables of `frontier/policy/lives.py`.

A drawing has a vertical line for each state and an arrow for each row of the table, so it needs no layout by hand.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

from outrider.frontier.policy.lives import LIVES, Life

DOCS = Path(__file__).resolve().parent.parent / "docs"
COLUMN, ROW, TOP = 118, 30, 56
INK, PALE = "#1f4e79", "#c8d3de"
ARTICLES = {"URL": "a URL", "lease": "a lease", "host": "a host"}
HEAD = """# The lives of a URL, a lease and a host

A frontier moves URLs, leases and hosts between a few states. The tables of this page contain every move: the old
state, the event, the new state, and the file below `src/outrider/frontier` that decides. `explain` uses the same words
for states. A call that would make any other move of a URL is refused with `TransitionError`, and nothing of it is
logged. `python scripts/lives.py` makes this page and its drawings from `policy/lives.py`.

One event may lead to several states. A URL that is discovered, deferred or reported waits if it is due later, and is
queued if it is due now. Beyond a budget or as a trap it is parked. A failure leads to `gone` if it was the last
attempt, and a lost lease does if it is the fifth in a row. The state of a host is not stored: each query derives it
from its clock, its open requests and its queues.
"""


def drawn(life: Life) -> str:
    """Returns the drawing of a life, as SVG."""
    places = {state: COLUMN // 2 + number * COLUMN for number, state in enumerate(life.states)}
    width, height = COLUMN * len(places), TOP + ROW * len(life.moves) + 16
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">',
        '<g font-family="sans-serif" font-size="12">',
        f"<title>The life of {ARTICLES[life.name]}</title>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
        '<marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">',
        f'<path d="M0 0L8 4L0 8z" fill="{INK}"/></marker>',
    ]
    for state, x in places.items():
        out.append(f'<path d="M{x} 36V{height - 8}" stroke="{PALE}"/>')
        out.append(f'<rect x="{x - 48}" y="10" width="96" height="26" rx="6" fill="{INK}"/>')
        out.append(f'<text x="{x}" y="27" fill="white" text-anchor="middle">{escape(state)}</text>')
    for number, move in enumerate(life.moves):
        y, start, end = TOP + ROW * number + 12, places[move.state], places[move.then]
        line = f"M{start} {y}H{end}" if start != end else f"M{start} {y - 5}h24v10h-24"
        middle = (start + end) // 2 if start != end else start + 28
        anchor = "middle" if start != end else "start"
        out.append(f'<circle cx="{start}" cy="{y if start != end else y - 5}" r="3" fill="{INK}"/>')
        out.append(f'<path d="{line}" fill="none" stroke="{INK}" marker-end="url(#end)"/>')
        out.append(
            f'<text x="{middle}" y="{y - 5 if start != end else y + 4}" text-anchor="{anchor}" stroke="white" '
            f'stroke-width="4" paint-order="stroke">{escape(move.event)}</text>'
        )
    return "\n".join([*out, "</g></svg>", ""])


def page() -> str:
    """Returns docs/lives.md."""
    out = [HEAD]
    for life in LIVES:
        name = ARTICLES[life.name]
        out += [
            f"## The life of {name}",
            "",
            f"![The states of {name} and the events between them]({picture(life)})",
            "",
        ]
        out += [
            "| state | meaning |",
            "|---|---|",
            *(f"| `{state}` | {told} |" for state, told in life.states.items()),
            "",
        ]
        out += ["| state | event | next state | decided by |", "|---|---|---|---|"]
        out += [f"| `{one.state}` | {one.event} | `{one.then}` | `{one.decides}` |" for one in life.moves]
        out.append("")
    return "\n".join(out)


def picture(life: Life) -> str:
    """Returns the path of the drawing of a life, below docs/."""
    return f"pictures/life-{life.name.lower()}.svg"


def files() -> dict[str, str]:
    """Returns the text of each made file, by its path below docs/."""
    return {"lives.md": page()} | {picture(life): drawn(life) for life in LIVES}


if __name__ == "__main__":
    for name, text in files().items():
        (DOCS / name).write_text(text, "utf-8")
