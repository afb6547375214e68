"""The contract of the reader of sitemaps in XML, for the native build and its plain twin."""

from __future__ import annotations

import math
import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.kinds import NATIVE, WITHOUT_NATIVE, both
from outrider.kernels import sitemap as twin
from outrider.kernels.sitemap import SitemapLimits

BOTH = both(twin)
LIMITS = SitemapLimits(entries=5, depth=8, problems=2, field_characters=30)


def cut(octets, offsets):
    ends = struct.unpack(f"<{len(offsets) // 8}q", offsets)
    return [octets[start:end].decode() for start, end in pairwise(ends)]


def read(kernel, text, limits=LIMITS):
    """Kind, rows of address, date, its kind, change and priority, and problems."""
    columns = kernel.read_sitemap_xml(text if isinstance(text, bytes) else text.encode(), limits)
    kind, arena, offsets, dates, date_offsets, date_kinds, changes, shares, bases, texts, problems = columns
    assert len(offsets) // 8 - 1 == len(bases) // 4
    assert all(parent <= row for row, (parent, _) in enumerate(texts))
    priorities = [None if math.isnan(one) else one for one in struct.unpack(f"<{len(shares) // 8}d", shares)]
    rows = zip(cut(arena, offsets), cut(dates, date_offsets), date_kinds, changes, priorities, strict=True)
    return twin.KINDS[kind], [list(row) for row in rows], problems


@BOTH
def test_fields_belong_to_their_entry_at_any_place(kernel):
    text = (
        "<urlset><url><priority>.5</priority><lastmod>2024-02</lastmod><loc> http://a/?x&amp;y&#33; </loc></url>"
        "<url><lastmod>2025</lastmod></url>"
        "<x:url><X:LOC><![CDATA[http://b/&amp;]]></X:LOC><changefreq>Never</changefreq></x:url></urlset>"
    )
    rows = [["http://a/?x&y!", "2024-02", 1, 0, 0.5], ["http://b/&amp;", "", 0, 7, None]]
    assert ("urlset", rows, []) == read(kernel, text)


@BOTH
@pytest.mark.parametrize(
    ("date", "kind"),
    [
        *(("2024", 1), ("2024-02-29", 1), ("2024-02-29T12:00Z", 1), ("2024-02-29 12:00:00.5+0100", 1), ("", 0)),
        *(("24", 2), ("2024-", 2), ("2024-02-29T12", 2), ("2024-02-29T12:00:00.", 2), ("soon", 2), ("٢٠٢٤", 2)),
    ],
)
def test_dates_are_recognised_by_their_spelling(kernel, date, kind):
    _, ((_, shown, sort, _, _),), _ = read(kernel, f"<rss><item><pubDate>{date}</pubDate><link>a</link></item></rss>")
    assert (date, kind) == (shown, sort)


@BOTH
@pytest.mark.parametrize(
    ("share", "value"),
    [
        ("0", 0.0),
        ("1.0", 1.0),
        ("1.", 1.0),
        ("1.1", None),
        (".", None),
        ("nan", None),
        ("1e-1", None),
        ("0.1" * 20, None),
    ],
)
def test_a_priority_is_a_decimal_from_0_to_1(kernel, share, value):
    _, rows, _ = read(kernel, f"<urlset><url><loc>a</loc><priority> {share}</priority></url></urlset>")
    assert value == rows[0][4]


@BOTH
def test_an_entry_of_atom_is_its_first_link_to_itself(kernel):
    text = (
        "<feed><link href='no'/><entry><link rel='edit' href='no'/><link rel='self' href='no'></link>"
        "<updated>2024</updated>"
        "<link href = \"a?b&amp;c\" title/><link href='later'/><published>1999</published></entry>"
        "<entry><published>2001</published><link rel='Alternate' href='b'></link></entry></feed>"
    )
    assert [["a?b&c", "2024", 1, 0, None], ["b", "2001", 1, 0, None]] == read(kernel, text)[1]


@BOTH
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("<urlset>< </urlset>", (twin.WRONG_TAG, "")),
        ("<urlset></url>", (twin.WRONG_END, "url")),
        ("<urlset>" + "<a>" * 9, (twin.WRONG_DEPTH, "")),
        ("<urlset/><urlset/>", (twin.WRONG_SECOND, "")),
        ("<html>", (twin.WRONG_ROOT, "html")),
    ],
)
def test_other_documents_are_not_sitemaps(kernel, text, problem):
    assert ("error", [], [problem]) == read(kernel, text)


