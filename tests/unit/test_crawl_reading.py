"""Reading threads return the same as reading in the books. Hooks that see answers run in the books."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import fields, replace

import pytest
from msgspec.structs import replace as replace_lease

from outrider.crawl.run.hooks import Hooks
from outrider.crawl.run.reading import Reader, Readings
from outrider.fetch.downloader import Headers
from outrider.journey import Kind
from outrider.limits import READING_THREADS
from outrider.page.reader import READERS
from unit.test_crawl_settle import House

PAGE = b'<title>x</title><a href="/a">a</a> <a href="/b" rel="nofollow">b</a> <a href="/a#top">again</a> some words'


def names(read) -> dict[str, object]:
    """Returns the content of a reading, without its records and their mark, whose ids are random."""
    left_out = ("records", "warc_record", "visit")
    return {one.name: getattr(read, one.name) for one in fields(read) if one.name not in left_out}


def test_a_reading_made_in_advance_equals_one_of_the_books(tmp_path):
    house = House(tmp_path)
    reader = Reader(house.options, Hooks(house.options), house.output)
    for lease in house.pages():
        visit = house.visit(lease, body=PAGE)
        now = reader.of(visit)
        thread = threading.Thread(target=reader.ahead, args=([visit],))
        thread.start()
        thread.join()
        ahead = reader.of(visit)
        assert names(now) == names(ahead)
        assert [f"{lease.url}a"] == ahead.links.strings()
        assert {"nofollow": 1} == ahead.passed
        assert ahead.records is not None
        assert now.records is not ahead.records


def test_a_reading_is_returned_once(tmp_path):
    house = House(tmp_path)
    reader = Reader(house.options, Hooks(house.options), house.output)
    visit = house.visit(house.pages()[0], body=PAGE)
    reader.ahead([visit])
    assert reader.of(visit) is not reader.of(visit)


def test_an_unread_visit_of_the_same_lease_is_read(tmp_path):
    """A reading belongs to its answer: a reading of another answer under the same token is not used."""
    house = House(tmp_path)
    reader = Reader(house.options, Hooks(house.options), house.output)
    lease = house.pages()[0]
    reader.ahead([house.visit(lease, body=b"<title>old</title>")])
    assert "new" == reader.of(house.visit(lease, body=b"<title>new</title>")).page.title


@pytest.mark.parametrize("hook", ["on_response", "readers"])
def test_hooks_that_see_answers_run_in_the_books(tmp_path, hook):
    threads = []

    def on_response(response, lease):
        threads.append(threading.current_thread().name)

    def reads(body, url, content_type):
        threads.append(threading.current_thread().name)

    given = {"on_response": on_response} if hook == "on_response" else {"readers": {"text/html": reads}}
    house = House(tmp_path, **given)
    reader = Reader(house.options, Hooks(house.options), house.output)
    visit = house.visit(house.pages()[0], body=PAGE)
    thread = threading.Thread(target=reader.ahead, args=([visit],), name="beside")
    thread.start()
    thread.join()
    assert [] == threads
    reader.of(visit)
    assert [threading.current_thread().name] == threads


class Told:
    """Stores the readings until enough visits have arrived."""

    def __init__(self, want: int) -> None:
        self.want, self.visits, self.faults = want, [], []
        self.done = asyncio.Event()

    def __call__(self, visits, fault) -> None:
        self.visits += visits
        self.faults += [fault] if fault is not None else []
        if len(self.visits) == self.want:
            self.done.set()


def test_all_visits_are_read_in_few_threads_and_reported_in_the_loop(tmp_path):
    house = House(tmp_path)
    visits = [house.visit(lease, body=PAGE) for lease in house.pages()]
    threads = set()

    async def run():
        told = Told(len(visits))
        readings = Readings(lambda _: threads.add(threading.current_thread().name), told)
        for visit in visits:
            readings.put([visit])
        assert len(visits) == len(readings) == len(readings.leases)
        await told.done.wait()
        assert 0 == len(readings)
        readings.close()
        return told

    told = asyncio.run(run())
    assert {visit.lease.token for visit in visits} == {visit.lease.token for visit in told.visits}
    assert [] == told.faults
    assert READING_THREADS >= len(threads)


def test_documents_that_hang_in_their_readers_delay_no_page(tmp_path):
    """More documents than threads, read by processes of their own, and put first."""
    house = House(tmp_path, readers={"application/x-slow": "json:loads"})
    reader = Reader(house.options, Hooks(house.options), house.output)
    leases = house.pages()
    headers = Headers((("Content-Type", "application/x-slow; version=1"),))
    count = READING_THREADS + 1
    slow = [house.visit(lease, body=PAGE, headers=headers) for lease in leases[:count]]
    pages = [house.visit(lease, body=PAGE) for lease in leases[count:]]
    assert pages
    released = threading.Event()

    def read(visits):
        if any(visit.response.headers is headers for visit in visits):
            assert released.wait(60)

    async def run():
        told = Told(len(pages))
        readings = Readings(read, told, is_slow=reader.is_slow)
        for visit in (*slow, *pages):
            readings.put([visit])
        await told.done.wait()
        assert (pages, count, count) == (told.visits, readings.slow, len(readings))
        told.done, told.want = asyncio.Event(), len(slow) + len(pages)
        released.set()
        await told.done.wait()
        assert (0, 0) == (readings.slow, len(readings))
        readings.close()
        return told

    told = asyncio.run(asyncio.wait_for(run(), 60))
    assert [] == told.faults
    assert {visit.lease.token for visit in slow} == {visit.lease.token for visit in told.visits[len(pages) :]}


def test_the_visits_of_one_host_are_reported_in_the_order_in_which_they_were_put(tmp_path):
    """A long page is read more slowly than the next one of its host. The record of requests once had the next one
    first."""
    house = House(tmp_path)
    long, other = house.pages()[:2]
    visits = [house.visit(replace_lease(long, token=long.token + number), body=PAGE) for number in range(3)]
    elsewhere = house.visit(replace_lease(other, token=long.token + 3), body=PAGE)
    released = threading.Event()

    def read(some):
        if visits[0] in some:
            assert released.wait(60)

    async def run():
        told = Told(1)
        readings = Readings(read, told)
        for visit in (*visits, elsewhere):
            readings.put([visit])
        await told.done.wait()
        assert ([elsewhere], 3) == (told.visits, len(readings))
        told.done, told.want = asyncio.Event(), 4
        released.set()
        await told.done.wait()
        assert 0 == len(readings)
        readings.close()
        return told

    told = asyncio.run(asyncio.wait_for(run(), 60))
    assert ([elsewhere, *visits], []) == (told.visits, told.faults)


def test_errands_and_answers_of_the_books_are_not_slow(tmp_path):
    house = House(tmp_path, readers={"application/x-slow": "json:loads"}, on_response=lambda response, lease: None)
    headers = Headers((("Content-Type", "application/x-slow"),))
    errands = house.settler.turn([], 10).leases
    errand = house.visit(errands[0], headers=headers)
    leases = house.settler.turn([house.visit(lease, 404) for lease in errands], 10).leases
    visit = house.visit(leases[0], headers=headers)
    assert not Reader(house.options, Hooks(house.options), house.output).is_slow(visit)
    plain = replace(house.options, on_response=None)
    reader = Reader(plain, Hooks(plain), house.output)
    assert reader.is_slow(visit)
    assert [Kind.ROBOTS, Kind.PAGE] == [errand.lease.kind, visit.lease.kind]
    assert [False, False] == [reader.is_slow(errand), reader.is_slow(replace(visit, response=None))]


def test_a_failed_reading_is_reported(tmp_path):
    house = House(tmp_path)
    visit = house.visit(house.pages()[0], body=PAGE)

    def fails(visits):
        raise RuntimeError("a bug")

    async def run():
        told = Told(1)
        readings = Readings(fails, told)
        readings.put([visit])
        await told.done.wait()
        readings.close()
        return told

    told = asyncio.run(run())
    assert [visit] == told.visits
    assert ["a bug"] == [str(fault) for fault in told.faults]


@pytest.mark.parametrize("end", [KeyboardInterrupt, SystemExit, MemoryError])
def test_the_end_of_the_process_within_a_reader_is_not_a_bug_of_its_page(tmp_path, monkeypatch, end):
    def ends(*_):
        raise end

    monkeypatch.setitem(READERS, "application/x-ends", ends)
    house = House(tmp_path)
    visit = house.visit(house.pages()[0], headers=Headers((("Content-Type", "application/x-ends"),)))
    with pytest.raises(end):
        Reader(house.options, Hooks(house.options), house.output).of(visit)


def test_a_page_that_triggers_a_bug_of_ours_ends_alone(tmp_path, monkeypatch):
    """Pages are read together. A bug in one of them does not affect the content of the other pages."""

    def fails(*_):
        raise ZeroDivisionError("a bug")

    monkeypatch.setitem(READERS, "application/x-bug", fails)
    house = House(tmp_path)
    first, second, *_ = house.pages()
    visits = [
        house.visit(first, body=PAGE, headers=Headers((("Content-Type", "application/x-bug"),))),
        house.visit(second, body=PAGE),
    ]
    reader = Reader(house.options, Hooks(house.options), house.output)
    reader.ahead(visits)
    bad, good = map(reader.of, visits)
    assert ("internal", None) == (bad.fault.word, bad.page)
    assert (None, "x", [f"{second.url}a"]) == (good.fault, good.page.title, good.links.strings())
