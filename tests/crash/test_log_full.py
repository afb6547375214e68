"""The log on a full disk: it refuses puts before a write, the reserve carries on, and space heals it."""

from __future__ import annotations

import errno
import random
from typing import Any

import pytest

from outrider.errors import StoreFullError
from outrider.sim.disk import CrashDisk, FaultyFiles
from outrider.storage.files import Files
from outrider.storage.log import RESERVE_NAME, SPARE_NAME, Log

STORE = b"full-disk--store"
CAPACITY = 64 << 10
FIRST = 4096


MIRROR_BYTES = 4096 + 36


class Quota(FaultyFiles):
    """A disk with a limit that shows in no free space."""

    def free_bytes(self) -> int:
        return 1 << 40

    def _write(self, name: str, node: Any, offset: int, data: bytes) -> None:
        growth = max(0, offset + len(data) - len(node.live))
        if self.capacity_bytes is not None and self.used_bytes() + growth > self.capacity_bytes + MIRROR_BYTES:
            raise StoreFullError(f"{self.describe(name)}: quota")
        super()._write(name, node, offset, data)


def opened(files: Files) -> Log:
    return Log.open(files, store=STORE, epoch=1, segment_bytes_first=FIRST, segment_bytes_max=16 << 10)


def fill(log: Log, *, reserve: bool = False) -> list[bytes]:
    """Appends until the log refuses; returns the accepted frames."""
    taken: list[bytes] = []
    while True:
        payload = b"%06d" % log.appended_lsn + bytes(200)
        try:
            log.append(1, payload, reserve=reserve)
        except StoreFullError:
            return taken
        taken.append(payload)
        assert len(taken) < 10_000


def payloads(log: Log) -> list[bytes]:
    return [frame.payload for frame in log.replay(0)]


def test_a_full_disk_refuses_puts_before_anything_is_written() -> None:
    files = FaultyFiles(capacity_bytes=CAPACITY)
    log = opened(files)
    fill(log)
    before, lsn = files.contents(), log.appended_lsn
    with pytest.raises(StoreFullError, match="free space on this file system"):
        log.append(1, b"x")
    assert (before, lsn, True, 0) == (files.contents(), log.appended_lsn, log.full(), log.room())


def test_the_refusal_is_retryable_and_the_log_stays_alive() -> None:
    log = opened(FaultyFiles(capacity_bytes=CAPACITY))
    fill(log)
    with pytest.raises(StoreFullError) as caught:
        log.append(1, b"x")
    assert (True, log.appended_lsn) == (caught.value.retryable, log.sync())


def test_all_space_of_the_disk_is_used_before_it_counts_as_full() -> None:
    files = FaultyFiles(capacity_bytes=CAPACITY)
    taken = fill(opened(files))
    assert sum(map(len, taken)) > CAPACITY // 2


def test_leases_and_reports_use_the_rest_of_the_segment_and_the_reserve() -> None:
    files = FaultyFiles(capacity_bytes=CAPACITY)
    log = opened(files)
    taken = fill(log)
    assert RESERVE_NAME in files.names()
    more = fill(log, reserve=True)
    assert sum(map(len, more)) > FIRST // 2
    assert RESERVE_NAME not in files.names()
    log.sync()
    log.close()
    files.capacity_bytes = None
    assert taken + more == payloads(opened(files))


def test_an_append_into_the_reserve_never_requests_space_from_the_disk() -> None:
    files = FaultyFiles(capacity_bytes=CAPACITY)
    log = opened(files)
    fill(log)
    files.fill(CAPACITY)  # other programs used the last byte as well
    used = files.used_bytes()
    assert len(fill(log, reserve=True)) > 10
    assert used == files.used_bytes()


def test_room_is_the_size_that_an_append_certainly_accepts() -> None:
    files = FaultyFiles(capacity_bytes=CAPACITY)
    log = opened(files)
    rng = random.Random(1)
    while not log.full():
        files.capacity_bytes = files.used_bytes()  # not a byte more
        room = log.room()
        lsn = log.append(1, bytes(min(room, rng.choice([room, 100, 1000]))))
        assert lsn == log.appended_lsn
        files.capacity_bytes = CAPACITY
    while log.room(reserve=True) > 0:
        log.append(1, bytes(log.room(reserve=True)), reserve=True)
    with pytest.raises(StoreFullError):
        log.append(1, b"", reserve=True)


@pytest.mark.parametrize("asked", [True, False])
def test_when_space_returns_the_log_heals_by_itself_and_makes_its_reserve_anew(asked: bool) -> None:
    files = FaultyFiles(capacity_bytes=CAPACITY)
    log = opened(files)
    taken = fill(log) + fill(log, reserve=True)
    files.capacity_bytes = 4 * CAPACITY
    if asked:
        assert not log.full()
    log.append(1, b"goes again")
    assert (False, True) == (log.full(), RESERVE_NAME in files.names())
    log.sync()
    log.close()
    assert [*taken, b"goes again"] == payloads(opened(files))


