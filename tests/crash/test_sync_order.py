"""No answer before the sync that covers it: by the system calls of a process, and by a record of its file layer."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from model.world import Clock
from outrider import Frontier
from outrider.sim.disk import CrashDisk, FaultyFiles
from outrider.storage.files import File

ROOT = Path(__file__).resolve().parents[2]

Event = tuple[str, str]
"""(what, name): write, begin (of a sync), sync (its end), made, renamed (to), removed, directory (synced), answer. A
renamed file has its new name; `renamed` has both, with a space between."""


def story(frontier: Frontier, clock: Clock) -> Iterator[str]:
    """Calls every verb that changes the store, one after another; each is named after its answer."""
    frontier.discover([f"http://h{n}.com/" for n in range(20)])
    yield "discover"
    frontier.discover(["http://a.com/", "http://b.com/"], request_id=("me", 1))
    yield "discover with a request id"
    frontier.set_robots("http://h1.com", 200, b"User-agent: *\nDisallow: /no")
    yield "set_robots"
    for turn in range(12):
        leases = frontier.lease(4, worker="w" if turn % 2 else None)
        yield "lease"
        first, *rest = leases
        frontier.extend([first.token], 90)
        yield "extend"
        if rest:
            frontier.release([rest[0].token])
            yield "release"
        links = [f"http://h{n}.com/{turn}-{'x' * 200}" for n in range(100)]
        frontier.report([first.done(seconds=0.1, links=links)], request_id=("me", 10 + turn))
        yield "report"
        frontier.report([lease.retry(error="timeout") for lease in rest[1:]])
        yield "report without links"
        clock.move(40)
    frontier.checkpoint()
    yield "checkpoint"
    # Long ones that cannot be compressed, so that a second segment is begun.
    chance = random.Random(1)
    for turn in range(30):
        frontier.discover([f"http://l{n}.com/{turn}/{chance.randbytes(200).hex()}" for n in range(200)])
        yield "discover much"


def uncovered(events: list[Event]) -> list[str]:
    """Answers that arrived while bytes of the log, or a name of one of its files, were not on the device."""
    written: dict[str, int] = {}
    begun: dict[str, int] = {}
    names: set[str] = set()
    problems = []
    for place, (what, name) in enumerate(events):
        if what == "write":
            written[name] = place
        elif what == "begin":
            begun[name] = place
        elif what == "sync" and written.get(name, place) < begun.get(name, -1):
            del written[name]
        elif what == "made":
            names.add(name)
        elif what == "renamed":
            old, new = name.split()
            names.add(new)
            for places in (written, begun):
                places.pop(new, None)
                if old in places:
                    places[new] = places.pop(old)
        elif what == "removed":
            written.pop(name, None)
            names.discard(name)
        elif what == "directory":
            names.clear()
        elif what == "answer":
            late = sorted(file for file in {*written, *names} if file.startswith("log-"))
            problems += [f"{name}: answered before {late} was synced"] if late else []
    return problems


# -- the file layer


class Recorded:
    """A disk in memory that writes down its calls, in order; `forgets` is a kind of sync it leaves out."""

    def __init__(self, forgets: str = "") -> None:
        self.disk = FaultyFiles()
        self.events: list[Event] = []
        self.forgets = forgets
        self.names_now: dict[str, list[str]] = {}
        """By name: the cell that all open files of that name share, so that they see a new one."""

    def open(self, name: str, *, create: bool = False) -> RecordedFile:
        made = name not in self.disk.names()
        file = self.disk.open(name, create=create)
        self.events += [("made", name)] if made else []
        return RecordedFile(self, self.names_now.setdefault(name, [name]), file)

    def rename(self, old: str, new: str) -> None:
        self.disk.rename(old, new)
        cell = self.names_now.pop(old, [old])
        cell[0] = new
        self.names_now[new] = cell
        self.events.append(("renamed", f"{old} {new}"))

    def remove(self, name: str) -> None:
        self.disk.remove(name)
        self.names_now.pop(name, None)
        self.events.append(("removed", name))

    def sync_directory(self) -> None:
        self.disk.sync_directory()
        if self.forgets != "sync_directory":
            self.events.append(("directory", ""))

    def __getattr__(self, verb: str) -> Any:
        """names, free_bytes, lock, unlock, describe: nothing to write down."""
        return getattr(self.disk, verb)


class RecordedFile:
    def __init__(self, disk: Recorded, name: list[str], file: File) -> None:
        self.disk, self.name, self.file = disk, name, file

    def write_at(self, offset: int, data: bytes) -> None:
        self.file.write_at(offset, data)
        self.disk.events.append(("write", self.name[0]))

    def truncate(self, length: int) -> None:
        self.file.truncate(length)
        self.disk.events.append(("write", self.name[0]))

    def sync(self) -> None:
        if self.disk.forgets == "sync":
            return
        self.disk.events.append(("begin", self.name[0]))
        self.file.sync()
        self.disk.events.append(("sync", self.name[0]))

    def __getattr__(self, verb: str) -> Any:
        """read_at, size, close: nothing to write down."""
        return getattr(self.file, verb)


def recorded(disk: Recorded) -> list[Event]:
    clock = Clock()
    with Frontier.open(disk, clock=clock, settings={"delay": 1, "delay_factor": 0}, robots="caller") as frontier:
        disk.events.append(("answer", "open"))
        for verb in story(frontier, clock):
            disk.events.append(("answer", verb))
    return disk.events


def test_no_verb_answers_before_its_bytes_and_names_are_synced():
    events = recorded(Recorded())
    assert [] == uncovered(events)
    assert sum(what == "answer" for what, _ in events) > 60
    assert len({name for what, name in events if what == "write" and name.startswith("log-")}) > 1, "segments changed"


@pytest.mark.parametrize("forgets", ["sync", "sync_directory"])
def test_a_sync_that_is_left_out_is_noticed(forgets):
    assert uncovered(recorded(Recorded(forgets)))


def test_a_sync_that_began_before_the_write_covers_nothing():
    early = [("begin", "log-1"), ("write", "log-1"), ("sync", "log-1"), ("answer", "discover")]
    in_time = [("write", "log-1"), ("begin", "log-1"), ("sync", "log-1"), ("answer", "discover")]
    assert (1, 0) == (len(uncovered(early)), len(uncovered(in_time)))


def test_callers_that_share_a_sync_are_answered_when_it_covers_each_of_them():
    """After each answer the device alone, without unsynced bytes, has the answered facts."""
    disk, guard, images, failures = CrashDisk(), threading.Lock(), [], []
    clock = Clock()
    frontier = Frontier.open(disk, clock=clock, robots="caller")

    def caller(number: int) -> None:
        try:
            for turn in range(12):
                url = f"http://h{number}.com/{turn}"
                frontier.discover([url])
                image = next(disk.crash_images(random.Random(0), 0))
                with guard:
                    images.append((url, image))
        except BaseException as error:  # noqa: BLE001 - told below
            failures.append(error)

    threads = [threading.Thread(target=caller, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ([], 48) == (failures, len(images))
    lost = []
    for url, image in images:
        looked = Frontier.look(image)
        lost += [url] if looked.status(url).state == "unknown" else []
        looked.close()
    assert [] == lost
    frontier.close()


# -- the system calls

CALLS = "pwrite64,pwritev,pwritev2,write,writev,fdatasync,fsync,sync_file_range,msync,rename,renameat,renameat2,openat"
CALLS += ",unlink,unlinkat"

LINE = re.compile(r"(?:\[pid +)?(\d+)\]? +(?:<\.\.\. )?(\w+)(.*)")
DESCRIPTOR = re.compile(r"^\((\d+)<([^>]*)>")

PROGRAM = """
import os, sys
from crash.test_sync_order import story
from model.world import Clock
from outrider import Frontier
clock = Clock()
with Frontier.open(sys.argv[1], clock=clock, robots="caller", settings={"delay": 1, "delay_factor": 0}) as frontier:
    os.write(int(sys.argv[2]), b"answered open\\n")
    for verb in story(frontier, clock):
        os.write(int(sys.argv[2]), b"answered " + verb.encode() + b"\\n")
