"""Bodies of requests: one limit for all bodies in flight, and turns to decode them."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from limiting import set_limits
from outrider.engine.messages import OutcomeBody
from outrider.engine.remote import outcome_body
from outrider.engine.sent_outcomes import outcome_from_body
from outrider.journey import OUTCOME_FIELDS, Form, Outcome, RobotsAnswer, Verdict
from outrider.service.bodies import Bodies
from outrider.service.problems import Problem
from served import API, A, Served

KB = 1_000


class Sender:
    """A client that sends pieces, and then waits until it may continue."""

    def __init__(self, *pieces, ends=False):
        self.messages = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
        if ends:
            self.messages[-1]["more_body"] = False

    async def receive(self):
        if self.messages:
            await asyncio.sleep(0)
            return self.messages.pop(0)
        return await asyncio.Event().wait()


def names(found):
    return [one.name if isinstance(one, Problem) else one for one in found]


@pytest.mark.parametrize("count", [4, 10, 100, 400])
def test_unfinished_bodies_stay_within_their_limit_and_exclude_no_client(count, monkeypatch):
    set_limits(monkeypatch, SERVICE_BODIES_BYTES_MAX=100 * KB, SERVICE_BODY_SECONDS_MAX=20)

    async def crowd():
        bodies, held = Bodies(), []
        crowd = [asyncio.ensure_future(bodies.read(Sender(*[b"x" * KB] * 20).receive)) for _ in range(count)]
        for _ in range(100):
            await asyncio.sleep(0)
            held.append(bodies.held)
        honest = await bodies.read(Sender(*[b"y" * KB] * 10, ends=True).receive)
        held.append(bodies.held)
        bodies.release(len(honest), decoded=False)
        for one in crowd:
            one.cancel()
        found = await asyncio.gather(*crowd, return_exceptions=True)
        assert 0 == bodies.held
        return len(honest), max(held), {one.name for one in found if isinstance(one, Problem)}

    length, most, broken = asyncio.run(crowd())
    assert 10 * KB == length
    assert most <= 100 * KB
    assert broken == ({"bodies-full"} if count > 4 else set())


def test_the_body_that_occupies_much_for_long_is_cancelled_first(monkeypatch):
    set_limits(monkeypatch, SERVICE_BODIES_BYTES_MAX=100 * KB)

    async def two():
        bodies = Bodies()
        slow = asyncio.ensure_future(bodies.read(Sender(b"x" * 60 * KB).receive))
        await asyncio.sleep(0.02)
        small = asyncio.ensure_future(bodies.read(Sender(b"z" * KB).receive))
        await asyncio.sleep(0.01)
        quick = await bodies.read(Sender(b"y" * 80 * KB, ends=True).receive)
        await asyncio.sleep(0.01)
        assert (True, False, 81 * KB) == (slow.done(), small.done(), bodies.held)
        small.cancel()
        return [len(quick), slow.exception().name]

    assert [80 * KB, "bodies-full"] == asyncio.run(two())


def test_further_bodies_are_refused_while_earlier_ones_are_being_answered(monkeypatch):
    set_limits(monkeypatch, SERVICE_BODIES_BYTES_MAX=100 * KB)

    async def three():
        bodies = Bodies()
        first = await bodies.read(Sender(b"x" * 90 * KB, ends=True).receive)
        with pytest.raises(Problem) as refused:
            await bodies.read(Sender(b"y" * 20 * KB, ends=True).receive)
        assert ("bodies-full", 503, 90 * KB) == (refused.value.name, refused.value.status, bodies.held)
        bodies.release(len(first), decoded=False)
        return len(await bodies.read(Sender(b"y" * 20 * KB, ends=True).receive))

    assert 20 * KB == asyncio.run(three())


def test_large_bodies_are_decoded_in_turn_and_small_ones_together(monkeypatch):
    set_limits(monkeypatch, SERVICE_BODIES_DECODED_BYTES_MAX=100)

    async def turns():
        bodies, order = Bodies(), []

        async def one(octets):
            await bodies.turn(octets)
            order.append(octets)

        tasks = [asyncio.ensure_future(one(octets)) for octets in (60, 40, 500, 1, 2)]
        for _ in range(3):
            await asyncio.sleep(0)
        assert [60, 40] == order
        bodies.release(60, decoded=True)
        await asyncio.sleep(0)
        assert [60, 40] == order  # a body above the limit waits until it is alone, and no body passes it
        bodies.release(40, decoded=True)
        for _ in range(2):
            await asyncio.sleep(0)
        assert [60, 40, 500] == order
        tasks[3].cancel()
        bodies.release(500, decoded=True)
        for _ in range(2):
            await asyncio.sleep(0)
        assert [60, 40, 500, 2] == order
        bodies.release(2, decoded=True)
        await asyncio.wait_for(bodies.turn(100), 5)

    asyncio.run(turns())


@pytest.mark.parametrize("body", [{"urls": [A]}, b"{", b"x" * 100, {"urls": 1}, {}])
def test_each_answer_frees_the_room_of_its_body(body):
    served = Served()
    served.ask("POST", f"{API}/frontier/urls", body)
    assert (0, 0) == (served.desk.bodies.held, served.desk.bodies._decoded)


VALUES = {
    Form.TOKEN: 7, Form.VERDICT: Verdict.AGAIN, Form.SECONDS: 1.5, Form.STATUS: 503, Form.INSTANT: 9, Form.FLAG: True,
    Form.FLAG_OR_NONE: False, Form.COUNT: 3, Form.ERROR: "timeout", Form.LOCATION: "/x", Form.TEXT: "t",
    Form.OCTETS: b"o", Form.METADATA: {"k": 1}, Form.LINKS: ["/y"], Form.ROBOTS: RobotsAnswer(200, b"b", "/z", 4.0),
    Form.ADDRESS: "192.0.2.1",
}  # fmt: skip


def test_each_field_of_an_outcome_reaches_a_server_except_those_that_stay_with_the_worker():
    one = Outcome(**{name: VALUES[field.form] for name, field in OUTCOME_FIELDS.items()})
    body = msgspec.json.decode(msgspec.json.encode(outcome_body(one)), type=OutcomeBody)
    assert msgspec.structs.replace(one, ended_at=None, line=None, politeness=None) == outcome_from_body(body)
    assert {"ended_at", "line", "politeness"} == {name for name, field in OUTCOME_FIELDS.items() if not field.served}
    assert b'{"token":1,"verdict":"done"}' == msgspec.json.encode(outcome_body(Outcome(1, Verdict.DONE)))
