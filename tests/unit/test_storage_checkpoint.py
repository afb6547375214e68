"""Checkpoints: round trip, crash at every step, damage, foreign files."""

from __future__ import annotations

import errno
import random
import sys

import pytest

import outrider.storage.checkpoint as checkpoint_room
from limiting import set_limits
from outrider.errors import DamagedStoreError, ForeignStoreError, StoreError, StoreFullError
from outrider.kernels import crc32c
from outrider.sim.disk import CrashDisk, FaultyFiles
from outrider.storage.checkpoint import CheckpointWriter, Range, checkpoint_name, newest_checkpoint
from outrider.storage.files import Files

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

STORE = bytes(range(16))
RANGES: list[Range] = [
    (0, 1, 0, 10, b"hosts of slot 0"),
    (0, 2, 0, 10, b""),
    (4096, 1, 2**40, 12, bytes(5_000)),
    (7, 2**32 - 1, 3, 11, b"\xff" * 300),
]


def written(files: Files, number: int, ranges: list[Range] = RANGES, *, start_lsn: int = 9) -> None:
    writer = CheckpointWriter(files, store=STORE, number=number, start_lsn=start_lsn)
    for one in ranges:
        writer.add(*one)
    writer.finish(max([start_lsn, *(lsn for _, _, _, lsn, _ in ranges)]))


def read(files: Files) -> tuple[int, list[Range]]:
    found = newest_checkpoint(files, store=STORE)
    assert found is not None
    return found.number, list(found.ranges())


def test_without_a_checkpoint_no_checkpoint_is_found() -> None:
    assert newest_checkpoint(FaultyFiles(), store=STORE) is None


def test_every_range_is_read_in_order() -> None:
    files = FaultyFiles()
    written(files, 3)
    assert (3, RANGES) == read(files)


def test_the_newest_checkpoint_reports_its_lsns_size_and_count() -> None:
    files = FaultyFiles()
    written(files, 3)
    found = newest_checkpoint(files, store=STORE)
    assert found is not None
    size = len(files.contents()[checkpoint_name(3)])
    assert (9, 12, 4, size) == (found.start_lsn, found.lsn, found.count, found.bytes)


def test_an_empty_checkpoint_is_a_checkpoint() -> None:
    files = FaultyFiles()
    written(files, 1, [])
    assert (1, []) == read(files)


@pytest.mark.parametrize("step", [64, 100, 1 << 20])
def test_ranges_larger_and_smaller_than_a_read_step_are_read_back(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, LOG_READ_BYTES=step)
    rng = random.Random(step)
    ranges: list[Range] = [(number, 1, 0, 1, rng.randbytes(rng.randrange(200))) for number in range(200)]
    files = FaultyFiles()
    written(files, 1, ranges, start_lsn=0)
    assert (1, ranges) == read(files)


