"""Checks of the arguments of calls before a decision. A wrong value raises an error with its name, and nothing
changes."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from outrider import limits
from outrider.clock import Instant
from outrider.errors import SettingsError, shown
from outrider.frontier.format import metadata
from outrider.frontier.format.constant import constant_column
from outrider.frontier.format.facts import KINDS, Fact
from outrider.frontier.policy.grouping import address_of
from outrider.frontier.verbs.arrivals import NO_DATE, NO_DUE, UNREADABLE
from outrider.journey import LINK_FIELDS, CrawlOrder, Link, Outcome, RequestId, RobotsAnswer, Unique, UrlName, Verdict
from outrider.limits import (
    ADDRESS_TEXT_MAX,
    CALL_ROWS_MAX,
    DATE_CHARACTERS_MAX,
    DEPTH_MAX,
    LEASE_SECONDS_MAX,
    NAME_CHARACTERS_MAX,
    PRIORITY_WHOLE_MAX,
    REFERRER_BYTES_MAX,
    SLOTS,
    URL_BYTES_MAX,
    WATERMARK_BYTES_MAX,
    WATERMARK_WRITERS_MAX,
)
from outrider.url import UrlBatch, authority_of, spell, spelled_host
from outrider.url.dates import instant_of_date
from outrider.url.keys import key_of_name, name_of_key

Uint64s = npt.NDArray[np.uint64]

INSTANT_MAX = limits.INSTANT_MAX
SPAN_SECONDS_MAX = INSTANT_MAX / 2 / 1_000_000  # an instant plus this span still fits
HTTP_STATUS_MAX = 999
_HOPS_MAX = 255
_SEQUENCE_MAX = (1 << 63) - 1
_PARCEL_FIELDS, _OLDER_PARCEL_FIELDS = len(KINDS[Fact.OUTBOX].columns), 13
_BY_URL = 0, b""
"""The last fields of a parcel of a frontier that has no crawls by unique keys."""
_FIELDS: dict[type, tuple[str, ...]] = {
    Outcome: Outcome.__struct_fields__,
    Link: tuple(one.name for one in fields(Link)),
}
_COPIES: dict[type, Any] = {
    int: int.__int__,
    float: float.__float__,
    str: str.__str__,
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
}
PLAIN = frozenset((type(None), bool, int, float, str, bytes, dict, list, tuple, Verdict, UrlBatch))
_TEXT = frozenset((str,))


def whole(name: str, value: object, least: int, most: int) -> int:
    """Returns a whole number between two bounds. Raises SettingsError with its name."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise SettingsError(f"{name} {shown(value)}: it must be a whole number from {least} to {most}")
    return int(value)


def ttl(value: object) -> float:
    """Returns the duration of a lease in seconds."""
    if not is_number(value) or not 0 < value <= LEASE_SECONDS_MAX:
        raise SettingsError(f"ttl_seconds {shown(value)}: it must be above 0 and at most {LEASE_SECONDS_MAX:.0f}")
    return value


def seconds(what: str, value: object) -> float:
    """Returns a duration of at most a day."""
    return _seconds_up_to(LEASE_SECONDS_MAX, what, value)


def span(what: str, value: object) -> float:
    """Returns a duration that fits when it is added to an instant."""
    return _seconds_up_to(SPAN_SECONDS_MAX, what, value)


def _seconds_up_to(most: float, what: str, value: object) -> float:
    if not is_number(value) or not 0 <= value <= most:
        raise SettingsError(f"{what} {shown(value)}: it must be a number of seconds from 0 to {most:.0f}")
    return float(value)


def seconds_of_requests(value: object, rows: int) -> npt.NDArray[np.float64]:
    """Returns how long each of some requests took, in seconds; NaN for unknown."""
    values = _of_each("seconds", _duration, value, rows)
    return np.array([np.nan if one is None else one for one in values], np.float64)


def ends_of_requests(value: object, rows: int) -> npt.NDArray[np.int64]:
    """Returns the instant at which each of some requests ended, -1 for unknown."""
    values = _of_each("ended_at", _instant, value, rows)
    return np.array([-1 if one is None else one for one in values], np.int64)


def of_requests(what: str, value: object) -> Any:
    """Returns the seconds or the ends of requests as a caller gives them: one for all, or a list."""
    check = _duration if what == "seconds" else _instant
    return list(map(check, listed(what, value))) if _is_list(value) else check(value)


