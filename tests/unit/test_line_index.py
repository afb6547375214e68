"""The index of a line file: it finds what a reading of the whole file finds, in any state of its files."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider import kernels
from outrider.archive import line_index
from outrider.archive.line_index import (
    INDEX_FOLDER,
    LineIndex,
    StaleIndexError,
    keys_of,
    last_line,
    lines_of_host,
)
from outrider.archive.projection import tame
from outrider.errors import StoreError
from outrider.sim.disk import CrashDisk
from outrider.storage.files import Directory
from outrider.url.spelling import clock_host

KEY = bytes(range(16))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of some lines and blocks of four entries, so that few lines make many merges."""
    monkeypatch.setattr(line_index, "LINE_INDEX_RUN_BYTES", 300)
    monkeypatch.setattr(line_index, "LINE_INDEX_FANOUT", 3)
    monkeypatch.setattr(line_index, "LINE_INDEX_STEP_BLOCKS", 2)
    monkeypatch.setattr(line_index, "LINE_INDEX_RETRY_BYTES", 500)
    monkeypatch.setattr(line_index, "BLOCK_ENTRIES", 4)
    monkeypatch.setattr(line_index, "_BLOCK_BYTES", 4 * 14 + 4)


class Lines:
    """A line file in a directory, its owner's index, and the answers of a plain reading."""

    def __init__(self, directory: Path, stream: str = "pages") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory, self.stream = directory, stream
        self.path = directory / f"{stream}.jsonl"
        self.path.touch()
        self.folder = directory / INDEX_FOLDER
        self.index: LineIndex | None = None
        self.number = 0

    def open(self) -> LineIndex:
        files = Directory(self.directory)
        self.index = LineIndex(
            lambda: Directory(self.folder),
            self.stream,
            files.open(self.path.name),
            self.length,
            random_bytes=lambda _: KEY,
        )
        files.close()
        return self.index

    @property
    def length(self) -> int:
        return self.path.stat().st_size

    def kill(self) -> None:
        """The owner dies: it removes nothing."""
        if self.index is not None:
            self.index._merges, merges = {}, self.index._merges
            for merge in merges.values():
                merge.close()
            self.index.close()
            self.index = None

    def append(self, *urls: str, **fields: object) -> None:
        rows = []
        for url in urls:
            self.number += 1
            host = {} if self.stream == "pages" else {"host": clock_host(url)}
            rows.append(tame(msgspec.json.encode({**host, "url": url, "n": self.number, **fields})) + b"\n")
        with self.path.open("ab") as file:
            file.write(b"".join(rows))
        if self.index is not None:
            self.index.advance(self.length)

    def rows(self) -> Iterator[tuple[int, dict[str, object]]]:
        at = 0
        for line in self.path.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                yield at, json.loads(line)
            at += len(line)

    def check(self) -> None:
        """Compares all answers with a reading of the whole file."""
        last, of_host = {}, {}
        for at, row in self.rows():
            last[row["url"]] = row
            of_host.setdefault(clock_host(str(row["url"])), []).append(at)
        if self.stream == "pages":
            assert last == {url: last_line(str(self.path), str(url)) for url in last}
            assert None is last_line(str(self.path), "http://a.test/never")
        assert of_host == {host: offsets(self.path, host) for host in of_host}

    def names(self) -> list[str]:
        return sorted(os.listdir(self.folder)) if self.folder.exists() else []


def offsets(path: Path, host: str) -> list[int]:
    """As `politeness DIR HOST` reads the lines of a host."""
    try:
        found = list(lines_of_host(str(path), host))
    except StaleIndexError:
        found = list(lines_of_host(str(path), host, indexed=False))
    return [at for at, line in found if clock_host(json.loads(line)["url"]) == host]


def urls(count: int, *, hosts: int = 5, rng: random.Random | None = None) -> list[str]:
    rng = rng or random.Random(count)
    return [f"http://h{rng.randrange(hosts)}.test/{rng.randrange(60)}" for _ in range(count)]


# -- keys --------------------------------------------------------------------------------------------------------------

