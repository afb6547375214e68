"""The beginning and the end of a crawl: seeds, settings, directory, the run, its summary and its report."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO, TextIO

import msgspec

from outrider.catalog.address import check_place
from outrider.catalog.kinds import require_extra
from outrider.clock import wall
from outrider.crawl.local_run import CrawlResult, CrawlRun, PageReader
from outrider.crawl.orders.move_old import move_old
from outrider.crawl.output.omissions import BUDGET, Omission, rows_of
from outrider.crawl.output.output import FILES, PAGES, POLITENESS
from outrider.crawl.output.output_recovery import refuse_output_alone
from outrider.crawl.output.progress import Progress, progress_of
from outrider.crawl.output.rates import disk_of, errors_of
from outrider.crawl.output.report import collect, render
from outrider.crawl.output.summary import (
    counted,
    disk_lines,
    errors_text,
    network_lines,
    omission_lines,
    payment_lines,
    summary_lines,
)
from outrider.crawl.output.terminal import say
from outrider.crawl.questions.side_server import SideServer
from outrider.crawl.run.hooks import Hooks
from outrider.crawl.run.loop import HOOKS, LIMIT, STOPPED, UNREACHABLE
from outrider.crawl.setup.directory import (
    CHOOSE_ANOTHER,
    GIVE_A_CRAWL,
    REPORT_FILE,
    DirectoryContent,
    folder_name,
    inspect,
    kept_settings,
    last_run,
    no_crawl,
    refuse_owned,
    refuse_worker_or_node,
)
from outrider.crawl.setup.options import (
    SETTINGS,
    SETTINGS_FILE,
    CrawlOptions,
    SettingsFile,
    as_toml,
    from_environment,
    hidden,
    permitting,
    resolved,
)
from outrider.crawl.setup.request_signer import signer_of
from outrider.crawl.setup.seeds import BadSeeds, loopback_of, placed, read_hosts, read_seeds, require_contact
from outrider.crawl.setup.version import version
from outrider.errors import InvalidUrlError, NamedPathError, SettingsError
from outrider.frontier.policy.budgets import PARKING, budgets_over
from outrider.limits import REPORT_BYTES_MAX
from outrider.url import host_of


def start(
    seeds: tuple[str, ...],
    flags: Mapping[str, object],
    *,
    environment: Mapping[str, str] | None = None,
    stdin: BinaryIO | None = None,
    talk: TextIO,
    resume: bool = False,
    summary: bool = True,
    beside: SideServer | None = None,
) -> CrawlResult:
    """Runs a crawl once. Reports every wrong argument before it makes a connection. beside: a server that answers
    questions of other processes meanwhile."""
    ready = prepared(seeds, flags, environment=environment, stdin=stdin, talk=talk, resume=resume)
    return finished(ready, ready.crawl_run(beside=beside), talk=talk, summary=summary)


def finished(ready: Prepared, run: CrawlRun, *, talk: TextIO, summary: bool) -> CrawlResult:
    """Runs a run that was made ready to its end, and writes its report. Raises what the run raises."""
    try:
        result = asyncio.run(run.run())
    finally:
        ready.progress.close()
    lines = conclude(ready.options, result, ready.sources)
    if summary and ready.options.progress != "none":
        for line in lines:
            say(line, talk)
    elif summary and result.exit_code in (UNREACHABLE, HOOKS):
        say(f"outrider: {result.ending}", talk)  # errors are shown even without progress
    return result


@dataclass(frozen=True, slots=True)
class Prepared:
    """A crawl whose arguments were checked, before its first connection."""

    options: CrawlOptions
    seeds: list[str]
    sources: tuple[str, ...]
    hosts: Mapping[str, tuple[str, ...]]
    progress: Progress
    again: Callable[[], list[str]]
    bad_seeds: BadSeeds | None
    """None where no seed was read."""

    def crawl_run(self, reader: PageReader | None = None, beside: SideServer | None = None) -> CrawlRun:
        """Returns its run."""
        return CrawlRun(
            self.options,
            self.seeds,
            self.sources,
            hosts=self.hosts,
            progress=self.progress,
            seeds_again=self.again,
            bad_seeds=self.bad_seeds,
            reader=reader,
            beside=beside,
        )


def prepared(
    seeds: tuple[str, ...],
    flags: Mapping[str, object],
    *,
    environment: Mapping[str, str] | None = None,
    stdin: BinaryIO | None = None,
    talk: TextIO,
    resume: bool = False,
) -> Prepared:
    """Reads seeds and settings, and checks them. Raises SettingsError, InvalidUrlError and StoreError."""
    given = from_environment(os.environ if environment is None else environment)
    try:
        sources = placed(seeds)
    except FileNotFoundError:
        raise _nowhere() from None
    faults = BadSeeds()
    canonical = read_seeds(sources, stdin, faults)
    output = _output(flags, given.get("output", ("", ""))[0], canonical)
    found = inspect(output, GIVE_A_CRAWL if resume else CHOOSE_ANOTHER)
    if not flags.get("anew"):
        refuse_worker_or_node(output)
    if resume and found is not DirectoryContent.CRAWL:
        refuse_output_alone(output)
        raise no_crawl(output, found)
    kept = kept_settings(output) if found is not DirectoryContent.NOTHING else SettingsFile({})
    if resume and not os.path.lexists(os.path.join(output, SETTINGS_FILE)):
        raise NamedPathError(
            f"{output} has no {SETTINGS_FILE}, so the settings it was made with are not known; bring the file back, or "
            f"say them again: `outrider crawl -o {shlex.quote(output)}` with every option it needs"
        )
    options = resolved(flags, given, kept.options, output)
    if options.anew:
        if resume:
            raise SettingsError(
                f"anew is given: `resume` continues; `outrider crawl -o {shlex.quote(output)} --anew` starts afresh"
            )
        if canonical:
            kept = SettingsFile(kept.options)  # the seeds of the crawl before are its own
    else:
        refuse_output_alone(output)
    if (options.anew or found is not DirectoryContent.CRAWL) and not canonical:
        if not kept.seeds:
            raise SettingsError("seeds are missing: name at least one URL, @file, or - for standard input")
        sources = kept.seeds
        canonical = read_seeds(sources, stdin, faults)
    if faults.count and options.strict_seeds:
        raise InvalidUrlError(faults.texts[0])
    for line in faults.lines():
        say(line, talk)
    hosts = read_hosts(options.hosts)
    permitted = loopback_of(canonical, hosts, options.allow_address)
    options = permitting(options, permitted)
    require_contact(canonical, options.contact, hosts)
    _check_parts(options)
    folder = move_old(output, wall()) if options.anew else None
    refuse_owned(output)
    if folder is not None and options.progress != "none":
        say(f"the old content of {output} is in {folder} now", talk)
    if options.progress != "none":
        begun = f"crawling from {counted(len(canonical), 'seed')}" if canonical else "going on"
        say(f"{begun} in {output}; Ctrl-C stops, `outrider resume {shlex.quote(output)}` continues", talk)
    sources = tuple(dict.fromkeys((*kept.seeds, *sources)))

    def again() -> list[str]:
        found = read_seeds(kept.seeds, None, BadSeeds())
        require_contact(found, options.contact, hosts)
        return found

    progress = progress_of(options.progress, talk, os.path.basename(output))
    return Prepared(options, canonical, sources, hosts, progress, again, faults if canonical else None)


def _check_parts(options: CrawlOptions) -> None:
    """Raises SettingsError for a hook or a key that cannot be loaded, and for a catalog whose extra is missing or whose
    file is one of the crawl."""
    signer_of(options)
    Hooks(options)
    for address in options.catalog:
        require_extra(address)
        check_place(address, options.output)


def _continued_by(options: CrawlOptions, result: CrawlResult, left_out: Collection[str]) -> str:
    """Returns the command that continues a crawl with work left; if a limit of pages stopped it, with twice the
    limit."""
    if result.exit_code not in (LIMIT, STOPPED):
        return ""
    command = f"outrider resume {shlex.quote(options.output)}"
    over = budgets_over(options, result.statistics["answered"])
    if any(budget in PARKING for budget, _ in over) and (result.exit_code != LIMIT or BUDGET not in left_out):
        over = []
    return command + "".join(f" {budget.flag} {2 * limit}" for budget, limit in over)


def _output(flags: Mapping[str, object], from_environment: object, seeds: list[str]) -> str:
    """Returns the directory of the crawl: the given one, or one named after the first seed's host."""
    wanted = flags.get("output") or from_environment
    if wanted:
        if not isinstance(wanted, str) or "\0" in wanted:
            raise SettingsError(f"output is {wanted!r}: it is not a path")
        return _absolute(wanted)
    if not seeds:
        raise SettingsError("seeds are missing: name at least one URL, @file, or - for standard input")
    return _absolute(folder_name(host_of(seeds[0])))


