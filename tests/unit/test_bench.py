"""The tools of the benches: tables, ratios, and the measurement of a child process."""

from __future__ import annotations

import json
import os
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from bench import confined, frontier, instructions, looks, scale, scale_peer, service, service_grpc, urlfrontier_peer
from bench.frontier_engine import REST_TICKS_MAX, REST_TICKS_MIN, STARTED_AT, TICK, Rests
from bench.made import batches, url_of
from bench.measuring import ChildFailedError, NoRoomError, Spent, run
from bench.tables import Table, middle, quantile, ratio
from bench.urls import sample

from outrider import Frontier, kernels

HAS_GRPC = kernels.in_use() == "native"


def test_a_ratio_is_our_cost_divided_by_the_other_cost():
    assert ("4.00x", None) == (ratio(8.0, 2.0), ratio(8.0, None))


def test_instructions_are_read_from_what_valgrind_says():
    assert 6_421_559_347 == instructions.counted("==2974== \n==2974== I   refs:      6,421,559,347\n")
    with pytest.raises(ChildFailedError, match="no such tool"):
        instructions.counted("valgrind: no such tool")


def test_the_median_of_an_even_number_is_the_mean_of_the_two_middle_values():
    assert (2.5, 3) == (middle([4, 1, 2, 3]), middle([9, 3, 1]))


def test_a_table_aligns_its_numbers_to_the_right():
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
def test_the_largest_memory_of_a_child_is_measured_without_that_of_its_parent():
    small = run([sys.executable, "-c", "import time; time.sleep(0.3)"])
    large = run([sys.executable, "-c", "import time; x = b'x' * 60_000_000; time.sleep(0.3)"])
    assert 50_000_000 <= large.peak_bytes - small.peak_bytes <= 70_000_000


def test_a_child_that_fails_shows_its_last_output():
    with pytest.raises(ChildFailedError, match="no such luck"):
        run([sys.executable, "-c", "raise SystemExit('no such luck')"])


def test_the_sample_of_urls_is_the_same_each_time():
    assert sample(50) == sample(50)


def test_a_quantile_is_a_value_that_was_measured():
    values = [float(value) for value in range(1, 101)]
    assert [1.0, 50.0, 99.0, 100.0] == [quantile(values, share) for share in (0.0, 0.5, 0.99, 1.0)]
    assert quantile([3.0], 0.99) == 3.0


def test_work_between_the_calls_is_not_in_their_time():
    spent = Spent()
    for _ in range(3):
        assert spent.call(lambda: 7) == 7
        begun = time.thread_time()
        while time.thread_time() - begun < 0.02:
            pass
    spent.end()
    assert len(spent.walls) == 3
    assert spent.cpu < 0.02


def test_generated_urls_are_distinct_and_no_host_appears_twice_in_a_call():
    urls = [url for call in batches(0, 6_000, 2_000) for url in call]
    assert len(set(urls)) == 6_000
    assert urls[17] == url_of(17, 2_000)
    assert 83 <= sum(map(len, urls)) / len(urls) <= 87
    hosts = [url.split("/")[2] for url in urls]
    assert len(set(hosts)) == 2_000
    assert len(set(hosts[:1_000])) == 1_000


def test_the_clock_moves_until_enough_hosts_are_ready():
    rests = Rests()
    seconds = rests.seconds(1_000)
    assert REST_TICKS_MIN / 10_000 <= seconds.min() <= seconds.max() < REST_TICKS_MAX / 10_000
    assert rests.wait_for(500)
    due = sorted(10 * seconds * 1_000_000)  # ten times the length of the fetch, in microseconds
    assert due[499] < rests() - STARTED_AT <= due[499] + 3 * TICK
    assert rests.wait_for(1_000)
    assert not rests.wait_for(1_001)


@pytest.mark.skipif(kernels.in_use() != "native", reason="plain kernels take a minute, and are measured alike")
@pytest.mark.parametrize("disk", [False, True], ids=["memory", "disk"])
def test_the_frontier_is_measured_and_an_abandoned_store_is_opened_again(tmp_path, disk, monkeypatch):
    monkeypatch.setattr(frontier, "CACHE", tmp_path)
    monkeypatch.setattr(frontier, "visits_of", lambda queues: 200)
    monkeypatch.setattr(frontier, "each_of", lambda queues: 40)
    store = tmp_path / "frontier" if disk else None
    found = frontier._visit(50, store)
    assert all(one["visits"] >= 50 and not one["short_calls"] for one in found["visits"] if one["want"] > 1)
    if store is not None:
        again = frontier._recover(found, store)
        assert again["accepted"] == 50 * 40
        shown = [frontier.discover_table({50: found}), frontier.store_table({50: found}, {50: again})]
        assert all(table.lines() for table in shown)
        assert all(figure.measured > 0 for figure in frontier.figures({}, {50: found}, {50: again}, [], {}))


