"""Values of subclasses that callers have: the frontier accepts them as Python's own types, and names a wrong type."""

from __future__ import annotations

from enum import StrEnum
from http import HTTPStatus

import numpy as np
import pytest

from model.world import World, outcome
from outrider.errors import SettingsError
from outrider.journey import Link, Outcome, OutcomeBatch, RobotsAnswer, Verdict
from outrider.limits import TALLY_MAX


class Word(StrEnum):
    URL = "http://a.com/2"
    KEY = "k"


class Short(bytes):
    """A body that reports a smaller length than it has."""

    def __len__(self) -> int:
        return 1


class Mine(Outcome, frozen=True):
    extra: int = 3


RULES = b"User-agent: *\nDisallow: /2\n"


def test_links_of_subclasses_are_accepted_as_their_text_and_numbers():
    world = World()
    assert ["new", "new"] == world.discover(Word.URL, Link("http://b.com/", key=Word.KEY, priority=np.float64(0.7)))
    record = {one["url"]: one for one in world.frontier.records()}["http://b.com/"]
    assert ("k", float) == (record["key"], type(record["priority"]))
    assert 1 == world.frontier.pause(Word.KEY)
    assert ["http://a.com/2"] == world.urls()


@pytest.mark.parametrize("columns", [False, True], ids=["one by one", "in columns"])
def test_an_outcome_of_subclasses_is_accepted_as_its_numbers_and_texts(columns):
    world = World()
    world.discover("http://a.com/")
    token, seconds, status = world.one().token, np.float64(0.5), HTTPStatus.OK
    if columns:
        given = OutcomeBatch([token], seconds=seconds, statuses=status, etags=[Word.KEY])
    else:
        given = [Mine(token, Verdict.DONE, seconds=seconds, status=status, etag=Word.KEY, links=[Word.URL])]
    assert ["ok"] == [str(code) for code in world.frontier.report(given)]
    record = next(one for one in world.frontier.records() if one["url"] == "http://a.com/")
    assert (200, "k") == (world.frontier.status("http://a.com/").status, record["etag"])
    assert world.frontier.verify().ok


@pytest.mark.parametrize("field", ["error", "seconds", "metadata", "links", "robots", "digest"])
def test_a_value_of_a_wrong_type_is_named_and_the_lease_stays_open(field):
    world = World()
    world.discover("http://a.com/")
    lease = world.one()
    with pytest.raises(SettingsError, match=field):
        world.report(outcome(lease, **{field: object()}))
    assert ["ok"] == world.report(lease.done())


@pytest.mark.parametrize("links", [[None], [5], [b"x"], [object()]])
def test_a_link_of_a_wrong_type_is_answered_as_invalid(links):
    world = World()
    world.discover("http://a.com/")
    assert ["invalid"] == world.discover(*links)
    assert ("invalid",) == tuple(map(str, world.frontier.report([world.one().done(links=links)]).links[0]))


@pytest.mark.parametrize("columns", [False, True], ids=["one by one", "in columns"])
def test_a_body_that_reports_a_wrong_length_is_stored_whole(columns):
    """Such a body once damaged the store."""
    world = World(robots="errands")
    world.discover("http://a.com/1", "http://a.com/2")
    (lease,) = world.lease(errands=True)
    answer = RobotsAnswer(200, Short(RULES * 99))
    given = OutcomeBatch([lease.token], robots=[answer]) if columns else [outcome(lease, robots=answer)]
    assert ["ok"] == [str(code) for code in world.frontier.report(given)]
    world.kill()
    world.clock.move(60)
    assert ["http://a.com/1"] == world.urls(errands=True)
    assert world.frontier.verify().ok


def test_a_watermark_that_reports_a_wrong_length_is_stored_whole():
    """A store with such a watermark could once not be opened again."""
    world = World()
    world.frontier.report([], watermark=("w", Short(b"x" * 500)))
    world.kill()
    assert b"x" * 500 == world.frontier.watermarks()["w"]


def test_counts_above_the_maximum_of_the_log_stay_at_the_maximum():
    """The call was once refused each time, and its lease never ended."""
    world = World(delay=0)
    world.discover(*[f"http://{host}.com/" for host in "abc"])
    for lease in world.lease():
        assert ["ok"] == world.report(outcome(lease, bytes_read=1 << 62))
    assert TALLY_MAX == world.frontier.statistics()["bytes"]
    world.kill()
    assert TALLY_MAX == world.frontier.statistics()["bytes"]
