"""The maintainers' command that packages the public suffix list: what it keeps and what it refuses."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

LIST = """\
// The licence.

// VERSION: 2026-10-22_08-36-41_UTC
// COMMIT: 8437e52

// Instructions on pulling and using this list can be found elsewhere.

// ===BEGIN ICANN DOMAINS===

// com : a registry
com
*.ck  a comment
!www.ck
// ===END ICANN DOMAINS===
// ===BEGIN PRIVATE DOMAINS===

github.io
// ===END PRIVATE DOMAINS===
"""


@pytest.fixture(scope="module")
def update(project: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("update_psl", project / "scripts/update_psl.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_licence_the_version_the_marks_and_the_rules_are_kept(update: ModuleType) -> None:
    expected = """\
// The licence.

// VERSION: 2026-10-22_08-36-41_UTC
// COMMIT: 8437e52

// ===BEGIN ICANN DOMAINS===
com
*.ck
!www.ck
// ===END ICANN DOMAINS===
// ===BEGIN PRIVATE DOMAINS===
github.io
// ===END PRIVATE DOMAINS===
"""
    assert expected == update.packed(LIST, rules_min=1)


def test_packing_twice_makes_the_same_file(update: ModuleType) -> None:
    once = update.packed(LIST, rules_min=1)
    assert once == update.packed(once, rules_min=1)


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (LIST.replace("VERSION", "OF"), "is missing"),
        (LIST[: LIST.index("github")], "its sections are"),
        (LIST.replace("com\n", "<html>oops/\n"), "is not a rule"),
        (LIST + "org\n", "is not in a section"),
        ("<html>not found</html>", "is missing"),
    ],
)
def test_an_incomplete_list_is_refused(update: ModuleType, broken: str, why: str) -> None:
    with pytest.raises(update.ListError, match=why):
        update.packed(broken, rules_min=1)


def test_a_list_that_was_cut_short_is_refused(update: ModuleType) -> None:
    with pytest.raises(update.ListError, match="4 rules"):
        update.packed(LIST)


def test_the_packaged_list_is_packed(update: ModuleType) -> None:
    text = update.PACKAGED.read_text("utf-8")
    assert text == update.packed(text)


def test_an_older_list_does_not_replace_the_packaged_one(
    update: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    packaged = tmp_path / "packaged.dat"
    packaged.write_text(LIST.replace("2026", "2027"))
    monkeypatch.setattr(update, "PACKAGED", packaged)
    monkeypatch.setattr(update.packed, "__defaults__", (1,))
    older = tmp_path / "older.dat"
    older.write_text(LIST)
    assert 1 == update.main([str(older)])
    assert "it is of 2026-10-22" in capsys.readouterr().err
    assert "2027" in packaged.read_text()
