"""Priorities and priority functions. A priority is a float in [0, 1] that selects one of 16 classes, 15 the best. A
priority function returns a priority for each URL of a batch.

A priority function gets the links of one page, or seeds, as a `UrlBatch`, and that page. It returns one number per row.
`weighted` and `by_domain_page_freshness` make such functions: weighted means of *parts*. A part is a signal from 0
to 1; a higher value means sooner. Its value is the first of these that exists:

    `signals[part]`               a number for all; the name of a column; a mapping from registrable domain to value; or
                                  a function of one registrable domain
    a column of the batch         with the part's name, or with its source: hops, age
    a signal of the page          `page.signals[part]`, which a page passes on to its links
    SIGNAL_NEUTRAL                0.5, also for every NaN
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeAlias, TypeGuard

import numpy as np
import numpy.typing as npt

from outrider.errors import InvalidUrlError, SettingsError, shown
from outrider.journey import CrawlOrder
from outrider.kernels.card_layout import ORDERED, ORDERED_FIFO, ORDERED_LIFO
from outrider.limits import CLASSES, PRIORITY_WHOLE_MAX
from outrider.url import UrlBatch, host_of, normalize, registrable_domain
from outrider.url.batch import Keys

PRIORITY_DEFAULT: Final = 0.5
SIGNAL_NEUTRAL: Final = 0.5
"""The value of an unknown part."""
_ORDERED_CLASSES: Final[Mapping[CrawlOrder, int]] = {CrawlOrder.EXACT: ORDERED_FIFO, CrawlOrder.LIFO: ORDERED_LIFO}
DEPTH_DECAY: Final = 0.9
"""The depth part of a link, as a share of its page's."""
HALF_LIFE_SECONDS: Final = 604_800.0
"""The default half-life of freshness: a week."""

Floats: TypeAlias = npt.NDArray[np.float64]
Signal: TypeAlias = float | str | Mapping[str, float] | Callable[[str], float | None]
"""The source of a part: a number, the name of a column, or a value per registrable domain (None: unknown)."""


def class_of(priority: float) -> int:
    """Returns the class of a priority. Classes are equal slices of [0, 1], so a higher priority never has a lower
    class."""
    return min(CLASSES - 1, int(priority * CLASSES))


def class_in(order: CrawlOrder, priority: float) -> int:
    """Returns the class of a priority in a crawl with this order."""
    return _ORDERED_CLASSES[order] if order in _ORDERED_CLASSES else class_of(priority)


def class_again(klass: int, priority: float) -> int:
    """Returns the class of a URL that had one and gets another priority."""
    return klass if klass >= ORDERED else class_of(priority)


def classes_of(priorities: Floats) -> npt.NDArray[np.uint8]:
    """Returns the class of each of many priorities, shape (n,)."""
    return np.minimum(priorities * CLASSES, CLASSES - 1).astype(np.uint8)


def default_in(order: CrawlOrder) -> float:
    """Returns the priority of a URL without one, in a crawl with this order."""
    return PRIORITY_DEFAULT if order is CrawlOrder.CLASSES else 0.0


def checked(priority: float | None, order: CrawlOrder = CrawlOrder.CLASSES) -> float:
    """Returns the priority as a float. Raises SettingsError for a value that is not a number in [0, 1], or in a crawl
    with an exact order, no whole number."""
    if priority is None:
        return default_in(order)
    told = shown(int(priority) if _is_whole(priority) else priority)
    if order is not CrawlOrder.CLASSES and not _is_whole(priority):
        raise SettingsError(
            f'priority {told}: in a crawl with order="{order}" it must be a whole number from '
            f"{-PRIORITY_WHOLE_MAX} to {PRIORITY_WHOLE_MAX}"
        )
    if order is CrawlOrder.CLASSES and not _is_share(priority):
        raise SettingsError(f"priority {told}: it must be a number from 0 to 1")
    return float(priority)


def possible(priority: float) -> float:
    """Returns a priority that some crawl may have, unchanged. Raises SettingsError."""
    if not _is_whole(priority):
        checked(priority)
    return priority


