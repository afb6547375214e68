"""The guard of every socket: public addresses and addresses that the user allowed, and no other address."""

from __future__ import annotations

import pytest

from outrider.errors import SettingsError
from outrider.fetch.addresses import AddressGuard, is_public_address, is_web_port
from outrider.fetch.failures import BlockedAddress, FetchError


@pytest.mark.parametrize(
    "ip",
    [
        "127.0.0.1",
        "127.255.255.254",
        "0.0.0.0",
        "10.1.2.3",
        "100.64.0.1",
        "100.100.100.200",
        "169.254.169.254",
        "168.63.129.16",
        "172.31.255.255",
        "192.0.0.192",
        "192.168.1.1",
        "198.19.0.1",
        "224.0.0.251",
        "255.255.255.255",
        "::",
        "::1",
        "::ffff:10.0.0.1",
        "::ffff:169.254.169.254",
        "::127.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::808:808",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        "2001:db8::1",
        "2002:808:808::1",
        "3fff::1",
        "4000::1",
        "fd00:ec2::254",
        "fe80::1",
        "fec0::1",
        "ff02::1",
    ],
)
def test_a_special_address_is_not_public(ip: str) -> None:
    assert False is is_public_address(ip)


@pytest.mark.parametrize(
    "ip",
    ["8.8.8.8", "168.63.129.15", "172.32.0.0", "::ffff:8.8.8.8", "64:ff9b::808:808", "2606:4700::1", "2a00:1450::1"],
)
def test_an_allocated_ordinary_address_is_public(ip: str) -> None:
    assert True is is_public_address(ip)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "localhost",
        "0x7f.1",
        "127.1",
        "2130706433",
        "8.8.8.8 ",
        "8.8.8.8:80",
        "08.8.8.8",
        "fe80::1%eth0",
        "a" * 9999,
    ],
)
def test_text_that_is_not_exactly_one_address_is_not_public(text: str) -> None:
    assert False is is_public_address(text)


def test_the_first_permitted_address_of_an_answer_is_chosen() -> None:
    """A forbidden answer is never dialled, and does not stop the permitted answers."""
    guard = AddressGuard()
    assert "93.184.216.34" == guard.choose("example.org", ["10.0.0.1", "93.184.216.34", "93.184.216.35"])


def test_a_mapped_answer_is_dialled_as_ipv4() -> None:
    assert "8.8.8.8" == AddressGuard().choose("example.org", ["::ffff:8.8.8.8"])


def test_a_name_with_only_forbidden_answers_is_a_blocked_address() -> None:
    with pytest.raises(BlockedAddress) as caught:
        AddressGuard().choose("intranet.example.org", ["10.0.0.1", "::1"])
    assert FetchError.BLOCKED_ADDRESS == caught.value.error
    assert "intranet.example.org is at 10.0.0.1, ::1" in str(caught.value)


def test_an_empty_answer_is_a_blocked_address() -> None:
    with pytest.raises(BlockedAddress, match="no address"):
        AddressGuard().choose("example.org", [])


def test_an_allowed_range_permits_only_its_addresses() -> None:
    guard = AddressGuard(("10.1.0.0/16", "fd00::/8"))
    assert [True, False, True, False] == [
        guard.permits("any.test", ip) for ip in ("10.1.255.255", "10.2.0.0", "fd12::1", "fe80::1")
    ]


def test_an_allowed_ipv4_range_covers_the_mapped_spelling_only() -> None:
    """A NAT64 gateway that leads to loopback belongs to the gateway, not to this machine."""
    guard = AddressGuard(("127.0.0.0/8",))
    assert [True, False] == [guard.permits("a.test", ip) for ip in ("::ffff:127.0.0.1", "64:ff9b::7f00:1")]


def test_a_hosts_file_permits_loopback_for_the_names_it_lists() -> None:
    guard = AddressGuard(hosts={"site.test": ("127.0.0.7",)})
    assert "127.0.0.7" == guard.choose("SITE.test.", ["127.0.0.7"])


def test_a_hosts_file_permits_no_address_for_other_names() -> None:
    with pytest.raises(BlockedAddress):
        AddressGuard(hosts={"site.test": ("127.0.0.7",)}).choose("other.test", ["127.0.0.7"])


def test_a_hosts_file_permits_only_the_addresses_it_lists() -> None:
    """A listed name that also has a DNS answer on loopback does not open the whole loopback."""
    with pytest.raises(BlockedAddress):
        AddressGuard(hosts={"site.test": ("127.0.0.7",)}).choose("site.test", ["127.0.0.1"])


@pytest.mark.parametrize("ip", ["0.0.0.0", "10.0.0.1", "169.254.169.254", "fd00::1", "::"])
def test_a_hosts_file_permits_no_other_special_address(ip: str) -> None:
    with pytest.raises(BlockedAddress):
        AddressGuard(hosts={"site.test": (ip,)}).choose("site.test", [ip])


def test_a_literal_host_is_judged_like_a_name() -> None:
    with pytest.raises(BlockedAddress):
        AddressGuard().choose("[::1]", ["::1"])


def test_a_literal_host_is_dialled_only_at_its_own_address() -> None:
    with pytest.raises(BlockedAddress):
        AddressGuard().choose("8.8.8.8", ["9.9.9.9"])


def test_an_invalid_range_is_named() -> None:
    with pytest.raises(SettingsError, match=r"allow-address = '10\.0\.0\.1/8'"):
        AddressGuard(("10.0.0.1/8",))


def test_no_control_character_of_an_answer_reaches_the_message() -> None:
    with pytest.raises(BlockedAddress) as caught:
        AddressGuard().choose("evil\x1b[31m.test", ["\x1b]0;x\x07"])
    assert str(caught.value).isprintable()


def test_ports_of_other_protocols_are_refused() -> None:
    assert [True, True, True, False, False, False, False] == [
        is_web_port(port) for port in (80, 443, 8080, 0, 25, 6379, 65_536)
    ]
