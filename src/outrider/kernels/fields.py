"""The fields of a response head; the plain twin of the native kernel."""

from __future__ import annotations

from outrider.kernels.columns import octets
from outrider.kernels.framing import Bytes


def head_fields(head: Bytes) -> tuple[tuple[str, str], ...]:
    """Returns name and value of each field of a head in latin-1 that begins with its status line.

    Lines end with LF, and white space around them is ignored. Lines without a colon or a name are skipped. Folded lines
    continue the previous field (obs-fold, RFC 9112 section 5.2) and are joined by a space.
    """
    fields: list[tuple[str, str]] = []
    for line in octets(head, 1, "a head").decode("latin-1").split("\n")[1:]:
        if line[:1] in (" ", "\t") and fields:
            name, value = fields[-1]
            fields[-1] = (name, " ".join((value, line.strip(" \t\r"))).strip(" "))
            continue
        name, colon, value = line.partition(":")
        if colon and name:
            fields.append((name.rstrip(" \t"), value.strip(" \t\r")))
    return tuple(fields)


def head_index(head: Bytes) -> tuple[dict[str, str], dict[str, list[str]]]:
    """The fields of a head as `indexed` has them."""
    return indexed(head_fields(head))


def indexed(fields: tuple[tuple[str, str], ...]) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Fields by name in lower case: the first value of each name, and all values, in order, of those that have more."""
    first: dict[str, str] = {}
    several: dict[str, list[str]] = {}
    for name, value in fields:
        lower = name.lower()
        if lower in first:
            several.setdefault(lower, [first[lower]]).append(value)
        else:
            first[lower] = value
    return first, several
