"""kill -9 at any moment, again and again: an outside judge finds nothing lost, leased twice or visited early."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from crash.life import WORK
from crash.mounting import fill, tmpfs
from crash.rounds import MERGING, Rounds
from model.inside import inspect
from model.world import keys_go_to_disk
from outrider import Frontier

KILLS_PER_STORE = 10
REFUSED = 3
"""The exit code of a life that was refused."""


def killed(directory: Path, seed: int, rounds: int, *, visits: int = 0, **how: int) -> Rounds:
    """Lives on one store: most are killed, in their opening or later; some end well. visits: after how many visits they
    are killed, 0 for any moment. how: keywords of `Rounds`."""
    lives = Rounds(directory / "store", directory / "journals", seed, **how)
    with lives.begun():
        for _ in range(rounds):
            if lives.rng.random() < 0.1:
                code = lives.live(lambda _: None, calls=lives.rng.randrange(1, 40))
                assert 0 == code, f"seed {seed}: {lives.problems()}"
            else:
                wait = partial(lives.wait_for_visits, visits) if visits else lives.wait
                code = lives.live(lambda process, wait=wait: (wait(), lives.kill(process)))
                assert -9 == code, f"seed {seed}: {lives.problems()}"
            # Not after each kill: the next life may begin at once, while hosts still wait.
            if lives.rng.random() < 0.4 and (lives.store / "manifest.json").exists():
                lives.oracle.look(lives.store, lives.rng)
            assert [] == lives.problems(), f"seed {seed}, round {lives.rounds}"
    lives.oracle.drain(lives.store, lives.rng)
    assert [] == lives.problems(), f"seed {seed}"
    assert lives.oracle.answered > 4 * rounds, "they had time to work"
    assert len(lives.site.visits) > rounds
    return lives


def test_killed_at_any_moment_it_loses_nothing_leases_nothing_twice_and_visits_no_host_early(tmp_path):
    killed(tmp_path, seed=1, rounds=12)


def test_killed_after_requests_are_over_no_host_is_visited_before_its_gap_ends(tmp_path):
    """The site's own log is the judge: hosts are leased again while the outcomes of their last visits are open."""
    lives = killed(tmp_path, seed=3, rounds=6, visits=12, rests=9, hosts=3)
    assert lives.oracle.early > 0, "it is never leased before its last outcome"


@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("seed", [101, 102])
def test_killed_two_hundred_times_it_loses_nothing_leases_nothing_twice_and_visits_no_host_early(tmp_path, seed):
    killed(tmp_path, seed=seed, rounds=200)


def killed_within(directory: Path, seed: int, deaths: int) -> None:
    """Lives whose seen keys are on disk die within each kind of work on them, until each was the end of so many. Small
    stores follow each other: a filter becomes larger only when the keys of its store double."""
    died: Counter[str] = Counter()
    for number in range(20 * deaths):
        if min(died[work] for work in WORK) >= deaths:
            return
        folder = directory / str(number)
        lives = Rounds(folder / "store", folder / "journals", seed + number, spills=True)
        with lives.begun():
            for _ in range(6):
                work = min(WORK, key=lambda work: died[work])
                code = lives.live(lambda _: None, calls=30, dies_within=(work, lives.rng.randrange(6)))
                assert code in (-9, 0), f"seed {seed}: {lives.problems()}"
                died[work] += code == -9
                lives.oracle.look(lives.store, lives.rng)
                assert [] == lives.problems(), f"seed {seed}, store {number}, round {lives.rounds}, {work}"
        lives.oracle.drain(lives.store, lives.rng)
        assert [] == lives.problems(), f"seed {seed}, store {number}"
    raise AssertionError(f"it rarely died: {died}")


def test_killed_within_work_on_seen_keys_it_knows_each_url(tmp_path):
    killed_within(tmp_path, seed=5, deaths=1)


@pytest.mark.long
@pytest.mark.timeout(1_200)
def test_killed_a_hundred_times_within_work_on_seen_keys_it_knows_each_url(tmp_path):
    killed_within(tmp_path, seed=103, deaths=34)