def test_dropping_old_segments_heals_a_log_on_its_own_disk() -> None:
    files = FaultyFiles(capacity_bytes=CAPACITY)
    log = opened(files)
    fill(log)
    log.drop_through(log.appended_lsn)
    assert not log.full()
    assert len(fill(log)) > 20


def test_a_little_space_does_not_make_the_state_flap() -> None:
    files = FaultyFiles(capacity_bytes=CAPACITY)
    log = opened(files)
    fill(log)
    files.capacity_bytes = files.used_bytes() + FIRST
    assert log.full()


def test_a_quota_that_shows_in_no_free_space_is_tried_only_now_and_then() -> None:
    files = Quota(capacity_bytes=CAPACITY)
    log = opened(files)
    fill(log)
    files.calls.clear()
    for _ in range(170):
        with pytest.raises(StoreFullError):
            log.append(1, b"x")
    attempts = [name for verb, name in files.calls if verb == "open" and name == SPARE_NAME]
    assert len(attempts) <= 11
    files.capacity_bytes = 4 * CAPACITY
    healed_after = next(number for number in range(40) if not log.full())
    assert healed_after <= 17


def test_a_small_segment_is_made_where_a_larger_one_finds_no_space() -> None:
    files = Quota(capacity_bytes=FIRST * 3)  # the first segment, the reserve, and not the two for the next one
    log = opened(files)
    assert 0 == log.statistics()["full"]
    while log.statistics()["segments"] == 1:
        log.append(1, bytes(200))
    assert (3 * FIRST, 2 * FIRST) == (files.used_bytes() - MIRROR_BYTES, log.statistics()["segment_bytes"])


def test_a_report_larger_than_the_reserve_is_refused_and_the_reserve_kept() -> None:
    files = FaultyFiles(capacity_bytes=CAPACITY)
    log = opened(files)
    fill(log)
    lsn = log.appended_lsn
    with pytest.raises(StoreFullError):
        log.append(1, bytes(FIRST), reserve=True)
    assert (True, lsn + 1) == (RESERVE_NAME in files.names(), log.append(1, b"small", reserve=True))


def test_a_frame_without_a_segment_of_its_size_is_refused_and_smaller_ones_are_accepted() -> None:
    files = FaultyFiles(capacity_bytes=CAPACITY)
    log = opened(files)
    with pytest.raises(StoreFullError):
        log.append(1, bytes(CAPACITY))
    assert (1, False) == (log.append(1, b"small"), log.full())


def test_a_disk_too_small_for_a_log_is_refused_and_left_empty() -> None:
    files = FaultyFiles(capacity_bytes=FIRST + 100)
    with pytest.raises(StoreFullError):
        opened(files)
    assert [] == files.names()


def test_a_log_opens_on_a_full_disk_and_accepts_frames_that_fit() -> None:
    files = FaultyFiles(capacity_bytes=CAPACITY)
    log = opened(files)
    taken = fill(log)
    log.sync()
    log.close()
    files.fill(CAPACITY)
    log = opened(files)
    assert (taken, True) == (payloads(log), log.full())
    assert len(fill(log, reserve=True)) > 10


def test_overwriting_that_needs_space_after_all_is_refused_and_leaves_no_remains() -> None:
    """Copy-on-write file systems: half a frame is there, and the next, shorter one covers it."""
    files = FaultyFiles()
    log = opened(files)
    log.append(1, b"before")
    files.fail(1, errno.ENOSPC, verb="write", partial=True)
    with pytest.raises(StoreFullError):
        log.append(1, b"\xff" * 500)
    name = next(name for name in files.names() if name.startswith("log-"))
    assert b"\xff\xff" in files.contents()[name]
    log.append(1, b"after")
    assert b"\xff\xff" not in files.contents()[name]
    log.sync()
    log.close()
    assert [b"before", b"after"] == payloads(opened(files))


def test_frames_in_the_reserve_survive_every_crash() -> None:
    for stop in range(1, 40, 3):
        disk = CrashDisk(capacity_bytes=CAPACITY)
        log = opened(disk)
        taken = fill(log)
        log.sync()
        synced = list(taken)
        for number in range(stop):
            payload = b"report %d" % number + bytes(180)
            try:
                log.append(1, payload, reserve=True)
            except StoreFullError:
                break
            taken.append(payload)
            if number % 5 == 0:
                log.sync()
                synced = list(taken)
        synced = taken[: log.synced_lsn]
        for image in disk.crash_images(random.Random(stop), 4):
            found = payloads(opened(image))
            assert synced == found[: len(synced)]
            assert taken[: len(found)] == found
