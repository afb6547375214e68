"""`parts`: the CPU time of the parts of a crawl with WARC.

`python -m bench.parts FILE crawl …` runs `outrider crawl …`, and writes the CPU seconds of its parts into FILE. A part
is the time of some functions in their thread, without other parts that they call. The rest of a thread's time is
its own part. Another part is the process's time outside Python's threads: the threads of the kernels.
"""

from __future__ import annotations

import asyncio
import functools
import json
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.measuring import CACHE
from bench.tables import Table

BEGIN, LOOP, END = "start, imports too", "requests and answers (event loop)", "report.html and summary"
BOOKS, READING, KERNELS = "turns, what else they do", "reading, what else it does", "kernels' own threads, libraries"
THREADS = {"outrider-books": BOOKS, "outrider-reading": READING}


class Parts:
    """CPU seconds by part, of all threads."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inner = threading.local()
        self._lock = threading.Lock()

    def taken(self, name: str, work: Callable[[], Any]) -> Any:
        """Returns the result of `work`. Counts its time in this thread, without the time of parts in it."""
        outer, self._inner.seconds = getattr(self._inner, "seconds", 0.0), 0.0
        begun = time.thread_time()
        try:
            return work()
        finally:
            took = time.thread_time() - begun
            with self._lock:
                self.seconds[name] = self.seconds.get(name, 0.0) + took - self._inner.seconds
            self._inner.seconds = outer + took

    def watch(self, owner: Any, attribute: str, name: str) -> None:
        """Counts the calls of a function or method as a part."""
        function = getattr(owner, attribute)

        @functools.wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            return self.taken(name, lambda: function(*args, **kwargs))

        setattr(owner, attribute, watched)


def _watch_all(parts: Parts) -> None:
    from outrider.crawl import start
    from outrider.crawl.output.output import Output
    from outrider.crawl.run import reading, settle
    from outrider.engine import Frontier

    parts.watch(asyncio, "run", LOOP)
    parts.watch(start, "conclude", END)
    parts.watch(Frontier, "lease", "lease")
    parts.watch(Frontier, "report", "report: links decided, logged, synced")
    parts.watch(Output, "write", "line files")
    parts.watch(Output, "keep", "archive written and synced")
    parts.watch(Output, "sync_archive", "archive written and synced")
    parts.watch(settle, "page_outcome", "outcomes and their lines")
    parts.watch(Output, "packed", "records of the archive: digests, gzip")
    parts.watch(reading, "content_digest", "records of the archive: digests, gzip")
    parts.watch(reading, "read_many", "pages: links, text, SimHash")
    parts.watch(settle.Settler, "_tell_copies", "copies and probes")
    plain = threading.Thread.run

    def run(thread: threading.Thread) -> None:
        name = next((part for begin, part in THREADS.items() if thread.name.startswith(begin)), None)
        if name is None:
            plain(thread)
        else:
            parts.taken(name, lambda: plain(thread))

    threading.Thread.run = run  # type: ignore[method-assign]


def tables() -> list[Table]:
    """Runs two crawls and returns the cheaper one, because other processes can only add time."""
    from bench import crawl
    from bench.webs import serving

    CACHE.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="parts-", dir=CACHE))
    try:
        with serving(directory / "web", crawl.PRESET) as web:
            found: list[tuple[float, int, dict[str, float]]] = []
            for row in range(2):
                file = directory / f"{row}.json"
                pages = crawl.ours(web, directory / f"out-{row}", "--warc", parts=file).pages
                seconds = json.loads(file.read_text(encoding="utf-8"))
                found.append((sum(seconds.values()) / pages, pages, seconds))
            title = web.title
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    each, pages, seconds = min(found, key=lambda one: one[0])
    rows: list[tuple[object, ...]] = [
        (name, took / pages * 1e6, f"{took / pages / each:.0%}")
        for name, took in sorted(seconds.items(), key=lambda part: -part[1])
    ]
    rows.append(("together", each * 1e6, None))
    notes = (
        f"A crawl of {pages:,} pages with WARC on {title}; CPU time, with that of the timers.",
        "If few hosts are left, a turn has few pages, which share its fixed cost.",
    )
    return [Table("parts", "Where the CPU time of a crawl goes", ("part", "µs a page", "share"), tuple(rows), notes)]


def main() -> None:
    file = Path(sys.argv.pop(1))
    parts = Parts()
    _watch_all(parts)
    from outrider.cli.main import main as command

    begun = time.process_time()
    try:
        parts.taken(BEGIN, command)
    finally:
        parts.seconds[BEGIN] += begun
        parts.seconds[KERNELS] = max(0.0, time.process_time() - sum(parts.seconds.values()))
        file.write_text(json.dumps(parts.seconds), encoding="utf-8")


if __name__ == "__main__":
    main()
