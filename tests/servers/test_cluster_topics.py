"""Topics with settings that would lose or refuse records are found before a node joins, and if nodes claim one
partition at once, each epoch has one owner."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from e2e.crawling import wait_for
from outrider.cluster.counting import Counting
from outrider.cluster.description import read_cluster_file
from outrider.cluster.kafka import Brokers
from outrider.cluster.owning import Partition, claim
from outrider.crawl.cluster_run import make_cluster
from outrider.errors import ClaimRefusedError, SettingsError

pytestmark = [pytest.mark.long, pytest.mark.timeout(120)]
PARTITIONS = 2
NODES, ROUNDS = 3, 20


@pytest.fixture
def brokers(kafka, tmp_path):
    file = tmp_path / "cluster.toml"
    file.write_text(f'name = "checked"\nkafka = "{kafka.address}"\nobjects = "file:{tmp_path}"\n')
    brokers = Brokers(read_cluster_file(str(file)), client="checks")
    brokers.make_topics(PARTITIONS)
    yield brokers
    brokers.close()


def altered(brokers, which, **settings):
    kinds = brokers._library.admin
    changes = [
        kinds.ConfigEntry(name.replace("_", "."), value, incremental_operation=kinds.AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = kinds.ConfigResource(
        kinds.ResourceType.TOPIC, brokers.file.topic(which), incremental_configs=changes
    )  # fmt: skip
    brokers._administrator().incremental_alter_configs([resource])[resource].result(10)


def fault_of(brokers):
    try:
        brokers.check_topics(PARTITIONS)
    except SettingsError as error:
        return str(error)
    return ""


def test_a_topic_that_drops_or_refuses_records_is_named_with_the_command_that_mends_it(brokers):
    assert not fault_of(brokers)
    for which, settings, name in (
        ("facts", {"retention_ms": "1000000"}, "retention.ms=-1"),
        ("words", {"message_timestamp_type": "CreateTime"}, "message.timestamp.type=LogAppendTime"),
        ("words", {"retention_ms": "1000000"}, "retention.ms=-1"),
        ("urls", {"max_message_bytes": "100000"}, "max.message.bytes=1048576"),
    ):
        altered(brokers, which, **settings)
        wanted = f"--topic checked.{which} --add-config {name}"
        wait_for(lambda wanted=wanted: wanted in fault_of(brokers), 30)  # some brokers learn of it later
        altered(brokers, which, **dict([name.replace(".", "_").split("=")]))
        wait_for(lambda: not fault_of(brokers), 30)


def test_topics_with_records_of_another_cluster_are_refused(brokers):
    brokers.changelog(0).send(b"of another cluster").offset()
    with pytest.raises(SettingsError, match=r"checked\.facts has the records of another cluster"):
        make_cluster(brokers.file, PARTITIONS)


def test_each_epoch_has_one_owner_when_three_nodes_claim_a_partition_at_once(brokers):
    partition = Partition(0, PARTITIONS, b"c" * 16, (bytes(16), bytes(range(16))), "2026-01-01T00:00:00Z")
    begin, refused = threading.Barrier(NODES), []

    def claims(name):
        owned = []
        with closing(Brokers(brokers.file, client=name)) as own:
            for turn in range(ROUNDS):
                begin.wait(60)
                mark = f"{name}.{turn}"
                try:
                    found = claim(own.changelog(0), partition, None, node=name, mark=mark, pause=lambda: None)
                    owned.append((found.after.epoch, mark))
                except ClaimRefusedError:
                    refused.append(mark)
        return owned

    with ThreadPoolExecutor(NODES) as pool:
        told = [one for owned in pool.map(claims, ["a", "b", "c"]) for one in owned]
    counting, counted, offset = Counting(), [], 0
    while records := brokers.changelog(0).read(offset):
        for offset, record in records:
            epoch = counting.epoch
            counting.take(offset, record)
            counted += [(counting.epoch, counting.claim.mark)] if counting.epoch != epoch else []
        offset += 1
    assert set(told) <= set(counted)  # a claim after which another one came is refused, too
    assert len(told) == len({epoch for epoch, _ in told})
    assert [epoch for epoch, _ in counted] == list(range(1, len(counted) + 1))
    assert NODES * ROUNDS == len(told) + len(refused)
    assert len(refused) > ROUNDS


def read_some(reader, places):
    """Reads new records of some partitions in ten rounds, and returns them. None is for dropped records."""
    places, found = dict(places), []
    for _ in range(10):
        for number, records in reader.read(places).items():
            assert number in places, f"partition {number} is not among {list(places)}"
            found += [None] if records is None else records
            if records:
                places[number] = records[-1][0] + 1
    return found


def test_a_reader_says_nothing_about_places_that_it_had_before(brokers):
    """As after a pause of a node: its partitions have other owners, who have deleted records meanwhile."""
    for number in range(PARTITIONS):
        for text in (b"1", b"2", b"3"):
            brokers.records("urls", number).send(text).offset()
    brokers.trim("urls", 0, 2)
    for _ in range(3):
        with closing(brokers.reader("urls")) as reader:
            reader.read({0: 0, 1: 0})  # returns before the broker answers about the first
            assert [(1, b"2"), (2, b"3")] == read_some(reader, {1: 1})
        with closing(brokers.reader("urls")) as reader:
            reader.read({0: 0})
            assert [(2, b"3")] == read_some(reader, {0: 2})
            assert None in read_some(reader, {0: 0})
