"""The nouns of a URL's journey (Link, Lease, Outcome …) and the three verbs as a Protocol.

Everything here is frozen and uses no clock: instants are int microseconds since 1970, durations are float seconds.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Final, Generic, Protocol, TypeAlias, TypeVar, get_type_hints, overload

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import UNSET, UnsetType

from outrider.clock import Instant
from outrider.errors import SettingsError
from outrider.limits import (
    DIGEST_BYTES_MAX,
    LINE_BYTES_MAX,
    PAYMENT_TEXT_MAX,
    SIGNALS_BYTES,
    TEXT_DIGEST_BYTES,
    UNIQUE_KEY_BYTES_MAX,
    VALIDATOR_BYTES_MAX,
    WARC_MARK_BYTES,
)
from outrider.uses import Preferences, UseLine

Listed = TypeVar("Listed")
Cell = TypeVar("Cell")

Column: TypeAlias = Sequence[Cell | None] | Mapping[int, Cell] | Cell | None
"""A column of an `OutcomeBatch` that may be left out: values by row, or one for all rows."""

Line = tuple[str, bytes]  # (stream, one line of JSON without its end): a call adds it to `pages` or `politeness`
OWN_FAULTS = frozenset({"internal", "stopped", "too_large"})
"""Errors that say nothing about a site. So do those that begin with `hook_`."""


def is_own_fault(error: str) -> bool:
    """Whether an error says that we failed, and not the site: a bug, a hook, a request that we broke off."""
    return error in OWN_FAULTS or error.startswith("hook_")


RequestId = tuple[str, int]  # (client, sequence): a repeated one repeats its answer


class Code(StrEnum):
    """The answer of `discover` for one link."""

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
    """The answer of `report` for one outcome: `stale` when its token is old or unknown, and then nothing was
    changed."""

    OK = "ok"
    STALE = "stale"


class Verdict(StrEnum):
    """The fetcher's verdict on a lease."""

    DONE = "done"
    AGAIN = "again"
    RETRY = "retry"
    GONE = "gone"


class Word(StrEnum):
    """The result of one attempt at a page: `outcome` of its line in `pages.jsonl`. has_content: it is a page that hooks
    and imports use. final: no other attempt follows. failed: the attempt was the last and there is no page. logged:
    `crawl.log` has a line for it as well."""

    has_content: bool
    final: bool
    failed: bool
    logged: bool

    def __new__(cls, word: str, has_content: bool, final: bool, failed: bool, logged: bool) -> Word:
        self = str.__new__(cls, word)
        self._value_ = word
        self.has_content, self.final, self.failed, self.logged = has_content, final, failed, logged
        return self

    #            the word     has_content, final, failed, logged
    DONE = "done", True, True, False, False
    TRUNCATED = "truncated", True, True, False, False
    DUPLICATE = "duplicate", True, True, False, False
    UNCHANGED = "unchanged", True, True, False, False  # the content of its last visit
    REDIRECT = "redirect", False, True, False, False
    GONE = "gone", False, True, True, False
    ERROR = "error", False, True, True, True
    RETRY = "retry", False, False, False, True
    ROBOTS = "robots", False, False, False, True
    ASKS_PAYMENT = "asks_payment", False, True, True, False


class Conditional(StrEnum):
    """How a server answered a request with validators if it sent an unchanged page whole."""

    IGNORED = "ignored"  # its validators are those of the request
    RENEWED = "renewed"  # it has other validators for the same content


class Kind(StrEnum):
    """The purpose of a lease: a page, or an errand."""

    PAGE = "page"
    ROBOTS = "robots"
    ADDRESS = "address"
    SITEMAP = "sitemap"
    PROBE = "probe"
    TDMREP = "tdmrep"


class Unique(StrEnum):
    """Which URLs of a crawl are the same: those with one canonical spelling, or those of which the caller says it."""

    URL = "url"
    CALLER = "caller"


class CrawlOrder(StrEnum):
    """The order of the URLs of a crawl: by classes of priorities, drawn with a bias; or exactly by integer priorities,
    and among equal ones first come, first served, or last come, first served."""

    CLASSES = "classes"
    EXACT = "exact"
    LIFO = "lifo"


class Form(StrEnum):
    """How the values of a field of `Outcome` are checked and stored (frontier/verbs/outcome_columns.py), and their type
    over HTTP (engine/messages.py)."""

    TOKEN = "token"  # noqa: S105
    VERDICT = "verdict"
    SECONDS = "seconds"
    STATUS = "status"
    INSTANT = "instant"
    FLAG = "flag"
    FLAG_OR_NONE = "flag_or_none"
    COUNT = "count"
    REAL = "real"
    ERROR = "error"
    LOCATION = "location"
    TEXT = "text"
    OCTETS = "octets"
    METADATA = "metadata"
    LINKS = "links"
    ROBOTS = "robots"
    ADDRESS = "address"


