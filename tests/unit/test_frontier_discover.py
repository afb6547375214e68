"""The first verb: codes, spelling, scope, limits, crawls, and the results of redirects."""

from __future__ import annotations

import pytest

from model.world import START, World, outcome, recount
from outrider import Link
from outrider.clock import instant
from outrider.errors import SettingsError
from outrider.frontier.verbs import deciding

A = "http://a.com/"


@pytest.fixture
def world():
    return World()


# -- codes


def test_a_url_seen_for_the_first_time_is_new(world):
    assert ["new"] == world.discover(A)


def test_a_url_seen_before_is_known(world):
    world.discover(A)
    assert ["known"] == world.discover(A)


def test_a_url_twice_in_one_call_is_new_once(world):
    assert ["new", "known"] == world.discover(A, A)


def test_spellings_of_one_page_are_one_url(world):
    assert ["new", "known", "known"] == world.discover("http://a.com/x", "HTTP://A.com:80/b/../x", "http://a.com/x#y")


@pytest.mark.parametrize("url", ["ftp://a.com/", "mailto:a@b.c", "", "a.com", "http://", "http://a b/", None, 7, b"x"])
def test_a_url_that_cannot_be_crawled_is_invalid(world, url):
    assert ["invalid"] == world.discover(url)


def test_a_url_of_more_than_8_kib_is_over_the_limit(world):
    longest = A + "x" * (8_192 - len(A))
    assert ["new", "over_limit"] == world.discover(longest, longest + "x")


def test_metadata_of_more_than_16_kib_is_over_the_limit(world):
    assert ["over_limit"] == world.discover(Link(A, metadata={"x": "y" * 16_384}))


def test_more_than_five_hops_are_over_the_limit(world):
    assert ["new", "over_limit"] == world.discover(Link(A, hops=5), Link("http://b.com/", hops=6))


def test_answers_are_in_the_order_of_the_links(world):
    world.discover("http://k.com/")
    assert ["invalid", "known", "new", "invalid", "new"] == world.discover(
        "x:", "http://k.com/", "http://z.com/", "y:", "http://b.com/"
    )


def test_no_links_get_no_answers(world):
    assert [] == world.discover()


def test_one_text_in_place_of_a_list_is_refused(world):
    with pytest.raises(SettingsError, match="list of links"):
        world.frontier.discover(A)


@pytest.mark.parametrize(
    "link",
    [
        Link(A, priority=1.5),
        Link(A, priority=float("nan")),
        Link(A, priority="high"),
        Link(A, depth=-1),
        Link(A, depth=70_000),
        Link(A, hops=256),
        Link(A, not_before=-5),
        Link(A, not_before=1 << 70),
        Link(A, not_before=1.5),
        Link(A, key=""),
        Link(A, key=7),
        Link(A, key="k" * 1_025),
        Link(A, crawl=7),
        Link(A, referrer=7),
        Link(A, metadata={"x": object()}),
    ],
)
def test_a_value_that_cannot_be_stored_is_refused_and_changes_no_state(world, link):
    with pytest.raises(SettingsError):
        world.discover("http://before.com/", link)
    assert ["new"] == world.discover("http://before.com/")


def test_a_call_that_does_not_fit_into_a_frame_is_refused_and_changes_no_state(world, monkeypatch):
    monkeypatch.setattr(deciding, "FRAME_PAYLOAD_BYTES_MAX", 1_000)
    with pytest.raises(SettingsError, match="smaller"):
        world.discover(*[f"{A}{n}" for n in range(20)])
    assert ["new"] == world.discover(f"{A}1")


# -- scope


def test_a_scope_of_hosts_is_spanned_by_the_seeds():
    world = World(scope="host")
    world.discover(A)
    links = ["http://a.com/x", "http://a.com:8080/", "http://www.a.com/", "http://b.com/"]
    report = world.frontier.report([world.one().done(links=links)])
    assert (("new", "new", "out_of_scope", "out_of_scope"),) == report.links


