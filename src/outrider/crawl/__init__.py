"""The crawl: the loop of lease, fetch, read and report, and the words about it.

`outrider.crawl` names this package and the function in it: `outrider.crawl(["https://example.org/"], output="here")`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outrider.crawl.crawler import Crawler as Crawler
    from outrider.crawl.crawler import crawl as crawl
    from outrider.crawl.hooks import CrawledPage as CrawledPage
    from outrider.crawl.options import CrawlOptions as CrawlOptions
    from outrider.crawl.pages import CrawlPages as CrawlPages
    from outrider.crawl.run import CrawlResult as CrawlResult

__all__ = ["CrawlOptions", "CrawlPages", "CrawlResult", "CrawledPage", "Crawler", "crawl"]

_PLACES = {
    "CrawlOptions": "options",
    "CrawlPages": "pages",
    "CrawlResult": "loop",
    "CrawledPage": "hooks",
    "Crawler": "crawler",
    "crawl": "crawler",
}


class _Callable(ModuleType):
    # Importing any file of this package binds `outrider.crawl` to this module, also after an import of the function.
    def __call__(self, seeds: Iterable[str] = (), **options: Any) -> Any:
        from outrider.crawl.crawler import crawl as blocking

        return blocking(seeds, **options)


sys.modules[__name__].__class__ = _Callable


def __getattr__(name: str) -> Any:
    # On first use: the loop brings downloaders and a parser along, which `outrider --help` need not wait for.
    place = _PLACES.get(name)
    if place is not None:
        return getattr(import_module(f"outrider.crawl.{place}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
