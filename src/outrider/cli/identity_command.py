"""The command `identity`: the key of a crawler, and the files by which sites verify it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from outrider.cli.help import HelpfulCommand, HelpfulGroup
from outrider.cli.layout import machine_text
from outrider.clock import wall
from outrider.crawl.output.terminal import safe
from outrider.errors import SettingsError

if TYPE_CHECKING:
    from outrider.crawl.orders.identity_files import MadeFiles

_directory = click.argument("directory", metavar="DIR")
_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
_INIT_EXAMPLES = (
    (
        "outrider identity init me --url https://bot.example --contact you@bot.example",
        "Make a key and a description in ./me",
    ),
)


@click.group(cls=HelpfulGroup)
def identity() -> None:
    """Make a key for your crawler, and the files by which sites verify it.

    docs/howto/identity.md explains the steps.
    """


@identity.command(cls=HelpfulCommand, examples=_INIT_EXAMPLES)
@_directory
@click.option(
    "--url", metavar="URL", help="The https origin of your own site, which will serve the files.  [default: none]"
)
@click.option(
    "--contact", metavar="URL|MAIL", help="A mail address or URL at which sites can reach you.  [default: none]"
)
@click.option(
    "--user-agent", default="Outrider", show_default=True, metavar="TOKEN", help="The crawler's name in robots.txt."
)
@click.option("--rotate", is_flag=True, help="Make a new key for the identity in DIR, and keep the old one.")
@_json
def init(directory: str, url: str | None, contact: str | None, user_agent: str, rotate: bool, as_json: bool) -> int:
    """Make the folder DIR with an Ed25519 key and a description of the crawler.

    The key is a file of mode 0600. With --rotate, the old key is published together with the new one until you remove
    its file.
    """
    from outrider.crawl.orders.identity_files import make_identity, rotate_key

    if rotate:
        _tell(rotate_key(directory, wall()), as_json)
        return 0
    if url is None or contact is None:
        raise SettingsError(f"{'url' if url is None else 'contact'} is missing: use --url URL and --contact URL|MAIL")
    _tell(make_identity(directory, url, contact, user_agent), as_json)
    return 0


@identity.command(cls=HelpfulCommand)
@_directory
@_json
def page(directory: str, as_json: bool) -> int:
    """Write the page for people (bot.html) and the card for programs (agent-card.json).

    Their texts are those of DIR/identity.toml.
    """
    from outrider.crawl.orders.identity_files import write_page

    _tell(write_page(directory), as_json)
    return 0


@identity.command(cls=HelpfulCommand)
@_directory
@click.argument("ranges", nargs=-1, metavar="[RANGE]...")
@click.option(
    "--service",
    "services",
    multiple=True,
    metavar="TEXT",
    help="A service that runs at these addresses (repeatable).  [default: none]",
)
@_json
def ranges(directory: str, ranges: tuple[str, ...], services: tuple[str, ...], as_json: bool) -> int:
    """Write the public address ranges of the crawler (ranges.json, JAFAR).

    Without a RANGE, those of DIR/identity.toml are written. Run it daily, because the file contains its time.
    """
    from outrider.crawl.orders.identity_files import write_ranges

    _tell(write_ranges(directory, ranges, services, wall()), as_json)
    return 0


@identity.command(cls=HelpfulCommand)
@_directory
@click.option(
    "--days",
    type=click.IntRange(1, 366),
    default=30,
    show_default=True,
    metavar="N",
    help="The proofs of possession end after N days.",
)
@_json
def directory(directory: str, days: int, as_json: bool) -> int:
    """Write the key directory, with a proof of possession for each key.

    The proofs are header fields. nginx.conf has them in the form of nginx. Run the command again before they end.
    """
    from outrider.crawl.orders.identity_files import write_directory

    _tell(write_directory(directory, wall(), days), as_json)
    return 0


def _tell(made: MadeFiles, as_json: bool) -> None:
    if as_json:
        click.echo(machine_text(asdict(made)))
        return
    for path in made.paths:
        click.echo(safe(f"wrote    {path}"))
    if made.key is not None:
        click.echo(f"key      {made.key}")
    if made.expires is not None:
        click.echo(f"proofs   valid until {made.expires}")
