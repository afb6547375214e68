"""The contract of the URL kernel, for the native build and its plain twin; a full parser judges both."""

from __future__ import annotations

import gzip
import json
import lzma
import struct
import threading
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.kinds import NATIVE, WITHOUT_NATIVE, both
from model.url_parser import parsed
from outrider.kernels import siphash
from outrider.kernels import urls as twin
from outrider.kernels.urls import HTTPS, INVALID, ODD, SPELLED, USERINFO
from timing import least_beside, seconds_of

BOTH = both(twin)
KEY = bytes(range(16))
PAGES = [None, "http://example.org/a/b?c/d", "https://x.org:81/%%36/q", "http://[::1]:8080/a//b/"]

SIGNS = (
    "% %% %3 %36 %31 %2e %2E %7e %C3 / // \\ .. . ? # @ : 80 443 a Z 0 6 1 xn-- XN-- 0x [ ] ::1 ' | ^ ` { \" < ~ _ -"
)
OTHERS = [" ", "\t", "\n", "\x00", "\x7f", "é", "\ud800", "😀", "/../", "/./", "=", "&", ";", "http:", "example.org"]
PIECES = st.sampled_from([*SIGNS.split(), *OTHERS])
STARTS = st.sampled_from(
    ["", "http://", "HTTPS://", "http://example.org", "http://example.org/", "https://a.b:8080/", "http:", "/", "//"]
)
URLS = st.one_of(
    st.builds(str.__add__, STARTS, st.lists(PIECES, max_size=12).map("".join)),
    st.text(st.characters(codec=None), max_size=60),  # half characters too
)


def unpacked(columns):
    """(state, text, flags, host, path start) of each row."""
    arena, offsets, states, flags, host_lengths, path_starts = columns[:6]
    count = len(states)
    ends = struct.unpack(f"<{count + 1}q", offsets)
    rows = []
    for row, (length, start) in enumerate(
        zip(struct.unpack(f"<{count}I", host_lengths), struct.unpack(f"<{count}I", path_starts), strict=True)
    ):
        text = arena[ends[row] : ends[row + 1]].decode("ascii")
        begin = 8 if flags[row] & HTTPS else 7
        rows.append((states[row], text, flags[row], text[begin : begin + length], start))
    return rows


def one(kernel, url, page=None):
    return unpacked(kernel.spell_urls([url], page))[0]


def int64s(*numbers):
    return np.array(numbers, dtype=np.int64)


# -------------------------------------------------------------------------------------------------------- spelling


@BOTH
@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://example.org/a?b", (SPELLED, "http://example.org/a?b", 0, "example.org", 18)),
        ("https://example.org", (SPELLED, "https://example.org/", HTTPS, "example.org", 19)),
        ("HTTP://EXAMPLE.org:8080/", (SPELLED, "http://example.org:8080/", 0, "example.org", 23)),
        ("https://example.org:443/?", (SPELLED, "https://example.org/", HTTPS, "example.org", 19)),
        ("http://example.org:/#x", (SPELLED, "http://example.org/", 0, "example.org", 18)),
        ("http://u:p@x@a.b/", (SPELLED, "http://a.b/", USERINFO, "a.b", 10)),
        ("http://@a.b/", (SPELLED, "http://a.b/", 0, "a.b", 10)),
        ("http://:@a.b/", (SPELLED, "http://a.b/", 0, "a.b", 10)),
        ("http://:\ud800@a.b/#\ud800", (SPELLED, "http://a.b/", USERINFO, "a.b", 10)),
        ("http://192.168.0.255/", (SPELLED, "http://192.168.0.255/", 0, "192.168.0.255", 20)),
        ("http://a_b.c./", (SPELLED, "http://a_b.c./", 0, "a_b.c.", 13)),
        ("\x00\x1f http://a/é?é' \n", (SPELLED, "http://a/%C3%A9?%C3%A9%27", 0, "a", 8)),
        ("http://a/b/../%2e/c/%2E%2e/.", (SPELLED, "http://a/", 0, "a", 8)),
        ("http://a\\b\\..\\..\\c/\\", (SPELLED, "http://a/c//", 0, "a", 8)),
        ('http://"A$(b)~"/', (SPELLED, 'http://"a$(b)~"/', 0, '"a$(b)~"', 15)),
        ("http://a/%%361%e9%7E", (SPELLED, "http://a/%%361%E9~", 0, "a", 8)),
        ("http://a/^`{}|", (SPELLED, "http://a/%5E%60%7B%7D|", 0, "a", 8)),
        ("http://a/?^`{}|\\", (SPELLED, "http://a/?^`{}|\\", 0, "a", 8)),
    ],
)
def test_ordinary_rows_are_spelled(kernel, url, expected):
    assert expected == one(kernel, url)


