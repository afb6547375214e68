"""Where a crawl begins: URLs, files of URLs (`@file`), standard input (`-`); spelled canonically or refused by line."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO

from outrider.errors import InvalidUrlError, NamedPathError, SettingsError
from outrider.fetch.names import parse_hosts
from outrider.limits import BAD_SEEDS_KEPT_MAX, HOSTS_FILE_BYTES_MAX, SEEDS_MAX, URL_BYTES_MAX
from outrider.url import host_key, host_of, normalize

SEED_FAULTS_NAMED_MAX = 20  # how many bad seeds are listed; all of them are skipped
SEED_CHARACTERS_SHOWN = 60  # a seed that is too long is shown up to here
SEED_HOSTS_NAMED_MAX = 3  # how many hosts an error names; further ones are counted
_REMARK = b"#"


def placed(sources: Iterable[str]) -> tuple[str, ...]:
    """Returns the sources with absolute file paths, so that they mean the same from every directory."""
    return tuple("@" + os.path.abspath(source[1:]) if source[:1] == "@" else source for source in sources)


@dataclass(slots=True)
class BadSeeds:
    """Seeds that are not URLs: how many, and what is wrong with each of the first ones."""

    count: int = 0
    texts: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        """Adds one, with its file, line and reason."""
        self.count += 1
        if len(self.texts) < BAD_SEEDS_KEPT_MAX:
            self.texts.append(text)

    def lines(self) -> Iterator[str]:
        """Yields the messages of the first ones, and how many more there are."""
        for text in self.texts[:SEED_FAULTS_NAMED_MAX]:
            yield f"skipped: {text}"
        if self.count > SEED_FAULTS_NAMED_MAX:
            yield f"skipped: {self.count - SEED_FAULTS_NAMED_MAX:,} more seeds that are not URLs; crawl.log lists them"


def read_seeds(sources: Iterable[str], stdin: BinaryIO | None = None, faults: BadSeeds | None = None) -> list[str]:
    """Returns the canonical URLs of the sources, in order, each once.

    A file has one URL a line, in UTF-8; empty lines and lines that begin with # are skipped. faults: collects the seeds
    that are not http or https URLs or too long (file, line and reason). Without it, the first bad seed raises
    InvalidUrlError; so it does if no seed is left. Raises SettingsError for a file that cannot be read.
    """
    first: InvalidUrlError | None = None
    seeds: dict[str, None] = {}
    for source in sources:
        for where, text in _lines(source, stdin):
            try:
                if isinstance(text, InvalidUrlError):
                    raise text
                url = normalize(text)
                if len(url) > URL_BYTES_MAX:
                    raise InvalidUrlError(f"{text[:SEED_CHARACTERS_SHOWN]!r}… is longer than {URL_BYTES_MAX:,} bytes")
                seeds[url] = None
            except InvalidUrlError as error:
                hint = _hint(text) if isinstance(text, str) else ""
                wrong = InvalidUrlError(f"{where}: {error.facts}{hint}")
                if faults is None:
                    raise wrong from None
                first = first or wrong
                faults.add(wrong.facts)
            if len(seeds) > SEEDS_MAX:
                raise SettingsError(f"seeds: there are more than {SEEDS_MAX:,}; feed them through Frontier.discover")
    if first is not None and not seeds:
        raise first
    return list(seeds)


def _lines(source: str, stdin: BinaryIO | None) -> Iterator[tuple[str, str | InvalidUrlError]]:
    if source == "-":
        if stdin is None:
            raise SettingsError("seeds are missing: standard input is closed; name a URL or @file instead of -")
        yield from _of_file(stdin, "standard input")
    elif source[:1] == "@":
        try:
            with open(source[1:], "rb") as file:
                yield from _of_file(file, source[1:])
        except OSError as error:
            raise NamedPathError(
                f"the file of seeds {source[1:]!r} cannot be read ({error.strerror}); "
                "name a text file with one URL per line"
            ) from None
    else:
        yield "seed", source.strip()


def _of_file(file: BinaryIO, name: str) -> Iterator[tuple[str, str | InvalidUrlError]]:
    number = 0
    while line := file.readline(2 * URL_BYTES_MAX):
        number += 1
        where = f"{name}, line {number}"
        if len(line) >= 2 * URL_BYTES_MAX:
            while not line.endswith(b"\n") and (line := file.readline(2 * URL_BYTES_MAX)):
                pass
            yield where, InvalidUrlError(f"it is longer than {URL_BYTES_MAX} bytes")
            continue
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")  # a byte order mark, as some editors leave it
        text = line.strip()
        if not text or text.startswith(_REMARK):
            continue
        try:
            yield where, text.decode()
        except UnicodeDecodeError:
            yield where, InvalidUrlError("it is not UTF-8")


def _hint(text: str) -> str:
    if "://" in text or not text or text[0] in "/.@-" or any(character.isspace() for character in text):
        return ""
    try:
        meant = normalize("https://" + text)
    except InvalidUrlError:
        return ""
    return f"; did you mean {meant} ?"


def read_hosts(path: str | None) -> Mapping[str, tuple[str, ...]]:
    """Returns the addresses of a --hosts file by host name. Raises SettingsError if it cannot be read."""
    if path is None:
        return {}
    try:
        with open(path, "rb") as file:
            data = file.read(HOSTS_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise SettingsError(f"hosts is {path!r}: it cannot be read ({error.strerror})") from None
    try:
        return parse_hosts(data.decode())
    except UnicodeDecodeError:
        raise SettingsError(f"hosts is {path!r}: it is not UTF-8") from None
    except SettingsError as error:
        raise SettingsError(f"hosts is {path!r}: {error.facts}") from None


def is_loopback(host: str, hosts: Mapping[str, tuple[str, ...]]) -> bool:
    """Whether a host can only be this machine: a loopback address, localhost, or so in the --hosts file."""
    name = host_key(host)
    given = hosts.get(name)
    if given:
        return all(ipaddress.ip_address(address).is_loopback for address in given)
    if name == "localhost" or name.endswith(".localhost"):  # RFC 6761 section 6.3
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def loopback_of(seeds: Iterable[str], hosts: Mapping[str, tuple[str, ...]], allowed: Iterable[str]) -> tuple[str, ...]:
    """Returns the loopback addresses of seeds outside the permitted ranges: naming such an address permits it."""
    ranges = [ipaddress.ip_network(text) for text in allowed]
    found: dict[str, None] = {}
    for host in dict.fromkeys(map(host_of, seeds)):
        name = host_key(host)
        if name in hosts or not is_loopback(host, hosts):
            continue
        for text in ("127.0.0.1", "::1") if "localhost" in name else (name,):
            address = ipaddress.ip_address(text)
            if not any(address.version == one.version and address in one for one in ranges):
                found[text] = None
    return tuple(found)


def require_contact(seeds: Iterable[str], contact: str | None, hosts: Mapping[str, tuple[str, ...]]) -> None:
    """Refuses seeds beyond loopback without a contact. Raises SettingsError naming the hosts."""
    if contact:
        return
    beyond = list(dict.fromkeys(host for host in map(host_of, seeds) if not is_loopback(host, hosts)))
    if beyond:
        named = ", ".join(beyond[:SEED_HOSTS_NAMED_MAX])
        more = f" and {len(beyond) - SEED_HOSTS_NAMED_MAX} more" if len(beyond) > SEED_HOSTS_NAMED_MAX else ""
        raise SettingsError(
            f"contact is missing, and {named}{more} is not this machine; say who runs the crawl, so that site owners "
            "can reach you: --contact you@example.org (or a URL, or OUTRIDER_CONTACT)"
        )
