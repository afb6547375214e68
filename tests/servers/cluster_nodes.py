"""Nodes of a cluster for tests, each a process, and what all rows of failures have in common."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections import Counter

from e2e.crawling import command, environment, lines, wait_for
from outrider.sim.verdict import judge

DELAY = 0.2
PARTITIONS = 8
SECONDS_MAX = 300
HOSTS = 20
BEGUN = 150  # requests, after which something happens


class Nodes:
    """The nodes of one cluster, each a process in a directory of its own; all are ended by their pids."""

    def __init__(self, folder, kafka, served, *, objects="", options=(), **surroundings):
        """objects: the address of object storage; default: a folder. options: of every node. surroundings: variables of
        their environment."""
        self.folder, self.served, self.running, self.options = folder, served, {}, options
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
            "--hosts", self.served.hosts_file, "--delay", str(DELAY), "--delay-factor", "0", "--no-sitemaps",
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

    def has_partitions(self, name):
        """Whether a node has claimed a partition."""
        return any((self.folder / name / "cluster" / "partitions").glob("*"))

    @property
    def asked(self):
        log = self.served.log_file
        return log.read_text().count("\n") if log.exists() else 0

    def for_seconds(self, seconds):
        """Lets the crawl run for some time."""
        began = time.monotonic()
        self.until(lambda: time.monotonic() - began > seconds)

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
        assert [] == judge(self.served.log_file, delay=DELAY).breaches
        asked = Counter()
        for line in self.served.log_file.read_text().splitlines():
            record = json.loads(line)
            if record["path"] != "/robots.txt":
                asked[record["host"], record["path"]] += 1
        return sum(count - 1 for count in asked.values())
