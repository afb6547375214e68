"""Background threads that run only when a seed says so: each interleaving can be repeated with the same seed.

A thread that writes a checkpoint or merges runs stops before each call of the disk, each lock and each line of the
files that share state with it, until the caller's thread lets it run some steps. The caller's thread does so before
its own calls of the disk and its own locks, and wherever it has to wait. So one of them runs at a time, and the seed
alone decides which one.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from model.inside import inspect
from outrider.engine import Frontier
from outrider.sim.disk import FaultyFiles

DISK_CALLS = ("open", "names", "rename", "remove", "sync_directory", "_write", "_truncate", "_sync", "_read")
SHARED = ("rounds.py", "tiers.py", "failure.py")
"""Files of which a background thread stops at every line."""
LOCKS = ("_append_lock", "_sync_lock", "lock", "_merging", "_writing", "_lock")
PACES = {"never": (0.0, 0), "slowly": (0.1, 2), "evenly": (0.3, 8), "in bursts": (0.03, 400), "at once": (1.0, 10_000)}
"""How often the caller's thread lets background threads run, and for how many steps at most."""
CALLS_AT_ONE_PACE = 150
COPIES = (1.0, 0.3, 0.05)
"""How often a call copies some of a round: a store of few rows has rounds as long as one of many."""
STEPS_IN_VAIN_MAX = 100_000


class _Ended(SystemExit):
    """The process of this thread is gone; no caller gets an error."""


class Beside:
    """A thread that runs step by step; to other threads it looks like any thread."""

    def __init__(self, threads: Interleaving, run: Callable[[], None]) -> None:
        self._run = run
        self._threads = threads
        self._goes, self._stands = threading.Semaphore(0), threading.Semaphore(0)
        self._left = 0
        self._ends = False
        self._over = False
        self._thread = threading.Thread(target=self._live, daemon=True)
        self.ident: int | None = None
        self._thread.start()
        self.ident = self._thread.ident

    def _live(self) -> None:
        self._goes.acquire()
        try:
            if not self._ends:
                sys.settrace(self._trace)
                self._run()
        except _Ended:
            pass
        finally:
            sys.settrace(None)
            self._over = True
            self._stands.release()

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        return self._line if frame.f_code.co_filename.endswith(SHARED) else None

    def _line(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "line" and not self._ends:
            self.stop()
        return self._line

    def stop(self) -> None:
        """In this thread: one step is made."""
        self._left -= 1
        if self._left <= 0 and not self._ends:
            self._stands.release()
            self._goes.acquire()
        if self._ends:
            raise _Ended

    def hand_over(self) -> None:
        """In this thread: waits for another thread, because its remaining steps would be in vain. A `verify` keeps a
        lock for a great many of them."""
        self._left = 0
        self.stop()

    def go(self, steps: int) -> None:
        """In the caller's thread: runs this number of steps, or to the end."""
        if not self._over:
            self._left = steps
            self._goes.release()
            self._stands.acquire()

    def end(self) -> None:
        """Ends as if its process had been killed at this point."""
        self._ends = True
        self.go(1)
        self._thread.join()

    def is_alive(self) -> bool:
        return not self._over

    def join(self, timeout: float | None = None) -> None:
        """timeout: if not None, it runs some steps in this time."""
        for _ in range(STEPS_IN_VAIN_MAX if timeout is None else 1):
            if self._over:
                self._thread.join()
                return
            self._threads.wait()
        if timeout is None:
            raise AssertionError("a thread beside the calls waits for what never comes")


class _Lock:
    """A lock at which threads alternate by the seed; a thread that has to wait lets the other one run."""

    def __init__(self, threads: Interleaving, lock: Any) -> None:
        self._threads = threads
        self._lock = lock

    def __enter__(self) -> None:
        self._threads.point()
        if not self._threads.taking_part():
            self._lock.acquire()
            return
        for _ in range(STEPS_IN_VAIN_MAX):
            if self._lock.acquire(blocking=False):
                return
            self._threads.wait()
        raise AssertionError("a lock is never given back")

    def __exit__(self, *error: object) -> None:
        self._lock.release()


class Interleaving:
    """The threads of one frontier at a time; the thread that makes this is the caller's."""

    def __init__(self, seed: int | str) -> None:
        self._rng = random.Random(f"threads {seed}")
        self._caller = threading.get_ident()
        self._beside: list[Beside] = []
        self._calls = 0
        self._pace = (0.0, 0)
        self._copies = 1.0

    def take(self, frontier: Frontier, disk: FaultyFiles) -> None:
        """From here on this frontier's threads run step by step; those of the one before are gone."""
        self.end()
        rounds = frontier._rounds
        rounds._beside = self.start  # type: ignore[assignment,method-assign]
        rounds.step = self._now_and_then(rounds.step)  # type: ignore[method-assign]
        for owner in (frontier._log, rounds._failure, *inspect(frontier).tables.kept_in_runs()):
            self.share(getattr(owner, "_tiers", owner))
        if not hasattr(disk, "stepped"):
            disk.stepped = True  # type: ignore[attr-defined]
            for name in DISK_CALLS:
                setattr(disk, name, self._at(getattr(disk, name)))

    def share(self, owner: object) -> None:
        """At the locks of this object threads alternate."""
        for name in LOCKS:
            lock = getattr(owner, name, None)
            if lock is not None:
                setattr(owner, name, _Lock(self, lock))

    def _at(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def stopping(*arguments: Any, **how: Any) -> Any:
            self.point()
            return call(*arguments, **how)

        return stopping

    def _now_and_then(self, step: Callable[[int], None]) -> Callable[[int], None]:
        def seldom(now: int) -> None:
            if self._rng.random() < self._copies:
                step(now)

        return seldom

    def start(self, target: Callable[..., None], *arguments: Any) -> Beside:
        """A background thread that does this, from the first `go` on."""
        one = Beside(self, lambda: target(*arguments))
        self._beside.append(one)
        return one

    def end(self) -> None:
        """The process is gone, and its threads with it."""
        for one in self._beside:
            one.end()
        self._beside.clear()

    def taking_part(self) -> bool:
        """Whether this thread is one of the alternating threads."""
        return self._caller == threading.get_ident() or self._mine() is not None

    def _mine(self) -> Beside | None:
        ident = threading.get_ident()
        return next((one for one in self._beside if one.ident == ident), None)

    def point(self) -> None:
        """A thread that arrives here may have to let another one run."""
        if threading.get_ident() != self._caller:
            mine = self._mine()
            if mine is not None:
                mine.stop()
            return
        self._calls += 1
        if self._calls % CALLS_AT_ONE_PACE == 1:
            self._pace = PACES[self._rng.choice(list(PACES))]
            self._copies = self._rng.choice(COPIES)
        often, most = self._pace
        if self._beside and self._rng.random() < often:
            self.go(self._rng.randint(1, most))

    def wait(self) -> None:
        """This thread cannot continue before another one has run."""
        mine = self._mine()
        if mine is not None:
            mine.hand_over()
        else:
            self.go(20)

    def go_to_the_disk(self, disk: FaultyFiles) -> bool:
        """In the caller's thread: runs background threads until one has changed the disk. Returns whether one has."""
        calls = len(disk.calls)
        while self._beside and len(disk.calls) == calls:
            self.go(1)
        return len(disk.calls) > calls

    def go(self, steps: int) -> bool:
        """In the caller's thread: runs this number of steps of each background thread. Returns whether any is left."""
        for one in list(self._beside):
            one.go(steps)
            if not one.is_alive():
                self._beside.remove(one)
        return bool(self._beside)
