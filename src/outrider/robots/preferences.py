"""What a site says about the uses of its pages, by source: pure functions from lines, fields and metas to statements.

Each statement keeps its source and its raw text. `SOURCES` is the one table of what each source stands for, with the
text and the date that it was read from: labels of drafts change. docs/decisions/permission.md has the reasons.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from outrider.errors import SettingsError
from outrider.kernels import RobotsText, RobotsUsages
from outrider.limits import (
    PREFERENCE_CHARACTERS_MAX,
    PREFERENCE_LINES_MAX,
    PREFERENCE_STATEMENTS_MAX,
    PREFERENCE_TEXT_CHARACTERS_MAX,
)
from outrider.structured_fields import Token, read_dictionary
from outrider.uses import NOTHING_SAID, USES, Preferences, Statement, Use, UseLine, Uses


class PreferenceSource(NamedTuple):
    """One way in which a site says something. text, date: the text that this row follows. stands_for: by the key and
    the value that a site writes, the uses that are answered, and the answer."""

    name: str
    text: str
    date: str
    stands_for: Mapping[tuple[str, str], tuple[tuple[Use, ...], str]]


_LABELS: Final[Mapping[tuple[str, str], tuple[tuple[Use, ...], str]]] = {
    (use, answer): ((use,), answer) for use in USES for answer in ("y", "n")
}
_SIGNALS: Final[Mapping[tuple[str, str], tuple[tuple[Use, ...], str]]] = {
    (key, word): ((use,), word[0])
    for key, use in (("ai-train", USES[0]), ("ai-input", USES[1]), ("search", USES[2]))
    for word in ("yes", "no")
}
_AIPREF: Final = "draft-ietf-aipref-attach-05, draft-ietf-aipref-vocab-08"
_TDMREP: Final = "TDMRep, W3C Community Group Final Report"
_RESERVED: Final[Mapping[tuple[str, str], tuple[tuple[Use, ...], str]]] = {
    ("tdm-reservation", "1"): (("train-ai", "ai-use"), "n"),
    ("tdm-reservation", "0"): ((), "y"),
}
SOURCES: Final = {
    source.name: source
    for source in (
        PreferenceSource("robots content-usage", _AIPREF, "2026-09-14", _LABELS),
        PreferenceSource("robots content-signal", "Content Signals policy of Cloudflare", "2025-09-24", _SIGNALS),
        PreferenceSource("file tdm-reservation", _TDMREP, "2024-05-10", _RESERVED),
        PreferenceSource("header content-usage", _AIPREF, "2026-09-14", _LABELS),
        PreferenceSource("header content-signal", "practice; the policy names robots.txt only", "2025-09-24", _SIGNALS),
        PreferenceSource("header tdm-reservation", _TDMREP, "2024-05-10", _RESERVED),
        PreferenceSource("meta tdm-reservation", _TDMREP, "2024-05-10", _RESERVED),
        PreferenceSource("noai", "practice since 2022", "2022-11-11", {("noai", ""): (("train-ai",), "n")}),
        PreferenceSource("noimageai", "practice since 2022; about the images of a page", "2022-11-11", {}),
    )
}
"""The sources in the order of a page: what is known before the request, with the answer, and after reading."""

FIELDS: Final = ("content-usage", "content-signal", "tdm-reservation")
_USAGE, _SIGNAL, _RESERVATION = FIELDS
_POLICY: Final = "tdm-policy"
_NAMES: Final = frozenset({*FIELDS, _POLICY})
_WORDS: Final = ("noai", "noimageai")


class UseLines:
    """The lines about uses that count for one agent. Made by `of`; never changes."""

    __slots__ = ("_signals", "_texts", "_usages")

    def __init__(
        self, usages: RobotsUsages, texts: Mapping[int, str], signals: Sequence[tuple[UseLine, RobotsUsages | None]]
    ) -> None:
        """signals: lines with their paths; None for a line about all URLs."""
        self._usages = usages
        self._texts = texts
        self._signals = signals

    @classmethod
    def of(cls, text: RobotsText, token: str) -> UseLines | None:
        """Returns the lines of a robots.txt for a token, None without any: the first `PREFERENCE_LINES_MAX` of each
        field."""
        usages = text.remarks(token, _USAGE, PREFERENCE_LINES_MAX)
        signals = text.remarks(token, _SIGNAL, PREFERENCE_LINES_MAX)
        if not usages and not signals:
            return None
        lines = [((number, _SIGNAL, _decoded(value)), _path_of_signal(value)) for number, value in signals]
        texts = {number: _decoded(value) for number, value in usages}
        return cls(text.usages(token, PREFERENCE_LINES_MAX), texts, lines)

    @property
    def memory_bytes(self) -> int:
        """The bytes that the lines use, about."""
        texts = [*self._texts.values(), *(value for (_, _, value), _ in self._signals)]
        paths = sum(path.memory_bytes for _, path in self._signals if path is not None)
        return self._usages.memory_bytes + paths + sum(100 + len(text) for text in texts)

    def about(self, url: str) -> tuple[UseLine, ...]:
        """Returns the lines that decide about an absolute URL. The longest path decides among Content-Usage lines, and
        all lines with that path count (draft-ietf-aipref-attach-05 section 3.1). The policy of Content-Signal has no
        paths. A line with one is about the URLs below it alone."""
        usages = [(number, _USAGE, self._texts[number]) for number in self._usages.lines(url)]
        signals = [line for line, path in self._signals if path is None or path.lines(url)]
        return (*_telling(usages), *_telling(signals))


def _path_of_signal(value: bytes) -> RobotsUsages | None:
    """Returns the path at the beginning of a Content-Signal line, read as that of a Content-Usage line."""
    if not value.startswith(b"/"):
        return None
    return RobotsText(b"User-agent: *\nContent-Usage: " + value + b"\n").usages("*", 1)


def _without_path(value: str) -> str:
    return value.replace("\t", " ").partition(" ")[2] if value.startswith("/") else value


def _decoded(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _telling(lines: list[UseLine]) -> list[UseLine]:
    """Returns a bounded number of lines that have all answers of these lines."""
    if len(lines) <= PREFERENCE_STATEMENTS_MAX:
        return lines
    kept: list[UseLine] = []
    known: set[tuple[str, str]] = set()
    for line in lines:
        answers = set(said_in_line(line).uses.items())
        if answers - known:
            kept.append(line)
            known |= answers
    return kept or lines[:PREFERENCE_STATEMENTS_MAX]


@lru_cache(maxsize=4_096)
def said_in_line(line: UseLine) -> Statement:
    """Returns the statement of a line of a robots.txt."""
    number, field, value = line
    if field == _SIGNAL:
        return _signals(f"robots {_SIGNAL}", _without_path(value), number, shown=value)
    return _usages(f"robots {_USAGE}", _without_path(value), number, shown=value)


def _usages(source: str, text: str, line: int | None = None, *, shown: str) -> Statement:
    if len(text) > PREFERENCE_CHARACTERS_MAX:
        return _faulty(source, shown, line, f"it is longer than {PREFERENCE_CHARACTERS_MAX:,} characters")
    try:
        members = read_dictionary(text.strip(" \t"))
    except SettingsError:
        return _faulty(source, shown, line, "it is not a dictionary of RFC 9651")
    said = [(key, str(one.value)) for key, one in members.items() if isinstance(one.value, Token)]
    return Statement(source, _cut(shown), _uses_of(source, said), line)


def _signals(source: str, text: str, line: int | None = None, *, shown: str) -> Statement:
    if len(text) > PREFERENCE_CHARACTERS_MAX:
        return _faulty(source, shown, line, f"it is longer than {PREFERENCE_CHARACTERS_MAX:,} characters")
    parts = [part.partition("=") for part in text.lower().split(",")]
    said = [(key.strip(), word.strip()) for key, _, word in parts]
    return Statement(source, _cut(shown), _uses_of(source, said), line)


def said_in_reservation(source: str, value: str, policy: str | None, *, shown: str | None = None) -> Statement:
    """Returns the statement of a tdm-reservation. policy: the tdm-policy of the same place. shown: the text to show in
    place of the value."""
    value = value.strip()
    known = (_RESERVATION, value) in SOURCES[source].stands_for
    uses = _uses_of(source, [(_RESERVATION, value)])
    fault = None if known else "it is neither 1 nor 0"
    shown = value if shown is None else shown
    return Statement(source, _cut(shown), uses, policy=_cut(policy) if policy and value == "1" else None, fault=fault)


def _faulty(source: str, text: str, line: int | None, fault: str) -> Statement:
    return Statement(source, _cut(text), {}, line, fault=fault)


def _cut(text: str) -> str:
    return text[:PREFERENCE_TEXT_CHARACTERS_MAX]


def _uses_of(source: str, said: Iterable[tuple[str, str]]) -> Uses:
    """Returns what keys and values of a source stand for; of several answers about one use the strictest."""
    uses: Uses = {}
    for pair in said:
        named, answer = SOURCES[source].stands_for.get(pair, ((), ""))
        for use in named:
            uses[use] = min(answer, uses.get(use, answer))  # "n" is before "y"
    return {use: uses[use] for use in USES if use in uses}


def _about_uses(headers: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yields the fields that say something about uses, with their names in lower case."""
    for name, value in headers:
        if (name := name.lower()) in _NAMES:
            yield name, value


