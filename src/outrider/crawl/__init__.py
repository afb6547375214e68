"""The crawl: the loop of lease, fetch, read and report, and the words about it.

`outrider.crawl` names this package and the function in it: `outrider.crawl(["https://example.org/"], output="here")`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outrider.crawl.loop import CrawlResult as CrawlResult
    from outrider.crawl.start import crawl as crawl

__all__ = ["CrawlResult", "crawl"]


class _Callable(ModuleType):
    # Importing any file of this package binds `outrider.crawl` to this module, also after an import of the function.
    def __call__(self, seeds: Iterable[str] = (), **options: Any) -> CrawlResult:
        from outrider.crawl.start import crawl as blocking

        return blocking(seeds, **options)


sys.modules[__name__].__class__ = _Callable


def __getattr__(name: str) -> Any:
    # On first use: the loop brings libcurl and a parser along, which `outrider --help` need not wait for.
    if name == "crawl":
        from outrider.crawl.start import crawl as blocking

        return blocking
    if name == "CrawlResult":
        from outrider.crawl.loop import CrawlResult as Result

        return Result
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
