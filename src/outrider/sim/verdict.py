"""An independent judge of a crawl's politeness: reads a demo web's access log, and nothing of the crawler's.

It shares no code with the rest of the package: its own reading of robots.txt (RFC 9309), its own clock arithmetic, its
own rules.
"""

from __future__ import annotations

import json
import re
from bisect import insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

ROBOTS_AGE_SECONDS_MAX = 86_400.0  # RFC 9309 section 2.4
ROBOTS_TURN_SECONDS = 300.0  # the copy of one turn is valid for the next one, if that begins this soon after the gap
ROBOTS_LOST_SECONDS = 30 * 86_400.0  # section 2.3.1.4
STORM_FACTOR = 2.0  # after two failures in a row the gap of a host is at least multiplied by this


@dataclass(frozen=True)
class LoggedRequest:
    """One line of the log; start and end in seconds of the server's monotonic clock."""

    host: str
    path: str
    status: int
    start: float
    end: float
    at: float  # wall clock at the start, seconds since 1970
    connection: int
    retry_after: str | None
    robots: str | None
    seen: tuple[str, ...] = ()  # violations that the server itself saw


@dataclass(frozen=True)
class Breach:
    """A rule that a request broke."""

    rule: str
    text: str


@dataclass
class HostVerdict:
    """How one host was treated."""

    host: str
    requests: int = 0
    required_gap: float = 0.0
    smallest_gap: float | None = None  # from the end of a request to the start of the next; below 0 they overlap
    concurrent: int = 0
    connections: int = 0
    broken: list[Breach] = field(default_factory=list)

    @property
    def breaches(self) -> list[str]:
        """Every breach in words."""
        return [breach.text for breach in self.broken]


@dataclass
class PolitenessVerdict:
    """How all hosts were treated; `breaches` names every one with its host and time."""

    hosts: dict[str, HostVerdict]
    requests: list[LoggedRequest]

    @property
    def broken(self) -> list[Breach]:
        return [breach for host in self.hosts.values() for breach in host.broken]

    @property
    def breaches(self) -> list[str]:
        return [breach.text for breach in self.broken]

    @property
    def polite(self) -> bool:
        return bool(self.requests) and not self.breaches

    def asked(self, status: int | None = None) -> set[tuple[str, str]]:
        """(host, path) of the requests, robots.txt aside; only those answered so."""
        return {
            (request.host, request.path)
            for request in self.requests
            if request.path != "/robots.txt" and status in {None, request.status}
        }

    def asked_often(self) -> dict[tuple[str, str], int]:
        """(host, path) requested more than once and each time answered with 200, and how often."""
        counts: dict[tuple[str, str], int] = {}
        for request in self.requests:
            if request.status == 200 and request.path != "/robots.txt":
                counts[request.host, request.path] = counts.get((request.host, request.path), 0) + 1
        return {where: count for where, count in counts.items() if count > 1}


def read(lines: Iterable[str]) -> list[LoggedRequest]:
    """The requests of a log, in the order in which they began. A torn last line is left out."""
    requests = []
    for line in lines:
        if not line.endswith("\n"):
            continue
        entry = json.loads(line)
        stamp = entry["at"].replace("Z", "+00:00")
        requests.append(
            LoggedRequest(
                host=entry["host"],
                path=entry["path"],
                status=entry["status"],
                start=entry["start"] / 1e6,
                end=entry["end"] / 1e6,
                at=_wall(stamp),
                connection=entry["connection"],
                retry_after=entry["retry_after"],
                robots=entry["robots"],
                seen=tuple(entry.get("violations", ())),
            )
        )
    return sorted(requests, key=lambda request: request.start)


@dataclass(frozen=True)
class CrawlerRun:
    """One run of a crawler: its start by the server's clock, and the seconds that seem to have passed before it, in
    addition to the real ones."""

    start: float
    passed: float = 0.0


def judge(
    log: Path,
    *,
    delay: float,
    agent: str = "outrider",
    slack: float = 0.0,
    storms: bool = False,
    runs: Sequence[CrawlerRun] = (),
    machines: Mapping[str, str] | None = None,
    machine_clock: tuple[int, float] | None = None,
) -> PolitenessVerdict:
    """Judges a whole log: at least `delay` seconds between requests to one host, or more where its robots.txt says so.

    storms: whether a failing host must get longer pauses. runs: of the crawler, in order. machines: by host, the name
    of the machine that it shares with others. machine_clock: (requests at once, gap in seconds) of a shared machine;
    None: 1 and the host's gap.
    """
    with log.open(encoding="utf-8") as lines:
        requests = [_passed(request, runs) for request in read(lines)]
    hosts: dict[str, list[LoggedRequest]] = {}
    shared: dict[str, list[LoggedRequest]] = {}
    for request in requests:
        hosts.setdefault(request.host, []).append(request)
        if machines is not None and request.host in machines:
            shared.setdefault(machines[request.host], []).append(request)
    starts = [run.start + run.passed for run in runs] if storms else None
    verdicts = {host: _judge_host(host, asked, delay, agent, slack, starts) for host, asked in sorted(hosts.items())}
    most, gap = machine_clock or (1, delay)
    verdicts |= {machine: _judge_machine(machine, asked, most, gap, slack) for machine, asked in sorted(shared.items())}
    return PolitenessVerdict(verdicts, requests)


