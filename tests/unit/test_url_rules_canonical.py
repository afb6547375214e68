"""rel=canonical: which of a page's own statements about its address are accepted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import InvalidUrlError
from outrider.limits import URL_BYTES_MAX
from outrider.url import canonical_target, normalize

PAGE = "http://www.example.org/shop/cup?sort=price"


@pytest.mark.parametrize(
    ("page", "named", "target"),
    [
        (PAGE, "http://www.example.org/shop/cup", "http://www.example.org/shop/cup"),
        (PAGE, "cup", "http://www.example.org/shop/cup"),
        (PAGE, "/shop/cup#reviews", "http://www.example.org/shop/cup"),
        (PAGE, "HTTPS://Example.org/shop/cup", "https://example.org/shop/cup"),
        (PAGE, "//shop.example.org/cup", "http://shop.example.org/cup"),
        ("http://192.0.2.7/a?b", "http://192.0.2.7/a", "http://192.0.2.7/a"),
        ("http://example.org:8080/a?b", "http://example.org:8080/a", "http://example.org:8080/a"),
        ("http://example.org/?utm_source=mail", "http://example.org/", "http://example.org/"),
        ("http://example.org/index.html", "/", "http://example.org/"),
        ("http://example.org/list?page=2&sort=a", "/list?page=2", "http://example.org/list?page=2"),
        ("http://example.org/list?page=1", "/list", "http://example.org/list"),
        ("http://example.org/list/page/2/?x", "/list/page/2/", "http://example.org/list/page/2/"),
        ("http://example.org/web/example.org/a?x", "/web/example.org/a", "http://example.org/web/example.org/a"),
    ],
)
def test_a_plausible_statement_is_accepted(page: str, named: str, target: str) -> None:
    assert target == canonical_target(page, named)


@pytest.mark.parametrize(
    ("page", "named"),
    [
        (PAGE, PAGE),
        (PAGE, "HTTP://WWW.example.org:80/shop/cup?sort=price#x"),
        (PAGE, "http://example.com/shop/cup"),
        (PAGE, "http://www.example.org:8080/shop/cup"),
        (PAGE, "mailto:someone@example.org"),
        (PAGE, "http://exa mple.org/"),
        (PAGE, "http://www.example.org/"),
        (PAGE, "/"),
        (PAGE, "/index.php"),
        ("http://example.org/?p=12", "http://example.org/"),
        ("https://example.org/a?b", "http://example.org/a"),
        ("http://example.org:8080/a?b", "https://example.org:8080/a"),
        ("http://example.org:8080/a?b", "https://example.org/a"),
        ("http://a.github.io/x?y", "http://b.github.io/x"),
        ("http://192.0.2.7/a?b", "http://192.0.2.8/a"),
        ("http://example.org/list?page=2", "/list"),
        ("http://example.org/list?page=3", "/list?page=2"),
        ("http://example.org/list/page/2/", "/list/"),
        ("http://www.example.org/a/b", "example.org/a/b"),
        ("http://example.org/a/b?c", "www.example.org/a/b"),
        ("http://example.org/a/b?c", "http://example.org/a/example.org/a/b"),
        (PAGE, "/" + "a" * URL_BYTES_MAX),
    ],
)
def test_a_statement_that_is_probably_a_mistake_is_not_accepted(page: str, named: str) -> None:
    assert canonical_target(page, named) is None


def test_a_page_must_have_an_address() -> None:
    with pytest.raises(InvalidUrlError):
        canonical_target("about:blank", "http://example.org/")


@given(st.text(max_size=40))
def test_any_named_target_has_a_canonical_result(named: str) -> None:
    target = canonical_target(PAGE, named)
    assert target is None or target == normalize(target)
