"""Records: single URLs unpacked from their cards, for rare cases, and packed into cards again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from outrider.clock import Instant
from outrider.frontier.format.cards import Cards
from outrider.kernels.cards import HAS_CONTENT, HEAD, SCHEDULE_SHIFT
from outrider.kernels.extras import Told, extra_of

_decode = msgspec.msgpack.Decoder(Told).decode


class Record:
    """Everything that is kept of one URL. due: an instant; content: a hash of the page's content, 0 for none; metadata:
    JSON."""

    __slots__ = (
        *("fingerprint", "queue", "order", "due", "priority", "crawl", "slot", "depth", "attempts", "status"),
        *("state", "reason", "klass", "hops", "losses", "error", "fetched", "schedule"),
        *("url", "referrer", "digest", "etag", "modified", "metadata", "content"),
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
    schedule: int  # the code of the usual pause between visits, 0 for none
    url: str
    referrer: str
    digest: bytes
    etag: str
    modified: str
    metadata: bytes
    content: int

    @classmethod
    def of(cls, cards: Cards, row: int) -> Record:
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
        parts = parts_of(cards.extra_of(row), flags)
        record.digest, record.etag, record.modified, record.metadata, record.content = parts
        return record

    def extra(self) -> bytes:
        """The last part of the card's body, behind url and referrer."""
        return extra_of(self.digest, self.etag, self.modified, self.metadata, self.content)

    def __repr__(self) -> str:
        return f"<Record {self.url} state {self.state}>"


class Parts(NamedTuple):
    """The values in the last part of a body; empty, or 0, where there is none."""

    digest: bytes = b""
    etag: str = ""
    modified: str = ""
    metadata: bytes = b""
    content: int = 0


def parts_of(extra: bytes, flags: int) -> Parts:
    """The values that `extra_of` packed. flags: of the card's head."""
    if not extra:
        return NO_PARTS
    content = 0
    if flags & HAS_CONTENT:
        content, extra = int.from_bytes(extra[:8], "little"), extra[8:]
    told = _decode(extra) if extra else Told()
    return Parts(told.digest, told.etag, told.modified, told.metadata, content)


NO_PARTS = Parts()


def packed(records: Sequence[Record]) -> Cards:
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
