"""Docstrings, comments, messages, names of tests and Markdown are plain English, measured by scripts/prose.py."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
OPENINGS_SHARE_MAX = 0.006  # lists and quotations contain a few
PEOPLE_SHARE_MAX = 0.003  # operators and site owners are people
LISTED_SHARE_MAX = 0.06  # two well-written projects have 0.03
DOCS_WORDS_P90_MAX = 24


@pytest.fixture(scope="module")
def prose():
    spec = importlib.util.spec_from_file_location("outrider_prose", PROJECT / "scripts" / "prose.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def sentences(prose):
    return [sentence for path in prose.own_files() for sentence in prose.sentences_of(path)]


def listed(found) -> str:
    return "\n".join(f"{one.path.relative_to(PROJECT)}:{one.line}: {one.text:.200}" for one in found)


def test_sentences_do_not_open_with_what_those_of_or_who(sentences):
    found = [sentence for sentence in sentences if sentence.opens_badly]
    assert len(found) < OPENINGS_SHARE_MAX * len(sentences), listed(found)


def test_things_are_not_spoken_of_as_people(sentences):
    found = [sentence for sentence in sentences if sentence.has_people]
    assert len(found) < PEOPLE_SHARE_MAX * len(sentences), listed(found)


@pytest.mark.parametrize("room", ["src", "docs", "tests"])
def test_sentences_use_plain_verbs_and_idioms(sentences, room):
    own = [sentence for sentence in sentences if sentence.path.is_relative_to(PROJECT / room)]
    found = [sentence for sentence in own if sentence.listed]
    assert len(found) < LISTED_SHARE_MAX * len(own), listed(found)


def test_sentences_of_the_docs_are_short(sentences):
    docs = sorted(
        (one for one in sentences if one.path.is_relative_to(PROJECT / "docs")), key=lambda one: len(one.words)
    )
    assert len(docs[len(docs) * 9 // 10].words) <= DOCS_WORDS_P90_MAX, listed(docs[-20:])


def test_messages_and_names_of_tests_are_sentences_too(prose, tmp_path):
    (tmp_path / "src").mkdir()
    file = tmp_path / "src" / "some.py"
    file.write_text(
        'def test_a_host_rests_behind_it(x):\n    raise ValueError(f"host {x!r} is none that this crawl knows")\n'
    )
    assert [["rests", "behind"], ["none", "knows"]] == [one.listed for one in prose.sentences_of(file)]


def test_code_and_the_value_none_are_not_listed_words(prose, tmp_path):
    file = tmp_path / "some.md"
    file.write_text("Returns None when `told` is empty.\n")
    assert [[]] == [one.listed for one in prose.sentences_of(file)]


def test_the_counter_sees_openings_and_people(prose, tmp_path):
    file = tmp_path / "some.py"
    file.write_text(
        '"""What a queue holds.\n\nA host waits for nobody. A call adds a row."""\n\nX = 1  # of every host in memory\n'
    )
    found = prose.sentences_of(file)
    opening = [one.text.rstrip(".") for one in found if one.opens_badly]
    assert ["What a queue holds", "of every host in memory"] == opening
    assert ["A host waits for nobody."] == [one.text for one in found if one.has_people]
