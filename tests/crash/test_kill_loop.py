"""kill -9 at any moment, again and again: an outside judge finds nothing lost, leased twice or visited early."""

from __future__ import annotations

from pathlib import Path

import pytest

from crash.rounds import Rounds


def killed(directory: Path, seed: int, rounds: int) -> None:
    """Lives on one store: most are killed, in their opening or later; some end well."""
    lives = Rounds(directory / "store", directory / "journals", seed)
    with lives.begun():
        for _ in range(rounds):
            if lives.rng.random() < 0.1:
                code = lives.live(lambda _: None, calls=lives.rng.randrange(1, 40))
                assert 0 == code, f"seed {seed}: {lives.problems()}"
            else:
                code = lives.live(lambda process: (lives.wait(), lives.kill(process)))
                assert -9 == code, f"seed {seed}: {lives.problems()}"
            # Not after each kill: the next life may begin at once, while hosts still wait.
            if lives.rng.random() < 0.4 and (lives.store / "manifest.json").exists():
                lives.oracle.look(lives.store, lives.rng)
            assert [] == lives.problems(), f"seed {seed}, round {lives.rounds}"
    lives.oracle.drain(lives.store, lives.rng)
    assert [] == lives.problems(), f"seed {seed}"
    assert lives.oracle.answered > 4 * rounds, "they had time to work"
    assert len(lives.site.visits) > rounds


def test_killed_at_any_moment_it_loses_nothing_leases_nothing_twice_and_visits_no_host_early(tmp_path):
    killed(tmp_path, seed=1, rounds=12)


@pytest.mark.long
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("seed", [101, 102])
def test_killed_two_hundred_times_it_loses_nothing_leases_nothing_twice_and_visits_no_host_early(tmp_path, seed):
    killed(tmp_path, seed=seed, rounds=200)
