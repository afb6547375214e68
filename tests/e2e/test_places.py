"""The cost of an addition: `scripts/places.py` makes each in a copy of the package, proves it, and counts its files."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from e2e.crawling import ROOT, environment

sys.path.insert(0, str(ROOT / "scripts"))
import places


def test_each_addition_works_and_touches_as_many_files_as_it_did():
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "places.py"), "--json"],
        capture_output=True, text=True, timeout=200, env=environment(PYTHONPATH=f"{ROOT}/src"), check=False,
    )  # fmt: skip
    told = json.loads(done.stdout)
    assert [] == [row for row in told["rows"] if row["fault"]]
    counts = {row["addition"]: (len(row["files"]), row["files_max"]) for row in told["rows"]}
    assert {
        "an outcome field": (2, 2),
        "an outcome word": (2, 2),
        "a record field": (1, 3),
        "a lease kind": (3, 3),
        "a verb": (1, 3),
        "an order": (3, 3),
        "a budget by domain": (3, 3),
    } == counts
    assert 0 == done.returncode


@pytest.mark.parametrize(("anchor", "words"), [("nowhere", "0 times"), ("import", "times")])
def test_an_anchor_that_is_gone_or_there_twice_is_named(tmp_path, anchor, words):
    (tmp_path / "a.py").write_text("import os\nimport re\n")
    with pytest.raises(places.AnchorError) as error:
        places.Edit("a.py", anchor, "x").apply(tmp_path)
    assert ("a.py" in str(error.value), anchor in str(error.value), words in str(error.value)) == (True, True, True)


@pytest.mark.parametrize("addition", places.ADDITIONS, ids=lambda one: one.name)
def test_an_addition_without_its_edits_is_not_proved(addition, tmp_path):
    fault = places.made(places.Addition(addition.name, 0, (), addition.proof), tmp_path)
    assert any(name in fault for name in ("AssertionError", "SettingsError", "AttributeError")), fault