def killed_in_merges(directory: Path, seed: int, deaths: int) -> list[int]:
    """Lives with thousands of URLs are killed from outside, until this number died in a merge of seen keys; small
    stores follow each other, at most ten times as many. Returns how many keys each of these merges had merged."""
    merged: list[int] = []
    for number in range(10 * deaths):
        folder = directory / str(number)
        lives = Rounds(folder / "store", folder / "journals", seed + number, **MERGING)
        with lives.begun():
            for _ in range(min(KILLS_PER_STORE, deaths - len(merged))):
                code = lives.live(lambda process, lives=lives: (lives.wait_for_merge(), lives.kill(process)))
                assert -9 == code, f"seed {seed}: {lives.problems()}"
                merge, keys = lives.merging()
                merged += [keys] if merge else []
                lives.oracle.look(lives.store, lives.rng)
                assert [] == lives.problems(), f"seed {seed}, store {number}, round {lives.rounds}"
        lives.oracle.drain(lives.store, lives.rng)
        assert [] == lives.problems(), f"seed {seed}, store {number}"
        if len(merged) == deaths:
            return merged
    raise AssertionError(f"only {len(merged)} died in a merge")


def test_killed_inside_merges_of_seen_keys_it_loses_no_url_and_accepts_none_twice(tmp_path, monkeypatch):
    keys_go_to_disk(monkeypatch)  # also where the judge opens a store
    killed_in_merges(tmp_path, seed=7, deaths=4)


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_killed_inside_a_hundred_merges_of_seen_keys_it_loses_no_url_and_accepts_none_twice(tmp_path, monkeypatch):
    keys_go_to_disk(monkeypatch)
    merged = killed_in_merges(tmp_path, seed=104, deaths=100)
    assert len(set(merged)) > 30, "at different places"


def killed_with_hosts_on_disk(directory: Path, seed: int, deaths: int) -> list[int]:
    """Lives whose ready hosts go to disk with their URLs are killed from outside. Returns how many queued URLs were in
    the records of hosts at each death."""
    at_hosts: list[int] = []
    for number in range(-(-deaths // KILLS_PER_STORE)):
        folder = directory / str(number)
        lives = Rounds(folder / "store", folder / "journals", seed + number, **MERGING)
        with lives.begun():
            for _ in range(min(KILLS_PER_STORE, deaths - len(at_hosts))):
                assert -9 == lives.live(lambda process, lives=lives: (lives.wait_for_merge(), lives.kill(process)))
                looker = Frontier.look(lives.store)
                at_hosts.append(inspect(looker).tables.cold.queued)
                looker.close()
                lives.oracle.look(lives.store, lives.rng)
                assert [] == lives.problems(), f"seed {seed}, store {number}, round {lives.rounds}"
        lives.oracle.drain(lives.store, lives.rng)
        assert [] == lives.problems(), f"seed {seed}, store {number}"
    return at_hosts


def test_killed_with_hosts_and_their_urls_on_disk_it_loses_no_url_and_accepts_none_twice(tmp_path, monkeypatch):
    keys_go_to_disk(monkeypatch)
    assert max(killed_with_hosts_on_disk(tmp_path, seed=9, deaths=3)) > 0


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_killed_a_hundred_times_with_hosts_and_their_urls_on_disk_it_loses_no_url(tmp_path, monkeypatch):
    keys_go_to_disk(monkeypatch)
    at_hosts = killed_with_hosts_on_disk(tmp_path, seed=106, deaths=100)
    assert sum(count > 0 for count in at_hosts) > 50


@pytest.mark.long
@pytest.mark.timeout(1_200)
def test_a_disk_that_becomes_full_inside_merges_of_seen_keys_loses_no_url(tmp_path, monkeypatch):
    """Each life works on until a call is refused. There is space again for the next one."""
    keys_go_to_disk(monkeypatch)
    with tmpfs(tmp_path, 48) as place:
        lives = Rounds(place / "store", tmp_path / "journals", seed=1, **MERGING)
        full_within = 0
        with lives.begun():
            for _ in range(8):

                def end(_: int) -> None:
                    nonlocal full_within
                    lives.wait_for_merge()
                    merge, _keys = lives.merging()
                    fill(place)
                    full_within += merge > 0

                assert REFUSED == lives.live(end), lives.problems()
                assert "StoreFullError: The disk is full" in lives.oracle.refused[-1]
                assert "seen-" not in lives.oracle.refused[-1], "a merge that finds no room refuses no call"
                lives.oracle.look(lives.store, lives.rng)
                assert [] == lives.problems(), f"round {lives.rounds}"
                (place / "filler").unlink()
        assert full_within > 4
        lives.oracle.drain(lives.store, lives.rng)
        assert [] == lives.problems()
