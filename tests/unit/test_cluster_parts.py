"""The parts of a cluster without Kafka: its file, its manifest, links as records, places of files, several stores as
one frontier."""

from __future__ import annotations

import json
from collections import Counter
from types import SimpleNamespace

import pytest

from outrider import Frontier
from outrider.cluster import kafka
from outrider.cluster.description import (
    ClusterManifest,
    check_partitions,
    new_manifest,
    read_cluster_file,
)
from outrider.cluster.links import Refused, packed_links, packed_parcels, unpacked
from outrider.cluster.node import ClusterNode
from outrider.cluster.page_shares import PageShares
from outrider.cluster.stores import OwnStore, OwnStores
from outrider.cluster.written_places import OutputOwner, Places
from outrider.crawl.cluster_run import refuse_in_clusters
from outrider.crawl.output.cluster_objects import ClusterObjects
from outrider.crawl.setup.directory import inspect
from outrider.crawl.setup.options import CrawlOptions
from outrider.errors import ClosedError, DamagedStoreError, ForeignStoreError, NamedPathError, SettingsError
from outrider.journey import Code, Link, Settled, State
from outrider.limits import CHANGELOG_RECORD_BYTES_MAX, CLUSTER_IDLE_SECONDS, MICROSECONDS, SLOTS, TOKEN_BITS
from outrider.storage.memory import MemoryFiles
from outrider.url import UrlBatch

GOOD = 'name = "example"\nkafka = "one:9092,two:9092"\nobjects = "s3://bucket/prefix"\n'


@pytest.fixture
def write(tmp_path):
    def written(text):
        path = tmp_path / "cluster.toml"
        path.write_text(text)
        return str(path)

    return written


def manifest(partitions=4):
    return new_manifest("example", partitions, created="2026-01-01T00:00:00Z", random_bytes=bytes(range(48)))


def test_the_file_of_a_cluster_has_three_lines(write):
    found = read_cluster_file(write(GOOD))
    assert ("example", "one:9092,two:9092", "s3://bucket/prefix") == (found.name, found.kafka, found.objects)
    assert "example.facts" == found.topic("facts")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("name = ", "TOML"),
        (GOOD + "broker = 1\n", "'broker'"),
        (GOOD.replace('"example"', '"Ex ample"'), "name is"),
        (GOOD.replace('"example"', "3"), "name is missing"),
        (GOOD.replace("one:9092,two:9092", "one"), "kafka is not a list"),
        (GOOD.replace('objects = "s3://bucket/prefix"', ""), "objects is missing"),
        ("#" * 70_000, "too large"),
        ("a = " + "[" * 20_000, "is not TOML"),
    ],
)
def test_a_wrong_file_is_refused_with_the_field_and_an_example(write, text, named):
    with pytest.raises(SettingsError, match=named) as refused:
        read_cluster_file(write(text))
    assert "cluster.toml" in str(refused.value)


