"""The log from outside: LSNs, segments, replay, group sync, refusals."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path

import pytest

import outrider.storage.log as log_room
from limiting import set_limits
from outrider.errors import ClosedError, DamagedStoreError, ForeignStoreError, StoreError, StoreFailedError
from outrider.kernels import FRAME_HEADER_BYTES, crc32c, pack_frames
from outrider.sim.disk import CrashDisk, FaultyFiles
from outrider.storage.files import Directory, Files
from outrider.storage.log import MIRROR_NAME, SEGMENT_HEADER_BYTES, Frame, Log, segment_name

STORE = bytes(range(16))


def opened(files: Files, *, after: int = 0, epoch: int = 1, first: int = 1024, largest: int = 4096) -> Log:
    return Log.open(files, store=STORE, epoch=epoch, after=after, segment_bytes_first=first, segment_bytes_max=largest)


def payloads(log: Log, after: int = 0) -> list[bytes]:
    return [frame.payload for frame in log.replay(after)]


def segments(files: Files) -> list[str]:
    return [name for name in files.names() if name.startswith("log-")]


def filled(files: Files, count: int, length: int = 100) -> Log:
    log = opened(files)
    for number in range(1, count + 1):
        log.append(1, b"%d " % number * (length // (len(str(number)) + 1)))
        log.sync()
    return log


def test_a_new_log_is_empty() -> None:
    log = opened(FaultyFiles())
    assert (0, 0, []) == (log.appended_lsn, log.synced_lsn, payloads(log))


def test_lsns_are_contiguous_from_one() -> None:
    log = opened(FaultyFiles())
    assert [1, 2, 3] == [log.append(1, b"x") for _ in range(3)]


def test_a_frame_is_read_with_every_field() -> None:
    files = FaultyFiles()
    log = opened(files, epoch=7)
    log.append(3, b"first", version=2, codec=1)
    log.sync()
    log.append(255, b"", version=255, codec=255)
    expected = [Frame(1, 0, 7, 3, 2, 1, b"first"), Frame(2, 1, 7, 255, 255, 255, b"")]
    assert expected == list(log.replay(0))
    log.close()
    assert expected == list(opened(files).replay(0))


def test_an_appended_frame_counts_as_synced_only_after_sync_says_so() -> None:
    log = opened(FaultyFiles())
    log.append(1, b"x")
    log.append(1, b"y")
    before = (log.appended_lsn, log.synced_lsn)
    assert ((2, 0), 2, 2) == (before, log.sync(), log.synced_lsn)


def test_a_sync_reaches_the_file_after_the_last_write() -> None:
    """The order that makes an acknowledgement true. No optimisation may remove this sync."""
    files = FaultyFiles()
    log = opened(files)
    name = segment_name(1)
    files.calls.clear()
    log.append(1, b"x")
    log.append(1, b"y")
    log.sync()
    of_segment = [verb for verb, of in files.calls if of != MIRROR_NAME]
    assert ["write", "write", "sync"] == of_segment, name


def test_the_mirror_is_written_only_after_its_sync() -> None:
    files = FaultyFiles()
    log = opened(files)
    log.append(1, b"x")
    files.calls.clear()
    log.sync()
    assert ["sync", "write"] == [verb for verb, _ in files.calls]
    assert MIRROR_NAME == files.calls[1][1]


def test_a_sync_without_new_frames_does_not_use_the_disk() -> None:
    files = FaultyFiles()
    log = opened(files)
    log.append(1, b"x")
    log.sync()
    files.calls.clear()
    assert (1, []) == (log.sync(), files.calls)


def test_replay_begins_after_the_given_lsn() -> None:
    log = filled(FaultyFiles(), 60)
    assert [58, 59, 60] == [frame.lsn for frame in log.replay(57)]
    assert list(range(1, 61)) == [frame.lsn for frame in log.replay(0)]
    assert [] == list(log.replay(60))


def test_replay_of_an_open_log_ends_where_it_began() -> None:
    log = filled(FaultyFiles(), 5)
    replaying = log.replay(0)
    first = next(replaying)
    log.append(1, b"later")
    assert [1, 2, 3, 4, 5] == [first.lsn] + [frame.lsn for frame in replaying]


@pytest.mark.parametrize("which", [0, 1, -1])
def test_replay_of_a_log_damaged_since_opening_is_refused(which: int) -> None:
    files = FaultyFiles()
    log = filled(files, 60)
    name = segments(files)[which]
    content = bytearray(files.contents()[name])
    content[300] ^= 1
    files.put(name, bytes(content))
    replayed: list[int] = []
    with pytest.raises(DamagedStoreError, match=rf"{name} at byte \d+: LSN \d+ cannot be read back"):
        replayed.extend(frame.lsn for frame in log.replay(0))


def test_replay_never_passes_a_frame_of_another_lsn() -> None:
    files = FaultyFiles()
    log = opened(files)
    for payload in (b"one", b"two"):
        log.append(1, payload)
    content = bytearray(files.contents()[segment_name(1)])
    content[64 : 64 + 2 * 34] = pack_frames([(1, 0, 1, 1, 1, 0, b"one")]) * 2
    files.put(segment_name(1), bytes(content))
    with pytest.raises(DamagedStoreError, match="at byte 98: LSN 2 cannot be read back"):
        list(log.replay(0))


def test_segments_double_up_to_their_largest_and_are_named_by_their_first_lsn() -> None:
    files = FaultyFiles()
    filled(files, 100)
    contents = files.contents()
    sizes = [len(contents[name]) for name in segments(files)]
    assert [1024, 2048, 4096, 4096, 4096] == sizes
    assert "log-0000000000000001.seg" == segments(files)[0]


def test_segments_are_filled_with_zeros_before_they_are_used() -> None:
    files = FaultyFiles()
    log = opened(files)
    log.append(1, b"payload")
    content = files.contents()[segment_name(1)]
    assert (
        bytes(1024 - SEGMENT_HEADER_BYTES - FRAME_HEADER_BYTES - 7)
        == content[SEGMENT_HEADER_BYTES + FRAME_HEADER_BYTES + 7 :]
    )


def test_the_next_segment_exists_before_the_current_one_is_full() -> None:
    files = FaultyFiles()
    log = opened(files)
    while log.statistics()["segments"] == 1:
        before = files.contents()
        log.append(1, bytes(100))
    assert 2048 == len(before["next.seg"])


def test_after_opening_the_next_segment_is_completed_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A single step would delay the first caller. Until the segment is whole, the finished part serves as a smaller
    one."""
    set_limits(monkeypatch, LOG_ZERO_BYTES_STEP=256)
    files = FaultyFiles()
    log = opened(files, first=1024, largest=16384)
    while log._segments[-1].size < 16384 or log._position < 15_000:
        log.append(1, bytes(100))
    log.sync()
    log.close()
    log = opened(files, first=1024, largest=16384)
    sizes = [len(files.contents()["next.seg"])]
    segment_count = log.statistics()["segments"]
    while log.statistics()["segments"] == segment_count:
        log.append(1, bytes(100))
        sizes.append(len(files.contents().get("next.seg", b"")))
    steps = [after - before for before, after in pairwise(sizes[:-1])]
    assert (256, True) == (sizes[0], max(steps) <= 3 * (100 + FRAME_HEADER_BYTES))
    count = log.appended_lsn
    log.sync()
    log.close()
    assert count == len(payloads(opened(files)))


