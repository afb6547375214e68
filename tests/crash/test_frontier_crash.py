"""The frontier on disks that crash, fail and run full: answered calls are there, nothing else is believed."""

from __future__ import annotations

import contextlib
import errno
import os
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from crash.busy import Busy
from limiting import set_limits
from model.inside import inspect
from model.interleaving import Interleaving
from model.world import (
    START,
    Clock,
    World,
    everything,
    hosts_go_cold,
    outcome,
    recall_all,
    recount,
    rows,
    slots_stay_unread,
)
from outrider import Frontier, Link
from outrider.clock import instant
from outrider.errors import DamagedStoreError, OutriderError, StoreError, StoreFailedError, StoreFullError
from outrider.frontier.state.replay import Window
from outrider.frontier.state.tables import (
    AUTHORITIES,
    CALLED,
    COPY_ROWS,
    HOSTS,
    LEASES,
    OWN,
    PAYMENTS,
    QUEUES,
    RETURNS,
    ROBOTS_FILES,
    SIGNALS,
    TRANSIT,
)
from outrider.frontier.stores.tailed_backlog import TailedBacklog
from outrider.journey import Outcome, Verdict
from outrider.kernels import FRAME_HEADER_BYTES, scan_frames
from outrider.sim.disk import CrashDisk, FaultyFiles
from outrider.storage.log import SEGMENT_HEADER_BYTES, Log

FIRST_QUICKLY = [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 4))]
"""Seeds: of each kind of history one in the quick half."""
NO = b"User-agent: *\nDisallow: /no"


def short_history(world: World) -> None:
    """Every verb and every kind of fact, in a few frames."""
    world.discover(
        "http://a.com/", Link("http://a.com/no", priority=0.9), Link("http://b.com/", crawl="other", key="k"),
        Link("http://c.com/", not_before=START + instant(4), metadata={"x": "y"}), request_id=("me", 1),
    )  # fmt: skip
    world.frontier.set_robots("http://a.com", 200, NO)
    if world.addresses == "errands":
        whereabouts(world)
    leases = world.lease(worker="w", request_id=("me", 2))
    own = [lease for lease in leases if lease.host == "b.com"]
    rest = [lease for lease in leases if lease.host != "b.com"]
    world.frontier.report(
        [outcome(lease, seconds=0.1, status=200, digest=b"1" * 20, links=["http://d.com/", "http://a.com/2"],
                 line=b'{"n":1}', bytes_read=7) for lease in rest],
        watermark=("w", b"x"), request_id=("me", 3),
    )  # fmt: skip
    world.frontier.extend([lease.token for lease in own], 100)
    world.clock.move(5)
    more = world.lease(1)
    world.frontier.release(more.tokens)
    world.frontier.note_projection("pages", 10, 4)
    world.report(*[lease.retry(error="timeout", retry_after_seconds=9) for lease in own])
    world.clock.move(1)
    world.report(*[outcome(lease, location="http://e.com/", status=301) for lease in world.lease(1)])


def whereabouts(world: World) -> None:
    """Errands for addresses: answered, in vain, lost, and one that stays open; an address reported without an
    errand."""
    world.discover("http://f.com/", "http://g.com/")
    errands = {lease.host: lease for lease in world.lease(errands=True, worker="v", ttl_seconds=50)}
    assert {"a.com", "b.com", "f.com", "g.com"} == set(errands)
    world.report(errands["a.com"].located("192.0.2.1"), errands["b.com"].located("192.0.2.2", ttl_seconds=60))
    world.report(errands["f.com"].retry(error="dns_temporary"))
    world.frontier.extend([errands["g.com"].token], 3)
    world.frontier.set_addresses({"d.com": "192.0.2.1", "e.com": "192.0.2.9"})


def frames_of(disk: FaultyFiles) -> tuple[str, bytes, list[int]]:
    """The one segment of a short log: its name, its bytes, and where each frame ends."""
    (name,) = [name for name in disk.names() if name.startswith("log-")]
    data = disk.contents()[name]
    ends = []
    found, _, _ = scan_frames(data[SEGMENT_HEADER_BYTES:])
    for offset, length, *_ in found:
        # A frame that ends with zeros is whole before its last byte: what follows is zero anyway.
        ends.append(len(data[: SEGMENT_HEADER_BYTES + offset + length].rstrip(b"\0")))
    assert ends
    assert ends[0] > SEGMENT_HEADER_BYTES + FRAME_HEADER_BYTES
    return name, data, ends


def opened(disk: FaultyFiles, clock: Clock, **how) -> Frontier:
    return Frontier.open(disk, clock=clock, **{"robots": "caller", **how})


# -- the log cut at every byte


@pytest.fixture
def small_segments(monkeypatch):
    """Segments of 16 KiB: a thousand disks are made quickly."""
    for name in ("segment_bytes_first", "segment_bytes_max"):
        monkeypatch.setitem(Log.open.__func__.__kwdefaults__, name, 16_384)


@pytest.mark.parametrize("step", [29, pytest.param(1, marks=pytest.mark.long)])
def test_a_log_cut_at_any_byte_is_the_state_after_its_last_whole_frame(small_segments, step):
    """Zeros after the cut, as after a power cut in the middle of a write; the mirror has no entry."""
    world = World(output=True, group="address", addresses="errands")
    short_history(world)
    disk = world.disk.copy()
    with contextlib.suppress(KeyError):
        disk.drop("log.synced")
    name, data, ends = frames_of(disk)
    states: dict[int, list[object]] = {}
    seen = 0
    for cut in range(SEGMENT_HEADER_BYTES, ends[-1] + 1):
        if cut % step and not {cut - 1, cut, cut + 1}.intersection(ends):
            continue
        whole = sum(end <= cut for end in ends)
        image = disk.copy()
        image.put(name, data[:cut] + bytes(len(data) - cut))
        looker = Frontier.look(image)
        state = everything(looker)
        assert [] == recount(looker)
        looker.close()
        assert states.setdefault(whole, state) == state, f"cut at byte {cut}"
        seen = max(seen, whole)
    assert (len(ends), len(ends) + 1) == (seen, len(states))
    assert everything(world.frontier) == states[len(ends)]


