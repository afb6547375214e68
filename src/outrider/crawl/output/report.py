"""The report of a crawl as one HTML page: no script, nothing loaded from elsewhere (pure: records in, text out).

`collect` reads the lines of pages.jsonl and politeness.jsonl once, in bounded memory; `render` draws them.
"""

from __future__ import annotations

import html
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from outrider import chart
from outrider.causes import error_words, status_words
from outrider.chart import Drawing, Scale
from outrider.crawl.output.summary import (
    HookFailure,
    HostGaps,
    OmissionRow,
    Totals,
    breach,
    bytes_text,
    counted,
    failure_text,
    ranked,
    seconds_text,
    tightest_first,
    visible,
    way_out,
)
from outrider.journey import Word, is_own_fault
from outrider.uses import USE_REFUSED

HOSTS_TRACKED_MAX = 50_000  # each keeps a row of counts; hosts beyond are summed into one row
HOSTS_SHOWN_MAX = 200  # a page that a reader can scroll through; the rest is a number
TIMELINE_HOSTS_MAX = 60  # rows of a screen or two
SAME_SECONDS = 5e-6  # instants that differ by less are one: they were rounded
TIMELINE_REQUESTS_MAX = 400  # per row; more would be a solid bar
TIMELINE_HOSTS_TRACKED_MAX = 1_000  # candidates for the rows: 24 bytes a request kept
TIMELINE_SECONDS_MAX = 120.0  # beyond two minutes a gap of a second is thinner than a pixel
BUCKETS_MAX = 240  # bars of pages over time; twice as wide bars when there would be more
NAMES_MAX = 200  # distinct outcomes, error classes, statuses; they are closed sets, a foreign file may not be
TEXT_HEADS = frozenset({"why", "example", "listed by"})
OTHER_HOSTS = "(other hosts)"
BROKEN_TRACKED_MAX = 10_000  # broken links, each with its page: a megabyte or two
BROKEN_SHOWN_MAX = 20  # unfolded: enough to see what is wrong, and short enough to scroll past
BROKEN_FOLDED_MAX = 500  # rows in the folds: with the longest URLs some MB; pages.jsonl has all of them
PATTERN_NAMES_MAX = 8  # names of a path that a group of broken links shows
WORD_SHOWN_MAX = 24  # letters of an outcome or a class of errors; a foreign file may have longer ones
URL_SHOWN_MAX = 160  # letters of a URL in a table; its link has all of them
GAPS_SHOWN_MAX = 20  # hosts with the smallest margin; politeness.jsonl has all of them
MOMENT_SECONDS = 0.5  # the shortest axis of time
PAUSE_SECONDS_MIN = 1.0  # the shortest pause of a crawl that was stopped and resumed
CLOSED_SHOWN_MAX = 100  # hosts with pages that robots.txt closes
SLOWEST_SHOWN_MAX = 10
SEEDS_SHOWN_MAX = 50


@dataclass(frozen=True, slots=True)
class HostRow:
    """One host's line in the table. Counts, decoded bytes, and gaps."""

    host: str
    pages: int
    bytes: int
    errors: int
    gaps: HostGaps


@dataclass(frozen=True, slots=True)
class Broken:
    """A URL that returned no page: the first page that links to it, the reason, and the number of attempts."""

    url: str
    referrer: str
    reason: str
    attempts: int


@dataclass(frozen=True, slots=True)
class Closed:
    """Pages of one host that robots.txt closes: their number, an example, and the reason."""

    host: str
    pages: int
    example: str
    reason: str


@dataclass(frozen=True, slots=True)
class Slow:
    """The duration of the requests to one host, in seconds."""

    host: str
    requests: int
    seconds_mean: float
    seconds_max: float


@dataclass(frozen=True, slots=True)
class TimelineVisit:
    """One request on the timeline, in seconds since the crawl's first; `rested_until`: the earliest time of the
    next."""

    started: float
    ended: float
    rested_until: float | None
    robots: bool = False
    early: bool = False  # it started before the required gap was over


@dataclass(frozen=True, slots=True)
class Timeline:
    """The drawn requests to one host, in order; `left_out` counts the other requests."""

    host: str
    visits: tuple[TimelineVisit, ...]
    left_out: int


_NO_PAYMENTS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class ReportData:
    """All data of the report, made by `collect`."""

    totals: Totals
    hosts: tuple[HostRow, ...] = ()  # most pages first, at most HOSTS_TRACKED_MAX and one row for the rest
    statuses: Mapping[str, int] = field(default_factory=dict)
    bucket_seconds: float = 1.0
    buckets: tuple[int, ...] = ()  # answered pages per bucket from `started_at`
    buckets_begin_seconds: float = 0.0  # from the first request to the first bucket
    elapsed_seconds: float = 0.0  # from the first request to the end, pauses between runs included
    started_at: float | None = None  # seconds since 1970
    timelines: tuple[Timeline, ...] = ()
    settings: str = ""  # as TOML
    seeds: tuple[str, ...] = ()
    broken: tuple[Broken, ...] = ()  # the most tried first
    broken_left_out: int = 0
    closed: tuple[Closed, ...] = ()  # most pages first
    slowest: tuple[Slow, ...] = ()  # the slowest first
    payments: Mapping[str, str] = field(default_factory=dict)  # by host: what it asks for a page, in words
    title: str = "Crawl"
    version: str = ""

    @property
    def broken_urls(self) -> int:
        """The number of URLs without a page. If only their statuses are known: of URLs with a status."""
        return max(len(self.broken) + self.broken_left_out, sum(self.totals.broken.values()))

    @property
    def politeness(self) -> tuple[HostGaps, ...]:
        """The requests and gaps of each host."""
        return tuple(row.gaps for row in self.hosts if row.gaps.requests)