def test_appending_into_prepared_space_never_changes_a_files_size() -> None:
    """A change of size would make each sync a commit of the journal too."""
    files = FaultyFiles()
    log = opened(files)
    sizes = {name: len(data) for name, data in files.contents().items()}
    for _ in range(6):
        log.append(1, bytes(100))
        log.sync()
    assert sizes == {name: len(data) for name, data in files.contents().items()}


def test_a_frame_larger_than_a_segment_gets_one_of_its_own_size() -> None:
    files = FaultyFiles()
    log = opened(files)
    log.append(1, b"small")
    log.append(1, b"L" * 20_000)
    log.append(1, b"after")
    log.sync()
    log.close()
    assert [b"small", b"L" * 20_000, b"after"] == payloads(opened(files))


def test_a_large_first_frame_replaces_the_empty_first_segment() -> None:
    files = FaultyFiles()
    log = opened(files)
    log.append(1, b"L" * 20_000)
    log.sync()
    log.close()
    assert ([b"L" * 20_000], 1) == (payloads(opened(files)), len(segments(files)))


def test_the_current_segment_is_never_dropped_even_when_it_replaced_an_empty_one() -> None:
    files = FaultyFiles()
    log = opened(files)
    log.append(1, b"L" * 20_000)
    log.drop_through(1)
    assert (1, 1) == (len(segments(files)), log.statistics()["segments"])


