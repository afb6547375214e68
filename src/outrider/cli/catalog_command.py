"""The command `catalog`: the pages and URLs of a crawl in a database, complete or followed while the crawl runs."""

from __future__ import annotations

import sys

import click

from outrider.cli.help import HelpfulCommand
from outrider.cli.layout import machine_text
from outrider.errors import SettingsError

_EXAMPLES = (
    ("outrider catalog news --to sqlite:news.db", "Make or complete a database of the crawl in ./news"),
    ("outrider catalog news --to sqlite:news.db --follow", "Keep it up to date while the crawl runs"),
    ("outrider catalog news --to postgresql://me@db/news --detach 2026-10", "Part with a month, in PostgreSQL"),
)


@click.command(cls=HelpfulCommand, name="catalog", examples=_EXAMPLES)
@click.argument("directory", metavar="DIR")
@click.option(
    "--to",
    "to",
    metavar="URL",
    required=True,
    help="The catalog: sqlite:PATH, parquet:FOLDER, parquet:s3://BUCKET/PREFIX or postgresql://….",
)
@click.option("--follow", is_flag=True, help="Continue with new pages until Ctrl-C.")
@click.option("--anew", is_flag=True, help="Remove the tables of this catalog first, and make them again.")
@click.option(
    "--detach", metavar="YYYY-MM", help="Only detach this month of page_content, in PostgreSQL.  [default: none]"
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def catalog_command(directory: str, to: str, follow: bool, anew: bool, detach: str | None, as_json: bool) -> int:
    """Write the pages and URLs of the crawl in DIR into a database, each page once.

    It continues where the database ends, and works while the crawl runs and after it. `outrider crawl --catalog URL`
    does the same during a crawl. docs/howto/catalog.md describes the tables.
    """
    from outrider.crawl.orders.catalogs import detach_month, follow_directory

    if detach is not None:
        if follow or anew:
            raise SettingsError("--detach only detaches a month; use --follow and --anew without it")
        names = detach_month(to, detach)
        click.echo(machine_text({"detached": names}) if as_json else f"detached: {', '.join(names)}")
        return 0

    note = follow_directory(directory, to, follow=follow, anew=anew, talk=sys.stderr)
    if as_json:
        import msgspec

        click.echo(machine_text(msgspec.to_builtins(note)))
        return 0
    click.echo(f"{note.to} has {note.lines:,} lines of pages.jsonl; its URLs are as of {note.urls_as_of}")
    if note.cut or note.unreadable:
        click.echo(f"{note.cut:,} values did not fit and were cut; {note.unreadable:,} lines could not be read")
    return 0
