"""Columns of URLs: a batch agrees for its rows with `spell`, `key` and `fingerprints` for each."""

from __future__ import annotations

import copy
import ctypes
import pickle
import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider import kernels
from outrider.url import Url, authority_of, host_of, key, spell
from outrider.url.batch import NO_KEY, UrlBatch

KEY = bytes(range(16))
URLS = st.lists(
    st.sampled_from(
        [
            *("http://a.org/x", "HTTPS://B.a.org:81/%7e?q", "http://a.org/x", "http://u:p@c.co.uk/#f", "//d.org/"),
            *("http://Bücher.example/ü", "http://[::1]:8/", "http://0x7f.1/", "mailto:x", "http://x y/", "\ud800"),
            *("?é\t", "e", ""),
        ]
    )
    | st.text(max_size=20).map(lambda text: "http://a.org/" + text),
    max_size=12,
)
BASES = st.sampled_from([None, "http://Example.org/a/b?c", "https://u@[::1]/d/", "file:///x", "nonsense"])
SOME = ["http://a.org/1", "nonsense", "https://b.org/2", "http://a.org:81/3?x"]


def batch_of(*urls, **columns):
    return UrlBatch.of(list(urls)).with_columns(**columns)


@given(URLS, BASES)
def test_all_rows_are_spelled_in_their_order(urls, base):
    batch = UrlBatch.of(urls, base)
    expected = spell(urls, base)
    assert [text or "" for text in expected] == batch.strings()
    assert [text is not None for text in expected] == batch.valid.tolist()
    assert [text for text in expected if text is not None] == list(batch)
    assert len(urls) == len(batch)


@given(URLS, BASES)
def test_hosts_and_origins_are_at_the_places_that_the_batch_returns(urls, base):
    batch = UrlBatch.of(urls, base)
    texts = batch.strings()

    def pieces(spans):
        return [batch.arena[start:end].decode() for start, end in zip(*spans, strict=True)]

    assert [host_of(text) if text else "" for text in texts] == pieces(batch.hosts())
    assert [authority_of(text) if text else "" for text in texts] == pieces(batch.origins())
    assert [text[len(authority_of(text)) :] if text else "" for text in texts] == pieces(batch.paths())
    assert texts == pieces(batch.texts())
    assert [len(text) for text in texts] == batch.lengths.tolist()
    assert [text.startswith("https:") for text in texts] == batch.secure.tolist()


@given(URLS, BASES, st.booleans())
def test_fingerprints_are_those_of_texts_and_hosts_whenever_they_are_computed(urls, base, at_once):
    batch = UrlBatch.of(urls, base, key=KEY if at_once else None)
    texts = batch.strings()
    hosts = [host_of(text) if text else "" for text in texts]
    assert kernels.fingerprints(texts, KEY) == batch.fingerprints(KEY).tobytes()
    assert kernels.fingerprints(hosts, KEY) == batch.host_fingerprints(KEY).tobytes()


def test_fingerprints_with_another_key_are_different_and_each_is_kept():
    batch = batch_of(*SOME)
    assert batch.fingerprints().tolist() != batch.fingerprints(KEY).tolist()
    assert batch.fingerprints(KEY) is batch.fingerprints(bytearray(KEY))


def test_a_key_of_another_size_is_refused():
    with pytest.raises(ValueError, match="a fingerprint key has 16 bytes, not 3"):
        UrlBatch.of([], key=b"abc")
    with pytest.raises(ValueError, match="a fingerprint key has 16 bytes, not 3"):
        batch_of().fingerprints(b"abc")


@given(URLS, st.sampled_from(["host", "domain", "origin", "address", len, "function"]))
def test_the_keys_of_a_batch_are_those_of_its_urls(urls, by):
    batch = UrlBatch.of(urls)
    if by is len:
        if any(batch.valid):
            with pytest.raises(TypeError, match="a key is text"):
                batch.keys(len)
        return
    how = (lambda url: url[-1]) if by == "function" else by
    codes, names = batch.keys(how)
    found = [names[code] if code != NO_KEY else None for code in codes.tolist()]
    assert [key(url, how) if url else None for url in batch.strings()] == found
    assert list(dict.fromkeys(name for name in found if name is not None)) == names


