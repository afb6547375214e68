"""Which URLs a crawl wants: hosts, domains or prefixes of its seeds, patterns, a depth. Batches in, verdicts out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, get_args

import re2

from outrider.errors import SettingsError
from outrider.limits import PATTERN_CHARACTERS_MAX
from outrider.url.keys import registrable_domain
from outrider.url.spelling import host_of

ScopeKind = Literal["host", "domain", "prefix", "any"]
_PATTERN_MEMORY_BYTES = 8 << 20  # RE2's own default: its automaton never grows beyond it, however hostile the text


@dataclass(frozen=True, slots=True)
class Scope:
    """What a crawl wants.

    A URL is wanted if its place and its depth are, no exclude pattern is found in it, and, where there are include
    patterns, at least one of them is.

    hosts     host names as `host_of` gives them; any port; for kind "host"
    domains   registrable domains, or hosts that have none; for kind "domain"
    prefixes  canonical URLs up to a "/"; for kind "prefix"
    include, exclude  RE2 expressions (linear time), searched anywhere in the canonical URL
    depth_max  links between a seed and a URL at most; None: any
    """

    kind: ScopeKind
    hosts: frozenset[str] = frozenset()
    domains: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    depth_max: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(ScopeKind):
            raise SettingsError(f"scope is {self.kind!r}; it can be {', '.join(get_args(ScopeKind))}")
        if self.depth_max is not None and self.depth_max < 0:
            raise SettingsError(f"max-depth is {self.depth_max}; it can be 0 or more")
        _searches("include", self.include)
        _searches("exclude", self.exclude)

    @classmethod
    def of_seeds(
        cls,
        kind: ScopeKind,
        canonical_seeds: Iterable[str],
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        depth_max: int | None = None,
    ) -> Scope:
        """The scope that these seeds span. Raises SettingsError naming what is wrong: kind, pattern or depth."""
        empty = cls(kind, include=tuple(include), exclude=tuple(exclude), depth_max=depth_max)
        return empty._with(canonical_seeds)

    def widened(self, *canonical_urls: str) -> Scope:
        """This scope, with what more seeds (or what a seed redirects to) span."""
        return self._with(canonical_urls)

    def _with(self, seeds: Iterable[str]) -> Scope:
        if self.kind == "any":
            return self
        if self.kind == "prefix":
            known = dict.fromkeys(self.prefixes)
            known.update(dict.fromkeys(_prefix_of(seed) for seed in seeds))
            return replace(self, prefixes=tuple(known))
        hosts = {host_of(seed) for seed in seeds}
        if self.kind == "host":
            return replace(self, hosts=self.hosts | hosts)
        return replace(self, domains=self.domains | {_domain_of(host) for host in hosts})

    def verdicts(self, urls: Sequence[str], depths: Sequence[int]) -> list[bool]:
        """Whether each canonical URL, so many links from its seed, is wanted."""
        assert len(urls) == len(depths), "one depth per URL"
        kind, depth_max = self.kind, self.depth_max
        include, exclude = _searches("include", self.include), _searches("exclude", self.exclude)
        wanted_hosts: dict[str, bool] = {}
        verdicts: list[bool] = []
        for url, depth in zip(urls, depths, strict=True):
            if depth_max is not None and depth > depth_max:
                verdicts.append(False)
                continue
            if kind == "any":
                wanted = True
            elif kind == "prefix":
                wanted = url.startswith(self.prefixes)
            else:
                host = host_of(url)
                known = wanted_hosts.get(host)
                if known is None:
                    known = host in self.hosts if kind == "host" else _domain_of(host) in self.domains
                    wanted_hosts[host] = known
                wanted = known
            if wanted and (include or exclude):
                text = url.encode("utf-8", "replace")
                wanted = not any(search(text) for search in exclude)
                if wanted and include:
                    wanted = any(search(text) for search in include)
            verdicts.append(wanted)
        return verdicts


def _domain_of(host: str) -> str:
    return registrable_domain(host) or host


def _prefix_of(canonical: str) -> str:
    query = canonical.find("?")
    path_end = len(canonical) if query < 0 else query
    return canonical[: canonical.rindex("/", 0, path_end) + 1]


@lru_cache(maxsize=64)
def _searches(name: str, patterns: tuple[str, ...]) -> tuple[Callable[[bytes], object], ...]:
    """A search function for each pattern of a list. Raises SettingsError naming the pattern and the reason."""
    options = re2.Options()
    options.max_mem = _PATTERN_MEMORY_BYTES
    options.log_errors = False
    options.never_capture = True
    searches: list[Callable[[bytes], object]] = []
    for pattern in patterns:
        if len(pattern) > PATTERN_CHARACTERS_MAX:
            raise SettingsError(f"{name} pattern {pattern[:60]!r}… is longer than {PATTERN_CHARACTERS_MAX} characters")
        try:
            # One automaton each, not a union: a union that outgrows its memory answers "no", one alone turns slower.
            searches.append(re2.compile(pattern.encode(), options).search)
        except UnicodeEncodeError:
            raise SettingsError(f"{name} pattern {pattern!r}: it holds half a character") from None
        except re2.error as error:
            raise SettingsError(f"{name} pattern {pattern!r}: {_reason(error)}") from None
    return tuple(searches)


def _reason(error: Exception) -> str:
    fact = error.args[0] if error.args else ""
    text = fact.decode("utf-8", "replace") if isinstance(fact, bytes) else str(fact)
    return text or "it is no RE2 expression (look-around and back references are not there)"
