"""The manifest: written once, readable, checked. Other directories are left alone."""

from __future__ import annotations

import contextlib
import errno
import json
import random

import pytest

from outrider.errors import DamagedStoreError, ForeignStoreError, SettingsError, StoreError
from outrider.sim.disk import CrashDisk, FaultyFiles
from outrider.storage.files import Files
from outrider.storage.manifest import MANIFEST_NAME, Manifest, slot_ranges, slots_of


def created(files: Files) -> Manifest:
    return Manifest.create(
        files,
        store="00112233445566778899aabbccddeeff",
        created="2026-01-02T03:04:05.000Z",
        fingerprint_key="0f" * 16,
        slot_key="f0" * 16,
        spelling="whatwg-1",
        rules={"public_suffix": "2026-01-01", "idna": "16.0"},
    )


def test_the_loaded_manifest_equals_the_written_one() -> None:
    files = FaultyFiles()
    assert created(files) == Manifest.load(files)


def test_keys_and_id_are_also_returned_as_bytes() -> None:
    manifest = created(FaultyFiles())
    assert (bytes.fromhex("00112233445566778899aabbccddeeff"), b"\x0f" * 16, b"\xf0" * 16) == (
        manifest.store_bytes,
        manifest.fingerprint_key_bytes,
        manifest.slot_key_bytes,
    )


def test_the_manifest_is_readable_for_people() -> None:
    files = FaultyFiles()
    created(files)
    written = json.loads(files.contents()[MANIFEST_NAME])
    assert ("outrider store", 2, "whatwg-1") == (written["kind"], written["format"], written["spelling"])
    assert files.contents()[MANIFEST_NAME].count(b"\n") > 8


def test_an_empty_directory_has_no_manifest() -> None:
    files = FaultyFiles()
    files.lock()
    assert Manifest.load(files) is None


def test_the_remains_of_a_failed_creation_count_as_empty() -> None:
    files = FaultyFiles()
    files.put(MANIFEST_NAME + ".tmp", b"half")
    assert Manifest.load(files) is None
    assert created(files) == Manifest.load(files)
    assert [MANIFEST_NAME] == files.names()


def test_a_directory_with_other_content_is_foreign_and_left_alone() -> None:
    files = FaultyFiles()
    files.put("thesis.txt", b"mine")
    for call in (lambda: Manifest.load(files), lambda: created(files)):
        with pytest.raises(ForeignStoreError, match=r"contains 'thesis\.txt' but no manifest\.json; choose another"):
            call()
    assert {"thesis.txt": b"mine"} == files.contents()


def test_a_store_is_never_made_over_another() -> None:
    files = FaultyFiles()
    first = created(files)
    with pytest.raises(ForeignStoreError, match="has a manifest already"):
        created(files)
    assert first == Manifest.load(files)


@pytest.mark.parametrize("content", [b'{"name": "an npm package"}', b"[]", b"3", b'"text"', b"null"])
def test_the_manifest_of_another_program_is_foreign(content: bytes) -> None:
    files = FaultyFiles()
    files.put(MANIFEST_NAME, content)
    with pytest.raises(ForeignStoreError, match="not the manifest of an Outrider store"):
        Manifest.load(files)


def test_a_newer_format_is_refused_with_both_versions() -> None:
    files = FaultyFiles()
    created(files)
    files.put(MANIFEST_NAME, files.contents()[MANIFEST_NAME].replace(b'"format": 2', b'"format": 12'))
    with pytest.raises(ForeignStoreError, match="store format 12; this version opens up to 2"):
        Manifest.load(files)


def test_an_older_format_is_refused_with_both_versions_and_the_way_out() -> None:
    files = FaultyFiles()
    created(files)
    files.put(MANIFEST_NAME, files.contents()[MANIFEST_NAME].replace(b'"format": 2', b'"format": 1'))
    with pytest.raises(ForeignStoreError, match=r"store format 1; this version opens only format 2\. Export the"):
        Manifest.load(files)


