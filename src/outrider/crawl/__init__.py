"""The crawl: the loop of lease, fetch, read and report, and the words about it.

`outrider.crawl` names this package and the function in it: `outrider.crawl(["https://example.org/"], output="here")`.

The rooms follow the journey of a URL. A file imports its own room and the rooms above it in this list:

    setup/      settings, seeds and the directory
    output/     archive, line files, and text for people
    run/        lease, fetch, read, report, until no URL is left
    questions/  questions, to a running crawl or to its files
    orders/     export, import, repair and a fresh start

    cluster_run.py  a crawl on many machines, as one of its nodes
    crawler.py      `outrider.crawl(…)` and `Crawler`, for programs
    local_run.py    a crawl with its frontier in this process
    page_stream.py  the pages of a running crawl, as an iterator
    start.py        from options and seeds to a run, and from its end to summary and report
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
    from outrider.crawl.local_run import CrawlResult as CrawlResult
    from outrider.crawl.page_stream import CrawlPages as CrawlPages
    from outrider.crawl.run.hooks import CrawledPage as CrawledPage
    from outrider.crawl.setup.options import CrawlOptions as CrawlOptions

__all__ = ["CrawlOptions", "CrawlPages", "CrawlResult", "CrawledPage", "Crawler", "crawl"]

_PLACES = {
    "CrawlOptions": "setup.options",
    "CrawlPages": "page_stream",
    "CrawlResult": "local_run",
    "CrawledPage": "run.hooks",
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