@dataclass(frozen=True, slots=True)
class OutcomeField:
    """The properties of a field of `Outcome`, or of a field of `Link` that the record keeps, besides its type. column:
    its name in an `OutcomeBatch`, if that is not the field's; None if a batch has no such column. bytes_max: the limit
    of a text or octets. kept: the letter that names it in the record of the URL, "" for a field outside the record; a
    letter never gets another meaning. renewed: each outcome with a kept value replaces it, also by nothing; otherwise
    the record keeps it until another value arrives.
    served: whether it is sent to a server; the lines and the end of a request stay with the worker."""

    form: Form
    column: str | None = ""
    bytes_max: int = 0
    kept: str = ""
    renewed: bool = False
    served: bool = True


@dataclass(frozen=True, slots=True)
class Link:
    """A URL from a page, a seed list or a caller.

    `priority` is in [0, 1] (None: 0.5), or an integer in a crawl with an exact order (None: 0), `not_before` is an
    instant, `metadata` is a mapping of text to text or JSON values that the lease returns. `discover` returns
    `over_limit` for a URL or metadata that is too long, and refuses a key, crawl or referrer that is too long
    (docs/frontier.md has the limits).

    unique_key: only for a crawl made with `unique="caller"`, where links with one unique key are the same URL. Without
    one, such a crawl compares key and URL, byte for byte.

    modified: when the page changed last, an instant or a date as text (W3C, RFC 9110). With a revisit rule, a date
    after the last visit of a known page is a signal that brings its next visit forward; without a rule it has no
    effect. Unreadable dates and future dates are counted and ignored. change_seconds: how long the page usually stays
    the same, in seconds above 0; a rule begins with it.
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
    unique_key: Annotated[bytes | None, OutcomeField(Form.OCTETS, None, UNIQUE_KEY_BYTES_MAX, kept="u")] = None
    modified: Instant | str | None = None
    change_seconds: float | None = None

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
        unique_key: bytes | None = None,
        modified: Instant | str | None = None,
        change_seconds: float | None = None,
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
        put(self, "unique_key", unique_key)
        put(self, "modified", modified)
        put(self, "change_seconds", change_seconds)


UrlName: TypeAlias = str | bytes | Link
"""The name of one URL for a query or an order: its text. In a crawl by unique keys also its unique key as bytes, or a
`Link` with text and key."""
UrlNames: TypeAlias = UrlName | Sequence[UrlName]
UrlPriorities: TypeAlias = UrlName | Sequence[UrlName] | Mapping[UrlName, float]
"""URLs by their names, or with a priority for each."""


class UrlColumns(Protocol):
    """URLs in columns instead of one text each: `outrider.url.UrlBatch`."""

    def __len__(self) -> int: ...

    def strings(self) -> list[str]:
        """Their canonical texts, "" for a text that is not a URL."""
        ...


@dataclass(frozen=True, slots=True)
class RobotsAnswer:
    """The answer to a request for a robots.txt: an HTTP status (None: no answer, or an incomplete one), the whole body
    with its codings undone, and the next hop of a redirect. fresh_seconds: the answer's own time to live
    (Cache-Control, Expires), or None; it may shorten the day for which rules are valid."""

    status: int | None
    body: bytes = b""
    location: str | None = None
    fresh_seconds: float | None = None


_Flag: TypeAlias = Annotated[bool, OutcomeField(Form.FLAG)]
_Seconds: TypeAlias = Annotated[float | None, OutcomeField(Form.SECONDS)]


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of a lease.

    token: of the lease. verdict: done, again (at `at`), retry, gone.
    seconds: the time that the site needed (without our own DNS and TLS); it sets the host's gap. None: no request.
    ended_at: instant of the request's end; None means now. A named worker's lease ends at the report's instant instead,
    because clocks of workers differ.
    first_byte_seconds: the time to the first byte of the answer; a host that answers later than usual gets longer
    pauses.
    challenged: a challenge for a browser or a person in place of the page; two in a row park the host.
    payment: with status 402 the scheme and the price that the site asks for; with another status the sum that it says
    it charged. Three answers with 402 in a row park the first part of their path, twelve the host.
    retry_after_seconds: from the site's Retry-After; it rests the whole host.
    refused: the site refused for load (429, 503); without retry_after_seconds the host backs off.
    location: target of a redirect; it becomes a separate URL, hops + 1.
    answered: the site sent an HTTP answer; counts against `max_pages`.
    line, politeness: one line of JSON each for `pages.jsonl` and `politeness.jsonl`, stored with the outcome or not at
    all.
    digest: of the content, to find duplicates. A page with the digest of its own last visit is unchanged, never a
    duplicate. duplicate: the content is that of another URL, byte by byte;
    repeats: it is nearly that, so it does not count as new content either (docs/traps.md); first_copy: it is one of
    both, and no URL of its shape had that page before; foreign_copy: it is, of a page of another host, and no URL of
    its host had that page before. bytes_read: decoded bytes, for the totals.
    text_digest: 8 bytes that change when the text of the page does (docs/copies.md); the record keeps them only with
    the setting `keep_text_digest`.
    warc_record: 24 bytes that name the archived answer which the validators are from (docs/formats/archive.md); a later
    304 is archived with a reference to it.
    address, ttl_seconds: the answer to an errand of kind `address`, and its time to live (None: five minutes).
    """

    token: Annotated[int, OutcomeField(Form.TOKEN, column=None)]
    verdict: Annotated[Verdict, OutcomeField(Form.VERDICT, column=None)]
    seconds: Annotated[float | None, OutcomeField(Form.SECONDS, column=None)] = None
    status: Annotated[int | None, OutcomeField(Form.STATUS, column=None)] = None
    error: Annotated[str | None, OutcomeField(Form.ERROR, "errors")] = None
    ended_at: Annotated[Instant | None, OutcomeField(Form.INSTANT, served=False)] = None
    at: Annotated[Instant | None, OutcomeField(Form.INSTANT)] = None
    after_seconds: _Seconds = None
    retry_after_seconds: _Seconds = None
    refused: _Flag = False
    location: Annotated[str | None, OutcomeField(Form.LOCATION, "locations")] = None
    links: Annotated[Sequence[str | Link] | UrlColumns, OutcomeField(Form.LINKS, column=None)] = ()
    robots: Annotated[RobotsAnswer | None, OutcomeField(Form.ROBOTS)] = None
    answered: Annotated[bool | None, OutcomeField(Form.FLAG_OR_NONE)] = None
    line: Annotated[bytes | None, OutcomeField(Form.OCTETS, "lines", LINE_BYTES_MAX, served=False)] = None
    politeness: Annotated[bytes | None, OutcomeField(Form.OCTETS, bytes_max=LINE_BYTES_MAX, served=False)] = None
    digest: Annotated[bytes | None, OutcomeField(Form.OCTETS, "digests", DIGEST_BYTES_MAX, kept="d")] = None
    duplicate: _Flag = False
    bytes_read: Annotated[int, OutcomeField(Form.COUNT)] = 0
    etag: Annotated[str | None, OutcomeField(Form.TEXT, "etags", VALIDATOR_BYTES_MAX, "t", renewed=True)] = None
    last_modified: Annotated[
        str | None, OutcomeField(Form.TEXT, bytes_max=VALIDATOR_BYTES_MAX, kept="l", renewed=True)
    ] = None
    metadata: Annotated[Mapping[str, object] | None, OutcomeField(Form.METADATA, kept="m")] = None
    address: Annotated[str | None, OutcomeField(Form.ADDRESS, "addresses")] = None
    ttl_seconds: _Seconds = None
    first_byte_seconds: _Seconds = None
    repeats: _Flag = False
    challenged: _Flag = False
    first_copy: _Flag = False
    foreign_copy: _Flag = False
    text_digest: Annotated[
        bytes | None, OutcomeField(Form.OCTETS, "text_digests", TEXT_DIGEST_BYTES, kept="x", renewed=True)
    ] = None
    warc_record: Annotated[
        bytes | None, OutcomeField(Form.OCTETS, "warc_records", WARC_MARK_BYTES, kept="a", renewed=True)
    ] = None
    payment: Annotated[str | None, OutcomeField(Form.TEXT, "payments", PAYMENT_TEXT_MAX)] = None


