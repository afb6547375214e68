"""One URL for people: an immutable `Url` with its parts, made from typed text or from a page."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ada_url import URL

from outrider.errors import InvalidUrlError
from outrider.url.keys import registrable_domain
from outrider.url.refusal import refusal, shown, without_userinfo
from outrider.url.spelling import Canonical, authority_of, host_of, join, mended, normalize
from outrider.url.surt import surt

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:").match
# `tel:5551234` and `javascript:0` look the same as a host and a port, save for the dot.
_HOST_AND_PORT = re.compile(r"(?:localhost|[^/?#:@]+\.[^/?#:@]*):[0-9]+(?:[/?#]|$)", re.IGNORECASE).match
_DEFAULT_PORTS = {"http": 80, "https": 443}


def with_scheme(text: str, scheme: str = "http") -> str:
    """Returns the typed text, with a scheme added if it lacks one: `example.org/a`, `localhost:8080`, `//example.org`.

    A path, a query or a fragment alone is returned unchanged: no host is guessed.
    """
    typed = text.strip()
    if typed.startswith("//"):
        return f"{scheme}:{typed}"
    if not typed or typed[0] in "/?#.\\":
        return text
    if _SCHEME(typed) and not _HOST_AND_PORT(typed):
        return text
    return f"{scheme}://{typed}"


@dataclass(frozen=True, slots=True, order=True, repr=False)
class Url(Canonical):
    """A URL in its canonical spelling. Made by `Url.parse`; equal, ordered and hashed by its text.

    text     the canonical spelling, also `str(url)`
    given    the original text
    dropped  the parts of `given` that a crawler does not send: "user", "password", "fragment"
    """

    text: str
    given: str = field(default="", compare=False)
    dropped: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        canonical = normalize(self.text)
        if canonical != self.text:
            raise InvalidUrlError(
                f"{shown(without_userinfo(self.text))} is not canonical, {shown(canonical)} is; Url.parse takes either",
                url=self.text,
                reason="it is not canonical",
            )
        if not self.given:
            object.__setattr__(self, "given", self.text)

    @classmethod
    def parse(cls, text: str, base: str | Url | None = None, *, default_scheme: str | None = None) -> Url:
        """Returns the URL of a text, on a page at `base` if there is one.

        default_scheme  "http" or "https": the scheme of a text without one, as in a browser's address
                        bar (`example.org/a`)

        Raises InvalidUrlError with `.reason`, and `.position` if one character is the cause, for a text that cannot be
        crawled.
        """
        if not isinstance(text, str):
            raise refusal(text)
        meant = text if default_scheme is None or base is not None else with_scheme(text, default_scheme)
        page = None if base is None else str(base)
        canonical = normalize(meant) if page is None else join(page, meant)
        return cls(canonical, text, _dropped(meant, page))

    @property
    def scheme(self) -> str:
        """`http` or `https`."""
        return self.text[: self.text.index(":")]

    @property
    def host(self) -> str:
        """The host in ASCII, lower case; IPv6 in its brackets."""
        return host_of(self.text)

    @property
    def port(self) -> int:
        """The port, also where it is the scheme's default and the text does not name it."""
        port = self.origin[len(self.scheme) + 3 + len(self.host) + 1 :]
        return int(port) if port else _DEFAULT_PORTS[self.scheme]

    @property
    def origin(self) -> str:
        """Scheme, host and port, `http://example.org:8080`: one robots.txt is for one such authority."""
        return authority_of(self.text)

    @property
    def path(self) -> str:
        """The path, percent-encoded; at least `/`."""
        return self.text[len(self.origin) :].partition("?")[0]

    @property
    def query(self) -> str | None:
        """The query without its `?`; None without a query (a canonical URL has no empty query)."""
        return self.text.partition("?")[2] or None

    @property
    def registrable_domain(self) -> str | None:
        """The public suffix and one label more, private section in force; None for addresses and suffixes."""
        return registrable_domain(self.host)

    @property
    def surt(self) -> str:
        """The sort-friendly form, `http://(org,example,)/a`."""
        return surt(self.text)

    def join(self, reference: str) -> Url:
        """The URL that a reference on the page at this URL leads to. Raises InvalidUrlError."""
        return Url.parse(reference, self)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        notes = ""
        if self.given != self.text and not {"user", "password"} & set(self.dropped):  # secrets end in logs that way
            notes += f" given as {shown(without_userinfo(self.given))}"
        if self.dropped:
            notes += f" without {', '.join(self.dropped)}"
        return f"<Url {shown(self.text)[1:-1]}{notes}>"


def _dropped(text: str, base: str | None) -> tuple[str, ...]:
    """The parts that the canonical spelling leaves out on purpose."""
    if "@" not in text and "#" not in text and (base is None or "@" not in base):
        return ()
    parsed = URL(mended(text)) if base is None else URL(mended(text), mended(base))
    named = (("user", parsed.username), ("password", parsed.password), ("fragment", parsed.hash))
    return tuple(name for name, value in named if value)
