"""The changelog of the owner of a partition: a frame counts if it is in the topic before any claim of another node.

Records are sent one after the other; frames that are appended meanwhile share the next record. The owner may send
requests until its tenure is over, counted from the beginning of its last append that counts. A node that claims waits
for as long, so requests of two owners never overlap.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from outrider.clock import Instant, instant
from outrider.cluster.counting import Counting, RecordTopic, Sent
from outrider.cluster.records import End, Frames, Heartbeat, in_records, packed
from outrider.errors import ClaimLostError, StoreError, StoreFailedError, UnreachableError
from outrider.limits import (
    CHANGELOG_MARK_RECORDS,
    CHANGELOG_RECORD_BYTES_MAX,
    CHANGELOG_WAITING_BYTES_MAX,
    MICROSECONDS,
)


@dataclass(slots=True)
class _Under:
    """A record on its way. whole: the last LSN that is whole after it. began: when its first attempt began."""

    record: Frames | Heartbeat | End
    whole: int
    began: Instant
    sent: Sent


class OwnersChangelog:
    """Sends the frames of a log to a topic; the `Changelog` of that log. Any thread may call it."""

    def __init__(
        self,
        topic: RecordTopic,
        base: Counting,
        counting: Counting,
        *,
        tenure_seconds: float,
        elapsed: Callable[[], Instant],
        pause: Callable[[], None],
    ) -> None:
        """counting: after the claim of this node. base: where the reading of the topic began. elapsed: time that goes
        on while the machine sleeps (BOOTTIME), in microseconds. pause: waits a moment before another attempt to reach
        the topic."""
        self._topic = topic
        self._counting = counting
        self._marks = [base]  # states of the counting at earlier LSNs, oldest first
        self._epoch = counting.epoch
        self._tenure = instant(tenure_seconds)
        self._elapsed, self._pause = elapsed, pause
        self._until: Instant = elapsed()  # nothing may be requested before the first append counts
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._waiting_bytes = 0
        self._appended = counting.lsn
        self._under: _Under | None = None
        self._records: Iterator[tuple[Frames, int]] = iter(())  # the parts of a frame that is being sent
        self._failure: StoreFailedError | None = None
        self._ended_at: int | None = None
        self._stopped = False
        self._turn = threading.RLock()
        self._queue = threading.Lock()

    @property
    def lsn(self) -> int:
        """The last LSN that counts."""
        return self._counting.lsn

    @property
    def epoch(self) -> int:
        """The epoch of this node's claim."""
        return self._epoch

    def counted(self) -> Counting:
        """Returns a copy of what counts up to now."""
        with self._turn:
            return self._counting.copy()

    def mark(self, lsn: int) -> Counting:
        """Returns what counted at the latest known moment at which no frame above this LSN did. Call it with LSNs that
        grow: earlier moments are forgotten."""
        with self._turn:
            while len(self._marks) > 1 and self._marks[1].lsn <= lsn:
                del self._marks[0]
            return self._marks[0].copy()

    def may_request(self) -> bool:
        """Whether this node may send a request now. Ask before each request: after a pause of the machine another node
        may own the partition."""
        return self._failure is None and not self._counting.closed and self._elapsed() < self._until

    def tenure_left(self) -> float:
        """Returns the seconds for which this node may send requests without another append."""
        return (self._until - self._elapsed()) / MICROSECONDS

    @property
    def is_held(self) -> bool:
        """Whether nothing is known here that ended the claim."""
        return self._failure is None and self._counting.epoch == self._epoch and not self._counting.closed

    @property
    def is_lost(self) -> bool:
        """Whether another node is known to have claimed the partition after this one."""
        return self._counting.epoch != self._epoch

    def counts(self, lsn: int) -> bool | None:
        """Whether the frame of an LSN that this owner has appended counts; None if that is not known yet. After the
        claim was lost, the topic has decided."""
        with self._turn:
            end = self._counting.lsn if self._ended_at is None else self._ended_at
            if lsn <= end:
                return True
            return None if self._ended_at is None else False

    # -- for the log --------------------------------------------------------------------------------------------------

    def append(self, lsn: int, frame: bytes) -> None:
        """Takes a frame. While too many bytes wait, it waits for the topic. Raises ClaimLostError."""
        with self._queue:
            self._appended = lsn
            self._waiting.append((lsn, frame))
            self._waiting_bytes += len(frame)
        if self._waiting_bytes > CHANGELOG_WAITING_BYTES_MAX:
            self.wait(lsn)

    def begin(self, lsn: int) -> None:
        """Begins to send what waits, if nothing is on its way. Raises ClaimLostError."""
        if self._turn.acquire(blocking=False):
            try:
                self._check()
                if self._under is None:
                    self._send_next()
            finally:
                self._turn.release()

    def wait(self, lsn: int) -> None:
        """Returns when the frames up to this LSN count. Raises ClaimLostError, and StoreError for a topic that no
        reader can use."""
        with self._turn:
            self._check()
            while self._counting.lsn < lsn:
                if self._under is None:
                    self._send_next()
                self._settle()

    # -- for the node -------------------------------------------------------------------------------------------------

    def keep(self) -> None:
        """Extends the tenure: sends what waits, or a heartbeat. Raises ClaimLostError."""
        with self._turn:
            self._check()
            if self._under is None:
                self._send_next()
            if self._under is None:
                self._send(Heartbeat(self._epoch, self._counting.lsn), self._counting.lsn)
            self._settle()

    def end(self) -> None:
        """Gives up the partition. Call it after the log is closed and no request runs. Raises ClaimLostError."""
        with self._turn:
            self.settle()
            self._settle()  # a heartbeat may be on its way
            self._send(End(self._epoch, self._counting.lsn), self._counting.lsn)
            self._settle()

    def settle(self) -> None:
        """Returns when all frames up to now count. Raises ClaimLostError."""
        self.wait(self._appended)

    def abandon(self) -> None:
        """Lets calls that wait for the topic fail: the process ends."""
        self._stopped = True

    # -- inside -------------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._failure is not None:
            raise type(self._failure)(self._failure.facts)

    def _send_next(self) -> None:
        """Begins to send the next record of frames, if any wait."""
        following = next(self._records, None)
        if following is None:
            with self._queue:
                some: list[tuple[int, bytes]] = []
                size = 0
                while self._waiting and (not some or size + len(self._waiting[0][1]) < CHANGELOG_RECORD_BYTES_MAX):
                    some.append(self._waiting.popleft())
                    size += len(some[-1][1])
                self._waiting_bytes -= size
            self._records = in_records(self._epoch, some)
            following = next(self._records, None)
        if following is not None:
            self._send(*following)

    def _send(self, record: Frames | Heartbeat | End, whole: int) -> None:
        began = self._elapsed()
        self._under = _Under(record, whole, began, self._topic.send(packed(record)))

    def _settle(self) -> None:
        """Waits until the record on its way counts. Whatever happened to it, the topic itself says what counts."""
        while (under := self._under) is not None:
            try:
                try:
                    offset = under.sent.offset()
                    found = offset == self._counting.position
                except UnreachableError:
                    offset, found = -1, False
                if found:
                    self._counting.take(offset, packed(under.record))
                else:
                    # A gap, or no answer: another node may have claimed, or this record is there twice, or not at all.
                    self._read_all()
                    found = self._counts(under, offset)
                if self._counting.epoch != self._epoch:
                    raise ClaimLostError(self._claimed_by())
                if found:
                    self._until = max(self._until, under.began + self._tenure)
                    self._under = None
                    passed = self._counting.position - self._marks[-1].position
                    if passed >= CHANGELOG_MARK_RECORDS and self._counting.is_between_frames:
                        self._marks.append(self._counting.copy())
                else:
                    under.sent = self._topic.send(packed(under.record))
            except UnreachableError:
                if self._stopped:
                    self._fail(StoreFailedError("the changelog cannot be reached"))
                self._pause()
            except StoreError as error:
                self._fail(error)

    def _read_all(self) -> None:
        """Takes all records up to the end of the topic, and notes the last LSN of this owner when its claim ends."""
        while records := self._topic.read(self._counting.position):
            for offset, octets in records:
                before = self._counting.lsn
                self._counting.take(offset, octets)
                if self._ended_at is None and self._counting.epoch != self._epoch:
                    self._ended_at = before

    def _counts(self, under: _Under, offset: int) -> bool:
        """Whether a record counts, after the topic was read. offset: of its acknowledgement, or -1."""
        record = under.record
        if not isinstance(record, Frames):
            return self._counting.closed if isinstance(record, End) else 0 <= offset < self._counting.position
        return self._counting.lsn >= under.whole and (record.last or self._counting.has_part(record.lsn, record.part))

    def _claimed_by(self) -> str:
        claim = self._counting.claim
        return "" if claim is None else f"node {claim.node!r:.80} has epoch {claim.epoch}, this one has {self._epoch}"

    def _fail(self, error: StoreError) -> None:
        self._failure = error if isinstance(error, StoreFailedError) else StoreFailedError(error.facts)
        raise self._failure
