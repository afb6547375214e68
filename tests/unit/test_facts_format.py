"""The format of facts: encoding and decoding round-trips, incomplete or unknown facts are refused, and its page is
true."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import DamagedStoreError, ForeignStoreError
from outrider.frontier.format import facts
from outrider.frontier.format.card_columns import Cards
from outrider.frontier.format.facts import (
    KINDS,
    ZSTD,
    Compressor,
    Fact,
    TextColumn,
    columns_of,
    decode,
    drawing,
    encode,
    instant_of,
    unpacked,
)
from outrider.frontier.policy.politeness import GapReason
from outrider.frontier.state.authorities import RobotsState
from outrider.frontier.state.hosts import keyed_queue_hash, mixed, queue_hashes
from outrider.frontier.state.tables import COPY_ROWS, RUNS, Tables
from outrider.frontier.state.url_table import STATES, Reason
from outrider.frontier.stores.ledger import Ledger
from outrider.kernels.card_layout import HEAD, HEAD_BYTES
from outrider.limits import FACTS_COMPRESSED_BYTES_MIN
from outrider.storage.memory import MemoryFiles

VALUES = {
    "u8": st.integers(0, 2**8 - 1),
    "u16": st.integers(0, 2**16 - 1),
    "u32": st.integers(0, 2**32 - 1),
    "u64": st.integers(0, 2**64 - 1),
    "i64": st.integers(-(2**63), 2**63 - 1),
    "f64": st.floats(allow_nan=False),
    "text": st.text(max_size=20) | st.just("\ud800"),
    "blob": st.binary(max_size=20),
    "heads": st.binary(min_size=HEAD_BYTES, max_size=HEAD_BYTES),
    "cards": st.tuples(st.binary(min_size=HEAD_BYTES, max_size=HEAD_BYTES), st.binary(max_size=20)),
}


def packed(kind: str, cells: list[object]) -> object:
    """A column as callers pass it."""
    if kind not in ("heads", "cards"):
        return cells
    heads = np.frombuffer(b"".join(cell if kind == "heads" else cell[0] for cell in cells), HEAD).copy()
    if kind == "heads":
        return heads
    bodies = [body for _, body in cells]
    heads["url_bytes"], heads["referrer_bytes"], heads["extra_bytes"] = [len(body) for body in bodies], 0, 0
    return Cards(heads, b"".join(bodies), np.array([0, *map(len, bodies)], np.int64).cumsum())


def plain(column: object) -> object:
    """A column in a comparable form."""
    if isinstance(column, Cards):
        return column.heads.tobytes(), column.arena, column.offsets.tolist()
    if isinstance(column, np.ndarray):
        return column.tobytes() if column.dtype == HEAD else column.tolist()
    return list(column) if isinstance(column, TextColumn) else column


def block_of(kind: int):
    types = [column.type for column in KINDS[kind].columns]
    rows = st.lists(st.tuples(*[VALUES[name] for name in types]), min_size=1, max_size=4)
    return rows.map(
        lambda rows: (kind, [packed(name, cells) for name, cells in zip(types, columns_of(rows), strict=True)])
    )


BLOCKS = st.lists(st.sampled_from(list(Fact)).flatmap(lambda kind: block_of(int(kind))), max_size=4)


def listed(blocks) -> list[object]:
    return [(kind, [plain(column) for column in columns]) for kind, columns in blocks]


@given(st.integers(-(2**63), 2**63 - 1), BLOCKS)
def test_a_decoded_payload_equals_its_blocks(now, blocks):
    payload = encode(now, blocks)
    assert (now, listed(blocks)) == (instant_of(payload), listed(decode(payload)))


@given(BLOCKS, st.data())
def test_a_payload_that_is_cut_is_refused_or_ends_between_two_blocks(blocks, data):
    payload = encode(1, blocks)
    cut = data.draw(st.integers(8, len(payload)))
    try:
        found = listed(decode(payload[:cut]))
    except DamagedStoreError:
        return
    assert found == listed(blocks)[: len(found)]


def test_a_payload_without_an_instant_is_refused():
    with pytest.raises(DamagedStoreError):
        instant_of(b"1234567")


@pytest.mark.parametrize(("kind", "version"), [(200, 2), (int(Fact.CARD), 3), (int(Fact.HOST), 1)])
def test_a_kind_or_version_of_another_release_is_refused(kind, version):
    payload = encode(1, []) + bytes([kind, version, 1, 0, 0, 0])
    with pytest.raises(ForeignStoreError, match="another release"):
        list(decode(payload))


def test_a_newer_column_has_its_default_in_older_facts(monkeypatch):
    """A reader fills the columns that an older version of a kind lacks, for every type with a default."""
    payload = encode(1, [(Fact.TALLY, columns_of([(4096, "a", 1), (4096, "b", 2)]))])
    columns = "slot:u16 name:text value:u64 more:f64=1.5@3 why:text=@3 body:blob=@4 count:u32=7@4"
    later = facts._kind(Fact.TALLY, columns)
    monkeypatch.setitem(KINDS, Fact.TALLY, later)
    assert [(4096, "a", 1, 1.5, "", b"", 7), (4096, "b", 2, 1.5, "", b"", 7)] == rows_of(payload)
    third = facts._kind(Fact.TALLY, columns.split(" body", maxsplit=1)[0])
    monkeypatch.setitem(KINDS, Fact.TALLY, third)
    payload = encode(1, [(Fact.TALLY, columns_of([(4096, "c", 3, 2.5, "so")]))])
    monkeypatch.setitem(KINDS, Fact.TALLY, later)
    assert [(4096, "c", 3, 2.5, "so", b"", 7)] == rows_of(payload)
    assert "why text (from version 3; '' before)" in drawing()


def rows_of(payload):
    ((_, values),) = decode(payload)
    return list(
        zip(*(column.tolist() if isinstance(column, np.ndarray) else list(column) for column in values), strict=True)
    )


def test_a_large_payload_is_packed_and_a_small_one_is_not():
    compressor = Compressor()
    for size in (FACTS_COMPRESSED_BYTES_MIN - 1, FACTS_COMPRESSED_BYTES_MIN, 100_000):
        payload = bytes(size)
        small, codec = compressor.pack(payload)
        assert ((codec == ZSTD), payload) == (
            size >= FACTS_COMPRESSED_BYTES_MIN, unpacked(small, codec, bytes_max=size),
        )  # fmt: skip


def test_a_packed_payload_that_is_damaged_or_of_another_codec_is_refused():
    small, codec = Compressor().pack(bytes(1_000))
    with pytest.raises(DamagedStoreError):
        unpacked(small[::-1], codec, bytes_max=1_000)
    with pytest.raises(ForeignStoreError, match="codec 2"):
        unpacked(small, 2, bytes_max=1_000)


def test_every_kind_of_fact_is_generated_and_applied():
    assert sorted(Fact) == sorted(KINDS)
    ledger = Ledger.open(MemoryFiles(), store=bytes(16), names=[])
    tables = Tables(ledger, fingerprint_key=bytes(16), scratch=None)
    assert {Fact.LINE, Fact.RUNS} == set(Fact) - set(tables._apply)


def test_every_fact_begins_with_the_slot_it_changes():
    drawn = [(kind, KINDS[kind].columns) for kind in Fact]
    firsts = {f"{columns[0].name}:{columns[0].type}" for kind, columns in drawn if kind not in (32, 33)}
    assert {"slot:u16"} == firsts
    assert {"slot"} <= set(HEAD.names or ())


def test_numbers_of_facts_are_never_reused():
    """A number keeps its meaning for ever: a change here changes the format."""
    assert {
        1: "OPENING", 2: "CLOSING", 3: "CRAWL", 4: "HOLDER", 5: "REQUEST", 6: "WATERMARK", 7: "PROJECTION", 8: "TALLY",
        9: "SCOPE", 10: "TOKEN", 11: "ERROR", 12: "RUNS", 13: "CRAWL_RULES", 14: "ACCEPTED", 16: "HOST",
        17: "HOST_CELLS", 18: "AUTHORITY", 19: "ROBOTS", 20: "RULES", 21: "QUEUE", 22: "QUEUE_RULES", 23: "VOID",
        24: "OUTBOX", 25: "ARRIVED", 26: "DELIVERED", 27: "ADDRESS", 28: "LOCATED", 29: "COLD_REST", 30: "LEFT",
        32: "CARD", 33: "HEAD", 35: "LEASE", 36: "ERRAND", 37: "EXTEND", 38: "LOCATING",
        39: "QUEUED_ERRAND", 40: "LEASED_ERRAND", 41: "RETURNS",
        42: "ROBOTS_FILE", 43: "REQUEUE", 44: "CRAWL_UNIQUE", 45: "RESTED", 46: "SIGNALS", 47: "PAYMENT",
        48: "LINE", 49: "CRAWL_ORDER",
    } == {int(kind): kind.name for kind in Fact}  # fmt: skip


def test_the_hashes_of_queues_are_those_on_the_page():
    """Computed by hand, with SplitMix64's published constants."""

    def mix(value: int) -> int:
        z = (value + 0x9E3779B97F4A7C15) % 2**64
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        return z ^ z >> 31

    host, crawl, key = 0x0123456789ABCDEF, 7, 0xFEDCBA9876543210
    assert [mix(5)] == mixed(np.array([5], np.uint64)).tolist()
    assert [mix(host ^ mix(crawl))] == queue_hashes(np.array([host], np.uint64), np.array([crawl], np.uint32)).tolist()
    assert mix(mix(host ^ mix(crawl)) ^ key) == keyed_queue_hash(host, crawl, key)


