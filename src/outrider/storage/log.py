"""An append-only log of facts: synced frames survive any crash, or the store refuses to open and says why.

Segment `log-<first LSN, 16 hex digits>.seg`: | header, 64 bytes | frame | frame | … | zeros |, preallocated. A frame
contains its LSN and the last LSN that was synced when it was written (`docs/formats/frames.md` draws all of it). A torn
tail is cut on opening. Later frames, later segments and the mirror `log.synced` show what was synced, and so separate a
torn tail from damage.
"""

from __future__ import annotations

import re
import struct
import threading
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn, Protocol

from outrider.errors import (
    ClosedError,
    DamagedStoreError,
    StoreError,
    StoreFailedError,
    StoreFullError,
    TooManyFilesError,
)
from outrider.kernels import (
    BAD,
    FRAME_BYTES_MAX,
    FRAME_HEADER_BYTES,
    SHORT,
    ZEROS,
    find_frame,
    pack_frames,
    scan_frames,
)
from outrider.limits import (
    LOG_MARK_BYTES,
    LOG_READ_BYTES,
    LOG_SEGMENT_BYTES_FIRST,
    LOG_SEGMENT_BYTES_MAX,
    LOG_SPACE_CHECK_REFUSALS,
    LOG_SPACE_SHARE,
    LOG_ZERO_BYTES_STEP,
)
from outrider.storage.files import File, Files, remove_if_possible
from outrider.storage.sealed import check_store, is_whole, sealed, sealed_bytes, unsealed_head

SEGMENT_HEADER_BYTES = 64
SEGMENT_FORMAT = 1
SPARE_NAME = "next.seg"
"""The segment that is being zeroed ahead of its use."""
RESERVE_NAME = "reserve.seg"
"""Zeroed space reserved for the day when the disk is full."""
MIRROR_NAME = "log.synced"

_SEGMENT_MAGIC = b"ORlog\r\n\x1a"  # the line ending and the end-of-file sign show a copy that was made as text
_SEGMENT_HEADER = struct.Struct("<8sII16sQ20x")  # magic, format, epoch, store, first LSN; the crc follows
_SEGMENT_NAME = re.compile(r"log-([0-9a-f]{16})\.seg")
_MIRROR_MAGIC = b"ORsync\r\n"
_MIRROR_SLOT = struct.Struct("<8s16sQ")  # magic, store, synced LSN; the crc follows
_MIRROR_STEP_BYTES = 4_096  # each slot in a block of its own: a torn write spoils one of them
_LENGTH = struct.Struct("<I")
_Row = tuple[int, int, int, int, int, int, int, int]
_ZEROS = bytes(LOG_READ_BYTES)
_COVERED_FROM = 8  # a frame's length counts what follows length and crc


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame of the log: a batch of facts, all of it or nothing."""

    lsn: int
    synced: int
    """The last LSN that was synced when this frame was written."""
    epoch: int
    kind: int
    version: int
    codec: int
    payload: bytes


class Changelog(Protocol):
    """A second destination of each frame, such as a topic of Kafka. It decides which frames count."""

    def append(self, lsn: int, frame: bytes) -> None:
        """Takes a frame, header included, in the order of the LSNs. It waits for nothing, except if it is full."""
        ...

    def begin(self, lsn: int) -> None:
        """Begins to send the frames up to this LSN, if there are any. It does not wait for the answer."""
        ...

    def wait(self, lsn: int) -> None:
        """Returns when the frames up to this LSN count there. Raises StoreFailedError if they never will."""
        ...


@dataclass(slots=True)
class _Segment:
    """A segment on disk; its last LSN is the one before its successor's first."""

    first_lsn: int
    name: str
    size: int


@dataclass(frozen=True, slots=True)
class _Scan:
    """The end of a segment's frames: offset and LSN after the last whole one, and their newest sync point."""

    end: int
    next_lsn: int
    synced: int
    epoch: int
    clean: bool
    """False when something that is neither a frame in sequence nor unused space follows."""


def segment_name(first_lsn: int) -> str:
    """The name of the segment that begins with this LSN."""
    return f"log-{first_lsn:016x}.seg"