def test_a_scope_of_domains_accepts_all_hosts_of_the_seeds_domains():
    world = World(scope="domain")
    world.discover("http://www.a.co.uk/")
    report = world.frontier.report(
        [world.one().done(links=["http://a.co.uk/", "http://x.y.a.co.uk/", "http://b.co.uk/"])]
    )
    assert (("new", "new", "out_of_scope"),) == report.links


def test_a_scope_of_prefixes_accepts_urls_below_the_seeds():
    world = World(scope="prefix")
    world.discover("http://a.com/docs/index.html")
    report = world.frontier.report([world.one().done(links=["/docs/x/y", "/docs/", "/doc", "/"])])
    assert (("invalid",) * 4,) == report.links, "links are absolute"
    world.clock.move(10)
    lease = world.discover("http://a.com/docs/2") and world.one()
    links = [f"http://a.com{path}" for path in ("/docs/x/y", "/docs/", "/doc", "/")]
    assert (("new", "new", "out_of_scope", "out_of_scope"),) == world.frontier.report([lease.done(links=links)]).links


def test_a_later_seed_widens_the_scope():
    world = World(scope="host")
    world.discover(A)
    world.discover("http://b.com/")
    links = ["http://b.com/2", "http://c.com/"]
    assert (("new", "out_of_scope"),) == world.frontier.report([world.one().done(links=links)]).links


def test_the_target_of_a_redirected_seed_widens_the_scope():
    world = World(scope="host")
    world.discover(A)
    world.report(world.one().done(status=301, location="http://www.a.com/"))
    report = world.frontier.report([world.one().done(links=["http://www.a.com/x", "http://b.com/"])])
    assert (("new", "out_of_scope"),) == report.links


def test_the_target_of_a_redirected_found_page_does_not_widen_the_scope():
    world = World(scope="host", delay=0)
    world.discover(A)
    world.report(world.one().done(links=["http://a.com/2"]))
    world.report(world.one().done(status=301, location="http://b.com/"))
    assert {"done": 2} == world.counts()


def test_the_scope_survives_a_kill():
    world = World(scope="host")
    world.discover(A)
    world.report(world.one().done(status=301, location="http://www.a.com/"))
    world.kill()
    world.clock.move(10)
    links = ["http://a.com/x", "http://www.a.com/x", "http://b.com/"]
    assert (("new", "new", "out_of_scope"),) == world.frontier.report([world.one().done(links=links)]).links


def test_links_deeper_than_the_limit_are_out_of_scope():
    world = World(max_depth=1, delay=0)
    world.discover(A)
    world.report(world.one().done(links=["http://a.com/1"]))
    report = world.frontier.report([world.one().done(links=["http://a.com/2"])])
    assert (("out_of_scope",),) == report.links


def test_patterns_include_and_exclude():
    world = World(include=["/in/"], exclude=["secret"])
    world.discover(A)
    links = ["http://a.com/in/1", "http://a.com/in/secret", "http://a.com/out"]
    assert (("new", "out_of_scope", "out_of_scope"),) == world.frontier.report([world.one().done(links=links)]).links


def test_thousands_of_seeds_widen_the_scope_once_each():
    """In one step per call: a copy of the scope per seed would need minutes here."""
    world = World(scope="host")
    world.discover(*[f"http://h{n}.com/" for n in range(4_000)])
    world.discover(*[f"http://h{n}.com/x" for n in range(4_000)])
    assert 4_000 == len(world.inspect().tables.crawls.scope[0])


# -- depth, referrer, links of outcomes


def test_a_found_link_is_one_deeper_and_has_its_referrer(world):
    world.discover(A)
    world.report(world.one().done(links=["http://b.com/"]))
    lease = world.one()
    assert (1, A) == (lease.depth, lease.referrer)


def test_the_depth_has_a_maximum_of_16_bits(world):
    world.discover(Link(A, depth=65_535))
    world.report(world.one().done(links=["http://b.com/"]))
    assert 65_535 == world.one().depth


