"""The waits before a failed URL is tried again: 5, 30, 300 seconds; after that it is a dead letter."""

from __future__ import annotations

from outrider.limits import RETRY_SECONDS


def retries_left(attempt: int) -> bool:
    """Whether a failure of this attempt (1 for the first) will be tried again."""
    return attempt <= len(RETRY_SECONDS)


def retry_seconds(attempt: int) -> float:
    """The wait in seconds after the failure of this attempt; defined only while `retries_left(attempt)`."""
    assert retries_left(attempt), attempt
    return RETRY_SECONDS[attempt - 1]
