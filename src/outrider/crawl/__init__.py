"""The crawl: the loop of lease, fetch, read and report, and what is said about it.

`outrider.crawl` names this package and the function in it: `outrider.crawl(["https://example.org/"], output="example")`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outrider.crawl.loop import CrawlResult as CrawlResult
    from outrider.crawl.start import crawl as crawl
    from outrider.crawl.start import start as start

__all__ = ["CrawlResult", "crawl", "start"]


class _Callable(ModuleType):
    # Importing any file of this room makes `outrider.crawl` this module, whoever imported the function before.
    def __call__(self, seeds: Iterable[str] = (), **options: Any) -> CrawlResult:
        from outrider.crawl.start import crawl as blocking

        return blocking(seeds, **options)


sys.modules[__name__].__class__ = _Callable


def __getattr__(name: str) -> Any:
    # On first use: the loop brings libcurl and a parser along, which `outrider --help` need not wait for.
    if name in __all__:
        from outrider.crawl import loop, start

        return loop.CrawlResult if name == "CrawlResult" else getattr(start, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
