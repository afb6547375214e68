"""Outcomes and links of classes that the frontier does not know: they are taken or refused, and stop no store."""

from __future__ import annotations

import contextlib
from http import HTTPStatus
from typing import Any

import numpy as np
import pytest

from model.world import World, outcome
from outrider.errors import SettingsError
from outrider.journey import Link, Outcome, OutcomeBatch, RobotsAnswer, Verdict
from outrider.limits import TALLY_MAX


class Fails(Exception):
    """Whatever the caller's code raises."""


def fails(*given: object, **how: object) -> None:
    raise Fails("on purpose")


class OddText(str):
    __slots__ = ()
    encode = __hash__ = isascii = __len__ = fails


class OddNumber(int):
    __add__ = __radd__ = __lt__ = __le__ = __gt__ = __ge__ = __index__ = fails


class OddSeconds(float):
    __add__ = __radd__ = __lt__ = __le__ = __gt__ = __ge__ = __mul__ = __rmul__ = fails


class OddBytes(bytes):
    decode = __len__ = fails


class OddMapping(dict):
    __iter__ = __len__ = items = fails


class OddList(list):
    __iter__ = __len__ = fails


class OddColumns:
    strings = fails

    def __len__(self) -> int:
        return 2


class Mine(Outcome, frozen=True):
    extra: int = 3


class Unreadable(Outcome):
    def __getattribute__(self, name: str) -> object:
        return fails() if name == "links" else super().__getattribute__(name)


class Twice(Outcome):
    """Says something else each time it is asked."""

    asked = 0

    @property
    def status(self) -> object:
        type(self).asked += 1
        return 200 if type(self).asked == 1 else fails()


class OddAnswer(RobotsAnswer):
    def __getattribute__(self, name: str) -> object:
        return fails() if name == "body" else super().__getattribute__(name)


class Short(bytes):
    """Says that it is shorter than it is."""

    def __len__(self) -> int:
        return 1


class OddKind(type):
    __hash__ = fails


class OfOddKind(metaclass=OddKind):
    pass


class LooksLikeText:
    __class__ = str


FIELDS = {
    "seconds": OddSeconds(0.5),
    "status": OddNumber(200),
    "bytes_read": OddNumber(5),
    "ended_at": OddNumber(5),
    "retry_after_seconds": OddSeconds(3.0),
    "error": OddText("reset"),
    "etag": OddText("e"),
    "location": OddText("/x"),
    "digest": OddBytes(b"d"),
    "line": OddBytes(b"{}"),
    "metadata": OddMapping(a=1),
    "robots": OddAnswer(200),
}
ODD_ANSWERS = {
    "status": RobotsAnswer(OddNumber(200), b"User-agent: *\nDisallow: /2"),
    "body": RobotsAnswer(200, Short(b"User-agent: *\nDisallow: /2\n" * 99)),
    "location": RobotsAnswer(301, location=OddText("/x")),
    "fresh_seconds": RobotsAnswer(200, fresh_seconds=OddSeconds(3.0)),
}
LINKS = {
    "list": OddList(["http://a.com/2"]),
    "columns": OddColumns(),
    "text": [OddText("http://a.com/2")],
    "url": [Link(OddText("http://a.com/2"))],
    "key": [Link("http://a.com/2", key=OddText("k"))],
    "depth": [Link("http://a.com/2", depth=OddNumber(1))],
    "priority": [Link("http://a.com/2", priority=OddSeconds(0.5))],
    "metadata": [Link("http://a.com/2", metadata=OddMapping(a=1))],
    "nothing": [None, 5, b"x", object()],
}


def lives_on(world: World) -> bool:
    world.discover("http://other.com/")
    return "http://other.com/" in world.urls() and world.frontier.verify().ok


def in_columns(world: World, tokens: list[int], **columns: Any) -> list[str]:
    return [str(code) for code in world.frontier.report(OutcomeBatch(tokens, **columns))]


def ask(call) -> None:
    """The call may be refused with words, or end with the error that the caller's own code raises before it."""
    with contextlib.suppress(SettingsError, Fails):
        call()


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_of_the_callers_class_stops_no_store(name):
    world = World()
    world.discover("http://a.com/")
    ask(lambda: world.report(outcome(world.one(), **{name: FIELDS[name]})))
    assert lives_on(world)


BATCHES = {name: [value] for name, value in FIELDS.items()} | {
    "seconds": OddSeconds(0.5),
    "verdict": OddText("done"),
    "digest": {0: OddBytes(b"d")},
    "metadata": [OddMapping(a=1)],
    "robots": OddList([RobotsAnswer(200)]),
    "after_seconds": np.array(3.0),
}
COLUMNS = {"status": "statuses", "verdict": "verdicts", "error": "errors", "etag": "etags", "location": "locations"}
COLUMNS |= {"digest": "digests", "line": "lines"}


