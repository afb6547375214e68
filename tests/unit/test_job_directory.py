"""Job directories of Scrapy, read without Scrapy: whole ones, torn ones, and hostile ones, which construct nothing."""

from __future__ import annotations

import datetime
import json
import os
import pickle
import sqlite3
import struct
from pathlib import Path

import pytest

from outrider.engine.owner import Frontier
from outrider.errors import NamedPathError, SettingsError
from outrider.integrations.job_directory import JobDirectory
from outrider.integrations.job_import import import_job
from outrider.integrations.pickle_values import Octets, RefusedPickleError, plain_value
from outrider.integrations.stored_requests import check_identity, values_of


def request(number, **fields):
    """A request as `Request.to_dict` returns it."""
    return {"url": f"http://site.test/{number}", "callback": "parse", "method": "GET", "priority": 0, **fields}


def dumped(value):
    return pickle.dumps(value, protocol=4)


def stack(path, records, count=None):
    """Writes a queue as queuelib's LifoDiskQueue does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    body = b"".join(record + struct.pack(">L", len(record)) for record in records)
    path.write_bytes(struct.pack(">L", len(records) if count is None else count) + body)


def active(job):
    (job / "requests.queue" / "active.json").write_text("{}")


def urls(directory):
    return [one.values and one.values["url"].rsplit("/", 1)[1] for one in directory.requests()]


PLAIN = {
    **request(1),
    "body": b"\x00" * 70_000,
    "headers": {b"A": [b"1", b"2"]},
    "meta": {
        "big": 1 << 200,
        "deep": [(), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), {1, 2}, frozenset({3})],
        "text": "ü" * 300,
    },
    "cb_kwargs": {"real": 0.5, "flags": [True, False, None], "numbers": [-1, 255, 65_535, 1 << 31]},
}


@pytest.mark.parametrize("protocol", [4, 5])
def test_plain_values_are_read(protocol):
    assert PLAIN == plain_value(Octets(pickle.dumps(PLAIN, protocol=protocol)))


class Attack:
    """A pickle that makes a file when it is loaded."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (self.mark,)


