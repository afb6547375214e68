"""WARC and ARC files of warcio and webarchive-commons (`../shared/data/warc`): we find what their manifest says."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import zlib
from base64 import b32encode
from pathlib import Path
from typing import Any

import pytest

from outrider import Frontier
from outrider.archive.warc_reader import Damage, ReadRecord, read_records
from outrider.crawl.orders.exchange import import_files
from outrider.crawl.questions.captures import _content, _parted, form_of_archive
from outrider.url import normalize

pytestmark = pytest.mark.conformance
FILES = 20
READ_FURTHER = {
    # warcio stops at these places: one member with several records is followed by others, an ARC line has two blanks,
    # a head begins without a version.
    "warcio/example-bad.warc.gz.bad",
    "webarchive-commons/IAH-20080430204825-00000-blackbook-truncated.arc",
    "webarchive-commons/link-extraction-test.warc",
}


def octets_of(path: Path) -> bytes:
    """The bytes of a file. Those with an ending `.gz` are packed once more beside the project."""
    octets = path.read_bytes()
    try:
        return gzip.decompress(octets) if ".gz" in path.name else octets
    except (OSError, EOFError, zlib.error):
        return octets


@pytest.fixture(scope="module")
def manifest(shared: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((shared / "data/warc/manifest.json").read_text("utf-8"))
    assert FILES == len(found)
    return found


def content_of(record: ReadRecord) -> bytes:
    if record.kind not in ("response", "request", "revisit"):
        return record.block
    _, headers, body = _parted(record)
    return _content(headers, body)


def as_listed(record: ReadRecord) -> tuple[str, str | None, int, str]:
    content = content_of(record)
    uri = record.fields.get("warc-target-uri")
    if record.kind == "resource" and uri is not None:
        uri = uri.replace(" ", "%20")
    return record.kind, uri, len(content), b32encode(hashlib.sha1(content).digest()).decode()


def test_each_file_has_the_records_of_the_manifest(shared: Path, manifest: list[dict[str, Any]]) -> None:
    for entry in manifest:
        found = list(read_records(io.BytesIO(octets_of(shared / "data/warc" / entry["file"])), 1 << 24))
        # warcio reads some lines of the head of an ARC as fields.
        records = [as_listed(one) for one in found if isinstance(one, ReadRecord) and one.kind != "arc_header"]
        entries = [one for one in entry["records"] if one["type"] != "arc_header"]
        listed = [(one["type"], one["uri"], one["payload_len"], one["payload_sha1"]) for one in entries]
        assert listed == records[: len(listed)], entry["file"]
        assert (len(listed) < len(records)) == (entry["file"] in READ_FURTHER), entry["file"]
        damaged = any(isinstance(one, Damage) for one in found)
        assert damaged or entry["error"] is None or entry["file"] in READ_FURTHER, entry["file"]


@pytest.mark.parametrize("kind", [".warc.gz", ".warc", ".arc", ".arc.gz"])
def test_each_capture_is_imported_with_its_status_and_digest(
    shared: Path, manifest: list[dict[str, Any]], tmp_path: Path, kind: str
) -> None:
    count = 0
    for number, entry in enumerate(manifest):
        if form_of_archive(entry["file"].removesuffix(".bad")) != kind:
            continue
        path = tmp_path / f"{number}{kind}"
        path.write_bytes(octets_of(shared / "data/warc" / entry["file"]))
        import_files(str(tmp_path / str(number)), [str(path)], io.StringIO())
        frontier = Frontier.look(str(tmp_path / str(number) / "frontier"))
        records = {one["url"]: one for one in frontier.records()}
        frontier.close()
        wanted = {
            normalize(one["uri"]): one
            for one in entry["records"]
            if one["type"] == "response" and str(one["uri"]).startswith("http")
        }
        for url, one in wanted.items():
            record = records[url]
            assert one["status"] == str(record["status"]), url
            if one["status"] == "200" and one["payload_len"]:
                digest = b32encode(bytes.fromhex(record["digest"])).decode()
                assert one["payload_sha1"] == digest, url
            count += 1
    assert count