def _passed(request: LoggedRequest, runs: Sequence[CrawlerRun]) -> LoggedRequest:
    """A request by the clock of a crawler for which more time passed than for the server."""
    passed = next((run.passed for run in reversed(runs) if run.start <= request.start), 0.0)
    if not passed:
        return request
    return replace(request, start=request.start + passed, end=request.end + passed, at=request.at + passed)


def _judge_machine(
    machine: str, requests: list[LoggedRequest], most: int, required: float, slack: float
) -> HostVerdict:
    """One address with many names: it has a number of turns, and each rests after the end of its request."""
    verdict = HostVerdict(machine, len(requests), required)
    verdict.connections = len({request.connection for request in requests})
    verdict.concurrent = _concurrent(requests)
    if verdict.concurrent > most:
        verdict.broken.append(
            Breach("address at once", f"{machine}: {verdict.concurrent} requests at once, {most} allowed")
        )
    ends: list[float] = []  # ends of earlier requests, in order
    for request in requests:
        if len(ends) >= most:  # all turns are in use, and each rests after its request
            gap = request.start - ends[-most]
            verdict.smallest_gap = gap if verdict.smallest_gap is None else min(verdict.smallest_gap, gap)
            if gap + slack < required:
                moment = f"{machine}, {request.host}{request.path} at {request.start:.6f}"
                verdict.broken.append(Breach("address gap", f"{moment}: {gap:.6f} s, {required:.3f} s required"))
        insort(ends, request.end)
    return verdict


class _RobotsAge:
    """When a robots.txt was answered, and since when it fails (RFC 9309 sections 2.3.1.4 and 2.4)."""

    def __init__(self) -> None:
        self.good: float | None = None
        self.failing: float | None = None

    def take(self, request: LoggedRequest) -> None:
        """Notes an answer for robots.txt; a redirect is followed, which is an answer of another path."""
        if request.status >= 500 or request.status == 429:
            self.failing = request.start if self.failing is None else self.failing
        else:
            self.good, self.failing = request.end, None

    def closes(self, at: float) -> bool:
        """Whether no copy is young enough, and the file has not failed for 30 days."""
        lost = self.failing is not None and at - self.failing >= ROBOTS_LOST_SECONDS
        return self.good is not None and at - self.good > ROBOTS_AGE_SECONDS_MAX and not lost


def _judge_host(
    host: str, requests: list[LoggedRequest], delay: float, agent: str, slack: float, starts: list[float] | None = None
) -> HostVerdict:
    verdict = HostVerdict(host, len(requests), delay)
    verdict.connections = len({request.connection for request in requests})
    verdict.concurrent = _concurrent(requests)
    if verdict.concurrent > 1:
        verdict.broken.append(Breach("at once", f"{host}: {verdict.concurrent} requests at once"))
    rules: Robots | None = None
    robots_end: float | None = None
    closed_until = float("-inf")
    last_end: float | None = None
    age, failed = _RobotsAge(), 0
    for request in requests:
        moment = f"{host}{request.path} at {request.start:.6f}"
        if request.status == 421:
            verdict.broken.append(Breach("wrong address", f"{moment}: asked at the wrong address"))
        if last_end is not None:
            gap = request.start - last_end
            if verdict.smallest_gap is None or gap < verdict.smallest_gap:
                verdict.smallest_gap = gap
            if gap + slack < verdict.required_gap:
                verdict.broken.append(
                    Breach("gap", f"{moment}: a gap of {gap:.6f} s, {verdict.required_gap:.3f} s required")
                )
            begun = starts is None or any(last_end <= start <= request.start for start in starts)
            if failed >= 2 and not begun and gap + slack < STORM_FACTOR * verdict.required_gap:
                verdict.broken.append(Breach("storm", f"{moment}: a gap of {gap:.6f} s behind {failed} failures"))
        if request.start + slack < closed_until:
            verdict.broken.append(
                Breach("retry-after", f"{moment}: {closed_until - request.start:.3f} s before Retry-After had passed")
            )
        if request.path == "/robots.txt":
            robots_end = request.end if robots_end is None else robots_end
            age.take(request)
            if age.failing is None:
                rules = Robots(request.robots or "", agent)
                verdict.required_gap = max(delay, rules.gap_seconds or 0.0)
        else:
            # A Crawl-delay of a day leaves no other page than the next one, by a copy that is a day old.
            turn = last_end is not None and age.good == last_end
            until = (last_end or 0.0) + verdict.required_gap + ROBOTS_TURN_SECONDS
            if age.closes(request.start - slack) and not (turn and request.start - slack <= until):
                verdict.broken.append(Breach("robots age", f"{moment}: robots.txt is out of reach, its copy too old"))
            if robots_end is None or request.start < robots_end:
                verdict.broken.append(Breach("robots first", f"{moment}: robots.txt was not answered yet"))
            if "robots-error" in request.seen:
                verdict.broken.append(Breach("robots error", f"{moment}: robots.txt cannot be read, which closes all"))
            elif "closed" in request.seen or (rules is not None and not rules.allowed(request.path)):
                verdict.broken.append(Breach("closed", f"{moment}: robots.txt closes this path"))
        failed = failed + 1 if request.status >= 500 or request.status == 429 else 0
        last_end = request.end if last_end is None else max(last_end, request.end)
        closed_until = max(closed_until, _closed_until(request))
    return verdict


