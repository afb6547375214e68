"""Trains whose requests are permitted one by one: the downloader gets each request only if it may be sent now.

A node of a cluster needs this. After a pause of its machine another node may own the hosts of its trains, and a
downloader that has the rest of a train would send it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from outrider.fetch.downloader import Beginner, Request, Tag
from outrider.fetch.stepped_trains import SteppedTrains


class CheckedTrains(SteppedTrains):
    """A `Beginner` that passes single fetches to another one. A fetch that is not permitted is released."""

    def __init__(self, downloader: Beginner, may_send: Callable[[Any], bool]) -> None:
        """may_send: whether the request of a fetch may be sent now, by its tag."""
        super().__init__()
        self._downloader, self._permitted = downloader, may_send

    def _may_send(self, tag: Tag) -> bool:
        return self._permitted(tag)

    def _fetch(self, tag: Tag, request: Request) -> None:
        self._downloader.begin([(tag, request)], self._answered)

    def _interrupt(self, tag: Tag) -> None:
        self._downloader.cancel(tag)

    def rest(self, resting: bool) -> None:
        """As `Beginner.rest`."""
        self._downloader.rest(resting)

    async def close(self) -> None:
        """As `Beginner.close`."""
        await self._downloader.close()
