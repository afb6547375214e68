"""The crawler's Ed25519 key: a file in PEM form (PKCS #8) that only its owner can read.

The private half never leaves this file: it has no text form, and errors name the file alone.
"""

from __future__ import annotations

import base64
import hashlib
import os
import stat
from typing import TYPE_CHECKING, Final, NoReturn

from outrider.errors import NamedPathError, SettingsError
from outrider.limits import IDENTITY_FILE_BYTES_MAX

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

KEY_FILE: Final = "key.pem"
KEY_BYTES: Final = 32
_EXAMPLES: Final = {
    "poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U": "RFC 9421 appendix B.1.4",
    "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k": "RFC 8037 appendix A",
}
"""Thumbprints of keys whose private halves are printed in a standard. Verifiers refuse them."""


def base64url(octets: bytes) -> str:
    """Returns base64url without padding, as JSON Web Keys have it."""
    return base64.urlsafe_b64encode(octets).rstrip(b"=").decode()


def thumbprint(x: str) -> str:
    """Returns the thumbprint (RFC 7638) of an Ed25519 key, which is its `keyid` and `kid`. x: the public half in
    base64url."""
    told = f'{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}'
    return base64url(hashlib.sha256(told.encode()).digest())


class SigningKey:
    """An Ed25519 key that signs. public: its public half, 32 bytes. x: the same in base64url. id: its thumbprint."""

    __slots__ = ("_private", "id", "public", "x")

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.public = private.public_key().public_bytes_raw()
        self.x = base64url(self.public)
        self.id = thumbprint(self.x)

    def __repr__(self) -> str:
        return f"<SigningKey {self.id}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a signing key is not copied out of its process")

    def sign(self, data: bytes) -> bytes:
        """Returns the signature of these bytes, 64 bytes."""
        return self._private.sign(data)

    @property
    def example(self) -> str | None:
        """Returns the standard that prints this key, None for a key of one's own."""
        return _EXAMPLES.get(self.id)


def make_key(path: str) -> SigningKey:
    """Makes a new key in a new file of mode 0600. Raises NamedPathError if the file exists or cannot be written."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private = Ed25519PrivateKey.generate()
    octets = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(path, flags, 0o600), "wb") as file:
            file.write(octets)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        raise NamedPathError(f"{path} exists already, and a key is never overwritten") from None
    except OSError as error:
        raise NamedPathError(f"{path} cannot be written ({error.strerror})") from None
    return SigningKey(private)


def read_key(path: str) -> SigningKey:
    """Reads a key. Raises NamedPathError for a file that others can read or own, and for one without such a key."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    octets = _private_bytes(path)
    try:
        private = load_pem_private_key(octets, password=None)
    except TypeError:
        raise NamedPathError(f"{path}: the key has a password; store it without one, in a file of mode 0600") from None
    except (ValueError, UnsupportedAlgorithm):  # the text of these errors may quote the file
        raise NamedPathError(
            f"{path} is not a whole private key in PEM form; bring the file back, or remove it and run "
            "`outrider identity init DIR --rotate`"
        ) from None
    if not isinstance(private, Ed25519PrivateKey):
        raise NamedPathError(f"{path} is a key of another kind; use an Ed25519 key, as `outrider identity init` makes")
    return SigningKey(private)


def require_own(key: SigningKey) -> None:
    """Raises SettingsError for a key that a standard prints: everyone can sign with it."""
    if key.example is not None:
        raise SettingsError(
            f"key {key.id} is the test key of {key.example}, which everyone has; make one of your own with "
            "`outrider identity init`"
        )


def _private_bytes(path: str) -> bytes:
    """Returns the bytes of a file that only its owner can read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise NamedPathError(
            f"{path} cannot be read ({error.strerror}); `outrider identity init` makes a key"
        ) from None
    with open(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise NamedPathError(f"{path} is not a file")
        if stat.S_IMODE(about.st_mode) & 0o077:
            raise NamedPathError(f"{path}: other users can read or change this key; run `chmod 600 {path}`")
        if about.st_uid not in (0, os.geteuid()):
            raise NamedPathError(f"{path} belongs to another user; use a key that you own")
        octets = file.read(IDENTITY_FILE_BYTES_MAX + 1)
    if len(octets) > IDENTITY_FILE_BYTES_MAX:
        raise NamedPathError(f"{path} is larger than {IDENTITY_FILE_BYTES_MAX:,} bytes, and so it is not a key")
    return octets