@BOTH
@pytest.mark.parametrize(
    "url",
    [
        *("http:", "http:a", "http:/a", "http:///a", "http://", "http://?", "http:\\\\a", "http://\\a", "http://a|b/"),
        *(
            "http://xn--a/",
            "http://a.XN--b/",
            "http://[::1]/",
            "http://1.2.3/",
            "http://256.1.1.1/",
            "http://1.2.3.4./",
        ),
        *(
            "http://01.2.3.4/",
            "http://a.0x1/",
            "http://a.1./",
            "http://.a/",
            "http://a../",
            "http://./",
            "http://a..b/",
        ),
        *("http://a:65536/", "http://a:000080/", "http://a:b/", "http://a:80:80/", "http://a%62/", "http://é/"),
        *("ht\ntp://a/", "http://a/\tb", "http://u\t@a/", "a\rb", "http://a/\ud800", "http://a/é#\ud800"),
        *("http://a\x00/", "http://a\x7f/"),
    ],
)
def test_odd_rows_are_left_to_a_full_parser(kernel, url):
    assert (ODD, "", 0, "", 0) == one(kernel, url)


@BOTH
@pytest.mark.parametrize(
    "url",
    ["", "  ", "#", "?", "a", "/a", "//a/", "mailto:a", "javascript:\nx", "ftp://a/", "1http://a/", "é", "x:\ud800"],
)
def test_rows_without_a_scheme_or_with_another_are_invalid(kernel, url):
    assert (INVALID, "", 0, "", 0) == one(kernel, url)


@BOTH
@pytest.mark.parametrize("thing", [None, 5, b"http://example.org/", ["http://example.org/"]])
def test_a_value_that_is_not_text_is_invalid(kernel, thing):
    assert (INVALID, "", 0, "", 0) == one(kernel, thing)
    assert ([None], []) == kernel.spell_texts([thing])


@BOTH
@pytest.mark.parametrize(
    ("reference", "text"),
    [
        ("", "http://a:81/b/c;d?e"),
        ("#f", "http://a:81/b/c;d?e"),
        ("?", "http://a:81/b/c;d"),
        ("?x#y", "http://a:81/b/c;d?x"),
        ("x", "http://a:81/b/x"),
        ("./x", "http://a:81/b/x"),
        ("..", "http://a:81/"),
        ("../../x/.", "http://a:81/x/"),
        ("1:x", "http://a:81/b/1:x"),
        ("/x//y", "http://a:81/x//y"),
        ("/..", "http://a:81/"),
        ("//B:80", "http://b/"),
        ("https://c", "https://c/"),
        ("%2e%2E/%7e", "http://a:81/~"),
    ],
)
def test_references_are_resolved_against_their_page(kernel, reference, text):
    assert (SPELLED, text) == one(kernel, reference, "http://a:81/b/c;d?e")[:2]


@BOTH
@pytest.mark.parametrize("reference", ["\\x", "/\\x", "\\\\x", "http:x", "x\ty"])
def test_odd_references_are_left_to_a_full_parser(kernel, reference):
    assert ODD == one(kernel, reference, "http://a/b")[0]


@BOTH
def test_a_reference_has_the_host_of_its_page_and_not_its_userinfo(kernel):
    assert (SPELLED, "https://[::1]:8/x", HTTPS, "[::1]", 15) == one(kernel, "x", "https://[::1]:8/y")


@BOTH
@given(url=URLS, page=st.sampled_from(PAGES))
def test_the_spelling_is_that_of_the_full_parser(kernel, url, page):
    state, text, _, host, path_start = one(kernel, url, page)
    expected = parsed(url, page)
    if state == SPELLED:
        assert expected == text
        assert (text.split("/")[2].rsplit(":", 1)[0] if "[" not in text[:9] else "[::1]") == host
        assert text.index("/", 8) == path_start
    elif state == INVALID:
        assert expected is None


