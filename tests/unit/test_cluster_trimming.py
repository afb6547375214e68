"""Old records of a changelog are deleted one snapshot late, and a claim by a snapshot that is too old begins again."""

from __future__ import annotations

import contextlib
import json
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from outrider.cluster.snapshots import delete_old, newest_snapshot
from outrider.crawl.output.cluster_objects import ClusterObjects
from outrider.errors import ClaimRefusedError, DamagedStoreError, SettingsError, UnreachableError
from outrider.sim.topic import MemoryObjects
from unit.cluster_partition import OnePartition, TrimmedTopic


def check_takeover(folder, topic, objects, *, accepted):
    """Another node takes the partition over, and finds all of its URLs."""
    again = OnePartition(folder, topic, objects).open()
    assert accepted == again.frontier.statistics()["accepted"]
    assert again.frontier.verify().ok
    again.owned.give_up()


def add_pages_and_upload(one, store, round_, *, records=1):
    """records: in the changelog; a reader may begin at each 64th."""
    for first in range(records):
        store.frontier.discover([f"http://site{number}.test/{round_}" for number in range(first, 80, records)])
    store.frontier.checkpoint()
    one.node._snapshots.upload(store)


def test_records_before_the_snapshot_before_the_newest_are_deleted_and_a_claim_needs_no_more(tmp_path):
    topic, objects = TrimmedTopic(), MemoryObjects()
    first = OnePartition(tmp_path / "first", topic, objects)
    store = first.open()
    for round_ in range(3):
        add_pages_and_upload(first, store, round_, records=80)
        first.node._snapshots.upload(store)  # nothing new
    assert 2 == len(first.trimmed)
    assert sorted(set(first.trimmed)) == first.trimmed
    assert first.trimmed[-1] > 0
    store.owned.give_up()
    check_takeover(tmp_path / "again", topic, objects, accepted=240)


def test_lines_that_are_not_sealed_outlive_a_snapshot_and_the_disk(tmp_path):
    topic, objects = TrimmedTopic(), MemoryObjects()
    first = OnePartition(tmp_path / "first", topic, objects)
    store = first.open(output=True)
    store.frontier.discover([f"http://site{number}.test/" for number in range(20)])
    for lease in store.frontier.lease(20):
        store.frontier.report([replace(lease.done(seconds=0.0), line=b'{"n":1}')])
    add_pages_and_upload(first, store, 1)
    lines = list(store.frontier.lines("pages", 0))
    assert 20 == len(lines)
    assert newest_snapshot(objects) is not None
    store.owned.give_up()
    again = OnePartition(tmp_path / "again", topic, objects).open(output=True)
    assert lines == list(again.frontier.lines("pages", 0))
    again.owned.give_up()


def test_a_claim_that_was_paused_over_two_snapshots_begins_again(tmp_path):
    topic, objects = TrimmedTopic(), MemoryObjects()
    first = OnePartition(tmp_path / "first", topic, objects)
    store = first.open()
    add_pages_and_upload(first, store, 0)
    old = dict(objects.content)
    for round_ in (1, 2):
        add_pages_and_upload(first, store, round_)

    whole, objects.content = objects.content, old

    def wakes(offset):
        objects.content = whole
        raise DamagedStoreError("dropped")

    late = OnePartition(tmp_path / "late", SimpleNamespace(send=topic.send, read=wakes), objects)
    with pytest.raises(ClaimRefusedError, match="old snapshot"):
        late.open()
    damaged = OnePartition(tmp_path / "damaged", SimpleNamespace(send=topic.send, read=wakes), objects)
    with pytest.raises(DamagedStoreError, match="dropped"):
        damaged.open()
    store.owned.drop()


@pytest.fixture(params=["memory", "folder"])
def objects(request, tmp_path):
    """The objects of a partition, in memory or as files."""
    if request.param == "memory":
        return MemoryObjects()
    return ClusterObjects(f"file:{tmp_path / 'objects'}").of_partition("x/0000/")


def needed(objects):
    """The objects of all snapshots that have a list."""
    lists = [json.loads(b"".join(objects.get(name))) for name in objects.names("snapshots/")]
    return {one["object"] for snapshot in lists for one in snapshot["files"]}