@BOTH
@pytest.mark.parametrize(
    ("behind", "problem"),
    [
        *(("</urlset><script>1</script>", (twin.WRONG_SECOND, "")), ("</urlset><urlset>", (twin.WRONG_SECOND, ""))),
        *(("</urlset></div>", (twin.WRONG_END, "div")), ("<p>x</p></body></html>", (twin.WRONG_END, "body"))),
        *(("<url><loc></url>", (twin.WRONG_END, "url")), ("< ", (twin.CUT, "")), ("< >", (twin.WRONG_TAG, ""))),
        *(("<a>" * 9, (twin.WRONG_DEPTH, "")), ("</urlset><!-- ", (twin.CUT, ""))),
    ],
)
def test_the_entries_before_a_break_are_kept(kernel, behind, problem):
    kind, rows, problems = read(kernel, "<urlset><url><loc>a</loc></url>" + behind)
    assert ("urlset", ["a"], [problem]) == (kind, [row[0] for row in rows], problems)


@BOTH
def test_text_after_the_end_is_accepted(kernel):
    _, rows, problems = read(kernel, "<urlset><url><loc>a</loc></url></urlset>\0 x &amp; ]]>")
    assert (1, []) == (len(rows), problems)


def based(kernel, text, **limits):
    """Each address after the bases that it is relative to, outermost first."""
    columns = kernel.read_sitemap_xml(text.encode(), LIMITS._replace(**limits))
    bases, texts = struct.unpack(f"<{len(columns[8]) // 4}I", columns[8]), columns[9]
    found = []
    for address, base in zip(cut(columns[1], columns[2]), bases, strict=True):
        way = [address]
        while base:
            base, text = texts[base - 1]
            way.insert(0, text)
        found.append(way)
    return found


@BOTH
def test_addresses_of_feeds_have_the_bases_around_them(kernel):
    text = (
        "<feed xml:base='A'><entry xml:base=' B&amp; '><link href='1'/></entry>"
        "<entry><link xml:base='C' href='2'/></entry>"
        "<entry xml:base='&x;' XML:BASE='no'><link href='3'></link></entry></feed>"
    )
    assert [["A", "B&", "1"], ["A", "C", "2"], ["A", "3"]] == based(kernel, text)
    text = (
        "<rss xml:base='A'><channel xml:base='B'><item><link xml:base='C'>1</link></item>"
        "<item xml:base='D'><link>2</link>"
    )
    assert [["A", "B", "C", "1"], ["A", "B", "D", "2"]] == based(kernel, text)
    assert [["1"]] == based(kernel, "<urlset xml:base='A'><url><loc>1</loc></url></urlset>")


@BOTH
def test_bases_have_a_bound(kernel):
    text = "<rss>" + "<item xml:base='B'><title/></item>" * 99 + "<item xml:base='B'><link>1</link></item>"
    assert [["1"]] == based(kernel, text)


@BOTH
@pytest.mark.parametrize(
    ("item", "addresses"),
    [
        ("<guid>http://a/1</guid>", ["http://a/1"]),
        ("<guid isPermaLink='true'> x&amp;y </guid>", ["x&y"]),
        ("<guid isPermaLink='True'><![CDATA[/1]]></guid>", ["/1"]),
        ("<guid>/1</guid>", ["/1"]),
        ("<guid>HTTPS://a/</guid>", ["HTTPS://a/"]),
        ("<guid isPermaLink='false'>http://a/1</guid>", []),
        ("<guid ispermalink=' FALSE '>http://a/1</guid>", []),
        ("<guid>tag:a,2024:1</guid>", []),
        ("<guid>123</guid>", []),
        ("<guid isPermaLink='true'></guid>", []),
        ("<link>l</link><guid>http://a/1</guid>", ["l"]),
        ("<guid>http://a/1</guid><link>l</link>", ["l"]),
        ("<guid>http://a/1</guid><link/>", ["http://a/1"]),
        ("<link> </link><guid>http://a/1</guid>", ["http://a/1"]),
        ("<guid>http://a/1</guid><guid>http://a/2</guid>", ["http://a/1"]),
        ("<source><guid>http://a/1</guid></source>", []),
    ],
)
def test_a_guid_is_an_address_where_a_link_is_missing(kernel, item, addresses):
    _, rows, problems = read(kernel, f"<rss><channel><item>{item}<pubDate>2024</pubDate></item></channel></rss>")
    assert ([[one, "2024"] for one in addresses], []) == ([row[:2] for row in rows], problems)