@BOTH
@given(url=URLS, page=st.sampled_from(PAGES))
def test_spelling_twice_is_like_spelling_once(kernel, url, page):
    state, text, *_ = one(kernel, url, page)
    if state == SPELLED:
        again = one(kernel, text)
        assert again[:2] == (SPELLED, text) or (again[0] == ODD and "[" in text)


@BOTH
@given(urls=st.lists(URLS, max_size=6), page=st.sampled_from(PAGES))
def test_a_batch_is_its_rows(kernel, urls, page):
    assert [one(kernel, url, page) for url in urls] == unpacked(kernel.spell_urls(urls, page))


@BOTH
@given(urls=st.lists(URLS, max_size=6), page=st.sampled_from(PAGES))
def test_texts_are_those_of_the_columns(kernel, urls, page):
    rows = unpacked(kernel.spell_urls(tuple(urls), page))
    expected = [text if state == SPELLED else None for state, text, *_ in rows]
    odd = [row for row, (state, *_) in enumerate(rows) if state == ODD]
    assert (expected, odd) == kernel.spell_texts(tuple(urls), page)


@BOTH
@given(urls=st.lists(URLS, max_size=6), page=st.sampled_from(PAGES))
def test_one_buffer_of_rows_is_spelled_as_their_texts_are(kernel, urls, page):
    octets = [url.encode("utf-8", "surrogatepass") for url in urls]
    offsets = np.cumsum([0, *map(len, octets)], dtype=np.int64)
    assert kernel.spell_urls(urls, page, KEY) == kernel.spell_arena(b"".join(octets), offsets, page, KEY)


@BOTH
@given(urls=st.lists(URLS, max_size=6), key=st.binary(min_size=16, max_size=16))
def test_fingerprints_are_those_of_texts_and_hosts(kernel, urls, key):
    columns = kernel.spell_urls(urls, None, key)
    rows = unpacked(columns)
    assert siphash.fingerprints([text for _, text, *_ in rows], key) == columns[6]
    assert siphash.fingerprints([host for *_, host, _ in rows], key) == columns[7]
    assert (b"", b"") == kernel.spell_urls(urls)[6:]


@BOTH
@pytest.mark.parametrize(
    "page", ["", "http://", "ftp://a/", "http://a", "http:///", "http://é/", "HTTP://a/", "http://[/"]
)
def test_a_page_that_is_not_a_canonical_url_is_refused(kernel, page):
    for spell in (kernel.spell_urls, kernel.spell_texts):
        with pytest.raises(ValueError, match="a page is a canonical http or https URL"):
            spell([], page)
    with pytest.raises(ValueError, match="a page is a canonical http or https URL"):
        kernel.spell_arena(b"", int64s(0), page)


@BOTH
@pytest.mark.parametrize("size", [0, 15, 17])
def test_a_key_of_another_size_is_refused(kernel, size):
    with pytest.raises(ValueError, match=f"key has 16 bytes, not {size}"):
        kernel.spell_urls([], None, bytes(size))
    with pytest.raises(ValueError, match=f"key has 16 bytes, not {size}"):
        kernel.hash_spans(b"", int64s(), int64s(), bytes(size))


@BOTH
@pytest.mark.parametrize("rows", ["http://example.org/", 7, None])
def test_only_sequences_are_spelled(kernel, rows):
    for spell in (kernel.spell_urls, kernel.spell_texts):
        with pytest.raises(TypeError):
            spell(rows)


@BOTH
def test_no_rows_are_columns_of_nothing(kernel):
    assert (b"", bytes(8), b"", b"", b"", b"", b"", b"") == kernel.spell_urls([])


@BOTH
@pytest.mark.parametrize(
    "octets", [b"http://a/\xff", b"http://a/\xc3#\xa9", b"http://a/?\xed\xa0\x80", b"http://a/\xf0\x9f\x98"]
)
def test_octets_that_are_not_utf8_are_odd(kernel, octets):
    assert ODD == unpacked(kernel.spell_arena(octets, int64s(0, len(octets))))[0][0]


@BOTH
@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_an_arena_can_be_any_buffer(kernel, wrap):
    columns = kernel.spell_arena(wrap(b"..http://a/b"), int64s(2, 12))
    assert [(SPELLED, "http://a/b", 0, "a", 8)] == unpacked(columns)


