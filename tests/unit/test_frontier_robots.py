"""robots.txt: as an errand of the frontier or as the caller's answer. Verdicts are lazy, bounded and repeated when
rules change."""

from __future__ import annotations

import hashlib
import json
from itertools import pairwise

import pytest

from model.world import START, World, outcome, recount
from outrider import Frontier, Link
from outrider.clock import instant, seconds
from outrider.errors import PagesNeedErrandsError, SettingsError
from outrider.journey import Kind, Lease, RobotsAnswer, Settled, Verdict

A = "http://a.com/"
NO = b"User-agent: *\nDisallow: /"
YES = b"User-agent: *\nDisallow:"
DAY = 86_400


@pytest.fixture
def world():
    return World(robots="errands")


def errand(world: World) -> Lease:
    """Returns the only possible errand."""
    (lease,) = world.lease(errands=True)
    assert lease.kind is Kind.ROBOTS
    return lease


def answer(world: World, status: int | None = 200, body: bytes = YES, **how) -> Lease:
    lease = errand(world)
    world.report(outcome(lease, seconds=how.pop("seconds", 0.0), robots=lease.robots(status, body).robots, **how))
    return lease


# -- uses


NO_TRAINING = b"User-agent: *\nContent-Usage: /a train-ai=n\nContent-Signal: search=no\n"


def test_pages_whose_robots_txt_refuses_a_wanted_use_are_parked_as_use():
    world = World(robots="errands", use="train-ai")
    world.discover(A + "a", A + "b")
    answer(world, body=NO_TRAINING)
    world.clock.move(1.0)
    assert [A + "b"] == world.urls()
    assert ("parked", "use") == (world.frontier.status(A + "a").state, world.frontier.status(A + "a").reason)
    assert "`outrider retry --error use`" in world.frontier.explain(A + "a").reason_text
    assert [] == recount(world.frontier)


def test_a_page_is_not_refused_for_a_use_that_the_crawl_is_not_for():
    world = World(robots="errands", use=["ai-use"])
    world.discover(A + "a")
    answer(world, body=NO_TRAINING)
    world.clock.move(1.0)
    assert [A + "a"] == world.urls()


def test_a_page_that_was_parked_as_use_returns_with_retry_and_with_other_rules():
    world = World(robots="errands", use=["train-ai"])
    world.discover(A + "a", A + "a2")
    answer(world, body=NO_TRAINING)
    world.clock.move(1.0)
    assert [] == world.urls()
    assert 2 == world.frontier.retry(error="use")
    world.clock.move(DAY)
    answer(world)
    world.clock.move(1.0)
    assert [A + "a"] == world.urls()


def test_a_lease_has_the_lines_about_its_uses(world):
    world.discover(A + "a", A + "b")
    answer(world, body=NO_TRAINING)
    world.clock.move(1.0)
    (lease,) = world.lease()
    lines = ((2, "content-usage", "/a train-ai=n"), (3, "content-signal", "search=no"))
    assert lines == lease.about_uses
    said = world.frontier.explain(A + "b").preferences
    assert ({"search": "n"}, [3]) == (said.uses, [one.line for one in said.said])


def test_the_line_of_a_page_that_is_parked_as_use_says_what_its_site_says():
    world = World(robots="errands", use=["train-ai"], output=True)
    world.discover(A + "a")
    answer(world, body=NO_TRAINING)
    world.clock.move(1.0)
    lines = world.lease(errands=True).lines
    (line,) = [json.loads(text) for stream, text in lines if stream == "pages"]
    assert ("robots", "use", {"train-ai": "n", "search": "n"}) == (
        line["outcome"],
        line["error"],
        line["preferences"]["uses"],
    )
    assert [2, 3] == [one["line"] for one in line["preferences"]["said"]]


@pytest.mark.parametrize("killed", [False, True])
def test_a_lease_names_the_file_and_the_line_that_allow_it(killed):
    body = b"User-agent: *\nAllow: /a\nDisallow: /c\n"
    world = World(robots="errands")
    world.discover(A + "a", A + "b")
    answer(world, body=body)
    if killed:
        world.kill()
    world.clock.move(1.0)
    found = {}
    for _ in range(3):
        for lease in world.lease(5):
            found[lease.url] = lease.ruled_by
            world.report(lease.done(seconds=0.0))
        world.clock.move(1.0)
    name = "sha256:" + hashlib.sha256(body).hexdigest()
    assert {A + "a": (name, 2), A + "b": (name, 0)} == found


def test_where_the_caller_knows_the_rules_a_lease_names_none():
    world = World()
    world.discover(A)
    world.frontier.set_robots("http://a.com", 200, YES)
    assert None is world.one().ruled_by


@pytest.mark.parametrize("value", ["training", ["train-ai", 1], 5])
def test_an_unknown_use_is_refused(value):
    with pytest.raises(SettingsError, match="use"):
        World(robots="errands", use=value)


# -- the caller judges


def test_rules_from_a_caller_leave_the_errand_open_and_its_host_unvisited(world):
    """`set_robots` once ended the running errand: its host was visited at the same time, without a delay after it."""
    world.discover(A)
    lease = errand(world)
    world.frontier.set_robots("http://a.com", 200, YES)
    assert [] == world.urls(errands=True)
    assert ["ok"] == world.report(lease.robots(404, seconds=0.0))
    assert [] == world.urls()
    world.clock.move(1.0)
    assert ([A], []) == (world.urls(), recount(world.frontier))


