"""Cold hosts: hosts that are not needed soon. Each is on disk as a record of some dozens of bytes; memory keeps its
hash.

Going cold changes only the form of the state, so it is not a fact: the record of a host contains all values of its
rows, and `recall` makes the rows again. So replay of a log never moves a host to the disk, and recalls it at the first
fact that names it. Records are cards in a separate ledger, whose keys are the hashes of hosts: each checkpoint writes a
run of them. When a host has rows, its older record does not count.

A host may go cold when its clock allows a request, and it has no lease, no errand and no parked URL. Waiting URLs
remain in the calendar; they name their queue by its hash, from which the hash of the host follows. A few queued URLs go
with their host: the record contains their cards, and the host waits in the front tier (`stores/front_tier.py`). If a
card is in the record of its host, the record of its URL says queued.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt

from outrider import kernels
from outrider.clock import Instant, instant
from outrider.errors import DamagedStoreError
from outrider.frontier.format.card_columns import Cards
from outrider.frontier.format.facts import TextColumn
from outrider.frontier.state.hosts import (
    DELAYED,
    GROUPED,
    LIMITED,
    MANY,
    NONE,
    RARE_CELLS,
    ROBOTS,
    RULED,
    SLOWED,
    VOIDED,
    QueueRules,
    Rows,
    hosts_of_queues,
    mixed,
    queue_hashes,
    shared_rules,
)
from outrider.frontier.stores.chunks import laid_out, read_out
from outrider.frontier.stores.front_tier import NO_GROUP, FrontTier, LeavingHosts, slots_of
from outrider.frontier.stores.ledger import Ledger, LedgerStatistics
from outrider.kernels.card_layout import HEAD, PLANNED
from outrider.limits import (
    CLASSES,
    COLD_CARDS_BYTES_MAX,
    COLD_CARDS_MAX,
    FRONT_PLACES_UNUSED_MAX,
    MICROSECONDS,
    RUN_READ_BYTES,
)
from outrider.storage.files import Files
from outrider.storage.read_ahead import ahead
from outrider.storage.runs import COLD

if TYPE_CHECKING:
    from outrider.frontier.state.authorities import Authority
    from outrider.frontier.state.tables import Tables

Uint64s = npt.NDArray[np.uint64]

RECORD = np.dtype(
    {
        "names": [
            *("fingerprint", "done", "gone", "rest", "ended", "gap", "extra_bytes"),
            *("high", "slot", "answered", "name_bytes", "state", "reason", "klass", "queued", "crawl", "waiting"),
        ],
        "formats": [
            *("<u8", "<u4", "<u4", "<i8", "<i8", "<f8", "<u4"),
            *("<u2", "<u2", "<u4", "<u2", "u1", "u1", "u1", "u1", "<u2", "<u4"),
        ],
        "offsets": [0, 8, 12, 16, 24, 32, 44, 48, 50, 52, 56, 60, 61, 62, 63, 66, 68],
        "itemsize": HEAD.itemsize,
    }
)
"""The head of a card, read as the record of a host. fingerprint: its hash, and high: the upper 16 bits of it; rest:
microseconds of rest in addition to `ended` and its gap; crawl, done, gone, waiting, queued: cells of its youngest
queue; klass: the class of its best queued URL, 0 without one. The body is its name, followed by values that few hosts
have: `_extra_of`."""

_CRAWLS_MAX = 0xFFFF  # `extra` contains higher rows of crawls
_LOW = np.uint64((1 << 56) - 1)
# with the name, and values with bounds of their own, a record has at most a megabyte: older releases read no longer one
EXTRA_BYTES_MAX = (1 << 20) - (1 << 16)
_RARE, _RULES, _QUEUES, _ADDRESS, _AUTHORITIES, _CRAWL, _CARDS = "b", "r", "q", "i", "a", "c", "u"
_CARDS_ALONE = (
    b"\x81\xa1u\xc5"  # an `extra` that has only cards, in MessagePack: their length (2 bytes) and they follow
)
_DIGEST, _BODY = 10, 11  # within an authority's cells
_STATES = {"waiting": 3, "done": 5, "gone": 6}  # the numbers of states in the tables, for which a queue has a column
_COUNTED = {"queued": 1, **_STATES}
_SALTS = {state: mixed(np.array([state], np.uint64))[0] for state in _COUNTED.values()}


_LOCATED, _CLASS = np.uint8(0x80), np.uint8(0x7F)
"""Bits of `klass`. Located: errands resolve addresses, and the address of the host was known when it left with queued
URLs. Releases without this bit read a better class."""

_Counts = tuple[int, ...]
"""Queues, those of them with URLs that are not completed, hosts with queued URLs, those of them with a known address,
and queued, waiting, done and gone URLs."""
_NO_COUNTS: _Counts = (0, 0, 0, 0, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class ColdQueue:
    """A queue of a cold host: the row of its crawl, how many of its URLs are in these states, and its rules."""

    crawl: int
    waiting: int
    done: int
    gone: int
    rules: QueueRules | None = None
    queued: int = 0


@dataclass(frozen=True, slots=True)
class ColdAuthority:
    """An authority of a cold host, and its robots.txt. state: a RobotsState."""

    name: str
    state: int
    status: int
    fetched: Instant
    expires: Instant
    next_at: Instant
    error: str
    digest: int
    body: bytes
    """Empty where `digest` names a file that the rulebook has."""


class _Extras(Mapping[int, Mapping[str, Any]]):
    """The values that few hosts have, by place, packed until they are needed: an opening reads all records, and
    nearly every host of a crawl has an address in them."""

    def __init__(self, packed: dict[int, bytes]) -> None:
        self._packed = packed

    def __getitem__(self, place: int) -> Mapping[str, Any]:
        try:
            found: Mapping[str, Any] = msgspec.msgpack.decode(self._packed[place])
        except msgspec.DecodeError as error:
            raise DamagedStoreError(f"the record of a host on disk cannot be read ({error})") from error
        return found

    def __iter__(self) -> Iterator[int]:
        return iter(self._packed)

    def __len__(self) -> int:
        return len(self._packed)

    def with_(self, name: str) -> Iterator[tuple[int, Any]]:
        """The places that have a value of this name, of one letter, and the values."""
        key = msgspec.msgpack.encode(name)
        for place, packed in self._packed.items():
            if key in packed and name in (extra := self[place]):
                yield place, extra[name]

    def cards(self, place: int) -> bytes:
        """The cards of the queued URLs of a place, as they were laid out."""
        packed = self._packed[place]
        if packed.startswith(_CARDS_ALONE):
            return packed[len(_CARDS_ALONE) + 2 :]
        found: bytes = self[place][_CARDS]
        return found

    def beyond_cards(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """The places that have other values than cards, and their values."""
        for place, packed in self._packed.items():
            if not packed.startswith(_CARDS_ALONE):
                yield place, self[place]

    def take(self, rows: npt.NDArray[np.intp]) -> _Extras:
        """The values of these places, by their number among them."""
        if not self._packed:
            return self
        known = self._packed
        return _Extras({new: known[old] for new, old in enumerate(rows.tolist()) if old in known})


@dataclass(frozen=True, slots=True, eq=False)
class ColdRecords:
    """Records in columns, by ascending hash. rest_until: as it was when the host went cold; extras: by place;
    empty_file: the digest of an empty robots.txt in old stores, which do not store one."""

    hashes: Uint64s
    heads: npt.NDArray[Any]
    rest_until: npt.NDArray[np.int64]
    names: TextColumn
    extras: _Extras
    empty_file: int

    @classmethod
    def of(cls, cards: Cards, empty_file: int) -> ColdRecords:
        """Returns the records in these cards. An unreadable `extra` raises DamagedStoreError when it is needed."""
        heads = cards.heads.view(RECORD)
        starts = np.ascontiguousarray(cards.offsets[:-1])
        ends = starts + heads["name_bytes"]
        extras = {
            place: cards.arena[int(ends[place]) : int(cards.offsets[place + 1])]
            for place in np.flatnonzero(heads["extra_bytes"]).tolist()
        }
        names = TextColumn(kernels.gather_spans(cards.arena, starts, ends), heads["name_bytes"].astype(np.uint32))
        return cls(_hashes(heads), heads, _rest_until(heads), names, _Extras(extras), empty_file)

    def __len__(self) -> int:
        return len(self.hashes)

    def take(self, rows: npt.NDArray[np.intp]) -> ColdRecords:
        """The records of these places."""
        if len(rows) == len(self):
            return self
        names, extras = self.names.take(rows), self.extras.take(rows)
        return ColdRecords(self.hashes[rows], self.heads[rows], self.rest_until[rows], names, extras, self.empty_file)

    def crawls(self) -> npt.NDArray[np.uint32]:
        """The crawl's row of the youngest queue of each host."""
        found = self.heads["crawl"].astype(np.uint32)
        for place, crawl in self.extras.with_(_CRAWL):
            found[place] = crawl
        return found

    def leaving(self) -> LeavingHosts:
        """Returns the hosts, all with queued URLs, for the lines of the front tier. Records do not contain groups."""
        classes, visited = self.heads["klass"], (self.heads["ended"] > 0) | (self.rest_until > 0)
        groups = np.full(len(self), NO_GROUP, np.uint32)
        return LeavingHosts(self.crawls(), classes & _CLASS, visited, classes >= _LOCATED, groups, self.hashes)

    def more_queues(self) -> Iterator[tuple[int, list[ColdQueue]]]:
        """By place, the further queues of hosts with several, the youngest first."""
        for place, queues in self.extras.with_(_QUEUES):
            yield place, [_queue(cells) for cells in queues]

    def queues(self, place: int) -> list[ColdQueue]:
        """All queues of one host, the youngest first."""
        head, extra = self.heads[place], self.extras.get(place, {})
        crawl = int(extra.get(_CRAWL, head["crawl"]))
        counts = (int(head["waiting"]), int(head["done"]), int(head["gone"]))
        more = [_queue(cells) for cells in extra.get(_QUEUES, ())]
        return [ColdQueue(crawl, *counts, _rules(extra.get(_RULES)), int(head["queued"])), *more]

    def cards(self, places: npt.NDArray[np.intp]) -> Cards:
        """The cards of the queued URLs of these hosts, in the order of the hosts."""
        return read_out(self.heads["queued"][places].tolist(), [self.extras.cards(place) for place in places.tolist()])

    def authorities(self, place: int) -> list[ColdAuthority]:
        """The authorities of one host."""
        cells = self.authority_cells(self.extras.get(place, {}))
        host = self.names.take(np.array([place])).list()[0] if cells else ""
        return [_authority(one, host) for one in cells]

    def authority_cells(self, extra: Mapping[str, Any]) -> list[Sequence[Any]]:
        """Returns the cells of the authorities in an `extra`."""
        told = extra.get(_AUTHORITIES, ())
        return [one if one[_DIGEST] != self.empty_file else (*one[:_DIGEST], 0, *one[_BODY:]) for one in told]

    def files_named(self) -> Iterator[int]:
        """The digests of robots.txt files that the records name, once for each authority that does."""
        for _, authorities in self.extras.with_(_AUTHORITIES):
            for cells in authorities:
                if cells[_DIGEST] not in (0, self.empty_file) and not cells[_BODY]:
                    yield cells[_DIGEST]

    def rare_cells(self, place: int) -> dict[str, float]:
        """The rare cells of one host by name; a record from before a cell was declared has a zero for it."""
        return dict.fromkeys(RARE_CELLS, 0) | dict(
            zip(RARE_CELLS, self.extras.get(place, {}).get(_RARE, ()), strict=False)
        )


