"""Queries over all hosts and URLs run in bounded steps: they answer as in one step, and other calls run in between."""

from __future__ import annotations

import pytest

from limiting import set_limits
from model.inside import inspect
from model.world import World as Stored
from model.world import recount
from outrider import Frontier
from outrider.crawl.questions.crawl_queries import querying
from outrider.errors import SettingsError
from outrider.frontier.verbs import census, domain_counts, listing

NOW = 1_700_000_000_000_000


class World:
    """90 hosts in every state, and a clock."""

    def __init__(self, robots="caller"):
        self.now = NOW
        settings = {"delay": 5, "delay_factor": 0}
        self.frontier = Frontier.memory(clock=lambda: self.now, settings=settings, robots=robots)
        frontier = self.frontier
        frontier.discover([f"http://h{host}.test/{page}" for host in range(90) for page in range(1 + host % 3)])
        for lease in (done := frontier.lease(60)):
            word = int(lease.host[1:].partition(".")[0])
            one = lease.gone(status=404, error="http_404") if word % 5 == 0 else lease.done(seconds=0.1, status=200)
            frontier.report([one])
        assert 60 == len(done)
        frontier.lease(9, worker="ann")
        for host in range(0, 90, 15):
            frontier.pause(f"h{host}.test")

    def told(self):
        frontier = self.frontier
        states = ["queued", "leased", "waiting", "parked", "done", "gone"]
        return {
            "hosts": frontier.statistics()["hosts"],
            "idle": frontier.explain_idle(),
            "waits": frontier.waits(),
            "rows": walked(frontier.hosts),
            "by state": {
                state: [one.name for one in walked(frontier.hosts, state=state)] for state in census.HOST_STATES
            },
            "urls": walked(frontier.urls),
            "of": {state: [one.url for one in walked(frontier.urls, state=state)] for state in states},
            "host": [one.url for one in frontier.urls(host="h5.test")],
            "counts": {state: frontier.count(state=state, host="h3.test") for state in states},
        }


def walked(look, limit=20, **how):
    rows, after = [], None
    while True:
        page = look(after=after, limit=limit, **how)
        rows += page
        after = page.cursor
        if after is None:
            return rows


@pytest.fixture
def small_steps(monkeypatch):
    """Makes the steps so small that each query needs many."""

    def use():
        set_limits(
            monkeypatch,
            CENSUS_ROWS_PER_STEP=7,
            CENSUS_ERRANDS_PER_STEP=3,
            LISTED_HOSTS_PER_STEP=2,
            LISTED_URLS_PER_STEP=2,
        )
        monkeypatch.setattr(listing, "_QUEUES_PER_STEP", 9)
        set_limits(monkeypatch, LOOK_PAUSE_SECONDS=0)

    return use


@pytest.mark.parametrize("robots", ["caller", "errands"])
def test_a_query_in_many_steps_answers_like_one_in_one_step(small_steps, robots):
    world = World() if robots == "caller" else World.__new__(World)
    if robots == "errands":
        world.now = NOW
        world.frontier = Frontier.memory(clock=lambda: world.now, robots="errands", settings={"delay": 5})
        world.frontier.discover([f"http://h{host}.test/" for host in range(60)])
        for lease in world.frontier.lease(20, errands=True):
            world.frontier.report([lease.robots(503, b"") if lease.token % 3 else lease.robots(404, b"")])
    whole = world.told()
    assert sum(whole["hosts"].values()) == 2 * whole["hosts"]["known"]
    assert len(whole["rows"]) == whole["hosts"]["known"]
    small_steps()
    assert whole == world.told()


def test_lists_and_counts_of_hosts_by_state_agree():
    told = World().told()
    assert {name: len(rows) for name, rows in told["by state"].items()} == {
        name: told["hosts"][name] for name in told["by state"]
    }
    assert all(told["hosts"][name] for name in ("blocked", "resting", "ready"))
    by_name = {row.name: row.state for row in told["rows"]}
    assert all(by_name[name] == state for state, names in told["by state"].items() for name in names)


