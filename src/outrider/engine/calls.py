"""Calls in the size that costs least: small ones of threads and tasks are joined, long ones are cut into pieces."""

from __future__ import annotations

import contextlib
import inspect
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, wraps
from itertools import accumulate, islice
from typing import Any, Generic, Protocol, TypeVar

from outrider.clock import Instant
from outrider.errors import InterruptedCallError, SettingsError, StoreFullError, shown
from outrider.frontier.machine import Machine
from outrider.frontier.verbs import arguments
from outrider.frontier.verbs.leased import Unclaimed
from outrider.journey import Code, LeaseBatch, Link, Report, RequestId
from outrider.limits import DISCOVER_ROWS_PER_FRAME, SMALL_CALL_ROWS_MAX
from outrider.storage.log import Log
from outrider.url import UrlBatch

Answer = TypeVar("Answer")

Verb = Callable[[Machine, Instant], Answer]


_PLAIN = (int, float, str, bool)
_Class = TypeVar("_Class", bound=type)


def takes_builtins(cls: _Class) -> _Class:
    """Makes the public methods of a class copy each number, text and bytes with `arguments.plain`."""
    for name, method in list(vars(cls).items()):
        if inspect.isfunction(method) and not name.startswith("_") and len(inspect.signature(method).parameters) > 1:
            setattr(cls, name, _awaited(method) if inspect.iscoroutinefunction(method) else _called(method))
    return cls


def _called(method: Callable[..., Answer]) -> Callable[..., Answer]:
    @wraps(method)
    def call(self: object, *given: object, **named: object) -> Answer:
        some, more = _in_builtins(given, named)
        return method(self, *some, **more)

    return call


