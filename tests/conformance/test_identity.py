"""Signatures, directories and ranges as the shared cases say (`../shared/data/permission`)."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from outrider.errors import SettingsError
from outrider.fetch.downloader import target_of
from outrider.identity.merkle_tree import LineTree, ProofMaker, leaf_hash
from outrider.identity.publication import address_ranges, key_directory
from outrider.identity.signatures import AgentForm, SignedTarget, sign_request
from outrider.identity.signed_note import TreeHead, read_head, signed_head, verifier_key
from outrider.identity.signing_key import SigningKey, require_own, thumbprint
from outrider.limits import MICROSECONDS
from outrider.url import Url

pytestmark = pytest.mark.conformance
Cases = dict[str, list[dict[str, Any]]]
MIDNIGHT = 1_795_737_600  # 2026-11-27


@pytest.fixture(scope="module")
def key(shared: Path) -> SigningKey:
    """The key of RFC 9421 appendix B.1.4, of which everyone has the private half."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    text = (shared / "data/permission/README.md").read_text("utf-8")
    private = text.split('"d":"')[1].split('"')[0]
    return SigningKey(Ed25519PrivateKey.from_private_bytes(base64.urlsafe_b64decode(private + "=")))


def signed_target(url: str) -> SignedTarget:
    target = target_of(Url.parse(url).text)
    path, mark, query = target.path.partition("?")
    return SignedTarget("GET", target.scheme, target.authority, path, mark + query)


def test_signatures_are_equal_byte_for_byte(permission_cases: Cases, key: SigningKey) -> None:
    for case in permission_cases["signature"]:
        told = case["input"]
        made = sign_request(
            key,
            signed_target(told["url"]),
            told["components"],
            agent=told["agent"],
            form=AgentForm.STRING if told["form"] == "string" else AgentForm.KEYS,
            created=told["created"],
            expires=told["expires"],
            nonce=told.get("nonce"),
            label=told["label"],
        )
        assert case["right"] == {"base": made.base, **dict(made.fields())}, case["id"]
    assert 13 == len(permission_cases["signature"])


def test_the_directory_is_equal_byte_for_byte(permission_cases: Cases, key: SigningKey) -> None:
    for case in permission_cases["directory"]:
        told, right = case["input"], case["right"]
        if "x" in told:
            assert right == thumbprint(told["x"]), case["id"]
            continue
        made = key_directory([key], told["authority"], created=told["created"], expires=told["expires"])
        fields = dict(made.fields())
        assert right["body"] == made.body.decode()
        assert right["base"] == made.proofs[0].base
        assert right["Content-Digest"] == fields["Content-Digest"]
        assert right["Signature-Input"] == fields["Signature-Input"]
        assert right["Signature"] == fields["Signature"]


def test_ranges_are_published_as_the_cases_say(permission_cases: Cases) -> None:
    for case in permission_cases["ranges"]:
        told, right = case["input"], case["right"]
        assert "2026-11-27T00:00:00Z" == told["at"]
        if "error" in right:
            with pytest.raises(SettingsError, match=right["error"]):
                address_ranges(told["ranges"], MIDNIGHT * MICROSECONDS)
            continue
        assert right == address_ranges(told["ranges"], MIDNIGHT * MICROSECONDS, told.get("services", ()))


def test_the_test_key_of_the_rfc_is_refused(key: SigningKey) -> None:
    with pytest.raises(SettingsError, match="test key of RFC 9421"):
        require_own(key)


def test_roots_notes_and_proofs_are_equal_byte_for_byte(permission_cases: Cases, key: SigningKey) -> None:
    for case in permission_cases["proof"]:
        told, right = case["input"], case["right"]
        lines = [line.encode() for line in told["lines"]]
        tree = LineTree()
        tree.extend(lines)
        maker = ProofMaker(b"".join(map(leaf_hash, lines)))
        assert right["root"] == base64.b64encode(tree.root()).decode() == base64.b64encode(maker.root()).decode()
        head = TreeHead(told["name"], tree.size, tree.root())
        assert right["note"] == signed_head(head, key)
        assert right["vkey"] == verifier_key(told["name"], key.public)
        assert head == read_head(right["note"], right["vkey"])
        assert right["proof"] == [base64.b64encode(one).decode() for one in maker.proof(told["index"])]
    assert 2 == len(permission_cases["proof"])
