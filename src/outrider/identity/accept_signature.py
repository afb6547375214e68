"""The field `Accept-Signature` (RFC 9421 section 5): what a site wants to be signed, and whether we sign that."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from outrider.errors import SettingsError
from outrider.identity.signatures import AGENT, COMPONENTS, LABEL, REQUEST_TAG
from outrider.limits import ACCEPT_SIGNATURE_BYTES_MAX, SIGNATURE_LABEL_MAX, SIGNATURE_NONCE_MAX
from outrider.structured_fields import Member, read_dictionary

ALGORITHM: Final = "ed25519"
_HOST: Final = frozenset({"@authority", "@target-uri"})
_PARAMETERS: Final = frozenset({"created", "expires", "nonce", "keyid", "alg", "tag"})
_NONCE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")


class WantedSignature(NamedTuple):
    """A signature that a site asks for. components: without Signature-Agent; () in `ANY_SIGNATURE` alone. nonce: the
    site's own, "" for one of ours, None for a signature without one."""

    components: tuple[str, ...]
    label: str = LABEL
    nonce: str | None = None


ANY_SIGNATURE: Final = WantedSignature(())
"""A signature whose components the signer chooses."""


def wanted_signature(values: Sequence[str], key_id: str) -> WantedSignature:
    """Returns the first signature that we can make. values: of the fields. Raises SettingsError with the reason if
    there is none: the field is malformed, or it asks for a secret, an algorithm or a key that is not ours."""
    text = ", ".join(values)
    if len(text) > ACCEPT_SIGNATURE_BYTES_MAX:
        raise SettingsError(f"Accept-Signature has more than {ACCEPT_SIGNATURE_BYTES_MAX:,} bytes")
    try:
        members = read_dictionary(text)
    except SettingsError as error:
        raise SettingsError(f"Accept-Signature is malformed: {error.facts}") from None
    reason = "Accept-Signature is empty"
    for label, member in members.items():
        try:
            return _wanted(label, member, key_id)
        except SettingsError as error:
            reason = error.facts
    raise SettingsError(reason)


def _wanted(label: str, member: Member, key_id: str) -> WantedSignature:
    """Raises SettingsError for a signature that we do not make."""
    if not isinstance(member.value, tuple) or len(label) > SIGNATURE_LABEL_MAX:
        raise SettingsError("Accept-Signature has a member without a list of components")
    told = member.parameters
    if unknown := [name for name in told if name not in _PARAMETERS]:
        raise SettingsError(f"Accept-Signature asks for the parameter {unknown[0]:.40}, which we do not sign")
    for name, own in (("alg", ALGORITHM), ("tag", REQUEST_TAG), ("keyid", key_id)):
        if told.get(name, True) not in (True, own):
            raise SettingsError(f"Accept-Signature asks for {name} {told[name]!r:.60}; ours is {own}")
    names = tuple(name for one in member.value if (name := _component(one)) != AGENT)
    if len(set(names)) < len(names):
        raise SettingsError("Accept-Signature names a component twice")
    if not _HOST.intersection(names):
        names = ("@authority", *names)  # the profile needs the host
    return WantedSignature(names, label, _nonce(told.get("nonce")))


def _component(one: Member) -> str:
    name = one.value
    if name == AGENT and set(one.parameters) <= {"key"}:
        return AGENT
    if not isinstance(name, str) or name not in COMPONENTS or one.parameters:
        raise SettingsError(f"Accept-Signature asks for {name!r:.60}, which we do not sign")
    return name


def _nonce(told: object) -> str | None:
    """Returns the nonce to sign."""
    if told is None or told is False:
        return None
    if told is True:
        return ""
    if not isinstance(told, str) or len(told) > SIGNATURE_NONCE_MAX or not _NONCE.fullmatch(told):
        raise SettingsError(f"Accept-Signature has a nonce that is not a text of {SIGNATURE_NONCE_MAX} characters")
    return told
