"""Leases that never reach their caller are returned at once and count against no URL, for every way in which a call
ends early."""

from __future__ import annotations

import asyncio
import threading

import pytest

from model.world import World, recount
from outrider.engine import AsyncFrontier
from outrider.errors import StoreFullError
from outrider.limits import LEASES_LOST_MAX, SMALL_CALL_ROWS_MAX

A = "http://a.com/"
CALLS = {
    "small": {"want": 1},
    "large": {"want": SMALL_CALL_ROWS_MAX + 1},
    "of a worker": {"want": 1, "worker": "w"},
    "that may be repeated": {"want": 1, "worker": "w", "request_id": ("me", 1)},
}


@pytest.fixture(params=CALLS.values(), ids=CALLS)
def how(request):
    return request.param


def losses(world, url=A):
    """Returns the losses of a URL, and its state."""
    (record,) = [record for record in world.frontier.records() if record["url"] == url]
    return record["losses"], world.state(url)


async def cancelled(world, frontier, how):
    """A lease call that is cancelled while it waits for the disk."""
    loop, waits, goes_on, synced = asyncio.get_running_loop(), asyncio.Event(), threading.Event(), threading.Event()

    def slow(lsn, durable=world.frontier._durable):
        loop.call_soon_threadsafe(waits.set)
        goes_on.wait()
        durable(lsn)
        synced.set()

    world.frontier._durable = slow
    call = asyncio.ensure_future(frontier.lease(**how))
    await waits.wait()
    del world.frontier._durable
    call.cancel()
    try:
        await call
    except asyncio.CancelledError:
        return
    finally:
        goes_on.set()
        # A sync of this call that runs together with the next call could cover its frame. The next call then waits for
        # no disk.
        await loop.run_in_executor(None, synced.wait)
    raise AssertionError("it was not cancelled")


def test_a_lease_call_that_times_out_counts_against_no_url(how):
    """However often: the URL is queued again at once, its host may be visited, and the next caller gets it."""
    world = World()
    world.discover(A)

    async def run():
        frontier = AsyncFrontier(world.frontier)
        for _ in range(LEASES_LOST_MAX + 1):
            await cancelled(world, frontier, how)
            assert ((0, "queued"), 0.0, []) == (losses(world), world.ready_in(), recount(world.frontier))
        return (await frontier.lease(**how)).urls

    assert [A] == asyncio.run(run())


def test_a_lease_call_that_timed_out_counts_against_no_url_after_a_kill(how):
    """The return is in the log, like any other end of a lease."""
    world = World()
    world.discover(A)
    asyncio.run(cancelled(world, AsyncFrontier(world.frontier), how))
    world.kill()
    assert ((0, "queued"), 0.0) == (losses(world), world.ready_in())


def test_a_lease_call_may_time_out_for_real():
    """`asyncio.wait_for`, as callers write it, over a disk that is slow."""
    world = World()
    world.discover(A)
    goes_on = threading.Event()

    async def run():
        frontier = AsyncFrontier(world.frontier)
        durable = world.frontier._durable
        world.frontier._durable = lambda lsn: (goes_on.wait(), durable(lsn))
        for _ in range(LEASES_LOST_MAX + 1):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(frontier.lease(1), 0.001)
        del world.frontier._durable
        goes_on.set()
        return (await frontier.lease(1)).urls

    assert ([A], 0) == (asyncio.run(run()), losses(world)[0])


@pytest.mark.parametrize("turns", range(8))
def test_a_cancelled_task_has_its_leases_or_they_are_queued_again(turns, how):
    """At any turn of the loop: before the call is made, after it, or when it has its answer."""
    world = World()
    world.discover(A)

    async def run():
        call = asyncio.ensure_future(AsyncFrontier(world.frontier).lease(**how))
        for _ in range(turns):
            await asyncio.sleep(0)
        call.cancel()
        (found,) = await asyncio.gather(call, return_exceptions=True)
        return found

    found = asyncio.run(run())
    there = "queued" if isinstance(found, asyncio.CancelledError) else "leased"
    assert ((0, there), []) == ((losses(world)[0], world.state(A)), recount(world.frontier))


def test_only_cancelled_calls_of_a_combined_call_return_their_leases():
    """Each task has its own leases. The leases of tasks that were cancelled after the call are queued again."""
    world = World()
    world.discover(*[f"http://h{n}.com/" for n in range(3)])

    async def run():
        frontier = AsyncFrontier(world.frontier)
        calls = [asyncio.ensure_future(frontier.lease(1)) for _ in range(3)]
        await asyncio.sleep(0)
        frontier._make_small()
        calls[1].cancel()
        return await asyncio.gather(*calls, return_exceptions=True)

    first, second, third = asyncio.run(run())
    assert isinstance(second, asyncio.CancelledError)
    states = {url: world.state(url) for url in [*first.urls, *third.urls]}
    assert (["leased"] * 2, {"leased": 2, "queued": 1}) == (list(states.values()), world.counts())


def test_a_call_of_a_task_that_was_cancelled_before_the_call_is_never_made():
    world = World()
    world.discover(A)
    before = world.frontier.statistics()["log"]["appended_lsn"]

    async def run():
        call = asyncio.ensure_future(AsyncFrontier(world.frontier).lease(1))
        await asyncio.sleep(0)
        call.cancel()
        return await asyncio.gather(call, return_exceptions=True)

    asyncio.run(run())
    assert before == world.frontier.statistics()["log"]["appended_lsn"]


