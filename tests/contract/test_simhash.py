"""The contract of the SimHash of a text, for the native build and its plain twin."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.kinds import NATIVE, WITHOUT_NATIVE, both
from outrider.kernels import simhash as twin
from outrider.kernels.siphash import fingerprints

BOTH = both(twin)
KEY = bytes(range(16))
WHITE = [chr(point) for point in range(0x80, sys.maxunicode + 1) if chr(point).isspace()]


def hash_of(word):
    return int.from_bytes(fingerprints([word], KEY), "little")


@BOTH
def test_the_definition_counted_bit_by_bit(kernel):
    weights = {"one": 300, "two": 200, "three": 101}
    expected = 0
    for bit in range(64):
        heavy = sum(weight for word, weight in weights.items() if hash_of(word) >> bit & 1)
        expected |= (2 * heavy > sum(weights.values())) << bit
    text = " ".join(word for word, weight in weights.items() for _ in range(weight))
    assert expected == kernel.simhash_of_words(text.encode(), KEY, 1_000)


@BOTH
@pytest.mark.parametrize("parting", [chr(point) for point in range(0x80) if not chr(point).isalnum()] + WHITE)
def test_what_parts_words(kernel, parting):
    expected = kernel.simhash_of_words(b"one two two", KEY, 9)
    assert expected == kernel.simhash_of_words(f"{parting}one{parting}{parting}two{parting}two".encode(), KEY, 9)


@BOTH
@pytest.mark.parametrize("text", ["Wörter", "naïve\u200bty", "\u2013", "9", "A", "日本", "\u3001", "\u2030"])
def test_other_characters_belong_to_words_as_they_are(kernel, text):
    assert hash_of(text) == kernel.simhash_of_words(text.encode(), KEY, 9)


@BOTH
def test_no_more_words_count_than_asked_for(kernel):
    assert kernel.simhash_of_words(b"a b", KEY, 9) == kernel.simhash_of_words(b" a b c", KEY, 2)
    assert 0 == kernel.simhash_of_words(b"a b c", KEY, 0)
    with pytest.raises(ValueError, match="-1 words"):
        kernel.simhash_of_words(b"a", KEY, -1)


@BOTH
def test_a_text_without_words_is_zero(kernel):
    assert [0, 0] == [kernel.simhash_of_words(text, KEY, 9) for text in (b"", " .\u2003\u3000-".encode())]


@BOTH
def test_a_key_of_another_size_is_refused(kernel):
    with pytest.raises(ValueError, match="16 bytes, not 3"):
        kernel.simhash_of_words(b"a", b"key", 9)


@BOTH
def test_any_buffer_will_do(kernel):
    assert kernel.simhash_of_words(b"one two", KEY, 9) == kernel.simhash_of_words(
        memoryview(bytearray(b"one two")), bytearray(KEY), 9
    )


PIECES = [
    *(b"a", b"bc", b"Z9", b" ", b"\n", b"\xc2\xa0", b"\xe2\x80\x83"),
    *(b"\xe2\x80", b"\xe3", b"\xc2", b"\x80", b"\xff"),
]


@WITHOUT_NATIVE
@given(st.lists(st.sampled_from(PIECES), max_size=900), st.integers(0, 400))
def test_both_agree_on_any_octets(pieces, words_max):
    text = b"".join(pieces)
    assert twin.simhash_of_words(text, KEY, words_max) == NATIVE.simhash_of_words(text, KEY, words_max)
