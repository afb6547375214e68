"""Causes in words: every class of fetch error and every HTTP status."""

from __future__ import annotations

import pytest

from outrider.causes import ERRORS, error_words, span_words, status_words
from outrider.fetch import FetchError


def test_every_error_of_a_fetch_is_described():
    assert set() == {str(error) for error in FetchError} - set(ERRORS)
    assert len(set(ERRORS.values())) == len(ERRORS)


@pytest.mark.parametrize(
    ("status", "words"),
    [(404, "404 Not Found"), (503, "503 Service Unavailable"), (413, "413 Content Too Large"), (299, "299"), (0, "0")],
)
def test_a_status_has_its_name(status, words):
    assert words == status_words(status)
    assert f"the server answered {words}" == error_words(f"http_{status}")


def test_an_unknown_class_is_not_described():
    assert ["", "", "", "connection refused"] == [
        error_words(error) for error in ("", "http_", "hook_on_page", "connect_refused")
    ]


def test_a_duration_is_short():
    told = {0.0: "0 s", 0.25: "0.25 s", 4.96: "5 s", 21.4: "21 s", 245.0: "4 min 05 s", 86_340.0: "23 h 59 min"}
    assert list(told.values()) == [span_words(seconds) for seconds in told]
