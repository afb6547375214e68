"""Checkpoints in progress: each call copies some ranges; second threads write them, and then the ledger.

Another thread writes the new records of the ledger as runs, also during a checkpoint, so that they keep to their share
of the memory. A checkpoint does not list runs of records that are younger than its beginning; the next one does. A
third thread merges runs. No checkpoint waits for it, unless a caller asks for one, because a merge of gigabytes needs
minutes, and the log grows until the next checkpoint begins.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator

from outrider.clock import Instant
from outrider.engine.failure import Failure
from outrider.errors import ClosedError, StoreError, StoreFullError
from outrider.frontier.format.facts import Fact, encode, encode_in_pieces
from outrider.frontier.machine import Machine
from outrider.frontier.state import kept_schedule
from outrider.frontier.state.kept_schedule import CopiedCounts
from outrider.frontier.state.tables import COPY_ROWS, LEASES, OWN, RUNS
from outrider.limits import (
    CHECKPOINT_BYTES_PER_ORDER,
    CHECKPOINT_PAYLOAD_BYTES_MAX,
    CHECKPOINT_RANGE_BYTES_MAX,
    CHECKPOINT_STEP_BYTES,
    CHECKPOINT_WAITING_BYTES_MAX,
    LOG_BYTES_BEFORE_CHECKPOINT,
    LOOKS_PER_ROUND,
    MEMTABLE_BYTES_MAX_LEAST,
    MEMTABLE_BYTES_PER_WAIT,
    MEMTABLE_SHARE,
    MEMTABLE_WAIT_SECONDS,
    MERGE_PATIENCE_BYTES_MAX,
    ORDERS_BEFORE_CHECKPOINT,
    OWN_SLOT,
    ROUND_PATIENCE_BYTES,
)
from outrider.storage.checkpoint import (
    SCHEDULES,
    Checkpoint,
    CheckpointWriter,
    newest_checkpoint,
    remove_before,
    remove_unfinished,
)
from outrider.storage.files import Files
from outrider.storage.log import Log

_WITHIN = "a checkpoint"


class Round:
    """One checkpoint in progress: the rows that existed when it began, cut into ranges, and the copied ranges
    that are not yet written."""

    def __init__(self, sections: list[tuple[int, int]], number: int, start: int, logged_bytes: int) -> None:
        self.number = number
        self.start = start
        self.logged_bytes = logged_bytes  # by the time of the last step
        self.copied_bytes = 0
        self.taken_bytes = 0  # bytes of them that the writing thread has received
        self.writer: CheckpointWriter | None = None
        self.writing: threading.Thread | None = None
        self.full = False  # the disk had no room for the copied ranges
        self.counts: CopiedCounts | None = None  # of its start, for the file next to it
        self._waiting: deque[tuple[int, int, int, bytes]] = deque()
        self._ranges = iter(
            (section, first, min(first + COPY_ROWS[section], rows))
            for section, rows in sections
            if section not in (OWN, LEASES)
            for first in range(0, rows, COPY_ROWS[section])
        )

    def next(self) -> tuple[int, int, int] | None:
        """Returns the next range to copy: section, first row, end row; None when all are copied."""
        return next(self._ranges, None)

    def copied(self, section: int, first: int, lsn: int, payload: bytes) -> None:
        """A range is copied, and true up to this LSN."""
        self._waiting.append((section, first, lsn, payload))
        self.copied_bytes += len(payload)

    @property
    def waiting_bytes(self) -> int:
        """Copied and not written yet."""
        return self.copied_bytes - self.taken_bytes

    def waiting(self) -> Iterator[tuple[int, int, int, bytes]]:
        """Yields the ranges that wait to be written, one after the other; for one thread at a time."""
        while self._waiting:
            one = self._waiting.popleft()
            self.taken_bytes += len(one[3])
            yield one

    def settle(self) -> None:
        """Waits for the thread that writes the copied ranges."""
        if self.writing is not None:
            self.writing.join()
            self.writing = None

    def abandon(self) -> None:
        """Removes the written part of the file, if the disk allows it."""
        self.settle()
        self._waiting.clear()
        if self.writer is not None:
            self.writer.abandon()


class Rounds:
    """The newest checkpoint (its number, its bytes, the LSN up to which it covers the log) and the current round.

    Every method except `join` must run under the lock of the frontier. Second threads only leave their results here;
    the next call uses the results.
    """

    def __init__(
        self, files: Files, machine: Machine, log: Log, failure: Failure, *, store: bytes, newest: Checkpoint | None
    ) -> None:
        self.number = newest.number if newest is not None else 0
        self.bytes = newest.bytes if newest is not None else 0
        self.covered = newest.start_lsn if newest is not None else 0
        self.under_way: Round | None = None
        self.keeps_schedule = True
        """Whether files of `kept_schedule` are written."""
        self.finisher: threading.Thread | None = None
        """Ends the current round."""
        self._files = files
        self._machine = machine
        self._log = log
        self._failure = failure
        self._store = store
        self._share = max(MEMTABLE_BYTES_MAX_LEAST, machine.settings.memory_bytes // MEMTABLE_SHARE)
        self._orders = 0  # the number of `core.orders` in the newest checkpoint
        self._orders_begun = 0  # and those that the round under way covers
        self._patience = 0  # bytes of log that are necessary before a round is tried again
        self._finished: tuple[int, int, int] | None = None  # the result of a second thread: a checkpoint …
        self._no_room = False  # … or a lack of room for its file
        self._unmerged = False  # runs were added since they were looked at for merges
        self._merger: threading.Thread | None = None  # merges runs
        self._cooled = False  # enough hosts are on disk for the round that is due
        self._spilling: threading.Thread | None = None  # writes new records as runs
        self._no_room_for_run = False  # it found no room
        self._run_patience = 0  # bytes of log that are necessary before it is tried again
        self._no_room_for_merge = False  # the same for merges
        self._merge_from = 0  # the length of the log at which they are tried again
        self._merge_patience = ROUND_PATIENCE_BYTES  # how much later that is after the next failure
        self._gives_room = False  # merges are to end
        self._looks_at = 0  # the length of the log at which a call looks whether anything is due
        self._new_bytes = 0  # of the records in memory that are not frozen, by the time of the last step
        self._added_bytes = 0  # of new records since a call last waited for the thread that writes them

    def step(self, now: Instant) -> None:
        """Copies some ranges, begins or ends a round, or moves some hosts to disk; a call never waits for more than one
        step."""
        if self._failure.error is not None or self._ended():
            return
        if self.finisher is None and self.under_way is None:
            if self._nothing_is_due():
                return
            self._looks_at = 0
            if self._unmerged and self._merger is None and self._log.frame_bytes >= self._merge_from:
                self._unmerged = self._gives_room = False
                self._merger = self._beside(self._merge)
            if self._is_due():
                self._cooled = self._cooled or not self._machine.core.cooling.step(now)
                if self._cooled and self._spilling is None:
                    self.begin(now)  # without frozen records, or it would need more than the share
            else:
                self._cool(now)
            self._keep_share()  # after that: new records may always be enough for another run, and a round must begin
            self._look_later()
            return
        if self.under_way is None:
            self._cool(now)
        self._keep_share()
        if self.finisher is not None or self.under_way is None:
            return
        round_ = self.under_way
        if round_.writing is not None and not round_.writing.is_alive():
            round_.settle()
        if round_.full:
            # No room for a checkpoint now: the log keeps everything, and a later round tries again.
            self._give_up(round_)
            self._copying(None)
            return
        if round_.waiting_bytes >= CHECKPOINT_WAITING_BYTES_MAX:
            self._write_beside(round_)  # one range alone may be as much, with no thread that writes
            return
        begun = round_.copied_bytes
        # A call that logs much is slow anyway, and copies much: so the log grows little during a round. No host goes to
        # disk meanwhile, and all that are new stay in memory.
        logged, round_.logged_bytes = self._log.frame_bytes - round_.logged_bytes, self._log.frame_bytes
        most = min(max(CHECKPOINT_STEP_BYTES, 16 * logged), 4 * CHECKPOINT_RANGE_BYTES_MAX)
        while (place := round_.next()) is not None:
            self._copy(round_, *place, now)
            # A slot of a few hosts makes small ranges; one per call, a round over all slots would never end.
            if round_.copied_bytes - begun >= most:
                self._write_beside(round_)
                return
        self._copying(None)
        self.finisher = self._beside(self._finish, round_, self._log.appended_lsn)

    def _nothing_is_due(self) -> bool:
        """Whether this call need not look further. Questions may bring hosts back from disk without a byte of log."""
        return (
            self._log.frame_bytes < self._looks_at
            and not self._machine.core.cooling.presses
            and not self._has_many_orders()
        )

    def _look_later(self) -> None:
        """If nothing is under way, rounds and runs become due by the growth of the log: the next look is after a small
        part of what makes one due. New records are larger than their part of the log, which is packed, so the part
        must be small."""
        threads = (self._merger, self._spilling, self.finisher)
        if self._unmerged or self._cooled or self.under_way is not None or any(threads):
            return
        if not self._machine.core.cooling.under_way:
            self._looks_at = self._log.frame_bytes + min(LOG_BYTES_BEFORE_CHECKPOINT, self._share) // LOOKS_PER_ROUND

    def _cool(self, now: Instant) -> None:
        """Moves hosts to disk while far too many are in memory, also between checkpoints. Not while one copies rows."""
        cooling = self._machine.core.cooling
        if cooling.presses or cooling.under_way:
            cooling.step(now)

    def _is_due(self) -> bool:
        """Whether the log is long enough for a round."""
        threshold = max(LOG_BYTES_BEFORE_CHECKPOINT, self.bytes // 2)
        logged = self._log.bytes_after(self.covered)
        return logged > self._patience and (logged > threshold or self._has_many_orders())

    def _has_many_orders(self) -> bool:
        """Whether recovery would be slow for the orders in the log, few bytes as they are."""
        orders = self._machine.core.orders - self._orders
        return orders > max(ORDERS_BEFORE_CHECKPOINT, self.bytes // CHECKPOINT_BYTES_PER_ORDER)

    def _beside(self, target: Callable[..., None], *arguments: object) -> threading.Thread:
        """A thread of its own does this; a call looks at its result when the thread has ended."""
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        thread.start()
        return thread

    def _ended(self) -> bool:
        """Whether a round has finished since the last call; then it is the newest checkpoint."""
        if self._spilling is not None and not self._spilling.is_alive():
            self._spilling, self._unmerged, self._looks_at = None, True, 0
        if self._merger is not None and not self._merger.is_alive():
            self._merger, self._looks_at = None, 0
            if self._no_room_for_merge:
                # A quota is not part of the free space: each attempt writes until it is used up, so they become rarer.
                self._no_room_for_merge, self._unmerged = False, True
                self._merge_from = self._log.frame_bytes + self._merge_patience
                self._merge_patience = min(2 * self._merge_patience, MERGE_PATIENCE_BYTES_MAX)
            else:
                self._merge_patience = ROUND_PATIENCE_BYTES
        if self._no_room_for_run:
            self._no_room_for_run = False
            self.give_room()
            self._run_patience = self._log.bytes_after(self.covered) + ROUND_PATIENCE_BYTES
        if self.finisher is None or self.finisher.is_alive():
            return False
        self.finisher = None
        if self._no_room:
            self._no_room = False
            self._try_later()
        if self._finished is None:
            return False
        self.number, self.covered, self.bytes = self._finished
        self._orders = self._orders_begun
        self._finished = None
        self._patience = self._run_patience = self._looks_at = 0
        self._unmerged = True
        return True

    def _keep_share(self) -> None:
        """Has the records in memory written when they are half of their share. The other half is for those that arrive
        meanwhile."""
        parts = self._machine.tables.kept_in_runs()
        new, frozen = sum(part.unfrozen_bytes for part in parts), sum(part.frozen_bytes for part in parts)
        self._added_bytes += max(new - self._new_bytes, 0)
        self._new_bytes = new
        half = self._share // 2
        patience = max(self._patience, self._run_patience)
        if new + frozen <= half or self._log.bytes_after(self.covered) <= patience:
            return
        if new > half or not frozen:
            for part in parts:
                part.freeze()
            self._new_bytes = 0
        if self._spilling is None:
            self._spilling = self._beside(self._spill)

    def wait_for_writer(self) -> None:
        """Waits if new records fill their half sooner than a second thread writes the frozen ones: it shares the
        interpreter with the calls, which otherwise leave it a small part of the time. At most `MEMTABLE_WAIT_SECONDS`
        for each `MEMTABLE_BYTES_PER_WAIT` that calls added. For a caller without the lock of the frontier."""
        added, self._added_bytes = self._added_bytes, 0
        for _ in range(-(-added // MEMTABLE_BYTES_PER_WAIT)):
            thread = self._spilling
            if thread is None or not thread.is_alive() or not self._writes_late():
                return
            thread.join(MEMTABLE_WAIT_SECONDS)

    def _writes_late(self) -> bool:
        """Whether the room for new records shrinks faster than the frozen ones are written. A quarter of the room is
        for calls that add few."""
        parts = self._machine.tables.kept_in_runs()
        new, frozen = sum(part.unfrozen_bytes for part in parts), sum(part.frozen_bytes for part in parts)
        room = max((self._share - frozen) * 7 // 8, 1)  # an eighth for the end of the run, which is a sync of the disk
        pending_max = frozen * max(room - new, 0) * 4 // (room * 3)
        return sum(part.pending_bytes for part in parts) > pending_max

    def _spill(self) -> None:
        """In a second thread, also during a round. The thread that ends the round may write the same records first."""
        with self._failures_kept():
            try:
                self._write_frozen()
            except StoreFullError:
                self._no_room_for_run = True

    def _merge(self) -> None:
        """In a second thread, also during rounds: merges runs as `due` says."""
        with self._failures_kept(), contextlib.suppress(ClosedError):
            try:
                self._merge_all()
            except StoreFullError:
                self._no_room_for_merge = True

    def give_room(self) -> None:
        """Ends merges that are under way: their files may have the room that the log needs. A later call tries
        again."""
        self._gives_room = True
        for part in self._machine.tables.kept_in_runs():
            part.give_room()

    @contextlib.contextmanager
    def _failures_kept(self) -> Iterator[None]:
        """Keeps an error of a second thread for the next caller."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - in a thread of its own: the next caller gets it
            self._failure.stop_beside(error, "writing the ledger")

    def _write_frozen(self) -> None:
        for part in self._machine.tables.kept_in_runs():
            part.write_frozen()

    def _merge_all(self) -> None:
        """Raises StoreFullError, after all that has room."""
        full: StoreFullError | None = None
        for part in self._machine.tables.kept_in_runs():
            try:
                # It leaves room for a checkpoint: the next one removes the files of merged runs.
                while not self._gives_room and part.merge(leaves_bytes=2 * self.bytes):
                    pass
            except StoreFullError as error:
                full = error
        if full is not None:
            raise full

    def _copy(self, round_: Round, section: int, first: int, last: int, now: Instant) -> None:
        blocks = self._machine.tables.copy(section, first, last)
        for payload in encode_in_pieces(now, blocks, CHECKPOINT_PAYLOAD_BYTES_MAX):
            round_.copied(section, first, self._log.appended_lsn, payload)

    def begin(self, now: Instant, *, counts: bool = True) -> None:
        """From here on: facts without a slot, the open leases and the ledger are those of this LSN exactly. counts:
        whether the file next to the checkpoint gets the counts, where files are kept."""
        assert self.finisher is None or not self.finisher.is_alive(), "a checkpoint that begins before another's end"
        self._cooled = False
        self._log.roll()
        self._orders_begun = self._machine.core.orders
        tables = self._machine.tables
        tables.robots.rulebook.drop_unused()
        round_ = Round(tables.sections(), self.number + 1, self._log.appended_lsn, self._log.frame_bytes)
        for section in (OWN, LEASES):
            self._copy(round_, section, 0, 1, now)
        if counts and self.keeps_schedule:
            round_.counts = CopiedCounts.of(tables)
        for part in tables.kept_in_runs():
            part.freeze(for_checkpoint=True)
        self._copying(round_)

    def _copying(self, round_: Round | None) -> None:
        """Begins to copy the rows of a round, or ends the copying."""
        self.under_way = round_
        self._machine.tables.being_copied(copied=round_ is not None)

    def _try_later(self) -> None:
        """A round found no room: the log keeps everything, and when it has grown some more the next one is tried."""
        self.give_room()
        self._patience = self._log.bytes_after(self.covered) + ROUND_PATIENCE_BYTES

    def _give_up(self, round_: Round) -> None:
        """Ends a round because the disk is full."""
        self._abandon(round_)
        self._try_later()

    def _abandon(self, round_: Round) -> None:
        """Ends a round without a checkpoint."""
        round_.abandon()
        for part in self._machine.tables.kept_in_runs():
            part.give_up()

    def _written(self, round_: Round) -> CheckpointWriter:
        """Returns the writer, with all ranges copied up to now. Raises StoreFullError, StoreFailedError."""
        if round_.writer is None:
            round_.writer = CheckpointWriter(
                self._files, store=self._store, number=round_.number, start_lsn=round_.start
            )
        for section, first, lsn, payload in round_.waiting():
            round_.writer.add(OWN_SLOT, section, first, lsn, payload)
        return round_.writer

    def _write_beside(self, round_: Round) -> None:
        """Starts a second thread that packs, writes and syncs the copied ranges, so that no call waits for the file."""
        if round_.waiting_bytes >= CHECKPOINT_RANGE_BYTES_MAX and round_.writing is None:
            round_.writing = self._beside(self._write, round_)

    def _write(self, round_: Round) -> None:
        """In a second thread, while the calls copy."""
        try:
            self._written(round_)
        except StoreFullError:
            round_.full = True
        except Exception as error:  # noqa: BLE001 - in a thread of its own: whoever calls next is told
            self._failed(round_, error)

    def _failed(self, round_: Round, error: Exception) -> None:
        if round_.writer is not None:
            round_.writer.abandon()
        self._failure.stop_beside(error, _WITHIN)

    def _finish(self, round_: Round, lsn: int) -> None:
        """In a second thread, when all is copied."""
        parts = self._machine.tables.kept_in_runs()
        try:
            round_.settle()
            if round_.full:
                raise StoreFullError
            writer = self._written(round_)
            for part in parts:
                part.write_frozen(for_checkpoint=True)
            names = [name for part in parts for name in part.names()]
            if names:
                payload = encode(0, [(Fact.RUNS, [[OWN_SLOT] * len(names), names])])
                writer.add(OWN_SLOT, RUNS, 0, lsn, payload)
            # Read before the sync: the current length of a projection becomes durable with it, a later one does not.
            wanted = self._wanted_after(round_.start)
            self._log.sync()
            size = writer.size
            writer.finish(lsn)
            for part in parts:
                part.settled()
            remove_before(self._files, writer.number, SCHEDULES)
            remove_unfinished(self._files, SCHEDULES)
            self._keep(round_)
            # Here, not in a call: removing a segment of 64 MB needs a dozen milliseconds.
            self._log.drop_through(wanted)
            self._finished = (writer.number, round_.start, size)
        except StoreFullError:
            self._abandon(round_)
            self._no_room = True
        except Exception as error:  # noqa: BLE001 - in a thread of its own: whoever calls next is told
            self._failed(round_, error)

    def whole(self, now: Instant) -> None:
        """Makes a whole round, after the current one. Raises StoreFailedError."""
        with self._stops_the_store():
            self._through(now)
            self._machine.core.cooling.end_pass()  # one from before may have had fewer hosts to look at
            while self._machine.core.cooling.step(now):
                pass
            self._machine.tables.urls.ledger.freeze()
            self._gives_room = False
            with contextlib.suppress(StoreFullError):  # the round is tried all the same
                self._write_frozen()
                self._merge_all()
            self._unmerged = False
            self.begin(now)
            self._through(now)

    @contextlib.contextmanager
    def _stops_the_store(self) -> Iterator[None]:
        """Stops the store after an error in the block: parts of a round may be missing."""
        try:
            yield
        except BaseException as error:
            self._failure.stop(error, _WITHIN)
            raise

    def _keep(self, round_: Round) -> None:
        """Writes the counts next to the checkpoint of a round, which is the newest."""
        if round_.counts is None:
            return
        with contextlib.suppress(StoreError):  # nothing depends on the file
            checkpoint = newest_checkpoint(self._files, store=self._store)
            if checkpoint is not None and checkpoint.number == round_.number:
                kept_schedule.write(self._files, self._store, checkpoint, round_.counts)
        round_.counts = None

    def keep_schedule(self, now: Instant) -> None:
        """Makes a last round, and writes the schedule next to its checkpoint. Only `close` may call it, because the
        tables cannot be used after it. Writes no schedule if the disk is full or fails, or if a file of tails is
        damaged. Raises StoreFailedError if the round fails."""
        tables = self._machine.tables
        if not kept_schedule.can_be_kept(tables):
            return
        with self._stops_the_store():
            self.begin(now, counts=False)
            self._through(now)
        checkpoint = newest_checkpoint(self._files, store=self._store)
        if checkpoint is not None and checkpoint.start_lsn == self._log.appended_lsn:  # else the disk was full
            kept_schedule.write(self._files, self._store, checkpoint, tables)

    def _through(self, now: Instant) -> None:
        """Brings a round that is under way to its end, and raises why it failed."""
        while self.under_way is not None:
            self.under_way.settle()
            self._failure.tell()
            self._failure.check()
            self.step(now)
        self.join()
        self._failure.tell()
        self._ended()

    def join(self) -> None:
        """Waits for second threads: the end of a round, new runs, a merge."""
        for thread in (self._spilling, self._merger, self.finisher):
            if thread is not None:
                thread.join()

    def abandon(self) -> None:
        """The frontier closes: a round that is under way is given up, one that is ending may end, and so may new runs.
        A merge ends at its next step."""
        for part in self._machine.tables.kept_in_runs():
            part.end_merges()
        self.join()
        self._ended()
        if self.under_way is not None:
            self._abandon(self.under_way)
            self._copying(None)

    def kept_after(self) -> int:
        """Notes that the log is needed after this LSN."""
        return self._wanted_after(self.covered)

    def _wanted_after(self, through: int) -> int:
        """Drops the log up to a checkpoint, as far as the synced projections have passed it too."""
        # 0: a stream that never had a line. Its first line notes it, so it matters not which process keeps lines, nor
        # whether any projection was ever synced.
        return min([through, *(lsn for _, lsn in self._machine.tables.registry.projections.values() if lsn)])

    @property
    def merges_wait(self) -> bool:
        """Whether files wait to be merged, because the disk has too little room."""
        tables = self._machine.tables
        return tables.urls.seen.merges_wait or any(part.merges_wait for part in tables.kept_in_runs())

    def statistics(self) -> dict[str, int]:
        """Number, bytes and place in the log of the newest checkpoint."""
        return {"number": self.number, "bytes": self.bytes, "start_lsn": self.covered}