class _HostTally:
    """Counts of one host while the files are read."""

    __slots__ = (
        *("breaches", "bytes", "closed", "closed_url", "closed_why", "errors", "gap", "pages", "requests", "required"),
        *("room", "seconds", "seconds_max"),
    )

    def __init__(self) -> None:
        self.pages = 0
        self.bytes = 0
        self.errors = 0
        self.requests = 0
        self.gap: float | None = None
        self.required: float | None = None
        self.room: float | None = None
        self.breaches = 0
        self.closed = 0
        self.closed_url = self.closed_why = ""
        self.seconds = self.seconds_max = 0.0

    def took(self, seconds: float) -> None:
        """Adds the duration of one request."""
        self.seconds += seconds
        self.seconds_max = max(self.seconds_max, seconds)

    def asked(self, gap: float | None, required: float | None) -> None:
        self.requests += 1
        if gap is None or required is None:
            return
        if self.gap is None or gap < self.gap:
            self.gap, self.required = gap, required
        room = gap - required
        self.room = room if self.room is None else min(self.room, room)
        self.breaches += breach(gap, required)

    def gaps(self, host: str) -> HostGaps:
        return HostGaps(host, self.requests, self.gap, self.required, self.room, self.breaches)


class _Pulse:
    """Answers per bucket of time; when a bucket beyond the last is needed, buckets are joined in pairs."""

    def __init__(self) -> None:
        self.width = 0.25
        self.origin: float | None = None
        self.first = self.last = 0.0
        self.counts: list[int] = []

    def add(self, at: float) -> None:
        if self.origin is None:
            self.origin = self.first = self.last = at
        self.first, self.last = min(self.first, at), max(self.last, at)
        place = max(0.0, at - self.origin)  # an answer before that of the first line is counted with it
        while place // self.width >= BUCKETS_MAX:
            self.counts = [sum(self.counts[row : row + 2]) for row in range(0, len(self.counts), 2)]
            self.width *= 2
        row = int(place // self.width)
        if row >= len(self.counts):
            self.counts.extend([0] * (row + 1 - len(self.counts)))
        self.counts[row] += 1


class _Track:
    """The first requests to one host, in columns: start, end, the required rest after it (seconds, below 0 if not
    known), robots.txt, too early."""

    __slots__ = ("early", "ended", "left_out", "rests", "robots", "started")

    def __init__(self) -> None:
        self.started = array("d")
        self.ended = array("d")
        self.rests = array("d")
        self.robots = bytearray()
        self.early = bytearray()
        self.left_out = 0

    def add(
        self, started: float, ended: float, gap: float | None, required: float | None, *, robots: bool, early: bool
    ) -> None:
        """Adds the next request. Its gap begins at the end of the request before, or of an earlier one if the host
        accepts several at once."""
        if len(self.started) >= TIMELINE_REQUESTS_MAX:
            self.left_out += 1
            return
        if gap is not None and required is not None:
            end = started - gap
            rows = reversed(range(len(self.ended)))
            row = next((row for row in rows if abs(self.ended[row] - end) < SAME_SECONDS), None)
            if row is not None:
                self.rests[row] = max(required, self.rests[row])
        self.started.append(started)
        self.ended.append(ended)
        self.rests.append(-1.0)
        self.robots.append(robots)
        self.early.append(early)

    def timeline(self, host: str, origin: float) -> Timeline:
        visits: list[TimelineVisit] = []
        left_out = self.left_out
        for row, started in enumerate(self.started):
            if started - origin > TIMELINE_SECONDS_MAX:
                left_out += 1
                continue
            ended, rest = self.ended[row], self.rests[row]
            rested = ended - origin + rest if rest >= 0 else None
            visits.append(
                TimelineVisit(started - origin, ended - origin, rested, bool(self.robots[row]), bool(self.early[row]))
            )
        return Timeline(host, tuple(visits), left_out)


def collect(
    pages: Iterable[Mapping[str, object]],
    politeness: Iterable[Mapping[str, object]] = (),
    *,
    settings: str = "",
    seeds: Iterable[str] = (),
    output: str = "",
    left: int | None = None,
    ending: str = "",
    title: str = "Crawl",
    version: str = "",
    seconds: float | None = None,
    errors: Mapping[str, int] | None = None,
    hooks: Sequence[HookFailure] = (),
    parked: int = 0,
    left_out: Sequence[OmissionRow] = (),
    gone: int = 0,
    payments: Mapping[str, str] = _NO_PAYMENTS,
) -> ReportData:
    """Counts the records of a crawl, each iterable once and in the order of its file.

    Memory is bounded by the constants of this module, for a crawl of any size. A field that is absent or of another
    type than the format counts as absent, so old and foreign files still make a report. seconds: the duration of all
    runs of the crawl; None: from the first answer to the last. errors: failed attempts by class; None: those in
    the lines. hooks: the failures of hooks in the last run. parked: the number of parked URLs. left_out: omissions
    by reason. payments: hosts that ask for payment, with their words. gone: the number of URLs without a page, for a
    frontier whose pages workers fetched: it has no lines.
    """
    read = _PageCounts()
    for record in pages:
        read.add(record)
    hosts, pulse, links = read.hosts, read.pulse, read.links
    tracks, requests = _read_politeness(politeness, hosts, read.errors)
    rows = _rows(hosts)
    begun = [track.started[0] for track in tracks.values() if track.started]
    origin = min(begun, default=pulse.first)
    chosen = [row.host for row in rows if row.host in tracks][:TIMELINE_HOSTS_MAX]
    first = min(origin, pulse.first) if pulse.origin is not None else origin
    last = max((track.ended[-1] for track in tracks.values() if track.ended), default=pulse.last)
    counts = read.counts()
    totals = Totals(
        **counts,
        hosts=sum(1 for row in rows if row.pages and row.host != OTHER_HOSTS),
        requests=requests,
        seconds=seconds if seconds is not None else max(0.0, pulse.last - min(origin, pulse.first)),
        errors=read.errors if errors is None else errors,
        output=output,
        left=left,
        ending=ending,
        hooks=tuple(hooks),
        parked=parked,
        broken=links.statuses() if counts["attempts"] or not gone else {"gone": gone},
        left_out=tuple(left_out),
    )
    return ReportData(
        totals,
        rows,
        timelines=tuple(tracks[host].timeline(host, origin) for host in chosen),
        settings=settings,
        seeds=tuple(seeds),
        title=title,
        version=version,
        payments=payments,
        elapsed_seconds=max(totals.seconds, max(last, pulse.last) - first),
        buckets_begin_seconds=0.0 if pulse.origin is None else pulse.origin - first,
        **read.drawn(),
    )


class _PageCounts:
    """The records of pages.jsonl, counted one after another."""

    def __init__(self) -> None:
        self.hosts: dict[str, _HostTally] = {}
        self.errors: dict[str, int] = {}
        self.pulse = _Pulse()
        self.links = _BrokenLinks()
        self._outcomes: dict[str, int] = {}
        self._statuses: dict[str, int] = {}
        self._attempts = self._answered = self._bytes = 0

    def add(self, record: Mapping[str, object]) -> None:
        """Counts the next record."""
        self._attempts += 1
        outcome = _text(record.get("outcome")) or "unknown"
        _count(self._outcomes, outcome)
        url, error, status = _text(record.get("url")), _text(record.get("error")), record.get("status")
        host = _tally(self.hosts, _host_of(url))
        if error:
            _count(self.errors, error)
            host.errors += 1
        if isinstance(status, int) and status:
            self._answered += 1
            host.pages += 1
            _count(self._statuses, str(status))
            at = _instant(record.get("fetched_at"))
            if at is not None:
                self.pulse.add(at)
        if outcome == Word.ROBOTS:
            host.closed += 1
            host.closed_url = host.closed_url or url
            host.closed_why = error or "closed by its robots.txt"
        elif outcome in (Word.GONE, Word.ERROR) and error != USE_REFUSED and not is_own_fault(error):
            self.links.add(record, error or (status_words(status) if isinstance(status, int) else "no answer"))
        elif outcome != Word.RETRY:
            self.links.drop(url)
        length = record.get("bytes")
        if isinstance(length, int):
            self._bytes += length
            host.bytes += length

    def counts(self) -> dict[str, Any]:
        """Returns the fields of `Totals` that depend on the lines of pages alone."""
        return {
            "attempts": self._attempts,
            "pages": self._answered,
            "bytes": self._bytes,
            "duplicates": self._outcomes.get(Word.DUPLICATE, 0),
            "outcomes": self._outcomes,
            "statuses": self._statuses,
        }

    def drawn(self) -> dict[str, Any]:
        """Returns the fields of `ReportData` that depend on the lines of pages."""
        return {
            "statuses": self._statuses,
            "bucket_seconds": self.pulse.width,
            "buckets": tuple(self.pulse.counts),
            "started_at": self.pulse.origin,
            "broken": self.links.found(),
            "broken_left_out": self.links.left_out,
            "closed": _closed(self.hosts),
            "slowest": _slowest(self.hosts),
        }


def _rows(hosts: Mapping[str, _HostTally]) -> tuple[HostRow, ...]:
    """Returns a row for each host, the host with most pages first, and the sum of the rest at the end."""
    rows = (HostRow(name, tally.pages, tally.bytes, tally.errors, tally.gaps(name)) for name, tally in hosts.items())
    order = sorted(rows, key=lambda row: (row.host == OTHER_HOSTS, -row.pages, -row.gaps.requests, row.host))
    return tuple(order)


class _BrokenLinks:
    """URLs that returned no page. The first `BROKEN_TRACKED_MAX` are kept."""

    def __init__(self) -> None:
        self._kept: dict[str, Broken] = {}
        self.left_out = 0

    def add(self, record: Mapping[str, object], reason: str) -> None:
        url = _text(record.get("url"))
        known = self._kept.get(url)
        if known is None and len(self._kept) >= BROKEN_TRACKED_MAX:
            self.left_out += 1
            return
        attempt = record.get("attempt")
        attempts = attempt if isinstance(attempt, int) else 1
        self._kept[url] = Broken(url, _text(record.get("referrer")), reason, attempts)

    def drop(self, url: str) -> None:
        """Removes a URL whose later attempt returned a page."""
        self._kept.pop(url, None)

    def statuses(self) -> dict[str, int]:
        """Counts the URLs without a page by status in words. A URL without an answer has a class of errors instead."""
        found = Counter(one.reason for one in self._kept.values() if one.reason[:1].isdigit())
        if self.left_out:
            found["other"] += self.left_out
        return dict(found)

    def found(self) -> tuple[Broken, ...]:
        return tuple(sorted(self._kept.values(), key=lambda one: (-one.attempts, one.url)))


def _closed(hosts: Mapping[str, _HostTally]) -> tuple[Closed, ...]:
    closed = [
        Closed(name, tally.closed, tally.closed_url, tally.closed_why) for name, tally in hosts.items() if tally.closed
    ]
    return tuple(sorted(closed, key=lambda one: (-one.pages, one.host)))


def _slowest(hosts: Mapping[str, _HostTally]) -> tuple[Slow, ...]:
    slow = [
        Slow(name, tally.requests, tally.seconds / tally.requests, tally.seconds_max)
        for name, tally in hosts.items()
        if tally.requests and name != OTHER_HOSTS
    ]
    return tuple(sorted(slow, key=lambda one: (-one.seconds_mean, one.host))[:SLOWEST_SHOWN_MAX])


def _read_politeness(
    politeness: Iterable[Mapping[str, object]], hosts: dict[str, _HostTally], classes: dict[str, int]
) -> tuple[dict[str, _Track], int]:
    tracks: dict[str, _Track] = {}
    requests = 0
    for record in politeness:
        requests += 1
        name = _text(record.get("host"))
        gap, required = _number(record.get("gap")), _number(record.get("gap_required"))
        tally = _tally(hosts, name)
        tally.asked(gap, required)
        tally.took(_number(record.get("seconds")) or 0.0)
        if record.get("kind") == "robots" and (error := _text(record.get("error"))):
            tally.errors += 1  # a failed page has its own line in pages.jsonl
            _count(classes, error)
        started, ended = _instant(record.get("started_at")), _instant(record.get("ended_at"))
        if started is None or ended is None:
            continue
        track = tracks.get(name)
        if track is None:
            if len(tracks) >= TIMELINE_HOSTS_TRACKED_MAX:
                continue
            track = tracks[name] = _Track()
        early = gap is not None and required is not None and breach(gap, required)
        track.add(started, ended, gap, required, robots=record.get("kind") == "robots", early=early)
    return tracks, requests


def _tally(hosts: dict[str, _HostTally], name: str) -> _HostTally:
    tally = hosts.get(name)
    if tally is None:
        if len(hosts) >= HOSTS_TRACKED_MAX:
            return hosts.setdefault(OTHER_HOSTS, _HostTally())
        tally = hosts[name] = _HostTally()
    return tally


def _count(counts: dict[str, int], name: str) -> None:
    if name not in counts and len(counts) >= NAMES_MAX:
        name = "other"
    counts[name] = counts.get(name, 0) + 1


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _instant(value: object) -> float | None:
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(value).timestamp()
    except (ValueError, OverflowError):
        return None


def _host_of(url: str) -> str:
    end = url.find("/", 8)  # after the scheme, its slashes and the host
    return _host_of_origin(url if end < 0 else url[: end + 1])


@lru_cache(maxsize=1_024)
def _host_of_origin(origin: str) -> str:
    try:
        return urlsplit(origin).hostname or ""
    except ValueError:
        return ""


# ── drawing ──────────────────────────────────────────────────────────────────────────────────────────────────────────

STYLE = (
    chart.colours(":root")
    + """*{box-sizing:border-box}
body{margin:0 auto;max-width:66rem;padding:1.5rem 1rem 4rem;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
h1{font-size:1.6rem;line-height:1.2;margin:0 0 .25rem;overflow-wrap:anywhere}
h2{font-size:1.3rem;margin:3rem 0 .5rem;border-top:1px solid var(--line);padding-top:1rem}
h3{font-size:1rem;margin:1.75rem 0 .4rem}
p{margin:.25rem 0 .75rem;max-width:46rem;overflow-wrap:anywhere}
a{color:var(--mark)}
a:focus-visible,summary:focus-visible{outline:3px solid var(--mark);outline-offset:2px;border-radius:2px}
nav ol{display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;list-style:none;margin:.75rem 0;padding:0}
nav a{display:inline-block;padding:.25rem 0}
.lead{font-size:1.1rem}
.soft,small,figcaption{color:var(--soft)}
.bad{color:var(--bad);font-weight:600}
dl.figures{display:grid;grid-template-columns:repeat(auto-fill,minmax(9rem,1fr));gap:.6rem;margin:1rem 0}
dl.figures div{background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:.6rem .75rem}
dl.figures dt{color:var(--soft);font-size:.8rem}
dl.figures dd{margin:0;font-size:1.35rem;font-variant-numeric:tabular-nums;line-height:1.3}
dl.figures dd small{display:block;font-size:.75rem;line-height:1.3}
table{border-collapse:collapse;width:100%;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{padding:.3rem .6rem;border-bottom:1px solid var(--line);text-align:right;vertical-align:top}
td{white-space:nowrap}
th{color:var(--soft);font-weight:500}
th:first-child,td:first-child{text-align:left;padding-left:0}
th:last-child,td:last-child{padding-right:0}
th.text,td.text,tr.group th{text-align:left}
td.name,td.text,tr.group th{white-space:normal;overflow-wrap:anywhere}
tr.group th{color:var(--ink);padding-top:.9rem}
td.text small{display:block}
td.bar{width:40%}
td.bar i{display:block;height:.7rem;margin-top:.35rem;background:var(--mark);border-radius:2px;min-width:2px}
pre{margin:0;font:.85rem/1.5 ui-monospace,Menlo,Consolas,monospace;white-space:pre-wrap;overflow-wrap:anywhere}
ul{margin:.25rem 0;padding-left:1.2rem;overflow-wrap:anywhere}
details{margin:.5rem 0}
summary{cursor:pointer;padding:.4rem 0;overflow-wrap:anywhere}
figure{margin:.75rem 0;background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:.75rem}
figcaption{font-size:.85rem;margin-top:.4rem;overflow-wrap:anywhere}
svg{display:block;width:100%;height:auto}
svg text{font:11px system-ui,sans-serif;fill:var(--soft)}
.small{display:none}
@media (max-width:40rem){.large{display:none}.small{display:block}th,td{padding:.3rem .25rem}table{font-size:.8rem}
td.bar{width:20%}figure{padding:.5rem}}
.key i{display:inline-block;width:.9em;height:.7em;border-radius:2px;margin:0 .3em 0 1em}
.key i:first-child{margin-left:0}
.key .mark{background:var(--mark)}.key .rest{background:var(--rest)}.key .robots{background:var(--robots)}
.key .early{background:var(--bad)}
"""
    + chart.MARKS
)

WIDTHS = {"large": 960.0, "small": 400.0}
"""Each drawing is made for a screen and for a telephone, in its own units; the style shows one of the two."""

SECTIONS = {
    "overview": "Overview",
    "hosts": "Hosts",
    "statuses": "Statuses and errors",
    "politeness": "Politeness",
    "broken": "Broken links",
    "settings": "Settings",
}
"""The sections, in the order of the page and its table of contents."""

OUTCOMES = {
    Word.DONE: "the page was fetched",
    Word.TRUNCATED: "the page was fetched up to the size limit",
    Word.DUPLICATE: "the content is the same as at another URL",
    Word.UNCHANGED: "the content is the same as at the last visit",
    Word.REDIRECT: "the URL redirects to another one",
    Word.GONE: "the server has no page at this URL",
    Word.ERROR: "the last attempt failed",
    Word.ASKS_PAYMENT: "the site asks for payment (402)",
    Word.RETRY: "the attempt failed and another one followed",
    Word.ROBOTS: "robots.txt closes the page",
}


def render(data: ReportData) -> str:
    """Returns the report: a complete HTML document, at most some MB, in which everything from the web is escaped."""
    title = _safe(data.title)
    bodies = {
        "overview": [
            _figures(data),
            _pages_over_time(data),
            _hooks_section(data),
            _payments_table(data),
            _left_out_table(data),
        ],
        "hosts": [_hosts_table(data), _slowest_table(data)],
        "statuses": [
            _counts_table("Outcomes", "One outcome for each attempt.", data.totals.outcomes, _outcome_words),
            _counts_table("Statuses", "HTTP statuses of the answered attempts.", data.statuses, _status_name),
            _errors_table(data),
        ],
        "politeness": [_gaps_table(data), _closed_table(data), _politeness_timeline(data)],
        "broken": [_broken_section(data)],
        "settings": [_settings(data)],
    }
    shown = {name: "\n".join(part for part in parts if part) for name, parts in bodies.items()}
    links = "".join(f'<li><a href="#{name}">{SECTIONS[name]}</a></li>' for name, body in shown.items() if body)
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="referrer" content="no-referrer">',
        f"<title>{title}</title><style>{STYLE}</style></head><body>",
        f"<header><h1>{title}</h1>{_subtitle(data)}{_lead(data)}</header>",
        f'<nav aria-label="Contents"><ol>{links}</ol></nav><main>',
        *(
            f'<section id="{name}"><h2>{SECTIONS[name]}</h2>\n{body}\n</section>'
            for name, body in shown.items()
            if body
        ),
        "</main></body></html>\n",
    ]
    return "\n".join(part for part in parts if part)


