"""One rule decides when a failure is retried, for pages in columns and for errands one by one."""

from __future__ import annotations

import numpy as np
import pytest

from outrider.clock import instant
from outrider.frontier.policy.revisit import NEVER, retries_at, retry_at
from outrider.limits import RETRY_AFTER_SECONDS_MAX, RETRY_SECONDS

NOW = 1_767_225_600_000_000
USUAL = [NOW + instant(wait) for wait in RETRY_SECONDS]


def test_after_the_usual_waits_no_attempt_is_left():
    assert [*USUAL, None, None] == [retry_at(attempt, NOW) for attempt in range(1, 6)]


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [(0.0, 0.0), (7.25, 7.25), (-1.0, 0.0), (1e12, RETRY_AFTER_SECONDS_MAX)],
)
def test_a_required_wait_replaces_the_usual_one_up_to_a_year(asked, seconds):
    assert NOW + instant(seconds) == retry_at(1, NOW, asked) == retry_at(3, NOW, asked)
    assert None is retry_at(len(RETRY_SECONDS) + 1, NOW, asked)


def test_a_wait_of_the_site_lengthens_the_usual_one_and_never_shortens_it():
    assert [NOW + instant(20), USUAL[1]] == [retry_at(attempt, NOW, at_least=20.0) for attempt in (1, 2)]


@pytest.mark.parametrize("retries", range(len(RETRY_SECONDS) + 1))
def test_a_crawl_with_fewer_retries_makes_that_number(retries):
    made = [retry_at(attempt, NOW, retries=retries) for attempt in range(1, 6)]
    assert USUAL[:retries] == [at for at in made if at is not None]


def test_columns_are_decided_like_single_failures():
    attempts = np.array([1, 2, 3, 4, 65_535, 1, 4], np.uint16)
    asked = np.array([np.nan, np.nan, 1.5, np.nan, np.nan, 1e-7, 9.0])
    ended = NOW + np.arange(7)
    found = retries_at(attempts, ended, asked)
    one_by_one = [
        retry_at(int(attempt), int(at), None if np.isnan(wait) else float(wait))
        for attempt, at, wait in zip(attempts, ended, asked, strict=True)
    ]
    assert [NEVER if at is None else at for at in one_by_one] == found.tolist()
