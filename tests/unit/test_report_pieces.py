"""Calls that are longer than a frame should be: how they are cut, their answers, and a crash in the middle."""

from __future__ import annotations

import errno
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from limiting import set_limits
from model.world import Clock, World, recount
from outrider.engine import Frontier
from outrider.errors import SettingsError, StoreError, StoreFullError
from outrider.frontier.verbs.arrivals import pieces_of
from outrider.journey import Link, Outcome, OutcomeBatch, Settled, Verdict
from outrider.kernels import in_use
from outrider.limits import CALL_BYTES_PER_FRAME, URL_BYTES_MAX
from outrider.sim.disk import CrashDisk, FaultyFiles
from outrider.url import UrlBatch

A, B = "http://a.com/", "http://b.com/"
SMALL = 2_000


@pytest.fixture
def small(monkeypatch):
    """Sets frames of some two thousand bytes."""
    set_limits(monkeypatch, CALL_BYTES_PER_FRAME=SMALL)


def frames(world, call) -> tuple[object, list[int]]:
    """Returns the answer of a call, and the sizes of the frames that it logged."""
    log = world.inspect().core._log
    sizes: list[int] = []
    append = log.append

    def counted(kind, payload, **how):
        sizes.append(len(payload))
        return append(kind, payload, **how)

    log.append = counted
    try:
        return call(), sizes
    finally:
        del log.append


def found(count, host="l", size=40) -> list[str]:
    return [f"http://{host}.com/{n:06}{'x' * size}" for n in range(count)]


def test_links_below_long_urls_are_cut_into_frames_by_their_bytes():
    """Two pages with 8,600 links each below URLs of 8 kB: 275 MB in one call, once refused with `cut it`. With plain
    kernels 16 MB, because they hash a megabyte in a second."""
    count = 8_600 if in_use() == "native" else 1_000
    world = World(disk=FaultyFiles())
    pages = [f"{host}{'x' * 8_000}/" for host in (A, B)]
    world.discover(*pages)
    leases = world.lease()
    batches = [UrlBatch.of([f"{lease.url}p{n}" for n in range(count)]) for lease in leases]
    outcomes = [lease.done(seconds=0.1, links=urls) for lease, urls in zip(leases, batches, strict=True)]
    report, sizes = frames(world, lambda: world.frontier.report(outcomes))
    assert ((Settled.OK,) * 2, [count] * 2) == (report.outcomes, [len(codes) for codes in report.links])
    assert {"new"} == {str(code) for codes in report.links for code in codes}
    assert len(sizes) > count // 430
    assert {"queued": 2 * count, "done": 2} == world.counts()
    assert [] == recount(world.frontier)


@pytest.mark.usefixtures("small")
def test_the_links_of_a_long_outcome_are_logged_before_the_outcome():
    world = World()
    world.discover(A)
    lease = world.one()
    report, sizes = frames(world, lambda: world.frontier.report([lease.done(links=found(50))]))
    assert (("ok",), ["new"] * 50) == (report.outcomes, list(report.links[0]))
    assert len(sizes) > 5
    assert {"queued": 50, "done": 1} == world.counts()


@pytest.mark.usefixtures("small")
def test_a_line_counts_the_new_links_of_all_its_frames():
    world = World(output=True)
    world.discover(A, *found(3))
    lease = next(lease for lease in world.lease() if lease.url == A)
    outcome = Outcome(lease.token, Verdict.DONE, links=found(50), line=b'{"url":"x"}')
    ((_, line),) = world.frontier.report([outcome]).lines
    assert b'"new_links":47' in line


@pytest.mark.usefixtures("small")
def test_a_frame_ends_only_between_two_outcomes():
    world = World()
    world.discover(*(f"http://h{n}.com/" for n in range(40)))
    leases = world.lease()
    report, sizes = frames(world, lambda: world.frontier.report(OutcomeBatch(leases.tokens)))
    assert ({"ok"}, {"done": 40}) == ({str(code) for code in report}, world.counts())
    assert len(sizes) > 2


@pytest.mark.usefixtures("small")
def test_a_token_named_in_two_frames_counts_once():
    world = World()
    world.discover(A, *found(60))
    token = world.lease(1).tokens[0]
    report = world.frontier.report([Outcome(token, Verdict.DONE, links=found(60, host="m"))] * 2)
    assert (("ok", "stale"), 60, ()) == (report.outcomes, len(report.links[0]), report.links[1])
    assert 1 == world.counts()["done"]


