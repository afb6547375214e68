"""robots.txt files and their rules use a bounded number of bytes, and no call waits while a long one is read."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import subprocess
import sys
import threading
import tracemalloc

import pytest
from hypothesis import given as given_
from hypothesis import strategies as st

from model.world import START, World, hosts_go_cold, outcome, recount
from outrider.engine import AsyncFrontier
from outrider.errors import DamagedStoreError, StoreFullError
from outrider.frontier.state.authorities import RobotsState
from outrider.frontier.state.recovery import run_names
from outrider.frontier.state.salvage import Salvage
from outrider.frontier.state.tables import ROBOTS_FILES, Tables
from outrider.frontier.stores import rulebook as rulebooks
from outrider.frontier.stores.ledger import Ledger
from outrider.frontier.stores.rulebook import Rulebook, crawl_delay_of, robots_bytes
from outrider.journey import Kind
from outrider.kernels import in_use
from outrider.limits import (
    ROBOTS_BYTES_MAX,
    ROBOTS_MEMORY_BYTES_LEAST,
    RULES_READ_BYTES_AT_ONCE,
    RULES_READ_BYTES_PER_CALL,
)
from outrider.robots import Rules
from outrider.storage.checkpoint import newest_checkpoint
from outrider.storage.manifest import Manifest
from outrider.storage.memory import MemoryFiles
from timing import scaled


def body_of(seed: int, size: int = 5_000) -> bytes:
    """Returns a robots.txt of about this many bytes, different for each seed and hard to compress."""
    rng = random.Random(seed)
    lines = [b"User-agent: *", b"Disallow: /closed"]
    while size > 0:
        lines.append(b"Disallow: /%016x" % rng.getrandbits(64))
        size -= len(lines[-1]) + 1
    return b"\n".join(lines) + b"\n"


LONG = body_of(0, 2 * RULES_READ_BYTES_PER_CALL)


# -- the files


def take(rules: Rulebook, digest: int, body: bytes) -> None:
    """Adds a file that an authority has from now on."""
    rules.put(digest, body)
    rules.name(digest)


def book(files: MemoryFiles | None = None, bytes_max: int = 20_000) -> Rulebook:
    made = Rulebook(files, bytes_max=bytes_max)
    made.agent = "Outrider"
    return made


def test_files_without_room_in_memory_are_on_disk_and_are_read_back_unchanged():
    rules = book(MemoryFiles())
    for seed in range(50):
        take(rules, seed + 1, body_of(seed))
    assert rules.memory_bytes <= rules.bytes_max < rules.statistics()["disk_bytes"]
    assert [body_of(seed) for seed in range(50)] == [rules.body(seed + 1) for seed in range(50)]


def test_rules_without_room_in_memory_are_read_again_and_return_the_same_verdicts():
    rules = book(MemoryFiles())
    for seed in range(30):
        take(rules, seed + 1, body_of(seed))
    for seed in [*range(30), *range(30)]:
        rules.begin_call()
        found = rules.rules(seed + 1)
        assert [False, True] == [found.allowed("http://a.com/" + path) for path in ("closed", "open")]
        assert rules.memory_bytes <= max(rules.bytes_max, found.memory_bytes)


def test_the_least_recently_used_file_leaves_memory_first():
    rules = book(MemoryFiles(), 10_000_000)
    for digest in (1, 2, 3, 4, 2):
        take(rules, digest, body_of(digest))
        rules.begin_call()
        rules.rules(digest)
    rules.bytes_max = rules.memory_bytes - 1
    take(rules, 9, b"User-agent: *\nDisallow: /a")
    assert [2, 3, 4] == [digest for digest in (1, 2, 3, 4) if rules.count(digest)]


def test_a_file_of_several_authorities_is_stored_once_and_removed_after_the_last_at_the_next_checkpoint():
    rules = book()
    for _ in range(3):
        take(rules, 7, body_of(1))
    taken = rules.memory_bytes
    rules.let_go(7)
    rules.let_go(7)
    assert (1, taken, body_of(1)) == (len(rules), rules.memory_bytes, rules.body(7))
    rules.let_go(7)
    assert (1, body_of(1)) == (len(rules), rules.body(7)), "a call that decides may name it"
    rules.drop_unused()
    assert (0, 0, b"") == (len(rules), rules.memory_bytes, rules.body(7))


def test_rules_that_were_read_for_a_file_that_never_arrives_leave_memory_like_all_rules():
    """A stale report brings no file."""
    rules = book(MemoryFiles())
    for seed in range(100):
        rules.keep(seed + 1, Rules.parse(body_of(seed)).of("Outrider"))
    assert len(rules) < 10
    assert rules.memory_bytes <= max(rules.bytes_max, rules.rules(100).memory_bytes)


def test_only_files_that_the_disk_refuses_stay_in_memory_compressed(monkeypatch):
    files = MemoryFiles()
    rules = book(files)

    def full(*given: object, **how: object) -> None:
        raise StoreFullError("no space")

    monkeypatch.setattr(rules._scratch, "append", full)
    for seed in range(50):
        take(rules, seed + 1, body_of(seed))
        rules.begin_call()
        assert rules.rules(seed + 1) is not None
    assert [body_of(seed) for seed in range(50)] == [rules.body(seed + 1) for seed in range(50)]
    assert rules.memory_bytes < 50 * 5_000 + 100_000
    monkeypatch.undo()
    for seed in range(50, 250):
        take(rules, seed + 1, body_of(seed))
    assert rules.memory_bytes <= rules.bytes_max


def test_garbage_on_disk_is_collected_and_wanted_files_stay(monkeypatch):
    monkeypatch.setattr(rulebooks.Scratch.__init__, "__kwdefaults__", {"file_bytes_max": 1 << 16})
    files = MemoryFiles()
    rules = book(files, 5_000)
    for seed in range(400):
        take(rules, seed + 1, body_of(seed))
        if seed >= 20 and seed % 10:
            rules.let_go(seed - 19)
            rules.drop_unused()
    kept = [seed for seed in range(400) if rules.size(seed + 1)]
    assert [body_of(seed) for seed in kept] == [rules.body(seed + 1) for seed in kept]
    assert rules.statistics()["disk_bytes"] < 4 * len(kept) * 5_000
    rules.close()
    assert [] == files.names()


def test_a_share_of_the_memory_is_for_robots_rules_and_sixteen_megabytes_at_least():
    assert [1 << 26, ROBOTS_MEMORY_BYTES_LEAST] == [robots_bytes(2 << 30), robots_bytes(1)]


LONG_FILES = {
    "plain": [b"Disallow: /%06d" % n for n in range(3_000)],
    "long": [b"Disallow: /%06d%s" % (n, b"x" * 200) for n in range(2_000)],
    "both": [b"%s: /%06d" % (word, n) for n in range(2_000) for word in (b"Allow", b"Disallow")],
    "ends": [b"Disallow: /%06d$" % n for n in range(3_000)],
    "index": [b"Allow: /%06d/index.html" % n for n in range(3_000)],
    "stars": [b"Disallow: /%03d*x" % n for n in range(2_000)],
    "many stars": [b"Disallow: /%03d%s" % (n, b"*a$" * 10) for n in range(2_000)],
    "escaped": [b"Disallow: /" + "€".encode() * 20 + b"%d" % n for n in range(2_000)],
    "few": [b"Disallow: /%06d" % n for n in range(20)],
}
MEASURE = """
import ctypes, gc, json, sys, tracemalloc
from outrider.kernels import in_use
from outrider.robots import Rules