def _safe(value: object) -> str:
    return html.escape(visible(str(value)), quote=True)


def _link(url: str) -> str:
    """Returns a URL as a link to its page; as text if a click could lead to another place than the text says."""
    text = _safe(_shortened(url, URL_SHOWN_MAX))
    try:
        parts = urlsplit(url)
    except ValueError:
        return text
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or url != visible(url):
        return text
    return f'<a href="{_safe(url)}" rel="noreferrer">{text}</a>'


def _subtitle(data: ReportData) -> str:
    pieces = []
    if data.started_at is not None:
        begun = datetime.fromtimestamp(data.started_at, UTC)
        pieces.append(f"begun {begun:%Y-%m-%d %H:%M:%S} UTC")
    if data.totals.ending:
        pieces.append(_safe(data.totals.ending))
    if data.version:
        pieces.append(f"Outrider {_safe(data.version)}")
    if data.totals.output:
        pieces.append(f"folder {_safe(data.totals.output)}")
    return f'<p class="soft">{" · ".join(pieces)}</p>' if pieces else ""


def _lead(data: ReportData) -> str:
    """Returns the crawl in a few sentences."""
    totals = data.totals
    rate = f" ({_rate(totals):,.1f} pages a second)" if totals.seconds else ""
    sentences = [
        f"Fetched {counted(totals.pages, 'page')} from {counted(totals.hosts, 'host')}.",
        f"It took {seconds_text(data.elapsed_seconds)}{rate}.",
    ]
    errors, broken = sum(totals.errors.values()), data.broken_urls
    sentences.append(f"{counted(errors, 'attempt')} failed." if errors else "No attempt failed.")
    sentences.append(f"{counted(broken, 'link is', 'links are')} broken." if broken else "No link is broken.")
    breaches = sum(host.breaches for host in data.politeness)
    if breaches:
        early = counted(breaches, "request")
        sentences.append(f'<span class="bad">{early} started before the required pause was over.</span>')
    elif tightest_first(data.politeness):
        sentences.append("Every required pause between two requests to a host was kept.")
    return f'<p class="lead">{" ".join(sentences)}</p>'


