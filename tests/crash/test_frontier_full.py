"""A frontier on a full disk: it refuses new URLs, accepts outcomes, and lets checkpoints and tails wait for room."""

from __future__ import annotations

import errno
import random

import pytest

from limiting import set_limits
from model.world import World, keys_go_to_disk, recount, rows
from outrider.errors import StoreFullError
from outrider.frontier.stores.spilled_keys import SpilledKeys
from outrider.frontier.stores.tailed_backlog import TailedBacklog
from outrider.sim.disk import CrashDisk

CAPACITY = 12 << 20


def full(world: World, *, left: int = 0) -> None:
    """Another program uses the disk, and leaves this number of bytes."""
    world.disk.fill(0)
    world.disk.fill(CAPACITY - world.disk.used_bytes() - left)


@pytest.fixture
def small_tails(monkeypatch):
    """Every queue of more than four cards moves some to disk."""
    for name in ("head_cards_max", "chunk_cards"):
        monkeypatch.setitem(TailedBacklog.__init__.__kwdefaults__, name, 2)


def test_on_a_full_disk_rounds_are_dropped_while_leases_and_reports_continue(monkeypatch):
    world = World(disk=CrashDisk(capacity_bytes=CAPACITY), delay=0, delay_factor=0)
    rng = random.Random(0)
    world.discover(*[f"http://h{n}.com/{rng.randbytes(600).hex()}" for n in range(2_000)])
    set_limits(monkeypatch, LOG_BYTES_BEFORE_CHECKPOINT=1)
    full(world)
    pieces = ([f"http://new{n}.com/{rng.randbytes(600).hex()}" for _ in range(20)] for n in range(1_000))
    with pytest.raises(StoreFullError):
        any(world.discover(*piece) == [] for piece in pieces)
    for _ in range(5):
        assert 100 == world.report(*[lease.done(seconds=0) for lease in world.lease(100)]).count("ok")
    world.frontier._rounds.join()
    assert ([], 0) == (recount(world.frontier), world.frontier.statistics()["checkpoint"]["number"])
    assert [] == [name for name in world.disk.names() if name.endswith((".tmp", ".ckpt"))]
    world.disk.fill(0)
    world.frontier.checkpoint()
    assert ["new"] == world.discover("http://a.com/")
    assert world.frontier.statistics()["checkpoint"]["number"] in (1, 2), "behind a round that was under way"
    live = rows(world.frontier)
    world.kill()
    assert ([], live) == (recount(world.frontier), rows(world.frontier))


def keys_on_disk(world):
    keys = world.inspect().tables.urls.seen.of_crawls.values()
    return sum(len(run) for one in keys if isinstance(one, SpilledKeys) for run in one.runs)


def test_on_a_full_disk_seen_keys_wait_in_memory_while_leases_and_reports_continue(monkeypatch):
    keys_go_to_disk(monkeypatch)
    world = World(disk=CrashDisk(capacity_bytes=CAPACITY), delay=0, delay_factor=0)
    urls = [f"http://h{n}.com/" for n in range(100)]
    for first in range(0, 100, 5):
        world.discover(*urls[first : first + 5])
    before = keys_on_disk(world)
    full(world)
    for turn in range(10):
        leases = world.lease(5)
        done = [lease.done(seconds=0, links=[f"http://h{n}.com/{turn}" for n in range(9)]) for lease in leases]
        assert ["ok"] * 5 == world.report(*done)
    assert 0 < before == keys_on_disk(world)
    world.disk.fill(0)
    for turn in range(10, 20):
        assert ["known"] * 100 == world.discover(*urls)
        assert {"known"} == set(world.discover(*[f"http://h{n}.com/{turn - 10}" for n in range(9)]))
        assert ["new"] * 20 == world.discover(*[f"http://h{n}.com/{turn}" for n in range(20)])
    assert keys_on_disk(world) > before
    assert [] == recount(world.frontier)


