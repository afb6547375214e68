"""Traps: which URLs the rules name, and how they are parked, explained, counted and put back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider import Frontier, Link
from outrider.clock import instant
from outrider.errors import SettingsError
from outrider.url import UrlBatch
from outrider.url.traps import RULES, Traps

NOW = instant(1_767_225_600.0)  # the first of January 2026
TRAPS = Traps(url_bytes_max=200, path_depth_max=8, path_repeats_max=3, date_years_max=2.0)
LOOP = "http://a.test/a/b/a/b/a/b/a/x.html"


def rule(url: str, traps: Traps = TRAPS) -> str | None:
    urls = UrlBatch.of([url])
    (number,) = traps.verdicts(urls, np.arange(1), NOW).tolist()
    named = RULES[number - 1] if number else None
    assert (named is None) == (traps.explained(urls[0], NOW) is None)
    return named


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("x" * 190, "trap_url_bytes"),
        ("1/2/3/4/5/6/7/8/9", "trap_path_depth"),
        ("1/2/3/4/5/6/7/8", None),
        ("a/b/a/b/a", None),
        ("a/b/a/b/a/b/a/", "trap_path_repeats"),
        ("?a/a/a/a/a/a", None),
        ("calendar/2028/03/", "trap_date"),
        ("calendar/2027/12/", None),
        ("archive/1999/12/", None),
        ("events?date=2035-07-01", "trap_date"),
        ("events?year=2031&month=2", "trap_date"),
        ("events?date=20310501", "trap_date"),
        ("item/20310501", None),
        ("product-4711/9000x2000", None),
        ("v/2.0/2500/13", None),
    ],
)
def test_the_rules_name_what_sites_make_without_end(path: str, expected: str | None) -> None:
    assert expected == rule("http://a.test/" + path)


def test_a_rule_that_is_left_out_names_nothing() -> None:
    assert [None] * 3 == [rule(url, Traps()) for url in (LOOP, "http://a.test/2999/12/", "http://a.test/" + "x" * 900)]


def test_an_explanation_has_the_numbers() -> None:
    assert "'a' stands 4 times in its path, more than 3 (max_path_repeats)" == TRAPS.explained(LOOP, NOW)
    assert "it names 2040-05, more than 2 years ahead (date_horizon)" == TRAPS.explained("http://a.test/2040/5/", NOW)


def test_a_bound_below_zero_is_refused() -> None:
    with pytest.raises(SettingsError, match="path_depth_max"):
        Traps(path_depth_max=-1)


@given(st.text(max_size=60))
def test_any_url_is_judged(text: str) -> None:
    urls = UrlBatch.of(["http://a.test/" + text])
    if urls.valid[0]:
        rule(urls[0])


@pytest.fixture
def settings() -> dict[str, object]:
    return {"traps": TRAPS, "delay": 0, "delay_factor": 0}


def test_a_trap_is_parked_explained_counted_and_put_back(tmp_path, settings) -> None:
    with Frontier.open(tmp_path / "store", settings=settings) as frontier:
        codes = frontier.discover([Link(LOOP, depth=1), Link("http://a.test/b", depth=1)])
        assert ["parked", "new"] == [str(code) for code in codes]
        known = frontier.status(LOOP)
        assert ("parked", "trap", "trap_path_repeats") == (str(known.state), known.reason, known.error)
        text = frontier.explain(LOOP).reason_text
        assert all(part in text for part in ("trap_path_repeats", "'a' stands 4 times", "more than 3"))
        assert {"trap_path_repeats": 1} == frontier.statistics()["traps"]
        assert ["http://a.test/b"] == [lease.url for lease in frontier.lease(9)]
    with Frontier.open(tmp_path / "store", settings=settings) as frontier:
        assert ("parked", "trap") == (str(frontier.status(LOOP).state), frontier.status(LOOP).reason)
        assert frontier.verify().ok
        assert 0 == frontier.retry()
        assert 1 == frontier.retry(error="trap")
        assert LOOP in [lease.url for lease in frontier.lease(9, per_queue=2)]
        assert frontier.verify().ok


def test_traps_go_back_by_the_class_of_their_rule(tmp_path, settings) -> None:
    with Frontier.open(tmp_path / "store", settings=settings) as frontier:
        frontier.discover([Link(LOOP, depth=1), Link("http://a.test/2999/12/", depth=1)])
        assert [0, 1, 0] == [frontier.retry(error=name) for name in ("trap_url_bytes", "trap_date", "trap_date")]
        assert ["http://a.test/2999/12/"] == [lease.url for lease in frontier.lease(9)]


def test_a_seed_is_no_trap(tmp_path, settings) -> None:
    with Frontier.open(tmp_path / "store", settings=settings) as frontier:
        assert ["new"] == [str(code) for code in frontier.discover([LOOP])]


def test_a_budget_that_grows_lets_no_trap_go(tmp_path, settings) -> None:
    with Frontier.open(tmp_path / "store", settings={**settings, "max_pages_per_host": 1}) as frontier:
        frontier.discover([Link(LOOP, depth=1)])
    with Frontier.open(tmp_path / "store", settings=settings) as frontier:
        assert "parked" == str(frontier.status(LOOP).state)


def test_ten_thousand_honest_pages_of_one_shape_are_no_trap() -> None:
    urls = UrlBatch.of([f"http://a.test/shop/2025/item-{number}.html" for number in range(10_000)])
    assert not TRAPS.verdicts(urls, np.arange(len(urls)), NOW).any()
