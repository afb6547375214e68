"""How the methods of a frontier are made, and where each one runs when it is awaited."""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
from pathlib import Path

import pytest

from outrider import AsyncFrontier, Frontier
from outrider.errors import SettingsError

START = 1_700_000_000_000_000
BY_HAND = {
    "open", "memory", "look", "connect", "close", "discover", "lease", "report", "set_robots", "records", "lines"
}  # fmt: skip
"""The methods that differ where they are awaited."""


def test_the_methods_are_those_that_are_listed(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "scripts"))
    import stubs

    written = Path(sys.modules["outrider.engine.derived"].__file__).read_text("utf-8")
    assert stubs.text() == written, "python scripts/stubs.py writes it"


def test_every_method_declares_how_it_is_made():
    methods = {name: getattr(Frontier, name) for name in vars(Frontier) if name[0] != "_"}
    declared = {name for name, method in methods.items() if "awaited" in getattr(method, "__dict__", {})}
    assert BY_HAND == {name for name, method in methods.items() if callable(method)} - declared
    for name in declared:
        method = getattr(AsyncFrontier, name)
        assert inspect.iscoroutinefunction(method)
        assert method.__doc__.startswith(f"As `Frontier.{name}`")
        assert inspect.signature(methods[name]) == inspect.signature(method)


@pytest.mark.parametrize(
    ("call", "made", "waited"),
    [
        (lambda frontier: frontier.set_delay(2.0, "a.com"), "loop", "thread"),
        (lambda frontier: frontier.explain("http://a.com/"), "loop", None),
        (lambda frontier: frontier.hosts(), "thread", None),
    ],
)
def test_an_awaited_method_runs_where_its_declaration_says(call, made, waited):
    """A decision runs on the loop, and a thread waits for the disk. A short query runs on the loop, a long one in a
    thread."""
    found = {}

    def note(what):
        found[what] = "loop" if threading.current_thread() is threading.main_thread() else "thread"

    def clock():
        note("made")
        return START

    async def ask():
        async with AsyncFrontier.memory(clock=clock, robots="caller") as frontier:
            await frontier.discover(["http://a.com/"])
            durable = frontier.sync._durable
            frontier.sync._durable = lambda lsn: (note("waited"), durable(lsn))[1]
            found.clear()
            await call(frontier)
            return found.get("made"), found.get("waited")

    assert (made, waited) == asyncio.run(ask())


def test_a_host_of_a_wrong_type_is_refused_in_an_awaited_call():
    """A list cannot be a key of a dict: it once raised a TypeError."""

    async def ask():
        async with AsyncFrontier.memory(robots="caller") as frontier:
            await frontier.set_address([], "192.0.2.1")

    with pytest.raises(SettingsError, match="host"):
        asyncio.run(ask())
