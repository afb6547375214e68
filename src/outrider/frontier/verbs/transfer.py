"""Export and import of URL records as plain values, with all that belongs to a URL, also its state.

A record has no lease and nothing that belongs to the host: no clock, no robots rules, no count of answers. Records are
in the order in which their URLs were accepted. `restore` keeps this order, so a copy of a copy equals the first copy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from outrider import kernels
from outrider.clock import Instant
from outrider.errors import SettingsError, StoreFullError, shown
from outrider.frontier.format.card_columns import Cards, fetched_at, fetched_cells
from outrider.frontier.format.card_records import (
    CardRecord,
    extra_of,
    number_bytes,
    parts_of,
    real_bytes,
    value_of,
    visits_of,
)
from outrider.frontier.format.constant import by_value
from outrider.frontier.format.metadata import metadata_bytes_max, packed, unpacked
from outrider.frontier.policy.revisit import codes_of, pauses_of
from outrider.frontier.priority import checked, class_again, possible
from outrider.frontier.state.hosts import NONE
from outrider.frontier.state.url_table import DONE, LEASED, QUEUED, STATES, UNKNOWN, WAITING, Reason, states_of
from outrider.frontier.verbs import arguments
from outrider.frontier.verbs.arrivals import Arrival, Arrivals, KeyedUrls, Origin
from outrider.frontier.verbs.deciding import Core, Part, bounded
from outrider.frontier.verbs.discovering import Discovering
from outrider.frontier.verbs.draft import Draft
from outrider.frontier.verbs.single_urls import SingleUrls, last_of_each
from outrider.journey import LINK_FIELDS, RECORD_FIELDS, Code, CrawlOrder, Form, Unique
from outrider.kernels.card_layout import Heads
from outrider.limits import (
    CALL_BYTES_PER_FRAME,
    CALL_ROWS_MAX,
    ERROR_TEXT_MAX,
    METADATA_BYTES_MAX,
    REAL_MAX,
    RECORDS_BYTES_PER_SCAN,
    REFERRER_BYTES_MAX,
    RESTORE_ROWS_PER_FRAME,
    RUN_BODY_BYTES_MAX,
    URL_BYTES_MAX,
    VISITS_MAX,
)
from outrider.url import host_of, is_host_of
from outrider.url.keys import key_of_name

_STATE_NUMBERS: Final = {state.value: number for number, state in enumerate(STATES) if number != UNKNOWN}
_REASONS: Final = {reason.name.lower(): reason for reason in Reason if reason is not Reason.NONE}


class Transfer(Part):
    """The part of the machine that exports and imports records."""

    def __init__(self, core: Core, links: Discovering, urls: SingleUrls) -> None:
        super().__init__(core)
        self._links, self._urls = links, urls

    # -- out ----------------------------------------------------------------------------------------------------------

    def orders(self) -> np.ndarray[Any, np.dtype[np.uint64]]:
        """Returns the order numbers of all accepted URLs, ascending."""
        parts = [self._living_heads(heads)["order"] for heads in self.tables.urls.ledger.scan_heads()]
        found = np.concatenate(parts) if parts else np.zeros(0, np.uint64)
        found.sort()
        return found

    def _living_heads(self, heads: Any) -> Any:
        return heads[~self.tables.urls.void(heads)] if self.tables.urls.voids() else heads

    def cards_between(self, first: int, last: int) -> tuple[Cards, int]:
        """Returns the cards with order numbers from `first` to `last`, both included, in that order, and the last
        number. It is lower than `last` if the cards would have more than `RECORDS_BYTES_PER_SCAN`."""
        parts: list[Cards] = []
        size = 0
        for cards in self.tables.urls.ledger.scan():
            orders = cards.heads["order"]
            mask = (orders >= first) & (orders <= last)
            if mask.any():
                parts.append(cards.filter(mask))
                size += int(parts[-1].offsets[-1] - parts[-1].offsets[0])
            if size > RECORDS_BYTES_PER_SCAN:
                parts = [_lowest(parts, RECORDS_BYTES_PER_SCAN // 2)]
                size, last = int(parts[0].offsets[-1]), int(parts[0].heads["order"][-1])
        found = _lowest(parts, RECORDS_BYTES_PER_SCAN)
        if len(found) and self.tables.urls.voids():
            found = found.filter(~self.tables.urls.void(found.heads))
        return found, last

    def record_of(self, cards: Cards, row: int) -> dict[str, Any]:
        """Returns a card as plain values; None for an absent card."""
        record = CardRecord.of(cards, row)
        tables = self.tables
        queue = int(tables.queues.find(np.array([record.queue], np.uint64))[0])
        return {
            "url": record.text,
            "crawl": tables.crawls.name_of(record.crawl),
            "unique": Unique.CALLER.value if record.crawl in tables.crawls.callers else None,
            "order": order.value if (order := tables.crawls.orders.get(record.crawl)) else None,
            "key": tables.queues.keys.get(queue) or key_of_name(host_of(record.url)),
            "state": STATES[QUEUED if record.state == LEASED else record.state].value,
            "reason": Reason(record.reason).name.lower() if record.reason else None,
            "priority": record.priority,
            "depth": record.depth,
            "hops": record.hops,
            "referrer": record.referrer or None,
            "due": record.due or None,
            "fetched_at": fetched_at(record.fetched),
            "revisit_seconds": round(float(pauses_of(record.schedule)), 3) if record.schedule else None,
            "attempts": record.attempts,
            "losses": record.losses,
            "status": record.status or None,
            "error": tables.registry.errors[record.error] or None,
            **{name: _shown(value_of(record.kept, name)) for name in RECORD_FIELDS},
            "visits": visits_of(record.kept, record.fetched) or None,
        }

    # -- in -----------------------------------------------------------------------------------------------------------

    def restore(self, records: Iterable[Mapping[str, Any]], now: Instant) -> int:
        """Accepts URLs with the states in their records; known URLs stay as they are. Returns how many are new.

        Raises SettingsError for an invalid record; the pieces before it stay accepted.
        """
        count = 0
        for piece in _pieces(records):
            now = self._core.advance(now)
            draft = self._core.draft(now)
            try:
                count += self._restore(piece, draft)
            except SettingsError:
                self._core.take_back(draft)
                raise
            self._core.commit(draft)
            self._core.wake(now)  # queues URLs that became due meanwhile, so that counts are right
        return count

    def put(self, records: Iterable[Mapping[str, Any]], now: Instant) -> list[Code]:
        """Accepts URLs with the states in their records, and moves known ones to these states: state with its reason,
        due, attempts, priority and metadata; a priority or metadata of None stays as it is. This ends an open lease of
        the URL. The last record of a URL counts. Returns a code for each record: new or known.

        Raises SettingsError for an invalid record; then nothing is changed.
        """
        given = list(_listed(records))
        pieces = list(_pieces(given))
        if len(pieces) > 1:  # a single piece is checked as a whole anyway, before it changes anything
            checks = self._core.draft(self._core.now)
            arrivals = [_arrival(record, partial(_crawl_of, checks)) for record in given]
            for record in given:
                _checked_record(record, 0)
            self._looked_up(arrivals, checks)
        codes: list[Code] = []
        for piece in pieces:
            now = self._core.advance(now)
            self._core.wake(now)
            draft = self._core.draft(now)
            codes += self._put(piece, draft)
            self._core.wake(now)
        return codes

    def put_dated(self, urls: KeyedUrls, due: npt.NDArray[np.int64], now: Instant, *, crawl: str) -> None:
        """As `put`, for URLs of a crawl by unique keys in columns: each is done if its instant is 0, else it may be
        requested from then on. Its metadata replaces that of a known URL. due: an instant for each URL.

        Raises SettingsError for an invalid URL; then nothing is changed.
        """
        bounded(len(urls), "urls")
        now = self._core.advance(now)
        self._core.wake(now)
        draft = self._core.draft(now)
        links = self._links.keyed(urls, crawl, draft)
        self._check_urls(links, urls.urls)
        if max(map(len, urls.metadata), default=0) > (most := metadata_bytes_max(callers=True)):
            raise SettingsError(f"metadata of a URL has more than {most} bytes; send less of it")
        links = dataclasses.replace(links, due=due)
        for first, last in links.pieces(CALL_BYTES_PER_FRAME):
            draft = self._core.draft(now) if first else draft
            self._put_dated(links.piece(first, last), draft)
        self._core.wake(now)

    def _put_dated(self, links: Arrivals, draft: Draft) -> None:
        """Logs these URLs as one frame. The last row of a URL counts."""
        found = self._known_of(links)
        rows = last_of_each(found.prints)
        new, known = rows[~found.known[rows]], rows[found.known[rows]]
        draft.puts = True
        if len(new):
            codes = np.zeros(len(links), np.uint8)
            self._links.add_new(
                *(links, new, found.prints[new], found.names[new], found.hosts[new], found.slots[new], codes, draft)
            )
            due_of = dict(zip(found.prints[new].tolist(), links.due[new].tolist(), strict=True))
            for cards in draft.taken_back():
                heads = cards.changed()
                due = np.array([due_of[one] for one in heads["fingerprint"].tolist()], np.int64)
                _set_dated(heads, due, draft.now)
                draft.cards(cards.with_heads(heads))
        taken, old = self._move(found, known, draft)
        try:
            self._core.commit(draft)
        except (SettingsError, StoreFullError):
            self.tables.urls.put_back(taken, old)
            raise

    def _move(self, found: _LookedUp, rows: npt.NDArray[np.intp], draft: Draft) -> tuple[Cards, npt.NDArray[np.uint8]]:
        """Adds known URLs to the draft with the dates and the metadata of these rows. Returns the cards that it took
        out of their places, and the states that these leave."""
        links, urls = found.links, self.tables.urls
        _, cards = urls.find(links.crawl[rows], found.slots[rows], found.prints[rows])
        tokens = self._urls.tokens_of(cards)
        free, leased = np.flatnonzero(tokens == 0), np.flatnonzero(tokens)
        leases = self._urls.ended(draft, tokens[leased])
        taken, old = urls.take_out(cards.take(free))
        places = np.concatenate([free, leased])
        rows, tokens = rows[places], tokens[places]
        states = np.concatenate([old, states_of(LEASED, len(leased))])
        whole = Cards.concatenate([taken, leases.cards])
        heads = whole.changed()
        _set_dated(heads, links.due[rows], draft.now)
        heads["attempts"], heads["losses"] = 0, 0
        whole = whole.with_heads(heads)
        metadata = [links.odd[row].metadata if row in links.odd else b"" for row in rows.tolist()] if links.odd else []
        with_body = np.array([bool(one) for one in metadata], np.bool_) if metadata else np.zeros(len(rows), np.bool_)
        with_body |= heads["extra_bytes"] > 0
        same, changed = np.flatnonzero(~with_body), np.flatnonzero(with_body)
        if len(same):
            draft.heads(whole.take(same), tokens[same], states[same])
        if len(changed):
            told = [metadata[place] if metadata else b"" for place in changed.tolist()]
            draft.rewritten(_with_metadata(whole.take(changed), told), tokens[changed], states[changed])
        return taken, old

    def _put(self, records: Sequence[Mapping[str, Any]], draft: Draft) -> list[Code]:
        """Logs these records as one frame. Returns their codes."""
        try:
            found = self._looked_up([_arrival(record, partial(_crawl_of, draft)) for record in records], draft)
            words = [_checked_record(record, draft.now) for record in records]
        except SettingsError:
            self._core.take_back(draft)
            raise
        last = {identity: row for row, identity in enumerate(found.identities)}
        rows = sorted(last.values())
        self._add(found, [row for row in rows if not found.known[row]], words, draft)
        changed = [row for row in rows if found.known[row]]
        draft.puts = True
        taken, old = self._change(found, changed, records, words, draft)
        try:
            self._core.commit(draft)
        except (SettingsError, StoreFullError):
            self.tables.urls.put_back(taken, old)
            raise
        firsts = set({identity: row for row, identity in reversed(list(enumerate(found.identities)))}.values())
        return [
            Code.NEW if row in firsts and not known else Code.KNOWN for row, known in enumerate(found.known.tolist())
        ]

    def _change(
        self,
        found: _LookedUp,
        rows: Sequence[int],
        records: Sequence[Mapping[str, Any]],
        words: Sequence[_CheckedRecord],
        draft: Draft,
    ) -> tuple[Cards, npt.NDArray[np.uint8]]:
        """Adds known URLs to the draft in the states of their records. Returns the cards that it took out of their
        places, and the states that these leave."""
        urls = self.tables.urls
        _, cards = urls.find(found.links.crawl[rows], found.slots[rows], found.prints[rows])
        tokens = self._urls.tokens_of(cards)
        free = np.flatnonzero(tokens == 0)
        leases = self._urls.ended(draft, tokens[tokens != 0])
        taken, old = urls.take_out(cards.take(free))
        whole = Cards.concatenate([taken, leases.cards])
        places = [*free.tolist(), *np.flatnonzero(tokens).tolist()]
        states = [*old.tolist(), *[LEASED] * len(leases.cards)]
        for place, (row, state) in enumerate(zip(places, states, strict=True)):
            record, told = CardRecord.of(whole, place), words[rows[row]]
            record.state, record.reason, record.due = told.state, told.reason, told.due
            record.attempts, record.losses = told.attempts, told.losses
            arrival = found.arrivals[rows[row]]
            if arrival.priority is not None:
                record.priority, record.klass = arrival.priority, class_again(record.klass, arrival.priority)
            if records[rows[row]].get("metadata") is not None:
                record.kept = replace(record.kept, metadata=arrival.metadata)
            draft.record(record, state, token=int(tokens[row]), whole=True)
        return taken, old

    def _restore(self, records: Sequence[Mapping[str, Any]], draft: Draft) -> int:
        # All records are checked before the first record displaces another URL (`drop_lowest`).
        arrivals = [_arrival(record, partial(_crawl_of, draft)) for record in records]
        words = [_checked_record(record, draft.now) for record in records]
        found = self._looked_up(arrivals, draft)
        firsts = {identity: row for row, identity in reversed(list(enumerate(found.identities)))}
        return self._add(found, [row for row in sorted(firsts.values()) if not found.known[row]], words, draft)

    def _looked_up(self, arrivals: Sequence[Arrival], draft: Draft) -> _LookedUp:
        """Finds out which URLs of these arrivals are known. Raises SettingsError for a text that is no URL."""
        links = self._links.of_links(arrivals, [Origin()], draft)
        self._check_urls(links, [arrival.url for arrival in arrivals])
        return self._known_of(links, arrivals)

    @staticmethod
    def _check_urls(links: Arrivals, texts: Sequence[str]) -> None:
        """Raises SettingsError for a text that is no URL, and for one that is too long."""
        urls = links.urls
        if not urls.valid.all():
            wrong = texts[int(np.flatnonzero(~urls.valid)[0])]
            raise SettingsError(f"url {shown(wrong, 200)} is not an http or https URL")
        if urls.lengths.max(initial=0) > URL_BYTES_MAX:
            arguments.kept("url", urls[int(urls.lengths.argmax())], URL_BYTES_MAX)
        for link in links.odd.values():
            arguments.kept("url", link.text, URL_BYTES_MAX)

    def _known_of(self, links: Arrivals, arrivals: Sequence[Arrival] = ()) -> _LookedUp:
        """Finds out which of these URLs are known."""
        urls, tables = links.urls, self.tables
        prints = links.fingerprints(self.tables.fingerprint_key)
        names = self._homes.hashes(urls)
        hosts = tables.hosts.find(names)
        there = np.flatnonzero(hosts != NONE)
        slots = self._links.slots_at(hosts, there)
        known = np.zeros(len(urls), np.bool_)
        if len(there):
            known[there] = self.tables.urls.seen.check(links.crawl[there], slots[there], prints[there])
        cold = self._homes.cold_ones(names, hosts)
        if len(cold):
            slots[cold] = self._homes.slots(urls, names, cold)
            known[cold] = self.tables.urls.seen.check(links.crawl[cold], slots[cold], prints[cold])
            if tables.recall(names[cold[~known[cold]]]):
                hosts = tables.hosts.find(names)
        if tables.queues.voids:
            for row in np.flatnonzero(known & (hosts != NONE)).tolist():
                here, _ = tables.urls.find([int(links.crawl[row])], [int(slots[row])], [int(prints[row])])
                known[row] = bool(here[0])
        for crawl, some in by_value(links.crawl) if links.identities is not None else ():
            if crawl in tables.crawls.callers:
                known[some] = tables.urls.knows(crawl, prints[some])
                _, own = tables.urls.seen.slots_of(crawl, prints[some])
                slots[some] = np.where(known[some], own, slots[some])
        return _LookedUp(arrivals, links, prints, names, hosts, slots, known)

    def _add(self, found: _LookedUp, chosen: Sequence[int], words: Sequence[_CheckedRecord], draft: Draft) -> int:
        """Adds the new URLs of these rows to the draft. Returns how many."""
        rows, links, urls = np.array(chosen, np.intp), found.links, found.links.urls
        if not len(rows):
            return 0
        if self.settings.scope != "any":
            # As in `discover`: a URL of depth 0 is a seed, or the target of a seed's redirect.
            for crawl, some in by_value(links.crawl):
                if crawl in draft.callers():
                    continue
                seeds = np.zeros(len(urls), np.bool_)
                seeds[some] = True
                seeds &= links.depth == 0
                self._core.scopes.widen(draft, crawl, urls.strings(np.flatnonzero(seeds)))
        codes = np.zeros(len(urls), np.uint8)
        self._links.add_new(
            links, rows, found.prints[rows], found.names[rows], found.hosts[rows], found.slots[rows], codes, draft
        )
        of_url = {found.identities[row]: words[row] for row in chosen}
        count = 0
        for cards in draft.taken_back():
            why = cards.misfit(RUN_BODY_BYTES_MAX)
            if why:
                raise arguments.unfit(why)
            for row in range(len(cards)):
                record = CardRecord.of(cards, row)
                self._tell(record, of_url[record.crawl, record.fingerprint], draft)
                draft.record(record, UNKNOWN, whole=True)
                count += 1
        return count

    def _tell(self, record: CardRecord, told: _CheckedRecord, draft: Draft) -> None:
        """Copies these values into a record that `add_new` made: state, due, attempts, outcome and content."""
        record.state, record.reason, record.due = told.state, told.reason, told.due
        record.attempts, record.losses, record.status = told.attempts, told.losses, told.status
        record.fetched, record.schedule = told.fetched, told.schedule
        record.error = draft.error_number(told.error) if told.error else 0
        record.kept = replace(record.kept, **told.kept)
        if visits_of(replace(record.kept, visits=b""), record.fetched) == visits_of(record.kept, record.fetched):
            record.kept = replace(record.kept, visits=b"")
        digest = record.kept.digest
        record.content = self.tables.content_hashes([digest])[0] if digest else 0


@dataclass(frozen=True, slots=True)
class _LookedUp:
    """The URLs of records in columns, and what the frontier has of them. arrivals: those of records; known: whether it
    has the URL."""

    arrivals: Sequence[Arrival]
    links: Arrivals
    prints: npt.NDArray[np.uint64]
    names: npt.NDArray[np.uint64]
    hosts: npt.NDArray[np.uint32]
    slots: npt.NDArray[np.uint16]
    known: npt.NDArray[np.bool_]

    @property
    def identities(self) -> list[tuple[int, int]]:
        """Returns crawl and fingerprint of each row, which name a URL."""
        return list(zip(self.links.crawl.tolist(), self.prints.tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class _CheckedRecord:
    """The checked values of a record that a link does not have: state, due, attempts, outcome and content."""

    state: int
    reason: int
    due: Instant
    fetched: int
    schedule: int
    attempts: int
    losses: int
    status: int
    error: str | None
    kept: Mapping[str, Any]  # without metadata, which is part of the link


def _checked_record(record: Mapping[str, Any], now: Instant) -> _CheckedRecord:
    """Returns the values of a record, checked. Raises SettingsError for invalid values."""
    state = _STATE_NUMBERS[_text("state", record["state"]) or ""]
    state = QUEUED if state == LEASED else state
    due = _whole("due", record.get("due"), arguments.INSTANT_MAX)
    return _CheckedRecord(
        state=state,
        reason=_reason(record.get("reason")),
        due=due or (now if state in (QUEUED, WAITING) else 0),
        fetched=int(fetched_cells(_whole("fetched_at", record.get("fetched_at"), arguments.INSTANT_MAX))),
        schedule=_schedule(record.get("revisit_seconds")),
        attempts=_whole("attempts", record.get("attempts"), 65_535),
        losses=_whole("losses", record.get("losses"), 255),
        status=_whole("status", record.get("status"), 65_535),
        error=_error(record.get("error")),
        kept={
            name: _OF_FORM[told.form](name, record.get(name), told.bytes_max)
            for name, told in RECORD_FIELDS.items()
            if told.form in _OF_FORM
        },
    )


def _set_dated(heads: Heads, due: npt.NDArray[np.int64], now: Instant) -> None:
    """Sets heads of URLs that are done if their instant is 0, else requested from then on."""
    heads["state"] = np.where(due == 0, DONE, np.where(due > now, WAITING, QUEUED))
    heads["reason"], heads["due"] = 0, due


def _with_metadata(cards: Cards, metadata: Sequence[bytes]) -> Cards:
    """Returns cards with other metadata."""
    heads = cards.changed()
    starts = cards.offsets[:-1]
    begins, stops = np.zeros((len(cards), 2), np.int64), np.zeros((len(cards), 2), np.int64)
    begins[:, 0], stops[:, 0] = starts, starts + heads["url_bytes"] + heads["referrer_bytes"]
    parts, size = [cards.arena], len(cards.arena)
    for row, octets in enumerate(metadata):
        kept, content = parts_of(cards.extra_of(row), int(heads["flags"][row]))
        extra = extra_of(replace(kept, metadata=octets), content)
        begins[row, 1], stops[row, 1] = size, size + len(extra)
        heads["extra_bytes"][row] = len(extra)
        parts.append(extra)
        size += len(extra)
    offsets = np.zeros(len(cards) + 1, np.int64)
    (stops - begins).sum(axis=1).cumsum(out=offsets[1:])
    return Cards(heads, kernels.gather_spans(b"".join(parts), begins.reshape(-1), stops.reshape(-1)), offsets)


def _lowest(parts: list[Cards], bytes_max: int) -> Cards:
    """Returns the cards with the lowest order numbers, in this order: one at least, and up to `bytes_max` of bodies.
    Empties the list, which would be one more copy of the bodies."""
    found = Cards.concatenate(parts)
    parts.clear()
    rows = np.argsort(found.heads["order"], kind="stable")
    sizes = np.diff(found.offsets)[rows].cumsum()
    return found.take(rows[: max(1, int(sizes.searchsorted(bytes_max, "right")))])


def _octets(name: str, value: object, most: int) -> bytes:
    digits = _text(name, value) or ""
    try:
        octets = bytes.fromhex(digits)
    except ValueError:
        raise SettingsError(f"{name} {shown(digits)}: it must be hex digits") from None
    arguments.kept(name, octets, most)
    return octets


def _kept_text(name: str, value: object, most: int) -> str:
    arguments.kept_text(name, value, most)
    return _text(name, value) or ""


def _count(name: str, value: object, _: int) -> bytes:
    return number_bytes(_whole(name, value, VISITS_MAX))


def _instant(name: str, value: object, _: int) -> bytes:
    return number_bytes(_whole(name, value, arguments.INSTANT_MAX))


def _real(name: str, value: object, _: int) -> bytes:
    if value is None:
        return b""
    if not arguments.is_number(value) or not 0 <= value <= REAL_MAX:
        raise SettingsError(f"{name} {shown(value)}: it must be a number from 0 to {REAL_MAX:.0f}")
    return real_bytes(float(value))


_OF_FORM: Final = {
    Form.OCTETS: _octets, Form.TEXT: _kept_text, Form.COUNT: _count, Form.INSTANT: _instant, Form.REAL: _real,
}  # fmt: skip


def _shown(value: Any) -> Any:
    """Returns a value of a record as JSON has it: hex digits for octets."""
    return value.hex() if isinstance(value, bytes) else value


def _listed(records: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yields the records of one call. Raises SettingsError for too many."""
    for count, record in enumerate(chain.from_iterable(_pieces(records)), 1):
        if count > CALL_ROWS_MAX:
            raise SettingsError(f"more than {CALL_ROWS_MAX} records in one call; split them into several calls")
        yield record


