"""Pages that ended for a cause on our own side, and return when a new process may do better.

With a guard that permits more, another name service or another certificate authority, a failed page may succeed. A
crawl that fetched nothing at all always tries again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from outrider.crawl.output.summary import counted
from outrider.crawl.setup.options import CrawlOptions, Given, resolved
from outrider.engine import Frontier
from outrider.errors import SettingsError
from outrider.fetch.failures import FetchError

ERRORS_OF: Final[Mapping[str, tuple[FetchError, ...]]] = {
    "allow_address": (FetchError.BLOCKED_ADDRESS,),
    "contact": (FetchError.BLOCKED_ADDRESS,),
    "hosts": (FetchError.BLOCKED_ADDRESS, FetchError.DNS_UNKNOWN, FetchError.DNS_TEMPORARY),
    "resolver": (FetchError.DNS_UNKNOWN, FetchError.DNS_TEMPORARY),
    "ca": (FetchError.TLS,),
}
"""The errors whose cause may be a setting."""
_OF_SITES: Final = frozenset({FetchError.NOT_WELCOME, FetchError.ASKS_SIGNATURE, FetchError.BLOCKED_PORT})
OWN_SIDE: Final = tuple(error for error in FetchError if error not in _OF_SITES)
"""The errors whose cause may be on our own side."""


def retry_own_faults(frontier: Frontier, before: Given, options: CrawlOptions) -> dict[str, int]:
    """Queues these pages again, before the first lease of a process. before: the earlier settings of outrider.toml.
    Returns their number by class of error."""
    statistics = frontier.statistics()
    known: Mapping[str, int] = statistics["errors"]  # type: ignore[assignment]
    if not known:
        return {}
    urls: Mapping[str, int] = statistics["urls"]  # type: ignore[assignment]
    errors = OWN_SIDE if not urls["done"] else _of_changed(before, options)
    counts = {str(error): frontier.retry(error=str(error)) for error in errors if str(error) in known}
    return {error: count for error, count in counts.items() if count}


def words_of(back: Mapping[str, int]) -> str:
    """Returns one line about pages that were queued again."""
    return "tried again: " + ", ".join(f"{counted(count, 'URL')} ({error})" for error, count in back.items())


def _of_changed(before: Given, options: CrawlOptions) -> tuple[FetchError, ...]:
    """Returns the errors of settings that have changed."""
    if not before:
        return ()
    try:
        old = resolved({}, {}, before, options.output)
    except SettingsError:
        return ()  # a value that this version cannot read
    changed = [name for name in ERRORS_OF if getattr(old, name) != getattr(options, name)]
    return tuple(dict.fromkeys(error for name in changed for error in ERRORS_OF[name]))
