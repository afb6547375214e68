"""Lives one after the other on one store, each ended by a fault, and judged by their answers."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from crash.life import HOSTS, MERGES
from crash.oracle import Oracle, Site

TESTS = Path(__file__).resolve().parents[1]
SOURCES = TESTS.parent / "src"
MERGING: dict[str, int] = {"spills": True, "hosts": 400, "links": 150, "pages": 500}
"""Keywords of `Rounds` for lives that merge runs of seen keys nearly all the time."""
MERGES_WAITED_FOR = 12
"""A life ends in one of this number of its first merges, or in a later and longer one."""
KEYS_WAITED_FOR_BITS = 10
"""And when it has merged at most two to this number of keys."""
MERGE_SECONDS_MAX = 20.0


class Rounds:
    """A mould that makes lives, the site they visit, and the oracle that reads their journals."""

    def __init__(
        self, store: Path, journals: Path, seed: int, *, threads: int = 3, rests: int = 3, hosts: int = HOSTS,
        spills: bool = False, links: int = 6, pages: int = 60,
    ) -> None:  # fmt: skip
        """rests: in how many of ten visits the frontier learns of their end before their outcome. hosts: how many its
        URLs have. spills: seen keys go to disk, a few at a time. links: the most that one call discovers. pages: how
        many each host has in one life."""
        self.rests, self.hosts, self.spills, self.links, self.pages = rests, hosts, spills, links, pages
        self.store = store
        self.journals = journals
        self._merges, self._merging = journals / "merges", journals / "merging"
        self.rng = random.Random(seed)
        self.threads = threads
        self.oracle = Oracle()
        self.site = Site()
        self.rounds = 0

    @contextmanager
    def begun(self) -> Iterator[Rounds]:
        self.journals.mkdir(parents=True, exist_ok=True)
        os.mkfifo(self._merging)
        # For both directions: a life that opens the pipe finds a reader, and the death of a life does not end the pipe.
        self._merge_word = os.open(self._merging, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        mould = subprocess.Popen(
            [sys.executable, "-m", "crash.life"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCES), str(TESTS)])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert mould.stdin is not None
        assert mould.stdout is not None
        self._order, self._heard = mould.stdin, mould.stdout
        try:
            with self.site.serving():
                yield self
        finally:
            mould.stdin.close()
            mould.wait(20)
            mould.stdout.close()
            os.close(self._merge_word)

    def live(
        self, end: Callable[[int], None], *, calls: int | None = None, dies_within: tuple[str, int] | None = None
    ) -> int:
        """One life: `end` gets its process id, and returns when it is dead or about to be. Its exit code. dies_within:
        as `life.die_within` takes it."""
        number, self.rounds = self.rounds, self.rounds + 1
        np.zeros(MERGES, np.uint64).tofile(self._merges)
        with suppress(BlockingIOError):
            os.read(self._merge_word, 1)  # the one of a life before that was not waited for
        journal = self.journals / f"{number}.jsonl"
        order = {
            "path": str(self.store), "journal": str(journal), "port": self.site.port, "round": number,
            "seed": self.rng.randrange(1 << 30), "threads": self.threads, "calls": calls, "rests": self.rests,
            "hosts": self.hosts, "links": self.links, "pages": self.pages, "spills": self.spills,
            "merges": str(self._merges), "dies_within": dies_within,
            "merging": [str(self._merging), *self._moment()],
            "inherited": self.oracle.inherited(number), "repeats": self.oracle.repeats(self.rng),
        }  # fmt: skip
        print(json.dumps(order), file=self._order, flush=True)
        end(int(self._heard.readline()))
        print(file=self._order, flush=True)
        code = int(self._heard.readline())
        self.oracle.read(journal)
        self.oracle.forget()
        return code

    def wait(self) -> None:
        """Waits until some moment in the opening of the current life, or until its journal has this number of lines."""
        if self.rng.random() < 0.4:
            time.sleep(self.rng.uniform(0, 0.04))
            return
        lines = self.rng.randrange(1, 300)
        journal = self.journals / f"{self.rounds - 1}.jsonl"
        end = time.monotonic() + 20
        while time.monotonic() < end:
            text = journal.read_bytes() if journal.exists() else b""
            if text.count(b"\n") >= lines or b'"error"' in text or b'"refused"' in text:
                break
            time.sleep(0.002)
        time.sleep(self.rng.uniform(0, 0.002))

    def wait_for_visits(self, count: int) -> None:
        """Waits until the site has had this number of visits since now."""
        end, until = time.monotonic() + 20, len(self.site.visits) + count
        while time.monotonic() < end and len(self.site.visits) < until:
            time.sleep(0.002)

    def merging(self) -> tuple[int, int]:
        """Returns the number of the merge of seen keys that is under way in the newest life, or was when it died, and
        how many keys it has merged. The number is 0 if no merge is under way."""
        begun, ended, keys = np.fromfile(self._merges, np.uint64).tolist()
        return (begun, keys) if begun > ended else (0, 0)

    def _moment(self) -> tuple[int, int]:
        """Draws a moment of a merge: its number from 1, and how many keys it has merged."""
        return self.rng.randint(1, MERGES_WAITED_FOR), int(2 ** self.rng.uniform(0, KEYS_WAITED_FOR_BITS))

    def wait_for_merge(self) -> None:
        """Waits until the current life says that a merge of seen keys is at the moment that was drawn for this life."""
        if select.select([self._merge_word], [], [], MERGE_SECONDS_MAX)[0]:
            os.read(self._merge_word, 1)

    def kill(self, process: int) -> None:
        os.kill(process, signal.SIGKILL)  # not gathered yet, so the number is still its own

    def problems(self) -> list[str]:
        """The first twenty faults."""
        return (self.oracle.problems + self.site.violations())[:20]
