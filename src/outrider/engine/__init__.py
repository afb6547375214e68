"""One owner per frontier: callers queue, one sync serves many, and nothing is answered before it is durable.

`Frontier` is the synchronous face, `AsyncFrontier` the awaitable one; both put a clock, a lock and a log behind the
machine.
"""

from __future__ import annotations

from outrider.engine.awaited import AsyncFrontier
from outrider.engine.opening import Opening, Recovered
from outrider.engine.owner import Frontier

__all__ = ["AsyncFrontier", "Frontier", "Opening", "Recovered"]
