"""The layers of a ledger, oldest first: runs on disk and pieces in memory; new runs, merges and obsolete files.

A run counts from the moment it is written. A replaced run that a checkpoint lists keeps its file until a checkpoint
without it is durable; any other one loses it after the merge. The newest runs become one when the largest of them is no
larger than the others together. One thread at a time writes new records, and one merges runs meanwhile, also for longer
than a checkpoint takes. Any thread may read the layers at any time.

A checkpoint lists exactly the records that existed when it began: it marks them. Younger records may become runs
before it is durable, but never together with marked ones. It does not list these runs: after a crash they are removed,
and the log, which the checkpoint keeps from its beginning, has their records. If a merge ends before the checkpoint
lists its runs, it lists the merged one; later, the ones that were merged.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from outrider.errors import ClosedError, DamagedStoreError, ForeignStoreError, StoreError, StoreFullError
from outrider.limits import (
    GIVE_BACK_BYTES,
    MERGE_GROWTH_SHARE,
    MERGE_LEAVES_BYTES,
    MERGE_READ_BYTES,
    RUN_ROWS_SMALL,
    RUNS_PER_MERGE,
)
from outrider.storage.files import Files, remove_if_possible
from outrider.storage.heap import give_back
from outrider.storage.record_columns import RecordColumns, merged
from outrider.storage.runs import LEDGER, Run, RunWriter, run_number, unfinished_number


@dataclass(frozen=True, slots=True)
class Layers:
    """The runs that count at one moment."""

    runs: tuple[Run, ...]
    frozen: tuple[RecordColumns, ...]
    """Pieces that are to become the next run; each sorted, without equal keys."""


class Tiers:
    """The runs of one ledger, and the records that will become the next run."""

    def __init__(self, files: Files, *, store: bytes, names: Sequence[str], family: str = LEDGER) -> None:
        """Opens the runs of a family that the newest checkpoint names, oldest first; nothing is written.

        Raises DamagedStoreError, ForeignStoreError.
        """
        self.lock = threading.Lock()
        """Locked for the moments in which the layers change."""
        self._merging = threading.Lock()
        self._writing = threading.Lock()  # may be acquired inside `_merging`, and `lock` inside both
        self._files = files
        self._store = store
        self._family = family
        self._listed = tuple(names)
        self._replaced: list[Run] = []
        self._unremoved: list[str] = []  # unfinished runs that the disk would not remove
        self._mark: tuple[int, int] | None = None  # the runs and the frozen pieces that the current checkpoint lists
        self.frozen_bytes = 0
        """The memory of the pieces that will become runs."""
        self._passed_bytes = 0  # of them, given to the writer of the current run
        self._merges = True  # until `end_merges`
        self._gives_room = False  # the current merge is to end
        self._room = MergeRoom(files)
        self._closed = False
        runs: list[Run] = []
        try:
            for name in names:
                runs.append(Run(files, name, store=store))
            numbers = [number for number in map(self._number_of, files.names()) if number is not None]
        except BaseException:
            for run in runs:
                run.close()
            raise
        self._layers = Layers(tuple(runs), ())
        self._next = 1 + max(numbers, default=-1)

    @property
    def layers(self) -> Layers:
        """The runs that count now. Raises ClosedError."""
        if self._closed:
            raise ClosedError
        return self._layers

    def hold(self, pieces: Sequence[RecordColumns]) -> None:
        """Adds pieces in memory above the existing ones; the caller has the lock."""
        if pieces:
            self._layers = Layers(self._layers.runs, (*self._layers.frozen, *pieces))
            self.frozen_bytes += sum(piece.nbytes for piece in pieces)

    @property
    def pending_bytes(self) -> int:
        """How many of the `frozen_bytes` the writer has not received yet; at least 1 until their run is finished."""
        frozen = self.frozen_bytes
        return max(frozen - self._passed_bytes, min(frozen, 1))

    def mark(self) -> None:
        """Notes that a checkpoint begins, which lists all runs and pieces that exist now; the caller has the lock."""
        self._mark = len(self._layers.runs), len(self._layers.frozen)

    def unmark(self) -> None:
        """Forgets the checkpoint that began last: it is durable or given up."""
        with self.lock:
            self._mark = None

    def write(self, *, only_marked: bool = False) -> None:
        """Makes a run of the marked pieces, and of all pieces if every marked one has a run. only_marked: leaves the
        other pieces in memory, because the disk may be full. Raises StoreFullError, StoreFailedError; then the pieces
        remain."""
        with self._writing:
            self._write(only_marked=only_marked)

    def _write(self, *, only_marked: bool = False) -> None:
        with self.lock:
            pieces = self._layers.frozen
            if self._mark is not None and (only_marked or self._mark[1]):
                pieces = pieces[: self._mark[1]]
        if not pieces:
            return
        try:
            run = self._written(self._passed(merged([], pieces)))
        finally:
            self._passed_bytes = 0
        with self.lock:
            now = self._layers
            runs = now.runs if run is None else (*now.runs, run)
            self._layers = Layers(runs, now.frozen[len(pieces) :])
            self.frozen_bytes -= sum(piece.nbytes for piece in pieces)
            if self._mark is not None and self._mark[1]:
                self._mark = len(runs), self._mark[1] - len(pieces)
        held = list(pieces)
        del pieces, now
        while held:
            # A few at a time: no thread can allocate memory while it is returned.
            size = 0
            while held and size < GIVE_BACK_BYTES:
                size += held.pop().nbytes
            give_back()

    def merge(self, *, leaves_bytes: int = 0) -> bool:
        """Makes one run of the newest ones as `due` says, as far as the free space allows. Returns whether there was
        something to do. leaves_bytes: of the free space, in addition to MERGE_LEAVES_BYTES.

        Other threads write new records and begin and end checkpoints meanwhile. During a checkpoint only runs that it
        marked are merged. Raises StoreFullError, StoreFailedError, DamagedStoreError, and ClosedError after
        `end_merges`; then the old runs count as before.
        """
        with self._merging:
            self._gives_room = False
            with self.lock:
                whole = self._layers.runs
                runs = whole if self._mark is None else whole[: self._mark[0]]
            count = self._room.fitting(runs, leaves_bytes=leaves_bytes)
            if not due(runs):
                return False
            if not count:
                raise StoreFullError(
                    f"{self._files.describe()}: {self._files.free_bytes()} bytes are free, too few for a merge of "
                    f"runs, which leaves {leaves_bytes + MERGE_LEAVES_BYTES} to the log; free space on this file system"
                )
            old = runs[len(runs) - count :]
            records = merged([run.read(bytes_at_once=MERGE_READ_BYTES) for run in old])
            living = _living(records) if count == len(runs) else records
            try:
                run = self._written(self._until_ended(living), age=old[-1].age)
            except StoreFullError:
                if self._gives_room:
                    self._room.give()
                else:
                    self._room.refuse(runs)
                raise
            with self.lock:
                now = self._layers.runs
                self._layers = Layers(
                    (*runs[: len(runs) - count], *(() if run is None else (run,)), *now[len(runs) :]),
                    self._layers.frozen,
                )
                if self._mark is not None:  # it has all old runs: each of them was there when it began
                    self._mark = self._mark[0] - count + (run is not None), self._mark[1]
                # A checkpoint needs the files that it lists; the other ones are removed now.
                listed = set(self._listed)
                self._replaced += [one for one in old if one.name in listed]
            self._remove([one for one in old if one.name not in listed])
            give_back()
            return True

    def give_room(self) -> None:
        """Ends the current merge at its next step: its file may have the room that the log needs."""
        self._gives_room = True
        self._room.give()

    @property
    def merges_wait(self) -> bool:
        """Whether runs wait to be merged, because the disk has too little room."""
        return self._room.is_awaited(self._layers.runs)

    def end_merges(self) -> None:
        """Ends the merge that is under way at its next step, and any later one: the store closes."""
        self._merges = False

    def _until_ended(self, records: Iterator[RecordColumns]) -> Iterator[RecordColumns]:
        for some in records:
            if not self._merges:
                raise ClosedError
            if self._gives_room:
                raise StoreFullError(f"{self._files.describe()}: a merge ended, because a call needed its room")
            yield some

    def names(self) -> list[str]:
        """The files that count now, oldest first, for a checkpoint to list: up to its mark, all without one. `write`
        must have written the marked pieces."""
        with self.lock:
            runs, pieces = self._mark or (len(self._layers.runs), 0)
            assert not pieces, "a checkpoint without the records that are in memory"
            listed = [run.name for run in self._layers.runs[:runs]]
            self._listed = tuple(listed)
            return listed

    def settled(self) -> None:
        """Removes merged files, because the checkpoint with the names of the last `names()` is durable. Failed removals
        are tried again the next time."""
        self.unmark()
        with self.lock:
            gone = [run for run in self._replaced if run.name not in self._listed]
            self._replaced = [run for run in self._replaced if run.name in self._listed]
            unfinished = list(self._unremoved)
        self._remove(gone)
        for name in unfinished:
            if remove_if_possible(self._files, name):
                with self.lock:
                    self._unremoved.remove(name)

    def _remove(self, runs: Sequence[Run]) -> None:
        """Removes the files of merged runs. Those that the disk does not remove are tried again with `settled`."""
        left = [run for run in runs if not remove_if_possible(self._files, run.name)]
        with self.lock:
            self._replaced += left

    def remove_leftovers(self) -> None:
        """Removes files of runs that neither count nor are needed by the last checkpoint. Failures are ignored."""
        with self._merging, self._writing:
            kept = {run.name for run in (*self._layers.runs, *self._replaced)} | set(self._listed)
            for name in self._files.names():
                if self._number_of(name) is not None and name not in kept:
                    remove_if_possible(self._files, name)

    def check(self) -> Iterator[str]:
        """Reads every byte of every run that counts again: each damage in words, naming file and byte."""
        with self._merging:  # so no run is removed meanwhile
            for run in self.layers.runs:
                try:
                    Run(self._files, run.name, store=self._store).close()
                except (DamagedStoreError, ForeignStoreError) as error:
                    yield str(error)
                yield from run.check()

    def close(self) -> None:
        """Closes the descriptors; writes nothing."""
        with self._merging, self._writing, self.lock:
            self._closed = True
            for run in (*self._layers.runs, *self._replaced):
                run.close()
            self._layers = Layers((), ())

    def _passed(self, records: Iterator[RecordColumns]) -> Iterator[RecordColumns]:
        """Counts what the writer receives."""
        for some in records:
            yield some
            self._passed_bytes += some.nbytes

    def _written(self, records: Iterator[RecordColumns], *, age: int | None = None) -> Run | None:
        """Makes a run of these records; returns None without records. age: of a merged run."""
        if self._closed:
            raise ClosedError
        with self.lock:
            number = self._next
            self._next += 1
        writer = RunWriter(self._files, store=self._store, number=number, age=age, family=self._family)
        try:
            for some in records:
                writer.add(some)
            if not writer.rows and not writer.pending_rows:
                self._abandon(writer)
                return None
            name = writer.finish()
        except BaseException:
            self._abandon(writer)
            raise
        return Run(self._files, name, store=self._store)

    def _abandon(self, writer: RunWriter) -> None:
        left = writer.abandon()
        if left is not None:
            with self.lock:
                self._unremoved.append(left)

    def _number_of(self, name: str) -> int | None:
        number = run_number(name, self._family)
        return unfinished_number(name, self._family) if number is None else number


class HasSize(Protocol):
    """A run of any kind: how many records it has, and the bytes of its file."""

    @property
    def rows(self) -> int: ...

    @property
    def bytes(self) -> int: ...


class MergeRoom:
    """The room on disk for the merges of a family of runs, and whether they wait for it."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._leaves_bytes = 0
        self._refused = False  # the last merge found too little room
        self._fitted = False  # the refused merge had enough free space, as with a quota

    def fitting(self, runs: Sequence[HasSize], *, leaves_bytes: int = 0) -> int:
        """How many of the newest runs may become one now: as `due` says, and as far as the free space without
        `leaves_bytes` allows."""
        self._leaves_bytes = leaves_bytes
        count = self._limited(runs)
        self._refused, self._fitted = count < due(runs), False
        return count

    def refuse(self, runs: Sequence[HasSize]) -> None:
        """Notes that the disk refused a write of a merge of these runs."""
        self._refused, self._fitted = True, self._have_room(runs)

    def give(self) -> None:
        """Notes that a merge ends, because a call needs its room."""
        self._refused = True

    def is_awaited(self, runs: Sequence[HasSize]) -> bool:
        """Whether a merge of these runs waits for room: the last one found too little, and the disk has too little
        now. Only the next merge finds out whether a quota has room."""
        return self._refused and due(runs) > 0 and (self._fitted or not self._have_room(runs))

    def _have_room(self, runs: Sequence[HasSize]) -> bool:
        try:
            return self._limited(runs) == due(runs)
        except StoreError:  # the free space is unknown; the next merge raises it
            return False

    def _limited(self, runs: Sequence[HasSize]) -> int:
        return due(runs, bytes_max=mergeable_bytes(self._files.free_bytes() - self._leaves_bytes))


