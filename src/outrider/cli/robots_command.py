"""The command `robots check`: whether a robots.txt allows URLs, and by which line.

Standard output gets the verdicts, a line or a JSON object per URL. Standard error gets remarks about the file.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
from typing import Any

import click
import msgspec

from outrider.cli.help import HelpfulGroup
from outrider.cli.layout import preference_lines
from outrider.cli.settings import setting_options, typed_flags
from outrider.crawl.output.terminal import safe, say
from outrider.crawl.questions.manual_requests import ManualRequests, SiteRules
from outrider.crawl.setup.options import SETTINGS, CrawlOptions, from_environment, resolved
from outrider.crawl.setup.seeds import read_hosts
from outrider.errors import InvalidUrlError, NamedPathError, UnreachableError
from outrider.fetch import FetchFailure
from outrider.limits import ROBOTS_BYTES_MAX
from outrider.robots import REFUSE_ALL
from outrider.url import Url

FINISHED, REFUSED = 0, 2
_ASKED = frozenset({"contact", "user_agent", "hosts", "resolver", "allow_address", "ca"})


@click.group(cls=HelpfulGroup)
def robots() -> None:
    """Check URLs against a robots.txt."""


@robots.command()
@click.argument("source", metavar="FILE|URL")
@click.argument("urls", nargs=-1, required=True, metavar="URL...")
@click.option("--agent", metavar="A", help="The user agent to check for.  [default: that of --user-agent]")
@click.option("--lenient", is_flag=True, help="Read the file like Google's parser (docs/decisions/robots.md).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per URL.")
@setting_options(*(name for name in SETTINGS if name not in _ASKED))
def check(source: str, urls: tuple[str, ...], agent: str | None, lenient: bool, as_json: bool, **flags: Any) -> int:
    """Show whether a robots.txt allows each URL, and by which line.

    It also shows what the file says about the uses of an allowed URL.

    FILE is a robots.txt, or - for standard input. If you give the URL of a site, its robots.txt is fetched. The URLs to
    check may be paths.
    """
    options = resolved(typed_flags(flags), from_environment(os.environ), {}, "")
    agent = options.user_agent if agent is None else agent
    if source.lower().startswith(("http://", "https://")):
        found = asyncio.run(_fetched(source, options, lenient))
    else:
        found = _read(source, lenient)
    if found.why:
        say(f"outrider: {found.why}", sys.stderr)
    for line in found.rules.ignored(agent):
        say(f"outrider: {line}", sys.stderr)
    code = FINISHED
    for text in urls:
        try:
            url = text if text.startswith("/") else Url.parse(text).text
        except InvalidUrlError as error:
            code = REFUSED
            say(f"outrider: {error}", sys.stderr)
            continue
        click.echo(_line(found, agent, url, as_json))
    return code


def _line(found: SiteRules, agent: str, url: str, as_json: bool) -> str:
    allowed, line = found.rules.allowed(agent, url), found.rules.explain(agent, url)
    said = found.rules.about_uses(agent, url)
    if found.rules is REFUSE_ALL:
        line = None
    if as_json:
        told = {
            "url": url,
            "agent": agent,
            "allowed": allowed,
            "line": None if line is None else line.number,
            "rule": line,
            "crawl_delay": found.rules.crawl_delay(agent),
            "preferences": msgspec.to_builtins(said) if said.said else None,
            "records": 0 if found.rules is REFUSE_ALL else found.rules.records,
            "status": found.status,
            "reason": found.why or None,
        }
        return json.dumps(told)
    word = "allowed" if allowed else "refused"
    by = "no line matches" if allowed else "robots.txt cannot be read"
    if line is not None:
        by = f"line {line.number}: {line}"
    uses = preference_lines(msgspec.to_builtins(said)) if said.said else ()
    return "\n".join([safe(f"{word}  {url}  {by}"), *uses])


def _read(path: str, lenient: bool) -> SiteRules:
    """Returns the rules of a file. Raises NamedPathError if it cannot be read."""
    try:
        if path == "-":
            body = sys.stdin.buffer.read(ROBOTS_BYTES_MAX + 1)
        else:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            with open(descriptor, "rb") as file:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise NamedPathError(f"{path} is not a file")
                body = file.read(ROBOTS_BYTES_MAX + 1)
    except OSError as error:
        raise NamedPathError(f"{path}: {error.strerror}; use a readable robots.txt, or a URL") from error
    return SiteRules.of(body, "standard input" if path == "-" else path, lenient=lenient)


async def _fetched(url: str, options: CrawlOptions, lenient: bool) -> SiteRules:
    """Returns the rules of a site. Raises UnreachableError without an answer of the server."""
    asked = Url.parse(url).text
    sites = ManualRequests.named([asked], options, read_hosts(options.hosts))
    try:
        found = await sites.rules(asked, lenient=lenient)
    except FetchFailure as failure:
        raise UnreachableError(f"{asked}: {failure.facts}") from failure
    finally:
        await sites.close()
    if found.error:
        raise UnreachableError(found.error)
    return found
