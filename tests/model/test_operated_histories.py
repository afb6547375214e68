"""Random histories with orders of operators, limits above one, errands and workers' wrong clocks, judged by gaps.

`make test` runs a fixed number of them, `make test-long` an hour of them (OUTRIDER_OPERATED_SECONDS) with seeds of its
own. A history that fails is shown with its seed and the steps that matter; OUTRIDER_OPERATED_SEED runs it again.
"""

from __future__ import annotations

import os
import random
import time

import pytest

from limiting import set_limits
from model.bystander import ALL
from model.histories import shortest
from model.operated import Operated
from model.world import hosts_go_cold
from outrider.frontier.stores.tailed_backlog import TailedBacklog
from outrider.kernels import in_use
from outrider.sim.disk import CrashDisk, FaultyFiles

STEPS = 60
KINDS = ("log alone", "checkpoints all the time", "tails and hosts on disk")
SEEDS_PER_KIND = 20 if in_use() == "native" else 5  # plain kernels answer alike, and need twice as long
NOT_YET: frozenset[str] = frozenset()
"""Rules that the frontier is known to break; each is removed when its fault is repaired."""


@pytest.fixture(params=KINDS)
def kind(request, monkeypatch):
    """The load of the disk: the log alone; checkpoints at any moment, and calls cut into frames; long queues and hosts
    with few URLs or none."""
    if request.param == "log alone":
        set_limits(monkeypatch, KEPT_URLS_MIN=1 << 40)
    else:
        set_limits(monkeypatch, CALL_BYTES_PER_FRAME=300)
        set_limits(monkeypatch, LOG_BYTES_BEFORE_CHECKPOINT=4_000)
        monkeypatch.setattr(
            "outrider.engine.rounds.COPY_ROWS", {0: 1, 1: 2, 2: 2, 3: 3, 4: 7, 5: 1, 7: 2, 8: 2, 9: 1, 10: 1, 11: 1}
        )
        set_limits(monkeypatch, CHECKPOINT_STEP_BYTES=1)
    if request.param == "tails and hosts on disk":
        monkeypatch.setitem(TailedBacklog.__init__.__kwdefaults__, "head_cards_max", 1)
        monkeypatch.setitem(TailedBacklog.__init__.__kwdefaults__, "chunk_cards", 2)
        set_limits(monkeypatch, BACKLOG_MANY_CARDS=4)
        hosts_go_cold(monkeypatch, with_urls=True)
    return request.param


def live(seed: int, kind: str, steps: int = STEPS) -> None:
    how = {"disk": FaultyFiles if kind == "log alone" else CrashDisk, "rules": ALL - NOT_YET}
    try:
        Operated(seed, steps=range(steps), **how).live()
    except AssertionError as error:
        raise AssertionError(f"{kind}: {shortest(seed, range(steps), Operated, **how) or error}") from error


def steps_of(seed: int) -> int:
    """The length of a long run's history."""
    return random.Random(seed).choice([20, STEPS, STEPS, 150])


@pytest.mark.parametrize("number", range(SEEDS_PER_KIND))
def test_no_history_with_orders_of_operators_breaks_a_gap_or_starves_a_host(number, kind):
    told = os.environ.get("OUTRIDER_OPERATED_SEED")
    if told is not None and number:
        pytest.skip("one seed alone is asked for")
    if told is not None:
        live(int(told), kind, steps_of(int(told)))
    else:
        live(100 * KINDS.index(kind) + number, kind)


@pytest.mark.long
@pytest.mark.timeout(14_400)
def test_no_long_run_of_histories_with_orders_of_operators_breaks_a_gap_or_starves_a_host(kind):
    seed = random.SystemRandom().randrange(1 << 40)
    end = time.monotonic() + float(os.environ.get("OUTRIDER_OPERATED_SECONDS", "3600")) / len(KINDS)
    while time.monotonic() < end:
        live(seed, kind, steps_of(seed))
        seed += 1
