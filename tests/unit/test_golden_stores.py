"""Stores of earlier releases open with their content. Newer stores are refused with a message, untouched."""

from __future__ import annotations

import importlib.util
import json
import tarfile

import pytest

from model.inside import inspect
from model.world import recount
from outrider import Frontier
from outrider.errors import ForeignStoreError
from outrider.frontier.format.facts import FRAME_KIND, Fact, decode
from outrider.frontier.state.tables import ROBOTS_FILES
from outrider.sim.disk import FaultyFiles
from outrider.storage.checkpoint import CheckpointWriter, newest_checkpoint
from outrider.storage.log import Log
from outrider.storage.manifest import MANIFEST_NAME, Manifest

NAMES = ["log-caller", "log-errands", "runs-caller", "runs-errands"]


@pytest.fixture
def golden(project):
    """A golden store of this format by its name, or of an older one as `v1/store`."""

    def unpacked(name: str) -> FaultyFiles:
        disk = FaultyFiles(name="golden")
        path = project / "tests" / "golden" / (name if "/" in name else f"v2/{name}")
        with tarfile.open(f"{path}.tar.xz") as archive:
            for entry in archive:
                file = archive.extractfile(entry)
                assert file is not None
                disk.put(entry.name, file.read())
        return disk

    return unpacked


