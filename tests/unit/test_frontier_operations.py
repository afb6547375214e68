"""The verbs of operators (pause, block, slow, limit, delete, reprioritise, retry), and their queries."""

from __future__ import annotations

from collections import Counter

import pytest

from model.world import START, World, recount
from outrider import Link
from outrider.errors import SettingsError, StoreFullError
from outrider.frontier.schedule.host_schedule import HostSchedule
from outrider.frontier.verbs import deciding
from outrider.journey import Outcome, OutcomeBatch, State, Verdict, Waits
from outrider.limits import MICROSECONDS

A, B = "http://a.com/", "http://b.com/"


@pytest.fixture
def world():
    return World()


# -- pause


def test_a_paused_queue_is_not_leased_and_its_urls_stay_queued(world):
    world.discover(A, B)
    assert 1 == world.frontier.pause("a.com")
    assert ([B], "queued", []) == (world.urls(), world.state(A), recount(world.frontier))


def test_a_paused_queue_continues_when_it_is_resumed(world):
    world.discover(A)
    world.frontier.pause("a.com")
    assert ([], None) == (world.urls(), world.ready_in())
    world.frontier.resume("a.com")
    assert (0.0, [A]) == (world.ready_in(), world.urls())


def test_a_ready_queue_is_paused_at_once(world):
    world.discover(A)
    assert 0.0 == world.ready_in()
    world.frontier.pause("a.com")
    assert [] == world.urls()


def test_a_pause_survives_a_kill(world):
    world.discover(A, B)
    world.frontier.pause("a.com")
    world.kill()
    assert [B] == world.urls()


def test_a_pause_survives_a_checkpoint(world):
    world.discover(A, B)
    world.frontier.pause("a.com")
    world.frontier.checkpoint()
    world.kill()
    assert [B] == world.urls()


def test_a_paused_crawl_is_not_leased(world):
    world.discover(A, Link(B, crawl="other"))
    assert 1 == world.frontier.pause(crawl="other")
    assert [A] == world.urls()
    world.frontier.resume(crawl="other")
    assert [B] == world.urls()


def test_urls_added_to_a_paused_crawl_wait_too(world):
    world.discover(Link(A, crawl="other"))
    world.frontier.pause(crawl="other")
    world.discover(Link(B, crawl="other"))
    assert [] == world.urls()
    world.kill()
    assert [] == world.urls()
    world.frontier.resume(crawl="other")
    assert {A, B} == set(world.urls())


def test_an_open_lease_of_a_paused_queue_is_reported_as_usual(world):
    world.discover(A, "http://a.com/2")
    lease = world.one()
    world.frontier.pause("a.com")
    assert (["ok"], "done") == (world.report(lease.done()), world.state(lease.url))
    world.clock.move(100)
    assert [] == world.urls()


def test_another_queue_of_a_host_continues_while_one_is_paused(world):
    world.discover(Link("http://a.com/1", key="one"), Link("http://a.com/2", key="two"))
    world.frontier.pause("one")
    assert ["http://a.com/2"] == world.urls()


def test_an_unknown_key_or_crawl_is_reported(world):
    with pytest.raises(SettingsError, match=r"key 'nobody\.com'"):
        world.frontier.pause("nobody.com")
    with pytest.raises(SettingsError, match="crawl 'nothing'"):
        world.frontier.pause(crawl="nothing")


# -- block, delay, limit


def test_a_blocked_queue_is_leased_when_its_block_ends(world):
    world.discover(A)
    world.frontier.block_until(START + 30 * MICROSECONDS, "a.com")
    assert ([], 30.0) == (world.urls(), world.ready_in())
    world.clock.move(30)
    assert [A] == world.urls()


def test_a_block_survives_a_kill(world):
    world.discover(A)
    world.frontier.block_until(START + 30 * MICROSECONDS, "a.com")
    world.kill()
    assert 30.0 == world.ready_in()


def test_an_own_delay_replaces_the_configured_one(world):
    world.discover(A, "http://a.com/2", B, "http://b.com/2")
    world.frontier.set_delay(20.0, "a.com")
    world.report(*[lease.done(seconds=0) for lease in world.lease()])
    world.clock.move(1)
    assert ["http://b.com/2"] == world.urls()
    world.clock.move(19)
    assert ["http://a.com/2"] == world.urls()


