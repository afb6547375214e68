"""Replay of many small frames at the cost of few: it applies their net effect, not each of them.

A call of numpy has a fixed cost, and a frame of one URL needs dozens of calls. So a window gathers frames, decodes the
blocks of one kind together, and applies for each URL only the end: its last version, and the lease that is still open.
A fact of a kind that changes the meaning of others closes the window and is applied alone. A window with a rare case in
it is applied frame by frame.

A lease that is open at the end of a window mostly ends in the next one. While slots are unread, the replay of a log
carries it from window to window. So a visit needs no search for its card in the ledger. Only leases need one that are
open at the end, or when a frame is applied alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from outrider.clock import Instant
from outrider.errors import DamagedStoreError
from outrider.frontier.format.card_columns import Cards, joined
from outrider.frontier.format.facts import (
    BLOCK,
    DTYPES,
    INSTANT_BYTES,
    KINDS,
    ORDERS,
    UNFIT,
    Fact,
    TextColumn,
    Values,
    columns_of,
    decode,
    instant_of,
    unshuffled,
)
from outrider.frontier.state.hosts import firsts_of, has_equals
from outrider.frontier.state.tables import Tables
from outrider.frontier.state.url_table import UNAPPLIED_TOKEN, UNKNOWN
from outrider.kernels.card_layout import HAS_CONTENT, HEAD, HEAD_BYTES, OPAQUE
from outrider.limits import (
    OWN_SLOT,
    REPLAY_CARRIED_MAX,
    REPLAY_WINDOW_BYTES,
    REPLAY_WINDOW_ROWS,
    RUN_BODY_BYTES_MAX,
    WAKES_PER_CALL_MAX,
)
from outrider.storage.record_columns import body_bytes

_Times: TypeAlias = npt.NDArray[np.int64]
_Rows: TypeAlias = npt.NDArray[np.intp]
_CARD, _HEAD, _LEASE = range(3)
_OF_LEASES = {Fact.LEASE: 4, Fact.EXTEND: 1, Fact.RESTED: 1}
"""The kinds of facts that are carried, and the place of the column of tokens in each."""
_ROWS_OF_ITS_OWN = 64
"""Blocks of at least this number of rows are decoded one by one, shorter ones together."""
_LENGTHS, _BODIES = 1, 2  # kinds of bytes after a run: texts with these lengths, or bodies of cards
_LENGTH_NAMES = ("url_bytes", "referrer_bytes", "extra_bytes")
_PLACES: Any = HEAD.fields
_LENGTH_BYTES = tuple(
    (_PLACES[name][1] + byte, 8 * byte)  # the byte's place in a head, and its shift
    for name in _LENGTH_NAMES
    for byte in range(HEAD[name].itemsize)
)
_PLANES_OF_LENGTHS = tuple(zip(*_LENGTH_BYTES, strict=True))


@dataclass(frozen=True, slots=True)
class _Run:
    """Columns of fixed width, one after the other; the last one may contain lengths of the following bytes."""

    dtypes: tuple[np.dtype[Any], ...]
    width: int
    tail: int


def _runs(kind: Fact) -> tuple[_Run, ...]:
    runs: list[_Run] = []
    dtypes: list[np.dtype[Any]] = []
    for column in KINDS[kind].columns:
        tail = 0
        if column.type in DTYPES:
            dtypes.append(DTYPES[column.type])
        elif column.type in ("heads", "cards"):
            dtypes.append(OPAQUE)
            tail = _BODIES if column.type == "cards" else 0
        else:
            dtypes.append(DTYPES["u32"])
            tail = _LENGTHS
        if tail:
            runs.append(_Run(tuple(dtypes), sum(dtype.itemsize for dtype in dtypes), tail))
            dtypes = []
    if dtypes:
        runs.append(_Run(tuple(dtypes), sum(dtype.itemsize for dtype in dtypes), 0))
    return tuple(runs)


_REST_UNTIL = [column.name for column in KINDS[Fact.HOST_CELLS].columns].index("rest_until")
_RUNS = {(int(kind.fact), kind.version): _runs(kind.fact) for kind in KINDS.values() if kind.in_windows}
"""The layout of the blocks in a window, by kind and version."""


@dataclass(slots=True)
class _BlockGroup:
    """Blocks of one kind with one number of rows: the number of each block in the window, and for each run the columns
    and the bytes after it."""

    times: list[int] = field(default_factory=list)
    columns: list[list[bytes]] = field(default_factory=list)
    tails: list[list[bytes]] = field(default_factory=list)


class Window:
    """Frames that are gathered to be applied. The tables are up to date after `finish`."""

    def __init__(
        self,
        tables: Tables,
        *,
        carries: bool = False,
        rows_max: int = REPLAY_WINDOW_ROWS,
        bytes_max: int = REPLAY_WINDOW_BYTES,
    ) -> None:
        """The window closes itself at this number of facts or of bytes. carries: whether open leases wait for the next
        window while slots are unread."""
        self._tables = tables
        self._carries = carries
        self._carried: dict[Fact, list[Values]] = {}
        self._carried_lsns = 0, 0  # the first and last LSN of the frames that they may be from
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._clear()

    def _clear(self) -> None:
        self._payloads: list[bytes] = []
        self._lsns: list[int] = []
        self._groups: dict[int, dict[int, _BlockGroup]] = {}
        self._blocks = 0
        self._rows = 0
        self._bytes = 0

    def add(self, payload: bytes, lsn: int = 0) -> None:
        """Adds the payload of the next frame; lsn: 0 for a range of the checkpoint. Raises DamagedStoreError,
        ForeignStoreError."""
        blocks = self._scan(payload)
        if blocks is None:
            self.close()
            self._plain([payload], [lsn])
            return
        for kind, rows, parts in blocks:
            groups = self._groups.get(kind)
            if groups is None:
                groups = self._groups[kind] = {}
            group = groups.get(rows)
            if group is None:
                group = groups[rows] = _BlockGroup([], [[] for _ in parts], [[] for _ in parts])
            group.times.append(self._blocks)
            self._blocks += 1
            self._rows += rows
            for (columns, tail), all_columns, all_tails in zip(parts, group.columns, group.tails, strict=True):
                all_columns.append(columns)
                all_tails.append(tail)
        self._payloads.append(payload)
        self._lsns.append(lsn)
        self._bytes += len(payload)
        if self._rows >= self._rows_max or self._bytes >= self._bytes_max:
            self.close()

    def _scan(self, payload: bytes) -> list[tuple[int, int, list[tuple[bytes, bytes]]]] | None:
        """The blocks of a frame, cut into runs; None when the frame cannot be gathered, because of its kinds or
        damage."""
        found: list[tuple[int, int, list[tuple[bytes, bytes]]]] = []
        at, end = INSTANT_BYTES, len(payload)
        if at > end:
            return None
        while at < end:
            if end - at < BLOCK.size:
                return None
            kind, version, rows = BLOCK.unpack_from(payload, at)
            runs = _RUNS.get((kind, version))
            if runs is None or not rows:
                return None
            at += BLOCK.size
            parts: list[tuple[bytes, bytes]] = []
            for run in runs:
                stop = at + run.width * rows
                if stop > end:
                    return None
                tail = 0
                if run.tail == _LENGTHS:
                    if rows == 1:
                        tail = int.from_bytes(payload[stop - 4 : stop], "little")
                    else:
                        tail = _total(payload, stop - 4 * rows, rows, range(4), range(0, 32, 8))
                elif run.tail == _BODIES:
                    first = stop - HEAD_BYTES * rows
                    if rows == 1:
                        tail = sum(payload[first + place] << shift for place, shift in _LENGTH_BYTES)
                    else:
                        tail = _total(payload, first, rows, *_PLANES_OF_LENGTHS)
                if stop + tail > end:
                    return None
                parts.append((payload[at:stop], payload[stop : stop + tail]))
                at = stop + tail
            if kind == Fact.QUEUE and (parts[0][1] or self._tables.keys.groups):
                return None  # entering a key that spans hosts reads their clocks and leases
            if kind != Fact.LINE:
                found.append((kind, rows, parts))
        return found

    def close(self) -> None:
        """Applies the gathered frames, except leases that it carries. Raises DamagedStoreError."""
        if not self._payloads:
            return
        since = self._carried_lsns[0] if self._carried else self._lsns[0]
        with applied(since, self._lsns[-1]):
            together = self._together()
        if not together:
            self._plain(self._payloads, self._lsns)
        self._carried_lsns = since, self._lsns[-1]
        self._clear()

    def finish(self) -> None:
        """Applies the gathered frames, and the leases that were carried. Raises DamagedStoreError."""
        self.close()
        self._apply_carried()

    def _apply_carried(self) -> None:
        carried, self._carried = self._carried, {}
        if carried:
            with applied(*self._carried_lsns):
                self._wake(self._tables.now)
                for kind, values in carried.items():
                    self._tables.apply(kind, values)

    def _plain(self, payloads: Iterable[bytes], lsns: Iterable[int]) -> None:
        """Applies frames one by one, after the leases that were carried."""
        self._apply_carried()
        tables = self._tables
        for payload, lsn in zip(payloads, lsns, strict=True):
            with applied(lsn, lsn):
                self._wake(instant_of(payload))
                ordered = apply(tables, payload)
                if lsn:
                    tables.orders_replayed += ordered

    def _wake(self, now: Instant) -> None:
        while self._tables.urls.wake(now, WAKES_PER_CALL_MAX):
            pass

    def _columns(self, kind: Fact) -> tuple[_Times, list[Values]] | None:
        """Returns all facts of a kind in order, and for each the number of its block in the window, -1 for those that
        were carried."""
        groups, carried = self._groups.get(kind, {}), self._carried.get(kind)
        if not groups and carried is None:
            return None
        runs = _RUNS[kind, KINDS[kind].version]
        parts = [_decoded(runs, rows, group) for rows, group in groups.items()]
        many = [np.repeat(np.array(group.times, np.int64), rows) for rows, group in groups.items()]
        if carried is not None:
            parts.append(carried)
            many.append(np.full(len(carried[0]), -1, np.int64))
        times = np.concatenate(many)
        values = parts[0] if len(parts) == 1 else [_joined(column) for column in zip(*parts, strict=True)]
        if len(parts) > 1:
            order = np.argsort(times, kind="stable")
            times, values = times[order], [_column_rows(column, order) for column in values]
        return times, values

    def _together(self) -> bool:
        """Applies the net effect. Returns False, having applied no fact, when the window must be applied frame by
        frame."""
        tables = self._tables
        hosts, queues = self._columns(Fact.HOST), self._columns(Fact.QUEUE)
        cells = self._columns(Fact.HOST_CELLS)
        for facts, homes in ((queues, 2), (cells, 1)):
            if facts is not None:
                tables.recall(facts[1][homes])
        if queues is not None and cells is not None and self._turns_matter(queues, cells):
            return False
        found = self._net()
        if found is None:
            return False
        now = max(tables.now, *map(instant_of, self._payloads))
        tables.now = now
        self._wake(now)
        for kind, facts in ((Fact.HOST, hosts), (Fact.QUEUE, queues)):
            if facts is not None:
                tables.apply(kind, _rows_of(facts[1], firsts_of(facts[1][1])[0]))
        if cells is not None:
            if tables.keys.groups:  # groups keep the longest rest of all facts
                tables.apply(
                    Fact.HOST_CELLS, _rows_of(cells[1], _last(cells[1][1], np.lexsort((cells[1][_REST_UNTIL],))))
                )
            tables.apply(Fact.HOST_CELLS, _rows_of(cells[1], _last(cells[1][1])))
        for kind, values in found:
            if kind == Fact.LEASE:
                self._wake(now)
            tables.apply(kind, values)
        self._apply_rows()
        tables.forget_changed()
        return True

    def _turns_matter(self, queues: tuple[_Times, list[Values]], cells: tuple[_Times, list[Values]]) -> bool:
        """Whether a queue is made after the first visit to its host: the host's other queue then gets a turn."""
        (when, (_, _, homes, *_)), (times, (_, hashes, ended, *_)) = queues, cells
        rows = self._tables.hosts.find(hashes)
        known = rows < self._tables.hosts.count
        visited = np.zeros(len(rows), np.bool_)
        visited[known] = self._tables.hosts.ended[rows[known].astype(np.intp)] != 0
        turned = (ended != 0) != visited
        if not turned.any():
            return False
        first = dict(zip(hashes[turned][::-1].tolist(), times[turned][::-1].tolist(), strict=True))
        return any(
            first.get(home, self._blocks) < time for home, time in zip(homes.tolist(), when.tolist(), strict=True)
        )

    def _net(self) -> list[tuple[Fact, list[Values]]] | None:
        """The net effect of the window on URLs and leases, as facts; None when the window must be applied frame by
        frame."""
        found: list[tuple[Fact, list[Values]]] = []
        cards, heads, leases = self._columns(Fact.CARD), self._columns(Fact.HEAD), self._columns(Fact.LEASE)
        parts = [] if cards is None else [cards[1][1].heads]
        parts += [] if heads is None else [heads[1][1]]
        versions = parts[0] if len(parts) == 1 else joined(parts) if parts else np.zeros(0, HEAD)
        bodies = Cards.none() if cards is None else cards[1][1]
        if bodies.misfit(RUN_BODY_BYTES_MAX):
            return None  # applying frame by frame finds the one that cannot be applied
        empty = np.zeros(0, np.uint64)
        order = np.concatenate([versions["order"], empty if leases is None else leases[1][3]])
        if len(order):
            some = [facts for facts in (cards, heads, leases) if facts is not None]
            time = np.concatenate([facts[0] for facts in some])
            token = np.concatenate(
                [facts[1][4] if facts is leases else facts[1][0] for facts in some],
            )
            if self._extraordinary(versions, leases):
                return None
            if len(bodies) == len(order) and (order[1:] > order[:-1]).all():
                # Each URL is there once, and whole: the cards are the net effect.
                facts_of_urls: list[tuple[Fact, list[Values]]] = [(Fact.CARD, [token, bodies])]
                open_ones = np.zeros(0, np.intp)
            else:
                kind = np.full(len(order), _LEASE, np.uint8)
                kind[: len(versions)] = _HEAD
                kind[: len(bodies)] = _CARD
                rows = np.lexsort((time, order))
                net = self._ends(versions, bodies, rows, order[rows], time[rows], kind[rows], token[rows])
                if net is None:
                    return None
                facts_of_urls, open_ones = net
            found += facts_of_urls
            if leases is not None:
                tokens = leases[1][4]
                if len(open_ones):
                    chosen = open_ones - len(versions)
                    found.append((Fact.LEASE, _rows_of(leases[1], chosen[np.argsort(tokens[chosen])])))
                found.append((Fact.TOKEN, columns_of([(OWN_SLOT, int(tokens.max()), 0)])))
        for of_leases in (Fact.EXTEND, Fact.RESTED):
            facts = self._columns(of_leases)
            if facts is not None:
                found.append((of_leases, _rows_of(facts[1], _last(facts[1][1]))))
        return self._carry(found)

    def _carry(self, found: list[tuple[Fact, list[Values]]]) -> list[tuple[Fact, list[Values]]]:
        """Carries the leases among these facts, with what the facts say about them, if that saves searches and if they
        are few. Returns the facts to apply now."""
        self._carried = {}
        leases = dict(found).get(Fact.LEASE)
        if not self._carries or leases is None or len(leases[0]) > REPLAY_CARRIED_MAX:
            return found
        if self._tables.urls.unread is None:
            return found
        opened, rest = leases[_OF_LEASES[Fact.LEASE]], []
        for kind, values in found:
            here = np.isin(values[_OF_LEASES[kind]], opened) if kind in _OF_LEASES else None
            if here is not None and here.any():
                self._carried[kind] = _rows_of(values, np.flatnonzero(here))
                values = _rows_of(values, np.flatnonzero(~here))
            if len(values[0]):
                rest.append((kind, values))
        return rest

    def _extraordinary(self, versions: npt.NDArray[Any], leases: tuple[_Times, list[Values]] | None) -> bool:
        """Whether the window contains records that end, leases that are open already, or URLs of deleted queues or
        crawls."""
        tables = self._tables
        if (versions["state"] == UNKNOWN).any():
            return True
        if leases is None:
            return bool(tables.urls.voids() and tables.urls.void(versions).any())
        _, (_, queues, _, orders, tokens, *_) = leases
        if 1 in tables.urls.leases.find(np.ascontiguousarray(tokens)) or has_equals(tokens):
            return True
        if not tables.urls.voids():
            return False
        drawn = np.zeros(len(queues), HEAD)
        drawn["queue"], drawn["order"] = queues, orders
        rows = tables.queues.find(np.ascontiguousarray(queues))
        known = rows < tables.queues.count
        drawn["crawl"] = 0xFFFFFFFF
        drawn["crawl"][known] = tables.queues.crawl[rows[known].astype(np.intp)]
        return bool(tables.urls.void(versions).any() or tables.urls.void(drawn).any())

    def _ends(
        self,
        versions: npt.NDArray[Any],
        bodies: Cards,
        rows: _Rows,
        order: npt.NDArray[np.uint64],
        time: _Times,
        kind: npt.NDArray[np.uint8],
        token: npt.NDArray[np.uint64],
    ) -> tuple[list[tuple[Fact, list[Values]]], _Rows] | None:
        """The facts of the last version of each URL, and the rows of the leases that stay open. Events are sorted by
        URL and time; rows: the place of each among cards, heads and leases. None when they follow each other in an
        unusual way."""
        tables = self._tables
        same = order[1:] == order[:-1]
        leased, following = kind[:-1] == _LEASE, kind[1:] == _LEASE
        regular = np.where(leased, ~following & (token[1:] == token[:-1]), following | (token[1:] == 0))
        if (same & ~(regular & (time[1:] > time[:-1]))).any():
            return None
        first = np.concatenate([[True], ~same])
        last = np.concatenate([~same, [True]])
        urls = np.cumsum(first) - 1  # for each event the number of its URL
        made = first & (kind == _CARD) & (order >= np.uint64(tables.urls.order))
        if (np.diff(time[made]) < 0).any():
            return None
        told = np.flatnonzero(kind != _LEASE)
        found: list[tuple[Fact, list[Values]]] = []
        if len(told):
            newest = np.concatenate([urls[told][1:] != urls[told][:-1], [True]])
            ends = told[newest]
            begins = np.flatnonzero(first)[urls[ends]]
            tokens = np.where(kind[begins] == _LEASE, UNAPPLIED_TOKEN, token[begins])
            whole = np.flatnonzero(kind == _CARD)
            body = np.full(int(urls[-1]) + 1, -1, np.intp)
            body[urls[whole]] = rows[whole]  # the last whole card counts
            body = body[urls[ends]]
            in_time = np.lexsort((rows[ends], time[ends]))
            bare = in_time[body[in_time] < 0]
            if len(bare):
                found.append((Fact.HEAD, [tokens[bare], versions.take(rows[ends[bare]])]))
            full = in_time[body[in_time] >= 0]
            if len(full):
                cards = bodies.take(body[full])
                heads = versions.take(rows[ends[full]])
                if any((cards.heads[name] != heads[name]).any() for name in _LENGTH_NAMES):
                    return None
                if len(full) < len(whole):
                    passing = np.setdiff1d(rows[whole], body[full], assume_unique=True)
                    marked = passing[(bodies.heads["flags"][passing] & HAS_CONTENT) != 0]
                    if len(marked):
                        tables.urls.seen.add_contents(bodies.take(marked))
                found.append((Fact.CARD, [tokens[full], cards.with_heads(heads)]))
        return found, rows[last & (kind == _LEASE)]

    def _apply_rows(self) -> None:
        """Applies the kinds of facts where the last one of a name counts, and the requests in their order."""
        tables = self._tables
        facts = self._columns(Fact.TOKEN)
        if facts is not None:
            _, tokens, orders = facts[1]
            tables.apply(Fact.TOKEN, columns_of([(OWN_SLOT, int(tokens.max()), int(orders.max()))]))
        for kind in (Fact.TALLY, Fact.WATERMARK, Fact.PROJECTION, Fact.RETURNS, Fact.SIGNALS, Fact.PAYMENT):
            facts = self._columns(kind)
            if facts is not None:
                lasting = {name: row for row, name in enumerate(facts[1][1])}
                chosen = np.fromiter(lasting.values(), np.intp, len(lasting))
                values = [_column_rows(column, chosen) for column in facts[1]]
                types = [column.type for column in KINDS[kind].columns]
                tables.apply(
                    kind, [_listed(one) if it == "blob" else one for one, it in zip(values, types, strict=True)]
                )
        facts = self._columns(Fact.ACCEPTED)
        if facts is not None:
            tables.apply(Fact.ACCEPTED, facts[1])
        facts = self._columns(Fact.REQUEST)
        if facts is not None:
            slots, clients, sequences, verbs, answers = facts[1]
            tables.apply(Fact.REQUEST, [slots, clients, sequences, verbs, list(answers.pieces())])