@pytest.mark.usefixtures("small")
def test_the_links_of_a_stale_outcome_stay_unread_at_any_number():
    world = World()
    world.discover(A)
    lease = world.one()
    world.report(lease.done())
    report = world.frontier.report([lease.done(links=found(60))])
    assert (("stale",), ((),)) == (report.outcomes, report.links)
    assert {"done": 1} == world.counts()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("wrong", [Link(B, priority=7), Link(B, depth=-1)])
def test_a_wrong_link_in_the_last_frame_changes_no_state(wrong):
    world = World()
    world.discover(A)
    lease = world.one()
    with pytest.raises(SettingsError):
        world.frontier.report([lease.done(links=[*found(60), wrong])])
    with pytest.raises(SettingsError):
        world.frontier.discover([*map(Link, found(60)), wrong])
    assert {"leased": 1} == world.counts()


LINKS = st.lists(
    st.one_of(
        st.integers(0, 30).map(lambda n: f"http://h{n % 5}.com/{n}"),
        st.integers(0, 30).map(lambda n: Link(f"http://h{n % 5}.com/{n}", key=f"k{n % 2}", metadata={"n": n})),
        st.sampled_from(["nonsense", "http://h.com/" + "y" * URL_BYTES_MAX]),
    ),
    max_size=12,
)


@given(st.lists(LINKS, min_size=1, max_size=5), LINKS, st.integers(200, 3_000))
@settings(max_examples=30, deadline=None)
def test_a_call_in_pieces_answers_like_one_frame(of_outcomes, extra, most):
    answers = []
    for bytes_max in (CALL_BYTES_PER_FRAME, most):
        with pytest.MonkeyPatch.context() as patch:
            set_limits(patch, CALL_BYTES_PER_FRAME=bytes_max)
            world = World()
            seeds = [f"http://s{n}.com/" for n in range(len(of_outcomes))]
            told = world.discover(*seeds, *extra)
            by_url = {lease.url: lease for lease in world.lease() if lease.url in seeds}
            outcomes = [by_url[seed].done(links=links) for seed, links in zip(seeds, of_outcomes, strict=True)]
            some = UrlBatch.of([f"http://e.com/{n}" for n in range(5)]).with_columns(outcome=0)
            report = world.frontier.report(outcomes, some)
            answers.append((told, report.outcomes, report.links, world.counts(), recount(world.frontier)))
    assert answers[0] == answers[1]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("form", [list, UrlBatch.of])
def test_a_long_discover_repeats_its_answer_whole(form):
    world = World()
    codes = world.frontier.discover(form(found(100)), request_id=("me", 1))
    world.kill()
    assert (codes, ["new"] * 100) == (world.frontier.discover(form(found(100)), request_id=("me", 1)), codes)


def broken_off(world, call) -> Frontier:
    """Interrupts a call after each of its frames in turn. Yields the frontier that is opened after it."""
    disk = world.disk
    for frame in range(1, 1_000):
        world.disk = disk.copy()
        world.frontier = world._open()
        log = world.inspect().core._log
        append, left = log.append, [frame]

        def refuses(kind, payload, *, append=append, left=left, **how):
            if not left[0]:
                raise StoreFullError("for the test")
            left[0] -= 1
            return append(kind, payload, **how)

        log.append = refuses
        try:
            call()
            return
        except StoreFullError:
            pass
        del log.append
        yield frame


@pytest.mark.usefixtures("small")
def test_an_interrupted_discover_continues_where_it_was():
    world = World()
    for _ in broken_off(world, lambda: world.frontier.discover(found(60), request_id=("me", 1))):
        world.kill()
        assert ["new"] * 60 == world.discover(*found(60), request_id=("me", 1))
        assert ({"queued": 60}, []) == (world.counts(), recount(world.frontier))


