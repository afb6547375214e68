"""`outrider judge`: serves a web that misbehaves, runs any crawler against it, and measures from the server's side.

Each host tests one habit; the crawler is told nothing but seeds. A host has an address of its own on loopback and
answers to its name and to that address, so that a crawler without a hosts file can be judged too.

    steady      nothing odd: one request at a time, and a pause
    slow        each page takes 0.4 s
    delayed     robots.txt asks for a Crawl-delay of two seconds
    closed      robots.txt closes a folder that pages link to
    moved       the same, and robots.txt is behind a redirect
    unruled     has no robots.txt (404)
    broken      robots.txt is an error (500): nothing may be fetched
    busy        the first page answers 503 with Retry-After: 2
    refusing    the same with 429
    storm       all pages answer 500 in the first three seconds
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
from outrider.sim.verdict import Breach, Verdict, judge
from outrider.sim.web import Answer, DemoServer, Served

SUFFIX = "judge.test"
PAGES = 5
STEADY_HOSTS = 3
HABITS = ("slow", "delayed", "closed", "moved", "unruled", "broken", "busy", "refusing", "storm")
CRAWL_DELAY_SECONDS = 2
RETRY_AFTER_SECONDS = 2
STORM_SECONDS = 3.0
SLOW_SECONDS = 0.4
GRACE_SECONDS = 10.0  # between SIGTERM and SIGKILL: a crawler may end its requests
SLACK_SECONDS = 0.002  # two clocks read one after the other; a crawler that pauses pauses longer
_HTML = (("Content-Type", "text/html; charset=utf-8"),)
_TEXT = (("Content-Type", "text/plain"),)
_CLOSED = b"User-agent: *\nDisallow: /private/\n"


class JudgeWeb:
    """Twelve hosts, a habit to test each; pages link to one another and to a closed folder."""

    def __init__(self, *, port: int = 8080) -> None:
        names = [*(f"steady-{number}" for number in range(1, STEADY_HOSTS + 1)), *HABITS]
        self.hosts = tuple(f"{name}.{SUFFIX}" for name in names)
        self.port = port

    def habit(self, host: str) -> str:
        """The habit that a host tests."""
        return host.split(".", maxsplit=1)[0].partition("-")[0]

    def seeds(self) -> tuple[str, ...]:
        """The front page of every host."""
        return tuple(f"http://{host}:{self.port}/" for host in self.hosts)

    def closed(self, host: str, path: str) -> bool:
        """Whether the robots.txt of the host closes the path."""
        habit = self.habit(host)
        return self.faulty(host) or (habit in ("closed", "moved") and path.startswith("/private/"))

    def faulty(self, host: str) -> bool:
        """Whether the host's robots.txt cannot be read."""
        return self.habit(host) == "broken"

    def answer(self, host: str, path: str, now: float, *, takes_gzip: bool = False) -> Answer:
        """The host's answer, `now` seconds after its first request."""
        habit = self.habit(host)
        if path == "/robots.txt":
            return self._robots(habit)
        if habit == "moved" and path == "/rules.txt":
            return Answer(200, _TEXT, _CLOSED, 0.0)
        delay = SLOW_SECONDS if habit == "slow" else 0.02
        if habit in ("busy", "refusing") and path == "/" and now < RETRY_AFTER_SECONDS:
            wait = (("Retry-After", str(RETRY_AFTER_SECONDS)), *_TEXT)
            return Answer(503 if habit == "busy" else 429, wait, b"Later, please.\n", delay)
        if habit == "storm" and now < STORM_SECONDS:
            return Answer(500, _TEXT, b"It does not work.\n", delay)
        number = path.strip("/").removeprefix("page")
        if path != "/" and not (number.isdigit() and int(number) < PAGES) and not path.startswith("/private/"):
            return Answer(404, _TEXT, b"There is no such page.\n", delay)
        links = [f"/page{other}" for other in range(1, PAGES)] + ["/private/secret"]
        anchors = "".join(f'<li><a href="{link}">{link}</a>' for link in links)
        title = html.escape(f"{host} {path}")
        return Answer(200, _HTML, f"<!doctype html><title>{title}</title><ul>{anchors}</ul>\n".encode(), delay)

    def _robots(self, habit: str) -> Answer:
        if habit == "unruled":
            return Answer(404, _TEXT, b"There is none.\n", 0.0)
        if habit == "broken":
            return Answer(500, _TEXT, b"It does not work.\n", 0.0)
        if habit == "moved":
            return Answer(301, (("Location", "/rules.txt"), *_TEXT), b"", 0.0)
        rules = {"closed": _CLOSED, "delayed": b"User-agent: *\nCrawl-delay: %d\n" % CRAWL_DELAY_SECONDS}
        return Answer(200, _TEXT, rules.get(habit, b"User-agent: *\nDisallow:\n"), 0.0)


