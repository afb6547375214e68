"""Errands that callers queue: leased once on the clock of their host, durable, ended by their outcome."""

from __future__ import annotations

import pytest

from limiting import set_limits
from model.inside import inspect
from model.world import Clock, World, everything, hosts_go_cold, recount
from outrider import Frontier, Link
from outrider.clock import instant
from outrider.errors import SettingsError
from outrider.frontier.state import errand as errands
from outrider.journey import Code, Kind, Lease, Outcome
from outrider.storage.memory import MemoryFiles

A = "http://a.com/"
MAP = "http://a.com/sitemap.xml"


@pytest.fixture
def world():
    return World()


def queued(world: World, *urls: str, **how) -> list[Code]:
    return world.frontier.queue_errands(how.pop("kind", "sitemap"), list(urls), **how)


def taken(world: World, want: int = 10) -> list[str]:
    """Returns the URLs of all possible leases, errands among them. Reports each as done."""
    batch = world.lease(want, errands=True)
    world.report(*[lease.done(seconds=0.0) for lease in batch])
    return [lease.url for lease in batch]


def one(world: World) -> Lease:
    (lease,) = world.lease(errands=True)
    return lease


def test_an_errand_is_leased_once_with_its_kind_and_owner_and_its_outcome_ends_it(world):
    assert [Code.NEW] == queued(world, MAP)
    assert (False, 1) == (world.frontier.finished(), world.frontier.statistics()["errands"])
    lease = one(world)
    assert (MAP, Kind.SITEMAP, "http://a.com", "a.com", 0.5, 1, 0, None) == (
        *(lease.url, lease.kind, lease.authority, lease.host, lease.priority, lease.attempt, lease.hops),
        lease.referrer,
    )
    assert [] == world.urls(errands=True)
    assert ["ok"] == world.report(lease.done(seconds=0.0))
    assert (True, 0, [], []) == (
        *(world.frontier.finished(), world.frontier.statistics()["errands"]),
        *(world.urls(errands=True), recount(world.frontier)),
    )


def test_only_one_errand_of_a_url_is_queued_at_a_time_in_any_spelling(world):
    codes = queued(world, "http://A.com/sitemap.xml", MAP, "no url", "http://a.com/" + "x" * 9_000)
    assert [Code.NEW, Code.KNOWN, Code.INVALID, Code.OVER_LIMIT] == codes
    lease = one(world)
    assert [Code.KNOWN] == queued(world, MAP)
    world.report(lease.done())
    assert [Code.NEW] == queued(world, MAP)


def test_callers_cannot_queue_errands_of_other_kinds(world):
    for kind in ("robots", "address", "page", "map", 7):
        with pytest.raises(SettingsError, match=r"kind .*: callers queue errands of kind sitemap"):
            world.frontier.queue_errands(kind, [MAP])


def test_errands_above_the_limit_are_over_the_limit(world, monkeypatch):
    set_limits(monkeypatch, CALLERS_ERRANDS_MAX=2)
    assert [Code.NEW, Code.NEW, Code.OVER_LIMIT] == queued(world, *[f"http://a.com/{n}" for n in range(3)])


def test_a_caller_without_errands_still_gets_pages(world):
    queued(world, MAP)
    world.discover(A)
    assert [A] == world.urls()


def test_errands_and_pages_of_a_host_share_its_clock(world):
    """Every request needs a lease: one at a time, and a gap after each."""
    queued(world, MAP)
    world.discover(A)
    assert ([MAP], []) == (taken(world), taken(world))
    assert 1.0 == world.ready_in()
    world.clock.move(1)
    assert ([A], 1.0) == (taken(world), world.frontier.next_ready_seconds() or 1.0)


def test_a_page_of_a_better_class_is_leased_before_an_errand_but_not_for_ever(world):
    """Its priority is 0.5, and every few turns the class does not count."""
    world.discover(*[Link(f"http://a.com/{n}", priority=0.9) for n in range(20)])
    queued(world, MAP)
    seen = []
    while MAP not in seen:
        seen += taken(world)
        world.clock.move(1)
    assert (A + "0", True) == (seen[0], 2 <= len(seen) <= 12)
    queued(world, MAP)
    world.frontier.reprioritise([f"http://a.com/{n}" for n in range(20)], 0.1)
    assert [MAP] == taken(world)