class Log:
    """Frames with contiguous LSNs from 1 on, appended by one owner, synced in groups.

    All methods may be called from any thread. After a failed write or sync, every later call raises StoreFailedError:
    the content of the device is then unknown until the store is opened again.
    """

    def __init__(
        self, files: Files, *, store: bytes, epoch: int, segment_bytes_max: int, segment_bytes_first: int
    ) -> None:
        """For `open`, which is the way in."""
        self._files = files
        self._store = store
        self._epoch = epoch
        self._segment_bytes_max = max(segment_bytes_max, segment_bytes_first)
        self._segment_bytes_first = segment_bytes_first
        self._read_only = False
        self._first_lsn = 1
        self._changelog: Changelog | None = None
        self._closed = False
        self._failure: StoreFailedError | None = None
        # Order of the two: _append_lock first. `sync` uses only _sync_lock. Two syncs of one file never run at once:
        # the kernel reports a lost write to one of them only, and the other would acknowledge lost data.
        self._append_lock = threading.RLock()
        self._sync_lock = threading.RLock()
        self._segments: list[_Segment] = []
        self._current: File | None = None
        self._position = SEGMENT_HEADER_BYTES
        self._stale_until = 0  # bytes up to here may contain a piece of a frame that did not fit on the disk
        self._tip: tuple[int, File | None] = (0, None)  # appended LSN and the file it is in, replaced as one
        self._synced = 0
        self._retired: list[File] = []
        self._mirror: File | None = None
        self._mirror_turn = 0
        self._spare: File | None = None
        self._spare_size = 0
        self._spare_zeroed = 0
        self._spare_unsynced = 0
        self._has_reserve = False
        self._full = False
        self._full_why = StoreFullError()
        self._patience = 0  # refusals until the next attempt to heal
        # Marks (LSN, bytes of frames up to it), sparse, for bytes_after.
        self._frame_bytes = 0
        self._mark_lsns: list[int] = [0]
        self._mark_bytes: list[int] = [0]
        self._last_epoch = 0
        self._cut_bytes = 0
        self._sync_count = 0

    # ------------------------------------------------------------------------------------------------ opening

    @classmethod
    def open(
        cls,
        files: Files,
        *,
        store: bytes,
        epoch: int,
        after: int = 0,
        synced: int = 0,
        segment_bytes_max: int = LOG_SEGMENT_BYTES_MAX,
        segment_bytes_first: int = LOG_SEGMENT_BYTES_FIRST,
        read_only: bool = False,
        first_lsn: int = 1,
        changelog: Changelog | None = None,
    ) -> Log:
        """Opens the log in `files`. Makes it when it is missing and nothing shows that there was one.

        `store` is the store's id, 16 bytes: a segment of another store is refused. `after` is the last LSN that a
        checkpoint covers; segments wholly below it are not read. `synced` is an LSN that was certainly synced, such as
        the highest one in the checkpoint: a log that ends below it is damaged. A torn tail is cut (with `read_only`:
        kept and not shown). The method syncs the frames that it found before it returns. `first_lsn` is the LSN of the
        first frame of a log that is made. `changelog` gets each frame that is appended, and `sync` waits for it, too.

        Raises DamagedStoreError naming file and byte, and ForeignStoreError for a newer format, with nothing modified;
        StoreFullError when a new log finds no space; StoreFailedError.
        """
        if len(store) != 16:
            raise ValueError(f"a store id has 16 bytes, not {len(store)}")
        log = cls(
            files,
            store=store,
            epoch=epoch,
            segment_bytes_max=segment_bytes_max,
            segment_bytes_first=segment_bytes_first,
        )
        log._read_only, log._first_lsn, log._changelog = read_only, first_lsn, changelog
        try:
            log._recover(after, synced)
        except BaseException:
            log._close_files()
            raise
        return log

    def _recover(self, after: int, synced: int) -> None:
        """Reads first and judges; writes only when everything is known to be whole."""
        # The mirror before the segments: an owner at work could otherwise sync what is not yet seen here.
        known = max(self._read_mirror(), after, synced)
        names = self._files.names()
        self._segments = self._list_segments(names)
        if not self._segments:
            if known >= self._first_lsn:
                raise DamagedStoreError(
                    f"{self._files.describe()} has no log segment, but frames up to LSN {known} were synced; "
                    "bring the missing log-….seg files back"
                )
            if not self._read_only:
                self._begin()
            return
        for segment in self._segments:
            self._check_header(segment)
        start = bisect_right([segment.first_lsn for segment in self._segments], after + 1) - 1
        if start < 0:
            first = self._segments[0]
            raise DamagedStoreError(
                f"{self._files.describe(first.name)} begins at LSN {first.first_lsn}, but the checkpoint reaches "
                f"only to LSN {after}: a log segment or a newer checkpoint is missing"
            )
        scan = self._scan_all(start, known)
        tail = self._segments[-1]
        last_lsn = scan.next_lsn - 1
        self._last_epoch = scan.epoch
        self._position = scan.end
        if self._read_only:
            self._tip = (last_lsn, None)
            self._synced = last_lsn
            return
        self._current = self._files.open(tail.name)
        self._adopt_tail(self._current, tail, scan, max(known, scan.synced))
        self._tip = (last_lsn, self._current)
        self._synced = last_lsn
        self._open_mirror(last_lsn)
        self._remove_leftovers(names)
        self._has_reserve = self._make_reserve()
        self._prepare()

    def _list_segments(self, names: list[str]) -> list[_Segment]:
        segments = []
        for name in names:
            match = _SEGMENT_NAME.fullmatch(name)
            if match:
                segments.append(_Segment(int(match.group(1), 16), name, 0))
        return sorted(segments, key=lambda segment: segment.first_lsn)

    def _check_header(self, segment: _Segment) -> None:
        where = self._files.describe(segment.name)
        file = self._files.open(segment.name)
        try:
            segment.size = file.size()
            header = file.read_at(0, SEGMENT_HEADER_BYTES)
        finally:
            file.close()
        if len(header) < SEGMENT_HEADER_BYTES:
            raise DamagedStoreError(f"{where} at byte {len(header)}: the file ends inside its header")
        _, store, first_lsn = unsealed_head(
            header,
            _SEGMENT_HEADER,
            magic=_SEGMENT_MAGIC,
            newest=SEGMENT_FORMAT,
            where=where,
            file_format="log",
            what="segment",
        )
        check_store(store, self._store, where)
        if first_lsn != segment.first_lsn:
            raise DamagedStoreError(
                f"{where} at byte 32: the segment begins at LSN {first_lsn}, its name says {segment.first_lsn}; "
                "it was renamed"
            )

    def _scan_all(self, start: int, synced: int) -> _Scan:
        """Reads the segments from `start` on. `synced` is the highest LSN that is known to be synced from mirror,
        checkpoint or caller."""
        scan = None
        best = synced
        for number in range(start, len(self._segments)):
            segment = self._segments[number]
            scan = self._scan_segment(segment, best)
            best = max(best, scan.synced)
            if number + 1 < len(self._segments):
                follower = self._segments[number + 1]
                # A segment begins only after everything before it was synced: nothing here can be a torn tail.
                if scan.next_lsn != follower.first_lsn:
                    self._damaged(segment, scan, follower.first_lsn - 1)
        assert scan is not None
        tail = self._segments[-1]
        synced = best
        if not scan.clean:
            synced = max(synced, self._synced_beyond(tail, scan))
        if scan.next_lsn <= synced:
            self._damaged(tail, scan, synced)
        return _Scan(scan.end, scan.next_lsn, best, scan.epoch, scan.clean)

    def _damaged(self, segment: _Segment, scan: _Scan, synced: int) -> NoReturn:
        where = f"{self._files.describe(segment.name)} at byte {scan.end}"
        if scan.clean:
            raise DamagedStoreError(
                f"{where}: the frames end at LSN {scan.next_lsn - 1}, but LSN {synced} was synced; "
                "a segment is missing or was replaced by an older copy"
            )
        raise DamagedStoreError(f"{where}: the frame of LSN {scan.next_lsn} is not whole, but LSN {synced} was synced")

    def _scan_segment(self, segment: _Segment, synced: int) -> _Scan:
        file = self._files.open(segment.name)
        try:
            next_lsn, epoch, end, reason = segment.first_lsn, self._last_epoch, SEGMENT_HEADER_BYTES, ZEROS
            for buffer, base, rows, stop, reason in _batches(file, SEGMENT_HEADER_BYTES, segment.size):  # noqa: B007
                end = base + stop
                for offset, length, lsn, frame_synced, frame_epoch, _, _, _ in rows:
                    begin = base + offset - FRAME_HEADER_BYTES
                    if lsn != next_lsn or frame_synced >= lsn:
                        return _Scan(begin, next_lsn, synced, epoch, clean=False)
                    next_lsn += 1
                    synced = max(synced, frame_synced)
                    epoch = max(epoch, frame_epoch)
                    self._count(lsn, FRAME_HEADER_BYTES + length)
            clean = reason != BAD and _last_nonzero(file, end, segment.size) is None
            return _Scan(end, next_lsn, synced, epoch, clean)
        finally:
            file.close()

    def _synced_beyond(self, tail: _Segment, scan: _Scan) -> int:
        """Returns the newest sync point in frames after the break in the last segment, 0 without such frames.

        The author of a page can put a frame inside a payload. So an LSN counts only if the log can have reached it at
        that byte, and a frame's sync point must be below its own LSN.
        """
        file = self._files.open(tail.name)
        try:
            rest = file.read_at(scan.end, tail.size - scan.end)
        finally:
            file.close()
        synced = 0
        position = 1
        while position < len(rest):
            found = find_frame(rest, position)
            if found < 0:
                break
            rows, stop, _ = scan_frames(rest, found)
            for offset, _, lsn, frame_synced, _, _, _, _ in rows:
                distance = (offset - FRAME_HEADER_BYTES) // FRAME_HEADER_BYTES + 1
                if scan.next_lsn <= lsn <= scan.next_lsn + distance and frame_synced < lsn:
                    synced = max(synced, frame_synced)
            position = max(stop, found + 1)
        return synced

    def _adopt_tail(self, current: File, tail: _Segment, scan: _Scan, synced: int) -> None:
        """Cuts the torn tail and makes sure that the frames read are on the device."""
        last = _last_nonzero(current, scan.end, tail.size)
        if last is not None:
            # Overwrite all of it, so that no piece can ever look like a frame after the next write.
            self._cut_bytes = last + 1 - scan.end
            _write_zeros(current, scan.end, self._cut_bytes)
        if scan.next_lsn - 1 > synced:
            # After a failed sync the cache may mark pages as clean that the device never got (Rebello et al.,
            # "Can applications recover from fsync failures?", 2020). So frames above the sync point are written again.
            for buffer, base, rows, stop, _ in _batches(current, SEGMENT_HEADER_BYTES, scan.end):
                fresh = next((row[0] - FRAME_HEADER_BYTES for row in rows if row[2] > synced), stop)
                if fresh < stop:
                    current.write_at(base + fresh, buffer[fresh:stop])
        current.sync()
        self._files.sync_directory()

    def _begin(self) -> None:
        size = self._segment_bytes_first
        self._remove_leftovers(self._files.names())
        self._spare = self._open_spare()
        self._spare_size, self._spare_zeroed = size, 0
        try:
            self._zero_spare(size)
            self._has_reserve = self._make_reserve()
            if not self._has_reserve:
                raise StoreFullError(
                    f"{self._files.describe()}: a new log needs {2 * size} bytes, {self._files.free_bytes()} are free"
                )
        except StoreFullError:
            self._discard_spare()
            remove_if_possible(self._files, RESERVE_NAME)
            raise
        before = self._first_lsn - 1
        self._tip = (before, None)
        self._synced = self._mark_lsns[0] = before
        self._install(self._spare, SPARE_NAME, size, self._first_lsn)
        self._spare = None
        self._open_mirror(before)
        self._prepare()

    def _remove_leftovers(self, names: list[str]) -> None:
        # A spare of an earlier process may contain a header and frames whose new name did not survive: they were never
        # acknowledged. Making it anew is simpler than proving it clean.
        if SPARE_NAME in names:
            remove_if_possible(self._files, SPARE_NAME)

    def _open_spare(self) -> File:
        """The next segment's file, empty also where an older one would not be removed."""
        file = self._files.open(SPARE_NAME, create=True)
        try:
            if file.size():
                file.truncate(0)
        except BaseException:
            file.close()
            raise
        return file

    # ------------------------------------------------------------------------------------------------ reading

    def replay(self, after: int) -> Iterator[Frame]:
        """The frames with LSN > `after` in order, up to the last one appended when this began; one read buffer of
        memory.

        Raises DamagedStoreError when a frame has changed since the opening.
        """
        with self._append_lock:
            self._check(reading=True)
            segments = [(segment.first_lsn, segment.name, segment.size) for segment in self._segments]
            end, last_lsn = self._position, self._tip[0]
        start = max(bisect_right([first for first, _, _ in segments], after + 1) - 1, 0)
        next_lsn = segments[start][0] if segments else 1
        for first_lsn, name, size in segments[start:]:
            if first_lsn > last_lsn:
                break
            limit = end if name == segments[-1][1] else size
            stopped = SEGMENT_HEADER_BYTES
            follower = next((first for first, _, _ in segments if first > first_lsn), last_lsn + 1)
            try:
                file = self._files.open(name)
            except FileNotFoundError:
                if any(segment.name == name for segment in self._segments):
                    raise
                next_lsn = follower  # it was dropped meanwhile: a checkpoint covers it
                continue
            try:
                for buffer, base, rows, stop, _ in _batches(file, SEGMENT_HEADER_BYTES, limit):
                    stopped = base + stop
                    for offset, length, lsn, synced, epoch, kind, version, codec in rows:
                        if lsn != next_lsn:
                            self._unreadable(name, base + offset - FRAME_HEADER_BYTES, next_lsn)
                        next_lsn += 1
                        if lsn > after:
                            payload = bytes(buffer[offset : offset + length])
                            yield Frame(lsn, synced, epoch, kind, version, codec, payload)
            finally:
                file.close()
            if next_lsn > last_lsn:
                return
            if next_lsn != follower:
                self._unreadable(name, stopped, next_lsn)

    def _unreadable(self, name: str, at: int, lsn: int) -> NoReturn:
        raise DamagedStoreError(f"{self._files.describe(name)} at byte {at}: LSN {lsn} cannot be read back")

    @property
    def appended_lsn(self) -> int:
        """The LSN of the last appended frame, 0 in an empty log."""
        return self._tip[0]

    @property
    def synced_lsn(self) -> int:
        """Every frame up to this LSN survives a crash."""
        return self._synced

    def continue_as(self, epoch: int) -> None:
        """Frames from here on carry this epoch: the number of the opening, which is known once the log was replayed."""
        self._epoch = epoch

    @property
    def last_epoch(self) -> int:
        """The highest epoch in the frames found on opening, 0 in an empty log."""
        return self._last_epoch

    def bytes_after(self, lsn: int) -> int:
        """Bytes of frames with a higher LSN; at most `LOG_MARK_BYTES` and one frame too many, never too few."""
        with self._append_lock:
            if lsn >= self._tip[0]:
                return 0
            place = bisect_right(self._mark_lsns, lsn) - 1
            return self._frame_bytes - (self._mark_bytes[place] if place >= 0 else 0)

    @property
    def frame_bytes(self) -> int:
        """Bytes of all frames that were read on opening or appended since."""
        return self._frame_bytes

    def statistics(self) -> dict[str, int]:
        """Counts and sizes of the log: LSNs, bytes, segments, syncs, and whether the disk is full (0 or 1)."""
        with self._append_lock:
            return {
                "appended_lsn": self._tip[0],
                "synced_lsn": self._synced,
                "segments": len(self._segments),
                "segment_bytes": sum(segment.size for segment in self._segments),
                "frame_bytes": self._frame_bytes,
                "spare_bytes": self._spare_zeroed if self._spare is not None else 0,
                "reserve_bytes": self._segment_bytes_first if self._has_reserve else 0,
                "cut_bytes": self._cut_bytes,
                "syncs": self._sync_count,
                "full": int(self._full),
            }

    def __repr__(self) -> str:
        state = "failed" if self._failure else "closed" if self._closed else "full" if self._full else "open"
        return f"<Log {self._files.describe()} {state}, LSN {self._tip[0]}, synced {self._synced}>"

    # ------------------------------------------------------------------------------------------------ writing

    def append(self, kind: int, payload: bytes, *, version: int = 1, codec: int = 0, reserve: bool = False) -> int:
        """Writes one frame and returns its LSN. It is durable once `sync` has returned this LSN or a higher one.

        `reserve` is for frames that must be written on a full disk too (leases, reports). Raises StoreFullError, before
        a byte is written, without space for this frame; StoreFailedError; ValueError when the payload is larger than a
        frame may be.
        """
        need = FRAME_HEADER_BYTES + len(payload)
        if need > FRAME_BYTES_MAX:
            raise ValueError(f"a payload of {len(payload)} bytes exceeds the largest frame; cut the batch")
        with self._append_lock:
            self._make_room(need, reserve=reserve)
            lsn = self._tip[0] + 1
            self._write(lsn, pack_frames([(lsn, self._synced, self._epoch, kind, version, codec, payload)]))
            return lsn

    def adopt(self, frames: bytes) -> int:
        """Writes frames of another copy of this log byte for byte, and returns the last LSN. They are durable after
        `sync`. Raises DamagedStoreError where they do not continue this log, or are not whole; as `append`."""
        rows, end, _ = scan_frames(frames)
        with self._append_lock:
            for offset, length, lsn, synced, *_ in rows:
                if lsn != self._tip[0] + 1 or synced >= lsn:
                    raise DamagedStoreError(
                        f"{self._files.describe()} ends at LSN {self._tip[0]}, and the next frame of its copy has LSN "
                        f"{lsn}; use a copy without a gap"
                    )
                self._make_room(FRAME_HEADER_BYTES + length, reserve=False)
                self._write(lsn, bytes(frames[offset - FRAME_HEADER_BYTES : offset + length]))
            if end != len(frames):
                raise DamagedStoreError(f"the copy of {self._files.describe()} ends inside LSN {self._tip[0] + 1}")
            return self._tip[0]

    def _make_room(self, need: int, *, reserve: bool) -> None:
        """Has `need` bytes free in the current segment; under the lock of appends. Raises StoreFullError."""
        self._check()
        if self._full and not reserve and not self._heal():
            self._refuse()
        if self._position + need > self._segments[-1].size:
            self._rotate(need, reserve=reserve)

    def _write(self, lsn: int, frame: bytes) -> None:
        """Writes the next frame, for which there is room; under the lock of appends."""
        current, need = self._current, len(frame)
        assert current is not None
        stale = bytes(max(0, self._stale_until - self._position - need))
        try:
            current.write_at(self._position, frame + stale if stale else frame)
        except StoreFullError as error:
            # Only where overwriting needs new space (copy-on-write file systems). The next frame covers the remains.
            self._stale_until = max(self._stale_until, self._position + need)
            self._set_full(error)
            raise
        except StoreError as error:
            self._fail(error)
        self._position += need
        if self._stale_until <= self._position:
            self._stale_until = 0
        self._tip = (lsn, current)
        self._count(lsn, need)
        if self._changelog is not None:
            try:
                self._changelog.append(lsn, frame)
            except StoreError as error:
                self._fail(error)
        if not self._full:
            self._prepare(need)

    def roll(self) -> None:
        """Starts a new segment when a checkpoint begins, so that the old segment can be dropped with the checkpoint.
        Does nothing where that does not pay, or where no segment is ready.

        Raises StoreFailedError.
        """
        with self._append_lock:
            self._check()
            worth = self._position >= self._segment_bytes_first
            if worth and not self._full and self._spare is not None and self._spare_zeroed >= self._segment_bytes_first:
                self._rotate(0, reserve=False)

    def sync(self) -> int:
        """Returns the synced LSN when every frame appended before the call is on the device.

        Any number of threads may call it. Threads that arrive during a sync share the next one. Raises
        StoreFailedError.
        """
        with self._sync_lock:
            self._check()
            lsn, current = self._tip
            for file in self._retired:
                file.close()
            self._retired.clear()
            if lsn > self._synced:
                assert current is not None
                try:
                    if self._changelog is not None:
                        self._changelog.begin(lsn)  # it is sent while the disk writes
                    current.sync()
                    if self._changelog is not None:
                        self._changelog.wait(lsn)
                except StoreError as error:
                    self._fail(error)
                self._sync_count += 1
                self._synced = lsn
                self._write_mirror(lsn)
                if self._spare is not None and self._spare_unsynced >= LOG_ZERO_BYTES_STEP:
                    # Zeros are written as they are made: all at once, they would delay one unlucky caller.
                    self._sync_spare(self._spare)
            return self._synced

    def room(self, *, reserve: bool = False) -> int:
        """The largest payload that one `append` certainly accepts now, in space that is already allocated.

        With `reserve`: the largest one for `append` with `reserve=True`.
        """
        with self._append_lock:
            if self._failure or self._closed or self._read_only:
                return 0
            if self._full and not reserve:
                return 0
            places = [self._segments[-1].size - self._position]
            if self._spare is not None and self._spare_zeroed >= self._segment_bytes_first:
                places.append(self._spare_zeroed - SEGMENT_HEADER_BYTES)
            if reserve and self._has_reserve:
                places.append(self._segment_bytes_first - SEGMENT_HEADER_BYTES)
            return max(0, max(places) - FRAME_HEADER_BYTES)

    def full(self) -> bool:
        """Whether no further segment fits. Then only appends with `reserve=True` succeed.

        Each read checks the free space again, so that the log recovers as soon as there is some.
        """
        with self._append_lock:
            if self._failure or self._closed or self._read_only:
                return False
            return self._full and not self._heal()

    def drop_through(self, lsn: int) -> None:
        """Removes the segments that contain nothing above `lsn`; never the current one. Appends do not wait for it.
        A segment that the disk does not remove is kept, with all later ones, until the next call, so that there is
        never a gap. Raises StoreFailedError where an earlier call failed."""
        with self._append_lock:
            self._check()
            gone: list[_Segment] = []
            while len(self._segments) > 1 and self._segments[1].first_lsn <= lsn + 1:
                gone.append(self._segments.pop(0))
            keep = max(bisect_right(self._mark_lsns, self._segments[0].first_lsn - 1) - 1, 0)
            del self._mark_lsns[:keep], self._mark_bytes[:keep]
        # The oldest first, without a sync: one that reappears after a crash is below the checkpoint and is skipped.
        for number, segment in enumerate(gone):
            if not remove_if_possible(self._files, segment.name):
                with self._append_lock:
                    self._segments[:0] = gone[number:]
                return

    def close(self) -> None:
        """Closes the descriptors. It syncs nothing: unsynced frames were not promised."""
        with self._append_lock, self._sync_lock:
            self._closed = True
            self._close_files()

    def _close_files(self) -> None:
        for file in (*self._retired, self._current, self._spare, self._mirror):
            if file is not None:
                file.close()
        self._retired.clear()
        self._current = self._spare = self._mirror = None

    def _check(self, *, reading: bool = False) -> None:
        if self._failure is not None:
            raise type(self._failure)(self._failure.facts)
        if self._closed:
            raise ClosedError(f"the log in {self._files.describe()}")
        if self._read_only and not reading:
            raise StoreError(f"{self._files.describe()} was opened for reading only")

    def _fail(self, error: StoreError) -> NoReturn:
        """Stops the log for good."""
        if isinstance(error, StoreFailedError):
            self._failure = error
            raise error
        self._failure = StoreFailedError(error.facts)
        raise self._failure from error

    def _count(self, lsn: int, length: int) -> None:
        if self._frame_bytes - self._mark_bytes[-1] >= LOG_MARK_BYTES:
            self._mark_lsns.append(lsn - 1)
            self._mark_bytes.append(self._frame_bytes)
        elif len(self._mark_lsns) == 1 and self._frame_bytes == 0:
            self._mark_lsns[0] = lsn - 1
        self._frame_bytes += length

    # ------------------------------------------------------------------------------------------------ the mirror

    def _read_mirror(self) -> int:
        """The highest LSN that the mirror says was synced; 0 when it is missing or torn by a power cut."""
        try:
            file = self._files.open(MIRROR_NAME)
        except FileNotFoundError:
            return 0
        try:
            slots = [file.read_at(turn * _MIRROR_STEP_BYTES, sealed_bytes(_MIRROR_SLOT)) for turn in (0, 1)]
        finally:
            file.close()
        best = 0
        for slot in slots:
            if not is_whole(slot, _MIRROR_SLOT):
                continue
            magic, store, lsn = _MIRROR_SLOT.unpack_from(slot)
            if magic == _MIRROR_MAGIC and store == self._store:
                best = max(best, lsn)
        return best

    def _open_mirror(self, lsn: int) -> None:
        try:
            self._mirror = self._files.open(MIRROR_NAME, create=True)
        except StoreError as error:
            if type(error) is not StoreFullError:
                raise
            return  # no space for it: the log lives without, and makes it at the next opening
        self._write_mirror(lsn)
        self._write_mirror(lsn)

    def _write_mirror(self, lsn: int) -> None:
        if self._mirror is None:
            return
        slot = _MIRROR_SLOT.pack(_MIRROR_MAGIC, self._store, lsn)
        try:
            self._mirror.write_at(self._mirror_turn * _MIRROR_STEP_BYTES, sealed(slot))
        except StoreFullError:
            return  # the older slot remains, which claims less
        except StoreError as error:
            self._fail(error)
        self._mirror_turn ^= 1

    # ------------------------------------------------------------------------------------------------ space

    def _rotate(self, need: int, *, reserve: bool) -> None:
        """Makes another segment the current one, with space for a frame of `need` bytes."""
        least = SEGMENT_HEADER_BYTES + need
        name, size = SPARE_NAME, 0
        if not self._finish_spare(least):
            if not (reserve and self._has_reserve and least <= self._segment_bytes_first):
                self._refuse()
            name, size = RESERVE_NAME, self._segment_bytes_first
        with self._sync_lock:
            # A segment begins only when everything before it is synced: so a torn tail is always in the last one.
            self.sync()
            try:
                if name == RESERVE_NAME:
                    file = self._files.open(RESERVE_NAME)
                    self._has_reserve = False
                else:
                    assert self._spare is not None
                    file, size, self._spare = self._spare, self._spare_size, None
                try:
                    self._install(file, name, size, self._tip[0] + 1)
                except BaseException:
                    file.close()
                    raise
            except TooManyFilesError:
                raise  # only the reserve is opened here, and it is still there
            except StoreError as error:
                self._fail(error)
            except FileNotFoundError as error:
                self._fail(StoreFailedError(f"{error.filename} was removed while the store was open"))

    def _install(self, file: File, name: str, size: int, first_lsn: int) -> None:
        header = _SEGMENT_HEADER.pack(_SEGMENT_MAGIC, SEGMENT_FORMAT, self._epoch, self._store, first_lsn)
        file.write_at(0, sealed(header))
        file.sync()
        segment = _Segment(first_lsn, segment_name(first_lsn), size)
        self._files.rename(name, segment.name)
        self._files.sync_directory()
        if self._segments and self._segments[-1].first_lsn == first_lsn:
            del self._segments[-1]  # it was empty and too small, and is replaced under its own name
        self._segments.append(segment)
        if self._current is not None:
            self._retired.append(self._current)
        self._current = file
        self._position = SEGMENT_HEADER_BYTES
        self._stale_until = 0
        self._tip = (self._tip[0], file)

    def _segment_size(self, free: int) -> int:
        """The size of the next segment: twice the last one, within its bounds and its share of the free space."""
        last = self._segments[-1].size if self._segments else 0
        return max(self._segment_bytes_first, min(2 * last, self._segment_bytes_max, free // LOG_SPACE_SHARE))

    def _prepare(self, appended: int = 0) -> None:
        """Zeroes the next segment at the pace at which this one fills, so that it is ready at three quarters.

        After opening it may be late. It then catches up by at most three times `appended`, or one step.
        """
        if self._spare is None and not self._begin_spare(self._segment_size(self._files.free_bytes())):
            return
        if self._spare_zeroed < self._spare_size:
            size = self._segments[-1].size
            goal = min(self._spare_size, LOG_ZERO_BYTES_STEP + self._position * self._spare_size * 4 // (3 * size))
            goal = min(goal, self._spare_zeroed + max(LOG_ZERO_BYTES_STEP, 3 * appended))
            if goal - self._spare_zeroed >= min(LOG_ZERO_BYTES_STEP, self._spare_size - self._spare_zeroed):
                self._grow_spare(goal)

    def _begin_spare(self, size: int) -> bool:
        """Opens the next segment; False, and full, when the free space is less than it needs."""
        free = self._files.free_bytes()
        if free < size:
            why = f"the log's next segment needs {size} bytes, {free} are free; free space on this file system"
            self._set_full(StoreFullError(why))
            return False
        try:
            self._spare = self._open_spare()
        except StoreFailedError as error:
            self._fail(error)
        except StoreError as error:
            self._set_full(error)
            return False
        self._spare_size, self._spare_zeroed, self._spare_unsynced = size, 0, 0
        return True

    def _grow_spare(self, goal: int) -> bool:
        """Zeroes the next segment up to `goal`, or a smallest one on a small disk. Returns False when it is full."""
        try:
            self._zero_spare(goal)
            return True
        except StoreFullError as error:
            self._full_why = error
            smaller = self._spare_size > self._segment_bytes_first
            self._discard_spare()
            if smaller and self._begin_spare(self._segment_bytes_first):
                return self._grow_spare(self._segment_bytes_first)
            self._set_full(self._full_why)
            return False
        except StoreError as error:
            self._fail(error)

    def _zero_spare(self, goal: int) -> None:
        assert self._spare is not None
        if goal > self._spare_zeroed:
            _write_zeros(self._spare, self._spare_zeroed, goal - self._spare_zeroed)
            self._spare_unsynced += goal - self._spare_zeroed
            self._spare_zeroed = goal

    def _finish_spare(self, least: int) -> bool:
        """Prepares the next segment with at least this number of bytes. Returns False without space on the disk."""
        if self._spare is None and not self._begin_spare(max(least, self._segment_size(self._files.free_bytes()))):
            return False
        if self._spare_zeroed >= max(least, self._segment_bytes_first):
            self._spare_size = self._spare_zeroed  # less than planned, but no call waits for the rest
            return True
        self._spare_size = max(self._spare_size, least)
        return self._grow_spare(self._spare_size) and self._spare_size >= least

    def _discard_spare(self) -> None:
        with self._sync_lock:
            if self._spare is not None:
                self._spare.close()
                self._spare = None
            self._spare_zeroed = self._spare_unsynced = 0
            remove_if_possible(self._files, SPARE_NAME)

    def _sync_spare(self, spare: File) -> None:
        self._spare_unsynced = 0
        try:
            spare.sync()
        except StoreError as error:
            self._fail(error)

    def _make_reserve(self) -> bool:
        """Has the reserve segment there and zero; False when the disk has no space for it.

        Raises StoreError where it is not space that lacks.
        """
        size = self._segment_bytes_first
        try:
            file = self._files.open(RESERVE_NAME, create=True)
        except StoreFailedError as error:
            self._fail(error)
        except StoreError as error:
            if type(error) is StoreFullError:
                return False
            raise
        try:
            have = file.size()
            if have > size:
                file.truncate(size)
            if have < size or _last_nonzero(file, 0, size) is not None:
                _write_zeros(file, 0, size)
            file.sync()
            self._files.sync_directory()
            return True
        except StoreFullError:
            remove_if_possible(self._files, RESERVE_NAME)
            return False
        except StoreError as error:
            self._fail(error)
        finally:
            file.close()

    def _set_full(self, why: StoreError) -> None:
        self._full = True
        self._full_why = why if isinstance(why, StoreFullError) else StoreFullError(why.facts)

    def _refuse(self) -> NoReturn:
        """Raises the reason for the missing space again."""
        raise type(self._full_why)(f"{self._files.describe()}: {self._full_why.facts}")

    def _heal(self) -> bool:
        """Tries to restore the reserve and the next segment. Returns True when the log is no longer full.

        Each call checks the free space. After a failure with free space (a quota), only some calls try again.
        """
        size = self._segment_bytes_first
        missing = (0 if self._has_reserve else size) + (0 if self._spare is not None else size)
        # Twice the missing space: space that is gone again with the next page would only make the state flap.
        if missing and self._files.free_bytes() < 2 * missing:
            return False
        if self._patience:
            self._patience -= 1
            return False
        if not self._has_reserve:
            try:
                self._has_reserve = self._make_reserve()
            except StoreFailedError:
                raise
            except StoreError as error:
                self._set_full(error)
        spare = self._has_reserve and (self._spare is not None or self._begin_spare(size))
        if spare and self._grow_spare(self._spare_size):
            self._full, self._full_why = False, StoreFullError()
            return True
        self._patience = LOG_SPACE_CHECK_REFUSALS
        return False


def _batches(file: File, begin: int, end: int) -> Iterator[tuple[bytes, int, list[_Row], int, int]]:
    """Yields the frames between two offsets of a file, until the bytes cannot be read as a frame.

    Each item is (buffer, its offset in the file, the rows of `scan_frames` in it, their end, why they end). A buffer is
    one read step, or one frame where that is larger.
    """
    position, want = begin, LOG_READ_BYTES
    while position < end:
        buffer = file.read_at(position, min(want, end - position))
        rows, stop, reason = scan_frames(buffer)
        yield buffer, position, rows, stop, reason
        if reason == BAD:
            return
        position += stop
        rest = len(buffer) - stop
        if reason == ZEROS and (rest >= _COVERED_FROM or position + rest >= end):
            return
        if rows or reason != SHORT:
            if not buffer:
                return
            want = LOG_READ_BYTES if rows else want * 2
            continue
        if len(buffer) < _LENGTH.size:
            return
        need = _COVERED_FROM + _LENGTH.unpack_from(buffer)[0]
        if position + need > end or len(buffer) >= need:
            return
        want = max(need, LOG_READ_BYTES)


def _last_nonzero(file: File, begin: int, end: int) -> int | None:
    """The offset of the last byte between two offsets that is not zero, None when all are."""
    while end > begin:
        step = max(begin, end - LOG_READ_BYTES)
        piece = file.read_at(step, end - step)
        if not _ZEROS.startswith(
            piece
        ):  # zeros are the rule: one comparison; a look at each byte would need 70 times as long
            return step + len(piece.rstrip(b"\0")) - 1
        end = step
    return None


def _write_zeros(file: File, offset: int, length: int) -> None:
    block = bytes(min(length, LOG_ZERO_BYTES_STEP))
    while length > 0:
        piece = block[:length]
        file.write_at(offset, piece)
        offset += len(piece)
        length -= len(piece)