def test_after_an_own_delay_is_removed_the_configured_one_applies_again(world):
    world.discover(A, "http://a.com/2")
    world.frontier.set_delay(20.0, "a.com")
    world.frontier.set_delay(None, "a.com")
    world.report(world.one().done(seconds=0))
    assert 1.0 == world.ready_in()


def test_a_limit_of_two_lets_two_requests_be_open_a_gap_apart(world):
    world.discover(*[f"http://a.com/{n}" for n in range(4)])
    world.frontier.set_limit(2, "a.com")
    first = world.lease()
    assert 1 == len(first)
    assert [] == world.urls()
    world.clock.move(1)
    assert 1 == len(world.lease())
    world.clock.move(10)
    assert [] == world.urls()
    world.report(first[0].done(seconds=0))
    world.clock.move(1)
    assert 1 == len(world.lease())


# -- what is said of a crawl, or of a host in all crawls, holds for what comes later


def ended(world: World, how: str) -> None:
    """Changes no state, kills the process, or kills it after a checkpoint: orders survive each of them."""
    if how == "checkpoint":
        world.frontier.checkpoint()
    if how != "nothing":
        world.kill()


ENDS = pytest.mark.parametrize("how", ["nothing", "kill", "checkpoint"])


@ENDS
def test_a_delay_of_a_crawl_applies_to_hosts_found_later(world, how):
    world.discover(A)
    assert 1 == world.frontier.set_delay(20.0)
    ended(world, how)
    world.discover(B, "http://b.com/2", Link("http://c.com/1", crawl="other"), Link("http://c.com/2", crawl="other"))
    world.report(*[lease.done(seconds=0) for lease in world.lease()])
    world.clock.move(1)
    assert ["http://c.com/2"] == world.urls()
    world.clock.move(18)
    assert [] == world.urls()
    world.clock.move(1)
    assert (["http://b.com/2"], []) == (world.urls(), recount(world.frontier))


@ENDS
def test_a_block_of_a_crawl_applies_to_hosts_found_later(world, how):
    world.frontier.block_until(START + 30 * MICROSECONDS)
    ended(world, how)
    world.discover(A, Link(B, crawl="other"))
    assert ([B], 30.0) == (world.urls(), world.ready_in())


@pytest.mark.parametrize(("open_ones", "rests"), [(1, 0.3), (2, 1.0)])
def test_a_new_queue_delays_its_host_only_for_requests_that_stay_open(open_ones, rests):
    """With a limit of two, a link makes a second queue of a host in the report that ends its request, 0.7 s ago."""
    world = World(delay=1.0, delay_factor=0)
    world.frontier.set_limit(2)
    world.discover(A, "http://a.com/2")
    leases = []
    for _ in range(open_ones):
        leases += world.lease(1)
        world.clock.move(3)
    assert open_ones == len(leases)
    ended = world.clock() - 700_000
    links = [Link("http://a.com/1", key="k")]
    world.report(Outcome(leases[0].token, Verdict.RETRY, seconds=0.0, error="timeout", ended_at=ended, links=links))
    assert rests == pytest.approx(world.frontier.host("a.com").rest_until / MICROSECONDS - world.clock() / MICROSECONDS)


def test_a_limit_concerns_only_hosts_with_open_requests(monkeypatch):
    """The kernels handle the other hosts: Python would need 100 µs for each."""
    world = World(delay=0)
    world.frontier.set_limit(2)
    one_by_one: list[int] = []
    touch = HostSchedule._touch_one
    monkeypatch.setattr(HostSchedule, "_touch_one", lambda *how: (one_by_one.append(how[1]), touch(*how)))
    world.discover(*[f"http://h{host}.com/{page}" for host in range(20) for page in range(3)])
    assert not one_by_one
    assert [1] * 20 == list(Counter(lease.host for lease in world.lease(20)).values())
    assert len(set(one_by_one)) == 20, "a second request of each host may begin"
    assert [20, 0] == [len(world.lease(20)) for _ in range(2)]


