"""Records from one frontier to another: states, order and names are copied; leases and hosts' clocks are not."""

from __future__ import annotations

import json

import pytest

from limiting import set_limits
from model.world import recount
from outrider import Frontier, Link
from outrider.errors import SettingsError
from outrider.sim.disk import FaultyFiles

START = 1_700_000_000_000_000
SECOND = 1_000_000


class Clock:
    def __init__(self, now=START):
        self.now = now

    def __call__(self):
        return self.now


@pytest.fixture
def lived():
    """A frontier with URLs in every state, of two crawls, with keys, metadata and validators."""
    clock = Clock()
    frontier = Frontier.memory(clock=clock, settings={"delay": 1.0}, robots="caller")
    frontier.discover([Link(f"http://h{n % 5}.test/{n}", priority=n / 100, depth=n % 3) for n in range(40)])
    frontier.discover(
        [
            Link("http://later.test/", not_before=START + 86_400 * SECOND),
            Link("http://key.test/", key="shared", metadata={"a": [1, None], "b": "ü"}),
            Link("http://h0.test/0", crawl="second", referrer="http://h1.test/from"),
            "http://private.test/x",
        ]
    )
    frontier.set_robots("http://private.test", 200, b"User-agent: *\nDisallow: /x\n")
    for turn in range(6):
        clock.now += 20 * SECOND
        outcomes = []
        for number, lease in enumerate(frontier.lease(8)):
            if number % 4 == 0:
                outcomes.append(lease.gone(status=404, error="http_404"))
            elif number % 4 == 1:
                outcomes.append(lease.retry(error="timeout"))
            else:
                digest = bytes([turn, number]) * 10
                outcomes.append(lease.done(seconds=0.1, digest=digest, etag=f'"{number}"', last_modified="Mon"))
        frontier.report(outcomes)
    clock.now += 10 * SECOND
    frontier.lease(3)
    return frontier


def copied(records, **more):
    copy = Frontier.memory(clock=Clock(START + 1_000 * SECOND), **{"robots": "caller", **more})
    return copy, copy.restore(records)


def test_a_url_that_became_due_during_the_copy_is_queued_and_counted_so():
    source = Frontier.memory(clock=Clock(), robots="caller")
    source.discover([Link("http://a.test/", not_before=START + 5 * SECOND), Link("http://b.test/")])
    records = list(source.records())
    assert ["waiting", "queued"] == [record["state"] for record in records]
    copy, _ = copied(records)
    assert ("queued", 2) == (copy.status("http://a.test/").state, copy.statistics()["urls"]["queued"])
    assert 2 == copy.count(state="queued")
    assert [] == list(copy.verify().problems)
    assert {"http://a.test/", "http://b.test/"} == set(copy.lease(9).urls)


def test_the_copy_of_a_copy_reads_like_the_first(lived):
    first = list(lived.records())
    assert {"queued", "waiting", "parked", "done", "gone"} == {record["state"] for record in first}
    copy, count = copied(first)
    assert (len(first), first) == (count, list(copy.records()))
    assert copy.verify().ok


def test_records_are_json_and_agree_with_status(lived):
    records = {(record["crawl"], record["url"]): record for record in lived.records()}
    assert records == {key: json.loads(json.dumps(record)) for key, record in records.items()}
    for (crawl, url), record in records.items():
        status = lived.status(url, crawl=crawl)
        # A waiting URL that is due is queued, and may be leased. Its record does not say so.
        states = {"queued": ("queued", "leased"), "waiting": ("waiting", "queued", "leased")}
        assert status.state in states.get(record["state"], (record["state"],))
        assert (status.priority, status.depth, status.attempts) == (
            record["priority"], record["depth"], record["attempts"],
        )  # fmt: skip


def test_a_copy_leases_in_the_order_of_the_original():
    clock = Clock()
    frontier = Frontier.memory(clock=clock, settings={"delay": 0.0, "delay_factor": 0.0}, robots="caller")
    frontier.discover([Link(f"http://h.test/{n}", priority=0.5) for n in (3, 1, 2, 5, 4)])
    copy, _ = copied(list(frontier.records()), settings={"delay": 0.0, "delay_factor": 0.0})
    order = []
    for _ in range(5):
        (lease,) = copy.lease(1)
        order.append(lease.url)
        copy.report([lease.done(seconds=0.0)])
    assert [f"http://h.test/{n}" for n in (3, 1, 2, 5, 4)] == order


def test_known_urls_are_unchanged(lived):
    copy = Frontier.memory(clock=Clock(START + 1_000 * SECOND), robots="caller")
    copy.discover(["http://h0.test/0"])
    records = list(lived.records())
    assert len(records) - 1 == copy.restore(records)
    assert "queued" == copy.status("http://h0.test/0").state
    assert 0 == copy.restore(records)


def test_a_record_that_appears_twice_counts_once(lived):
    records = list(lived.records())
    assert len(records) == copied([*records, *records])[1]


def test_restored_urls_survive_a_crash(lived):
    records = list(lived.records())
    disk = FaultyFiles()
    frontier = Frontier.open(disk, clock=Clock(START + 1_000 * SECOND), robots="caller")
    assert len(records) == frontier.restore(records)
    frontier._log.close()
    disk.unlock()
    again = Frontier.open(disk, clock=Clock(START + 1_001 * SECOND), robots="caller")
    assert (True, records) == (again.verify().ok, list(again.records()))


