"""How busy B back queues keep T threads: Mercator's heap of hosts on a virtual clock, by the frontier's rule of rest.

A back queue contains one host's URLs. A thread removes the queue that is due first, waits until then, fetches for d
seconds, and returns the queue with the rest from `frontier/policy/politeness.py`, k x d. So a queue is
fetched from for d of (k + 1) x d seconds, and threads are busy for min(1, B / ((k + 1) x T)) of their time, for any
distribution of d (Heydon and Najork, "Mercator", 1999, has the structure; the law follows). No queue runs empty here.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from heapq import heapreplace
from typing import Final

import numpy as np

from outrider.chart import Drawing, Scale
from outrider.clock import Instant, instant
from outrider.errors import SettingsError
from outrider.frontier.policy.politeness import GapReason, rests_after
from outrider.limits import DELAY_FACTOR, DELAY_FACTOR_SECONDS_MAX

QUEUES_PER_THREAD: Final = (1, 3, 5, 8, 11, 15, 22)
"""B / T of the experiment: Mercator's advice is 3, the law at k = 10 needs 11."""
THREADS: Final = 100
THREADS_MAX: Final = 1_000  # the largest run then needs some seconds
FACTOR_MAX: Final = 1_000.0
DURATION_SECONDS_MEDIAN: Final = 0.05  # so short that the longest rest of the rule, 60 s, is far off at k = 10
DURATION_SIGMA: Final = 1.0  # standard deviation of the logarithm: the mean is 1.65 medians, one in 100 is ten medians
FETCHES_PER_QUEUE: Final = 40
FETCHES_MIN: Final = 20_000  # fetches of one run, so that few queues are measured closely too
FETCHES_MAX: Final = 100_000
WARM_UP_SHARE: Final = 0.3  # share of the fetches that is left out: at the start all queues are ready at once
DURATIONS: Final = (
    f"log-normal, median {DURATION_SECONDS_MEDIAN * 1_000:g} ms, sigma {DURATION_SIGMA:g} (of the natural logarithm)"
)


