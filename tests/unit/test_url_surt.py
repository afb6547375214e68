"""SURT: labels in reverse, ports, addresses, and texts that are left unchanged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import InvalidUrlError
from outrider.url import normalize, spell, surt, surt_as_written


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://www.archive.org", "http://(org,archive,www,)/"),
        ("HTTPS://www.Archive.org:8080/Movies/../A?q#f", "https://(org,archive,www,:8080)/A?q"),
        ("http://user:pass@example.org/", "http://(org,example,)/"),
        ("http://127.2.34.5:81/foo", "http://(127.2.34.5:81)/foo"),
        ("http://[2001:db8::1]:81/foo", "http://([2001:db8::1]:81)/foo"),
        ("http://localhost/", "http://(localhost,)/"),
        ("http://bücher.example/", "http://(example,xn--bcher-kva,)/"),
        ("http://example.org./", "http://(,org,example,)/"),
    ],
)
def test_the_surt_of_a_url_is_that_of_its_canonical_spelling(url: str, expected: str) -> None:
    assert expected == surt(url)


def test_the_scheme_and_the_last_comma_can_be_left_out() -> None:
    url = "http://example.org:81/a"
    assert ("org,example,:81)/a", "http://(org,example:81)/a", "org,example:81)/a") == (
        surt(url, scheme=False),
        surt(url, trailing_comma=False),
        surt(url, scheme=False, trailing_comma=False),
    )


def test_a_url_that_cannot_be_crawled_has_no_surt() -> None:
    with pytest.raises(InvalidUrlError):
        surt("dns:archive.org")


@pytest.mark.parametrize("text", ["", "a", "screenshot:http://example.com/", "dns:archive.org", "/a//b", "http:/a"])
def test_a_text_without_a_host_is_unchanged(text: str) -> None:
    assert text == surt_as_written(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://u:p@WWW.example.org:8080?Q", "http://(org,example,WWW,:8080@u:p)?Q"),
        ("http://a@b@c/", "http://(c,@a@b)/"),
        ("ftp://h/\n\x00", "ftp://(h,)/\n\x00"),
        ("http:///x", "http://()/x"),
    ],
)
def test_a_text_as_written_is_only_reversed(text: str, expected: str) -> None:
    assert expected == surt_as_written(text)


def test_the_user_can_be_left_out() -> None:
    assert "http://(org,example,:81)/" == surt_as_written("http://u:p@example.org:81/", userinfo=False)


@given(st.lists(st.sampled_from(["www", "a", "b", "example", "org"]), min_size=1, max_size=5), st.text(max_size=20))
def test_a_surt_contains_the_whole_url(labels: list[str], path: str) -> None:
    url = normalize(f"http://{'.'.join(labels)}/{path.encode('utf-8', 'replace').decode()}")
    inside, _, rest = surt(url).removeprefix("http://(").partition(",)")
    assert url == f"http://{'.'.join(reversed(inside.split(',')))}{rest}"


def test_a_sorted_list_keeps_a_domain_together() -> None:
    urls = [
        "http://a.example.org/",
        "http://example.com/",
        "http://example.org/",
        "http://b.example.org/",
        "http://example.net/",
    ]
    hosts = [text.split(",")[1] + "." + text[8:11] for text in sorted(map(surt, urls))]
    assert ["example.com", "example.net", "example.org", "example.org", "example.org"] == hosts


@given(st.text(max_size=60))
def test_any_text_has_a_result(text: str) -> None:
    assert isinstance(surt_as_written(text), str)
    assert all(surt(url) == surt_as_written(url) for url in spell([text]) if url is not None)
