"""Signed requests of a crawl, verified by another library: when, for what, and what sites may ask for."""

from __future__ import annotations

import asyncio
import base64
import gzip
import io
import json
import pickle
from datetime import timedelta
from email.utils import formatdate
from typing import Any

import pytest
from http_message_signatures import HTTPMessageVerifier, HTTPSignatureKeyResolver, InvalidSignature, algorithms

from fake_web import FakeNames, FakeWeb, answer
from limiting import set_limits
from outrider.clock import wall
from outrider.crawl.local_run import CrawlRun
from outrider.crawl.output.progress import NoProgress
from outrider.crawl.output.summary import network_lines
from outrider.crawl.setup.options import CrawlOptions
from outrider.errors import SettingsError
from outrider.fetch.downloader import Request
from outrider.fetch.failures import FetchError
from outrider.fetch.request_signing import RequestSigner, SignScope, SignWhen
from outrider.identity.accept_signature import wanted_signature
from outrider.identity.signatures import AgentForm
from outrider.identity.signing_key import SigningKey, make_key
from outrider.limits import MICROSECONDS

HOSTS = {"a.test": ("127.0.0.1",), "b.test": ("127.0.0.2",)}
AGENT = "Outrider/0.1"
ASKS = 'sig1=("@authority" "signature-agent";key="sig1");created;expires;tag="web-bot-auth"'


@pytest.fixture
def key(tmp_path) -> SigningKey:
    return make_key(str(tmp_path / "key.pem"))


class Verifier(HTTPSignatureKeyResolver):
    """Verifies requests by the public half of a key."""

    def __init__(self, key: SigningKey) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        self._public = Ed25519PublicKey.from_public_bytes(key.public)

    def resolve_public_key(self, key_id: str) -> Any:
        return self._public

    def resolve_private_key(self, key_id: str) -> Any:
        raise AssertionError(key_id)

    def verify(self, request: Request, **changed: Any) -> list[str]:
        """Returns the components that the signature of a request covers."""
        checker = HTTPMessageVerifier(signature_algorithm=algorithms.ED25519, key_resolver=self)
        found = checker.verify(Sent(request, **changed), max_age=timedelta(days=1), expect_tag="web-bot-auth")
        return list(found[0].covered_components)


class Sent:
    """A request as the library reads it: from its bytes. changed: `method` or `url`."""

    def __init__(self, request: Request, method: str = "GET", url: str = "", host: str = "") -> None:
        lines = request.head().decode().split("\r\n")[1:-2]
        self.headers = dict(line.split(": ", 1) for line in lines)
        if host:
            self.headers["Host"] = host
        self.method, self.url = method, url or request.url


def signer(key: SigningKey, when: SignWhen = SignWhen.ALWAYS, scope: SignScope = SignScope.REQUEST, **more):
    return RequestSigner(key, "https://bot.example", when, scope, **more)


def signed(mine: RequestSigner, request: Request, form: AgentForm = AgentForm.KEYS) -> Request:
    mine.sign(request, form)
    return request


def request_for(url: str = "https://a.test/x", **more: Any) -> Request:
    return Request(url, "127.0.0.1", AGENT, **more)


@pytest.mark.parametrize("form", list(AgentForm))
@pytest.mark.parametrize(
    "url", ["https://a.test/", "https://a.test/a/b?q=1", "https://a.test:8443/%7Ex?", "https://[::1]/"]
)
def test_another_library_verifies_each_form(key, form, url):
    request = signed(signer(key), request_for(url), form)
    assert '"@authority"' in str(Verifier(key).verify(request))
    assert Verifier(key).verify(request)


def test_a_changed_host_path_method_or_key_is_refused(key, tmp_path):
    request = signed(signer(key), request_for("https://a.test/x?q=1"))
    other = make_key(str(tmp_path / "other.pem"))
    for changed in (
        {"url": "https://b.test/x?q=1", "host": "b.test"},
        {"url": "https://a.test/y?q=1"},
        {"url": "https://a.test/x?q=2"},
        {"method": "HEAD"},
    ):
        with pytest.raises(InvalidSignature):
            Verifier(key).verify(request, **changed)
    with pytest.raises(InvalidSignature):
        Verifier(other).verify(request)


def test_a_signature_ends_after_a_minute(key):
    old = wall() - 120 * MICROSECONDS
    request = signed(signer(key, clock=lambda: old), request_for())
    with pytest.raises(InvalidSignature, match="expire"):
        Verifier(key).verify(request)


def test_only_verified_https_is_signed(key):
    mine = signer(key)
    for request in (request_for("http://a.test/"), request_for(verified=False)):
        assert () == signed(mine, request).signature