def kinds(world, turns):
    """Returns the kinds of the leases of a host in `turns` turns."""
    found = []
    for _ in range(turns):
        (lease,) = world.lease(10, errands=True)
        found.append(str(lease.kind))
        world.report(lease.done(seconds=0.0))
        world.clock.move(1)
    return found


@pytest.mark.parametrize("priority", [None, 0.5, 0.2, 0.0])
def test_sitemaps_and_pages_of_a_host_alternate(world, priority):
    """An index of many sitemaps does not keep the first page waiting."""
    world.discover(*[Link(f"http://a.com/{n}", priority=priority) for n in range(6)])
    queued(world, *[f"http://a.com/{n}.xml" for n in range(500)])
    assert ["sitemap", "page"] * 6 == kinds(world, 12)
    assert ["sitemap"] * 4 == kinds(world, 4)


def test_the_limit_of_pages_ends_a_crawl_with_thousands_of_sitemaps():
    world = World(delay=1, delay_factor=0.0, max_pages=10)
    world.discover(*[f"http://a.com/{n}" for n in range(12)])
    queued(world, *[f"http://a.com/{n}.xml" for n in range(50_000)])
    assert ["sitemap", "page"] * 10 == kinds(world, 20)
    assert ([], True) == (taken(world), world.frontier.at_limit())


def test_pages_of_a_better_class_keep_seven_of_eight_turns_from_sitemaps(world):
    world.discover(*[Link(f"http://a.com/{n}", priority=0.9) for n in range(80)])
    queued(world, *[f"http://a.com/{n}.xml" for n in range(80)])
    assert (56, 8) == ((told := kinds(world, 64)).count("page"), told.count("sitemap"))


def test_errands_of_one_authority_are_leased_one_after_another(world):
    """Also where several requests may be open. Errands of other authorities are leased at the same time."""
    queued(world, MAP, "http://a.com/2.xml", "https://a.com/s.xml")
    world.frontier.set_limit(3, "a.com")
    world.discover(A)
    batch = list(world.lease(10, errands=True))
    world.clock.move(1)
    batch += world.lease(10, errands=True)
    assert {MAP, "https://a.com/s.xml"} == {lease.url for lease in batch}
    world.report(batch[0].done(seconds=0.0))
    world.clock.move(1)
    assert ["http://a.com/2.xml"] == [lease.url for lease in world.lease(10, errands=True) if "a.com/2" in lease.url]


def test_a_redirect_is_a_hop_on_the_clock_of_its_target(world):
    queued(world, MAP)
    lease = one(world)
    world.report(moved_to(lease, "http://b.com/s.xml"))
    assert not world.frontier.finished()
    hop = one(world)
    assert ("http://b.com/s.xml", "b.com", "http://a.com", 1, MAP) == (
        *(hop.url, hop.host, hop.authority, hop.hops, hop.referrer),
    )
    world.report(hop.done())
    assert world.frontier.finished()


def moved_to(lease: Lease, location: str) -> Outcome:
    return lease.done(seconds=0.0, status=301, location=location)


def test_hops_are_bounded(world):
    queued(world, MAP)
    for hop in range(6):
        lease = one(world)
        assert hop == lease.hops
        world.report(moved_to(lease, f"http://a.com/{hop}"))
        world.clock.move(1)
    assert (True, []) == (world.frontier.finished(), world.urls(errands=True))


def test_a_failure_is_retried_after_growing_waits_and_then_abandoned(world):
    queued(world, MAP)
    waits = []
    for attempt in range(1, 5):
        lease = one(world)
        assert attempt == lease.attempt
        world.report(lease.retry(seconds=0.0, error="timeout"))
        waits.append(world.ready_in())
        world.clock.move(waits[-1] or 0)
    assert ([5.0, 30.0, 300.0, None], True) == (waits, world.frontier.finished())


def test_again_queues_the_errand_for_a_later_instant(world):
    queued(world, MAP)
    world.report(moved_to(one(world), "http://b.com/s.xml"))
    world.report(one(world).again(at=world.clock() + instant(3_600), seconds=0.0))
    assert (False, 3_600.0) == (world.frontier.finished(), world.ready_in())
    world.clock.move(3_600)
    assert (MAP, 0) == (one(world).url, 0)


