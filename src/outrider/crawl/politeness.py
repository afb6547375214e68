"""Proves from the record alone that no gap was broken: `politeness.jsonl` is read anew, and compared with the store.

Every line was sealed when it was made, and the store keeps a digest of all lines in their order: a line that was
edited, removed or put elsewhere is found. The gaps and the requests at once are recomputed from the instants of the
lines, per host and for each clock that hosts share.
"""

from __future__ import annotations

import heapq
import os
from array import array
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import msgspec

from outrider.archive.projection import chained, tame
from outrider.clock import Instant, seconds
from outrider.crawl.looks import store_of
from outrider.crawl.output import CHAIN, FILES, PAGES, POLITENESS
from outrider.crawl.visit import seal_of
from outrider.engine import Frontier
from outrider.errors import NamedPathError
from outrider.limits import (
    GROUP_CAPACITY_MAX,
    GROUP_GAP_SECONDS_MAX,
    OUTPUT_LINE_BYTES_MAX,
    POLITENESS_VIOLATIONS_NAMED_MAX,
)

_TOLERANCE = 2  # microseconds: the gap of a line is rounded to one
_SEAL_BYTES = len(b',"seal":"0123456789abcdef"}')
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that a line of the record breaks. line: from 1, None where the fault has no place."""

    rule: str
    host: str | None
    line: int | None
    text: str


@dataclass(slots=True)
class HostProof:
    """The requests to one host. All lengths of time in seconds; None where the host was asked once."""

    host: str
    requests: int = 0
    gap_min: float | None = None
    gap_required: float | None = None
    room_min: float | None = None


@dataclass(slots=True)
class Proof:
    """The findings in one record. violations: the first ones; `broken` counts all. torn: the bytes behind the last
    whole line. unseen: requests of which the record shows the end and has no line: a crash took their answers."""

    requests: int = 0
    groups: int = 0
    broken: int = 0
    torn: int = 0
    unseen: int = 0
    hosts: dict[str, HostProof] = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether no rule is broken."""
        return not self.broken

    def add(self, rule: str, host: str | None, line: int | None, text: str) -> None:
        """Notes a violation."""
        self.broken += 1
        if len(self.violations) < POLITENESS_VIOLATIONS_NAMED_MAX:
            self.violations.append(Violation(rule, host, line, text))

    def as_dict(self, host: str | None = None) -> dict[str, Any]:
        """As JSON values, of one host or of all."""
        return {
            "ok": self.ok,
            "requests": self.requests,
            "broken": self.broken,
            "torn_bytes": self.torn,
            "unseen": self.unseen,
            "groups": self.groups,
            "hosts": [asdict(one) for name, one in sorted(self.hosts.items()) if host in (None, name)],
            "violations": [asdict(one) for one in self.violations],
        }


_Token = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class _Group(msgspec.Struct):
    """A clock that the host shares: how many requests may be open at once, and its own gap in seconds."""

    name: str
    capacity: Annotated[int, msgspec.Meta(ge=1, le=GROUP_CAPACITY_MAX)] | None = None
    gap: Annotated[float, msgspec.Meta(ge=0, le=GROUP_GAP_SECONDS_MAX)] | None = None


class _Request(msgspec.Struct):
    """A line of the record, as far as it is judged."""

    host: str
    url: str
    kind: str
    started_at: str
    ended_at: str
    token: _Token
    gap_required: float | None
    gap: float | None
    first_byte_at: str | None = None
    seconds: float | None = None
    reason: str | None = None
    groups: list[_Group] = []
    seal: str | None = None


@dataclass(slots=True)
class _Clock:
    """The last request to a host."""

    started: Instant
    ended: Instant
    token: int
    line: int


class _Shared:
    """The requests of a clock that hosts share, in one column: start, end, token, line, a number for the host, and the
    capacity and the gap in microseconds that held then, -1 for the rest of the host that was visited."""

    __slots__ = ("cells",)

    def __init__(self) -> None:
        self.cells = array("q")

    def rows(self) -> list[tuple[int, ...]]:
        """The requests by their starts."""
        cells = self.cells.tolist()
        return sorted(tuple(cells[at : at + 7]) for at in range(0, len(cells), 7))