def _of_each(what: str, check: Callable[[object], Any], value: object, rows: int) -> list[Any]:
    """Returns a value for each row. value: one for all rows, or a list with one for each."""
    if not _is_list(value):
        return [check(value)] * rows
    values = list(map(check, listed(what, value)))
    if len(values) != rows:
        raise SettingsError(f"{what} has {len(values)} values for {rows} tokens; pass one value, or one for each token")
    return values


def _is_list(value: object) -> TypeGuard[Iterable[Any]]:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | bytearray | Mapping)


def _duration(value: object) -> float | None:
    return None if value is None else span("seconds", plain(value))


def _instant(value: object) -> int | None:
    return None if value is None else whole("ended_at", plain(value), 0, INSTANT_MAX)


def until(value: object, name: str = "until") -> int:
    """Returns the instant at which a wait ends."""
    return whole(name, value, 0, INSTANT_MAX)


def train(value: object) -> float | None:
    """Returns the longest duration of a train in seconds; None for the duration of the lease."""
    return None if value is None else seconds("train_seconds", value)


def delay(value: object) -> float | None:
    """Returns the least gap of a queue in seconds; None for the gap of the settings."""
    return None if value is None else seconds("delay", value)


def requests_at_once(value: object) -> int | None:
    """Returns how many requests of a queue may be open; None for one."""
    return None if value is None else whole("limit", value, 1, 65_535)


def rows(value: object) -> int:
    """Returns the number of rows in a piece of a list."""
    return whole("limit", value, 1, limits.LISTED_ROWS_MAX)


def lease_id(value: object) -> int:
    """Returns the first token of a call."""
    return whole("lease_id", value, 1, 2**64 - 1 - limits.HELD_ROWS_MAX)


def name(what: str, value: object) -> str | None:
    """Returns the name of a crawl, key, worker or client; None for no name."""
    if value is None:
        return None
    if not isinstance(value, str) or not value:
        raise SettingsError(f"{what} {shown(value)}: it must be a text of 1 to {NAME_CHARACTERS_MAX} characters")
    unicode(what, value)
    return text(what, value, NAME_CHARACTERS_MAX)


def names(what: str, values: Sequence[str]) -> None:
    """Checks many names at once, as `name` does. An empty text means that the name is missing."""
    try:
        "".join(values).encode()
        wrong = max(map(len, values), default=0) > NAME_CHARACTERS_MAX
    except UnicodeEncodeError:
        wrong = True
    for value in values if wrong else ():
        name(what, value or None)


def request(value: object) -> RequestId | None:
    """Returns a request id: (client, sequence)."""
    if value is None:
        return None
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise SettingsError(f"request_id {shown(value)}: it must be (client, sequence), a text and a whole number")
    client = name("the client of a request_id", value[0])
    if client is None:
        raise SettingsError(f"request_id {shown(value)}: its client needs a name")
    return client, whole("the sequence of a request_id", value[1], 0, _SEQUENCE_MAX)


def text(what: str, value: object, characters_max: int | None = None) -> str:
    """Returns a text of any kind."""
    if not isinstance(value, str):
        raise SettingsError(f"{what} {shown(value)}: it must be a text")
    value = str.__str__(value)
    if characters_max is not None and len(value) > characters_max:
        raise SettingsError(
            f"{what} has {len(value):,} characters; it may have {characters_max:,}: shorten it or leave it out"
        )
    return value


def kept(what: str, value: str | bytes | None, bytes_max: int) -> None:
    """Checks that a text or bytes fit into the log, a card and a checkpoint. Raises SettingsError with both sizes."""
    if value is None:
        return
    if isinstance(value, bytes) or value.isascii():
        size = len(value)
    else:
        size = len(value.encode("utf-8", "surrogatepass"))
    if size > bytes_max:
        raise SettingsError(f"{what} has {size:,} bytes; it may have {bytes_max:,}: shorten it or leave it out")


def unfit(why: object) -> SettingsError:
    """Returns the error for a call whose facts could be logged but not applied."""
    return SettingsError(f"a value of this call cannot be kept ({why}); nothing was changed")


def host(value: object) -> str:
    """Returns a host in canonical spelling, without a dot at its end."""
    spelled = spelled_host(value) if isinstance(value, str) else None
    if spelled is None:
        raise SettingsError(f"host {shown(value, 200)}: it must be a host name as in a URL")
    kept("host", spelled, URL_BYTES_MAX)
    return spelled


