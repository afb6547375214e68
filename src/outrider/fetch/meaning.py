"""The meaning of an answer: what a status or an error says about the requested URL, decided only here.

Crawls, workers and results over REST use this table. docs/answers.md is made from it:
`python -m outrider.fetch.meaning > docs/answers.md`.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import Final

from outrider.fetch.failures import FetchError
from outrider.journey import Verdict, Word
from outrider.robots import verdict_of_status

REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
ROBOTS_HOPS: Final = REDIRECTS | {300}
"""Statuses of a robots.txt that lead to its next hop. A page of choices (300) allows nothing by itself."""
NOT_MODIFIED: Final = 304
REFUSALS: Final = frozenset({429, 503})  # the site has too much to do
STATUSES: Final = range(100, 1_000)  # three digits, of which the first is not 0: RFC 9110 section 15
_ERRORS: Final = {str(error): error for error in FetchError}


class AlsoNeeded(Enum):
    """An additional condition for an answer, besides its status."""

    NOTHING = ""
    LOCATION = "with a location that can be crawled"
    VALIDATORS = "to a request with validators"


@dataclass(frozen=True, slots=True)
class Meaning:
    """word: the outcome in `pages.jsonl`, before the content is read, and while attempts are left. verdict: for the
    frontier. error: the class, or None. refused: the host is overloaded, and rests."""

    word: Word
    verdict: Verdict
    error: str | None = None
    refused: bool = False


@dataclass(frozen=True, slots=True)
class StatusRow:
    """The statuses that mean the same, the first row that fits counts. source: where that is written."""

    statuses: Collection[int]
    needs: AlsoNeeded
    meaning: Meaning
    source: str = ""


class Content(Enum):
    """The state of a page's body after its codings, for a status of success."""

    DISGUISED = "has an unknown coding, a type of text, and bytes that are no text"
    LOST = "has a broken coding, and no byte of it can be decoded"
    CUT = "ends early: at a limit, or with the connection"
    BROKEN = "has a broken coding, and its beginning can be decoded"
    CHECKSUM = "is whole, and its checksum is wrong"
    WHOLE = "is whole; an unknown coding leaves the bytes as they are"


_GONE = Meaning(Word.GONE, Verdict.GONE)
_DECODE: Final = str(FetchError.DECODE)
TRUNCATED: Final = "truncated"
CONTENTS: Final = {
    Content.DISGUISED: Meaning(Word.ERROR, Verdict.GONE, _DECODE),
    Content.LOST: Meaning(Word.ERROR, Verdict.GONE, _DECODE),
    Content.CUT: Meaning(Word.TRUNCATED, Verdict.DONE),
    Content.BROKEN: Meaning(Word.TRUNCATED, Verdict.DONE, _DECODE),
    Content.CHECKSUM: Meaning(Word.DONE, Verdict.DONE, _DECODE),
    Content.WHOLE: Meaning(Word.DONE, Verdict.DONE),
}
ROWS: Final = (
    StatusRow(range(200, 300), AlsoNeeded.NOTHING, Meaning(Word.DONE, Verdict.DONE), "RFC 9110 section 15.3"),
    StatusRow({NOT_MODIFIED}, AlsoNeeded.VALIDATORS, Meaning(Word.UNCHANGED, Verdict.DONE), "RFC 9110 section 15.4.5"),
    StatusRow(REDIRECTS, AlsoNeeded.LOCATION, Meaning(Word.REDIRECT, Verdict.DONE), "RFC 9110 section 15.4"),
    StatusRow(
        REDIRECTS, AlsoNeeded.NOTHING, Meaning(Word.GONE, Verdict.GONE, "bad_location"), "RFC 9110 section 10.2.2"
    ),
    *(
        StatusRow(
            {status},
            AlsoNeeded.NOTHING,
            Meaning(Word.RETRY, Verdict.RETRY, f"http_{status}", status in REFUSALS),
            source,
        )
        for status, source in (
            (408, "RFC 9110 section 15.5.9"),
            (425, "RFC 8470 section 5.2"),
            (429, "RFC 6585 section 4"),
            *((status, "RFC 9110 section 15.6") for status in range(500, 600)),
            *((status, "RFC 9110 section 15") for status in range(600, 1_000)),  # invalid: as 5xx
        )
    ),
    StatusRow(
        {402}, AlsoNeeded.NOTHING, Meaning(Word.ASKS_PAYMENT, Verdict.GONE, "payment"), "RFC 9110 section 15.5.3"
    ),
    StatusRow(STATUSES, AlsoNeeded.NOTHING, _GONE),
)
CHALLENGED: Final = Meaning(Word.RETRY, Verdict.RETRY, str(FetchError.NOT_WELCOME))


@lru_cache(maxsize=len(STATUSES))
def _rows_of(status: int) -> tuple[StatusRow, ...]:
    return tuple(row for row in ROWS if status in row.statuses)


def meaning_of(
    status: int | None, error: str | None, *, challenged: bool = False, moved: bool = False, validated: bool = False
) -> Meaning:
    """Returns the meaning of an answer. status: None without an answer. error: of the request, None for a whole answer;
    a word outside `FetchError` is defined by its sender. challenged: the answer has the sign of a challenge.
    moved: it names a location that can be crawled. validated: the request had validators."""
    known = _ERRORS.get(error) if error is not None else None
    if known is not None:
        if known.retryable:
            return Meaning(Word.RETRY, Verdict.RETRY, error, status in REFUSALS)
        return Meaning(Word.ERROR, Verdict.GONE, error)
    if challenged:
        return replace(CHALLENGED, refused=True) if status in REFUSALS else CHALLENGED
    if status is None:  # an error that only its sender defines may be temporary; the frontier's own steps end it
        return Meaning(Word.RETRY, Verdict.RETRY, error or "error")
    met = {AlsoNeeded.NOTHING: True, AlsoNeeded.LOCATION: moved, AlsoNeeded.VALIDATORS: validated}
    found = next((row.meaning for row in _rows_of(status) if met[row.needs]), _GONE)
    if error is None:
        return found
    return Meaning(Word.ERROR, Verdict.GONE, error) if found.word == Word.DONE else replace(found, error=error)


