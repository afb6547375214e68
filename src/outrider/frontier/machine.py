"""The machine: one frontier, its verbs as parts over one core."""

from __future__ import annotations

from outrider.clock import rfc3339
from outrider.frontier.state.url_table import DONE, LEASED, QUEUED
from outrider.frontier.verbs.deciding import Core
from outrider.frontier.verbs.discovering import Discovering
from outrider.frontier.verbs.explaining import Explaining
from outrider.frontier.verbs.leasing import Leasing
from outrider.frontier.verbs.lifecycle import Lifecycle
from outrider.frontier.verbs.notes import Notes
from outrider.frontier.verbs.operations import Operations
from outrider.frontier.verbs.queries import Queries
from outrider.frontier.verbs.queued_errands import QueuedErrands
from outrider.frontier.verbs.reporting import Reporting
from outrider.frontier.verbs.resting import Resting
from outrider.frontier.verbs.robots_files import RobotsFiles
from outrider.frontier.verbs.settling import Settling
from outrider.frontier.verbs.single_urls import SingleUrls
from outrider.frontier.verbs.transfer import Transfer
from outrider.frontier.verbs.trapping import Trapping
from outrider.frontier.verbs.unparking import Unparking


class Machine:
    """One frontier. It is not thread-safe; the engine runs one call at a time.

    A part uses the core and the parts that its constructor takes, no other part. State that a restart needs is in the
    tables, never in a part.
    """

    def __init__(self, core: Core) -> None:
        self.core, self.tables, self.settings, self.turns = core, core.tables, core.settings, core.turns
        self.traps = traps = Trapping(core)
        self.robots = RobotsFiles(core)
        self.links = Discovering(core, traps)
        returning = Unparking(core, self.robots, traps)
        self.leases = Leasing(core, self.robots, traps, returning)
        settling = Settling(core, self.links, traps, self.robots)
        self.reports = Reporting(core, settling, self.links)
        self.requests = Resting(core, settling)
        self.errands = QueuedErrands(core)
        self.notes = Notes(core)
        self.operators = Operations(core, self.links, self.robots)
        self.urls = SingleUrls(core, self.links, self.operators, traps.payments)
        self.carried = Transfer(core, self.links, self.urls)
        self.looks = Queries(core, self.links, self.leases, self.operators, self.urls)
        self.reasons = Explaining(core, self.links, traps, self.robots, self.leases, self.operators, self.urls)
        self.opening = Lifecycle(core, self.robots, returning)

    def __repr__(self) -> str:
        counts = self.tables.urls.counts
        told = f"{counts[QUEUED]} queued, {counts[LEASED]} leased, {counts[DONE]} done"
        return f"<Machine {told} at {rfc3339(self.core.now)}>"