def test_a_log_cut_at_any_byte_continues_from_there(small_segments):
    """Opened for work at some cuts of every frame: URLs of whole frames are known, the rest are new."""
    world = World()
    for n in range(6):
        world.discover(f"http://h{n}.com/")
    disk = world.disk.copy()
    disk.drop("log.synced")
    name, data, ends = frames_of(disk)
    for cut in sorted({e + d for e in [SEGMENT_HEADER_BYTES, *ends] for d in (-9, -1, 0, 1, 7, 20)}):
        if not SEGMENT_HEADER_BYTES <= cut <= ends[-1]:
            continue
        image = disk.copy()
        image.put(name, data[:cut] + bytes(len(data) - cut))
        frontier = opened(image, world.clock)
        urls = max(0, sum(end <= cut for end in ends) - 1)  # the first frame is the opening
        expected = ["known"] * urls + ["new"] * (6 - urls)
        assert expected == [str(code) for code in frontier.discover([f"http://h{n}.com/" for n in range(6)])]
        assert 6 == len(frontier.lease(10))
        frontier.close()


def test_a_flipped_bit_in_what_was_synced_is_refused_and_nothing_is_touched():
    world = World()
    short_history(world)
    name, data, ends = frames_of(world.disk)
    rng = random.Random(5)
    for _ in range(60):
        image = world.disk.copy()
        at = rng.randrange(SEGMENT_HEADER_BYTES, ends[-1])
        broken = bytearray(data)
        broken[at] ^= 1 << rng.randrange(8)
        image.put(name, bytes(broken))
        before = image.contents()
        with pytest.raises(StoreError, match=name):
            opened(image, world.clock)
        assert before == {key: value for key, value in image.contents().items() if key in before}


# -- power cuts


def rest_until(frontier: Frontier, host: str) -> int:
    tables = inspect(frontier).tables
    return int(tables.hosts.rest_until[tables.host_row(host)])


class Ledger:
    """The answers that a caller got, to be compared with the store after a crash."""

    def __init__(self) -> None:
        self.urls: set[str] = set()
        self.done: dict[str, int] = {}
        self.tokens: list[int] = [0]
        self.rest: dict[str, int] = {}

    def holds(self, frontier: Frontier, clock: Clock) -> None:
        assert [] == recount(frontier)
        missing = [url for url in self.urls if frontier.status(url).state == "unknown"]
        assert [] == missing, "P1: it was answered"
        for url, status in self.done.items():
            found = frontier.status(url)
            assert ("done", status) == (found.state, found.status), url
        for host, until in self.rest.items():
            if until > clock():
                assert rest_until(frontier, host) >= until, f"P4: {host} would be visited too early"


def traffic(world: World, ledger: Ledger, rng: random.Random, turn: int) -> None:
    urls = [f"http://h{rng.randrange(8)}.com/{turn}-{n}" for n in range(rng.randrange(1, 6))]
    world.discover(*urls)
    ledger.urls.update(urls)
    rest = dict(ledger.rest)  # within a train the holder keeps the gap after the end of the one before
    for lease in world.lease(rng.randrange(1, 6), per_queue=rng.choice([1, 1, 2])):
        assert lease.token > ledger.tokens[-1], "P3: tokens grow"
        ledger.tokens.append(lease.token)
        assert lease.not_before >= rest.get(lease.host, 0), "P4"
        if rng.random() < 0.7:
            links = [f"http://h{rng.randrange(8)}.com/{turn}-x{n}" for n in range(2)]
            if world.report(lease.done(seconds=rng.choice([0.0, 0.4]), links=links)) == ["ok"]:
                ledger.done[lease.url] = 200
                ledger.urls.update(links)
                ledger.rest[lease.host] = rest_until(world.frontier, lease.host)
    world.clock.move(rng.choice([0, 0.3, 1.0, 2.0]))


@pytest.mark.parametrize("seed", FIRST_QUICKLY)
def test_after_any_power_cut_what_was_answered_is_there(seed):
    """Two or more images of the disk after every few calls; each opens, and has all answered calls."""
    rng = random.Random(seed)
    world, ledger = World(), Ledger()
    opened_images = 0
    turns = 14 if seed == FIRST_QUICKLY[0] else 25  # each image holds all that came before it: twice is four times
    for turn in range(turns):
        traffic(world, ledger, rng, turn)
        for image in world.disk.crash_images(rng, 1):
            frontier = opened(image, world.clock)
            ledger.holds(frontier, world.clock)
            frontier.close()
            opened_images += 1
    assert opened_images > turns


def test_a_power_cut_in_the_middle_of_a_call_leaves_it_whole_or_out():
    """The disk as it may be at each of its calls while a report with links is under way."""
    rng = random.Random(1)
    base = World()
    base.discover("http://a.com/", "http://b.com/")
    links = [f"http://l{n}.com/" for n in range(5)]
    token = base.one(worker="w").token
    cut = 0
    while True:
        cut += 1
        disk = CrashDisk()
        for name, data in base.disk.contents().items():
            disk.put(name, data)
        world = World(disk=disk, clock=Clock(base.clock.at))
        assert [token] == np.frombuffer(world.inspect().tables.urls.leases.tokens(), np.uint64).tolist()
        disk.fail(cut, errno.EIO, forever=True)
        failed = False
        try:
            world.report(Outcome(token, Verdict.DONE, seconds=0.0, links=links))
        except StoreFailedError:
            failed = True
        for image in disk.crash_images(rng, 3):
            frontier = opened(image, world.clock)
            states = {frontier.status(url).state for url in links}
            assert len(states) == 1, "the links are one with their outcome"
            done = {frontier.status(url).state for url in ("http://a.com/", "http://b.com/")}
            assert ("done" in done) == (states == {"queued"})
            if not failed:
                assert {"queued"} == states, "it was answered"
            frontier.close()
        if not failed:
            break
    assert cut > 1


