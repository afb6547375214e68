"""The last words of a crawl: plain text from its counts, safe for any terminal (pure: values in, lines out)."""

from __future__ import annotations

import shlex
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from outrider.causes import error_words
from outrider.clock import rfc3339
from outrider.journey import HostStatus, Waits

SUMMARY_HOSTS_MAX = 5  # the hosts with the least room; politeness.jsonl has all of them
SUMMARY_STATUSES_MAX = 12  # a crawl meets a handful of statuses; the report has all of them
SUMMARY_ERRORS_MAX = 8  # classes are a closed set of some dozens; the rest is summed
GAP_TOLERANCE_SECONDS = 0.000_001  # both figures are rounded to microseconds on their way through the file


@dataclass(frozen=True, slots=True)
class HookFailure:
    """The failures of one hook in a run."""

    hook: str
    """The name of the hook, as `on_page`."""
    error: str
    """The error class of its pages in pages.jsonl, which `outrider retry --error` takes."""
    pages: int
    """How many pages ended so; with no page at all, how many requests for a robots.txt or sitemap did."""
    of_pages: int
    """How many pages of the run hooks could have seen."""
    exception: str
    """The commonest exception, in one line."""
    url: str
    """The page that it failed for first."""
    kinds: int
    """How many kinds of exceptions there were: each class, at each line that raises it."""


class OmissionRow(Protocol):
    """A reason why something was left out: its word, the number in words, and the command that lists it."""

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
    parked: int = 0  # URLs that are set aside; none of them counts as left
    statuses: Mapping[str, int] = field(default_factory=dict)  # HTTP statuses of the answered attempts
    broken: Mapping[str, int] = field(default_factory=dict)  # URLs that gave no page, by status
    left_out: tuple[OmissionRow, ...] = ()  # by reason, each with the command that lists it
    continued_by: str = ""  # the command that continues the crawl, where work is left
    ending: str = ""  # one clause: why the crawl ended
    hooks: tuple[HookFailure, ...] = ()  # in the last run, the most pages first


HINTS = {
    "blocked_address": "an address that is not public needs --allow-address CIDR or --hosts FILE, any other machine "
    "--contact",
    "dns_unknown": "no such host name; is it spelled right?",
    "robots_unreachable": "a site is left alone while its robots.txt does not answer; "
    "`outrider host DIR HOST recheck` and `outrider resume DIR` ask again at once",
    "tls": "a certificate could not be verified; --ca FILE trusts an authority of your own",
}
"""What a newcomer can do about some classes of errors."""


@dataclass(frozen=True, slots=True)
class HostGaps:
    """The treatment of one host: its smallest gap, and the gap required before that same request (seconds)."""

    host: str
    requests: int
    gap_seconds_min: float | None = None  # None: the host was asked once
    gap_seconds_required: float | None = None
    room_seconds_min: float | None = None  # the least of gap - required over all requests; below 0 is a breach
    breaches: int = 0


def visible(text: str) -> str:
    """`text` with every control, format, surrogate and separator character written out (`\\x1b`, `\\u202e`)."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_spelled(character) for character in text)


def _spelled(character: str) -> str:
    if unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}:
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def bytes_text(count: int) -> str:
    """A count of bytes for people: `912 B`, `3.4 MB` (decimal units)."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1_000:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1_000
    return f"{size:.1f} TB"


def seconds_text(seconds: float) -> str:
    """A length of time for people: `0.204 s`, `12.3 s`, `4 min 05 s`, `2 h 07 min`."""
    if seconds < 10:
        return f"{seconds:.3f} s"
    if seconds < 120:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 7_200:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3_600:,} h {whole % 3_600 // 60:02d} min"


def counted(count: int, one: str, many: str | None = None) -> str:
    """`1 page`, `2,345 pages`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def ranked(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Names with their counts, the largest first, equals by name."""
    return sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))


