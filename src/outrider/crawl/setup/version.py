"""The release, as sites and users see it."""

from __future__ import annotations

PRODUCT_VERSION = "0.1"
"""The version in the User-Agent: enough for a site's owner, too little to tell machines apart."""


def version() -> str:
    """Returns the release from the package's metadata; the product's version if it runs from a plain source tree."""
    from importlib import metadata

    try:
        return metadata.version("outrider")
    except metadata.PackageNotFoundError:
        return PRODUCT_VERSION + ".0"
