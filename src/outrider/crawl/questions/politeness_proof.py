"""Proves from the record alone that no gap was violated: reads `politeness.jsonl` again, and compares it with the
store.

Each line was sealed when it was made, and the store has a digest of all lines in their order. So a line that was
edited, removed or moved is found. The gaps and the requests at once are computed again from the instants of the
lines, per host and for each clock that hosts share. The lines of a host are in the order in which its requests were
reported. For a host with one request at a time this is the order of the requests, and each line is compared with the
one before. The lines of a host with several requests at a time are judged together, at the end.
"""

from __future__ import annotations

import contextlib
import heapq
import math
import os
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from outrider.archive.line_index import StaleIndexError, lines_of_host
from outrider.archive.projection import chained, tame
from outrider.clock import Instant, seconds
from outrider.crawl.output.output import CHAIN, FILES, PAGES, POLITENESS
from outrider.crawl.output.worker_folder import is_worker, known_work
from outrider.crawl.run.visit import seal_of
from outrider.crawl.setup.directory import store_of
from outrider.engine import Frontier
from outrider.errors import NamedPathError
from outrider.limits import (
    GROUP_CAPACITY_MAX,
    GROUP_GAP_SECONDS_MAX,
    OUTPUT_LINE_BYTES_MAX,
    POLITENESS_VIOLATIONS_NAMED_MAX,
)

_TOLERANCE = 2  # microseconds: the gap of a line is rounded to one
_SECONDS_MAX = 1e12  # thirty thousand years: no record has longer gaps, and microseconds of it are whole numbers
_SEAL_BYTES = len(b',"seal":"0123456789abcdef"}')
_READ_BYTES = 1 << 20
_NEVER = np.iinfo(np.int64).max
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Violation:
    """A rule that a line of the record breaks. line: from 1, None for a fault without a place."""

    rule: str
    host: str | None
    line: int | None
    text: str


@dataclass(slots=True)
class HostProof:
    """The requests to one host. All lengths of time in seconds; None for a host with one request."""

    host: str
    requests: int = 0
    gap_min: float | None = None
    gap_required: float | None = None
    room_min: float | None = None


@dataclass(slots=True)
class Proof:
    """The findings in one record. violations: the first ones; `broken` counts all. torn: the bytes after the last
    whole line. unseen: requests whose end the record shows and that have no line: a crash lost their answers."""

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

    def as_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "ok": self.ok,
            "requests": self.requests,
            "broken": self.broken,
            "torn_bytes": self.torn,
            "unseen": self.unseen,
            "groups": self.groups,
            "hosts": [asdict(one) for _, one in sorted(self.hosts.items())],
            "violations": [asdict(one) for one in self.violations],
        }


_Token = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Seconds = Annotated[float, msgspec.Meta(ge=-_SECONDS_MAX, le=_SECONDS_MAX)]
_Capacity = Annotated[int, msgspec.Meta(ge=1, le=GROUP_CAPACITY_MAX)]


class _Host(msgspec.Struct):
    """The host of a line."""

    host: str


class _HostClock(msgspec.Struct):
    """A clock that the host shares: how many requests may be open at once, and its own gap in seconds."""

    name: str
    capacity: _Capacity | None = None
    gap: Annotated[float, msgspec.Meta(ge=0, le=GROUP_GAP_SECONDS_MAX)] | None = None


class _Request(msgspec.Struct):
    """The judged fields of a line of the record."""

    host: str
    url: str
    kind: str
    started_at: str
    ended_at: str
    token: _Token
    gap_required: _Seconds | None
    gap: _Seconds | None
    first_byte_at: str | None = None
    seconds: float | None = None
    reason: str | None = None
    groups: list[_HostClock] = []
    capacity: _Capacity = 1
    seal: str | None = None


class _Clock(NamedTuple):
    """The last request to a host."""

    started: Instant
    ended: Instant
    token: int
    line: int
    is_grouped: bool