def test_keys_by_address_use_the_known_addresses():
    codes, names = batch_of("http://a/", "http://b/", "http://c/").keys("address", addresses={"a": "::1", "c": "::1"})
    assert ([0, 1, 0], ["::1", "b"]) == (codes.tolist(), names)


def test_an_unknown_kind_of_key_is_refused():
    with pytest.raises(ValueError, match="host, domain, origin, address or a function, not by 'planet'"):
        batch_of().keys("planet")


def test_a_group_is_the_rows_of_a_key_in_order():
    groups = UrlBatch.of([*SOME, "http://a.org/4"]).group("host")
    assert {"a.org": [0, 3, 4], "b.org": [2]} == {name: rows.tolist() for name, rows in groups.items()}
    assert {} == batch_of("nonsense").group()


def test_userinfo_is_dropped_and_reported():
    rows = ["http://u:p@a.org/", "http://a.org/", "http://@a.org/", "http://u@xn--4ca.org/", "http://u\t@a.org/", "x:"]
    assert [True, False, False, True, True, False] == UrlBatch.of(rows).has_userinfo.tolist()


def test_the_userinfo_of_a_page_is_not_that_of_its_links():
    batch = UrlBatch.of(["a", "b\t", "//u@c/"], "http://u:p@a.org/")
    assert [False, False, True] == batch.has_userinfo.tolist()


@given(URLS, st.data())
def test_chosen_rows_are_returned(urls, data):
    batch = UrlBatch.of(urls, key=KEY).with_columns(depth=np.arange(len(urls)))
    rows = data.draw(st.lists(st.integers(-len(urls), len(urls) - 1), max_size=8)) if urls else []
    taken = batch.take(rows)
    texts = [batch.strings()[row] for row in rows]
    assert texts == taken.strings() == batch.strings(rows)
    assert [batch.valid.tolist()[row] for row in rows] == taken.valid.tolist()
    assert kernels.fingerprints(texts, KEY) == taken.fingerprints(KEY).tobytes()
    assert [row % len(urls) for row in rows] == taken.columns["depth"].tolist()
    assert UrlBatch.of([text or None for text in texts], key=KEY).keys()[1] == taken.keys()[1]


@given(st.lists(URLS, max_size=4))
def test_concatenated_batches_are_their_rows(lists):
    parts = [UrlBatch.of(urls) for urls in lists]
    assert UrlBatch.of([url for urls in lists for url in urls]) == UrlBatch.concatenate(parts)


def test_filter_and_slices_return_rows():
    batch = batch_of(*SOME, depth=[1, 2, 3, 4])
    assert batch.take([0, 2]) == batch.filter([True, False, True, False])
    assert batch.take([1, 3]) == batch[1::2]
    assert batch.filter(batch.valid).strings() == list(batch)
    assert batch is batch.filter([True] * 4)


@given(URLS, st.data())
def test_slices_are_the_chosen_rows_with_their_fingerprints(urls, data):
    batch = UrlBatch.of(urls, key=KEY).with_columns(depth=np.arange(len(urls)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(urls)), min_size=2, max_size=4)))
    pieces = [batch[start:end] for start, end in pairwise(cuts)]
    for piece, (start, end) in zip(pieces, pairwise(cuts), strict=True):
        taken = batch.take(np.arange(start, end))
        assert taken == piece
        assert taken.fingerprints(KEY).tolist() == piece.fingerprints(KEY).tolist()
        assert UrlBatch.of(taken.strings(), key=KEY).fingerprints(KEY).tolist() == piece.fingerprints(KEY).tolist()
    whole = batch.take(np.arange(cuts[0], cuts[-1]))
    for together in (UrlBatch.concatenate(pieces), UrlBatch.concatenate(map(pickle.loads, map(pickle.dumps, pieces)))):
        assert whole == together
        assert whole.fingerprints(KEY).tolist() == together.fingerprints(KEY).tolist()
    backwards = UrlBatch.concatenate(pieces[::-1])
    assert [text for piece in pieces[::-1] for text in piece.strings()] == backwards.strings()


