"""Reading sitemaps: each kind, what is kept of a broken one, and what is never done."""

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


def test_an_entry_has_what_the_sitemap_says_of_it() -> None:
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
def test_a_value_that_is_none_is_left_out(field: str) -> None:
    (entry,) = read(urlset(f"<loc>http://example.org/maps/a</loc>{field}")).entries
    assert SitemapEntry("http://example.org/maps/a") == entry


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


def test_the_loc_of_a_picture_is_no_page() -> None:
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


def test_a_packed_sitemap_is_unpacked_and_a_cut_one_gives_what_came() -> None:
    packed = gzip.compress(urlset(*(f"<loc>http://example.org/maps/{n:x}</loc>" for n in range(5_000))).encode())
    assert 5_000 == len(read(packed).entries)
    found = read(packed[:-4_000])
    assert (True, True) == (0 < len(found.entries) < 5_000, "gzip: cut off" in found.problems)
    assert ("error", True) == ((broken := read(b"\x1f\x8b" + b"x" * 99)).kind, broken.problems != ())


def test_a_document_that_is_cut_off_gives_what_stands_before() -> None:
    found = read(urlset("<loc>http://example.org/maps/a</loc>", "<loc>http://example.org/maps/bbbb</loc>")[:-25])
    assert (["http://example.org/maps/a"], ("cut off",)) == (urls(found), found.problems)


@pytest.mark.parametrize(
    "body",
    [
        *("", " ", "<html><body><a href=x>y</a></html>", "<urlset></url></urlset>", "<urlset><url></urlset>", "text"),
        *("<urlset/><urlset/>", "<urlset>< </urlset>", "<urlset>" + "<a>" * 99, b"\x00\xff\xfe"),
    ],
)
def test_other_things_are_an_error_with_its_reason(body: str | bytes) -> None:
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


def test_urls_that_cannot_be_crawled_are_told() -> None:
    found = read(
        urlset("<loc>/relative</loc>", "<loc>mailto:x</loc>", "<loc></loc>", "<loc>http://example.org/maps/a</loc>")
    )
    assert (["http://example.org/maps/a"], 2) == (urls(found), len(found.problems))


def test_no_more_urls_are_taken_than_a_sitemap_may_have() -> None:
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
def test_a_sitemap_speaks_for_its_folder(sitemap: str, url: str, valid: bool) -> None:
    assert valid == in_location(sitemap, url)
    (entry,) = read_sitemap(urlset(f"<loc>{url}</loc>").encode(), sitemap).entries
    assert valid == entry.within


BOMBS = {
    "comments": b"<urlset>" + b"<!--" * 500_000,
    "less-than": b"<" * 2_000_000,
    "nested": b"<urlset>" + b"<url>" * 400_000,
    "quotes": b"<urlset " + b"a='" * 500_001,
    "subset": b"<!DOCTYPE x [" + b"\"'" * 500_000,
    "blanks": b"<urlset><url><loc>" + b" " * 2_000_000,
    "ampersands": b"<urlset><url><loc>" + b"&" * 2_000_000 + b"</loc>",
    "lines": b"a\n" * 1_000_000,
    "gzip": gzip.compress(b"<urlset>" + b" " * (SITEMAP_BYTES_MAX + 100)),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_takes_time_by_its_size(name: str) -> None:
    found: list[Sitemap] = []
    assert seconds_of(lambda: found.append(read(BOMBS[name]))) < 5
    assert found[0].problems


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
def test_any_mess_is_read(parts: list[str]) -> None:
    found = read("".join(parts))
    assert found.kind in {"urlset", "index", "text", "rss", "atom", "error"}
    assert found.kind != "error" or not urls(found)


@pytest.mark.conformance
def test_the_cases_of_crawler_commons_hold(shared: Path) -> None:
    wrong = []
    for line in (shared / "data/sitemaps/cases.jsonl").read_text().splitlines():
        case = json.loads(line)
        found, expect = read_sitemap(base64.b64decode(case["content_b64"]), case["url"]), case["expect"]
        names = urls(found)
        right = (
            found.kind == expect["kind"]
            and expect.get("min_count", 0) <= len(names) == expect.get("count", len(names))
            and set(expect.get("contains", ())) <= set(names)
        )
        if not right or not (found.entries or names or found.problems):
            wrong.append((case["id"], found.kind, len(names), found.problems))
    assert [] == wrong


@pytest.mark.conformance
def test_the_location_rule_holds(shared: Path) -> None:
    lines = (shared / "data/sitemaps/location_rule.jsonl").read_text().splitlines()
    cases = [json.loads(line) for line in lines]
    assert [case["valid"] for case in cases] == [in_location(case["sitemap"], case["url"]) for case in cases]


@pytest.mark.conformance
def test_hostile_documents_are_refused(shared: Path) -> None:
    for file in sorted((shared / "data/security/xml").glob("*.xml")):
        found = read_sitemap(file.read_bytes(), URL)
        assert ("error", []) == (found.kind, urls(found)), file.name