def rules(body):
    return Rules.parse(body).of("Outrider")

def traced(body):
    gc.collect()
    tracemalloc.start()
    found = rules(body)
    found.allowed("http://a.com/zzz")
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return taken

class Mallinfo2(ctypes.Structure):
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]

def allocated():  # the resident set counts the holes between chunks, too: as many as chance makes
    told = libc.mallinfo2()
    return told.uordblks + told.hblkhd

def grown(body):
    count = 1 + 8_000_000 // rules(body).memory_bytes
    before = allocated()
    kept.append([rules(body) for _ in range(count)])
    return (allocated() - before) / count

kept = []
libc = ctypes.CDLL(None)
if in_use() == "python":
    measured = traced
elif hasattr(libc, "mallinfo2"):  # the interpreter does not see what native kernels take, glibc does since 2.33
    libc.mallinfo2.restype = Mallinfo2
    measured = grown
else:
    sys.exit("no allocator that counts")
bodies = {name: bytes.fromhex(text) for name, text in json.load(sys.stdin).items()}
# The first time fills caches of the interpreter, too.
told = {name: (min(measured(body) for _ in range(3)), rules(body).memory_bytes) for name, body in bodies.items()}
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def measured():
    """Returns for each file the bytes that its rules use, counted by the interpreter or the C library, and the bytes
    that they report. A separate process with one thread measures them, so that the memory of other tests does not
    count."""
    told = {name: (b"User-agent: *\n" + b"\n".join(rules[: scaled(3_000)])).hex() for name, rules in LONG_FILES.items()}
    done = subprocess.run([sys.executable, "-c", MEASURE], input=json.dumps(told), capture_output=True, text=True)
    if done.stderr == "no allocator that counts\n":
        pytest.skip("the C library does not tell what it allocated")
    assert (0, "") == (done.returncode, done.stderr)
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", LONG_FILES)
def test_rules_use_the_memory_that_is_counted(name, measured):
    """Except for the overhead of the allocator, a fifth of small rules."""
    taken, counted = measured[name]
    assert 0.75 * taken <= counted < (10 if in_use() == "python" else 2) * taken


