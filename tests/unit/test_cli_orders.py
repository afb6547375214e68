"""Orders to a crawl, running or not: `add`, `host`, `retry`; also `verify` and `export` while it runs."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
import tomllib

import pytest

import outrider
from fake_web import FakeWeb
from outrider import Frontier
from outrider.cli import main as cli
from outrider.crawl.questions import control, crawl_queries

HOME = "http://one.test/"


class Quiet(FakeWeb):
    """Each page has its URL as its text. The site has no robots.txt."""

    def page(self, url, path):
        return 404 if path == "/robots.txt" else 200, url, [("Content-Type", "text/plain")]


@pytest.fixture
def running(tmp_path):
    """Lets a function talk to a crawl that has one page due again in an hour. Then stops the crawl."""
    (tmp_path / "hosts").write_text("127.0.0.1 one.test\n127.0.0.2 two.test\n")
    out = tmp_path / "out"
    failures = []

    def run(talk):
        def beside():
            try:
                until(lambda: os.path.exists(out / "control.sock") and read(out))
                talk(str(out))
            except BaseException as error:  # noqa: BLE001 - told in the test's own thread
                failures.append(error)
            finally:
                os.kill(os.getpid(), signal.SIGINT)

        thread = threading.Thread(target=beside)
        thread.start()
        told = {"output": out, "hosts": str(tmp_path / "hosts"), "downloader": Quiet, "delay": 0, "delay_factor": 0}
        outrider.crawl([HOME], **told, revisit=lambda page: 3600.0)
        thread.join()
        if failures:
            raise failures[0]

    return run


def read(out):
    path = os.path.join(out, "pages.jsonl")
    if not os.path.exists(path):
        return []
    with open(path) as file:
        return [json.loads(line)["url"] for line in file if line.endswith("\n")]


def until(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_running_crawl_accepts_orders(running, tmp_path, capsys):
    def talk(out):
        assert 0 == cli.run(["add", out, HOME + "more", "http://two.test/"])
        until(lambda: {HOME + "more", "http://two.test/"} <= set(read(out)))
        assert 0 == cli.run(["host", out, "one.test", "pause"])
        assert 0 == cli.run(["add", out, HOME + "later"])
        assert 0 == cli.run(["retry", out])
        assert 0 == cli.run(["verify", out])
        assert 0 == cli.run(["export", out, "--to", str(tmp_path / "x.jsonl")])

    running(talk)
    told = capsys.readouterr()
    assert "2 new" in told.out
    assert "pause one.test: 1 queue" in told.out
    assert "all is correct" in told.out
    urls = {json.loads(line)["url"] for line in (tmp_path / "x.jsonl").read_text().splitlines()}
    assert {HOME, HOME + "more", HOME + "later", "http://two.test/"} == urls
    assert HOME + "later" not in read(tmp_path / "out")
    assert "order=pause" in (tmp_path / "out" / "crawl.log").read_text()


@pytest.fixture
def stopped(tmp_path):
    out = tmp_path / "out"
    (out / "frontier").mkdir(parents=True)
    with Frontier.open(out / "frontier", robots="errands") as frontier:
        frontier.discover([HOME])
    return str(out)


def test_a_stopped_crawl_accepts_the_same_orders(stopped, capsys):
    assert 0 == cli.run(["add", stopped, "http://two.test/", "HTTP://ONE.test/#x"])
    assert "1 new, 1 known\n" == capsys.readouterr().out
    for order in (["pause"], ["resume"], ["block", "60"], ["delay", "7.5"], ["limit", "2"], ["delay", "none"]):
        assert 0 == cli.run(["host", stopped, "One.Test", *order])
    assert 6 == capsys.readouterr().out.count("1 queue\n")
    with Frontier.look(stopped + "/frontier") as look:
        (queue,) = [one for one in look.queues() if one.host == "one.test"]
        assert (False, None, 2) == (queue.paused, queue.delay_seconds, queue.limit)
        assert queue.blocked_until > look.now()


def test_the_list_of_hosts_separates_paused_blocked_resting_and_ready(tmp_path, capsys):
    out, now = tmp_path / "out", [1_700_000_000_000_000]
    (out / "frontier").mkdir(parents=True)
    names = ("paused", "blocked", "resting", "ready")
    with Frontier.open(out / "frontier", clock=lambda: now[0], settings={"delay": 30}, robots="caller") as frontier:
        frontier.discover([f"http://{name}.test/{page}" for name in names for page in "ab"])
        for lease in frontier.lease(4):
            if "resting" in lease.url:
                frontier.report([lease.done(seconds=0.1)])
            else:
                frontier.release([lease.token])
        frontier.set_robots("http://ready.test", 404)
        frontier.pause("paused.test")
        frontier.block_until(now[0] + 3_600_000_000, "blocked.test")
        rows = {row.name: row for row in frontier.hosts()}
        assert ["blocked", "blocked", "resting", "ready"] == [rows[f"{name}.test"].state for name in names]
        assert {"blocked.test", "paused.test"} == {row.name for row in frontier.hosts(state="blocked")}
        assert now[0] + 3_600_000_000 == rows["blocked.test"].blocked_until
        assert "blocked" in frontier.explain_idle().hosts
    assert 0 == cli.run(["hosts", str(out)])
    told = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()[1:]}
    words = ("paused", "blocked until 2023-11-14T23:13:20.000Z", "resting", "r")
    assert [] == [name for name, word in zip(names, words, strict=True) if f" {word}" not in told[f"{name}.test"]]
    assert 0 == cli.run(["hosts", str(out), "--json"])
    rows = {row["name"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert ("2023-11-14T23:13:20.000Z", None) == (
        rows["blocked.test"]["blocked_until"],
        rows["paused.test"]["blocked_until"],
    )


@pytest.mark.parametrize(
    ("order", "words"),
    [
        (["stop"], "unknown order 'stop'; use pause"),
        (["pause", "5"], "pause needs no value, but got '5'"),
        (["block"], "block needs seconds above 0, as in `outrider host DIR HOST block 3600`"),
        (["delay"], "delay needs seconds, or none, as in `outrider host DIR HOST delay"),
        (["limit"], "limit needs a whole number from 1, or none, as in `outrider host DIR HOST limit"),
        (["block", "soon"], "block is 'soon'"),
        (["block", "0"], "block is '0'"),
        (["delay", "-1"], "delay is '-1'"),
        (["delay", "nan"], "delay is 'nan'"),
        (["limit", "0"], "limit is '0'; use a whole number from 1"),
        (["limit", "1.5"], "limit is '1.5'"),
    ],
)
def test_an_invalid_order_is_refused_by_name(stopped, capsys, order, words):
    assert 2 == cli.run(["host", stopped, "one.test", "--", *order])
    assert words in capsys.readouterr().err


def test_an_unknown_host_is_reported(stopped, capsys):
    assert 2 == cli.run(["host", stopped, "nobody.test", "pause"])
    told = capsys.readouterr().err
    assert "this crawl has no host 'nobody.test'; `outrider hosts DIR` lists its hosts" in told


def allowed(out):
    return tomllib.loads((out / "outrider.toml").read_text())["allow_address"]


def test_a_loopback_address_that_is_added_is_permitted_like_a_seed(running, tmp_path):
    def talk(out):
        assert 0 == cli.run(["add", out, "http://127.0.0.3/"])
        until(lambda: "http://127.0.0.3/" in read(out))

    running(talk)
    assert ["127.0.0.3"] == allowed(tmp_path / "out")
    errors = [json.loads(line).get("error") for line in (tmp_path / "out" / "pages.jsonl").read_text().splitlines()]
    assert {None} == set(errors)


def test_a_loopback_address_added_to_a_stopped_crawl_is_permitted_in_the_next_run(running, tmp_path):
    out = tmp_path / "out"
    running(lambda _: None)
    before = (out / "outrider.toml").read_text()
    assert 0 == cli.run(["add", str(out), "http://127.0.0.3/", "http://localhost/"])
    assert ["127.0.0.3", "127.0.0.1", "::1"] == allowed(out)
    after = (out / "outrider.toml").read_text()
    assert before.split("allow_address")[0] == after.split("allow_address")[0]
    assert 0 == cli.run(["add", str(out), "http://127.0.0.3/more"])
    assert after == (out / "outrider.toml").read_text()


def test_an_invalid_url_adds_no_url(stopped, capsys):
    assert 2 == cli.run(["add", stopped, "mailto:x@y"])
    assert "Wrong URL" in capsys.readouterr().err


def test_queries_and_orders_have_one_table_each():
    assert not set(crawl_queries.LOOKS) & set(crawl_queries.ORDERS)
    assert {"verify", "export"} == set(control.SLOW)