@contextmanager
def applied(first: int, last: int) -> Iterator[None]:
    """Wraps the applying of frames: turns an error into a DamagedStoreError with their LSNs. An LSN of 0 is a range of
    the checkpoint."""
    where = f"LSN {first}" if first == last else f"a frame of LSN {first} to {last}"
    try:
        yield
    except DamagedStoreError as error:
        raise DamagedStoreError(f"{where}: {error.facts}" if first else error.facts) from error
    except UNFIT as error:
        told = f"{type(error).__name__}: {error}"
        raise DamagedStoreError(f"{where if first else 'a checkpoint'} can be read and not applied ({told})") from error


def apply(tables: Tables, payload: bytes) -> bool:
    """Applies the facts of one frame. Returns whether orders are among them. Raises DamagedStoreError,
    ForeignStoreError."""
    tables.now = max(tables.now, instant_of(payload))
    orders = False
    for kind, values in decode(payload):
        tables.apply(kind, values)
        orders = orders or kind in ORDERS
    tables.forget_changed()
    return orders


def _total(payload: bytes, at: int, rows: int, planes: Sequence[int], shifts: Sequence[int]) -> int:
    """Returns the sum of shuffled numbers: each plane has one byte of all `rows` numbers, and its shift."""
    total = 0
    for plane, shift in zip(planes, shifts, strict=True):
        first = at + plane * rows
        octets = payload[first : first + rows]
        if rows < _ROWS_OF_ITS_OWN:
            total += sum(octets) << shift
        elif octets.count(0) < rows:
            total += int(np.frombuffer(octets, np.uint8).sum(dtype=np.int64)) << shift
    return total