@BOTH
@pytest.mark.parametrize("offsets", [(0, 4), (-1, 2), (2, 1), (4, 4)])
def test_rows_outside_their_arena_are_refused(kernel, offsets):
    with pytest.raises(ValueError, match=f"row 0: a span from {offsets[0]} to {offsets[1]} lies outside 3 bytes"):
        kernel.spell_arena(b"abc", int64s(*offsets))


@BOTH
def test_an_arena_without_offsets_is_refused(kernel):
    with pytest.raises(ValueError, match="offsets name where each row begins"):
        kernel.spell_arena(b"", int64s())


@BOTH
@pytest.mark.parametrize("wrong", [np.array([0, 3], dtype=np.int32), np.array([0.0, 3.0]), b"0123456789abcdef"])
def test_offsets_of_another_type_are_refused(kernel, wrong):
    with pytest.raises((BufferError, TypeError)):
        kernel.spell_arena(b"abc", wrong)


# ----------------------------------------------------------------------------------------------------------- spans


@BOTH
def test_equal_spans_are_numbered_as_they_appear(kernel):
    codes, firsts = kernel.distinct_spans(b"abcabx", int64s(0, 3, 5, 2, 1), int64s(2, 5, 6, 2, 1))
    assert ((0, 0, 1, 2, 2), (0, 2, 3)) == (struct.unpack("<5I", codes), struct.unpack("<3I", firsts))


@BOTH
def test_each_wanted_text_is_copied_from_its_first_place(kernel):
    starts, ends, wanted = int64s(0, 3, 5, 2, 1), int64s(2, 5, 6, 2, 1), np.array([False, True, True, True, True])
    texts, offsets, rows = kernel.unique_spans(b"abcabx", starts, ends, wanted)
    assert (b"abx", (0, 2, 3, 3), (1, 2, 3)) == (
        texts,
        struct.unpack("<4q", offsets),
        struct.unpack("<3I", rows),
    )


@BOTH
def test_marks_of_another_number_of_spans_are_refused(kernel):
    with pytest.raises(ValueError, match="2 spans and 3 marks"):
        kernel.unique_spans(b"abc", int64s(0, 2), int64s(3, 3), np.ones(3, np.bool_))


@BOTH
def test_wanted_spans_outside_the_arena_are_refused(kernel):
    with pytest.raises(ValueError, match="row 1: a span from 2 to 4 lies outside 3 bytes"):
        kernel.unique_spans(b"abc", int64s(0, 2), int64s(3, 4), b"\0\0")


@BOTH
@given(texts=st.lists(st.sampled_from(["", "a", "b", "ab", "é"]), max_size=12))
def test_spans_are_gathered_read_and_hashed_as_their_texts(kernel, texts):
    octets = [text.encode() for text in texts]
    arena = b"-".join(octets)
    ends = np.cumsum(int64s(*(len(one) for one in octets))) + np.arange(len(octets))
    starts = ends - int64s(*(len(one) for one in octets))
    assert b"".join(octets) == kernel.gather_spans(arena, starts, ends)
    assert texts == kernel.texts_of_spans(arena, starts, ends)
    assert siphash.fingerprints(texts, KEY) == kernel.hash_spans(arena, starts, ends, KEY)
    before = [siphash.fingerprints([text.partition("b")[0]], KEY) if "b" in text else bytes(8) for text in texts]
    assert b"".join(before) == kernel.hash_spans(arena, starts, ends, KEY, until=ord("b"))
    codes = np.frombuffer(kernel.distinct_spans(arena, starts, ends)[0], np.uint32).tolist()
    assert [list(dict.fromkeys(texts)).index(text) for text in texts] == codes


@BOTH
@pytest.mark.parametrize("name", ["distinct_spans", "gather_spans", "texts_of_spans"])
def test_spans_outside_the_arena_are_refused(kernel, name):
    with pytest.raises(ValueError, match="row 1: a span from 2 to 4 lies outside 3 bytes"):
        getattr(kernel, name)(b"abc", int64s(0, 2), int64s(3, 4))
    with pytest.raises(ValueError, match="2 starts and 1 ends"):
        getattr(kernel, name)(b"abc", int64s(0, 2), int64s(3))


