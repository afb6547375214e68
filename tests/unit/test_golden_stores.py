"""Stores that releases have written open and hold what they held; newer ones are refused with words, untouched."""

from __future__ import annotations

import importlib.util
import json
import tarfile

import pytest

from model.world import recount
from outrider import Frontier
from outrider.errors import ForeignStoreError
from outrider.frontier.facts import FRAME_KIND
from outrider.sim.disk import MemoryFiles
from outrider.storage.checkpoint import CheckpointWriter, newest_checkpoint
from outrider.storage.log import Log
from outrider.storage.manifest import MANIFEST_NAME, Manifest

VERSIONS = ["v1"]


@pytest.fixture
def golden(project):
    def unpacked(version: str) -> MemoryFiles:
        disk = MemoryFiles(name="golden")
        with tarfile.open(project / "tests" / "golden" / version / "store.tar.xz") as archive:
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


@pytest.mark.parametrize("version", VERSIONS)
def test_a_golden_store_holds_what_it_held(golden, make, project, version):
    looker = Frontier.look(golden(version))
    expected = json.loads((project / "tests" / "golden" / version / "contents.json").read_text("utf-8"))
    assert expected == json.loads(json.dumps(make.contents_of(looker)))


@pytest.mark.parametrize("version", VERSIONS)
def test_looking_at_a_golden_store_changes_nothing(golden, version):
    disk = golden(version)
    before = disk.contents()
    Frontier.look(disk).close()
    assert before == {name: data for name, data in disk.contents().items() if name in before}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_crawl_goes_on_from_a_golden_store(golden, make, version):
    """Own leases of the process that was killed end, those of the named worker live, and what was known is known."""
    now = [make.START + 700_000_000]
    frontier = Frontier.open(golden(version), clock=lambda: now[0], settings=make.SETTINGS, robots="errands")
    assert ([], 3, "crashed", 1) == (
        recount(frontier), frontier.opening.number, frontier.opening.previous_state, frontier.opening.leases_ended,
    )  # fmt: skip
    assert "leased" == frontier.status("http://moved.example.net/").state
    assert ["known", "new"] == [
        str(code) for code in frontier.discover(["http://example.org/1", "http://example.org/9"])
    ]
    now[0] += 10_000_000
    assert "http://example.org/1" in [lease.url for lease in frontier.lease(10, errands=True)]


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_answered_by_a_golden_store_are_repeated(golden, make, version):
    frontier = Frontier.open(golden(version), clock=lambda: make.START + 700_000_000, settings=make.SETTINGS)
    assert ["new"] * 9 == [str(code) for code in frontier.discover([], request_id=("golden", 1))]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_lines_of_a_golden_store_can_be_read(golden, version):
    looker = Frontier.look(golden(version))
    pages = [json.loads(line) for _, line in looker.lines("pages", 5)]
    assert {"url": "http://example.org/", "new_links": 2} in pages
    assert [{"host": "example.org"}] == [json.loads(line) for _, line in looker.lines("politeness", 5)]


def test_making_it_twice_gives_the_same_bytes(make):
    first, contents = make.build()
    second, again = make.build()
    assert contents == again
    assert make.packed(first) == make.packed(second)
    assert [name for name in first.names() if name.endswith(".ckpt")], "it has a checkpoint"


# -- newer than this version


def refused(disk: MemoryFiles) -> str:
    """The words with which it is refused; nothing may have changed."""
    before = disk.contents()
    with pytest.raises(ForeignStoreError) as caught:
        Frontier.open(disk)
    assert before == {name: data for name, data in disk.contents().items() if name in before}
    return str(caught.value)


def test_a_manifest_of_a_newer_format_is_refused(golden):
    disk = golden("v1")
    written = json.loads(disk.contents()[MANIFEST_NAME])
    disk.put(MANIFEST_NAME, json.dumps(written | {"format": 2}).encode())
    assert "store format 2" in refused(disk)


def test_a_log_of_a_newer_format_is_refused(golden):
    disk = golden("v1")
    name = max(name for name in disk.names() if name.startswith("log-"))
    data = bytearray(disk.contents()[name])
    data[8] = 2
    disk.put(name, bytes(data))
    assert "log format 2" in refused(disk)


def test_a_checkpoint_of_a_newer_format_is_refused(golden):
    disk = golden("v1")
    name = max(name for name in disk.names() if name.endswith(".ckpt"))
    data = bytearray(disk.contents()[name])
    data[8] = 2
    disk.put(name, bytes(data))
    assert "checkpoint format 2" in refused(disk)


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (FRAME_KIND + 1, b""),
        (FRAME_KIND, bytes(8) + bytes([200, 1, 1, 0, 0, 0])),
        (FRAME_KIND, bytes(8) + b"\x20\x02\x01\x00\x00\x00"),
    ],
)
def test_frames_and_facts_of_a_newer_release_are_refused(golden, kind, payload):
    disk = golden("v1")
    manifest = Manifest.load(disk)
    assert manifest is not None
    checkpoint = newest_checkpoint(disk, store=manifest.store_bytes)
    assert checkpoint is not None
    log = Log.open(disk, store=manifest.store_bytes, epoch=3, after=checkpoint.start_lsn)
    log.append(kind, payload)
    log.sync()
    log.close()
    assert "newer release" in refused(disk)


def test_a_checkpoint_with_facts_of_a_newer_release_is_refused(golden):
    disk = golden("v1")
    manifest = Manifest.load(disk)
    assert manifest is not None
    old = newest_checkpoint(disk, store=manifest.store_bytes)
    assert old is not None
    writer = CheckpointWriter(disk, store=manifest.store_bytes, number=old.number + 1, start_lsn=old.start_lsn)
    writer.add(4_096, 0, 0, old.lsn, bytes(8) + bytes([201, 1, 1, 0, 0, 0]))
    writer.finish(old.lsn)
    assert "newer release" in refused(disk)


def test_another_spelling_of_urls_is_refused(golden, monkeypatch):
    monkeypatch.setattr("outrider.engine.SPELLING_VERSION", "2")
    assert "URL spelling 1" in refused(golden("v1"))
