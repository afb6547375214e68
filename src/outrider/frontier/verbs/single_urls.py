"""The calls of operators on single URLs, which reach a URL in any state by its name: reprioritise, requeue,
delete, retry.

The cost of a call does not depend on how many URLs wait or are queued.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from outrider import kernels
from outrider.clock import Instant
from outrider.errors import SettingsError, StoreFullError
from outrider.frontier.format.card_columns import Cards
from outrider.frontier.format.card_records import CardRecord
from outrider.frontier.format.facts import Fact
from outrider.frontier.priority import checked, class_in, possible
from outrider.frontier.state.hosts import NONE
from outrider.frontier.state.rested import NOT_OVER
from outrider.frontier.state.url_table import (
    DONE,
    GONE,
    LEASED,
    LEDGER_ALONE,
    NO_PRIORITY,
    PARKED,
    QUEUED,
    STATES,
    UNKNOWN,
    WAITING,
    OpenLeases,
    Reason,
    set_queued,
    states_of,
)
from outrider.frontier.verbs import arguments, unique
from outrider.frontier.verbs.deciding import Core, Part
from outrider.frontier.verbs.discovering import Discovering
from outrider.frontier.verbs.draft import Draft
from outrider.frontier.verbs.operations import Operations
from outrider.frontier.verbs.paying import ERROR as PAYMENT
from outrider.frontier.verbs.paying import Paying
from outrider.frontier.verbs.statuses import discovered_at
from outrider.journey import Link, State, UrlName, UrlNames, UrlPriorities, UrlStatus
from outrider.kernels.card_layout import HEAD, Heads
from outrider.limits import CALL_ROWS_MAX
from outrider.url import host_of
from outrider.url.traps import ANY_TRAP

Flags = npt.NDArray[np.bool_]
Uint8s = npt.NDArray[np.uint8]


class SingleUrls(Part):
    """The part of the machine that finds and moves single URLs."""

    def __init__(self, core: Core, links: Discovering, operators: Operations, payments: Paying) -> None:
        super().__init__(core)
        self._links, self._operators, self._payments = links, operators, payments

    # -- finding ------------------------------------------------------------------------------------------------------

    def found(self, urls: Sequence[UrlName], crawl: int) -> tuple[Flags, Cards]:
        """Returns whether a crawl has each of these URLs, and the cards of the known ones as the ledger has them. urls:
        by any spelling; in a crawl by unique keys byte for byte, or by unique key. Raises SettingsError for a unique
        key of another crawl."""
        tables = self.tables
        if crawl in tables.crawls.callers:
            return self._found_by_callers(urls, crawl)
        of_crawl = tables.crawls.name_of(crawl)
        texts = self._links.spelled([text_of(url, of_crawl) for url in urls])
        mask = np.array([text is not None for text in texts], np.bool_)
        some = [text for text in texts if text is not None]
        prints = np.frombuffer(kernels.fingerprints(some, tables.fingerprint_key), np.uint64)
        homes = [tables.home_of(host_of(text)) for text in some]
        names = np.frombuffer(kernels.fingerprints(homes, tables.fingerprint_key), np.uint64)
        hosts = tables.hosts.find(names)
        there = hosts != NONE
        slots = np.zeros(len(some), np.uint16)
        slots[there] = tables.hosts.slot[hosts[there]]
        for place in self._homes.cold_ones(names, hosts).tolist():
            slots[place] = self._homes.slot_of(homes[place])
        found, cards = tables.urls.find(np.full(len(some), crawl, np.uint32), slots, prints)
        mask[np.flatnonzero(mask)[~found]] = False
        return mask, cards

    def _found_by_callers(self, urls: Sequence[UrlName], crawl: int) -> tuple[Flags, Cards]:
        prints = self.identities_of(urls)
        mask, slots = self.tables.urls.seen.slots_of(crawl, prints)
        rows = np.flatnonzero(mask)
        found, cards = self.tables.urls.find(np.full(len(rows), crawl, np.uint32), slots[rows], prints[rows])
        mask[rows[~found]] = False
        return mask, cards

    def identities_of(self, urls: Sequence[UrlName]) -> npt.NDArray[np.uint64]:
        """Returns the fingerprints of these names in a crawl by unique keys."""
        return unique.fingerprints_of(list(map(unique.identity_of_name, urls)), self.tables.fingerprint_key)

    def unknown(self, url: UrlName, crawl: int | None) -> UrlStatus:
        """Returns the status of a URL that a crawl does not have. crawl: its row; None for a crawl that is missing."""
        link = Link("", unique_key=url) if isinstance(url, bytes) else url if isinstance(url, Link) else Link(url)
        text = link.url
        if crawl not in self.tables.crawls.callers:
            text = self._links.spelled([text])[0] or text
        return UrlStatus(text, State.UNKNOWN, unique_key=link.unique_key)

    def records_of(self, urls: Sequence[UrlName], crawl: int) -> tuple[Flags, list[CardRecord]]:
        """Returns whether a crawl has each of these URLs, as for `found`, and the records of the known ones in their
        states of now."""
        mask, cards = self.found(urls, crawl)
        records = [CardRecord.of(cards, row) for row in range(len(cards))]
        for record, state in zip(records, self.states_of(cards).tolist(), strict=True):
            record.state = state
        return mask, records

    def states_of(self, cards: Cards) -> Uint8s:
        """Returns the states of these cards now, after time and leases."""
        heads = cards.heads
        states: Uint8s = heads["state"].copy()
        states[self.tables.urls.woken(heads, self._core.woken)] = QUEUED
        states[((states == QUEUED) | (states == WAITING)) & (self.tokens_of(cards) != 0)] = LEASED
        return states

    def tokens_of(self, cards: Cards) -> npt.NDArray[np.uint64]:
        """Returns the tokens of the open leases of these cards, 0 for none."""
        urls = self.tables.urls
        tokens = np.frombuffer(
            urls.leases.find_urls(np.ascontiguousarray(cards.heads["fingerprint"])), np.uint64
        ).copy()
        rows = np.flatnonzero(tokens)
        if not len(rows):
            return tokens
        # A lease may belong to another crawl's card of this URL, or to a card whose queue was deleted since.
        others = rows[urls.by_token(tokens[rows], bodies=False).cards.heads["order"] != cards.heads["order"][rows]]
        if len(others):
            opened = urls.open_leases().cards.heads["order"].tolist()
            of_order = dict(zip(opened, np.frombuffer(urls.leases.tokens(), np.uint64).tolist(), strict=True))
            tokens[others] = [of_order.get(order, 0) for order in cards.heads["order"][others].tolist()]
        return tokens

    def token_of(self, record: CardRecord) -> int:
        """Returns the token of the open lease of a record, or 0."""
        heads = np.zeros(1, HEAD)
        heads["fingerprint"], heads["order"] = record.fingerprint, record.order
        return int(self.tokens_of(Cards(heads, b"", np.zeros(2, np.int64)))[0])

    # -- moving -------------------------------------------------------------------------------------------------------

    def reprioritise(
        self,
        urls: UrlPriorities,
        priority: float | None,
        crawl: str | None,
        now: Instant,
    ) -> list[State]:
        """Sets the priority of URLs, also of URLs on disk. Returns the state of each; unknown URLs stay unknown."""
        wishes = url_priorities(urls, priority)
        row, now = self._begin(crawl, now)
        order = self.tables.crawls.order_of(row)
        values = np.array([checked(wish, order) for _, wish in wishes])
        mask, cards = self.found([url for url, _ in wishes], row)
        states = self.states_of(cards)
        values = values[mask]
        movable = (states == QUEUED) | (states == WAITING) | (states == PARKED)
        rows = last_of_each(cards.heads["order"])  # the last priority for a URL counts
        rows = rows[movable[rows] & (cards.heads["priority"][rows] != values[rows])]

        def change(heads: Heads) -> None:
            heads["priority"] = values[rows]
            heads["klass"] = [class_in(order, value) for value in values[rows].tolist()]

        self._change(self._core.draft(now), cards.take(rows), change)
        return _answers(mask, states)

    def requeue(
        self, urls: UrlNames, at: Instant | None, priority: float | None, crawl: str | None, now: Instant
    ) -> list[State]:
        """Queues known URLs again, in whatever state they are, or makes them wait until an instant. A leased URL is
        queued again when its lease ends. URLs that robots rules or a trap parked stay parked. Returns the state of each
        before."""
        names = requeued_urls(urls)
        at = None if at is None else arguments.until(at, "at")
        row, now = self._begin(crawl, now)
        wish = NO_PRIORITY if priority is None else checked(priority, self.tables.crawls.order_of(row))
        mask, cards = self.found(names, row)
        states = self.states_of(cards)
        due = now if at is None else max(at, now)
        rows = last_of_each(cards.heads["order"])
        draft = self._core.draft(now)
        leased = rows[states[rows] == LEASED]
        slots, tokens = cards.heads["slot"][leased].tolist(), self.tokens_of(cards.take(leased)).tolist()
        for slot, token in zip(slots, tokens, strict=True):
            draft.add(Fact.REQUEUE, (slot, token, due, wish))
        heads = cards.heads[rows]
        stays = (states[rows] == LEASED) | ((states[rows] == PARKED) & (heads["reason"] != Reason.BUDGET))
        if at is None:  # a queued URL is queued already
            stays |= (states[rows] == QUEUED) & (np.isnan(wish) | (heads["priority"] == wish))

        def change(heads: Heads) -> None:
            set_queued(heads, due, wish, now)

        self._change(draft, cards.take(rows[~stays]), change)
        return _answers(mask, states)

    def put_back(self, urls: Sequence[str], now: Instant) -> int:
        """Queues done or gone pages again as if they had not been fetched, and those that wait for their next visit by
        a rule: without validators, because what they confirm is lost. Returns how many."""
        row, now = self._begin(None, now)
        _, found = self.found(list(urls), row)
        states = self.states_of(found)
        planned = (found.heads["state"] == WAITING) & (found.heads["reason"] == Reason.PLANNED) & (states != LEASED)
        rows = last_of_each(found.heads["order"])
        rows = rows[(states[rows] == DONE) | (states[rows] == GONE) | planned[rows]]
        cards, old = self.tables.urls.take_out(found.take(rows))
        draft = self._core.draft(now)
        for place, state in enumerate(old.tolist()):
            record = CardRecord.of(cards, place)
            record.state, record.reason, record.due = QUEUED, 0, now
            record.attempts = record.losses = 0
            record.kept = replace(record.kept, etag="", last_modified="", digest=b"")
            draft.record(record, state, token=0, whole=True)
        try:
            self._core.commit(draft, reserve=True)
        except (SettingsError, StoreFullError):
            self.tables.urls.put_back(cards, old)
            raise
        return len(cards)

    def delete(self, urls: UrlNames, crawl: str | None, now: Instant, *, before: Instant | None = None) -> list[State]:
        """Deletes URLs in any state, as if they had never existed. An open lease of such a URL ends: a report of it
        is stale, and the host rests a whole delay. before: only those that were discovered before this instant. Returns
        the state of each before."""
        names = deleted_urls(urls)
        row, now = self._begin(crawl, now)
        mask, cards = self.found(names, row)
        states = self.states_of(cards)
        rows = last_of_each(cards.heads["order"])
        if before is not None:
            dates = [discovered_at(CardRecord.of(cards, place), self.tables) for place in rows.tolist()]
            rows = rows[np.array([date is None or date < before for date in dates], np.bool_)]
        cards = cards.take(rows)
        tokens = self.tokens_of(cards)
        cold = cards.filter(self.tables.queues.find(np.ascontiguousarray(cards.heads["queue"])) == NONE).heads
        draft = self._core.draft(now)
        draft.deletes = len(cards) > 0
        leases = self.ended(draft, tokens[tokens != 0])
        _end(draft, leases.cards, tokens[tokens != 0], states_of(LEASED, len(leases.cards)))
        self._change(draft, cards.filter(tokens == 0), lambda heads: heads["state"].fill(UNKNOWN))
        if len(cold):  # hosts that were recalled only for this
            self._core.cooling.put_back(np.unique(self.tables.queues.host[self.tables.rows_of(cold)]), now)
        return _answers(mask, states)

    def ended(self, draft: Draft, tokens: npt.NDArray[np.uint64]) -> OpenLeases:
        """Returns the open leases with these tokens, which this call ends without a report. Their hosts rest a whole
        delay if a request may be under way."""
        leases, over = self.tables.urls.by_token(tokens), self.tables.hosts.rested.ends_of(tokens)
        requested = leases.queues if over is None else leases.queues[over == NOT_OVER]
        for queue in requested.tolist():
            host, floor = int(self.tables.queues.host[queue]), self._rests.floor_of_page(queue)
            self._rests.whole(draft, host, floor, draft.now)
        return leases

    def _begin(self, crawl: str | None, now: Instant) -> tuple[int, Instant]:
        """Returns the row of a crawl and the time, after URLs that are due by now were queued."""
        row = self._operators.crawl_row(arguments.name("crawl", crawl) or "default")
        now = self._core.advance(now)
        self._core.wake(now)
        return row, now

    def _change(self, draft: Draft, known: Cards, change: Callable[[Heads], None]) -> None:
        """Takes cards without leases out of their places, changes their heads, and logs them with the draft."""
        urls = self.tables.urls
        cards, old = urls.take_out(known)
        if len(cards):
            heads = cards.changed()
            change(heads)
            draft.heads(cards.with_heads(heads), np.zeros(len(cards), np.uint64), old)
        try:
            self._core.commit(draft, reserve=True)
        except (SettingsError, StoreFullError):
            urls.put_back(cards, old)
            raise

    # -- dead letters -------------------------------------------------------------------------------------------------

    def given_up_mask(self, heads: Heads, error: str | None) -> Flags:
        """Returns which of these are dead letters, of an error class if one is named. URLs that were parked by
        robots.txt, a trap rule or for payment count only by that class, and all traps by "trap"."""
        mask: Flags = heads["state"] == GONE
        if error is not None:
            number = self.tables.registry.error_numbers.get(error, -1)
            mask &= heads["error"] == number
            parked = heads["state"] == PARKED
            trapped = parked & (heads["reason"] == Reason.TRAP)
            ruled = parked & np.isin(heads["reason"], LEDGER_ALONE)
            mask |= trapped if error == ANY_TRAP else ruled & (heads["error"] == number)
        return mask

    def retry(self, chosen: Heads, error: str | None, now: Instant) -> int:
        """Queues those of these URLs again that are still dead letters, in one frame. Returns how many."""
        now = self._core.advance(now)
        self._core.wake(now)
        if not len(chosen):
            return 0
        _, cards = self.tables.urls.find(chosen["crawl"], chosen["slot"], chosen["fingerprint"])
        some = cards.filter(self.given_up_mask(cards.heads, error))
        if not len(some):
            return 0
        heads = some.changed()
        old = heads["state"].astype(np.uint8)
        # A trap keeps its reason, so that it is not judged again.
        heads["reason"] = np.where((old == PARKED) & (heads["reason"] == Reason.TRAP), Reason.TRAP, 0)
        heads["state"], heads["attempts"], heads["losses"] = QUEUED, 0, 0
        heads["due"] = now
        draft = self._core.draft(now)
        draft.heads(some.with_heads(heads), np.zeros(len(some), np.uint64), old)
        if error == PAYMENT:
            self._payments.open_again(draft, some.urls())
        self._core.commit(draft)
        return len(some)


def _end(draft: Draft, cards: Cards, tokens: npt.NDArray[np.uint64], old: Uint8s) -> None:
    """Adds to a draft that these URLs are deleted."""
    if len(cards):
        heads = cards.changed()
        heads["state"] = UNKNOWN
        draft.heads(cards.with_heads(heads), tokens, old)


def last_of_each(orders: npt.NDArray[np.uint64]) -> npt.NDArray[np.intp]:
    """Returns the last row of each order, in the order of the rows."""
    return np.array(sorted({order: row for row, order in enumerate(orders.tolist())}.values()), np.intp)


def _answers(mask: Flags, states: Uint8s) -> list[State]:
    """Returns a state for each URL of a call: UNKNOWN where the mask is false, otherwise the next one."""
    numbers = np.full(len(mask), UNKNOWN, np.uint8)
    numbers[mask] = states
    return [STATES[number] for number in numbers.tolist()]


def text_of(url: UrlName, crawl: str) -> str:
    """Returns the text of a URL of a crawl by URLs. Raises SettingsError for a unique key."""
    if isinstance(url, bytes) or (isinstance(url, Link) and url.unique_key is not None):
        raise arguments.by_url(crawl)
    return url.url if isinstance(url, Link) else url


def requeued_urls(urls: UrlNames) -> list[UrlName]:
    """Returns the URLs of a call, checked. Raises SettingsError."""
    if isinstance(urls, Mapping):
        raise SettingsError("requeue has one priority for all URLs of a call: pass a list of URLs, and priority=")
    return [url for url, _ in url_priorities(urls, 0.5)]


def deleted_urls(urls: UrlNames) -> list[UrlName]:
    """Returns the URLs of a call, checked. Raises SettingsError."""
    if isinstance(urls, Mapping):
        raise SettingsError("delete_urls takes no priorities: pass a list of URLs")
    return [url for url, _ in url_priorities(urls, 0.5)]


def url_priorities(urls: UrlPriorities, priority: float | None) -> list[tuple[UrlName, float]]:
    """Returns each URL and its new priority. Raises SettingsError."""
    if isinstance(urls, str | bytes | Link):
        urls = [urls]
    found = arguments.plain_values(arguments.listed("URLs", urls))
    for url in found:
        if isinstance(url, bytes | Link):
            arguments.url_name(url)
    wishes = [(url, urls[url] if isinstance(urls, Mapping) else priority) for url in found]
    if len(wishes) > CALL_ROWS_MAX:
        raise SettingsError(
            f"{len(wishes)} URLs in one call are too many; split it into calls of at most {CALL_ROWS_MAX}"
        )
    given = [(url, possible(wish)) for url, wish in wishes if wish is not None]
    if len(given) < len(wishes):
        raise SettingsError("reprioritise needs a priority, or a mapping of URLs to priorities")
    return given
