"""The certificates of the roots that are trusted: certifi's, and those that the user added."""

from __future__ import annotations

import ssl

import certifi

from outrider.errors import SettingsError
from outrider.fetch.failures import safe_text


def roots_pem(ca_file: str | None) -> bytes:
    """Returns the roots as PEM, the user's after the usual ones. Raises SettingsError for a file without roots."""
    with open(certifi.where(), "rb") as source:
        roots = source.read()
    if ca_file is None:
        return roots
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=ca_file)
        with open(ca_file, "rb") as source:
            extra = source.read()
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"ca = {safe_text(ca_file)!r}: {safe_text(str(error))}; wanted is a PEM file with certificates"
        ) from None
    return roots + b"\n" + extra
