"""Signed requests of a crawl over TLS, from the command line: a second library verifies the bytes that arrived."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from http_message_signatures import HTTPMessageVerifier, HTTPSignatureKeyResolver, algorithms

from e2e import crawling
from e2e.hostile import answers, hostile
from outrider.identity.signing_key import read_key

PAGE = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 31\r\n\r\n<title>t</title><a href=/x>x</a>"[:-1]

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="the certificates are made by openssl")


def server_context(folder: Path) -> ssl.SSLContext:
    """A context for site.test, by the certificate authority `root.pem` of the folder."""

    def openssl(*arguments: object) -> None:
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=30)

    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    root, site, names = folder / "root", folder / "site", folder / "names"
    names.write_text("subjectAltName=DNS:site.test\n")
    openssl("req", "-x509", *curve, "-days", 2, "-subj", "/CN=Root", "-keyout", f"{root}.key", "-out", f"{root}.pem")
    openssl("req", *curve, "-subj", "/CN=site.test", "-keyout", f"{site}.key", "-out", f"{site}.csr")
    signed = ("-CA", f"{root}.pem", "-CAkey", f"{root}.key", "-CAcreateserial", "-days", 2, "-extfile", names)
    openssl("x509", "-req", "-in", f"{site}.csr", *signed, "-out", f"{site}.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{site}.pem", f"{site}.key")
    return context


class Keys(HTTPSignatureKeyResolver):
    """The public half of one key."""

    def __init__(self, public: bytes) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        self._public = Ed25519PublicKey.from_public_bytes(public)

    def resolve_public_key(self, key_id: str) -> Any:
        return self._public

    def resolve_private_key(self, key_id: str) -> Any:
        raise AssertionError(key_id)


class Arrived:
    """A request as it arrived."""

    def __init__(self, head: bytes) -> None:
        first, *lines = head.decode().split("\r\n\r\n")[0].split("\r\n")
        self.method, path, _ = first.split(" ")
        self.headers = dict(line.split(": ", 1) for line in lines)
        self.url = f"https://{self.headers['Host']}{path}"


@pytest.mark.parametrize("form", ["keys", "string"])
def test_each_request_over_tls_is_verified(tmp_path: Path, form: str) -> None:
    context = server_context(tmp_path)
    (tmp_path / "hosts").write_text("127.0.0.1 site.test\n")
    me = str(tmp_path / "me")
    made = crawling.outrider("identity", "init", me, "--url", "https://bot.example", "--contact", "a@b.test")
    assert 0 == made.returncode, made.stderr

    async def main() -> tuple[list[bytes], str]:
        async with hostile(answers(PAGE), tls=context) as site:
            done = await asyncio.to_thread(
                crawling.outrider,
                *("crawl", f"https://site.test:{site.port}/", "-o", str(tmp_path / "out"), "--delay", "0"),
                *("--ca", str(tmp_path / "root.pem"), "--hosts", str(tmp_path / "hosts"), "--max-pages", "2"),
                *("--identity", me, "--sign", "always", "--signature-agent", form),
            )
            assert done.returncode in (0, 3), done.stderr
            return site.requests, done.stderr

    requests, told = asyncio.run(main())
    key = read_key(f"{me}/key.pem")
    verifier = HTTPMessageVerifier(signature_algorithm=algorithms.ED25519, key_resolver=Keys(key.public))
    assert len(requests) > 2
    for head in requests:
        found = verifier.verify(Arrived(head), max_age=timedelta(minutes=1), expect_tag="web-bot-auth")
        assert key.id == found[0].parameters["keyid"]
    assert f"{len(requests)} requests signed with {len(requests)} signatures" in told