def test_a_frontier_with_clocks_of_machines_is_measured_together_with_one_without(tmp_path, monkeypatch):
    monkeypatch.setattr(frontier, "CACHE", tmp_path)
    monkeypatch.setattr(frontier, "visits_of", lambda queues: 200)
    monkeypatch.setattr(frontier, "each_of", lambda queues: 40)
    found = frontier._shared(100)
    assert [(10, False), (10, False), (10, True)] == [(one["want"], one["crawl"]) for one in found["visits"]]
    assert 3 == len(frontier.shared_table({100: found}).rows)
    assert all(figure.measured > 0 for figure in frontier.figures({}, {}, {}, [], {}, shared={100: found}))


def test_the_embedded_and_the_served_frontier_lease_and_report_each_batch(tmp_path, monkeypatch):
    monkeypatch.setattr(service, "CACHE", tmp_path)
    for way in (service.EMBEDDED, service.REST, *([service.GRPC] if HAS_GRPC else [])):
        found = service._ours(way, 20, {1: 3, 10: 20})
        assert [3, 20] == [found[batch]["count"] for batch in (1, 10)]
        assert all(one["wall"] > 0 and one["next"][0] <= one["next"][1] for one in found.values())


def test_the_calls_of_urlfrontier_are_measured_and_without_the_native_build_the_server_names_it(tmp_path):
    measure = partial(service_grpc.measured, tmp_path / "crawl", 200, puts=100, calls=2, hand_outs=2)
    if not HAS_GRPC:
        with pytest.raises(AssertionError, match="needs the native build"):
            measure()
        return
    found = measure()
    assert {name for _, name, _, _ in service_grpc.ROWS} == found.keys()
    assert found["restart"] > 0
    assert found["get_p50"] <= found["get_p99"]


def test_served_leases_are_compared_with_the_peer_or_the_bench_says_that_the_peer_is_missing():
    ours = {"count": 100, "calls": 2, "wall": 1.0, "cpu": 0.01, "own": 0.02, "adding": 0.0001}
    ours |= {"next": [0.001, 0.002], "results": [0.003, 0.004]}
    theirs = {"fill": {"count": 10, "cpu": 0.01, "wall": 1.0}, "take": {"count": 10, "cpu": 0.004, "wall": 1.0}}
    found = {("REST", 100): [ours], ("embedded", 100): [ours]}
    alone = service.table(found, 10, 1, "No redis-server.")
    assert ("No redis-server.", 2) == (alone.notes[-1], len(alone.rows))
    beside = service.table({**found, ("scrapy-redis", 1): [theirs]}, 10, 1, None)
    assert "4.00x (to reach: 5x, MISSED); with adding 7.00x" in beside.notes[-1]
    assert ("REST", 100, 2.0, 1.0, 2.0, 3.0, 4.0, 100.0) == tuple(
        round(cell, 6) if isinstance(cell, float) else cell for cell in beside.rows[0][:8]
    )


def test_memory_above_a_budget_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(frontier, "CACHE", tmp_path)
    found = frontier._beyond(100, 300, 1)
    assert 1 << 20 < found["peak"] < 200 << 20
    assert 0 < found["seen_per_url"] < (20 if kernels.in_use() == "native" else 100)
    assert frontier.budgets_table([found]).lines()
    assert ["memory per further URL beyond 1 MB, 100 queues, without the seen-set"] == [
        figure.what for figure in frontier.figures({}, {}, {}, [found], {})
    ]


def test_the_memory_of_hosts_is_printed_as_a_slope(tmp_path, monkeypatch):
    monkeypatch.setattr(frontier, "CACHE", tmp_path)
    found = frontier._due(500)
    assert 0 < found["ready_seen"] <= found["resting_seen"] < found["resting"]
    larger = {**found, "queues": 1_500, "ready": found["ready"] + 100_000, "resting": found["resting"] + 200_000}
    assert (100.0, 200.0) == tuple(frontier.per_host([found, larger], moment) for moment in ("ready", "resting"))
    assert frontier.due_table([found, larger]).lines()
    assert [(100.0, "reached"), (200.0, "MISSED")] == [
        (figure.measured, figure.row()[-1]) for figure in frontier.figures({}, {}, {}, [], {}, [found, larger])
    ]


def test_a_target_is_missed_when_its_share_of_the_limit_is_above_one():
    slow = frontier.Figure("lease", 8.0, "µs", most=4.0)
    fast = frontier.Figure("rate", 600_000.0, "URL/s", least=300_000)
    assert (2.0, "MISSED") == (slow.share, slow.row()[-1])
    assert (0.5, "reached") == (fast.share, fast.row()[-1])