# -- calls that fail


def verbs(world: World) -> dict[str, Callable[[], object]]:
    lease = world.lease(1)[0]
    return {
        "discover": lambda: world.discover("http://x.com/", "http://y.com/"),
        "lease": lambda: world.lease(2),
        "report": lambda: world.report(lease.done(links=["http://z.com/"])),
        "extend": lambda: world.frontier.extend([lease.token], 90),
        "release": lambda: world.frontier.release([lease.token]),
        "pause": lambda: world.frontier.pause("a.com"),
        "delete": lambda: world.frontier.delete("b.com"),
        "set_robots": lambda: world.frontier.set_robots("http://a.com", 200, NO),
        "note_watermark": lambda: world.frontier.note_watermark("w", b"x"),
        "checkpoint": world.frontier.checkpoint,
        "close": world.frontier.close,
    }


def base_world() -> World:
    world = World()
    world.discover("http://a.com/", "http://a.com/no", "http://b.com/", "http://c.com/")
    return world


@pytest.mark.parametrize("verb", list(verbs(base_world())))
@pytest.mark.parametrize(
    ("error", "partial"), [(errno.EIO, False), (errno.EIO, True), (errno.ENOSPC, False)], ids=["EIO", "torn", "ENOSPC"]
)
def test_the_nth_call_of_the_disk_fails_and_nothing_is_answered_wrongly(verb, error, partial):
    """For every n until the verb gets through: an error or a durable answer, and the store opens with all promised."""
    for nth in range(1, 40):
        world = base_world()
        call = verbs(world)[verb]
        urls = ["http://a.com/", "http://a.com/no", "http://b.com/", "http://c.com/"]
        calls = len(world.disk.calls)
        world.disk.fail(nth, error, partial=partial)
        answered = None
        try:
            answered = call()
            refused = False
        except OutriderError as caught:
            refused = True
            assert error == errno.ENOSPC or not isinstance(caught, StoreFullError)  # noqa: PT017
        used = len(world.disk.calls) - calls
        world.disk.mend()
        before = None
        if world.frontier._failure.error is None and verb != "close":
            assert [] == recount(world.frontier), "it goes on"
            before = rows(world.frontier)
        for image in world.disk.crash_images(random.Random(nth), 1):
            frontier = opened(image, world.clock)
            assert [] == recount(frontier)
            unknown = {url for url in urls if frontier.status(url).state == "unknown"}
            assert unknown <= ({"http://b.com/"} if verb == "delete" else set())
            if verb == "delete" and not refused:
                assert unknown
            if verb == "pause" and not refused:
                assert ["a.com"] == [queue.key for queue in frontier.queues() if queue.paused]
            if verb == "discover" and not refused:
                assert ["new", "new"] == answered
                assert "queued" == frontier.status("http://x.com/").state == frontier.status("http://y.com/").state
            if verb == "report" and not refused:
                assert ("done", "queued") == (
                    next(frontier.status(url).state for url in urls if frontier.status(url).state == "done"),
                    frontier.status("http://z.com/").state,
                )
            frontier.close()
        if before is not None and not refused:
            image = world.disk.copy()
            frontier = opened(image, world.clock)
            assert len(before) == len(rows(frontier))
            frontier.close()
        if used < nth:
            return
    raise AssertionError("the verb never got through")


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_opening_survives_a_failure_of_any_call(error):
    """An opening that fails can be repeated, and leaves the store as it was."""
    base = base_world()
    state = rows(base.frontier)
    for nth in range(1, 60):
        disk = base.disk.copy()
        disk.fail(nth, error)
        try:
            frontier = opened(disk, base.clock)
            frontier.close()
        except StoreError:
            pass
        disk.mend()
        reached = not disk._failures and len(disk.calls) >= nth
        frontier = opened(disk, base.clock)
        assert [] == recount(frontier)
        assert len(state) == len(rows(frontier))
        assert 4 == frontier.statistics()["accepted"]
        frontier.close()
        if not reached:
            return
    raise AssertionError("opening never got through")


def test_making_a_store_survives_a_power_cut_at_any_call():
    rng = random.Random(2)
    for nth in range(1, 60):
        disk = CrashDisk()
        disk.fail(nth, errno.EIO, forever=True)
        failed = False
        try:
            World(disk=disk)
        except StoreError:
            failed = True
        for image in disk.crash_images(rng, 1):
            frontier = opened(image, Clock())
            assert ["new"] == [str(code) for code in frontier.discover(["http://a.com/"])]
            frontier.close()
        if not failed:
            return
    raise AssertionError("making the store never got through")


# -- checkpoints under traffic


@pytest.fixture
def small_threshold(monkeypatch):
    """Rounds all the time, of a few rows per range, in a log of small segments; and runs of the ledger between them."""
    set_limits(monkeypatch, MEMTABLE_BYTES_MAX_LEAST=4_000, MEMTABLE_SHARE=1 << 40, LOG_BYTES_BEFORE_CHECKPOINT=16_000)
    slots_stay_unread(monkeypatch)
    monkeypatch.setattr(
        "outrider.engine.rounds.COPY_ROWS",
        {
            OWN: 1,
            HOSTS: 3,
            QUEUES: 3,
            LEASES: 1,
            AUTHORITIES: 2,
            TRANSIT: 1,
            CALLED: 2,
            RETURNS: 2,
            ROBOTS_FILES: 8,
            SIGNALS: 1,
            PAYMENTS: 1,
        },
    )
    set_limits(monkeypatch, CHECKPOINT_STEP_BYTES=1, CHECKPOINT_RANGE_BYTES_MAX=1)