def prove(path: str) -> Proof:
    """Reads the record of the crawl in `path`. Raises NoCrawlError, NamedPathError, StoreError (StoreInUseError while
    the crawl runs)."""
    store = store_of(path)
    frontier = Frontier.look(store)
    try:
        known = frontier.watermarks().get(CHAIN[POLITENESS])
        length, lsn = frontier.projection(POLITENESS)
        behind = [tame(line) for _, line in frontier.lines(POLITENESS, lsn)]
    finally:
        frontier.close()
    noted = msgspec.json.decode(known, type=tuple[int, str]) if known is not None else None
    proof = Proof()
    judge = Judge(proof)
    order = _Order(proof)
    chain, at = b"", 0
    chain_held = noted is None or noted[0] == 0
    tail: list[bytes] = []
    for number, line in _lines(os.path.join(path, FILES[POLITENESS]), proof):
        if at >= length:
            tail.append(line)
        at += len(line) + 1
        chain = chained(chain, (line,))
        if noted is not None and at == noted[0]:
            chain_held = chain.hex() == noted[1]
        request = judge.take(number, line)
        if request is not None and request.kind == "page":
            order.take(number, request)
    order.compare(_tokens(os.path.join(path, FILES[PAGES])))
    if at < length:
        proof.add("store", None, None, f"the record has {at:,} bytes of whole lines; the store says {length:,}")
    elif not chain_held:
        proof.add("store", None, None, "the lines are not the ones that the store knows, or not in their order")
    for place, (kept, line) in enumerate(zip(tail, behind, strict=False)):
        if kept != line:
            proof.add("store", None, None, f"line {place + 1} behind byte {length:,} is not the one that the log has")
            break
    judge.end(true_to_store=at >= length and chain_held)
    return proof


class Judge:
    """Recomputes gaps and requests at once, line by line."""

    def __init__(self, proof: Proof) -> None:
        self._proof = proof
        self._clocks: dict[str, _Clock] = {}
        self._shared: dict[str, _Shared] = {}
        self._hosts: dict[str, int] = {}
        self._rests: dict[int, float] = {}  # seconds that a host had to rest behind a request, by its token
        self.unseen: list[tuple[str, int]] = []

    def take(self, number: int, line: bytes) -> _Request | None:
        """Judges one line; gives it back where it is a record."""
        try:
            request = msgspec.json.decode(line, type=_Request)
            started, ended = _instant(request.started_at), _instant(request.ended_at)
            first = _instant(request.first_byte_at) if request.first_byte_at is not None else None
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
            self._proof.add("record", None, number, f"it is no record of a request: {error}")
            return None
        host = request.host
        self._proof.requests += 1
        if request.seal is None:
            self._proof.add("seal", host, number, "it has no seal, so nothing proves that it was not edited")
        elif seal_of(line[:-_SEAL_BYTES] + b"}") != request.seal.encode():
            self._proof.add("seal", host, number, "it was edited")
        if ended < started or (first is not None and not started <= first <= ended):
            self._proof.add("instants", host, number, "its start, first byte and end are not in this order")
        self._judge_host(number, request, started, ended)
        for group in request.groups:
            clock = self._shared.setdefault(group.name, _Shared())
            number_of_host = self._hosts.setdefault(host, len(self._hosts))
            gap = -1 if group.gap is None else round(group.gap * 1_000_000)
            clock.cells.extend((started, ended, request.token, number, number_of_host, group.capacity or 1, gap))
        return request

    def _judge_host(self, number: int, request: _Request, started: Instant, ended: Instant) -> None:
        proof, host = self._proof, request.host
        told = proof.hosts.setdefault(host, HostProof(host))
        told.requests += 1
        before = self._clocks.get(host)
        self._clocks[host] = _Clock(started, ended, request.token, number)
        if before is None:
            return
        if request.token <= before.token:
            proof.add("order", host, number, f"it was leased before line {before.line}, and stands behind it")
            return
        gap = seconds(started - before.ended)
        if started < before.ended:
            proof.add("at once", host, number, f"it began {-gap:.6f} s before the request of line {before.line} ended")
            return
        required = request.gap_required
        if required is None or request.gap is None:
            proof.add("gap", host, number, f"it names no gap, and line {before.line} is a request to the same host")
            return
        difference = round((gap - request.gap) * 1_000_000)
        if difference < -_TOLERANCE:
            proof.add(
                "gap", host, number, f"it says {request.gap:.6f} s; from line {before.line} on {gap:.6f} s passed"
            )
        elif difference > _TOLERANCE:
            self.unseen.append((host, number))  # a request between them, whose answer was lost, ended there
        if (gap - required) * 1_000_000 < -_TOLERANCE:
            why = f" ({request.reason})" if request.reason else ""
            proof.add("gap", host, number, f"{gap:.6f} s of {required:.6f} s required{why}")
        room = gap - required
        if told.room_min is None or room < told.room_min:
            told.gap_min, told.gap_required, told.room_min = round(gap, 6), required, round(room, 6)
        if request.groups:
            self._rests[before.token] = required

    def end(self, *, true_to_store: bool) -> None:
        """Judges the clocks that hosts share. A request without a line was lost in a crash, where the lines are the
        ones that the store knows."""
        proof = self._proof
        proof.groups, proof.unseen = len(self._shared), len(self.unseen)
        if not true_to_store:
            for host, line in self.unseen:
                proof.add("missing", host, line, "a request before it has no line")
        names = list(self._hosts)
        for name, clock in self._shared.items():
            self._judge_group(name, clock, names)

    def _judge_group(self, name: str, clock: _Shared, names: list[str]) -> None:
        proof = self._proof
        ends: list[int] = []
        before: tuple[int, ...] | None = None
        for row in clock.rows():
            started, ended, _, line, host, capacity, gap = row
            while ends and ends[0] <= started:
                heapq.heappop(ends)
            heapq.heappush(ends, ended)
            if len(ends) > capacity:
                proof.add(
                    "capacity", names[host], line, f"{len(ends)} requests at once in {name}, which has {capacity}"
                )
            # Where several may be open, a turn is held from before the other ended: it keeps no gap to that end.
            if capacity == 1 and before is not None and before[1] <= started:
                required = gap / 1_000_000 if gap >= 0 else self._rests.get(before[2], 0.0)
                passed = seconds(started - before[1])
                if (passed - required) * 1_000_000 < -_TOLERANCE:
                    text = f"{passed:.6f} s of {required:.6f} s behind {names[before[4]]} in {name}"
                    proof.add("group gap", names[host], line, text)
            before = row


