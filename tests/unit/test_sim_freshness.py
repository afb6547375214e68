"""The experiments on revisits: exact freshness, the schedulers, the published figures, the command and its plots."""

from __future__ import annotations

import json
import math
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from numpy.testing import assert_allclose

from outrider.cli import main as cli
from outrider.errors import SettingsError
from outrider.frontier.policy.revisit_rules import DAY, Halving, Uniform
from outrider.frontier.policy.visit_values import price_of
from outrider.sim.frontier_experiments import coverage_of, frontier_figures
from outrider.sim.frontier_scheduler import FrontierScheduler
from outrider.sim.price_calendar import LearnedRates, PriceCalendar, price_calendar
from outrider.sim.published_rates import azar_rates, lambda_crawl_rates, moments, notified_shares
from outrider.sim.revisit_experiments import CGM, EXPERIMENTS, Figure, figures, settle
from outrider.sim.revisit_plots import PLOTS
from outrider.sim.revisit_worlds import Pages, VisitRecord, run

SMALL = Pages.drawn(np.random.default_rng(1).uniform(0.01, 1.0, 200), np.random.default_rng(2))
"""Pages for short runs."""
BUDGET = 20.0


def ratios(scheduler, seconds=150.0, start=50.0):
    visits = run(SMALL, scheduler, BUDGET, seconds, seed=3, batch=5)
    blocks = visits.blocks(start, 2)
    return visits, [visits.freshness(*block) / SMALL.optimum(BUDGET) for block in blocks]


def best_price():
    return price_of(BUDGET, SMALL.importance, SMALL.rate)


def test_freshness_is_computed_exactly_from_the_times_of_the_visits():
    """Two pages, visited at 1, 3 and 2: the integrals by hand, for the whole time and for a part of it."""
    pages = Pages(np.array([0.5, 2.0]), np.array([0.25, 0.75]))
    visits = VisitRecord(pages, 4.0, np.array([0, 1, 0]), np.array([1.0, 2.0, 3.0]), looks=3, idle=0)

    def fresh(rate, *waits):
        return sum(-np.expm1(-rate * wait) for wait in waits) / rate

    whole = 0.25 * fresh(0.5, 1, 2, 1) + 0.75 * fresh(2.0, 2, 2)
    assert whole / 4 == pytest.approx(visits.freshness(0.0, 4.0))
    part = 0.25 * (fresh(0.5, 2) - fresh(0.5, 1.5 - 1.0)) + 0.75 * (fresh(2.0, 2) - fresh(2.0, 1.5) + fresh(2.0, 1))
    assert part / 1.5 == pytest.approx(visits.freshness(1.5, 3))
    assert (2, 1) == (visits.count(1.0, 3.0), visits.count(3.0, 4.0))


@pytest.mark.parametrize("eta", [0.001, 0.005])
@pytest.mark.parametrize("factor", [0.2, 1.0, 5.0])
def test_a_price_from_any_start_finds_the_optimum_within_its_budget(eta, factor):
    visits, shares = ratios(PriceCalendar(SMALL, best_price() * factor, seed=1, eta=4 * eta), 250.0, 150.0)
    assert min(shares) > 0.985
    assert 0 == visits.idle
    assert BUDGET * 250 == len(visits.page)
    assert visits.looks <= 2 * len(visits.page)


def test_a_calendar_without_new_looks_is_worse():
    """The horizon is needed: due times that were computed at a high price stay far in the future."""
    _, good = ratios(PriceCalendar(SMALL, best_price() * 5, seed=1, eta=0.005), 250.0, 150.0)
    _, bad = ratios(PriceCalendar(SMALL, best_price() * 5, seed=1, eta=0.005, horizon=1e9), 250.0, 150.0)
    assert min(good) > min(bad) + 0.02


def test_learned_rates_are_far_better_than_equal_visits():
    rates = LearnedRates(200, start=0.3, confidence=2, chance=np.random.default_rng(5), thompson=True)
    _, shares = ratios(PriceCalendar(SMALL, best_price(), seed=1, rates=rates), 600.0, 500.0)
    equal = SMALL.score(np.full(200, BUDGET / 200)) / SMALL.optimum(BUDGET)
    assert min(shares) > 0.95 > equal


