"""The page that draws the files agrees with the code: its examples are built and compared byte by byte."""

from __future__ import annotations

import json
import re
import struct
import sys
from pathlib import Path

from outrider import Frontier
from outrider.kernels import crc32c, pack_frames
from outrider.sim.disk import FaultyFiles
from outrider.storage.checkpoint import CheckpointWriter, checkpoint_name
from outrider.storage.log import MIRROR_NAME, Log, segment_name
from outrider.storage.manifest import MANIFEST_NAME, Manifest

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PAGE = (Path(__file__).parents[2] / "docs" / "formats" / "frames.md").read_text()
STORE = bytes(range(16))


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found.group(1)


def crc(data: bytes) -> bytes:
    return struct.pack("<I", crc32c(data))


def test_the_frame_on_the_page_is_the_written_frame() -> None:
    assert bytes.fromhex(block("frame")) == pack_frames([(1, 0, 1, 2, 1, 0, b"abc")])


def test_the_manifest_on_the_page_is_the_written_manifest() -> None:
    files = FaultyFiles()
    Manifest.create(
        files,
        store="00112233445566778899aabbccddeeff",
        created="2026-01-02T03:04:05.000Z",
        fingerprint_key="0f" * 16,
        slot_key="f0" * 16,
        spelling="1",
        rules={"public_suffix_list": "2026-01-02_03-04-05_UTC", "url_rules": "1:"},
    )
    assert block("json") == files.contents()[MANIFEST_NAME].decode()


def test_the_manifest_on_the_page_has_the_names_that_a_frontier_writes() -> None:
    files = FaultyFiles()
    Frontier.open(files, robots="caller").close()
    written = json.loads(files.contents()[MANIFEST_NAME])
    drawn = json.loads(block("json"))
    assert (written.keys(), written["rules"].keys()) == (drawn.keys(), drawn["rules"].keys())
    assert (written["spelling"], written["rules"]["url_rules"]) == (drawn["spelling"], drawn["rules"]["url_rules"])


def test_a_segment_is_drawn_as_it_is_written() -> None:
    files = FaultyFiles()
    log = Log.open(files, store=STORE, epoch=7, segment_bytes_first=1024)
    log.append(2, b"abc")
    header = b"ORlog\r\n\x1a" + struct.pack("<II", 1, 7) + STORE + struct.pack("<Q", 1) + bytes(20)
    frame = pack_frames([(1, 0, 7, 2, 1, 0, b"abc")])
    expected = header + crc(header) + frame + bytes(1024 - 64 - len(frame))
    assert expected == files.contents()[segment_name(1)]


def test_the_mirror_is_drawn_as_it_is_written() -> None:
    files = FaultyFiles()
    log = Log.open(files, store=STORE, epoch=7, segment_bytes_first=1024)
    log.append(2, b"abc")
    log.sync()
    written = files.contents()[MIRROR_NAME]
    slots = {written[at : at + 36] for at in (0, 4096)}
    expected = {b"ORsync\r\n" + STORE + struct.pack("<Q", lsn) for lsn in (0, 1)}
    assert {slot + crc(slot) for slot in expected} == slots


def test_a_checkpoint_is_drawn_as_it_is_written() -> None:
    files = FaultyFiles()
    writer = CheckpointWriter(files, store=STORE, number=3, start_lsn=9)
    writer.add(4096, 2, 5, 11, b"rows")
    writer.add(1, 3, 0, 10, b"")
    writer.add(4096, 2, 9, 11, bytes(1_000))
    writer.finish(11)
    header = b"ORckp\r\n\x1a" + struct.pack("<II", 2, 0) + STORE + struct.pack("<QQ", 3, 9) + bytes(12)
    one = b"rnge" + struct.pack("<IIIQQQ", 4, 4096, 2, 5, 11, 0)
    two = b"rnge" + struct.pack("<IIIQQQ", 0, 1, 3, 0, 10, 1)
    one_crc, two_crc = crc(one + b"rows"), crc(two)
    found = files.contents()[checkpoint_name(3)]
    at = 64 + 44 + 4 + 44
    assert header + crc(header) + one + one_crc + b"rows" + two + two_crc == found[:at]
    packed = found[at + 44 : -36]
    assert zstd.decompress(packed) == bytes(1_000)
    three = b"rngz" + struct.pack("<IIIQQQ", len(packed), 4096, 2, 9, 11, 2)
    three_crc = crc(three + packed)
    assert three + three_crc == found[at : at + 44]
    footer = b"foot" + crc(one_crc + two_crc + three_crc) + struct.pack("<QQQ", 3, 4 + len(packed), 11)
    assert footer + crc(footer) == found[-36:]