def test_an_item_of_the_peers_protocol_is_encoded_as_in_proto3():
    url = "http://a.org/" + "x" * 200
    info = b"\x0a\xd5\x01" + url.encode() + b"\x12\x05a.org"
    discovered = b"\x0a\xdf\x01" + info
    assert urlfrontier_peer.item(url, known=False) == (b"\x0a\xe2\x01" + discovered + b"\x1a\xd5\x01" + url.encode())
    assert urlfrontier_peer.url_in(info) == url
    assert (b"", b"\x20\xac\x02") == (urlfrontier_peer.number(1, 0), urlfrontier_peer.number(4, 300))


def test_leases_are_measured_during_all_queries():
    with Frontier.memory(settings=dict(looks.NO_PAUSES), robots="caller") as asked:
        looks.fill(asked, 150)
        assert {"done": 49, "gone": 1} == {name: asked.statistics()["urls"][name] for name in ("done", "gone")}
        found = looks.leased_beside(asked, 30, looks.looks_of(asked))
    assert 30 == found["leases"]
    assert found["looks"] >= 1
    assert looks.leased_table({"beside": found}, 150).lines()


def test_a_page_of_one_host_is_checked_by_its_cpu_time_and_other_queries_by_their_median():
    one = {"p50": 150.0, "max": 300.0, "cpu": 12.0}
    found = {"stats": one, "urls, of a host of one": one, "metrics": {**one, "p50": 201.0}}
    assert ["reached", "MISSED", "MISSED"] == [row[-1] for row in looks.asked_table(found, 10).rows]
    assert {*looks._PAGES} < {*looks.PATHS}


@pytest.mark.parametrize("method", ["in memory", "on disk"])
def test_the_sets_of_seen_keys_are_measured_with_their_answers(tmp_path, method, monkeypatch):
    monkeypatch.setattr(scale_peer, "SAMPLE", scale_peer.BATCH)
    found = scale_peer.measured(method, 50_000, tmp_path, 200_000)
    assert (0, True) == (found["wrong"], found["insertion"] > 0 and found["known"] > 0 and found["new"] > 0)


def test_a_bench_of_seen_keys_writes_its_progress_and_keeps_its_figures(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(scale, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(scale, "ROOT", tmp_path)
    monkeypatch.setattr(scale, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(scale, "PEERS_PYTHON", tmp_path / "missing")
    monkeypatch.setattr(scale, "KEYS_OF_OTHERS_MAX", 0)
    sets, batched = scale.tables(20_000, 16 << 20)
    assert [("on disk",), ("known, one a call", "in one pass")] == [
        tuple(row[0] for row in table.rows) for table in (sets, batched)
    ]
    kept = json.loads((tmp_path / "results" / "scale-20000.json").read_text())
    found = kept["sets"]["on disk"]
    assert (20_000, 16 << 20) == (kept["keys"], kept["memory"])
    assert (0, 0, 0) == (found["wrong"], found["pass_wrong"], found["alone_wrong"])
    assert "scale: kept in results/scale-20000.json" in capfd.readouterr().err
    assert [] == list((tmp_path / "cache").iterdir())


def test_a_bench_of_seen_keys_names_the_space_that_it_needs(tmp_path, monkeypatch):
    monkeypatch.setattr(scale, "CACHE", tmp_path)
    with pytest.raises(NoRoomError, match=r"1,000,000,000,000,000 keys need .* are free: use a smaller --keys"):
        scale.tables(10**15)


def test_progress_has_the_share_the_rate_and_the_minutes_that_are_left(monkeypatch, capsys):
    clock = iter((100.0, 105.0, 110.0, 112.0, 130.0))
    monkeypatch.setattr(scale_peer.time, "monotonic", lambda: next(clock))
    progress = scale_peer.StepProgress("scale: insertion", 1_000, "URLs")
    for _ in range(4):
        progress.add(100)
    assert [
        "scale: insertion: 20.0 % of 1,000 URLs, 20 URLs/s, 0.7 min left",
        "scale: insertion: 40.0 % of 1,000 URLs, 10 URLs/s, 0.8 min left",
    ] == capsys.readouterr().err.splitlines()


def test_a_child_joins_the_cgroup_that_its_parent_made_and_is_measured_without_one(tmp_path, monkeypatch):
    monkeypatch.setattr(confined, "_places", lambda: [(tmp_path / "missing", "limit"), (tmp_path, "limit")])
    with confined.confined(5_000_000) as environment:
        folder = Path(environment[confined.VARIABLE])
        assert "5000000" == (folder / "limit").read_text()
        monkeypatch.setenv(confined.VARIABLE, str(folder))
        assert confined.join()
        assert str(os.getpid()) == (folder / "cgroup.procs").read_text()
    monkeypatch.delenv(confined.VARIABLE)
    assert not confined.join()
    monkeypatch.setattr(confined, "_places", lambda: [(tmp_path / "missing", "limit")])
    with confined.confined(5_000_000) as environment:
        assert {} == environment
