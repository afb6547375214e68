"""A robots.txt that breaks off on its way is requested again, and nothing is fetched until one arrives whole."""

from __future__ import annotations

import asyncio
import gzip
import zlib

import pytest

from e2e.downloaders import each_downloader, new  # noqa: F401 - a fixture
from e2e.hostile import Connection, Script, closes_after, hostile
from outrider import Frontier
from outrider.clock import wall
from outrider.crawl.run.visit import Judgement, Visit, judged, robots_outcome
from outrider.fetch.downloader import Request
from outrider.journey import Kind, Lease, Verdict
from outrider.limits import BODY_BYTES_MAX, MICROSECONDS

pytestmark = pytest.mark.usefixtures("each_downloader")
AGENT = "Outrider/0.1 (+https://example.org/bot)"
WORDS = b"User-agent: *\nDisallow: /private\n"
CUT = WORDS[:-8]  # "Disallow: /" would close the whole site
PACKED = gzip.compress(b"User-agent: *\n" + b"".join(b"Disallow: /%d\n" % n for n in range(1_000)), 0)


def head(*fields: str, status: str = "200 OK") -> bytes:
    return "\r\n".join((f"HTTP/1.1 {status}", "Content-Type: text/plain", *fields, "", "")).encode()


def coded(coding: str, body: bytes) -> bytes:
    return head(f"Content-Encoding: {coding}", f"Content-Length: {len(body)}") + body


CHUNKED = "Transfer-Encoding: chunked"
BROKEN = {
    "closed before its length": head("Content-Length: 500") + CUT,
    "closed before the last chunk": head(CHUNKED) + b"%x\r\n%b\r\n" % (len(CUT), CUT),
    "closed within a chunk": head(CHUNKED) + b"%x\r\n%b" % (len(WORDS), CUT),
    "a chunk that is none": head(CHUNKED) + b"%x\r\n%b\r\nnonsense\r\n" % (len(WORDS), WORDS),
    "a chunk extension too long": head(CHUNKED) + b"%x;x=%b\r\n%b\r\n0\r\n\r\n" % (len(WORDS), b"y" * 5_000, WORDS),
    "gzip that ends early": coded("gzip", PACKED[:5_000]),
    "gzip that is corrupt": coded("gzip", gzip.compress(WORDS)[:20] + b"\xff" * 40),
    "gzip that is none": coded("gzip", b"\x00\x01\x02 nothing that anybody can read"),
    "deflate that is none": coded("deflate", b"\xff\xfe\xfd\xfc nothing that anybody can read"),
    "brotli that is none": coded("br", b"\xff\xff\x80hello\x03"),
    "brotli that ends early": coded("br", b"\x0b\x02\x80he"),
    "zstd that ends early": coded("zstd", b"\x28\xb5\x2f\xfd\x24\x05\x29\x00\x00hello"),
    "an unknown coding": coded("x-zip", b"PK\x03\x04\x14\x00 rules that nobody can read"),
    "three layers": coded("gzip, gzip, gzip", gzip.compress(gzip.compress(gzip.compress(WORDS)))),
    "a part": head("Content-Range: bytes 0-24/33", f"Content-Length: {len(CUT)}", status="206 Partial Content") + CUT,
}


def visited(lease: Lease, answer: bytes | Script) -> Visit:
    """Fetches the lease's URL from a server that sends this answer and closes."""
    script = closes_after(answer) if isinstance(answer, bytes) else answer

    async def main() -> Visit:
        async with hostile(script) as site:
            downloader = new()
            try:
                url = f"http://site.test:{site.port}/{lease.url.split('/', 3)[3]}"
                return Visit(lease, wall(), wall(), await downloader.fetch(Request(url, "127.0.0.1", AGENT)))
            finally:
                await downloader.close()

    return asyncio.run(main())


class Crawl:
    """A frontier on a virtual clock, with one closed page and one open one."""

    def __init__(self) -> None:
        self.now = wall()
        self.frontier = Frontier.memory(clock=lambda: self.now, robots="errands", settings={"delay_factor": 0.0})
        self.frontier.discover(["http://site.test/private", "http://site.test/open"])

    def leases(self, seconds: float) -> list[Lease]:
        self.now += int(seconds * MICROSECONDS)
        return list(self.frontier.lease(10, errands=True))

    def answers(self, lease: Lease, answer: bytes | Script) -> None:
        assert lease.kind is Kind.ROBOTS
        self.frontier.report([robots_outcome(visited(lease, answer))])