def listed_host(value: object) -> str:
    """Returns the name of a host as `hosts` lists it: a host, or the name that a key has in place of one."""
    if isinstance(value, str) and value.isascii() and (key := key_of_name(value)) and value == name_of_key(key):
        return value
    return host(value)


def robots_url(authority: object) -> str:
    """Returns the URL of an authority's robots.txt. authority: scheme, host and port in any spelling."""
    found = spell([authority.rstrip("/") + "/robots.txt"])[0] if isinstance(authority, str) else None
    if found is None:
        raise SettingsError(
            f"authority {shown(authority, 200)}: write it as https://example.org or http://example.org:8080"
        )
    if len(found) > URL_BYTES_MAX:
        raise SettingsError(f"authority {shown(found)} …: with /robots.txt it is longer than {URL_BYTES_MAX} bytes")
    return found


def authorities(given: object, known: Container[str] = ()) -> list[str]:
    """Returns authorities in canonical spelling. known: authorities that already have this spelling."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise SettingsError(f"authorities {shown(given, 200)}: it must be a list, as [https://example.org]")
    return [
        one if type(one) is str and one in known else authority_of(robots_url(one))
        for one in listed("authorities", given)
    ]


def listed(what: str, given: Iterable[Any]) -> list[Any]:
    """Returns all items of a caller's iterable as a list. Raises SettingsError if reading it fails."""
    try:
        return list(given)
    except Exception as error:  # the caller's iterator may raise anything
        raise SettingsError(f"the {what} cannot be read ({type(error).__name__}: {error}); use a list") from error


def digests(given: Iterable[bytes]) -> list[bytes]:
    """Returns digests of contents."""
    found = listed("digests", given)
    for one in found:
        if not isinstance(one, bytes):
            raise SettingsError(f"digest {shown(one)}: it must be bytes")
    return found


