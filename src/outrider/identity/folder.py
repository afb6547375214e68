"""The folder of an identity: `key.pem`, older keys as `key-NAME.pem`, and `identity.toml`, which describes the crawler.

    url = "https://crawler.example.org"     the origin of the crawler's own site
    user_agent = "Outrider"                 its product token
    contact = "crawler@example.org"         a mail address or a URL

Optional keys are `purpose`, `data`, `exemptions` (sentences for the bot page), `renders` (whether the crawler runs
scripts), `ranges` (address ranges), and `key` (the path of the key, for example a mounted secret).
"""

from __future__ import annotations

import os
import re
import tomllib
from typing import Final

import msgspec

from outrider.errors import NamedPathError, SettingsError
from outrider.identity.publication import CrawlerDescription
from outrider.identity.signing_key import KEY_FILE, SigningKey, read_key, require_own
from outrider.limits import IDENTITY_FILE_BYTES_MAX, IDENTITY_KEYS_MAX, IDENTITY_TEXT_MAX

DESCRIPTION_FILE: Final = "identity.toml"
_ORIGIN = re.compile(r"https://[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?(?::[1-9][0-9]{0,4})?")
_OLD_KEY = re.compile(r"key-[A-Za-z0-9._-]+\.pem")


class _Description(CrawlerDescription, frozen=True):
    """All keys of identity.toml: those of the crawler, its address ranges, and the path of its key."""

    ranges: tuple[str, ...] = ()
    key: str = KEY_FILE


_TEXTS: Final = ("name", "contact", "purpose", "data", "exemptions")
_KEYS: Final = {field.name: field.encode_name for field in msgspec.structs.fields(_Description)}


class IdentityFolder:
    """The folder of an identity, whose description was read and checked. crawler: what it says. ranges: its address
    ranges."""

    def __init__(self, path: str) -> None:
        """Raises NamedPathError for a folder without a description, SettingsError for a wrong one."""
        self.path = path
        told = _described(os.path.join(path, DESCRIPTION_FILE))
        self.ranges = told.ranges
        self.key_path = os.path.join(path, os.path.expanduser(told.key))
        """The file of the key that signs requests."""
        self.crawler: CrawlerDescription = told

    def key(self) -> SigningKey:
        """Returns the key that signs requests. Raises NamedPathError and SettingsError."""
        key = read_key(self.key_path)
        require_own(key)
        return key

    def keys(self) -> list[SigningKey]:
        """Returns the keys to publish: the one that signs, then older ones."""
        old = sorted(name for name in os.listdir(self.path) if _OLD_KEY.fullmatch(name))
        if len(old) >= IDENTITY_KEYS_MAX:
            raise SettingsError(
                f"{self.path} has {len(old)} old keys: remove those that sign nothing any more; {IDENTITY_KEYS_MAX} "
                "keys at most are published"
            )
        found = {key.id: key for key in (self.key(), *(read_key(os.path.join(self.path, name)) for name in old))}
        for key in found.values():
            require_own(key)
        return list(found.values())


def checked_origin(text: str) -> str:
    """Returns the origin of a crawler's site. Raises SettingsError if it is not one of https."""
    origin = text.strip().rstrip("/")
    if not _ORIGIN.fullmatch(origin):
        raise SettingsError(
            f"url is {text!r:.80}: use the https origin of your site in lower case, such as https://crawler.example.org"
        )
    return origin.removesuffix(":443")


def _described(path: str) -> _Description:
    try:
        with open(path, "rb") as file:
            octets = file.read(IDENTITY_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise NamedPathError(
            f"{path} cannot be read ({error.strerror}); `outrider identity init` makes a folder with an identity"
        ) from None
    if len(octets) > IDENTITY_FILE_BYTES_MAX:
        raise NamedPathError(f"{path} is larger than {IDENTITY_FILE_BYTES_MAX:,} bytes")
    try:
        told = msgspec.convert(tomllib.loads(octets.decode()), _Description)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SettingsError(f"{path} is not TOML: {error}") from None
    except msgspec.ValidationError as error:
        raise SettingsError(f"{path}: {error}") from None
    for name in _TEXTS:
        text = getattr(told, name)
        if not text.strip() or len(text) > IDENTITY_TEXT_MAX or not text.isprintable():
            raise SettingsError(
                f"{path}: {_KEYS[name]} is empty, longer than {IDENTITY_TEXT_MAX:,} characters, or no text"
            )
    return msgspec.structs.replace(told, url=checked_origin(told.url))
