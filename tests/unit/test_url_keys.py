"""Keys: host, registrable domain, origin, address, a function; fingerprints."""

from __future__ import annotations

import re
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider import kernels
from outrider.errors import InvalidUrlError
from outrider.url import (
    PUBLIC_SUFFIX_DATE,
    PUBLIC_SUFFIX_VERSION,
    UrlBatch,
    domain_spans,
    fingerprints,
    key,
    registrable_domain,
    registrable_domains,
)
from outrider.url.keys import _cached_domain


@pytest.mark.parametrize(
    ("host", "domain"),
    [
        ("www.example.co.uk", "example.co.uk"),
        ("example.com", "example.com"),
        ("Example.COM", "example.com"),
        ("example.com.", "example.com"),
        ("a.b.unlisted", "b.unlisted"),
        ("someone.github.io", "someone.github.io"),
        ("a.someone.github.io", "someone.github.io"),
        ("www.xn--85x722f.xn--fiqs8s", "xn--85x722f.xn--fiqs8s"),
        ("www.\u98df\u72ee.\u4e2d\u56fd", "\u98df\u72ee.\u4e2d\u56fd"),
        ("www\u3002\u98df\u72ee\u3002\u4e2d\u56fd", "\u98df\u72ee.\u4e2d\u56fd"),
    ],
)
def test_the_registrable_domain_is_the_public_suffix_and_one_label(host: str, domain: str) -> None:
    assert domain == registrable_domain(host)


@pytest.mark.parametrize(
    "host",
    [
        *("", ".", "com", "co.uk", "github.io", "localhost", "127.0.0.1", "[::1]", "::1"),
        *(".example.com", "a..com", "example.com..", "1.2.3.4.."),
    ],
)
def test_suffixes_addresses_and_malformed_names_have_no_registrable_domain(host: str) -> None:
    assert registrable_domain(host) is None


@given(st.text(max_size=40))
def test_any_text_has_a_result(host: str) -> None:
    domain = registrable_domain(host)
    assert domain is None or domain.count(".") >= 1


@pytest.mark.parametrize(
    ("by", "expected"),
    [("host", "www.example.org"), ("domain", "example.org"), ("origin", "http://www.example.org:8080")],
)
def test_a_key_is_of_the_requested_kind(by: Any, expected: str) -> None:
    assert expected == key("HTTP://WWW.Example.org:8080/x", by)


@pytest.mark.parametrize("url", ["http://localhost/", "http://127.0.0.1/", "http://[::1]:80/"])
def test_the_key_by_domain_of_a_host_without_one_is_the_host(url: str) -> None:
    assert key(url, "host") == key(url, "domain")


def test_an_unknown_kind_of_key_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="host, domain, origin, address or a function, not by 'mood'"):
        key("http://example.org/", cast(Any, "mood"))


def test_a_key_needs_a_url_that_can_be_crawled() -> None:
    with pytest.raises(InvalidUrlError):
        key("mailto:someone@example.org")


@pytest.mark.parametrize(
    ("url", "address", "expected"),
    [
        ("http://example.org/", "192.0.2.7", "192.0.2.7"),
        ("http://example.org/", "2001:DB8:0:0::1", "2001:db8::1"),
        ("http://example.org/", "::ffff:192.0.2.7", "192.0.2.7"),
        ("http://0x7f.1/", None, "127.0.0.1"),
        ("http://127.0.0.1/", "192.0.2.7", "127.0.0.1"),
        ("http://[::1]:8080/", None, "::1"),
        ("http://[::ffff:127.0.0.1]/", None, "127.0.0.1"),
        ("http://www.example.org/", None, "www.example.org"),
    ],
)
def test_the_key_by_address_is_the_address_of_the_server_or_else_the_host(
    url: str, address: str | None, expected: str
) -> None:
    assert expected == key(url, "address", address=address)


def test_an_invalid_address_is_refused_as_a_key() -> None:
    with pytest.raises(ValueError, match=r"'example\.org'"):
        key("http://www.example.org/", "address", address="example.org")


def test_a_function_makes_the_key_of_the_canonical_url() -> None:
    assert "http://example.org/b" == key("HTTP://Example.org/a/../b#c", by=lambda url: url)


def test_a_function_that_returns_no_text_is_refused() -> None:
    with pytest.raises(TypeError, match="the function returned a int"):
        key("http://example.org/", by=cast(Any, len))


@pytest.mark.parametrize(
    ("host", "with_private", "without"),
    [
        ("a.someone.github.io", "someone.github.io", "github.io"),
        ("github.io", None, "github.io"),
        ("www.example.co.uk", "example.co.uk", "example.co.uk"),
    ],
)
def test_the_private_section_can_be_switched_off(host: str, with_private: str | None, without: str) -> None:
    assert (with_private, without) == (registrable_domain(host), registrable_domain(host, private=False))