@pytest.mark.usefixtures("small")
def test_an_interrupted_report_continues_where_it_was():
    """Its answer is that of an uninterrupted report: no outcome of the caller becomes stale."""
    world = World()
    world.discover(A, B, "http://c.com/")
    leases = {lease.url: lease for lease in world.lease(worker="w")}
    outcomes = [
        leases[A].done(links=found(5)),
        leases[B].done(links=found(30, "m")),
        leases["http://c.com/"].done(links=[*found(3), *found(20, "n")]),
    ]
    world.frontier.release([])
    frames = 0
    for _ in broken_off(world, lambda: world.frontier.report(outcomes, request_id=("me", 1))):
        frames += 1
        world.kill()
        report = world.frontier.report(outcomes, request_id=("me", 1))
        assert ("ok",) * 3 == report.outcomes
        told = [["new"] * 5, ["new"] * 30, ["known"] * 3 + ["new"] * 20]
        assert told == [list(map(str, codes)) for codes in report.links]
        assert ({"queued": 55, "done": 3}, []) == (world.counts(), recount(world.frontier))
        again = world.frontier.report(outcomes, request_id=("me", 1))
        assert (report.outcomes, report.links) == (again.outcomes, again.links)
    assert frames > 4


@pytest.mark.usefixtures("small")
def test_lines_of_the_frames_before_a_full_disk_are_in_the_next_answer():
    world = World(output=True)
    world.discover(*(f"http://h{n}.com/" for n in range(20)))
    leases = world.lease(worker="w")
    outcomes = [Outcome(lease.token, Verdict.DONE, seconds=0.1, line=b"{%s}" % (b" " * 300)) for lease in leases]
    for _ in broken_off(world, lambda: world.frontier.report(outcomes)):
        report = world.frontier.report(outcomes)
        assert 20 == len(report.lines), "each once, those of the frames that were kept among them"


@pytest.mark.usefixtures("small")
def test_a_report_without_a_request_id_that_met_a_full_disk_answers_for_all_when_it_is_repeated():
    """Outcomes of the frames before the full disk were once stale, although they had been accepted."""
    world = World()
    world.discover(A, B, "http://c.com/")
    leases = {lease.url: lease for lease in world.lease(worker="w")}
    outcomes = [
        leases[A].done(links=found(30)),
        leases[B].done(links=found(30, "m")),
        leases["http://c.com/"].done(links=found(5, "n")),
    ]
    world.frontier.release([])
    for _ in broken_off(world, lambda: world.frontier.report(outcomes)):
        report = world.frontier.report(list(reversed(outcomes)))
        assert (("ok",) * 3, [5, 30, 30]) == (report.outcomes, list(map(len, report.links)))
        assert ({"queued": 65, "done": 3}, []) == (world.counts(), recount(world.frontier))
        assert 0 == world.frontier.statistics()["stale"]
        assert ("stale",) * 3 == world.frontier.report(outcomes).outcomes, "each is answered once"


@pytest.mark.usefixtures("small")
def test_answers_without_a_returning_caller_are_bounded(monkeypatch):
    set_limits(monkeypatch, ANSWERS_UNTAKEN_MAX=3)
    world = World()
    world.discover(*(f"http://h{n}.com/" for n in range(9)))
    leases = world.lease(worker="w")
    outcomes = [lease.done(links=found(20, lease.host)) for lease in leases]
    world.frontier.release([])
    stale = []
    for _ in broken_off(world, lambda: world.frontier.report(outcomes)):
        assert len(world.inspect().reports._unanswered) <= 3
        codes = list(map(str, world.frontier.report(outcomes).outcomes))
        assert sorted(codes, reverse=True) == codes, "those whose answers went come first"
        stale.append(codes.count("stale"))
        assert ({"queued": 180, "done": 9}, []) == (world.counts(), recount(world.frontier))
    assert 0 == min(stale) < max(stale)


@pytest.mark.usefixtures("small")
def test_a_power_cut_between_the_frames_of_a_report_loses_no_link_and_ends_no_lease_twice():
    """The disk in each possible state at each of its calls: links without their outcome, never an outcome without its
    links."""
    rng = random.Random(1)
    base = World()
    base.discover(A)
    links = found(40)
    token = base.one(worker="w").token
    cut, between = 0, 0
    while True:
        cut += 1
        disk = CrashDisk()
        for name, data in base.disk.contents().items():
            disk.put(name, data)
        world = World(disk=disk, clock=Clock(base.clock.at))
        assert [token] == np.frombuffer(world.inspect().tables.urls.leases.tokens(), np.uint64).tolist()
        disk.fail(cut, errno.EIO, forever=True)
        failed = False
        try:
            world.report(Outcome(token, Verdict.DONE, seconds=0.0, links=links))
        except StoreError:
            failed = True
        for image in disk.crash_images(rng, 3):
            after = World(disk=image, clock=world.clock)
            there = sum(after.state(url) == "queued" for url in links)
            done = after.state(A) == "done"
            assert (there == len(links)) >= done
            between += 0 < there < len(links)
            if not failed:
                assert done, "it was answered"
            code = after.report(Outcome(token, Verdict.DONE, seconds=0.0, links=links))
            assert ["stale" if done else "ok"] == code
            assert ({"queued": 40, "done": 1}, []) == (after.counts(), recount(after.frontier))
            after.frontier.close()
        if not failed:
            break
    assert between, "no image lay between two frames"