@given_(
    st.binary(max_size=200), st.sampled_from([b"", b"Crawl-delay: 3\n", b"c\0rawl-del\0ay: 3\n", b"CRAWL DELAY 3\n"])
)
def test_a_crawl_delay_is_found_without_reading_files_that_lack_it(body, line):
    body = b"User-agent: *\n" + line + body
    for octets in (body, "\ufeff".encode("utf-16-le") + body.decode("latin-1").encode("utf-16-le")):
        assert (Rules.parse(octets).crawl_delay("Outrider") or 0.0) == crawl_delay_of(octets, "Outrider")


def test_half_a_megabyte_of_one_rule_is_one_rule():
    rules = Rules.parse(b"User-agent: *\n" + b"Disallow: /a\n" * 39_000).of("Outrider")
    assert (1, False) == (rules.count, rules.allowed("http://a.com/a"))


# -- in a frontier


def rules_in_memory(world: World) -> int:
    return world.inspect().tables.robots.rulebook.memory_bytes


@pytest.fixture
def reads(monkeypatch):
    """Collects for each file that was read its bytes, and whether a frontier's lock was in use meanwhile."""
    seen: list[tuple[int, bool]] = []
    worlds: list[World] = []
    parse = Rules.parse.__func__

    def note(cls, body, **how):
        seen.append((len(body), any(world.frontier._lock._is_owned() for world in worlds)))
        return parse(cls, body, **how)

    monkeypatch.setattr(Rules, "parse", classmethod(note))
    return seen, worlds


def held_long(reads) -> list[int]:
    return [size for size, held in reads[0] if held and size > RULES_READ_BYTES_PER_CALL]


@pytest.mark.skipif(
    in_use() != "native", reason="plain kernels take a minute to hash megabytes, and change nothing here"
)
def test_bodies_and_rules_of_many_hosts_use_no_more_than_their_budget():
    """Once 1.6 GB for 150 hosts: each kept its body and all rules that were ever read of it."""
    world = World(memory_bytes=1 << 20, delay=0)
    hosts = [f"http://h{n}.com" for n in range(60)]
    gc.collect()
    tracemalloc.start()
    try:
        for number, host in enumerate(hosts):
            world.frontier.set_robots(host, 200, body_of(number, 12_000))
        world.discover(*[f"{host}/{path}" for host in hosts for path in ("closed", "open")])
        asked = [url for _ in range(60) for url in _fetched(world)]
        gc.collect()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sorted(f"{host}/open" for host in hosts) == sorted(asked)
    assert rules_in_memory(world) <= ROBOTS_MEMORY_BYTES_LEAST
    on_the_way = sum(len(file) for file in world.disk.copy()._files.values()) if hasattr(world.disk, "_files") else 0
    assert peak < ROBOTS_MEMORY_BYTES_LEAST + 40_000_000 + on_the_way


