"""The shapes of URLs, under which what they bring is counted, and marks of URLs to be looked at; the plain twin."""

from __future__ import annotations

import re

from outrider.kernels.columns import packed
from outrider.kernels.framing import Bytes
from outrider.kernels.siphash import hash_messages
from outrider.kernels.urls import Numbers, spans_of

MAY_HAVE_SESSION, MAY_HAVE_MONTH = 1, 2
"""Marks of URLs: they may have a session id, and may name a month; the caller checks."""

_DIGITS = re.compile(rb"[0-9]+")
_HAS_DIGIT, _HAS_LETTER = re.compile(rb"[0-9]").search, re.compile(rb"[A-Za-z]").search
_MONTH = re.compile(rb"[2-9][0-9]{3}[-/_.][0-9]|(?:[Rr]/|[A-Za-z]=)[2-9][0-9]{3}|[2-9][0-9]{3}%2[Ff][0-9]").search
_ENDING_BYTES_MAX = 5


def shape(rest: bytes, bytes_max: int) -> bytes:
    """Returns the shape of the part after the host of a canonical URL, which begins with a slash; of its first
    `bytes_max` bytes.

    Its first folder with `#` for digits; for each other name whether it has letters (`a`), digits (`#`) or both; the
    ending of the last; the names of its parameters, sorted.
    """
    path, _, query = rest.partition(b"?")
    *names, last = path.split(b"/")[1:] or [b""]
    parts = [_DIGITS.sub(b"#", names[0])] if names else []
    parts += [_kind(name) for name in names[1:]]
    stem, dot, ending = last.rpartition(b".")
    short = dot and len(ending) <= _ENDING_BYTES_MAX
    parts.append(_kind(stem) + b"." + _DIGITS.sub(b"#", ending) if short else _kind(last))
    found = b"/" + b"/".join(parts)
    if query:
        asked = {_DIGITS.sub(b"#", one.partition(b"=")[0]) for one in query.split(b"&")}
        found += b"?" + b"&".join(sorted(asked))
    return found[:bytes_max]


def _kind(name: bytes) -> bytes:
    if not name:
        return b""
    if _HAS_DIGIT(name) is None:
        return b"a"
    return b"#" if _HAS_LETTER(name) is None else b"a#"


def shapes_of(
    arena: Bytes, starts: Numbers, ends: Numbers, key: Bytes, bytes_max: int, sessions: Bytes
) -> tuple[bytes, bytes, bytes]:
    """Returns for each canonical URL, a span of an arena: the fingerprints of "authority LF shape" and "authority LF",
    one after the other (u64); the number of slashes after its authority (u32); and its marks (u8).

    sessions: names of parameters that may be session ids, in lower case, each with a line feed after it; `*` at the
    end of one matches any letters. A URL gets the mark MAY_HAVE_SESSION if a parameter has such a name, in any
    case and after any underscores, or if its path has a semicolon or a "/(".
    Raises ValueError for a span that is not a URL with authority and path.
    """
    names = bytes(sessions).split(b"\n")[:-1]
    known, begins = set(names), tuple(name[:-1] for name in names if name.endswith(b"*"))
    texts: list[bytes] = []
    counts, marks = [], []
    for row, url in enumerate(spans_of(arena, starts, ends)):
        authority, slash, behind = url.partition(b"://")[2].partition(b"/")
        if not slash:
            raise ValueError(f"row {row}: a URL has an authority and a path")
        rest = slash + behind
        texts += (authority + b"\n" + shape(rest, bytes_max), authority + b"\n")
        counts.append(rest.count(b"/"))
        path, _, query = rest.partition(b"?")
        asked = [one.partition(b"=")[0].lower().lstrip(b"_") for one in query.split(b"&")]
        session = b";" in path or b"/(" in path or any(name in known or name.startswith(begins) for name in asked)
        marks.append(MAY_HAVE_SESSION * session | MAY_HAVE_MONTH * (_MONTH(rest) is not None))
    return hash_messages(texts, bytes(key)), packed(counts, "<u4"), packed(marks, "u1")