def _field_of(hint: Any) -> OutcomeField:
    (told,) = (each for each in hint.__metadata__ if isinstance(each, OutcomeField))
    return told


LINK_FIELDS: Final[Mapping[str, OutcomeField]] = {
    name: _field_of(hint)
    for name, hint in get_type_hints(Link, include_extras=True).items()
    if hasattr(hint, "__metadata__")
}
"""The fields of `Link` that the record of its URL keeps; they stay until the URL is deleted."""


OUTCOME_FIELDS: Final[Mapping[str, OutcomeField]] = {
    name: _field_of(hint) for name, hint in get_type_hints(Outcome, include_extras=True).items()
}
"""The fields of `Outcome`, in order. The columns of a batch, the checks of a report and the bodies over HTTP are made
of them."""
OUTCOME_COLUMNS: Final[Mapping[str, str]] = {
    told.column or name: name for name, told in OUTCOME_FIELDS.items() if told.column is not None
}
"""The columns of an `OutcomeBatch` that may be left out, and the field of `Outcome` that each has the values of."""
OWN_FIELDS: Final[Mapping[str, OutcomeField]] = {
    "visits": OutcomeField(Form.COUNT, None, kept="v"),
    "created_at": OutcomeField(Form.INSTANT, None, kept="c"),
    "change_rate": OutcomeField(Form.REAL, None, kept="r"),
    "change_confidence": OutcomeField(Form.REAL, None, kept="p"),
    "revisit_interval": OutcomeField(Form.REAL, None, kept="i"),
    "revisit_memory": OutcomeField(Form.REAL, None, kept="n"),
    "signals": OutcomeField(Form.OCTETS, None, SIGNALS_BYTES, kept="s"),
    "discovered_at": OutcomeField(Form.INSTANT, None, kept="o"),
}
"""The fields of a record that no outcome sets. visits: the number of answered fetches. created_at: the instant at which
the page was made, only from an import. change_rate: changes per second, as its visits showed; change_confidence: about
how many changes were seen (policy/change_rates.py). revisit_interval, revisit_memory: the numbers of a published rule
(policy/revisit_rules.py). signals: the latest date of a change that a link named (an instant of 8 bytes), and
the number of such dates since the last visit (2 bytes). discovered_at: the instant at which another frontier
discovered the URL, only from an import."""
RECORD_FIELDS: Final[Mapping[str, OutcomeField]] = {
    **{name: field for name, field in OUTCOME_FIELDS.items() if field.kept},
    **OWN_FIELDS,
    **LINK_FIELDS,
}
"""The fields that the record of a URL keeps: texts, octets (as hex digits outside of the store), numbers and metadata.
Cards, exports and imports are made of them, and so are leases, if `Lease` has a field of the same name."""