# -- the protocol ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Referrer:
    """The page that contains the links: its URL, its hops from a seed, its own priority, and the signals that it passes
    on to its links, by name of part."""

    url: str
    depth: int = 0
    priority: float = PRIORITY_DEFAULT
    signals: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))


class PriorityFunction(Protocol):
    """Returns one priority in [0, 1] per row of `urls`, an array of shape (n,). `page` is the page with the links, None
    for seeds. Rows that are not valid may get any number. The function must not wait. It must not call the frontier,
    which calls it inside `discover` or `report`."""

    def __call__(self, urls: UrlBatch, page: Referrer | None, /) -> npt.ArrayLike: ...


def priorities(function: PriorityFunction, urls: UrlBatch, page: Referrer | None) -> Floats:
    """Returns the priorities that a function computes for a batch: float64 of shape (n,), each in [0, 1].

    Rows that are not valid get PRIORITY_DEFAULT. Raises SettingsError with the function's name if it returns another
    number of values, or for a valid row a value that is not a number in [0, 1]. Errors of the function itself are not
    caught.
    """
    given = function(urls, page)
    try:
        values = np.asarray(given)
    except ValueError:  # lists of unequal lengths
        values = np.array(None)
    if values.dtype.kind not in "fiu":
        raise SettingsError(
            f"priority function {name_of(function)}: it returned {given!r:.80}; it must return an array of numbers"
        )
    if values.shape != (len(urls),):
        raise SettingsError(
            f"priority function {name_of(function)}: it returned values of shape {values.shape} for {len(urls)} URLs; "
            "it must return one number per URL"
        )
    found = np.where(urls.valid, values, PRIORITY_DEFAULT).astype(np.float64, copy=False)
    right = (found >= 0) & (found <= 1)
    if not right.all():
        row = int(np.argmin(right))
        raise SettingsError(
            f"priority function {name_of(function)}: it returned {values[row]!s} for {urls[row]:.200}; "
            "it must return numbers from 0 to 1"
        )
    return found


def filled(given: Floats, function: PriorityFunction | None, urls: UrlBatch, page: Referrer | None) -> Floats:
    """Returns the priorities of links, shape (n,): the given ones, and for NaN the result of the function, or
    PRIORITY_DEFAULT without a function. The function gets the whole batch. If all are given, it is not called."""
    unknown = np.isnan(given)
    if not unknown.any():
        return given
    said = PRIORITY_DEFAULT if function is None else priorities(function, urls, page)
    return np.where(unknown, said, given)


def name_of(function: object) -> str:
    """Returns a readable name of a function."""
    return str(getattr(function, "__qualname__", None) or repr(function))


# -- signals -----------------------------------------------------------------------------------------------------------


def of_depth(hops: npt.ArrayLike) -> Floats:
    """Returns a signal of hops from the seeds: 1 at a seed, 10 % less with each hop. Raises SettingsError below 0."""
    depths = np.asarray(hops, np.float64)
    if not (depths >= 0).all():
        raise SettingsError("depth: hops must be 0 or more")
    return np.power(DEPTH_DECAY, depths)


def of_age(seconds: npt.ArrayLike, half_life_seconds: float = HALF_LIFE_SECONDS) -> Floats:
    """Returns a signal of ages in seconds: 1 for age 0 or below, half of it after each `half_life_seconds`."""
    return np.exp2(np.maximum(np.asarray(seconds, np.float64), 0.0) / -_half_life(half_life_seconds))


def of_count(counts: npt.ArrayLike, half: float = 10.0) -> Floats:
    """Returns a signal of counts, such as links that point at a URL: n / (n + half). A count of `half` makes 0.5, and
    no count makes 1. Raises SettingsError for counts below 0, or a `half` that is not above 0."""
    numbers = np.asarray(counts, np.float64)
    if not half > 0 or (numbers < 0).any():
        raise SettingsError("counts: they must be 0 or more, and half above 0")
    return numbers / (numbers + half)


def _since(seconds: npt.ArrayLike, half_life_seconds: float) -> Floats:
    return 1.0 - of_age(seconds, half_life_seconds)


