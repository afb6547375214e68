"""Dictionaries of Structured Fields (RFC 9651), as far as their tokens are used: text in, tokens by key out."""

from __future__ import annotations

import re
from typing import Final

_KEY: Final = r"[a-z*][a-z0-9_.*-]*+"
_TOKEN: Final = r"[A-Za-z*][!#$%&'*+.^_`|~0-9A-Za-z:/-]*+"  # noqa: S105 - a grammar, no secret
_OTHERS: Final = (
    r"-?(?:\d{1,12}\.\d{1,3}|\d{1,15})(?![\d.])",
    r'"(?:[ !#-\[\]-~]|\\["\\])*+"',
    r":[A-Za-z0-9+/=]*+:",
    r"\?[01]",
    r"@-?\d{1,15}(?![\d.])",
    r'%"(?:[ !#$&-~]|%[0-9a-f]{2})*+"',
)
_BARE: Final = f"(?:{_TOKEN}|{'|'.join(_OTHERS)})"
_PARAMETERS: Final = f"(?:; *+{_KEY}(?:={_BARE})?+)*+"
_ITEM: Final = f"{_BARE}{_PARAMETERS}"
_LIST: Final = rf"\( *+(?:{_ITEM}(?: ++|(?=\))))*+\){_PARAMETERS}"
_MEMBER: Final = re.compile(
    f"({_KEY})(?:=(?:({_TOKEN}){_PARAMETERS}|(?:{_ITEM}|{_LIST}))|{_PARAMETERS})(?=[ \t,]|\\Z)", re.ASCII
)
_COMMA: Final = re.compile(r"[ \t]*+,[ \t]*+")


def tokens_by_key(text: str) -> dict[str, str | None] | None:
    """Returns the token of each key, None for a key with another value; None for a text that is not a dictionary.

    The last of equal keys counts. Parameters are passed over. Every pattern takes linear time.
    """
    text = text.strip(" ")
    found: dict[str, str | None] = {}
    place = 0
    while place < len(text):
        member = _MEMBER.match(text, place)
        if member is None:
            return None
        found[member[1]] = member[2]
        place = member.end()
        if place == len(text):
            break
        comma = _COMMA.match(text, place)
        if comma is None or comma.end() == len(text):
            return None
        place = comma.end()
    return found
