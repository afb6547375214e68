"""The real directory: modes, symbolic links, refusals of the machine, the lock and its process."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import outrider.storage.files as files_room
from outrider import Frontier
from outrider.errors import (
    DamagedStoreError,
    StoreError,
    StoreFailedError,
    StoreFullError,
    StoreInUseError,
    TooManyFilesError,
)
from outrider.sim.disk import CrashDisk
from outrider.storage.files import Directory, read_whole, replace

SOURCE = str(Path(files_room.__file__).parents[2])


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": SOURCE},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


HOLDER = """
import sys
from outrider.storage.files import Directory
directory = Directory(sys.argv[1])
directory.lock()
print("locked", flush=True)
sys.stdin.read()
"""


def test_directories_and_files_are_private_to_their_owner(tmp_path: Path) -> None:
    directory = Directory(tmp_path / "store")
    directory.open("a", create=True).close()
    directory.lock()
    modes = [stat.S_IMODE(os.stat(tmp_path / "store" / name).st_mode) for name in (".", "a", "lock")]
    assert [0o700, 0o600, 0o600] == modes


def test_missing_parents_are_made(tmp_path: Path) -> None:
    Directory(tmp_path / "a" / "b" / "c").close()
    assert (tmp_path / "a" / "b" / "c").is_dir()


def test_without_create_a_missing_directory_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="absent"):
        Directory(tmp_path / "absent", create=False)


def test_a_file_in_place_of_the_directory_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("mine")
    with pytest.raises(StoreError, match=r"store is not a directory"):
        Directory(tmp_path / "store")
    with pytest.raises(StoreError, match=r"not a directory"):
        Directory(tmp_path / "store" / "deeper")


def test_a_directory_that_all_users_may_write_is_refused_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store").chmod(0o777)
    with pytest.raises(StoreError, match="chmod o-w"):
        Directory(tmp_path / "store")


def test_an_unwritable_directory_is_refused_with_path_and_user(tmp_path: Path) -> None:
    """The test may run as root, and modes do not stop root: the child runs as another user."""
    (tmp_path / "store").mkdir(mode=0o755)
    for parent in (tmp_path, *tmp_path.parents[:2]):
        parent.chmod(0o755)
    (tmp_path / "store").chmod(0o555)
    script = """
import os, sys
from outrider.errors import StoreError
from outrider.storage.files import Directory
if os.geteuid() == 0:
    os.setuid(65534)
for path in sys.argv[1:]:
    try:
        Directory(path)
    except StoreError as error:
        print(error)
"""
    child = start(script, tmp_path / "store", tmp_path / "store" / "new")
    out, err = child.communicate(timeout=30)
    first, second = out.splitlines() or [err, err]
    assert f"{tmp_path / 'store'} cannot be written by user" in first
    assert f"{tmp_path / 'store' / 'new'} cannot be written by user" in second
    assert "choose another directory" in first


def test_a_read_only_opening_reads_and_makes_no_files(tmp_path: Path) -> None:
    replace(Directory(tmp_path / "store"), "a", b"text")
    directory = Directory(tmp_path / "store", read_only=True)
    assert b"text" == read_whole(directory, "a", bytes_max=10)
    with pytest.raises(StoreFailedError):
        directory.open("a").write_at(0, b"x")
    with pytest.raises(FileNotFoundError):
        directory.open("b", create=True)


@pytest.fixture(scope="module")
def whole_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a file of every kind."""
    place = tmp_path_factory.mktemp("whole") / "store"
    with Frontier.open(place, settings={"delay": 0, "memory_bytes": 10_000_000}, robots="caller") as frontier:
        for round_ in range(3):  # the second makes hosts cold
            for begin in range(0, 12_000, 2_000):
                frontier.discover([f"http://h{round_}-{number}.com/" for number in range(begin, begin + 2_000)])
            frontier.report([lease.done(seconds=0) for lease in frontier.lease(12_000)])
            frontier.checkpoint()
    return place


