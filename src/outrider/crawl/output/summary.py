"""The summary at the end of a crawl: plain text from its counts, safe for any terminal (pure: values in, lines out)."""

from __future__ import annotations

import shlex
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from outrider.causes import error_words, span_words
from outrider.clock import rfc3339
from outrider.fetch.request_signing import SIGNATURE_COUNTS
from outrider.journey import HostStatus, Waits

SUMMARY_HOSTS_MAX = 5  # the hosts with the smallest margin; politeness.jsonl has all of them
SUMMARY_STATUSES_MAX = 12  # a crawl has a handful of statuses; the report has all of them
SUMMARY_ERRORS_MAX = 8  # classes are a closed set of some dozens; the rest is summed
GAP_TOLERANCE_SECONDS = 0.000_001  # both figures are rounded to microseconds in the file


@dataclass(frozen=True, slots=True)
class HookFailure:
    """The failures of one hook in a run."""

    hook: str
    """The name of the hook, as `on_page`."""
    error: str
    """The error class of its pages in pages.jsonl, as for `outrider retry --error`."""
    pages: int
    """The number of pages that ended in this way. Without a page: of requests for a robots.txt or sitemap."""
    of_pages: int
    """The number of pages of the run that hooks could have seen."""
    exception: str
    """The commonest exception, in one line."""
    url: str
    """The first page on which it failed."""
    kinds: int
    """The number of kinds of exceptions: each class, at each line that raises it."""


class OmissionRow(Protocol):
    """A reason for an omission: its word, the number in words, and the command that lists it."""

    @property
    def reason(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def command(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Totals:
    """The counts of a whole crawl, all its runs together. `seconds` spans the first to the last answer."""

    attempts: int = 0
    pages: int = 0  # answered: any status, redirects too
    hosts: int = 0
    requests: int = 0  # pages and robots.txt, as politeness.jsonl has them
    bytes: int = 0  # decoded
    duplicates: int = 0
    seconds: float = 0.0
    outcomes: Mapping[str, int] = field(default_factory=dict)
    errors: Mapping[str, int] = field(default_factory=dict)
    output: str = ""
    left: int | None = None  # URLs still queued or waiting; None when they were not counted
    parked: int = 0  # parked URLs do not count as left
    statuses: Mapping[str, int] = field(default_factory=dict)  # HTTP statuses of the answered attempts
    broken: Mapping[str, int] = field(default_factory=dict)  # URLs that returned no page, by status
    left_out: tuple[OmissionRow, ...] = ()  # by reason, each with the command that lists it
    continued_by: str = ""  # the command that continues the crawl, if work is left
    ending: str = ""  # one clause: why the crawl ended
    hooks: tuple[HookFailure, ...] = ()  # in the last run, the most pages first


HINTS = {
    "blocked_address": "addresses that are not public need --allow-address CIDR or --hosts FILE; other machines need "
    "--contact",
    "dns_unknown": "this host name does not exist; check its spelling",
    "robots_unreachable": "no page of a site is fetched while its robots.txt cannot be read; "
    "`outrider host DIR HOST recheck`, then `outrider resume DIR` tries again at once",
    "tls": "the certificate could not be verified; --ca FILE adds your own certificate authority",
}
"""Ways out of some classes of errors."""


@dataclass(frozen=True, slots=True)
class HostGaps:
    """The treatment of one host: its smallest gap, and the gap required before that same request (seconds)."""

    host: str
    requests: int
    gap_seconds_min: float | None = None  # None: the host got one request
    gap_seconds_required: float | None = None
    room_seconds_min: float | None = None  # the smallest gap - required over all requests; below 0 is a violation
    breaches: int = 0


def visible(text: str) -> str:
    """Returns `text` with every control, format, surrogate and separator character escaped (`\\x1b`, `\\u202e`)."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_spelled(character) for character in text)


def _spelled(character: str) -> str:
    if unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}:
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def bytes_text(count: int) -> str:
    """Returns a count of bytes as text: `912 B`, `3.4 MB` (decimal units)."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1_000:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1_000
    return f"{size:.1f} TB"


def seconds_text(seconds: float) -> str:
    """Returns a length of time as text: `0.204 s`, `12.3 s`, `4 min 05 s`, `2 h 07 min`."""
    if seconds < 10:
        return f"{seconds:.3f} s"
    if seconds < 120:
        return f"{seconds:.1f} s"
    return span_words(seconds)


def counted(count: int, one: str, many: str | None = None) -> str:
    """Returns a number with its noun: `1 page`, `2,345 pages`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def ranked(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Returns names with their counts, the largest first, equals by name."""
    return sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))


