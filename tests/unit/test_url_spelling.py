"""The canonical spelling: which texts are made equal, which remain different, and that spelling twice changes no
text."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.url_parser import parsed
from outrider import kernels
from outrider.errors import InvalidUrlError
from outrider.url import authority_of, host_of, join, normalize, spell
from outrider.url.spelling import mended
from timing import seconds_of

PIECES = st.sampled_from(
    ["%", "%%", "%3", "%36", "%31", "%2e", "%2E", "%7e", "%C3", "/", "//", "\\", "..", ".", "?", "#", "@", ":", "80"]
)
WORDS = st.sampled_from(
    [
        "443",
        "a",
        "Z",
        "0",
        "6",
        "1",
        "xn--",
        "0x",
        "[",
        "]",
        "::1",
        "'",
        "|",
        " ",
        "\t",
        "\n",
        "\x00",
        "é",
        "\ud800",
        "u:",
    ]
)
ENDINGS = st.lists(PIECES | WORDS, max_size=12).map("".join)
STARTS = st.sampled_from(
    ["", "http://", "https://", "http://example.org", "http://example.org/", "https://a.b:8080/", "/", "//", "http:"]
) | st.sampled_from(["https:", "http:\\", "ht\ntps:///", "\\", "/\\", "http://é/", "https://[::1]"])
URLS = st.one_of(st.builds(str.__add__, STARTS, ENDINGS), st.text(max_size=60))
BASES = st.sampled_from(
    [None, "http://example.org/a/b?c/d", "https://u:p@x.org:81/%%36/q#z", "http://xn--4ca.com/é/", "file:///x", "none"]
)


@pytest.mark.parametrize(
    ("url", "canonical"),
    [
        ("HTTP://Example.ORG:80/a/../b?x=%7e#top", "http://example.org/b?x=~"),
        ("https://example.org:443", "https://example.org/"),
        ("http://example.org:443/", "http://example.org:443/"),
        ("http://example.org/?", "http://example.org/"),
        ("http://example.org/??", "http://example.org/??"),
        ("http://example.org/?#", "http://example.org/"),
        ("http://example.org/?a?", "http://example.org/?a?"),
        ("http://user:secret@example.org/@x", "http://example.org/@x"),
        ("http://example.org/%3a%2f%e9", "http://example.org/%3A%2F%E9"),
        ("http://example.org/%41%5a%30%2d%2e%5f%7e", "http://example.org/AZ0-._~"),
        ("http://example.org/a/%2e%2E/b/%2e/c", "http://example.org/b/c"),
        ("http://example.org/?q=%41%20%2b", "http://example.org/?q=A%20%2B"),
        ("http://B\u00fccher.example/\u00fc?\u00fc", "http://xn--bcher-kva.example/%C3%BC?%C3%BC"),
        ("http://0x7f.1/", "http://127.0.0.1/"),
        ("http://[0:0::1]:8080/", "http://[::1]:8080/"),
        ("http://example.org./", "http://example.org./"),
        ("  http://example.org/a b\t\n ", "http://example.org/a%20b"),
        ("http:\\\\example.org\\a", "http://example.org/a"),
    ],
)
def test_urls_that_the_standards_call_equal_have_one_spelling(url: str, canonical: str) -> None:
    assert canonical == normalize(url)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("http://example.org/a", "http://example.org/a/"),
        ("http://example.org/?a=1&b=2", "http://example.org/?b=2&a=1"),
        ("http://example.org/", "https://example.org/"),
        ("http://example.org/", "http://www.example.org/"),
        ("http://example.org/a%2Fb", "http://example.org/a/b"),
        ("http://example.org/a//b", "http://example.org/a/b"),
        ("http://example.org/A", "http://example.org/a"),
        ("http://example.org/?a=", "http://example.org/?a"),
    ],
)
def test_urls_that_may_be_different_pages_remain_different(one: str, other: str) -> None:
    assert normalize(one) != normalize(other)


@pytest.mark.parametrize(
    ("url", "canonical"),
    [
        ("http://example.org/%%36%31", "http://example.org/%%361"),
        ("http://example.org/%6%31", "http://example.org/%6%31"),
        ("http://example.org/%%361", "http://example.org/%%361"),
        ("http://example.org/%%7e", "http://example.org/%~"),
        ("http://example.org/100%", "http://example.org/100%"),
    ],
)
def test_decoding_never_completes_another_triplet(url: str, canonical: str) -> None:
    """A server that decodes once reads the same octets from both."""
    assert canonical == normalize(url)


@given(URLS, BASES)
def test_spelling_twice_is_like_spelling_once(url: str, base: str | None) -> None:
    once = spell([url], base)[0]
    assert once is None or spell([once]) == [once]


@given(URLS, BASES)
def test_every_path_has_the_result_of_the_parser(url: str, base: str | None) -> None:
    """Ordinary URLs are not parsed, and of odd ones only the host. Their result is that of parsing the whole URL."""
    assert parsed(url, base) == spell([url], base)[0]


@given(st.lists(URLS, max_size=5))
def test_a_batch_is_spelled_like_its_urls(urls: list[str]) -> None:
    assert [spell([url])[0] for url in urls] == spell(urls)


@given(URLS)
def test_canonical_text_is_printable_ascii(url: str) -> None:
    canonical = spell([url])[0]
    assert canonical is None or (canonical.isascii() and canonical.isprintable() and " " not in canonical)


def test_lone_surrogates_become_replacement_characters() -> None:
    """As a browser turns text into scalar values (Web IDL, USVString)."""
    assert "http://example.org/%EF%BF%BDa" == normalize("http://example.org/\ud800a")


@given(st.text(st.sampled_from("\ud800\udbff\udc00\udfff\ud7ff\ue000\U0001f600aé"), max_size=12))
def test_halves_of_characters_are_joined_or_replaced(text: str) -> None:
    expected = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    assert expected == mended(text)


def test_a_surrogate_pair_is_one_character() -> None:
    assert "http://example.org/%F0%9F%98%80" == normalize("http://example.org/\ud83d\ude00")


@pytest.mark.parametrize("wrong", [None, 5, b"http://example.org/", ["http://example.org/"]])
def test_a_value_that_is_not_a_text_is_refused_by_type(wrong: object) -> None:
    with pytest.raises(InvalidUrlError, match="text is needed"):
        normalize(cast(Any, wrong))
    assert [None] == spell([cast(Any, wrong)])


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "it is empty"),
        ("example.org", "it has no scheme"),
        ("example.org:8080/x", "it has no scheme"),
        ("ftp://example.org/", "its scheme is 'ftp'"),
        ("javascript:alert(1)", "its scheme is 'javascript'"),
        ("http://", "it has no host"),
        ("http:///?x", "it has no host"),
        ("http://example.org:65536/", "position 19 is above 65535"),
        ("http://example.org:http/", "position 19 is not a number"),
        ("http://exa mple.org/", "position 10 may not stand in a host name"),
        ("http://[::1", "bracket at position 7 is never closed"),
        ("http://[::g]/", "IPv6 address at position 7 is malformed"),
        ("http://[::1]x/", "between the host and the port, at position 12"),
        ("http://1.2.3.4.5/", "neither a valid name nor a valid address"),
    ],
)
def test_a_refusal_names_its_reason(url: str, reason: str) -> None:
    with pytest.raises(InvalidUrlError, match=reason):
        normalize(url)


@given(st.text(max_size=400).map(lambda text: "http://[" + text))
def test_a_refusal_is_safe_to_print(url: str) -> None:
    """No control character from the web in the message, and not more than 200 characters of facts."""
    if spell([url])[0] is None:
        with pytest.raises(InvalidUrlError) as caught:
            normalize(url)
        assert caught.value.facts.isprintable()
        assert len(caught.value.facts) <= 200


@pytest.mark.parametrize(
    ("base", "reference", "canonical"),
    [
        ("http://example.org/a/b?c", "", "http://example.org/a/b?c"),
        ("http://example.org/a/b?c", "#d", "http://example.org/a/b?c"),
        ("http://example.org/a/b?c", "?d", "http://example.org/a/b?d"),
        ("http://example.org/a/b?c/d", "e", "http://example.org/a/e"),
        ("http://example.org/a/b", "../e", "http://example.org/e"),
        ("http://example.org/a/b", "/e", "http://example.org/e"),
        ("https://example.org/a/b", "//other.example/e", "https://other.example/e"),
        ("http://user@example.org/a", "b", "http://example.org/b"),
        ("http://example.org/a", "HTTPS://Other.example", "https://other.example/"),
        ("http://example.org/a", "x:80/y", None),
        ("http://example.org/a", "mailto:x@example.org", None),
        ("mailto:x@example.org", "b", None),
        ("nonsense", "http://example.org/", None),
    ],
)
def test_references_resolve_against_their_page(base: str, reference: str, canonical: str | None) -> None:
    assert [canonical] == spell([reference], base)
    if canonical is None:
        with pytest.raises(InvalidUrlError):
            join(base, reference)
    else:
        assert canonical == join(base, reference)


@pytest.mark.parametrize(
    ("url", "host", "authority"),
    [
        ("http://example.org/", "example.org", "http://example.org"),
        ("https://example.org:8443/a:b/c", "example.org", "https://example.org:8443"),
        ("http://[::1]/", "[::1]", "http://[::1]"),
        ("https://[::1]:81/", "[::1]", "https://[::1]:81"),
        ("http://a/", "a", "http://a"),
        ("https://a:1/", "a", "https://a:1"),
        ("http://127.0.0.1:8000/?x=http://b/", "127.0.0.1", "http://127.0.0.1:8000"),
    ],
)
def test_host_and_authority_are_cut_from_canonical_text(url: str, host: str, authority: str) -> None:
    assert (host, authority) == (host_of(url), authority_of(url))


LONG = 100_000
HOSTILE = {
    "percent signs": "http://example.org/" + "%" * LONG,
    "percent signs behind an odd host": "http://é/" + "%" * LONG,
    "quotes behind an odd host": "http://é/" + '"' * LONG,
    "dots behind an odd host": "http://é/" + "../" * (LONG // 3),
    "tabs": "http://a/" + "\t%" * (LONG // 2),
    "backslashes": "http:\\\\a" + "\\" * LONG,
    "users": "http://" + "@" * LONG + "é/",
    "users without a host": "http://" + "@" * LONG,
    "halves of characters": "http://a/" + "\ud800" * (LONG // 3),
    "halves in a host": "http://a" + "\ud800" * (LONG // 3) + "/",
    "labels to map": "http://" + "ü." * (LONG // 3),
    "one label to map": "http://" + "ü" * (LONG // 2) + "/",
    "letters to compose": "http://" + "a\u0300" * (LONG // 3) + "/",
    "letters to leave out": "http://a" + "\u00ad" * (LONG // 2) + "/",
    "encoded labels": "http://" + "xn--4ca." * (LONG // 8),
    "triplets in a host": "http://" + "%C3%BC" * (LONG // 6),
    "an IPv6 address without end": "http://[" + ":" * LONG,
    "zeros": "http://0x" + "0" * LONG,
    "digits of a port": "http://a:" + "9" * LONG,
    "a scheme without end": "a" * LONG,
    "blanks": " " * LONG + "x",
    "tabs before a fault": "ht" + "\t" * LONG + "tp://a:x",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_100_kb_are_spelled_or_refused_in_linear_time(name: str) -> None:
    """All paths, and the words of a refusal too. A quiet machine needs a millisecond (the plain kernels 80). Quadratic
    work needs minutes, so the limit leaves room for a busy machine."""

    def spelled() -> None:
        with suppress(InvalidUrlError):
            normalize(HOSTILE[name])

    assert min(seconds_of(spelled) for _ in range(3)) < (0.05 if kernels.in_use() == "native" else 2)


@pytest.mark.parametrize("host", ["é" * 9_000, "0" * 9_000, "a:" + "0" * 9_000])
def test_an_odd_host_that_is_too_long_for_a_url_is_refused(host: str) -> None:
    with pytest.raises(InvalidUrlError):
        normalize(f"http://{host}/")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://user:secret@example.org:x/", "'http://…@example.org:x/'"),
        ("ftp://user:secret@example.org/", "'ftp://…@example.org/'"),
        ("http:\\\\user:sec@ret@[::g]/", "'http:\\\\…@[::g]/'"),
        (" //user:secret@example.org/", "' //…@example.org/'"),
        ("user:secret@example.org", "'user:…@example.org'"),
        ("h\tttp:/\n/us\ter:secret@exa mple.org/@a", "@exa mple.org/@a'"),
    ],
)
def test_an_error_shows_no_secret(url: str, shown: str) -> None:
    with pytest.raises(InvalidUrlError) as caught:
        normalize(url)
    assert (True, False, url) == (shown in str(caught.value), "sec" in str(caught.value), caught.value.url)


def test_an_error_for_a_reference_shows_no_secret_of_its_page() -> None:
    with pytest.raises(InvalidUrlError, match=r"^[^:]+: '//' on a page at 'http://…@example\.org/'$"):
        join("http://user:secret@example.org/", "//")


@pytest.mark.parametrize("rows", ["http://a/", b"http://a/", bytearray(b"a")])
def test_one_url_in_place_of_a_list_is_refused(rows: object) -> None:
    with pytest.raises(TypeError, match="put it into a list"):
        spell(cast(Any, rows))


def test_urls_may_be_in_any_iterable() -> None:
    assert ["http://a/", None, "http://[::1]/"] == spell(iter(["http://a", "b", "http://[0::1]"]))


@pytest.mark.parametrize("base", [5, b"http://a/", ["http://a/"]])
def test_a_base_that_is_not_a_text_is_refused_instead_of_all_its_links(base: object) -> None:
    with pytest.raises(TypeError, match=f"not a {type(base).__name__}"):
        spell(["a"], cast(Any, base))
