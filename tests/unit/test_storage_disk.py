"""The disk that crashes: the possible contents of its images, and that its failures happen when a test requests
them."""

from __future__ import annotations

import errno
import random

import pytest

from outrider.errors import StoreFailedError, StoreFullError
from outrider.sim.disk import CrashDisk, FaultyFiles


def images(disk: CrashDisk, seed: int = 0, count: int = 40) -> list[dict[str, bytes]]:
    return [image.contents() for image in disk.crash_images(random.Random(seed), count)]


def synced(name: str, data: bytes) -> CrashDisk:
    disk = CrashDisk()
    disk.put(name, data)
    return disk


def test_after_a_sync_there_is_only_one_image() -> None:
    disk = synced("a", b"old")
    file = disk.open("a")
    file.write_at(0, b"new")
    file.sync()
    assert ([{"a": b"new"}], 0) == (images(disk), disk.unsynced)


def test_the_first_image_lost_every_change_and_the_second_no_change() -> None:
    disk = synced("a", b"old")
    disk.open("a").write_at(0, b"new")
    disk.open("b", create=True).write_at(0, b"b")
    assert [{"a": b"old"}, {"a": b"new", "b": b"b"}] == images(disk)[:2]


def test_each_prefix_of_the_changes_is_an_image() -> None:
    disk = synced("a", b"....")
    file = disk.open("a")
    for at in range(4):
        file.write_at(at, b"x")
    found = [image["a"] for image in images(disk)]
    assert {b"....", b"x...", b"xx..", b"xxx.", b"xxxx"} <= set(found)


def test_later_writes_may_survive_earlier_ones() -> None:
    disk = synced("a", b"....")
    file = disk.open("a")
    file.write_at(0, b"x")
    file.write_at(1, b"y")
    assert b".y.." in {image["a"] for image in images(disk)}


@pytest.mark.parametrize("grain", [512, 4096])
def test_a_write_is_torn_at_sectors_and_pages(grain: int) -> None:
    disk = synced("a", bytes(16_384))
    disk.open("a").write_at(0, b"x" * 16_384)
    lengths = {len(image["a"].rstrip(b"\0")) for image in images(disk)}
    torn = {length for length in lengths if 0 < length < 16_384}
    assert torn
    assert all(length % 512 == 0 for length in torn)
    assert any(length % grain == 0 for length in torn)


def test_a_torn_write_keeps_to_the_sectors_of_the_file() -> None:
    disk = synced("a", bytes(2_048))
    disk.open("a").write_at(500, b"x" * 100)
    found = {bytes(image["a"][500:600]) for image in images(disk, count=200)}
    assert {bytes(100), b"x" * 100, b"x" * 12 + bytes(88), bytes(12) + b"x" * 88} == found


def test_growth_may_be_durable_without_its_data() -> None:
    disk = synced("a", b"")
    disk.open("a").write_at(0, b"x" * 1_000)
    assert bytes(1_000) in {image["a"] for image in images(disk)}


def test_a_synced_file_without_its_synced_name_may_be_gone() -> None:
    disk = CrashDisk()
    file = disk.open("a", create=True)
    file.write_at(0, b"data")
    file.sync()
    assert {} in images(disk)
    disk.sync_directory()
    assert [{"a": b"data"}] == images(disk)


def test_a_rename_without_a_directory_sync_may_be_durable_or_not_and_never_in_halves() -> None:
    disk = synced("a", b"A")
    disk.put("b", b"B")
    disk.rename("a", "b")
    found = images(disk)
    assert {"a": b"A", "b": b"B"} in found
    assert {"b": b"A"} in found
    assert all(image in ({"a": b"A", "b": b"B"}, {"b": b"A"}) for image in found)


def test_a_name_may_be_durable_without_its_data() -> None:
    disk = CrashDisk()
    disk.open("a", create=True).write_at(0, b"data")
    assert {"a": b""} in images(disk)


def test_a_removal_may_be_undone() -> None:
    disk = synced("a", b"A")
    disk.remove("a")
    assert [{"a": b"A"}, {}] == images(disk)[:2]


def test_images_are_the_same_for_the_same_seed() -> None:
    disk = synced("a", bytes(9_000))
    for at in range(0, 9_000, 700):
        disk.open("a").write_at(at, b"x" * 700)
    assert images(disk, 3) == images(disk, 3)


def test_an_image_is_a_disk_of_its_own() -> None:
    disk = synced("a", b"A")
    image = next(disk.crash_images(random.Random(0), 0))
    image.open("a").write_at(0, b"X")
    assert ({"a": b"A"}, {"a": b"X"}) == (disk.contents(), image.contents())


def test_the_nth_call_fails_once() -> None:
    files = FaultyFiles()
    file = files.open("a", create=True)
    files.fail(2, errno.EIO)
    file.write_at(0, b"1")
    with pytest.raises(StoreFailedError, match="memory/a: Input/output error"):
        file.write_at(0, b"2")
    file.write_at(1, b"3")
    assert {"a": b"13"} == files.contents()


def test_the_nth_call_and_all_after_it_fail_until_mended() -> None:
    files = FaultyFiles()
    file = files.open("a", create=True)
    files.fail(1, errno.ENOSPC, forever=True)
    for _ in range(3):
        with pytest.raises(StoreFullError):
            file.write_at(0, b"x")
    files.mend()
    file.write_at(0, b"x")


def test_a_failure_may_be_set_for_one_kind_of_call() -> None:
    files = FaultyFiles()
    file = files.open("a", create=True)
    files.fail(1, errno.EIO, verb="sync")
    file.write_at(0, b"x")
    with pytest.raises(StoreFailedError):
        file.sync()


def test_a_partial_write_leaves_its_first_half() -> None:
    files = FaultyFiles()
    file = files.open("a", create=True)
    files.fail(1, errno.ENOSPC, partial=True)
    with pytest.raises(StoreFullError):
        file.write_at(0, b"abcd")
    assert {"a": b"ab"} == files.contents()


def test_a_full_disk_allows_overwrites_and_no_growth() -> None:
    files = FaultyFiles(capacity_bytes=10)
    file = files.open("a", create=True)
    file.write_at(0, bytes(8))
    file.write_at(0, b"12345678")
    with pytest.raises(StoreFullError):
        file.write_at(8, b"abc")
    with pytest.raises(StoreFullError):
        file.truncate(11)
    assert ({"a": b"12345678"}, 2) == (files.contents(), files.free_bytes())


def test_files_of_other_programs_count_against_the_capacity() -> None:
    files = FaultyFiles(capacity_bytes=10)
    files.fill(9)
    with pytest.raises(StoreFullError):
        files.open("a", create=True).write_at(0, b"ab")