def test_the_limit_of_a_deleted_crawl_does_not_allow_two_errands_at_a_host(world):
    """An errand was once leased during another one, by the limit of a deleted crawl."""
    world.discover(A, "http://a.com:8080/", Link("http://a.com/1", crawl="gone"))
    world.frontier.set_limit(2, crawl="gone")
    world.frontier.delete(crawl="gone")
    assert 1 == len(world.lease(1, errands=True))
    world.clock.move(10)
    assert [] == world.lease(errands=True)


def test_an_errand_continues_from_its_hop_despite_a_callers_rules_and_survives_a_kill(world):
    """The second hop of an errand is a request to another host. The caller's rules for the first do not free that
    host."""
    world.discover(A)
    world.report(outcome(errand(world), seconds=0.0, robots=RobotsAnswer(301, location="http://c.com/r.txt")))
    hop = next(one for one in world.lease(errands=True, worker="w") if one.host == "c.com")
    world.frontier.set_robots(hop.authority, 200, YES)
    world.kill()
    world.discover("http://c.com/")
    assert "c.com" not in [one.host for one in world.lease(errands=True)]
    assert (["ok"], []) == (world.report(hop.robots(404, seconds=0.0)), recount(world.frontier))


def test_without_rules_the_caller_gets_all_urls():
    world = World()
    world.discover(A)
    assert [A] == world.urls()


def test_the_callers_rules_are_judged_when_a_url_is_drawn():
    world = World()
    world.discover("http://a.com/no", "http://a.com/yes")
    world.frontier.set_robots("http://a.com", 200, b"User-agent: *\nDisallow: /no")
    assert (["http://a.com/yes"], {"leased": 1, "parked": 1}) == (world.urls(), world.counts())


@pytest.mark.parametrize("status", [404, 401, 403, 410])
def test_an_authority_without_rules_allows_all_urls(status):
    world = World()
    world.discover(A)
    world.frontier.set_robots("http://a.com", status)
    assert [A] == world.urls()


@pytest.mark.parametrize("status", [500, 503, 429, None])
def test_an_unreachable_authority_forbids_all_urls(status):
    world = World()
    world.discover(A)
    world.frontier.set_robots("http://a.com", status)
    assert ([], "robots_unreachable") == (world.urls(), world.reason(A))


def test_rules_are_those_of_scheme_host_and_port():
    world = World(delay=0)
    urls = ["http://a.com/", "https://a.com/", "http://a.com:8080/"]
    world.discover(*urls)
    world.frontier.set_robots("https://a.com", 200, NO)
    for _ in range(3):
        world.report(*[lease.done(seconds=0) for lease in world.lease()])
    assert ["done", "parked", "done"] == world.states(urls)


def test_rules_can_be_given_before_any_url():
    world = World()
    world.frontier.set_robots("http://a.com", 200, NO)
    world.discover(A)
    assert ([], "parked") == (world.urls(), world.state(A))


def test_rules_are_read_for_the_agent_of_the_settings():
    world = World(user_agent="OtherBot")
    world.discover(A)
    world.frontier.set_robots(
        "http://a.com", 200, b"User-agent: outrider\nDisallow: /\n\nUser-agent: otherbot\nAllow: /"
    )
    assert [A] == world.urls()


def test_the_callers_rules_survive_a_kill():
    world = World()
    world.discover(A)
    world.frontier.set_robots("http://a.com", 200, NO)
    world.kill()
    assert ([], "parked") == (world.urls(), world.state(A))


def test_the_caller_gets_no_errands():
    world = World()
    world.discover(A)
    world.frontier.set_robots("http://a.com", 503)
    world.lease(errands=True)
    world.clock.move(DAY)
    assert [] == world.lease(errands=True)


@pytest.mark.parametrize(
    "wrong", [("a.com", 200, b""), ("", 200, b""), ("http://a.com", 7_000, b""), ("http://a.com", 200, "x")]
)
def test_an_invalid_answer_is_refused(wrong):
    world = World()
    with pytest.raises(SettingsError):
        world.frontier.set_robots(*wrong)
    assert ["new"] == world.discover(A)


# -- errands


def test_the_first_lease_of_an_authority_is_its_robots_txt(world):
    world.discover(A)
    lease = errand(world)
    assert ("http://a.com/robots.txt", "http://a.com", "a.com", 1, 0) == (
        lease.url, lease.authority, lease.host, lease.attempt, lease.hops,
    )  # fmt: skip


def test_a_call_without_errands_gets_no_page_without_rules(world):
    """An errand is ready at once, but only a call with `errands=True` gets it."""
    world.discover(A)
    assert ([], 0.0) == (world.urls(), world.ready_in())


def test_one_errand_is_open_per_authority(world):
    world.discover(A, "http://a.com/2")
    errand(world)
    assert [] == world.lease(errands=True)


@pytest.mark.parametrize(
    ("per_queue", "given"), [(1, "https://a.com/robots.txt"), (2, "https://a.com/robots.txt"), (3, "http://a.com/y")]
)
def test_a_call_that_gates_a_host_leases_no_page_of_it_together_with_the_errand(world, per_queue, given):
    """The call once leased the errand for https and, a round later, a page of http: the host had two requests at
    once."""
    world.discover(A)
    answer(world, body=b"User-agent: *\nDisallow: /shut")
    world.clock.move(10)
    world.report(outcome(*world.lease(errands=True), "done", seconds=0.0, status=200))
    world.discover("http://a.com/shut", "https://a.com/x", "http://a.com/y", "http://a.com/z")
    world.clock.move(10)
    assert [given] == world.urls(per_queue * 2, errands=True, per_queue=per_queue)