def _fetched(world: World) -> list[str]:
    leases = world.lease()
    world.report(*[lease.done(seconds=0) for lease in leases])
    return leases.urls


def test_a_long_robots_txt_is_read_outside_of_the_call_that_reports_it(reads):
    """The first verdict once needed 122 ms, while every other caller waited."""
    world = World(robots="errands")
    reads[1].append(world)
    world.discover("http://a.com/closed", "http://a.com/open")
    (errand,) = world.lease(errands=True)
    world.report(errand.robots(200, LONG))
    world.clock.move(10)
    assert (["http://a.com/open"], []) == (world.urls(), held_long(reads))
    assert [len(LONG)] == [size for size, _ in reads[0]], "read once"


def test_a_long_robots_txt_of_the_caller_is_read_outside_of_the_call_too(reads):
    world = World()
    reads[1].append(world)
    world.frontier.set_robots("http://a.com", 200, LONG)
    world.discover("http://a.com/closed", "http://a.com/open")
    assert (["http://a.com/open"], []) == (world.urls(), held_long(reads))


@pytest.mark.parametrize("ends", ["reopen", "kill"])
def test_after_an_opening_a_long_robots_txt_is_read_outside_of_the_lease_call_and_its_verdict_is_true(reads, ends):
    """The first lease call returns the allowed page, and no call returns the forbidden one."""
    world = World()
    world.frontier.set_robots("http://a.com", 200, LONG)
    world.discover("http://a.com/closed", "http://a.com/open")
    getattr(world, ends)()
    reads[1].append(world)
    reads[0].clear()
    assert (["http://a.com/open"], 1, []) == (world.urls(), len(reads[0]), held_long(reads))
    assert {"leased": 1, "parked": 1} == world.counts()


def test_rules_that_left_memory_are_read_outside_of_the_lease_call(reads):
    world = World()
    world.frontier.set_robots("http://a.com", 200, LONG)
    world.discover("http://a.com/closed", "http://a.com/open")
    world.inspect().tables.robots.rulebook.bytes_max = 0
    world.frontier.set_robots("http://b.com", 200, LONG + b"# another")
    reads[1].append(world)
    assert (["http://a.com/open"], []) == (world.urls(), held_long(reads))


def test_other_hosts_do_not_wait_for_one_with_a_long_robots_txt(reads):
    world = World()
    for host in "abc":
        world.frontier.set_robots(f"http://{host}.com", 200, LONG if host == "b" else b"")
    world.discover("http://a.com/", "http://b.com/", "http://c.com/")
    world.reopen()
    assert {"http://a.com/", "http://c.com/"} == set(world.urls())
    assert 0 == world.ready_in()
    assert ["http://b.com/"] == world.urls()


def test_one_call_reads_a_bounded_number_of_bytes(reads):
    """Three hundred hosts whose rules are not in memory: each call gets one step further."""
    world = World()
    hosts = [f"http://h{n}.com" for n in range(300)]
    for number, host in enumerate(hosts):
        world.frontier.set_robots(host, 200, body_of(number, 4_000))
    world.discover(*[f"{host}/open" for host in hosts])
    world.reopen()
    reads[1].append(world)
    found: list[str] = []
    while len(found) < 300:
        reads[0].clear()
        got = world.urls(1_000)
        assert got
        assert sum(size for size, held in reads[0] if held) <= RULES_READ_BYTES_PER_CALL
        assert sum(size for size, held in reads[0] if not held) <= RULES_READ_BYTES_AT_ONCE + 4_100
        found += got
    assert sorted(f"{host}/open" for host in hosts) == sorted(found)


