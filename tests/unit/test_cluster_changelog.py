"""What counts in the changelog of a partition, record by record."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from outrider.cluster.changelog import OwnersChangelog
from outrider.cluster.counting import Counting, crc_of, read_all
from outrider.cluster.owning import Owned, Partition, claim, make_ready, open_store
from outrider.cluster.records import Claim, End, Frames, Heartbeat, in_records, packed, unpacked
from outrider.cluster.snapshots import Snapshot, SnapshotFile, download, newest_snapshot
from outrider.errors import (
    ClaimLostError,
    ClaimRefusedError,
    DamagedStoreError,
    ForeignStoreError,
    SettingsError,
    StoreFailedError,
    UnreachableError,
)
from outrider.journey import Code
from outrider.kernels import crc32c, pack_frames
from outrider.limits import CHANGELOG_RECORD_BYTES_MAX, MICROSECONDS
from outrider.sim.disk import FaultyFiles
from outrider.sim.topic import Faults, FaultyTopic, MemoryObjects, NodesTopic

PART = Partition(3, 8, b"c" * 16, (bytes(16), bytes(range(16))), "2026-01-01T00:00:00Z")


def frame(lsn: int, payload: bytes = b"x", epoch: int = 1) -> bytes:
    return pack_frames([(lsn, lsn - 1, epoch, 1, 1, 0, payload)])


def frames(epoch: int, *lsns: int) -> bytes:
    return packed(Frames(epoch, lsns[0], 0, True, b"".join(frame(lsn, epoch=epoch) for lsn in lsns)))


def claimed(epoch: int, lsn: int, offset: int, mark: str = "m") -> bytes:
    return packed(Claim(epoch, lsn, offset, PART.store, "n", mark))


def counted(*records: bytes) -> Counting:
    counting = Counting()
    for offset, record in enumerate(records):
        counting.take(offset, record)
    return counting


QUIET = Faults()


class World:
    """A topic and a clock."""

    def __init__(self, faults: Faults = QUIET) -> None:
        self.topic = FaultyTopic(random.Random(1), faults)
        self.now = 0
        self.reaches = True
        self.pauses = 0

    def seen(self) -> NodesTopic:
        return self.topic.seen_by(lambda: None, lambda: self.reaches)

    def pause(self) -> None:
        self.pauses += 1
        self.now += MICROSECONDS
        assert self.pauses < 1_000

    def owner(self, tenure: float = 10.0) -> OwnersChangelog:
        found = claim(self.seen(), PART, None, node="n", mark=f"{self.now} {len(self.topic.records)}", pause=self.pause)
        return OwnersChangelog(
            self.seen(), found.base, found.after, tenure_seconds=tenure, elapsed=lambda: self.now, pause=self.pause
        )


# -- records -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "record",
    [Claim(2, 5, 9, PART.store, "n", "m", "http://a"), Frames(3, 4, 1, False, b"abc"), Heartbeat(1, 7), End(1, 7)],
)
def test_a_record_is_read_as_it_was_written_and_every_flipped_bit_is_seen(record: object) -> None:
    octets = packed(record)  # type: ignore[arg-type]
    assert record == unpacked(octets)
    for bit in range(8 * len(octets)):
        flipped = bytearray(octets)
        flipped[bit // 8] ^= 1 << bit % 8
        assert unpacked(bytes(flipped)) is None
    for length in range(len(octets)):
        assert unpacked(octets[:length]) is None


def test_a_record_of_a_newer_version_is_refused() -> None:
    octets = bytearray(packed(Heartbeat(1, 1)))
    octets[2] = 2
    octets[-4:] = crc32c(bytes(octets[:-4])).to_bytes(4, "little")
    with pytest.raises(ForeignStoreError, match="newer"):
        unpacked(bytes(octets))


def test_frames_share_records_up_to_their_size_and_larger_frames_are_cut() -> None:
    given = [
        (lsn, frame(lsn, bytes(size))) for lsn, size in enumerate([10, 400_000, 400_000, 400_000, 2_500_000, 5], 1)
    ]
    records = list(in_records(1, given))
    assert all(len(packed(record)) <= CHANGELOG_RECORD_BYTES_MAX for record, _ in records)
    assert [(1, 0, 3), (4, 0, 4), (5, 0, 4), (5, 1, 4), (5, 2, 5), (6, 0, 6)] == [
        (record.lsn, record.part, whole) for record, whole in records
    ]
    counting = counted(claimed(1, 1, 0))
    parts = [counting.take(offset, packed(record)) for offset, (record, _) in enumerate(records, 1)]
    assert b"".join(parts) == b"".join(octets for _, octets in given)


# -- what counts -------------------------------------------------------------------------------------------------------


def test_frames_count_in_the_order_of_their_lsns_each_once() -> None:
    counting = counted(claimed(1, 1, 0), frames(1, 1, 2), frames(1, 2, 3), frames(1, 1), frames(1, 4))
    assert (1, 4, crc_of(frame(4))) == (counting.epoch, counting.lsn, counting.crc)


def test_a_missing_frame_is_damage() -> None:
    with pytest.raises(DamagedStoreError, match="LSN 3 after LSN 1"):
        counted(claimed(1, 1, 0), frames(1, 1), frames(1, 3))


def test_a_missing_part_of_a_frame_is_damage() -> None:
    with pytest.raises(DamagedStoreError, match="a frame is missing"):
        counted(claimed(1, 1, 0), packed(Frames(1, 1, 1, True, b"x")))


@pytest.mark.parametrize(
    "second",
    [
        claimed(2, 2, 3),  # something was appended after the end that it had read
        claimed(3, 2, 2),  # not the next epoch
        claimed(2, 3, 2),  # not the next LSN
        claimed(1, 2, 2),
        b"",
        b"from another program",
        frames(2, 2),
        packed(End(2, 1)),
    ],
)
def test_a_record_that_does_not_count_changes_nothing(second: bytes) -> None:
    counting = counted(claimed(1, 1, 0), frames(1, 1), second, frames(1, 2))
    assert (1, 2, 1, False) == (counting.epoch, counting.lsn, counting.skipped, counting.closed)


def test_of_two_claims_at_once_the_first_counts() -> None:
    counting = counted(claimed(1, 1, 0), frames(1, 1), claimed(2, 2, 2, "a"), claimed(2, 2, 2, "b"), frames(2, 2))
    assert counting.claim is not None
    assert ("a", 2) == (counting.claim.mark, counting.lsn)


def test_frames_of_an_earlier_owner_do_not_count_after_a_claim() -> None:
    late = frames(1, 2)
    counting = counted(claimed(1, 1, 0), frames(1, 1), claimed(2, 2, 2), late, frames(2, 2))
    assert (2, crc_of(frame(2, epoch=2)), 1) == (counting.lsn, counting.crc, counting.skipped)


def test_the_end_of_an_owner_is_noted_and_a_late_repetition_after_it_is_skipped() -> None:
    counting = counted(claimed(1, 1, 0), frames(1, 1), packed(End(1, 1)), frames(1, 1))
    assert counting.closed
    assert not counted(claimed(1, 1, 0), packed(End(1, 1)), claimed(2, 1, 2)).closed


def test_half_a_frame_of_an_owner_that_died_is_forgotten() -> None:
    half = packed(Frames(1, 2, 0, False, frame(2, bytes(100))[:60]))
    counting = counted(claimed(1, 1, 0), frames(1, 1), half, claimed(2, 2, 3), frames(2, 2))
    assert 2 == counting.lsn


# -- the owner ---------------------------------------------------------------------------------------------------------


def test_nobody_may_request_before_a_first_append_counts_nor_after_the_tenure() -> None:
    world = World()
    owner = world.owner(tenure=10.0)
    assert not owner.may_request()
    owner.append(1, frame(1))
    owner.wait(1)
    world.now += 10 * MICROSECONDS - 1
    assert owner.may_request()
    world.now += 1
    assert not owner.may_request()
    owner.keep()
    assert owner.may_request()


def test_the_tenure_begins_before_the_append_not_with_its_answer() -> None:
    world = World()
    owner = world.owner(tenure=10.0)
    owner.append(1, frame(1))
    owner.begin(1)
    world.now += 9 * MICROSECONDS
    owner.wait(1)
    world.now += MICROSECONDS
    assert not owner.may_request()


def test_an_owner_learns_of_another_claim_and_its_frames_do_not_count() -> None:
    world = World()
    first = world.owner()
    first.append(1, frame(1))
    first.wait(1)
    second = world.owner()
    first.append(2, frame(2))
    with pytest.raises(ClaimLostError, match="epoch 2"):
        first.wait(2)
    assert not first.may_request()
    for call in (first.keep, lambda: first.wait(1)):
        with pytest.raises(ClaimLostError):
            call()
    second.append(2, frame(2, b"other", 2))
    second.wait(2)
    counting = Counting()
    read_all(world.seen(), counting)
    assert (2, crc_of(frame(2, b"other", 2))) == (counting.lsn, counting.crc)


def test_after_a_lost_claim_an_owner_knows_which_of_its_frames_count() -> None:
    world = World()
    first = world.owner()
    first.append(1, frame(1))
    first.begin(1)
    assert first.counts(1) is None
    second = world.owner()
    second.append(2, frame(2, b"other", 2))
    second.wait(2)
    world.topic._faults = Faults(unknown=1.0)  # the answer for the first frame is lost
    with pytest.raises(ClaimLostError):
        first.wait(1)
    assert [True, False] == [first.counts(lsn) for lsn in (1, 2)]


def test_a_brokers_absence_only_delays_an_append() -> None:
    world = World()
    owner = world.owner()
    world.reaches = False
    owner.append(1, frame(1))
    ends = world.now + 30 * MICROSECONDS
    pauses = world.pause

    def heals() -> None:
        pauses()
        world.reaches = world.now >= ends

    owner._pause = heals
    owner.wait(1)
    assert world.now >= ends
    assert 1 == owner.lsn


def test_a_wait_for_an_absent_broker_ends_when_the_process_does() -> None:
    world = World()
    owner = world.owner()
    world.reaches = False
    owner.append(1, frame(1))
    owner._pause = owner.abandon
    with pytest.raises(StoreFailedError, match="reached"):
        owner.wait(1)


@pytest.mark.parametrize("seed", range(20))
def test_all_frames_count_whatever_happens_to_records(seed: int) -> None:
    world = World(Faults(lost=0.2, unknown=0.2, late=0.2, twice=0.2))
    world.topic._chance = chance = random.Random(seed)
    owner = world.owner()
    sent = []
    for lsn in range(1, 60):
        sent.append(frame(lsn, bytes(2_000_000 if chance.random() < 0.05 else 10)))
        owner.append(lsn, sent[-1])
        if chance.random() < 0.3:
            owner.wait(lsn)
        if chance.random() < 0.1:
            owner.keep()
    owner.end()
    counting, found = Counting(), []
    for offset, record in enumerate(world.topic.records):
        found.append(counting.take(offset, record))
    assert b"".join(sent) == b"".join(found)
    assert counting.closed


def test_a_reader_may_begin_at_each_mark() -> None:
    world = World()
    owner = world.owner()
    for lsn in range(1, 1_000):
        owner.append(lsn, frame(lsn))
        owner.wait(lsn)
        if not lsn % 100:
            mark = owner.mark(lsn)
            assert lsn - 70 < mark.lsn <= lsn
            read_all(world.seen(), mark)
            assert lsn == mark.lsn


# -- claims and directories --------------------------------------------------------------------------------------------


def test_a_claim_after_which_another_came_first_is_refused() -> None:
    world = World()
    calls = iter([lambda: world.topic.add(claimed(1, 1, 0, "other"))])
    topic = world.topic.seen_by(lambda: next(calls, lambda: None)(), lambda: True)
    send, records = topic.send, world.topic.records

    def comes_late(record: bytes) -> object:
        sent = send(record)
        records.remove(record)  # it comes after the other one
        world.topic.add(claimed(1, 1, 0, "other"))
        world.topic.add(record)
        return sent

    topic.send = comes_late  # type: ignore[method-assign, assignment]
    with pytest.raises(ClaimRefusedError, match="partition 3"):
        claim(topic, PART, None, node="n", mark="mine", pause=world.pause)


def test_the_changelog_of_another_cluster_of_the_same_name_is_refused_and_not_claimed() -> None:
    world = World()
    other = replace(PART, cluster=b"d" * 16)
    claim(world.seen(), other, None, node="n", mark="m", pause=world.pause)
    before = list(world.topic.records)
    with pytest.raises(SettingsError, match=r"records of another cluster .* with another name"):
        claim(world.seen(), PART, None, node="n", mark="m", pause=world.pause)
    assert before == world.topic.records


def test_a_topic_that_was_made_anew_after_a_snapshot_is_refused() -> None:
    world = World()
    snapshot = Snapshot(5, position=7, epoch=2, lsn=5, crc=1, closed=True, files=[])
    with pytest.raises(SettingsError, match="ends at offset 0, but the newest snapshot is of offset 7"):
        claim(world.seen(), PART, snapshot, node="n", mark="m", pause=world.pause)


def test_a_directory_of_another_store_is_left_alone() -> None:
    world = World()
    found = claim(world.seen(), PART, None, node="n", mark="m", pause=world.pause)
    for name in ("file of mine", "manifest.json"):
        files = FaultyFiles()
        files.put(name, b"mine")
        with pytest.raises((ForeignStoreError, DamagedStoreError)):
            make_ready(files, PART, found, world.seen(), MemoryObjects())
        assert b"mine" == files.contents()[name]


def test_the_manifest_and_slots_of_a_partition_are_the_same_on_each_node() -> None:
    assert frozenset(range(1_536, 2_048)) == PART.slots
    assert PART.manifest() == Partition(3, 8, b"c" * 16, PART.keys, PART.created).manifest()
    assert PART.store != Partition(4, 8, b"c" * 16, PART.keys, PART.created).store


def test_a_snapshot_with_a_missing_or_changed_object_is_damaged() -> None:
    objects = MemoryObjects()
    listed = SnapshotFile("run-1.run", "files/a", 3, crc32c(b"abc"))
    snapshot = Snapshot(1, 0, 0, 0, 0, False, [listed])
    with pytest.raises(DamagedStoreError, match="missing"):
        download(FaultyFiles(), objects, snapshot)
    objects.put("files/a", [b"abx"])
    with pytest.raises(DamagedStoreError, match="differs"):
        download(FaultyFiles(), objects, snapshot)
    objects.put("files/a", [b"ab", b"c"])
    files = FaultyFiles()
    download(files, objects, snapshot)
    assert b"abc" == files.contents()["run-1.run"]


def test_a_list_that_cannot_be_read_is_damaged_and_an_absent_store_of_objects_says_so() -> None:
    objects = MemoryObjects()
    assert newest_snapshot(objects) is None
    objects.put("snapshots/1.json", [b"{"])
    with pytest.raises(DamagedStoreError, match="not a list"):
        newest_snapshot(objects)
    with pytest.raises(UnreachableError):
        newest_snapshot(MemoryObjects(lambda: False))


def test_a_directory_whose_last_frame_has_the_right_lsn_but_does_not_count_is_made_anew() -> None:
    world, objects, files = World(), MemoryObjects(), [FaultyFiles(), FaultyFiles()]

    def opened(place: int, mark: str) -> tuple[Owned, bool]:
        topic = world.seen()
        found = claim(topic, PART, None, node=f"n{place}", mark=mark, pause=world.pause)
        made = make_ready(files[place], PART, found, topic, objects)
        owned = open_store(
            files[place],
            found,
            topic,
            tenure_seconds=10,
            elapsed=lambda: world.now,
            pause=lambda: cut(),
            robots="caller",
        )
        return owned, made

    urls = [f"http://s{number}.test/" for number in range(64)]
    first, made = opened(0, "1")
    assert made
    first.frontier.discover(urls[:32])

    def cut() -> None:
        first.changelog.abandon()

    world.reaches = False
    with pytest.raises(StoreFailedError):
        first.frontier.discover(urls[32:])  # its frame is in its log, but not in the changelog
    first.drop()
    world.reaches = True
    second, made = opened(1, "2")
    assert made
    uncounted = first.changelog.lsn + 1
    assert uncounted == second.changelog.lsn
    third, made = opened(0, "3")
    assert made
    accepted = third.frontier.discover(urls[32:])
    assert accepted.count(Code.NEW) > 0  # the frame that did not count is forgotten
    assert third.frontier.verify().ok
    third.give_up()
    fourth, made = opened(0, "4")
    assert not made
    assert 0 == fourth.frontier.discover(urls).count(Code.NEW)
    fourth.give_up()
