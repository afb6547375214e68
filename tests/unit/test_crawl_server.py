"""The server of a running crawl: its queries bypass the thread that writes, and its orders use the crawl's own path."""

from __future__ import annotations

import asyncio
import json
import shlex
import socket
import sys
import threading
import urllib.error
import urllib.request

import pytest

from fake_web import FakeNames
from limiting import set_limits
from outrider.cli.main import run
from outrider.crawl.questions.control import ask
from outrider.crawl.questions.crawl_queries import querying
from outrider.crawl.questions.remote_queries import asking
from outrider.crawl.run.hooks import HookRunningError, Hooks
from outrider.crawl.setup.instants import moment
from outrider.crawl.setup.options import CrawlOptions
from outrider.engine.remote import connect
from outrider.errors import SettingsError, StoreFailedError
from outrider.journey import ArchivePlace, Link
from outrider.service.access import Listening, TokenRoles
from outrider.service.crawl_server import CrawlServer
from outrider.service.problems import of_error
from outrider.service.routes import ROUTES
from outrider.url import UrlBatch
from unit.test_crawl_loop import HOSTS, House, until

API = "/api/v1"
HOST, HOME = "h0.test", "http://h0.test/"


def server(tokens=None):
    return CrawlServer(Listening("127.0.0.1", 0), tokens or TokenRoles())


