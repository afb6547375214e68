"""The engine: every answer is durable first, one sync serves many callers, and a failure is permanent."""

from __future__ import annotations

import asyncio
import errno
import inspect
import os
import threading
import time
from collections import Counter

import pytest

from limiting import set_limits
from model.world import START, Clock, World, everything, outcome, recount, rows
from outrider import AsyncFrontier, Frontier, Link
from outrider.clock import elapsed, instant
from outrider.engine import Opening
from outrider.errors import (
    ClosedError,
    DamagedStoreError,
    ForeignStoreError,
    SettingsError,
    StoreError,
    StoreFailedError,
    StoreFullError,
    StoreInUseError,
    StoreStoppedError,
)
from outrider.journey import State
from outrider.sim.disk import CrashDisk, FaultyFiles
from outrider.url.keys import public_suffixes

A = "http://a.com/"


# -- opening and closing


def test_a_new_store_is_fresh_and_numbers_its_openings():
    world = World()
    first = world.frontier.opening
    second = world.reopen().opening
    assert (Opening(1, True), (2, False, "stopped")) == (first, (second.number, second.fresh, second.previous_state))


def test_after_a_kill_the_next_opening_says_so():
    world = World()
    world.discover(A)
    world.one()
    opening = world.kill().opening
    assert ("crashed", 1, True) == (
        opening.previous_state, opening.leases_ended, any("did not end cleanly" in note for note in opening.notes),
    )  # fmt: skip


def test_a_finished_crawl_is_remembered_as_finished():
    world = World()
    with world.frontier:
        world.discover(A)
        world.report(world.one().done())
    world.frontier = world._open()
    assert "finished" == world.frontier.opening.previous_state


def test_a_block_that_ends_with_work_left_is_remembered_as_stopped():
    world = World()
    with world.frontier:
        world.discover(A)
    world.frontier = world._open()
    assert "stopped" == world.frontier.opening.previous_state


def test_an_error_in_the_block_is_raised_and_not_that_of_closing():
    world = World()
    with pytest.raises(KeyError, match="mine"), world.frontier:  # noqa: PT012
        world.disk.fail(1, errno.EIO, forever=True)
        raise KeyError("mine")


def test_a_store_has_one_owner():
    world = World()
    with pytest.raises(StoreInUseError):
        Frontier.open(world.disk, robots="caller")


def test_a_store_that_was_closed_can_be_opened_again():
    world = World()
    world.frontier.close()
    world.frontier = world._open()
    assert ["new"] == world.discover(A)