HOSTS = st.sampled_from(["a.test", "b.test.", "[::1]", "1.2.3.4", "x" * 70 + ".test", "bücher.test", "a"])
URLS = st.one_of(
    st.builds(
        "{}://{}{}/{}".format,
        st.sampled_from(["http", "https"]),
        HOSTS,
        st.sampled_from(["", ":80", ":8080"]),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=100),
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
)


def split_keys(lines: list[bytes]) -> tuple[list[int], list[bool]]:
    octets = b"".join(line + b"\n" for line in lines)
    keys, has_key = keys_of(octets, *line_index._split(octets), KEY)
    return keys.tolist(), has_key.tolist()


@given(st.lists(st.tuples(URLS, st.sampled_from(["first", "later", "spaced", "escaped", "host", "none"])), min_size=1))
def test_the_key_of_a_line_depends_on_its_url_and_host_alone(rows):
    """Not on its form, and not on the lines that are read together with it."""
    lines, expected, kept = [], [], []
    for url, form in rows:
        line = {"first": {"url": url, "n": 1}, "later": {"n": 1, "url": url}, "host": {"host": url, "url": "http://z/"}}
        text = msgspec.json.encode(line.get(form, {"url": url}))
        text = text.replace(b":", b": ", 1) if form == "spaced" else text
        text = text.replace(b"/", b"\\/") if form == "escaped" else text
        lines.append(b'{"n":1}' if form == "none" else tame(text))
        of_host = line_index._key_of_host(url, KEY)
        expected.append({"host": of_host, "none": None}.get(form, line_index._key_of_url(url, KEY)))
        kept.append(form != "none" and bool(url))
    keys, has_key = split_keys(lines)
    assert kept == has_key
    chosen = [place for place, is_kept in enumerate(kept) if is_kept]
    assert [expected[place] for place in chosen] == [keys[place] for place in chosen]
    assert [keys[place] for place in chosen] == [split_keys([lines[place]])[0][0] for place in chosen]


@given(URLS.filter(lambda url: "://" in url and "/" in url[8:]))
def test_the_lines_of_a_host_are_neighbours(url):
    if url.startswith("http") and '"' not in (host := clock_host(url)):
        own, of_host = line_index._key_of_url(url, KEY), line_index._key_of_host(host, KEY)
        assert own >> 32 == of_host >> 32
        assert 0 == of_host & 0xFFFF_FFFF


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b"7", b'{"url":7}', b'{"url":"http://a.test/', b'{"url":"\xff"}'])
def test_a_line_without_url_and_host_has_no_key(line):
    assert ([True, False, True]) == split_keys([b'{"url":"http://a.test/"}', line, b'{"url":"http://b.test/"}'])[1]


# -- answers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", ["pages", "politeness"])
def test_answers_are_those_of_a_full_reading_in_any_state_of_the_index(tmp_path, small, stream):
    """Kills, torn and removed runs, an index of another crawl, a line file that was cut and written again."""
    for seed in range(2):
        rng = random.Random(seed)
        lines = Lines(tmp_path / f"{seed}", stream)
        other = Lines(tmp_path / f"other {seed}", stream)
        other.open()
        for _ in range(6):
            other.append(*urls(20, rng=rng))
        lines.open()
        for _ in range(25):
            happening = rng.randrange(9)
            if happening == 0:
                lines.kill()
            elif happening == 1 and lines.index is None:
                cut = rng.choice(
                    [at for at, _ in lines.rows()] or [0]
                )  # a recovery cuts the file, and writes other lines
                os.truncate(lines.path, cut)
            elif happening == 2 and lines.index is None and lines.length:
                shutil.rmtree(lines.folder, ignore_errors=True)
                shutil.copytree(other.folder, lines.folder)
            elif happening == 3 and lines.names():
                (lines.folder / rng.choice(lines.names())).unlink()
            elif happening == 4 and lines.names():
                torn = lines.folder / rng.choice(lines.names())
                octets = bytearray(torn.read_bytes())
                if octets:
                    place = rng.randrange(len(octets))
                    octets[place:] = rng.choice([b"", bytes(len(octets) - place), b"\1" + octets[place + 1 :]])
                    torn.write_bytes(octets)
            elif lines.index is None and rng.random() < 0.5:
                lines.open()
            lines.append(*urls(rng.randrange(12), rng=rng))
            lines.check()
        lines.kill()
        lines.open()
        for _ in range(60):
            lines.append(*urls(1, rng=rng))
        lines.check()
        assert lines.length - lines.index.covered < 300, "the index is complete again"
        assert None is lines.index.fault
        lines.kill()
        other.kill()


