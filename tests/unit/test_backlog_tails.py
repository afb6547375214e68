"""The backlog with its tails: each queue has one exact order, wherever its cards are."""

from __future__ import annotations

import errno
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from limiting import set_limits
from outrider.errors import DamagedStoreError, StoreFailedError
from outrider.frontier.format.card_columns import Cards
from outrider.frontier.stores.chunks import Packer, fingerprints_of
from outrider.frontier.stores.tailed_backlog import TailedBacklog
from outrider.frontier.stores.tails import Tails
from outrider.kernels.card_layout import HEAD, ORDERED, ORDERED_CLASS
from outrider.sim import disk
from outrider.storage.memory import MemoryFiles
from outrider.storage.scratch import PLACE_BITS, Scratch


def cards_of(orders, *, klass=0, due=0, fingerprints=None):
    """One card per order. Its URL contains its order."""
    orders = np.asarray(orders, np.uint64)
    heads = np.zeros(len(orders), HEAD)
    bodies = [b"https://example.org/articles/%d" % order for order in orders.tolist()]
    heads["order"], heads["klass"], heads["due"] = orders, klass, due
    heads["fingerprint"] = orders + np.uint64(1000) if fingerprints is None else fingerprints
    heads["url_bytes"] = [len(body) for body in bodies]
    return Cards(heads, b"".join(bodies), np.cumsum([0, *map(len, bodies)]).astype(np.int64))


def keys(cards):
    return [
        (-int(head["klass"]), int(head["due"]), int(head["order"]), int(head["fingerprint"]), cards.url(row))
        for row, head in enumerate(cards.heads)
    ]


def orders(cards):
    return cards.heads["order"].tolist()


def filled(count, files, **settings):
    backlog = TailedBacklog(files, name="b", **settings)
    for start in range(0, count, 100):
        backlog.put(np.full(min(100, count - start), 7), cards_of(np.arange(start, min(count, start + 100))))
    return backlog


# ------------------------------------------------------------------------------------------------------- chunks


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**64 - 1),
            st.integers(-(2**63), 2**63 - 1),
            st.integers(0, 15),
            st.binary(max_size=40),
            st.binary(max_size=4),
            st.binary(max_size=4),
        ),
        min_size=1,
        max_size=255,
    )
)
def test_a_chunk_returns_the_cards_that_were_packed(rows):
    heads = np.frombuffer(bytearray(np.random.default_rng(1).bytes(72 * len(rows))), HEAD)
    for row, (order, due, klass, url, referrer, extra) in enumerate(rows):
        heads[row]["order"], heads[row]["due"], heads[row]["klass"] = order, due, klass
        sizes = len(url), len(referrer), len(extra)
        heads[row]["url_bytes"], heads[row]["referrer_bytes"], heads[row]["extra_bytes"] = sizes
    bodies = [b"".join(row[3:]) for row in rows]
    cards = Cards(heads, b"".join(bodies), np.cumsum([0, *map(len, bodies)]).astype(np.int64))
    packer = Packer()
    (chunk,) = packer.pack(cards, [(0, len(cards))])
    back = packer.unpack(chunk)
    assert cards.heads.tobytes() == back.heads.tobytes()
    assert (cards.arena, cards.offsets.tolist()) == (back.arena, back.offsets.tolist())
    assert heads["fingerprint"].tolist() == fingerprints_of(chunk).tolist()


def test_chunks_from_before_the_dictionary_are_still_readable():
    packer = Packer()
    parts = [cards_of(np.arange(64 * number, 64 * number + 64)) for number in range(90)]
    chunks = [packer.pack(part, [(0, len(part))])[0] for part in parts]
    assert [0] * 64 + [1] * 26 == [chunk[1] for chunk in chunks]
    assert [orders(part) for part in parts] == [orders(packer.unpack(chunk)) for chunk in chunks]
    assert len(chunks[-1]) < len(chunks[0])