def test_refusals_by_many_rules_are_counted_by_their_cost():
    """A call that refuses a thousand URLs by ten thousand rules each would need seconds."""
    world = World(delay=0)
    body = b"User-agent: *\n" + b"".join(b"Disallow: /%06d\n" % n for n in range(25_000))
    world.frontier.set_robots("http://a.com", 200, body)
    world.discover(*[f"http://a.com/{n:06}" for n in range(40)], "http://a.com/open")
    assert [] == world.urls()
    assert 0 < world.counts()["parked"] < 10
    assert 0 == world.ready_in()
    calls = 0
    while not (found := world.urls()):
        calls += 1
        assert calls < 40
    assert (["http://a.com/open"], 40) == (found, world.counts()["parked"])


def test_parked_urls_are_judged_again_by_a_long_robots_txt_outside_of_the_call(reads):
    world = World(delay=0)
    world.frontier.set_robots("http://a.com", 200, b"User-agent: *\nDisallow: /")
    world.discover("http://a.com/closed", "http://a.com/open")
    assert [] == world.urls()
    world.frontier.set_robots("http://a.com", 200, LONG)
    world.kill()
    reads[1].append(world)
    assert (["http://a.com/open"], []) == (world.urls(), held_long(reads))
    assert not world.inspect().robots.unread


def test_a_host_may_be_deleted_before_its_rules_are_read():
    world = World()
    world.frontier.set_robots("http://a.com", 200, LONG)
    world.discover("http://a.com/open")
    world.reopen()
    world.inspect().leases.lease(10, START)
    assert world.inspect().robots.unread
    world.frontier.delete("a.com")
    assert ([], {}) == (world.urls(), world.counts())
    assert not world.inspect().robots.unread
    assert world.frontier.verify().ok


def test_new_rules_that_arrive_before_the_old_ones_are_read_apply():
    world = World()
    world.frontier.set_robots("http://a.com", 200, LONG)
    world.discover("http://a.com/open", "http://a.com/closed")
    world.reopen()
    world.inspect().leases.lease(10, START)
    world.frontier.set_robots("http://a.com", 200, b"User-agent: *\nDisallow: /open")
    assert ["http://a.com/closed"] == world.urls()


def test_callers_in_threads_get_every_page_once_while_rules_are_read():
    world = World(delay=0)
    hosts = [f"http://h{n}.com" for n in range(12)]
    for number, host in enumerate(hosts):
        world.frontier.set_robots(host, 200, body_of(number, 40_000))
    world.discover(*[f"{host}/open" for host in hosts])
    world.reopen()
    got: list[list[str]] = [[] for _ in range(4)]

    def ask(mine: list[str]) -> None:
        while leases := world.frontier.lease(2):
            mine += leases.urls

    threads = [threading.Thread(target=ask, args=(mine,)) for mine in got]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(f"{host}/open" for host in hosts) == sorted(url for mine in got for url in mine)


def test_tasks_get_pages_whose_long_rules_are_read_outside_of_the_loop():
    world = World(robots="errands")
    frontier = AsyncFrontier(world.frontier)

    async def live() -> list[str]:
        await frontier.discover(["http://a.com/closed", "http://a.com/open", "http://b.com/open"])
        await frontier.set_robots("http://b.com", 200, LONG)
        errand = next(lease for lease in await frontier.lease(10, errands=True) if lease.kind is Kind.ROBOTS)
        await frontier.report([errand.robots(200, LONG + b"# a")])
        world.clock.move(10)
        world.inspect().tables.robots.rulebook.bytes_max = 0
        await frontier.set_robots("http://c.com", 200, LONG + b"# c")
        found = []
        for _ in range(3):
            found += [lease.url for lease in await frontier.lease(10)]
        return sorted(found)

    assert ["http://a.com/open"] == [url for url in asyncio.run(live()) if "a.com" in url]


@pytest.mark.parametrize("files", [0, 4_096])
def test_cold_hosts_store_or_name_their_rules_and_bring_them_back(monkeypatch, files):
    monkeypatch.setattr(Rulebook, "cold_files_max", files)
    hosts_go_cold(monkeypatch)
    world = World()
    hosts = [f"http://h{n}.com" for n in range(8)]
    for number, host in enumerate(hosts):
        world.frontier.set_robots(host, 200, body_of(number, 40_000))
    world.frontier.checkpoint()
    world.frontier.checkpoint()  # files that no host names leave with the next one
    tables = world.inspect().tables
    assert (8, 8 if files else 0) == (len(tables.cold), len(tables.robots.rulebook))
    world.discover(*[f"{host}/{path}" for host in hosts for path in ("closed", "open")])
    found: list[str] = []
    while leases := world.lease():
        found += leases.urls
    assert sorted(f"{host}/open" for host in hosts) == sorted(found)


