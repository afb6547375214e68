"""The second verb: order, tokens, trains, workers, limits, keys. No URL is leased early or twice."""

from __future__ import annotations

import random

import numpy as np
import pytest

from limiting import set_limits
from model.inside import inspect
from model.world import START, World, outcome, recount
from outrider import Frontier, Link
from outrider.clock import instant, seconds
from outrider.errors import SettingsError
from outrider.frontier.priority import checked, class_of
from outrider.frontier.schedule.host_schedule import NOT_ALONE
from outrider.frontier.stores.tailed_backlog import TailedBacklog
from outrider.journey import Kind, Outcome, Verdict
from outrider.limits import ERROR_CLASSES_MAX, MICROSECONDS
from outrider.storage.memory import MemoryFiles

A = "http://a.com/"


@pytest.fixture
def world():
    return World()


def drain(world: World, most: int = 1 << 30) -> list[str]:
    """Returns all URLs, or at most `most`, in the order of their leases."""
    urls: list[str] = []
    while not world.frontier.finished() and len(urls) < most:
        for lease in world.lease(1):
            urls.append(lease.url)
            world.report(lease.done(seconds=0))
        world.clock.move(world.ready_in() or 0)
    return urls


# -- order


def test_a_better_class_is_leased_first(world):
    world.discover(
        Link("http://a.com/low", priority=0.1), Link("http://a.com/high", priority=0.9), "http://a.com/middle"
    )
    assert ["http://a.com/high", "http://a.com/middle", "http://a.com/low"] == drain(world)


def test_within_a_class_the_earlier_due_date_is_first(world):
    world.discover(Link("http://a.com/later", not_before=START - 5), Link("http://a.com/sooner", not_before=START - 10))
    assert ["http://a.com/sooner", "http://a.com/later"] == drain(world)


def test_within_a_due_date_the_order_of_discovery_counts(world):
    urls = [f"http://a.com/{n}" for n in (3, 1, 4, 15, 9, 2, 6)]
    world.discover(*urls)
    assert urls == drain(world)


def test_the_order_of_discovery_survives_a_kill(world):
    urls = [f"http://a.com/{n}" for n in (3, 1, 4, 15, 9, 2, 6)]
    world.discover(*urls)
    lease = world.one()
    world.frontier.release([lease.token])
    world.kill()
    assert urls == drain(world)


def test_a_returned_url_is_leased_next_again(world):
    """It keeps its place among those of the same due date."""
    world.discover(A, "http://a.com/2")
    world.frontier.release([world.one().token])
    assert A == world.one().url


def test_a_url_whose_lease_expired_waits_after_its_class(world):
    """It may kill its holders: the other URLs of its class are leased first, those of lower classes are not."""
    world.discover(A, "http://a.com/2", "http://a.com/3", Link("http://a.com/low", priority=0.1))
    world.one(ttl_seconds=30)
    world.clock.move(40)
    world.lease(0)
    world.clock.move(0.000001)
    world.discover("http://a.com/4")
    assert ["http://a.com/2", "http://a.com/3", A, "http://a.com/4", "http://a.com/low"] == drain(world)


def test_a_url_whose_holder_died_waits_after_its_class(world):
    """Also after URLs that were found at the very instant of the death, and through further ends of any kind."""
    world.discover(A, "http://a.com/2", "http://a.com/3")
    world.one()
    world.kill()
    world.clock.move(2)
    world.one(worker="w", ttl_seconds=30)
    world.clock.move(40)
    world.lease(0)
    world.frontier.checkpoint()
    world.kill()
    assert ["http://a.com/3", A, "http://a.com/2"] == drain(world)


def test_a_lost_url_waits_after_its_class_on_disk_too(monkeypatch):
    """The order of a queue is the same over memory and disk, before and after a recovery."""
    for name in ("head_cards_max", "chunk_cards"):
        monkeypatch.setitem(TailedBacklog.__init__.__kwdefaults__, name, 2)
    world = World()
    urls = [f"http://a.com/{n}" for n in range(20)]
    world.discover(*urls)
    world.one(ttl_seconds=30)
    world.clock.move(40)
    world.lease(0)
    some = drain(world, 3)
    assert world.inspect().tables.urls.backlog.statistics()["cards_on_disk"], "some lie on disk"
    world.kill()
    assert urls[1:] + urls[:1] == some + drain(world)


def test_high_classes_are_drawn_more_often_than_low_ones():
    world = World(delay=0)
    for n in range(100):
        world.discover(*[Link(f"http://h{n}.com/{p}", priority=p) for p in (0.96,)])
        world.discover(Link(f"http://l{n}.com/", priority=0.6))
    first = [lease.priority for lease in world.lease(50)]
    assert first.count(0.96) > 35


def test_the_same_seed_draws_the_same_urls(world):
    links = [Link(f"http://h{n}.com/", priority=n / 40) for n in range(40)]

    def order(seed: int) -> list[str]:
        other = World(seed=seed)
        other.discover(*links)
        return other.urls()

    assert order(7) == order(7)
    assert order(7) != order(8)


