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

from ada_url import join_url, normalize_url

from outrider.url.refusal import refusal

SPELLING_VERSION = "1"
"""Pinned in every store: a change of the rules below that changes any canonical text raises it."""

_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_HEX = "0123456789ABCDEFabcdef"
_TRIPLETS = {
    f"%{high}{low}": chr(int(high + low, 16)) if int(high + low, 16) in _UNRESERVED else f"%{high}{low}".upper()
    for high in _HEX
    for low in _HEX
}
"""Every percent triplet, in every case, and how it is spelled."""

# The first alternative leaves a triplet alone whose decoding would complete another one: "%%361" stands for the octets
# "%61"; with %36 decoded it would read "%61" and stand for "a". One pass therefore reaches the fixed point.
_PERCENT = re.compile(
    r"%(?![0-9A-Fa-f]{2})[0-9A-Fa-f]?%(?:3[0-9]|[46][1-6])"
    r"|%[0-9A-Fa-f]{2}"
)
# What 99 of 100 links look like: spelled canonically already, or relative in the plainest way. The character classes
# hold only what both standards leave as it is, and the host's last label begins with a letter, so it is no address. Dot
# segments and IDNA labels ("xn--") are looked for apart. All else takes the parser's road, at four times the cost.
_PATH = r"[A-Za-z0-9_~!$&'()*+,;=:@/.-]*"
_QUERY = r"(?:\?[A-Za-z0-9_~!$&()*+,;=:@/.?-]+)?"
_PORT = r"(?::(?!80/|443/)[1-9][0-9]{0,3})?"
_is_plain_url = re.compile(rf"https?://[a-z0-9-][a-z0-9.-]*\.[a-z][a-z0-9-]*{_PORT}/{_PATH}{_QUERY}").fullmatch
_is_plain_path = re.compile(rf"/(?!/){_PATH}{_QUERY}").fullmatch
_is_plain_name = re.compile(rf"[A-Za-z0-9_~-][A-Za-z0-9_~/.-]*{_QUERY}").fullmatch


def _triplet(match: re.Match[str]) -> str:
    text = match[0]
    return _TRIPLETS.get(text, text)


def _mended(text: str) -> str:
    """Text as Unicode scalar values: surrogate pairs joined, lone surrogates U+FFFD, as Web IDL's USVString."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _spelled(href: str) -> str | None:
    """A WHATWG serialisation brought to canonical form; None for schemes other than http and https."""
    if not href.startswith(("http://", "https://")):
        return None
    cut = href.find("#")
    if cut >= 0:
        href = href[:cut]
    if "@" in href:
        start = href.index("//") + 2
        slash = href.index("/", start)
        at = href.rfind("@", start, slash)
        if at >= 0:
            href = href[:start] + href[at + 1 :]
    if href[-1] == "?" and href.index("?") == len(href) - 1:
        href = href[:-1]
    if "%" in href:
        # An http host holds no percent sign (it is a forbidden domain code point), so the whole text may be searched.
        href = _PERCENT.sub(_triplet, href)
    return href


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
    spelled: list[str | None] = []
    append = spelled.append
    page: str | None = None
    origin = directory = ""
    if base is not None:
        base_href = _second_try(base, None)
        if not base_href:
            return [None] * len(urls)
        page = _spelled(base_href)
    if page is not None:
        origin = authority_of(page)
        directory = page[: page.rindex("/", 0, page.find("?") if "?" in page else None) + 1]
    for url in urls:
        try:
            cut = url.find("#")
            plain = url if cut < 0 else url[:cut]
            if "/." not in plain and ".." not in plain:
                if _is_plain_url(plain):
                    if "xn--" not in plain:
                        append(plain)
                        continue
                elif page is not None:
                    if _is_plain_path(plain):
                        append(origin + plain)
                        continue
                    if _is_plain_name(plain):
                        append(directory + plain)
                        continue
                    if not plain:
                        append(page)
                        continue
            href = normalize_url(url) if base is None else join_url(base, url)
        except (ValueError, AttributeError, TypeError):
            href = _second_try(url, base)
        append(_spelled(href))
    return spelled


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
