"""The demo's conclusions from the web's log."""

from __future__ import annotations

from outrider.sim.demo import exit_code, inspect, records_of


def record(host: str, start: float, end: float, *violations: str) -> dict[str, object]:
    return {
        "host": host,
        "path": "/",
        "start": int(start * 1e6),
        "end": int(end * 1e6),
        "violations": list(violations),
    }


def test_the_gap_runs_from_the_end_of_one_answer_to_the_start_of_the_next_request():
    seen = inspect([record("a", 1.0, 1.5), record("a", 1.75, 1.8)], {"a": 0.2})
    assert (0.25, ()) == (seen.gap_seconds, seen.violations)


def test_a_gap_below_the_hosts_own_delay_is_a_violation():
    seen = inspect([record("a", 1.0, 1.5), record("a", 2.0, 2.1)], {"a": 1.0})
    assert ("a/: a gap of 0.500 s, 1 s required",) == seen.violations


def test_the_tightest_host_has_the_smallest_margin_not_the_smallest_gap():
    log = [record("a", 0, 1), record("b", 0, 1), record("a", 1.3, 2), record("b", 2.05, 3)]
    assert "b" == inspect(log, {"a": 0.2, "b": 1.0}).tightest_host


def test_lines_are_judged_in_the_order_of_their_starts_at_any_place_in_the_log():
    seen = inspect([record("a", 5.0, 5.1), record("a", 1.0, 1.1)], {"a": 0.2})
    assert (3.9, ()) == (seen.gap_seconds, seen.violations)


def test_a_fault_that_the_server_noted_is_a_violation():
    assert ("a/: closed",) == inspect([record("a", 1, 2, "closed")], {}).violations


def test_a_demo_succeeds_when_its_crawl_is_completed():
    assert (0, 3, 9, 4) == (exit_code(0, 0), exit_code(3, 0), exit_code(0, 1), exit_code(4, 1))


def test_a_torn_last_line_is_left_out(tmp_path):
    (tmp_path / "log").write_text('{"a": 1}\n{"a"')
    assert [{"a": 1}] == list(records_of(tmp_path / "log"))
