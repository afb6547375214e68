"""Which URLs a crawl wants: hosts, domains or prefixes of its seeds, patterns, depth, shape. Batches in, verdicts out.

A host is judged once per batch; prefixes, patterns and paths are looked at as bytes: no string is made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, get_args, overload

import numpy as np
import numpy.typing as npt

from outrider.errors import SettingsError
from outrider.url.batch import UrlBatch
from outrider.url.keys import registrable_domain
from outrider.url.patterns import compiled
from outrider.url.spelling import host_of, normalize_all

ScopeKind = Literal["host", "domain", "prefix", "any"]


SPANS_NAMED_MAX = 3  # how many hosts, domains or prefixes a sentence names


@dataclass(frozen=True, slots=True)
class Scope:
    """The URLs that a crawl wants.

    A URL is wanted if its place, depth and shape are wanted, no exclude pattern matches, and at least one include
    pattern matches if there are any.

    hosts     host names as `host_of` returns them; any port; for kind "host"
    domains   registrable domains, or hosts without one; for kind "domain"
    prefixes  canonical URLs up to a "/"; for kind "prefix"
    include, exclude  RE2 expressions (linear time), searched anywhere in the canonical URL
    depth_max  most links between a seed and a URL; None: any

    Rules of shape, all off by default:

    schemes             "http" or "https"; empty: both
    extensions_refused  endings of file names, in lower case without the dot: `zip`, `iso`
    bytes_max           most bytes of a URL
    path_depth_max      most names in a path: `/a/b.html` has two
    path_repeats_max    most repeats of one name in a path: more is a loop that a site made by mistake
    """

    kind: ScopeKind
    hosts: frozenset[str] = frozenset()
    domains: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    depth_max: int | None = None
    schemes: frozenset[str] = frozenset()
    extensions_refused: frozenset[str] = frozenset()
    bytes_max: int | None = None
    path_depth_max: int | None = None
    path_repeats_max: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(ScopeKind):
            raise SettingsError(f"scope is {self.kind!r}; it can be {', '.join(get_args(ScopeKind))}")
        if self.depth_max is not None and self.depth_max < 0:
            raise SettingsError(f"max-depth is {self.depth_max}; it can be 0 or more")
        for name, least in (("bytes_max", 1), ("path_depth_max", 0), ("path_repeats_max", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise SettingsError(f"{name} is {value}; it can be {least} or more")
        for scheme in self.schemes - {"http", "https"}:
            raise SettingsError(f"scheme {scheme!r} is never crawled; http and https are")
        for extension in self.extensions_refused:
            if not extension or extension != extension.lower().lstrip("."):
                raise SettingsError(f"extension {extension!r}: write it in lower case and without the dot, as 'zip'")
        _searches("include", self.include)
        _searches("exclude", self.exclude)

    @classmethod
    def of_seeds(
        cls,
        kind: ScopeKind,
        seeds: Iterable[str],
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        depth_max: int | None = None,
        *,
        schemes: Iterable[str] = (),
        extensions_refused: Iterable[str] = (),
        bytes_max: int | None = None,
        path_depth_max: int | None = None,
        path_repeats_max: int | None = None,
    ) -> Scope:
        """The scope that these seeds span, by any spelling. Raises SettingsError naming what is wrong (kind, pattern,
        depth, shape), InvalidUrlError for a seed that cannot be crawled."""
        empty = cls(
            kind,
            include=tuple(include),
            exclude=tuple(exclude),
            depth_max=depth_max,
            schemes=frozenset(schemes),
            extensions_refused=frozenset(extensions_refused),
            bytes_max=bytes_max,
            path_depth_max=path_depth_max,
            path_repeats_max=path_repeats_max,
        )
        return empty._with(seeds)

    def widened(self, *urls: str) -> Scope:
        """This scope, with the hosts, domains or prefixes that more seeds (or the target of a seed's redirect) span."""
        return self._with(urls)

    def _with(self, urls: Iterable[str]) -> Scope:
        if self.kind == "any":
            return self
        seeds = normalize_all(urls)
        spans = dict.fromkeys(span_of(self.kind, seed) for seed in seeds)
        if self.kind == "prefix":
            return replace(self, prefixes=tuple(dict.fromkeys(self.prefixes) | spans))
        if self.kind == "host":
            return replace(self, hosts=self.hosts.union(spans))
        return replace(self, domains=self.domains.union(spans))

    @overload
    def verdicts(self, urls: UrlBatch, depths: npt.ArrayLike) -> npt.NDArray[np.bool_]: ...
    @overload
    def verdicts(self, urls: Sequence[str], depths: npt.ArrayLike) -> list[bool]: ...
    def verdicts(self, urls: UrlBatch | Sequence[str], depths: npt.ArrayLike) -> npt.NDArray[np.bool_] | list[bool]:
        """Whether each URL, at this number of links from its seed, is wanted: an array for a batch, a list for strings.

        A text that is not a URL is not wanted. Raises ValueError when there is not one depth per URL.
        """
        if not isinstance(urls, UrlBatch):
            return list(map(bool, self._wanted(UrlBatch.of(urls), np.asarray(depths))))
        return self._wanted(urls, np.asarray(depths))

    def refusal(self, url: str) -> str:
        """The rule that refuses a URL that begins a crawl, in words; "" for a URL in scope."""
        if self.verdicts([url], [0])[0]:
            return ""
        spans = self.hosts or self.domains or self.prefixes
        if not replace(self, include=(), exclude=()).verdicts([url], [0])[0]:
            if self.kind == "any" or not spans:
                return "its shape is none that the scope wants"
            named = ", ".join(sorted(spans)[:SPANS_NAMED_MAX]) + (" …" if len(spans) > SPANS_NAMED_MAX else "")
            if self.kind == "host":
                return f"scope host: {host_of(url)} is none of {named}"
            return f"scope {self.kind}: it is not in {named}"
        for pattern in self.exclude:
            if not Scope("any", exclude=(pattern,)).verdicts([url], [0])[0]:
                return f"--exclude {pattern}"
        return "no --include pattern is found in it"

    def _wanted(self, batch: UrlBatch, depths: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        if depths.shape != (len(batch),):
            raise ValueError(f"{len(batch)} URLs need {len(batch)} depths, one each, not {depths.shape}")
        wanted = batch.valid.copy()
        if self.depth_max is not None:
            wanted &= depths <= self.depth_max
        if self.schemes:
            wanted &= np.where(batch.secure, "https" in self.schemes, "http" in self.schemes)
        if self.bytes_max is not None:
            wanted &= batch.lengths <= self.bytes_max
        if self.kind in ("host", "domain"):
            codes, names = batch.keys("host")
            inside = [self._wants_host(name) for name in names]
            wanted &= np.array([*inside, False])[np.minimum(codes, len(names))]
        searches = _searches("exclude", self.exclude), _searches("include", self.include)
        prefixes = tuple(prefix.encode("ascii") for prefix in self.prefixes)
        shaped = self.extensions_refused or self.path_depth_max is not None or self.path_repeats_max is not None
        if self.kind == "prefix" or shaped or any(searches):
            arena, rows = batch.arena, np.flatnonzero(wanted)
            starts, ends = batch.texts()
            paths, _ = batch.paths()
            for row, start, path, end in zip(
                *(each.tolist() for each in (rows, starts[rows], paths[rows], ends[rows])), strict=True
            ):
                wanted[row] = (
                    (self.kind != "prefix" or arena.startswith(prefixes, start, end))
                    and (not shaped or self._wants_path(arena[path:end].partition(b"?")[0]))
                    and _passes(searches, arena[start:end])
                )
        return wanted

    def _wants_host(self, host: str) -> bool:
        return host in self.hosts if self.kind == "host" else _domain_of(host) in self.domains

    def _wants_path(self, path: bytes) -> bool:
        names = [name for name in path.split(b"/") if name]
        if self.path_depth_max is not None and len(names) > self.path_depth_max:
            return False
        if self.path_repeats_max is not None and names and max(Counter(names).values()) > self.path_repeats_max:
            return False
        stem, _, extension = path.rpartition(b"/")[2].rpartition(b".")
        return not stem or extension.decode("ascii").lower() not in self.extensions_refused


_Searches = tuple[Callable[[bytes], object], ...]


def _passes(searches: tuple[_Searches, _Searches], text: bytes) -> bool:
    exclude, include = searches
    if any(search(text) for search in exclude):
        return False
    return not include or any(search(text) for search in include)


def span_of(kind: ScopeKind, canonical: str) -> str:
    """The host, domain or prefix by which a canonical URL widens a scope of this kind; "" for `any`."""
    if kind == "any":
        return ""
    if kind == "prefix":
        return _prefix_of(canonical)
    host = host_of(canonical)
    return host if kind == "host" else _domain_of(host)


def _domain_of(host: str) -> str:
    return registrable_domain(host) or host


def _prefix_of(canonical: str) -> str:
    query = canonical.find("?")
    path_end = len(canonical) if query < 0 else query
    return canonical[: canonical.rindex("/", 0, path_end) + 1]


@lru_cache(maxsize=64)
def _searches(name: str, patterns: tuple[str, ...]) -> _Searches:
    """A search function for each pattern of a list. Raises SettingsError naming the pattern and the reason."""
    # One automaton each, not a union: a union that outgrows its memory answers "no", one alone turns slower.
    return tuple(compiled(f"{name} pattern", pattern, groups=False).search for pattern in patterns)