def _with(one: Outcome, fields: Mapping[str, Any]) -> Outcome:
    """The outcome with other values of these fields. Raises SettingsError for a name that no field has."""
    try:
        return msgspec.structs.replace(one, **fields)
    except TypeError as error:
        raise SettingsError(f"{error}; an outcome has {', '.join(list(OUTCOME_FIELDS)[2:])}") from None


@dataclass(frozen=True, slots=True, init=False)
class OutcomeBatch:
    """Outcomes of many leases in columns, with all fields of `Outcome` but links, which `report` accepts separately.

    tokens: whole numbers; for each, or once for all, its verdict, seconds (None or NaN: no request was sent) and HTTP
    status (None or 0 without one). Each further column has the values of a field of `Outcome` and its name, or its
    plural (`errors`, `locations`, `lines`, `digests`, `etags`, `addresses`): a list with None for missing values, a
    mapping from the rows with a value, or one value for all; None if no row has one. Raises SettingsError for a
    column of another name.
    """

    tokens: npt.ArrayLike
    verdicts: Verdict | str | Sequence[Verdict | str]
    seconds: npt.ArrayLike | None
    statuses: npt.ArrayLike | None
    columns: Mapping[str, Column[Any]]

    def __init__(
        self,
        tokens: npt.ArrayLike,
        verdicts: Verdict | str | Sequence[Verdict | str] = Verdict.DONE,
        seconds: npt.ArrayLike | None = None,
        statuses: npt.ArrayLike | None = 200,
        **columns: Column[Any],
    ) -> None:
        for name in columns:
            if name not in OUTCOME_COLUMNS:
                raise SettingsError(f"an OutcomeBatch has no column {name!r}; it has {', '.join(OUTCOME_COLUMNS)}")
        put = object.__setattr__
        put(self, "tokens", tokens)
        put(self, "verdicts", verdicts)
        put(self, "seconds", seconds)
        put(self, "statuses", statuses)
        put(self, "columns", columns)

    def __len__(self) -> int:
        return len(np.atleast_1d(np.asarray(self.tokens)))


