"""Deleted and unused names leave memory: crawls and their queues, names of workers, crawls without URLs."""

from __future__ import annotations

import pytest

from limiting import set_limits
from model.inside import inspect
from outrider.engine.owner import Frontier
from outrider.errors import SettingsError
from outrider.journey import Link
from outrider.limits import DELETED_CRAWLS_NAMED_MAX, WATERMARK_WRITERS_MAX
from outrider.sim.disk import FaultyFiles

QUICK = {"delay": 0.0, "delay_factor": 0.0}
MANY = DELETED_CRAWLS_NAMED_MAX + 20
HOLDERS_NAMED = 64


class Store:
    """A frontier that is closed, killed or given a checkpoint, and opened again."""

    def __init__(self, **how) -> None:
        self.disk = FaultyFiles()
        self.time = 1_000_000
        self.how = {"settings": QUICK} | how
        self.open()

    def open(self) -> None:
        self.frontier = Frontier.open(self.disk, clock=self.now, **{"robots": "caller", **self.how})

    def now(self) -> int:
        self.time += 1_000
        return self.time

    def end(self, way: str) -> None:
        if way == "kill":
            self.frontier._files.unlock()
        else:
            if way == "checkpoint":
                self.frontier.checkpoint()
            self.frontier.close()
        self.open()

    @property
    def tables(self):
        return inspect(self.frontier).tables

    def crawl(self, name: str, *urls: str) -> None:
        self.frontier.discover([Link(url, crawl=name) for url in urls])


@pytest.fixture
def store() -> Store:
    return Store()


def deleted(store: Store, count: int, host: str = "same.example") -> None:
    for number in range(count):
        store.crawl(f"c{number}", f"http://{host}/", f"http://own{number}.example/")
        store.frontier.delete(crawl=f"c{number}")


