"""The ledger against a dict: the newest versions are found and listed, after any freeze, write, merge and reopening."""

from __future__ import annotations

import contextlib
import errno
import math
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limiting import set_limits
from outrider.errors import ClosedError, DamagedStoreError, ForeignStoreError, StoreFailedError, StoreFullError
from outrider.frontier.format.card_columns import Cards
from outrider.frontier.stores.ledger import Key, Ledger
from outrider.kernels.card_layout import HEAD, Heads
from outrider.limits import (
    MEMTABLE_APPENDS_JOINED,
    MEMTABLE_CHUNK_ROWS,
    MERGE_GROWTH_SHARE,
    MERGE_LEAVES_BYTES,
    RUN_BLOCK_ROWS,
    RUN_BODY_BYTES_MAX,
    RUN_ROWS_SMALL,
    RUNS_PER_MERGE,
)
from outrider.sim.disk import FaultyFiles
from outrider.storage import record_columns
from outrider.storage.files import Files
from outrider.storage.record_columns import RecordColumns
from outrider.storage.runs import RunWriter, run_name
from outrider.storage.tiers import MergeRoom, due

STORE = b"ledger-of-a-test"
QUEUED, DONE = 1, 5
MASK = (1 << 56) - 1


def heads_of(keys: Iterable[Key], *, order: int = 0, state: int = QUEUED) -> Heads:
    keys = list(keys)
    heads = np.zeros(len(keys), HEAD)
    for row, (crawl, slot, fingerprint) in enumerate(keys):
        heads["crawl"][row], heads["slot"][row], heads["fingerprint"][row] = crawl, slot, fingerprint
    heads["order"], heads["state"] = order, state
    heads["queue"] = heads["slot"] * np.uint64(0x9E3779B97F4A7C15)
    heads["priority"] = heads["fingerprint"] % np.uint64(3) / 3
    return heads


def cards_of(bodies: dict[Key, tuple[bytes, bytes, bytes]], *, order: int = 0, state: int = QUEUED) -> Cards:
    heads = heads_of(bodies, order=order, state=state)
    columns = list(zip(*bodies.values(), strict=True))
    for name, column in zip(("url_bytes", "referrer_bytes", "extra_bytes"), columns, strict=False):
        heads[name] = [len(text) for text in column]
    whole = [b"".join(body) for body in bodies.values()]
    return Cards(heads, b"".join(whole), np.array([0, *map(len, whole)], np.int64).cumsum())


def simple(numbers: Iterable[int], *, crawl: int = 0, order: int = 0, state: int = QUEUED) -> Cards:
    keys = {key_of(number, crawl): (b"https://example.org/%d" % number, b"r", b"") for number in numbers}
    return cards_of(keys, order=order, state=state)


def key_of(number: int, crawl: int = 0) -> Key:
    return (crawl, number % 7, number * 0x9E3779B97F4A7C15 & MASK)


def found(ledger: Ledger, keys: Iterable[Key]) -> tuple[list[bool], Cards]:
    crawls, slots, fingerprints = zip(*keys, strict=True)
    here, cards = ledger.find(crawls, slots, np.array(fingerprints, np.uint64))
    return here.tolist(), cards


def key_columns(heads: Heads) -> list[Key]:
    columns = (heads["crawl"].tolist(), heads["slot"].tolist(), heads["fingerprint"].tolist())
    return [(crawl, slot, fingerprint & MASK) for crawl, slot, fingerprint in zip(*columns, strict=True)]


def body(cards: Cards, row: int) -> bytes:
    return cards.arena[cards.offsets[row] : cards.offsets[row + 1]]


def content(ledger: Ledger, after: Key | None = None) -> dict[Key, tuple[int, bytes]]:
    """Returns the result of a scan: order and body by key. The keys must be sorted and unique."""
    rows: list[tuple[Key, tuple[int, bytes]]] = []
    for cards in ledger.scan(after=after):
        orders = cards.heads["order"].tolist()
        rows += [(key, (orders[row], body(cards, row))) for row, key in enumerate(key_columns(cards.heads))]
        lengths = cards.heads["url_bytes"].astype(int) + cards.heads["referrer_bytes"] + cards.heads["extra_bytes"]
        assert lengths.tolist() == np.diff(cards.offsets).tolist()
    keys = [key for key, _ in rows]
    assert sorted(set(keys)) == keys
    return dict(rows)


def round_trip(ledger: Ledger) -> list[str]:
    ledger.freeze()
    ledger.write_frozen()
    names = ledger.names()
    ledger.settled()
    return names


