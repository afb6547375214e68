"""Invalid values are reported by name, and the frontier continues: no value stops it."""

from __future__ import annotations

import contextlib
import inspect
import itertools
from dataclasses import replace

import numpy as np
import pytest

from good_arguments import GOOD
from limiting import set_limits
from model.world import START, World
from outrider import Frontier, Link
from outrider.clock import rfc3339, rfc3339_exact
from outrider.errors import ForeignStoreError, OutriderError, SettingsError
from outrider.frontier.verbs import arguments, outcome_columns
from outrider.journey import Outcome, OutcomeBatch, Verdict
from outrider.storage.memory import MemoryFiles

A = "http://a.com/"
PARCEL = (1, 1, 2, "default", "", -1, 0.5, 0, 0, 0, "", b"", "http://b.com/")


ODD = [
    *(None, -1, 0, 1.5, float("nan"), float("inf"), True, "x", "", b"x", [], {}, object(), [None], [[1]], (1, 2)),
    *(10**400, 2**63, "\ud800", "x" * 5_000, len, {1}, np.int64(5), np.float64(-3), np.array([1.5]), 1j, {"a": None}),
]


def nested(levels):
    value = 1
    for _ in range(levels):
        value = [value]
    return value


def broken():
    yield from ()
    raise KeyError("gone")


