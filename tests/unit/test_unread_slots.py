"""After a kill, a large store opens without a scan of its ledger: slots are read when calls need them, and then all is
as after a scan."""

from __future__ import annotations

import asyncio
import random
import threading
from functools import partial
from typing import Any

import pytest

from limiting import set_limits
from model.inside import inspect
from model.openings import compare_openings, schedules
from model.world import World, hosts_go_cold, outcome, recount, slots_stay_unread
from outrider import AsyncFrontier, Frontier, Link
from outrider.clock import instant
from outrider.errors import DamagedStoreError, StoreFailedError, StoreFullError
from outrider.frontier.state import kept_schedule, recovery
from outrider.frontier.state.replay import Window
from outrider.frontier.state.unread_slots import UnreadSlots
from outrider.frontier.stores.tailed_backlog import TailedBacklog
from outrider.journey import Code, Lease
from outrider.limits import SLOTS
from outrider.sim.disk import FaultyFiles

SETTINGS: dict[str, Any] = {"delay": 1.0, "delay_factor": 0}
HOSTS = 12


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    slots_stay_unread(monkeypatch)
    set_limits(monkeypatch, KEPT_QUEUES=2, BACKLOG_MANY_CARDS=4)
    for name in ("head_cards_max", "chunk_cards"):
        monkeypatch.setitem(TailedBacklog.__init__.__kwdefaults__, name, 2)


def unread_of(world: World) -> UnreadSlots | None:
    return world.inspect().tables.urls.unread


def slots_of(world: World, *hosts: str) -> Any:
    tables = world.inspect().tables
    return tables.hosts.slot[[tables.host_row(host) for host in hosts]]


def filled(disk: FaultyFiles | None = None, **settings: Any) -> World:
    """A store with a checkpoint, and URLs that are queued, leased by a worker and by the process, waiting, done with a
    content, gone, and parked."""
    world = World(disk=disk, **SETTINGS, **settings)
    world.discover(*(f"http://h{page % HOSTS}.com/{page}" for page in range(60)))
    world.discover(Link("http://w.com/", not_before=world.clock.at + instant(900)), Link("http://h1.com/k", key="k"))
    for turn in range(3):
        world.clock.move(2)
        done, again, gone, *rest = list(world.lease(5))
        world.report(outcome(done, status=200, digest=bytes([turn]) * 20, links=[f"http://l.com/{turn}"]))
        world.report(again.retry(error="timeout"), gone.gone(status=404))
        world.frontier.release([lease.token for lease in rest])
    world.clock.move(2)
    assert len(world.lease(2, worker="w", ttl_seconds=600)) == 2
    assert len(world.lease(2)) == 2
    world.frontier.checkpoint()
    return world


def killed(**settings: Any) -> World:
    world = filled(**settings)
    world.kill()
    return world


def test_after_a_kill_the_opening_reads_no_ledger():
    world = filled()
    counts = world.frontier._tallies()["urls"]
    assert isinstance(counts, dict)
    world.kill()
    unread = unread_of(world)
    assert unread is not None
    assert len(unread) == SLOTS
    assert not world.inspect().tables.urls.scanned
    ended = counts | {"queued": counts["queued"] + 2, "leased": counts["leased"] - 2}
    assert world.frontier._tallies()["urls"] == ended, "the counts are true before a slot is read"
    assert len(unread) == SLOTS
    assert compare_openings(world.disk.copy(), now=world.clock.at)
    assert recount(world.frontier) == []
    assert unread_of(world) is None


def test_calls_read_the_slots_that_they_need():
    world = killed()
    unread = unread_of(world)
    assert unread is not None
    assert world.discover("http://h3.com/3", "http://h3.com/new") == ["known", "new"]
    assert world.discover("http://h3.com/3", "http://h3.com/new") == ["known", "known"]
    assert unread.are(slots_of(world, "h3.com", "h4.com", "h5.com", "h6.com")).all(), "it searched the ledger"
    assert world.lease(1, key="h4.com").urls[0].startswith("http://h4.com/")
    assert unread.are(slots_of(world, "h5.com", "h6.com", "w.com")).all()
    assert world.discover("http://new.com/") == ["new"]
    assert recount(world.frontier) == []


