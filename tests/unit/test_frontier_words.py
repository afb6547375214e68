"""`explain`, `explain_idle`, the counts and `next_ready_seconds` predict the next result of `lease`."""

from __future__ import annotations

import numpy as np
import pytest

from model.inside import inspect
from outrider.engine.owner import Frontier
from outrider.errors import PagesNeedErrandsError
from outrider.frontier.verbs import statuses
from outrider.journey import Link

A, B = "http://a.example/", "http://b.example/"
SECOND = 1_000_000


class Asked:
    """A frontier with a clock of its own."""

    def __init__(self, **how) -> None:
        self.time = 1_000 * SECOND
        settings = {"delay": 2.0, "delay_factor": 0.0} | how.pop("settings", {})
        self.frontier = Frontier.memory(clock=lambda: self.time, settings=settings, **{"robots": "caller", **how})

    def words(self, url: str) -> tuple[str, str]:
        """Returns the reasons of `explain` and `explain_idle`."""
        return self.frontier.explain(url).reason_now, self.frontier.explain_idle().reason

    def hosts(self) -> dict[str, int]:
        counts = self.frontier.statistics()["hosts"]
        listed = [host.state for host in self.frontier.hosts()]
        assert {state: listed.count(state) for state in ("ready", "resting", "blocked", "empty")} == {
            state: counts[state] for state in ("ready", "resting", "blocked", "empty")
        }
        return {state: count for state, count in counts.items() if count and state != "known"}


# -- keys that span hosts


def test_a_key_that_is_being_visited_delays_its_other_hosts():
    """Such hosts were once counted as ready, and no call got them."""
    asked = Asked()
    asked.frontier.discover([Link(A, key="both"), Link(B, key="both")])
    (lease,) = asked.frontier.lease(5)
    other = {A: B, B: A}[lease.url]
    assert ("group_busy", "resting") == asked.words(other)
    assert "the key both is being visited" in asked.frontier.explain(other).reason_text
    assert {"resting": 2} == asked.hosts()
    assert [] == asked.frontier.lease(5)


def test_a_key_in_its_delay_delays_its_other_hosts():
    asked = Asked()
    asked.frontier.discover([Link(A, key="both"), Link(B, key="both")])
    (lease,) = asked.frontier.lease(5)
    other = {A: B, B: A}[lease.url]
    asked.frontier.report([lease.done(seconds=0.1)])
    assert ("group_resting", "resting") == asked.words(other)
    assert "the queues of the key both pause for 2 s more" in asked.frontier.explain(other).reason_text
    assert asked.time + 2 * SECOND == asked.frontier.explain(other).next_at
    assert {"resting": 1, "empty": 1} == asked.hosts()
    assert [] == asked.frontier.lease(5)
    asked.time += 2 * SECOND
    assert ("ready", "ready") == asked.words(other)
    assert {"ready": 1, "empty": 1} == asked.hosts()
    assert [other] == [one.url for one in asked.frontier.lease(5)]


# -- rules


def test_explain_names_the_deciding_line_of_robots_txt():
    asked = Asked()
    closed, other = A + "private/x", A + "open"
    asked.frontier.discover([closed, other])
    assert None is asked.frontier.explain(closed).robots
    asked.frontier.set_robots("http://a.example", 200, b"User-agent: *\nDisallow: /private\n")
    told = asked.frontier.explain(closed)
    assert ("line 2: Disallow: /private", "rules") == (told.robots, told.robots_state)
    asked.frontier.lease(5)
    told = asked.frontier.explain(closed)
    assert ("parked", "it is parked by robots.txt, line 2: Disallow: /private") == (
        told.reason_now,
        told.reason_text,
    )
    assert "no line matches: it is allowed" == asked.frontier.explain(other).robots


@pytest.mark.parametrize(
    ("status", "words"),
    [(404, "the site has no robots.txt: everything is allowed"), (503, "the file cannot be read: nothing is")],
)
def test_explain_says_why_no_line_decides(status, words):
    asked = Asked()
    asked.frontier.discover([A])
    asked.frontier.set_robots("http://a.example", status)
    assert asked.frontier.explain(A).robots.startswith(words)