@pytest.fixture
def make(project):
    spec = importlib.util.spec_from_file_location("golden_make", project / "tests" / "golden" / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", NAMES)
def test_a_golden_store_contains_what_it_contained(golden, make, project, name):
    looker = Frontier.look(golden(name))
    expected = json.loads((project / "tests" / "golden" / "v2" / f"{name}.json").read_text("utf-8"))
    found = json.loads(json.dumps(make.contents_of(looker)))
    # lists of queues are sorted by hashes, and were sorted by rows when the store was written
    for one in expected, found:
        one["queues"].sort(key=lambda queue: (queue["crawl"], queue["key"], queue["host"]))
    assert expected == found


@pytest.mark.parametrize("name", NAMES)
def test_reading_a_golden_store_changes_no_file(golden, name):
    disk = golden(name)
    before = disk.contents()
    Frontier.look(disk).close()
    assert before == {name: data for name, data in disk.contents().items() if name in before}


@pytest.mark.parametrize("name", NAMES)
def test_a_crawl_continues_from_a_golden_store(golden, make, name):
    """Own leases of the killed process end, those of named workers continue, and orders for queues are in force."""
    now = [make.START + 700_000_000]
    frontier = Frontier.open(golden(name), clock=lambda: now[0], settings=make.SETTINGS, robots=make.robots_of(name))
    found = frontier.opening
    assert ([], 3, "crashed", 2) == (recount(frontier), found.number, found.previous_state, found.leases_ended)
    assert ("waiting", 0.95) == (frontier.status(wide := "http://wide.example/2").state, frontier.status(wide).priority)
    assert 3 == frontier.count(state="leased"), "by w1 and w2"
    assert "queued" == frontier.status("http://dropped.example/1").state, "accepted anew"
    assert "unknown" == frontier.status("http://dropped.example/0").state, "deleted, and leased to w1"
    assert ["known", "new"] == [
        str(code) for code in frontier.discover(["http://example.org/1", "http://example.org/9"])
    ]
    frontier.resume("paused.example")
    hosts = set()
    for _ in range(20):
        now[0] += 1_000_000
        hosts |= {lease.host for lease in frontier.lease(30, worker="w3", errands=True)}
    assert {"paused.example", "slow.example"} <= hosts
    assert hosts.isdisjoint({"late.example", "dropped.example"})


@pytest.mark.parametrize("name", NAMES)
def test_requests_answered_by_a_golden_store_are_repeated(golden, make, name):
    frontier = Frontier.open(
        golden(name), clock=lambda: make.START + 700_000_000, settings=make.SETTINGS, robots="caller"
    )
    assert ["new"] * 9 == [str(code) for code in frontier.discover([], request_id=("golden", 1))]


@pytest.mark.parametrize("name", NAMES)
def test_the_lines_of_a_golden_store_can_be_read(golden, name):
    looker = Frontier.look(golden(name))
    pages = [json.loads(line) for _, line in looker.lines("pages", 5)]
    assert {"url": "http://example.org/", "new_links": 2} in pages
    assert [{"host": "example.org"}] == [json.loads(line) for _, line in looker.lines("politeness", 5)]


@pytest.mark.parametrize("name", NAMES)
def test_building_a_store_twice_writes_the_same_bytes(make, name):
    first, contents = make.build(name)
    second, again = make.build(name)
    assert contents == again
    assert make.packed(first) == make.packed(second)
    runs = sum(file.endswith(".run") for file in first.names())
    assert (2 if name.startswith("runs") else 0) == runs


def test_a_store_with_a_robots_file_for_each_authority_continues_with_one_for_all(golden, make, project):
    """Four of its hosts are cold with their files, four are in its checkpoint, four in its log. They have two files.
    The next checkpoints contain each file once, and the hosts that become cold from now on name them."""
    told = json.loads((project / "tests" / "golden" / "v2" / "apart.json").read_text("utf-8"))
    disk = golden("apart")
    frontier = Frontier.open(disk, clock=lambda: make.START + 700_000_000, settings=make.SETTINGS, robots="caller")
    tables = inspect(frontier).tables
    assert (told["cold"], []) == (len(tables.cold), recount(frontier))
    tables.recall_all()

    def robots(frontier):
        tables = inspect(frontier).tables
        return {one.name: tables.robots.rulebook.body(one.digest).decode() for one in tables.robots.listed}

    assert (told["robots"], 2) == (robots(frontier), len(tables.robots.rulebook))
    frontier.checkpoint()
    checkpoint = newest_checkpoint(disk, store=Manifest.load(disk).store_bytes)
    assert checkpoint is not None
    blocks = [(section, block) for _, section, _, _, payload in checkpoint.ranges() for block in decode(payload)]
    kinds = [(section, kind, len(values[0])) for section, (kind, values) in blocks]
    assert [(ROBOTS_FILES, Fact.ROBOTS_FILE, 2)] == [one for one in kinds if one[1] == Fact.ROBOTS_FILE]
    frontier.close()
    again = Frontier.open(disk, clock=lambda: make.START + 800_000_000, settings=make.SETTINGS, robots="caller")
    assert (told["robots"], []) == (robots(again), recount(again))


# -- of other formats than this version's


def refused(disk: FaultyFiles) -> str:
    """Returns the message of the refusal. Nothing may have changed."""
    before = disk.contents()
    with pytest.raises(ForeignStoreError) as caught:
        Frontier.open(disk, robots="caller")
    assert before == {name: data for name, data in disk.contents().items() if name in before}
    return str(caught.value)


def test_a_store_of_an_older_format_is_refused_with_the_way_out(golden):
    disk = golden("v1/store")
    words = refused(disk)
    assert "store format 1; this version opens only format 2" in words
    assert "with the version that made it" in words
    with pytest.raises(ForeignStoreError, match="store format 1"):
        Frontier.look(disk)


def test_a_manifest_of_a_newer_format_is_refused(golden):
    disk = golden("runs-caller")
    written = json.loads(disk.contents()[MANIFEST_NAME])
    disk.put(MANIFEST_NAME, json.dumps(written | {"format": 3}).encode())
    assert "store format 3" in refused(disk)


def test_a_run_of_a_newer_format_is_refused(golden):
    disk = golden("runs-caller")
    name = max(name for name in disk.names() if name.endswith(".run"))
    data = bytearray(disk.contents()[name])
    data[8] = 3
    disk.put(name, bytes(data))
    assert "run format 3" in refused(disk)


def test_a_log_of_a_newer_format_is_refused(golden):
    disk = golden("runs-caller")
    name = max(name for name in disk.names() if name.startswith("log-"))
    data = bytearray(disk.contents()[name])
    data[8] = 2
    disk.put(name, bytes(data))
    assert "log format 2" in refused(disk)


def test_a_checkpoint_of_a_newer_format_is_refused(golden):
    disk = golden("runs-caller")
    name = max(name for name in disk.names() if name.endswith(".ckpt"))
    data = bytearray(disk.contents()[name])
    data[8] = 3
    disk.put(name, bytes(data))
    assert "checkpoint format 3" in refused(disk)


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (FRAME_KIND + 1, b""),
        (FRAME_KIND - 1, b""),
        (FRAME_KIND, bytes(8) + bytes([200, 2, 1, 0, 0, 0])),
        (FRAME_KIND, bytes(8) + b"\x20\x03\x01\x00\x00\x00"),
    ],
)
def test_frames_and_facts_of_a_newer_release_are_refused(golden, kind, payload):
    disk = golden("runs-caller")
    manifest = Manifest.load(disk)
    assert manifest is not None
    checkpoint = newest_checkpoint(disk, store=manifest.store_bytes)
    assert checkpoint is not None
    log = Log.open(disk, store=manifest.store_bytes, epoch=3, after=checkpoint.start_lsn)
    log.append(kind, payload)
    log.sync()
    log.close()
    assert "another release" in refused(disk)


def test_a_checkpoint_with_facts_of_a_newer_release_is_refused(golden):
    disk = golden("runs-caller")
    manifest = Manifest.load(disk)
    assert manifest is not None
    old = newest_checkpoint(disk, store=manifest.store_bytes)
    assert old is not None
    writer = CheckpointWriter(disk, store=manifest.store_bytes, number=old.number + 1, start_lsn=old.start_lsn)
    writer.add(4_096, 0, 0, old.lsn, bytes(8) + bytes([201, 1, 1, 0, 0, 0]))
    writer.finish(old.lsn)
    assert "another release" in refused(disk)


def test_a_store_with_another_spelling_of_urls_is_refused(golden, monkeypatch):
    monkeypatch.setattr("outrider.engine.opening.SPELLING_VERSION", "2")
    assert "URL spelling 1" in refused(golden("runs-caller"))