def test_settings_of_the_client_of_kafka_are_read_with_their_dots_and_from_the_environment(write):
    table = '[kafka_settings]\nsecurity.protocol = "SASL_SSL"\n"sasl.password" = "env:SECRET"\n'
    text = GOOD + table + "ssl.key.password = 7\nssl.x = true\n"
    found = read_cluster_file(write(text), {"SECRET": "PASSWORD"})
    assert found.kafka_settings == {
        "security.protocol": "SASL_SSL",
        "sasl.password": "PASSWORD",
        "ssl.key.password": "7",
        "ssl.x": "true",
    }
    assert "PASSWORD" not in repr(found)
    assert read_cluster_file(write(GOOD)).kafka_settings == {}


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ("kafka_settings = 1", "is not a table"),
        (
            "[kafka_settings]\nenable.auto.commit = true",
            "'enable.auto.commit' in kafka_settings is not for TLS or SASL",
        ),
        ("[kafka_settings]\nsasl.username = [1]", "'sasl.username' in kafka_settings is not a text"),
        ('[kafka_settings]\nsasl.password = "env:SECRET"', "environment variable 'SECRET', which is not set"),
        ('[kafka_settings]\npassword = "HIDDEN"', "'password' in kafka_settings is not for TLS or SASL"),
    ],
)
def test_wrong_settings_of_the_client_of_kafka_are_named_without_their_values(write, table, named):
    with pytest.raises(SettingsError, match=named) as refused:
        read_cluster_file(write(GOOD + table + "\n"), {})
    assert "cluster.toml" in str(refused.value)
    assert "HIDDEN" not in str(refused.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(NamedPathError, match=r"nothing\.toml"):
        read_cluster_file(str(tmp_path / "nothing.toml"))


def test_a_file_that_commands_would_take_for_a_directory_is_refused(tmp_path):
    path = tmp_path / "cluster.conf"
    path.write_text(GOOD)
    with pytest.raises(NamedPathError, match=r"cluster\.conf: .* ends with \.toml"):
        read_cluster_file(str(path))


@pytest.mark.parametrize(
    ("good", "secret"),
    [("one:9092,two:9092", "user:PASSWORD@one:9092"), ("s3://bucket/prefix", "s3://KEY:PASSWORD@bucket/prefix")],
)
def test_a_password_in_the_file_is_refused_and_not_shown(write, good, secret):
    with pytest.raises(SettingsError) as refused:
        ClusterObjects(read_cluster_file(write(GOOD.replace(good, secret))).objects)
    assert "PASSWORD" not in str(refused.value)


def test_commands_without_clusters_name_the_file_and_how_to_start_a_node(write):
    with pytest.raises(NamedPathError, match=r"is the file of a cluster; .* outrider crawl --cluster"):
        inspect(write(GOOD), "name the directory of a crawl")


@pytest.mark.parametrize("count", [0, 3, 8_192, -4])
def test_partitions_are_a_power_of_two_up_to_the_number_of_slots(count):
    with pytest.raises(SettingsError, match="power of two"):
        check_partitions(count)


def test_a_manifest_of_another_release_or_no_manifest_is_refused():
    good = manifest()
    assert good == ClusterManifest.of_octets(good.octets(), "there")
    for change, error, named in (
        ({"format": 99}, ForeignStoreError, "newer"),
        ({"spelling": "0"}, ForeignStoreError, "spelling"),
        ({"public_suffixes": "1999"}, ForeignStoreError, "public suffixes"),
        ({"partitions": "many"}, DamagedStoreError, "not a manifest"),
        ({"slot_key": "0g" * 16}, DamagedStoreError, "32 hex digits"),
        ({"fingerprint_key": "00"}, DamagedStoreError, "32 hex digits"),
    ):
        told = {**json.loads(good.octets()), **change}
        with pytest.raises(error, match=named):
            ClusterManifest.of_octets(json.dumps(told).encode(), "there")


def test_the_partition_of_a_url_is_that_whose_store_accepts_it():
    good = manifest(8)
    urls = [f"http://www.site{number}.test/a" for number in range(40)] + ["no url"]
    numbers = good.partitions_of(UrlBatch.of(urls)).tolist()
    assert -1 == numbers.pop()
    assert len(set(numbers)) > 4
    for url, number in zip(urls, numbers, strict=False):
        partition = good.partition(number)
        with Frontier.open(MemoryFiles(), slots=partition.slots, keys=partition.keys) as frontier:
            assert [Code.NEW] == frontier.discover([url])


def outbox(partition):
    with Frontier.open(MemoryFiles(), slots=partition.slots, keys=partition.keys, robots="caller") as frontier:
        frontier.discover([Link(f"http://site{n}.test/", metadata={"n": n}, depth=2) for n in range(30)])
        return frontier.outbox(1_000)


def test_parcels_survive_their_record_and_large_ones_are_divided():
    parcels = outbox(manifest().partition(0))
    record, count = packed_parcels(0, parcels)
    assert len(parcels) == count
    assert parcels == unpacked(record)
    large = [(*parcel[:10], "r" * 8_000, *parcel[11:]) for parcel in parcels] * 10
    record, count = packed_parcels(0, large)
    assert 0 < count < len(large)
    assert len(record) <= CHANGELOG_RECORD_BYTES_MAX
    assert large[:count] == unpacked(record)


def test_a_link_of_another_program_is_json_and_everything_else_is_refused_with_a_reason():
    link = Link("http://site.test/a", depth=3, priority=0.25, metadata={"from": "feed"}, key="k")
    (record,) = packed_links([link])
    found = unpacked(record)
    assert (link.url, 3, 0.25, {"from": "feed"}, "k") == (
        found.url, found.depth, found.priority, found.metadata, found.key,
    )  # fmt: skip
    assert "http://x.test/" == unpacked(b'{"url": "http://x.test/"}').url
    assert {"links": 1} == unpacked(b'{"metadata": {"links": 1}, "url": "http://x.test/"}').metadata
    for octets in (
        b"", b"\xff\xfe", b"[]", b"{}", b'{"url": 3}', b'{"url": "http://x.test/", "extra": 1}', b"[" * 90_000,
        b'{"from": 0, "links": [[1, 2]]}', b'{"from": 0, "links": [[0,1,9999,"","",0,0.5,0,0,0,"","","u",0,""]]}',
        b'{"url": "http://x.test/", "depth": -1}', b'{"url": "http://x.test/", "priority": 7}',
    ):  # fmt: skip
        refused = unpacked(octets)
        assert isinstance(refused, Refused), octets[:60]
        assert refused.reason


class Changelog:
    """That of a store that this node owns until `lose`."""

    def __init__(self):
        self.is_held, self.epoch, self.lsn, self.stopped, self.decided = True, 1, 7, False, None
        self.is_lost = False

    def may_request(self):
        return self.is_held

    def counts(self, _lsn):
        return self.decided

    def abandon(self):
        self.stopped = True


class Owned:
    def __init__(self, frontier):
        self.frontier, self.changelog, self.is_open = frontier, Changelog(), True

    def drop(self):
        self.is_open = False


class Several:
    """Two stores of a cluster of two partitions."""

    def __init__(self):
        self.manifest, self.sent, self.lost = manifest(2), [], []
        self.files = MemoryFiles()
        self.places = Places(self.files, ["pages", "politeness"])
        self.all = OwnStores(self.manifest, send=self.sent.extend, lost=self.lost.append, places=self.places)
        for number in range(2):
            partition = self.manifest.partition(number)
            frontier = Frontier.open(
                MemoryFiles(), slots=partition.slots, keys=partition.keys, robots="caller", output=True,
                settings={"delay": 0.0, "delay_factor": 0.0},
            )  # fmt: skip
            self.all.add(OwnStore(number, Owned(frontier)))

    def fill(self, count=20):
        for store in self.all.all():
            store.frontier.discover([f"http://site{n}.test/" for n in range(count)])


@pytest.fixture
def several():
    made = Several()
    yield made
    made.all.close()


def test_leases_come_from_all_stores_and_outcomes_return_to_their_own(several):
    several.fill()
    leases = several.all.lease(10)
    assert 10 == len(leases)
    assert {0, 1} == {token >> TOKEN_BITS for token in leases.tokens}
    report = several.all.report([lease.done(seconds=0.0, links=["http://site1.test/x"]) for lease in leases])
    assert {Settled.OK} == set(report.outcomes)
    done = sum(store.frontier.statistics()["urls"]["done"] for store in several.all.all())
    assert 10 == done
    assert not any(store.leased for store in several.all.all())
    assert [State.DONE] * 10 == [several.all.status(lease.url).state for lease in leases]


def test_trains_come_from_all_stores_and_the_number_of_their_queues_is_that_of_the_free_places(several):
    for store in several.all.all():
        store.frontier.discover([f"http://site{n}.test/{page}" for n in range(20) for page in range(8)])
    leases = several.all.lease(40, queues_max=5, per_queue=3, train_seconds=0.0)
    by_host = Counter(lease.host for lease in leases)
    assert {3} == set(by_host.values())
    assert 5 == len(by_host)
    assert {0, 1} == {token >> TOKEN_BITS for token in leases.tokens}
    assert 3 == len(several.all.lease(64, queues_max=1, per_queue=3, train_seconds=0.0))


def test_a_store_without_work_is_not_asked_until_something_arrives_or_time_has_passed(several, monkeypatch):
    now = [1_000.0]
    monkeypatch.setattr("outrider.cluster.stores.time.monotonic", lambda: now[0])
    asked = []
    for store in several.all.all():
        lease = store.frontier.lease
        store.frontier.lease = lambda want, lease=lease, store=store, **how: asked.append(store.number) or lease(want)
    assert 0 == len(several.all.lease(10))
    several.fill()
    now[0] += CLUSTER_IDLE_SECONDS - 0.001
    assert 0 == len(several.all.lease(10))
    assert [0, 1] == sorted(asked)
    several.all.get(1).touch()
    assert {1} == {token >> TOKEN_BITS for token in several.all.lease(2).tokens}
    now[0] += 0.002
    assert {0, 1} == {token >> TOKEN_BITS for token in several.all.lease(4).tokens}


def test_outcomes_of_a_partition_that_another_node_owns_are_stale_and_send_no_request(several):
    several.fill()
    leases = several.all.lease(10)
    store = several.all.get(1)
    store.owned.changelog.is_held = False
    store.frontier.close()
    report = several.all.report([lease.done(seconds=0.0) for lease in leases])
    stale = [code is Settled.STALE for code in report.outcomes]
    assert [lease.token >> TOKEN_BITS == 1 for lease in leases] == stale
    assert {1} == set(several.lost)
    assert [token >> TOKEN_BITS == 0 for token in leases.tokens] == [several.all.may_request(t) for t in leases.tokens]
    several.all.remove(1)
    assert {Settled.STALE} == set(several.all.extend([t for t in leases.tokens if t >> TOKEN_BITS == 1], 5.0))


def test_a_store_that_fails_for_another_reason_is_not_taken_for_lost(several):
    several.fill()
    several.all.get(1).frontier.close()
    with pytest.raises(ClosedError):
        several.all.lease(10)


def test_a_store_that_leaves_leases_nothing_more(several):
    several.fill()
    several.all.get(1).leaves = True
    assert {0} == {token >> TOKEN_BITS for token in several.all.lease(20).tokens}


def test_seeds_and_canonical_links_are_sent_to_their_partitions(several):
    assert [Code.HELD, Code.HELD] == several.all.discover(["http://site1.test/", Link("http://site2.test/")])
    assert ["http://site1.test/", "http://site2.test/"] == [link.url for link in several.sent]


def test_places_are_kept_with_the_epoch_of_the_claim(several):
    store = several.all.get(0)
    several.places.note_projection("pages", 120, 0)
    several.places.note_watermark("pages chain", b'[120,"ab"]')
    several.places.begin(store, 3)
    assert (0, 0) == Places(several.files, ["pages"]).projection("pages")  # these lines are not sealed yet
    several.places.commit({store: 5}, several.all.each)
    again = Places(several.files, ["pages", "politeness"])
    assert (120, 1) == again.projection("pages")
    assert {"pages chain": b'[120,"ab"]'} == again.watermarks()
    assert 5 == again.of_store(store, OutputOwner("here", epoch=1))
    assert again.of_store(store, OutputOwner("here", epoch=2)) is None
    assert (120, 5) == store.frontier.projection("pages")


@pytest.mark.parametrize(("decided", "lost"), [(False, [0]), (True, []), (None, [])])
def test_lines_are_lost_only_if_the_topic_has_the_claim_of_another_node_before_their_note(several, decided, lost):
    store = several.all.get(0)

    def durable(_lsn):
        store.owned.changelog.is_held, store.owned.changelog.decided = False, decided
        raise ClosedError

    store.frontier._durable = durable
    assert lost == [one.number for one in several.places.commit({store: 5}, several.all.each)]


class Watcher:
    """Notes which partitions the node still has when lines are dropped."""

    def __init__(self):
        self.seen = []

    def lost(self, store):
        self.seen.append((store.owned.changelog.stopped, self.node.stores.get(store.number)))


def test_a_lost_partition_is_among_the_stores_until_its_lines_are_dropped(several, tmp_path):
    watcher = Watcher()
    watcher.node = ClusterNode(
        several.manifest,
        SimpleNamespace(reader=str),
        lambda number: None,
        str(tmp_path),
        watcher,
        several.places,
        name="n",
        settings={},
    )
    store = several.all.get(0)
    watcher.node.stores.add(store)
    watcher.node._lose(store)
    assert [(True, store)] == watcher.seen
    assert ([], False) == (watcher.node.stores.all(), store.owned.is_open)


def test_a_store_says_who_writes_its_lines(several):
    store = several.all.get(0)
    assert OutputOwner.of(store) is None
    OutputOwner("node", 3, closed=True).note(store)
    assert OutputOwner("node", 3, closed=True) == OutputOwner.of(store)


def test_pages_that_are_put_back_are_fetched_without_validators(several):
    store = several.all.get(0)
    url = next(
        f"http://site{n}.test/" for n in range(20) if store.frontier.discover([f"http://site{n}.test/"]) == [Code.NEW]
    )
    (lease,) = store.frontier.lease(1)
    store.frontier.report(
        [lease.done(seconds=0.0, etag='"1"', digest=b"d" * 20, last_modified="Sat, 28 Nov 2026 09:11:33 GMT")]
    )
    assert 1 == store.frontier._put_back([url, "http://never-seen.test/"])
    (again,) = store.frontier.lease(1)
    assert (url, None, None, None) == (again.url, again.etag, again.last_modified, again.digest)
    assert again.token != lease.token


@pytest.mark.parametrize("rule", ["adaptive", "halving", "nutch"])
@pytest.mark.parametrize("is_due", [False, True])
def test_pages_that_wait_for_their_next_visit_are_put_back_without_validators(rule, is_due):
    at, files = [10**15], MemoryFiles()
    how = {"clock": lambda: at[0], "robots": "caller", "settings": {"delay": 0.0, "delay_factor": 0.0, "revisit": rule}}
    url = "http://site.test/"
    with Frontier.open(files, **how) as frontier:
        frontier.discover([url])
        (lease,) = frontier.lease(1)
        frontier.report([lease.done(seconds=0.0, etag='"1"', digest=b"d" * 20)])
        due = frontier.status(url).due
        assert due > at[0]
        at[0] = due + MICROSECONDS if is_due else at[0]
        assert 1 == frontier._put_back([url])
    with Frontier.open(files, **how) as frontier:
        (again,) = frontier.lease(1)
        assert (url, None, None) == (again.url, again.etag, again.digest)
        assert 0 == frontier._put_back([url])  # it is fetched already
        frontier.report([again.done(seconds=0.0, etag='"2"', digest=b"e" * 20)])
        assert frontier.status(url).due > due - MICROSECONDS
        assert frontier.verify().ok


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("tdmrep", True, "the next owner"),
        ("catalog", "sqlite:x", "when it has ended"),
        ("discovery_share", 0.5, "shares of the rate"),
        ("revisit", "optimal", "use adaptive, halving, nutch"),
        ("revisit", "module:function", "use adaptive, halving, nutch"),
    ],
)
def test_options_that_a_node_cannot_keep_are_refused_wherever_they_are_set(name, value, words):
    options = SimpleNamespace(**{"revisit": None, name: value})
    with pytest.raises(SettingsError, match=f"--{name.replace('_', '-')} .*{words}"):
        refuse_in_clusters({name: value}, options)
    with pytest.raises(SettingsError, match=f"{name} .of OUTRIDER_{name.upper()} .*{words}"):
        refuse_in_clusters({}, options)


