"""Checkpoints while they are written, and the ledger that leaves memory between them."""

from __future__ import annotations

import contextlib
import errno
import threading

import pytest

from limiting import set_limits
from model.inside import inspect
from model.interleaving import Interleaving
from model.world import World, outcome, recount, rows
from outrider import Frontier, Link
from outrider.engine import owner
from outrider.engine.failure import Failure
from outrider.errors import StoreFailedError, StoreFullError
from outrider.frontier.state.recovery import run_names
from outrider.frontier.state.tables import LEASES, OWN
from outrider.sim.disk import FaultyFiles
from outrider.storage import tiers
from outrider.storage.checkpoint import CheckpointWriter, newest_checkpoint
from outrider.storage.log import Log

SHARE_BYTES = 50_000


@pytest.fixture
def light(monkeypatch):
    """A ledger that may keep some hundred records in memory."""
    set_limits(monkeypatch, MEMTABLE_BYTES_MAX_LEAST=SHARE_BYTES, MEMTABLE_SHARE=1 << 40)


@pytest.mark.parametrize("steps", range(1, 9))
def test_a_caller_and_a_second_thread_that_fail_at_once_leave_one_failure(steps):
    """The thread may be at any point when the caller fails. An error that a caller has raised is not raised again."""
    threads, failure = Interleaving(steps), Failure()
    threads.share(failure)
    beside = threads.start(failure.stop_beside, StoreFailedError("beside"), "a checkpoint")
    threads.go(steps)
    mine = StoreFailedError("mine")
    failure.stop(mine, "a sync of the log")
    beside.join()
    with contextlib.nullcontext() if failure.error is mine else pytest.raises(StoreFailedError, match="beside"):
        failure.tell()
    with pytest.raises(StoreFailedError, match="mine" if failure.error is mine else "beside"):
        failure.check()


def fill(world: World, first: int, last: int) -> None:
    for begin in range(first, last, 100):
        world.discover(*[f"http://h{row % 50}.com/{row}" for row in range(begin, begin + 100)])
        world.frontier._rounds.join()


def runs(disk: FaultyFiles) -> list[str]:
    return [name for name in disk.names() if name.endswith(".run")]


def test_the_ledger_leaves_the_memory_before_a_checkpoint_begins(light):
    world = World()
    fill(world, 0, 3_000)
    structures = world.inspect().tables.urls.ledger.statistics()
    assert runs(world.disk)
    assert structures.memtable_bytes < 100_000
    assert structures.records == 3_000
    assert "queued" == world.frontier.status("http://h7.com/7").state
    assert [] == recount(world.frontier)
    assert 0 == world.frontier.statistics()["checkpoint"]["number"]


class HeldMerge:
    """A merge of a world's URLs that is under way, until it may end."""

    def __init__(self, world: World, patch: pytest.MonkeyPatch) -> None:
        """Adds URLs until four runs are merged."""
        self.may_end, self.patch, self.world = threading.Event(), patch, world
        begun, living = threading.Event(), tiers._living

        def held(records):
            begun.set()
            assert self.may_end.wait(60)
            return living(records)

        patch.setattr(tiers, "_living", held)
        self.urls, rounds = 0, world.frontier._rounds
        while not begun.is_set():
            self.add(100)
            if rounds._spilling is not None:
                rounds._spilling.join()
        assert rounds._merger is not None

    def add(self, count: int) -> None:
        self.world.discover(*[f"http://h{row % 50}.com/{row}" for row in range(self.urls, self.urls + count)])
        self.urls += count

    def end(self) -> None:
        self.may_end.set()
        self.world.frontier._rounds.join()
        self.patch.undo()


def test_a_long_merge_does_not_make_the_ledger_heavy(light, monkeypatch):
    """While a thread merges, another one writes new records."""
    world = World()
    merge = HeldMerge(world, monkeypatch)
    ledger = world.inspect().tables.urls.ledger
    for _ in range(30):
        merge.add(100)
        assert ledger.unfrozen_bytes < 2 * SHARE_BYTES
        if world.frontier._rounds._spilling is not None:
            world.frontier._rounds._spilling.join()
    assert ledger.statistics().memtable_bytes < 2 * SHARE_BYTES
    merge.end()
    assert [] == recount(world.frontier)
    world.frontier.checkpoint()
    world.kill()
    assert merge.urls == world.frontier.count(state="queued")


