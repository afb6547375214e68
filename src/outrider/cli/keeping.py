"""The commands that keep a store in order, each its owner meanwhile: `verify`, `retry`, `export`, `import`."""

from __future__ import annotations

import sys

import click

from outrider.cli.layout import machine_text
from outrider.crawl.terminal import safe, say

VIOLATION = 9
NOTHING_USABLE = 2
_WHAT = ("frontier", "pages")

_directory = click.argument("directory", metavar="DIR")
_json = click.option("--json", "as_json", is_flag=True, help="One JSON object, for programs.")


@click.command()
@_directory
@_json
def verify(directory: str, as_json: bool) -> int:
    """Recount everything in DIR and check every checksum; nothing is changed.

    Exit code 0 when all is true, 9 when a count is wrong, 5 when a file is damaged.
    """
    from outrider.crawl.looks import store_of
    from outrider.engine import Frontier

    frontier = Frontier.look(store_of(directory))
    try:
        found = frontier.verify()
    finally:
        frontier.close()
    if as_json:
        click.echo(machine_text({"ok": found.ok, "problems": list(found.problems), "counts": dict(found.counts)}))
    else:
        for problem in found.problems:
            click.echo(safe(problem))
        counts = ", ".join(f"{count:,} {name}" for name, count in found.counts.items())
        click.echo(f"{'all is true' if found.ok else 'this is not true'}: {counts}")
    return 0 if found.ok else VIOLATION


@click.command()
@_directory
@click.option("--error", metavar="CLASS", help="Only those that failed so, as http_503 or timeout.")
@click.option("--host", metavar="HOST", help="Only those of this host.")
def retry(directory: str, error: str | None, host: str | None) -> int:
    """Put the URLs that were given up back into their queues."""
    from outrider.crawl.looks import changing, retried

    with changing(directory) as frontier:
        count = retried(frontier, error=error, host=host)
    click.echo(f"{count:,} URLs are queued again")
    return 0


@click.command(name="export")
@_directory
@click.option("--to", "path", metavar="FILE", required=True, help="A name that ends in .jsonl, .csv or .parquet.")
@click.option(
    "--what",
    type=click.Choice(_WHAT),
    default="frontier",
    show_default=True,
    help="The record of every URL, or the lines of pages.jsonl.",
)
def export_command(directory: str, path: str, what: str) -> int:
    """Write the frontier of DIR, or its pages, to a file: as a whole or not at all."""
    from outrider.crawl.exchange import export

    export(directory, path, what, sys.stderr)
    return 0


@click.command(name="import")
@_directory
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
def import_command(directory: str, files: tuple[str, ...]) -> int:
    """Take URLs into the frontier of DIR, which is made where there is none.

    FILE is what `export` wrote (.jsonl, .csv, .parquet; each URL keeps its state), or a list of URLs (.txt, one a
    line). What cannot be used is named and counted, the rest is taken. An import that was broken off is run again.
    """
    from outrider.crawl.exchange import import_files

    found = import_files(directory, files, sys.stderr)
    for path, place, words in found.faults:
        say(f"outrider: {path}, line {place}: {words}", sys.stderr)
    if found.bad > len(found.faults):
        say(f"outrider: and {found.bad - len(found.faults):,} more that cannot be used", sys.stderr)
    parts = [f"{count:,} {code.replace('_', ' ')}" for code, count in sorted(found.codes.items())]
    if found.bad:
        parts.append(f"{found.bad:,} bad")
    click.echo(", ".join(parts) or "nothing")
    return NOTHING_USABLE if found.bad and found.bad == found.rows else 0
