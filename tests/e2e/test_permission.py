"""A crawl of a site that says what its pages may be used for and asks for payment, as each reader sees it."""

from __future__ import annotations

import gzip
import json
import subprocess
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.request import urlopen

import pyarrow.parquet
import pytest
from warcio.archiveiterator import ArchiveIterator

from e2e.crawling import ROOT, command, environment, outrider
from e2e.loopback import listening

ROBOTS = b"User-agent: *\nContent-Usage: /closed/ train-ai=n\nContent-Signal: search=yes\n"
NOAI = b"<meta name=robots content=noai><title>SECRET</title>SECRET"
TDMREP = b'[{"location": "/noai", "tdm-reservation": 1, "tdm-policy": "https://a.test/policy"}]'
LINKS = b"".join(b"<a href=/%b></a>" % path for path in (b"closed/1", b"noai", b"field", b"free"))
PAID = b"".join(b"<a href=/paid/%d></a>" % number for number in range(20))


class Planted(BaseHTTPRequestHandler):
    """A site with a statement of each source, and a part behind 402."""

    paths: list[str]

    def do_GET(self) -> None:
        self.paths.append(self.path)
        pages = {"/robots.txt": ROBOTS, "/": LINKS + PAID, "/noai": NOAI, "/field": b"SECRET", "/free": b"free"}
        pages["/.well-known/tdmrep.json"] = TDMREP
        fields = {"/field": ("Content-Usage", "train-ai=n, ai-use=y"), "/free": ("TDM-Reservation", "0")}
        paid = self.path.startswith("/paid/")
        body = b"" if paid else pages.get(self.path, b"SECRET")
        self.send_response(402 if paid else 200)
        self.send_header("Content-Type", "text/plain" if self.path == "/robots.txt" else "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.send_header(*fields.get(self.path, ("Crawler-Price", "USD 0.01")))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


@pytest.fixture
def site() -> Iterator[tuple[str, list[str]]]:
    paths: list[str] = []
    with listening(type("Site", (Planted,), {"paths": paths})) as address:
        yield address, paths


def crawled(start: str, output: Path, *more: str) -> dict[str, dict]:
    """Crawls the site. Returns the lines of its pages, by path."""
    done = outrider("crawl", start, "-o", output, "--delay", "0", "--delay-factor", "0", "--no-sitemaps", *more)
    assert 0 == done.returncode, done.stderr
    lines = map(json.loads, (output / "pages.jsonl").read_text("utf-8").splitlines())
    return {line["url"].removeprefix(start.rstrip("/")): line for line in lines}


def explained_over_rest(output: Path, start: str, paths: Iterable[str]) -> dict[str, dict]:
    """Returns the preferences of each page, as a server of the crawl explains them."""
    words = command("serve", output, "--http", "127.0.0.1:0")
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment()) as server:
        try:
            at = f"{server.stderr.readline().split()[-1]}/api/v1/explain?url={start.rstrip('/')}"
            return {path: json.load(urlopen(at + path, timeout=60))["preferences"] for path in paths}
        finally:
            server.kill()


def test_every_reader_sees_the_same_preferences(site, tmp_path):
    start, paths = site
    lines = crawled(start, tmp_path / "out", "--tdmrep")
    assert ["/robots.txt", "/.well-known/tdmrep.json", "/"] == paths[:3]
    said = {one["source"]: one for one in lines["/noai"]["preferences"]["said"]}
    assert "https://a.test/policy" == said["file tdm-reservation"]["policy"]
    assert {"train-ai": "n", "search": "y"} == lines["/closed/1"]["preferences"]["uses"]
    assert {"train-ai": "n", "ai-use": "y", "search": "y"} == lines["/field"]["preferences"]["uses"]
    told = {path: line["preferences"] for path, line in lines.items()}
    archived = {}
    for file in sorted((tmp_path / "out/archive").glob("*.warc.gz")):
        with file.open("rb") as stream:
            for record in ArchiveIterator(stream):
                if field := record.rec_headers.get_header("Outrider-Preferences"):
                    url = record.rec_headers.get_header("WARC-Target-URI")
                    archived[url.removeprefix(start.rstrip("/"))] = json.loads(field)
    assert told == archived
    done = outrider("export", tmp_path / "out", "--what", "pages", "--to", tmp_path / "pages.parquet")
    assert 0 == done.returncode, done.stderr
    table = pyarrow.parquet.read_table(tmp_path / "pages.parquet").to_pylist()
    columns = {row["url"].removeprefix(start.rstrip("/")): json.loads(row["preferences"]) for row in table}
    assert told == columns
    for path in ("/closed/1", "/noai", "/field", "/free"):
        done = outrider("explain", start.rstrip("/") + path, "-o", tmp_path / "out", "--json")
        assert told[path] == json.loads(done.stdout)["preferences"]
    assert told == explained_over_rest(tmp_path / "out", start, told)
    assert 3 == len([path for path in paths if path.startswith("/paid/")])


def test_with_a_wanted_use_refused_pages_are_not_requested_or_not_kept(site, tmp_path):
    start, paths = site
    lines = crawled(start, tmp_path / "out", "--use", "train-ai")
    assert "/closed/1" not in paths
    assert {"/closed/1": "use", "/noai": "use", "/field": "use", "/free": None} == {
        path: lines[path].get("error") for path in ("/closed/1", "/noai", "/field", "/free")
    }
    assert "n" == lines["/closed/1"]["preferences"]["uses"]["train-ai"]
    for file in (tmp_path / "out").rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert b"SECRET" not in (gzip.decompress(content) if file.suffix == ".gz" else content), file


def test_the_report_names_what_a_site_asks_for(site, tmp_path):
    start, paths = site
    lines = crawled(start, tmp_path / "out")
    paid = [line for path, line in lines.items() if path.startswith("/paid/")]
    assert [("asks_payment", "payment", "crawler-price USD 0.01")] * 3 == [
        (line["outcome"], line["error"], line["payment"]) for line in paid
    ]
    status = json.loads(outrider("status", tmp_path / "out", "--json").stdout)
    assert {"127.0.0.1": "asks USD 0.01 a page"} == status["payments"]["hosts"]
    assert "asks USD 0.01 a page" in (tmp_path / "out/report.html").read_text("utf-8")
    assert "asks USD 0.01 a page" in outrider("hosts", tmp_path / "out").stdout
    done = outrider("retry", tmp_path / "out", "--error", "payment")
    assert 0 == done.returncode, done.stderr
    outrider("resume", tmp_path / "out")
    assert 6 == len([path for path in paths if path.startswith("/paid/")])
