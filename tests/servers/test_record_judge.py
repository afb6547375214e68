"""A program in Go, with `sumdb/note` and `sumdb/tlog`, accepts the proofs of a record and refuses changed ones."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from outrider.cli.main import run
from servers.programs import program
from unit.test_record_proof import Ruled, crawled

SOURCE = Path(__file__).parent / "record_judge"


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("judge") / "judge"
    subprocess.run([program("go"), "build", "-o", str(made), "."], cwd=SOURCE, check=True, timeout=240)
    return made


def test_each_proof_is_accepted_and_no_changed_one(tmp_path: Path, judge: Path) -> None:
    me, other = str(tmp_path / "me"), str(tmp_path / "other")
    for folder in (me, other):
        assert 0 == run(["identity", "init", folder, "--url", "https://bot.example", "--contact", "a@b.test"])
    output, file = crawled(tmp_path, me, Ruled), tmp_path / "proof"
    assert 0 == run(["politeness", str(output), "--proof", str(file)])
    assert 0 == run(["politeness", str(output), "--proof", str(tmp_path / "b"), "--identity", other])
    header, *lines = file.read_text().splitlines()
    key = json.loads((tmp_path / "b").read_text().splitlines()[0])["key"]

    count = json.loads(header)["lines"]

    def judged(changed: list[str], *words: str) -> str:
        file.write_text("\n".join([header, *changed]) + "\n")
        return subprocess.run([judge, str(file), *words], capture_output=True, text=True, check=False).stdout

    assert f"accepted {count}\n" == judged(lines)
    assert "refused: head" in judged(lines, key)
    assert "refused: count" in judged(lines[1:])
    assert "refused: robots.txt" in judged([*lines[:-1], json.dumps({"robots": "VXNlci1hZ2VudDogKgo="})])
    first, second = json.loads(lines[0]), json.loads(lines[1])
    for changed in (
        {**first, "line": first["line"].replace("robots.txt", "robots.txT")},
        {**first, "index": 1},
        {**first, "line": second["line"]},
        {**first, "proof": second["proof"]},
    ):
        assert "refused: line" in judged([json.dumps(changed), *lines[1:]])