def test_the_newest_two_snapshots_keep_their_objects_and_the_others_are_deleted(tmp_path, objects):
    topic = TrimmedTopic()
    one = OnePartition(tmp_path / "one", topic, objects)
    store = one.open()
    uploaded = set()
    for round_ in range(5):
        add_pages_and_upload(one, store, round_)
        uploaded |= set(objects.names("files/"))
        assert min(2, round_ + 1) == len(objects.names("snapshots/"))
        assert needed(objects) == set(objects.names("files/"))
    assert uploaded > needed(objects)
    store.owned.give_up()
    check_takeover(tmp_path / "again", topic, objects, accepted=400)


def test_a_takeover_during_a_deletion_finds_all_objects_and_finishes_it(tmp_path):
    for stop in range(4):
        topic, objects = TrimmedTopic(), MemoryObjects()
        one = OnePartition(tmp_path / f"one{stop}", topic, objects)
        store = one.open()
        for round_ in range(2):
            add_pages_and_upload(one, store, round_)
        left, remove = stop, objects.remove

        def cut(name, remove=remove):
            nonlocal left
            if left < 1:
                raise UnreachableError("the node is killed here")
            left -= 1
            remove(name)

        objects.remove = cut
        with contextlib.suppress(UnreachableError):
            add_pages_and_upload(one, store, 2)
        objects.remove = remove
        store.owned.drop()
        next_ = OnePartition(tmp_path / f"next{stop}", topic, objects)
        owned = next_.open()
        assert 240 == owned.frontier.statistics()["accepted"]
        assert owned.frontier.verify().ok
        add_pages_and_upload(next_, owned, 3)
        assert 2 == len(objects.names("snapshots/"))
        assert needed(objects) == set(objects.names("files/"))
        owned.owned.give_up()


def test_a_claim_whose_snapshot_was_deleted_meanwhile_begins_again(tmp_path):
    topic, objects = TrimmedTopic(), MemoryObjects()
    first = OnePartition(tmp_path / "first", topic, objects)
    store = first.open()
    add_pages_and_upload(first, store, 0)
    get, turns = objects.get, []

    def late(name):
        found = b"".join(get(name))
        if not turns:  # this node was paused after it had read the list
            turns.append(name)
            for round_ in (1, 2, 3):
                add_pages_and_upload(first, store, round_)
        yield found

    objects.get = late
    with pytest.raises(ClaimRefusedError, match="old snapshot"):
        OnePartition(tmp_path / "late", topic, objects).open()
    assert 320 == OnePartition(tmp_path / "again", topic, objects).open().frontier.statistics()["accepted"]
    store.owned.drop()


def test_objects_of_an_upload_that_was_killed_are_deleted_after_two_newer_snapshots(tmp_path, objects):
    topic = TrimmedTopic()
    one = OnePartition(tmp_path / "one", topic, objects)
    store = one.open()
    add_pages_and_upload(one, store, 0)
    put = objects.put

    def cut(name, pieces):
        if name.startswith("snapshots/"):
            raise UnreachableError("the node is killed here")
        put(name, pieces)

    objects.put = cut
    with pytest.raises(UnreachableError):
        add_pages_and_upload(one, store, 1)
    objects.put = put
    store.owned.drop()
    left = set(objects.names("files/")) - needed(objects)
    assert left
    again = OnePartition(tmp_path / "again", topic, objects)
    store = again.open()
    add_pages_and_upload(again, store, 2)
    assert left <= set(objects.names("files/"))  # its upload may go on, and be the newest but one
    for round_ in (3, 4):
        add_pages_and_upload(again, store, round_)
    assert needed(objects) == set(objects.names("files/"))
    store.owned.give_up()
    check_takeover(tmp_path / "last", topic, objects, accepted=400)


def test_an_interrupted_deletion_of_objects_without_a_list_is_finished_by_the_next_one(tmp_path):
    topic, objects = TrimmedTopic(), MemoryObjects()
    one = OnePartition(tmp_path / "one", topic, objects)
    store = one.open()
    for number in range(3):
        objects.put(f"files/{0:016x}/{1:016x}/run-{number}", [b"left"])
    remove = objects.remove

    def cut(name):
        remove(name)
        raise UnreachableError("the node is killed here")

    objects.remove = cut
    add_pages_and_upload(one, store, 0)
    with pytest.raises(UnreachableError):
        add_pages_and_upload(one, store, 1)
    assert needed(objects) < set(objects.names("files/"))
    objects.remove = remove
    add_pages_and_upload(one, store, 2)
    assert needed(objects) == set(objects.names("files/"))
    store.owned.give_up()


