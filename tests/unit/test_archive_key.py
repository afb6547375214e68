"""The keys of CDXJ: URLs that tools of web archives merge, and URLs that they keep apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.url import archive_key

KEYS = {
    "http://example.org/": "org,example)/",
    "https://www.example.org": "org,example)/",
    "http://www12.example.org/": "org,example)/",
    "http://www.www.example.org/": "org,example,www)/",
    "http://wwwexample.org/": "org,wwwexample)/",
    "http://example.org:80/": "org,example)/",
    "https://example.org:80/": "org,example:80)/",
    "http://user:secret@example.org:8080/": "org,example:8080)/",
    "http://192.0.2.7/": "7,2,0,192)/",
    "http://[2001:db8::1]:8080/": "2001:db8::1:8080)/",
    "http://example.org./A//B/../c/": "org,example)/a/c",
    "http://example.org/../x": "org,example)/../x",
    "http://example.org/%41%2541?": "org,example)/aa",
    "http://example.org/a b#c": "org,example)/a%20b",
    "http://example.org/%00%0A": "org,example)/%00%0a",
    "http://example.org/ü": "org,example)/%c3%bc",
    "http://example.org/?b=2&A=1&b=1&c": "org,example)/?a=1&b=1&b=2&c",
    "http://example.org/?x&&y=": "org,example)/?&x&y=",
    "http://example.org/?a=1&sid=0123456789abcdef0123456789abcdef&b=2": "org,example)/?a=1&b=2",
    "http://example.org/?PHPSESSID=0123456789abcdef0123456789abcdef": "org,example)/",
    "http://example.org/?CFID=1&CFTOKEN=2&b=2": "org,example)/?b=2",
    "http://example.org/(0123456789abcdef01234567)/x.aspx": "org,example)/x.aspx",
    "http://http://example.org/": "org,example)/",
}


@pytest.mark.parametrize("url", KEYS)
def test_a_url_has_the_key_of_the_package_surt(url: str) -> None:
    assert KEYS[url] == archive_key(url)


@pytest.mark.parametrize("text", ["dns:example.org", "http://", "http://example.org:x/", "", "metadata://a b"])
def test_a_text_that_is_no_url_of_the_web_has_a_key_without_blanks(text: str) -> None:
    key = archive_key(text)
    assert key.isascii()
    assert " " not in key


@given(st.text(max_size=40))
def test_any_url_has_a_key_of_visible_ascii_and_a_line_end_cannot_be_in_it(rest: str) -> None:
    key = archive_key("http://example.org/" + rest)
    assert key.startswith("org,example)/")
    assert all("!" <= character <= "~" for character in key)
