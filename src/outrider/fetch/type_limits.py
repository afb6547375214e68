"""How much of an answer is kept, by the type of its content; crates/fetch/src/room.rs has the same rule."""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any, Final

from outrider.errors import SettingsError
from outrider.fetch.failures import safe_text
from outrider.limits import REQUEST_FIELDS_KNOWN

ANY_TYPE: Final = "*"

TypeBytes = tuple[tuple[str, int], ...]
"""Bytes of a body by its content type: `text/html`, `image/*`, or `*` for any other type. Of two limits with one
name the later one applies."""


def bytes_of_type(limits: TypeBytes, content_type: str) -> int | None:
    """Returns the limit for a Content-Type field, which may be empty: of its type, its family, or any other."""
    by_type = dict(limits)
    essence = content_type.partition(";")[0].strip(" \t").lower()
    family = essence.partition("/")[0] + "/*"
    for name in (essence, family, ANY_TYPE):
        if name in by_type:
            return by_type[name]
    return None


def checked_limits(limits: Any) -> TypeBytes:
    """The limits as a request has them, from pairs or a mapping. Raises SettingsError."""
    try:
        pairs = limits if type(limits) is tuple else tuple((name, most) for name, most in dict(limits).items())
        _check(pairs)
    except (TypeError, ValueError) as error:
        raise SettingsError(f"type_bytes_max = {safe_text(repr(limits))}: {error}") from None
    return pairs


@lru_cache(maxsize=REQUEST_FIELDS_KNOWN)
def _check(pairs: Any) -> None:
    for name, most in pairs:
        if not (isinstance(name, str) and name.isascii() and name == name.lower().strip()):
            raise ValueError("it takes types in lower case")
        if type(most) is not int or not 0 <= most <= sys.maxsize:
            raise ValueError("it takes whole numbers of bytes")
