"""The address of a catalog: its parts, and its text with and without the password."""

from __future__ import annotations

import os
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from outrider.errors import SettingsError
from outrider.storage.object_address import S3, checked_object_store

SQLITE: Final = "sqlite"
POSTGRES: Final = "postgresql"
PARQUET: Final = "parquet"
ACCEPTED: Final = "sqlite:PATH, parquet:FOLDER, parquet:s3://BUCKET/PREFIX or postgresql://USER@HOST/DATABASE"
_SECRET_WORDS: Final = ("pass", "secret", "token")
_DATABASE_ENDINGS: Final = (".db", ".sqlite")
_PASSFILE: Final = "passfile"  # the name of a file


def checked_address(text: str) -> str:
    """Returns the address with a whole path. Raises SettingsError; its message contains no part of a password."""
    scheme, colon, rest = text.strip().partition(":")
    if scheme in (SQLITE, PARQUET) and rest.strip():
        if scheme == PARQUET and rest.strip().startswith(S3):
            return f"{PARQUET}:{checked_object_store(rest)}"
        if "\0" in rest or not _is_text(rest):
            raise SettingsError(f"the path has a NUL character or is not UTF-8; use {ACCEPTED}")
        return f"{scheme}:{os.path.abspath(os.path.expanduser(rest))}"
    if scheme in (POSTGRES, "postgres"):
        return _checked_server(f"{POSTGRES}:{rest.strip()}")
    what = (
        "it has no path"
        if scheme in (SQLITE, PARQUET)
        else f"unknown kind {scheme[:40]!r}"
        if colon
        else "it has no kind"
    )
    raise SettingsError(f"{what}; use {ACCEPTED}")


def _checked_server(address: str) -> str:
    """Checks the address of a server. A password with characters of an address would be taken for another part of it,
    and shown."""
    try:
        parts = urlsplit(address)
        whole = parts.port is None or parts.port > 0
    except ValueError:
        whole, parts = False, urlsplit("")
    if not address.startswith(f"{POSTGRES}://"):
        raise SettingsError(f"it does not begin with {POSTGRES}://; use {ACCEPTED}")
    if not whole or parts.fragment or "@" in parts.path + parts.query or any(mark in address for mark in "\0\n\r "):
        raise SettingsError(
            "the address cannot be read; write each of : / ? # @ % in a user or password as % and two digits, or pass "
            f"the password in PGPASSWORD; use {ACCEPTED}"
        )
    return address


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_place(address: str, directory: str) -> None:
    """Raises SettingsError for a file in the directory of a crawl that may be one of the crawl's own files. An empty
    one looks like a new database."""
    scheme, _, path = address.partition(":")
    inside = os.path.realpath(path).startswith(os.path.join(os.path.realpath(directory), ""))
    if scheme == SQLITE and inside and not path.endswith(_DATABASE_ENDINGS):
        raise SettingsError(
            f"catalog {address} is a file of the crawl; name a path outside of {directory}, or one that ends with "
            + " or ".join(_DATABASE_ENDINGS)
        )


def shown_address(address: str) -> str:
    """Returns an address without its password, as messages, files and logs contain it."""
    if not address.startswith(f"{POSTGRES}:"):
        return address
    parts = urlsplit(address)
    user, at, host = parts.netloc.rpartition("@")
    query = [
        (name, value)
        for name, value in parse_qsl(parts.query, keep_blank_values=True)
        if name == _PASSFILE or not any(word in name.lower() for word in _SECRET_WORDS)
    ]
    netloc = f"{quote(user.partition(':')[0], safe='%')}{at}{host}"
    return parts._replace(netloc=netloc, query=urlencode(query, safe="/,"), fragment="").geturl()
