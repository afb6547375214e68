"""A clean stop keeps the schedule: the next opening reads no ledger, and everything is as after a scan."""

from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Sequence
from typing import Any

import pytest

from limiting import set_limits
from model.openings import compare_openings, schedules
from model.world import World, keys_go_to_disk, outcome
from outrider import Link
from outrider.clock import instant
from outrider.errors import StoreFailedError
from outrider.frontier.state.kept_schedule import ScheduleSection
from outrider.frontier.stores.spilled_keys import SpilledKeys
from outrider.frontier.stores.tailed_backlog import TailedBacklog
from outrider.sim.disk import CrashDisk, FaultyFiles
from outrider.storage.checkpoint import SCHEDULES, Checkpoint, CheckpointWriter, Range, newest_checkpoint
from outrider.storage.manifest import Manifest

SETTINGS: dict[str, Any] = {"delay": 1.0, "delay_factor": 0, "max_pages_per_host": 2}
PAGES = 40
ROOM = 80_000
"""More bytes than a checkpoint of such a store and its schedule need."""
HASH = slice(4, 12)
"""The bytes of the hash of the first queue in a range of queues."""


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Each stop keeps its schedule, in ranges of a few rows; queues have tails."""
    set_limits(monkeypatch, KEPT_URLS_MIN=1, KEPT_CARDS=3, KEPT_QUEUES=2, KEPT_KEYS=2, BACKLOG_MANY_CARDS=4)
    for name in ("head_cards_max", "chunk_cards"):
        monkeypatch.setitem(TailedBacklog.__init__.__kwdefaults__, name, 2)


def filled(disk: FaultyFiles | None = None) -> World:
    """A store with URLs in each state: queued in memory and on disk, leased by a worker, waiting, parked for a budget,
    done with a content, gone, deleted; in crawls of both orders; with a key of its own."""
    world = World(disk=disk, **SETTINGS)
    world.frontier.make_crawl("exact", order="exact")
    world.discover(*(f"http://h{page % 3}.com/{page}" for page in range(PAGES)))
    world.discover(*(Link(f"http://e.com/{page}", crawl="exact", priority=page) for page in range(9)))
    world.discover(Link("http://w.com/", not_before=world.clock.at + instant(900)), Link("http://h1.com/k", key="k"))
    world.discover("http://x.com/1", "http://x.com/2")
    for turn in range(4):
        world.clock.move(2)
        done, *rest = list(world.lease(5))
        world.report(outcome(done, status=200, digest=bytes([turn]) * 20, links=[f"http://l.com/{turn}"]))
        world.report(*(lease.retry(error="timeout") for lease in rest[:1]))
        world.report(*(lease.gone(status=404) for lease in rest[1:2]))
        world.frontier.release([lease.token for lease in rest[2:]])
    world.frontier.delete("x.com")
    world.clock.move(2)
    assert len(world.lease(1, worker="w", ttl_seconds=600)) == 1
    assert world.counts().keys() == {"queued", "leased", "waiting", "parked", "done", "gone"}
    assert world.inspect().tables.urls.backlog.statistics()["chunks"]
    return world


def stopped(disk: FaultyFiles | None = None) -> World:
    world = filled(disk)
    world.frontier.close()
    assert len(schedules(world.disk)) == 1
    return world


def scanned(world: World) -> bool:
    """Whether the last opening read the ledger."""
    return world.inspect().tables.urls.scanned


def leases_after(world: World) -> list[Any]:
    """Fetches the pages of the next minutes. Returns their leases, and the counts at the end."""
    all_leases: list[Any] = []
    for _ in range(20):
        world.clock.move(40)
        leases = list(world.lease(3))
        all_leases += [(lease.url, lease.token, lease.deadline) for lease in leases]
        world.report(*(outcome(lease, status=200) for lease in leases))
    return [*all_leases, world.counts()]


def newest(world: World, **stem: str) -> Checkpoint:
    """Returns the newest checkpoint of a stopped store, or its kept schedule."""
    manifest = Manifest.load(world.disk)
    assert manifest is not None
    checkpoint = newest_checkpoint(world.disk, store=manifest.store_bytes, **stem)
    assert checkpoint is not None
    return checkpoint


def rewrite(world: World, ranges: Sequence[Range], **stem: str) -> None:
    """Writes the newest checkpoint of a stopped store, or its kept schedule, again with these ranges."""
    manifest, old = Manifest.load(world.disk), newest(world, **stem)
    assert manifest is not None
    store, lsn = manifest.store_bytes, old.start_lsn
    writer = CheckpointWriter(world.disk, store=store, number=old.number, start_lsn=lsn, **stem)
    for slot, section, first, range_lsn, payload in ranges:
        writer.add(slot, section, first, range_lsn, payload)
    writer.finish(old.lsn)


def test_the_next_opening_reads_no_ledger_and_has_the_same_state():
    world = stopped()
    assert compare_openings(world.disk, now=world.clock.at)
    other = World(disk=FaultyFiles(), **SETTINGS)
    other.frontier.close("finished")  # a world to open a copy in
    other.disk = world.disk.copy()
    for name in schedules(other.disk):
        other.disk.remove(name)
    other.clock.at = world.clock.at
    world.frontier, other.frontier = world._open(), other._open()
    assert (scanned(world), scanned(other)) == (False, True)
    assert world.frontier.opening.notes == other.frontier.opening.notes == ()
    assert leases_after(world) == leases_after(other)


def test_it_counts_with_the_log_after_it_until_the_next_checkpoint():
    world = stopped()
    world.frontier = world._open()
    leases_after(world)
    world.discover(*(f"http://n.com/{page}" for page in range(9)))
    assert compare_openings(world.disk, now=world.clock.at)
    world.kill()
    assert not scanned(world)
    world.frontier.checkpoint()
    assert schedules(world.disk) == []
    world.kill()
    assert scanned(world)


def test_one_that_is_of_another_checkpoint_does_not_count():
    world = stopped()
    old = {name: world.disk.contents()[name] for name in schedules(world.disk)}
    world.frontier = world._open()
    world.discover("http://n.com/")
    world.frontier.close()
    (name,) = schedules(world.disk)
    (data,) = old.values()
    world.disk.put(name, data)
    world.frontier = world._open()
    assert scanned(world)
    assert name in world.frontier.opening.notes[0]
    assert "renamed" in world.frontier.opening.notes[0]


@pytest.mark.parametrize("change", ["a checkpoint", "a format", "a queue"])
def test_one_that_does_not_fit_is_not_used(change, monkeypatch):
    world = stopped()
    module = "outrider.frontier.state.kept_schedule"
    if change == "a format":
        monkeypatch.setattr(f"{module}._FORMATS_READ", (1, 3))
    elif change == "a checkpoint":
        ranges = list(newest(world).ranges())
        rewrite(world, [*ranges, ranges[0]])
    else:
        ranges = list(newest(world, stem=SCHEDULES).ranges())
        place = next(place for place, (_, section, *_) in enumerate(ranges) if section == ScheduleSection.QUEUES)
        payload = bytearray(ranges[place][-1])
        payload[HASH] = bytes(8)
        ranges[place] = (*ranges[place][:-1], bytes(payload))
        rewrite(world, ranges, stem=SCHEDULES)
    world.frontier = world._open()
    assert scanned(world)
    assert "the opening read the ledger instead" in world.frontier.opening.notes[0]


def test_a_damaged_one_is_named_and_the_ledger_is_read():
    world = stopped()
    counts = World(disk=world.disk.copy(), clock=world.clock, **SETTINGS).counts()
    clean = world.disk.contents()
    (name,) = schedules(world.disk)
    length = len(clean[name])
    for at in [*range(0, length, 97), *range(length - 9, length)]:
        disk = FaultyFiles()
        for other, data in clean.items():
            disk.put(other, data)
        broken = bytearray(clean[name])
        broken[at] ^= 1 << at % 8
        disk.put(name, bytes(broken))
        again = World(disk=disk, clock=world.clock, **SETTINGS)
        (note,) = again.frontier.opening.notes
        assert "repair" not in note
        assert scanned(again), at
        assert name in note, at
        assert "at byte" in note, at
        assert again.counts() == counts, at
        assert again.frontier.verify().ok, at


def test_a_kill_or_a_power_cut_inside_the_stop_loses_nothing():
    world = filled(CrashDisk())
    before = world.counts()
    world.frontier.close()
    disk = world.disk
    assert isinstance(disk, CrashDisk)
    used = 0
    for image in disk.crash_images(random.Random(5), 60):
        used += compare_openings(image, now=world.clock.at)
        again = World(disk=image, clock=world.clock, **SETTINGS)
        assert again.counts().get("done") == before["done"]
        assert again.frontier.verify().ok
    assert used


def test_each_failed_write_of_the_stop_leaves_a_whole_store():
    """A kept schedule is used after the failure of some writes, and a scan replaces it after that of others."""
    calls = len(stopped().disk.calls) - len(filled().disk.calls)
    assert calls > 0
    used = set()
    for nth in range(1, calls + 1):
        world = filled()
        world.disk.fail(nth, errno.EIO)
        with contextlib.suppress(StoreFailedError):
            world.frontier.close()
        world.disk.mend()
        used.add(compare_openings(world.disk, now=world.clock.at))
        again = World(disk=world.disk, clock=world.clock, **SETTINGS)
        assert again.frontier.verify().ok, nth
    assert {True, False} == used


def test_an_opening_with_less_memory_moves_seen_keys_to_disk_as_a_scan_does(monkeypatch):
    world = stopped()
    keys_go_to_disk(monkeypatch)
    assert compare_openings(world.disk, now=world.clock.at)
    world.frontier = world._open()
    seen = world.inspect().tables.urls.seen
    assert not scanned(world)
    assert any(isinstance(keys, SpilledKeys) for keys in seen.of_crawls.values())


def test_unfinished_schedules_are_removed_by_the_next_checkpoint():
    world = filled()
    world.disk.put("schedule-00000000000000ff.tmp", b"left by a kill")
    world.frontier.checkpoint()
    assert "schedule-00000000000000ff.tmp" not in world.disk.names()


def test_a_full_disk_keeps_no_schedule_and_the_stop_succeeds():
    found = set()
    for room in range(0, ROOM, ROOM // 40):
        world = filled()
        world.disk.capacity_bytes = world.disk.used_bytes() + room
        world.frontier.close()
        checkpoints = [name for name in world.disk.names() if name.startswith("checkpoint-")]
        kept = [name for name in world.disk.names() if name.startswith("schedule-")]
        assert kept == schedules(world.disk)
        found.add((len(checkpoints), len(kept)))
        world.disk.capacity_bytes = None
        world.frontier = world._open()
        assert world.frontier.opening.previous_state == "stopped"
        assert scanned(world) is not bool(kept)
    assert found == {(0, 0), (1, 0), (1, 1)}


def test_a_finished_store_a_small_one_and_one_with_seen_keys_on_disk_keep_none(monkeypatch):
    world = filled()
    world.frontier.close("finished")
    assert schedules(world.disk) == []
    set_limits(monkeypatch, KEPT_URLS_MIN=1_000)
    world = filled()
    world.frontier.close()
    assert schedules(world.disk) == []
    set_limits(monkeypatch, KEPT_URLS_MIN=1)
    keys_go_to_disk(monkeypatch)
    world = filled()
    world.frontier.close()
    assert schedules(world.disk) == []
