"""Batches of URLs on every input of every set: the same text by every road, and spelling twice is spelling once."""

from __future__ import annotations

import gzip
import json
import lzma
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from outrider.url import UrlBatch, spell

pytestmark = pytest.mark.conformance
BASE = "http://example.org/a/b?c/d"


def texts_in(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
        yield f"https://{value}/"
    elif isinstance(value, dict):
        for part in value.values():
            yield from texts_in(part)
    elif isinstance(value, list):
        for part in value:
            yield from texts_in(part)


@pytest.fixture(scope="module")
def inputs(shared: Path) -> list[str]:
    found: list[str] = []
    for file in sorted((shared / "data" / "url").rglob("*.json*")):
        if file.suffix == ".json":
            found += texts_in(json.loads(file.read_text("utf-8")))
        else:
            packed = file.read_bytes()
            lines = (gzip.decompress(packed) if file.suffix == ".gz" else packed).decode("utf-8").split("\n")
            found += [text for line in lines if line.strip() for text in texts_in(json.loads(line))]
    for file in sorted((shared / "data" / "urls").glob("*.txt.xz")):
        found += lzma.decompress(file.read_bytes()).decode("utf-8", "surrogateescape").split("\n")
    return list(dict.fromkeys(found))


@pytest.mark.parametrize("base", [None, BASE])
def test_a_batch_agrees_with_spell(inputs: list[str], base: str | None) -> None:
    assert len(inputs) > 150_000
    assert [text or "" for text in spell(inputs, base)] == UrlBatch.of(inputs, base).strings()


@pytest.mark.parametrize("base", [None, BASE])
def test_spelling_twice_is_like_spelling_once(inputs: list[str], base: str | None) -> None:
    once = UrlBatch.of(inputs, base)
    once = once.filter(once.valid)
    again = UrlBatch.of(once.strings(), base)
    assert once.strings() == again.strings()
    assert not again.has_userinfo.any()


@pytest.mark.parametrize("base", [None, BASE])
def test_bytes_are_read_as_their_texts_are(inputs: list[str], base: str | None) -> None:
    octets = [text.encode("utf-8", "replace") for text in inputs]
    offsets = np.cumsum([0, *map(len, octets)], dtype=np.int64)
    assert UrlBatch.of([one.decode() for one in octets], base) == UrlBatch.from_buffers(b"".join(octets), offsets, base)