class DiskFolder(CrashDisk):
    """The folder of an index on a disk that loses unsynced bytes."""

    def close(self) -> None:
        """A disk in memory has no descriptor."""


def test_every_power_cut_leaves_an_index_that_answers_as_a_full_reading(tmp_path, small):
    rng = random.Random(5)
    lines = Lines(tmp_path)
    disk = DiskFolder()
    with contextlib.closing(Directory(tmp_path)) as files:
        index = LineIndex(lambda: disk, "pages", files.open("pages.jsonl"), 0)
        for _ in range(30):
            lines.append(*urls(4, rng=rng))
            index.advance(lines.length)
        index.close()
    images = 0
    for image in disk.crash_images(rng, 6):
        shutil.rmtree(lines.folder, ignore_errors=True)
        lines.folder.mkdir()
        for name, octets in image.contents().items():
            (lines.folder / name).write_bytes(octets)
        lines.check()
        lines.open()
        for _ in range(30):
            lines.index.advance(lines.length)
        lines.check()
        assert lines.length - lines.index.covered < 300
        lines.kill()
        images += 1
    assert images > 20


def test_a_later_owner_continues_a_whole_index(tmp_path, small):
    lines = Lines(tmp_path)
    lines.open()
    for _ in range(40):
        lines.append(*urls(4))
    before = lines.names()
    lines.kill()
    index = lines.open()
    assert lines.length - index.covered < 300
    assert {name for name in before if not name.endswith(".tmp")} == set(lines.names())
    lines.kill()


def test_few_runs_remain_and_an_entry_needs_sixteen_bytes_at_most(tmp_path, monkeypatch):
    monkeypatch.setattr(line_index, "LINE_INDEX_RUN_BYTES", 4_096)
    lines = Lines(tmp_path)
    lines.open()
    for number in range(400):
        lines.append(*urls(100, rng=random.Random(number)))
    assert lines.length / 4_096 > 300
    assert len([name for name in lines.names() if name.endswith(".run")]) < 32
    lines.index.close()
    assert [] == [name for name in lines.names() if not name.endswith(".run")]
    assert sum((lines.folder / name).stat().st_size for name in lines.names()) < 16 * 40_000
    lines.check()


def test_many_lines_of_one_url_are_in_the_order_of_the_file(tmp_path, small):
    """Their entries fill more blocks than a merge reads at once."""
    lines = Lines(tmp_path)
    lines.open()
    for number in range(300):
        lines.append("http://a.test/same", *(["http://a.test/other"] if number % 50 == 0 else []))
    assert any(place.level >= 3 for place in lines.index._places)
    lines.check()
    lines.kill()


def test_two_urls_with_one_hash_are_told_apart_by_their_lines(tmp_path, small, monkeypatch):
    monkeypatch.setattr(kernels, "hash_spans", lambda octets, starts, ends, key: bytes(8 * len(starts)))
    for stream in ("pages", "politeness"):
        lines = Lines(tmp_path, stream)
        lines.open()
        for _ in range(20):
            lines.append(*urls(5))
        assert lines.index.covered > 0
        lines.check()
        lines.kill()


def test_an_entry_whose_line_was_edited_makes_readers_read_the_file(tmp_path, small):
    """The edit is before the last run, so only the line itself shows it."""
    lines = Lines(tmp_path)
    lines.open()
    for number in range(400):
        lines.append(f"http://a.test/{number:03}")
    lines.kill()
    octets = lines.path.read_bytes()
    assert octets.count(b"test/100") == octets.count(b"test/200") == 1
    lines.path.write_bytes(octets.replace(b"test/100", b"test/xxx").replace(b"test/200", b"test/100"))
    with lines.path.open("rb") as file, pytest.raises(StaleIndexError):
        line_index._Search(str(lines.path)).last_line(file, "http://a.test/100", lambda line: True)
    assert 201 == last_line(str(lines.path), "http://a.test/100")["n"]