"""


def events_of(trace: str, store: Path) -> list[Event]:
    """The findings of strace as events; a call that was interrupted by another thread's begins and ends apart."""
    events: list[Event] = []
    open_: dict[tuple[str, str], str] = {}
    for text in trace.splitlines():
        match = LINE.match(text)
        if match is None:
            continue
        process, call, rest = match.groups()
        resumed = "resumed>" in rest
        begins, ends = not resumed, "<unfinished" not in rest
        if begins:
            open_[process, call] = rest
        rest = open_[process, call]
        found = DESCRIPTOR.match(rest)
        path = Path(found.group(2)) if found else None
        if call in ("fsync", "fdatasync") and path is not None:
            if path == store:
                events += [("directory", "")] if ends else []
            elif path.parent == store:
                events += [("begin", path.name)] if begins else []
                events += [("sync", path.name)] if ends and " = 0" in text else []
        elif call == "write" and "answered " in rest and begins:
            events.append(("answer", rest.split("answered ")[1].split("\\n")[0]))
        elif call in ("pwrite64", "pwritev", "pwritev2", "write", "writev") and path is not None:
            events += [("write", path.name)] if path.parent == store and ends else []
        elif call.startswith("rename") and ends:
            old, new = (path.rsplit("/", 1)[-1] for path in re.findall(r'"([^"]*)"', rest))
            events.append(("renamed", f"{old} {new}"))
        elif call == "openat" and "O_CREAT" in rest and ends and f"<{store}>" in rest:
            events.append(("made", re.findall(r'"([^"]*)"', rest)[0]))
        elif call in ("unlink", "unlinkat") and ends:
            events.append(("removed", re.findall(r'"([^"]*)"', rest)[0].rsplit("/", 1)[-1]))
    return events


def test_the_system_calls_of_a_process_show_no_answer_before_its_sync(tmp_path):
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    store, trace = tmp_path.resolve() / "store", tmp_path / "trace"
    reader, writer = os.pipe()
    try:
        done = subprocess.run(
            [strace, "-f", "-y", "-s", "64", "-e", f"trace={CALLS}", "-o", str(trace),
             sys.executable, "-c", PROGRAM, str(store), str(writer)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests"), str(ROOT)])},
            pass_fds=[writer], capture_output=True, text=True, timeout=110, check=False,
        )  # fmt: skip
    finally:
        os.close(writer)
    with os.fdopen(reader) as pipe:
        answers = pipe.read().count("answered ")
    if done.returncode and "ptrace" in done.stderr:
        pytest.skip(f"strace may not trace here: {done.stderr.strip().splitlines()[-1]}")
    assert 0 == done.returncode, done.stderr
    events = events_of(trace.read_text("utf-8", "replace"), store)
    assert [] == uncovered(events)
    assert answers == sum(what == "answer" for what, _ in events)
    assert answers > 60
    kept = [event for event in events if event[0] not in ("begin", "sync")]
    assert uncovered(kept), "with the syncs left out it would be noticed"
    assert len({name for what, name in events if what == "write" and name.startswith("log-")}) > 1, "segments changed"
