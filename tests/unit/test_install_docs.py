"""The checker of documents, on documents with planted mistakes."""

from __future__ import annotations

import importlib.util

import pytest


@pytest.fixture(scope="module")
def checker(project):
    spec = importlib.util.spec_from_file_location("outrider_check_docs", project / "scripts" / "check_docs.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def site(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "formats.md").write_text("# The log\n\n## A frame, drawn\n")
    (tmp_path / "Makefile").write_text("demo: install\n\ttrue\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_log.py").write_text("def test_a_log_is_one():\n    assert True\n")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[a](docs/formats.md)", []),
        ("[a](docs/formats.md#a-frame-drawn)", []),
        ("[a](https://example.org/x)", []),
        ("[a](docs/none.md)", ["there is no docs/none.md"]),
        ("[a](docs/formats.md#none)", ["docs/formats.md has no heading #none"]),
        ("# Here\n\n[a](#here) [b](#there)", ["this page has no heading #there"]),
        ("[a](../outside.md)", ["there is no ../outside.md"]),
        ("`make demo`", []),
        ("`make coffee`", ["the Makefile has no target 'coffee'"]),
        ("```\n$ make coffee\n```", ["the Makefile has no target 'coffee'"]),
        ("`docs/formats.md`", []),
        ("`docs/gone.md`", ["there is no docs/gone.md"]),
        ("`docs/*.md`", []),
        ("`bench/results/latest.json`", []),
        ("`outrider.kernels.crc32c`", []),
        ("`outrider.kernels.md5`", ["there is no outrider.kernels.md5"]),
        ("`outrider.nowhere`", ["there is no outrider.nowhere"]),
        ("`test_a_log_is_one`", []),
        ("`test_a_log_is_two`", ["there is no test test_a_log_is_two"]),
    ],
)
def test_a_document_links_only_to_existing_targets(checker, site, text, expected):
    document = site / "README.md"
    document.write_text(text)
    assert expected == list(checker.problems_of(document, site))


def test_our_own_documents_link_only_to_existing_targets(checker, project):
    found = {page: list(checker.problems_of(page, project)) for page in checker.documents(project)}
    assert {} == {str(page): problems for page, problems in found.items() if problems}
    assert len(found) > 10


def test_a_command_that_does_not_exist_is_found(checker, site, monkeypatch):
    monkeypatch.setattr(checker, "commands", lambda: frozenset({"crawl"}))
    document = site / "README.md"
    document.write_text("`outrider crawl http://example.org/` and `outrider fly`; an outrider rides ahead")
    assert ["outrider has no command 'fly'"] == list(checker.problems_of(document, site))


def test_equal_headings_get_numbers(checker):
    assert {"one", "one-1", "two"} == checker.anchors("# One\n\n# One\n\n```\n# Not\n```\n## Two\n")
