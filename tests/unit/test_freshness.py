"""How long an answer may be kept by its own headers (RFC 9111)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.fetch.freshness import fresh_seconds

NOW = 1_700_000_000.0  # Tue, 14 Nov 2023 22:13:20 GMT


@pytest.mark.parametrize(
    ("headers", "fresh"),
    [
        ({}, None),
        ({"cache-control": "public"}, None),
        ({"cache-control": "max-age=3600"}, 3_600.0),
        ({"cache-control": 'public , MAX-AGE="60"'}, 60.0),
        ({"cache-control": "max-age=60, max-age=30"}, 30.0),
        ({"cache-control": "s-maxage=5"}, None),
        ({"cache-control": "max-age=3600", "age": "600"}, 3_000.0),
        ({"cache-control": "max-age=60", "age": "600"}, 0.0),
        ({"cache-control": "max-age=ten"}, 0.0),
        ({"cache-control": "max-age=-1"}, 0.0),
        ({"cache-control": "max-age=" + "9" * 400}, 2_147_483_648.0),
        ({"cache-control": "no-cache"}, 0.0),
        ({"cache-control": "max-age=9, no-store"}, 0.0),
        ({"cache-control": '=;"", ,,max-age=7'}, 7.0),
        ({"cache-control": 'x="a, no-store", max-age=7'}, 7.0),
        ({"expires": "Tue, 14 Nov 2023 22:14:20 GMT"}, 60.0),
        ({"expires": "Tue, 14 Nov 2023 22:14:20 GMT", "date": "Tue, 14 Nov 2023 22:14:00 GMT"}, 20.0),
        ({"expires": "Tue, 14 Nov 2023 22:14:20 GMT", "cache-control": "max-age=5"}, 5.0),
        ({"expires": "0"}, 0.0),
        ({"expires": "Mon, 13 Nov 2023 22:14:20 GMT"}, 0.0),
    ],
)
def test_the_header_says_how_long_an_answer_may_be_kept(headers, fresh):
    assert fresh == fresh_seconds(headers, NOW)


@given(st.text(max_size=60), st.text(max_size=20), st.text(max_size=40))
def test_any_header_has_a_number_or_no_result(control, age, expires):
    found = fresh_seconds({"cache-control": control, "age": age, "expires": expires}, NOW)
    assert found is None or 0 <= found <= 1e11


def test_a_long_header_costs_time_in_proportion_to_its_length():
    assert fresh_seconds({"cache-control": '"' * 100_000}, NOW) is None
    assert fresh_seconds({"cache-control": 'a="\\' * 20_000}, NOW) is None
