"""Reads a .proto file, and reads and writes its messages as dicts: for calls whose cost does not matter.

The file is the only declaration of messages and calls. It may have messages with nested enums, `oneof`, maps, and
fields of texts, octets, messages, enums, `bool` and unsigned integers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Final

from outrider.errors import SettingsError

_NUMBERS: Final = {"bool": 1, "uint32": 0xFFFF_FFFF, "uint64": (1 << 64) - 1}
_TOKEN = re.compile(r"\s*(?://[^\n]*|([A-Za-z_][\w.]*|\d+|\"[^\"]*\"|[{}()<>=;,]))")
_DEPTH_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a message. kind: of its values, or of the values of a map."""

    name: str
    number: int
    kind: str
    many: bool = False
    keyed: bool = False
    always: bool = False  # in a oneof or optional: sent also with its default


@dataclass(slots=True)
class Message:
    """The fields of a message, by number. choices: the names of the fields of each oneof; enums: those inside it."""

    fields: dict[int, Field] = field(default_factory=dict)
    choices: dict[str, frozenset[str]] = field(default_factory=dict)
    enums: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Call:
    """One call: its path, and the types of its messages."""

    name: str
    path: str
    takes: str
    takes_stream: bool
    gives: str
    gives_stream: bool


class MalformedMessageError(SettingsError):
    """Octets that are not a message of their type."""