@pytest.mark.parametrize("name", BATCHES)
def test_a_column_of_the_callers_class_stops_no_store(name):
    world = World()
    world.discover("http://a.com/")
    ask(lambda: in_columns(world, [world.one().token], **{COLUMNS.get(name, name): BATCHES[name]}))
    assert lives_on(world)


@pytest.mark.parametrize("odd", [OfOddKind(), LooksLikeText()], ids=["a kind without a hash", "an object that lies"])
@pytest.mark.parametrize("field", ["error", "seconds", "metadata", "links", "robots", "digest"])
def test_a_value_whose_class_lies_or_fails_is_told_and_stops_no_store(field, odd):
    world = World()
    world.discover("http://a.com/")
    lease = world.one()
    with pytest.raises(SettingsError):
        world.report(outcome(lease, **{field: odd}))
    with pytest.raises(SettingsError):
        world.report(odd)
    assert ["ok"] == world.report(lease.done())
    assert lives_on(world)


@pytest.mark.parametrize("columns", [False, True], ids=["one by one", "in columns"])
@pytest.mark.parametrize("answer", ODD_ANSWERS.values(), ids=ODD_ANSWERS)
def test_an_answer_with_fields_of_the_callers_class_is_kept_as_it_is(answer, columns):
    """A body that told another length than it has damaged the store."""
    world = World(robots="errands")
    world.discover("http://a.com/1", "http://a.com/2")
    (lease,) = world.lease(errands=True)
    if columns:
        assert ["ok"] == in_columns(world, [lease.token], robots=[answer])
    else:
        assert ["ok"] == world.report(outcome(lease, robots=answer))
    world.kill()
    world.clock.move(60)
    assert ["http://a.com/x" if answer.location is not None else "http://a.com/1"] == world.urls(errands=True)
    assert world.frontier.verify().ok


@pytest.mark.parametrize("name", LINKS)
@pytest.mark.parametrize("verb", ["report", "discover"])
def test_links_of_the_callers_class_stop_no_store(verb, name):
    world = World()
    world.discover("http://a.com/")
    lease = world.one()
    links = LINKS[name]
    ask(lambda: world.report(lease.done(links=links)) if verb == "report" else world.frontier.discover(links))
    assert lives_on(world)


@pytest.mark.parametrize("place", [("w", OddBytes(b"x")), (OddText("w"), b"x"), OddList(["w", b"x"])])
def test_a_watermark_of_the_callers_class_stops_no_store(place):
    world = World()
    world.discover("http://a.com/")
    ask(lambda: world.report(world.one().done(), watermark=place))
    assert lives_on(world)


def test_a_watermark_that_tells_another_length_than_it_has_is_kept_whole():
    """The store could not be opened again."""
    world = World()
    world.frontier.report([], watermark=("w", Short(b"x" * 500)))
    world.kill()
    assert b"x" * 500 == world.frontier.watermarks()["w"]


@pytest.mark.parametrize("name", ["state", "etag", "last_modified", "digest", "error", "crawl", "key"])
def test_a_record_with_texts_of_the_callers_class_stops_no_store(name):
    world = World()
    record = {"url": "http://a.com/", "state": "done", name: OddText("done" if name == "state" else "ee")}
    assert 1 == world.frontier.restore([record])
    assert lives_on(world)


@pytest.mark.parametrize("of", [Mine, Unreadable, Twice])
def test_an_outcome_of_the_callers_class_is_read_once_or_refused(of):
    world = World()
    world.discover("http://a.com/")
    given = of(world.one().token, Verdict.DONE)
    if of is Unreadable:
        with pytest.raises(SettingsError, match=r"outcome of class Unreadable cannot be read \(Fails: on purpose\)"):
            world.report(given)
    else:
        assert ["ok"] == world.report(given)
    assert lives_on(world)


def test_a_status_of_the_standard_library_counts_as_its_number():
    world = World()
    world.discover("http://a.com/")
    world.report(world.one().done(status=HTTPStatus.OK))
    assert 200 == world.frontier.status("http://a.com/").status


def test_a_text_that_is_no_str_but_one_of_its_kind_is_its_text():
    world = World()
    assert ["new"] == world.discover(OddText("http://a.com/"))
    assert ["http://a.com/"] == world.urls()


def test_counts_beyond_what_the_log_can_hold_stay_at_the_most():
    """The call was refused each time, and its lease never ended."""
    world = World(delay=0)
    world.discover(*[f"http://{host}.com/" for host in "abc"])
    for lease in world.lease():
        assert ["ok"] == world.report(outcome(lease, bytes_read=1 << 62))
    assert TALLY_MAX == world.frontier.statistics()["bytes"]
    world.kill()
    assert TALLY_MAX == world.frontier.statistics()["bytes"]
