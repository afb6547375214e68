"""Orders and questions through the topic `words`: each store carries out each order once, and commands get one answer
of all partitions."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from limiting import set_limits
from outrider import Frontier
from outrider.clock import wall
from outrider.cluster.answering import Answering
from outrider.cluster.crawl_counts import CrawlCounts, counts_of
from outrider.cluster.description import is_cluster_file, new_manifest
from outrider.cluster.stores import OwnStore, OwnStores
from outrider.cluster.words import Answer, NodeMessage, Question, unpacked_word
from outrider.cluster.written_places import Places
from outrider.crawl.questions import cluster_queries, cluster_status
from outrider.crawl.questions.crawl_queries import every_row
from outrider.errors import ClaimLostError, DamagedStoreError, SettingsError, UnreachableError
from outrider.journey import Code
from outrider.limits import CHANGELOG_RECORD_BYTES_MAX
from outrider.storage.memory import MemoryFiles

PARTITIONS = 4
HOSTS = [f"site{number}.test" for number in range(12)]


class Brokers:
    """Topics in memory: `words`, and the URLs that were sent to each partition."""

    def __init__(self):
        self.file = SimpleNamespace(name="example", path="cluster.toml", topic=lambda which: which)
        self.words, self.urls, self.reads = [], [], lambda: None
        self.first = 0  # earlier records are deleted

    def send(self, topic, partition, record):
        if topic == "words":
            self.words.append(record)
        else:
            self.urls.append((partition, json.loads(record)))
        return SimpleNamespace(offset=lambda: len(self.words) - 1)

    def records(self, which):
        return SimpleNamespace(send=lambda record: self.send(which, 0, record), read=self._read)

    def _read(self, offset):
        self.reads()
        if offset < self.first:
            raise DamagedStoreError("dropped")
        return list(enumerate(self.words))[offset : offset + 3]

    def trim(self, which, partition, offset):
        assert ("words", 0) == (which, partition)
        self.first = offset

    def ends(self, which, partitions):
        return {0: len(self.words)}


class Changelog:
    is_held, epoch, lsn = True, 1, 0

    def keep(self):
        if not self.is_held:
            raise ClaimLostError


class Cluster:
    """Two nodes with two partitions each, and a command that asks them."""

    def __init__(self, kind=OwnStores):
        """kind: of the stores of a node."""
        self.manifest = new_manifest("x", PARTITIONS, created="2026-01-01T00:00:00Z", random_bytes=bytes(range(48)))
        self.brokers, self.heard, self.nodes = Brokers(), [], []
        self.files = [MemoryFiles() for _ in range(PARTITIONS)]
        for name in ("one", "two"):
            places = Places(MemoryFiles(), [])
            stores = kind(self.manifest, send=list, lost=lambda number: None, places=places)
            self.nodes.append((stores, Answering(self.brokers, stores, name, self.heard.append)))
        for number in range(PARTITIONS):
            self.open(number, number % 2)
        self.asking = cluster_queries.ClusterQuestions(self.brokers.file, self.manifest, self.brokers)

    def open(self, number, node):
        """Has a node own a partition."""
        stores, answering = self.nodes[node]
        partition = self.manifest.partition(number)
        frontier = Frontier.open(
            self.files[number], slots=partition.slots, keys=partition.keys, robots="caller",
            settings={"delay": 0.0, "delay_factor": 0.0},
        )  # fmt: skip
        store = OwnStore(number, SimpleNamespace(frontier=frontier, changelog=Changelog(), is_open=True))
        answering.opened(store)
        stores.add(store)

    def close(self, number):
        """Has a node give a partition up."""
        for stores, answering in self.nodes:
            if (store := stores.remove(number)) is not None:
                answering.note(store)
                store.frontier.close()

    def store(self, number):
        return next(store for stores, _ in self.nodes if (store := stores.get(number)) is not None)

    def turn(self):
        for _, answering in self.nodes:
            while answering.read():
                pass
            answering.answer(0)

    def live(self):
        """From now on the nodes work while the command waits."""
        working = []

        def reads():
            if not working:
                working.append(True)
                self.turn()
                working.clear()

        self.brokers.reads = reads

    def order(self, ask, question, partitions=None):
        self.brokers.words.append(json.dumps(
            {"ask": ask, "mark": f"m{len(self.brokers.words)}", "question": question, "partitions": partitions}
        ).encode())  # fmt: skip

    def fill(self, per_host=1):
        for host in HOSTS:
            number = self.manifest.partition_of_host(host)
            self.store(number).frontier.discover([f"http://{host}/{n}" for n in range(per_host)])

    def answers(self):
        words = [unpacked_word(octets) for octets in self.brokers.words]
        return [word for word in words if isinstance(word, Answer)]


@pytest.fixture
def cluster():
    made = Cluster()
    yield made
    for stores, _ in made.nodes:
        stores.close()


def test_the_records_are_told_apart_and_those_of_other_programs_are_skipped():
    assert isinstance(unpacked_word(b'{"node":"a","at":1,"round":1,"counts":[]}'), NodeMessage)
    assert isinstance(unpacked_word(b'{"ask":"hosts","mark":"m","question":{}}'), Question)
    assert isinstance(unpacked_word(b'{"answers":"m","partition":1,"node":"a"}'), Answer)
    for octets in (b"", b"\xff", b"[]", b'{"ask": 3}', b"[" * 90_000, b'{"ask":"hosts","mark":"m","question":[]}'):
        assert unpacked_word(octets) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [("partition", -1), ("partition", 10**30), ("epoch", -1), ("received", -5), ("heard", 10**30), ("at", 10**30)],
)
def test_counts_that_no_node_sends_are_skipped(field, value):
    message = {"node": "one", "at": 1, "round": 1, "counts": [own_counts(0)]}
    assert isinstance(unpacked_word(json.dumps(message).encode()), NodeMessage)
    (message if field == "at" else message["counts"][0])[field] = value
    assert unpacked_word(json.dumps(message).encode()) is None


def own_counts(partition, **more):
    return {"partition": partition, "epoch": 1, "received": 0, "finished": True, "numbers": {}, **more}


def test_counts_of_foreign_partitions_and_without_numbers_change_nothing(cluster):
    counts = CrawlCounts(PARTITIONS, node_seconds=10)
    foreign = [own_counts(number) for number in range(PARTITIONS + 2)]
    message = json.dumps({"node": "one", "at": wall(), "round": 1, "counts": foreign}).encode()
    counts.hear(unpacked_word(message))
    assert PARTITIONS == counts.totals()["partitions"]
    assert 0 == counts.heard()
    assert () == counts.at_end(lambda: dict.fromkeys(range(PARTITIONS), 0))
    cluster.brokers.words += [message, b'{"node":"x","more":' + b"[" * 90_000]
    cluster.live()
    assert PARTITIONS == cluster_status.status_from(cluster.brokers, cluster.asking, cluster.manifest)["known"]


def test_a_store_with_orders_from_before_the_start_of_its_node_is_not_finished(cluster):
    store = cluster.store(0)
    cluster.order("retry", {})
    assert counts_of(store, 0, 0).finished
    assert not counts_of(store, 0, len(cluster.brokers.words)).finished
    cluster.turn()
    assert counts_of(store, 0, len(cluster.brokers.words) - len(cluster.answers())).finished


def test_an_order_is_carried_out_by_the_store_that_it_concerns_once(cluster):
    cluster.fill()
    number = cluster.manifest.partition_of_host(HOSTS[0])
    cluster.order("host", {"host": HOSTS[0], "order": "pause"}, [number])
    cluster.turn()
    assert cluster.store(number).frontier.host(HOSTS[0]).paused
    assert [{"count": 1}] == [one.answer for one in cluster.answers()]
    cluster.store(number).frontier.resume(HOSTS[0])
    cluster.close(number)
    cluster.open(number, 0)  # the next owner knows from the store what was carried out
    cluster.turn()
    assert not cluster.store(number).frontier.host(HOSTS[0]).paused
    assert 1 == len(cluster.answers())


def test_an_order_waits_for_the_next_owner_of_a_partition(cluster):
    cluster.fill()
    for number in range(PARTITIONS):
        cluster.close(number)
    cluster.order("pause", {})
    cluster.turn()
    assert [] == cluster.answers()
    for number in range(PARTITIONS):
        cluster.open(number, 0)
    cluster.turn()
    assert [] == [lease for number in range(PARTITIONS) for lease in cluster.store(number).frontier.lease(20)]
    assert PARTITIONS == len(cluster.answers())


def test_words_that_all_partitions_have_noted_are_deleted_but_for_the_newest(cluster, monkeypatch):
    set_limits(monkeypatch, WORDS_KEPT_RECORDS=5, WORDS_BEFORE_NOTE=4)
    cluster.fill()
    cluster.order("retry", {})
    cluster.brokers.words += [b"{}"] * 20
    cluster.turn()
    stores = [cluster.store(number) for number in range(PARTITIONS)]
    answering = cluster.nodes[0][1]
    first = min(store.heard_noted for store in stores)
    answering.trim(first)
    assert first == cluster.brokers.first == 1  # the order is noted by all, and the rest is not
    for store in stores:
        answering.note_sometimes(store)
    cluster.brokers.words += [b"{}"] * 3
    cluster.turn()
    answering.trim(min(store.heard_noted for store in stores))
    assert len(cluster.brokers.words) - 5 == cluster.brokers.first
    cluster.close(2)
    cluster.open(2, 1)  # the next owner needs no deleted record
    cluster.order("retry", {}, [2])
    cluster.turn()
    assert PARTITIONS + 1 == len(cluster.answers())


def test_a_node_that_wakes_after_its_unread_words_were_deleted_goes_on_at_their_end(cluster):
    stores, answering = cluster.nodes[0]
    cluster.brokers.words += [b"{}"] * 9
    cluster.brokers.first = 7
    with pytest.raises(DamagedStoreError, match="words were deleted before"):
        answering.read()  # it holds its partitions: another program has deleted them
    for store in stores.all():
        store.owned.changelog.is_held = False
    lost = []
    stores._lost = lost.append
    assert 0 == answering.read()
    assert [0, 2] == sorted(lost)
    for store in stores.all():
        stores.remove(store.number)
        store.frontier.close()
    cluster.brokers.words.append(json.dumps({"node": "one", "at": 1, "round": 1, "counts": []}).encode())
    assert 1 == answering.read()
    assert ["one"] == [message.node for message in cluster.heard]


@pytest.mark.parametrize(
    "word",
    [
        ("nothing", {}), ("add", {"urls": ["http://new.test/"]}), ("put", {}), ("restore", {"rows": []}),
        ("host", {"host": "no.test", "order": "pause"}), ("host", {"order": 7}), ("set_delay", {"delay_seconds": "x"}),
        ("set_limit", {"limit": [1]}), ("urls", {"after": {"a": 1}, "limit": "many"}), ("explain", {"url": 3}),
    ],
)  # fmt: skip
def test_what_cannot_be_carried_out_is_answered_with_a_reason_and_stops_nobody(cluster, word):
    cluster.fill()
    before = [cluster.store(number).frontier.statistics()["accepted"] for number in range(PARTITIONS)]
    cluster.order(*word)
    cluster.turn()
    assert {2} == {one.code for one in cluster.answers()}
    assert all(one.error for one in cluster.answers())
    assert before == [cluster.store(number).frontier.statistics()["accepted"] for number in range(PARTITIONS)]


def test_a_list_has_the_rows_of_all_partitions_once_whatever_its_pages(cluster):
    cluster.fill(per_host=9)
    cluster.live()
    for limit in (1, 7, 40, None):
        after, found = None, []
        for _ in range(200):
            rows = list(every_row(cluster.asking.ask, "urls", {"after": after}, limit))
            after = rows.pop()["cursor"] if rows and list(rows[-1]) == ["cursor"] else None
            found += [row["url"] for row in rows]
            if after is None:
                break
        assert sorted(f"http://{host}/{n}" for host in HOSTS for n in range(9)) == sorted(found)
    assert set(HOSTS) == {row["name"] for row in every_row(cluster.asking.ask, "hosts", {}, None)}
    for wrong in ("x", "9:", "-1:", "1"):
        with pytest.raises(SettingsError, match="after is"):
            cluster.asking.ask("urls", {"after": wrong})


def test_the_answers_of_all_partitions_become_one(cluster):
    cluster.fill(per_host=3)
    cluster.live()
    ask = cluster.asking.ask
    assert "queued" == ask("explain", {"url": f"http://{HOSTS[3]}/1"})["state"]
    assert "unknown" == ask("explain", {"url": f"http://{HOSTS[3]}/77"})["state"]
    idle = ask("why-idle", {})
    assert (len(HOSTS), 3 * len(HOSTS)) == (idle["known"], idle["urls"]["queued"])
    assert "ready" == idle["reason"]
    verified = ask("verify", {})
    assert verified.ok
    assert 3 * len(HOSTS) == verified.counts["accepted"]
    assert {"count": 1} == ask("host", {"host": HOSTS[5], "order": "delay", "value": 9})
    assert 9.0 == next(row for row in ask("hosts", {})["rows"] if row["name"] == HOSTS[5])["delay_seconds"]
    with pytest.raises(SettingsError, match=r"no host 'no\.test'"):
        ask("host", {"host": "no.test", "order": "pause"})


def test_the_status_shows_the_domains_with_the_most_queued_urls(cluster, monkeypatch):
    for rank, host in enumerate(HOSTS):
        frontier = cluster.store(cluster.manifest.partition_of_host(host)).frontier
        frontier.discover([f"http://{name}.{host}/{n}" for n in range(rank + 1) for name in ("a", "b")])
    cluster.live()
    counts = [{"partition": n, "epoch": 1, "received": 0, "finished": False, "numbers": {}} for n in range(PARTITIONS)]
    for told_at in (0, wall()):
        message = {"node": "one", "at": told_at, "round": 1, "counts": counts}
        cluster.brokers.words.append(json.dumps(message).encode())
        found = cluster_status.status_from(cluster.brokers, cluster.asking, cluster.manifest)
        assert None is found["domains"] or told_at
    wanted = [{"domain": host, "queued": 2 * (rank + 1)} for rank, host in enumerate(HOSTS)][:-11:-1]
    assert wanted == found["domains"]
    lines = [*cluster_status.cluster_status_lines(found, "cluster.toml")]
    assert f"         24 queued of {HOSTS[-1]}" in lines
    for number in range(PARTITIONS):
        cluster.close(number)  # a node that does not answer: the counts are shown
    passed = iter(range(0, 10_000, 3))
    monkeypatch.setattr(cluster_queries, "time", SimpleNamespace(monotonic=lambda: next(passed), sleep=lambda s: None))
    found = cluster_status.status_from(cluster.brokers, cluster.asking, cluster.manifest)
    assert (None, PARTITIONS) == (found["domains"], found["known"])
    assert any("not known: no node" in line for line in cluster_status.cluster_status_lines(found, "cluster.toml"))


def test_an_answer_that_is_too_large_for_a_record_has_fewer_rows(cluster):
    host = HOSTS[0]
    store = cluster.store(cluster.manifest.partition_of_host(host))
    store.frontier.discover([f"http://{host}/{'x' * 7_900}{n}" for n in range(250)])
    cluster.live()
    found = list(every_row(cluster.asking.ask, "urls", {"host": host}, None))
    assert 250 == len(found)
    assert max(map(len, cluster.brokers.words)) <= CHANGELOG_RECORD_BYTES_MAX


def test_new_urls_are_sent_to_the_partitions_of_their_hosts(cluster):
    urls = [f"http://{host}/" for host in HOSTS]
    assert {"codes": {Code.HELD: len(HOSTS)}} == cluster.asking.ask("add", {"urls": urls})
    sent = {record["url"]: partition for partition, record in cluster.brokers.urls}
    assert {url: cluster.manifest.partition_of_host(host) for url, host in zip(urls, HOSTS, strict=True)} == sent


def test_without_a_node_a_command_says_how_to_start_one_and_keeps_an_order(cluster, monkeypatch):
    passed = iter(range(0, 10_000, 3))
    monkeypatch.setattr(cluster_queries, "time", SimpleNamespace(monotonic=lambda: next(passed), sleep=lambda s: None))
    with pytest.raises(UnreachableError, match=r"no node .* runs; start one: outrider crawl --cluster cluster\.toml"):
        cluster.asking.ask("hosts", {})
    with pytest.raises(UnreachableError, match="the order is kept"):
        cluster.asking.ask("retry", {})
    alive = NodeMessage("one", 0, 1, [])
    cluster.brokers.reads = lambda: cluster.brokers.words.append(json.dumps(
        {"node": alive.node, "at": 0, "round": 1, "counts": []}
    ).encode()) if len(cluster.brokers.words) < 5 else None  # fmt: skip
    with pytest.raises(UnreachableError, match=r"partition 0 .* and 3 other ones"):
        cluster.asking.ask("hosts", {})


@pytest.mark.parametrize("seconds", [0.1, 1.0])
def test_a_question_that_a_former_owner_left_is_asked_again(cluster, monkeypatch, seconds):
    """The owner of a partition changes before it has answered: before or after its first message to this command."""
    passed = iter(n * seconds for n in range(1_000))
    monkeypatch.setattr(cluster_queries, "time", SimpleNamespace(monotonic=lambda: next(passed), sleep=lambda s: None))
    cluster.fill()
    turns = 0

    def told(node, partition, epoch):
        counts = [{"partition": partition, "epoch": epoch, "received": 0, "finished": False, "numbers": {}}]
        cluster.brokers.words.append(json.dumps({"node": node, "at": 0, "round": turns, "counts": counts}).encode())

    def reads():
        nonlocal turns
        turns += 1
        cluster.brokers.reads = lambda: None  # the nodes read, too
        if turns == 1 and seconds < 1:
            told("one", 0, 1)
        elif turns == 2:
            cluster.close(0)
            for _, answering in cluster.nodes:
                while answering.read():
                    pass
            cluster.open(0, 1)
        elif turns == 6:
            told("two", 0, 2)
        elif turns > 6:
            cluster.turn()
        cluster.brokers.reads = reads

    cluster.brokers.reads = reads
    assert cluster.asking.ask("verify", {}).ok
    asked = [word for word in map(unpacked_word, cluster.brokers.words) if isinstance(word, Question)]
    assert [[0, 1, 2, 3], [0]] == [word.partitions for word in asked]


def test_a_word_is_the_file_of_a_cluster_by_its_end_unless_it_is_a_directory(tmp_path):
    (tmp_path / "crawl.toml").mkdir()
    assert is_cluster_file("cluster.toml")
    assert not is_cluster_file("crawl")
    assert not is_cluster_file(str(tmp_path / "crawl.toml"))