def test_hosts_that_become_cold_write_no_more_rules_to_disk_at_once_than_may_be_in_memory(monkeypatch):
    monkeypatch.setattr(Rulebook, "cold_files_max", 0)
    hosts_go_cold(monkeypatch)
    world = World()
    world.inspect().tables.robots.rulebook.bytes_max = 100_000
    for number in range(8):
        world.frontier.set_robots(f"http://h{number}.com", 200, body_of(number, 40_000))
    left = []
    for _ in range(8):
        world.frontier.checkpoint()
        left.append(8 - len(world.inspect().tables.cold))
    assert left[0] >= 5
    assert left[-1] == 0


def test_rules_on_disk_are_in_every_checkpoint_and_after_every_end():
    world = World(memory_bytes=1)
    world.inspect().tables.robots.rulebook.bytes_max = 10_000
    for number in range(30):
        world.frontier.set_robots(f"http://h{number}.com", 200, body_of(number, 6_000))
    world.frontier.checkpoint()
    world.kill()
    tables = world.inspect().tables
    found = {one.name: tables.robots.rulebook.body(one.digest) for one in tables.robots.listed}
    assert {f"http://h{number}.com": body_of(number, 6_000) for number in range(30)} == found


# -- each file once, on the disk too


def robots_bytes_of(world: World, body: bytes) -> int:
    """Returns how often the checkpoint and the records of cold hosts contain a body, which is stored uncompressed."""
    files = world.disk.contents()
    return sum(data.count(body[:200]) for name, data in files.items() if name.endswith((".ckpt", ".run")))


def given(world: World, hosts: range, bodies: list[bytes]) -> None:
    for number in hosts:
        world.frontier.set_robots(f"http://h{number}.com", 200, bodies[number % len(bodies)])


def plain_body(seed: int, size: int = 3_000) -> bytes:
    """Like `body_of`, but with bytes that zstd leaves unchanged."""
    return b"User-agent: *\nDisallow: /closed\n#" + random.Random(seed).randbytes(size).replace(b"\n", b"-") + b"\n"


def store_bytes(world: World) -> int:
    """Returns the bytes of the newest checkpoint and the runs."""
    return sum(len(data) for name, data in world.disk.contents().items() if name.endswith((".ckpt", ".run")))


@pytest.mark.parametrize("cold", [False, True])
def test_a_file_is_on_the_disk_once_however_many_authorities_have_it(monkeypatch, cold):
    if cold:
        hosts_go_cold(monkeypatch)
        monkeypatch.setattr("outrider.frontier.schedule.cooling.COLD_STEP_ROWS", 4_000)
    world = World()
    bodies = [plain_body(seed) for seed in range(5)]
    given(world, range(5), bodies)
    world.frontier.checkpoint()
    few = store_bytes(world)
    given(world, range(5, 1_005), bodies)
    world.frontier.checkpoint()
    assert (1_005 if cold else 0) == len(world.inspect().tables.cold)
    assert store_bytes(world) - few < 1_000 * 200
    world.kill()
    looks = {name: world.inspect().tables.robots.rulebook.body(digest) for name, digest in named(world).items()}
    assert {f"http://h{number}.com": bodies[number % 5] for number in range(1_005)} == looks
    assert [] == recount(world.frontier)


def named(world: World) -> dict[str, int]:
    """Returns the digest of each authority. Recalls all hosts."""
    world.inspect().tables.recall_all()
    return {one.name: one.digest for one in world.inspect().tables.robots.listed}