@pytest.mark.parametrize("way", ["go on", "kill", "close", "checkpoint"])
def test_only_the_last_names_of_many_deleted_crawls_and_one_queue_for_each_host_stay(store, way):
    """Each once left its name, a set of fingerprints and a queue for each host, and each call looked at all of them."""
    store.crawl("living", "http://same.example/")
    deleted(store, MANY)
    if way != "go on":
        store.end(way)
    for _ in range(MANY // 10):
        store.frontier.lease(1, crawl="living")
    tables = store.tables
    assert DELETED_CRAWLS_NAMED_MAX + 2 >= len(tables.crawls.names)
    assert {"default", "living"} == set(tables.crawls.rows) | {"default"}
    assert 1 == len(list(tables.queues_of(tables.host_row("same.example"))))
    assert 1 == len(list(tables.queues_of(tables.host_row("own3.example"))))
    assert (1, True) == (store.frontier.statistics()["accepted"], store.frontier.verify().ok)


@pytest.mark.parametrize("way", ["go on", "kill", "close", "checkpoint"])
def test_a_forgotten_name_is_made_again_with_a_higher_generation(store, way):
    """One number remains of all forgotten names: the generation of the next crawl of any name is above it."""
    for _ in range(3):
        store.crawl("c0", "http://same.example/")
        store.frontier.delete(crawl="c0")
    deleted(store, MANY)
    if way != "go on":
        store.end(way)
        store.end(way)
    store.crawl("c0", "http://same.example/")
    name, generation = store.tables.crawls.names[store.tables.crawls.rows["c0"]]
    assert ("c0", True) == (name, generation > 4)
    store.end("kill")
    assert (name, generation) == store.tables.crawls.names[store.tables.crawls.rows["c0"]]
    assert (1, True) == (store.frontier.statistics()["accepted"], store.frontier.verify().ok)


@pytest.mark.parametrize("way", ["kill", "close", "checkpoint"])
def test_urls_of_forgotten_crawls_stay_deleted(store, way):
    """Their records are in the ledger until runs are merged, but no call finds them there."""
    deleted(store, MANY)
    for _ in range(2):
        store.end(way)
    store.crawl("new", "http://other.example/")
    assert ["http://other.example/"] == [lease.url for lease in store.frontier.lease(100)]
    assert ["http://other.example/"] == [one["url"] for one in store.frontier.records()]
    assert (1, True) == (store.frontier.statistics()["accepted"], store.frontier.verify().ok)


@pytest.mark.parametrize("way", ["go on", "kill", "checkpoint"])
def test_the_lease_of_a_deleted_crawl_keeps_its_queue_until_it_ends(store, way):
    store.frontier.discover([Link("http://same.example/1", crawl="gone"), Link("http://same.example/2", crawl="stays")])
    (lease,) = store.frontier.lease(1, crawl="gone", worker="w")
    store.frontier.delete(crawl="gone")
    deleted(store, 3)
    if way != "go on":
        store.end(way)
    assert [] == store.frontier.lease(5)
    assert ["stale"] == list(store.frontier.report([lease.done()]))
    assert ["http://same.example/2"] == [one.url for one in store.frontier.lease(5)]
    tables = store.tables
    assert 1 == len(list(tables.queues_of(tables.host_row("same.example"))))
    assert store.frontier.verify().ok


def test_open_leases_of_a_deleted_crawl_are_searched_once(store, monkeypatch):
    """Each call once looked through all open leases, as long as one of the deleted crawl was open."""
    hosts = [f"h{number}.example" for number in range(100)]
    store.crawl("stays", *(f"http://{host}/" for host in hosts))
    store.crawl("gone", *(f"http://{host}/" for host in hosts))
    leases = store.frontier.lease(100, crawl="gone")
    store.frontier.delete(crawl="gone")
    for _ in range(5):
        store.frontier.next_ready_seconds()
        store.frontier.lease(1)
    looks, look = [], store.tables.urls.open_leases
    monkeypatch.setattr(store.tables.urls, "open_leases", lambda: looks.append(1) or look())
    for _ in range(20):
        store.crawl("stays", "http://h1.example/")
    assert [] == looks
    store.frontier.report([lease.done() for lease in leases])
    for _ in range(5):
        store.frontier.lease(1)
    tables = store.tables
    assert {1} == {len(list(tables.queues_of(tables.host_row(host)))) for host in hosts}
    assert store.frontier.verify().ok


def test_many_keys_of_a_deleted_crawl_are_removed_in_one_step(store):
    """All groups were once copied for each deleted group: 64 copies of thousands with each call."""
    links = [Link(f"http://{host}.example/", crawl="gone", key=f"k{key}") for key in range(50) for host in (key, "x")]
    store.crawl("stays", "http://x.example/", *(f"http://{host}.example/" for host in range(50)))
    store.frontier.discover(links)
    groups = store.tables.keys.groups
    store.frontier.delete(crawl="gone")
    for _ in range(5):
        store.frontier.lease(1)
    keys = store.tables.keys
    assert ({}, True, {}, {}) == (keys.groups, keys.groups is groups, keys.group_of, store.tables.queues.keys)
    assert store.frontier.verify().ok


def test_a_host_whose_only_crawl_was_deleted_serves_the_next_crawl(store):
    """Its last queue keeps its place, and makes room when another appears."""
    store.crawl("gone", "http://same.example/")
    store.frontier.delete(crawl="gone")
    store.frontier.lease(1)
    store.crawl("next", "http://same.example/")
    assert ["http://same.example/"] == [one.url for one in store.frontier.lease(5)]
    assert 1 == len(list(store.tables.queues_of(store.tables.host_row("same.example"))))
    assert store.frontier.verify().ok


def test_a_queue_with_a_key_of_a_deleted_crawl_leaves_with_its_group(store):
    store.crawl("living", "http://a.example/", "http://b.example/")
    for number in range(5):
        name = f"c{number}"
        links = [Link(f"http://{host}.example/{number}", crawl=name, key="k") for host in "ab"]
        store.frontier.discover(links)
        store.frontier.delete(crawl=name)
    store.frontier.next_ready_seconds()
    assert 2 == len(store.frontier.lease(5))
    keys = store.tables.keys
    assert ({}, {}, {}) == (keys.groups, keys.group_of, store.tables.queues.keys)
    assert store.frontier.verify().ok


def test_queues_of_deleted_crawls_leave_while_urls_are_parked_and_delayed():
    """Their cards are still on the shelves of their host. A call that looks there skips them."""
    store = Store(robots="errands")
    for name in ("gone", "stays"):
        store.crawl(name, "http://same.example/private", "http://same.example/open")
    (errand,) = store.frontier.lease(5, errands=True)
    store.frontier.delete(crawl="gone")
    store.frontier.report([errand.robots(200, b"User-agent: *\nDisallow: /private")])
    store.frontier.discover([])
    assert 1 == len(list(store.tables.queues_of(store.tables.host_row("same.example"))))
    store.frontier.set_robots("http://same.example", 200, b"")
    for _ in range(5):
        store.frontier.report([lease.done() for lease in store.frontier.lease(5)])
    assert {"stays"} == {one.crawl for one in store.frontier.urls()}
    assert (2, True) == (store.frontier.statistics()["urls"]["done"], store.frontier.verify().ok)


# -- crawls that brought nothing


@pytest.mark.parametrize("url", ["no url", "ftp://a.example/", "http://a.example/" + "x" * 9_000])
def test_a_crawl_without_accepted_urls_is_not_made(store, url):
    """Its name once remained for ever."""
    for number in range(5):
        store.crawl(f"c{number}", url)
    assert {"default"} == set(store.tables.crawls.rows)
    store.crawl("c9", "http://a.example/")
    assert ["c9"] == [one.crawl for one in store.frontier.urls()]
    store.end("kill")
    assert ["c9"] == [one.crawl for one in store.frontier.urls()]
    assert {"default", "c9"} == set(store.tables.crawls.rows)


def test_a_crawl_without_accepted_urls_leaves_the_row_and_the_scope_to_the_next():
    store = Store(settings=QUICK | {"scope": "host", "max_depth": 3})
    links = [Link("http://a.example/" + "x" * 9_000, crawl="a"), Link("http://b.example/", crawl="b")]
    assert ["over_limit", "new"] == store.frontier.discover(links)
    assert ["over_limit"] == store.frontier.discover(links[:1])
    assert ["new"] == store.frontier.discover([Link("http://c.example/", crawl="c")])
    inside = [Link("http://c.example/1", crawl="c", depth=1), Link("http://a.example/1", crawl="c", depth=1)]
    assert ["new", "out_of_scope"] == store.frontier.discover(inside)
    store.end("kill")
    assert {"default", "b", "c"} == set(store.tables.crawls.rows)
    assert (3, True) == (store.frontier.statistics()["accepted"], store.frontier.verify().ok)


@pytest.mark.parametrize("way", ["go on", "kill", "checkpoint"])
def test_a_deleted_queue_leaves_one_row_however_often_it_is_deleted(store, way):
    for number in range(40):
        assert ["new"] == store.frontier.discover([f"http://a.com/{number % 3}"])
        store.frontier.delete("a.com")
        if way != "go on" and number % 10 == 9:
            store.end(way)
    queues = store.tables.queues
    assert (1, 1, 1) == (queues.count, len(queues.voids), store.tables.hosts.count)
    assert ([], store.frontier.verify().ok) == (store.frontier.lease(9).urls, True)


def test_deleted_keys_keep_a_row_each_until_their_crawl_is_gone(store):
    for number in range(40):
        store.frontier.discover([Link("http://a.com/", key=f"k{number}", crawl="c"), "http://a.com/"])
        store.frontier.delete(f"k{number}", crawl="c")
    assert 41 == store.tables.queues.count
    store.frontier.delete(crawl="c")
    for _ in range(3):
        store.frontier.lease(0)
    assert (1, 0) == (len(store.frontier.queues()), len(store.tables.keys.groups))
    assert {"default"} == {queue.crawl for queue in store.frontier.queues()}


# -- classes of errors


@pytest.mark.parametrize("way", ["go on", "kill", "checkpoint"])
def test_urls_store_a_bounded_number_of_classes_of_errors(store, way, monkeypatch):
    """They are in memory and in each checkpoint for ever, because records of URLs name them by number."""
    set_limits(monkeypatch, ERROR_CLASSES_KEPT_MAX=10)
    for number in range(30):
        store.frontier.discover([f"http://h{number}.com/"])
        store.frontier.report([lease.gone(error=f"class {number}") for lease in store.frontier.lease(9)])
        if way != "go on" and number in (5, 20):
            store.end(way)
    assert 11 == len(store.tables.registry.errors), "none, nine of them, and `other`"
    states = [store.frontier.status(f"http://h{number}.com/").error for number in (0, 8, 9, 29)]
    assert ["class 0", "class 8", "other", "other"] == states


# -- workers


@pytest.mark.parametrize("way", ["go on", "kill", "checkpoint"])
def test_names_of_workers_without_leases_are_forgotten(store, way, monkeypatch):
    """Each name that ever leased once stayed in memory and in each checkpoint."""
    set_limits(monkeypatch, HOLDERS_NAMED_MAX=HOLDERS_NAMED)
    store.frontier.discover([f"http://h{number}.example/" for number in range(3)])
    (kept,) = store.frontier.lease(1, worker="kept", ttl_seconds=80_000)
    for number in range(2 * HOLDERS_NAMED):
        (lease,) = store.frontier.lease(1, worker=f"w{number}")
        store.frontier.release([lease.token])
        if number == HOLDERS_NAMED and way != "go on":
            store.end(way)
    assert HOLDERS_NAMED >= len(store.tables.registry.holders)
    assert store.tables.registry.holder_rows.keys() == {name for name, _ in store.tables.registry.holders.values()}
    store.end("kill")
    assert ["ok"] == list(store.frontier.report([kept.done()]))
    assert store.frontier.verify().ok


def test_a_store_keeps_the_positions_of_a_bounded_number_of_archive_writers(store):
    """One more writer is refused by name before it is logged. The known ones continue, also after a restart."""
    for number in range(WATERMARK_WRITERS_MAX):
        store.frontier.note_watermark(f"w{number}", b"1")
    with pytest.raises(SettingsError, match="archive writer 'one more'"):
        store.frontier.note_watermark("one more", b"1")
    with pytest.raises(SettingsError, match="archive writer 'one more'"):
        store.frontier.report([], watermark=("one more", b"1"))
    store.frontier.note_watermark("w0", b"2")
    store.end("kill")
    assert (WATERMARK_WRITERS_MAX, b"2") == (len(store.frontier.watermarks()), store.frontier.watermarks()["w0"])


@pytest.mark.parametrize("way", ["kill", "close", "checkpoint"])
def test_the_late_outcome_of_a_deleted_url_ends_no_url_that_was_found_again_with_another_key(store, way):
    """After a checkpoint the open lease was once matched to the new record, which its outcome ended unfetched."""
    store.frontier.discover(["http://a.com/0"])
    (lease,) = store.frontier.lease(1, worker="far", ttl_seconds=80_000)
    store.frontier.delete("a.com")
    store.frontier.discover([Link("http://a.com/0", key="other")])
    store.end(way)
    assert ["stale"] == list(store.frontier.report([lease.done()]))
    assert ["http://a.com/0"] == store.frontier.lease(9).urls
    assert store.frontier.verify().ok