@pytest.mark.parametrize(("priority", "klass"), [(0.0, 0), (0.0624, 0), (0.0625, 1), (0.5, 8), (0.9999, 15), (1.0, 15)])
def test_a_priority_has_a_class(priority, klass):
    assert klass == class_of(priority)


def test_the_default_priority_is_one_half():
    assert 0.5 == checked(None)


# -- tokens and deadlines


def test_the_tokens_of_one_call_are_consecutive_and_name_it(world):
    world.discover(*[f"http://h{n}.com/" for n in range(5)])
    batch = world.lease()
    assert list(range(batch.tokens[0], batch.tokens[0] + 5)) == batch.tokens
    assert batch.tokens[0] == batch.lease_id


def test_tokens_grow_across_openings(world):
    world.discover(*[f"http://h{n}.com/" for n in range(4)])
    tokens = []
    for step in (world.reopen, world.kill, world.reopen):
        tokens += world.lease(1).tokens
        step()
    tokens += world.lease(1).tokens
    assert sorted(set(tokens)) == tokens


def test_a_lease_contains_all_facts_for_a_fetch(world):
    world.discover(Link("http://a.com:8080/x", priority=0.7, depth=2, referrer="http://r.com/"))
    lease = world.one(ttl_seconds=30)
    assert ("http://a.com:8080/x", "a.com", Kind.PAGE, "http://a.com:8080", "a.com", 0.7, 2, 1, "http://r.com/") == (
        lease.url, lease.key, lease.kind, lease.authority, lease.host, lease.priority, lease.depth, lease.attempt,
        lease.referrer,
    )  # fmt: skip
    assert (START + instant(30), START) == (lease.deadline, lease.not_before)


def test_an_empty_batch_is_falsy(world):
    assert not world.lease()


def test_an_empty_frontier_has_no_ready_urls(world):
    assert None is world.ready_in()


def test_a_request_for_no_urls_returns_no_leases(world):
    world.discover(A)
    assert ([], 0.0) == (world.urls(0), world.ready_in())


@pytest.mark.parametrize(
    "how",
    [
        {"want": -1}, {"want": True}, {"want": 1.5}, {"want": "3"}, {"want": 1_000_001}, {"per_queue": 0},
        {"per_queue": True}, {"ttl_seconds": 0}, {"ttl_seconds": float("nan")}, {"ttl_seconds": 86_401},
        {"ttl_seconds": "60"}, {"worker": ""}, {"worker": 7}, {"key": 7}, {"crawl": ""}, {"request_id": 7},
        {"request_id": ("a", -1)}, {"request_id": (None, 1)}, {"request_id": ("", 1)}, {"request_id": ("a", True)},
        {"request_id": ("a", 1, 2)}, {"worker": "w" * 1_025},
    ],
)  # fmt: skip
def test_an_invalid_request_is_refused_and_changes_no_state(world, how):
    world.discover(A)
    with pytest.raises(SettingsError):
        world.lease(**how)
    assert [A] == world.urls()


# -- not early, not twice


def test_a_url_is_leased_to_one_caller_at_a_time(world):
    world.discover(A)
    assert (1, 0) == (len(world.lease()), len(world.lease()))


def test_a_host_is_leased_to_one_caller_at_a_time(world):
    world.discover(A, "http://a.com/2")
    assert (1, 0) == (len(world.lease()), len(world.lease()))


def test_a_host_waits_after_a_fetch(world):
    world.discover(A, "http://a.com/2")
    world.report(world.one().done(seconds=0))
    assert ([], 1.0) == (world.urls(), world.ready_in())
    world.clock.move(0.999999)
    assert [] == world.urls()
    world.clock.move(0.000001)
    assert ["http://a.com/2"] == world.urls()


def test_other_hosts_do_not_wait_for_a_host_in_its_delay(world):
    world.discover(A, "http://a.com/2", "http://b.com/")
    world.report(*[lease.done(seconds=0) for lease in world.lease(1)])
    assert 1 == len(world.lease())


@pytest.mark.parametrize("seed", range(6))
def test_no_url_is_leased_before_its_time(seed):
    """Random traffic on few hosts: the required gap separates the end of a request and the next lease of its host."""
    rng = random.Random(seed)
    delay, factor = rng.choice([(1.0, 10.0), (0.5, 0.0), (0.0, 3.0)])
    world = World(delay=delay, delay_factor=factor, seed=seed)
    rest_until: dict[str, int] = {}
    open_leases = []
    for turn in range(400):
        world.discover(*[Link(f"http://h{rng.randrange(6)}.com/{turn}-{n}", priority=rng.random()) for n in range(3)])
        for lease in world.lease(rng.randrange(4), ttl_seconds=20):
            assert lease.not_before >= rest_until.get(lease.host, 0), lease
            assert all(lease.host != other.host for other in open_leases), lease
            open_leases.append(lease)
        rng.shuffle(open_leases)
        for lease in [open_leases.pop() for _ in range(rng.randrange(len(open_leases) + 1))]:
            took = rng.choice([0.0, 0.1, 2.0, 30.0])
            retry_after = rng.choice([None, None, None, 5.0, 50.0])
            report = outcome(
                lease, rng.choice(["done", "retry"]), seconds=took, status=200, retry_after_seconds=retry_after
            )
            ended = world.clock()
            if world.report(report) == ["ok"]:
                gap = max(delay, min(factor * took, 60.0), retry_after or 0.0)
                rest_until[lease.host] = max(rest_until.get(lease.host, 0), ended + instant(gap))
            else:
                # It expired at some earlier instant. Its host waits one delay, from the instant of its notice at the
                # latest.
                rest_until.pop(lease.host, None)
        world.clock.move(rng.choice([0, 0.01, 0.3, 1, 5]))
        now = world.clock()
        open_leases = [lease for lease in open_leases if lease.deadline > now]
    assert [] == recount(world.frontier)


