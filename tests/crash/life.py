"""A process that uses a frontier until it is killed, and writes down every call and every answer.

Run as a program it is a mould: it has imported everything, and forks one life per line of JSON on its standard input.
A life appends to its journal (a file that outlives it): one line of JSON before a call, one after its answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Generator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from model.world import hosts_go_cold, keys_go_to_disk, slots_stay_unread
from outrider import Frontier, Link
from outrider.errors import SettingsError, StoreError
from outrider.frontier.stores.spilled_keys import SpilledKeys
from outrider.journey import Outcome, Verdict

HOSTS = 40
GAP_SECONDS = 0.2
SETTINGS = {"delay": GAP_SECONDS, "delay_factor": 0}
LONG_SECONDS, SHORT_SECONDS = 60.0, 0.3
"""How long leases live: only under a long one is a page visited, so that a busy machine ends no lease under a visit."""
SAFE_SECONDS = 20.0
WORK = {"a spill": "_write", "a merge": "_merge", "a larger filter": "_roll_over"}
"""The methods in which seen keys on disk do their work, step by step."""
MERGES = 3
"""The numbers that `note_merges` keeps."""


def ticks() -> int:
    """Microseconds that every process of this machine counts alike."""
    return time.monotonic_ns() // 1_000


def visit(port: int, host: str) -> None:
    """One request to a site: it says when it began and when it ended."""
    with socket.create_connection(("127.0.0.1", port)) as line:
        line.sendall(host.encode() + b"\n")
        line.recv(16)


def die_within(work: str, steps: int) -> None:
    """From now on the process ends by kill -9 once it has made this number of steps of a kind of `WORK`."""
    whole = getattr(SpilledKeys, WORK[work])
    left = iter(range(steps))

    def cut(self: SpilledKeys, *of: Any) -> Generator[int, None, None]:
        for done in whole(self, *of):
            if next(left, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)
            yield done

    setattr(SpilledKeys, WORK[work], cut)


def note_merges(path: str, pipe: str, number: int, keys: int) -> None:
    """From now on a file of `MERGES` numbers says how many merges of seen keys began, how many ended, and how many keys
    the newest has merged. Another process may read it at any time, also after the end of this one. A byte goes to
    `pipe`, which a process must have open, in the first merge from `number` on that has merged this number of keys."""
    words = [os.open(pipe, os.O_WRONLY | os.O_CLOEXEC)]
    counts: npt.NDArray[np.uint64] = np.memmap(path, np.uint64, "r+", shape=MERGES)
    whole = SpilledKeys._merge

    def noted(self: SpilledKeys, *of: Any) -> Generator[int, None, None]:
        counts[2] = 0
        counts[0] += 1
        try:
            for done in whole(self, *of):
                counts[2] += done
                if words and counts[0] >= number and counts[2] >= keys:
                    os.write(words.pop(), b".")
                yield done
        finally:
            counts[1] += 1

    setattr(SpilledKeys, WORK["a merge"], noted)


class Life:
    """One process: its frontier, its journal, and the calls that it has to repeat or take over."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        self.round = int(order["round"])
        self.journal = os.open(order["journal"], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.calls_left = order.get("calls")
        slots_stay_unread(pytest.MonkeyPatch())
        if order["spills"]:
            keys_go_to_disk(pytest.MonkeyPatch())
            hosts_go_cold(pytest.MonkeyPatch(), with_urls=True)
        if order["dies_within"]:
            die_within(*order["dies_within"])
        if order["spills"]:
            note_merges(order["merges"], *order["merging"])
        self.frontier = Frontier.open(order["path"], settings=SETTINGS, seed=int(order["seed"]), robots="caller")
        self.note({"opened": self.frontier.opening.number, "fresh": self.frontier.opening.fresh})

    def note(self, line: dict[str, Any]) -> None:
        os.write(self.journal, json.dumps({"round": self.round, "at": ticks(), **line}).encode() + b"\n")

    def live(self) -> None:
        workers = [Worker(self, number) for number in range(int(self.order["threads"]))]
        threads = [threading.Thread(target=worker.work, daemon=True) for worker in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.frontier.close()
        self.note({"closed": True})


class Worker:
    """One thread of a life."""

    def __init__(self, life: Life, number: int) -> None:
        self.life = life
        self.frontier = life.frontier
        self.number = number
        self.rng = random.Random(f"{life.order['seed']} {number}")
        self.calls = 0
        self.rests, self.hosts, self.pages, self.links = (
            int(life.order[name]) for name in ("rests", "hosts", "pages", "links")
        )
        self.held: list[dict[str, Any]] = list(life.order["inherited"]) if number == 0 else []
        self.repeats: list[dict[str, Any]] = list(life.order["repeats"]) if number == 0 else []
        self.kinds = [
            (self.discover, 5), (self.lease, 6), (self.settle, 12), (self.extend, 1), (self.release, 1),
            (self.checkpoint, 0.7),
        ]  # fmt: skip
        if hasattr(self.frontier, "defer"):
            self.kinds.append((self.defer, 1))
        if hasattr(self.frontier, "reprioritise"):
            self.kinds.append((self.reprioritise, 1))
        if hasattr(self.frontier, "pause"):
            self.kinds += [(self.pause, 0.3), (self.resume, 1)]

    def work(self) -> None:
        try:
            for line in self.repeats:
                self.repeat(line)
            while self.life.calls_left is None or self.calls < self.life.calls_left:
                verbs, weights = zip(*self.kinds, strict=True)
                self.rng.choices(verbs, weights)[0]()
        except StoreError as error:
            self.life.note({"refused": f"{type(error).__name__}: {error}"})
            os._exit(3)
        except BaseException as error:  # noqa: BLE001 - the parent judges it
            self.life.note({"error": f"{type(error).__name__}: {error}"})
            os._exit(4)

    # -- calls, each between two lines of the journal

    def call(self, verb: str, about: dict[str, Any], run: Any, *, request: bool = False) -> Any:
        self.calls += 1
        name = f"{self.life.round}-{self.number}-{self.calls}"
        line = {"call": name, "ask": verb, "about": about}
        if request:
            # Grows within a client, over all lives: the parent numbers the lives.
            line["request"] = [f"client{self.number}", self.life.round * 1_000_000 + self.calls]
        self.life.note(line)
        answer = run(tuple(line["request"]) if request else None)
        self.life.note({"call": name, "answer": answer})
        return answer

    def repeat(self, line: dict[str, Any]) -> None:
        """A call of an earlier life once more, under its old request id."""
        self.calls += 1
        request = tuple(line["request"])
        about = line["about"]
        name = f"{self.life.round}-{self.number}-{self.calls}"
        self.life.note({"call": name, "ask": line["ask"], "about": about, "request": request, "again": line["call"]})
        if line["ask"] == "discover":
            answer = self.do_discover(about, request)
        elif line["ask"] == "lease":
            answer = self.do_lease(about, request)
        else:
            answer = self.do_report(about, request)
        self.life.note({"call": name, "answer": answer})

    def do_discover(self, about: dict[str, Any], request: Any) -> list[str]:
        links = [Link(url, priority=priority, depth=1) for url, priority in about["links"]]
        return [str(code) for code in self.frontier.discover(links, request_id=request)]

    def do_lease(self, about: dict[str, Any], request: Any) -> list[list[Any]]:
        leases = self.frontier.lease(
            about["want"], ttl_seconds=about["ttl"], worker=about["worker"], request_id=request
        )
        return [[lease.token, lease.url, lease.host] for lease in leases]

    def do_report(self, about: dict[str, Any], request: Any) -> list[str]:
        outcomes = [
            Outcome(
                token, Verdict(verdict), seconds=0.0, status=None if verdict == "retry" else 200, links=links,
                after_seconds=0.01 if verdict == "retry" else None, at=None,
            )
            for token, verdict, links in about["outcomes"]
        ]  # fmt: skip
        return [str(code) for code in self.frontier.report(outcomes, request_id=request)]

    # -- what a worker does

    def url(self) -> str:
        """A page of this life, or of one before."""
        life = self.life.round if self.rng.random() < 0.7 else self.rng.randrange(self.life.round + 1)
        return f"http://h{self.rng.randrange(self.hosts)}.com/{life}.{self.rng.randrange(self.pages)}"

    def discover(self) -> None:
        count = self.rng.randint(1, self.links)
        links = [[self.url(), self.rng.choice([None, 0.1, 0.9])] for _ in range(count)]
        self.call("discover", {"links": links}, lambda r: self.do_discover({"links": links}, r), request=self.chance(3))

    def lease(self) -> None:
        worker = self.rng.choice([None, None, f"worker{self.number}"])
        ttl = LONG_SECONDS if worker is None or self.chance(8) else SHORT_SECONDS
        about = {"want": self.rng.randrange(1, 5), "ttl": ttl, "worker": worker}
        asked = ticks()
        # Leases of named workers outlive this process: if their answer is lost, it can be had again.
        answer = self.call("lease", about, lambda r: self.do_lease(about, r), request=worker is not None)
        until = asked + int(ttl * 1_000_000)
        self.held += [{"token": token, "url": url, "host": host, "until": until} for token, url, host in answer]

    def settle(self) -> None:
        """Visits some pages and reports them; the host of one that was visited before a kill is not visited again."""
        if not self.held:
            return
        count = self.rng.randrange(1, 4)
        rows, self.held = self.held[:count], self.held[count:]
        outcomes = []
        for row in rows:
            if row["until"] - ticks() < SAFE_SECONDS * 1_000_000:
                continue  # let it expire
            if not row.get("visited"):
                self.life.note({"visits": row["token"]})
                visit(self.life.order["port"], row["host"])
                row["visited"] = True
                if self.chance(self.rests):
                    self.rest(row)
                    continue
            if row.get("known_at", 0) > ticks():
                self.held.append(row)
                continue
            verdict = self.rng.choice(["done"] * 8 + ["retry", "gone"])
            links = [self.url() for _ in range(self.rng.randrange(4))]
            outcomes.append([row["token"], verdict, links])
        if outcomes:
            about = {"outcomes": outcomes}
            self.call("report", about, lambda r: self.do_report(about, r), request=self.chance(3))

    def rest(self, row: dict[str, Any]) -> None:
        """The visit is over, and its outcome is known later, perhaps to another life."""
        tokens, row["known_at"] = [row["token"]], ticks() + int(self.rng.random() * 3 * GAP_SECONDS * 1_000_000)
        self.held.append(row)
        self.call("rest", {"tokens": tokens}, lambda _: [str(code) for code in self.frontier.rest(tokens, 0.0)])

    def extend(self) -> None:
        if not self.held:
            return
        row = self.rng.choice(self.held)
        asked = ticks()
        codes = self.call(
            "extend",
            {"tokens": [row["token"]], "ttl": LONG_SECONDS},
            lambda _: [str(code) for code in self.frontier.extend([row["token"]], LONG_SECONDS)],
        )
        if codes == ["ok"]:
            row["until"] = asked + int(LONG_SECONDS * 1_000_000)

    def release(self) -> None:
        rows = [row for row in self.held if not row.get("visited")][:2]
        if not rows:
            return
        self.held = [row for row in self.held if row not in rows]
        tokens = [row["token"] for row in rows]
        self.call("release", {"tokens": tokens}, lambda _: [str(code) for code in self.frontier.release(tokens)])

    def checkpoint(self) -> None:
        self.call("checkpoint", {}, lambda _: self.frontier.checkpoint())

    def defer(self) -> None:
        rows = [row for row in self.held if not row.get("visited")][:1]
        if not rows:
            return
        self.held = [row for row in self.held if row not in rows]
        tokens, seconds = [row["token"] for row in rows], 0.2
        self.call(
            "defer",
            {"tokens": tokens, "seconds": seconds},
            lambda _: [
                str(code)
                for code in self.frontier.defer(tokens, self.frontier.now() + int(seconds * 1_000_000))  # type: ignore[attr-defined]
            ],
        )

    def reprioritise(self) -> None:
        url, priority = self.url(), self.rng.random()
        self.call(
            "reprioritise",
            {"url": url, "priority": priority},
            lambda _: [str(state) for state in self.frontier.reprioritise(url, priority)],  # type: ignore[attr-defined]
        )

    def pause(self) -> None:
        self.by_host("pause")

    def resume(self) -> None:
        self.by_host("resume")

    def by_host(self, verb: str) -> None:
        host = f"h{self.rng.randrange(HOSTS)}.com"

        def run(_: Any) -> int:
            try:
                return int(getattr(self.frontier, verb)(host))
            except SettingsError:
                return 0  # it has no queue yet

        self.call(verb, {"host": host}, run)

    def chance(self, of: int) -> bool:
        """Three times in ten, say."""
        return self.rng.randrange(10) < of


def mould() -> None:
    """Forks a life per order, prints its process id, and waits for its end on request."""
    for text in sys.stdin:
        order = json.loads(text)
        if (child := os.fork()) == 0:
            with contextlib.suppress(StoreError):
                Life(order).live()
            os._exit(0)
        print(child, flush=True)
        sys.stdin.readline()
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    mould()
