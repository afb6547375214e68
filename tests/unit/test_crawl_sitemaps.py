"""Sitemaps in a crawl: named by robots.txt, fetched as errands, read into pages. A failure ends one sitemap alone."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import re
from functools import partial
from time import process_time

import msgspec
import pytest

from fake_web import FakeNames, FakeWeb
from limiting import set_limits
from outrider import limits
from outrider.crawl.local_run import CrawlRun
from outrider.crawl.orders.exchange import import_files
from outrider.crawl.output.progress import NoProgress
from outrider.crawl.run import sitemaps
from outrider.crawl.run.fetching import Fetching
from outrider.crawl.run.sitemaps import Sitemaps
from outrider.crawl.setup.options import CrawlOptions
from outrider.engine import Frontier
from outrider.fetch.addresses import AddressGuard
from outrider.fetch.downloader import Request, Response
from outrider.frontier.verbs import deciding
from outrider.journey import Kind, RobotsAnswer, State
from outrider.limits import SITEMAPS_NAMED_BYTES_MAX
from unit.test_crawl_fetching import Hand
from unit.test_crawl_visit import lease

A, B = "http://a.test", "http://b.test"
HOSTS = {"a.test": ("127.0.0.1",), "b.test": ("127.0.0.2",), "c.test": ("127.0.0.3",)}
ROBOTS = f"{A}/robots.txt"
MAP = f"{A}/sitemap.xml"


def urlset(*urls: str, more: str = "") -> str:
    return "<urlset>" + "".join(f"<url><loc>{url}</loc>{more}</url>" for url in urls) + "</urlset>"


def index(*urls: str) -> str:
    return "<sitemapindex>" + "".join(f"<sitemap><loc>{url}</loc></sitemap>" for url in urls) + "</sitemapindex>"


class Web(FakeWeb):
    def __init__(self) -> None:
        super().__init__()
        self.pages: dict[str, str | tuple[int, str]] = {f"{A}/": "home", f"{B}/": "home of b"}
        self.dies_at: str | None = None

    async def fetch(self, request: Request) -> Response:
        if request.url == self.dies_at:
            raise ZeroDivisionError("the end of this process")
        return await super().fetch(request)


Names = partial(FakeNames, HOSTS)


class House:
    """Runs a crawl of a `Web` in a directory, by default from the home page of a.test."""

    def __init__(self, directory) -> None:
        self.output = directory / "out"
        self.web = Web()

    def crawl(self, *seeds: str, **options):
        def downloader(_options, clock):
            self.web.clock = clock
            return self.web

        fast = {"delay": 0, "delay_factor": 0, "user_agent": "Test"}
        crawler = CrawlRun(
            CrawlOptions(**{"output": str(self.output), **fast, **options}),
            seeds or [f"{A}/"],
            (),
            hosts=HOSTS,
            progress=NoProgress(io.StringIO()),
            make_downloader=downloader,
            make_names=Names,
        )
        return asyncio.run(crawler.run())

    def lines(self, name):
        return [json.loads(line) for line in (self.output / name).read_text().splitlines()]

    def pages(self):
        return {line["url"]: line for line in self.lines("pages.jsonl")}

    def log(self):
        return [line for line in (self.output / "crawl.log").read_text().splitlines() if " sitemap " in line]

    def names(self, *maps: str) -> None:
        """The robots.txt of a.test names these sitemaps."""
        self.web.pages[ROBOTS] = "User-agent: *\nDisallow: /closed\n" + "".join(f"Sitemap: {one}\n" for one in maps)


@pytest.fixture
def house(tmp_path):
    return House(tmp_path)


def test_pages_that_only_a_sitemap_names_are_fetched_at_depth_1(house):
    house.names("/sitemap.xml")
    house.web.pages |= {MAP: urlset(f"{A}/only"), f"{A}/only": "here"}
    assert 0 == house.crawl().exit_code
    line = house.pages()[f"{A}/only"]
    assert ("done", 1, MAP) == (line["outcome"], line["depth"], line["referrer"])
    assert MAP not in house.pages()


def test_a_sitemap_is_in_the_politeness_record_the_archive_and_the_log(house):
    house.names(MAP)
    house.web.pages |= {MAP: urlset(f"{A}/1", f"{A}/2")}
    house.crawl()
    assert [MAP] == [line["url"] for line in house.lines("politeness.jsonl") if line["kind"] == "sitemap"]
    (warc,) = (house.output / "archive").glob("*.warc*")
    assert warc.stat().st_size > 0
    (line,) = house.log()
    assert f"url={MAP}" in line
    assert "status=200" in line
    assert "urls=2" in line


def test_with_sitemaps_off_no_sitemap_is_requested(house):
    house.names(MAP)
    house.web.pages |= {MAP: urlset(f"{A}/only")}
    house.crawl(sitemaps=False)
    assert [ROBOTS, f"{A}/"] == house.web.urls


def test_a_sitemap_may_be_longer_than_a_page(house):
    house.names(MAP)
    house.crawl()
    limits = {one.url: one.bytes_max for one in house.web.asked}
    assert limits[MAP] > 52_428_800


def test_an_index_leads_to_its_sitemaps_and_each_is_requested_once(house):
    house.names(f"{A}/index.xml", f"{A}/index.xml", f"{A}/1.xml")
    house.web.pages |= {
        f"{A}/index.xml": index(f"{A}/1.xml", f"{A}/2.xml", f"{A}/index.xml"),
        f"{A}/1.xml": urlset(f"{A}/p1"),
        f"{A}/2.xml": urlset(f"{A}/p2"),
    }
    house.crawl()
    asked = [url for url in house.web.urls if url.endswith(".xml")]
    assert sorted({f"{A}/index.xml", f"{A}/1.xml", f"{A}/2.xml"}) == sorted(asked)
    assert {f"{A}/p1", f"{A}/p2"} <= set(house.pages())


def test_nested_indexes_end_after_two_levels(house):
    house.names(f"{A}/0.xml")
    house.web.pages |= {f"{A}/{n}.xml": index(f"{A}/{n + 1}.xml") for n in range(9)}
    house.crawl()
    assert [f"{A}/{n}.xml" for n in range(3)] == [url for url in house.web.urls if url.endswith(".xml")]
    assert "error=sitemap_nested" in house.log()[-1]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((404, ""), "status=404"),
        ("<urlset><url><loc>http://a.test/x</wrong>", "error=sitemap_unreadable"),
        ("<!doctype html><html><body>Not here</body></html>", "error=sitemap_unreadable"),
        ("", "error=sitemap_unreadable"),
        ((302, "http://b.test/s.xml"), "error=sitemap_redirect"),
        ((302, MAP + "?1"), "status=302"),
    ],
)
def test_an_invalid_sitemap_is_an_outcome_with_a_class_and_the_crawl_continues(house, answer, error):
    house.names(MAP)
    house.web.pages |= {MAP: answer, f"{A}/": "<a href=/next>on</a>", f"{A}/next": "end"}
    assert 0 == house.crawl().exit_code
    assert error in house.log()[0]
    assert "done" == house.pages()[f"{A}/next"]["outcome"]


def test_endless_redirects_are_left_after_five_hops(house):
    house.names(f"{A}/0.xml")
    house.web.pages |= {f"{A}/{n}.xml": (301, f"{A}/{n + 1}.xml") for n in range(9)}
    house.crawl()
    assert 6 == sum(url.endswith(".xml") for url in house.web.urls)
    assert "error=sitemap_redirect" in house.log()[-1]


def test_robots_txt_applies_to_sitemaps(house):
    house.names(f"{A}/closed/s.xml", f"{A}/index.xml")
    house.web.pages |= {f"{A}/index.xml": index(f"{A}/closed/t.xml", f"{A}/u.xml")}
    house.crawl()
    assert [f"{A}/index.xml", f"{A}/u.xml"] == [url for url in house.web.urls if url.endswith(".xml")]
    (line,) = [one for one in house.log() if "index.xml" in one]
    assert re.search(r"left_out=.*robots.*1", line)


def test_a_sitemap_on_an_unknown_host_is_left_alone(house):
    house.names("http://c.test/s.xml")
    house.crawl(scope="any")
    assert [] == [url for url in house.web.urls if "c.test" in url]


def test_a_sitemap_counts_for_its_folder_and_for_hosts_whose_robots_txt_names_it(house):
    house.names(f"{A}/maps/s.xml")
    house.web.pages |= {f"{A}/maps/s.xml": urlset(f"{A}/up", f"{A}/maps/in", f"{B}/foreign")}
    house.crawl(f"{A}/", f"{B}/")
    assert {f"{A}/", f"{B}/", f"{A}/up", f"{A}/maps/in"} == set(house.pages())
    assert re.search(r"left_out=.*location.*1", house.log()[0])


def test_entries_obey_scope_and_depth(house):
    house.names(MAP)
    house.web.pages |= {MAP: urlset(f"{A}/yes", f"{A}/no")}
    house.crawl(exclude=("/no",))
    assert {f"{A}/", f"{A}/yes"} == set(house.pages())


def test_with_a_maximum_depth_of_0_no_pages_of_sitemaps_are_fetched(house):
    house.names(MAP)
    house.web.pages |= {MAP: urlset(f"{A}/yes")}
    house.crawl(max_depth=0)
    assert {f"{A}/"} == set(house.pages())


def test_priority_and_date_of_an_entry_are_kept_with_its_url(house):
    house.names(MAP)
    house.web.pages[MAP] = urlset(f"{A}/x", more="<lastmod>2026-01-02</lastmod><priority>0.9</priority>")
    house.crawl(max_pages=1)
    with Frontier.open(house.output / "frontier", robots="errands", addresses="errands", output=True) as frontier:
        if frontier.status(f"{A}/x").state is State.QUEUED:
            (lease,) = frontier.lease(1)
            assert (0.95625, {"lastmod": "2026-01-02"}) == (lease.priority, dict(lease.metadata))
            return
    assert 0.95625 == house.pages()[f"{A}/x"]["priority"]


def test_pages_of_a_sitemap_are_leased_before_links_at_any_priority(house):
    house.names(MAP)
    house.web.pages[f"{A}/"] = "".join(f'<a href="/link{number}">' for number in range(3))
    house.web.pages[MAP] = urlset(f"{A}/x", f"{A}/y", more="<priority>0.0</priority>")
    house.crawl()
    order = [url.removeprefix(A) for url in house.web.urls]
    mapped, links = [order.index(path) for path in ("/x", "/y")], [order.index(f"/link{n}") for n in range(3)]
    assert max(mapped) < max(links)
    assert all(place < link for link in links for place in mapped if link > order.index("/sitemap.xml"))


def test_the_well_known_sitemap_is_requested_if_robots_txt_names_no_sitemap(house):
    house.web.pages[ROBOTS] = "User-agent: *\nDisallow: /private/\n"
    house.web.pages[MAP] = urlset(f"{A}/only-mapped")
    house.web.pages[f"{A}/only-mapped"] = "page"
    house.crawl()
    assert f"{A}/only-mapped" in house.pages()
    house.web.asked.clear()
    house.crawl(anew=True, sitemaps=False)
    assert MAP not in house.web.urls


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (f"{A}/1.xml", [f"{A}/1.xml"]),
        ("/1.xml", ["/1.xml"]),
        *((name, [name]) for name in ("sitemap.xml", "maps/1.xml", "sitemap.xml.gz", "index.php/map", "1.xml?a=b.c/d")),
        *(
            (f"{host}/1.xml", [f"//{host}/1.xml"])
            for host in ("a.test", "www.A.test", "a.test:8080", "cdn.b.test", "münchen.de")
        ),
        *(("a.test", ["//a.test"]), ("b.test", ["b.test"]), ("//b.test/1", ["//b.test/1"])),
        *(
            (f"{before}{A}/1.xml{behind}", [f"{A}/1.xml"])
            for before, behind in ("<>", '""', ("< ", " >"), "''", ("", ","), ("", ";"))
        ),
        *(
            (f"{A}/1.xml{by}{A}/2.xml", [f"{A}/1.xml", f"{A}/2.xml"])
            for by in (", ", ",", " ", "\t", ";", " ; ", ",,", "><", "> , <")
        ),
        ("/1.xml, /2.xml,/3.xml", ["/1.xml", "/2.xml", "/3.xml"]),
        ("1.xml, 2.xml", ["1.xml", "2.xml"]),
        ("a.test/1.xml b.test/2.xml", ["//a.test/1.xml", "//b.test/2.xml"]),
        (f"{A}/1,2.xml", [f"{A}/1,2.xml"]),
        (f"{A}/my map.xml", [f"{A}/my map.xml"]),
        *((line, []) for line in ("<>", ", ;")),
    ],
)
def test_a_sitemap_line_is_read_in_all_common_spellings(line, expected):
    assert expected == sitemaps.references(line, ROBOTS)


def test_a_sitemap_line_without_a_scheme_leads_to_its_host(house):
    house.web.pages[ROBOTS] = "Sitemap: a.test/1.xml\nSitemap: <http://a.test/2.xml>, /3.xml\n"
    for name in "123":
        house.web.pages[f"{A}/{name}.xml"] = urlset(f"{A}/only-{name}")
        house.web.pages[f"{A}/only-{name}"] = "page"
    house.crawl()
    assert {f"{A}/only-{name}" for name in "123"} <= set(house.pages())


def test_a_long_line_needs_time_in_proportion_to_its_size():
    started = process_time()
    for sign in (",", " ", "<", "a.", "/,", "; "):
        sitemaps.references(sign * 100_000, ROBOTS)
    assert process_time() - started < 5


@pytest.mark.parametrize("robots", [None, "User-agent: *\nDisallow: /sitemap.xml\n", f"Sitemap: {A}/other.xml\n"])
def test_the_well_known_sitemap_is_left_alone_without_a_robots_txt_where_it_closes_it_or_names_another(house, robots):
    if robots is not None:
        house.web.pages[ROBOTS] = robots
    house.crawl()
    assert MAP not in house.web.urls


def test_a_scope_function_judges_entries(house):
    house.names(MAP)
    house.web.pages |= {MAP: urlset(f"{A}/yes", f"{A}/no")}
    house.crawl(scope=lambda urls, page: [not url.endswith("/no") for url in urls.strings()])
    assert {f"{A}/", f"{A}/yes"} == set(house.pages())


def test_a_failing_hook_ends_only_its_sitemap(house):
    def broken(urls, page):
        if page is not None and page.url == MAP:
            raise ValueError("no")
        return [True] * len(urls)

    house.names(MAP)
    house.web.pages |= {MAP: urlset(f"{A}/yes")}
    assert 0 == house.crawl(scope=broken).exit_code
    assert any("error=hook_scope" in line for line in house.log())


@pytest.mark.parametrize("dies_at", [f"{A}/index.xml", f"{A}/1.xml", f"{A}/2.xml", f"{A}/p1"])
def test_a_run_that_ends_at_any_point_continues_and_requests_no_sitemap_twice(house, dies_at):
    house.names(f"{A}/index.xml")
    house.web.pages |= {
        f"{A}/index.xml": index(f"{A}/1.xml", f"{A}/2.xml"),
        f"{A}/1.xml": urlset(f"{A}/p1"),
        f"{A}/2.xml": urlset(f"{A}/p2"),
    }
    house.web.dies_at = dies_at
    with pytest.raises(ZeroDivisionError):
        house.crawl()
    house.web.dies_at = None
    assert 0 == house.crawl().exit_code
    assert sorted(set(house.web.urls)) == sorted(house.web.urls)
    assert {f"{A}/", f"{A}/p1", f"{A}/p2"} == set(house.pages())


def test_a_crash_between_queueing_and_the_report_repeats_only_the_robots_txt(house, monkeypatch):
    house.names(MAP)
    house.web.pages |= {MAP: urlset(f"{A}/only")}
    with monkeypatch.context() as patched:
        patched.setattr(sitemaps.Sitemaps, "_write", lambda self, queued: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            house.crawl()
    assert 0 == house.crawl().exit_code
    assert [1, 2] == [house.web.urls.count(MAP), house.web.urls.count(ROBOTS)]
    assert [MAP] == [line["url"] for line in house.lines(sitemaps.SITEMAPS_FILE)]


def test_a_torn_end_of_the_list_is_overwritten(house):
    house.names(MAP)
    house.web.pages |= {MAP: urlset(f"{A}/only")}
    house.output.mkdir()
    (house.output / "outrider.toml").write_text("")
    (house.output / sitemaps.SITEMAPS_FILE).write_text('{"url":"http://z.test/s.xml","authority":"http://z.test"}\n{"u')
    house.crawl()
    assert ["http://z.test/s.xml", MAP] == [line["url"] for line in house.lines(sitemaps.SITEMAPS_FILE)]


def test_a_robots_txt_names_no_more_sitemaps_than_the_limit(house, monkeypatch):
    set_limits(monkeypatch, SITEMAPS_PER_AUTHORITY_MAX=3)
    house.names(*(f"{A}/{n}.xml" for n in range(9)))
    house.crawl()
    assert 3 == sum(url.endswith(".xml") for url in house.web.urls)


def test_a_robots_txt_on_a_host_with_a_long_name_names_no_more_sitemaps_than_fit_into_one_frame(monkeypatch):
    """Names on its own host are short in the file, but as long as the host name in the frontier. A frame has 256 MB."""
    monkeypatch.setattr(deciding, "FRAME_PAYLOAD_BYTES_MAX", 30_000_000)
    long, lines = f"{A}/{'x' * 8_000}/", b"".join(b"Sitemap: %05d\n" % number for number in range(2_000))
    with Frontier.memory(robots="errands") as frontier:
        frontier.discover([f"{A}/"])
        reader, answer = Sitemaps(frontier, CrawlOptions()), RobotsAnswer(200, b"User-agent: *\n" + lines)
        found = reader.of_robots(f"{long}r", A, answer)
        reader.queue([found])
        most = SITEMAPS_NAMED_BYTES_MAX // len(f"{long}00000")
        assert (most, {"limit": 2_000 - most}) == (frontier.statistics()["errands"], found.left_out)


def test_the_sitemaps_of_many_answers_are_queued_in_one_frame_and_each_counts_once():
    """Two hops of one sitemap may arrive in one turn. Each answer gets the result of its own hop."""
    hosts = [f"http://{name}.test" for name in "ab"]
    with Frontier.memory(robots="errands") as frontier:
        frontier.discover([f"{host}/" for host in hosts])
        reader = Sitemaps(frontier, CrawlOptions())
        finds = [
            reader.of_robots(f"{host}/robots.txt", host, RobotsAnswer(200, b"Sitemap: %b/m.xml\n" % host.encode()))
            for host in (*hosts, hosts[0])
        ]
        before = frontier.statistics()["log"]["appended_lsn"]
        reader.queue(finds)
        assert (2, 1) == (frontier.statistics()["errands"], frontier.statistics()["log"]["appended_lsn"] - before)
        assert [([], {})] * 3 == [(found.named, found.left_out) for found in finds]


def test_sitemaps_that_robots_txt_closes_are_judged_up_to_the_same_limit():
    """Each verdict may need milliseconds, and a lease lasts a minute and a half."""
    long, lines = f"{A}/{'x' * 8_000}/", b"".join(b"Sitemap: %05d\n" % number for number in range(2_000))
    with Frontier.memory(robots="errands") as frontier:
        answer = RobotsAnswer(200, b"User-agent: *\nDisallow: /x\n" + lines)
        found = Sitemaps(frontier, CrawlOptions()).of_robots(f"{long}r", A, answer)
        most = SITEMAPS_NAMED_BYTES_MAX // len(f"{long}00000")
        assert ([], {"robots": most, "limit": 2_000 - most}) == (found.named, found.left_out)


def test_the_limit_of_sitemap_urls_of_a_crawl_includes_earlier_runs(house, monkeypatch):
    set_limits(monkeypatch, SITEMAPS_PER_CRAWL_BYTES_MAX=3 * len(f"{A}/0.xml"))
    house.names(*(f"{A}/{n}.xml" for n in range(2)))
    house.web.pages[f"{A}/0.xml"] = index(*(f"{A}/{n}.xml" for n in range(2, 9)))
    house.crawl()
    house.names(f"{A}/9.xml")
    house.crawl(f"{A}/", f"{B}/")
    assert [f"{A}/{n}.xml" for n in range(3)] == [line["url"] for line in house.lines(sitemaps.SITEMAPS_FILE)]


def test_a_frontier_answers_whether_robots_txt_allows_a_url():
    with Frontier.memory(robots="errands") as frontier:
        frontier.discover([f"{A}/", f"{B}/"])
        told = {"a.test": (200, b"User-agent: *\nDisallow: /no\n"), "b.test": (404, b"")}
        frontier.report([one.robots(*told[one.host]) for one in frontier.lease(2, errands=True)])
        urls = [f"{A}/yes", f"{A}/no", f"{B}/x", "http://c.test/"]
        assert [True, False, True, None] == frontier.robots_allow(urls)


# -- told by hand ------------------------------------------------------------------------------------------------------


def imported(directory, name: str, text: str | bytes):
    path = directory / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return import_files(str(directory / "out"), [str(path)], io.StringIO())


def test_an_imported_sitemap_yields_its_pages_for_any_host(house, tmp_path):
    entries = urlset(f"{A}/x", f"{B}/y", more="<priority>0.9</priority>")
    assert {"imported": 2} == imported(tmp_path, "sitemap.xml", entries).codes
    assert {"known": 2} == imported(tmp_path, "again.xml.gz", gzip.compress(entries.encode())).codes
    with Frontier.open(tmp_path / "out" / "frontier", robots="caller") as frontier:
        assert [("queued", 0.95625, 0)] * 2 == [
            (str(one.state), one.priority, one.depth) for one in map(frontier.status, (f"{A}/x", f"{B}/y"))
        ]


def test_the_sitemaps_of_an_imported_index_are_fetched(house, tmp_path):
    assert {"sitemaps queued": 2} == imported(tmp_path, "index.xml", index(MAP, f"{A}/more.xml")).codes
    house.web.pages[MAP] = urlset(f"{A}/only-mapped")
    house.web.pages[f"{A}/only-mapped"] = "page"
    house.crawl()
    assert f"{A}/only-mapped" in house.pages()
    assert [1, 1] == [house.web.urls.count(url) for url in (MAP, f"{A}/more.xml")]


@pytest.mark.parametrize("text", ["<html><p>none", "", "<urlset><url><loc>nonsense:</loc></url></urlset>"])
def test_a_file_without_a_sitemap_is_reported_as_such(tmp_path, text):
    found = imported(tmp_path, "sitemap.xml", text)
    assert (1, {}) == (found.skipped, found.codes)


# -- many at once ------------------------------------------------------------------------------------------------------


def test_sitemaps_beyond_four_use_no_place_of_the_crawl():
    told: list[int] = []

    async def many() -> list[int]:
        hand = Hand()
        fetching = Fetching(
            hand,
            Names(),
            AddressGuard(("127.0.0.0/8",)),
            user_agent="Test",
            loopback_only=True,
            clock=lambda: 0,
            make_room=lambda: told.append(1),
        )
        tokens = list(range(1, limits.SITEMAPS_AT_ONCE + 11))
        for token in tokens:
            one = msgspec.structs.replace(
                lease(), url=f"http://a.test/{token}.xml", token=token, kind=Kind.SITEMAP, address="127.0.0.1"
            )
            fetching.begin([one], lambda *_: None)
        counts = [fetching.aside]
        asked = [[token] for token in tokens[: limits.SITEMAPS_AT_ONCE + 1]]
        assert asked[:-1] == hand.begun
        fetching.break_off(tokens[-1:])
        counts.append(fetching.aside)
        fetching.break_off(tokens[:1])
        assert asked == hand.begun
        fetching.break_off()
        assert asked == hand.begun
        return [*counts, fetching.aside, len(fetching)]

    assert [10, 9, 0, 0] == asyncio.run(many())
    assert 10 == len(told)