def test_on_a_full_disk_merges_of_seen_keys_wait_while_leases_and_reports_continue(monkeypatch):
    """A merge that is under way is given up. With room it begins again and ends, and each URL is known meanwhile."""
    keys_go_to_disk(monkeypatch)
    world = World(disk=CrashDisk(capacity_bytes=CAPACITY), delay=0, delay_factor=0)
    urls = [[f"http://h{n}.com/{turn}" for n in range(count)] for turn, count in enumerate((1_000, 1_000, 1_000, 2))]
    for some in urls:
        assert {"new"} == set(world.discover(*some))
    (keys,) = world.inspect().tables.urls.seen.of_crawls.values()
    assert isinstance(keys, SpilledKeys)
    assert (4, True) == (len(keys.runs), keys._merging is not None)
    before = list(keys.runs)

    full(world)
    for turn in range(10):
        leases = world.lease(50)
        links = [f"{lease.url}/{turn}" for lease in leases]
        done = [lease.done(seconds=0, links=[link, *urls[0][:20]]) for lease, link in zip(leases, links, strict=True)]
        assert ["ok"] * 50 == world.report(*done)
        urls.append(links)
        assert before == list(keys.runs)[: len(before)], "a small run may fit, a merge does not"
        assert {"known"} == {code for some in urls for code in world.discover(*some)}
    assert (1, []) == (world.frontier.statistics()["merges_wait"], recount(world.frontier))

    world.disk.fill(0)
    assert 0 == world.frontier.statistics()["merges_wait"], "there is room, although nothing was tried since"
    for turn in range(20):
        assert {"new"} == set(world.discover(*[f"http://h{n}.com/new{turn}" for n in range(2)]))
    assert not set(before) & set(keys.runs), "they are merged"
    assert 0 == world.frontier.statistics()["merges_wait"]
    assert {"known"} == {code for some in urls for code in world.discover(*some)}
    assert (sum(map(len, urls)) + 40, []) == (world.frontier.statistics()["accepted"], recount(world.frontier))


def test_a_call_that_a_full_disk_refuses_gives_up_a_merge_of_seen_keys(monkeypatch):
    """Else the half of a large merge could have all the room, and no addition would continue it."""
    keys_go_to_disk(monkeypatch)
    set_limits(monkeypatch, MERGE_LEAVES_BYTES=0)
    world = World(disk=CrashDisk(capacity_bytes=CAPACITY), delay=0, delay_factor=0)
    for turn, count in enumerate((1_000, 1_000, 1_000, 2)):
        assert {"new"} == set(world.discover(*[f"http://h{n}.com/{turn}" for n in range(count)]))
    (keys,) = world.inspect().tables.urls.seen.of_crawls.values()
    before = list(keys.runs)

    def files_of_keys():
        return len([name for name in world.disk.names() if name.startswith("seen-")])

    assert len(before) + 1 == files_of_keys()
    full(world)
    chance = random.Random(0)
    large = [f"http://new{n}.com/{chance.randbytes(600).hex()}" for n in range(3_000)]
    with pytest.raises(StoreFullError):
        world.discover(*large)
    assert (before, len(before)) == (list(keys.runs), files_of_keys())
    world.disk.fill(0)
    assert {"new"} == set(world.discover(*large))
    assert (1, []) == (files_of_keys(), recount(world.frontier))


def test_orders_of_operators_are_accepted_on_a_full_disk():
    world = World(disk=CrashDisk(capacity_bytes=CAPACITY), delay=0, delay_factor=0)
    world.discover("http://a.com/", "http://b.com/", "http://c.com/", "http://d.com/")
    full(world)
    rng = random.Random(0)
    pieces = ([f"http://new{n}.com/{rng.randbytes(600).hex()}" for _ in range(20)] for n in range(3_000))
    with pytest.raises(StoreFullError):
        any(world.discover(*piece) == [] for piece in pieces)
    frontier = world.frontier
    assert (1, 1) == (frontier.pause("a.com"), frontier.delete("b.com"))
    assert (1, 1) == (frontier.set_limit(2, "c.com"), frontier.set_delay(3, "d.com"))
    world.kill()
    said = {queue.key: (queue.paused, queue.limit, queue.delay_seconds) for queue in world.frontier.queues(limit=1_000)}
    assert ((True, None, None), (False, 2, None), (False, None, 3.0)) == tuple(said[f"{name}.com"] for name in "acd")
    assert ("unknown", []) == (world.state("http://b.com/"), recount(world.frontier))