@ENDS
def test_hosts_with_the_limit_of_their_crawl_share_an_object(how):
    """Otherwise Python's garbage collector would visit an object for each host."""
    world = World(delay=0)
    world.frontier.set_limit(2)
    world.discover(*[f"http://h{host}.com/" for host in range(20)])
    ended(world, how)
    world.discover(*[f"http://i{host}.com/" for host in range(20)])
    rules = world.inspect().tables.queues.rules
    assert (40, 1) == (len(rules), len({id(one) for one in rules.values()}))


@ENDS
def test_a_limit_of_a_crawl_applies_to_hosts_found_later(how):
    world = World(delay=0)
    world.frontier.set_limit(2)
    ended(world, how)
    world.discover(*[f"http://a.com/{n}" for n in range(4)])
    assert [1, 1, 0] == [len(world.lease()) for _ in range(3)]


@ENDS
@pytest.mark.parametrize("key", ["a.com", "k"])
def test_an_order_for_a_key_in_all_crawls_applies_to_crawls_made_later(world, how, key):
    told = None if key == "a.com" else key
    world.discover(Link(A, key=told), Link(B, crawl="second"))
    world.frontier.pause(key)
    ended(world, how)
    world.discover(Link("http://a.com/2", key=told, crawl="third"), Link("http://a.com/3", key=told, crawl="second"))
    assert [B] == world.urls()
    world.frontier.resume(key)
    world.discover(Link("http://a.com/4", key=told, crawl="fourth"))
    world.clock.move(1)
    assert 1 == len(world.urls(crawl="fourth"))


@ENDS
@pytest.mark.parametrize("key", ["k", "b.com"])
def test_an_order_for_a_key_in_one_crawl_applies_to_its_hosts_found_later(world, how, key):
    """A host that gets the key later obeys the order, in that crawl alone. The same is true of a key that is another
    host's name, if the order was given before any other host had it."""
    world.discover(Link(A, key="k") if key == "k" else B)
    world.frontier.pause(key, crawl="default")
    ended(world, how)
    world.discover(Link("http://c.com/", key=key), Link("http://d.com/", key=key, crawl="second"))
    assert ["http://d.com/"] == world.urls()
    world.frontier.resume(key, crawl="default")
    world.clock.move(10)
    assert 1 == len(world.urls(crawl="default"))


def test_a_new_queue_of_a_key_copies_its_rules_from_one_queue_and_reads_no_other(world):
    """Reading all of them would need the square of their number."""
    looked_at = []

    class Watched(list):
        def __iter__(self):
            for queue in super().__iter__():
                looked_at.append(queue)
                yield queue

    world.discover(*[Link(f"http://h{n}.com/", key="k") for n in range(9)])
    world.frontier.set_limit(2, "k")
    (group,) = world.inspect().tables.keys.groups.values()
    group.queues = Watched(group.queues)
    world.discover(Link("http://new.com/", key="k"))
    assert (1, [2] * 10) == (len(looked_at), [queue.limit for queue in world.frontier.queues()])


def test_an_order_for_a_host_in_one_crawl_applies_only_there(world):
    world.discover(A)
    world.frontier.pause("a.com", crawl="default")
    world.discover(Link("http://a.com/2", crawl="later"))
    assert ["http://a.com/2"] == world.urls()


def test_a_crawl_that_is_made_again_after_its_deletion_is_not_slowed(world):
    world.discover(Link(A, crawl="one"))
    world.frontier.set_delay(20.0, crawl="one")
    world.frontier.delete(crawl="one")
    world.discover(Link(B, crawl="one"), Link("http://b.com/2", crawl="one"))
    world.report(*[lease.done(seconds=0) for lease in world.lease()])
    assert 1.0 == world.ready_in()


def test_a_later_queue_obeys_the_stricter_of_two_orders(world):
    world.discover(A)
    world.frontier.set_delay(20.0, "a.com")
    world.frontier.set_limit(4, "a.com")
    world.discover(Link(B, crawl="later"))
    world.frontier.set_delay(5.0, crawl="later")
    world.frontier.set_limit(2, crawl="later")
    world.discover(Link("http://a.com/2", crawl="later"))
    (queue,) = [queue for queue in world.frontier.queues() if (queue.crawl, queue.key) == ("later", "a.com")]
    assert (20.0, 2) == (queue.delay_seconds, queue.limit)