WRONG = {
    "an etag with half a surrogate": lambda frontier, lease: frontier.report([lease.done(etag="\ud800")]),
    "a date with half a surrogate": lambda frontier, lease: frontier.report([lease.done(last_modified="\ud800")]),
    "links that are a mapping": lambda frontier, lease: frontier.report([lease.done(links={"a": 1})]),
    "links that are one number": lambda frontier, lease: frontier.report([lease.done(links=np.array(1))]),
    "two answers to refused": lambda frontier, lease: frontier.report([lease.retry(refused=np.array([1, 2]))]),
    "seconds beyond all floats": lambda frontier, lease: frontier.report(
        OutcomeBatch([lease.token], seconds=[10**400])
    ),
    "a watermark that is none": lambda frontier, lease: frontier.report([lease.done()], watermark=True),
    "a watermark without bytes": lambda frontier, lease: frontier.note_watermark("w", None),
    "a stream that is none": lambda frontier, lease: frontier.note_projection(None, 1, 1),
    "a place below none": lambda frontier, lease: frontier.note_projection("pages", 1, -1),
    "a slot that is none": lambda frontier, lease: frontier.delivered({-1: 1}),
    "errands that are many": lambda frontier, lease: frontier.lease(1, errands=np.array([1, 2])),
    "no authority": lambda frontier, lease: frontier.set_robots(None, 200),
    "authorities in one text": lambda frontier, lease: frontier.crawl_delays("http://a.com"),
    "an authority without scheme": lambda frontier, lease: frontier.crawl_delays(["a.com"]),
    "a lease of a token that is none": lambda frontier, lease: frontier.held(0),
    "a wait below none": lambda frontier, lease: frontier.lease(1, wait_seconds=-1),
    "a wait of more than a day": lambda frontier, lease: frontier.lease(1, wait_seconds=86_401),
    "no addresses": lambda frontier, lease: frontier.set_addresses(None),
    "an error class in bytes": lambda frontier, lease: frontier.retry(error=bytearray(b"x")),
    "a host in bytes": lambda frontier, lease: frontier.retry(host=b"a.com"),
    "no URLs": lambda frontier, lease: frontier.reprioritise(None, 0.5),
    "URLs that break off": lambda frontier, lease: frontier.reprioritise(broken(), 0.5),
    "a crawl in bytes": lambda frontier, lease: frontier.reprioritise(A, 0.5, crawl=bytearray(b"x")),
    "a crawl to pause in bytes": lambda frontier, lease: frontier.pause(crawl=bytearray(b"x")),
    "a crawl to delete in bytes": lambda frontier, lease: frontier.delete(crawl=bytearray(b"x")),
    "a parcel whose metadata is a text": lambda frontier, lease: frontier.receive([(*PARCEL[:11], "{}", PARCEL[12])]),
    "metadata too deep": lambda frontier, lease: frontier.discover([Link(A, metadata={"a": nested(100_000)})]),
    "no records": lambda frontier, lease: frontier.restore(None),
    "records that break off": lambda frontier, lease: frontier.restore(broken()),
    "a record that is none": lambda frontier, lease: frontier.restore([None]),
    "a record's strange state": lambda frontier, lease: frontier.restore([{"url": A, "state": bytearray(b"x")}]),
    "a record's strange etag": lambda frontier, lease: frontier.restore(
        [{"url": "http://b.com/", "state": "done", "etag": "\ud800"}]
    ),
    "a record's strange metadata": lambda frontier, lease: frontier.restore(
        [{"url": A, "state": "done", "metadata": {None: 1}}]
    ),
    "links that are bytes": lambda frontier, lease: frontier.discover(b"http://a.com/"),
    "seconds before the request": lambda frontier, lease: frontier.report([lease.done(seconds=-0.1)]),
    "negative seconds in a batch": lambda frontier, lease: frontier.report(OutcomeBatch([lease.token], seconds=[-1])),
    "half a status in a batch": lambda frontier, lease: frontier.report(OutcomeBatch([lease.token], statuses=[200.5])),
    "half a status": lambda frontier, lease: frontier.report([lease.done(status=200.5)]),
    "a status that is a list": lambda frontier, lease: frontier.report([lease.done(status=[])]),
    "seconds that are a table": lambda frontier, lease: frontier.report([lease.done(seconds=[[1]])]),
    "a retry in the past": lambda frontier, lease: frontier.report([lease.retry(after_seconds=-5)]),
    "a Retry-After in the past": lambda frontier, lease: frontier.report([lease.retry(retry_after_seconds=-5)]),
    "seconds without end": lambda frontier, lease: frontier.report([lease.retry(after_seconds=float("inf"))]),
    "a lease of no length": lambda frontier, lease: frontier.lease(1, ttl_seconds=0),
    "a lease that ends before it begins": lambda frontier, lease: frontier.lease(1, ttl_seconds=-1),
    "an extension into the past": lambda frontier, lease: frontier.extend([lease.token], -1),
    "an extension that is no number": lambda frontier, lease: frontier.extend([lease.token], float("nan")),
    "a delay below none": lambda frontier, lease: frontier.set_delay(-1, "a.com"),
    "a delay that is no number": lambda frontier, lease: frontier.set_delay(float("nan"), "a.com"),
    "a block before 1970": lambda frontier, lease: frontier.block_until(-1, "a.com"),
    "a deferral before 1970": lambda frontier, lease: frontier.defer([lease.token], -1),
    "a token and a half": lambda frontier, lease: frontier.report([Outcome(lease.token + 0.5, Verdict.GONE)]),
    "robots that are a number": lambda frontier, lease: frontier.report([Outcome(lease.token, Verdict.DONE, robots=7)]),
    "metadata that is no mapping": lambda frontier, lease: frontier.discover([Link(A, metadata="x")]),
    "parcels that are none": lambda frontier, lease: frontier.receive(None),
    "a parcel that is none": lambda frontier, lease: frontier.receive([None]),
    "a parcel of no text": lambda frontier, lease: frontier.receive([(*PARCEL[:12], None)]),
    "a parcel from nowhere": lambda frontier, lease: frontier.receive([(-1, *PARCEL[1:])]),
    "a parcel whose metadata is no JSON": lambda frontier, lease: frontier.receive([(*PARCEL[:11], b"{", PARCEL[12])]),
    "a host that is none": lambda frontier, lease: frontier.count(host="no host"),
    "a crawl that is a list": lambda frontier, lease: frontier.queues(crawl=[]),
    "a cursor that is a number": lambda frontier, lease: frontier.urls(after=7),
    "a cursor of hosts that is true": lambda frontier, lease: frontier.hosts(after=True),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=list(WRONG))
def test_an_invalid_argument_is_reported_and_the_frontier_continues(wrong):
    with Frontier.memory(clock=lambda: START, robots="caller") as frontier:
        frontier.discover([A])
        (lease,) = frontier.lease(1)
        with pytest.raises(SettingsError):
            wrong(frontier, lease)
        assert ["ok"] == list(frontier.report([lease.done(seconds=0.1)]))
        assert frontier.verify().ok


@pytest.mark.parametrize("number", [-1, -(1 << 40), -(1 << 63)])
@pytest.mark.parametrize("field", ["status", "ended_at", "at", "seconds", "after_seconds"])
def test_a_negative_number_among_outcomes_without_one_is_refused_and_the_frontier_continues(field, number):
    with Frontier.memory(clock=lambda: START, robots="caller") as frontier:
        frontier.discover([A, "http://b.com/"])
        first, second = frontier.lease(2)
        with pytest.raises(SettingsError, match=f"{field} -"):
            frontier.report(
                [Outcome(first.token, Verdict.AGAIN, **{field: number}), Outcome(second.token, Verdict.AGAIN)]
            )
        assert ["ok", "ok"] == list(frontier.report([one.done(seconds=0.1) for one in (first, second)]))


