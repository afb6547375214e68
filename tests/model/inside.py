"""The inside of a frontier, for tests that must read it: no other file of the tests contains its layout."""

from __future__ import annotations

from outrider.engine import Frontier
from outrider.frontier.machine import Machine


def inspect(frontier: Frontier) -> Machine:
    """The state machine in a frontier, which the next process has anew."""
    return frontier._machine