def test_robots_txt_of_a_host_found_later_keeps_the_delay_of_its_crawl():
    """The delay after an errand is as long as that after a page."""
    world = World(robots="errands")
    world.frontier.set_delay(20.0)
    world.discover(A)
    (errand,) = world.lease(errands=True)
    world.report(errand.robots(404))
    assert 20.0 == world.ready_in()


# -- a rest under way


@pytest.mark.parametrize("said_of", ["a.com", None])
def test_a_longer_delay_lengthens_a_running_delay(world, said_of):
    """It counts from the end of the last request, and survives a kill."""
    world.discover(A, "http://a.com/2")
    world.report(world.one().done(seconds=0))
    world.clock.move(0.25)
    world.frontier.set_delay(20.0, said_of)
    assert 19.75 == world.ready_in()
    world.kill()
    assert ([], 19.75) == (world.urls(), world.ready_in())


def test_a_longer_delay_does_not_restart_a_delay_that_is_over(world):
    world.discover(A, "http://a.com/2", "http://a.com/3")
    world.report(world.one().done(seconds=0))
    world.clock.move(1)
    world.frontier.set_delay(20.0)
    world.report(world.one().done(seconds=0))
    assert 20.0 == world.ready_in()


def test_a_shorter_delay_does_not_cut_a_running_delay(world):
    world.discover(A, "http://a.com/2")
    world.frontier.set_delay(20.0)
    world.report(world.one().done(seconds=0))
    world.frontier.set_delay(2.0)
    assert 20.0 == world.ready_in()


def test_a_longer_delay_lengthens_the_delay_after_a_lost_lease(world):
    world.discover(A, "http://a.com/2")
    world.lease(1, ttl_seconds=5)
    world.clock.move(5)
    world.lease(0)
    world.clock.move(0.5)
    world.frontier.set_delay(20.0)
    assert 19.5 == world.ready_in()


def test_a_longer_delay_lengthens_the_gap_between_requests_that_are_open_at_once(world):
    world.discover(*[f"http://a.com/{n}" for n in range(4)])
    world.frontier.set_limit(2, "a.com")
    assert 1 == len(world.lease())
    world.clock.move(0.5)
    world.frontier.set_delay(20.0)
    world.clock.move(19)
    assert [] == world.urls()
    world.clock.move(0.5)
    assert 1 == len(world.urls())


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "2", True, 1 << 20])
def test_an_invalid_limit_is_refused(world, wrong):
    world.discover(A)
    with pytest.raises(SettingsError, match="limit"):
        world.frontier.set_limit(wrong, "a.com")


@pytest.mark.parametrize("wrong", [-1, float("nan"), "1", 1e9])
def test_an_invalid_delay_is_refused(world, wrong):
    world.discover(A)
    with pytest.raises(SettingsError, match="delay"):
        world.frontier.set_delay(wrong, "a.com")


# -- delete


def test_a_deleted_queue_leaves_no_trace(world):
    world.discover(A, "http://a.com/2", B)
    assert 1 == world.frontier.delete("a.com")
    assert (1, "unknown", [B]) == (world.frontier.statistics()["accepted"], world.state(A), world.urls())
    assert [] == recount(world.frontier)


def test_urls_of_a_deleted_queue_can_be_discovered_again(world):
    world.discover(A)
    world.report(world.one().done())
    world.frontier.delete("a.com")
    assert (["new"], ["known"]) == (world.discover(A), world.discover(A))
    world.clock.move(60)
    assert [A] == world.urls()


def test_a_deletion_survives_a_kill_and_a_checkpoint(world):
    world.discover(A, "http://a.com/2", B)
    world.report(*[lease.done() for lease in world.lease()])
    world.frontier.checkpoint()
    world.frontier.delete("a.com")
    world.kill()
    assert ("unknown", {"done": 1}) == (world.state(A), world.counts())
    world.frontier.checkpoint()
    world.kill()
    assert ("unknown", {"done": 1}, ["new"]) == (world.state(A), world.counts(), world.discover(A))
    assert [] == recount(world.frontier)


def test_waiting_and_parked_urls_of_a_deleted_queue_do_not_return():
    world = World(max_pages_per_host=1)
    world.discover(Link("http://a.com/later", not_before=START + MICROSECONDS), A, "http://a.com/2")
    world.report(world.one().done())
    world.clock.move(5)
    world.lease()
    assert {"done": 1, "parked": 2} == world.counts()
    world.frontier.delete("a.com")
    world.reopen(max_pages_per_host=10)
    world.clock.move(100)
    assert ([], {}, []) == (world.urls(), world.counts(), recount(world.frontier))


