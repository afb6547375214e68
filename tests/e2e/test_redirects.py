"""Redirects that lead to another spelling of their own URL, on and on, or into the traps, by a crawl over HTTP."""

from __future__ import annotations

import socketserver
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e import crawling

Answer = tuple[int, str, str]  # status, Location, body


class Redirecting(socketserver.ThreadingTCPServer):
    """Answers each target by a function, and counts what was asked for."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, answer: Callable[[str], Answer]) -> None:
        self.asked: Counter[str] = Counter()
        asked = self.asked

        class Handler(socketserver.StreamRequestHandler):
            timeout = 20

            def handle(self) -> None:
                while line := self.rfile.readline():
                    target = line.split(b" ")[1].decode("latin-1")
                    while self.rfile.readline().strip():
                        pass
                    asked[target] += 1
                    status, location, body = answer(target)
                    fields = [f"HTTP/1.1 {status} X", "Content-Type: text/html", f"Content-Length: {len(body)}"]
                    fields += [f"Location: {location}"] if location else []
                    self.wfile.write("\r\n".join((*fields, "", body)).encode("latin-1"))

        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def redirecting(answer: Callable[[str], Answer]) -> Iterator[Redirecting]:
    with Redirecting(answer) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()


def crawled(server: Redirecting, output: Path, *more: str) -> list[dict]:
    """The lines of a crawl from the root."""
    done = crawling.outrider(
        *("crawl", f"{server.root}/", "-o", str(output), "--delay", "0", "--delay-factor", "0", "--no-sitemaps"),
        *("--progress", "none", *more),
    )
    assert done.returncode == 0, done.stderr
    return crawling.pages(output)


SPELLED: dict[str, Answer] = {
    "/robots.txt": (200, "", "User-agent: *\nDisallow: /closed?\nDisallow: /*?seen=2\n"),
    "/": (
        200,
        "",
        "".join(f"<a href={path}>x</a>" for path in ("/x", "/loop", "/twice", "/closed", "/self", "/tilde")),
    ),
    "/x": (302, "/x?", ""),
    "/x?": (200, "", "<title>here</title><a href=/y>y</a>"),
    "/y": (200, "", "y"),
    "/loop": (301, "/loop?", ""),
    "/loop?": (301, "/loop", ""),
    "/twice": (302, "/twice?#top", ""),
    "/twice?": (404, "", ""),
    "/closed": (302, "/closed?", ""),
    "/self": (302, "/self#top", ""),
    "/tilde": (302, "/%7etilde/../tilde", ""),
}


def test_another_spelling_of_the_same_url_is_requested_once_as_it_is_written(tmp_path: Path) -> None:
    with redirecting(lambda target: SPELLED.get(target, (404, "", ""))) as server:
        lines = crawled(server, tmp_path / "out", "--retries", "0")
    asked = {target: server.asked[target] for target in SPELLED}
    assert {**dict.fromkeys(SPELLED, 1), "/closed?": 0} == {**asked, "/closed?": server.asked["/closed?"]}
    ends = {
        line["url"].removeprefix(server.root): (
            line["outcome"], line.get("requested", "").removeprefix(server.root), line.get("title")
        )
        for line in lines
    }  # fmt: skip
    assert ("done", "/x?", "here") == ends["/x"]
    assert ("redirect", "/loop?", None) == ends["/loop"]
    assert ("gone", "/twice?", None) == ends["/twice"]
    assert ("redirect", "", None) == ends["/closed"]
    record = next(line for line in lines if line.get("title") == "here")
    shown = crawling.outrider("show", record["url"], "-o", str(tmp_path / "out"))
    assert "here" in shown.stdout


def test_files_for_crawlers_are_asked_for_in_other_spellings_too(tmp_path: Path) -> None:
    answers: dict[str, Answer] = {
        "/robots.txt": (302, "/robots.txt?", ""),
        "/robots.txt?": (200, "", "User-agent: *\nDisallow: /closed\nSitemap: /map.xml\n"),
        "/map.xml": (302, "/map.xml?", ""),
        "/map.xml?": (200, "", "<urlset><url><loc>{}/mapped</loc></url></urlset>"),
        "/": (200, "", "<a href=/closed>c</a>"),
        "/mapped": (200, "", "m"),
    }

    def answer(target: str) -> Answer:
        status, location, body = answers.get(target, (404, "", ""))
        return status, location, body.format(server.root)

    with redirecting(answer) as server:
        crawled(server, tmp_path / "out", "--sitemaps")
    assert dict.fromkeys(answers, 1) == server.asked


def test_a_parameter_that_the_rules_leave_out_is_sent_where_a_site_insists_on_it(tmp_path: Path) -> None:
    """Every page wants to see its cookie parameter: they are pages, and no trap."""

    def answer(target: str) -> Answer:
        path, _, query = target.partition("?")
        if path == "/robots.txt":
            return 404, "", ""
        if path == "/":
            return 200, "", "".join(f"<a href=/p{number}>p</a>" for number in range(60))
        return (200, "", f"<p>page {path} has words of its own") if query else (302, f"{path}?utm_source=me", "")

    with redirecting(answer) as server:
        lines = crawled(server, tmp_path / "out", "--url-rules", "tracking")
    assert 60 == sum(line["outcome"] in ("done", "duplicate") and "requested" in line for line in lines)
    assert {1} == set(server.asked.values())


def test_the_target_of_the_sixth_redirect_is_a_link_of_its_own(tmp_path: Path) -> None:
    def answer(target: str) -> Answer:
        if target == "/":
            return 200, "", "<a href=/r/0>r</a>"
        number = int(target.removeprefix("/r/")) if target.startswith("/r/") else -1
        if 0 <= number < 8:
            return 302, f"/r/{number + 1}", ""
        return (200, "", "the end") if number == 8 else (404, "", "")

    with redirecting(answer) as server:
        lines = crawled(server, tmp_path / "out")
    found = {line["url"].removeprefix(server.root): (line["outcome"], line["depth"]) for line in lines}
    assert [("redirect", 1), ("redirect", 2), ("done", 2)] == [found[f"/r/{number}"] for number in (5, 6, 8)]


def test_redirects_without_end_come_to_an_end(tmp_path: Path) -> None:
    def answer(target: str) -> Answer:
        if target == "/":
            return 200, "", "<a href=/r/0>r</a>"
        if not target.startswith("/r/"):
            return 404, "", ""
        return 302, f"/r/{int(target.removeprefix('/r/')) + 1}", ""

    with redirecting(answer) as server:
        lines = crawled(server, tmp_path / "out")
    assert 200 < len(lines) < 400
    assert "redirect" == lines[-1]["outcome"]