def _rate(totals: Totals) -> float:
    return totals.pages / totals.seconds if totals.seconds else 0.0


def _figures(data: ReportData) -> str:
    totals = data.totals
    tight = tightest_first(data.politeness)
    breaches = sum(host.breaches for host in tight)
    if tight:
        least = tight[0].room_seconds_min or 0.0
        kept = "kept" if not breaches else f'<span class="bad">{counted(breaches, "breach", "breaches")}</span>'
        gap = (kept, f"smallest margin above a required pause: {least:+.3f}\u00a0s")
    else:
        gap = ("–", "no host got more than one request")
    errors = sum(totals.errors.values())
    pace = f"{_rate(totals):,.1f} pages a second"
    if data.elapsed_seconds > totals.seconds + PAUSE_SECONDS_MIN:
        pace = f"{pace} while it ran, for {seconds_text(totals.seconds)}"
    cards = [
        ("Pages", f"{totals.pages:,}", f"{counted(totals.attempts, 'attempt')}"),
        ("Time", seconds_text(data.elapsed_seconds), pace),
        ("Errors", f"{errors:,}", f"failed attempts, of {counted(len(totals.errors), 'class', 'classes')}"),
        ("Broken links", f"{data.broken_urls:,}", "URLs that returned no page"),
        ("Politeness", *gap),
        ("Hosts", f"{totals.hosts:,}", f"{counted(totals.requests, 'request')}, with robots.txt"),
        ("Bytes", bytes_text(totals.bytes), "decoded"),
        ("Duplicates", f"{totals.duplicates:,}", "same content, another URL"),
    ]
    if totals.left is not None:
        cards.append(("Left", f"{totals.left:,}", "URLs not visited"))
    if totals.parked:
        cards.append(("Parked", f"{totals.parked:,}", "not counted as left"))
    body = "".join(f"<div><dt>{name}</dt><dd>{value}<small>{note}</small></dd></div>" for name, value, note in cards)
    return f'<dl class="figures">{body}</dl>'


