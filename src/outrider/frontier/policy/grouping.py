"""The settings of groups, hosts that share a politeness clock: `--group` and its file, checked once
(docs/groups.md)."""

from __future__ import annotations

import functools
import ipaddress
import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from outrider.errors import SettingsError
from outrider.limits import ADDRESSES_READ_MAX, GROUP_CAPACITY_MAX, GROUP_GAP_SECONDS_MAX, GROUPS_PER_HOST_MAX
from outrider.url import registrable_domain, spelled_host, undotted

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class GroupKind:
    """One group for each registrable domain, or for each address. capacity: requests at once. gap: seconds between the
    end of one request and the beginning of the next; None means the delay of the visited host."""

    capacity: int = 1
    gap: float | None = None


@dataclass(frozen=True, slots=True)
class NamedGroup:
    """A group with a name. hosts: names, or `*.name` for all hosts below. addresses: networks. exempt: its members
    count in no group of a domain or an address. capacity None (exempt groups only): it has no clock."""

    name: str
    hosts: tuple[str, ...] = ()
    addresses: tuple[IpNetwork, ...] = ()
    capacity: int | None = 1
    gap: float | None = None
    exempt: bool = False


@dataclass(frozen=True, slots=True)
class Grouping:
    """All groups of a frontier. domain, address: None when hosts are not grouped by it."""

    domain: GroupKind | None = None
    address: GroupKind | None = None
    named: tuple[NamedGroup, ...] = ()

    @property
    def needs_addresses(self) -> bool:
        """Whether any group depends on the addresses of hosts."""
        return self.address is not None or any(group.addresses for group in self.named)

    @classmethod
    def of(cls, value: object) -> Grouping | None:
        """From "domain", "address", a table (`[domain]`, `[address]`, `[[group]]`), a named group's table, or a list of
        these; None for no group at all. Raises SettingsError naming the key, the value and the accepted values."""
        if value is None or isinstance(value, Grouping):
            return value
        made = cls()
        tables: set[str] = set()
        for part in value if isinstance(value, list | tuple) else [value]:
            if isinstance(part, str):
                if part not in ("domain", "address"):
                    raise SettingsError(f"group {part!r:.200}: use domain, address, or tables of groups")
                made = _with_kind(made, part, getattr(made, part) or GroupKind())
            elif isinstance(part, NamedGroup):
                made = replace(made, named=(*made.named, part))
            elif isinstance(part, Mapping):
                made = _with_table(made, part, tables)
            else:
                raise SettingsError(f"group {part!r:.200}: use domain, address, a table of groups, or a list of these")
        return _fitting(made) if made != cls() else None


def _with_kind(made: Grouping, name: str, kind: GroupKind) -> Grouping:
    return replace(made, domain=kind) if name == "domain" else replace(made, address=kind)


def _with_table(made: Grouping, table: Mapping[str, Any], tables: set[str]) -> Grouping:
    if "name" in table:
        return replace(made, named=(*made.named, _group_named(table)))
    for key, value in table.items():
        if key == "group":
            if not isinstance(value, list | tuple) or not all(isinstance(part, Mapping) for part in value):
                raise SettingsError("group: write each named group as a table of its own, [[group]]")
            made = replace(made, named=(*made.named, *map(_group_named, value)))
        elif key in ("domain", "address"):
            if not isinstance(value, Mapping):
                raise SettingsError(f"{key} {value!r:.200}: write it as a table, [{key}]")
            if key in tables:
                raise SettingsError(f"[{key}] is there twice; keep one of them")
            tables.add(key)
            _known(value, ("capacity", "gap"), f"[{key}]")
            made = _with_kind(made, key, GroupKind(_capacity(value, f"[{key}]"), _gap(value, f"[{key}]")))
        else:
            raise SettingsError(f"unknown table {key!r:.200}; write [domain], [address] or [[group]]")
    return made


def _known(table: Mapping[str, Any], names: tuple[str, ...], where: str) -> None:
    for key in table:
        if key not in names:
            raise SettingsError(f"{key!r:.200} ({where}) is no setting of it; there are {', '.join(names)}")


