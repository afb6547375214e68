"""The format of facts: what goes in comes out, what is not whole or not known is refused, its page is true."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import DamagedStoreError, ForeignStoreError
from outrider.frontier.facts import FACTS_VERSION, SCHEMA, Fact, decode, drawing, encode, instant_of
from outrider.frontier.politeness import GapReason
from outrider.frontier.tables import COPY_ROWS, STATES, Reason, RobotsState, Tables

VALUES = {
    "u8": st.integers(0, 2**8 - 1),
    "u16": st.integers(0, 2**16 - 1),
    "u32": st.integers(0, 2**32 - 1),
    "u64": st.integers(0, 2**64 - 1),
    "i64": st.integers(-(2**63), 2**63 - 1),
    "f64": st.floats(allow_nan=False),
    "text": st.text(max_size=20) | st.just("\ud800"),
    "blob": st.binary(max_size=20),
}


def rows_of(kind: int):
    return st.lists(st.tuples(*[VALUES[column.type] for column in SCHEMA[kind, FACTS_VERSION]]), min_size=1, max_size=4)


BLOCKS = st.lists(
    st.sampled_from(list(Fact)).flatmap(lambda kind: st.tuples(st.just(int(kind)), rows_of(kind))), max_size=4
)


@given(st.integers(-(2**63), 2**63 - 1), BLOCKS)
def test_what_goes_in_comes_out(now, blocks):
    payload = encode(now, blocks)
    assert (now, blocks) == (instant_of(payload), list(decode(payload)))


@given(BLOCKS, st.data())
def test_a_payload_that_is_cut_is_refused_or_ends_between_two_blocks(blocks, data):
    payload = encode(1, blocks)
    cut = data.draw(st.integers(8, len(payload)))
    try:
        found = list(decode(payload[:cut]))
    except DamagedStoreError:
        return
    assert found == blocks[: len(found)]


def test_a_payload_without_an_instant_is_refused():
    with pytest.raises(DamagedStoreError):
        instant_of(b"1234567")


@pytest.mark.parametrize(("kind", "version"), [(200, 1), (int(Fact.URL), 2)])
def test_a_kind_or_version_of_a_newer_release_is_refused(kind, version):
    payload = encode(1, []) + bytes([kind, version, 1, 0, 0, 0])
    with pytest.raises(ForeignStoreError, match="newer release"):
        list(decode(payload))


def test_every_kind_is_drawn_and_applied():
    assert [(kind, FACTS_VERSION) for kind in Fact] == list(SCHEMA)
    assert set(Fact) == set(Tables()._apply)


def test_every_fact_begins_with_the_slot_it_changes():
    assert {"slot:u16"} == {f"{columns[0].name}:{columns[0].type}" for columns in SCHEMA.values()}


def test_numbers_are_never_reused():
    """What a number once meant it means for ever: a change here is a change of the format."""
    assert {
        1: "OPENING", 2: "CLOSING", 3: "CRAWL", 4: "HOLDER", 5: "REQUEST", 6: "WATERMARK", 7: "PROJECTION", 8: "TALLY",
        9: "SCOPE", 10: "TOKEN", 16: "HOST", 17: "HOST_CELLS", 18: "AUTHORITY", 19: "ROBOTS", 20: "RULES", 21: "QUEUE",
        24: "OUTBOX", 25: "ARRIVED", 26: "DELIVERED", 32: "URL", 33: "URL_CELLS", 34: "VISIT", 35: "LEASE",
        36: "ERRAND", 48: "LINE",
    } == {int(kind): kind.name for kind in Fact}  # fmt: skip


@pytest.fixture(scope="module")
def page(project):
    return (project / "docs/formats/facts.md").read_text("utf-8")


def test_the_page_draws_the_columns_of_every_fact(page):
    assert drawing() in page


def test_the_page_says_what_every_fact_means(page):
    meanings = re.search(r"\| fact \| says \|\n\|---\|---\|\n((?:\|.*\n)+)", page)
    assert meanings is not None
    assert [kind.name.lower() for kind in Fact] == re.findall(r"^\| (\w+) \|", meanings[1], re.MULTILINE)


def test_the_page_numbers_states_reasons_and_rules_as_the_code_does(page):
    table = re.search(r"\| number \| URL state .*\n\|---.*\n((?:\|.*\n)+)", page)
    assert table is not None
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table[1].splitlines()]
    assert [str(state) for state in STATES] == [row[1] for row in cells]
    assert [reason.name.lower() for reason in Reason] == [row[2].split(" ")[0] for row in cells]
    assert [state.name.lower() for state in RobotsState] == [row[3].split(":")[0] for row in cells if row[3]]
    assert len(GapReason) == len([row for row in cells if row[4]])


def test_the_page_says_how_many_rows_a_range_holds(page):
    table = page.partition("## What a checkpoint range holds")[2]
    numbers = re.findall(r"^\| [\w (),]+ \| (\d) \| ([\d,]+) \|", table, re.MULTILINE)
    assert COPY_ROWS == {int(section): int(rows.replace(",", "")) for section, rows in numbers}
