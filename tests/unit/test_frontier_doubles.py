"""One URL in two crawls, or before and after its queue was deleted: the two are never confused."""

from __future__ import annotations

import pytest

from limiting import set_limits
from model.world import START, World, recount, rows
from outrider import Frontier, Link
from outrider.clock import instant

URL = "http://a.com/"
LATER = START + instant(100)


@pytest.fixture(params=["as it is", "killed", "killed behind a checkpoint"])
def then(request):
    """Returns the events in a world before it is read."""

    def happens(world: World) -> World:
        if request.param == "killed behind a checkpoint":
            world.frontier.checkpoint()
        if request.param != "as it is":
            world.kill()
        return world

    return happens


def test_a_queue_deleted_while_one_of_its_urls_is_leased_is_found_deleted(then):
    world = World()
    world.discover(URL)
    lease = world.one(worker="w")
    world.frontier.delete("a.com")
    then(world)
    assert ([], "unknown", {}) == (recount(world.frontier), world.state(URL), world.counts())
    world.discover("http://a.com/2")
    assert [] == world.urls(), "its host is being visited"
    assert ["stale"] == world.report(lease.done())
    world.clock.move(100)
    assert ["http://a.com/2"] == world.urls()


def test_a_crawl_deleted_while_one_of_its_urls_is_leased_is_found_deleted(then):
    world = World()
    world.discover(Link(URL, crawl="x"))
    lease = world.one(worker="w")
    world.frontier.delete(crawl="x")
    then(world)
    assert ([], {}, ["stale"]) == (recount(world.frontier), world.counts(), world.report(lease.done()))


@pytest.mark.parametrize("end", ["reported", "released", "expired", "closed"])
def test_a_late_end_of_a_deleted_urls_lease_does_not_affect_its_successor(then, end):
    world = World(delay=0, delay_factor=0)
    world.discover(Link(URL, referrer="http://of-the-first-life/"))
    lease = world.one(worker=None if end == "closed" else "w", ttl_seconds=10)
    world.frontier.delete("a.com")
    assert ["new"] == world.discover(Link(URL, priority=0.9))
    if end == "reported":
        assert ["stale"] == world.report(lease.done(status=200))
    elif end == "released":
        world.frontier.release([lease.token])
    elif end == "expired":
        world.clock.move(11)
        world.lease(0)
    else:
        world.reopen()
    then(world)
    assert ([], "queued", {"queued": 1}) == (recount(world.frontier), world.state(URL), world.counts())
    world.clock.move(11)
    again = world.one()
    assert (URL, 0.9, None) == (again.url, again.priority, again.referrer)


def test_the_lease_of_a_deleted_url_is_not_its_successors(then):
    world = World()
    world.discover(URL)
    lease = world.one(worker="w")
    world.frontier.delete("a.com")
    world.discover(URL)
    then(world)
    assert ([], "queued") == (recount(world.frontier), world.state(URL))
    assert ["stale"] == world.report(lease.done())
    assert "queued" == world.state(URL)


@pytest.mark.parametrize("crawl", ["default", "x"])
def test_a_waiting_url_of_two_crawls_changes_in_the_one_that_is_named(then, crawl):
    world = World(delay=0, delay_factor=0)
    world.discover(Link(URL, not_before=LATER), Link(URL, crawl="x", not_before=LATER))
    world.frontier.reprioritise(URL, 0.9, crawl=crawl)
    then(world)
    assert ([], {"waiting": 2}) == (recount(world.frontier), world.counts())
    world.clock.move(100)
    first = world.one()
    world.report(first.done())
    second = world.one()
    assert {crawl: 0.9, {"default": "x", "x": "default"}[crawl]: 0.5} == {
        lease.crawl: lease.priority for lease in (first, second)
    }


def test_a_parked_url_of_two_crawls_changes_in_the_one_that_is_named(then):
    world = World(robots="errands", delay=0, delay_factor=0)
    world.discover(URL, Link(URL, crawl="x"))
    world.settle_robots(200, b"User-agent: *\nDisallow: /")
    world.lease()
    assert {"parked": 2} == world.counts()
    world.frontier.reprioritise(URL, 0.9, crawl="x")
    then(world)
    assert ([], 0.5, 0.9) == (
        recount(world.frontier), world.frontier.status(URL).priority, world.frontier.status(URL, crawl="x").priority,
    )  # fmt: skip


