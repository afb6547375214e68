"""`outrider.fetch.Fetcher`: batches in, answers out, from any thread or event loop; each from a checked address."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from fake_web import FakeWeb
from limiting import set_limits
from outrider import Frontier
from outrider.errors import ClosedError, OutriderError, SettingsError
from outrider.fetch import Fetcher, FetchError


class Site(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    let_go = threading.Event()

    def do_GET(self):
        self.server.asked.append((self.path, self.headers["User-Agent"]))  # first: the client may look at once
        if self.path == "/held":
            self.let_go.wait(30)
        body = b"User-agent: *\nDisallow: /no" if self.path == "/robots.txt" else self.path.encode() * 3
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def site():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    server.asked = []
    Site.let_go.clear()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield server
    Site.let_go.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def fetcher():
    named = {f"h{n}.test": ["127.0.0.1"] for n in range(20)}
    with Fetcher(hosts=named) as one:
        yield one


def all_of(fetcher):
    found = []
    while fetcher.under_way:
        found += fetcher.drain(wait_seconds=20)
    return found


def test_a_batch_is_fetched_and_drained(site, fetcher):
    urls = [f"http://h{n}.test:{site.server_port}/{n}" for n in range(20)]
    assert 20 == fetcher.submit(urls)
    found = {one.url: one for one in all_of(fetcher)}
    assert set(urls) == set(found)
    assert all(one.error is None and one.response.status == 200 for one in found.values())
    assert b"/7/7/7" == found[urls[7]].response.content
    assert found[urls[7]].seconds > 0
    assert [] == fetcher.drain(wait_seconds=20)  # nothing is under way: it does not wait


def test_each_fault_is_an_answer_with_its_error(site, fetcher):
    faults = {
        "http://127.0.0.1:25/": FetchError.BLOCKED_PORT,
        "http://10.0.0.1/": FetchError.BLOCKED_ADDRESS,
        "http://93.184.216.34/": FetchError.BLOCKED_ADDRESS,  # no contact was given
        "http://127.0.0.1:1/": FetchError.BLOCKED_PORT,
        "http://name.invalid/": FetchError.DNS_UNKNOWN,
        "ftp://h1.test/": FetchError.MALFORMED,
        "": FetchError.MALFORMED,
        "http://\ud800/": FetchError.MALFORMED,
    }
    fetcher.submit([*faults, f"http://h1.test:{site.server_port}/good"])
    found = {one.url: one for one in all_of(fetcher)}
    assert faults == {url: found[url].error for url in faults}
    assert all(found[url].response is None and found[url].error_text for url in faults)
    assert found[f"http://h1.test:{site.server_port}/good"].error is None


def test_leases_are_fetched_and_reported(site, fetcher):
    """The loop of a crawler of one's own: the frontier says when, robots.txt is its first lease."""
    home = f"http://h1.test:{site.server_port}/"
    with Frontier.memory(robots="errands", settings={"delay": 0, "delay_factor": 0}) as frontier:
        frontier.discover([home + path for path in ("a", "b", "no")])
        deadline = time.monotonic() + 30
        while not frontier.finished() and time.monotonic() < deadline:
            fetcher.submit(frontier.lease(10, errands=True, wait_seconds=0.05))
            for one in fetcher.drain(wait_seconds=1):
                frontier.report([one.outcome(links=[home + "more"] if one.url.endswith("/a") else [])])
        assert frontier.finished()
        assert "done" == frontier.status(home + "more").state
    assert ["/robots.txt", "/a", "/b", "/more"] == [path for path, _ in site.asked]


def test_it_is_awaited_and_a_cancelled_call_loses_no_answer(site):
    async def main():
        async with Fetcher(hosts={"h1.test": ["127.0.0.1"]}) as fetcher:
            fetcher.submit([f"http://h1.test:{site.server_port}/held"])
            waiting = asyncio.create_task(fetcher.drained(wait_seconds=30))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert [] == await fetcher.drained(wait_seconds=0.01)
            Site.let_go.set()
            return await fetcher.drained(wait_seconds=30)

    assert [b"/held" * 3] == [one.response.content for one in asyncio.run(main())]


def test_it_names_itself_in_the_request(site):
    with Fetcher(contact="me@example.org", user_agent="mine", hosts={"h1.test": ["127.0.0.1"]}) as fetcher:
        fetcher.submit([f"http://h1.test:{site.server_port}/"])
        all_of(fetcher)
    assert [("/", "mine (+me@example.org)")] == site.asked


def test_one_connection_a_host_at_a_time(site, fetcher):
    fetcher.submit([f"http://h1.test:{site.server_port}/{path}" for path in ("held", "next")])
    assert [] == fetcher.drain(wait_seconds=0.2)
    Site.let_go.set()
    assert ["/held", "/next"] == [one.url[-5:] for one in all_of(fetcher)]


def test_a_close_ends_what_is_under_way(site, fetcher):
    fetcher.submit([f"http://h1.test:{site.server_port}/held"])
    waiting = []
    thread = threading.Thread(target=lambda: waiting.append(fetcher.drain(wait_seconds=60)))
    thread.start()
    fetcher.close()
    thread.join(20)
    assert [[]] == waiting
    fetcher.close()
    with pytest.raises(ClosedError, match="make another"):
        fetcher.submit(["http://h1.test/"])


def test_answers_that_are_not_drained_delay_requests(site, fetcher, monkeypatch):
    set_limits(monkeypatch, FETCHED_BYTES_MAX=1)
    fetcher.submit([f"http://h1.test:{site.server_port}/{n}" for n in range(100)])
    assert fetcher.drain(wait_seconds=20)
    assert len(site.asked) < 100
    all_of(fetcher)
    assert 100 == len(site.asked)


def test_more_than_may_be_under_way_is_refused_whole(fetcher, monkeypatch):
    set_limits(monkeypatch, SUBMITTED_MAX=2)
    with pytest.raises(SettingsError, match="call `drain` first"):
        fetcher.submit(["http://h1.test/"] * 3)
    assert 0 == fetcher.under_way


@pytest.mark.parametrize("batch", ["http://h1.test/", [None], [3], [b"http://h1.test/"]])
def test_an_invalid_batch_is_refused(fetcher, batch):
    with pytest.raises(SettingsError, match="batch"):
        fetcher.submit(batch)


@pytest.mark.parametrize(
    "settings",
    [
        {"concurrency": 0},
        {"user_agent": "a\r\nb"},
        {"headers": [("Host", "x")]},
        {"allow_address": ["ten"]},
        {"ca": "/nowhere.pem"},
        {"resolver": ["nobody"]},
    ],
)
def test_settings_that_cannot_be_used_are_refused(settings):
    with pytest.raises(OutriderError):
        Fetcher(**settings)


def test_a_downloader_of_ones_own_that_raises_ends_its_page_alone():
    class Odd(FakeWeb):
        def page(self, url, path):
            raise ZeroDivisionError("in my own code")

    with Fetcher(downloader=Odd(), allow_address=["127.0.0.0/8"]) as fetcher:
        fetcher.submit(["http://127.0.0.1/a", "http://127.0.0.1/b"])
        assert [FetchError.INTERNAL] * 2 == [one.error for one in all_of(fetcher)]


def test_in_a_forked_process_it_is_refused_with_words(fetcher):
    pid = os.fork()
    if not pid:
        try:
            fetcher.submit(["http://h1.test/"])
        except ClosedError as error:
            os._exit(7 if "forked" in str(error) else 8)
        os._exit(9)
    assert 7 == os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