def tightest_first(politeness: Iterable[HostGaps]) -> list[HostGaps]:
    """Returns hosts that got more than one request, the smallest margin above the required gap first."""
    known = [host for host in politeness if host.room_seconds_min is not None]
    return sorted(known, key=lambda host: (host.room_seconds_min or 0.0, host.host))


def breach(gap: float, required: float) -> bool:
    """Whether a gap was shorter than the gap required before that request (seconds)."""
    return gap + GAP_TOLERANCE_SECONDS < required


def summary_lines(totals: Totals, politeness: Iterable[HostGaps]) -> list[str]:
    """Returns the closing summary, one string per line. Only host names can make a line long.

    Names from the web pass `visible`, so the text cannot move a cursor.
    """
    rate = totals.pages / totals.seconds if totals.seconds > 0 else 0.0
    pace = f"  ({rate:,.1f} pages/s)" if rate else ""
    whole = f"{counted(totals.pages, 'page')} from {counted(totals.hosts, 'host')} in {seconds_text(totals.seconds)}"
    lines = [
        f"pages       {whole}{pace}",
        f"bytes       {bytes_text(totals.bytes)}",
        f"duplicates  {totals.duplicates:,}",
    ]
    if totals.statuses:
        told = " · ".join(
            f"{visible(name)} {count:,}" for name, count in ranked(totals.statuses)[:SUMMARY_STATUSES_MAX]
        )
        lines.append(f"http        {told}")
    if totals.outcomes:
        listed = ", ".join(f"{visible(name)} {count:,}" for name, count in ranked(totals.outcomes))
        lines.append(f"outcomes    {listed}")
    errors = ranked(totals.errors)
    lines.append(f"errors      {errors_text(totals.errors, totals.broken)}")
    closed = any(row.reason == "robots_unreachable" for row in totals.left_out)
    hints = [name for name, _ in errors if name in HINTS and (closed or name != "robots_unreachable")]
    lines.extend(f"hint        {name}: {HINTS[name]}" for name in hints)
    for failure in totals.hooks:
        if failure_text(failure) in totals.ending:
            continue
        lines.append(f"hooks       {visible(failure_text(failure))}")
        lines.append(f"            {visible(way_out(failure, totals.output))}")
    lines.extend(_politeness_lines(list(politeness)))
    if totals.left is not None:
        lines.append(f"left        {counted(totals.left, 'URL')} not fetched")
    if totals.parked:
        lines.append(f"parked      {counted(totals.parked, 'URL')} (not counted as left)")
    lines.extend(omission_lines(totals.left_out))
    if totals.ending:
        lines.append(f"ended       {visible(totals.ending)}")
    if totals.continued_by:
        lines.append(f"continue    {visible(totals.continued_by)}")
    if totals.output:
        lines.append(f"output      {visible(totals.output)}")
    return lines


def error_text(name: str, count: int) -> str:
    """Returns a class of errors with its number and its words: `connect_refused 4 (connection refused)`."""
    words = error_words(name)
    return f"{visible(name)} {count:,}" + (f" ({words})" if words else "")


def errors_text(errors: Mapping[str, int], broken: Mapping[str, int]) -> str:
    """Returns failed attempts by class, each with its words, and the URLs that returned no page, by status."""
    told = [error_text(name, count) for name, count in ranked(errors)[:SUMMARY_ERRORS_MAX]]
    if rest := sum(count for _, count in ranked(errors)[SUMMARY_ERRORS_MAX:]):
        told.append(f"other {rest:,}")
    if broken:
        statuses = ", ".join(f"{name} {count:,}" for name, count in ranked(broken)[:SUMMARY_STATUSES_MAX])
        told.append(f"{counted(sum(broken.values()), 'broken link')} ({statuses})")
    return ", ".join(told) or "none"


def omission_lines(rows: Sequence[OmissionRow]) -> list[str]:
    """Returns a line for each reason for an omission."""
    return [f"{'' if number else 'left out':<12}{row.text}: {row.command}" for number, row in enumerate(rows)]