def test_the_next_instant_is_when_a_url_can_be_leased(world):
    """A caller that sleeps exactly `next_ready_seconds` gets a lease, and never calls in vain."""
    rng = random.Random(3)
    world.discover(*[f"http://h{rng.randrange(5)}.com/{n}" for n in range(60)])
    fetched = 0
    while not world.frontier.finished():
        leases = world.lease()
        assert leases, "asked in vain"
        fetched += len(leases)
        world.report(*[lease.done(seconds=rng.choice([0, 0.1, 0.5])) for lease in leases])
        world.clock.move(world.ready_in() or 0)
    assert 60 == fetched


# -- trains


def test_each_ready_host_leases_a_url_before_any_leases_a_train(world):
    world.discover(*(f"http://h{host}.com/{page}" for host in range(4) for page in range(5)))
    given = [lease.host for lease in world.lease(6, per_queue=4)]
    assert ([1, 1, 2, 2], 4) == (sorted(map(given.count, set(given))), len(set(given)))


def test_a_host_whose_first_url_is_refused_is_drawn_again_after_another_hosts_train(world):
    """The train uses the last lease of the call. No other event would make the host ready again."""
    world.discover("http://a.com/1", "http://a.com/2", "http://b.com/no", "http://b.com/2")
    world.frontier.set_robots("http://b.com", 200, b"User-agent: *\nDisallow: /no")
    assert ["http://a.com/1", "http://a.com/2"] == world.urls(2, per_queue=2)
    assert ["http://b.com/2"] == world.urls()


def test_short_queues_leave_the_rest_of_a_call_to_other_queues(world):
    """A queue is allowed four leases and has one URL: the other three leases are for other queues."""
    world.discover(*(f"http://h{host}.com/" for host in range(8)))
    assert 8 == len(world.lease(10, per_queue=4))
    assert 0 == len(world.lease(10, per_queue=4))


def test_few_queues_fill_the_request_where_their_number_is_bounded(world):
    """A caller with places for two hosts that leases many pages of each gets no page of a third host."""
    world.discover(*(f"http://{host}.com/{number}" for host in "abcd" for number in range(6)))
    first = [lease.host for lease in world.lease(8, per_queue=4, queues_max=2)]
    assert [4, 4] == [first.count(host) for host in dict.fromkeys(first)]
    second = [lease.host for lease in world.lease(100, per_queue=100, queues_max=1)]
    assert 6 == len(second)
    assert 1 == len(set(second))
    assert set(second).isdisjoint(first)


def test_a_round_leases_the_allowed_number_of_each_queue(world):
    """Trains are in order where a queue has few cards, and where the call wants fewer than all queues may lease."""
    world.discover(*(f"http://a.com/{number}" for number in range(3)))
    world.discover(*(f"http://b.com/{number}" for number in range(9)))
    leases = world.lease(10, per_queue=8)
    by_host = {host: [lease for lease in leases if lease.host == host] for host in ("a.com", "b.com")}
    assert [3, 7] == [len(train) for train in by_host.values()]
    for host, train in by_host.items():
        assert [f"http://{host}/{number}" for number in range(len(train))] == [lease.url for lease in train]
        assert sorted({lease.not_before for lease in train}) == [lease.not_before for lease in train]


@pytest.mark.parametrize("queues_max", [0, -1, True, "2", 1_000_001])
def test_an_invalid_number_of_queues_is_refused(world, queues_max):
    with pytest.raises(SettingsError, match="queues_max"):
        world.lease(1, queues_max=queues_max)


def test_a_train_has_at_most_per_queue_leases_of_one_queue(world):
    world.discover(*[f"http://a.com/{n}" for n in range(5)], "http://b.com/")
    hosts = [lease.host for lease in world.lease(per_queue=3)]
    assert {"a.com": 3, "b.com": 1} == {host: hosts.count(host) for host in hosts}


def test_the_waggons_of_a_train_are_a_gap_apart():
    world = World(delay=2)
    world.discover(*[f"http://a.com/{n}" for n in range(3)])
    assert [0.0, 2.0, 4.0] == [seconds(lease.not_before - START) for lease in world.lease(per_queue=3)]


def test_the_waggons_of_a_train_are_a_crawl_delay_apart(world):
    world.discover(*[f"http://a.com/{n}" for n in range(3)])
    world.frontier.set_robots("http://a.com", 200, b"User-agent: *\nCrawl-delay: 7")
    assert [0.0, 7.0, 14.0] == [seconds(lease.not_before - START) for lease in world.lease(per_queue=3)]