class _Several:
    """The requests of a host with several at a time, in the order of their lines: as a clock has them, then the
    capacity at that time, and the gap and the required gap in seconds, NaN for none. before: the last requests from
    the time with one at a time. They are judged already."""

    __slots__ = ("cells", "gaps", "judged", "reasons")

    def __init__(self, before: Iterable[_Clock]) -> None:
        self.cells, self.gaps = array("q"), array("d")
        self.reasons: dict[int, str] = {}  # by place
        for clock in before:
            self.add(clock, 1, None, None, None)
        self.judged = len(self)

    def __len__(self) -> int:
        return len(self.gaps) // 2

    def add(self, clock: _Clock, capacity: int, gap: float | None, required: float | None, reason: str | None) -> None:
        """Adds one more request."""
        if reason:
            self.reasons[len(self)] = sys.intern(reason)
        self.cells.extend((*clock, capacity))
        self.gaps.extend((math.nan if gap is None else gap, math.nan if required is None else required))

    def columns(self) -> list[npt.NDArray[np.int64]]:
        """Starts, ends, tokens, lines, whether they count in groups, and capacities."""
        return list(np.frombuffer(self.cells, np.int64).reshape(-1, 6).T)


class _Shared:
    """The requests of a clock that hosts share, in one column: start, end, token, line, a number for the host, and the
    capacity and the gap in microseconds at that time, -1 for the rest of the host that was visited."""

    __slots__ = ("cells",)

    def __init__(self) -> None:
        self.cells = array("q")

    def rows(self) -> list[tuple[int, ...]]:
        """Returns the requests by their starts."""
        cells = self.cells.tolist()
        return sorted(tuple(cells[at : at + 7]) for at in range(0, len(cells), 7))


class _OpenRequests:
    """The open requests of a host or of a group, while they are read in the order of their starts.

    The capacity of each limits how many have its token or a lower one: these were leased when its own lease was made.
    Later leases may be more, if the capacity was raised while it waited."""

    def __init__(self) -> None:
        self._open: list[tuple[Instant, int, int]] = []  # end, token, capacity: the first end is on top

    def begin(self, started: Instant, ended: Instant, token: int, capacity: int) -> tuple[int, int]:
        """Adds a request; instants in microseconds. Returns how many are open with its token or a lower one, and how
        many of these may be. If a later lease allows fewer than are open up to its token, its numbers are returned."""
        while self._open and self._open[0][0] <= started:
            heapq.heappop(self._open)
        heapq.heappush(self._open, (ended, token, capacity))
        count, accepted = 1, capacity
        by_token = sorted((one, most) for _, one, most in self._open) if len(self._open) > 1 else ()
        for number, (one, most) in enumerate(by_token, 1):
            if one >= token:
                count, accepted = number, most
                if count > accepted:
                    break
        return count, accepted