@pytest.mark.parametrize("fault", BROKEN)
def test_a_robots_txt_that_breaks_off_is_requested_again_and_closes_the_site_meanwhile(fault: str) -> None:
    """RFC 9309 section 2.3.1.4: the received part does not count, nor does the file count as missing."""
    crawl = Crawl()
    (errand,) = crawl.leases(0)
    for pause in (5, 30, 300):
        crawl.answers(errand, BROKEN[fault])
        assert [] == crawl.leases(pause - 1)
        (errand,) = crawl.leases(1)
        assert Kind.ROBOTS is errand.kind
    crawl.answers(errand, head(f"Content-Length: {len(WORDS)}") + WORDS)
    asked = [lease.url for _ in range(3) for lease in _done(crawl, crawl.leases(10))]
    assert ["http://site.test/open"] == asked


@pytest.mark.parametrize(
    "answer",
    [
        coded("aws-chunked", WORDS),
        coded("gzip, aws-chunked", WORDS),
        coded("gzip", WORDS),
        coded("deflate", WORDS),
        coded("br", WORDS),
        coded("gzip", gzip.compress(WORDS)[:-8] + b"checksum"),
        coded("deflate", zlib.compress(WORDS)[:-4] + b"none"),
    ],
)
def test_a_robots_txt_of_text_is_valid_under_any_declared_coding(answer: bytes) -> None:
    crawl = Crawl()
    (errand,) = crawl.leases(0)
    crawl.answers(errand, answer)
    asked = [lease.url for _ in range(3) for lease in _done(crawl, crawl.leases(10))]
    assert ["http://site.test/open"] == asked


def _done(crawl: Crawl, leases: list[Lease]) -> list[Lease]:
    crawl.frontier.report([lease.done(seconds=0.1) for lease in leases])
    return leases


@pytest.mark.parametrize("fault", ["closed before its length", "brotli that is none", "a part"])
def test_a_robots_txt_that_breaks_off_each_time_closes_the_site_for_a_day(fault: str) -> None:
    crawl = Crawl()
    (errand,) = crawl.leases(0)
    for pause in (5, 30, 300, 10):
        crawl.answers(errand, BROKEN[fault])
        found = crawl.leases(pause)
        errand = found[0] if found else errand
    assert ([], "robots_unreachable") == (found, crawl.frontier.status("http://site.test/open").error)


def test_a_robots_txt_beyond_the_size_limit_counts_up_to_its_last_whole_line() -> None:
    """Half of the line at the limit, "Disallow: /", would close the site; after the limit nothing counts."""
    start = b"User-agent: *\nDisallow: /private\n"
    filling = b"#" * (BODY_BYTES_MAX - len(start) - len(b"\nDisallow: /")) + b"\n"
    body = start + filling + b"Disallow: /x" * 300_000
    crawl = Crawl()
    (errand,) = crawl.leases(0)

    async def endless(connection: Connection) -> None:
        await connection.request()
        await connection.send(head("Content-Length: 9999999") + body)

    crawl.answers(errand, endless)
    asked = [lease.url for _ in range(3) for lease in _done(crawl, crawl.leases(10))]
    assert ["http://site.test/open"] == asked


@pytest.mark.parametrize("coding", ["gzip", "identity"])
def test_a_packed_robots_txt_beyond_the_size_limit_counts_up_to_its_last_whole_line(coding: str) -> None:
    """Rules up to 500 KiB count also where the answer unpacks to far more."""
    start = b"User-agent: *\nDisallow: /private\n"
    body = start + b"#" * (BODY_BYTES_MAX - len(start) - len(b"\nDisallow: /")) + b"\nDisallow: /x" * 200_000
    crawl = Crawl()
    (errand,) = crawl.leases(0)
    crawl.answers(errand, coded(coding, gzip.compress(body) if coding == "gzip" else body))
    asked = [lease.url for _ in range(3) for lease in _done(crawl, crawl.leases(10))]
    assert ["http://site.test/open"] == asked


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (coded("br", b"\xff\xff\x80hello\x03"), Judgement("error", Verdict.GONE, "decode")),
        (coded("zstd", b"\x28\xb5\x2f\xfd"), Judgement("error", Verdict.GONE, "decode")),
        (coded("x-rot13", b"<c>uryyb</c>"), Judgement("done", Verdict.DONE)),
        (coded("aws-chunked", b"PK\x03\x04"), Judgement("error", Verdict.GONE, "decode")),
        (coded("gzip", gzip.compress(b"<p>hello")[:-8] + bytes(8)), Judgement("done", Verdict.DONE, "decode")),
        (coded("gzip", gzip.compress(b"<p>hello")[:-12]), Judgement("truncated", Verdict.DONE, "decode")),
        (coded("deflate", b"<p>hello"), Judgement("done", Verdict.DONE)),
        (coded("gzip, gzip, gzip", gzip.compress(b"x")), Judgement("error", Verdict.GONE, "decode")),
        (coded("gzip", b"\x1f\x8b\x08"), Judgement("error", Verdict.GONE, "decode")),
        (coded("gzip", gzip.compress(b"") * 5_000), Judgement("truncated", Verdict.DONE)),
        (coded("gzip", gzip.compress(bytes(3_000_000))), Judgement("truncated", Verdict.DONE)),
        (head(CHUNKED) + b"5;%b\r\nhello\r\n0\r\n\r\n" % (b"y" * 5_000), Judgement("error", Verdict.GONE, "malformed")),
        (coded("utf-8", b"<p>hello"), Judgement("done", Verdict.DONE)),
        (head("Content-Encoding: br", "Content-Length: 0"), Judgement("done", Verdict.DONE)),
    ],
    ids=[
        *(
            "brotli",
            "zstd",
            "unknown",
            "unknown and no text",
            "checksum",
            "cut",
            "plain",
            "layers",
            "gzip without content",
            "members",
            "bomb",
            "extension",
        ),
        *("a charset", "nothing"),
    ],
)
def test_a_page_has_the_result_of_its_decoding(answer: bytes, expected: Judgement) -> None:
    """A page is never done with 0 bytes, nor with bytes that cannot be decoded."""
    frontier = Frontier.memory(robots="caller")
    frontier.discover(["http://site.test/page"])
    (lease,) = frontier.lease(1)
    assert expected == judged(visited(lease, answer))


