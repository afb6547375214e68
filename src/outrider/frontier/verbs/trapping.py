"""Traps: URLs that a site generates without end are parked when they are drawn, as robots rules park URLs.

Rules look at one URL alone. Returns (policy/returns.py) describe its host, its shape and its domain. Both never judge a
seed, a URL that was fetched before, or a URL that an operator queued again.

The new hosts of a registrable domain are judged together, each by its first page with new content, or by a failed
look-up. They are judged before their address or robots.txt is requested.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from outrider import kernels
from outrider.frontier.format.card_columns import Cards
from outrider.frontier.policy.returns import (
    JUDGED_AGAIN,
    Returns,
    are_good_hosts,
    are_poor_hosts,
    class_of_shape,
    count_level,
    counted,
    has_kinds,
    is_parked,
    kind_of,
    level_reached,
    mirror_of,
    shape_of,
)
from outrider.frontier.state.hosts import Rows
from outrider.frontier.state.url_table import PARKED, Reason
from outrider.frontier.verbs import outcome_columns as verdicts
from outrider.frontier.verbs.deciding import CODE_NUMBERS, Core, Part
from outrider.frontier.verbs.draft import Draft
from outrider.frontier.verbs.forbidden import Forbidden
from outrider.frontier.verbs.gates import FIRST
from outrider.frontier.verbs.host_sizes import HostSizes
from outrider.frontier.verbs.host_trials import HostTrials
from outrider.frontier.verbs.outcome_columns import OutcomeColumns
from outrider.frontier.verbs.paying import Paying
from outrider.journey import Code, is_own_fault
from outrider.kernels.card_layout import Heads
from outrider.kernels.shapes import MAY_HAVE_MONTH, MAY_HAVE_SESSION
from outrider.limits import (
    HOST_FETCHES_COMPARED,
    HOSTS_LET_MAX,
    MIRROR_CHAIN_MAX,
    REDIRECT_HOPS_MAX,
    RETURNS_COPIES_MAX,
    RETURNS_FETCHES_MIN,
    RETURNS_FETCHES_MIN_OF_HOST,
    RETURNS_WINDOW,
    SHAPE_BYTES_MAX,
)
from outrider.url import UrlBatch, host_of, registrable_domain
from outrider.url.lossy_rules import MAY_BE_SESSION, has_session
from outrider.url.traps import BY_HOST_SIZE, BY_HOSTS, BY_MIRROR, BY_NEW_URLS, BY_RETURNS, BY_SESSION, RULES

_TRAP: Final = int(Reason.TRAP)
_MAY_BE_SESSION: Final = MAY_BE_SESSION.encode()
Suspect: TypeAlias = tuple[bool, tuple[int, int] | None]
"""Whether a URL may break a rule by itself, and the names of the returns of its shape and its host."""
GO: Final = (0, None)
"""Neither a trap nor in another class."""
NO_SUCH_NAME: Final = "dns_unknown"
"""The error of a host that has no address."""


class TrialState(Enum):
    """The decision about a host before its address or its robots.txt is requested."""

    GO = "go"
    HELD = "held"  # many new hosts of its domain are tried now, without a result yet
    POOR = "poor"  # the new hosts of its domain had no new content


class UrlMarks(NamedTuple):
    """Marks of URLs, in columns. names: the names under which the returns of shape and host are stored; lengths: in
    bytes; slashes: after the authority; months: whether they may name a month."""

    names: list[tuple[int, int]]
    lengths: npt.NDArray[np.int64]
    slashes: npt.NDArray[np.uint32]
    months: npt.NDArray[np.bool_]


class Trapping(Part):
    """The part of the machine that detects traps."""

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        quantile = self.settings.traps.host_quantile if self.settings.traps is not None else None
        self._sizes = HostSizes(self.tables.returns, self.tables.fingerprint_key, quantile)
        self.walls = Forbidden(self.tables)
        self.payments = Paying(core)
        self.trials = HostTrials(self.tables)
        self._only_ways: set[tuple[int, int]] = set()  # one of each possible mirror in a call
        self._has_poor_hosts = False  # whether any domain was found poor in this run: most crawls meet no such domain
        self._let: dict[str, None] = {}  # hosts of poor domains that are tried all the same

    @property
    def counts_returns(self) -> bool:
        """Whether fetches are counted by host and shape."""
        traps = self.settings.traps
        return traps is not None and (traps.returns_min is not None or traps.host_quantile is not None)

    def _looks_of(self, cards: Cards, rows: npt.NDArray[np.intp]) -> UrlMarks:
        """Returns the marks of the URLs of these cards."""
        starts = cards.offsets[rows]
        lengths = cards.heads["url_bytes"][rows].astype(np.int64)
        how = (self.tables.fingerprint_key, SHAPE_BYTES_MAX, _MAY_BE_SESSION)
        names, slashes, marks = kernels.shapes_of(cards.arena, starts, starts + lengths, *how)
        found = np.frombuffer(names, np.uint64).tolist()
        shapes, marked = found[::2], np.frombuffer(marks, np.uint8)
        for place in (marked & MAY_HAVE_SESSION).nonzero()[0].tolist():
            host, slash, rest = cards.url(int(rows[place])).partition("://")[2].partition("/")
            shapes[place] = self.tables.hash_of(f"{host}\n{shape_of(slash + rest)}")
        months = (marked & MAY_HAVE_MONTH) != 0
        return UrlMarks(list(zip(shapes, found[1::2], strict=True)), lengths, np.frombuffer(slashes, np.uint32), months)

    def _name_of_hosts(self, host: str) -> int | None:
        """Returns the name under which the returns of the new hosts of a host's domain are stored. None if the host is
        the domain itself, with `www` or without, or has no registrable domain."""
        domain = registrable_domain(host)
        if domain is None or host.removeprefix("www.") == domain:
            return None
        return self.tables.hash_of(f"{domain}\nhosts")

    def suspects(self, cards: Cards) -> dict[int, Suspect]:
        """Returns the drawn URLs that are judged, by row. Before the first counted fetch, the names of their returns
        are missing."""
        traps, heads = self.settings.traps, cards.heads
        if traps is None:
            return {}
        fetched = (heads["depth"] == 0) | (heads["status"] != 0) | (heads["attempts"] != 0)
        own = self.tables.crawls.of_callers(heads["crawl"])
        if own is not None:
            fetched |= own
        rows = (~fetched & (heads["reason"] != _TRAP)).nonzero()[0]
        if not len(rows):
            return {}
        looks = self._looks_of(cards, rows)
        odd = traps.may_break(looks.lengths, looks.slashes, looks.months).tolist()
        counts = self.counts_returns and len(self.tables.returns)
        names = looks.names if counts else [None] * len(odd)
        return dict(zip(rows.tolist(), zip(odd, names, strict=True), strict=True))

    def judge(
        self, draft: Draft, slot: int, before: int, url: str, suspect: Suspect, queue: int
    ) -> tuple[int, int | None]:
        """Returns the rule that makes a drawn URL a trap (0: no rule), and its lower class (None: it keeps its own).
        before: its class; suspect: as `suspects` returns it; queue: the row of its queue."""
        traps, (odd, names) = self.settings.traps, suspect
        if traps is None:
            return GO
        broken = traps.rule_of(url, draft.now) if odd else 0
        closed = not broken and self.walls.is_closed(url)
        if broken or names is None:
            return broken, 0 if closed else None
        shape, host = names
        there = draft.returns_seen(host)
        if there.fetched >= HOST_FETCHES_COMPARED and self._is_too_large(there):
            return BY_HOST_SIZE, None
        if traps.returns_min is None:
            return 0, 0 if closed else None
        own = draft.returns_seen(shape)
        others = self._others_of(draft, url, own, host)
        held = self._held_by(draft, (shape, host, *others), traps.returns_min)
        if held is not None:
            poor, mirror = held
            fetched = draft.returns(slot, poor).is_probed()
            if mirror is not None:
                fetched |= draft.returns(slot, mirror).is_sampled() or self._is_only_way(draft, queue, mirror)
                return GO if fetched else (BY_MIRROR, None)
            if fetched:
                return GO
            return BY_SESSION if has_session(url[url.index("/", 8) :]) else BY_RETURNS, None
        if not there.fetched and self._is_of_poor_hosts(draft, slot, url, traps.returns_min):
            return BY_HOSTS, None
        if closed:
            return 0, 0
        if before and not own.fetched and self._are_poor(draft, (host, *others), traps.returns_min):
            # The one trial of a new shape is under way: its other URLs wait until those of known shapes are fetched.
            if own.passed:
                return 0, 0
            draft.returns(slot, shape).passed = 1
        klass = class_of_shape(before, own)
        return 0, klass if klass < before else None

    def _name_of_kind(self, url: str) -> int | None:
        """Returns the name under which the returns of the shapes of a URL's kind are stored; None for a URL without a
        folder."""
        host, slash, rest = url.partition("://")[2].partition("/")
        kind = kind_of(slash + rest)
        return self.tables.hash_of(f"{host}\n{kind}") if kind is not None else None

    def _others_of(self, draft: Draft, url: str, own: Returns, host: int) -> tuple[int, ...]:
        """Returns further names of returns, apart from its host's, that judge a URL of a shape with few fetches."""
        if own.fetched >= RETURNS_FETCHES_MIN or not has_kinds(draft.returns_seen(host)):
            return ()
        kind = self._name_of_kind(url)
        return (kind,) if kind is not None else ()

    def _is_only_way(self, draft: Draft, queue: int, mirror: int) -> bool:
        """Whether a URL of a possible mirror is fetched because its queue has no other URL and its host no open
        lease: its pages may form a chain. mirror: the name of its copies of pages of other hosts."""
        tables, copies = self.tables, draft.returns_seen(mirror)
        if copies.fetched >= MIRROR_CHAIN_MAX * (1 + copies.since) or (self._core.lsn, mirror) in self._only_ways:
            return False
        if tables.leases_at(int(tables.queues.host[queue])):
            return False
        if tables.urls.backlog.waiting(np.array([queue], np.uint32))[0]:
            return False
        self._only_ways = {way for way in self._only_ways if way[0] == self._core.lsn} | {(self._core.lsn, mirror)}
        return True

    @staticmethod
    def _held_by(draft: Draft, names: tuple[int, ...], least: float) -> tuple[int, int | None] | None:
        """Returns the name of the returns for which a URL is parked. If copies of pages of other hosts are the cause,
        also the name of these. None if it is not parked. names: of the returns of its shape, its host and its
        kind."""
        shape, host, *_ = names
        own = draft.returns_seen(shape)
        for name in names[1:]:
            poor = is_parked(own, draft.returns_seen(name), least)
            if poor is None:
                continue
            mirror = mirror_of(shape if poor is own else host)
            copies = draft.returns_seen(mirror)
            if not copies.is_mirror():
                return shape if poor is own else name, None
            if not copies.has_own() or own.since >= RETURNS_COPIES_MAX:
                return shape if poor is own else name, mirror
        return None

    def are_free(self, draft: Draft, cards: Cards, host: int) -> npt.NDArray[np.bool_]:
        """Returns which of these URLs belong to a host and are not to be parked for returns any more. host: the name of
        its returns."""
        least = self.settings.traps.returns_min if self.settings.traps is not None else None
        free = np.zeros(len(cards), np.bool_)
        for row, (shape, there) in enumerate(self._looks_of(cards, np.arange(len(cards))).names):
            if there == host:
                others = self._others_of(draft, cards.url(row), draft.returns_seen(shape), host)
                free[row] = least is None or self._held_by(draft, (shape, host, *others), least) is None
        return free

    @staticmethod
    def _are_poor(draft: Draft, names: tuple[int, ...], least: float) -> bool:
        return any(draft.returns_seen(name).is_poor(least, RETURNS_FETCHES_MIN_OF_HOST) for name in names)

    def _is_too_large(self, host: Returns) -> bool:
        """Whether the host exceeds `host_quantile` and is parked."""
        sizes = self._sizes.at(self._core.lsn)
        return sizes is not None and host.fetched >= sizes.bound

    def _is_of_poor_hosts(self, draft: Draft, slot: int, url: str, least: float) -> bool:
        """Whether a URL of a new host is parked because of the other new hosts of its domain."""
        host = host_of(url)
        name = self._name_of_hosts(host)
        if name is None or not are_poor_hosts(draft.returns_seen(name), least):
            return False
        self._has_poor_hosts = True
        return not self._is_let(draft, slot, name, host)

    def _is_let(self, draft: Draft, slot: int, name: int, host: str) -> bool:
        """Whether a new host of a poor domain is tried all the same: one in many, and then with all its steps."""
        if host in self._let:
            return True
        if not draft.returns(slot, name).is_probed():
            return False
        self._let[host] = None
        if len(self._let) > HOSTS_LET_MAX:
            del self._let[next(iter(self._let))]
        return True

    def judge_host(self, draft: Draft, slot: int, row: int, url: str) -> TrialState:
        """Judges the host of a URL, before it costs a look-up or a robots.txt. row: the row of the host."""
        least = self.settings.traps.returns_min if self.settings.traps is not None else None
        if least is None or self.tables.hosts.answered[row]:
            return TrialState.GO
        name = self._name_of_hosts(host_of(url))
        if name is None:
            return TrialState.GO
        if self._is_of_poor_hosts(draft, slot, url, least):
            return TrialState.POOR
        known = draft.returns_seen(name)
        free = are_good_hosts(known) or are_poor_hosts(known, least) or self.trials.begins(name, row, draft.now)
        return TrialState.GO if free else TrialState.HELD

    def released(self) -> Rows:
        """Returns hosts that waited, and may be tried or parked now."""
        return self.trials.released(self._is_decided, self._core.now)

    def releases(self) -> bool:
        """Whether any host that waited may be tried or parked now."""
        return self.trials.releases(self._is_decided, self._core.now)

    def _is_decided(self, name: int) -> bool:
        """Whether the new hosts of a domain are known to be good or poor."""
        least = self.settings.traps.returns_min if self.settings.traps is not None else None
        known = self.tables.returns.get(name)
        return least is None or are_good_hosts(known) or are_poor_hosts(known, least)

    def count_nameless(self, draft: Draft, slot: int, row: int) -> None:
        """Counts a host without an address, as a new host of its domain without new content."""
        if not self.counts_returns or self.tables.hosts.answered[row]:
            return
        name = self._name_of_hosts(self.tables.hosts.name(row))
        if name is not None:
            draft.returns(slot, name).count(fresh=False, window=RETURNS_WINDOW)
            self.trials.end(name, row)

    def park_new(
        self, urls: UrlBatch, rows: npt.NDArray[np.intp], heads: Heads, codes: npt.NDArray[np.uint8], draft: Draft
    ) -> None:
        """Parks new URLs, except seeds. This affects hosts and registrable domains that have reached their limit in a
        window, and new hosts of poor domains."""
        if self.settings.traps is None:
            return
        if self.settings.traps.returns_min is not None and self._has_poor_hosts:
            self._park_new_hosts(urls, rows, heads, codes, draft, self.settings.traps.returns_min)
        most = self.settings.traps.new_urls_max
        if most is None:
            return
        new = np.flatnonzero(self._may_be_traps(heads))
        if not len(new):
            return
        over = np.zeros(len(rows), np.bool_)
        of_domains = urls.keys("domain")
        domains = set(of_domains.names)
        for where, names in (urls.keys("host"), of_domains):
            told = where[rows[new]]
            order = np.argsort(told, kind="stable")
            each, firsts = np.unique(told[order], return_index=True)
            those = [names[code] for code in each.tolist()]
            texts = [f"{name}\nnew" for name in those]
            hashes = np.frombuffer(kernels.fingerprints(texts, self.tables.fingerprint_key), np.uint64).tolist()
            parts = np.split(new[order], firsts[1:])
            for text, name, here in zip(those, hashes, parts, strict=True):
                if names is not of_domains.names and text in domains:
                    continue  # such a host has one window with its subdomains
                here = here[~over[here]]
                if not len(here):
                    continue
                window = draft.returns(int(heads["slot"][here[0]]), name)
                room = window.room(most, draft.now)
                window.found += min(room, len(here))
                over[here[room:]] = True
        if over.any():
            self._parked_by(draft, heads, over, BY_NEW_URLS)
            codes[rows[over]] = CODE_NUMBERS[Code.PARKED]

    def _may_be_traps(self, heads: Heads) -> npt.NDArray[np.bool_]:
        """Which new URLs may be parked as traps: neither seeds nor URLs of crawls by unique keys."""
        found: npt.NDArray[np.bool_] = (heads["depth"] > 0) & (heads["state"] != PARKED)
        own = self.tables.crawls.of_callers(heads["crawl"])
        return found if own is None else found & ~own

    def _park_new_hosts(
        self,
        urls: UrlBatch,
        rows: npt.NDArray[np.intp],
        heads: Heads,
        codes: npt.NDArray[np.uint8],
        draft: Draft,
        least: float,
    ) -> None:
        """Parks URLs of new hosts, if the other new hosts of their domain had no new content. Their addresses and
        robots.txt are not requested."""
        of_domains = urls.keys("domain")
        told = of_domains.codes[rows]
        poor = {
            code: name
            for code in np.unique(told).tolist()
            if are_poor_hosts(
                draft.returns_seen(name := self.tables.hash_of(f"{of_domains.names[code]}\nhosts")), least
            )
        }
        if not poor:
            return
        new = self._may_be_traps(heads) & np.isin(told, list(poor))
        over = np.zeros(len(rows), np.bool_)
        for place in np.flatnonzero(new).tolist():
            url = urls[int(rows[place])]
            authority, host = url.partition("://")[2].partition("/")[0], host_of(url)
            if host.removeprefix("www.") == of_domains.names[told[place]]:
                continue
            if draft.returns_seen(self.tables.hash_of(f"{authority}\n")).fetched:
                continue
            over[place] = not self._is_let(draft, int(heads["slot"][place]), poor[int(told[place])], host)
        if over.any():
            self._parked_by(draft, heads, over, BY_HOSTS)
            codes[rows[over]] = CODE_NUMBERS[Code.PARKED]

    @staticmethod
    def _parked_by(draft: Draft, heads: Any, mask: npt.NDArray[np.bool_], number: int) -> None:
        rule = RULES[number - 1]
        heads["state"][mask], heads["reason"][mask] = PARKED, Reason.TRAP
        heads["error"][mask] = draft.error_number(rule)
        draft.tally(f"trap.{rule}", int(np.count_nonzero(mask)))

    def count_returns(self, draft: Draft, cards: Cards, outcomes: OutcomeColumns) -> None:
        """Counts the first fetches of these pages by host and shape. A redirect counts at its target. The last redirect
        of a chain counts as old content, so that chains without end are noticed. A redirect to another spelling of its
        own URL and a failure on our own side do not count."""
        self.trials.reports += 1
        chosen, statuses = outcomes.verdicts, outcomes.statuses
        told = (chosen == verdicts.DONE) | (chosen == verdicts.AGAIN) | ((chosen == verdicts.GONE) & (statuses > 0))
        told &= cards.heads["status"] == 0
        own = self.tables.crawls.of_callers(cards.heads["crawl"])
        if own is not None:
            told &= ~own
        for row, error in outcomes.errors.items():
            told[row] &= not is_own_fault(error)
        brought = (chosen != verdicts.GONE) & (statuses < 300)
        for flags in (outcomes.duplicate, outcomes.repeats):
            if flags is not None:
                brought &= ~flags
        told &= (chosen != verdicts.AGAIN) | (statuses // 100 != 3)
        if outcomes.locations:
            rows = np.array(list(outcomes.locations), np.intp)
            told[rows] &= cards.heads["hops"][rows] >= REDIRECT_HOPS_MAX
        rows = told.nonzero()[0]
        least = self.settings.traps.returns_min if self.settings.traps is not None else None
        slots, fresh = cards.heads["slot"].tolist(), brought.tolist()
        first = outcomes.first_copy.tolist() if outcomes.first_copy is not None else [False] * len(fresh)
        foreign = outcomes.foreign_copy.tolist() if outcomes.foreign_copy is not None else [False] * len(fresh)
        for row, (shape, host) in zip(rows.tolist(), self._looks_of(cards, rows).names, strict=True):
            slot, new, there = slots[row], fresh[row], draft.returns(slots[row], host)
            # A host counts for its domain by its first page, and by its first page with new content.
            if not there.fetched or (new and not there.share):
                name = self._name_of_hosts(host_of(cards.url(row)))
                if name is not None:
                    draft.returns(slot, name).count(fresh=new, window=RETURNS_WINDOW)
            named = self._name_of_kind(cards.url(row)) if has_kinds(there) else None
            kind = draft.returns(slot, named) if named is not None else None
            names = (
                (shape, host)
                if named is None or draft.returns_seen(shape).fetched >= RETURNS_FETCHES_MIN
                else (shape, host, named)
            )
            held = self._held_by(draft, names, least) if new and least is not None else None
            counted(draft.returns(slot, shape), there, fresh=new, first_copy=first[row], kind=kind)
            for name in map(mirror_of, (shape, host)):
                if foreign[row] or draft.returns_seen(name).fetched:
                    alien = foreign[row] and not new
                    if new or alien or not first[row]:
                        draft.returns(slot, name).count_foreign(fresh=new, foreign=alien)
            if held is not None and least is not None and self._held_by(draft, names, least) is None:
                there.since = JUDGED_AGAIN
                self._gates.returning[host] = slot, FIRST
            if (step := level_reached(there)) is not None:
                count_level(draft.returns(slot, self._sizes.name_of(step)))

    def returns_text(self, url: str, rule: int) -> str | None:
        """Returns the returns for which a URL is parked by a rule, in words."""
        host_name, slash, rest = url.partition("://")[2].partition("/")
        shape, host = (self.tables.hash_of(f"{host_name}\n{text}") for text in (shape_of(slash + rest), ""))
        if rule == BY_HOSTS:
            name = self._name_of_hosts(host_of(url))
            hosts = self.tables.returns.get(name) if name is not None else Returns()
            told = f"{hosts.fetched} new hosts of its domain were tried, by their first pages and addresses, and lately"
            return f"{told} {100 * hosts.share:.1f} % had new content; {hosts.passed} URLs were drawn since"
        if rule == BY_HOST_SIZE:
            told, sizes = (
                f"{self.tables.returns.get(host).fetched} pages of its host were fetched",
                self._sizes.at(self._core.lsn),
            )
            if sizes is not None:
                told += f"; of {sizes.hosts} hosts with {HOST_FETCHES_COMPARED} or more, {100 * sizes.quantile:g} % "
                told += f"had at most {sizes.most}, and a host may have {sizes.bound} (host_quantile)"
            return told
        own = self.tables.returns.get(shape)
        if rule == BY_MIRROR:
            kept = self.tables.returns.get
            copies = next(
                (one for name in (shape, host) if (one := kept(mirror_of(name))).passed), kept(mirror_of(host))
            )
            return (
                f"{copies.fetched} pages like it were copies of pages of other hosts, and {copies.since} its own; "
                f"{copies.passed} URLs were drawn since, some of which are fetched to find more"
            )
        if own.fetched >= RETURNS_FETCHES_MIN:
            rest = url[url.index("/", 8) :]
            return f"of its shape {shape_of(rest)!r} {_shown(own)}"
        kind = self._name_of_kind(url)
        if kind is not None and (its := self.tables.returns.get(kind)).passed:
            return f"of the shapes of its kind {kind_of(url[url.index('/', 8) :])!r} {_shown(its)}"
        return f"of the new shapes of its host {_shown(self.tables.returns.get(host))}"


def _shown(returns: Returns) -> str:
    return (
        f"{returns.fetched} pages were fetched, and lately {100 * returns.share:.1f} % had new content; "
        f"{returns.passed} URLs were drawn since"
    )