def test_checkpoints_begin_and_end_during_a_merge_and_the_log_stays_short(light, monkeypatch):
    """The log before them is dropped, and a kill at any time finds each URL once."""
    world = World()
    merge = HeldMerge(world, monkeypatch)
    set_limits(monkeypatch, LOG_BYTES_BEFORE_CHECKPOINT=10_000)
    rounds, copies = world.frontier._rounds, []
    while rounds.number < 5:
        merge.add(100)
        for thread in (rounds._spilling, rounds.finisher):
            if thread is not None:
                thread.join()
        copies.append((merge.urls, world.disk.copy()))
    assert rounds._merger is not None, "it is under way"
    assert rounds._merger.is_alive()
    assert rounds.covered > 1
    live = rows(world.frontier)
    merge.end()
    assert (live, []) == (rows(world.frontier), recount(world.frontier))
    world.frontier.checkpoint()
    world.kill()
    assert (live, merge.urls) == (rows(world.frontier), world.frontier.count(state="queued"))
    for urls, files in copies:
        looker = Frontier.look(files)
        assert ([], urls) == (recount(looker), looker.count(state="queued"))
        looker.close()


@pytest.mark.parametrize("looks", [1 << 30, 8])
def test_a_round_begins_when_its_part_of_the_log_is_full_or_at_the_next_look(monkeypatch, looks):
    most = 20_000
    set_limits(monkeypatch, LOG_BYTES_BEFORE_CHECKPOINT=most, LOOKS_PER_ROUND=looks)
    world = World()
    rounds, begun, looked = world.frontier._rounds, [], []
    begin, is_due = rounds.begin, rounds._is_due
    monkeypatch.setattr(rounds, "begin", lambda now: (begun.append(world.frontier._log.frame_bytes), begin(now)))
    monkeypatch.setattr(rounds, "_is_due", lambda: looked.append(1) or is_due())
    calls = longest = before = 0
    while not begun:
        world.discover(*[f"http://h{calls % 7}.com/{calls}/{row}" for row in range(3)])
        calls += 1
        after = world.frontier._log.frame_bytes
        before, longest = after, max(longest, after - before)
    assert most < begun[0] <= most + most // looks + longest
    assert (len(looked) == calls) == (looks > most)
    assert len(looked) <= calls
    assert len(looked) >= min(looks, calls)


def test_a_run_that_finds_no_room_ends_the_merge_that_has_it(light, monkeypatch):
    world = World()
    merge = HeldMerge(world, monkeypatch)
    rounds, ledger, before = world.frontier._rounds, world.inspect().tables.urls.ledger, runs(world.disk)
    world.disk.capacity_bytes = world.disk.used_bytes() + 1_000
    while not ledger._tiers._gives_room:
        merge.add(100)
        if rounds._spilling is not None:
            rounds._spilling.join()
    world.disk.capacity_bytes = None
    merge.end()
    assert (True, []) == (set(before) <= set(runs(world.disk)), recount(world.frontier)), "nothing was merged"


