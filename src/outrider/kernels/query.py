"""The query of an address in the encoding of its page; the plain twin.

WHATWG HTML "encoding-parse a URL": the query of a link is in the encoding of its document, its path in UTF-8. A
character that the encoding lacks becomes a character reference, percent-encoded (URL Standard, "percent-encode after
encoding"). Pages in UTF-16 and in the replacement encoding count as UTF-8.

The decoders of the Encoding Standard are those of turbohtml; its encoders are computed from these decoders.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import product
from typing import Final

import turbohtml.detect  # noqa: F401 - registers the codecs named whatwg-*

_UTF: Final = frozenset({"utf-8", "utf-16le", "utf-16be", "replacement"})
_LINES: Final = re.compile("[\t\n\r]")
_KEPT: Final = frozenset(range(0x21, 0x7F)) - frozenset(b"\"#<>'")
"""The octets that remain unescaped: not in the special-query percent-encode set."""
_BIG5_LAST: Final = "\u2550\u255e\u2561\u256a\u5341\u5345"
"""These have two places in Big5: the last one counts."""
_MINUS: Final = "\u2212"
# GB18030 wrote this for these before the edition of 2022, and still writes (WHATWG Encoding 10.2.2).
_GB18030_OLD: Final = {
    **{chr(0xE78D + row): bytes((0xA6, octet)) for row, octet in enumerate((*range(0xD9, 0xE0), 0xEC, 0xED, 0xF3))},
    **{
        chr(0xE800 + row): bytes((0xFE, octet))
        for row, octet in {
            0x1E: 0x59,
            0x26: 0x61,
            0x2B: 0x66,
            0x2C: 0x67,
            0x32: 0x6D,
            0x43: 0x7E,
            0x54: 0x90,
            0x64: 0xA0,
        }.items()
    },
}
_KANJI, _ROMAN, _ASCII = b"\x1b$B", b"\x1b(J", b"\x1b(B"
_HALF_KATAKANA: Final = range(0xFF61, 0xFFA0)
# The index "ISO-2022-JP katakana": the characters for U+FF61 to U+FF9F.
_KATAKANA: Final = (
    "\u3002\u300c\u300d\u3001\u30fb\u30f2\u30a1\u30a3\u30a5\u30a7\u30a9\u30e3\u30e5\u30e7\u30c3\u30fc\u30a2\u30a4\u30a6"
    "\u30a8\u30aa\u30ab\u30ad\u30af\u30b1\u30b3\u30b5\u30b7\u30b9\u30bb\u30bd\u30bf\u30c1\u30c4\u30c6\u30c8\u30ca\u30cb"
    "\u30cc\u30cd\u30ce\u30cf\u30d2\u30d5\u30d8\u30db\u30de\u30df\u30e0\u30e1\u30e2\u30e4\u30e6\u30e8\u30e9\u30ea\u30eb"
    "\u30ec\u30ed\u30ef\u30f3\u309b\u309c"
)


def with_encoded_query(address: str, encoding: str) -> str:
    """Returns an address with its query in the octets of a page's `encoding`, a lower-case name of the standard."""
    if encoding in _UTF or address.isascii():
        return address
    place, mark, fragment = address.partition("#")
    path, question, query = place.partition("?")
    if query.isascii():
        return address
    pieces = (_triplets(piece) for piece in _encoded(_LINES.sub("", query), encoding))
    return f"{path}{question}{''.join(pieces)}{mark}{fragment}"


def _triplets(piece: bytes | int) -> str:
    """The octets of a query, or the reference of a character that an encoding lacks."""
    if isinstance(piece, int):
        return f"%26%23{piece}%3B"
    return "".join(chr(octet) if octet in _KEPT else f"%{octet:02X}" for octet in piece)


def _encoded(text: str, encoding: str) -> Iterator[bytes | int]:
    if encoding == "iso-2022-jp":
        yield from _iso_2022_jp(text)
        return
    known = _table(encoding)
    for character in text:
        code = ord(character)
        if code < 0x80:
            yield bytes((code,))
        elif character in known:
            yield known[character]
        elif code >= 0x10000 and encoding == "gb18030":
            yield character.encode("gb18030")
        else:
            yield code