def test_lists_and_counts_of_urls_by_state_agree():
    world = World()
    told, urls = world.told(), world.frontier.statistics()["urls"]
    assert urls == {state: len(rows) for state, rows in told["of"].items()}
    assert sorted(row.url for row in told["urls"]) == sorted(url for rows in told["of"].values() for url in rows)
    assert ["http://h5.test/0", "http://h5.test/1", "http://h5.test/2"] == sorted(told["host"])


def test_other_calls_run_between_the_steps_of_a_query(small_steps):
    """A URL that exists all the time is listed once, even if URLs are discovered, leased and reported between two
    steps."""
    small_steps()
    world = World()
    frontier, machine = world.frontier, inspect(world.frontier)
    before = {row.url for row in walked(frontier.urls)}
    looks = (
        lambda now: machine.looks.statistics(now),
        lambda now: machine.looks.explain_idle(now),
        lambda now: machine.looks.hosts(now, None, None, 90),
        lambda now: machine.looks.hosts(now, "ready", None, 90),
        lambda now: machine.looks.waits(now, 0.0, None),
        lambda now: machine.looks.urls(
            state=None, host=None, crawl=None, key=None, reason=None, after=None, limit=10_000
        ),
    )
    found, fresh = [], 0
    for look in looks:
        steps, sent = look(frontier.now()), None
        while True:
            try:
                reading = steps.send(sent)
            except StopIteration as end:
                found.append(end.value)
                break
            sent = None if reading is None else reading()
            world.now += 100_000
            fresh += 1
            if fresh % 3:
                continue
            frontier.discover([f"http://new{fresh}.test/"])
            frontier.report([lease.done(seconds=0.1, status=200) for lease in frontier.lease(2)])
    counted = found[0]["hosts"]
    assert 90 <= counted["ready"] + counted["resting"] + counted["blocked"] + counted["empty"] <= counted["known"]
    urls = [row.url for row in found[-1]]
    assert before <= set(urls)
    assert len(urls) == len(set(urls))
    assert frontier.verify().ok


def test_the_urls_of_a_host_are_read_from_its_part_of_the_ledger(monkeypatch):
    world = World()
    read = []
    ledger = inspect(world.frontier).tables.urls.ledger
    scan = type(ledger).scan_heads
    monkeypatch.setattr(type(ledger), "scan_heads", lambda self, **how: read.append(how["after"]) or scan(self, **how))
    world.frontier.urls(host="h5.test")
    assert 1 == len(read)
    assert read[0] is not None
    read.clear()
    assert 0 == len(world.frontier.urls(state="parked"))
    assert [] == read
    assert 3 == len(world.frontier.urls(state="gone", host="h5.test")) + world.frontier.count(
        state="queued", host="h5.test"
    )


@pytest.mark.parametrize("cursor", ["x", "-1.0.0", "0.70000.0", "0.0.fffffffffffffffff", "1.2", "99999999999.0.0"])
def test_a_foreign_cursor_is_refused(cursor):
    with pytest.raises(SettingsError, match="cursor of an earlier list"):
        World().frontier.urls(after=cursor)


def test_an_unknown_state_of_hosts_is_refused():
    with pytest.raises(SettingsError, match="use one of empty, ready"):
        World().frontier.hosts(state="lost")


def test_a_query_without_an_owner_names_the_robots_txt_that_is_requested_first(tmp_path):
    """It once named a host in its delay, or no reason, where the next event is a robots.txt request in some seconds."""
    now = [NOW]
    frontier = Frontier.open(tmp_path / "store", clock=lambda: now[0], settings={"delay": 1}, robots="errands")
    frontier.discover(["http://a.test/1"])
    (errand,) = frontier.lease(9, errands=True)
    frontier.report([errand.retry(error="dns_temporary")])
    now[0] += 1_000_000
    frontier.discover(["http://b.test/1"])
    words = [frontier.explain(f"http://{host}.test/1") for host in "ab"]
    frontier.close()
    with Frontier.look(tmp_path / "store", robots="errands") as looker:
        told = [looker.explain(f"http://{host}.test/1") for host in "ab"]
        assert [(one.reason_now, one.reason_text, one.next_at) for one in words] == [
            (one.reason_now, one.reason_text, one.next_at) for one in told
        ]
        assert ("robots", NOW + 5_000_000) == (told[0].reason_now, told[0].next_at)
    with pytest.raises(SettingsError, match="use caller or errands"):
        Frontier.look(tmp_path / "store", robots="nobody")


