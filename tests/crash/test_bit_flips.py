"""One flipped bit anywhere in a closed store: it is reported, or it changes nothing at all."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest

from model.world import START, Clock, World, outcome
from outrider import Frontier, Link
from outrider.clock import instant
from outrider.errors import StoreError
from outrider.journey import LeaseBatch
from outrider.sim.disk import FaultyFiles

URLS = [f"http://{name}.com/{page}" for name in "abcdef" for page in ("", "1", "2", "no")]
SETTINGS = {"delay": 1.0, "delay_factor": 0}
LEASE = (
    "url", "key", "kind", "authority", "host", "token", "deadline", "priority", "depth", "attempt", "hops", "referrer",
    "metadata", "crawl",
)  # fmt: skip


def closed_store() -> tuple[dict[str, bytes], int]:
    """The files of a store with a checkpoint, a log after it and every kind of URL; and its last instant."""
    world = World(**SETTINGS)
    world.frontier.set_robots("http://a.com", 200, b"User-agent: *\nDisallow: /no")
    world.discover(
        *URLS[:12], Link("http://d.com/", priority=0.9, depth=2, referrer="http://a.com/", metadata={"x": "y"}),
        Link("http://d.com/1", key="k"), Link("http://d.com/2", not_before=START + instant(900)), request_id=("me", 1),
    )  # fmt: skip
    work(world, world.lease(3, worker="w"), 0)
    world.frontier.checkpoint()
    world.clock.move(5)
    work(world, world.lease(4), 1)
    world.clock.move(5)
    world.lease(1, worker="w", ttl_seconds=500)
    world.frontier.note_watermark("w", b"here")
    world.frontier.close()
    return world.disk.contents(), world.clock()


def work(world: World, leases: LeaseBatch, turn: int) -> None:
    """The first is done and found links, the second is tried again, the third is gone, the rest stays leased."""
    rows = list(leases)
    assert len(rows) >= 3
    world.report(outcome(rows[0], seconds=0.1, status=200, digest=bytes([turn]) * 20, links=URLS[15 + turn : 22]))
    world.report(rows[1].retry(error="timeout"))
    world.report(rows[2].gone(status=404))


def told(frontier: Frontier) -> list[Any]:
    """Everything that the public face says of the store."""
    statistics = frontier.statistics()
    counts = {name: statistics[name] for name in ("accepted", "urls", "held", "in_transit", "errands")}
    return [counts, frontier.watermarks(), *(dataclasses.astuple(frontier.status(url)) for url in URLS)]


def goes_on(disk: FaultyFiles, at: int) -> list[Any]:
    """The words and acts of the store when it is opened for work, and its content afterwards."""
    clock = Clock(at)
    frontier = Frontier.open(disk, clock=clock, settings=SETTINGS, seed=3, robots="caller")
    said = told(frontier)
    said.append([str(code) for code in frontier.discover([*URLS, "http://new.com/"], request_id=("me", 2))])
    said.append([str(code) for code in frontier.discover(["http://a.com/"], request_id=("me", 1))])
    for _ in range(3):
        clock.move(2)
        said += [[getattr(lease, name) for name in LEASE] for lease in frontier.lease(100)]
    frontier.close()
    looked = Frontier.look(disk)
    said += [told(looked), looked.verify().ok]
    looked.close()
    return said


def disk_of(files: dict[str, bytes], flip: tuple[str, int, int] | None = None) -> FaultyFiles:
    disk = FaultyFiles()
    for name, data in files.items():
        disk.put(name, data)
    if flip is not None:
        name, at, bit = flip
        broken = bytearray(files[name])
        broken[at] ^= 1 << bit
        disk.put(name, bytes(broken))
    return disk


def looked_at(disk: FaultyFiles) -> list[Any] | None:
    """Returns the answer of a query, or None when it reports a fault."""
    frontier = Frontier.look(disk)
    try:
        return told(frontier) if frontier.verify().ok else None
    finally:
        frontier.close()


def silent_wrongs(files: dict[str, bytes], at: int, flips: list[tuple[str, int, int]]) -> tuple[list[str], int]:
    """Returns the unnoticed flips that changed an answer, and the number of reported flips."""
    right, then = looked_at(disk_of(files)), goes_on(disk_of(files), at)
    assert right is not None
    assert then[-1] is True
    wrong, loud = [], 0
    for flip in flips:
        disk = disk_of(files, flip)
        before = disk.contents()
        try:
            said = looked_at(disk)
            if said is not None and said != right:
                wrong.append(f"{flip}: another store is shown")
            if said is None:
                loud += 1
                continue
            if goes_on(disk, at) != then:
                wrong.append(f"{flip}: another life")
        except StoreError:
            loud += 1
            if {name: data for name, data in disk.contents().items() if name in before} != before:
                wrong.append(f"{flip}: refused, and not left as it was")
    return wrong, loud


def places(files: dict[str, bytes]) -> dict[str, tuple[int, int]]:
    """By file: how many bytes have a meaning, and how many it has."""
    return {name: (len(data.rstrip(b"\0")), len(data)) for name, data in files.items()}


def test_a_flipped_bit_is_reported_or_changes_nothing():
    files, at = closed_store()
    rng = random.Random(7)
    flips = []
    for name, (used, size) in places(files).items():
        flips += [(name, rng.randrange(used), rng.randrange(8)) for _ in range(24 if used else 0)]
        flips += [(name, rng.randrange(used, size), rng.randrange(8)) for _ in range(3 if size > used else 0)]
    assert len(flips) > 80
    wrong, loud = silent_wrongs(files, at, flips)
    assert [] == wrong
    assert loud > 40, "most of it is told"


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_every_byte_flipped_is_reported_or_changes_nothing():
    """A bit of every byte with a meaning, and of some thousand of the zeros."""
    files, at = closed_store()
    rng = random.Random(8)
    flips = []
    for name, (used, size) in places(files).items():
        flips += [(name, place, rng.randrange(8)) for place in range(used)]
        flips += [(name, rng.randrange(used, size), rng.randrange(8)) for _ in range(400 if size > used else 0)]
    wrong, _ = silent_wrongs(files, at, flips)
    assert [] == wrong


def test_a_missing_file_is_reported_or_changes_nothing():
    """A log whose beginning is in no checkpoint would be a silent loss, and so would be a fresh store."""
    files, at = closed_store()
    then, told_of = goes_on(disk_of(files), at), set()
    for missing in files:
        disk = disk_of({name: data for name, data in files.items() if name != missing})
        try:
            assert then == goes_on(disk, at), missing
        except StoreError:
            told_of.add(missing.split("-")[0])
    assert {"manifest.json", "log"} <= told_of
