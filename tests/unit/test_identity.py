"""`outrider identity`: the key, the description, and the files by which sites verify a crawler."""

from __future__ import annotations

import json
import os
import stat
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from http_message_signatures import HTTPMessageVerifier, HTTPSignatureKeyResolver, InvalidSignature, algorithms

from outrider.cli.main import run
from outrider.errors import NamedPathError, SettingsError
from outrider.identity.folder import IdentityFolder, checked_origin
from outrider.identity.publication import CrawlerDescription, bot_page, key_directory
from outrider.identity.signatures import DIRECTORY_TAG
from outrider.identity.signing_key import make_key, read_key

MAKE = ("--url", "https://crawler.example.org", "--contact", "you@example.org")


def made(tmp_path: Path) -> Path:
    assert 0 == run(["identity", "init", str(tmp_path / "me"), *MAKE])
    return tmp_path / "me"


class _Keys(HTTPSignatureKeyResolver):
    def __init__(self, public: bytes) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        self._public = Ed25519PublicKey.from_public_bytes(public)

    def resolve_public_key(self, key_id: str) -> Any:
        return self._public

    def resolve_private_key(self, key_id: str) -> Any:
        raise AssertionError(key_id)


def test_init_makes_a_key_that_only_its_owner_reads(tmp_path, capsys):
    folder = made(tmp_path)
    assert 0o600 == stat.S_IMODE(os.stat(folder / "key.pem").st_mode)
    assert read_key(str(folder / "key.pem")).id in capsys.readouterr().out
    assert 2 == run(["identity", "init", str(folder), *MAKE])
    assert "--rotate" in capsys.readouterr().err


def test_a_rotated_key_is_published_with_the_old_one(tmp_path):
    folder = made(tmp_path)
    old = IdentityFolder(str(folder)).key().id
    assert 0 == run(["identity", "init", str(folder), "--rotate"])
    assert 0 == run(["identity", "directory", str(folder)])
    new = IdentityFolder(str(folder)).key().id
    told = json.loads((folder / "public/.well-known/http-message-signatures-directory").read_text())
    assert [new, old] == [key["kid"] for key in told["keys"]]
    fields = (folder / "nginx.conf").read_text()
    assert f'keyid="{old}"' in fields
    assert f'keyid="{new}"' in fields


class ServedAnswer:
    """An answer and its request, as `http_message_signatures` reads them."""

    def __init__(self, fields: dict[str, str], authority: str) -> None:
        self.headers, self.status_code = fields, 200
        self.request = _Asked(authority)


class _Asked:
    def __init__(self, authority: str) -> None:
        self.method, self.url, self.headers = "GET", f"https://{authority}/", {"Host": authority}


def verifier(public: bytes) -> HTTPMessageVerifier:
    return HTTPMessageVerifier(signature_algorithm=algorithms.ED25519, key_resolver=_Keys(public))


def test_the_proof_of_possession_is_verified_by_another_library(tmp_path):
    key = make_key(str(tmp_path / "key.pem"))
    now = int(time.time())  # the other library compares with its own clock
    directory = key_directory([key], "crawler.example.org", created=now, expires=now + 60)
    fields = dict(directory.fields())
    found = verifier(key.public).verify(
        ServedAnswer(fields, "crawler.example.org"), max_age=timedelta(seconds=60), expect_tag=DIRECTORY_TAG
    )
    assert key.id == found[0].parameters["keyid"]
    with pytest.raises(InvalidSignature):
        verifier(key.public).verify(ServedAnswer(fields, "other.test"), expect_tag=DIRECTORY_TAG)


def test_no_file_contains_the_private_key(tmp_path, capsys):
    folder = made(tmp_path)
    run(["identity", "ranges", str(folder), "66.249.64.0/20", "--json"])
    run(["identity", "page", str(folder), "--json"])
    run(["identity", "directory", str(folder), "--json"])
    secret = b"".join((folder / "key.pem").read_bytes().splitlines()[1:-1])
    told = capsys.readouterr()
    texts = [path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "key.pem"]
    assert 6 == len(texts)
    assert not any(secret[20:] in text for text in (*texts, told.out.encode(), told.err.encode()))


def test_a_file_of_ranges_without_a_range_or_with_an_empty_service_is_not_published(tmp_path, capsys):
    folder = made(tmp_path)
    for words, reason in (
        ([], "set `ranges` in identity.toml"),
        (["66.249.64.0/20", "--service", " "], "a service is empty"),
    ):
        assert 2 == run(["identity", "ranges", str(folder), *words])
        assert reason in capsys.readouterr().err
    assert not (folder / "public").exists()


