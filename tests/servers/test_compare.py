"""COMPARE.md: the code of both sides runs as printed, against one small site, and gets the same titles."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

PRINTED_PORT = "8123"
PAGES = {f"/{number}.html": f"Page {number}" for number in range(1, 6)}


class Site(BaseHTTPRequestHandler):
    """Five pages in a row, and robots.txt that allows them."""

    def log_message(self, *arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        title = PAGES.get(self.path)
        following = int(self.path.strip("/").removesuffix(".html")) + 1 if title else 0
        link = f"<a href=/{following}.html>next</a>" if f"/{following}.html" in PAGES else ""
        body = b"User-agent: *\nDisallow:\n" if self.path == "/robots.txt" else f"<title>{title}</title>{link}".encode()
        self.send_response(200 if title or self.path == "/robots.txt" else 404)
        self.send_header("Content-Type", "text/plain" if self.path == "/robots.txt" else "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def port() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield str(server.server_port)
    server.shutdown()
    server.server_close()


def peer(project: Path, name: str) -> str:
    """The program of the environment that `make test-servers` makes for other crawlers."""
    path = project / ".venv-peers" / "bin" / name
    if not path.exists():
        pytest.fail(".venv-peers is missing: run `python3 scripts/install.py --servers`")
    return str(path)


def run_block(project: Path, side: str, port: str, folder: Path, command: list[str]) -> None:
    """Writes the block of one side to a file, with the port of the site, and runs it."""
    found = re.search(rf"<!-- {side} -->\n```python\n(.*?)```", (project / "COMPARE.md").read_text("utf-8"), re.DOTALL)
    assert found is not None
    (folder / "block.py").write_text(found[1].replace(PRINTED_PORT, port))
    done = subprocess.run([*command, "block.py"], cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def expected(port: str) -> dict[str, str]:
    return {f"http://127.0.0.1:{port}{path}": title for path, title in PAGES.items()}


def test_the_code_for_scrapy_gets_all_titles(project: Path, port: str, tmp_path: Path) -> None:
    run_block(project, "scrapy", port, tmp_path, [peer(project, "scrapy"), "runspider"])
    lines = [json.loads(line) for line in (tmp_path / "scrapy.jsonl").read_text().splitlines()]
    assert expected(port) == {line["url"]: line["title"] for line in lines}


def test_the_code_for_crawlee_gets_all_titles(project: Path, port: str, tmp_path: Path) -> None:
    run_block(project, "crawlee", port, tmp_path, [peer(project, "python")])
    lines = json.loads((tmp_path / "crawlee.json").read_text())
    assert expected(port) == {line["url"]: line["title"] for line in lines}


def test_the_code_for_outrider_gets_all_titles(project: Path, port: str, tmp_path: Path) -> None:
    run_block(project, "outrider", port, tmp_path, [sys.executable])
    lines = [json.loads(line) for line in (tmp_path / "titles" / "items.jsonl").read_text().splitlines()]
    assert expected(port) == {line["url"]: line["title"] for line in lines}