class ColdHosts:
    """The records of hosts without rows. ledger: contains them; None: no host goes cold."""

    def __init__(self, ledger: Ledger | None = None) -> None:
        self._ledger = ledger
        self._set = kernels.FingerprintSet()
        self._with_cards = kernels.FingerprintSet()  # of them, those with queued URLs
        self.front = FrontTier()
        """The hosts with queued URLs, in the order in which they return."""
        self._counts: dict[int, _Counts] = {}  # by crawl
        self.empty_file = 0
        """The digest of an empty robots.txt in this store."""
        self.floor: tuple[Instant, float] = (0, 0.0)
        """A visited cold host rests from this instant on for its gap, or for these seconds if they are longer."""
        self._latest: Instant = 0
        self._gap_longest = 0.0
        self.ever = False
        """Whether any host ever went cold: since then the row of a host does not show when the host became known."""

    @classmethod
    def open(cls, files: Files, *, store: bytes, names: Sequence[str]) -> ColdHosts:
        """The records that a checkpoint lists; `restore` finds the hosts among them that are cold. Raises
        DamagedStoreError, ForeignStoreError."""
        return cls(Ledger.open(files, store=store, names=names, family=COLD))

    def __len__(self) -> int:
        return len(self._set)

    def __repr__(self) -> str:
        return f"<ColdHosts {len(self)}>"

    # -- who is cold --------------------------------------------------------------------------------------------------

    def has(self, hashes: Uint64s) -> npt.NDArray[np.bool_]:
        """Whether each of these hosts is cold."""
        if not len(self._set):
            return np.zeros(len(hashes), np.bool_)
        return np.frombuffer(self._set.check(slots_of(hashes), np.ascontiguousarray(hashes)), np.bool_)

    def have_cards(self, hashes: Uint64s) -> npt.NDArray[np.bool_]:
        """Whether each of these hosts is cold and has queued URLs."""
        if not len(self._with_cards):
            return np.zeros(len(hashes), np.bool_)
        return np.frombuffer(self._with_cards.check(slots_of(hashes), np.ascontiguousarray(hashes)), np.bool_)

    def have_queues(self, queues: Uint64s, crawls: Any) -> npt.NDArray[np.bool_]:
        """Whether each of these queues belongs to a cold host."""
        return self.has(hosts_of_queues(np.ascontiguousarray(queues), np.asarray(crawls, np.uint32)))

    def queues_in(self, crawl: int) -> int:
        """How many queues of a crawl belong to cold hosts."""
        return self._counts.get(crawl, _NO_COUNTS)[0]

    def queues_with_open(self, crawl: int) -> int:
        """How many of these queues have URLs that are not completed."""
        return self._counts.get(crawl, _NO_COUNTS)[1]

    def with_cards(self) -> Iterator[tuple[int, int, int]]:
        """The rows of crawls with queued URLs at cold hosts, the number of these hosts, and how many of them had a
        known address."""
        return ((crawl, counts[2], counts[3]) for crawl, counts in self._counts.items() if counts[2])

    @property
    def queued(self) -> int:
        """How many queued URLs of crawls that are not deleted the records contain."""
        return sum(counts[4] for counts in self._counts.values())

    @property
    def crawls(self) -> int:
        """One more than the highest row of a crawl that has a queue here."""
        return 1 + max(self._counts, default=-1)

    def let_go(self, crawl: int) -> tuple[int, int, int, int]:
        """Removes a deleted crawl from the counts and the front tier. Returns how many URLs of its queues here were
        queued, waiting, done and gone."""
        self.front.drop(crawl)
        *_, queued, waiting, done, gone = self._counts.pop(crawl, _NO_COUNTS)
        return queued, waiting, done, gone

    def rest_floor(self, told: ColdRecords) -> npt.NDArray[np.int64]:
        """The end of the rest of each host, raised where a COLD_REST fact made all cold hosts rest since."""
        at, delay = self.floor
        if not at:
            return told.rest_until
        ended, gap = told.heads["ended"], told.heads["gap"]
        floor = at + np.ceil(np.maximum(gap, delay) * MICROSECONDS).astype(np.int64)
        return np.where((ended > 0) | (told.rest_until > 0), np.maximum(told.rest_until, floor), told.rest_until)

    def floor_first_end(self) -> Instant:
        """The instant before which every visited cold host rests because of a COLD_REST fact, 0 without one."""
        at, delay = self.floor
        return at + instant(delay) if at else 0

    def floor_end(self) -> Instant:
        """The instant after which no cold host rests because of a COLD_REST fact, 0 without one."""
        at, delay = self.floor
        return at + instant(max(self._gap_longest, delay)) if at and len(self) else 0

    def busy_after(self, at: Instant, gap: Instant) -> Iterator[Uint64s]:
        """Returns the hashes of cold hosts that rested beyond an instant, or whose last request ended less than `gap`
        before it, without COLD_REST facts. It reads the records only if there may be such a host."""
        for told in self.scan() if self._latest + gap > at else ():
            found = (told.rest_until > at) | ((told.heads["ended"] > 0) & (told.heads["ended"] + gap > at))
            if found.any():
                yield told.hashes[found]

    def _note_clocks(self, heads: npt.NDArray[Any], rest_until: npt.NDArray[np.int64]) -> None:
        """Keeps upper bounds of the clocks of records, which recalls do not lower."""
        self._latest = max(self._latest, int(rest_until.max()), int(heads["ended"].max()))
        self._gap_longest = max(self._gap_longest, float(heads["gap"].max()))

    # -- reading ------------------------------------------------------------------------------------------------------

    def scan(self, *, after: int | None = None, bytes_at_once: int = RUN_READ_BYTES) -> Iterator[ColdRecords]:
        """The records of all cold hosts, in the order of their hashes, above `after`; some thousand at once."""
        if self._ledger is None or not len(self._set):
            return
        key = None if after is None else (0, after >> 48, after)
        for cards in self._ledger.scan(after=key, bytes_at_once=bytes_at_once):
            told = ColdRecords.of(cards, self.empty_file)
            here = self.has(told.hashes)
            if here.any():
                yield told.take(np.flatnonzero(here))

    def files_named(self) -> Counter[int]:
        """By digest, how many authorities of cold hosts name each robots.txt file."""
        return Counter(digest for told in self.scan() for digest in told.files_named())

    def totals(self, gone: npt.NDArray[np.bool_]) -> tuple[dict[int, int], dict[int, int]]:
        """Returns by state: the number of URLs in the records, and a sum in which each queue's count has its own
        weight. `weigh` of the same URLs returns the same sum, of other URLs hardly ever. Queues of deleted crawls do
        not count."""
        counts, sums = dict.fromkeys(_COUNTED.values(), 0), dict.fromkeys(_COUNTED.values(), 0)
        for told in self.scan():
            crawls = told.crawls()
            lives = ~gone.take(crawls, mode="clip")
            weights = queue_hashes(told.hashes, crawls)
            for name, state in _COUNTED.items():
                column = np.where(lives, told.heads[name], 0).astype(np.uint64)
                counts[state] += int(column.sum())
                sums[state] += int((mixed(weights ^ _SALTS[state]) * column).sum(dtype=np.uint64))
            for place, more in told.more_queues():
                for queue in more:
                    if gone[queue.crawl]:
                        continue
                    weight = queue_hashes(told.hashes[place : place + 1], np.array([queue.crawl], np.uint32))
                    for name, state in _STATES.items():
                        count = getattr(queue, name)
                        counts[state] += count
                        sums[state] += int(mixed(weight ^ _SALTS[state])[0]) * count
        return counts, {state: total & 0xFFFF_FFFF_FFFF_FFFF for state, total in sums.items()}

    def statistics(self) -> LedgerStatistics:
        """Bytes of the records on disk, and in memory before they are written."""
        return self._ledger.statistics() if self._ledger is not None else LedgerStatistics(0, 0, 0, 0)

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory for the hashes."""
        return self._set.statistics()["bytes"] + self._with_cards.statistics()["bytes"] + self.front.bytes

    # -- going and coming ---------------------------------------------------------------------------------------------

    def put_away(self, tables: Tables, rows: Rows, located: npt.NDArray[np.bool_], groups: Rows) -> Rows:
        """Writes records of these hosts and removes their rows. `may_go` or `may_go_with_urls` must have allowed
        them. Returns the rows of hosts that stay, because their cards are too large or planned. located, groups: as in
        `LeavingHosts`, for those with queued URLs. Raises DamagedStoreError; then nothing is changed."""
        assert self._ledger is not None
        hosts, queues = tables.hosts, tables.queues
        counts = tables.urls.backlog.waiting(hosts.first_queue[rows])
        some_cards: list[bytes] = []
        classes, stay = np.zeros(len(rows), np.uint8), rows[:0]
        if counts.any():
            fit, some_cards, classes = _taken(tables, rows, counts)
            stay, rows, counts, classes = rows[~fit], rows[fit], counts[fit], classes[fit]
            located, groups = located[fit], groups[fit]
            if not len(rows):
                return stay
        heads = np.zeros(len(rows), HEAD)
        cells = heads.view(RECORD)
        hashes, first = hosts.hash[rows], hosts.first_queue[rows]
        laden = np.flatnonzero(counts)
        if len(laden):
            cells["queued"] = counts
            cells["klass"] = np.where((counts > 0) & located, classes | _LOCATED, classes)
        names = hosts.names(rows)
        cells["fingerprint"], cells["high"], cells["slot"] = hashes, hashes >> np.uint64(48), hosts.slot[rows]
        cells["ended"], cells["gap"], cells["reason"] = hosts.ended[rows], hosts.gap[rows], hosts.reason[rows]
        cells["rest"] = hosts.rest_until[rows] - _rest_of(cells)
        cells["answered"], cells["state"], cells["name_bytes"] = hosts.answered[rows], 1, names.lengths
        crawls = queues.crawl[first]
        cells["crawl"] = np.minimum(crawls, _CRAWLS_MAX)
        for name in _STATES:
            cells[name] = getattr(queues, name)[first]
        self._count(crawls, cells, 1, tables.crawls.gone)
        self._note_clocks(cells, hosts.rest_until[rows])
        more: list[int] = []
        odd = (hosts.flags[rows] & np.uint16(MANY | ROBOTS | RULED | SLOWED | LIMITED)) != 0
        odd |= crawls >= _CRAWLS_MAX
        for name in RARE_CELLS:
            odd |= getattr(hosts, name)[rows] != 0
        if tables.addresses.by_host:
            odd |= np.array([row in tables.addresses.by_host for row in rows.tolist()], np.bool_)
        offsets = np.zeros(len(rows) + 1, np.int64)
        if odd.any() or len(laden):
            cards = dict(zip(laden.tolist(), some_cards, strict=True))
            extras = {place: _cards_alone(some) for place, some in cards.items()}
            for place in np.flatnonzero(odd).tolist():
                extras[place] = self._extra_of(tables, int(rows[place]), more, cards.get(place))
            cells["extra_bytes"] = [len(extras.get(place, b"")) for place in range(len(rows))]
            parts = [part for place, name in enumerate(names.pieces()) for part in (name, extras.get(place, b""))]
            arena = b"".join(parts)
        else:
            arena = names.octets
        np.cumsum(cells["name_bytes"].astype(np.int64) + cells["extra_bytes"], out=offsets[1:])
        self._ledger.append(Cards(heads, arena, offsets))
        self._set.add(slots_of(hashes), hashes)
        if len(laden):
            self._with_cards.add(slots_of(hashes[laden]), hashes[laden])
            visited = (cells["ended"] > 0) | (_rest_until(cells) > 0)
            leaving = LeavingHosts(crawls, classes, visited, located, groups, hashes)
            self.front.add(leaving.take(laden))
            if len(self.front) > 2 * len(self._with_cards) + FRONT_PLACES_UNUSED_MAX:
                self.front.tidy(self.have_cards)
        self.ever = True
        queues.remove(first if not more else np.concatenate((first, np.array(more, np.uint32))))
        for row in rows.tolist() if tables.addresses.left else ():
            tables.addresses.left.pop(row, None)  # it has no open lease, and tokens grow
        hosts.remove(rows)
        return stay

    def _extra_of(self, tables: Tables, row: int, more: list[int], cards: bytes | None) -> bytes:
        """The values that few hosts have, packed. Adds the rows of further queues to `more`, and removes the host's
        authorities. cards: those of its queued URLs, None without one."""
        hosts, queues = tables.hosts, tables.queues
        told: dict[str, Any] = {}
        if cards is not None:
            told[_CARDS] = cards
        youngest, *others = tables.queues_of(row)
        rare = [getattr(hosts, name)[row].item() for name in RARE_CELLS]
        if any(rare):
            told[_RARE] = rare
        if queues.crawl[youngest] >= _CRAWLS_MAX:
            told[_CRAWL] = int(queues.crawl[youngest])
        rules = queues.rules.get(youngest)
        if rules is not None:
            told[_RULES] = _cells(rules)
        if others:
            told[_QUEUES] = []
            for queue in others:
                crawl, rules = int(queues.crawl[queue]), queues.rules.get(queue)
                counts = [int(getattr(queues, name)[queue]) for name in _STATES]
                told[_QUEUES].append((crawl, *counts, _cells(rules) if rules is not None else None))
                if not tables.crawls.gone[crawl]:
                    self._add(crawl, _counts_of(counts))
            more += others
        place = tables.addresses.let_go(row)
        if place is not None:
            *cells, error = place.cells()
            told[_ADDRESS] = (*cells, error.encode("utf-8", "surrogatepass"))
        authorities = tables.robots.of_host.get(row)
        if authorities:
            name = hosts.name(row)
            rulebook, told[_AUTHORITIES] = tables.robots.rulebook, []
            for one in authorities:
                stays = rulebook.stays(one.digest)
                told[_AUTHORITIES].append(_authority_cells(one, name, b"" if stays else rulebook.body(one.digest)))
                tables.robots.let_go((one,))
        return msgspec.msgpack.encode(told) if told else b""

    def recall(self, tables: Tables, hashes: Uint64s) -> None:
        """Makes the rows of the cold hosts among these as they were. Raises DamagedStoreError."""
        if self._ledger is None or not len(self._set):
            return
        hashes = np.unique(hashes[self.has(hashes)])
        if not len(hashes):
            return
        found, cards = self._ledger.find(np.zeros(len(hashes), np.uint32), hashes >> np.uint64(48), hashes & _LOW)
        if not found.all():
            raise DamagedStoreError(f"host {int(hashes[~found][0]):016x} is cold, and no run of cold hosts has it")
        told = ColdRecords.of(cards, self.empty_file)
        hosts, queues, heads = tables.hosts, tables.queues, told.heads
        crawls = told.crawls()
        lives = ~tables.crawls.are_gone(crawls) if tables.urls.voids() else None
        queued = heads["queued"].astype(np.uint32)
        if lives is not None:
            queued[~lives] = 0
        with_cards = np.flatnonzero(queued)
        some_cards = told.cards(with_cards)
        rows = hosts.add(hashes, heads["slot"], told.names, absent=True)
        hosts.ended[rows], hosts.gap[rows], hosts.reason[rows] = heads["ended"], heads["gap"], heads["reason"]
        hosts.rest_until[rows], hosts.answered[rows] = self.rest_floor(told), heads["answered"]
        youngest = queues.add(queue_hashes(hashes, crawls), rows, crawls)
        hosts.first_queue[rows] = youngest
        for name in _STATES:
            column = getattr(queues, name)
            column[youngest] = heads[name] if lives is None else np.where(lives, heads[name], 0)
        laden = heads["queued"] > 0
        queues.open_again(youngest, queued)
        self._set.remove(slots_of(hashes), hashes)
        if laden.any():
            self._with_cards.remove(slots_of(hashes[laden]), hashes[laden])
            self.front.note_recalled(hashes[laden], crawls[laden])
        self._count(crawls, heads, -1, tables.crawls.gone)
        for place, extra in told.extras.beyond_cards():
            self._recall_extra(tables, int(rows[place]), int(youngest[place]), told, place, extra)
        tables.keys.join_twins(youngest)
        if any(tables.crawls.states[crawl] for crawl in set(crawls.tolist())):
            tables.flag(youngest)
        if len(with_cards):
            tables.changed.append(rows[with_cards])
            tables.urls.place(some_cards, youngest[with_cards].repeat(queued[with_cards]))

    def _recall_extra(
        self, tables: Tables, row: int, youngest: int, told: ColdRecords, place: int, extra: Mapping[str, Any]
    ) -> None:
        hosts, queues = tables.hosts, tables.queues
        if _RARE in extra:
            for name, value in told.rare_cells(place).items():
                getattr(hosts, name)[row] = value
        rules = _rules(extra.get(_RULES))
        if rules is not None:
            queues.rules[youngest] = rules
        last = youngest
        for queue in told.queues(place)[1:]:
            crawl = np.array([queue.crawl], np.uint32)
            one = queues.add(queue_hashes(told.hashes[place : place + 1], crawl), np.array([row], np.uint32), crawl)
            added = int(one[0])
            queues.after[last] = added + 1
            last = added
            hosts.flags[row] |= MANY
            counts = [getattr(queue, name) for name in _STATES]
            if not tables.crawls.gone[queue.crawl]:
                for name, count in zip(_STATES, counts, strict=True):
                    getattr(queues, name)[added] = count
                queues.open_again(one)
                self._add(queue.crawl, _counts_of(counts), -1)
            if queue.rules is not None:
                queues.rules[added] = queue.rules
        tables.flag(np.array([youngest], np.uint32))
        if _ADDRESS in extra:
            address, expires, next_at, attempts, error = extra[_ADDRESS]
            cells = (address, expires, next_at, attempts)
            tables.addresses.recall(row, cells, error.decode("utf-8", "surrogatepass"))
        for authority in told.authority_cells(extra):
            _recall_authority(tables, hosts.name(row), authority)

    def _count(self, crawls: Any, heads: Any, step: int, gone: npt.NDArray[np.bool_]) -> None:
        """Counts youngest queues that are added (1) or removed (-1)."""
        for crawl in np.unique(crawls).tolist():
            if not gone[crawl]:
                own = crawls == crawl
                waiting, queued = heads["waiting"][own] > 0, heads["queued"][own] > 0
                queues = int(np.count_nonzero(own)), int(np.count_nonzero(waiting | queued))
                located = np.count_nonzero(queued & (heads["klass"][own] >= _LOCATED))
                urls = (int(heads[name][own].sum(dtype=np.int64)) for name in _COUNTED)
                self._add(crawl, (*queues, int(np.count_nonzero(queued)), int(located), *urls), step)

    def _add(self, crawl: int, counts: _Counts, step: int = 1) -> None:
        known = self._counts.get(crawl, _NO_COUNTS)
        self._counts[crawl] = tuple(old + step * more for old, more in zip(known, counts, strict=True))

    def _count_records(self, told: ColdRecords, gone: npt.NDArray[np.bool_]) -> None:
        """Counts all queues of records."""
        self._count(told.crawls(), told.heads, 1, gone)
        for _, more in told.more_queues():
            for queue in more:
                if not gone[queue.crawl]:
                    self._add(queue.crawl, _counts_of([getattr(queue, name) for name in _STATES]))

    def crawls_with_wrong_counts(self, gone: npt.NDArray[np.bool_]) -> list[int]:
        """Returns the rows of crawls whose counts differ from those of the records."""
        again = ColdHosts()
        for told in self.scan():
            again._count_records(told, gone)
        crawls = self._counts.keys() | again._counts.keys()
        known = ((row, self._counts.get(row, _NO_COUNTS), again._counts.get(row, _NO_COUNTS)) for row in sorted(crawls))
        return [row for row, counts, found in known if counts != found]

    def restore(self, tables: Tables) -> None:
        """Finds the cold hosts, those with a record and without a row. Call it after the checkpoint's hosts. Raises
        DamagedStoreError."""
        if self._ledger is None:
            return
        for cards in ahead(self._ledger.scan()):
            told = ColdRecords.of(cards, self.empty_file)
            here = np.flatnonzero(tables.hosts.find(told.hashes) == NONE)
            if not len(here):
                continue
            told = told.take(here)
            self._set.add(slots_of(told.hashes), told.hashes)
            laden = np.flatnonzero((told.heads["queued"] > 0) & ~tables.crawls.gone.take(told.crawls(), mode="clip"))
            if len(laden):
                hashes = told.hashes[laden]
                self._with_cards.add(slots_of(hashes), hashes)
                self.front.add(told.take(laden).leaving())
            self._count_records(told, tables.crawls.gone)
            self._note_clocks(told.heads, told.rest_until)
            for digest in told.files_named():
                tables.robots.rulebook.note_cold(digest)
        self.ever = self._ledger.statistics().records > 0

    # -- files --------------------------------------------------------------------------------------------------------

    @property
    def ledger(self) -> Ledger | None:
        """Returns the ledger that a checkpoint freezes, writes and lists; None if no host goes cold."""
        return self._ledger

    def close(self) -> None:
        """Closes the files."""
        if self._ledger is not None:
            self._ledger.close()


def weigh(queues: Uint64s, state: int) -> int:
    """The sum of `ColdHosts.totals` for URLs of one state, from the hashes of their queues."""
    return int(mixed(np.ascontiguousarray(queues) ^ _SALTS[state]).sum(dtype=np.uint64))


def may_go(tables: Tables, rows: Rows, now: Instant) -> Rows:
    """Returns the rows of empty hosts whose clocks allow a request. The caller must exclude hosts with a queued
    errand, or with a turn of a group."""
    hosts, queues = tables.hosts, tables.queues
    good = hosts.there[rows] & (hosts.in_flight[rows] == 0) & (hosts.rest_until[rows] <= now)
    good &= (hosts.first_queue[rows] != NONE) & ((hosts.flags[rows] & np.uint16(VOIDED)) == 0)
    if (rested := tables.hosts.rested.at_each(rows)) is not None:
        good &= rested == 0
    rows = rows[good]
    first = hosts.first_queue[rows]
    good = (tables.urls.backlog.waiting(first) == 0) & (queues.parked[first] == 0)
    if not good.all():
        rows = rows[good]
    odd = (hosts.flags[rows] & np.uint16(MANY | ROBOTS)) != 0
    if odd.any():
        good = np.ones(len(rows), np.bool_)
        for place in np.flatnonzero(odd).tolist():
            good[place] = _holds_nothing(tables, int(rows[place]))
        rows = rows[good]
    return rows


def may_go_with_urls(tables: Tables, rows: Rows, now: Instant) -> Rows:
    """Returns the rows of hosts with one queue of a few queued URLs, whose clocks allow a request. The caller must
    exclude hosts with a queued errand, and those that neither are in a ring nor wait for a group."""
    hosts, backlog = tables.hosts, tables.urls.backlog
    good = hosts.there[rows] & (hosts.in_flight[rows] == 0) & (hosts.rest_until[rows] <= now)
    good &= (hosts.first_queue[rows] != NONE) & ((hosts.flags[rows] & ~np.uint16(_WITH_URLS)) == 0)
    if (rested := tables.hosts.rested.at_each(rows)) is not None:
        good &= rested == 0
    rows = rows[good]
    first = hosts.first_queue[rows]
    counts = backlog.waiting(first)
    good = (counts > 0) & (counts <= COLD_CARDS_MAX) & (tables.queues.parked[first] == 0)
    good &= (backlog.best(first) < CLASSES) & ~tables.crawls.are_gone(tables.queues.crawl[first])
    if tables.crawls.orders:
        good &= ~np.isin(tables.queues.crawl[first], list(tables.crawls.orders))
    rows = rows[good]
    rows = rows[~backlog.has_tail(hosts.first_queue[rows])]
    odd = (hosts.flags[rows] & np.uint16(ROBOTS)) != 0
    if odd.any() or tables.keys.group_of:
        good = np.ones(len(rows), np.bool_)
        for place, row in enumerate(rows.tolist()):
            own = int(hosts.first_queue[row])
            good[place] = own not in tables.keys.group_of and (not odd[place] or _asks_nothing(tables, row))
        rows = rows[good]
    return rows


_WITH_URLS = ROBOTS | DELAYED | SLOWED | LIMITED | GROUPED
"""The flags that a host with queued URLs may have when it goes cold: they do not decide whether it may be visited."""


def _asks_nothing(tables: Tables, row: int) -> bool:
    """Whether no authority of a host has an errand, and its record has room for them and for cards."""
    if cells_bytes(tables, row)[0] > EXTRA_BYTES_MAX - COLD_CARDS_BYTES_MAX:
        return False
    some = tables.robots.of_host.get(row, ())
    return not any(one.token or one.busy != NONE or one.wanted != NONE for one in some)


def _taken(
    tables: Tables, rows: Rows, counts: npt.NDArray[np.uint32]
) -> tuple[npt.NDArray[np.bool_], list[bytes], npt.NDArray[np.uint8]]:
    """Takes the queued URLs of hosts out of their queues. If the record of a URL may still say that it waits, its head
    is written to the ledger anew. Returns whether the cards of each host may leave: they are not too long for a record,
    and not planned; the cards of each such host that has some; and by host the class of the best one, 0 without
    one."""
    first = tables.hosts.first_queue[rows]
    classes = tables.urls.backlog.best(first)
    owners = first.repeat(counts)
    found, cards = tables.urls.backlog.take(owners)
    assert found.all(), "a queue has fewer cards than it counts"
    chunks = laid_out(counts, cards)
    fit = np.array([len(chunk) <= COLD_CARDS_BYTES_MAX for chunk in chunks], np.bool_)
    fit[np.arange(len(rows)).repeat(counts)[cards.heads["reason"] == PLANNED]] = (
        False  # the record of a planned URL says so
    )
    if not fit.all():
        back = ~fit.repeat(counts)
        tables.urls.backlog.put(owners[back], cards.filter(back))
        tables.changed.append(rows[~fit])
        cards = cards.filter(~back)
        chunks = [chunk for chunk, it in zip(chunks, fit.tolist(), strict=True) if it]
    if len(woken := cards.heads[tables.hosts.woken[rows[fit]].repeat(counts[fit]) != 0]):
        tables.urls.ledger.append_heads(woken)
    return fit, [chunk for chunk in chunks if chunk], np.where(counts > 0, classes, 0).astype(np.uint8)


def _cards_alone(cards: bytes) -> bytes:
    return b"".join((_CARDS_ALONE, len(cards).to_bytes(2, "big"), cards))


def _holds_nothing(tables: Tables, row: int) -> bool:
    """Whether a host with several queues, or with authorities, is empty. Also False if a record has no room for
    them."""
    queues = tables.queues
    own = list(tables.queues_of(row))
    if cells_bytes(tables, row)[0] > EXTRA_BYTES_MAX:
        return False
    if any(queue in tables.keys.group_of or queues.parked[queue] for queue in own):
        return False  # a key that spans hosts has a clock and a turn of its own
    if tables.urls.backlog.waiting(np.array(own, np.uint32)).any():
        return False
    some = tables.robots.of_host.get(row, ())
    return not any(one.token or one.busy != NONE or one.wanted != NONE for one in some)


def _counts_of(urls: Sequence[int]) -> _Counts:
    """Returns the counts of one queue without queued URLs from its waiting, done and gone ones."""
    waiting, done, gone = urls
    return (1, int(waiting > 0), 0, 0, 0, waiting, done, gone)


def _hashes(heads: npt.NDArray[Any]) -> Uint64s:
    low = np.ascontiguousarray(heads["fingerprint"])
    found: Uint64s = (low & _LOW) | (heads["high"].astype(np.uint64) << np.uint64(48))
    return found


def _rest_of(heads: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """The end of the rest for hosts that rest for their gap alone."""
    found: npt.NDArray[np.int64] = heads["ended"] + np.ceil(heads["gap"] * MICROSECONDS).astype(np.int64)
    return found


def _rest_until(heads: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    found: npt.NDArray[np.int64] = heads["rest"] + _rest_of(heads)
    return found


def _cells(rules: QueueRules) -> tuple[object, ...]:
    return rules.paused, rules.blocked_until, rules.delay, rules.limit


def _queue(cells: Sequence[Any]) -> ColdQueue:
    crawl, waiting, done, gone, rules = cells
    return ColdQueue(crawl, waiting, done, gone, _rules(rules))


def _rules(cells: Sequence[Any] | None) -> QueueRules | None:
    return shared_rules(*cells) if cells is not None else None


def _authority_cells(one: Authority, host: str, body: bytes) -> tuple[object, ...]:
    """Returns the cells of an authority, shortened: a number for a name that follows from the host's, and no digest
    together with the rules. body: empty if the digest names them."""
    name: object = next((scheme for scheme in (0, 1) if one.name == _origin(scheme, host)), one.name)
    url = "" if one.url == one.name + "/robots.txt" else one.url
    return (
        *(name, one.logged, int(one.state), one.expires, one.next_at, one.attempts, one.hops, one.status, url),
        # An error's class is the caller's and may contain half a surrogate pair.
        *(one.error.encode("utf-8", "surrogatepass"), 0 if body else one.digest, body, int(one.again)),
        *(one.fetched, one.failing_since),
    )


def cells_bytes(tables: Tables, row: int) -> tuple[int, list[int]]:
    """Returns an upper bound of the bytes in the cells of a host's queues and authorities if the host went cold next,
    and the robots.txt files that would need places in the rulebook."""
    some = tables.robots.of_host.get(row, ())
    files, bodies = tables.robots.rulebook.places_for([one.digest for one in some])
    cells = sum(120 + len(one.name) + len(one.url) + 4 * len(one.error) for one in some)
    return 100 * sum(1 for _ in tables.queues_of(row)) + cells + bodies, files


def _authority(cells: Sequence[Any], host: str) -> ColdAuthority:
    name, _, state, expires, next_at, _, _, status, _, error, digest, body, *later = cells
    fetched = later[1] if len(later) > 1 else 0  # older records lack it
    text = error.decode("utf-8", "surrogatepass")
    return ColdAuthority(_named(name, host), state, status, fetched, expires, next_at, text, digest, body)


def _recall_authority(tables: Tables, host: str, cells: Sequence[Any]) -> None:
    name, logged, state, expires, next_at, attempts, hops, status, url, error, digest, body, *later = cells
    one = tables.robots.authority(_named(name, host))
    one.logged, one.expires, one.next_at, one.attempts, one.hops = logged, expires, next_at, attempts, hops
    one.state = type(one.state)(state)
    later = [*later, *(int(one.again), 0, 0)[len(later) :]]  # older records lack them
    one.again, one.fetched, one.failing_since = type(one.again)(later[0]), later[1], later[2]
    one.status, one.error = status, error.decode("utf-8", "surrogatepass")
    one.url = url or one.name + "/robots.txt"
    one.digest = tables.hash_of(body.decode("latin-1")) if body else digest
    tables.hosts.flags[one.host] |= DELAYED
    if body:
        tables.robots.rulebook.put(one.digest, body)
        tables.robots.rulebook.name(one.digest)
    elif digest:
        tables.robots.rulebook.come_back(digest)


def _named(name: object, host: str) -> str:
    return _origin(name, host) if isinstance(name, int) else str(name)


def _origin(scheme: int, host: str) -> str:
    return f"http{'s' * scheme}://{host}"
