"""One spelling for every http and https URL: WHATWG serialisation, then RFC 3986 section 6.2.2; idempotent.

URLs that the standards call equal become equal, and no others: no parameter is sorted, no slash or `www.` cut.

    scheme, host      lower case, IDNA to ASCII, addresses in one form; default port, user and password dropped
    path              dot segments removed, an empty one becomes "/"
    path and query    %xx with upper-case digits; octets of ALPHA DIGIT - . _ ~ decoded
    query             an empty one ("?" alone) dropped
    fragment          dropped
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Sized
from typing import NamedTuple

import numpy as np
from ada_url import normalize_url

from outrider import kernels
from outrider.limits import URL_BYTES_MAX
from outrider.url.refusal import refusal, skimmed

SPELLING_VERSION = "1"
"""Pinned in every store: a change of the rules below that changes any canonical text raises it."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*+):")
_SLASHES = "/\\"
_BEHIND_AUTHORITY = "/\\?#"
_BEYOND_ASCII = re.compile(r"[\x80-\xff]")


def mended(text: str) -> str:
    """Text as Unicode scalar values: surrogate pairs joined, lone surrogates U+FFFD, as Web IDL's USVString."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return _without_halves(text)
    return text


def _without_halves(text: str) -> str:
    octets = np.frombuffer(bytearray(text.encode("utf-8", "surrogatepass")), np.uint8)
    # Half a character is ED A0…AF xx (the first) or ED B0…BF xx (the second); no whole one begins so.
    halves = np.flatnonzero((octets[:-2] == 0xED) & (octets[1:-1] >= 0xA0))
    first = octets[halves + 1] < 0xB0
    joined = np.flatnonzero(first[:-1] & ~first[1:] & (halves[1:] - halves[:-1] == 3))
    pairs = halves[joined]
    high, low = ((octets[at + 1] & 0x0F).astype(np.uint32) << 6 | octets[at + 2] & 0x3F for at in (pairs, pairs + 3))
    for place, octet in enumerate("\ufffd".encode()):
        octets[halves + place] = octet
    points = 0x10000 + (high << 10 | low)
    for place, (lead, shift) in enumerate(((0xF0, 18), (0x80, 12), (0x80, 6), (0x80, 0))):
        octets[pairs + place] = lead | (points >> shift & 0x3F)
    kept = np.ones(len(octets), np.bool_)
    kept[pairs + 4] = kept[pairs + 5] = False
    return octets[kept].tobytes().decode()


def normalize(url: str | Canonical) -> str:
    """Returns the canonical spelling of an absolute http or https URL.

    Raises InvalidUrlError for anything else, with the reason if one is known.
    """
    # First without a look at what is odd: that is the usual case, and one URL per call pays for every line.
    spelled = kernels.spell_texts((url,))[0][0] or spell((url,))[0]
    if spelled is None:
        raise refusal(url)
    return spelled


def normalize_all(urls: Iterable[object]) -> list[str]:
    """`normalize` for each of some URLs. Raises InvalidUrlError for the first that cannot be crawled."""
    rows = as_rows(urls)
    spelled: list[str] = []
    for url, canonical in zip(rows, spell(rows), strict=True):
        if canonical is None:
            raise refusal(url)
        spelled.append(canonical)
    return spelled


def join(base: str | Canonical, reference: str | Canonical) -> str:
    """Returns the canonical spelling of `reference` on a page at `base` (WHATWG URL 4.4, RFC 3986 section 5).

    Raises InvalidUrlError when the base is not an absolute URL, or the result is not http or https.
    """
    page = base.text if isinstance(base, Canonical) else base
    if not isinstance(page, str):
        raise refusal(page)
    spelled = spell((reference,), page)[0]
    if spelled is None:
        raise refusal(reference, page) if spell((page,))[0] is not None else refusal(page)
    return spelled


def as_received(text: str) -> str:
    """Returns a URL of a header field, which is latin-1 text, with its octets beyond ASCII percent-encoded unchanged.

    No encoding is guessed: the server that wrote them means these octets (RFC 3987 section 3.2; RFC 9110 section 5.5
    calls them opaque data). Only a host is read as UTF-8, as every percent-encoded host is.
    """
    return text if text.isascii() else _BEYOND_ASCII.sub(lambda found: f"%{ord(found[0]):02X}", text)


def spell(urls: Iterable[object], base: str | Canonical | None = None) -> list[str | None]:
    """Returns the canonical spelling of each URL, relative to `base` if there is one; None if `normalize` or `join`
    refuse it.

    Raises TypeError when `urls` is one string or bytes, or the base is not a string.
    """
    rows = as_rows(urls)
    page = opened(base)
    if page is None:
        return [None] * len(rows)
    # The kernel spells ordinary rows, at least 999 of 1,000 real URLs. The parser spells the rest.
    texts, odd = kernels.spell_texts(rows, page.canonical)
    for row in odd:
        found = parsed(rows[row], page)
        texts[row] = None if found is None else found.canonical
    if None in texts:
        texts = [given.text if isinstance(given, Canonical) else text for given, text in zip(rows, texts, strict=True)]
    return texts


def as_rows(urls: Iterable[object]) -> Sequence[object]:
    """URLs to be looked at more than once. Raises TypeError for one string, and for bytes; ValueError for what leaves
    out some of its rows, as a batch does with those that are not valid."""
    if isinstance(urls, list | tuple):
        return urls
    if isinstance(urls, str | bytes | bytearray | memoryview):
        raise TypeError(f"several URLs are needed, not one {type(urls).__name__}: put it into a list")
    rows = list(urls)
    if isinstance(urls, Sized) and len(urls) != len(rows):
        raise ValueError(f"{len(urls)} rows were to come and {len(rows)} came: of a batch give the valid ones")
    return rows


class Canonical:
    """A URL in canonical spelling, accepted wherever a URL's text is: `Url`."""

    __slots__ = ()
    text: str


