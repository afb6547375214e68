"""Dictionaries of structured fields (RFC 9651), as `Accept-Signature` and `Content-Usage` have them: members with inner
lists and parameters. Reading takes linear time.

A dictionary that does not parse states nothing. Values are Python values; a Token is a `Token`, a Date is a `Date`, a
Display String is a `DisplayString`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import unquote

from outrider.errors import SettingsError

_KEY: Final = re.compile(r"[a-z*][a-z0-9_.*-]*")
_STRING: Final = re.compile(r'"((?:[\x20-\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')
_TOKEN: Final = re.compile(r"[A-Za-z*][A-Za-z0-9!#$%&'*+.^_`|~:/-]*")
_NUMBER: Final = re.compile(r"-?[0-9]{1,15}(?:(?<![0-9]{13})\.[0-9]{1,3})?")
_BYTES: Final = re.compile(r":([A-Za-z0-9+/=]*):")
_DATE: Final = re.compile(r"@(-?[0-9]{1,15})(?![0-9.])")
_DISPLAY: Final = re.compile(r'%"((?:[\x20-\x21\x23-\x24\x26-\x7e]|%[0-9a-f]{2})*)"')
_SPACES: Final = re.compile(r" *")
_BLANKS: Final = re.compile(r"[ \t]*")


class Token(str):
    """A token: a word without quotation marks."""

    __slots__ = ()


class Date(int):
    """A date: seconds since 1970."""

    __slots__ = ()


class DisplayString(str):
    """A text for people, which may have any character."""

    __slots__ = ()


BareItem = str | bytes | bool | int | float
"""A value without parameters."""


class Member(NamedTuple):
    """A value with its parameters. An inner list is a tuple of members."""

    value: BareItem | tuple[Member, ...]
    parameters: Mapping[str, BareItem]


def read_dictionary(text: str) -> dict[str, Member]:
    """Returns the members of a dictionary, the last of equal keys. Raises SettingsError with the place of a fault."""
    return _DictionaryReader(text).dictionary()


class _DictionaryReader:
    """A reader at a place of a text."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def dictionary(self) -> dict[str, Member]:
        self._match(_SPACES)
        found: dict[str, Member] = {}
        while self._at < len(self._text):
            key = self._need(_KEY, "a key")
            found.pop(key, None)
            if self._skips("="):
                found[key] = self._member()
            else:
                found[key] = Member(True, self._parameters())
            self._match(_BLANKS)
            if self._at == len(self._text):
                return found
            if not self._skips(","):
                raise self._fault("a comma")
            self._match(_BLANKS)
            if self._at == len(self._text):
                raise self._fault("a member after the comma")
        return found

    def _member(self) -> Member:
        if not self._skips("("):
            return Member(self._bare(), self._parameters())
        items: list[Member] = []
        while True:
            self._match(_SPACES)
            if self._skips(")"):
                return Member(tuple(items), self._parameters())
            items.append(Member(self._bare(), self._parameters()))
            if self._text[self._at : self._at + 1] not in (" ", ")"):
                raise self._fault("a space or )")

    def _parameters(self) -> dict[str, BareItem]:
        found: dict[str, BareItem] = {}
        while self._skips(";"):
            self._match(_SPACES)
            key = self._need(_KEY, "a key")
            found[key] = self._bare() if self._skips("=") else True
        return found

    def _bare(self) -> BareItem:
        first = self._text[self._at : self._at + 1]
        if first == '"':
            return re.sub(r"\\(.)", r"\1", self._need(_STRING, "a string")[1:-1])
        if first == ":":
            return self._bytes()
        if first == "@":
            return Date(self._need(_DATE, "a date")[1:])
        if first == "%":
            return self._display()
        if first == "?":
            word = self._text[self._at : self._at + 2]
            if word not in ("?0", "?1"):
                raise self._fault("?0 or ?1")
            self._at += 2
            return word == "?1"
        if first.isdigit() or first == "-":
            number = self._need(_NUMBER, "a number")
            return float(number) if "." in number else int(number)
        return Token(self._need(_TOKEN, "a value"))

    def _bytes(self) -> bytes:
        text = self._need(_BYTES, "bytes in base64")[1:-1]
        try:
            return base64.b64decode(text, validate=True)
        except ValueError:
            raise self._fault("bytes in base64") from None

    def _display(self) -> DisplayString:
        try:
            return DisplayString(unquote(self._need(_DISPLAY, "a display string")[2:-1], errors="strict"))
        except UnicodeDecodeError:
            raise self._fault("a display string in UTF-8") from None

    def _match(self, pattern: re.Pattern[str]) -> str | None:
        found = pattern.match(self._text, self._at)
        if found is None:
            return None
        self._at = found.end()
        return found[0]

    def _need(self, pattern: re.Pattern[str], wanted: str) -> str:
        found = self._match(pattern)
        if not found:
            raise self._fault(wanted)
        return found

    def _skips(self, character: str) -> bool:
        if not self._text.startswith(character, self._at):
            return False
        self._at += 1
        return True

    def _fault(self, wanted: str) -> SettingsError:
        return SettingsError(f"character {self._at + 1} is not {wanted}")
