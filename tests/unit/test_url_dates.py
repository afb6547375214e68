"""Which months a URL names: dates at their borders, but not ids, versions, sizes or numbers of pages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.url.dates import months_in


def told(rest: str) -> list[str]:
    return [f"{month // 12}-{month % 12 + 1:02}" for month in months_in(rest)]


@pytest.mark.parametrize(
    ("rest", "month"),
    [
        ("/calendar/2031/05/", "2031-05"),
        ("/calendar/2031/5", "2031-05"),
        ("/calendar/2031/12", "2031-12"),
        ("/2031/5/", "2031-05"),
        ("/2031/05/17/some-title", "2031-05"),
        ("/blog/2031/05/", "2031-05"),
        ("/blog/2031/12/07/", "2031-12"),
        ("/events/2031-05/", "2031-05"),
        ("/events/2031-12-24", "2031-12"),
        ("/calendar-2031-5.html", "2031-05"),
        ("/notes-2031-05-17.html", "2031-05"),
        ("/kalender_2031_05.php", "2031-05"),
        ("/day/2031.05.17", "2031-05"),
        ("/archive/1999/12/", "1999-12"),
        ("/year/2031", "2031-01"),
        ("/year/2031/month/5/", "2031-05"),
        ("/x?date=2035-07-01", "2035-07"),
        ("/x?date=2035-07-01T10:00", "2035-07"),
        ("/x?day=2035%2F7%2F1", "2035-07"),
        ("/x?tribe-bar-date=2031-05", "2031-05"),
        ("/x?startDate=20310517", "2031-05"),
        ("/x?d=2031-05-17", "2031-05"),
        ("/x?month=203105", "2031-05"),
        ("/x?from=203105", "2031-05"),
        ("/x?year=2031&month=2", "2031-02"),
        ("/x?month=2&year=2031", "2031-02"),
        ("/x?year=2031", "2031-01"),
        ("/x?m=3&y=2031", "2031-03"),
    ],
)
def test_a_date_names_its_month(rest: str, month: str) -> None:
    assert month in told(rest)


@pytest.mark.parametrize(
    "rest",
    [
        *("/category/2050", "/gallery/2060/", "/story/2045", "/property/2112", "/birthday/2040", "/everyday/2040"),
        *("/category/2050/2", "/thread/2045/12", "/forum/2045/3/12", "/issues/2031/1", "/item/2045-12", "/p2031/05"),
        *("/x?category=2050", "/x?city=2100&p=2", "/x?restart=203001", "/x?update=20310101", "/x?holiday=203012"),
        *(
            "/x?start=203105",
            "/x?id=203105",
            "/x?id=20310501",
            "/x?q=2031",
            "/x?sku=2045-12",
            "/x?y=2050",
            "/x?tag=2045",
        ),
        *("/x?x=100&y=2050&m=3", "/x?birthyear=2040x", "/x?candidate=203105", "/x?validate=2031-05", "/x?tag=2045"),
        *("/item/20310501", "/v/2.0/2500/13", "/1471-2105/10/244", "/DSP2038_1.0.0.pdf", "/Rules%20since%2030.01.2014"),
        *(
            "/bbm:978-1-4939-2122-5/1.pdf",
            "/rec/R-REC-BT.2100-2-201807-I",
            "/cve-2031-1234",
            "/2031-05-1234",
            "/12031/05",
        ),
        *("/calendar/2031/13/", "/calendar/2031/0", "/calendar/2031-05-99", "/calendar/2031-05x", "/1024x768/2048x05"),
        *(
            "/rfc-2045-6",
            "/2031-05-1234",
            "/xhtml-3000.2.2.1/",
            "/photo/2040-2",
            "/rooms/2031-05a",
            "/year/20311",
            "/x?year=20311",
        ),
    ],
)
def test_other_numbers_are_not_dates(rest: str) -> None:
    assert [] == told(rest)


@given(st.text(st.sampled_from("/?&=;-_.T%2F0123459calendrymo"), max_size=40))
def test_any_text_can_be_read(text: str) -> None:
    assert all(month >= 1900 * 12 for month in months_in("/" + text))