def test_a_slice_of_all_rows_equals_the_batch():
    batch = batch_of(*SOME)
    assert batch is batch[:]
    assert batch is UrlBatch.concatenate([batch[:2], batch[2:]])


def test_a_row_is_a_string_and_an_invalid_row_is_an_empty_one():
    batch = batch_of(*SOME)
    assert ("http://a.org:81/3?x", "") == (batch[-1], batch[1])


@pytest.mark.parametrize("row", [4, -5])
def test_a_missing_row_is_refused(row):
    with pytest.raises(IndexError):
        batch_of(*SOME)[row]
    with pytest.raises(IndexError):
        batch_of(*SOME).take([row])


@pytest.mark.parametrize("rows", [[True, False, True, True], [0.5], [[0]], ["a"]])
def test_rows_are_chosen_by_number_only(rows):
    with pytest.raises(TypeError, match="rows are chosen by their numbers"):
        batch_of(*SOME).take(rows)


@pytest.mark.parametrize("mask", [[True], [0, 1, 1, 0], []])
def test_a_mask_has_a_bool_for_each_row(mask):
    with pytest.raises(ValueError, match="a mask of 4 bools is needed"):
        batch_of(*SOME).filter(mask)


def test_unique_rows_are_the_first_of_each_url():
    batch = batch_of("http://b/", "x", "HTTP://a", "http://b:80", "http://a/", depth=[0, 1, 2, 3, 4])
    assert (["http://b/", "http://a/"], [0, 2]) == (batch.unique().strings(), batch.unique().columns["depth"].tolist())


def test_further_columns_have_a_value_for_each_row_or_one_for_all():
    batch = batch_of(*SOME, priority=[0.1, 0.2, 0.3, 0.4], depth=1, referrer="http://r/")
    assert [0.1, 0.2, 0.3, 0.4] == batch.columns["priority"].tolist()
    assert [1] * 4 == batch.columns["depth"].tolist()
    assert ["http://r/"] * 4 == batch.columns["referrer"].tolist()
    assert [2] * 4 == batch.with_columns(depth=2).columns["depth"].tolist()
    assert [1] * 4 == batch.columns["depth"].tolist()


def test_a_column_of_another_length_is_refused_by_name():
    with pytest.raises(ValueError, match=r"column depth: 4 values are needed, not \(2,\)"):
        batch_of(*SOME, depth=[1, 2])


def test_batches_with_different_columns_are_not_concatenated():
    with pytest.raises(ValueError, match=r"cannot be put together: depth \| none"):
        UrlBatch.concatenate([batch_of("http://a/", depth=1), batch_of("http://b/")])


def test_batches_are_equal_when_their_rows_and_columns_are():
    one = batch_of(*SOME, depth=1)
    assert one == batch_of(*SOME, depth=1)
    assert one != batch_of(*SOME, depth=2)
    assert one != batch_of(*SOME)
    assert one != batch_of(*SOME[:3], depth=1)
    assert batch_of("x") != batch_of("x", "y")
    assert batch_of("http://u@a/") != batch_of("http://a/")
    assert one != SOME


def test_a_batch_never_changes():
    batch = batch_of(*SOME, depth=1)
    arrays = [batch.offsets, batch.valid, batch.fingerprints(), batch.columns["depth"], batch.take([0]).offsets]
    assert [False] * 5 == [array.flags.writeable for array in arrays]
    values = np.zeros(4)
    changed = batch.with_columns(depth=values)
    values[0] = 7
    assert 0.0 == changed.columns["depth"][0]


