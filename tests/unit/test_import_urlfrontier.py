"""Files of URLFrontier's `DumpURLs`, imported: dates, creation dates, metadata, and lines that are no item."""

from __future__ import annotations

import io
import json

from grpc_client import Client, serving
from outrider import Frontier, Link
from outrider.crawl.orders.exchange import import_files
from outrider.crawl.setup.directory import store_of

LATER, CREATED = 4_000_000_000, 1_600_000_000
INFO = {"url": "http://a.test/1", "key": "a.test", "crawlID": "DEFAULT", "metadata": {"m": {"values": ["1", "2"]}}}
LINES = [
    # As the printer of protobuf writes it: numbers of 64 bits are texts.
    {"known": {"info": INFO, "refetchableFromDate": str(LATER)}, "creationDate": str(CREATED)},
    {"known": {"info": {"url": "http://a.test/2"}}, "creation_date": CREATED + 1},
    {"known": {"info": {"url": "text", "key": "_DEFAULT_", "crawlID": "my_crawl"}, "refetchable_from_date": 1}},
    {"discovered": {"info": {"url": "http://b.test/"}}, "ID": "7"},
]


def imported(directory, lines):
    path = directory / "dump.jsonl"
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    return import_files(str(directory / "crawl"), [str(path)], io.StringIO())


def test_each_url_keeps_its_date_metadata_and_creation_date(tmp_path):
    found = imported(tmp_path, LINES)
    assert (found.rows, found.codes, found.faults) == (4, {"imported": 4}, [])
    with Frontier.open(store_of(str(tmp_path / "crawl")), robots="caller") as frontier, serving(frontier) as address:
        client = Client(address)
        item = client.ask("GetURLStatus", {"url": "http://a.test/1", "key": "a.test"})
        assert item == {"known": {"info": INFO, "refetchable_from_date": LATER}, "creation_date": CREATED}
        done = client.ask("GetURLStatus", {"url": "http://a.test/2"})
        assert (done["known"].get("refetchable_from_date", 0), done["creation_date"]) == (0, CREATED + 1)
        assert sorted(client.get()) == ["http://b.test/", "text"]
        assert client.ask("ListCrawls") == {"values": ["DEFAULT", "my_crawl"]}
        # The creation date decides about a purge, not the date of the import.
        assert client.ask("PurgeURLs", {"days": 1}) == {"value": 2}
        assert client.ask("CountURLs") == {"value": 1}


def test_an_import_can_be_repeated_and_changes_no_known_url(tmp_path):
    imported(tmp_path, LINES[:1])
    with Frontier.open(store_of(str(tmp_path / "crawl")), robots="caller") as frontier:
        frontier.put([{"url": INFO["url"], "key": INFO["key"], "crawl": "DEFAULT", "state": "done"}])
    assert imported(tmp_path, LINES).codes == {"imported": 3, "known": 1}
    with Frontier.open(store_of(str(tmp_path / "crawl")), robots="caller") as frontier:
        status = frontier.status(Link(INFO["url"], key=INFO["key"]), crawl="DEFAULT")
        assert (str(status.state), status.discovered_at) == ("done", CREATED * 1_000_000)


def test_lines_that_cannot_be_used_are_named(tmp_path):
    info = {"url": "http://c.test/"}
    wrong = [
        ({"known": {"info": {"url": ""}}}, "it has no url"),
        ({"known": {"info": {**info, "key": "k" * 256}}}, "key has 256 characters"),
        ({"known": {"info": info, "refetchableFromDate": "1700000000000"}}, "refetchable_from_date is 1700000000000"),
        ({"known": {"info": info}, "creationDate": -1}, "creation_date is -1"),
        ({"known": {"info": []}}, "not an item of DumpURLs"),
        ({"known": {"info": {**info, "metadata": {"m": 5}}}}, "not an item of DumpURLs"),
        ({"url": "http://c.test/", "state": "queued"}, "it has no url"),
        ("{", "JSON"),
    ]
    found = imported(tmp_path, [LINES[0], *(line for line, _ in wrong)])
    assert (found.rows, found.skipped, found.codes) == (9, 8, {"imported": 1})
    for (_, place, told), (row, (_, words)) in zip(found.faults, enumerate(wrong, 2), strict=True):
        assert place == row
        assert words in told


def test_a_damaged_first_line_does_not_change_what_the_file_is(tmp_path):
    found = imported(tmp_path, ["{", '{"known": ' * 5_000, *LINES])
    assert (found.rows, found.codes) == (6, {"imported": 4})
    assert [1, 2] == [line for _, line, _ in found.faults]