def said_in_fields(headers: Iterable[tuple[str, str]]) -> list[Statement]:
    """Returns the statements of the fields of an answer. The lines of one field are joined (RFC 9110 section 5.3)."""
    found: dict[str, list[str]] = {}
    for name, value in _about_uses(headers):
        found.setdefault(name, []).append(value)
    said: list[Statement] = []
    for name in (_USAGE, _SIGNAL):
        if (values := found.get(name)) is not None:
            text = ", ".join(values)
            said.append((_usages if name == _USAGE else _signals)(f"header {name}", text, shown=text))
    if (values := found.get(_RESERVATION)) is not None:
        said.append(said_in_reservation(f"header {_RESERVATION}", values[-1], next(iter(found.get(_POLICY, ())), None)))
    return said


def said_in_directives(directives: Iterable[str]) -> list[Statement]:
    """Returns the statements among the directives of a page: noai, noimageai, and the metas of TDMRep."""
    said: list[Statement] = []
    values: dict[str, str] = {}
    for word in sorted(directives):
        first = word.partition(";")[0].strip()  # a semicolon parts directives, too
        if first in _WORDS:
            said.append(Statement(first, first, _uses_of(first, [(first, "")])))
        name, colon, value = word.partition(":")
        if colon and name in (_RESERVATION, _POLICY):
            values.setdefault(name, value)
    if _RESERVATION in values:
        said.append(said_in_reservation(f"meta {_RESERVATION}", values[_RESERVATION], values.get(_POLICY)))
    return said