def test_an_errand_that_waits_for_its_time_lets_other_errands_of_its_authority_pass(world):
    queued(world, MAP, "http://a.com/2.xml")
    world.report(one(world).retry(seconds=0.0))
    world.clock.move(1)
    assert ["http://a.com/2.xml"] == taken(world)
    world.clock.move(4)
    assert [MAP] == taken(world)


def test_links_of_its_outcome_become_urls_of_its_crawl_in_the_same_frame(world):
    queued(world, MAP, crawl="news")
    lease = one(world)
    assert "news" == lease.crawl
    report = world.frontier.report([lease.done(links=[A, "http://b.com/"])])
    assert ((Code.NEW, Code.NEW), 2) == (report.links[0], world.frontier.count(state="queued", crawl="news"))
    world.clock.move(1)
    (first, second) = sorted(world.lease(), key=lambda one: one.url)
    assert (MAP, 1) == (first.referrer, first.depth)
    assert (MAP, 1) == (second.referrer, second.depth)


def test_links_beyond_one_frame_become_urls_too(world, monkeypatch):
    set_limits(monkeypatch, CALL_BYTES_PER_FRAME=4_000)
    queued(world, MAP)
    links = [f"http://a.com/{n}" for n in range(200)]
    report = world.frontier.report([one(world).done(links=links)])
    assert (200, 200, True) == (len(report.links[0]), world.counts()["queued"], world.frontier.verify().ok)


@pytest.mark.parametrize("kind", ["sitemap", "probe", "tdmrep"])
@pytest.mark.parametrize("ends", ["kill", "reopen"])
def test_errands_their_hops_and_attempts_survive_every_end(ends, kind):
    world = World()
    queued(world, MAP, "http://b.com/s.xml", "http://c.com/s.xml", kind=kind)
    leases = {lease.host: lease for lease in world.lease(10, errands=True)}
    world.report(moved_to(leases["a.com"], "http://d.com/s.xml"), leases["b.com"].retry(seconds=0.0))
    getattr(world, ends)()
    world.clock.move(10)
    batch = list(world.lease(10, errands=True))
    assert {kind} == {str(lease.kind) for lease in batch}
    found = {lease.url: (lease.hops, lease.attempt) for lease in batch}
    assert {"http://d.com/s.xml": (1, 1), "http://b.com/s.xml": (0, 2), "http://c.com/s.xml": (0, 1)} == found
    assert [] == recount(world.frontier)


def test_errands_are_copied_to_checkpoints_and_places_are_reused():
    world = World()
    urls = [f"http://h{n}.com/s.xml" for n in range(300)]
    queued(world, *urls)
    batch = list(world.lease(150, errands=True, worker="w", ttl_seconds=9_000))
    world.report(*[lease.done(seconds=0.0) for lease in batch[:100]])
    queued(world, *[f"http://h{n}.com/2.xml" for n in range(50)])
    told = everything(world.frontier)
    world.reopen()
    assert (300, told[-1]) == (world.inspect().tables.errands.called.places(), everything(world.frontier)[-1])
    world.clock.move(10)
    left = {lease.url for lease in world.lease(300, errands=True)}
    open_ones = {lease.url for lease in batch[100:]}
    assert set(urls) - {lease.url for lease in batch} <= left
    assert (200, set()) == (len(left), left & open_ones)


def test_a_named_workers_errand_survives_a_kill(world):
    queued(world, MAP)
    (lease,) = world.lease(errands=True, worker="w", ttl_seconds=500)
    world.kill()
    assert ([], ["ok"]) == (world.urls(errands=True), world.report(lease.done()))
    assert world.frontier.finished()


def test_an_errand_that_is_lost_repeatedly_is_abandoned(world):
    """The file itself may kill its holders."""
    queued(world, MAP)
    for _ in range(5):
        lease = one(world)
        world.clock.move(60)
        world.lease(0)
        world.clock.move(1)
    assert ([], True) == (world.urls(errands=True), world.frontier.finished())
    assert ["stale"] == world.report(lease.done())


