"""Frontiers of these tests live for some dozen calls: their logs begin small, or zeroing them would be most work."""

from __future__ import annotations

from pathlib import Path

import pytest

from limiting import set_limits
from outrider.storage.log import Log

HERE = Path(__file__).parent
SECONDS_MAX = 600
"""The time limit of one test here: some need half a minute on a quiet machine, and a busy one may need ten times
that."""


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SECONDS_MAX))


@pytest.fixture(autouse=True)
def _small_logs(monkeypatch):
    defaults = Log.open.__func__.__kwdefaults__
    monkeypatch.setitem(defaults, "segment_bytes_first", 1 << 16)
    monkeypatch.setitem(defaults, "segment_bytes_max", 1 << 18)


@pytest.fixture(autouse=True)
def _each_stop_keeps_its_schedule(monkeypatch):
    set_limits(monkeypatch, KEPT_URLS_MIN=0, KEPT_CARDS=3, KEPT_QUEUES=2, KEPT_KEYS=2)
