"""discover: finds the links that are new URLs in scope and within the limits. Also links between logs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from outrider import kernels
from outrider.clock import Instant
from outrider.errors import SettingsError, shown
from outrider.frontier.format.card_columns import Cards
from outrider.frontier.format.card_records import CardRecord, KeptFields, extra_of, text_of
from outrider.frontier.format.constant import by_value, chosen, constant_column, is_constant
from outrider.frontier.format.facts import Fact, Row, TextColumn, no_texts
from outrider.frontier.format.metadata import metadata_bytes_max, packed
from outrider.frontier.priority import PRIORITY_DEFAULT, Referrer, checked, class_in, classes_of, name_of, priorities
from outrider.frontier.state.hosts import (
    NONE,
    VOIDED,
    QueueRules,
    Rows,
    firsts_of,
    keyed_queue_hash,
    mixed,
    queue_hashes,
)
from outrider.frontier.state.tables import rules_cells
from outrider.frontier.state.url_table import GONE, LEASED, PARKED, QUEUED, UNKNOWN, WAITING, KnownRows, Reason
from outrider.frontier.verbs import arguments, unique
from outrider.frontier.verbs.arrivals import LINK_BYTES, NO_DUE, Arrival, Arrivals, KeyedUrls, Origin, pieces_of
from outrider.frontier.verbs.deciding import CODE_NUMBERS, CODES, KNOWN, NEW, Core, Part, bounded, codes_of
from outrider.frontier.verbs.draft import Draft
from outrider.frontier.verbs.trapping import Trapping
from outrider.journey import Code, CrawlOrder, Link, RequestId, Unique
from outrider.kernels.card_layout import HEAD, ORDERED
from outrider.limits import (
    CALL_BYTES_PER_FRAME,
    CLASSES,
    DEPTH_MAX,
    DROP_LOOKS_AT_CARDS,
    OWN_SLOT,
    REDIRECT_HOPS_MAX,
    SLOTS,
    URL_BYTES_MAX,
)
from outrider.url import UrlBatch, clock_host, is_host_of, spell
from outrider.url.keys import has_host, key_of_name


class Discovering(Part):
    """The part of the machine that accepts links."""

    def __init__(self, core: Core, traps: Trapping) -> None:
        super().__init__(core)
        self._traps = traps

    def discover(
        self,
        links: Iterable[str | Link] | UrlBatch | KeyedUrls,
        now: Instant,
        *,
        request_id: RequestId | None = None,
        together: bool = False,
        crawl: str | None = None,
    ) -> list[Code]:
        """Returns one code per link. Links that are too long for one frame are logged in several frames. together: the
        call refuses such links instead. crawl: of links in columns.

        Raises SettingsError for a priority outside [0, 1], before any change. If a priority function fails after the
        first frame, the earlier frames stay. Raises StoreFullError; then the first frames may be accepted already.
        """
        request_id = arguments.request(request_id)
        now = self._core.advance(now)
        known = self._core.repeated(request_id, "discover")
        if known is not None and request_id is not None and not self._core.is_begun(request_id):
            return codes_of(known)
        if not isinstance(links, UrlBatch | KeyedUrls):
            links = arguments.listed("links", links)
        bounded(len(links), "links")
        self._core.wake(now)
        draft = self._core.draft(now)
        if isinstance(links, KeyedUrls):
            arrivals = self.keyed(links, crawl, draft)
        elif isinstance(links, UrlBatch):
            is_callers = draft.crawl(crawl) in self.tables.crawls.callers
            arrivals = self._links_in_columns(links, links if is_callers else self._ruled(links), draft, crawl)
        elif set(map(type, links)) <= {str} and draft.crawl(None) not in self.tables.crawls.callers:
            urls = self.spelled_batch(links)
            arrivals = self._links_in_columns(urls, urls, draft)
        else:
            origins = [Origin(crawl=draft.crawl(None))]
            arrivals = self.of_links([self.arrival(link, 0, origins[0], draft) for link in links], origins, draft)
        answer = known or b""
        if answer:
            arrivals = arrivals.piece(min(len(answer), len(arrivals)), len(arrivals))
        pieces = arrivals.pieces(CALL_BYTES_PER_FRAME)
        if together and len(pieces) > 1:
            raise SettingsError("the links of these calls need more than one frame; use a call for each")
        asked = draft  # it has reserved the rows of new crawls
        for first, last in pieces:
            piece = arrivals.piece(first, last)
            if first:
                draft = self._core.draft(now)
                piece = piece.in_crawls(draft.drawn_again(asked))
            answer += self._accept(piece, draft).tobytes()
            self._core.answered(draft, request_id, "discover", answer, begun=last < len(arrivals))
            self._core.commit(draft)
        return codes_of(answer)

    def _links_in_columns(self, told: UrlBatch, urls: UrlBatch, draft: Draft, crawl: str | None = None) -> Arrivals:
        origins = [Origin(crawl=draft.crawl(crawl))]
        depths, priorities = arguments.ranks([told], [0], [origins[0].crawl in self.tables.crawls.orders])
        found = Arrivals.of_columns(urls, constant_column(0, len(urls), "i8"), origins, depths, priorities)
        return self._identified(found)

    def keyed(self, links: KeyedUrls, crawl: str | None, draft: Draft) -> Arrivals:
        """Returns links of a crawl by unique keys that arrived in columns. Raises SettingsError for an invalid key."""
        arguments.names("key", links.keys)
        return unique.arrivals_in_columns(links, draft.crawl(crawl), self.tables.fingerprint_key)

    def of_links(self, links: Sequence[Arrival], origins: Sequence[Origin], draft: Draft) -> Arrivals:
        """Returns links that arrived as single links in columns, each as its crawl needs it."""
        callers = draft.callers()
        rows = [row for row, link in enumerate(links) if link.crawl in callers] if callers else []
        if not rows:
            return Arrivals.of_links(links, origins, self.spelled_batch)
        return unique.arrivals_of(links, origins, rows, self.spelled_batch, self.tables.fingerprint_key)

    def _identified(self, links: Arrivals) -> Arrivals:
        """Returns the same links with the fingerprints of those of crawls by unique keys."""
        callers = self.tables.crawls.callers
        if not callers:
            return links
        rows = np.flatnonzero(np.isin(links.crawl, list(callers)) & links.urls.valid).tolist()
        return unique.with_identities(links, rows, self.tables.fingerprint_key) if rows else links

    def arrival(self, link: str | Link, origin_row: int, origin: Origin, draft: Draft) -> Arrival:
        if not isinstance(link, Link):
            text = arguments.plain_link(link)
            return Arrival(text, origin_row, origin.depth, crawl=origin.crawl, seed=not origin.page)
        link = arguments.link(link)
        crawl = origin.crawl if link.crawl is None else draft.crawl(link.crawl)
        callers = crawl in self.tables.crawls.callers
        if link.unique_key is not None and not callers:
            raise arguments.by_url(draft.crawl_name(crawl))
        return Arrival(
            link.url,
            origin_row,
            max(link.depth, origin.depth) if origin.page else link.depth,
            link.hops,
            checked(link.priority, draft.order_of(crawl)) if link.priority is not None else None,
            link.not_before,
            crawl,
            link.key,
            link.referrer,
            packed(link.metadata, bytes_max=metadata_bytes_max(callers=True)) if callers else packed(link.metadata),
            not origin.page and link.depth == 0 and link.referrer is None,
            link.unique_key or b"",
            arguments.modified(link.modified),
            link.change_seconds or 0.0,
        )

    def accept_found(
        self,
        wanted: Sequence[Arrival],
        columns: Sequence[tuple[int, UrlBatch]],
        of_row: Mapping[int, int],
        origins: Sequence[Origin],
        spans: Mapping[int, tuple[int, int]],
        targets: Mapping[int, int],
        draft: Draft,
    ) -> tuple[dict[int, bytes], dict[int, int]]:
        """Accepts the links of many outcomes. Returns the numbers of their codes by row of the outcome, and by row
        whether a redirect's target was new."""
        parts = [self.of_links(wanted, origins, draft)] if wanted else []
        if columns:
            places, told = [of_row[row] for row, _ in columns], [urls for _, urls in columns]
            orders = self.tables.crawls.orders
            ordered = [origins[place].crawl in orders for place in places]
            depths, priorities = arguments.ranks(told, [origins[place].depth for place in places], ordered)
            batches = told
            if self._core.rules:
                callers = self.tables.crawls.callers
                batches = [
                    urls if origins[place].crawl in callers else self._ruled(urls)
                    for place, urls in zip(places, told, strict=True)
                ]
            parts.append(self._identified(Arrivals.of_batches(batches, places, origins, depths, priorities)))
        if not parts:
            return {}, {}
        numbers = self._accept(Arrivals.concatenate(parts, self.tables.fingerprint_key), draft).tobytes()
        found = {row: numbers[start:end] for row, (start, end) in spans.items()}
        start = len(wanted)
        for row, urls in columns:
            found[row] = found.get(row, b"") + numbers[start : start + len(urls)]
            start += len(urls)
        return found, {row: int(numbers[place] == NEW) for row, place in targets.items()}

    def _accept(self, links: Arrivals, draft: Draft) -> npt.NDArray[np.uint8]:
        """Tests links against the scope and the seen-set; the draft gets cards of the new URLs, and known URLs get the
        signals of their links. Returns a code per link."""
        links = self._core.signals.read(links, draft) if links.odd else links
        codes = self._judge(links, draft)
        if any(link.says_changes for link in links.odd.values()):
            self._hear(links, codes, draft)
        return codes

    def _hear(self, links: Arrivals, codes: npt.NDArray[np.uint8], draft: Draft) -> None:
        """Passes the dates of known URLs on. The last step of `_accept`: it takes cards out of their places."""
        dated = [row for row, link in links.odd.items() if link.says_changes and codes[row] == KNOWN]
        rows = np.array(sorted(dated), np.intp)
        if draft.callers():
            rows = rows[~np.isin(links.crawl[rows], list(draft.callers()))]  # their callers decide about visits
        if not len(rows):
            return
        homes = self._homes.hashes(links.urls)
        hosts = self.tables.hosts.find(homes[rows])
        slots = self.slots_at(hosts, (hosts != NONE).nonzero()[0])
        cold = self._homes.cold_ones(homes[rows], hosts)
        slots[cold] = self._homes.slots(links.urls, homes, rows[cold])
        prints = links.fingerprints(self.tables.fingerprint_key)[rows]
        found, cards = self.tables.urls.find(links.crawl[rows], slots, prints)
        wanted = rows[found].tolist()
        origins = [links.origins[place] for place in links.origin[wanted].tolist()]
        self._core.signals.take(cards, [links.odd[row] for row in wanted], origins, draft)

    def _judge(self, links: Arrivals, draft: Draft) -> npt.NDArray[np.uint8]:
        """Returns the code of each link."""
        urls = links.urls
        if not len(urls):
            return np.zeros(0, np.uint8)
        prints, crawls = links.fingerprints(self.tables.fingerprint_key), links.crawl
        marks = self._marks(crawls, prints)
        met = self._met(links, marks)
        count = np.count_nonzero(met) if met is not None else 0
        if met is not None and count == len(urls):
            return np.full(len(urls), KNOWN, np.uint8)
        codes = np.full(len(urls), CODE_NUMBERS[Code.INVALID], np.uint8)
        if met is not None and count:
            codes[met] = KNOWN
        away = self._away(urls, met if count else None)
        rows = self._wanted(links, met if count else None, away, codes, draft).nonzero()[0]
        if not len(rows):
            return codes
        if len(rows) < len(urls):
            prints, crawls, marks = prints[rows], chosen(crawls, rows), marks[rows]
        if met is None:
            met = self._core.recent.hold(marks)
            if np.count_nonzero(met):
                codes[rows[met]] = KNOWN
                rest = ~met
                rows, prints, marks = rows[rest], prints[rest], marks[rest]
                crawls = chosen(links.crawl, rows)
                if not len(rows):
                    return codes
        if away is not None and np.count_nonzero(there := away[rows]):
            self._to_outbox(links, rows[there], marks[there], codes, draft)
            rest = ~there
            rows, prints, marks = rows[rest], prints[rest], marks[rest]
            crawls = chosen(links.crawl, rows)
            if not len(rows):
                return codes
        names, hosts, slots, known = self._look_up(urls, rows, crawls, prints)
        if np.count_nonzero(known):
            codes[rows[known]] = KNOWN
            draft.known.append(marks[known])
            fresh = (~known).nonzero()[0]
            if not len(fresh):
                return codes
        else:
            fresh = np.arange(len(rows))
        equals = None
        if len(fresh) > 1:
            # The first of equal links is new, its repetitions are known.
            firsts, _ = firsts_of(marks if len(fresh) == len(rows) else marks[fresh])
            if len(firsts) < len(fresh):
                equals = rows[fresh], marks[fresh]
                codes[rows[fresh]] = KNOWN
                fresh = fresh[firsts]
        if len(fresh) < len(rows):
            rows, prints, names, hosts, marks = rows[fresh], prints[fresh], names[fresh], hosts[fresh], marks[fresh]
            slots = slots[fresh]
        try:
            kept = self.add_new(links, rows, prints, names, hosts, slots, codes, draft)
        except Exception:
            self._core.scopes.forget()  # a priority function failed: the seeds that widened scopes are not accepted
            raise
        draft.known.append(marks if kept is None else marks[kept])
        if kept is not None and equals is not None:
            # Links that equal a refused link are refused, too, because the frontier does not have the URL. `_limit`
            # counted the first of each.
            places, of_equals = equals
            again = np.isin(of_equals, marks[~kept])
            codes[places[again]] = CODE_NUMBERS[Code.OVER_LIMIT]
            draft.tally("refused", int(np.count_nonzero(again)) - int(np.count_nonzero(~kept)))
        return codes

    def _look_up(
        self, urls: UrlBatch, rows: npt.NDArray[np.intp], crawls: npt.NDArray[np.uint32], prints: Any
    ) -> tuple[Any, Rows, npt.NDArray[np.uint16], npt.NDArray[np.bool_]]:
        """Returns the hashes of the hosts of these rows, the rows of the hosts, their slots (0 for new hosts), and
        whether each URL was accepted before."""
        tables = self.tables
        homes = names = self._homes.hashes(urls)
        if len(rows) < len(urls):
            names = names[rows]
        hosts = tables.hosts.find(names)
        there = (hosts != NONE).nonzero()[0]
        slots = self.slots_at(hosts, there)
        if len(there) == len(rows):
            known = tables.urls.were_accepted(crawls, slots, prints)
        else:
            known = np.zeros(len(rows), np.bool_)
            if len(there):
                known[there] = tables.urls.were_accepted(chosen(crawls, there), slots[there], prints[there])
            cold = self._homes.cold_ones(names, hosts)
            if len(cold):
                # Known URLs do not need the row of a cold host, so only new URLs recall it.
                slots[cold] = self._homes.slots(urls, homes, rows[cold])
                known[cold] = tables.urls.were_accepted(chosen(crawls, cold), slots[cold], prints[cold])
                if tables.recall(names[cold[~known[cold]]]):
                    hosts = tables.hosts.find(names)
        if tables.queues.voids:
            doubtful = np.flatnonzero(known & (hosts != NONE))
            if len(doubtful):
                doubtful = doubtful[(tables.hosts.flags[hosts[doubtful]] & np.uint16(VOIDED)) != 0]
                if len(doubtful):
                    found, _ = tables.urls.find(crawls[doubtful], slots[doubtful], prints[doubtful])
                    known[doubtful[~found]] = False  # deleted since: the URL counts as never seen
        if tables.crawls.callers:
            for crawl, some in by_value(crawls):
                if crawl in tables.crawls.callers:
                    known[some] = tables.urls.knows(crawl, prints[some])
        return names, hosts, slots, known

    def _met(self, links: Arrivals, marks: Any) -> npt.NDArray[np.bool_] | None:
        """Returns which links lead to URLs that were accepted lately. These are in scope, because a scope only grows.
        None if the settings judge a link by more than its host, domain or prefix."""
        s = self.settings
        if s.include or s.exclude or s.max_depth is not None:
            return None
        met = self._core.recent.hold(marks)
        if s.scope != "any":
            met &= ~links.seed  # a seed must widen the scope
        if links.odd:
            met[list(links.odd)] = False
        if not is_constant(links.hops):
            met &= links.hops <= REDIRECT_HOPS_MAX
        return met

    @staticmethod
    def _marks(crawls: npt.NDArray[np.uint32], prints: Any) -> npt.NDArray[np.uint64]:
        """Returns the marks under which `Recent` keeps these URLs."""
        if is_constant(crawls):
            alone: npt.NDArray[np.uint64] = prints ^ _salt(int(crawls[0]))
            return alone
        marks = np.empty(len(prints), np.uint64)
        for crawl, rows in by_value(crawls):
            marks[rows] = prints[rows] ^ _salt(crawl)
        return marks

    def _away(self, urls: UrlBatch, met: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.bool_] | None:
        """Returns which links belong to slots of other logs, apart from those met; None for a store of all slots."""
        if self._homes.owned is None:
            return None
        rows = (urls.valid if met is None else urls.valid & ~met).nonzero()[0]
        away = np.zeros(len(urls), np.bool_)
        if len(rows):
            away[rows] = ~self._homes.is_own(self._homes.slots(urls, self._homes.hashes(urls), rows))
        return away

    def _wanted(
        self,
        links: Arrivals,
        met: npt.NDArray[np.bool_] | None,
        away: npt.NDArray[np.bool_] | None,
        codes: npt.NDArray[np.uint8],
        draft: Draft,
    ) -> npt.NDArray[np.bool_]:
        """Returns which links are URLs within the limits and in the scope of their crawl; the other links get their
        codes. met: links to leave out. away: links of other logs, whose scope is judged there: the seeds that make it
        are of the same slots as their hosts."""
        urls, callers = links.urls, draft.callers() if links.identities is not None else frozenset()
        fit = urls.valid if met is None else urls.valid & ~met
        if links.odd or not is_constant(links.hops) or urls.lengths.max() > URL_BYTES_MAX:
            too_long = (urls.lengths > URL_BYTES_MAX) | (links.hops > REDIRECT_HOPS_MAX)
            for row, link in links.odd.items():
                most = metadata_bytes_max(callers=link.crawl in callers)
                too_long[row] |= len(link.metadata) > most
                if link.text:
                    too_long[row] |= len(link.text.encode()) > URL_BYTES_MAX
            over = fit & too_long
            if over.any():
                codes[over] = CODE_NUMBERS[Code.OVER_LIMIT]
                draft.tally("too_long", int(np.count_nonzero(over)))
                fit = fit & ~too_long
        s = self.settings
        if s.scope == "any" and not s.include and not s.exclude and s.max_depth is None:
            return fit
        for crawl, some in by_value(links.crawl):
            if crawl in callers:
                continue
            here = np.zeros(len(urls), np.bool_)
            here[some] = True
            rows = np.flatnonzero(here & fit if away is None else here & fit & ~away)
            seeds = rows[links.seed[rows]]
            if s.scope != "any" and len(seeds):
                self._core.scopes.widen(draft, crawl, urls.strings(seeds))
            looked = urls if len(rows) == len(urls) else urls.take(rows)
            inside = np.asarray(self._core.scopes.of(crawl).verdicts(looked, links.depth[rows])) | links.seed[rows]
            outside = rows[~inside]
            codes[outside] = CODE_NUMBERS[Code.OUT_OF_SCOPE]
            fit = fit.copy()
            fit[outside] = False
        return fit

    def slots_at(self, hosts: Rows, there: npt.NDArray[np.intp]) -> npt.NDArray[np.uint16]:
        """Returns the slots of hosts, 0 for unknown hosts. there: the places of known hosts."""
        column = self.tables.hosts.slot
        slots: npt.NDArray[np.uint16]
        if len(there) == len(hosts):
            slots = column[hosts.astype(np.intp)]
        else:
            slots = np.zeros(len(hosts), np.uint16)
            slots[there] = column[hosts[there]]
        return slots

    def add_new(
        self,
        links: Arrivals,
        rows: npt.NDArray[np.intp],
        prints: Any,
        names: Any,
        hosts: Rows,
        slots: Any,
        codes: npt.NDArray[np.uint8],
        draft: Draft,
    ) -> npt.NDArray[np.bool_] | None:
        """Adds cards of new URLs to the draft, and facts of new hosts and queues. Returns which URLs fitted the limits,
        None for all. slots: set here for new hosts."""
        there = hosts != NONE
        homes = hosts if there.all() else self._new_hosts(links.urls, rows, names, hosts, slots, draft)
        crawls = chosen(links.crawl, rows)
        queues, known_queues, queue_rows = self._queues_of(links, rows, names, hosts, homes, slots, crawls, draft)
        heads = np.zeros(len(rows), HEAD)
        heads["fingerprint"], heads["queue"], heads["slot"] = prints, queues, slots
        self._fill_heads(heads, links, rows, crawls, draft)
        codes[rows] = NEW
        budgets = self._core.budgets
        # New hosts have answered nothing.
        if budgets.parks and (over := budgets.over(hosts[there])) is not None:
            spent = there.nonzero()[0][over]
            heads["state"][spent], heads["reason"][spent] = PARKED, Reason.BUDGET
            codes[rows[spent]] = CODE_NUMBERS[Code.PARKED]
        self._traps.park_new(links.urls, rows, heads, codes, draft)
        if not self._limit(heads, known_queues, rows, codes, draft):
            draft.cards(self._bodies(links, rows, heads), queue_rows)
            return None
        kept: npt.NDArray[np.bool_] = heads["state"] != UNKNOWN
        rows, heads, queue_rows = rows[kept], heads[kept], queue_rows[kept]
        if len(rows):
            draft.cards(self._bodies(links, rows, heads), queue_rows)
        return kept

    def _queues_of(
        self,
        links: Arrivals,
        rows: npt.NDArray[np.intp],
        names: Any,
        hosts: Rows,
        homes: Rows,
        slots: Any,
        crawls: npt.NDArray[np.uint32],
        draft: Draft,
    ) -> tuple[Any, Rows, Rows]:
        """Returns the queues of new URLs: their hashes, the rows of known queues (NONE for new queues), and the rows of
        all of them. The draft gets facts of new queues."""
        tables, urls = self.tables, links.urls
        there = hosts != NONE
        queues = queue_hashes(names, crawls)
        keys: dict[int, str] = {}
        for row, link in links.odd.items() if links.odd else ():
            if link.key is not None:
                place = int(rows.searchsorted(row))
                here = place < len(rows) and rows[place] == row
                # The queue of a key without a host is that of the name in place of the host.
                if here and has_host(urls[row]) and not is_host_of(link.key, urls[row]):
                    keys[place] = link.key
                    queues[place] = keyed_queue_hash(int(names[place]), int(crawls[place]), tables.hash_of(link.key))
        if there.all():
            known_queues = self._queues_at(hosts.astype(np.intp), queues)
        else:
            known_queues = np.full(len(rows), NONE, np.uint32)
            known_queues[there] = tables.queues.find(queues[there])  # new hosts have no queue yet
        queue_rows = known_queues
        new = (known_queues == NONE).nonzero()[0]
        if len(new):
            made = {(row[1]) for row in draft.rows.get(Fact.QUEUE, ())}
            firsts, which = firsts_of(queues[new])
            queue_rows = known_queues.copy()
            queue_rows[new] = tables.queues.coming(len(firsts))[which]
            new = new[firsts]
            if made:
                new = np.array([place for place in new.tolist() if int(queues[place]) not in made], np.intp)
            if len(new):
                told = [keys.get(place, "") for place in new.tolist()] if keys else no_texts(len(new))
                draft.add_columns(
                    Fact.QUEUE,
                    [slots[new], queues[new], names[new], crawls[new], told],
                    KnownRows.of_rows(homes[new], first=tables.queues.made),
                )
                if tables.words or (tables.queues.rules and (keys or tables.keys.groups or tables.crawls.callers)):
                    hosts_of_new = (clock_host(urls[int(rows[place])]) for place in new.tolist())
                    texts = [
                        keys.get(place) or key_of_name(name) or name
                        for place, name in zip(new.tolist(), hosts_of_new, strict=True)
                    ]
                    self._rule_new(draft, new, slots, queues, homes, crawls, texts)
        return queues, known_queues, queue_rows

    def _fill_heads(
        self, heads: Any, links: Arrivals, rows: npt.NDArray[np.intp], crawls: npt.NDArray[np.uint32], draft: Draft
    ) -> None:
        """Fills the heads of new URLs: order, due time, state, priority, class, and the fields of the links."""
        heads["order"] = np.arange(draft.order, draft.order + len(rows), dtype=np.uint64)
        draft.order += len(rows)
        if is_constant(links.due) and links.due[0] == NO_DUE:
            heads["due"], heads["state"] = draft.now, QUEUED
        else:
            due = chosen(links.due, rows)
            heads["due"] = np.where(due == NO_DUE, draft.now, due)
            heads["state"] = np.where(heads["due"] > draft.now, WAITING, QUEUED)
        orders = draft.orders()
        priority = self._priorities(links, rows, orders)
        heads["priority"] = priority
        if orders:
            heads["klass"] = _classes_by_crawl(priority, crawls, orders)
        elif is_constant(priority):
            heads["klass"] = min(int(priority[0] * CLASSES), CLASSES - 1)
        else:
            heads["klass"] = np.minimum(priority * CLASSES, CLASSES - 1).astype(np.uint8)
        for name, column in (("crawl", crawls), ("depth", links.depth), ("hops", links.hops)):
            if not is_constant(column):
                heads[name] = column if column is crawls else column[rows]
            elif column[0]:
                heads[name] = column[0]

    def _rule_new(
        self,
        draft: Draft,
        new: npt.NDArray[np.intp],
        slots: Any,
        queues: Any,
        homes: Rows,
        crawls: npt.NDArray[np.uint32],
        keys: Sequence[str],
    ) -> None:
        """Adds facts for new queues whose crawl or key already has rules. new: their places; keys: the text of each."""
        tables = self.tables
        told = tables.rules_of_new(crawls[new], keys), tables.words_ahead(keys, crawls[new])
        for place, rules, ahead in zip(new.tolist(), *told, strict=True):
            if not rules.any():
                continue
            draft.add(Fact.QUEUE_RULES, rules_cells(int(slots[place]), int(queues[place]), rules))
            if ahead in tables.words:  # from now on the queue has them
                draft.add(Fact.QUEUE_RULES, rules_cells(OWN_SLOT, ahead, QueueRules()))
            host = int(homes[place])
            if rules.limit > 1 and host < tables.hosts.count and self._stays_busy(draft, host):
                # A second request may begin during the open one: their beginnings keep the gap.
                floor = max(self._rests.floor_under(rules), self._rests.floor_of_host(host))
                self._rests.whole(draft, host, floor, draft.now, over=False)

    def _stays_busy(self, draft: Draft, host: int) -> bool:
        """Whether a host has open requests that this call does not end."""
        ending = 0 if draft.left is None else np.count_nonzero(draft.left == host)
        return bool(self.tables.hosts.in_flight[host] > ending)

    def _queues_at(self, hosts: npt.NDArray[np.intp], queues: Any) -> Rows:
        """Returns the rows of queues by hash at known hosts, NONE for new queues. Most hosts have one queue."""
        tables = self.tables
        first: Rows = tables.hosts.first_queue[hosts]
        if first.max() < tables.queues.count:
            alone = tables.queues.hash[first.astype(np.intp)] == queues
            if np.count_nonzero(alone) == len(queues):
                return first
        return tables.queues.find(queues)

    def _limit(
        self,
        heads: Any,
        queues: Rows,
        rows: npt.NDArray[np.intp],
        codes: npt.NDArray[np.uint8],
        draft: Draft,
    ) -> bool:
        """Back-pressure: refuses URLs above the limits, or drops queued URLs of lower classes for them. Returns
        whether it refused any."""
        s = self.settings
        if s.when_full in ("spill", "delay") or (s.max_urls is None and s.max_urls_per_queue is None):
            return False
        tables = self.tables
        if tables.urls.unread is not None:
            tables.urls.unread.read(heads["slot"])
        held = tables.urls.backlog.waiting(np.where(queues == NONE, 0, queues)).astype(np.int64)
        held[queues == NONE] = 0
        over = np.zeros(len(rows), np.bool_)
        if s.max_urls_per_queue is not None:
            seen_here: dict[int, int] = {}
            for place, queue in enumerate(heads["queue"].tolist()):
                seen_here[queue] = seen_here.get(queue, int(held[place])) + 1
                over[place] = seen_here[queue] > s.max_urls_per_queue
        if s.max_urls is not None:
            room = s.max_urls - (tables.urls.counts[QUEUED] + tables.urls.counts[WAITING] + tables.urls.counts[LEASED])
            inside = np.flatnonzero(~over)
            over[inside[max(0, room) :]] = True
        if not over.any():
            return False
        if s.when_full == "drop_lowest":
            full = np.flatnonzero(over & (queues != NONE))
            for queue, some in by_value(queues[full]):
                places = full[some]
                ranks = heads["priority" if heads["klass"][places[0]] >= ORDERED else "klass"][places]
                victims = self._lowest(draft, queue, ranks.tolist())
                for place, victim in zip(places.tolist(), victims, strict=True):
                    if victim is None:
                        continue
                    draft.move(victim, GONE, Reason.DROPPED, error="dropped")
                    draft.record(victim, QUEUED)
                    draft.tally("dropped", 1)
                    over[place] = False
        heads["state"][over] = UNKNOWN
        codes[rows[over]] = CODE_NUMBERS[Code.OVER_LIMIT]
        if over.any():
            draft.tally("refused", int(over.sum()))
        return bool(over.any())

    def _lowest(self, draft: Draft, queue: int, ranks: Sequence[float]) -> list[CardRecord | None]:
        """Removes a queued URL for each new URL of one queue: the URL that is drawn last, if its class (in an exact
        order: its priority) is below the one in `ranks`; None if there is no such URL. It reads the queue once for all
        of them."""
        backlog = self.tables.urls.backlog
        # In a long queue it compares only some cards on disk: reading all of them for one place costs too much.
        long = int(backlog.waiting(np.array([queue], np.uint32))[0]) > DROP_LOOKS_AT_CARDS
        most = min(len(ranks), DROP_LOOKS_AT_CARDS)
        cards = backlog.unload(queue, most) if long else backlog.drain(queue, DROP_LOOKS_AT_CARDS)
        heads = cards.heads
        name = "priority" if (heads["klass"] >= ORDERED).any() else "klass"
        last_first = np.lexsort((-heads["order"].astype(np.int64), -heads["due"], heads[name]))
        found = heads[name][last_first].tolist()
        victims: list[int | None] = []
        count = 0
        for rank in ranks:
            lower = count < len(found) and found[count] < rank
            victims.append(count if lower else None)
            count += lower
        stay = np.ones(len(cards), np.bool_)
        stay[last_first[:count]] = False
        rest = cards.filter(stay)
        backlog.put(np.full(len(rest), queue, np.uint32), rest)
        dropped = cards.take(last_first[:count])
        draft.drawn.append((np.full(count, queue, np.uint32), dropped))
        return [None if victim is None else CardRecord.of(dropped, victim) for victim in victims]

    def _priorities(
        self, links: Arrivals, rows: npt.NDArray[np.intp], orders: Mapping[int, CrawlOrder]
    ) -> npt.NDArray[np.float64]:
        """Returns the priority of each link, else that of the priority function, else the default."""
        function = self.settings.priority
        if function is None and not orders and is_constant(links.priority) and np.isnan(links.priority[0]):
            return constant_column(PRIORITY_DEFAULT, len(rows), "f8")
        told = links.priority[rows]
        open_ones = np.isnan(told)
        if orders and open_ones.any():
            # No function judges these: it returns no whole numbers.
            ordered = open_ones & np.isin(links.crawl[rows], list(orders))
            told = np.where(ordered, 0.0, told)
            open_ones &= ~ordered
        if not open_ones.any():
            return told
        if function is None:
            return np.where(open_ones, PRIORITY_DEFAULT, told)
        told = told.copy()
        if links.identities is not None:
            # A function judges URLs, and these texts are not URLs.
            for place in [
                place for place in np.flatnonzero(open_ones).tolist() if not has_host(links.urls[rows[place]])
            ]:
                told[place], open_ones[place] = PRIORITY_DEFAULT, False
        for place, some in by_value(links.origin[rows]):
            mask = np.zeros(len(rows), np.bool_)
            mask[some] = True
            mask &= open_ones
            if not mask.any():
                continue
            origin = links.origins[place]
            page = Referrer(origin.referrer, max(origin.depth - 1, 0), origin.priority) if origin.page else None
            chosen = rows[mask]
            signals = {name: column[chosen] for name, column in links.signals.items()}
            batch = links.urls.take(chosen).with_columns(**signals, depth=links.depth[chosen])
            self._core.asked = f"the priority function {name_of(function)}"
            try:
                told[mask] = priorities(function, batch, page)
            finally:
                self._core.asked = ""
        return told

    def _new_hosts(
        self, urls: UrlBatch, rows: npt.NDArray[np.intp], names: Any, hosts: Rows, slots: Any, draft: Draft
    ) -> Rows:
        """Adds facts for new hosts in the order of their appearance, not of hashes. So every store with the same seed
        draws equally. Sets their slots. Returns the rows of all hosts, with the future rows of new hosts."""
        places = np.flatnonzero(hosts == NONE)
        firsts, which = firsts_of(names[places])
        starts, ends = urls.clock_hosts()  # a host that is known with a dot has a row
        chosen = rows[places[firsts]]
        starts, ends = starts[chosen], ends[chosen]
        texts = TextColumn(kernels.gather_spans(urls.arena, starts, ends), (ends - starts).astype(np.uint32))
        found = self._homes.slots_of_spans(urls.arena, starts, ends)
        slots[places] = found[which]
        known = self.tables.hosts
        draft.add_columns(Fact.HOST, [found, names[places[firsts]], texts], KnownRows.of_rows(None, first=known.made))
        homes = hosts.copy()
        homes[places] = known.coming(len(firsts))[which]
        return homes

    def _bodies(self, links: Arrivals, rows: npt.NDArray[np.intp], heads: Any) -> Cards:
        """Returns the cards of links: their heads, and url, referrer and extra in one arena."""
        urls = links.urls
        every = len(rows) == len(urls)  # all rows, in order
        starts, ends = urls.offsets[:-1], urls.offsets[1:]
        if not every:
            starts, ends = starts[rows], ends[rows]
        referrers = [one.referrer.encode("utf-8", "surrogatepass") for one in links.origins]
        if not links.odd and not any(referrers):
            heads["url_bytes"] = lengths = ends - starts
            if every and urls.offsets[-1] == len(urls.arena):
                return Cards(heads, urls.arena, urls.offsets)
            offsets = np.zeros(len(rows) + 1, np.int64)
            np.cumsum(lengths, out=offsets[1:])
            return Cards(heads, kernels.gather_spans(urls.arena, starts, ends), offsets)
        # The spans of each body, piece by piece: url, referrer, and extra if it is not empty.
        sizes = np.array([0, *map(len, referrers)], np.int64).cumsum() + len(urls.arena)
        origin = chosen(links.origin, rows)
        pieces = 3 if links.odd else 2
        begins, stops = np.zeros((len(rows), pieces), np.int64), np.zeros((len(rows), pieces), np.int64)
        begins[:, 0], stops[:, 0] = starts, ends
        begins[:, 1], stops[:, 1] = sizes[origin], sizes[origin + 1]
        arena = [urls.arena, *referrers]
        size = int(sizes[-1])
        for place, row in enumerate(rows.tolist()) if links.odd else ():
            link = links.odd.get(row)
            if link is None:
                continue
            if link.referrer is not None:
                text = link.referrer.encode("utf-8", "surrogatepass")
                begins[place, 1], stops[place, 1] = size, size + len(text)
                arena.append(text)
                size += len(text)
            dated = self._core.signals.fields_of_new(link)
            extra = extra_of(KeptFields(metadata=link.metadata, unique_key=link.unique_key, text=link.text, **dated))
            if extra:
                begins[place, 2], stops[place, 2] = size, size + len(extra)
                arena.append(extra)
                size += len(extra)
        lengths = stops - begins
        for piece, name in enumerate(("url_bytes", "referrer_bytes", "extra_bytes")[:pieces]):
            heads[name] = lengths[:, piece]
        flat = lengths.reshape(-1)
        offsets = np.zeros(len(rows) + 1, np.int64)
        offsets[1:] = flat.cumsum()[pieces - 1 :: pieces]
        return Cards(heads, kernels.gather_spans(b"".join(arena), begins.reshape(-1), stops.reshape(-1)), offsets)

    def spelled(self, urls: Sequence[str], base: str | None = None) -> list[str | None]:
        """Returns canonical texts under the rules of this store, None for a text that is not a URL."""
        texts = spell(urls, base)
        return [None if text is None else self._core.rules.apply(text) for text in texts] if self._core.rules else texts

    def spelled_batch(self, urls: Iterable[Any]) -> UrlBatch:
        return self._ruled(UrlBatch.of(urls, key=self.tables.fingerprint_key))

    def _ruled(self, urls: UrlBatch) -> UrlBatch:
        if not self._core.rules:
            return urls
        texts = urls.strings()
        ruled = UrlBatch.of(self._core.rules.apply_batch(texts) if urls.valid.all() else map(self._ruled_text, texts))
        return ruled.with_columns(**urls.columns) if urls.columns else ruled

    def _ruled_text(self, text: str) -> str:
        return self._core.rules.apply(text) if text else text

    def _to_outbox(
        self,
        links: Arrivals,
        rows: npt.NDArray[np.intp],
        marks: npt.NDArray[np.uint64],
        codes: npt.NDArray[np.uint8],
        draft: Draft,
    ) -> None:
        """Puts links of other logs into the outbox of the slot where they were found, each once in a while: its mark is
        kept as that of a URL accepted lately."""
        codes[rows] = CODE_NUMBERS[Code.HELD]
        firsts, _ = firsts_of(marks)
        if len(firsts) < len(rows):
            codes[rows] = KNOWN
            codes[rows[firsts]] = CODE_NUMBERS[Code.HELD]
            rows, marks = rows[firsts], marks[firsts]
        draft.known.append(marks)
        urls, callers = links.urls, draft.callers()
        targets = self._homes.slots(urls, self._homes.hashes(urls), rows).tolist()
        crawls = {crawl: draft.crawl_name(crawl) for crawl in set(links.crawl[rows].tolist())}
        texts, odds, origins = urls.strings(rows), links.odd, links.origins
        told = links.priority[rows]
        ordered = np.isin(links.crawl[rows], list(self.tables.crawls.orders))
        priorities = np.where(np.isnan(told), np.where(ordered, 0.0, PRIORITY_DEFAULT), told).tolist()
        columns = (links.crawl, links.origin, links.due, links.depth, links.hops, links.seed)
        for place, (crawl, origin_row, due, depth, hops, seed) in enumerate(
            zip(*(column[rows].tolist() for column in columns), strict=True)
        ):
            origin, odd = origins[origin_row], odds.get(int(rows[place])) if odds else None
            source = origin.source if origin.source >= 0 else self._homes.first_slot
            key, referrer, metadata, text, unique_key = "", origin.referrer, b"", texts[place], b""
            if odd is not None:
                key, metadata, unique_key = odd.key or "", odd.metadata, odd.unique_key
                text = odd.text or text
                referrer = referrer if odd.referrer is None else odd.referrer
            draft.add(
                Fact.OUTBOX,
                (
                    *(source, draft.sequence(source), targets[place], crawls[crawl], key, due, priorities[place]),
                    *(depth, hops, int(seed), referrer, metadata, text, int(crawl in callers), unique_key),
                ),
            )

    def outbox(self, most: int) -> list[Row]:
        """Returns up to `most` links for other logs, as OUTBOX rows, in order per source slot."""
        most = arguments.whole("most", most, 0, arguments.INSTANT_MAX)
        rows: list[Row] = []
        for home in self.tables.transit.homes.values():
            if len(rows) >= most:
                break
            if home.outbox:
                rows.extend(home.outbox[number] for number in sorted(home.outbox)[: most - len(rows)])
        return rows

    def receive(self, parcels: Sequence[Row], now: Instant) -> list[Code]:
        """Accepts OUTBOX rows of other logs: each (source slot, sequence) once, however often it arrives. Raises
        SettingsError for a value that is not such a row."""
        rows = arguments.parcels(parcels)
        now = self._core.advance(now)
        codes = [Code.KNOWN] * len(rows)
        costs = np.array(
            [LINK_BYTES + sum(len(row[place] or b"") for place in (3, 4, 10, 11, 12, 14)) for row in rows], np.int64
        )
        for first, last in pieces_of(costs, CALL_BYTES_PER_FRAME):
            draft = self._core.draft(now)
            codes[first:last] = self._received(rows[first:last], draft)
            self._core.commit(draft)
        return codes

    def _received(self, rows: Sequence[Sequence[Any]], draft: Draft) -> list[Code]:
        """Returns one code per parcel. The draft also notes the highest sequence that arrived."""
        wanted: list[Arrival] = []
        taken: list[int] = []
        codes = [Code.KNOWN] * len(rows)
        marks: dict[tuple[int, int], int] = {}
        crawls: dict[tuple[str, Unique], int] = {}
        for number, parcel in enumerate(rows):
            source, sequence, target, crawl, key, due, priority, depth, hops, seed, *texts = parcel
            referrer, metadata, url, by_callers, unique_key = texts
            home = self.tables.transit.homes.get(int(target))
            place = (int(target), int(source))
            if int(sequence) <= max(marks.get(place, 0), home.arrived.get(place[1], 0) if home is not None else 0):
                continue
            marks[place] = int(sequence)
            taken.append(number)
            named = str(crawl), Unique.CALLER if by_callers else Unique.URL
            if named not in crawls:
                crawls[named] = draft.crawl_by(*named)
            wanted.append(
                Arrival(
                    str(url),
                    0,
                    int(depth),
                    int(hops),
                    float(priority),
                    None if due == NO_DUE else int(due),
                    crawls[named],
                    str(key) or None,
                    str(referrer),
                    bytes(metadata),
                    bool(seed),
                    bytes(unique_key),
                )
            )
        for (target, source), sequence in marks.items():
            draft.add(Fact.ARRIVED, (target, source, sequence))
        if wanted:
            numbers = self._accept(self.of_links(wanted, [Origin()], draft), draft)
            for number, code in zip(taken, numbers.tolist(), strict=True):
                codes[number] = CODES[code]
        return codes

    def delivered(self, sequences: Mapping[int, int], now: Instant) -> None:
        """Empties the outboxes of slots up to their sequences, which the other logs have. Raises SettingsError."""
        if not isinstance(sequences, Mapping):
            raise SettingsError(f"sequences is {shown(sequences)}: pass a mapping from slots to their sequences")
        rows = [
            (
                arguments.whole("source", source, 0, SLOTS - 1),
                arguments.whole("sequence", sequence, 0, arguments.INSTANT_MAX),
            )
            for source, sequence in sequences.items()
        ]
        if not rows:
            return
        draft = self._core.draft(self._core.advance(now))
        for row in rows:
            draft.add(Fact.DELIVERED, row)
        self._core.commit(draft, reserve=True)


