"""kill -9 and power cuts under the gRPC server: acknowledged items are there, once, and the clocks of hosts hold."""

from __future__ import annotations

import itertools
import random
import subprocess
import threading
import time
from functools import partial

import grpc
import pytest

from crash.mounting import ext4
from crash.test_power_ext4 import HOW
from e2e.crawling import command, environment, outrider, wait_for
from grpc_client import Client, discovered, known
from servers.relay import failing_relay

OK, FAIL = 0, 2
ROUNDS, ITEMS = 4, 3_000
HOSTS, PATHS = 40, 30
CRAWLS, KEYS = ("one", "two"), ("a.test", "b.test", "c.test")
CALLS_MIN = 100  # before a kill
BROKEN_MIN, STREAMS_MAX = 5, 200
READY_SECONDS_MAX = 60
FAR = 4_000_000_000
"""A date in 2096, in seconds."""


@pytest.fixture
def server(tmp_path):
    """Starts servers of one directory; each is killed at the end."""
    running = []

    def start(directory=tmp_path / "crawl"):
        words = command("serve", directory, "--grpc", "127.0.0.1:0")
        running.append(subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment()))
        line = running[-1].stderr.readline()
        assert "serving gRPC at" in line, line
        return Client(line.split()[-1]), running[-1]

    yield start
    for process in running:
        process.kill()
        process.communicate()


class Sender:
    """Sends items in one stream, with a date that grows, and notes the last sent and the last acknowledged one of each
    URL."""

    def __init__(self, rng, dates):
        self.rng, self.dates = rng, dates
        self.sent, self.acknowledged, self.new = {}, {}, set()
        self.count = 0
        self.broken = False

    def items(self):
        for _ in range(ITEMS):
            url = f"http://h{self.rng.randrange(HOSTS)}.test/{self.rng.randrange(PATHS)}"
            if self.rng.random() < 0.3:
                yield discovered(url + "/new", id=f"new {url}/new")
                continue
            date = next(self.dates)
            self.sent[url] = date
            yield known(url, date, id=f"{date} {url}")

    def run(self, client, ready):
        try:
            for ack in client.stream("PutURLs", self.items()):
                kind, url = ack["ID"].split(" ")
                if kind == "new" and ack.get("status", 0) != FAIL:
                    self.new.add(url)
                elif kind != "new" and ack.get("status", 0) == OK:
                    self.acknowledged[url] = max(int(kind), self.acknowledged.get(url, 0))
                self.count += 1
                if self.count > ITEMS // 6:
                    ready.set()
        except grpc.RpcError as error:
            self.broken = is_lost(error)


def is_lost(error):
    """Whether the server was killed, or the connection failed. Raises each other error: the server has refused a
    call."""
    if error.code() is not grpc.StatusCode.UNAVAILABLE:
        raise error
    return True


def kill_during(server, calls):
    """Starts a server, makes calls in a thread, and kills the server when they have set their event. A call that fails
    before that leaves the event unset, so the test fails."""
    client, process = server()
    ready = threading.Event()
    thread = threading.Thread(target=calls, args=(client, ready))
    thread.start()
    assert ready.wait(READY_SECONDS_MAX)
    process.kill()
    process.wait()
    thread.join(30)
    assert not thread.is_alive()


def test_acknowledged_items_survive_kill_9(server, tmp_path):
    rng = random.Random(37)
    sender = Sender(rng, itertools.count(FAR))
    for _ in range(ROUNDS):
        sender.count = 0
        kill_during(server, sender.run)
    client, process = server()
    check(client, sender)
    process.kill()
    process.wait()
    told = outrider("verify", tmp_path / "crawl")
    assert told.returncode == 0, told.stdout + told.stderr


@pytest.mark.parametrize("how", list(HOW))
def test_acknowledged_items_survive_a_power_cut_of_a_real_file_system(server, tmp_path, how):
    sender = Sender(random.Random(HOW[how]), itertools.count(FAR))
    with ext4(tmp_path) as disk:
        for last in (False, False, True):
            disk.mount()
            client, process = server(disk.place / "crawl")
            try:
                ready = threading.Event()
                thread = threading.Thread(target=sender.run, args=(client, ready))
                sender.count = 0
                thread.start()
                assert ready.wait(READY_SECONDS_MAX)
                disk.cut(HOW[how])
            finally:
                process.kill()
                process.wait()
            thread.join(30)
            assert not thread.is_alive()
            disk.unmount()
            if last:
                disk.mount()
                client, process = server(disk.place / "crawl")
                try:
                    check(client, sender)
                finally:
                    process.kill()
                    process.wait()


