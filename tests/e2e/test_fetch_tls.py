"""Fetching over TLS: the certificate must prove the name, to a root that is trusted; a throw-away root says so here."""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from e2e.downloaders import each_downloader, new  # noqa: F401 - a fixture
from e2e.hostile import Connection, answers, hostile
from outrider.errors import SettingsError
from outrider.fetch.curl import _Roots
from outrider.fetch.downloader import Request, Response
from outrider.fetch.failures import FetchError
from outrider.fetch.roots import roots_pem

AGENT = "Outrider/0.1 (+https://example.org/bot)"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")

pytestmark = [
    pytest.mark.usefixtures("each_downloader"),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="the certificates are made by openssl"),
]


def openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=30)


@dataclass(frozen=True)
class Authority:
    """A root of trust in a folder, and servers' certificates signed by it."""

    folder: Path

    @property
    def root(self) -> str:
        return str(self.folder / "root.pem")

    def found(self) -> None:
        extensions = ("-addext", "basicConstraints=critical,CA:TRUE", "-days", "2", "-subj", "/CN=Throw-away Root")
        openssl("req", "-x509", *EC, "-keyout", self.folder / "root.key", "-out", self.root, *extensions)

    def server(self, name: str, *, days: int = 1, self_signed: bool = False) -> ssl.SSLContext:
        key, request, certificate = (self.folder / f"{name}.{end}" for end in ("key", "csr", "pem"))
        extension = self.folder / f"{name}.ext"
        extension.write_text(f"subjectAltName=DNS:{name}\n")
        openssl("req", *EC, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        signer = ("-signkey", key) if self_signed else ("-CA", self.root, "-CAkey", self.folder / "root.key")
        serial = () if self_signed else ("-CAcreateserial",)
        openssl(
            *("x509", "-req", "-in", request, *signer, *serial, "-days", str(days)),
            *("-extfile", extension, "-out", certificate),
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        return context


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("authority"))
    made.found()
    return made


def fetch(context: ssl.SSLContext, name: str, ca_file: str | None, times: int = 1) -> list[Response]:
    async def main() -> list[Response]:
        async with hostile(answers(OK), tls=context) as site:
            downloader = new(ca_file=ca_file)
            try:
                request = Request(f"https://{name}:{site.port}/", "127.0.0.1", AGENT, connect_seconds=5)
                return [await downloader.fetch(request) for _ in range(times)]
            finally:
                await downloader.close()

    return asyncio.run(main())


def test_a_certificate_of_a_root_that_the_user_added(authority: Authority) -> None:
    (response,) = fetch(authority.server("good.test"), "good.test", authority.root)
    assert (200, None, b"ok") == (response.status, response.error, response.content)


def test_without_the_users_root_the_same_certificate_proves_nothing(authority: Authority) -> None:
    (response,) = fetch(authority.server("good.test"), "good.test", None)
    assert (FetchError.TLS, None, b"") == (response.error, response.status, response.request_head)


def test_the_usual_roots_stay_trusted_in_addition_to_the_users(authority: Authority) -> None:
    import certifi

    merged = roots_pem(authority.root)
    assert Path(certifi.where()).read_bytes() + b"\n" + Path(authority.root).read_bytes() == merged


def test_an_exception_accepts_any_certificate_and_no_other_origin_profits(authority: Authority) -> None:
    """Neither the kept connection nor the session of an unverified request serves a verified one."""

    async def main() -> list[Response]:
        async with hostile(answers(OK), tls=authority.server("old.test", days=-1)) as site:
            downloader = new()
            try:
                requests = [
                    Request(f"https://other.test:{site.port}/", "127.0.0.1", AGENT, verified=verified)
                    for verified in (True, False, False, True)
                ]
                return [await downloader.fetch(request) for request in requests]
            finally:
                await downloader.close()

    proof, first, again, last = asyncio.run(main())
    assert (FetchError.TLS, FetchError.TLS) == (proof.error, last.error)
    assert [(200, False, True), (200, False, False)] == [
        (one.status, one.verified, one.new_connection) for one in (first, again)
    ]


def test_a_certificate_for_another_name(authority: Authority) -> None:
    (response,) = fetch(authority.server("good.test"), "other.test", authority.root)
    assert FetchError.TLS == response.error


def test_an_expired_certificate(authority: Authority) -> None:
    (response,) = fetch(authority.server("old.test", days=-1), "old.test", authority.root)
    assert FetchError.TLS == response.error
    assert "expired" in response.error_text


def test_a_certificate_signed_by_itself(authority: Authority) -> None:
    (response,) = fetch(authority.server("self.test", self_signed=True), "self.test", authority.root)
    assert FetchError.TLS == response.error


def test_a_server_that_speaks_no_tls(authority: Authority) -> None:
    async def main() -> FetchError | None:
        async with hostile(answers(OK)) as site:
            downloader = new()
            request = Request(f"https://good.test:{site.port}/", "127.0.0.1", AGENT, connect_seconds=0.3)
            response = await downloader.fetch(request)
            await downloader.close()
            return response.error

    # It waits for the end of an HTTP head that never arrives, so the handshake lasts too long.
    assert FetchError.CONNECT_TIMEOUT == asyncio.run(main())


def test_a_server_that_answers_tls_with_http(authority: Authority) -> None:
    async def script(connection: Connection) -> None:
        await connection.reader.read(1)
        await connection.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    async def main() -> FetchError | None:
        async with hostile(script) as site:
            downloader = new()
            response = await downloader.fetch(Request(f"https://good.test:{site.port}/", "127.0.0.1", AGENT))
            await downloader.close()
            return response.error

    assert FetchError.TLS == asyncio.run(main())


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_a_server_of_tls_1_1_only(authority: Authority) -> None:
    context = authority.server("good.test")
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    (response,) = fetch(context, "good.test", authority.root)
    assert FetchError.TLS == response.error


def test_the_name_is_in_the_handshake_although_the_address_is_dialled(authority: Authority) -> None:
    names: list[str | None] = []
    context = authority.server("good.test")
    context.sni_callback = lambda connection, name, _: names.append(name)
    fetch(context, "good.test", authority.root)
    assert ["good.test"] == names


def test_the_handshake_is_not_counted_as_the_hosts_time(authority: Authority) -> None:
    """A slow handshake counts neither for the page nor for the host's pace."""
    context = authority.server("good.test")

    async def main() -> tuple[float, float]:
        async with hostile(answers(OK), tls=context) as inner:

            async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
                while data := await source.read(65_536):
                    sink.write(data)
                    await sink.drain()
                sink.close()

            async def relay(connection: Connection) -> None:
                await asyncio.sleep(0.4)
                reader, writer = await asyncio.open_connection("127.0.0.1", inner.port)
                try:
                    await asyncio.gather(copy(connection.reader, writer), copy(reader, connection.writer))
                finally:
                    writer.transport.abort()

            async with hostile(relay) as outer:
                downloader = new(ca_file=authority.root)
                response = await downloader.fetch(Request(f"https://good.test:{outer.port}/", "127.0.0.1", AGENT))
                await downloader.close()
                assert 200 == response.status
                return response.seconds, (response.ended_at - response.started_at) / 1e6

    seconds, whole = asyncio.run(main())
    assert whole - seconds >= 0.4  # the connection was 0.4 s late through the relay


def test_a_kept_connection_is_used_again_over_tls(authority: Authority) -> None:
    responses = fetch(authority.server("good.test"), "good.test", authority.root, times=3)
    assert [True, False, False] == [response.new_connection for response in responses]


@pytest.mark.parametrize("content", [b"", b"no certificate in here\n"])
def test_a_file_of_roots_without_a_root_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "roots.pem"
    path.write_bytes(content)
    with pytest.raises(SettingsError, match="ca = "):
        new(ca_file=str(path))


def test_a_missing_file_of_roots_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file"):
        new(ca_file=str(tmp_path / "none.pem"))


def test_a_killed_crawl_leaves_no_file_of_certificates(tmp_path: Path) -> None:
    """The roots together with the user's own are a file without a name."""
    import certifi

    roots = _Roots(certifi.where())
    with open(roots.path, "rb") as merged, open(certifi.where(), "rb") as usual:
        found = merged.read()
        assert roots_pem(certifi.where()) == found
        assert found.startswith(usual.read())
    if roots.path.startswith("/proc/"):
        assert not list(tmp_path.parent.glob("outrider-roots-*"))
        assert "memfd" in os.readlink(roots.path)
    roots.close()