def test_a_host_is_not_ready_until_its_whole_train_is_reported(world):
    world.discover(*[f"http://a.com/{n}" for n in range(4)])
    first, second = world.lease(per_queue=2)
    world.report(first.done(seconds=0))
    world.clock.move(10)
    assert [] == world.urls()
    world.report(second.done(seconds=0))
    world.clock.move(1)
    assert ["http://a.com/2"] == world.urls()


def test_a_train_is_no_longer_than_the_request(world):
    world.discover(*[f"http://a.com/{n}" for n in range(5)])
    assert 2 == len(world.lease(2, per_queue=4))


def test_a_train_ends_before_its_leases_expire(world):
    """A waggon that may only be fetched after its deadline would be lost, and after three losses gone."""
    world.discover(*[f"http://a.com/{n}" for n in range(9)])
    world.frontier.set_robots("http://a.com", 200, b"User-agent: *\nCrawl-delay: 30")
    assert [0.0, 30.0] == [seconds(lease.not_before - START) for lease in world.lease(per_queue=9, ttl_seconds=60)]


def test_a_refusal_within_a_train_is_kept_after_the_next_outcome(world):
    world.discover(*[f"http://a.com/{n}" for n in range(3)])
    first, second = world.lease(per_queue=2)
    world.report(first.retry(status=503, refused=True, seconds=0.1), second.done(seconds=0.1))
    assert [4.0] == [host.back_off_seconds for host in world.frontier.hosts()]


# -- workers


@pytest.mark.parametrize("off", [-3_600.0, -1.5, 0.0, 3_600.0])
def test_the_clock_of_a_worker_shortens_no_gap(off):
    """A worker whose clock was 1.5 s slow once had its host visited at the instant of its report."""
    world = World(delay=1.0)
    world.discover("http://a.com/1", "http://a.com/2")
    lease = world.one(worker="w")
    world.clock.move(10)
    ended = world.clock() + round(off * 1_000_000)
    world.report(outcome(lease, seconds=0.1, status=200, ended_at=ended))
    assert (1.0, []) == (world.ready_in(), world.urls())


def test_the_clock_of_an_errands_worker_shortens_no_gap():
    """The same for an errand."""
    world = World(robots="errands", delay=1.0)
    world.discover("http://a.com/1")
    (lease,) = world.lease(errands=True, worker="w")
    world.clock.move(10)
    world.report(outcome(lease, robots=lease.robots(404).robots, ended_at=world.clock() - 1_500_000))
    assert (1.0, []) == (world.ready_in(), world.urls())


def test_the_end_of_a_request_of_this_process_is_an_instant_of_its_own_clock(world):
    """A late report does not delay the host again."""
    world.discover("http://a.com/1", "http://a.com/2")
    lease = world.one()
    world.clock.move(10)
    world.report(outcome(lease, seconds=0.1, status=200, ended_at=world.clock() - 1_500_000))
    assert ["http://a.com/2"] == world.urls()


def test_a_named_workers_lease_survives_a_kill(world):
    world.discover(A)
    lease = world.one(worker="w1", ttl_seconds=100)
    world.kill()
    assert ("leased", ["ok"]) == (world.state(A), world.report(lease.done()))


def test_a_named_workers_lease_survives_a_clean_stop(world):
    world.discover(A)
    lease = world.one(worker="w1", ttl_seconds=100)
    world.reopen()
    assert ["ok"] == world.report(lease.done())


def test_a_named_workers_lease_ends_at_its_deadline_after_a_kill_too(world):
    world.discover(A)
    world.one(worker="w1", ttl_seconds=100)
    world.kill()
    assert 100.0 == world.ready_in()
    world.clock.move(100)
    world.lease(0)
    assert ("queued", 1.0) == (world.state(A), world.ready_in())


def test_the_own_leases_of_a_dead_process_end(world):
    world.discover(A)
    world.one()
    world.kill()
    assert ("queued", 1) == (world.state(A), world.frontier.opening.leases_ended)


def test_the_hosts_of_a_dead_process_wait_one_whole_delay():
    world = World(delay=4)
    world.discover(A, "http://b.com/")
    world.one()
    world.clock.move(3)
    world.kill()
    assert 1 == len(world.lease())
    assert 4.0 == world.ready_in()


def test_a_clean_stop_ends_own_leases_and_their_hosts_wait(world):
    world.discover(A)
    world.one()
    world.reopen()
    assert ("queued", 1.0) == (world.state(A), world.ready_in())


def test_a_host_in_its_delay_at_a_kill_continues_its_delay(world):
    world.discover(A, "http://a.com/2")
    world.report(world.one().done(seconds=3))
    world.clock.move(10)
    world.kill()
    assert 20.0 == world.ready_in()


def test_deadlines_of_ended_leases_do_not_accumulate(world, monkeypatch):
    set_limits(monkeypatch, DEADLINES_KEPT_MAX=20)
    world.discover(*[f"http://h{n}.com/" for n in range(200)])
    open_lease = world.one(ttl_seconds=5_000)
    while leases := world.lease(5, ttl_seconds=86_400):
        world.report(*[lease.done(seconds=0) for lease in leases])
    assert len(world.inspect().core.gates.deadlines) < 40
    assert [] == recount(world.frontier)
    world.clock.move(5_000)
    assert ["stale"] == world.report(open_lease.done())


