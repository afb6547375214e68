"""Links on their way between the slots of this log and those of others."""

from __future__ import annotations

from outrider.frontier.format.facts import Block, Fact, Row, columns_of


class SlotLinks:
    """The links of one slot. outbox: by sequence, links for slots of other logs; sent: the highest sequence ever given;
    arrived: by source slot, the highest sequence taken in."""

    __slots__ = ("arrived", "outbox", "sent")

    def __init__(self) -> None:
        self.outbox: dict[int, Row] = {}
        self.sent = 0
        self.arrived: dict[int, int] = {}


class Transit:
    """The links of all slots. under_way: how many links the outboxes hold."""

    def __init__(self) -> None:
        self.homes: dict[int, SlotLinks] = {}
        self.under_way = 0

    def _home(self, slot: int) -> SlotLinks:
        found = self.homes.get(slot)
        if found is None:
            found = self.homes[slot] = SlotLinks()
        return found

    def _outbox(self, slot: int, sequence: int, *link: object) -> None:
        home = self._home(slot)
        home.sent = max(home.sent, sequence)
        self.under_way += sequence not in home.outbox
        home.outbox[sequence] = (slot, sequence, *link)

    def _arrived(self, slot: int, source: int, sequence: int) -> None:
        home = self._home(slot)
        home.arrived[source] = max(home.arrived.get(source, 0), sequence)

    def _delivered(self, slot: int, sequence: int) -> None:
        home = self._home(slot)
        home.sent = max(home.sent, sequence)
        for number in [number for number in home.outbox if number <= sequence]:
            del home.outbox[number]
            self.under_way -= 1

    def blocks(self) -> list[Block]:
        """The facts that rebuild all of it."""
        blocks: list[Block] = []
        for slot, home in self.homes.items():
            blocks.append((Fact.DELIVERED, columns_of([(slot, min(home.outbox, default=home.sent + 1) - 1)])))
            if home.outbox:
                blocks.append((Fact.OUTBOX, columns_of(list(home.outbox.values()))))
            if home.arrived:
                arrived = [(slot, source, sequence) for source, sequence in home.arrived.items()]
                blocks.append((Fact.ARRIVED, columns_of(arrived)))
        return blocks
