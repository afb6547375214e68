"""The contract of the open leases, for the native build and its plain twin."""

from __future__ import annotations

import struct
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.kinds import MANY, WITHOUT_NATIVE, both, i64, longest, native_of, tokens, too_long, u32, u64
from outrider.kernels.card_layout import HEAD
from outrider.kernels.leases import Leases as Twin

NATIVE = native_of(Twin)
BOTH = both(Twin)


def cards(fingerprints, bodies):
    heads = b"".join(struct.pack("<Q", fingerprint) + bytes([7] * 64) for fingerprint in fingerprints)
    return heads, b"".join(bodies), i64(*np.cumsum([0, *map(len, bodies)]))


def opened(kernel, first=10, queues=(1, 2, 3), deadline=100, holder=5, fingerprints=(71, 72, 73)):
    leases = kernel()
    bodies = [b"http://a/", b"", b"http://c/long"][: len(queues)]
    leases.open(first, u32(*queues), deadline, holder, i64(*range(len(queues))), *cards(fingerprints, bodies))
    return leases


def unpacked(columns):
    found, queues, deadlines, holders, not_before, heads, arena, offsets = columns
    count = len(found)
    ends = struct.unpack(f"<{count + 1}q", offsets)
    return list(
        zip(
            found,
            struct.unpack(f"<{count}I", queues),
            struct.unpack(f"<{count}q", deadlines),
            struct.unpack(f"<{count}I", holders),
            struct.unpack(f"<{count}q", not_before),
            np.frombuffer(heads, HEAD)["fingerprint"].tolist(),
            [arena[start:end] for start, end in pairwise(ends)],
            strict=True,
        )
    )


NOTHING = (0, 0, 0, 0, 0, 0, b"")


@BOTH
def test_a_lease_returns_the_values_it_was_opened_with(kernel):
    leases = opened(kernel)
    expected = [(1, 3, 100, 5, 2, 73, b"http://c/long"), NOTHING, (1, 1, 100, 5, 0, 71, b"http://a/")]
    assert expected == unpacked(leases.get(u64(12, 99, 10)))
    assert (b"\1\0\1", 3) == (leases.find(u64(12, 99, 10)), len(leases))


@BOTH
def test_a_lease_that_is_not_open_has_zeros_and_no_body(kernel):
    assert bytes(72) == kernel().get(u64(1))[5]


@BOTH
def test_bodies_stay_until_they_are_requested(kernel):
    leases = opened(kernel)
    whole, bare = unpacked(leases.get(u64(10, 99))), unpacked(leases.get(u64(10, 99), False))
    assert [(*row[:-1], b"") for row in whole] == bare
    assert b"http://a/" == whole[0][-1]


@BOTH
def test_leases_end_without_their_cards(kernel):
    leases = opened(kernel)
    found, queues = leases.end(u64(11, 11, 12))
    assert (b"\1\0\1", [2, 0, 3]) == (found, np.frombuffer(queues, np.uint32).tolist())
    assert [10] == tokens(leases.tokens())


@BOTH
def test_a_closed_lease_is_given_once(kernel):
    leases = opened(kernel)
    expected = [(1, 2, 100, 5, 1, 72, b""), NOTHING]
    assert expected == unpacked(leases.close(u64(11, 11)))
    assert ([10, 12], [10, 12], [0]) == (
        tokens(leases.tokens()),
        tokens(leases.of_holder(5)),
        tokens(leases.find_urls(u64(72))),
    )


@BOTH
def test_expired_leases_are_reported_until_they_are_closed_or_extended(kernel):
    leases = opened(kernel)
    leases.open(7, u32(9), 90, 6, i64(0), *cards([1], [b"x"]))
    said = [tokens(leases.expire(99, 9)), tokens(leases.expire(100, 3)), tokens(leases.expire(100, 9))]
    assert [[7], [7, 10, 11], [7, 10, 11, 12]] == said
    leases.close(u64(7))
    assert b"\1\0\1" == leases.extend(u64(10, 7, 12), 200)
    assert ([11], 100) == (tokens(leases.expire(199, 9)), leases.next())


@BOTH
def test_next_is_the_earliest_deadline_of_an_open_lease(kernel):
    leases = opened(kernel)
    said = [kernel().next(), leases.next()]
    leases.extend(u64(10, 11, 12), 50)
    said.append(leases.next())
    leases.extend(u64(10), 10)
    leases.close(u64(10))
    said.append(leases.next())
    leases.close(u64(11, 12))
    assert [-1, 100, 50, 50, -1] == [*said, leases.next()]


@BOTH
def test_the_lowest_token_of_a_url_is_found(kernel):
    leases = opened(kernel, fingerprints=(71, 2**64 - 1, 71))
    assert [10, 11, 0] == tokens(leases.find_urls(u64(71, 2**64 - 1, 5)))
    leases.close(u64(10))
    assert [12] == tokens(leases.find_urls(u64(71)))


@BOTH
def test_leases_are_known_by_their_holder(kernel):
    leases = opened(kernel)
    leases.open(2, u32(9), 90, 6, i64(0), *cards([1], [b"x"]))
    leases.open(4, u32(8), 90, 5, i64(0), *cards([1], [b"x"]))
    assert ([4, 10, 11, 12], [2], []) == tuple(tokens(leases.of_holder(holder)) for holder in (5, 6, 7))


