"""The command that serves a frontier to workers elsewhere: `serve`."""

from __future__ import annotations

import sys

import click

from outrider.crawl.terminal import say
from outrider.errors import SettingsError

DRAIN_SECONDS = 10.0


@click.command()
@click.argument("directory", metavar="DIR")
@click.option("--http", default="127.0.0.1:7070", show_default=True, metavar="ADDR", help="HOST:PORT to listen at.")
@click.option("--tls-cert", metavar="FILE", help="The certificate and its chain, as PEM.")
@click.option("--tls-key", metavar="FILE", help="The key of the certificate, as PEM.")
@click.option("--tokens", metavar="FILE", help="Lines `ROLE TOKEN`; roles: read, work, operate, admin.")
@click.option("--host-name", "names", multiple=True, metavar="NAME", help="A name that clients ask by (repeatable).")
@click.option(
    "--drain",
    default=DRAIN_SECONDS,
    show_default=True,
    type=click.FloatRange(0, 3_600),
    metavar="SECONDS",
    help="How long results are taken after SIGTERM.",
)
def serve(
    directory: str,
    http: str,
    tls_cert: str | None,
    tls_key: str | None,
    tokens: str | None,
    names: tuple[str, ...],
    drain: float,
) -> int:
    """Serve the frontier in DIR to workers, over HTTP (docs/howto/serve.md); a missing DIR is made.

    Loopback takes neither TLS nor tokens; any other address takes both. SIGTERM drains: waiting requests are answered,
    results are taken, then the server ends with 0 where all work is done, and with 4 where work is left.
    """
    try:
        from outrider.service.access import Tokens, listening
        from outrider.service.running import serve as run
    except ModuleNotFoundError as missing:
        raise SettingsError(f"`serve` needs {missing.name}: pip install 'outrider[serve]'") from None
    at = listening(http, tls_cert, tls_key, tokens)
    roles = Tokens.read(tokens)
    whole = run(
        directory,
        at,
        roles,
        names=frozenset(name.lower() for name in names),
        drain_seconds=drain,
        say=lambda line: say(line, sys.stderr),
    )
    return 0 if whole else 4
