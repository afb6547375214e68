"""Signed requests of a crawl over TLS, from the command line: a second library verifies the bytes that arrived."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from http_message_signatures import HTTPMessageVerifier, HTTPSignatureKeyResolver, algorithms

from e2e import crawling
from e2e.hostile import Connection, hostile
from outrider.identity.signing_key import SigningKey, read_key

HOSTS = ("site.test", "other.test")
LINKS = b"<title>t</title><a href='/x?q=1'>x</a>"
PAGE = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%b" % (len(LINKS), LINKS)
REDIRECT = "HTTP/1.1 302 Found\r\nLocation: https://other.test:{}/there\r\nContent-Length: 0\r\n\r\n"


def server_context(folder: Path) -> ssl.SSLContext:
    """A context for both hosts, by the certificate authority `root.pem` of the folder."""

    root, site = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    (folder / "root.pem").write_bytes(certificate(root, "Root", root, x509.BasicConstraints(ca=True, path_length=None)))
    names = x509.SubjectAlternativeName([x509.DNSName(name) for name in HOSTS])
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


class Arrived(NamedTuple):
    """A request as it arrived."""

    method: str
    url: str
    headers: dict[str, str]

    @classmethod
    def of(cls, head: bytes) -> Arrived:
        first, *lines = head.decode().split("\r\n\r\n")[0].split("\r\n")
        method, path, _ = first.split(" ")
        headers = dict(line.split(": ", 1) for line in lines)
        return cls(method, f"https://{headers['Host']}{path}", headers)


async def redirecting(connection: Connection) -> None:
    """The first page of site.test redirects to other.test. Any other page has one link."""
    while True:
        asked = Arrived.of(await connection.request())
        port = asked.headers["Host"].partition(":")[2]
        leads = asked.url.startswith("https://site.test") and asked.url.endswith(f":{port}/")
        await connection.send(REDIRECT.format(port).encode() if leads else PAGE)


def crawled(folder: Path, *words: str) -> tuple[list[Arrived], SigningKey, str]:
    """Crawls both hosts over TLS with an identity. Returns the requests, the key and what the crawl printed."""
    context, me = server_context(folder), str(folder / "me")
    (folder / "hosts").write_text(f"127.0.0.1 {' '.join(HOSTS)}\n")
    made = crawling.outrider("identity", "init", me, "--url", "https://bot.example", "--contact", "a@b.test")
    assert 0 == made.returncode, made.stderr

    async def main() -> tuple[list[bytes], str]:
        async with hostile(redirecting, tls=context) as site:
            done = await asyncio.to_thread(
                crawling.outrider,
                *("crawl", f"https://site.test:{site.port}/", "-o", str(folder / "out"), "--delay", "0"),
                *("--ca", str(folder / "root.pem"), "--hosts", str(folder / "hosts"), "--max-pages", "3"),
                *("--scope", "any", "--identity", me, "--sign", "always", *words),
            )
            assert done.returncode in (0, 3), done.stderr
            return site.requests, done.stderr

    heads, told = asyncio.run(main())
    return [Arrived.of(head) for head in heads], read_key(f"{me}/key.pem"), told


def verifier_of(key: SigningKey) -> HTTPMessageVerifier:
    return HTTPMessageVerifier(signature_algorithm=algorithms.ED25519, key_resolver=Keys(key.public))


@pytest.mark.parametrize("form", ["keys", "origin", "string"])
def test_each_request_over_tls_is_verified_also_after_a_redirect(tmp_path: Path, form: str) -> None:
    requests, key, told = crawled(tmp_path, "--signature-agent", form)
    for one in requests:
        found = verifier_of(key).verify(one, max_age=timedelta(minutes=1), expect_tag="web-bot-auth")
        assert key.id == found[0].parameters["keyid"]
    assert set(HOSTS) == {one.headers["Host"].partition(":")[0] for one in requests}
    assert f"{len(requests)} requests signed with {len(requests)} signatures" in told
