"""The canonical spelling by ada alone, save for the decoding of RFC 3986: the judge of the kernel and of `spell`."""

from __future__ import annotations

from ada_url import join_url, normalize_url

from outrider.kernels.urls import unreserved_decoded


def parsed(url: str, page: str | None = None) -> str | None:
    """Returns the canonical text of a URL, or of a reference on a page; None for an invalid one."""
    try:
        href = normalize_url(_scalars(url)) if page is None else join_url(_scalars(page), _scalars(url))
    except ValueError:
        return None
    if not href.startswith(("http://", "https://")):
        return None
    head, _, rest = href.partition("#")[0].partition("//")
    authority, _, path = rest.partition("/")
    if path.endswith("?") and path.count("?") == 1:
        path = path[:-1]
    text = f"{head}//{authority.rpartition('@')[2]}/{path}"
    return unreserved_decoded(text.encode("ascii")).decode("ascii")


def _scalars(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