def test_a_signature_for_a_host_is_reused_for_half_a_minute(key):
    now = [wall()]
    mine = signer(key, scope=SignScope.HOST, clock=lambda: now[0])
    first = signed(mine, request_for("https://a.test/1"))
    second = signed(mine, request_for("https://a.test/2"))
    assert first.signature == second.signature
    assert Verifier(key).verify(second)
    assert first.signature != signed(mine, request_for("https://b.test/1")).signature
    now[0] += 31 * MICROSECONDS
    assert first.signature != signed(mine, request_for("https://a.test/3")).signature
    assert (3, 1) == (mine.statistics()["signatures_made"], mine.statistics()["signatures_reused"])


def test_a_challenge_is_answered_with_a_signature(key):
    mine = signer(key, SignWhen.CHALLENGE)
    request = request_for()
    assert () == signed(mine, request).signature
    refusal = answer(request.url, 403, fields=[("Accept-Signature", ASKS)])
    assert FetchError.ASKS_SIGNATURE is mine.answered(request, refusal).error
    assert Verifier(key).verify(signed(mine, request))
    again = answer(request.url, 403, fields=[("Accept-Signature", ASKS)], request_head=request.head())
    assert again is mine.answered(request, again)  # it was signed as asked: the refusal counts
    assert () == signed(mine, request_for("https://b.test/")).signature


@pytest.mark.parametrize("when", [SignWhen.CHALLENGE, SignWhen.ALWAYS])
def test_a_site_that_asks_without_components_gets_those_of_the_scope(key, when):
    """`StrongAuthRequired` names no component, so a signature is as narrow as `--sign-scope` says."""
    mine, asks = signer(key, when), [("crawler-error", "StrongAuthRequired")]
    request = request_for("https://a.test/x?q=1")
    unsigned = answer(request.url, 400, fields=asks, request_head=request.head())
    assert FetchError.ASKS_SIGNATURE is mine.answered(request, unsigned).error
    covered = [name.partition(";")[0].strip('"') for name in Verifier(key).verify(signed(mine, request))]
    assert ["@method", "@authority", "@path", "@query", "signature-agent", "@signature-params"] == covered
    refused = answer(request.url, 400, fields=asks, request_head=request.head())
    assert refused is mine.answered(request, refused)  # it was signed, so the refusal counts


def test_a_signature_for_a_host_is_reused_also_where_the_host_asked_for_one(key):
    mine = signer(key, SignWhen.CHALLENGE, SignScope.HOST)
    request = request_for()
    mine.answered(request, answer(request.url, 400, fields=[("crawler-error", "StrongAuthRequired")]))
    assert signed(mine, request).signature == signed(mine, request_for("https://a.test/y")).signature
    assert (1, 1) == (mine.statistics()["signatures_made"], mine.statistics()["signatures_reused"])


def test_the_nonce_of_a_site_is_used_once(key):
    mine = signer(key, SignWhen.CHALLENGE)
    request = request_for()
    mine.answered(request, answer(request.url, 429, fields=[("Accept-Signature", ASKS + ';nonce="abc"')]))
    first, second, third = (signed(mine, request_for()) for _ in range(3))
    assert ';nonce="abc"' in dict(first.signature)["Signature-Input"]
    assert ";nonce=" in dict(second.signature)["Signature-Input"]
    assert 3 == len({dict(one.signature)["Signature"] for one in (first, second, third)})
    assert all(Verifier(key).verify(one) for one in (first, second, third))


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        ('sig1=("@authority" "cookie");tag="web-bot-auth"', "'cookie', which we do not sign"),
        ('sig1=("@authority");alg="hmac-sha256"', "asks for alg 'hmac-sha256'"),
        ('sig1=("@authority");keyid="other"', "asks for keyid"),
        ('sig1=("@authority");tag="payments"', "asks for tag"),
        ('sig1=("@authority";req)', "which we do not sign"),
        ('sig1=("@authority" "@authority")', "twice"),
        ("sig1", "without a list"),
        ('sig1=("@authority"', "malformed"),
        ('sig1=("@authority");nonce=3', "nonce"),
        ('SIG=("@authority")', "malformed"),
        ("x" * 65_536, "more than 4,096 bytes"),
        ("", "is empty"),
        (f'sig1=("@authority");nonce="{"n" * 600}"', "nonce"),
    ],
)
def test_other_signatures_are_not_made(key, field, reason):
    with pytest.raises(SettingsError, match=reason.replace("(", r"\(")):
        wanted_signature([field], key.id)
    notes: list[str] = []
    mine = signer(key, SignWhen.CHALLENGE, note=notes.append)
    request = request_for()
    refusal = answer(request.url, 403, fields=[("Accept-Signature", field)])
    assert refusal is mine.answered(request, refusal)
    assert refusal is mine.answered(request, refusal)
    assert () == signed(mine, request).signature
    assert 1 == len(notes)


def test_the_first_signature_that_can_be_made_is_made(key):
    found = wanted_signature(['a=("cookie")', 'b=("@path");nonce;created'], key.id)
    assert (("@authority", "@path"), "b", "") == found


