"""The key directory of an identity, as `outrider serve` answers with it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from http_message_signatures import InvalidSignature

from outrider.cli.main import run
from outrider.errors import NamedPathError
from outrider.identity.folder import IdentityFolder
from outrider.identity.signatures import DIRECTORY_PATH, DIRECTORY_TAG
from outrider.service.served_identity import HOUR_SECONDS, PROOF_SECONDS, ServedIdentity
from served import Served
from unit.test_identity import ServedAnswer, made, verifier

SITE = "crawler.example.org"
NOW = 1_800_000_000_000_000  # an instant


@pytest.fixture
def folder(tmp_path):
    return made(tmp_path)


def served(identity: ServedIdentity | None) -> Served:
    desk = Served()
    desk.desk.identity = identity
    return desk


def test_a_verifier_of_others_accepts_the_served_directory(folder):
    """For the authority of the crawler's site, whatever the server is called."""
    desk = served(ServedIdentity(str(folder), NOW))  # an answer has new proofs, because this is another hour
    status, fields, found = desk.ask("GET", DIRECTORY_PATH)
    key = IdentityFolder(str(folder)).key()
    assert (200, [key.id]) == (status, [one["kid"] for one in found["keys"]])
    assert "application/http-message-signatures-directory+json" == fields["content-type"]
    assert "max-age=3600" == fields["cache-control"]
    verify = verifier(key.public).verify
    assert verify(ServedAnswer(fields, SITE), max_age=timedelta(days=1), expect_tag=DIRECTORY_TAG)
    with pytest.raises(InvalidSignature):
        verify(ServedAnswer(fields, "other.test"), max_age=timedelta(days=1), expect_tag=DIRECTORY_TAG)


def test_a_rotated_key_is_served_within_an_hour_and_the_old_one_with_it(folder):
    at = NOW
    identity = ServedIdentity(str(folder), at)
    (before,) = identity.directory(at).proofs
    assert 0 == run(["identity", "init", str(folder), "--rotate"])
    assert (before,) == identity.directory(at + (HOUR_SECONDS - 1) * 1_000_000).proofs
    later = identity.directory(at + HOUR_SECONDS * 1_000_000)
    keys = IdentityFolder(str(folder)).keys()
    assert (2, True) == (len(keys), keys[0].id in later.proofs[0].input and keys[1].id in later.proofs[1].input)


def test_a_clock_that_steps_back_has_the_directory_made_anew(folder):
    identity, at = ServedIdentity(str(folder), NOW), NOW - 60_000_000
    assert at // 1_000_000 == identity.directory(at).created


def test_a_folder_that_cannot_be_read_is_logged_until_the_proofs_end(folder, caplog):
    at = NOW
    identity = ServedIdentity(str(folder), at)
    first = identity.directory(at)
    (folder / "identity.toml").unlink()
    assert first is identity.directory(at + HOUR_SECONDS * 1_000_000)
    assert "identity.toml cannot be read" in caplog.text
    with pytest.raises(NamedPathError, match="identity\\.toml cannot be read"):
        identity.directory(at + PROOF_SECONDS * 1_000_000)


def test_a_server_without_an_identity_names_the_option():
    status, _, found = served(None).ask("GET", DIRECTORY_PATH)
    assert (404, True) == (status, "--identity DIR" in found["detail"])


def test_serve_refuses_an_identity_that_cannot_be_used(tmp_path, folder, capsys):
    store = str(tmp_path / "store")
    assert 2 == run(["serve", store, "--identity", str(tmp_path / "none")])
    (folder / "key.pem").chmod(0o644)
    assert 2 == run(["serve", store, "--identity", str(folder)])
    told = capsys.readouterr().err
    assert "outrider identity init" in told
    assert "chmod" in told