def _absolute(path: str) -> str:
    try:
        return os.path.abspath(os.path.expanduser(path))
    except FileNotFoundError:
        raise _nowhere() from None


def _nowhere() -> NamedPathError:
    return NamedPathError("the directory you are in was removed; change to one that is there, or give whole paths")


def _title(options: CrawlOptions, sources: tuple[str, ...]) -> str:
    """Returns the title of a crawl: its name, or the hosts of its seeds, or its directory."""
    if options.name is not None:
        return str(options.name)
    hosts = list(dict.fromkeys(host_of(seed) for seed in sources if "://" in seed and seed[:1] != "@"))
    if not hosts:
        files = [os.path.basename(seed[1:]) for seed in sources if seed[:1] == "@"]
        return f"seeds of {files[0]}" if files else os.path.basename(options.output)
    more = f" and {counted(len(hosts) - 1, 'more host')}" if len(hosts) > 1 else ""
    return f"{hosts[0]}{more}"


def _shown(options: CrawlOptions, sources: tuple[str, ...]) -> str:
    """Returns the settings as in outrider.toml, without remarks, values of header fields and folders of this
    machine."""
    lines = as_toml(hidden(options), map(_without_folder, sources)).splitlines()
    shown, is_path = [], False
    for line in lines:
        name, _, value = line.partition(" = ")
        if value and name in SETTINGS:  # the next lines may belong to the same list
            is_path = SETTINGS[name].path
        if line and line[0] != "#":
            shown.append(_ROOTED.sub(r'"\1"', line) if is_path else line)
    return "\n".join(shown)