def preferences_of(
    lines: Iterable[UseLine] = (),
    headers: Iterable[tuple[str, str]] = (),
    directives: Iterable[str] = (),
    *,
    file: Statement | None = None,
) -> Preferences:
    """Returns what a site says about the uses of one page. lines: of its robots.txt, from `UseLines.about`. headers: of
    its answer. directives: of its metas and its X-Robots-Tag fields. file: of its tdmrep.json, from `TdmFile.about`."""
    given = tuple(lines), tuple(_about_uses(headers)), frozenset(directives)
    if file is not None or _characters(*given) > PREFERENCE_CHARACTERS_MAX:
        return _preferences_of(*given, file)
    return _kept_preferences_of(*given)


def _characters(lines: Iterable[UseLine], fields: Iterable[tuple[str, str]], directives: Iterable[str]) -> int:
    """Returns the length of all texts."""
    of_lines = sum(len(value) for _, _, value in lines)
    return of_lines + sum(len(value) for _, value in fields) + sum(map(len, directives))


def _preferences_of(
    lines: tuple[UseLine, ...],
    fields: tuple[tuple[str, str], ...],
    directives: frozenset[str],
    file: Statement | None = None,
) -> Preferences:
    in_file = () if file is None else (file,)  # before the fields: later statements of TDMRep supersede it
    said = [*map(said_in_line, lines), *in_file, *said_in_fields(fields), *said_in_directives(directives)]
    return Preferences(strictest_uses(said), said) if said else NOTHING_SAID


_kept_preferences_of = lru_cache(maxsize=2_048)(_preferences_of)  # a site says the same with each of its pages


def strictest_uses(said: Sequence[Statement]) -> Uses:
    """Returns the strictest answer by use among statements: any "n" is "n" (draft-ietf-aipref-vocab-08 section 5.1).
    Among the statements of TDMRep only the last one with a value counts, also if it is less strict."""
    reserved = [one for one in said if one.source.endswith(_RESERVATION) and one.fault is None]
    counts = [one for one in said if one not in reserved[:-1]]
    answers = {(use, answer) for one in counts for use, answer in one.uses.items()}
    return {use: "n" if (use, "n") in answers else "y" for use in USES if answers & {(use, "n"), (use, "y")}}