@pytest.mark.parametrize(("seconds", "way"), [(-3_600, "AHEAD"), (3_600, "LATE"), (-2, ""), (20, "")])
def test_a_wrong_signature_and_a_wrong_clock_are_counted(key, seconds, way):
    """seconds: by which the clock of the site differs from ours."""
    notes: list[str] = []
    mine = signer(key, note=notes.append)
    request = request_for()
    head = signed(mine, request).head()
    date = formatdate(wall() / MICROSECONDS + seconds, usegmt=True)
    refusal = answer(
        request.url, 400, fields=[("crawler-error", "InvalidSignature"), ("Date", date)], request_head=head
    )
    assert refusal is mine.answered(request, refusal)
    line = network_lines({"names": 0, "requests": 1, "kept": 0, **mine.statistics()})[1]
    assert "1 signature called WRONG" in line
    assert ([way] if way else []) == [word for word in ("AHEAD", "LATE") if word in line]
    assert [bool(way), True] == [any("set it" in note for note in notes), any("is wrong" in note for note in notes)]


def test_a_key_is_neither_shown_nor_copied(key):
    with pytest.raises(TypeError):
        pickle.dumps(key)
    assert repr(key) == f"<SigningKey {key.id}>"
    assert key.id in repr(signer(key))


class Site(FakeWeb):
    """Two hosts. a.test redirects to b.test, which answers signed requests only, its robots.txt too."""

    def page(self, url: str, path: str) -> Any:
        signed = b"Signature-Input: " in self.asked[-1].head()
        if url.startswith("https://b.test/") and not signed:
            return 403, "", [("Accept-Signature", ASKS)]
        if path == "/robots.txt":
            return 200, "User-agent: *\nDisallow: /secret\n", [("Content-Type", "text/plain")]
        if url == "https://a.test/":
            return 302, "", [("Location", "https://b.test/there")]
        return 200, "<title>there</title><a href=/secret>s</a><a href=/more>m</a>", [("Content-Type", "text/html")]


@pytest.fixture
def folder(tmp_path):
    from outrider.cli.main import run

    assert 0 == run(["identity", "init", str(tmp_path / "me"), "--url", "https://bot.example", "--contact", "a@b.test"])
    return tmp_path / "me"


def crawled(tmp_path, folder, sign: str, **more: Any) -> tuple[Any, FakeWeb, list[dict[str, Any]]]:
    options = CrawlOptions(
        output=str(tmp_path / "out"), delay=0, delay_factor=0, sign=sign, identity=str(folder), scope="any", **more
    )
    web: list[Site] = []

    def made(options, clock):
        web.append(Site(options, clock))
        return web[0]

    run = CrawlRun(
        *(options, ["https://a.test/"], ()),
        hosts=HOSTS,
        progress=NoProgress(io.StringIO()),
        make_downloader=made,
        make_names=lambda: FakeNames(HOSTS),
    )
    result = asyncio.run(run.run())
    lines = (tmp_path / "out/pages.jsonl").read_text().splitlines()
    return result, web[0], [json.loads(line) for line in lines]


@pytest.mark.parametrize("scope", ["request", "host"])
def test_each_request_of_a_crawl_is_verified_also_after_a_redirect(tmp_path, folder, scope):
    from outrider.identity.signing_key import read_key

    _, web, pages = crawled(tmp_path, folder, "always", sign_scope=scope)
    check = Verifier(read_key(str(folder / "key.pem")))
    assert all(check.verify(one) for one in web.asked)
    hosts = {one.target.host for one in web.asked}
    assert {"a.test", "b.test"} == hosts
    assert {"https://a.test/", "https://b.test/there", "https://b.test/more"} == {
        page["url"] for page in pages if page["status"]
    }


def test_a_crawl_signs_where_a_host_asks_for_it(tmp_path, folder, monkeypatch):
    """A robots.txt behind a challenge is asked for again before any page."""
    set_limits(monkeypatch, RETRY_SECONDS=(0.2, 0.2, 0.2))
    _, web, pages = crawled(tmp_path, folder, "challenge")
    to_b = [(one.target.path, bool(one.signature)) for one in web.asked if one.target.host == "b.test"]
    assert [("/robots.txt", False), ("/robots.txt", True)] == to_b[:2]
    assert all(signed for _, signed in to_b[1:])
    assert not any(one.signature for one in web.asked if one.target.host == "a.test")
    assert {"https://b.test/there", "https://b.test/more"} <= {page["url"] for page in pages if page["status"] == 200}


def test_no_output_of_a_crawl_contains_the_key(tmp_path, folder):
    crawled(tmp_path, folder, "always")
    secret = b"".join((folder / "key.pem").read_bytes().splitlines()[1:-1])
    raw = base64.b64decode(secret)[-32:]
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert len(files) > 5
    for path in files:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
        assert raw not in content
        assert secret[24:] not in content


def test_signing_without_an_identity_is_refused_before_the_crawl():
    with pytest.raises(SettingsError, match="identity is missing"):
        CrawlOptions(sign="always")
