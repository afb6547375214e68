"""`explain`, `why-idle`, `hosts`, `urls`: their output for people and programs, from files or from a running crawl."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, fields
from threading import Event, Thread

import pytest

from outrider.cli import main as cli
from outrider.crawl.questions import crawl_queries
from outrider.crawl.questions.control import Control
from outrider.crawl.setup.instants import dated
from outrider.errors import InvalidUrlError, SettingsError, StoreInUseError
from outrider.journey import Explanation, Idle, ListPage

HOUR = 3_600_000_000
AT = 1_700_000_000_000_000


@dataclass(frozen=True)
class Row:
    name: str
    state: str
    queued: int = 0
    rest_until: int = 0
    gap_seconds: float | None = None
    url: str = ""
    reason: str | None = None


class FakeFrontier:
    """Answers as the frontier does, from lists."""

    def __init__(self, rows=(), said=None):
        self.rows = list(rows)
        self.said = said or {}
        self.asked = []
        self.closed = False

    def explain(self, url, *, crawl=None):
        self.asked.append((url, crawl))
        return self._made(Explanation)

    def explain_idle(self):
        return self._made(Idle)

    def _made(self, kind):
        return kind(**{one.name: self.said[one.name] for one in fields(kind) if one.name in self.said})

    def hosts(self, *, state=None, after=None, limit=100):
        places = [place for place, row in enumerate(self.rows) if state in (None, row.state)]
        places = [place for place in places if place > int(after or 0) - 1]
        cursor = str(places[limit - 1] + 1) if len(places) > limit else None
        return ListPage([self.rows[place] for place in places[:limit]], cursor)

    def urls(self, *, state=None, host=None, reason=None, after=None, limit=1000):
        if after == "nonsense":
            raise SettingsError("cursor 'nonsense' is none of ours")
        kept = [row for row in self.rows if state in (None, row.state) and host in (None, row.name)]
        begin = int(after or 0)
        return ListPage(kept[begin : begin + limit], str(begin + limit) if begin + limit < len(kept) else None)

    def close(self):
        self.closed = True


@pytest.fixture
def crawl(tmp_path, monkeypatch):
    """A directory that looks like a crawl's, and the frontier that is found in it."""
    (tmp_path / "frontier").mkdir()

    def put(frontier):
        monkeypatch.setattr(crawl_queries.Frontier, "look", lambda path, **_: frontier)
        return str(tmp_path)

    return put


def hosts(count, state="ready"):
    return [Row(f"h{number}.test", state, number) for number in range(count)]


def lines(capsys):
    return capsys.readouterr().out.splitlines()


STATUS = {"url": "http://a.com/", "state": "queued", "priority": 0.5, "attempts": 0, "error": None, "due": None}
EXPLAINED = {
    "url": "http://a.com/",
    "state": "queued",
    "reason_now": "host_resting",
    "reason_text": "a.com pauses for 1 s more (floor)",
    "status": STATUS,
    "slot": 17,
    "fingerprint": 255,
    "klass": 8,
    "order": 1,
    "queue": {"key": "a.com", "queued": 1200},
    "host": {"name": "a.com", "rest_until": AT},
    "authority": "http://a.com",
    "robots": "line 2: Disallow: /x",
    "robots_state": "rules",
    "next_at": AT,
}
IDLE = {
    "reason": "resting",
    "text": "all 2 hosts with URLs left are in their delay",
    "known": 3,
    "hosts": {"ready": 0, "resting": 2, "blocked": 0, "leased": 0, "empty": 1},
    "urls": {"queued": 1200, "done": 4},
    "next_at": AT,
    "next_seconds": 0.25,
    "errands": 0,
    "tail_host": "a.com",
    "tail_urls": 1200,
    "tail_seconds": 1200.0,
}


def test_explain_says_the_reason_first_and_then_all_known_facts(crawl, capsys):
    fake = FakeFrontier(said=EXPLAINED)
    assert 0 == cli.run(["explain", "HTTP://A.com", "-o", crawl(fake)])
    said = lines(capsys)
    assert [
        "url           http://a.com/",
        "state         queued",
        "why not now   a.com pauses for 1 s more (floor)",
        "next at       2023-11-14T22:13:20.000Z",
        "priority      0.5",
    ] == said[:5]
    assert {"fingerprint   00000000000000ff", "queue", "  queued  1,200", "host"} <= set(said)
    assert ([("http://a.com/", None)], True) == (fake.asked, fake.closed)


