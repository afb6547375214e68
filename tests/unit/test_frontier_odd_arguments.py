"""Values that make no sense are told by name, and the frontier goes on: none of them stops it."""

from __future__ import annotations

import numpy as np
import pytest

from model.world import START
from outrider import Frontier, Link
from outrider.clock import rfc3339, rfc3339_exact
from outrider.errors import ForeignStoreError, OutriderError, SettingsError
from outrider.journey import OutcomeBatch
from outrider.storage.memory import MemoryFiles

A = "http://a.com/"


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
    "a slot that is none": lambda frontier, lease: frontier.delivered(-1, 1),
    "errands that are many": lambda frontier, lease: frontier.lease(1, errands=np.array([1, 2])),
    "no authority": lambda frontier, lease: frontier.set_robots(None, 200),
    "no addresses": lambda frontier, lease: frontier.set_addresses(None),
    "an error class in bytes": lambda frontier, lease: frontier.retry(error=bytearray(b"x")),
    "a host in bytes": lambda frontier, lease: frontier.retry(host=b"a.com"),
    "no URLs": lambda frontier, lease: frontier.reprioritise(None, 0.5),
    "URLs that break off": lambda frontier, lease: frontier.reprioritise(broken(), 0.5),
    "a crawl in bytes": lambda frontier, lease: frontier.reprioritise(A, 0.5, crawl=bytearray(b"x")),
    "a crawl to pause in bytes": lambda frontier, lease: frontier.pause(crawl=bytearray(b"x")),
    "a crawl to delete in bytes": lambda frontier, lease: frontier.delete(crawl=bytearray(b"x")),
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
    "a cursor that is a number": lambda frontier, lease: frontier.urls(after=7),
    "a cursor of hosts that is true": lambda frontier, lease: frontier.hosts(after=True),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=list(WRONG))
def test_an_argument_that_makes_no_sense_is_told_and_the_frontier_goes_on(wrong):
    with Frontier.memory(clock=lambda: START) as frontier:
        frontier.discover([A])
        (lease,) = frontier.lease(1)
        with pytest.raises(SettingsError):
            wrong(frontier, lease)
        assert ["ok"] == list(frontier.report([lease.done(seconds=0.1)]))
        assert frontier.verify().ok


def test_a_frontier_for_looking_takes_no_checkpoint():
    files = MemoryFiles()
    with Frontier.open(files, clock=lambda: START) as frontier:
        frontier.discover([A])
    before = sorted(files.names())
    with Frontier.look(files) as looked:
        with pytest.raises(ForeignStoreError):
            looked.checkpoint()
        assert looked.verify().ok
    assert before == sorted(files.names())


def test_a_url_that_waits_beyond_the_year_9999_is_explained_and_carried():
    far = 1 << 62
    with Frontier.memory(clock=lambda: START) as frontier, Frontier.memory(clock=lambda: START) as copy:
        frontier.discover([Link(A, not_before=far)])
        assert "9999-12-31T23:59:59.999Z" in frontier.explain(A).reason_text
        assert 1 == copy.restore(frontier.records())
        assert far == copy.status(A).due


def test_instants_beyond_the_year_9999_have_the_text_of_the_last_one():
    assert "9999-12-31T23:59:59.999Z" == rfc3339(1 << 62)
    assert "9999-12-31T23:59:59.999999Z" == rfc3339_exact(1 << 62)


@pytest.mark.parametrize("path", ["", "\0", None, 7, "\ud800"])
def test_a_place_that_cannot_be_looked_at_is_told(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OutriderError):
        Frontier.look(path)
    assert [] == list(tmp_path.iterdir())