def test_leases_read_all_slots_bit_by_bit_and_find_every_url():
    world = killed()
    assert unread_of(world) is not None
    found: list[str] = []
    calls = 0
    while not world.frontier.finished():
        world.clock.move(300)
        leases = list(world.lease(5))
        assert world.ready_in() is not None
        found += [lease.url for lease in leases]
        world.report(*(outcome(lease, status=404, verdict="gone") for lease in leases))
        calls += unread_of(world) is not None
    assert calls > 5, "several calls found slots unread"
    assert len(set(found)) == len(found)
    assert not world.counts().keys() - {"done", "gone", "parked"}
    assert recount(world.frontier) == []


def test_a_url_that_came_to_be_due_while_its_slot_was_unread_is_queued():
    world = killed()
    world.clock.move(1_000)
    assert world.frontier.finished() is False
    world.lease(1, key="h4.com")
    assert unread_of(world) is not None
    assert world.state("http://w.com/") == "queued"
    assert recount(world.frontier) == []


def random_calls(world: World, rng: random.Random, leased: list[Lease], steps: int) -> None:
    """Makes calls that read only the slots they need."""
    for _ in range(steps):
        match rng.randrange(7):
            case 0:
                world.discover(*(f"http://h{rng.randrange(HOSTS + 3)}.com/{rng.randrange(80)}" for _ in range(2)))
            case 1:
                world.discover(Link(f"http://h{rng.randrange(HOSTS)}.com/{rng.randrange(99)}", key="k"))
            case 2:
                leased += world.lease(rng.randrange(1, 4), worker=rng.choice([None, "w"]), ttl_seconds=60)
            case 3:
                world.clock.move(rng.choice([0.5, 3, 70, 900]))
            case 4 if leased:
                lease = leased.pop(rng.randrange(len(leased)))
                links = [f"http://h{rng.randrange(HOSTS)}.com/{rng.randrange(99)}"]
                world.report(
                    rng.choice(
                        [
                            outcome(lease, status=200, links=links),
                            lease.retry(error="timeout"),
                            lease.gone(status=404),
                        ]
                    )
                )
            case 5 if leased:
                lease = leased.pop()
                world.frontier.release([lease.token]) if rng.random() < 0.5 else world.frontier.defer(
                    [lease.token], world.clock.at + instant(100)
                )
            case 6 if leased:
                world.frontier.rest([leased[-1].token])
                world.frontier.extend([leased[-1].token], 90)


@pytest.mark.parametrize("cold", ["in memory", "cold", "cold with URLs"])
@pytest.mark.parametrize("seed", range(6))
def test_random_calls_and_kills_while_slots_are_unread(seed, cold, monkeypatch):
    if cold != "in memory":
        hosts_go_cold(monkeypatch, with_urls=cold == "cold with URLs")
    set_limits(monkeypatch, LOG_BYTES_BEFORE_CHECKPOINT=1 if seed % 2 else 4_000, CHECKPOINT_STEP_BYTES=300)
    rng = random.Random(f"{seed} {cold}")
    world, leased, unread = filled(), list[Lease](), 0
    for _ in range(6):
        random_calls(world, rng, leased, 12)
        if rng.random() < 0.3:
            assert recount(world.frontier) == []
            world.frontier.checkpoint()
        compare_openings(world.disk.copy(), now=world.clock.at)
        world.kill()
        unread += unread_of(world) is not None
        random_calls(world, rng, leased, 12)
        compare_openings(world.disk.copy(), now=world.clock.at)
    assert unread, "one of the openings left slots for later"
    assert recount(world.frontier) == []


