"""The command `sim utilisation`: experiments on a virtual clock with repeatable numbers."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import click

from outrider.cli.help import HelpfulGroup
from outrider.crawl.output.terminal import say
from outrider.errors import NamedPathError


@click.group(cls=HelpfulGroup)
def sim() -> None:
    """Run experiments on a virtual clock. The same seed makes the same numbers."""


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
        try:
            with open(plot, "w", encoding="utf-8") as file:
                file.write(svg(made))
        except OSError as error:
            raise NamedPathError(f"{plot!r} cannot be written ({error.strerror}); choose another place") from None
        say(f"plot: {plot}", sys.stderr)
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
