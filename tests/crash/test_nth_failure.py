"""The nth call of the operating system fails, for every n of a whole history: a documented error, and nothing is lost.

The failures are below `outrider.storage.files`, in real directories: EIO, ENOSPC, EMFILE, and writes that write less
than requested.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import outrider.storage.files as files_room
from limiting import set_limits
from model.world import Clock
from outrider import Frontier
from outrider.errors import (
    DamagedStoreError,
    OutriderError,
    StoreError,
    StoreFailedError,
    StoreFullError,
    TooManyFilesError,
)
from outrider.storage.checkpoint import CheckpointWriter

WRITING = frozenset({"pwrite", "ftruncate", "rename", "unlink", "fdatasync", "fsync", "create"})
FAULTS: dict[str, tuple[int, frozenset[str]]] = {
    "EIO": (errno.EIO, WRITING | {"open", "pread", "listdir", "fstatvfs"}),
    "ENOSPC": (errno.ENOSPC, frozenset({"pwrite", "ftruncate", "rename", "fsync", "fdatasync", "create"})),
    "EMFILE": (errno.EMFILE, frozenset({"open", "create", "listdir"})),
    "short": (0, frozenset({"pwrite"})),
    "short, then ENOSPC": (errno.ENOSPC, frozenset({"pwrite"})),
}
SETTINGS = {"delay": 1.0, "delay_factor": 0}


class FaultyOs:
    """The module `os` as the file layer sees it; the nth call of those that can fail this way does."""

    def __init__(self, fault: str) -> None:
        self.error, self.verbs = FAULTS[fault]
        self.short = fault.startswith("short")
        self.nth = 0
        self.calls = 0
        self.failed: list[str] = []
        self._next_write_fails = False

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def arm(self, nth: int) -> None:
        """The nth call from now on; 0: no call."""
        self.nth, self.calls, self._next_write_fails = nth, 0, False

    def due(self, verb: str, what: object) -> bool:
        if verb not in self.verbs:
            return False
        self.calls += 1
        if self.calls != self.nth:
            return False
        self.failed.append(f"{verb} {what}")
        return True

    def _may_fail(self, verb: str, what: object) -> None:
        if self.due(verb, what):
            raise OSError(self.error, os.strerror(self.error))

    def open(self, path: Any, flags: int, *args: Any, **how: Any) -> int:
        creates = flags & os.O_CREAT and path not in os.listdir(how.get("dir_fd"))
        self._may_fail("create" if creates else "open", path)
        return os.open(path, flags, *args, **how)

    def pwrite(self, descriptor: int, data: Any, offset: int) -> int:
        if self._next_write_fails:
            self._next_write_fails = False
            raise OSError(self.error, os.strerror(self.error))
        if self.short:
            if len(data) > 1 and self.due("pwrite", len(data)):
                self._next_write_fails = bool(self.error)
                data = data[: len(data) // 2]
        else:
            self._may_fail("pwrite", len(data))
        return os.pwrite(descriptor, data, offset)

    def pread(self, descriptor: int, *args: Any) -> bytes:
        self._may_fail("pread", args)
        return os.pread(descriptor, *args)

    def ftruncate(self, descriptor: int, length: int) -> None:
        self._may_fail("ftruncate", length)
        os.ftruncate(descriptor, length)

    def rename(self, old: Any, new: Any, **how: Any) -> None:
        self._may_fail("rename", new)
        os.rename(old, new, **how)

    def unlink(self, name: Any, **how: Any) -> None:
        self._may_fail("unlink", name)
        os.unlink(name, **how)

    def listdir(self, place: Any) -> list[str]:
        self._may_fail("listdir", place)
        return os.listdir(place)

    def fstatvfs(self, descriptor: int) -> os.statvfs_result:
        self._may_fail("fstatvfs", descriptor)
        return os.fstatvfs(descriptor)

    def fsync(self, descriptor: int) -> None:
        self._may_fail("fsync", descriptor)  # the power stays on in this test

    def fdatasync(self, descriptor: int) -> None:
        self._may_fail("fdatasync", descriptor)


class History:
    """One fixed life of a store, which remembers its answers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = Clock()
        self.accepted: set[str] = set()
        self.done: set[str] = set()
        self.named: dict[int, str] = {}
        self.errors: list[OutriderError] = []
        self.frontier: Frontier | None = None

    def steps(self) -> list[Callable[[], None]]:
        return [
            self.open, lambda: self.discover("a", 8), lambda: self.discover("b", 8), lambda: self.lease(4),
            self.report, lambda: self.lease(3, "w"), self.checkpoint, lambda: self.discover("c", 8), self.report,
            self.close, self.open, lambda: self.lease(4), lambda: self.discover("d", 8), self.report,
            self.checkpoint, self.close,
        ]  # fmt: skip

    @property
    def opened(self) -> Frontier:
        assert self.frontier is not None
        return self.frontier

    def open(self) -> None:
        self.frontier = Frontier.open(self.path, clock=self.clock, settings=SETTINGS, robots="caller")

    def close(self) -> None:
        frontier, self.frontier = self.opened, None
        frontier.close()

    def discover(self, host: str, count: int) -> None:
        urls = [f"http://{host}{n}.com/" for n in range(count)]
        assert {"new", "known"} >= {str(code) for code in self.opened.discover(urls)}
        self.accepted.update(urls)

    def lease(self, want: int, worker: str | None = None) -> None:
        self.clock.move(2)
        self.leases = list(self.opened.lease(want, worker=worker))
        self.named = {lease.token: lease.url for lease in self.leases} if worker else {}

    def report(self) -> None:
        links = [f"http://l{n}.com/{len(self.done)}" for n in range(6)]
        self.named = {}
        report = self.opened.report([lease.done(seconds=0.0, links=links) for lease in self.leases])
        assert {"ok"} == set(map(str, report))
        self.accepted.update(links)
        self.done.update(lease.url for lease in self.leases)

    def checkpoint(self) -> None:
        self.opened.checkpoint()

    def live(self) -> bool:
        """Runs the steps; repeats a call once that is refused for want of space. Returns whether all steps ended."""
        for step in self.steps():
            for attempt in (1, 2):
                try:
                    step()
                    break
                except StoreFullError as error:
                    self.errors.append(error)
                    if attempt == 2 or step == self.close:
                        return self.give_up()
                except OutriderError as error:
                    self.errors.append(error)
                    return self.give_up()
        return True

    def give_up(self) -> bool:
        """Ends like a process that gets the order to stop."""
        frontier, self.frontier = self.frontier, None
        if frontier is not None:
            with contextlib.suppress(StoreError):
                frontier.close()
        return False

    def holds(self) -> None:
        """Opens the store again: all answered calls are there, also leases of a named worker, and all URLs end."""
        with Frontier.open(self.path, clock=self.clock, settings=SETTINGS, robots="caller") as frontier:
            assert [] == [url for url in self.accepted if frontier.status(url).state == "unknown"]
            assert [] == [url for url in self.done if frontier.status(url).state != "done"]
            assert {"leased"} >= {str(frontier.status(url).state) for url in self.named.values()}
            assert frontier.verify().ok
            while not frontier.finished():
                self.clock.move(70)
                frontier.report([lease.done(seconds=0.0) for lease in frontier.lease(1_000)])
            assert {"done", "gone"} >= {str(frontier.status(url).state) for url in self.accepted}


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], FaultyOs]]:
    def make(fault: str) -> FaultyOs:
        system = FaultyOs(fault)
        monkeypatch.setattr(files_room, "os", system)
        monkeypatch.setattr(files_room, "_sync_data", system.fdatasync)
        return system

    return make