def failure_text(failure: HookFailure) -> str:
    """Returns a sentence such as `on_page failed on 3 of 4 pages: ZeroDivisionError: …`."""
    of = (
        f"{failure.pages:,} of {counted(failure.of_pages, 'page')}"
        if failure.of_pages
        else counted(failure.pages, "request")
    )
    more = (
        f", and {counted(failure.kinds - 1, 'other kind of exception', 'other kinds of exceptions')}"
        if failure.kinds > 1
        else ""
    )
    return f"{failure.hook} failed on {of}: {failure.exception}{more}"


def way_out(failure: HookFailure, place: str) -> str:
    """Returns the commands that fetch the pages of a failed hook again. place: the crawl's directory, or an address."""
    where = shlex.quote(place)
    resume = "" if "://" in place else f" and `outrider resume {where}`"
    return f"fix the function, then run `outrider retry {where} --error {failure.error}`{resume} to fetch them again"


def network_lines(network: Mapping[str, float]) -> list[str]:
    """Returns the shares of DNS look-ups with a wait, and of requests over kept connections, in a run; and its
    signatures, if requests were signed or asked to be."""
    names, requests = network["names"], network["requests"]
    parts = []
    if names:
        took = f", {seconds_text(network['names_seconds'])} in total" if network["names_waited"] else ""
        parts.append(f"waited for {_share(network['names_waited'], names, 'DNS look-up')}{took}")
    parts.append(f"{_share(network['kept'], requests, 'request')} reused a connection")
    return [f"network     {'; '.join(parts)}", *_signature_lines(network)]


def _signature_lines(network: Mapping[str, float]) -> list[str]:
    """Returns the line of the signatures of a run, with the faults and what to do about them."""
    counts = {name: round(network.get(f"signatures_{name}", 0)) for name in SIGNATURE_COUNTS}
    if not any(counts.values()):
        return []
    parts = [
        f"{counted(counts['made'] + counts['reused'], 'request')} signed with {counted(counts['made'], 'signature')}"
    ]
    if counts["asked"]:
        vain = f", {counts['not_signable']:,} for one that we do not make" if counts["not_signable"] else ""
        parts.append(f"{counted(counts['asked'], 'answer')} asked for a signature{vain}")
    if counts["refused"]:
        parts.append(f"{counted(counts['refused'], 'signature')} called WRONG by sites (crawl.log names them)")
    for way in ("ahead", "late"):
        if seconds := counts[f"clock_{way}_seconds"]:
            parts.append(f"the clock of this machine is {seconds:,} s {way.upper()}: set it")
    return [f"signatures  {'; '.join(parts)}"]


def disk_lines(disk: Mapping[str, bool], output: str = "DIR") -> list[str]:
    """Returns a line if the disk has too little room. disk: of `status --json`."""
    way_out = f"make room on the file system of {visible(output)}"
    if disk["full"]:
        return [f"disk        full: new URLs and pages wait; {way_out}"]
    if disk["merges_wait"]:
        return [
            f"disk        too little room to merge files of the store: nothing is lost, look-ups are slower; {way_out}"
        ]
    return []


def payment_lines(statistics: Mapping[str, Any], output: str = "DIR") -> list[str]:
    """Returns the lines about sites that ask for payment, or say that they charged something."""
    counts = statistics.get("payments") or {}
    lines = []
    if counts.get("charged"):
        told = f"{counted(counts['charged'], 'answer')} with crawler-charged, although this crawler never pays"
        lines.append(f"CHARGED     {told}: ask the sites below")
    if counts.get("hosts"):
        hosts = "; ".join(f"{visible(name)} {visible(words)}" for name, words in counts["hosts"].items())
        lines.append(f"payment     {counted(counts['answers'], 'answer')} with 402: {hosts}")
        again = f"`outrider retry {shlex.quote(output)} --error payment`"
        lines.append(f"            `outrider hosts {shlex.quote(output)}` lists all; {again} tries their pages again")
    return lines


def _share(part: float, whole: float, noun: str) -> str:
    """Returns a part in words: `98.5 % of 2,110 requests`."""
    percent = f"{part / whole if whole else 0.0:.1%}".replace("%", " %")
    return f"{percent} of {counted(round(whole), noun)}"


def finished_before(statistics: Mapping[str, Any], output: str) -> str:
    """Returns one clause for a command on a finished crawl, with the commands that fetch more."""
    place = shlex.quote(output)
    gone = statistics["urls"]["gone"]
    ways = [f"`outrider crawl -o {place} --anew` starts it again", f"`outrider add {place} URL` adds a URL"]
    if gone:
        ways.append(f"`outrider retry {place}` queues {counted(gone, 'failed URL')} again")
    pages = counted(int(statistics["answered"]), "page")
    return f"this crawl is finished ({pages}), nothing is left to fetch; {', '.join(ways)}"