def test_an_errand_is_extended_released_and_deferred_like_a_lease(world):
    queued(world, MAP)
    lease = one(world)
    assert ["ok"] == world.frontier.extend([lease.token], 500)
    world.clock.move(400)
    assert ["ok"] == world.frontier.release([lease.token])
    lease = one(world)
    assert (["ok"], []) == (
        world.frontier.defer([lease.token], world.clock() + instant(60)),
        world.urls(errands=True),
    )
    world.clock.move(60)
    assert MAP == one(world).url


def test_errands_of_a_paused_crawl_or_host_wait(world):
    queued(world, MAP, crawl="one")
    world.lease(0, errands=True)
    world.frontier.pause(crawl="one")
    assert [] == world.urls(errands=True)
    world.frontier.resume(crawl="one")
    world.frontier.pause("a.com")
    assert ([], None) == (world.urls(errands=True), world.ready_in())
    world.frontier.resume("a.com")
    assert [MAP] == world.urls(errands=True)


def test_errands_of_a_deleted_crawl_are_gone_and_an_open_one_delays_its_host(world):
    queued(world, MAP, "http://a.com/2.xml", "http://b.com/s.xml", crawl="one")
    leases = world.lease(10, errands=True)
    world.discover(A)
    world.frontier.delete(crawl="one")
    assert ([], False) == (world.urls(errands=True), world.frontier.finished())
    assert ["ok", "ok"] == world.report(*[lease.done(seconds=0.0) for lease in leases])
    world.clock.move(1)
    assert ([A], []) == (world.urls(errands=True), recount(world.frontier))
    assert 0 == len(world.inspect().tables.errands.called)
    world.kill()
    assert 0 == len(world.inspect().tables.errands.called)


def test_an_answer_to_another_kind_is_refused(world):
    queued(world, MAP)
    lease = one(world)
    with pytest.raises(SettingsError, match="of kind sitemap"):
        world.report(lease.robots(200, b""))
    with pytest.raises(SettingsError, match="of kind sitemap"):
        world.report(lease.located("1.2.3.4"))
    assert ["ok"] == world.report(lease.done())


def test_robots_txt_is_leased_before_the_errands_of_callers():
    world = World(robots="errands")
    queued(world, MAP)
    world.discover(Link(A, priority=0.0))
    world.lease()
    assert Kind.ROBOTS is one(world).kind


def test_a_host_with_errands_stays_in_memory(monkeypatch):
    hosts_go_cold(monkeypatch)
    world = World()
    queued(world, MAP)
    world.report(moved_to(one(world), "http://b.com/s.xml"))
    for n in range(50):
        world.discover(f"http://c{n}.com/")
    world.reopen()
    world.clock.move(10)
    assert "http://b.com/s.xml" in world.urls(100, errands=True)
    assert [] == recount(world.frontier)


def test_errands_that_wait_do_not_block_other_errands_of_their_line(world):
    """There are more of them than are compared for the next one, also after a restart from a checkpoint."""
    for n in range(errands.ERRANDS_COMPARED_MAX + 1):
        queued(world, f"{A}{n}.xml")
        world.report(one(world).again(at=world.clock() + instant(86_400), seconds=0.0))
        world.clock.move(10)
    queued(world, MAP, A + "other.xml")
    world.frontier.checkpoint()
    world.reopen()
    world.clock.move(10)
    assert [MAP] == taken(world)
    world.clock.move(10)
    assert [A + "other.xml"] == taken(world)
    world.clock.move(10)
    assert [] == taken(world)
    world.clock.move(86_400)
    assert [A + "0.xml"] == taken(world)
    assert [] == recount(world.frontier)


def test_an_errand_at_a_host_of_another_frontier_is_refused_and_changes_no_state():
    """Two frontiers would visit the host, each by a clock of its own."""
    half, keys = frozenset(range(2_048)), (b"f" * 16, b"s" * 16)
    with Frontier.open(MemoryFiles(), slots=half, keys=keys, robots="caller") as frontier:
        urls = [f"http://h{n}.com/s.xml" for n in range(8)]
        codes = frontier.discover(urls)
        own = [url for url, code in zip(urls, codes, strict=True) if code != Code.HELD]
        assert 0 < len(own) < len(urls)
        with pytest.raises(SettingsError, match="belongs to another frontier; queue its errands there"):
            frontier.queue_errands("sitemap", urls)
        assert 0 == frontier.statistics()["errands"]
        assert [Code.NEW] * len(own) == frontier.queue_errands("sitemap", own)


