"""Keys compared in batches: every part with the operations of DRUM answers as a dictionary does, with both kernels."""

from __future__ import annotations

import numpy as np
import pytest

from contract.kinds import NATIVE, WITHOUT_NATIVE
from outrider import kernels
from outrider.errors import DamagedStoreError, SettingsError, StoreFullError
from outrider.kernels import key_requests
from outrider.sim.disk import FaultyFiles
from outrider.storage.drum import Drum, Operation
from outrider.storage.memory import MemoryFiles

PAYLOAD = np.dtype((np.void, 12))


@pytest.fixture(autouse=True, params=["python", pytest.param("native", marks=WITHOUT_NATIVE)])
def _kind(request, monkeypatch):
    """Every test of a Drum runs with both kernels."""
    kind = key_requests if request.param == "python" else NATIVE
    monkeypatch.setattr(kernels, "answer_requests", kind.answer_requests)


def made(files=None, **how):
    return Drum(
        files if files is not None else MemoryFiles(),
        **{"memory_bytes": 64 << 10, "payload_bytes": 12, "buffer_bytes": 1_024, "merges_per_rewrite": 3, **how},
    )


class Oracle:
    """Answers at once, by a dictionary."""

    def __init__(self):
        self.values = {}
        self.asked = []

    def add(self, operation, keys, values, payloads):
        self.asked += [(operation, *row) for row in zip(keys.tolist(), values.tolist(), payloads.tolist(), strict=True)]

    def answers(self):
        found = []
        for operation, key, value, payload in self.asked:
            found.append((key, int(operation), key in self.values, self.values.get(key, 0), payload))
            if operation == Operation.APPEND:
                self.values[key] = (self.values.get(key, 0) + value) % 2**64
            elif operation != Operation.CHECK:
                self.values[key] = value
        self.asked = []
        return found


