"""The commands about one page: `fetch` requests it now, `show` reads it from a crawl's archive."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from outrider.causes import status_words
from outrider.cli.help import HelpfulCommand
from outrider.cli.layout import machine_text, named
from outrider.cli.settings import setting_options, typed_flags
from outrider.crawl.output.summary import bytes_text, counted
from outrider.crawl.output.terminal import safe, say
from outrider.crawl.setup.options import SETTINGS, from_environment, resolved
from outrider.crawl.setup.seeds import read_hosts
from outrider.url import normalize

if TYPE_CHECKING:
    from outrider.crawl.questions.single_page import OnePage

UNREACHABLE = 8
_ASKED = frozenset(
    {
        *("scope", "include", "exclude", "follow_nofollow", "delay", "delay_factor", "contact", "user_agent", "hosts"),
        *("resolver", "allow_address", "ca", "header", "timeout", "truncate", "robots_unreachable"),
        *("crawl_delay_max", "crawl_delay_over", "crawl_delay_as", "obey_robots", "own_sites"),
    }
)


@click.command(cls=HelpfulCommand)
@click.argument("url", metavar="URL")
@click.option(
    "-o", "--output", "directory", metavar="DIR", help="Use the settings of the crawl in DIR.  [default: none]"
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@setting_options(*(name for name in SETTINGS if name not in _ASKED))
def fetch(url: str, directory: str | None, as_json: bool, **flags: Any) -> int:
    """Fetch one page now, and show which of its links a crawl would follow.

    robots.txt is requested first and obeyed. The delay between it and the page is kept. Exit code 8 if robots.txt
    forbids the page or the server does not respond.
    """
    from outrider.crawl.questions.single_page import fetch_page
    from outrider.crawl.setup.directory import kept_of_crawl

    kept = kept_of_crawl(directory).options if directory is not None else {}
    options = resolved(typed_flags(flags), from_environment(os.environ), kept, directory or "")
    hosts = read_hosts(options.hosts)
    found = asyncio.run(fetch_page(normalize(url), options, hosts, tell=lambda text: say(text, sys.stderr)))
    if as_json:
        click.echo(machine_text(found.as_dict()))
    else:
        for line in _lines(found):
            click.echo(line)
    return 0 if found.response is not None and found.response.status is not None else UNREACHABLE


def _lines(found: OnePage) -> Iterator[str]:
    response, page = found.response, found.page
    verdict = "allowed" if found.allowed else "closed"
    told: dict[str, object] = {"url": found.url, "robots": f"{verdict}: {found.robots}"}
    timing = f"robots.txt {found.robots_seconds:.3f} s"
    if response is not None:
        error = f"{response.error}: {response.error_text}" if response.error is not None else ""
        status = "none" if response.status is None else status_words(response.status)
        told |= {"status": status, "outcome": _outcome(found), "error": error, "address": response.address}
        told |= {"bytes": bytes_text(len(response.content))}
        timing += f", rest {found.waited_seconds:.3f} s, page {response.seconds:.3f} s"
    told |= {"timing": timing}
    if page is not None:
        told |= {"title": page.title, "language": page.language, "charset": page.charset}
    yield from named({name: value for name, value in told.items() if value})
    if response is not None and len(response.headers):
        yield "headers"
        yield from (f"  {safe(name)}: {safe(value)}" for name, value in response.headers)
    if page is not None:
        followed = sum(one.followed for one in found.links)
        yield f"links     {counted(len(found.links), 'link')}, {followed:,} to follow"
        for one in found.links:
            yield f"  {'+' if one.followed else '-'} {safe(one.kind):<6} {safe(one.url)}  {safe(one.reason)}"


def _outcome(found: OnePage) -> str:
    """Returns the entry that a crawl would write about the answer: the word, and the class of an error."""
    if found.meaning is None:
        return ""
    return str(found.meaning.word) + (f" ({found.meaning.error})" if found.meaning.error is not None else "")


@click.command(cls=HelpfulCommand)
@click.argument("url", metavar="URL")
@click.option("-o", "--output", "directory", metavar="DIR", required=True, help="The crawl's directory.")
@click.option("--head", "part", flag_value="head", help="Print only the status line and header, as received.")
@click.option(
    "--body",
    "part",
    flag_value="body",
    help="Print only the decoded content. On a terminal, control characters are escaped.",
)
@click.option("--text", "part", flag_value="text", help="Print only the text.")
@click.option("--json", "part", flag_value="json", help="Print only its line of pages.jsonl.")
def show(url: str, directory: str, part: str | None) -> int:
    """Show a page of a crawl: its line, and its header and text from the archive."""
    from outrider.crawl.questions.single_page import kept_page

    kept = kept_page(directory, normalize(url))
    if part == "json":
        click.echo(machine_text(kept.line))
    elif part == "body":
        if sys.stdout.isatty():
            for text in kept.content.decode("utf-8", "replace").splitlines():
                click.echo(safe(text))
        else:
            sys.stdout.buffer.write(kept.content)
            sys.stdout.buffer.flush()
    if part is None:
        for line in named(kept.line):
            click.echo(line)
    if part in (None, "head") and kept.head:
        if part is None:
            click.echo("")
        for text in kept.head.decode("latin-1").splitlines():
            click.echo(safe(text))
    if part in (None, "text") and kept.page is not None:
        if part is None:
            click.echo("")
        for text in kept.page.text.splitlines():
            click.echo(safe(text))
    return 0
