"""The thread that leases ahead for a spider."""

from __future__ import annotations

from outrider import Frontier, Link
from outrider.integrations.store_thread import StoreThread
from outrider.integrations.stored_requests import crawl_of


def unexpected(error):
    raise error


def test_leases_of_several_hosts_are_taken_in_turn_and_the_best_of_each_host_first():
    with Frontier.memory(settings={"delay": 0.0, "delay_factor": 0}, robots="caller") as frontier:
        frontier.make_crawl("news", unique="caller", order="lifo")
        links = [
            Link(f"http://{host}.test/{number}", crawl="news", unique_key=b"%s-%d" % (host.encode(), number))
            for host in ("a", "b", "c")
            for number in range(4)
        ]
        frontier.discover(links)
        thread = StoreThread(frontier, "news", ahead=12, per_queue=4, wake=lambda: None, failed=unexpected)
        thread.turn()
        taken = [thread.take() for _ in links]
    hosts = [lease.host for lease in taken]
    assert all({"a.test", "b.test", "c.test"} == set(hosts[at : at + 3]) for at in range(0, len(hosts), 3))
    for host in ("a", "b", "c"):
        assert [f"http://{host}.test/{number}" for number in (3, 2, 1, 0)] == [
            lease.url for lease in taken if lease.host == f"{host}.test"
        ]


def test_a_spider_has_a_crawl_of_its_name_also_if_that_is_the_name_of_the_first_crawl_of_a_store():
    assert "news" == crawl_of("news")
    with Frontier.memory(robots="caller") as frontier:
        assert frontier.make_crawl(crawl_of("default"), unique="caller", order="lifo")