def test_hosts_are_never_visited_faster_than_they_allow():
    chance = np.random.default_rng(4)
    pages = Pages(SMALL.rate, SMALL.importance, chance.choice(8, 200, p=np.arange(1, 9) / 36), 4.0)
    visits = run(pages, price_calendar(pages, best_price(), seed=1), BUDGET, 60.0, seed=1, batch=1)
    for host in range(8):
        times = np.sort(visits.time[pages.host[visits.page] == host])
        assert np.all(np.diff(times) >= 0.25 - 1e-9)
    assert visits.freshness(30.0, 60.0) > 0.98 * pages.host_optimum(BUDGET)
    assert pages.host_optimum(BUDGET) < pages.optimum(BUDGET)


def test_equal_intervals_settle_at_their_own_cost_and_freshness():
    visits, fresh = settle(Uniform(5 * DAY), SMALL, 0, warm_up=50.0, measured=200.0)
    assert 40.0 == pytest.approx(visits)
    assert SMALL.score(np.full(200, 0.2)) == pytest.approx(fresh, rel=1e-6)


def test_halving_settles_below_equal_intervals_of_the_same_cost():
    visits, fresh = settle(Halving(), SMALL, 0, warm_up=100.0, measured=200.0)
    assert fresh + 0.05 < SMALL.score(np.full(200, visits / 200))


@pytest.mark.parametrize("name", ["E1", "E2", "E3", "E4", "E6", "E10"])
def test_the_figures_of_an_experiment_are_within_their_tolerance(name):
    assert [] == [figure for figure in figures((name,)) if not figure.passed]


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", ["E5", "E7", "E8", "E9"])
def test_the_figures_of_a_long_experiment_are_within_their_tolerance(name, seed):
    assert [] == [figure for figure in figures((name,), seed) if not figure.passed]


def test_the_estimators_are_exact_sums_over_all_counts():
    measured = iter(figures(("E4",)))
    for ratio in CGM:
        assert (1 - math.exp(-ratio)) / ratio == pytest.approx(next(measured).measured, abs=1e-12)
        for visits in (10, 30):
            odds = 1 - math.exp(-ratio)
            mean = sum(
                math.comb(visits, k) * odds**k * (1 - odds) ** (visits - k) * -math.log(1 - k / (visits + 0.5))
                for k in range(visits + 1)
            )
            assert mean / ratio == pytest.approx(next(measured).measured, abs=1e-4)
        next(measured)


def test_moments_are_exact_sums():
    mean, spread = moments(np.arange(11.0), 0.3)
    assert (3.0, 2.1**0.5) == pytest.approx((mean, spread))


@pytest.mark.parametrize("rates", [azar_rates, lambda_crawl_rates])
def test_published_rates_use_the_whole_budget(rates):
    found = rates(BUDGET, SMALL.importance, SMALL.rate)
    assert BUDGET == pytest.approx(found.sum())
    assert np.all(found >= 0)


def test_notices_are_followed_up_to_the_budget():
    """Pages of weight 1 and 8, with 1 change each: at a budget of 1.2 the second is always visited."""
    assert_allclose(notified_shares(1.2, [1.0, 8.0], 1.0), [0.2, 1.0])
    assert_allclose(notified_shares(9.0, [1.0, 8.0], 1.0), 1.0)
    assert_allclose(notified_shares(0.9, [1.0, 8.0], 1.0), [0.1, 0.8])


def test_a_figure_outside_of_its_tolerance_fails():
    assert Figure("E1", "", 1.0, 1.05, 0.1).passed
    assert not Figure("E1", "", 1.0, 1.2, 0.1).passed
    assert Figure("E1", "", 1.0, 1.2, 0.1, at_least=True).passed
    assert not Figure("E1", "", 1.0, 0.8, 0.1, at_least=True).passed
    for at_least in (False, True):
        assert not Figure("E1", "", 1.0, float("nan"), 0.1, at_least=at_least).passed


def test_an_unknown_experiment_is_refused():
    with pytest.raises(SettingsError, match=r"unknown experiment 'E11': use E1, E2"):
        figures(("E1", "E11"))