# -- stale tokens


def test_a_token_that_was_reported_is_stale(world):
    world.discover(A)
    lease = world.one()
    world.report(lease.done())
    assert ["stale"] == world.report(lease.gone(status=404))
    assert "done" == world.state(A)


def test_a_token_twice_in_one_call_is_stale_the_second_time(world):
    world.discover(A)
    lease = world.one()
    assert ["ok", "stale"] == world.report(lease.done(), lease.gone(status=404))
    assert "done" == world.state(A)


def test_an_unknown_token_is_stale(world):
    world.discover(A)
    lease = world.one()
    assert ["stale"] == world.report(outcome(lease, "done").__class__(lease.token + 1, outcome(lease).verdict))


def test_an_own_token_of_an_earlier_opening_is_stale(world):
    world.discover(A)
    lease = world.one()
    world.kill()
    before = world.frontier.statistics()["urls"]
    assert ["stale"] == world.report(lease.done())
    assert before == world.frontier.statistics()["urls"]


def test_a_token_with_an_expired_lease_is_stale_and_the_url_can_be_leased_again(world):
    world.discover(A)
    old = world.one(ttl_seconds=10)
    world.clock.move(10)
    assert ["stale"] == world.report(old.done())
    world.clock.move(1)
    new = world.one()
    assert (["stale"], ["ok"]) == (world.report(old.done()), world.report(new.done()))


def test_stale_outcomes_are_counted(world):
    world.discover(A)
    lease = world.one()
    world.report(lease.done(), lease.done())
    assert 1 == world.frontier.statistics()["stale"]


def test_extending_or_returning_a_stale_token_is_answered_with_stale(world):
    world.discover(A)
    lease = world.one()
    world.report(lease.done())
    assert (["stale"], ["stale"]) == (
        world.frontier.extend([lease.token], 60), world.frontier.release([lease.token]),
    )  # fmt: skip


def test_lost_leases_are_counted(world):
    world.discover(A)
    world.one()
    world.kill()
    assert 1 == world.frontier.statistics()["lost"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"seconds": float("nan")}, {"seconds": float("inf")}, {"seconds": "1"}, {"retry_after_seconds": float("inf")},
        {"after_seconds": float("nan")}, {"status": 70_000}, {"status": -1}, {"status": "200"}, {"ended_at": 1.5},
        {"at": 1 << 70}, {"bytes_read": -1}, {"bytes_read": None}, {"error": 7}, {"error": "x" * 201}, {"digest": "x"},
        {"line": "x"}, {"location": b"x"}, {"etag": 7}, {"metadata": {"x": object()}},
    ],
)  # fmt: skip
def test_an_outcome_that_cannot_be_stored_is_refused_and_changes_no_state(world, wrong):
    world.discover(A)
    lease = world.one()
    with pytest.raises(SettingsError):
        world.report(outcome(lease, **wrong))
    assert ["ok"] == world.report(lease.done())


def test_a_value_of_another_type_is_refused_as_an_outcome(world):
    with pytest.raises(SettingsError, match="is not an outcome"):
        world.frontier.report([7])


def test_error_classes_beyond_the_limit_are_counted_together(world):
    world.discover(*[f"http://h{n}.com/" for n in range(300)])
    leases = world.lease(300)
    world.report(*[lease.gone(error=f"e{n}") for n, lease in enumerate(leases)])
    errors: dict[str, int] = world.frontier.statistics()["errors"]
    assert (300, ERROR_CLASSES_MAX + 1, 300 - ERROR_CLASSES_MAX) == (
        sum(errors.values()), len(errors), errors["other"],
    )  # fmt: skip


# -- budgets


def test_max_pages_is_never_exceeded_by_open_leases():
    world = World(max_pages=3)
    world.discover(*[f"http://h{n}.com/" for n in range(10)])
    first = world.lease(2)
    assert (1, 0) == (len(world.lease()), len(world.lease()))
    world.report(*[lease.done() for lease in first])
    assert 0 == len(world.lease())


def test_a_page_that_was_not_answered_does_not_count_against_max_pages():
    world = World(max_pages=1)
    world.discover(A, "http://b.com/")
    world.report(world.one().retry(error="connect"))
    assert 1 == len(world.lease())


def test_a_redirect_counts_against_max_pages():
    world = World(max_pages=1)
    world.discover(A)
    world.report(world.one().done(status=301, location="http://b.com/"))
    assert ([], True) == (world.urls(), world.frontier.at_limit())


def test_at_the_limit_with_work_left_a_crawl_is_at_its_limit():
    world = World(max_pages=1)
    world.discover(A, "http://b.com/")
    world.report(world.one().done())
    assert (True, False) == (world.frontier.at_limit(), world.frontier.finished())


