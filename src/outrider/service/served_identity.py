"""The key directory of an identity, as a server answers with it: its proofs of possession are made anew each hour."""

from __future__ import annotations

import logging
from typing import Final

from outrider.clock import Instant
from outrider.errors import OutriderError
from outrider.identity.folder import IdentityFolder
from outrider.identity.publication import KeyDirectory, key_directory
from outrider.install_hints import require_identity_extra
from outrider.limits import MICROSECONDS

HOUR_SECONDS: Final = 3_600
PROOF_SECONDS: Final = 24 * HOUR_SECONDS

_log = logging.getLogger("outrider.service")


class ServedIdentity:
    """The key directory of the identity in a folder. name: the host name of its site."""

    def __init__(self, path: str, at: Instant) -> None:
        """Raises NamedPathError and SettingsError for an identity that cannot be used."""
        require_identity_extra()
        self._path = path
        folder = IdentityFolder(path)
        self.name = folder.crawler.authority.partition(":")[0]
        self._made = _directory(folder, at // MICROSECONDS)

    def directory(self, at: Instant) -> KeyDirectory:
        """Returns the key directory. An old one is made anew from the folder, so a changed key is published within an
        hour. If the folder cannot be read, the log says so, and the last directory counts until its proofs end; then
        this raises as the constructor does."""
        now = at // MICROSECONDS
        if not 0 <= now - self._made.created < HOUR_SECONDS:
            try:
                self._made = _directory(IdentityFolder(self._path), now)
            except OutriderError as error:
                if now >= self._made.expires:
                    raise
                _log.warning("the key directory is not made anew: %s", error)
        return self._made


def _directory(folder: IdentityFolder, now: int) -> KeyDirectory:
    return key_directory(folder.keys(), folder.crawler.authority, created=now, expires=now + PROOF_SECONDS)
