"""Small calls of many threads and tasks are combined, and each gets its own answer."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from model.world import World, recount
from outrider import Link
from outrider.engine import AsyncFrontier
from outrider.errors import InterruptedCallError, SettingsError, StoreStoppedError

STOPPED = (
    "A call was interrupted halfway, so this store was stopped; all acknowledged data is safe: open the store again"
)


def counted(world):
    """Counts how often the machine is called for each verb."""
    machine = world.inspect()
    parts = {"discover": machine.links, "lease": machine.leases, "report": machine.reports}
    counts = dict.fromkeys(parts, 0)
    for verb, part in parts.items():
        call = getattr(part, verb)

        def count(*given, verb=verb, call=call, **how):
            counts[verb] += 1
            return call(*given, **how)

        setattr(part, verb, count)
    return counts


def together(world, *calls, first=lambda frontier: None):
    """Makes these calls wait for their turn after a running one. Returns their answers or errors. first: called by the
    holder of the lock once all wait."""
    frontier = world.frontier
    answers = [None] * len(calls)

    def run(place, call):
        try:
            answers[place] = call(frontier)
        except Exception as error:  # noqa: BLE001 - it is what the test asks for
            answers[place] = error

    threads = []
    with frontier._lock:
        for place, call in enumerate(calls):
            thread = threading.Thread(target=run, args=(place, call))
            thread.start()
            threads.append(thread)
            while len(frontier._gathering) <= place:
                pass
        first(frontier)
    for thread in threads:
        thread.join()
    return answers


def test_links_of_many_threads_are_one_call_and_each_thread_gets_its_codes():
    world = World()
    counts = counted(world)
    calls = [lambda f, n=n: f.discover([f"http://h{n}.com/", "http://a.com/", "nonsense"]) for n in range(5)]
    answers = together(world, *calls)
    assert [["new", "new", "invalid"], *[["new", "known", "invalid"]] * 4] == [list(map(str, a)) for a in answers]
    assert 1 == counts["discover"]


def test_leases_of_many_threads_are_drawn_at_once_and_returned_in_turn():
    world = World()
    world.discover(*[f"http://h{n}.com/" for n in range(5)])
    counts = counted(world)
    answers = together(world, *[lambda f: f.lease(2)] * 4)
    assert [2, 2, 1, 0] == [len(leases) for leases in answers]
    assert (1, 5) == (counts["lease"], len({lease.url for leases in answers for lease in leases}))


def test_leases_with_different_conditions_are_drawn_separately():
    world = World()
    world.discover(*[f"http://h{n}.com/" for n in range(5)])
    counts = counted(world)
    together(world, lambda f: f.lease(1), lambda f: f.lease(1, worker="w"), lambda f: f.lease(1))
    assert 3 == counts["lease"]


def test_outcomes_of_many_threads_are_one_frame_and_each_gets_its_codes():
    world = World()
    world.discover(*[f"http://h{n}.com/" for n in range(3)])
    leases = world.lease()
    counts = counted(world)
    answers = together(
        world,
        lambda f: f.report([leases[0].done(links=["http://x.com/"])], links=[(0, "http://y.com/")]),
        lambda f: f.report([leases[1].done(), leases[0].done()], links=[(0, "http://y.com/")]),
        lambda f: f.report([leases[2].gone(status=404)]),
    )
    assert 1 == counts["report"]
    assert [["ok"], ["ok", "stale"], ["ok"]] == [list(map(str, report.outcomes)) for report in answers]
    assert [[["new", "new"]], [["known"], []], [[]]] == [
        [list(map(str, codes)) for codes in report.links] for report in answers
    ]
    assert ([], {"done": 2, "gone": 1, "queued": 2}) == (recount(world.frontier), world.counts())


def test_an_invalid_call_fails_alone():
    world = World()
    answers = together(
        world,
        lambda f: f.discover(["http://a.com/"]),
        lambda f: f.discover([Link("http://b.com/", priority=7)]),
        lambda f: f.discover(["http://c.com/"]),
    )
    assert (["new"], SettingsError, ["new"]) == (answers[0], type(answers[1]), answers[2])
    assert {"queued": 2} == world.counts()


def test_the_call_that_stops_a_frontier_gets_the_error_and_the_other_calls_get_the_way_out():
    world = World()
    world.inspect().links._accept = lambda *_: 1 / 0
    answers = together(world, *[lambda f: f.discover(["http://a.com/"])] * 3)
    kinds = Counter(type(answer) for answer in answers)
    assert {ZeroDivisionError: 1, StoreStoppedError: 2} == kinds
    words = {str(answer) for answer in answers if isinstance(answer, StoreStoppedError)}
    assert {f"{STOPPED}: a bug inside `discover` (ZeroDivisionError: division by zero); please report it"} == words


def interrupts(call, when):
    """Wraps the call with an interruption, once: before it changed any state, or when it was done."""
    once = [True]

    def interrupted(*given, **how):
        answer = None if when == "begun" else call(*given, **how)
        if once:
            once.clear()
            raise KeyboardInterrupt
        return call(*given, **how) if when == "begun" else answer

    return interrupted


def ctrl_c(frontier):
    """The thread that makes all calls is interrupted. Its own call is the last of them."""
    with pytest.raises(KeyboardInterrupt):
        frontier.discover(["http://mine.com/"])


@pytest.mark.parametrize("when", ["begun", "done"])
def test_an_interruption_inside_a_verb_leaves_no_call_without_a_true_answer_or_a_message(when):
    world = World()
    world.discover("http://a.com/")
    world.inspect().leases.lease = interrupts(world.inspect().leases.lease, when)
    answers = together(
        world, lambda f: f.discover(["http://b.com/"]), lambda f: f.lease(1), lambda f: f.lease(1),
        lambda f: f.discover(["http://c.com/"]), first=ctrl_c,
    )  # fmt: skip
    assert (["new"], [StoreStoppedError] * 3) == (answers[0], [type(answer) for answer in answers[1:]])
    words = {str(answer) for answer in answers[1:]}
    assert {f"{STOPPED}: an interruption inside `lease` (KeyboardInterrupt)"} == words
    world.kill()
    assert [("queued", "queued", "unknown", "unknown"), []] == [
        tuple(world.states(f"http://{name}.com/" for name in ("a", "b", "c", "mine"))), recount(world.frontier),
    ]  # fmt: skip


@pytest.mark.parametrize("nth", range(1, 6))
def test_an_interruption_between_calls_does_not_affect_the_other_calls(monkeypatch, nth):
    """At any point between two verbs: all calls but the interrupted one are made once and answered."""
    world = World()
    turns = iter(range(1, 1_000))
    decide = world.frontier._decide

    def interrupted(*given):
        # Before or after a verb, in turn.
        if next(turns) == nth:
            raise KeyboardInterrupt
        answer = decide(*given)
        if next(turns) == nth:
            raise KeyboardInterrupt
        return answer

    monkeypatch.setattr(world.frontier, "_decide", interrupted)
    answers = together(
        world, lambda f: f.discover(["http://a.com/"]), lambda f: f.lease(1), lambda f: f.discover(["http://b.com/"]),
        first=ctrl_c,
    )  # fmt: skip
    assert (["new"], ["http://a.com/"], ["new"]) == (answers[0], answers[1].urls, answers[2])
    assert ({"leased": 1, "queued": 1}, []) == (world.counts(), recount(world.frontier))


def test_an_interruption_of_the_loop_leaves_no_task_without_an_answer_or_a_message():
    """Completed calls have their answers. The call in the verb and the calls after it raise, and say what to do."""
    world = World()
    world.inspect().leases.lease = interrupts(world.inspect().leases.lease, "begun")

    async def run():
        frontier = AsyncFrontier(world.frontier)
        calls = [frontier.discover(["http://a.com/"]), frontier.lease(1), frontier.discover(["http://b.com/"])]
        tasks = [asyncio.ensure_future(call) for call in calls]
        await asyncio.sleep(0)
        with pytest.raises(KeyboardInterrupt):
            frontier._make_small()
        return await asyncio.gather(*tasks, return_exceptions=True)

    answers = asyncio.run(run())
    assert (["new"], [StoreStoppedError] * 2) == (answers[0], [type(answer) for answer in answers[1:]])


def test_a_call_of_a_task_that_an_interruption_left_unmade_may_be_repeated(monkeypatch):
    world = World()
    decide = world.frontier._decide
    monkeypatch.setattr(world.frontier, "_decide", interrupts(decide, "begun"))

    async def run():
        frontier = AsyncFrontier(world.frontier)
        call = asyncio.ensure_future(frontier.discover(["http://a.com/"]))
        await asyncio.sleep(0)
        with pytest.raises(KeyboardInterrupt):
            frontier._make_small()
        with pytest.raises(InterruptedCallError, match="may be repeated") as told:
            await call
        return told.value.retryable, await frontier.discover(["http://a.com/"])

    assert (True, ["new"]) == asyncio.run(run())


def test_tasks_of_one_turn_of_the_loop_make_one_call():
    world = World()
    counts = counted(world)

    async def run():
        frontier = AsyncFrontier(world.frontier)
        codes = await asyncio.gather(*[frontier.discover([f"http://h{n}.com/"]) for n in range(10)])
        leases = await asyncio.gather(*[frontier.lease(1) for _ in range(10)])
        told = await asyncio.gather(*[frontier.report([lease.done() for lease in some]) for some in leases])
        wrong = await asyncio.gather(frontier.discover([Link("x", priority=2)]), return_exceptions=True)
        return codes, told, wrong

    codes, told, wrong = asyncio.run(run())
    assert ([["new"]] * 10, [["ok"]] * 10) == (codes, [list(report) for report in told])
    assert ([SettingsError], {"discover": 2, "lease": 1, "report": 1}) == ([type(w) for w in wrong], counts)


def test_many_threads_with_small_calls_fetch_every_page_once():
    world = World(delay=0, delay_factor=0)
    urls = [f"http://h{n % 40}.com/{n}" for n in range(400)]
    fetched: list[str] = []

    def work(part):
        for url in part:
            world.frontier.discover([url])
        while len(fetched) < len(urls):
            for lease in world.frontier.lease(1):
                fetched.append(lease.url)
                world.frontier.report([lease.done(seconds=0)])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, [urls[n::8] for n in range(8)]))
    assert sorted(urls) == sorted(fetched)
    assert [] == recount(world.frontier)
