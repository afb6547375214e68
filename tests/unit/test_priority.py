"""Priority functions: the protocol, signals and their origins, weighted means, domains, and the page about them."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.errors import SettingsError
from outrider.frontier import priority
from outrider.frontier.priority import (
    FACTORS,
    DomainPriorities,
    Referrer,
    Weighted,
    by_domain_page_freshness,
    checked,
    class_of,
    classes_of,
    filled,
    of_age,
    of_count,
    of_depth,
    priorities,
    weighted,
)
from outrider.limits import CLASSES
from outrider.url import UrlBatch
from timing import least_beside

PAGE = Referrer("https://example.org/", depth=2, priority=0.75)
URLS = UrlBatch.of(["https://example.org/a", "https://www.example.org/b", "https://example.net/"])
BROKEN = UrlBatch.of(["https://example.org/a", "mailto:a@b", "https://example.net/"])


def test_classes_are_equal_slices_and_rise_with_the_priority():
    found = [class_of(number / 1000) for number in range(1001)]
    assert sorted(found) == found
    assert set(range(CLASSES)) == set(found)
    assert (0, CLASSES - 1) == (class_of(0.0), class_of(1.0))


@given(st.lists(st.floats(0, 1)))
def test_classes_of_a_batch_equal_those_of_single_urls(many):
    assert [class_of(one) for one in many] == classes_of(np.array(many, np.float64)).tolist()


@pytest.mark.parametrize("wrong", [-0.1, 1.1, float("nan"), True, "0.5"])
def test_a_priority_is_a_number_from_0_to_1(wrong):
    with pytest.raises(SettingsError):
        checked(wrong)


# -- the protocol


def test_a_function_gets_the_batch_and_the_page_and_its_numbers_are_used():
    seen = []

    def rising(urls, page):
        seen.append((urls, page))
        return [0, 0.5, 1]

    assert [0.0, 0.5, 1.0] == priorities(rising, URLS, PAGE).tolist()
    assert [(URLS, PAGE)] == seen


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([0.1, 0.2], "shape (2,) for 3 URLs"),
        (0.5, "shape () for 3 URLs"),
        ([[0.1, 0.2, 0.3]], "shape (1, 3)"),
        ([0.1, float("nan"), 0.3], "nan for https://www.example.org/b"),
        ([0.1, 0.2, 1.5], "1.5 for https://example.net/"),
        ([-0.01, 0.2, 0.3], "-0.01 for https://example.org/a"),
        ([0.1, 0.2, float("inf")], "inf for https://example.net/"),
        ([True, False, True], "must return an array of numbers"),
        (["a", "b", "c"], "must return an array of numbers"),
        ([[0.1], [0.2, 0.3]], "must return an array of numbers"),
        (None, "must return an array of numbers"),
    ],
)
def test_an_invalid_result_is_refused_with_the_name_of_the_function(given, told):
    def chosen(urls, page):
        return given

    with pytest.raises(SettingsError) as caught:
        priorities(chosen, URLS, PAGE)
    assert told in str(caught.value)
    assert "chosen" in str(caught.value)


def test_rows_without_a_valid_url_may_get_any_number():
    def odd(urls, page):
        return [0.1, float("nan"), 0.3]

    assert [0.1, 0.5, 0.3] == priorities(odd, BROKEN, None).tolist()


def test_an_empty_batch_gets_no_priorities():
    empty = UrlBatch.of([])
    for function in (weighted(), by_domain_page_freshness(), DomainPriorities()):
        assert [] == priorities(function, empty, PAGE).tolist()
    assert [] == weighted()(empty.with_columns(page_rank=[], depth=[]), None).tolist()


def test_only_links_without_a_priority_of_their_own_get_one():
    given = np.array([0.25, np.nan, np.nan])
    assert [0.25, 0.9, 0.5] == filled(given, lambda urls, page: [0.1, 0.9, 0.5], URLS, PAGE).tolist()
    assert [0.25, 0.5, 0.5] == filled(given, None, URLS, PAGE).tolist()


def test_a_function_is_not_called_when_all_links_have_a_priority():
    def never(urls, page):
        raise AssertionError(urls)

    assert [0.1, 0.2, 0.3] == filled(np.array([0.1, 0.2, 0.3]), never, URLS, PAGE).tolist()


# -- signals


def test_depth_falls_by_ten_percent_per_hop():
    assert [1.0, 0.9, 0.81, 0.729] == of_depth([0, 1, 2, 3]).round(6).tolist()


def test_age_halves_with_each_half_life():
    assert [1.0, 1.0, 0.5, 0.25, 0.0] == of_age([-5, 0, 60, 120, float("inf")], half_life_seconds=60).tolist()


def test_parts_of_counts_stay_below_1():
    assert [0.0, 0.5, 0.9] == of_count([0, 10, 90]).tolist()
    assert of_count(10**12) < 1


def test_seeds_have_depth_0_and_links_without_a_column_are_one_deeper():
    alone = Weighted({"depth": 1})
    assert [1.0] * 3 == alone(URLS, None).tolist()
    assert [0.729] * 3 == alone(URLS, PAGE).round(6).tolist()
    assert [1.0, 0.9, 0.81] == alone(URLS.with_columns(depth=[0, 1, 2]), PAGE).round(6).tolist()
    assert [0.81] * 3 == Weighted({"depth": 1}, {"depth": "hops"})(URLS.with_columns(hops=2), PAGE).round(6).tolist()


def test_freshness_is_a_column_or_made_of_ages():
    alone = Weighted({"freshness": 1}, half_life_seconds=10)
    assert [1.0, 0.5, 0.5] == alone(URLS.with_columns(age_seconds=[0, 10, np.nan]), None).tolist()
    both = URLS.with_columns(age_seconds=[0, 10, 20], freshness=[0.1, 0.2, 0.3])
    assert [0.1, 0.2, 0.3] == alone(both, None).tolist()


def test_staleness_rises_with_the_time_since_the_last_visit():
    alone = Weighted({"staleness": 1}, half_life_seconds=10)
    assert [0.0, 0.5, 0.75] == alone(URLS.with_columns(unvisited_seconds=[0, 10, 20]), None).tolist()


def test_an_unknown_signal_is_neutral():
    assert [0.5] * 3 == Weighted({"page_rank": 1})(URLS, PAGE).tolist()
    assert [0.25, 0.5, 0.5] == Weighted({"page_rank": 1})(
        URLS.with_columns(page_rank=[0.25, np.nan, np.nan]), PAGE
    ).tolist()
    assert [0.5] * 3 == Weighted({"page_rank": 1}, {"page_rank": "no_such_column"})(URLS, PAGE).tolist()


def test_rows_without_a_valid_url_do_not_affect_other_rows():
    batch = BROKEN.with_columns(page_rank=[0.25, 7.0, 0.75], depth=[0, -1, 1])
    assert [0.25, 0.5, 0.75] == Weighted({"page_rank": 1})(batch, None).tolist()
    assert [1.0, 0.5, 0.9] == Weighted({"depth": 1})(batch, None).tolist()
    assert [0.9, 0.5, 0.5] == DomainPriorities({"example.org": 0.9})(BROKEN, None).tolist()


def test_a_page_passes_signals_to_its_links():
    page = Referrer("https://example.org/", signals={"page_rank": 0.25})
    assert [0.25] * 3 == Weighted({"page_rank": 1})(URLS, page).tolist()
    assert [0.75] * 3 == Weighted({"page_rank": 1})(URLS.with_columns(page_rank=0.75), page).tolist()


def test_a_signal_per_domain_is_a_mapping_or_a_function_called_once_per_domain():
    asked = []

    def authority(domain):
        asked.append(domain)
        return {"example.org": np.float32(0.25)}.get(domain)

    part = {"domain_authority": 1.0}
    assert [0.25, 0.25, 0.5] == Weighted(part, {"domain_authority": authority})(URLS, None).tolist()
    assert ["example.org", "example.net"] == asked
    assert [0.5, 0.5, 0.75] == Weighted(part, {"domain_authority": {"example.net": 0.75}})(URLS, None).tolist()


def test_a_signal_is_another_column_or_a_number_for_all():
    found = Weighted({"page_rank": 1}, {"page_rank": "mine"})(URLS.with_columns(mine=[0, 0.5, 1]), None)
    assert [0.0, 0.5, 1.0] == found.tolist()
    assert [0.25] * 3 == Weighted({"page_rank": 1}, {"page_rank": 0.25})(URLS.with_columns(page_rank=1), None).tolist()


@pytest.mark.parametrize(
    ("columns", "signals", "page", "told"),
    [
        ({"page_rank": [0, 0, 1.01]}, {}, None, "page_rank"),
        ({"page_rank": [0, -0.01, 1]}, {}, None, "page_rank"),
        ({"page_rank": ["a", "b", "c"]}, {}, None, "page_rank"),
        ({"depth": [0, 0, -1]}, {}, None, "depth"),
        ({}, {"domain_authority": {"example.org": 1.5}}, None, "domain_authority"),
        ({}, {"domain_authority": lambda _: "high"}, None, "domain_authority"),
        ({}, {}, Referrer("https://example.org/", signals={"page_rank": 2.0}), "page_rank"),
    ],
)
def test_invalid_signals_are_refused_with_their_part(columns, signals, page, told):
    with pytest.raises(SettingsError) as caught:
        weighted(signals=signals)(URLS.with_columns(**columns), page)
    assert told in str(caught.value)


# -- weighted means


def test_the_weights_of_weighted_are_the_named_ones():
    expected = {"page_rank": 0.3, "domain_authority": 0.25, "change_frequency": 0.2, "depth": 0.15, "freshness": 0.1}
    assert pytest.approx(expected) == dict(weighted().weights)


def test_weights_are_scaled_to_a_sum_of_1():
    assert {"page_rank": 0.75, "depth": 0.25} == dict(Weighted({"page_rank": 3, "depth": 1}).weights)


def test_the_ten_factors_share_the_weight_of_their_group():
    weights = by_domain_page_freshness().weights
    assert 10 == len(weights)
    shares = {group: sum(weights[factor] for factor in factors) for group, factors in FACTORS.items()}
    assert pytest.approx({"domain": 0.3, "page": 0.4, "freshness": 0.3}) == shares
    weights = by_domain_page_freshness(domain=1, page=0, freshness=0).weights
    assert pytest.approx([1 / 3] * 3 + [0] * 7) == list(weights.values())


@pytest.mark.parametrize("wrong", [-0.1, float("nan"), float("inf"), True, "1", None])
@pytest.mark.parametrize("make", [weighted, by_domain_page_freshness])
def test_an_invalid_weight_is_refused_with_its_name(make, wrong):
    with pytest.raises(SettingsError) as caught:
        make(freshness=wrong)
    assert "fresh" in str(caught.value) or "change_frequency" in str(caught.value)


def test_weights_that_are_all_0_are_refused():
    with pytest.raises(SettingsError):
        by_domain_page_freshness(domain=0, page=0, freshness=0)
    with pytest.raises(SettingsError):
        Weighted({})


@pytest.mark.parametrize("signals", [{"pagerank": 0.5}, {"page_rank": 1.5}, {"page_rank": None}, {"page_rank": [0.5]}])
def test_unusable_signals_are_refused(signals):
    with pytest.raises(SettingsError, match=r"page_?rank"):
        weighted(signals=signals)


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf"), "week"])
def test_a_half_life_must_be_above_0(wrong):
    with pytest.raises(SettingsError, match="half_life_seconds"):
        weighted(half_life_seconds=wrong)


def test_a_part_without_weight_is_not_even_read():
    def never(domain):
        raise AssertionError(domain)

    found = weighted(domain_authority=0, signals={"domain_authority": never})(URLS.with_columns(page_rank=1), None)
    assert 3 == len(found)


def test_the_weighted_parts_add_up_to_the_priority():
    batch = URLS.with_columns(page_rank=[0.1, 0.2, 0.3], age_seconds=[0, 1e6, 1e7])
    function = by_domain_page_freshness(signals={"domain_trust": {"example.org": 0.9}})
    parts = function.parts(batch, PAGE)
    assert [factor for factors in FACTORS.values() for factor in factors] == list(parts)
    made = sum(function.weights[part] * values for part, values in parts.items())
    np.testing.assert_allclose(made, function(batch, PAGE))


PARTS = sorted({factor for factors in FACTORS.values() for factor in factors})
SHARES = st.floats(0, 1)


@given(
    weights=st.dictionaries(st.sampled_from(PARTS), st.floats(0, 1e6), min_size=1).filter(
        lambda w: sum(w.values()) > 0
    ),
    rows=st.lists(st.fixed_dictionaries(dict.fromkeys(PARTS, SHARES)), min_size=2, max_size=4),
    raised=st.sampled_from(PARTS),
    by=st.floats(0, 1),
)
def test_a_weighted_priority_is_bounded_and_never_falls_when_a_part_rises(weights, rows, raised, by):
    batch = UrlBatch.of([f"https://example.org/{row}" for row in range(len(rows))])
    function = Weighted(weights)

    def scores(rows):
        columns = {part: [row[part] for row in rows] for part in PARTS}
        columns["depth"] = [50 * (1 - row["depth"]) for row in rows]  # hops: the smaller, the larger the part
        return function(batch.with_columns(**columns), None)

    before = scores(rows)
    after = scores([row | {raised: min(row[raised] + (1 - row[raised]) * by, 1.0)} for row in rows])
    assert ((before >= 0) & (before <= 1)).all()
    assert (after >= before).all()


@given(st.lists(st.integers(0, 10_000), min_size=2), st.lists(st.floats(0, 1e12), min_size=2), st.floats(1, 1e9))
def test_deeper_or_older_urls_never_have_a_higher_value(hops, ages, half_life):
    assert (np.diff(of_depth(sorted(hops))) <= 0).all()
    aged = of_age(sorted(ages), half_life)
    assert (np.diff(aged) <= 0).all()
    assert ((aged >= 0) & (aged <= 1)).all()


@given(st.lists(SHARES, min_size=1, max_size=5))
def test_the_same_signals_have_the_same_priority_in_any_batch(ranks):
    function = weighted()
    batch = UrlBatch.of([f"https://example.org/{row}" for row in range(len(ranks))]).with_columns(page_rank=ranks)
    whole = function(batch, PAGE)
    single = np.concatenate([function(batch[row : row + 1], PAGE) for row in range(len(ranks))])
    np.testing.assert_array_equal(whole, single)


# -- domains


def test_domains_are_spelled_canonically_and_stored_per_registrable_domain():
    scores = DomainPriorities({"EXAMPLE.org": 0.9, "bücher.example": 0.8, "127.0.0.1": 0.7, "a.github.io": 0.6})
    assert ["example.org", "xn--bcher-kva.example", "127.0.0.1", "a.github.io"] == list(scores)
    assert (0.9, 0.9) == (scores["example.org"], scores["Example.ORG"])
    assert "example.net" not in scores
    assert "no name" not in scores
    del scores["Example.org"]
    assert 3 == len(scores)


@pytest.mark.parametrize(
    "name", ["www.example.org", "", "exa mple.org", "example.org/a", "u@example.org", "example.org:81"]
)
def test_names_that_are_not_registrable_domains_are_refused(name):
    with pytest.raises(SettingsError):
        DomainPriorities({name: 0.5})


@pytest.mark.parametrize("score", [-0.1, 1.1, float("nan"), None, True])
def test_scores_of_domains_are_between_0_and_1(score):
    with pytest.raises(SettingsError):
        DomainPriorities({"example.org": score})


def test_a_change_of_a_domain_applies_to_the_next_batch():
    scores = DomainPriorities({"example.org": 0.9})
    function = Weighted({"domain_authority": 1}, {"domain_authority": scores})
    assert [0.9, 0.9, 0.5] == function(URLS, None).tolist()
    scores["example.org"] = 0.1
    assert [0.1, 0.1, 0.5] == function(URLS, None).tolist()
    assert [0.1, 0.1, 0.5] == priorities(scores, URLS, None).tolist()


# -- the page, and the cost


def test_the_examples_of_the_page_return_the_values_that_it_shows(project):
    failed, tried = doctest.testfile(str(project / "docs" / "priority.md"), module_relative=False)
    assert (0, True) == (failed, tried > 20)


def test_the_table_of_the_page_has_the_ten_factors(project):
    text = (project / "docs" / "priority.md").read_text("utf-8")
    rows = [line.split("|")[2].strip().strip("`") for line in text.splitlines() if line.startswith("|")]
    assert [factor for factors in FACTORS.values() for factor in factors] == [row for row in rows if row in PARTS]


def test_a_batch_costs_little_per_url():
    """It costs less than a loop that calls one short function per URL: 0.06 µs on a quiet machine. Both are timed in
    turn, so that a busy machine slows both."""
    rows = 1_000
    batch = UrlBatch.of([f"https://example.org/{row}" for row in range(rows)]).with_columns(
        page_rank=0.5, domain_authority=0.5, change_frequency=0.5, depth=3, age_seconds=1e6
    )
    function = weighted()
    pace = lambda: [min(0.5 * row, 1.0) for row in range(rows)]  # noqa: E731
    assert 2 > least_beside(lambda: priorities(function, batch, PAGE), pace, turns=20)


def test_without_a_value_the_priority_is_the_default():
    assert 0.5 == priority.PRIORITY_DEFAULT == checked(None)
