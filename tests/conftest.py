"""Settings of all tests: how hard hypothesis tries, and where the reference material is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# `ci` draws the same examples each time, so that a red run can be repeated; `long` draws new ones, and many.
settings.register_profile(
    "ci", derandomize=True, deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("long", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

PROJECT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def project() -> Path:
    """The folder of the project."""
    return PROJECT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference material next to the project; the test is skipped where it is missing."""
    folder = PROJECT.parent / "shared"
    if not folder.is_dir():
        pytest.skip("the reference material is not beside the project")
    return folder
