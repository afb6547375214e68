"""Orders about single URLs of a cluster: which rows each partition carries out, and its answers as one answer.

An order is one record of the topic `words` for all partitions that it concerns, with the rows of each. An order with
too many rows for a record is cut into several.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from outrider.cluster.description import ClusterManifest
from outrider.cluster.words import ROWS, rows_field
from outrider.errors import SettingsError
from outrider.frontier.verbs.arrivals import pieces_of
from outrider.limits import CHANGELOG_RECORD_BYTES_MAX, CLUSTER_ORDER_BYTES
from outrider.url import UrlBatch


@dataclass(frozen=True, slots=True)
class UrlOrder:
    """A part of an order, with the numbers of its rows for each partition."""

    question: dict[str, Any]
    rows: dict[int, list[int]]

    def joined(self, answers: Mapping[int, Mapping[str, Any]]) -> Any:
        """Returns the answers of all partitions in the order of the rows, or their sum."""
        found = {number: one["answer"] for number, one in answers.items()}
        if not all(isinstance(one, list) for one in found.values()):
            return sum(found.values())
        joined = [None] * sum(map(len, self.rows.values()))
        for number, rows in self.rows.items():
            for row, answer in zip(rows, found[number], strict=True):
                joined[row] = answer
        return joined


def orders_of(name: str, question: Mapping[str, Any], manifest: ClusterManifest) -> Iterator[UrlOrder]:
    """Yields the parts of an order. Raises SettingsError for URLs that it cannot name in a cluster."""
    field = rows_field(name)
    given = question[field]
    every = [*given.items()] if isinstance(given, Mapping) else list(given)
    for rows in _parts(name, every):
        urls = [_url_of(name, row) for row in rows]
        of_partition: dict[int, list[int]] = {}
        for row, number in enumerate(manifest.partitions_of(UrlBatch.of(urls)).tolist()):
            # A text that is not a URL goes to partition 0. It does not know this text, or refuses it with the reason.
            of_partition.setdefault(max(number, 0), []).append(row)
        some = dict(rows) if isinstance(given, Mapping) else rows
        asked = {**question, field: some, ROWS: {str(number): places for number, places in of_partition.items()}}
        yield UrlOrder(asked, of_partition)


def _parts(name: str, rows: Sequence[Any]) -> Iterator[list[Any]]:
    sizes = np.array([len(msgspec.json.encode(row)) + 8 for row in rows], np.int64)  # each with its number
    largest = int(sizes.max(initial=0))
    if largest > CHANGELOG_RECORD_BYTES_MAX - CLUSTER_ORDER_BYTES:
        raise SettingsError(f"{name}: a row of {largest:,} bytes is too large for a record of Kafka")
    for first, end in pieces_of(sizes, CLUSTER_ORDER_BYTES):
        if first < end:
            yield [*rows[first:end]]


def _url_of(name: str, row: Any) -> str:
    """Returns the URL of a row: its text, a pair of text and priority, or a record."""
    if isinstance(row, tuple):
        row = row[0]
    unique = isinstance(row, Mapping) and (name not in ("put", "restore") or row.get("unique") is not None)
    if unique or isinstance(row, bytes):
        raise SettingsError(
            f"{name}: a cluster has no crawls by unique keys; name each URL by its text, or use a store of its own"
        )
    return str(row.get("url", "")) if isinstance(row, Mapping) else str(row)