@pytest.fixture(scope="module")
def page(project):
    return (project / "docs/formats/facts.md").read_text("utf-8")


def test_the_page_draws_the_columns_of_every_fact(page):
    assert [] == [line for line in drawing().splitlines() if line not in page.splitlines()]
    assert drawing() in page


def test_the_typed_cells_of_a_host_are_the_columns_of_its_fact():
    assert [column.name for column in KINDS[Fact.HOST_CELLS].columns[2:]] == list(facts.HostCells.__annotations__)


def test_the_page_says_what_every_fact_means(page):
    meanings = re.search(r"\| fact \| meaning \|\n\|---\|---\|\n((?:\|.*\n)+)", page)
    assert meanings is not None
    assert [kind.name.lower() for kind in Fact] == re.findall(r"^\| (\w+) \|", meanings[1], re.MULTILINE)


def test_the_page_numbers_states_reasons_and_rules_as_the_code_does(page):
    table = re.search(r"\| number \| URL state .*\n\|---.*\n((?:\|.*\n)+)", page)
    assert table is not None
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table[1].splitlines()]
    assert [str(state) for state in STATES] == [row[1] for row in cells if row[1]]
    assert [reason.name.lower() for reason in Reason] == [row[2].split(" ")[0] for row in cells]
    assert [state.name.lower() for state in RobotsState] == [row[3].split(":")[0] for row in cells if row[3]]
    assert len(GapReason) == len([row for row in cells if row[4]])


def test_the_page_says_how_many_rows_a_range_contains(page):
    table = page.partition("## Content of a checkpoint range")[2]
    numbers = re.findall(r"^\| [\w (),]+ \| (\d+) \| ([\d,]+) \|", table, re.MULTILINE)
    assert COPY_ROWS == {int(section): int(rows.replace(",", "")) for section, rows in numbers}
    assert f"| runs | {RUNS} |" in table


def test_the_page_says_from_which_size_payloads_are_packed(page):
    assert f"Payloads below {FACTS_COMPRESSED_BYTES_MIN} bytes" in page
