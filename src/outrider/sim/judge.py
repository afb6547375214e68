"""`outrider judge`: serves a web that misbehaves, runs any crawler against it, and measures from the server's side.

The crawler receives only seeds. `judge_web.py` says which habit each host tests. A host has its own address
on loopback and answers to its name and to that address, so that a crawler without a hosts file can be judged too. Only
the many names of one machine need a hosts file.
"""

from __future__ import annotations

import html
import os
import signal
import subprocess
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outrider.errors import SettingsError
from outrider.sim.judge_web import SUFFIX, JudgeWeb
from outrider.sim.verdict import Breach, CrawlerRun, HostVerdict, PolitenessVerdict, judge
from outrider.sim.web import DemoServer, RunningWeb

GRACE_SECONDS = 10.0  # between SIGTERM and SIGKILL: a crawler may end its requests
SLACK_SECONDS = 0.002  # two clocks read one after the other; a crawler that pauses pauses longer
QUIET_ROWS = 20  # above this number, hosts of one habit without a violation share one row


@dataclass(frozen=True, slots=True)
class Trial:
    """How to judge a crawler.

    delay: required seconds between the end of a request and the next to the same host. agent: the agent whose robots
    rules count. seconds: after this time the crawler is ended. restarts: how often it is killed (SIGKILL) and
    run again. clocks: the seconds by which the crawler's clock is ahead in each run, the last one also in later runs.
    passes: whether that is time that passed, or a wrong wall clock. patient, names: hosts with a Crawl-delay, and names
    on one address. names_at_once, names_gap: the number of requests that this address accepts at once, and the
    seconds between the end of one and the next; None: `delay`.
    """

    delay: float = 1.0
    agent: str = "outrider"
    seconds: float = 120.0
    restarts: int = 0
    clocks: tuple[float, ...] = ()
    passes: bool = False
    patient: int = 0
    names: int = 0
    names_at_once: int = 1
    names_gap: float | None = None

    @property
    def runs(self) -> int:
        """How many runs there are."""
        return max(self.restarts + 1, len(self.clocks))

    def clock(self, run: int) -> float:
        """By how many seconds the crawler's clock is ahead in a run."""
        return self.clocks[min(run, len(self.clocks) - 1)] if self.clocks else 0.0

    def web(self, port: int) -> JudgeWeb:
        """The web of this trial."""
        return JudgeWeb(port=port, patient=self.patient, names=self.names, fading=self.passes)


@dataclass(slots=True)
class Judged:
    """How a crawler behaved. seconds: of all runs. exit_code: of the last run, None where its time was up."""

    command: list[str]
    verdict: PolitenessVerdict
    seconds: float
    exit_code: int | None
    runs: int
    delay: float
    rules: Counter[str] = field(default_factory=Counter)

    @property
    def ok(self) -> bool:
        """Whether no rule was broken."""
        return not self.verdict.broken

    def as_dict(self) -> dict[str, Any]:
        """As JSON values."""
        hosts = [
            {
                "host": host.host,
                "requests": host.requests,
                "required_gap": host.required_gap,
                "smallest_gap": host.smallest_gap,
                "at_once": host.concurrent,
                "connections": host.connections,
                "breaches": [{"rule": breach.rule, "text": breach.text} for breach in host.broken],
            }
            for host in self.verdict.hosts.values()
        ]
        return {
            "ok": self.ok,
            "command": self.command,
            "seconds": round(self.seconds, 3),
            "exit_code": self.exit_code,
            "runs": self.runs,
            "delay": self.delay,
            "requests": len(self.verdict.requests),
            "rules": dict(self.rules),
            "hosts": hosts,
        }


def judged(command: list[str], trial: Trial) -> Judged:
    """Runs a crawler against the web and judges it by the web's log.

    command: words in which `{seeds}` and `{hosts}` mean files, `{addresses}` one of seeds by address, and
    `{clock}` the seconds by which its clock must be ahead in this run ("+0" and so on).
    Raises SettingsError for a command that cannot start or requests no page: that is not a pass.
    """
    with tempfile.TemporaryDirectory(prefix="outrider-judge-") as folder:
        with DemoServer(trial.web, Path(folder)) as served:
            words = _filled(command, served)
            began = time.monotonic()
            code: int | None = None
            runs = []
            for run in range(trial.runs):
                ahead = trial.clock(run)
                runs.append(CrawlerRun(time.monotonic(), ahead if trial.passes else 0.0))
                ends = max(1.0, (trial.seconds - (time.monotonic() - began)) / (trial.runs - run))
                told = [word.replace("{clock}", f"{ahead:+g}") for word in words]
                code = _run(told, ends, kill=run < trial.runs - 1)
            took = time.monotonic() - began
        named = _machines(served) if trial.names else {}
        verdict = judge(
            served.log_file,
            delay=trial.delay,
            agent=trial.agent,
            slack=SLACK_SECONDS,
            storms=True,
            runs=runs,
            machines=named,
            machine_clock=(trial.names_at_once, trial.delay if trial.names_gap is None else trial.names_gap),
        )
    if not any(request.path != "/robots.txt" for request in verdict.requests):
        ended = "its time was up" if code is None else f"it ended with {code}"
        raise SettingsError(f"command {command[0]!r} fetched no page ({ended}): nothing can be said of its politeness")
    found = Judged(command, verdict, took, code, trial.runs, trial.delay)
    found.rules = Counter(breach.rule for breach in verdict.broken)
    return found