class Protocol:
    """The messages, enums and calls of one .proto file."""

    def __init__(self, text: str) -> None:
        self.messages: dict[str, Message] = {}
        self.enums: dict[str, dict[str, int]] = {}
        self.calls: dict[str, Call] = {}
        self._tokens = [found for found in (met[1] for met in _TOKEN.finditer(text)) if found]
        self._at = 0
        self.package = ""
        while self._at < len(self._tokens):
            self._declaration()

    @classmethod
    @cache
    def of(cls, name: str, package: str = "outrider.service") -> Protocol:
        """The protocol of a file of a package."""
        return cls(files(package).joinpath(f"{name}.proto").read_text("utf-8"))

    # -- the file -----------------------------------------------------------------------------------------------------

    def _next(self, wanted: str | None = None) -> str:
        token = self._tokens[self._at]
        self._at += 1
        if wanted is not None and token != wanted:
            raise ValueError(f"{wanted!r} expected, not {token!r}")
        return token

    def _peek(self) -> str:
        return self._tokens[self._at]

    def _declaration(self) -> None:
        word = self._next()
        if word == "package":
            self.package = self._next()
            self._next(";")
        elif word == "message":
            self._message()
        elif word == "service":
            self._service(self._next())
        elif word in ("syntax", "option"):
            while self._next() != ";":
                pass
        else:
            raise ValueError(f"{word!r} cannot begin a declaration")

    def _service(self, service: str) -> None:
        self._next("{")
        while self._peek() != "}":
            self._next("rpc")
            name = self._next()
            sides = []
            for word in ("(", "returns"):
                self._next(word)
                if word == "returns":
                    self._next("(")
                streams = self._peek() == "stream"
                if streams:
                    self._next()
                sides.append((self._next(), streams))
                self._next(")")
            self._next(";")
            (takes, takes_stream), (gives, gives_stream) = sides
            path = f"/{self.package}.{service}/{name}"
            self.calls[name] = Call(name, path, takes, takes_stream, gives, gives_stream)
        self._next("}")

    def _message(self) -> None:
        name = self._next()
        message = self.messages[name] = Message()
        self._next("{")
        while self._peek() != "}":
            word = self._next()
            if word == "enum":
                message.enums.append(self._enum(name))
            elif word == "oneof":
                choice = self._next()
                self._next("{")
                names = set()
                while self._peek() != "}":
                    names.add(self._field(message, self._next(), always=True))
                self._next("}")
                message.choices[choice] = frozenset(names)
            elif word in ("repeated", "optional"):
                self._field(message, self._next(), many=word == "repeated", always=word == "optional")
            elif word == "map":
                self._next("<")
                self._next("string")
                self._next(",")
                kind = self._next()
                self._next(">")
                self._field(message, kind, keyed=True)
            else:
                self._field(message, word)
        self._next("}")

    def _field(self, message: Message, kind: str, **more: bool) -> str:
        name = self._next()
        self._next("=")
        number = int(self._next())
        self._next(";")
        message.fields[number] = Field(name, number, kind, **more)
        return name

    def _enum(self, outer: str) -> str:
        name = self._next()
        values: dict[str, int] = {}
        self._next("{")
        while self._peek() != "}":
            value = self._next()
            self._next("=")
            values[value] = int(self._next())
            self._next(";")
        self._next("}")
        self.enums[name] = self.enums[f"{outer}.{name}"] = values
        return name

    # -- octets to dicts ----------------------------------------------------------------------------------------------

    def read(self, name: str, octets: bytes) -> dict[str, Any]:
        """The fields of a message that were sent. Raises MalformedMessageError."""
        try:
            return self._read(name, memoryview(octets), 0)
        except (IndexError, ValueError) as error:
            raise MalformedMessageError(f"the octets are not a message {name} ({error})") from None

    def _read(self, name: str, octets: memoryview, depth: int) -> dict[str, Any]:
        if depth > _DEPTH_MAX:
            raise ValueError("nested too deep")
        message = self.messages[name]
        found: dict[str, Any] = {}
        at = 0
        while at < len(octets):
            tag, at = _varint(octets, at)
            number, form = tag >> 3, tag & 7
            if number == 0:
                raise ValueError("a field has the number 0")
            value: Any
            if form == 0:
                value, at = _varint(octets, at)
            elif form == 2:
                size, at = _varint(octets, at)
                value, at = octets[at : at + size], at + size
                if at > len(octets):
                    raise ValueError("a field is not complete")
            elif form in (1, 5):
                at += 8 if form == 1 else 4
                if at > len(octets):
                    raise ValueError("a field is not complete")
                continue
            else:
                raise ValueError(f"the type {form} of a field is unknown")
            one = message.fields.get(number)
            if one is not None:
                self._keep(found, message, one, value, depth)
        return found

    def _keep(self, found: dict[str, Any], message: Message, one: Field, value: Any, depth: int) -> None:
        for choice in message.choices.values():
            if one.name in choice:  # the last one counts
                for other in choice - {one.name}:
                    found.pop(other, None)
        if one.keyed:
            key, inner = "", b"" if one.kind not in _NUMBERS else 0
            at = 0
            while at < len(value):
                tag, at = _varint(value, at)
                if tag & 7 == 0:
                    inner, at = _varint(value, at)
                else:
                    size, at = _varint(value, at)
                    part, at = value[at : at + size], at + size
                    if tag >> 3 == 1:
                        key = str(part, "utf-8")
                    else:
                        inner = part
            found.setdefault(one.name, {})[key] = self._value(one.kind, inner, depth)
        elif not one.many:
            found[one.name] = self._value(one.kind, value, depth)
        elif isinstance(value, int) or not (one.kind in _NUMBERS or one.kind in self.enums):
            found.setdefault(one.name, []).append(self._value(one.kind, value, depth))
        else:
            at = 0
            while at < len(value):  # packed
                number, at = _varint(value, at)
                found.setdefault(one.name, []).append(self._value(one.kind, number, depth))

    def _value(self, kind: str, value: Any, depth: int) -> Any:
        if kind in _NUMBERS or kind in self.enums:
            if not isinstance(value, int):
                raise ValueError("octets in place of a number")
            return bool(value) if kind == "bool" else value & _NUMBERS.get(kind, 0xFFFF_FFFF)
        if isinstance(value, int):
            raise ValueError("a number in place of octets")
        if kind == "string":
            return str(value, "utf-8")
        if kind == "bytes":
            return bytes(value)
        return self._read(kind, memoryview(value), depth + 1)

    # -- dicts to octets ----------------------------------------------------------------------------------------------

    def write(self, name: str, values: Mapping[str, Any]) -> bytes:
        """The octets of a message. Raises KeyError for a field that it does not have."""
        out = bytearray()
        names = {one.name: one for one in self.messages[name].fields.values()}
        for key, value in values.items():
            one = names[key]
            if value is None:
                continue
            if one.keyed:
                for word, inner in value.items():
                    entry = _octets(1, word.encode()) + self._one(2, one.kind, inner, always=True)
                    out += _octets(one.number, entry)
            elif one.many:
                for inner in value:
                    out += self._one(one.number, one.kind, inner, always=True)
            else:
                out += self._one(one.number, one.kind, value, always=one.always)
        return bytes(out)

    def _one(self, number: int, kind: str, value: Any, *, always: bool) -> bytes:
        if kind in _NUMBERS or kind in self.enums:
            return _number(number << 3) + _number(int(value)) if value or always else b""
        if isinstance(value, str):
            value = value.encode()
        elif kind not in ("string", "bytes"):
            return _octets(number, self.write(kind, value))
        return _octets(number, value) if value or always else b""


def _varint(octets: memoryview | bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = octets[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
        if shift > 63:
            raise ValueError("a number has more than 64 bits")


def _number(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _octets(number: int, value: bytes) -> bytes:
    return _number(number << 3 | 2) + _number(len(value)) + value