@pytest.mark.parametrize("kind", ["a directory", "a pipe", "a symbolic link"])
@pytest.mark.parametrize("name", ["manifest.json", "log.synced", "run-", "cold-", "log-0", "checkpoint-"])
def test_a_wrong_kind_of_file_in_place_of_a_store_file_is_named_with_its_kind(
    tmp_path: Path, whole_store: Path, name: str, kind: str
) -> None:
    """A read-only and a normal opening raise the same message: the name, its kind, and not that the disk failed."""
    place = tmp_path / "store"
    shutil.copytree(whole_store, place)
    odd = next(file for file in sorted(place.iterdir()) if file.name.startswith(name))
    odd.unlink()
    match kind:
        case "a directory":
            odd.mkdir()
        case "a pipe":
            os.mkfifo(odd)
        case _:
            odd.symlink_to(tmp_path / "nowhere")
    for way_in in (Frontier.look, Frontier.open):
        with pytest.raises(StoreError) as caught:
            way_in(place)
        assert StoreError is type(caught.value)
        assert f"{odd} is {kind}, " in str(caught.value)


def test_symbolic_links_are_not_followed(tmp_path: Path) -> None:
    directory = Directory(tmp_path / "store")
    (tmp_path / "outside").write_text("secret")
    (tmp_path / "store" / "link").symlink_to(tmp_path / "outside")
    with pytest.raises(StoreError, match="is a symbolic link"):
        directory.open("link", create=True)


def test_short_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: whole(fd, bytes(data)[:3], offset))
    file = Directory(tmp_path / "store").open("a", create=True)
    file.write_at(2, b"0123456789")
    assert b"\0\x000123456789" == file.read_at(0, 100)


def test_short_reads_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = Directory(tmp_path / "store").open("a", create=True)
    file.write_at(0, b"0123456789")
    whole = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, length, offset: whole(fd, min(length, 3), offset))
    assert [b"0123456789", b"89"] == [file.read_at(0, 100), file.read_at(8, 100)]


def refuse(number: int):
    def call(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    return call


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, StoreFullError),
        (errno.EDQUOT, StoreFullError),
        (errno.EFBIG, StoreFullError),
        (errno.EIO, StoreFailedError),
        (errno.EROFS, StoreFailedError),
    ],
)
def test_each_refused_write_has_its_kind_of_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[StoreError]
) -> None:
    file = Directory(tmp_path / "store").open("a", create=True)
    monkeypatch.setattr(os, "pwrite", refuse(number))
    with pytest.raises(kind, match="store/a at byte 7"):
        file.write_at(7, b"x")


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_refused_sync_is_a_failure_for_any_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    file = Directory(tmp_path / "store").open("a", create=True)
    monkeypatch.setattr(files_room, "_sync_data", refuse(number))
    with pytest.raises(StoreFailedError):
        file.sync()


def test_unreadable_bytes_are_reported_as_damage_with_file_and_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = Directory(tmp_path / "store").open("a", create=True)
    monkeypatch.setattr(os, "pread", refuse(errno.EIO))
    with pytest.raises(DamagedStoreError, match="store/a at byte 5"):
        file.read_at(5, 1)


def test_too_many_open_files_says_which_limit_to_raise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = Directory(tmp_path / "store")

    def no_descriptors(*_: object, **__: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "open", no_descriptors)
    with pytest.raises(TooManyFilesError, match=r"Too many files are open.*ulimit -n") as caught:
        directory.open("a", create=True)
    assert caught.value.retryable
    monkeypatch.setattr(os, "listdir", no_descriptors)
    with pytest.raises(TooManyFilesError, match="ulimit -n"):
        directory.names()


