"""Signed requests of a crawl over TLS, from the command line: a second library verifies the bytes that arrived."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from http_message_signatures import HTTPMessageVerifier, HTTPSignatureKeyResolver, algorithms

from e2e import crawling
from e2e.certificates import AUTHORITY_FILE, server_context
from e2e.hostile import Connection, hostile
from outrider.identity.signing_key import SigningKey, read_key

HOSTS = ("site.test", "other.test")
LINKS = b"<title>t</title><a href='/x?q=1'>x</a>"
PAGE = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%b" % (len(LINKS), LINKS)
REDIRECT = "HTTP/1.1 302 Found\r\nLocation: https://other.test:{}/there\r\nContent-Length: 0\r\n\r\n"


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
    context, me = server_context(folder, HOSTS), str(folder / "me")
    (folder / "hosts").write_text(f"127.0.0.1 {' '.join(HOSTS)}\n")
    made = crawling.outrider("identity", "init", me, "--url", "https://bot.example", "--contact", "a@b.test")
    assert 0 == made.returncode, made.stderr

    async def main() -> tuple[list[bytes], str]:
        async with hostile(redirecting, tls=context) as site:
            done = await asyncio.to_thread(
                crawling.outrider,
                *("crawl", f"https://site.test:{site.port}/", "-o", str(folder / "out"), "--delay", "0"),
                *("--ca", str(folder / AUTHORITY_FILE), "--hosts", str(folder / "hosts"), "--max-pages", "3"),
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
