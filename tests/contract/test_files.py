"""The contract of every implementation of `Files`: a real directory, files in memory, the disk that crashes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from outrider.errors import StoreInUseError
from outrider.sim.disk import CrashDisk, FaultyFiles
from outrider.storage import memory
from outrider.storage.files import Directory, Files, read_whole, replace


@pytest.fixture(params=["directory", "memory", "test memory", "crash disk"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Files]:
    makers: dict[str, Callable[[], Files]] = {
        "directory": lambda: Directory(tmp_path / "store"),
        "memory": memory.MemoryFiles,
        "test memory": FaultyFiles,
        "crash disk": CrashDisk,
    }
    made = makers[request.param]()
    if isinstance(made, Directory):
        yield made
        made.close()
    else:
        yield made


def test_a_missing_file_is_not_found(files: Files) -> None:
    with pytest.raises(FileNotFoundError):
        files.open("absent")


def test_a_created_file_is_empty_and_named(files: Files) -> None:
    file = files.open("a", create=True)
    assert (0, ["a"]) == (file.size(), files.names())
    file.close()


def test_opening_with_create_keeps_what_is_there(files: Files) -> None:
    files.open("a", create=True).write_at(0, b"kept")
    assert b"kept" == files.open("a", create=True).read_at(0, 10)


def test_reads_are_short_only_at_the_end(files: Files) -> None:
    file = files.open("a", create=True)
    file.write_at(0, b"0123456789")
    assert [b"0123", b"89", b"", b""] == [file.read_at(*at) for at in [(0, 4), (8, 4), (10, 4), (99, 4)]]


def test_a_write_beyond_the_end_leaves_zeros_between(files: Files) -> None:
    file = files.open("a", create=True)
    file.write_at(3, b"x")
    assert (b"\0\0\0x", 4) == (file.read_at(0, 10), file.size())


def test_a_write_replaces_only_its_own_bytes(files: Files) -> None:
    file = files.open("a", create=True)
    file.write_at(0, b"aaaaaa")
    file.write_at(2, b"bb")
    assert b"aabbaa" == file.read_at(0, 10)


def test_truncate_cuts_and_extends_with_zeros(files: Files) -> None:
    file = files.open("a", create=True)
    file.write_at(0, b"abcdef")
    file.truncate(3)
    file.truncate(5)
    assert b"abc\0\0" == file.read_at(0, 10)


def test_two_handles_see_one_file(files: Files) -> None:
    one, other = files.open("a", create=True), files.open("a")
    one.write_at(0, b"seen")
    assert b"seen" == other.read_at(0, 10)


def test_a_handle_follows_its_file_through_a_rename(files: Files) -> None:
    file = files.open("old", create=True)
    files.rename("old", "new")
    file.write_at(0, b"here")
    assert (["new"], b"here") == (files.names(), files.open("new").read_at(0, 10))


def test_a_rename_replaces_what_had_the_name(files: Files) -> None:
    files.open("a", create=True).write_at(0, b"a")
    files.open("b", create=True).write_at(0, b"b")
    files.rename("a", "b")
    assert (["b"], b"a") == (files.names(), files.open("b").read_at(0, 10))


def test_renaming_or_removing_what_is_not_there_is_not_found(files: Files) -> None:
    with pytest.raises(FileNotFoundError):
        files.rename("absent", "b")
    with pytest.raises(FileNotFoundError):
        files.remove("absent")


def test_a_removed_name_is_gone(files: Files) -> None:
    files.open("a", create=True)
    files.remove("a")
    assert [] == files.names()


def test_names_are_sorted(files: Files) -> None:
    for name in ("b", "c", "a"):
        files.open(name, create=True)
    assert ["a", "b", "c"] == files.names()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc/passwd", "../a", "a\0b"])
def test_names_cannot_leave_the_directory(files: Files, name: str) -> None:
    with pytest.raises(ValueError):
        files.open(name, create=True)


def test_syncs_change_nothing_that_is_seen(files: Files) -> None:
    file = files.open("a", create=True)
    file.write_at(0, b"abc")
    file.sync()
    files.sync_directory()
    assert (["a"], b"abc") == (files.names(), file.read_at(0, 10))


def test_a_locked_directory_is_refused_with_the_owners_process_id(files: Files) -> None:
    files.lock()
    with pytest.raises(StoreInUseError, match=str(os.getpid())):
        files.lock()


def test_an_unlocked_directory_can_be_locked_again(files: Files) -> None:
    files.lock()
    files.unlock()
    files.lock()
    files.unlock()
    files.unlock()


def test_replace_leaves_the_new_content_and_nothing_else(files: Files) -> None:
    replace(files, "a", b"first, and longer")
    replace(files, "a", b"second")
    assert (["a"], b"second") == (files.names(), read_whole(files, "a", bytes_max=100))


def test_free_bytes_is_a_number_of_bytes(files: Files) -> None:
    assert files.free_bytes() > 0


def test_describe_names_file_and_directory(files: Files) -> None:
    assert files.describe("a") == f"{files.describe()}/a"
