"""Signals: dates of changes that links name, for pages that a revisit rule visits.

A link may say when its page changed (`Link.modified`: a sitemap, a feed, a caller). A date after the last visit of a
planned page counts once, and moves the next look at the page to where the rule wants it then. Each visit compares the
signals with what it shows, and so the signals of each host get their weight (policy/signal_values.py).

The count and the latest date are fields of the record, and the sums of a host are a fact: a replay has the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, replace
from itertools import islice
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from outrider.clock import instant
from outrider.frontier.format.card_columns import Cards, fetched_at
from outrider.frontier.format.card_records import CardRecord, KeptFields, parts_of, real_bytes, signal_bytes, signals_of
from outrider.frontier.format.facts import Fact
from outrider.frontier.policy.signal_values import changes_in, host_quality
from outrider.frontier.state.host_signals import NO_SUMS, SignalSums
from outrider.frontier.state.hosts import NONE, mixed
from outrider.frontier.state.tables import Tables
from outrider.frontier.state.url_table import WAITING
from outrider.frontier.verbs.arrivals import NO_DATE, UNREADABLE, Arrival, Arrivals, Origin
from outrider.frontier.verbs.draft import Draft
from outrider.frontier.verbs.revisiting import Revisits
from outrider.kernels.card_layout import PLANNED, Heads
from outrider.limits import (
    HOST_SIGNALS_JUDGED_MIN,
    HOST_SIGNALS_SHOWN_MAX,
    HOST_SIGNALS_VISITS_MAX,
    MICROSECONDS,
    SAID_CHANGE_CONFIDENCE,
    SIGNAL_AHEAD_SECONDS,
    SIGNALS_MAX,
    VOID_SIGNALS_COUNTED,
)
from outrider.url import authority_of

Floats = npt.NDArray[np.float64]


class Signals:
    """The signals of one frontier: what arrives, and what visits show about it."""

    def __init__(self, tables: Tables, revisits: Revisits) -> None:
        self._tables, self.revisits = tables, revisits
        self.news: dict[str, int] = {}
        """By the URL of a sitemap: the signals of weight that its last reading brought."""

    def __repr__(self) -> str:
        return f"<Signals of {len(self._tables.urls.signals)} hosts>"

    # -- what arrives --------------------------------------------------------------------------------------------------

    def read(self, links: Arrivals, draft: Draft) -> Arrivals:
        """Returns the links without dates that do not count: unreadable ones and future ones, which are tallied, and
        those of a page about another site. Without a rule no date counts."""
        dated = {row: link for row, link in links.odd.items() if link.says_changes}
        if not dated:
            return links
        odd = dict(links.odd)
        latest = draft.now + instant(SIGNAL_AHEAD_SECONDS)
        for row, link in dated.items():
            if self.revisits.plan is None or not _may_say(links.origins[int(links.origin[row])], links.urls[row]):
                odd[row] = replace(link, modified=NO_DATE, change_seconds=0.0)
            elif link.modified == UNREADABLE or link.modified > latest:
                draft.tally("signals.unreadable" if link.modified == UNREADABLE else "signals.future", 1)
                odd[row] = replace(link, modified=NO_DATE)
        return replace(links, odd={row: link for row, link in odd.items() if link.is_odd})

    @staticmethod
    def fields_of_new(link: Arrival) -> dict[str, bytes]:
        """Returns the fields of the record of a new URL that its link fills."""
        fields = {"signals": signal_bytes(max(0, link.modified), 0)}
        if link.change_seconds > 0:
            fields["change_rate"] = real_bytes(1.0 / link.change_seconds)
            fields["change_confidence"] = real_bytes(SAID_CHANGE_CONFIDENCE)
        return fields

    def take(self, cards: Cards, links: Sequence[Arrival], origins: Sequence[Origin], draft: Draft) -> None:
        """Counts the signals of links to known URLs. cards: those of the ledger, one for each link. The pages whose
        records change leave their places until the draft is applied."""
        urls, heads = self._tables.urls, cards.heads
        open_ones = np.frombuffer(urls.leases.find_urls(np.ascontiguousarray(heads["fingerprint"])), np.uint64)
        planned = (heads["state"] == WAITING) & (heads["reason"] == PLANNED) & (open_ones == 0)
        planned &= self._counted(heads)
        cells: dict[int, dict[str, bytes]] = {}
        rows: dict[tuple[int, int], int] = {}  # by crawl and fingerprint: a call may name a page several times
        flags, fetched = heads["flags"].tolist(), heads["fetched"].tolist()
        signals: dict[int, str] = {}
        for row in np.flatnonzero(planned).tolist():
            kept, _ = parts_of(cards.extra_of(row), flags[row])
            first = rows.setdefault((int(heads["crawl"][row]), int(heads["fingerprint"][row])), row)
            known = cells.get(first, {})
            after, counted = _after_link(kept, known, links[row], fetched[row])
            if after != known:
                cells[first] = after
            if counted:
                signals[first] = origins[row].referrer if origins[row].lists else ""
        if not cells:
            return
        chosen = np.array(sorted(cells), np.intp)
        found, old = urls.take_out(cards.take(chosen))
        draft.drawn.append((None, found))
        records = [CardRecord.of(found, row) for row in range(len(found))]
        for record, row in zip(records, chosen.tolist(), strict=True):
            record.kept = msgspec.structs.replace(record.kept, **cells[row])
        waits = old == WAITING
        dues, useful = self.revisits.heard(found.heads, [record.kept for record in records], draft.now)
        for place, record in enumerate(records):
            if waits[place]:
                record.due = int(dues[place])
            draft.record(record, int(old[place]), whole=True)
            origin = signals.get(int(chosen[place]))
            if origin and useful[place]:
                self.news[origin] = self.news.get(origin, 0) + 1
        if signals:
            draft.tally("signals", len(signals))

    # -- what visits show ----------------------------------------------------------------------------------------------

    def learn(
        self,
        draft: Draft,
        cards: Cards,
        rows: npt.NDArray[np.intp],
        changed: npt.NDArray[np.bool_],
        waited: Floats,
        rates: Floats,
        kept: Sequence[KeptFields],
    ) -> None:
        """Compares the signals of pages with what their visits showed. rows: of the cards; changed, waited, rates: what
        the visit of each showed, the seconds since the visit before it, and its change rate before; kept: the fields of
        its record before."""
        counted = self._counted(cards.heads[rows])
        places = [place for place, one in enumerate(kept) if one.signals and waited[place] > 0 and counted[place]]
        if not places:
            return
        tables = self._tables
        queues = tables.rows_of(cards.heads[rows[places]])
        hosts = tables.queues.host[queues.astype(np.intp)].astype(np.intp)
        expected = self._changes(hosts, rates[places], waited[places], [kept[place] for place in places]).tolist()
        slots: dict[int, int] = {}
        sums: dict[int, SignalSums] = {}
        for place, host, changes in zip(places, hosts.tolist(), expected, strict=True):
            name, time = int(tables.hosts.hash[host]), float(waited[place])
            count = float(signals_of(kept[place])[1])
            seen = SignalSums(1.0, 0, 0, time, count, changes) if changed[place] else SignalSums(1.0, time, count)
            sums[name] = sums.get(name, tables.urls.signals.get(name)).plus(seen, HOST_SIGNALS_VISITS_MAX)
            slots[name] = int(tables.hosts.slot[host])
        for slot, gone in tables.urls.signals.victims(set(slots)):
            draft.add(Fact.SIGNALS, (slot, gone, *astuple(NO_SUMS)))
        for name, slot in slots.items():
            draft.add(Fact.SIGNALS, (slot, name, *astuple(sums[name])))

    def _counted(self, heads: Heads) -> npt.NDArray[np.bool_]:
        """Returns the pages whose signals count. If those of a host have no weight, a part of its pages shows
        whether this changes: each signal writes the record of its page, and moves its next look."""
        tables = self._tables
        queues = tables.queues.find(np.ascontiguousarray(heads["queue"]))
        there = queues != NONE
        hosts = tables.queues.host[np.where(there, queues, 0).astype(np.intp)].astype(np.intp)
        names, places = np.unique(np.where(there, tables.hosts.hash[hosts], 0), return_inverse=True)
        sums = [tables.urls.signals.get(name) for name in names.tolist()]
        visits = np.array([one.visits for one in sums])
        void = (host_quality(sums).evidence == 0) & (visits >= HOST_SIGNALS_JUDGED_MIN)
        found: npt.NDArray[np.bool_] = ~void[places] | (mixed(heads["order"]) % np.uint64(VOID_SIGNALS_COUNTED) == 0)
        return found

    def _changes(
        self, hosts: npt.NDArray[np.intp], rates: Floats, waited: Floats, kept: Sequence[KeptFields]
    ) -> Floats:
        """Returns the changes that are expected in an interval in which a page changed: those with a signal, and those
        without one. If the signals of the host have no weight, the interval alone counts."""
        names = self._tables.hosts.hash[hosts].tolist()
        quality = host_quality([self._tables.urls.signals.get(name) for name in names])
        counts = np.array([signals_of(one)[1] for one in kept], np.float64)
        missed = (1.0 - quality.recall) * rates
        believed = (quality.evidence > 0) & (counts > 0)
        silent = np.where(quality.evidence > 0, missed, rates)
        return np.where(believed, counts + missed * waited, changes_in(silent, waited))

    def statistics(self) -> dict[str, Any]:
        """Returns the numbers of signals.

        signals: those that counted, in all runs. signals_ignored: dates that did not, by reason. signal_hosts: of the
        hosts with the latest visits, `HOST_SIGNALS_SHOWN_MAX` at most, the number of visits that showed something, the
        recall, the false signals of a page in a second, and the evidence of a signal for a page that changes as often
        as those of its host: 0 if its signals are ignored.
        """
        tallies, hosts = self._tables.registry.tallies, self._tables.hosts
        shown = list(islice(self._tables.urls.signals.latest(), HOST_SIGNALS_SHOWN_MAX))
        qualities = host_quality([sums for _, sums in shown])
        listed = []
        for place, (name, sums) in enumerate(shown):
            row = hosts.row(name)
            quality = [float(column[place]) for column in (qualities.recall, qualities.noise, qualities.evidence)]
            listed.append(
                {
                    "host": hosts.name(row) if row != NONE else None,
                    "visits": round(sums.visits),
                    **dict(zip(("recall", "noise", "evidence"), quality, strict=True)),
                }
            )
        return {
            "signals": tallies.get("signals", 0),
            "signals_ignored": {reason: tallies.get(f"signals.{reason}", 0) for reason in ("unreadable", "future")},
            "signal_hosts": listed,
        }


def _may_say(origin: Origin, url: str) -> bool:
    """Whether an origin may say when a URL changed: a caller and a sitemap for any that they name, a page only for its
    own site."""
    return not origin.page or origin.lists or authority_of(url) == authority_of(origin.referrer)


def _after_link(
    kept: KeptFields, before: dict[str, bytes], link: Arrival, fetched: int
) -> tuple[dict[str, bytes], bool]:
    """Returns the fields of a record that a link changes, and whether its date is a signal. before: those that earlier
    links of the call changed; fetched: the cell of the last visit."""
    cells = dict(before)
    latest, count = signals_of(kept)
    if "signals" in cells:  # an earlier date of the same call, which is one signal with this one
        latest = int.from_bytes(cells["signals"][:8], "little")
    signal = False
    if link.modified > latest:
        # Visits and most dates are known to the second: a change within that second may have been seen.
        signal = link.modified // MICROSECONDS > (fetched_at(fetched) or 0) // MICROSECONDS
        cells["signals"] = signal_bytes(link.modified, min(count + signal, SIGNALS_MAX))
    if link.change_seconds > 0 and not kept.change_confidence:
        cells["change_rate"] = real_bytes(1.0 / link.change_seconds)
        cells["change_confidence"] = real_bytes(SAID_CHANGE_CONFIDENCE)
    return cells, signal