@BOTH
def test_heads_may_be_a_structured_array(kernel):
    leases = kernel()
    heads = np.zeros(1, HEAD)
    heads["fingerprint"] = 77
    leases.open(1, u32(0), 5, 0, i64(0), heads, np.frombuffer(b"abc", np.uint8), i64(1, 3))
    assert [(1, 0, 5, 0, 0, 77, b"bc")] == unpacked(leases.get(u64(1)))


@BOTH
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"first_token": 0}, "2 tokens from 0 on"),
        ({"first_token": 2**64 - 1}, "2 tokens from 18446744073709551615 on"),
        ({"first_token": 9}, "token 10 is open already"),
        ({"queues": u32(1)}, "1 queues and 2 not_before"),
        ({"queues": u32(1, 2**32 - 1)}, "queues: at 1 stands"),
        ({"deadline": -1}, "deadline: -1 lies before 1970"),
        ({"holder": 2**32}, "holder is a u32"),
        ({"heads": bytes(72)}, "2 queues and 1 heads"),
        ({"heads": bytes(71)}, "heads: 71 bytes"),
        ({"offsets": i64(0, 1)}, "2 queues take 3 offsets, not 2"),
        ({"offsets": i64(0, 1, 4)}, "row 1: a span from 1 to 4 lies outside 3 bytes"),
        ({"offsets": i64(1, 0, 3)}, "row 0: a span from 1 to 0"),
    ],
)
def test_a_refused_call_opens_nothing(kernel, changed, message):
    leases = opened(kernel)
    given_ = {
        "first_token": 20,
        "queues": u32(1, 2),
        "deadline": 5,
        "holder": 1,
        "not_before": i64(0, 0),
        "heads": bytes(144),
        "arena": b"abc",
        "offsets": i64(0, 1, 3),
    }
    with pytest.raises(ValueError, match=message):
        leases.open(**(given_ | changed))
    assert [10, 11, 12] == tokens(leases.tokens())


def test_the_twin_keeps_no_deadlines_of_ended_leases():
    leases = Twin()
    for token in range(1, 2000):
        leases.open(token, u32(1), 10**9 - token, 1, i64(0), *cards([token], [b"x"]))
        leases.close(u64(token))
    assert len(leases._heap) < 100


tokens_drawn = st.integers(1, 30)
instants_drawn = st.one_of(st.integers(0, 20), st.just(2**62))
prints_drawn = st.integers(0, 5)
acts = st.one_of(
    st.tuples(
        st.just("open"),
        tokens_drawn,
        st.lists(st.tuples(st.integers(0, 9), prints_drawn, st.binary(max_size=3)), max_size=4),
        instants_drawn,
        st.integers(0, 2),
    ),
    st.tuples(st.just("close"), st.lists(tokens_drawn, max_size=6)),
    st.tuples(st.just("end"), st.lists(tokens_drawn, max_size=6)),
    st.tuples(st.just("get"), st.lists(tokens_drawn, max_size=6)),
    st.tuples(st.just("extend"), st.lists(tokens_drawn, max_size=6), instants_drawn),
    st.tuples(st.just("expire"), instants_drawn, st.integers(0, 5)),
)


def answer_of(leases, act, given_):
    try:
        if act == "open":
            first, rows, deadline, holder = given_
            queues, prints, bodies = [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]
            return leases.open(first, u32(*queues), deadline, holder, i64(*prints), *cards(prints, bodies))
        if act == "extend":
            return leases.extend(u64(*given_[0]), given_[1])
        if act == "expire":
            return leases.expire(*given_)
        return getattr(leases, act)(u64(*given_[0]))
    except ValueError as error:
        return str(error)


@WITHOUT_NATIVE
@given(history=st.lists(acts, max_size=30))
def test_twin_and_kernel_agree_on_every_history(history):
    twin, native = Twin(), NATIVE()
    for act, *given_ in history:
        assert answer_of(twin, act, given_) == answer_of(native, act, given_)
        for said in (
            len,
            lambda leases: leases.next(),
            lambda leases: leases.tokens(),
            lambda leases: [leases.of_holder(holder) for holder in range(4)],
            lambda leases: leases.find_urls(u64(*range(7))),
            lambda leases: leases.find(u64(*range(40))),
        ):
            assert said(twin) == said(native)


def a_million_open():
    leases = NATIVE()
    random = np.random.default_rng(1)
    queues, zeros, arena = np.arange(1000, dtype=np.uint32), np.zeros(1000, np.int64), bytes(40_000)
    offsets = np.arange(1001, dtype=np.int64) * 40
    heads = np.zeros((MANY // 1000, 1000), HEAD)
    heads["fingerprint"] = random.integers(0, 2**64, heads.shape, np.uint64)
    named = (random.permutation(MANY).astype(np.uint64) + np.uint64(1)).reshape(-1, 1000)
    return {
        "open": longest(
            (lambda r=r: leases.open(1 + 1000 * r, queues, 10**6 + r, r % 7, zeros, heads[r], arena, offsets))
            for r in range(len(heads))
        ),
        "expire": longest((lambda: leases.expire(10**7, 1000)) for _ in range(100)),
        "none expired": longest((lambda: leases.expire(1, 1000)) for _ in range(100)),
        "find": longest((lambda r=r: leases.find_urls(heads["fingerprint"][r].copy())) for r in range(100)),
        "extend": longest((lambda r=r: leases.extend(named[r], 10**8 + r)) for r in range(100)),
        "close": longest((lambda r=r: leases.close(named[r])) for r in range(100, 200)),
    }


@WITHOUT_NATIVE
def test_no_call_of_a_thousand_delays_a_million_open_leases():
    assert {} == too_long(a_million_open)
