"""One spelling for every http and https URL: WHATWG serialisation, then RFC 3986 section 6.2.2; idempotent.

What the standards call equal is made equal, and nothing else: no parameter is sorted, no slash or `www.` cut.

    scheme, host      lower case, IDNA to ASCII, addresses in one form; default port, user and password dropped
    path              dot segments removed, an empty one becomes "/"
    path and query    %xx with upper-case digits; octets of ALPHA DIGIT - . _ ~ decoded
    query             an empty one ("?" alone) dropped
    fragment          dropped
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ada_url import join_url, normalize_url

from outrider import kernels
from outrider.url.refusal import refusal

SPELLING_VERSION = "1"
"""Pinned in every store: a change of the rules below that changes any canonical text raises it."""

_LONE = re.compile("[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]")


def _mended(text: str) -> str:
    """Text as Unicode scalar values: surrogate pairs joined, lone surrogates U+FFFD, as Web IDL's USVString."""
    return _LONE.sub("\ufffd", text).encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def _spelled(href: str) -> str | None:
    """A WHATWG serialisation brought to canonical form; None for schemes other than http and https."""
    if not href.startswith(("http://", "https://")):
        return None
    scheme, _, rest = href.partition("//")
    authority, _, ending = rest.partition("/")
    origin = f"{scheme}//{authority.rpartition('@')[2]}"
    # Path and query are ordinary now, whatever the host is, so the kernel does the rest: in time linear in any ending.
    # A "." stands before the slash so that two slashes do not read as a host.
    texts, _ = kernels.spell_texts((f"/./{ending}",), origin + "/")
    return texts[0]


def _href(url: str, base: str | None) -> str:
    """The WHATWG serialisation; ValueError when there is none."""
    try:
        return normalize_url(url) if base is None else join_url(base, url)
    except ValueError:
        if url.isascii() and (base is None or base.isascii()):
            raise
        mended, mended_base = _mended(url), None if base is None else _mended(base)
        if (mended, mended_base) == (url, base):
            raise
        return normalize_url(mended) if mended_base is None else join_url(mended_base, mended)


def normalize(url: str) -> str:
    """The canonical spelling of an absolute http or https URL.

    Raises InvalidUrlError with the reason, where one can be told, for anything else.
    """
    spelled = spell((url,))[0]
    if spelled is None:
        raise refusal(url)
    return spelled


def join(base: str, reference: str) -> str:
    """The canonical spelling of what `reference` means on a page at `base` (WHATWG URL 4.4, RFC 3986 section 5).

    Raises InvalidUrlError when the base is no absolute URL, or the result is not http or https.
    """
    if not isinstance(base, str):
        raise refusal(base)
    spelled = spell((reference,), base)[0]
    if spelled is None:
        raise refusal(reference, base) if spell((base,))[0] is not None else refusal(base)
    return spelled


def spell(urls: Sequence[str], base: str | None = None) -> list[str | None]:
    """The canonical spelling of each URL, against `base` if given; None for what `normalize` or `join` refuses."""
    page = opened(base)
    if page is None:
        return [None] * len(urls)
    # The kernel spells what is ordinary, 999 of 1,000 real URLs and more; the rest takes the parser's road.
    texts, odd = kernels.spell_texts(urls, page.canonical)
    for row in odd:
        texts[row] = _spelled(_second_try(urls[row], page.base))
    return texts


class Page(NamedTuple):
    """What references are relative to, for the kernel and for the parser."""

    canonical: str | None = None
    """Its canonical URL; None where there is no page, or one that is not http or https."""
    base: str | None = None


_NO_PAGE = Page()


def opened(base: str | None) -> Page | None:
    """The page at `base`, which may be None; None when `base` is no absolute URL at all."""
    if base is None:
        return _NO_PAGE
    canonical = spell((base,))[0]
    if canonical is not None:
        return Page(canonical, canonical)
    return Page(None, base) if _second_try(base, None) else None


class Parsed(NamedTuple):
    """What the parser makes of a URL that is odd to the kernel."""

    canonical: str
    has_userinfo: bool


def parsed(url: str, page: Page) -> Parsed | None:
    """The canonical spelling of one URL by the full parser, without the kernel; None where there is none."""
    href = _second_try(url, page.base)
    canonical = _spelled(href)
    return None if canonical is None else Parsed(canonical, "@" in href[: href.index("/", 8)])


def _second_try(url: object, base: str | None) -> str:
    """The serialisation of anything; "" when there is none."""
    if not isinstance(url, str):
        return ""
    try:
        return _href(url, base)
    except ValueError:
        return ""


def host_of(canonical: str) -> str:
    """The host of a canonical URL: lower case, IPv6 in its brackets, without the port."""
    start = 8 if canonical[4] == "s" else 7
    authority = canonical[start : canonical.find("/", start)]
    if authority[-1:] == "]":
        return authority
    colon = authority.rfind(":")
    return authority if colon < 0 else authority[:colon]


def authority_of(canonical: str) -> str:
    """Scheme, host and port of a canonical URL, `http://example.org:8080`: what one robots.txt is for."""
    return canonical[: canonical.find("/", 8)]
