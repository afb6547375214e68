"""The media type in a Content-Type (WHATWG Fetch, "extract a MIME type"), and whether bytes are text, by the first of
them (WHATWG MIME Sniffing sections 3, 5 and 7.2)."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

SNIFFED_BYTES: Final = 1_445
"""The resource header: the bytes that are looked at."""
MARKS: Final = (b"\xfe\xff", b"\xff\xfe", b"\xef\xbb\xbf")
"""Marks of the byte order in front of text: UTF-16 with the high byte first, with the low byte first, UTF-8."""
_BINARY: Final = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")
_VALUES: Final = re.compile(r'(?:[^",]|"(?:[^"\\]++|\\.)*(?:"|\\?\Z))+', re.DOTALL)
"""The values of a field, separated by commas outside of quotes ("get, decode, and split"). A quoted text without an end
continues to the end of the field, also with a backslash there: else each quote in it is tried as a beginning."""
_ESSENCE: Final = re.compile(r"[\t\n\r ]*+([!#$%&'*+.^_`|~0-9A-Za-z-]+/[!#$%&'*+.^_`|~0-9A-Za-z-]+)[\t\n\r ]*(?:;|\Z)")
_PARAMETER: Final = re.compile(r""";\s*([^\s;=,"']+)\s*=\s*(?:"([^"]*)"|'([^']*)'|["']?([^\s"';,]*))""")
_LABEL_CHARACTERS_MAX: Final = 40  # encodings: the longest has 19
_REMEMBERED_CHARACTERS_MAX: Final = 200  # sites write few different fields, and all of them are shorter


def is_binary(body: bytes) -> bool:
    """Whether a body is binary: it begins without a byte order mark and has a byte early on that text never has."""
    return not body.startswith(MARKS) and _BINARY.search(body, 0, SNIFFED_BYTES) is not None


class ContentType(NamedTuple):
    """A parsed Content-Type: `essence` in lower case ("" if missing), and the `label` of an encoding."""

    essence: str
    label: str | None = None


def declared_type(content_type: str) -> ContentType:
    """The media type that a Content-Type names: the last one of several values, or of fields joined by commas."""
    return (_remembered if len(content_type) <= _REMEMBERED_CHARACTERS_MAX else _parsed_type)(content_type)


def _parsed_type(content_type: str) -> ContentType:
    found = ContentType("")
    for match in _VALUES.finditer(content_type):
        named = _ESSENCE.match(match[0])
        if named is None or named[1] == "*/*":
            continue
        essence, label = named[1].lower(), _label(match[0])
        found = ContentType(essence, found.label if label is None and essence == found.essence else label)
    return found


_remembered = lru_cache(maxsize=1_024)(_parsed_type)


def _label(value: str) -> str | None:
    """The encoding that a value names: its first charset that is not empty, quoted or not."""
    for name, *values in _PARAMETER.findall(value):
        label = "".join(values).strip()
        if name.lower() == "charset" and label:
            return label[:_LABEL_CHARACTERS_MAX]
    return None
