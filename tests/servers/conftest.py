"""Tests that start real servers and browsers of this machine, on loopback: what `make test-servers` runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from servers.programs import MISSING

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All tests of this folder are marked `servers`."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.servers)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Names the programs that this machine lacks, in one line at the end. Other runs leave these tests out."""
    if config.option.markexpr.startswith("servers") and not config.option.collectonly:
        missing = ", ".join(f"{name} (Debian's package {package})" for name, package in sorted(MISSING.items()))
        print(f"Not available here, so not tested: {missing or 'nothing'}.")