def _iso_2022_jp(text: str) -> Iterator[bytes | int]:
    """WHATWG Encoding 12.2.2, which names the state before what is written in it."""
    known = _table("euc-jp")
    state = _ASCII
    for character in text:
        code = ord(character)
        wanted, octets = state, b""
        if code in (0x0E, 0x0F, 0x1B):
            wanted, code = (_ASCII if state == _KANJI else state), 0xFFFD
        elif character in "\xa5\u203e":
            wanted, octets = _ROMAN, b"\x5c" if character == "\xa5" else b"\x7e"
        elif code < 0x80:
            wanted = state if state == _ROMAN and character not in "\\~" else _ASCII
            octets = bytes((code,))
        else:
            full = _KATAKANA[code - 0xFF61] if code in _HALF_KATAKANA else character
            found = known.get(full, b"")
            octets = bytes(octet & 0x7F for octet in found) if len(found) == 2 and found[0] != 0x8E else b""
            wanted = _KANJI if octets else _ASCII if state == _KANJI else state
        if wanted != state:
            yield wanted
            state = wanted
        yield octets if octets else code
    if state != _ASCII:
        yield _ASCII


@lru_cache(maxsize=64)
def _table(encoding: str) -> dict[str, bytes]:
    """The octets of each character beyond ASCII that an encoding has."""
    table: dict[str, bytes] = {}
    for octets in _octets_of(encoding):
        character = codecs.decode(octets, f"whatwg-{encoding}", "replace")
        if len(character) == 1 and character != "\ufffd" and character > "\x7f":
            table.setdefault(character, octets)
            if encoding == "big5" and character in _BIG5_LAST:
                table[character] = octets
    if encoding in ("shift_jis", "euc-jp"):
        # Yen and overline have the places of backslash and tilde, and one minus replaces the other.
        table |= {"\xa5": b"\x5c", "\u203e": b"\x7e", _MINUS: table["\uff0d"]}
    if encoding == "shift_jis":
        table["\x80"] = b"\x80"
    if encoding in ("gbk", "gb18030"):
        table.pop("\ue5e5", None)
        table |= _GB18030_OLD
    if encoding == "gb18030":
        table["\ufffd"] = b"\x84\x31\xa4\x37"
    if encoding == "gbk":
        table["\u20ac"] = b"\x80"
    return table


def _octets_of(encoding: str) -> Iterable[bytes]:
    """The octets that a table is made of, those first that count where a character has several."""
    if encoding == "euc-kr":
        return _pairs((0x81, 0xFE), (0x41, 0xFE))
    if encoding == "big5":
        return _pairs((0xA1, 0xFE), (0x40, 0x7E), (0xA1, 0xFE))
    if encoding == "euc-jp":
        return [*_pairs((0xA1, 0xFE), (0xA1, 0xFE)), *(bytes((0x8E, octet)) for octet in range(0xA1, 0xE0))]
    if encoding == "shift_jis":
        # Without what NEC selected of the extensions of IBM (pointers 8272 to 8835) and without private characters.
        kanji = _pairs((0x81, 0xFC), (0x40, 0x7E), (0x80, 0xFC))
        return [*_singles(), *(pair for pair in kanji if not 0xED <= pair[0] <= 0xEE and not 0xF0 <= pair[0] <= 0xF9)]
    if encoding == "gbk":
        return _pairs((0x81, 0xFE), (0x40, 0x7E), (0x80, 0xFE))
    if encoding == "gb18030":
        quads = product(range(0x81, 0x85), range(0x30, 0x3A), range(0x81, 0xFF), range(0x30, 0x3A))
        return [*_pairs((0x81, 0xFE), (0x40, 0x7E), (0x80, 0xFE)), *map(bytes, quads)]
    return _singles()


def _singles() -> list[bytes]:
    return [bytes((octet,)) for octet in range(0x80, 0x100)]


def _pairs(leads: tuple[int, int], *trails: tuple[int, int]) -> list[bytes]:
    ends = [trail for first, last in trails for trail in range(first, last + 1)]
    return [bytes(pair) for pair in product(range(leads[0], leads[1] + 1), ends)]