def test_a_segment_that_cannot_be_removed_stays_with_the_later_ones_until_the_next_time() -> None:
    """The removal of the second one is refused: no gap is left, in this process or the next, and the log continues."""
    files = FaultyFiles()
    log = filled(files, 60)
    before = segments(files)
    assert len(before) > 3
    files.fail(2, errno.EIO, verb="remove")
    log.drop_through(60)
    assert before[1:] == segments(files)
    log.append(1, b"goes on")
    log.sync()
    first = int(before[1][4:-4], 16)
    assert list(range(first, 62)) == [frame.lsn for frame in log.replay(first - 1)]
    log.close()
    again = opened(files, after=60)
    assert list(range(first, 62)) == [frame.lsn for frame in again.replay(first - 1)]
    again.drop_through(60)
    assert before[-1:] == segments(files)


def test_a_spare_segment_of_an_earlier_process_that_cannot_be_removed_is_emptied() -> None:
    """Otherwise its frames could be after those of the segment that is made of it."""
    files = FaultyFiles()
    log = filled(files, 3)
    log.close()
    with_frames = files.contents()[segment_name(1)]
    files.put("next.seg", with_frames)
    files.fail(1, errno.EIO, verb="remove")
    log = opened(files)
    for number in range(4, 20):
        log.append(1, b"%d" % number * 50)
        log.sync()
    log.close()
    assert 19 == len(payloads(opened(files)))


def test_a_whole_frame_out_of_sequence_is_not_part_of_the_log() -> None:
    """The remains of an earlier process would look like this."""
    files = FaultyFiles()
    log = opened(files)
    log.append(1, b"first")
    end = log._position
    log.close()
    for lsn in (1, 3, 2**63):
        content = bytearray(files.contents()[segment_name(1)])
        stale = pack_frames([(lsn, 0, 1, 1, 1, 0, b"stale")])
        content[end : end + len(stale)] = stale
        files.put(segment_name(1), bytes(content))
        assert [b"first"] == payloads(opened(files))


def test_a_frame_may_fill_its_segment_to_the_last_byte() -> None:
    files = FaultyFiles()
    log = opened(files)
    log.append(1, b"x" * (1024 - SEGMENT_HEADER_BYTES - FRAME_HEADER_BYTES))
    assert 1 == log.statistics()["segments"]
    log.append(1, b"y")
    log.sync()
    log.close()
    assert [961 - 32, 1] == [len(payload) for payload in payloads(opened(files))]


def test_frames_larger_than_a_read_step_are_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, LOG_READ_BYTES=64)
    files = FaultyFiles()
    log = opened(files)
    written = [bytes([number]) * (number * 13 % 300) for number in range(80)]
    for payload in written:
        log.append(1, payload)
    log.sync()
    log.close()
    assert written == payloads(opened(files))


def test_a_payload_above_the_largest_frame_is_refused_before_any_byte_is_written(monkeypatch) -> None:
    monkeypatch.setattr("outrider.storage.log.FRAME_BYTES_MAX", 4096)
    log = opened(FaultyFiles())
    with pytest.raises(ValueError, match="cut the batch"):
        log.append(1, bytes(4096))
    assert 1 == log.append(1, b"x")


def test_lsns_continue_after_reopening() -> None:
    files = FaultyFiles()
    filled(files, 12).close()
    log = opened(files, epoch=2)
    assert (12, 12, 13) == (log.appended_lsn, log.synced_lsn, log.append(1, b"x"))
    assert [1] * 12 + [2] == [frame.epoch for frame in log.replay(0)]


def test_the_highest_epoch_in_the_log_is_reported() -> None:
    files = FaultyFiles()
    filled(files, 2).close()
    log = opened(files, epoch=9)
    log.append(1, b"x")
    assert (1, 9) == (log.last_epoch, opened(files, epoch=10).last_epoch)


def test_frames_found_on_opening_are_synced_before_they_are_returned() -> None:
    """After kill -9 the tail may be only in the cache, and a replay depends on it."""
    disk = CrashDisk()
    log = opened(disk)
    log.append(1, b"never synced")
    reopened = opened(disk)
    assert (1, [b"never synced"]) == (reopened.synced_lsn, payloads(reopened))
    nothing_unsynced_survives = next(disk.crash_images(random_none(), 0))
    assert [b"never synced"] == payloads(opened(nothing_unsynced_survives))