@pytest.fixture
def _windows_of_one_frame(monkeypatch):
    monkeypatch.setattr(recovery, "Window", partial(Window, rows_max=1))


@pytest.mark.usefixtures("_windows_of_one_frame")
def test_visits_in_the_log_are_replayed_without_a_search():
    """Only leases that are open at the end need their records."""
    world = World(**SETTINGS)
    world.discover(*(f"http://h{page % HOSTS}.com/{page}" for page in range(60)))
    world.frontier.checkpoint()
    for turn in range(9):
        world.clock.move(2)
        done, gone, *rest = world.lease(4)
        world.frontier.extend([done.token, rest[0].token], 90)
        world.frontier.rest([done.token])
        world.report(outcome(done, status=200, digest=bytes([turn]) * 20), gone.gone(status=404))
        world.frontier.release([lease.token for lease in rest])
    world.clock.move(2)
    still_open = world.lease(2, worker="w", ttl_seconds=600)
    assert len(still_open) == 2
    world.frontier.extend(still_open.tokens, 900)
    world.frontier.rest(still_open.tokens[:1])
    disk = world.disk.copy()
    world.kill()
    unread = unread_of(world)
    assert unread is not None
    assert (len(unread), unread.searched) == (SLOTS, len(still_open))
    assert compare_openings(disk, now=world.clock.at)
    assert recount(world.frontier) == []
    world.report(*(outcome(lease, status=200) for lease in still_open))
    assert recount(world.frontier) == []


def test_a_url_that_the_log_leases_and_then_parks_is_parked():
    world = World(**SETTINGS, max_pages_per_host=1)
    world.discover(*(f"http://h{page % HOSTS}.com/{page}" for page in range(60)), "http://p.com/")
    world.frontier.checkpoint()
    lease = world.one(key="p.com")
    world.frontier.release([lease.token])
    world.discover(Link("http://p.com/best", priority=1.0))
    world.clock.move(2)
    world.report(outcome(world.one(key="p.com"), status=200))
    world.clock.move(2)
    assert world.urls(1, key="p.com") == []
    assert world.state(lease.url) == "parked"
    world.kill()
    assert not world.inspect().tables.urls.scanned
    assert unread_of(world) is None, "parked URLs have their places"
    assert world.state(lease.url) == "parked"
    assert recount(world.frontier) == []


def test_the_content_of_a_url_that_is_leased_at_a_kill_stays_seen():
    """Its card is with the lease when its slot is read."""
    world = World(**SETTINGS)
    world.discover(*(f"http://h{page % HOSTS}.com/{page}" for page in range(60)), "http://c.com/")
    due, digest = world.clock() + instant(5), b"7" * 20
    world.report(outcome(world.one(key="c.com"), "again", status=200, at=due, digest=digest))
    world.clock.move(10)
    world.frontier.checkpoint()
    world.one(key="c.com", worker="w", ttl_seconds=900)
    world.kill()
    assert unread_of(world) is not None
    assert world.frontier.seen_content([digest]) == [True]
    assert recount(world.frontier) == []


def test_a_checkpoint_while_slots_are_unread_keeps_counts():
    world = killed()
    world.clock.move(1_000)
    world.lease(1, key="h4.com")
    machine = world.inspect()
    world.frontier.checkpoint()
    assert unread_of(world) is not None, "the checkpoint read no slot"
    world.kill()
    assert unread_of(world) is not None
    assert compare_openings(world.disk.copy(), now=world.clock.at)
    assert machine.tables.urls.accepted() == world.inspect().tables.urls.accepted()
    assert world.state("http://w.com/") == "queued"
    assert recount(world.frontier) == []


def test_after_a_clean_stop_with_unread_slots_the_next_opening_leaves_them_for_later_again():
    world = killed()
    world.lease(1, key="h4.com")
    world.reopen()
    assert unread_of(world) is not None
    assert compare_openings(world.disk.copy(), now=world.clock.at)
    assert recount(world.frontier) == []