def test_a_bit_flipped_anywhere_never_makes_another_manifest() -> None:
    """If the flip does not change the meaning (an escape's case, white space), the manifest is the same."""
    files = FaultyFiles()
    manifest = created(files)
    content = files.contents()[MANIFEST_NAME]
    refused = 0
    for at in range(len(content)):
        for bit in range(8):
            spoiled = bytearray(content)
            spoiled[at] ^= 1 << bit
            files.put(MANIFEST_NAME, bytes(spoiled))
            try:
                assert manifest == Manifest.load(files)
            except (DamagedStoreError, ForeignStoreError):
                refused += 1
    assert refused > 0.9 * 8 * len(content)


def test_a_manifest_cut_at_any_byte_is_refused_by_name() -> None:
    files = FaultyFiles()
    created(files)
    content = files.contents()[MANIFEST_NAME]
    for at in range(len(content) - 1):  # the last byte is the line's end
        files.put(MANIFEST_NAME, content[:at])
        with pytest.raises(DamagedStoreError, match=MANIFEST_NAME):
            Manifest.load(files)


@pytest.mark.parametrize("content", [b"[" * 60_000, b" " * 70_000, b"\xff\xfe", b"{" + b'"a":' * 10_000])
def test_hostile_content_is_refused_without_harm(content: bytes) -> None:
    files = FaultyFiles()
    files.put(MANIFEST_NAME, content)
    with pytest.raises(DamagedStoreError, match=MANIFEST_NAME):
        Manifest.load(files)


@pytest.mark.parametrize("name", ["store", "fingerprint_key", "slot_key"])
def test_an_invalid_key_is_refused(name: str) -> None:
    good = {"store": "0" * 32, "fingerprint_key": "0" * 32, "slot_key": "0" * 32}
    with pytest.raises(ValueError, match=f"{name} must be 32 hex digits"):
        Manifest(created="", spelling="", **{**good, name: "0" * 31 + "G"})


def test_a_crash_during_its_creation_leaves_all_of_it_or_an_empty_directory() -> None:
    rng = random.Random(1)
    for nth in range(1, 12):
        disk = CrashDisk()
        disk.fail(nth, errno.EIO, forever=True)
        manifest = None
        with contextlib.suppress(StoreError):
            manifest = created(disk)
        for image in disk.crash_images(rng, 4):
            found = Manifest.load(image)
            assert found is None or found.spelling == "whatwg-1"
            assert manifest is None or manifest == found
        if manifest is not None:
            return
    pytest.fail("creating makes more calls than were tried")


def test_rules_that_do_not_fit_into_the_manifest_are_refused_before_a_store_is_made() -> None:
    """A manifest that is longer than allowed could never be read again."""
    files = FaultyFiles()
    with pytest.raises(SettingsError, match="make url_rules shorter"):
        Manifest.create(
            files,
            store="00112233445566778899aabbccddeeff",
            created="2026-01-02T03:04:05.000Z",
            fingerprint_key="0f" * 16,
            slot_key="f0" * 16,
            spelling="whatwg-1",
            rules={"public_suffix": "2026-01-01", "url_rules": "x" * 65_536},
        )
    assert [] == files.names()


@pytest.mark.parametrize(
    ("slots", "ranges"),
    [({0}, "0"), ({1, 2, 3}, "1-3"), ({0, 1, 7, 9, 10}, "0-1,7,9-10"), (range(4096), "0-4095"), ({4095}, "4095")],
)
def test_slots_are_written_as_ranges_and_read_again(slots: set[int], ranges: str) -> None:
    assert ranges == slot_ranges(slots)
    assert frozenset(slots) == slots_of(ranges)


@pytest.mark.parametrize("ranges", ["x", "1-", "-1", "3-1", "4096", "0-9999", "1,,2", "1 ", "٣", "1-2-3"])
def test_a_text_that_is_no_slots_is_refused(ranges: str) -> None:
    with pytest.raises(ValueError, match="slots must be"):
        slots_of(ranges)
