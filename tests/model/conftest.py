"""Frontiers of these tests live for some dozen calls: their logs begin small, or zeroing them would be most work."""

from __future__ import annotations

import pytest

from outrider.storage.log import Log


@pytest.fixture(autouse=True)
def _small_logs(monkeypatch):
    defaults = Log.open.__func__.__kwdefaults__
    monkeypatch.setitem(defaults, "segment_bytes_first", 1 << 16)
    monkeypatch.setitem(defaults, "segment_bytes_max", 1 << 18)
