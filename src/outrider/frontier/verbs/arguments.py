"""Checks of the arguments of calls, before anything is decided: a wrong value raises an error with its name and changes
nothing."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard

import msgspec
import numpy as np
import numpy.typing as npt

from outrider import limits
from outrider.errors import SettingsError
from outrider.frontier.format.alike import alike
from outrider.frontier.policy.grouping import address_of
from outrider.frontier.verbs.arrivals import NO_DUE
from outrider.journey import Link, Outcome, OutcomeBatch, RobotsAnswer, Verdict
from outrider.limits import (
    ADDRESS_TEXT_MAX,
    CALL_ROWS_MAX,
    DIGEST_BYTES_MAX,
    ERROR_TEXT_MAX,
    LEASE_SECONDS_MAX,
    LINE_BYTES_MAX,
    METADATA_BYTES_MAX,
    NAME_CHARACTERS_MAX,
    REFERRER_BYTES_MAX,
    SLOTS,
    URL_BYTES_MAX,
    VALIDATOR_BYTES_MAX,
    WATERMARK_BYTES_MAX,
    WATERMARK_WRITERS_MAX,
)
from outrider.url import UrlBatch, host_of, spell

Uint64s = npt.NDArray[np.uint64]

INSTANT_MAX = limits.INSTANT_MAX
_SECONDS_MAX = INSTANT_MAX / 2 / 1_000_000  # an instant plus so many seconds still fits
_HTTP_STATUS_MAX = 999
_DEPTH_MAX, _HOPS_MAX = 65_535, 255
_SEQUENCE_MAX = (1 << 63) - 1
_PARCEL_FIELDS = 13
_OCTETS = {"digest": DIGEST_BYTES_MAX, "line": LINE_BYTES_MAX, "politeness": LINE_BYTES_MAX}
"""The fields of an outcome that are bytes."""


def whole(name: str, value: object, least: int, most: int) -> int:
    """A whole number between two bounds. Raises SettingsError naming it."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise SettingsError(f"{name} {value!r}: give a whole number from {least} to {most}")
    return value


def ttl(value: object) -> float:
    """How long a lease lives, in seconds."""
    if not _is_number(value) or not 0 < value <= LEASE_SECONDS_MAX:
        raise SettingsError(f"ttl_seconds {value!r}: give seconds above 0, at most {LEASE_SECONDS_MAX:.0f}")
    return value


def seconds(what: str, value: object) -> float:
    """A length of time of at most a day."""
    if not _is_number(value) or not 0 <= value <= LEASE_SECONDS_MAX:
        raise SettingsError(f"{what} {value!r}: give seconds from 0 to {LEASE_SECONDS_MAX:.0f}")
    return float(value)


def span(what: str, value: object) -> float:
    """A length of time that fits when it is added to an instant."""
    if not _is_number(value) or not 0 <= value <= _SECONDS_MAX:
        raise SettingsError(f"{what} {value!r}: give seconds from 0 to {_SECONDS_MAX:.0f}")
    return float(value)


def name(what: str, value: object) -> None:
    """The name of a crawl, key, worker or client; None for no name."""
    if value is None:
        return
    if not isinstance(value, str) or not value:
        raise SettingsError(f"{what} {value!r:.80}: give a text of 1 to {NAME_CHARACTERS_MAX} characters")
    text(what, value, NAME_CHARACTERS_MAX)


def request(value: object) -> None:
    """A request id: (client, sequence)."""
    if value is None:
        return
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise SettingsError(f"request_id {value!r:.80}: give (client, sequence), a text and a whole number")
    name("the client of a request_id", value[0])
    if value[0] is None:
        raise SettingsError(f"request_id {value!r:.80}: its client has no name")
    whole("the sequence of a request_id", value[1], 0, _SEQUENCE_MAX)


def text(what: str, value: object, characters_max: int | None = None) -> str:
    """A text of any kind."""
    if not isinstance(value, str):
        raise SettingsError(f"{what} {value!r:.80}: give a text")
    if characters_max is not None and len(value) > characters_max:
        raise SettingsError(
            f"{what} has {len(value):,} characters; it may have {characters_max:,}: shorten it or leave it out"
        )
    return value


