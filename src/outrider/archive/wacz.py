"""WACZ files: one ZIP with WARC files, their index, a list of pages, and the digests of all of them.

    archive/NAME.warc.gz      stored, so that one ranged request returns one record
    pages/pages.jsonl         the pages that people look for
    indexes/index.cdx.gz      the lines of CDXJ, 1,024 per gzip member
    indexes/index.idx         the first key of each member, with its place
    datapackage.json          name, digest and length of each of these files
    datapackage-digest.json   the digest of that file

Each file is written once from its beginning to its end, so memory does not depend on their length.
Source: https://specs.webrecorder.net/wacz/1.1.1/
"""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from typing import IO, Any, BinaryIO, Final

from outrider.clock import Instant, rfc3339, seconds

VERSION: Final = "1.1.1"
ARCHIVE_FOLDER: Final = "archive/"
INDEX_FOLDER: Final = "indexes/"
PAGES_FILE: Final = "pages/pages.jsonl"
_INDEX: Final = "index.cdx.gz"
_INDEX_OF_MEMBERS: Final = "index.idx"
_LINES_PER_MEMBER: Final = 1_024
_FIRST_YEAR: Final = (1980, 1, 1, 0, 0, 0)  # of the dates in a ZIP


class WaczFile:
    """One file of a WACZ that is being written: `length` bytes so far."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._digest = hashlib.sha256()
        self.length = 0

    def write(self, octets: bytes) -> None:
        """Appends bytes. Raises OSError."""
        self._stream.write(octets)
        self._digest.update(octets)
        self.length += len(octets)

    @property
    def digest(self) -> str:
        """SHA-256, as a WACZ names it."""
        return f"sha256:{self._digest.hexdigest()}"


class WaczWriter:
    """Writes the files of a WACZ one after another, then `finish` writes the list of them."""

    def __init__(self, file: BinaryIO, at: Instant, software: str) -> None:
        """at: wall time, the date of all files."""
        self._zip = zipfile.ZipFile(file, "w")
        self._at = at
        self._software = software
        self._resources: list[dict[str, Any]] = []

    @contextmanager
    def file(self, path: str, *, packed: bool = False) -> Iterator[WaczFile]:
        """Opens the next file; it is complete when the block ends. packed: compressed inside the ZIP."""
        date = datetime.fromtimestamp(seconds(self._at), UTC).timetuple()[:6]
        info = zipfile.ZipInfo(path, max(date, _FIRST_YEAR))
        info.compress_type = zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED
        info.external_attr = 0o644 << 16
        with self._zip.open(info, "w", force_zip64=True) as stream:
            made = WaczFile(stream)
            yield made
        name = path.rpartition("/")[2].lower()
        self._resources.append({"name": name, "path": path, "hash": made.digest, "bytes": made.length})

    def index(self, lines: Iterable[bytes]) -> None:
        """Writes the index from its sorted lines."""
        meta = json.dumps({"format": "cdxj-gzip-1.0", "filename": _INDEX})
        members = [f"!meta 0 {meta}\n"]
        source = iter(lines)
        with self.file(INDEX_FOLDER + _INDEX) as index:
            while some := list(islice(source, _LINES_PER_MEMBER)):
                octets = zlib.compress(b"".join(some), wbits=31)
                key = some[0].partition(b" {")[0].decode("ascii")
                digest = f"sha256:{hashlib.sha256(octets).hexdigest()}"
                place = {"offset": index.length, "length": len(octets), "digest": digest}
                members.append(f"{key} {json.dumps(place)}\n")
                index.write(octets)
        with self.file(INDEX_FOLDER + _INDEX_OF_MEMBERS, packed=True) as file:
            for member in members:
                file.write(member.encode("ascii"))

    def finish(self, **about: str) -> None:
        """Writes the list of the files, and ends the ZIP. about: further fields of the list, such as `title`."""
        package = {
            "profile": "data-package",
            "resources": self._resources,
            **about,
            "created": rfc3339(self._at - self._at % 1_000_000)[:19] + "Z",
            "wacz_version": VERSION,
            "software": self._software,
        }
        with self.file("datapackage.json", packed=True) as file:
            file.write(json.dumps(package, indent=2).encode("ascii"))
            digest = file.digest
        with self.file("datapackage-digest.json", packed=True) as file:
            file.write(json.dumps({"path": "datapackage.json", "hash": digest}, indent=2).encode("ascii"))
        self._zip.close()