def documented(fault: str, failed: str, error: OutriderError) -> bool:
    """Whether this is the error that the failure of this call is to become, by `outrider.storage.files`."""
    verb = failed.split(maxsplit=1)[0]
    if fault.startswith("short") or fault == "ENOSPC":
        full = verb not in ("fsync", "fdatasync")
        return isinstance(error, StoreFullError if full else StoreFailedError) or "earlier call failed" in str(error)
    if fault == "EMFILE":
        return isinstance(error, TooManyFilesError) or "Too many open files" in str(error)
    return isinstance(error, StoreError) and not isinstance(error, StoreFullError)


def descriptors() -> list[str]:
    """The open files of this process, by number."""
    numbers = [number for number in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{number}")]
    return sorted(f"{number} {os.readlink(f'/proc/self/fd/{number}')}" for number in numbers)


def lives(directory: Path, system: FaultyOs, fault: str, most: int | None = None) -> None:
    """One life per n, of `most` of them evenly where given."""
    whole = History(directory / "0")
    assert whole.live()
    whole.holds()
    every = range(1, system.calls + 1)
    before = descriptors()
    first = list(FAULTS).index(fault)  # so that the faults meet different calls
    for nth in every if most is None else every[first :: max(1, len(every) // most)]:
        history = History(directory / str(nth))
        system.arm(nth)
        system.failed.clear()
        through = history.live()
        system.arm(0)
        assert before == descriptors(), f"{fault} at {nth}, {system.failed}: descriptors are left"
        for error in history.errors:
            assert documented(fault, system.failed[0], error), f"{fault} at {nth}, {system.failed}: {error!r}"
        assert through or history.errors, f"{fault} at {nth}"
        if fault == "short":
            assert [] == history.errors, f"a short write at {nth} is gone on with"
        try:
            history.holds()
        except AssertionError as error:
            raise AssertionError(f"{fault} at {nth}, {system.failed}, then {history.errors}") from error
    assert len(every) > 20, "there are calls to fail"


@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_failure_of_the_nth_system_call_is_reported_and_loses_nothing(tmp_path, faulty, fault):
    lives(tmp_path, faulty(fault), fault, most=12)


@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_failure_of_any_system_call_is_reported_and_loses_nothing(tmp_path, faulty, fault):
    lives(tmp_path, faulty(fault), fault)


def test_wherever_descriptors_run_out_an_opening_says_so_and_may_be_repeated(tmp_path):
    """The machine's own limit, one descriptor more each time, until it is opened."""
    history = History(tmp_path / "store")
    history.open()
    history.discover("a", 8)
    history.checkpoint()
    history.discover("b", 8)
    history.close()
    before, kept = descriptors(), set(os.listdir(history.path)) - {"next.seg"}  # the log makes that one anew
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    errors: list[OutriderError] = []
    while history.frontier is None:
        lowest = os.dup(0)  # the free space from there on is counted
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + len(errors), hard))
        try:
            history.open()
        except OutriderError as error:
            errors.append(error)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if history.frontier is None:
            assert (before, kept) == (descriptors(), set(os.listdir(history.path)) - {"next.seg"}), errors[-1]
    assert {TooManyFilesError} == set(map(type, errors))
    assert all("ulimit -n" in str(error) and error.retryable for error in errors)
    assert len(errors) > 4
    history.close()
    assert before == descriptors()
    history.holds()


def test_a_checkpoint_that_fails_in_the_background_is_reported_and_leaves_no_descriptor(tmp_path, monkeypatch):
    def refuses(writer: CheckpointWriter, lsn: int) -> None:
        raise StoreFailedError("the disk is gone")

    history, before = History(tmp_path / "store"), descriptors()
    history.open()
    history.discover("a", 8)
    monkeypatch.setattr(CheckpointWriter, "finish", refuses)
    with pytest.raises(StoreFailedError, match="the disk is gone"):
        history.checkpoint()
    with pytest.raises(StoreFailedError, match="an earlier call failed"):
        history.discover("b", 8)
    history.close()  # every caller got the error
    monkeypatch.undo()
    assert before == descriptors()
    history.holds()


def test_a_checkpoint_failure_not_reported_before_is_reported_by_close(tmp_path, monkeypatch):
    def refuses(writer: CheckpointWriter, lsn: int) -> None:
        raise DamagedStoreError("a run cannot be read")

    set_limits(monkeypatch, LOG_BYTES_BEFORE_CHECKPOINT=0)
    monkeypatch.setattr(CheckpointWriter, "finish", refuses)
    history, before = History(tmp_path / "store"), descriptors()
    history.open()
    history.discover("a", 8)  # begins a round
    history.discover("b", 8)  # copies it all; the rest is done in the background
    with pytest.raises(StoreFailedError, match="a run cannot be read"):
        history.close()
    monkeypatch.undo()
    assert before == descriptors()
    history.holds()


def test_the_history_meets_every_kind_of_call(tmp_path, faulty):
    """Otherwise the tests above would prove less than they say."""
    system = faulty("EIO")
    met = set()
    counted = system.due

    def count(verb: str, what: object) -> bool:
        met.add(verb)
        return counted(verb, what)

    system.due = count  # type: ignore[method-assign]
    history = History(tmp_path / "store")
    assert (True, []) == (history.live(), history.errors)
    history.holds()
    assert set().union(*(verbs for _, verbs in FAULTS.values())) - {"unlink"} <= met