KEYS = st.tuples(
    st.sampled_from([0, 1, 7, 0xFFFFFFFF]), st.sampled_from([0, 1, 4095]), st.sampled_from([0, 1, 256, MASK])
)
STEPS = st.one_of(
    st.tuples(st.just("cards"), st.lists(st.tuples(KEYS, st.binary(max_size=5)), min_size=1, max_size=12)),
    st.tuples(st.just("heads"), st.lists(KEYS, min_size=1, max_size=12)),
    st.tuples(st.just("end"), st.lists(KEYS, min_size=1, max_size=4)),
    st.tuples(st.sampled_from(["freeze", "write", "merge", "settle", "reopen", "full"]), st.none()),
)


@given(st.lists(STEPS, max_size=40))
def test_any_history_reads_like_a_dict(steps: list[tuple[str, object]]) -> None:
    files = FaultyFiles()
    ledger = Ledger.open(files, store=STORE, names=[])
    model: dict[Key, tuple[int, bytes]] = {}
    written = frozen = dict(model)
    for number, (verb, what) in enumerate(steps, 1):
        if verb == "cards":
            assert isinstance(what, list)
            unique = {key: (b"u", text, b"") for key, text in what}
            ledger.append(cards_of(unique, order=number))
            model.update({key: (number, b"u" + text) for key, (_, text, _) in unique.items()})
        elif verb == "heads":
            assert isinstance(what, list)
            ledger.append_heads(heads_of(what, order=number))
            model.update({key: (number, model.get(key, (0, b""))[1]) for key in what})
        elif verb == "end":
            assert isinstance(what, list)
            ledger.append_heads(heads_of(what, order=number, state=0))
            for key in what:
                model.pop(key, None)
        elif verb == "freeze":
            ledger.freeze()
            frozen = dict(model)
        elif verb == "full":
            files.fail(1, 28)
            with contextlib.suppress(StoreFullError):
                ledger.write_frozen()
            files.mend()
        elif verb == "write":
            ledger.write_frozen()
            written = frozen
        elif verb == "merge":
            ledger.merge()
        elif verb == "settle":
            ledger.names()
            ledger.settled()
        else:
            names = ledger.names()
            ledger.close()
            ledger = Ledger.open(files, store=STORE, names=names)
            ledger.remove_leftovers()
            model = dict(written)
            frozen = dict(written)
        assert model == content(ledger)
        everything = sorted(
            {(crawl, slot, one) for crawl in (0, 7) for slot in (0, 1) for one in (0, 1, MASK)} | set(model)
        )
        here, cards = found(ledger, everything)
        assert [key in model for key in everything] == here
        expected = [model[key] for key in everything if key in model]
        assert expected == [(order, body(cards, row)) for row, order in enumerate(cards.heads["order"].tolist())]
        middle = everything[len(everything) // 2]
        assert {key: value for key, value in model.items() if key > middle} == content(ledger, middle)


def test_new_heads_keep_the_bodies_and_their_lengths_across_runs() -> None:
    ledger = Ledger.open(FaultyFiles(), store=STORE, names=[])
    ledger.append(cards_of({(1, 2, 3): (b"https://a.test/", b"from", b"extra!")}))
    round_trip(ledger)
    ledger.append_heads(heads_of([(1, 2, 3)], order=9, state=DONE))
    round_trip(ledger)
    _, cards = found(ledger, [(1, 2, 3)])
    assert (DONE, "https://a.test/", "from", b"extra!") == (
        int(cards.heads["state"][0]),
        cards.url(0),
        cards.referrer(0),
        cards.extra_of(0),
    )


def test_only_the_low_56_bits_of_a_fingerprint_distinguish_urls() -> None:
    ledger = Ledger.open(FaultyFiles(), store=STORE, names=[])
    ledger.append(cards_of({(0, 0, 5): (b"old", b"", b"")}))
    round_trip(ledger)
    ledger.append_heads(heads_of([(0, 0, 5 | 0xAB << 56)], order=3))
    here, cards = found(ledger, [(0, 0, 5 | 0x11 << 56)])
    assert ([True], "old", 5 | 0xAB << 56) == (here, cards.url(0), int(cards.heads["fingerprint"][0]))


def test_found_cards_are_in_the_requested_order_and_twice_where_requested_twice() -> None:
    ledger = Ledger.open(FaultyFiles(), store=STORE, names=[])
    ledger.append(simple(range(10)))
    here, cards = found(ledger, [key_of(7), key_of(99), key_of(2), key_of(7)])
    assert [True, False, True, True] == here
    assert [f"https://example.org/{number}" for number in (7, 2, 7)] == cards.urls()


def test_many_records_in_many_blocks_and_chunks_are_read_back() -> None:
    count = 2 * MEMTABLE_CHUNK_ROWS + 3 * RUN_BLOCK_ROWS + 5
    files = FaultyFiles()
    ledger = Ledger.open(files, store=STORE, names=[])
    for begin in range(0, count, 1000):
        ledger.append(simple(range(begin, min(begin + 1000, count)), order=1))
    expected = {key_of(number): (1, b"https://example.org/%dr" % number) for number in range(count)}
    assert expected == content(ledger)
    names = round_trip(ledger)
    again = Ledger.open(files, store=STORE, names=names)
    assert expected == content(again)
    middle = sorted(expected)[count // 2]
    assert {key: value for key, value in expected.items() if key > middle} == content(again, middle)
    here, cards = found(again, [key_of(number) for number in range(0, count, 97)])
    assert all(here)
    assert [f"https://example.org/{number}" for number in range(0, count, 97)] == cards.urls()


def test_the_first_look_up_after_many_appends_joins_few_pieces_and_packs_no_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger = Ledger.open(FaultyFiles(), store=STORE, names=[])
    for first in range(0, 3 * MEMTABLE_CHUNK_ROWS, 1_024):
        ledger.append(simple(range(first, first + 1_024)))
    last = 4 * MEMTABLE_CHUNK_ROWS - 1
    for number in range(3 * MEMTABLE_CHUNK_ROWS, last):
        ledger.append(simple([number]))
    joined, packed = [0], [0]
    concatenate, pack_keys = RecordColumns.concatenate, record_columns.pack_keys
    monkeypatch.setattr(RecordColumns, "concatenate", lambda parts: joined.append(len(parts)) or concatenate(parts))
    monkeypatch.setattr(
        record_columns, "pack_keys", lambda crawls, *rest: packed.append(len(crawls)) or pack_keys(crawls, *rest)
    )
    wanted = [key_of(number) for number in (5, last - 1, last, 4_097)]
    assert [True, True, False, True] == found(ledger, wanted)[0]
    assert max(joined) < 2 * MEMTABLE_APPENDS_JOINED
    assert sum(packed) < 2 * len(wanted)


@settings(deadline=None)
@given(st.sets(KEYS, max_size=40), st.sets(KEYS, max_size=12))
def test_a_few_keys_are_found_like_many_keys(here: set[Key], wanted: set[Key]) -> None:
    cards = cards_of(dict.fromkeys(sorted(here), (b"u", b"", b""))) if here else Cards.none()
    pieces = [RecordColumns(cards.heads, np.ones(len(cards), np.bool_), cards.arena, cards.offsets) for _ in range(2)]
    assert len(here) == len(pieces[0].keys)  # the records of one piece are packed
    keys = (
        record_columns.distinct(record_columns.pack_keys(*zip(*wanted, strict=True))) if wanted else pieces[0].keys[:0]
    )
    rows = [piece.rows_of(keys).tolist() for piece in pieces]
    assert [place for place, key in enumerate(sorted(here)) if key in wanted] == rows[0] == rows[1]


@pytest.mark.parametrize("sorted_together", [3, 64])
def test_single_keys_are_found_among_many_pieces_in_their_newest_version(
    monkeypatch: pytest.MonkeyPatch, sorted_together: int
) -> None:
    set_limits(monkeypatch, MEMTABLE_CHUNK_ROWS=4, DIRECTORY_PIECES_MIN=2, DIRECTORY_PIECES_SORTED=sorted_together)
    ledger = Ledger.open(FaultyFiles(), store=STORE, names=[])
    draw = np.random.default_rng(5)
    versions: dict[int, int] = {}
    for order in range(1, 200):
        number = int(draw.integers(60))
        ledger.append(simple([number], order=order))
        versions[number] = order
        some = draw.integers(0, 60, 3).tolist()
        mask, cards = found(ledger, map(key_of, some))
        assert mask == [one in versions for one in some]
        assert cards.heads["order"].tolist() == [versions[one] for one in some if one in versions]
        if order == 120:
            ledger.freeze()


def test_long_bodies_make_shorter_blocks_and_are_read_back() -> None:
    files = FaultyFiles()
    ledger = Ledger.open(files, store=STORE, names=[])
    bodies = {
        key_of(number): (b"u", b"", bytes([number]) * size) for number, size in enumerate([0, 300_000, 70_000] * 9)
    }
    bodies[key_of(99)] = (b"u", b"", b"x" * (RUN_BODY_BYTES_MAX - 1))
    ledger.append(cards_of(bodies))
    again = Ledger.open(files, store=STORE, names=round_trip(ledger))
    assert {key: (0, b"".join(parts)) for key, parts in bodies.items()} == content(again)


def test_a_head_keeps_every_field() -> None:
    rng = np.random.default_rng(3)
    heads = np.frombuffer(rng.bytes(72 * 700), HEAD).copy()
    for name in ("url_bytes", "referrer_bytes", "extra_bytes"):
        heads[name] = 0
    heads["state"] = 1 + heads["state"] % 6
    heads["crawl"] %= 2
    heads["slot"] %= 4096
    heads["priority"] = np.where(np.isnan(heads["priority"]), 0.5, heads["priority"])
    ledger = Ledger.open(FaultyFiles(), store=STORE, names=[])
    ledger.append(Cards(heads, b"", np.zeros(701, np.int64)))
    round_trip(ledger)
    scanned = np.sort(np.concatenate(list(ledger.scan_heads())), order="fingerprint")
    expected = np.sort(heads, order="fingerprint")
    assert HEAD.names is not None
    for name in HEAD.names:
        assert expected[name].tolist() == scanned[name].tolist(), name


def test_separately_read_heads_equal_those_of_the_cards() -> None:
    ledger = Ledger.open(FaultyFiles(), store=STORE, names=[])
    ledger.append(simple(range(2000)))
    round_trip(ledger)
    ledger.append_heads(heads_of([key_of(number) for number in range(0, 2000, 3)], order=2))
    ledger.append(simple(range(5), state=0))
    expected = b"".join(cards.heads.tobytes() for cards in ledger.scan())
    assert expected == b"".join(heads.tobytes() for heads in ledger.scan_heads())


def test_four_runs_of_one_size_become_one_and_their_files_are_removed_when_settled() -> None:
    files = FaultyFiles()
    ledger = Ledger.open(files, store=STORE, names=[])
    for number in range(4):
        ledger.append(simple(range(number * 10, number * 10 + 12), order=number))
        round_trip(ledger)
        assert (number == 3) == ledger.merge()
    before = content(ledger)
    assert 5 == len([name for name in files.names() if name.endswith(".run")])
    ledger.settled()
    assert 5 == len(files.names()), "the checkpoint lists the old ones still"
    names = ledger.names()
    ledger.settled()
    assert [run_name(4)] == names == files.names()
    assert before == content(ledger) == content(Ledger.open(files, store=STORE, names=names))
    assert 42 == ledger.statistics().records == len(before)


def test_a_merge_of_all_runs_drops_deleted_records() -> None:
    ledger = Ledger.open(FaultyFiles(), store=STORE, names=[])
    ledger.append(simple(range(10)))
    round_trip(ledger)
    for _ in range(3):
        ledger.append(simple(range(4), state=0))
        round_trip(ledger)
    assert 22 == ledger.statistics().records
    assert ledger.merge()
    assert 6 == ledger.statistics().records == len(content(ledger))


def test_a_larger_older_run_is_left_alone() -> None:
    ledger = Ledger.open(FaultyFiles(), store=STORE, names=[])
    ledger.append(simple(range(30_000)))
    names = round_trip(ledger)
    for number in range(4):
        ledger.append_heads(heads_of([key_of(number)], order=number + 1))
        round_trip(ledger)
    assert ledger.merge()
    assert not ledger.merge()
    assert [*names, run_name(5)] == ledger.names()
    assert 30_000 == len(content(ledger))


def four_runs(files: FaultyFiles, rows: int = 5_000) -> Ledger:
    ledger = Ledger.open(files, store=STORE, names=[])
    for number in range(4):
        ledger.append(simple(range(rows), order=number))
        round_trip(ledger)
    return ledger


def during_merge(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Makes this call once, after the next run has its first records."""
    left, add = [act], RunWriter.add

    def acting(writer: RunWriter, records: RecordColumns) -> None:
        add(writer, records)
        if left:
            left.pop()()

    monkeypatch.setattr(RunWriter, "add", acting)


def test_records_written_during_a_merge_become_a_run_above_it(monkeypatch: pytest.MonkeyPatch) -> None:
    files = FaultyFiles()
    ledger = four_runs(files)

    def write() -> None:
        ledger.append(simple(range(100), order=9))
        ledger.freeze()
        ledger.write_frozen()
        assert 0 == ledger.statistics().memtable_bytes

    during_merge(monkeypatch, write)
    assert ledger.merge()
    assert [run_name(4), run_name(5)] == ledger.names()
    orders = [order for order, _ in content(ledger).values()]
    assert (100, 4_900) == (orders.count(9), orders.count(3))
    ledger.settled()
    assert content(ledger) == content(Ledger.open(files, store=STORE, names=ledger.names()))


@pytest.mark.parametrize("ends", ["before the merge", "after the merge"])
def test_a_checkpoint_begins_during_a_merge_and_lists_what_existed_then(
    monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """If it ends first, it lists the old runs, and their files stay until the next checkpoint."""
    files, listed = FaultyFiles(), []
    ledger = four_runs(files)
    old = ledger.names()

    def end() -> None:
        ledger.write_frozen(for_checkpoint=True)
        listed[:] = ledger.names()

    def begin() -> None:
        ledger.append(simple(range(100), order=9))
        ledger.freeze(for_checkpoint=True)
        ledger.append(simple(range(100, 300), order=10))
        ledger.freeze()
        if ends == "before the merge":
            end()
        else:
            ledger.write_frozen()
            ledger.write_frozen()  # the younger records

    during_merge(monkeypatch, begin)
    assert ledger.merge()
    if ends == "after the merge":
        end()
        assert [run_name(4), run_name(5)] == listed
    else:
        assert [*old, run_name(5)] == listed
    ledger.settled()
    assert set(listed) <= set(files.names())
    orders = [order for order, _ in content(Ledger.open(files, store=STORE, names=listed)).values()]
    assert (100, 4_900, 0) == (orders.count(9), orders.count(3), orders.count(10))
    names = round_trip(ledger)
    assert sorted(names) == files.names(), "the old runs are gone"
    orders = [order for order, _ in content(Ledger.open(files, store=STORE, names=names)).values()]
    assert (100, 4_700, 200) == (orders.count(9), orders.count(3), orders.count(10))


def test_a_merge_during_a_checkpoint_leaves_younger_runs_alone() -> None:
    files = FaultyFiles()
    ledger = four_runs(files)
    ledger.freeze(for_checkpoint=True)
    for number in range(3):
        ledger.append(simple(range(50), order=20 + number))
        ledger.freeze()
        ledger.write_frozen()
    assert ledger.merge()
    assert not ledger.merge()
    listed = ledger.names()
    assert [run_name(7)] == listed
    ledger.settled()
    assert {3} == {order for order, _ in content(Ledger.open(files, store=STORE, names=listed)).values()}
    orders = [order for order, _ in content(ledger).values()]
    assert (50, 4_950) == (orders.count(22), orders.count(3))


@dataclass
class Rows:
    """A run with a byte for each row."""

    rows: int

    @property
    def bytes(self) -> int:
        return self.rows


@given(st.lists(st.integers(RUN_ROWS_SMALL, 3_000_000), max_size=120), st.booleans())
def test_a_record_is_merged_a_logarithm_of_times_and_few_runs_remain(sizes: list[int], even: bool) -> None:
    """Each merge doubles the run of a record at least."""
    runs: list[Rows] = []
    written = total = 0
    for size in [max(sizes, default=1)] * len(sizes) if even else sizes:
        runs.append(Rows(size))
        total += size
        while count := due(runs):
            old = runs[len(runs) - count :]
            made = sum(run.rows for run in old)
            assert count >= RUNS_PER_MERGE
            assert made >= 2 * max(run.rows for run in old)
            written += made
            runs[len(runs) - count :] = [Rows(made)]
    doublings = math.log2(total / RUN_ROWS_SMALL + 2) + 1
    assert written <= total * doublings
    assert not even or len(runs) <= RUNS_PER_MERGE + doublings


def test_a_large_run_is_not_merged_with_a_few_small_ones() -> None:
    """It would be written again after each third new run."""
    large = Rows(10_000_000)
    assert 0 == due([large, Rows(100_000), Rows(100_000), Rows(100_000)])
    assert 4 == due([large, *[Rows(100_000)] * 4])
    assert 5 == due([large, Rows(4_000_000), Rows(3_000_000), Rows(2_000_000), Rows(1_000_000)])
    assert 4 == due([Rows(5), Rows(RUN_ROWS_SMALL), Rows(1), Rows(700)]), "these count as equally large"


def test_a_merge_waits_for_room_for_itself_the_log_and_a_checkpoint() -> None:
    files = FaultyFiles()
    ledger = four_runs(files)
    size = ledger.statistics().bytes
    need = size + size // MERGE_GROWTH_SHARE + MERGE_LEAVES_BYTES + 1_000
    files.capacity_bytes = files.used_bytes() + need - 100
    with pytest.raises(StoreFullError, match="too few for a merge"):
        ledger.merge(leaves_bytes=1_000)
    assert (4, True) == (ledger.statistics().runs, ledger.merges_wait)
    files.capacity_bytes += 200
    assert not ledger.merges_wait
    assert ledger.merge(leaves_bytes=1_000)
    files.capacity_bytes = files.used_bytes()
    assert not ledger.merges_wait, "none is due"
    assert 5_000 == len(content(ledger))


def test_small_runs_are_merged_though_there_is_no_room_to_merge_large_ones() -> None:
    large = [Rows(rows * 1_000_000) for rows in (10, 6, 3, 2)]
    runs, most = list(large), 0
    for _ in range(1_000):
        runs.append(Rows(50_000))
        while count := due(runs, bytes_max=15_000_000):
            runs[len(runs) - count :] = [Rows(sum(run.rows for run in runs[len(runs) - count :]))]
        most = max(most, len(runs))
    assert most < 25


def test_a_run_that_no_checkpoint_lists_leaves_no_file_when_it_is_merged() -> None:
    files = FaultyFiles()
    ledger = four_runs(files)
    listed = ledger.names()
    for number in range(4):
        ledger.append(simple(range(10), order=10 + number))
        ledger.freeze()
        ledger.write_frozen()
    assert ledger.merge()
    assert [*listed, run_name(8)] == files.names()
    assert content(ledger) == content(Ledger.open(files, store=STORE, names=files.names()))


def test_a_large_merge_waits_while_smaller_ones_have_room() -> None:
    files = FaultyFiles()
    room = MergeRoom(files)
    runs = [Rows(10_000_000), Rows(6_000_000), Rows(4_000_000), Rows(1_000), Rows(1_000), Rows(1_000), Rows(1_000)]
    files.capacity_bytes = files.used_bytes() + MERGE_LEAVES_BYTES + 1_000_000
    assert (7, 4, True) == (due(runs), room.fitting(runs), room.is_awaited(runs))
    files.capacity_bytes = None
    assert (False, 7, False) == (room.is_awaited(runs), room.fitting(runs), room.is_awaited(runs))


def test_room_that_a_disk_does_not_tell_is_awaited_and_raises_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    files = FaultyFiles()
    room, runs = MergeRoom(files), [Rows(1_000)] * 4

    def failing() -> int:
        raise StoreFailedError("the disk does not answer")

    room.refuse(runs)
    assert room.is_awaited(runs), "as with a quota"
    monkeypatch.setattr(files, "free_bytes", failing)
    room.refuse(runs)
    assert (True, False) == (room.is_awaited(runs), room.is_awaited([])), "none of these is due"


def test_a_merge_that_a_quota_ends_waits_until_the_next_one_ends() -> None:
    """The free space does not show a quota."""
    files = FaultyFiles()
    ledger = four_runs(files, 40_000)
    assert not ledger.merges_wait
    files.fail(1, errno.EDQUOT, forever=True, verb="write")
    with pytest.raises(StoreFullError):
        ledger.merge()
    ledger.give_room()
    assert ledger.merges_wait
    files.mend()
    assert (True, True, False) == (ledger.merges_wait, ledger.merge(), ledger.merges_wait)


def test_a_merge_gives_its_room_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next attempt begins anew."""
    files = FaultyFiles()
    ledger = four_runs(files, 40_000)
    before = files.names()
    with monkeypatch.context() as patch:
        during_merge(patch, ledger.give_room)
        with pytest.raises(StoreFullError, match="needed its room"):
            ledger.merge()
    assert (before, False) == (files.names(), ledger.merges_wait), "the log has not used that room yet"
    files.capacity_bytes = files.used_bytes()
    assert ledger.merges_wait
    files.capacity_bytes = None
    assert ledger.merge()
    assert 40_000 == len(content(ledger))


def test_a_merge_ends_at_its_next_step_when_the_store_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    files = FaultyFiles()
    ledger = four_runs(files, 40_000)
    before = files.names()
    during_merge(monkeypatch, ledger.end_merges)
    with pytest.raises(ClosedError):
        ledger.merge()
    assert before == files.names()
    assert 40_000 == len(content(ledger))
    ledger.close()


def test_a_scan_continues_while_runs_are_written_merged_and_removed() -> None:
    files = FaultyFiles()
    ledger = Ledger.open(files, store=STORE, names=[])
    for number in range(3):
        ledger.append(simple(range(20_000), order=number))
        round_trip(ledger)
    scan = ledger.scan()
    rows = len(next(scan))
    ledger.append(simple(range(30_000), order=9))
    round_trip(ledger)
    ledger.merge()
    ledger.names()
    ledger.settled()
    orders = {2}
    for cards in scan:
        rows += len(cards)
        orders |= set(cards.heads["order"].tolist())
    assert (20_000, {2}) == (rows, orders)


def test_a_full_disk_leaves_the_frozen_records_readable_and_the_next_attempt_writes_them() -> None:
    files = FaultyFiles(capacity_bytes=500)
    ledger = Ledger.open(files, store=STORE, names=[])
    ledger.append(simple(range(500), order=1))
    ledger.freeze()
    with pytest.raises(StoreFullError):
        ledger.write_frozen()
    assert ([], []) == (files.names(), ledger.names())
    ledger.append(simple(range(490, 600), order=2))
    assert 600 == len(content(ledger))
    files.capacity_bytes = None
    names = round_trip(ledger)
    assert 600 == len(content(Ledger.open(files, store=STORE, names=names)))


@pytest.mark.parametrize("nth", range(1, 9))
def test_any_failed_call_leaves_the_ledger_unchanged(nth: int) -> None:
    files = FaultyFiles()
    ledger = Ledger.open(files, store=STORE, names=[])
    ledger.append(simple(range(700), order=1))
    ledger.freeze()
    before = content(ledger)
    files.fail(nth, 5)
    try:
        ledger.write_frozen()
    except StoreFailedError:
        assert ([], before) == (ledger.names(), content(ledger))
        ledger.write_frozen()
    assert before == content(Ledger.open(files, store=STORE, names=ledger.names()))


def test_leftovers_are_removed_and_other_files_are_not() -> None:
    files = FaultyFiles()
    ledger = Ledger.open(files, store=STORE, names=[])
    ledger.append(simple(range(3)))
    names = round_trip(ledger)
    listed = files.contents()[names[0]]
    for name in (run_name(7), "run-0000000000000009.tmp", "log-0000000000000001.seg", "run-xyz.run"):
        files.put(name, listed)
    again = Ledger.open(files, store=STORE, names=names)
    again.remove_leftovers()
    assert ["log-0000000000000001.seg", names[0], "run-xyz.run"] == files.names()
    again.append(simple([9]))
    assert run_name(10) == round_trip(again)[1], "numbers of leftovers are not used again in this life"


def test_opening_and_reading_change_no_file() -> None:
    files = FaultyFiles()
    ledger = Ledger.open(files, store=STORE, names=[])
    ledger.append(simple(range(3)))
    names = round_trip(ledger)
    files.put(run_name(7), b"of a crash")
    before, calls = files.contents(), len(files.calls)
    again = Ledger.open(files, store=STORE, names=names)
    content(again)
    found(again, [key_of(1)])
    assert (before, calls) == (files.contents(), len(files.calls))


def small_run() -> tuple[FaultyFiles, str]:
    files = FaultyFiles()
    ledger = Ledger.open(files, store=STORE, names=[])
    ledger.append(simple(range(9)))
    ledger.append_heads(heads_of([key_of(3)], order=5))
    return files, round_trip(ledger)[0]


def test_no_flipped_byte_is_read_as_another_value() -> None:
    files, name = small_run()
    good = files.contents()[name]
    expected = content(Ledger.open(files, store=STORE, names=[name]))
    noticed = 0
    for at in range(len(good)):
        for flip in (0x01, 0x80, 0xFF):
            files.put(name, good[:at] + bytes([good[at] ^ flip]) + good[at + 1 :])
            try:
                assert expected == content(Ledger.open(files, store=STORE, names=[name])), at
            except (DamagedStoreError, ForeignStoreError) as error:
                noticed += name in str(error)
    assert noticed == 3 * len(good)


def test_a_run_that_was_cut_or_extended_is_not_opened() -> None:
    files, name = small_run()
    good = files.contents()[name]
    for other in [good[:length] for length in range(len(good))] + [good + b"\0", good + good, b""]:
        files.put(name, other)
        with pytest.raises(DamagedStoreError, match=r"at byte \d+"):
            Ledger.open(files, store=STORE, names=[name])


def test_memory_freed_by_a_run_is_returned_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    freed: list[int] = []
    set_limits(monkeypatch, GIVE_BACK_BYTES=400_000)
    monkeypatch.setattr("outrider.storage.tiers.give_back", lambda: freed.append(1))
    ledger = Ledger.open(FaultyFiles(), store=STORE, names=[])
    for first in range(0, 6 * MEMTABLE_CHUNK_ROWS, MEMTABLE_CHUNK_ROWS):
        ledger.append(cards_of({key_of(n): (b"u", b"", b"") for n in range(first, first + MEMTABLE_CHUNK_ROWS)}))
    assert ledger.unfrozen_bytes > 6 * MEMTABLE_CHUNK_ROWS * 72
    ledger.freeze()
    assert ledger.unfrozen_bytes == 0
    round_trip(ledger)
    assert len(freed) == 6
    assert ledger.statistics().memtable_bytes == 0


def test_a_run_of_another_store_name_or_format_is_refused() -> None:
    files, name = small_run()
    with pytest.raises(DamagedStoreError, match="another store"):
        Ledger.open(files, store=bytes(16), names=[name])
    good = files.contents()[name]
    files.put(run_name(5), good)
    with pytest.raises(DamagedStoreError, match="renamed"):
        Ledger.open(files, store=STORE, names=[run_name(5)])
    files.put(name, good[:8] + b"\3" + good[9:])
    with pytest.raises(ForeignStoreError, match="format 3"):
        Ledger.open(files, store=STORE, names=[name])
    files.drop(name)
    with pytest.raises(DamagedStoreError, match="missing"):
        Ledger.open(files, store=STORE, names=[name])


def test_a_damaged_block_is_named_with_its_byte_and_the_blocks_before_it_are_whole() -> None:
    files = FaultyFiles()
    ledger = Ledger.open(files, store=STORE, names=[])
    rng = np.random.default_rng(1)
    ledger.append(cards_of({key_of(number): (rng.bytes(900), b"", b"") for number in range(1500)}))
    (name,) = round_trip(ledger)
    good = files.contents()[name]
    at = len(good) * 3 // 4
    files.put(name, good[:at] + b"?!" + good[at + 2 :])
    damaged = Ledger.open(files, store=STORE, names=[name])
    scan = damaged.scan()
    rows = len(next(scan))
    with pytest.raises(DamagedStoreError, match=r"at byte \d{6,}"):
        list(scan)
    assert 0 < rows < 1500


@pytest.mark.parametrize(
    ("cards", "words"),
    [
        (Cards(np.ones(2, HEAD), b"", np.zeros(2, np.int64)), "2 offsets for 2 cards"),
        (Cards(np.zeros(1, HEAD), b"abc", np.array([0, 3])), "card 0 has a body of 3 bytes"),
        (Cards(np.zeros(1, HEAD), b"", np.array([0, 3])), "in 0 bytes"),
        (cards_of({(0, 0, 0): (b"", b"", bytes(RUN_BODY_BYTES_MAX + 1))}), "may have"),
    ],
)
def test_impossible_cards_are_refused(cards: Cards, words: str) -> None:
    ledger = Ledger.open(FaultyFiles(), store=STORE, names=[])
    with pytest.raises(ValueError, match=words):
        ledger.append(cards)


def test_an_empty_ledger_finds_no_records_and_writes_no_files() -> None:
    files: Files = FaultyFiles()
    ledger = Ledger.open(files, store=STORE, names=[])
    ledger.append(Cards.none())
    assert ([], []) == (round_trip(ledger), files.names())
    assert {} == content(ledger)
    assert [False] == found(ledger, [(0, 0, 0)])[0]


def test_statistics_separate_memory_and_disk() -> None:
    ledger = Ledger.open(FaultyFiles(), store=STORE, names=[])
    ledger.append(simple(range(100)))
    memory = ledger.statistics()
    assert (100, 0, 0) == (memory.records, memory.runs, memory.bytes)
    assert memory.memtable_bytes > 100 * 72
    round_trip(ledger)
    disk = ledger.statistics()
    assert (100, 1, 0) == (disk.records, disk.runs, disk.memtable_bytes)
    assert disk.bytes > 0


def test_callers_may_reuse_their_heads_after_a_call() -> None:
    ledger = Ledger.open(FaultyFiles(), store=STORE, names=[])
    cards = simple(range(3))
    ledger.append(cards)
    cards.heads["order"] = 77
    assert {0} == {order for order, _ in content(ledger).values()}


def test_a_closed_ledger_raises_an_error() -> None:
    ledger = Ledger.open(FaultyFiles(), store=STORE, names=[])
    ledger.append(simple([1]))
    ledger.freeze()
    ledger.close()
    ledger.close()
    for call in (lambda: found(ledger, [key_of(1)]), lambda: content(ledger), ledger.statistics):
        with pytest.raises(ClosedError):
            call()


@settings(max_examples=20)
@given(st.integers(0, 1 << 30))
def test_keys_of_many_crawls_sort_as_numbers(seed: int) -> None:
    """Crawls far apart leave little room for fingerprints in the short sort: it must not confuse them."""
    rng = np.random.default_rng(seed)
    keys = {
        (int(crawl), int(slot), int(print_))
        for crawl, slot, print_ in zip(
            rng.choice([0, 1, 1 << 20, 0xFFFFFFFF], 300), rng.integers(0, 3, 300), rng.integers(0, 40, 300), strict=True
        )
    }
    ledger = Ledger.open(FaultyFiles(), store=STORE, names=[])
    shuffled = [sorted(keys)[row] for row in rng.permutation(len(keys))]
    ledger.append(cards_of({key: (b"%d %d %d" % key, b"", b"") for key in shuffled}))
    assert {key: (0, b"%d %d %d" % key) for key in keys} == content(ledger)


def test_a_thread_may_write_and_merge_during_appends_and_look_ups() -> None:
    ledger = Ledger.open(FaultyFiles(), store=STORE, names=[])
    stop = threading.Event()
    ledger.append(simple(range(50)))

    def background() -> None:
        while not stop.is_set():
            ledger.write_frozen()
            while ledger.merge():
                pass
            ledger.names()
            ledger.settled()

    with ThreadPoolExecutor(1) as threads:
        written = threads.submit(background)
        try:
            for turn in range(150):
                ledger.append(simple(range(50 + turn * 10, 60 + turn * 10), order=turn))
                ledger.append_heads(heads_of([key_of(turn)], order=turn))
                if turn % 5 == 0:
                    ledger.freeze()
                here, cards = found(ledger, [key_of(number) for number in range(60 + turn * 10)])
                assert all(here)
                assert turn == int(cards.heads["order"][turn])
        finally:
            stop.set()
        written.result()
    assert 1550 == len(content(ledger))
