"""Exports of the archive, judged by the tools that use them: `cdxj-indexer`, `warcio`, `surt`, `wacz` and `pywb`."""

from __future__ import annotations

import gzip
import http.client
import json
import random
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from warcio.archiveiterator import ArchiveIterator

import outrider
from e2e.crawling import on, web
from e2e.crawling import outrider as command
from fake_web import FakeWeb
from outrider.fetch.downloader import Headers, Request, Response
from outrider.url import archive_key
from servers.programs import answers, free_port, running

ETAG = '"one"'
FIELDS = ("offset", "length", "digest", "status")
URLS = 20_000


def judge(project: Path, name: str) -> str:
    """A program of the environment that `make test-servers` makes for tools of web archives."""
    path = project / ".venv-judges" / "bin" / name
    if not path.exists():
        pytest.fail(".venv-judges is missing: run `python3 scripts/install.py --servers`")
    return str(path)


def judged(*arguments: str | Path) -> str:
    done = subprocess.run(list(map(str, arguments)), capture_output=True, text=True, timeout=200, check=False)
    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout


def exported(crawl: Path, name: str) -> Path:
    done = command("export", crawl, "--to", crawl.parent / name)
    assert 0 == done.returncode, done.stderr
    return crawl.parent / name


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A crawl of the demo web, with sitemaps."""
    place = tmp_path_factory.mktemp("judged")
    (place / "web").mkdir()
    with web(place / "web", hosts=16, pages=160, quirks=True) as served:
        done = command(*on(served, place / "demo", "--sitemaps"))
    assert 0 == done.returncode, done.stderr
    return place / "demo"


class Odd(FakeWeb):
    """Pages with odd URLs and heads, an ETag, and a 304 to a request with it."""

    pages: ClassVar = {
        "/": "".join(
            f"<a href='{path}'>x</a>" for path in ("/%41?b=1&A=2", "//two//", "/a/?", "/%E9?%zz", "/x;y=%2520")
        ),
        "/%41?b=1&A=2": "one",
        "//two//": "two",
        "/a/?": "three",
        "/%E9?%zz": "four",
        "/x;y=%2520": "five",
    }

    async def fetch(self, request: Request) -> Response:
        found = await super().fetch(request)
        head = found.head.replace(b"\r\n\r\n", b"\r\nETag: %b\r\n\r\n" % ETAG.encode())
        if "two" in request.url:
            head = head.replace(b"Content-Type: text/html", b"content-type:\tTEXT/HTML ;charset=x")
        elif "five" in request.url or "/a/" in request.url:
            head = head.replace(b"Content-Type: text/html\r\n", b"")
        if dict(request.headers).get("If-None-Match") == ETAG:
            status = b"HTTP/1.1 304 Not Modified"
            body, head = b"", status + head[head.index(b"\r\n") :]
            return replace(found, status=304, head=head, headers=Headers.parse(head), body=body, content=body)
        return replace(found, head=head, headers=Headers.parse(head))


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A crawl of odd pages, each visited three times."""
    place = tmp_path_factory.mktemp("odd")
    (place / "hosts").write_text("127.0.0.1 www3.two.test\n")
    options: dict[str, Any] = {"downloader": Odd, "hosts": str(place / "hosts"), "delay": 0, "delay_factor": 0}
    outrider.crawl(
        ["http://www3.two.test/"],
        output=place / "odd",
        revisit=lambda page: 0 if page.lease.visits + 1 < 3 else None,
        **options,
    )
    return place / "odd"


@pytest.mark.parametrize("name", ["demo", "odd"])
def test_the_index_is_that_of_cdxj_indexer(project: Path, name: str, request: pytest.FixtureRequest) -> None:
    crawl: Path = request.getfixturevalue(name)
    theirs = judged(judge(project, "cdxj-indexer"), "-s", crawl / "archive")
    assert theirs == exported(crawl, "all.cdxj").read_text("ascii")
    assert "warc/revisit" in theirs


def test_warcio_finds_each_record_at_its_place(project: Path, demo: Path) -> None:
    fields = "warc-type,offset,length,warc-payload-digest,http:status"
    lines = judged(
        judge(project, "warcio"), "index", "-f", fields, *sorted((demo / "archive").glob("*.gz"))
    ).splitlines()
    theirs = sorted(
        (one["offset"], one["length"], one["warc-payload-digest"], one["http:status"])
        for one in map(json.loads, lines)
        if one["warc-type"] in ("response", "revisit")
    )
    ours = [json.loads(line.split(" ", 2)[2]) for line in exported(demo, "all.cdxj").read_text("ascii").splitlines()]
    assert theirs == sorted(tuple(one[field] for field in FIELDS) for one in ours)
    assert theirs


