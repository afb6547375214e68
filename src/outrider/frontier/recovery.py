"""From a checkpoint and the tail of the log to tables: facts are applied again, no policy is asked."""

from __future__ import annotations

from collections.abc import Iterator

from outrider.errors import DamagedStoreError, ForeignStoreError
from outrider.frontier.facts import FRAME_KIND, STREAMS, Fact, decode, instant_of
from outrider.frontier.lines import completed
from outrider.frontier.tables import Tables
from outrider.storage.checkpoint import Checkpoint
from outrider.storage.log import Frame, Log


def load(tables: Tables, checkpoint: Checkpoint | None, log: Log) -> None:
    """Fill empty tables. Raises DamagedStoreError or ForeignStoreError, naming the place.

    A checkpoint is fuzzy: its ranges were copied at different LSNs. Facts say absolute values, so replaying all of
    them from the checkpoint's start on, older ones included, ends in the state of the last one.
    """
    if checkpoint is not None:
        for _, _, _, _, payload in checkpoint.ranges():
            _apply(tables, payload)
    for frame in log.replay(checkpoint.start_lsn if checkpoint is not None else 0):
        _check(frame)
        _apply(tables, frame.payload)
    tables.contents.clear()
    for url in tables.urls():
        if url.digest:
            tables.contents[url.digest] = tables.contents.get(url.digest, 0) + 1


def _check(frame: Frame) -> None:
    if frame.kind != FRAME_KIND or frame.codec != 0:
        raise ForeignStoreError(
            f"LSN {frame.lsn} has frame kind {frame.kind}, codec {frame.codec}: made by a newer release, "
            "open it with that one"
        )


def _apply(tables: Tables, payload: bytes) -> None:
    tables.now = max(tables.now, instant_of(payload))
    try:
        for kind, rows in decode(payload):
            tables.apply(kind, rows)
    except AssertionError as error:
        raise DamagedStoreError(f"facts are missing before row {error}") from error
    tables.changed.clear()
    tables.placed.clear()


def lines(log: Log, stream: str, after: int) -> Iterator[tuple[int, bytes]]:
    """The output lines of a stream that were logged after an LSN, as (LSN, line)."""
    number = STREAMS.index(stream)
    for frame in log.replay(after):
        _check(frame)
        for kind, rows in decode(frame.payload):
            if kind == Fact.LINE:
                for _, _, _, place, new_links, text in rows:
                    if place == number:
                        yield frame.lsn, completed(text, new_links)