def test_rules_with_intervals_of_their_own_are_kept_by_nodes():
    for rule in ("adaptive", "halving", "nutch"):
        refuse_in_clusters({"revisit": rule}, CrawlOptions(output="x", revisit=rule, rate=5.0))


def test_a_link_of_another_partition_is_judged_by_its_own_scope_and_sent_once():
    partition = manifest(2).partition(0)
    with Frontier.open(
        MemoryFiles(), slots=partition.slots, keys=partition.keys, robots="caller",
        settings={"scope": "host", "delay": 0.0, "delay_factor": 0.0},
    ) as frontier:  # fmt: skip
        codes = dict(zip(HOSTS, frontier.discover(HOSTS), strict=True))
        own = [url for url, code in codes.items() if code is Code.NEW]
        other = [url for url, code in codes.items() if code is Code.HELD]
        assert len(own) + len(other) == len(HOSTS)
        assert own
        assert other
        frontier.delivered({int(parcel[0]): int(parcel[1]) for parcel in frontier.outbox(1_000)})
        (lease,) = frontier.lease(1)
        links = [f"{other[0]}new", f"{other[0]}new", "http://no-seed-here.test/", *other]
        report = frontier.report([lease.done(seconds=0.0, links=links)])
        assert Code.HELD is report.links[0][0]
        assert {Code.KNOWN} == set(report.links[0][3:])  # they were sent lately
        sent = [parcel[12] for parcel in frontier.outbox(1_000)]
        assert 1 == sent.count(f"{other[0]}new")
        assert not set(other) & set(sent)


