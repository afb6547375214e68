"""Reading a page: links, base, directives, refresh, charset, text, and bytes without a page."""

from __future__ import annotations

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.kernels.refresh import parse_refresh
from outrider.limits import (
    LINKS_PER_PAGE_BYTES_MAX,
    LINKS_PER_PAGE_MAX,
    LINKS_SPELLED_BYTES_STEP,
    TEXT_BYTES_MAX,
    TITLE_CHARACTERS_MAX,
)
from outrider.page import Page, PageLink, read
from outrider.url import UrlBatch
from timing import scaled, seconds_of

URL = "http://example.org/dir/page.html"


def page(markup: str | bytes, content_type: str = "text/html", agent: str | None = None) -> Page:
    body = markup if isinstance(markup, bytes) else markup.encode()
    return read(body, URL, content_type, agent=agent)


def kinds_and_urls(markup: str) -> list[tuple[str, str]]:
    return [(link.kind, link.url) for link in page(markup).links]


def test_links_are_absolute_canonical_and_in_order() -> None:
    markup = "<a href=/A/../b#c>1</a><a href='x?y=%7e'>2</a><a href='HTTP://Other.example'>3</a>"
    expected = ["http://example.org/b", "http://example.org/dir/x?y=~", "http://other.example/"]
    assert expected == [link.url for link in page(markup).links]


def test_each_kind_of_link_is_named_by_its_element() -> None:
    markup = (
        "<link href=l><script src=s></script><a href=a></a><map><area href=ar></map><iframe src=i></iframe>"
        "<img src=im><form action=f></form>"
    )
    expected = [
        ("link", "l"),
        ("script", "s"),
        ("a", "a"),
        ("area", "ar"),
        ("iframe", "i"),
        ("img", "im"),
        ("form", "f"),
    ]
    assert [(kind, f"http://example.org/dir/{name}") for kind, name in expected] == kinds_and_urls(markup)


def test_frames_of_a_frameset_are_links() -> None:
    markup = "<html><frameset><frame src=one><frame src=two></frameset></html>"
    assert [("frame", "http://example.org/dir/one"), ("frame", "http://example.org/dir/two")] == kinds_and_urls(markup)


def test_a_form_that_posts_is_not_a_link() -> None:
    markup = "<form method=' Post' action=p></form><form method=get action=g></form>"
    assert [("form", "http://example.org/dir/g")] == kinds_and_urls(markup)


def test_a_meta_refresh_is_a_link_at_its_place() -> None:
    markup = "<link href=l><meta http-equiv=Refresh content='5; url=next'><link href=m>"
    assert ["link", "meta", "link"] == [link.kind for link in page(markup).links]
    assert (5, "http://example.org/dir/next") == page(markup).refresh


def test_a_refresh_of_the_page_itself_is_not_a_link() -> None:
    read_page = page("<meta http-equiv=refresh content=30>")
    assert ((), (30, URL)) == (read_page.links, read_page.refresh)


def test_links_in_noscript_and_template_count() -> None:
    markup = "<noscript><a href=n></a></noscript><template><a href=t></a></template>"
    assert ["http://example.org/dir/n", "http://example.org/dir/t"] == [link.url for link in page(markup).links]


def test_comments_and_scripts_contain_no_links() -> None:
    markup = "<!-- <a href=c></a> --><script>'<a href=s></a>'</script><style>/*<a href=y></a>*/</style>"
    assert () == page(markup + "<title><a href=t></title>").links


@pytest.mark.parametrize(
    "address", ["mailto:x@y.example", "javascript:void(0)", "data:text/html,x", "ftp://x.example/", "http://", "tel:1"]
)
def test_only_http_and_https_count(address: str) -> None:
    assert () == page(f"<a href='{address}'></a><img src='{address}'>").links


def test_a_base_element_moves_relative_links() -> None:
    read_page = page("<a href=before></a><base href='/other/'><base href='/second/'><a href=after></a>")
    assert ["http://example.org/other/before", "http://example.org/other/after"] == [
        link.url for link in read_page.links
    ]
    assert "http://example.org/other/" == read_page.base


@pytest.mark.parametrize("base", ["mailto:x@y.example", "http://[", "data:,x", "http://x.example/" + "y" * 10_000])
def test_an_invalid_base_is_ignored(base: str) -> None:
    read_page = page(f"<base href='{base}'><a href=x></a>")
    assert (URL, "http://example.org/dir/x") == (read_page.base, read_page.links[0].url)


