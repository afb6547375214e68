"""Links between partitions: records of the topic `urls`, one partition of the topic for each partition of the cluster.

A record is JSON: `{"from": p, "links": [[…], …]}` with parcels of a node (`Frontier.outbox`), or `{"url": …}` from any
program, with the fields of a link: `depth`, `priority`, `crawl`, `key`, `referrer`, `metadata`. One record of a
partition for another is on its way at a time, because a receiver recognises repetitions by their sequence alone.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, cast

import msgspec

from outrider.cluster.description import ClusterManifest
from outrider.cluster.kafka import Brokers
from outrider.errors import SettingsError
from outrider.journey import Code, Link
from outrider.limits import CHANGELOG_RECORD_BYTES_MAX, DEPTH_MAX, SLOTS
from outrider.url import UrlBatch

Parcel = tuple[object, ...]
_BYTES_AT = (11, 14)
"""The places of bytes in a parcel: metadata and unique key."""
_BY_NODE: Final = b'{"from":'
"""The begin of the records that nodes write."""


class OfPartition(msgspec.Struct, frozen=True, rename={"source": "from"}, forbid_unknown_fields=True):
    """Parcels of a partition."""

    source: int
    links: list[list[Any]]


class OfProgram(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A link of any program."""

    url: str
    depth: Annotated[int, msgspec.Meta(ge=0, le=DEPTH_MAX)] = 0
    priority: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    crawl: str = "default"
    key: str | None = None
    referrer: str | None = None
    metadata: dict[str, Any] | None = None

    def link(self) -> Link:
        """Returns it as a link."""
        more: dict[str, Any] = {
            name: getattr(self, name)
            for name in ("priority", "key", "referrer", "metadata")
            if getattr(self, name) is not None
        }
        return Link(self.url, depth=self.depth, crawl=self.crawl, **more)


_PARCELS: Final = msgspec.json.Decoder(OfPartition)
_LINKS: Final = msgspec.json.Decoder(OfProgram)


@dataclass(frozen=True, slots=True)
class Refused:
    """A record that is not a link, with the reason."""

    octets: bytes
    reason: str


def packed_parcels(source: int, parcels: Sequence[Parcel]) -> tuple[bytes, int]:
    """Returns a record with the first of these parcels, and how many it has."""
    rows: list[list[Any]] = []
    size = 64
    for parcel in parcels:
        row = list(parcel)
        for place in _BYTES_AT:
            row[place] = base64.b64encode(cast("bytes", row[place] or b"")).decode()
        size += len(msgspec.json.encode(row)) + 1
        if rows and size > CHANGELOG_RECORD_BYTES_MAX:
            break
        rows.append(row)
    return msgspec.json.encode(OfPartition(source, rows)), len(rows)


def packed_links(links: Iterable[Link]) -> Iterator[bytes]:
    """Yields a record for each link."""
    for link in links:
        yield msgspec.json.encode(
            OfProgram(
                link.url,
                link.depth,
                link.priority,
                link.crawl or "default",
                link.key,
                link.referrer,
                dict(link.metadata) if link.metadata else None,
            )
        )


def send_links(brokers: Brokers, manifest: ClusterManifest, links: Sequence[Link]) -> list[Code]:
    """Sends links to the partitions that own them, and waits until they are durable there. Raises UnreachableError."""
    numbers = manifest.partitions_of(UrlBatch.of([link.url for link in links])).tolist()
    topic = brokers.file.topic("urls")
    sent = [
        brokers.send(topic, number, record)
        for number, record in zip(numbers, packed_links(links), strict=True)
        if number >= 0
    ]
    for one in sent:
        one.offset()
    return [Code.INVALID if number < 0 else Code.HELD for number in numbers]


def unpacked(octets: bytes) -> list[Parcel] | Link | Refused:
    """Returns the content of a record."""
    try:
        if octets.startswith(_BY_NODE):
            return [_parcel(row) for row in _PARCELS.decode(octets).links]
        return _LINKS.decode(octets).link()
    except (msgspec.DecodeError, SettingsError, UnicodeDecodeError, ValueError, TypeError, RecursionError) as error:
        return Refused(octets, str(error)[:300])


def _parcel(row: list[Any]) -> Parcel:
    if len(row) <= _BYTES_AT[-1]:
        raise ValueError("a parcel has 15 fields")
    for place in _BYTES_AT:
        row[place] = base64.b64decode(row[place], validate=True)
    if not 0 <= int(row[2]) < SLOTS:
        raise ValueError("target: no slot has this number")
    return tuple(row)