HOSTS = [f"http://site{number}.test/" for number in range(12)]
assert SLOTS == 4_096, "the tests count partitions of slots"


def test_lines_that_a_lost_store_could_not_note_are_named(several):
    kept, lost = several.all.all()
    lost.owned.changelog.is_held = False
    lost.frontier.close()
    assert [lost] == several.places.commit({kept: 5, lost: 5}, several.all.each)
    assert (0, 5) == kept.frontier.projection("pages")


class SharedMemory:
    """Objects of all nodes, in memory."""

    def __init__(self):
        self.objects = {}

    def create(self, name, octets):
        return self.objects.setdefault(name, octets) is octets

    def read(self, name):
        return self.objects.get(name)

    def names(self, prefix):
        return sorted(name for name in self.objects if name.startswith(prefix))


@pytest.mark.parametrize(("limit", "partitions"), [(1, 4), (7, 64), (500, 4), (100_000, 64)])
def test_all_shares_together_are_the_limit_whoever_takes_them(limit, partitions):
    objects = SharedMemory()
    nodes = [PageShares(objects, "x", partitions, limit) for _ in range(3)]
    taken, turn = [0] * partitions, 0
    while more := nodes[turn % 3].take(turn % partitions, taken[turn % partitions]):
        taken[turn % partitions] += more
        turn += 1
    assert limit == sum(taken)
    assert [0] * 3 == [node.take(0, taken[0]) for node in nodes]
    assert turn < 8 * partitions * 20
    assert 5 == sum(iter(lambda: PageShares(objects, "x", partitions, limit + 5).take(0, 0), 0))


