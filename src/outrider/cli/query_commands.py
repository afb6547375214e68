"""The commands that read and change nothing: `explain`, `why-idle`, `hosts`, `urls`.

They send their questions to a running crawl over its socket. If no crawl runs, they read its files.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from outrider.cli.help import HelpfulCommand
from outrider.cli.layout import machine_text, named, preference_lines, shown, table
from outrider.cli.server_access import asks_a_server
from outrider.crawl.output.progress import eta_text
from outrider.crawl.output.summary import counted
from outrider.crawl.output.terminal import safe, say
from outrider.crawl.setup.instants import dated
from outrider.limits import BEFORE_COUNTED_MAX, UNIQUE_KEY_SHOWN_MAX
from outrider.url import normalize

if TYPE_CHECKING:
    from outrider.crawl.questions.crawl_queries import Looks
    from outrider.crawl.questions.remote_queries import Access

HOST_STATES = ("ready", "resting", "blocked", "empty")
URL_STATES = ("queued", "leased", "waiting", "parked", "done", "gone")
SKIPPED_REASONS = ("scope", "nofollow", "over_limit", "copy", "soft_404")
LIST_ROWS = 100  # two screens; --limit 0 lists all
_TABLE_ROWS = 1_000  # widths of columns are computed again after this many rows: a long list needs no memory

_HOST_COLUMNS = {
    "name": "HOST",
    "state": "STATE",
    "queued": "QUEUED",
    "leased": "LEASED",
    "answered": "ANSWERED",
    "gap_seconds": "GAP",
    "reason": "BY",
    "rest_until": "DELAY UNTIL",
    "back_off_seconds": "BACK-OFF",
    "paused": "PAUSED",
    "not_welcome": "NOT WELCOME",
    "payment": "PAYMENT",
}
_URL_COLUMNS = {
    "state": "STATE",
    "reason": "REASON",
    "status": "STATUS",
    "attempts": "ATTEMPTS",
    "priority": "PRIORITY",
    "depth": "DEPTH",
    "due": "DUE",
    "unique_key": "UNIQUE KEY",
    "url": "URL",
}

_directory = click.argument("directory", metavar="DIR")
_place = click.argument("directory", metavar="DIR|ADDRESS|FILE")
_after = click.option(
    "--after",
    metavar="CURSOR",
    help="Continue after this cursor, printed at the end of the previous list.  [default: none]",
)
_limit = click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=LIST_ROWS,
    show_default=True,
    help="Print at most N rows. 0 prints all.",
)
_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
_json_lines = click.option(
    "--json",
    "as_json",
    is_flag=True,
    help='Print one JSON object per line. If rows are left, the last line is {"cursor": …}.',
)


@click.command(cls=HelpfulCommand)
@click.argument("url", metavar="URL", required=False)
@click.option("-o", "--output", "directory", metavar="DIR", help="The crawl's directory, or the FILE of a cluster.")
@click.option("--server", metavar="ADDRESS", help="The address of a server, instead of -o.  [default: none]")
@click.option("--crawl", metavar="NAME", help="The namespace of the URL.  [default: default]")
@click.option(
    "--key",
    metavar="KEY",
    help="The key that the URL was added with, in a crawl by unique keys.  [default: the host]",
)
@click.option(
    "--unique-key",
    metavar="BASE64",
    help="The unique key in place of URL, as `outrider urls --json` prints it.  [default: none]",
)
@_json
@asks_a_server
def explain(
    url: str | None,
    directory: str | None,
    server: str | None,
    crawl: str | None,
    key: str | None,
    unique_key: str | None,
    as_json: bool,
    access: Access,
) -> int:
    """Show all facts about one URL, and why it is not being fetched now."""
    from outrider.crawl.questions.crawl_queries import querying

    place = directory if server is None else server
    if place is None or (directory is not None and server is not None):
        raise click.UsageError("Missing option '-o' or '--server', one of them", ctx=click.get_current_context())
    if (url is None) == (unique_key is None):
        raise click.UsageError(
            "Missing argument 'URL' or option '--unique-key', one of them", click.get_current_context()
        )
    # In another crawl than the default one, URLs may be kept byte for byte.
    named = url if url is None or crawl is not None else normalize(url)
    with querying(place, access) as look:
        found = look("explain", {"url": named, "crawl": crawl, "queue_key": key, "unique_key": unique_key})
    _say(found, as_json, explained)
    return 0


@click.command(name="why-idle", cls=HelpfulCommand)
@_place
@_json
@asks_a_server
def why_idle(directory: str, access: Access, as_json: bool) -> int:
    """Show what the crawl is waiting for, and what limited its speed in the last minute."""
    from outrider.crawl.questions.crawl_queries import querying

    with querying(directory, access) as look:
        found = look("why-idle", {})
    _say(found, as_json, idle_lines)
    return 0


@click.command(cls=HelpfulCommand)
@_place
@click.option("--state", type=click.Choice(HOST_STATES), help="Only hosts in this state.  [default: all]")
@_after
@_limit
@_json_lines
@asks_a_server
def hosts(directory: str, access: Access, state: str | None, after: str | None, limit: int, as_json: bool) -> int:
    """List the hosts of a crawl, with their state and delay."""
    from outrider.crawl.questions.crawl_queries import querying

    with querying(directory, access) as look:
        _list(look, "hosts", {"state": state, "after": after}, limit, _HOST_COLUMNS, as_json)
    return 0


@click.command(cls=HelpfulCommand)
@_directory
@click.argument("url", metavar="[URL]", required=False)
@_json_lines
def duplicates(directory: str, url: str | None, as_json: bool) -> int:
    """List the pages that have copies, each with its copies.

    URL lists only the pages that are copies of it. A copy has the same bytes or nearly the same text. For similar text,
    the list shows how many of 64 bits differ.
    """
    import msgspec

    from outrider.crawl.run.copies import clusters, lines_of

    wanted = normalize(url) if url is not None else None
    for original, copies in clusters(lines_of(directory), wanted):
        if as_json:
            click.echo(msgspec.json.encode({"url": original, "copies": copies}))
            continue
        click.echo(safe(original))
        for copy in copies:
            click.echo(f"  {'same' if copy.distance is None else f'{copy.distance} bits':<7} {safe(copy.url)}")
    return 0


@click.command(cls=HelpfulCommand)
@_place
@click.option("--state", type=click.Choice(URL_STATES), help="Only URLs in this state.  [default: all]")
@click.option("--host", metavar="HOST", help="Only URLs of this host.  [default: all]")
@click.option("--crawl", metavar="NAME", help="Only URLs of this namespace.  [default: all]")
@click.option(
    "--reason",
    metavar="WORD",
    help="Only URLs with this reason or error, such as robots, trap_date or http_503.  [default: all]",
)
@_after
@_limit
@_json_lines
@asks_a_server
def urls(
    directory: str,
    access: Access,
    state: str | None,
    host: str | None,
    crawl: str | None,
    reason: str | None,
    after: str | None,
    limit: int,
    as_json: bool,
) -> int:
    """List the URLs of a crawl, with their state and reason."""
    from outrider.crawl.questions.crawl_queries import querying

    with querying(directory, access) as look:
        question = {"state": state, "host": host, "crawl": crawl, "reason": reason, "after": after}
        _list(look, "urls", question, limit, _URL_COLUMNS, as_json)
    return 0


@click.command(name="skipped", cls=HelpfulCommand)
@_directory
@click.option(
    "--reason", type=click.Choice(SKIPPED_REASONS), help="Only links skipped for this reason.  [default: all]"
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def skipped_command(directory: str, reason: str | None, as_json: bool) -> int:
    """List the links that were not followed, each with its page and the reason.

    The links are read from the archive. `outrider urls DIR --state parked` lists parked URLs.
    """
    import msgspec

    from outrider.crawl.questions.skipped_links import skipped

    for one in skipped(directory, reason):
        if as_json:
            click.echo(msgspec.json.encode(one))
        else:
            click.echo(f"{one.reason:<10}  {safe(one.url)}  on {safe(one.page)}: {safe(one.text)}")
    return 0


def _say(found: Mapping[str, Any], as_json: bool, lines: Callable[[Mapping[str, Any]], Iterator[str]]) -> None:
    if as_json:
        click.echo(machine_text(dated(found)))
        return
    for line in lines(found):
        click.echo(line)


def explained(found: Mapping[str, Any]) -> Iterator[str]:
    """Yields the words of `explain`: the reason first, then the facts about the URL, its queue and its host."""
    status = dict(found["status"])
    first = {
        "url": found["url"],
        "state": found["state"],
        "why not now": found["reason_text"],
        "next_at": found["next_at"],
    }
    own = {name: value for name, value in status.items() if name not in ("url", "state", "due")}
    print_ = {"fingerprint": found["fingerprint"], "slot": found["slot"], "class": found["klass"]}
    robots = {name: found.get(name) for name in ("authority", "robots", "robots_state")}
    since = {name: found[name] for name in ("discovered_at", "fetched_at", "due_since") if found.get(name)}
    if found.get("before") is not None:
        most = BEFORE_COUNTED_MAX
        since["before"] = f"{most:,} or more" if found["before"] >= most else found["before"]
    if found.get("next_fetch_at"):
        since["next_fetch_at"] = found["next_fetch_at"]
    yield from named({**first, **own, **print_, "order": found["order"], **since, **robots})
    if found.get("revisit"):
        numbers = dict(found["revisit"])
        yield from named({"revisit": {name: f"{x:.3g}" if isinstance(x, float) else x for name, x in numbers.items()}})
    yield from _archived(found)
    for group in found.get("held_by", ()):
        yield from named({"held by": group})
    for name in ("queue", "host"):
        if found[name] is not None:
            yield from named({name: {key: value for key, value in dict(found[name]).items() if key != "robots"}})
    for file in (found["host"] or {}).get("robots", ()):
        yield from named({"robots.txt": file})


def _archived(found: Mapping[str, Any]) -> Iterator[str]:
    """Yields the parts of the priority, and the place of the last answer."""
    ranking = dict(found.get("ranking") or {})
    parts = ranking.pop("parts", ())
    told = {name: ranking.get(name) for name in ("source", "function", "hops", "losses") if ranking.get(name)}
    told |= {part["name"]: f"{part['value']:.3g} × {part['weight']:.3g}" for part in parts}
    if told:
        yield from named({"priority by": told})
    yield from preference_lines(found.get("preferences"))
    if found.get("archived") is not None:
        yield from named({"archived": found["archived"]})
    if found.get("duplicate_of") is not None:
        bits = found.get("distance")
        how = "the same bytes" if bits is None else counted(bits, "bit differs", "bits differ")
        yield from named({"copy of": f"{found['duplicate_of']} ({how})"})


def idle_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Yields the words of `why-idle`: the reason, the next event, and counts that add up."""
    yield safe(found["text"])
    if found["next_at"] is not None:
        yield f"next      {shown('next_at', found['next_at'])}, in {shown('next_seconds', found['next_seconds'])}"
    for name, spent in found.get("hooks", {}).items():
        yield (
            f"hook      {name}: {counted(spent['calls'], 'call')}, {spent['seconds']:,.1f} s, "
            f"{spent['share']:.0%} of the time, longest {spent['seconds_max']:.3g} s"
        )
    if "throughput" in found:
        from outrider.crawl.run.bottleneck import throughput_lines

        yield from throughput_lines(found["throughput"])
    if "known" not in found:
        return  # a hook delays the counting
    for name, total in (("hosts", f"{found['known']:,} known: "), ("urls", "")):
        yield f"{name:<8}  {total}" + ", ".join(f"{count:,} {safe(state)}" for state, count in found[name].items())
    yield f"errands   {found['errands']:,} robots.txt files and addresses to request"
    if found["tail_host"] is not None:
        left = eta_text(found["tail_seconds"])
        yield f"the tail  {safe(found['tail_host'])} has {counted(found['tail_urls'], 'URL')}: {left}, at its gap"


