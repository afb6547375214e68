"""Faults on our own side that a newcomer mends: the address guard of a crawl and of one worker among several."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request

import pytest

from e2e.crawling import HOSTS_ON_LOOPBACK, command, environment, outrider, pages
from e2e.loopback import MISSING, Answer, site

pytestmark = HOSTS_ON_LOOPBACK
PACE = ("--delay", "0.05", "--delay-factor", "0")
PRIVATE = "10.0.0.1"  # no request is sent there: the guard refuses it


@pytest.fixture
def shop():
    """A site of two pages on loopback: its port."""
    pages = {"/": '<title>Shop</title><a href="b.html">b</a>', "/b.html": "<title>B</title>b"}
    with site(lambda _, target: Answer(pages[target]) if target in pages else MISSING) as server:
        yield server.server_port


@pytest.fixture
def hosts(tmp_path):
    """Makes a --hosts file in which shop.test has an address."""

    def made(address):
        path = tmp_path / f"hosts-{address}"
        path.write_text(f"{address} shop.test\n")
        return str(path)

    return made


@pytest.fixture
def served(tmp_path):
    """Starts `serve` in the folder `served`: its address."""
    running = []

    def start(*flags):
        words = command("serve", tmp_path / "served", "--http", "127.0.0.1:0", *PACE, *flags)
        process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment())
        running.append(process)
        line = process.stderr.readline()
        assert "serving at" in line, line + process.stderr.read()
        return line.split()[-1]

    yield start
    for process in running:
        process.kill()
        process.wait()
        process.stderr.close()


def add(address, *urls):
    body = json.dumps({"urls": urls}).encode()
    asked = urllib.request.Request(f"{address}/api/v1/frontier/urls", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=30) as answer:
        return json.load(answer)


def await_worker(address):
    """Waits until the server has received a message of a worker."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        with urllib.request.urlopen(f"{address}/api/v1/workers", timeout=30) as answer:
            if json.load(answer)["workers"]:
                return
        time.sleep(0.02)
    pytest.fail("no worker has registered")


def statuses(output):
    return sorted((line["url"].rpartition("/")[2], line["status"]) for line in pages(output) if line["status"])


def test_a_crawl_whose_guard_refused_its_seed_fetches_it_once_the_setting_is_mended(tmp_path, shop, hosts):
    words = ("crawl", f"http://shop.test:{shop}/", "-o", tmp_path / "out", "--contact", "me@example.org", *PACE)
    first = outrider(*words, "--hosts", hosts(PRIVATE), "--progress", "log")
    assert 8 == first.returncode, first.stderr
    assert "--allow-address" in first.stderr or "blocked" in first.stderr
    again = outrider("resume", tmp_path / "out", "--hosts", hosts("127.0.0.1"), "--progress", "log")
    assert 0 == again.returncode, again.stderr
    assert {("", 200), ("b.html", 200)} <= set(statuses(tmp_path / "out"))


def test_serve_puts_back_the_pages_that_a_setting_of_before_refused(tmp_path, shop, hosts):
    contact = ("--contact", "me@example.org")
    words = ("crawl", f"http://shop.test:{shop}/", "-o", tmp_path / "out", *contact, *PACE)
    assert 8 == outrider(*words, "--hosts", hosts(PRIVATE)).returncode
    now = ("--hosts", hosts("127.0.0.1"))
    serving = command("serve", tmp_path / "out", "--http", "127.0.0.1:0", *now)
    with subprocess.Popen(serving, stderr=subprocess.PIPE, text=True, env=environment()) as process:
        try:
            said = process.stderr.readline()
            assert "1 URL (blocked_address)" in said, said + process.stderr.read()
            worked = outrider("work", process.stderr.readline().split()[-1], "-o", tmp_path / "ann", *contact, *now)
        finally:
            process.kill()
    assert 0 == worked.returncode, worked.stderr
    assert {("", 200), ("b.html", 200)} <= set(statuses(tmp_path / "ann"))


def test_a_worker_needs_no_option_for_a_url_of_this_machine_that_its_owner_added(tmp_path, shop, served):
    address = served()
    assert 1 == add(address, f"http://127.0.0.1:{shop}/")["accepted"]
    worked = outrider("work", address, "-o", tmp_path / "ann")
    assert 0 == worked.returncode, worked.stderr
    assert [("", 200), ("b.html", 200)] == statuses(tmp_path / "ann")
    assert '"127.0.0.1",' in (tmp_path / "served" / "outrider.toml").read_text()
    for place in (address, tmp_path / "served"):
        ordered = outrider("host", place, "127.0.0.1", "recheck")
        assert (0, "recheck 127.0.0.1: 1 robots.txt file\n") == (ordered.returncode, ordered.stdout)
    at = f"{address}/api/v1/hosts/127.0.0.1/recheck"
    asked = urllib.request.Request(at, b"{}", {"Content-Type": "application/json"}, method="POST")
    with urllib.request.urlopen(asked, timeout=30) as answer:
        assert {"count": 1} == json.load(answer)


def test_the_worker_without_the_option_says_so_and_the_next_one_fetches_everything(tmp_path, shop, hosts, served):
    address = served("--contact", "me@example.org")
    add(address, f"http://shop.test:{shop}/")
    contact = ("--contact", "me@example.org")
    without = outrider("work", address, "-o", tmp_path / "ann", *contact, "--hosts", hosts(PRIVATE))
    assert 8 == without.returncode, without.stderr
    assert "--allow-address" in without.stderr
    assert PRIVATE in without.stderr
    other = outrider("work", address, "-o", tmp_path / "bob", *contact, "--hosts", hosts("127.0.0.1"))
    assert 0 == other.returncode, other.stderr
    assert [("", 200), ("b.html", 200)] == statuses(tmp_path / "bob")


def test_a_worker_without_the_option_does_not_disturb_a_worker_with_it(tmp_path, shop, hosts, served):
    address = served("--contact", "me@example.org")
    words = ("work", address, "--contact", "me@example.org", "--hosts")
    without = subprocess.Popen(
        command(*words, hosts(PRIVATE), "-o", tmp_path / "ann", "--stay"),
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        await_worker(address)  # it requests leases before there are any
        add(address, f"http://shop.test:{shop}/")
        other = outrider(*words, hosts("127.0.0.1"), "-o", tmp_path / "bob")
    finally:
        without.terminate()
        said = without.communicate(timeout=60)[1]
    assert 0 == other.returncode, other.stderr
    assert [("", 200), ("b.html", 200)] == statuses(tmp_path / "bob")
    # It may have leased the URL once before the other worker.
    assert 4 == without.returncode, said
    assert "--allow-address" in said or (without.returncode, "refused" in said) == (4, False)


def test_a_private_address_is_refused_when_it_is_added_and_the_option_permits_it(tmp_path, served):
    address = served()
    for words in (("add", address), ("add", tmp_path / "served")):
        refused = outrider(*words, f"http://{PRIVATE}/")
        assert 2 == refused.returncode, refused.stderr
        assert f"--allow-address {PRIVATE}" in refused.stderr
    mixed = add(address, f"http://{PRIVATE}/", "http://127.0.0.1/")
    assert ["invalid", "new"] == mixed["codes"]
    assert "--allow-address" in mixed["refused"][0]


def test_serve_keeps_its_settings(tmp_path, served):
    served("--scope", "any", "--contact", "me@example.org", "--allow-address", "10.0.0.0/8")
    kept = (tmp_path / "served" / "outrider.toml").read_text()
    for line in ("delay = 0.05", 'scope = "any"', 'contact = "me@example.org"', '    "10.0.0.0/8",'):
        assert line in kept.splitlines()