def test_a_lease_of_a_deleted_queue_delays_its_host_and_is_stale(world):
    world.discover(A)
    lease = world.one()
    world.frontier.delete("a.com")
    assert {} == world.counts()
    world.discover("http://a.com/2")
    assert [] == world.urls()
    assert ["stale"] == world.report(lease.done(seconds=2.0))
    assert (20.0, {"queued": 1}, []) == (world.ready_in(), world.counts(), recount(world.frontier))


def test_a_deleted_crawl_does_not_affect_other_crawls_and_can_be_made_again(world):
    world.discover(A, Link(A, crawl="other"), Link(B, crawl="other"))
    assert 2 == world.frontier.delete(crawl="other")
    assert ({"queued": 1}, ["new"]) == (world.counts(), world.discover(Link(A, crawl="other")))
    world.kill()
    assert ({"queued": 2}, []) == (world.counts(), recount(world.frontier))
    assert ["unknown", "queued"] == [world.frontier.status(url, crawl="other").state for url in (B, A)]


# -- single URLs


def test_a_url_with_a_better_priority_is_leased_first(world):
    world.discover(*[f"http://a.com/{n}" for n in range(3)])
    assert [State.QUEUED] == world.frontier.reprioritise("http://a.com/2", 0.9)
    assert (["http://a.com/2"], 0.9) == (world.urls(), world.frontier.status("http://a.com/2").priority)


def test_many_urls_are_reprioritised_at_once_even_on_disk(world):
    world.discover(*[f"http://a.com/{n}" for n in range(400)])
    states = world.frontier.reprioritise({f"http://a.com/{n}": 0.9 for n in range(390, 400)} | {"http://x.com/": 0.1})
    assert [State.QUEUED] * 10 + [State.UNKNOWN] == states
    world.kill()
    first = []
    for _ in range(10):
        lease = world.one()
        first.append(lease.url)
        world.report(lease.done(seconds=0))
        world.clock.move(1)
    assert [f"http://a.com/{n}" for n in range(390, 400)] == first


def test_a_waiting_url_keeps_its_time_under_another_priority(world):
    world.discover(Link(A, not_before=START + 5 * MICROSECONDS))
    assert [State.WAITING] == world.frontier.reprioritise([A], 1.0)
    assert (5.0, "waiting") == (world.ready_in(), world.state(A))


def test_a_leased_or_done_url_keeps_its_priority(world):
    world.discover(A, B)
    leases = {lease.url: lease for lease in world.lease()}
    world.report(leases[A].done())
    assert [State.DONE, State.LEASED] == world.frontier.reprioritise([A, B], 0.1)


def test_a_priority_that_the_disk_refused_is_unchanged(world, monkeypatch):
    world.discover(A, Link(B, not_before=START + 5 * MICROSECONDS))

    def refused(*_, **__):
        raise StoreFullError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(world.frontier._log, "append", refused)
        with pytest.raises(StoreFullError):
            world.frontier.reprioritise([A, B], 0.9)
    assert ([A], 5.0, []) == (world.urls(), world.ready_in(), recount(world.frontier))


def test_a_deferred_url_waits_until_its_instant(world):
    world.discover(A)
    assert ["ok", "stale"] == [str(c) for c in world.frontier.defer([world.one().token, 5], START + 7 * MICROSECONDS)]
    assert ("waiting", 7.0) == (world.state(A), world.ready_in())
    world.kill()
    world.clock.move(7)
    assert [A] == world.urls()


def test_dead_letters_return_to_their_queues(world):
    world.discover(A, B)
    leases = {lease.url: lease for lease in world.lease()}
    world.report(leases[A].gone(error="timeout"), leases[B].gone(status=404))
    assert (1, "queued", "gone") == (world.frontier.retry(error="timeout"), world.state(A), world.state(B))
    world.kill()
    world.clock.move(10)
    assert ([A], []) == (world.urls(), recount(world.frontier))


def test_dead_letters_of_one_host_return(world):
    world.discover(A, B)
    world.report(*[lease.gone(error="x") for lease in world.lease()])
    assert (1, "gone", "queued") == (world.frontier.retry(host="b.com"), world.state(A), world.state(B))


