"""The benches' own tools: tables, ratios, and the measuring of a child."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from bench.measuring import ChildFailedError, run
from bench.tables import Table, middle, ratio
from bench.urls import sample


def test_a_ratio_says_how_many_times_our_cost_the_others_is():
    assert ("4.00x", None) == (ratio(8.0, 2.0), ratio(8.0, None))


def test_the_median_of_an_even_number_lies_between_the_two_in_the_middle():
    assert (2.5, 3) == (middle([4, 1, 2, 3]), middle([9, 3, 1]))


def test_a_table_sets_its_numbers_to_the_right():
    lines = Table("t", "Title", ("what", "µs"), (("a", 1234), ("longer", 0.5)), ("A note.",)).lines()
    assert [
        "Title",
        "",
        "  what       µs",
        "  ------  -----",
        "  a       1,234",
        "  longer    0.5",
        "  A note.",
        "",
    ] == lines


def test_a_childs_cpu_time_is_its_own():
    busy = run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.2: pass"])
    idle = run([sys.executable, "-c", "import time; time.sleep(0.3)"])
    assert busy.cpu_seconds >= 0.2 > idle.cpu_seconds
    assert idle.wall_seconds >= 0.3


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_a_childs_largest_size_is_measured_without_that_of_its_parent():
    small = run([sys.executable, "-c", "import time; time.sleep(0.3)"])
    large = run([sys.executable, "-c", "import time; x = b'x' * 60_000_000; time.sleep(0.3)"])
    assert 50_000_000 <= large.peak_bytes - small.peak_bytes <= 70_000_000


def test_a_child_that_fails_says_its_last_words():
    with pytest.raises(ChildFailedError, match="no such luck"):
        run([sys.executable, "-c", "raise SystemExit('no such luck')"])


def test_the_sample_of_urls_is_the_same_each_time():
    assert sample(50) == sample(50)