class DomainPriorities(MutableMapping[str, float]):
    """A score in [0, 1] for each registrable domain: a signal for `weighted`, or a whole priority function by itself.

    Names are stored in canonical spelling. A host without a registrable domain, such as an IP address, counts as its
    own domain. Unknown domains get PRIORITY_DEFAULT. Raises SettingsError for a name below a registrable domain, such
    as `www.example.org`, and for a score that is not a number in [0, 1].
    """

    __slots__ = ("_scores",)

    def __init__(self, scores: Mapping[str, float] | None = None) -> None:
        self._scores: dict[str, float] = {}
        self.update(scores or {})

    def __call__(self, urls: UrlBatch, page: Referrer | None) -> Floats:
        """Returns the score of each URL's domain: shape (n,)."""
        return _by_domain("domain", self, urls.keys("domain"), PRIORITY_DEFAULT)

    def known(self, domain: str) -> float | None:
        """Returns the score of a canonical registrable domain, None if it has no score."""
        return self._scores.get(domain)

    def __getitem__(self, name: str) -> float:
        try:
            return self._scores[_domain(name)]
        except SettingsError:
            raise KeyError(name) from None

    def __setitem__(self, name: str, score: float) -> None:
        if not _is_share(score):
            raise SettingsError(f"score {score!r} of {name:.200}: it must be a number from 0 to 1")
        self._scores[_domain(name)] = float(score)

    def __delitem__(self, name: str) -> None:
        try:
            del self._scores[_domain(name)]
        except SettingsError:
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._scores)

    def __len__(self) -> int:
        return len(self._scores)

    def __repr__(self) -> str:
        return f"<DomainPriorities of {len(self._scores)} domains>"


def _domain(name: str) -> str:
    try:
        url = normalize(f"http://{name}/")
    except InvalidUrlError as error:
        raise SettingsError(f"domain {name!r:.200}: it must be the name of a registrable domain") from error
    host = host_of(url)
    if "@" in name or url != f"http://{host}/":
        raise SettingsError(f"domain {name!r:.200}: it must be the name of a registrable domain and nothing else")
    domain = registrable_domain(host) or host
    if domain != host:
        raise SettingsError(f"domain {name!r:.200}: scores belong to registrable domains; use {domain}")
    return domain


# -- weighted means ----------------------------------------------------------------------------------------------------

_MADE_OF: Final[Mapping[str, tuple[str, Callable[[npt.ArrayLike, float], Floats]]]] = MappingProxyType(
    {"freshness": ("age_seconds", of_age), "staleness": ("unvisited_seconds", _since)}
)
"""Parts that can be computed from a column of seconds, if the batch has no column of their name."""

FACTORS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "domain": ("domain_authority", "domain_trust", "domain_reliability"),
        "page": ("page_rank", "in_links", "depth", "sitemap_priority"),
        "freshness": ("change_frequency", "freshness", "staleness"),
    }
)
"""The ten factors of `by_domain_page_freshness`, by group; the factors of one group have equal weights."""