def test_followed_links_are_unique_and_lead_to_pages() -> None:
    markup = (
        "<a href=x></a><img src=i><iframe src=y></iframe><a href=x#z></a><link rel=next href=l><form action=f></form>"
    )
    assert ["http://example.org/dir/x", "http://example.org/dir/y"] == page(markup).followed()


def test_links_of_users_and_sponsors_are_kept_and_not_followed() -> None:
    read_page = page("<a rel=ugc href=x></a><a rel='x Sponsored' href=y></a><a rel=ugcs href=z></a>")
    assert (3, ["http://example.org/dir/z"]) == (len(read_page.links), read_page.followed())


def test_nofollow_links_are_kept_and_not_followed() -> None:
    read_page = page("<a rel='External NoFollow' href=x></a><a href=y></a>")
    assert PageLink("http://example.org/dir/x", "a", "external nofollow") == read_page.links[0]
    assert ["http://example.org/dir/y"] == read_page.followed()
    assert ["http://example.org/dir/x", "http://example.org/dir/y"] == read_page.followed(nofollow_too=True)


def test_the_links_to_follow_are_available_as_a_batch() -> None:
    read_page = page(
        "<a href=x></a><a href='mailto:x'></a><img src=i><a href=/y#z></a><a href='/%79'></a><a href=é></a>"
    )
    batch = read_page.link_batch()
    expected = ["http://example.org/dir/x", "http://example.org/y", "http://example.org/dir/%C3%A9"]
    assert (expected, expected) == (batch.strings(), read_page.followed())
    assert 0 == len(page("no link at all").link_batch())


def test_pages_with_the_same_links_are_equal() -> None:
    assert page("<a href=x></a>") == page("<a href='./x'></a>")
    assert page("<a href=x></a>") != page("<a href=y></a>")
    assert page("<a href=x></a>") != page("<area href=x>")
    assert hash(page("<a href=x></a>")) == hash(page("<a href=x></a>"))


@pytest.mark.parametrize("content", ["nofollow", "NOINDEX, NOFOLLOW", "none", "noindex nofollow", " index ,nofollow,"])
def test_a_robots_meta_stops_all_links(content: str) -> None:
    read_page = page(f"<meta name=Robots content='{content}'><a href=x></a>")
    assert (1, []) == (len(read_page.links), read_page.followed())
    assert ["http://example.org/dir/x"] == read_page.followed(nofollow_too=True)


@pytest.mark.parametrize(("agent", "followed"), [("FooBot", 0), ("OtherBot", 1), (None, 1)])
def test_a_robots_meta_may_be_for_one_agent(agent: str | None, followed: int) -> None:
    markup = "<meta name=foobot content=nofollow><a href=x></a>"
    assert followed == len(page(markup, agent=agent).followed())


def test_robots_directives_are_combined() -> None:
    markup = "<meta name=robots content='noindex, max-snippet: 50'><meta name=robots content=noarchive>"
    assert frozenset({"noindex", "max-snippet: 50", "noarchive"}) == page(markup).robots


def test_title_description_canonical_and_language() -> None:
    read_page = page(
        "<html lang=de-AT><title> One\n title </title><title>other</title>"
        "<meta name=Description content=' What it is '><link rel='foo Canonical' href='/c#d'>"
        "<link rel=canonical href=/e>"
    )
    expected = ("One title", "What it is", "http://example.org/c", "de-AT")
    assert expected == (read_page.title, read_page.description, read_page.canonical, read_page.language)


def test_the_title_of_a_picture_is_not_the_title_of_the_page() -> None:
    assert "page" == page("<body><svg><title>picture</title></svg><title>page</title>").title


def test_the_language_may_be_in_a_meta() -> None:
    assert "fr" == page("<meta http-equiv=Content-Language content=fr>").language


@pytest.mark.parametrize("language", ["", "de\x1b[31m", "x" * 50, "de; drop"])
def test_an_invalid_language_tag_is_ignored(language: str) -> None:
    assert page(f"<html lang='{language}'>").language is None


