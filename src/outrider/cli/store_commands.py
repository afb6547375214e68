"""The commands that maintain a store, and own it meanwhile: `verify`, `repair`, `retry`, `export`,
`import`, `replay`."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from outrider.cli.help import HelpfulCommand, completed
from outrider.cli.layout import machine_text
from outrider.cli.server_access import asks_a_server
from outrider.clock import wall
from outrider.crawl.output.summary import counted
from outrider.crawl.output.terminal import safe, say
from outrider.errors import DamagedStoreError, SettingsError

if TYPE_CHECKING:
    from outrider.crawl.orders.store_repair import Repaired
    from outrider.crawl.questions.politeness_proof import HostProof, Proof
    from outrider.crawl.questions.remote_queries import Access

VIOLATION = 9
PROOF_HOSTS_SHOWN = 20  # hosts with the smallest margin; --json has all
NOTHING_USABLE = 2
_ORDERS = ("pause", "resume", "block", "delay", "limit", "recheck")
STOPPED_BY_USER = 4
_WHAT = ("frontier", "pages", "items")

_directory = click.argument("directory", metavar="DIR")
_place = click.argument("directory", metavar="DIR|ADDRESS|FILE")
_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@click.command(cls=HelpfulCommand)
@click.argument("directory", metavar="DIR|FILE")
@_json
def verify(directory: str, as_json: bool) -> int:
    """Check the store in DIR for damage, or those of the cluster in FILE.

    It checks every checksum and recounts everything. It changes nothing, and works while the crawl runs. Exit code 0
    if all is correct, 9 if a count is wrong, 5 if a file is damaged or if the output contains pages that the store
    does not have.
    """
    from outrider.crawl.orders.store_repair import verify as verified

    done = verified(directory)
    problems = done.found.problems if done.found is not None else ()
    counts = dict(done.found.counts) if done.found is not None else {}
    if as_json:
        damage = [asdict(loss) for loss in done.damage]
        told = {"ok": done.ok, "damage": damage, "problems": list(problems), "counts": counts}
        click.echo(machine_text({**told, "unknown_output": str(done.unknown) if done.unknown is not None else None}))
    else:
        for found in (*done.damage, *problems):
            click.echo(safe(found))
        if not done.damage:
            words = "all is correct" if done.ok else "counts are wrong"
            if done.unknown is not None and not problems:
                words = "all is correct, but the output has pages that the store does not have"
            click.echo(f"{words}: {', '.join(f'{count:,} {name}' for name, count in counts.items())}")
    if done.damage:
        say(f"outrider: {directory} is damaged; `outrider repair {directory}` recovers the undamaged parts", sys.stderr)
        return DamagedStoreError.exit_code
    if done.unknown is not None:
        say(f"outrider: {done.unknown}", sys.stderr)
        return done.unknown.exit_code
    return 0 if done.ok else VIOLATION


@click.command(cls=HelpfulCommand)
@click.argument("directory", metavar="[DIR]", required=False)
@click.argument("host", metavar="[HOST]", required=False)
@click.option(
    "--proof",
    metavar="FILE",
    help="Write what a stranger needs to check the record: lines, proofs and a signed head.  [default: none]",
)
@click.option("--check", metavar="FILE", help="Check such a file; it needs nothing else.  [default: none]")
@click.option(
    "--identity",
    metavar="DIR",
    help="Sign the head of --proof now, with this identity.  [default: the newest head of the crawl]",
)
@_json
def politeness(
    directory: str | None,
    host: str | None,
    proof: str | None,
    check: str | None,
    identity: str | None,
    as_json: bool,
) -> int:
    """Prove that the crawl or worker in DIR kept every delay.

    It computes each gap again from politeness.jsonl, for each host and for each clock that hosts share. Then it
    compares the record with the store. With HOST, it reads and judges only the requests to that host, also while the
    crawl runs. Exit code 0 if every rule was kept. Exit code 9 if a rule was broken, with host, line and rule.
    """
    from outrider.crawl.questions.politeness_proof import prove, prove_host

    if check is not None:
        if directory is not None or proof is not None:
            raise SettingsError("--check reads only its file; use it without DIR and --proof")
        return _check(check, as_json)
    if directory is None:
        raise SettingsError("DIR is missing: name the directory of a crawl, or a file with --check FILE")
    if proof is not None:
        return _write_proof(directory, host, proof, identity, as_json)
    found = prove(directory) if host is None else prove_host(directory, host)
    if host is not None and host not in found.hosts and found.ok:
        raise SettingsError(f"host {safe(host)} has no line in the record of {directory}; `outrider hosts` lists hosts")
    if as_json:
        click.echo(machine_text(found.as_dict()))
    else:
        for line in _proof_lines(found):
            click.echo(safe(line))
        if host is not None:
            more = "all hosts, shared clocks and the digest of the record"
            click.echo(f"`outrider politeness {shlex.quote(directory)}` proves {more}")
    return 0 if found.ok else VIOLATION


def _write_proof(directory: str, host: str | None, file: str, identity: str | None, as_json: bool) -> int:
    """Writes a file for strangers."""
    from outrider.crawl.questions.record_proof import write_proof
    from outrider.identity.signed_note import head_of

    header = write_proof(directory, host, file, identity)
    head = head_of(header.head)
    if as_json:
        told = {"file": file, "host": host, "lines": header.lines, "name": head.name, "size": head.size}
        click.echo(machine_text({**told, "key": header.key}))
        return 0
    click.echo(safe(f"wrote {file}: {counted(header.lines, 'line')} of {head.size:,}, signed as {head.name}"))
    click.echo(safe(f"`outrider politeness --check {shlex.quote(file)}` checks it"))
    return 0


def _check(file: str, as_json: bool) -> int:
    """Checks a file of another crawler."""
    from outrider.crawl.questions.record_proof import check_proof

    found = check_proof(file)
    ok = found.ok and found.politeness.ok
    name, size = (found.head.name, found.head.size) if found.head is not None else (None, None)
    if as_json:
        told = {"ok": ok, "key": found.key, "name": name, "size": size, "host": found.host, "lines": found.lines}
        click.echo(machine_text({**told, "faults": found.faults, "politeness": found.politeness.as_dict()}))
        return 0 if ok else VIOLATION
    for text in found.faults:
        click.echo(safe(text))
    if found.broken > len(found.faults):
        click.echo(f"… and {found.broken - len(found.faults):,} more")
    if found.ok:
        click.echo(safe(f"{counted(found.lines, 'line')} of {size:,} are in the record that {name} signed"))
        if found.rules:
            had = len(found.rules) - len(found.missing)
            click.echo(f"robots.txt: {had:,} of {counted(len(found.rules), 'version')} in the file, unchanged")
        click.echo(f"key {found.key}: compare it with the key directory of that site")
        for line in _proof_lines(found.politeness):
            click.echo(safe(line))
    else:
        click.echo(f"NOT PROVEN: {counted(found.broken, 'fault')}")
    return 0 if ok else VIOLATION


def _proof_lines(proof: Proof) -> Iterator[str]:
    for one in proof.violations:
        where = f"line {one.line}" if one.line is not None else "the record"
        yield f"{where}  {one.host or '-'}  {one.rule}: {one.text}"
    if proof.broken > len(proof.violations):
        yield f"… and {proof.broken - len(proof.violations):,} more"
    for told in sorted(proof.hosts.values(), key=_room)[:PROOF_HOSTS_SHOWN]:
        gaps = "one request only"
        if told.gap_min is not None and told.gap_required is not None:
            gaps = f"smallest margin at a gap of {told.gap_min:.3f} s ({told.gap_required:.3f} s required)"
        yield f"{told.host}  {counted(told.requests, 'request')}, {gaps}"
    if proof.torn:
        yield f"the last {counted(proof.torn, 'byte')} are not a whole line, and were not judged"
    if proof.unseen:
        lost = counted(proof.unseen, "request without a line", "requests without a line")
        yield f"{lost}: a crash lost the answers; the hosts rested after them"
    verdict = "no delay violated" if proof.ok else counted(proof.broken, "rule VIOLATED", "rules VIOLATED")
    if proof.ok and not proof.requests:
        verdict = "nothing to prove"
    asked = f"{counted(proof.requests, 'request')} to {counted(len(proof.hosts), 'host')}"
    yield f"{verdict}: {asked}, {counted(proof.groups, 'shared clock')}"


def _room(told: HostProof) -> float:
    return told.room_min if told.room_min is not None else float("inf")


@click.command(cls=HelpfulCommand)
@_directory
@_json
def repair(directory: str, as_json: bool) -> int:
    """Recover the undamaged part of the store in DIR, and list the losses.

    The damaged files are moved to a folder of the store, with a report. Nothing is deleted. Exit code 0 if the store
    can be opened afterwards, 9 if its counts are wrong, 5 if it cannot be repaired.
    """
    from outrider.crawl.orders.store_repair import repair as mended
    from outrider.crawl.orders.store_repair import verify as verified

    done = mended(directory)
    after = verified(directory)
    if as_json:
        click.echo(machine_text({"ok": after.ok, **done.as_dict()}))
    elif not done.folder:
        click.echo("nothing is damaged")
    else:
        for line in repair_lines(done):
            click.echo(safe(line))
    if done.salvaged.own_lost:
        say(
            "outrider: the seeds that set the scope, request ids and totals are lost; add the seeds again: "
            f"outrider crawl SEED… -o {directory}",
            sys.stderr,
        )
    for wrong in (*after.damage, *(after.found.problems if after.found is not None else ())):
        say(f"outrider: {wrong}", sys.stderr)
    return 0 if after.ok else VIOLATION


def repair_lines(done: Repaired) -> Iterator[str]:
    """Yields the lost parts, the rebuilt parts, and the place of the damaged files."""
    for loss in done.losses:
        yield f"lost     {loss}"
    found = done.salvaged
    if found.urls:
        yield f"lost     {counted(found.urls, 'URL')} with only later states left"
    for name, count in found.facts.items():
        yield f"lost     {counted(count, 'fact')} of kind {name}, about lost URLs or hosts"
    if found.leases_ended:
        yield f"ended    {counted(found.leases_ended, 'lease')}; their URLs are queued again"
    if found.hosts_made or found.queues_made:
        made = f"{counted(found.hosts_made, 'host')} and {counted(found.queues_made, 'queue')}"
        yield f"rebuilt  {made}, from their URLs"
    for name in found.names_made:
        yield f"rebuilt  {name}, in place of a lost name"
    kept = ", ".join(done.kept) or "no file"
    yield f"kept     {kept} as before, in {done.folder}; its report.json has this list"


@click.command(cls=HelpfulCommand)
@_place
@click.option(
    "--error", metavar="CLASS", help="Only URLs with this error, such as http_503 or timeout.  [default: all]"
)
@click.option("--host", metavar="HOST", help="Only URLs of this host.  [default: all]")
@asks_a_server
def retry(directory: str, error: str | None, host: str | None, access: Access) -> int:
    """Retry failed URLs, also of a running crawl."""
    from outrider.crawl.questions.crawl_queries import ordering

    with ordering(directory, access) as order:
        found = order("retry", {"error": error, "host": host})
    count = found["count"]
    if not count:
        place = shlex.quote(directory)
        say(
            f"no failed URL matches; `outrider urls {place} --state gone` lists failed URLs; pages whose robots.txt "
            f"cannot be read return with `outrider host {place} HOST recheck`",
            sys.stderr,
        )
    click.echo(f"{counted(count, 'URL is', 'URLs are')} queued again")
    if count and found.get("stopped"):
        _say_how_to_go_on(directory)
    return 0


def _say_how_to_go_on(directory: str) -> None:
    say(f"the crawl is stopped; `outrider resume {shlex.quote(directory)}` fetches them", sys.stderr)


@click.command(cls=HelpfulCommand)
@_place
@click.argument("urls", nargs=-1, required=True, metavar="URL...")
@asks_a_server
def add(directory: str, urls: tuple[str, ...], access: Access) -> int:
    """Add URLs to a crawl, also while it runs.

    A URL may also be @FILE with one URL per line, or - for standard input. It counts as a seed, so it extends the
    scope.
    """
    from outrider.crawl.questions.crawl_queries import ordering
    from outrider.crawl.setup.seeds import read_seeds
    from outrider.limits import ADD_URLS_AT_ONCE

    seeds = read_seeds(urls, sys.stdin.buffer if sys.stdin is not None else None)
    counts: dict[str, int] = {}
    stopped = False
    with ordering(directory, access) as order:
        for start in range(0, len(seeds), ADD_URLS_AT_ONCE):
            found = order("add", {"urls": seeds[start : start + ADD_URLS_AT_ONCE]})
            for refused in found.get("refused", ()):
                say(f"outrider: {refused}", sys.stderr)
            for code, count in found["codes"].items():
                counts[code] = counts.get(code, 0) + count
            stopped = bool(found.get("stopped"))
    click.echo(", ".join(f"{count:,} {code.replace('_', ' ')}" for code, count in counts.items()))
    if stopped and counts.get("new"):
        _say_how_to_go_on(directory)
    return 0 if counts.get("new", 0) + counts.get("known", 0) + counts.get("held", 0) else NOTHING_USABLE


@click.command(cls=HelpfulCommand)
@_place
@click.argument("host", metavar="HOST")
@click.argument("order", metavar="|".join(_ORDERS), shell_complete=lambda _, __, typed: completed(_ORDERS, typed))
@click.argument("value", metavar="[VALUE]", required=False)
@asks_a_server
def host(directory: str, host: str, order: str, value: str | None, access: Access) -> int:
    """Pause, block or slow down one host, also while the crawl runs.

    \b
    pause          Fetch nothing from HOST until `resume`.
    resume         Continue with HOST.
    block SECONDS  Fetch nothing from HOST for this time.
    delay SECONDS  Set the minimum gap between two requests.
                   none: the gap of the crawl.
    limit N        Allow at most N requests at once. none: as before.
    recheck        Request robots.txt again before the next page.
    """
    from outrider.crawl.questions.crawl_queries import ordering

    number = _value(order, value)
    with ordering(directory, access) as orders:
        count = orders("host", {"host": host, "order": order, "value": number})["count"]
    what = counted(count, "robots.txt file") if order == "recheck" else counted(count, "queue")
    click.echo(f"{order} {safe(host)}: {what}")
    return 0


def _value(order: str, value: str | None) -> float | None:
    """Returns the typed value of an order. Raises SettingsError with the value and the values that the order allows."""
    from outrider.engine.process_queries import missing_value, order_value

    if value is None:
        if order in ("delay", "limit"):
            raise missing_value(order)
        return order_value(order, None)
    if order in ("delay", "limit") and value.lower() == "none":
        return None
    number: object = value
    with contextlib.suppress(ValueError):
        number = int(value) if order == "limit" else float(value) if order in ("block", "delay") else value
    return order_value(order, number, value)


@click.command(name="export", cls=HelpfulCommand)
@click.argument("directories", nargs=-1, required=True, metavar="DIR...")
@click.option(
    "--to",
    "path",
    metavar="FILE",
    required=True,
    help="The file to write. Its name ends in .jsonl, .csv, .parquet, .cdxj or .wacz.",
)
@click.option(
    "--what",
    type=click.Choice(_WHAT),
    default="frontier",
    show_default=True,
    help="What to write: the state of every URL, the lines of pages.jsonl, or the items of on_page.",
)
def export_command(directories: tuple[str, ...], path: str, what: str) -> int:
    """Write the URLs, pages, items or archive of a crawl to a file, also while it runs.

    \b
    .jsonl .csv .parquet   The URLs, or what --what says.
    .cdxj                  The index of the archive, as other tools sort it.
    .wacz                  One file with the archive, its index and a list of
                           pages, for players such as replayweb.page.

    The file is complete or it is not written. --what pages and items merge several
    directories, also of workers. For a cluster, give its file in place of DIR. Exit
    code 5 if records of the archive are damaged or missing; all others are in FILE.
    """
    from outrider.crawl.orders.archive_export import archive_form, export_archive, lines_of
    from outrider.crawl.orders.exchange import export

    form = archive_form(path)
    if form is None:
        export(directories, path, what, sys.stderr)
        return 0
    if what != "frontier":
        raise SettingsError(f"--what {what}: a {form} contains the archive; omit --what, or name a .jsonl")
    done = export_archive(directories, path, sys.stderr, wall())
    for line in lines_of(done):
        say(f"outrider: {line}", sys.stderr)
    return done.exit_code


@click.command(
    cls=HelpfulCommand,
    examples=(("outrider replay shop --on-page spider:on_page --to items.parquet", "Make a table of the items."),),
)
@_directory
@click.option(
    "--on-page", "on_page", metavar="MODULE:FUNCTION", required=True, help="The function to run on each page."
)
@click.option(
    "--to",
    "path",
    metavar="FILE",
    help="Where to write the items: a name that ends in .jsonl, .csv or .parquet.  [default: DIR/replayed.jsonl]",
)
@click.option("--anew", is_flag=True, help="Start at the first page, even if an earlier replay can be continued.")
def replay(directory: str, on_page: str, path: str | None, anew: bool) -> int:
    """Run an on_page function over the archived pages in DIR, without a request.

    Use it after you have changed your function: you get the items of a fresh crawl, in seconds. DIR is
    the directory of a crawl, also of one that is running or was killed, or of a worker. All cores work. The crawl's own
    files stay as they are.

    FILE appears when all pages are done. If you stop or kill the replay, run the same command again: it continues, and
    each page counts once. If you changed the function in between, it starts at the first page.

    Exit code 5 when records are damaged or missing, 10 when the function failed on most pages.
    """
    from outrider.crawl.orders.archive_replay import lines_of
    from outrider.crawl.orders.archive_replay import replay as replayed

    try:
        done = replayed(directory, on_page, path, sys.stderr, anew=anew)
    except KeyboardInterrupt:
        say("outrider: stopped; the same command continues the replay", sys.stderr)
        return STOPPED_BY_USER
    for line in lines_of(done, directory):
        click.echo(safe(line))
    return done.exit_code


def _import_job(directory: str, files: tuple[str, ...], spider: str | None) -> int:
    from outrider.integrations.job_import import import_job

    if spider is None or len(files) != 1:
        raise SettingsError("a JOBDIR of Scrapy is imported alone, and with --spider NAME, the name of its spider")
    found = import_job(directory, files[0], spider)
    for place, words in found.faults:
        say(f"outrider: {place}: {words}", sys.stderr)
    if found.skipped > len(found.faults):
        say(f"outrider: and {found.skipped - len(found.faults):,} more that cannot be used", sys.stderr)
    for path in found.torn:
        say(f"outrider: {path}: its last record is not whole, and was left out", sys.stderr)
    if not found.stopped:
        say(
            "outrider: the spider was killed, so requests that it had sent may be in no file. No page counts as "
            "processed: the spider begins with its start requests, and finds all pages again",
            sys.stderr,
        )
    added = found.codes["new"]
    click.echo(
        f"{added:,} requests, {found.seen:,} seen before, {found.codes['known']:,} known, {found.skipped:,} skipped"
    )
    return NOTHING_USABLE if found.skipped and not found.codes else 0


@click.command(name="import", cls=HelpfulCommand)
@_directory
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--spider", metavar="NAME", help="The spider of a JOBDIR of Scrapy.  [default: none]")
def import_command(directory: str, files: tuple[str, ...], spider: str | None) -> int:
    """Add the URLs of files to the crawl in DIR. A missing DIR is created.

    \b
    .jsonl .csv .parquet      A file of `export`. Each URL keeps its state.
                              Or a file of URLFrontier's `DumpURLs`, with
                              dates and creation dates.
    .txt                      A list of URLs, one per line.
    .xml .xml.gz .rss .atom   A sitemap or feed. Its pages become seeds, and the
                              next run fetches the sitemaps of an index.
    pages.jsonl               The pages of a crawl. Their links are read from
                              the archive in the same directory.
    .warc .warc.gz .wacz      Archives of any program (also .arc .arc.gz). Their
    .cdxj                     pages are done, with time, status, digest and
                              validators. Links are added if they are in scope.
    JOBDIR                    A job directory of Scrapy, alone and with --spider.
                              DIR becomes the OUTRIDER_FRONTIER of the spider.

    Records that cannot be used are skipped, and listed with line and reason. Exit code 2 if no record was usable, 5 if
    an archive is damaged: all that could be read is imported. If an import is interrupted, run it again.
    """
    from outrider.crawl.orders.exchange import IMPORTED, import_files
    from outrider.integrations.job_directory import is_job_directory

    if spider is not None or any(is_job_directory(path) for path in files):
        return _import_job(directory, files, spider)
    found = import_files(directory, files, sys.stderr)
    for path, place, words in found.faults:
        say(f"outrider: {path}, {f'line {place}' if isinstance(place, int) else place}: {words}", sys.stderr)
    if found.skipped > len(found.faults):
        say(f"outrider: and {found.skipped - len(found.faults):,} more that cannot be used", sys.stderr)
    counts = {IMPORTED: 0, **dict(sorted(found.codes.items())), "skipped": found.skipped}
    parts = [f"{count:,} {code.replace('_', ' ')}" for code, count in counts.items() if count or code == IMPORTED]
    click.echo(", ".join(parts))
    if found.skipped and found.skipped == found.rows:
        return NOTHING_USABLE
    return DamagedStoreError.exit_code if found.damaged else 0