class BasePage(NamedTuple):
    """The page that references are relative to."""

    canonical: str | None = None
    """Its canonical URL; None without a page, or if the page is not http or https: then no relative reference can be
    crawled."""


_NO_PAGE = BasePage()


def opened(base: str | Canonical | None) -> BasePage | None:
    """Returns the page at `base`, which may be None; None when `base` is not an absolute URL.

    Raises TypeError for a base that is not a string.
    """
    if base is None:
        return _NO_PAGE
    if isinstance(base, Canonical):
        return BasePage(base.text)
    if not isinstance(base, str):
        raise TypeError(f"a base is the text of a URL, not a {type(base).__name__}")
    canonical = spell((base,))[0]
    if canonical is not None:
        return BasePage(canonical)
    return _NO_PAGE if _is_absolute(base) else None


def _is_absolute(url: str) -> bool:
    try:
        normalize_url(mended(url))
    except ValueError:
        return False
    return True


class Parsed(NamedTuple):
    """The fate of a URL that is odd to the kernel."""

    canonical: str
    has_userinfo: bool


def parsed(url: object, page: BasePage) -> Parsed | None:
    """Returns the canonical spelling of one URL that the kernel marked, or None.

    The text is brought into a form that the kernel reads (WHATWG URL 4.4: stripped characters, slashes of either kind,
    a scheme before a reference). Only a host that is still odd needs the full parser, so that no ending is slow.
    """
    if not isinstance(url, str):
        return None
    text = skimmed(mended(url))
    own = None if page.canonical is None else page.canonical[: page.canonical.index(":")]
    scheme = _SCHEME.match(text)
    if scheme is not None:
        name = scheme[1].lower()
        if name not in {"http", "https"}:
            return None
        text = text[scheme.end() :]
        if name != own or text.startswith("//"):
            return _absolute(name, text.lstrip(_SLASHES))
    if own is None:
        return None
    if len(text) > 1 and text[0] in _SLASHES and text[1] in _SLASHES:
        return _absolute(own, text.lstrip(_SLASHES))
    canonical = _on_page(text, page.canonical)
    return None if canonical is None else Parsed(canonical, has_userinfo=False)


