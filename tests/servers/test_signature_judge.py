"""Three verifiers by others accept signed crawls over TLS in each form that they know, and refuse changed requests.

They are packages of npm and of cargo, both by Cloudflare, and one of PyPI.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from http_message_signatures import HTTPMessageSignaturesException

from e2e.test_signed_requests import Arrived, crawled, verifier_of
from outrider.clock import wall
from outrider.fetch.downloader import Request
from outrider.fetch.request_signing import RequestSigner, SignScope, SignWhen
from outrider.identity.signatures import AgentForm
from outrider.identity.signing_key import SigningKey, make_key
from outrider.limits import MICROSECONDS
from servers.programs import cargo_program, npm_package, program

NPM_PACKAGE = "web-bot-auth@0.1.3"
HERE = Path(__file__).parent
MINUTE = 60 * MICROSECONDS


class Case(NamedTuple):
    """A request, and the key by which it is to be verified."""

    url: str
    headers: dict[str, str]
    key: SigningKey

    def as_json(self) -> dict[str, Any]:
        key = {"kty": "OKP", "crv": "Ed25519", "x": self.key.x, "kid": self.key.id}
        return {"method": "GET", "url": self.url, "headers": self.headers, "key": key}


Judge = Callable[[list[Case]], list[bool]]
"""Answers whether each request is accepted."""


@pytest.fixture(scope="module")
def npm(tmp_path_factory: pytest.TempPathFactory) -> Judge:
    folder = tmp_path_factory.mktemp("npm")
    npm_package(NPM_PACKAGE, folder)
    shutil.copy(HERE / "signature_judge.mjs", folder)
    return lambda cases: _answers([program("node"), "signature_judge.mjs"], folder, cases)


@pytest.fixture(scope="module")
def cargo(tmp_path_factory: pytest.TempPathFactory) -> Judge:
    folder, made = tmp_path_factory.mktemp("cargo"), cargo_program(HERE / "signature_judge")
    return lambda cases: _answers([str(made)], folder, cases)


def _answers(command: list[str], folder: Path, cases: list[Case]) -> list[bool]:
    """Runs a program that prints one line for each request."""
    (folder / "messages.json").write_text(json.dumps([case.as_json() for case in cases]))
    done = subprocess.run([*command, "messages.json"], cwd=folder, capture_output=True, check=True, text=True)
    words = [line.partition(" ")[0].rstrip(":") for line in done.stdout.splitlines()]
    assert {"accepted", "refused"} >= set(words), done.stdout
    return [word == "accepted" for word in words]


@pytest.fixture(scope="module")
def pypi() -> Judge:
    return lambda cases: [_is_accepted(case) for case in cases]


def _is_accepted(case: Case) -> bool:
    try:
        verifier_of(case.key).verify(
            Arrived("GET", case.url, case.headers), max_age=timedelta(days=1), expect_tag="web-bot-auth"
        )
    except HTTPMessageSignaturesException:
        return False
    return True


KNOWN = [
    ("npm", AgentForm.STRING),
    *[("cargo", form) for form in AgentForm],
    *[("pypi", form) for form in AgentForm],
]


@pytest.mark.parametrize("scope", list(SignScope))
@pytest.mark.parametrize(("judge", "form"), KNOWN)
def test_each_request_of_a_crawl_is_accepted_and_a_changed_one_is_not(
    request: pytest.FixtureRequest, tmp_path: Path, judge: str, form: AgentForm, scope: SignScope
) -> None:
    """The judge is built before the crawl: a signature is accepted for a minute."""
    judged: Judge = request.getfixturevalue(judge)
    requests, signer, _ = crawled(tmp_path, "--signature-agent", form, "--sign-scope", scope)
    cases = [Case(one.url, one.headers, signer) for one in requests]
    assert [True] * len(cases) == judged(cases)
    assert {"site.test", "other.test"} == {case.headers["Host"].partition(":")[0] for case in cases}
    (page,) = [case for case in cases if case.url.endswith("/there")]
    host = {"Host": page.headers["Host"].replace("other", "third")}
    changed = {
        "host": page._replace(url=page.url.replace("other", "third"), headers=page.headers | host),
        "path": page._replace(url=page.url + "/more"),
        "created": _with_time(page, "created"),
        "expires": _with_time(page, "expires"),
        "key": page._replace(key=make_key(str(tmp_path / "other.pem"))),
    }
    accepted = {name for name, answer in zip(changed, judged(list(changed.values())), strict=True) if answer}
    assert ({"path"} if scope is SignScope.HOST else set()) == accepted


def _with_time(case: Case, name: str) -> Case:
    """Moves a time of the signature by a second."""
    field = re.sub(rf"{name}=(\d+)", lambda found: f"{name}={int(found[1]) + 1}", case.headers["Signature-Input"])
    assert field != case.headers["Signature-Input"]
    return case._replace(headers=case.headers | {"Signature-Input": field})


@pytest.mark.parametrize(("judge", "form"), KNOWN)
def test_signatures_of_a_clock_that_is_wrong_are_refused(
    request: pytest.FixtureRequest, tmp_path: Path, judge: str, form: AgentForm
) -> None:
    """The crate leaves the check of `created` to its caller, so it accepts a signature of the future."""
    judged: Judge = request.getfixturevalue(judge)
    key = make_key(str(tmp_path / "key.pem"))

    def signed(minutes: int) -> Case:
        signer = RequestSigner(key, "https://bot.example", SignWhen.ALWAYS, clock=lambda: wall() + minutes * MINUTE)
        made = Request("https://a.test/x", "127.0.0.1", "Outrider/0.1")
        signer.sign(made, form)
        return Case(made.url, {"Host": "a.test", **dict(made.signature)}, key)

    assert [True, False, judge == "cargo"] == judged([signed(0), signed(-10), signed(10)])