def url_of(made: random.Random) -> str:
    hosts = (
        "example.org",
        "www.example.org",
        "www12.a.b.co.uk",
        "192.0.2.7",
        "[2001:db8::1]",
        "EXAMPLE.org.",
        "www.com",
    )
    parts = (
        *(
            "a",
            "B",
            "%41",
            "%2541",
            "%20",
            "%00",
            "%C3%A9",
            "//",
            "/",
            "/./",
            "/../",
            "..",
            ".",
            "?",
            "&",
            "=",
            "x=2",
            "y=1",
        ),
        *(
            "sid=" + "0" * 32,
            "&jsessionid=" + "A" * 32,
            "&phpsessid=" + "b" * 32,
            "cfid=1&cftoken=2",
            "%",
            "%zz",
            "+",
            ":",
        ),
        *("(a(" + "x" * 24 + "))/", "(" + "q" * 24 + ")/", "x.aspx", "%23", '"', "\\", "%2F", ";", "ü", "~"),
    )
    port = made.choice(("", ":80", ":443", ":8080"))
    rest = "".join(made.choice(parts) for _ in range(made.randrange(9)))
    return f"{made.choice(('http', 'https'))}://{made.choice(hosts)}{port}/{rest}"


def test_keys_are_those_of_the_package_surt(project: Path, tmp_path: Path) -> None:
    made = random.Random(11)
    urls = [url_of(made) for _ in range(URLS)]
    (tmp_path / "urls.json").write_text(json.dumps(urls))
    code = "import json, surt, sys; print(json.dumps([surt.surt(url) for url in json.load(open(sys.argv[1]))]))"
    theirs = json.loads(judged(judge(project, "python"), "-c", code, tmp_path / "urls.json"))
    assert {} == {
        url: (key, archive_key(url)) for url, key in zip(urls, theirs, strict=True) if key != archive_key(url)
    }


@pytest.mark.parametrize("name", ["demo", "odd"])
def test_wacz_validates(project: Path, name: str, request: pytest.FixtureRequest) -> None:
    crawl: Path = request.getfixturevalue(name)
    assert "valid" in judged(judge(project, "wacz"), "validate", "-f", exported(crawl, "all.wacz"))


@pytest.fixture(scope="module")
def player(project: Path, demo: Path) -> Iterator[str]:
    """The address of pywb with the WACZ of the demo web."""
    place = demo.parent / "player"
    place.mkdir()
    for arguments in (("init", "all"), ("add", "--unpack-wacz", "all", exported(demo, "played.wacz"))):
        done = subprocess.run(
            [judge(project, "wb-manager"), *map(str, arguments)], cwd=place, capture_output=True, text=True, check=False
        )
        assert 0 == done.returncode, done.stderr
    port = free_port()
    start = [judge(project, "wayback"), "-b", "127.0.0.1", "-p", str(port), "-d", place]
    with running(start, log=place / "log", ready=lambda: answers(f"http://127.0.0.1:{port}/all/")):
        yield f"http://127.0.0.1:{port}/all"


def bodies_of(crawl: Path) -> Iterator[tuple[str, str, bytes]]:
    """The URL, the time and the content of each answer with 200 in the archive. A revisit has the content of the
    response with the same digest."""
    contents: dict[str, bytes] = {}
    for path in sorted((crawl / "archive").glob("*.warc.gz")):
        with path.open("rb") as file:
            for record in ArchiveIterator(file):
                if record.rec_type not in ("response", "revisit") or record.http_headers.get_statuscode() != "200":
                    continue
                fields = record.rec_headers
                digest = fields.get_header("WARC-Payload-Digest")
                if record.rec_type == "response":
                    contents.setdefault(digest, record.content_stream().read())
                stamp = "".join(filter(str.isdigit, fields.get_header("WARC-Date")))[:14]
                yield fields.get_header("WARC-Target-URI"), stamp, contents[digest]


def test_pywb_replays_every_page_with_an_equal_body(player: str, demo: Path) -> None:
    count = 0
    assert any(b'"payload":' in line for line in (demo / "pages.jsonl").read_bytes().splitlines())
    for url, stamp, body in bodies_of(demo):
        with urllib.request.urlopen(f"{player}/{stamp}id_/{url}", timeout=30) as answer:
            try:
                found = answer.read()
            except http.client.IncompleteRead as cut:  # the crawl had cut it at its limit
                found = cut.partial
            if answer.headers.get("Content-Encoding") == "gzip":
                found = gzip.decompress(found)
        assert body == found, url
        count += 1
    assert count > 100


def test_pywb_finds_nothing_that_was_not_crawled(player: str) -> None:
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(f"{player}/2026id_/http://other.test/", timeout=30)
