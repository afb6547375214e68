"""Omissions of a crawl: parked URLs, skipped links, seeds that are not URLs. Each reason has its
number and the command that lists it (pure: counts in, rows out).
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from outrider.crawl.output.summary import counted, ranked
from outrider.crawl.setup.options import CrawlOptions
from outrider.frontier.policy.budgets import PARKING
from outrider.journey import Word
from outrider.url.traps import BY_MIRROR, RULES
from outrider.uses import USE_REFUSED

BAD_SEEDS: Final = "bad_seeds"
BAD_SEED: Final = "bad_seed"
"""The event of crawl.log for a seed that is not a URL."""
COPY: Final = "copy"
OVER_LIMIT: Final = "over_limit"
SOFT_404: Final = "soft_404"
ROBOTS: Final = "robots"
USE_LINKS: Final = "use_links"
"""Links of pages whose answers were not kept because of --use. Pages that were not requested are parked as `use`."""
TRAP: Final = "trap"
BUDGET: Final = "budget"

_FLAGS: Final = " or ".join(budget.flag for budget in PARKING)

_PARKED: Final = {
    **dict.fromkeys(RULES, ("URL that looks like a trap", "URLs that look like traps")),
    RULES[BY_MIRROR - 1]: ("URL that looks like a mirror", "URLs that look like mirrors"),
    ROBOTS: ("page closed by robots.txt", "pages closed by robots.txt"),
    USE_REFUSED: ("page whose site refuses a use of --use", "pages whose site refuses a use of --use"),
    "payment": ("page whose site asks for payment", "pages whose site asks for payment"),
    "robots_unreachable": ("page whose robots.txt cannot be read", "pages whose robots.txt cannot be read"),
    BUDGET: (f"URL over the limit of {_FLAGS}", f"URLs over the limit of {_FLAGS}"),
}
_LINKS: Final = {
    "scope": ("link outside the scope", "links outside the scope"),
    OVER_LIMIT: ("link over a limit of length or number", "links over a limit of length or number"),
    "nofollow": ("link with nofollow", "links with nofollow"),
    COPY: ("link of a copy of another page", "links of copies of other pages"),
    SOFT_404: ("link of a page that looks like an error page", "links of pages that look like error pages"),
}
_USE_LINKS: Final = ("link of a page that is not kept by --use", "links of pages that are not kept by --use")
_SEEDS: Final = ("seed that is not a URL", "seeds that are not URLs")


@dataclass(frozen=True, slots=True)
class Omission:
    """One reason: its word, the number of URLs, links or seeds, the same in words, and the command that lists
    them."""

    reason: str
    count: int
    text: str
    command: str


def omission_counts(
    statistics: Mapping[str, Any], parked: Mapping[str, int], not_followed: Mapping[str, int], bad_seeds: int
) -> dict[str, int]:
    """Returns the counts by reason. parked: URLs by the reason why they are parked. not_followed: links by reason."""
    links = {USE_LINKS if name == USE_REFUSED else name: count for name, count in not_followed.items() if name != TRAP}
    found = {**parked, **links}
    found[OVER_LIMIT] = found.get(OVER_LIMIT, 0) + statistics.get("too_long", 0) + statistics.get("refused", 0)
    found[BAD_SEEDS] = bad_seeds
    return {name: count for name, count in ranked(found) if count}


def rows_of(counts: Mapping[str, int], directory: str) -> list[Omission]:
    """Returns a row for each reason: parked URLs first, then links, then seeds."""
    place = shlex.quote(directory)
    rows: list[Omission] = []
    for reason, count in counts.items():
        if reason == BAD_SEEDS:
            rows.append(Omission(reason, count, counted(count, *_SEEDS), f"grep {BAD_SEED} {place}/crawl.log"))
        elif reason in _LINKS:
            command = f"outrider skipped {place} --reason {reason}"
            rows.append(Omission(reason, count, counted(count, *_LINKS[reason]), command))
        elif reason == USE_LINKS:  # no archive has such a page, so only the page can be listed
            command = f"outrider urls {place} --state gone --reason {USE_REFUSED}"
            rows.append(Omission(reason, count, counted(count, *_USE_LINKS), command))
        else:
            one, many = _PARKED.get(reason, ("URL", "URLs"))
            text = counted(count, one, many) + ("" if reason in _PARKED and reason not in RULES else f" ({reason})")
            rows.append(Omission(reason, count, text, f"outrider urls {place} --state parked --reason {reason}"))
    order = {**dict.fromkeys((*_LINKS, USE_LINKS), 1), BAD_SEEDS: 2}
    return sorted(rows, key=lambda row: order.get(row.reason, 0))


def whole_page(line: Mapping[str, Any], options: CrawlOptions) -> tuple[str, str]:
    """Returns the reason why no link of a page was followed; empty without one."""
    if line.get("error") == SOFT_404:
        return SOFT_404, "its page is like the site's answer for any missing page"
    is_copy = line.get("outcome") in (Word.DUPLICATE, Word.UNCHANGED) and line.get("duplicate_of") is not None
    if is_copy and options.copies == "drop" and line.get("distance") is None:
        return COPY, f"its page is a copy of {line.get('duplicate_of')}"
    return "", ""
