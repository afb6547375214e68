"""Rows of hosts and queues: the order of equal values, and how far a table trusts a caller."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.frontier.format.facts import Fact, TextColumn
from outrider.frontier.state.hosts import firsts_of
from outrider.frontier.state.tables import Tables
from outrider.frontier.state.url_table import KnownRows
from outrider.frontier.stores.ledger import Ledger
from outrider.storage.memory import MemoryFiles


@given(st.lists(st.integers(0, 9), max_size=20))
def test_the_first_of_equal_values_counts_in_the_order_of_appearance(values):
    firsts, which = firsts_of(np.array(values, np.uint64))
    assert [place for place, value in enumerate(values) if value not in values[:place]] == firsts.tolist()
    assert values == [values[firsts[place]] for place in which.tolist()]


@pytest.fixture
def tables():
    made = Tables(Ledger.open(MemoryFiles(), store=bytes(16), names=()), fingerprint_key=bytes(16), scratch=None)
    yield made
    made.close()


def hosts(*hashes):
    return [
        np.zeros(len(hashes), np.uint16),
        np.array(hashes, np.uint64),
        TextColumn.of([f"h{number}" for number in hashes]),
    ]


def queues(*homes):
    count = len(homes)
    hashes = np.array([1000 + home for home in homes], np.uint64)
    keys = TextColumn.of([""] * count)
    return [np.zeros(count, np.uint16), hashes, np.array(homes, np.uint64), np.zeros(count, np.uint32), keys]


def test_outdated_known_rows_are_not_trusted(tables):
    tables.apply(Fact.HOST, hosts(7, 8))
    tables.apply(Fact.HOST, hosts(8, 9), KnownRows.of_rows(None, first=0))
    assert ["h7", "h8", "h9"] == [tables.hosts.name(row) for row in range(tables.hosts.count)]
    tables.apply(Fact.QUEUE, queues(7))
    wrong = KnownRows.of_rows(np.array([2, 0], np.uint32), first=0)
    tables.apply(Fact.QUEUE, queues(7, 9), wrong)
    assert [0, 2] == tables.queues.host[: tables.queues.count].tolist()


def test_correct_known_rows_save_the_look_up(tables):
    tables.apply(Fact.HOST, hosts(7, 8), KnownRows.of_rows(None, first=0))
    tables.apply(Fact.QUEUE, queues(8, 7), KnownRows.of_rows(np.array([1, 0], np.uint32), first=0))
    assert [1, 0] == tables.queues.host[: tables.queues.count].tolist()
    assert [0, 1] == tables.hosts.find(np.array([7, 8], np.uint64)).tolist()
