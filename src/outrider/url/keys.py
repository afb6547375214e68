"""Who a URL belongs to: host, registrable domain (by the packaged public suffix list, never fetched) or origin."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Literal

import publicsuffixlist
from ada_url import idna

from outrider.url.spelling import authority_of, host_of, normalize

PUBLIC_SUFFIX_VERSION: str = publicsuffixlist.__version__
"""Names the packaged list by its date; pinned in every store. The private section (github.io …) is in force."""

By = Literal["host", "domain", "origin"]
_IDNA_DOTS = dict.fromkeys(map(ord, "\u3002\uff0e\uff61"), ".")  # UTS #46 maps these to the full stop
_HOSTS_CACHED = 65_536  # 10 MB at most; a crawl's hot hosts are fewer


@cache
def _list() -> publicsuffixlist.PublicSuffixList:
    # On first use: reading the list takes 50 ms, which `outrider --help` need not pay.
    return publicsuffixlist.PublicSuffixList(accept_unknown=True, accept_encoded_idn=True, only_icann=False)


@lru_cache(maxsize=_HOSTS_CACHED)
def registrable_domain(host: str) -> str | None:
    """The public suffix of a host name and one label more: `example.co.uk` for `www.example.co.uk`.

    None for a public suffix itself, a single label, an IP address, a leading dot or an empty label. One trailing dot is
    taken off. Unicode in, Unicode out; `xn--` in, `xn--` out. Source: publicsuffix.org, its private section included.
    """
    name = host.lower()
    if not name.isascii():
        name = name.translate(_IDNA_DOTS)
    name = name.removesuffix(".")
    if not name or "." not in name or name[0] == "." or ".." in name or ":" in name or name[0] == "[":
        return None
    if name[name.rfind(".") + 1 :].isdigit():
        return None  # WHATWG: a name whose last label is a number is an IPv4 address, or nothing
    domain = _list().privatesuffix(name)
    if domain is None or name.isascii():
        return domain
    # The list knows U-labels and A-labels, but not the letters that IDNA maps to others.
    ascii_name = idna.encode(name).decode("ascii")
    if not ascii_name:
        return None
    ascii_domain = _list().privatesuffix(ascii_name)
    if ascii_domain is None:
        return None
    labels = ascii_domain.count(".") + 1
    parts = name.split(".")
    return ".".join(parts[-labels:]) if len(parts) == ascii_name.count(".") + 1 else idna.decode(ascii_domain)


def key(url: str, by: By = "host") -> str:
    """The politeness key of a URL: its host, its registrable domain (the host where there is none), or its origin.

    Raises InvalidUrlError for what is no http or https URL, ValueError for another `by`.
    """
    canonical = normalize(url)
    if by == "host":
        return host_of(canonical)
    if by == "domain":
        host = host_of(canonical)
        return registrable_domain(host) or host
    if by == "origin":
        return authority_of(canonical)
    raise ValueError(f"a key is made by host, domain or origin, not by {by!r}")
