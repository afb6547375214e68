"""Which addresses may be connected to: one table after IANA's registries, and the guard in front of every socket."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from outrider.errors import SettingsError
from outrider.fetch.failures import BlockedAddress, safe_text
from outrider.limits import GUARDED_HOSTS_MAX
from outrider.url import host_key

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# IANA IPv4 special-purpose address registry, multicast, and one public address that clouds use for their own hosts.
_SPECIAL_4 = tuple(
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network; 0.0.0.0 reaches the machine itself
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carrier-grade NAT; 100.100.100.200 is a metadata service
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # a cloud's host agent, reachable from inside only although the range is public
        "169.254.0.0/16",  # link-local; 169.254.169.254 is the usual metadata service
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # AMT
        "192.88.99.0/24",  # 6to4 relays, deprecated
        "192.168.0.0/16",  # private
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarking
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved and broadcast
    )
)
# Only 2000::/3 of IPv6 is allocated at all, so the table contains its exceptions: loopback, v4-compatible, ULA
# (fd00:ec2::254 too), link-local, site-local, multicast, discard-only and local NAT64 are outside of it.
_GLOBAL_6 = IPv6Network("2000::/3")
_SPECIAL_6 = tuple(
    IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments: Teredo, benchmarking, ORCHID
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: its embedded address may be any
        "2620:4f:8000::/48",  # AS112
        "3fff::/20",  # documentation
    )
)
_NAT64 = IPv6Network("64:ff9b::/96")  # RFC 6052: the last 32 bits are the IPv4 address that is reached

# Ports on which something else than HTTP listens: https://fetch.spec.whatwg.org/#port-blocking
_BLOCKED_PORT_LIST = """
    0 1 7 9 11 13 15 17 19 20 21 22 23 25 37 42 43 53 69 77 79 87 95 101 102 103 104 109 110 111 113 115
    117 119 123 135 137 139 143 161 179 389 427 465 512 513 514 515 526 530 531 532 540 548 554 556 563
    587 601 636 989 990 993 995 1719 1720 1723 2049 3659 4045 4190 5060 5061 6000 6379 6566 6665 6666
    6667 6668 6669 6679 6697 10080
"""
_BLOCKED_PORTS = frozenset(map(int, _BLOCKED_PORT_LIST.split()))


def is_web_port(port: int) -> bool:
    """Whether a crawler may use HTTP on this port: not a port that browsers refuse (WHATWG Fetch), and not 6379."""
    return 0 < port < 65_536 and port not in _BLOCKED_PORTS


@lru_cache(maxsize=4_096)
def parsed(ip: str) -> Address | None:
    """The address in this text, a v4-mapped one as IPv4; None for anything else, odd spellings and zones included."""
    text = ip[1:-1] if ip.startswith("[") and ip.endswith("]") else ip
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            return None
        return address.ipv4_mapped or address
    return address


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _SPECIAL_4)
    if address in _NAT64:
        return _is_public(IPv4Address(int(address) & 0xFFFF_FFFF))
    return address in _GLOBAL_6 and not any(address in network for network in _SPECIAL_6)


def special_networks() -> tuple[Network, ...]:
    """Returns the networks whose addresses are not public. An IPv4 address in NAT64 counts as public here."""
    beyond = IPv6Network("::/0").address_exclude(_GLOBAL_6)
    parts = [part.address_exclude(_NAT64) if _NAT64.subnet_of(part) else (part,) for part in beyond]
    return (*_SPECIAL_4, *(network for part in parts for network in part), *_SPECIAL_6)


@lru_cache(maxsize=4_096)
def is_public_address(ip: str) -> bool:
    """Whether `ip` is an address of the public internet: allocated, and in no special-purpose range.

    IPv4 inside IPv6 is unwrapped (v4-mapped, NAT64 after RFC 6052); 6to4, Teredo and v4-compatible addresses are
    never public. Text that is not exactly one address is not public. Source: IANA IPv4 and IPv6 special-purpose
    address registries (RFC 6890), multicast, and the clouds' metadata addresses.
    """
    address = parsed(ip)
    return address is not None and _is_public(address)


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text.strip(), strict=True)
    except ValueError as error:
        raise SettingsError(
            f"allow-address = {safe_text(text)!r}: {safe_text(str(error))}; accepted are an address or a range such as "
            "127.0.0.0/8 or fd00::/8"
        ) from None


class AddressGuard:
    """Chooses the address to connect to: a public one, or one that the user allowed.

    `allowed` are ranges (CIDR) that are permitted for every host. `hosts` is a parsed --hosts file: it permits loopback
    addresses for the names it lists, and only the addresses it lists; 0.0.0.0, private and other special addresses
    need `allowed`.
    """

    def __init__(self, allowed: tuple[str, ...] = (), hosts: Mapping[str, tuple[str, ...]] | None = None) -> None:
        self.allowed: tuple[Network, ...] = tuple(_network(text) for text in allowed)
        self._permitted: dict[tuple[str, tuple[str, ...]], tuple[str, ...]] = {}  # results by name and addresses
        self.hosts: dict[str, frozenset[Address]] = {
            host_key(name): frozenset(address for ip in ips if (address := parsed(ip)) is not None)
            for name, ips in (hosts or {}).items()
        }

    def __repr__(self) -> str:
        return f"<AddressGuard {len(self.allowed)} ranges allowed, {len(self.hosts)} names on loopback>"

    def allow(self, more: Sequence[str]) -> None:
        """Permits further ranges for every host."""
        self._permitted.clear()
        self.allowed = (*self.allowed, *(_network(text) for text in more))

    def permits(self, host: str, ip: str) -> bool:
        """Whether a connection to `host` at `ip` is permitted."""
        address = parsed(ip)
        if address is None:
            return False
        if is_public_address(ip):
            return True
        if any(address.version == network.version and address in network for network in self.allowed):
            return True
        return address.is_loopback and address in self.hosts.get(host_key(host), ())

    def choose(self, host: str, addresses: Sequence[str]) -> str:
        """The first of those that are `permitted`. Raises BlockedAddress."""
        return self.permitted(host, addresses)[0]

    def permitted(self, host: str, addresses: Sequence[str]) -> tuple[str, ...]:
        """Returns the permitted `addresses` of `host`, in their order and usual spelling, at least one.

        Raises BlockedAddress without a permitted address, or when the host is an address and every answer differs.
        """
        question = (host, tuple(addresses))
        known = self._permitted.get(question)
        if known is not None:
            return known
        literal = parsed(host)
        found = {
            str(address): None
            for ip in addresses
            if (address := parsed(ip)) is not None
            and (literal is None or literal == address)
            and self.permits(host, ip)
        }
        if found:
            if len(self._permitted) >= GUARDED_HOSTS_MAX:
                self._permitted.clear()
            self._permitted[question] = tuple(found)
            return self._permitted[question]
        listed = ", ".join(safe_text(ip, 45) for ip in addresses[:4]) or "no address"
        raise BlockedAddress(
            f"{safe_text(host)} is at {listed}, which is not a public address; `--allow-address` permits a range, "
            "`--hosts` loopback for the names it lists"
        )
