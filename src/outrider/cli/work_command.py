"""The command `work`, which crawls for the frontier of a server."""

from __future__ import annotations

import sys
from typing import Any

import click

from outrider.cli.help import HelpfulCommand
from outrider.cli.server_access import token_of
from outrider.cli.settings import setting_options, typed_flags
from outrider.crawl.output.summary import counted
from outrider.crawl.output.terminal import say
from outrider.engine.http_requests import is_encrypted
from outrider.errors import SettingsError


@click.command(cls=HelpfulCommand)
@click.argument("address", metavar="ADDRESS")
@click.option(
    "--token-file",
    metavar="FILE",
    help="The file with the token of the server.  [default: the variable OUTRIDER_TOKEN]",
)
@click.option("--worker", metavar="NAME", help="The name of this worker.  [default: one saved in DIR]")
@click.option("--stay", is_flag=True, help="Continue if the server has no work left.")
@click.option(
    "--patience",
    type=click.FloatRange(0, 86_400),
    metavar="SECONDS",
    help="How long to wait for a server that does not answer.  [default: 300]",
)
@setting_options(
    *(
        "anew",
        "scope",
        "obey_robots",
        "own_sites",
        "catalog",
        "archive",
        "keep_archive",
        "seal_bytes",
        "seal_seconds",
        "tdmrep",
    )
)
def work(
    address: str, token_file: str | None, worker: str | None, stay: bool, patience: float | None, **flags: Any
) -> int:
    """Crawl as a worker of the server at ADDRESS (http://HOST:PORT or grpc://HOST:PORT).

    The pages are written to the directory of this worker. `outrider export DIR… --what pages` merges the pages of all
    workers. After a kill, run the same command again.

    The worker ends if the server has no work left. The exit code is 8 if its own address guard refused all leases.
    After SIGTERM, it reports the requests in flight and ends with 4.
    """
    from outrider.crawl.run.loop import UNREACHABLE
    from outrider.crawl.run.remote_run import PATIENCE_SECONDS, Server
    from outrider.crawl.run.remote_run import work as run

    options = typed_flags(flags)
    if "output" not in options:
        raise SettingsError("output is missing: name the directory of this worker with -o")
    server = Server(
        address,
        token_of(token_file),
        str(options["ca"]) if is_encrypted(address) and "ca" in options else None,
        worker,
        stay,
        PATIENCE_SECONDS if patience is None else patience,
    )
    done = run(options, server, say=lambda line: say(line, sys.stderr))
    late = f", {done.late:,} were too late" if done.late else ""
    say(f"{counted(done.accepted, 'answer')} counted{late}; they are in {options['output']}", sys.stderr)
    if done.refused:
        of = "all" if done.exit_code == UNREACHABLE else "some"
        words = f"this worker refused {of} of its leases, {done.refused:,} in number: {done.refused_text}"
        say(f"outrider: {words}; other workers can fetch these URLs", sys.stderr)
    return done.exit_code
