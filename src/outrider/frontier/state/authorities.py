"""The authorities of the frontier: their robots.txt files, and the errands that request them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import IntEnum
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from outrider.clock import Instant
from outrider.frontier.format.card_columns import Cards
from outrider.frontier.format.facts import KINDS, Block, Fact, Row, columns_of
from outrider.frontier.state.errand import Errand
from outrider.frontier.state.hosts import DELAYED, NONE, ROBOTS
from outrider.frontier.stores.rulebook import Rulebook
from outrider.journey import Kind
from outrider.url import authorities_of, host_of
from outrider.uses import UseLine

if TYPE_CHECKING:
    from outrider.frontier.state.tables import Tables


class RobotsState(IntEnum):
    """The frontier's knowledge of an authority's robots.txt."""

    UNKNOWN = 0
    RULES = 1
    ALLOW = 2
    RETRYING = 3
    REFUSED = 4
    DEAD = 5


WITH_COPY = (RobotsState.RULES, RobotsState.ALLOW)
"""The states in which a good answer is valid."""


class JudgeAgain(IntEnum):
    """Which parked URLs of an authority are to be judged again."""

    NONE = 0
    UNREACHABLE = 1  # URLs that were refused because no server answered
    ALL = 2


class Authority(Errand):
    """Scheme, host and port, which share one robots.txt, and the errand for it. It is made by the first draw of one of
    its pages, or by a call that passes rules. url: its own robots.txt, or the hop of a redirect; klass: the best class
    among the URLs of its host, while they wait for its rules."""

    __slots__ = ("again", "digest", "expires", "failing_since", "fetched", "logged", "place", "state", "status")

    def __init__(self, slot: int, host: int, name: str) -> None:
        super().__init__(Kind.ROBOTS, slot, host, name, name + "/robots.txt")
        self.place = -1  # its place in `Authorities.listed`
        self.again = JudgeAgain.NONE  # which of its parked URLs are to be judged again
        self.logged = False
        self.state = RobotsState.UNKNOWN
        self.expires: Instant = 0
        self.status = 0
        self.fetched: Instant = 0  # its last good answer
        self.failing_since: Instant = 0  # the first failure since then
        self.digest = 0  # names its rules, which the rulebook contains

    def opening(self, token: int, deadline: Instant, holder: int) -> tuple[Fact, Row]:
        return Fact.ERRAND, (self.slot, self.name, token, deadline, holder)

    def ending(self, until: Instant, *, lost: bool = False) -> tuple[Fact, Row]:
        return Fact.ROBOTS, robots_cells(self, next_at=max(self.next_at, until))

    def __repr__(self) -> str:
        return f"<Authority {self.name} {RobotsState(self.state).name.lower()}>"


CELLS = tuple(column.name for column in KINDS[Fact.ROBOTS].columns[2:])
"""The cells of an authority that a ROBOTS fact sets."""
cells_of = attrgetter(*CELLS)
"""These cells of an authority, or of an answer."""


def robots_cells(authority: Authority, **changed: Any) -> Row:
    """An authority as the columns of a ROBOTS fact. changed: cells that replace its own."""
    cells: Row = cells_of(authority)
    if changed:
        cells = tuple(changed.get(name, cell) for name, cell in zip(CELLS, cells, strict=True))
    return (authority.slot, authority.name, *cells)


class Authorities:
    """All authorities: `by_name`; `listed`, with the place of each in it; `of_host`, by row of Hosts. The rulebook
    contains the bodies of their robots.txt files, equal bodies once."""

    def __init__(self, tables: Tables, rulebook: Rulebook) -> None:
        self._tables = tables
        self.rulebook = rulebook
        self.by_name: dict[str, Authority] = {}
        self.listed: list[Authority] = []
        self.of_host: dict[int, list[Authority]] = {}

    def _authority(self, slot: int, name: str) -> None:
        self.authority(name).logged = True

    def authority(self, name: str) -> Authority:
        """Returns an authority by name, made if it is missing. A new one is not a fact until a fact names it.
        Raises KeyError when its host is unknown."""
        known = self.by_name.get(name)
        if known is not None:
            return known
        host = self._tables.host_row(self._tables.home_of(host_of(name + "/")))
        if host == NONE:
            raise KeyError(name)
        known = self.by_name.get(name)
        if known is not None:
            return known  # the recall of its host made it
        authority = Authority(int(self._tables.hosts.slot[host]), host, name)
        authority.place = len(self.listed)
        self.listed.append(authority)
        self.by_name[name] = authority
        self.of_host.setdefault(host, []).append(authority)
        self._tables.hosts.flags[host] |= ROBOTS
        return authority

    def note_open(self, one: Authority) -> None:
        """Notes in the row of a host how long the rules of an authority are valid, for `open_files`. An authority with
        a port or a dot after its host is not noted: its length would not separate its pages from others."""
        if one.name.count(":") == 1 and one.name[-1] != ".":
            until = 0 if one.token or one.state not in WITH_COPY else one.expires
            digest = one.digest if one.state == RobotsState.RULES else 0
            self._tables.hosts.open[one.host] = until, digest, len(one.name), ord(one.name[4])

    def open_files(
        self, hosts: npt.NDArray[np.intp], cards: Cards, now: Instant
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.uint64]]:
        """Returns whether the row of each card's host has the valid rules, and the digests of their files;
        0 without one."""
        columns, letters, starts = self._tables.hosts, np.frombuffer(cards.arena, np.uint8), cards.offsets[:-1]
        known = columns.open_until[hosts] > now
        known &= letters[starts + 4] == columns.open_letter[hosts]
        known &= letters.take(starts + columns.open_bytes[hosts], mode="clip") == ord("/")
        return known, columns.open_file[hosts] * known

    def about_uses(self, cards: Cards) -> Sequence[tuple[UseLine, ...]]:
        """Returns for each URL the lines of its robots.txt that say what it may be used for."""
        if not self.rulebook.says_uses:
            return ((),) * len(cards)
        found: list[tuple[UseLine, ...]] = []
        urls = cards.urls()
        for url, name in zip(urls, authorities_of(urls), strict=True):
            authority = self.by_name.get(name)
            is_ruled = authority is not None and authority.state == RobotsState.RULES
            found.append(self.rulebook.about_uses(authority.digest, url) if authority is not None and is_ruled else ())
        return found

    def ruled_by(self, urls: Sequence[str]) -> Sequence[tuple[str, int] | None]:
        """Returns for each URL the digest of its robots.txt and the number of the line that decides; None without
        rules."""
        found: list[tuple[str, int] | None] = []
        for url, name in zip(urls, authorities_of(urls), strict=True):
            authority = self.by_name.get(name)
            is_ruled = authority is not None and authority.state == RobotsState.RULES
            found.append(self.rulebook.ruled_by(authority.digest, url) if authority is not None and is_ruled else None)
        return found

    def _known(self, name: str) -> Authority:
        """An authority that is a fact already. Raises KeyError."""
        if name not in self.by_name and len(self._tables.cold):
            self._tables.host_row(self._tables.home_of(host_of(name + "/")))
        return self.by_name[name]

    def _robots(self, slot: int, name: str, *cells: Any) -> None:
        authority = self._known(name)
        self._tables.errands.end(authority)
        self._tables.hosts.open_until[authority.host] = 0
        for cell, value in zip(CELLS, cells, strict=True):
            setattr(authority, cell, value)
        authority.state, authority.again = RobotsState(authority.state), JudgeAgain(authority.again)
        self._tables.hosts.flags[authority.host] |= DELAYED
        self._tables.changed.append(np.array([authority.host], np.uint32))

    def _robots_file(self, slot: int, digest: int, body: bytes) -> None:
        self.rulebook.put(digest, body)

    def _rules(self, slot: int, name: str, digest: int, body: bytes) -> None:
        """body: empty where a fact of its own brings the file; before version 3 every authority brought its own."""
        authority = self._known(name)
        if body:
            self.rulebook.put(digest, body)
        elif digest == self._tables.cold.empty_file:
            digest = 0  # an empty file, as old stores name it
        self.rulebook.name(digest)
        self.rulebook.let_go(authority.digest)
        authority.digest = digest
        self._tables.hosts.open_until[authority.host] = 0
        self._tables.hosts.flags[authority.host] |= DELAYED

    def _errand(self, slot: int, name: str, token: int, deadline: int, holder: int) -> None:
        authority = self._known(name)
        self._tables.errands.lease(authority, token, deadline, holder)
        self._tables.hosts.open_until[authority.host] = 0

    def let_go(self, authorities: Iterable[Authority]) -> None:
        """Removes empty authorities, as their host goes cold. An authority whose
        file remains still names it."""
        for one in authorities:
            del self.by_name[one.name]
            last = self.listed.pop()
            if last is not one:
                self.listed[one.place], last.place = last, one.place
            if self.rulebook.stays(one.digest):
                self.rulebook.go_cold(one.digest)
            else:
                self.rulebook.let_go(one.digest)
            self.of_host.pop(one.host, None)

    def settle(self) -> list[int]:
        """Ends a recovery: forgets files that no authority names. Returns the digests that are named and lost."""
        self.rulebook.drop_unused()
        return self.rulebook.missing()

    def forget_lost(self) -> int:
        """Marks every authority whose file is lost for a new request. Returns their number."""
        lost = set(self.rulebook.missing())
        some = [one for one in self.listed if one.digest in lost]
        for one in some:
            self.rulebook.let_go(one.digest)
            one.digest, one.state, one.expires = 0, RobotsState.UNKNOWN, 0
        return len(some)

    def problems(self) -> list[str]:
        """Errors inside, in words: files that are not what their names say, and names that are counted wrongly."""
        named = Counter(one.digest for one in self.listed if one.digest)
        users, cold = self.rulebook.named()
        found = [] if users == named else ["authorities name other robots.txt files than are counted"]
        if cold != self._tables.cold.files_named():
            found.append("cold hosts name other robots.txt files than are counted")
        hash_of = self._tables.hash_of
        wrong = [digest for digest in users | cold if hash_of(self.rulebook.body(digest).decode("latin-1")) != digest]
        return found + [f"the robots.txt file {digest:016x} is lost, or another one" for digest in wrong[:10]]

    def blocks(self, first: int, last: int) -> list[Block]:
        """The facts that rebuild the authorities `first` … `last - 1` of the list."""
        some = self.listed[first:last]
        out: list[Block] = [
            (Fact.AUTHORITY, columns_of([(a.slot, a.name) for a in some])),
            (Fact.ROBOTS, columns_of([robots_cells(a) for a in some])),
        ]
        rules = [(a.slot, a.name, a.digest, b"") for a in some if a.digest]
        errands = [(a.slot, a.name, a.token, a.deadline, a.holder) for a in some if a.token]
        if rules:
            out.append((Fact.RULES, columns_of(rules)))
        if errands:
            out.append((Fact.ERRAND, columns_of(errands)))
        if rested := self._tables.errands.rested(some):
            out.append((Fact.RESTED, columns_of(rested)))
        return out
