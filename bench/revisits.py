"""`revisits`: how fresh live crawls keep a small site, by the rules `optimal`, `uniform` and `adaptive`.

A site on loopback has 60 pages, each of which changes at random moments (a Poisson process) with a rate of its own:
from a change in 3 s to one in 150 s, equally often per octave. Each rule has a site of its own with the same changes,
and crawls it for 200 s with 4 fetches a second, so a page is visited in 15 s on average. Freshness is computed from the
changes and the requests that the site has logged: the share of the time from second 80 on in which the last visit of a
page is after its last change, weighted by priority.

In the setting `weights`, a function of priority gives one page in six the priority 1, and 0.05 to the others. In the
setting `alike`, all pages have the same priority, and equal intervals are nearly the optimum.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tests.e2e.loopback import MISSING, Answer, Site, site

from bench.measuring import CACHE, run
from bench.tables import Table
from outrider.crawl import CrawledPage
from outrider.frontier.policy.visit_values import freshness, interval, price_of
from outrider.url import UrlBatch

RULES = ("optimal", "uniform", "adaptive")
SETTINGS = ("weights", "alike")
SEEDS = (1, 2, 3)
PAGES = 60
RATE = 4.0
SECONDS = 200.0
COUNTED_FROM_SECONDS = 80.0
CHANGE_SECONDS = (3.0, 150.0)
WEIGHTY = "important"
OTHERS = 0.05
LETTERS = str.maketrans("0123456789", "abcdefghij")
"""The digest of a text leaves out numbers, so versions are words."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class World:
    """The pages of a site. changes: of each page the instants of its changes, in seconds."""

    names: list[str]
    rates: Floats
    weights: Floats
    changes: list[Floats]

    @classmethod
    def of(cls, setting: str, seed: int) -> World:
        chance = np.random.default_rng(seed)
        fast, slow = CHANGE_SECONDS
        rates = np.exp(-chance.uniform(np.log(fast), np.log(slow), PAGES))
        important = chance.permutation(PAGES) < PAGES // 6 if setting == "weights" else np.ones(PAGES, np.bool_)
        names = [f"/{WEIGHTY if one else 'other'}/{number}" for number, one in enumerate(important.tolist())]
        counts = (3 * rates * SECONDS + 50).astype(np.int64)
        changes = [
            np.cumsum(chance.exponential(1 / rate, count))
            for rate, count in zip(rates.tolist(), counts.tolist(), strict=True)
        ]
        return cls(names, rates, np.where(important, 1.0, OTHERS), changes)

    def expected(self, intervals: Floats) -> float:
        """Returns the expected freshness if pages are visited at these intervals."""
        return float(np.average(freshness(self.rates, intervals), weights=self.weights))

    @property
    def optimum(self) -> float:
        price = price_of(RATE, self.weights, self.rates)
        return self.expected(interval(price, self.weights, self.rates))

    def measured(self, visits: dict[str, list[float]]) -> float:
        """Returns the freshness of copies that were made at these instants."""
        found = []
        for name, changes in zip(self.names, self.changes, strict=True):
            made = np.array(visits.get(name, []))
            made = made[made < SECONDS]
            ends = np.minimum(np.append(made[1:], SECONDS), changes[np.searchsorted(changes, made, side="right")])
            found.append(np.maximum(ends - np.maximum(made, COUNTED_FROM_SECONDS), 0.0).sum())
        return float(np.average(found, weights=self.weights)) / (SECONDS - COUNTED_FROM_SECONDS)


class ChangingSite:
    """The answers of a world, whose time begins with the first request."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._numbers = {name: number for number, name in enumerate(world.names)}
        self._lock = threading.Lock()
        self._began: float | None = None
        self.visits: dict[str, list[float]] = {}

    def __call__(self, host: str, target: str) -> Answer:
        if target == "/":
            return Answer("".join(f"<a href='{name}'>{name}</a>" for name in self._world.names))
        if target not in self._numbers:
            return MISSING
        number = self._numbers[target]
        with self._lock:
            now = time.monotonic()
            self._began = now if self._began is None else self._began
            at = now - self._began
            self.visits.setdefault(target, []).append(at)
        version = int(np.searchsorted(self._world.changes[number], at, side="right"))
        words = f"page {number} in the version {version} of it".translate(LETTERS)
        return Answer(f"<title>{target.translate(LETTERS)}</title><p>{words}</p>")


def by_name(urls: UrlBatch, page: CrawledPage | None) -> Floats:
    """The priority function of the setting `weights`."""
    return np.array([1.0 if WEIGHTY in url else OTHERS for url in urls.strings()])


def tables() -> list[Table]:
    """Crawls by each rule side by side, and both settings too; one seed after the other."""
    CACHE.mkdir(parents=True, exist_ok=True)
    rows: list[tuple[object, ...]] = []
    for seed in SEEDS:
        rows += _crawls(seed)
    rows.sort(key=lambda row: SETTINGS.index(str(row[0])))
    notes = (
        f"{PAGES} pages, {RATE:g} fetches a second, {SECONDS:.0f} s, counted from second {COUNTED_FROM_SECONDS:.0f}.",
        "Optimum and equal intervals: as expected with known change rates, from the first second on.",
        "Fetches: of `optimal`, and of the rate.",
    )
    columns = ("setting", "seed", "optimum", "equal intervals", *RULES, "fetches", "of the rate")
    return [Table("revisits", "Fresh copies by revisit rules", columns, tuple(rows), notes)]


def _crawls(seed: int) -> list[tuple[object, ...]]:
    directory = Path(tempfile.mkdtemp(prefix="revisits-", dir=CACHE))
    worlds = {setting: World.of(setting, seed) for setting in SETTINGS}
    try:
        with ExitStack() as stack, ThreadPoolExecutor(len(SETTINGS) * len(RULES)) as pool:
            sites = {(setting, rule): ChangingSite(worlds[setting]) for setting in SETTINGS for rule in RULES}
            served = {key: stack.enter_context(site(answers)) for key, answers in sites.items()}
            list(pool.map(lambda key: _crawl(served[key], *key, directory / "-".join(key)), sites))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    rows: list[tuple[object, ...]] = []
    for setting, world in worlds.items():
        fresh = {rule: world.measured(sites[setting, rule].visits) for rule in RULES}
        visits = sites[setting, "optimal"].visits
        fetches = sum(at < SECONDS for times in visits.values() for at in times)
        equal = world.expected(np.full(PAGES, PAGES / RATE))
        used = f"{fetches / (RATE * SECONDS):.1%}"
        rows.append((setting, seed, world.optimum, equal, *fresh.values(), fetches, used))
        print(f"  {setting}, seed {seed}: {fresh}, {fetches} fetches", file=sys.stderr, flush=True)
    return rows


def _crawl(served: Site, setting: str, rule: str, output: Path) -> None:
    command: list[str | Path] = [sys.executable, "-m", "outrider", "crawl", f"{served.root}/", "-o", output]
    command += ["--revisit", rule, "--rate", f"{RATE:g}", "--delay", "0", "--delay-factor", "0", "--no-sitemaps"]
    command += ["--max-seconds", f"{SECONDS + 3:g}", "--no-warc", "--progress", "none"]
    if setting == "weights":
        command += ["--priority", f"{__name__}:{by_name.__name__}"]
    run(command, good=(0, 3))
