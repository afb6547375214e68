"""The rule for added URLs: a loopback URL of the store's owner permits its address. A URL at any other address that the
guard refuses is refused at once, with the option that permits it.

The owner types commands on this machine, or uses a server over its loopback address. Only the owner may point a crawl
at the machine that it runs on.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from outrider.crawl.setup.directory import kept_settings, write_settings
from outrider.crawl.setup.options import CrawlOptions, as_toml, permitting
from outrider.crawl.setup.seeds import loopback_of
from outrider.errors import shown
from outrider.fetch.addresses import AddressGuard, parsed
from outrider.storage.files import Directory
from outrider.url import host_key, host_of, spell

REFUSED_NAMED_MAX: Final = 20  # URLs with a sentence of their own in the answer to one call
LOCAL_ADDRESSES: Final = ("127.0.0.1", "::1")  # of the names that RFC 6761 section 6.3 reserves for this machine


@dataclass(frozen=True, slots=True)
class Admitted:
    """The answer for a batch of URLs: the indexes of the accepted URLs, and the reason for each refused one."""

    places: tuple[int, ...]
    refused: Mapping[int, str]

    def named(self, urls: Sequence[str]) -> list[str]:
        """Returns a sentence for each of the first refused URLs."""
        some = list(self.refused.items())[:REFUSED_NAMED_MAX]
        return [f"{shown(urls[place])} was not added: {why}" for place, why in some]


class Permission:
    """The addresses to which one crawl may connect, while its frontier is open. `guard` uses the current ones."""

    def __init__(
        self,
        options: CrawlOptions,
        sources: Sequence[str],
        hosts: Mapping[str, tuple[str, ...]],
        guard: AddressGuard | None = None,
    ) -> None:
        """sources: the sources of the seeds, as in outrider.toml. hosts: a parsed --hosts file."""
        self.options, self._sources, self._hosts = options, tuple(sources), hosts
        self._lock = threading.Lock()
        self.guard = guard if guard is not None else AddressGuard(options.allow_address, hosts)

    @classmethod
    def of_directory(cls, path: str, options: CrawlOptions, hosts: Mapping[str, tuple[str, ...]]) -> Permission:
        """That of a crawl that does not run in this process."""
        return cls(options, kept_settings(path).seeds, hosts)

    @property
    def loopback(self) -> list[str]:
        """Returns the permitted ranges of loopback addresses, as `--allow-address` accepts them."""
        return [str(network) for network in self.guard.allowed if network.is_loopback]

    def admit(self, urls: Sequence[str], *, owner: bool) -> Admitted:
        """Permits the loopback addresses that the owner's URLs name, for later runs too, and says which URLs cannot be
        requested at their addresses. Raises StoreError where outrider.toml cannot be written."""
        spelled = spell(list(urls))
        if owner:
            self._permit([url for url in spelled if url is not None])
        named = {host_of(url) for url in spelled if url is not None}
        why = {host: closed(host, self._hosts, self.guard) for host in named}
        refused: dict[int, str] = {}
        for place, url in enumerate(spelled):
            if url is not None and (words := why[host_of(url)]) is not None:
                refused[place] = words
        return Admitted(tuple(place for place in range(len(spelled)) if place not in refused), refused)

    def _permit(self, urls: Sequence[str]) -> None:
        """Writes the addresses to the settings, then permits them, so that the next run has them too."""
        with self._lock:
            more = loopback_of(urls, self._hosts, self.options.allow_address)
            if not more:
                return
            options = permitting(self.options, more)
            files = Directory(options.output, create=False)
            try:
                write_settings(files, as_toml(options, self._sources))
            finally:
                files.close()
            self.options = options
            self.guard.allow(more)


def closed(host: str, hosts: Mapping[str, tuple[str, ...]], guard: AddressGuard) -> str | None:
    """Returns why a host may not be requested, None for a name: its addresses are unknown before a look-up. hosts: a
    parsed --hosts file."""
    name = host_key(host)
    if name in hosts:
        return None  # the file says where it is, and the guard decides there
    local = name == "localhost" or name.endswith(".localhost")
    addresses = LOCAL_ADDRESSES if local else (name,) if parsed(name) is not None else ()
    if not addresses or any(guard.permits(host, address) for address in addresses):
        return None
    return f"{host} is not a public address; permit it with --allow-address {addresses[0]}"