def test_explain_of_a_crawl_that_stopped_names_the_robots_txt_that_it_waits_for(tmp_path):
    now = [NOW]
    (tmp_path / "outrider.toml").write_text("")
    frontier = Frontier.open(tmp_path / "frontier", clock=lambda: now[0], settings={"delay": 1}, robots="errands")
    frontier.discover(["http://a.test/1"])
    (errand,) = frontier.lease(9, errands=True)
    frontier.report([errand.retry(error="dns_temporary")])
    frontier.close()
    with querying(str(tmp_path)) as look:
        assert "robots" == look("explain", {"url": "http://a.test/1"})["reason_now"]
        assert 1 == look("why-idle", {})["errands"]


def dead_world(hosts=3, pages=40):
    """Dead letters of two classes, and a host that was never fetched."""
    world = World.__new__(World)
    world.now = NOW
    settings = {"delay": 0, "delay_factor": 0}
    world.frontier = frontier = Frontier.memory(clock=lambda: world.now, settings=settings, robots="caller")
    frontier.discover([f"http://d{host}.test/{page}" for host in range(hosts) for page in range(pages)])
    for _ in range(pages):
        world.now += 1_000_000
        leases = frontier.lease(hosts)
        frontier.report([one.gone(error="http_404" if int(one.url[-1]) % 2 else "http_410") for one in leases])
    frontier.discover([f"http://fresh{host}.test/" for host in range(50)])
    assert hosts * pages == frontier.count(state="gone")
    return world


@pytest.fixture
def small_retries(small_steps, monkeypatch):
    small_steps()
    set_limits(monkeypatch, RETRIED_ROWS_AT_ONCE=7, RETRIED_ROWS_PER_STEP=3)


@pytest.mark.parametrize(
    ("how", "left"), [({}, 0), ({"error": "http_404"}, 60), ({"host": "D1.test"}, 80), ({"error": "timeout"}, 120)]
)
def test_a_retry_in_many_steps_queues_each_dead_letter_again_once(small_retries, how, left):
    frontier = dead_world().frontier
    assert 120 - left == frontier.retry(**how)
    assert (left, 170 - left) == (frontier.count(state="gone"), frontier.count(state="queued"))
    assert 0 == frontier.retry(**how)


def test_leases_and_reports_run_between_the_steps_of_a_retry(small_retries):
    """All dead letters of its start are queued again, but only once, even if they fail again meanwhile."""
    world = dead_world()
    frontier, machine = world.frontier, inspect(world.frontier)
    back, retry, between = [], machine.urls.retry, []

    def spied(chosen, error, now):
        assert len(chosen) <= 3
        back.extend(chosen["fingerprint"].tolist())
        return retry(chosen, error, now)

    machine.urls.retry = spied

    def called(name, verb, whole=frontier._call, **how):
        answer = whole(name, verb, **how)
        if name == "retry":
            world.now += 1_000_000
            leases = frontier.lease(3)
            between.extend(leases)
            frontier.report([one.gone(error="http_404") for one in leases])
        return answer

    frontier._call = called
    count = frontier.retry()
    assert len(between) > 60
    assert len(back) == len(set(back)) == count >= 120
    assert 120 + len(between) - count == frontier.count(state="gone") > 0


