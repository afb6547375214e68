"""Seen keys beyond their memory: exact, on disk, and with a filter that grows."""

from __future__ import annotations

import errno

import numpy as np
import pytest

from limiting import set_limits
from model.world import World, keys_go_to_disk, recount
from outrider import Frontier, kernels
from outrider.crawl.orders.store_repair import repair, verify
from outrider.crawl.setup.options import CrawlOptions
from outrider.errors import DamagedStoreError, SettingsError
from outrider.frontier.state.seen import SeenSet
from outrider.frontier.stores.spilled_keys import SpilledKeys
from outrider.kernels.card_layout import HEAD
from outrider.kernels.key_pages import PAGE_BYTES
from outrider.sim.disk import FaultyFiles
from outrider.storage.files import Directory
from outrider.storage.memory import MemoryFiles
from served import Served


def drawn(count, *, seed, slots=4_096):
    draw = np.random.default_rng(seed)
    return draw.integers(0, slots, count, dtype=np.uint16), draw.integers(0, 2**56, count, dtype=np.uint64)


@pytest.fixture
def small(monkeypatch):
    set_limits(monkeypatch, SEEN_FRESH_KEYS_MIN=2_000, SEEN_STEP_KEYS=500, SEEN_READ_PAGES=2, SEEN_FIND_PAGES=3)


def spilled(files, *, keys=None, bytes_max=100_000, repeats=False):
    numbers = iter(range(1, 10**6))
    first = kernels.FingerprintSet()
    if keys is not None:
        first.add(*keys)
    return SpilledKeys(files, lambda: next(numbers), first, bytes_max=bytes_max, repeats=repeats)


def found(keys, wanted):
    return np.frombuffer(keys.check(*wanted), np.bool_)


@pytest.mark.parametrize("slots", [1, 3, 4_096])
def test_every_key_is_found_and_no_other_while_runs_are_written_merged_and_removed(small, slots):
    files, oracle = MemoryFiles(), kernels.FingerprintSet()
    first = drawn(3_000, seed=0, slots=slots)
    keys = spilled(files, keys=first)
    oracle.add(*first)
    runs = set()
    for step in range(1, 60):
        new, others = drawn(700, seed=step, slots=slots), drawn(700, seed=1_000 + step, slots=slots)
        both = tuple(np.concatenate(columns) for columns in zip(new, others, new, strict=True))
        assert oracle.check(*both) == keys.check(*both)
        keys.add(*new)
        oracle.add(*new)
        assert oracle.check(*both) == keys.check(*both)
        runs.add(keys.statistics()["runs"])
    everything = tuple(
        np.concatenate(columns)
        for columns in zip(first, *(drawn(700, seed=step, slots=slots) for step in range(1, 60)), strict=True)
    )
    assert found(keys, everything).all()
    told = keys.statistics()
    assert 1 < max(runs) < 9  # 22 were written, and merged
    assert told["rolled_over"] > 0  # the first filter was for 6,000 keys
    assert 0 < told["disk_bytes"] <= sum(files.open(name).size() for name in files.names())
    keys.close()
    assert [] == files.names()