def test_at_the_limit_with_no_work_left_a_crawl_is_finished():
    world = World(max_pages=1)
    world.discover(A)
    world.report(world.one().done())
    assert (False, True) == (world.frontier.at_limit(), world.frontier.finished())


def test_max_pages_counts_across_openings():
    world = World(max_pages=2)
    world.discover(*[f"http://h{n}.com/" for n in range(5)])
    world.report(world.one().done())
    world.kill()
    assert 1 == len(world.lease())


def test_when_open_leases_fill_the_budget_the_next_one_is_ready_when_one_ends():
    world = World(max_pages=1)
    world.discover(A, "http://b.com/")
    world.one(ttl_seconds=40)
    assert 40.0 == world.ready_in()


def test_when_the_budget_is_spent_waiting_gets_no_lease():
    world = World(max_pages=1)
    world.discover(A, "http://b.com/")
    world.report(world.one().done())
    assert None is world.ready_in()


def test_max_pages_per_host_parks_the_rest():
    world = World(max_pages_per_host=2, delay=0)
    world.discover(*[f"http://a.com/{n}" for n in range(5)], "http://b.com/")
    while leases := world.lease():
        world.report(*[lease.done(seconds=0) for lease in leases])
    assert ({"done": 3, "parked": 3}, True) == (world.counts(), world.frontier.at_limit())


def test_a_train_does_not_exceed_max_pages_per_host_and_parks_no_url_too_early():
    """URLs beyond the open leases are not parked yet: a lease may end without an answer and leave its page."""
    world = World(max_pages_per_host=2, delay=0)
    world.discover(*[f"http://a.com/{n}" for n in range(4)])
    train = world.lease(per_queue=4)
    world.report(*[lease.gone(error="connect") for lease in train])
    assert (2, 2) == (len(train), len(world.lease(per_queue=4)))


def test_requests_in_flight_count_against_max_pages_per_host():
    """With a limit of two at once, nine open leases and one answered page left: the host gets one more request."""
    world = World(max_pages_per_host=3, delay=0)
    world.discover(*[f"http://a.com/{n}" for n in range(10)])
    world.frontier.set_limit(5, "a.com")
    first = [lease for _ in range(10) for lease in world.lease()]
    assert (3, None is not world.ready_in(), 0) == (len(first), True, len(world.lease(per_queue=4)))
    world.report(first[0].gone(error="connect"), first[1].done())
    assert [1, 0] == [len(world.lease()) for _ in range(2)], "the one that was not answered gave its page back"


def test_while_requests_in_flight_may_use_the_whole_budget_no_caller_is_sent_back_at_once():
    world = World(max_pages_per_host=2, delay=0)
    world.discover(*[f"http://a.com/{n}" for n in range(4)])
    world.frontier.set_limit(3, "a.com")
    assert (2, 60.0) == (len(world.lease()) + len(world.lease()), world.ready_in())


def test_max_pages_counts_what_was_in_flight_when_its_crawl_was_deleted():
    """Leases of a deleted crawl are requests like any other, before and after their reports."""
    world = World(max_pages=3)
    world.discover(*[Link(f"http://h{n}.com/", crawl="old") for n in range(2)])
    flying = world.lease()
    world.frontier.delete(crawl="old")
    world.discover(*[Link(f"http://n{n}.com/", crawl="new") for n in range(5)])
    assert (1, 0) == (len(world.lease()), len(world.lease()))
    assert ["stale", "stale"] == world.report(*[lease.done() for lease in flying])
    assert 0 == len(world.lease())
    world.kill()
    world.clock.move(100)
    assert 1 == len(world.lease()), "the open one ended with its process, the two that answered count for ever"


def test_max_pages_counts_the_answered_pages_of_a_deleted_crawl():
    world = World(max_pages=3)
    world.discover(*[Link(f"http://h{n}.com/", crawl="old") for n in range(2)])
    world.report(*[lease.done() for lease in world.lease()])
    world.frontier.delete(crawl="old")
    world.discover(*[Link(f"http://h{n}.com/", crawl="old") for n in range(5)])
    assert 1 == len(world.lease())


# -- when a request ended


@pytest.mark.parametrize("behind", [0.5, 5.0, 86_400.0, 1e9])
def test_a_worker_whose_clock_is_slow_shortens_no_gap(behind):
    """It says that the request ended before it can have started: the whole gap counts from the report on."""
    world = World(delay=2.0)
    world.discover(A, "http://a.com/2")
    lease = world.one()
    world.clock.move(0.4)
    ended = max(0, world.clock() - instant(behind))
    world.report(outcome(lease, seconds=0.0, ended_at=ended))
    assert 2.0 == world.ready_in()


def test_a_named_worker_reports_instants_of_its_own_clock():
    """An end 1.5 s ago looks like a clock that is 1.5 s slow: in doubt the request ended just now."""
    world = World(delay=2.0)
    world.discover(A, "http://a.com/2")
    lease = world.one(worker="w")
    world.clock.move(4)
    world.report(outcome(lease, seconds=0.1, ended_at=world.clock() - instant(1.5)))
    assert 2.0 == world.ready_in()


