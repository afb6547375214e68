"""The commands below `sim`: experiments on a virtual clock with repeatable numbers, and published formulas."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import click
from click.core import ParameterSource

from outrider.cli.help import HelpfulGroup
from outrider.crawl.output.terminal import say
from outrider.errors import NamedPathError, SettingsError


@click.group(cls=HelpfulGroup)
def sim() -> None:
    """Run experiments on a virtual clock. The same seed makes the same numbers.

    `bloom` and `drum` compute published formulas.
    """


@sim.command()
@click.option(
    "--threads", type=int, default=100, show_default=True, metavar="N", help="T, the number of threads that fetch."
)
@click.option(
    "--factor",
    type=float,
    default=10.0,
    metavar="K",
    help="k: a queue waits k times the duration of its last fetch, at most 60 s.  [default: 10]",
)
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Seed of the durations.")
@click.option("--svg", "plot", metavar="FILE", help="Write the plot to FILE.  [default: none]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def utilisation(threads: int, factor: float, seed: int, plot: str | None, as_json: bool) -> int:
    """Compare how busy B queues keep T threads with the law min(1, B / ((k + 1) T)).

    A thread fetches from the queue whose delay ends first, as in Mercator. Then the queue waits k times the duration of
    the fetch. Busy is the share of the time in which threads fetch.
    """
    from outrider.sim.utilisation import experiment, svg

    made = experiment(threads, factor, seed)
    if plot is not None:
        _write_plot(Path(plot), svg(made))
    if as_json:
        click.echo(json.dumps(asdict(made)))
        return 0
    click.echo(f"{made.threads} threads, k = {made.factor:g}, seed {made.seed}")
    click.echo(f"durations: {made.durations}")
    click.echo("")
    click.echo("  B/T  queues   busy    law")
    for run in made.runs:
        click.echo(f"{run.queues_per_thread:5g}  {run.queues:6}  {run.busy:.3f}  {run.law:.3f}")
    cut = sum(run.rests_cut for run in made.runs)
    if cut:
        click.echo("")
        click.echo(
            f"{cut} of {sum(run.fetches for run in made.runs)} rests ended at 60 s, which the law does not consider"
        )
    return 0


@sim.command("freshness")
@click.option(
    "--experiment", "names", multiple=True, metavar="NAME", help="Its name (repeatable).  [default: all of them]"
)
@click.option(
    "--scheduler",
    type=click.Choice(["reference", "frontier"]),
    default="reference",
    show_default=True,
    help="What is measured: a plain one, or the frontier itself, which needs 15 minutes for all.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="Seed of all chances.")
@click.option("--plots", metavar="DIR", help="Write the plots of E5, E6 and E7 into DIR.  [default: none]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def revisit_freshness(names: tuple[str, ...], scheduler: str, seed: int, plots: str | None, as_json: bool) -> int:
    """Compare rules and schedules for revisits with the optimum of their budget.

    \b
    E1, E2  the optimum of five pages, for freshness and for age
    E3      equal visits against visits in proportion to the changes
    E4      the bias of estimators of the change rate
    E5      the scheduler, from nine settings, against the optimum
    E6      the published rules against equal visits at their cost
    E7      change rates that are learned from one bit per visit
    E8      signals of changes, some of them missed or false
    E9      limits of hosts
    E10     the formulas of Azar et al. and of LambdaCrawl

    With `--scheduler frontier`, E5, E7 and E9 measure the frontier in memory, and E6 its own published rules. E8 is
    missing, and there is one more:

    \b
    coverage  new pages and visits of known pages from one budget

    All of them need about a minute with the reference. The exit code is 9 if a figure is outside of its tolerance.
    """
    from outrider.sim.frontier_experiments import frontier_figures
    from outrider.sim.revisit_experiments import EXPERIMENTS, figures
    from outrider.sim.revisit_plots import PLOTS

    if plots is not None and not Path(plots).is_dir():
        raise NamedPathError(f"{plots!r} is not a directory; create it, or choose another place")
    found = frontier_figures(names, seed) if scheduler == "frontier" else figures(names, seed)
    if plots is not None:
        for name in names or EXPERIMENTS:
            if name in PLOTS:
                file_name, draw = PLOTS[name]
                _write_plot(Path(plots) / file_name, draw(seed))
    failed = [figure for figure in found if not figure.passed]
    if as_json:
        rows = [asdict(figure) | {"passed": figure.passed} for figure in found]
        click.echo(json.dumps({"seed": seed, "failed": len(failed), "figures": rows}))
        return 9 if failed else 0
    width = max(len(figure.name) for figure in found)
    left = max(4, *(len(figure.experiment) + 2 for figure in found))
    click.echo(f"{'':{left}}{'':{width}}   expected  measured  tolerance")
    for figure in found:
        mark = "" if figure.passed else "  failed"
        expected = f"{'≥ ' if figure.at_least else ''}{figure.expected:.5f}"
        row = f"{figure.experiment:{left}}{figure.name:{width}} {expected:>10} {figure.measured:9.5f}"
        click.echo(f"{row}  {figure.tolerance:9.5f}{mark}")
    click.echo("")
    click.echo(f"{len(found) - len(failed)} of {len(found)} figures are within their tolerance (seed {seed})")
    return 9 if failed else 0


@sim.command()
@click.option("--urls", type=int, required=True, metavar="N", help="The number of URLs.")
@click.option(
    "--rate",
    type=float,
    default=0.01,
    show_default=True,
    metavar="P",
    help="The share of new URLs that a full filter may fail to deny.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def bloom(urls: int, rate: float, as_json: bool) -> int:
    """Size a filter of seen URLs: its bits, its hashes (k) and its bytes.

    A plain Bloom filter needs up to k cache misses for a look-up. A blocked filter needs one, and more bits. A filter
    is full with N URLs. The last column is the share with 2 N.
    """
    from outrider.sim.seen_formulas import filters

    made = filters(urls, rate)
    if as_json:
        click.echo(json.dumps({"urls": urls, "rate": rate, "filters": [asdict(one) for one in made]}))
        return 0
    click.echo(f"{urls:,} URLs, {rate:.4g} of the new ones not denied")
    click.echo("")
    click.echo("filter   bits per URL   k             bits       bytes  when full  with 2 N")
    for one in made:
        size = f"{one.bytes / 10**9:,.3f} GB" if one.bytes >= 10**7 else f"{one.bytes / 1000:,.3f} kB"
        click.echo(
            f"{one.kind:8} {one.bits_per_url:12.3f} {one.hashes:3} {one.bits:16,} {size:>11} "
            f"{one.rate:9.3%} {one.rate_at_twice:9.2%}"
        )
    return 0


@sim.command()
@click.option("--measure", is_flag=True, help="Measure the methods at files in a scratch folder instead.")
@click.option(
    "--links", type=int, default=1_000_000, metavar="N", help="How many links are measured.  [default: 1000000]"
)
@click.option(
    "--memory", default="256K", metavar="SIZE", help="Memory of each method that is measured.  [default: 256K]"
)
@click.option("--svg", "plot", metavar="FILE", help="Write the plot (for 1 GB, or measured) to FILE.  [default: none]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def drum(measure: bool, links: int, memory: str, plot: str | None, as_json: bool) -> int:
    """Print how often exact seen-sets on disk read or write the bytes of each URL, by the formulas of IRLbot.

    Each page has 59 links of 110 bytes, and one of nine is new. The disk moves 100 MiB/s. Mercator-B merges a sorted
    file with each full buffer. Polybot does so with the URLs themselves. DRUM first collects requests in buckets on
    disk.

    `--measure` runs Mercator-B, DRUM, the seen-set of Outrider and one page read for each link, with a tenth of the
    links, a third, and all of them. It prints the bytes that each one read and wrote, next to the formulas.
    """
    if measure:
        return _measure_drum(links, memory, plot, as_json=as_json)
    for name in ("links", "memory"):
        if click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise SettingsError(f"--{name} needs --measure: the table of formulas has its own sizes")
    from outrider.sim.seen_formulas import MEMORY_GB, METHODS, PAGES, traffic, traffic_svg

    made = traffic()
    if plot is not None:
        _write_plot(Path(plot), traffic_svg())
    if as_json:
        click.echo(json.dumps({"rows": [asdict(row) for row in made]}))
        return 0
    for gigabytes in MEMORY_GB:
        click.echo(f"{gigabytes} GB of memory   times each byte is moved            pages/s")
        click.echo("pages  " + "".join(f"{method:>12}" for method in (*METHODS, *METHODS)))
        for pages in PAGES:
            rows = [row for row in made if (row.pages, row.memory_gb) == (pages, gigabytes)]
            times = "".join(f"{row.overhead:12,.2f}" for row in rows)
            rates = "".join(f"{row.pages_per_second:12,.4g}" for row in rows)
            click.echo(f"{pages:<7.0e}{times}{rates}")
        click.echo("")
    return 0


def _measure_drum(links: int, memory: str, plot: str | None, *, as_json: bool) -> int:
    """Prints each row when it is measured."""
    from outrider.crawl.setup.options import RefusedError, size_reader
    from outrider.sim.seen_measured import MEMORY_LEAST, MEMORY_MOST, measured, measured_svg

    try:
        memory_bytes = size_reader(MEMORY_LEAST, MEMORY_MOST)(memory)
    except RefusedError as refusal:
        accepted = f"{MEMORY_LEAST >> 10}K to {MEMORY_MOST >> 30}G"
        raise SettingsError(f"--memory is {memory!r}: {refusal}; use {accepted}") from None
    made = measured(links, memory_bytes)
    if not as_json:
        click.echo(f"{memory_bytes >> 10} KB of memory, one of nine links new")
        click.echo("method            links        new  B a link      times    formula")
    rows = []
    for row in made:
        rows.append(row)
        formula = f"{row.formula:10.3f}" if row.formula is not None else f"{'none':>10}"
        text = f"{row.method:12}{row.links:11,}{row.new:11,}{row.bytes_per_link:10,.1f}{row.overhead:11.3f} {formula}"
        click.echo(text, err=as_json)
    if plot is not None:
        _write_plot(Path(plot), measured_svg(rows, memory_bytes))
    if as_json:
        click.echo(json.dumps({"memory_bytes": memory_bytes, "rows": [asdict(row) for row in rows]}))
    return 0


def _write_plot(path: Path, text: str) -> None:
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise NamedPathError(f"{str(path)!r} cannot be written ({error.strerror}); choose another place") from None
    say(f"plot: {path}", sys.stderr)