HOSTILE = {
    "a call": lambda mark: dumped({**request(1), "meta": {"x": Attack(mark)}}),
    "a call in protocol 2": lambda mark: pickle.dumps(Attack(mark), protocol=2),
    "a class": lambda mark: dumped({**request(1), "meta": {"x": datetime.datetime}}),
    "an instance": lambda mark: b"(ios\nmkdir\n(V" + mark.encode() + b"\nt.",
    "an extension": lambda mark: b"\x82\x01.",
    "a persistent id": lambda mark: b"Pmark\n.",
    "a number as text": lambda mark: b"I1\n.",
    "a mark": lambda mark: b"(.",
    "a mark in a tuple": lambda mark: b"(\x85.",
    "nothing on the stack": lambda mark: b"a.",
    "an unknown memo": lambda mark: b"h\x07.",
    "a list as a key": lambda mark: b"}]Ns.",
    "two values": lambda mark: b"NN.",
    "items of a text": lambda mark: b"\x8c\x01xNa.",
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_pickle_is_refused_and_constructs_nothing(case, tmp_path):
    mark = str(tmp_path / "made")
    with pytest.raises(RefusedPickleError):
        plain_value(Octets(HOSTILE[case](mark)))
    assert not Path(mark).exists()


def test_a_refusal_names_the_function():
    with pytest.raises(RefusedPickleError, match=r"it needs 'posix\.mkdir', and only plain values are read"):
        plain_value(Octets(dumped(Attack("x"))))


def test_values_that_grow_are_refused():
    """A small pickle can use one list many times, or contain itself."""
    bomb = ["x"]
    for _ in range(60):
        bomb = [bomb, bomb]
    endless = []
    endless.append(endless)
    for value in (bomb, endless):
        with pytest.raises(RefusedPickleError, match="more than 100,000 values"):
            plain_value(Octets(dumped({**request(1), "meta": {"x": value}})))


@pytest.mark.parametrize("octets", [b"", b"N", b"\x8e" + b"\xff" * 8, b"\xff\xff", b"\x8c\x05ab", b"Pno end"])
def test_octets_that_are_no_pickle_are_refused(octets):
    with pytest.raises(ValueError):
        plain_value(Octets(octets))


def test_queues_are_read_by_priority_and_backwards(tmp_path):
    root = tmp_path / "requests.queue"
    stack(root / "site-abc" / "0", [dumped(request(number)) for number in (1, 2, 3)])
    stack(root / "site-abc" / "-5", [dumped(request(4))])
    stack(root / "7", [dumped(request(5))])
    active(tmp_path)
    directory = JobDirectory(tmp_path)
    assert ["4", "3", "2", "1", "5"] == urls(directory)
    assert directory.stopped


def test_a_queue_of_start_requests_begins_at_its_tail(tmp_path):
    queue = tmp_path / "requests.queue" / "0s"
    queue.mkdir(parents=True)
    records = [dumped(request(number)) for number in range(4)]
    whole = [struct.pack(">L", len(record)) + record for record in records]
    (queue / "q00000").write_bytes(b"".join(whole[:2]))
    (queue / "q00001").write_bytes(b"".join(whole[2:]))
    info = {"chunksize": 2, "size": 3, "tail": [0, 1, len(whole[0])], "head": [1, 2]}
    (queue / "info.json").write_text(json.dumps(info))
    active(tmp_path)
    directory = JobDirectory(tmp_path)
    assert ["1", "2", "3"] == urls(directory)
    assert directory.stopped
    for damaged in ("[]", '{"size": -1, "tail": [0, 0, 0]}', '{"size": 1, "tail": "abc"}', "{", "[" * 5_000):
        (queue / "info.json").write_text(damaged)
        assert ["0", "1", "2", "3"] == urls(directory)
        assert not directory.stopped


def test_a_torn_queue_is_read_up_to_its_end(tmp_path):
    path = tmp_path / "requests.queue" / "site" / "0"
    stack(path, [dumped(request(number)) for number in (1, 2, 3)], count=0)
    path.write_bytes(path.read_bytes()[:-9])
    active(tmp_path)
    directory = JobDirectory(tmp_path)
    assert ["1", "2"] == urls(directory)
    assert [str(path)] == directory.torn
    assert not directory.stopped


@pytest.mark.parametrize("octets", [b"", b"abc", b"\xff" * 4_096, b"\0" * 4, os.urandom(2_000)])
def test_a_file_of_anything_ends(tmp_path, octets):
    path = tmp_path / "requests.queue" / "0"
    path.parent.mkdir()
    path.write_bytes(octets)
    assert not [name for name in urls(JobDirectory(tmp_path)) if name]


def test_a_changed_count_says_that_the_spider_was_killed(tmp_path):
    stack(tmp_path / "requests.queue" / "0", [dumped(request(1))], count=0)
    active(tmp_path)
    directory = JobDirectory(tmp_path)
    assert ["1"] == urls(directory)
    assert not directory.stopped


def test_fingerprints_after_the_end_say_that_the_spider_was_killed(tmp_path):
    stack(tmp_path / "requests.queue" / "0", [dumped(request(1))])
    active(tmp_path)
    (tmp_path / "requests.seen").write_bytes(b"")
    later = (tmp_path / "requests.queue" / "active.json").stat().st_mtime + 60
    os.utime(tmp_path / "requests.seen", (later, later))
    directory = JobDirectory(tmp_path)
    assert ["1"] == urls(directory)
    assert not directory.stopped


@pytest.mark.parametrize(
    "octets", [b"\0\x02ab\0\x03cde\0\x05x", b"6162\n636465\n7"], ids=["of Scrapy 2.19", "of Scrapy 2.18"]
)
def test_fingerprints_are_read(tmp_path, octets):
    (tmp_path / "requests.seen").write_bytes(octets)
    assert [b"ab", b"cde"] == list(JobDirectory(tmp_path).seen())


def database(path, *statements):
    path.parent.mkdir(exist_ok=True)
    with sqlite3.connect(path) as made:
        for one in statements:
            made.execute(*one)
    made.close()


MADE = ("CREATE TABLE queue (id INTEGER PRIMARY KEY AUTOINCREMENT, item BLOB)",)


def test_a_queue_in_sqlite_is_read_and_not_changed(tmp_path):
    path = tmp_path / "requests.queue" / "0"
    database(path, MADE, *(("INSERT INTO queue (item) VALUES (?)", (dumped(request(n)),)) for n in (1, 2)))
    before = path.read_bytes()
    assert ["2", "1"] == urls(JobDirectory(tmp_path))
    assert before == path.read_bytes()
    assert ["0"] == os.listdir(path.parent)


def test_a_hostile_database_is_named(tmp_path):
    path = tmp_path / "requests.queue" / "0"
    endless = "WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n) SELECT id, 'x' AS item FROM n"
    database(path, (f"CREATE VIEW queue AS {endless}",))
    (one,) = JobDirectory(tmp_path).requests()
    assert "it has no table named queue" in one.fault
    path.write_bytes(b"SQLite format 3\0" + b"\xff" * 5_000)
    (one,) = JobDirectory(tmp_path).requests()
    assert "the database cannot be read" in one.fault


def test_an_import_adds_requests_and_lists_what_it_cannot_use(tmp_path):
    job, store = tmp_path / "job", tmp_path / "store"
    kept = request(3, priority=7, meta={"depth": 2, "download_slot": "slow", "pair": (1, b"2")}, dont_filter=True)
    stack(
        job / "requests.queue" / "0",
        [dumped(one) for one in (request(1), kept, request(2, meta={"x": Attack("y")}), {"no": "url"}, "text")],
    )
    active(job)
    (job / "requests.seen").write_bytes(b"\0\x02ab")
    found = import_job(str(store), str(job), "news")
    assert ({"new": 2}, 1, 3) == (dict(found.codes), found.seen, found.skipped)
    assert any("posix.mkdir" in words for _, words in found.faults)
    with Frontier.open(store, settings={"delay": 0, "delay_factor": 0}, robots="caller") as frontier:
        leases = {}
        for _ in range(2):  # both have one host
            (lease,) = frontier.lease(1)
            leases[lease.url] = lease
            frontier.report([lease.done(seconds=0.0)])
        assert {"http://site.test/1", "http://site.test/3"} == leases.keys()
        lease = leases["http://site.test/3"]
        assert ("slow", 2, "news") == (lease.key, lease.depth, lease.crawl)
        assert lease.priority > leases["http://site.test/1"].priority
        assert kept == {"method": "GET", **values_of(lease)}
    again = import_job(str(store), str(job), "news")
    assert ({"known": 2}, 0) == (dict(again.codes), again.seen)


@pytest.mark.parametrize("damaged", [b"", b"{", b"[]", b'{"spider": 1}', b"\xff", b"[" * 100_000])
def test_a_damaged_note_of_a_store_is_named_with_the_way_out(tmp_path, damaged):
    note = tmp_path / "scrapy.json"
    note.write_bytes(damaged)
    with pytest.raises(SettingsError, match=r"scrapy\.json is damaged .* is that of 'news', delete this file"):
        check_identity(tmp_path, "news", "a.Fingerprinter")
    note.unlink()
    check_identity(tmp_path, "news", "a.Fingerprinter")
    assert {"spider": "news", "fingerprinter": "a.Fingerprinter"} == json.loads(note.read_bytes())
    with pytest.raises(SettingsError, match=r"was made with fingerprinter 'a\.Fingerprinter', and REQUEST_FINGER"):
        check_identity(tmp_path, "news", "b.Fingerprinter")


def test_an_import_into_the_store_of_another_spider_is_refused(tmp_path):
    job, store = tmp_path / "job", tmp_path / "store"
    stack(job / "requests.queue" / "0", [dumped(request(1))])
    Frontier.open(store).close()
    check_identity(store, "other", "a.Fingerprinter")
    with pytest.raises(SettingsError, match="is the store of spider 'other', not of 'news'"):
        import_job(str(store), str(job), "news")
    with pytest.raises(SettingsError, match="is not a JOBDIR of Scrapy"):
        import_job(str(tmp_path / "new"), str(store), "news")
    with pytest.raises(NamedPathError, match="nowhere is not a directory"):
        import_job(str(tmp_path / "new"), str(tmp_path / "nowhere"), "news")
    assert not (tmp_path / "new").exists()
