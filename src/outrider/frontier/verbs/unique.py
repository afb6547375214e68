"""Links of crawls by unique keys: their URLs byte for byte, and the number by which each of them is known.

The card of such a link has the canonical spelling of its URL, which names its host; its record keeps the text, if that
differs. A text that is not a URL has no host. Its card has a URL of a name that no host can have, made of its key.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from outrider import kernels
from outrider.frontier.verbs.arrivals import Arrival, Arrivals, Origin
from outrider.journey import Link, UrlName
from outrider.limits import NAME_CHARACTERS_MAX
from outrider.url import UrlBatch, is_host_of, spell
from outrider.url.keys import name_of_key

Uint64s = npt.NDArray[np.uint64]

_BEFORE_KEY: Final = re.compile(r"(?:.*?://)?([^:/?&]*)", re.DOTALL)
_BY_KEY, _BY_TEXT = b"\x01", b"\x00"


def key_of_text(text: str) -> str:
    """Returns the key of a text that is not a URL and has no key of its own, "" if there is none: as URLFrontier, the
    part after `://` and before the first of `: / ? &`."""
    match = _BEFORE_KEY.match(text)
    return match[1][:NAME_CHARACTERS_MAX] if match is not None else ""


def identity(text: str, key: str, unique_key: bytes) -> bytes:
    """Returns the octets that are equal for links that are the same URL. key: "" for that of the host."""
    if unique_key:
        return _BY_KEY + unique_key
    octets = key.encode()
    return _BY_TEXT + len(octets).to_bytes(4, "little") + octets + text.encode()


def identity_of_name(url: UrlName) -> bytes:
    """Returns the same octets for the name of a URL."""
    if isinstance(url, bytes):
        return identity("", "", url)
    link = url if isinstance(url, Link) else Link(url)
    if link.unique_key is not None:
        return identity("", "", link.unique_key)
    if not _is_text(link.url):
        return _BY_TEXT  # no URL has it
    one = named(Arrival(link.url, 0, key=link.key), spell([link.url])[0] or "")
    return identity(link.url, one.key or "", b"")


def fingerprints_of(identities: Sequence[bytes], key: bytes) -> Uint64s:
    """Returns the keyed fingerprint of each."""
    ends = np.cumsum([len(one) for one in identities], dtype=np.int64)
    starts = ends - np.array([len(one) for one in identities], np.int64)
    return np.frombuffer(kernels.hash_spans(b"".join(identities), starts, ends, key), np.uint64)


def named(link: Arrival, canonical: str) -> Arrival:
    """Returns a link with the text of its record and the key of its queue. canonical: "" for a text that is not a
    URL."""
    if canonical:
        key = None if link.key is not None and is_host_of(link.key, canonical) else link.key
        text = "" if link.url == canonical else link.url
        # Most links are as they should be, and a copy costs more than all of the rest.
        return link if key == link.key and text == link.text else replace(link, key=key, text=text)
    return replace(link, key=link.key or key_of_text(link.url), text=link.url)


def arrivals_of(
    links: Sequence[Arrival], origins: Sequence[Origin], rows: Sequence[int], spelled: Any, print_key: bytes
) -> Arrivals:
    """Returns links that arrived as single links. rows: those of crawls by unique keys; spelled: spells the others,
    with the lossy rules."""
    chosen = frozenset(rows)
    own, others = list(links), [row for row in range(len(links)) if row not in chosen]
    exact = UrlBatch.of([own[row].url if _is_text(own[row].url) else None for row in rows], key=print_key)
    for row, canonical in zip(rows, exact.strings(), strict=True):
        if _is_text(own[row].url):
            own[row] = named(own[row], canonical)
    keyed = [place for place, row in enumerate(rows) if not exact.valid[place] and own[row].text and own[row].key]
    made = _of_names([name_of_key(own[rows[place]].key or "") for place in keyed])
    parts = [exact, made, spelled([own[row].url for row in others])]
    # The rows of all parts, in the order of the links.
    places = np.zeros(len(own), np.intp)
    places[list(rows)] = np.arange(len(exact))
    places[[rows[place] for place in keyed]] = len(exact) + np.arange(len(made))
    places[others] = len(exact) + len(made) + np.arange(len(others))
    urls = UrlBatch.concatenate(parts).take(places)
    return with_identities(Arrivals.of_links(own, origins, lambda _: urls), rows, print_key)


def _is_text(url: object) -> bool:
    """Whether a text can be kept: it is not empty, and has no half of a surrogate pair."""
    try:
        return isinstance(url, str) and bool(url.encode())
    except UnicodeEncodeError:
        return False


def _of_names(names: Sequence[str]) -> UrlBatch:
    """Returns URLs with these names in place of hosts."""
    texts = [f"http://{name}/" for name in names]
    ends = np.array([0, *map(len, texts)], np.int64).cumsum()
    sizes = np.array([len(name) for name in names], np.uint32)
    return UrlBatch(
        "".join(texts).encode(),
        ends,
        np.ones(len(texts), np.bool_),
        np.zeros(len(texts), np.uint8),
        sizes,
        sizes + np.uint32(len("http://")),
    )


def with_identities(links: Arrivals, rows: Sequence[int], print_key: bytes) -> Arrivals:
    """Returns the same links with fingerprints of what makes each of these rows one URL."""
    found = links.urls.fingerprints(print_key).copy()
    texts, some = links.urls.strings(rows), []
    for row, canonical in zip(rows, texts, strict=True):
        link = links.odd.get(row)
        if link is None:
            some.append(identity(canonical, "", b""))
        else:
            some.append(identity(link.text or canonical, link.key or "", link.unique_key))
    if some:
        found[list(rows)] = fingerprints_of(some, print_key)
    return replace(links, identities=found)
