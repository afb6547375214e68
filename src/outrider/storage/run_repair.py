"""Finds the whole blocks of the ledger's runs, and writes the runs anew without the damaged ones.

A damaged block loses all its records. A record of a newer run that consists of a head alone is lost too when its body
is lost. An older version of a lost record counts again where an older run contains one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from outrider.errors import DamagedStoreError
from outrider.kernels import crc32c
from outrider.storage import runs as layout
from outrider.storage.files import File, Files
from outrider.storage.losses import Loss, MendableFiles, corrected, read_as_can_be
from outrider.storage.record_columns import Keys, RecordColumns
from outrider.storage.runs import LEDGER, Run, RunWriter, family_of, run_number
from outrider.storage.sealed import unsealed_head


@dataclass(slots=True)
class RunFound:
    """The whole blocks of one run. places: where they begin, with their place in the order of blocks. age: as
    `RunWriter` has it, the number if the header is not whole."""

    name: str
    age: int = 0
    missing: bool = False
    damaged: bool = False
    places: list[tuple[int, int]] = field(default_factory=list)


class _Blocks(Run):
    """Reads single blocks of a run whose header, index and footer may be damaged."""

    def __init__(self, file: File, where: str, size: int) -> None:
        self._block_file = file
        self._where = where
        self.bytes = size

    def block(self, begin: int, place: int) -> tuple[RecordColumns, int]:
        """Returns the records of the block at this byte, and the byte after it. Raises DamagedStoreError."""
        head = read_as_can_be(self._block_file, begin, min(begin + layout._BLOCK_BYTES, self.bytes))
        if len(head) < layout._BLOCK_BYTES:
            raise self._damage(begin)
        _, rows, heads_bytes, bodies_bytes, _, _ = layout._BLOCK.unpack_from(head)
        end = begin + layout._BLOCK_BYTES + heads_bytes + bodies_bytes
        if end > self.bytes or not rows > 0:
            raise self._damage(begin)
        data = read_as_can_be(self._block_file, begin, end)
        records, bodies = self._heads(data, 0, begin, place)
        return self._with_bodies(records, data, bodies, begin), end

    def rows_at(self, begin: int, place: int) -> int | None:
        """How many records a block has whose heads are whole and whose bodies need not be; None where they are not."""
        head = read_as_can_be(self._block_file, begin, min(begin + layout._BLOCK_BYTES, self.bytes))
        if len(head) < layout._BLOCK_BYTES:
            return None
        end = begin + layout._BLOCK_BYTES + int(layout._BLOCK.unpack_from(head)[2])
        if end > self.bytes:
            return None
        try:
            return len(self._heads(read_as_can_be(self._block_file, begin, end), 0, begin, place)[0])
        except DamagedStoreError:
            return None


def survey_run(files: Files, store: bytes, name: str, losses: list[Loss]) -> RunFound:
    """Reads a run to its last byte; adds each loss to `losses`. Raises ForeignStoreError for a newer format."""
    found = RunFound(name, _number_of(name) or 0)
    try:
        file = files.open(name)
    except FileNotFoundError:
        losses.append(Loss(name, 0, 0, "the checkpoint lists this run, and it is not there"))
        found.missing = found.damaged = True
        return found
    try:
        _survey(file, files.describe(name), store, found, losses)
    finally:
        file.close()
    return found


def _survey(file: File, where: str, store: bytes, found: RunFound, losses: list[Loss]) -> None:
    size = file.size()
    if not _header_is_ours(file, where, size, store, found, losses):
        return
    at = max(size - layout._FOOTER_BYTES, 0)
    raw = read_as_can_be(file, at, size)
    footer = corrected(raw, layout._FOOTER)
    if footer is not None and footer[:4] != layout._FOOTER_MARK:
        footer = None
    if footer is None or footer != raw:
        found.damaged = True
        told = "the footer had one wrong byte" if footer is not None else "the footer is not whole"
        losses.append(Loss(found.name, at, size, told, pieces=0 if footer is not None else None))
    rows: int | None = None
    index: list[int] | None = None
    end = size
    if footer is not None:
        _, crc, end, count, rows, *_ = layout._FOOTER.unpack_from(footer)
        packed = read_as_can_be(file, end, at)
        if len(packed) == count * layout._INDEX.itemsize and crc32c(packed) == crc:
            index = np.frombuffer(packed, layout._INDEX)["offset"].astype(int).tolist()
        else:
            found.damaged = True
            losses.append(Loss(found.name, end, at, "the index fails its checksum; the blocks were counted", pieces=0))
    blocks = _Blocks(file, where, size)
    here: list[Loss] = []
    whole = _by_index(blocks, index, end, found, here) if index is not None else _by_walk(blocks, end, found, here)
    if rows is not None and here:
        known = [loss.pieces for loss in here]
        if len(here) == 1:
            here[0] = _lost_block(found.name, here[0].begin, here[0].end, rows - whole)
        elif any(one is None for one in known):
            here.append(
                Loss(found.name, 0, 0, f"all its lost blocks together had {rows - whole:,} records", pieces=None)
            )
    if here:
        found.damaged = True
    losses += here


def _header_is_ours(file: File, where: str, size: int, store: bytes, found: RunFound, losses: list[Loss]) -> bool:
    raw = read_as_can_be(file, 0, min(layout._HEADER_BYTES, size))
    header = corrected(raw, layout._HEADER)
    if header is not None:
        owner, number, age = unsealed_head(
            header,
            layout._HEADER,
            magic=layout._HEADER_MAGIC,
            newest=layout.RUN_FORMAT,
            where=where,
            file_format="run",
            what="run",
        )
        if owner != store or number != _number_of(found.name):
            found.damaged = True
            losses.append(Loss(found.name, 0, size, "it belongs to another store, or was renamed"))
            return False
        found.age = age or number
    if header is None or header != raw:
        found.damaged = True
        losses.append(Loss(found.name, 0, len(raw), "the header fails its checksum", pieces=0))
    return True


def _number_of(name: str) -> int | None:
    return run_number(name, family_of(name) or LEDGER)


def _lost_block(name: str, begin: int, end: int, rows: int | None) -> Loss:
    told = "records" if rows is None else f"{rows:,} record{'s' if rows != 1 else ''}"
    return Loss(name, begin, end, f"{told} cannot be read", pieces=rows)


def _by_index(blocks: _Blocks, index: Sequence[int], end: int, found: RunFound, losses: list[Loss]) -> int:
    whole = 0
    for place, (begin, stop) in enumerate(zip(index, [*index, end][1:], strict=True)):
        try:
            records, behind = blocks.block(begin, place)
            if behind != stop:
                raise DamagedStoreError
        except DamagedStoreError:
            losses.append(_lost_block(found.name, begin, stop, blocks.rows_at(begin, place)))
            continue
        whole += len(records)
        found.places.append((begin, place))
    return whole


def _by_walk(blocks: _Blocks, end: int, found: RunFound, losses: list[Loss]) -> int:
    """Yields block after block by their own lengths; after a broken one, the next place with the number of a later
    block and the right checksum."""
    whole, position, place = 0, layout._HEADER_BYTES, 0
    while position < end:
        try:
            records, behind = blocks.block(position, place)
        except DamagedStoreError:
            again = _next_block(blocks, position, end, place)
            losses.append(_lost_block(found.name, position, again[0] if again else end, None))
            if again is None:
                return whole
            position, place = again
            continue
        whole += len(records)
        found.places.append((position, place))
        position, place = behind, place + 1
    return whole


def _next_block(blocks: _Blocks, broken: int, end: int, place: int) -> tuple[int, int] | None:
    data = read_as_can_be(blocks._block_file, broken, end)
    for later in range(place + 1, place + 3):
        at = data.find(later.to_bytes(4, "little"), 1)
        while at >= 0:
            if blocks.rows_at(broken + at, later) is not None:
                return broken + at, later
            at = data.find(later.to_bytes(4, "little"), at + 1)
    return None


def _records_of(files: Files, found: RunFound) -> Iterator[RecordColumns]:
    if not found.places:
        return
    file = files.open(found.name)
    try:
        blocks = _Blocks(file, files.describe(found.name), file.size())
        for begin, place in found.places:
            yield blocks.block(begin, place)[0]
    finally:
        file.close()


def mend_runs(
    files: MendableFiles, store: bytes, runs: Sequence[RunFound], folder: str
) -> tuple[list[str], list[Loss]]:
    """Writes damaged runs anew, and newer ones that need a lost body. runs: oldest first.

    Returns the files kept in `folder`, and the losses besides the blocks. Raises StoreFullError, StoreFailedError.
    """
    kept: list[str] = []
    losses: list[Loss] = []
    first = next((number for number, run in enumerate(runs) if run.damaged), len(runs))
    lost = {number: _without_body(files, runs[: number + 1]) for number in range(first, len(runs))}
    # The newest run first: a repair that is killed in between finds the older damage again, and all that depends on it.
    for number in range(len(runs) - 1, first - 1, -1):
        found, gone = runs[number], lost[number]
        if len(gone):
            told = f"{len(gone):,} more record{'s' if len(gone) != 1 else ''} needed a lost body"
            losses.append(Loss(found.name, 0, 0, told, pieces=len(gone)))
        if not found.damaged and not len(gone):
            continue
        if not found.missing:
            files.keep_copy(found.name, folder)
            kept.append(found.name)
        _write(files, store, found, gone)
    return kept, losses


def _without_body(files: Files, runs: Sequence[RunFound]) -> Keys:
    """The keys of the newest run whose records are heads alone, with no older run that has their body."""
    heads = [some.keys[~some.whole & (some.heads["state"] != 0)] for some in _records_of(files, runs[-1])]
    open_ = np.concatenate(heads) if heads else RecordColumns.none().keys
    for run in reversed(runs[:-1]):
        if not len(open_):
            break
        # A version of state 0 ends a record; a later head has no body and needs none.
        settled = [some.keys[some.whole] for some in _records_of(files, run)]
        if settled:
            open_ = open_[~np.isin(open_, np.concatenate(settled))]
    return open_


def _write(files: Files, store: bytes, found: RunFound, lost: Keys) -> None:
    number = _number_of(found.name)
    assert number is not None
    family = family_of(found.name) or LEDGER
    writer = RunWriter(files, store=store, number=number, age=found.age, family=family)
    try:
        for some in _records_of(files, found):
            if len(lost):
                writer.add(some.take(np.flatnonzero(~np.isin(some.keys, lost))))
            else:
                writer.add(some)
        writer.finish()
    except BaseException:
        writer.abandon()
        raise
