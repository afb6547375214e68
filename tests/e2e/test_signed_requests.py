"""Signed requests of a crawl over TLS, from the command line: a second library verifies the bytes that arrived."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from http_message_signatures import HTTPMessageVerifier, HTTPSignatureKeyResolver, algorithms

from e2e import crawling
from e2e.hostile import answers, hostile
from outrider.identity.signing_key import read_key

PAGE = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 31\r\n\r\n<title>t</title><a href=/x>x</a>"[:-1]


def server_context(folder: Path) -> ssl.SSLContext:
    """A context for site.test, by the certificate authority `root.pem` of the folder."""

    root, site = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    (folder / "root.pem").write_bytes(certificate(root, "Root", root, x509.BasicConstraints(ca=True, path_length=None)))
    names = x509.SubjectAlternativeName([x509.DNSName("site.test")])
    (folder / "site.pem").write_bytes(certificate(site, "site.test", root, names))
    form = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "site.key").write_bytes(site.private_bytes(*form))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "site.pem", folder / "site.key")
    return context


def certificate(
    key: ec.EllipticCurvePrivateKey, name: str, root: ec.EllipticCurvePrivateKey, extension: x509.ExtensionType
) -> bytes:
    """A certificate of a key by the authority `Root`, for a day before and after now: TLS reads the clock."""
    subject, issuer = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, one)]) for one in (name, "Root"))
    now, day = datetime.now(UTC), timedelta(days=1)
    made = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number(), now - day, now + day)
    made = made.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
    return made.sign(root, hashes.SHA256()).public_bytes(Encoding.PEM)


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