def random_none():
    import random

    return random.Random(0)


def test_frames_above_the_sync_point_are_written_again_on_opening() -> None:
    """A failed sync may leave them only in the cache, marked clean. Another sync would not write them."""
    files = FaultyFiles()
    log = opened(files)
    log.append(1, b"synced")
    log.sync()
    log.append(1, b"not synced")
    files.calls.clear()
    opened(files)
    name = segment_name(1)
    assert [("write", name), ("sync", name)] == [call for call in files.calls if call[1] == name]


def test_dropping_removes_whole_older_segments_but_never_the_current_one() -> None:
    files = FaultyFiles()
    log = filled(files, 60)
    firsts = [int(name[4:20], 16) for name in segments(files)]
    log.drop_through(firsts[2] - 2)
    assert firsts[1:] == [int(name[4:20], 16) for name in segments(files)]
    log.drop_through(firsts[2] - 1)
    assert firsts[2:] == [int(name[4:20], 16) for name in segments(files)]
    log.drop_through(10_000)
    assert firsts[-1:] == [int(name[4:20], 16) for name in segments(files)]
    assert 61 == log.append(1, b"x")


def test_a_log_whose_beginning_was_dropped_opens_after_the_checkpoint() -> None:
    files = FaultyFiles()
    log = filled(files, 60)
    log.drop_through(40)
    log.close()
    reopened = opened(files, after=40)
    assert list(range(41, 61)) == [frame.lsn for frame in reopened.replay(40)]


def test_segments_below_the_checkpoint_are_not_read() -> None:
    files = FaultyFiles()
    filled(files, 60).close()
    first = segments(files)[0]
    spoiled = bytearray(files.contents()[first])
    spoiled[200] ^= 1
    files.put(first, bytes(spoiled))
    assert 60 == opened(files, after=40).appended_lsn
    with pytest.raises(DamagedStoreError):
        opened(files, after=0)


def test_bytes_after_never_returns_too_few_and_is_nearly_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, LOG_MARK_BYTES=300)
    files = FaultyFiles()
    log = filled(files, 60)
    for one in (log, opened(files)):
        sizes = {frame.lsn: FRAME_HEADER_BYTES + len(frame.payload) for frame in one.replay(0)}
        for lsn in range(61):
            exact = sum(size for at, size in sizes.items() if at > lsn)
            assert exact <= one.bytes_after(lsn) <= exact + 300 + max(sizes.values())
        assert (sum(sizes.values()), 0) == (one.bytes_after(0), one.bytes_after(60))


def test_threads_that_wait_for_one_sync_share_the_next() -> None:
    """Ten callers during one slow sync: one more sync serves the nine that arrived meanwhile."""
    files = FaultyFiles()
    log = opened(files)
    gate, entered = threading.Event(), threading.Event()
    plain = files._sync

    def slow(name, node):
        entered.set()
        gate.wait(10)
        plain(name, node)

    files._sync = slow  # type: ignore[method-assign]
    log.append(1, b"first")
    answers: list[int] = []
    first = threading.Thread(target=lambda: answers.append(log.sync()))
    first.start()
    entered.wait(10)
    lsns = [log.append(1, b"more") for _ in range(9)]
    rest = [threading.Thread(target=lambda: answers.append(log.sync())) for _ in lsns]
    for thread in rest:
        thread.start()
    gate.set()
    for thread in (first, *rest):
        thread.join(10)
    assert (10, 1, 10, 2) == (len(answers), min(answers), max(answers), log.statistics()["syncs"])


def test_many_threads_append_and_sync_and_every_answer_is_true(tmp_path: Path) -> None:
    directory = Directory(tmp_path / "store")
    log = opened(directory, first=4096, largest=16384)
    failures: list[str] = []
    acknowledged: dict[int, bytes] = {}

    def work(worker: int) -> None:
        for number in range(100):
            payload = b"%d/%d" % (worker, number) * 5
            lsn = log.append(1, payload)
            synced = log.sync()
            if synced < lsn:
                failures.append(f"{lsn} acknowledged at {synced}")
            acknowledged[lsn] = payload

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    log.close()
    found = {frame.lsn: frame.payload for frame in opened(directory, first=4096, largest=16384).replay(0)}
    assert ([], 400, acknowledged) == (failures, len(acknowledged), found)