@pytest.mark.usefixtures("small")
def test_records_are_restored_in_frames_by_their_bytes():
    world = World()
    world.discover(*(Link(url, metadata={"x": "y" * 1_000}) for url in found(50)))
    records = list(world.frontier.records())
    other = World()
    taken, sizes = frames(other, lambda: other.frontier.restore(records))
    assert (50, {"queued": 50}) == (taken, other.counts())
    assert len(sizes) > 10
    assert records == list(other.frontier.records())


@pytest.mark.usefixtures("small")
def test_parcels_are_received_in_frames_by_their_bytes():
    parcels = [(1, n + 1, 2, "default", "", -1, 0.5, 0, 0, 1, "r" * 500, b"", url) for n, url in enumerate(found(30))]
    world = World()
    codes, sizes = frames(world, lambda: world.frontier.receive(parcels))
    assert (["new"] * 30, ["known"] * 30) == (list(codes), list(world.frontier.receive(parcels)))
    assert len(sizes) > 5


@given(st.lists(st.integers(0, 50), max_size=30), st.integers(1, 100))
def test_pieces_contain_all_rows_within_their_limit(costs, most):
    pieces = pieces_of(np.array(costs, np.int64), most)
    assert list(range(len(costs))) == [row for first, last in pieces for row in range(first, last)]
    assert all(last - first <= 1 or sum(costs[first:last]) <= most for first, last in pieces)


def test_combined_calls_that_are_too_long_together_are_made_separately(monkeypatch):
    """Each of several callers has its own answer. No caller finds its links known because another's frame was full."""
    set_limits(monkeypatch, CALL_BYTES_PER_FRAME=SMALL)
    world = World()
    from outrider.engine.calls import SmallCall

    calls = [SmallCall.discover(found(20, host), None) for host in ("p", "q", "r")]
    world.frontier._make_all(calls)
    assert [["new"] * 20] * 3 == [list(map(str, call.result())) for call in calls]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("settings", [{}, {"scope": "host"}])
@pytest.mark.parametrize("request_id", [None, ("client", 1)])
def test_a_crawl_that_starts_in_a_later_frame_of_a_call_is_made_there(settings, request_id):
    """Its row was once made for the first frame and never logged. Its URLs counted for no crawl, or for the next one,
    and the counters were wrong after a restart."""
    world = World(**settings)
    world.frontier.delete()
    links = [
        Link(f"{url}{n}", crawl=crawl)
        for crawl, url in (("one", A), ("two", A), ("default", B), ("three", B))
        for n in range(30)
    ]
    codes, sizes = frames(world, lambda: world.frontier.discover(links, request_id=request_id))
    assert (["new"] * 120, True) == (codes, len(sizes) > 3)
    assert ["new"] == world.frontier.discover([Link("http://c.com/", crawl="four")])
    for _ in range(2):
        assert [30, 30, 30, 30, 1] == [
            world.frontier.count(crawl=crawl) for crawl in ("one", "two", "default", "three", "four")
        ]
        assert ([], True) == (recount(world.frontier), world.frontier.verify().ok)
        world.reopen()


@pytest.mark.usefixtures("small")
def test_a_crawl_whose_links_are_all_refused_in_the_first_frame_is_made_in_the_second():
    """The first frame added no URL to the default crawl, so its name was once in no frame."""
    world = World()
    world.frontier.delete()
    codes = world.frontier.discover([*["no URL " + "x" * 100] * 40, *found(40)])
    assert ["invalid"] * 40 + ["new"] * 40 == codes
    assert (40, ["l.com"]) == (world.frontier.count(), [queue.key for queue in world.frontier.queues()])
    world.reopen()
    assert (40, True) == (world.frontier.count(), world.frontier.verify().ok)
