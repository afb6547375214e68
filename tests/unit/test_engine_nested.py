"""Code of callers inside a call (priority functions, clocks, iterators) and forked children: they may not call the
frontier, and their answers are checked."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

import numpy as np
import pytest

from outrider.engine.awaited import AsyncFrontier
from outrider.engine.owner import Frontier
from outrider.errors import LostLockError, NestedCallError, SettingsError, StoreFailedError, StoreInUseError
from outrider.journey import Link

A = "http://a.example/"
CALLS = {
    "discover": lambda frontier: frontier.discover(["http://b.example/"]),
    "discover nothing": lambda frontier: frontier.discover(iter(())),
    "lease": lambda frontier: frontier.lease(1),
    "report": lambda frontier: frontier.report([]),
    "extend": lambda frontier: frontier.extend([1], 5),
    "set_robots": lambda frontier: frontier.set_robots(A, 200),
    "delete": lambda frontier: frontier.delete(),
    "restore": lambda frontier: frontier.restore([]),
    "checkpoint": lambda frontier: frontier.checkpoint(),
    "statistics": lambda frontier: frontier.statistics(),
    "status": lambda frontier: frontier.status(A),
    "urls": lambda frontier: frontier.urls(),
    "records": lambda frontier: list(frontier.records()),
    "lines": lambda frontier: list(frontier.lines("pages", 0)),
    "now": lambda frontier: frontier.now(),
    "watermarks": lambda frontier: frontier.watermarks(),
    "next_ready_seconds": lambda frontier: frontier.next_ready_seconds(),
    "verify": lambda frontier: frontier.verify(),
}


class Asked:
    """A priority function that makes a call of its frontier, once."""

    def __init__(self, call) -> None:
        self.call = call
        self.frontier: Frontier
        self.calls = 0

    def __call__(self, urls, page):
        self.calls += 1
        if self.calls == 1:
            self.call(self.frontier)
        return np.full(len(urls), 0.5)


def asking(call, **settings) -> tuple[Frontier, Asked]:
    function = Asked(call)
    function.frontier = Frontier.memory(
        settings={"priority": function, "delay": 0.0, "delay_factor": 0.0, **settings}, robots="caller"
    )
    return function.frontier, function


@pytest.mark.parametrize("name", [*CALLS, "close"])
def test_a_priority_function_that_calls_the_frontier_is_refused_by_name_and_no_state_is_changed(name):
    """Such a call was once made in the middle of the outer one, and corrupted its counters."""
    frontier, _ = asking(CALLS.get(name, Frontier.close))
    with pytest.raises(NestedCallError, match=r"the priority function <.*Asked"):
        frontier.discover([A])
    assert (0, True) == (frontier.statistics()["accepted"], frontier.verify().ok)
    assert ["new"] == frontier.discover([A])
    assert (1, True) == (frontier.statistics()["accepted"], frontier.verify().ok)
    assert [A] == [lease.url for lease in frontier.lease(5)]


def test_a_priority_function_that_calls_the_frontier_inside_a_report_leaves_the_lease_open():
    """The outcome is neither applied nor lost: the report can be repeated."""
    frontier, function = asking(lambda frontier: frontier.lease(1))
    function.calls = 1
    frontier.discover([A])
    (lease,) = frontier.lease(1)
    function.calls = 0
    with pytest.raises(NestedCallError):
        frontier.report([lease.done(links=[A + "2"])])
    assert (1, True) == (frontier.statistics()["urls"]["leased"], frontier.verify().ok)
    assert (("new",),) == frontier.report([lease.done(links=[A + "2"])]).links


def test_a_priority_function_that_catches_the_refusal_returns_and_the_call_continues():
    def call(frontier):
        with pytest.raises(NestedCallError):
            frontier.lease(1)

    frontier, _ = asking(call)
    assert ["new"] == frontier.discover([A])
    assert (1, True) == (frontier.statistics()["accepted"], frontier.verify().ok)


def test_a_failing_priority_function_widens_no_scope(tmp_path):
    """The seed of a refused call once widened the scope of this process, and no fact recorded it."""
    function = Asked(lambda frontier: frontier.lease(1))
    settings = {"priority": function, "scope": "host", "delay": 0.0}
    with Frontier.open(tmp_path / "store", settings=settings, robots="caller") as frontier:
        function.frontier = frontier
        with pytest.raises(NestedCallError):
            frontier.discover([A])
        assert ["out_of_scope"] == frontier.discover([Link(A + "x", depth=1)])
        assert ["new"] == frontier.discover([A])
    with Frontier.open(tmp_path / "store", settings=settings, robots="caller") as frontier:
        assert ["new"] == frontier.discover([Link(A + "x", depth=1)])


@pytest.mark.parametrize(
    "call",
    [
        lambda frontier, some: frontier.discover(some, request_id=("client", 1)),
        lambda frontier, some: frontier.report(some),
        lambda frontier, some: frontier.report([], links=some),
        lambda frontier, some: frontier.restore(some),
        lambda frontier, some: frontier.receive(some),
        lambda frontier, some: frontier.reprioritise(some, 0.5),
    ],
)
def test_an_iterator_that_calls_the_frontier_is_refused_and_no_state_is_changed(call):
    frontier = Frontier.memory(robots="caller")

    def some():
        frontier.pause()
        yield A

    with pytest.raises(SettingsError, match="may not call the frontier"):
        call(frontier, some())
    assert (0, True) == (frontier.statistics()["accepted"], frontier.verify().ok)
    assert ["new"] == frontier.discover([A])


def test_links_from_a_generator_may_be_read_from_the_frontier_itself():
    """A long input is read between the calls, where no call is half done."""
    frontier = Frontier.memory(robots="caller")
    frontier.discover([A])
    assert ["new"] == frontier.discover(f"{status.url}next" for status in frontier.urls())


@pytest.mark.parametrize("name", CALLS)
def test_a_clock_that_calls_the_frontier_is_refused_by_name(name):
    """It once called itself until the stack was full, or decided twice at once."""
    calls = []

    def clock():
        if calls:
            calls.pop()(frontier)
        return 1_000_000

    frontier = Frontier.memory(clock=clock, robots="caller")
    calls.append(CALLS[name])
    with pytest.raises(NestedCallError, match="the clock may not call"):
        frontier.discover([A])
    assert (["new"], True) == (frontier.discover([A]), frontier.verify().ok)


# -- clocks


WRONG = [1.5, None, -1, "12", True, float("nan"), 1 << 63]


@pytest.mark.parametrize("said", WRONG)
def test_a_clock_that_returns_no_instant_is_refused_at_opening(said, tmp_path):
    """A float was once written into the log's columns, and the store failed."""
    with pytest.raises(SettingsError, match="clock: it said"):
        Frontier.open(tmp_path / "store", clock=lambda: said, robots="caller")
    with Frontier.open(tmp_path / "store", clock=lambda: 5, robots="caller") as frontier:
        assert ["new"] == frontier.discover([A])
    with pytest.raises(SettingsError, match="clock: it said"):
        Frontier.open(tmp_path / "store", clock=lambda: said, robots="caller")