def test_a_look_at_a_killed_store_counts_all_urls():
    world = filled()
    counts = world.counts()
    disk = world.disk.copy()
    with Frontier.look(disk) as look:
        assert inspect(look).tables.urls.unread is not None
        urls: Any = look.statistics()["urls"]
        assert {state: count for state, count in urls.items() if count} == counts
        assert sum(status.queued for status in look.hosts()) == counts["queued"]


@pytest.mark.parametrize("what", ["a deleted queue", "an exact order", "unique keys", "a budget", "a revisit"])
def test_where_counts_are_not_enough_the_opening_scans(what):
    more: dict[str, Any] = {"max_pages_per_host": 1} if what == "a budget" else {}
    more |= {"revisit": "uniform", "rate": 1_000.0} if what == "a revisit" else {}
    world = filled(**more)
    if what == "a deleted queue":
        world.frontier.delete("h2.com")
    elif what in ("an exact order", "unique keys"):
        rule = {"order": "exact"} if what == "an exact order" else {"unique": "caller"}
        world.frontier.make_crawl("other", **rule)
        world.discover(Link("http://o.com/", crawl="other", priority=1 if "order" in rule else 0.5))
    world.frontier.checkpoint()
    assert not schedules(world.disk)
    world.kill()
    assert world.inspect().tables.urls.scanned
    assert recount(world.frontier) == []


@pytest.mark.parametrize("what", ["an exact order", "unique keys"])
def test_a_crawl_of_the_log_that_needs_all_slots_reads_them(what):
    world = filled()
    rule = {"order": "exact"} if what == "an exact order" else {"unique": "caller"}
    world.frontier.make_crawl("other", **rule)
    world.kill()
    assert not world.inspect().tables.urls.scanned
    assert unread_of(world) is None
    assert recount(world.frontier) == []


def test_a_cold_host_that_comes_to_be_due_while_its_slot_is_unread_has_one_row(monkeypatch):
    hosts_go_cold(monkeypatch)
    world = World(**SETTINGS)
    world.discover(Link("http://c.com/1", not_before=world.clock.at + instant(100)), "http://h.com/", "http://h.com/2")
    world.report(*(outcome(lease, status=200) for lease in world.lease(1)))
    world.clock.move(10)
    world.frontier.checkpoint()
    assert len(world.inspect().tables.cold)
    world.kill()
    world.clock.move(200)
    world.lease(1, key="h.com")
    assert world.discover("http://c.com/2", "http://c.com/1") == ["new", "known"]
    assert world.counts() == {"queued": 2, "leased": 1, "done": 1}
    assert sum(url.startswith("http://c.com/") for url in world.urls(5)) == 1, "the host has one clock"
    assert compare_openings(world.disk.copy(), now=world.clock.at)
    assert recount(world.frontier) == []


def test_a_url_that_was_deleted_while_it_was_leased_and_is_accepted_anew_is_queued():
    world = filled()
    lease = world.one(worker="w", key="h3.com", ttl_seconds=600)
    world.frontier.checkpoint()
    world.frontier.delete("h3.com")
    assert world.discover(lease.url) == ["new"]
    world.kill()
    assert unread_of(world) is not None
    assert compare_openings(world.disk.copy(), now=world.clock.at)
    world.clock.move(700)
    assert world.urls(1, key="h3.com") == [], "the host rests after the lease that expired"
    world.clock.move(10)
    assert world.one(key="h3.com").url == lease.url
    assert recount(world.frontier) == []


def test_a_crawl_with_cold_hosts_may_be_deleted_after_the_checkpoint(monkeypatch):
    hosts_go_cold(monkeypatch)
    world = World(**SETTINGS)
    at = world.clock.at + instant(900)
    world.discover("http://h.com/", *(Link(f"http://c{n}.com/", crawl="other", not_before=at) for n in range(4)))
    world.frontier.checkpoint()
    assert len(world.inspect().tables.cold) == 4
    world.frontier.delete(crawl="other")
    world.kill()
    assert unread_of(world) is not None
    assert world.counts() == {"queued": 1}
    assert recount(world.frontier) == []