@pytest.mark.parametrize("where", ["_durable", "_decide"])
def test_a_lease_call_that_is_interrupted_counts_against_no_url(monkeypatch, where, how):
    """Ctrl-C while a thread waits for the disk, or between the verb and that wait."""
    world = World()
    world.discover(A)
    made = getattr(world.frontier, where)

    def interrupted(*given):
        monkeypatch.undo()  # once
        made(*given)
        raise KeyboardInterrupt

    for _ in range(LEASES_LOST_MAX + 1):
        monkeypatch.setattr(world.frontier, where, interrupted)
        with pytest.raises(KeyboardInterrupt):
            world.lease(**how)
        assert ((0, "queued"), 0.0, []) == (losses(world), world.ready_in(), recount(world.frontier))
    assert [A] == world.lease(**how).urls


def test_a_thread_that_left_a_combined_call_has_its_leases_returned(monkeypatch):
    """Another thread made its call. The thread that is interrupted while it waits for the disk never sees the
    leases."""
    world = World()
    world.discover(*[f"http://h{n}.com/" for n in range(4)])
    frontier, mine = world.frontier, threading.get_ident()
    durable = frontier._durable

    def interrupted(lsn):
        if threading.get_ident() == mine:
            monkeypatch.undo()
            raise KeyboardInterrupt
        durable(lsn)

    answers = []
    with frontier._lock:
        other = threading.Thread(target=lambda: answers.append(frontier.lease(2)))
        other.start()
        while not len(frontier._gathering):
            pass
        monkeypatch.setattr(frontier, "_durable", interrupted)
        with pytest.raises(KeyboardInterrupt):
            frontier.lease(2)
    other.join()
    assert (2, {"leased": 2, "queued": 2}) == (len(answers[0]), world.counts())
    assert ["leased"] * 2 == [world.state(url) for url in answers[0].urls]


def test_a_cancelled_call_may_be_repeated_under_its_request_id():
    """It draws again, and from then on the answer is repeated as usual."""
    world = World()
    world.discover(A)
    how = {"want": 1, "worker": "w", "request_id": ("w", 7)}
    asyncio.run(cancelled(world, AsyncFrontier(world.frontier), how))
    world.kill()
    tokens = world.lease(**how).tokens
    assert ([A], tokens) == (world.urls(**how), world.lease(**how).tokens)


def test_a_repeated_answer_of_a_cancelled_call_leaves_the_leases_to_their_holder(monkeypatch):
    """They reached their caller with the first answer."""
    world = World()
    world.discover(A)
    how = {"worker": "w", "request_id": ("w", 7)}
    lease = world.one(**how)
    decide = world.frontier._decide

    def interrupted(*given):
        monkeypatch.undo()
        decide(*given)
        raise KeyboardInterrupt

    monkeypatch.setattr(world.frontier, "_decide", interrupted)
    with pytest.raises(KeyboardInterrupt):
        world.one(**how)
    assert ([lease.token], ["ok"]) == (world.lease(1, **how).tokens, world.report(lease.done()))


def test_lines_of_a_cancelled_call_are_in_the_next_answer():
    world = World(output=True)
    world.discover(A, "http://b.com/")
    world.frontier.set_robots("http://a.com", 200, b"User-agent: *\nDisallow: /")
    asyncio.run(cancelled(world, AsyncFrontier(world.frontier), {"want": 5}))
    batch = world.lease()
    assert (["http://b.com/"], [True]) == (batch.urls, [b"http://a.com/" in line for _, line in batch.lines])


def test_errands_of_a_cancelled_call_are_run_by_the_next():
    world = World(robots="errands")
    world.discover(A)
    asyncio.run(cancelled(world, AsyncFrontier(world.frontier), {"want": 5, "errands": True}))
    assert (0.0, ["http://a.com/robots.txt"]) == (world.ready_in(), world.urls(errands=True))


def test_a_return_that_a_full_disk_refuses_is_made_later(monkeypatch):
    """With the first call that finds room, even if the deadline is over by then."""
    world = World()
    world.discover(A)

    def refuse(*_, **__):
        raise StoreFullError("no space")

    async def run():
        frontier = AsyncFrontier(world.frontier)
        for _ in range(LEASES_LOST_MAX + 1):
            call = asyncio.ensure_future(frontier.lease(1, ttl_seconds=10))
            await asyncio.sleep(0)
            frontier._make_small()
            with monkeypatch.context() as patch:
                patch.setattr(world.frontier._log, "append", refuse)
                call.cancel()
                await asyncio.gather(call, return_exceptions=True)
            assert "leased" == world.state(A)
            world.clock.move(20)
            world.frontier.extend([], 10)
            assert (0, "queued") == losses(world)

    asyncio.run(run())
    assert ([A], []) == (world.urls(), recount(world.frontier))


def test_a_clean_stop_returns_leases_that_could_not_be_returned_before(monkeypatch):
    """Also those of a named worker, whose leases outlive the process."""
    world = World()
    world.discover(A)

    def interrupted(lsn):
        raise KeyboardInterrupt

    def refuse(*_, **__):
        raise StoreFullError("no space")

    monkeypatch.setattr(world.frontier, "_durable", interrupted)
    monkeypatch.setattr(world.inspect().reports, "unclaim", refuse)
    with pytest.raises(KeyboardInterrupt):
        world.lease(worker="w")
    monkeypatch.undo()
    assert "leased" == world.state(A)
    world.reopen()
    assert (0, "queued") == losses(world)
