"""Cloudflare's package for Node.js accepts signed requests in the form that it knows, and refuses changed ones."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from outrider.fetch.downloader import Request
from outrider.fetch.request_signing import RequestSigner, SignScope, SignWhen
from outrider.identity.signatures import AgentForm
from outrider.identity.signing_key import SigningKey, make_key
from servers.programs import npm_package, program

PACKAGE = "web-bot-auth@0.1.3"
SOURCE = Path(__file__).parent / "signature_judge.mjs"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("judge")
    npm_package(PACKAGE, made)
    shutil.copy(SOURCE, made)
    return made


def judged(folder: Path, messages: list[dict[str, Any]]) -> list[str]:
    (folder / "messages.json").write_text(json.dumps(messages))
    command = [program("node"), SOURCE.name, "messages.json"]
    return subprocess.run(command, cwd=folder, capture_output=True, check=True, text=True, timeout=60).stdout.split()


def public(key: SigningKey) -> dict[str, str]:
    return {"kty": "OKP", "crv": "Ed25519", "x": key.x, "kid": key.id}


@pytest.mark.parametrize("scope", list(SignScope))
def test_requests_are_accepted_and_changed_ones_are_not(folder: Path, tmp_path: Path, scope: SignScope) -> None:
    key, other = make_key(str(tmp_path / "key.pem")), make_key(str(tmp_path / "other.pem"))
    signer = RequestSigner(key, "https://bot.example", SignWhen.ALWAYS, scope)
    made = signer.signed(Request("https://a.test/x/y?q=1", "127.0.0.1", "Outrider/0.1"), AgentForm.STRING)
    fields = dict(made.signature)
    cases = [(made.url, key), ("https://b.test/x/y?q=1", key), (made.url, other), ("https://a.test/x/z?q=1", key)]
    found = judged(folder, [{"url": url, "headers": fields, "key": public(one)} for url, one in cases])
    assert ["accepted", "refused", "refused"] == found[:3]
    assert ("refused" if scope is SignScope.REQUEST else "accepted") == found[3]