class _Order:
    """The pages of the record stand in the order of pages.jsonl, and none that was answered is missing."""

    def __init__(self, proof: Proof) -> None:
        self._proof = proof
        self._lines: dict[int, tuple[int, str]] = {}

    def take(self, number: int, request: _Request) -> None:
        self._lines[request.token] = (number, request.host)

    def compare(self, pages: Iterator[tuple[int, bool, str]]) -> None:
        last = 0
        for token, answered, url in pages:
            found = self._lines.get(token)
            if found is None:
                if answered:
                    self._proof.add("missing", None, None, f"the request for {url} (token {token}) has no line")
                continue
            number, host = found
            if number < last:
                self._proof.add("order", host, number, f"it stands before line {last}, and was written behind it")
            last = max(last, number)


def _lines(path: str, proof: Proof) -> Iterator[tuple[int, bytes]]:
    try:
        file = open(path, "rb")  # noqa: SIM115 -- the generator closes it
    except FileNotFoundError:
        return
    except OSError as error:
        raise NamedPathError(f"{path} cannot be read ({error.strerror})") from error
    with file:
        number = 0
        while line := file.readline(OUTPUT_LINE_BYTES_MAX):
            number += 1
            if not line.endswith(b"\n"):
                proof.torn = len(line) + len(file.read())
                return
            yield number, line[:-1]


def _tokens(path: str) -> Iterator[tuple[int, bool, str]]:
    """The token of each line of pages.jsonl, whether a server answered, and the URL."""
    for _, line in _lines(path, Proof()):
        try:
            told = msgspec.json.decode(line)
            yield int(told["token"]), told.get("status") is not None, str(told.get("url"))
        except (msgspec.DecodeError, UnicodeDecodeError, LookupError, TypeError, ValueError):
            continue


def _instant(text: str) -> Instant:
    told = datetime.fromisoformat(text)
    if told.tzinfo is None:
        raise ValueError(f"{text!r} names no offset from UTC")
    return (told - _EPOCH) // timedelta(microseconds=1)
