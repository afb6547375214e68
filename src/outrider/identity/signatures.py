"""Signatures of HTTP messages (RFC 9421) in the profile of Web Bot Auth: requests, and the key directory.

A signature covers lines, the signature base: one for each component, and the parameters at the end. Ed25519 is
deterministic, so equal bases have equal signatures.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from outrider.errors import SettingsError
from outrider.identity.signing_key import SigningKey

DIRECTORY_PATH: Final = "/.well-known/http-message-signatures-directory"
REQUEST_TAG: Final = "web-bot-auth"
DIRECTORY_TAG: Final = "http-message-signatures-directory"
LABEL: Final = "sig1"
AGENT: Final = "signature-agent"


class AgentForm(StrEnum):
    """The forms of Signature-Agent. Published verifiers disagree about it, so it is a setting."""

    KEYS = "keys"
    ORIGIN = "origin"
    STRING = "string"


class FormRow(NamedTuple):
    """A form: its date, the text that describes it, and an example."""

    since: str
    text: str
    example: str


AGENT_FORMS: Final = {
    AgentForm.KEYS: FormRow(
        "2026-10-29", "draft-ietf-webbotauth-httpsig-protocol-01", f'sig1="https://bot.example{DIRECTORY_PATH}"'
    ),
    AgentForm.ORIGIN: FormRow("2026-09-01", "draft-ietf-webbotauth-httpsig-protocol-00", 'sig1="https://bot.example"'),
    AgentForm.STRING: FormRow(
        "2026-07-01", "draft-meunier-web-bot-auth-architecture-03, Cloudflare", '"https://bot.example"'
    ),
}
"""The forms with the dates of their texts, the newest first. As of 2026-11-27."""


class SignedTarget(NamedTuple):
    """The parts of a request that a signature may cover. authority: as in Host. path: without the query. query: with
    its question mark, "" without one."""

    method: str
    scheme: str
    authority: str
    path: str
    query: str


_COMPONENTS: Final[Mapping[str, Callable[[SignedTarget], str]]] = {
    "@method": lambda target: target.method,
    "@authority": lambda target: target.authority,
    "@scheme": lambda target: target.scheme,
    "@path": lambda target: target.path,
    "@query": lambda target: target.query or "?",
    "@target-uri": lambda target: f"{target.scheme}://{target.authority}{target.path}{target.query}",
    "@request-target": lambda target: target.path + target.query,
}
COMPONENTS: Final = frozenset(_COMPONENTS)
"""The components of a request that a signature can cover, in addition to Signature-Agent."""


@dataclass(frozen=True, slots=True)
class Signature:
    """The fields of a signature, and the lines that it covers. agent: None for the signature of a directory."""

    base: str
    agent: str | None
    input: str
    signature: str

    def fields(self) -> tuple[tuple[str, str], ...]:
        """Returns the header fields of a message, with their names."""
        told = (("Signature-Input", self.input), ("Signature", self.signature))
        return told if self.agent is None else (("Signature-Agent", self.agent), *told)


@lru_cache(maxsize=64)
def quoted(text: str) -> str:
    """Returns a String of RFC 9651. Raises SettingsError for a text with characters that a String cannot have."""
    if not (text.isascii() and text.isprintable()):
        raise SettingsError(f"{text!r:.80} cannot be in a signature: use visible ASCII characters and spaces")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def agent_value(origin: str, form: AgentForm) -> str:
    """Returns the URL in Signature-Agent. origin: of the crawler's own site."""
    return origin + DIRECTORY_PATH if form is AgentForm.KEYS else origin


def sign_request(
    key: SigningKey,
    target: SignedTarget,
    components: Sequence[str],
    *,
    agent: str,
    form: AgentForm,
    created: int,
    expires: int,
    nonce: str | None = None,
    label: str = LABEL,
) -> Signature:
    """Returns the signature of a request. components: of `COMPONENTS`, in this order; Signature-Agent is covered
    last. agent: the URL in that field. created, expires: seconds since 1970."""
    url = quoted(agent)
    if form is AgentForm.STRING:
        name, field = f'"{AGENT}"', url
    else:
        name, field = f'"{AGENT}";key="{label}"', f"{label}={url}"
    lines = [f'"{one}": {_COMPONENTS[one](target)}\n' for one in components]
    listed = " ".join((*(f'"{one}"' for one in components), name))
    unique = "" if nonce is None else f";nonce={quoted(nonce)}"
    told = f'({listed});created={created};keyid="{key.id}";expires={expires}{unique};tag="{REQUEST_TAG}"'
    base = f'{"".join(lines)}{name}: {url}\n"@signature-params": {told}'
    return Signature(base, field, f"{label}={told}", f"{label}=:{_signed(key, base)}:")


def sign_directory(
    key: SigningKey, authority: str, digest: str, *, created: int, expires: int, label: str = "binding"
) -> Signature:
    """Returns the proof that a key directory has the private half of a key: the signature of an answer of this
    authority. digest: its Content-Digest."""
    told = (
        f'("@authority";req "content-digest");created={created};expires={expires};keyid="{key.id}";'
        f'tag="{DIRECTORY_TAG}"'
    )
    base = f'"@authority";req: {authority}\n"content-digest": {digest}\n"@signature-params": {told}'
    return Signature(base, None, f"{label}={told}", f"{label}=:{_signed(key, base)}:")


def content_digest(body: bytes) -> str:
    """Returns the Content-Digest field of a body (RFC 9530)."""
    return f"sha-256=:{base64.b64encode(hashlib.sha256(body).digest()).decode()}:"


def _signed(key: SigningKey, base: str) -> str:
    return base64.b64encode(key.sign(base.encode("ascii"))).decode()