# -- limits of URLs


def test_above_the_limit_links_are_refused():
    world = World(max_urls=2)
    assert ["new", "new", "over_limit"] == world.discover(A, B, "http://c.com/")
    assert (1, {"queued": 2}) == (world.frontier.statistics()["refused"], world.counts())


def test_copies_of_a_refused_link_are_refused_too():
    """A caller that gets `known` would not send the link again, and it would never be visited."""
    world = World(max_urls=1)
    assert ["new", "over_limit", "over_limit", "known"] == world.discover(A, B, B, A)
    assert (2, {"queued": 1}) == (world.frontier.statistics()["refused"], world.counts())
    world.report(world.one().done())
    assert ["new", "known"] == world.discover(B, B)


@pytest.mark.parametrize("when_full", ["refuse", "drop_lowest"])
def test_copies_of_a_link_refused_by_its_queue_are_refused_too(when_full):
    world = World(max_urls_per_queue=1, when_full=when_full)
    other = "http://a.com/other"
    assert ["new", "new", "over_limit", "known", "over_limit"] == world.discover(B, A, other, B, other)
    assert (["over_limit"], []) == (world.discover(other), recount(world.frontier))


def test_when_there_is_room_again_a_refused_link_is_accepted():
    world = World(max_urls=1)
    world.discover(A, B)
    world.report(world.one().done())
    assert ["new"] == world.discover(B)


def test_each_queue_has_a_limit_of_its_own():
    world = World(max_urls_per_queue=1)
    assert ["new", "over_limit", "new"] == world.discover(A, "http://a.com/2", B)


def test_the_lowest_queued_url_makes_room():
    world = World(max_urls_per_queue=2, when_full="drop_lowest")
    low = [Link(f"http://a.com/{n}", priority=0.1 * n) for n in (1, 2)]
    assert ["new", "new"] == world.discover(*low)
    assert ["new"] == world.discover(Link("http://a.com/best", priority=0.9))
    assert ("gone", "dropped", {"queued": 2, "gone": 1}) == (
        world.state("http://a.com/1"),
        world.reason("http://a.com/1"),
        world.counts(),
    )
    assert (["over_limit"], []) == (world.discover(Link("http://a.com/low", priority=0.0)), recount(world.frontier))


def test_many_urls_replace_as_many_of_lower_classes_in_one_pass_over_the_queue(monkeypatch):
    world = World(max_urls_per_queue=3, when_full="drop_lowest")
    world.discover(*[Link(f"http://a.com/{n}", priority=0.1 * n) for n in (3, 1, 2)])
    looks: list[int] = []
    backlog = world.inspect().tables.urls.backlog
    drain = backlog.drain
    monkeypatch.setattr(backlog, "drain", lambda queue, most: looks.append(queue) or drain(queue, most))
    new = [Link(f"http://a.com/new{n}", priority=priority) for n, priority in enumerate((0.9, 0.05, 0.9, 0.2))]
    assert ["new", "over_limit", "new", "over_limit"] == world.discover(*new)
    assert 1 == len(looks)
    assert ["gone", "gone", "queued"] == [world.state(f"http://a.com/{n}") for n in (1, 2, 3)]
    assert ({"queued": 3, "gone": 2}, []) == (world.counts(), recount(world.frontier))


def test_urls_that_a_refused_call_dropped_are_queued_as_before(monkeypatch):
    world = World(max_urls_per_queue=1, when_full="drop_lowest")
    world.discover(Link(A, priority=0.1))
    with monkeypatch.context() as patch:
        patch.setattr(deciding, "FRAME_PAYLOAD_BYTES_MAX", 10)
        with pytest.raises(SettingsError, match="split it into smaller calls"):
            world.discover(Link("http://a.com/2", priority=0.9))
    assert ("queued", []) == (world.state(A), recount(world.frontier))
    assert [A] == world.lease(1).urls


def test_a_dropped_url_can_be_revived():
    world = World(max_urls_per_queue=1, when_full="drop_lowest")
    world.discover(Link(A, priority=0.1))
    world.discover(Link("http://a.com/2", priority=0.9))
    assert (1, "queued") == (world.frontier.retry(error="dropped"), world.state(A))