def test_an_errand_that_is_redirected_to_a_host_of_another_frontier_ends():
    half, keys = frozenset(range(2_048)), (b"f" * 16, b"s" * 16)
    clock = Clock()
    with Frontier.open(MemoryFiles(), slots=half, keys=keys, clock=clock, robots="caller") as frontier:
        (own, _), (other, slot) = owned_and_foreign(frontier)
        frontier.queue_errands("sitemap", [f"http://{own}/s.xml"])
        (lease,) = frontier.lease(1, errands=True)
        frontier.report([lease.done(status=301, location=f"http://{other}/s.xml")])
        clock.move(1_000)
        assert (0, []) == (frontier.statistics()["errands"], frontier.lease(9, errands=True).urls)
        assert [own] == [host.name for host in frontier.hosts()], slot


@pytest.mark.parametrize("setting", ["closed", "open"])
def test_a_robots_txt_that_moved_to_a_host_of_another_frontier_cannot_be_read(setting):
    """The rules there are not known here, and a request would use another clock: it counts as unreachable."""
    half, keys, clock = frozenset(range(2_048)), (b"f" * 16, b"s" * 16), Clock()
    how = {"slots": half, "keys": keys, "clock": clock, "robots": "errands"}
    with Frontier.open(MemoryFiles(), settings={"robots_unreachable": setting}, **how) as frontier:
        (own, _), (other, _) = owned_and_foreign(frontier)
        page = f"http://{own}/"
        frontier.discover([page])
        (lease,) = frontier.lease(1, errands=True)
        frontier.report([lease.robots(301, location=f"http://{other}/robots.txt")])
        clock.move(10)
        assert ([page] if setting == "open" else []) == frontier.lease(9, errands=True).urls
        assert [own] == [host.name for host in frontier.hosts()]
        if setting == "closed":
            assert "parked" == frontier.status(page).state
            clock.move(86_400)
            assert [f"{page}robots.txt"] == frontier.lease(9, errands=True).urls


@pytest.mark.parametrize("others", [[], ["http://four.org/0"]])
def test_a_moved_robots_txt_at_a_host_of_a_deleted_crawl_is_blocked_by_an_order_that_can_be_withdrawn(others):
    """The host of the new place has a queue of the default crawl alone, and its rules disappear with that crawl."""
    clock = Clock()
    with Frontier.open(MemoryFiles(), clock=clock, robots="errands") as frontier:
        frontier.discover([Link("http://b.com/3", crawl="other")])
        (lease,) = frontier.lease(1, errands=True)
        frontier.report([lease.robots(301, location="http://a.com/4.txt")])
        assert 1 == frontier.pause("a.com")
        frontier.discover(others)
        frontier.delete()
        clock.move(10)
        assert [] == frontier.lease(9, errands=True).urls
        assert 0 == frontier.resume("a.com.")
        assert ["http://a.com/4.txt"] == frontier.lease(9, errands=True).urls
        with pytest.raises(SettingsError, match="no queue has it"):
            frontier.resume("a.com")
        assert [] == recount(frontier)


def owned_and_foreign(frontier: Frontier) -> list[tuple[str, int]]:
    """A host of the lower half of slots, and one of the upper half, with their slots."""
    names = {f"h{n}.com": inspect(frontier).core.homes.slot_of(f"h{n}.com") for n in range(20)}
    return [next(one for one in names.items() if (one[1] < 2_048) is lower) for lower in (True, False)]


def test_each_kind_of_errand_is_a_row_of_the_table():
    """The kinds with a number are those that callers queue."""
    kinds = {1: Kind.SITEMAP, 2: Kind.PROBE, 3: Kind.TDMREP}
    assert kinds == {number: row.kind for number, row in errands.OF_CALLERS.items()}
    assert {"robots": Kind.ROBOTS, "address": Kind.ADDRESS} == errands.ANSWERS
