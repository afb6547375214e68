"""SimHash: values of similar texts are near, values of different texts far apart."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.page import read, simhash, simhash_of_text

WORDS = [f"word{number}" for number in range(1_000)]


def of_text(text: str) -> int:
    return simhash_of_text(text.encode("utf-8", "replace"))[0]


def distance(one: str, other: str) -> int:
    return (of_text(one) ^ of_text(other)).bit_count()


@pytest.mark.parametrize("text", ["", " \n", "... --- !?"])
def test_a_text_without_words_is_zero(text: str) -> None:
    assert 0 == of_text(text)


def test_the_value_of_a_text_never_changes() -> None:
    """Fixed, because fingerprints of pages are stored for years."""
    assert [0xD434A7A465D9C379, 0x65100378C01389D5] == [of_text("Word!"), of_text("A rose is a rose is a rose")]


def test_word_order_counts_but_case_and_punctuation_do_not() -> None:
    assert 0 == distance("One two, three", "one TWO (three)")
    assert 0 < distance("one two three", "two one three")


def test_one_word_of_a_thousand_changes_few_bits() -> None:
    assert distance(" ".join(WORDS), " ".join([*WORDS[:-1], "changed"])) <= 3


def test_texts_of_the_same_words_in_another_order_are_far_apart() -> None:
    assert distance(" ".join(WORDS), " ".join(reversed(WORDS))) >= 16


def test_a_frequent_feature_has_no_greater_weight() -> None:
    menu = " ".join(f"menu{number}" for number in range(40)) + " "
    one, other = " ".join(WORDS[:400]), " ".join(WORDS[400:800])
    assert distance(menu * 50 + one, menu * 50 + other) >= 10


@given(st.text(max_size=200))
def test_the_hash_of_any_text_has_64_bits(text: str) -> None:
    assert 0 <= of_text(text) < 1 << 64


def test_features_are_hashes_or_hashes_with_weights() -> None:
    assert [0, 6, 6, 1] == [simhash(()), simhash([6]), simhash([(6, 2.5), (1, 1)]), simhash([(6, -1), (1, 1)])]
    with pytest.raises(OverflowError):
        simhash([1 << 64])


@pytest.mark.conformance
def test_the_vectors_of_other_implementations_are_reproduced(shared: Path) -> None:
    def md5(text: str) -> int:
        return int.from_bytes(hashlib.md5(text.encode()).digest()[-8:], "big")

    wrong, cases = [], 0
    for line in (shared / "data/simhash/vectors.jsonl").read_text().splitlines():
        case = json.loads(line)
        if "hashes" in case:
            features: list[int | tuple[int, float]] = list(case["hashes"])
        elif "features" in case:
            features = [(md5(name), weight) for name, weight in case["features"]]
        elif "text" in case:
            text = "".join(re.findall(r"[\w\u4e00-\u9fcc]+", case["text"].lower()))
            grams = [text[at : at + 4] for at in range(max(len(text) - 3, 1))]
            features = [(md5(gram), grams.count(gram)) for gram in dict.fromkeys(grams)]
        else:
            one, other = case["a"], case["b"]
            assert case["expected"] == (one ^ other).bit_count()
            continue
        cases += 1
        if simhash(features) != case["expected"]:
            wrong.append(case)
    assert (True, []) == (cases >= 11, wrong)


def test_the_digest_of_a_page_changes_only_with_its_content():
    says = "<p>Here is a paragraph that says something which is worth a visit of its own.</p>"
    page = "<ul><li><a href=/>Home</a><li>{0}</ul>{1}<footer>Visitors: {2}, at {2}:17</footer>"
    first, later, other = (
        read(page.format(*told).encode(), "http://a.test/").text_digest
        for told in (
            ("News", says, 12),
            ("<b>Other news</b>", says, 1_345),
            ("News", says.replace("is a", "is no"), 12),
        )
    )
    assert (True, True) == (first == later, first != other)
    assert 0 == read(b"<img src=x>", "http://a.test/").text_digest