def test_the_pressure_shows_how_full_the_frontier_is():
    world = World(max_urls=4, when_full="delay")
    world.discover(*[f"http://a.com/{n}" for n in range(6)])
    assert (1.5, {"queued": 6}) == (world.frontier.pressure(), world.counts())


def test_when_the_memory_for_cards_is_full_queues_are_on_disk():
    world = World(memory_bytes=200_000)
    for start in range(0, 8_000, 1_000):
        world.discover(*[f"http://h{n % 40}.com/{n}" for n in range(start, start + 1_000)])
    for _ in range(200):
        world.lease(0)
        world.discover("http://h0.com/again")
    backlog = world.frontier.statistics()["structures"]["backlog"]
    assert (8_001, True) == (backlog["cards"], backlog["bytes"] < 600_000)


# -- lists


def test_queues_are_listed_in_pieces_during_other_writes(world):
    world.discover(*[f"http://h{n}.com/" for n in range(5)])
    first = world.frontier.queues(limit=3)
    world.discover("http://h9.com/")
    rest = [one.key for one in world.frontier.queues(after=first.cursor, limit=10)]
    assert 3 == len(first)
    assert {f"h{n}.com" for n in range(5)} <= {*rest, *(one.key for one in first)}
    assert len(rest) == len({*rest} - {one.key for one in first})


def test_urls_are_listed_by_state_host_crawl_and_key(world):
    world.discover(A, "http://a.com/2", B, Link(B, crawl="other"), Link("http://a.com/3", key="k"))
    world.report(world.one(key="b.com", crawl="default").done())
    urls = world.frontier.urls
    assert {B} == {status.url for status in urls(state="done")}
    assert {A, "http://a.com/2", "http://a.com/3"} == {status.url for status in urls(host="a.com")}
    assert {("other", B)} == {(status.crawl, status.url) for status in urls(crawl="other")}
    assert {"http://a.com/3"} == {status.url for status in urls(key="k")}
    assert (5, 1, 3, 1) == (
        world.frontier.count(),
        world.frontier.count(state="done"),
        world.frontier.count(host="a.com"),
        world.frontier.count(crawl="other", state="queued"),
    )


def test_a_list_in_pieces_has_each_url_once(world):
    urls = {f"http://h{n % 7}.com/{n}" for n in range(100)}
    world.discover(*urls)
    found, cursor = [], None
    while True:
        piece = world.frontier.urls(after=cursor, limit=9)
        found += [status.url for status in piece]
        cursor = piece.cursor
        world.lease(1)
        if cursor is None:
            break
    assert sorted(urls) == sorted(found)


def test_hosts_show_their_clocks(world):
    world.discover(A, "http://a.com/2", B)
    leases = {lease.url: lease for lease in world.lease()}
    world.report(leases[A].done(seconds=0.5))
    hosts = {host.name: host for host in world.frontier.hosts()}
    assert ("resting", 1, 5.0, "factor", 1) == (
        hosts["a.com"].state,
        hosts["a.com"].queued,
        hosts["a.com"].gap_seconds,
        hosts["a.com"].reason,
        hosts["a.com"].answered,
    )
    assert ("resting", 1) == (hosts["b.com"].state, hosts["b.com"].leased)


# -- why


def test_explain_says_why_a_url_is_not_fetched_now(world):
    world.discover(A, "http://a.com/2", Link(B, not_before=START + MICROSECONDS))
    why = world.frontier.explain
    assert "behind" == why("http://a.com/2").reason_now
    lease = world.one()
    assert ("leased", "host_busy", "waiting") == tuple(why(url).reason_now for url in (A, "http://a.com/2", B))
    world.report(lease.done(seconds=0.3))
    found = why("http://a.com/2")
    assert ("host_resting", START + 3 * MICROSECONDS) == (found.reason_now, found.next_at)
    world.frontier.pause("a.com")
    assert ("paused", "done", "unknown") == tuple(
        why(url).reason_now for url in ("http://a.com/2", A, "http://nobody.com/")
    )