def test_links_next_to_the_outcomes_belong_to_the_row_that_they_name(world):
    world.discover(A, "http://b.com/")
    first, second = world.lease(2)
    report = world.frontier.report([first.done(), second.done()], links=[(1, "http://c.com/"), (0, "http://d.com/")])
    assert (("new",), ("new",)) == report.links
    assert {"http://c.com/": second.url, "http://d.com/": first.url} == {
        lease.url: lease.referrer for lease in world.lease(2)
    }


def test_a_link_that_names_no_outcome_is_refused(world):
    world.discover(A)
    with pytest.raises(SettingsError, match="names outcome 1"):
        world.frontier.report([world.one().done()], links=[(1, "http://c.com/")])


def test_links_of_a_stale_outcome_are_not_accepted(world):
    world.discover(A)
    lease = world.one(ttl_seconds=10)
    world.clock.move(20)
    report = world.frontier.report([lease.done(links=["http://b.com/"])])
    assert (("stale",), ((),), "unknown") == (report.outcomes, report.links, world.state("http://b.com/"))


def test_the_code_of_a_redirects_target_is_not_among_the_links_codes(world):
    world.discover(A)
    done = outcome(world.one(), status=301, location="http://b.com/", links=["http://b.com/", "http://c.com/"])
    assert (("known", "new"),) == world.frontier.report([done]).links


# -- redirects


def test_a_redirects_target_is_a_url_of_its_own(world):
    world.discover(Link(A, priority=0.9, depth=3))
    world.report(world.one().done(status=301, location="http://b.com/x"))
    lease = world.one()
    assert ("http://b.com/x", 0.9, 3, 1, A) == (lease.url, lease.priority, lease.depth, lease.hops, lease.referrer)


def test_a_redirects_target_is_read_against_its_source(world):
    world.discover("http://a.com/x/y")
    world.report(world.one().done(status=302, location="../z"))
    assert "queued" == world.state("http://a.com/z")


def test_a_redirects_source_is_done(world):
    world.discover(A)
    world.report(world.one().done(status=301, location="http://b.com/"))
    assert ("done", 301) == (world.state(A), world.frontier.status(A).status)


def test_a_redirects_target_is_leased_before_later_urls(world):
    """It inherits the source's due date."""
    world = World(delay=0)
    world.discover("http://a.com/1")
    lease = world.one()
    world.clock.move(1)
    world.discover("http://a.com/2")
    world.clock.move(1)
    world.report(lease.done(status=301, location="http://a.com/3"))
    assert "http://a.com/3" == world.one().url


def test_a_redirect_to_a_known_url_queues_no_url(world):
    world.discover(A, "http://b.com/")
    lease = next(lease for lease in world.lease() if lease.url == A)
    world.report(lease.done(status=301, location="http://b.com/"))
    assert {"done": 1, "leased": 1} == world.counts()


def test_the_target_of_the_sixth_hop_is_a_link_of_its_own(world):
    world.discover("http://h0.com/")
    for hop in range(1, 7):
        world.report(world.one().done(status=301, location=f"http://h{hop}.com/"))
        if hop < 6:
            assert "queued" == world.state(f"http://h{hop}.com/")
    assert ("queued", {"queued": 1, "done": 6}) == (world.state("http://h6.com/"), world.counts())
    assert (0, 1) == ((lease := world.one()).hops, lease.depth)


def test_a_redirect_to_no_url_ends_the_source(world):
    world.discover(A)
    world.report(world.one().done(status=301, location="mailto:a@b.c"))
    assert {"done": 1} == world.counts()


def test_retry_after_on_a_redirect_is_the_not_before_of_the_target(world):
    world.discover(A)
    lease = world.one()
    world.report(outcome(lease, status=301, location="http://b.com/", retry_after_seconds=100.0, seconds=0.0))
    assert ("waiting", START + instant(100)) == (
        world.state("http://b.com/"), world.frontier.status("http://b.com/").due,
    )  # fmt: skip


