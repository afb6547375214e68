"""`Link` header fields (RFC 8288) and `Refresh`: the links that an answer of any type names in its head."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from outrider.kernels.refresh import parse_refresh
from outrider.limits import HEADER_LINKS_BYTES_MAX, HEADER_LINKS_MAX, PAGE_VALUE_BYTES_MAX, URL_BYTES_MAX
from outrider.url import as_received, spell

_PARAMETER: Final = re.compile(
    r"""[ \t]*;[ \t]*([A-Za-z0-9!#$&+.^_`|~*-]+)[ \t]*(?:=[ \t]*(?:"((?:[^"\\]|\\.)*)"|([^\s",;]*)))?"""
)
_QUOTED: Final = re.compile(r"\\(.)")


class HeaderLink(NamedTuple):
    """One link: its canonical absolute URL, and its parameters of these names."""

    url: str
    rel: str = ""
    hreflang: str = ""
    type: str = ""
    title: str = ""


def header_links(values: Iterable[str], url: str) -> tuple[HeaderLink, ...]:
    """Returns the links in the values of `Link` fields of an answer from `url`, in order: at most `HEADER_LINKS_MAX`.

    Only http and https count. A link with an `anchor` describes another resource and is skipped, as is text that is not
    a link.
    """
    written: list[tuple[str, dict[str, str]]] = []
    room = HEADER_LINKS_BYTES_MAX
    for value in values:
        written += _parsed(value[:room], HEADER_LINKS_MAX - len(written))
        room -= len(value)
        if room <= 0 or len(written) >= HEADER_LINKS_MAX:
            break
    urls = spell([as_received(target) for target, _ in written], url) if written else []
    return tuple(
        HeaderLink(target, _words(told, "rel"), _words(told, "hreflang"), _words(told, "type"), told.get("title", ""))
        for target, (_, told) in zip(urls, written, strict=True)
        if target is not None and len(target) <= URL_BYTES_MAX and "anchor" not in told
    )


def refresh_of(value: str, url: str) -> tuple[int, str] | None:
    """Seconds and canonical absolute URL of a `Refresh` field of an answer from `url`; None where it names no page.

    WHATWG HTML 4.2.5.3: the steps of a meta refresh, whose value has the same form.
    """
    found = parse_refresh(value[:PAGE_VALUE_BYTES_MAX])
    if found is None:
        return None
    target = spell([as_received(found[1])], url)[0]
    return None if target is None or len(target) > URL_BYTES_MAX else (found[0], target)


def _words(told: dict[str, str], name: str) -> str:
    return " ".join(told.get(name, "").lower().split())


def _parsed(text: str, most: int) -> list[tuple[str, dict[str, str]]]:
    """Targets and parameters; of equal parameters the first counts (RFC 8288 section 3.3)."""
    found: list[tuple[str, dict[str, str]]] = []
    at = 0
    while len(found) < most:
        start = text.find("<", at)
        end = text.find(">", start)
        if start < 0 or end < 0:
            break
        told: dict[str, str] = {}
        at = end + 1
        while (part := _PARAMETER.match(text, at)) is not None:
            at = part.end()
            value = part[3] or "" if part[2] is None else _QUOTED.sub(r"\1", part[2])
            told.setdefault(part[1].lower(), value)
        found.append((text[start + 1 : end], told))
    return found
