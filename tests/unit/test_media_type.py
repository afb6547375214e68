"""The media type of a body: what Content-Type says, and its first bytes where that says nothing."""

from __future__ import annotations

import codecs
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.fetch.downloader import Headers
from outrider.page import Page, media_type, read
from outrider.page.media_type import root_of, sniffed
from outrider.sniffing import declared_type

U = "http://a.test/d/p"


@pytest.mark.parametrize(
    ("field", "essence", "label"),
    [
        ("text/html", "text/html", None),
        (" Text/HTML ;charset=utf-8", "text/html", "utf-8"),
        ("text/html, text/html", "text/html", None),
        ("text/html;charset=koi8-r, text/html", "text/html", "koi8-r"),
        ("text/html;charset=koi8-r, text/html;charset=gbk", "text/html", "gbk"),
        ("text/html;charset=koi8-r, text/plain", "text/plain", None),
        ("text/plain;charset=koi8-r, text/html;charset=x", "text/html", "x"),
        ("application/octet-stream, text/html", "text/html", None),
        ("text/html, */*", "text/html", None),
        ("*/*, text/html", "text/html", None),
        ("text/html, nonsense, ,", "text/html", None),
        ('text/plain;a="b, image/png", text/html', "text/html", None),
        ('text/plain;a="b\\", image/png, text/html', "text/plain", None),
        ('text/plain;a="b, text/html\\', "text/plain", None),
        ("text/html;", "text/html", None),
        ("text/html; charset", "text/html", None),
        *((field, "", None) for field in ("", "*/*", "html", "utf-8", "text/", "/html", "text", "a b/c")),
        *((field, "", None) for field in ("text/html charset=utf-8", "text/html utf-8", "text/html/x", "none", ", ;")),
        ('"text/html"', "", None),
        ("unknown/unknown; charset=gbk", "unknown/unknown", "gbk"),
    ],
)
def test_a_content_type_is_read_as_in_fetch(field: str, essence: str, label: str | None) -> None:
    assert (essence, label) == declared_type(field)


@pytest.mark.parametrize(
    ("body", "essence"),
    [
        *(
            (f"{blank}<{tag} x>".encode(), "text/html")
            for tag in ("!doctype HTML", "Html", "a", "P")
            for blank in ("", "\n ")
        ),
        (b"<!-- x --><p>", "text/html"),
        (b"<ul><li><a href=1>", "text/html"),
        (codecs.BOM_UTF8 + b"<!doctype html>", "text/html"),
        *(
            (f"<{root} x='y'>".encode(), "text/xml")
            for root in ("rss", "feed", "rdf:RDF", "urlset", "sitemapindex", "svg")
        ),
        (b"<?xml version='1.0'?><html>", "text/xml"),
        (b"%PDF-1.7\n\x00", "application/pdf"),
        (b"GIF89a\x03\x00\x04\x00\x00\x00\x00", "image/gif"),
        (b"plain words", "text/plain"),
        (b"", "text/plain"),
        (codecs.BOM_UTF16_LE + b"x\x00", "text/plain"),
        (b"x\x00", "application/octet-stream"),
    ],
)
@pytest.mark.parametrize("field", ["", "*/*", "unknown/unknown", "application/unknown", "none"])
def test_the_first_bytes_decide_where_no_type_is_named(body: bytes, essence: str, field: str) -> None:
    assert essence == media_type(body, field).essence


@pytest.mark.parametrize("field", ["text/plain", "application/octet-stream", "image/png"])
def test_the_first_bytes_do_not_matter_where_a_type_is_named(field: str) -> None:
    assert [] == list(read(b"<!doctype html><a href=1>x</a>", U, field).link_batch())


def test_several_content_type_fields_are_one_list() -> None:
    fields = Headers([("Content-Type", "application/octet-stream"), ("content-type", "text/html; charset=koi8-r")])
    assert ("text/html", "koi8-r") == declared_type(fields.joined("content-type"))
    assert "" == Headers().joined("content-type")


