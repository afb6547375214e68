"""`Url`: parts, equality, order, the given text, the dropped parts, and errors that say where and why."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import InvalidUrlError
from outrider.url import Url, join, normalize
from outrider.url.parts import with_scheme


def test_a_url_has_parts() -> None:
    url = Url.parse("HTTPS://www.Example.co.uk:8443/a/../b%7e?x=1#top")
    assert {
        "text": "https://www.example.co.uk:8443/b~?x=1",
        "scheme": "https",
        "host": "www.example.co.uk",
        "port": 8443,
        "origin": "https://www.example.co.uk:8443",
        "path": "/b~",
        "query": "x=1",
        "registrable_domain": "example.co.uk",
        "surt": "https://(uk,co,example,www,:8443)/b~?x=1",
        "given": "HTTPS://www.Example.co.uk:8443/a/../b%7e?x=1#top",
        "dropped": ("fragment",),
    } == {
        name: getattr(url, name)
        for name in (
            *("text", "scheme", "host", "port", "origin", "path", "query", "registrable_domain", "surt", "given"),
            "dropped",
        )
    }


@pytest.mark.parametrize(
    ("text", "port"),
    [("http://example.org/", 80), ("https://example.org/", 443), ("http://[::1]/", 80), ("http://[::1]:81/", 81)],
)
def test_a_port_is_known_even_if_it_is_not_named(text: str, port: int) -> None:
    assert port == Url.parse(text).port


def test_an_address_has_no_registrable_domain() -> None:
    assert (None, "[::1]") == (Url.parse("http://[::1]/").registrable_domain, Url.parse("http://[0::1]/").host)


def test_an_empty_query_counts_as_no_query() -> None:
    assert [None, None, "?"] == [Url.parse(f"http://example.org/{tail}").query for tail in ("", "?", "??")]


def test_urls_are_equal_and_hashed_by_their_canonical_text() -> None:
    one, other = Url.parse("http://example.org/a"), Url.parse("HTTP://EXAMPLE.org:80/b/../a#c")
    assert {one} == {other}


def test_urls_are_ordered_by_their_text() -> None:
    urls = [Url.parse(f"http://{host}/") for host in ("b.example", "a.example")]
    assert ["http://a.example/", "http://b.example/"] == [str(url) for url in sorted(urls)]


def test_a_url_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        cast(Any, Url.parse("http://example.org/")).text = "http://example.com/"


def test_a_url_can_be_sent_to_another_process() -> None:
    url = Url.parse("http://example.org/#a")
    assert (url, url.given) == ((copy := pickle.loads(pickle.dumps(url))), copy.given)


def test_a_reference_is_resolved_against_a_page() -> None:
    page = Url.parse("http://example.org/a/b")
    assert ["http://example.org/a/c", "http://example.org/d"] == [str(page.join("c")), Url.parse("/d", page).text]


def test_only_a_canonical_text_makes_a_url_directly() -> None:
    assert Url("http://example.org/") == Url.parse("http://example.org")
    with pytest.raises(InvalidUrlError, match=r"is not canonical, 'http://example\.org/' is"):
        Url("http://example.org")


@pytest.mark.parametrize(
    ("text", "dropped"),
    [
        ("http://example.org/@a", ()),
        ("http://u@example.org/", ("user",)),
        ("http://u:p@example.org/#", ("user", "password")),
        ("http://u:p@example.org/#f", ("user", "password", "fragment")),
        ("http://:p@example.org/", ("password",)),
        ("http://:p@example.org/\ud800#a", ("password", "fragment")),
    ],
)
def test_the_dropped_parts_are_named(text: str, dropped: tuple[str, ...]) -> None:
    assert dropped == Url.parse(text).dropped


def test_the_repr_of_a_url_made_directly_shows_no_secret() -> None:
    assert "<Url http://a/ given as 'http://…@a/'>" == repr(Url("http://a/", given="http://u:secret@a/"))
    with pytest.raises(InvalidUrlError, match=r"'http://…@a/' is not canonical"):
        Url("http://u:secret@a/")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://example.org/", "<Url http://example.org/>"),
        ("HTTP://example.org", "<Url http://example.org/ given as 'HTTP://example.org'>"),
        ("http://example.org/#a", "<Url http://example.org/ given as 'http://example.org/#a' without fragment>"),
        ("http://user:secret@example.org/", "<Url http://example.org/ without user, password>"),
        ("http://example.org/\x1b[2J", r"<Url http://example.org/%1B[2J given as 'http://example.org/\x1b[2J'>"),
    ],
)
def test_the_repr_shows_the_given_and_the_canonical_text_and_no_secret(text: str, shown: str) -> None:
    assert shown == repr(Url.parse(text))


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("example.org", "http://example.org/"),
        ("example.org/a?b", "http://example.org/a?b"),
        ("localhost:8080", "http://localhost:8080/"),
        ("example.org:8080/a", "http://example.org:8080/a"),
        ("//example.org/a", "http://example.org/a"),
        (" https://example.org ", "https://example.org/"),
        ("[::1]:81/", "http://[::1]:81/"),
        ("127.0.0.1", "http://127.0.0.1/"),
    ],
)
def test_a_scheme_can_be_assumed(typed: str, meant: str) -> None:
    assert meant == Url.parse(typed, default_scheme="http").text


@pytest.mark.parametrize("typed", ["", "/a", "?a", "#a", "./a", "mailto:a@example.org", "javascript:0", "tel:5551234"])
def test_no_host_is_guessed_from_a_text_without_one(typed: str) -> None:
    assert typed == with_scheme(typed)
    with pytest.raises(InvalidUrlError):
        Url.parse(typed, default_scheme="http")


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("", None, "it is empty"),
        ("example.org", 0, "it has no scheme; write http:// or https:// before it"),
        (" \n mailto:a@example.org", 3, "its scheme is 'mailto', only http and https are crawled"),
        ("http://", 7, "it has no host"),
        ("http://exa mple.org/", 10, "the character at position 10 may not stand in a host name"),
        ("  ht\ntp://exa mple.org/", 13, "the character at position 13 may not stand in a host name"),
        ("http://a@b@ex|ample.org/", 13, "the character at position 13 may not stand in a host name"),
        ("http://example.org:99999/", 19, "the port at position 19 is above 65535"),
        ("http://example.org:8o/", 19, "the port at position 19 is not a number"),
        ("http://[::1", 7, "the bracket at position 7 is never closed"),
        ("http://[::1]x/", 12, "something stands between the host and the port, at position 12"),
        ("http://[::1]:x/", 13, "the port at position 13 is not a number"),
        ("http://[::g]/", 7, "the IPv6 address at position 7 is malformed"),
        ("http://1.2.3.999/", 7, "its host is neither a valid name nor a valid address"),
    ],
)
def test_an_error_contains_the_position_and_the_reason(text: str, position: int | None, reason: str) -> None:
    with pytest.raises(InvalidUrlError) as caught:
        Url.parse(text)
    assert (text, position, reason) == (caught.value.url, caught.value.position, caught.value.reason)


def test_an_error_of_normalize_contains_the_position_and_the_reason_too() -> None:
    with pytest.raises(InvalidUrlError) as caught:
        normalize("http://exa mple.org/")
    assert ("http://exa mple.org/", 10) == (caught.value.url, caught.value.position)


def test_a_bad_page_is_named_in_the_error_instead_of_the_reference_on_it() -> None:
    with pytest.raises(InvalidUrlError) as caught:
        join("nowhere", "a")
    assert ("nowhere", 0) == (caught.value.url, caught.value.position)


@pytest.mark.parametrize("given", [None, 7, b"http://example.org/"])
def test_a_value_that_is_not_a_text_is_refused_by_its_type(given: object) -> None:
    with pytest.raises(InvalidUrlError, match=f"text is needed, not a {type(given).__name__}"):
        Url.parse(cast(Any, given))


@given(st.text(alphabet=" \t\n\x00abh:/?#@[]|%.\u00e9\ud800\U0001f600", max_size=30))
def test_any_text_is_a_url_or_an_error_with_a_reason(tail: str) -> None:
    for text in (tail, f"http://{tail}"):
        url, error = parsed(text)
        if url is None:
            assert error is not None
            assert (text, True) == (error.url, error.reason != "")
            assert error.position is None or 0 <= error.position <= len(text)
        else:
            assert url == Url.parse(url.text)
            assert url.text == url.origin + url.path + ("" if url.query is None else f"?{url.query}")
            assert repr(url).isprintable()


def parsed(text: str) -> tuple[Url | None, InvalidUrlError | None]:
    try:
        return Url.parse(text), None
    except InvalidUrlError as error:
        return None, error


def test_an_error_from_another_process_has_its_sentence_once() -> None:
    with pytest.raises(InvalidUrlError) as caught:
        normalize("http://a:x/")
    copied = pickle.loads(pickle.dumps(caught.value))
    assert (str(caught.value), 9) == (str(copied), copied.position)
