"""Commands at the address of a server: the same words as for a directory, and orders that are carried out there."""

from __future__ import annotations

import json

import pytest

from contract.test_frontier_faces import A, B, World
from limiting import set_limits
from outrider.cli.main import run
from outrider.crawl.questions import remote_queries

ADDRESS = "http://127.0.0.1:7070"


@pytest.fixture
def world(monkeypatch):
    world = World("remote")
    world.face.discover([A, B])
    monkeypatch.setattr(remote_queries, "transport_to", lambda address, **access: Closing(world.wire, access))
    world.access = None
    return world


class Closing:
    """A connection that can be closed. It remembers the last token."""

    tokens: list = []  # noqa: RUF012

    def __init__(self, wire, access):
        self.wire = wire
        self.tokens.append(access["token"])

    def __call__(self, sent):
        return self.wire(sent)

    def close(self):
        pass


def said(capsys, *words, code=0):
    assert code == run(list(words))
    return capsys.readouterr().out


def test_an_empty_served_frontier_says_so(world, capsys):
    world.behind.set_robots("http://c.com", 200, b"User-agent: *\nDisallow: /")
    world.face.discover(["http://c.com/"])
    for lease in world.face.lease(10):
        world.face.report([lease.done(seconds=0.1)])
    assert "left        nothing to fetch; 1 URL is parked" in said(capsys, "status", ADDRESS).splitlines()
    assert "nothing is left" in said(capsys, "why-idle", ADDRESS)


def test_a_served_frontier_with_work_left_does_not_say_that_it_is_empty(world, capsys):
    assert "nothing to fetch" not in said(capsys, "status", ADDRESS)


def test_status_hosts_urls_and_why_idle_query_the_server(world, capsys):
    assert 2 == json.loads(said(capsys, "status", ADDRESS, "--json"))["accepted"]
    assert "accepted    2 URLs" in said(capsys, "status", ADDRESS)
    told = [json.loads(line) for line in said(capsys, "hosts", ADDRESS, "--json").splitlines()]
    assert ["a.com", "b.com"] == sorted(row["name"] for row in told)
    assert "b.com" in said(capsys, "hosts", ADDRESS)
    told = [json.loads(line) for line in said(capsys, "urls", ADDRESS, "--limit", "1", "--json").splitlines()]
    assert 1 == len(told[:-1])
    after = said(capsys, "urls", ADDRESS, "--after", told[-1]["cursor"], "--json").splitlines()
    assert {A, B} == {told[0]["url"], json.loads(after[0])["url"]}
    assert 2 == json.loads(said(capsys, "why-idle", ADDRESS, "--json"))["known"]
    assert "2 known" in said(capsys, "why-idle", ADDRESS)


def test_explain_accepts_a_server_in_place_of_a_directory(world, capsys):
    assert "queued" == json.loads(said(capsys, "explain", "HTTP://A.com", "--server", ADDRESS, "--json"))["state"]
    assert "why not now" in said(capsys, "explain", A, "--server", ADDRESS)
    assert 2 == run(["explain", A])
    assert "--server" in capsys.readouterr().err


def test_orders_are_carried_out_at_the_server(world, capsys):
    assert "pause a.com: 1 queue\n" == said(capsys, "host", ADDRESS, "a.com", "pause")
    assert world.behind.host("a.com").paused
    assert "delay a.com: 1 queue\n" == said(capsys, "host", ADDRESS, "a.com", "delay", "7")
    assert 7.0 == world.behind.host("a.com").delay_seconds
    assert "0 URLs are queued again\n" == said(capsys, "retry", ADDRESS)
    assert "1 new, 1 known\n" == said(capsys, "add", ADDRESS, "http://c.com/", A)
    assert 2 == run(["host", ADDRESS, "nobody.test", "pause"])


def test_a_token_is_read_from_its_file_or_the_environment(world, capsys, tmp_path, monkeypatch):
    (tmp_path / "token").write_text("filefilefilefile\n")
    said(capsys, "status", ADDRESS, "--token-file", str(tmp_path / "token"))
    monkeypatch.setenv("OUTRIDER_TOKEN", "environmentenvir")
    said(capsys, "status", ADDRESS)
    assert ["filefilefilefile", "environmentenvir"] == Closing.tokens[-2:]
    assert 2 == run(["status", ADDRESS, "--token-file", str(tmp_path / "nothing")])


def test_an_unreachable_server_is_exit_code_8(capsys, monkeypatch):
    set_limits(monkeypatch, REMOTE_PATIENCE_ASKING_SECONDS=0.0)
    assert 8 == run(["status", "http://127.0.0.1:9"])
    assert "no answer from http://127.0.0.1:9" in capsys.readouterr().err
