"""The contract of reading a page into columns, for the native build and its plain twin.

The twin builds a tree and the kernel does not; the tests of one kind alone, at the end, name how that shows.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.kinds import NATIVE, WITHOUT_NATIVE, both
from outrider.kernels import html as twin
from outrider.kernels.page_columns import KINDS, Limits

BOTH = both(twin)
LIMITS = Limits(links=50, text_bytes=2_000, link_text_bytes=40, metas=8, attributes=20, value_bytes=500)
NAMES = (
    *("charset", "arena", "offsets", "kinds", "rels", "rel_names", "texts", "text_starts", "text_ends", "alternates"),
    *("metas", "refresh", "base", "title", "language", "text", "left_out"),
)


def read(kernel, markup, label=None, xml=False, **limits):
    body = markup if isinstance(markup, bytes) else markup.encode()
    found = kernel.read_html(body, label, xml, LIMITS._replace(**limits))
    return dict(zip(NAMES, found, strict=True))


def rows(found):
    """(kind, address, rel, text) of each link."""
    offsets = np.frombuffer(found["offsets"], "<i8").tolist()
    rels = np.frombuffer(found["rels"], "<u4").tolist()
    starts, ends = (np.frombuffer(found[name], "<u4").tolist() for name in ("text_starts", "text_ends"))
    return [
        (
            KINDS[kind],
            found["arena"][offsets[row] : offsets[row + 1]].decode(),
            found["rel_names"][rels[row]],
            found["texts"][starts[row] : ends[row]].decode(),
        )
        for row, kind in enumerate(found["kinds"])
    ]


def texts(kernel, markup):
    return read(kernel, markup)["text"].decode()


@BOTH
def test_each_element_returns_its_address(kernel):
    markup = (
        "<link href=l><script src=s></script><a href=a>x</a><map><area href=ar></map><iframe src=i></iframe>"
        "<img src=im><video><source src=so></video><form action=f></form><meta http-equiv=refresh content='0;m'>"
    )
    expected = [
        *(("link", "l"), ("script", "s"), ("a", "a"), ("area", "ar"), ("iframe", "i"), ("img", "im"), ("source", "so")),
        *(("form", "f"), ("meta", "m")),
    ]
    assert expected == [row[:2] for row in rows(read(kernel, markup))]


@BOTH
def test_a_link_has_the_words_inside_it(kernel):
    markup = "<a href=1>one <b>t</b>wo\n<i>three</i></a> out <a href=2><p>x</p>y<script>no</script></a><a href=3></a>"
    assert ["one two three", "x y", ""] == [row[3] for row in rows(read(kernel, markup))]


@BOTH
def test_pictures_areas_and_links_say_what_they_are_by_attributes(kernel):
    markup = "<link href=l title=' a  b '><img src=i alt='c&amp;d'><map><area href=r alt=e title=no></map>"
    assert ["a b", "c&d", "e"] == [row[3] for row in rows(read(kernel, markup))]


@BOTH
def test_the_text_of_a_link_is_cut_between_characters(kernel):
    markup = "<a href=1>" + "ü" * 30 + "</a><a href=2>" + "word " * 20 + "</a>"
    assert ["ü" * 20, ("word " * 8).strip()] == [row[3] for row in rows(read(kernel, markup))]


@BOTH
def test_rels_are_words_in_lower_case(kernel):
    markup = "<a rel=' NoFollow\n UGC ' href=1></a><a href=2></a><a rel='nofollow ugc' href=3></a>"
    found = read(kernel, markup)
    assert (["nofollow ugc", "", "nofollow ugc"], 2) == ([row[2] for row in rows(found)], len(found["rel_names"]))


@BOTH
def test_alternates_have_language_and_type(kernel):
    markup = (
        "<link rel=icon href=0><link rel='Alternate' hreflang=de-AT href=1>"
        "<link rel='alternate feed' type='application/rss+xml' href=2>"
    )
    assert [(1, "de-AT", ""), (2, "", "application/rss+xml")] == read(kernel, markup)["alternates"]


@BOTH
@pytest.mark.parametrize("address", ["mailto:x", "JAVASCRIPT:x", " data:,x", "tel:1", "x-y+z.1:"])
def test_links_of_other_schemes_are_left_out(kernel, address):
    assert [] == rows(read(kernel, f"<a href='{address}'>x</a>"))


@BOTH
@pytest.mark.parametrize("address", ["http:x", "HTTPS://x", "x/y:z", "?a:b", "", "1:2", "é:x", "java\tscript:x"])
def test_links_that_may_be_urls_are_kept_as_written(kernel, address):
    assert [("a", address)] == [row[:2] for row in rows(read(kernel, f"<a href='{address}'>x</a>"))]


@BOTH
def test_the_first_attribute_of_a_name_counts_and_references_are_decoded(kernel):
    markup = "<a HREF='x?a=1&amp;b=2&copy=3&#x41;&lt' href=no>x</a><a href=y&ampz>x</a>"
    assert ["x?a=1&b=2&copy=3A<", "y&ampz"] == [row[1] for row in rows(read(kernel, markup))]


@BOTH
def test_links_beyond_the_bounds_of_their_sort_are_counted(kernel):
    images, anchors = ("".join(f"<{tag}={n}></a>" for n in range(55)) for tag in ("img src", "a href"))
    found = read(kernel, images + "<img src=>" * 5 + "<a href=mailto:x></a>" * 9 + anchors)
    assert ([50, 50], 15) == ([[row[0] for row in rows(found)].count(kind) for kind in ("img", "a")], found["left_out"])


@BOTH
def test_a_link_after_many_repeated_links_is_kept_and_repeats_count_as_no_loss(kernel):
    """An index names some hundred pages ten thousand times: those that it names late were lost."""
    late = [f"late{number}" for number in range(60)]
    markup = "<a href='x#one'>1</a><img src=late1>" + "<a href='#y'>2</a><a href=x>3</a>" * 40
    markup += "".join(f"<a href='{name}#{part}'>{part}</a>" for name in late for part in (1, 2))
    found = read(kernel, markup)
    addresses = [row[1] for row in rows(found) if row[0] == "a"]
    # The first fifty rows name two places, so that there is room for 48.
    assert ["x#one", *(["#y", "x"] * 25)[:49], *(f"{name}#1" for name in late[:48])] == addresses
    assert ("1", "1", 2 * 12) == (rows(found)[-1][3], rows(found)[0][3], found["left_out"])


@BOTH
@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        ("<p>one <b>t</b>wo</p>three", "one two\nthree"),
        ("a<br>b<hr>c", "a\nb\nc"),
        ("<table><tr><td>a</td><td>b</td></tr><tr><th>c</table>d", "a b\nc\nd"),
        ("<ul><li>a<li>b</ul>", "a\nb"),
        ("<pre> a   b\n c</pre>", "a b c"),
        ("a&nbsp;b &amp; &#99;", "a\xa0b & c"),
        ("<title>t</title>x<script>no</script><style>no</style><template>no</template><!-- no -->", "x"),
        ("<iframe>no</iframe><noframes>no</noframes><noembed>no</noembed><noscript>yes</noscript>", "yes"),
        ("<textarea>a&amp;b</textarea>c<xmp><b></xmp>", "a&b\nc\n<b>"),
        ("<svg><text>a</text><style>no</style><title>b</title></svg> <math><mi>c</mi></math>", "ab c"),
        ("a < b </> c <1> & &x; d", "a < b c <1> & &x; d"),
        ("x\0y<plaintext><b>", "xy\n<b>"),
        ("<select><option>a<option>b</select><button>c</button>", "a\nb\nc"),
    ],
)
def test_the_text_is_the_visible_text(kernel, markup, expected):
    assert expected == texts(kernel, markup)


@BOTH
def test_text_ends_at_its_bound_between_characters(kernel):
    assert "ab ü" == read(kernel, "ab üüx y z", text_bytes=6)["text"].decode()
    assert "ab a" == read(kernel, "ab " * 99, text_bytes=4)["text"].decode()


@BOTH
def test_scripts_end_where_browsers_end_them(kernel):
    markup = (
        "<script><!-- <script> </script> <a href=no> --></script><a href=1></a>"
        "<script>'<a href=no>'</script ><a href=2></a><style></styles></style><a href=3></a><script><!--></script>"
        "<a href=4></a>"
    )
    assert ["1", "2", "3", "4"] == [row[1] for row in rows(read(kernel, markup))]


@BOTH
@pytest.mark.parametrize("comment", ["<!-->", "<!--->", "<!---->", "<!--a--!>", "<!--a--b-->", "<!x>", "<?x>", "</ x>"])
def test_comments_end_where_browsers_end_them(kernel, comment):
    assert ["1"] == [row[1] for row in rows(read(kernel, f"{comment}<a href=1></a>"))]


@BOTH
def test_a_tag_that_the_end_cuts_off_is_ignored(kernel):
    for markup in ("<a href=1></a><a href='2", "<a href=1></a><a href=2", "<a href=1></a><!-- <a href=2>"):
        assert ["1"] == [row[1] for row in rows(read(kernel, markup))]


@BOTH
def test_elements_of_a_picture_may_be_closed_in_place(kernel):
    markup = "<svg><title/><style/><script/><a href=1>x</a></svg><title>t</title><a href=2></a>"
    found = read(kernel, markup)
    assert (["1", "2"], "t") == ([row[1] for row in rows(found)], found["title"])


@BOTH
def test_html_ends_a_picture_that_was_left_open(kernel):
    found = read(kernel, "<svg><path><p>a<title>t</title><style>no</style>b")
    assert ("t", "a\nb") in {(found["title"], "a\nb"), (found["title"], found["text"].decode())}


@BOTH
def test_head_and_metas(kernel):
    markup = (
        "<html lang=de-AT><base target=x><base href=/b/><base href=no><title>a&amp;b</title><title>no</title>"
        "<meta NAME=Robots content=a><meta name=x><meta content=y><meta http-equiv=content-language content=fr>"
        "<meta http-equiv=Refresh content='7;url=u'><meta http-equiv=refresh content=8>"
    )
    found = read(kernel, markup)
    expected = ("de-AT", "/b/", "a&b", [("robots", "a")], (7, "u"))
    assert expected == tuple(found[name] for name in ("language", "base", "title", "metas", "refresh"))


@BOTH
def test_no_more_metas_than_requested(kernel):
    assert [("n", str(number)) for number in range(8)] == read(
        kernel, "".join(f"<meta name=N content={number}>" for number in range(20))
    )["metas"]


@BOTH
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("5", (5, "")),
        ("5;URL = 'x y' z", (5, "x y")),
        ("5.7,x", (5, "x")),
        (".7 url x", (0, "url x")),
        ('0;url="x', (0, "x")),
        ("x", None),
        ("-1;x", None),
        ("5x;y", None),
        ("9" * 400, (999_999_999, "")),
        ("1; url=&amp;", (1, "&")),
    ],
)
def test_a_refresh_is_read_as_browsers_read_it(kernel, content, expected):
    found = read(kernel, f'<meta http-equiv=refresh content="{content.replace(chr(34), "&quot;")}">')
    assert expected == found["refresh"]
    assert ([expected[1]] if expected and expected[1] else []) == [row[1] for row in rows(found)]


@BOTH
@pytest.mark.parametrize(
    ("body", "label", "charset"),
    [
        (b"\xef\xbb\xbfx", "koi8-r", "utf-8"),
        (b"\xff\xfex\0", None, "utf-16le"),
        (b"<meta charset=sjis>", "KOI8-R", "koi8-r"),
        (b"<meta charset=sjis>", "bogus", "shift_jis"),
        (b"<meta charset=utf-16>x", None, "utf-8"),
        (b"<meta charset=x-user-defined>x", None, "windows-1252"),
        (b"<!--<meta charset=koi8-r>-->x", None, "windows-1252"),
        (b"<meta http-equiv=content-type content='text/html; charset=koi8-r'>", None, "koi8-r"),
        (b"<meta content='text/html; charset=koi8-r'>", None, "windows-1252"),
        (b"x" * 3_000 + b"<meta charset=koi8-r>", None, "koi8-r"),
        ("ü".encode(), None, "utf-8"),
        (b"\xfc", None, "windows-1252"),
        (b"x", "utf-7", "windows-1252"),
    ],
)
def test_the_encoding_is_found_as_browsers_find_it(kernel, body, label, charset):
    assert charset == read(kernel, body, label)["charset"]


@BOTH
@pytest.mark.parametrize(
    ("label", "body"), [("gb18030", "中文😀"), ("euc-kr", "한국"), ("iso-2022-jp", "日本"), ("big5", "中")]
)
def test_encodings_of_the_east_are_decoded(kernel, label, body):
    assert body == read(kernel, b"<p>" + body.encode(label), label)["text"].decode()


@BOTH
def test_xhtml_may_close_any_element_in_place_and_declare_its_encoding(kernel):
    markup = '<?xml version="1.0" encoding="koi8-r"?><title/><script src="s"/><a href="x"/><textarea/><p>ы</p>'
    found = read(kernel, markup.encode("koi8-r"), xml=True)
    assert ("koi8-r", ["s", "x"], "ы") == (found["charset"], [row[1] for row in rows(found)], found["text"].decode())


@BOTH
@pytest.mark.parametrize(
    ("body", "label", "expected"),
    [
        (b"\xef\xbb\xbfa\r\n", None, ("utf-8", b"a\r\n")),
        ("ü".encode(), None, ("utf-8", "ü".encode())),
        ("ü".encode()[:1], None, ("utf-8", b"")),
        (b"\xfca", None, ("windows-1252", "üa".encode())),
        (b"\xfca", "utf-8", ("utf-8", "\ufffda".encode())),
        ("ы".encode("koi8-r"), "koi8-r", ("koi8-r", "ы".encode())),
        (b"<meta charset=koi8-r>", None, ("utf-8", b"<meta ch")),
        ("aü".encode() * 9, None, ("utf-8", "aüaüa".encode())),
    ],
)
def test_plain_text_is_decoded(kernel, body, label, expected):
    assert expected == kernel.decode_text(body, label, 8)


MARKUP = st.lists(
    st.sampled_from(
        [
            *("<a href=x>", "<a href='y&amp;z' rel=B>", "</a>", "<p>", "<b>", "</b>", "word", " ", "&lt;", "<br>"),
            *("<img src=i alt=t>", "<!-- c -->", "<script>a</script>", "<svg><path/></svg>", "<title>t</title>"),
            *("<meta name=n content=c>", "<base href=/b>", "&#0;", "\r\n", "<ul><li>a</ul>", "<div>x</div>", "é"),
        ]
    ),
    max_size=30,
)


@WITHOUT_NATIVE
@given(MARKUP)
def test_both_find_the_same_in_what_people_write(parts):
    """But for an a that the tree closes and opens again around blocks: there the tree has it twice."""
    markup = "<!doctype html><body>" + "".join(parts)
    mine, others = read(NATIVE, markup), read(twin, markup)
    for name in ("charset", "metas", "base", "title", "language", "left_out"):
        assert others[name] == mine[name], name
    assert list(dict.fromkeys(row[:3] for row in rows(others))) == list(dict.fromkeys(row[:3] for row in rows(mine)))
    assert others["text"] == mine["text"]


@WITHOUT_NATIVE
@given(st.binary(max_size=300), st.sampled_from([None, "koi8-r", "utf-8", "bogus", "utf-16"]), st.booleans())
def test_any_bytes_return_columns_that_fit_together(body, label, xml):
    found = read(NATIVE, b"<a href=x>" + body, label, xml)
    assert len(found["kinds"]) == len(rows(found))
    found["text"].decode()


def test_the_tree_moves_text_out_of_tables_and_the_kernel_does_not():
    assert "b\na" == texts(twin, "<table><tr><td>a</td></tr>b</table>")
    if NATIVE is not None:
        assert "a\nb" == texts(NATIVE, "<table><tr><td>a</td></tr>b</table>")


def test_the_tree_has_frames_in_framesets_only():
    assert [] == rows(read(twin, "<p>x<frame src=f>"))
    if NATIVE is not None:
        assert [("frame", "f", "", "")] == rows(read(NATIVE, "<p>x<frame src=f>"))


def addresses(kernel, markup, label=None):
    return [row[1] for row in rows(read(kernel, markup, label))]


@BOTH
@pytest.mark.parametrize(
    ("label", "query", "encoded"),
    [
        ("windows-1252", "é\x80€", "%E9%80%80"),
        ("iso-8859-2", "řé", "%F8%E9"),
        ("koi8-r", "пр", "%D0%D2"),
        ("shift_jis", "日本\xa5\u203e\uff71\u2212", "%93%FA%96{\\~%B1%81|"),
        ("euc-jp", "日本\xa5\u203e\uff71", "%C6%FC%CB%DC\\~%8E%B1"),
        ("iso-2022-jp", "a日b", "a%1B$BF|%1B(Bb"),
        ("iso-2022-jp", "日☃本", "%1B$BF|%1B(B%26%239731%3B%1B$BK\\%1B(B"),
        ("iso-2022-jp", "\xa5a\\日", "%1B(J\\a%1B(B\\%1B$BF|%1B(B"),
        ("gbk", "中€", "%D6%D0%80"),
        ("gb18030", "中€😀\ue78d", "%D6%D0%A2%E3%949%FC6%A6%D9"),
        ("big5", "中╞", "%A4%A4%F9%E9"),
        ("euc-kr", "가", "%B0%A1"),
        ("windows-1252", "☃\ufffd", "%26%239731%3B%26%2365533%3B"),
        ("x-user-defined", "\uf7e9", "%E9"),
        *((label, "é", "é") for label in ("utf-8", "utf-16le", "utf-16be", "iso-2022-kr")),
    ],
)
def test_a_query_uses_the_encoding_of_its_page(kernel, label, query, encoded):
    written = "".join(f"&#{ord(one)};" if one != "\x80" else "&#8364;" for one in query)
    body = f"<a href='/&#233;?{written}#&#233;?&#233;'>x</a><a href='&#233;#?&#233;'>y</a>"
    octets = body.encode("utf-16-le" if label == "utf-16le" else "utf-16-be" if label == "utf-16be" else "ascii")
    if label == "iso-2022-kr":
        assert [] == addresses(kernel, octets, label)  # the replacement encoding has no text
        return
    assert [f"/é?{encoded}#é?é", "é#?é"] == addresses(kernel, octets, label)


@BOTH
def test_each_place_of_an_address_uses_the_encoding_of_the_page(kernel):
    markup = (
        "<meta charset=windows-1252><base href='/b?\xe9'><link rel=canonical href='?l=\xe9'>"
        "<iframe src='?i=\xe9'></iframe>"
        "<map><area href='?r=\xe9'></map><img src='?m=\xe9'><form action='?f=\xe9'></form>"
        "<svg><a xlink:href='?s=\xe9'></a></svg><meta http-equiv=refresh content='1; url=/p\xe9?q=\xe9'>"
    ).encode("latin-1")
    found = read(kernel, markup)
    assert [*(f"?{name}=%E9" for name in "lirmfs"), "/pé?q=%E9"] == [row[1] for row in rows(found)]
    assert ("/b?%E9", (1, "/pé?q=%E9")) == (found["base"], found["refresh"])


@BOTH
def test_a_late_meta_changes_the_encoding_of_queries_too(kernel):
    markup = b"<a href='?\xe9'>x</a>" + b" " * 1_100 + b"<meta charset=iso-8859-2>"
    assert ["?%E9"] == addresses(kernel, markup)
    assert ["?%26%2365533%3B"] == addresses(kernel, b"<a href='?\xe9'>", "shift_jis")


@BOTH
def test_a_query_is_encoded_without_the_ends_of_its_lines(kernel):
    assert ["?%1B$BF|K\\%1B(B"] == addresses(kernel, b"<a href='?&#26085;\n\t&#26412;'>", "iso-2022-jp")


@BOTH
def test_the_content_of_a_template_says_nothing_about_the_page(kernel):
    markup = (
        "<template><base href=/x/><title>no</title><meta name=robots content=nofollow>"
        "<meta http-equiv=refresh content='1;/r'><a href=1>x</a></template>{}<title>t</title>"
    )
    found = read(kernel, markup.format(""))
    assert (None, "t", [], None) == tuple(found[name] for name in ("base", "title", "metas", "refresh"))
    assert ["/r", "1"] == [row[1] for row in rows(found)]  # links are: scripts put them into pages
    found = read(kernel, markup.format("<template><template></template><base href=/z/></template><base href=/y/>"))
    assert "/y/" == found["base"]


@BOTH
def test_a_base_in_a_picture_is_ignored(kernel):
    assert "/y/" == read(kernel, "<svg><base href=/x/ /></svg><base href=/y/>")["base"]


@BOTH
def test_links_of_pictures_have_href_or_as_it_was_xlink_href(kernel):
    markup = (
        "<svg><a href=1>one <text>two</text></a><a xlink:href=2 xlink:title=x>x</a>"
        "<a href=3 xlink:href=no></a><a/></svg>"
        "<a xlink:href=no>no link</a>"
    )
    assert [("1", "one two"), ("2", "x"), ("3", "")] == [(row[1], row[3]) for row in rows(read(kernel, markup))]


@WITHOUT_NATIVE
@given(
    st.text(st.characters(codec="utf-8", min_codepoint=0x20), max_size=30),
    st.sampled_from(
        ["gbk", "gb18030", "big5", "euc-jp", "iso-2022-jp", "shift_jis", "euc-kr", "koi8-u", "windows-1252"]
    ),
)
def test_both_encode_any_query_alike(query, label):
    body = ("<a href='/?" + "".join(f"&#{ord(one)};" for one in query) + "'>").encode()
    assert read(NATIVE, body, label)["arena"] == read(twin, body, label)["arena"]
