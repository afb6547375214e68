"""The owner of a URL: its host, registrable domain, origin or server address; and its keyed fingerprint.

The public suffix list is in the package, with its date, and is never fetched when Outrider runs. So one release has
one result. `scripts/update_psl.py` updates it for the next release.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Any, Literal
from urllib.parse import quote, unquote

import numpy as np
import numpy.typing as npt
import publicsuffixlist
from ada_url import idna

from outrider import kernels
from outrider.kernels.framing import Bytes
from outrider.kernels.suffixes import NO_DOMAIN, ODD
from outrider.url.spelling import authority_of, host_of, mended, normalize, normalize_all

_LIST = (pkgutil.get_data("outrider.url", "data/public_suffix_list.dat") or b"").decode("utf-8")
_VERSION_LINE = re.search(r"^// VERSION: (\S+)$", _LIST, re.MULTILINE)
assert _VERSION_LINE is not None, "the packaged public suffix list names its version"

PUBLIC_SUFFIX_VERSION: str = _VERSION_LINE[1]
"""Names the packaged list by date and time, as its makers do; noted in every store."""
PUBLIC_SUFFIX_DATE: str = PUBLIC_SUFFIX_VERSION[:10]
"""The day the packaged list is of, `2026-10-22`."""

By = Literal["host", "domain", "origin", "address"]
BY: tuple[By, ...] = ("host", "domain", "origin", "address")
_IDNA_DOTS = dict.fromkeys(map(ord, "\u3002\uff0e\uff61"), ".")  # UTS #46 maps these to the full stop
_HOSTS_CACHED = 65_536  # a crawl's hot hosts are fewer; 20 MB of usual names, 50 MB of the longest
_HOST_CHARACTERS_CACHED = 254  # RFC 1035 section 2.3.4, and a dot: no longer name is ever resolved, nor kept here


@cache
def _list(private: bool) -> publicsuffixlist.PublicSuffixList:
    # On first use, for names that are not ASCII: reading the rules needs 50 ms, a kernel's rules 12.
    return publicsuffixlist.PublicSuffixList(
        _LIST, accept_unknown=True, accept_encoded_idn=True, only_icann=not private
    )


@cache
def public_suffixes(private: bool = True) -> kernels.PublicSuffixes:
    """The packaged list, with or without its private section, as hosts in batches are looked up in it."""
    return kernels.PublicSuffixes(_rules(private))


def _rules(private: bool) -> bytes:
    sections = _LIST if private else _LIST.partition("// ===END ICANN DOMAINS===")[0]
    rules = [line for line in sections.splitlines() if line and not line.startswith("//")]
    # A kernel sees ASCII only; the list's own spelling of a rule is Unicode.
    return "\n".join(rule if rule.isascii() else _a_labels(rule) for rule in rules).encode()


def _a_labels(rule: str) -> str:
    name = rule.removeprefix("!")
    return rule[: len(rule) - len(name)] + idna.encode(name).decode("ascii")


def registrable_domain(host: str, private: bool = True) -> str | None:
    """Returns the public suffix of a host name and one label more: `example.co.uk` for `www.example.co.uk`.

    private  whether the list's private section applies: with it `a.github.io` and `b.github.io` are different
             people, without it both are `github.io`

    None for a public suffix itself, a single label, an IP address, a leading dot or an empty label. One trailing dot is
    removed. Unicode in, Unicode out; `xn--` in, `xn--` out. Source: publicsuffix.org.
    """
    if len(host) > _HOST_CHARACTERS_CACHED:
        return _registrable_domain(host, private)
    return _cached_domain(host, private)


def registrable_domains(hosts: Iterable[str], private: bool = True) -> list[str | None]:
    """Returns `registrable_domain` of each host name, in one call of the kernel.

    Raises TypeError when `hosts` is one string, or contains a non-string.
    """
    rows = hosts if isinstance(hosts, list | tuple | str) else list(hosts)
    domains, odd = public_suffixes(private).texts(rows)
    for row in odd:
        domains[row] = registrable_domain(rows[row], private)
    return domains


def slots_of_spans(arena: Bytes, starts: Any, ends: Any, slot_key: bytes) -> npt.NDArray[np.uint16]:
    """Returns the slots of hosts whose names are in an arena: the top 12 bits of a keyed hash of the registrable
    domain, or of the name without one. Raises as `domain_spans`."""
    starts, ends = domain_spans(arena, np.ascontiguousarray(starts), np.ascontiguousarray(ends))
    numbers = np.frombuffer(kernels.hash_spans(arena, starts, ends, slot_key), np.uint64)
    return (numbers >> np.uint64(52)).astype(np.uint16)


def domain_spans(
    arena: Bytes, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], private: bool = True
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Returns the start and end of each host's registrable domain in an arena; of the host itself if it has none.

    arena, starts, ends  hosts as canonical URLs have them: ASCII, lower case; int64, one of both per host

    Raises ValueError for a host that is not ASCII, or a span outside the arena, with the number of its row.
    """
    found = np.frombuffer(public_suffixes(private).domains(arena, starts, ends), np.int64)
    if len(odd := np.flatnonzero(found == ODD)):
        raise ValueError(f"row {odd[0]}: a host that is not ASCII is not canonical")
    has_one = found != NO_DOMAIN
    # No host that has a domain is empty.
    dotted = has_one.copy()
    dotted[has_one] = np.frombuffer(arena, np.uint8)[ends[has_one] - 1] == ord(".")
    return np.where(has_one, found, starts), ends - dotted