def _widest(columns: list[npt.NDArray[np.int64]], until: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Returns the largest capacity that a host had up to an instant of each request: that of its own lease, or of a
    later lease whose request began by then. A train may wait while the capacity is raised. until: these instants, in
    microseconds."""
    starts, _, tokens, _, _, capacities = columns
    by_token = np.argsort(tokens, kind="stable")
    later = np.searchsorted(tokens, tokens, side="right", sorter=by_token)  # the place of the next lease, by token
    widest = capacities.copy()
    for capacity in np.unique(capacities)[1:].tolist():
        begun = np.where(capacities >= capacity, starts, _NEVER)[by_token]
        earliest = np.append(np.minimum.accumulate(begun[::-1])[::-1], _NEVER)
        widest[earliest[later] <= until] = capacity
    return np.maximum(widest, capacities)


def prove(path: str) -> Proof:
    """Reads the record of the crawl, or of the worker, in `path`. Raises NoCrawlError, NamedPathError, StoreError
    (StoreInUseError while a process owns it)."""
    worker = is_worker(path)
    with known_work(path) if worker else contextlib.closing(Frontier.look(store_of(path))) as books:
        known = books.watermarks().get(CHAIN[POLITENESS])
        length, lsn = books.projection(POLITENESS)
        behind = [tame(line) for _, line in books.lines(POLITENESS, lsn)]
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
        proof.add("store", None, None, "the lines differ from those in the store, or their order does")
    for place, (kept, line) in enumerate(zip(tail, behind, strict=False)):
        if kept != line:
            proof.add("store", None, None, f"line {place + 1} after byte {length:,} differs from the one in the log")
            break
    if worker:
        judge.unseen.clear()  # the gaps of a served frontier count from requests of other workers too
    judge.end(true_to_store=at >= length and chain_held)
    return proof


def prove_host(path: str, host: str) -> Proof:
    """Reads the requests to one host, by the index of the record: their seals, gaps and requests at once. It does not
    open the store, so it works while a process owns the crawl.

    Clocks that hosts share are judged by the requests of this host alone. The digest of all lines is not computed: only
    `prove` finds a line that was removed, or was edited and sealed again. Raises NoCrawlError, NamedPathError.
    """
    worker = is_worker(path)
    if not worker:
        store_of(path)
    record = os.path.join(path, FILES[POLITENESS])
    try:
        try:
            return _judged(record, host, worker=worker, indexed=True)
        except StaleIndexError:
            return _judged(record, host, worker=worker, indexed=False)
    except OSError as error:
        raise NamedPathError(f"{record} cannot be read ({error.strerror})") from error


def _judged(record: str, host: str, *, worker: bool, indexed: bool) -> Proof:
    """Judges the lines of a host. To number lines, the whole record is read, so they have their numbers only after a
    violation."""
    proof = Proof()
    for numbered in (_in_order, _in_record):
        proof = Proof()
        judge = Judge(proof)
        for number, line in numbered(record, lines_of_host(record, host, indexed=indexed)):
            if host_of_line(line) in (host, None):
                judge.take(number, line)
        if worker:
            judge.unseen.clear()
        judge.end(true_to_store=True)
        if proof.ok:
            break
    return proof


def host_of_line(line: bytes) -> str | None:
    """Returns the host of a line; None if it has none."""
    try:
        return msgspec.json.decode(line, type=_Host).host
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _in_order(_: str, lines: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """Yields lines with numbers from 1, instead of their offsets."""
    return enumerate((line for _, line in lines), 1)


def _in_record(record: str, lines: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """Yields lines with their numbers in the record, from 1, instead of their offsets."""
    number, at = 1, 0
    with open(record, "rb") as file:
        for offset, line in lines:
            while at < offset and (piece := file.read(min(_READ_BYTES, offset - at))):
                number += piece.count(b"\n")
                at += len(piece)
            yield number, line


class Judge:
    """Recomputes gaps and requests at once, line by line."""

    def __init__(self, proof: Proof) -> None:
        self._proof = proof
        self._clocks: dict[str, tuple[_Clock, ...]] = {}  # of hosts with one request at a time: the last two
        self._several: dict[str, _Several] = {}
        self._shared: dict[str, _Shared] = {}
        self._hosts: dict[str, int] = {}
        self._rests: dict[int, float] = {}  # seconds that a host had to rest after a request, by its token
        self.unseen: list[tuple[str, int]] = []
        """Hosts and lines of requests after an earlier request that has no line."""

    def take(self, number: int, line: bytes) -> _Request | None:
        """Judges one line. Returns it if it is a record."""
        try:
            request = msgspec.json.decode(line, type=_Request)
            started, ended = _instant(request.started_at), _instant(request.ended_at)
            first = _instant(request.first_byte_at) if request.first_byte_at is not None else None
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError) as error:
            self._proof.add("record", None, number, f"it is not a record of a request: {error}")
            return None
        host = request.host
        self._proof.requests += 1
        if request.seal is None:
            self._proof.add("seal", host, number, "it has no seal, so nothing proves that it was not edited")
        elif seal_of(line[:-_SEAL_BYTES] + b"}") != request.seal.encode():
            self._proof.add("seal", host, number, "it was edited")
        if ended < started or (first is not None and not started <= first <= ended):
            self._proof.add("instants", host, number, "its start, first byte and end are not in this order")
        self._take_host(request, _Clock(started, ended, request.token, number, bool(request.groups)))
        for group in request.groups:
            clock = self._shared.setdefault(group.name, _Shared())
            number_of_host = self._hosts.setdefault(host, len(self._hosts))
            gap = -1 if group.gap is None else round(group.gap * 1_000_000)
            clock.cells.extend((started, ended, request.token, number, number_of_host, group.capacity or 1, gap))
        return request

    def _take_host(self, request: _Request, clock: _Clock) -> None:
        host = request.host
        self._proof.hosts.setdefault(host, HostProof(host)).requests += 1
        several = self._several.get(host)
        if several is None and request.capacity == 1:
            last = self._clocks.get(host, ())
            self._clocks[host] = (*last[-1:], clock)
            if last:
                self._judge_next(request, clock, last[-1])
            return
        if several is None:
            several = self._several[host] = _Several(self._clocks.pop(host, ()))
        several.add(clock, request.capacity, request.gap, request.gap_required, request.reason)

    def _judge_next(self, request: _Request, clock: _Clock, before: _Clock) -> None:
        """Judges a request to a host with one at a time, by the request before."""
        proof, host, number, started = self._proof, request.host, clock.line, clock.started
        if request.token <= before.token:
            proof.add("order", host, number, f"it was leased before line {before.line}, and comes after it in the file")
            return
        gap = seconds(started - before.ended)
        if started < before.ended:
            proof.add("at once", host, number, f"it began {-gap:.6f} s before the request of line {before.line} ended")
            return
        required = request.gap_required
        if required is None or request.gap is None:
            proof.add("gap", host, number, f"it has no gap, but line {before.line} is a request to the same host")
            return
        difference = round((gap - request.gap) * 1_000_000)
        if difference < -_TOLERANCE:
            proof.add("gap", host, number, f"it says {request.gap:.6f} s; since line {before.line}, {gap:.6f} s passed")
        elif difference > _TOLERANCE:
            self.unseen.append((host, number))  # a request in between, whose answer was lost, ended at that time
        self._judge_room(host, number, gap, required, request.reason)
        if request.groups:
            self._rests[before.token] = required

    def _judge_room(self, host: str, number: int, gap: float, required: float, reason: str | None) -> None:
        """Judges a true gap by the required one."""
        proof, told = self._proof, self._proof.hosts[host]
        if (gap - required) * 1_000_000 < -_TOLERANCE:
            why = f" ({reason})" if reason else ""
            proof.add("gap", host, number, f"{gap:.6f} s of {required:.6f} s required{why}")
        room = gap - required
        if told.room_min is None or room < told.room_min:
            told.gap_min, told.gap_required, told.room_min = round(gap, 6), required, round(room, 6)

    def _judge_several(self, host: str, several: _Several) -> None:
        """Judges the requests to a host with several at a time.

        A lease with a capacity of c was made while fewer than c were open. So of the requests leased before
        it, all but c - 1 at most had been reported. Their lines are among the first, before any that was leased later.
        The gap counts from the latest end in these first lines.
        """
        proof = self._proof
        self._judge_at_once(host, several)
        columns = several.columns()
        starts, ends, tokens, lines, is_grouped, at_lease = (column.tolist() for column in columns)
        capacities = _widest(columns, columns[1]).tolist()
        at_start = _widest(columns, columns[0]).tolist()
        in_order = np.sort(columns[2])
        leased_before = np.searchsorted(in_order, columns[2]).tolist()  # numbers of requests
        leased_until = np.searchsorted(in_order, columns[2], side="right").tolist()
        behind = np.searchsorted(np.maximum.accumulate(columns[2]), columns[2]).tolist()  # numbers of first lines
        latest: list[Instant] = np.maximum.accumulate(columns[1]).tolist()
        lost: set[Instant] = set()  # ends of requests without a line
        for place in range(several.judged, len(several)):
            line, capacity = lines[place], capacities[place]
            reported = max(0, leased_before[place] - capacity + 1)  # at least
            if leased_until[place] - leased_before[place] > 1:
                proof.add("order", host, line, "it has the token of another line")
                continue
            if behind[place] < reported:
                text = f"{capacity} may be open, but more requests leased before it are in later lines"
                proof.add("order", host, line, text)
                continue
            # The gap is that from the latest end of the requests that had been reported, of which the lines show some.
            reported = min(max(0, leased_before[place] - at_start[place] + 1), behind[place])
            gap, required = several.gaps[2 * place : 2 * place + 2]
            if math.isnan(gap) or math.isnan(required):
                if reported:
                    proof.add("gap", host, line, f"it has no gap, but line {lines[0]} is a request to the same host")
                continue
            told = starts[place] - round(gap * 1_000_000)
            if reported and told < latest[reported - 1] - _TOLERANCE:
                last = ends.index(latest[reported - 1])
                text = f"since line {lines[last]}, {seconds(starts[place] - ends[last]):.6f} s passed"
                proof.add("gap", host, line, f"it says {gap:.6f} s; {text}")
                continue
            # In a train the gap counts from the page before, even if the line of a later lease is in between.
            first_lines = place if capacities[place] > at_lease[place] else behind[place]
            found = bisect_left(latest, told - _TOLERANCE, 0, first_lines)
            if found == first_lines or latest[found] > told + _TOLERANCE:
                # An end before the kept lines of an earlier time is the end of a line: the requests after it may have
                # been open, in a train. Any other end is that of a request whose answer was lost.
                if told not in lost and not (several.judged and told < ends[0]):
                    lost.add(told)
                    self.unseen.append((host, line))
            elif is_grouped[place]:
                self._rests[tokens[found]] = required
            self._judge_room(host, line, gap, required, several.reasons.get(place))

    def _judge_at_once(self, host: str, several: _Several) -> None:
        starts, ends, tokens, lines, _, capacities = (column.tolist() for column in several.columns())
        open_requests = _OpenRequests()
        rows = zip(starts, tokens, ends, capacities, lines, range(len(several)), strict=True)
        for started, token, ended, capacity, line, place in sorted(rows):
            count, accepted = open_requests.begin(started, ended, token, capacity)
            if count > accepted and place >= several.judged:
                text = f"{count} requests at once, but the host accepts {accepted}"
                self._proof.add("at once", host, line, text)

    def end(self, *, true_to_store: bool) -> None:
        """Judges the hosts with several requests at a time, and the clocks that hosts share. A request without a line
        was lost in a crash, if the lines match the store."""
        proof = self._proof
        for host, several in self._several.items():
            self._judge_several(host, several)
        proof.groups, proof.unseen = len(self._shared), len(self.unseen)
        if not true_to_store:
            for host, line in self.unseen:
                proof.add("missing", host, line, "a request before it has no line")
        names = list(self._hosts)
        for name, clock in self._shared.items():
            self._judge_group(name, clock, names)

    def _judge_group(self, name: str, clock: _Shared, names: list[str]) -> None:
        proof = self._proof
        open_requests = _OpenRequests()
        before: tuple[int, ...] | None = None
        for row in clock.rows():
            started, ended, token, line, host, capacity, gap = row
            count, accepted = open_requests.begin(started, ended, token, capacity)
            if count > accepted:
                proof.add("capacity", names[host], line, f"{count} requests at once in {name}, which has {accepted}")
            if before is not None and before[2] > token:
                capacity = max(capacity, before[5])  # it was leased first, and the group accepts more since then
            # If several may be open, a turn began before the other request ended: no gap to that end is required.
            if capacity == 1 and before is not None and before[1] <= started:
                required = gap / 1_000_000 if gap >= 0 else self._rests.get(before[2], 0.0)
                passed = seconds(started - before[1])
                if (passed - required) * 1_000_000 < -_TOLERANCE:
                    text = f"{passed:.6f} s of {required:.6f} s after {names[before[4]]} in {name}"
                    proof.add("group gap", names[host], line, text)
            before = row


class _Order:
    """Checks that the pages of the record are in the order of pages.jsonl, without a missing answer."""

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
                self._proof.add("order", host, number, f"it is before line {last}, but was written after it")
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
    """Yields the token of each line of pages.jsonl, whether a server answered, and the URL."""
    for _, line in _lines(path, Proof()):
        try:
            told = msgspec.json.decode(line)
            yield int(told["token"]), told.get("status") is not None, str(told.get("url"))
        except (msgspec.DecodeError, UnicodeDecodeError, LookupError, TypeError, ValueError, RecursionError):
            continue


def _instant(text: str) -> Instant:
    told = datetime.fromisoformat(text)
    if told.tzinfo is None:
        raise ValueError(f"{text!r} names no offset from UTC")
    return (told - _EPOCH) // timedelta(microseconds=1)