def _machines(served: RunningWeb) -> dict[str, str]:
    """The address of each host that shares it, as a name for its row."""
    at = [line.split() for line in served.hosts_file.read_text(encoding="ascii").splitlines()]
    counts = Counter(address for address, _ in at)
    return {host: f"{address} ({counts[address]} names)" for address, host in at if counts[address] > 1}


def _filled(command: list[str], served: RunningWeb) -> list[str]:
    """The command's words with the names of files in place."""
    addresses = served.hosts_file.with_name("addresses.txt")
    with served.hosts_file.open(encoding="ascii") as lines:
        counts = Counter(line.split()[0] for line in lines)
    alone = (address for address, count in counts.items() if count == 1)
    addresses.write_text("".join(f"http://{address}:{served.web.port}/\n" for address in alone), encoding="ascii")
    files = {"{seeds}": served.seeds_file, "{hosts}": served.hosts_file, "{addresses}": addresses}
    filled = []
    for word in command:
        for name, file in files.items():
            word = word.replace(name, str(file))
        filled.append(word)
    return filled


def _run(words: list[str], seconds: float, *, kill: bool) -> int | None:
    """Runs the command for this time; returns its exit code, None if it was ended. kill: with SIGKILL."""
    try:
        null = subprocess.DEVNULL
        running = subprocess.Popen(words, stdin=null, stdout=null, start_new_session=True)  # noqa: S603 -- as it was told
    except OSError as error:
        raise SettingsError(f"command {words[0]!r} cannot be started ({error.strerror})") from error
    try:
        return running.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        _end(running, kill=kill)


def _end(running: subprocess.Popen[bytes], *, kill: bool) -> None:
    """Ends the command and all that it started: what ignores SIGTERM for longer than a grace is killed."""
    if not kill and _signalled(running, signal.SIGTERM):
        until = time.monotonic() + GRACE_SECONDS
        while _signalled(running, 0) and time.monotonic() < until:
            time.sleep(0.02)
    _signalled(running, signal.SIGKILL)
    running.wait()


def _signalled(running: subprocess.Popen[bytes], sign: int) -> bool:
    """Sends a signal to the process group of the command, 0 for no signal. Returns whether any process of it lives; the
    command itself does not count once it ended."""
    running.poll()  # reaps it: an ended process remains in its group until then
    try:
        os.killpg(running.pid, sign)
    except ProcessLookupError:
        return False
    return True


def rows(found: Judged) -> list[HostVerdict]:
    """The rows of the findings: hosts, and where many of one habit broke nothing, one row for all of them."""
    habits: dict[str, list[HostVerdict]] = {}
    for host in found.verdict.hosts.values():
        habit = host.host.partition("-")[0] if host.host.endswith(SUFFIX) else host.host
        habits.setdefault("" if host.broken else habit, []).append(host)
    kept = []
    for habit, hosts in habits.items():
        if len(hosts) <= QUIET_ROWS or not habit:
            kept += hosts
            continue
        gaps = [host.smallest_gap for host in hosts if host.smallest_gap is not None]
        one = HostVerdict(f"{len(hosts)} {habit} hosts", sum(host.requests for host in hosts))
        one.required_gap = min(host.required_gap for host in hosts)
        one.smallest_gap = min(gaps, default=None)
        one.concurrent = max(host.concurrent for host in hosts)
        kept.append(one)
    return sorted(kept, key=lambda host: host.host)


def table(found: Judged) -> list[str]:
    """The findings as lines of text."""
    lines = [f"{'host':<26} {'requests':>8} {'smallest gap':>13} {'required':>9} {'at once':>8}  broken"]
    for host in rows(found):
        gap = "-" if host.smallest_gap is None else f"{host.smallest_gap:.3f}"
        rules = ", ".join(f"{count} {rule}" for rule, count in _rules(host.broken).items()) or "nothing"
        lines.append(
            f"{host.host:<26} {host.requests:>8} {gap:>13} {host.required_gap:>9.3f} {host.concurrent:>8}  {rules}"
        )
    lines += [breach.text for breach in found.verdict.broken]
    verdict = "polite" if found.ok else f"NOT polite: {sum(found.rules.values())} breaches"
    lines.append(f"{verdict}, {len(found.verdict.requests)} requests in {found.seconds:.1f} s, {found.runs} runs")
    return lines


def _rules(broken: list[Breach]) -> Counter[str]:
    return Counter(breach.rule for breach in broken)


def page(found: Judged) -> str:
    """The findings as a page of HTML without scripts."""
    lines = "".join(
        f"<tr><td>{html.escape(host.host)}<td>{host.requests}"
        f"<td>{'-' if host.smallest_gap is None else f'{host.smallest_gap:.3f}'}<td>{host.required_gap:.3f}"
        f"<td>{host.concurrent}<td>{html.escape(', '.join(_rules(host.broken)) or 'nothing')}"
        for host in rows(found)
    )
    breaches = "".join(f"<li>{html.escape(breach.rule)}: {html.escape(breach.text)}" for breach in found.verdict.broken)
    verdict = "polite" if found.ok else "not polite"
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        "<title>outrider judge</title><style>body{font:15px sans-serif;max-width:60em;margin:2em auto}"
        "td,th{text-align:left;padding:.2em 1em .2em 0}</style>"
        f"<h1>{verdict}</h1><p><code>{html.escape(' '.join(found.command))}</code>: {len(found.verdict.requests)} "
        f"requests in {found.seconds:.1f} s, {found.runs} runs; gaps of {found.delay:g} s were required."
        "<table><tr><th>host<th>requests<th>smallest gap, s<th>required, s<th>at once<th>broken"
        f"{lines}</table><ol>{breaches}</ol></html>\n"
    )
