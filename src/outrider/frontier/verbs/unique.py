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
from outrider.frontier.format.constant import constant_column
from outrider.frontier.verbs.arrivals import Arrival, Arrivals, KeyedUrls, Origin
from outrider.journey import Link, UrlName
from outrider.limits import NAME_CHARACTERS_MAX
from outrider.url import UrlBatch, is_host_of, spell, undotted
from outrider.url.keys import name_of_key

Uint64s = npt.NDArray[np.uint64]

_BEFORE_KEY: Final = re.compile(r"(?:.*?://)?([^:/?&]*)", re.DOTALL)
_BY_KEY, _BY_TEXT = b"\x01", b"\x00"
_OF_HOST: Final = _BY_TEXT + bytes(4)
"""The octets before the text of a URL with the key of its host."""


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


def arrivals_in_columns(links: KeyedUrls, crawl: int, print_key: bytes) -> Arrivals:
    """Returns URLs of one crawl. Only those with metadata, a key of their own or another spelling become single
    links."""
    origins = [Origin(crawl=crawl)]
    texts, keys, metadata = list(links.urls), list(links.keys), list(links.metadata)
    urls = UrlBatch.of(texts, key=print_key)
    if not urls.valid.all():
        single = [
            Arrival(text, 0, crawl=crawl, key=key or None, metadata=octets, seed=True)
            for text, key, octets in zip(texts, keys, metadata, strict=True)
        ]
        return arrivals_of(single, origins, range(len(single)), UrlBatch.of, print_key)
    canonical, hosts = urls.strings(), kernels.texts_of_spans(urls.arena, *urls.clock_hosts())
    odd: dict[int, Arrival] = {}
    if texts != canonical or keys != hosts or any(metadata):
        rows = zip(texts, canonical, keys, hosts, metadata, strict=True)
        for row, (text, spelled, key, host, octets) in enumerate(rows):
            own = key if key and key != host and undotted(key) != host else None
            if own is not None or octets or text != spelled:
                other = "" if text == spelled else text
                odd[row] = Arrival(text, 0, crawl=crawl, key=own, metadata=octets, seed=True, text=other)
    count = len(urls)
    depths, unset = constant_column(0, count, "i8"), constant_column(np.nan, count, "f8")
    found = Arrivals.of_columns(urls, constant_column(0, count, "i8"), origins, depths, unset)
    return with_identities(replace(found, odd=odd), range(count), print_key)


def with_identities(links: Arrivals, rows: Sequence[int], print_key: bytes) -> Arrivals:
    """Returns the same links with fingerprints of what makes each of these rows one URL."""
    found = links.urls.fingerprints(print_key).copy()
    every = len(rows) == len(links)
    some = np.arange(len(links)) if every else np.array(rows, np.intp)
    if len(some):
        found[some] = _fingerprints_of_plain(links.urls if every else links.urls.take(some), print_key)
    odd = list(links.odd) if every else sorted(links.odd.keys() & set(rows))
    if odd:
        texts = links.urls.strings(odd)
        told = [links.odd[row] for row in odd]
        octets = [
            identity(link.text or canonical, link.key or "", link.unique_key)
            for link, canonical in zip(told, texts, strict=True)
        ]
        found[odd] = fingerprints_of(octets, print_key)
    return replace(links, identities=found)


def _fingerprints_of_plain(urls: UrlBatch, print_key: bytes) -> Uint64s:
    """Returns the fingerprints of `identity` for URLs with the key of their host, in their canonical spelling."""
    starts, ends = urls.texts()
    size = len(_OF_HOST)
    begins, stops = np.zeros((len(urls), 2), np.int64), np.full((len(urls), 2), size, np.int64)
    begins[:, 1], stops[:, 1] = starts + size, ends + size
    octets = kernels.gather_spans(_OF_HOST + urls.arena, begins.reshape(-1), stops.reshape(-1))
    lengths = ends - starts + size
    ends = lengths.cumsum()
    return np.frombuffer(kernels.hash_spans(octets, ends - lengths, ends, print_key), np.uint64)
