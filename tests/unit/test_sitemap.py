"""Reading sitemaps: each kind, the usable part of a broken one, and the forbidden features."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.limits import SITEMAP_BYTES_MAX, SITEMAP_ENTRIES_MAX
from outrider.page import Sitemap, SitemapEntry, in_location, read_sitemap
from outrider.page import read as read_page
from timing import seconds_of

URL = "http://example.org/maps/sitemap.xml"
SPACE = "http://www.sitemaps.org/schemas/sitemap/0.9"


def read(text: str | bytes) -> Sitemap:
    return read_sitemap(text if isinstance(text, bytes) else text.encode(), URL)


def urls(found: Sitemap) -> list[str]:
    return [entry.url for entry in (*found.entries, *found.children)]


def urlset(*inner: str) -> str:
    return (
        f'<?xml version="1.0"?><urlset xmlns="{SPACE}">' + "".join(f"<url>{one}</url>" for one in inner) + "</urlset>"
    )


def test_an_entry_has_all_fields_of_the_sitemap() -> None:
    found = read(
        urlset(
            "<loc> HTTP://Example.org/maps/../maps/a?x=1&amp;y=2 </loc><lastmod>2024-02-29</lastmod>"
            "<changefreq>Weekly</changefreq><priority>0.7</priority>",
            "<loc>http://example.org/maps/b</loc>",
        )
    )
    expected = (
        SitemapEntry("http://example.org/maps/a?x=1&y=2", "2024-02-29", "weekly", 0.7),
        SitemapEntry("http://example.org/maps/b"),
    )
    assert ("urlset", expected, (), ()) == (found.kind, found.entries, found.children, found.problems)


@pytest.mark.parametrize("order", [0, 1])
def test_fields_in_another_order_belong_to_their_entry(order: int) -> None:
    parts = ["<lastmod>2024-01-01</lastmod>", "<loc>http://example.org/maps/a</loc>"]
    found = read(urlset("".join(parts[::-1] if order else parts), "<loc>http://example.org/maps/b</loc>"))
    assert [("2024-01-01"), None] == [entry.lastmod for entry in found.entries]


@pytest.mark.parametrize(
    "field", ["<lastmod>soon</lastmod>", "<priority>7</priority>", "<changefreq>often</changefreq>"]
)
def test_an_invalid_value_is_left_out(field: str) -> None:
    (entry,) = read(urlset(f"<loc>http://example.org/maps/a</loc>{field}")).entries
    unread = "soon" if "soon" in field else None  # a date that cannot be read is counted
    assert SitemapEntry("http://example.org/maps/a", unread_date=unread) == entry


def test_an_index_has_children() -> None:
    found = read("<sitemapindex><sitemap><loc>http://example.org/maps/1.gz</loc></sitemap></sitemapindex>")
    assert ("index", ["http://example.org/maps/1.gz"], ()) == (found.kind, urls(found), found.entries)


def test_lines_of_text_are_a_sitemap() -> None:
    found = read("\ufeffhttp://example.org/maps/a\r\n\r\nhttp://example.org/maps/b\n")
    assert ("text", 2) == (found.kind, len(found.entries))


def test_feeds_are_sitemaps() -> None:
    rss = (
        "<rss><channel><link>http://example.org/</link><item><pubDate>Thu, 01 Feb 2024 10:00:00 +0100</pubDate>"
        "<link>http://example.org/maps/a</link></item><item><title>x</title><link>http://example.org/maps/b</link>"
        "<pubDate>nonsense</pubDate></item></channel></rss>"
    )
    found = read(rss)
    assert ("rss", ["2024-02-01T09:00:00Z", None]) == (found.kind, [entry.lastmod for entry in found.entries])
    atom = (
        "<feed xmlns='http://www.w3.org/2005/Atom'><link href='http://example.org/'/><entry><link rel='edit' "
        "href='http://example.org/no'/><link href='http://example.org/maps/a?b&amp;c'/><updated>2024-01-01</updated>"
        "</entry></feed>"
    )
    found = read(atom)
    assert ("atom", [SitemapEntry("http://example.org/maps/a?b&c", "2024-01-01")]) == (found.kind, list(found.entries))


def test_the_loc_of_a_picture_is_not_a_page() -> None:
    found = read(
        urlset(
            "<image:image><image:loc>http://x.org/i.png</image:loc></image:image><loc>http://example.org/maps/a</loc>"
        )
    )
    assert ["http://example.org/maps/a"] == urls(found)


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("utf-16", urlset("<loc>http://example.org/maps/ü</loc>")),
        ("iso-8859-1", "<?xml version='1.0' encoding='latin1'?>"),
    ],
)
def test_other_encodings_are_decoded(encoding: str, text: str) -> None:
    body = text if encoding == "utf-16" else text + "<urlset><url><loc>http://example.org/maps/ü</loc></url></urlset>"
    assert ["http://example.org/maps/%C3%BC"] == urls(read(body.encode(encoding)))


def test_a_packed_sitemap_is_unpacked_and_a_cut_one_yields_its_beginning() -> None:
    packed = gzip.compress(urlset(*(f"<loc>http://example.org/maps/{n:x}</loc>" for n in range(5_000))).encode())
    assert 5_000 == len(read(packed).entries)
    found = read(packed[:-4_000])
    assert (True, True) == (0 < len(found.entries) < 5_000, "gzip: cut off" in found.problems)
    assert ("error", True) == ((broken := read(b"\x1f\x8b" + b"x" * 99)).kind, broken.problems != ())


def test_a_document_that_is_cut_off_yields_the_entries_before() -> None:
    found = read(urlset("<loc>http://example.org/maps/a</loc>", "<loc>http://example.org/maps/bbbb</loc>")[:-25])
    assert (["http://example.org/maps/a"], ("cut off",)) == (urls(found), found.problems)


@pytest.mark.parametrize(
    "body",
    [
        *("", " ", "<html><body><a href=x>y</a></html>", "<urlset></url></urlset>", "<urlset><url></urlset>", "text"),
        *("<urlset/><urlset/>", "<urlset>< </urlset>", "<urlset>" + "<a>" * 99, b"\x00\xff\xfe"),
    ],
)
def test_other_content_is_an_error_with_its_reason(body: str | bytes) -> None:
    found = read(body)
    assert ("error", [], True) == (found.kind, urls(found), bool(found.problems))


def test_entities_and_document_types_are_never_used() -> None:
    found = read(
        '<!DOCTYPE urlset [<!ENTITY a "]>"><!ENTITY b SYSTEM "file:///etc/passwd">]>'
        + urlset("<loc>http://example.org/maps/&a;</loc>", "<loc>&b;</loc>", "<loc>http://example.org/maps/c</loc>")[
            21:
        ]
    )
    assert ["http://example.org/maps/c"] == urls(found)
    assert {
        "a document type: nothing of it is used",
        "the entity a is not expanded",
        "the entity b is not expanded",
    } == set(found.problems)


def test_urls_that_cannot_be_crawled_are_reported() -> None:
    found = read(
        urlset("<loc>/relative</loc>", "<loc>mailto:x</loc>", "<loc></loc>", "<loc>http://example.org/maps/a</loc>")
    )
    assert (["http://example.org/maps/a"], 2) == (urls(found), len(found.problems))


def test_no_more_urls_are_read_than_a_sitemap_may_have() -> None:
    for line in ("<url><loc>http://example.org/maps/a</loc></url>", "<url ><loc>http://example.org/maps/a</loc></url>"):
        found = read("<urlset>" + line * (SITEMAP_ENTRIES_MAX + 5) + "</urlset>")
        assert (SITEMAP_ENTRIES_MAX, True) == (len(found.entries), any("more than" in one for one in found.problems))


@pytest.mark.parametrize(
    ("sitemap", "url", "valid"),
    [
        ("http://example.org/a/s.xml", "http://example.org/a/b/c", True),
        ("http://example.org/a/s.xml", "http://example.org/b", False),
        ("http://example.org/a/s.xml", "https://example.org/a/b", False),
        ("http://example.org/a/s.xml", "http://www.example.org/a/b", False),
        ("http://example.org/s.xml?of=/x/", "http://example.org/a", True),
        ("http://example.org:81/s.xml", "http://example.org/a", False),
    ],
)
def test_a_sitemap_counts_for_its_folder(sitemap: str, url: str, valid: bool) -> None:
    assert valid == in_location(sitemap, url)
    (entry,) = read_sitemap(urlset(f"<loc>{url}</loc>").encode(), sitemap).entries
    assert valid == entry.within


FEED = "http://example.org/blog/feed?x"


@pytest.mark.parametrize(
    ("feed", "expected"),
    [
        ("<feed><entry><link href='x1'/></entry></feed>", ["http://example.org/blog/x1"]),
        ("<feed><entry><link href=''/></entry></feed>", []),
        ("<feed><entry><link href='//b.org/'/></entry></feed>", ["http://b.org/"]),
        ("<feed xml:base='/a/'><entry><link href='?q=ü'/></entry></feed>", ["http://example.org/a/?q=%C3%BC"]),
        (
            "<feed xml:base='http://b.org/d/'><entry xml:base='e/'><link href='x'/></entry></feed>",
            ["http://b.org/d/e/x"],
        ),
        (
            "<feed xml:base='http://b.org/d/'><entry xml:base='mailto:x'><link href='x'/></entry></feed>",
            ["http://b.org/d/x"],
        ),
        (
            "<feed xml:base='http://b.org/" + "d" * 3_000 + "/'><entry><link href='/x'/></entry></feed>",
            ["http://example.org/x"],
        ),
        ("<rss><channel xml:base='http://b.org/'><item><link>x</link></item></channel></rss>", ["http://b.org/x"]),
        ("<rss><channel><item><guid>/x</guid></item></channel></rss>", ["http://example.org/x"]),
        (
            "<feed xml:base='a/'><entry xml:base='b/'><link href='1'/></entry><entry><link href='2'/></entry></feed>",
            ["http://example.org/blog/a/b/1", "http://example.org/blog/a/2"],
        ),
    ],
)
def test_addresses_of_feeds_are_relative_to_their_base(feed: str, expected: list[str]) -> None:
    assert expected == urls(read_sitemap(feed.encode(), FEED))
    assert expected == [str(url) for url in read_page(feed.encode(), FEED, "text/xml").link_batch()]


def test_a_feed_without_a_url_has_only_its_absolute_addresses() -> None:
    feed = b"<rss><item><link>/x</link></item><item xml:base='http://b.org/'><link>y</link></item></rss>"
    assert ["http://b.org/y"] == urls(read_sitemap(feed, ""))


LOC = "<urlset><url><loc>http://example.org/maps/caf\xe9</loc></url></urlset>"


@pytest.mark.parametrize(
    ("declared", "written"),
    [
        *(
            (declared, "utf-8")
            for declared in ("utf-16", "UTF-16LE", "ucs-2", "iso-8859-1", "us-ascii", "gbk", "bogus")
        ),
        *((declared, "latin-1") for declared in ("utf-8", "UTF8", "iso-8859-1", "us-ascii")),
        *((declared, "utf-16-le") for declared in ("utf-16", "utf-8", "latin1")),
        *((declared, "utf-16-be") for declared in ("utf-16", "utf-8")),
        *((declared, "utf-8-sig") for declared in ("latin1", "utf-16")),
        ("iso-8859-2", "iso-8859-2"),
    ],
)
def test_an_encoding_that_the_octets_contradict_is_ignored(declared: str, written: str) -> None:
    body = f"<?xml version='1.0' encoding='{declared}'?>{LOC}".encode(written)
    assert ["http://example.org/maps/caf%C3%A9"] == urls(read(body))


def test_single_octets_that_are_not_utf_8_are_decoded_alone_and_many_change_the_encoding() -> None:
    head = "<?xml version='1.0' encoding='utf-8'?>"
    locs = [f"<url><loc>http://example.org/maps/{one}</loc></url>" for one in "éü"]
    body = (head + "<urlset>" + locs[0]).encode() + locs[1].encode("latin-1")
    assert ["http://example.org/maps/%C3%A9", "http://example.org/maps/%C3%BC"] == urls(read(body))
    many = head.encode() + b"<!-- " + b"\xfc" * 5_000 + b" -->" + LOC.encode("latin-1")
    assert ["http://example.org/maps/caf%C3%A9"] == urls(read(many))


def test_a_packed_sitemap_yields_all_entries_before_its_break() -> None:
    whole = urlset(*(f"<loc>http://example.org/maps/{n:x}</loc>" for n in range(5_000))).encode()
    packed = gzip.compress(whole)
    for broken in (packed[:-8] + b"\x00" * 8, packed[:-4] + b"\xff" * 4):  # checksum, length
        assert (5_000, True) == (len((found := read(broken)).entries), bool(found.problems))
    middle = bytearray(packed)
    middle[len(packed) // 2 : len(packed) // 2 + 40] = b"\xff" * 40
    assert 1_000 < len(read(bytes(middle)).entries) < 4_999
    assert 5_000 == len(read(gzip.compress(whole[:9_000]) + gzip.compress(whole[9_000:]) + b"\0\0").entries)


BOMBS = {
    "comments": b"<urlset>" + b"<!--" * 500_000,
    "less-than": b"<" * 2_000_000,
    "nested": b"<urlset>" + b"<url>" * 400_000,
    "quotes": b"<urlset " + b"a='" * 500_001,
    "subset": b"<!DOCTYPE x [" + b"\"'" * 500_000,
    "blanks": b"<urlset><url><loc>" + b" " * 2_000_000,
    "ampersands": b"<urlset><url><loc>" + b"&" * 2_000_000 + b"</loc>",
    "lines": b"a\n" * 1_000_000,
    "members": gzip.compress(b"") * 200_000,
    "strays": b"<?xml version='1.0' encoding='utf-8'?><urlset>" + b"\xfc" * 2_000_000,
    "bases": b"<rss>" + b"<item xml:base='b/'><link>x</link>" * 40_000,
    "bases around": (
        b"<feed xml:lang='en' " + b"".join(b"><x xml:base='%s'" % (b"d/" * 500) for _ in range(60)) + b">"
        b"<entry xml:base='b/'><link href='x'/></entry>" * 10_000
    ),
    "empty lines": gzip.compress(b"\n" * (SITEMAP_BYTES_MAX - 2) + b"a"),
    "blank lines": gzip.compress(b"\xc2\xa0\n" * (SITEMAP_BYTES_MAX // 3)),
    "gzip": gzip.compress(b"<urlset>" + b" " * (SITEMAP_BYTES_MAX + 100)),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_needs_time_in_proportion_to_its_size(name: str) -> None:
    found: list[Sitemap] = []
    assert seconds_of(lambda: found.append(read(BOMBS[name]))) < 5
    assert found[0].problems


def test_bases_that_ended_do_not_affect_later_entries() -> None:
    entry = "<entry><link href='x'/></entry>"
    inner = f"<p xml:base='a/'><q xml:base='b/'>{entry}</q>{entry}<q xml:base='c/'>{entry}</q></p>{entry}"
    urls = [one.url for one in read(f"<feed xml:base='http://example.org/f/'>{inner}{inner}</feed>").entries]
    assert [f"http://example.org/f/{path}" for path in ("a/b/x", "a/x", "a/c/x", "x")] * 2 == urls


def test_empty_lines_do_not_count() -> None:
    lines = "\ufeff\n\r\n \t\n http://example.org/1 \r\n\n\xa0\nhttp://example.org/2"
    assert ["http://example.org/1", "http://example.org/2"] == [one.url for one in read(lines).entries]


@given(
    st.lists(
        st.sampled_from(
            [
                "<urlset>",
                "<url>",
                "</url>",
                "<loc>",
                "</loc>",
                "http://a.org/",
                "&amp;",
                "&x;",
                "<!--",
                "-->",
                "]]>",
                "<![CDATA[",
                "</urlset>",
                "<feed>",
                "<entry>",
                "<link href='/x'/>",
                "\x00",
                "<?",
                "<!DOCTYPE",
                "[",
                "é",
            ]
        ),
        max_size=30,
    )
)
def test_any_broken_text_is_read(parts: list[str]) -> None:
    found = read("".join(parts))
    assert found.kind in {"urlset", "index", "text", "rss", "atom", "error"}
    assert found.kind != "error" or not urls(found)


@pytest.mark.conformance
def test_the_cases_of_crawler_commons_pass(shared: Path) -> None:
    wrong = []
    for line in (shared / "data/sitemaps/cases.jsonl").read_text().splitlines():
        case = json.loads(line)
        found, expect = read_sitemap(base64.b64decode(case["content_b64"]), case["url"]), case["expect"]
        names = urls(found)
        if "A recovering parser may return" in expect.get("note", ""):
            expect = expect | {"kind": "urlset", "count": 1}
        right = (
            found.kind == expect["kind"]
            and expect.get("min_count", 0) <= len(names) == expect.get("count", len(names))
            and set(expect.get("contains", ())) <= set(names)
        )
        if not right or not (found.entries or names or found.problems):
            wrong.append((case["id"], found.kind, len(names), found.problems))
    assert [] == wrong


@pytest.mark.conformance
def test_the_location_rule_applies(shared: Path) -> None:
    lines = (shared / "data/sitemaps/location_rule.jsonl").read_text().splitlines()
    cases = [json.loads(line) for line in lines]
    assert [case["valid"] for case in cases] == [in_location(case["sitemap"], case["url"]) for case in cases]


@pytest.mark.conformance
def test_hostile_documents_are_refused(shared: Path) -> None:
    for file in sorted((shared / "data/security/xml").glob("*.xml")):
        found = read_sitemap(file.read_bytes(), URL)
        assert ("error", []) == (found.kind, urls(found)), file.name