def _drawn(draw: Callable[[float], Drawing], caption: str) -> str:
    """Returns a figure with its drawing in each of the widths."""
    pictures = "".join(f'<div class="{name}">{draw(width)}</div>' for name, width in WIDTHS.items())
    return f"<figure>{pictures}<figcaption>{caption}</figcaption></figure>"


def _pages_over_time(data: ReportData) -> str:
    heading = "<h3>Pages over time</h3>"
    if not data.buckets:
        return f'{heading}<p class="soft">No page was answered.</p>'
    rates = [count / data.bucket_seconds for count in data.buckets]
    peak = max(rates)
    begin, span = data.buckets_begin_seconds, max(data.elapsed_seconds, MOMENT_SECONDS)

    def draw(width: float) -> Drawing:
        height, left, bottom = 180.0, 46.0, 22.0
        across, up = Scale(0, span, left, width), Scale(0, peak, height, 12)
        picture = Drawing(width, height + bottom, "Pages a second over time", alone=False)
        picture.rows(up, [(tick, f"{tick:,.4g}") for tick in list(chart.round_ticks(peak))[::2]], left, width)
        for row, rate in enumerate(rates):
            x, end = across(begin + row * data.bucket_seconds), across(begin + (row + 1) * data.bucket_seconds)
            if rate and x < width:
                picture.box(x, up(rate), max(min(end, width) - x - 0.6, 0.6), height - up(rate))
        picture.times(across, height, end=seconds_text(data.elapsed_seconds))
        return picture

    caption = (
        f"Answered pages a second, in steps of {seconds_text(data.bucket_seconds)}. The most was {peak:,.1f}. "
        f"The axis begins at the first request and is {seconds_text(data.elapsed_seconds)} long."
    )
    return f"{heading}{_drawn(draw, caption)}"