@pytest.mark.parametrize(
    ("settings", "url", "words"),
    [
        ({"scope": "host"}, "http://z.example/", "scope host: z.example is none of a.example"),
        ({"scope": "domain"}, "http://z.test/", "scope domain: it is not in a.example"),
        ({"exclude": ["/x"]}, A + "x", "--exclude /x"),
        ({"include": ["/y"]}, A + "x", "no --include pattern is found in it"),
    ],
)
def test_explain_names_the_rule_of_the_scope_that_refuses_an_unknown_url(settings, url, words):
    asked = Asked(settings=settings)
    asked.frontier.discover([A])
    told = asked.frontier.explain(url)
    assert ("unknown", "out_of_scope", f"it is out of scope: {words}") == (
        told.state,
        told.reason_now,
        told.reason_text,
    )


def test_explain_says_that_an_unknown_url_would_be_accepted():
    asked = Asked(settings={"scope": "host"})
    asked.frontier.discover([A])
    assert "unknown" == asked.frontier.explain(A + "new").reason_now


# -- queues that are paused or blocked


def two_crawls() -> Asked:
    """A host with a queue that has a URL, and an empty queue."""
    asked = Asked(settings={"delay": 0.0})
    asked.frontier.discover([Link(A, crawl="empty")])
    (lease,) = asked.frontier.lease(1)
    asked.frontier.report([lease.done()])
    asked.frontier.discover([Link(A, crawl="full")])
    return asked


def test_a_host_whose_only_full_queue_is_paused_is_blocked():
    """The empty queue of the host is not paused, so the host was once counted as ready."""
    asked = two_crawls()
    asked.frontier.pause("a.example", crawl="full")
    assert {"blocked": 1} == asked.hosts()
    assert "blocked" == asked.frontier.explain_idle().reason
    assert "paused" == asked.frontier.explain(A, crawl="full").reason_now
    assert [] == asked.frontier.lease(5)
    asked.frontier.resume("a.example", crawl="full")
    assert {"ready": 1} == asked.hosts()
    assert 1 == len(asked.frontier.lease(5))


def test_a_host_whose_only_full_crawl_is_paused_is_blocked():
    asked = two_crawls()
    asked.frontier.pause(crawl="full")
    assert ({"blocked": 1}, []) == (asked.hosts(), list(asked.frontier.lease(5)))
    asked.frontier.resume(crawl="full")
    asked.frontier.pause(crawl="empty")
    assert ({"ready": 1}, 1) == (asked.hosts(), len(asked.frontier.lease(5)))


def test_a_host_whose_only_full_queue_is_blocked_counts_as_blocked():
    asked = two_crawls()
    asked.frontier.block_until(asked.time + 60 * SECOND, "a.example", crawl="full")
    assert ({"blocked": 1}, []) == (asked.hosts(), list(asked.frontier.lease(5)))
    asked.time += 60 * SECOND
    assert ({"ready": 1}, 1) == (asked.hosts(), len(asked.frontier.lease(5)))


# -- several requests at once


def test_where_two_requests_are_allowed_one_open_request_is_not_the_limit():
    """`explain` once said "one request at a time", and the counts said that the host waits."""
    asked = Asked(settings={"delay": 0.0})
    asked.frontier.discover([f"{A}{number}" for number in range(4)])
    asked.frontier.set_limit(2, "a.example")
    asked.frontier.lease(1)
    assert ({"ready": 1}, "ready") == (asked.hosts(), asked.frontier.explain_idle().reason)
    assert asked.frontier.explain(f"{A}3").reason_now in ("behind", "ready")
    assert 1 == len(asked.frontier.lease(1))
    assert ({"resting": 1}, []) == (asked.hosts(), list(asked.frontier.lease(1)))
    told = asked.frontier.explain(f"{A}3")
    assert ("host_busy", True) == (told.reason_now, told.reason_text.endswith("at most 2 requests at once"))


def test_where_one_request_is_allowed_explain_says_so():
    asked = Asked(settings={"delay": 0.0})
    asked.frontier.discover([f"{A}1", f"{A}2"])
    (lease,) = asked.frontier.lease(1)
    other = {f"{A}1": f"{A}2", f"{A}2": f"{A}1"}[lease.url]
    assert asked.frontier.explain(other).reason_text.endswith("one request at a time")


# -- errands


