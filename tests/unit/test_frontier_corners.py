"""Histories that random tests found (tests/model/test_frontier_histories.py), each reduced to its essential steps."""

from __future__ import annotations

from model.world import START, World, outcome, recount
from outrider import Link
from outrider.clock import instant
from outrider.journey import Outcome, Verdict


def test_two_hosts_whose_keys_are_the_names_of_each_other_have_two_queues():
    world = World()
    world.discover(Link("http://a.com/", key="b.com"), Link("http://b.com/", key="a.com"))
    assert {("b.com", "a.com"), ("a.com", "b.com")} == {(queue.key, queue.host) for queue in world.frontier.queues()}


def test_a_key_made_next_to_a_keyed_queue_of_its_namesake_spans_only_its_own_hosts():
    world = World()
    world.discover(Link("http://a.com/", key="b.com"), Link("http://b.com/", key="k"))
    assert ["http://a.com/", "http://b.com/"] == sorted(world.urls())


def test_a_busy_hosts_queue_without_room_does_not_hide_one_with_room():
    world = World()
    world.discover(Link("http://a.com/1", crawl="one"), Link("http://a.com/2", crawl="one"), "http://a.com/3")
    assert ["http://a.com/1"] == world.urls(1, crawl="one")
    world.frontier.set_limit(2, "a.com", crawl="default")
    assert 1.0 == world.ready_in()
    world.clock.move(1.0)
    assert ["http://a.com/3"] == world.urls()


def test_a_limit_that_is_raised_during_a_request_keeps_the_starts_of_requests_apart():
    """Two requests to one host once started at the same instant, because its limit was raised between them."""
    world = World(delay=3.0)
    world.discover("http://a.com/1", "http://a.com/2")
    world.one()
    world.frontier.set_limit(2, "a.com")
    assert [] == world.urls()
    world.clock.move(3.0)
    assert ["http://a.com/2"] == world.urls()


def test_a_queue_of_one_request_next_to_one_of_several_keeps_their_starts_apart():
    """A page of a queue without a limit once left its host free for the other queue at the same instant."""
    world = World(delay=3.0)
    world.discover("http://a.com/1", Link("http://a.com/2", crawl="wide"))
    world.frontier.set_limit(2, "a.com", crawl="wide")
    assert ["http://a.com/1"] == world.urls(crawl="default")
    assert [] == world.urls()
    world.clock.move(3.0)
    assert ["http://a.com/2"] == world.urls()


def test_after_a_train_of_a_host_with_several_requests_the_gap_is_kept():
    """The train is of a queue that allows one request, next to a queue that allows several."""
    world = World(delay=1.0)
    world.discover(*[f"http://a.com/{number}" for number in range(3)], Link("http://a.com/wide", crawl="wide"))
    world.frontier.set_limit(3, "a.com", crawl="wide")
    begins = [lease.not_before for lease in world.lease(2, per_queue=2, crawl="default")]
    world.clock.move(1.0)
    assert [] == world.urls()
    world.clock.move(1.0)
    begins.append(world.one(crawl="wide").not_before)
    assert [START + instant(second) for second in range(3)] == begins


def test_a_host_with_several_requests_gets_no_train():
    """A train of ten would use all turns of its host, for one request at a time."""
    world = World(delay=0, delay_factor=0)
    world.discover(*[f"http://a.com/{number}" for number in range(6)])
    world.frontier.set_limit(3, "a.com")
    assert [1, 1, 1, 0] == [len(world.lease(per_queue=10)) for _ in range(4)]


def test_a_token_returned_twice_in_one_call_is_stale_the_second_time():
    world = World()
    world.discover("http://a.com/")
    token = world.one().token
    assert ["ok", "stale"] == [str(code) for code in world.frontier.release([token, token])]


def test_the_last_of_two_requests_for_one_url_in_one_call_counts():
    world = World()
    world.discover("http://a.com/")
    world.frontier.reprioritise({"http://a.com/": 0.1, "http://A.com": 0.9})
    assert ["http://a.com/"] == [url.url for url in world.frontier.urls() if url.priority and url.priority > 0.8]
    assert [] == recount(world.frontier)


def test_a_page_to_be_visited_again_at_once_is_queued_and_not_waiting():
    world = World()
    world.discover("http://a.com/")
    world.report(outcome(world.one(), "again", at=world.clock()))
    assert {"queued": 1} == world.counts()
    assert [] == world.frontier.urls(state="waiting")


def test_a_url_that_became_due_before_the_opening_is_queued_for_the_first_query():
    world = World()
    world.discover(Link("http://a.com/", not_before=START + instant(5)))
    world.clock.move(10)
    world.kill()
    assert "queued" == world.state("http://a.com/")
    assert {"queued": 1} == world.counts()


def test_after_a_crawl_is_deleted_an_idle_frontier_is_finished():
    world = World()
    world.discover("http://a.com/", "http://b.com/")
    world.frontier.delete()
    assert "finished" == world.frontier.explain_idle().reason
    world.kill()
    assert "finished" == world.frontier.explain_idle().reason


def test_a_late_report_from_before_a_delete_is_replayed():
    world = World()
    world.discover("http://a.com/")
    token = world.one().token
    world.frontier.delete("a.com")
    world.discover("http://a.com/")
    assert ["stale"] == [str(code) for code in world.frontier.report([Outcome(token, Verdict.DONE)])]
    assert "queued" == world.state("http://a.com/")
    world.kill()
    assert "queued" == world.state("http://a.com/")
    assert [] == recount(world.frontier)