def test_a_url_that_waits_again_after_a_delete_is_the_second_one(then):
    world = World()
    world.discover(Link(URL, not_before=LATER, referrer="http://of-the-first-life/"))
    world.frontier.delete("a.com")
    world.discover(Link(URL, not_before=START + instant(50)))
    world.frontier.reprioritise(URL, 0.9)
    then(world)
    assert ([], {"waiting": 1}) == (recount(world.frontier), world.counts())
    world.clock.move(200)
    (lease,) = world.lease()
    assert (URL, 0.9, None) == (lease.url, lease.priority, lease.referrer)
    assert [] == recount(world.frontier)


def test_deleted_urls_that_wait_are_not_counted():
    world = World()
    world.discover(*[Link(f"http://a.com/{n}", not_before=LATER) for n in range(2)])
    world.discover(*[Link(f"http://b.com/{n}", not_before=START + instant(n)) for n in range(5)])
    world.frontier.delete("a.com")
    world.clock.move(2)
    world.lease(0)
    assert ([], {"queued": 3, "waiting": 2}) == (recount(world.frontier), world.counts())
    world.clock.move(200)
    world.lease(0)
    assert ([], {"queued": 5}) == (recount(world.frontier), world.counts())


def test_a_url_that_two_crawls_lease_at_once_is_leased_in_both(then):
    world = World(delay=0, delay_factor=0)
    world.discover(URL, Link(URL, crawl="x"))
    world.frontier.set_limit(2, "a.com")
    tokens = {lease.crawl: lease.token for _ in range(2) for lease in world.lease(1, worker="w")}
    then(world)
    found = {crawl: world.frontier.status(URL, crawl=crawl) for crawl in tokens}
    assert {crawl: ("leased", token) for crawl, token in tokens.items()} == {
        crawl: (status.state, status.token) for crawl, status in found.items()
    }


def test_a_delete_in_the_middle_of_a_checkpoint_is_recovered_whole(monkeypatch):
    """Queues are copied after the delete, leases and the ledger before it. The log contains the events between."""
    set_limits(monkeypatch, CHECKPOINT_STEP_BYTES=1)
    world = World(delay=0, delay_factor=0)
    world.discover(URL, "http://a.com/2", "http://b.com/")
    frontier = world.frontier
    rounds = frontier._rounds
    rounds.begin(world.clock())
    with frontier._lock:
        # Like a step at the end of each call, which waits here until the calls are made.
        round_, rounds.under_way = rounds.under_way, None
    (lease,) = [lease for lease in world.lease(worker="w") if lease.host == "a.com"]
    world.frontier.reprioritise("http://a.com/2", 0.9)
    world.frontier.delete("a.com")
    world.discover("http://a.com/2")
    rounds.under_way = round_
    with frontier._lock:
        rounds._through(world.clock())  # not `checkpoint`, which writes another one after it
    assert 1 == frontier.statistics()["checkpoint"]["number"]
    live = rows(frontier)
    looker = Frontier.look(world.disk.copy())
    assert ([], live, "queued") == (recount(looker), rows(looker), looker.status("http://a.com/2").state)
    world.kill()
    assert ["stale"] == world.report(lease.done())
    assert ([], "queued") == (recount(world.frontier), world.state("http://a.com/2"))


def test_a_budget_that_delayed_only_deleted_urls_does_not_count_any_more(then):
    world = World(max_pages_per_host=1, delay=0, delay_factor=0)
    world.discover("http://a.com/1", "http://a.com/2")
    world.report(world.one().done(status=200))
    world.lease()
    assert ({"parked": 1, "done": 1}, True) == (world.counts(), world.frontier.at_limit())
    world.frontier.delete("a.com")
    then(world)
    assert ({}, False, True) == (world.counts(), world.frontier.at_limit(), world.frontier.finished())


def test_urls_that_were_due_before_a_crash_are_listed_and_counted_as_queued_after_it(then):
    world = World()
    world.discover(*[Link(f"http://{name}.com/", not_before=START + instant(5)) for name in "abc"])
    world.clock.move(10)
    world.lease(1, worker="w")
    then(world)
    listed = sorted(str(status.state) for status in world.frontier.urls())
    assert (["leased", "queued", "queued"], {"queued": 2, "leased": 1}) == (listed, world.counts())
    assert 2 == world.frontier.count(state="queued", crawl="default")
