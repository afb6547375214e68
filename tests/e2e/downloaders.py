"""The downloaders of the contract: tests of fetching run on libcurl and, where it was built, on the fetch kernel."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import pytest

from e2e.hostile import Script, Site, hostile
from outrider.clock import wall
from outrider.fetch.curl import CurlDownloader
from outrider.fetch.native import NativeDownloader
from outrider.kernels import in_use

T = TypeVar("T")
AnyDownloader = CurlDownloader | NativeDownloader
KINDS: dict[str, type[AnyDownloader]] = {"curl": CurlDownloader}
if in_use() == "native":
    KINDS["native"] = NativeDownloader

_chosen = ["curl"]


@pytest.fixture(params=list(KINDS))
def each_downloader(request: pytest.FixtureRequest) -> Iterator[str]:
    """The kind of downloader that `new` makes in this test."""
    _chosen[0] = request.param
    yield request.param
    _chosen[0] = "curl"


def new(**options: Any) -> AnyDownloader:
    """A downloader of the kind that this test is about."""
    return KINDS[_chosen[0]](**{"clock": wall, **options})


def run(script: Script, act: Callable[[AnyDownloader, Site], Awaitable[T]], **options: Any) -> T:
    """The answer of `act`, which has such a downloader, made with these options, and a site that follows the script."""

    async def main() -> T:
        async with hostile(script) as site:
            downloader = new(**options)
            try:
                return await act(downloader, site)
            finally:
                await downloader.close()

    return asyncio.run(main())


def lines_to_make() -> str:
    """The import that a process of its own needs for `Downloader(clock=…)` to be of the kind that a test is about."""
    made = KINDS[_chosen[0]]
    return f"from {made.__module__} import {made.__name__} as Downloader"


__all__ = ["AnyDownloader", "each_downloader", "lines_to_make", "new", "run"]