def test_a_partition_that_runs_dry_early_has_taken_few_pages():
    shares = PageShares(SharedMemory(), "x", 4, 1_000_000)
    assert shares.take(0, 0) <= 8
    assert shares.take(1, 100) <= 108


def test_a_share_that_cannot_be_read_is_named():
    objects = SharedMemory()
    objects.create("x/shares/00000001", b"{")
    with pytest.raises(DamagedStoreError, match="x/shares/00000001"):
        PageShares(objects, "x", 4, 10).take(0, 0)


def test_stores_together_lease_as_many_pages_as_the_limit_and_no_more():
    objects, manifest_ = SharedMemory(), manifest(2)
    files = [MemoryFiles(), MemoryFiles()]
    answered = 0
    for opening in range(3):  # each opening is another node
        shares = PageShares(objects, "x", 2, 25)
        stores = OwnStores(manifest_, send=list, lost=list, places=Places(MemoryFiles(), []), shares=shares)
        for number in range(2):
            partition = manifest_.partition(number)
            frontier = Frontier.open(
                files[number], slots=partition.slots, keys=partition.keys, robots="caller",
                settings={"delay": 0.0, "delay_factor": 0.0},
            )  # fmt: skip
            frontier.discover([f"http://site{n}.test/{m}" for n in range(20) for m in range(4)])
            stores.add(OwnStore(number, Owned(frontier)))
        for turn in range(4 if opening < 2 else 30):
            leases = stores.lease(4)
            failed = leases[: turn % 3 == 0]  # gets no answer, so its page is not used up
            stores.report([lease.gone(error="timeout", seconds=0.0) for lease in failed])
            stores.report([lease.done(seconds=0.0) for lease in leases[len(failed) :]])
            answered += len(leases[len(failed) :])
            for store in stores.all():
                store.touch()
        if opening == 2:
            assert all(store.at_limit for store in stores.all())
            assert [] == list(stores.lease(4))
        for store in stores.all():
            store.frontier.close()
        stores.close()
    assert answered == 25


@pytest.mark.parametrize(
    ("error", "words"), [(None, "no answer"), (TimeoutError(), "no answer"), (BufferError("queue full"), "queue full")]
)
def test_an_error_without_words_is_no_answer(error, words):
    assert words == kafka._words(error)