@pytest.mark.parametrize(
    ("body", "content_type", "charset", "text"),
    [
        (codecs.BOM_UTF8 + "<p>ü".encode(), "text/html; charset=koi8-r", "utf-8", "ü"),
        (codecs.BOM_UTF16_LE + "<p>ü".encode("utf-16-le"), "text/html", "utf-16le", "ü"),
        ("<p>ы".encode("koi8-r"), 'Text/HTML; Charset="KOI8-R"', "koi8-r", "ы"),
        (b"<meta charset=sjis><p>" + "あ".encode("shift-jis"), "text/html", "shift_jis", "あ"),
        (b"<meta charset=sjis><p>\xc3\xbc", "text/html;charset=utf8", "utf-8", "ü"),
        (b"<meta charset=sjis><p>" + "あ".encode("shift-jis"), "text/html; charset=bogus", "shift_jis", "あ"),
        ("<p>ü".encode(), "text/html", "utf-8", "ü"),
        ("<p>ü".encode("latin-1"), "text/html", "windows-1252", "ü"),
        (b"<p>\x80", "text/html; charset=iso-8859-1", "windows-1252", "€"),
        ("ü".encode(), "text/plain", "utf-8", "ü"),
        ("ü".encode()[:1], "text/plain", "utf-8", ""),
        (b"\xfc", "text/plain", "windows-1252", "ü"),
        (codecs.BOM_UTF16_BE + "ü".encode("utf-16-be"), "text/plain; charset=utf-8", "utf-16be", "ü"),
        (b"<meta charset=sjis>", "text/plain; charset=iso_8859-1:1987", "windows-1252", "<meta charset=sjis>"),
    ],
)
def test_the_encoding_is_from_the_mark_the_header_the_meta_or_a_guess(
    body: bytes, content_type: str, charset: str, text: str
) -> None:
    read_page = page(body, content_type)
    assert (charset, text) == (read_page.charset, read_page.text.strip())


def test_xhtml_with_elements_closed_in_place_loses_no_text() -> None:
    markup = '<html><head><script src="s"/><title/></head><body><a href="x"/></body></html>'
    read_page = page('<?xml version="1.0" encoding="koi8-r"?>' + markup, "application/xhtml+xml")
    assert ["s", "x"] == [link.url.rpartition("/")[2] for link in read_page.links]
    assert "koi8-r" == read_page.charset


@pytest.mark.parametrize("content_type", ["image/png", "application/pdf", "application/json", "non/sense", "text/css"])
def test_pages_of_other_types_have_no_links_and_no_text(content_type: str) -> None:
    read_page = page("<a href=x>text</a>", content_type)
    assert ((), "", 0) == (read_page.links, read_page.text, read_page.simhash)


def test_plain_text_has_text_but_no_links() -> None:
    read_page = page("see <a href=x>", "text/plain; charset=utf-8")
    assert ((), "see <a href=x>") == (read_page.links, read_page.text)
    assert 0 != read_page.simhash


@pytest.mark.parametrize(("body", "links"), [("\n<a href=x>", 1), ("<a href=x>", 1), ("no tag <a href=x>", 0)])
def test_without_a_type_a_tag_at_the_start_makes_a_page(body: str, links: int) -> None:
    assert links == len(page(body, "").links)


def test_the_text_is_the_visible_text() -> None:
    markup = "<title>t</title><p>one <b>t</b>wo</p><p>three<script>no</script><style>no</style><template>no</template>"
    assert ["one", "two", "three"] == page(markup + "<!-- no -->").text.split()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("5", (5, "")),
        ("5; url=x", (5, "x")),
        ("5;URL = 'x y' z", (5, "x y")),
        ("5,x", (5, "x")),
        ("5 x", (5, "x")),
        ("5.7;x", (5, "x")),
        (".7;x", (0, "x")),
        ('0;url="x', (0, "x")),
        ("0; urlx", (0, "urlx")),
        ("x", None),
        ("", None),
        ("-1;x", None),
        ("5x;y", None),
        ("9" * 5_000, (999_999_999, "")),
    ],
)
def test_a_refresh_is_read_as_browsers_read_it(content: str, expected: tuple[int, str] | None) -> None:
    assert expected == parse_refresh(content)


@given(
    st.binary(max_size=400),
    st.text(max_size=20),
    st.sampled_from(["text/html", "text/plain", "application/xhtml+xml", ""]),
)
def test_any_bytes_can_be_read(body: bytes, parameter: str, essence: str) -> None:
    read_page = read(b"<a href=" + body, URL, f"{essence}; charset={parameter}")
    assert len(read_page.text) <= TEXT_BYTES_MAX


TAGS = st.sampled_from(
    [
        "<a href=x>",
        "<a href='//%zz?'>",
        "</a>",
        "<base href=y>",
        "<b>",
        "<i>",
        "</b>",
        "<p>",
        "<table>",
        "<td>",
        "<svg>",
    ]
)
ODD_TAGS = st.sampled_from(
    ["<template>", "<title>", "</title>", "<script>", "</script>", "<!--", "-->", "<meta charset=utf-16>", "<select>"]
)
RARE_TAGS = st.sampled_from(
    ["<meta http-equiv=refresh content=1;url=z>", "&#0;", "text", "<frameset>", "<noscript>", "<plaintext>", "\ud7ff"]
)


