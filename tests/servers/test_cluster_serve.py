"""Nodes of a cluster that serve workers, on a real Kafka: each page once by the lines of the workers, and the gaps of
hosts by the log of the web, also if a node is killed."""

from __future__ import annotations

import signal
import subprocess
from collections import Counter

import pytest

from e2e.crawling import HOSTS_ON_LOOPBACK, command, lines, wait_for, web
from outrider import Frontier
from outrider.journey import Code, State
from outrider.sim.verdict import judge
from servers.cluster_nodes import DELAY, SECONDS_MAX, Nodes
from servers.kafka import Kafka
from servers.programs import free_port

pytestmark = [
    pytest.mark.timeout(400),
    HOSTS_ON_LOOPBACK,
]
HOSTS, PAGES = 12, 200
BEGUN = 60  # requests, after which a node is killed


class Served(Nodes):
    """Nodes that serve, and workers, each a process in a directory of its own."""

    def serve(self, name, port):
        """Starts a node that serves at a port, and waits until it answers."""
        self._run(
            name, "serve", self.folder / name, "--cluster", self.file, "--http", f"127.0.0.1:{port}",
            "--hosts", self.served.hosts_file, "--delay", str(DELAY), "--delay-factor", "0",
        )  # fmt: skip
        wait_for(lambda: "serving at" in self.told(name), SECONDS_MAX)

    def work(self, name, port):
        """Starts a worker of the node at a port."""
        address = f"http://127.0.0.1:{port}"
        self._run(name, "work", address, "-o", self.folder / name, "--hosts", self.served.hosts_file, "--no-sitemaps")

    def _run(self, name, *words):
        with (self.folder / f"{name}.err").open("ab") as log:
            self.running[name] = subprocess.Popen(
                command(*words), env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def add(self, *urls):
        with Frontier.connect(str(self.file)) as frontier:
            assert {Code.HELD} == set(frontier.discover(urls or self.served.seeds_file.read_text().split()))

    def end_of(self, *names):
        self.until(lambda: all(self.running[name].poll() is not None for name in names))
        return [self.running[name].returncode for name in names]

    def check(self, *workers):
        """Each page once, and no gap of a host broken. Returns the lines of the pages."""
        pages = [line for name in workers for line in lines(self.folder / name / "pages.jsonl")]
        assert self.served.web.must_fetch() <= {line["url"] for line in pages}
        assert {1} == set(Counter(line["url"] for line in pages).values())
        assert [] == judge(self.served.log_file, delay=DELAY).breaches
        return pages


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    with Kafka(tmp_path_factory.mktemp("kafka"), brokers=1) as running:
        yield running


@pytest.fixture
def served(kafka, tmp_path):
    with web(tmp_path / "web", hosts=HOSTS, pages=PAGES, suffix="test") as site:
        running = Served(tmp_path, kafka, site)
        try:
            yield running
        finally:
            for process in running.running.values():
                process.kill()
                process.wait()


def test_a_worker_fetches_the_pages_of_a_node_that_serves(served):
    port = free_port()
    served.serve("node", port)
    served.add()
    served.work("ann", port)
    assert [0] == served.end_of("ann"), served.told("ann")
    pages = served.check("ann")
    with Frontier.connect(str(served.file)) as cluster, Frontier.connect(f"http://127.0.0.1:{port}") as node:
        assert State.DONE == cluster.status(pages[0]["url"]).state == node.status(pages[0]["url"]).state
        assert cluster.count(state="done") == node.statistics()["urls"]["done"] >= len(pages) - 1
        assert cluster.verify().ok
        assert node.verify().ok
        assert cluster.finished()
        assert node.finished()
        late = f"{pages[0]['url']}?late"
        served.add(late)
        served.until(lambda: not node.finished())  # it goes on when URLs arrive later
        served.work("ann", port)
        assert [0] == served.end_of("ann")
        assert node.status(late).state in (State.DONE, State.GONE)
    served.running["node"].terminate()
    assert [0] == served.end_of("node"), served.told("node")


def test_a_killed_node_costs_no_page_and_its_worker_goes_on_with_another_node(served):
    ports = {name: free_port() for name in ("node", "other", "third")}
    for name, port in ports.items():
        served.serve(name, port)
    served.add()
    for worker, node in {"ann": "node", "bob": "other", "cat": "third"}.items():
        served.work(worker, ports[node])
    served.until(lambda: served.asked > BEGUN)
    for name in ("node", "ann"):
        served.running[name].kill()
        served.running[name].wait()
    served.work("ann", ports["other"])
    assert [0, 0, 0] == served.end_of("ann", "bob", "cat"), [served.told(name) for name in ("ann", "bob", "cat")]
    served.check("ann", "bob", "cat")
    with Frontier.connect(str(served.file)) as cluster:
        assert cluster.verify().ok
    for name in ("other", "third"):
        served.running[name].terminate()
    assert [0, 0] == served.end_of("other", "third")


@pytest.mark.long
def test_a_node_that_serves_and_is_paused_past_its_tenure_leases_nothing_of_others_when_it_wakes(served):
    ports = {name: free_port() for name in ("node", "other")}
    for name, port in ports.items():
        served.serve(name, port)
    served.add()
    for worker, node in {"ann": "node", "bob": "other"}.items():
        served.work(worker, ports[node])
    served.until(lambda: served.asked > BEGUN)
    served.running["node"].send_signal(signal.SIGSTOP)
    served.for_seconds(30)
    served.running["node"].send_signal(signal.SIGCONT)
    assert [0, 0] == served.end_of("ann", "bob"), [served.told(name) for name in ("ann", "bob")]
    served.check("ann", "bob")
    assert "another node owns partition" in served.told("node")