class Lease(msgspec.Struct, frozen=True):
    """The right to fetch one URL until `deadline` (an instant), proved by `token`, an int that only grows.

    key: the queue's key. authority: scheme://host[:port]. kind: page or an errand. attempt: 1 for the first.
    not_before: do not fetch before this instant (trains; otherwise the instant of the lease).
    ended_before: the end of the last request to this host (None: there was none); gap_seconds: the required gap,
    gap_reason: the rule that requires it (`floor factor crawl_delay retry_after back_off strain
    visit_time hours`).
    address: the address of the host, from a caller or an errand (None: unknown); connect to exactly that one.
    capacity: the number of requests to this host that may be open at once, this one included.
    digest, text_digest: of the content at the last visit, as they were reported. warc_record: the archived answer that
    the validators are from. visits: the number of fetches that the site answered.
    unique_key: that of the link, in a crawl by unique keys. There `url` is the text of the link, and one that is not a
    URL has neither host nor authority.
    about_uses: the lines of the robots.txt in force that say what the page may be used for. ruled_by: the digest of
    that file and the number of the line that allows the page, 0 if no line decides; None without a file with rules, and
    for a frontier whose caller knows the rules.
    An errand of kind `address` has a URL of the form `dns:host` (RFC 4501) and no authority.
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
    digest: bytes | None = None
    text_digest: bytes | None = None
    warc_record: bytes | None = None
    visits: int = 0
    crawl: str = "default"
    ended_before: Instant | None = None
    gap_seconds: float | None = None
    gap_reason: str | None = None
    capacity: int = 1
    unique_key: bytes | None = None
    about_uses: tuple[UseLine, ...] = ()
    ruled_by: tuple[str, int] | None = None

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
        first_byte_seconds: float | None = None,
        **fields: Any,
    ) -> Outcome:
        """Returns the outcome of a fetched page; `links`: its links, `location`: its redirect target. fields: any
        others of `Outcome`. Raises SettingsError for an unknown field."""
        one = Outcome(
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
            first_byte_seconds=first_byte_seconds,
        )
        return _with(one, fields) if fields else one

    def again(
        self,
        *,
        at: Instant,
        seconds: float | None = None,
        links: Sequence[str | Link] | UrlColumns = (),
        **fields: Any,
    ) -> Outcome:
        """It was fetched and is due again at the instant `at`. The time until then is its schedule, and one bad outcome
        does not end its visits (docs/frontier.md). fields: as of `done`."""
        one = Outcome(self.token, Verdict.AGAIN, seconds=seconds, status=200, at=at, links=links)
        return _with(one, fields) if fields else one

    def retry(
        self,
        *,
        after_seconds: float | None = None,
        retry_after_seconds: float | None = None,
        seconds: float | None = None,
        status: int | None = None,
        error: str | None = None,
        refused: bool = False,
        challenged: bool = False,
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
            challenged=challenged,
        )

    def gone(
        self,
        *,
        status: int | None = None,
        error: str | None = None,
        seconds: float | None = None,
        payment: str | None = None,
    ) -> Outcome:
        """Returns the outcome of a final failure. A URL with a schedule from `again` is visited again all the same,
        more rarely, unless there is neither a status nor an error. payment: as of `Outcome`, with status 402."""
        return Outcome(self.token, Verdict.GONE, seconds=seconds, status=status, error=error, payment=payment)

    def robots(
        self,
        status: int | None,
        body: bytes = b"",
        *,
        location: str | None = None,
        seconds: float | None = None,
        fresh_seconds: float | None = None,
    ) -> Outcome:
        """The answer to an errand of kind `robots`; status None means that nothing answered."""
        answer = RobotsAnswer(status, body, location, fresh_seconds)
        return Outcome(self.token, Verdict.DONE, seconds=seconds, status=status, robots=answer)

    def located(self, address: str, *, ttl_seconds: float | None = None) -> Outcome:
        """Returns the answer to an errand of kind `address`: the host's address and its time to live (None: five
        minutes; at least half a minute, at most a day). Report a failure with `retry`, or with `gone` if it is
        final."""
        return Outcome(self.token, Verdict.DONE, address=address, ttl_seconds=ttl_seconds)


LEASE_FIELDS: Final[Mapping[str, OutcomeField]] = {
    name: told for name, told in RECORD_FIELDS.items() if name in Lease.__struct_fields__
}
"""The fields of a record that are in the lease of its URL."""


class PageLine(msgspec.Struct, kw_only=True):
    """A line of `pages.jsonl`: its fields in their order (docs/formats/archive.md). UNSET ones are left out. The fields
    of an answer are None where the URL ended without a request."""

    url: str
    outcome: Word
    status: int | None = None
    error: str | UnsetType = UNSET
    fetched_at: str
    seconds: float | None = None
    bytes: int = 0
    content_type: str | None = None
    digest: str | None = None
    simhash: str | None = None
    depth: int
    referrer: str | None
    priority: float
    attempt: int
    location: str | None = None
    title: str | None = None
    description: str | None = None
    canonical: str | None = None
    charset: str | None = None
    language: str | None = None
    http_date: str | None = None
    last_modified: str | None = None
    etag: str | None = None
    links: int = 0
    token: int | None = None
    warc: dict[str, Any] | None = None
    shingles: int | UnsetType = UNSET
    text_digest: str | UnsetType = UNSET
    image: dict[str, Any] | UnsetType = UNSET
    content_digest: str | UnsetType = UNSET
    duplicate_of: str | UnsetType = UNSET
    distance: int | UnsetType = UNSET
    probe: str | UnsetType = UNSET
    directives: list[str | None] | UnsetType = UNSET
    preferences: Preferences | UnsetType = UNSET
    links_left_out: int | UnsetType = UNSET
    tls: str | UnsetType = UNSET
    decoding: str | UnsetType = UNSET
    requested: str | UnsetType = UNSET
    conditional: Conditional | UnsetType = UNSET
    payment: str | UnsetType = UNSET
    items: msgspec.Raw | UnsetType = UNSET
    not_followed: dict[str, int] | UnsetType = UNSET


class LeaseColumns(Protocol):
    """Leases in columns, of which each becomes a `Lease` when it is looked at."""

    def __len__(self) -> int: ...

    def tokens(self) -> list[int]:
        """One per lease, in order."""
        ...

    def urls(self) -> list[str]:
        """One per lease, in order."""
        ...

    def leases(self) -> Sequence[Lease]:
        """The same, row by row."""
        ...


class LeaseBatch(Sequence[Lease]):
    """The leases of one call: columns, and `Lease` by iterating. Empty, so falsy, when nothing is ready.

    `lines` are output lines that the call itself decided (refusals by robots rules), `lsn` their place in the log.
    """

    __slots__ = ("_columns", "_leases", "lines", "lsn")

    def __init__(
        self, leases: Iterable[Lease] | LeaseColumns = (), *, lines: Sequence[Line] = (), lsn: int = 0
    ) -> None:
        self._columns: LeaseColumns | None = None
        self._leases: Sequence[Lease] | None = None
        if isinstance(leases, Iterable):
            self._leases = tuple(leases)
        else:
            self._columns = leases
        self.lines = tuple(lines)
        self.lsn = lsn

    def _all(self) -> Sequence[Lease]:
        if self._leases is None:
            assert self._columns is not None
            self._leases = self._columns.leases()
        return self._leases

    def __len__(self) -> int:
        return len(self._columns if self._columns is not None else self._all())

    def __iter__(self) -> Iterator[Lease]:
        return iter(self._all())

    @overload
    def __getitem__(self, row: int) -> Lease: ...
    @overload
    def __getitem__(self, row: slice) -> LeaseBatch: ...
    def __getitem__(self, row: int | slice) -> Lease | LeaseBatch:
        return LeaseBatch(self._all()[row]) if isinstance(row, slice) else self._all()[row]

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, list | tuple | LeaseBatch) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self.tokens))

    @property
    def lease_id(self) -> int | None:
        """The first token; the tokens of one call are consecutive."""
        tokens = self.tokens
        return tokens[0] if tokens else None

    @property
    def urls(self) -> list[str]:
        """The URL of each lease, in order."""
        return self._columns.urls() if self._columns is not None else [lease.url for lease in self._all()]

    @property
    def tokens(self) -> list[int]:
        """The token of each lease, in order, for `OutcomeBatch`, `extend` and `defer`."""
        return self._columns.tokens() if self._columns is not None else [lease.token for lease in self._all()]

    def __repr__(self) -> str:
        return f"<LeaseBatch {len(self)} leases>"


@dataclass(frozen=True, slots=True)
class Report:
    """The answer of `report`: a code per outcome and, row by row, a code per link. Iterating yields the outcomes'
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
    """The facts about one URL: its state, the reason for a parked or gone one, and the result of the last attempt.

    discovered_at, fetched_at: as in `Explanation`.
    """

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
    unique_key: bytes | None = None
    discovered_at: Instant | None = None
    fetched_at: Instant | None = None