def _hosts_table(data: ReportData) -> str:
    rows = [
        (
            *(_safe(row.host or "(none)"), f"{row.pages:,}", bytes_text(row.bytes), f"{row.errors:,}"),
            f"{row.gaps.requests:,}",
        )
        for row in data.hosts[:HOSTS_SHOWN_MAX]
    ]
    more = len(data.hosts) - HOSTS_SHOWN_MAX
    rest = f"and {counted(more, 'more host')}" if more > 0 else ""
    heads = ("host", "pages", "bytes", "errors", "requests")
    return _table("", "The hosts with the most pages are first. Requests include robots.txt.", heads, rows, rest)


def _gaps_table(data: ReportData) -> str:
    tight = tightest_first(data.politeness)
    if not tight:
        return '<p class="soft">Each host got one request only, so no pause was required.</p>'
    rows = []
    for gaps in tight[:GAPS_SHOWN_MAX]:
        margin = f"{gaps.room_seconds_min or 0.0:+.3f}"
        rows.append(
            (
                *(_safe(gaps.host), f"{gaps.requests:,}", f"{gaps.gap_seconds_min or 0.0:.3f}"),
                f"{gaps.gap_seconds_required or 0.0:.3f}",
                f'<span class="bad">{margin}</span>' if gaps.breaches else margin,
            )
        )
    more = len(tight) - GAPS_SHOWN_MAX
    rest = f"and {counted(more, 'more host')} with a larger margin" if more > 0 else ""
    note = (
        "For each host: the shortest pause between two requests, the pause required at that moment, and the smallest "
        "margin over all requests, in seconds. A pause begins when a request ends. The hosts with the smallest "
        "margin are first."
    )
    return _table("", note, ("host", "requests", "shortest", "required", "margin"), rows, rest)


def _outcome_words(name: str) -> str:
    return next((words for outcome, words in OUTCOMES.items() if outcome == name), "")


def _status_name(name: str) -> str:
    return status_words(int(name)).partition(" ")[2] if name.isdecimal() else ""


def _errors_table(data: ReportData) -> str:
    note = "Failed attempts, robots.txt included."
    return _counts_table("Errors by class", note, data.totals.errors, error_words) or (
        "" if data.totals.broken else '<h3>Errors by class</h3><p class="soft">None.</p>'
    )


