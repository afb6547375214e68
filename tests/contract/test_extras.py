"""The contract of the last parts of cards' bodies, for the native build and its plain twin."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.kinds import NATIVE, U64_MAX, WITHOUT_NATIVE, both, i64, u64
from outrider.frontier.format.card_records import CARD_FIELDS, EMPTY, KeptFields, extra_of, parts_of
from outrider.kernels import extras, siphash
from outrider.kernels.card_layout import HEAD

BOTH = both(extras)
KEY = bytes(range(16))
ARENA = b"..http://a.com/http://a.com/refold"
NONE = (b"", "", "", b"")
FIELDS = "d:bytes t:str l:str m:bytes"


def heads_of(*lengths, flags=0):
    """Heads of cards; lengths: bytes of URL and referrer."""
    heads = np.zeros(len(lengths), HEAD)
    heads["fingerprint"] = U64_MAX
    heads["url_bytes"], heads["referrer_bytes"] = zip(*lengths, strict=True)
    heads["extra_bytes"], heads["flags"] = 3, flags
    return heads


def made(kernel, heads, starts, *values, contents=None, arena=ARENA):
    """Heads and bodies. values: (digest, etag, modified, metadata) of each card."""
    columns = tuple(map(list, zip(*values, strict=True)))
    answer = kernel.with_extras(heads, arena, i64(*starts), FIELDS, columns, u64(*contents or [0] * len(starts)), KEY)
    offsets = np.frombuffer(answer[2], np.int64).tolist()
    assert (0, len(answer[1])) == (offsets[0], offsets[-1])
    bodies = [answer[1][first:last] for first, last in pairwise(offsets)]
    return np.frombuffer(answer[0], HEAD), bodies


@BOTH
def test_a_card_keeps_url_and_referrer_and_gets_the_reported_values(kernel):
    heads, bodies = made(kernel, heads_of((13, 16)), [2], (b"digest", '"e"', "Mon", b"{}"))
    content = siphash.fingerprints(["digest"], KEY)
    told = b'\x84\xa1d\xc4\x06digest\xa1t\xa3"e"\xa1l\xa3Mon\xa1m\xc4\x02{}'
    assert [ARENA[2:31] + content + told] == bodies
    assert (8 + len(told), 1, U64_MAX) == tuple(heads[0][["extra_bytes", "flags", "fingerprint"]].tolist())


@BOTH
def test_absent_values_use_no_bytes(kernel):
    starts, lengths = [0, 15, 2], [(2, 0), (0, 0), (0, 13)]
    heads, bodies = made(
        kernel, heads_of(*lengths, flags=2), starts, NONE, (b"", "e", "", b""), NONE, contents=[0, 0, 7]
    )
    assert [b"..", b"\x81\xa1t\xa1e", ARENA[2:15] + u64(7).tobytes()] == bodies
    assert [0, 5, 8] == heads["extra_bytes"].tolist()
    assert [2, 2, 3] == heads["flags"].tolist()


@BOTH
def test_a_digest_of_any_bytes_is_hashed_as_characters_and_counts_before_the_content_given(kernel):
    digest = bytes(range(256))
    _, (body,) = made(kernel, heads_of((0, 0)), [0], (digest, "", "", b""), contents=[9])
    assert siphash.fingerprints([digest.decode("latin-1")], KEY) == body[:8]
    assert {"d": digest} == msgspec.msgpack.decode(body[8:])


@BOTH
@pytest.mark.parametrize("size", [1, 31, 32, 255, 256, 65_535, 65_536])
def test_every_length_is_packed_as_msgpack_has_it(kernel, size):
    values = (b"d" * size, "é" * (size // 2) + "e" * (size % 2), "l" * size, b"m" * size)
    _, (body,) = made(kernel, heads_of((0, 0)), [0], values)
    assert msgspec.msgpack.encode(dict(zip("dtlm", values, strict=True))) == body[8:]


@BOTH
@pytest.mark.parametrize("count", [14, 15, 16, 25])
def test_fields_are_packed_under_the_letters_that_the_call_declares(kernel, count):
    letters = "abcefghijklmnopqrstuvwxyz"[:count]
    fields = "d:bytes " + " ".join(f"{one}:{'str' if more % 2 else 'bytes'}" for more, one in enumerate(letters))
    columns = ([b""], *([str(more)] if more % 2 else [b"%d" % more] for more in range(count)))
    answer = kernel.with_extras(heads_of((0, 0)), b"", i64(0), fields, columns, u64(0), KEY)
    names = [one[0] for one in fields.split()]
    assert {name: column[0] for name, column in zip(names, columns, strict=True) if column[0]} == (
        msgspec.msgpack.decode(answer[1])
    )
    assert answer[1] == msgspec.msgpack.encode(msgspec.msgpack.decode(answer[1]))


@BOTH
def test_without_cards_there_are_no_rows(kernel):
    assert (b"", b"", bytes(8)) == kernel.with_extras(b"", b"", b"", FIELDS, ([], [], [], []), b"", KEY)


@BOTH
@pytest.mark.parametrize(
    ("of", "error", "words"),
    [
        ({"starts": i64(0)}, ValueError, "2 heads and 1 starts make no rows"),
        ({"contents": u64(0)}, ValueError, "2 heads and 1 contents make no rows"),
        ({"values": ([b""], [""] * 2, [""] * 2, [b""] * 2)}, ValueError, "2 heads and 1 values of d make no rows"),
        ({"values": ([b""] * 2,) * 3}, ValueError, "3 columns of values, not 4"),
        ({"fields": ""}, ValueError, "fields : declare them as d:bytes t:str"),
        ({"fields": "t:str d:bytes"}, ValueError, "fields t:str d:bytes: .* digests first"),
        ({"fields": "d:bytes d:str l:str m:bytes"}, ValueError, "each letter once"),
        ({"fields": "d:bytes  t:str l:str m:bytes"}, ValueError, "fields d:bytes  t:str"),
        ({"fields": "d:bytes té:str l:str m:bytes"}, ValueError, "fields d:bytes té:str"),
        ({"fields": "d:bytes t:int l:str m:bytes"}, ValueError, "t:int"),
        ({"fields": "d:bytes " + " ".join(f"{one}:str" for one in "abcd")}, ValueError, "each letter once"),
        ({"fields": "d:bytes t:str"}, ValueError, "4 columns of values, not 2"),
        ({"fields": b"d:bytes"}, TypeError, "a str is asked for, not bytes"),
        ({"fields": "\ud800"}, UnicodeEncodeError, "surrogates not allowed"),
        ({"values": ([""] * 2, [""] * 2, [""] * 2, [b""] * 2)}, TypeError, "a bytes is asked for, not str"),
        ({"values": ([b""] * 2, [""] * 2, [None] * 2, [b""] * 2)}, TypeError, "a str is asked for, not NoneType"),
        ({"values": ([b""] * 2, ["\ud800"] * 2, [""] * 2, [b""] * 2)}, UnicodeEncodeError, "surrogates not allowed"),
        ({"starts": i64(0, len(ARENA) - 1)}, ValueError, "row 1: its body lies outside"),
        ({"starts": i64(0, -1)}, ValueError, "row 1: its body lies outside"),
        ({"starts": i64(0, 2**63 - 1)}, ValueError, "row 1: its body lies outside"),
        ({"heads": np.zeros(2, np.uint64)}, ValueError, "heads are numbers of 72 bytes, not 8"),
        ({"key": b"short"}, ValueError, "a fingerprint key has 16 bytes, not 5"),
    ],
)
def test_columns_that_do_not_fit_are_refused(kernel, of, error, words):
    given = {
        "heads": heads_of((2, 0), (2, 0)), "arena": ARENA, "starts": i64(0, 0), "fields": FIELDS,
        "values": ([b""] * 2, [""] * 2, [""] * 2, [b""] * 2), "contents": u64(0, 0), "key": KEY,
    }  # fmt: skip
    with pytest.raises(error, match=words):
        kernel.with_extras(*(given | of).values())


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
values_drawn = st.tuples(st.binary(max_size=40), texts, texts, st.binary(max_size=300))
card = st.tuples(
    st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.sampled_from([0, 1, U64_MAX]), values_drawn
)


@WITHOUT_NATIVE
@given(cards=st.lists(card, min_size=1, max_size=9), flags=st.integers(0, 255))
def test_twin_and_kernel_agree_on_any_cards(cards, flags):
    urls, referrers, starts, contents, values = zip(*cards, strict=True)
    heads = heads_of(*zip(urls, referrers, strict=True), flags=flags)
    columns = tuple(map(list, zip(*values, strict=True)))
    given_all = (heads, ARENA, i64(*starts), FIELDS, columns, u64(*contents), KEY)
    assert extras.with_extras(*given_all) == NATIVE.with_extras(*given_all)
    assert 3 == heads["extra_bytes"][0], "the heads given stay"


def test_the_fields_of_records_keep_their_letters_and_begin_with_the_digest():
    """Stores contain these letters."""
    assert CARD_FIELDS.startswith(FIELDS)


@BOTH
@pytest.mark.parametrize("count", [1, 2, 15, 16])
def test_a_record_is_packed_as_the_kernel_packs_it(kernel, count):
    """A head has the length of its body, whichever of the two wrote the body."""
    there = dict.fromkeys(list(EMPTY)[-count:], "x")
    kept = KeptFields(**{name: text if EMPTY[name] == "" else text.encode() for name, text in there.items()})
    columns = [[getattr(kept, name)] for name in EMPTY]
    _, body, _ = kernel.with_extras(heads_of((2, 0)), ARENA, i64(0), CARD_FIELDS, columns, u64(5), KEY)
    content = 5 if not kept.digest else int.from_bytes(body[2:10], "little")
    assert body[2:] == extra_of(kept, content)
    assert parts_of(body[2:], 1) == (kept, content)