def test_the_repr_of_a_batch_shows_its_content():
    assert "<UrlBatch: 4 URLs, 1 not valid, depth: http://a.org/1, https://b.org/2, http://a.org:81/3?x>" == repr(
        batch_of(*SOME, depth=1)
    )
    assert "<UrlBatch: 4 URLs: http://a/, http://a/, http://a/, …>" == repr(batch_of(*["http://a"] * 4))
    assert "<UrlBatch: 0 URLs>" == repr(batch_of())


def test_a_batch_is_made_of_any_iterable_but_not_of_one_string():
    expected = UrlBatch.of(SOME)
    assert expected == UrlBatch.of(iter(SOME)) == UrlBatch.of(tuple(SOME)) == UrlBatch.of(dict.fromkeys(SOME))
    assert expected is UrlBatch.of(expected)
    for one in ("http://a.org/", b"http://a.org/"):
        with pytest.raises(TypeError, match=f"not one {type(one).__name__}"):
            UrlBatch.of(one)


def test_canonical_urls_are_used_without_a_change():
    texts = ["http://a.org/1", "nonsense", "?x", "http://[::1]/"]
    urls = [Url(texts[0]), *texts[1:3], Url(texts[3])]
    page = Url("http://a.org/p")
    assert UrlBatch.of(texts, page.text, key=KEY) == UrlBatch.of(urls, page, key=KEY)
    assert spell(texts, page.text) == spell(urls, page)


def test_a_base_that_is_not_a_text_is_refused_instead_of_all_rows():
    with pytest.raises(TypeError, match="not a bytes"):
        UrlBatch.of(["a"], b"http://a.org/")


@pytest.mark.parametrize("columns", [{}, {"depth": 1, "name": "x"}])
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda batch: pickle.loads(pickle.dumps(batch))])
def test_a_batch_can_be_copied_and_sent_to_another_process(columns, copied):
    batch = batch_of(*SOME, "http://u@[::1]/", **columns)
    other = copied(batch)
    assert (batch, batch.fingerprints(KEY).tolist()) == (other, other.fingerprints(KEY).tolist())
    assert [False] * (1 + len(columns)) == [array.flags.writeable for array in (other.valid, *other.columns.values())]


def test_iterating_over_a_batch_makes_only_the_requested_strings():
    batch = UrlBatch.of([f"http://a.org/{row}" for row in range(200_000)])
    tracemalloc.start()
    first = next(iter(batch))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert ("http://a.org/0", True) == (first, peak < 1_000_000)
    assert batch.strings() == list(batch)


@pytest.mark.parametrize("key", [16, "k" * 16, None, [0] * 16])
def test_a_key_that_is_not_bytes_is_refused(key):
    batch = batch_of(*SOME)
    batch.fingerprints()
    with pytest.raises(TypeError, match="a fingerprint key is 16 bytes"):
        batch.fingerprints(key)


def test_removing_the_columns_restores_the_batch():
    batch = batch_of(*SOME)
    assert (batch, True) == (batch.with_columns(depth=1).without_columns(), batch.without_columns() is batch)


# ---------------------------------------------------------------------------------------------------- bytes, Arrow


@given(URLS, BASES)
def test_one_buffer_makes_the_batch_of_its_texts(urls, base):
    octets = [url.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode() for url in urls]
    offsets = np.cumsum([0, *map(len, octets)], dtype=np.int64)
    expected = UrlBatch.of([one.decode() for one in octets], base, key=KEY)
    for wrap in (bytes, bytearray, memoryview):
        assert expected == UrlBatch.from_buffers(wrap(b"".join(octets)), offsets, base, key=KEY)


@pytest.mark.parametrize("offsets", [np.zeros(0, np.int64), np.zeros((1, 2), np.int64), np.int64(3)])
@pytest.mark.parametrize("base", [None, "nonsense"])
def test_offsets_that_are_not_a_row_of_numbers_are_refused(offsets, base):
    with pytest.raises(ValueError, match="one row of numbers"):
        UrlBatch.from_buffers(b"http://a", offsets, base)