def _counts_table(heading: str, note: str, counts: Mapping[str, int], words: Callable[[str], str]) -> str:
    """Draws counts by name with their bars; `words` returns the meaning of a name."""
    if not counts:
        return ""
    most = max(counts.values())
    rows = "".join(
        f'<tr><td class="word">{_safe(_shortened(name, WORD_SHOWN_MAX))}</td>'
        f'<td class="text">{_safe(words(name))}</td><td>{count:,}</td>'
        f'<td class="bar"><i style="width:{count / most * 100:.1f}%"></i></td></tr>'
        for name, count in ranked(counts)
    )
    return f'<h3>{heading}</h3><p class="soft">{note}</p><table><tbody>{rows}</tbody></table>'


def _politeness_timeline(data: ReportData) -> str:
    heading = "<h3>Politeness timeline</h3>"
    if not data.timelines:
        return f'{heading}<p class="soft">No request was recorded.</p>'
    span = max((visit.ended for line in data.timelines for visit in line.visits), default=0.0)
    span = min(max(span, MOMENT_SECONDS, data.elapsed_seconds), TIMELINE_SECONDS_MAX)
    tall = 16.0

    def draw(width: float) -> Drawing:
        left, letters = (210.0, 34) if width > WIDTHS["small"] else (120.0, 18)
        height = tall * len(data.timelines) + 6
        across = Scale(0, span, left, width)
        picture = Drawing(width, height + 22, "Requests of each host over time", alone=False)
        for row, line in enumerate(data.timelines):
            y = 4 + row * tall
            picture.text(0, y + 10, _shortened(line.host, letters), kind="name")
            _visits(picture, line.visits, across, y)
        picture.times(across, height, end=seconds_text(span))
        return picture

    left_out = sum(line.left_out for line in data.timelines)
    more = sum(1 for row in data.hosts if row.gaps.requests) - len(data.timelines)
    notes = [f"The axis begins at the first request and is {seconds_text(span)} long."]
    if left_out:
        notes.append(f"{counted(left_out, 'later request')} of these hosts not drawn.")
    if more > 0:
        notes.append(f"{counted(more, 'more host')} not drawn.")
    key = (
        '<p class="soft key"><i class="mark"></i>request<i class="robots"></i>request for robots.txt'
        '<i class="rest"></i>required pause<i class="early"></i>request that was too early</p>'
    )
    return f"{heading}{key}{_drawn(draw, ' '.join(notes))}"


def _visits(picture: Drawing, visits: Sequence[TimelineVisit], across: Scale, y: float) -> None:
    """Draws one host's row: the pauses first, then the requests above them, one path for each colour."""
    span = across.last
    boxes: dict[str, list[tuple[float, float, float, float]]] = {"rest": [], "mark": [], "robots": [], "early": []}
    for visit in visits:
        if visit.started > span:
            break
        x, end = across(visit.started), across(min(visit.ended, span))
        kind = "early" if visit.early else "robots" if visit.robots else "mark"
        boxes[kind].append((x, y + 1, max(end - x, 1.0), 10))
        allowed = visit.rested_until
        if allowed is not None and allowed > visit.ended:
            begin = across(visit.ended)
            boxes["rest"].append((begin, y + 3, max(across(min(allowed, span)) - begin, 0.0), 6))
    for kind, row in boxes.items():
        picture.boxes(kind, row)


