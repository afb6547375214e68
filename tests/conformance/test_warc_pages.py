"""Real pages through the archive: other tools' readers return each of them byte for byte."""

from __future__ import annotations

import gzip
import random
import tarfile
from pathlib import Path

import pytest
from fastwarc.warc import ArchiveIterator as FastIterator
from warcio.archiveiterator import ArchiveIterator
from warcio.checker import Checker

from outrider.archive.warc import Exchange, WarcWriter
from outrider.storage.files import Directory

pytestmark = pytest.mark.conformance


class Inputs:
    """The arguments of the checker in warcio's command line."""

    verbose = False

    def __init__(self, names: list[str]) -> None:
        self.inputs = names


def test_real_pages_are_returned_byte_for_byte(
    shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pages: dict[str, bytes] = {}
    with tarfile.open(shared / "data/html/real-pages/pages.tar.xz") as archive:
        for member in archive:
            source = archive.extractfile(member)
            if source is not None:
                pages[f"http://site.test/{member.name.replace(' ', '%20')}"] = source.read()
    assert pages
    writer = WarcWriter(
        Directory(tmp_path),
        prefix="pages",
        software="outrider",
        random_bytes=random.Random(1).randbytes,
        roll_bytes=1_000_000,
    )
    for number, (url, content) in enumerate(pages.items()):
        body, head = content, b"HTTP/1.1 200 OK\r\n\r\n"
        if number % 3 == 1:
            body, head = gzip.compress(content), b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n"
        elif number % 3 == 2:
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(content), content)
            head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.add(Exchange(url, "192.0.2.1", 1_767_323_045_000_000 + number, b"GET / HTTP/1.1\r\n\r\n", head, body))
    writer.sync()
    writer.close()
    names = sorted(str(path) for path in tmp_path.glob("*.warc.gz"))
    assert len(names) > 1
    assert (0, "") == (Checker(Inputs(names)).process_all(), capsys.readouterr().out)
    by_warcio: dict[str, bytes] = {}
    by_fastwarc: dict[str, bytes] = {}
    for name in names:
        with open(name, "rb") as stream:
            for record in ArchiveIterator(stream):
                if record.rec_type == "response":
                    by_warcio[record.rec_headers.get_header("WARC-Target-URI")] = record.content_stream().read()
        with open(name, "rb") as stream:
            for found in FastIterator(stream):
                if found.headers["WARC-Type"] == "response":
                    by_fastwarc[found.headers["WARC-Target-URI"]] = _undone(found.http_headers, found.reader.read())
    assert (pages, pages) == (by_warcio, by_fastwarc)


def _undone(headers: object, body: bytes) -> bytes:
    fields = dict(headers)  # type: ignore[call-overload]
    if fields.get("Content-Encoding") == "gzip":
        return gzip.decompress(body)
    if fields.get("Transfer-Encoding") == "chunked":
        size, _, rest = body.partition(b"\r\n")
        return rest[: int(size, 16)]
    return body
