"""Cold hosts: they return unchanged, and no caller sees a difference."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limiting import set_limits
from model.world import START, World, everything, hosts_go_cold, outcome, recall_all, recount
from outrider import Frontier, Link
from outrider.clock import instant
from outrider.crawl.orders.store_repair import repair
from outrider.crawl.setup.group_settings import machines
from outrider.errors import DamagedStoreError, SettingsError, StoreStoppedError
from outrider.frontier.format.facts import TextColumn
from outrider.frontier.state.authorities import RobotsState
from outrider.frontier.state.hosts import Hosts, Queues, hosts_of_queues, mixed, queue_hashes, unmixed
from outrider.frontier.stores.rulebook import Rulebook
from outrider.sim.disk import CrashDisk, FaultyFiles

RULES = b"User-agent: *\nCrawl-delay: 7\nDisallow: /private\n"


@pytest.fixture
def world(monkeypatch):
    hosts_go_cold(monkeypatch)
    made = World()
    yield made
    made.frontier.close()


def cold(world: World) -> int:
    return len(world.inspect().tables.cold)


def visited(world: World, *urls: str, seconds: float = 0.0, **how: object) -> None:
    """Fetches each URL, and waits until their hosts are ready again."""
    world.discover(*urls)
    for _ in urls:
        world.report(*[outcome(lease, seconds=seconds, status=200, **how) for lease in world.lease()])
        world.clock.move(1 + 10 * seconds)


def gone_cold(world: World, *urls: str) -> None:
    visited(world, *urls)
    world.frontier.checkpoint()
    assert cold(world) == len(urls)


def named(page: list) -> list[str]:
    return [one.name for one in page]


# -- who goes, and how they come back


def test_a_host_without_urls_is_cold_after_the_next_checkpoint(world):
    world.discover("http://a.com/", "http://b.com/", "http://b.com/2", Link("http://c.com/", not_before=START * 2))
    world.report(*[outcome(lease, seconds=0.0, status=200) for lease in world.lease()])
    world.frontier.checkpoint()
    assert 1 == cold(world), "c.com has a URL that waits, the others rest, and b.com has one that is queued"
    world.clock.move(1)
    world.frontier.checkpoint()
    assert 2 == cold(world)
    assert ["b.com"] == [host.name for host in world.frontier.hosts() if host.state != "empty"]


def test_without_need_no_host_is_made_cold():
    world = World()
    visited(world, "http://a.com/")
    world.frontier.checkpoint()
    assert 0 == cold(world)


def test_every_fact_of_a_host_returns(world):
    world.frontier.set_robots("http://a.com", 200, RULES)
    world.frontier.set_robots("https://a.com", 404)
    world.frontier.set_robots("http://a.com:8080", 503)
    world.frontier.set_address("b.com", "192.0.2.7")
    world.discover(Link("http://b.com/x", crawl="other"), Link("http://b.com/y", crawl="third", not_before=START * 2))
    visited(world, "http://a.com/", "http://b.com/", "http://c.com/", "http://d.com/")
    world.discover("http://a.com/2", "http://c.com/2")
    answers = {"a.com": {"refused": True, "status": 503}, "c.com": {"status": 404, "verdict": "gone"}}
    world.report(*[outcome(lease, **answers.get(lease.host, {"status": 200})) for lease in world.lease()])
    world.frontier.set_delay(4.5, "b.com", crawl="other")
    world.frontier.set_limit(3, "c.com")
    world.frontier.pause("d.com")
    world.clock.move(100_000)
    world.report(*[outcome(lease, "gone", status=410) for lease in world.lease()])
    world.clock.move(100_000)
    before, told = everything(world.frontier), world.frontier.hosts()
    queues = world.frontier.queues()
    world.frontier.checkpoint()
    assert 4 == cold(world)
    (files,) = [host.robots for host in told if host.name == "a.com"]
    assert [("rules", 200), ("allow", 404), ("refused", 503)] == [(file.state, file.status) for file in files]
    assert sorted(map(repr, told)) == sorted(map(repr, world.frontier.hosts()))
    assert sorted(map(repr, queues)) == sorted(map(repr, world.frontier.queues()))
    assert 4 == recall_all(world.frontier)
    assert before == everything(world.frontier)
    assert [] == recount(world.frontier)
    authority = world.inspect().tables.robots.by_name["http://a.com:8080"]
    assert authority.state is RobotsState.REFUSED


def test_a_host_of_more_crawls_than_a_short_number_can_count_returns(world, monkeypatch):
    monkeypatch.setattr("outrider.frontier.state.cold._CRAWLS_MAX", 1)
    world.discover(Link("http://a.com/", crawl="second"), Link("http://a.com/", crawl="third"))
    for _ in range(2):
        world.report(*[outcome(lease, seconds=0.0, status=200) for lease in world.lease()])
        world.clock.move(1)
    before = everything(world.frontier)
    world.frontier.checkpoint()
    assert (1, before) == (cold(world), everything(world.frontier))


def test_a_host_in_its_delay_is_not_made_cold(world):
    visited(world, "http://a.com/", seconds=2.0)
    world.clock.move(-21)  # the clock steps back into its delay: one more whole gap
    world.discover()
    world.frontier.checkpoint()
    assert 0 == cold(world)
    world.discover("http://b.com/")
    world.discover("http://a.com/2")
    assert ["http://b.com/"] == world.urls()


def test_after_a_clock_that_stepped_back_cold_hosts_wait_one_whole_gap(world):
    gone_cold(world, "http://a.com/", "http://b.com/")
    world.clock.move(-0.5)
    world.discover("http://c.com/")  # the step is noticed here
    now = world.frontier.now()
    assert 2 == cold(world)
    assert {now + instant(1)} == {host.rest_until for host in world.frontier.hosts() if host.name != "c.com"}
    world.discover("http://a.com/2")
    assert ["http://c.com/"] == world.urls()
    world.kill()
    world.discover("http://b.com/2")
    world.clock.move(1.4)
    assert [] == [url for url in world.urls() if "c.com" not in url]
    world.clock.move(0.2)
    assert ["http://a.com/2", "http://b.com/2"] == sorted(url for url in world.urls() if "c.com" not in url)


def test_queries_about_a_cold_host_are_answered_without_a_recall(world):
    gone_cold(world, "http://a.com/", "http://b.com/")
    assert ["known", "known"] == world.discover("http://a.com/", "http://b.com/")
    assert "done" == world.state("http://a.com/")
    assert 2 == cold(world)
    assert ["new", "known"] == world.discover("http://a.com/new", "http://b.com/")
    assert 1 == cold(world)


def test_a_waiting_url_recalls_its_host_when_due(world):
    world.discover(Link("http://a.com/", not_before=START + instant(50)))
    world.frontier.checkpoint()
    assert 1 == cold(world)
    assert 50 == world.ready_in()
    world.reopen()
    world.clock.move(50)
    assert ["http://a.com/"] == world.urls()
    assert [] == recount(world.frontier)


def test_a_dead_letter_recalls_its_host_when_it_is_retried(world):
    world.discover("http://a.com/", "http://b.com/")
    world.report(*[outcome(lease, "gone", error="dns_unknown") for lease in world.lease()])
    world.clock.move(1)
    world.frontier.checkpoint()
    assert 2 == cold(world)
    assert 1 == world.frontier.retry(host="a.com")
    assert (1, ["http://a.com/"]) == (cold(world), world.urls())


def test_hosts_with_urls_stay(world):
    world.frontier.set_robots("http://parked.com", 200, b"User-agent: *\nDisallow: /")
    world.discover("http://parked.com/", Link("http://keyed.com/", key="k"), "http://leased.com/", "http://gone.com/")
    leases = world.lease()
    world.report(*[outcome(lease, seconds=0.0, status=200) for lease in leases if lease.host != "leased.com"])
    world.frontier.delete("gone.com")
    world.clock.move(1)
    world.frontier.checkpoint()
    assert 0 == cold(world)
    assert [] == recount(world.frontier)


def test_parked_urls_keep_no_other_host_in_memory(monkeypatch):
    """The queue with parked URLs has the number of the row of the empty host."""
    hosts_go_cold(monkeypatch)
    world = World(max_pages_per_host=1, delay=0)
    world.discover("http://a.com/1", Link("http://a.com/2", crawl="other"), "http://b.com/1")
    while len(leases := world.lease()):
        world.report(*(outcome(lease, seconds=0, status=200) for lease in leases))
    assert world.counts() == {"done": 2, "parked": 1}
    tables = world.inspect().tables
    (parked,) = np.flatnonzero(tables.queues.parked[: tables.queues.count])
    assert tables.hosts.name(int(parked)) == "b.com"
    world.frontier.checkpoint()
    assert cold(world) == 1


def test_a_host_with_more_rules_than_a_record_can_contain_stays(world, monkeypatch):
    monkeypatch.setattr(Rulebook, "cold_files_max", 0)
    for port in ("", ":81", ":82"):
        world.frontier.set_robots(f"http://a.com{port}", 200, b"User-agent: *\nAllow: /\n" + b"#" * 480_000)
    world.frontier.set_robots("http://b.com", 200, b"User-agent: *\nAllow: /\n" + b"#" * 480_000)
    visited(world, "http://a.com/", "http://b.com/")
    world.frontier.checkpoint()
    assert 1 == cold(world)
    world.kill()
    world.discover("http://a.com/2", "http://b.com/2")
    assert (2, []) == (len(world.urls()), recount(world.frontier))


def body_of(seed: int, size: int = 480_000) -> bytes:
    """A robots.txt of its own."""
    return b"User-agent: *\nAllow: /\n#" + (b"%08d" % seed) * (size // 8)


def with_files(world: World, *hosts: str, files: int) -> None:
    """Visited hosts, each with authorities that have long robots.txt files of their own."""
    for place, host in enumerate(hosts):
        for number in range(files):
            world.frontier.set_robots(
                f"http://{host}" + f":{80 + number}" * (number > 0), 200, body_of(9 * place + number)
            )
    visited(world, *[f"http://{host}/" for host in hosts])


def known_files(world: World) -> dict[str, int]:
    """Returns the length of the robots.txt of each authority. Recalls all hosts."""
    tables = world.inspect().tables
    tables.recall_all()
    return {one.name: len(tables.robots.rulebook.body(one.digest)) for one in tables.robots.listed}


def files_told(world: World) -> tuple[int, int]:
    """Returns how many robots.txt files the records of cold hosts contain, and how many they name."""
    cold_hosts = world.inspect().tables.cold
    some = [one for told in cold_hosts.scan() for place in range(len(told)) for one in told.authorities(place)]
    return sum(1 for one in some if one.body), len(cold_hosts.files_named())


@pytest.mark.parametrize("most", range(7))
def test_a_host_becomes_cold_when_its_record_has_room_for_the_remaining_files(world, monkeypatch, most):
    monkeypatch.setattr(Rulebook, "cold_files_max", most)
    with_files(world, "a.com", files=6)
    for _ in range(2):
        world.frontier.checkpoint()
        assert (int(most >= 4), []) == (cold(world), recount(world.frontier))
        world.kill()
    assert [480_024] * 6 == list(known_files(world).values())
    assert [] == recount(world.frontier)


def test_hosts_that_become_cold_together_share_the_last_places_for_files(world, monkeypatch):
    monkeypatch.setattr(Rulebook, "cold_files_max", 4)
    with_files(world, "a.com", "b.com", "c.com", "d.com", files=3)
    world.frontier.checkpoint()
    assert (2, (2, 4), []) == (cold(world), files_told(world), recount(world.frontier)), "three places, one, and none"
    world.kill()
    assert ([480_024] * 12, []) == (list(known_files(world).values()), recount(world.frontier))
    world.frontier.checkpoint()
    assert (2, (2, 4)) == (cold(world), files_told(world)), "the places of hosts that came back are free again"


def test_the_longest_file_gets_the_last_place(world, monkeypatch):
    monkeypatch.setattr(Rulebook, "cold_files_max", 1)
    for number, size in enumerate((160, 2_000_000, 240)):
        world.frontier.set_robots(f"http://a.com:{81 + number}", 200, body_of(number, size))
    visited(world, "http://a.com/")
    world.frontier.checkpoint()
    assert (1, (2, 1), []) == (cold(world), files_told(world), recount(world.frontier))


def test_a_store_whose_checkpoints_failed_for_a_too_long_record_makes_checkpoints_again(world, monkeypatch):
    """An older release sent such a host to the disk."""
    monkeypatch.setattr(Rulebook, "cold_files_max", 1)
    with_files(world, "a.com", files=6)
    visited(world, "http://b.com/")
    with monkeypatch.context() as older:
        for part in ("schedule.cooling", "state.cold"):
            older.setattr(f"outrider.frontier.{part}.EXTRA_BYTES_MAX", 1 << 30)
        for _ in range(2):
            with pytest.raises(ValueError, match="a card with a body of 2400"):
                world.frontier.checkpoint()
            with pytest.raises(StoreStoppedError):
                world.frontier.statistics()
            world.kill()
    for _ in range(2):
        world.frontier.checkpoint()
        assert (1, []) == (cold(world), recount(world.frontier))
        world.kill()
    assert [480_024] * 6 == list(known_files(world).values())


@pytest.mark.parametrize("repaired", [False, True])
def test_an_empty_file_that_records_of_old_stores_name_by_its_digest_counts_as_no_file(monkeypatch, tmp_path, repaired):
    hosts_go_cold(monkeypatch)
    world = World(disk=str(tmp_path / "store"))
    world.frontier.set_robots("http://a.com", 200, b"")
    world.frontier.set_robots("http://a.com:81", 200, RULES)
    visited(world, "http://a.com/")
    tables = world.inspect().tables
    tables.robots.by_name["http://a.com"].digest = tables.hash_of("")
    world.clock.move(10)
    world.frontier.checkpoint()
    assert 1 == cold(world)
    if repaired:
        world.frontier.close()
        assert 0 == repair(str(tmp_path / "store")).salvaged.facts.get("robots_file", 0)
        world.frontier = world._open()
    else:
        world.reopen()
    assert (1, []) == (cold(world), recount(world.frontier))
    (host,) = world.frontier.hosts()
    assert [("rules", 200), ("rules", 200)] == [(file.state, file.status) for file in host.robots]
    assert {"http://a.com": 0, "http://a.com:81": len(RULES)} == known_files(world)
    assert [] == recount(world.frontier)
    world.frontier.checkpoint()
    world.reopen()
    assert (["new"], []) == (world.discover("http://a.com/2"), recount(world.frontier))
    world.frontier.close()


def test_a_host_whose_error_texts_do_not_fit_into_a_record_stays(world):
    """An error has 200 characters, and a character of UTF-8 up to four bytes."""
    world.discover("http://a.com/")
    (lease,) = world.lease()  # until its report the host stays in memory, which makes these calls cheap
    for number in range(1_270):
        world.frontier.set_robots(f"http://a.com:{1_000 + number}", 404)
    world.report(outcome(lease, status=200))
    visited(world, "http://b.com/")
    for one in world.inspect().tables.robots.listed:
        one.error = 200 * "\U0001f577"
    world.frontier.checkpoint()
    assert (1, []) == (cold(world), recount(world.frontier))


def test_the_longest_unused_hosts_become_cold_first(world, monkeypatch):
    set_limits(monkeypatch, HOT_HOSTS_MIN=8)
    world.reopen()
    for number in range(12):
        visited(world, f"http://h{number}.com/")
    world.frontier.checkpoint()
    tables = world.inspect().tables
    left = {tables.hosts.name(row) for row in np.flatnonzero(tables.hosts.there).tolist()}
    assert {f"h{number}.com" for number in range(12 - len(left), 12)} == left
    assert len(left) in (7, 8)


@pytest.mark.parametrize("pressed", [False, True])
def test_many_more_hosts_than_fit_into_memory_go_cold_before_a_checkpoint_is_due(monkeypatch, pressed):
    set_limits(
        monkeypatch,
        HOT_HOSTS_MIN=20 if pressed else 200,
        HOT_HOST_MEMORY_BYTES=1 << 40,
        LOG_BYTES_BEFORE_CHECKPOINT=8_000_000,
    )
    world = World()
    for ten in range(10):
        visited(world, *[f"http://h{ten}{number}.com/" for number in range(10)])
        world.frontier._rounds.join()
    assert pressed == (cold(world) >= 40)
    assert 0 == world.frontier.statistics()["checkpoint"]["number"]


def test_hosts_that_questions_bring_back_leave_with_a_call_that_logs_nothing(monkeypatch):
    set_limits(monkeypatch, HOT_HOSTS_MIN=20, HOT_HOST_MEMORY_BYTES=1 << 40, LOG_BYTES_BEFORE_CHECKPOINT=8_000_000)
    world = World()
    hosts = [f"h{number}.com" for number in range(100)]
    for ten in range(0, 100, 10):
        visited(world, *[f"http://{host}/" for host in hosts[ten : ten + 10]])
        world.frontier._rounds.join()
    logged, returned = world.frontier._log.frame_bytes, 0
    for host in hosts * 2:
        before = cold(world)
        world.frontier.host(host)
        world.frontier.lease(0)
        returned += max(before - cold(world), 0)
        assert cold(world) >= 30
    assert (logged, True) == (world.frontier._log.frame_bytes, returned >= 60)


# -- verbs that look at all of them


def test_lists_include_all_hosts_while_hosts_become_cold_and_return(world):
    urls = [f"http://h{number}.com/" for number in range(30)]
    gone_cold(world, *urls)
    seen, cursor, turn = [], None, 0
    while True:
        page = world.frontier.hosts(after=cursor, limit=4)
        seen += named(page)
        cursor = page.cursor
        if cursor is None:
            break
        visited(world, f"http://h{turn}.com/more", f"http://h{29 - turn}.com/more")
        if turn % 2:
            world.frontier.checkpoint()
        turn += 1
    assert sorted(f"h{number}.com" for number in range(30)) == sorted(seen)


def test_lists_of_queues_have_each_queue_once(world):
    world.discover(*[Link(f"http://h{n}.com/", crawl=crawl) for n in range(9) for crawl in ("one", "two")])
    for _ in range(2):
        world.report(*[outcome(lease, seconds=0.0, status=200) for lease in world.lease()])
        world.clock.move(1)
    world.frontier.checkpoint()
    world.discover(Link("http://h3.com/new", crawl="one"))
    assert 8 == cold(world)
    seen, cursor = [], None
    while True:
        page = world.frontier.queues(after=cursor, limit=4)
        seen += [(queue.crawl, queue.key, queue.done) for queue in page]
        cursor = page.cursor
        if cursor is None:
            break
    assert sorted((crawl, f"h{n}.com", 1) for n in range(9) for crawl in ("one", "two")) == sorted(seen)
    assert 9 == len(world.frontier.queues(crawl="two", limit=100))


def test_a_cursor_from_before_the_first_cold_host_skips_no_host(world):
    visited(world, *[f"http://h{number}.com/" for number in range(6)])
    page = world.frontier.hosts(limit=2)
    world.frontier.checkpoint()
    rest = world.frontier.hosts(after=page.cursor, limit=100)
    assert [f"h{number}.com" for number in range(6)] == sorted([*named(page), *named(rest)])


@pytest.mark.parametrize("cursor", ["h", "hx", "h1.2", "-1", "h" + "f" * 17, "h-1"])
def test_an_invalid_cursor_is_refused(world, cursor):
    gone_cold(world, "http://a.com/")
    with pytest.raises(SettingsError, match="use the cursor of an earlier list of hosts"):
        world.frontier.hosts(after=cursor)


def test_an_interruption_during_a_query_leaves_no_host_without_its_clock(world, monkeypatch):
    gone_cold(world, "http://a.com/")

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Queues, "add", interrupted)
        with pytest.raises(KeyboardInterrupt):
            world.frontier.explain("http://a.com/")
    with pytest.raises(StoreStoppedError, match="an interruption inside the recall of a host"):
        world.discover("http://a.com/2")
    world.kill()
    assert 1 == cold(world)


def test_statistics_and_explain_idle_count_cold_hosts(world):
    gone_cold(world, "http://a.com/", "http://b.com/")
    world.discover("http://c.com/")
    hosts = world.frontier.statistics()["hosts"]
    assert {"known": 3, "ready": 1, "resting": 0, "blocked": 0, "empty": 2} == hosts
    structures = world.frontier.statistics()["structures"]
    assert 1 == structures["hosts"]["rows"]
    assert (2, 1) == (structures["cold_hosts"]["hosts"], structures["cold_hosts"]["runs"])


def test_urls_of_cold_hosts_are_listed_counted_and_explained(world):
    gone_cold(world, "http://a.com/", "http://b.com/", "http://c.com/")
    assert ["http://a.com/"] == [url.url for url in world.frontier.urls(host="a.com")]
    assert 1 == world.frontier.count(host="b.com", state="done")
    assert {"a.com", "b.com", "c.com"} == {url.key for url in world.frontier.urls()}
    told = world.frontier.explain("http://c.com/")
    assert ("done", "c.com", 1) == (str(told.state), told.host.name, told.queue.done)


def test_operators_reach_cold_hosts_by_key_and_by_crawl(world):
    gone_cold(world, "http://a.com/", "http://b.com/", "http://c.com/")
    assert 1 == world.frontier.pause("a.com")
    assert 3 == world.frontier.set_delay(9.0)
    world.frontier.checkpoint()
    assert 3 == cold(world)
    assert 3 == world.frontier.pause()
    assert {"a.com": (True, 9.0), "b.com": (True, 9.0), "c.com": (True, 9.0)} == {
        host.name: (host.paused, host.delay_seconds) for host in world.frontier.hosts()
    }
    world.discover("http://b.com/2")
    assert [] == world.urls()
    world.frontier.resume()
    assert ["http://b.com/2"] == world.urls()


@pytest.mark.parametrize("again", ["at once", "killed", "checkpoint"])
def test_a_deleted_crawl_removes_the_urls_of_cold_hosts(world, again):
    world.discover(
        Link("http://a.com/", crawl="x"), Link("http://a.com/2", crawl="x", not_before=START * 2), "http://a.com/"
    )
    for _ in range(2):
        world.report(*[outcome(lease, seconds=0.0, status=200) for lease in world.lease()])
        world.clock.move(1)
    world.frontier.checkpoint()
    assert 1 == cold(world)
    assert 1 == world.frontier.delete(crawl="x")
    if again == "checkpoint":
        world.frontier.checkpoint()
    if again != "at once":
        world.kill()
    assert ({"done": 1}, []) == (world.counts(), recount(world.frontier))
    assert ["default"] == [queue.crawl for queue in world.frontier.queues()]
    assert ["new"] == world.discover(Link("http://a.com/", crawl="x"))
    assert [] == recount(world.frontier)


def test_verify_finds_a_wrong_record(world):
    gone_cold(world, "http://a.com/", "http://b.com/")
    machine = world.inspect()
    ledger = machine.tables.cold.ledger
    (cards,) = ledger.scan()
    heads = cards.changed()
    # the sum is unchanged: one is done twice, one never
    heads["queue"] += np.array([1, -1], np.int64).astype(np.uint64)
    ledger.append(cards.with_heads(heads))
    assert ("cold hosts: 2 done are counted, there are 2",) == world.frontier.verify().problems


def test_records_are_exported_from_a_frontier_with_cold_hosts_and_imported_into_one(world):
    gone_cold(world, "http://a.com/", "http://b.com/")
    records = list(world.frontier.records())
    other = World()
    assert 2 == other.frontier.restore(records)
    assert 0 == world.frontier.restore(records)
    assert 2 == cold(world)
    assert records == list(other.frontier.records())


def test_a_lease_that_is_read_late_still_has_its_key(world):
    world.discover(Link("http://a.com/", key="k"))
    batch = world.lease(1)
    world.report(*[outcome(lease, seconds=0.0, status=200) for lease in batch])
    assert "k" == next(iter(batch)).key


# -- rows


def test_rows_are_reused(world):
    hosts = world.inspect().tables.hosts
    for turn in range(12):
        visited(world, *[f"http://h{turn}-{number}.com/" for number in range(20)])
        world.frontier.checkpoint()
    assert 240 == cold(world)
    assert hosts.count <= 60
    assert sum(map(len, hosts._arenas)) < 2_000
    assert [] == recount(world.frontier)


def test_rows_of_a_deleted_crawl_are_reused_when_no_urls_must_be_dropped_from_them(world, monkeypatch):
    set_limits(monkeypatch, WAKES_PER_CALL_MAX=1)
    visited(world, *[Link(f"http://old{number}.com/", crawl="old") for number in range(8)])
    world.frontier.delete(crawl="old")
    world.frontier.checkpoint()
    assert 8 == cold(world)
    world.discover(*[f"http://new{number}.com/" for number in range(8)])
    for _ in range(10):
        world.discover()
    assert (8, []) == (len(world.urls()), recount(world.frontier))


def test_names_are_copied_while_hosts_become_cold_and_return(monkeypatch):
    set_limits(monkeypatch, NAMES_FREED_BYTES_MIN=8)
    draw = np.random.default_rng(3)
    hosts, known = Hosts(), {}
    for turn in range(300):
        numbers = draw.integers(0, 1 << 40, 5, dtype=np.uint64)
        names = [f"{'n' * int(draw.integers(1, 9))}{number}.com" for number in numbers.tolist()]
        rows = hosts.add(numbers, np.zeros(5, np.uint16), TextColumn.of(names))
        known |= dict(zip(rows.tolist(), names, strict=True))
        if turn % 3:
            some = draw.permutation(np.array(sorted(known), np.uint32))[: int(draw.integers(0, 12))]
            hosts.remove(some)
            for row in some.tolist():
                del known[row]
        hosts.tidy(int(draw.integers(1, 7)))
        rows = np.array(sorted(known), np.uint32)
        assert [known[row] for row in rows.tolist()] == hosts.names(rows).list()
        assert [known[row] for row in rows.tolist()] == [hosts.name(row) for row in rows.tolist()]
        assert len(known) == len(hosts)


def test_new_hosts_get_the_rows_that_were_predicted(world):
    hosts = world.inspect().tables.hosts
    gone_cold(world, "http://a.com/", "http://b.com/", "http://c.com/")
    coming = hosts.coming(5).tolist()
    assert sorted(coming) == [0, 1, 2, 3, 4]
    world.discover(*[f"http://n{number}.com/" for number in range(5)])
    assert [f"n{number}.com" for number in range(5)] == hosts.names(np.array(coming)).list()
    assert 5 == len(world.urls())


@given(st.lists(st.integers(0, 2**64 - 1), max_size=20), st.integers(0, 2**32 - 1))
def test_the_hash_of_a_queue_identifies_the_host(numbers, crawl):
    hashes, crawls = np.array(numbers, np.uint64), np.full(len(numbers), crawl, np.uint32)
    assert numbers == unmixed(mixed(hashes)).tolist()
    assert numbers == hosts_of_queues(queue_hashes(hashes, crawls), crawls).tolist()


# -- clocks that are shared


DOMAIN = {"domain": {"capacity": 1, "gap": 60}}


def test_a_host_becomes_cold_once_the_gap_of_its_group_is_over(monkeypatch):
    hosts_go_cold(monkeypatch)
    world = World(group=DOMAIN)
    visited(world, "http://www.a.com/")
    world.clock.move(58)
    world.frontier.checkpoint()
    assert (0, 1) == (cold(world), groups(world))
    world.clock.move(1)
    world.frontier.checkpoint()
    assert (1, 0) == (cold(world), groups(world))
    world.discover("http://www.a.com/2", "http://ftp.a.com/")
    world.report(*[lease.done(seconds=0.0) for lease in world.lease()])
    assert ([], 1) == (world.urls(), groups(world))
    world.clock.move(60)
    assert 1 == len(world.lease())
    assert [] == recount(world.frontier)


def groups(world: World) -> int:
    """Returns how many groups are in memory."""
    return len(world.inspect().turns.shared)


@pytest.mark.parametrize("killed", [False, True])
def test_a_clock_that_stepped_back_makes_groups_of_cold_hosts_wait(monkeypatch, killed):
    hosts_go_cold(monkeypatch)
    world = World(group="domain", delay=5)
    visited(world, "http://www.a.com/")
    world.clock.move(9)
    world.frontier.checkpoint()
    assert 1 == cold(world)
    world.inspect().opening.rest_everybody(world.clock())
    if killed:
        world.kill()
    world.discover("http://ftp.a.com/")
    assert [] == world.urls()
    world.clock.move(5)
    assert ["http://ftp.a.com/"] == world.urls()


@settings(max_examples=1 + settings.default.max_examples // 5)
@given(
    steps=st.lists(st.tuples(st.integers(0, 7), st.sampled_from([0, 1, 5, 60, 400]), st.booleans()), max_size=9),
    domain=st.sampled_from([None, 1.0, 60.0]),
    address=st.sampled_from([None, 1.0, 30.0]),
)
def test_hosts_that_become_cold_keep_the_gaps_of_their_groups(steps, domain, address):
    """Each host becomes cold as early as possible, and the frontier is killed. No gap of a domain or an address is too
    short, all URLs are leased, and no group is left."""
    told = {"domain": {"gap": domain} if domain else {}, "address": {"gap": address} if address else {}}
    gaps = {"domain": domain or 1.0, "address": address or 1.0}
    ended: dict[tuple[str, int], int] = {}  # by group: the end of its last request

    def visit(world: World) -> int:
        batch = world.lease(9)
        for lease in batch:
            number = int(lease.host[1])
            for group in (("domain", number // 3), ("address", number % 3)):
                gap = world.clock() - ended.get(group, 0)
                assert gap >= instant(gaps[group[0]]), f"{group}: {gap / 1e6} s before {lease.url}"
                ended[group] = world.clock()
        world.report(*[lease.done(seconds=0.0) for lease in batch])
        return len(batch)

    with pytest.MonkeyPatch.context() as patch:
        hosts_go_cold(patch)
        world = World(group=told, delay=1)
        for at, (number, seconds, dies) in enumerate(steps):
            numbers = {number, (number * 5 + at) % 8}
            world.discover(*[f"http://h{n}.d{n // 3}.com/{at}" for n in numbers])
            world.frontier.set_addresses({f"h{n}.d{n // 3}.com": f"192.0.2.{n % 3}" for n in numbers})
            visit(world)
            world.clock.move(seconds)
            world.frontier.checkpoint()
            if dies:
                world.kill()
            assert [] == recount(world.frontier)
        world.clock.move(400)
        while visit(world):
            world.clock.move(61)
        world.frontier.checkpoint()
        assert {"done": sum(world.counts().values())} == world.counts() or not steps
        assert (0, 0) == (len(world.inspect().tables.hosts), groups(world))
        assert [] == recount(world.frontier)


def test_a_group_that_is_set_later_includes_cold_hosts(world):
    gone_cold(world, "http://www.a.com/")
    world.reopen(group={"domain": {"capacity": 1, "gap": 60}})
    world.discover("http://ftp.a.com/")
    assert [] == world.urls()
    world.clock.move(60)
    assert ["http://ftp.a.com/"] == world.urls()


# -- disk


def test_cold_hosts_survive_any_end(world):
    gone_cold(world, *[f"http://h{number}.com/" for number in range(10)])
    world.kill()
    assert (10, []) == (cold(world), recount(world.frontier))
    world.reopen()
    assert (10, {"done": 10}) == (cold(world), world.counts())
    looker = Frontier.look(world.disk.copy())
    assert 10 == len(looker.hosts())
    looker.close()


def test_a_host_uses_less_than_64_bytes_on_disk(monkeypatch):
    hosts_go_cold(monkeypatch)
    set_limits(monkeypatch, COLD_STEP_ROWS=2_000)
    world = World(disk=FaultyFiles())
    draw = np.random.default_rng(1)
    words = ["shop", "blog", "news", "mail", "the", "my", "web", "data", "art", "city", "green", "house", "car", "book"]
    names = sorted({f"{'www.' * int(n % 2)}{words[n % 14]}{words[m % 14]}{m}.{['com', 'net', 'org', 'de', 'fr'][k]}"
                    for n, m, k in draw.integers(0, (14, 9_999, 5), (6_000, 3)).tolist()})[:5_000]  # fmt: skip
    world.discover(*[f"http://{name}/" for name in names])
    while batch := world.lease(37):
        seconds = draw.lognormal(-1.6, 1.0, len(batch)).tolist()
        world.report(*[outcome(one, seconds=s, status=200) for one, s in zip(batch, seconds, strict=True)])
        world.clock.move(0.3)
    world.clock.move(600)
    world.frontier.checkpoint()
    assert 5_000 == cold(world)
    size = sum(len(data) for name, data in world.disk.contents().items() if name.startswith("cold-"))
    assert size / 5_000 < 64, f"{size / 5_000} bytes"


def test_hosts_of_shared_machines_become_cold_and_leave_nothing_in_memory(monkeypatch):
    """Twice the hosts use twice the disk, and no more memory: neither clock nor address stays in it."""
    hosts_go_cold(monkeypatch)
    monkeypatch.setattr("outrider.frontier.schedule.cooling.COLD_STEP_ROWS", 4_000)
    world = World(disk=FaultyFiles(), group=machines(), addresses="errands")
    sizes = []
    for first in (0, 1_000):
        world.discover(*(f"http://h{number}.com/" for number in range(first, first + 1_000)))
        while leases := world.lease(errands=True):
            world.report(*(
                one.located(f"93.184.{one.token % 250}.1", ttl_seconds=3600) if one.kind == "address" else one.done()
                for one in leases
            ))  # fmt: skip
            world.clock.move(1)
        world.clock.move(600)
        world.frontier.checkpoint()
        tables, shared = world.inspect().tables, world.inspect().turns.shared
        assert (first + 1_000, 0, 0, 0) == (cold(world), len(tables.hosts), len(tables.addresses.by_host), len(shared))
        names = [name for name in world.disk.contents() if name.startswith("cold-")]
        sizes.append(sum(len(world.disk.contents()[name]) for name in names))
    assert sizes[1] < min(2.2 * sizes[0], 64 * 2_000)


def corrupted(folder, at: int):
    (path,) = folder.glob("cold-*.run")
    data = bytearray(path.read_bytes())
    data[at] ^= 0x41
    path.write_bytes(data)
    return path.name


def stored(tmp_path, monkeypatch, hosts: int = 700) -> World:
    hosts_go_cold(monkeypatch)
    set_limits(monkeypatch, COLD_STEP_ROWS=2_000)
    world = World(disk=str(tmp_path / "store"))
    world.discover(*[f"http://h{number}.com/" for number in range(hosts)])
    world.report(*[outcome(lease, seconds=0.0, status=200) for lease in world.lease(1_000)])
    world.clock.move(1)
    world.frontier.checkpoint()
    assert hosts == cold(world)
    world.frontier.close()
    return world


def test_a_damaged_run_of_cold_hosts_refuses_to_open(tmp_path, monkeypatch):
    world = stored(tmp_path, monkeypatch)
    name = corrupted(tmp_path / "store", 200)
    with pytest.raises(DamagedStoreError, match=f"{name} at byte"):
        world._open()


def test_hosts_with_lost_records_start_afresh_after_a_whole_delay(tmp_path, monkeypatch):
    world = stored(tmp_path, monkeypatch)
    corrupted(tmp_path / "store", 200)
    found = repair(str(tmp_path / "store"), now=world.clock.at)
    assert 512 == found.salvaged.hosts_made
    frontier = world.frontier = world._open()
    assert ([], 700) == (recount(frontier), frontier.statistics()["hosts"]["known"])
    assert {world.clock.at + instant(1)} == {host.rest_until for host in frontier.hosts(limit=1_000)}
    assert ["known"] == world.discover("http://h7.com/")
    frontier.close()


def test_records_without_room_on_disk_stay_in_memory(monkeypatch):
    hosts_go_cold(monkeypatch)
    world = World(disk=CrashDisk(capacity_bytes=40 << 20))
    visited(world, *[f"http://h{number}.com/" for number in range(50)])
    world.disk.fill(40 << 20)
    world.frontier.checkpoint()
    assert (50, 0) == (cold(world), world.frontier.statistics()["checkpoint"]["number"])
    assert [] == [name for name in world.disk.names() if name.startswith("cold-")]
    assert ({"done": 50}, []) == (world.counts(), recount(world.frontier))
    looker = Frontier.look(world.disk.copy())
    assert 50 == looker.statistics()["structures"]["hosts"]["rows"], "to whoever comes now they never went"
    looker.close()
    world.disk.fill(0)
    world.frontier.checkpoint()
    world.kill()
    assert (50, [], 1) == (cold(world), recount(world.frontier), world.frontier.statistics()["checkpoint"]["number"])


def test_a_cursor_continues_when_no_host_is_cold_any_more(world):
    urls = [f"http://h{number}.com/" for number in range(10)]
    gone_cold(world, *urls)
    hosts, queues = world.frontier.hosts(limit=3), world.frontier.queues(limit=3)
    world.discover(*[url + "2" for url in urls])
    world.frontier.checkpoint()
    world.reopen()
    assert 0 == cold(world)
    names = named(hosts) + named(world.frontier.hosts(after=hosts.cursor))
    keys = [one.key for one in [*queues, *world.frontier.queues(after=queues.cursor)]]
    assert sorted(names) == sorted(keys) == [f"h{number}.com" for number in range(10)]
    assert [] == world.frontier.hosts(after="h" + "f" * 16)


def test_memory_for_no_bytes_is_refused():
    for value in (None, 0, -1, "1G", 1.5, True):
        with pytest.raises(SettingsError, match="memory_bytes"):
            World(memory_bytes=value)


def test_an_authority_with_parked_urls_still_to_be_judged_returns_unchanged(world):
    """A replay of the log alone would find the same state."""
    visited(world, "http://a.com/")
    world.frontier.set_robots("http://a.com", 200, RULES)
    world.discover(Link("http://a.com/private", crawl="other"))
    world.clock.move(10)
    assert ([], "parked") == (world.urls(), world.frontier.status("http://a.com/private", crawl="other").state)
    world.frontier.set_robots("http://a.com", 404, b"")
    world.frontier.delete(crawl="other")
    world.clock.move(10)
    again = world.inspect().tables.robots.by_name["http://a.com"].again
    assert again
    world.frontier.checkpoint()
    assert 1 == cold(world)
    recall_all(world.frontier)
    assert again == world.inspect().tables.robots.by_name["http://a.com"].again


def test_a_crawl_delay_separates_pages_of_a_returned_host(world):
    world.frontier.set_robots("http://a.com", 200, RULES)
    visited(world, "http://a.com/")
    world.clock.move(10)
    world.frontier.checkpoint()
    assert 1 == cold(world)
    world.discover("http://a.com/2", "http://a.com/3")
    world.report(world.one().done(seconds=0))
    assert 7.0 == world.ready_in()