@pytest.mark.parametrize("said", WRONG)
def test_a_clock_that_returns_no_instant_later_changes_no_state(said, tmp_path):
    now = [1_000_000]
    frontier = Frontier.open(tmp_path / "store", clock=lambda: now[0], robots="caller")
    frontier.discover([A])
    now[0] = said
    for call in (CALLS["discover"], CALLS["lease"], CALLS["statistics"], CALLS["now"], CALLS["checkpoint"]):
        with pytest.raises(SettingsError, match="clock: it said"):
            call(frontier)
    now[0] = 2_000_000
    assert (1, True) == (frontier.statistics()["accepted"], frontier.verify().ok)
    now[0] = said
    frontier.close()
    with Frontier.open(tmp_path / "store", clock=lambda: 3_000_000, robots="caller") as frontier:
        assert ("stopped", 1) == (frontier.opening.previous_state, frontier.statistics()["accepted"])


def test_a_clock_may_return_numpy_integers():
    frontier = Frontier.memory(clock=lambda: np.int64(7_000_000), robots="caller")
    assert (["new"], 7_000_000) == (frontier.discover([A]), frontier.now())


# -- forked children


def in_a_child(work) -> str:
    """Returns the text that `work` returns in a forked child. A child that hangs is ended."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            signal.alarm(20)
            os.write(writing, work().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said:
        told = said.read()
    os.waitpid(child, 0)
    return told


def told_by(call, frontier) -> str:
    try:
        call(frontier)
    except StoreInUseError as error:
        return "refused" if str(os.getppid()) in str(error) else str(error)
    except BaseException as error:  # noqa: BLE001 - the child says whatever it was
        return repr(error)
    return "nothing"


def contents(place) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in place.iterdir() if path.is_file()}


def test_a_child_forked_while_another_thread_called_is_refused_at_once_and_writes_no_bytes(tmp_path):
    """The holder of the lock is not in the child, which once waited there for ever."""
    frontier = Frontier.open(tmp_path / "store", robots="caller")
    frontier.discover([A])
    held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with frontier._lock, frontier._sync_turn:
            held.set()
            over.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    before = contents(tmp_path / "store")
    told = in_a_child(lambda: " ".join(told_by(call, frontier) for call in CALLS.values()))
    closed = in_a_child(lambda: told_by(Frontier.close, frontier))
    after = contents(tmp_path / "store")
    over.set()
    holder.join()
    assert " ".join(["refused"] * len(CALLS)) == told
    assert "nothing" == closed
    assert before == after
    assert ["new"] == frontier.discover(["http://b.example/"])
    frontier.close()


def test_a_child_that_awaits_a_call_is_refused_at_once(tmp_path):
    """The threads that wait for the disk are not in the child, which once waited for them for ever."""

    async def opened() -> AsyncFrontier:
        frontier = await AsyncFrontier.open(tmp_path / "store", robots="caller")
        await frontier.discover([A])
        await frontier.count(host="a.example")
        return frontier

    frontier = asyncio.run(opened())
    calls = [
        lambda f: asyncio.run(f.discover([A])),
        lambda f: asyncio.run(f.lease(1)),
        lambda f: asyncio.run(f.pause()),
        lambda f: asyncio.run(f.count(host="a.example")),
        lambda f: asyncio.run(f.urls()),
        lambda f: asyncio.run(f.verify()),
    ]
    assert " ".join(["refused"] * len(calls)) == in_a_child(lambda: " ".join(told_by(call, frontier) for call in calls))
    asyncio.run(frontier.close())


def test_a_child_that_is_forked_inside_a_call_writes_no_bytes(tmp_path):
    """The child once continued in its copy of the call, whose frame would overlap that of the parent."""
    children = []

    def forks(urls, page):
        child = os.fork()
        children.append(child)
        return np.full(len(urls), 0.5)

    frontier = Frontier.open(tmp_path / "store", settings={"priority": forks}, robots="caller")
    try:
        frontier.discover([A])
    except LostLockError:
        os._exit(0 if not children[0] else 1)
    finally:
        if not children[0]:
            os._exit(1)
    _, status = os.waitpid(children[0], 0)
    assert 0 == status
    assert (1, True) == (frontier.statistics()["accepted"], frontier.verify().ok)
    frontier.close()


# -- the lock


def test_an_owner_whose_lock_file_has_disappeared_stops_before_it_writes(tmp_path):
    """It once continued, and a second process that made a new lock file overwrote its frames."""
    store = tmp_path / "store"
    first = Frontier.open(store, robots="caller")
    first.discover([A])
    (store / "lock").unlink()
    with Frontier.open(store, robots="caller") as second:
        second.discover(["http://b.example/"])
        for _ in range(2):
            with pytest.raises(LostLockError, match="lock was replaced while the store was open") as told:
                first.discover(["http://c.example/"])
            assert (True, 6) == (isinstance(told.value, StoreFailedError), told.value.exit_code)
        first.close()
        assert ["new"] == second.discover(["http://d.example/"])
    with Frontier.open(store, robots="caller") as again:
        assert (3, True) == (again.statistics()["accepted"], again.verify().ok)


@pytest.mark.parametrize("call", [lambda one: one.lease(1), lambda one: one.checkpoint(), lambda one: one.delete()])
def test_an_owner_whose_lock_file_was_removed_is_warned(call, tmp_path):
    frontier = Frontier.open(tmp_path / "store", robots="caller")
    frontier.discover([A])
    (tmp_path / "store" / "lock").unlink()
    before = contents(tmp_path / "store")
    with pytest.raises(LostLockError, match="was removed while the store was open"):
        call(frontier)
    frontier.close()
    assert before == contents(tmp_path / "store")


def test_an_owner_whose_directory_was_moved_continues_there(tmp_path):
    """The lock was moved with it."""
    frontier = Frontier.open(tmp_path / "store", robots="caller")
    frontier.discover([A])
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    assert ["new"] == frontier.discover(["http://b.example/"])
    frontier.close()
    with Frontier.open(tmp_path / "elsewhere", robots="caller") as frontier:
        assert 2 == frontier.statistics()["accepted"]


# -- hosts


LONG = ("a" * 60 + ".") * 1_147 + "a" * 38  # of 70,005 bytes


@pytest.mark.parametrize(
    "call",
    [
        lambda one: one.set_address(LONG, "192.0.2.1"),
        lambda one: one.set_addresses({LONG: "192.0.2.1"}),
        lambda one: one.set_robots(f"http://{LONG}", 200),
        lambda one: one.set_robots(f"http://{LONG}:8080/", 200),
        lambda one: one.set_delay(1.0, LONG),
        lambda one: one.count(host=LONG),
        lambda one: one.urls(host=LONG),
        lambda one: one.retry(host=LONG),
    ],
)
def test_a_host_longer_than_any_url_is_refused_and_no_state_is_changed(call):
    """The length of a host has 16 bits in the log."""
    frontier = Frontier.memory(robots="caller")
    assert 70_005 == len(LONG)
    with pytest.raises(SettingsError) as told:
        call(frontier)
    assert len(str(told.value)) < 1_000
    assert (["over_limit"], 0) == (frontier.discover([f"http://{LONG}/"]), frontier.statistics()["hosts"]["known"])
    assert (["new"], True) == (frontier.discover([A]), frontier.verify().ok)