def test_a_host_with_a_leased_page_gets_no_errand_of_another_host_in_the_same_call(world):
    """The robots.txt of a.com had moved to b.com. The call that queued its errand there had leased a page of b.com."""
    world.discover("http://b.com/")
    answer(world)
    world.clock.move(10)
    world.report(outcome(*world.lease(), "done", seconds=0.0, status=200))
    world.discover(Link(A, crawl="gone"))
    hop = errand(world)
    world.frontier.delete(crawl="gone")
    world.report(outcome(hop, seconds=0.0, robots=RobotsAnswer(301, location="http://b.com/r.txt")))
    world.clock.move(10)
    world.discover(*[f"http://b.com/{n}" for n in range(4)], A, *[f"http://a.com/{n}" for n in range(4)])
    assert ["b.com"] == [lease.host for lease in world.lease(20, errands=True)]


def test_authorities_of_one_host_request_one_after_another(world):
    world.discover(A, "https://a.com/")
    first = answer(world, 404)
    assert [] == world.lease(errands=True)
    world.clock.move(1)
    world.report(world.one(errands=True).done(seconds=0.0))
    world.clock.move(1)
    assert {"http://a.com", "https://a.com"} == {first.authority, errand(world).authority}


@pytest.mark.parametrize("turned", [1, -1])
def test_each_authority_of_a_host_is_judged_by_its_own_rules(turned):
    """The row of a host contains the rules of one authority. Pages of the other authorities look much like pages of
    that one."""
    world = World(robots="errands", delay=0)
    names = ["http://a.com", "https://a.com", "http://a.com:8080", "http://a.com:8088", "http://a.com.", "http://a.co"]
    names = names[::turned]
    rules = {name: f"User-agent: *\nDisallow: /{n}\nDisallow: //{n}".encode() for n, name in enumerate(names)}
    urls = {name: [f"{name}{slashes}{n}" for slashes in ("/", "//") for n in range(6)] for name in names}
    world.discover(*(url for some in zip(*urls.values(), strict=True) for url in some))
    while leases := world.lease(errands=True):
        for lease in leases:
            told = lease.robots(200, rules[lease.authority]) if lease.kind is Kind.ROBOTS else lease.done()
            world.report(told)
        world.clock.move(1)
    for n, name in enumerate(names):
        expected = ["parked" if n == at else "done" for at in range(6)]
        assert 2 * expected == world.states(urls[name])


def test_errands_do_not_count_as_accepted_urls(world):
    world.discover(A)
    errand(world)
    statistics = world.frontier.statistics()
    assert (1, 1, {"queued": 1}) == (statistics["accepted"], statistics["errands"], world.counts())


def test_an_open_errand_keeps_the_crawl_open(world):
    world.discover(A)
    errand(world)
    assert not world.frontier.finished()


def test_pages_follow_their_robots_txt_one_delay_later(world):
    world.discover(A)
    answer(world)
    assert ([], 1.0) == (world.urls(), world.ready_in())
    world.clock.move(1)
    assert [A] == world.urls()


def test_crawl_delay_separates_robots_txt_and_the_first_page(world):
    world.discover(A)
    answer(world, 200, b"User-agent: *\nCrawl-delay: 9")
    assert 9.0 == world.ready_in()


def test_crawl_delay_counts_from_the_hosts_own_last_request_when_another_host_returned_the_rules(world):
    world.discover(A)
    lease = errand(world)
    world.report(lease.robots(301, location="http://b.com/robots.txt", seconds=0))
    answer(world, 200, b"User-agent: *\nCrawl-delay: 9")
    assert ([], 9.0) == (world.urls(), world.ready_in())


@pytest.mark.parametrize("turned", [False, True])
def test_crawl_delay_counts_from_a_request_that_ends_in_the_call_with_the_rules(world, turned):
    """The rules of an authority arrive from another host, together with the end of a request to its own host."""
    world.discover("http://a.com:8080/")
    world.frontier.set_robots("http://a.com:8080", 404)
    world.frontier.set_limit(2, "a.com")
    other = world.one()
    world.discover(A)
    world.clock.move(1)
    first = errand(world)
    world.report(first.robots(301, location="http://b.com/robots.txt", seconds=0.0))
    hop = errand(world)
    world.clock.move(5)
    ends = [hop.robots(200, b"User-agent: *\nCrawl-delay: 9", seconds=0.0), other.done(seconds=0.0)]
    world.report(*(ends[::-1] if turned else ends))
    assert ([], 9.0) == (world.urls(), world.ready_in())


def test_crawl_delay_separates_pages(world):
    world.discover(A, "http://a.com/2")
    answer(world, 200, b"User-agent: *\nCrawl-delay: 9")
    world.clock.move(9)
    world.report(world.one().done(seconds=0))
    assert 9.0 == world.ready_in()


@pytest.mark.parametrize("body", [b"User-agent: *\nCrawl-delay: 9", b"User-agent: *\nDisallow: /no\nCrawl-delay: 9"])
def test_crawl_delay_separates_pages_once_later_rules_contain_it(world, body):
    world.discover(A, "http://a.com/2", "http://a.com/3")
    answer(world, 200, b"User-agent: *\nDisallow: /no")
    for delay in (1.0, 9.0):
        world.clock.move(delay)
        world.report(world.one().done(seconds=0))
        assert delay == world.ready_in()
        world.frontier.set_robots("http://a.com", 200, body)


def test_crawl_delay_separates_pages_after_a_kill(world):
    world.discover(A, "http://a.com/2")
    answer(world, 200, b"User-agent: *\nCrawl-delay: 9")
    world.kill()
    assert 9.0 == world.ready_in()
    world.clock.move(9)
    world.report(world.one().done(seconds=0))
    assert 9.0 == world.ready_in()