def test_explain_in_json_is_one_object(crawl, capsys):
    directory = crawl(FakeFrontier(said=EXPLAINED))
    assert 0 == cli.run(["explain", "http://a.com/", "-o", directory, "--json"])
    sent = {**dated(EXPLAINED), "fingerprint": "00000000000000ff"}
    assert sent.items() <= json.loads(capsys.readouterr().out).items()


def test_why_idle_says_the_reason_the_next_event_and_the_tail(crawl, capsys):
    assert 0 == cli.run(["why-idle", crawl(FakeFrontier(said=IDLE))])
    assert [
        "all 2 hosts with URLs left are in their delay",
        "next      2023-11-14T22:13:20.000Z, in 0.25 s",
        "hosts     3 known: 0 ready, 2 resting, 0 blocked, 0 leased, 1 empty",
        "urls      1,200 queued, 4 done",
        "errands   0 robots.txt files and addresses to request",
        "the tail  a.com has 1,200 URLs: about 20 min left, at its gap",
    ] == lines(capsys)


def test_an_invalid_url_is_refused_before_any_query(crawl, capsys):
    fake = FakeFrontier()
    assert 2 == cli.run(["explain", "mailto:a@b", "-o", crawl(fake)])
    assert ([], "") == (fake.asked, capsys.readouterr().out)


def test_no_control_character_of_the_web_reaches_the_terminal(crawl, capsys):
    evil = "\x1b[2J\x7f\u202e\x9b"
    told = {"text": evil, "reason_text": evil, "tail_host": evil, "robots": evil, "hosts": {evil: 1}}
    queue = {evil: {"a": [evil]}, "rows": [{"x": evil}]}
    directory = crawl(FakeFrontier([Row(evil, "ready")], said={**EXPLAINED, **IDLE, **told, "queue": queue}))
    for more in ([], ["--json"]):
        assert 0 == cli.run(["explain", "http://a.com/", "-o", directory, *more])
    for arguments in (
        ["why-idle"],
        ["why-idle", "--json"],
        ["hosts"],
        ["hosts", "--json"],
        ["urls"],
        ["urls", "--json"],
    ):
        assert 0 == cli.run([arguments[0], directory, *arguments[1:]])
    said = capsys.readouterr()
    assert {"\n"} == {character for character in said.out + said.err if not character.isprintable()}
    assert "\\x1b[2J" in said.out


def test_hosts_are_an_aligned_table(crawl, capsys):
    rows = [Row("a.com", "ready", 12_345, 0, 1.0), Row("longer.example", "resting", 2, AT, 0.25)]
    assert 0 == cli.run(["hosts", crawl(FakeFrontier(rows))])
    table = lines(capsys)
    assert [
        ["HOST", "STATE", "QUEUED"],
        ["a.com", "ready", "12,345"],
        ["longer.example", "resting", "2"],
    ] == [line.split()[:3] for line in table]
    assert 1 == len({line.index(word) for line, word in zip(table, ("STATE", "ready", "resting"), strict=True)})
    assert "2023-11-14T22:13:20.000Z" in table[2]


def test_a_list_ends_at_its_limit_with_the_cursor_after_it(crawl, capsys):
    directory = crawl(FakeFrontier(hosts(7)))
    assert 0 == cli.run(["hosts", directory, "--limit", "3", "--json"])
    first = [json.loads(line) for line in lines(capsys)]
    assert (["h0.test", "h1.test", "h2.test"], {"cursor": "3"}) == ([row["name"] for row in first[:-1]], first[-1])
    assert 0 == cli.run(["hosts", directory, "--limit", "0", "--after", "3", "--json"])
    assert ["h3.test", "h4.test", "h5.test", "h6.test"] == [json.loads(line)["name"] for line in lines(capsys)]


def test_people_see_the_cursor_below_the_table(crawl, capsys):
    cli.run(["hosts", crawl(FakeFrontier(hosts(7))), "--limit", "3"])
    said = capsys.readouterr()
    assert ("3 hosts, and more: --after 3\n", 4) == (said.err, said.out.count("\n"))


def test_a_long_list_is_whole_and_in_order(crawl, capsys):
    assert 0 == cli.run(["urls", crawl(FakeFrontier(hosts(2_345))), "--limit", "0", "--json"])
    assert [f"h{number}.test" for number in range(2_345)] == [json.loads(line)["name"] for line in lines(capsys)]