def parcels(given: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
    """Returns links on their way between logs, as `outbox` returns them."""
    rows = listed("parcels", given)
    names: set[tuple[str, str]] = set()  # of crawls and keys; a call has few
    for place, row in enumerate(rows):
        if not isinstance(row, tuple | list) or len(row) not in (_OLDER_PARCEL_FIELDS, _PARCEL_FIELDS):
            raise SettingsError(f"parcel {shown(row)}: it must be a row from `outbox`, of {_PARCEL_FIELDS} fields")
        row = rows[place] = [*plain_values(row), *_BY_URL][:_PARCEL_FIELDS]
        source, sequence, target, crawl, key, due, priority, depth, hops, seed, referrer, octets, url, by, own = row
        whole("the source of a parcel", source, 0, SLOTS - 1)
        whole("the sequence of a parcel", sequence, 0, _SEQUENCE_MAX)
        whole("the target of a parcel", target, 0, SLOTS - 1)
        named = text("the crawl of a parcel", crawl), text("the key of a parcel", key)
        if named not in names:
            name("the crawl of a parcel", named[0])
            name("the key of a parcel", named[1] or None)
            names.add(named)
        whole("the due date of a parcel", due, NO_DUE, INSTANT_MAX)
        if not is_number(priority) or not abs(priority) <= PRIORITY_WHOLE_MAX:
            raise SettingsError(f"the priority of a parcel {shown(priority)}: it must be a number from 0 to 1")
        whole("the depth of a parcel", depth, 0, DEPTH_MAX)
        whole("the hops of a parcel", hops, 0, _HOPS_MAX)
        whole("the seed of a parcel", seed, 0, 1)
        unicode("the referrer of a parcel", referrer)
        kept("the referrer of a parcel", text("the referrer of a parcel", referrer), REFERRER_BYTES_MAX)
        text("the URL of a parcel", url)
        if not isinstance(octets, bytes):
            raise SettingsError(f"the metadata of a parcel {shown(octets)}: it must be bytes of JSON")
        whole("the rule of the crawl of a parcel", by, 0, 1)
        most = metadata.metadata_bytes_max(callers=bool(by))
        kept("the metadata of a parcel", octets, most)
        metadata.checked(octets, "the metadata of a parcel", bytes_max=most)
        if not isinstance(own, bytes) or (own and not by):
            raise SettingsError(f"the unique key of a parcel {shown(own)}: it must be bytes, in a crawl by unique keys")
        kept("the unique key of a parcel", own, LINK_FIELDS["unique_key"].bytes_max)
    return rows


def status(value: object) -> None:
    """Checks an HTTP status, or None."""
    if value is not None:
        whole("status", value, 0, HTTP_STATUS_MAX)


def link(given: Link) -> Link:
    """Checks all fields of a link except its URL: an invalid URL gets the answer `invalid` and raises no error.
    Returns the link as `plain` copies it."""
    given = plain_link(given)
    name("key", given.key)
    name("crawl", given.crawl)
    unicode("referrer", given.referrer)
    kept("referrer", given.referrer, REFERRER_BYTES_MAX)
    whole("depth", given.depth, 0, DEPTH_MAX)
    whole("hops", given.hops, 0, _HOPS_MAX)
    if given.not_before is not None:
        whole("not_before", given.not_before, 0, INSTANT_MAX)
    if given.unique_key is not None:
        unique_key(given.unique_key)
    modified(given.modified)
    if given.change_seconds is not None and not (
        is_number(given.change_seconds) and 0 < given.change_seconds < math.inf
    ):
        raise SettingsError(f"change_seconds {shown(given.change_seconds)}: use a number of seconds above 0")
    return given


def modified(value: object) -> Instant:
    """Returns the instant of a change, as a link names it: NO_DATE for None, UNREADABLE for a text that is no date."""
    if value is None:
        return NO_DATE
    if isinstance(value, str):
        at = instant_of_date(value[:DATE_CHARACTERS_MAX])
        return UNREADABLE if at is None else at
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= INSTANT_MAX:
        raise SettingsError(
            f"modified {shown(value)}: use an instant in microseconds since 1970, or a date as text, as 2026-11-28"
        )
    return value


def unique_key(value: object) -> bytes:
    """Returns the unique key of a URL."""
    most = LINK_FIELDS["unique_key"].bytes_max
    if not isinstance(value, bytes) or not value:
        raise SettingsError(f"unique_key {shown(value)}: it must be 1 to {most:,} bytes; leave it out for none")
    kept("unique_key", value, most)
    return value


def by_url(crawl: str) -> SettingsError:
    """Returns the error for a unique key of a crawl that has none."""
    return SettingsError(
        f"unique_key: crawl {crawl!r:.200} tells URLs apart by their canonical spelling; use a crawl that "
        f'`make_crawl(name, unique="{Unique.CALLER}")` made'
    )


def unique(value: object) -> Unique:
    """Returns the rule by which URLs of a crawl are the same."""
    if not isinstance(value, str) or value not in set(Unique):
        raise SettingsError(f"unique {shown(value)}: use one of {', '.join(Unique)}")
    return Unique(value)


def order(value: object) -> CrawlOrder:
    """Returns the order of the URLs of a crawl."""
    if not isinstance(value, str) or value not in set(CrawlOrder):
        raise SettingsError(f"order {shown(value)}: use one of {', '.join(CrawlOrder)}")
    return CrawlOrder(value)


def url_name(value: object) -> UrlName:
    """Returns the name of one URL: its text, its unique key as bytes, or a link with text and key."""
    if isinstance(value, Link):
        return link(value)
    if isinstance(value, bytes):
        return unique_key(value)
    if not isinstance(value, str):
        raise SettingsError(f"url {shown(value)}: it must be a text, or in a crawl by unique keys bytes or a Link")
    return str.__str__(value)


def plain(value: Any) -> Any:
    """Returns a copy of a value in Python's own types. A caller may pass a value of a subclass, such as a member of an
    enumeration or a number of numpy. The copy keeps subclasses out of the frontier."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Outcome | Link):
        of = Link if isinstance(value, Link) else Outcome
        return of(**{name: plain(getattr(value, name)) for name in _FIELDS[of]})
    if isinstance(value, RobotsAnswer):
        return RobotsAnswer(*map(plain, (value.status, value.body, value.location, value.fresh_seconds)))
    for kind, copy in _COPIES.items():
        if isinstance(value, kind) and not isinstance(value, Verdict | bool):
            return copy(value)
    return value


def plain_values(values: Sequence[Any]) -> Sequence[Any]:
    """Returns the values as `plain` copies them."""
    return values if PLAIN.issuperset(map(type, values)) else list(map(plain, values))


def plain_link(one: Any) -> Any:
    """Returns a link or text as `plain` copies it."""
    if type(one) is Link and PLAIN.issuperset(map(type, map(one.__getattribute__, _FIELDS[Link]))):
        return one
    return one if type(one) is str else plain(one)


def plain_links(given: Any) -> Any:
    """Returns the links of an outcome as a list of texts and links, or as columns."""
    if isinstance(given, UrlBatch):
        return given
    if type(given) not in (list, tuple):
        given = listed("links", given if isinstance(given, Sequence) else given.strings())
    return given if _TEXT.issuperset(map(type, given)) else list(map(plain_link, given))


def tokens(given: npt.ArrayLike) -> Uint64s:
    """Returns tokens of leases. Raises SettingsError for a value that is not a token."""
    try:
        numbers = np.asarray(given)
        if not numbers.size:
            return np.zeros(0, np.uint64)
        if numbers.dtype == object:
            numbers = np.array([int(one) for one in numbers.tolist()], np.uint64)
    except (TypeError, ValueError, OverflowError) as error:
        raise SettingsError(f"tokens {shown(given)}: they must be whole numbers") from error
    if numbers.dtype.kind not in "iu" or numbers.ndim != 1:
        raise SettingsError(f"tokens {shown(given)}: they must be a list of whole numbers")
    # A negative number becomes a token of 64 bits that belongs to no lease.
    wide = np.int64 if numbers.dtype.kind == "i" else np.uint64
    if numbers is given or numbers.base is not None or numbers.dtype != wide:
        # The caller may change its array during the call.
        numbers = np.ascontiguousarray(numbers.astype(wide))
    found: Uint64s = numbers.view(np.uint64)
    return found


def ranks(
    batches: Sequence[UrlBatch], leasts: Sequence[int], ordered: Sequence[bool]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Returns depth and priority of each link in columns, batch by batch. The depth is the least depth of the batch, or
    the value in the column `depth` if it is larger. Without a column `priority` the priority is NaN. ordered: whether
    the crawl of a batch has an exact order."""
    sizes = list(map(len, batches))
    depths = constant_column(leasts[0], sum(sizes), "i8")
    if len(set(leasts)) > 1:
        depths = np.repeat(np.array(leasts, np.int64), sizes)
    priorities = constant_column(np.nan, sum(sizes), "f8")
    if not any(links.columns for links in batches):
        return depths, priorities
    depths, priorities, start = depths.copy(), priorities.copy(), 0
    for links, size, exact in zip(batches, sizes, ordered, strict=True):
        some = slice(start, start + size)
        given = _column(links, "depth", "iu", DEPTH_MAX, "whole numbers")
        if given is not None:
            depths[some] = np.maximum(given.astype(np.int64), depths[some])
        given = _whole_column(links) if exact else _column(links, "priority", "iuf", 1, "numbers")
        if given is not None:
            priorities[some] = given
        start += size
    return depths, priorities


def _whole_column(links: UrlBatch) -> npt.NDArray[Any] | None:
    """Returns the priorities of links in columns, in a crawl with an exact order; None if there is no such column."""
    given = links.columns.get("priority")
    if given is None:
        return None
    some, most = given[links.valid], PRIORITY_WHOLE_MAX
    if given.dtype.kind not in "iuf" or not ((some >= -most) & (some <= most) & (some == np.floor(some))).all():
        raise SettingsError(f"the column `priority` of links: it must contain whole numbers from {-most} to {most}")
    return given


def _column(links: UrlBatch, name: str, kinds: str, most: int, what: str) -> npt.NDArray[Any] | None:
    """Returns a further column of links with values from 0 to `most`; None if there is no such column."""
    given = links.columns.get(name)
    if given is None:
        return None
    some = given[links.valid]
    if given.dtype.kind not in kinds or not ((some >= 0) & (some <= most)).all():
        raise SettingsError(f"the column `{name}` of links: it must contain {what} from 0 to {most}")
    return given


def outcome_rows(links: UrlBatch, outcomes: int) -> npt.NDArray[np.int64]:
    """Returns the row of the outcome of each link in columns."""
    rows = links.columns.get("outcome")
    if rows is None:
        raise SettingsError("links in columns need a column `outcome`: links.with_columns(outcome=rows)")
    if rows.dtype.kind not in "iu" or not ((rows >= 0) & (rows < outcomes)).all():
        raise SettingsError(f"the column `outcome` of links: it must contain rows from 0 to {outcomes - 1}")
    return rows.astype(np.int64)


def pairs(given: Iterable[tuple[int, str | Link]]) -> list[tuple[int, str | Link]]:
    """Returns links with the row of their outcome."""
    found = listed("links", given)
    for pair in found:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise SettingsError(f"the links cannot be read ({shown(pair)}); use a list of (row of the outcome, link)")
    return [(whole("the row of a link's outcome", row, -CALL_ROWS_MAX, CALL_ROWS_MAX), link) for row, link in found]


def kept_text(what: str, value: object, bytes_max: int) -> None:
    """Checks a text that is stored in a record, or None."""
    unicode(what, value)
    kept(what, value if isinstance(value, str) else None, bytes_max)


def flag(what: str, value: object) -> None:
    """Checks a value that is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise SettingsError(f"{what} {shown(value)}: it must be True or False")


def unicode(what: str, value: object) -> None:
    """Checks a text that UTF-8 can encode, or None."""
    _text(what, value)
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise SettingsError(f"{what} {shown(value)}: it contains half a surrogate pair, not text") from None


def watermark(value: object, known: Mapping[str, bytes]) -> tuple[str, bytes] | None:
    """Returns the place up to which an archive is synced: (writer, opaque bytes) in Python's own types, or None."""
    if value is None:
        return None
    pair = plain_values(listed("watermark", value)) if isinstance(value, tuple | list) else ()
    if len(pair) != 2 or not isinstance(pair[1], bytes):
        raise SettingsError(f"watermark {shown(value)}: it must be (archive writer, place), a text and bytes")
    writer, place = name("the writer of a watermark", pair[0]), pair[1]
    if writer is None:
        raise SettingsError(f"watermark {shown(value)}: its writer needs a name")
    kept("the place of a watermark", place, WATERMARK_BYTES_MAX)
    if writer not in known and len(known) >= WATERMARK_WRITERS_MAX:
        raise SettingsError(
            f"archive writer {shown(writer)} exceeds the limit of {WATERMARK_WRITERS_MAX}, whose places are kept for "
            "ever; use one of their names"
        )
    return writer, place


def robots(answer: object) -> None:
    """Checks an answer to the errand for a robots.txt."""
    if not isinstance(answer, RobotsAnswer):
        raise SettingsError(f"robots {shown(answer)}: it must be a RobotsAnswer from lease.robots(status, body)")
    status(answer.status)
    _text("location", answer.location)
    fresh = answer.fresh_seconds
    if fresh is not None and not (is_number(fresh) and 0 <= fresh <= SPAN_SECONDS_MAX):
        raise SettingsError(f"fresh_seconds {shown(fresh)}: it must be at least 0, or None")
    if not isinstance(answer.body, bytes):
        raise SettingsError(f"body {shown(answer.body)}: it must be the bytes of the robots.txt")


def addresses(given: Mapping[str, str | None]) -> dict[str, str]:
    """Returns hosts and their addresses, both in canonical spelling; "" for an unknown address."""
    if not isinstance(given, Mapping):
        raise SettingsError(f"addresses {shown(given)}: it must be a mapping of hosts to addresses")
    found: dict[str, str] = {}
    for name_given, address in given.items():
        spelled = host(name_given)
        try:
            found[spelled] = "" if address is None else _address(address)
        except ValueError:
            raise SettingsError(
                f"address {shown(address)} of {shown(name_given, 200)}: it must be an IPv4 or IPv6 address"
            ) from None
    return found


def address(value: object) -> None:
    """Checks an address of a host."""
    text("address", value)
    try:
        _address(value)
    except ValueError:
        raise SettingsError(f"address {shown(value)}: it must be an IPv4 or IPv6 address") from None


def _address(value: object) -> str:
    """Returns an address in its one form. A zone (RFC 4007 section 11) is a short interface name. Raises ValueError."""
    if not isinstance(value, str | ipaddress.IPv4Address | ipaddress.IPv6Address):
        raise ValueError("it is not text")
    found = str(address_of(str(value)))
    if len(found) > ADDRESS_TEXT_MAX or not found.isascii() or not found.isprintable():
        raise ValueError("its zone is not an interface name")
    return found


def _text(what: str, value: object, characters_max: int | None = None) -> None:
    if value is not None:
        text(what, value, characters_max)


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value is a number, but not True or False."""
    return isinstance(value, int | float) and not isinstance(value, bool)