def kept(what: str, value: str | bytes | None, bytes_max: int) -> None:
    """A text or bytes that the log, a card and a checkpoint have room for. Raises SettingsError naming both sizes."""
    if value is None:
        return
    if isinstance(value, bytes) or value.isascii():
        size = len(value)
    else:
        size = len(value.encode("utf-8", "surrogatepass"))
    if size > bytes_max:
        raise SettingsError(f"{what} has {size:,} bytes; it may have {bytes_max:,}: shorten it or leave it out")


def unfit(why: object) -> SettingsError:
    """The error for a call whose facts could be logged but not applied."""
    return SettingsError(f"a value of this call cannot be kept ({why}); nothing of it was taken")


def host(value: object) -> str:
    """A host as people write it (upper case, letters of any script, an address, with a port), spelled as in a URL."""
    spelled = None
    if isinstance(value, str) and not set(value) & set("/?#@\\"):
        written = value.strip()
        address = written.count(":") > 1 and not written.startswith("[")
        spelled = spell([f"http://[{written}]/" if address else f"http://{written}/"])[0]
    if spelled is None:
        raise SettingsError(f"host {value!r:.200}: give a host's name, as in a URL")
    kept("host", spelled, URL_BYTES_MAX)
    return host_of(spelled)


def robots_url(authority: object) -> str:
    """The URL of an authority's robots.txt, from scheme, host and port as people write them."""
    found = spell([authority.rstrip("/") + "/robots.txt"])[0] if isinstance(authority, str) else None
    if found is None:
        raise SettingsError(f"authority {authority!r:.200}: give it as https://example.org or http://example.org:8080")
    if len(found) > URL_BYTES_MAX:
        raise SettingsError(f"authority {found!r:.80} …: with /robots.txt it is longer than {URL_BYTES_MAX} bytes")
    return found


def listed(what: str, given: Iterable[Any]) -> list[Any]:
    """A list of everything that a caller's iterable gives. Raises SettingsError where reading it fails."""
    try:
        return list(given)
    except Exception as error:  # the caller's iterator may raise anything
        raise SettingsError(f"the {what} cannot be read ({type(error).__name__}: {error}); give a list") from error


def digests(given: Iterable[bytes]) -> list[bytes]:
    """Digests of contents."""
    found = listed("digests", given)
    for one in found:
        if not isinstance(one, bytes):
            raise SettingsError(f"digest {one!r:.80}: give bytes")
    return found


