"""A view of a crawl that is drawn again and again: its status, and its pages a second as bars."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, TextIO

from outrider.crawl.output.terminal import drawable, safe

BARS: Final = " ▁▂▃▄▅▆▇█"
MOMENTS: Final = 60
"""How many bars a view has, one for each time that it is drawn."""
_HOME: Final = "\x1b[H"
_LINE_REST: Final = "\x1b[K"
_PAGE_REST: Final = "\x1b[J"
_CLEAR: Final = "\x1b[2J"

Status = tuple[int, Sequence[str]]
"""The number of fetched pages, and the lines of the status."""


def bars(rates: Sequence[float]) -> str:
    """Returns a bar for each rate. The bar of the highest one is full."""
    most = max(rates, default=0.0) or 1.0
    return "".join(BARS[math.ceil(rate / most * (len(BARS) - 1))] for rate in rates)


def watch(
    look: Callable[[], Status],
    stream: TextIO,
    *,
    title: str,
    every: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> None:
    """Draws the view until `sleep` raises. A stream that is not a terminal gets it once.

    look: asks the crawl; title: the first line; every: the seconds between two pictures; clock: monotonic seconds.
    """
    rates: deque[float] = deque(maxlen=MOMENTS)
    moves = drawable(stream)
    if moves:
        stream.write(_CLEAR)
    before: tuple[float, int] | None = None
    while True:
        pages, lines = look()
        now = clock()
        if before is not None and now > before[0]:
            rates.append(max(0, pages - before[1]) / (now - before[0]))
        before = now, pages
        shown = [title, *lines]
        if rates:
            shown.append(f"pages/s     {rates[-1]:.1f} now  |{bars(rates)}|  {max(rates):.1f} at most")
        if not moves:
            stream.writelines(f"{safe(line)}\n" for line in shown)
            return
        stream.write(_HOME + "".join(f"{safe(line)}{_LINE_REST}\n" for line in shown) + _PAGE_REST)
        stream.flush()
        sleep(every)
