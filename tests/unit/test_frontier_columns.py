"""Links in columns, and the lossy rules of a store: a UrlBatch adds what strings would have added."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.world import World
from outrider import Link
from outrider.engine import Frontier
from outrider.errors import SettingsError
from outrider.journey import Code
from outrider.limits import URL_BYTES_MAX
from outrider.sim.disk import FaultyFiles
from outrider.url import LossyRules, UrlBatch

A = "http://a.com/"
KEYS = (bytes(16), bytes(range(16)))

urls = st.sampled_from(
    [
        A,
        "http://a.com/2",
        "HTTP://A.com:80/2",
        "http://b.com/",
        "ftp://c.com/",
        "nothing",
        "http://d.com/" + "x" * 9_000,
        "",
    ]
)


@given(st.lists(urls, max_size=12), st.sampled_from(["any", "host"]))
def test_columns_and_strings_get_the_same_codes(some: list[str], scope: str):
    strings = World(scope=scope)
    columns = World(scope=scope)
    for world in (strings, columns):
        world.discover(A)
    lease, same = strings.one(), columns.one()
    links = strings.frontier.report([lease.done(links=some)]).links
    assert links == columns.frontier.report([same.done(links=UrlBatch.of(some))]).links
    assert strings.counts() == columns.counts()


@given(st.lists(urls, max_size=12))
def test_discovering_columns_answers_row_by_row(some: list[str]):
    told = World().discover(*[Link(url) for url in some])
    assert told == [str(code) for code in World().frontier.discover(UrlBatch.of(some))]


def test_columns_may_carry_depth_and_priority():
    world = World()
    batch = UrlBatch.of([A, "http://b.com/"]).with_columns(depth=[3, 0], priority=[0.1, 0.9])
    world.frontier.discover(batch)
    found = [(status.depth, status.priority) for status in map(world.frontier.status, batch)]
    assert [(3, 0.1), (0, 0.9)] == found


@pytest.mark.parametrize(
    "columns",
    [
        {"depth": "x"},
        {"depth": 1.5},
        {"depth": -1},
        {"depth": 70_000},
        {"depth": None},
        {"priority": "x"},
        {"priority": 7},
        {"priority": float("nan")},
        {"priority": True},
    ],
)
def test_a_column_that_cannot_be_stored_is_refused_by_name_and_changes_no_state(columns: dict[str, object]):
    world = World(scope="host")
    with pytest.raises(SettingsError, match=f"column `{next(iter(columns))}`"):
        world.frontier.discover(UrlBatch.of([A]).with_columns(**columns))
    assert (["new"], ["out_of_scope"]) == (world.discover(A), world.discover(Link("http://b.com/", depth=1)))


def test_a_row_with_no_valid_url_may_have_any_depth_and_priority():
    batch = UrlBatch.of(["no url"]).with_columns(depth=[-1], priority=[float("nan")])
    assert [Code.INVALID] == World().frontier.discover(batch)


def test_links_of_several_outcomes_may_have_different_columns():
    world = World()
    world.discover(A, "http://b.com/")
    leases = world.lease()
    plain, deep = UrlBatch.of(["http://c.com/"]), UrlBatch.of(["http://d.com/"]).with_columns(depth=9, mine="x")
    world.frontier.report([leases[0].done(links=plain), leases[1].done(links=deep)], deep.with_columns(outcome=0))
    found = [world.frontier.status(url).depth for url in ("http://c.com/", "http://d.com/")]
    assert [1, 9] == found


def test_a_link_in_columns_is_at_least_one_deeper_than_its_page():
    world = World()
    world.discover(A)
    world.frontier.report([world.one().done(links=UrlBatch.of(["http://c.com/"]).with_columns(depth=0))])
    assert 1 == world.frontier.status("http://c.com/").depth


def test_links_in_columns_next_to_the_outcomes_name_their_outcome():
    world = World()
    world.discover(A, "http://b.com/")
    leases = world.lease()
    batch = UrlBatch.of(["http://c.com/", "http://d.com/"]).with_columns(outcome=[1, 0])
    world.frontier.report([lease.done() for lease in leases], batch)
    referrers = [world.frontier.status(url).referrer for url in batch]
    assert [leases[1].url, leases[0].url] == referrers


@pytest.mark.parametrize("rows", [[0, 2], [-1, 0], ["x", "y"], [0.0, 0.0]])
def test_columns_that_name_a_missing_outcome_are_refused(rows: list[object]):
    world = World()
    world.discover(A)
    lease = world.one()
    with pytest.raises(SettingsError, match="outcome"):
        world.frontier.report([lease.done()], UrlBatch.of([A, A]).with_columns(outcome=rows))
    assert "leased" == world.state(A)


def test_columns_without_a_column_of_outcomes_are_refused():
    world = World()
    world.discover(A)
    with pytest.raises(SettingsError, match="outcome"):
        world.frontier.report([world.one().done()], UrlBatch.of([A]))


def test_a_too_long_url_is_reported_in_columns():
    long = A + "x" * URL_BYTES_MAX
    assert [Code.OVER_LIMIT] == World().frontier.discover(UrlBatch.of([long]))


def test_a_repeated_call_with_columns_repeats_its_answer():
    world = World()
    batch = UrlBatch.of([A, "no url"])
    first = world.frontier.discover(batch, request_id=("me", 1))
    assert (first, 1) == (world.frontier.discover(batch, request_id=("me", 1)), world.frontier.statistics()["accepted"])


# -- lossy rules


def test_without_rules_tracking_parameters_make_other_urls():
    assert ["new", "new"] == World().discover(A, A + "?utm_source=x")


@pytest.mark.parametrize("links", [[A, A + "?utm_source=x"], UrlBatch.of([A, A + "?utm_source=x"])])
def test_under_rules_two_spellings_are_one_url(links):
    world = World(url_rules="tracking")
    assert [Code.NEW, Code.KNOWN] == world.frontier.discover(links)


def test_under_rules_a_url_is_found_by_any_spelling():
    world = World(url_rules="tracking")
    world.discover(A)
    assert "queued" == world.state(A + "?gclid=1")


def test_under_rules_a_redirect_to_another_spelling_is_a_redirect_to_itself():
    world = World(url_rules="tracking")
    world.discover(A)
    world.report(world.one().done(location="/?utm_source=x"))
    assert ("gone", "redirect_self") == (world.state(A), world.reason(A))


def test_a_store_keeps_the_rules_it_was_made_with():
    disk = FaultyFiles()
    Frontier.open(disk, settings={"url_rules": "tracking"}, robots="caller").close()
    with Frontier.open(disk, robots="caller") as frontier:
        assert [Code.NEW, Code.KNOWN] == frontier.discover([A, A + "?utm_source=x"])


@pytest.mark.parametrize("rules", ["none", "tracking,sort_query", LossyRules.of("www")])
def test_a_store_refuses_different_rules_with_a_message(rules):
    disk = FaultyFiles()
    Frontier.open(disk, settings={"url_rules": "tracking"}, robots="caller").close()
    with pytest.raises(SettingsError, match="was made with"):
        Frontier.open(disk, settings={"url_rules": rules}, robots="caller")
    Frontier.open(disk, robots="caller").close()


@pytest.mark.parametrize("rules", ["nonsense", 3, ["tracking"]])
def test_unknown_rules_are_refused_by_name(rules):
    with pytest.raises(SettingsError, match="rules"):
        Frontier.memory(settings={"url_rules": rules}, robots="caller")
