"""The outside judge of killed processes: a dict of the answers to callers, a site that saw the visits, and the store.

It reads nothing but journals of `crash.life`, its own clock, and the public face of a frontier that is opened after.
"""

from __future__ import annotations

import contextlib
import json
import random
import select
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from crash.life import GAP_SECONDS, HOSTS, SETTINGS, ticks
from outrider import Frontier
from outrider.errors import SettingsError

DOUBT = 50_000
"""Microseconds by which a lease's end may be uncertain: the wall clock is corrected now and then."""


class Site:
    """Every host of the test in one server: it notes when each visit began and ended."""

    def __init__(self) -> None:
        self.visits: list[tuple[str, int, int]] = []
        """(host, begin, end) in microseconds."""
        self.port = 0
        self._guard = threading.Lock()
        self._rng = random.Random(1)

    def receive(self, line: Any) -> None:
        host = line.recv(256).decode().strip()
        if not host:
            return
        begin = ticks()
        with self._guard:
            hold = self._rng.choice([0.0, 0.001, 0.004])
        select.select([line], [], [], hold)
        with self._guard:
            end = ticks()
            # A visitor that died has ended its visit some time before; one that is there now was there at the end.
            gone, _, _ = select.select([line], [], [], 0)
            self.visits.append((host, begin, begin if gone else end))
        line.sendall(b"ok\n")

    @contextmanager
    def serving(self) -> Iterator[Site]:
        site = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(ConnectionError):  # it was killed
                    site.receive(self.request)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            request_queue_size = 128

        with Server(("127.0.0.1", 0), Handler) as server:
            self.port = server.server_address[1]
            thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
            thread.start()
            try:
                yield self
            finally:
                server.shutdown()
                thread.join()

    def violations(self, gap_seconds: float = GAP_SECONDS) -> list[str]:
        """Hosts that were visited again too early, or twice at once (then the seconds are negative)."""
        by_host: dict[str, list[tuple[int, int]]] = {}
        for host, begin, end in self.visits:
            by_host.setdefault(host, []).append((begin, end))
        return [
            f"{host} is visited {(b[0] - a[1]) / 1e6:.6f} s after the last visit"
            for host, visits in by_host.items()
            for a, b in pairwise(sorted(visits))
            if b[0] - a[1] < gap_seconds * 1e6
        ]


@dataclass
class Held:
    """A lease that a caller was given."""

    token: int
    url: str
    host: str
    worker: str | None
    round: int
    until: int
    ended: bool = False
    """Whether a call began to end it."""
    visited: bool = False
    rested: bool = False
    """Whether a call began to end its visit."""

    def lives(self, round_: int, at: int) -> bool:
        return not self.ended and self.until - DOUBT > at and (self.worker is not None or self.round == round_)