def test_a_failed_sync_stops_the_log_for_good() -> None:
    files = FaultyFiles()
    log = opened(files)
    log.append(1, b"x")
    files.fail(1, errno.EIO, verb="sync")
    for call in (log.sync, log.sync, lambda: log.append(1, b"y"), lambda: log.append(1, b"y", reserve=True)):
        with pytest.raises(StoreFailedError, match="Input/output error"):
            call()
    with pytest.raises(StoreFailedError):
        log.drop_through(1)
    with pytest.raises(StoreFailedError):
        list(log.replay(0))
    assert (0, 0) == (log.synced_lsn, log.room())


def test_a_failed_write_stops_the_log_for_good() -> None:
    files = FaultyFiles()
    log = opened(files)
    files.fail(1, errno.EIO, verb="write")
    for call in (lambda: log.append(1, b"x"), lambda: log.append(1, b"x"), log.sync):
        with pytest.raises(StoreFailedError):
            call()


def test_no_space_during_a_sync_is_a_failure_and_not_a_full_disk() -> None:
    files = FaultyFiles()
    log = opened(files)
    log.append(1, b"x")
    files.fail(1, errno.ENOSPC, verb="sync")
    with pytest.raises(StoreFailedError):
        log.sync()


def test_a_closed_log_raises_an_error() -> None:
    log = opened(FaultyFiles())
    log.close()
    for call in (log.sync, lambda: log.append(1, b"x"), lambda: list(log.replay(0))):
        with pytest.raises(ClosedError):
            call()


def test_a_read_only_opening_shows_all_whole_frames_and_changes_no_file() -> None:
    files = FaultyFiles()
    log = filled(files, 20)
    files.put(MIRROR_NAME, b"")
    name = segments(files)[-1]
    before = files.contents()
    torn = before[name][: log._position] + b"\x40\0\0\0torn"
    files.put(name, torn + bytes(len(before[name]) - len(torn)))
    before = files.contents()
    files.calls.clear()
    reader = Log.open(files, store=STORE, epoch=0, read_only=True)
    assert (20, 20) == (reader.appended_lsn, len(payloads(reader)))
    with pytest.raises(StoreError, match="reading only"):
        reader.append(1, b"x")
    assert ([], before) == (files.calls, files.contents())


def test_a_read_only_opening_of_an_empty_directory_makes_no_files() -> None:
    files = FaultyFiles()
    reader = Log.open(files, store=STORE, epoch=0, read_only=True)
    assert ([], []) == (payloads(reader), files.names())


def refused(files: FaultyFiles, words: str, *, after: int = 0, kind: type[StoreError] = DamagedStoreError) -> None:
    """Opening fails with this message and leaves every byte unchanged."""
    before = files.contents()
    files.calls.clear()
    with pytest.raises(kind, match=words):
        opened(files, after=after)
    assert ([], before) == (files.calls, files.contents())


def test_a_missing_middle_segment_is_refused() -> None:
    files = FaultyFiles()
    filled(files, 60).close()
    files.drop(segments(files)[1])
    refused(files, r"log-0000000000000001\.seg at byte \d+: the frames end at LSN \d+, but LSN \d+ was synced")


def test_a_missing_first_segment_is_refused() -> None:
    files = FaultyFiles()
    filled(files, 60).close()
    files.drop(segments(files)[0])
    refused(files, r"begins at LSN \d+, but the checkpoint reaches only to LSN 0")


def test_a_missing_last_segment_is_refused() -> None:
    files = FaultyFiles()
    filled(files, 60).close()
    files.drop(segments(files)[-1])
    refused(files, r"but LSN 60 was synced; a segment is missing or was replaced by an older copy")


def test_a_log_without_segments_is_refused_when_there_were_some() -> None:
    files = FaultyFiles()
    filled(files, 60).close()
    for name in segments(files):
        files.drop(name)
    refused(files, "no log segment, but frames up to LSN 60 were synced")
    files.drop(MIRROR_NAME)
    refused(files, "no log segment, but frames up to LSN 44 were synced", after=44)


def test_an_older_copy_of_the_last_segment_is_refused() -> None:
    files = FaultyFiles()
    log = filled(files, 3)
    older = files.contents()[segment_name(1)]
    log.append(1, b"newer")
    log.sync()
    log.close()
    files.put(segment_name(1), older)
    refused(files, "the frames end at LSN 3, but LSN 4 was synced")