@pytest.mark.parametrize("seed", FIRST_QUICKLY)
def test_checkpoints_under_traffic_and_power_cuts_keep_what_was_answered(small_threshold, seed):
    rng = random.Random(seed)
    world, ledger = World(delay=0.2, threads=Interleaving(seed)), Ledger()
    rounds, best = 0, 0
    for turn in range(250):
        traffic(world, ledger, rng, turn)
        number = world.frontier.statistics()["checkpoint"]["number"]
        rounds, best = rounds + (number > best), max(number, best)
        if rng.random() < 0.03:
            image = rng.choice(list(world.disk.crash_images(rng, 2)))
            world.disk = image
            world.frontier = world._open()
            ledger.holds(world.frontier, world.clock)
    assert rounds >= 3, "rounds were finished on the way"


def test_a_checkpoint_equals_the_log_it_replaces(small_threshold):
    rng = random.Random(11)
    world, ledger = World(delay=0.2), Ledger()
    for turn in range(200):
        traffic(world, ledger, rng, turn)
    assert world.frontier.statistics()["checkpoint"]["number"] >= 1
    world.frontier.close()
    looker = Frontier.look(world.disk)
    state = rows(looker)
    looker.close()
    whole = world._open()
    whole.checkpoint()
    whole.close()
    looker = Frontier.look(world.disk)
    assert {repr(part)[:9] for part in state} == {repr(part)[:9] for part in rows(looker)}
    assert state == rows(looker)
    looker.close()


@pytest.fixture(params=["in memory", "on disk", "on disk with URLs"])
def where_hosts_are(request, monkeypatch):
    """Whether hosts without URLs are moved to disk with each round, and whether ready hosts with few URLs are, too."""
    if request.param != "in memory":
        hosts_go_cold(monkeypatch, with_urls=request.param == "on disk with URLs")
    return request.param


def visit_once(world: World, turn: int) -> None:
    """One of twenty hosts that have a URL now and then, and nothing in between."""
    host = f"seldom{turn % 20}.com"
    if world.robots == "errands":
        world.frontier.set_robots(f"http://{host}", 404)
    world.discover(f"http://{host}/{turn // 20}")
    world.report(*[outcome(lease, seconds=0.0, status=200) for lease in world.lease(1, key=host)])


def test_ranges_copied_at_different_instants_are_brought_together_by_the_log(small_threshold, where_hosts_are):
    """A fuzzy round is cut off by a kill at each of its steps, and after it: the rows are always the same."""
    rng = random.Random(4)
    world, ledger = World(delay=0.2, threads=Interleaving(4)), Ledger()
    kinds, cold = set(), 0
    for turn in range(160):
        traffic(world, ledger, rng, turn)
        kinds.add(
            (world.frontier._rounds.under_way is not None, world.frontier.statistics()["checkpoint"]["number"] > 0)
        )
        visit_once(world, turn)
        cold += recall_all(world.frontier) if turn % 3 == 0 else 0
        if turn % 3:
            continue
        live = rows(world.frontier)
        looker = Frontier.look(world.disk.copy())
        assert live == rows(looker), f"turn {turn}"
        looker.close()
    assert {(True, False), (False, True), (True, True)} <= kinds, "before, during and after a round"
    assert (where_hosts_are != "in memory") == (cold > 0)


@pytest.mark.parametrize("anew", [False, True])
def test_a_queue_deleted_before_a_round_copied_it_was_there_when_its_urls_were(small_threshold, anew):
    """The checkpoint says that the queue is void; the log after it says that its URLs arrived, moved and were
    leased."""
    world = World(delay=0, delay_factor=0)
    world.discover(*[f"http://h{n}.com/" for n in range(60)])
    world.frontier.set_robots("http://h59.com", 404)
    world.frontier._rounds.join()  # no round begins during a merge
    world.frontier._rounds.begin(world.clock())
    urls = [f"http://h59.com/{name}" for name in ("parked", "waits", "leased", "queued")]
    world.discover(*urls)
    world.frontier.set_robots("http://h59.com", 200, b"User-agent: *\nDisallow: /parked")
    for _ in range(2):
        world.frontier.defer(world.lease(1, key="h59.com").tokens, world.clock() + instant(9))
    open_one = world.one(key="h59.com")
    assert "parked" == world.state(urls[0])
    world.frontier.delete("h59.com")
    if anew:
        world.discover(*urls)
    while world.frontier._rounds.under_way is not None:
        world.discover("http://h0.com/")
    world.frontier._rounds.join()
    world.discover("http://h0.com/")
    assert 1 == world.frontier.statistics()["checkpoint"]["number"]
    live = rows(world.frontier)
    looker = Frontier.look(world.disk.copy())
    assert (live, []) == (rows(looker), recount(looker))
    looker.close()
    world.kill()
    world.report(open_one.done())


@pytest.fixture
def small_heads(monkeypatch):
    """Queues and calendars that spill at once, runs and merges of a few records."""
    for name in ("head_cards_max", "chunk_cards"):
        monkeypatch.setitem(TailedBacklog.__init__.__kwdefaults__, name, 2)
    set_limits(monkeypatch, CALENDAR_COMING_CARDS_MAX=2, MEMTABLE_CHUNK_ROWS=8, RUN_ROWS_SMALL=16)


