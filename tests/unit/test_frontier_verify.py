"""`verify` reads every byte of an open store: new damage is reported with file and byte."""

from __future__ import annotations

import random
import re

import pytest

from limiting import set_limits
from model.world import World
from outrider import Frontier
from outrider.errors import StoreError


@pytest.fixture
def world(monkeypatch):
    """Two runs in blocks of up to 512 records, a checkpoint, and a log after it."""
    set_limits(monkeypatch, RUN_BLOCK_ROWS=512)
    world = World(delay=0, delay_factor=0)
    rng = random.Random(1)
    for turn in range(2):
        world.discover(*[f"http://h{n % 50}.com/{turn}/{rng.randbytes(40).hex()}" for n in range(1_200)])
        world.report(*[lease.done(seconds=0) for lease in world.lease(30)])
        world.frontier.checkpoint()
    world.report(*[lease.done(seconds=0) for lease in world.lease(30)])
    assert world.frontier.verify().ok
    return world


def files_of(world: World, suffix: str) -> list[str]:
    return [name for name in sorted(world.disk.names()) if name.endswith(suffix)]


def flip(world: World, name: str, *places: int) -> None:
    """Changes the file itself, which a process may have open."""
    file = world.disk.open(name)
    for at in places:
        file.write_at(at, bytes([file.read_at(at, 1)[0] ^ 4]))
    file.close()


def spoiled(world: World, name: str, *places: int) -> list[str]:
    """Returns the answer of `verify` while these bytes have a flipped bit."""
    flip(world, name, *places)
    found = world.frontier.verify()
    flip(world, name, *places)
    assert found.ok == (not found.problems)
    return list(found.problems)


@pytest.mark.parametrize("suffix", [".run", ".ckpt", "manifest.json"])
def test_any_changed_byte_is_reported_with_its_file(world, suffix):
    names = files_of(world, suffix)
    assert names
    rng = random.Random(2)
    for name in names:
        size = len(world.disk.contents()[name])
        for at in {0, 8, 40, 63, size - 1, size - 40, *(rng.randrange(size) for _ in range(25))}:
            problems = spoiled(world, name, at)
            assert [name in problem for problem in problems] == [True] * len(problems) != [], f"{name} at {at}"
            if suffix != "manifest.json" and "format" not in problems[0]:
                places = [int(place) for problem in problems for place in re.findall(r"at byte (\d+)", problem)]
                assert places, problems
                assert min(places) <= at
    assert world.frontier.verify().ok


def test_each_damaged_block_is_reported(world):
    name = files_of(world, ".run")[0]
    run = world.inspect().tables.urls.ledger._tiers.layers.runs[0]
    starts = run._offsets.tolist()[:-1]
    assert len(starts) >= 3
    problems = spoiled(world, name, *(start + 40 for start in starts))
    assert [f"at byte {start}" in problem for start, problem in zip(starts, problems, strict=True)] == [True] * len(
        starts
    )


def test_damage_in_several_files_is_reported_for_each(world):
    names = [*files_of(world, ".run"), *files_of(world, ".ckpt"), "manifest.json"]
    for name in names:
        flip(world, name, len(world.disk.contents()[name]) // 2)
    problems = world.frontier.verify().problems
    assert {name for name in names if any(name in problem for problem in problems)} == set(names)


@pytest.mark.parametrize("suffix", [".run", ".ckpt", "manifest.json"])
def test_a_missing_file_is_reported(world, suffix):
    name = files_of(world, suffix)[0]
    world.disk.drop(name)
    problems = world.frontier.verify().problems
    assert any(name in problem and "bring" in problem for problem in problems), problems


def test_the_counts_of_a_damaged_ledger_are_the_stored_ones(world):
    counts = world.frontier.verify().counts
    flip(world, files_of(world, ".run")[0], 200)
    found = world.frontier.verify()
    assert (False, counts) == (found.ok, found.counts)


def test_a_damaged_run_refuses_to_open_where_recovery_reads_it(world):
    image = world.disk.copy()
    name = files_of(world, ".run")[0]
    data = bytearray(image.contents()[name])
    data[200] ^= 1
    image.put(name, bytes(data))
    before = image.contents()
    for way in (Frontier.look, lambda files: Frontier.open(files, clock=world.clock, robots="caller")):
        with pytest.raises(StoreError, match=f"{name} at byte"):
            way(image)
        assert before == {key: data for key, data in image.contents().items() if key in before}
        assert [] == [key for key in image.names() if key.endswith(".tail")], "what was begun is cleared up"


def test_a_checkpoint_that_is_removed_during_verify_does_not_count_as_damage(world, monkeypatch):
    names, ends = world.disk.names, [True]

    def and_a_round_ends() -> list[str]:
        found = names()
        if ends and any(name.endswith(".ckpt") for name in found):
            ends.clear()
            world.frontier.checkpoint()  # removes the checkpoint whose name was found
        return found

    monkeypatch.setattr(world.disk, "names", and_a_round_ends)
    assert world.frontier.verify().ok
    assert not ends