def _absolute(scheme: str, rest: str) -> Parsed | None:
    """A URL whose authority begins `rest`."""
    end = min([place for place in map(rest.find, _BEHIND_AUTHORITY) if place >= 0], default=len(rest))
    userinfo, _, host_and_port = rest[:end].rpartition("@")
    # An odd host longer than any crawled URL is refused unread: IDNA needs a microsecond for 40 characters.
    if not host_and_port or len(host_and_port) > URL_BYTES_MAX:
        return None
    try:
        origin = normalize_url(f"{scheme}://{host_and_port}/")
    except ValueError:
        return None
    canonical = _on_page(rest[end:], origin)
    return None if canonical is None else Parsed(canonical, userinfo not in {"", ":"})


def _on_page(reference: str, page: str | None) -> str | None:
    """A reference without scheme and host, on the page at this canonical URL."""
    if reference[:1] in _SLASHES and reference:
        reference = "/./" + reference[1:]  # the dot keeps two slashes from reading as a host
    elif reference[:1] not in {"", "?", "#"}:
        reference = "./" + reference  # and this one a colon as the end of a scheme
    return kernels.spell_texts((reference,), page)[0][0]


def host_of(canonical: str) -> str:
    """The host of a canonical URL: lower case, IPv6 in its brackets, without the port."""
    start = 8 if canonical[4] == "s" else 7
    authority = canonical[start : canonical.find("/", start)]
    if authority[-1:] == "]":
        return authority
    colon = authority.rfind(":")
    return authority if colon < 0 else authority[:colon]


def authorities_of(canonical: Sequence[str]) -> list[str]:
    """`authority_of` for many URLs."""
    return [url[: url.find("/", 8)] for url in canonical]


def hosts_of(authorities: Sequence[str]) -> list[str]:
    """Returns the host of each authority, as `host_of` does for a URL."""
    hosts = [name[8:] if name[4] == "s" else name[7:] for name in authorities]
    # A colon is part of an IPv6 address, or precedes a port.
    return [host if ":" not in host else host_of(name + "/") for host, name in zip(hosts, authorities, strict=True)]


def undotted(host: str) -> str:
    """Returns a host without the dot at its end, which marks a complete name (RFC 1034 section 3.1): `example.org.` is
    the host `example.org`. A URL keeps the dot, and so do its authority and the Host header."""
    return host[:-1] if host[-1:] == "." and len(host) > 1 and host[-2] != "." else host


def clock_host(canonical: str) -> str:
    """Returns the host of a canonical URL for politeness: `host_of` without the dot at its end."""
    return undotted(host_of(canonical))


def spelled_host(written: str) -> str | None:
    """Returns a host as people write it (upper case, any script, an address, with a port) in the spelling of a URL,
    without the dot at its end. None for a text that is not a host."""
    if not set(written).isdisjoint("/?#@\\"):
        return None
    written = written.strip()
    address = written.count(":") > 1 and not written.startswith("[")
    spelled = spell([f"http://[{written}]/" if address else f"http://{written}/"])[0]
    return None if spelled is None else clock_host(spelled)


def is_host_of(name: str, canonical: str) -> bool:
    """Whether a name is the host of a canonical URL, with or without a dot at its end."""
    return undotted(name) == clock_host(canonical)


def host_key(host: str) -> str:
    """Returns a host in the form for comparing names and addresses: lower case, no dot at its end, no brackets."""
    host = undotted(host.lower())
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def authority_of(canonical: str) -> str:
    """Scheme, host and port of a canonical URL, `http://example.org:8080`: one robots.txt is for one such authority."""
    return canonical[: canonical.find("/", 8)]
