"""Outrider: an embeddable, crash-proof, provably polite URL frontier with its own fast crawler."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from outrider.connections import add_way

__version__ = "0.1.0"

if TYPE_CHECKING:
    from outrider.crawl import Crawler as Crawler
    from outrider.crawl import crawl as crawl
    from outrider.engine import AsyncFrontier as AsyncFrontier
    from outrider.engine import Frontier as Frontier
    from outrider.errors import DamagedStoreError as DamagedStoreError
    from outrider.errors import InvalidUrlError as InvalidUrlError
    from outrider.errors import OutriderError as OutriderError
    from outrider.errors import StoreFullError as StoreFullError
    from outrider.errors import StoreInUseError as StoreInUseError
    from outrider.journey import Link as Link
    from outrider.journey import Outcome as Outcome
    from outrider.url import normalize as normalize

# Loaded on first use: `import outrider` costs nothing that is not used.
_PLACES = {
    "AsyncFrontier": "outrider.engine",
    "Crawler": "outrider.crawl",
    "DamagedStoreError": "outrider.errors",
    "Frontier": "outrider.engine",
    "InvalidUrlError": "outrider.errors",
    "Link": "outrider.journey",
    "Outcome": "outrider.journey",
    "OutriderError": "outrider.errors",
    "StoreFullError": "outrider.errors",
    "StoreInUseError": "outrider.errors",
    "crawl": "outrider.crawl",
    "normalize": "outrider.url",
}

__all__ = [
    "AsyncFrontier",
    "Crawler",
    "DamagedStoreError",
    "Frontier",
    "InvalidUrlError",
    "Link",
    "Outcome",
    "OutriderError",
    "StoreFullError",
    "StoreInUseError",
    "__version__",
    "crawl",
    "normalize",
]


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module 'outrider' has no attribute {name!r}")
    value = getattr(import_module(place), name)
    globals()[name] = value
    return value


def _connect_to_cluster(file: str, **how: Any) -> Any:
    from outrider.crawl.questions.cluster_frontier import connect

    return connect(file, **how)


add_way(lambda address: address.endswith(".toml") and "://" not in address, _connect_to_cluster)


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_PLACES))
