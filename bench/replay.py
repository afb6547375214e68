"""`replay`: a function over known pages, beside a crawl of the same pages with that function, without gaps.

Both are whole programs, with their starts: a user edits the function and runs it again. The shop has one host, so its
crawl waits for one answer after the other. The real pages have many hosts. BENCH_WEB selects them (small, medium); only
medium has 10,000 pages. The servers are on this machine, so the network costs a crawl nothing. One row has the network
of a site that answers after 20 ms.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.measuring import ROOT, Measured, run
from bench.tables import Table
from bench.webs import serving
from outrider.sim.shop import PRODUCTS_PER_PAGE, ShopWeb
from outrider.sim.web import DemoServer, WebAnswer

SIZES = (1_000, 10_000)
ROUNDS = 3
PRESET = os.environ.get("BENCH_WEB", "small")
ANSWER_SECONDS = 0.02
SPIDER = "shop:on_page"  # examples/shop.py


@dataclass(frozen=True)
class Pair:
    """A crawl and a replay of the same pages with the same function. same: they have the same items."""

    web: str
    function: str
    pages: int
    crawl: Measured
    replay: Measured
    same: bool

    def row(self) -> tuple[object, ...]:
        """The pair as a row of the table."""
        crawl, again = self.crawl, self.replay
        return (
            *(self.web, self.function, self.pages, crawl.wall_seconds, again.wall_seconds),
            f"{crawl.wall_seconds / again.wall_seconds:.1f}x",
            *(crawl.cpu_seconds, again.cpu_seconds, f"{crawl.cpu_seconds / again.cpu_seconds:.1f}x"),
        )


class DistantShop(ShopWeb):
    """The shop, at a distance: each answer needs `ANSWER_SECONDS`."""

    def answer(self, host: str, path: str, now: float, *, takes_gzip: bool = False) -> WebAnswer:
        """The answer of the shop, later."""
        return super().answer(host, path, now, takes_gzip=takes_gzip)._replace(delay_seconds=ANSWER_SECONDS)


def _items(path: Path) -> list[str]:
    """The items without their tokens, sorted: two crawls give out other tokens."""
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return sorted(json.dumps({name: one[name] for name in one if name != "token"}) for one in found)


def _pair(web: str, function: str, place: Path, crawl: Sequence[str | Path], rounds: int) -> Pair:
    """The fastest of some crawls and replays, in turns."""
    crawls, replays, same, pages = [], [], True, 0
    surroundings = {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "examples")))}
    for _ in range(rounds):
        program = [sys.executable, "-m", "outrider"]
        quick = ["--delay", "0", "--delay-factor", "0", "--concurrency", "64", "--progress", "none"]
        words = [*program, "crawl", *crawl, *quick, "-o", place, "--on-page", function]
        crawls.append(run(words, good=(0, 3), environment=surroundings))
        words = [*program, "replay", place, "--on-page", function]
        replays.append(run(words, environment=surroundings))
        same = same and _items(place / "items.jsonl") == _items(place / "replayed.jsonl")
        pages = len((place / "pages.jsonl").read_bytes().splitlines())
        shutil.rmtree(place)
    fastest = [min(some, key=lambda one: one.wall_seconds) for some in (crawls, replays)]
    return Pair(web, function, pages, *fastest, same)


def _of_shop(directory: Path) -> list[Pair]:
    pairs = []
    for kind, size in ((ShopWeb, SIZES[0]), (DistantShop, SIZES[0]), (ShopWeb, SIZES[1])):
        products = size * PRODUCTS_PER_PAGE // (PRODUCTS_PER_PAGE + 1)
        server = DemoServer(lambda port, kind=kind, count=products: kind(count, port=port), directory / "web")  # type: ignore[misc]
        served = server.start()
        try:
            name = "shop, 20 ms away" if kind is DistantShop else "shop"
            crawl = [f"@{served.seeds_file}", "--hosts", served.hosts_file]
            pairs.append(_pair(name, SPIDER, directory / "out", crawl, ROUNDS if size == SIZES[0] else 1))
        finally:
            server.stop()
    return pairs


def _of_pages(directory: Path) -> tuple[list[Pair], str]:
    with serving(directory, PRESET) as web:
        pairs = []
        for function in ("bench.hooked:title", "bench.hooked:selected"):
            for size in SIZES:
                if size <= max(SIZES[0], len(web.must_fetch)):
                    crawl = [f"@{web.seeds}", "--hosts", web.hosts, "--max-pages", str(size)]
                    name = function.rpartition(":")[2]
                    pair = _pair("pages", function, directory / "out", crawl, ROUNDS if size == SIZES[0] else 1)
                    pairs.append(replace(pair, function=name))
        return pairs, web.title


def tables() -> list[Table]:
    """Crawls the shop and the pages with a function, and replays it over the archive."""
    with tempfile.TemporaryDirectory() as place:
        pairs = _of_shop(Path(place) / "shop")
        more, title = _of_pages(Path(place) / "pages")
    pairs += more
    columns = ("web", "function", "lines", "crawl s", "replay s", "as fast", "crawl CPU s", "replay CPU s", "less CPU")
    notes = (
        f"Fastest of {ROUNDS} of each in turns, one with {SIZES[1]:,} pages; with the start of the programs.",
        "The shop has one host; its spider is examples/shop.py, with four selectors a page.",
        f"The pages are {title}; `title` uses the title that Outrider read, `selected` one CSS selector.",
        "CPU seconds are those of the crawler and its children, without the server.",
        "Both have the same items." if all(pair.same for pair in pairs) else "THE ITEMS DIFFER.",
    )
    return [Table("replay", "A function over known pages", columns, tuple(pair.row() for pair in pairs), notes)]