class Weighted:
    """A priority function: the mean of its parts by their weights. It stays in [0, 1], and never falls if a part
    rises. Made by `weighted` and `by_domain_page_freshness`."""

    __slots__ = ("_half_life", "_signals", "weights")

    weights: Mapping[str, float]
    """The share of each part; they add up to 1."""

    def __init__(
        self,
        weights: Mapping[str, float],
        signals: Mapping[str, Signal] | None = None,
        half_life_seconds: float = HALF_LIFE_SECONDS,
    ) -> None:
        """Any part names are allowed; an unknown name is read from a column or from `signals`. Raises SettingsError for
        a weight that is negative or not a number, for weights that are all 0, and for signals of other parts."""
        for part, weight in weights.items():
            if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < math.inf:
                raise SettingsError(f"weight {part}={weight!r}: it must be a number of 0 or more")
        total = math.fsum(weights.values())
        if not 0 < total < math.inf:
            raise SettingsError(
                f"the weights of {', '.join(weights) or 'no part'} add up to {total:g}; one must be above 0"
            )
        for part, signal in (signals or {}).items():
            if part not in weights:
                raise SettingsError(f"signal {part!r}: unknown part; use one of {', '.join(weights)}")
            if not (_is_share(signal) or isinstance(signal, str | Mapping) or callable(signal)):
                raise SettingsError(
                    f"signal {part}={signal!r:.80}: use a number from 0 to 1, a column's name, a mapping or a function"
                )
        self.weights = MappingProxyType({part: weight / total for part, weight in weights.items()})
        self._signals = dict(signals or {})
        self._half_life = _half_life(half_life_seconds)

    def __call__(self, urls: UrlBatch, page: Referrer | None) -> Floats:
        """Returns the priority of each URL: shape (n,). Raises SettingsError for a signal outside [0, 1], with its
        part."""
        total = np.zeros(len(urls))
        for part, values in self._parts(urls, page):
            # Adds the parts in sequence instead of a dot product. So rounding keeps the order of two values of one
            # part.
            total += self.weights[part] * values
        return np.minimum(total, 1.0, out=total)

    def parts(self, urls: UrlBatch, page: Referrer | None) -> dict[str, Floats]:
        """Returns the value of each part with a positive weight, before weighting: arrays of shape (n,)."""
        return {part: np.broadcast_to(values, (len(urls),)) for part, values in self._parts(urls, page)}

    def _parts(self, urls: UrlBatch, page: Referrer | None) -> Iterator[tuple[str, Floats | float]]:
        columns = urls.columns
        domains = None
        for part, weight in self.weights.items():
            if not weight:
                continue
            source = self._signals.get(part, part)
            if isinstance(source, str):
                yield part, self._column(part, source, urls, columns, page)
            elif isinstance(source, int | float):
                yield part, float(source)
            else:
                domains = domains or urls.keys("domain")
                yield part, _by_domain(part, source, domains, SIGNAL_NEUTRAL)

    def _column(
        self,
        part: str,
        name: str,
        urls: UrlBatch,
        columns: Mapping[str, npt.NDArray[Any]],
        page: Referrer | None,
    ) -> Floats | float:
        column = columns.get(name)
        if part == "depth":
            if column is None:
                return float(of_depth(0 if page is None else page.depth + 1))
            return _where_known(name, column, urls, of_depth)
        if column is not None:
            return _bounded(part, _where_known(name, column, urls, lambda values: values))
        if part in _MADE_OF:
            seconds, made = _MADE_OF[part]
            if seconds in columns:
                return _where_known(seconds, columns[seconds], urls, lambda values: made(values, self._half_life))
        if page is not None and part in page.signals:
            value = page.signals[part]
            if not _is_share(value):
                raise SettingsError(f"signal {part}={value!r} of {page.url:.200}: it must be a number from 0 to 1")
            return float(value)
        return SIGNAL_NEUTRAL

    def __repr__(self) -> str:
        return f"<Weighted {', '.join(f'{part} {weight:.3g}' for part, weight in self.weights.items())}>"


def weighted(
    page_rank: float = 0.3,
    domain_authority: float = 0.25,
    change_frequency: float = 0.2,
    depth: float = 0.15,
    freshness: float = 0.1,
    *,
    signals: Mapping[str, Signal] | None = None,
    half_life_seconds: float = HALF_LIFE_SECONDS,
) -> Weighted:
    """Returns the weighted mean of five parts. Each argument is a weight. 0 leaves the part out; any sum is allowed.

    page_rank         the weight of the URL in the graph of links (Page and Brin 1998), scaled to [0, 1]
    domain_authority  the weight of its registrable domain, such as the number of other domains that link to it (the
    STAR
                      budgets of IRLbot, Lee et al., WWW 2008); `of_count` and `DomainPriorities` help
    change_frequency  the rate at which its content changes, scaled to [0, 1]
    depth             0.9 ** hops: the column `depth`, else one hop more than the page's, 0 for seeds
    freshness         0.5 ** (age / half_life_seconds) of the column `age_seconds`, unless there is a column `freshness`

    Raises SettingsError for invalid weights and signals.
    """
    weights = {
        "page_rank": page_rank,
        "domain_authority": domain_authority,
        "change_frequency": change_frequency,
        "depth": depth,
        "freshness": freshness,
    }
    return Weighted(weights, signals, half_life_seconds)


