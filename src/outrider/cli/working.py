"""The command that crawls for a frontier elsewhere: `work`."""

from __future__ import annotations

import sys
from typing import Any

import click

from outrider.cli.access import token_of
from outrider.cli.settings import given, setting_options
from outrider.crawl.summary import counted
from outrider.crawl.terminal import say
from outrider.errors import SettingsError


@click.command()
@click.argument("address", metavar="ADDRESS")
@click.option("--token-file", metavar="FILE", help="The token, alone in a file.  [default: OUTRIDER_TOKEN]")
@click.option("--worker", metavar="NAME", help="The name to lease by.  [default: one that DIR keeps]")
@click.option("--stay", is_flag=True, help="Go on when the frontier has no work left.")
@click.option(
    "--patience",
    type=click.FloatRange(0, 86_400),
    metavar="SECONDS",
    help="How long to wait for a server that is away.  [default: 300]",
)
@setting_options("anew", "scope", "obey_robots", "own_sites")
def work(
    address: str, token_file: str | None, worker: str | None, stay: bool, patience: float | None, **flags: Any
) -> int:
    """Crawl for the frontier at ADDRESS (http://HOST:PORT), into a directory of this worker's own.

    Ends when the frontier has no work left, with 8 where this worker's own address guard refused all of its leases.
    SIGTERM lets requests end, reports them, and ends with 4. A killed worker
    goes on with the same command; `outrider export DIR… --what pages` makes one file of the pages of all.
    """
    from outrider.crawl.loop import UNREACHABLE
    from outrider.crawl.work import PATIENCE_SECONDS, Server
    from outrider.crawl.work import work as run

    options = given(flags)
    if "output" not in options:
        raise SettingsError("output is missing: give the directory of this worker with -o")
    server = Server(
        address,
        token_of(token_file),
        str(options["ca"]) if address.startswith("https://") and "ca" in options else None,
        worker,
        stay,
        PATIENCE_SECONDS if patience is None else patience,
    )
    done = run(options, server, say=lambda line: say(line, sys.stderr))
    late = f", {done.late:,} came too late" if done.late else ""
    say(f"{counted(done.accepted, 'answer')} counted{late}; they lie in {options['output']}", sys.stderr)
    if done.refused:
        of = "all" if done.exit_code == UNREACHABLE else "some"
        words = f"this worker refused {of} of its leases, {done.refused:,} in number: {done.refused_text}"
        say(f"outrider: {words}; other workers can take these URLs", sys.stderr)
    return done.exit_code
