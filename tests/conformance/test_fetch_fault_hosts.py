"""A hundred hosts that misbehave, all fetched at once: the fetch kernel and libcurl end alike, with the same
digests."""

from __future__ import annotations

import asyncio
import hashlib
import re
from pathlib import Path
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import pytest

from e2e import localweb
from e2e.downloaders import KINDS
from outrider.clock import wall
from outrider.errors import OutriderError
from outrider.fetch.downloader import Request, Response

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not localweb.available(), reason="the reference material is not beside the project"),
    pytest.mark.skipif("native" not in KINDS, reason="the fetch kernel was not built"),
]

PORTS: Final = (18680, 18643)
LINKS_MAX: Final = 60
OWN_WAYS: Final = frozenset(
    {"link-farm", "sessions", "wildcard", "growing", "rate-limited", "conditional", "keep-alive"}
)
"""Hosts whose answers are drawn, or depend on the time that has passed."""
DRAWN: Final = frozenset({"/silent"})
EXPLAINED: Final = frozenset({"/double"})
"""Two Location fields: libcurl calls it malformed, the kernel reads the first, as browsers do."""


async def asked(kind: str, hosts: list[tuple[str, str]], roots: Path) -> dict[str, tuple[Any, ...]]:
    """Each host's front page, robots.txt and links, over http and https, one after the other; all hosts at once."""
    downloader = KINDS[kind](clock=wall, ca_file=str(roots))
    found: dict[str, tuple[Any, ...]] = {}

    async def one(address: str, url: str) -> Response | None:
        limits = {"connect_seconds": 20.0, "idle_seconds": 15.0, "total_seconds": 25.0}
        for _ in range(3):
            try:
                response = await downloader.fetch(Request(url, address, "outrider", **limits))
            except OutriderError as error:
                found[url] = (type(error).__name__,)
                return None
            # The crawl's own retry sends the request again where a kept connection was closed.
            if "kept connection" not in response.error_text:
                break
        whole = response.truncated != "time"  # the amount received until then depends on the server's pace
        digest = hashlib.sha1(response.content, usedforsecurity=False).hexdigest() if whole else ""
        found[url] = (response.status, response.error, response.truncated, response.decoding, digest)
        return response

    async def host(name: str, address: str) -> None:
        for scheme, port in zip(("http", "https"), PORTS, strict=True):
            base = f"{scheme}://{name}:{port}/"
            front = await one(address, base)
            await one(address, base + "robots.txt")
            links = re.findall(rb'href="([^"]+)"', front.content)[:LINKS_MAX] if front is not None else []
            urls = (urljoin(base, link.decode("latin-1").replace("&amp;", "&")).partition("#")[0] for link in links)
            for url in dict.fromkeys(urls):
                if url.startswith(base) and url != base:
                    await one(address, url)

    await asyncio.gather(*(host(name, address) for name, address in hosts))
    await downloader.close()
    return found


def compared(url: str) -> bool:
    parts = urlsplit(url)
    return str(parts.hostname).partition(".")[0] not in OWN_WAYS and parts.path not in DRAWN | EXPLAINED


def test_all_fault_hosts_end_alike_on_the_kernel_and_on_libcurl(tmp_path: Path) -> None:
    """Each kind has a server of its own: storms and hosts that fail at first depend on their previous requests."""
    seen = {}
    for kind in ("native", "curl"):
        with localweb.misbehaving(tmp_path / kind, *PORTS) as web:
            lines = (line.split() for line in web.hosts.read_text().splitlines() if line and line[0] != "#")
            hosts = [(names[0], address) for address, *names in lines if names]
            seen[kind] = asyncio.run(asked(kind, hosts, web.directory / "ca" / "ca.pem"))
    native, curl = ({url: one for url, one in seen[kind].items() if compared(url)} for kind in ("native", "curl"))
    apart = {url: (native.get(url), curl.get(url)) for url in native | curl if native.get(url) != curl.get(url)}
    assert (True, {}) == (len(native) > 1_000, apart)