@pytest.mark.parametrize("verb", ["open", "write", "rename"])
def test_a_round_without_room_is_dropped_whole_and_the_next_one_has_everything(verb):
    """The ledger's run, the checkpoint's ranges, their ends: from each call of the disk on, the disk is full."""
    for nth in range(1, 60):
        world = World(delay=0, delay_factor=0)
        world.discover(*[f"http://h{n}.com/" for n in range(50)])
        world.frontier.checkpoint()
        world.report(*[lease.done(seconds=0) for lease in world.lease(20)])
        world.discover(*[f"http://h{n}.com/2" for n in range(50)])
        calls = len(world.disk.calls)
        world.disk.fail(nth, errno.ENOSPC, forever=True, verb=verb)
        world.frontier.checkpoint()
        used = sum(called == verb for called, _ in world.disk.calls[calls:])
        world.disk.mend()
        done = world.frontier.statistics()["checkpoint"]["number"] == 2
        assert done or [] == [name for name in world.disk.names() if name.endswith(".tmp")]
        assert [] == recount(world.frontier)
        live = rows(world.frontier)
        for image in world.disk.crash_images(random.Random(nth), 1):
            again = World(disk=image, clock=world.clock)
            assert ([], live) == (recount(again.frontier), rows(again.frontier)), f"call {nth}"
        world.report(*[lease.done(seconds=0) for lease in world.lease(20)])
        world.frontier.checkpoint()
        assert (3 if done else 2) == world.frontier.statistics()["checkpoint"]["number"]
        live = rows(world.frontier)
        world.kill()
        assert ([], live) == (recount(world.frontier), rows(world.frontier))
        if used < nth:
            return
    raise AssertionError("the round never got through")


def test_a_round_that_found_no_room_is_not_tried_again_with_each_call(monkeypatch):
    set_limits(monkeypatch, ROUND_PATIENCE_BYTES=4_000, LOOKS_PER_ROUND=1 << 40)
    begun: list[int] = []
    world = World(delay=0, delay_factor=0)
    begin = world.frontier._rounds.begin
    monkeypatch.setattr(world.frontier._rounds, "begin", lambda now: (begun.append(now), begin(now)))
    world.discover("http://a.com/")
    set_limits(monkeypatch, LOG_BYTES_BEFORE_CHECKPOINT=1)
    world.disk.fail(1, errno.ENOSPC, forever=True)
    for _ in range(20):
        world.frontier.lease(0)
    assert 1 == len(begun)
    world.disk.mend()
    for n in range(100):
        world.discover(f"http://a.com/{n}")
    world.frontier._rounds.join()
    world.frontier.lease(0)
    assert world.frontier.statistics()["checkpoint"]["number"] >= 1


def test_tails_that_find_no_room_stay_in_memory_in_their_order(small_tails):
    disk = CrashDisk(capacity_bytes=CAPACITY)
    world = World(disk=disk, delay=0, delay_factor=0)
    world.discover(*[f"http://a.com/{n}" for n in range(300)])
    assert [name for name in disk.names() if name.endswith(".tail")]
    world.frontier.close()
    full(world)
    world.frontier = world._open()
    backlog = world.frontier.statistics()["structures"]["backlog"]
    assert (300, 300, True) == (backlog["cards"], backlog["cards_in_memory"], backlog["refused"] > 0)
    urls = []
    for _ in range(300):
        lease = world.one()
        urls.append(lease.url)
        world.report(lease.done(seconds=0))
    assert [f"http://a.com/{n}" for n in range(300)] == urls
    assert [] == recount(world.frontier)


def test_tails_are_written_to_disk_again_when_there_is_room(small_tails, monkeypatch):
    set_limits(monkeypatch, BACKLOG_SPILL_PATIENCE=2)
    disk = CrashDisk(capacity_bytes=CAPACITY)
    world = World(disk=disk, delay=0, delay_factor=0)
    world.discover(*[f"http://a.com/{n}" for n in range(100)])
    world.frontier.close()
    full(world)
    world.frontier = world._open()
    assert 0 == world.frontier.statistics()["structures"]["backlog"]["cards_on_disk"]
    disk.fill(0)
    for n in range(10):
        world.discover(f"http://a.com/more{n}")
    assert world.frontier.statistics()["structures"]["backlog"]["cards_on_disk"] > 50