def mergeable_bytes(free: int) -> int:
    """Returns how many bytes of runs may be merged. The new file must fit in the free space, because the old files
    remain until it is finished."""
    return (free - MERGE_LEAVES_BYTES) * MERGE_GROWTH_SHARE // (MERGE_GROWTH_SHARE + 1)


def due(runs: Sequence[HasSize], *, bytes_max: int | None = None) -> int:
    """How many of the newest runs are to become one now: as many as possible, at least RUNS_PER_MERGE, if the largest
    of them has no more rows than the others together; otherwise 0. bytes_max: for their files together, None: any.

    So each merge doubles the rows of the run that a record is in, as long as runs have different keys. Of n such
    records each is written again at most log2(n / RUN_ROWS_SMALL) times, and some log2 of that number of runs remain.
    """
    count = total = largest = size = 0
    for place, run in enumerate(reversed(runs), 1):
        rows, size = max(run.rows, RUN_ROWS_SMALL), size + run.bytes
        if bytes_max is not None and size > bytes_max:
            break
        total, largest = total + rows, max(largest, rows)
        if place >= RUNS_PER_MERGE and total >= 2 * largest:
            count = place
    return count


def _living(records: Iterator[RecordColumns]) -> Iterator[RecordColumns]:
    for some in records:
        yield some.living()