ITEM = b"<rss version='2.0'><channel><item><link>/1</link></item></channel></rss>"


@pytest.mark.parametrize("head", [b"", b"\xef\xbb\xbf", b"\n <?xml version='1.0'?>\n<!-- x -->\n"])
def test_a_feed_that_is_sent_as_html_is_a_feed(head: bytes) -> None:
    assert ["http://a.test/1"] == [str(url) for url in read(head + ITEM, U, "text/html").link_batch()]
    atom = b"<feed xmlns='http://www.w3.org/2005/Atom'><entry><link href='/2'/></entry></feed>"
    assert ["http://a.test/2"] == [str(url) for url in read(head + atom, U, "text/html;charset=utf-8").link_batch()]
    page = b"<html><a href=1>x</a><rss><item><link>/2</link></item></rss></html>"
    assert ["http://a.test/d/1"] == [str(url) for url in read(head + page, U, "text/html").link_batch()]


DRAWING = b'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">%s</svg>'
LINKS = b'<a href="1">x</a><a xlink:href="/2"><circle/></a>'
XHTML = b'<html xmlns="http://www.w3.org/1999/xhtml"><script src="x"/><body><a href="1">x</a></body></html>'
HEAD = b'<?xml version="1.0"?>\n<!-- <rss> --><!DOCTYPE x PUBLIC "a>" "b" [<!ENTITY c "]>">]>\n'


@pytest.mark.parametrize(
    "field", ["image/svg+xml", "text/xml", "application/xml", "image/svg+xml;charset=utf-8", "*/*"]
)
@pytest.mark.parametrize("head", [b"", HEAD])
def test_the_links_of_an_svg_drawing_are_read(field: str, head: bytes) -> None:
    page = read(head + DRAWING % LINKS, U, field)
    assert ["http://a.test/d/1", "http://a.test/2"] == [str(url) for url in page.link_batch()]


@pytest.mark.parametrize("field", ["text/xml", "application/xml; charset=utf-8", "application/xhtml+xml", "a/b+xml"])
@pytest.mark.parametrize("head", [b"", codecs.BOM_UTF8, HEAD])
def test_xhtml_is_read_under_any_xml_type(field: str, head: bytes) -> None:
    assert ["http://a.test/d/1"] == [str(url) for url in read(head + XHTML, U, field).link_batch()]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-16"])
def test_the_root_of_xml_in_utf_16_is_found(encoding: str) -> None:
    assert "html" == root_of("<?xml version='1.0'?><html>".encode(encoding))


def test_xhtml_that_names_no_encoding_is_utf_8() -> None:
    page = read(XHTML.replace(b'"1"', b'"?q=&#233;"'), U, "application/xhtml+xml")
    assert ("utf-8", ["http://a.test/d/p?q=%C3%A9"]) == (page.charset, [str(url) for url in page.link_batch()])


@given(st.binary(max_size=60), st.text(alphabet='text/hml;,*"\\= charset\t', max_size=40))
def test_any_bytes_have_a_media_type(body: bytes, field: str) -> None:
    assert isinstance(media_type(body, field).essence, str)
    assert isinstance(read(b"<" + body, U, field), Page)


@pytest.mark.parametrize(
    "body", [b"<!--", b"<?", b"<!DOCTYPE x [", b'<!DOCTYPE "', b"<!-- -->", b"<!DOCTYPE [']", b"-?"]
)
def test_a_long_prefix_needs_time_in_proportion_to_its_size(body: bytes) -> None:
    started = process_time()
    root_of(body * 20_000)
    sniffed(b"<" + body * 20_000)
    declared_type('a/b;c="' + '\\"' * 30_000 + "," * 30_000)
    declared_type('a/b;c="' + '\\"' * 30_000 + "\\")  # a backslash at the end escapes no character
    assert process_time() - started < 1
