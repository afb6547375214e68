"""Makes the identity of a crawler, and the files by which sites verify it: what `outrider identity` runs.

The files of one's own site are in the folder `public` of the identity. Any web server can serve them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from outrider.clock import Instant, rfc3339
from outrider.crawl.setup.options import CrawlOptions, value_text
from outrider.errors import NamedPathError, SettingsError
from outrider.identity.folder import DESCRIPTION_FILE, IdentityFolder, checked_origin
from outrider.identity.publication import (
    CARD_NAME,
    CARD_TYPE,
    PAGE_NAME,
    RANGES_NAME,
    RANGES_TYPE,
    CrawlerDescription,
    address_ranges,
    agent_card,
    bot_page,
    key_directory,
)
from outrider.identity.signatures import DIRECTORY_PATH
from outrider.identity.signing_key import KEY_FILE, make_key
from outrider.install_hints import require_identity_extra
from outrider.limits import MICROSECONDS

PUBLIC: Final = "public"
FIELDS_FILE: Final = "nginx.conf"
_DAY_SECONDS: Final = 86_400


@dataclass(frozen=True, slots=True)
class MadeFiles:
    """Files that were made, by their paths. key: the thumbprint of the key that signs. expires: when the proofs of the
    key directory end, as RFC 3339."""

    paths: tuple[str, ...]
    key: str | None = None
    expires: str | None = None


def make_identity(path: str, url: str, contact: str, user_agent: str) -> MadeFiles:
    """Makes a folder with a new key and a description. Raises SettingsError, and NamedPathError if it has one."""
    require_identity_extra()
    options = CrawlOptions(contact=contact, user_agent=user_agent)
    crawler = CrawlerDescription(checked_origin(url), options.user_agent, str(options.contact))
    description = os.path.join(path, DESCRIPTION_FILE)
    if os.path.lexists(description):
        raise NamedPathError(f"{path} has an identity already; `--rotate` makes a new key for it")
    _make_folder(path)
    key = make_key(os.path.join(path, KEY_FILE))
    _write(description, _description_text(crawler).encode())
    return MadeFiles((os.path.join(path, KEY_FILE), description), key.id)


def rotate_key(path: str, at: Instant) -> MadeFiles:
    """Makes a new key. The one before stays in the folder as `key-DATE.pem`, and is published too. Raises
    NamedPathError and SettingsError."""
    require_identity_extra()
    current = os.path.join(path, KEY_FILE)
    if (named := IdentityFolder(path).key_path) != current:
        raise SettingsError(f"identity.toml names the key {named}, so --rotate does not change it; replace that file")
    paths = []
    if os.path.lexists(current):
        old = os.path.join(path, f"key-{rfc3339(at).translate({ord(':'): None})}.pem")
        try:
            os.rename(current, old)
        except OSError as error:
            raise NamedPathError(f"{current} cannot be renamed ({error.strerror})") from None
        paths.append(old)
    key = make_key(current)
    return MadeFiles((current, *paths), key.id)


def write_page(path: str) -> MadeFiles:
    """Writes the bot page and the agent card. Raises NamedPathError and SettingsError."""
    crawler = IdentityFolder(path).crawler
    agent = CrawlOptions(contact=f"{crawler.url}/{PAGE_NAME}", user_agent=crawler.name).user_agent_sent
    has_ranges = os.path.exists(os.path.join(path, PUBLIC, RANGES_NAME))
    card = agent_card(crawler, agent, has_ranges=has_ranges)
    page = bot_page(crawler, agent, has_ranges=has_ranges)
    return MadeFiles(_publish(path, {PAGE_NAME: page.encode(), CARD_NAME: _json(card)}))


def write_ranges(path: str, ranges: Sequence[str], services: Sequence[str], at: Instant) -> MadeFiles:
    """Writes the address ranges; those of the description if none are given. Raises as `write_page`."""
    folder = IdentityFolder(path)
    wanted = ranges or folder.ranges
    if not wanted:
        # An empty list says that no address is the crawler's, so sites would refuse each request.
        raise SettingsError("no range is named: set `ranges` in identity.toml, or name ranges after DIR")
    found = address_ranges(wanted, at, services)
    return MadeFiles(_publish(path, {RANGES_NAME: _json(found)}))


def write_directory(path: str, at: Instant, days: int) -> MadeFiles:
    """Writes the key directory, and a part of an nginx configuration with its fields. Raises as `write_page`."""
    require_identity_extra()
    folder = IdentityFolder(path)
    created = at // MICROSECONDS
    made = key_directory(
        folder.keys(), folder.crawler.authority, created=created, expires=created + days * _DAY_SECONDS
    )
    paths = _publish(path, {DIRECTORY_PATH.removeprefix("/"): made.body})
    fields = os.path.join(path, FIELDS_FILE)
    _write(fields, _server_text(made.fields()).encode())
    return MadeFiles((*paths, fields), folder.key().id, rfc3339(made.expires * MICROSECONDS))


def _server_text(fields: Sequence[tuple[str, str]]) -> str:
    """Returns the part of an nginx server that serves the files with their types."""

    def block(where: str, told: Sequence[tuple[str, str]]) -> str:
        (_, kind), *others = told
        lines = [f'    default_type "{kind}";', *(f"    add_header {name} '{value}' always;" for name, value in others)]
        return "\n".join((f"location = {where} {{", "    types { }", *lines, "}", ""))

    return (
        "# Include this file in the server of your site; its root is the folder `public`. Make it anew before its\n"
        "# proofs end: `outrider identity directory`.\n"
        + block(DIRECTORY_PATH, fields)
        + block(f"/{RANGES_NAME}", (("Content-Type", RANGES_TYPE),))
        + block(f"/{CARD_NAME}", (("Content-Type", CARD_TYPE),))
    )


def _description_text(crawler: CrawlerDescription) -> str:
    told: dict[str, object] = {**msgspec.to_builtins(crawler), "ranges": ()}
    head = "# The identity of a crawler. docs/howto/identity.md explains each key.\n"
    return head + "".join(f"{name} = {value_text(value)}\n" for name, value in told.items())


def _json(value: Mapping[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def _publish(path: str, files: Mapping[str, bytes]) -> tuple[str, ...]:
    """Writes files of the public folder, each whole or not at all. Returns their paths."""
    made = []
    for name, content in files.items():
        target = os.path.join(path, PUBLIC, name)
        _make_folder(os.path.dirname(target), 0o755)
        _write(target, content, 0o644)
        made.append(target)
    return tuple(made)


def _make_folder(path: str, mode: int = 0o700) -> None:
    try:
        os.makedirs(path, mode, exist_ok=True)
    except OSError as error:
        raise NamedPathError(f"{path} cannot be made ({error.strerror})") from None


def _write(path: str, content: bytes, mode: int = 0o600) -> None:
    temporary = f"{path}.tmp"
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode), "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except OSError as error:
        raise NamedPathError(f"{path} cannot be written ({error.strerror})") from None