def test_an_array_after_outcomes_without_this_field_is_refused_and_the_frontier_continues():
    """An array compares with None value by value."""
    with Frontier.memory(clock=lambda: START, robots="caller") as frontier:
        frontier.discover([A, "http://b.com/"])
        first, second = frontier.lease(2)
        with pytest.raises(SettingsError):
            frontier.report([first.done(seconds=0.1), second.done(seconds=0.1, etag=np.array([1, 2]))])
        assert ["ok", "ok"] == list(frontier.report([one.done(seconds=0.1) for one in (first, second)]))


@pytest.mark.parametrize("method", list(GOOD))
def test_no_argument_of_any_type_stops_a_frontier_or_raises_another_error(method):
    """A method accepts it or refuses it with its own error, and the next call is answered."""
    good = GOOD[method]
    with Frontier.memory(clock=lambda: START, robots="caller") as frontier:
        for number, (what, odd) in enumerate(itertools.product(good, ODD)):
            frontier.discover([A, "http://b.com/", f"http://{number}.com/"])  # one URL is ready: no lease waits
            call = getattr(frontier, method)
            with contextlib.suppress(SettingsError):
                answer = call(**{**good, what: odd})
                list(answer if method == "lines" else ())
            frontier.lease(0)
        assert frontier.verify().ok
        frontier.statistics()
    assert set(inspect.signature(getattr(Frontier, method)).parameters) == {"self", *good}


def test_every_method_with_arguments_was_tested():
    methods = {
        name
        for name, method in inspect.getmembers(Frontier, inspect.isfunction)
        if not name.startswith("_") and len(inspect.signature(method).parameters) > 1
    }
    assert {"close"} == methods - set(GOOD)


@pytest.mark.parametrize(
    ("host", "typed"),
    [
        ("a.com", ["A.com", " a.COM", "a.com.", "a.com:8080"]),
        ("xn--bcher-kva.de", ["bücher.de", "BÜCHER.de", "xn--bcher-kva.DE"]),
        ("[::1]", ["::1", "[0:0::1]"]),
        ("127.0.0.1", ["127.1", "0x7f.0.0.1"]),
    ],
)
def test_a_host_is_found_in_any_spelling(host, typed):
    world = World()
    frontier = world.frontier
    world.discover(f"http://{host}/1", f"http://{host}/2", "http://other.com/")
    for name in [host, *typed]:
        assert 2 == frontier.count(host=name) == frontier.count(key=name) == len(frontier.urls(host=name)), name
        assert (1, 1, 1) == (frontier.set_delay(2, name), frontier.pause(name), frontier.resume(name)), name
        world.report(*[lease.gone(error="timeout") for lease in world.lease() if lease.host == host])
        assert 1 == frontier.retry(host=name), name
        world.clock.move(60)


@pytest.mark.parametrize("typed", ["http://a.com", "HTTP://A.com/", "http://a.com:80"])
def test_a_crawl_delay_is_found_in_any_spelling_of_the_authority(typed):
    with Frontier.memory(clock=lambda: START, robots="caller") as frontier:
        frontier.set_robots("http://a.com", 200, b"User-agent: *\nCrawl-delay: 7")
        assert [7.0] == frontier.crawl_delays([typed])


def test_a_key_of_the_caller_is_found_only_in_its_exact_spelling():
    with Frontier.memory(clock=lambda: START, robots="caller") as frontier:
        frontier.discover([Link(A, key="Shop One"), Link("http://b.com/", key="B.com"), "http://B.com/2"])
        assert (1, 1, 1) == (frontier.count(key="Shop One"), frontier.count(key="B.com"), frontier.count(key="b.com"))
        with pytest.raises(SettingsError, match="no queue has it"):
            frontier.pause("shop one")


def test_a_read_only_frontier_refuses_a_checkpoint():
    files = MemoryFiles()
    with Frontier.open(files, clock=lambda: START, robots="caller") as frontier:
        frontier.discover([A])
    before = sorted(files.names())
    with Frontier.look(files) as looked:
        with pytest.raises(ForeignStoreError):
            looked.checkpoint()
        assert looked.verify().ok
    assert before == sorted(files.names())


def test_a_url_that_waits_beyond_the_year_9999_is_explained_and_exported():
    far = 1 << 62
    with (
        Frontier.memory(clock=lambda: START, robots="caller") as frontier,
        Frontier.memory(clock=lambda: START, robots="caller") as copy,
    ):
        frontier.discover([Link(A, not_before=far)])
        assert "9999-12-31T23:59:59.999Z" in frontier.explain(A).reason_text
        assert 1 == copy.restore(frontier.records())
        assert far == copy.status(A).due


