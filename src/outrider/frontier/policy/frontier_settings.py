"""The policy settings of a frontier, checked once, with the names of the options of `crawl`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from outrider.errors import SettingsError
from outrider.frontier.policy import budgets
from outrider.frontier.policy.grouping import Grouping
from outrider.frontier.policy.revisit_plan import NAMES, NEEDS_RATE, RevisitFunction
from outrider.frontier.priority import PriorityFunction
from outrider.limits import (
    DELAY_FACTOR,
    DELAY_SECONDS_FLOOR,
    HOT_HOST_MEMORY_BYTES,
    HOT_HOSTS_MIN,
    MEMORY_BYTES,
    RATE_MAX,
    RATE_MIN,
)
from outrider.local_hours import LocalHours
from outrider.url import LossyRules, Scope
from outrider.url.scope import ScopeKind
from outrider.url.traps import Traps
from outrider.uses import Use, uses_of

ROBOTS_UNREACHABLE = ("closed", "open")
CRAWL_DELAY_OVER = ("obey", "cap", "skip")
CRAWL_DELAY_AS = ("gap", "window")
VISIT_TIME = ("ignore", "obey")
_CHOICES = {
    "robots_unreachable": ROBOTS_UNREACHABLE,
    "crawl_delay_over": CRAWL_DELAY_OVER,
    "crawl_delay_as": CRAWL_DELAY_AS,
    "visit_time": VISIT_TIME,
}
WHEN_FULL = ("refuse", "drop_lowest", "spill", "delay")


@dataclass(frozen=True, slots=True)
class FrontierSettings:
    """delay: minimum of the gap per host in seconds. delay_factor: gap = factor x duration of the last fetch, this term
    at most 60 s. scope, include, exclude, max_depth: which links are wanted. max_pages, max_pages_per_host: limits of
    fetched pages, or None. user_agent: the product token that selects the robots rules. priority: a priority function
    for links without a priority (docs/priority.md).

    traps: rules by which new links are parked, except those with depth 0; or None.

    max_urls, max_urls_per_queue: limits of URLs that are still to fetch, in all and per queue, or None.
    when_full: the rule for more URLs. "refuse" returns over_limit; "drop_lowest" drops the URL of the same queue that
    would be drawn last, if its class is lower than that of the new one (it becomes gone, reason dropped); "spill"
    accepts all and keeps them on disk; "delay" accepts all and tells callers to slow down (`Frontier.pressure`).

    url_rules: lossy rules of spelling (docs/urls.md). None means the rules of the store, or no rules for a new store.
    group: politeness clocks that several hosts share: "domain", "address", tables of groups, or a list of these
    (docs/groups.md).

    obey_robots: False, for owners of the hosts, treats every robots.txt as a file without a rule. It is requested all
    the same, once, for its sitemaps. robots_unreachable: "closed" parks a host whose robots.txt is unreachable (RFC
    9309 section 2.3.1.4); "open", for owners of the hosts, uses the last known rules, or no rules, for a day.
    crawl_delay_max: seconds of a Crawl-delay, or None. crawl_delay_over: the use of a longer one: "obey" it, "cap" it
    at the limit, or "skip" the pages of its authority. crawl_delay_as: a "gap" after each request, or the length of a
    "window" in which one request begins, as Bing reads it.

    visit_time: "ignore" the Visit-time of robots.txt, or "obey" it: outside its windows a host rests.
    hours: the hours in which hosts are visited, by patterns of their names, of which the last one that matches counts.

    use: the purposes of the crawl, of "train-ai", "ai-use" and "search". A page whose robots.txt refuses one of them is
    parked (docs/howto/permission.md).

    keep_text_digest: whether the record of a URL keeps the digest of its text, 8 bytes (docs/copies.md). A revisit rule
    switches it on.

    revisit: the rule by which fetched pages are visited again: "uniform", "adaptive", "halving", "nutch", "optimal",
    "age", or a function of `outrider.frontier.policy.revisit_plan.Visited` (docs/revisits.md). rate: fetches a second
    over all hosts at most, or None. discovery_share: the share of the fetches that is for new URLs; None lets the
    values of new and known pages decide.

    memory_bytes: the limit of memory for URLs, hosts and robots rules (docs/memory.md). 1/32 of it is for robots.txt
    files and their rules: beyond that, the least recently used files are on disk. 1/8 is for cards of the ledger that
    are not in a run yet, and 1/8 for hosts: for each 2,000 bytes of `memory_bytes` one host may be in memory, and
    beyond that, hosts without queued URLs become cold, and then ready hosts with few of them. 1/4 is for the
    fingerprints of accepted URLs: beyond half of it they are on disk, behind a filter. The rest, 15/32, is for cards of
    queued URLs: beyond it, the worse cards of longer queues are on disk, and short queues as a whole.
    """

    delay: float = DELAY_SECONDS_FLOOR
    delay_factor: float = DELAY_FACTOR
    scope: ScopeKind = "any"
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    max_depth: int | None = None
    max_pages: int | None = None
    max_pages_per_host: int | None = None
    user_agent: str = "Outrider"
    url_rules: LossyRules | None = None
    priority: PriorityFunction | None = None
    max_urls: int | None = None
    max_urls_per_queue: int | None = None
    when_full: str = "refuse"
    memory_bytes: int = MEMORY_BYTES
    group: Grouping | None = None
    traps: Traps | None = None
    obey_robots: bool = True
    robots_unreachable: str = "closed"
    crawl_delay_max: float | None = None
    crawl_delay_over: str = "obey"
    crawl_delay_as: str = "gap"
    visit_time: str = "ignore"
    hours: tuple[LocalHours, ...] = ()
    use: tuple[Use, ...] = ()
    keep_text_digest: bool = False
    revisit: str | RevisitFunction | None = None
    rate: float | None = None
    discovery_share: float | None = None

    @property
    def hot_hosts_max(self) -> int:
        """How many hosts may be in memory; beyond that, hosts become cold."""
        return max(HOT_HOSTS_MIN, self.memory_bytes // HOT_HOST_MEMORY_BYTES)

    @classmethod
    def of(cls, settings: Mapping[str, object] | None) -> FrontierSettings:
        """Settings from a mapping of names to values. Raises SettingsError naming the key, the value and the accepted
        values."""
        names = {field.name for field in fields(cls)}
        if not isinstance(settings, Mapping | None):
            raise SettingsError(f"settings {settings!r:.80}: use a mapping of names to values")
        given: dict[str, Any] = dict(settings or {})
        for name in given:
            if name not in names:
                raise SettingsError(f"{name!r} is not a setting of the frontier; there are {', '.join(sorted(names))}")
        for name in ("delay", "delay_factor", "crawl_delay_max"):
            if given.get(name) is not None or (name in given and name != "crawl_delay_max"):
                given[name] = _number(name, given[name])
        for name in (*budgets.NAMES, "max_depth", "max_urls", "max_urls_per_queue", "memory_bytes"):
            if given.get(name) is not None or (name == "memory_bytes" and name in given):
                given[name] = _count(name, given[name], least=0 if name == "max_depth" else 1)
        for name in ("include", "exclude"):
            if name in given:
                given[name] = _patterns(name, given[name])
        if given.get("scope", "any") not in ("host", "domain", "prefix", "any"):
            raise SettingsError(f"scope {given['scope']!r}: use host, domain, prefix or any")
        if given.get("when_full", "refuse") not in WHEN_FULL:
            raise SettingsError(f"when_full {given['when_full']!r}: use {', '.join(WHEN_FULL[:-1])} or {WHEN_FULL[-1]}")
        for name, words in _CHOICES.items():
            if given.get(name, words[0]) not in words:
                raise SettingsError(f"{name} {given[name]!r}: use {', '.join(words[:-1])} or {words[-1]}")
        given["use"] = uses_of(given.get("use", ()))
        check_revisits(given)
        for name in ("obey_robots", "keep_text_digest"):
            if not isinstance(given.get(name, True), bool):
                raise SettingsError(f"{name} {given[name]!r}: pass True or False")
        if given.get("priority") is not None and not callable(given["priority"]):
            raise SettingsError(f"priority {given['priority']!r}: use a function of (urls, page)")
        if isinstance(given.get("url_rules"), str):
            given["url_rules"] = LossyRules.parse(given["url_rules"])
        if not isinstance(given.get("url_rules"), LossyRules | None):
            raise SettingsError(f"url_rules {given['url_rules']!r}: use names of rules in one text, or LossyRules")
        if not isinstance(given.get("traps"), Traps | None):
            raise SettingsError(f"traps {given['traps']!r}: use Traps, or None")
        if not all(isinstance(one, LocalHours) for one in given.get("hours", ())):
            raise SettingsError(f"hours {given['hours']!r:.80}: use LocalHours")
        given["group"] = Grouping.of(given.get("group"))
        agent = given.get("user_agent", "Outrider")
        if not isinstance(agent, str) or not agent:
            raise SettingsError(f"user_agent {agent!r}: use the product token, a text")
        options = cls(**given)
        # An invalid pattern fails now, not with the first link.
        Scope.of_seeds(options.scope, (), options.include, options.exclude, options.max_depth)
        return options


def check_revisits(given: dict[str, Any]) -> None:
    """Checks the settings of revisits, together."""
    rule, rate, share = (given.get(name) for name in ("revisit", "rate", "discovery_share"))
    if rule is not None and rule not in NAMES and (isinstance(rule, str) or not callable(rule)):
        raise SettingsError(f"revisit {rule!r:.80}: use {', '.join(NAMES)}, or a function of visits in columns")
    if rate is not None:
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not RATE_MIN <= rate <= RATE_MAX:
            raise SettingsError(f"rate {rate!r}: use a number of fetches a second from {RATE_MIN:g} to {RATE_MAX:g}")
        given["rate"] = float(rate)
    if rule in NEEDS_RATE and rate is None:
        raise SettingsError(
            f"revisit {rule!r} uses a budget of fetches: set `rate`, the fetches a second over all hosts"
        )
    if share is not None:
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            raise SettingsError(f"discovery_share {share!r}: use a number from 0 to 1")
        if rule is None or rate is None:
            raise SettingsError("discovery_share divides the fetches of `rate` under a `revisit` rule: set both")
        given["discovery_share"] = float(share)
    if rule is not None:
        given["keep_text_digest"] = True


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or not 0 <= value <= 86_400:
        raise SettingsError(f"{name} {value!r}: use a number from 0 to 86400")
    return float(value)


def _count(name: str, value: object, *, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise SettingsError(f"{name} {value!r}: use a whole number of at least {least}")
    return value


def _patterns(name: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list | tuple) and all(isinstance(pattern, str) for pattern in value):
        return tuple(value)
    raise SettingsError(f"{name} {value!r}: use a pattern or a list of patterns")
