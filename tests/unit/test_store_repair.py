"""Repair of a whole store: damage in each kind of file. Then it opens, verifies, and contains all that was outside."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from crash.directories import Killed, Killer
from limiting import set_limits
from model.inside import inspect
from outrider import Frontier, Link
from outrider.crawl.orders.store_repair import repair, verify
from outrider.errors import DamagedStoreError, ForeignStoreError, SettingsError, StoreInUseError
from outrider.frontier.format.facts import BLOCK, FRAME_KIND, Fact, encode
from outrider.frontier.verbs import arguments, deciding, outcome_columns
from outrider.journey import Outcome, Verdict
from outrider.storage.files import Directory
from outrider.storage.repair import survey

START = 1_700_000_000_000_000
HOSTS, PER_HOST = 30, 40
SECOND = 1_000_000
SETTINGS = {"delay": 1.0}


class Clock:
    def __init__(self, now=START):
        self.now = now

    def __call__(self):
        return self.now


def opened(store, now=START + 10_000 * SECOND):
    return Frontier.open(store, clock=Clock(now), settings=SETTINGS, robots="caller")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A store with a checkpoint, a run, and a log after them: two crawls, keys, robots rules, leases of a worker."""
    store = tmp_path_factory.mktemp("made") / "store"
    clock = Clock()
    frontier = Frontier.open(store, clock=clock, settings=SETTINGS, robots="caller")
    for host in range(HOSTS):
        frontier.discover([Link(f"http://h{host}.test/{n}", priority=n / 100) for n in range(PER_HOST)])
    frontier.discover([Link(f"http://k{n}.test/", key="shared") for n in range(5)])
    frontier.discover([Link("http://h2.test/", crawl="second"), "http://h1.test/private"])
    frontier.set_robots("http://h1.test", 200, b"User-agent: *\nDisallow: /private\n")
    work(frontier, clock, 5)
    frontier.pause("h7.test")
    frontier.lease(3, worker="w", ttl_seconds=80_000)
    frontier.checkpoint()
    frontier.discover([f"http://late{n}.test/" for n in range(20)])
    work(frontier, clock, 5)
    frontier.lease(3, worker="w", ttl_seconds=80_000)
    frontier._log.sync()
    frontier.close()
    return store


def work(frontier, clock, rounds):
    for turn in range(rounds):
        clock.now += 30 * SECOND
        outcomes = []
        for number, lease in enumerate(frontier.lease(15)):
            if number % 5 == 0:
                outcomes.append(lease.gone(status=404, seconds=0.1))
            elif number % 5 == 1:
                outcomes.append(lease.retry(error="timeout", seconds=0.1))
            else:
                outcomes.append(lease.done(seconds=0.1, links=[f"http://new{turn}.test/{lease.token}"]))
        frontier.report(outcomes)


@pytest.fixture
def store(made, tmp_path):
    shutil.copytree(made, tmp_path / "store")
    return tmp_path / "store"


def held(store, now=START + 10_000 * SECOND):
    """Returns state, attempts and priority of every URL, by crawl and URL."""
    with opened(store, now) as frontier:
        assert () == frontier.verify().problems
        return states(frontier)


def states(frontier):
    rows, after = {}, None
    while True:
        page = frontier.urls(after=after, limit=1_000)
        rows |= {(url.crawl, url.url): (url.state, url.attempts, url.priority) for url in page}
        after = page.cursor
        if after is None:
            return rows


@pytest.fixture(scope="module")
def expected(made, tmp_path_factory):
    copy = tmp_path_factory.mktemp("expected") / "store"
    shutil.copytree(made, copy)
    return held(copy)


def flip(path: Path, at: int, with_: int = 0xFF) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= with_
    path.write_bytes(data)


def one(store, pattern):
    (path,) = store.glob(pattern)
    return path


def frames(store):
    """Returns (file, first byte, end byte, LSN) of every frame."""
    files = Directory(store)
    manifest = json.loads((store / "manifest.json").read_text())
    found = survey(files, bytes.fromhex(manifest["store"]))
    from outrider.kernels import scan_frames

    out = []
    for segment in found.segments:
        data = (store / segment.name).read_bytes()
        for stretch in segment.stretches:
            rows, _, _ = scan_frames(data[: stretch.end], stretch.begin)
            out += [(store / segment.name, row[0] - 31, row[0] + row[1], row[2]) for row in rows]
    files.close()
    return out, found


