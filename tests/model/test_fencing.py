"""Partitions change owners under every fault of the world: nothing is lost, no host is visited too soon, and no two
nodes send requests at once."""

from __future__ import annotations

import pytest

from limiting import set_limits
from model.fencing import FIRST, QUIET, World, reachable
from outrider.errors import StoreError
from outrider.sim.topic import Faults


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Owners die so often here that pages would be given up, as they should; but here each page must arrive."""
    set_limits(monkeypatch, LEASES_LOST_MAX=250)


HARSH = Faults(lost=0.05, unknown=0.05, late=0.05, twice=0.05)


def crawled(seed: int, faults: Faults, *, steps: int = 250) -> World:
    """Returns a world after a crawl with faults, brought to its end without them. Checks what must hold at the end."""
    world = World(seed, faults)
    for _ in range(steps):
        world.step()
    world.calm()
    for _ in range(600):
        world.step()
        if world.is_done():
            break
    pages = reachable(FIRST)
    assert {url: {"done", "unknown"} for url in pages} == world.states()
    assert world.acknowledged <= pages == set(world.requests)
    frontiers = [owned.frontier for owned in world.owners()]
    assert [True] * len(world.partitions) == [frontier.verify().ok for frontier in frontiers]
    lost = sum(frontier.statistics()["lost"] for frontier in frontiers)
    assert sum(world.requests.values()) - len(pages) <= lost
    return world


@pytest.mark.parametrize("seed", range(2))
def test_partitions_change_owners_and_nothing_is_lost(seed: int) -> None:
    world = crawled(seed, QUIET)
    assert world.counts["claims"] > len(world.partitions)


@pytest.mark.parametrize("seed", range(100, 104))
def test_no_fault_of_topic_node_or_clock_breaks_a_promise(seed: int) -> None:
    crawled(seed, HARSH)


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_a_thousand_histories_of_claims() -> None:
    counts: dict[str, int] = {}
    for seed in range(1_000, 2_000):
        try:
            world = crawled(seed, HARSH)
        except (AssertionError, StoreError) as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        for name, count in world.counts.items():
            counts[name] = counts.get(name, 0) + count
    assert all(counts.values()), counts