# -- what each status and each redirect means, over HTTP ---------------------------------------------------------------


def opens(answers: dict[str, bytes]) -> tuple[set[str], int]:
    """Returns the pages that a frontier leases within ten minutes, and how many requests for a robots.txt it made.
    answers: by path, an empty one for all other paths."""
    crawl, pages, asked = Crawl(), set(), 0
    for _ in range(20):
        for lease in crawl.leases(30):
            if lease.kind is Kind.ROBOTS:
                asked += 1
                crawl.answers(lease, answers.get(lease.url.split("/", 3)[3], answers[""]))
            else:
                pages.add(lease.url.rpartition("/")[2])
                crawl.frontier.report([lease.done(seconds=0.1)])
    return pages, asked


def answer(status: int, *fields: str) -> bytes:
    body = b"" if status in (204, 304) else WORDS
    return head(f"Content-Length: {len(body)}", *fields, status=f"{status} Words") + body


RULES, ALL, NONE = {"open"}, {"open", "private"}, set()
"""RFC 9309 section 2.3.1; 429 and 206 as docs/decisions/robots.md says."""
STATUSES = {
    **dict.fromkeys((200, 201, 203, 226, 299), RULES),
    **dict.fromkeys((204, 300, 301, 302, 303, 307, 308), ALL),  # redirects that name no place
    **dict.fromkeys((400, 401, 402, 403, 404, 405, 406, 408, 410, 418, 421, 451, 499), ALL),
    **dict.fromkeys((206, 429, 500, 501, 502, 503, 504, 507, 511, 520, 599), NONE),
}


def test_each_status_means_over_http_what_the_rfc_says():
    found = {status: opens({"": answer(status)}) for status in STATUSES}
    assert STATUSES == {status: pages for status, (pages, _) in found.items()}
    attempts = {status: 1 if pages else 4 for status, pages in STATUSES.items()}
    assert attempts == {status: asked for status, (_, asked) in found.items()}


@pytest.mark.parametrize(
    ("places", "pages", "asked"),
    [
        (["/r1"], RULES, 2),
        (["/r1", "/r2", "/r3", "/r4", "/r5"], RULES, 6),
        (["/r1", "/r2", "/r3", "/r4", "/r5", "/r6"], ALL, 6),  # five hops are followed, as section 2.3.1.2 wants
        (["/robots.txt"], ALL, 6),
        (["HTTP://OTHER.TEST/x#part"], RULES, 2),
        (["//other.test/x"], RULES, 2),
        (["?x=1"], RULES, 2),
        (["http://user:secret@site.test/x"], RULES, 2),
        (["ftp://site.test/robots.txt"], ALL, 1),
        (["javascript:alert(1)"], ALL, 1),
        (["http://[::1"], ALL, 1),
        ([""], ALL, 6),
    ],
)
def test_each_redirect_of_a_robots_txt_leads_where_it_says(places, pages, asked):
    answers = {"": answer(200)}
    for at, place in zip(["robots.txt", *(place.lstrip("/") for place in places)], places, strict=False):
        answers[at] = answer(301, f"Location: {place}")
    assert (pages, asked) == opens(answers)


@pytest.mark.parametrize("status", [300, 301, 302, 303, 307, 308])
def test_each_status_of_a_redirect_is_followed(status):
    assert (RULES, 2) == opens({"robots.txt": answer(status, "Location: /r"), "": answer(200)})


def test_a_redirect_to_a_failing_file_closes_the_site_and_is_followed_anew_each_time():
    answers = {"robots.txt": answer(301, "Location: /r"), "": answer(500)}
    assert (NONE, 8) == opens(answers)