@pytest.mark.parametrize(("patience_max", "least", "most"), [(1 << 30, 4, 16), (4_000, 30, 120)])
def test_merges_without_room_become_rarer_and_other_ledgers_are_merged(light, monkeypatch, patience_max, least, most):
    """As with a quota, which the free space does not show."""
    world = World()
    tables, attempts = world.inspect().tables, []

    def refused(**_):
        attempts.append("urls")
        raise StoreFullError("no room")

    set_limits(monkeypatch, ROUND_PATIENCE_BYTES=4_000, MERGE_PATIENCE_BYTES_MAX=patience_max)
    monkeypatch.setattr(tables.urls.ledger, "merge", refused)
    monkeypatch.setattr(tables.cold.ledger, "merge", lambda **_: bool(attempts.append("hosts")))
    world.frontier._rounds._merge_patience = 4_000
    fill(world, 0, 6_000)
    assert len(runs(world.disk)) > 15
    assert attempts == ["urls", "hosts"] * (len(attempts) // 2)
    assert least <= len(attempts) <= most


def test_closing_does_not_wait_for_the_end_of_a_merge(light, monkeypatch):
    world = World()
    merge = HeldMerge(world, monkeypatch)
    before, ledger = set(runs(world.disk)), world.inspect().tables.urls.ledger
    end, ended = ledger.end_merges, []
    monkeypatch.setattr(ledger, "end_merges", lambda: (end(), ended.append(True), merge.may_end.set()))
    world.frontier.close()
    assert (True, before) == (bool(ended), set(runs(world.disk))), "the old runs"
    looker = Frontier.look(world.disk.copy())
    assert ([], merge.urls) == (recount(looker), looker.count(state="queued"))
    looker.close()


def held_open(world: World, where: str, patch: pytest.MonkeyPatch) -> threading.Event:
    """Begins a checkpoint that copies no rows, or does not end, until the event is set and the patch is undone."""
    rounds, may_end, near_its_end = world.frontier._rounds, threading.Event(), threading.Event()
    finish = CheckpointWriter.finish

    def finish_late(writer, lsn):
        near_its_end.set()
        assert may_end.wait(60)
        finish(writer, lsn)

    if where == "copying":
        set_limits(patch, CHECKPOINT_WAITING_BYTES_MAX=0)
    patch.setattr(CheckpointWriter, "finish", finish_late)
    rounds.join()
    rounds.begin(world.clock())
    while where == "ending" and not near_its_end.is_set():
        world.frontier.lease(0)
    return may_end


def memory_of_ledger(world: World) -> int:
    return world.frontier.statistics()["memory"]["parts"]["ledger"]


@pytest.mark.parametrize("where", ["copying", "ending"])
def test_new_records_keep_to_their_share_of_memory_during_a_checkpoint(light, monkeypatch, where):
    """Twenty times the share arrives. The checkpoint lists no run of these records, the next one does."""
    world = World()
    fill(world, 0, 300)
    rounds, least = world.frontier._rounds, 20 * SHARE_BYTES
    with monkeypatch.context() as patch:
        may_end = held_open(world, where, patch)
        before, most, row = set(runs(world.disk)), 0, 300
        while world.inspect().tables.urls.ledger.statistics().records * 100 < least:
            world.discover(*[f"http://h{n % 50}.com/{n}" for n in range(row, row + 100)])
            most, row = max(most, memory_of_ledger(world)), row + 100
            if rounds._spilling is not None:
                rounds._spilling.join()
        assert (where == "copying", True) == (rounds.under_way is not None, rounds.number == 0), "it is open"
        assert SHARE_BYTES // 4 < most <= SHARE_BYTES
        younger = set(runs(world.disk)) - before
        may_end.set()
    while rounds.number == 0:
        world.frontier.lease(0)
    copied = world.disk.copy()
    listed = run_names(newest_checkpoint(copied, store=world.frontier._store))
    assert len(younger) > 10
    assert len(younger & set(listed)) <= 1, "the run of the records that existed when it began"
    live = rows(world.frontier)
    world.kill()
    assert ([], live, row) == (recount(world.frontier), rows(world.frontier), world.frontier.count(state="queued"))
    world.frontier.checkpoint()
    world.kill()
    assert ([], live, row) == (recount(world.frontier), rows(world.frontier), world.frontier.count(state="queued"))


@pytest.mark.parametrize("seed", range(3))
def test_calls_wait_for_a_writing_thread_that_gets_no_other_time(light, monkeypatch, seed):
    """The records of each call are written in proportion, so the other half of the share is never full."""
    set_limits(monkeypatch, MEMTABLE_BYTES_PER_WAIT=1)
    threads = Interleaving(seed)
    monkeypatch.setattr(threads, "point", lambda: None)  # only a wait lets the thread run
    world = World(threads=threads)
    set_limits(monkeypatch, CHECKPOINT_WAITING_BYTES_MAX=0)
    world.frontier._rounds.begin(world.clock())
    most = 0
    for row in range(0, 2_000, 10):
        world.discover(*[f"http://h{n % 50}.com/{n}" for n in range(row, row + 10)])
        most = max(most, memory_of_ledger(world))
    assert world.frontier._rounds.under_way is not None
    assert len(runs(world.disk)) > 5
    assert SHARE_BYTES // 4 < most <= SHARE_BYTES


def test_a_round_begins_though_new_records_always_fill_half_of_their_share(light, monkeypatch):
    """The writing thread has time only while calls wait: when its run is finished, the next one is due."""
    set_limits(monkeypatch, MEMTABLE_BYTES_PER_WAIT=1, LOG_BYTES_BEFORE_CHECKPOINT=10_000)
    threads = Interleaving(0)
    monkeypatch.setattr(threads, "point", lambda: None)
    world = World(threads=threads)
    most = 0
    for row in range(0, 30_000, 150):
        world.discover(*[f"http://h{n % 50}.com/{n}" for n in range(row, row + 150)])
        most = max(most, memory_of_ledger(world))
    assert world.frontier._rounds.number > 0
    assert most <= 2 * SHARE_BYTES, "a call adds nearly half of the share"


def test_a_run_that_found_no_room_is_tried_again_after_some_bytes_of_log(light, monkeypatch):
    """The thread that writes it has ended, so no call waits for it."""
    world = World()
    fill(world, 0, 200)
    rounds, started = world.frontier._rounds, []
    set_limits(monkeypatch, CHECKPOINT_WAITING_BYTES_MAX=0, ROUND_PATIENCE_BYTES=50_000)
    rounds.join()
    rounds.begin(world.clock())
    room, world.disk.capacity_bytes = world.disk.capacity_bytes, world.disk.used_bytes() + 1_000
    beside = rounds._beside
    monkeypatch.setattr(rounds, "_beside", lambda *some: started.append(some[0]) or beside(*some))

    def add(first: int, last: int) -> None:
        for row in range(first, last, 100):
            world.discover(*[f"http://h{n % 50}.com/{n}" for n in range(row, row + 100)])
            if rounds._spilling is not None:
                rounds._spilling.join()

    add(200, 1_000)
    assert [rounds._spill] == started
    world.disk.capacity_bytes = room
    add(1_000, 4_000)
    assert len(started) > 2
    assert (4_000, True) == (world.frontier.count(state="queued"), memory_of_ledger(world) <= SHARE_BYTES)


def test_a_checkpoint_ends_although_younger_records_find_no_room(light, monkeypatch):
    """The checkpoint lists the older records, and the younger ones stay in memory."""
    world = World()
    fill(world, 0, 300)
    rounds = world.frontier._rounds
    with monkeypatch.context() as patch:
        held_open(world, "copying", patch).set()
        for row in range(300, 900, 100):
            world.discover(*[f"http://h{n % 50}.com/{n}" for n in range(row, row + 100)])
            if rounds._spilling is not None:
                rounds._spilling.join()
        world.disk.capacity_bytes = world.disk.used_bytes() + 10_000
        world.discover(*[f"http://h{row % 50}.com/{row}" for row in range(900, 2_000)])
        if rounds._spilling is not None:
            rounds._spilling.join()
    while rounds.under_way is not None:
        world.frontier.lease(0)
    rounds.join()
    world.frontier.lease(0)
    assert 1 == rounds.number
    assert 0 < sum(part.frozen_bytes for part in world.inspect().tables.kept_in_runs()), "they found no room"
    assert 2_000 == world.frontier.count(state="queued")


def test_after_a_kill_runs_that_no_checkpoint_lists_are_removed_and_the_log_replaces_them(light):
    world = World()
    fill(world, 0, 1_000)
    world.frontier.checkpoint()
    listed = runs(world.disk)
    fill(world, 1_000, 3_000)
    assert set(runs(world.disk)) > set(listed)
    world.kill()
    assert listed == runs(world.disk)
    assert [] == recount(world.frontier)
    assert 3_000 == world.frontier.count(state="queued")
    world.frontier.checkpoint()
    world.kill()
    assert 3_000 == world.frontier.count(state="queued")


def test_a_full_disk_leaves_the_ledger_in_memory_until_there_is_room(light):
    world = World()
    fill(world, 0, 200)
    world.disk.capacity_bytes = world.disk.used_bytes() + 1_000
    fill(world, 200, 1_200)
    assert world.frontier.count(state="queued") == 1_200
    assert world.inspect().tables.urls.ledger.statistics().memtable_bytes > 100_000
    world.disk.capacity_bytes = None
    fill(world, 1_200, 1_400)
    assert [] == recount(world.frontier)
    world.frontier.checkpoint()
    assert world.inspect().tables.urls.ledger.statistics().memtable_bytes == 0


def test_the_position_of_a_projection_counts_for_the_log_once_it_is_durable(monkeypatch):
    world = World(output=True)
    world.discover("http://a.com/")
    for stream in ("pages", "politeness"):
        world.frontier.note_projection(stream, 0, 1)
    world.discover("http://b.com/")
    log, machine = world.frontier._log, world.inspect()
    finish, dropped = CheckpointWriter.finish, []

    def finish_while_it_moves(writer, lsn):
        rows = [(stream, 0, log.synced_lsn) for stream in ("pages", "politeness")]
        machine.notes.note_projections(rows, world.clock.at)
        finish(writer, lsn)

    monkeypatch.setattr(CheckpointWriter, "finish", finish_while_it_moves)
    monkeypatch.setattr(Log, "drop_through", lambda log, lsn: dropped.append(lsn))
    world.frontier.checkpoint()
    assert [1] == dropped


@pytest.mark.timeout(20)
def test_a_round_continues_after_more_bytes_than_may_wait_to_be_written(monkeypatch):
    """All facts without a slot are copied at once."""
    set_limits(monkeypatch, CHECKPOINT_WAITING_BYTES_MAX=2_000, CHECKPOINT_RANGE_BYTES_MAX=1_000)
    world = World(scope="host")
    world.discover(*[f"http://h{number}.com/" for number in range(200)])
    world.frontier.checkpoint()
    world.kill()
    assert (200, 1) == (len(world.urls(300)), world.frontier.statistics()["checkpoint"]["number"])


def test_a_payload_too_long_for_one_range_becomes_several(monkeypatch):
    set_limits(monkeypatch, CHECKPOINT_PAYLOAD_BYTES_MAX=300)
    world = World(scope="host")
    world.discover(*[f"http://h{number}.com/" for number in range(60)], request_id=("me", 1))
    world.frontier.set_robots("http://h1.com", 200, b"User-agent: *\nDisallow: /private")
    world.report(*[outcome(lease, status=200) for lease in world.lease(20)])
    world.lease(20, worker="w", ttl_seconds=1_000)
    world.frontier.checkpoint()
    files = world.disk.copy()
    sections = [one[1] for one in newest_checkpoint(files, store=world.frontier._store).ranges()]
    assert min(sections.count(OWN), sections.count(LEASES)) > 3
    looker = Frontier.look(files)
    assert rows(world.frontier) == rows(looker)
    assert world.inspect().tables.crawls.scope == inspect(looker).tables.crawls.scope
    looker.close()
    world.kill()
    assert ["new"] * 60 == world.discover(*[f"http://h{n}.com/" for n in range(60)], request_id=("me", 1))
    assert [] == recount(world.frontier)


def test_a_disk_that_removes_no_file_does_not_stop_the_store_and_is_tried_again():
    """Older checkpoints, merged runs, abandoned ones: the files remain until the disk removes them."""
    world = World()
    world.disk.fail(1, errno.EIO, forever=True, verb="remove")
    for begin in range(0, 600, 100):
        fill(world, begin, begin + 100)
        world.frontier.checkpoint()
    kept = [sum(name.endswith(end) for name in world.disk.names()) for end in (".run", ".ckpt")]
    assert (True, 6, []) == (kept[0] > 4, kept[1], recount(world.frontier))
    world.disk.mend()
    fill(world, 600, 700)
    world.frontier.checkpoint()
    listed = world.inspect().tables.urls.ledger.names()
    assert (listed, 1) == (runs(world.disk), sum(name.endswith(".ckpt") for name in world.disk.names()))
    world.kill()
    assert (700, []) == (world.frontier.statistics()["accepted"], recount(world.frontier))


@pytest.mark.parametrize("end", ["kill", "reopen"])
def test_orders_about_crawls_start_a_round_because_recovery_is_slow_for_each(end):
    world = World()
    world.discover("http://keep.com/")
    for number in range(700):
        world.discover(Link(f"http://h{number % 9}.com/", crawl=f"c{number}"))
        world.frontier.delete(crawl=f"c{number}")
    assert world.frontier.statistics()["checkpoint"]["number"] > 0
    getattr(world, end)()
    assert world.inspect().tables.orders_replayed < 700
    assert ("queued", {"queued": 1}) == (world.state("http://keep.com/"), world.counts())
    assert world.frontier.verify().ok


def test_a_large_checkpoint_allows_more_orders(monkeypatch):
    set_limits(monkeypatch, ORDERS_BEFORE_CHECKPOINT=10, CHECKPOINT_BYTES_PER_ORDER=1)
    world = World()
    world.discover("http://keep.com/")
    world.frontier.checkpoint()
    number = world.frontier.statistics()["checkpoint"]["number"]
    for pause in range(40):
        world.frontier.pause("keep.com") if pause % 2 else world.frontier.resume("keep.com")
    assert number == world.frontier.statistics()["checkpoint"]["number"]


@pytest.mark.parametrize(("missed", "ok"), [(1, True), (9, False)])
def test_verify_lists_checkpoints_again_before_it_calls_them_gone(monkeypatch, missed, ok):
    """A list of files may miss the old checkpoint, which is removed, and the new one, which gets its name."""
    with Frontier.open(FaultyFiles(), robots="caller") as frontier:
        frontier.discover(["http://a.com/"])
        frontier.checkpoint()
        lists = iter(range(missed))
        monkeypatch.setattr(
            owner,
            "newest_checkpoint",
            lambda *files, **how: None if next(lists, None) is not None else newest_checkpoint(*files, **how),
        )
        assert ok is frontier.verify().ok
