"""Small calls of many threads and tasks are made together, and each gets its own answer."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

from model.world import World, recount
from outrider import Link
from outrider.engine import AsyncFrontier
from outrider.errors import SettingsError


def counted(world):
    """How often the machine is asked for each verb."""
    counts = dict.fromkeys(("discover", "lease", "report"), 0)
    machine = world.frontier._machine
    for verb in counts:
        call = getattr(machine, verb)

        def count(*given, verb=verb, call=call, **how):
            counts[verb] += 1
            return call(*given, **how)

        setattr(machine, verb, count)
    return counts


def together(world, *calls):
    """These calls wait for their turn behind one that is being made; their answers, or errors."""
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
            while len(frontier._small) <= place:
                pass
    for thread in threads:
        thread.join()
    return answers


def test_links_of_many_threads_go_in_as_one_call_and_each_gets_its_codes():
    world = World()
    counts = counted(world)
    calls = [lambda f, n=n: f.discover([f"http://h{n}.com/", "http://a.com/", "nonsense"]) for n in range(5)]
    answers = together(world, *calls)
    assert [["new", "new", "invalid"], *[["new", "known", "invalid"]] * 4] == [list(map(str, a)) for a in answers]
    assert 1 == counts["discover"]


def test_leases_of_many_threads_are_drawn_at_once_and_handed_out_in_turn():
    world = World()
    world.discover(*[f"http://h{n}.com/" for n in range(5)])
    counts = counted(world)
    answers = together(world, *[lambda f: f.lease(2)] * 4)
    assert [2, 2, 1, 0] == [len(leases) for leases in answers]
    assert (1, 5) == (counts["lease"], len({lease.url for leases in answers for lease in leases}))


def test_leases_under_other_conditions_are_drawn_apart():
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


def test_a_call_that_makes_no_sense_spoils_only_itself():
    world = World()
    answers = together(
        world,
        lambda f: f.discover(["http://a.com/"]),
        lambda f: f.discover([Link("http://b.com/", priority=7)]),
        lambda f: f.discover(["http://c.com/"]),
    )
    assert (["new"], SettingsError, ["new"]) == (answers[0], type(answers[1]), answers[2])
    assert {"queued": 2} == world.counts()


def test_what_poisons_a_frontier_is_told_to_all_who_waited():
    world = World()
    world.frontier._machine._accept = lambda *_: 1 / 0
    answers = together(world, *[lambda f: f.discover(["http://a.com/"])] * 3)
    assert [ZeroDivisionError] * 3 == [type(answer) for answer in answers]


def test_tasks_of_one_turn_of_the_loop_call_together():
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
