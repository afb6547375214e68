"""Pages that are not HTML: feeds, images. Also the links in the headers of an answer of any type."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.limits import HEADER_LINKS_MAX
from outrider.page import Page, header_links, image_of, read

U = "http://a.test/dir/page"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ('</next>; rel="next"', [("http://a.test/next", "next")]),
        ("<b>;rel=Prev, <c>; title=x ;rel='y'", [("http://a.test/dir/b", "prev"), ("http://a.test/dir/c", "'y'")]),
        ('<?a,b;c>; title="a \\"<quoted>\\", b"; rel="x  y"', [(f"{U}?a,b;c", "x y")]),
        ('<u>; rel=first; rel="second"', [("http://a.test/dir/u", "first")]),
        ("<mailto:a@b.test>; rel=author, <ftp://x/>", []),
        ('<u>; rel=up; anchor="#part"', []),
        ("no link, <u", []),
        ("", []),
    ],
)
def test_link_fields_are_read_as_rfc_8288_says(value: str, expected: list[tuple[str, str]]) -> None:
    assert expected == [(one.url, one.rel) for one in header_links([value], U)]


def test_an_answer_of_any_type_has_the_canonical_url_and_alternates_of_its_headers() -> None:
    fields = ['<http://a.test/paper>; rel="canonical"', '<de>; rel="alternate"; hreflang="de"; type="application/pdf"']
    page = read(b"%PDF-1.7", U, "application/pdf").with_header(fields)
    assert "http://a.test/paper" == page.canonical
    assert [("http://a.test/dir/de", "de", "application/pdf")] == [
        (one.url, one.hreflang, one.type) for one in page.alternates
    ]
    assert ["link", "link"] == [link.kind for link in page.links]
    assert 0 == len(page.link_batch())  # recorded, not followed


@pytest.mark.parametrize(
    ("octets", "expected"),
    [
        ("/é".encode(), "http://a.test/%C3%A9"),
        ("/é?é".encode("latin-1"), "http://a.test/%E9?%E9"),
        ("/中".encode("gbk"), "http://a.test/%D6%D0"),
    ],
)
def test_octets_of_a_field_beyond_ascii_are_encoded_unchanged(octets: bytes, expected: str) -> None:
    target = octets.decode("latin-1")  # like fields of a head
    page = read(b"", U).with_header([f"<{target}>; rel=canonical"], f"0; url={target}")
    assert [expected, (0, expected)] == [page.canonical, page.refresh]


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("0; url=/a", "http://a.test/a"),
        ('3;URL="/a"', "http://a.test/a"),
        ("0;/a", "http://a.test/a"),
        ("5, url='/a'", "http://a.test/a"),
        (" 1 ; Url = sub", "http://a.test/dir/sub"),
        ("0;url=//b.test/", "http://b.test/"),
        ("5", U),
        ("url=/a", None),
        ("0; url=mailto:a@b.test", None),
        ("0; url=http://[", None),
    ],
)
def test_a_refresh_field_is_a_link_like_a_meta_refresh(field: str, expected: str | None) -> None:
    page = read(b"<a href=/b>b</a>", U).with_header([], field)
    led = [] if expected is None else [expected]
    assert [*led, "http://a.test/b"] == page.followed()
    assert [*(("meta", url) for url in led)] == [(link.kind, link.url) for link in page.links[1:]]


def test_a_refresh_field_is_not_followed_from_a_page_that_says_nofollow() -> None:
    page = read(b"<meta name=robots content=nofollow>", U).with_header([], "0; url=/a")
    assert ([], ["http://a.test/a"]) == (page.followed(), page.followed(nofollow_too=True))


def test_a_target_that_is_also_linked_by_the_page_is_followed_once() -> None:
    page = read(b"<a href=/a>a</a><a href=/b>b</a>", U).with_header([], "0; url=/a")
    assert ["http://a.test/a", "http://a.test/b"] == page.followed()


def test_a_page_that_names_its_canonical_url_itself_keeps_it() -> None:
    page = read(b'<link rel=canonical href="/own"><a href=x>', U).with_header(["</other>; rel=canonical"])
    assert "http://a.test/own" == page.canonical
    assert ["link", "a", "link"] == [link.kind for link in page.links]


def test_the_links_in_headers_have_a_limit() -> None:
    assert HEADER_LINKS_MAX == len(header_links(["<a>," * 5_000] * 3, U))
    assert header_links(['<a>;b="' * 9_000], U)


@given(st.lists(st.text(alphabet='<>;,="\\a /\x00é', max_size=60), max_size=3))
def test_any_link_fields_are_read(values: list[str]) -> None:
    header_links(values, U)


def test_links_of_a_linked_feed_are_followed() -> None:
    rss = b"<rss><channel><item><link>http://a.test/1</link></item><item><link>/2</link></item></channel></rss>"
    atom = b'<feed xmlns="http://www.w3.org/2005/Atom"><entry><link href="http://a.test/3"/></entry></feed>'
    assert "http://a.test/1" in read(rss, U, "application/rss+xml; charset=utf-8").followed()
    assert ["http://a.test/3"] == read(atom, U, "text/xml").followed()
    assert [] == read(b"<html><a href=x>", U, "application/atom+xml").followed()  # a wrong type


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + bytes(4)


PNG = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 640, 480, 8, 2, 0, 0, 0))
GIF = b"GIF89a" + struct.pack("<HH", 3, 4) + b"\x00\x00\x00"
JPEG = b"\xff\xd8\xff\xe0\x00\x04ab\xff\xff\xc4\x00\x02\xff\xc2\x00\x0b\x08" + struct.pack(">HH", 20, 10) + bytes(6)
BMP = b"BM" + bytes(16) + struct.pack("<ii", 7, -9)
WEBP = b"RIFF\x00\x00\x00\x00WEBPVP8X" + bytes(8) + (99).to_bytes(3, "little") + (49).to_bytes(3, "little")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (PNG, ("image/png", 640, 480)),
        (GIF, ("image/gif", 3, 4)),
        (JPEG, ("image/jpeg", 10, 20)),
        (BMP, ("image/bmp", 7, 9)),
        (WEBP, ("image/webp", 100, 50)),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 \x00\x00\x00\x00abc\x9d\x01\x2a\x10\x00\x20\x00", ("image/webp", 16, 32)),
        (b"RIFF\x00\x00\x00\x00WEBPVP8L\x00\x00\x00\x00\x2f" + struct.pack("<I", 4 | 9 << 14), ("image/webp", 5, 10)),
        (b"<svg/>", None),
        (b"\xff\xd8\xff\xe0\x00\x00", None),
        (b"\xff\xd8" + b"\xff\xe0\x00\x02" * 5_000, None),
    ],
)
def test_an_image_has_the_type_and_size_of_its_bytes(body: bytes, expected: tuple[str, int, int] | None) -> None:
    assert expected == image_of(body)
    assert expected == read(body, U, "image/whatever").image


@pytest.mark.parametrize("body", [PNG, GIF, JPEG, BMP, WEBP])
def test_an_image_that_is_cut_anywhere_has_its_size_or_no_size(body: bytes) -> None:
    whole = image_of(body)
    assert {whole, None} >= {image_of(body[:end]) for end in range(len(body))}


@given(st.binary(max_size=80), st.sampled_from(["image/png", "text/xml", "application/rss+xml", "application/x"]))
def test_any_bytes_of_any_type_can_be_read(body: bytes, content_type: str) -> None:
    assert isinstance(read(body, U, content_type), Page)