def test_an_object_of_an_upload_that_goes_on_is_not_deleted_and_a_missing_list_is_named(tmp_path):
    topic, objects = TrimmedTopic(), MemoryObjects()
    one = OnePartition(tmp_path / "one", topic, objects)
    store = one.open()
    later = f"files/{9:016x}/{1_000_000:016x}/run-1"
    objects.put(later, [b"new"])
    for round_ in range(4):
        add_pages_and_upload(one, store, round_)
    assert later in objects.content
    assert 0 == delete_old(objects)
    (*_, last) = objects.names("snapshots/")
    objects.get = MemoryObjects().get
    with pytest.raises(DamagedStoreError, match=last):
        newest_snapshot(objects)
    store.owned.drop()


def test_an_upload_that_goes_on_after_its_objects_were_deleted_is_no_snapshot_that_anyone_reads(tmp_path):
    topic, objects = TrimmedTopic(), MemoryObjects()
    one = OnePartition(tmp_path / "one", topic, objects)
    store = one.open()
    add_pages_and_upload(one, store, 0)
    put, lists = objects.put, []
    objects.put = lambda name, pieces: lists.append((name, pieces)) if name.startswith("snap") else put(name, pieces)
    add_pages_and_upload(one, store, 1)  # this node is paused before it writes the list
    objects.put = put
    again = OnePartition(tmp_path / "again", topic, objects)
    owned = again.open()
    for round_ in (2, 3):
        add_pages_and_upload(again, owned, round_)
    objects.put(*lists[0])
    owned.owned.give_up()
    check_takeover(tmp_path / "last", topic, objects, accepted=320)
    assert 1 == delete_old(objects)
    assert needed(objects) == set(objects.names("files/"))
    store.owned.drop()


def test_a_storage_that_refuses_to_delete_is_named_once_and_the_crawl_goes_on(tmp_path):
    topic, objects = TrimmedTopic(), MemoryObjects()
    one = OnePartition(tmp_path / "one", topic, objects)
    said = one.node._watcher.said = []
    one.node._watcher.say = said.append

    def refuse(name):
        raise SettingsError("the store refuses (403)")

    objects.remove = refuse
    store = one.open()
    for round_ in range(5):
        add_pages_and_upload(one, store, round_)
    assert ["old snapshots are not deleted: the store refuses (403)"] == said
    assert 5 == len(objects.names("snapshots/"))
    store.owned.give_up()


def test_links_are_deleted_up_to_the_place_that_the_store_has_noted_and_no_further(tmp_path):
    one = OnePartition(tmp_path / "one", TrimmedTopic(), MemoryObjects())
    store, place = one.open(), one.node._links._places[0]
    place.received = 7
    one.node._links.trim(0)
    assert [] == one.links_trimmed  # received, and not noted: the next owner receives them again
    one.node._links.note_received(store)
    place.received = 9
    for _ in range(2):
        one.node._links.trim(0)
    assert [7] == one.links_trimmed
    assert b"7" == store.frontier.watermarks()["links"]
    one.node._links.note_received(store)
    one.node._links.trim(0)
    assert [7, 9] == one.links_trimmed
    store.owned.give_up()


def test_a_node_that_wakes_after_the_new_owner_has_deleted_links_has_lost_its_claim_and_nothing_is_damaged(tmp_path):
    topic, objects = TrimmedTopic(), MemoryObjects()
    one = OnePartition(tmp_path / "one", topic, objects)
    store = one.open()
    one.node._links._reader = SimpleNamespace(read=lambda places: dict.fromkeys(places), close=lambda: None)
    one.node._watcher.wake = lambda: None
    one.node.stores.add(store)
    with pytest.raises(DamagedStoreError, match="dropped"):
        one.node._links.receive()  # its claim counts: another program has deleted them
    again = OnePartition(tmp_path / "again", topic, objects).open()
    assert 0 == one.node._links.receive()
    assert not store.holds()
    store.owned.drop()
    again.owned.give_up()