@BOTH
def test_guids_count_as_entries(kernel):
    item = "<item><guid>http://a/</guid></item>"
    _, rows, problems = read(kernel, "<rss>" + item * 9)
    assert (5, [(twin.FULL, "")]) == (len(rows), problems)
    item = "<item><link>a</link><guid>http://a/</guid></item>"
    _, rows, problems = read(kernel, "<rss>" + item * 5 + "</rss>")
    assert (5, []) == (len(rows), problems)


@BOTH
def test_the_relation_of_an_entry_to_itself_may_be_written_out(kernel):
    rel = "http://www.iana.org/assignments/relation/alternate"
    assert ["a"] == [row[0] for row in read(kernel, f"<feed><entry><link href='a' rel='{rel}'/></entry></feed>")[1]]


@BOTH
def test_the_first_entries_and_problems_are_kept(kernel):
    kind, rows, problems = read(kernel, "<urlset>" + "<url><loc>&a;</loc><loc>b</loc></url>" * 9 + "</urlset>")
    assert ("urlset", 5, [(3, "a"), (3, "a"), (1, "")]) == (kind, len(rows), problems)


@BOTH
@pytest.mark.parametrize(
    "bomb",
    [
        *(b"<urlset>" + b"<!DOCTYPE [>" * 200_000, b"<!DOCTYPE [" * 200_000, b"<urlset " + b"a='" * 500_001),
        *(b"<feed><entry><link " + b"a" * 2_000_000 + b"/>", b"<feed><entry><link " + b"a=" * 1_000_000 + b"/>"),
        *(b"<urlset><url><loc>" + b"&#" * 1_000_000, b"<urlset><url><loc>" + b"<![CDATA[x]]>" * 100_000),
    ],
    ids=range(7),
)
def test_a_bomb_is_read_once(kernel, bomb):
    read(kernel, bomb)


PIECES = [
    *("<urlset>", "<rss>", "<feed xmlns='x'>", "<sitemapindex>", "</urlset>", "<url>", "</url>", "<item>", "</item>"),
    *("<entry>", "</entry>", "<sitemap>", "</sitemap>", "<loc>", "</loc>", "<link>", "</link>", "<x:loc >", "</x:loc>"),
    *("<lastmod>", "</lastmod>", "<pubDate>", "</pubDate>", "<published>", "</published>", "<priority>0.3</priority>"),
    *(
        "<changefreq>daily</changefreq>",
        "<changefreq>DAILY ",
        "</changefreq>",
        "http://a/",
        "2024-01-02",
        " \u00a0\u0085\x1c",
    ),
    *(
        "<link href='/x'/>",
        '<link rel="alternate" href="/y&lt;"/>',
        "<link rel=self href='z' href='w' />",
        "<link a= 'b>c'>",
        "<entry xml:base='b'>",
        "<rss xml:base=' c&amp; '>",
        "<link xml:base='d' href='e'/>",
        "<guid>",
        "<guid isPermaLink='true'>",
        "</guid>",
    ),
    *(
        "&amp;",
        "&#65;",
        "&#x1F600;",
        "&#xD800;",
        "&#0;",
        "&x;",
        "&",
        ";",
        "<!--",
        "-->",
        "<![CDATA[",
        "]]>",
        "<?x",
        "?>",
    ),
    *(
        "<!DOCTYPE a [<!ENTITY b '>'>]>",
        "<!DOCTYPE",
        "[",
        "]",
        ">",
        "<",
        "/>",
        "'",
        '"',
        "é",
        "\x00",
        "<url/>",
        "<İ>",
        "</İ>",
    ),
]


@WITHOUT_NATIVE
@given(st.sampled_from(["", *PIECES[:4]]), st.lists(st.sampled_from(PIECES), max_size=40))
def test_both_agree_on_any_mess(first, parts):
    text = first + "".join(parts)
    assert read(twin, text) == read(NATIVE, text)


@WITHOUT_NATIVE
@given(st.lists(st.sampled_from(PIECES[5:]), max_size=12), st.sampled_from(["urlset/url", "rss/item", "feed/entry"]))
def test_both_agree_on_the_fields_of_entries(parts, way):
    root, holder = way.split("/")
    text = (
        f"<{root}><{holder}>" + "".join(parts) + f"</{holder}><{holder}><loc>q</loc><link>q</link></{holder}></{root}>"
    )
    assert read(twin, text) == read(NATIVE, text)
