"""The interface of a running crawl for its server, which has its own thread and loop.

Queries are sent to the frontier at once, past the thread that writes. Orders and the status are sent to the crawl's
loop, like the orders over `control.sock`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from outrider.crawl.questions.control import Answer, Answers
from outrider.crawl.setup.permission import Admitted
from outrider.engine import Frontier
from outrider.journey import Code, Link, RequestId

Add = Callable[[Sequence[Link], RequestId | None], Awaitable[list[Code]]]
"""Adds links to the crawl, durably. Returns a code for each, in their order."""
Admit = Callable[[Sequence[str], bool], Awaitable[Admitted]]
"""Says which URLs may be added, and whether the store's owner adds them."""


@dataclass(frozen=True, slots=True)
class RunningCrawl:
    """A running crawl as its server sees it. `answers`, `add` and `admit` may be awaited in any loop."""

    directory: str
    frontier: Frontier
    answers: Answers
    add: Add
    admit: Admit


class SideServer(Protocol):
    """A server that ends with a crawl."""

    def open(self, crawl: RunningCrawl) -> str:
        """Starts to answer, and returns its address. Raises StoreError if a file cannot be written in the directory."""
        ...

    def close(self, *, at_once: bool = False) -> None:
        """Ends after the current answers; at_once: now. May be called twice, or without `open`."""
        ...


def across(loop: asyncio.AbstractEventLoop, answer: Answer) -> Answer:
    """Returns the same answer for callers in other loops, made in this one."""

    async def answered(question: Mapping[str, Any]) -> Any:
        async def made() -> Any:
            return await answer(question)

        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(made(), loop))

    return answered