def _registrable_domain(host: str, private: bool) -> str | None:
    name = mended(host).lower()
    if not name.isascii():
        name = name.translate(_IDNA_DOTS)
    name = name.removesuffix(".")
    if "." not in name or name[0] == "." or name[-1] == "." or ".." in name:
        return None
    if ":" in name or name[0] == "[":
        return None
    if name[name.rfind(".") + 1 :].isdigit():
        return None  # WHATWG: a name whose last label is a number is an IPv4 address, or nothing
    if name.isascii():
        (domain,), odd = public_suffixes(private).texts([name])
        return _list(private).privatesuffix(name) if odd else domain
    domain = _list(private).privatesuffix(name)
    if domain is None:
        return domain
    # The list contains U-labels and A-labels, but not the letters that IDNA maps to others.
    ascii_name = idna.encode(name).decode("ascii")
    if not ascii_name:
        return None
    ascii_domain = _list(private).privatesuffix(ascii_name)
    if ascii_domain is None:
        return None
    labels = ascii_domain.count(".") + 1
    parts = name.split(".")
    return ".".join(parts[-labels:]) if len(parts) == ascii_name.count(".") + 1 else idna.decode(ascii_domain)


_cached_domain = lru_cache(maxsize=_HOSTS_CACHED)(_registrable_domain)


def key(url: str, by: By | Callable[[str], str] = "host", *, private: bool = True, address: str | None = None) -> str:
    """Returns the key of a URL, which determines its clock, its queue or its slot.

    by       "host": the host name, IPv6 in its brackets
             "domain": the registrable domain; the host if it has none
             "origin": scheme, host and port, `http://example.org:8080`
             "address": the server's IP address; the host if the address is unknown
             a function: its result for the canonical URL
    private  for "domain": whether the private section of the public suffix list applies
    address  for "address": the resolved address of the host; a host that is an address does not need it

    Raises InvalidUrlError for a text that is not an http or https URL, ValueError for another `by` or a malformed
    `address`, TypeError when a function does not return a text.
    """
    canonical = normalize(url)
    if callable(by):
        made = by(canonical)
        if not isinstance(made, str):
            raise TypeError(f"a key is text; the function returned a {type(made).__name__}")
        return made
    if by == "host":
        return host_of(canonical)
    if by == "domain":
        host = host_of(canonical)
        return registrable_domain(host, private) or host
    if by == "origin":
        return authority_of(canonical)
    if by == "address":
        return _address_of(host_of(canonical), address)
    raise ValueError(f"a key is made by {', '.join(BY)} or a function, not by {by!r}")


def _address_of(host: str, resolved: str | None) -> str:
    literal = host[1:-1] if host[0] == "[" else host if host[host.rfind(".") + 1 :].isdigit() else None
    text = literal if literal is not None else resolved
    if text is None:
        return host
    found = ip_address(text)
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped  # RFC 4291 section 2.5.5.2: the same server, in the other family's clothes
    return str(found)


_NO_HOST = "|"
"""The first character of the name of a key without a host; no host of a URL has such a character."""


def name_of_key(key: str) -> str:
    """Returns the name that a key has in place of a host, for texts that are not URLs. It has no dot, and no domain."""
    return _NO_HOST + quote(key, safe="").replace(".", "%2E")


def key_of_name(name: str) -> str | None:
    """Returns the key whose name `name_of_key` made; None for a host."""
    return unquote(name[1:]) if name[:1] == _NO_HOST else None


def has_host(canonical: str) -> bool:
    """Whether a URL has a host, and not the name of a key in its place."""
    return canonical[7:8] != _NO_HOST


def fingerprints(urls: Iterable[object], *, key: bytes) -> npt.NDArray[np.uint64]:
    """The keyed 64-bit fingerprint (SipHash-1-3) of each URL's canonical spelling, as an array of its length.

    `key` is 16 secret bytes; a store's own is in its manifest. An attacker without the key cannot make URLs that
    collide.
    Raises InvalidUrlError for the first URL that cannot be crawled, ValueError for a key of another length.
    """
    return np.frombuffer(kernels.fingerprints(normalize_all(urls), key), dtype="<u8").astype(np.uint64)
