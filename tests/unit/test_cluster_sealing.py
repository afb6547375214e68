"""Lines of a cluster in object storage: how a node seals them, and which of them count."""

from __future__ import annotations

import gzip
import json
import threading

import pytest

from outrider.cluster.sealed_lines import LineObjects, SealedLines, write_without
from outrider.cluster.sealing import Seal, Sealing, pieces
from outrider.errors import DamagedStoreError, StoreFailedError, UnreachableError
from outrider.limits import SEALED_LINES_BYTES


class MemoryObjects:
    """Objects in memory. away: how many more calls fail; kept: a failing call has written the object all the same."""

    def __init__(self):
        self.content, self.away, self.kept = {}, 0, False

    def create(self, name, octets):
        is_new = name not in self.content
        if self.away:
            self.away -= 1
            if self.kept:
                self.content.setdefault(name, octets)
            raise UnreachableError("the storage is away")
        self.content.setdefault(name, octets)
        return is_new

    def read(self, name):
        return self.content.get(name)

    def names(self, prefix):
        return sorted(name for name in self.content if name.startswith(prefix))


def page(token):
    return json.dumps({"url": f"http://site.test/{token}", "token": token}).encode() + b"\n"


def tokens(objects):
    return [json.loads(line)["token"] for _, _, line in SealedLines(objects, "c").of("pages")]


def test_each_object_is_written_once_and_a_node_goes_on_after_its_last_one():
    objects = MemoryObjects()
    LineObjects(objects, "c", "host-1", ["pages", "politeness"]).write("politeness", b"{}\n")
    again = LineObjects(objects, "c", "host-1", ["pages", "politeness"])
    again.write("pages", page(1))
    LineObjects(objects, "c", "host-12", ["pages"]).write("pages", page(2))
    assert [
        "c/lines/pages/host-1-0000000002.jsonl.gz",
        "c/lines/pages/host-12-0000000001.jsonl.gz",
        "c/lines/politeness/host-1-0000000001.jsonl.gz",
    ] == objects.names("c/")
    assert [("host-1", page(1).strip()), ("host-12", page(2).strip())] == [
        (node, line) for node, _, line in SealedLines(objects, "c").of("pages")
    ]


def test_an_object_whose_answer_was_lost_is_not_written_over():
    objects = MemoryObjects()
    written = LineObjects(objects, "c", "n", ["pages"])
    objects.away, objects.kept = 1, True
    with pytest.raises(UnreachableError):
        written.write("pages", page(1))
    written.write("pages", page(1) + page(2))
    assert [1, 1, 2] == tokens(objects)


def test_lines_that_do_not_count_are_named_by_their_tokens():
    objects = MemoryObjects()
    write_without(objects, "c", 3, 2, [7, 9])
    write_without(objects, "c", 4, 1, [11])
    assert {7, 9, 11} == SealedLines(objects, "c").not_counted()


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("c/lines/pages/n-0000000001.jsonl.gz", lambda lines: list(lines.of("pages"))),
        ("c/lines/without/0000-0000000001.json", lambda lines: lines.not_counted()),
    ],
)
def test_a_damaged_object_is_named(name, read):
    objects = MemoryObjects()
    objects.content = {name: gzip.compress(page(1))[:-9]}
    with pytest.raises(DamagedStoreError, match=name):
        read(SealedLines(objects, "c"))


def test_pieces_end_with_a_line_also_if_a_line_is_longer_than_a_piece(tmp_path):
    lines = [b"a" * 10, b"b" * (SEALED_LINES_BYTES + 5), b"c", b"d" * (SEALED_LINES_BYTES // 2), b"e" * 100]
    path = tmp_path / "lines"
    path.write_bytes(b"before\n" + b"".join(line + b"\n" for line in lines) + b"torn")
    end = path.stat().st_size - 4
    found = list(pieces(str(path), 7, end))
    assert b"".join(line + b"\n" for line in lines) == b"".join(found)
    assert all(piece.endswith(b"\n") for piece in found)
    assert len(found) > 1
    assert [] == list(pieces(str(path), end, end))


class Crawl:
    """A crawl with one line file and no store. removes: in how many seals lines are removed meanwhile."""

    def __init__(self, path):
        self.path, self.sealed, self.removes, self.failure = path, 0, 0, None
        self.said, self.uploaded = [], 0
        self.failed = threading.Event()

    def begin_seal(self):
        if self.failure is not None:
            raise self.failure
        return Seal({"pages": self.sealed}, {"pages": self.path.stat().st_size}, {}, self.removes)

    def upload_archive(self):
        self.uploaded += 1

    def end_seal(self, seal):
        if self.removes:
            self.removes -= 1
            self.path.write_bytes(self.path.read_bytes()[: -len(page(2))])
            return False
        self.sealed = seal.ends["pages"]
        return True

    def fails(self, error):
        self.failure = error
        self.failed.set()

    def say(self, text):
        self.said.append(text)


@pytest.fixture
def crawl(tmp_path):
    path = tmp_path / "pages.jsonl"
    path.write_bytes(page(1) + page(2))
    return Crawl(path)


@pytest.fixture
def objects():
    return MemoryObjects()


@pytest.fixture
def sealing(crawl, objects):
    made = Sealing(crawl, LineObjects(objects, "c", "n", ["pages"]), {"pages": str(crawl.path)})
    made.start()
    yield made
    made.end()


def test_a_seal_has_the_lines_since_the_last_one(crawl, objects, sealing):
    assert sealing.now(30.0)
    with crawl.path.open("ab") as file:
        file.write(page(3))
    assert sealing.now(30.0)
    assert sealing.now(30.0)
    assert [1, 2, 3] == tokens(objects)
    assert (2, 3) == (len(objects.content), crawl.uploaded)


def test_without_the_storage_it_says_so_once_and_tries_again(crawl, objects, sealing, monkeypatch):
    monkeypatch.setattr("outrider.cluster.sealing._RETRY_SECONDS", 0.01)
    objects.away = 3
    assert sealing.now(30.0)
    assert ["pages are not sealed: The server or service is out of reach: the storage is away; trying again"] == (
        crawl.said
    )
    assert [1, 2] == tokens(objects)


def test_a_seal_during_which_lines_were_removed_is_made_again(crawl, objects, sealing):
    crawl.removes = 1
    assert sealing.now(30.0)
    assert [1, 2, 1] == tokens(objects)  # the list of the new owner says that 2 does not count
    assert len(page(1)) == crawl.sealed


def test_files_that_cannot_be_used_end_the_crawl(crawl, sealing):
    crawl.failure = StoreFailedError("the disk is gone")
    assert not sealing.now(0.2)
    assert crawl.failed.wait(30.0)
