"""Which release this is, as told to sites and to people."""

from __future__ import annotations

PRODUCT_VERSION = "0.1"
"""What the User-Agent says behind the token: enough for a site's owner, too little to tell machines apart."""


def version() -> str:
    """The release, as the package's metadata has it; the product's version where it runs from a plain source tree."""
    from importlib import metadata

    try:
        return metadata.version("outrider")
    except metadata.PackageNotFoundError:
        return PRODUCT_VERSION + ".0"
