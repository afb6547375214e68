"""The keys by which indexes of web archives (CDX, CDXJ) are sorted: those of the Python package `surt`.

    http://www.Example.org:80/A//b/?y=1&x=2  →  org,example)/a/b?x=2&y=1

Unlike `surt`, they merge URLs: the host without `www` and its digits, path and query in lower case, parameters sorted,
well-known session ids and the slash at the end left out. IPv4 addresses are reversed, too: tools that search an index
do the same. The package itself is not used, because it needs a second list of public suffixes and an HTTP client to
update that, and takes twice as long. `make test-servers` compares both.
Source: https://github.com/internetarchive/surt, version 0.3.1, its function `surt` without options
"""

from __future__ import annotations

import re
from urllib.parse import quote_from_bytes, unquote_to_bytes

_PARTS = re.compile(rb"(https?):(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?(?:#.*)?", re.IGNORECASE | re.DOTALL).fullmatch
_AUTHORITY = re.compile(rb"(?:.*@)?(\[[^\]]*\]|[^:]*)(?::([0-9]*))?", re.DOTALL).fullmatch
_REPEATED_SCHEME = re.compile(rb"(https?://)+").match
_WWW = re.compile(rb"www[0-9]*\.").match
_SAFE = rb"""!"$&'()*+,-./:;<=>?@[\]^_`{|}~"""
_PLAIN = re.compile(rb"[\x21-\x7e]*").fullmatch
_DEFAULT_PORTS = {b"http": 80, b"https": 443}
_PATH_SESSIONS = (
    re.compile(rb"(.*/)(?:\((?:[a-z]\([0-9a-z]{24}\))+\)/)([^?]+\.aspx.*)", re.IGNORECASE),
    re.compile(rb"(.*/)(?:\([0-9a-z]{24}\)/)([^?]+\.aspx.*)", re.IGNORECASE),
)
_QUERY_SESSIONS = tuple(
    re.compile(rb"(.*)(?:" + session + rb")(?:&(.*))?", re.IGNORECASE)
    for session in (
        rb"jsessionid=[0-9a-zA-Z]{32}",
        rb"phpsessid=[0-9a-zA-Z]{32}",
        rb"sid=[0-9a-zA-Z]{32}",
        rb"ASPSESSIONID[a-zA-Z]{8}=[a-zA-Z]{24}",
        rb"cfid=[^&]+&cftoken=[^&]+",
    )
)
_MAY_HAVE_SESSION = re.compile(rb"sid=|sessionid|cftoken=", re.IGNORECASE).search


def archive_key(url: str) -> str:
    """Returns the key of an http or https URL: ASCII, without blanks.

    A text without host, or with another scheme, is returned with blanks and other characters in percent form: tools
    sort such lines too, and never find them by a URL of the web.
    """
    octets = url.encode("utf-8", "surrogatepass")
    repeated = _REPEATED_SCHEME(octets)
    if repeated is not None:
        octets = repeated.group(1) + octets[repeated.end() :]
    parts = _PARTS(octets)
    authority = _AUTHORITY(parts[2] or b"") if parts is not None else None
    if parts is None or authority is None or not authority[1]:
        return _escaped(octets).decode("ascii")
    host = _host(authority[1])
    port = int(authority[2] or 0)
    if port and port != _DEFAULT_PORTS[parts[1].lower()]:
        host += b":%d" % port
    query = _query(parts[4]) if parts[4] else b""
    return (host + b")" + _path(parts[3]) + (b"?" + query if query else b"")).decode("ascii")


def _host(host: bytes) -> bytes:
    host = host.strip(b"[]").lower()
    if b"%" in host or not host.isascii():
        host = _unescaped(host)
    host = _escaped(host.replace(b"..", b".").strip(b".")).lower()
    prefix = _WWW(host)
    if prefix is not None:
        host = host[prefix.end() :]
    return b",".join(reversed(host.split(b".")))


def _path(path: bytes) -> bytes:
    if b"%" in path:
        path = _unescaped(path)
    if b"//" in path or b"/." in path or not path:
        path = _shortened(path)
    path = _escaped(path).lower()
    if b".aspx" in path:
        for pattern in _PATH_SESSIONS:
            found = pattern.fullmatch(path)
            if found is not None:
                path = found[1] + found[2]
    return path[:-1] if len(path) > 1 and path.endswith(b"/") else path


def _shortened(path: bytes) -> bytes:
    """Returns a path without segments that are empty or dots. Two dots at the beginning stay, as in the package."""
    kept: list[bytes] = []
    for segment in path.split(b"/")[1:]:
        if segment == b"." or (segment == b".." and kept):
            if segment == b"..":
                kept.pop()
            continue
        kept.append(segment)
    return b"/" + b"".join(segment + b"/" for segment in kept[:-1] if segment) + (kept[-1] if kept else b"")


def _query(query: bytes) -> bytes:
    if b"%" in query:
        query = _unescaped(query)
    query = _escaped(query)
    for pattern in _QUERY_SESSIONS if _MAY_HAVE_SESSION(query) else ():
        found = pattern.fullmatch(query)
        if found is not None:
            query = found[1] + (found[2] or b"")
    query = query.lower()
    if len(query) <= 1:
        return query
    return b"&".join(b"=".join(pair) for pair in sorted(tuple(pair.split(b"=", 1)) for pair in query.split(b"&")))


def _unescaped(octets: bytes) -> bytes:
    """Decodes triplets until there are none: `%2541` becomes `A`."""
    while (decoded := unquote_to_bytes(octets)) != octets:
        octets = decoded
    return octets


def _escaped(octets: bytes) -> bytes:
    if _PLAIN(octets) and b"%" not in octets and b"#" not in octets:
        return octets
    return quote_from_bytes(octets, safe=_SAFE).encode("ascii")