def test_an_idle_frontier_says_why(world):
    idle = world.frontier.explain_idle
    assert "finished" == idle().reason
    world.discover(A, "http://a.com/2")
    assert "ready" == idle().reason
    world.report(world.one().done(seconds=0.3))
    found = idle()
    assert ("resting", 3.0, "a.com", 1, 3.0) == (
        found.reason,
        found.next_seconds,
        found.tail_host,
        found.tail_urls,
        found.tail_seconds,
    )
    assert found.known == sum(found.hosts.values())


def test_hosts_that_wait_with_urls_left_are_listed_with_their_waits(world):
    """`waits` leaves out hosts without URLs, and hosts that may be visited now."""
    world.discover(A, B, "http://c.com/", "http://d.com/")
    leases = {lease.host: lease for lease in world.lease(10)}
    world.report(leases["a.com"].retry(retry_after_seconds=60, seconds=0.1, status=503, error="http_503"))
    world.report(leases["b.com"].done(seconds=0.1), leases["c.com"].done(seconds=0.1, links=["http://c.com/2"]))
    world.report(leases["d.com"].retry(retry_after_seconds=90_000, seconds=0.1, status=503, error="http_503"))
    found = world.frontier.waits()
    assert (3, ["c.com", "a.com", "d.com"]) == (found.hosts, [one.name for one in found.soonest])
    assert ([1, 1, 1], [False, True, True]) == ([w.urls for w in found.soonest], [w.asked for w in found.soonest])
    assert (60.0, 90_000.0) == (found.soonest[1].seconds, found.longest_seconds)
    assert 60.0 == world.frontier.waits(within_seconds=60).longest_seconds
    assert ["d.com"] == [one.name for one in world.frontier.waits(beyond_seconds=60).soonest]
    assert Waits(0, 0.0, ()) == world.frontier.waits(beyond_seconds=1e6)
    world.kill()
    assert ["a.com", "d.com"] == [one.name for one in world.frontier.waits(beyond_seconds=10).soonest]


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), "1", True, None])
def test_a_wait_is_a_duration(world, value):
    with pytest.raises(SettingsError, match="beyond_seconds"):
        world.frontier.waits(beyond_seconds=value)


# -- outcomes in columns


def test_outcomes_in_columns_mean_the_same_as_single_outcomes(world):
    world.discover(*[f"http://h{n}.com/" for n in range(4)])
    leases = world.lease()
    batch = OutcomeBatch(
        leases.tokens, ["done", "gone", "retry", "done"], seconds=[0.1, 0.1, None, 2.0], statuses=[200, 404, 0, 304]
    )
    assert ["ok"] * 4 == [str(code) for code in world.frontier.report(batch)]
    assert ["done", "gone", "waiting", "done"] == world.states(leases.urls)
    other = World()
    other.discover(*[f"http://h{n}.com/" for n in range(4)])
    a, b, c, d = other.lease()
    other.report(a.done(seconds=0.1), b.gone(status=404, seconds=0.1), c.retry(), d.done(seconds=2.0, status=304))
    assert {(h.name, h.rest_until, h.gap_seconds, h.answered) for h in other.frontier.hosts()} == {
        (h.name, h.rest_until, h.gap_seconds, h.answered) for h in world.frontier.hosts()
    }


def test_a_token_named_twice_in_columns_counts_once(world):
    world.discover(A)
    token = world.one().token
    assert ["ok", "stale"] == [str(code) for code in world.frontier.report(OutcomeBatch([token, token]))]


@pytest.mark.parametrize(
    "wrong",
    [
        OutcomeBatch([1], "nonsense"),
        OutcomeBatch([1, 2], ["done"]),
        OutcomeBatch([1], seconds=[float("inf")]),
        OutcomeBatch([1], statuses=[1_000]),
        OutcomeBatch(["x"]),
        OutcomeBatch([[1]]),
    ],
)
def test_invalid_columns_are_refused(world, wrong):
    with pytest.raises(SettingsError):
        world.frontier.report(wrong)


def test_a_new_queue_of_a_key_obeys_the_last_order_even_if_it_removes_a_rule(world):
    """The last rule of any queue was once removed, and a new queue of the key got the delay of the order before."""
    world.discover(Link("http://a.com/", key="k"))
    world.frontier.set_delay(3.0, "k")
    world.frontier.set_delay(None, "k", crawl="default")
    world.discover(Link("http://b.com/", key="k"))
    assert [None, None] == [queue.delay_seconds for queue in world.frontier.queues() if queue.key == "k"]