def test_an_errand_is_ready_before_any_caller_leases_errands():
    """Pages that wait for their robots.txt once left no instant to wait for, until a call requested errands."""
    asked = Asked(robots="errands")
    asked.frontier.discover([A])
    assert 0.0 == asked.frontier.next_ready_seconds()
    with pytest.raises(PagesNeedErrandsError):
        asked.frontier.lease(5)
    assert 0.0 == asked.frontier.next_ready_seconds()
    assert 0.0 == asked.frontier.explain_idle().next_seconds
    (errand,) = asked.frontier.lease(5, errands=True)
    assert 60.0 == asked.frontier.next_ready_seconds()
    asked.frontier.report([errand.robots(200, b"")])
    assert 2.0 == asked.frontier.next_ready_seconds()


def test_an_errand_is_ready_when_the_delay_of_its_host_is_over():
    asked = Asked(robots="errands")
    asked.frontier.discover(["https://a.example/"])
    (errand,) = asked.frontier.lease(5, errands=True)
    asked.frontier.report([errand.robots(200, b"", seconds=0.1)])
    asked.frontier.discover([A])
    asked.time += 1 * SECOND
    inspect(asked.frontier).turns.runs_errands = False  # as after a new opening
    asked.frontier.lease(5)
    assert 1.0 == asked.frontier.next_ready_seconds()


def test_a_page_whose_robots_txt_was_not_requested_is_not_reported_as_ready():
    asked = Asked(robots="errands")
    asked.frontier.discover([A])
    assert "1 host is ready: lease from it with errands=True" in asked.frontier.explain_idle().text
    for _ in range(2):
        told = asked.frontier.explain(A)
        assert ("robots", asked.time) == (told.reason_now, told.next_at)
        assert "must be requested first, by a lease with errands" in told.reason_text
        with pytest.raises(PagesNeedErrandsError):
            asked.frontier.lease(5)
        assert "lease from it with errands=True: 1 waits for a robots.txt" in asked.frontier.explain_idle().text


def redirected(status: int = 301) -> tuple[Asked, object]:
    """A frontier in which a's robots.txt is at b, and the errand that is open there."""
    asked = Asked(robots="errands")
    asked.frontier.discover([A, f"{A}2"])
    (errand,) = asked.frontier.lease(5, errands=True)
    asked.frontier.report([errand.robots(status, location=f"{B}robots.txt", seconds=0.0)])
    return asked, errand


def test_a_robots_txt_that_is_requested_at_another_host_delays_its_pages():
    """`explain` once said "behind", and that the host is ready."""
    asked, _ = redirected()
    asked.time += 60 * SECOND
    told = asked.frontier.explain(A)
    assert ("robots", asked.time) == (told.reason_now, told.next_at)
    assert "must be requested at b.example (after a redirect) first" in told.reason_text
    (hop,) = asked.frontier.lease(5, errands=True)
    assert f"{B}robots.txt" == hop.url
    for url in (A, f"{A}2"):
        told = asked.frontier.explain(url)
        assert ("robots", None) == (told.reason_now, told.next_at)
        assert "is being requested at b.example (after a redirect)" in told.reason_text
    asked.frontier.report([hop.robots(200, b"", seconds=0.0)])
    assert asked.frontier.explain(A).reason_now in ("behind", "ready")


def test_a_robots_txt_that_is_retried_later_says_when():
    asked = Asked(robots="errands")
    asked.frontier.discover([A])
    (errand,) = asked.frontier.lease(5, errands=True)
    asked.frontier.report([errand.robots(503, seconds=0.0)])
    told = asked.frontier.explain(A)
    assert told.next_at is not None
    assert told.next_at > asked.time
    assert "from 1970-" in told.reason_text
    asked.time = told.next_at
    assert 1 == len(asked.frontier.lease(5, errands=True))


def test_the_first_call_after_an_opening_leases_a_ready_hop(tmp_path):
    time = [1_000 * SECOND]
    how = {"clock": lambda: time[0], "robots": "errands"}
    for number, checkpoint in enumerate((False, True)):
        first = Frontier.open(tmp_path / str(number), **{"robots": "caller", **how})
        first.discover([A])
        (errand,) = first.lease(5, errands=True)
        first.report([errand.robots(301, location=f"{B}robots.txt", seconds=0.0)])
        if checkpoint:
            first.checkpoint()
        first.close()
        time[0] += 60 * SECOND
        with Frontier.open(tmp_path / str(number), **{"robots": "caller", **how}) as again:
            assert 0.0 == again.next_ready_seconds()
            assert [f"{B}robots.txt"] == [one.url for one in again.lease(5, errands=True)]