_ROOTED = re.compile(r'"/(?:[^"\\]|\\.)*?((?:[^"\\/]|\\.)*)"')
"""A path from the root in a setting; its last name is kept."""


def _without_folder(source: str) -> str:
    """Returns a file of seeds without its folders; any other seed unchanged."""
    return f"@{os.path.basename(source[1:])}" if source[:1] == "@" else source


def conclude(options: CrawlOptions, result: CrawlResult, sources: tuple[str, ...] = ()) -> list[str]:
    """Writes report.html from the line files and returns the summary's lines, also if the report cannot be written."""
    files = {stream: os.path.join(options.output, name) for stream, name in FILES.items()}
    urls = result.statistics["urls"]
    left: int | None = urls["queued"] + urls["leased"] + urls["waiting"]
    if not left and result.exit_code == LIMIT:
        left = None  # the URLs left are parked, beyond a limit or by robots rules: 0 would be wrong
    counts, folder = result.statistics.get("left_out", {}), os.path.basename(os.path.abspath(options.output))
    left_out = rows_of(counts, options.output)
    read = (files[PAGES], files[POLITENESS])
    large = sum(os.path.getsize(path) for path in read if os.path.exists(path)) > REPORT_BYTES_MAX
    data = collect(
        () if large else _records(files[PAGES]),
        () if large else _records(files[POLITENESS]),
        settings=_shown(options, sources),
        seeds=map(_without_folder, sources),
        output=folder,
        left=left,
        ending=result.ending.replace(os.path.abspath(options.output), folder),
        hooks=result.hook_failures,
        parked=urls.get("parked", 0),
        gone=urls.get("gone", 0),
        left_out=rows_of(counts, folder),
        title=_title(options, sources),
        version=version(),
        seconds=last_run(options.output).seconds or None,
        errors=errors_of(result.statistics),
        payments=(result.statistics.get("payments") or {}).get("hosts", {}),
    )
    more = disk_lines(disk_of(result.statistics), options.output) + payment_lines(result.statistics, options.output)
    if large:
        return _short_summary(result, left, left_out) + more
    totals = replace(
        data.totals,
        output=options.output,
        ending=result.ending,
        left_out=tuple(left_out),
        continued_by=_continued_by(options, result, {row.reason for row in left_out}),
    )
    lines = [*summary_lines(totals, data.politeness), *network_lines(result.statistics["network"]), *more]
    report = os.path.join(options.output, REPORT_FILE)
    try:
        descriptor = os.open(report, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(render(data))
    except OSError as error:
        return [*lines, f"report      {report} could not be written ({error.strerror})"]
    return [*lines, f"report      {report}"]


def _short_summary(result: CrawlResult, left: int | None, left_out: Sequence[Omission]) -> list[str]:
    """Returns the summary of a crawl whose line files are too large to be read again."""
    urls = result.statistics["urls"]
    gone = urls.get("gone", 0)
    return [
        f"pages       {result.statistics['answered']:,}",
        f"errors      {errors_text(errors_of(result.statistics), {'gone': gone} if gone else {})}",
        *([] if left is None else [f"left        {counted(left, 'URL')} not visited"]),
        *([f"parked      {counted(urls['parked'], 'URL')} set aside, not counted as left"] if urls["parked"] else []),
        *omission_lines(left_out),
        f"ended       {result.ending}",
    ]


def _records(path: str) -> Iterator[dict[str, object]]:
    decoder = msgspec.json.Decoder(dict[str, object])
    try:
        with open(path, "rb") as file:
            for line in file:
                yield decoder.decode(line)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return  # the lines before the fault are enough for a report