def robots_meaning(status: int | None, error: str | None, *, challenged: bool = False) -> tuple[int | None, str | None]:
    """Returns the status that counts for a robots.txt, and its error. None for the status: the file is unreachable.
    error: of the request or of the body (`truncated`, `decode`); a word outside `FetchError` makes a file of rules
    unreachable, and does not change other statuses. challenged: as of `meaning_of`; a challenge allows nothing."""
    if error in _ERRORS:
        return None, error
    if challenged:
        return None, str(FetchError.NOT_WELCOME)
    if status is None or (error is not None and verdict_of_status(status) == "rules"):
        return None, error
    return status, error


def requested_wait(status: int | None, retry_after: float | None) -> float | None:
    """The wait of a Retry-After that counts: that of a redirect or a failure (RFC 9110 section 10.2.3)."""
    return retry_after if status is not None and status >= 300 else None


def page() -> str:
    """docs/answers.md, in Markdown."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    yield from (
        "# The meaning of an answer",
        "",
        "Outrider gives an answer one meaning, for crawls, workers and results over REST. This page is made from the",
        "table that decides it: `python -m outrider.fetch.meaning > docs/answers.md`.",
        "",
        "`outcome` is the word in `pages.jsonl`. A `retry` becomes `error` at its last attempt. The content of a page",
        "that is `done` may change the word: see below. A copy of another page is `duplicate`. A page with the content",
        "of its last visit is `unchanged`.",
        "",
        "## Statuses",
        "",
        "The first row that fits counts.",
        "",
        "| status | outcome | the frontier is told | error | source |",
        "|---|---|---|---|---|",
    )
    merged: dict[tuple[str, ...], list[int]] = {}
    for row in ROWS:
        error = "http_STATUS" if (row.meaning.error or "").startswith("http_") else row.meaning.error or ""
        cells = (row.needs.value, row.meaning.word, _verdict_text(row.meaning), error, row.source)
        merged.setdefault(cells, []).extend(row.statuses)
    for (needs, word, told, error, source), statuses in merged.items():
        named = "any other" if len(statuses) == len(STATUSES) else _ranges(statuses)
        yield f"| {f'{named} {needs}'.strip()} | {word} | {told} | {f'`{error}`' if error else ''} | {source} |"
    yield from (
        "",
        f"A challenge for a browser or a person is `{CHALLENGED.word}`, with the error `{CHALLENGED.error}`, at any",
        "status. Two of them in a row park the host.",
        "",
        "## Errors",
        "",
        "An error of this list counts before the status of its answer. With the status 429 or 503, a `retry` is also",
        "`refused`. A worker may report an error of its own: without a status it is `retry`, with that of a page it is",
        "`error`, and with any other status the row above counts, with that error.",
        "",
        "| error | outcome | the frontier is told |",
        "|---|---|---|",
    )
    for error in FetchError:
        found = meaning_of(None, str(error))
        yield f"| `{error}` | {found.word} | {_verdict_text(found)} |"
    yield from (
        "",
        "## Content",
        "",
        "These rows count for a page with a status of 200 to 299. The first row that fits counts. A worker reports",
        "`success` with the error `decode` if it decoded a part of the page, and `error` with `decode` if it decoded",
        "nothing.",
        "",
        "| the content | outcome | the frontier is told | error |",
        "|---|---|---|---|",
    )
    for content, found in CONTENTS.items():
        error = f"`{found.error}`" if found.error else ""
        yield f"| {content.value} | {found.word} | {_verdict_text(found)} | {error} |"
    yield from _robots_page()


def _robots_page() -> Iterator[str]:
    yield from (
        "",
        "## robots.txt",
        "",
        "A robots.txt has its own meaning (RFC 9309 section 2.3.1). It is unreachable without an answer, with an error",
        "of the list above, with a challenge, and if its body ends early or cannot be decoded. If a limit of ours cut",
        "the body, the lines before the cut count. An error of a worker's own makes a file of rules unreachable.",
        "",
        "| status | meaning |",
        "|---|---|",
    )
    words = {
        "rules": "its rules hold",
        "redirect": "the next hop is requested; without a location that can be requested, everything is allowed",
        "allow": "everything is allowed",
        "unreachable": "the pages of its site wait",
    }
    for verdict, text in words.items():
        yield f"| {_ranges([one for one in STATUSES if verdict_of_status(one) == verdict])} | {text} |"


def _verdict_text(meaning: Meaning) -> str:
    return f"{meaning.verdict}, refused" if meaning.refused else str(meaning.verdict)


def _ranges(statuses: list[int]) -> str:
    """100 101 102 404 as `100–102, 404`."""
    spans: list[list[int]] = []
    for status in sorted(statuses):
        if spans and spans[-1][1] == status - 1:
            spans[-1][1] = status
        else:
            spans.append([status, status])
    return ", ".join(f"{first}" if first == last else f"{first}–{last}" for first, last in spans)


if __name__ == "__main__":
    sys.stdout.write(page())