def _group_named(table: Mapping[str, Any]) -> NamedGroup:
    name = table.get("name")
    if not isinstance(name, str) or not name.strip() or not name.isprintable() or len(name) > 200:
        raise SettingsError(f"name {name!r:.200} of a group: use a text of 1 to 200 characters")
    where = f"group {name!r}"
    _known(table, ("name", "hosts", "addresses", "capacity", "gap", "exempt"), where)
    exempt = table.get("exempt", False)
    if not isinstance(exempt, bool):
        raise SettingsError(f"exempt {exempt!r:.200} ({where}): use true or false")
    hosts = tuple(_pattern(text, where) for text in _texts(table, "hosts", where))
    networks = tuple(_network(text, where) for text in _texts(table, "addresses", where))
    if not hosts and not networks:
        raise SettingsError(f"{where} has no members: use hosts, addresses, or both")
    capacity: int | None = None
    if not exempt or "capacity" in table or "gap" in table:
        capacity = _capacity(table, where)
    return NamedGroup(name, hosts, networks, capacity, _gap(table, where), exempt)


def _texts(table: Mapping[str, Any], key: str, where: str) -> list[str]:
    texts = table.get(key, ())
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise SettingsError(f"{key} {texts!r:.200} ({where}): use a list of texts")
    return list(texts)


def _capacity(table: Mapping[str, Any], where: str) -> int:
    value = table.get("capacity", 1)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= GROUP_CAPACITY_MAX:
        raise SettingsError(f"capacity {value!r:.200} ({where}): use a whole number from 1 to {GROUP_CAPACITY_MAX}")
    return value


def _gap(table: Mapping[str, Any], where: str) -> float | None:
    value = table.get("gap")
    if value is None:
        return None
    good = isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)
    if not good or not 0 <= value <= GROUP_GAP_SECONDS_MAX:
        raise SettingsError(f"gap {value!r:.200} ({where}): use seconds from 0 to {GROUP_GAP_SECONDS_MAX:g}")
    return float(value)


def _pattern(text: str, where: str) -> str:
    """A name or pattern in the spelling of hosts; the star of a pattern stays in front."""
    name = text.removeprefix("*.")
    spelled = None if set(name) & set("*?:@ ") and not name.startswith("[") else spelled_host(name)
    if spelled is None:
        raise SettingsError(f"hosts {text!r:.200} ({where}): use a host's name, or *.name for all that lie below it")
    return text[: len(text) - len(name)] + spelled


def _network(text: str, where: str) -> IpNetwork:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise SettingsError(
            f"addresses {text!r:.200} ({where}): {error}; use addresses or networks such as 192.0.2.0/24"
        ) from None


def _fitting(made: Grouping) -> Grouping:
    """Raises SettingsError for two groups of one name, and where a host could count in more than GROUPS_PER_HOST_MAX
    groups."""
    names = [group.name for group in made.named]
    for name in names:
        if names.count(name) > 1:
            raise SettingsError(f"group {name!r}: there are two of this name")
    members = Members(group for group in made.named if group.capacity is not None)
    # Two patterns, or two networks, are disjoint or one contains the other: counting at each one finds the worst host.
    by_name = max((len(members.by_name(one)) for group in made.named for one in group.hosts), default=0)
    by_address = max((len(members.by_address(one)) for group in made.named for one in group.addresses), default=0)
    most = by_name + by_address + (made.domain is not None) + (made.address is not None)
    if most > GROUPS_PER_HOST_MAX:
        raise SettingsError(
            f"group: a host could count in {most} groups at once, {GROUPS_PER_HOST_MAX} are possible; "
            "let fewer of the named ones overlap"
        )
    return made