@given(st.lists(TAGS | ODD_TAGS | RARE_TAGS, max_size=40))
def test_any_broken_markup_can_be_read(tags: list[str]) -> None:
    read_page = page("".join(tags))
    assert all(link.url.startswith(("http://", "https://")) for link in read_page.links)


@pytest.mark.parametrize("url", ["", "nonsense", "ftp://example.org/", "http://["])
def test_a_page_without_a_url_has_only_absolute_links(url: str) -> None:
    read_page = read(b"<a href=x></a>", url)
    assert () == read_page.links


def test_links_beyond_the_limit_are_dropped_by_kind() -> None:
    """A thousand pictures must not displace the links to pages."""
    numbers = range(LINKS_PER_PAGE_MAX + 5)
    markup = "".join(f"<img src=i{n}>" for n in numbers) + "".join(f"<a href=a{n}></a>" for n in numbers)
    read_page = page(markup)
    kinds = [link.kind for link in read_page.links]
    assert [LINKS_PER_PAGE_MAX, LINKS_PER_PAGE_MAX] == [kinds.count("img"), kinds.count("a")]
    assert 10 == read_page.left_out


@pytest.mark.parametrize("folder", ["", "x" * 2_000 + "/"], ids=["short URLs", "long URLs"])
def test_pages_named_late_in_an_index_are_among_its_links(folder: str) -> None:
    """An index of a library named 97 pages 82,000 times. The pages after the first ten thousand links were once
    lost."""
    url = f"http://example.org/{folder}index.html"
    index = "".join(f"<a href='p{n % 50}.html#{n}'>x</a><a href='#{n}'>y</a>" for n in range(3 * LINKS_PER_PAGE_MAX))
    late = "".join(f"<a href='late{n}.html#{part}'>z</a>" for n in range(50) for part in range(2))
    read_page = read((index + late).encode(), url)
    names = [url, *(f"http://example.org/{folder}{name}{n}.html" for name in ("p", "late") for n in range(50))]
    assert (sorted(names), 0) == (sorted(read_page.followed()), read_page.left_out)
    assert len(read_page.links) <= 2 * LINKS_PER_PAGE_MAX
    assert sum(len(link.url) + len(url) for link in read_page.links) <= 2 * LINKS_PER_PAGE_BYTES_MAX


def test_links_below_a_long_url_are_bounded_in_bytes() -> None:
    """A page of 130 kB below a URL of 8 kB once needed 80 MB for its links. Now the first ones stay, and the rest are
    counted."""
    url = "http://example.org/" + "x" * 8_000 + "/"
    read_page = read("".join(f"<a href=p{n}>" for n in range(LINKS_PER_PAGE_MAX)).encode(), url)
    kept = len(read_page.links)
    assert [f"{url}p{n}" for n in range(kept)] == [link.url for link in read_page.links]
    assert LINKS_PER_PAGE_BYTES_MAX - 2 * len(url) - 20 < kept * 2 * len(url) <= LINKS_PER_PAGE_BYTES_MAX
    assert LINKS_PER_PAGE_MAX == kept + read_page.left_out


def test_short_links_on_a_page_with_a_long_url_share_its_limit() -> None:
    """Each link is stored with the URL of its page: ten thousand short links once used 80 MB of the log."""
    url = "http://example.org/" + "x" * 8_000
    read_page = read("".join(f"<a href=/{n}>" for n in range(LINKS_PER_PAGE_MAX)).encode(), url)
    assert LINKS_PER_PAGE_BYTES_MAX // len(url) - 2 <= len(read_page.links) <= LINKS_PER_PAGE_BYTES_MAX // len(url)


