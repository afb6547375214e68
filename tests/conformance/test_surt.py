"""SURT against foreign vectors: Heritrix' own, and those of the same form elsewhere (`../shared/data/url/surt`)."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from outrider.errors import InvalidUrlError
from outrider.url import normalize, spell, surt, surt_as_written

pytestmark = pytest.mark.conformance

SAME_FORM: dict[str, tuple[int, Callable[[str], str]]] = {
    "heritrix-surt": (6, surt_as_written),
    "urlcanon-ssurt:surt": (5, partial(surt_as_written, userinfo=False)),
    "urlcanon-ssurt:surtWithoutScheme": (2, partial(surt_as_written, userinfo=False, scheme=False)),
    "urlcanon-ssurt:surtWithoutTrailingComma": (2, partial(surt_as_written, userinfo=False, trailing_comma=False)),
}
"""The sets of Heritrix' form, how many vectors each has, and what answers them."""
OTHER_FORMS = {
    # Port and scheme after the host, and the functions it is made of.
    *("urlcanon-ssurt:ssurt", "urlcanon-ssurt:ssurtHost", "urlcanon-ssurt:reverseHost"),
    # Keys and canonical forms that first merge URLs by lossy rules of their own.
    *("wayback-urlkey", "urlcanon-surt:defaultIASurt", "urlcanon-surt:Canonicalizer.DefaultIA"),
    *("urlcanon-surt:Canonicalizer.IA", "urlcanon-surt:google", "urlcanon-surt:googleSupplementalFromSurt"),
    *("urlcanon-surt:massageHost", "urlcanon-surt:stripPathSessionId", "urlcanon-surt:unescapeRepeatedly"),
    "urlcanon-surt:alphaRorderQuery",
}
"""The sets that are something else by design."""


@pytest.fixture(scope="module")
def vectors(shared: Path) -> dict[str, list[tuple[str, str]]]:
    sets: dict[str, list[tuple[str, str]]] = {}
    for line in (shared / "data/url/surt/surt.jsonl").read_text("utf-8").splitlines():
        case = json.loads(line)
        sets.setdefault(case["set"], []).append((case["input"], case["expected"]))
    return sets


@pytest.mark.parametrize("name", SAME_FORM)
def test_every_vector_of_the_form_has_its_surt(vectors: dict[str, list[tuple[str, str]]], name: str) -> None:
    count, answer = SAME_FORM[name]
    assert count == len(vectors[name])
    assert [expected for _, expected in vectors[name]] == [answer(text) for text, _ in vectors[name]]


def test_every_set_is_of_this_form_or_another_by_design(vectors: dict[str, list[tuple[str, str]]]) -> None:
    assert set(vectors) == set(SAME_FORM) | OTHER_FORMS


def test_heritrix_vectors_that_are_canonical_are_the_surt_of_the_url(
    vectors: dict[str, list[tuple[str, str]]],
) -> None:
    canonical = [(text, expected) for text, expected in vectors["heritrix-surt"] if spell([text]) == [text]]
    assert 4 == len(canonical)
    assert [expected for _, expected in canonical] == [surt(text) for text, _ in canonical]


def test_the_surt_of_any_vectors_input_is_that_of_its_canonical_spelling(
    vectors: dict[str, list[tuple[str, str]]],
) -> None:
    for text, _ in (pair for pairs in vectors.values() for pair in pairs):
        try:
            canonical = normalize(text)
        except InvalidUrlError:
            continue
        assert surt(text) == surt_as_written(canonical)
