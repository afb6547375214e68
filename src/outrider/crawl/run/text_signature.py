"""The words and figures of pages without end: a calendar, a filter, a session repeats the same again and again.

Words and figures are separated. Pages with the same words and other figures are new: the days of a weather station,
the products of a shop. Some figures are ignored: those of the page's URL, its own date, the days of a month in order, a
clock, the time that the server needed, a counter of visitors. Texts of links to URLs of the page's own kind are ignored
too, because they belong to the trap. So are figures of links that are in their URLs. Texts of other links count, so a
list with links to new articles is not a trap.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from outrider.frontier.policy.returns import shape_of
from outrider.limits import (
    HOSTS_LINKED_MIN,
    KIN_BYTES_MAX,
    KIN_WORDS_MAX,
    KIN_WORDS_MIN,
    WORDING_BYTES_MAX,
    WORDING_LINKS_MAX,
)
from outrider.page import Page
from outrider.url import UrlBatch, host_of, registrable_domain
from outrider.url.traps import TITLE_DATE, may_be_endless

_HAS_DIGIT: Final = re.compile(rb"[0-9]").search
_FIGURES: Final = re.compile(rb"[0-9]+(?:[.,:/-][0-9]+)*").findall
_NUMBERS: Final = re.compile(rb"[0-9]+").findall
_YEAR: Final = re.compile("[0-9]{4}").search
_DATE: Final = re.compile(TITLE_DATE.pattern.encode(), re.IGNORECASE)
# Seconds since 1970 are a clock too, as thousandths of them. These patterns begin with a digit or a word, which the
# engine finds at once, and look back from there: they use most of the time of this module.
_CLOCK: Final = re.compile(
    rb"[0-9](?:(?<![0-9:.].)(?:(?<=[0-2])[0-9])?:[0-5][0-9](?::[0-5][0-9](?:[.,][0-9]+)?)?(?![0-9:])"
    rb"|(?<![0-9].)(?<=1)[5-9][0-9]{8}(?:[0-9]{3})?(?![0-9]))",
    re.DOTALL,
)
_CLOCKS_MAX: Final = 3  # a page with more times of a day is a timetable
_MADE: Final = {
    word: re.compile(rb"%b(?<=\b%b)\b[^0-9\n]{0,30}[0-9]++(?:[.,][0-9]++)*" % (word, word))
    for word in (
        *(b"generated", b"created", b"rendered", b"served", b"loaded", b"processed", b"executed", b"took"),
        *(b"visitor", b"visitors", b"visit number"),
    )
}
"""By the word before the time that the server needed, or before the number of visitors."""
_SEEN: Final = (b" views", b" hits")
# Possessive in the digits, and not from within a number: a page of digits would need minutes.
_VIEWS: Final = re.compile(
    rb"[0-9](?<![0-9].)(?<![0-9][.,].)[0-9]*+(?:[.,][0-9]++)*(?= (?:page )?(?:views|hits)\b)", re.DOTALL
)
_DAYS_MIN, _DAYS_MAX = 28, 31
_WEEKS_MAX: Final = 53
_EDGES_MAX: Final = 18  # figures around the days of a month: weeks, and days of the months before and after it
_LETTERS: Final = bytes(octet | 32 if chr(octet).isalpha() else 32 for octet in range(128)) + b" " * 128
"""Each octet as a small letter, or as a blank."""
Hashes = npt.NDArray[np.uint32]


class TextSignature(NamedTuple):
    """The content of a page: hashes of its words, each once and in order, and a number for its figures, or 0."""

    words: Hashes
    figures: int

    def is_nearly(self, other: TextSignature) -> bool:
        """Whether both have the same figures, and differ in a few words at most: a greeting, a name."""
        if self.figures != other.figures:
            return False
        fewer = min(len(self.words), len(other.words))
        most = min(fewer // 3, max(KIN_WORDS_MIN, min(KIN_WORDS_MAX, fewer // 8)))
        if abs(len(self.words) - len(other.words)) > most:
            return False
        both = len(np.intersect1d(self.words, other.words, assume_unique=True))
        return max(len(self.words), len(other.words)) - both <= most and both > 0


def words_of(page: Page, url: str, links: UrlBatch | None = None) -> int | None:
    """Returns a number for host, words and figures of a page, equal for equal pages; None for a page without
    text, and for one whose URL and title are those of a unique page. A page with links to many hosts of its
    domain equals one of another of these hosts. links: the followed links of the page, or None."""
    domain = _domain_of_many(url, links) if page.octets and links is not None else None
    if not page.octets or (domain is None and not may_be_endless(url, page.title)):
        return None
    text = page.octets[:WORDING_BYTES_MAX]
    bare = _without_own_dates(text, url, page.title)
    words = Counter(word for word in bare.split() if not _HAS_DIGIT(word))
    figures = Counter(_figures(bare, url))
    found = page.found
    own = _kind(url)
    for row, said in enumerate(found.texts[:WORDING_LINKS_MAX]):
        if not said:
            continue
        target = found.urls[row]
        octets = _without_own_dates(said.encode(), url, page.title)
        if _kind(target) == own or (domain is not None and host_of(target).endswith(domain)):
            words.subtract(word for word in octets.split() if not _HAS_DIGIT(word))
            figures.subtract(_FIGURES(octets))
        elif _HAS_DIGIT(octets):
            named = {*_NUMBERS(target.encode())}
            figures.subtract(one for one in _FIGURES(octets) if named.issuperset(_NUMBERS(one)))
    told = (b"%b %d" % (word, count) for some in (words, figures) for word, count in sorted(some.items()) if count > 0)
    return _number((domain or own[0]).encode() + b"\n" + b"\n".join(told))


def _domain_of_many(url: str, links: UrlBatch) -> str | None:
    """Returns the registrable domain of a page, with a dot before it, if its host is not the domain itself and the page
    links at least `HOSTS_LINKED_MIN` times to other hosts of it."""
    if len(links) < HOSTS_LINKED_MIN:
        return None
    host = host_of(url)
    domain = registrable_domain(host)
    if domain is None or host.removeprefix("www.") == domain:
        return None
    name = f".{domain}"
    linked = links.arena.count(name.encode()) - links.arena.count(f"//{host}".encode())
    return name if linked >= HOSTS_LINKED_MIN else None


def figures_of(page: Page, url: str) -> int:
    """Returns a number for the significant figures of a page, or 0."""
    text = _without_own_dates(page.octets[:WORDING_BYTES_MAX], url, page.title)
    return _of_figures(_figures(text, url))


def signature_of(page: Page, url: str) -> TextSignature:
    """The content of a page, without the words of its own URL."""
    text = _without_own_dates(page.octets[:KIN_BYTES_MAX], url, page.title)
    words = {*text.translate(_LETTERS).split()} - {*url.encode().translate(_LETTERS).split()}
    hashes = np.fromiter(map(crc32, words), np.uint32, len(words))
    return TextSignature(np.unique(hashes), _of_figures(_figures(text, url)))


def _of_figures(figures: Iterable[bytes]) -> int:
    told = sorted(figures)
    return _number(b" ".join(told)) | 1 if told else 0


def _without_own_dates(text: bytes, url: str, title: str) -> bytes:
    """A text without the dates of the page itself, as URL and title name them."""
    own = _own_numbers(url)
    if _YEAR(title) is not None:
        for found in TITLE_DATE.finditer(title):
            own |= {int(number) for number in _NUMBERS(found[0].encode())}
    if not any(number < 10_000 and b"%04d" % number in text for number in own):
        return text  # each date has a year, and dates are slow to look for
    return _DATE.sub(lambda found: b"" if {*map(int, _NUMBERS(found[0]))} <= own else found[0], text)


def _own_numbers(url: str) -> set[int]:
    return {int(number) for number in _NUMBERS(url[url.index("/", 8) :].encode()) if len(number) < 20}


def _figures(text: bytes, url: str) -> list[bytes]:
    """The figures of a text that say something of their own."""
    if not _HAS_DIGIT(text):
        return []
    without, clocks = _CLOCK.subn(b"", text)
    text = (without if clocks <= _CLOCKS_MAX else text).lower()
    for word, made in _MADE.items():
        if word in text:
            text = made.sub(b"", text)
    if any(word in text for word in _SEEN):
        text = _VIEWS.sub(b"", text)
    own = _own_numbers(url)
    found = [one for one in _FIGURES(text) if not one.isdigit() or int(one[:20]) not in own]
    return _without_days(found)


def _without_days(figures: list[bytes]) -> list[bytes]:
    """Figures without the days of a month in their order, and the weeks and days of other months between them. A table
    with a value for each day has more of these."""
    if len(figures) < _DAYS_MIN - 1:
        return figures
    day, others = 1, []
    for one in figures:
        # A day that the URL names is missing.
        if len(one) <= 2 and one.isdigit() and day <= int(one) <= min(day + 1, _DAYS_MAX):
            day = int(one) + 1
        else:
            others.append(one)
    if day <= _DAYS_MIN:
        return figures
    beside = [one for one in others if len(one) <= 2 and one.isdigit() and int(one) <= _WEEKS_MAX]
    return [one for one in others if one not in beside] if len(beside) <= _EDGES_MAX else others


def _kind(url: str) -> tuple[str, str]:
    """Host and shape of the path of a canonical URL."""
    host, slash, rest = url.partition("://")[2].partition("/")
    return host, shape_of(slash + rest.partition("?")[0].partition(";")[0])


def _number(octets: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(octets, digest_size=8).digest(), "little")
