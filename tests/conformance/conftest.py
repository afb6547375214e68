"""Reference material that several files of tests read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def permission_cases(shared: Path) -> dict[str, list[dict[str, Any]]]:
    """The cases of statements, signatures and proofs, by area."""
    found: dict[str, list[dict[str, Any]]] = {}
    for line in (shared / "data/permission/cases.jsonl").read_text("utf-8").splitlines():
        case = json.loads(line)
        found.setdefault(case["area"], []).append(case)
    return found