class Members:
    """The members of named groups, found by name and address; groups are numbered from 0 in the order given."""

    def __init__(self, groups: Iterable[NamedGroup]) -> None:
        self._names: dict[str, set[int]] = {}
        # By version: bits of prefix -> prefix -> groups.
        self._networks: dict[int, dict[int, dict[int, set[int]]]] = {4: {}, 6: {}}
        for number, group in enumerate(groups):
            for pattern in group.hosts:
                self._names.setdefault(pattern, set()).add(number)
            for network in group.addresses:
                of_length = self._networks[network.version].setdefault(network.prefixlen, {})
                of_length.setdefault(int(network.network_address), set()).add(number)
        # By version: the first and the last address of each outermost network, in order.
        self._spans: dict[int, tuple[list[int], list[int]]] = {}
        for version, by_length in self._networks.items():
            bits = 32 if version == 4 else 128
            spans = sorted(
                (first, first + (1 << bits - length) - 1) for length in by_length for first in by_length[length]
            )
            outer: list[tuple[int, int]] = []
            for first, last in spans:
                if not outer or last > outer[-1][1]:
                    outer.append((first, last))
            self._spans[version] = ([first for first, _ in outer], [last for _, last in outer])

    def by_name(self, host: str) -> set[int]:
        """The groups that have this host by its name; of a pattern, the groups that have all its hosts."""
        if not self._names:
            return set()
        host = undotted(host)
        found = set(self._names.get(host, ()))
        dot = host.find(".")
        while dot >= 0:
            found |= self._names.get("*" + host[dot:], set())
            dot = host.find(".", dot + 1)
        return found

    def by_address(self, where: IpAddress | IpNetwork) -> set[int]:
        """The groups that have this address, or this whole network."""
        bits = where.max_prefixlen
        number, length = (
            (int(where), bits)
            if isinstance(where, ipaddress.IPv4Address | ipaddress.IPv6Address)
            else (int(where.network_address), where.prefixlen)
        )
        found: set[int] = set()
        for prefix, networks in self._networks[where.version].items():
            if prefix <= length:
                found.update(networks.get(number >> (bits - prefix) << (bits - prefix), ()))
        return found

    def has_address(self, where: IpAddress) -> bool:
        """Whether any group has this address."""
        firsts, lasts = self._spans[where.version]
        place = bisect_right(firsts, int(where)) - 1
        return place >= 0 and int(where) <= lasts[place]


class SharedClocks:
    """The clocks that hosts share under a grouping, by host and address."""

    def __init__(self, grouping: Grouping) -> None:
        self._grouping = grouping
        self._clocked = tuple(group for group in grouping.named if group.capacity is not None)
        self._members = Members(self._clocked)
        self._exempt = Members(group for group in grouping.named if group.exempt)

    def of(self, host: str, address: str | None) -> Iterator[tuple[str, int, float | None]]:
        """The name, the capacity and the gap in seconds of each clock that a host at this address shares. A gap of None
        is the delay of the visited host."""
        where = _address_or_none(address or host.strip("[]"))
        grouping = self._grouping
        if not self._matching(self._exempt, host, where):
            if grouping.domain is not None:
                domain = registrable_domain(host) or host
                yield f"domain {domain}", grouping.domain.capacity, grouping.domain.gap
            if grouping.address is not None and where is not None:
                yield f"address {where}", grouping.address.capacity, grouping.address.gap
        for number in sorted(self._matching(self._members, host, where)):
            group = self._clocked[number]
            yield f"group {group.name}", group.capacity or 1, group.gap

    @staticmethod
    def _matching(members: Members, host: str, where: IpAddress | None) -> set[int]:
        return members.by_name(host) | (members.by_address(where) if where is not None else set())


def _address_or_none(text: str) -> IpAddress | None:
    try:
        return address_of(text)
    except ValueError:
        return None


@functools.lru_cache(ADDRESSES_READ_MAX)
def address_of(text: str) -> IpAddress:
    """An address in canonical form, IPv4 within IPv6 (RFC 4291 section 2.5.5.2) as IPv4. Raises ValueError."""
    found = ipaddress.ip_address(text)
    return found.ipv4_mapped or found if isinstance(found, ipaddress.IPv6Address) else found