def parcels(given: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
    """Links on their way between logs, as `outbox` gives them."""
    rows = listed("parcels", given)
    for row in rows:
        if not isinstance(row, tuple | list) or len(row) != _PARCEL_FIELDS:
            raise SettingsError(f"parcel {row!r:.80}: give those that `outbox` gave, of {_PARCEL_FIELDS} fields each")
        source, sequence, target, crawl, key, due, priority, depth, hops, seed, referrer, metadata, url = row
        whole("the source of a parcel", source, 0, SLOTS - 1)
        whole("the sequence of a parcel", sequence, 0, _SEQUENCE_MAX)
        whole("the target of a parcel", target, 0, SLOTS - 1)
        name("the crawl of a parcel", text("the crawl of a parcel", crawl))
        name("the key of a parcel", text("the key of a parcel", key) or None)
        whole("the due date of a parcel", due, NO_DUE, INSTANT_MAX)
        if not _is_number(priority) or not 0 <= priority <= 1:
            raise SettingsError(f"the priority of a parcel {priority!r:.80}: give a number from 0 to 1")
        whole("the depth of a parcel", depth, 0, _DEPTH_MAX)
        whole("the hops of a parcel", hops, 0, _HOPS_MAX)
        whole("the seed of a parcel", seed, 0, 1)
        kept("the referrer of a parcel", text("the referrer of a parcel", referrer), REFERRER_BYTES_MAX)
        text("the URL of a parcel", url)
        try:
            if not isinstance(metadata, bytes):
                raise TypeError("it is no bytes")
            msgspec.json.decode(metadata or b"null")
        except (TypeError, ValueError, RecursionError) as error:
            raise SettingsError(f"the metadata of a parcel {metadata!r:.80}: give bytes of JSON") from error
        kept("the metadata of a parcel", metadata, METADATA_BYTES_MAX)
    return rows


def metadata(value: object, what: str = "metadata") -> bytes:
    """The metadata of a link or outcome, as JSON."""
    if value is None:
        return b""
    if not isinstance(value, Mapping):
        raise SettingsError(f"{what} {value!r:.80}: give a mapping of JSON values")
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise SettingsError(f"{what} cannot be kept: {error}; give a mapping of JSON values") from error


def status(value: object) -> None:
    """An HTTP status, or None."""
    if value is not None:
        whole("status", value, 0, _HTTP_STATUS_MAX)


def link(given: Link) -> None:
    """Checks everything of a link but its URL: a URL that is none gets the answer `invalid`, and raises no error."""
    name("key", given.key)
    name("crawl", given.crawl)
    _text("referrer", given.referrer)
    kept("referrer", given.referrer, REFERRER_BYTES_MAX)
    whole("depth", given.depth, 0, _DEPTH_MAX)
    whole("hops", given.hops, 0, _HOPS_MAX)
    if given.not_before is not None:
        whole("not_before", given.not_before, 0, INSTANT_MAX)


class Told:
    """The outcomes of a call in columns: tokens, seconds (NaN for unknown), statuses (0 for none). plain: rows that say
    no more than done; `outcome` gives the whole outcome of any row."""

    __slots__ = ("_given", "others", "plain", "seconds", "statuses", "tokens", "verdicts")

    def __init__(
        self,
        given: Sequence[Outcome] | None,
        tokens: Uint64s,
        seconds: npt.NDArray[np.float64],
        statuses: npt.NDArray[np.uint16],
        plain: npt.NDArray[np.bool_],
        verdicts: Sequence[Verdict],
    ) -> None:
        self._given = given
        self.tokens = tokens
        self.seconds = seconds
        self.statuses = statuses
        self.plain = plain
        self.others = len(plain) - np.count_nonzero(plain)
        self.verdicts = verdicts

    def piece(self, first: int, last: int) -> Told:
        """The rows from `first` on, before `last`."""
        if last - first == len(self.tokens):
            return self
        some = slice(first, last)
        return Told(
            self._given[some] if self._given is not None else None,
            *(self.tokens[some], self.seconds[some], self.statuses[some], self.plain[some]),
            self.verdicts[some],
        )

    def outcome(self, row: int) -> Outcome:
        """The whole outcome of a row."""
        if self._given is not None:
            return self._given[row]
        seconds = float(self.seconds[row])
        return Outcome(
            int(self.tokens[row]),
            self.verdicts[row],
            seconds=None if math.isnan(seconds) else seconds,
            status=int(self.statuses[row]) or None,
        )

    def links(self) -> dict[int, Any]:
        """The links that outcomes carry, by row."""
        if self._given is None:
            return {}
        return {row: one.links for row, one in enumerate(self._given) if len(one.links)}


def told(given: Iterable[Outcome] | OutcomeBatch) -> Told:
    """Outcomes after all checks of their values."""
    if isinstance(given, OutcomeBatch):
        return _told_in_columns(given)
    if isinstance(given, Outcome):
        raise SettingsError("outcomes is one outcome; give a list: report([lease.done()])")
    given = listed("outcomes", given)
    if len(given) > CALL_ROWS_MAX:
        raise SettingsError(f"{len(given)} outcomes in one call; cut it into calls of at most {CALL_ROWS_MAX}")
    plain = np.array([type(one) is Outcome and one._plain for one in given], np.bool_)
    for row in np.flatnonzero(~plain).tolist():
        _outcome(given[row])
    try:
        rows = len(given)
        numbers = np.fromiter((one.token for one in given), np.int64, rows).view(np.uint64)
        seconds = np.array([one.seconds for one in given], np.float64)
        statuses = np.array([0 if one.status is None else one.status for one in given])
        if seconds.shape != (rows,) or statuses.shape != (rows,) or (rows and statuses.dtype.kind != "i"):
            raise TypeError("some of them are no numbers")  # `_outcome` raises with the name below
        right = np.isnan(seconds) | ((seconds >= 0) & (seconds <= _SECONDS_MAX))
        right &= (statuses >= 0) & (statuses <= _HTTP_STATUS_MAX)
        nan_given = np.isnan(seconds) & np.array([one.seconds is not None for one in given], np.bool_)
    except (TypeError, ValueError, OverflowError):
        for one in given:
            _outcome(one)
        raise SettingsError("the outcomes cannot be read: a token is a whole number of at most 63 bits") from None
    if not right.all() or nan_given.any():
        _outcome(given[int(np.argmax(~right | nan_given))])
    for row in np.flatnonzero(plain).tolist() if rows else ():
        if type(given[row].links) not in (list, tuple, UrlBatch):
            _outcome(given[row])
    return Told(given, numbers, seconds, statuses.astype(np.uint16), plain, ())


def _told_in_columns(given: OutcomeBatch) -> Told:
    numbers = tokens(given.tokens)
    rows = len(numbers)
    if rows > CALL_ROWS_MAX:
        raise SettingsError(f"{rows} outcomes in one call; cut it into calls of at most {CALL_ROWS_MAX}")
    try:
        seconds = _column(np.nan if given.seconds is None else given.seconds, rows)
        statuses = _statuses(given.statuses, rows)
        words = given.verdicts
        same = Verdict(words) if isinstance(words, str) else None
        verdicts = [Verdict(word) for word in words] if same is None else [same] * rows
    except (TypeError, ValueError, OverflowError) as error:
        raise SettingsError(f"an OutcomeBatch of {rows} tokens: {error}") from error
    if len(verdicts) != rows:
        raise SettingsError(f"an OutcomeBatch of {rows} tokens has {len(verdicts)} verdicts")
    right = (seconds >= 0) & (seconds <= _SECONDS_MAX)
    if np.count_nonzero(right) < rows and not (right | np.isnan(seconds)).all():
        raise SettingsError("the seconds of an OutcomeBatch: give finite ones from 0 on, or NaN for none")
    if same is not None:
        plain = np.full(rows, same is Verdict.DONE, np.bool_)
    else:
        plain = np.array([verdict is Verdict.DONE for verdict in verdicts], np.bool_)
    return Told(None, numbers, seconds, statuses, plain, verdicts)


def _statuses(given: Any, rows: int) -> npt.NDArray[np.uint16]:
    """HTTP statuses of an OutcomeBatch, 0 where there is none."""
    if given is None:
        given = 0
    if type(given) is int and 0 <= given <= _HTTP_STATUS_MAX:
        return np.full(rows, given, np.uint16)
    statuses = _column(given, rows)
    statuses = np.where(np.isnan(statuses), 0.0, statuses)
    if not ((statuses >= 0) & (statuses <= _HTTP_STATUS_MAX) & (statuses % 1 == 0)).all():
        raise SettingsError(f"the statuses of an OutcomeBatch: give whole numbers from 0 to {_HTTP_STATUS_MAX}")
    return statuses.astype(np.uint16)


def _column(given: Any, rows: int) -> npt.NDArray[np.float64]:
    if isinstance(given, int | float):
        return np.full(rows, given, np.float64)
    column = np.asarray(given, np.float64)
    return column if column.shape == (rows,) else np.broadcast_to(column, (rows,))


def tokens(given: npt.ArrayLike) -> Uint64s:
    """Tokens of leases. Raises SettingsError for a value that is no token."""
    try:
        numbers = np.asarray(given)
        if not numbers.size:
            return np.zeros(0, np.uint64)
        if numbers.dtype == object:
            numbers = np.array([int(number) for number in numbers.tolist()], np.uint64)
    except (TypeError, ValueError, OverflowError) as error:
        raise SettingsError(f"tokens {given!r:.80}: give whole numbers") from error
    if numbers.dtype.kind not in "iu" or numbers.ndim != 1:
        raise SettingsError(f"tokens {given!r:.80}: give a list of whole numbers")
    # A negative number becomes a token of 64 bits that no lease has.
    wide = np.int64 if numbers.dtype.kind == "i" else np.uint64
    if numbers is given or numbers.base is not None or numbers.dtype != wide:
        # The caller may change its array while the call goes on.
        numbers = np.ascontiguousarray(numbers.astype(wide))
    found: Uint64s = numbers.view(np.uint64)
    return found


def depths(links: UrlBatch, least: int) -> npt.NDArray[np.int64]:
    """The depth of each link in columns: `least`, or its value in the column `depth` where that is more."""
    given = links.columns.get("depth")
    if given is None:
        return alike(least, len(links), "i8")
    some = given[links.valid]
    if given.dtype.kind not in "iu" or not ((some >= 0) & (some <= _DEPTH_MAX)).all():
        raise SettingsError(f"the column `depth` of links: give whole numbers from 0 to {_DEPTH_MAX}")
    return np.maximum(given.astype(np.int64), least)


def priorities(links: UrlBatch) -> npt.NDArray[np.float64]:
    """The priority of each link in columns; NaN where it has none, or where there is no column `priority`."""
    given = links.columns.get("priority")
    if given is None:
        return alike(np.nan, len(links), "f8")
    some = given[links.valid]
    if given.dtype.kind not in "iuf" or not ((some >= 0) & (some <= 1)).all():
        raise SettingsError("the column `priority` of links: give numbers from 0 to 1")
    return given.astype(np.float64)


def outcome_rows(links: UrlBatch, outcomes: int) -> npt.NDArray[np.int64]:
    """The row of the outcome that each link in columns names."""
    rows = links.columns.get("outcome")
    if rows is None:
        raise SettingsError("links in columns need a column `outcome`: links.with_columns(outcome=rows)")
    if rows.dtype.kind not in "iu" or not ((rows >= 0) & (rows < outcomes)).all():
        raise SettingsError(f"the column `outcome` of links: give rows of outcomes, from 0 to {outcomes - 1}")
    return rows.astype(np.int64)


def pairs(given: Iterable[tuple[int, str | Link]]) -> list[tuple[int, str | Link]]:
    """Links that name the row of their outcome."""
    try:
        found = [
            (whole("the row of a link's outcome", row, -CALL_ROWS_MAX, CALL_ROWS_MAX), link) for row, link in given
        ]
    except SettingsError:
        raise
    except Exception as error:  # the caller's iterator may raise anything
        raise SettingsError(
            f"the links cannot be read ({type(error).__name__}: {error}); give a list of (row of the outcome, link)"
        ) from error
    return found


def _outcome(one: Outcome) -> None:
    if not isinstance(one, Outcome):
        raise SettingsError(f"{one!r:.80} is no outcome: make one from its lease, as lease.done(seconds=0.2)")
    if not isinstance(one.token, int | np.integer) or isinstance(one.token, bool):
        raise SettingsError(f"token {one.token!r:.80}: give that of a lease, a whole number")
    if not isinstance(one.verdict, Verdict):
        raise SettingsError(f"verdict {one.verdict!r:.80}: give one of Verdict")
    if isinstance(one.links, str | bytes) or not (isinstance(one.links, Sequence) or hasattr(one.links, "strings")):
        raise SettingsError(f"links {one.links!r:.80}: give a list of links")
    for what in ("seconds", "after_seconds", "retry_after_seconds", "ttl_seconds"):
        value = getattr(one, what)
        if value is not None and not (_is_number(value) and 0 <= value <= _SECONDS_MAX):
            raise SettingsError(f"{what} {value!r:.80}: give seconds from 0 on, or None")
    for what in ("ended_at", "at"):
        value = getattr(one, what)
        if value is not None:
            whole(what, value, 0, INSTANT_MAX)
    status(one.status)
    whole("bytes_read", one.bytes_read, 0, INSTANT_MAX)
    _text("error", one.error, ERROR_TEXT_MAX)
    flag("refused", one.refused)
    flag("duplicate", one.duplicate)
    if one.answered is not None:
        flag("answered", one.answered)
    _text("location", one.location)
    for what in ("etag", "last_modified"):
        validator(what, getattr(one, what))
    for what, most in _OCTETS.items():
        value = getattr(one, what)
        if value is not None and not isinstance(value, bytes):
            raise SettingsError(f"{what} {value!r:.80}: give bytes")
        kept(what, value, most)
    kept("metadata", metadata(one.metadata), METADATA_BYTES_MAX)
    if one.robots is not None:
        robots(one.robots)
    _text("address", one.address)
    if one.address is not None:
        try:
            _address(one.address)
        except ValueError:
            raise SettingsError(f"address {one.address!r:.80}: give an IPv4 or IPv6 address") from None


def validator(what: str, value: object) -> None:
    """An ETag or Last-Modified, or None."""
    unicode(what, value)
    kept(what, value if isinstance(value, str) else None, VALIDATOR_BYTES_MAX)


def flag(what: str, value: object) -> None:
    """A value that is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise SettingsError(f"{what} {value!r:.80}: give True or False")


def unicode(what: str, value: object) -> None:
    """A text that UTF-8 can encode, or None."""
    _text(what, value)
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise SettingsError(f"{what} {value!r:.80}: it holds half a surrogate pair, which is no text") from None


def watermark(value: object, known: Mapping[str, bytes]) -> None:
    """The place up to which an archive is synced: (writer, opaque bytes), or None."""
    if value is None:
        return
    if not isinstance(value, tuple | list) or len(value) != 2 or value[0] is None or not isinstance(value[1], bytes):
        raise SettingsError(f"watermark {value!r:.80}: give (archive writer, place), a text and bytes")
    name("the writer of a watermark", value[0])
    kept("the place of a watermark", value[1], WATERMARK_BYTES_MAX)
    if value[0] not in known and len(known) >= WATERMARK_WRITERS_MAX:
        raise SettingsError(
            f"archive writer {value[0]!r:.80} is one more than the {WATERMARK_WRITERS_MAX} whose places are kept for "
            "ever; go on under one of their names"
        )


def robots(answer: object) -> None:
    """An answer to the errand for a robots.txt."""
    if not isinstance(answer, RobotsAnswer):
        raise SettingsError(f"robots {answer!r:.80}: give a RobotsAnswer, as lease.robots(status, body) makes it")
    status(answer.status)
    _text("location", answer.location)
    if not isinstance(answer.body, bytes):
        raise SettingsError(f"body {answer.body!r:.80}: give the bytes of the robots.txt")


def addresses(given: Mapping[str, str | None]) -> dict[str, str]:
    """Hosts and their addresses, both in canonical spelling; "" for an address that is not known."""
    if not isinstance(given, Mapping):
        raise SettingsError(f"addresses {given!r:.80}: give a mapping of hosts to addresses")
    found: dict[str, str] = {}
    for name_given, address in given.items():
        spelled = host(name_given)
        try:
            found[spelled] = "" if address is None else _address(address)
        except ValueError:
            raise SettingsError(
                f"address {address!r:.80} of {name_given!r:.200}: give an IPv4 or IPv6 address"
            ) from None
    return found


def _address(value: object) -> str:
    """An address in its one form; a zone (RFC 4007 section 11) is the short name of an interface. Raises ValueError."""
    if not isinstance(value, str | ipaddress.IPv4Address | ipaddress.IPv6Address):
        raise ValueError("it is no text")
    found = str(address_of(str(value)))
    if len(found) > ADDRESS_TEXT_MAX or not found.isascii() or not found.isprintable():
        raise ValueError("its zone is no name of an interface")
    return found


def _text(what: str, value: object, characters_max: int | None = None) -> None:
    if value is not None:
        text(what, value, characters_max)


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