def test_removed_keys_are_absent_until_they_are_added_again(small):
    first, oracle = drawn(3_000, seed=0), kernels.FingerprintSet()
    keys = spilled(MemoryFiles(), keys=first)
    oracle.add(*first)
    added = [first]
    for step in range(1, 20):
        added.append(drawn(700, seed=step))
        of_old = tuple(column[step : step + 50] for column in added[step // 2])
        for verb, some in (("add", added[-1]), ("remove", of_old), ("remove", drawn(5, seed=step + 900))):
            getattr(keys, verb)(*some)
            getattr(oracle, verb)(*some)
        if step % 3 == 0:
            keys.add(*of_old)
            oracle.add(*of_old)
        everything = tuple(np.concatenate(columns) for columns in zip(*added, strict=True))
        assert oracle.check(*everything) == keys.check(*everything)
        assert not found(keys, everything).all()
    assert keys.statistics()["runs"] > 0


def test_the_filter_denies_nearly_all_new_keys(small):
    keys = spilled(MemoryFiles(), bytes_max=10**6)
    for step in range(40):
        keys.add(*drawn(1_000, seed=step))
    for step in range(10):
        assert not found(keys, drawn(5_000, seed=100 + step)).any()
    told = keys.statistics()
    assert told["filter_false"] < 0.01 * told["filter_denied"]
    assert told["filter_bytes"] <= 500_000


def test_a_filter_without_room_stays_exact(small):
    """It was made for a tenth of the keys, and the memory does not allow a larger one."""
    keys = spilled(MemoryFiles(), bytes_max=1)
    added = [drawn(1_000, seed=step) for step in range(40)]
    for one in added:
        keys.add(*one)
    assert all(found(keys, one).all() for one in added)
    assert not found(keys, drawn(20_000, seed=99)).any()
    assert keys.statistics()["filter_false"] > 1_000


def test_keys_that_share_their_upper_bits_are_found_in_the_page_before(small):
    prints = np.arange(40_000, dtype=np.uint64) // np.uint64(3) * np.uint64(16) + np.arange(40_000, dtype=np.uint64) % 3
    slots = np.zeros(40_000, np.uint16)
    keys = spilled(MemoryFiles(), keys=(slots, prints))
    for _ in range(200):
        keys.add(*drawn(100, seed=1, slots=1))
    assert keys.statistics()["runs"]
    assert found(keys, (slots, prints)).all()
    assert not found(keys, (slots, prints + np.uint64(5))).any()
    # Alone, as a call with its neighbours reads the page before in any case.
    assert all(found(keys, (slots[row : row + 1], prints[row : row + 1])).all() for row in range(0, 40_000, 3))


def test_full_sets_are_written_during_a_long_merge(small):
    """The filter needs nearly all of the memory, so sets are small, and many of them are full before a merge ends."""
    keys, waiting, runs = spilled(MemoryFiles(), bytes_max=400_000), [], []
    for step in range(400):
        keys.add(*drawn(1_000, seed=step))
        waiting.append((len(keys) - sum(map(len, keys.runs))) / (2 * keys.fresh_keys_max + 1_000))
        runs.append(len(keys.runs))
    assert max(waiting) <= 1, "the keys that are not in a run: of a full set, and of one that becomes full"
    assert (True, True) == (max(runs) > 6, min(runs[-100:]) < 4)
    assert all(found(keys, drawn(1_000, seed=step)).all() for step in range(400))


def test_repeated_keys_are_kept_once(small):
    keys = spilled(MemoryFiles(), repeats=True)
    for step in range(60):
        keys.add(*drawn(1_000, seed=step % 6))
    assert 6_000 == len(keys)


def test_a_full_disk_delays_the_writing_and_loses_nothing(small):
    files = FaultyFiles()
    keys = spilled(files, keys=drawn(3_000, seed=0))
    files.capacity_bytes = 0
    for step in range(1, 20):
        keys.add(*drawn(1_000, seed=step))
    assert 0 == keys.statistics()["runs"]
    assert all(found(keys, drawn(1_000, seed=step)).all() for step in range(1, 20))
    files.capacity_bytes = None
    for step in range(20, 40):
        keys.add(*drawn(1_000, seed=step))
    assert keys.statistics()["runs"]
    assert all(found(keys, drawn(1_000, seed=step)).all() for step in range(1, 40))


def test_writes_and_merges_that_find_no_room_are_made_later(small):
    """Each addition finds room for some further pages, so the disk is full at any place of a run or of a merge."""
    files, draw = FaultyFiles(), np.random.default_rng(1)
    keys = spilled(files, keys=drawn(3_000, seed=0))
    delayed = 0
    for step in range(1, 60):
        files.capacity_bytes = files.used_bytes() + int(draw.integers(12)) * PAGE_BYTES
        keys.add(*drawn(400, seed=step))
        delayed += len(keys.runs) > 4
        assert found(keys, drawn(400, seed=step // 2 or 1)).all()
        assert not found(keys, drawn(400, seed=1_000 + step)).any()
    assert delayed, "merges waited"
    files.capacity_bytes = None
    for step in range(60, 100):
        keys.add(*drawn(400, seed=step))
    assert len(keys.runs) < 8
    assert found(keys, drawn(3_000, seed=0)).all()
    assert all(found(keys, drawn(400, seed=step)).all() for step in range(1, 100))
    keys.close()
    assert [] == files.names()


@pytest.mark.parametrize("nth", range(1, 30, 4))
def test_a_write_or_merge_that_fails_is_made_again_and_loses_no_key(small, nth):
    files = FaultyFiles()
    keys = spilled(files, keys=drawn(3_000, seed=0))
    files.fail(nth, errno.EIO, forever=True, verb="write")
    for step in range(1, 60):
        keys.add(*drawn(400, seed=step))
    written = sum(map(len, keys.runs))
    assert all(found(keys, drawn(400, seed=step)).all() for step in range(1, 60))
    files.mend()
    for step in range(60, 100):
        keys.add(*drawn(400, seed=step))
    assert (True, True) == (written < 20_000, sum(map(len, keys.runs)) > 40_000)
    assert all(found(keys, drawn(400, seed=step)).all() for step in range(1, 100))
    assert not found(keys, drawn(10_000, seed=999)).any()
    keys.close()
    assert [] == files.names()


def ten_times_as_many(files, made_for):
    """A filter made for some keys has ten times as many in the end. Returns the share that it does not deny, and the
    bytes a key that all needed at most."""
    keys = spilled(files, keys=drawn(made_for // 2, seed=0), bytes_max=60 * made_for)
    most = 0
    for step in range(1, 100):
        keys.add(*drawn(made_for // 10, seed=step))
        most = max(most, keys.statistics()["bytes"])
    assert found(keys, drawn(made_for // 2, seed=0)).all()
    assert all(found(keys, drawn(made_for // 10, seed=step)).all() for step in range(1, 100))
    wrong = sum(np.count_nonzero(found(keys, drawn(made_for, seed=200 + step))) for step in range(5))
    told = keys.statistics()
    assert (0, True) == (wrong, told["rolled_over"] > 1)
    return told["filter_false"] / (told["filter_false"] + told["filter_denied"]), most / 10 / made_for


def test_a_filter_that_gets_ten_times_the_keys_it_was_made_for_becomes_larger(small):
    rate, _ = ten_times_as_many(MemoryFiles(), 10_000)
    assert rate <= 0.01


def grown(keys, *, batches, count, slots=4_096):
    """Adds keys. Returns the most bytes of the filter at any time, with parts that replace others."""
    most = 0
    for step in range(batches):
        keys.add(*drawn(count, seed=step, slots=slots))
        most = max(most, keys.statistics()["filter_bytes"])
    return most


def settled(keys):
    """Ends the work that waits."""
    for _ in range(10_000):
        keys.add(*drawn(0, seed=0))


def bits_per_key(keys):
    statistics = keys.statistics()
    return statistics["filter_bits"] / statistics["filter_keys"]


@pytest.mark.parametrize("slots", [1, 4_096])
def test_a_filter_grows_to_most_of_its_memory_and_never_exceeds_it(small, slots):
    """At the end it has 12 bits a key and 1.8 bytes of memory a key. A second filter would exceed this memory."""
    keys = spilled(MemoryFiles(), bytes_max=720_000)
    most = grown(keys, batches=100, count=4_000, slots=slots)
    settled(keys)
    told = keys.statistics()
    assert most <= 720_000 * 59 // 64
    assert (400_000, True) == (told["filter_keys"], told["filter_parts"] > 50)
    assert bits_per_key(keys) >= 12
    assert told["filter_bytes"] > 720_000 * 5 // 6
    assert all(found(keys, drawn(4_000, seed=step, slots=slots)).all() for step in range(100))
    assert not found(keys, drawn(100_000, seed=999, slots=slots)).any()
    after = keys.statistics()
    assert (after["filter_false"], after["filter_denied"]) < (100_000 * 0.006, 100_000)


def test_a_lower_limit_makes_the_filter_smaller_part_by_part(small):
    keys = spilled(MemoryFiles(), bytes_max=720_000)
    grown(keys, batches=50, count=4_000)
    keys.bytes_max = 300_000
    settled(keys)
    told = keys.statistics()
    assert told["filter_bytes"] <= 300_000 * 29 // 32
    assert told["filter_bytes"] > 300_000 // 2
    assert all(found(keys, drawn(4_000, seed=step)).all() for step in range(50))
    assert not found(keys, drawn(10_000, seed=999)).any()


def test_a_full_part_gets_the_bits_that_others_do_not_need(small):
    """First all keys are in low slots, then all are in high ones, as if a crawl went from domain to domain."""
    keys = spilled(MemoryFiles(), bytes_max=360_000)
    grown(keys, batches=40, count=2_500)
    high = [(slots // 2 + np.uint16(2_048), prints) for slots, prints in (drawn(2_500, seed=s) for s in range(50, 90))]
    for one in high:
        keys.add(*one)
        assert keys.statistics()["filter_bytes"] <= 360_000 * 59 // 64
    settled(keys)
    told = keys.statistics()
    assert told["filter_bytes"] > 360_000 * 5 // 6
    assert not found(keys, tuple(column[::2] for column in drawn(40_000, seed=999))).any()
    after = keys.statistics()
    assert after["filter_false"] - told["filter_false"] < 20_000 * 0.006
    assert all(found(keys, one).all() for one in high)


def test_a_write_that_is_tried_again_counts_its_keys_once(small):
    files = FaultyFiles()
    keys = spilled(files, keys=drawn(3_000, seed=0), bytes_max=720_000)
    for step in range(1, 10):
        files.capacity_bytes = files.used_bytes() + 2 * PAGE_BYTES
        keys.add(*drawn(1_000, seed=step))
    files.capacity_bytes = None
    for step in range(10, 20):
        keys.add(*drawn(1_000, seed=step))
    settled(keys)
    told = keys.statistics()
    assert sum(map(len, keys.runs)) == told["filter_keys"] > 0


def test_a_part_of_the_filter_that_fails_to_be_filled_stays(small):
    files = MemoryFiles()
    keys = spilled(files, keys=drawn(3_000, seed=0), bytes_max=10**6)
    for step in range(1, 10):
        keys.add(*drawn(1_000, seed=step))
    before = keys.statistics()["filter_parts"]
    for name in files.names():
        files.open(name).write_at(77, b"damaged")
    for step in range(10, 60):
        keys.add(*drawn(1_000, seed=step))
    after = keys.statistics()
    assert before == after["filter_parts"]
    assert after["filter_bytes"] * 8 == after["filter_bits"]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_filter_made_for_a_million_keys_gets_ten_million(tmp_path):
    rate, per_key = ten_times_as_many(Directory(tmp_path), 1_000_000)
    assert rate <= 0.01
    assert per_key <= 6, "the limit, also while a larger filter is filled"


def test_a_damaged_page_is_named_with_file_and_byte(small):
    files = MemoryFiles()
    keys = spilled(files, keys=drawn(3_000, seed=0))
    for step in range(1, 3):
        keys.add(*drawn(1_000, seed=step))
    name = files.names()[0]
    file = files.open(name)
    file.write_at(PAGE_BYTES + 77, bytes([file.read_at(PAGE_BYTES + 77, 1)[0] ^ 1]))
    with pytest.raises(DamagedStoreError, match=f"{name} at byte {PAGE_BYTES}: a page of seen keys fails its checksum"):
        keys.check(*drawn(3_000, seed=0))
    assert [True] == [f"{name} at byte {PAGE_BYTES}: a page" in told for told in keys.check_files()]
    for step in range(3, 60):
        keys.add(*drawn(1_000, seed=step))  # merges of the damaged run are given up, and additions go on
    assert found(keys, drawn(1_000, seed=59)).all()


def test_a_seen_set_moves_its_largest_sets_to_disk(small, monkeypatch):
    files = MemoryFiles()
    seen = SeenSet(scratch=files, bytes_max=600_000)
    heads = np.zeros(60_000, HEAD)
    heads["slot"], heads["fingerprint"] = drawn(60_000, seed=1)
    heads["crawl"][50_000:] = 1
    for first in range(0, 60_000, 1_000):
        seen.add(heads[first : first + 1_000])
    assert isinstance(seen.of_crawls[0], SpilledKeys)
    assert seen.check(heads["crawl"], heads["slot"], heads["fingerprint"]).all()
    assert not seen.check(heads["crawl"] + 1, heads["slot"], heads["fingerprint"])[:50_000].any()
    told = seen.statistics()
    assert told["disk_bytes"] > 0 < told["filter_bits"]
    seen.drop(0)
    assert not seen.check(heads["crawl"], heads["slot"], heads["fingerprint"])[:50_000].any()
    seen.close()
    assert [] == files.names()


def test_a_frontier_whose_keys_are_on_disk_knows_each_url(monkeypatch):
    keys_go_to_disk(monkeypatch)
    world = World(delay=0)
    urls = [f"http://h{number % 7}.com/{number}" for number in range(300)]
    for first in range(0, 300, 10):
        assert ["new"] * 10 == [str(code) for code in world.discover(*urls[first : first + 10])]
        assert {"known"} == {str(code) for code in world.discover(*urls[: first + 10])}
    assert world.frontier.statistics()["structures"]["seen"]["runs"]
    world.frontier.checkpoint()
    world.reopen()
    assert {"known"} == {str(code) for code in world.discover(*urls)}
    assert ["new"] == [str(code) for code in world.discover("http://h1.com/new")]
    world.discover(*[f"http://h1.com/newer{number}" for number in range(300)])
    assert world.frontier.statistics()["structures"]["seen"]["runs"]
    assert {"known"} == {str(code) for code in world.discover(*urls)}
    assert [] == recount(world.frontier)


def test_a_size_of_memory_is_read_with_its_unit_and_bounded():
    sizes = {"64M": 64 << 20, "2g": 2 << 30, "2GiB": 2 << 30, "100000000": 10**8, "1T": 1 << 40, 1 << 30: 1 << 30}
    assert list(sizes.values()) == [CrawlOptions(memory_bytes=size).memory_bytes for size in sizes]
    for size in ("63M", "1", "", "2X", "1.5G", "-1G", 0, True, None, "99999T"):
        with pytest.raises(SettingsError, match=r"memory.*at least 64M"):
            CrawlOptions(memory_bytes=size)


def test_statistics_name_the_memory_of_each_part():
    world = World(memory_bytes=10**8)
    world.discover("http://a.com/")
    told = world.frontier.statistics()["memory"]
    assert {"seen", "cards", "hosts", "ledger", "robots"} == set(told["parts"])
    assert (10**8, sum(told["parts"].values())) == (told["limit"], told["bytes"])


def test_a_lower_limit_at_a_restart_moves_keys_to_disk(monkeypatch):
    set_limits(monkeypatch, SEEN_FRESH_KEYS_MIN=100)
    world = World(delay=0)
    urls = [f"http://h{number % 7}.com/{number}" for number in range(500)]
    world.discover(*urls)
    assert 0 == world.frontier.statistics()["structures"]["seen"]["runs"]
    world.reopen(memory_bytes=1)
    world.inspect().core.recent.forget()
    assert {"known"} == {str(code) for code in world.discover(*urls)}
    world.discover(*[f"http://h1.com/newer{number}" for number in range(300)])
    assert world.frontier.statistics()["structures"]["seen"]["runs"]
    world.inspect().core.recent.forget()
    assert {"known"} == {str(code) for code in world.discover(*urls)}
    assert [] == recount(world.frontier)
    assert [name for name in world.disk.names() if name.startswith("seen-")]
    world.frontier.close()
    assert [] == [name for name in world.disk.names() if name.startswith("seen-")]


def test_files_of_keys_that_a_crash_left_are_removed(monkeypatch):
    keys_go_to_disk(monkeypatch)
    world = World(delay=0)
    urls = [f"http://h{number % 7}.com/{number}" for number in range(100)]
    for url in urls:
        world.discover(url)
    before = [name for name in world.disk.names() if name.startswith("seen-")]
    world.kill()
    assert before
    assert {"known"} == {str(code) for code in world.discover(*urls)}
    world.frontier.close()
    assert [] == [name for name in world.disk.names() if name.startswith("seen-")]


def test_a_damaged_file_of_keys_stops_the_store_and_the_next_opening_makes_it_anew(monkeypatch):
    keys_go_to_disk(monkeypatch)
    world = World(delay=0)
    urls = [f"http://h{number % 7}.com/{number}" for number in range(100)]
    for url in urls:
        world.discover(url)
    for name in world.disk.names():
        if name.startswith("seen-"):
            world.disk.open(name).write_at(100, b"damaged")
    with pytest.raises(DamagedStoreError, match=r"seen-.*\.tail at byte 0: a page of seen keys fails its checksum"):
        world.discover(*urls)
    world.kill()
    assert {"known"} == {str(code) for code in world.discover(*urls)}
    assert [] == recount(world.frontier)


def test_repair_of_a_store_with_damaged_files_of_keys_makes_them_anew(monkeypatch, tmp_path):
    """After a crash they are no part of the store: the ledger has all that is in them."""
    keys_go_to_disk(monkeypatch)
    store, urls = tmp_path / "store", [f"http://h{number % 7}.com/{number}" for number in range(60)]
    with Frontier.open(store, robots="caller") as frontier:
        for url in urls:
            frontier.discover([url])
        left = {path.name: path.read_bytes() for path in store.glob("seen-*.tail")}
    assert left
    for name, data in left.items():
        (store / name).write_bytes(data[:100] + b"damaged" + data[107:])
    assert (True, (), True) == (verify(str(store)).ok, repair(str(store)).losses, verify(str(store)).ok)
    with Frontier.open(store, robots="caller") as frontier:
        assert {"known"} == {str(code) for url in urls for code in frontier.discover([url])}
        frontier.discover([f"http://h1.com/newer{number}" for number in range(60)])
        assert frontier.statistics()["structures"]["seen"]["runs"]
        assert not any(b"damaged" in path.read_bytes() for path in store.glob("seen-*.tail"))


def test_a_server_shows_the_rate_of_the_filter_once_there_is_one(monkeypatch):
    keys_go_to_disk(monkeypatch)
    served = Served()
    name = b"outrider_bloom_false_positive_observed_rate"
    assert name not in served.answer("GET", "/metrics")
    served.add(*[f"http://h{number}.com/" for number in range(10)])
    served.desk._counted = None
    assert name in served.answer("GET", "/metrics")