def test_a_request_that_would_have_started_before_its_lease_ended_just_now():
    world = World(delay=2.0)
    world.discover(A, "http://a.com/2")
    lease = world.one()
    world.clock.move(4)
    world.report(outcome(lease, seconds=0.1, ended_at=world.clock() - instant(3.95)))
    assert 2.0 == world.ready_in()


def test_a_request_whose_reported_end_is_possible_delays_its_host_from_then_on():
    world = World(delay=2.0)
    world.discover(A, "http://a.com/2")
    lease = world.one()
    world.clock.move(4)
    world.report(outcome(lease, seconds=0.1, ended_at=world.clock() - instant(1.5)))
    assert 0.5 == world.ready_in()


# -- several requests to a host at once


def test_a_lease_contains_the_number_of_requests_that_its_host_allows():
    world = World(delay=0, delay_factor=0)
    world.discover(*[f"http://a.com/{number}" for number in range(5)], "http://b.com/")
    capacities = [lease.capacity for lease in world.lease()]
    world.frontier.set_limit(3, "a.com")
    capacities += [lease.capacity for _ in range(3) for lease in world.lease()]
    world.frontier.queue_errands("sitemap", ["http://a.com/s.xml"])
    world.frontier.set_limit(4, "a.com")
    capacities += [lease.capacity for lease in world.lease(errands=True)]
    assert [1, 1, 3, 3, 4] == capacities


def test_the_gap_after_several_requests_counts_from_the_latest_end():
    """The second of two ended first, and is reported last. Its longer delay is kept, and recorded with no other end."""
    world = World(delay=1.0, delay_factor=10.0)
    world.discover(*[f"http://a.com/{number}" for number in range(4)])
    world.frontier.set_limit(2, "a.com")
    first = world.one()
    world.clock.move(1.0)
    second = world.one()
    world.clock.move(0.7)
    ended = world.clock()
    world.report(outcome(first, seconds=0.2, ended_at=ended))
    world.report(outcome(second, seconds=0.5, ended_at=ended - instant(0.1)))
    assert 4.9 == world.ready_in()
    world.clock.move(4.9)
    third = world.one()
    assert (ended, 2.0, "factor", world.clock()) == (
        third.ended_before, third.gap_seconds, third.gap_reason, third.not_before
    )  # fmt: skip


# -- keys


def test_a_key_that_spans_hosts_has_one_turn_at_a_time(world):
    world.discover(Link(A, key="k"), Link("http://b.com/", key="k"), "http://c.com/")
    urls = world.urls()
    assert ({"http://c.com/"}, 2) == (set(urls) - {A, "http://b.com/"}, len(urls))
    assert [] == world.urls()


def test_a_key_that_spans_hosts_has_one_clock():
    world = World(delay=5)
    world.discover(Link(A, key="k"), Link("http://b.com/", key="k"))
    world.report(world.one().done(seconds=0))
    assert 5.0 == world.ready_in()


def test_a_host_with_the_name_of_the_key_shares_its_turns(world):
    """Keys by domain: example.org is both a key and a host."""
    world.discover(Link("http://example.org/", key="example.org"), Link("http://www.example.org/", key="example.org"))
    assert (1, 0) == (len(world.lease()), len(world.lease()))


def test_a_key_begins_to_span_hosts_while_its_namesake_is_leased(world):
    world.discover(Link("http://example.org/", key="example.org"))
    world.one()
    world.discover(Link("http://www.example.org/", key="example.org"))
    assert ([], []) == (world.urls(), recount(world.frontier))


def test_a_keys_clock_survives_a_kill():
    world = World(delay=5)
    world.discover(Link(A, key="k"), Link("http://b.com/", key="k"))
    world.report(world.one().done(seconds=0))
    world.kill()
    assert ([], 5.0) == (world.urls(), world.ready_in())


def test_two_keys_of_one_host_share_its_clock(world):
    world.discover(Link(A, key="k"), Link("http://a.com/2", key="l"))
    assert 1 == len(world.lease())


def test_a_key_that_is_being_visited_does_not_block_other_queues_of_its_hosts(world):
    b, c = "http://b.com/", "http://c.com/"
    world.discover(Link(A, key="k"), Link(b, key="k"), b + "own", Link(c, key="k"), Link(c + "other", crawl="other"))
    assert [A] == world.urls(1, key="k")
    assert {b + "own", c + "other"} == set(world.urls())


def test_a_host_has_any_number_of_keys_and_each_spans_hosts(world):
    """A host belongs to four groups at most, but to any number of keys."""
    world.discover(*[Link(f"{A}{n}", key=f"k{n}") for n in range(6)])
    world.discover(*[Link(f"http://h{n}.com/", key=f"k{n}") for n in range(6)])
    assert ({f"k{n}" for n in range(6)}, []) == ({lease.key for lease in world.lease()}, world.urls())


# -- the clock


def test_the_time_does_not_move_back_with_the_clock(world):
    world.discover(A)
    world.clock.move(-100)
    assert START == world.frontier.now()


def test_a_clock_that_steps_back_delays_visited_hosts_by_one_whole_delay():
    world = World(delay=3)
    world.discover(A, "http://a.com/2")
    world.report(world.one().done(seconds=0))
    world.clock.move(10)
    assert 0.0 == world.ready_in()
    world.clock.move(-5)
    assert ([], 3.0) == (world.urls(), world.ready_in())