def test_every_verb_of_a_closed_frontier_says_that_it_is_closed():
    frontier = World().frontier
    frontier.close()
    calls = [
        lambda: frontier.discover([A]), lambda: frontier.discover([A], request_id=("me", 1)), lambda: frontier.lease(1),
        lambda: frontier.report([]), lambda: frontier.extend([1], 60), lambda: frontier.release([1]),
        lambda: frontier.set_robots("http://a.com", 200), frontier.statistics, frontier.verify, frontier.finished,
        frontier.next_ready_seconds, lambda: frontier.status(A), frontier.checkpoint,
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(ClosedError):
            call()


def test_a_second_close_has_no_effect():
    frontier = World().frontier
    frontier.close()
    frontier.close()
    assert "<Frontier closed>" == repr(frontier)


def test_a_frontier_in_memory_needs_no_directory():
    with Frontier.memory(clock=Clock(), robots="caller") as frontier:
        frontier.discover([A])
        assert [A] == frontier.lease(1).urls


def test_a_frontier_in_a_directory_can_be_opened_again(tmp_path):
    with Frontier.open(tmp_path / "store", robots="caller") as frontier:
        frontier.discover([A])
    with Frontier.open(tmp_path / "store", robots="caller") as frontier:
        assert "queued" == frontier.status(A).state


@pytest.mark.parametrize(
    "settings",
    [
        {"delay": -1}, {"delay": float("nan")}, {"delay": "1"}, {"delay_factor": True}, {"scope": "planet"},
        {"max_pages": 0}, {"max_pages": 1.5}, {"max_depth": -1}, {"user_agent": ""}, {"include": 7}, {"colour": "red"},
    ],
)  # fmt: skip
def test_an_invalid_setting_is_reported_before_a_store_is_made(settings):
    disk = FaultyFiles()
    with pytest.raises(SettingsError):
        Frontier.open(disk, settings=settings, robots="caller")
    assert [] == disk.names()


def test_an_invalid_regular_expression_is_reported():
    with pytest.raises(SettingsError, match="include"):
        Frontier.open(FaultyFiles(), settings={"include": ["("]}, robots="caller")


def test_robots_is_caller_or_errands():
    with pytest.raises(SettingsError, match="errands"):
        Frontier.open(FaultyFiles(), robots="ignore")


def test_a_store_directory_with_other_content_is_left_alone():
    disk = FaultyFiles()
    disk.put("notes.txt", b"mine")
    with pytest.raises(ForeignStoreError):
        Frontier.open(disk, robots="caller")
    assert b"mine" == disk.contents()["notes.txt"]


def test_a_log_that_ends_before_its_checkpoint_is_damage():
    world = World()
    world.discover(A)
    older = world.disk.copy().contents()
    world.discover(*[f"http://a.com/{n}" for n in range(50)])
    world.frontier.checkpoint()
    disk = world.disk.copy()
    for name, data in older.items():
        if name.endswith(".seg") or name == "log.synced":
            disk.put(name, data)
    with pytest.raises(DamagedStoreError):
        Frontier.open(disk, clock=world.clock, robots="caller")


# -- looking


def test_a_read_only_opening_changes_no_file():
    world = World()
    world.discover(A)
    world.one()
    disk = world.disk.copy()
    before = disk.contents()
    looker = Frontier.look(disk)
    assert ("leased", "crashed") == (looker.status(A).state, looker.opening.previous_state)
    looker.close()
    assert before == {name: data for name, data in disk.contents().items() if name in before}


def test_a_read_only_frontier_cannot_act():
    world = World()
    world.discover(A)
    looker = Frontier.look(world.disk.copy())
    with pytest.raises(StoreError):
        looker.lease(1)


def test_a_read_only_opening_of_a_missing_store_is_an_error():
    with pytest.raises(ForeignStoreError):
        Frontier.look(FaultyFiles())


# -- durable before answered


@pytest.mark.parametrize("verb", ["discover", "lease", "report", "extend", "release", "set_robots", "note_watermark"])
def test_a_verb_returns_after_its_frame_is_synced(verb):
    world = World()
    world.discover(A, "http://b.com/")
    lease = world.lease(1)[0]
    call = {
        "discover": lambda: world.discover("http://c.com/"),
        "lease": lambda: world.lease(1),
        "report": lambda: world.report(lease.done()),
        "extend": lambda: world.frontier.extend([lease.token], 100),
        "release": lambda: world.frontier.release([lease.token]),
        "set_robots": lambda: world.frontier.set_robots("http://a.com", 404),
        "note_watermark": lambda: world.frontier.note_watermark("w", b"x"),
    }[verb]
    before = world.frontier.statistics()["log"]["appended_lsn"]
    call()
    log = world.frontier.statistics()["log"]
    assert log["appended_lsn"] == log["synced_lsn"] > before


def test_a_call_that_changes_no_state_needs_no_sync():
    world = World()
    before = world.frontier.statistics()["log"]
    world.lease(10)
    assert before == world.frontier.statistics()["log"]


def test_a_long_input_becomes_several_frames_with_one_sync(monkeypatch):
    set_limits(monkeypatch, DISCOVER_ROWS_PER_FRAME=100)
    world = World()
    before = world.frontier.statistics()["log"]
    world.frontier.discover(f"http://a.com/{n}" for n in range(950))
    after = world.frontier.statistics()["log"]
    assert (10, 1) == (after["appended_lsn"] - before["appended_lsn"], after["syncs"] - before["syncs"])


class SlowDisk(FaultyFiles):
    """A disk with slow syncs, so that callers meet."""

    def _sync(self, name, node) -> None:
        time.sleep(0.004)
        super()._sync(name, node)


def test_one_sync_serves_many_callers():
    world = World(disk=SlowDisk())
    before = world.frontier.statistics()["log"]["syncs"]

    def caller(number: int) -> None:
        for turn in range(10):
            world.discover(f"http://h{number}.com/{turn}")

    threads = [threading.Thread(target=caller, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    syncs = world.frontier.statistics()["log"]["syncs"] - before
    assert (80, True) == (world.frontier.statistics()["accepted"], syncs < 45), syncs


def test_four_threads_use_the_three_verbs_at_once_and_every_page_is_fetched_once():
    world = World(delay=0, delay_factor=0)
    pages = 600
    fetched: Counter[str] = Counter()
    guard = threading.Lock()
    failures: list[BaseException] = []

    def worker(number: int) -> None:
        try:
            world.discover(*[f"http://h{n % 40}.com/{number}-{n}" for n in range(pages // 4)])
            idle = 0
            while idle < 50:
                leases = world.lease(7)
                if not leases:
                    if world.frontier.finished():
                        return
                    idle += 1
                    time.sleep(0.001)
                    continue
                with guard:
                    fetched.update(leases.urls)
                assert ["ok"] * len(leases) == world.report(*[lease.done(seconds=0) for lease in leases])
        except Exception as error:  # noqa: BLE001 - a thread's error is told by the test
            failures.append(error)

    threads = [threading.Thread(target=worker, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [] == failures
    assert ({1}, pages, {"done": pages}) == (set(fetched.values()), len(fetched), world.counts())
    assert [] == recount(world.frontier)
    state = rows(world.frontier)
    world.reopen()
    assert state == rows(world.frontier)


# -- what failed stays failed


def test_an_exception_inside_a_verb_stops_the_store_until_the_next_opening(monkeypatch):
    world = World()
    world.discover(A)
    with monkeypatch.context() as patch:
        patch.setattr(world.inspect().tables.urls, "_turns", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            world.lease(1)
    with pytest.raises(StoreFailedError, match="division by zero"):
        world.discover("http://b.com/")
    world.kill()
    assert ([], "queued") == (recount(world.frontier), world.state(A))


@pytest.mark.parametrize(
    ("met", "words", "exit_code"),
    [
        (KeyError("x"), "a bug inside `extend` (KeyError: 'x'); please report it", 1),
        (KeyboardInterrupt(), "an interruption inside `extend` (KeyboardInterrupt)", 4),
        (MemoryError(), "no memory was left inside `extend` (MemoryError)", 1),
        (DamagedStoreError("run-1.run at byte 8"), "inside `extend`: The store is damaged and was left untouched", 5),
    ],
)
def test_a_failure_that_is_not_the_disks_is_reported_in_its_own_words(met, words, exit_code):
    world = World()
    world.discover(A)
    lease = world.one()

    def breaks(*_):
        raise met

    world.inspect().reports.extend = breaks
    with pytest.raises(type(met)):
        world.frontier.extend([lease.token], 60)
    for _ in range(2):
        with pytest.raises(StoreStoppedError, match="all acknowledged data is safe: open the store again") as told:
            world.lease()
        assert (True, exit_code, met) == (words in str(told.value), told.value.exit_code, told.value.__cause__)
        assert "disk" not in str(told.value)
    world.frontier.close()
    world.frontier = world._open()
    assert ([], "queued") == (recount(world.frontier), world.state(A))


def test_the_first_sentence_of_an_error_is_complete():
    assert "open it again and it replays what was acknowledged: x" in str(StoreFailedError("x"))


def test_a_failed_sync_stops_the_store_and_every_caller_gets_the_error():
    world = World()
    world.discover(A)
    world.disk.fail(1, errno.EIO, verb="sync")
    for _ in range(2):
        with pytest.raises(StoreFailedError):
            world.discover("http://b.com/")


def test_a_store_that_failed_can_still_be_closed_and_opened_again():
    world = World()
    world.discover(A)
    world.disk.fail(1, errno.EIO, verb="sync")
    with pytest.raises(StoreFailedError):
        world.discover("http://b.com/")
    world.frontier.close()
    world.frontier = world._open()
    assert "queued" == world.state(A)


def test_wrong_arguments_do_not_stop_the_store():
    world = World()
    with pytest.raises(SettingsError):
        world.lease(-1)
    assert ["new"] == world.discover(A)


# -- statistics and verify


def test_statistics_have_the_names_of_status():
    world = World()
    statistics = world.frontier.statistics()
    names = {"accepted", "urls", "hosts", "held", "in_transit", "errands", "bytes", "duplicates", "errors", "state"}
    assert set() == names - set(statistics)
    assert ["queued", "leased", "waiting", "parked", "done", "gone"] == list(statistics["urls"])
    assert ["known", "ready", "resting", "blocked", "empty"] == list(statistics["hosts"])


def test_each_host_is_ready_resting_blocked_or_empty():
    world = World()
    world.discover(A, "http://b.com/", "http://b.com/2", "http://c.com/", "http://c.com/2", "http://d.com/")
    leases = {lease.host: lease for lease in world.lease()}
    world.report(
        leases["b.com"].done(seconds=0), leases["c.com"].retry(status=503, refused=True), leases["d.com"].done()
    )
    world.frontier.release([leases["a.com"].token])
    assert {"known": 4, "ready": 1, "resting": 1, "blocked": 1, "empty": 1} == world.frontier.statistics()["hosts"]


def test_bytes_duplicates_and_errors_are_summed():
    world = World()
    world.discover(A, "http://b.com/")
    first, second = world.lease()
    world.report(
        outcome(first, bytes_read=100, duplicate=True, error="truncated"), outcome(second, "gone", error="timeout")
    )
    statistics = world.kill().statistics()
    assert (100, 1, {"truncated": 1, "timeout": 1}) == (
        statistics["bytes"], statistics["duplicates"], statistics["errors"],
    )  # fmt: skip


def test_verify_finds_a_wrong_counter():
    world = World()
    world.discover(A)
    world.inspect().tables.urls.counts[1] += 1
    found = world.frontier.verify()
    assert (False, 1) == (found.ok, len(found.problems))


def test_verify_finds_links_in_transit_that_no_outbox_contains():
    world = World()
    world.inspect().tables.transit.under_way += 1
    assert ("in_transit: the counter says 1, the outboxes contain 0",) == world.frontier.verify().problems


def test_verify_finds_a_turn_that_was_not_returned():
    world = World()
    world.discover(A)
    world.inspect().tables.hosts.in_flight[0] += 1
    assert not world.frontier.verify().ok


def test_verify_finds_new_damage_in_the_log_of_an_open_store():
    world = World()
    world.discover(*[f"http://a.com/{n}" for n in range(100)])
    (name,) = [name for name in world.disk.names() if name.startswith("log-")]
    data = bytearray(world.disk.contents()[name])
    data[1_000] ^= 1
    world.disk.put(name, bytes(data))
    assert not world.frontier.verify().ok


def test_content_is_known_by_its_digest_also_after_a_kill():
    world = World()
    world.discover(A)
    world.report(world.one().done(digest=b"1" * 20))
    known = [world.frontier.seen_content([b"1" * 20, b"2" * 20])]
    world.kill()
    known.append(world.frontier.seen_content([b"1" * 20, b"2" * 20]))
    assert [[True, False]] * 2 == known


def test_watermarks_and_projections_survive_a_kill():
    world = World()
    world.discover(A)
    world.frontier.report([world.one().done()], watermark=("w", b"file:7"))
    world.frontier.note_projection("pages", 100, 3)
    world.kill()
    assert ({"w": b"file:7"}, (100, 3)) == (world.frontier.watermarks(), world.frontier.projection("pages"))


# -- the clock


def test_without_a_clock_the_real_time_is_used(tmp_path):
    with Frontier.open(tmp_path, settings={"delay": 1.0}, robots="caller") as frontier:
        frontier.discover([A, "http://a.com/2"])
        frontier.report([frontier.lease(1)[0].done(seconds=0)])
        wait = frontier.next_ready_seconds()
        assert wait is not None
        assert 0 < wait <= 1
        time.sleep(wait)
        assert ["http://a.com/2"] == frontier.lease(1).urls


def test_a_wall_clock_set_back_between_two_openings_is_noted(tmp_path, monkeypatch):
    with Frontier.open(tmp_path, robots="caller") as frontier:
        frontier.discover([A])
        before = frontier.now()
    monkeypatch.setattr("outrider.clock.wall", lambda: before - instant(86_400))
    with Frontier.open(tmp_path, robots="caller") as frontier:
        assert frontier.now() >= before
        assert -86_401 < frontier.opening.clock_step_seconds < -86_399
        assert any("set back" in note for note in frontier.opening.notes)


@pytest.mark.parametrize("passed", [0, 5, 7, 30])
@pytest.mark.parametrize("step", [-86_400, -30, -2, -0.001, 0, 2, 86_400])
def test_the_record_shows_the_whole_gap_wherever_the_wall_clock_was_set_between_two_openings(
    tmp_path, monkeypatch, step, passed
):
    with Frontier.open(tmp_path, settings={"delay": 1, "delay_factor": 0}, robots="caller") as frontier:
        frontier.discover([A, "http://a.com/2"])
        refused = frontier.lease(1)[0].retry(seconds=0, status=503, refused=True, retry_after_seconds=20.0)
        frontier.report([refused])
        before, started = frontier.now(), elapsed()
    monkeypatch.setattr("outrider.clock.wall", lambda: before + instant(passed + step))
    monkeypatch.setattr("outrider.clock.elapsed", lambda: started + instant(passed))
    with Frontier.open(tmp_path, settings={"delay": 1, "delay_factor": 0}, robots="caller") as frontier:
        at = [float(passed)]
        monkeypatch.setattr("outrider.clock.elapsed", lambda: started + instant(at[0]))
        while not (leases := frontier.lease(1)):
            at[0] += frontier.next_ready_seconds() or 0.001
        assert max(19.9, passed) <= at[0] <= max(20.1, passed)
        assert leases[0].gap_seconds == 20.0
        assert frontier.now() - (leases[0].ended_before or 0) >= instant(20)


def test_a_wall_clock_set_forward_between_two_openings_ends_no_delay(tmp_path, monkeypatch):
    """The really elapsed time is known: the machine was not restarted."""
    with Frontier.open(tmp_path, settings={"delay": 100}, robots="caller") as frontier:
        frontier.discover([A, "http://a.com/2"])
        frontier.report([frontier.lease(1)[0].done(seconds=0)])
        before = frontier.now()
    monkeypatch.setattr("outrider.clock.wall", lambda: before + instant(86_400))
    with Frontier.open(tmp_path, settings={"delay": 100}, robots="caller") as frontier:
        assert 90 < (frontier.next_ready_seconds() or 0) <= 100


def test_after_a_reboot_a_host_that_was_in_its_delay_waits_one_whole_delay(tmp_path, monkeypatch):
    with Frontier.open(tmp_path, settings={"delay": 100}, robots="caller") as frontier:
        frontier.discover([A, "http://a.com/2"])
        frontier.report([frontier.lease(1)[0].done(seconds=0)])
        before = frontier.now()
    monkeypatch.setattr("outrider.clock.wall", lambda: before + instant(86_400))
    monkeypatch.setattr("outrider.clock.boot", lambda: "another")
    with Frontier.open(tmp_path, settings={"delay": 100}, robots="caller") as frontier:
        assert 99 < (frontier.next_ready_seconds() or 0) <= 100


def test_a_wall_clock_set_forward_between_two_openings_ends_no_workers_lease(tmp_path, monkeypatch):
    with Frontier.open(tmp_path, robots="caller") as frontier:
        frontier.discover([A])
        assert [A] == frontier.lease(1, ttl_seconds=100, worker="w").urls
        before = frontier.now()
    monkeypatch.setattr("outrider.clock.wall", lambda: before + instant(86_400))
    for _ in range(2):  # the second opening finds that the deadline was moved
        with Frontier.open(tmp_path, robots="caller") as frontier:
            assert ([], State.LEASED) == (frontier.lease(1).urls, frontier.status(A).state)
            assert 90 < (frontier.next_ready_seconds() or 0) <= 100


def test_time_that_passed_between_two_openings_counts_for_a_workers_lease_wherever_the_clock_jumped(
    tmp_path, monkeypatch
):
    with Frontier.open(tmp_path, robots="caller") as frontier:
        frontier.discover([A])
        frontier.lease(1, ttl_seconds=100, worker="w")
        before, started = frontier.now(), elapsed()
    monkeypatch.setattr("outrider.clock.wall", lambda: before - instant(86_400))
    monkeypatch.setattr("outrider.clock.elapsed", lambda: started + instant(60))
    with Frontier.open(tmp_path, robots="caller") as frontier:
        assert 39 < (frontier.next_ready_seconds() or 0) <= 41
    monkeypatch.setattr("outrider.clock.elapsed", lambda: started + instant(101))
    with Frontier.open(tmp_path, robots="caller") as frontier:
        frontier.lease(1)
        assert State.QUEUED == frontier.status(A).state


def test_after_a_reboot_a_workers_lease_keeps_its_remaining_time(tmp_path, monkeypatch):
    with Frontier.open(tmp_path, robots="caller") as frontier:
        frontier.discover([A])
        frontier.lease(1, ttl_seconds=100, worker="w")
        before = frontier.now()
    monkeypatch.setattr("outrider.clock.wall", lambda: before + instant(86_400))
    monkeypatch.setattr("outrider.clock.boot", lambda: "another")
    with Frontier.open(tmp_path, robots="caller") as frontier:
        assert ([], State.LEASED) == (frontier.lease(1).urls, frontier.status(A).state)
        assert 99 < (frontier.next_ready_seconds() or 0) <= 100


def test_a_wall_clock_set_forward_between_two_openings_ends_no_workers_errand(tmp_path, monkeypatch):
    with Frontier.open(tmp_path, robots="errands") as frontier:
        frontier.discover([A])
        leases = frontier.lease(1, ttl_seconds=100, worker="w", errands=True)
        assert ["http://a.com/robots.txt"] == leases.urls
        before = frontier.now()
    monkeypatch.setattr("outrider.clock.wall", lambda: before + instant(86_400))
    with Frontier.open(tmp_path, robots="errands") as frontier:
        assert [] == frontier.lease(1, errands=True).urls
        assert 90 < (frontier.next_ready_seconds() or 0) <= 100


def test_many_workers_leases_are_moved_in_several_frames(tmp_path, monkeypatch):
    set_limits(monkeypatch, RESTS_PER_FRAME_MAX=7)
    urls = [f"http://a{number}.com/" for number in range(30)]
    with Frontier.open(tmp_path, robots="caller") as frontier:
        frontier.discover(urls)
        assert 30 == len(frontier.lease(30, ttl_seconds=100, worker="w").urls)
        before, lsn = frontier.now(), frontier.statistics()["log"]["appended_lsn"]
    monkeypatch.setattr("outrider.clock.wall", lambda: before + instant(86_400))
    with Frontier.open(tmp_path, robots="caller") as frontier:
        assert lsn + 1 + 5 == frontier.statistics()["log"]["appended_lsn"], "a closing, and 30 leases by sevens"
        assert ([], 30) == (frontier.lease(30).urls, frontier.count(state="leased"))
        assert frontier.verify().ok


# -- the awaitable face


def test_the_async_frontier_does_the_same():
    async def crawl() -> tuple[object, ...]:
        clock = Clock()
        async with await AsyncFrontier.open(
            CrashDisk(), clock=clock, settings={"delay": 2}, robots="caller"
        ) as frontier:
            codes = await frontier.discover([A, Link("http://a.com/2")])
            batch = await frontier.lease(5)
            report = await frontier.report([batch[0].done(seconds=0, links=["http://b.com/"])])
            ready = await frontier.next_ready_seconds()
            release = await frontier.release((await frontier.lease(1)).tokens)
            clock.move(2)
            statistics = await frontier.statistics()
            verified = await frontier.verify()
            return (
                codes, batch.urls, report.outcomes, ready, release, statistics["accepted"], verified.ok,
                await frontier.finished(), (await frontier.status(A)).state,
            )  # fmt: skip

    assert (["new", "new"], [A], ("ok",), 0.0, ["ok"], 3, True, False, "done") == asyncio.run(crawl())


def test_many_awaiting_callers_share_syncs():
    async def crawl() -> tuple[int, bool]:
        frontier = await AsyncFrontier.open(SlowDisk(), clock=Clock(), robots="caller")
        before = (await frontier.statistics())["log"]["syncs"]
        await asyncio.gather(*[frontier.discover([f"http://h{n}.com/"]) for n in range(60)])
        statistics = await frontier.statistics()
        await frontier.close()
        return statistics["accepted"], statistics["log"]["syncs"] - before < 30

    assert (60, True) == asyncio.run(crawl())


def test_a_long_input_lets_other_tasks_run():
    async def crawl() -> bool:
        async with await AsyncFrontier.open(FaultyFiles(), clock=Clock(), robots="caller") as frontier:
            turns = 0

            async def other() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            task = asyncio.create_task(other())
            await frontier.discover([f"http://a.com/{n}" for n in range(30_000)])
            task.cancel()
            return turns >= 2

    assert asyncio.run(crawl())


# -- a full disk


def full_world() -> World:
    """A store on a small disk that another program has filled."""
    world = World(disk=CrashDisk(capacity_bytes=16 << 20), delay=0, delay_factor=0)
    world.discover(*[f"http://h{n}.com/{m}" for n in range(50) for m in range(20)])
    world.disk.fill((16 << 20) - world.disk.used_bytes())
    return world


def fill(world: World) -> None:
    """Discovers URLs until the log has no more room."""
    for turn in range(10_000):
        world.discover(*[f"http://f{turn}.com/{n:0100d}" for n in range(200)])
    raise AssertionError("the disk was never full")


def test_a_full_disk_refuses_discover_with_a_retryable_error():
    world = full_world()
    with pytest.raises(StoreFullError) as caught:
        fill(world)
    assert caught.value.retryable


def test_on_a_full_disk_leases_and_reports_continue():
    world = full_world()
    with pytest.raises(StoreFullError):
        fill(world)
    done = 0
    for _ in range(20):
        leases = world.lease(50)
        done += world.report(*[lease.done(seconds=0) for lease in leases]).count("ok")
    assert (1_000, []) == (done, recount(world.frontier))


def test_when_space_returns_all_calls_work_again():
    world = full_world()
    with pytest.raises(StoreFullError):
        fill(world)
    world.disk.fill(0)
    for _ in range(40):
        try:
            codes = world.discover("http://late.com/")
            break
        except StoreFullError:
            continue
    assert (["new"], []) == (codes, recount(world.frontier))


def test_a_call_that_a_full_disk_refused_changed_no_state():
    world = full_world()
    with pytest.raises(StoreFullError):
        fill(world)
    before = everything(world.frontier)
    with pytest.raises(StoreFullError):
        world.discover("http://late.com/", request_id=("me", 1))
    assert before == everything(world.frontier)
    world.disk = world.disk.copy()
    world.frontier = world._open()
    assert ("unknown", []) == (world.state("http://late.com/"), recount(world.frontier))


def test_urls_drawn_for_a_lease_that_the_disk_refused_are_not_lost(monkeypatch):
    """Forbidden URLs and allowed URLs return to their queues."""
    world = World()
    world.discover("http://a.com/no", "http://a.com/yes", "http://b.com/")
    world.frontier.set_robots("http://a.com", 200, b"User-agent: *\nDisallow: /no")

    def refuse(*_, **__):
        raise StoreFullError("no space")

    with monkeypatch.context() as patch:
        patch.setattr(world.frontier._log, "append", refuse)
        with pytest.raises(StoreFullError):
            world.lease()
    assert [] == recount(world.frontier)
    assert {"http://a.com/yes", "http://b.com/"} == set(world.urls())


def test_urls_to_be_judged_again_are_not_lost_when_the_disk_refuses(monkeypatch):
    world = World()
    world.discover(A)
    world.frontier.set_robots("http://a.com", 200, b"User-agent: *\nDisallow: /")
    world.lease()
    world.frontier.set_robots("http://a.com", 200, b"")

    def refuse(*_, **__):
        raise StoreFullError("no space")

    with monkeypatch.context() as patch:
        patch.setattr(world.frontier._log, "append", refuse)
        with pytest.raises(StoreFullError):
            world.lease()
    assert [A] == world.urls()


def test_waiting_urls_are_not_lost_when_the_disk_refuses_to_wake_them(monkeypatch):
    world = World()
    world.discover(Link(A, not_before=START + instant(5)), "http://b.com/")
    world.one(ttl_seconds=5)
    world.clock.move(5)

    def refuse(*_, **__):
        raise StoreFullError("no space")

    with monkeypatch.context() as patch:
        patch.setattr(world.frontier._log, "append", refuse)
        with pytest.raises(StoreFullError):
            world.lease()
    assert [] == recount(world.frontier)
    assert [A] == world.urls()


def test_a_seed_that_the_disk_refused_widens_no_scope(monkeypatch):
    world = World(scope="host")
    world.discover(A)

    def refuse(*_, **__):
        raise StoreFullError("no space")

    with monkeypatch.context() as patch:
        patch.setattr(world.frontier._log, "append", refuse)
        with pytest.raises(StoreFullError):
            world.discover("http://b.com/")
    assert (("out_of_scope",),) == world.frontier.report([world.one().done(links=["http://b.com/"])]).links


# -- what strangers do


def in_a_child(work) -> str:
    """Returns the text that `work` returns in a forked child."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writing, work().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said:
        told = said.read()
    os.waitpid(child, 0)
    return told


def test_a_forked_child_is_refused_and_its_close_leaves_the_store_to_the_parent(tmp_path):
    def child() -> str:
        told = []
        for verb in (lambda: frontier.discover([A + "child"]), lambda: frontier.lease(1)):
            try:
                verb()
            except StoreInUseError as error:
                told.append(str(os.getppid()) in str(error))
        frontier.close()
        return str(told)

    with Frontier.open(tmp_path / "store", robots="caller") as frontier:
        assert "[True, True]" == in_a_child(child)
        assert ["new"] == frontier.discover([A])
        with pytest.raises(StoreInUseError):
            Frontier.open(tmp_path / "store", robots="caller")
    with Frontier.open(tmp_path / "store", robots="caller") as frontier:
        assert (1, True) == (frontier.statistics()["accepted"], frontier.verify().ok)


@pytest.mark.parametrize("path", [None, 5, b"/tmp/x", "", "a\0b"])
def test_a_path_that_names_no_directory_is_reported(path):
    with pytest.raises(SettingsError, match="path"):
        Frontier.open(path, robots="caller")


def test_a_directory_that_cannot_be_made_is_reported():
    with pytest.raises(StoreError, match="/proc/no-store/here cannot be made"):
        Frontier.open("/proc/no-store/here", robots="caller")


@pytest.mark.parametrize("seconds", [1e30, float("nan"), -1e30])
def test_a_retry_beyond_the_largest_instant_is_refused_and_the_frontier_continues(seconds):
    world = World()
    world.discover(A)
    (lease,) = world.lease()
    with pytest.raises(SettingsError, match="after_seconds"):
        world.frontier.report([lease.retry(after_seconds=seconds)])
    assert ["ok"] == list(world.frontier.report([lease.done()]))


def test_the_async_verbs_accept_the_arguments_of_the_plain_verbs():
    def verbs(face):
        named = {name for one in face.__mro__[:-1] for name in vars(one) if name[0] != "_"}
        public = {name: getattr(face, name) for name in named}
        return {name: value for name, value in public.items() if callable(value)}

    plain, awaited = verbs(Frontier), verbs(AsyncFrontier)
    assert set(plain) == set(awaited)
    for name in awaited:
        taken = [list(inspect.signature(face[name]).parameters.values()) for face in (plain, awaited)]
        assert taken[0] == taken[1], name


def test_an_async_frontier_is_opened_by_a_block_or_by_await(tmp_path):
    async def use():
        async with AsyncFrontier.open(tmp_path / "store", robots="caller") as frontier:
            await frontier.discover(["http://a.com/"])
            codes = [record["url"] async for record in frontier.records()]
        again = await AsyncFrontier.open(tmp_path / "store", robots="caller")
        told = (await again.status("http://a.com/")).state
        await again.checkpoint()
        await again.close()
        async with AsyncFrontier.look(tmp_path / "store") as look, AsyncFrontier.memory(robots="caller") as other:
            return codes, told, await look.count(), await other.count(), await look.now() > 0

    assert (["http://a.com/"], State.QUEUED, 1, 0, True) == asyncio.run(use())


def test_lists_and_counts_can_be_awaited():
    world = World()
    world.discover("http://a.com/", "http://b.com/")

    async def look():
        frontier = AsyncFrontier(world.frontier)
        found = await frontier.urls(host="b.com", limit=1)
        return [status.url for status in found], await frontier.count(state="queued"), await frontier.pressure()

    assert (["http://b.com/"], 2, 0.0) == asyncio.run(look())


def test_no_call_waits_for_the_list_of_public_suffixes_to_be_read():
    public_suffixes.cache_clear()
    Frontier.memory(robots="caller").close()
    assert 1 == public_suffixes.cache_info().currsize
