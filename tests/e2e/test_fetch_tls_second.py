"""Servers with which the fetch kernel cannot agree on TLS: libcurl is used in its place, once for each origin."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e import crawling
from e2e.hostile import Connection, Script, Site, answers, hostile
from outrider.clock import wall
from outrider.fetch.curl import CurlDownloader
from outrider.fetch.default_downloader import make_downloader
from outrider.fetch.downloader import Request, Response
from outrider.fetch.failures import FetchError
from outrider.fetch.tls_fallback import TlsFallback
from outrider.kernels import in_use

AGENT = "Outrider/0.1 (+https://example.org/bot)"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

pytestmark = [
    pytest.mark.skipif(shutil.which("openssl") is None, reason="the certificates are made by openssl"),
    pytest.mark.skipif(in_use() != "native", reason="without the fetch kernel libcurl is the first client"),
]


def openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=30)


def limited(folder: Path, kind: str) -> ssl.SSLContext:
    """The context of a server that supports nothing else, by a certificate of the folder's root."""
    key = ("ec", "-pkeyopt", "ec_paramgen_curve:secp521r1") if kind == "P-521 certificate" else ("rsa:2048",)
    names = [folder / f"{kind}.{end}" for end in ("key", "pem", "csr")]
    openssl("req", "-newkey", *key, "-nodes", "-subj", "/CN=old.test", "-keyout", names[0], "-out", names[2])
    signed = ("-CA", folder / "root.pem", "-CAkey", folder / "root.key", "-CAcreateserial", "-days", "2")
    openssl("x509", "-req", "-in", names[2], *signed, "-extfile", folder / "names", "-out", names[1])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(names[1], names[0])
    if kind in ("RSA key exchange", "CBC"):
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers("AES128-SHA" if kind == "RSA key exchange" else "ECDHE-RSA-AES128-SHA")
    elif kind == "P-521 curve":
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ecdh_curve("secp521r1")
    return context


KINDS = ["RSA key exchange", "CBC", "P-521 curve", "P-521 certificate"]


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[ssl.SSLContext, str]]:
    folder = tmp_path_factory.mktemp("old")
    (folder / "names").write_text("subjectAltName=DNS:old.test\n")
    root = folder / "root.pem"
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *curve, "-days", "2", "-subj", "/CN=Root", "-keyout", folder / "root.key", "-out", root)
    return {kind: (limited(folder, kind), str(root)) for kind in (*KINDS, "new")}


def fetched(context: tuple[ssl.SSLContext, str], script: Script, *requests: dict[str, Any], **made: Any) -> Any:
    """Returns the responses of these requests, one after another, and the site that sent them."""

    async def main() -> tuple[list[Response], Site, Any]:
        async with hostile(script, tls=context[0]) as site:
            downloader = make_downloader(clock=wall, ca_file=made.get("ca_file", context[1]))
            try:
                asked = [
                    Request(f"https://old.test:{site.port}/", "127.0.0.1", AGENT, connect_seconds=5, **more)
                    for more in requests
                ]
                return [await downloader.fetch(one) for one in asked], site, downloader
            finally:
                await downloader.close()

    return asyncio.run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_with_only_old_tls_is_fetched_by_libcurl(contexts: Any, kind: str) -> None:
    responses, site, _ = fetched(contexts[kind], answers(OK), {}, {})
    assert [(200, b"ok", "libcurl", None)] * 2 == [(r.status, r.content, r.client, r.error) for r in responses]
    assert 2 == len(site.requests)  # a failed handshake sent no request


def test_a_server_with_new_tls_is_fetched_by_the_kernel(contexts: Any) -> None:
    (response,), _, _ = fetched(contexts["new"], answers(OK), {})
    assert (200, None) == (response.status, response.client)


@pytest.mark.parametrize("kind", KINDS[:3])
def test_modern_tls_offers_no_server_old_ciphers(contexts: Any, kind: str) -> None:
    responses, site, _ = fetched(contexts[kind], answers(OK), {"modern_tls": True}, {"modern_tls": True})
    assert [(FetchError.TLS, None)] * 2 == [(one.error, one.client) for one in responses]
    assert [] == site.requests


