"""Keys: host, registrable domain, origin."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import InvalidUrlError
from outrider.url import PUBLIC_SUFFIX_VERSION, key, registrable_domain


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
    "host", ["", ".", "com", "co.uk", "github.io", "localhost", "127.0.0.1", "[::1]", "::1", ".example.com", "a..com"]
)
def test_suffixes_addresses_and_malformed_names_have_no_registrable_domain(host: str) -> None:
    assert registrable_domain(host) is None


@given(st.text(max_size=40))
def test_any_text_has_an_answer(host: str) -> None:
    domain = registrable_domain(host)
    assert domain is None or domain.count(".") >= 1


@pytest.mark.parametrize(
    ("by", "expected"),
    [("host", "www.example.org"), ("domain", "example.org"), ("origin", "http://www.example.org:8080")],
)
def test_a_key_is_made_by_what_was_asked_for(by: Any, expected: str) -> None:
    assert expected == key("HTTP://WWW.Example.org:8080/x", by)


@pytest.mark.parametrize("url", ["http://localhost/", "http://127.0.0.1/", "http://[::1]:80/"])
def test_the_key_by_domain_of_a_host_without_one_is_the_host(url: str) -> None:
    assert key(url, "host") == key(url, "domain")


def test_a_key_of_another_kind_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="not by 'address'"):
        key("http://example.org/", cast(Any, "address"))


def test_a_key_needs_a_url_that_can_be_crawled() -> None:
    with pytest.raises(InvalidUrlError):
        key("mailto:someone@example.org")


def test_the_list_is_named_by_its_date() -> None:
    assert PUBLIC_SUFFIX_VERSION.rpartition(".")[2].isdigit()
