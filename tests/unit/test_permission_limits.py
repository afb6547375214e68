"""Bad input about permission: long files and fields are read within limits, and what cannot be read is told."""

from __future__ import annotations

import pytest

from outrider.kernels import robots as twin
from outrider.limits import (
    PREFERENCE_LINES_MAX,
    PREFERENCE_STATEMENTS_MAX,
    PREFERENCE_TEXT_CHARACTERS_MAX,
    ROBOTS_BYTES_MAX,
)
from outrider.robots import Rules, preferences_of, rules

FIELD_BYTES = 64 << 10


def test_four_mebibytes_of_statements_are_read_within_limits():
    line = b"Content-Usage: /%06d train-ai=n\n"
    body = b"User-agent: *\nDisallow: /no\n" + b"".join(line % number for number in range(ROBOTS_BYTES_MAX // 33))
    found = Rules.parse(body).of("Outrider")
    assert (True, False) == (found.allowed("http://a.test/000001"), found.allowed("http://a.test/no"))
    assert {"train-ai": "n"} == preferences_of(found.about_uses("http://a.test/000001")).uses
    beyond = f"http://a.test/{PREFERENCE_LINES_MAX + 1:06d}"
    assert ({}, True) == (preferences_of(found.about_uses(beyond)).uses, found.memory_bytes < 1 << 20)


@pytest.mark.parametrize("kernel", ["as installed", "twin"])
def test_many_lines_of_one_path_are_told_in_bounds_with_all_their_answers(kernel, monkeypatch):
    if kernel == "twin":
        monkeypatch.setattr(rules, "RobotsText", twin.RobotsText)
    lines = b"Content-Usage: / search=y\n" * 500 + b"Content-Usage: / train-ai=n\n"
    said = Rules.parse(b"User-agent: *\n" + lines).about_uses("Outrider", "http://a.test/x")
    assert {"train-ai": "n", "search": "y"} == said.uses
    assert len(said.said) <= PREFERENCE_STATEMENTS_MAX


@pytest.mark.parametrize("name", ["content-usage", "content-signal", "tdm-reservation"])
def test_a_field_of_64_kib_says_nothing_and_is_told_with_its_beginning(name):
    (said,) = preferences_of((), [(name, "train-ai=n, " * (FIELD_BYTES // 12))]).said
    assert ({}, True) == (said.uses, bool(said.fault))
    assert len(said.text) <= PREFERENCE_TEXT_CHARACTERS_MAX


@pytest.mark.parametrize("value", ["train-ai", "train-ai=n,", "Train-AI=n", "train-ai = n", "1=n", "tr\u00e4in=n", '"'])
def test_a_dictionary_that_does_not_parse_is_told_with_its_line(value):
    body = f"User-agent: *\nContent-Usage: {value}\n".encode()
    (said,) = Rules.parse(body).about_uses("Outrider", "http://a.test/x").said
    assert ({}, 2) == (said.uses, said.line)