@dataclass
class Oracle:
    """The facts that must be true by the answers alone. `problems` grows; it should always be empty."""

    problems: list[str] = field(default_factory=list)
    accepted: set[str] = field(default_factory=set)
    asked: dict[str, set[str]] = field(default_factory=dict)
    """By URL: the calls that spoke of it."""
    done: set[str] = field(default_factory=set)
    leases: dict[int, Held] = field(default_factory=dict)
    live: dict[str, Held] = field(default_factory=dict)
    """The newest lease by URL, and by host."""
    token: int = 0
    pending: dict[str, dict[str, Any]] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)
    asks: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Calls with a request id, by their first name."""
    deferred: dict[str, int] = field(default_factory=dict)
    paused: dict[str, bool] = field(default_factory=dict)
    """For every paused host: whether it certainly is paused."""
    resumes: dict[str, int] = field(default_factory=dict)
    resuming: dict[str, int] = field(default_factory=dict)
    """How often a host's resume was called, and how many of these calls have no answer."""
    answered: int = 0
    early: int = 0
    """How often a host was leased again while the outcome of its last visit was open."""
    openings: list[int] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def read(self, journal: Path) -> None:
        """Reads the lines of one life; half a line at the end does not count."""
        text = journal.read_bytes() if journal.exists() else b""
        for line in text.splitlines(keepends=True):
            if line.endswith(b"\n"):
                self.line(json.loads(line))

    def line(self, line: dict[str, Any]) -> None:
        if "ask" in line:
            self.ask(line)
        elif "answer" in line:
            self.answer(self.pending.pop(line["call"]), line)
        elif "visits" in line:
            self.leases[line["visits"]].visited = True
        elif "opened" in line:
            if self.openings and line["opened"] <= self.openings[-1]:
                self.problems.append(f"opening {line['opened']} comes after opening {self.openings[-1]}")
            self.openings.append(line["opened"])
        elif "refused" in line:
            self.refused.append(line["refused"])
        elif "error" in line:
            self.problems.append(f"round {line['round']}: {line['error']}")

    # -- calls

    def ask(self, line: dict[str, Any]) -> None:
        name, about = line["call"], line["about"]
        first = self.asks.get(line.get("again", ""))
        if first is not None:
            # Without an answer it may not have happened: then it happens now, to leases that outlived the process.
            later = line["at"] + 10_000_000
            lived = {
                token: lived and self.leases[token].worker is not None and self.leases[token].until > later
                for token, lived in first["lived"].items()
            }
            self.pending[name] = first | {"paused": set(), "lived": lived}
            return
        line["token"] = self.token
        urls = [url for url, _ in about.get("links", [])]
        urls += [url for _, _, links in about.get("outcomes", []) for url in links]
        line["knew"] = {url for url in urls if url in self.accepted}
        line["done"] = frozenset(self.done)
        line["paused"] = {host for host, paused in self.paused.items() if paused}
        for url in urls:
            self.asked.setdefault(url, set()).add(name)
        line["lived"] = {}
        tokens = [*about.get("tokens", []), *(token for token, _, _ in about.get("outcomes", []))]
        for token in tokens:
            held = self.leases[token]
            # Whether it lives is known until the answer only where its end is far away.
            line["lived"][token] = held.lives(line["round"], line["at"] + 10_000_000)
            if line["ask"] == "rest":
                held.rested = True
            elif line["ask"] == "extend":
                held.until = min(held.until, line["at"] + int(about["ttl"] * 1e6))
            else:
                held.ended = True
        if line["ask"] == "resume":
            self.paused[about["host"]] = False
            self.resumes[about["host"]] = self.resumes.get(about["host"], 0) + 1
            self.resuming[about["host"]] = self.resuming.get(about["host"], 0) + 1
        elif line["ask"] == "pause":
            line["resumes"] = (self.resumes.get(about["host"], 0), self.resuming.get(about["host"], 0))
        self.pending[name] = line
        if "request" in line:
            self.asks[name] = line

    def answer(self, asked: dict[str, Any], line: dict[str, Any]) -> None:
        name, verb, about, answer = asked["call"], asked["ask"], asked["about"], line["answer"]
        if name in self.answers:
            before = self.answers[name]
            if verb == "lease":
                # Leases that have ended in the meantime need not be returned.
                sure = [row for row in before if self.leases[row[0]].lives(line["round"], line["at"] + 10_000_000)]
                wrong = any(row not in before for row in answer) or any(row not in answer for row in sure)
            else:
                wrong = before != answer
            if wrong:
                self.problems.append(f"{name} {verb} was answered {before}, and then {answer}")
            return
        self.answered += 1
        if "request" in asked and answer:
            # That nothing was ready changed nothing, and is nothing to remember.
            self.answers[name] = answer
        elif "request" in asked:
            del self.asks[name]
        if verb == "discover":
            self.discovered(asked, [url for url, _ in about["links"]], answer)
        elif verb == "lease":
            self.leased(asked, line["at"], line["round"], answer)
        elif verb == "report":
            self.reported(asked, about["outcomes"], answer)
        elif verb in ("release", "extend", "defer", "rest"):
            for token, code in zip(about["tokens"], answer, strict=True):
                if code != "ok" and asked["lived"][token]:
                    self.problems.append(f"{name} {verb}: token {token} is alive and was told {code}")
                if verb == "extend" and code == "ok":
                    self.leases[token].until = asked["at"] + int(about["ttl"] * 1e6)
                if verb == "defer" and code == "ok":
                    self.deferred[self.leases[token].url] = asked["at"] + int(about["seconds"] * 1e6)
        elif verb == "pause":
            # Sure only where no other thread resumed it meanwhile.
            alone = asked["resumes"] == (self.resumes.get(about["host"], 0), 0)
            self.paused[about["host"]] = bool(answer) and alone
        elif verb == "resume":
            self.resuming[about["host"]] -= 1

    def discovered(self, asked: dict[str, Any], urls: list[str], codes: list[str]) -> None:
        for row, (url, code) in enumerate(zip(urls, codes, strict=True)):
            if code == "new" and (url in asked["knew"] or url in urls[:row]):
                self.problems.append(f"{asked['call']}: {url} was accepted before and is new again")
            elif code == "known" and self.asked[url] == {asked["call"]} and url not in urls[:row]:
                self.problems.append(f"{asked['call']}: {url} is known, and nobody spoke of it")
            elif code not in ("new", "known"):
                self.problems.append(f"{asked['call']}: {url} is {code}")
            self.accepted.add(url)

    def leased(self, asked: dict[str, Any], at: int, round_: int, rows: list[list[Any]]) -> None:
        name, about = asked["call"], asked["about"]
        tokens = [token for token, _, _ in rows]
        if tokens != sorted(set(tokens)) or any(token <= asked["token"] for token in tokens):
            self.problems.append(f"{name}: tokens {tokens} do not grow from {asked['token']}")
        for token, url, host in rows:
            held = Held(token, url, host, about["worker"], asked["round"], asked["at"] + int(about["ttl"] * 1e6))
            self.leases[token] = held
            self.token = max(self.token, token)
            if url not in self.asked:
                self.problems.append(f"{name}: {url} was leased, and nobody spoke of it")
            if url in asked["done"]:
                self.problems.append(f"{name}: {url} was done and is leased again")
            if self.deferred.get(url, 0) - DOUBT > at:
                self.problems.append(f"{name}: {url} is leased {self.deferred[url] - at} us before it was deferred to")
            if host in asked["paused"] and self.paused[host]:
                self.problems.append(f"{name}: {url} is leased and {host} is paused")
            if not held.lives(round_, at):
                continue
            for place in (url, host):
                other = self.live.get(place)
                if other is not None and other.lives(round_, at) and other.rested and place == host:
                    self.early += 1
                elif other is not None and other.lives(round_, at):
                    self.problems.append(f"{name}: {url} is leased by {token}, and {place} is by {other.token}")
                self.live[place] = held

    def reported(self, asked: dict[str, Any], outcomes: list[list[Any]], codes: list[str]) -> None:
        for (token, verdict, links), code in zip(outcomes, codes, strict=True):
            if code == "ok":
                self.accepted.update(links)
                if verdict == "done":
                    self.done.add(self.leases[token].url)
            elif asked["lived"][token]:
                self.problems.append(f"{asked['call']}: token {token} is alive and was told {code}")

    # -- between two lives

    def inherited(self, round_: int) -> list[dict[str, Any]]:
        """Leases of named workers that a next life may continue."""
        return [
            {"token": held.token, "url": held.url, "host": held.host, "until": held.until, "visited": held.visited}
            for held in self.leases.values()
            if held.worker is not None and not held.ended and held.lives(round_, ticks())
        ]

    def repeats(self, rng: random.Random) -> list[dict[str, Any]]:
        """Calls with a request id to make again: all that were not answered, and some of the newest that were."""
        open_ = [line for name, line in self.asks.items() if name not in self.answers]
        newest = [self.asks[name] for name in list(self.answers)[-40:]]
        return [
            {key: line[key] for key in ("call", "ask", "about", "request")}
            for line in open_ + rng.sample(newest, min(4, len(newest)))
        ]

    def forget(self) -> None:
        """A call without request id and without answer stays open for ever."""
        self.pending.clear()
        self.resuming.clear()

    # -- the store itself

    def look(self, path: Path, rng: random.Random) -> None:
        """Looks at the store of a dead process: all is there, the counters sum, and it verifies."""
        frontier = Frontier.look(path)
        try:
            self.holds(frontier, rng)
        finally:
            frontier.close()

    def holds(self, frontier: Frontier, rng: random.Random) -> None:
        urls = sorted(self.accepted)
        for url in rng.sample(urls, min(300, len(urls))):
            state = str(frontier.status(url).state)
            if state == "unknown":
                self.problems.append(f"{url} was accepted and is lost")
            elif url in self.done and state != "done":
                self.problems.append(f"{url} was reported done and is {state}")
        statistics: Any = frontier.statistics()
        if statistics["accepted"] != sum(statistics["urls"].values()):
            self.problems.append(f"the counters do not sum: {statistics['accepted']}, {statistics['urls']}")
        if not len(self.accepted) <= statistics["accepted"] <= len(self.asked):
            self.problems.append(
                f"{statistics['accepted']} accepted; {len(self.accepted)} are, of {len(self.asked)} that were spoken of"
            )
        self.problems += frontier.verify().problems

    def drain(self, path: Path, rng: random.Random) -> None:
        """Runs the store to its end, a day later: every accepted URL ends, once, and it alone is known."""
        start, now = 0, 0

        def clock() -> int:
            return start + now

        with Frontier.look(path) as looked:
            start = looked.now() + 86_400_000_000
        with Frontier.open(path, clock=clock, settings=SETTINGS, robots="caller") as frontier:
            for number in range(HOSTS if hasattr(frontier, "resume") else 0):
                with contextlib.suppress(SettingsError):  # it has no queue
                    frontier.resume(f"h{number}.com")  # type: ignore[attr-defined]
            for _ in range(100_000):
                leases = frontier.lease(1_000)
                for lease in leases:
                    if lease.url in self.done:
                        self.problems.append(f"{lease.url} was done and is leased at the end")
                frontier.report([lease.done(seconds=0.0) for lease in leases])
                wait = frontier.next_ready_seconds()
                if wait is None:
                    break
                # A whole gap at least: then each host is ready for its next lease.
                now += max(int(GAP_SECONDS * 1e6), int(wait * 1e6) + 1)
            if not frontier.finished():
                self.problems.append(f"it does not come to an end: {frontier.statistics()['urls']}")
            self.holds(frontier, rng)
            records = list(frontier.records())
            states = {str(record["url"]): str(record["state"]) for record in records}
            if not len(states) == len(records) == frontier.statistics()["accepted"]:
                self.problems.append(f"{len(records)} records of {len(states)} URLs; {frontier.statistics()}")
            for url in sorted(self.accepted):
                state = states.get(url, "unknown")
                if state not in ("done", "gone") or (url in self.done and state != "done"):
                    self.problems.append(f"{url} was accepted and is {state} at the end")
            self.recognised(frontier)

    def recognised(self, frontier: Frontier) -> None:
        """Discovers each accepted URL again, and as many of which no call spoke, which the frontier then has too."""
        urls = sorted(self.accepted)
        for suffix, expected in (("", "known"), ("?other", "new")):
            some = [url + suffix for url in urls]
            codes = [str(code) for code in frontier.discover(some)]
            self.problems += [f"{u} is {c} at the end" for u, c in zip(some, codes, strict=True) if c != expected]