def test_a_forbidden_url_is_parked_and_the_crawl_is_finished(world):
    world.discover(A)
    answer(world, 200, NO)
    world.clock.move(1)
    assert ([], {"parked": 1}, True) == (world.urls(), world.counts(), world.frontier.finished())


def test_a_lost_errand_is_run_again(world):
    world.discover(A)
    world.lease(errands=True, ttl_seconds=10)
    world.clock.move(10)
    world.lease(errands=True)
    world.clock.move(1)
    assert "http://a.com/robots.txt" == errand(world).url


def test_a_returned_errand_is_run_again(world):
    world.discover(A)
    world.frontier.release([errand(world).token])
    assert "http://a.com/robots.txt" == errand(world).url


def test_an_errand_that_is_open_at_a_kill_ends_and_its_host_waits(world):
    """The errand's fact names no URL: replay must find out where robots.txt is requested."""
    world.discover(A)
    errand(world)
    world.kill()
    assert [] == recount(world.frontier)
    assert ([], 1.0) == (list(world.lease(errands=True)), world.ready_in())


def test_a_named_workers_errand_survives_a_kill(world):
    world.discover(A)
    (lease,) = world.lease(errands=True, worker="w")
    world.kill()
    world.report(lease.robots(404))
    world.clock.move(1)
    assert [A] == world.urls(errands=True)


def test_an_extended_errand_lasts_longer(world):
    world.discover(A)
    lease = errand(world)
    world.frontier.extend([lease.token], 500)
    world.clock.move(400)
    assert (["ok"], []) == (world.report(lease.robots(404)), recount(world.frontier))


def test_a_stale_errand_changes_no_state(world):
    world.discover(A)
    lease = errand(world)
    world.report(lease.robots(200, NO))
    assert ["stale"] == world.report(lease.robots(200, YES))
    world.clock.move(1)
    assert [] == world.urls()


def test_robots_txt_has_the_class_of_the_best_url_that_waits_for_it(world):
    world.discover(Link(A, priority=0.2), Link("http://a.com/2", priority=0.9))
    world.lease()
    authority = world.inspect().tables.robots.by_name["http://a.com"]
    assert 14 == authority.klass


def test_urls_stay_in_their_queue_while_the_rules_of_their_authority_are_unknown(world):
    """One card is drawn and returns. Then the host is gated, and no call looks at its queue."""
    world.discover(*[f"http://a.com/{n}" for n in range(2_500)], "http://b.com/")
    world.lease()
    tables = world.inspect().tables
    assert (2_501, 2_501) == (len(tables.urls.backlog), world.counts()["queued"])
    assert ["a.com", "b.com"] == [tables.hosts.name(row) for row in sorted(world.inspect().turns.gates)]


def test_a_gate_opens_when_the_urls_that_wait_for_it_are_deleted(world):
    """The gate of a host without URLs keeps no crawl open, and its errand leaves the line."""
    world.discover(Link(A, crawl="one"))
    world.lease()
    world.frontier.delete(crawl="one")
    assert (True, [], {}) == (world.frontier.finished(), world.urls(errands=True), world.inspect().turns.gates)


def test_deleting_a_crawl_keeps_the_daily_errand_of_another(world):
    """Parked URLs of the other crawl wait for the unanswered robots.txt."""
    world.discover(Link(A, crawl="one"), Link("http://a.com/2", crawl="two"))
    for wait in (5, 30, 300, 1):
        answer(world, 503)
        world.clock.move(wait)
    assert ([], [], {"parked": 2}) == (world.urls(errands=True), world.urls(errands=True), world.counts())
    world.frontier.delete(crawl="one")
    world.clock.move(DAY)
    answer(world, 404)
    world.clock.move(1)
    assert ["http://a.com/2"] == world.urls(errands=True)


def test_urls_to_be_judged_again_are_not_forgotten_while_robots_txt_is_unreachable(world):
    """The rules that allow them expire before a call judges them again. Then no server answers for a day."""
    world.discover(A, "http://a.com/2")
    answer(world, 200, NO)
    world.clock.move(1)
    assert ([], {"parked": 2}) == (world.urls(errands=True), world.counts())
    world.frontier.set_robots("http://a.com", 200, YES)
    world.clock.move(DAY)
    for wait in (5, 30, 300, DAY):
        answer(world, 503)
        world.clock.move(wait)
    answer(world, 200, YES)
    world.clock.move(1)
    assert [A] == world.urls(errands=True)


def test_a_daily_errand_continues_over_hops_and_failures_while_urls_are_parked(world):
    """A robots.txt that was unreachable redirects, fails once more and answers: its parked URLs are judged again."""
    world.discover(A)
    for wait in (5, 30, 300, 1):
        answer(world, 503)
        world.clock.move(wait)
    assert ([], {"parked": 1}, True) == (world.urls(errands=True), world.counts(), world.frontier.finished())
    world.clock.move(DAY)
    world.report(errand(world).robots(301, location="http://b.com/r.txt", seconds=0.0))
    world.kill()
    world.clock.move(1)
    world.report(errand(world).robots(503, seconds=0.0))
    assert not world.frontier.finished()
    world.clock.move(5)
    answer(world, 200, YES)
    world.clock.move(1)
    assert [A] == world.urls(errands=True)