def _classes_by_crawl(
    priority: npt.NDArray[np.float64], crawls: npt.NDArray[np.uint32], orders: Mapping[int, CrawlOrder]
) -> npt.NDArray[np.uint8]:
    """Returns the class of each new URL, in stores that have crawls with an exact order."""
    found = classes_of(np.clip(priority, 0.0, 1.0))
    for crawl, order in orders.items():
        found[crawls == crawl] = class_in(order, 0)
    return found


@lru_cache(maxsize=1_024)
def _salt(crawl: int) -> np.uint64:
    """Returns a number that separates the marks of different crawls."""
    return np.uint64(mixed(np.array([crawl], np.uint64))[0])


def origins_of(cards: Cards, rows: Iterable[int], callers: Set[int]) -> list[Origin]:
    """Returns the pages of these rows, as origins of links that are one link deeper. callers: crawls by unique keys."""
    heads, urls = cards.heads, cards.urls()
    depths, crawls, slots = heads["depth"].tolist(), heads["crawl"].tolist(), heads["slot"].tolist()
    priorities = heads["priority"].tolist()
    return [
        Origin(
            text_of(cards, row) if crawls[row] in callers else urls[row],
            min(depths[row] + 1, DEPTH_MAX),
            crawls[row],
            slots[row],
            priorities[row],
            True,
        )
        for row in rows
    ]
