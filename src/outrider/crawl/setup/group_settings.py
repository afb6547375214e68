"""Groups as users write them: `domain`, `address`, `none`, or files of tables (docs/groups.md). They are read here,
because only this room has paths. By default a crawl has a clock for each shared machine of its hosts
(machines.toml)."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any

from outrider.errors import SettingsError
from outrider.fetch.addresses import special_networks
from outrider.frontier.policy.grouping import Grouping
from outrider.limits import GROUPING_FILE_BYTES_MAX

NO_GROUP = "none"
GROUP_WORDS = ("domain", "address", NO_GROUP)
MACHINES_FILE = "machines.toml"


def read_groups(told: Iterable[str]) -> Grouping | None:
    """Returns the grouping of words and files together; None: no group. Raises SettingsError that names the file."""
    told = tuple(told)
    if NO_GROUP in told:
        if len(told) > 1:
            raise SettingsError(f"{NO_GROUP} cannot be combined with other groups; use it alone, or leave it out")
        return None
    parts: list[str | Mapping[str, Any]] = []
    for text in told:
        if text in GROUP_WORDS:
            parts.append(text)
            continue
        parts.append(_table(text))
        _in_file(text, parts[-1])  # alone first, so that the error for a wrong file names the file
    return Grouping.of(parts)


def groups_of(told: Iterable[str], contact: str | None) -> Grouping | None:
    """Returns the grouping of a crawl: the one that is set, or by default one clock per shared machine. A crawl without
    a contact needs no such clock: it connects to no public address, and all other addresses are exempt."""
    told = tuple(told)
    if told:
        return read_groups(told)
    return machines() if contact is not None else None


@functools.cache
def machines() -> Grouping:
    """The clock of shared machines, from machines.toml: addresses of this machine and of private networks are exempt,
    and so are content delivery networks."""
    table = tomllib.loads(resources.files(__package__).joinpath(MACHINES_FILE).read_text(encoding="utf-8"))
    own = {"name": "not public", "exempt": True, "addresses": [str(network) for network in special_networks()]}
    found = Grouping.of([table, own])
    assert found is not None
    return found


def _table(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            octets = file.read(GROUPING_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise SettingsError(f"{path!r} cannot be read ({error.strerror})") from None
    if len(octets) > GROUPING_FILE_BYTES_MAX:
        raise SettingsError(f"{path!r} is larger than {GROUPING_FILE_BYTES_MAX} bytes")
    try:
        return tomllib.loads(octets.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SettingsError(f"{path!r} is not TOML: {error}") from None


def _in_file(path: str, table: str | Mapping[str, Any]) -> None:
    try:
        Grouping.of(table)
    except SettingsError as error:
        raise SettingsError(f"{path!r}: {error.facts}") from None
