"""The machine: one frontier, its verbs as parts over one core."""

from __future__ import annotations

from outrider.clock import rfc3339
from outrider.frontier.state.urls import DONE, LEASED, QUEUED
from outrider.frontier.verbs.asking import Asking
from outrider.frontier.verbs.carried import Carrying
from outrider.frontier.verbs.deciding import Core
from outrider.frontier.verbs.discovering import Discovering
from outrider.frontier.verbs.errands import Errands
from outrider.frontier.verbs.explaining import Explaining
from outrider.frontier.verbs.leasing import Leasing
from outrider.frontier.verbs.looking import Looking
from outrider.frontier.verbs.noting import Noting
from outrider.frontier.verbs.opening import Opening
from outrider.frontier.verbs.operations import Operations
from outrider.frontier.verbs.reporting import Reporting
from outrider.frontier.verbs.returning import Returning
from outrider.frontier.verbs.settling import Settling
from outrider.frontier.verbs.trapping import Trapping


class Machine:
    """One frontier. It is not thread-safe; the engine makes sure that one call runs at a time.

    A part knows the core and the parts that it is given, and no other. No part has state that a restart needs: that is
    in the tables.
    """

    def __init__(self, core: Core) -> None:
        self.core, self.tables, self.settings, self.turns = core, core.tables, core.settings, core.turns
        self.traps = traps = Trapping(core)
        self.robots = Asking(core)
        self.links = Discovering(core, traps)
        returning = Returning(core, self.robots, traps)
        self.leases = Leasing(core, self.robots, traps, returning)
        self.reports = Reporting(core, Settling(core, self.links, traps, self.robots), self.links)
        self.errands = Errands(core)
        self.notes = Noting(core)
        self.operators = Operations(core, self.links, self.robots)
        self.carried = Carrying(core, self.links)
        self.looks = Looking(core, self.links, self.leases, self.operators)
        self.reasons = Explaining(core, self.links, traps, self.robots, self.leases, self.operators)
        self.opening = Opening(core, self.robots, returning)

    def __repr__(self) -> str:
        counts = self.tables.urls.counts
        told = f"{counts[QUEUED]} queued, {counts[LEASED]} leased, {counts[DONE]} done"
        return f"<Machine {told} at {rfc3339(self.core.now)}>"
