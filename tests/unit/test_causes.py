"""Causes in words: every class of fetch error and every status of HTTP."""

from __future__ import annotations

import pytest

from outrider.causes import ERRORS, error_words, status_words
from outrider.fetch import FetchError


def test_every_error_of_a_fetch_has_words():
    assert set() == {str(error) for error in FetchError} - set(ERRORS)
    assert len(set(ERRORS.values())) == len(ERRORS)


@pytest.mark.parametrize(
    ("status", "words"),
    [(404, "404 Not Found"), (503, "503 Service Unavailable"), (413, "413 Content Too Large"), (299, "299"), (0, "0")],
)
def test_a_status_has_its_name(status, words):
    assert words == status_words(status)
    assert f"the server answered {words}" == error_words(f"http_{status}")


def test_a_class_without_words_has_none():
    assert ["", "", "", "connection refused"] == [
        error_words(error) for error in ("", "http_", "hook_on_page", "connect_refused")
    ]