class ListPage(list[Listed], Generic[Listed]):
    """A piece of a list. cursor: the argument `after` for the next piece, None at the end; it remains valid while
    others write."""

    def __init__(self, rows: Iterable[Listed] = (), cursor: str | None = None) -> None:
        super().__init__(rows)
        self.cursor = cursor


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """One queue: (crawl, key, host), the numbers of its URLs by state, and the orders of operators about it.

    blocked_until: an instant. delay_seconds, limit: None if not set.
    """

    crawl: str
    key: str
    host: str
    queued: int
    leased: int
    waiting: int
    parked: int
    done: int
    gone: int
    paused: bool = False
    blocked_until: Instant | None = None
    delay_seconds: float | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class RobotsStatus:
    """The known state of a robots.txt.

    state: unknown, rules, allow (without rules), refused (unreachable, so its pages are not fetched), dead (no server)
    or retrying. status: of the last answer, or None. fetched_at: the last good answer; expires_at: the time of the next
    request. error: the class of the last failure.
    """

    authority: str
    state: str
    status: int | None
    fetched_at: Instant | None
    expires_at: Instant | None
    crawl_delay: float | None
    sitemaps: int
    error: str | None


@dataclass(frozen=True, slots=True)
class HostStatus:
    """One host: ready, resting (or being visited), blocked (paused or blocked by an operator, or backing off) or empty,
    and its clock.

    rest_until: an instant. gap_seconds: the required gap after its last request, and its rule (`reason`).
    not_welcome: why it is parked until an operator resumes it, or is not visited for a while. robots: the files of
    its authorities. paused, blocked_until: all its queues are, by an operator's order. payment: what it asks for a
    page, or what it says it charged.
    """

    name: str
    state: str
    queued: int
    leased: int
    rest_until: Instant | None
    gap_seconds: float | None
    reason: str | None
    back_off_seconds: float
    answered: int
    delay_seconds: float | None = None
    limit: int | None = None
    paused: bool = False
    not_welcome: str | None = None
    robots: tuple[RobotsStatus, ...] = ()
    blocked_until: Instant | None = None
    payment: str | None = None


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """One group of hosts that share a clock: the end of its rest, or None, and the number of its turns in use."""

    name: str
    rest_until: Instant | None
    in_flight: int
    capacity: int


