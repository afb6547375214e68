"""Credentials of one origin: `ORIGIN=USER:PASSWORD` or `ORIGIN=Bearer TOKEN`, and the field that is sent."""

from __future__ import annotations

from base64 import b64encode
from typing import Final

from outrider.errors import InvalidUrlError
from outrider.fetch.downloader import is_field_value, target_of
from outrider.url import normalize

CREDENTIALS_CHARACTERS_MAX: Final = 8_000  # a head line of a request; servers refuse longer ones
_BEARER: Final = "Bearer "


def origin_of(text: str) -> str:
    """Returns the canonical URL of an origin, as `https://host:port/`. Raises ValueError that does not repeat it: it
    may contain a secret."""
    try:
        target = target_of(normalize(text))
    except InvalidUrlError:
        raise ValueError("its origin is not like https://example.org or http://localhost:8080") from None
    if target.path != "/" or set(text) & set("@?#"):
        raise ValueError("its origin has a path, a user or a query; credentials are for a whole origin")
    return f"{target.scheme}://{target.authority}/"


def checked_secret(text: str) -> str:
    """Returns the secret unchanged. Raises ValueError that does not repeat it."""
    if len(text) > CREDENTIALS_CHARACTERS_MAX:
        raise ValueError(f"the secret is longer than {CREDENTIALS_CHARACTERS_MAX} characters")
    if not text.startswith(_BEARER) and ":" not in text:
        raise ValueError("the secret is neither USER:PASSWORD nor Bearer TOKEN")
    if any(ord(character) < 0x20 or ord(character) == 0x7F for character in text):
        raise ValueError("the secret contains a control character")
    if text.startswith(_BEARER) and not is_field_value(text):
        raise ValueError("the secret has characters that cannot be sent")
    return text


def sent_to(pair: tuple[str, str]) -> tuple[str, str]:
    """Origin and value of its Authorization field: RFC 7617 section 2 (in UTF-8), RFC 6750 section 2.1."""
    origin, secret = pair
    if secret.startswith(_BEARER):
        return origin, secret
    return origin, "Basic " + b64encode(secret.encode("utf-8", "replace")).decode("ascii")
