"""Commands about crawls by unique keys: from the files of a store, from a program that has it open, from a server."""

from __future__ import annotations

import base64
import json

import pytest

from contract.test_frontier_faces import World
from outrider import Frontier, Link
from outrider.cli.main import run
from outrider.crawl.questions import remote_queries
from unit.test_cli_remote import ADDRESS, Closing

ODD, LONG = b"\x00\x1b[31m", b"2" * 16_384
TEXT, KEY = "not\x1b[31m a url\u202e", "k\x1b.x"
LINKS = [
    Link("http://a.com/", crawl="c", unique_key=ODD), Link("http://a.com/", crawl="c", unique_key=LONG),
    Link("HTTP://A.com/#\x1b]0;x", crawl="c"), Link(TEXT, crawl="c", key=KEY), "http://b.com/",
]  # fmt: skip
HOST = "|k%1B%2Ex"


@pytest.fixture(params=["files", "open", "server"])
def place(request, tmp_path, monkeypatch):
    """A store with a crawl by unique keys, as a command names it."""
    if request.param == "server":
        world = World("remote")
        monkeypatch.setattr(remote_queries, "transport_to", lambda address, **access: Closing(world.wire, access))
        world.behind.make_crawl("c", unique="caller")
        world.behind.discover(LINKS)
        yield ADDRESS
        return
    path = str(tmp_path / "store")
    with Frontier.open(path) as frontier:
        frontier.make_crawl("c", unique="caller")
        frontier.discover(LINKS)
        if request.param == "open":
            yield path
    if request.param == "files":
        yield path


def said(capsys, *words, code=0):
    assert code == run(list(words))
    found = capsys.readouterr()
    assert {"\n"} >= {character for character in found.out + found.err if not character.isprintable()}
    return found.out if code == 0 else found.err


def explained(capsys, place, *words, **how):
    where = ["--server", place] if place == ADDRESS else ["-o", place]
    return said(capsys, "explain", "--crawl", "c", *where, *words, **how)


def base64_of(octets):
    return base64.b64encode(octets).decode()


@pytest.mark.parametrize("unique_key", [ODD, LONG])
def test_explain_accepts_a_unique_key_as_urls_prints_it(place, capsys, unique_key):
    rows = [json.loads(line) for line in said(capsys, "urls", place, "--crawl", "c", "--json").splitlines()]
    shown = next(row["unique_key"] for row in rows if row["unique_key"] == base64_of(unique_key))
    found = json.loads(explained(capsys, place, "--unique-key", shown, "--json"))
    assert ("http://a.com/", "queued", shown) == (found["url"], found["state"], found["status"]["unique_key"])
    assert "state          queued" in explained(capsys, place, "--unique-key", shown)


def test_explain_accepts_a_text_with_its_key_byte_for_byte(place, capsys):
    assert "queued" == json.loads(explained(capsys, place, TEXT, "--key", KEY, "--json"))["state"]
    assert r"not\x1b[31m a url\u202e" in explained(capsys, place, TEXT, "--key", KEY)
    assert "queued" == json.loads(explained(capsys, place, LINKS[2].url, "--json"))["state"]
    for url in ("http://a.com/", TEXT):
        assert "unknown" == json.loads(explained(capsys, place, url, "--json"))["state"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--unique-key", "!!"], "base64"),
        (["--unique-key", ""], "1 to 16,384 bytes"),
        (["--unique-key", base64_of(LONG + b"2")], "16,38"),
        ([], "Missing argument 'URL' or option '--unique-key', one of them"),
        (["http://a.com/", "--unique-key", "MQ=="], "one of them"),
        (["--unique-key", "MQ==", "--crawl", "default"], "canonical spelling"),
        (["x", "--crawl", "default"], "not an http or https URL"),
    ],
)
def test_explain_refuses_names_that_cannot_be(place, capsys, words, told):
    assert told in explained(capsys, place, *words, code=2)


def test_lists_show_texts_and_keys_without_control_characters(place, capsys):
    table = said(capsys, "urls", place, "--crawl", "c").splitlines()
    assert ["URL", "KEY", "UNIQUE"] == table[0].split()[:-4:-1]
    assert r"not\x1b[31m a url\u202e" in "\n".join(table)
    assert base64_of(LONG)[:44] + "…  http://a.com/" in "\n".join(table)
    assert max(map(len, table)) < 200
    assert "UNIQUE" not in said(capsys, "urls", place, "--crawl", "default")
    assert HOST in said(capsys, "hosts", place)
    assert 1 == len(said(capsys, "urls", place, "--host", HOST, "--json").splitlines())


@pytest.mark.parametrize("place", ["files", "server"], indirect=True)
def test_an_order_to_the_name_of_a_key_is_for_its_queue(place, capsys):
    assert f"pause {HOST}: 1 queue\n" == said(capsys, "host", place, HOST, "pause")
    hosts = [json.loads(line) for line in said(capsys, "hosts", place, "--json").splitlines()]
    assert {HOST} == {row["name"] for row in hosts if row["paused"]}
    assert "it must be a host name" in said(capsys, "host", place, "|k.", "pause", code=2)
