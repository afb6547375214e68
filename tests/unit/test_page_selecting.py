"""Selectors on a page, and its decoded text: what they find, what they refuse, and what they cost."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
import turbohtml
from hypothesis import example, given
from hypothesis import strategies as st

from outrider import kernels
from outrider.errors import SelectorError
from outrider.limits import SELECTED_ATTRIBUTES_MAX, SELECTED_BYTES_MAX, SELECTED_BYTES_UNCHECKED
from outrider.page import Source, Unread, read, read_many
from outrider.page.selecting import may_have_many_attributes

URL = "http://shop.test/p/1"
PIECES = ["<p", "</p", "<!--", "-->", "<script>", "</script>", "<", ">", "/", " ", "\n", "\r\n", "=", '"', "'"]
PIECES += ["a", "b1", "=''", '=">"', "c= '>", "&gt;", "é"]
PAGE = (
    b"<!doctype html><title>Tea</title><div class=product><h1>Green tea</h1>"
    b"<span class=price>12.50</span><a href=/p/2>next</a></div>"
)


def test_css_and_xpath_find_the_same():
    page = read(PAGE, URL)
    assert ("Green tea", "12.50") == (page.css("h1::text").get(), page.xpath("//*[@class='price']/text()").get())
    assert (["/p/2"], "next") == (page.css("a::attr(href)").getall(), page.css(".product a::text").get())
    assert (None, []) == (page.css("h2::text").get(), page.css("h2").getall())
    assert 12.5 == float(page.css(".price::text").re_first(r"[\d.]+"))


def test_an_expression_accepts_values_by_name():
    assert "12.50" == read(PAGE, URL).xpath("//span[@class=$kind]/text()", kind="price").get()


@pytest.mark.parametrize(
    ("body", "content_type", "text"),
    [
        ("<p>Grüße".encode("latin-1"), "text/html; charset=latin1", "<p>Grüße"),
        (b"<p>\x93x\x94", "text/html; charset=iso-8859-1", "<p>“x”"),  # windows-1252, as WHATWG has it
        ("<meta charset=windows-1251><p>мир".encode("cp1251"), "text/html", "<meta charset=windows-1251><p>мир"),
        ("<p>мир".encode("utf-16"), "text/html", "<p>мир"),
        (b"\xef\xbb\xbf<p>\xc3\xa9", "text/html; charset=latin1", "<p>é"),  # the mark counts first
        ("<p>日本".encode("shift_jis"), "text/html; charset=Shift_JIS", "<p>日本"),
        (b"<p>\xff\xc3\xa9", "text/html; charset=utf-8", "<p>�é"),
        (b"<p>\r\n\x00x", "text/html", "<p>\r\n\x00x"),
        (b"", "text/html", ""),
        (b"{}", "application/json", "{}"),
        ("ü".encode("latin-1"), "application/x-unread; charset=latin1", "ü"),
    ],
)
def test_html_is_the_body_decoded_as_browsers_do(body, content_type, text):
    assert text == read(body, URL, content_type).html


@pytest.mark.parametrize(
    ("body", "words"),
    [(b"", []), (b" \n", []), (b"\x00", ["�"]), (b"just text", ["just text"]), (b"<p>a\x00b", ["a�b"])],
)
def test_a_body_with_hardly_any_html_has_a_tree(body, words):
    assert words == read(body, URL).xpath("//text()").getall()


@pytest.mark.parametrize("content_type", ["application/xml", "text/xml; charset=utf-8", "application/rss+xml"])
def test_xml_is_read_as_xml(content_type):
    body = b"<?xml version='1.0' encoding='utf-8'?><rss><channel><Item><link>/a</link></Item></channel></rss>"
    assert ["/a"] == read(body, URL, content_type).xpath("//Item/link/text()").getall()


def test_xhtml_is_read_as_html():
    page = read(b"<html xmlns='http://www.w3.org/1999/xhtml'><p>x</p></html>", URL, "application/xhtml+xml")
    assert "x" == page.css("p::text").get()


@pytest.mark.parametrize("selector", ["a[", "a::foo", "", "h1:contains(", 7, None, b"a"])
def test_a_bad_selector_is_named(selector):
    with pytest.raises(SelectorError) as caught:
        read(PAGE, URL).css(selector)
    assert repr(selector) in caught.value.facts


@pytest.mark.parametrize("expression", ["//a[", "", "nothing()", "//x:y", "//a[@b=$unknown]", 7, None])
def test_a_bad_expression_is_named(expression):
    with pytest.raises(SelectorError) as caught:
        read(PAGE, URL).xpath(expression)
    assert repr(expression) in caught.value.facts


@pytest.mark.parametrize("function", ["document", "unparsed-text", "doc", "unparsed-entity-uri", "system-property"])
def test_no_expression_reads_a_file(tmp_path, function):
    (tmp_path / "secret").write_text("<a>secret</a>")
    with pytest.raises(SelectorError, match="nregistered function"):
        read(PAGE, URL).xpath(f"{function}('file://{tmp_path}/secret')")


@pytest.mark.parametrize("content_type", ["text/html", "application/xml"])
def test_no_document_reads_a_file(tmp_path, content_type):
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "dtd").write_text("<!ENTITY e 'secret'>")
    for declared in (f"<!ENTITY e SYSTEM 'file://{tmp_path}/secret'>", f"<!ENTITY % p SYSTEM '{tmp_path}/dtd'> %p;"):
        body = f"<!DOCTYPE r [{declared}]><r>&e;<x href='{tmp_path}/secret'/></r>".encode()
        page = read(body, URL, content_type)
        assert "secret" not in "".join(page.xpath("//text()").getall())


def test_entities_that_multiply_are_not_expanded():
    lines = "".join(f"<!ENTITY e{n + 1} '{f'&e{n};' * 10}'>" for n in range(9))
    body = f"<!DOCTYPE r [<!ENTITY e0 'x'>{lines}]><r>&e9;</r>".encode()
    assert len("".join(read(body, URL, "application/xml").xpath("//text()").getall())) < 1_000


@pytest.mark.parametrize(
    "body",
    [
        b"<div>" * 200_000,
        b"<b><i>x</b>y</i>" * 20_000,
        b"<a><p>" * 60_000,
        b"<font><table><tr><td>" * 40_000,
        b"&amp;" * 200_000,
        b"<p " + b" ".join(b"a%d=1" % n for n in range(4_900)) + b">",
        b"<p " + b" ".join(b"a%d" % n for n in range(SELECTED_BYTES_UNCHECKED // 6)) + b">",
    ],
)
def test_a_malicious_page_is_read_in_a_second(body):
    began = time.process_time()
    read(body, URL).css("a::attr(href)").getall()
    assert time.process_time() - began < 2


@pytest.mark.parametrize("before", [b"", b'<!-- <x " -->', b"<script>'</script>", b"<a b='>'>"])
def test_a_tag_with_endless_attributes_is_refused(before):
    body = before + b"<p " + b" ".join(b'a%d=">"' % n for n in range(20_000)) + b"><a href=/x>"
    with pytest.raises(SelectorError, match="20,000 attributes"):
        read(body, URL).css("a")


@given(
    st.lists(
        st.sampled_from(PIECES),
        max_size=40,
    ).map("".join)
)
@example("<p a=1 b=2 c=3 d=4>")
@example("<p a='>'b c d e>")
@example("<p/a/b/c/d")
def test_a_tag_with_too_many_attributes_is_never_overlooked(text):
    most = max((len(token.attrs or ()) for token in turbohtml.tokenize(text)), default=0)
    for attributes_max in range(most):
        assert may_have_many_attributes(text.encode(), attributes_max), attributes_max


@pytest.mark.parametrize("page", ["", "<p>x</p>" * 9_000, "<a href='/x' title=\"y\">z &gt; 1</a>\n" * 3_000])
def test_a_usual_page_needs_no_tokeniser(page):
    assert not may_have_many_attributes(page.encode(), SELECTED_ATTRIBUTES_MAX)


def test_a_page_too_large_for_a_tree_is_refused_by_its_size():
    with pytest.raises(SelectorError, match=f"{SELECTED_BYTES_MAX:,}"):
        Source(b"x" * (SELECTED_BYTES_MAX + 1), URL, "text/html", "utf-8").css("p")


def test_a_page_that_was_read_in_a_batch_says_where_its_body_is():
    (page,) = read_many([Unread(PAGE, URL)]).pages
    for ask in (lambda: page.html, lambda: page.css("a"), lambda: page.xpath("//a")):
        with pytest.raises(SelectorError, match="on_page"):
            ask()


def test_the_body_of_a_page_does_not_count_for_its_equality():
    (among,) = read_many([Unread(PAGE, URL)]).pages
    assert among == read(PAGE, URL)


def test_reading_a_page_loads_no_parser_of_selectors():
    code = (
        "import sys, outrider, outrider.page, outrider.crawl.run.hooks\n"
        "page = outrider.page.read(b'<p>x', 'http://a.test/')\n"
        "page.html\n"
        "assert not {'parsel', 'lxml', 'cssselect', 'w3lib'} & {name.partition('.')[0] for name in sys.modules}\n"
        "page.css('p')\n"
        "assert 'parsel' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_both_kernels_decode_in_the_same_way():
    body = "Grüße €".encode("cp1252")
    assert "Grüße €" == Source(body, URL, "text/html", "windows-1252").html, kernels.in_use()
