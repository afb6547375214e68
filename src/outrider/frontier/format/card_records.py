"""Records: single URLs unpacked from their cards, for rare cases, and packed into cards again."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from outrider.clock import Instant
from outrider.frontier.format.card_columns import Cards
from outrider.frontier.format.metadata import unpacked
from outrider.journey import RECORD_FIELDS, Form, OutcomeField
from outrider.kernels.card_layout import HAS_CONTENT, HEAD, SCHEDULE_SHIFT
from outrider.limits import INSTANT_MAX

_NUMBERS: Final = frozenset({Form.COUNT, Form.INSTANT})
_TYPES: Final[Mapping[Form, type]] = {
    Form.TEXT: str, Form.OCTETS: bytes, Form.METADATA: bytes, Form.COUNT: bytes, Form.INSTANT: bytes,
    Form.REAL: bytes,
}  # fmt: skip
"""The type that a card has for the values of a form. Metadata is JSON, a whole number is its bytes, the lowest first,
and a real number a float of 4 bytes."""
KEPT_FIELDS: Final[Mapping[str, OutcomeField]] = {**RECORD_FIELDS, "text": OutcomeField(Form.TEXT, kept="w")}
"""The fields of a record, and the text of a URL of a crawl by unique keys if it differs from the URL of the card."""
EMPTY: Final[Mapping[str, Any]] = {name: _TYPES[field.form]() for name, field in KEPT_FIELDS.items()}
"""The empty value of each field of a record."""
CARD_FIELDS: Final = " ".join(f"{KEPT_FIELDS[name].kept}:{type(none).__name__}" for name, none in EMPTY.items())
"""The fields of a record in the form for `kernels.with_extras`."""
_KeptFields: Any = msgspec.defstruct(
    "_Kept",
    [(name, type(none), msgspec.field(name=KEPT_FIELDS[name].kept, default=none)) for name, none in EMPTY.items()],
    frozen=True,
    omit_defaults=True,
    gc=False,
)


class KeptFields(_KeptFields):  # type: ignore[misc]
    """The values of the fields of a record (`KEPT_FIELDS`); an absent field has an empty value."""


_decode = msgspec.msgpack.Decoder(KeptFields).decode
_encode = msgspec.msgpack.Encoder().encode
NOTHING_KEPT: Final = KeptFields()
_LONG_MAP: Final = b"\xde\x00"
_LONG_MAP_MIN: Final = 16
"""How many values a map of MessagePack has whose length needs two octets."""


class CardRecord:
    """The stored state of one URL. due: an instant; content: a hash of the page's content, or 0."""

    __slots__ = (
        *("fingerprint", "queue", "order", "due", "priority", "crawl", "slot", "depth", "attempts", "status"),
        *("state", "reason", "klass", "hops", "losses", "error", "fetched", "schedule"),
        *("url", "referrer", "kept", "content"),
    )

    fingerprint: int
    queue: int  # its hash
    order: int
    due: Instant
    priority: float
    crawl: int
    slot: int
    depth: int
    attempts: int
    status: int
    state: int
    reason: int
    klass: int
    hops: int
    losses: int
    error: int  # the number of its class
    fetched: int  # as in the head of its card
    schedule: int  # the code of the usual pause between visits, or 0
    url: str
    referrer: str
    kept: KeptFields
    content: int

    @classmethod
    def of(cls, cards: Cards, row: int) -> CardRecord:
        """The record of the card in a row."""
        record = cls()
        head = cards.heads[row].item()  # in the order of HEAD, as `packed` writes them
        record.fingerprint, record.queue, record.order, record.due, record.priority, record.crawl = head[:6]
        record.slot, record.depth, record.attempts, record.status = head[7:11]
        record.state, record.reason, record.klass, record.hops, record.losses, flags = head[13:19]
        record.error, record.fetched = head[19:]
        record.schedule = flags >> SCHEDULE_SHIFT
        record.url = cards.url(row)
        record.referrer = cards.referrer(row)
        record.kept, record.content = parts_of(cards.extra_of(row), flags)
        return record

    @property
    def text(self) -> str:
        """The URL as its caller knows it: in a crawl by unique keys byte for byte."""
        return self.kept.text or self.url

    def extra(self) -> bytes:
        """The last part of the card's body, after url and referrer."""
        return extra_of(self.kept, self.content)

    def __repr__(self) -> str:
        return f"<Record {self.text} state {self.state}>"