def test_a_clock_that_stepped_back_delays_hosts_once_and_not_at_every_call(world):
    world.discover(A, "http://a.com/2")
    world.report(world.one().done(seconds=0))
    world.clock.move(-86_400)
    world.lease(0)
    before = world.frontier.statistics()["log"]
    for _ in range(10):
        world.clock.move(1)
        world.lease(0)
    assert before == world.frontier.statistics()["log"]


def test_a_clock_that_steps_back_delays_hosts_in_frames_of_bounded_size(world, monkeypatch):
    set_limits(monkeypatch, RESTS_PER_FRAME_MAX=2)
    world.discover(*[f"http://h{n}.com/{page}" for n in range(5) for page in range(2)])
    world.report(*[lease.done(seconds=0) for lease in world.lease()])
    world.clock.move(100)
    before = world.frontier.statistics()["log"]["appended_lsn"]
    world.clock.move(-50)
    assert ([], 3) == (world.urls(), world.frontier.statistics()["log"]["appended_lsn"] - before)
    world.clock.move(50 + 1)
    assert 5 == len(world.lease())


def test_a_store_opened_with_a_clock_set_back_continues_at_its_last_instant(world):
    world.discover(A, "http://a.com/2")
    world.clock.move(50)
    world.report(world.one().done(seconds=0))
    world.clock.move(-86_400)
    world.kill()
    assert (START + instant(50), []) == (world.frontier.now(), world.urls())
    assert world.frontier.opening.clock_step_seconds < -86_000


def test_many_waiting_urls_wake_in_bounded_steps(world):
    world.discover(*[Link(f"http://a.com/{n}", not_before=START + MICROSECONDS) for n in range(2_500)])
    world.clock.move(1)
    world.lease(0)
    assert {"queued": 2_000, "waiting": 500} == world.counts()
    assert 0.0 == world.ready_in()
    world.lease(0)
    assert {"queued": 2_500} == world.counts()


# -- looking at hosts


@pytest.mark.parametrize("seed", range(4))
def test_the_kernel_selects_hosts_like_the_plain_code(seed, monkeypatch):
    """Queues whose best class is on disk use another path for the same decisions."""
    rng = random.Random(seed)
    now = [START]
    pair = [
        Frontier.open(MemoryFiles(), clock=lambda: now[0], seed=seed, keys=(b"k" * 16, b"s" * 16), robots="caller")
        for _ in range(2)
    ]
    turns = inspect(pair[1]).turns

    def one_by_one(rows: np.ndarray, now: int) -> None:
        rows = np.unique(rows)
        alone = (turns._tables.hosts.flags[rows] & NOT_ALONE) == 0
        for row in (*rows[~alone].tolist(), *rows[alone].tolist()):
            turns._touch_one(row, now)

    monkeypatch.setattr(turns, "_look", one_by_one)
    names = [f"h{number}.com" for number in range(30)]
    for frontier in pair:
        frontier.discover([f"http://{name}/" for name in names])
        frontier.discover([Link("http://h0.com/", crawl="other")])
    open_ones: list[int] = []
    leased = 0
    for step in range(200):
        what = rng.random()
        if what < 0.3:
            links = [
                Link(f"http://{rng.choice(names)}/{step}/{n}", crawl=rng.choice([None, None, None, "other"]))
                for n in range(rng.randrange(1, 12))
            ]
            assert pair[0].discover(links) == pair[1].discover(links)
        elif what < 0.6:
            want, crawl = rng.randrange(1, 20), rng.choice([None, None, "other"])
            first, second = (frontier.lease(want, crawl=crawl) for frontier in pair)
            assert list(first) == list(second)
            open_ones += first.tokens
            leased += len(first)
        elif what < 0.85:
            some = rng.sample(open_ones, min(len(open_ones), rng.randrange(1, 9)))
            outcomes = [Outcome(token, Verdict.DONE, seconds=rng.choice([0, 0.01, 0.5])) for token in some]
            assert pair[0].report(outcomes).outcomes == pair[1].report(outcomes).outcomes
            open_ones = [token for token in open_ones if token not in some]
        elif what < 0.9:
            verb, key = rng.choice(["pause", "resume"]), rng.choice(names)
            assert getattr(pair[0], verb)(key) == getattr(pair[1], verb)(key)
        else:
            now[0] += instant(rng.choice([0.1, 1.0, 5.0]))
        assert pair[0].next_ready_seconds() == pair[1].next_ready_seconds()
    assert leased > 50


def test_a_call_for_several_urls_of_a_queue_leases_the_first_of_each_queue_before_the_rest():
    """No queue uses the room of another that is drawn in the same call."""
    world = World()
    world.discover("http://a.com/", "http://b.com/", "http://c.com/", "http://d.com/")
    assert (3, 3) == (len(set(world.urls(3, per_queue=4))), world.counts()["leased"])
    world.discover(*[f"http://e.com/{n}" for n in range(9)])
    assert 7 == len(world.urls(7, per_queue=6))