def test_chunks_are_packed_together_as_they_are_one_by_one():
    cards = cards_of(np.arange(900) * 7, klass=np.arange(900) // 300, due=-5)
    spans = [(0, 64), (64, 65), (70, 300), (310, 565), (899, 900)]
    together, alone = Packer(), Packer()
    chunks = together.pack(cards, spans)
    for (start, end), chunk in zip(spans, chunks, strict=True):
        part = cards.take(np.arange(start, end))
        assert keys(part) == keys(together.unpack(chunk))
        assert [chunk] == alone.pack(part, [(0, len(part))])
    assert [] == together.pack(cards, [])


# ------------------------------------------------------------------------------------------------------- the order


def test_a_long_queue_keeps_its_head_in_memory_and_its_tail_on_disk():
    files = MemoryFiles()
    backlog = filled(1_000, files, head_cards_max=32)
    said = backlog.statistics()
    assert 1_000 == len(backlog) == said["cards"] == said["cards_in_memory"] + said["cards_on_disk"]
    assert said["cards_in_memory"] <= 32 + 64
    assert [1_000, 0] == backlog.waiting([7, 8]).tolist()
    assert 0 < said["disk_bytes"] == sum(files.open(name).size() for name in files.names())
    assert list(range(1_000)) == [order for _ in range(100) for order in orders(backlog.take([7] * 10)[1])]
    assert ([False], [255]) == (backlog.take([7])[0].tolist(), backlog.best([7]).tolist())


def test_a_better_card_on_disk_is_first():
    backlog = TailedBacklog(MemoryFiles(), name="b", head_cards_max=2, chunk_cards=4)
    backlog.put([1] * 20, cards_of(range(20, 40)))
    backlog.take([1, 1])
    backlog.put([1] * 20, cards_of(range(100, 120), klass=3))
    backlog.put([1] * 10, cards_of(range(10), klass=3, due=-1))
    assert [3] == backlog.best([1]).tolist()
    expected = [*range(10), *range(100, 120), *range(22, 40)]
    assert expected[:3] == orders(backlog.peek(1, 3))
    assert expected == orders(backlog.drain(1, 1_000))


def test_the_best_class_of_a_queue_includes_its_tail():
    backlog = TailedBacklog(MemoryFiles(), name="b", head_cards_max=1, chunk_cards=2)
    backlog.put([1] * 12, cards_of(range(12), klass=9))
    while backlog.statistics()["cards_in_memory"] > 0:
        backlog._kernel.drain(1, 1)
    backlog.put([1], cards_of([50], klass=2))
    assert [9, 255] == backlog.best([1, 2]).tolist()


@pytest.mark.parametrize("queue", [0, 7, 70_000])
def test_the_column_of_the_best_cards_on_disk_follows_every_change(queue):
    tails, rows = Tails(), np.array([queue, queue + 1, 0xFFFF_FFFF], np.uint32)

    def best():
        found = tails.best(rows).tolist()
        assert [0, 0] == found[1:], "they have no tail"
        return found[0]

    assert 0 == best()
    tails.push(queue, (254, 5, 5), 1, 64)
    assert 2 == best()
    tails.push(queue, (240, 9, 9), 2, 64)
    tails.push(queue, (1, 9, 9), 3, 64)
    assert (255, 192) == (best(), tails[queue].cards)
    tails.remove(queue, 0)
    assert 16 == best()
    tails.remove(queue, 1)
    assert (16, 1) == (best(), len(tails))
    tails.remove(queue, 0)
    assert (0, 0, None) == (best(), len(tails), tails.pop(queue))
    tails.follow(queue, np.array([[254 << PLACE_BITS | 1, 5, 5], [255 << PLACE_BITS | 2, 5, 5]], np.uint64), 128)
    assert (2, 128) == (best(), tails[queue].cards)
    tails.clear()
    assert 0 == best()


def test_a_queue_is_led_by_its_tail_while_that_has_the_better_class():
    backlog = TailedBacklog(MemoryFiles(), name="b", head_cards_max=2, chunk_cards=2)
    rows = np.array([3, 7, 7, 9], np.uint32)
    backlog.put([7] * 40, cards_of(np.arange(40), klass=5))
    backlog.put([9], cards_of([90]))

    def led():
        found = backlog.led_by_tail(rows)
        return None if found is None else found.tolist()

    assert (None, [False, True, True, False]) == (led(), backlog.has_tail(rows).tolist())
    in_memory = 40 - backlog.statistics()["cards_on_disk"]
    backlog.remove([7] * 40, cards_of(np.arange(40)).heads["fingerprint"], tails=False)
    assert ([False, True, True, False], [255, 5, 5, 0]) == (led(), backlog.best(rows).tolist()), "memory has none"
    backlog.put([7], cards_of([100], klass=4))
    assert ([False, True, True, False], [255, 5, 5, 0]) == (led(), backlog.best(rows).tolist()), "a worse one"
    backlog.put([7], cards_of([101], klass=5))
    assert None is led(), "the same class"
    backlog.put([7], cards_of([102], klass=6))
    assert (None, [255, 6, 6, 0]) == (led(), backlog.best(rows).tolist())
    assert [0, 43 - in_memory, 43 - in_memory, 1] == backlog.waiting(rows).tolist()


def test_a_queue_of_a_crawl_with_an_exact_order_is_led_by_its_tail_while_that_has_the_first_card():
    backlog = TailedBacklog(MemoryFiles(), name="b", head_cards_max=2, chunk_cards=2, orders=[0])
    rows = np.array([7, 9], np.uint32)
    backlog.put([7] * 40, cards_of(np.arange(10, 50), klass=ORDERED))
    assert None is backlog.led_by_tail(rows)
    backlog.remove([7] * 40, cards_of(np.arange(10, 50)).heads["fingerprint"], tails=False)
    backlog.put([7], cards_of([60], klass=ORDERED))
    led = backlog.led_by_tail(rows)
    assert (led is not None and led.tolist(), backlog.best(rows).tolist()) == ([True, False], [ORDERED_CLASS, 255])
    backlog.put([7], cards_of([1], klass=ORDERED))
    assert None is backlog.led_by_tail(rows)


@pytest.mark.parametrize("rank", [0, 256, 65_535])
def test_chunks_of_a_class_that_does_not_exist_are_refused(rank):
    (chunks,) = filled(200, MemoryFiles(), head_cards_max=10, chunk_cards=10).chunks(np.array([7], np.uint32), 1 << 20)
    other = TailedBacklog(MemoryFiles(), name="c")
    ranks = chunks.ranks.copy()
    ranks[-1] = rank
    with pytest.raises(ValueError, match="class"):
        other.put_chunks(replace(chunks, ranks=ranks))
    assert 0 == len(other)
    other.put_chunks(chunks)
    assert len(other) == other.statistics()["cards_on_disk"] > 0


def test_cards_removed_from_a_tail_are_gone():
    backlog = filled(500, MemoryFiles(), head_cards_max=32)
    found, cards = backlog.remove([7, 7, 7, 8, 7], np.array([1499, 1000, 5, 1001, 1250], np.uint64))
    assert [True, True, False, False, True] == found.tolist()
    assert [499, 0, 250] == orders(cards)
    assert [order for order in range(500) if order not in (0, 250, 499)] == orders(backlog.drain(7, 500))


def test_a_card_in_a_tail_is_forgotten_without_reading_its_chunk():
    files = MemoryFiles()
    backlog = filled(5_000, files)
    before = backlog.statistics()
    backlog.forget([7, 8], cards_of([4_321, 5]))
    assert (4_999, before["loaded"]) == (len(backlog), backlog.statistics()["loaded"])
    backlog.put([7], cards_of([4_321], klass=1))
    assert [4_321, *(order for order in range(5_000) if order != 4_321)] == orders(backlog.drain(7, 5_000))


def test_a_card_of_a_queue_that_is_set_aside_is_forgotten():
    backlog = TailedBacklog(MemoryFiles(), name="b", bytes_max=0)
    backlog.put([1, 2], cards_of([1, 2]))
    assert 0 == backlog.statistics()["cards_in_memory"]
    backlog.forget([1], cards_of([1]))
    assert ([0, 1], [2]) == (backlog.waiting([1, 2]).tolist(), orders(backlog.take([1, 2])[1]))


def test_chunks_with_too_many_old_copies_are_read(monkeypatch):
    set_limits(monkeypatch, BACKLOG_MOVED_CARDS_MAX=20)
    backlog = filled(5_000, MemoryFiles())
    for order in range(4_900, 4_990):
        backlog.forget([7], cards_of([order]))
        assert len(backlog._moved.get(7, ())) < 20
    assert [*range(4_900), *range(4_990, 5_000)] == orders(backlog.drain(7, 5_000))


def test_many_queues_together_have_a_bounded_number_of_old_copies(monkeypatch):
    set_limits(monkeypatch, BACKLOG_MOVED_CARDS_ALL_MAX=30)
    backlog = TailedBacklog(MemoryFiles(), name="b", head_cards_max=32, chunk_cards=16)
    for queue in range(10):
        backlog.put(np.full(400, queue), cards_of(np.arange(400)))
    for order in range(200, 399, 2):
        for queue in range(10):
            backlog.forget([queue], cards_of([order]))
            assert sum(map(len, backlog._moved.values())) == backlog._moved_cards < 30
    assert 200 == backlog.drop(9) - 100
    for queue in range(9):
        assert [*range(200), *range(201, 400, 2), 399][:300] == orders(backlog.drain(queue, 400))
    assert (0, 0) == (len(backlog), backlog._moved_cards)


def test_a_dropped_queue_leaves_no_files():
    files = MemoryFiles()
    backlog = filled(5_000, files)
    assert 5_000 == backlog.drop(7)
    assert (0, 0) == (len(backlog), backlog.drop(7))
    backlog.put([1], cards_of([1]))
    assert (0, 1) == (backlog.statistics()["chunks"], len(backlog))


def test_all_cards_are_unloaded_in_any_order():
    backlog = filled(1_000, MemoryFiles())
    got = []
    while len(cards := backlog.unload(7, 100)):
        assert len(cards) < 164
        got += orders(cards)
    assert list(range(1_000)) == sorted(got)
    assert 0 == len(backlog)


# ------------------------------------------------------------------------------------------------- memory and disk


def test_without_files_all_cards_stay_in_memory():
    backlog = filled(1_000, None)
    assert 1_000 == backlog.statistics()["cards_in_memory"]
    assert list(range(1_000)) == orders(backlog.drain(7, 1_000))


def test_a_memory_limit_spills_long_queues():
    backlog = TailedBacklog(MemoryFiles(), name="b", bytes_max=20_000)
    for start in range(0, 3_000, 100):
        backlog.put(np.arange(start, start + 100) % 50, cards_of(np.arange(start, start + 100)))
    for _ in range(40):
        backlog.put([60], cards_of([10_000]))
    assert backlog.statistics()["cards_in_memory"] <= 50 * 8
    assert list(range(20, 3_000, 50)) == orders(backlog.drain(20, 100))


def test_a_memory_limit_applies_to_any_number_of_short_queues():
    backlog = TailedBacklog(MemoryFiles(), name="b", bytes_max=20_000)
    for start in range(0, 5_000, 100):
        rows = np.arange(start, start + 100)
        backlog.put(rows, cards_of(rows, klass=rows % 16))
        assert backlog.statistics()["bytes"] < 20_000 + 200 * 200
    said = backlog.statistics()
    assert (5_000, 5_000) == (said["cards"], said["queues"] + said["queues_on_disk"])
    rows = np.arange(5_000)
    assert backlog.led_by_tail(rows) is None  # their classes are in memory
    assert (rows % 16).tolist() == backlog.best(rows).tolist()
    backlog.put([3, 3], cards_of([9_000, 9_001], klass=15))
    assert 4_999 == len(backlog) - backlog.drop(3)
    order = np.random.default_rng(4).permutation(5_000)
    taken = [number for some in np.split(order, 50) for number in orders(backlog.take(some)[1])]
    assert [number for number in order.tolist() if number != 3] == taken
    assert (0, 0) == (len(backlog), backlog.statistics()["chunks"])


def test_garbage_is_bounded_while_short_queues_appear_and_disappear():
    backlog = TailedBacklog(MemoryFiles(), name="b", bytes_max=2_000)
    assert backlog._scratch is not None
    backlog._scratch._file_bytes_max = 20_000
    random = np.random.default_rng(6)
    number = 0
    for _ in range(300):
        rows = np.unique(random.integers(1, 500, 20))
        backlog.take(rows)
        backlog.put(rows, cards_of(np.arange(number, number + len(rows))))
        number += len(rows)
    said = backlog.statistics()
    assert said["queues"] + said["queues_on_disk"] == len(backlog) == 499
    assert said["disk_bytes"] < 4 * 130 * said["chunks"]


def test_damage_on_disk_is_reported_and_a_call_on_two_queues_removes_no_card():
    files = MemoryFiles()
    backlog = TailedBacklog(files, name="b", bytes_max=0)
    backlog.put([1, 2], cards_of([1, 2]))
    (name,) = files.names()
    files.open(name).write_at(20, b"?")
    for verb in (lambda: backlog.take([2, 1]), lambda: backlog.put([2, 1], cards_of([3, 4]))):
        with pytest.raises(DamagedStoreError, match="at byte 0"):
            verb()
    assert ([1, 1], 2) == (backlog.waiting([1, 2]).tolist(), len(backlog))
    assert [2] == orders(backlog.take([2])[1])


def test_a_full_disk_loses_no_cards_and_is_tried_again():
    files = disk.FaultyFiles(capacity_bytes=3_000)
    backlog = filled(3_000, files)
    said = backlog.statistics()
    assert said["refused"] >= 1
    assert 3_000 == said["cards"]
    files.capacity_bytes = None
    for number in range(70):
        backlog.put([9], cards_of([number]))
    assert backlog.statistics()["cards_in_memory"] < 300
    assert list(range(3_000)) == orders(backlog.drain(7, 5_000))


def test_a_failing_disk_is_reported_and_no_cards_are_lost():
    files = disk.FaultyFiles()
    backlog = filled(300, files)
    files.fail(1, errno.EIO, verb="write")
    with pytest.raises(StoreFailedError):
        backlog.put(np.full(200, 7), cards_of(np.arange(300, 500)))
    assert list(range(500)) == orders(backlog.drain(7, 5_000))


@pytest.mark.parametrize("at", [0, 4, 8, 12, 100, -1])
def test_damage_on_disk_is_reported_and_no_card_is_removed(at):
    files = MemoryFiles()
    backlog = filled(300, files)
    (name,) = files.names()
    file = files.open(name)
    place = at % file.size()
    file.write_at(place, bytes([file.read_at(place, 1)[0] ^ 0x40]))
    with pytest.raises(DamagedStoreError, match=name):
        backlog.drain(7, 300)
    assert 300 == len(backlog)


def test_files_of_an_earlier_process_are_removed():
    files = MemoryFiles()
    filled(1_000, files)
    others = ["b-coming-00000001.tail", "b-x.other"]
    for name in others:
        files.open(name, create=True)
    assert ["b-00000001.tail", *others] == files.names()
    assert 0 == len(TailedBacklog(files, name="b"))
    assert others == files.names()


def test_closing_removes_the_files():
    files = MemoryFiles()
    backlog = filled(1_000, files)
    backlog.close()
    assert ([], 0) == (files.names(), len(backlog))


# ------------------------------------------------------------------------------------------------------- scratch


def test_a_file_of_garbage_is_removed():
    files = MemoryFiles()
    scratch = Scratch(files, name="s", file_bytes_max=1_000)
    places = scratch.append(3, [bytes([number]) * 200 for number in range(12)])
    assert ["s-00000001.tail", "s-00000002.tail", "s-00000003.tail"] == files.names()
    for place in places[:4]:
        scratch.release(place)
    assert ["s-00000002.tail", "s-00000003.tail"] == files.names()
    assert bytes([5]) * 200 == scratch.read(places[5], 3)


def test_a_wasteful_file_returns_its_live_chunks():
    scratch = Scratch(MemoryFiles(), name="s", file_bytes_max=1_000)
    places = scratch.append(3, [bytes([number]) * 200 for number in range(8)])
    scratch.release(places[0])
    scratch.release(places[1])
    assert [] == scratch.survivors(10)
    scratch.release(places[3])
    assert [(3, place, bytes([number]) * 200) for number, place in enumerate(places[:3])] == scratch.survivors(3)
    assert [(3, places[3], bytes([3]) * 200)] == scratch.survivors(3)
    assert [] == scratch.survivors(3)


def test_chunks_longer_than_one_read_are_returned_whole():
    scratch = Scratch(MemoryFiles(), name="s")
    chunk = np.random.default_rng(1).bytes(100_000)
    (place,) = scratch.append(3, [chunk])
    assert chunk == scratch.read(place, 3)


def test_garbage_is_bounded_while_a_queue_is_used():
    """Cards enter and leave for a long time: the disk contains at most a few times the bytes that are needed."""
    files = MemoryFiles()
    backlog = TailedBacklog(files, name="b", head_cards_max=4, chunk_cards=8)
    assert backlog._scratch is not None
    backlog._scratch._file_bytes_max = 20_000
    random = np.random.default_rng(5)
    model: list[list[int]] = [[] for _ in range(10)]
    for turn in range(300):
        rows = random.integers(0, 10, 60)
        numbers = 60 * turn + np.arange(60)
        backlog.put(rows, cards_of(numbers))
        for row, number in zip(rows.tolist(), numbers.tolist(), strict=True):
            model[row].append(number)
        if turn >= 60:
            for queue in range(10):
                if queue == 3:
                    continue  # keeps its chunks in every old file
                expected, model[queue] = model[queue][:7], model[queue][7:]
                assert expected == orders(backlog.drain(queue, 7))
    said = backlog.statistics()
    assert said["chunks"] * 8 * 60 > said["disk_bytes"] / 4
    assert model == [orders(backlog.drain(queue, 10_000)) for queue in range(10)]


# ------------------------------------------------------------------------------------------- many cards in one call


def shuffled(counts, *, seed=1):
    """The queues and cards of queues with these numbers of cards, in random order, in three classes."""
    chance = np.random.default_rng(seed)
    rows = chance.permutation(np.repeat(np.arange(len(counts), dtype=np.uint32), counts))
    orders, classes, dues = (
        chance.permutation(len(rows)),
        chance.integers(0, 3, len(rows)),
        chance.integers(0, 5, len(rows)),
    )
    return rows, cards_of(orders, klass=classes, due=dues)


def test_many_cards_in_one_call_are_in_order_and_each_chunk_is_read_once():
    counts = [2_000, 3, 200, 128, 129]
    rows, cards = shuffled(counts)
    backlog = TailedBacklog(MemoryFiles(), name="b")
    backlog.put(rows, cards)
    said = backlog.statistics()
    assert counts == backlog.waiting(np.arange(len(counts))).tolist()
    assert said["cards_in_memory"] <= 3 + 4 * 128
    for queue in range(len(counts)):
        expected = sorted(keys(cards.take(np.flatnonzero(rows == queue))))
        taken = [backlog.take([queue] * 10)[1] for _ in range(counts[queue] // 10 + 1)]
        assert expected == [key for some in taken for key in keys(some)]
    # Written in the order of the queue: no card comes into memory and is written again.
    assert backlog.statistics()["spilled"] == said["spilled"] == backlog.statistics()["loaded"]


def test_many_cards_join_those_that_are_there():
    backlog = filled(1_000, MemoryFiles())
    rows, cards = shuffled([1_500])
    heads = cards.heads.copy()
    heads["order"] += 5_000
    heads["due"] = np.arange(len(heads)) % 3 - 1  # some before those that are there, some after
    backlog.put(rows + 7, cards.with_heads(heads))
    assert 2_500 == len(backlog)
    assert sorted([*keys(cards.with_heads(heads)), *keys(cards_of(range(1_000)))]) == keys(backlog.drain(7, 5_000))


def test_many_cards_on_a_full_disk_stay_in_memory():
    files = disk.FaultyFiles(capacity_bytes=3_000)
    rows, cards = shuffled([2_000, 900])
    backlog = TailedBacklog(files, name="b")
    backlog.put(rows, cards)
    assert (2_900, 1) == (backlog.statistics()["cards_in_memory"], backlog.statistics()["refused"])
    for queue in range(2):
        assert sorted(keys(cards.take(np.flatnonzero(rows == queue)))) == keys(backlog.drain(queue, 5_000))


def test_many_cards_on_a_failing_disk_are_reported_and_not_lost():
    files = disk.FaultyFiles()
    rows, cards = shuffled([2_000])
    backlog = TailedBacklog(files, name="b")
    files.fail(1, errno.EIO, verb="write")
    with pytest.raises(StoreFailedError):
        backlog.put(rows, cards)
    assert sorted(keys(cards)) == keys(backlog.drain(0, 5_000))


def test_many_cards_with_a_wrong_body_are_refused_as_a_few_are():
    rows, cards = shuffled([2_000])
    backlog = TailedBacklog(MemoryFiles(), name="b")
    heads = cards.heads.copy()
    heads["url_bytes"][5] += 1
    with pytest.raises(ValueError, match="row 5"):
        backlog.put(rows, cards.with_heads(heads))
    assert 0 == len(backlog)


# ------------------------------------------------------------------------------------------------------- the model

queues = st.integers(0, 3)
puts = st.lists(st.tuples(queues, st.integers(0, 3), st.integers(-3, 3)), max_size=40)
histories = st.lists(
    st.one_of(
        st.tuples(st.just("put"), puts),
        st.tuples(st.just("take"), st.lists(queues, max_size=20)),
        st.tuples(st.just("remove"), st.lists(st.tuples(queues, st.integers(0, 200)), max_size=6)),
        st.tuples(st.just("move"), st.tuples(queues, st.integers(0, 200), st.integers(0, 3), st.integers(-3, 3))),
        st.tuples(st.sampled_from(["drain", "peek"]), st.tuples(queues, st.integers(0, 50))),
        st.tuples(st.just("unload"), st.tuples(queues, st.integers(0, 20))),
        st.tuples(st.just("drop"), queues),
    ),
    max_size=30,
)


@given(
    history=histories,
    head=st.integers(1, 5),
    chunk=st.integers(1, 6),
    bytes_max=st.sampled_from([None, 100, 3_000]),
    capacity=st.sampled_from([None, None, 0, 800, 3_000]),
    many=st.sampled_from([1, 1_000]),
)
def test_the_backlog_is_a_sorted_list_per_queue(history, head, chunk, bytes_max, capacity, many):
    with pytest.MonkeyPatch.context() as patch:
        set_limits(patch, BACKLOG_MANY_CARDS=many)
        compare(history, head, chunk, bytes_max, capacity)


def compare(history, head, chunk, bytes_max, capacity):
    files = disk.FaultyFiles(capacity_bytes=capacity)
    backlog = TailedBacklog(files, name="b", head_cards_max=head, bytes_max=bytes_max, chunk_cards=chunk)
    assert backlog._scratch is not None
    backlog._scratch._file_bytes_max = 700
    model: list[list[tuple]] = [[], [], [], []]
    number = 0
    for verb, what in history:
        if verb == "put":
            cards = cards_of(
                np.arange(number, number + len(what)), klass=[row[1] for row in what], due=[row[2] for row in what]
            )
            backlog.put([row[0] for row in what], cards)
            for (queue, _, _), key in zip(what, keys(cards), strict=True):
                model[queue] = sorted([*model[queue], key])
            number += len(what)
        elif verb == "take":
            expected = [model[queue].pop(0) if model[queue] else None for queue in what]
            found, cards = backlog.take(what)
            assert [key is not None for key in expected] == found.tolist()
            assert [key for key in expected if key is not None] == keys(cards)
        elif verb == "remove":
            expected = []
            for queue, order in what:
                hit = next((key for key in model[queue] if key[2] == order), None)
                expected.append(hit)
                if hit is not None:
                    model[queue].remove(hit)
            found, cards = backlog.remove([row[0] for row in what], [row[1] + 1000 for row in what])
            assert [key is not None for key in expected] == found.tolist()
            assert [key for key in expected if key is not None] == keys(cards)
        elif verb == "move":
            queue, order, klass, due = what
            old = next((key for key in model[queue] if key[2] == order), None)
            if old is not None:
                card = cards_of([order], klass=-old[0], due=old[1])
                backlog.forget([queue], card)
                moved = cards_of([order], klass=klass, due=due)
                backlog.put([queue], moved)
                model[queue] = sorted([*(key for key in model[queue] if key != old), *keys(moved)])
        elif verb == "unload":
            got = keys(backlog.unload(*what))
            assert len(got) >= min(what[1], len(model[what[0]]))
            assert set(got) <= set(model[what[0]])
            model[what[0]] = sorted(set(model[what[0]]) - set(got))
        elif verb == "drop":
            assert len(model[what]) == backlog.drop(what)
            model[what] = []
        else:
            assert model[what[0]][: what[1]] == keys(getattr(backlog, verb)(*what))
            if verb == "drain":
                del model[what[0]][: what[1]]
        assert [len(rows) for rows in model] == backlog.waiting([0, 1, 2, 3]).tolist()
        assert [-rows[0][0] if rows else 255 for rows in model] == backlog.best([0, 1, 2, 3]).tolist()
        assert sum(map(len, model)) == len(backlog) == backlog.statistics()["cards"]
    assert model == [keys(backlog.drain(queue, 10_000)) for queue in range(4)]
    assert (0, 0) == (len(backlog), backlog.statistics()["cards_on_disk"])