def _shortened(text: str, length: int) -> str:
    shown = visible(text)
    return shown if len(shown) <= length else shown[: length // 2] + "…" + shown[-(length // 2 - 1) :]


def _settings(data: ReportData) -> str:
    parts = []
    if data.seeds:
        rows = "".join(f"<li>{_link(seed)}</li>" for seed in data.seeds[:SEEDS_SHOWN_MAX])
        more = len(data.seeds) - SEEDS_SHOWN_MAX
        rest = f'<p class="soft">and {counted(more, "more")}</p>' if more > 0 else ""
        parts.append(f"<h3>Seeds</h3><ul>{rows}</ul>{rest}")
    if data.settings:
        text = "\n".join(_safe(line) for line in data.settings.splitlines())
        parts.append(f"<details><summary>All settings of this crawl</summary><pre>{text}</pre></details>")
    return "\n".join(parts)


def _table(heading: str, note: str, heads: Sequence[str], rows: Sequence[Sequence[str]], rest: str = "") -> str:
    """Draws a table of cells that are safe already; nothing without rows. The first column is a name, the columns in
    `TEXT_HEADS` contain text, and the rest numbers."""
    if not rows:
        return ""
    kinds = [' class="name"', *(' class="text"' if name in TEXT_HEADS else "" for name in heads[1:])]
    head = "".join(f"<th{kind}>{name}</th>" for kind, name in zip(kinds, heads, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{kind}>{cell}</td>" for kind, cell in zip(kinds, row, strict=True)) + "</tr>"
        for row in rows
    )
    above = f"<h3>{heading}</h3>" if heading else ""
    more = f'<p class="soft">{rest}</p>' if rest else ""
    return f'{above}<p class="soft">{note}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}'


def _hooks_section(data: ReportData) -> str:
    """Draws the failures of hooks in the last run; nothing without failures."""
    rows = "".join(
        f"<li>{_safe(failure_text(one))}. {_safe(way_out(one, data.totals.output))}. First for {_link(one.url)}.</li>"
        for one in data.totals.hooks
    )
    return f'<h3>Failed hooks</h3><ul class="bad">{rows}</ul>' if rows else ""


def _payments_table(data: ReportData) -> str:
    rows = [(_safe(host), _safe(words)) for host, words in data.payments.items()]
    return _table("Payment", "Sites that ask for payment. This crawler never pays.", ("host", "says"), rows)


def _left_out_table(data: ReportData) -> str:
    rows = [(_safe(row.text), _safe(row.command)) for row in data.totals.left_out]
    note = "Omitted URLs and links, with the command that lists them. Run it in the folder above that of the crawl."
    return _table("Left out", note, ("left out", "listed by"), rows)


def _pattern(url: str) -> str:
    """Returns host and path of a URL, without its last name and names with digits, which differ in pages of one
    kind."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    *folders, last = parts.path.split("/", PATTERN_NAMES_MAX)
    name, dot, kind = last.rpartition(".")
    end = f"*.{kind}" if dot and name and kind.isalnum() else "*" if last else ""
    path = "/".join("*" if any(letter.isdigit() for letter in folder) else folder for folder in folders)
    return f"{parts.netloc}{path}/{end}"


def _broken_groups(broken: Sequence[Broken]) -> list[tuple[str, str, list[Broken]]]:
    """Returns links with one reason and one pattern together: the most frequent reason first, in it the largest
    group."""
    groups: dict[tuple[str, str], list[Broken]] = {}
    for one in broken:
        groups.setdefault((one.reason, _pattern(one.url)), []).append(one)
    reasons = Counter(one.reason for one in broken)
    order = sorted(groups, key=lambda group: (-reasons[group[0]], group[0], -len(groups[group]), group[1]))
    return [(*group, groups[group]) for group in order]


def _first_shown(groups: Sequence[tuple[str, str, list[Broken]]]) -> dict[tuple[str, str], int]:
    """Returns how many links of each group are shown unfolded: one of each group in turn, so that small groups are
    seen."""
    shown: Counter[tuple[str, str]] = Counter()
    for turn in range(BROKEN_SHOWN_MAX):
        for reason, pattern, links in groups:
            if len(links) > turn and shown.total() < BROKEN_SHOWN_MAX:
                shown[reason, pattern] += 1
    return shown


def _broken_section(data: ReportData) -> str:
    """Draws some broken links of each kind, and folds the rest by reason; nothing without broken links."""
    if not data.broken:
        return ""
    groups = _broken_groups(data.broken)
    shown, beside = _first_shown(groups), Counter(one.referrer for one in data.broken)
    reasons = Counter(one.reason for one in data.broken)
    named = ", ".join(f"{count:,} × {_safe(_reason(name))}" for name, count in ranked(reasons)[:NAMES_MAX])
    whole = counted(len(data.broken) + data.broken_left_out, "URL")
    parts = [
        f'<p class="soft">{whole} returned no page: {named}.</p>',
        '<p class="soft">A group has one reason and one kind of path. "Found on" is the first page with the link.</p>',
        _broken_table([(*group[:2], group[2], shown.get(group[:2], 0)) for group in groups], beside),
    ]
    room = BROKEN_FOLDED_MAX
    for reason in dict.fromkeys(reason for reason, _, _ in groups):
        folded = []
        for _, pattern, links in (group for group in groups if group[0] == reason):
            rest = links[shown.get((reason, pattern), 0) :][:room]
            room -= len(rest)
            folded.append((reason, pattern, rest, len(rest)))
        if count := sum(len(rest) for _, _, rest, _ in folded):
            title = f"{_safe(_reason(reason))}: {counted(count, 'more URL')}"
            parts.append(f"<details><summary>{title}</summary>{_broken_table(folded, beside)}</details>")
    unlisted = len(data.broken) - sum(shown.values()) - (BROKEN_FOLDED_MAX - room) + data.broken_left_out
    if unlisted:
        parts.append(f'<p class="soft">and {counted(unlisted, "more URL")}: outcome gone or error in pages.jsonl</p>')
    return "\n".join(parts)


def _reason(reason: str) -> str:
    """Returns a status with its name, or a class of errors with its words."""
    words = "" if reason[:1].isdigit() else error_words(reason)
    return f"{reason} ({words})" if words else reason


def _broken_table(groups: Sequence[tuple[str, str, list[Broken], int]], beside: Mapping[str, int]) -> str:
    """Draws the first links of each group below a row with its reason and pattern. beside: broken links per page."""
    rows = []
    for reason, pattern, links, count in groups:
        if not count:
            continue
        number = counted(len(links), "URL")
        title = f"{_safe(_reason(reason))} · {_safe(_shortened(pattern, URL_SHOWN_MAX))} <small>{number}</small>"
        rows.append(f'<tr class="group"><th colspan="3" scope="rowgroup">{title}</th></tr>')
        for one in links[:count]:
            others = beside[one.referrer]
            there = f"<small>{others:,} broken links there</small>" if one.referrer and others > 1 else ""
            found = (_link(one.referrer) if one.referrer else "a seed") + there
            rows.append(
                f'<tr><td class="name">{_link(one.url)}</td><td class="text">{found}</td><td>{one.attempts:,}</td></tr>'
            )
    head = '<th class="name">URL</th><th class="text">found on</th><th>attempts</th>'
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _closed_table(data: ReportData) -> str:
    rows = [
        (_safe(one.host), f"{one.pages:,}", _safe(one.reason), _link(one.example))
        for one in data.closed[:CLOSED_SHOWN_MAX]
    ]
    more = len(data.closed) - CLOSED_SHOWN_MAX
    rest = f"and {counted(more, 'more host')}" if more > 0 else ""
    note = "Pages that Outrider did not request, with one example for each host."
    return _table("Closed by robots.txt", note, ("host", "pages", "why", "example"), rows, rest)


def _slowest_table(data: ReportData) -> str:
    rows = [
        (_safe(one.host), f"{one.requests:,}", f"{one.seconds_mean:.3f} s", f"{one.seconds_max:.3f} s")
        for one in data.slowest
    ]
    note = "The hosts with the longest requests on average."
    return _table("Slowest hosts", note, ("host", "requests", "mean", "longest"), rows)