def test_links_become_absolute_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most a piece or two is made of the links beyond the limit."""
    made: list[int] = []
    of = UrlBatch.of

    def counted(urls: list[str], base: str) -> UrlBatch:
        batch = of(urls, base)
        made.append(len(batch.arena))
        return batch

    monkeypatch.setattr(UrlBatch, "of", counted)
    markup = "<base href='/" + "b" * 2_000 + "/'>" + "".join(f"<a href=p{n}>" for n in range(LINKS_PER_PAGE_MAX))
    page(markup)
    assert sum(made) < LINKS_PER_PAGE_BYTES_MAX + 2 * LINKS_SPELLED_BYTES_STEP


def test_long_picture_urls_displace_no_links() -> None:
    markup = "<base href='/" + "b" * 2_000 + "/'>" + "<img src=i>" * 5_000 + "<a href=a></a>" * 100
    kinds = [link.kind for link in page(markup).links]
    assert (100, True) == (kinds.count("a"), 400 < kinds.count("img") < 600)


def test_a_link_that_is_too_long_to_be_stored_drops_no_other_links() -> None:
    markup = f"<a href='/{'y' * 1_900_000}'></a><a href=b></a>"
    assert ["http://example.org/dir/b"] == [link.url for link in page(markup).links][1:]


def test_links_beyond_the_limits_are_counted() -> None:
    pages = ["".join(f"<a href=a{n}></a>" for n in range(LINKS_PER_PAGE_MAX + more)) for more in (0, 5)]
    assert [0, 5] == [page(markup).left_out for markup in pages]


def test_a_refresh_after_too_many_links_still_counts() -> None:
    markup = "<a href=a></a>" * (LINKS_PER_PAGE_MAX + 1) + "<meta http-equiv=refresh content=0;url=r>"
    assert (0, "http://example.org/dir/r") == page(markup).refresh


def test_title_and_text_are_bounded() -> None:
    read_page = page(f"<title>{'t' * 10_000}</title><p>{'word' * 300_000}")
    assert (TITLE_CHARACTERS_MAX, TEXT_BYTES_MAX) == (len(read_page.title), len(read_page.text))


HOSTILE = {
    "nested": b"<div>" * scaled(100_000) + b"<a href=x>",
    "mis-nested": b"<b><i>x</b>y</i>" * scaled(100_000),
    "formatting": b"<a><b><i><u><s><p></b></i></a>" * scaled(50_000),
    "attributes": b"<p " + b" ".join(b"a%d=1" % n for n in range(scaled(200_000))) + b">",
    "one-attribute": b"<p " + b"a=1 " * scaled(500_000) + b">",
    "ampersands": b'<a href="' + b"&" * scaled(1_500_000) + b'">',
    "lists": b"<ul><li>" * scaled(200_000),
    "cells": b"<table><tr>" + b"<td>x" * scaled(300_000),
    "tables": b"<table><tr><td>x" * scaled(100_000),
    "less-than": b"<" * scaled(1_500_000),
    "comment": b"<!--" * scaled(400_000),
    "script": b"<script>" + b"</script" * scaled(200_000),
    "base": b"<base href='http://x.example/" + b"y" * scaled(700_000) + b"'>" + b"<a href=?%d>" * scaled(60_000),
    "long-base": b"<base href='/"
    + b"y" * scaled(8_000)
    + b"/'>"
    + b"".join(b"<a href=%d>" % n for n in range(scaled(100_000))),
    "long-href": b"<a href='" + b"../" * scaled(500_000) + b"'>",
    "metas": b"<meta name=robots content='"
    + b"a," * scaled(500_000)
    + b"'>"
    + b"<meta http-equiv=refresh content=0;x>" * scaled(20_000),
    "self-closing": b"<script " * scaled(200_000),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("content_type", ["text/html", "application/xhtml+xml"])
def test_hostile_pages_need_time_in_proportion_to_their_size(name: str, content_type: str) -> None:
    assert seconds_of(lambda: page(HOSTILE[name], content_type)) < 5


@pytest.mark.parametrize(
    ("content_type", "charset"),
    [
        ('text/html; foo="bar; charset=utf-7;"; charset=koi8-r', "koi8-r"),
        ("text/html; charset=\"\"; Charset = 'koi8-r'", "koi8-r"),
        ('text/html;charset="koi8-r', "koi8-r"),
        ("text/html; xcharset=koi8-r", "windows-1252"),
    ],
)
def test_the_charset_of_a_content_type_is_a_parameter_of_it(content_type: str, charset: str) -> None:
    assert charset == read(b"<p>", URL, content_type).charset


@pytest.mark.parametrize(
    ("front", "charset"),
    [
        (b'<?xml version="1.0" encoding="iso-8859-2"?>', "iso-8859-2"),
        (b"<?xml version='1.0' encoding = 'UTF-16'?>", "utf-8"),
        (b'<?xml version="1.0" encoding="none"?>', "windows-1252"),
        (b'<?xml version="1.0" encoding="iso-8859-2"?><meta charset=koi8-r>', "koi8-r"),
        (b'\xef\xbb\xbf<?xml version="1.0" encoding="iso-8859-2"?>', "utf-8"),
        (b' <?xml version="1.0" encoding="iso-8859-2"?>', "windows-1252"),
    ],
)
def test_a_declaration_of_xml_names_the_encoding_where_no_meta_does(front: bytes, charset: str) -> None:
    assert charset == read(front + b"<p>x", URL).charset
