"""The command `judge`: measures the politeness of any crawler on the server's side."""

from __future__ import annotations

import json
import re

import click

from outrider.cli.help import HelpfulCommand
from outrider.crawl.output.terminal import safe
from outrider.errors import NamedPathError

VIOLATION = 9
_CLOCK_SECONDS_MAX = 10 * 366 * 86_400.0
_RUNS_MAX = 101
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


def _clocks(context: click.Context, option: click.Parameter, value: str | None) -> tuple[float, ...]:
    """Returns lengths of time in seconds, one per run: `0,2d,33d`, `0,+1d,-1d`; empty for None."""
    if value is None:
        return ()
    words = [word.strip() for word in value.split(",")]
    found = [re.fullmatch(r"([+-]?[0-9]{1,12}(?:\.[0-9]{1,6})?)([smhd]?)", word, re.ASCII) for word in words]
    if len(words) > _RUNS_MAX or None in found:
        raise click.BadParameter(f"{value!r:.80}: use lengths of time with commas, as in 0,2d,33d; {_RUNS_MAX} at most")
    seconds = tuple(float(match[1]) * _UNITS[match[2]] for match in found if match is not None)
    if any(abs(one) > _CLOCK_SECONDS_MAX for one in seconds):
        raise click.BadParameter(f"{value!r:.80}: use ten years at most")
    if option.name == "passed" and (seconds[0] < 0 or list(seconds) != sorted(seconds)):
        raise click.BadParameter(f"{value!r:.80}: use times that grow, from 0")
    return seconds


@click.command(cls=HelpfulCommand, context_settings={"ignore_unknown_options": True})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.option(
    "--delay",
    type=click.FloatRange(0, 3_600),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="The minimum gap that the crawler must keep.",
)
@click.option(
    "--agent",
    default="outrider",
    show_default=True,
    metavar="TOKEN",
    help="The user agent whose robots.txt rules count.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(1, 86_400),
    default=120.0,
    show_default=True,
    metavar="S",
    help="End the crawler after this time.",
)
@click.option(
    "--restarts",
    type=click.IntRange(0, 100),
    default=0,
    show_default=True,
    metavar="N",
    help="Kill the crawler and run it again N times.",
)
@click.option(
    "--hosts",
    "patient",
    type=click.IntRange(0, 1_000),
    default=0,
    show_default=True,
    metavar="N",
    help="Add N hosts with a Crawl-delay.",
)
@click.option(
    "--names",
    type=click.IntRange(0, 10_000),
    default=0,
    show_default=True,
    metavar="N",
    help="Add N host names at one address, which counts as one host.",
)
@click.option(
    "--names-at-once",
    type=click.IntRange(1, 1_000),
    default=1,
    show_default=True,
    metavar="N",
    help="Requests that the address of --names allows at once.",
)
@click.option(
    "--names-gap",
    type=click.FloatRange(0, 3_600),
    metavar="SECONDS",
    help="The gap after a request to the address of --names.  [default: --delay]",
)
@click.option(
    "--passed",
    callback=_clocks,
    metavar="LIST",
    help="For each run, the time that has passed: 0,2d,33d.  [default: none]",
)
@click.option(
    "--jumps",
    callback=_clocks,
    metavar="LIST",
    help="For each run, the error of the wall clock: 0,+1d,-1d.  [default: none]",
)
@click.option("--page", "page_file", metavar="FILE", help="Also write the findings to FILE as HTML.  [default: none]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def judge(
    command: tuple[str, ...],
    delay: float,
    agent: str,
    seconds: float,
    restarts: int,
    patient: int,
    names: int,
    names_at_once: int,
    names_gap: float | None,
    passed: tuple[float, ...],
    jumps: tuple[float, ...],
    page_file: str | None,
    as_json: bool,
) -> int:
    """Run any crawler against misbehaving test servers and measure how polite it is.

    \b
    COMMAND may contain:
      {seeds}      a file with one URL per line
      {hosts}      a file of names in the form of /etc/hosts
      {addresses}  a file of seeds with addresses, not names
      {clock}      the seconds by which its clock must be ahead

    The crawler must wait --delay between the end of a request and the next one to the same host. It must wait longer if
    the host requires it or fails. --passed and --jumps make one run for each of their values. With --passed, a
    robots.txt that fails for more than a day closes its host for 30 days.

    Exit code 0 if the crawler was polite, 9 if it was not, 2 if it does not start or fetches nothing.
    """
    from outrider.sim.judge import Trial, judged, page, table

    if passed and jumps:
        raise click.UsageError("--passed and --jumps exclude each other; use one of them")
    if not names and (names_at_once != 1 or names_gap is not None):
        raise click.UsageError("--names-at-once and --names-gap need --names; add --names")
    clocks = passed or jumps
    trial = Trial(delay, agent, seconds, restarts, clocks, bool(passed), patient, names, names_at_once, names_gap)
    found = judged(list(command), trial)
    if page_file is not None:
        try:
            with open(page_file, "w", encoding="utf-8") as file:
                file.write(page(found))
        except OSError as error:
            raise NamedPathError(f"{page_file!r} cannot be written ({error.strerror}); choose another place") from None
    if as_json:
        click.echo(json.dumps(found.as_dict()))
    else:
        for line in table(found):
            click.echo(safe(line))
    return 0 if found.ok else VIOLATION