@BOTH
def test_a_span_that_cuts_a_character_is_not_text(kernel):
    with pytest.raises(ValueError, match="no whole text in UTF-8"):
        kernel.texts_of_spans("é".encode(), int64s(0), int64s(1))


# ------------------------------------------------------------------------------------------------------ hostile rows


LONG = 100_000
HOSTILE = {
    "path": "http://a/" + "b" * LONG,
    "triplets": "http://a/" + "%7e" * (LONG // 3),
    "stray signs": "http://a/" + "%" * LONG,
    "dots": "http://a/" + "../" * (LONG // 3),
    "down and up": "http://a/" + "b/" * (LONG // 5) + "../" * (LONG // 5),
    "slashes": "http://a" + "/" * LONG,
    "labels": "http://" + "a." * (LONG // 2) + "/",
    "at signs": "http://" + "@" * LONG + "a/",
    "blanks": " " * LONG + "http://a/",
    "scheme": "a" * LONG,
    "not ASCII": "http://a/" + "é" * (LONG // 2),
    "digits": "http://" + "1." * (LONG // 2),
    "numbers": "http://a:" + "1" * LONG,
    "backslash at the end": "http://a/" + "é" * (LONG // 2) + "\\",
}


@WITHOUT_NATIVE
@pytest.mark.parametrize("name", HOSTILE)
def test_a_row_of_100_kb_is_no_slower_than_adding_as_many_numbers(name):
    """The slowest needs half of that time. Both are timed alternately, so that a busy machine slows both down."""
    url = HOSTILE[name]
    call = lambda: NATIVE.spell_urls([url], "http://a/b", KEY)  # noqa: E731
    assert 1.5 > least_beside(call, lambda: sum(range(LONG)), turns=15)


@pytest.mark.parametrize("name", HOSTILE)
def test_the_twin_stays_linear(name):
    url = HOSTILE[name]
    assert min(seconds_of(lambda: twin.spell_texts([url], "http://a/b")) for _ in range(3)) < 2


# -------------------------------------------------------------------------------------------------- twin beside kernel


@WITHOUT_NATIVE
@given(urls=st.lists(URLS, max_size=8), page=st.sampled_from(PAGES), key=st.none() | st.just(KEY))
def test_twin_and_kernel_return_the_same_columns(urls, page, key):
    assert twin.spell_urls(urls, page, key) == NATIVE.spell_urls(urls, page, key)


@WITHOUT_NATIVE
@given(octets=st.binary(max_size=80), cut=st.integers(0, 80), page=st.sampled_from(PAGES))
def test_twin_and_kernel_read_the_same_from_any_bytes(octets, cut, page):
    offsets = int64s(0, min(cut, len(octets)), len(octets))
    assert twin.spell_arena(octets, offsets, page, KEY) == NATIVE.spell_arena(octets, offsets, page, KEY)


@WITHOUT_NATIVE
def test_twin_and_kernel_agree_on_every_byte_in_every_place():
    urls = [start + chr(byte) + end for byte in range(256) for start, end in PLACES]
    for page in PAGES:
        assert twin.spell_urls(urls, page, KEY) == NATIVE.spell_urls(urls, page, KEY)


PLACES = [
    *(
        ("", ""),
        ("h", "ttp://a/"),
        ("http", "//a/"),
        ("http:", "/a/"),
        ("http:/", "a/"),
        ("http://", "a/"),
        ("http://a", "/"),
    ),
    *(
        ("http://a:", "/"),
        ("http://a:1", ""),
        ("http://a/", "b"),
        ("http://a/.", ""),
        ("http://a/..", "x"),
        ("http://a?", ""),
    ),
    *(
        ("http://a/%", "1"),
        ("http://a/%4", ""),
        ("http://a/%3%3", ""),
        ("http://u", "@a/"),
        ("http://1.1.1.", ""),
        ("/", "x"),
    ),
]


@WITHOUT_NATIVE
@given(texts=st.lists(st.binary(max_size=4), max_size=12))
def test_twin_and_kernel_number_spans_alike(texts):
    ends = np.cumsum(int64s(*(len(text) for text in texts)))
    starts = ends - int64s(*(len(text) for text in texts))
    arena = b"".join(texts)
    assert twin.distinct_spans(arena, starts, ends) == NATIVE.distinct_spans(arena, starts, ends)
    assert twin.hash_spans(arena, starts, ends, KEY) == NATIVE.hash_spans(arena, starts, ends, KEY)
    for until in (0, 1, 255):
        assert twin.hash_spans(arena, starts, ends, KEY, until) == NATIVE.hash_spans(arena, starts, ends, KEY, until)
    wanted = np.arange(len(texts)) % 3 != 0
    assert twin.unique_spans(arena, starts, ends, wanted) == NATIVE.unique_spans(arena, starts, ends, wanted)


@WITHOUT_NATIVE
def test_threads_get_the_same_columns_at_the_same_time():
    """Large batches release the GIL."""
    urls = [f"http://example.org/{number}/../%7e" for number in range(3000)]
    expected = NATIVE.spell_urls(urls, None, KEY)
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(NATIVE.spell_urls(urls, None, KEY) == expected))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [True] * 4 == results


# ------------------------------------------------------------------------------------- the material of others, mutated


@pytest.fixture(scope="module")
def corpora(shared):
    """Every input of every set, and the real URLs."""
    folder = shared / "data" / "url"
    inputs = []
    for file in sorted(folder.rglob("*.json")):
        inputs += list(_texts_in(json.loads(file.read_text("utf-8"))))
    for file in sorted(folder.rglob("*.jsonl")):
        inputs += [
            text for line in file.read_text("utf-8").splitlines() if line for text in _texts_in(json.loads(line))
        ]
    with gzip.open(folder / "real/real-urls-whatwg.jsonl.gz", "rt", encoding="utf-8") as lines:
        inputs += [json.loads(line)[0] for line in lines]
    for file in sorted((shared / "data" / "urls").glob("*.txt.xz")):
        with lzma.open(file, "rt", encoding="utf-8", errors="surrogateescape") as lines:
            inputs += [line.rstrip("\n") for line in lines]
    return list(dict.fromkeys(inputs))


def _texts_in(value):
    if isinstance(value, str):
        yield value
        yield f"http://{value}/"
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts_in(part)


@pytest.mark.conformance
@WITHOUT_NATIVE
@pytest.mark.parametrize("page", [None, PAGES[1]])
def test_twin_and_kernel_agree_on_foreign_material(corpora, page):
    assert len(corpora) > 100_000
    for first in range(0, len(corpora), 5_000):
        rows = corpora[first : first + 5_000]
        assert twin.spell_urls(rows, page) == NATIVE.spell_urls(rows, page)


@pytest.mark.conformance
@BOTH
def test_kernels_agree_with_the_full_parser_on_foreign_material(kernel, corpora):
    texts, odd = kernel.spell_texts(corpora)
    left_out = set(odd)
    wrong = [
        url
        for row, (url, text) in enumerate(zip(corpora, texts, strict=True))
        if row not in left_out and parsed(url) != text
    ]
    assert [] == wrong


@pytest.mark.conformance
@WITHOUT_NATIVE
def test_one_real_url_in_a_hundred_is_odd_at_most(shared):
    with gzip.open(shared / "data/url/real/real-urls-whatwg.jsonl.gz", "rt", encoding="utf-8") as lines:
        urls = [json.loads(line)[0] for line in lines]
    assert len(NATIVE.spell_texts(urls)[1]) <= len(urls) / 100


@pytest.mark.conformance
@WITHOUT_NATIVE
def test_twin_and_kernel_agree_on_mutated_urls(corpora):
    chance = Random(7)
    rows = [_mutated(chance.choice(corpora), chance) for _ in range(20_000)]
    for page in PAGES:
        assert twin.spell_urls(rows, page) == NATIVE.spell_urls(rows, page)
    texts, odd = NATIVE.spell_texts(rows)
    left_out = set(odd)
    wrong = [
        url
        for row, (url, text) in enumerate(zip(rows, texts, strict=True))
        if row not in left_out and parsed(url) != text
    ]
    assert [] == wrong


def _mutated(url, chance):
    for _ in range(chance.randint(1, 3)):
        place = chance.randrange(len(url) + 1)
        new = chr(chance.choice((chance.randrange(128), chance.randrange(128), chance.randrange(0x3000))))
        url = url[:place] + chance.choice(("", new, new, "%" + new)) + url[place + chance.randrange(2) :]
    return url
