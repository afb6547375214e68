"""Line files that repeat the log: whole lines only, cut at the length in the log, and without control of a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crash.directories import FullDirectory
from outrider.archive.projection import Projection, tame
from outrider.errors import DamagedStoreError, StoreFullError
from outrider.storage.files import Directory


def opened(path: Path, length: int = 0) -> Projection:
    directories.append(Directory(path))
    projection = Projection(directories[-1], "pages.jsonl")
    projection.open_at(length)
    return projection


directories: list[Directory] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    """Closes the descriptors of a test's directories."""
    yield
    while directories:
        directories.pop().close()


def test_lines_are_written_in_order_each_with_its_end(tmp_path: Path) -> None:
    pages = opened(tmp_path)
    pages.append([b'{"a":1}', b'{"a":2}'])
    pages.append([])
    pages.append([b'{"a":3}'])
    pages.sync()
    assert b'{"a":1}\n{"a":2}\n{"a":3}\n' == (tmp_path / "pages.jsonl").read_bytes()
    assert 24 == pages.length


def test_opening_cuts_all_bytes_after_the_length(tmp_path: Path) -> None:
    pages = opened(tmp_path)
    pages.append([b"one"])
    length = pages.length
    pages.append([b"two", b"three"])
    pages.close()
    again = opened(tmp_path, length)
    again.append([b"four"])
    assert b"one\nfour\n" == (tmp_path / "pages.jsonl").read_bytes()


def test_opening_at_zero_makes_the_file(tmp_path: Path) -> None:
    opened(tmp_path).sync()
    assert b"" == (tmp_path / "pages.jsonl").read_bytes()


def test_opening_at_zero_empties_the_file(tmp_path: Path) -> None:
    (tmp_path / "pages.jsonl").write_bytes(b"old\n")
    opened(tmp_path)
    assert b"" == (tmp_path / "pages.jsonl").read_bytes()


def test_a_crash_at_every_byte_after_the_length_is_cut(tmp_path: Path) -> None:
    whole = b"one\n" + b"two\nthree\n"
    for size in range(4, len(whole) + 1):
        (tmp_path / "pages.jsonl").write_bytes(whole[:size])
        again = opened(tmp_path, 4)
        again.append([b"four"])
        again.close()
        assert b"one\nfour\n" == (tmp_path / "pages.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("content", "length", "words"),
    [
        (b"one\n", 5, "has 4 bytes; the log says 5"),
        (b"one\ntwo\n", 6, "no line ends at byte 6"),
        (None, 3, "is missing; the log says it has 3 bytes"),
    ],
)
def test_a_file_that_contradicts_the_log_is_damage_and_named(
    tmp_path: Path, content: bytes | None, length: int, words: str
) -> None:
    if content is not None:
        (tmp_path / "pages.jsonl").write_bytes(content)
    with pytest.raises(DamagedStoreError, match=words) as caught:
        opened(tmp_path, length)
    assert "pages.jsonl" in str(caught.value)
    assert content == ((tmp_path / "pages.jsonl").read_bytes() if content is not None else None)


@given(st.text())
def test_an_escaped_line_is_one_line_with_the_same_meaning(text: str) -> None:
    text = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    written = tame(json.dumps({"t": text}, ensure_ascii=False).encode())
    assert {"t": text} == json.loads(written)
    assert [] == [
        mark
        for mark in written.decode()
        if mark < " " or "\x7f" <= mark <= "\x9f" or mark in "\u2028\u2029\u202a\u202e\u2066\u2069\u200e\u200f"
    ]


def test_raw_controls_are_written_as_escapes() -> None:
    assert rb'{"t":"\u001b[31m\u000a\u0000\u007f\u009b\u202e"}' == tame('{"t":"\x1b[31m\n\x00\x7f\x9b\u202e"}'.encode())


def test_ordinary_text_of_any_script_is_unchanged() -> None:
    line = '{"t":"Grüße, мир, 世界 🙂 \\n"}'.encode()
    assert line == tame(line)


def test_a_full_disk_leaves_no_half_line(tmp_path: Path) -> None:
    files = FullDirectory(tmp_path)
    pages = Projection(files, "pages.jsonl")
    pages.open_at(0)
    pages.append([b"one"])
    files.room = 7
    with pytest.raises(StoreFullError):
        pages.append([b"two", b"three", b"four"])
    assert b"one\n" == (tmp_path / "pages.jsonl").read_bytes()
    files.room = 10**9
    pages.append([b"five"])
    pages.sync()
    assert b"one\nfive\n" == (tmp_path / "pages.jsonl").read_bytes()
