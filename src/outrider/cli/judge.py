"""The command `judge`: any crawler's politeness, measured from the server's side."""

from __future__ import annotations

import json
import re

import click

from outrider.crawl.terminal import safe
from outrider.errors import NamedPathError

VIOLATION = 9
_CLOCK_SECONDS_MAX = 10 * 366 * 86_400.0
_RUNS_MAX = 101
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


def _clocks(context: click.Context, option: click.Parameter, value: str | None) -> tuple[float, ...]:
    """Lengths of time in seconds, one a run: `0,2d,33d`, `0,+1d,-1d`; none for None."""
    if value is None:
        return ()
    words = [word.strip() for word in value.split(",")]
    found = [re.fullmatch(r"([+-]?[0-9]{1,12}(?:\.[0-9]{1,6})?)([smhd]?)", word, re.ASCII) for word in words]
    if len(words) > _RUNS_MAX or None in found:
        raise click.BadParameter(
            f"{value!r:.80}: lengths of time with commas are expected, as in 0,2d,33d; {_RUNS_MAX} at most"
        )
    seconds = tuple(float(match[1]) * _UNITS[match[2]] for match in found if match is not None)
    if any(abs(one) > _CLOCK_SECONDS_MAX for one in seconds):
        raise click.BadParameter(f"{value!r:.80}: ten years are the most")
    if option.name == "passed" and (seconds[0] < 0 or list(seconds) != sorted(seconds)):
        raise click.BadParameter(f"{value!r:.80}: time that passes does not go back")
    return seconds


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.option("--delay", type=click.FloatRange(0, 3_600), default=1.0, show_default=True, metavar="SECONDS")
@click.option("--agent", default="outrider", show_default=True, metavar="TOKEN", help="Whose robots rules count.")
@click.option("--seconds", type=click.FloatRange(1, 86_400), default=120.0, show_default=True, metavar="S")
@click.option("--restarts", type=click.IntRange(0, 100), default=0, show_default=True, metavar="N")
@click.option("--hosts", "patient", type=click.IntRange(0, 1_000), default=0, help="So many more, with a Crawl-delay.")
@click.option(
    "--names", type=click.IntRange(0, 10_000), default=0, help="So many names on one address, judged as a host."
)
@click.option(
    "--names-at-once", type=click.IntRange(1, 1_000), default=1, show_default=True, help="Turns of that address."
)
@click.option(
    "--names-gap", type=click.FloatRange(0, 3_600), metavar="SECONDS", help="The rest of each, instead of --delay."
)
@click.option("--passed", callback=_clocks, metavar="LIST", help="Time that has passed, by run: 0,2d,33d.")
@click.option("--jumps", callback=_clocks, metavar="LIST", help="By how much the wall clock is wrong, by run.")
@click.option("--page", "page_file", metavar="FILE", help="Also write the findings there as HTML.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
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
    """Run a crawler against a web that misbehaves, and say how polite it was.

    In COMMAND {seeds} stands for a file with one URL a line, {hosts} for a file of names as /etc/hosts, {addresses} for
    seeds by address, {clock} for the seconds by which its clock is to be ahead. The crawler must leave --delay between
    the end of a request and the next to the same host, and more where a host asks for it or fails. The address of
    --names has --names-at-once turns, and each rests for --names-gap behind its request. The crawler is ended after
    --seconds, and killed and run again --restarts times before, or for each of --passed or --jumps. With --passed a
    robots.txt that fails for more than a day closes its host, for 30 days. Exit code 0 when it was polite, 9 when it
    was not, 2 when it does not start or fetches nothing.
    """
    from outrider.sim.judge import Trial, judged, page, table

    if passed and jumps:
        raise click.UsageError("--passed and --jumps: time has passed, or the clock is wrong; give one of them")
    if not names and (names_at_once != 1 or names_gap is not None):
        raise click.UsageError("--names-at-once and --names-gap speak of the address of --names; give that, too")
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
