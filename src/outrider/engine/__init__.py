"""One owner per frontier: callers queue, one sync serves many, and each answer is durable.

`Frontier` is the synchronous interface, `AsyncFrontier` the one for `await`. Both add a clock, a lock and a log to the
machine.
"""

from __future__ import annotations

from outrider.engine.awaited import AsyncFrontier
from outrider.engine.opening import Opening, Recovered
from outrider.engine.owner import Frontier

__all__ = ["AsyncFrontier", "Frontier", "Opening", "Recovered"]
