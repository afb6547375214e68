"""Replay in windows: frames that are applied together have the same result as one by one."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crash.busy import Busy
from limiting import set_limits
from model.interleaving import Interleaving
from model.world import World, everything_of, hosts_go_cold, outcome
from outrider import Link
from outrider.clock import instant
from outrider.engine.opening import read_store
from outrider.errors import DamagedStoreError, ForeignStoreError
from outrider.frontier.format.card_columns import Cards
from outrider.frontier.format.facts import Fact, columns_of, encode, instant_of
from outrider.frontier.state import recovery
from outrider.frontier.state.errand import KINDS, Kind
from outrider.frontier.state.hosts import CELLS
from outrider.frontier.state.replay import Window, apply
from outrider.frontier.state.tables import COPY_ROWS, Tables
from outrider.frontier.stores.calendar import _as_put as as_put
from outrider.frontier.stores.ledger import Ledger
from outrider.limits import WAKES_PER_CALL_MAX
from outrider.sim.disk import FaultyFiles
from outrider.storage.manifest import Manifest

KEY = bytes(range(16))
ROWS = ("leases", "rested", "backlog", "spent", "voids", "rules", "groups", "changed")
"""Parts of the state that name rows."""


class OneByOne:
    """Applies each frame alone, in the order of the log."""

    def __init__(self, tables: Tables, *, carries: bool = False) -> None:
        self.tables = tables

    def add(self, payload: bytes, lsn: int = 0) -> None:
        while self.tables.urls.wake(instant_of(payload), WAKES_PER_CALL_MAX):
            pass
        apply(self.tables, payload)

    def close(self) -> None:
        pass

    def finish(self) -> None:
        pass


class Counted(Window):
    """A window that counts the frames that it applied one by one."""

    rows_max = 16_384
    one_by_one = together = 0

    def __init__(self, tables: Tables, *, carries: bool = False) -> None:
        super().__init__(tables, carries=carries, rows_max=self.rows_max)

    def _together(self) -> bool:
        done = super()._together()
        type(self).together += done
        return done

    def _plain(self, payloads: Any, lsns: Any) -> None:
        payloads = list(payloads)
        type(self).one_by_one += len(payloads)
        super()._plain(payloads, lsns)


def clock_of(host: int, **cells: float) -> tuple[float, ...]:
    """A HOST_CELLS fact. Cells without a value are 0."""
    return (0, host, *(cells.get(name, 0) for name in CELLS))


def counted(rows: int) -> type[Counted]:
    return type("Sized", (Counted,), {"rows_max": rows, "one_by_one": 0, "together": 0})


def tables_of(disk: FaultyFiles, window: Any, patch: pytest.MonkeyPatch) -> tuple[Tables, dict[str, object]]:
    """Returns the tables as recovery leaves them, and their visible state. No bytes are written."""
    with patch.context() as patched:
        patched.setattr(recovery, "Window", window)
        files = disk.copy()
        manifest = Manifest.load(files)
        assert manifest is not None
        _, tables, log, _ = read_store(files, manifest, scratch=None)
    log.close()
    return tables, all_of(tables)


def _contents(backlog: Any, rows: int, moved: Any = None) -> dict[int, list[tuple[bytes, bytes]]]:
    """Returns the cards by row. moved: cards of a calendar whose old copies do not count."""
    found = {}
    for row in range(rows):
        cards = backlog.peek(row, 10_000)
        if moved is not None:
            cards = cards.filter(~moved.old(as_put(cards), leaving=True))
        if len(cards):
            found[row] = _listed(cards)
    return found


def _listed(cards: Cards) -> list[tuple[bytes, bytes]]:
    return [(cards.heads[row].tobytes(), cards.take([row]).arena) for row in range(len(cards))]


def all_of(tables: Tables) -> dict[str, object]:
    tables.recall_all()
    hosts, queues = tables.hosts, tables.queues
    *lease_cells, cards = tables.urls.open_leases()
    calendar = []
    for one in (tables.urls.calendar, tables.urls.planned):
        moved = copy.deepcopy(one._moved)  # a restart has none
        calendar += [*_contents(one._waiting, 1_024, moved).values(), *_contents(one._coming, 1, moved).values()]
    waiting = sorted((card for bucket in calendar for card in bucket), key=lambda card: (card[1], card[0][:8]))
    state: dict[str, object] = {
        "facts": everything_of(tables),
        "counts": tables.urls.counts,
        "numbers": (
            tables.token,
            tables.urls.order,
            tables.turn,
            tables.now,
            tables.transit.under_way,
            tables.urls.void_waiting,
        ),
        "leases": [cells.tolist() for cells in lease_cells],
        "rested": (dict(sorted(tables.hosts.rested.ends.items())), dict(sorted(tables.hosts.rested.hosts().items()))),
        "tokens": np.frombuffer(tables.urls.leases.tokens(), np.uint64).tolist(),
        "leased": _listed(cards),
        "calendar": waiting,
        "backlog": _contents(tables.urls.backlog, queues.count),
        "spent": _contents(tables.urls.spent, queues.count),
        "contents": len(tables.urls.seen.contents),
        "seen": {crawl: len(seen) for crawl, seen in tables.urls.seen.of_crawls.items()},
        "voids": queues.voids,
        "rules": {row: repr(rules) for row, rules in queues.rules.items()},
        "groups": {key: (group.busy, group.rest_until, group.queues) for key, group in tables.keys.groups.items()},
        "requests": [(client, list(window.items())) for client, window in tables.registry.requests.items()],
        "tallies": list(tables.registry.tallies.items()),
        "errors": tables.registry.errors,
        "changed": [rows.tolist() for rows in tables.changed],
    }
    for name in ("hash", "slot", "ended", "rest_until", "gap", "reason", "back_off", "refused_at", "answered"):
        state[f"host {name}"] = getattr(hosts, name)[: hosts.count].tolist()
    for name in ("in_flight", "flags", "first_queue"):
        state[f"host {name}"] = getattr(hosts, name)[: hosts.count].tolist()
    for name in ("hash", "host", "crawl", "after", "served", "waiting", "parked", "done", "gone"):
        state[f"queue {name}"] = getattr(queues, name)[: queues.count].tolist()
    return state


def _contents_of(backlog: Any, row: int) -> list[tuple[bytes, bytes]]:
    return _listed(backlog.peek(row, 10_000))


def assert_alike(
    disk: FaultyFiles, patch: pytest.MonkeyPatch, sizes: tuple[int, ...], *, rows_agree: bool = True
) -> list[type[Counted]]:
    """rows_agree: hosts that were cold return in any order. Then only the parts without row numbers are compared."""
    _, told = tables_of(disk, OneByOne, patch)
    windows = [counted(size) for size in sizes]
    for window in windows:
        tables, state = tables_of(disk, window, patch)
        for name, value in told.items():
            if not rows_agree and (name in ROWS or name.startswith(("host", "queue"))):
                continue
            assert state[name] == value, (name, window.rows_max)
        tables.close()
    return windows


@pytest.fixture(scope="module")
def patch() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patched:
        yield patched


RULES_OF_VISITS = ({}, {"revisit": "optimal", "rate": 5.0}, {"revisit": "adaptive"})


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32), calls=st.integers(5, 120), deletes=st.booleans(), robots=st.booleans(),
       checkpoints=st.booleans())  # fmt: skip
def test_every_verb_at_random_is_replayed(patch, seed, calls, deletes, robots, checkpoints):
    rng = random.Random(seed)
    world = World(
        robots="errands" if robots else "caller", seed=seed, output=True,
        max_pages_per_host=rng.choice([None, 6]), **rng.choice(RULES_OF_VISITS),
    )  # fmt: skip
    busy = Busy(world, rng, deletes=deletes)
    for call in range(calls):
        busy.call()
        if checkpoints and call == calls // 3:
            world.frontier.checkpoint()
    assert_alike(world.disk, patch, (1, 9, 16_384))


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 2**32), calls=st.integers(40, 160), robots=st.booleans(), cold=st.booleans())
def test_every_verb_at_random_after_a_checkpoint_that_is_newer_than_its_log(patch, seed, calls, robots, cold):
    """Rounds copy a row now and then, while queues are deleted and rules change: facts meet newer state."""
    rng = random.Random(seed)
    with patch.context() as patched:
        set_limits(patched, LOG_BYTES_BEFORE_CHECKPOINT=rng.choice([1, 4_000]))
        patched.setattr("outrider.engine.rounds.COPY_ROWS", dict.fromkeys(COPY_ROWS, rng.choice([1, 3])))
        for name in ("CHECKPOINT_STEP_BYTES", "CHECKPOINT_RANGE_BYTES_MAX"):
            patched.setattr(f"outrider.engine.rounds.{name}", 1)
        patched.setattr("crash.busy.PATHS", rng.choice([40, 600]))
        patched.setattr("crash.busy.DELETES", rng.choice([0.6, 3]))
        if cold:
            hosts_go_cold(patched)
        threads = Interleaving(seed)
        rule = rng.choice(RULES_OF_VISITS)
        world = World(robots="errands" if robots else "caller", seed=seed, output=True, threads=threads, **rule)
        busy = Busy(world, rng)
        for _ in range(calls):
            busy.call()
        world.frontier._rounds.join()
        disk = world.disk.copy()
        world.frontier.close()
    assert_alike(disk, patch, (1, 9, 16_384), rows_agree=not cold)


def plain_history(world: World, rng: random.Random, calls: int) -> None:
    """Only the facts of windows: URLs are found, leased, extended, at rest, reported in every way, visited again."""
    world.discover(*[f"http://{name}.com/0" for name in "abcdef"], Link("http://a.com/x", crawl="other"))
    leases = []
    for call in range(calls):
        links = [f"http://{rng.choice('abcdef')}.com/{rng.randrange(60)}" for _ in range(3)]
        verb = rng.randrange(6)
        if verb < 2:
            given = [Link(url, not_before=world.clock() + instant(rng.choice([1, 20]))) for url in links[:1]]
            world.discover(*links, *given, request_id=("me", call))
        elif verb < 4:
            leases += world.lease(rng.randrange(1, 4), ttl_seconds=rng.choice([4, 60]))
        elif leases:
            lease = leases.pop(rng.randrange(len(leases)))
            what = rng.randrange(7)
            if what == 6:
                world.frontier.rest([lease.token], seconds=rng.choice([None, 0.1]))
                leases.append(lease)
            elif what == 0:
                world.frontier.extend([lease.token], rng.choice([30, 90]))
                leases.append(lease)
            elif what == 1:
                world.frontier.release([lease.token])
            elif what == 2:
                world.report(lease.retry(seconds=0.1))
            elif what == 3:
                at = world.clock() + instant(rng.choice([0.5, 30]))
                world.report(outcome(lease, "again", seconds=0.1, status=200, at=at, digest=b"%020d" % call))
            else:
                # A link of the other crawl would make a queue at a visited host, and that closes a window.
                links = links if lease.crawl == "default" else []
                world.report(outcome(lease, seconds=0.1, status=200, links=links, digest=b"%020d" % (call % 7)),
                             watermark=("w", b"%d" % call))  # fmt: skip
        world.clock.move(rng.choice([0, 0.1, 2.0]))


def test_common_calls_are_applied_together(patch):
    world = World()
    plain_history(world, random.Random(5), 400)
    (window,) = assert_alike(world.disk, patch, (16_384,))
    assert window.together >= 1
    assert window.one_by_one == 2  # the opening, and the frame that makes a crawl


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32), calls=st.integers(5, 150))
def test_common_calls_at_random_are_replayed(patch, seed, calls):
    world = World()
    plain_history(world, random.Random(seed), calls)
    assert_alike(world.disk, patch, (3, 40, 16_384))


def test_keys_that_span_hosts_are_replayed(patch):
    rng = random.Random(1)
    world = World()
    for call in range(60):
        host = f"http://h{rng.randrange(9)}.com"
        world.discover(Link(f"{host}/{call}", key=rng.choice(["together", None])))
        for lease in world.lease(2):
            world.report(outcome(lease, rng.choice(["done", "retry"]), seconds=rng.choice([0.1, 3]), status=200))
            world.clock.move(rng.choice([0, 1, 9]))
    (window,) = assert_alike(world.disk, patch, (16_384,))
    assert window.together > 1


def test_a_second_queue_after_a_visit_is_replayed(patch):
    world = World()
    world.discover("http://a.com/1", "http://b.com/1", Link("http://c.com/1", crawl="new"))
    world.report(*[outcome(lease, seconds=0.1, status=200) for lease in world.lease() if lease.host == "a.com"])
    world.discover(*[Link(f"http://{name}.com/2", crawl="new") for name in "ab"])
    assert_alike(world.disk, patch, (16_384, 1))
    tables, _ = tables_of(world.disk, Window, patch)
    assert tables.turn == 1
    tables.close()


def test_every_digest_of_a_page_that_is_visited_again_counts_as_seen(patch):
    world = World()
    world.discover("http://a.com/1")
    for digest in (b"1" * 20, b"2" * 20, b"3" * 20):
        at = world.clock() + instant(1)
        lease = world.one()
        world.report(outcome(lease, "again", seconds=0.1, status=200, at=at, digest=digest))
        world.clock.move(30)
    (window,) = assert_alike(world.disk, patch, (16_384,))
    assert (window.together, window.one_by_one) == (1, 1)  # the opening makes the crawl
    tables, _ = tables_of(world.disk, Window, patch)
    assert len(tables.urls.seen.contents) == 3
    tables.close()


def test_a_lease_that_lasts_longer_than_its_queue_ends_after_the_delete(patch):
    world = World()
    world.discover("http://a.com/1", "http://b.com/1")
    leases = world.lease()
    world.frontier.delete("a.com")
    world.discover("http://a.com/1", "http://a.com/2")
    world.clock.move(30)
    world.report(*[outcome(lease, seconds=0.1, status=200) for lease in leases])
    world.discover("http://c.com/1")
    assert_alike(world.disk, patch, (1, 16_384))


def test_a_key_that_spans_hosts_waits_for_the_longest_delay_ever_set():
    made = [
        (Fact.CRAWL, columns_of([(0, 0, "default", 1)])),
        (Fact.HOST, columns_of([(0, 7, "a.com")])),
        (Fact.QUEUE, columns_of([(0, 9, 7, 0, "key")])),
    ]
    rests = [
        encode(5, [(Fact.HOST_CELLS, columns_of([clock_of(7, ended=1, rest_until=until)]))]) for until in (20, 90, 40)
    ]
    window = window_of([encode(5, made), *rests])
    window.close()
    tables = window._tables
    (group,) = tables.keys.groups.values()
    assert (group.rest_until, int(tables.hosts.rest_until[0])) == (90, 40)
    tables.close()


def test_the_token_of_a_finished_errand_is_never_used_again():
    """A checkpoint without the errand is older than the log that leased it."""
    tables = Tables(Ledger.open(FaultyFiles(), store=KEY, names=[]), fingerprint_key=KEY, scratch=None)
    leased = columns_of([(0, KINDS[Kind.SITEMAP].number, 0, "http://a.com/sitemap.xml", 974, 60_000_000, 0)])
    apply(tables, encode(5, [(Fact.LEASED_ERRAND, leased)]))
    assert 974 == tables.token
    assert not tables.errands.open
    tables.close()


# -- damage


def window_of(payloads: list[bytes]) -> Window:
    tables = Tables(Ledger.open(FaultyFiles(), store=KEY, names=[]), fingerprint_key=KEY, scratch=None)
    window = Window(tables)
    for payload in payloads:
        window.add(payload)
    return window


FINE = encode(5, [(Fact.TALLY, columns_of([(0, "pages", 1)]))])


@pytest.mark.parametrize("cut", range(1, len(FINE)))
def test_a_cut_frame_is_reported_with_its_place(cut):
    if cut == 8:
        return  # an instant alone is a whole frame
    with pytest.raises(DamagedStoreError) as windowed:
        window_of([FINE, FINE[:cut]])
    tables = Tables(Ledger.open(FaultyFiles(), store=KEY, names=[]), fingerprint_key=KEY, scratch=None)
    with pytest.raises(DamagedStoreError) as alone:
        apply(tables, FINE[:cut])
    assert str(windowed.value) == str(alone.value)


def test_facts_that_name_a_missing_row_are_reported():
    cells = encode(5, [(Fact.HOST_CELLS, columns_of([clock_of(77, ended=1, rest_until=1)]))])
    with pytest.raises(DamagedStoreError, match=r"kind host_cells names something that does not exist.*4d"):
        window_of([FINE, cells]).close()


def test_facts_of_another_release_are_reported():
    other = FINE[:8] + bytes([200]) + FINE[9:]
    with pytest.raises(ForeignStoreError, match="kind 200"):
        window_of([FINE, other])


def test_a_full_window_is_applied_by_itself():
    tables = Tables(Ledger.open(FaultyFiles(), store=KEY, names=[]), fingerprint_key=KEY, scratch=None)
    window = Window(tables, rows_max=3)
    for value in range(1, 6):
        window.add(encode(value, [(Fact.TALLY, columns_of([(0, "pages", value)]))]))
    assert (tables.registry.tallies, tables.now) == ({"pages": 3}, 3)
    window.close()
    assert (tables.registry.tallies, tables.now) == ({"pages": 5}, 5)
    tables.close()