def _concurrent(requests: list[LoggedRequest]) -> int:
    steps = sorted([(request.start, 1) for request in requests] + [(request.end, -1) for request in requests])
    most = now = 0
    for _, step in sorted(steps, key=lambda entry: (entry[0], entry[1])):
        now += step
        most = max(most, now)
    return most


def _closed_until(request: LoggedRequest) -> float:
    value = (request.retry_after or "").strip()
    if not value or request.status not in {301, 302, 307, 308, 413, 429, 503}:
        return float("-inf")
    if value.isdigit():
        return request.end + int(value)
    try:
        return request.start + parsedate_to_datetime(value).timestamp() - request.at
    except ValueError:
        return float("-inf")


def _wall(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()


class Robots:
    """The rules of a robots.txt for one agent: RFC 9309, sections 2.2.1 to 2.2.3, Crawl-delay and Request-rate.

    gap_seconds: the longest pause between two requests that they require, None without one.
    """

    def __init__(self, text: str, agent: str) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        naming: list[str] = []
        ruled = True
        for line in re.split(r"\r\n|\r|\n", text):
            name, colon, value = line.split("#", 1)[0].partition(":")
            name, value = name.strip().lower(), value.strip()
            if not colon:
                continue
            if name == "user-agent":
                if ruled:
                    naming, ruled = [], False
                token = re.match(r"[A-Za-z_-]*", value)
                naming.append("*" if value.startswith("*") else token[0].lower() if token else "")
                groups.setdefault(naming[-1], [])
            elif name in {"allow", "disallow", "crawl-delay", "request-rate"}:
                ruled = True
                for group in naming:
                    groups[group].append((name, value))
        own = groups.get(agent.lower(), groups.get("*", []))
        self.rules = [(name == "allow", value) for name, value in own if name in {"allow", "disallow"} and value]
        delays = [float(value) for name, value in own if name == "crawl-delay" and re.fullmatch(r"[0-9.]+", value)]
        rates = [gap for name, value in own if name == "request-rate" and (gap := _gap_of_rate(value)) is not None]
        self.gap_seconds = max(delays[:1] + rates, default=None)

    def allowed(self, path: str) -> bool:
        """Whether the longest rule that matches allows the path; of equals the one that allows."""
        path = _decoded(path)
        best = (-1, True)
        for allow, pattern in self.rules:
            pieces = [re.escape(piece) for piece in _decoded(pattern.removesuffix("$")).split("*")]
            expression = ".*".join(pieces) + ("$" if pattern.endswith("$") else "")
            if re.match(expression, path, re.DOTALL):
                best = max(best, (len(pattern), allow))
        return best[1]


def _gap_of_rate(value: str) -> float | None:
    """The seconds between two requests that keep a rate such as `10/1m` without bursts, None for another text."""
    found = re.fullmatch(r"([0-9]+)\s*/\s*([0-9]+)([smhd]?)(?:\s.*)?", value.lower())
    if found is None or not int(found[1]):
        return None
    return int(found[2]) * {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}[found[3]] / int(found[1])


def _decoded(path: str) -> str:
    return re.sub(
        r"%([0-9A-Fa-f]{2})",
        lambda found: chr(int(found[1], 16)) if chr(int(found[1], 16)) not in "/?#%*$" else found[0].upper(),
        path,
    )


def table(verdict: PolitenessVerdict) -> str:
    """The verdict as text, hosts with the least room first."""
    rows = [f"{'host':<36} {'requests':>8} {'smallest gap':>13} {'required':>9} {'at once':>8}"]
    tight = sorted(verdict.hosts.values(), key=lambda host: (host.smallest_gap or float("inf")) - host.required_gap)
    for host in tight:
        gap = "-" if host.smallest_gap is None else f"{host.smallest_gap:.4f}"
        rows.append(f"{host.host:<36} {host.requests:>8} {gap:>13} {host.required_gap:>9.3f} {host.concurrent:>8}")
    rows.append(f"{len(verdict.requests)} requests, {len(verdict.breaches)} breaches")
    return "\n".join((*rows, *verdict.breaches))
