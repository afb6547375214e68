"""The report of a crawl as one HTML page: no script, nothing loaded from elsewhere (pure: records in, text out).

`collect` reads the lines of pages.jsonl and politeness.jsonl once, in bounded memory; `render` draws what it found.
"""

from __future__ import annotations

import html
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from outrider import chart
from outrider.causes import status_words
from outrider.chart import Drawing, Scale
from outrider.crawl.summary import (
    HookFailure,
    HostGaps,
    Row,
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

HOSTS_TRACKED_MAX = 50_000  # each keeps a row of counts; hosts beyond are summed into one row
HOSTS_SHOWN_MAX = 200  # a page a person scrolls through; the rest is a number
TIMELINE_HOSTS_MAX = 60  # rows a screen or two holds
SAME_SECONDS = 5e-6  # instants that differ by less are one: they were rounded
TIMELINE_REQUESTS_MAX = 400  # per row; more would be a solid bar
TIMELINE_HOSTS_TRACKED_MAX = 1_000  # candidates for the rows: 24 bytes a request kept
TIMELINE_SECONDS_MAX = 120.0  # beyond two minutes a gap of a second is thinner than a pixel
BUCKETS_MAX = 240  # bars of pages over time; twice as wide bars when there would be more
NAMES_MAX = 200  # distinct outcomes, error classes, statuses; they are closed sets, a foreign file may not be
TEXT_HEADS = frozenset({"found on", "reason", "why", "as", "listed by"})
OTHER_HOSTS = "(other hosts)"
BROKEN_TRACKED_MAX = 10_000  # links that lead nowhere, each with its page: a megabyte or two
BROKEN_SHOWN_MAX = 200
CLOSED_SHOWN_MAX = 100  # hosts of which robots.txt closes pages
SLOWEST_SHOWN_MAX = 10
SEEDS_SHOWN_MAX = 50


@dataclass(frozen=True, slots=True)
class HostRow:
    """One host's line in the table. Counts, decoded bytes, and how closely it was visited."""

    host: str
    pages: int
    bytes: int
    errors: int
    gaps: HostGaps


@dataclass(frozen=True, slots=True)
class Broken:
    """A URL that gave no page: the first page that links to it, what was met, and how often it was tried."""

    url: str
    referrer: str
    reason: str
    attempts: int


@dataclass(frozen=True, slots=True)
class Closed:
    """Pages of one host that robots.txt closes: how many, one of them, and why."""

    host: str
    pages: int
    example: str
    reason: str


@dataclass(frozen=True, slots=True)
class Slow:
    """How long the requests to one host took, in seconds."""

    host: str
    requests: int
    seconds_mean: float
    seconds_max: float


@dataclass(frozen=True, slots=True)
class Visit:
    """One request on the timeline, in seconds since the crawl's first; `rested_until` is when the next was allowed."""

    started: float
    ended: float
    rested_until: float | None
    robots: bool = False
    early: bool = False  # it came before the required gap was over


@dataclass(frozen=True, slots=True)
class Timeline:
    """The requests to one host, in order, as many as are drawn; `left_out` counts the others."""

    host: str
    visits: tuple[Visit, ...]
    left_out: int


@dataclass(frozen=True, slots=True)
class ReportData:
    """Everything the report shows; made by `collect`."""

    totals: Totals
    hosts: tuple[HostRow, ...] = ()  # most pages first, at most HOSTS_TRACKED_MAX and one row for the others
    statuses: Mapping[str, int] = field(default_factory=dict)
    bucket_seconds: float = 1.0
    buckets: tuple[int, ...] = ()  # answered pages per bucket from `started_at`
    started_at: float | None = None  # seconds since 1970
    timelines: tuple[Timeline, ...] = ()
    settings: str = ""  # as TOML
    seeds: tuple[str, ...] = ()
    broken: tuple[Broken, ...] = ()  # the most tried first
    broken_left_out: int = 0
    closed: tuple[Closed, ...] = ()  # most pages first
    slowest: tuple[Slow, ...] = ()  # the slowest first
    title: str = "Crawl"
    version: str = ""

    @property
    def politeness(self) -> tuple[HostGaps, ...]:
        """How each host was treated."""
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
        """How long one request took."""
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
        place = max(0.0, at - self.origin)  # an answer before the first line's is counted with it
        while place // self.width >= BUCKETS_MAX:
            self.counts = [sum(self.counts[row : row + 2]) for row in range(0, len(self.counts), 2)]
            self.width *= 2
        row = int(place // self.width)
        if row >= len(self.counts):
            self.counts.extend([0] * (row + 1 - len(self.counts)))
        self.counts[row] += 1


class _Track:
    """The first requests to one host, in columns: start, end, the rest that was required behind it (seconds, below 0
    where none is told), robots.txt, too early."""

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
        """Takes the next request. Its gap leads to the end of the one before, or of an earlier one where the host takes
        several at once."""
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
        visits: list[Visit] = []
        left_out = self.left_out
        for row, started in enumerate(self.started):
            if started - origin > TIMELINE_SECONDS_MAX:
                left_out += 1
                continue
            ended, rest = self.ended[row], self.rests[row]
            rested = ended - origin + rest if rest >= 0 else None
            visits.append(
                Visit(started - origin, ended - origin, rested, bool(self.robots[row]), bool(self.early[row]))
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
    left_out: Sequence[Row] = (),
    continued_by: str = "",
    gone: int = 0,
) -> ReportData:
    """Counts the records of a crawl, each iterable once and in the order of its file.

    Memory is bounded by the constants of this module, whatever the crawl's size. A field that is absent or of another
    type than surface says counts as absent: old and foreign files still give a report. seconds: how long the runs of
    the crawl took together; None: from the first answer to the last. errors: failed attempts by class; None: those of
    the lines. hooks: the failures of hooks in the last run.
    parked: how many URLs are parked. left_out: what the crawl left out, by reason. continued_by: the command that
    continues it, where work is left. gone: the URLs that gave no page, for a frontier whose pages others fetched.
    """
    read = _Pages()
    for record in pages:
        read.add(record)
    hosts, pulse, links = read.hosts, read.pulse, read.links
    tracks, requests = _read_politeness(politeness, hosts, read.errors)
    rows = _rows(hosts)
    begun = [track.started[0] for track in tracks.values() if track.started]
    origin = min(begun, default=pulse.first)
    chosen = [row.host for row in rows if row.host in tracks][:TIMELINE_HOSTS_MAX]
    totals = Totals(
        **read.counts(),
        hosts=sum(1 for row in rows if row.pages and row.host != OTHER_HOSTS),
        requests=requests,
        seconds=seconds if seconds is not None else max(0.0, pulse.last - min(origin, pulse.first)),
        errors=read.errors if errors is None else errors,
        output=output,
        left=left,
        ending=ending,
        hooks=tuple(hooks),
        parked=parked,
        broken=links.statuses() or ({"gone": gone} if gone else {}),
        continued_by=continued_by,
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
        **read.drawn(),
    )


class _Pages:
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
        elif outcome in (Word.GONE, Word.ERROR) and not is_own_fault(error):
            self.links.add(record, error or (status_words(status) if isinstance(status, int) else "no answer"))
        elif outcome != Word.RETRY:
            self.links.drop(url)
        length = record.get("bytes")
        if isinstance(length, int):
            self._bytes += length
            host.bytes += length

    def counts(self) -> dict[str, Any]:
        """The fields of `Totals` that the lines of pages alone give."""
        return {
            "attempts": self._attempts,
            "pages": self._answered,
            "bytes": self._bytes,
            "duplicates": self._outcomes.get(Word.DUPLICATE, 0),
            "outcomes": self._outcomes,
            "statuses": self._statuses,
        }

    def drawn(self) -> dict[str, Any]:
        """The fields of `ReportData` that the lines of pages give."""
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
    """A row for each host, the one with most pages first, and the sum of all others at the end."""
    rows = (HostRow(name, tally.pages, tally.bytes, tally.errors, tally.gaps(name)) for name, tally in hosts.items())
    order = sorted(rows, key=lambda row: (row.host == OTHER_HOSTS, -row.pages, -row.gaps.requests, row.host))
    return tuple(order)


class _BrokenLinks:
    """URLs that gave no page, as they are met; the first `BROKEN_TRACKED_MAX` are kept."""

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
        """A later attempt gave a page."""
        self._kept.pop(url, None)

    def statuses(self) -> dict[str, int]:
        """How many URLs gave no page, by the status in words; those without an answer have a class of errors."""
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
    end = url.find("/", 8)  # behind the scheme, its slashes and the host
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
h2{font-size:1.1rem;margin:2.5rem 0 .5rem}
p{margin:.25rem 0 .75rem;max-width:46rem}
.soft,small,figcaption{color:var(--soft)}
.bad{color:var(--bad);font-weight:600}
dl.figures{display:grid;grid-template-columns:repeat(auto-fill,minmax(9rem,1fr));gap:.6rem;margin:1rem 0}
dl.figures div{background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:.6rem .75rem}
dl.figures dt{color:var(--soft);font-size:.8rem}
dl.figures dd{margin:0;font-size:1.35rem;font-variant-numeric:tabular-nums;line-height:1.3}
dl.figures dd small{display:block;font-size:.75rem;line-height:1.3}
.wide{overflow-x:auto;-webkit-overflow-scrolling:touch}
table{border-collapse:collapse;width:100%;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{padding:.3rem .6rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
th{color:var(--soft);font-weight:500}
th:first-child,td:first-child{text-align:left;padding-left:0}
td.name{overflow-wrap:anywhere;white-space:normal;min-width:11rem}
pre{margin:0;font:.85rem/1.5 ui-monospace,Menlo,Consolas,monospace}
ul{margin:.25rem 0;padding-left:1.2rem;overflow-wrap:anywhere}
th.text,td.text{text-align:left}
td.text{white-space:normal;overflow-wrap:anywhere;min-width:11rem}
td.bar{width:40%;min-width:6rem}
td.bar i{display:block;height:.7rem;background:var(--mark);border-radius:2px;min-width:2px}
td.value{text-align:left;white-space:normal;overflow-wrap:anywhere}
figure{margin:.75rem 0;background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:.75rem}
figcaption{font-size:.85rem;margin-top:.4rem}
svg{display:block;width:100%;height:auto;min-width:40rem}
svg text{font:11px system-ui,sans-serif;fill:var(--soft)}
.key i{display:inline-block;width:.9em;height:.7em;border-radius:2px;margin:0 .3em 0 1em}
.key i:first-child{margin-left:0}
.key .mark{background:var(--mark)}.key .rest{background:var(--rest)}.key .robots{background:var(--robots)}
.key .early{background:var(--bad)}
"""
    + chart.MARKS
)

WIDTH = 960.0  # the width of a drawing, in its own units


def render(data: ReportData) -> str:
    """The report: a complete HTML document, at most some MB, in which everything from the web is escaped."""
    title = _safe(data.title)
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="referrer" content="no-referrer">',
        f"<title>{title}</title><style>{STYLE}</style></head><body>",
        f"<header><h1>{title}</h1>{_subtitle(data)}</header>",
        _figures(data),
        _pages_over_time(data),
        _hooks_section(data),
        _left_out_table(data),
        _broken_table(data),
        _closed_table(data),
        _slowest_table(data),
        _hosts_table(data),
        _counts_table("Outcomes", "One for each finished attempt.", data.totals.outcomes),
        _counts_table("Answers", "Status codes of the answered attempts.", data.statuses),
        _counts_table("Errors by class", "", data.totals.errors, empty="" if data.totals.broken else "None."),
        _politeness_timeline(data),
        _settings(data),
        "</body></html>\n",
    ]
    return "\n".join(part for part in parts if part)


def _safe(value: object) -> str:
    return html.escape(visible(str(value)), quote=True)


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
        pieces.append(f"in {_safe(data.totals.output)}")
    return f'<p class="soft">{" · ".join(pieces)}</p>' if pieces else ""


def _figures(data: ReportData) -> str:
    totals = data.totals
    rate = totals.pages / totals.seconds if totals.seconds else 0.0
    tight = tightest_first(data.politeness)
    breaches = sum(host.breaches for host in tight)
    if tight:
        least = tight[0].room_seconds_min or 0.0
        kept = "kept" if not breaches else f'<span class="bad">{counted(breaches, "breach", "breaches")}</span>'
        gap = (kept, f"least room above the required gap: {least:+.3f}\u00a0s")
    else:
        gap = ("–", "no host was asked twice")
    errors = sum(totals.errors.values())
    cards = [
        ("Pages", f"{totals.pages:,}", f"{totals.attempts:,} attempts"),
        ("Hosts", f"{totals.hosts:,}", f"{counted(totals.requests, 'request')}, robots.txt counted"),
        ("Bytes", bytes_text(totals.bytes), "decoded"),
        ("Time", seconds_text(totals.seconds), f"{rate:,.1f} pages a second"),
        ("Duplicates", f"{totals.duplicates:,}", "same content, another URL"),
        ("Errors", f"{errors:,}", counted(len(totals.errors), "class", "classes")),
        ("Broken links", f"{sum(totals.broken.values()):,}", "URLs with a status and no page"),
        ("Politeness", *gap),
    ]
    if totals.left is not None:
        cards.append(("Left", f"{totals.left:,}", "URLs not visited"))
    if totals.parked:
        cards.append(("Parked", f"{totals.parked:,}", "URLs set aside, not counted as left"))
    body = "".join(f"<div><dt>{name}</dt><dd>{value}<small>{note}</small></dd></div>" for name, value, note in cards)
    return f'<dl class="figures">{body}</dl>'


def _pages_over_time(data: ReportData) -> str:
    heading = "<section><h2>Pages over time</h2>"
    if not data.buckets:
        return f'{heading}<p class="soft">No page was answered.</p></section>'
    height, left, bottom = 180.0, 46.0, 22.0
    rates = [count / data.bucket_seconds for count in data.buckets]
    peak = max(rates)
    span = len(rates) * data.bucket_seconds
    across, up = Scale(0, span, left, WIDTH), Scale(0, peak, height, 12)
    picture = Drawing(WIDTH, height + bottom, "Pages a second over time", alone=False)
    picture.rows(up, [(tick, f"{tick:,.4g}") for tick in list(chart.round_ticks(peak))[::2]], left, WIDTH)
    wide = max((WIDTH - left) / len(rates) - 0.6, 0.6)
    for row, rate in enumerate(rates):
        if rate:
            picture.box(across(row * data.bucket_seconds), up(rate), wide, height - up(rate))
    picture.times(across, height)
    caption = (
        f"Answered pages a second, in steps of {seconds_text(data.bucket_seconds)}; the most was {peak:,.1f}. "
        "Time counts from the first answer."
    )
    return f'{heading}<figure><div class="wide">{picture}</div><figcaption>{caption}</figcaption></figure></section>'


def _hosts_table(data: ReportData) -> str:
    rows = []
    for row in data.hosts[:HOSTS_SHOWN_MAX]:
        gaps = row.gaps
        if gaps.gap_seconds_min is None or gaps.gap_seconds_required is None or gaps.room_seconds_min is None:
            cells = "<td>–</td><td>–</td><td>–</td>"
        else:
            mark = ' class="bad"' if gaps.breaches else ""
            cells = (
                f"<td>{gaps.gap_seconds_min:.3f}</td><td>{gaps.gap_seconds_required:.3f}</td>"
                f"<td{mark}>{gaps.room_seconds_min:+.3f}</td>"
            )
        rows.append(
            f'<tr><td class="name">{_safe(row.host or "(none)")}</td><td>{row.pages:,}</td>'
            f"<td>{bytes_text(row.bytes)}</td><td>{row.errors:,}</td><td>{gaps.requests:,}</td>{cells}</tr>"
        )
    more = len(data.hosts) - HOSTS_SHOWN_MAX
    rest = f'<p class="soft">and {counted(more, "more host")}</p>' if more > 0 else ""
    return (
        "<section><h2>Hosts</h2><p class='soft'>A gap lies between the end of one request to a host and the start of "
        "the next, robots.txt included. Beside the smallest stands what was required before that same request; the "
        "least room is the smallest difference of the two over all requests. Seconds.</p>"
        '<div class="wide"><table><thead><tr><th>host</th><th>pages</th><th>bytes</th><th>errors</th><th>requests</th>'
        "<th>smallest gap</th><th>required</th><th>least room</th></tr></thead><tbody>"
        f"{''.join(rows)}</tbody></table></div>{rest}</section>"
    )


def _counts_table(heading: str, note: str, counts: Mapping[str, int], empty: str = "") -> str:
    if not counts:
        return f'<section><h2>{heading}</h2><p class="soft">{empty}</p></section>' if empty else ""
    most = max(counts.values())
    rows = "".join(
        f'<tr><td class="name">{_safe(name)}</td><td>{count:,}</td>'
        f'<td class="bar"><i style="width:{count / most * 100:.1f}%"></i></td></tr>'
        for name, count in ranked(counts)
    )
    said = f'<p class="soft">{note}</p>' if note else ""
    return f"<section><h2>{heading}</h2>{said}<table><tbody>{rows}</tbody></table></section>"


def _politeness_timeline(data: ReportData) -> str:
    heading = "<section><h2>Politeness timeline</h2>"
    if not data.timelines:
        return f'{heading}<p class="soft">No request was recorded.</p></section>'
    span = max((visit.ended for line in data.timelines for visit in line.visits), default=0.0)
    span = min(max(span, 0.5), TIMELINE_SECONDS_MAX)
    left, tall = 210.0, 16.0
    height = tall * len(data.timelines) + 6
    across = Scale(0, span, left, WIDTH)
    picture = Drawing(WIDTH, height + 22, "Requests of each host over time", alone=False)
    for row, line in enumerate(data.timelines):
        y = 4 + row * tall
        picture.text(0, y + 10, _shortened(line.host, 34), kind="name")
        _visits(picture, line.visits, across, y)
    picture.times(across, height)
    left_out = sum(line.left_out for line in data.timelines)
    more = sum(1 for row in data.hosts if row.gaps.requests) - len(data.timelines)
    notes = []
    if left_out:
        notes.append(f"{counted(left_out, 'later request')} of these hosts not drawn")
    if more > 0:
        notes.append(f"and {counted(more, 'more host')}")
    key = (
        '<p class="soft key"><i class="mark"></i>request<i class="robots"></i>robots.txt'
        '<i class="rest"></i>the rest that was required<i class="early"></i>a request that came too early</p>'
    )
    caption = "Time counts from the first request; a request is drawn at least one unit wide." + (
        " " + "; ".join(notes).capitalize() + "." if notes else ""
    )
    figure = f'<figure><div class="wide">{picture}</div><figcaption>{caption}</figcaption></figure>'
    return f"{heading}{key}{figure}</section>"


def _visits(picture: Drawing, visits: Sequence[Visit], across: Scale, y: float) -> None:
    """Draws one host's row: the rests first, then the requests above them, one path for each colour."""
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
        rows = "".join(f"<li>{_safe(seed)}</li>" for seed in data.seeds[:SEEDS_SHOWN_MAX])
        more = len(data.seeds) - SEEDS_SHOWN_MAX
        rest = f'<p class="soft">and {counted(more, "more")}</p>' if more > 0 else ""
        parts.append(f"<section><h2>Seeds</h2><ul>{rows}</ul>{rest}</section>")
    if data.settings:
        text = "\n".join(_safe(line) for line in data.settings.splitlines())
        parts.append(f'<section><h2>Settings</h2><div class="wide"><pre>{text}</pre></div></section>')
    return "\n".join(parts)


def _table(heading: str, note: str, heads: Sequence[str], rows: Sequence[Sequence[str]], rest: str = "") -> str:
    """A table of cells that are safe already; nothing where there is no row. The first column is a name, those of
    `TEXT_HEADS` hold text, and the others numbers."""
    if not rows:
        return ""
    kinds = [' class="name"', *(' class="text"' if name in TEXT_HEADS else "" for name in heads[1:])]
    head = "".join(f"<th{kind}>{name}</th>" for kind, name in zip(kinds, heads, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{kind}>{cell}</td>" for kind, cell in zip(kinds, row, strict=True)) + "</tr>"
        for row in rows
    )
    more = f'<p class="soft">{rest}</p>' if rest else ""
    return (
        f'<section><h2>{heading}</h2><p class="soft">{note}</p><div class="wide"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{more}</section>"
    )


def _hooks_section(data: ReportData) -> str:
    """The failures of hooks in the last run; nothing where there were none."""
    rows = "".join(
        f"<li>{_safe(failure_text(one))}. {_safe(way_out(one, data.totals.output))}. First for {_safe(one.url)}.</li>"
        for one in data.totals.hooks
    )
    return f'<section><h2>Failed hooks</h2><ul class="bad">{rows}</ul></section>' if rows else ""


def _left_out_table(data: ReportData) -> str:
    rows = [(_safe(row.text), _safe(row.command)) for row in data.totals.left_out]
    return _table("Left out", "By reason.", ("left out", "listed by"), rows)


def _broken_table(data: ReportData) -> str:
    beside = Counter(one.referrer for one in data.broken)
    rows = [
        (
            *(_safe(one.url), _safe(one.referrer or "a seed"), f"{beside[one.referrer]:,}", _safe(one.reason)),
            f"{one.attempts:,}",
        )
        for one in data.broken[:BROKEN_SHOWN_MAX]
    ]
    more = max(0, len(data.broken) - BROKEN_SHOWN_MAX) + data.broken_left_out
    reasons = ranked(Counter(one.reason for one in data.broken))
    named = ", ".join(f"{count:,} × {_safe(name)}" for name, count in reasons[:NAMES_MAX])
    whole = counted(len(data.broken) + data.broken_left_out, "URL")
    note = f"{whole} gave no page ({named}), with the first page that links to each, and how many such links it has."
    rest = f"and {counted(more, 'more URL')}: outcome gone or error in pages.jsonl" if more else ""
    return _table("Broken links", note, ("URL", "found on", "there", "reason", "attempts"), rows, rest)


def _closed_table(data: ReportData) -> str:
    rows = [
        (_safe(one.host), f"{one.pages:,}", _safe(one.reason), _safe(one.example))
        for one in data.closed[:CLOSED_SHOWN_MAX]
    ]
    more = len(data.closed) - CLOSED_SHOWN_MAX
    rest = f"and {counted(more, 'more host')}" if more > 0 else ""
    return _table("Closed by robots.txt", "Pages that were not asked for.", ("host", "pages", "why", "as"), rows, rest)


def _slowest_table(data: ReportData) -> str:
    rows = [
        (_safe(one.host), f"{one.requests:,}", f"{one.seconds_mean:.3f} s", f"{one.seconds_max:.3f} s")
        for one in data.slowest
    ]
    return _table("Slowest hosts", "By the mean of their requests.", ("host", "requests", "mean", "longest"), rows)