@pytest.mark.parametrize("limit", [{"max_urls_per_queue": 8}, {"max_urls": 60, "when_full": "drop_lowest"}])
def test_limits_count_the_urls_of_unread_slots(limit):
    world, other = filled(**limit), filled(**limit)
    other.frontier.statistics()
    world.kill()
    other.kill()
    other.frontier.statistics()
    urls = [Link(f"http://h{page % HOSTS}.com/more{page}", priority=page / 40) for page in range(40)]
    assert unread_of(world) is not None
    assert unread_of(other) is None
    assert world.discover(*urls) == other.discover(*urls)
    assert recount(world.frontier) == []


def test_tasks_that_wait_for_all_slots_leave_a_thread_for_other_calls(monkeypatch):
    world = killed()
    answered, read = threading.Event(), Frontier._read_slots

    def late(frontier: Frontier) -> None:
        assert answered.wait(20), "the other call had no thread that waits for the disk"
        read(frontier)

    async def ask() -> list[str]:
        frontier = AsyncFrontier(world.frontier)
        tasks = [asyncio.create_task(frontier.status(f"http://h{page}.com/{page}")) for page in range(3)]
        await asyncio.sleep(0)
        assert await frontier.discover(["http://new.com/"]) == [Code.NEW]
        answered.set()
        return [str(status.state) for status in await asyncio.gather(*tasks)]

    monkeypatch.setattr(Frontier, "_read_slots", late)
    assert "unknown" not in asyncio.run(ask())
    assert unread_of(world) is None
    assert recount(world.frontier) == []


def test_a_log_with_many_facts_about_urls_of_the_checkpoint_reads_all_slots(monkeypatch):
    """Each such fact needs a search in the ledger, and many searches cost more than reading all URLs."""
    world = filled()
    for _ in range(20):
        world.clock.move(2)
        world.frontier.release(world.lease(5).tokens)
    world.kill()
    assert unread_of(world) is not None
    disk = world.disk.copy()
    set_limits(monkeypatch, SEARCH_COST_ROWS=SLOTS)
    world.disk = disk
    world.kill()
    assert unread_of(world) is None
    assert not world.inspect().tables.urls.scanned
    assert compare_openings(world.disk.copy(), now=world.clock.at)
    assert recount(world.frontier) == []


def test_a_damaged_run_is_named_when_a_slot_of_it_is_read_and_stops_the_frontier():
    world = World(**SETTINGS)
    urls = [f"http://h{host}.com/" for host in range(HOSTS)]
    world.discover(*urls)
    world.frontier.checkpoint()
    run = next(name for name in world.disk.names() if name.startswith("run-"))
    content = world.disk.open(run)
    at = content.size() // 3
    (octet,) = content.read_at(at, 1)
    content.write_at(at, bytes([octet ^ 0x40]))
    content.close()
    world.kill()
    assert unread_of(world) is not None
    with pytest.raises(DamagedStoreError, match=run):
        world.discover(*urls)
    with pytest.raises(StoreFailedError):
        world.lease(1)


def no_room(*how: Any) -> Any:
    raise StoreFullError


def test_a_disk_without_room_for_the_counts_has_its_checkpoint_all_the_same(monkeypatch):
    world = filled()
    monkeypatch.setattr(kept_schedule, "_counts", no_room)
    world.discover("http://more.com/")
    world.frontier.checkpoint()
    number = world.frontier._rounds.number
    assert not schedules(world.disk)
    world.kill()
    assert world.inspect().tables.urls.scanned
    assert world.frontier._rounds.number == number
    assert recount(world.frontier) == []