@pytest.mark.parametrize("runs", [False, True])
def test_an_address_errand_is_ready_before_any_caller_leases_errands(runs):
    asked = Asked(addresses="errands", settings={"group": "address"})
    asked.frontier.discover([A])
    if runs:
        asked.frontier.lease(0, errands=True)
    assert [] == asked.frontier.lease(5)
    assert 0.0 == asked.frontier.next_ready_seconds()


def test_a_deferred_robots_errand_waits():
    """It was once returned, and leased again at once."""
    asked = Asked(robots="errands")
    asked.frontier.discover([A])
    (errand,) = asked.frontier.lease(5, errands=True)
    assert ["ok"] == asked.frontier.defer([errand.token], asked.time + 30 * SECOND)
    assert [] == asked.frontier.lease(5, errands=True)
    assert 30.0 == asked.frontier.next_ready_seconds()
    asked.time += 30 * SECOND - 1
    assert [] == asked.frontier.lease(5, errands=True)
    asked.time += 1
    (again,) = asked.frontier.lease(5, errands=True)
    assert (errand.url, True) == (again.url, again.token != errand.token)
    asked.frontier.report([again.robots(200, b"")])
    asked.time += 2 * SECOND
    assert [A] == [one.url for one in asked.frontier.lease(5)]


def test_a_deferred_errand_for_an_address_waits():
    asked = Asked(addresses="errands", settings={"group": "address"})
    asked.frontier.discover([A])
    (errand,) = asked.frontier.lease(5, errands=True)
    assert ["ok"] == asked.frontier.defer([errand.token], asked.time + 30 * SECOND)
    assert [] == asked.frontier.lease(5, errands=True)
    assert 30.0 == asked.frontier.next_ready_seconds()
    asked.time += 30 * SECOND
    (again,) = asked.frontier.lease(5, errands=True)
    assert errand.url == again.url


def test_a_deferred_errand_is_still_deferred_after_a_kill(tmp_path):
    time = [1_000 * SECOND]
    how = {"clock": lambda: time[0], "robots": "errands"}
    first = Frontier.open(tmp_path / "store", **{"robots": "caller", **how})
    first.discover([A])
    (errand,) = first.lease(5, errands=True, worker="w")
    first.defer([errand.token], time[0] + 30 * SECOND)
    first.close()
    again = Frontier.open(tmp_path / "store", **{"robots": "caller", **how})
    assert [] == again.lease(5, errands=True)
    time[0] += 30 * SECOND
    assert 1 == len(again.lease(5, errands=True))
    again.close()


def test_an_errand_that_is_deferred_until_now_is_returned():
    asked = Asked(robots="errands")
    asked.frontier.discover([A])
    (errand,) = asked.frontier.lease(5, errands=True)
    asked.frontier.defer([errand.token], asked.time)
    assert 1 == len(asked.frontier.lease(5, errands=True))


def test_a_list_of_hosts_reads_only_their_own_queues(monkeypatch):
    """Each host of a list once read all queues under rules of operators. A thousand hosts of a hundred thousand needed
    ten seconds, in which no other call was served."""
    asked = Asked()
    asked.frontier.discover([f"http://h{number}.example/" for number in range(300)])
    asked.frontier.set_delay(5.0, crawl="default")
    sizes = []
    monkeypatch.setattr(statuses.np, "isin", lambda rows, odd: sizes.append(len(odd)) or np.zeros(len(rows), np.bool_))
    assert ["ready"] * 300 == [host.state for host in asked.frontier.hosts(limit=300)]
    assert [] == sizes


# -- the budget of a host


def test_a_host_whose_open_requests_use_its_whole_budget_is_busy_in_every_query():
    asked = Asked(settings={"max_pages_per_host": 3, "delay": 0.0})
    frontier = asked.frontier
    frontier.discover([f"{A}{n}" for n in range(6)])
    (host,) = frontier.hosts()
    frontier.set_limit(5, host.name)
    leases = frontier.lease(6, per_queue=6)
    while more := frontier.lease(6):
        leases = [*leases, *more]
    assert 3 == len(leases)
    left = next(f"{A}{n}" for n in range(6) if f"{A}{n}" not in {lease.url for lease in leases})
    assert (("host_busy", "leased"), {"resting": 1}) == (asked.words(left), asked.hosts())
