"""The thread that leases ahead for a spider."""

from __future__ import annotations

from outrider import Frontier, Link
from outrider.integrations import store_thread
from outrider.integrations.store_thread import Ended, StoreThread
from outrider.integrations.stored_requests import crawl_of
from outrider.journey import Outcome, Verdict
from outrider.limits import MICROSECONDS


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


def test_a_host_rests_from_the_end_of_its_request_and_not_from_the_turn_that_notes_it(monkeypatch):
    """The end is a reading of another clock, which counts from the start of the machine."""
    now, started = [2_000 * MICROSECONDS], 1_500 * MICROSECONDS
    monkeypatch.setattr(store_thread, "elapsed", lambda: now[0] - started)
    rules = {"delay": 1.0, "delay_factor": 0}
    with Frontier.memory(clock=lambda: now[0], settings=rules, robots="caller") as frontier:
        frontier.make_crawl("news", unique="caller", order="lifo")
        links = [Link(f"http://a.test/{number}", crawl="news", unique_key=b"%d" % number) for number in range(3)]
        frontier.discover(links)
        thread = StoreThread(frontier, "news", ahead=1, per_queue=1, wake=lambda: None, failed=unexpected)
        thread.turn()
        token = thread.take().token
        now[0] += 100_000
        thread.rest(token, 0.1, thread.instant(now[0] - started))
        now[0] += 900_000
        thread.turn()
        assert 0.1 == frontier.next_ready_seconds()
        thread.end(Ended(Outcome(token, Verdict.DONE)))
        now[0] += 100_000
        thread.turn()
        token = thread.take().token
        now[0] += 100_000
        thread.end(Ended(Outcome(token, Verdict.DONE, seconds=0.1, ended_at=thread.instant(now[0] - started))))
        now[0] += 700_000
        thread.turn()
        assert 0.3 == frontier.next_ready_seconds()


def test_a_host_that_is_due_does_not_wait_until_the_page_of_another_host_is_stored(monkeypatch):
    """The request for a third host, which the same turn stores, joins it in the buffer."""
    with Frontier.memory(settings={"delay": 1.0, "delay_factor": 0}, robots="caller") as frontier:
        frontier.make_crawl("news", unique="caller", order="lifo")
        first, due, new = (Link(f"http://{host}.test/", crawl="news", unique_key=host.encode()) for host in "abc")
        at_report, woken = [], []
        report = frontier.report

        def reporting(outcomes, links):
            at_report.append((len(woken), [lease.url for *_, lease in thread.ready]))
            return report(outcomes, links)

        monkeypatch.setattr(frontier, "report", reporting)
        thread = StoreThread(frontier, "news", ahead=4, per_queue=1, wake=lambda: woken.append(1), failed=unexpected)
        frontier.discover([first])
        thread.turn()
        thread.end(Ended(Outcome(thread.take().token, Verdict.DONE)))
        thread.add(new)
        frontier.discover([due])
        woken.clear()
        thread.turn()
        assert [(1, [due.url])] == at_report
        assert [new.url, due.url] == [thread.take().url, thread.take().url]
