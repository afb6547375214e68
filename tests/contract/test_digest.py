"""The contract of the digest of what a page says, for the native build and its plain twin."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.kinds import NATIVE, WITHOUT_NATIVE, both
from outrider.kernels import digest as twin
from outrider.kernels.siphash import hash_messages

BOTH = both(twin)
KEY = bytes(range(16))
LONG = b"a block that has more words than menus and footers have"


def hash_of(octets: bytes) -> int:
    return int.from_bytes(hash_messages([octets], KEY), "little")


@BOTH
def test_it_is_the_hash_of_the_words_of_long_blocks(kernel):
    assert hash_of(LONG + b" ") == kernel.text_digest(b"Home\n" + LONG + b"\nAbout us", KEY, 5)
    assert hash_of(LONG + b" " + LONG + b" ") == kernel.text_digest(LONG + b"\n\n" + LONG, KEY, 5)


@BOTH
def test_words_with_digits_and_white_space_do_not_count(kernel):
    told = LONG.replace(b" ", b" \t\x0b\x0c\r ", 3) + b" 17 3rd v2.0 1,234 2026-11-24"
    assert hash_of(LONG + b" ") == kernel.text_digest(told, KEY, 5)
    assert hash_of(b"on a \xd9\xa3 ") == kernel.text_digest(b"on a \xd9\xa3", KEY, 3), "digits of ASCII alone"


@BOTH
def test_a_block_is_long_by_the_words_that_count(kernel):
    assert hash_of(b"one two three ") == kernel.text_digest(b"1 2 3 four\none two three", KEY, 3)


@BOTH
def test_a_text_of_short_blocks_counts_whole(kernel):
    assert hash_of(b"Home About us ") == kernel.text_digest(b"Home\nAbout us\n17", KEY, 10)
    assert hash_of(b"Home ") == kernel.text_digest(b"Home", KEY, 2**40)


@BOTH
@pytest.mark.parametrize("text", [b"", b" \n\t\n", b"17 18\n19", memoryview(b"")])
def test_a_text_without_words_has_no_digest(kernel, text):
    assert [0, 0] == [kernel.text_digest(text, KEY, words) for words in (0, 10)]


@BOTH
def test_other_arguments_are_refused(kernel):
    with pytest.raises(ValueError, match="-1 words are fewer than none"):
        kernel.text_digest(b"a", KEY, -1)
    with pytest.raises(ValueError, match="key"):
        kernel.text_digest(b"a", b"short", 1)


@WITHOUT_NATIVE
@given(
    st.lists(st.sampled_from([b"a", b"bc", b"1", b"x9", b" ", b"\n", b"\r", b"\x0b", b"\x1c", b"\xc2\xa0"])),
    st.integers(0, 4),
)
def test_both_say_the_same(parts, words_min):
    text = b"".join(parts)
    assert twin.text_digest(text, KEY, words_min) == NATIVE.text_digest(text, KEY, words_min)


@WITHOUT_NATIVE
@given(st.binary(max_size=300), st.binary(min_size=16, max_size=16))
def test_both_say_the_same_of_any_bytes(text, key):
    assert twin.text_digest(text, key, 3) == NATIVE.text_digest(text, key, 3)