def test_an_older_copy_of_a_middle_segment_is_refused() -> None:
    files = FaultyFiles()
    log = filled(files, 3)
    older = files.contents()[segment_name(1)]
    while log.statistics()["segments"] < 3:
        log.append(1, bytes(100))
    log.sync()
    log.close()
    files.put(segment_name(1), older)
    refused(files, "at byte .*: the frames end at LSN 3")


def test_a_segment_older_than_the_checkpoint_is_refused() -> None:
    files = FaultyFiles()
    filled(files, 3).close()
    files.drop(MIRROR_NAME)
    refused(files, "the frames end at LSN 3, but LSN 5 was synced", after=5)


def test_a_log_that_ends_below_an_lsn_that_was_synced_is_refused() -> None:
    files = FaultyFiles()
    filled(files, 3).close()
    files.drop(MIRROR_NAME)
    with pytest.raises(DamagedStoreError, match="the frames end at LSN 3, but LSN 4 was synced"):
        Log.open(files, store=STORE, epoch=1, synced=4)
    assert 3 == Log.open(files, store=STORE, epoch=1, synced=3).appended_lsn


def test_swapped_segments_are_refused() -> None:
    files = FaultyFiles()
    filled(files, 60).close()
    one, other = segments(files)[1:3]
    contents = files.contents()
    files.put(one, contents[other])
    files.put(other, contents[one])
    refused(files, f"{re.escape(one)} at byte 32: the segment begins at LSN .* it was renamed")


def test_a_segment_of_another_store_is_refused() -> None:
    files, foreign = FaultyFiles(), FaultyFiles()
    filled(files, 3).close()
    Log.open(foreign, store=b"F" * 16, epoch=1, segment_bytes_first=1024).close()
    files.put(segment_name(1), foreign.contents()[segment_name(1)])
    refused(files, rf"log-0000000000000001\.seg at byte 16 belongs to another store \({(b'F' * 16).hex()}")


def test_a_segment_of_a_newer_format_is_refused_with_both_versions() -> None:
    files = FaultyFiles()
    filled(files, 3).close()
    content = bytearray(files.contents()[segment_name(1)])
    content[8:12] = (2).to_bytes(4, "little")
    content[60:64] = crc32c(bytes(content[:60])).to_bytes(4, "little")
    files.put(segment_name(1), bytes(content))
    refused(files, "log format 2; this version reads up to 1", kind=ForeignStoreError)


def test_a_spare_segment_of_an_earlier_process_never_becomes_a_segment() -> None:
    files = FaultyFiles()
    log = filled(files, 3)
    log.close()
    files.put("next.seg", b"\xff" * 20_000)
    files.put("reserve.seg", b"\xff" * 1024)
    log = opened(files)
    for _ in range(40):
        log.append(1, bytes(100))
    log.sync()
    assert 43 == len(payloads(opened(files)))
    assert bytes(1024) == files.contents()["reserve.seg"]
    assert {1024, 2048, 4096} == {len(files.contents()[name]) for name in segments(files)}


def test_two_logs_in_one_directory_are_prevented_by_its_lock_even_after_kill_9(tmp_path: Path) -> None:
    script = """
import sys
from outrider.storage.files import Directory
from outrider.storage.log import Log
directory = Directory(sys.argv[1])
directory.lock()
log = Log.open(directory, store=bytes(range(16)), epoch=1)
for number in range(50):
    log.append(1, b"payload %d" % number)
    print(log.sync(), flush=True)
sys.stdin.read()
"""
    source = str(Path(log_room.__file__).parents[2])
    owner = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "store")],
        env={**os.environ, "PYTHONPATH": source},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    acknowledged = [int(owner.stdout.readline()) for _ in range(50)]
    os.kill(owner.pid, signal.SIGKILL)
    owner.communicate()
    directory = Directory(tmp_path / "store")
    directory.lock()
    log = Log.open(directory, store=STORE, epoch=2)
    assert (list(range(1, 51)), [b"payload %d" % number for number in range(50)]) == (acknowledged, payloads(log))


def test_segments_dropped_during_a_replay_are_skipped() -> None:
    """A checkpoint that was completed meanwhile covers it."""
    files = FaultyFiles()
    log = filled(files, 100)
    assert len(segments(files)) >= 3
    frames = log.replay(0)
    assert next(frames).lsn == 1
    log.drop_through(100)
    assert len(segments(files)) == 1
    assert [frame.lsn for frame in frames][-1] == 100
    files.drop(segments(files)[0])
    with pytest.raises(FileNotFoundError):
        payloads(log)