@dataclass(frozen=True, slots=True)
class QueueRun:
    """One number of queues: how busy the threads were, and what the law says; shares of their time, in [0, 1]."""

    queues_per_thread: float
    queues: int
    fetches: int
    seconds: float
    """Seconds of virtual time that were measured."""
    busy: float
    law: float
    rests_cut: int
    """Rests shorter than factor x duration, because the rule ends at 60 s; the law ignores them."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """The runs of one number of threads, factor and seed."""

    threads: int
    factor: float
    seed: int
    durations: str
    runs: tuple[QueueRun, ...]


def law(queues: int, threads: int, factor: float) -> float:
    """The share of their time for which threads are busy, at most: min(1, B / ((k + 1) x T))."""
    return min(1.0, queues / ((factor + 1) * threads))


def experiment(threads: int = THREADS, factor: float = DELAY_FACTOR, seed: int = 0) -> Experiment:
    """Makes a run for each of QUEUES_PER_THREAD; equal arguments produce equal numbers. Raises SettingsError."""
    if not 1 <= threads <= THREADS_MAX:
        raise SettingsError(f"threads {threads!r}: use 1 to {THREADS_MAX}")
    if not 0 <= factor <= FACTOR_MAX:
        raise SettingsError(f"factor {factor!r}: use 0 to {FACTOR_MAX:g}")
    runs = tuple(simulate(threads, ratio * threads, factor, seed) for ratio in QUEUES_PER_THREAD)
    return Experiment(threads, float(factor), seed, DURATIONS, runs)


def simulate(threads: int, queues: int, factor: float = DELAY_FACTOR, seed: int = 0) -> QueueRun:
    """Simulates `threads` that fetch from `queues`, each of which rests `factor` x the duration of its last fetch."""
    chance = random.Random(seed)
    free: list[Instant] = [0] * threads  # a heap: when each thread ends what it does
    ready: list[Instant] = [0] * queues  # a heap: t_e of each queue, the earliest time of its next fetch
    fetches = min(max(queues * FETCHES_PER_QUEUE, FETCHES_MIN), FETCHES_MAX)
    warm_up = int(fetches * WARM_UP_SHARE)
    begun = start = busy = 0
    took = [chance.lognormvariate(0.0, DURATION_SIGMA) * DURATION_SECONDS_MEDIAN for _ in range(fetches)]
    nothing = np.zeros(fetches, np.int64)
    rests = rests_after(
        0,
        seconds=np.array(took),
        floor=0.0,
        factor=factor,
        back_off=nothing.astype(np.float64),
        refused_at=nothing,
    )
    cut = int(np.count_nonzero((rests.reason == GapReason.FACTOR) & (rests.gap == DELAY_FACTOR_SECONDS_MAX)))
    for fetch, (seconds, rest) in enumerate(zip(took, rests.until.tolist(), strict=True)):
        if fetch == warm_up:
            begun = start
            busy = _still_busy(free, begun)
        # Both heads only grow, so starts are in order: a thread that starts later could not have used this queue.
        start = max(free[0], ready[0])
        ended = start + instant(seconds)
        busy += ended - start
        heapreplace(free, ended)
        heapreplace(ready, ended + rest)
    span = start - begun
    busy -= _still_busy(free, start)
    return QueueRun(
        queues_per_thread=queues / threads,
        queues=queues,
        fetches=fetches,
        seconds=span / 1_000_000,
        busy=busy / (span * threads),
        law=law(queues, threads, factor),
        rests_cut=cut,
    )


def _still_busy(free: list[Instant], now: Instant) -> Instant:
    """The rest of all fetches that began before `now`, summed over the threads."""
    return sum(ended - now for ended in free if ended > now)


# -- the plot ----------------------------------------------------------------------------------------------------------

_WIDTH, _HEIGHT = 760.0, 440.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 60.0, 30.0, 78.0, 74.0


def svg(made: Experiment) -> str:
    """Returns the experiment as a drawing: dots are simulated, the line is the law, durations are below it."""
    most = max(run.queues_per_thread for run in made.runs)
    floor, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    x, y = Scale(0, most, _LEFT, right), Scale(0, 1, floor, _TOP)
    title = f"Busy share of {made.threads} threads by queues per thread, k = {made.factor:g}"
    picture = Drawing(_WIDTH, _HEIGHT, title, alone=True)
    picture.text(_LEFT, 30, "How busy B back queues keep T threads", kind="title")
    picture.text(
        _LEFT,
        52,
        f"A queue rests {made.factor:g} × the duration of its last fetch. "
        f"Dots: simulated. Line: min(1, B / ({made.factor + 1:g} T)).",
    )
    picture.rows(y, [(fifth / 5, f"{fifth / 5:.0%}") for fifth in range(6)], _LEFT, right)
    enough = min(made.factor + 1, most)
    corners = [(0.0, 0.0), (enough, enough / (made.factor + 1)), (most, min(1.0, most / (made.factor + 1)))]
    picture.curve([(x(ratio), y(share)) for ratio, share in corners], kind="law")
    for run in made.runs:
        place, height = x(run.queues_per_thread), y(run.busy)
        picture.dot(place, height, 5)
        # Below and to the right, because the law's line starts at the left.
        last = run.queues_per_thread == most
        value = f"{run.busy:.3f}"
        picture.text(place if last else place + 6, height + 18, value, anchor="end" if last else "start", kind="value")
        picture.text(place, floor + 18, f"{run.queues_per_thread:g}", anchor="middle")
    picture.text((_LEFT + right) / 2, floor + 38, "B / T", anchor="middle")
    picture.text(_LEFT, _HEIGHT - 12, f"Durations: {made.durations}. T = {made.threads}, seed {made.seed}.")
    return str(picture)
