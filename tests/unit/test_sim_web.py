"""The demo web: the same for the same seed, consistent with its own description, and judged by its own log."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import re
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

import pytest

from outrider.sim import verdict as judge
from outrider.sim.web import BUSY_SECONDS, LARGE_BYTES, DemoServer, DemoWeb, HostRole


@pytest.fixture(scope="module")
def web() -> DemoWeb:
    return DemoWeb(seed=7, port=8080)


def ask(web: DemoWeb, url: str, now: float = 1e6):
    parts = urlsplit(url)
    return web.answer(parts.hostname or "", (parts.path or "/") + (f"?{parts.query}" if parts.query else ""), now)


class _Links(HTMLParser):
    """The links of a page as an independent reader without the package finds them."""

    def __init__(self, url: str, text: str) -> None:
        super().__init__()
        self.base, self.found = url, []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        fields = dict(attrs)
        if tag == "base":
            self.base = urljoin(self.base, fields["href"])
        elif tag == "a" and fields.get("rel") != "nofollow":
            self.found.append(urljoin(self.base, fields["href"]))
        elif tag == "meta" and fields.get("http-equiv") == "refresh":
            self.found.append(urljoin(self.base, fields["content"].split("url=")[1]))


def spelled(url: str) -> str:
    """Returns a URL in its one spelling, as far as this web needs it."""
    parts = urlsplit(url)
    path = re.sub(r"%([46-7][0-9A-Fa-f])", lambda found: chr(int(found[1], 16)), parts.path).replace("/./", "/")
    return f"http://{parts.netloc.lower()}{path or '/'}{'?' + parts.query if parts.query else ''}"


def crawled(web: DemoWeb, limit: int = 5_000) -> set[str]:
    """Returns the pages that a plain reader of the served HTML gets with 200, by following links and redirects."""
    known, got, waiting = set(web.seeds()), set(), list(web.seeds())
    while waiting and len(known) < limit:
        url = waiting.pop()
        parts = urlsplit(url)
        if web.endless(url) or web.closed(parts.hostname or "", parts.path):
            continue
        answer = ask(web, url)
        headers = dict(answer.headers)
        if answer.status == 200:
            got.add(url)
        kind = headers.get("Content-Type", "")
        found = []
        if "Location" in headers:
            found.append(urljoin(url, headers["Location"]))
        elif kind.startswith("text/html"):
            found = _Links(url, answer.body[:2_000_000].decode("latin-1")).found
        for onward in map(spelled, found):
            if onward not in known:
                known.add(onward)
                waiting.append(onward)
    return got


def test_the_same_seed_makes_the_same_web(web):
    other = DemoWeb(seed=7, port=8080)
    assert [ask(web, url) for url in sorted(web.may_fetch())] == [ask(other, url) for url in sorted(web.may_fetch())]


def test_another_seed_makes_another_web(web):
    assert web.must_fetch() != DemoWeb(seed=8, port=8080).must_fetch()


def test_the_reachable_pages_are_exactly_those_that_must_be_fetched(web):
    assert web.must_fetch() == crawled(web)


def test_the_web_has_twenty_hosts_and_some_six_hundred_pages(web):
    assert (20, True) == (len(web.hosts), 550 <= len(web.must_fetch()) <= 650)


def test_only_the_calendar_host_has_many_pages(web):
    counts = {host: sum(urlsplit(url).hostname == host for url in web.may_fetch()) for host in web.hosts}
    assert [] == [host for host, count in counts.items() if count > 50]


def test_every_page_that_must_be_fetched_is_answered_with_200(web):
    assert {200} == {ask(web, url).status for url in web.must_fetch()}


def test_some_pages_are_unreachable(web):
    assert {200} == {ask(web, url).status for url in web.out_of_reach()}


def test_the_busy_host_refuses_at_first_and_recovers(web):
    url = web.url(web.host_of(HostRole.BUSY))
    assert (503, 200) == (ask(web, url, 0.2).status, ask(web, url, BUSY_SECONDS).status)


def test_the_slow_host_is_slow_for_pages_but_not_for_robots(web):
    url = web.url(web.host_of(HostRole.SLOW))
    assert (0.3, 0.0) == (ask(web, url).delay_seconds, ask(web, f"{url}robots.txt").delay_seconds)


def test_the_calendar_continues_in_both_directions(web):
    text = ask(web, web.url(web.host_of(HostRole.ENDLESS), "/calendar/2026/01/")).body.decode()
    assert all(month in _Links("http://x/", text).found or month in text for month in ("2025/12/", "2026/02/"))


def test_exact_duplicates_are_equal_byte_by_byte_and_near_ones_are_not(web):
    host = web.host_of(HostRole.COPIES)
    exact = [url for url in web.must_fetch() if url.endswith("?print=1")]
    near = [url for url in web.must_fetch() if url.startswith(web.url(host, "/copies/"))]
    assert (5, 3) == (len(exact), len(near))
    assert [] == [url for url in exact if ask(web, url).body != ask(web, url.removesuffix("?print=1")).body]
    assert [] == [url for url in near if ask(web, url).body == ask(web, url.replace("/copies/", "/")).body]


def test_the_large_page_is_above_the_limit_with_a_link_only_after_it(web):
    body = ask(web, web.url(web.host_of(HostRole.LARGE), "/letters/everything.html")).body
    assert len(body) >= LARGE_BYTES
    assert 2_000_000 < body.index(b"behind-the-cut")


def test_pages_in_other_charsets_say_so(web):
    answer = ask(web, web.url(web.host_of(HostRole.LETTERS), "/letters/cyrillic.html"))
    assert ("Content-Type", "text/html") in answer.headers
    assert "паром" in answer.body.decode("windows-1251")


def test_clients_that_accept_gzip_get_it_from_the_packed_host(web):
    host = web.host_of(HostRole.PACKED)
    packed = web.answer(host, "/", 0, takes_gzip=True)
    assert web.answer(host, "/", 0).body == gzip.decompress(packed.body)


def test_a_web_without_quirks_has_plain_hosts_only():
    assert {HostRole.PLAIN} == set(DemoWeb(hosts=3, pages=30, quirks=False).roles.values())


def test_too_few_hosts_for_the_roles_are_refused_with_the_numbers():
    with pytest.raises(ValueError, match="not 5 hosts and 600 pages"):
        DemoWeb(hosts=5)


class Visitor(contextlib.ExitStack):
    """Requests paths of the served web, with one connection per host."""

    def __init__(self, server: DemoServer) -> None:
        super().__init__()
        self.server = server
        self.connections: dict[str, http.client.HTTPConnection] = {}

    def get(self, host: str, path: str, **headers: str) -> http.client.HTTPResponse:
        port = self.server.web.port
        if host not in self.connections:
            self.connections[host] = http.client.HTTPConnection(self.server.addresses[host], port)
            self.callback(self.connections[host].close)
        line = self.connections[host]
        line.request("GET", path, headers={"Host": f"{host}:{port}", **headers})
        answer = line.getresponse()
        answer.content = answer.read()
        return answer


def visited(tmp_path, *asked: tuple[str, str], **settings: float):
    """Returns the verdict on a visitor that requests these (host name without suffix, path) without any pause."""
    server = DemoServer(lambda port: DemoWeb(port=port), tmp_path)
    with server as served, Visitor(server) as visitor:
        for name, path in asked:
            visitor.get(f"{name}.demo.test", path)
    return judge.judge(served.log_file, delay=settings.get("delay", 0.0))


def test_connections_are_reused_between_requests(tmp_path):
    verdict = visited(tmp_path, ("harbour", "/robots.txt"), ("harbour", "/"), ("harbour", "/x"))
    assert (3, 1, []) == (len(verdict.requests), verdict.hosts["harbour.demo.test"].connections, verdict.breaches)


def test_the_judge_finds_a_gap_that_is_too_small(tmp_path):
    verdict = visited(tmp_path, ("harbour", "/robots.txt"), ("harbour", "/"), delay=0.5)
    assert ["0.500 s required"] == [breach[-16:] for breach in verdict.breaches]


def test_the_judge_uses_a_crawl_delay_as_the_required_gap(tmp_path):
    verdict = visited(tmp_path, ("patient-clock", "/robots.txt"), ("patient-clock", "/"), delay=0.0)
    assert ["1.000 s required"] == [breach[-16:] for breach in verdict.breaches]


def test_the_judge_finds_missing_robots_before_the_first_page(tmp_path):
    verdict = visited(tmp_path, ("harbour", "/"))
    assert ["robots.txt was not answered yet"] == [breach.split(": ")[1] for breach in verdict.breaches]


def test_the_judge_finds_a_closed_path_and_its_exception(tmp_path):
    paths = ("/robots.txt", "/private/bed-1.html", "/private/open-day.html", "/notes/x.draft", "/notes/x.draft.html")
    verdict = visited(tmp_path, *(("private-garden", path) for path in paths))
    assert ["/private/bed-1.html", "/notes/x.draft"] == [
        breach.split(" ")[0].removeprefix("private-garden.demo.test") for breach in verdict.breaches
    ]


def test_the_judge_finds_a_broken_retry_after(tmp_path):
    verdict = visited(tmp_path, ("busy-bakery", "/robots.txt"), ("busy-bakery", "/"), ("busy-bakery", "/"))
    assert 1 == len(verdict.breaches)
    assert verdict.breaches[0].endswith("before Retry-After had passed")


def test_simultaneous_requests_are_counted():
    one = judge.LoggedRequest("a", "/", 200, 1.0, 3.0, 0, 1, None, None)
    two = judge.LoggedRequest("a", "/", 200, 2.0, 4.0, 0, 2, None, None)
    after = judge.LoggedRequest("a", "/", 200, 4.0, 5.0, 0, 2, None, None)
    assert 2 == judge._concurrent([one, two, after])


def test_a_host_requested_at_the_address_of_another_is_refused(tmp_path):
    server = DemoServer(lambda port: DemoWeb(port=port), tmp_path)
    with server, Visitor(server) as visitor:
        answer = visitor.get("harbour.demo.test", "/", Host="orchard.demo.test")
    assert 421 == answer.status


def test_faults_that_the_server_itself_found_are_in_the_log(tmp_path):
    visited(tmp_path, ("private-garden", "/private/bed-1.html"))
    assert '"violations": ["before-robots", "closed"]' in (tmp_path / "access.log").read_text()
