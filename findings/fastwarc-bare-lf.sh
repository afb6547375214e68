#!/bin/sh
# FastWARC reads no fields and no content of an HTTP answer whose head lines end with a bare LF, unless quirks_mode is set.
#
# RFC 9112 section 2.2: a recipient may recognise a single LF as a line terminator. Clients do, so archives contain such
# answers.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet fastwarc==2.0.1
"$folder/venv/bin/python" - <<'PROGRAM'
import io
from importlib.metadata import version
from fastwarc.warc import ArchiveIterator

block = b"HTTP/1.1 200 OK\nContent-Type: text/html\n\nhello"
fields = (
    "WARC/1.1\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:00000000-0000-4000-8000-000000000000>\r\n"
    "WARC-Date: 2026-01-01T00:00:00Z\r\nWARC-Target-URI: http://site.test/\r\n"
    f"Content-Type: application/http; msgtype=response\r\nContent-Length: {len(block)}\r\n\r\n"
)
found = {}
for quirks in (False, True):
    for record in ArchiveIterator(io.BytesIO(fields.encode() + block + b"\r\n\r\n"), quirks_mode=quirks):
        found[quirks] = (dict(record.http_headers.asdict()), record.reader.read())
        print(f"quirks_mode={quirks}: fields {found[quirks][0]}, content {found[quirks][1]!r}")
print("fastwarc", version("fastwarc"))
assert found == {False: ({}, b""), True: ({"Content-Type": "text/html"}, b"hello")}, "this has changed"
PROGRAM