def test_a_log_starts_a_new_segment_where_that_is_worth_it() -> None:
    files = FaultyFiles()
    log = opened(files, first=1024, largest=1 << 20)
    log.append(1, b"few")
    log.roll()
    assert len(segments(files)) == 1
    for _ in range(30):
        log.append(1, bytes(300))
    before = segments(files)
    log.roll()
    assert [*before, segment_name(32)] == segments(files)
    assert log.synced_lsn == 31, "what was in the one before is on the device"
    log.drop_through(31)
    assert [segment_name(32)] == segments(files)
    log.append(1, b"more")
    log.sync()
    log.close()
    assert [b"more"] == payloads(opened(files, after=31), after=31)


class Kept:
    """A changelog in memory that can refuse."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.calls: list[tuple[str, int]] = []
        self.refuses = False

    def append(self, lsn: int, frame: bytes) -> None:
        self.calls.append(("append", lsn))
        self.frames.append(frame)

    def begin(self, lsn: int) -> None:
        self.calls.append(("begin", lsn))

    def wait(self, lsn: int) -> None:
        self.calls.append(("wait", lsn))
        if self.refuses:
            raise StoreFailedError("another node has claimed")


def followed(files: Files, changelog: Kept) -> Log:
    return Log.open(files, store=STORE, epoch=1, segment_bytes_first=1024, segment_bytes_max=4096, changelog=changelog)


def test_a_changelog_gets_each_frame_and_a_sync_waits_for_it() -> None:
    kept = Kept()
    log = followed(FaultyFiles(), kept)
    for number in range(3):
        log.append(1, b"%d" % number)
    assert 3 == log.sync() == log.sync()
    assert [("append", 1), ("append", 2), ("append", 3), ("begin", 3), ("wait", 3)] == kept.calls


def test_frames_that_do_not_count_in_the_changelog_are_not_synced_and_stop_the_log() -> None:
    kept = Kept()
    log = followed(FaultyFiles(), kept)
    log.append(1, b"x")
    log.sync()
    kept.refuses = True
    log.append(1, b"y")
    with pytest.raises(StoreFailedError, match="another node"):
        log.sync()
    assert 1 == log.synced_lsn
    with pytest.raises(StoreFailedError, match="another node"):
        log.append(1, b"z")


@pytest.mark.parametrize("first", [1, 4, 30])
def test_a_log_made_of_the_frames_of_a_changelog_equals_the_first(first: int) -> None:
    kept = Kept()
    log = followed(FaultyFiles(), kept)
    for number in range(60):
        log.append(1, b"%d" % number * 40)
        log.sync()
    files = FaultyFiles()
    copy = Log.open(files, store=STORE, epoch=9, first_lsn=first, segment_bytes_first=1024, segment_bytes_max=4096)
    assert first - 1 == copy.appended_lsn == copy.synced_lsn
    for place in range(first - 1, 60, 7):
        copy.adopt(b"".join(kept.frames[place : place + 7]))
    assert 60 == copy.sync()
    copy.close()
    again = opened(files, after=first - 1)
    assert list(log.replay(first - 1)) == list(again.replay(first - 1))
    assert 61 == again.append(1, b"next")


def test_frames_with_a_gap_or_a_torn_end_are_not_adopted() -> None:
    kept = Kept()
    log = followed(FaultyFiles(), kept)
    for _ in range(4):
        log.append(1, b"x")
    copy = opened(FaultyFiles())
    copy.adopt(kept.frames[0])
    with pytest.raises(DamagedStoreError, match="LSN 3"):
        copy.adopt(kept.frames[2])
    with pytest.raises(DamagedStoreError, match="inside LSN 3"):
        copy.adopt(kept.frames[1] + kept.frames[2][:-1])
    assert 2 == copy.appended_lsn


def test_a_log_that_begins_later_and_lost_its_segments_is_damaged() -> None:
    files = FaultyFiles()
    log = Log.open(files, store=STORE, epoch=1, first_lsn=50)
    assert 50 == log.append(1, b"x")
    log.sync()
    log.close()
    for name in segments(files):
        files.remove(name)
    with pytest.raises(DamagedStoreError, match="no log segment"):
        Log.open(files, store=STORE, epoch=1, first_lsn=50)
