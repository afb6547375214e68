"""Checkpoints in the making: each call copies some ranges, a thread beside the calls writes the ledger and ends it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from outrider.clock import Instant
from outrider.engine.failure import Failure
from outrider.errors import OutriderError, StoreError, StoreFullError
from outrider.frontier.facts import Fact, encode
from outrider.frontier.machine import Machine
from outrider.frontier.tables import COPY_ROWS, LEASES, OWN, RUNS
from outrider.limits import CHECKPOINT_STEP_BYTES, LOG_BYTES_BEFORE_CHECKPOINT, OWN_SLOT, ROUND_PATIENCE_BYTES
from outrider.storage.checkpoint import Checkpoint, CheckpointWriter
from outrider.storage.files import Files
from outrider.storage.log import Log

_WITHIN = "a checkpoint"


class Round:
    """One checkpoint in the making: what there was when it began, cut into ranges."""

    def __init__(self, writer: CheckpointWriter, sections: list[tuple[int, int]], start: int) -> None:
        self.writer = writer
        self.start = start
        self.copied_bytes = 0
        self._ranges = iter(
            (section, first, min(first + COPY_ROWS[section], rows))
            for section, rows in sections
            if section not in (OWN, LEASES)
            for first in range(0, rows, COPY_ROWS[section])
        )

    def next(self) -> tuple[int, int, int] | None:
        return next(self._ranges, None)


class Rounds:
    """The newest checkpoint (its number, its bytes, the LSN up to which it covers the log) and the round under way.

    Every method but `join` belongs under the lock of the frontier.
    """

    def __init__(
        self, files: Files, machine: Machine, log: Log, failure: Failure, *, store: bytes, newest: Checkpoint | None
    ) -> None:
        self.number = newest.number if newest is not None else 0
        self.bytes = newest.bytes if newest is not None else 0
        self.covered = newest.start_lsn if newest is not None else 0
        self.under_way: Round | None = None
        self.finisher: threading.Thread | None = None
        self._files = files
        self._machine = machine
        self._log = log
        self._failure = failure
        self._store = store
        self._patience = 0  # so much log there must be before a round is tried again
        self._finished: tuple[int, int, int] | None = None

    def step(self, now: Instant) -> None:
        """Copy some ranges, or begin or end a round; a call never waits for more than one step."""
        if self._finished is not None:
            self.number, self.covered, self.bytes = self._finished
            self._finished = None
            self.finisher = None
            self._patience = 0
            # Dropped is what the checkpoint and the synced projections have passed.
            self._log.drop_through(self.kept_after())
            return
        if self.finisher is not None:
            return
        if self.under_way is None:
            threshold = max(LOG_BYTES_BEFORE_CHECKPOINT, self.bytes // 2, self._patience)
            if self._log.bytes_after(self.covered) > threshold:
                self.begin(now)
            return
        round_ = self.under_way
        try:
            begun = round_.copied_bytes
            while (place := round_.next()) is not None:
                section, first, last = place
                self._copy(round_, section, first, last, now)
                # A slot of a few hosts makes small ranges; one per call, a round over all slots would never end.
                copied = round_.copied_bytes - begun
                if copied >= CHECKPOINT_STEP_BYTES:
                    return
        except StoreFullError:
            # No room for a checkpoint now: the log keeps everything, and a later round tries again.
            round_.writer.abandon()
            self.under_way = None
            self._try_later()
            return
        self.under_way = None
        self.finisher = threading.Thread(target=self._finish, args=(round_, self._log.appended_lsn), daemon=True)
        self.finisher.start()

    def _copy(self, round_: Round, section: int, first: int, last: int, now: Instant) -> None:
        payload = encode(now, self._machine.tables.copy(section, first, last))
        round_.writer.add(OWN_SLOT, section, first, self._log.appended_lsn, payload)
        round_.copied_bytes += len(payload)

    def begin(self, now: Instant) -> None:
        """From here on: what belongs to no slot, the open leases and the ledger are those of this LSN exactly."""
        start = self._log.appended_lsn
        try:
            writer = CheckpointWriter(self._files, store=self._store, number=self.number + 1, start_lsn=start)
        except StoreFullError:
            self._try_later()
            return
        tables = self._machine.tables
        round_ = Round(writer, tables.sections(), start)
        try:
            for section in (OWN, LEASES):
                self._copy(round_, section, 0, 1, now)
        except StoreFullError:
            writer.abandon()
            self._try_later()
            return
        except BaseException:
            with contextlib.suppress(StoreError):
                writer.abandon()
            raise
        tables.ledger.freeze()
        self.under_way = round_

    def _try_later(self) -> None:
        """A round found no room: the log keeps everything, and when it has grown some more the next one is tried."""
        self._patience = self._log.bytes_after(self.covered) + ROUND_PATIENCE_BYTES

    def _finish(self, round_: Round, lsn: int) -> None:
        ledger = self._machine.tables.ledger
        try:
            ledger.write_frozen()
            while ledger.merge():
                pass
            names = ledger.names()
            if names:
                payload = encode(0, [(Fact.RUNS, [[OWN_SLOT] * len(names), names])])
                round_.writer.add(OWN_SLOT, RUNS, 0, lsn, payload)
            self._log.sync()
            size = round_.writer.size
            round_.writer.finish(lsn)
            ledger.settled()
            self._finished = (round_.writer.number, round_.start, size)
        except StoreFullError:
            try:
                round_.writer.abandon()
                self._try_later()
                self.finisher = None
            except OutriderError as error:
                self._failure.stop_beside(error, _WITHIN)
        except Exception as error:  # noqa: BLE001 - in a thread of its own: whoever calls next is told
            with contextlib.suppress(StoreError):
                round_.writer.abandon()
            self._failure.stop_beside(error, _WITHIN)

    def whole(self, instant: Callable[[], Instant]) -> None:
        """A round from its beginning to its end, behind one that is under way. Raises StoreFailedError."""
        try:
            self._end(instant)
            if self.under_way is None:
                self.begin(instant())
            while self.under_way is not None:
                self.step(instant())
            self._end(instant)
        except BaseException as error:
            self._failure.stop(error, _WITHIN)
            raise

    def _end(self, instant: Callable[[], Instant]) -> None:
        """Waits for the end of a round that is under way, and raises why it failed."""
        if self.join():
            self._failure.tell()
            self.step(instant())

    def join(self) -> bool:
        """Whether the end of a round was under way; it is over now."""
        finisher = self.finisher  # it clears this itself where it finds no room
        if finisher is not None:
            finisher.join()
        return finisher is not None

    def abandon(self) -> None:
        """The frontier closes: a round that is under way is given up, one that is ending may end."""
        self.join()
        if self.under_way is not None:
            self.under_way.writer.abandon()

    def kept_after(self) -> int:
        """The log is wanted behind this LSN."""
        through = self.covered
        projected = [lsn for _, lsn in self._machine.tables.projections.values()]
        if self._machine.keeps_lines or any(projected):
            # Also where this process keeps no lines: those of an earlier one are not lost.
            through = min([through, *projected])
        return through

    def statistics(self) -> dict[str, int]:
        """Of the newest checkpoint."""
        return {"number": self.number, "bytes": self.bytes, "start_lsn": self.covered}