def test_rules_that_changed_are_applied_again_after_a_kill_in_the_middle_and_not_twice():
    """The progress of judging again is not in the log, but its end is."""
    world = World(delay=0)
    world.discover(
        *[f"http://a.com/{n}" for n in range(1_200)], *[Link(f"http://a.com/{n}", crawl="b") for n in range(9)]
    )
    world.frontier.set_robots("http://a.com", 200, NO)
    while world.counts().get("queued"):
        world.lease()
    world.frontier.set_robots("http://a.com", 200, b"User-agent: *\nDisallow: /1")
    world.lease()
    world.kill()
    while not world.frontier.finished() and world.inspect().core.gates.again:
        world.lease(0)
    told = {"parked": 1 + 10 + 100 + 200 + 1, "queued": 1_209 - 312 - world.counts().get("leased", 0)}
    assert told == {state: count for state, count in world.counts().items() if state != "leased"}
    world.kill()
    assert {} == world.inspect().core.gates.again


# -- several requests at once


def begun(world: World, limit: int, most: int) -> list[tuple[float, str]]:
    """Returns the start of each request in seconds, and its URL. The host is as busy as allowed: one request ends only
    when no other can start."""
    began, open_ones, seen = world.clock(), [], []
    while len(seen) < most and not world.frontier.finished():
        batch = world.lease(1, errands=True)
        open_ones += batch
        seen += [(seconds(world.clock() - began), url) for url in batch.urls]
        assert len(open_ones) <= limit
        wait = world.ready_in()
        if batch or wait == 0:
            continue
        if wait is None or len(open_ones) == limit or wait > 10:  # then it is the deadline of a lease
            lease = open_ones.pop(0)
            robots = lease.robots(404).robots if lease.kind is Kind.ROBOTS else None
            world.report(outcome(lease, seconds=0.0, status=404 if robots else 200, robots=robots))
        else:
            world.clock.move(wait)
    return seen


@pytest.mark.parametrize("limit", [2, 3])
@pytest.mark.parametrize("other", ["http://a.com:8080", "https://a.com"])
def test_robots_txt_of_another_authority_does_not_wait_for_the_whole_queue(limit, other):
    """Where several requests may be open, the errand gets the next free place, before pages. Then pages continue."""
    world = World(robots="errands")
    world.discover(A)
    world.frontier.set_limit(limit, "a.com")
    answer(world, 404)
    world.clock.move(1)
    world.discover("http://a.com/0", f"{other}/x", *[f"http://a.com/{n}" for n in range(1, 30)])
    urls = [url for _, url in begun(world, limit, 32)]
    assert [A, "http://a.com/0", f"{other}/robots.txt", f"{other}/x", "http://a.com/1"] == urls[:5]


def test_an_errand_among_several_requests_keeps_the_gap_between_their_starts():
    """Pages and errands of a host start one delay apart, and no more of them are open than the limit allows."""
    world = World(robots="errands", delay=2)
    world.discover(A)
    world.frontier.set_limit(3, "a.com")
    ports = range(8080, 8084)
    world.discover(*[f"http://a.com:{port}/{n}" for n in range(4) for port in ports])
    times = [at for at, _ in begun(world, 3, 100)]
    assert 1 + 16 + 5 == len(times)
    assert 2.0 <= min(late - early for early, late in pairwise(times))
    assert [] == recount(world.frontier)


def test_one_request_at_a_time_is_one_errand_at_a_time_despite_the_limits_of_other_hosts():
    """A limit of another host, or no limit, frees no place for an errand during an open page."""
    world = World(robots="errands")
    world.frontier.set_robots("http://a.com", 404)
    world.discover(A, "http://a.com:8080/", "http://b.com/")
    world.frontier.set_limit(2, "b.com")
    world.frontier.lease(1, key="a.com")
    assert [] == [lease.url for lease in world.lease(errands=True) if lease.host == "a.com"]


# -- hops


def test_a_redirect_of_robots_txt_is_a_hop_on_the_targets_clock(world):
    world.discover(A)
    lease = errand(world)
    world.report(lease.robots(301, location="http://b.com/r.txt"))
    hop = errand(world)
    assert ("http://b.com/r.txt", "http://a.com", "b.com", 1) == (hop.url, hop.authority, hop.host, hop.hops)


def test_a_hop_to_the_same_host_waits_for_its_clock(world):
    world.discover(A)
    lease = errand(world)
    world.report(lease.robots(302, location="/r.txt", seconds=0))
    assert [] == world.lease(errands=True)
    world.clock.move(1)
    assert "http://a.com/r.txt" == errand(world).url


def test_rules_at_the_end_of_hops_count_for_the_first_authority(world):
    world.discover(A)
    world.report(errand(world).robots(301, location="http://b.com/r.txt"))
    world.report(errand(world).robots(200, NO))
    world.clock.move(1)
    assert ([], "parked") == (world.urls(), world.state(A))


def test_after_five_hops_the_file_has_no_rules(world):
    world.discover(A)
    for hop in range(6):
        world.report(errand(world).robots(301, location=f"http://h{hop}.com/r.txt"))
    world.clock.move(1)
    assert [A] == world.urls()


def test_a_hop_survives_a_kill(world):
    world.discover(A)
    world.report(errand(world).robots(301, location="http://b.com/r.txt"))
    world.kill()
    world.clock.move(1)
    assert 0.0 == world.ready_in()
    assert "http://b.com/r.txt" == errand(world).url


def test_a_hop_to_a_name_that_does_not_exist_does_not_make_the_first_authority_gone(world):
    world.discover(A)
    world.report(errand(world).robots(301, location="http://b.com/r.txt"))
    world.report(outcome(errand(world), "gone", error="dns_unknown"))
    assert {"queued": 1} == world.counts()
    world.clock.move(5)
    assert "http://a.com/robots.txt" == errand(world).url


# -- unreachable, dead, expired


