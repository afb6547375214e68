"""Seen keys beyond the memory for them: exact, with most of the keys on disk.

The newest keys are in a set in memory. When it is full, it is written as a run of sorted keys; runs are merged as those
of the ledger. A filter in front has every key of the runs: a key that it does not have is new, without a read. The runs
decide about all other keys, and read one page for each. Writing, merging and making larger parts of the filter are
divided into steps, a few with each addition, so no call waits for all of it. A merge waits while a full set is written
or the filter grows: it may take longer than the set in memory needs to become full again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from outrider import kernels
from outrider.errors import DamagedStoreError, StoreError, StoreFullError
from outrider.frontier.stores.ledger import FINGERPRINT_MAX
from outrider.frontier.stores.seen_filter import Misfit, SeenFilter, fresh_bytes
from outrider.limits import SEEN_FRESH_KEYS_MIN, SEEN_KEY_BYTES, SEEN_STEP_KEYS, SLOTS
from outrider.storage.files import Files
from outrider.storage.heap import give_back
from outrider.storage.key_runs import KeyRun, KeyRunWriter, Keys, columns_of, merged_keys
from outrider.storage.tiers import MergeRoom, due


class SpilledKeys:
    """A set of keys with `check`, `add` and `remove` as `kernels.FingerprintSet` has. bytes_max: the limit for its
    memory, which may change at any time.

    files: for its runs; number: returns a new number for a run; keys: the set that became too large. repeats: most keys
    that are added were added before.
    """

    def __init__(
        self,
        files: Files,
        number: Callable[[], int],
        keys: kernels.FingerprintSet,
        *,
        bytes_max: int,
        repeats: bool = False,
    ) -> None:
        self.bytes_max = bytes_max
        self._files = files
        self._number = number
        self._repeats = repeats
        self._fresh = kernels.FingerprintSet()
        self._removed = kernels.FingerprintSet()  # keys that runs may still have
        self._frozen: kernels.FingerprintSet | None = keys
        self._runs: list[KeyRun] = []
        self._filtered = 0  # the number of frozen keys that the filter has
        self._filter = SeenFilter(len(keys), bytes_max)
        self._unremoved: list[KeyRun] = []
        self._work: Generator[int, None, None] | None = None  # writes a set or fills a part of the filter
        self._work_left = 0  # about how many keys it has not handled
        self._merging: Generator[int, None, None] | None = None  # a merge, which goes on without other work
        self._patience = 0  # the number of fresh keys from which on the disk is tried again
        self._looked_up = 0
        self._room = MergeRoom(files)

    # ------------------------------------------------------------------------------------------------ the set

    def check(self, slots: Any, fingerprints: Any) -> bytes:
        """Returns 1 for each key that is in the set, otherwise 0. Raises DamagedStoreError, naming file and byte."""
        # In their order neighbours are in the same leaf of a set and in the same page of a run.
        some_slots, some_prints, places = kernels.rank_keys(slots, fingerprints)
        ordered = columns_of((some_slots, some_prints))
        found = np.frombuffer(self._fresh.check(*ordered), np.bool_).copy()
        if self._frozen is not None:
            found |= np.frombuffer(self._frozen.check(*ordered), np.bool_)
        if self._runs:
            rows = np.flatnonzero(~found)
            rows = rows[self._filter.check(ordered[0][rows], ordered[1][rows])]
            if len(rows):
                in_runs = self._in_runs(ordered[0][rows], ordered[1][rows])
                found[rows] = in_runs
                self._looked_up += len(rows)
                self._filter.false += len(rows) - int(np.count_nonzero(in_runs))
        if len(self._removed):
            found &= ~np.frombuffer(self._removed.check(*ordered), np.bool_)
        answers: npt.NDArray[np.bool_] = found[np.frombuffer(places, np.uint32)]
        return answers.tobytes()

    def _in_runs(self, slots: npt.NDArray[np.uint16], prints: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        found = np.zeros(len(slots), np.bool_)
        for run in sorted(self._runs, key=len, reverse=True):  # the largest has most of them
            rest = np.flatnonzero(~found)
            if not len(rest):
                break
            found[rest] = run.find(slots[rest], prints[rest])
        return found

    def add(self, slots: Any, fingerprints: Any) -> None:
        """Adds keys, and does a part of the work that waits. Never fails: without room on disk the keys stay in
        memory."""
        if self._repeats:
            try:
                new = ~np.frombuffer(self.check(slots, fingerprints), np.bool_)
            except DamagedStoreError:
                new = np.ones(len(slots), np.bool_)  # the next check of such a key says it
            slots, fingerprints = _column(slots, np.uint16)[new], _column(fingerprints, np.uint64)[new]
        if len(slots):
            self._fresh.add(slots, fingerprints)
            if len(self._removed):
                self._removed.remove(slots, fingerprints)
        self._step(len(slots))

    def remove(self, slots: Any, fingerprints: Any) -> None:
        """Removes keys. Runs are not written anew: a set in memory has the keys that do not count there any more."""
        self._fresh.remove(slots, fingerprints)
        self._removed.add(slots, fingerprints)

    # ------------------------------------------------------------------------------------------------ the work

    @property
    def fresh_keys_max(self) -> int:
        """How many keys may be in memory before they are written as a run."""
        size = fresh_bytes(self.bytes_max, self._filter.statistics()["filter_bytes"])
        return max(SEEN_FRESH_KEYS_MIN, size // SEEN_KEY_BYTES)

    def _step(self, added: int) -> None:
        """Does a part of the work: what each added key needs until it is in the largest run, and more if the fresh keys
        would otherwise be too many before the work ends."""
        if len(self._fresh) < self._patience:
            return
        self._patience = 0
        quota = max(SEEN_STEP_KEYS, added * (3 + len(self._runs)))
        try:
            while quota > 0:
                if self._work is None and (work := self._begun()) is not None:
                    self._work = work
                    room = self.fresh_keys_max - len(self._fresh)
                    quota = max(quota, self._work_left if room <= added else added * self._work_left // room)
                if self._work is not None:
                    done = next(self._work, None)
                    if done is None:
                        self._work = None
                        give_back()  # the memory of a set, or of a part of the filter
                        continue
                    self._work_left = max(self._work_left - done, 0)
                else:
                    self._merging = self._merging or self._begun_merge()
                    if self._merging is None:
                        return
                    done = next(self._merging, None)
                    if done is None:
                        self._merging = None
                        continue
                quota -= done
        except StoreError as error:
            # No room, or a damaged page: all keys stay where they are, and a later addition tries again. A merge makes
            # room: its file is removed.
            if isinstance(error, StoreFullError) and self._merging is not None:
                self._room.refuse(self._runs)
            self._abandon_work()
            self._wait()

    def give_room(self) -> None:
        """Removes the file of a merge that is under way: it may have the room that the log needs. A later addition
        begins the merge again."""
        if self._merging is not None:
            self._merging.close()
            self._merging = None
            self._room.give()
            self._wait()

    @property
    def merges_wait(self) -> bool:
        """Whether runs wait to be merged, because the disk has too little room."""
        return self._room.is_awaited(self._runs)

    def _wait(self) -> None:
        """Delays the work until there are some more fresh keys."""
        self._patience = len(self._fresh) + max(self.fresh_keys_max // 4, 1)

    def _abandon_work(self) -> None:
        for work in (self._work, self._merging):
            if work is not None:
                work.close()
        self._work = self._merging = None

    def _begun(self) -> Generator[int, None, None] | None:
        """Returns the most urgent work, None if it is time for a merge."""
        if self._frozen is None and len(self._fresh) >= self.fresh_keys_max:
            self._frozen, self._fresh, self._filtered = self._fresh, kernels.FingerprintSet(), 0
        if self._frozen is not None:
            self._work_left = len(self._frozen)
            return self._write(self._frozen)
        if misfit := self._filter.misfit(self.bytes_max):
            self._work_left = misfit.keys
            return self._roll_over(misfit)
        return None

    def _begun_merge(self) -> Generator[int, None, None] | None:
        """Returns a merge, None if none is due."""
        count = self._room.fitting(self._runs) if due(self._runs) else 0
        return self._merge(self._runs[len(self._runs) - count :]) if count else None

    def _write(self, frozen: kernels.FingerprintSet) -> Generator[int, None, None]:
        """Makes a run of the frozen keys."""
        writer = KeyRunWriter(self._files, self._number())
        try:
            for slots, prints in keys_in_order(frozen, SEEN_STEP_KEYS):
                writer.add(slots, prints)
                new = max(self._filtered - writer.rows + len(slots), 0)  # an attempt that failed added the others
                self._filter.add(slots[new:], prints[new:])
                self._filtered = max(self._filtered, writer.rows)
                yield len(slots)
            if writer.rows:
                self._runs.append(writer.finish())
            self._frozen = None
        finally:
            writer.abandon()

    def _merge(self, old: list[KeyRun]) -> Generator[int, None, None]:
        """Makes one run of several; newer ones may follow them meanwhile."""
        writer = KeyRunWriter(self._files, self._number())
        try:
            for slots, prints in merged_keys(old):
                writer.add(slots, prints)
                yield len(slots)
            run = writer.finish()
        finally:
            writer.abandon()
        place = self._runs.index(old[0])
        self._runs[place : place + len(old)] = [run]
        self._unremoved = [run for run in (*self._unremoved, *old) if not run.remove()]

    def _roll_over(self, misfit: Misfit) -> Generator[int, None, None]:
        """Replaces a part of the filter."""
        yield from self._filter.replace(misfit, tuple(self._runs))

    # ------------------------------------------------------------------------------------------------ its size

    def __len__(self) -> int:
        """An upper bound of the number of keys: a key that was added several times may count as often."""
        return len(self._fresh) + (len(self._frozen) if self._frozen is not None else 0) + sum(map(len, self._runs))

    def statistics(self) -> dict[str, int]:
        """Returns how many keys there are, the bytes in memory and on disk, and the parts of these."""
        filter_ = self._filter.statistics()
        in_memory = [self._fresh, self._removed, *([self._frozen] if self._frozen is not None else [])]
        sets = sum(keys.statistics()["bytes"] for keys in in_memory)
        return {
            "keys": len(self),
            "bytes": sets + filter_["filter_bytes"] + sum(run.memory_bytes for run in self._runs),
            "disk_bytes": sum(run.bytes for run in self._runs),
            "runs": len(self._runs),
            **filter_,
            "looked_up": self._looked_up,
            "rolled_over": self._filter.replaced,
        }

    @property
    def runs(self) -> Sequence[KeyRun]:
        """The runs on disk."""
        return self._runs

    def check_files(self) -> Iterator[str]:
        """Reads every run again. Yields each damage in words, with file and byte."""
        for run in self._runs:
            yield from run.check()

    def close(self) -> None:
        """Removes its files."""
        self._abandon_work()
        for run in (*self._runs, *self._unremoved):
            run.remove()
        self._runs, self._unremoved = [], []


def keys_in_order(keys: kernels.FingerprintSet, most: int) -> Iterator[Keys]:
    """Yields all keys of a set in ascending order, at most `most` at once. The set must not change meanwhile."""
    slot, first = 0, 0
    while slot < SLOTS:
        slots, prints = columns_of(keys.keys_from(slot, first, most))
        if not len(slots):
            return
        yield slots, prints
        slot, first = int(slots[-1]), int(prints[-1]) + 1
        if first > FINGERPRINT_MAX:
            slot, first = slot + 1, 0


def _column(values: Any, dtype: type[np.generic]) -> npt.NDArray[Any]:
    return np.ascontiguousarray(values, dtype)