def drawn(draw, count):
    """Requests: half of the keys are few, so that they repeat; some are the least and the greatest."""
    some = draw.integers(0, 2**64, count, np.uint64)
    few = draw.integers(0, 50, count, np.uint64) * np.uint64(2**64 // 50)
    keys = np.where(draw.random(count) < 0.5, few, some)
    keys[:2] = 0, 2**64 - 1
    payloads = np.frombuffer(draw.bytes(12 * count), PAYLOAD)
    return keys, draw.integers(1, 2**64, count, np.uint64), payloads


def answered(drum):
    """All answers as tuples, and how many batches there were."""
    batches = [
        list(
            zip(
                answers.keys.tolist(),
                answers.operations.tolist(),
                answers.known.tolist(),
                answers.values.tolist(),
                answers.payloads.tolist(),
                strict=True,
            )
        )
        for answers in drum.merge()
    ]
    return [row for batch in batches for row in batch], len(batches)


def by_bucket(rows, buckets):
    """Rows in the order in which buckets answer, each in the order of its requests."""
    return sorted(rows, key=lambda row: row[0] * buckets >> 64)


def asked_of_both(drum, oracle, draw, count=400):
    for operation in draw.permutation(list(Operation)):
        keys, values, payloads = drawn(draw, count)
        drum.add(Operation(operation), keys, values=values, payloads=payloads)
        oracle.add(Operation(operation), keys, values, payloads)


@pytest.mark.parametrize("memory", [8 << 10, 64 << 10])
@pytest.mark.parametrize("calls", [1, 40])
def test_requests_are_answered_in_their_order_as_by_a_dictionary(memory, calls):
    """Small calls are distributed to buckets together, large ones at once."""
    drum, oracle, draw = made(memory_bytes=memory), Oracle(), np.random.default_rng(memory)
    for _ in range(12):
        for _ in range(calls):
            asked_of_both(drum, oracle, draw, 400 // calls)
        assert len(oracle.asked) == drum.waiting
        rows, batches = answered(drum)
        assert by_bucket(oracle.answers(), drum.buckets) == rows
        assert (0, True) == (drum.waiting, batches > 1)
    assert len(drum) >= len(oracle.values)
    drum.close()


def test_keys_without_values_are_known_or_new():
    drum = made(valued=False)
    keys = np.array([5, 9, 5, 2**63], np.uint64)
    drum.add(Operation.CHECK_UPDATE, keys)
    assert [False, False, True, False] == [row[2] for row in answered(drum)[0]]
    drum.add(Operation.CHECK, np.array([9, 10], np.uint64))
    assert [True, False] == [row[2] for row in answered(drum)[0]]
    with pytest.raises(ValueError, match="valued=True"):
        drum.add(Operation.UPDATE, keys, values=keys)


def test_full_buckets_ask_for_a_merge_and_files_are_removed():
    files = MemoryFiles()
    drum, draw = made(files, memory_bytes=8 << 10), np.random.default_rng(1)
    while not drum.is_full:
        drum.add(Operation.UPDATE, *drawn(draw, 50)[:1])
    assert drum.waiting > 100
    answered(drum)
    assert (False, 1) == (drum.is_full, len(files.names()))
    drum.close()
    assert [] == files.names()


def test_a_merge_that_is_not_finished_changes_nothing_and_is_made_again():
    drum, oracle, draw = made(), Oracle(), np.random.default_rng(2)
    asked_of_both(drum, oracle, draw)
    answered(drum)
    oracle.answers()
    asked_of_both(drum, oracle, draw)
    begun = drum.merge()
    next(begun)
    with pytest.raises(ValueError, match="while a merge goes on"):
        drum.add(Operation.CHECK, np.zeros(1, np.uint64))
    begun.close()
    assert by_bucket(oracle.answers(), drum.buckets) == answered(drum)[0]


def test_a_merge_without_room_is_made_again_when_there_is_room():
    files = FaultyFiles()
    drum, oracle, draw = made(files), Oracle(), np.random.default_rng(3)
    for _ in range(5):
        asked_of_both(drum, oracle, draw)
        files.capacity_bytes = files.used_bytes() + 5_000
        with pytest.raises(StoreFullError):
            answered(drum)
        files.capacity_bytes = None
        assert by_bucket(oracle.answers(), drum.buckets) == answered(drum)[0]


def test_requests_that_the_disk_has_no_room_for_are_not_lost():
    files = FaultyFiles()
    drum, oracle, draw = made(files), Oracle(), np.random.default_rng(7)
    files.capacity_bytes = files.used_bytes()
    for _ in range(3):
        keys, values, payloads = drawn(draw, 4_000)
        with pytest.raises(StoreFullError):
            drum.add(Operation.UPDATE, keys, values=values, payloads=payloads)
        oracle.add(Operation.UPDATE, keys, values, payloads)
    files.capacity_bytes = None
    assert drum.waiting == len(oracle.asked)
    assert by_bucket(oracle.answers(), drum.buckets) == answered(drum)[0]


def test_a_file_that_is_too_short_is_named_with_its_byte():
    files = MemoryFiles()
    drum, draw = made(files), np.random.default_rng(4)
    drum.add(Operation.UPDATE, *drawn(draw, 2_000)[:1])
    answered(drum)
    (name,) = files.names()
    files.open(name).truncate(100)
    with pytest.raises(DamagedStoreError, match=f"{name} at byte 100: the file ends there"):
        answered(drum)


@pytest.mark.parametrize("file", ["run", "bucket"])
@pytest.mark.parametrize("at", [0, 4, 9, -1])
def test_a_damaged_block_is_named_with_its_byte(file, at):
    files = MemoryFiles()
    drum, draw = made(files, memory_bytes=8 << 10), np.random.default_rng(6)
    drum.add(Operation.UPDATE, *drawn(draw, 2_000)[:1])
    answered(drum)
    drum.add(Operation.UPDATE, *drawn(draw, 2_000)[:1])
    name = next(name for name in files.names() if file in name)
    damaged = files.open(name)
    at %= damaged.size()
    old = damaged.read_at(at, 1)
    damaged.write_at(at, bytes([old[0] ^ 1]))
    with pytest.raises(DamagedStoreError, match=rf"{name} at byte \d+: a block fails its checksum"):
        answered(drum)
    damaged.write_at(at, old)
    assert 2_000 == len(answered(drum)[0])


def test_blocks_that_changed_places_are_noticed():
    files = MemoryFiles()
    drum = made(files, memory_bytes=1 << 20)
    drum.add(Operation.UPDATE, np.arange(20_000, dtype=np.uint64) << np.uint64(48))
    answered(drum)
    (name,) = files.names()
    file, size = files.open(name), 8 + (64 << 10)
    first, second = file.read_at(0, size), file.read_at(size, size)
    file.write_at(0, second + first)
    with pytest.raises(DamagedStoreError, match=f"{name} at byte 0: a block fails its checksum"):
        answered(drum)


def test_values_are_appended_to_those_of_their_keys():
    drum, key = made(), np.array([7], np.uint64)
    for operation, value in ((Operation.APPEND, 5), (Operation.APPEND, 2**64 - 1), (Operation.CHECK, 9)):
        drum.add(operation, key, values=np.array([value], np.uint64))
    assert [(False, 0), (True, 5), (True, 4)] == [row[2:4] for row in answered(drum)[0]]
    drum.add(Operation.APPEND, key, values=key)
    drum.add(Operation.CHECK, key)
    assert [(True, 4), (True, 11)] == [row[2:4] for row in answered(drum)[0]]


def test_files_of_a_dead_process_are_removed():
    files = MemoryFiles()
    made(files).add(Operation.UPDATE, *drawn(np.random.default_rng(5), 5_000)[:1])
    assert files.names()
    drum = made(files)
    assert ([], []) == (files.names(), answered(drum)[0])


@pytest.mark.parametrize(
    ("how", "named"),
    [
        ({"payload_bytes": -1}, "payload_bytes"),
        ({"payload_bytes": 1 << 30}, "payload_bytes"),
        ({"memory_bytes": 4_096}, "memory_bytes"),
        ({"buffer_bytes": 10}, "buffer_bytes"),
        ({"merges_per_rewrite": 0}, "merges_per_rewrite"),
    ],
)
def test_sizes_that_cannot_work_are_refused(how, named):
    with pytest.raises(SettingsError, match=named):
        made(**how)