def tightest_first(politeness: Iterable[HostGaps]) -> list[HostGaps]:
    """Hosts that got more than one request, the hosts with the least room above the required gap first."""
    known = [host for host in politeness if host.room_seconds_min is not None]
    return sorted(known, key=lambda host: (host.room_seconds_min or 0.0, host.host))


def breach(gap: float, required: float) -> bool:
    """Whether a gap fell short of the one required before that request (seconds)."""
    return gap + GAP_TOLERANCE_SECONDS < required


def summary_lines(totals: Totals, politeness: Iterable[HostGaps]) -> list[str]:
    """The closing summary, one string per line, none longer than the site's own host names make it.

    Nothing in it can move a cursor: names from the web pass `visible`.
    """
    rate = totals.pages / totals.seconds if totals.seconds > 0 else 0.0
    pace = f"  ({rate:,.1f} a second)" if rate else ""
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
        lines.append(f"left        {counted(totals.left, 'URL')} not visited")
    if totals.parked:
        lines.append(f"parked      {counted(totals.parked, 'URL')} set aside, not counted as left")
    lines.extend(omission_lines(totals.left_out))
    if totals.ending:
        lines.append(f"ended       {visible(totals.ending)}")
    if totals.continued_by:
        lines.append(f"continue    {visible(totals.continued_by)}")
    if totals.output:
        lines.append(f"output      {visible(totals.output)}")
    return lines


def error_text(name: str, count: int) -> str:
    """A class of errors with its number and its words: `connect_refused 4 (connection refused)`."""
    words = error_words(name)
    return f"{visible(name)} {count:,}" + (f" ({words})" if words else "")


def errors_text(errors: Mapping[str, int], broken: Mapping[str, int]) -> str:
    """Failed attempts by class, each with its words, and the URLs that gave no page, by status."""
    told = [error_text(name, count) for name, count in ranked(errors)[:SUMMARY_ERRORS_MAX]]
    if rest := sum(count for _, count in ranked(errors)[SUMMARY_ERRORS_MAX:]):
        told.append(f"other {rest:,}")
    if broken:
        statuses = ", ".join(f"{name} {count:,}" for name, count in ranked(broken)[:SUMMARY_STATUSES_MAX])
        told.append(f"{counted(sum(broken.values()), 'broken link')} ({statuses})")
    return ", ".join(told) or "none"


def omission_lines(rows: Sequence[OmissionRow]) -> list[str]:
    """A line for each reason why something was left out."""
    return [f"{'' if number else 'left out':<12}{row.text}: {row.command}" for number, row in enumerate(rows)]


def failure_text(failure: HookFailure) -> str:
    """`on_page failed on 3 of 4 pages: ZeroDivisionError: …`."""
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
    """The commands that fetch the pages of a failed hook again. place: the crawl's directory, or a server's address."""
    where = shlex.quote(place)
    resume = "" if "://" in place else f" and `outrider resume {where}`"
    return f"correct the function, then `outrider retry {where} --error {failure.error}`{resume} to fetch them again"


def network_line(network: Mapping[str, float]) -> str:
    """The share of look-ups that were waited for, and of requests over kept connections, in a run."""
    names, requests = network["names"], network["requests"]
    parts = []
    if names:
        waited = _part(network["names_waited"], names, "look-up")
        took = f", {seconds_text(network['names_seconds'])} in all" if network["names_waited"] else ""
        parts.append(f"{waited} waited for{took}")
    parts.append(_part(network["kept"], requests, "request", "over a kept connection"))
    return f"network     {'; '.join(parts)}"


def _part(part: float, whole: float, noun: str, last: str = "") -> str:
    """A part of things in words, as `none of 1 look-up was` or `98.5 % of 2,110 requests were`."""
    share = "none" if not part else f"{part / whole:.1%}".replace("%", " %")
    return f"{share} of {counted(round(whole), noun)} {'was' if round(whole) == 1 else 'were'} {last}".rstrip()


