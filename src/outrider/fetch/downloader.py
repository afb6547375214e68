"""A download: the request as sent, the response with its exact bytes, the Protocol between."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, KeysView, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol

from outrider import kernels
from outrider.clock import Instant
from outrider.errors import InvalidUrlError, SettingsError
from outrider.fetch.addresses import parsed
from outrider.fetch.failures import UNCONNECTED, FetchError, safe_text
from outrider.fetch.type_limits import TypeBytes, bytes_of_type, checked_limits
from outrider.kernels.fields import indexed
from outrider.limits import (
    BODY_BYTES_MAX,
    CONNECT_SECONDS_MAX,
    IDLE_SECONDS_MAX,
    REQUEST_FIELDS_KNOWN,
    TOTAL_SECONDS_MAX,
    TRAIN_SECONDS_MAX,
    URL_BYTES_MAX,
)

ACCEPT = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
ACCEPT_ENCODING = "gzip"  # every server speaks it, and it costs least to undo

# A target may contain only visible ASCII: no space, CR, LF, NUL, nothing beyond 0x7e.
_URL = re.compile(
    r"(https?)://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?"  # scheme, host, port
    r"((?:[/?][\x21\x22\x24-\x7e]*)?)\Z"  # target
)
_FIELD_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_FIELD_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?\Z")
_VALIDATORS = frozenset({"if-none-match", "if-modified-since"})
# A server gets back the bytes that it sent, also those beyond ASCII (obs-text, RFC 9110 section 5.5), as latin-1.
_VALIDATOR = re.compile(r"[\x21-\x7e\x80-\xff](?:[\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?\Z")
_CONNECTION_FIELDS = frozenset(
    {"host", "user-agent", "connection", "content-length", "transfer-encoding", "upgrade", "te", "trailer", "expect"}
)

_SECRET_FIELDS = frozenset({"authorization", "proxy-authorization", "cookie"})


def is_secret(name: str) -> bool:
    """Whether the value of this header field opens a site to anyone who has it."""
    return name.lower() in _SECRET_FIELDS


def is_field_value(text: str) -> bool:
    """Whether a header field of a request may have this value: visible ASCII with inner spaces."""
    return _FIELD_VALUE.match(text) is not None


def is_validator(text: str) -> bool:
    """Whether a request may have this ETag or Last-Modified of an answer: as `is_field_value`, and bytes beyond ASCII
    too, as latin-1."""
    return _VALIDATOR.match(text) is not None


class Target(NamedTuple):
    """The parts of a URL for a request: `authority` is the Host field, `path` the target in the request line."""

    scheme: str
    host: str
    port: int
    authority: str
    path: str

    @property
    def origin(self) -> tuple[str, str, int]:
        """Scheme, host and port."""
        return (self.scheme, self.host, self.port)


@lru_cache(maxsize=1_024)
def target_of(url: str) -> Target:
    """Splits an absolute http or https URL; raises InvalidUrlError for user names, fragments, spaces, controls."""
    match = _URL.match(url) if len(url) <= URL_BYTES_MAX else None
    if match is None:
        raise InvalidUrlError(
            f"{safe_text(url)}: wanted is an absolute http or https URL of visible ASCII without user name and fragment"
        )
    scheme, host, digits, path = match.groups()
    usual = 80 if scheme == "http" else 443
    port = int(digits) if digits else usual
    if not 0 < port < 65_536:
        raise InvalidUrlError(f"{safe_text(url)}: there is no port {port}")
    if not path.startswith("/"):
        path = "/" + path
    return Target(scheme, host.lower(), port, host if port == usual else f"{host}:{port}", path)


Fields = tuple[tuple[str, str], ...]


@lru_cache(maxsize=REQUEST_FIELDS_KNOWN)
def _check(user_agent: str, headers: Fields) -> None:
    """Raises SettingsError for a field that must not be in a head."""
    if not _FIELD_VALUE.match(user_agent):
        raise SettingsError(f"user agent {safe_text(user_agent)!r}: only visible ASCII and inner spaces can be sent")
    for name, value in headers:
        if not _FIELD_NAME.match(name) or name.lower() in _CONNECTION_FIELDS:
            raise SettingsError(f"header {safe_text(name)!r}: this field cannot be set")
        if not (_VALIDATOR if name.lower() in _VALIDATORS else _FIELD_VALUE).match(value):
            shown = "its value" if is_secret(name) else repr(safe_text(value))
            raise SettingsError(f"header {name}: {shown} has characters that cannot be sent")


def _lines(user_agent: str, headers: Fields, credentials: str | None) -> list[str]:
    """Returns the header lines after Host."""
    lines = [f"User-Agent: {user_agent}"]
    own = {name.lower() for name, _ in headers}
    if "accept" not in own:
        lines.append(f"Accept: {ACCEPT}")
    if "accept-encoding" not in own:
        lines.append(f"Accept-Encoding: {ACCEPT_ENCODING}")
    lines += [f"{name}: {value}" for name, value in headers]
    if credentials is not None and "authorization" not in own:
        lines.append(f"Authorization: {credentials}")
    return lines


@lru_cache(maxsize=REQUEST_FIELDS_KNOWN)
def _ends(user_agent: str, headers: Fields, credentials: str | None) -> tuple[bytes, bytes]:
    """The end of a head after the Host line, which most requests share: as sent, and with secrets hidden."""
    lines = _lines(user_agent, headers, credentials)
    parted = (line.partition(": ") for line in lines)
    hidden = [f"{name}: {'hidden' if is_secret(name) else value}" for name, _, value in parted]
    sent, kept = ("\r\n".join((*some, "", "")).encode("latin-1") for some in (lines, hidden))
    return sent, kept


@dataclass(frozen=True, slots=True)
class Request:
    """One GET, to exactly one address.

    `url` is canonical; `address` is the guard's choice; `headers` are sent in addition to Host, User-Agent, Accept and
    Accept-Encoding, or instead of one of the last two. `bytes_max` limits head and body together, and the content;
    `type_bytes_max` limits body and content of its content types instead: pairs, also of `image/*` or `*`.
    `credentials` is the Authorization of this origin, if `headers` has none. `verified`: whether the certificate must
    match the host. `modern_tls`: no outdated ciphers and curves are offered. `capacity`: the number of requests that
    may be open at its host at once, itself included. `signature`: the fields of `sign`.
    Raises InvalidUrlError or SettingsError for a value that must not be sent.
    """

    url: str
    address: str
    user_agent: str
    headers: Fields = ()
    bytes_max: int = BODY_BYTES_MAX
    type_bytes_max: TypeBytes = ()
    connect_seconds: float = CONNECT_SECONDS_MAX
    idle_seconds: float = IDLE_SECONDS_MAX
    total_seconds: float = TOTAL_SECONDS_MAX
    credentials: str | None = field(default=None, repr=False)
    verified: bool = True
    capacity: int = 1
    modern_tls: bool = False
    signature: Fields = field(init=False, repr=False, default=())
    target: Target = field(init=False, repr=False, compare=False)
    _head: bytes = field(init=False, repr=False, compare=False, default=b"")

    def __post_init__(self) -> None:
        object.__setattr__(self, "target", target_of(self.url))
        if type(self.headers) is not tuple:  # from a hook
            object.__setattr__(self, "headers", tuple((name, value) for name, value in self.headers))
        if self.type_bytes_max != ():
            object.__setattr__(self, "type_bytes_max", checked_limits(self.type_bytes_max))
        if parsed(self.address) is None:
            raise SettingsError(f"address = {safe_text(self.address)!r}: a request needs an IP address")
        if self.capacity < 1:
            raise SettingsError(f"capacity = {self.capacity!r}: a host accepts at least one request at once")
        _check(self.user_agent, self.headers)
        if self.credentials is not None and not _FIELD_VALUE.match(self.credentials):
            raise SettingsError(f"credentials of {self.target.authority}: they have characters that cannot be sent")

    def sign(self, signature: Fields) -> None:
        """Sets the fields of a signature, before the request is sent. Their values are made here, so they are not
        checked."""
        # Not a copy: that costs three times as much as the rest of a signature that is reused.
        object.__setattr__(self, "signature", signature)
        object.__setattr__(self, "_head", b"")

    def fields(self) -> list[str]:
        """The header lines in the order in which they are sent, without their ends."""
        signature = (f"{name}: {value}" for name, value in self.signature)
        return [f"Host: {self.target.authority}", *signature, *_lines(self.user_agent, self.headers, self.credentials)]

    def head(self) -> bytes:
        """The request as sent, with its empty line; a GET has no body."""
        if not self._head:
            object.__setattr__(self, "_head", self._begin() + self._ends()[0])
        return self._head

    def record(self) -> bytes:
        """The head as the archive keeps it: the values of secret fields are hidden."""
        sent, kept = self._ends()
        return self.head() if sent == kept else self._begin() + kept

    def room(self, head_bytes: int, content_type: str | None) -> tuple[int, int]:
        """Returns how many bytes are kept of a body after a head of this length, and of its content."""
        own = bytes_of_type(self.type_bytes_max, content_type or "") if self.type_bytes_max else None
        if own is not None:
            return own, own
        return max(0, self.bytes_max - head_bytes), self.bytes_max

    def _begin(self) -> bytes:
        signature = "".join([f"{name}: {value}\r\n" for name, value in self.signature])
        return f"GET {self.target.path} HTTP/1.1\r\nHost: {self.target.authority}\r\n{signature}".encode("ascii")

    def _ends(self) -> tuple[bytes, bytes]:
        return _ends(self.user_agent, self.headers, self.credentials)


class Headers:
    """The fields of a response head, by name in any case; values are latin-1, folded lines joined by a space."""

    __slots__ = ("_fields", "_first", "_head", "_several")

    def __init__(self, fields: Iterable[tuple[str, str]] = ()) -> None:
        self._fields: tuple[tuple[str, str], ...] | None = tuple(fields)
        self._head = b""
        self._first, self._several = indexed(self._fields)

    @classmethod
    def parse(cls, head: bytes) -> Headers:
        """Reads the bytes of a head, status line first; lines without a colon are passed over."""
        made = cls.__new__(cls)
        made._fields = None  # computed when all of them are needed in order, which is rare
        made._head = head
        made._first, made._several = kernels.head_index(head)
        return made

    @property
    def names(self) -> KeysView[str]:
        """The names of all fields in lower case, each once."""
        return self._first.keys()

    def get(self, name: str) -> str | None:
        """The value of the first field of this name."""
        return self._first.get(name.lower())

    def get_all(self, name: str) -> list[str]:
        """The values of all fields of this name, in order."""
        name = name.lower()
        if name in self._several:
            return list(self._several[name])
        return [self._first[name]] if name in self._first else []

    def joined(self, name: str) -> str:
        """The values of all fields of this name as one, parted by a comma (RFC 9110 section 5.3); "" without one."""
        return ", ".join(self.get_all(name))

    def _all(self) -> tuple[tuple[str, str], ...]:
        if self._fields is None:
            self._fields = kernels.head_fields(self._head)
        return self._fields

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __repr__(self) -> str:
        return f"<Headers {len(self)} fields>"


class Decoding(StrEnum):
    """The result of undoing the codings of a body."""

    WHOLE = "whole"
    CUT = "cut"  # the content is longer than the limit
    BROKEN = "broken"  # the content ends at the fault, or where the body was cut
    CHECKSUM = "checksum"  # all of the content is there, and the checksum after it is wrong
    UNKNOWN = "unknown"  # no coding that is known, or not that of the body: the content is the body without its framing


TRUNCATIONS: Final = ("length", "time", "disconnect", "unspecified")
"""The reasons why a body ends early, in the words of WARC-Truncated."""


@dataclass(frozen=True, slots=True)
class Response:
    """The result of a request; each request has one, also if the site fails.

    `status` is set as soon as a whole head arrived, even together with an `error`. `request_head` has the sent bytes,
    secrets hidden, empty if nothing was sent. `head` is the final response's status line and fields exactly as
    received, with the empty line.
    `body` has the following bytes as received, chunk framing and content coding in place; `content` has both undone.
    `truncated` says why the body ends early: one of `TRUNCATIONS`, or None.
    `seconds` is the duration without DNS and TLS handshake; the instants are those of the downloader's clock.
    `first_byte_at` is the instant of the answer's first byte, None without an answer. `verified`: whether the
    certificate had to match the host. `client` is `libcurl` if the fetch kernel and the server could not agree on TLS.
    """

    url: str
    address: str
    status: int | None
    error: FetchError | None
    error_text: str
    request_head: bytes
    head: bytes
    body: bytes
    content: bytes
    truncated: str | None
    decoding: Decoding
    headers: Headers
    started_at: Instant
    ended_at: Instant
    seconds: float
    new_connection: bool
    first_byte_at: Instant | None = None
    verified: bool = True
    client: str | None = None

    @property
    def unconnected(self) -> bool:
        """Whether there was no connection, so that no request was sent."""
        return self.error in UNCONNECTED and not self.request_head


Tag = Hashable
"""The caller's own name for a fetch that it has begun: any object of which no other is equal."""
FetchEnded = Callable[[Any, Response | BaseException | None], None]
"""A callback for the end of a fetch: its tag, and the answer or the error that interrupted it; None for a released
fetch of a train that was never sent."""