def unreachable(world: World) -> list[float]:
    """Lets robots.txt fail until the frontier stops retrying and its URLs are refused. Returns the waits between the
    attempts."""
    waits = []
    for _ in range(3):
        world.report(outcome(errand(world), "retry", error="timeout", seconds=0.0))
        waits.append(world.ready_in() or 0.0)
        world.clock.move(waits[-1])
    world.report(outcome(errand(world), "retry", error="timeout", seconds=0.0))
    world.clock.move(1)
    assert [] == world.lease(errands=True)
    return waits


def test_an_unreachable_robots_txt_is_retried_after_5_30_and_300_seconds_and_then_daily(world):
    world.discover(A)
    assert [5.0, 30.0, 300.0] == unreachable(world)
    assert float(DAY - 1) == world.ready_in()


def test_the_attempts_of_an_errand_are_counted(world):
    world.discover(A)
    world.report(outcome(errand(world), "retry", error="timeout"))
    world.clock.move(100)
    assert 2 == errand(world).attempt


def test_attempts_of_an_errand_survive_a_kill(world):
    world.discover(A)
    world.report(outcome(errand(world), "retry", error="timeout", seconds=0.0))
    world.kill()
    world.clock.move(1)
    assert ([], 4.0) == (list(world.lease(errands=True)), world.ready_in())
    world.clock.move(4)
    assert 2 == errand(world).attempt


def test_while_robots_txt_is_retried_no_page_is_leased(world):
    world.discover(A)
    world.report(outcome(errand(world), "retry", error="timeout", seconds=0.0))
    world.clock.move(4)
    assert ([], {"queued": 1}) == (world.urls(), world.counts())


def test_after_the_last_retry_its_urls_are_refused_and_the_crawl_is_finished(world):
    world.discover(A)
    unreachable(world)
    assert ("parked", "robots_unreachable", True) == (world.state(A), world.reason(A), world.frontier.finished())


def test_when_robots_txt_answers_a_day_later_its_urls_continue(world):
    world.discover(A)
    unreachable(world)
    world.clock.move(DAY)
    answer(world, 200, YES)
    world.clock.move(1)
    assert [A] == world.urls(errands=True)


def test_the_daily_attempt_survives_a_kill(world):
    world.discover(A)
    unreachable(world)
    world.kill()
    assert [] == world.lease(errands=True)
    world.clock.move(DAY)
    assert "http://a.com/robots.txt" == errand(world).url


def test_retry_after_of_a_robots_txt_delays_its_host(world):
    world.discover(A)
    lease = errand(world)
    world.report(outcome(lease, "retry", status=503, retry_after_seconds=77.0, robots=lease.robots(503).robots))
    world.lease(errands=True)
    assert 77.0 == world.ready_in()


@pytest.mark.parametrize("error", ["dns_unknown", "blocked_address", "blocked_port"])
def test_urls_of_an_authority_that_does_not_exist_are_gone(world, error):
    world.discover(A)
    world.report(outcome(errand(world), "gone", error=error))
    world.clock.move(1)
    assert ([], "gone", error) == (world.urls(errands=True), world.state(A), world.reason(A))


def test_rules_are_requested_again_after_a_day(world):
    world.discover(A)
    answer(world)
    world.clock.move(DAY)
    assert "http://a.com/robots.txt" == errand(world).url


def test_rules_are_valid_for_a_day(world):
    world.discover(A)
    answer(world)
    world.clock.move(DAY - 1)
    assert [A] == world.urls(errands=True)


def test_when_rules_expired_no_new_page_is_leased(world):
    world.discover(A)
    answer(world)
    world.clock.move(DAY)
    assert [] == world.urls()


def visited(world: World) -> None:
    """Visits two pages of a host, so that its row contains its rules. A third page is queued."""
    world.discover(*[f"{A}{n}" for n in range(3)])
    answer(world)
    for _ in range(2):
        world.clock.move(1)
        world.report(world.one().done(seconds=0.0))
    world.clock.move(1)


def test_when_rules_expired_the_robots_txt_of_a_visited_host_is_requested_again(world):
    visited(world)
    world.clock.move(DAY)
    assert "http://a.com/robots.txt" == errand(world).url


def test_changed_rules_apply_at_once_to_a_visited_host(world):
    visited(world)
    world.frontier.set_robots("http://a.com", 200, NO)
    assert ([], "robots") == (world.urls(errands=True), world.reason(f"{A}2"))


# -- lazy, bounded, judged again


def test_one_call_refuses_at_most_a_thousand(world):
    world.discover(*[f"http://a.com/{n}" for n in range(1_500)], *[f"http://b.com/{n}" for n in range(1_500)])
    world.settle_robots(200, NO)
    before = world.counts().get("parked", 0)
    steps = []
    while world.counts().get("queued"):
        world.lease()
        steps.append(world.counts()["parked"] - before)
        before += steps[-1]
    assert (True, 3_000) == (max(steps) <= 1_000, before)


def test_after_refusals_the_next_lease_is_ready_at_once(world):
    """A call that only refused URLs says that more can be leased now."""
    world.discover(*[f"http://a.com/{n}" for n in range(1_500)])
    world.discover(Link("http://a.com/robots.txt", priority=0.0))
    answer(world, 200, NO)
    world.clock.move(1)
    assert ([], 0.0) == (world.urls(), world.ready_in())


def test_changed_rules_judge_parked_urls_again_in_bounded_steps():
    world = World(delay=0)
    world.discover(*[f"http://a.com/{n}" for n in range(1_200)])
    world.frontier.set_robots("http://a.com", 200, NO)
    world.lease(), world.lease()
    assert {"parked": 1_200} == world.counts()
    world.frontier.set_robots("http://a.com", 200, YES)
    world.lease()
    assert {"queued": 499, "leased": 1, "parked": 700} == world.counts()
    world.lease(), world.lease()
    assert {"queued": 1_199, "leased": 1} == world.counts()