def test_the_limit_of_bytes_counts_only_without_an_index(tmp_path, small):
    lines = Lines(tmp_path)
    lines.open()
    lines.append("http://a.test/first")
    for _ in range(20):
        lines.append(*urls(5))
    assert 1 == last_line(str(lines.path), "http://a.test/first", 100)["n"]
    lines.kill()
    shutil.rmtree(lines.folder)
    assert None is last_line(str(lines.path), "http://a.test/first", 100)


def test_a_line_that_is_being_written_does_not_count(tmp_path, small):
    lines = Lines(tmp_path)
    lines.open()
    lines.append(*urls(30))
    lines.append("http://a.test/torn")
    with lines.path.open("ab") as file:
        file.write(b'{"url":"http://a.test/torn","n":99')
    assert 31 == last_line(str(lines.path), "http://a.test/torn")["n"]
    lines.kill()


def test_readers_that_listed_merged_runs_list_them_again(tmp_path, small, monkeypatch):
    lines = Lines(tmp_path)
    lines.open()
    lines.append("http://a.test/first")
    before: list[list[str]] = []
    listed = os.listdir

    def old_names(path):
        names = listed(path)
        if str(path) == str(lines.folder) and before:
            return before.pop()
        return names

    while True:
        held = lines.names()
        lines.append(*urls(2))
        if any(name not in lines.names() for name in held if name.endswith(".run")):
            break
    before.append(held)
    monkeypatch.setattr(os, "listdir", old_names)
    assert 1 == last_line(str(lines.path), "http://a.test/first")["n"]
    assert [] == before
    lines.kill()


# -- the owner ---------------------------------------------------------------------------------------------------------


def test_an_index_is_made_again_in_bounded_steps(tmp_path, monkeypatch):
    monkeypatch.setattr(line_index, "LINE_INDEX_RUN_BYTES", 10_000)
    lines = Lines(tmp_path)
    for number in range(100):
        lines.append(*urls(100, rng=random.Random(number)))
    index = lines.open()
    read = 0

    class Counted:
        def __init__(self, file):
            self.file = file

        def read_at(self, offset, length):
            nonlocal read
            read += length
            return self.file.read_at(offset, length)

        def __getattr__(self, name):
            return getattr(self.file, name)

    index._lines = Counted(index._lines)
    calls = 0
    while lines.length - index.covered >= 10_000:
        read, calls = 0, calls + 1
        index.advance(lines.length)
        assert read <= 10_000 + 20 * 4_096, "one piece, and the digests before the ends of runs"
        lines.check() if calls % 10 == 0 else None
    assert calls > 20
    lines.kill()


def test_an_index_that_cannot_be_written_is_made_later(tmp_path, small):
    lines = Lines(tmp_path)
    lines.folder.write_bytes(b"in the way")
    index = lines.open()
    lines.append(*urls(40))
    assert isinstance(index.fault, StoreError)
    assert "index" in str(index.fault)
    lines.check()
    lines.folder.unlink()
    for _ in range(60):
        lines.append(*urls(1))
    assert None is index.fault
    assert lines.length - index.covered < 300
    lines.check()
    lines.kill()


def test_an_index_that_was_removed_during_the_crawl_is_made_again(tmp_path, small):
    lines = Lines(tmp_path)
    lines.open()
    lines.append(*urls(60))
    shutil.rmtree(lines.folder)
    lines.check()
    for _ in range(90):
        lines.append(*urls(1))
    assert lines.length - line_index._Search(str(lines.path)).covered < 300
    lines.check()
    lines.kill()


def test_a_full_disk_delays_the_index(tmp_path, small):
    lines = Lines(tmp_path)
    disk = DiskFolder()
    with contextlib.closing(Directory(tmp_path)) as files:
        index = LineIndex(lambda: disk, "pages", files.open("pages.jsonl"), 0)
        for number in range(200):
            if number == 50:
                disk.fail(1, errno.ENOSPC, forever=True, verb="write")
            if number == 80:
                assert index.fault is not None
                disk.mend()
            lines.append(*urls(3))
            index.advance(lines.length)
        assert (None, True) == (index.fault, lines.length - index.covered < 300)
        index.close()
    lines.folder.mkdir()
    for name, octets in disk.contents().items():
        (lines.folder / name).write_bytes(octets)
    lines.check()


