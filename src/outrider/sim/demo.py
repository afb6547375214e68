"""Runs for `make demo`: the demo web in a child process, the real crawl command, and the web's own verdict.

python -m outrider.sim.demo [--keep DIR]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from outrider.crawl.output.summary import counted, seconds_text
from outrider.sim.web import DemoWeb

DELAY_SECONDS = 0.2
WEB_READY_SECONDS_MAX = 30.0
VIOLATION = 9


@dataclass(frozen=True, slots=True)
class Inspection:
    """The verdict of the demo web's log on its visitor; a gap runs from the end of an answer to the next request."""

    requests: int
    hosts: int
    tightest_host: str
    gap_seconds: float | None  # the smallest gap of the tightest host
    required_seconds: float
    violations: tuple[str, ...]


def inspect(records: Iterable[Mapping[str, object]], delays: Mapping[str, float]) -> Inspection:
    """Reads the log's records in order of their start; `delays` has the required seconds of each host.

    A violation is a gap that is too small, or any fault that the server itself noted.
    """
    ended: dict[str, int] = {}
    violations: list[str] = []
    tightest: tuple[float, str, float, float] | None = None
    requests = 0
    for record in sorted(records, key=lambda entry: int(str(entry["start"]))):
        requests += 1
        host, start, end = str(record["host"]), int(str(record["start"])), int(str(record["end"]))
        where = f"{host}{record['path']}"
        noted = record["violations"]
        violations.extend(f"{where}: {word}" for word in (noted if isinstance(noted, list) else [noted]))
        required = delays.get(host, DELAY_SECONDS)
        if host in ended:
            gap = (start - ended[host]) / 1e6
            if gap < required:
                violations.append(f"{where}: a gap of {gap:.3f} s, {required:g} s required")
            if tightest is None or gap - required < tightest[0]:
                tightest = (gap - required, host, gap, required)
        ended[host] = max(end, ended.get(host, end))
    if tightest is None:
        return Inspection(requests, len(ended), "", None, 0.0, tuple(violations))
    return Inspection(requests, len(ended), tightest[1], tightest[2], tightest[3], tuple(violations))


def inspection_lines(seen: Inspection) -> list[str]:
    """The web's verdict in words."""
    lines = [f"requests    {counted(seen.requests, 'request')} to {counted(seen.hosts, 'host')}, robots.txt counted"]
    if seen.gap_seconds is not None:
        lines.append(
            f"least room  {seen.tightest_host}: {seen.gap_seconds:.3f} s between two requests, "
            f"{seen.required_seconds:g} s required"
        )
    lines.append(f"violations  {len(seen.violations)}")
    lines.extend(f"            {violation}" for violation in seen.violations[:10])
    return lines


def records_of(path: Path) -> Iterator[dict[str, object]]:
    """The objects of a file of JSON lines; a torn last line is left out, a missing file is empty."""
    with contextlib.suppress(FileNotFoundError), path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.endswith("\n"):
                record = json.loads(line)
                if isinstance(record, dict):
                    yield record


def exit_code(crawl_code: int, violations: int) -> int:
    """Returns 0 when the crawl finished without a violation; otherwise the exit code of the failure."""
    return crawl_code or (VIOLATION if violations else 0)


@contextlib.contextmanager
def _web(directory: Path) -> Iterator[dict[str, str]]:
    """The demo web in a process of its own; it ends when its standard input does, so also when we are killed.

    A session of its own keeps Ctrl-C from it: the crawl finishes what is in flight against a web that still answers.
    """
    command = [sys.executable, "-m", "outrider.sim.web", "--directory", str(directory)]
    with subprocess.Popen(  # noqa: S603 - this interpreter and a module of this package
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as child:
        try:
            assert child.stdout is not None
            ready, _, _ = select.select([child.stdout], [], [], WEB_READY_SECONDS_MAX)
            line = child.stdout.readline() if ready else ""
            if not line:
                raise RuntimeError("the demo web did not start; its message stands above")
            yield json.loads(line)
        finally:
            assert child.stdin is not None
            child.stdin.close()
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()


def _command() -> list[str]:
    """Returns the crawl command: the script next to this interpreter, else through the interpreter."""
    script = Path(sys.executable).with_name("outrider")
    if os.access(script, os.X_OK):
        return [str(script)]
    return [sys.executable, "-c", "import sys; from outrider.cli.main import main; sys.exit(main())"]


def _spoken() -> str:
    """How a person at this prompt calls the command."""
    script = Path(_command()[0])
    if shutil.which("outrider") == str(script) or script.name != "outrider":
        return "outrider"
    with contextlib.suppress(ValueError):
        return shlex.quote(str(script.relative_to(Path.cwd())))
    return shlex.quote(str(script))


def _crawl(command: list[str]) -> int:
    """Runs it on this terminal. Ctrl-C is the crawl's to answer, so we only wait for what it says."""
    with subprocess.Popen(command) as child:  # noqa: S603 - our own command, no shell between
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            return child.wait()
        finally:
            signal.signal(signal.SIGINT, before)


def _say(*lines: str) -> None:
    for line in lines:
        print(line, flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Crawls the demo web, prints the result and where it is, and returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m outrider.sim.demo", description="Crawl a small web on loopback.")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="the folder to fill (default: a new temporary one)")
    keep: Path | None = parser.parse_args(arguments).keep
    if keep and keep.exists() and any(keep.iterdir()):
        parser.error(f"{keep} is not empty; name a folder that is new")
    folder = (keep or Path(tempfile.mkdtemp(prefix="outrider-demo-"))).resolve()
    crawled, begun = folder / "crawl", time.monotonic()
    shape = DemoWeb()
    with _web(folder / "web") as ready:
        _say(
            f"A web of {len(shape.hosts)} hosts and some {len(shape.must_fetch()):,} pages now runs on loopback.",
            "One host is slow, one has a Crawl-delay, one refuses at first, one forbids a folder, one is endless.",
            "",
        )
        settings = ["--hosts", ready["hosts"], f"--delay={DELAY_SECONDS}", "--name", "the demo web"]
        command = [*_command(), "crawl", f"@{ready['seeds']}", "-o", str(crawled), *settings]
        _say(f"$ {_spoken()} {shlex.join(command[len(_command()) :])}", "")
        code = _crawl([*command, "--progress", "auto"])
    if not (crawled / "pages.jsonl").exists():
        _say("", f"The crawl ended with {code} and saved no pages; its messages are above.")
        return code or 1
    delays = {host: max(DELAY_SECONDS, shape.crawl_delay(host) or 0.0) for host in shape.hosts}
    seen = inspect(records_of(folder / "web" / "access.log"), delays)
    _say(
        "",
        "What the servers of this web recorded:",
        *(f"  {line}" for line in inspection_lines(seen)),
        "",
        f"All files are in {folder}",
        f"  {'crawl/report.html':<24}  open it in a browser",
        f"  {'crawl/pages.jsonl':<24}  one line per finished attempt",
        f"  {'crawl/politeness.jsonl':<24}  one line per request",
        f"  {'crawl/archive/':<24}  the responses, as WARC",
        "",
        "Try next:",
        f"  {_spoken()} status {shlex.quote(str(crawled))}",
        f"  {_spoken()} crawl https://example.org/ --contact you@example.org --max-pages 20",
        "",
        f"Demo took {seconds_text(time.monotonic() - begun)}.",
    )
    return exit_code(code, len(seen.violations))


if __name__ == "__main__":
    sys.exit(main())
