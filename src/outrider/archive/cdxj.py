"""Lines of CDXJ, the index of web archives: a sort key, a time and JSON with the place of a record.

    org,example)/a 20260102030405 {"url": "http://example.org/a", "mime": "text/html", "status": "200", "digest":
    "sha1:…", "length": "4711", "offset": "0", "filename": "crawl-000000.warc.gz"}

The fields and their form are those of `cdxj-indexer`, so that both files may be merged. All values are texts.
Source: https://specs.webrecorder.net/cdxj/0.1.0/
"""

from __future__ import annotations

import json
import re
from typing import Final

from outrider.archive.warc_reader import ReadRecord
from outrider.url import archive_key

INDEXED: Final = frozenset({"response", "revisit"})
"""The kinds of our records that an index has."""
HEAD_BYTES_KEPT: Final = 1 << 18
"""How much of a block an index needs: heads of answers have less."""
_STATUS: Final = re.compile(rb"HTTP/[0-9.]+[ \t]+([^ \r\n]*)").match
_TYPE: Final = re.compile(rb"\r?\ncontent-type[ \t]*:[ \t]*([^\r\n]*)", re.IGNORECASE).search
_TYPE_END: Final = re.compile(r"[;\s]")
_HEAD_END: Final = re.compile(rb"\r?\n\r?\n").search
_REVISIT_TYPE: Final = "warc/revisit"
_STAMP: Final = re.compile(r"[^0-9]")


def cdxj_line(record: ReadRecord, file: str, offset: int) -> str:
    """Returns the line of a response or revisit, with its end. file, offset: the place that the line names."""
    fields = record.fields
    url = fields.get("warc-target-uri", "")
    found = {"url": url}
    end = _HEAD_END(record.block)
    head = record.block[: end.start()] if end is not None else record.block
    if record.kind == "revisit":
        found["mime"] = _REVISIT_TYPE
    elif (declared := _TYPE(head)) is not None:
        found["mime"] = _TYPE_END.split(declared[1].decode("latin-1"), maxsplit=1)[0]
    status = _STATUS(head)
    if status is not None:
        found["status"] = status[1].decode("latin-1")
    digest = fields.get("warc-payload-digest")
    if digest:  # a 304 has no payload of its own
        found["digest"] = digest
    found |= {"length": str(record.length), "offset": str(offset), "filename": file}
    return f"{archive_key(url)} {stamp_of(fields.get('warc-date', ''))} {json.dumps(found)}\n"


def stamp_of(date: str) -> str:
    """Returns a time of RFC 3339 as the 14 digits of an index."""
    return _STAMP.sub("", date)[:14]