def test_instants_beyond_the_year_9999_are_shown_as_the_last_representable_one():
    assert "9999-12-31T23:59:59.999Z" == rfc3339(1 << 62)
    assert "9999-12-31T23:59:59.999999Z" == rfc3339_exact(1 << 62)


@pytest.mark.parametrize(
    "given",
    [
        *({"clock": 7}, {"seed": "x"}, {"seed": -1}, {"slots": "x"}, {"slots": frozenset({4_096})}, {"slots": [1]}),
        *({"keys": (b"1", b"2")}, {"keys": 7}, {"settings": "delay"}, {"settings": {"dely": 1}}, {"robots": None}),
    ],
    ids=str,
)
def test_an_invalid_opening_is_reported_before_a_store_is_made(given):
    files = MemoryFiles()
    with pytest.raises(SettingsError):
        Frontier.open(files, **given)
    assert [] == files.names()


def test_a_missing_store_and_the_parent_folder_of_a_store_are_reported_with_the_way_out(tmp_path):
    with pytest.raises(ForeignStoreError, match="nothing does not exist; use the directory of a store"):
        Frontier.look(tmp_path / "nothing")
    Frontier.open(tmp_path / "frontier", robots="caller").close()
    with pytest.raises(ForeignStoreError, match="the store of a crawl is the folder `frontier` in it"):
        Frontier.open(tmp_path, robots="caller")


@pytest.mark.parametrize("path", ["", "\0", None, 7, "\ud800"])
def test_an_unreadable_place_is_reported(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OutriderError):
        Frontier.look(path)
    assert [] == list(tmp_path.iterdir())


UNBOUND = {
    "a referrer": lambda frontier, lease: frontier.discover([Link("http://b.com/", referrer="x" * 65_536)]),
    "a URL among the lowest": lambda frontier, lease: frontier.discover(
        [Link(f"{A}best", priority=1.0, referrer="x" * 65_536)]
    ),
    "an etag": lambda frontier, lease: frontier.report([lease.done(etag="x" * (1 << 21))]),
    "a digest": lambda frontier, lease: frontier.report([lease.done(digest=b"x" * (1 << 21))]),
    "a worker": lambda frontier, lease: frontier.lease(1, worker="x" * 65_536),
    "a record's referrer": lambda frontier, lease: frontier.restore(
        [{"url": "http://b.com/", "state": "done", "error": "new", "referrer": "x" * 70_000}]
    ),
}


@pytest.mark.parametrize("wrong", UNBOUND.values(), ids=list(UNBOUND))
def test_a_value_that_no_limit_has_caught_is_refused_when_its_facts_are_sealed_and_changes_no_state(wrong, monkeypatch):
    """Facts that cannot be applied never reach the log, even if the arguments allow them. Drawn URLs return to their
    queues, the frontier continues, and the store opens again."""
    files = MemoryFiles()
    settings = {"max_urls_per_queue": 3, "when_full": "drop_lowest"}
    with monkeypatch.context() as loose:
        for bound in ("REFERRER_BYTES_MAX", "NAME_CHARACTERS_MAX"):
            loose.setattr(arguments, bound, 1 << 30)
        set_limits(loose, REFERRER_BYTES_MAX=1 << 30)
        told = {
            name: replace(told, bytes_max=told.bytes_max << 30) for name, told in outcome_columns.OUTCOME_FIELDS.items()
        }
        loose.setattr(outcome_columns, "OUTCOME_FIELDS", told)
        frontier = Frontier.open(files, clock=lambda: START, settings=settings, robots="caller")
        frontier.discover([A, *(Link(f"{A}{number}", priority=0.1) for number in range(3)), "http://c.com/"])
        (lease,) = frontier.lease(1, key="a.com")
        before = frontier._log.appended_lsn, frontier.statistics()["urls"]
        with pytest.raises(SettingsError, match="cannot be kept"):
            wrong(frontier, lease)
        assert before == (frontier._log.appended_lsn, frontier.statistics()["urls"])
        assert ["http://c.com/"] == frontier.lease(5, worker="w").urls
        assert ["ok"] == list(frontier.report([lease.done(seconds=0.1)]))
        assert frontier.verify().ok
        frontier.close()
    with Frontier.open(files, clock=lambda: START, robots="caller") as frontier:
        assert frontier.verify().ok