def test_a_certificate_that_proves_nothing_is_not_shown_to_libcurl(contexts: Any) -> None:
    (response,), site, _ = fetched(contexts["new"], answers(OK), {}, ca_file=None)
    assert (FetchError.TLS, None, 0) == (response.error, response.client, len(site.requests))


def test_a_server_with_which_no_client_can_agree_is_tried_twice_once(contexts: Any) -> None:
    """The second client is tried once for each origin; the first one alone makes the next requests."""
    made: list[CurlDownloader] = []

    class Counted(CurlDownloader):
        asked = 0

        async def fetch(self, request: Request) -> Response:
            Counted.asked += 1
            return await super().fetch(request)

    async def main() -> list[Response]:
        async with hostile(closes) as site:
            first = make_downloader(clock=wall)
            assert isinstance(first, TlsFallback)

            def second() -> CurlDownloader:
                made.append(Counted(clock=wall))
                return made[0]

            first._make_second = second
            try:
                request = Request(f"https://old.test:{site.port}/", "127.0.0.1", AGENT, connect_seconds=5)
                return [await first.fetch(request) for _ in range(3)]
            finally:
                await first.close()

    async def closes(connection: Connection) -> None:
        await connection.reader.read(100)

    responses = asyncio.run(main())
    assert [FetchError.TLS] * 3 == [one.error for one in responses]
    assert (1, 1) == (len(made), Counted.asked)


@pytest.mark.parametrize(("tls", "outcome"), [("compatible", "done"), ("modern", "error")])
def test_a_crawl_says_which_client_fetched_a_page(contexts: Any, tmp_path: Path, tls: str, outcome: str) -> None:
    page = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 19\r\n\r\n<title>here</title>"
    context, root = contexts["RSA key exchange"]
    (tmp_path / "hosts").write_text("127.0.0.1 old.test\n")

    async def main() -> int:
        async with hostile(answers(page), tls=context) as site:
            done = await asyncio.to_thread(
                crawling.outrider,
                *("crawl", f"https://old.test:{site.port}/", "-o", str(tmp_path / "out"), "--ca", root, "--delay", "0"),
                *("--hosts", str(tmp_path / "hosts"), "--no-sitemaps", "--progress", "none", "--retries", "0"),
                *("--tls", tls, "--max-seconds", "8", "--robots-unreachable", "open"),
            )
            assert done.returncode in (0, 3), done.stderr
            return len(site.requests)

    requests = asyncio.run(main())
    lines = crawling.pages(tmp_path / "out")
    if outcome == "done":
        assert [("done", "libcurl")] == [(line["outcome"], line.get("tls")) for line in lines]
        assert 2 == requests == len(crawling.lines(tmp_path / "out" / "politeness.jsonl"))
    else:
        assert (0, []) == (requests, [line for line in lines if line["outcome"] == "done"])


def test_trains_continue_with_libcurl(contexts: Any) -> None:
    """The fetches after one that needs the second client are cancelled; the next train runs whole."""

    async def main() -> list[Any]:
        async with hostile(answers(OK), tls=contexts["CBC"][0]) as site:
            downloader: Any = make_downloader(clock=wall, ca_file=contexts["CBC"][1])
            ended: asyncio.Queue[Any] = asyncio.Queue()
            told: Callable[[Any, Any], None] = lambda tag, answer: ended.put_nowait((tag, answer))  # noqa: E731
            request = Request(f"https://old.test:{site.port}/", "127.0.0.1", AGENT)
            found = []
            for train in ("abc", "def"):
                downloader.begin([(tag, request) for tag in train], told)
                found += sorted([await ended.get() for _ in train], key=lambda one: one[0])
            await downloader.close()
            return [(tag, answer and answer.status) for tag, answer in found]

    assert [("a", 200), ("b", None), ("c", None), ("d", 200), ("e", 200), ("f", 200)] == asyncio.run(main())
