"""Workers elsewhere on a served frontier: several processes, killed and started again, judged by the web's own log."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from urllib.parse import urlsplit

import pytest

from e2e.crawling import HOSTS_ON_LOOPBACK, environment, web
from outrider import Frontier
from outrider.sim.verdict import judge

pytestmark = HOSTS_ON_LOOPBACK
DELAY = 0.05


class Fleet:
    """A server and its workers, each a process; all are ended by their ids."""

    def __init__(self, folder, served):
        self.folder, self.served, self.started = folder, served, []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self.environment = {
            **environment(),
            "OUTRIDER_DELAY": str(DELAY),
            "OUTRIDER_DELAY_FACTOR": "0",
            "OUTRIDER_HOSTS": str(served.hosts_file),
        }

    def _start(self, *words, settings=True):
        variables = self.environment if settings else environment()
        process = subprocess.Popen(
            [sys.executable, "-m", "outrider", *words], stderr=subprocess.PIPE, text=True, env=variables
        )
        self.started.append(process)
        return process

    def serve(self):
        process = self._start("serve", str(self.folder / "served"), "--http", f"127.0.0.1:{self.port}")
        line = process.stderr.readline()
        assert "serving at" in line, line + process.stderr.read()
        return process

    def work(self, name, *flags):
        hosts = ("--hosts", str(self.served.hosts_file))
        words = ("work", self.address, "-o", str(self.folder / name), "--worker", name, *hosts, *flags)
        return self._start(*words, settings=False)

    def export(self, target, *names):
        folders = [str(self.folder / name) for name in names]
        command = [sys.executable, "-m", "outrider", "export", *folders, "--what", "pages", "--to", str(target)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    def end(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()
            process.stderr.close()


@pytest.fixture
def fleet(tmp_path):
    with web(tmp_path / "web", hosts=6, pages=60) as served:
        fleet = Fleet(tmp_path, served)
        yield fleet
        fleet.end()


def told(line):
    return tuple(line[name] for name in ("url", "outcome", "status", "digest", "title", "bytes", "links"))


def asked(log):
    return log.read_text().count("\n") if log.exists() else 0


def until(happened, seconds=60):
    ends = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < ends
        time.sleep(0.02)


@pytest.mark.timeout(300)
def test_killed_workers_and_a_killed_server_lose_nothing_and_their_merged_output_is_one_crawls(fleet, tmp_path):
    log = fleet.served.log_file
    server = fleet.serve()
    names = ["ann", "bob", "cid"]
    seeds = fleet.served.seeds_file.read_text().split()
    with Frontier.connect(fleet.address, worker="teller", patience_seconds=60) as frontier:
        frontier.discover(seeds)
        workers = {name: fleet.work(name) for name in names}
        until(lambda: asked(log) > 15)
        for name in ("ann", "bob"):
            workers[name].send_signal(signal.SIGKILL)
            workers[name].wait()
            workers[name] = fleet.work(name)
        until(lambda: asked(log) > 30)
        server.kill()
        server.wait()
        fleet.serve()
        for name in names:
            assert 0 == workers[name].wait(110), (name, workers[name].stderr.read())
        counts = frontier.statistics()
    assert 0 == counts["urls"]["queued"] + counts["urls"]["leased"] + counts["urls"]["waiting"]

    ended = fleet.export(tmp_path / "merged.jsonl", *names)
    assert 0 == ended.returncode, ended.stderr
    merged = [json.loads(line) for line in (tmp_path / "merged.jsonl").read_text().splitlines()]
    assert len({line["token"] for line in merged}) == len(merged)

    # Everything was fetched, and nothing twice but what died with its worker.
    fetched = Counter(line["url"] for line in merged)
    assert fleet.served.web.must_fetch() <= set(fetched)
    assert {1} == set(fetched.values())
    requests = judge(log, delay=DELAY)
    assert [] == requests.breaches
    twice = {url for url, count in Counter(_urls(log)).items() if count > 1}
    assert len(twice) <= 2 * len(seeds)  # a killed worker had one URL of each host at most

    # The records of the lines are whole, in any file.
    for line in merged[:10]:
        with open(line["warc"]["file"], "rb") as archive:
            archive.seek(line["warc"]["offset"])
            assert b"\x1f\x8b" == archive.read(2)

    alone = subprocess.run(
        [sys.executable, "-m", "outrider", "crawl", *seeds, "-o", str(tmp_path / "one"),
         "--progress", "none", "--copies", "last"],
        env=fleet.environment, capture_output=True, text=True, timeout=110, check=False,
    )  # fmt: skip
    assert 0 == alone.returncode, alone.stderr
    one = [json.loads(line) for line in (tmp_path / "one" / "pages.jsonl").read_text().splitlines()]
    assert sorted(map(told, one)) == sorted(map(told, merged))


@pytest.mark.skipif(shutil.which("curl") is None, reason="the page's worker is curl and sh")
@pytest.mark.timeout(300)
def test_ten_workers_of_curl_alone_crawl_as_the_page_says_also_where_two_and_the_server_die(fleet, tmp_path, project):
    page = (project / "docs" / "howto" / "serve.md").read_text("utf-8")
    script, home, log = tmp_path / "worker.sh", tmp_path / "home", fleet.served.log_file
    script.write_text(re.search(r"^```sh worker\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[1])
    home.mkdir()
    named = [line.split() for line in fleet.served.hosts_file.read_text().splitlines() if line.strip()]
    seeds = fleet.served.seeds_file.read_text().split()
    port = urlsplit(seeds[0]).port
    rows = [f'resolve = "{name}:{port}:{address}"\n' for address, name, *_ in named]
    (home / ".curlrc").write_text("".join(rows))
    variables = {**os.environ, "HOME": str(home), "WAIT": "3000", "TTL": "4000"}
    server = fleet.serve()
    workers = []

    def begin(name):
        words = ["sh", str(script), fleet.address, name]
        workers.append(subprocess.Popen(words, env=variables, start_new_session=True))

    try:
        with Frontier.connect(fleet.address, worker="teller", patience_seconds=60) as frontier:
            frontier.discover(seeds)
            for number in range(10):
                begin(f"w{number}")
            until(lambda: asked(log) > 15)
            for process in workers[:2]:
                os.killpg(process.pid, signal.SIGKILL)
            until(lambda: asked(log) > 30)
            server.kill()
            server.wait()
            fleet.serve()
            assert [0] * 8 == [process.wait(150) for process in workers[2:]]
            counts = frontier.statistics()
    finally:
        for process in workers:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert 0 == counts["urls"]["queued"] + counts["urls"]["leased"] + counts["urls"]["waiting"]
    asked_for = Counter(f"http://{host}:{port}{path}" for host, path in _urls(log))
    assert fleet.served.web.must_fetch() <= set(asked_for)
    # The URLs of the two workers appear twice, and those whose answers were lost with the server.
    assert sum(count - 1 for count in asked_for.values()) <= 2 + 8
    assert [] == judge(log, delay=DELAY).breaches


def _urls(log):
    for line in log.read_text().splitlines():
        record = json.loads(line)
        if record["path"] != "/robots.txt":
            yield record["host"], record["path"]