def test_an_interrupted_retry_leaves_a_store_that_continues_with_the_rest(tmp_path, small_retries):
    """A kill between two steps: the first dead letters are queued again, and the same call again queues the rest."""
    now = NOW
    settings = {"delay": 0, "delay_factor": 0}
    frontier = Frontier.open(tmp_path / "store", clock=lambda: now, settings=settings, robots="caller")
    frontier.discover([f"http://d{host}.test/" for host in range(40)])
    frontier.report([one.gone(error="http_404") for one in frontier.lease(40)])
    whole, steps = inspect(frontier).urls.retry, []

    def broken(chosen, error, at):
        if len(steps) == 4:
            raise SettingsError("broken off")
        steps.append(whole(chosen, error, at))
        return steps[-1]

    inspect(frontier).urls.retry = broken
    with pytest.raises(SettingsError, match="broken off"):
        frontier.retry()
    frontier.close()
    with Frontier.open(tmp_path / "store", clock=lambda: now, robots="caller") as again:
        assert 40 - sum(steps) == again.count(state="gone") > 0
        assert 40 - sum(steps) == again.retry()
        assert (0, 40) == (again.count(state="gone"), again.count(state="queued"))


class Killed(BaseException):
    """Ends the process here."""


@pytest.mark.parametrize("steps", [0, 1, 2, 5, 9])
def test_a_retry_that_is_killed_between_its_steps_is_completed_by_the_next(small_retries, steps):
    """Each dead letter is queued again once, by the one process or the other. The counts are right at each opening."""
    stored = Stored(delay=0.0, delay_factor=0.0)
    urls = [f"http://d{host}.test/{page}" for host in range(10) for page in range(3)]
    stored.discover(*urls)
    for _ in range(3):
        stored.clock.move(1.0)
        stored.report(*(one.gone(error="http_404") for one in stored.lease()))
    assert {"gone": 30} == stored.counts()
    left, whole = [steps], stored.frontier._call

    def called(name, verb, **how):
        if name == "retry":
            if not left[0]:
                raise Killed
            left[0] -= 1
        return whole(name, verb, **how)

    stored.frontier._call = called
    with pytest.raises(Killed):
        stored.frontier.retry()
    stored.kill()
    back = stored.counts().get("queued", 0)
    assert 0 <= back <= 3 * steps
    assert [] == recount(stored.frontier)
    assert 30 - back == stored.frontier.retry()
    assert ({"queued": 30}, 0, []) == (stored.counts(), stored.frontier.retry(), recount(stored.frontier))
    given = []
    for _ in range(3):
        stored.clock.move(1.0)
        leases = stored.lease()
        given += leases.urls
        stored.report(*(one.done(status=200) for one in leases))
    assert sorted(urls) == sorted(given)


def test_the_fullest_domains_are_those_with_the_most_queued_urls(monkeypatch):
    """Whatever the sizes of steps, and without counting the hosts of slots that cannot have one."""
    frontier = Frontier.memory(clock=lambda: NOW, settings={"delay": 0, "delay_factor": 0}, robots="caller")
    frontier.discover([f"http://h{n % (1 + d)}.d{d}.test/{n}" for d in range(30) for n in range(3 * d)])
    frontier.lease(5)
    wanted = {}
    for row in walked(frontier.queues):
        domain = row.host.partition(".")[2]
        wanted[domain] = wanted.get(domain, 0) + row.queued
    best = sorted(((name, count) for name, count in wanted.items() if count), key=lambda one: (-one[1], one[0]))
    for step in (16_384, 7):
        set_limits(monkeypatch, CENSUS_ROWS_PER_STEP=step)
        for limit in (1, 5, 60):
            assert best[:limit] == frontier._fullest_domains(limit)
    names = []
    domains_of = domain_counts.registrable_domains
    monkeypatch.setattr(domain_counts, "registrable_domains", lambda some: names.extend(some) or domains_of(some))
    frontier._fullest_domains(1)
    assert 0 < len(names) < len(walked(frontier.queues)) / 2  # two domains may share a slot
    set_limits(monkeypatch, DOMAINS_HOSTS_MAX=3)
    names.clear()
    frontier._fullest_domains(100)
    assert 3 == len(names)
