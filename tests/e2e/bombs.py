"""A small web of pages whose links need far more memory than their bodies, and crawls of it with their peak memory."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from e2e import crawling

_RUN = """
import sys
from outrider.cli.main import main
try:
    main()
finally:
    with open("/proc/self/status") as file:
        peak = next(line for line in file if line.startswith("VmHWM:"))
    print("peak", peak.split()[1], file=sys.stderr)
"""
"""The command, which says its highest resident memory in the end: ru_maxrss would count the tests' own, too."""


class Web:
    """Hosts h0.test, h1.test … on one port; each has one page, all of the same body, and small pages linked from it."""

    def __init__(self, port: int, directory: Path, hosts: int) -> None:
        self.port = port
        self.directory = directory
        self.hosts = hosts
        self.page = b""
        self.asked: list[str] = []

    def seeds(self, path: str) -> list[str]:
        return [f"http://h{number}.test:{self.port}{path}" for number in range(self.hosts)]

    def arguments(self, output: Path, path: str, *more: str) -> list[str]:
        """The arguments for a crawl that begins at `path` of each host."""
        names, seeds = self.directory / "hosts", self.directory / "seeds"
        names.write_text("".join(f"127.0.0.1 h{number}.test\n" for number in range(self.hosts)))
        seeds.write_text("".join(f"{seed}\n" for seed in self.seeds(path)))
        pace = ("--delay", "0", "--delay-factor", "0", "--progress", "none", "--no-traps")
        return ["crawl", f"@{seeds}", "-o", str(output), "--hosts", str(names), *pace, *more]


@contextmanager
def web(directory: Path, *, hosts: int, bomb: str, page: bytes) -> Iterator[Web]:
    """Answers until the block ends: `page` at the path `bomb` of every host, and a word anywhere else."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            found.asked.append(self.path)
            robots = self.path == "/robots.txt"
            body = found.page if self.path == bomb else b"" if robots else self.path.encode()
            self.send_response(404 if robots else 200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 1_024  # a request is sent to every host at once
        daemon_threads = True

    directory.mkdir(exist_ok=True)
    server = Server(("127.0.0.1", 0), Handler)
    found = Web(server.server_address[1], directory, hosts)
    found.page = page
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def links(count: int, *, base: str = "", above: str = "") -> bytes:
    """Returns a page of this number of links, each a dozen bytes long as written."""
    head = f"<base href='{base}'>" if base else ""
    return (head + "".join(f"<a href={above}p{number}>" for number in range(count))).encode()


def run(*arguments: str) -> tuple[subprocess.CompletedProcess, int]:
    """The command run to its end, and the most memory it had resident, in bytes."""
    done = subprocess.run(
        [sys.executable, "-c", _RUN, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=crawling.ROOT,
        env=crawling.environment(PYTHONPATH=f"{crawling.ROOT}/src"),
        check=False,
    )
    told = [line for line in done.stderr.splitlines() if line.startswith("peak ")]
    assert told, done.stderr[-2_000:]
    return done, int(told[-1].split()[1]) << 10