def _awaited(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    async def call(self: object, *given: object, **named: object) -> object:
        some, more = _in_builtins(given, named)
        return await method(self, *some, **more)

    return call


def _in_builtins(given: tuple[object, ...], named: dict[str, object]) -> tuple[Sequence[object], dict[str, object]]:
    if arguments.PLAIN.issuperset(map(type, given)) and arguments.PLAIN.issuperset(map(type, named.values())):
        return given, named
    return [*map(_plain, given)], {name: _plain(value) for name, value in named.items()}


def _plain(value: object) -> object:
    return arguments.plain(value) if isinstance(value, int | float | str | bytes) else value


class Decide(Protocol):
    """Runs a verb, by name, under the frontier's lock: its answer, and the LSN through which it must be synced."""

    def __call__(self, name: str, verb: Verb[Answer]) -> tuple[Answer, int]: ...


class InterruptibleCall(Generic[Answer]):
    """A single call. It stores its answer when it is decided, because an interruption may arrive before the answer
    reaches its caller."""

    __slots__ = ("answer", "request_id", "token", "verb")

    def __init__(self, verb: Verb[Answer], request_id: RequestId | None = None) -> None:
        self.verb, self.request_id = verb, request_id
        self.answer: Answer | None = None
        self.token = 0  # the last one that was drawn before

    def __call__(self, machine: Machine, now: Instant) -> Answer:
        self.token = machine.tables.token
        self.answer = answer = self.verb(machine, now)
        return answer

    def unclaimed(self) -> Unclaimed | None:
        """The leases that no caller has if this call is given up. A repeated answer was given before: its leases
        stay."""
        return unclaimed_of(self.answer, self.token, self.request_id) if isinstance(self.answer, LeaseBatch) else None


def unclaimed_of(leases: LeaseBatch, token: int, request_id: RequestId | None) -> Unclaimed:
    """The part of an answer that no caller has: leases with tokens above this one, and the lines."""
    tokens = [one for one in leases.tokens if one > token]
    return Unclaimed(tokens, leases.lines, request_id if tokens else None)


class SmallCall:
    """A call of few rows, which costs less when joined with others of its kind; and its result."""

    __slots__ = ("answer", "error", "how", "kind", "links", "lsn", "made", "rows", "want")

    def __init__(
        self,
        kind: str,
        rows: Sequence[Any] = (),
        links: Sequence[tuple[int, str | Link]] = (),
        want: int = 0,
        how: Mapping[str, Any] | None = None,
    ) -> None:
        self.kind, self.rows, self.links, self.want, self.how = kind, rows, links, want, how
        self.answer: Any = None
        self.error: BaseException | None = None
        self.lsn = 0
        self.made = False

    @classmethod
    def discover(cls, links: object, request_id: RequestId | None) -> SmallCall | None:
        """None where the call is long, or must be a frame of its own."""
        if request_id is not None or not isinstance(links, list | tuple) or len(links) > SMALL_CALL_ROWS_MAX:
            return None
        return cls("discover", links)

    @classmethod
    def lease(cls, want: object, how: Mapping[str, Any], request_id: RequestId | None) -> SmallCall | None:
        """Returns None for a large call, one that needs its own frame, or one that cannot be compared with others."""
        if request_id is not None or type(want) is not int or not 0 < want <= SMALL_CALL_ROWS_MAX:
            return None
        for value in how.values():
            if value is not None and type(value) not in _PLAIN:
                return None  # a wrong value, which may not compare with that of another call
        return cls("lease", want=want, how=how)

    @classmethod
    def report(
        cls, outcomes: object, links: object, request_id: RequestId | None, watermark: object
    ) -> SmallCall | None:
        """None where the call is long, or must be a frame of its own."""
        if request_id is not None or watermark is not None or not isinstance(outcomes, list | tuple):
            return None
        if not isinstance(links, list | tuple) or len(outcomes) + len(links) > SMALL_CALL_ROWS_MAX:
            return None
        return cls("report", outcomes, links)

    def succeed(self, answer: object, lsn: int) -> None:
        self.answer, self.lsn, self.made = answer, lsn, True

    def fail(self, error: BaseException) -> None:
        self.error, self.made = error, True

    def unclaimed(self) -> Unclaimed | None:
        """The leases that no caller has if this call is given up."""
        return Unclaimed(self.answer.tokens, self.answer.lines) if isinstance(self.answer, LeaseBatch) else None

    def result(self) -> Any:
        """The answer. Raises the error of the call, and InterruptedCallError where it was never made."""
        if self.error is not None:
            raise self.error
        if not self.made:
            raise InterruptedCallError
        return self.answer


class Gathering:
    """Small calls that wait for their turn: the thread that gets the frontier's lock makes all of them."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._waiting: deque[SmallCall] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self, *calls: SmallCall) -> None:
        """Any thread may, at any time."""
        self._waiting.extend(calls)

    def leave(self, *calls: SmallCall) -> None:
        """Under the lock: no caller waits for their answers any more, so calls that were not made never will be."""
        for one in calls:
            with contextlib.suppress(ValueError):
                self._waiting.remove(one)

    def make(self, decide: Decide) -> None:
        """Makes the waiting calls in order; under the lock.

        A call leaves the queue after it was made, and not before. So after an error that stops the frontier, or an
        interruption between two calls, the other callers still find their calls in the queue. They make them, or get
        the reason why they cannot.
        """
        for group in _joinable(list(self._waiting)):
            undone = [one for one in group if not one.made]
            if undone:
                self._make(undone, decide)
            for _ in group:
                self._waiting.popleft()

    def _make(self, group: Sequence[SmallCall], decide: Decide) -> None:
        try:
            decide(group[0].kind, partial(_together, group, self._log))
        except (SettingsError, StoreFullError) as error:
            if group[0].made:
                return  # it arrived after them, from the step of a checkpoint
            if len(group) == 1:
                group[0].fail(error)
                return
            # One of them may be wrong, or too much for what room is left: each gets its own answer.
            for one in group:
                self._make([one], decide)


def _joinable(calls: Sequence[SmallCall]) -> Iterator[list[SmallCall]]:
    """Calls that can be joined, in order of arrival."""
    group: list[SmallCall] = []
    for one in calls:
        if group and (one.kind != group[0].kind or one.how != group[0].how):
            yield group
            group = []
        group.append(one)
    if group:
        yield group


def _together(calls: Sequence[SmallCall], log: Log, machine: Machine, now: Instant) -> None:
    """Makes one call of the machine for all of these, which are of one kind; each gets its answer.

    It does so inside the verb, where an interruption stops the frontier: no call is made twice because its answer was
    lost on the way.
    """
    for one, answer in zip(calls, _answers(calls, machine, now), strict=True):
        one.succeed(answer, log.appended_lsn)


def _answers(calls: Sequence[SmallCall], machine: Machine, now: Instant) -> Sequence[object]:
    first = calls[0]
    if first.kind == "discover":
        codes = machine.links.discover([link for one in calls for link in one.rows], now, together=len(calls) > 1)
        return _cut(codes, [len(one.rows) for one in calls])
    if first.kind == "lease":
        leases = machine.leases.lease(sum(one.want for one in calls), now, **(first.how or {}))
        if len(calls) == 1:
            return [leases]
        pieces = _cut(list(leases), [one.want for one in calls])
        # The first caller gets the lines of the joint call.
        told = [leases.lines, *[()] * (len(calls) - 1)]
        return [LeaseBatch(piece, lines=lines, lsn=leases.lsn) for piece, lines in zip(pieces, told, strict=True)]
    starts = [0, *accumulate(len(one.rows) for one in calls)]
    links = [(row_after(start, link), link) for one, start in zip(calls, starts, strict=False) for link in one.links]
    if len(calls) == 1:
        return [machine.reports.report(first.rows, first.links, now)]
    outcomes = [outcome for one in calls for outcome in one.rows]
    report = machine.reports.report(outcomes, [(row, link[1]) for row, link in links], now, together=True)
    lengths = [len(one.rows) for one in calls]
    return [
        Report(outcomes, found, report.lines if place == 0 else (), report.lsn)
        for place, (outcomes, found) in enumerate(
            zip(_cut(report.outcomes, lengths), _cut(report.links, lengths), strict=True)
        )
    ]


def row_after(start: int, link: object) -> int:
    """The row of an outcome when calls are joined. Raises SettingsError, which makes each call alone, for a strange
    link."""
    if not isinstance(link, tuple) or len(link) != 2 or type(link[0]) is not int or link[0] < 0:
        raise SettingsError(f"link {shown(link)}: use (row of the outcome, link)")
    return start + link[0]


def _cut(rows: Sequence[Any], lengths: Sequence[int]) -> list[Any]:
    """Rows in pieces of these lengths; where there are too few, the last pieces are shorter."""
    ends = list(accumulate(lengths))
    return [rows[end - length : end] for end, length in zip(ends, lengths, strict=True)]


def lease_alone(want: int, how: Mapping[str, Any], machine: Machine, now: Instant) -> LeaseBatch:
    """The verb as a call of its own."""
    return machine.leases.lease(want, now, **how)


def discoveries(links: Iterable[str | Link] | UrlBatch, request_id: RequestId | None) -> Iterator[Verb[list[Code]]]:
    """Yields the calls that add these links: one frame each, and a single one if the answer may be repeated."""
    if isinstance(links, str | bytes | bytearray):
        raise SettingsError(f"discover takes a list of links, not one text: discover([{links!r:.80}])")
    if request_id is not None:
        yield lambda machine, now: machine.links.discover(links, now, request_id=request_id)
        return
    if isinstance(links, UrlBatch):
        if len(links) <= DISCOVER_ROWS_PER_FRAME:
            yield partial(_discover, links)
            return
        for start in range(0, len(links), DISCOVER_ROWS_PER_FRAME):
            yield partial(_discover, links[start : start + DISCOVER_ROWS_PER_FRAME])
        return
    if not isinstance(links, Iterable):
        raise SettingsError(f"links {links!r:.80}: discover takes a list of links")
    rest = iter(links)
    while piece := list(islice(rest, DISCOVER_ROWS_PER_FRAME)):
        yield partial(_discover, piece)


def _discover(links: list[str | Link] | UrlBatch, machine: Machine, now: Instant) -> list[Code]:
    return machine.links.discover(links, now)
