"""The contract of reading pages in batches, for the native build and its plain twin, against pages read one by one.

The road of pages that are odd reads any page: each kind of the kernel is compared with that road on the same kind.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.kinds import NATIVE, WITHOUT_NATIVE, both
from outrider import kernels
from outrider.kernels import html as html_twin
from outrider.kernels import pages as twin
from outrider.kernels.page_columns import ALL, AS_SAID, HTML, NONE, TEXT, XHTML
from outrider.limits import LINKS_PER_PAGE_MAX
from outrider.page import Unread, read_many, simhash_of_text, text_digest
from outrider.page.full_parser import read_fully
from outrider.page.reader import LIKENESS_KEY, PAGES_LIMITS
from outrider.url import UrlBatch

BOTH = both(twin)
KEY = bytes(range(16))
URL = "http://example.org/dir/page.html?q"
LONG = "http://example.org/" + "d" * 2_000 + "/page"

RARE = {
    "nothing": "",
    "no links": "<title>t</title><p>some words</p>",
    "links": "<a href=x>x</a><img src=i alt=a><a href=/y#z>y</a><a href='//Other.org'>o</a><link href=l title=t>",
    "doubles": "<a href=x>1</a><a href=x#a>2</a><a href=./x>3</a><a href=y>4</a><a href=x>5</a><a href='#'>6</a>",
    "user in a double": "<a href='http://u:p@example.org/'>1</a><a href=/>2</a><a href='http://u@example.org/b'>3</a>",
    "rels": "<a rel=nofollow href=x>1</a><a href=x>2</a><a rel='a UGC' href=y>3</a><a rel=sponsored href=z>4</a>",
    "nofollow": "<meta name=robots content='NOFOLLOW'><a href=x>1</a><a href=y>2</a><a href=x>3</a>",
    "none": "<meta name=' Robots ' content='a none'><a href=x>1</a>",
    "the agent": "<meta name=Crawler content='nofollow, max-snippet:  5 , noindex follow'><a href=x>1</a>",
    "another agent": "<meta name=otherbot content='nofollow'><a href=x>1</a>",
    "directives": "".join(f"<meta name=robots content='{'z' * row}, a{row % 90} b{row}:x'>" for row in range(150)),
    "separators": "<meta name=robots content='a\x1cb\x1fc\x0bd'><title>\x1d a\x85b\x1e\u3000c</title>",
    "base": "<base href='/other/#f'><a href=x>1</a><a href=''>2</a><a href='#x'>3</a><a href='?'>4</a>",
    "base of another host": "<base href='https://b.org:81/c/'><a href=x>1</a><a href=//d.org/>2</a>",
    "base that is the page": f"<base href='{URL}'><a href=x>1</a>",
    "base that is none": "<base href=mailto:x><a href=x>1</a>",
    "base too long": f"<base href='/{'b' * 3_000}/'><a href=x>1</a>",
    "wrong links": "<a href=&#109;ailto:x>1</a><a href=x>3</a><link rel=alternate href=tel&colon;1 type=t>"
    "<link rel=alternate href=y type=u>",
    "alternates": "<link rel=x href='feed:y'><link rel='Alternate x' hreflang=DE type='a/b' href=1>"
    "<link rel=alternate href=2>",
    "canonical": "<link rel=stylesheet href=s><link rel='x CANONICAL' href=/c?d><link rel=canonical href=e>",
    "canonical too long": f"<link rel=canonical href='/{'c' * 9_000}'><link rel=canonical href=e>",
    "canonical of an a": "<a rel=canonical href=c>1</a>",
    "refresh": "<meta http-equiv=refresh content='5; url=../r?s'><a href=x>1</a>",
    "refresh of itself": "<base href=/b/><meta http-equiv=refresh content='5'><meta http-equiv=refresh content='6;x'>",
    "refresh that is none": "<meta http-equiv=refresh content='5; url=mailto:x'>",
    "title": f"<title> a\xa0 b\n{'ü' * 2_000} c</title>",
    "title of blanks": "<title>" + " a" * 600 + "</title>",
    "descriptions": "<meta name=description content=' '><meta name=Description content=' a  b '>"
    "<meta name=description content=c>",
    "description too long": f"<meta name=description content='{'d e' * 5_000}'>",
    **{
        f"language {tag!r}": f"<html lang='{tag}'>"
        for tag in ("de", " en-US\u2003", "x" * 9, "a-", "a1", "é", "a-1-b2")
    },
    "nine parts": f"<html lang='{'-'.join('a' * 9)}'>",
    "ten parts": f"<html lang='{'-'.join('a' * 10)}'>",
    "late charset": "x" * 3_000 + "<meta charset=koi8-r><a href=x>1</a>",
    "many links": "<a href=x>1</a><img src=y>" * 11_000,
    "links behind the bound": "".join(f"<a href=/{row}/{'x' * 500}></a><img src=i{row}>" for row in range(3_000)),
    "links and a wrong one behind": "".join(
        f"<a href=/{row}/{'x' * 700}></a><a href=&#109;ailto:x></a>" for row in range(3_000)
    ),
    "an index that repeats": "".join(
        f"<a href=/{row % 9}/{'x' * 700}#{row}></a><img src=i{row % 7}><a href=/late/{row // 400}></a>"
        for row in range(9_000)
    ),
    "an index that repeats with wrong ones": "<a href=&#109;ailto:x></a><a rel=nofollow href=z></a>"
    + "".join(f"<a href=/{row // 2}/{'x' * 500}></a><img src=/{row // 3}/{'x' * 900}>" for row in range(4_000)),
    "many places": "".join(f"<a href=x{row // 2}#{row}></a><img src=y{row % 9_999}>" for row in range(21_000)),
    "links too long": f"<a href=/{'x' * 20_000}></a><a href=y></a>" * 90,
    "a link as long as three steps": f"<a href=/{'x' * 1_500_000}></a><a href=y></a><img src=z>",
    "text": "<p>" + "\n".join(f"word{row % 77} some more words that tell of it" for row in range(3_000)),
}
ODD = {
    "odd link": "<a href=x>1</a><a href='http://xn--bcher-kva.example/'>2</a><a href=y>3</a>",
    "odd host": "<a rel=nofollow href='http://bücher.example/'>2</a><a href=y>3</a>",
    "odd base": "<base href='http://0x7f.1/'><a href=y>3</a>",
    "odd refresh": "<meta http-equiv=refresh content='0; url=http:\\x'>",
    "robots beyond ASCII": "<meta name=robots content='İ, nofollow'><a href=y>3</a>",
}


def use(kernel, monkeypatch):
    """Has pages read by this kind."""
    monkeypatch.setattr(kernels, "read_pages", kernel.read_pages)
    monkeypatch.setattr(kernels, "read_html", (html_twin if kernel is twin else kernel).read_html)
    monkeypatch.setattr(kernels, "decode_text", (html_twin if kernel is twin else kernel).decode_text)


def alone(one, agent=None):
    """The page, the links that are followed and the number of those left alone, as the road of odd pages has them."""
    page = read_fully(one.body, one.url, None, one.content_type == "application/xhtml+xml", PAGES_LIMITS, agent)
    links = page.link_batch(nofollow_too=one.follow_nofollow)[:LINKS_PER_PAGE_MAX]
    return page, links, 0 if one.follow_nofollow else page.left_alone(len(links))


def assert_as_alone(unread, agent=None, key=KEY):
    found = read_many(unread, agent=agent, key=key)
    for row, one in enumerate(unread):
        page, links, left_alone = alone(one, agent)
        mine = found.pages[row]
        assert page == mine
        assert (len(page.found), page.alternates) == (len(mine.found), mine.alternates)
        assert page.found.urls.has_userinfo.tolist() == mine.found.urls.has_userinfo.tolist()
        assert page.found.rel_names == mine.found.rel_names
        first, last = found.bounds[row], found.bounds[row + 1]
        piece = found.links[first:last]
        assert links == piece
        for name in ("hosts", "paths"):
            assert [column.tolist() for column in getattr(links, name)()] == [
                column.tolist() for column in getattr(piece, name)()
            ]
        if key is not None:
            assert np.array_equal(links.fingerprints(key), piece.fingerprints(key))
            assert np.array_equal(links.host_fingerprints(key), piece.host_fingerprints(key))
        assert left_alone == found.left_alone[row]
        assert links == mine.link_batch(nofollow_too=one.follow_nofollow)
    assert found.bounds[-1] == len(found.links)


@BOTH
@pytest.mark.parametrize("name", RARE)
def test_a_page_is_read_as_it_is_read_alone(kernel, monkeypatch, name):
    use(kernel, monkeypatch)
    body = RARE[name].encode()
    for url in (URL, LONG):
        for follow in (False, True):
            for content_type in ("text/html", "application/xhtml+xml"):
                assert_as_alone([Unread(body, url, content_type, follow)], "crawler")
    assert [None] != kernel.read_pages([(body, URL, None, HTML, AS_SAID)], PAGES_LIMITS, LIKENESS_KEY).values()


@BOTH
@pytest.mark.parametrize("name", ODD)
def test_a_page_that_needs_more_than_kernels_is_left(kernel, monkeypatch, name):
    use(kernel, monkeypatch)
    body = ODD[name].encode()
    found = kernel.read_pages([(body, URL, None, HTML, AS_SAID)] * 2, PAGES_LIMITS, LIKENESS_KEY)
    assert ([None, None], b"") == (found.values(), found.followed()[0])
    with pytest.raises(IndexError):
        found.links(1)
    assert_as_alone([Unread(body, URL)])


@BOTH
@pytest.mark.parametrize("key", [None, KEY])
def test_pages_that_are_left_keep_their_places(kernel, monkeypatch, key):
    use(kernel, monkeypatch)
    bodies = [RARE["links"], ODD["odd link"], RARE["nothing"], ODD["odd host"], ODD["odd base"], RARE["rels"]]
    unread = [Unread(body.encode(), f"http://host{row}.org/") for row, body in enumerate(bodies)]
    for order in (unread, unread[::-1], unread[1:2], unread[2:3], unread[3:5], []):
        assert_as_alone(order, key=key)


@BOTH
def test_pages_of_other_types_keep_their_places(kernel, monkeypatch):
    use(kernel, monkeypatch)
    feed = b"<rss><channel><item><link>http://a.org/1</link></item><item><link>http://a.org/2</link></item></channel></rss>"
    unread = [
        Unread(b"<a href=x>1</a>", URL, ""),
        Unread(feed, URL, "application/rss+xml"),
        Unread(b"one two three", URL, "text/plain; charset=ascii"),
        Unread(b"GIF89a\x02\0\x03\0", URL, "image/gif"),
        Unread(b"<a href=y>1</a>", URL, "text/html"),
        Unread(b"<a href=y>1</a>", URL, "application/pdf"),
    ]
    found = read_many(unread, key=KEY)
    assert [
        "http://example.org/dir/x",
        "http://a.org/1",
        "http://a.org/2",
        "http://example.org/dir/y",
    ] == found.links.strings()
    assert ([0, 1, 3, 3, 3, 4, 4], [0] * 6) == (found.bounds, found.left_alone)
    assert np.array_equal(UrlBatch.of(found.links.strings()).fingerprints(KEY), found.links.fingerprints(KEY))
    text, image = found.pages[2:4]
    value, shingles = simhash_of_text(b"one two three")
    assert ("windows-1252", b"one two three", value, shingles) == (
        text.charset,
        text.octets,
        text.simhash,
        text.shingles,
    )
    assert text_digest(b"one two three") == text.text_digest
    assert (2, 3) == (image.image.width, image.image.height)


@BOTH
def test_directives_in_the_head_close_the_links_of_any_page(kernel, monkeypatch):
    use(kernel, monkeypatch)
    said = frozenset({"nofollow"})
    for body in (RARE["doubles"], ODD["odd link"]):
        one = Unread(body.encode(), URL)
        followed = len(read_many([one]).links)
        closed = read_many([one._replace(robots=said)])
        assert (0, [followed], frozenset()) == (len(closed.links), closed.left_alone, closed.pages[0].robots)
        assert followed == len(read_many([one._replace(robots=said, follow_nofollow=True)]).links)
        assert followed == len(read_many([one._replace(robots=frozenset({"noindex"}))]).links)


@BOTH
def test_links_are_made_when_they_are_read(kernel, monkeypatch):
    use(kernel, monkeypatch)
    page = read_many([Unread(RARE["links"].encode(), URL)]).pages[0]
    assert (5, None) == (len(page.found), page.found._columns)
    assert "l" == page.links[-1].url[-1:]
    assert page.found._columns is not None


@BOTH
def test_any_bytes_of_a_body_do(kernel):
    body = RARE["links"].encode()
    rows = [(kind(body), URL, None, HTML, ALL) for kind in (bytes, bytearray, memoryview)]
    found = kernel.read_pages(rows, PAGES_LIMITS, LIKENESS_KEY, None, KEY)
    assert found.values()[0] == found.values()[1] == found.values()[2]


@BOTH
@pytest.mark.parametrize(
    ("row", "key"),
    [
        ((b"", URL, None, 3, 0), None),
        ((b"", URL, None, HTML, -1), None),
        ((b"", URL, None, HTML), None),
        ((b"", URL, None, HTML, NONE), b"short"),
    ],
)
def test_invalid_arguments_are_refused_by_the_kernel(kernel, row, key):
    with pytest.raises(ValueError, match=r"page 0: a|a fingerprint key has 16 bytes"):
        kernel.read_pages([row], PAGES_LIMITS, LIKENESS_KEY, None, key)
    with pytest.raises(ValueError, match="a fingerprint key has 16 bytes"):
        kernel.read_pages([], PAGES_LIMITS, b"short")


@BOTH
@pytest.mark.parametrize("url", ["", "x", "HTTP://a.org/", "http://a.org", "http://a/\ud800", "ftp://a/"])
def test_a_page_whose_url_is_not_canonical_is_left(kernel, url):
    rows = [(b"<a href=x>", url, None, kind, AS_SAID) for kind in (HTML, XHTML, TEXT)]
    left = [value is None for value in kernel.read_pages(rows, PAGES_LIMITS, LIKENESS_KEY).values()]
    assert [True, True, False] == left


PIECES = st.sampled_from(
    [
        *("<a href=x>", "<a href='y&amp;z' rel=B>", "</a>", "<p>", "word ", " ", "&lt;", "<br>", "\x1c", "\u2028"),
        *(
            "<img src=i alt=t>",
            "<title>",
            "</title>",
            "<meta name=robots content='",
            "'>",
            "nofollow, ",
            "<base href='",
        ),
        *(
            "//b.org/",
            "../",
            "#f",
            "?q",
            "http:",
            "http://a.b/",
            "http://c.d:8/",
            "%41",
            "é",
            "<a href='",
            "<link rel='",
        ),
        *("canonical' href='", "nofollow' href='", "<a rel='", "alternate' href='", "<html lang='", "de-AT", "İ", ":"),
        *("<meta http-equiv=refresh content='3;url=", "<meta name=description content='", "http://1.2/", "\\", "\t"),
    ]
)


LINKS = st.builds(
    "<{} {}{}#f>".format,
    st.sampled_from(["a href=", "a rel=alternate href=", "link rel=alternate href=", "img src="]),
    st.sampled_from(["", "/", "./"]),
    st.sampled_from(["a", "b", "c", "ccccccccccccccccccccccccccccccccccccccccc", "d" * 90]),
)


@WITHOUT_NATIVE
@given(st.lists(LINKS, max_size=60), st.integers(1, 12), st.integers(0, 900), st.integers(1, 400))
def test_both_keep_the_same_links_at_the_bounds(drawn, links, links_bytes, step_bytes):
    limits = PAGES_LIMITS._replace(
        columns=PAGES_LIMITS.columns._replace(links=links),
        links_bytes=links_bytes,
        step_bytes=step_bytes,
        url_bytes=80,
    )
    both = [
        kernel.read_pages([("".join(drawn).encode(), URL, None, HTML, AS_SAID)], limits, LIKENESS_KEY)
        for kernel in (NATIVE, twin)
    ]
    assert both[0].values() == both[1].values()
    assert both[0].links(0) == both[1].links(0)
    page = read_fully("".join(drawn).encode(), URL, None, False, limits, None)
    assert (both[0].values()[0][8], both[0].links(0)[0]) == (page.left_out, page.found.urls.arena)


@BOTH
@given(st.lists(st.tuples(st.lists(PIECES, max_size=25), st.booleans()), max_size=4))
def test_any_mess_is_read_as_it_is_read_alone(kernel, drawn):
    unread = [
        Unread("".join(parts).encode(), f"http://h{row}.org/d/", "text/html", follow)
        for row, (parts, follow) in enumerate(drawn)
    ]
    with pytest.MonkeyPatch.context() as patch:
        use(kernel, patch)
        assert_as_alone(unread, "x")


@WITHOUT_NATIVE
@given(
    st.binary(max_size=300), st.sampled_from([None, "koi8-r", "utf-16", "bogus"]), st.integers(0, 2), st.integers(0, 2)
)
def test_any_bytes_return_parts_that_fit_together(body, label, kind, follow):
    found = NATIVE.read_pages([(body, URL, label, kind, follow)], PAGES_LIMITS, LIKENESS_KEY, "x", KEY)
    (values,) = found.values()
    if values is not None:
        assert values[13] == len(found.links(0)[5])
        assert values[14] == len(found.followed()[2])