@pytest.mark.parametrize("rules", [0, 20_000])
def test_other_hosts_are_leased_while_parked_urls_are_judged_again(rules):
    """Judging again once used the whole budget of a call: until the last of 3,000 URLs was judged by 30,000 rules, 750
    calls leased no URL."""
    world = World(delay=0)
    world.discover(*[f"http://a.com/{n}" for n in range(2_000)])
    world.frontier.set_robots("http://a.com", 200, NO)
    while world.counts().get("queued"):
        world.lease()
    world.discover(*[f"http://b.com/{n}" for n in range(5)])
    world.frontier.set_robots("http://b.com", 200, b"User-agent: *\nDisallow: /1")
    longer = b"".join(b"Disallow: /x%d\n" % number for number in range(rules))
    world.frontier.set_robots("http://a.com", 200, NO + b"\n" + longer)
    assert ["http://b.com/0"] == world.urls()
    assert (2_000, False) == (world.counts()["parked"], world.frontier.finished())


def test_parked_urls_are_judged_again_despite_a_kill_in_between():
    """The progress of judging again was not in the log."""
    world = World(delay=0)
    world.discover(*[f"http://a.com/{n}" for n in range(1_200)])
    world.frontier.set_robots("http://a.com", 200, NO)
    world.lease(), world.lease()
    world.frontier.set_robots("http://a.com", 200, YES)
    world.lease()
    world.kill()
    assert not world.frontier.finished()
    world.lease(), world.lease()
    assert {"queued": 1_199, "leased": 1} == world.counts()


def test_parked_urls_are_judged_again_despite_a_kill_and_expired_rules(world):
    world.discover(A)
    answer(world, 200, NO)
    world.clock.move(1)
    world.lease()
    world.frontier.set_robots("http://a.com", 200, YES)
    world.kill()
    world.clock.move(DAY)
    answer(world, 200, YES)
    world.clock.move(1)
    assert [A] == world.urls(errands=True)


def test_the_same_rules_again_cause_no_new_verdicts():
    world = World()
    world.discover(A)
    world.frontier.set_robots("http://a.com", 200, NO)
    world.lease()
    world.frontier.set_robots("http://a.com", 200, NO)
    assert (True, None) == (world.frontier.finished(), world.ready_in())


def test_a_parked_crawl_that_is_opened_again_is_finished_after_one_call():
    world = World()
    world.discover(A)
    world.frontier.set_robots("http://a.com", 200, NO)
    world.lease()
    world.reopen()
    world.lease()
    assert (True, None) == (world.frontier.finished(), world.ready_in())


# -- lines


def test_a_refused_url_has_one_line_at_its_first_refusal():
    world = World(output=True)
    world.discover(A)
    world.frontier.set_robots("http://a.com", 200, NO)
    batch = world.lease()
    ((stream, text),) = batch.lines
    line = json.loads(text)
    assert ("pages", A, "robots", 0, None) == (stream, line["url"], line["outcome"], line["attempt"], line["status"])
    world.frontier.set_robots("http://a.com", 200, YES)
    world.lease()
    world.frontier.set_robots("http://a.com", 200, NO)
    world.kill()
    lines = [line for batch in (world.lease(), world.lease()) for line in batch.lines]
    assert [] == lines


def test_an_outcomes_line_is_stored_with_it_and_counts_its_new_links():
    world = World(output=True)
    world.discover(A)
    lease = world.one()
    done = outcome(lease, line=b'{"url":"http://a.com/"}', politeness=b'{"host":"a.com"}', links=[A, "http://b.com/"])
    report = world.frontier.report([done])
    assert [("pages", {"url": A, "new_links": 1}), ("politeness", {"host": "a.com"})] == [
        (stream, json.loads(text)) for stream, text in report.lines
    ]


def test_a_stale_outcome_has_no_line():
    world = World(output=True)
    world.discover(A)
    lease = world.one()
    world.report(outcome(lease, line=b'{"n":1}'))
    world.report(outcome(lease, line=b'{"n":2}'))
    assert [{"n": 1, "new_links": 0}] == [json.loads(line) for _, line in world.frontier.lines("pages", 0)]


def test_lines_are_read_from_the_log_after_a_kill():
    world = World(output=True)
    world.discover(A)
    lsn = world.frontier.report([outcome(world.one(), line=b'{"n":1}')]).lsn
    world.kill()
    assert [(lsn, b'{"n":1,"new_links":0}')] == list(world.frontier.lines("pages", 0))
    assert [] == list(world.frontier.lines("pages", lsn))


def test_verdicts_are_members_of_the_enum():
    world = World()
    world.discover(A)
    lease = world.one()
    with pytest.raises(SettingsError, match="Verdict"):
        world.report(outcome(lease).__class__(lease.token, "done"))
    assert START + instant(60) == lease.deadline
    assert Verdict.DONE == outcome(lease).verdict


def test_a_host_whose_errand_waits_for_its_retry_is_resting():
    world = World(robots="errands", delay=0)
    world.discover("http://a.com/")
    world.report(world.one(errands=True).robots(503))
    world.lease(10, errands=True)
    assert (0, 1) == (world.frontier.statistics()["hosts"]["ready"], world.frontier.statistics()["hosts"]["resting"])


# -- when an errand ended