def test_the_command_prints_a_table_and_json(capsys):
    assert 0 == cli.run(["sim", "freshness", "--experiment", "E1", "--experiment", "E10"])
    lines = capsys.readouterr().out.splitlines()
    assert ["expected", "measured", "tolerance"] == lines[0].split()
    assert "19 of 19 figures are within their tolerance (seed 0)" == lines[-1]
    assert 0 == cli.run(["sim", "freshness", "--experiment", "E2", "--seed", "4", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (4, 0, 6) == (found["seed"], found["failed"], len(found["figures"]))
    assert {"experiment", "name", "expected", "measured", "tolerance", "at_least", "passed"} == set(found["figures"][0])


def test_the_command_fails_with_9_for_a_figure_outside_of_its_tolerance(capsys, monkeypatch):
    monkeypatch.setitem(EXPERIMENTS, "E1", lambda seed, make: [Figure("E1", "wrong", 1.0, 2.0, 0.1)])
    assert 9 == cli.run(["sim", "freshness", "--experiment", "E1"])
    out = capsys.readouterr().out
    assert "failed" in out.splitlines()[1]
    assert "0 of 1 figures" in out
    assert 9 == cli.run(["sim", "freshness", "--experiment", "E1", "--json"])


@pytest.mark.parametrize(
    "arguments", [["--experiment", "E11"], ["--experiment", "E6", "--plots", "/nowhere/there"]], ids=str
)
def test_the_command_refuses_in_one_sentence(capsys, arguments):
    assert 2 == cli.run(["sim", "freshness", *arguments])
    assert 1 == capsys.readouterr().err.count("\n")


def test_the_page_about_the_frontier_shows_the_output_of_the_command(capsys, project):
    text = (project / "docs" / "frontier.md").read_text("utf-8")
    shown = text.split("$ outrider sim freshness --experiment E6\n")[1].split("```", maxsplit=1)[0]
    assert 0 == cli.run(["sim", "freshness", "--experiment", "E6"])
    assert capsys.readouterr().out == shown


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "E6" else pytest.mark.long) for name in sorted(PLOTS)]
)
def test_the_pictures_of_the_docs_are_those_of_the_experiments(project, name):
    file, draw = PLOTS[name]
    assert draw(0) == (project / "docs" / "pictures" / file).read_text("utf-8")


@pytest.mark.parametrize("name", sorted(PLOTS))
def test_each_picture_of_the_docs_is_inside_its_frame_and_on_a_page(project, name):
    file = PLOTS[name][0]
    root = ET.fromstring((project / "docs" / "pictures" / file).read_text("utf-8"))
    width, height = (float(number) for number in root.get("viewBox").split()[2:])
    space = "{http://www.w3.org/2000/svg}"
    for line in root.iter(f"{space}polyline"):
        points = [tuple(map(float, point.split(","))) for point in line.get("points").split()]
        assert len(points) > 10
        assert all(0 <= x <= width and 0 <= y <= height for x, y in points)
    assert re.search(rf"\]\(pictures/{file}\)", (project / "docs" / "frontier.md").read_text("utf-8"))


@pytest.mark.parametrize("factor", [0.2, pytest.param(5.0, marks=pytest.mark.long)])
def test_the_price_of_the_frontier_finds_the_optimum_within_its_budget(factor):
    scheduler = FrontierScheduler(SMALL, budget=BUDGET, seed=1, price=best_price() * factor, step=0.01)
    visits, shares = ratios(scheduler, 100.0, 60.0)
    assert min(shares) > 0.99
    assert visits.idle <= 2  # the rate begins with as many tokens as a second has, or two
    assert visits.looks < 2 * len(visits.page)


def test_the_frontier_has_no_signals_in_experiments():
    with pytest.raises(SettingsError, match="scheduler of reference"):
        FrontierScheduler(SMALL, budget=BUDGET, seed=1).signalled(np.array([1]), np.array([1]), 0.0)


@pytest.mark.long
@pytest.mark.parametrize("name", ["E5", "E6", "E7", "E9"])
def test_the_frontier_meets_the_figures_of_its_experiments(name):
    assert [] == [figure for figure in frontier_figures((name,)) if not figure.passed]


@pytest.mark.long
@pytest.mark.parametrize("new", [5, 20, 50])
def test_new_pages_and_visits_share_a_budget_about_as_well_as_the_best_fixed_share(new):
    one, first, half = (coverage_of(new, share, 0) for share in (None, 1.0, 0.5))
    assert one > 0.96 * max(first, half)
    assert new < 50 or one > 1.1 * first