def test_a_checkpoint_is_synced_as_it_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A single sync at the end would delay a call."""
    set_limits(monkeypatch, CHECKPOINT_SYNC_BYTES=10_000, CHECKPOINT_RANGE_BYTES_MAX=1_000)
    files = FaultyFiles()
    writer = CheckpointWriter(files, store=STORE, number=1, start_lsn=0)
    for number in range(100):
        writer.add(number, 0, 0, 0, random.Random(number).randbytes(1_000))
    assert 9 <= [verb for verb, _ in files.calls].count("sync") <= 11


def test_ranges_that_repeat_themselves_need_little_space() -> None:
    files = FaultyFiles()
    ranges: list[Range] = [(number, 1, 0, 1, b"%d " % number * 1_000) for number in range(50)]
    written(files, 1, ranges, start_lsn=0)
    assert (1, ranges) == read(files)
    assert len(files.contents()[checkpoint_name(1)]) < 10_000


def test_a_checkpoint_of_the_first_format_opens() -> None:
    """Its ranges are uncompressed."""
    files = FaultyFiles()
    ranges: list[Range] = [(number, 1, 0, 1, b"some rows") for number in range(5)]
    written(files, 1, ranges, start_lsn=0)
    content = bytearray(files.contents()[checkpoint_name(1)])
    content[8:12] = (1).to_bytes(4, "little")
    content[60:64] = crc32c(bytes(content[:60])).to_bytes(4, "little")
    files.put(checkpoint_name(1), bytes(content))
    assert (1, ranges) == read(files)


@pytest.mark.parametrize("stored", [b"no frame of zstd", zstd.compress(b"one") + b"more", zstd.compress(b"cut")[:-1]])
def test_an_invalid_packed_range_is_damage(stored: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    class Packing:
        def __init__(self, level: int) -> None: ...

        def compress(self, payload: bytes, mode: int) -> bytes:
            return stored

    files = FaultyFiles()
    with monkeypatch.context() as patched:
        patched.setattr(checkpoint_room.zstd, "ZstdCompressor", Packing)
        written(files, 1, [(0, 1, 0, 1, bytes(1_000))], start_lsn=0)
    with pytest.raises(DamagedStoreError, match="at byte 64: a range cannot be unpacked"):
        read(files)


def test_the_older_one_is_removed_only_after_the_newer_one_has_its_name() -> None:
    files = FaultyFiles()
    written(files, 1)
    written(files, 2)
    assert [checkpoint_name(2)] == files.names()
    verbs = [verb for verb, _ in files.calls[-4:]]
    assert ["sync", "rename", "sync_directory", "remove"] == verbs


def test_an_unfinished_checkpoint_is_not_read_and_removed_by_the_next() -> None:
    files = FaultyFiles()
    written(files, 1)
    writer = CheckpointWriter(files, store=STORE, number=2, start_lsn=12)
    writer.add(*RANGES[0])
    assert (1, RANGES) == read(files)
    written(files, 3)
    assert [checkpoint_name(3)] == files.names()


def test_abandoning_frees_the_space_and_keeps_the_older_checkpoint() -> None:
    files = FaultyFiles()
    written(files, 1)
    writer = CheckpointWriter(files, store=STORE, number=2, start_lsn=12)
    writer.add(*RANGES[0])
    writer.abandon()
    writer.abandon()
    assert ([checkpoint_name(1)], (1, RANGES)) == (files.names(), read(files))
    with pytest.raises(ValueError, match="finished or abandoned"):
        writer.add(*RANGES[0])


def test_a_full_disk_leaves_the_older_checkpoint() -> None:
    files = FaultyFiles()
    written(files, 1)
    files.capacity_bytes = files.used_bytes() + 1_000
    writer = CheckpointWriter(files, store=STORE, number=2, start_lsn=12)
    writer.add(1, 1, 1, 13, random.Random(1).randbytes(2_000))
    with pytest.raises(StoreFullError):
        writer.finish(13)
    writer.abandon()
    assert ([checkpoint_name(1)], (1, RANGES)) == (files.names(), read(files))


def test_a_range_above_the_given_lsn_is_a_mistake_of_the_caller() -> None:
    writer = CheckpointWriter(FaultyFiles(), store=STORE, number=1, start_lsn=3)
    writer.add(0, 0, 0, 5, b"")
    with pytest.raises(ValueError, match="LSN 5, above lsn=4"):
        writer.finish(4)


@pytest.mark.parametrize("seed", range(3))
def test_a_crash_at_every_step_keeps_the_old_checkpoint_or_the_new_one(seed: int) -> None:
    """The power fails at each call in turn, and at the end. At the end it must be the new one."""
    rng = random.Random(seed)
    for nth in range(1, 30):
        disk = CrashDisk()
        written(disk, 1, RANGES[:2])
        disk.fail(nth, errno.EIO, forever=True)
        try:
            written(disk, 2, RANGES)
            finished = True
        except StoreError:
            finished = False
        for image in disk.crash_images(rng, 4):
            assert read(image) in ([(2, RANGES)] if finished else [(1, RANGES[:2]), (2, RANGES)])
        if finished:
            return
    pytest.fail("writing makes more calls than were tried")


def test_a_bit_flipped_anywhere_is_refused_with_file_and_byte() -> None:
    files = FaultyFiles()
    written(files, 1, RANGES[:2] + RANGES[3:])
    content = files.contents()[checkpoint_name(1)]
    for at in range(len(content)):
        spoiled = bytearray(content)
        spoiled[at] ^= 1 << at % 8
        files.put(checkpoint_name(1), bytes(spoiled))
        with pytest.raises((DamagedStoreError, ForeignStoreError), match=rf"{checkpoint_name(1)} (at byte \d+|has ch)"):
            read(files)


def test_a_checkpoint_cut_at_any_byte_is_refused() -> None:
    files = FaultyFiles()
    written(files, 1, RANGES[:2])
    content = files.contents()[checkpoint_name(1)]
    for at in range(len(content)):
        files.put(checkpoint_name(1), content[:at])
        with pytest.raises(DamagedStoreError, match=f"{checkpoint_name(1)} at byte"):
            read(files)


def test_a_removed_or_duplicated_range_is_refused() -> None:
    files = FaultyFiles()
    written(files, 1, [(0, 0, 0, 1, b"same"), (0, 0, 0, 1, b"same"), (0, 0, 0, 1, b"same")], start_lsn=0)
    content = files.contents()[checkpoint_name(1)]
    header, length = 64, 44 + 4
    one, two, three = (content[header + length * n : header + length * (n + 1)] for n in range(3))
    rest = content[header + 3 * length :]
    for good, ranges in ((2, one + two), (0, two + three), (1, one + one + three), (3, one + two + three + three)):
        files.put(checkpoint_name(1), content[:header] + ranges + rest)
        found = newest_checkpoint(files, store=STORE)
        assert found is not None
        given: list[Range] = []
        with pytest.raises(DamagedStoreError):
            given.extend(found.ranges())
        assert len(given) <= good
    files.put(checkpoint_name(1), content[:header] + one + two + three + rest)
    assert 3 == len(read(files)[1])


def test_a_checkpoint_of_another_store_is_refused() -> None:
    files = FaultyFiles()
    written(files, 1)
    with pytest.raises(DamagedStoreError, match="belongs to another store"):
        newest_checkpoint(files, store=b"F" * 16)


def test_a_renamed_checkpoint_is_refused() -> None:
    files = FaultyFiles()
    written(files, 1)
    files.rename(checkpoint_name(1), checkpoint_name(5))
    with pytest.raises(DamagedStoreError, match="is checkpoint 1, its name says 5"):
        newest_checkpoint(files, store=STORE)


def test_a_newer_format_is_refused_with_both_versions() -> None:
    files = FaultyFiles()
    written(files, 1)
    content = bytearray(files.contents()[checkpoint_name(1)])
    content[8:12] = (3).to_bytes(4, "little")
    content[60:64] = crc32c(bytes(content[:60])).to_bytes(4, "little")
    files.put(checkpoint_name(1), bytes(content))
    with pytest.raises(ForeignStoreError, match="checkpoint format 3; this version reads up to 2"):
        newest_checkpoint(files, store=STORE)