_NO_GONE: Mapping[str, int] = {}


def nothing_done(
    statistics: Mapping[str, Any],
    output: str = "DIR",
    gone: Mapping[str, int] = _NO_GONE,
    silent: Collection[str] = (),
) -> str:
    """Returns one clause on why a crawl ends without a page: its seeds failed, or robots.txt closes them. gone: pages
    of the last run without content, by the class of their status. silent: hosts whose robots.txt cannot be read."""
    urls = statistics["urls"]
    errors = {**statistics["errors"], **gone}
    reasons = [error_text(name, count) for name, count in ranked(errors)[:SUMMARY_ERRORS_MAX]]
    if not reasons:
        reasons = [f"{counted(urls[name], 'URL')} {name}" for name in ("gone", "parked") if urls[name]]
    told = f"no page could be fetched ({', '.join(reasons) or 'nothing was left to fetch'})"
    if urls["gone"]:
        place = shlex.quote(output)
        told += f"; when you have fixed the cause, run `outrider retry {place}` and `outrider resume {place}`"
    if silent:
        place, host = shlex.quote(output), visible(next(iter(silent))) if len(silent) == 1 else "HOST"
        again = f"`outrider host {place} {host} recheck` and `outrider resume {place}`"
        told += f"; when you have fixed the cause, run {again}"
    return told


def left_alone(max_wait: float, waits: Waits, ready_seconds: float) -> str:
    """Returns one clause on why a crawl ends before hosts with too long a wait: which hosts, and until when."""
    more = f"more than --max-wait ({max_wait:g} s)"
    if not waits.soonest:
        return f"the URLs left are due in {seconds_text(ready_seconds)}, {more}"
    named = [f"{visible(one.name)} until {rfc3339(one.until)[:19]}Z" for one in waits.soonest[:SUMMARY_HOSTS_MAX]]
    others = waits.hosts - len(named)
    listed = ", ".join(named) + (f" and {counted(others, 'other')}" if others else "")
    return f"the URLs left must wait {more}: {listed}"


def held_back(hosts: Sequence[HostStatus], output: str = "DIR") -> str:
    """Returns one clause on why a crawl ends although URLs are left and will not be ready: the hosts of these URLs.
    hosts: some that are blocked."""
    reasons = {
        visible(one.name): f"is paused; `outrider host {shlex.quote(output)} {visible(one.name)} resume` resumes it"
        if one.paused and not one.not_welcome
        else f"is parked ({visible(one.not_welcome)})"
        if one.not_welcome
        else "is blocked"
        for one in hosts
        if one.queued
    }
    named = [f"{name} {reason}" for name, reason in list(reasons.items())[:SUMMARY_HOSTS_MAX]]
    others = len(reasons) - len(named)
    more = [f"{counted(others, 'more host')}"] if others else []
    return ": ".join(["the URLs left cannot be fetched now", *([", ".join([*named, *more])] if named else [])])


def _politeness_lines(politeness: list[HostGaps]) -> list[str]:
    tight = tightest_first(politeness)
    if not tight:
        return ["politeness  no host got more than one request"]
    breaches = sum(host.breaches for host in tight)
    verdict = "no delay violated" if not breaches else counted(breaches, "delay VIOLATED", "delays VIOLATED")
    lines = [f"politeness  {verdict} on {counted(len(tight), 'host')}; smallest margins:"]
    width = min(48, max(len(visible(host.host)) for host in tight[:SUMMARY_HOSTS_MAX]))
    for host in tight[:SUMMARY_HOSTS_MAX]:
        gap, required = host.gap_seconds_min or 0.0, host.gap_seconds_required or 0.0
        least = host.room_seconds_min or 0.0
        lines.append(
            f"            {visible(host.host):<{width}}  shortest gap {gap:.3f} s (required {required:.3f} s), "
            f"margin {least:+.3f} s in {counted(host.requests, 'request')}"
        )
    if len(tight) > SUMMARY_HOSTS_MAX:
        lines.append(f"            and {counted(len(tight) - SUMMARY_HOSTS_MAX, 'more host')} with a larger margin")
    return lines
