"""The delay of a host: each rule by itself, the largest wins, and back-off doubles and is forgotten."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.clock import instant, seconds
from outrider.frontier.policy.politeness import GapReason, rests_after

ENDED = 1_700_000_000_000_000


class Rest(NamedTuple):
    until: int
    gap: float
    reason: int
    back_off: float
    refused_at: int
    throttle: float = 0.0
    latency_ms: int = 0

    @property
    def pace(self) -> float:
        return 1.0 - self.throttle


def rests(rows) -> list[Rest]:
    """Returns the delays after these requests, in one call."""
    latency_ms = {
        "seconds": None,
        "floor": 1.0,
        "factor": 10.0,
        "crawl_delay": None,
        "retry_after": None,
        "refused": False,
    }
    latency_ms |= {"pace": 1.0, "strained": False, "first_byte": None, "latency_ms": 0, "jitter": 0.0, "phase": None}
    rows = [latency_ms | {"back_off": 0.0, "refused_at": 0, "ended": ENDED} | row for row in rows]
    (factor,) = {row["factor"] for row in rows}

    def column(name, dtype=np.float64):
        return np.array([row[name] for row in rows], dtype)

    found = rests_after(
        column("ended", np.int64), seconds=column("seconds"), floor=column("floor"), factor=factor,
        back_off=column("back_off"), refused_at=column("refused_at", np.int64),
        crawl_delay=np.nan_to_num(column("crawl_delay")), retry_after=column("retry_after"),
        refused=column("refused", np.bool_), throttle=1.0 - column("pace"), strained=column("strained", np.bool_),
        first_byte=column("first_byte"), latency_ms=column("latency_ms", np.uint16), jitter=column("jitter"),
        window_phase=None if rows[0]["phase"] is None else column("phase", np.int64),
    )  # fmt: skip
    columns = (found.until, found.gap, found.reason, found.back_off, found.refused_at, found.throttle, found.latency_ms)
    return [Rest(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]


def rest(**how) -> Rest:
    """Returns the delay after one request: a column of one."""
    return rests([how])[0]


@pytest.mark.parametrize(
    ("how", "gap", "reason"),
    [
        ({}, 1.0, GapReason.FLOOR),
        ({"floor": 0.0}, 0.0, GapReason.FLOOR),
        ({"seconds": 0.05}, 1.0, GapReason.FLOOR),
        ({"seconds": 2.0}, 20.0, GapReason.FACTOR),
        ({"seconds": 7.0}, 60.0, GapReason.FACTOR),
        ({"seconds": 2.0, "factor": 0.0}, 1.0, GapReason.FLOOR),
        ({"seconds": 2.0, "crawl_delay": 30.0}, 30.0, GapReason.CRAWL_DELAY),
        ({"crawl_delay": 1e9}, 86_400.0, GapReason.CRAWL_DELAY),
        ({"retry_after": 120.0}, 120.0, GapReason.RETRY_AFTER),
        ({"retry_after": 0.0}, 1.0, GapReason.FLOOR),
        ({"retry_after": 1e12}, 31_536_000.0, GapReason.RETRY_AFTER),
        ({"retry_after": 2.0, "seconds": 3.0}, 30.0, GapReason.FACTOR),
        ({"refused": True}, 4.0, GapReason.BACK_OFF),
        ({"refused": True, "retry_after": 5.0}, 5.0, GapReason.RETRY_AFTER),
    ],
)
def test_the_largest_of_the_rules_wins(how, gap, reason):
    found = rest(**how)
    assert (gap, reason, ENDED + instant(gap)) == (found.gap, found.reason, found.until)


def test_back_off_doubles_up_to_a_day():
    gaps, now, found = [], ENDED, rest(refused=True)
    for _ in range(14):
        gaps.append(found.gap)
        now = found.until
        found = rest(ended=now, refused=True, back_off=found.back_off, refused_at=found.refused_at)
    assert [4.0, *(60.0 * 2**n for n in range(11)), *[86_400.0] * 2] == gaps


def test_half_an_hour_of_quiet_after_a_back_off_resets_the_next_one():
    first = rest(refused=True, back_off=120.0, refused_at=ENDED - instant(300))
    # With the largest random addition, the back-off of 240 s is over after 264.
    soon, later = (
        rest(ended=ENDED + instant(wait), refused=True, back_off=first.back_off, refused_at=first.refused_at)
        for wait in (264 + 1_800, 264 + 1_801)
    )
    assert (240.0, 480.0, 4.0) == (first.gap, soon.gap, later.gap)


def test_a_success_soon_after_a_refusal_keeps_the_back_off():
    assert 120.0 == rest(back_off=120.0, refused_at=ENDED - instant(200)).back_off


def test_a_success_long_after_a_refusal_forgets_it():
    assert 0.0 == rest(back_off=120.0, refused_at=ENDED - instant(2_000)).back_off


def test_retry_after_does_not_double_the_back_off():
    assert 60.0 == rest(refused=True, retry_after=5.0, back_off=60.0, refused_at=ENDED - instant(10)).back_off


@given(
    seconds_taken=st.none() | st.floats(0, 1e6),
    floor=st.floats(0, 86_400),
    factor=st.floats(0, 1_000),
    crawl_delay=st.none() | st.floats(0, 1e9),
    retry_after=st.none() | st.floats(-10, 1e12),
    refused=st.booleans(),
)
def test_no_delay_is_shorter_than_any_rule_requires(seconds_taken, floor, factor, crawl_delay, retry_after, refused):
    found = rest(
        seconds=seconds_taken, floor=floor, factor=factor, crawl_delay=crawl_delay, retry_after=retry_after,
        refused=refused,
    )  # fmt: skip
    gap = seconds(found.until - ENDED)
    least = max(
        floor, min(factor * (seconds_taken or 0), 60), min(crawl_delay or 0, 86_400), min(retry_after or 0, 31_536_000)
    )
    assert gap >= least - 1e-6
    assert not refused or retry_after is not None or gap >= 4


REQUESTS = st.fixed_dictionaries(
    {
        "seconds": st.none() | st.floats(0, 20),
        "floor": st.sampled_from([0.0, 1.0, 30.0]),
        "crawl_delay": st.none() | st.sampled_from([1.0, 30.0, 1e9]),
        "retry_after": st.none() | st.sampled_from([-1.0, 0.0, 30.0, 1e12]),
        "refused": st.booleans(),
        "back_off": st.sampled_from([0.0, 60.0, 86_400.0]),
        "refused_at": st.sampled_from([0, ENDED - instant(1_900), ENDED - instant(10)]),
        "jitter": st.sampled_from([0.0, 0.5, 0.999]),
        "strained": st.booleans(),
        "pace": st.sampled_from([1 / 64, 0.25, 0.875, 1.0]),
        "first_byte": st.none() | st.sampled_from([0.0, 0.02, 0.3, 0.7, 5.0, 900.0]),
        "latency_ms": st.sampled_from([0, 1, 20, 300, 65_535]),
    }
)


@given(st.lists(REQUESTS, min_size=1, max_size=6))
def test_a_request_delays_its_host_equally_in_a_batch_and_alone(rows):
    assert [rest(**row) for row in rows] == rests(rows)


@given(st.lists(st.none() | st.floats(0, 20), min_size=1, max_size=6), st.sampled_from([0.0, 30.0]))
def test_columns_without_values_may_be_left_out(seconds_taken, back_off):
    rows = [{"seconds": took, "back_off": back_off, "refused_at": ENDED - instant(1_900)} for took in seconds_taken]
    left_out = rests_after(
        ENDED, seconds=np.array(seconds_taken, np.float64), floor=1.0, factor=10.0,
        back_off=np.full(len(rows), back_off), refused_at=np.full(len(rows), ENDED - instant(1_900)),
    )  # fmt: skip
    whole = rests(rows)
    assert [one.until for one in whole] == left_out.until.tolist()
    assert [(one.gap, one.reason, one.back_off) for one in whole] == list(
        zip(left_out.gap.tolist(), left_out.reason.tolist(), left_out.back_off.tolist(), strict=True)
    )


def test_a_strained_host_gets_half_of_its_rate_after_each_failure():
    gaps, pace = [], 1.0
    for _ in range(8):
        found = rest(strained=True, pace=pace)
        gaps.append(found.gap)
        pace = found.pace
    assert [2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 64.0, 64.0] == gaps
    assert GapReason.STRAIN == found.reason


def test_a_recovered_host_has_its_rate_after_eight_answers():
    gaps, pace = [], 1 / 64
    for _ in range(9):
        found = rest(pace=pace)
        gaps.append(found.gap)
        pace = found.pace
    assert (sorted(gaps, reverse=True), 1.0, 1.0) == (gaps, gaps[-1], pace)
    assert gaps[-2] < 2.0


def test_strain_lengthens_the_delay_of_the_other_rules_up_to_five_minutes():
    assert 40.0 == rest(strained=True, seconds=2.0).gap
    assert 60.0 == rest(strained=True, crawl_delay=30.0).gap
    assert (400.0, GapReason.CRAWL_DELAY) == rest(strained=True, crawl_delay=400.0)[1:3]
    assert 300.0 == rest(strained=True, pace=1 / 64, crawl_delay=30.0).gap
    assert (500.0, GapReason.RETRY_AFTER) == rest(strained=True, retry_after=500.0)[1:3]
    assert 0.0 == rest(strained=True, floor=0.0).gap


def test_a_refusal_changes_only_the_back_off():
    assert (0.5, 4.0) == (rest(refused=True, pace=0.5).pace, rest(refused=True, pace=0.5).gap)


@given(st.lists(st.booleans(), max_size=60), st.floats(0.1, 5.0))
def test_the_rate_of_a_strained_host_stays_between_the_bound_and_its_owners_setting(failures, floor):
    pace = 1.0
    for failed in failures:
        found = rest(strained=failed, pace=pace, floor=floor)
        assert floor <= found.gap <= 300.0
        assert (found.pace < pace) if failed and pace > 1 / 64 else found.pace >= pace or failed
        pace = found.pace


def plain_rest(row: dict, *, factor: float) -> Rest:
    """The delay after one request by the rules in plain Python: the oracle of the columns."""
    took, first = row["seconds"] or 0.0, row["first_byte"]
    failed, refused = row["strained"], row["refused"]
    gap, why = row["floor"], GapReason.FLOOR
    if took > 0 and min(factor * took, 60.0) >= gap:
        gap, why = min(factor * took, 60.0), GapReason.FACTOR
    delay = min(row["crawl_delay"] or 0.0, 86_400.0)
    if row["phase"] is not None and delay:
        length = instant(delay)
        begun = row["ended"] - int(took * 1_000_000)
        window = (begun - row["phase"]) // length
        delay = max(row["phase"] + (window + 1) * length - row["ended"], 0) / 1_000_000
    if delay and delay >= gap:
        gap, why = delay, GapReason.CRAWL_DELAY
    latency_ms, late = row["latency_ms"], None
    if first is not None and not failed and not refused:
        waited = min(first * 1_000, 65_535)
        if latency_ms and waited > 2 * latency_ms and waited >= 500:
            late = latency_ms / waited
        latency_ms = max(
            1, round(latency_ms + (min(waited, 2 * latency_ms) - latency_ms) / 16) if latency_ms else -int(-waited // 1)
        )
    pace = row["pace"]
    if failed:
        pace = max(pace / 2, 1 / 64)
    elif refused:
        pass
    elif late is not None:
        pace = min(pace, max(pace * 0.75, late, 1 / 64))
    else:
        pace = min(pace + 1 / 8, 1.0)
    if min(gap / pace, 300.0) > gap:
        gap, why = min(gap / pace, 300.0), GapReason.STRAIN
    asked = row["retry_after"]
    if asked is not None and min(max(asked, 0.0), 31_536_000.0) >= gap:
        gap, why = min(max(asked, 0.0), 31_536_000.0), GapReason.RETRY_AFTER
    back_off, refused_at = row["back_off"], row["refused_at"]
    forgotten = row["ended"] - refused_at > instant(back_off * 1.1 + 1_800)
    if refused:
        if asked is None:
            back_off = min(max(2 * back_off, 60.0), 86_400.0) if back_off and not forgotten else 4.0
            if back_off * (1 + 0.1 * row["jitter"]) >= gap:
                gap, why = back_off * (1 + 0.1 * row["jitter"]), GapReason.BACK_OFF
        refused_at = row["ended"]
    elif forgotten:
        back_off = 0.0
    return Rest(row["ended"] + instant(gap), gap, why, back_off, refused_at, 1 - pace, latency_ms)


@given(st.lists(REQUESTS, min_size=1, max_size=12), st.sampled_from([0.0, 10.0]), st.none() | st.integers(0, 10**14))
def test_the_columns_delay_hosts_like_the_plain_rules(rows, factor, phase):
    rows = [row | {"ended": ENDED, "factor": factor, "phase": phase} for row in rows]
    for row, found in zip(rows, rests(rows), strict=True):
        told = plain_rest(row, factor=factor)
        assert told.reason == found.reason
        assert abs(told.until - found.until) <= 1
        assert told[3:5] == found[3:5]
        assert pytest.approx(tuple(told[1:])) == tuple(found[1:])


def test_a_random_addition_lengthens_a_back_off_by_a_tenth_at_most_and_never_shortens_it():
    gaps = [rest(refused=True, jitter=jitter, back_off=60.0, refused_at=ENDED).gap for jitter in (0.0, 0.5, 0.999)]
    assert (120.0, 126.0) == (gaps[0], gaps[1])
    assert 126.0 < gaps[2] < 132.0


def test_a_crawl_delay_as_a_window_lets_one_request_start_in_each():
    began, beginnings = ENDED, []
    for took in (0.5, 0.1, 12.0, 9.9, 0.0, 31.0):
        beginnings.append(began)
        began = rest(ended=began + instant(took), seconds=took, crawl_delay=10.0, factor=0.0, floor=0.0, phase=7).until
    windows = [(at - 7) // instant(10) for at in beginnings]
    assert sorted(set(windows)) == windows
    again = rest(ended=ENDED, seconds=0.0, crawl_delay=10.0, factor=0.0, floor=3.0, phase=ENDED + instant(1))
    assert (3.0, GapReason.FLOOR) == again[1:3]


@given(st.lists(st.floats(0, 40), min_size=2, max_size=20), st.integers(0, 10**15), st.sampled_from([0.001, 1.0, 7.5]))
def test_no_window_contains_two_starts(durations, phase, delay):
    began, last = ENDED, None
    for took in durations:
        window = (began - phase) // instant(delay)
        assert last is None or window > last
        last = window
        began = rest(
            ended=began + instant(took), seconds=took, crawl_delay=delay, floor=0.0, factor=0.0, phase=phase
        ).until


def test_a_host_that_becomes_slower_gets_longer_delays_before_its_first_error():
    latency_ms, gaps, pace = 0, [], 1.0
    for waited in [0.1] * 20 + [0.2, 0.4, 0.8, 1.6, 3.2]:
        found = rest(first_byte=waited, latency_ms=latency_ms, pace=pace, factor=0.0)
        latency_ms, pace = found.latency_ms, found.pace
        gaps.append(found.gap)
    assert [1.0] * 22 == gaps[:22]
    assert sorted(gaps[22:]) == gaps[22:]
    assert gaps[22] > 1.3
    assert gaps[24] > 2.3


def test_a_host_that_stays_slow_has_its_rate_again_after_some_dozen_answers():
    latency_ms, pace, slowest = 200, 1.0, 0.0
    for _ in range(40):
        found = rest(first_byte=0.8, latency_ms=latency_ms, pace=pace, factor=0.0)
        latency_ms, pace, slowest = found.latency_ms, found.pace, max(slowest, found.gap)
    assert (1.0, True) == (found.gap, slowest <= 4.0)


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 70)), max_size=60), st.floats(0.1, 5.0))
def test_the_rate_of_a_fast_host_never_exceeds_its_owners_setting(answers, floor):
    latency_ms, pace = 0, 1.0
    for failed, waited in answers:
        found = rest(
            strained=failed, first_byte=None if failed else waited, latency_ms=latency_ms, pace=pace, floor=floor
        )
        latency_ms, pace = found.latency_ms, found.pace
        assert floor <= found.gap <= 300.0
        assert 1 / 64 <= pace <= 1.0