def finished_before(statistics: Mapping[str, Any], output: str) -> str:
    """One clause for a command on a crawl of which nothing is left, with the commands that fetch more."""
    place = shlex.quote(output)
    gone = statistics["urls"]["gone"]
    ways = [f"`outrider crawl -o {place} --anew` begins again", f"`outrider add {place} URL` adds a URL"]
    if gone:
        ways.append(f"`outrider retry {place}` puts {counted(gone, 'failed URL')} back")
    pages = counted(int(statistics["answered"]), "page")
    return f"this crawl is finished ({pages}), and nothing is left to fetch: {', '.join(ways)}"


_NO_GONE: Mapping[str, int] = {}


def nothing_done(
    statistics: Mapping[str, Any],
    output: str = "DIR",
    gone: Mapping[str, int] = _NO_GONE,
    silent: Collection[str] = (),
) -> str:
    """One clause on why a crawl ends without one page: its seeds failed, or robots.txt closes them. gone: pages of the
    last run without content, by the class of their status. silent: some hosts whose robots.txt cannot be read."""
    urls = statistics["urls"]
    errors = {**statistics["errors"], **gone}
    reasons = [error_text(name, count) for name, count in ranked(errors)[:SUMMARY_ERRORS_MAX]]
    if not reasons:
        reasons = [f"{counted(urls[name], 'URL')} {name}" for name in ("gone", "parked") if urls[name]]
    told = f"no page could be fetched ({', '.join(reasons) or 'nothing was left to fetch'})"
    if urls["gone"]:
        place = shlex.quote(output)
        told += f"; when the cause is mended, `outrider retry {place}` and `outrider resume {place}` try again"
    if silent:
        place, host = shlex.quote(output), visible(next(iter(silent))) if len(silent) == 1 else "HOST"
        again = f"`outrider host {place} {host} recheck` and `outrider resume {place}`"
        told += f"; when the cause is mended, {again} try again"
    return told


def left_alone(max_wait: float, waits: Waits, ready_seconds: float) -> str:
    """One clause on why a crawl ends before hosts that it would have to wait for too long: which, and until when."""
    more = f"more than --max-wait ({max_wait:g} s)"
    if not waits.soonest:
        return f"what is left is due in {seconds_text(ready_seconds)}, {more}"
    named = [f"{visible(one.name)} until {rfc3339(one.until)[:19]}Z" for one in waits.soonest[:SUMMARY_HOSTS_MAX]]
    others = waits.hosts - len(named)
    listed = ", ".join(named) + (f" and {counted(others, 'other')}" if others else "")
    return f"what is left waits {more}: {listed}"


def held_back(hosts: Sequence[HostStatus], output: str = "DIR") -> str:
    """One clause on why a crawl ends although URLs are left and none of them will be ready: the hosts that keep them.
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
    return ": ".join(["nothing that is left can be fetched now", *([", ".join([*named, *more])] if named else [])])


def _politeness_lines(politeness: list[HostGaps]) -> list[str]:
    tight = tightest_first(politeness)
    if not tight:
        return ["politeness  no host was asked twice"]
    breaches = sum(host.breaches for host in tight)
    verdict = "every gap kept" if not breaches else counted(breaches, "gap BROKEN", "gaps BROKEN")
    lines = [f"politeness  {verdict} on {counted(len(tight), 'host')}; the least room:"]
    width = min(48, max(len(visible(host.host)) for host in tight[:SUMMARY_HOSTS_MAX]))
    for host in tight[:SUMMARY_HOSTS_MAX]:
        gap, required = host.gap_seconds_min or 0.0, host.gap_seconds_required or 0.0
        least = host.room_seconds_min or 0.0
        lines.append(
            f"            {visible(host.host):<{width}}  smallest gap {gap:.3f} s, required {required:.3f} s, "
            f"least room {least:+.3f} s in {counted(host.requests, 'request')}"
        )
    if len(tight) > SUMMARY_HOSTS_MAX:
        lines.append(f"            and {counted(len(tight) - SUMMARY_HOSTS_MAX, 'more host')} with more room")
    return lines
