"""How busy back queues keep threads: Mercator's figures reproduced, the law, the rule of the delay, the command and its
plot."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import pytest

from outrider.cli import main as cli
from outrider.errors import SettingsError
from outrider.sim.utilisation import DURATIONS, QUEUES_PER_THREAD, Experiment, experiment, law, simulate, svg

KNOWN = {1: 0.091, 3: 0.273, 5: 0.456, 8: 0.728, 11: 0.983, 15: 1.0, 22: 1.0}
"""Busy shares of 100 threads at k = 10 with log-normal durations."""


@pytest.fixture(scope="module")
def made() -> Experiment:
    return experiment()


def test_the_busy_shares_are_the_known_ones(made):
    assert KNOWN == pytest.approx({run.queues_per_thread: run.busy for run in made.runs}, abs=0.02)


def test_no_delay_was_cut_at_ten_times_the_duration(made):
    """Otherwise the rule's limit of 60 s, and not k, would determine the figures."""
    assert 0 == sum(run.rests_cut for run in made.runs)


def test_the_law_is_an_upper_bound_and_close_except_near_its_corner(made):
    for run in made.runs:
        assert run.busy <= run.law + 0.005
        if run.queues_per_thread != 11:
            assert run.law == pytest.approx(run.busy, abs=0.01)


@pytest.mark.parametrize(
    ("queues", "threads", "factor", "expected"),
    [
        (300, 100, 10, 3 / 11),
        (1100, 100, 10, 1.0),
        (2200, 100, 10, 1.0),
        (1, 1, 0, 1.0),
        (1, 2, 0, 0.5),
        (1, 1, 3, 0.25),
    ],
)
def test_the_law_returns_the_expected_shares(queues, threads, factor, expected):
    assert expected == law(queues, threads, factor)


@pytest.mark.parametrize(("threads", "queues", "factor"), [(1, 1, 4.0), (1, 2, 4.0), (4, 4, 1.0)])
def test_few_queues_are_busy_for_exactly_their_share(threads, queues, factor):
    """No queue waits for a thread if there are at least nearly as many threads as queues."""
    run = simulate(threads, queues, factor)
    assert run.busy == pytest.approx(law(queues, threads, factor), abs=0.05)


def test_without_a_delay_as_many_queues_as_threads_suffice():
    assert simulate(10, 10, 0.0).busy == pytest.approx(1.0, abs=1e-9)
    assert simulate(10, 5, 0.0).busy == pytest.approx(0.5, abs=0.01)


def test_delays_that_the_rule_cuts_are_counted():
    run = simulate(10, 30, 500.0)
    assert run.rests_cut > 0
    assert run.busy > law(30, 10, 500.0)


def test_the_same_seed_returns_the_same_numbers(made):
    first = simulate(100, 300, seed=7)
    assert first == simulate(100, 300, seed=7)
    assert first != simulate(100, 300, seed=8)


@pytest.mark.parametrize(
    ("threads", "factor"), [(0, 10.0), (1_001, 10.0), (100, -1.0), (100, 1_001.0), (100, float("nan"))]
)
def test_numbers_out_of_bounds_are_refused(threads, factor):
    with pytest.raises(SettingsError, match=r"threads|factor"):
        experiment(threads, factor)


def test_the_plot_shows_every_run_and_states_the_durations(made):
    root = ET.fromstring(svg(made))
    space = "{http://www.w3.org/2000/svg}"
    texts = [element.text for element in root.iter(f"{space}text")]
    assert len(QUEUES_PER_THREAD) == len(list(root.iter(f"{space}circle")))
    assert any(DURATIONS in text for text in texts)
    assert {f"{run.busy:.3f}" for run in made.runs} <= set(texts)
    heights = [float(dot.get("cy")) for dot in root.iter(f"{space}circle")]
    assert sorted(heights, reverse=True) == heights


def test_the_plot_of_a_law_that_is_never_reached_stays_inside_its_frame():
    small = experiment(threads=2, factor=99.0)
    root = ET.fromstring(svg(small))
    points = root.find("{http://www.w3.org/2000/svg}polyline").get("points").split()
    width, height = (float(number) for number in root.get("viewBox").split()[2:])
    assert all(0 <= float(x) <= width and 0 <= float(y) <= height for x, y in (point.split(",") for point in points))


def test_the_command_prints_a_table_and_writes_the_plot(capsys, tmp_path):
    plot = tmp_path / "plot.svg"
    assert 0 == cli.run(["sim", "utilisation", "--threads", "10", "--seed", "3", "--svg", str(plot)])
    told = capsys.readouterr()
    lines = told.out.splitlines()
    assert "10 threads, k = 10, seed 3" == lines[0]
    assert f"durations: {DURATIONS}" == lines[1]
    assert ["B/T", "queues", "busy", "law"] == lines[3].split()
    assert [str(ratio) for ratio in QUEUES_PER_THREAD] == [line.split()[0] for line in lines[4:]]
    assert f"plot: {plot}\n" == told.err
    assert plot.read_text("utf-8").startswith("<svg ")


def test_the_page_about_the_frontier_shows_what_the_command_prints(capsys, project):
    text = (project / "docs" / "frontier.md").read_text("utf-8")
    shown = text.split("$ outrider sim utilisation\n")[1].split("```", maxsplit=1)[0]
    assert 0 == cli.run(["sim", "utilisation"])
    assert capsys.readouterr().out == shown


def test_the_command_prints_json(capsys):
    assert 0 == cli.run(["sim", "utilisation", "--threads", "10", "--factor", "3", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (10, 3.0, 0, DURATIONS) == (found["threads"], found["factor"], found["seed"], found["durations"])
    assert list(QUEUES_PER_THREAD) == [run["queues_per_thread"] for run in found["runs"]]
    assert 0.25 == found["runs"][0]["law"]


@pytest.mark.parametrize("arguments", [["--threads", "0"], ["--factor", "-1"], ["--svg", "/nowhere/there/plot.svg"]])
def test_the_command_refuses_with_one_sentence(capsys, arguments):
    assert 2 == cli.run(["sim", "utilisation", "--threads", "1", *arguments])
    told = capsys.readouterr()
    assert ("", 1) == (told.out, told.err.count("\n"))