def test_a_file_that_no_authority_names_leaves_the_disk_with_the_checkpoints(monkeypatch):
    world = World()
    old, new = plain_body(1), plain_body(2)
    given(world, range(4), [old])
    world.frontier.checkpoint()
    assert robots_bytes_of(world, old) > 0
    given(world, range(4), [new])
    world.frontier.checkpoint()
    assert (0, True) == (robots_bytes_of(world, old), robots_bytes_of(world, new) > 0)
    world.kill()
    assert ({new}, []) == (
        {world.inspect().tables.robots.rulebook.body(digest) for digest in named(world).values()},
        recount(world.frontier),
    )


def test_the_robots_txt_of_authorities_whose_file_is_lost_is_requested_again():
    world = World(robots="errands")
    world.discover("http://a.com/open", "http://b.com/open", "http://c.com/open")
    bodies = {"http://a.com": b"User-agent: *\nDisallow: /x", "http://b.com": b"User-agent: *\nDisallow: /x"}
    for errand in world.lease(errands=True):
        world.report(outcome(errand, seconds=0.0, robots=errand.robots(200, bodies.get(errand.authority, b"")).robots))
    world.frontier.checkpoint()
    manifest, files = Manifest.load(world.disk), world.disk
    checkpoint = newest_checkpoint(files, store=manifest.store_bytes)
    ranges = [(section, payload) for _, section, _, _, payload in checkpoint.ranges()]
    ledger = Ledger.open(files, store=manifest.store_bytes, names=run_names(checkpoint))
    tables = Tables(ledger, fingerprint_key=manifest.fingerprint_key_bytes, scratch=None)
    salvage = Salvage(tables)
    assert {ROBOTS_FILES} <= {section for section, _ in ranges}
    assert {""} == {salvage.take_range(section, payload) for section, payload in ranges if section != ROBOTS_FILES}
    salvage.finish(epoch=1, rest_until=0, behind_checkpoint=True)
    states = {one.name: (one.state, one.digest) for one in tables.robots.listed}
    lost = (RobotsState.UNKNOWN, 0)
    assert {"http://a.com": lost, "http://b.com": lost, "http://c.com": (RobotsState.RULES, 0)} == states
    assert ({"robots_file": 2}, [], []) == (salvage.found.facts, tables.robots.problems(), tables.robots.settle())


def test_a_checkpoint_without_a_file_that_it_names_is_refused():
    world = World()
    given(world, range(3), [plain_body(1)])
    tables = world.inspect().tables
    tables.robots.rulebook._listed.clear()
    world.frontier.checkpoint()
    world.frontier.set_robots("http://h9.com", 404)
    with pytest.raises(DamagedStoreError, match="an authority names, is lost"):
        world.kill()


def test_files_and_names_agree_after_every_history(monkeypatch):
    """Authorities get files and lose them, alternating with checkpoints, kills, and hosts that become cold and
    return."""

    @given_(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=25), st.sampled_from([0, 2, 4_096]))
    def lived(history: list[tuple[int, int]], files: int) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(Rulebook, "cold_files_max", files)
            hosts_go_cold(patched)
            world = World()
            expected: dict[str, bytes] = {}
            for host, act in history:
                name, body = f"http://h{host}.com", b"User-agent: *\nDisallow: /%d" % act
                if host < 4:
                    world.frontier.set_robots(name, 200, body if act else b"")
                    expected[name] = body if act else b""
                elif act < 2:
                    world.frontier.checkpoint()
                else:
                    world.kill()
                assert [] == recount(world.frontier)
            bodies = world.inspect().tables.robots.rulebook
            assert expected == {one: bodies.body(digest) for one, digest in named(world).items()}
            assert [] == recount(world.frontier)

    lived()


def test_an_errands_answer_of_half_a_megabyte_keeps_what_the_limit_allows():
    world = World(robots="errands")
    world.discover("http://a.com/open")
    (errand,) = world.lease(errands=True)
    world.report(outcome(errand, seconds=0.0, robots=errand.robots(200, body_of(1, 2 * ROBOTS_BYTES_MAX)).robots))
    tables = world.inspect().tables
    (authority,) = tables.robots.listed
    assert ROBOTS_BYTES_MAX - 30 < tables.robots.rulebook.size(authority.digest) <= ROBOTS_BYTES_MAX