def test_offsets_outside_their_buffer_are_refused():
    with pytest.raises(ValueError, match="row 0: a span from 0 to 9 lies outside 3 bytes"):
        UrlBatch.from_buffers(b"abc", np.array([0, 9], dtype=np.int64))


class FakeArrow:
    """An Arrow array of texts as another library would pass it: two structures in capsules."""

    def __init__(self, texts, *, layout=b"u", offset=0, dictionary=None):
        octets = [b"" if text is None else text if isinstance(text, bytes) else text.encode() for text in texts]
        width = np.int64 if layout in b"UZ" else np.int32
        self.ends = np.cumsum([0, *map(len, octets)], dtype=np.int64).astype(width)
        self.data = np.frombuffer(b"".join(octets) or b"\0", dtype=np.uint8)
        self.bits = np.packbits(np.array([text is not None for text in texts], dtype=bool), bitorder="little")
        nulls = sum(text is None for text in texts[offset:])
        pointers = (ctypes.c_void_p * 3)(
            self.bits.ctypes.data if nulls else None, self.ends.ctypes.data, self.data.ctypes.data
        )
        self.pointers = pointers
        self.schema = (ctypes.c_void_p * 9)()
        self.layout = ctypes.create_string_buffer(layout)
        self.schema[0], self.schema[6] = ctypes.addressof(self.layout), dictionary
        self.array = (ctypes.c_int64 * 10)(
            len(texts) - offset, nulls, offset, 3, 0, ctypes.addressof(pointers), 0, 0, 0, 0
        )

    def __arrow_c_array__(self, requested_schema=None):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return (
            new(ctypes.addressof(self.schema), b"arrow_schema", None),
            new(ctypes.addressof(self.array), b"arrow_array", None),
        )


@pytest.mark.parametrize("layout", [b"u", b"U", b"z", b"Z"])
@given(urls=URLS, base=BASES)
def test_an_arrow_array_makes_the_batch_of_its_texts(layout, urls, base):
    urls = [url.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for url in urls]
    assert UrlBatch.of(urls, base, key=KEY) == UrlBatch.from_arrow(FakeArrow(urls, layout=layout), base, key=KEY)


@pytest.mark.parametrize("base", [None, "http://a.org/", "nonsense"])
def test_a_null_is_invalid_and_no_empty_reference(base):
    given_rows = ["http://b/", None, "x"]
    assert UrlBatch.of(given_rows, base) == UrlBatch.from_arrow(FakeArrow(given_rows), base)


@pytest.mark.parametrize("texts", [["a", "http://b/", "c", "http://d/"], [None, "http://b/", None, "http://d/"]])
def test_an_arrow_array_may_begin_inside_its_buffers(texts):
    assert UrlBatch.of(texts[1:]) == UrlBatch.from_arrow(FakeArrow(texts, offset=1))


def test_an_empty_arrow_array_is_an_empty_batch():
    assert UrlBatch.of([]) == UrlBatch.from_arrow(FakeArrow([]))


def test_broken_bytes_become_replacement_characters():
    assert ["http://a/%EF%BF%BD"] == list(UrlBatch.from_arrow(FakeArrow([b"http://a/\xff"], layout=b"z")))


@pytest.mark.parametrize("fake", [FakeArrow(["a"], layout=b"l"), FakeArrow(["a"], dictionary=1)])
def test_an_arrow_array_of_another_type_is_refused(fake):
    with pytest.raises(TypeError, match="contains no plain texts: cast it to large_utf8"):
        UrlBatch.from_arrow(fake)


def test_a_value_that_is_not_an_arrow_array_is_refused():
    with pytest.raises(TypeError, match=r"a list is not an Arrow array: it has no __arrow_c_array__$"):
        UrlBatch.from_arrow([])


def test_an_arrow_stream_is_refused_with_the_way_out():
    chunked = type("ChunkedArray", (), {"__arrow_c_stream__": None})()
    with pytest.raises(TypeError, match="of an array in chunks give each chunk"):
        UrlBatch.from_arrow(chunked)
