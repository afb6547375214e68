"""The directives of one page: meta robots and the X-Robots-Tag field. Pure: names and values in, words out.

Google describes both ("Robots meta tag, data-nosnippet, and X-Robots-Tag specifications"); no RFC does. Of
several, the strictest applies. Nothing raises: a part without meaning is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from outrider.limits import DIRECTIVE_CHARACTERS_MAX, DIRECTIVES_PER_PAGE_MAX

ANY_AGENT = "robots"
"""The name of the meta elements that speak to all crawlers."""
FIELD = "x-robots-tag"

_VALUED = frozenset({"max-snippet", "max-image-preview", "max-video-preview", "unavailable_after"})
_PREFIX = re.compile(r"\s*([A-Za-z][A-Za-z0-9_.-]{0,63}|\*)\s*:\s*(.*)", re.DOTALL)
# A comma parts directives, and so does a semicolon, which is common; but not the one of a date: "Fri, 25 Jun 2010".
_COMMA = re.compile(r";|,(?!\s{0,9}[0-9]{1,2}[ -][A-Za-z]{3}\b)")
_TOKEN = re.compile(r"[A-Za-z0-9_-]+")
_NUMBER = re.compile(r"-?[0-9]{1,9}")
_PREVIEWS = ("none", "standard", "large")
_MILDER = {"nofollow": "follow", "noindex": "index"}
_CHARACTERS_MAX = DIRECTIVES_PER_PAGE_MAX * DIRECTIVE_CHARACTERS_MAX


def page_directives(
    html_meta: Iterable[tuple[str, str]], headers: Iterable[tuple[str, str]], agent: str
) -> frozenset[str]:
    """Returns the directives in force for a crawler, in lower case: "noindex", "nofollow", "max-snippet:50" …

    html_meta: (name, content) of a page's meta elements. headers: (name, value) of its header fields. agent: the
    crawler's product token; directives for it count in addition to those for all. "none" is returned with its two
    meanings, "noindex" and "nofollow"; "all", "index" and "follow" are returned if no directive contradicts them.
    """
    metas = [content for name, content in html_meta if _is_for(name, agent)]
    said = [word for text in metas for word in _words(text)]
    return strictest([*said, *header_directives(headers, agent)])


def header_directives(headers: Iterable[tuple[str, str]], agent: str) -> frozenset[str]:
    """Returns the directives of the X-Robots-Tag fields for a crawler. A name before a colon limits them to it."""
    found: list[str] = []
    for name, value in headers:
        if name.lower() != FIELD:
            continue
        counts = True
        for part in _COMMA.split(value[:_CHARACTERS_MAX]):
            match = _PREFIX.fullmatch(part)
            if match is not None and match[1].lower() not in _VALUED:
                counts = _is_for(match[1], agent)
                part = match[2]
            if counts:
                found += _words(part)
    return strictest(found)


def strictest(words: Iterable[str]) -> frozenset[str]:
    """Returns the directives in force among these in lower case, which may repeat."""
    fit = {_spelled(word) for word in words if len(word) <= DIRECTIVE_CHARACTERS_MAX}
    known = sorted(word for word in fit if word.strip(":"))[:DIRECTIVES_PER_PAGE_MAX]
    found = {word for word in known if ":" not in word or word.partition(":")[0] not in _VALUED}
    if "none" in found:
        found |= {"noindex", "nofollow"}
    for strict, mild in _MILDER.items():
        if strict in found:
            found -= {mild, "all"}
    for name in sorted(_VALUED):
        values = [word.partition(":")[2] for word in known if word.startswith(name + ":")]
        if values:
            found.add(f"{name}:{min(values, key=_leniency)}")
    return frozenset(found)


def _leniency(value: str) -> tuple[float, str]:
    """Returns how much a value allows: -1 is no limit, 0 nothing; all dates are equal."""
    if value in _PREVIEWS:
        return float(_PREVIEWS.index(value)), value
    if _NUMBER.fullmatch(value) is not None:
        return (float(value) if not value.startswith("-") else float("inf")), value
    return 0.0, value


def _words(text: str) -> list[str]:
    """The directives of a text, in lower case. Blanks part them as commas do, which is common; the value of one that
    has a value reaches to the comma."""
    found: list[str] = []
    for part in _COMMA.split(text[:_CHARACTERS_MAX].lower()):
        found += [_spelled(part)] if ":" in part else part.split()
    return found


def _spelled(word: str) -> str:
    """Returns a directive with single blanks, and without blanks around the colon before its value."""
    name, colon, value = word.partition(":")
    return f"{name.strip()}:{' '.join(value.split())}" if colon else word


def _is_for(name: str, agent: str) -> bool:
    token = _TOKEN.match(agent)
    return name.strip().lower() in {ANY_AGENT, "*", token[0].lower() if token is not None else ANY_AGENT}
