"""Outrider with a small part of --memory for seen keys: with 64M they go to disk from the first hundreds on, with 2G
they stay in memory. FILE: at the end it has the number of runs that were written.

python spilling_outrider.py FILE ARGUMENTS...
"""

from __future__ import annotations

import sys
from pathlib import Path

from outrider import limits

limits.SEEN_MEMORY_SHARE = 1 << 11
limits.SEEN_FRESH_SHARE = 1 << 40
limits.SEEN_FRESH_KEYS_MIN = 50
limits.SEEN_STEP_KEYS = 20

from outrider.cli.main import run  # noqa: E402 - behind the limits
from outrider.frontier.stores.recent import Recent  # noqa: E402
from outrider.storage.key_runs import KeyRun, KeyRunWriter  # noqa: E402

Recent.note = lambda self, marks: None  # type: ignore[method-assign]  # it would answer for most URLs
finish, runs = KeyRunWriter.finish, []


def counted(self: KeyRunWriter) -> KeyRun:
    """As before, and the run counts."""
    runs.append(finish(self))
    return runs[-1]


KeyRunWriter.finish = counted  # type: ignore[method-assign]
code = run(sys.argv[2:])
Path(sys.argv[1]).write_text(str(len(runs)))
sys.exit(code)