HOSTS = ["a.someone.github.io", "WWW.Example.co.uk.", "com", "[::1]", "www.\u98df\u72ee.\u4e2d\u56fd", "a.\ud800.com"]


@pytest.mark.parametrize("private", [True, False])
def test_a_batch_of_hosts_has_the_domains_of_single_hosts(private: bool) -> None:
    expected = [registrable_domain(host, private) for host in HOSTS]
    assert [expected, expected] == [registrable_domains(HOSTS, private), registrable_domains(iter(HOSTS), private)]


def test_one_host_is_not_a_batch() -> None:
    with pytest.raises(TypeError, match="not one string"):
        registrable_domains("example.com")


def spans(hosts: list[str]) -> tuple[bytes, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    bounds = np.cumsum([0, *map(len, hosts)], dtype=np.int64)
    return "".join(hosts).encode(), bounds[:-1], bounds[1:]


def test_spans_are_those_of_the_domains_or_the_hosts_themselves() -> None:
    arena, starts, ends = spans(["a.someone.github.io", "www.example.com.", "", "com.", "[::1]", "example.org"])
    found = kernels.texts_of_spans(arena, *domain_spans(arena, starts, ends))
    assert ["someone.github.io", "example.com", "", "com.", "[::1]", "example.org"] == found
    public = kernels.texts_of_spans(arena, *domain_spans(arena, starts, ends, private=False))
    assert "github.io" == public[0]


def test_spans_of_no_hosts_are_empty() -> None:
    assert [[], []] == [found.tolist() for found in domain_spans(*spans([]))]


def test_a_host_that_is_not_ascii_has_no_span() -> None:
    arena = "a.com\u00e9.com".encode()
    with pytest.raises(ValueError, match="row 1: a host that is not ASCII"):
        domain_spans(arena, np.array([0, 5]), np.array([5, len(arena)]))


def test_the_key_by_domain_works_with_or_without_the_private_section() -> None:
    url = "http://someone.github.io/"
    assert ("someone.github.io", "github.io") == (key(url, "domain"), key(url, "domain", private=False))


def test_the_list_has_its_date_in_its_name() -> None:
    assert PUBLIC_SUFFIX_VERSION.startswith(PUBLIC_SUFFIX_DATE)
    assert re.fullmatch(r"20[0-9]{2}-[01][0-9]-[0-3][0-9]", PUBLIC_SUFFIX_DATE)


FINGERPRINT_KEY = bytes(range(16))


def test_fingerprints_are_those_of_the_canonical_spelling() -> None:
    prints = fingerprints(["HTTP://Example.org:80/a/../b", "http://example.org/b"], key=FINGERPRINT_KEY)
    text = kernels.fingerprints(["http://example.org/b"], FINGERPRINT_KEY)
    assert [int.from_bytes(text, "little")] * 2 == prints.tolist()


def test_fingerprints_are_an_array_of_64_bit_numbers() -> None:
    prints = fingerprints(["http://example.org/a", "http://example.org/b"], key=FINGERPRINT_KEY)
    assert (np.dtype(np.uint64), (2,)) == (prints.dtype, prints.shape)


def test_another_key_makes_different_fingerprints() -> None:
    urls = ["http://example.org/"]
    assert fingerprints(urls, key=bytes(16)).tolist() != fingerprints(urls, key=FINGERPRINT_KEY).tolist()


def test_no_urls_have_no_fingerprints() -> None:
    assert [] == fingerprints([], key=FINGERPRINT_KEY).tolist()


def test_a_url_that_cannot_be_crawled_has_no_fingerprint() -> None:
    with pytest.raises(InvalidUrlError, match="'nowhere'"):
        fingerprints(["http://example.org/", "nowhere"], key=FINGERPRINT_KEY)


def test_a_key_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        fingerprints(["http://example.org/"], key=b"short")


def test_one_string_is_not_a_batch() -> None:
    with pytest.raises(TypeError, match="not one str"):
        fingerprints("http://example.org/", key=FINGERPRINT_KEY)


def test_fingerprints_are_made_of_any_iterable() -> None:
    urls = ["http://a/", "http://[::1]/"]
    assert list(fingerprints(urls, key=FINGERPRINT_KEY)) == list(fingerprints(iter(urls), key=FINGERPRINT_KEY))


def test_fingerprints_of_a_batch_with_invalid_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="2 rows were to come and 1 came"):
        fingerprints(UrlBatch.of(["http://a/", "nonsense"]), key=FINGERPRINT_KEY)


def test_a_host_with_half_a_character_has_no_domain_because_no_url_has_it() -> None:
    assert registrable_domain("a.\ud800.com") is None


def test_hosts_that_are_not_names_are_not_cached() -> None:
    kept = _cached_domain.cache_info().currsize
    assert "a.com" == registrable_domain("b." * 2_000 + "a.com")
    assert kept == _cached_domain.cache_info().currsize
