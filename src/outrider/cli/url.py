"""The commands `url normalize`, `url key` and `url explain`: how Outrider changes a URL, and why.

Standard output gets the results, one line or one JSON object per URL. A URL that cannot be crawled is named with its
reason on standard error. The rest continue, and the exit code is 2.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import click

from outrider.cli.help import HelpfulGroup
from outrider.crawl.output.terminal import safe, say
from outrider.errors import InvalidUrlError, SettingsError
from outrider.limits import URL_BYTES_MAX
from outrider.url import PUBLIC_SUFFIX_DATE, LossyRules, Url, fingerprints, key
from outrider.url.keys import BY
from outrider.url.lossy_rules import PRESETS, RULES
from outrider.url.refusal import without_userinfo

FINISHED, REFUSED = 0, 2
_STEP = "spelling"
"""The step of the standards alone. The rules follow, with their own names."""

_urls = click.argument("urls", nargs=-1, required=True, metavar="URL...")
_rules = click.option(
    "--rules",
    "rules",
    default="",
    metavar="NAME,…",
    help=f"Lossy rules: {', '.join(RULES)}. Sets of rules: {', '.join(PRESETS)}. -NAME removes one.  [default: none]",
)
_default_scheme = click.option(
    "--default-scheme",
    type=click.Choice(["http", "https"]),
    help="Scheme of URLs that have none, as in a browser's address bar.  [default: none]",
)
_base = click.option("--base", metavar="URL", help="The page that contains the relative URLs.  [default: none]")
_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object per URL.")


@click.group(cls=HelpfulGroup)
def url() -> None:
    """Normalize URLs, show their keys, and explain which rule changed what.

    URLs are arguments, or lines of standard input for -. A user name or password in a URL is shown as …, except in
    JSON.
    """


@dataclass(frozen=True, slots=True)
class _UrlLine:
    text: str
    where: str = ""  # in standard input
    fault: str = ""  # why there is no text


@url.command()
@_urls
@_base
@_default_scheme
@_rules
@click.option("--explain", "explained", is_flag=True, help="Show what each rule changed.")
@_json
def normalize(
    urls: tuple[str, ...], base: str | None, default_scheme: str | None, rules: str, explained: bool, as_json: bool
) -> int:
    """Print the canonical spelling of each URL."""
    lossy = LossyRules.parse(rules)
    page = None if base is None else Url.parse(base, default_scheme=default_scheme)

    def answer(text: str) -> Iterator[str]:
        found = Url.parse(text, page, default_scheme=default_scheme)
        steps = lossy.explain(found.text)
        last = steps[-1][2] if steps else found.text
        if as_json:
            shape: dict[str, Any] = {"given": text, "url": last}
            if explained:
                shape |= {"dropped": found.dropped, "steps": _shapes(found, steps)}
            yield json.dumps(shape)
        elif explained:
            yield safe(without_userinfo(text))
            yield from _table([(name, after) for name, _, after in [(_STEP, "", found.text), *steps]])
        else:
            yield last

    return _answered(urls, answer, as_json)


@url.command(name="key")
@_urls
@click.option(
    "--by", type=click.Choice(BY), default="host", show_default=True, help="The part of the URL that makes the key."
)
@click.option(
    "--private/--no-private",
    default=True,
    help="Use the private section (github.io …) of the public suffix list.  [default: private]",
)
@_default_scheme
@_json
def print_key(urls: tuple[str, ...], by: str, private: bool, default_scheme: str | None, as_json: bool) -> int:
    """Print the politeness key of each URL.

    By address, a host that is a name is its own key: nothing is looked up.
    """
    kind = next(name for name in BY if name == by)

    def answer(text: str) -> Iterator[str]:
        found = Url.parse(text, default_scheme=default_scheme)
        made = key(found.text, kind, private=private)
        yield json.dumps({"given": text, "url": found.text, "by": by, "key": made}) if as_json else made

    return _answered(urls, answer, as_json)


@url.command()
@_urls
@_base
@_default_scheme
@_rules
@click.option(
    "--fingerprint-key",
    metavar="HEX",
    help="32 hex digits, as in the manifest of a store: also show the fingerprint.  [default: none]",
)
@_json
def explain(
    urls: tuple[str, ...],
    base: str | None,
    default_scheme: str | None,
    rules: str,
    fingerprint_key: str | None,
    as_json: bool,
) -> int:
    """Show the parts, keys, SURT and fingerprint of each URL, and every change."""
    lossy = LossyRules.parse(rules)
    secret = _secret(fingerprint_key)
    page = None if base is None else Url.parse(base, default_scheme=default_scheme)

    def answer(text: str) -> Iterator[str]:
        found = Url.parse(text, page, default_scheme=default_scheme)
        steps = lossy.explain(found.text)
        last = Url(steps[-1][2]) if steps else found
        facts: dict[str, Any] = {
            "given": text,
            "url": last.text,
            "scheme": last.scheme,
            "host": last.host,
            "port": last.port,
            "path": last.path,
            "query": last.query,
            "dropped": found.dropped,
            "origin": last.origin,
            "registrable_domain": last.registrable_domain,
            "public_suffix_list": PUBLIC_SUFFIX_DATE,
            "surt": last.surt,
        }
        if secret is not None:
            facts["fingerprint"] = f"{int(fingerprints([last.text], key=secret)[0]):016x}"
        if as_json:
            yield json.dumps(facts | {"steps": _shapes(found, steps)})
            return
        del facts["url"]
        facts["given"] = without_userinfo(text)
        facts["dropped"] = ", ".join(found.dropped) or "nothing"
        yield last.text
        yield from _table(
            [(name.replace("_", " "), "none" if value is None else str(value)) for name, value in facts.items()]
            + [("steps", "")]
            + [(f"  {name}", after) for name, _, after in [(_STEP, "", found.text), *steps]]
        )

    return _answered(urls, answer, as_json)


def _shapes(found: Url, steps: list[tuple[str, str, str]]) -> list[dict[str, str]]:
    whole = [(_STEP, found.given, found.text), *steps]
    return [{"rule": name, "before": before, "after": after} for name, before, after in whole if before != after]


def _table(rows: list[tuple[str, str]]) -> Iterator[str]:
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        yield f"  {safe(name):<{width}}  {safe(value)}".rstrip()


def _secret(text: str | None) -> bytes | None:
    if text is None:
        return None
    try:
        secret = bytes.fromhex(text)
    except ValueError:
        secret = b""
    if len(secret) != 16:
        raise SettingsError("fingerprint-key is not a key; use 32 hex digits")  # it is a secret: not repeated here
    return secret


def _answered(urls: tuple[str, ...], answer: Callable[[str], Iterator[str]], as_json: bool) -> int:
    """Prints the `answer` for each URL, and continues after a URL that cannot be crawled. Returns the exit code."""
    code = FINISHED
    for line in _lines(urls, sys.stdin.buffer):
        try:
            if line.fault:
                raise InvalidUrlError(line.fault, url=line.text, reason=line.fault)
            for shown in answer(line.text):
                click.echo(shown)
        except InvalidUrlError as error:
            code = REFUSED
            where = f"{line.where}: " if line.where else ""
            say(f"outrider: {where}{error}", sys.stderr)
            if as_json:
                click.echo(json.dumps({"given": line.text, "error": error.reason, "position": error.position}))
    return code


def _lines(urls: tuple[str, ...], stdin: BinaryIO) -> Iterator[_UrlLine]:
    for text in urls:
        if text == "-":
            yield from _of_stream(stdin)
        else:
            yield _UrlLine(text)


def _of_stream(stream: BinaryIO) -> Iterator[_UrlLine]:
    number = 0
    limit = 2 * URL_BYTES_MAX
    while octets := stream.readline(limit):
        number += 1
        where = f"standard input, line {number}"
        if len(octets) == limit and not octets.endswith(b"\n"):
            while (rest := stream.readline(limit)) and not rest.endswith(b"\n"):
                pass
            yield _UrlLine("", where, f"it is longer than {limit} bytes")
            continue
        try:
            text = octets.decode().strip()
        except UnicodeDecodeError:
            yield _UrlLine("", where, "it is not UTF-8")
            continue
        if text:
            yield _UrlLine(text, where)