# -- the last line, without an index -----------------------------------------------------------------------------------


def test_the_last_whole_line_of_a_url_is_found_from_the_end(tmp_path, monkeypatch):
    """Pieces of any size find the same line as a reading of the whole file. A torn line does not count."""
    path = tmp_path / "pages.jsonl"
    named = [f"http://a.test/{number % 7}" for number in range(40)]
    rows = [{"url": url, "referrer": named[place - 3], "n": place} for place, url in enumerate(named)]
    path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows) + b'{"url":"http://a.test/3","n":99')
    expected = {url: max(row["n"] for row in rows if row["url"] == url) for url in named}
    for size in (1, 7, 60, 64, 1_000, 1 << 20):
        monkeypatch.setattr(line_index, "READ_BACK_BYTES", size)
        assert expected == {url: last_line(str(path), url)["n"] for url in expected}
        assert None is last_line(str(path), "http://a.test/none")
    assert None is last_line(str(tmp_path / "nothing"), named[0])
    assert [] == list(lines_of_host(str(tmp_path / "nothing"), "a.test"))


def test_only_a_limited_number_of_bytes_from_the_end_is_read(tmp_path):
    path = tmp_path / "pages.jsonl"
    path.write_bytes(b'{"url":"http://a.test/"}\n' + b'{"url":"http://b.test/"}\n' * 10)
    assert None is last_line(str(path), "http://a.test/", 100)
    assert {"url": "http://b.test/"} == last_line(str(path), "http://b.test/", 100)
    assert {"url": "http://a.test/"} == last_line(str(path), "http://a.test/", 1_000)


# -- time and size -----------------------------------------------------------------------------------------------------

FIELDS = (
    b'","outcome":"done","status":200,"fetched_at":"2026-01-02T03:04:05Z","seconds":0.0123,"bytes":12345,'
    b'"digest":"sha1:ABCDEFGHIJKLMNOPQRSTUVWXYZ234567","referrer":"http://h.test/","title":"A title","links":12,"n":'
)


def page(number: int) -> str:
    return f"http://h{number % 1_000}.example.test:8080/pages/{number:09}/index.html"


def measured(directory: Path, count: int) -> None:
    """The last lines of the first and of the last of `count` URLs: 5 ms of CPU. The index: 16 bytes a line."""
    lines = Lines(directory)
    index = lines.open()
    at_once, length = 2_000, 0
    with lines.path.open("ab") as file:
        for first in range(0, count, at_once):
            rows = range(first, first + at_once)
            length += file.write(b"".join(b'{"url":"%b%b%d}\n' % (page(n).encode(), FIELDS, n) for n in rows))
            file.flush()
            index.advance(length)
    assert length - index.covered < line_index.LINE_INDEX_RUN_BYTES
    index.close()
    assert 16 * count > sum((lines.folder / name).stat().st_size for name in lines.names())
    for number in (0, count - 1):
        took = []
        for _ in range(20):
            began = time.process_time()
            found = last_line(str(lines.path), page(number))
            took.append(time.process_time() - began)
            assert number == found["n"]
        assert min(took) < 0.005, f"{min(took) * 1_000:.1f} ms of CPU for line {number}"
    assert list(range(7, count, 1_000)) == [
        json.loads(line)["n"] for _, line in lines_of_host(str(lines.path), "h7.example.test")
    ]


@pytest.mark.skipif(kernels.in_use() != "native", reason="hashes of the twin need a minute")
def test_the_first_and_the_last_of_200_000_lines_are_found_in_5_ms(tmp_path):
    measured(tmp_path, 200_000)


@pytest.mark.long
@pytest.mark.skipif(kernels.in_use() != "native", reason="hashes of the twin need an hour")
def test_the_first_and_the_last_of_10_million_lines_are_found_in_5_ms(tmp_path):
    measured(tmp_path, 10_000_000)
