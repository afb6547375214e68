"""`example.org` and `example.org.` are one host: one clock, one budget, one turn. Their URLs remain two."""

from __future__ import annotations

import numpy as np
import pytest

from model.world import START, World, hosts_go_cold, recount
from outrider import Link
from outrider.clock import instant
from outrider.frontier.state.spanning_keys import SpanningKeys
from outrider.frontier.state.tables import Tables
from outrider.journey import Kind
from outrider.limits import MICROSECONDS
from outrider.url import UrlBatch, host_of, undotted

PLAIN, DOTTED = "http://a.com/", "http://a.com./"


@pytest.fixture
def world():
    return World()


# -- which name it is


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("example.org.", "example.org"), ("example.org", "example.org"), ("localhost.", "localhost"), ("a.", "a"),
        (".", "."), ("..", ".."), ("example.org..", "example.org.."), ("[::1]", "[::1]"), ("", ""),
    ],
)  # fmt: skip
def test_one_dot_at_the_end_of_a_host_is_removed(host, name):
    assert (name, name) == (undotted(host), undotted(undotted(host)))


def test_columns_remove_the_dot_like_undotted():
    """A batch loses the dots in every row, also in invalid rows, and in parts of a batch."""
    texts = [
        "http://a.com./x", "no url", "https://b.org:81/", "http://b.org.:81/a./b", "http://127.0.0.1./", "http://[::1]/",
        "http://c.de../", "", "http://.../", "http://x./?q=a./",
    ]  # fmt: skip
    key = bytes(range(16))
    for batch in (UrlBatch.of(texts), UrlBatch.of(texts, key=key), UrlBatch.of(texts)[3:9], UrlBatch.of(texts * 2)[9:]):
        hosts = [undotted(host_of(url)) if url else "" for url in batch.strings()]
        starts, ends = batch.clock_hosts()
        spans = [batch.arena[start:end].decode() for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        names = UrlBatch.of([f"http://{host}/" if host else "" for host in hosts]).host_fingerprints(key)
        assert hosts == spans
        assert names.tolist() == batch.clock_fingerprints(key).tolist()
    assert 0 == len(UrlBatch.of([]).clock_fingerprints(key))


# -- one clock


def test_a_host_with_a_dot_is_not_visited_together_with_the_one_without(world):
    assert ["new", "new"] == world.discover(PLAIN, DOTTED)
    first = world.lease()
    assert (1, 60.0) == (len(first), world.ready_in())
    world.report(first[0].done(seconds=0))
    assert ([], 1.0) == (world.urls(), world.ready_in())
    world.clock.move(1)
    second = world.lease()
    assert {PLAIN, DOTTED} == {first[0].url, second[0].url}
    assert ("a.com", "a.com") == (second[0].host, second[0].key)
    assert ["a.com"] == [host.name for host in world.frontier.hosts()]
    assert [] == recount(world.frontier)


def test_urls_and_authorities_are_stored_as_they_are_written(world):
    world.discover(DOTTED)
    lease = world.one()
    assert (DOTTED, "http://a.com.") == (lease.url, lease.authority)
    assert ("leased", "unknown") == (world.state(DOTTED), world.state(PLAIN))


def test_both_spellings_share_back_off_and_the_budget_of_their_host():
    world = World(max_pages_per_host=2, delay=0)
    world.discover(PLAIN, DOTTED, "http://a.com/2", "http://a.com./2")
    while leases := world.lease():
        world.report(*[lease.done(seconds=0) for lease in leases])
    assert {"done": 2, "parked": 2} == world.counts()


def test_both_spellings_are_in_the_groups_of_their_host():
    world = World(group={"name": "g", "hosts": ["a.com.", "b.com"], "gap": 5.0})
    world.discover(DOTTED, "http://b.com./")
    world.report(world.one().done(seconds=0))
    assert 5.0 == world.ready_in()


def test_a_key_that_is_the_host_in_either_spelling_is_not_a_key_of_its_own(world):
    world.discover(Link(PLAIN, key="a.com."), Link(DOTTED, key="a.com"), Link("http://a.com/2", key="a.com"))
    (queue,) = world.frontier.queues()
    assert ("a.com", 3) == (queue.key, queue.queued)


def test_a_host_without_a_domain_has_one_slot_with_its_dot(world):
    world.discover("http://localhost/", "http://localhost./")
    assert (1, 1) == (len(world.lease()), len(list(world.frontier.queues())))


def test_both_spellings_request_their_own_robots_txt_on_one_clock():
    """Rules belong to an authority as it is written. The errands are requests to one host."""
    world = World(robots="errands")
    world.discover(PLAIN, DOTTED)
    (first,) = world.lease(errands=True)
    assert (Kind.ROBOTS, "a.com", []) == (first.kind, first.host, world.urls(errands=True))
    world.report(first.robots(404))
    seen = {first.url}
    for _ in range(3):
        world.clock.move(1)
        (lease,) = world.lease(errands=True)
        seen.add(lease.url)
        world.report(lease.robots(404) if lease.kind is Kind.ROBOTS else lease.done(seconds=0))
    assert {f"{PLAIN}robots.txt", f"{DOTTED}robots.txt", PLAIN, DOTTED} == seen


def test_the_hop_of_a_robots_txt_to_a_dotted_host_uses_the_hosts_clock():
    world = World(robots="errands")
    world.discover("http://b.com/", Link(PLAIN, not_before=START + 1_000 * MICROSECONDS))
    (lease,) = world.lease(errands=True)
    world.report(lease.robots(301, location="http://a.com./r.txt"))
    (hop,) = world.lease(errands=True)
    assert ("http://a.com./r.txt", "a.com") == (hop.url, hop.host)


# -- operators


@pytest.mark.parametrize("spelling", ["a.com", "a.com.", "A.COM."])
@pytest.mark.parametrize("url", [PLAIN, DOTTED])
def test_operators_may_write_either_spelling(url, spelling):
    world = World()
    world.discover(url)
    assert 1 == world.frontier.pause(spelling)
    assert [] == world.urls()
    world.frontier.resume(spelling)
    assert ([url], [url]) == ([one.url for one in world.frontier.urls(host=spelling)], world.urls(key=spelling.lower()))


def test_an_address_is_set_in_either_spelling():
    world = World(group="address", addresses="errands")
    world.frontier.set_address("a.com.", "192.0.2.1")
    world.discover(PLAIN)
    assert "192.0.2.1" == world.one().address


def test_a_host_on_disk_is_found_by_either_spelling(monkeypatch):
    hosts_go_cold(monkeypatch)
    world = World(delay=20.0)
    world.discover(PLAIN)
    world.report(world.one().done(seconds=0))
    world.clock.move(20)
    world.frontier.checkpoint()
    assert 1 == len(world.inspect().tables.cold)
    assert ["new"] == world.discover(DOTTED)
    world.report(world.one().done(seconds=0))
    assert (["a.com"], ["done", "done"]) == (
        [host.name for host in world.frontier.hosts()],
        world.states([PLAIN, DOTTED]),
    )


# -- what is carried and found again


def test_records_of_a_dotted_host_are_restored_unchanged(world):
    world.discover(PLAIN, DOTTED)
    world.report(world.one().done(seconds=0))
    other = World()
    other.frontier.restore(world.frontier.records())
    assert world.states([PLAIN, DOTTED]) == other.states([PLAIN, DOTTED])
    assert (1, []) == (len(list(other.frontier.queues())), recount(other.frontier))


@pytest.mark.parametrize("checkpoint", [False, True])
def test_one_clock_survives_a_kill(world, checkpoint):
    world.discover(PLAIN, DOTTED, "http://a.com./2")
    world.report(world.one().done(seconds=0))
    if checkpoint:
        world.frontier.checkpoint()
    world.kill()
    assert ([], 1.0) == (world.urls(), world.ready_in())
    world.clock.move(1)
    assert 1 == len(world.lease())


# -- stores made before


@pytest.fixture
def older(monkeypatch):
    """A store in which both spellings were hosts, as versions before this one made them."""

    def made(*links: str | Link, **how) -> World:
        with monkeypatch.context() as patch:
            patch.setattr(UrlBatch, "dotted", lambda self: np.zeros(0, np.intp))
            patch.setattr(Tables, "home_of", lambda self, host: host)
            patch.setattr(SpanningKeys, "join_twins", lambda self, queues: None)
            world = World(**how)
            world.discover(*links)
            assert 2 == len(list(world.frontier.hosts()))
            world.frontier.checkpoint()
        return world

    return made


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_store_in_which_both_spellings_were_hosts_visits_them_one_at_a_time(older, checkpoint):
    world = older(PLAIN, DOTTED, "http://a.com/2", "http://a.com./2")
    if checkpoint:
        world.frontier.checkpoint()
    world.kill()
    assert (2, []) == (len(list(world.frontier.hosts())), recount(world.frontier))
    seen = []
    for _ in range(4):
        (lease,) = world.lease()
        assert [] == world.urls()
        seen.append(lease.url)
        world.report(lease.done(seconds=0))
        assert ([], 1.0 if len(seen) < 4 else None) == (world.urls(), world.ready_in())
        world.clock.move(1)
    assert (4, True, []) == (len(set(seen)), world.frontier.finished(), recount(world.frontier))


def test_a_store_in_which_both_spellings_were_hosts_keeps_all_their_facts(older):
    world = older(PLAIN, DOTTED)
    world.kill()
    assert ["known", "known", "new"] == world.discover(PLAIN, DOTTED, "http://a.com./new")
    assert (["queued"] * 3, 2) == (world.states([PLAIN, DOTTED, "http://a.com./new"]), world.frontier.pause("a.com"))
    assert [] == world.urls()


def test_a_store_with_a_cold_dotted_host_continues(older, monkeypatch):
    hosts_go_cold(monkeypatch)
    world = older(Link(PLAIN, not_before=START + instant(100)), Link(DOTTED, not_before=START + instant(100)))
    world.kill()
    world.discover("http://a.com./2", "http://a.com/2")
    assert 1 == len(world.lease())
    assert [] == world.urls()
    assert [] == recount(world.frontier)
