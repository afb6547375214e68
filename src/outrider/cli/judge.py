"""The command `judge`: any crawler's politeness, measured from the server's side."""

from __future__ import annotations

import json

import click

from outrider.crawl.terminal import safe
from outrider.errors import NamedPathError

VIOLATION = 9


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.option("--delay", type=click.FloatRange(0, 3_600), default=1.0, show_default=True, metavar="SECONDS")
@click.option("--agent", default="outrider", show_default=True, metavar="TOKEN", help="Whose robots rules count.")
@click.option("--seconds", type=click.FloatRange(1, 86_400), default=120.0, show_default=True, metavar="S")
@click.option("--restarts", type=click.IntRange(0, 100), default=0, show_default=True, metavar="N")
@click.option("--page", "page_file", metavar="FILE", help="Also write the findings there as HTML.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")
def judge(
    command: tuple[str, ...],
    delay: float,
    agent: str,
    seconds: float,
    restarts: int,
    page_file: str | None,
    as_json: bool,
) -> int:
    """Run a crawler against a web that misbehaves, and say how polite it was.

    In COMMAND {seeds} stands for a file with one URL a line, {hosts} for a file of names as /etc/hosts, {addresses} for
    seeds by address. The crawler must leave --delay between the end of a request and the next to the same host, and
    more where a host asks for it. It is ended after --seconds, and killed and run again --restarts times before. Exit
    code 0 when it was polite, 9 when it was not, 2 when it does not start or fetches nothing.
    """
    from outrider.sim.judge import judged, page, table

    found = judged(list(command), delay=delay, agent=agent, seconds=seconds, restarts=restarts)
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
