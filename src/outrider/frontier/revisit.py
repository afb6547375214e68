"""When a URL that failed is tried again: 5, 30, 300 seconds, then it is a dead letter."""

from __future__ import annotations

from outrider.limits import RETRY_SECONDS


def retries_left(attempt: int) -> bool:
    """Whether a failure of this attempt (1 for the first) will be tried again."""
    return attempt <= len(RETRY_SECONDS)


def retry_seconds(attempt: int) -> float:
    """How long to wait after the failure of this attempt; only defined while `retries_left(attempt)`."""
    assert retries_left(attempt), attempt
    return RETRY_SECONDS[attempt - 1]