def test_random_calls_with_kills_leave_counts_that_equal_a_recount(server, tmp_path):
    rng = random.Random(73)
    for _ in range(ROUNDS):
        kill_during(server, partial(random_calls, rng))
    client, process = server()
    assert client.ask("GetStats", {"crawlID": CRAWLS[0]})["size"] > 0
    for crawl in CRAWLS:
        for key in ("", *KEYS):
            found = client.ask("GetStats", {"crawlID": crawl, "key": key})
            listed = list(client.stream("ListURLs", {"size": 1_000_000, "crawlID": crawl, "key": key}))
            completed = sum(not one["known"].get("refetchable_from_date") for one in listed)
            assert found.get("counts", {}).get("completed", 0) == completed
            assert found.get("size", 0) == len(listed) - completed
            assert client.ask("CountURLs", {"crawlID": crawl, "key": key}).get("value", 0) == len(listed)
    process.kill()
    process.wait()
    told = outrider("verify", tmp_path / "crawl")
    assert told.returncode == 0, told.stdout + told.stderr


def random_calls(rng, client, many):
    """Makes calls of all kinds until the server is killed. many: set after CALLS_MIN of them."""
    try:
        for count in itertools.count(1):
            random_call(client, rng)
            if count == CALLS_MIN:
                many.set()
    except grpc.RpcError as error:
        is_lost(error)


def random_call(client, rng):
    crawl, key = rng.choice(CRAWLS), rng.choice(KEYS)
    queue = {"crawlID": crawl, "key": key}
    urls = [f"http://{key}/{rng.randrange(PATHS)}" for _ in range(rng.randrange(1, PATHS))]
    match rng.choice(("put", "put", "date", "get", "delay", "block", "limit", "purge", "delete", "delete crawl")):
        case "put":
            client.put(*(discovered(url, crawl) for url in urls))
        case "date":
            client.put(*(known(url, rng.choice((0, 1, FAR)), crawl) for url in urls))
        case "get":
            client.get(crawlID=crawl, max_urls_per_queue=rng.randrange(5))
        case "delay":
            client.ask("SetDelay", {**queue, "delay_requestable": 0})
        case "block":
            client.ask("BlockQueueUntil", {**queue, "time": rng.choice((0, FAR))})
        case "limit":
            client.ask("SetCrawlLimit", {**queue, "limit": rng.randrange(4)})
        case "purge":
            client.ask("PurgeURLs", {**queue, "days": 0})
        case "delete" if rng.random() < 0.3:
            client.ask("DeleteQueue", queue)
        case "delete crawl" if rng.random() < 0.3:
            client.ask("DeleteCrawl", {"value": CRAWLS[1]})


@pytest.mark.parametrize("states", [("cut",), ("half", "cut")], ids=["cut", "half"])
def test_streams_whose_connections_fail_lose_and_repeat_no_acknowledged_item(server, states):
    client, _ = server()
    sender = Sender(random.Random(41), itertools.count(FAR))
    broken = 0
    with failing_relay(int(client.address.rpartition(":")[2]), states) as relay:
        for _ in range(STREAMS_MAX):
            relayed = Client(f"127.0.0.1:{relay.port}")
            sender.broken = False
            sender.run(relayed, threading.Event())
            relayed.close()
            broken += sender.broken
            if broken >= BROKEN_MIN and len(sender.acknowledged) > HOSTS:
                break
    assert broken >= BROKEN_MIN
    check(client, sender)


def check(client, sender):
    """Checks that each acknowledged item is there, once."""
    found, places = {}, 0
    for item in client.stream("ListURLs", {"size": 1_000_000}):
        places += 1
        found[item["known"]["info"]["url"]] = item["known"].get("refetchable_from_date", 0)
    assert places == len(found), "each URL is there once"
    assert len(sender.acknowledged) > HOSTS
    for url, date in sender.acknowledged.items():
        # A later item may have been stored before the server could acknowledge it.
        assert date <= found[url] <= sender.sent[url], url
    assert sender.new <= found.keys()
    assert client.ask("GetStats")["size"] == len(found)


def test_a_killed_server_hands_out_no_url_twice_and_none_early(server):
    client, process = server()
    client.put(*(discovered(f"http://h{row % 5}.test/{row}") for row in range(50)))
    client.ask("SetDelay", {"delay_requestable": 1})
    handed, times = [], {}

    def hands_out(client, count):
        asked = time.monotonic()  # the server hands out later, and this program may learn of it much later
        for info in client.infos(max_urls_per_queue=1, delay_requestable=600):
            now, before = time.monotonic(), times.get(info["key"])
            assert before is None or now - before > 0.98, "a delay of a second is between two URLs of a host"
            times[info["key"]] = asked
            handed.append(info["url"])
            client.put(known(info["url"], 0))
        return len(handed) >= count

    for count in (10, 20, 30):  # each host has two URLs of each process
        wait_for(partial(hands_out, client, count))
        process.kill()
        process.wait()
        client, process = server()
    assert len(handed) == len(set(handed))