def test_the_page_names_ranges_and_how_to_block(tmp_path):
    folder = made(tmp_path)
    assert 0 == run(["identity", "ranges", str(folder), "66.249.64.0/20"])
    assert 0 == run(["identity", "page", str(folder)])
    page = (folder / "public/bot.html").read_text()
    assert 'rel="client-ranges"' in page
    assert "User-agent: Outrider\nDisallow: /" in page
    assert "mailto:you@example.org" in page
    card = json.loads((folder / "public/agent-card.json").read_text())
    assert "Outrider/0.1 (+https://crawler.example.org/bot.html)" == card["web_bot_auth"]["expected-user-agent"]


def test_texts_of_the_description_are_not_markup():
    page = bot_page(
        CrawlerDescription("https://a.test", "Bot", "a@b.test", purpose="<script>"), "Bot/1", has_ranges=False
    )
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
def test_a_key_that_others_read_is_refused(tmp_path, mode):
    make_key(str(tmp_path / "key.pem"))
    os.chmod(tmp_path / "key.pem", mode)
    with pytest.raises(NamedPathError, match="chmod 600"):
        read_key(str(tmp_path / "key.pem"))


def test_a_key_of_another_user_is_refused(tmp_path, monkeypatch):
    make_key(str(tmp_path / "key.pem"))
    real = os.fstat

    def fstat_of_another_user(descriptor):
        about = [*real(descriptor)]
        about[stat.ST_UID] = os.geteuid() + 1
        return os.stat_result(about)

    monkeypatch.setattr(os, "fstat", fstat_of_another_user)
    with pytest.raises(NamedPathError, match="belongs to another user"):
        read_key(str(tmp_path / "key.pem"))


def test_a_cut_key_and_a_key_of_another_kind_are_named(tmp_path):
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric import x25519

    path = tmp_path / "key.pem"
    make_key(str(path))
    text = path.read_bytes()
    path.write_bytes(text[:70])
    with pytest.raises(NamedPathError, match="not a whole private key") as refused:
        read_key(str(path))
    assert text.splitlines()[1][:30].decode() not in str(refused.value)
    other = x25519.X25519PrivateKey.generate()
    path.write_bytes(other.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()))
    with pytest.raises(NamedPathError, match="of another kind"):
        read_key(str(path))
    path.write_bytes(b"x" * 20_000)
    with pytest.raises(NamedPathError, match="larger than"):
        read_key(str(path))
    os.remove(path)
    os.mkfifo(path, 0o600)
    with pytest.raises(NamedPathError, match="is not a file"):
        read_key(str(path))


@pytest.mark.parametrize(
    "url", ["http://a.test", "https://a.test/x", "https://A.test", "https://a.test\r\nX: y", "a.test", "https://"]
)
def test_the_site_of_a_crawler_is_an_https_origin(url):
    with pytest.raises(SettingsError, match="https origin"):
        checked_origin(url)


def test_a_key_elsewhere_is_used_and_not_rotated(tmp_path, capsys):
    folder = made(tmp_path)
    (folder / "key.pem").rename(tmp_path / "secret.pem")
    with (folder / "identity.toml").open("a") as file:
        file.write('key = "../secret.pem"\n')
    assert 0 == run(["identity", "directory", str(folder)])
    assert 2 == run(["identity", "init", str(folder), "--rotate"])
    assert "replace that file" in capsys.readouterr().err
    assert not (folder / "key.pem").exists()


def test_files_are_written_only_for_an_identity(tmp_path, capsys):
    for command in ("ranges", "page", "directory"):
        assert 2 == run(["identity", command, str(tmp_path / "none")])
        assert "outrider identity init" in capsys.readouterr().err
    assert 2 == run(["identity", "ranges", str(tmp_path / "none"), "66.249.64.0/20"])
    assert [] == list(tmp_path.iterdir())


def test_a_wrong_description_is_named_with_its_key(tmp_path, capsys):
    folder = made(tmp_path)
    text = (folder / "identity.toml").read_text()
    for wrong, word in (
        ("renders = 3", "renders"),
        ("colour = 1", "colour"),
        ("=", "not TOML"),
        (f"a = {'[' * 9_000}", "not TOML"),
    ):
        (folder / "identity.toml").write_text(text.replace("renders = false", wrong))
        assert 2 == run(["identity", "directory", str(folder)])
        assert word in capsys.readouterr().err