@pytest.mark.parametrize("behind", [0.5, 86_400.0, 1e9])
def test_an_errand_that_reports_an_end_before_its_start_leaves_a_whole_gap(behind):
    """The clock of its holder is slow: the gap counts from the report on, and is never 0.0 s."""
    world = World(robots="errands", delay=2.0)
    world.discover(A)
    lease = errand(world)
    world.clock.move(0.4)
    ended = max(0, world.clock() - instant(behind))
    world.report(outcome(lease, seconds=0.0, ended_at=ended, robots=lease.robots(404).robots))
    assert 2.0 == world.ready_in()


def test_an_errand_whose_reported_end_is_possible_delays_its_host_from_then_on():
    world = World(robots="errands", delay=2.0)
    world.discover(A)
    lease = errand(world)
    world.clock.move(4)
    world.frontier.extend([lease.token], 60)
    world.report(outcome(lease, seconds=0.0, ended_at=world.clock() - instant(1), robots=lease.robots(404).robots))
    assert 1.0 == world.ready_in()


def test_the_start_of_an_errand_that_survived_a_kill_is_unknown():
    """A request with an unknown end counts as ended just now."""
    world = World(robots="errands", delay=2.0)
    world.discover(A)
    (lease,) = world.lease(errands=True, worker="w")
    world.clock.move(4)
    world.kill()
    world.lease(errands=True)
    world.report(outcome(lease, seconds=0.0, ended_at=world.clock() - instant(3), robots=lease.robots(404).robots))
    assert 2.0 == world.ready_in()


# -- hosts that operators closed


def lined_up(*links: str | Link, **how) -> World:
    """A world whose hosts wait for the errand of their robots.txt."""
    world = World(robots="errands", **how)
    world.discover(*(links or (A,)))
    assert [] == world.urls()
    return world


def test_a_paused_host_gets_no_errand_until_it_is_resumed():
    world = lined_up()
    world.lease(0, errands=True)
    world.frontier.pause("a.com")
    assert ([], None) == (world.urls(errands=True), world.ready_in())
    world.frontier.resume("a.com")
    assert (0.0, "http://a.com/robots.txt") == (world.ready_in(), errand(world).url)


def test_a_blocked_host_gets_its_errand_when_the_block_ends():
    world = lined_up()
    world.lease(0, errands=True)
    world.frontier.block_until(world.clock() + instant(60), "a.com")
    assert ([], 60.0) == (world.urls(errands=True), world.ready_in())
    world.kill()
    assert [] == world.urls(errands=True)
    world.clock.move(60)
    assert "http://a.com/robots.txt" == errand(world).url


def test_the_hosts_of_a_paused_crawl_get_no_errands():
    world = lined_up(A, "http://b.com/")
    world.frontier.pause()
    assert [] == world.urls(errands=True)
    world.frontier.resume()
    assert 2 == len(world.lease(errands=True))


def test_an_errand_continues_for_the_crawl_that_is_not_paused():
    world = lined_up(Link(A, crawl="one"), Link("http://a.com/2", crawl="two"))
    world.frontier.pause(crawl="one")
    world.lease()
    assert "http://a.com/robots.txt" == errand(world).url
    other = lined_up(Link(A, crawl="one"))
    other.discover(Link("http://b.com/", crawl="two"))
    other.frontier.pause(crawl="one")
    assert ["http://b.com/robots.txt"] == other.urls(errands=True)


def test_an_unanswered_robots_txt_is_not_retried_while_its_host_is_paused():
    world = lined_up()
    answer(world, 503)
    world.frontier.pause("a.com")
    world.clock.move(2 * DAY)
    assert [] == world.urls(errands=True)
    world.frontier.resume("a.com")
    assert "http://a.com/robots.txt" == errand(world).url


@pytest.mark.parametrize("closed", ["a.com", "b.com"])
def test_a_hop_is_not_requested_while_its_owner_or_its_host_is_paused(closed):
    world = lined_up()
    world.discover(Link("http://b.com/", not_before=world.clock() + instant(DAY)))
    world.report(errand(world).robots(301, location="http://b.com/r.txt"))
    world.frontier.pause(closed)
    world.clock.move(10)
    assert [] == world.urls(errands=True)
    world.frontier.resume(closed)
    assert "http://b.com/r.txt" == errand(world).url


def test_a_hop_to_a_host_of_no_crawl_is_requested_while_another_crawl_is_paused():
    world = lined_up(Link(A, crawl="one"))
    world.report(errand(world).robots(301, location="http://b.com/r.txt"))
    world.discover("http://c.com/")
    world.frontier.pause()
    assert "http://b.com/r.txt" == errand(world).url


def test_a_crawl_that_was_deleted_while_its_errand_was_queued_ends():
    world = lined_up(Link(A, crawl="one"))
    world.frontier.pause(crawl="one")
    world.frontier.delete(crawl="one")
    world.settle_robots()
    assert world.frontier.finished()


def test_a_frontier_that_waits_for_errands_says_how_to_lease_them():
    with Frontier.memory(robots="errands") as frontier:
        frontier.discover(["http://a.com/"])
        with pytest.raises(PagesNeedErrandsError):
            frontier.lease(5)
        assert frontier.explain_idle().text.startswith("1 host is ready: lease from it with errands=True")


def test_a_robots_lease_reported_without_an_answer_is_refused_with_a_message():
    with Frontier.memory(robots="errands") as frontier:
        frontier.discover(["http://a.com/"])
        (errand,) = frontier.lease(1, errands=True)
        with pytest.raises(SettingsError, match=r"report lease\.robots\(status, body\)"):
            frontier.report([errand.done(seconds=0.1)])
        assert [Settled.OK] == list(frontier.report([errand.robots(200, b"User-agent: *\nDisallow: /")]))
        assert not [lease for lease in frontier.lease(5, errands=True) if lease.kind == "page"]