def test_retry_after_on_a_redirect_does_not_delay_the_host(world):
    world.discover(A, "http://a.com/2")
    lease = world.one()
    world.report(outcome(lease, status=301, location="http://b.com/", retry_after_seconds=100.0, seconds=0.0))
    world.clock.move(1)
    assert ["http://a.com/2"] == world.urls()


def test_a_location_with_a_failure_does_not_count_as_a_redirect(world):
    """Retry-After of a 503 delays the host, with any other headers."""
    world.discover(A)
    lease = world.one()
    world.report(outcome(lease, "retry", status=503, location="http://b.com/", retry_after_seconds=100.0))
    assert ("unknown", 100.0) == (world.state("http://b.com/"), world.ready_in())


# -- crawls


def test_each_crawl_has_its_own_state_of_the_same_url(world):
    assert ["new", "new", "known"] == world.discover(A, Link(A, crawl="other"), Link(A, crawl="other"))


def test_a_lease_names_its_crawl_and_its_links_stay_in_it(world):
    world.discover(Link(A, crawl="other"))
    lease = world.one()
    world.report(lease.done(links=["http://b.com/"]))
    assert ("other", "other") == (lease.crawl, world.one().crawl)


def test_a_lease_may_be_limited_to_one_crawl(world):
    world.discover(A, Link("http://b.com/", crawl="other"))
    assert (["http://b.com/"], []) == (world.urls(crawl="other"), world.urls(crawl="nobody's"))


def test_a_lease_may_be_limited_to_one_key(world):
    world.discover(A, Link("http://b.com/", key="k"))
    assert ["http://b.com/"] == world.urls(key="k")


def test_two_crawls_share_a_hosts_clock(world):
    world.discover(A, Link(A, crawl="other"))
    world.report(world.one().done(seconds=0))
    assert ([], 1.0) == (world.urls(), world.ready_in())


def test_two_crawls_do_not_visit_a_host_at_once(world):
    world.discover(A, Link(A, crawl="other"))
    assert (1, 0) == (len(world.lease()), len(world.lease()))


def test_queues_of_equal_priority_of_two_crawls_alternate(world):
    world.discover(*[f"http://a.com/{n}" for n in range(4)])
    world.discover(*[Link(f"http://a.com/{n}", crawl="other") for n in range(4)])
    turns = []
    for _ in range(8):
        lease = world.one()
        turns.append(lease.crawl)
        world.report(lease.done(seconds=0))
        world.clock.move(1)
    assert ["default", "other"] * 4 == turns


def test_a_crawl_that_is_added_later_does_not_catch_up_on_earlier_turns(world):
    world.discover(*[f"http://a.com/{n}" for n in range(20)])
    for _ in range(10):
        world.report(world.one().done(seconds=0))
        world.clock.move(1)
    world.discover(*[Link(f"http://a.com/{n}", crawl="other") for n in range(10)])
    turns = []
    for _ in range(4):
        lease = world.one()
        turns.append(lease.crawl)
        world.report(lease.done(seconds=0))
        world.clock.move(1)
    assert ["other", "default", "other", "default"] == turns


def test_better_urls_of_another_crawl_do_not_starve_a_crawl_of_low_priority(world):
    """At every eighth turn of a host its queues are equal."""
    world.discover(*[Link(f"http://a.com/{n}", priority=1.0) for n in range(40)])
    world.discover(Link(A, crawl="other", priority=0.0))
    crawls = []
    for _ in range(9):
        lease = world.one()
        crawls.append(lease.crawl)
        world.report(lease.done(seconds=0))
        world.clock.move(1)
    assert 1 == crawls.count("other")


def test_crawls_and_their_generation_survive_a_kill(world):
    world.discover(Link(A, crawl="other"))
    world.kill()
    assert [("default", 1), ("other", 1)] == list(world.inspect().tables.crawls.names.values())
    assert ["known", "new"] == world.discover(Link(A, crawl="other"), A)
    assert [] == recount(world.frontier)
