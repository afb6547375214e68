"""Leases that wait: woken by links, reports, operators and the clock, and returned by cancelled tasks."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Executor, Future

import pytest

from model.inside import inspect
from outrider import AsyncFrontier, Frontier
from outrider.engine.waiting import Bell, WaitingRoom
from outrider.errors import ClosedError, SettingsError
from outrider.journey import Kind, LeaseBatch

A, B, C = "http://a.com/", "http://b.com/", "http://c.com/"


class TurnedLoop(asyncio.SelectorEventLoop):
    """A loop whose time jumps to its next timer instead of passing."""

    def __init__(self) -> None:
        super().__init__()
        self._at = 1_000.0
        select = self._selector.select

        def jump(timeout):
            events = select(0 if timeout is None or timeout > 0 else timeout)
            if not events and timeout:
                self._at += timeout
            elif not events and timeout is None:
                events = select(5)
            return events

        self._selector.select = jump

    def time(self) -> float:
        return self._at


class AtOnce(Executor):
    """Uses no thread: a loop whose time jumps would not wait for one."""

    def submit(self, work, /, *args, **kwargs):
        done = Future()
        done.set_result(work(*args, **kwargs))
        return done


def lived(task):
    """Returns the result of a coroutine function that gets a frontier in memory, on a clock that jumps."""
    loop = TurnedLoop()

    async def main():
        clock = lambda: 1_700_000_000_000_000 + round(loop.time() * 1_000_000)  # noqa: E731
        async with AsyncFrontier.memory(
            clock=clock, settings={"delay": 2, "delay_factor": 0}, robots="caller"
        ) as frontier:
            frontier._pool.shutdown()
            frontier._pool = AtOnce()
            return await task(frontier, loop)

    try:
        return loop.run_until_complete(main())
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


async def began(coroutine):
    task = asyncio.ensure_future(coroutine)
    for _ in range(10):
        await asyncio.sleep(0)
    return task


def test_a_waiting_lease_gets_a_link_that_arrives_meanwhile():
    async def live(frontier, loop):
        waiting = await began(frontier.lease(1, worker="w", wait_seconds=60))
        await frontier.discover([A])
        return (await waiting).urls, loop.time()

    assert ([A], 1_000.0) == lived(live)


def test_a_waiting_lease_gets_the_next_url_of_its_host_when_the_clock_allows_it():
    async def live(frontier, loop):
        await frontier.discover([A, A + "2"])
        (first,) = await frontier.lease(1)
        waiting = await began(frontier.lease(1, wait_seconds=60))
        await frontier.report([first.done(seconds=0.1)])
        (second,) = await waiting
        return {first.url, second.url}, round(loop.time() - 1_000, 2)

    assert ({A, A + "2"}, 2.0) == lived(live)


def test_a_waiting_lease_gets_the_url_of_an_expired_lease():
    async def live(frontier, loop):
        await frontier.discover([A])
        await frontier.lease(1, worker="dead", ttl_seconds=7)
        (again,) = await frontier.lease(1, worker="alive", wait_seconds=60)
        # A whole delay after the deadline: the dead worker may have fetched just before it.
        return again.url, again.attempt >= 1, round(loop.time() - 1_000, 2)

    assert (A, True, 9.0) == lived(live)


def test_a_resumed_queue_wakes_a_waiting_lease():
    async def live(frontier, loop):
        await frontier.discover([A])
        await frontier.pause("a.com")
        waiting = await began(frontier.lease(1, wait_seconds=60))
        assert not waiting.done()
        await frontier.resume("a.com")
        return (await waiting).urls

    assert [A] == lived(live)


def test_an_empty_batch_is_returned_at_the_end_of_the_wait_and_no_waiter_remains():
    async def live(frontier, loop):
        found = await frontier.lease(1, wait_seconds=30)
        return len(found), loop.time(), frontier.waiting_leases, frontier.sync._bell._listeners

    assert (0, 1_030.0, 0, ()) == lived(live)


def test_tasks_are_served_in_the_order_of_their_calls():
    async def live(frontier, loop):
        order = []

        async def take(name):
            leases = await frontier.lease(1, worker=name, wait_seconds=60)
            order.append((name, len(leases)))

        tasks = [await began(take(name)) for name in ("one", "two", "three")]
        await frontier.discover([A, B, C])
        await asyncio.gather(*tasks)
        return order

    assert [("one", 1), ("two", 1), ("three", 1)] == lived(live)


def test_a_change_costs_one_try_for_all_waiters_that_stay_empty():
    async def live(frontier, loop):
        tries = 0
        lease = frontier._waiting._lease

        async def counted(*args, **kwargs):
            nonlocal tries
            tries += 1
            return await lease(*args, **kwargs)

        frontier._waiting._lease = counted
        tasks = [await began(frontier.lease(1, wait_seconds=60)) for _ in range(50)]
        before = tries
        await frontier.discover([A])
        await began(asyncio.sleep(0))
        after = tries
        for task in tasks:
            task.cancel()
        given = [
            one for one in await asyncio.gather(*tasks, return_exceptions=True) if not isinstance(one, BaseException)
        ]
        return after - before, [leases.urls for leases in given]

    tries, given = lived(live)
    assert tries <= 3  # the one that got it, and one more that found no URL
    assert [[A]] == given


def test_a_waiter_of_another_crawl_does_not_block():
    async def live(frontier, loop):
        other = await began(frontier.lease(1, crawl="other", wait_seconds=60))
        mine = await began(frontier.lease(1, wait_seconds=60))
        await frontier.discover([A])
        found = (await mine).urls
        other.cancel()
        return found

    assert [A] == lived(live)


def test_a_cancelled_wait_returns_leases_that_arrived_too_late():
    async def live(frontier, loop):
        waiting = await began(frontier.lease(1, worker="w", wait_seconds=60))
        lease = frontier._waiting._lease

        async def cancelled(*args, **kwargs):
            leases = await lease(*args, **kwargs)
            waiting.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            return leases

        frontier._waiting._lease = cancelled
        await frontier.discover([A])
        with pytest.raises(asyncio.CancelledError):
            await waiting
        for _ in range(20):
            await asyncio.sleep(0.001)
        return (await frontier.status(A)).state, await frontier.workers()

    assert ("queued", []) == lived(live)


@pytest.mark.parametrize("late", [False, True], ids=["in the turn of its end", "behind its end"])
def test_lines_of_a_cancelled_wait_are_in_the_next_answer(late):
    """A wait may end with lines alone: URLs that robots.txt closes are not leased."""

    async def live(frontier, loop):
        inspect(frontier.sync).core.keeps_lines = True
        waiting = await began(frontier.lease(1, worker="w", wait_seconds=60))
        lease = frontier._waiting._lease

        async def cancelled(*args, **kwargs):
            leases = await lease(*args, **kwargs)
            if not leases.lines:
                return leases
            waiting.cancel()
            for _ in range(2 * late):
                await asyncio.sleep(0)
            return leases

        frontier._waiting._lease = cancelled
        await frontier.set_robots("http://a.com", 200, b"User-agent: *\nDisallow: /")
        await frontier.discover([A])
        with pytest.raises(asyncio.CancelledError):
            await waiting
        for _ in range(20):
            await asyncio.sleep(0.001)
        return [b"http://a.com/" in line for _, line in (await frontier.lease(1)).lines]

    assert [True] == lived(live)


def test_a_cancelled_wait_under_a_request_id_leaves_the_leases_of_its_first_answer():
    async def live(frontier, loop):
        await frontier.discover([A])
        first = await frontier.lease(1, worker="w", request_id=("w", 1))
        lease = frontier._waiting._lease

        async def cancelled(*args, **kwargs):
            leases = await lease(*args, **kwargs)
            waiting.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            return leases

        frontier._waiting._lease = cancelled
        waiting = asyncio.ensure_future(frontier.lease(1, worker="w", request_id=("w", 1), wait_seconds=60))
        with pytest.raises(asyncio.CancelledError):
            await waiting
        for _ in range(20):
            await asyncio.sleep(0.001)
        return [str(code) for code in await frontier.report([first[0].done()])]

    assert ["ok"] == lived(live)


def test_a_ring_at_the_end_of_a_round_starts_another():
    """Another thread may ring between the last check of the bell and the end of the round."""

    class Room(WaitingRoom):
        rings_late = False
        _is_rung = False

        @property
        def _rung(self):
            found = self._is_rung
            if self.rings_late and not found:
                self.rings_late = False
                there.append(LeaseBatch((), lines=((0, b"x"),)))
                self._ring()
            return found

        @_rung.setter
        def _rung(self, value):
            self._is_rung = value

    there: list[LeaseBatch] = []

    async def lease(want):
        room.rings_late = not there
        return there.pop() if there else LeaseBatch(())

    async def main():
        return await asyncio.wait_for(room.wait(1, "kind", {}, 60), 60)

    room = Room(Bell(), lease, lambda unclaimed: None, lambda: 0, lambda: None)
    loop = TurnedLoop()
    try:
        assert ((0, b"x"),) == loop.run_until_complete(main()).lines
    finally:
        loop.close()


def test_waiting_tasks_get_an_error_when_the_frontier_closes():
    async def live(frontier, loop):
        waiting = await began(frontier.lease(1, wait_seconds=60))
        frontier.sync.close()
        with pytest.raises(ClosedError):
            await waiting

    lived(live)


def test_a_thread_that_waits_is_woken_by_another_one():
    with Frontier.memory(robots="caller") as frontier:
        found = []
        thread = threading.Thread(target=lambda: found.extend(frontier.lease(1, wait_seconds=30).urls))
        thread.start()
        frontier.discover([A])
        thread.join(20)
        assert [A] == found
        assert not frontier.lease(1, wait_seconds=0.01)


@pytest.mark.parametrize("wait", [-1, float("nan"), "1", 1e9])
def test_an_invalid_wait_is_refused(wait):
    with Frontier.memory(robots="caller") as frontier, pytest.raises(SettingsError, match="wait_seconds"):
        frontier.lease(1, wait_seconds=wait)


def test_workers_are_listed_with_their_leases():
    now = 1_700_000_000_000_000
    with Frontier.memory(clock=lambda: now, robots="errands") as frontier:
        frontier.discover([A, B, C])
        errands = frontier.lease(2, worker="ann", ttl_seconds=10, errands=True)
        assert {Kind.ROBOTS} == {one.kind for one in errands}
        frontier.report([one.robots(404) for one in errands])
        assert [] == frontier.workers()
        frontier.lease(1, worker="bob", ttl_seconds=20, errands=True)
        (bob,) = frontier.workers()
        assert ("bob", 0, 1, now + 20_000_000) == (bob.name, bob.pages, bob.errands, bob.first_deadline)


def test_a_host_is_found_in_any_spelling_with_its_crawl_delay():
    with Frontier.memory(robots="errands") as frontier:
        frontier.discover([A])
        assert [None] == frontier.crawl_delays(["http://a.com"])
        (errand,) = frontier.lease(1, errands=True)
        frontier.report([errand.robots(200, b"User-agent: *\nCrawl-delay: 7\n")])
        assert [7.0, None] == frontier.crawl_delays(["http://a.com", "http://nobody.com"])
        assert "a.com" == frontier.host("A.com").name
        assert frontier.host("nobody.com") is None


def test_a_lease_is_found_again_by_its_first_token():
    now = 1_700_000_000_000_000
    with Frontier.memory(clock=lambda: now, robots="caller") as frontier:
        frontier.discover([A, B, C])
        two = frontier.lease(2, worker="ann", ttl_seconds=10)
        one = frontier.lease(1, worker="ann", ttl_seconds=11)
        assert two.urls == frontier.held(two.lease_id).urls
        assert one.urls == frontier.held(one.lease_id).urls
        frontier.report([two[0].done()])
        assert not frontier.held(two.lease_id)