def found_again(image: CrashDisk, monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> Frontier:
    """The store of an image, read in one of several ways: frame by frame, or in windows of any size."""
    how = rng.choice(["as ever", "frame by frame", "small windows"])
    with monkeypatch.context() as patch:
        if how == "frame by frame":
            patch.setattr(Window, "_scan", lambda window, payload: None)
        elif how == "small windows":
            patch.setitem(Window.__init__.__kwdefaults__, "rows_max", rng.randrange(1, 60))
        return Frontier.look(image)


def live_any_history(
    seed: str, robots: str, monkeypatch: pytest.MonkeyPatch, *, turns: int = 150, looks: float = 0.1, odd: bool = False,
    full: bool = False, **settings: Any,
) -> tuple[int, ...]:  # fmt: skip
    """Makes images of the disk after some calls and steps of the background threads: all have the state of the process.
    The seed decides everything. full: sometimes there is no room. Returns how many tails, runs and checkpoints there
    were, and how many hosts were cold."""
    rng = random.Random(seed)
    # Random keys make packed frames of other lengths each time, and so rounds begin at other calls.
    keys = random.Random(f"keys {seed}").randbytes(16), random.Random(f"more keys {seed}").randbytes(16)
    world = World(robots=robots, delay=0.2, output=True, threads=Interleaving(seed), keys=keys, **settings)
    busy = Busy(world, rng, odd=odd)
    tails, runs, rounds, cold, newest = 0, 0, 0, 0, 0
    for turn in range(turns):
        refused = False
        if full and rng.random() < 0.1:
            verb, partial = rng.choice(["write", "open", "truncate"]), rng.random() < 0.5
            world.disk.fail(rng.randrange(1, 20), errno.ENOSPC, verb=verb, partial=partial)
        try:
            busy.call()
            visit_once(world, turn)
        except (StoreFullError, StoreFailedError) as error:
            if not full:
                raise
            refused = True
            if isinstance(error, StoreFailedError):  # no room for bytes that had theirs already: that stops a store
                world.disk = rng.choice(list(world.disk.crash_images(rng, 2)))
                world.frontier = world._open()
        number, newest = newest, world.frontier.statistics()["checkpoint"]["number"]
        if rng.random() > looks and number == newest:
            continue
        problems = recount(world.frontier)
        cold += recall_all(world.frontier)
        live = everything(world.frontier)
        assert [] == problems, f"seed {seed}, turn {turn}"
        tails = max(tails, sum(name.endswith(".tail") for name in world.disk.names()))
        runs = max(runs, sum(name.endswith(".run") for name in world.disk.names()))
        rounds = max(rounds, newest)
        # A call without room was not answered: a power cut may undo its earlier writes, such as ended leases.
        lost = [] if refused else rng.sample(list(world.disk.crash_images(rng, 1)), 2)
        images = [world.disk.copy(), *lost]
        while not refused and rng.random() < 0.5 and world.threads.go_to_the_disk(world.disk):
            images.append(rng.choice(list(world.disk.crash_images(rng, 1))))
        for image in images:
            looker = found_again(image, monkeypatch, rng)
            assert (live, []) == (everything(looker), recount(looker)), f"seed {seed}, turn {turn}"
            looker.close()
        if rng.random() < 0.05:
            world.disk = rng.choice(list(world.disk.crash_images(rng, 2)))
            world.frontier = world._open()
    world.disk.mend()
    world.frontier.close()
    return tails, runs, rounds, cold


@pytest.mark.parametrize("robots", [pytest.param("caller", marks=pytest.mark.long), "errands"])
def test_any_history_of_any_verbs_is_found_again_after_a_power_cut(
    small_threshold, small_heads, small_segments, where_hosts_are, monkeypatch, robots
):
    """Checkpoints, runs and tails all the time: an image of the disk has the state of the process. A further history
    follows one in which no host became cold, or little was written."""
    for number in range(4):
        tails, runs, rounds, cold = live_any_history(f"{robots} {number}", robots, monkeypatch)
        if min(tails, runs, rounds) >= 2 and (where_hosts_are != "in memory") == (cold > 0):
            break
    assert min(tails, runs, rounds) >= 2
    assert (where_hosts_are != "in memory") == (cold > 0)


ODD_SETTINGS: list[dict[str, Any]] = [
    {},
    {"max_pages_per_host": 6},
    {"max_urls": 60, "when_full": "drop_lowest"},
    {"addresses": "errands", "group": {"address": {"gap": 1.0}}},
    {"group": "domain"},
    {"revisit": "optimal", "rate": 5.0},
]


def test_links_between_two_frontiers_are_found_again_while_rounds_copy_what_was_sent(small_threshold, monkeypatch):
    """Parcels are sent, received and acknowledged between the beginning of a round and the copy of its outbox."""
    set_limits(monkeypatch, LOG_BYTES_BEFORE_CHECKPOINT=3_000)
    rng, clock, keys = random.Random(7), Clock(), (b"f" * 16, b"s" * 16)
    halves = frozenset(range(2_048)), frozenset(range(2_048, 4_096))
    disks = [CrashDisk(), CrashDisk()]
    frontiers = []
    for disk, half in zip(disks, halves, strict=True):
        frontiers.append(Frontier.open(disk, clock=clock, slots=half, keys=keys, robots="caller"))
        Interleaving(f"half {len(frontiers)}").take(frontiers[-1], disk)
    newest = [0, 0]
    for turn in range(120):
        number = turn % 2
        mine, other = frontiers[number], frontiers[1 - number]
        mine.discover([f"http://h{rng.randrange(60)}.com/{turn}-{n}" for n in range(3)])
        sent = mine.outbox(rng.choice([1, 3, 100])) if rng.random() < 0.5 else []
        if sent:
            other.receive(sent)
            source, sequence, *_ = rng.choice(sent)
            if rng.random() < 0.7:
                mine.delivered({int(str(source)): int(str(sequence))})
        mine.report([lease.done(seconds=0.0) for lease in mine.lease(2)])
        clock.move(rng.choice([0, 1]))
        before, newest[number] = newest[number], int(mine.statistics()["checkpoint"]["number"])
        if before != newest[number] or rng.random() < 0.03:
            looker = found_again(disks[number].copy(), monkeypatch, rng)
            assert (everything(mine), []) == (everything(looker), recount(looker)), f"turn {turn}"
            looker.close()
    assert min(newest) >= 2


@pytest.mark.long
@pytest.mark.timeout(7_200)
def test_any_history_is_found_again_for_long(
    small_threshold, small_heads, small_segments, where_hosts_are, monkeypatch
):
    """Seeds of its own: rounds that are short or never end, ranges of one row, much that is deleted, many URLs."""
    first = random.SystemRandom().randrange(1 << 40)
    for number in range(first, first + int(os.environ.get("OUTRIDER_CRASH_EXAMPLES", "60"))):
        rng = random.Random(number)
        robots = rng.choice(["caller", "errands"])
        with monkeypatch.context() as patch:
            set_limits(
                patch,
                LOG_BYTES_BEFORE_CHECKPOINT=rng.choice([1, 3_000, 20_000]),
                CHECKPOINT_RANGE_BYTES_MAX=rng.choice([1, 700]),
            )
            if rng.random() < 0.5:
                patch.setattr("outrider.engine.rounds.COPY_ROWS", dict.fromkeys(COPY_ROWS, 1))
            if rng.random() < 0.5:
                patch.setattr("crash.busy.PATHS", 600)
            patch.setattr("crash.busy.DELETES", rng.choice([0.6, 2, 4]))
            turns, looks = rng.choice([60, 150, 400]), rng.choice([0.0, 0.03, 0.1])
            settings = rng.choice(ODD_SETTINGS)
            try:
                live_any_history(
                    f"{robots} {number}", robots, patch, turns=turns, looks=looks, odd=True, full=rng.random() < 0.3,
                    **settings,
                )  # fmt: skip
            except BaseException as error:
                error.add_note(f"history {number}")
                raise


def merging_world(seed: int) -> World:
    """Three runs of one size and a fourth in memory, long queues on disk, a deleted queue, rules, open leases."""
    world = World(delay=0.2, seed=seed)
    rng = random.Random(seed)
    busy = Busy(world, rng)
    for _ in range(3):
        for _ in range(25):
            busy.call()
        world.frontier.checkpoint()
    for _ in range(25):
        busy.call()
    return world


def cuts(*, every: int) -> pytest.MarkDecorator:
    """The first call of the disk to fail, the step to the next one, and whether a part of it is written. `every`: the
    step of the quick tests; the long ones fail each call."""
    return pytest.mark.parametrize(
        ("first", "step", "partial"),
        [
            pytest.param(1, every, False, id="cut"),
            pytest.param(1 + every // 2, every, True, id="torn"),
            pytest.param(1, 1, False, id="cut at each", marks=pytest.mark.long),
            pytest.param(1, 1, True, id="torn at each", marks=pytest.mark.long),
        ],
    )


@cuts(every=2)
def test_a_power_cut_at_any_call_of_a_round_keeps_the_old_checkpoint_or_the_new_one(
    small_heads, small_segments, first, step, partial
):
    """Ranges, the ledger's run, the merge of four into one, the names, the deleted files: cut off at each step."""
    rng = random.Random(3)
    base = merging_world(5)
    assert 3 == sum(name.endswith(".run") for name in base.disk.names())
    numbers = set()
    for nth in range(first, 200, step):
        disk = CrashDisk()
        for name, data in base.disk.contents().items():
            disk.put(name, data)
        world = World(disk=disk, clock=Clock(base.clock()), delay=0.2)
        live = rows(world.frontier)
        world.disk.fail(nth, errno.EIO, forever=True, partial=partial)
        failed, before = False, len(world.disk.calls)
        try:
            world.frontier.checkpoint()
        except StoreFailedError:
            failed = True
        met = len(world.disk.calls) - before >= nth
        world.disk.mend()
        for image in rng.sample(list(world.disk.crash_images(rng, 2)), 2):
            looker = Frontier.look(image)
            assert ([], live) == (recount(looker), rows(looker)), f"call {nth}"
            looker.close()
            again = World(disk=image, clock=world.clock, delay=0.2)
            numbers.add(again.frontier.statistics()["checkpoint"]["number"])
            listed = set(inspect(again.frontier).tables.urls.ledger._tiers.names())
            assert listed == {name for name in image.names() if name.endswith(".run")}, "nothing is left over"
            again.frontier.close()
        if not failed:
            world.frontier.checkpoint()  # the checkpoint removes the files whose removal failed
            assert (1, 1) == tuple(sum(name.endswith(end) for name in world.disk.names()) for end in (".run", ".ckpt"))
        if not met:
            assert {3, 4} == numbers
            return
    raise AssertionError("the round never got through")


@cuts(every=6)
def test_a_power_cut_while_new_records_become_runs_during_a_checkpoint_loses_nothing(monkeypatch, first, step, partial):
    """The checkpoint is held open until several runs are younger than it, and ends. The images are those of a kill and
    of a power loss at a call of the disk. Each has all answered URLs and outcomes, and its counts are true."""
    set_limits(monkeypatch, MEMTABLE_BYTES_MAX_LEAST=8_000, MEMTABLE_SHARE=1 << 40, RUN_ROWS_SMALL=16)
    for name in ("segment_bytes_first", "segment_bytes_max"):  # the log has several segments since the beginning
        monkeypatch.setitem(Log.open.__func__.__kwdefaults__, name, 2_048)
    rng = random.Random(6)
    base = World(delay=0, delay_factor=0)
    base.discover(*[f"http://h{n % 9}.com/{n}" for n in range(40)])
    base.frontier.checkpoint()
    numbers, younger = set(), 0
    for nth in range(first, 400, step):
        disk = CrashDisk()
        for name, data in base.disk.contents().items():
            disk.put(name, data)
        world = World(disk=disk, clock=Clock(base.clock()), delay=0, delay_factor=0)
        rounds, answered, failed = world.frontier._rounds, 40, False
        done: list[str] = []
        before = len(disk.calls)
        disk.fail(nth, errno.EIO, forever=True, partial=partial)
        try:
            with monkeypatch.context() as patch:
                set_limits(patch, CHECKPOINT_WAITING_BYTES_MAX=0)
                with world.frontier._lock:
                    rounds.begin(world.clock())
                while answered < 200:
                    world.discover(*[f"http://h{n % 9}.com/{n}" for n in range(answered, answered + 20)])
                    answered += 20
                    leases = world.lease(3)
                    world.report(*[lease.done(seconds=0) for lease in leases])
                    done += [lease.url for lease in leases]
                    if rounds._spilling is not None:
                        rounds._spilling.join()
                younger = max(younger, sum(name.endswith(".run") for name in disk.names()))
            while rounds.number < 2:
                world.frontier.lease(0)
                rounds.join()
            world.frontier.checkpoint()
        except StoreFailedError:
            failed = True
        rounds.join()
        met = len(disk.calls) - before >= nth
        disk.mend()
        for image in [disk.copy(), *rng.sample(list(disk.crash_images(rng, 2)), 2)]:
            again = World(disk=image, clock=world.clock, delay=0, delay_factor=0)
            numbers.add(again.frontier.statistics()["checkpoint"]["number"])
            states = {again.state(f"http://h{n % 9}.com/{n}") for n in range(answered)}
            assert states <= {"queued", "leased", "done"}, f"call {nth}"
            assert ([], {"done"}) == (recount(again.frontier), {"done", *again.states(done)}), f"call {nth}"
            listed = set(inspect(again.frontier).tables.urls.ledger.names())
            assert listed == {name for name in image.names() if name.endswith(".run")}, "nothing is left over"
            again.frontier.close()
        if not met:
            assert (False, {1, 2, 3}) == (failed, numbers)
            assert younger > 4, "runs were written while it was held open"
            return
    raise AssertionError("the round never got through")


def test_tails_of_a_dead_process_may_contain_anything(small_heads):
    rng = random.Random(9)
    world = World(delay=0, delay_factor=0)
    world.discover(*[f"http://a.com/{n}" for n in range(60)])
    world.discover(*[Link(f"http://b.com/{n}", not_before=START + instant(50 + n)) for n in range(60)])
    live = rows(world.frontier)
    tails = [name for name in world.disk.names() if name.endswith(".tail")]
    assert {"backlog", "calendar"} <= {name.split("-")[0] for name in tails}
    for fate in ("gone", "empty", "cut", "garbage", "another's"):
        image = world.disk.copy()
        for name in tails:
            data = image.contents()[name]
            other = world.disk.contents()[rng.choice(tails)]
            if fate == "gone":
                image.drop(name)
            else:
                kept = {"empty": b"", "cut": data[: len(data) // 2], "garbage": rng.randbytes(len(data))}
                image.put(name, kept.get(fate, other))
        again = World(disk=image, clock=Clock(), delay=0, delay_factor=0)
        assert ([], live) == (recount(again.frontier), rows(again.frontier)), fate
        urls = []
        for _ in range(60):
            lease = again.one()
            urls.append(lease.url)
            again.report(lease.done(seconds=0))
        assert [f"http://a.com/{n}" for n in range(60)] == urls, fate
        again.clock.move(200)
        assert 60 == sum(len(again.report(lease.done(seconds=0))) for _ in range(60) for lease in again.lease(1))


@pytest.mark.parametrize("what", ["backlog", "calendar"])
def test_a_tail_damaged_while_it_is_in_use_stops_the_store_and_nothing_is_lost(small_heads, what):
    world = World(delay=0, delay_factor=0)
    if what == "backlog":
        world.discover(*[f"http://a.com/{n}" for n in range(60)])
    else:
        world.discover(*[Link(f"http://a.com/{n}", not_before=START + instant(50)) for n in range(60)])
    live = rows(world.frontier)
    for name in [name for name in world.disk.names() if name.startswith(what) and name.endswith(".tail")]:
        file = world.disk.open(name)
        file.write_at(0, bytes(octet ^ 1 for octet in file.read_at(0, file.size())))
        file.close()
    world.clock.move(100)
    again = (world.frontier.defer(world.lease(1).tokens, START + instant(500)) for _ in range(60))
    with pytest.raises(DamagedStoreError, match=rf"{what}\S*\.tail at byte"):
        list(again)
    with pytest.raises(StoreFailedError, match="open the store again"):
        world.discover("http://b.com/")
    world.kill()
    assert ([], 60) == (recount(world.frontier), world.frontier.statistics()["accepted"])
    assert len(live) == len(rows(world.frontier))
    world.clock.move(1_000)
    urls = set()
    for _ in range(60):
        lease = world.one()
        urls.add(lease.url)
        world.report(lease.done(seconds=0))
    assert {f"http://a.com/{n}" for n in range(60)} == urls


def test_the_log_shrinks_after_a_checkpoint():
    world = World(delay=0, delay_factor=0)
    rng = random.Random(0)
    for _ in range(40):
        world.discover(*[f"http://h{n}.com/{rng.randbytes(100).hex()}" for n in range(200)])
    before = world.frontier.statistics()["log"]
    world.frontier.checkpoint()
    after = world.frontier.statistics()["log"]
    assert (True, 1) == (after["segments"] < before["segments"], world.frontier.statistics()["checkpoint"]["number"])
    state = rows(world.frontier)
    world.kill()
    assert ([], state) == (recount(world.frontier), rows(world.frontier))


def test_the_log_of_lines_that_no_projection_has_written_is_kept_through_a_checkpoint():
    world = World(output=True, delay=0, delay_factor=0)
    world.discover(*[f"http://h{n}.com/" for n in range(300)])
    lines = 0
    while leases := world.lease():
        world.report(*[outcome(lease, seconds=0.0, line=b'{"x":"%0900d"}' % lines) for lease in leases])
        lines += len(leases)
    first = world.frontier.lines("pages", 0)
    lsn = next(lsn for lsn, _ in first)
    world.frontier.note_projection("pages", 1, lsn)
    world.frontier.note_projection("politeness", 1, lsn)
    world.frontier.checkpoint()
    world.kill()
    kept = sum(1 for _ in world.frontier.lines("pages", 0))
    assert 300 == lines == kept


def test_a_process_that_keeps_no_lines_does_not_lose_those_of_an_earlier_one():
    world = World(output=True, delay=0, delay_factor=0)
    world.discover(*[f"http://h{n}.com/" for n in range(1_500)])
    world.frontier.note_projection("pages", 0, 1)
    world.report(*[outcome(lease, seconds=0.0, line=b'{"x":"%0900d"}' % 1) for lease in world.lease(1_500)])
    world.output = False
    world.reopen()
    world.frontier.checkpoint()
    world.output = True
    world.reopen()
    assert 1_500 == sum(1 for _ in world.frontier.lines("pages", 1))


def test_unnoted_lines_are_kept_by_a_process_without_output():
    """Wherever a crash is: before, in or after the checkpoint of a process that was opened without output."""
    world = World(output=True, delay=0, delay_factor=0)
    world.discover(*[f"http://h{n}.com/" for n in range(1_500)])
    world.report(*[outcome(lease, seconds=0.0, line=b'{"x":"%0900d"}' % 1) for lease in world.lease(1_500)])
    world.output = False
    world.kill()
    begun = world.disk.copy()
    world.frontier.checkpoint()
    world.discover("http://later.com/")
    world.frontier.checkpoint()
    for disk in (begun, world.disk.copy()):
        again = World(disk=disk, clock=world.clock, output=True, delay=0, delay_factor=0)
        assert (1_500, (0, 1)) == (sum(1 for _ in again.frontier.lines("pages", 0)), again.frontier.projection("pages"))


def test_a_store_without_output_keeps_no_log_for_lines():
    """Either it was never opened with output, or its output made no line."""
    for output in (False, True):
        world = World(output=output, delay=0, delay_factor=0)
        rng = random.Random(0)
        for _ in range(40):
            world.discover(*[f"http://h{n}.com/{rng.randbytes(100).hex()}" for n in range(200)])
        world.output = False
        world.kill()
        before = world.frontier.statistics()["log"]
        world.frontier.checkpoint()
        after = world.frontier.statistics()["log"]
        assert (0, 0) == world.frontier.projection("pages")
        assert after["segments"] < before["segments"], "the log before the checkpoint is gone"


def test_a_checkpoint_without_space_is_dropped_and_the_store_continues():
    world = World(disk=CrashDisk(capacity_bytes=12 << 20), delay=0, delay_factor=0)
    world.discover(*[f"http://h{n}.com/{'x' * 300}" for n in range(5_000)])
    world.disk.fill((12 << 20) - (world.disk.used_bytes() - world.disk._other_bytes) - 50_000)
    world.frontier.checkpoint()
    assert (0, 0) == (
        world.frontier.statistics()["checkpoint"]["number"],
        sum(name.endswith((".ckpt", ".tmp")) for name in world.disk.names()),
    )
    assert 100 == world.report(*[lease.done(seconds=0) for lease in world.lease()]).count("ok")
    world.disk.fill(0)
    world.frontier.checkpoint()
    assert (1, []) == (world.frontier.statistics()["checkpoint"]["number"], recount(world.frontier))


def test_links_on_their_way_to_other_logs_survive_a_checkpoint():
    """Outbox and arrivals are rows like all other rows: the log before the checkpoint is gone."""
    clock, keys = Clock(), (b"f" * 16, b"s" * 16)
    half = frozenset(range(2_048))
    disk, other_disk = CrashDisk(), CrashDisk()
    first = Frontier.open(disk, clock=clock, slots=half, keys=keys, robots="caller")
    second = Frontier.open(other_disk, clock=clock, slots=frozenset(range(2_048, 4_096)), keys=keys, robots="caller")
    codes = first.discover([f"http://h{n}.com/" for n in range(40)])
    sent = first.outbox(100)
    assert 0 < codes.count("held") == len(sent)
    second.receive(sent[:5])
    for frontier in (first, second):
        frontier.checkpoint()
        frontier.discover(["http://later.com/"])
        frontier.checkpoint()
        frontier.close()
    first = Frontier.open(disk, clock=clock, slots=half, robots="caller")
    second = Frontier.open(other_disk, clock=clock, slots=frozenset(range(2_048, 4_096)), robots="caller")
    again = [parcel for parcel in first.outbox(100) if parcel[12] != "http://later.com/"]
    assert sent == again
    second.receive(again)
    late = second.statistics()["accepted"] - len(sent)
    assert (True, []) == (0 <= late <= 1, recount(second)), "five of them had arrived before"
