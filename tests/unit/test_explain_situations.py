"""`explain` in many situations: the one current reason, its words, and when it changes."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

import pytest

from model.world import START, outcome, recount
from model.world import World as Stored
from outrider import Frontier, Link
from outrider.errors import PagesNeedErrandsError
from outrider.frontier.priority import weighted
from outrider.frontier.state.registry import Registry
from outrider.journey import Explanation, Ranking
from outrider.limits import ACCEPTED_DATES_MAX, BEFORE_COUNTED_MAX
from outrider.storage.memory import MemoryFiles

NOW = 1_700_000_000_000_000
SECOND = 1_000_000
A, B = "http://a.example.org/", "http://b.example.org/"


class World:
    """A frontier on a disk in memory and its clock."""

    def __init__(self, robots="caller", addresses="caller", **settings):
        self.now = NOW
        self.files = MemoryFiles()
        self.how = {
            "robots": robots,
            "addresses": addresses,
            "settings": {"delay": 5, "delay_factor": 0, **settings},
        }
        self.frontier = Frontier.open(self.files, clock=lambda: self.now, seed=1, **{"robots": "caller", **self.how})

    def stopped(self):
        """A read-only opening of the store after its owner closed it."""
        self.frontier.close()
        return Frontier.look(self.files, **self.how)

    def add(self, *urls):
        self.frontier.discover(urls)
        return self

    def lease(self, want=1, **how):
        return list(self.frontier.lease(want, **how))

    def report(self, *outcomes):
        self.frontier.report(outcomes)
        return self

    def after(self, seconds):
        self.now += int(seconds * SECOND)
        return self


def unknown():
    return World().add(A), A + "other", "unknown", "no link or call has named it", None


def out_of_scope():
    world = World(scope="host").add(A)
    return world, "http://elsewhere.test/", "out_of_scope", "out of scope", None


def ready():
    return World().add(A), A, "ready", "the next lease call may return it", 0


def behind():
    return World().add(A, A + "b"), A + "b", "behind", "1 other URL of its queue may be fetched first", 0


def leased_here():
    world = World().add(A)
    world.lease(ttl_seconds=60)
    return world, A, "leased", "this process fetches it, until 2023-11-14T22:14:20", None


def leased_by_a_worker():
    world = World().add(A)
    world.lease(worker="ann", ttl_seconds=60)
    return world, A, "leased", "ann fetches it, until 2023-11-14T22:14:20", None


def host_busy():
    world = World().add(A, A + "b")
    (lease,) = world.lease()
    return world, A if lease.url != A else A + "b", "host_busy", "one request at a time", None


def two_at_once_are_busy():
    world = World().add(*(A + str(page) for page in range(3)))
    world.frontier.set_limit(2, "a.example.org")
    urls = {lease.url for lease in (*world.lease(), *world.after(10).lease())}
    (left,) = {A + str(page) for page in range(3)} - urls
    return world, left, "host_busy", "at most 2 requests at once", None


def host_resting():
    world = World().add(A, A + "b")
    (lease,) = world.lease()
    world.report(lease.done(seconds=0.1, status=200)).after(2)
    return world, A if lease.url != A else A + "b", "host_resting", "pauses for 3 s more (floor)", 3


def retry_after():
    world = World().add(A, A + "b")
    (lease,) = world.lease()
    world.report(lease.retry(status=429, seconds=0.1, retry_after_seconds=100))
    return world, A if lease.url != A else A + "b", "host_resting", "pauses for 1 min 40 s more (retry_after)", 100


def crawl_delay():
    world = World()
    world.frontier.set_robots("http://a.example.org", 200, b"User-agent: *\nCrawl-delay: 30\n")
    world.add(A, A + "b")
    (lease,) = world.lease()
    world.report(lease.done(seconds=0.1, status=200))
    return world, A if lease.url != A else A + "b", "host_resting", "pauses for 30 s more (crawl_delay)", 30


def lease_that_ran_out():
    world = World().add(A)
    world.lease(ttl_seconds=10)
    world.after(11).lease()
    return world, A, "host_resting", "pauses for 5 s more", 5


def not_before():
    world = World().add(Link(A, not_before=NOW + 60 * SECOND))
    return world, A, "waiting", "it waits until 2023-11-14T22:14:20", 60


def retried():
    world = World().add(A)
    world.report(world.lease()[0].retry(after_seconds=20, status=503))
    return world, A, "waiting", "it waits until 2023-11-14T22:13:40", 20


def revisited():
    world = World().add(A)
    world.report(world.lease()[0].again(at=NOW + 500 * SECOND))
    return world, A, "waiting", "it waits until", 500


def planned():
    world = World(revisit="adaptive").add(A)
    world.report(world.lease()[0].done(seconds=0.1, status=200))
    return world, A, "planned", "the rule adaptive visits it again", 86_400


def done():
    world = World().add(A)
    world.report(world.lease()[0].done(seconds=0.1, status=200))
    return world, A, "done", "it was fetched", None


def gone():
    world = World().add(A)
    world.report(world.lease()[0].gone(status=404, error="http_404"))
    return world, A, "gone", "http_404", None


def gone_by_its_status():
    world = World().add(A)
    world.report(world.lease()[0].gone(status=404))
    return world, A, "gone", "it is gone: the server answered 404 Not Found", None


def out_of_attempts():
    world = World().add(A)
    for _ in range(5):
        for lease in world.after(10_000).lease():
            world.report(lease.retry(error="reset"))
    return world, A, "gone", "it is gone: reset", None


def refused_by_robots():
    world = World()
    world.frontier.set_robots("http://a.example.org", 200, b"User-agent: *\nDisallow: /private\n")
    world.add(A + "private")
    world.lease()
    return world, A + "private", "parked", "line 2: Disallow: /private", None


def robots_out_of_reach():
    world = World()
    world.frontier.set_robots("http://a.example.org", 503, b"")
    world.add(A)
    world.lease()
    return world, A, "parked", "robots", None


def budget_of_the_host():
    world = World(max_pages_per_host=1).add(A, A + "b")
    (lease,) = world.lease()
    world.report(lease.done(seconds=0.1, status=200))
    world.after(60).lease()
    return world, A if lease.url != A else A + "b", "parked", "budget", None


def limit_of_pages():
    world = World(max_pages=1).add(A, B)
    (lease,) = world.lease()
    world.report(lease.done(seconds=0.1, status=200))
    return world, A if lease.url != A else B, "limit", "max_pages", None


def paused_queue():
    world = World().add(A)
    world.frontier.pause("a.example.org")
    return world, A, "paused", "its queue or crawl is paused", None


def paused_crawl():
    world = World().add(A)
    world.frontier.pause()
    return world, A, "paused", "its queue or crawl is paused", None


def blocked_queue():
    world = World().add(A)
    world.frontier.block_until(NOW + 40 * SECOND, "a.example.org")
    return world, A, "blocked", "blocked until 2023-11-14T22:14:00", 40


def robots_first():
    return World(robots="errands").add(A), A, "robots", "must be requested first", 0


def robots_being_asked_for():
    world = World(robots="errands").add(A)
    assert "robots" == world.lease(errands=True)[0].kind
    return world, A, "robots", "is being requested", None


def robots_asked_for_again():
    world = World(robots="errands").add(A)
    world.report(world.lease(errands=True)[0].robots(503, b""))
    return world, A, "robots", "must be requested first, from 2023-11-14T22:13:30", 10


def robots_of_another_authority_first():
    world = World(robots="errands").add(A)
    world.report(world.lease(errands=True)[0].robots(404, b""))
    world.after(6).add("https://a.example.org/")
    return world, "https://a.example.org/", "robots", "must be requested first", 0


def group_is_busy():
    world = World(group=("domain",)).add(A, B)
    (lease,) = world.lease(2)
    return world, A if lease.url != A else B, "group_busy", "group", None


def group_rests():
    world = World(group=("domain",)).add(A, B)
    (lease,) = world.lease(2)
    world.report(lease.done(seconds=0.1, status=200))
    return world, A if lease.url != A else B, "group_resting", "is in the group", 5


def keyed_queues_share_a_clock():
    world = World().add(Link(A, key="team"), Link(B, key="team"))
    (lease,) = world.lease(2)
    return world, A if lease.url != A else B, "group_busy", "another queue of the key team", None


def address_first():
    world = World(addresses="errands", group=("address",)).add(A)
    return world, A, "address", "the address of a.example.org must be resolved first", 0


def address_being_asked_for():
    world = World(addresses="errands", group=("address",)).add(A)
    assert "address" == world.lease(errands=True)[0].kind
    return world, A, "address", "is being resolved", None


def paused_and_blocked():
    """Two orders of operators at once: a pause has no end, so it is named first."""
    world, url, *_ = blocked_queue()
    world.frontier.pause("a.example.org")
    return world, url, "paused", "its queue or crawl is paused", None


def limit_before_pause_and_block():
    """No operator could help while the limit of pages is in force."""
    world, url, *_ = limit_of_pages()
    host = url.removeprefix("http://").rstrip("/")
    world.frontier.pause(host)
    world.frontier.block_until(world.now + 40 * SECOND, host)
    return world, url, "limit", "max_pages", None


def lease_that_nobody_took_back():
    world = World().add(A)
    world.lease(worker="ann", ttl_seconds=10)
    return world.after(11), A, "leased", "not reported by ann: the next lease call queues it again", None


def moved_for_good():
    world = World().add(A)
    world.report(world.lease()[0].done(seconds=0.1, status=301, location=B))
    return world, A, "done", "it was fetched, and no revisit is scheduled", None


def target_of_a_move():
    world, *_ = moved_for_good()
    return world, B, "ready", "the next lease call may return it", 0


def moved_to_itself():
    world = World().add(A)
    world.report(world.lease()[0].done(seconds=0.1, status=301, location=A))
    return world, A, "gone", "redirect_self", None


def deleted():
    world = World().add(A)
    world.frontier.delete("a.example.org")
    return world, A, "unknown", "no link or call has named it", None


def brought_back():
    world = World().add(A)
    world.report(world.lease()[0].gone(status=404, error="http_404"))
    assert 1 == world.after(60).frontier.retry(error="http_404")
    return world, A, "ready", "the next lease call may return it", 0


SITUATIONS = (
    unknown, out_of_scope, ready, behind, leased_here, leased_by_a_worker, host_busy, two_at_once_are_busy,
    host_resting, retry_after, crawl_delay, lease_that_ran_out, not_before, retried, revisited, planned, done, gone,
    gone_by_its_status,
    out_of_attempts, refused_by_robots, robots_out_of_reach, budget_of_the_host, limit_of_pages, paused_queue,
    paused_crawl, blocked_queue, robots_first, robots_being_asked_for, robots_asked_for_again,
    robots_of_another_authority_first, group_is_busy, group_rests, keyed_queues_share_a_clock, address_first,
    address_being_asked_for, deleted, brought_back, paused_and_blocked, limit_before_pause_and_block,
    lease_that_nobody_took_back, moved_for_good, target_of_a_move, moved_to_itself,
)  # fmt: skip


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda one: one.__name__)
def test_a_url_is_explained_in_every_situation(situation):
    """A reason, its text, and the seconds until it changes. A lease agrees: only a ready URL is leased."""
    world, url, word, words, seconds = situation()
    found = world.frontier.explain(url)
    assert (word, True) == (found.reason_now, words in found.reason_text), found.reason_text
    at = None if found.next_at is None else max(0, found.next_at - world.now) / SECOND
    assert at == (None if seconds is None else pytest.approx(seconds, abs=0.2))
    given = set()
    with suppress(PagesNeedErrandsError):
        given = {lease.url for lease in world.lease(10, per_queue=10)}
    assert (url in given) <= (word in ("ready", "behind"))


# A stop ends the leases of its process. Their hosts wait a whole delay, because the sites may have got requests.
ENDED_BY_A_STOP = {
    leased_here: ("host_resting", "a.example.org pauses for 5 s more", 5),
    host_busy: ("host_resting", "a.example.org pauses for 5 s more", 5),
    two_at_once_are_busy: ("host_resting", "a.example.org pauses for 5 s more", 5),
    group_is_busy: ("group_resting", "is in the group", 5),
    keyed_queues_share_a_clock: ("group_resting", "the queues of the key team pause for 5 s more", 5),
    robots_being_asked_for: ("host_resting", "a.example.org pauses for 5 s more", 5),
    address_being_asked_for: ("address", "must be resolved first", 0),
}


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda one: one.__name__)
def test_a_stopped_frontier_explains_a_url_in_the_same_way(situation):
    world, url, *told = situation()
    word, words, seconds = ENDED_BY_A_STOP.get(situation, told)
    with world.stopped() as look:
        found = look.explain(url)
        now = look.now()
    assert (word, True) == (found.reason_now, words in found.reason_text), found.reason_text
    at = None if found.next_at is None else max(0, found.next_at - now) / SECOND
    assert at == (None if seconds is None else pytest.approx(seconds, abs=0.2))


def test_a_lease_is_explained_with_its_holder_and_its_end():
    world = World().add(A)
    world.after(3).lease(worker="ann", ttl_seconds=60)
    found = world.frontier.explain(A)
    assert ("ann", NOW + 63 * SECOND, NOW) == (found.worker, found.lease_until, found.due_since)


def test_each_reason_appears_when_the_one_before_it_ends():
    """Paused, blocked and over the budget of its host at once: one after the other is named, with its end."""
    world = World(max_pages_per_host=1).add(A, A + "b")
    (lease,) = world.lease()
    other = A if lease.url != A else A + "b"
    world.report(lease.done(seconds=0.1, status=200)).after(60)
    world.frontier.pause("a.example.org")
    world.frontier.block_until(world.now + 40 * SECOND, "a.example.org")
    assert ("paused", None) == why(world, other)
    world.frontier.resume("a.example.org")
    assert ("blocked", world.now + 40 * SECOND) == why(world, other)
    world.after(41)
    assert ("ready", world.now) == why(world, other)
    assert [] == world.lease()
    found = world.frontier.explain(other)
    assert ("parked", "budget", None) == (found.reason_now, found.status.reason, found.next_at)


def why(world, url):
    found = world.frontier.explain(url)
    return found.reason_now, found.next_at


def test_the_lease_of_a_dead_worker_is_explained_after_a_restart_and_ends():
    world = Stored(delay=5.0, delay_factor=0.0)
    world.discover(A)
    world.lease(worker="ann", ttl_seconds=60)
    world.kill()
    assert ("leased", "ann", START + 60 * SECOND) == holder(world)
    world.clock.move(61.0)
    assert ("leased", "ann", START + 60 * SECOND) == holder(world)
    assert [] == list(world.lease())
    assert ("host_resting", None, None) == holder(world)  # ann may have sent the request
    world.clock.move(5.0)
    assert [A] == world.urls()


def holder(world):
    found = world.frontier.explain(A)
    return found.reason_now, found.worker, found.lease_until


def test_every_named_situation_is_tested():
    assert len(SITUATIONS) == len(set(SITUATIONS)) >= 40


# -- when, and behind whom ---------------------------------------------------------------------------------------------


def test_discovery_and_last_answer_are_explained_after_kill_and_checkpoint():
    world = Stored(delay=1.0, delay_factor=0.0)
    world.discover(A, A + "b")
    world.clock.move(30.0)
    world.discover(A + "within-a-minute")
    world.clock.move(3_600.0)
    world.discover(A + "later")
    for verdict, how in (("done", {"status": 200}), ("retry", {"error": "reset"})):
        (lease,) = world.lease()
        world.report(outcome(lease, verdict, seconds=0.1, **how))
        world.clock.move(100.0)
    answered = START + 3_630 * SECOND
    expected = {
        A: (START, answered),
        A + "b": (START, None),  # a request was sent, and got no answer
        A + "within-a-minute": (START, None),
        A + "later": (answered, None),
        A + "never-named": (None, None),
    }

    def told():
        found = {url: world.frontier.explain(url) for url in expected}
        return {url: (one.discovered_at, one.fetched_at) for url, one in found.items()}

    assert expected == told()
    world.kill()
    assert expected == told()
    world.frontier.checkpoint()
    world.kill()
    assert expected == told()
    assert [] == recount(world.frontier)


def test_discovery_dates_are_few_however_old_a_frontier_is():
    registry = Registry()
    for hour in range(100_000):
        at = START + hour * 3_600 * SECOND
        if registry.wants_date(at):
            registry._accepted(0, hour * 10, at)
    assert 500 < len(registry.accepted) <= ACCEPTED_DATES_MAX
    span = registry.accepted[-1][1] - registry.accepted[0][1]
    wrong = [START + hour * 3_600 * SECOND - registry.accepted_at(hour * 10 + 9) for hour in range(0, 100_000, 977)]
    assert 0 <= min(wrong) <= max(wrong) <= span // 200
    assert None is Registry().accepted_at(5)


def test_the_urls_before_it_are_counted_up_to_a_limit():
    frontier = Frontier.memory(clock=lambda: NOW, robots="caller")
    frontier.discover([f"{A}{page}" for page in range(1_200)])
    frontier.discover([Link(A + "first", priority=0.9)])
    befores = [frontier.explain(f"{A}{name}").before for name in ("first", "0", "7", "998", "999", "1100")]
    assert [0, 1, 8, 999, 1_000, 1_000] == befores
    (lease,) = frontier.lease(1)
    assert (A + "first", None) == (lease.url, frontier.explain(lease.url).before)


def test_all_groups_that_delay_a_host_are_named():
    world = World(addresses="errands", group=("domain", "address")).add(A, B)
    for lease in world.lease(5, errands=True):
        world.report(lease.located("192.0.2.1"))
    (page,) = world.lease(5)
    other = A if page.url == B else B
    found = world.frontier.explain(other)
    assert ["192.0.2.1", "example.org"] == sorted(group.name for group in found.held_by)
    assert {(None, 1, 1)} == {(group.rest_until, group.in_flight, group.capacity) for group in found.held_by}
    world.report(page.done(seconds=0.1))
    found = world.frontier.explain(other)
    assert {("example.org", 0), ("192.0.2.1", 0)} == {(group.name, group.in_flight) for group in found.held_by}
    assert all(group.rest_until > NOW for group in found.held_by)
    assert () == world.after(600).frontier.explain(other).held_by


# -- of what a priority is made ----------------------------------------------------------------------------------------


def ranked(function=None, link=A, **how):
    frontier = Frontier.memory(
        clock=lambda: NOW, settings={} if function is None else {"priority": function}, robots="caller"
    )
    frontier.discover([Link(link, **how)])
    return frontier, frontier.explain(link).ranking


def test_a_priority_is_the_default_or_was_set():
    assert ("default", None, ()) == (ranked()[1].source, ranked()[1].function, ranked()[1].parts)
    frontier, found = ranked(depth=2, hops=1, priority=0.9)
    assert ("given", 0.9, 14, 2, 1) == (found.source, found.priority, found.klass, found.depth, found.hops)
    frontier.reprioritise([A], 0.25)
    assert ("given", 0.25, 4) == tuple(
        getattr(frontier.explain(A).ranking, name) for name in ("source", "priority", "klass")
    )
    assert None is frontier.explain(B).ranking


def test_a_weighted_priority_is_explained_in_its_parts():
    score = weighted(2, 1, 0, 1, 0, signals={"domain_authority": {"example.org": 0.9}})
    _, found = ranked(score, depth=1)
    parts = {part.name: (part.value, part.weight) for part in found.parts}
    assert {"page_rank": (0.5, 0.5), "domain_authority": (0.9, 0.25), "depth": (0.9, 0.25)} == parts
    assert ("function", found.priority) == (found.source, pytest.approx(sum(a * b for a, b in parts.values())))
    _, other = ranked(score, depth=1, priority=0.1)
    assert (None, found.parts) == (other.source, other.parts)


def test_a_function_of_the_user_is_named_without_another_call():
    calls = []

    def mine(urls, page):
        calls.append(len(urls))
        return [0.75] * len(urls)

    _, found = ranked(mine)
    assert (None, 0.75, (), [1]) == (found.source, found.priority, found.parts, calls)
    assert found.function.endswith("mine")


def test_each_lost_lease_is_counted():
    world = World().add(A)
    for _ in range(2):
        world.lease(ttl_seconds=10)
        world.after(100).lease(0)
        world.after(100)
    assert 2 == world.frontier.explain(A).ranking.losses


# -- the page about it -------------------------------------------------------------------------------------------------


def named_in(section):
    """Returns the words in code of the first column of a table under a heading of docs/explain.md."""
    text = (Path(__file__).parents[2] / "docs" / "explain.md").read_text("utf-8")
    rows = re.findall(r"^\| (.*?) \|", text.partition(f"\n## {section}\n")[2].partition("\n## ")[0], re.MULTILINE)
    return [word for row in rows[1:] for word in re.findall(r"`(\w+)`", row)]


def test_the_page_has_every_reason_and_every_field():
    """Outages and unwelcome hosts have tests of their own."""
    tried = {situation()[2] for situation in SITUATIONS}
    assert tried | {"network", "not_welcome"} == set(named_in("The reasons"))
    assert {one.name for one in fields(Explanation)} == set(named_in("The fields"))
    assert {one.name for one in fields(Ranking)} == set(named_in("`ranking`"))
    assert 1_000 == BEFORE_COUNTED_MAX
