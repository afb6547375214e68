#!/bin/sh
# warcio and fastwarc compute the payload digest of an HTTP response over its chunks.
#
# WARC 1.1 section 5.9 and RFC 9112 section 7: the payload is the content without transfer codings. A record whose
# payload digest is that of the content is called wrong by both, one with the digest of the chunks right.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet warcio==1.8.1 fastwarc==2.0.1
"$folder/venv/bin/python" - "$folder" <<'PROGRAM'
import base64, hashlib, io, subprocess, sys
from importlib.metadata import version
from fastwarc.warc import ArchiveIterator

def shown(octets):
    return "sha1:" + base64.b32encode(hashlib.sha1(octets).digest()).decode()

head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
framed, content = b"5\r\nhello\r\n0\r\n\r\n", b"hello"

def record(payload):
    block = head + framed
    fields = (
        "WARC/1.1\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:00000000-0000-4000-8000-000000000000>\r\n"
        "WARC-Date: 2026-01-01T00:00:00Z\r\nWARC-Target-URI: http://site.test/\r\n"
        f"WARC-Block-Digest: {shown(block)}\r\nWARC-Payload-Digest: {shown(payload)}\r\n"
        f"Content-Type: application/http; msgtype=response\r\nContent-Length: {len(block)}\r\n\r\n"
    )
    return fields.encode() + block + b"\r\n\r\n"

found = {}
for name, payload in (("the content", content), ("the chunks", framed)):
    path = f"{sys.argv[1]}/{name.replace(' ', '-')}.warc"
    with open(path, "wb") as file:
        file.write(record(payload))
    command = [f"{sys.argv[1]}/venv/bin/warcio", "check", "-v", path]
    checked = subprocess.run(command, capture_output=True, text=True)
    for one in ArchiveIterator(io.BytesIO(record(payload))):
        found[name] = ("payload digest failed" not in checked.stdout, one.verify_payload_digest())
    print(f"digest of {name}: warcio says {found[name][0]}, fastwarc says {found[name][1]}")
print("warcio", version("warcio"), "fastwarc", version("fastwarc"))
assert found == {"the content": (False, False), "the chunks": (True, True)}, "this has changed"
PROGRAM
