"""A download: the request as it stands on the wire, the response with its exact bytes, the Protocol between."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import Any, Protocol

from outrider.clock import Instant
from outrider.errors import InvalidUrlError, SettingsError
from outrider.fetch.addresses import parsed
from outrider.fetch.outcomes import UNCONNECTED, FetchError, safe_text
from outrider.limits import BODY_BYTES_MAX, CONNECT_SECONDS_MAX, IDLE_SECONDS_MAX, TOTAL_SECONDS_MAX, URL_BYTES_MAX

ACCEPT = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
ACCEPT_ENCODING = "gzip"  # every server speaks it, and it costs least to undo

# Only visible ASCII may stand in a target: no space, CR, LF, NUL, nothing beyond 0x7e.
_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<target>(?:[/?][\x21\x22\x24-\x7e]*)?)\Z"
)
_FIELD_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_FIELD_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?\Z")
_CONNECTION_FIELDS = frozenset(
    {"host", "user-agent", "connection", "content-length", "transfer-encoding", "upgrade", "te", "trailer", "expect"}
)

_SECRET_FIELDS = frozenset({"authorization", "proxy-authorization", "cookie"})


def is_secret(name: str) -> bool:
    """Whether the value of this header field opens a site to whoever has it."""
    return name.lower() in _SECRET_FIELDS


def is_field_value(text: str) -> bool:
    """Whether a header field of a request may have this value: visible ASCII with inner spaces."""
    return _FIELD_VALUE.match(text) is not None


@dataclass(frozen=True, slots=True)
class Target:
    """A URL taken apart for the wire: `authority` is the Host field, `path` the target in the request line."""

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
    """Takes an absolute http or https URL apart; raises InvalidUrlError on user names, fragments, spaces, controls."""
    match = _URL.match(url) if len(url) <= URL_BYTES_MAX else None
    if match is None:
        raise InvalidUrlError(
            f"{safe_text(url)}: wanted is an absolute http or https URL of visible ASCII without user name and fragment"
        )
    scheme, host, digits, path = match.group("scheme", "host", "port", "target")
    usual = 80 if scheme == "http" else 443
    port = int(digits) if digits else usual
    if not 0 < port < 65_536:
        raise InvalidUrlError(f"{safe_text(url)}: there is no port {port}")
    if not path.startswith("/"):
        path = "/" + path
    return Target(scheme, host.lower(), port, host if port == usual else f"{host}:{port}", path)


@dataclass(frozen=True, slots=True)
class Request:
    """One GET, to exactly one address.

    `url` is canonical; `address` the one that the guard chose; `headers` are sent besides Host, User-Agent, Accept and
    Accept-Encoding, or instead of one of the last two. `bytes_max` bounds head and body together, and the content.
    `credentials` is the Authorization of this origin, where `headers` has none. `verified`: whether the host must prove
    its name by a certificate.
    Raises InvalidUrlError or SettingsError for a value that must not stand on the wire.
    """

    url: str
    address: str
    user_agent: str
    headers: tuple[tuple[str, str], ...] = ()
    bytes_max: int = BODY_BYTES_MAX
    connect_seconds: float = CONNECT_SECONDS_MAX
    idle_seconds: float = IDLE_SECONDS_MAX
    total_seconds: float = TOTAL_SECONDS_MAX
    credentials: str | None = field(default=None, repr=False)
    verified: bool = True
    target: Target = field(init=False, repr=False, compare=False)
    _head: bytes = field(init=False, repr=False, compare=False, default=b"")

    def __post_init__(self) -> None:
        object.__setattr__(self, "target", target_of(self.url))
        if parsed(self.address) is None:
            raise SettingsError(f"address = {safe_text(self.address)!r}: a request goes to an IP address")
        if not _FIELD_VALUE.match(self.user_agent):
            raise SettingsError(
                f"user agent {safe_text(self.user_agent)!r}: only visible ASCII and inner spaces can be sent"
            )
        for name, value in self.headers:
            if not _FIELD_NAME.match(name) or name.lower() in _CONNECTION_FIELDS:
                raise SettingsError(f"header {safe_text(name)!r}: this field cannot be set")
            if not _FIELD_VALUE.match(value):
                shown = "its value" if is_secret(name) else repr(safe_text(value))
                raise SettingsError(f"header {name}: {shown} has characters that cannot be sent")
        if self.credentials is not None and not _FIELD_VALUE.match(self.credentials):
            raise SettingsError(f"credentials of {self.target.authority}: they have characters that cannot be sent")

    def fields(self) -> list[str]:
        """The header lines in the order in which they are sent, without their ends."""
        lines = [f"Host: {self.target.authority}", f"User-Agent: {self.user_agent}"]
        own = {name.lower() for name, _ in self.headers}
        if "accept" not in own:
            lines.append(f"Accept: {ACCEPT}")
        if "accept-encoding" not in own:
            lines.append(f"Accept-Encoding: {ACCEPT_ENCODING}")
        lines += [f"{name}: {value}" for name, value in self.headers]
        if self.credentials is not None and "authorization" not in own:
            lines.append(f"Authorization: {self.credentials}")
        return lines

    def head(self) -> bytes:
        """The request as it stands on the wire, with its empty line; a GET has no body."""
        if not self._head:
            object.__setattr__(self, "_head", self._head_of(self.fields()))
        return self._head

    def record(self) -> bytes:
        """The head as the archive keeps it: the values of secret fields are hidden."""
        if self.credentials is None and not any(is_secret(name) for name, _ in self.headers):
            return self.head()
        parted = (line.partition(": ") for line in self.fields())
        return self._head_of([f"{name}: {'hidden' if is_secret(name) else value}" for name, _, value in parted])

    def _head_of(self, fields: list[str]) -> bytes:
        return "\r\n".join((f"GET {self.target.path} HTTP/1.1", *fields, "", "")).encode("ascii")


class Headers:
    """The fields of a response head, by name in any case; values are latin-1, folded lines joined by a space."""

    __slots__ = ("_by_name", "_fields")

    def __init__(self, fields: Sequence[tuple[str, str]] = ()) -> None:
        self._fields = tuple(fields)
        self._by_name: dict[str, list[str]] = {}
        for name, value in self._fields:
            self._by_name.setdefault(name.lower(), []).append(value)

    @classmethod
    def parse(cls, head: bytes) -> Headers:
        """Reads the bytes of a head, status line first; lines without a colon are passed over."""
        fields: list[tuple[str, str]] = []
        for line in head.decode("latin-1").split("\n")[1:]:
            if line[:1] in (" ", "\t") and fields:  # obs-fold, RFC 9112 section 5.2
                name, value = fields[-1]
                fields[-1] = (name, " ".join((value, line.strip(" \t\r"))).strip(" "))
                continue
            name, colon, value = line.partition(":")
            if colon and name:
                fields.append((name.rstrip(" \t"), value.strip(" \t\r")))
        return cls(fields)

    def get(self, name: str) -> str | None:
        """The value of the first field of this name."""
        values = self._by_name.get(name.lower())
        return values[0] if values else None

    def get_all(self, name: str) -> list[str]:
        """The values of all fields of this name, in order."""
        return list(self._by_name.get(name.lower(), ()))

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __repr__(self) -> str:
        return f"<Headers {len(self._fields)} fields>"


class Decoding(StrEnum):
    """The result of undoing the codings of a body."""

    WHOLE = "whole"
    CUT = "cut"  # the content went on beyond the bound
    BROKEN = "broken"  # the content ends at the fault, or where the body was cut
    UNKNOWN = "unknown"  # a coding that was not asked for, or too many layers: the content still has it


@dataclass(frozen=True, slots=True)
class Response:
    """The result of a request; there is one for each request, also where the site fails.

    `status` is there as soon as a whole head came, also beside an `error`. `request_head` has the bytes that were sent,
    secrets hidden, empty when none were. `head` is the final response's status line and fields exactly as received,
    with the empty line.
    `body` has the bytes behind it on the wire, chunk framing and content coding in place; `content` has both undone.
    `truncated` says why the body ends early (WARC-Truncated): `length`, `time`, `disconnect`, `unspecified`.
    `seconds` is the duration without DNS and TLS handshake; the instants are those of the downloader's clock.
    `first_byte_at` is the instant of the answer's first byte, None where none came. `verified`: whether the host had to
    prove its name by a certificate.
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

    @property
    def unconnected(self) -> bool:
        """Whether no connection came about, so that no request was sent."""
        return self.error in UNCONNECTED and not self.request_head


Tag = Hashable
"""The caller's own name for a fetch that it has begun: any object of which no other is equal."""
Ended = Callable[[Any, Response | BaseException], None]
"""A function that is told of the end of a fetch: its tag, and the answer or the error that broke it off."""


class Downloader(Protocol):
    """Fetches pages; implementations are swapped by the `downloader` hook of the crawl."""

    async def fetch(self, request: Request) -> Response:
        """Asks for one page; never raises for a fault of the site."""
        ...

    async def close(self) -> None:
        """Ends the transfers in flight and closes every connection."""
        ...


class Beginner(Protocol):
    """A downloader that tells of an answer instead of having it awaited: no task stands behind each fetch."""

    def begin(self, request: Request, tag: Tag, ended: Ended) -> None:
        """Begins to ask for one page. `ended` is told in the event loop, and never from within this call. Raises
        ClosedError."""
        ...

    def cancel(self, tag: Tag) -> None:
        """Breaks a fetch off; `ended` is not told of it."""
        ...

    async def close(self) -> None:
        """Ends the fetches that were begun and closes every connection."""
        ...
