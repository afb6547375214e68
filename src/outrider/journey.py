"""The nouns of a URL's journey (Link, Lease, Outcome …) and the three verbs `discover`, `lease`, `report` as Protocols.

Everything here is frozen and knows no clock: instants are int microseconds since 1970, lengths of time are float
seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, overload

from outrider.clock import Instant

Line = tuple[str, bytes]  # (stream, one line of JSON without its end): what a call adds to `pages` or `politeness`
RequestId = tuple[str, int]  # (client, sequence): a repeated one repeats its answer


class Code(StrEnum):
    """What `discover` answers for one link."""

    NEW = "new"
    KNOWN = "known"
    HELD = "held"
    OUT_OF_SCOPE = "out_of_scope"
    INVALID = "invalid"
    OVER_LIMIT = "over_limit"
    PARKED = "parked"


class State(StrEnum):
    """Where a URL is; one function of the frontier moves between them."""

    UNKNOWN = "unknown"
    QUEUED = "queued"
    LEASED = "leased"
    WAITING = "waiting"
    PARKED = "parked"
    DONE = "done"
    GONE = "gone"


class Settled(StrEnum):
    """What `report` answers for one outcome: `stale` when its token is old or unknown, and then nothing was changed."""

    OK = "ok"
    STALE = "stale"


class Verdict(StrEnum):
    """What the fetcher says of a lease."""

    DONE = "done"
    AGAIN = "again"
    RETRY = "retry"
    GONE = "gone"


class Kind(StrEnum):
    """What a lease is for: a page, or an errand."""

    PAGE = "page"
    ROBOTS = "robots"


@dataclass(frozen=True, slots=True)
class Link:
    """A URL somebody found.

    `priority` lies in [0, 1] (None: 0.5), `not_before` is an instant, `metadata` is a mapping of text to text or JSON
    values that comes back with the lease.
    """

    url: str
    key: str | None = None
    priority: float | None = None
    depth: int = 0
    hops: int = 0
    referrer: str | None = None
    not_before: Instant | None = None
    crawl: str | None = None
    metadata: Mapping[str, object] | None = None

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        priority: float | None = None,
        depth: int = 0,
        hops: int = 0,
        referrer: str | None = None,
        not_before: Instant | None = None,
        crawl: str | None = None,
        metadata: Mapping[str, object] | None = None,
    ) -> None:
        put = object.__setattr__
        put(self, "url", url)
        put(self, "key", key)
        put(self, "priority", priority)
        put(self, "depth", depth)
        put(self, "hops", hops)
        put(self, "referrer", referrer)
        put(self, "not_before", not_before)
        put(self, "crawl", crawl)
        put(self, "metadata", metadata)


class UrlColumns(Protocol):
    """URLs in columns instead of one text each: `outrider.url.UrlBatch`."""

    def __len__(self) -> int: ...

    def strings(self) -> list[str]:
        """Their canonical texts, "" for what is no URL."""
        ...


@dataclass(frozen=True, slots=True)
class RobotsAnswer:
    """What came of asking for a robots.txt: an HTTP status (None: no answer), the body, and the next hop of a
    redirect."""

    status: int | None
    body: bytes = b""
    location: str | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a lease.

    token: of the lease. verdict: done, again (at `at`), retry, gone.
    seconds: how long the site took (our own DNS and TLS left out); it sets the host's gap. None: no request was sent.
    ended_at: instant of the request's end; None means now.
    retry_after_seconds: what the site asked for (Retry-After); it rests the whole host.
    refused: the site refused for load (429, 503); without retry_after_seconds the host backs off.
    location: target of a redirect; it becomes a URL of its own, hops + 1.
    answered: the site gave an HTTP answer; counts against `max_pages`.
    line, politeness: one line of JSON each for `pages.jsonl` and `politeness.jsonl`, kept with the outcome or not at
    all.
    digest: of the content, for telling duplicates; bytes_read: decoded bytes, for the totals.
    """

    token: int
    verdict: Verdict
    seconds: float | None = None
    status: int | None = None
    error: str | None = None
    ended_at: Instant | None = None
    at: Instant | None = None
    after_seconds: float | None = None
    retry_after_seconds: float | None = None
    refused: bool = False
    location: str | None = None
    links: Sequence[str | Link] | UrlColumns = ()
    robots: RobotsAnswer | None = None
    answered: bool | None = None
    line: bytes | None = None
    politeness: bytes | None = None
    digest: bytes | None = None
    duplicate: bool = False
    bytes_read: int = 0
    etag: str | None = None
    last_modified: str | None = None
    metadata: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to one URL until `deadline` (an instant), proved by `token`, an int that only grows.

    key: the queue's key. authority: scheme://host[:port]. kind: page or an errand. attempt: 1 for the first.
    not_before: do not fetch before this instant (trains; otherwise the instant of the lease).
    ended_before: when the last request to this host ended (None: there was none); gap_seconds: what had to lie between.
    """

    url: str
    key: str
    kind: Kind
    authority: str
    host: str
    token: int
    deadline: Instant
    priority: float
    depth: int
    attempt: int
    not_before: Instant
    hops: int = 0
    referrer: str | None = None
    metadata: Mapping[str, object] | None = None
    address: str | None = None
    etag: str | None = None
    last_modified: str | None = None
    crawl: str = "default"
    ended_before: Instant | None = None
    gap_seconds: float | None = None

    def done(
        self,
        *,
        seconds: float | None = None,
        status: int | None = 200,
        links: Sequence[str | Link] | UrlColumns = (),
        location: str | None = None,
        digest: bytes | None = None,
        etag: str | None = None,
        last_modified: str | None = None,
        metadata: Mapping[str, object] | None = None,
        ended_at: Instant | None = None,
    ) -> Outcome:
        """It was fetched; `links` were found in it, `location` is where it redirects to."""
        return Outcome(
            self.token,
            Verdict.DONE,
            seconds=seconds,
            status=status,
            links=links,
            location=location,
            digest=digest,
            etag=etag,
            last_modified=last_modified,
            metadata=metadata,
            ended_at=ended_at,
        )

    def again(
        self, *, at: Instant, seconds: float | None = None, links: Sequence[str | Link] | UrlColumns = ()
    ) -> Outcome:
        """It was fetched and is due again at the instant `at`."""
        return Outcome(self.token, Verdict.AGAIN, seconds=seconds, status=200, at=at, links=links)

    def retry(
        self,
        *,
        after_seconds: float | None = None,
        retry_after_seconds: float | None = None,
        seconds: float | None = None,
        status: int | None = None,
        error: str | None = None,
        refused: bool = False,
    ) -> Outcome:
        """It failed and may work later: after `after_seconds`, or by the frontier's own steps (5, 30, 300 s, then
        dead letter)."""
        return Outcome(
            self.token,
            Verdict.RETRY,
            seconds=seconds,
            status=status,
            error=error,
            after_seconds=after_seconds,
            retry_after_seconds=retry_after_seconds,
            refused=refused,
        )

    def gone(self, *, status: int | None = None, error: str | None = None, seconds: float | None = None) -> Outcome:
        """It failed for good."""
        return Outcome(self.token, Verdict.GONE, seconds=seconds, status=status, error=error)

    def robots(
        self, status: int | None, body: bytes = b"", *, location: str | None = None, seconds: float | None = None
    ) -> Outcome:
        """The answer to an errand of kind `robots`; status None means that nothing answered."""
        return Outcome(
            self.token, Verdict.DONE, seconds=seconds, status=status, robots=RobotsAnswer(status, body, location)
        )


class LeaseBatch(Sequence[Lease]):
    """What `lease` gave: columns, and `Lease` by iterating. Empty, so falsy, when nothing is ready.

    `lines` are output lines that the call itself decided (refusals by robots rules), `lsn` their place in the log.
    """

    __slots__ = ("_leases", "lines", "lsn")

    def __init__(self, leases: Iterable[Lease] = (), *, lines: Sequence[Line] = (), lsn: int = 0) -> None:
        self._leases = tuple(leases)
        self.lines = tuple(lines)
        self.lsn = lsn

    def __len__(self) -> int:
        return len(self._leases)

    def __iter__(self) -> Iterator[Lease]:
        return iter(self._leases)

    @overload
    def __getitem__(self, row: int) -> Lease: ...
    @overload
    def __getitem__(self, row: slice) -> LeaseBatch: ...
    def __getitem__(self, row: int | slice) -> Lease | LeaseBatch:
        return LeaseBatch(self._leases[row]) if isinstance(row, slice) else self._leases[row]

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, list | tuple | LeaseBatch) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._leases)

    @property
    def lease_id(self) -> int | None:
        """The first token; the tokens of one call are consecutive."""
        return self._leases[0].token if self._leases else None

    @property
    def urls(self) -> list[str]:
        return [lease.url for lease in self._leases]

    @property
    def tokens(self) -> list[int]:
        return [lease.token for lease in self._leases]

    def __repr__(self) -> str:
        return f"<LeaseBatch {len(self)} leases>"


@dataclass(frozen=True, slots=True)
class Report:
    """The answer of `report`: a code per outcome and, row by row, a code per link. Iterating gives the outcomes'
    codes."""

    outcomes: tuple[Settled, ...]
    links: tuple[tuple[Code, ...], ...] = ()
    lines: tuple[Line, ...] = ()
    lsn: int = 0

    def __iter__(self) -> Iterator[Settled]:
        return iter(self.outcomes)

    def __len__(self) -> int:
        return len(self.outcomes)

    def __getitem__(self, row: int) -> Settled:
        return self.outcomes[row]


@dataclass(frozen=True, slots=True)
class UrlStatus:
    """What is known of one URL: its state, why (a parked or gone one), and what the last attempt brought."""

    url: str
    state: State
    reason: str | None = None
    crawl: str = "default"
    key: str | None = None
    priority: float | None = None
    depth: int | None = None
    attempts: int = 0
    referrer: str | None = None
    status: int | None = None
    error: str | None = None
    due: Instant | None = None
    token: int | None = None


@dataclass(frozen=True, slots=True)
class Verification:
    """What a recount found: `ok`, and each problem in words."""

    ok: bool
    problems: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)


class Discover(Protocol):
    """The first verb."""

    def discover(self, links: Iterable[str | Link] | UrlColumns, *, request_id: RequestId | None = None) -> list[Code]:
        """One code per link, in order; what is answered is durable."""
        ...


class LeaseOut(Protocol):
    """The second verb."""

    def lease(
        self,
        want: int,
        *,
        ttl_seconds: float = 60,
        per_queue: int = 1,
        crawl: str | None = None,
        key: str | None = None,
        worker: str | None = None,
        errands: bool = False,
        request_id: RequestId | None = None,
    ) -> LeaseBatch:
        """Up to `want` URLs whose hosts may be visited now."""
        ...


class ReportIn(Protocol):
    """The third verb."""

    def report(
        self,
        outcomes: Sequence[Outcome],
        links: Sequence[tuple[int, str | Link]] | UrlColumns = (),
        *,
        request_id: RequestId | None = None,
    ) -> Report:
        """One code per outcome; links may come as (row of the outcome, link), or as columns of which one is `outcome`,
        beside those an outcome carries."""
        ...