class Downloader(Protocol):
    """Fetches pages; implementations are swapped by the `downloader` hook of the crawl."""

    async def fetch(self, request: Request) -> Response:
        """Fetches one page; never raises for a fault of the site."""
        ...

    async def close(self) -> None:
        """Ends the transfers in flight and closes every connection."""
        ...


MISSING: Final = (404, 410)
"""Statuses from 400 on that show a site which is well: such a page is missing, and that is all."""


def is_well(response: Response) -> bool:
    """Whether an answer allows the next request of a train: a whole head without a refusal."""
    status = response.status
    return response.error is None and status is not None and (status < 400 or status in MISSING)


def train_continues(answer: object, seconds: float) -> bool:
    """Whether the next request of a train may follow an answer. seconds: since the train began."""
    return isinstance(answer, Response) and is_well(answer) and seconds < TRAIN_SECONDS_MAX


class Beginner(Protocol):
    """A downloader that calls a function for each answer: a fetch needs no task."""

    def begin(self, train: Sequence[tuple[Tag, Request]], ended: FetchEnded) -> None:
        """Begins to fetch pages of one host, one after another: the next one when the previous answer `is_well` and
        the train has not lasted for `TRAIN_SECONDS_MAX`. `ended` is called for each in the event loop, and never from
        within this call. Raises ClosedError."""
        ...

    def let_go(self, tag: Tag) -> None:
        """Stops the train of a fetch after the current one."""
        ...

    def cancel(self, tag: Tag) -> None:
        """Interrupts the current fetch of its train, without calling `ended`. The fetches after it are released."""
        ...

    def rest(self, resting: bool) -> None:
        """Pauses or resumes answers that exceed the `bytes_max` of their requests, because their consumer has no room
        for them now."""
        ...

    async def close(self) -> None:
        """Ends the fetches that were begun, with or without a word to `ended`, and closes every connection."""
        ...