def asked(at, method, path, body=None, headers=None):
    """Returns (status, JSON or text)."""
    octets = None if body is None else json.dumps(body).encode()
    sent = {"Content-Type": "application/json", **(headers or {})}
    request = urllib.request.Request(at + path, octets, sent, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            status, kind, content = answer.status, answer.headers["content-type"], answer.read()
    except urllib.error.HTTPError as error:
        with error:
            status, kind, content = error.code, error.headers["content-type"], error.read()
    return status, json.loads(content) if "json" in kind else content.decode()


class Beside:
    """A crawl of two hosts with many pages, and queries to its server."""

    def __init__(self, directory, **options):
        self.server = server()
        self.house = House(directory, {"delay": 0.02, **options}, {"depth": 10_000}, beside=self.server)
        self.found = None

    async def ask(self, method, path, body=None, headers=None):
        return await asyncio.to_thread(asked, self.server.url, method, path, body, headers)

    def crawl(self, questions):
        """Runs the crawl until the queries are answered. Returns their results."""

        async def beside(house):
            try:
                await until(lambda: house.crawler._answered > 2)
                self.found = await questions()
            finally:
                house.crawler.stop()

        self.result = asyncio.run(self.house.run(beside, [HOME, "http://h1.test/"]))
        return self.found


def test_a_running_crawl_is_queried_and_its_server_ends_with_it(tmp_path):
    crawl = Beside(tmp_path)

    async def questions():
        paths = ("/healthz", "/readyz", f"{API}/stats", f"{API}/status", f"{API}/why-idle", f"{API}/hosts/{HOST}")
        found = {path: await crawl.ask("GET", path) for path in paths}
        assert {200} == {status for status, _ in found.values()}
        explained = await crawl.ask("GET", f"{API}/explain?url={HOME}")
        return {path: told for path, (_, told) in found.items()}, explained, await crawl.ask("GET", "/metrics")

    found, explained, (status, metrics) = crawl.crawl(questions)
    assert ("serving", "serving") == (found["/healthz"]["state"], found["/readyz"]["state"])
    assert found[f"{API}/stats"]["fetched"] > 2
    assert ("running", 0) == tuple(found[f"{API}/status"][name] for name in ("state", "held"))
    assert 2 == found[f"{API}/why-idle"]["known"]
    assert {} == found[f"{API}/why-idle"]["hooks"]  # as the crawl itself answers over its socket
    assert (HOST, (200, "done")) == (found[f"{API}/hosts/{HOST}"]["name"], (explained[0], explained[1]["state"]))
    assert 200 == status
    assert "outrider_fetched_urls_total " in metrics
    assert f"serving at {crawl.server.url}\n" in crawl.house.talk.getvalue()
    assert 4 == crawl.result.exit_code
    with pytest.raises(urllib.error.URLError):
        asked(crawl.server.url, "GET", "/healthz")
    assert [] == [one.name for one in threading.enumerate() if one.name.startswith("outrider-http")]


def test_a_running_crawl_says_where_an_answer_is_stored_and_of_which_page_it_is_a_copy(tmp_path):
    """The words are the same over its socket, over HTTP, and from its files after the end."""
    crawl = Beside(tmp_path, priority="weighted")

    def settled():
        lines = [line for line in crawl.house.pages() if line["warc"] is not None and line["status"] == 200]
        return {line["url"]: line for line in lines}

    async def questions():
        await until(lambda: len(settled()) > 2)
        url, line = next(iter(settled().items()))
        over_socket = await asyncio.to_thread(ask, str(crawl.house.output), "explain", url=url)
        over_http = (await crawl.ask("GET", f"{API}/explain?url={url}"))[1]
        with asking(crawl.server.url) as look:
            over_command = look("explain", {"url": url})
        with connect(crawl.server.url) as remote:
            return url, line, over_socket, over_http, over_command, await asyncio.to_thread(remote.explain, url)

    url, line, over_socket, over_http, over_command, made = crawl.crawl(questions)
    with querying(str(crawl.house.output)) as look:
        from_files = look("explain", {"url": url})
    for found in (over_socket, over_http, over_command, from_files):
        assert line["warc"] == found["archived"]
        assert line.get("duplicate_of") == found["duplicate_of"]
        assert "weighted" == found["ranking"]["function"]
        assert [] == list(found["held_by"])
        assert None is found["before"]
    for name in ("discovered_at", "fetched_at"):
        assert over_socket[name] // 1_000 == from_files[name] // 1_000 == getattr(made, name) // 1_000  # a JSON instant
    assert moment(made.discovered_at) == over_http["discovered_at"]
    assert ArchivePlace(**line["warc"]) == made.archived


def test_queries_are_answered_while_the_thread_that_writes_is_blocked(tmp_path):
    crawl = Beside(tmp_path)
    gate, held = threading.Event(), threading.Event()

    def hold():
        held.set()
        assert gate.wait(100)

    async def questions():
        crawl.house.crawler._books.submit(hold)
        await asyncio.to_thread(held.wait, 60)
        paths = ("stats", "status", "why-idle", "hosts", "urls", f"hosts/{HOST}", f"explain?url={HOME}", "workers")
        try:
            found = [(await crawl.ask("GET", f"{API}/{path}"))[0] for path in paths]
            return [*found, (await crawl.ask("GET", "/metrics"))[0]], gate.is_set()
        finally:
            gate.set()

    assert ([200] * 9, False) == crawl.crawl(questions)


def test_orders_use_the_path_of_the_crawl_and_are_logged(tmp_path):
    crawl = Beside(tmp_path)

    async def questions():
        house, found = crawl.house, [await crawl.ask("POST", f"{API}/hosts/{HOST}/pause")]
        frontier, site = house.crawler._frontier, house.site

        def of(host):
            return sum(f"//{host}/" in url for url in site.urls)

        await until(lambda: not frontier.host(HOST).leased)
        paused, before, others = frontier.host(HOST).paused, of(HOST), of("h1.test")
        await until(lambda: of("h1.test") > others + 3)
        still = of(HOST) == before
        found += [await crawl.ask("POST", f"{API}/hosts/{HOST}/resume"), await crawl.ask("POST", f"{API}/retry", {})]
        await until(lambda: of(HOST) > before)
        found += [await crawl.ask("POST", f"{API}/hosts/nobody.test/pause")]
        return paused, still, found

    paused, still, found = crawl.crawl(questions)
    assert (True, True) == (paused, still)
    assert [(200, {"count": 1}), (200, {"count": 1}), (200, {"count": 0})] == found[:3]
    assert (400, "urn:outrider:problem:invalid-argument") == (found[3][0], found[3][1]["type"])
    lines = [json.loads(line) for line in (crawl.house.output / "audit.jsonl").read_text().splitlines()]
    assert ["pause", "resume", None, "pause", "pause"] == [line.get("rule") for line in lines]
    assert "nobody.test" in lines[-1]["error"]
    log = (crawl.house.output / "crawl.log").read_text()
    assert "order=pause" in log
    assert "nobody.test" not in log


def test_an_order_by_its_verb_is_in_both_logs_and_the_socket_has_it_too(tmp_path):
    crawl = Beside(tmp_path)

    async def questions():
        over_http = await crawl.ask("POST", f"{API}/verbs/requeue", {"urls": [HOME, "http://no.test/"], "at": 7})
        over_socket = await asyncio.to_thread(ask, str(crawl.house.output), "requeue", urls=[HOME])
        refused = await crawl.ask("POST", f"{API}/verbs/requeue", {"urls": [HOME], "priority": 2})
        return over_http, over_socket, refused

    over_http, over_socket, refused = crawl.crawl(questions)
    assert (200, "unknown") == (over_http[0], over_http[1]["answer"][1])
    assert 1 == len(over_socket["answer"])
    assert (400, "urn:outrider:problem:invalid-argument") == (refused[0], refused[1]["type"])
    lines = [json.loads(line) for line in (crawl.house.output / "audit.jsonl").read_text().splitlines()]
    assert [("requeue", 2, 7), ("requeue", 1, None)] == [
        (line["order"], line["urls"], line.get("due")) for line in lines[:2]
    ]
    assert all(line["at"].startswith("20") for line in lines)
    assert "priority" in lines[2]["error"]
    log = (crawl.house.output / "crawl.log").read_text()
    assert " requeue urls=2 due=7 answer=2\n" in log
    assert " requeue urls=1 answer=1\n" in log


def test_urls_that_are_added_are_fetched_each_with_its_code(tmp_path):
    crawl = Beside(tmp_path)
    urls = [f"http://{HOST}/20001", "junk", {"url": f"http://{HOST}/20002", "priority": 0.9}, HOME]

    async def questions():
        told = await crawl.ask("POST", f"{API}/frontier/urls", {"urls": urls})
        await until(lambda: {f"http://{HOST}/20001", f"http://{HOST}/20002"} <= set(crawl.house.site.urls))
        return told

    status, told = crawl.crawl(questions)
    assert (200, ["new", "invalid", "new", "known"]) == (status, told["codes"])
    assert {f"http://{HOST}/20001", f"http://{HOST}/20002"} <= {line["url"] for line in crawl.house.pages()}


class Literals(FakeNames):
    def __init__(self):
        super().__init__(HOSTS)

    async def resolve(self, host: str, port: int):
        return HOSTS.get(host) or (host,)


def test_a_local_address_that_arrives_over_loopback_is_permitted(tmp_path):
    crawl = Beside(tmp_path)
    crawl.house.names = Literals
    url = "http://127.0.0.99/"

    async def questions():
        assert ["new"] == (await crawl.ask("POST", f"{API}/frontier/urls", {"urls": [url]}))[1]["codes"]
        frontier = crawl.house.crawler._frontier
        await until(lambda: frontier.status(url).state in ("done", "gone"))
        return frontier.status(url).error, crawl.house.crawler.options.allow_address

    assert (None, ("127.0.0.99",)) == crawl.crawl(questions)
    assert "127.0.0.99" in (crawl.house.output / "outrider.toml").read_text()


@pytest.mark.parametrize("field", ["X-Forwarded-For", "Forwarded", "Via", "X-Real-IP", "X-Forwarded-Proto"])
def test_a_local_address_that_arrives_through_a_proxy_is_refused_with_the_option(tmp_path, field):
    crawl = Beside(tmp_path)
    url = "http://127.0.0.99/"

    async def questions():
        forwarded = {field: "203.0.113.9"}
        return await crawl.ask("POST", f"{API}/frontier/urls", {"urls": [url]}, headers=forwarded)

    status, problem = crawl.crawl(questions)[:2]
    assert 403 == status
    assert "--allow-address 127.0.0.99" in problem["detail"]
    assert [] == [one for one in crawl.house.site.urls if "127.0.0.99" in one]
    assert "127.0.0.99" not in (crawl.house.output / "outrider.toml").read_text()


def test_routes_that_fetch_are_refused_because_the_crawl_fetches_itself(tmp_path):
    crawl = Beside(tmp_path)
    refused = [route for route in ROUTES if route.fetches]
    assert {"next", "report", "defer"} <= {one.path.rpartition("/")[2] for one in refused}

    async def questions():
        return [
            await crawl.ask(one.method, one.path.replace("{lease_id}", "1"), {} if one.body is not None else None)
            for one in refused
        ]

    found = crawl.crawl(questions)
    assert [(409, "urn:outrider:problem:crawl-fetches")] * len(refused) == [
        (status, told["type"]) for status, told in found
    ]


def test_a_directory_that_cannot_store_orders_ends_the_crawl_before_a_request(tmp_path):
    crawl = Beside(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "audit.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreFailedError, match=r"audit\.jsonl"):
        asyncio.run(crawl.house.run(seeds=[HOME]))
    assert crawl.house.site is None
    assert "failed" in (tmp_path / "out" / "crawl.log").read_text()
    assert not (tmp_path / "elsewhere").exists()


def test_a_server_that_never_opened_is_closed_and_frees_its_port():
    one = server()
    one.close()
    one.close()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", int(one.url.rpartition(":")[2])))


def test_a_running_hook_is_reported_as_a_reason_to_try_again():
    problem = of_error(HookRunningError("the hook on_page has taken 9 s"))
    assert (503, "hook-running", 1) == (problem.status, problem.name, problem.retry_after_seconds)


def by_length(urls: UrlBatch, page):
    return [len(url) / 100 for url in urls.strings()]


def keyed(urls: UrlBatch, page):
    return [f"key-{url[-1]}" for url in urls.strings()]


def test_functions_rank_added_links_without_a_priority(tmp_path):
    hooks = Hooks(CrawlOptions(output=str(tmp_path), priority=by_length, key=keyed))
    given = [Link("http://a.com/1"), Link("junk"), Link("HTTP://a.com/22", priority=0.9, key="mine", depth=2)]
    assert [
        Link("http://a.com/1", priority=0.14, key="key-1"),
        Link("junk"),
        Link("http://a.com/22", priority=0.9, key="mine", depth=2),
    ] == list(hooks.with_priorities(given))
    assert [Link("junk")] == list(hooks.with_priorities([Link("junk")]))
    assert given == Hooks(CrawlOptions(output=str(tmp_path))).with_priorities(given)


def said(capsys, *words):
    code = run(list(words))
    return code, capsys.readouterr().err


def test_a_port_in_use_is_reported_before_the_crawl_is_made(tmp_path, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        at = f"127.0.0.1:{taken.getsockname()[1]}"
        for words in (["crawl", "http://127.0.0.1:9/", "-o"], ["resume"]):
            code, told = said(capsys, *words, str(tmp_path / "out"), "--http", at)
            assert (2, True) == (code, f"--http {at}: Address already in use; use another address or port" in told)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--http 0.0.0.0:0", "add --tls-cert and --tls-key and --tokens"),
        ("--http example.org:80", "use an IP address or localhost"),
        ("--http 127.0.0.1:0 --tokens no_such_file", "no_such_file cannot be read"),
        ("--tokens file", "--tokens needs --http"),
        ("--tls-cert file --tls-key file", "--tls-cert needs --http"),
        ("--host-name me.test", "--host-name needs --http"),
    ],
)
def test_a_public_address_and_incomplete_options_are_refused(tmp_path, capsys, words, told):
    code, error = said(capsys, "crawl", "http://127.0.0.1:9/", "-o", str(tmp_path / "out"), *words.split())
    assert (2, True) == (code, told in error), error
    assert not (tmp_path / "out").exists()


def test_without_the_extra_it_says_what_to_install(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    for name in ("http_server", "crawl_server"):
        monkeypatch.delitem(sys.modules, f"outrider.service.{name}", raising=False)
    code, told = said(capsys, "crawl", "http://127.0.0.1:9/", "-o", str(tmp_path / "out"), "--http", "127.0.0.1:0")
    assert (2, True) == (code, "`--http` needs uvicorn" in told), told
    assert f"{shlex.quote(sys.executable)} -m pip install 'outrider[serve]'" in told
    assert not (tmp_path / "out").exists()


def test_certificates_that_cannot_be_used_are_refused_before_the_crawl(tmp_path):
    file = tmp_path / "file.pem"
    file.write_text("no certificate")
    with pytest.raises(SettingsError, match=r"--tls-cert .*file\.pem"):
        CrawlServer(Listening("127.0.0.1", 0, str(file), str(file)), TokenRoles())


def raw(at, octets):
    """Returns the answer to these octets, up to the end of the connection."""
    with socket.create_connection(("127.0.0.1", int(at.rpartition(":")[2])), timeout=10) as connection:
        connection.sendall(octets)
        found = b""
        while piece := connection.recv(65_536):
            found += piece
        return found


def test_the_server_of_a_crawl_has_the_limits_and_checks_of_serve(tmp_path, monkeypatch):
    set_limits(monkeypatch, SERVICE_HEAD_SECONDS_MAX=0.3, SERVICE_WATCH_SECONDS=0.05)
    beside = Beside(tmp_path)
    host = b"Host: 127.0.0.1\r\nConnection: close\r\n"

    async def questions():
        asked = (
            b"GET /half",
            b"GET http://127.0.0.1/healthz HTTP/1.1\r\nHost: evil.test\r\nConnection: close\r\n\r\n",
            b"GET http://evil.test/healthz HTTP/1.1\r\n" + host + b"\r\n",
            b"GET /healthz HTTP/1.1\r\nSec-Fetch-Site: cross-site\r\n" + host + b"\r\n",
        )
        return [int((await asyncio.to_thread(raw, beside.server.url, one)).split()[1]) for one in asked]

    assert [408, 200, 421, 403] == beside.crawl(questions)