def test_hosts_of_a_rare_state_are_found_after_many_other_hosts(crawl, capsys):
    rows = [*hosts(20_000), Row("rare.test", "blocked"), *hosts(10), Row("other.test", "blocked")]
    directory = crawl(FakeFrontier(rows))
    assert 0 == cli.run(["hosts", directory, "--state", "blocked", "--limit", "1", "--json"])
    first, more = [json.loads(line) for line in lines(capsys)]
    assert ("rare.test", {"cursor": "20001"}) == (first["name"], more)
    assert 0 == cli.run(["hosts", directory, "--state", "blocked", "--after", "20001", "--json"])
    assert ["other.test"] == [json.loads(line)["name"] for line in lines(capsys)]


def test_urls_are_chosen_by_state_and_host(crawl, capsys):
    rows = [Row("a.com", "gone"), Row("a.com", "done"), Row("b.com", "gone", 3)]
    assert 0 == cli.run(["urls", crawl(FakeFrontier(rows)), "--state", "gone", "--host", "b.com", "--json"])
    assert [3] == [json.loads(line)["queued"] for line in lines(capsys)]


def test_an_empty_list_says_so(crawl, capsys):
    assert 0 == cli.run(["urls", crawl(FakeFrontier())])
    assert ("", "no urls\n") == capsys.readouterr()


@pytest.mark.parametrize("command", ["why-idle", "hosts", "urls", "verify", "retry"])
def test_a_directory_without_a_crawl_is_wrong_usage(tmp_path, capsys, command):
    assert 2 == cli.run([command, str(tmp_path / "none")])
    assert "There is no crawl here: " in capsys.readouterr().err


@pytest.mark.parametrize("command", ["why-idle", "hosts", "urls", "verify", "retry"])
def test_a_directory_with_other_content_is_left_alone(tmp_path, capsys, command):
    (tmp_path / "thesis.tex").write_text("mine")
    assert 5 == cli.run([command, str(tmp_path)])
    assert "thesis.tex" in capsys.readouterr().err


# -- a running crawl


@pytest.fixture
def running(tmp_path, monkeypatch):
    """A directory whose store has an owner. The owner answers for a frontier over the socket."""
    (tmp_path / "frontier").mkdir()

    def owned(path, **_):
        raise StoreInUseError("it is in use by process 4711")

    monkeypatch.setattr(crawl_queries.Frontier, "look", owned)
    ends = []

    def serve(frontier):
        begun, end = Event(), Event()

        async def in_books(work):
            return work()

        async def answer():
            control = Control(str(tmp_path), crawl_queries.answers_of(frontier, in_books))
            await control.open()
            begun.set()
            await asyncio.to_thread(end.wait, 30)
            await control.close()

        thread = Thread(target=lambda: asyncio.run(answer()))
        thread.start()
        ends.append((end, thread))
        assert begun.wait(10)
        return str(tmp_path)

    yield serve
    for end, thread in ends:
        end.set()
        thread.join(10)


def test_a_running_crawl_is_queried(running, capsys):
    directory = running(FakeFrontier(hosts(600), said=IDLE))
    assert 0 == cli.run(["why-idle", directory, "--json"])
    assert dated(IDLE) == json.loads(capsys.readouterr().out)
    assert 0 == cli.run(["hosts", directory, "--limit", "0", "--json"])
    assert [f"h{number}.test" for number in range(600)] == [json.loads(line)["name"] for line in lines(capsys)]


def test_a_running_crawl_explains_a_url(running):
    fake = FakeFrontier(said=EXPLAINED)
    assert 0 == cli.run(["explain", "http://a.com", "-o", running(fake), "--crawl", "second"])
    assert [("http://a.com", "second")] == fake.asked  # the frontier spells it, by the rule of the crawl


def test_a_running_crawl_refuses_an_invalid_cursor(running, capsys):
    assert 2 == cli.run(["urls", running(FakeFrontier()), "--after", "nonsense"])
    assert "none of ours" in capsys.readouterr().err


def test_an_owner_that_does_not_answer_is_named(running, tmp_path, capsys):
    assert 6 == cli.run(["hosts", str(tmp_path)])
    assert "process 4711" in capsys.readouterr().err


def test_errors_of_the_frontier_keep_their_exit_code(crawl):
    class Broken(FakeFrontier):
        def explain(self, url, *, crawl=None):
            raise InvalidUrlError("not so")

    assert 2 == cli.run(["explain", "http://a.com/", "-o", crawl(Broken())])
