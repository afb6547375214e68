"""SimHash: near texts are near, far texts far."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.kernels.siphash import fingerprints
from outrider.page.simhash import simhash_of_text as of_octets


def simhash_of_text(text: str) -> int:
    return of_octets(text.encode("utf-8", "replace"))


WORDS = [f"word{number}" for number in range(1_000)]


def distance(one: str, other: str) -> int:
    return (simhash_of_text(one) ^ simhash_of_text(other)).bit_count()


@pytest.mark.parametrize("text", ["", " \n", "... --- !?"])
def test_a_text_without_words_is_zero(text: str) -> None:
    assert 0 == simhash_of_text(text)


def test_one_word_is_its_own_hash() -> None:
    """The definition, by the plain twin of the hash: pinned, since fingerprints of pages are kept for years."""
    (expected,) = [int.from_bytes(fingerprints(["word"], b"outrider simhash"), "little")]
    assert expected == simhash_of_text("Word!")


def test_a_bit_is_set_where_the_heavier_words_have_it() -> None:
    """The definition again, for three words of different weight, counted bit by bit."""
    weights = {"one": 3, "two": 2, "three": 1}
    sums = [0] * 64
    for word, weight in weights.items():
        value = int.from_bytes(fingerprints([word], b"outrider simhash"), "little")
        for bit in range(64):
            sums[bit] += weight if value >> bit & 1 else -weight
    expected = sum(1 << bit for bit in range(64) if sums[bit] > 0)
    assert expected == simhash_of_text("one two three, one two: one")


def test_order_case_and_punctuation_do_not_count() -> None:
    assert 0 == distance("One two, three", "three TWO (one)")


def test_one_word_of_a_thousand_changes_few_bits() -> None:
    assert distance(" ".join(WORDS), " ".join([*WORDS[:-1], "changed"])) <= 3


def test_texts_without_a_common_word_are_far_apart() -> None:
    assert distance(" ".join(WORDS[:500]), " ".join(WORDS[500:])) >= 16


@given(st.text(max_size=200))
def test_any_text_has_64_bits(text: str) -> None:
    assert 0 <= simhash_of_text(text) < 1 << 64