@dataclass(frozen=True, slots=True)
class PriorityPart:
    """One part of a weighted priority: its value from 0 to 1, and its weight; the weights of all parts add up to 1."""

    name: str
    value: float
    weight: float


@dataclass(frozen=True, slots=True)
class Ranking:
    """The priority of a URL and its parts.

    source: default (neither its link nor a function set one), given (with its link, or by an operator), function
    (the function returns the same today), None if it is unknown. function: the function of priority of the
    frontier, or its crawl. parts: the parts of a weighted function, as it returns them today for the depth of the
    URL alone. hops: redirects that led to it. losses: leases in a row that ended without a report; each moves it to the
    end of its class.
    """

    priority: float
    klass: int
    source: str | None
    function: str | None
    parts: tuple[PriorityPart, ...]
    depth: int
    hops: int
    losses: int


@dataclass(frozen=True, slots=True)
class ArchivePlace:
    """The place of an archived answer: a file of the archive, and offset and length of its record in bytes."""

    file: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class RevisitStatus:
    """What a revisit rule knows of one page.

    change_rate: changes a second, as its visits showed; change_error: the relative standard error of this rate, 0.5 for
    50 %. value: of a visit now, and price: the one that the value must exceed; both None for a rule without a price.
    stretch: the factor of all intervals, None for a rule with a price. visits: answered fetches. next_look_at: the
    instant at which the rule looks at the page again; next_fetch_at: the instant at which the page is due at the
    present price or stretch, None if it is never due. modified_at: the latest date of a change that a link named;
    signals: the number of such dates since the last visit. signal_recall: the share of changes of its host that have a
    signal; signal_noise: false signals a second, for each page of its host; signal_seconds: the waiting that a signal
    is worth. These three are None for a page without a date.
    """

    rule: str
    change_rate: float
    change_error: float
    value: float | None
    price: float | None
    stretch: float | None
    visits: int
    next_look_at: Instant | None
    next_fetch_at: Instant | None
    modified_at: Instant | None = None
    signals: int = 0
    signal_recall: float | None = None
    signal_noise: float | None = None
    signal_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything about one URL, and the one reason why it is not being fetched now.

    slot, fingerprint, order: its identity. klass: 0 to 15. reason_now: a word; reason_text: a sentence. robots: the
    deciding line of its robots.txt, or words without one; robots_state: the state of that file. due_since: the time
    since which the URL itself may be fetched: its discovery, or the instant until which it waited. worker: the worker
    with its lease, empty for this process, and lease_until the end of that. discovered_at: to within a minute, or
    longer in a frontier that is some days old; fetched_at: its last answer, to the second; both None if an earlier
    version did not note them. before: the number of URLs of its queue that precede it, `BEFORE_COUNTED_MAX` for that
    many or more.
    held_by: all groups that delay its host now. ranking: the parts of its priority. archived, duplicate_of, distance:
    the place of its last answer in the archive, the URL of which it is a copy, and the number of different bits of
    their SimHashes, None for the same bytes; a crawl knows these, a frontier without a crawl does not.
    next_fetch_at: when a page is visited again by its rule, or by its schedule. revisit: what the revisit rule knows of
    a fetched page, None without a rule. preferences: what its site says about its uses, None if it says nothing: its
    robots.txt, and in a crawl also the last answer.
    """

    url: str
    state: State
    reason_now: str
    reason_text: str
    status: UrlStatus
    slot: int
    fingerprint: int
    klass: int | None = None
    order: int | None = None
    queue: QueueStatus | None = None
    host: HostStatus | None = None
    authority: str | None = None
    robots: str | None = None
    robots_state: str | None = None
    next_at: Instant | None = None
    due_since: Instant | None = None
    worker: str | None = None
    lease_until: Instant | None = None
    discovered_at: Instant | None = None
    fetched_at: Instant | None = None
    before: int | None = None
    held_by: tuple[GroupStatus, ...] = ()
    ranking: Ranking | None = None
    archived: ArchivePlace | None = None
    duplicate_of: str | None = None
    distance: int | None = None
    next_fetch_at: Instant | None = None
    revisit: RevisitStatus | None = None
    preferences: Preferences | None = None

    def as_dict(self) -> dict[str, Any]:
        """Returns all of it as dicts and JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Idle:
    """Why nothing, or no more, can be leased now: hosts by the cause that delays them, and the next event.

    hosts: ready, resting, blocked, leased, empty; they add up to `known`. urls: by state. next_at: an instant.
    tail_seconds: the time that the slowest host needs for its URLs at its gap, with the hours in which it is closed.
    hint: the part of `text` that says how a program leases ready URLs.
    """

    reason: str
    text: str
    known: int
    hosts: Mapping[str, int]
    urls: Mapping[str, int]
    next_at: Instant | None
    next_seconds: float | None
    errands: int
    tail_host: str | None = None
    tail_urls: int = 0
    tail_seconds: float | None = None
    hint: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Returns all of it as dicts and JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """A named worker and its open leases: pages, errands, and the instants at which the first and the last of them
    end."""

    name: str
    pages: int
    errands: int
    first_deadline: Instant | None = None
    last_deadline: Instant | None = None