@pytest.mark.parametrize(
    ("number", "error"), [(errno.EMFILE, TooManyFilesError), (errno.EIO, StoreFailedError)], ids=["EMFILE", "EIO"]
)
@pytest.mark.parametrize("call", ["open", "fsync"])
def test_a_directory_whose_name_cannot_be_made_durable_is_removed(tmp_path, monkeypatch, number, error, call) -> None:
    refused, opens, store = error if call == "open" else StoreFailedError, os.open, tmp_path / "store"

    def refuses(path: object, *args: object, **how: object) -> int:
        if call == "fsync" or path == tmp_path:
            raise OSError(number, os.strerror(number))
        return opens(path, *args, **how)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(os, call, refuses)
    before = sorted(os.listdir("/proc/self/fd"))
    with pytest.raises(refused, match=str(tmp_path)):
        Directory(store)
    assert (False, before) == (store.exists(), sorted(os.listdir("/proc/self/fd")))
    monkeypatch.undo()
    Directory(store).close()


def test_a_file_size_limit_counts_as_a_full_disk(tmp_path: Path) -> None:
    script = """
import resource, sys
from outrider.errors import StoreFullError
from outrider.storage.files import Directory
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
file = Directory(sys.argv[1]).open("a", create=True)
try:
    file.write_at(0, bytes(5000))
except StoreFullError:
    print("full")
"""
    out, err = start(script, tmp_path / "store").communicate(timeout=30)
    assert "full\n" == out, err


def test_a_failed_replace_keeps_the_old_content_and_leaves_no_remains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = Directory(tmp_path / "store")
    replace(directory, "a", b"old")
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", refuse(errno.ENOSPC))
        with pytest.raises(StoreFullError):
            replace(directory, "a", b"new")
    assert (["a"], b"old") == (directory.names(), read_whole(directory, "a", bytes_max=10))


@pytest.mark.parametrize("seed", range(3))
def test_a_replaced_file_is_the_old_or_the_new_one_after_any_crash(seed: int) -> None:
    """The power fails at each call in turn, and once more after the last. Then it must be the new one."""
    rng = random.Random(seed)
    for nth in range(1, 12):
        disk = CrashDisk()
        replace(disk, "a", b"old" * 2000)
        disk.fail(nth, errno.EIO, forever=True)
        try:
            replace(disk, "a", b"new" * 3000)
            finished = True
        except StoreError:
            finished = False
        found = {read_whole(image, "a", bytes_max=10_000) for image in disk.crash_images(rng, 6)}
        assert found <= ({b"new" * 3000} if finished else {b"old" * 2000, b"new" * 3000})
        if finished:
            return
    pytest.fail("replace makes more calls than were tried")


def test_the_name_of_a_new_directory_is_synced_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    Directory(tmp_path / "store")
    assert [tmp_path.stat().st_ino] == synced


def test_a_file_larger_than_it_may_be_is_not_read(tmp_path: Path) -> None:
    directory = Directory(tmp_path / "store")
    replace(directory, "a", bytes(11))
    with pytest.raises(DamagedStoreError, match="11 bytes"):
        read_whole(directory, "a", bytes_max=10)


def test_a_second_process_is_refused_with_the_first_ones_id_and_kill_9_frees_the_lock(tmp_path: Path) -> None:
    holder = start(HOLDER, tmp_path / "store")
    assert holder.stdout is not None
    assert "locked\n" == holder.stdout.readline()
    directory = Directory(tmp_path / "store")
    try:
        with pytest.raises(StoreInUseError, match=f"process {holder.pid}"):
            directory.lock()
    finally:
        os.kill(holder.pid, signal.SIGKILL)
        holder.communicate()
    directory.lock()
    assert f"{os.getpid()}\n" == (tmp_path / "store" / "lock").read_text()


def test_a_forked_child_does_not_keep_the_lock_of_a_dead_owner(tmp_path: Path) -> None:
    script = """
import os, sys, time
from outrider.storage.files import Directory
directory = Directory(sys.argv[1])
directory.lock()
child = os.fork()
if child == 0:
    print("forked", flush=True)
    os.close(1)
    sys.stdin.read()
    os._exit(0)
time.sleep(60)
"""
    owner = start(script, tmp_path / "store")
    assert owner.stdout is not None
    assert "forked\n" == owner.stdout.readline()
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    Directory(tmp_path / "store").lock()  # the child still runs
    owner.communicate()
