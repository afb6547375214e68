"""Every frontier that a program may use refuses a bad argument of any verb alike: the same class of error, the same
message."""

from __future__ import annotations

import asyncio
import inspect

import pytest

import good_arguments
from contract.test_frontier_faces import NOW, A, World
from outrider import AsyncFrontier, Frontier, Link
from outrider.engine.remote import RemoteFrontier
from outrider.errors import OutriderError
from outrider.journey import Outcome, Verdict

BAD = [
    *(None, -1, 0, 1.5, float("nan"), float("inf"), True, "x", "", b"x", [], {}, [None], [[1]], (1, 2), {1}, 1j, len),
    *(10**400, 2**63, 2**64, "\ud800", ["\ud800"], "x" * 5_000, ["x" * 70_000], {"a": None}, {"\ud800": 0.5}, "a b"),
    *(["http://\ud800.com/"], [Link(A, priority=2)], [Link(A, key="\ud800")], [Link(A, depth=-1)], [b"\xff"]),
    *([Link(A, metadata={"a": "\ud800"})], [Link("\ud800")], [Link(A, crawl="x" * 5_000)], ("c", -1), ("\ud800", 1)),
    *([Outcome(1, Verdict.DONE, -1.0)], [Outcome(1, Verdict.DONE, 0.1, 200, etag="\ud800")], [(0, 5)], [(0, Link(5))]),
    *(Link(A, key="k"), Link(A, unique_key=b"k"), [Link(A, unique_key=b"")], [Link(A, unique_key=b"k" * 16_385)]),
    *([Link(A, unique_key="k")], [Link(A, unique_key=b"k")], "caller", "default", b"x" * 16_385),
    *([Outcome(1, Verdict.DONE, 0.1, 5_000)], [Outcome(1, "maybe")], [Outcome(1, Verdict.DONE, error="x" * 5_000)]),
]
OWN = {"close", "connect", "look", "memory", "open", "checkpoint", "lines", "projection"} | {
    "delivered", "note_projection", "note_watermark", "outbox", "receive", "watermarks", "user_agent", "opening"
}  # fmt: skip
"""These belong to the process that has the store."""
GOOD = {name: good for name, good in good_arguments.GOOD.items() if name not in OWN}


def test_a_remote_frontier_has_every_verb():
    verbs = {name for name in dir(Frontier) if name[0] != "_"} - OWN
    assert set() == verbs - set(dir(RemoteFrontier))
    with_arguments = {
        name for name in verbs if len(inspect.signature(getattr(Frontier, name)).parameters) > 1 and name != "now"
    }
    assert with_arguments == set(GOOD)
    for name in GOOD:
        ours, theirs = (inspect.signature(getattr(cls, name)).parameters for cls in (Frontier, RemoteFrontier))
        assert list(ours) == list(theirs), name


def refusal(face, name, given):
    try:
        getattr(face, name)(**given)
    except OutriderError as error:
        return type(error).__name__, str(error)
    return None


class Awaited:
    def __init__(self, frontier):
        self.frontier = AsyncFrontier(frontier)

    def __getattr__(self, name):
        async def made(given):
            return await getattr(self.frontier, name)(**given)

        return lambda **given: asyncio.run(made(given))


@pytest.mark.parametrize("name", GOOD)
def test_each_interface_refuses_bad_input_in_the_same_words(name, tmp_path):
    found = []
    for kind in ("embedded", "remote"):
        world = World(kind)
        world.face.discover([A])
        found.append(world.face)
    disk = Frontier.open(
        tmp_path / "store", clock=lambda: NOW, settings={"user_agent": "tester"}, control=False, robots="caller"
    )
    disk.discover([A])
    awaited = Awaited(World("embedded").face)
    awaited.discover(links=[A])
    differ = []
    with disk:
        for argument in GOOD[name]:
            for bad in BAD:
                if argument == "wait_seconds" and bad == 1.5:
                    continue  # it is good, and would be waited for
                given = {**GOOD[name], argument: bad}
                told = [refusal(face, name, given) for face in (*found, disk, awaited)]
                if len(set(told)) > 1:
                    differ.append((argument, f"{bad!r:.40}", told))
    assert [] == differ