@dataclass(frozen=True, slots=True)
class HostWait:
    """A resting host with URLs: the end of its rest (an instant), the seconds until then, the number of URLs, the rule.

    asked: whether the host requested it (Retry-After), or refused without a time.
    """

    name: str
    until: Instant
    seconds: float
    urls: int
    reason: str
    asked: bool


@dataclass(frozen=True, slots=True)
class Waits:
    """Resting hosts with URLs: their number, the longest rest in seconds (or 0), the first to be ready."""

    hosts: int
    longest_seconds: float
    soonest: tuple[HostWait, ...]


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of a recount: `ok`, and each problem in words."""

    ok: bool
    problems: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)


class Verbs(Protocol):
    """The three verbs, of a frontier in this process or elsewhere."""

    def discover(self, links: Iterable[str | Link], *, request_id: RequestId | None = None) -> list[Code]:
        """One code per link, in order; an answered link is durable. A `UrlBatch` is such an iterable."""
        ...

    def lease(
        self,
        want: int,
        *,
        ttl_seconds: float = 60,
        per_queue: int = 1,
        train_seconds: float | None = None,
        queues_max: int | None = None,
        crawl: str | None = None,
        key: str | None = None,
        worker: str | None = None,
        errands: bool = False,
        wait_seconds: float = 0.0,
        request_id: RequestId | None = None,
    ) -> LeaseBatch:
        """Up to `want` URLs whose hosts may be visited now. Each frontier has these arguments and defaults;
        `frontier/verbs/leasing.py` has their checks."""
        ...

    def report(
        self,
        outcomes: Sequence[Outcome] | OutcomeBatch,
        links: Sequence[tuple[int, str | Link]] = (),
        *,
        request_id: RequestId | None = None,
        watermark: tuple[str, bytes] | None = None,
    ) -> Report:
        """Returns one code per outcome. links: (row of the outcome, link), in addition to those of an outcome.

        watermark: (archive writer, opaque place) synced before.
        """
        ...


LEASE_KEYWORDS: Final[Mapping[str, Any]] = {
    name: one.default for name, one in inspect.signature(Verbs.lease).parameters.items() if one.kind is one.KEYWORD_ONLY
}
"""The keywords of `lease` and their defaults."""