def test_a_whole_store_is_not_changed(store, expected):
    before = {path.name: path.read_bytes() for path in store.iterdir() if path.name != "lock"}
    done = repair(str(store))
    assert ("", (), ()) == (done.folder, done.kept, done.losses)
    assert before == {path.name: path.read_bytes() for path in store.iterdir() if path.name != "lock"}
    assert verify(str(store)).ok
    assert expected == held(store)


def damaged_then_repaired(store):
    with pytest.raises(DamagedStoreError):
        opened(store)
    assert not verify(str(store)).ok
    done = repair(str(store), now=START + 9_000 * SECOND)
    assert verify(str(store)).ok
    assert verify(str(store)).found.ok
    return done


def missing_and_other(expected, found):
    return set(expected) - set(found), {name for name in expected if name in found and expected[name] != found[name]}


def test_every_frame_of_the_log_may_be_lost(made, tmp_path, expected):
    """For each frame: the store opens, and only the URLs of that frame are lost."""
    places, found = frames(made)
    tail = [place for place in places if place[3] > found.covered_lsn]
    assert len(tail) > 5
    for number, (path, begin, end, lsn) in enumerate(tail[:-1]):
        store = tmp_path / str(number)
        shutil.copytree(made, store)
        flip(store / path.name, (begin + end) // 2)
        done = damaged_then_repaired(store)
        assert [(lsn, lsn)] == [(loss.first_lsn, loss.last_lsn) for loss in done.losses]
        missing, _ = missing_and_other(expected, held(store))
        assert all("late" in url or "new" in url for _, url in missing)
        report = json.loads((store / "damaged-1" / "report.json").read_text())
        assert [lsn] == [loss["first_lsn"] for loss in report["lost"]]


def test_the_urls_of_a_lost_frame_can_be_discovered_again(store, expected):
    places, found = frames(store)
    path, begin, end, _ = next(place for place in places if place[3] == found.covered_lsn + 1)
    flip(path, (begin + end) // 2)
    damaged_then_repaired(store)
    with opened(store) as frontier:
        missing = {url for _, url in set(expected) - set(states(frontier))}
        assert missing == {f"http://late{n}.test/" for n in range(20)}
        assert {"new"} == {str(code) for code in frontier.discover(sorted(missing))}
        assert frontier.verify().ok


def test_every_range_of_the_checkpoint_may_be_lost(made, tmp_path, expected):
    _, found = frames(made)
    name = found.checkpoint
    checkpoint = one(made, "checkpoint-*.ckpt").name
    assert len(name.places) >= 5
    for number, place in enumerate(name.places):
        store = tmp_path / str(number)
        shutil.copytree(made, store)
        flip(store / checkpoint, place + 50)
        done = damaged_then_repaired(store)
        assert [1] == [loss.pieces for loss in done.losses]
        found = held(store)
        assert {url for _, url in expected} == {url for _, url in found}
        assert done.salvaged.own_lost or set(expected) == set(found)
        assert (made / checkpoint).stat().st_size == (store / "damaged-1" / checkpoint).stat().st_size


def test_a_checkpoint_may_be_missing(store, expected):
    one(store, "checkpoint-*.ckpt").unlink()
    repair(str(store), now=START + 9_000 * SECOND)
    assert verify(str(store)).ok
    missing, other = missing_and_other(expected, held(store))
    assert {url for crawl, url in missing} <= {url for crawl, url in expected if crawl == "second"}
    assert not other or {state[0] for name, state in expected.items() if name in other} <= {
        "leased",
        "queued",
        "waiting",
    }


def test_a_lost_block_of_a_run_loses_its_urls(store, expected):
    run = one(store, "run-*.run")
    flip(run, 200)
    done = damaged_then_repaired(store)
    lost = sum(loss.pieces for loss in done.losses)
    missing, _ = missing_and_other(expected, held(store))
    assert 0 < len(missing) == lost
    assert done.salvaged.urls <= lost


def test_a_run_may_be_missing(store, expected):
    one(store, "run-*.run").unlink()
    done = repair(str(store), now=START + 9_000 * SECOND)
    assert verify(str(store)).ok
    found = held(store)
    assert {url for _, url in found} >= {f"http://late{n}.test/" for n in range(20)}
    assert set(found) < set(expected)
    assert done.salvaged.urls > 0
    assert len(done.salvaged.fingerprints) == done.salvaged.urls


def test_all_of_the_log_may_be_missing(store, expected):
    for path in store.glob("log-*.seg"):
        path.unlink()
    damaged_then_repaired(store)
    missing, _ = missing_and_other(expected, held(store))
    assert all("late" in url or "new" in url for _, url in missing)


def test_a_wrong_byte_in_the_manifest_is_corrected(store, expected):
    before = (store / "manifest.json").read_bytes()
    flip(store / "manifest.json", before.find(b"fingerprint_key") + 25, 0x01)
    done = damaged_then_repaired(store)
    assert ("manifest.json",) == done.kept[:1]
    assert before == (store / "manifest.json").read_bytes()
    assert expected == held(store)


def test_a_missing_manifest_is_not_guessed(store):
    (store / "manifest.json").write_bytes(b"{}")
    before = {path.name: path.read_bytes() for path in store.iterdir() if path.name != "lock"}
    with pytest.raises(DamagedStoreError, match="restore a copy of it"):
        repair(str(store))
    assert before == {path.name: path.read_bytes() for path in store.iterdir() if path.name != "lock"}


def test_after_a_repair_no_host_is_ready_before_one_delay(store):
    places, found = frames(store)
    path, begin, end, _ = next(place for place in places if place[3] == found.covered_lsn + 5)
    flip(path, (begin + end) // 2)
    now = START + 9_000 * SECOND
    repair(str(store), now=now)
    with opened(store, now + SECOND - 1) as frontier:
        assert [] == frontier.lease(10)
    with opened(store, now + SECOND) as frontier:
        assert 10 == len(frontier.lease(10))


def test_tokens_grow_across_a_repair(store):
    """Also when the frames with the last tokens are lost: they are below those of the next opening."""
    places, found = frames(store)
    with Frontier.look(store) as looking:
        given = max(url.token for url in looking.urls(state="leased"))
    for path, begin, end, lsn in places:
        if lsn > found.covered_lsn:
            flip(path, (begin + end) // 2)
    repair(str(store), now=START + 9_000 * SECOND)
    with opened(store) as frontier:
        assert given < min(frontier.lease(10).tokens)


def test_a_repair_that_is_killed_is_run_again(made, tmp_path, expected, monkeypatch):
    """At every call that changes the disk: the opened content is true, and the next repair has the result of this
    one."""
    store, damaged = tmp_path / "store", tmp_path / "damaged"
    shutil.copytree(made, damaged)
    places, found = frames(damaged)
    path, begin, end, _ = next(place for place in places if place[3] == found.covered_lsn + 4)
    flip(damaged / path.name, (begin + end) // 2)
    flip(one(damaged, "run-*.run"), 200)
    flip(one(damaged, "checkpoint-*.ckpt"), found.checkpoint.places[2] + 60)
    killer = Killer(monkeypatch)
    kills = 0
    whole = None
    while whole is None:
        kills += 1
        shutil.rmtree(store, ignore_errors=True)
        shutil.copytree(damaged, store)
        killer.arm(kills)
        try:
            repair(str(store), now=START + 9_000 * SECOND)
        except Killed:
            killer.disarm()
            state = verify(str(store))
            assert state.found is None or state.found.ok
            repair(str(store), now=START + 9_000 * SECOND)
        else:
            killer.disarm()
            whole = held(store)
        assert verify(str(store)).ok
        originals = {(damaged / name).read_bytes() for name in (path.name, one(damaged, "run-*.run").name)}
        kept = {file.read_bytes() for folder in store.glob("damaged-*") for file in folder.iterdir()}
        assert originals <= kept
        last = held(store)
    assert kills > 10
    # A URL that was due by the last instant of a log counts as queued, and a second repair adds an instant.
    assert {url: told[1:] for url, told in whole.items()} == {url: told[1:] for url, told in last.items()}
    assert set(whole) < set(expected)


def test_a_repair_removes_kept_schedules_before_it_changes_the_ledger(store, tmp_path, monkeypatch):
    """They may name lost records. So no kill leaves one next to a mended ledger."""
    set_limits(monkeypatch, KEPT_URLS_MIN=1)
    opened(store).close()
    (store / "schedule-00000000000000ff.tmp").write_bytes(b"left by a kill")
    assert 2 == len(list(store.glob("schedule-*")))
    run = max(store.glob("run-*.run"), key=lambda path: path.stat().st_size)
    flip(run, 200)
    damaged = run.read_bytes()
    killer = Killer(monkeypatch)
    kills, found = 0, set()
    while True:
        kills += 1
        copy = tmp_path / str(kills)
        shutil.copytree(store, copy)
        killer.arm(kills)
        try:
            repair(str(copy), now=START + 9_000 * SECOND)
        except Killed:
            is_mended = (copy / run.name).read_bytes() != damaged
            assert not (is_mended and list(copy.glob("schedule-*")))
            found.add(is_mended)
        else:
            break
    killer.disarm()
    assert {False, True} == found
    assert [] == list(copy.glob("schedule-*"))
    assert verify(str(copy)).ok


def test_a_store_in_use_is_not_repaired(store):
    with opened(store), pytest.raises(StoreInUseError):
        repair(str(store))


@pytest.mark.parametrize("seed", range(12))
def test_after_any_damage_the_store_opens_again(made, tmp_path, expected, seed):
    """Bytes changed, zeroed or cut off anywhere in log, checkpoint and run, at several places; and once more after
    it."""
    dice = random.Random(seed)
    store = tmp_path / "store"
    shutil.copytree(made, store)
    for attempt in (1, 2):
        names = sorted(path for path in store.iterdir() if path.suffix in (".seg", ".ckpt", ".run", ".synced"))
        for _ in range(dice.randint(1, 5)):
            path = dice.choice([path for path in names if path.exists() and path.stat().st_size])
            data = bytearray(path.read_bytes())
            used = len(bytes(data).rstrip(b"\0")) or 1
            at = dice.randrange(used)
            what = dice.random()
            if what < 0.5:
                data[at] ^= dice.randrange(1, 256)
            elif what < 0.8:
                size = dice.choice([10, 300, 3_000])
                data[at : at + size] = bytes(len(data[at : at + size]))
            elif what < 0.9:
                del data[at:]
            else:
                path.unlink()
                continue
            path.write_bytes(data)
        repair(str(store), now=START + 9_000 * SECOND)
        assert verify(str(store)).ok
        found = held(store, START + 10_000 * SECOND)
        assert {url for _, url in found} <= {url for _, url in expected}  # the name of a crawl may be lost
        with opened(store, START + (20_000 + attempt) * SECOND) as frontier:
            assert frontier.lease(3) or not found


def discovered(frontier, **more):
    frontier.discover(["http://good.test/", Link("http://bad.test/", **more), "http://good.test/2"])


def reported(frontier, **more):
    token = inspect(frontier).tables.token  # the youngest lease
    frontier.report([Outcome(token, Verdict.DONE, **more)])


UNFIT = {
    "a referrer of 65,536 bytes": lambda frontier: discovered(frontier, referrer="x" * 65_536),
    "a referrer of 70,013 bytes": lambda frontier: discovered(frontier, referrer="x" * 70_013),
    "a referrer of control characters": lambda frontier: discovered(frontier, referrer="\x7f" * 131_072),
    "an etag of 2 MiB": lambda frontier: reported(frontier, etag="x" * (2 << 20)),
    "a digest of 2 MiB": lambda frontier: reported(frontier, digest=b"x" * (2 << 20)),
    "metadata of 2 MiB": lambda frontier: reported(frontier, metadata={"x": "y" * (2 << 20)}),
}


def logged_and_never_applied(frontier, call, monkeypatch):
    """Leaves a frame like an earlier release, which checked sizes only as it applied a frame."""
    append = frontier._log.append

    def append_and_stop(*frame, **how):
        append(*frame, **how)
        raise SettingsError("it is in the log")

    with monkeypatch.context() as earlier:
        earlier.setattr(arguments, "REFERRER_BYTES_MAX", 1 << 30)
        earlier.setattr(
            outcome_columns, "_PLAIN", {name: (kind, 1 << 30) for name, (kind, _) in outcome_columns._PLAIN.items()}
        )
        set_limits(earlier, METADATA_BYTES_MAX=1 << 30, UNIQUE_METADATA_BYTES_MAX=1 << 30)
        earlier.setattr(deciding, "sealed", encode)
        earlier.setattr(frontier._log, "append", append_and_stop)
        with pytest.raises(SettingsError, match="it is in the log"):
            call(frontier)
    return frontier._log.appended_lsn


@pytest.mark.parametrize("call", UNFIT.values(), ids=list(UNFIT))
def test_a_frame_that_can_be_read_but_not_applied_is_named_dropped_and_listed(call, store, expected, monkeypatch):
    """`open` and `verify` report its LSN. `repair` lists it, and keeps the content of all frames before and after
    it."""
    frontier = opened(store)
    assert frontier.lease(1, worker="w")
    lsn = logged_and_never_applied(frontier, call, monkeypatch)
    frontier.discover(["http://behind.test/"])
    frontier.close()
    with pytest.raises(DamagedStoreError, match=f"LSN {lsn}\\b"):
        opened(store)
    assert not verify(str(store)).ok
    done = repair(str(store), now=START + 9_000 * SECOND)
    assert [(lsn, lsn, 1)] == [(loss.first_lsn, loss.last_lsn, loss.pieces) for loss in done.losses]
    assert done.losses[0].end > done.losses[0].begin > 0
    assert verify(str(store)).ok
    assert "" == repair(str(store)).folder
    found = held(store)
    assert set(expected) | {("default", "http://behind.test/")} == set(found)
    with opened(store) as frontier:
        assert [] == list(frontier.lines("pages", 0))  # reads the log to its end
        assert ["new"] == frontier.discover(["http://bad.test/"])


def by_keys(frontier):
    """Discovers URLs into a crawl by unique keys, and returns their names."""
    frontier.make_crawl("mine", unique="caller")
    links = [Link(f"http://h{n % 3}.test/", crawl="mine", unique_key=b"one %d" % n) for n in range(12)]
    links += [Link("not a url", crawl="mine"), Link("HTTP://H1.test:80/a/../b#c", crawl="mine")]
    frontier.discover(links)
    return [*(link.unique_key for link in links[:12]), *links[12:]]


def known(frontier, names, crawl="mine"):
    states = [frontier.status(name, crawl=crawl) for name in names]
    return [None if state.state == "unknown" else (state.url, state.unique_key) for state in states]


@pytest.mark.parametrize("checkpoint", [False, True], ids=["in the log", "in a checkpoint"])
def test_unique_keys_are_whole_after_any_part_of_the_store_is_lost(tmp_path, checkpoint):
    """The URLs that are left are found by their unique keys, also where the rule of their crawl is lost."""
    made = tmp_path / "made"
    with opened(made, START) as frontier:
        frontier.discover(["http://plain.test/"])
        names = by_keys(frontier)
        before = known(frontier, names)
        if checkpoint:
            frontier.checkpoint()
    if checkpoint:
        path = one(made, "*.ckpt")
        places = [(path, place) for place in range(0, path.stat().st_size, 97)]
    else:
        places = [(path, begin + 40) for path, begin, _, _ in frames(made)[0]]
    assert len(places) > 3
    for number, (path, place) in enumerate(places):
        store = tmp_path / str(number)
        shutil.copytree(made, store)
        flip(store / path.name, place)
        repair(str(store), now=START + 9_000 * SECOND)
        assert verify(str(store)).ok
        with opened(store) as frontier:
            crawl, _ = max(inspect(frontier).tables.crawls.names.items())[1]  # it may have lost its name
            if crawl == "default":
                assert frontier.count() < 2  # all of the crawl is lost
                continue
            after = known(frontier, names, crawl)
            assert all(found in (None, wanted) for found, wanted in zip(after, before, strict=True))
            links = [Link("http://again.test/", crawl=crawl, unique_key=name) for name in names[:12]]
            assert [("known" if found else "new") for found in after[:12]] == list(frontier.discover(links))


def test_facts_of_a_newer_release_are_not_treated_as_damage(store):
    """No fact is dropped that a newer release can read."""
    frontier = opened(store)
    frontier._log.append(FRAME_KIND, (0).to_bytes(8, "little") + BLOCK.pack(Fact.HOST, 3, 0))
    frontier.close()
    for look in (opened, lambda store: repair(str(store))):
        with pytest.raises(ForeignStoreError):
            look(store)