def by_domain_page_freshness(
    domain: float = 0.3,
    page: float = 0.4,
    freshness: float = 0.3,
    *,
    signals: Mapping[str, Signal] | None = None,
    half_life_seconds: float = HALF_LIFE_SECONDS,
) -> Weighted:
    """Returns the weighted mean of the ten FACTORS. Each argument is the weight of a group, shared by its factors.

    domain     domain_authority     as in `weighted`
               domain_trust         1 less the likelihood that the domain is spam
               domain_reliability   share of its requests that were answered
    page       page_rank            as in `weighted`
               in_links             links that point at the URL, by `of_count` (back-link count: Cho, Garcia-Molina and
                                    Page, WWW 1998)
               depth                as in `weighted`
               sitemap_priority     the priority from the site's own sitemap, 0.5 by default (the sitemaps.org protocol)
    freshness  change_frequency     as in `weighted`
               freshness            as in `weighted`
               staleness            1 - 0.5 ** (time / half_life_seconds) of the column `unvisited_seconds`, the time
                                    since its last fetch, unless there is a column `staleness`

    Raises SettingsError for invalid weights and signals.
    """
    groups = {"domain": domain, "page": page, "freshness": freshness}
    weights = {}
    for group, weight in groups.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float):
            raise SettingsError(f"weight {group}={weight!r}: it must be a number of 0 or more")
        weights.update({factor: weight / len(FACTORS[group]) for factor in FACTORS[group]})
    return Weighted(weights, signals, half_life_seconds)


def _by_domain(
    part: str, source: Mapping[str, float] | Callable[[str], float | None], domains: Keys, unknown: float
) -> Floats:
    """Returns the value of each row's domain; the source is read once per domain."""
    if isinstance(source, DomainPriorities):
        ask: Callable[[str], object] = source.known
    elif isinstance(source, Mapping):
        ask = source.get
    else:
        ask = source
    values = np.full(len(domains.names) + 1, unknown)
    for row, name in enumerate(domains.names):
        value = ask(name)
        if value is None:
            continue
        if not _is_share(value):
            raise SettingsError(f"signal {part}={value!r:.80} of {name}: it must be a number from 0 to 1, or None")
        values[row] = value
    # A row without a domain has a code above all names, and so gets the last value.
    found: Floats = values[np.minimum(domains.codes, len(domains.names))]
    return found


def _where_known(name: str, column: npt.NDArray[Any], urls: UrlBatch, made: Callable[[Floats], Floats]) -> Floats:
    """Returns the result of `made` for valid rows that are not NaN; SIGNAL_NEUTRAL for other rows."""
    if column.dtype.kind not in "fiub":
        raise SettingsError(f"the column `{name}` of links: it must contain numbers, not {column.dtype}")
    values = column.astype(np.float64)
    unknown = np.isnan(values) | ~urls.valid
    if not unknown.any():
        return made(values)
    values[unknown] = 0.0
    found = made(values)
    found[unknown] = SIGNAL_NEUTRAL
    return found


def _bounded(part: str, values: Floats) -> Floats:
    if len(values) and not (values.min() >= 0 and values.max() <= 1):
        raise SettingsError(f"the column `{part}` of links: it must contain numbers from 0 to 1, or NaN for unknown")
    return values


def _half_life(seconds: float) -> float:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
        raise SettingsError(f"half_life_seconds {seconds!r}: it must be above 0")
    return float(seconds)


def _is_whole(value: object) -> TypeGuard[float]:
    """Whether an exact order has a place for this priority: a float has all whole numbers of its range."""
    if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool):
        return False
    return bool(-PRIORITY_WHOLE_MAX <= value <= PRIORITY_WHOLE_MAX) and float(value).is_integer()


def _is_share(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float | np.floating) and not isinstance(value, bool) and bool(0 <= value <= 1)
