"""A worker and the server of its frontier: how its run ends, which results count, and which role it needs.

The server is the real one, on loopback, in a thread of the same process. The sites are simulated and touch no network.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import threading
import time

import pytest

from outrider import Frontier, Link
from outrider.cli import main as cli
from outrider.crawl.run import loop, remote_run
from outrider.crawl.run.remote_run import CrawlWorker, Server
from outrider.crawl.setup.options import CrawlOptions
from outrider.engine import AsyncFrontier
from outrider.errors import ForeignStoreError, SettingsError, UnreachableError
from outrider.service.access import Listening, ServerNames, TokenRoles
from outrider.service.frontier_calls import FrontierCalls
from outrider.service.grpc_server import GrpcServer
from outrider.service.http_server import bound, listened_at, server_of
from outrider.service.service_state import ServiceState
from unit.test_crawl_loop import HOSTS, SEEDS, Names, Site, until


class House:
    """A served frontier, and workers with directories of their own."""

    def __init__(self, directory, *, tokens=None, certificate=None, key=None, grpc=False, **settings):
        """grpc: whether workers use gRPC."""
        self.directory = directory
        self.frontier = Frontier.memory(robots="errands", settings={"delay": 0, "delay_factor": 0, **settings})
        listening = Listening("127.0.0.1", 0, certificate, key)
        self._listener = bound(listening)
        self._at = listened_at(listening, self._listener)
        self._tokens = tokens or TokenRoles()
        self._grpc_listener = bound(listening, "--grpc") if grpc else None
        self._grpc_at = listened_at(listening, self._grpc_listener) if grpc else None
        self._begun = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        assert self._begun.wait(60)
        self.said, self.site, self.refuses = [], None, {}

    async def _serve(self):
        self._loop = asyncio.get_running_loop()
        self._desk = ServiceState(
            AsyncFrontier(self.frontier), hosts=ServerNames(True), tokens=self._tokens, audit=None
        )
        self._server = server_of(self._desk, self._at)
        self._server.config.load()
        grpc = None
        if self._grpc_at is not None:
            calls = FrontierCalls(self._desk)
            grpc = GrpcServer(self.frontier, self._grpc_at, self._grpc_listener, self._tokens, None, calls)
            grpc.start(self._loop)
        self._begun.set()
        await self._server.serve([self._listener])
        if grpc is not None:
            await asyncio.to_thread(grpc.close)
        self._desk.frontier._pool.shutdown(wait=True)

    @property
    def address(self):
        if self._grpc_at is None:
            return self._at.url
        return self._grpc_at.url.replace("http", "grpc")

    def close(self):
        def end():
            self._desk.closing.set()
            self._server.should_exit = self._server.force_exit = True

        self._loop.call_soon_threadsafe(end)
        self._thread.join()
        self._listener.close()
        self.frontier.close()

    def worker(self, name="ann", *, site=None, **server):
        def sites(_, clock):
            self.site = Site(clock, **(site or {}))
            self.site.refuses = self.refuses
            return self.site

        options = CrawlOptions(output=str(self.directory / name), delay=0, delay_factor=0, concurrency=8)
        server = Server(**{"address": self.address, "name": name, "patience_seconds": 20.0, **server})
        return CrawlWorker(options, server, hosts=HOSTS, make_downloader=sites, make_names=Names, say=self.said.append)

    def run(self, worker, beside=None):
        """Runs a worker together with a second task. Returns the end of its run."""

        async def both():
            helper = asyncio.create_task(beside(worker)) if beside is not None else None
            try:
                return await asyncio.wait_for(worker.run(), 100)
            finally:
                if helper is not None:
                    await helper

        return asyncio.run(both())

    def pages(self, name="ann"):
        return [json.loads(line) for line in (self.directory / name / "pages.jsonl").read_text().splitlines()]

    def urls(self):
        return self.frontier.statistics()["urls"]


@pytest.fixture
def house(tmp_path, monkeypatch):
    monkeypatch.setattr(
        remote_run, "WAIT_SECONDS", 0.2
    )  # an idle lease waits this long before the worker checks for the end
    made = []

    def make(**more):
        made.append(House(tmp_path, **more))
        made[-1].frontier.discover(SEEDS)
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize("grpc", [False, True], ids=["http", "grpc"])
def test_a_worker_ends_with_0_when_the_frontier_has_no_work_left(house, grpc):
    served = house(grpc=grpc)
    done = served.run(served.worker())
    assert (0, 32, 0) == (done.exit_code, done.accepted, done.late)
    assert (32, 32) == (len({page["url"] for page in served.pages()}), len(served.pages()))
    assert 32 == served.urls()["done"]


def test_a_worker_leases_hosts_that_need_no_gap_in_trains(house):
    """Each page of a host once had a lease of its own."""
    served = house()
    served.frontier.discover([f"http://h0.test/{number}" for number in range(4, 84)])
    done = served.run(served.worker())
    asked = sum(count for (path, _), count in served._desk.requests.items() if path.endswith("/next"))
    assert (0, 32 + 80, True) == (done.exit_code, done.accepted, asked < 40)
    assert " places bound=" in (served.directory / "ann" / "crawl.log").read_text()


def test_a_worker_prints_the_first_failure_of_a_class_at_once(house):
    served = house()
    served.refuses = dict.fromkeys(SEEDS[:3], "9")

    async def beside(worker):
        await until(lambda: any("http_503" in line for line in served.said))
        worker.stop()

    assert 4 == served.run(served.worker(), beside).exit_code
    assert 1 == sum("http_503" in line for line in served.said)


def test_queries_of_a_workers_directory_name_the_worker_and_its_server(house, capsys):
    served = house()
    served.run(served.worker())
    place = str(served.directory / "ann")
    for words in (
        ["status", place],
        ["hosts", place],
        ["why-idle", place],
        ["explain", "http://h0.test/", "-o", place],
    ):
        assert 2 == cli.run(words)
        told = capsys.readouterr().err
        assert (True, True) == ("worker 'ann'" in told, f"outrider status {served.address}" in told), told
    file = served.directory / "ann" / "work" / "work.json"
    owner = json.loads(file.read_text())
    file.write_text(json.dumps({name: owner[name] for name in ("store", "worker")}))  # made by an earlier version
    assert 2 == cli.run(["status", place])
    assert "worker 'ann'" in capsys.readouterr().err


def test_a_worker_ends_with_3_at_a_limit_of_the_frontier(house):
    served = house(max_pages=5)
    done = served.run(served.worker())
    assert (3, 5) == (done.exit_code, done.accepted)


def test_a_stopped_worker_lets_requests_end_reports_them_and_ends_with_4(house):
    """Like SIGTERM, which makes the same call."""
    served = house()

    async def beside(worker):
        await until(lambda: served.site is not None and served.site.running >= 4 and len(served.site.urls) > 12)
        worker.stop()

    done = served.run(served.worker(site={"seconds": 0.1, "depth": 1_000}), beside)
    assert (4, 0) == (done.exit_code, done.late)
    urls = served.urls()
    assert (0, done.accepted) == (urls["leased"], urls["done"])
    asked = [url for url in served.site.urls if not url.endswith("robots.txt")]
    assert sorted(asked) == sorted(page["url"] for page in served.pages())
    assert {"done"} == {page["outcome"] for page in served.pages()}
    assert served.said[0].startswith("stopping: ")
    again = served.run(served.worker(site={"depth": 20}))
    assert 0 == again.exit_code
    assert len(served.pages()) == len({page["url"] for page in served.pages()}) == done.accepted + again.accepted


def test_a_worker_that_waits_for_a_lease_is_stopped_at_once(house, monkeypatch):
    """Without an answer of the server, which would arrive after ten seconds. No lease is left."""
    served = house(delay=3600)
    monkeypatch.setattr(remote_run, "WAIT_SECONDS", 10.0)
    stopped = []

    async def beside(worker):
        await until(lambda: served.site is not None and served.site.urls and not served.site.running)
        await until(lambda: served._desk.frontier.waiting_leases == 1)
        stopped.append(time.monotonic())
        worker.stop()

    done = served.run(served.worker(), beside)
    assert time.monotonic() - stopped[0] < remote_run.WAIT_SECONDS / 2
    assert (4, 0) == (done.exit_code, served.urls()["leased"])


def test_a_lease_that_fails_before_the_stop_is_complete_is_no_lost_server(house, monkeypatch):
    """The thread that leases may see its cut connection earlier than `stop` returns."""
    served = house(delay=3600)
    monkeypatch.setattr(remote_run, "WAIT_SECONDS", 10.0)
    worker, waits, drawn = served.worker(), threading.Event(), threading.Event()
    draw = worker._draw

    def observed(*arguments):
        if worker._waits:
            waits.set()
        try:
            return draw(*arguments)
        finally:
            drawn.set()

    monkeypatch.setattr(worker, "_draw", observed)

    async def beside(worker):
        await until(waits.is_set)
        await asyncio.sleep(0.2)  # the request is at the server
        cut = worker._leasing.cut
        drawn.clear()
        monkeypatch.setattr(worker._leasing, "cut", lambda: (cut(), drawn.wait(5)))
        worker.stop()

    assert (4, 0) == (served.run(worker, beside).exit_code, served.urls()["leased"])


@pytest.mark.parametrize("wait", [0, 0.001, 0.003, 0.01, 0.03, 0.1])
def test_a_stop_at_any_moment_of_a_lease_leaves_no_lease(house, wait):
    served = house()

    async def beside(worker):
        await until(lambda: served.site is not None and len(served.site.urls) > 8)
        await asyncio.sleep(wait)
        worker.stop()

    done = served.run(served.worker(site={"seconds": 0.01, "depth": 1_000}), beside)
    assert (4, 0, 0) == (done.exit_code, done.late, served.urls()["leased"])


def test_a_second_stop_cancels_requests_and_returns_their_urls(house):
    served = house()

    async def beside(worker):
        await until(lambda: served.site is not None and any("robots" not in url for url in served.site.urls))
        worker.stop()
        worker.stop()

    done = served.run(served.worker(site={"hangs": True}), beside)
    assert (4, []) == (done.exit_code, served.pages())
    urls = served.urls()
    assert (0, 8) == (urls["leased"], urls["queued"] + urls["waiting"])


def test_a_request_whose_lease_ends_first_is_cancelled_and_its_page_counts_once(house, monkeypatch):
    """An operator releases the leases while their requests hang. The worker notices it at its next extension, cancels
    the requests, and fetches the URLs again."""
    monkeypatch.setattr(loop, "EXTEND_STEP_SECONDS", 0.05)
    monkeypatch.setattr(loop, "EXTEND_SECONDS", 1_000.0)  # each check extends the leases, and so notices it
    served = house()
    ended = []

    async def beside(worker):
        await until(lambda: served.site is not None and sum("robots" not in url for url in served.site.urls) == 8)
        tokens = [lease.token for lease in worker._fetching.leases]
        served.site.hangs = False
        ended.extend(await asyncio.to_thread(served.frontier.release, tokens))

    done = served.run(served.worker(site={"hangs": True}), beside)
    assert ["ok"] * 8 == ended
    assert (0, 32) == (done.exit_code, done.accepted)
    asked = [url for url in served.site.urls if not url.endswith("robots.txt")]
    assert {2} == {asked.count(seed) for seed in SEEDS}
    assert sorted(set(asked)) == sorted(page["url"] for page in served.pages())


def test_a_hanging_request_is_cut_at_the_end_of_its_lease_while_extending_fails(house, monkeypatch):
    """The server answers all but `extend`: requests that hang end before their leases do, and the pages count once."""
    monkeypatch.setattr(loop, "EXTEND_STEP_SECONDS", 0.05)
    monkeypatch.setattr(loop, "EXTEND_SECONDS", 1_000.0)
    served, refused, leases = house(), [], {}

    def failing(tokens, _ttl_seconds):
        refused.append(list(tokens))
        raise UnreachableError("the server is away")

    async def beside(worker):
        await until(lambda: served.site is not None and sum("robots" not in url for url in served.site.urls) == 8)
        worker._hasty.extend = failing
        leases.update({lease.token: lease.deadline for lease in worker._fetching.leases})
        await until(lambda: len(refused) > 2)
        assert set(leases) == {lease.token for lease in worker._fetching.leases}  # their ends are far in the future
        served.site.hangs = False
        monkeypatch.setattr(loop, "END_SECONDS", remote_run.LEASE_SECONDS + 1.0)  # now no lease is that long any more
        await until(lambda: not set(leases) & {lease.token for lease in worker._fetching.leases})
        assert all(deadline > served.frontier.now() for deadline in leases.values())
        monkeypatch.setattr(loop, "END_SECONDS", 10.0)

    done = served.run(served.worker(site={"hangs": True}), beside)
    assert (0, 32 + 8) == (done.exit_code, done.accepted)  # eight report that no page was fetched
    pages = served.pages()
    assert 32 == len(pages) == len({page["url"] for page in pages})
    assert not set(leases) & {page["token"] for page in pages}


def test_a_worker_that_stays_waits_for_more_work(house):
    served = house()

    async def beside(worker):
        await until(lambda: served.urls()["done"] == 32)
        await asyncio.to_thread(served.frontier.discover, ["http://h3.test/7"])
        await until(lambda: served.urls()["done"] == 33)
        worker.stop()

    done = served.run(served.worker(stay=True), beside)
    assert (4, 33) == (done.exit_code, done.accepted)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="the certificate is made by openssl")
@pytest.mark.parametrize("grpc", [False, True], ids=["http", "grpc"])
def test_a_worker_sends_its_token_over_tls_and_needs_the_role(house, tmp_path, grpc):
    certificate, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key,
         "-out", certificate, "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"],
        check=True, capture_output=True,
    )  # fmt: skip
    file = tmp_path / "tokens"
    file.write_text("read readreadreadread\nwork workworkworkwork\n")
    file.chmod(0o600)
    served = house(tokens=TokenRoles.read(str(file)), certificate=certificate, key=key, grpc=grpc)
    for token, words in (
        (None, "Authorization"),
        ("nobodynobodynobody", "is not in the file of tokens"),
        ("readreadreadread", "role"),
    ):
        with pytest.raises(SettingsError, match=words):
            served.run(served.worker("bob", token=token, ca=certificate))
    with pytest.raises(UnreachableError, match="certificate is not trusted"):
        served.run(served.worker("bob", token="workworkworkwork"))
    done = served.run(served.worker("bob", token="workworkworkwork", ca=certificate))
    assert (0, 32) == (done.exit_code, done.accepted)


# -- its directory -----------------------------------------------------------------------------------------------------


def begun(path, *names):
    (path / "work").mkdir(parents=True)
    for name in names:
        (path / name).write_text("")
    return {"output": str(path)}


def nowhere():
    """A server that is unreachable, and a worker without patience."""
    return Server("http://127.0.0.1:9", patience_seconds=0.0)


@pytest.mark.parametrize("names", [(), ("work/lock",), ("work/lock", "work/work.json.tmp", "outrider.toml.tmp")])
def test_a_worker_that_was_killed_while_it_made_its_directory_continues_there(tmp_path, names):
    with pytest.raises(UnreachableError):
        remote_run.work(begun(tmp_path / "ann", *names), nowhere())


@pytest.mark.parametrize("names", [("work/thesis.txt",), ("notes.txt",), ("work/lock", "work/leases", "x")])
def test_a_directory_of_another_owner_is_left_untouched(tmp_path, names):
    flags = begun(tmp_path / "ann", *names)
    before = sorted(path.name for path in tmp_path.rglob("*"))
    with pytest.raises(ForeignStoreError, match="choose another name"):
        remote_run.work(flags, nowhere())
    assert before == sorted(path.name for path in tmp_path.rglob("*"))


def test_a_worker_reports_texts_that_cannot_be_requested_as_malformed_and_goes_on(house):
    """A served crawl by unique keys may have such texts."""
    served = house()
    served.frontier.make_crawl("mine", unique="caller")
    texts = ["plain \x1b[31m text", "ftp://files.org/1", "http://h2.test/\u00fc", "http://h1.test/#part"]
    served.frontier.discover(
        [*(Link(text, crawl="mine") for text in texts), Link(SEEDS[0], crawl="mine", unique_key=b"1")]
    )
    done = served.run(served.worker())
    assert (0, 0) == (done.exit_code, done.late)
    found = {one.url: (one.state, one.error) for one in served.frontier.urls(crawl="mine")}
    assert dict.fromkeys(texts, ("gone", "malformed")) == {text: found[text] for text in texts}
    assert ("done", None) == found[SEEDS[0]]
    pages = {page["url"]: page["error"] for page in served.pages() if page["outcome"] == "error"}
    assert dict.fromkeys(texts, "malformed") == pages
    assert 1 == sum("wanted is an absolute http or https URL" in line for line in served.said)
    assert "\x1b" not in (served.directory / "ann" / "crawl.log").read_text()