def test_a_restored_frontier_continues(lived):
    copy, _ = copied(list(lived.records()))
    assert "known" == str(copy.discover(["http://h1.test/1"])[0])
    leases = copy.lease(20)
    assert len(leases) >= 5
    copy.report([lease.done(seconds=0.1, links=["http://new.test/"]) for lease in leases])
    assert "queued" == copy.status("http://new.test/").state
    assert copy.verify().ok


@pytest.mark.parametrize(
    "wrong",
    [
        {"state": "lost"},
        {"url": "mailto:a@b"},
        {"url": None},
        {"priority": 2},
        {"priority": "high"},
        {"depth": -1},
        {"depth": 70_000},
        {"attempts": True},
        {"due": 2**63},
        {"reason": "boredom"},
        {"digest": "xyz"},
        {"error": 7},
        {"metadata": {"x": "y" * 20_000}},
        {"key": "k" * 2_000},
    ],
)
def test_an_invalid_record_is_refused_and_its_whole_call_changes_no_state(wrong):
    copy = Frontier.memory(clock=Clock(), robots="caller")
    good = {"url": "http://a.com/", "state": "done"}
    with pytest.raises(SettingsError):
        copy.restore([{**good, "url": "http://b.com/"}, {**good, **wrong}])
    assert 0 == copy.statistics()["accepted"]
    assert 1 == copy.restore([good])


@pytest.mark.parametrize(
    "wrong",
    [{"digest": "xyz"}, {"reason": "boredom"}, {"attempts": True}, {"status": 70_000}, {"priority": 2}, {"due": -1}],
)
def test_a_restore_that_is_refused_half_way_drops_no_url(wrong):
    """The URLs that a piece would have dropped stay queued when one of its records is invalid."""
    frontier = Frontier.memory(
        clock=Clock(), settings={"delay": 0.0, "max_urls_per_queue": 2, "when_full": "drop_lowest"}, robots="caller"
    )
    old = ["http://a.com/1", "http://a.com/2"]
    frontier.discover([Link(url, priority=0.1) for url in old])
    better = [{"url": f"http://a.com/{n}", "state": "queued", "priority": 0.9} for n in (3, 4)]
    for records in ([*better, {"url": "http://b.com/", "state": "done", **wrong}], [{**better[0], **wrong}]):
        with pytest.raises(SettingsError):
            frontier.restore(records)
    assert (["queued"] * 2, []) == ([str(frontier.status(url).state) for url in old], recount(frontier))
    assert old == [url for _ in old for url in _visited(frontier)]


def _visited(frontier):
    leases = frontier.lease(1)
    frontier.report([lease.done(seconds=0) for lease in leases])
    return leases.urls


def test_a_restored_url_makes_room_by_its_own_priority():
    """It replaces a URL of a lower class than its own, and no other."""
    frontier = Frontier.memory(
        clock=Clock(), settings={"max_urls_per_queue": 1, "when_full": "drop_lowest"}, robots="caller"
    )
    frontier.discover([Link("http://a.com/1", priority=0.4)])
    assert 0 == frontier.restore([{"url": "http://a.com/low", "state": "queued", "priority": 0.1}])
    assert 1 == frontier.restore([{"url": "http://a.com/high", "state": "queued", "priority": 0.9}])
    assert ("dropped", "queued") == (
        frontier.status("http://a.com/1").reason,
        str(frontier.status("http://a.com/high").state),
    )


def test_an_iterator_of_records_that_fails_does_not_stop_the_frontier():
    def broken():
        yield {"url": "http://a.com/", "state": "done"}
        raise RuntimeError("gone")

    frontier = Frontier.memory(clock=Clock(), robots="caller")
    with pytest.raises(SettingsError, match="RuntimeError: gone"):
        frontier.restore(broken())
    assert 1 == frontier.restore([{"url": "http://a.com/", "state": "done"}])


def test_a_copy_has_the_scope_of_its_seeds():
    """A URL of depth 0 spans the scope, as in the original frontier."""
    records = [{"url": "http://a.com/", "state": "done"}, {"url": "http://b.com/x", "state": "queued", "depth": 1}]
    copy, _ = copied(records, settings={"scope": "host"})
    (lease,) = copy.lease(5)
    report = copy.report([lease.done(links=["http://a.com/2", "http://b.com/2"])])
    assert ["new", "out_of_scope"] == [str(code) for code in report.links[0]]


def test_a_record_needs_only_a_url_and_a_state():
    copy, count = copied([{"url": "HTTP://A.com:80", "state": "queued"}, {"url": "http://b.com/", "state": "gone"}])
    assert (2, "queued", "gone") == (count, copy.status("http://a.com/").state, copy.status("http://b.com/").state)
    assert ["http://a.com/"] == copy.lease(5).urls


@pytest.mark.parametrize(
    "limits", [{"RECORDS_PER_SCAN": 7}, {"RECORDS_BYTES_PER_SCAN": 100}, {"RECORDS_BYTES_PER_SCAN": 1}]
)
def test_a_large_ledger_is_read_in_pieces(lived, monkeypatch, limits):
    whole = list(lived.records())
    set_limits(monkeypatch, **limits)
    assert whole == list(lived.records())
