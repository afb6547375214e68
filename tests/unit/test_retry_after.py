"""The wait that `Retry-After` requires, after RFC 9110 section 10.2.3."""

from __future__ import annotations

import pytest

from outrider.fetch.failures import http_date, retry_after_seconds

NOW = 1_445_412_480.0  # Wed, 21 Oct 2015 07:28:00 GMT
YEAR = 31_536_000.0


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("120", 120.0),
        (" 120\t", 120.0),
        (b"120", 120.0),
        ("000000000000000000005", 5.0),
        ("31536000", YEAR),
        ("31536001", YEAR),
        ("9" * 400, YEAR),
        ("Wed, 21 Oct 2015 07:30:00 GMT", 120.0),
        ("Wednesday, 21-Oct-15 07:30:00 GMT", 120.0),
        ("Wed Oct 21 07:30:00 2015", 120.0),
        (b"Wed, 21 Oct 2015 07:30:00 GMT", 120.0),
        ("Wed, 21 Oct 2015 07:00:00 GMT", 0.0),
        ("Wed, 21 Oct 9999 07:30:00 GMT", YEAR),
    ],
)
def test_a_usable_value_is_seconds_from_now(value: str | bytes, seconds: float) -> None:
    assert seconds == retry_after_seconds(value, NOW)


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "-1",
        "+1",
        "1.5",
        "1e3",
        "0x10",
        "120, 60",
        "120 60",
        "soon",
        "１２",
        "٣",
        b"\xb2",
        "Wed, 21 Oct 2015 07:30:00 CET",
        "Wed, 21 Oct 2015 07:30:00",
        "Wed, 31 Feb 2016 07:30:00 GMT",
        "Wed, 21 Oct 2015 25:30:00 GMT",
        "Wed, 21 Okt 2015 07:30:00 GMT",
        "Wed, 21 Oct 2015 07:30:00 GMT\n",
        "2015-10-21T07:30:00Z",
        "9" * 5000 + "x",
    ],
)
def test_an_unusable_value_is_ignored(value: str | bytes | None) -> None:
    assert None is retry_after_seconds(value, NOW)


def test_a_two_digit_year_more_than_fifty_years_ahead_is_in_the_past() -> None:
    """RFC 9110 section 5.6.7."""
    assert [-1, 1] == [
        1 if (http_date(f"Monday, 01-Jan-{year} 00:00:00 GMT", NOW) or 0) > NOW else -1 for year in ("66", "65")
    ]


def test_a_leap_second_is_the_one_after_fifty_nine() -> None:
    assert 1.0 == (http_date("Sat, 31 Dec 2016 23:59:60 GMT", NOW) or 0) - (
        http_date("Sat, 31 Dec 2016 23:59:59 GMT", NOW) or 0
    )