def _decoded(runs: Sequence[_Run], rows: int, group: _BlockGroup) -> list[Values]:
    """Returns the columns of a group, its blocks one after the other."""
    blocks = len(group.times)
    values: list[Values] = []
    for run, columns, tails in zip(runs, group.columns, group.tails, strict=True):
        few = rows < _ROWS_OF_ITS_OWN
        octets = np.frombuffer(b"".join(columns) if few else b"", np.uint8).reshape(-1, run.width * rows)
        at = 0
        for dtype in run.dtypes:
            if few:
                cells = octets[:, at * rows : (at + dtype.itemsize) * rows].reshape(blocks, dtype.itemsize, rows)
                # A copy in any case: a column may begin at any byte, and arrays of numbers must be aligned.
                values.append(cells.transpose(0, 2, 1).copy().reshape(-1).view(dtype))
            else:
                values.append(unshuffled([(column, at * rows) for column in columns], rows, dtype))
            at += dtype.itemsize
        if run.tail == _LENGTHS:
            values[-1] = TextColumn(b"".join(tails), values[-1])
        elif run.dtypes[-1] is OPAQUE:
            values[-1] = values[-1].view(HEAD)
            if run.tail == _BODIES:
                offsets = np.zeros(len(values[-1]) + 1, np.int64)
                np.cumsum(body_bytes(values[-1]), out=offsets[1:])
                values[-1] = Cards(values[-1], b"".join(tails), offsets)
    return values


def _joined(parts: Sequence[Values]) -> Values:
    if isinstance(parts[0], TextColumn):
        return TextColumn(b"".join(part.octets for part in parts), np.concatenate([part.lengths for part in parts]))
    if isinstance(parts[0], Cards):
        return Cards.concatenate(parts)
    if parts[0].dtype == HEAD:
        return joined(parts)
    return np.concatenate(parts)


def _column_rows(column: Values, rows: _Rows) -> Values:
    return column.take(rows)


def _listed(column: Values) -> Values:
    return list(column.pieces()) if isinstance(column, TextColumn) else column


def _rows_of(values: Sequence[Values], rows: _Rows) -> list[Values]:
    if len(values[0]) == len(rows) and (np.diff(rows) == 1).all():
        return list(values)
    return [_column_rows(column, rows) for column in values]


def _last(keys: npt.NDArray[np.uint64], order: _Rows | None = None) -> _Rows:
    """Returns the last row of each key, in order."""
    if not has_equals(keys):
        return np.arange(len(keys))
    rows = np.arange(len(keys)) if order is None else order
    chosen: _Rows = np.sort(rows[::-1][np.unique(keys[rows][::-1], return_index=True)[1]])
    return chosen
