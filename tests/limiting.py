"""Limits that are small for a test: `set_limits(monkeypatch, LOG_BYTES_BEFORE_CHECKPOINT=1)`."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from outrider import limits


def set_limits(patch: pytest.MonkeyPatch, **values: Any) -> None:
    """Sets limits of outrider/limits.py by name in every module that reads them, so that a test need not name the
    module. A name that is not a limit, or one that no loaded module reads, is a mistake of the test."""
    for name, value in values.items():
        assert hasattr(limits, name), f"{name} is no limit"
        readers = [
            module
            for spelled, module in list(sys.modules.items())
            if spelled.startswith("outrider.") and module is not limits and name in vars(module)
        ]
        assert readers, f"no loaded module reads {name}"
        for module in readers:
            patch.setattr(module, name, value)
