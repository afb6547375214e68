"""Nodes of a cluster for tests, each a process, and what all rows of failures have in common."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections import Counter

from e2e.crawling import command, environment, lines, wait_for
from outrider import Frontier
from outrider.cluster.written_places import PLACES_FILE
from outrider.sim.verdict import judge
from outrider.storage.manifest import MANIFEST_NAME

DELAY = 0.2
PARTITIONS = 8
SECONDS_MAX = 300
HOSTS = 20
BEGUN = 150  # requests, after which something happens


class Nodes:
    """The nodes of one cluster, each a process in a directory of its own; all are ended by their pids."""

    def __init__(self, folder, kafka, served, *, objects="", delay=DELAY, options=(), **surroundings):
        """objects: the address of object storage; default: a folder. delay, options: of every node. surroundings:
        variables of their environment."""
        self.folder, self.served, self.running, self.delay, self.options = folder, served, {}, delay, options
        self.environment = environment(**surroundings)
        self.name = folder.name[:40].lower().replace("_", "-")
        self.objects = objects or f"file:{folder / 'objects'}"
        self.file = self.write("cluster.toml", kafka.address)
        self.relayed_file = self.write("relayed.toml", kafka.relayed_address)
        made = subprocess.run(
            command("cluster", "init", self.file, "--partitions", str(PARTITIONS), "--json"),
            env=self.environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert 0 == made.returncode, made.stderr
        assert PARTITIONS == json.loads(made.stdout)["partitions"]

    def write(self, name, kafka):
        file = self.folder / name
        file.write_text(f'name = "{self.name}"\nkafka = "{kafka}"\nobjects = "{self.objects}"\n')
        return file

    def start(self, name, *seeds, file=None, **surroundings):
        """Starts a node. seeds: also other words of its command. surroundings: more variables of its environment."""
        words = command(
            "crawl", *seeds, "--cluster", file or self.file, "-o", self.folder / name,
            "--hosts", self.served.hosts_file, "--delay", str(self.delay), "--delay-factor", "0", "--no-sitemaps",
            *self.options,
        )  # fmt: skip
        with (self.folder / f"{name}.err").open("ab") as log:
            self.running[name] = subprocess.Popen(
                words, env={**self.environment, **surroundings}, stdin=subprocess.DEVNULL, stderr=log
            )

    def end(self):
        """Ends all nodes. Pytest shows their last messages if the test failed."""
        for name, process in self.running.items():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()
            print(f"node {name} ended with {process.returncode}:\n{self.told(name)[-2000:]}")

    def told(self, name):
        return (self.folder / f"{name}.err").read_text()

    def pages_of(self, name):
        """The lines of the pages of a node."""
        file = self.folder / name / "pages.jsonl"
        return lines(file) if file.exists() else []

    def length(self, name):
        return len(self.pages_of(name))

    def unsealed(self, name):
        """How many pages of a node are not noted as sealed: an upper bound, because it may note more at once."""
        places = self.folder / name / "cluster" / PLACES_FILE
        sealed = json.loads(places.read_bytes())["lengths"].get("pages", 0) if places.exists() else 0
        file = self.folder / name / "pages.jsonl"
        return file.read_bytes()[sealed:].count(b"\n") if file.exists() else 0

    def has_partitions(self, name):
        """Whether a node has claimed a partition."""
        return any((self.folder / name / "cluster" / "partitions").glob("*"))

    def given_up_max(self, *names):
        """How many requests are repeated at most if these nodes lost their partitions now: their pages that are not
        sealed, their open leases and the lines of one turn. A host has one request at a time."""
        return sum(map(self.unsealed, names)) + 2 * HOSTS

    @property
    def asked(self):
        log = self.served.log_file
        return log.read_text().count("\n") if log.exists() else 0

    def for_seconds(self, seconds):
        """Lets the crawl run for some time."""
        began = time.monotonic()
        self.until(lambda: time.monotonic() - began > seconds)

    def begin(self, *names):
        """Waits until the crawl has begun and the named nodes have pages: a node with an unfinished claim owns nothing
        that a failure could harm."""
        self.until(lambda: self.asked > BEGUN and all(self.length(name) for name in names))

    def until(self, happened):
        try:
            wait_for(happened, SECONDS_MAX)
        except AssertionError as error:
            raise AssertionError({name: self.told(name)[-1000:] for name in self.running}) from error

    def finish(self):
        """Waits until all nodes have ended, and checks what all rows have in common. Returns the requests in excess."""
        self.until(lambda: all(process.poll() is not None for process in self.running.values()))
        pages = [line for name in self.running for line in lines(self.folder / name / "pages.jsonl")]
        fetched = Counter(line["url"] for line in pages)
        assert self.served.web.must_fetch() <= set(fetched)
        assert {1} == set(fetched.values())
        assert len(pages) == len({line["token"] for line in pages})
        assert [] == judge(self.served.log_file, delay=self.delay).breaches
        self._verify()
        return self.repeated()

    def export(self):
        """Returns the exported pages."""
        pages = self.folder / "all.jsonl"
        words = command("export", self.file, "--what", "pages", "--to", pages)
        assert 0 == subprocess.run(words, env=self.environment, timeout=60, check=False).returncode
        found = lines(pages)
        pages.unlink()
        return found

    def exported(self, code=0):
        """Waits until all nodes have ended with this exit code, and returns the exported pages: each reachable one is
        there once, and no gap was broken. For rows with a node whose own lines do not count."""
        self.until(lambda: all(process.poll() is not None for process in self.running.values()))
        assert {code} == {process.returncode for process in self.running.values()}
        found = self.export()
        fetched = Counter(line["url"] for line in found)
        assert self.served.web.must_fetch() <= set(fetched)
        assert {1} == set(fetched.values())
        assert [] == judge(self.served.log_file, delay=self.delay).breaches
        self._verify()
        return found

    def waiting_hosts(self, name):
        """The hosts of a killed node that have queued URLs and no open lease, by its own files."""
        found = []
        for frontier in self._stores(name):
            found += [host.name for host in frontier.hosts() if host.queued and not host.leased]
        return found

    def _stores(self, name):
        """The stores that the directory of an ended node has, also of partitions that other nodes own by now."""
        for place in (self.folder / name / "cluster" / "partitions").iterdir():
            if (place / MANIFEST_NAME).exists():  # else it was killed during a claim
                with Frontier.look(place) as frontier:
                    yield frontier

    def _verify(self):
        """Counts the records of all stores again, and compares them with the counters."""
        for name in self.running:
            for frontier in self._stores(name):
                assert () == frontier.verify().problems

    def _requests(self):
        return [json.loads(line) for line in self.served.log_file.read_text().splitlines()]

    def repeated(self):
        """How many requests for pages were not the first ones."""
        asked = Counter((one["host"], one["path"]) for one in self._requests() if one["path"] != "/robots.txt")
        return sum(count - 1 for count in asked.values())

    def first_asked(self, host, after):
        """When a host got its first request after a moment of the monotonic clock, in seconds."""
        begins = [one["start"] / 1_000_000 for one in self._requests() if one["host"] == host]
        return min(begin for begin in begins if begin > after)