def _list(
    look: Looks, name: str, question: Mapping[str, Any], limit: int, columns: Mapping[str, str], as_json: bool
) -> None:
    from outrider.crawl.questions.crawl_queries import every_row

    rows = every_row(look, name, question, limit or None)
    if as_json:
        for row in rows:
            click.echo(machine_text(dated(row)))
        return
    cursor = None
    count = 0
    for some in _parts(rows):
        here = [row for row in some if list(row) != ["cursor"]]
        cursor = next((row["cursor"] for row in some if list(row) == ["cursor"]), None)
        count += len(here)
        if here:
            if name == "hosts":
                here = [{**row, "state": host_state(row)} for row in here]
            for line in table([_cut(row) for row in here], _used(columns, here)):
                click.echo(line)
    if cursor is not None:
        say(f"{count:,} {name}, and more: --after {cursor}", sys.stderr)
    else:
        say(counted(count, name[:-1], name) if count else _no_such(name, question), sys.stderr)


def _cut(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a row with the beginning of a long unique key; --json prints all of it."""
    key = row.get("unique_key")
    if key is None or len(key) <= UNIQUE_KEY_SHOWN_MAX:
        return row
    return {**row, "unique_key": key[:UNIQUE_KEY_SHOWN_MAX] + "…"}


def _used(columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> Mapping[str, str]:
    """Returns the columns without that of unique keys, if these rows have none."""
    if any(row.get("unique_key") is not None for row in rows):
        return columns
    return {name: head for name, head in columns.items() if name != "unique_key"}


def host_state(row: Mapping[str, Any]) -> str:
    """Returns the state of a host: the order of an operator and its end, or else the state of its clock."""
    if row.get("paused"):
        return "paused"
    if row.get("blocked_until") is not None:
        return f"blocked until {shown('blocked_until', row['blocked_until'])}"
    return str(row["state"])


def _no_such(name: str, question: Mapping[str, Any]) -> str:
    state, host, reason, crawl = (question.get(word) for word in ("state", "host", "reason", "crawl"))
    said = f"no {name}" + (f" in state {state}" if state else "") + (f" of host {host}" if host is not None else "")
    said += (f" of crawl {crawl}" if crawl is not None else "") + (f" with the reason {reason}" if reason else "")
    return said if state or host is None else f"{said}; `outrider hosts` lists the hosts of the crawl"


def _parts(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    while part := list(islice(rows, _TABLE_ROWS)):
        yield part
