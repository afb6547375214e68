"""SURT, the sort-friendly form of a URL in the indexes of archives: the host's labels in reverse, in parentheses.

    http://www.archive.org:8080/movies?q  →  http://(org,archive,www,:8080)/movies?q

So pages of a domain and of the names below it are neighbours when sorted, and a prefix such as `http://(org,archive,`
matches them all. This is Heritrix' flavour, with the case of the path kept (Heritrix lowers it when it matches
prefixes). Other flavours first merge URLs in their own ways (no `www.`, sorted parameters, lower case): apply lossy
rules before.
"""

from __future__ import annotations

import re

from outrider.url.spelling import normalize

_PARTS = re.compile(
    r"([A-Za-z][A-Za-z0-9+.-]*)://(?:([^/?#]*)@)?([^/?#@]*?)(:[0-9]*)?(?=[/?#]|$)(.*)", re.DOTALL
).fullmatch
_IPV4 = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}").fullmatch


def surt(url: str, *, scheme: bool = True, trailing_comma: bool = True) -> str:
    """Returns the SURT of a URL's canonical spelling.

    scheme          False omits the `http://(`: `org,archive,www,)/movies`, as in keys of indexes
    trailing_comma  False omits the comma after the last label: `http://(org,archive,www)/movies`

    IP addresses are not reversed and have no comma: `http://(192.0.2.7)/`, `http://([2001:db8::1])/`.
    Raises InvalidUrlError for a text that is not an http or https URL.
    """
    return surt_as_written(normalize(url), scheme=scheme, trailing_comma=trailing_comma)


def surt_as_written(text: str, *, userinfo: bool = True, scheme: bool = True, trailing_comma: bool = True) -> str:
    """Returns the SURT of a text without making it canonical: for URLs from foreign records.

    userinfo  False omits user and password, which are after the port: `http://(org,archive,:8080@user:pass)/`

    A text without `scheme://host` is returned unchanged.
    """
    parts = _PARTS(text)
    if parts is None:
        return text
    name, user, host, port, rest = parts.groups()
    inside = _reversed(host, trailing_comma) + (port or "")
    if userinfo and user is not None:
        inside += "@" + user
    return f"{name}://({inside}){rest}" if scheme else f"{inside}){rest}"


def _reversed(host: str, trailing_comma: bool) -> str:
    if not host or host[0] == "[" or _IPV4(host):
        return host
    labels = ",".join(reversed(host.split(".")))
    return labels + "," if trailing_comma else labels
