"""Tree heads as signed notes: three lines (name, number of lines, root), an empty line, and an Ed25519 signature.

The form is that of C2SP's signed-note and tlog-checkpoint, which Go's `sumdb/note` reads.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Final, NamedTuple

from outrider.errors import SettingsError
from outrider.identity.signing_key import KEY_BYTES, SigningKey

_ALGORITHM: Final = b"\x01"  # Ed25519
_HASH_BYTES: Final = 4
_SIGNATURE_BYTES: Final = 64
_NAME: Final = re.compile(r"[^\s+]{1,256}")
_NOTE: Final = re.compile(
    r"(?P<text>(?P<name>[^\s+]{1,256})\n(?P<size>0|[1-9][0-9]{0,18})\n(?P<root>[A-Za-z0-9+/=]{44})\n)\n"
    r"\u2014 (?P=name) (?P<signature>[A-Za-z0-9+/=]{92})\n"
)


class TreeHead(NamedTuple):
    """The head of a tree. name: of its log."""

    name: str
    size: int
    root: bytes


def verifier_key(name: str, public: bytes) -> str:
    """Returns the public key of a note as text: name, hash and key."""
    return f"{name}+{_key_hash(name, public).hex()}+{base64.b64encode(_ALGORITHM + public).decode()}"


def public_key(verifier: str) -> tuple[str, bytes]:
    """Returns name and public half of a key as text. Raises SettingsError."""
    name, _, rest = verifier.partition("+")
    told, _, text = rest.partition("+")
    try:
        octets = base64.b64decode(text, validate=True)
    except ValueError:
        octets = b""
    public = octets[1:]
    wrong = not _NAME.fullmatch(name) or octets[:1] != _ALGORITHM or len(public) != KEY_BYTES
    if wrong or _key_hash(name, public).hex() != told:
        raise SettingsError("the key is not an Ed25519 key of a signed note")
    return name, public


def signed_head(head: TreeHead, key: SigningKey) -> str:
    """Returns the signed note of a head."""
    if not _NAME.fullmatch(head.name):
        raise SettingsError(f"{head.name!r:.80} cannot be the name of a log: it has a space, a plus or no character")
    text = f"{head.name}\n{head.size}\n{base64.b64encode(head.root).decode()}\n"
    signature = _key_hash(head.name, key.public) + key.sign(text.encode())
    return f"{text}\n\u2014 {head.name} {base64.b64encode(signature).decode()}\n"


def read_head(note: str, verifier: str) -> TreeHead:
    """Returns the head of a signed note. verifier: the key as text. Raises SettingsError if the signature is wrong."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    head = head_of(note)
    name, public = public_key(verifier)
    found = _NOTE.fullmatch(note)
    assert found is not None, "head_of has read it"
    octets = base64.b64decode(found["signature"])
    if name != head.name or octets[:_HASH_BYTES] != _key_hash(name, public):
        raise SettingsError("the tree head is signed with another key")
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(octets[_HASH_BYTES:], found["text"].encode())
    except (InvalidSignature, ValueError):
        raise SettingsError("the signature of the tree head is wrong") from None
    return head


def head_of(note: str) -> TreeHead:
    """Returns the head of a signed note, whose signature is not checked. Raises SettingsError."""
    found = _NOTE.fullmatch(note)
    try:
        if found is None:
            raise ValueError
        root = base64.b64decode(found["root"], validate=True)
        signature = base64.b64decode(found["signature"], validate=True)
        if len(root) != hashlib.sha256().digest_size or len(signature) != _HASH_BYTES + _SIGNATURE_BYTES:
            raise ValueError
    except ValueError:
        raise SettingsError("the tree head is not a signed note of three lines") from None
    return TreeHead(found["name"], int(found["size"]), root)


def _key_hash(name: str, public: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\n" + _ALGORITHM + public).digest()[:_HASH_BYTES]