def text_of(cards: Cards, row: int) -> str:
    """Returns the URL of the card in a row as its caller knows it."""
    kept, _ = parts_of(cards.extra_of(row), int(cards.heads["flags"][row]))
    return kept.text or cards.url(row)


def value_of(kept: KeptFields, name: str) -> Any:
    """Returns the value of a field as leases have it, or None."""
    value, form = getattr(kept, name), KEPT_FIELDS[name].form
    if form is Form.METADATA:
        return unpacked(value)
    if form is Form.REAL:
        return real_of(value) if value else None
    return int.from_bytes(value, "little") if value and form in _NUMBERS else value or None


def number_bytes(number: int) -> bytes:
    """Returns a number as cards have it; nothing for 0."""
    return number.to_bytes((number.bit_length() + 7) // 8, "little")


def real_bytes(number: float) -> bytes:
    """Returns a real number as cards have it, a float of 4 bytes; nothing for 0."""
    return struct.pack("<f", number) if number else b""


def real_of(octets: bytes) -> float:
    """Returns the number that `real_bytes` packed."""
    return float(struct.unpack("<f", octets)[0]) if len(octets) == 4 else 0.0


def signal_bytes(modified: Instant, count: int) -> bytes:
    """Returns the latest date of a change and the number of signals as cards have them; nothing for neither."""
    return modified.to_bytes(8, "little") + count.to_bytes(2, "little") if modified or count else b""


def signals_of(kept: KeptFields) -> tuple[Instant, int]:
    """Returns the latest date of a change, 0 for none, and the number of signals since the last visit."""
    return min(int.from_bytes(kept.signals[:8], "little"), INSTANT_MAX), int.from_bytes(kept.signals[8:], "little")


def visits_of(kept: KeptFields, fetched: int) -> int:
    """Returns the number of answered fetches. fetched: the cell of the card's head. The first fetch needs no byte."""
    return int.from_bytes(kept.visits, "little") or int(fetched > 0)


def extra_of(kept: KeptFields, content: int = 0) -> bytes:
    """Packs the last part of a body; it is empty without values. content: a hash, or 0."""
    packed_values: bytes = b"" if kept == NOTHING_KEPT else _encode(kept)
    if packed_values[:2] == _LONG_MAP and packed_values[2] < _LONG_MAP_MIN:
        # As the kernel writes it: one octet. For a struct of 16 fields or more, msgspec always writes three.
        packed_values = bytes((0x80 | packed_values[2],)) + packed_values[3:]
    return content.to_bytes(8, "little") + packed_values if content else packed_values


def parts_of(extra: bytes, flags: int) -> tuple[KeptFields, int]:
    """Unpacks the values and the hash of the content that `extra_of` packed. flags: of the card's head."""
    if not extra:
        return NOTHING_KEPT, 0
    content = 0
    if flags & HAS_CONTENT:
        content, extra = int.from_bytes(extra[:8], "little"), extra[8:]
    return _decode(extra) if extra else NOTHING_KEPT, content


def packed(records: Sequence[CardRecord]) -> Cards:
    """Cards of these records, in this order."""
    heads = np.zeros(len(records), HEAD)
    offsets = np.zeros(len(records) + 1, np.int64)
    bodies: list[bytes] = []
    size = 0
    for row, one in enumerate(records):
        url = one.url.encode("ascii")
        referrer = one.referrer.encode("utf-8", "surrogatepass")
        extra = one.extra()
        heads[row] = (
            *(one.fingerprint, one.queue, one.order, one.due, one.priority, one.crawl, len(extra)),
            *(one.slot, one.depth, one.attempts, one.status, len(url), len(referrer)),
            *(
                one.state,
                one.reason,
                one.klass,
                one.hops,
                one.losses,
                (HAS_CONTENT if one.content else 0) | one.schedule << SCHEDULE_SHIFT,
                one.error,
                one.fetched,
            ),
        )
        bodies += (url, referrer, extra)
        size += len(url) + len(referrer) + len(extra)
        offsets[row + 1] = size
    return Cards(heads, b"".join(bodies), offsets)
