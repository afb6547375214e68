"""Outrider with a clock that is ahead: as if time had passed, or as if only the wall clock were wrong.

python clocked_outrider.py passed|wrong SECONDS ARGUMENTS...
"""

from __future__ import annotations

import sys

from outrider import clock

HOW, SECONDS, *ARGUMENTS = sys.argv[1:]
AHEAD = int(float(SECONDS) * 1_000_000)
wall, elapsed = clock.wall, clock.elapsed
clock.wall = lambda: wall() + AHEAD
if HOW == "passed":
    clock.elapsed = lambda: elapsed() + AHEAD

from outrider.cli.main import run  # noqa: E402 - behind the clocks

sys.exit(run(ARGUMENTS))