def _pieces(records: Iterable[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """Yields records in pieces that fit a frame. Raises SettingsError if the caller's iterator raises any error."""
    try:
        piece: list[Mapping[str, Any]] = []
        size = 0
        for record in map(_plain, records):
            piece.append(record)
            size += _bytes_of(record)
            if len(piece) == RESTORE_ROWS_PER_FRAME or size > CALL_BYTES_PER_FRAME:
                yield piece
                piece, size = [], 0
        if piece:
            yield piece
    except Exception as error:  # nothing of this piece was decided yet
        raise SettingsError(f"the records cannot be read ({type(error).__name__}: {error}); use a list") from error


def _plain(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a record with values as `arguments.plain` copies them."""
    is_one = isinstance(record, Mapping)  # `_arrival` raises for other types
    return dict(zip(record, arguments.plain_values(list(record.values())), strict=True)) if is_one else record


def _bytes_of(record: object) -> int:
    """Returns about how many bytes a record needs: its texts, and the largest size of metadata."""
    if not isinstance(record, Mapping):
        return 0  # `_arrival` raises for it
    metadata = METADATA_BYTES_MAX
    if record.get("unique") is not None and isinstance(record.get("metadata"), Mapping):
        with suppress(SettingsError):  # `_arrival` raises it for the record
            metadata = len(packed(record["metadata"], bytes_max=metadata_bytes_max(callers=True)))
    return sum(
        len(value) if isinstance(value, str) else metadata if isinstance(value, Mapping) else 8
        for value in record.values()
    )


def _error(value: object) -> str | None:
    arguments.unicode("error", value)
    return _text("error", value, ERROR_TEXT_MAX)


_OfCrawl: TypeAlias = tuple[int, bool, CrawlOrder | None]


def checked_records(records: Iterable[Mapping[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yields the records in pieces as JSON has them, for a remote frontier. Raises SettingsError where `restore`
    does."""
    for piece in _pieces(records):
        for record in piece:
            _arrival(record, _crawl_elsewhere)
            _checked_record(record, 0)
        yield [{name: _sent(name, value) for name, value in record.items()} for record in piece]


def _sent(name: str, value: object) -> Any:
    if isinstance(value, Mapping):
        return unpacked(packed(value, str(name)))
    if value is not None and not isinstance(value, str | int | float):
        raise SettingsError(f"{name} {shown(value)} of a record: a server accepts only JSON values")
    arguments.unicode(str(name), value if isinstance(value, str) else None)
    return value


def _crawl_of(draft: Draft, name: str | None, unique: Unique | None, order: CrawlOrder | None) -> _OfCrawl:
    """Returns the row of the crawl of a record, whether it is by unique keys, and its order. unique, order: as its
    record says, None for the rule that the crawl has. Raises SettingsError for a crawl with another rule."""
    told = unique is not None or order is not None
    row = draft.crawl_by(name or "default", unique, order) if told else draft.crawl(name)
    return row, row in draft.callers(), draft.order_of(row)


def _crawl_elsewhere(name: str | None, unique: Unique | None, order: CrawlOrder | None) -> _OfCrawl:
    """As `_crawl_of`, for a record that is sent to a server, which knows the crawl."""
    return 0, unique is Unique.CALLER, order


def _arrival(
    told: Mapping[str, Any], crawl_of: Callable[[str | None, Unique | None, CrawlOrder | None], _OfCrawl]
) -> Arrival:
    if not isinstance(told, Mapping):
        raise SettingsError(f"{shown(told)} is not a record: use mappings from `records`")
    url = _text("url", told.get("url"))
    state = told.get("state")
    if url is None or not isinstance(state, str) or state not in _STATE_NUMBERS:
        raise SettingsError(f"state {shown(state)} of {shown(url, 200)}: use one of {', '.join(_STATE_NUMBERS)}")
    key, crawl = _text("key", told.get("key")), _text("crawl", told.get("crawl"))
    arguments.name("key", key)
    arguments.name("crawl", crawl)
    unique = None if told.get("unique") is None else arguments.unique(told["unique"])
    row, callers, order = crawl_of(crawl, unique, None if told.get("order") is None else arguments.order(told["order"]))
    priority = told.get("priority")
    if priority is not None:
        priority = possible(priority) if order is None else checked(priority, order)
    unique_key = _octets("unique_key", told.get("unique_key"), LINK_FIELDS["unique_key"].bytes_max)
    if unique_key and not callers:
        raise arguments.by_url(crawl or "default")
    most = metadata_bytes_max(callers=callers)
    octets = packed(told.get("metadata"), f"metadata of {shown(url, 200)}", bytes_max=most)
    arguments.kept("metadata", octets, most)
    referrer = _text("referrer", told.get("referrer"))
    arguments.unicode("referrer", referrer)
    arguments.kept("referrer", referrer, REFERRER_BYTES_MAX)
    return Arrival(
        url,
        0,
        _whole("depth", told.get("depth"), 65_535),
        _whole("hops", told.get("hops"), 255),
        priority,
        None,
        row,
        # The key of the host is no key of its own. In a crawl by unique keys a text may not be a URL.
        None if key is not None and not callers and is_host_of(key, url) else key,
        referrer,
        octets,
        unique_key=unique_key,
    )


def _whole(name: str, value: object, most: int) -> int:
    if value is None:
        return 0
    return arguments.whole(name, value, 0, most)


def _schedule(value: object) -> int:
    """Returns the code of a usual pause between visits; 0 for a page without one."""
    return 0 if value is None else int(codes_of(arguments.span("revisit_seconds", value)))


def _text(name: str, value: object, most: int | None = None) -> str | None:
    return None if value is None else arguments.text(name, value, most)


def _reason(value: object) -> int:
    name = _text("reason", value)
    if name is None:
        return 0
    if name not in _REASONS:
        raise SettingsError(f"reason {shown(name)}: use one of {', '.join(_REASONS)}")
    return int(_REASONS[name])