@dataclass(slots=True)
class Judged:
    """How a crawler behaved. seconds: of all runs. exit_code: of the last run, None where its time was up."""

    command: list[str]
    verdict: Verdict
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


def judged(command: list[str], *, delay: float, agent: str, seconds: float, restarts: int = 0) -> Judged:
    """Runs a crawler against the web and judges it by the web's log.

    command: words in which `{seeds}` and `{hosts}` stand for files, and `{addresses}` for one of seeds by address.
    delay: seconds that had to lie between the end of a request and the next to the same host. seconds: after so many
    the crawler is ended. restarts: so many times it is killed in its midst (SIGKILL) and run again.
    Raises SettingsError for a command that cannot be started or asks for no page: that is no pass.
    """
    with tempfile.TemporaryDirectory(prefix="outrider-judge-") as folder:
        with DemoServer(lambda port: JudgeWeb(port=port), Path(folder)) as served:
            words = _filled(command, served)
            began = time.monotonic()
            code: int | None = None
            for run in range(restarts + 1):
                left = seconds - (time.monotonic() - began)
                ends = max(1.0, left / (restarts + 1 - run))
                code = _run(words, ends, kill=run < restarts)
            took = time.monotonic() - began
        verdict = judge(served.log_file, delay=delay, agent=agent, slack=SLACK_SECONDS)
    if not any(request.path != "/robots.txt" for request in verdict.requests):
        ended = "its time was up" if code is None else f"it ended with {code}"
        raise SettingsError(f"command {command[0]!r} fetched no page ({ended}): nothing can be said of its politeness")
    found = Judged(command, verdict, took, code, restarts + 1, delay)
    found.rules = Counter(breach.rule for breach in verdict.broken)
    return found


def _filled(command: list[str], served: Served) -> list[str]:
    """The command's words with the names of files in place."""
    addresses = served.hosts_file.with_name("addresses.txt")
    with served.hosts_file.open(encoding="ascii") as lines:
        found = [line.split()[0] for line in lines]
    addresses.write_text("".join(f"http://{address}:{served.web.port}/\n" for address in found), encoding="ascii")
    files = {"{seeds}": served.seeds_file, "{hosts}": served.hosts_file, "{addresses}": addresses}
    filled = []
    for word in command:
        for name, file in files.items():
            word = word.replace(name, str(file))
        filled.append(word)
    return filled


def _run(words: list[str], seconds: float, *, kill: bool) -> int | None:
    """Runs the command for so long; its exit code, None where it was ended. kill: with SIGKILL."""
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
    """Sends a signal to the group of the command's processes, 0 for none. Whether anything of it lives; the command
    itself does not count once it ended."""
    running.poll()  # reaps it: an ended process that nobody waited for still stands in its group
    try:
        os.killpg(running.pid, sign)
    except ProcessLookupError:
        return False
    return True


def table(found: Judged) -> list[str]:
    """The findings as lines of text."""
    lines = [f"{'host':<24} {'requests':>8} {'smallest gap':>13} {'required':>9} {'at once':>8}  broken"]
    for host in found.verdict.hosts.values():
        gap = "-" if host.smallest_gap is None else f"{host.smallest_gap:.3f}"
        rules = ", ".join(f"{count} {rule}" for rule, count in _rules(host.broken).items()) or "nothing"
        lines.append(
            f"{host.host:<24} {host.requests:>8} {gap:>13} {host.required_gap:>9.3f} {host.concurrent:>8}  {rules}"
        )
    lines += [breach.text for breach in found.verdict.broken]
    verdict = "polite" if found.ok else f"NOT polite: {sum(found.rules.values())} breaches"
    lines.append(f"{verdict}, {len(found.verdict.requests)} requests in {found.seconds:.1f} s, {found.runs} runs")
    return lines


def _rules(broken: list[Breach]) -> Counter[str]:
    return Counter(breach.rule for breach in broken)


def page(found: Judged) -> str:
    """The findings as a page of HTML without scripts."""
    rows = "".join(
        f"<tr><td>{html.escape(host.host)}<td>{host.requests}"
        f"<td>{'-' if host.smallest_gap is None else f'{host.smallest_gap:.3f}'}<td>{host.required_gap:.3f}"
        f"<td>{host.concurrent}<td>{html.escape(', '.join(_rules(host.broken)) or 'nothing')}"
        for host in found.verdict.hosts.values()
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
        f"{rows}</table><ol>{breaches}</ol></html>\n"
    )
