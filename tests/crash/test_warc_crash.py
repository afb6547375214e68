"""The archive and the line files on a disk that forgets unsynced bytes: acknowledged records are there, once."""

from __future__ import annotations

import random
import zlib

import pytest

from outrider.archive.projection import Projection
from outrider.archive.warc import Exchange, WarcPlace, WarcWriter, Watermark, read_record
from outrider.sim.disk import CrashDisk
from outrider.storage.files import Files


def exchange(number: int, size: int) -> Exchange:
    body = random.Random(number).randbytes(size)
    return Exchange(f"http://site.test/{number}", "192.0.2.1", number, b"GET\r\n\r\n", b"HTTP/1.1 200\r\n\r\n", body)


def opened(files: Files, watermark: Watermark | None, seed: int) -> WarcWriter:
    return WarcWriter.open_at(
        files, watermark, prefix="w", software="s", random_bytes=random.Random(seed).randbytes, roll_bytes=3_000
    )


def targets(disk: CrashDisk) -> list[str]:
    """The targets of all response records of all files, read member by member as gzip has them."""
    found = []
    for _, data in sorted(disk.contents().items()):
        while data:
            inflater = zlib.decompressobj(31)
            record = inflater.decompress(data)
            assert inflater.eof
            data = inflater.unused_data
            if b"WARC-Type: response" in record:
                found.append(record.partition(b"WARC-Target-URI: ")[2].partition(b"\r\n")[0].decode())
    return found


@pytest.mark.parametrize("seed", range(25))
def test_records_below_the_watermark_survive_any_crash_once(seed: int) -> None:
    rng = random.Random(seed)
    disk = CrashDisk()
    watermark: Watermark | None = None
    kept: dict[int, WarcPlace] = {}
    number = 0
    for life in range(4):
        writer = opened(disk, watermark, seed * 10 + life)
        pending: dict[int, WarcPlace] = {}
        for _ in range(rng.randrange(1, 12)):
            if rng.random() < 0.3:
                writer.sync()
                watermark = writer.watermark
                kept |= pending
                pending = {}
            else:
                number += 1
                pending[number] = writer.add(exchange(number, rng.choice((0, 100, 2_000))))
        writer.close()
        for image in disk.crash_images(random.Random(rng.random()), 4):
            survivor = opened(image, watermark, 999)
            for known, place in kept.items():
                assert exchange(known, 0).url == read_record(image, place).fields["warc-target-uri"]
            assert [exchange(known, 0).url for known in kept] == targets(image)
            place = survivor.add(exchange(0, 50))
            survivor.sync()
            assert "http://site.test/0" == read_record(image, place).fields["warc-target-uri"]
            survivor.close()
        disk = next(disk.crash_images(random.Random(seed), 1))


@pytest.mark.parametrize("seed", range(25))
def test_lines_below_the_length_survive_any_crash_once(seed: int) -> None:
    rng = random.Random(seed)
    disk = CrashDisk()
    length = 0
    whole = b""
    for _ in range(4):
        lines = Projection(disk, "pages.jsonl")
        lines.open_at(length)
        written = whole
        for _ in range(rng.randrange(1, 12)):
            if rng.random() < 0.3:
                lines.sync()
                length, whole = lines.length, written
            else:
                batch = [b"x" * rng.randrange(40) for _ in range(rng.randrange(4))]
                lines.append(batch)
                written += b"".join(line + b"\n" for line in batch)
        lines.close()
        for image in disk.crash_images(random.Random(rng.random()), 4):
            again = Projection(image, "pages.jsonl")
            again.open_at(length)
            again.append([b"last"])
            assert whole + b"last\n" == image.contents()["pages.jsonl"]
            again.close()
        disk = next(disk.crash_images(random.Random(seed), 1))
