"""Random histories of all verbs, compared with a model of the contract: each answer, and the state of each URL after
it.

`make test` runs some dozens of them, `make test-long` ten thousand (OUTRIDER_MODEL_EXAMPLES) with seeds of its own. A
history that fails is shown with its seed, without the steps that do not matter.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from limiting import set_limits
from model.histories import History, shortest
from model.world import hosts_go_cold, keys_go_to_disk
from outrider import kernels
from outrider.frontier.stores.tailed_backlog import TailedBacklog
from outrider.sim.disk import CrashDisk, FaultyFiles

STEPS = 60
KINDS = (
    *("log alone", "checkpoints", "checkpoints all the time", "tails on disk", "power cuts", "shared clocks"),
    *("hosts on disk", "seen keys on disk", "all on disk", "shared clocks on disk"),
)
HOSTS_ON_DISK = ("hosts on disk", "all on disk", "shared clocks on disk")
COMPARED = range(6)
FAILED_ONCE = (
    *(("checkpoints", 100_775), ("checkpoints", 100_783), ("checkpoints", 200_049), ("checkpoints", 200_462)),
    ("log alone", 590_084_614_510),
)
SEEDS_PER_KIND = 6 if kernels.in_use() == "native" else 2  # plain kernels answer alike, and need longer


@pytest.fixture(params=KINDS)
def kind(request, monkeypatch):
    """The load of the disk: no checkpoint at all, some, one after the other; long queues on disk; power cuts; hosts
    that become cold whenever they have no URLs or few, and return; seen keys that are written to disk three at a time.

    Shared clocks: hosts are grouped by addresses that errands find. On disk are then hosts without one."""
    if request.param == "log alone":
        set_limits(monkeypatch, KEPT_URLS_MIN=1 << 40)
    if request.param in ("checkpoints all the time", "power cuts", *HOSTS_ON_DISK):
        set_limits(monkeypatch, LOG_BYTES_BEFORE_CHECKPOINT=4_000)
        monkeypatch.setattr(
            "outrider.engine.rounds.COPY_ROWS", {0: 1, 1: 2, 2: 2, 3: 3, 4: 7, 5: 1, 7: 2, 8: 2, 9: 1, 10: 1, 11: 1}
        )
        set_limits(monkeypatch, CHECKPOINT_STEP_BYTES=1)
    if request.param in HOSTS_ON_DISK:
        # Hosts whose key spans other hosts stay in memory, and so do hosts of which something was deleted.
        monkeypatch.setattr("model.histories.HOSTS", [f"h{number}.com" for number in range(9)])
        monkeypatch.setattr("model.histories.KEYS", [None] * 14 + ["k"])
        set_limits(monkeypatch, LOG_BYTES_BEFORE_CHECKPOINT=1, CHECKPOINT_STEP_BYTES=300)
        hosts_go_cold(monkeypatch, with_urls=True)
    if request.param in ("seen keys on disk", "all on disk"):
        keys_go_to_disk(monkeypatch)
    if request.param in ("tails on disk", "all on disk"):
        monkeypatch.setitem(TailedBacklog.__init__.__kwdefaults__, "head_cards_max", 1)
        monkeypatch.setitem(TailedBacklog.__init__.__kwdefaults__, "chunk_cards", 2)
        set_limits(monkeypatch, BACKLOG_MANY_CARDS=4)
        set_limits(monkeypatch, RESTS_PER_FRAME_MAX=2)
    return request.param


def live(seed: int, kind: str, steps: int = STEPS) -> None:
    cut = kind in ("power cuts", "shared clocks") or (kind.endswith("on disk") and kind != "tails on disk" and seed % 2)
    how = {
        "disk": CrashDisk if cut else FaultyFiles,
        "checkpoints": kind != "log alone",
        "grouped": kind.startswith("shared clocks"),
    }
    try:
        History(seed, steps=range(steps), **how).live()
    except AssertionError as error:
        raise AssertionError(f"{kind}: {shortest(seed, range(steps), **how) or error}") from error


@pytest.mark.parametrize("seed", range(SEEDS_PER_KIND))
def test_a_frontier_does_what_the_contract_says(seed, kind):
    live(1_000 * KINDS.index(kind) + seed, kind)


@pytest.mark.parametrize(("load", "seed"), FAILED_ONCE if kernels.in_use() == "native" else FAILED_ONCE[:1])
def test_long_histories_that_failed_once(load, seed):
    """Withdrawn orders, rules of deleted crawls, a lease that was lost before another one's report, and
    attempts that were set while their URL waited."""
    live(seed, load, 150)


@pytest.mark.long
@pytest.mark.timeout(14_400)
def test_a_frontier_does_what_the_contract_says_for_long(kind):
    first = random.SystemRandom().randrange(1 << 40)
    for seed in range(first, first + int(os.environ.get("OUTRIDER_MODEL_EXAMPLES", "10000")) // len(KINDS)):
        live(seed, kind, random.Random(seed).choice([20, STEPS, 150]))


def answers(seeds: range) -> list[str]:
    """All that frontiers answered, one line per seed."""
    found = []
    for seed in seeds:
        history = History(seed, steps=range(STEPS))
        history.live()
        found.append(repr(history.answers))
    return found


@pytest.mark.timeout(600)  # fifteen seconds alone, more in parallel to other work
@pytest.mark.skipif(kernels.in_use() != "native", reason="there are no native kernels to hold the plain ones against")
def test_native_and_plain_kernels_answer_alike(monkeypatch):
    set_limits(monkeypatch, KEPT_URLS_MIN=1 << 40)  # as in the other process
    tests = Path(__file__).parents[1]
    script = (
        f"import sys; sys.path.insert(0, {str(tests)!r})\n"
        "from model.test_frontier_histories import answers\n"
        f"print(*answers({COMPARED!r}), sep='\\n')"
    )
    environment = os.environ | {"OUTRIDER_KERNELS": "python", "PYTHONPATH": os.pathsep.join(sys.path)}
    plain = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert 0 == plain.returncode, plain.stderr
    for seed, native, twin in zip(COMPARED, answers(COMPARED), plain.stdout.splitlines(), strict=True):
        assert native == twin, f"seed {seed}"
