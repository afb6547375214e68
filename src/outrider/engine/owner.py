"""The owner of a frontier: callers queue, one sync serves many, and nothing is answered before it is durable."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from outrider import clock as clocks
from outrider.clock import ClockFunction, Instant, checked, seconds
from outrider.engine.calls import (
    Gathering,
    InterruptibleCall,
    SmallCall,
    Verb,
    discoveries,
    lease_alone,
    takes_builtins,
)
from outrider.engine.failure import Failure
from outrider.engine.opening import (
    Opening,
    Recovered,
    all_stays,
    check_asking,
    check_options,
    clock_of,
    files_to_look_at,
    give_back,
    judge_recovered,
    let_all_go,
    locked,
    manifest_of,
    notes_of,
    open_log,
    pinned,
    read_store,
)
from outrider.engine.robots_reading import answers_of, read_answers, read_files
from outrider.engine.rounds import Rounds
from outrider.engine.verbs import decision, filled, glance, lengthy, like, served
from outrider.engine.waiting import RINGS_NOT, Bell, waited
from outrider.errors import (
    ClosedError,
    DamagedStoreError,
    ForeignStoreError,
    NestedCallError,
    NoStoreError,
    OutriderError,
    PagesNeedErrandsError,
    SettingsError,
    StoreError,
    StoreFullError,
    StoreInUseError,
    shown,
)
from outrider.frontier.format.facts import PROJECTIONS, STREAMS
from outrider.frontier.machine import Machine
from outrider.frontier.policy.frontier_settings import FrontierSettings
from outrider.frontier.state import recovery
from outrider.frontier.state.tables import Tables
from outrider.frontier.state.url_table import STATES
from outrider.frontier.stores.ledger import Key
from outrider.frontier.verbs import arguments
from outrider.frontier.verbs.census import ScheduleCounts
from outrider.frontier.verbs.deciding import Core
from outrider.frontier.verbs.delays import Sum
from outrider.frontier.verbs.leased import Unclaimed
from outrider.frontier.verbs.listing import Reading
from outrider.frontier.verbs.robots_files import NO_HEADS
from outrider.journey import (
    LEASE_KEYWORDS,
    Code,
    Explanation,
    HostStatus,
    Idle,
    LeaseBatch,
    Link,
    ListPage,
    Outcome,
    OutcomeBatch,
    QueueStatus,
    Report,
    RequestId,
    RobotsAnswer,
    RobotsStatus,
    Settled,
    State,
    UrlName,
    UrlNames,
    UrlPriorities,
    UrlStatus,
    Verbs,
    Verification,
    Waits,
    WorkerStatus,
)
from outrider.kernels.card_layout import Heads
from outrider.limits import (
    CHECKPOINT_LISTED_MAX,
    KEPT_URLS_MAX,
    KEPT_URLS_MIN,
    LOOK_PAUSE_SECONDS,
    RECORDS_PER_SCAN,
    REMOTE_PATIENCE_SECONDS,
    RETRIED_ROWS_PER_STEP,
    SLOTS_READ_ROWS,
    VERIFY_PROBLEMS_MAX,
)
from outrider.storage.checkpoint import Checkpoint, checkpoint_name, newest_checkpoint
from outrider.storage.files import Files
from outrider.storage.log import Changelog, Log
from outrider.storage.manifest import MANIFEST_NAME, Manifest
from outrider.storage.memory import MemoryFiles
from outrider.url import UrlBatch

Answer = TypeVar("Answer")
_READS_SLOTS = frozenset(
    {"discover", "lease", "report", "release", "defer", "extend", "rest"}
    | {"note_projection", "note_projections", "note_watermark", "now", "watermarks", "projection"}
    | {"next_ready_seconds", "finished", "at_limit", "pressure"}
)
"""Methods that read the slots they need, or need none (`unread_slots`). Before all others every slot is read."""


@takes_builtins
class Frontier:
    """A URL frontier in this process. Any thread may call it; every method accepts and returns batches.

    Errors: SettingsError for invalid arguments, StoreFullError (retryable) when the disk is full, StoreFailedError
    when the disk refused a write: open the store again, and it replays all acknowledged calls.
    """

    opening: Opening

    def __init__(
        self,
        files: Files,
        machine: Machine,
        log: Log,
        *,
        clock: ClockFunction,
        store: bytes,
        checkpoint: Checkpoint | None,
    ) -> None:
        """Not for callers: `open` and `memory` make frontiers."""
        self._files = files
        self._machine = machine
        self._log = log
        self._clock = clock
        self._store = store
        self._lock = threading.RLock()
        self._caller = 0  # the thread whose call may run functions of callers now
        self._gathering = Gathering(log)
        self._unclaimed: deque[Unclaimed] = deque()  # leases of calls that were given up
        self._sync_turn = threading.Condition()
        self._syncing = False
        self._syncs = Sum()
        self._failure = Failure()
        self._closed = False
        self._process = os.getpid()
        self._last = 0  # the frontier's instant at the last call
        self._heard = 0  # the clock's answer at that time
        self._stepped_back = False  # the clock was set back since then, and hosts have not rested for it yet
        self._read_only = False
        self._rounds = Rounds(files, machine, log, self._failure, store=store, newest=checkpoint)
        self._bell = Bell()
        self._socket: StoreSocket | None = None

    # -- opening and closing ------------------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] | Files,
        *,
        clock: ClockFunction | None = None,
        seed: int = 0,
        settings: Mapping[str, object] | None = None,
        robots: str = "errands",
        addresses: str = "caller",
        output: bool = False,
        slots: frozenset[int] | None = None,
        keys: tuple[bytes, bytes] | None = None,
        judge: Callable[[Recovered], None] | None = None,
        control: bool = True,
        changelog: Changelog | None = None,
    ) -> Frontier:
        """Opens the store in a directory, and makes it if it is missing.

        clock: returns instants (int microseconds); by default the wall clock at opening, or the last logged instant if
        that is later, plus the elapsed time. seed: of all random choices. settings: names as the options of `crawl`.
        robots: with "errands" a page is leased only after the robots.txt of its authority was reported; with "caller"
        your program passes each file to `set_robots`, and until then pages of that authority are leased unchecked.
        addresses: for hosts that are grouped by address (docs/groups.md): with "caller" your program passes them to
        `set_address`, with "errands" a page is leased only after the address of its host was reported. output: keeps
        the lines of outcomes, for `lines`. slots: the slots of a new store, None for all; links of other slots are
        answered `held` and wait in the `outbox`. A store keeps its slots, and later openings may leave them out. keys:
        the pair of a cluster (of fingerprints, of slots; 16 bytes each) for a new store; by default two random ones.
        judge: is called before anything is written; if it raises, the store is not changed. control: whether
        control.sock in the directory answers `outrider status`, `hosts`, `explain` and similar commands while this
        process has the store. changelog: gets each frame of the log, and is waited for before a call answers. Then the
        last owner may be another machine: its clock may differ, and requests of its leases may still run, so their
        hosts get none until the deadlines of these leases plus one delay.
        Raises StoreInUseError, DamagedStoreError, ForeignStoreError, StoreFullError, SettingsError.
        """
        check_options(clock, seed, slots, keys, robots=robots, addresses=addresses)
        arguments.flag("control", control)
        options = FrontierSettings.of(settings)
        files = locked(path)
        log: Log | None = None
        tables: Tables | None = None
        try:
            manifest, fresh = manifest_of(files, clock, keys, options, slots)
            owned = slots if manifest.owned is None else manifest.owned
            options = pinned(files, manifest, options)
            store = manifest.store_bytes
            # Read before any write except tails, which are removed again: an unreadable store is not changed.
            began = checked(clock()) if clock is not None else clocks.wall()
            checkpoint, tables, looked, note = read_store(
                files, manifest, scratch=files, now=began, memory_bytes=options.memory_bytes
            )
            judge_recovered(judge, tables, looked)
            for part in tables.kept_in_runs():
                part.remove_leftovers()
            log = open_log(files, store, checkpoint, changelog=changelog)
            core = _core(tables, log, options, manifest, owned, robots, addresses, seed=seed, keeps_lines=output)
            takeover = changelog is not None
            source, at, passed, step = clock_of(tables, clock, takeover=takeover)
            frontier = cls(files, Machine(core), log, clock=source, store=store, checkpoint=checkpoint)
            frontier._rounds.keeps_schedule = not takeover  # the directory of a node may be made anew from a snapshot
            frontier._begin(
                at, passed, step, fresh=fresh, callers_clock=clock is not None, takeover=takeover, note=note
            )
            if control and isinstance(path, str | os.PathLike):
                frontier._socket = _socket_in(os.path.abspath(path), frontier)
        except BaseException:
            let_all_go(files, log, tables)
            raise
        return frontier

    def _begin(
        self,
        at: Instant,
        passed: Instant | None,
        step: float,
        *,
        fresh: bool,
        callers_clock: bool,
        takeover: bool,
        note: str,
    ) -> None:
        """Writes the opening down, and makes what schedules. note: a sentence about the files that were read."""
        machine, log, registry = self._machine, self._log, self._machine.tables.registry
        previous = registry.closed or ("crashed" if registry.opening[0] else "")
        number = registry.opening[0] + 1
        log.continue_as(number)
        boot = "" if callers_clock else clocks.boot()
        opening = (number, at, clocks.wall(), boot, clocks.elapsed())
        ended = machine.opening.open_facts(opening, at, passed, takeover=takeover)
        with contextlib.suppress(StoreFullError):  # then the next opening plans the others
            machine.opening.plan_done_pages(at)
        log.sync()
        with all_stays():
            machine.opening.settle_all(at)
        with contextlib.suppress(StoreFullError):  # then old verdicts apply until the next opening
            machine.robots.ask_sooner(at)
        self._last, self._heard = at, checked(self._clock())
        notes = [*notes_of(log, previous, ended, step), *([note] if note else [])]
        self.opening = Opening(number, fresh, tuple(notes), step, ended, previous)

    @classmethod
    def memory(
        cls,
        *,
        clock: ClockFunction | None = None,
        seed: int = 0,
        settings: Mapping[str, object] | None = None,
        robots: str = "errands",
        addresses: str = "caller",
    ) -> Frontier:
        """A frontier that is forgotten with the process."""
        frontier = cls.open(
            MemoryFiles(), clock=clock, seed=seed, settings=settings, robots=robots, addresses=addresses
        )
        frontier._rounds.keeps_schedule = False  # it ends with the process
        return frontier

    @classmethod
    def look(
        cls,
        path: str | os.PathLike[str] | Files,
        *,
        settings: Mapping[str, object] | None = None,
        robots: str = "caller",
        addresses: str = "caller",
        judge: Callable[[Recovered], None] | None = None,
    ) -> Frontier:
        """Opens a store for queries only, without owning it: nothing in the directory changes, and verbs that change
        the store are refused. Its clock stops at the last instant of the store.

        settings: those of the store's owner, so that `explain` names its scope, patterns and limits. robots, addresses,
        judge: as for `open`.
        """
        check_asking("robots", robots)
        check_asking("addresses", addresses)
        options = FrontierSettings.of(settings)
        files = files_to_look_at(path)
        try:
            files.lock()
        except StoreInUseError:
            give_back(files)
            raise
        except StoreError:
            pass  # the files belong to another user or are on a read-only mount: no process here can own the store
        log: Log | None = None
        tables: Tables | None = None
        try:
            manifest = Manifest.load(files)
            if manifest is None:
                raise NoStoreError(f"{files.describe()} is empty; use the directory of a store")
            store = manifest.store_bytes
            checkpoint, tables, log, _ = read_store(files, manifest, scratch=None)
            if judge is not None:
                judge(Recovered(tables, log))
            machine = Machine(
                _core(tables, log, pinned(files, manifest, options), manifest, manifest.owned, robots, addresses)
            )
            with all_stays():
                machine.opening.settle_all(tables.now)
            last = tables.now
            frontier = cls(files, machine, log, clock=lambda: last, store=store, checkpoint=checkpoint)
            frontier._read_only = True
            state = tables.registry.closed or "crashed"
            frontier.opening = Opening(tables.registry.opening[0], False, previous_state=state)
        except BaseException:
            let_all_go(files, log, tables)
            raise
        return frontier

    @classmethod
    def connect(
        cls,
        address: str,
        *,
        token: str | None = None,
        ca: str | None = None,
        worker: str | None = None,
        patience_seconds: float = REMOTE_PATIENCE_SECONDS,
    ) -> RemoteFrontier:
        """Returns the frontier of a server (`outrider serve`) at `http://HOST:PORT` or `grpc://HOST:PORT`; with TLS,
        `https://` or `grpcs://`. gRPC needs the extra `grpc`. For the file of a cluster (`cluster.toml`), the frontier
        of all its nodes, without leases.

        token: of the server's file of tokens. ca: a file of certificates to trust. worker: the name under which URLs
        are leased. patience_seconds: how long a call is repeated while no server answers.
        Raises SettingsError, and UnreachableError.
        """
        from outrider.engine.remote import connect

        return connect(address, token=token, ca=ca, worker=worker, patience_seconds=patience_seconds)

    def close(self, state: str = "stopped") -> None:
        """Stops cleanly; open leases of this process end. `state` is stored: "finished" or "stopped". With "stopped",
        and with 100,000 to 100,000,000 URLs, it makes a checkpoint and keeps the places of all URLs, so that the next
        opening reads no ledger (docs/frontier.md).

        Raises SettingsError, and closes nothing, for another state. Raises StoreFailedError when the stop cannot be
        written, or when a checkpoint of a second thread had failed and no call has reported it yet. The store is closed
        all the same, and its log has all acknowledged calls.
        """
        if self._process != os.getpid():
            self._closed = True  # in a forked child: the store is the parent's
            return
        arguments.name("state", arguments.text("state", state))
        with self._alone():
            if self._closed:
                return
            self._closed = True
            if self._socket is not None:
                self._socket.close()
            try:
                self._rounds.abandon()
                if self._failure.error is None and not self._read_only:
                    self._take_back(self._last_instant())
                    self._machine.opening.note_closing(state, self._last_instant())
                    self._log.sync()
                    urls = self._machine.tables.urls.accepted()
                    kept = KEPT_URLS_MIN <= urls <= KEPT_URLS_MAX
                    if self._rounds.keeps_schedule and state == "stopped" and kept:
                        self._rounds.keep_schedule(self._last_instant())
                self._failure.tell()
            finally:
                let_all_go(self._files, self._log, self._machine.tables)
                self._bell.ring()  # wakes calls that wait for a lease

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close(
                "finished"
                if self._failure.error is None and not self._closed and self._machine.looks.finished()
                else "stopped"
            )
            return
        # The caller gets the error that ended the block; the store replays all acknowledged calls.
        with contextlib.suppress(StoreError):
            self.close()

    # -- the three verbs ----------------------------------------------------------------------------------------------

    def discover(self, links: Iterable[str | Link] | UrlBatch, *, request_id: RequestId | None = None) -> list[Code]:
        """Adds URLs to the frontier. Returns one code per link, in order; an answered link is durable.

        A long input is several frames and is synced once. You may repeat an interrupted call: with `request_id` it
        continues and answers for all links; without, links that were already added are `known`.
        """
        small = SmallCall.discover(links, request_id)
        if small is not None:
            found: list[Code] = self._gathered(small)
            return found
        self._alone()  # also where there is not one link
        codes: list[Code] = []
        for discovery in discoveries(links, request_id):
            codes += self._call("discover", discovery, wait=False)
        self._wait_durable()
        return codes

    @like(Verbs.lease)
    def lease(self, want: int, **named: Any) -> LeaseBatch:
        """Leases up to `want` URLs whose hosts may be visited now, at most `per_queue` of one queue. Returns an empty
        batch if no URL is ready, after waiting `wait_seconds`.

        A lease without `worker` belongs to this process and ends with it; one of a named worker lasts until its
        deadline.
        train_seconds: the last URL of one queue is due within this time, by the known gaps; None: within the lease.
        queues_max: the largest number of queues in one call.
        errands: whether to lease errands too: robots.txt files and addresses of hosts.
        Raises PagesNeedErrandsError if no page can be leased before an errand, and no call has leased errands yet.
        """
        how = filled("lease", LEASE_KEYWORDS, named)
        request_id = how.pop("request_id")
        wait_seconds = arguments.seconds("wait_seconds", how.pop("wait_seconds"))
        now = partial(self._lease, want, how, request_id)
        leases = waited(self._bell, now, self.next_ready_seconds, wait_seconds) if wait_seconds else now()
        if want and not leases and not how["errands"] and self._pages_need_errands():
            raise PagesNeedErrandsError
        return leases

    def _pages_need_errands(self) -> bool:
        """Whether pages wait for robots.txt files or addresses that no call has leased yet."""
        with self._alone():
            return self._machine.looks.pages_need_errands()

    def _lease(self, want: int, how: Mapping[str, Any], request_id: RequestId | None) -> LeaseBatch:
        if self._machine.robots.unread:
            self._read_rules()  # before there are leases, which an interruption would cost
        while True:
            small = SmallCall.lease(want, how, request_id)
            if small is not None:
                leases: LeaseBatch = self._gathered(small)
            else:
                verb = partial(lease_alone, want, {**how, "request_id": request_id})
                leases = self._call("lease", verb, request_id=request_id)
            # A host that is ready and waits for rules to be read need not wait for the next call.
            if leases or leases.lines or not self._machine.robots.unread or not self._read_rules():
                return leases

    def report(
        self,
        outcomes: Sequence[Outcome] | OutcomeBatch,
        links: Sequence[tuple[int, str | Link]] | UrlBatch = (),
        *,
        request_id: RequestId | None = None,
        watermark: tuple[str, bytes] | None = None,
    ) -> Report:
        """Reports the outcomes of leases, and their links: durable together. Returns one code per outcome.

        A long report is several frames. An outcome is never stored without its links, and many links are stored first.
        You may repeat an interrupted report: it continues and answers for all outcomes. After a restart this needs a
        `request_id`; without it, outcomes that were already stored are stale.
        links: (row of the outcome, link), or a UrlBatch with a column `outcome`, in addition to those of an outcome.
        watermark: (archive writer, opaque place) synced before.
        """
        self._read_ahead(answers_of(outcomes))
        small = SmallCall.report(outcomes, links, request_id, watermark) if not self._machine.core.keeps_lines else None
        if small is not None:
            told: Report = self._gathered(small)
            return told
        return self._call(
            "report", lambda m, now: m.reports.report(outcomes, links, now, request_id=request_id, watermark=watermark)
        )

    # -- around them --------------------------------------------------------------------------------------------------

    @decision
    def extend(self, tokens: Sequence[int], ttl_seconds: float) -> Verb[list[Settled]]:
        """These leases live until ttl_seconds from now."""
        return lambda m, now: m.reports.extend(tokens, ttl_seconds, now)

    @served("work", fetches=True, ends=True, path="frontier/release", takes="Tokens", gives="Codes")
    @decision
    def release(self, tokens: Sequence[int]) -> Verb[list[Settled]]:
        """Returns leases unfetched."""
        return lambda m, now: m.reports.release(tokens, now)

    @served("work", fetches=True)
    @decision
    def rest(
        self,
        tokens: Sequence[int],
        seconds: float | Sequence[float | None] | None = None,
        ended_at: Instant | Sequence[Instant | None] | None = None,
    ) -> Verb[list[Settled]]:
        """The requests of these leases are over: their hosts rest from there, and their turns are free. The leases stay
        open, and their outcomes are reported later. seconds: how long each request took, without our own DNS and TLS;
        ended_at: the instant of its end, now by default, never before its lease; of a named worker it counts as now.
        Each is one value for all, or a list with one per token. A request that is over ends no second time: only a
        longer rest counts, also by its outcome. Errands may rest, too. Raises SettingsError and StoreFullError."""
        return lambda m, now: m.requests.rest(tokens, seconds, ended_at, now)

    @served("work", fetches=True, ends=True)
    @decision
    def defer(self, tokens: Sequence[int], until: Instant) -> Verb[list[Settled]]:
        """Returns leases unfetched; their URLs and errands wait until an instant."""
        return lambda m, now: m.reports.defer(tokens, until, now)

    @served("work", fetches=True)
    def set_robots(self, authority: str, status: int | None, body: bytes = b"") -> None:
        """Sets the answer for an authority's robots.txt: an HTTP status (None: no answer) and the body. It is valid
        until the next call for this authority. Once that reports an unreachable file (5xx, 429, None), the old one is
        used for the rest of its day."""
        self._read_ahead([RobotsAnswer(status, body)])
        self._call("set_robots", lambda m, now: m.robots.set_robots(authority, status, body, now))

    @served("work", fetches=True, path="frontier/errands", takes="Wanted", gives="Codes")
    @decision
    def queue_errands(self, kind: str, urls: str | Sequence[str], *, crawl: str | None = None) -> Verb[list[Code]]:
        """Queues an errand for each URL: a request for something other than a page, which `lease(errands=True)` returns
        by the clock of its host. kind: such as "sitemap" or "probe" (docs/traps.md). Each URL is leased once. Its
        outcome ends it, except a redirect (`location`), whose target is the next hop, `retry`, and `again`. Links of
        the outcome become URLs of the crawl. Returns a code per URL: new, known, invalid or over_limit. Raises
        SettingsError and StoreFullError."""
        return lambda m, now: m.errands.queue_errands(kind, urls, crawl, now)

    @decision
    def set_address(self, host: str, address: str | None) -> Verb[None]:
        """The address that a host was found at, given by the caller; None: it is not known any more. It counts for
        groups by address (docs/groups.md), from the host's next offer on."""
        addresses = {arguments.host(host): address}

        def verb(m: Machine, now: Instant) -> None:
            m.notes.set_addresses(addresses, now)

        return verb

    @served("work", fetches=True, path="frontier/addresses", takes="Addresses", gives="Ordered")
    @decision
    def set_addresses(self, addresses: Mapping[str, str | None]) -> Verb[int]:
        """The addresses of many hosts; how many were not known to be there. An address that is known already costs
        nothing."""
        return lambda m, now: m.notes.set_addresses(addresses, now)

    @decision
    def note_projection(self, stream: str, length: int, lsn: int) -> Verb[None]:
        """Notes that a projection is synced to `length` and contains the lines up to `lsn`."""
        return lambda m, now: m.notes.note_projections([(stream, length, lsn)], now)

    @decision
    def note_watermark(self, writer: str, value: bytes) -> Verb[None]:
        """An archive writer is synced up to this place."""
        return lambda m, now: m.notes.note_watermark(writer, value, now)

    @served("work", path="frontier/content", takes="Digests", gives="Seen")
    @glance
    def seen_content(self, digests: Sequence[bytes]) -> list[bool]:
        """Whether content with each digest was accepted for some URL before."""
        digests = arguments.digests(digests)
        self._check()
        return self._machine.looks.seen_content(digests)

    @served("read")
    @glance
    def next_ready_seconds(self) -> float | None:
        """Returns the seconds until a lease is possible, 0 if it is now, None if waiting alone does not help."""
        self._check(reads=False)
        now = self._instant()
        at = self._machine.looks.next_ready(now)
        return None if at is None else seconds(max(0, at - now))

    @property
    def user_agent(self) -> str:
        """The product for which robots.txt files are read."""
        return self._machine.settings.user_agent

    @served("read")
    @glance
    def finished(self) -> bool:
        """Whether nothing is queued, leased, waiting or on an errand."""
        self._check(reads=False)
        return self._machine.looks.finished()

    @served("read")
    @glance
    def at_limit(self) -> bool:
        """Whether work is left that a budget forbids."""
        self._check(reads=False)
        return self._machine.looks.at_limit()

    @served("read")
    @glance
    def pressure(self) -> float:
        """How far the limit of URLs (`max_urls`) is used up; at 1 and above callers do well to bring no more links."""
        self._check(reads=False)
        return self._machine.looks.pressure()

    @served("read")
    @glance
    def status(self, url: UrlName, *, crawl: str | None = None) -> UrlStatus:
        """The state of one URL, by any spelling; in a crawl by unique keys by its unique key (bytes), or by its text
        and key (a Link)."""
        url = arguments.url_name(url)
        arguments.name("crawl", crawl)
        self._check()
        self._instant()
        return self._machine.looks.status(url, crawl)

    @served("read", word="explain", enriched=True, takes="Explain", gives="Explanation")
    @glance
    def explain(self, url: UrlName, *, crawl: str | None = None) -> Explanation:
        """Everything known of one URL, and the one reason why it is not being fetched now. url: as for `status`."""
        url = arguments.url_name(url)
        arguments.name("crawl", crawl)
        self._check()
        return self._machine.reasons.explain(url, crawl, self._instant())

    @served("read", word="why-idle", enriched=True)
    @lengthy
    def explain_idle(self) -> Idle:
        """Why nothing, or no more, can be leased now."""
        return self._looked(lambda m, now: m.looks.explain_idle(now))

    @served("read")
    @glance
    def host(self, name: str) -> HostStatus | None:
        """One host, by any spelling; None for an unknown one."""
        self._check()
        return self._machine.looks.host(name, self._instant())

    @served("work")
    @glance
    def crawl_delays(self, authorities: Sequence[str]) -> list[float | None]:
        """Returns the Crawl-delay of each authority in seconds, 0 without one; None if its rules are unknown."""
        self._check()
        return self._machine.looks.crawl_delays(authorities)

    @served("work", path="frontier/allowed", takes="Urls", gives="Allowed")
    @glance
    def robots_allow(self, urls: Sequence[str]) -> list[bool | None]:
        """Whether robots.txt allows our agent each URL; None where that of its authority was not read. It judges what
        a caller wants to queue as errands; pages are judged when they are leased."""
        self._check()
        return self._machine.looks.robots_allow(urls)

    @served("read")
    @glance
    def workers(self) -> list[WorkerStatus]:
        """Returns the named workers with leases, by name, each with its leases."""
        self._check()
        self._instant()
        return self._machine.looks.workers()

    @served("read")
    @glance
    def held(self, lease_id: int) -> LeaseBatch:
        """Returns the open leases of the call whose first token this is; empty after that lease has ended."""
        self._check()
        self._instant()
        return self._machine.looks.held(lease_id)

    @served("read")
    @lengthy
    def waits(self, *, beyond_seconds: float = 0.0, within_seconds: float | None = None) -> Waits:
        """Returns hosts with URLs that rest for longer than `beyond_seconds`, and at most `within_seconds`."""
        return self._looked(lambda m, now: m.looks.waits(now, beyond_seconds, within_seconds))

    @served("read")
    @glance
    def queues(self, *, crawl: str | None = None, after: str | None = None, limit: int = 100) -> ListPage[QueueStatus]:
        """A piece of the list of queues; `after` is the cursor of the piece before."""
        arguments.name("crawl", crawl)
        self._check()
        return self._machine.looks.queues(crawl, after, limit)

    @served("read", word="hosts", takes="ListHosts", gives="Rows")
    @lengthy
    def hosts(self, *, state: str | None = None, after: str | None = None, limit: int = 100) -> ListPage[HostStatus]:
        """Returns a piece of the list of hosts. state: ready, resting, blocked or empty; with a state a piece may have
        fewer rows than `limit` and still a cursor."""
        return self._looked(lambda m, now: m.looks.hosts(now, state, after, limit))

    def _robots_files(self, after: str | None, bytes_max: int) -> ListPage[tuple[RobotsStatus, bytes]]:
        """Returns a piece of the list of robots.txt files, each with its body, b"" without rules."""
        return self._looked(lambda m, now: m.looks.robots_files(after, bytes_max))

    def _fullest_domains(self, limit: int) -> list[tuple[str, int]]:
        """Returns the registrable domains with the most queued URLs, and their numbers."""
        return self._looked(lambda m, now: m.looks.fullest_domains(limit))

    @served("read", word="urls", takes="ListUrls", gives="Rows")
    @lengthy
    def urls(
        self,
        *,
        state: str | None = None,
        host: str | None = None,
        crawl: str | None = None,
        key: str | None = None,
        reason: str | None = None,
        after: str | None = None,
        limit: int = 1_000,
    ) -> ListPage[UrlStatus]:
        """Returns a piece of the list of URLs, in an order that other writes do not change. host: in any spelling.
        reason: the class of their last error, a rule of traps, or the reason why they are parked or gone."""
        arguments.name("crawl", crawl)
        return self._looked(
            lambda m, now: m.looks.urls(
                state=state, host=host, crawl=crawl, key=key, reason=reason, after=after, limit=limit
            )
        )

    @served("read")
    @lengthy
    def count(
        self, *, state: str | None = None, host: str | None = None, crawl: str | None = None, key: str | None = None
    ) -> int:
        """How many URLs there are, in a state, of a host (by any spelling), a crawl, a key."""
        arguments.name("crawl", crawl)
        return self._looked(lambda m, now: m.looks.count(state=state, host=host, crawl=crawl, key=key))

    # -- what operators do --------------------------------------------------------------------------------------------

    @served("work")
    @decision
    def make_crawl(self, name: str, *, unique: str = "url", order: str = "classes") -> Verb[bool]:
        """Makes a crawl, and returns whether it is new. `discover` makes crawls by itself, with unique="url": URLs with
        one canonical spelling are the same. With unique="caller" the unique key of a link decides, or else its key and
        its URL, byte for byte; scope, traps, rules of spelling and redirects do not apply there. With order="exact" or
        "lifo", priorities are integers that are obeyed exactly; among equal ones the first, or the last, comes first.
        Raises SettingsError for a crawl that was made with other rules."""
        return lambda m, now: m.operators.make_crawl(name, unique, order, now)

    @served("operate", order=True, host_order="pause")
    @decision
    def pause(self, key: str | None = None, *, crawl: str | None = None) -> Verb[int]:
        """Lease nothing of the queues with this key (None: of the whole crawl) until `resume`; how many queues. A key
        that is a host may be spelled in any way, here and below."""
        return lambda m, now: m.operators.pause(key, crawl, now, paused=True)

    @served("operate", order=True, host_order="resume")
    @decision
    def resume(self, key: str | None = None, *, crawl: str | None = None) -> Verb[int]:
        """Lease the paused queues again; how many queues."""
        return lambda m, now: m.operators.pause(key, crawl, now, paused=False)

    @served("operate", order=True, host_order="block")
    @decision
    def block_until(self, until: Instant, key: str | None = None, *, crawl: str | None = None) -> Verb[int]:
        """Lease nothing of these queues before an instant."""
        return lambda m, now: m.operators.block_until(until, key, crawl, now)

    @served("operate", order=True, host_order="delay")
    @decision
    def set_delay(self, delay_seconds: float | None, key: str | None = None, *, crawl: str | None = None) -> Verb[int]:
        """Sets the least gap after a request of these queues; None: that of the settings."""
        return lambda m, now: m.operators.set_delay(delay_seconds, key, crawl, now)

    @served("operate", order=True, host_order="limit")
    @decision
    def set_limit(self, limit: int | None, key: str | None = None, *, crawl: str | None = None) -> Verb[int]:
        """How many requests of each of these queues may be open at once; None: one."""
        return lambda m, now: m.operators.set_limit(limit, key, crawl, now)

    @served("operate", order=True)
    @decision
    def delete(self, key: str | None = None, *, crawl: str | None = None) -> Verb[int]:
        """Deletes the URLs of these queues, or a whole crawl, as if they had never existed. Returns the number of
        queues. A queue's pause, delay and limit remain. An open lease continues until it is reported: the report rests
        the host and is answered with `stale`."""
        return lambda m, now: m.operators.delete(key, crawl, now)

    @served("operate", order=True)
    @decision
    def reprioritise(
        self,
        urls: UrlPriorities,
        priority: float | None = None,
        *,
        crawl: str | None = None,
    ) -> Verb[list[State]]:
        """Sets another priority for URLs, named as for `status`. Returns the state of each."""
        return lambda m, now: m.urls.reprioritise(urls, priority, crawl, now)

    @served("operate", order=True)
    @decision
    def requeue(
        self,
        urls: UrlNames,
        *,
        at: Instant | None = None,
        priority: float | None = None,
        crawl: str | None = None,
    ) -> Verb[list[State]]:
        """Queues known URLs again, in whatever state they are, also done ones; at: makes them wait until this instant.
        Their failed attempts are forgotten. A leased URL is queued again when its lease ends. One that robots.txt or a
        trap rule parked stays parked (`recheck`, `retry`). priority: a new one; None keeps it. Returns the state of
        each URL before."""
        return lambda m, now: m.urls.requeue(urls, at, priority, crawl, now)

    @served("operate", order=True)
    @decision
    def delete_urls(self, urls: UrlNames, *, crawl: str | None = None) -> Verb[list[State]]:
        """Deletes URLs in any state, named as for `status`, as if they had never existed: a link to one is new again.
        An open lease of such a URL ends: its report is answered with `stale`, and its host rests a whole delay. Returns
        the state of each before."""
        return lambda m, now: m.urls.delete(urls, crawl, now)

    @served("operate", order=True, word="retry", takes="Retry", gives="Ordered")
    @lengthy
    def retry(self, *, error: str | None = None, host: str | None = None) -> int:
        """Queues dead letters again: all, or those of an error class or of a host (in any spelling). Returns their
        number. Other calls run between its pieces, so an interrupted call has queued some. Repeat it for the rest."""
        # First those that are due again by time alone, or ended after lost leases.
        count = self._call("retry", partial(_retry, NO_HEADS, error), wait=False)
        after: Key | None = None
        while True:
            heads, after = self._looked(partial(_given_up, error, host, after))
            for first in range(0, len(heads), RETRIED_ROWS_PER_STEP):
                some = heads[first : first + RETRIED_ROWS_PER_STEP]
                count += self._call("retry", partial(_retry, some, error), wait=False)
                time.sleep(LOOK_PAUSE_SECONDS)
            if after is None:
                self._wait_durable()
                return count

    @served("operate", order=True, host_order="recheck")
    @lengthy
    def recheck(self, host: str) -> int:
        """Drops the verdict on each robots.txt of a host (in any spelling): the file is requested again before the
        host's next page, and pages that the verdict ended or parked are queued again. Returns the number of files. Use
        it after you corrected a name, a certificate or a firewall. Raises SettingsError for an unknown host."""
        count, errors = self._call("recheck", lambda m, now: m.operators.recheck(host, now))
        for error in errors:
            self.retry(error=error, host=host)
        return count

    def _ask_sooner(self) -> int:
        """Limits verdicts on robots.txt with a cause on our own side to a minute, because a new worker has arrived."""
        return self._call("ask_sooner", lambda m, now: m.robots.ask_sooner(now))

    def records(self) -> Iterator[dict[str, Any]]:
        """Yields everything about each accepted URL, as JSON values, in the order of acceptance.

        A leased URL counts as queued. Clocks and robots rules belong to hosts and are not included.
        """
        self._read_slots()
        with self._alone():
            self._check()
            orders = self._machine.carried.orders()
        begin = 0
        while begin < len(orders):
            last = min(begin + RECORDS_PER_SCAN, len(orders)) - 1
            with self._alone():
                self._check()
                cards, end = self._machine.carried.cards_between(int(orders[begin]), int(orders[last]))
            for row in range(len(cards)):
                yield self._machine.carried.record_of(cards, row)
            begin = int(orders.searchsorted(end, "right"))

    @served("operate", order=True)
    @decision
    def restore(self, records: Iterable[Mapping[str, Any]]) -> Verb[int]:
        """Adds URLs with the states that `records` returned; known URLs do not change. Returns the number of new ones.
        Raises SettingsError for an invalid record."""
        return lambda m, now: m.carried.restore(records, now)

    @served("operate", order=True)
    @decision
    def put(self, records: Iterable[Mapping[str, Any]]) -> Verb[list[Code]]:
        """As `restore`, but a known URL gets state, reason, due, attempts, priority and metadata of its record; a
        priority or metadata of None stays. An open lease of it ends, and its report will be `stale`. Of several
        records of a URL the last one counts. Returns a code for each record, `new` or `known`. Raises SettingsError for
        an invalid record, and for more than `CALL_ROWS_MAX`; then nothing is changed."""
        return lambda m, now: m.carried.put(records, now)

    @lengthy
    def statistics(self) -> dict[str, object]:
        """Counts for machines; the names of `status --json`."""
        return self._looked(lambda m, now: m.looks.statistics(now)) | self._own_statistics()

    def _metrics(self) -> dict[str, Any]:
        found: dict[str, Any] = self._looked(lambda m, now: m.looks.metrics(now))
        found["statistics"] |= self._own_statistics()
        return found | {"syncs": self._syncs}

    def _parked(self) -> dict[str, int]:
        """How many URLs are parked, by reason; it reads the heads of all URLs of the queues that have some."""
        return self._looked(lambda m, now: m.looks.parked())

    def _tallies(self) -> dict[str, object]:
        """Returns the counts of URLs and fetches in `statistics`, at the same cost for any number of hosts."""
        with self._alone():
            self._check(reads=False)
            return self._machine.looks.tallies()

    @property
    def _in_transit(self) -> int:
        """How many links wait for other stores. Reading it does not wait for other calls."""
        return self._machine.tables.transit.under_way

    def _schedule_counts(self) -> ScheduleCounts | None:
        """Returns counts of hosts whose cost does not grow with the hosts; None while slots are unread."""
        with self._alone():
            self._check(reads=False)
            if self._machine.tables.urls.unread is not None:
                return None
            return self._machine.looks.standing(self._instant())

    def _synced_seconds(self) -> float:
        """The seconds of all syncs of the log."""
        return self._syncs.seconds

    def _own_statistics(self) -> dict[str, object]:
        return {
            "state": self.opening.previous_state if self._read_only else "running",
            "log": self._log.statistics(),
            "checkpoint": self._rounds.statistics(),
            "merges_wait": int(self._rounds.merges_wait),
        }

    @served("operate")
    @lengthy
    def verify(self) -> Verification:
        """Recount everything, and read every byte of manifest, checkpoint, ledger and log again; up to a hundred
        problems."""
        self._read_slots()
        with self._alone():
            self._check()
            tables = self._machine.tables
            checks = chain.from_iterable(part.check() for part in tables.kept_in_runs())
            problems = list(islice(checks, VERIFY_PROBLEMS_MAX))
            if problems:
                # Records that cannot be read cannot be counted.
                counts = {state.value: tables.urls.counts[row] for row, state in enumerate(STATES) if row}
                counts = {"accepted": tables.urls.accepted(), **counts}
            else:
                found = self._machine.looks.verify()
                problems, counts = list(found.problems), dict(found.counts)
            for read in (self._read_manifest, self._read_checkpoint, self._read_log):
                try:
                    read()
                except StoreError as error:
                    problems.append(str(error))
            return Verification(not problems, tuple(problems), counts)

    def _read_manifest(self) -> None:
        if Manifest.load(self._files) is None:
            raise DamagedStoreError(f"{self._files.describe(MANIFEST_NAME)} is gone; restore a copy of it")

    def _read_checkpoint(self) -> None:
        """Reads the newest one to its end. A round that ends meanwhile removes it: then the next one counts. A list of
        the files may miss both, because names come and go while it is read: then they are listed again."""
        missed = 0
        while missed < CHECKPOINT_LISTED_MAX:
            try:
                checkpoint = newest_checkpoint(self._files, store=self._store)
                if checkpoint is None:
                    missed += 1
                    continue
                for _ in checkpoint.ranges():
                    pass
            except FileNotFoundError:
                continue
            return
        if self._rounds.number:
            where = self._files.describe(checkpoint_name(self._rounds.number))
            raise DamagedStoreError(f"{where} is gone, and the log begins behind it; bring it back")

    def _read_log(self) -> None:
        recovery.check(self._log, self._rounds.kept_after())

    @glance
    def now(self) -> Instant:
        """The frontier's instant: int microseconds since 1970, never running backwards."""
        return self._instant()

    @glance
    def watermarks(self) -> dict[str, bytes]:
        """The places that archive writers were synced to, by writer."""
        return dict(self._machine.tables.registry.watermarks)

    @glance
    def projection(self, stream: str) -> tuple[int, int]:
        """(length, LSN) of a projection as last noted; before that (0, 1) once it has a line, else (0, 0)."""
        _check_stream(stream, PROJECTIONS)
        return self._machine.tables.registry.projections.get(stream, (0, 0))

    def lines(self, stream: str, after: int) -> Iterator[tuple[int, bytes]]:
        """Output lines that were logged after an LSN, as (LSN, line)."""
        self._alone()
        _check_stream(stream)
        after = arguments.whole("after", after, 0, arguments.INSTANT_MAX)
        return recovery.lines(self._log, stream, after)

    def _put_back(self, urls: Sequence[str]) -> int:
        """Queues done and gone pages again whose answers are lost. Returns how many."""
        return self._call("put_back", lambda m, now: m.urls.put_back(urls, now))

    def _log_kept_after(self) -> int:
        """Returns the LSN after which the log is needed: for the newest checkpoint, and for lines that no projection
        has noted."""
        with self._alone():
            return self._rounds.kept_after()

    def _note_projections(self, places: Sequence[tuple[str, int, int]]) -> int:
        """As several calls of `note_projection`, in one frame. Returns its LSN, and does not wait for the disk."""
        return self._decide("note_projections", lambda m, now: m.notes.note_projections(places, now))[1]

    # -- between frontiers that own different slots -------------------------------------------------------------------

    @decision
    def outbox(self, most: int) -> Verb[list[tuple[object, ...]]]:
        """Up to `most` links for slots of other frontiers: durable parcels (source slot, sequence, target slot, …)."""
        return lambda m, now: m.links.outbox(most)

    @lengthy
    def receive(self, parcels: Sequence[tuple[object, ...]]) -> list[Code]:
        """Adds parcels of another frontier; each counts once, however often it arrives."""
        return self._call("receive", lambda m, now: m.links.receive(parcels, now))

    @lengthy
    def delivered(self, sequences: Mapping[int, int]) -> None:
        """The receivers have answered for everything from these slots up to their sequences."""
        self._call("delivered", lambda m, now: m.links.delivered(sequences, now), wait=False)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _alone(self) -> contextlib.AbstractContextManager[bool]:
        """Returns the lock, for a call of a thread. Raises NestedCallError inside a call of the same thread, and
        StoreInUseError in a forked child, where a thread that no longer exists may have locked it."""
        if self._process != os.getpid():
            # Its tables are an outdated copy, and its frames would overwrite those of the owner.
            raise StoreInUseError(
                f"process {self._process} opened it, and this is a child of it; open it after the fork"
            )
        if self._caller == threading.get_ident():
            asked = self._machine.core.asked or "something that was given to the call, or that interrupted it,"
            raise NestedCallError(
                f"{asked} may not call the frontier; let it answer from what it is given, and make the call afterwards"
            )
        return self._lock

    def _instant(self) -> Instant:
        self._caller, self._machine.core.asked = threading.get_ident(), "the clock"
        try:
            now = checked(self._clock())
        finally:
            self._caller, self._machine.core.asked = 0, ""
        self._stepped_back = self._stepped_back or now < self._heard
        # After the clock was set back, time stops until the clock has caught up.
        self._heard, self._last = now, max(self._last, now)
        return self._last

    def _last_instant(self) -> Instant:
        """Returns the instant of a call that must be made whatever the clock says."""
        with contextlib.suppress(SettingsError):
            return self._instant()
        return self._last

    def _check(self, *, reads: bool = True) -> None:
        """Raises the reason why no call can be made. reads: whether the call needs all slots, and not only those that
        it reads itself (`unread_slots`)."""
        if self._closed:
            raise ClosedError("open it again to go on")
        torn = self._machine.tables.torn
        if torn is not None:
            what, error = torn
            self._failure.stop(error, f"{what} from the disk")
        self._failure.check()
        unread = self._machine.tables.urls.unread
        if reads and unread is not None:
            # A method that did not call `_read_slots`: it has the lock, so no call can run in between.
            unread.read_all()
            self._machine.core.settle(self._machine.core.now)

    def _check_owner(self) -> None:
        if self._read_only:
            raise ForeignStoreError("it was opened for looking only")

    def _looked(self, look: Callable[[Machine, Instant], Reading[Answer]]) -> Answer:
        """Returns the answer of a query in steps. Other calls run between them, also those of a thread that waits for
        the lock, which a running thread would otherwise lock again at once."""
        self._read_slots()
        with self._alone():
            self._check()
            steps = look(self._machine, self._instant())
        found: Any = None
        while True:
            with self._alone():
                self._check()
                try:
                    reading = steps.send(found)
                except StopIteration as end:
                    answer: Answer = end.value
                    return answer
            found = None
            if reading is None:
                time.sleep(LOOK_PAUSE_SECONDS)
                continue
            try:
                found = reading()
            except Exception:
                with self._alone():
                    self._check()  # the files were closed meanwhile
                raise

    def _call(self, name: str, verb: Verb[Answer], *, wait: bool = True, request_id: RequestId | None = None) -> Answer:
        """Runs a verb alone, then waits outside the lock until its frames are synced. Callers that arrive meanwhile
        share the sync."""
        call = InterruptibleCall(verb, request_id)
        try:
            answer, lsn = self._decide(name, call)
            if wait:
                self._durable(lsn)
        except BaseException:
            self._given_up(call)
            raise
        return answer

    def _gathered(self, small: SmallCall) -> Any:
        """Makes a small call together with the waiting calls: the thread that gets the lock makes all of them, in
        order, and the other threads find theirs done."""
        self._alone()  # before the call joins the others
        try:
            self._gathering.join(small)
            self._make(small)
            answer = small.result()
            self._durable(small.lsn)
        except BaseException:
            self._given_up(small)
            raise
        return answer

    def _make(self, small: SmallCall) -> None:
        lock = self._alone()
        try:
            with lock:
                if not small.made:
                    self._gathering.make(self._decide)
        except BaseException as error:
            with lock:
                self._gathering.leave(small)
            # Raises the error of a joined call in the thread that made it.
            if not small.made or not isinstance(error, Exception):
                raise

    def _given_up(self, call: InterruptibleCall[Any] | SmallCall) -> None:
        """Returns the leases of a call whose answer reaches no caller, at once or with the next call if that is not
        possible now."""
        unclaimed = call.unclaimed()
        if unclaimed is not None:
            self._give_up(unclaimed)

    def _give_up(self, unclaimed: Unclaimed) -> None:
        self._unclaimed.append(unclaimed)
        with contextlib.suppress(OutriderError):  # the caller gets the call's own error
            self._decide("release", lambda m, now: None)

    def _take_back(self, now: Instant) -> None:
        """Returns the leases of cancelled calls; under the lock."""
        with contextlib.suppress(StoreFullError):  # then with a later call
            while self._unclaimed:
                self._machine.reports.unclaim(self._unclaimed[0], now)
                self._unclaimed.popleft()
                self._bell.ring()

    def _make_all(self, calls: Sequence[SmallCall]) -> None:
        """Makes small calls of tasks, which cannot make them later themselves: each gets its answer or its error, or
        the reason why it was not made."""
        with self._alone():
            self._gathering.join(*calls)
            try:
                self._gathering.make(self._decide)
            except BaseException as error:
                self._gathering.leave(*calls)
                told = error if isinstance(error, Exception) else self._failure.next_error()
                for one in calls:
                    if told is not None and not one.made:
                        one.fail(told)
                if told is not error:
                    raise

    def _needs_slots(self, name: str) -> bool:
        """Whether slots must be read before a call of this method."""
        return self._machine.tables.urls.unread is not None and name not in _READS_SLOTS

    def _read_slots(self) -> None:
        """Reads all slots that the opening left for later; other calls run in between."""
        while self._machine.tables.urls.unread is not None:
            with self._alone():
                self._check(reads=False)
                self._machine.core.read_slots(SLOTS_READ_ROWS)
            time.sleep(LOOK_PAUSE_SECONDS)  # so that the lock changes hands

    def _decide(self, name: str, verb: Verb[Answer]) -> tuple[Answer, int]:
        if self._needs_slots(name):
            self._read_slots()
        with self._alone():
            self._check(reads=name not in _READS_SLOTS)
            self._check_owner()
            now = self._instant()
            try:
                self._caller = threading.get_ident()
                if self._stepped_back:
                    self._machine.opening.rest_everybody(now)
                    self._stepped_back = False
                if self._unclaimed:
                    self._take_back(now)
                answer = verb(self._machine, now)
                self._machine.core.read_owed(now)
                if name not in RINGS_NOT:
                    self._bell.ring()
                self._rounds.step(now)
            except SettingsError:
                raise
            except StoreFullError:
                self._machine.tables.urls.seen.give_room()
                self._rounds.give_room()
                raise
            except BaseException as error:
                # Perhaps half applied: only a replay can find out. The next caller must open the store again.
                self._failure.stop(error, f"`{name}`")
                raise
            finally:
                self._caller = 0
            return answer, self._log.appended_lsn

    def _read_ahead(self, answers: Sequence[object]) -> None:
        """Reads the rules of robots.txt files before the call that reports them, which would delay other calls."""
        if not answers:
            return
        read = read_answers(answers, self._machine.settings.user_agent, self._machine.robots.digest_of)
        if read:
            self._decide("report", lambda machine, now: machine.robots.read_now(read))

    def _read_rules(self) -> bool:
        """Read rules that URLs wait for, which were too long for the last call to lease; whether there were any."""
        files, _ = self._decide("lease", lambda machine, now: machine.robots.to_be_read())
        read = read_files(files, self._machine.settings.user_agent)
        self._decide("lease", lambda machine, now: machine.robots.read_now(read))
        return bool(files)

    def _durable(self, lsn: int) -> None:
        """Returns when the frame of this LSN is synced: one caller syncs for all frames before, the other callers
        wait. Before that, waits for records that are written late."""
        self._rounds.wait_for_writer()
        if self._log.synced_lsn >= lsn:
            return
        mine = False
        try:
            with self._sync_turn:
                # Not a queue at the log's own lock: a thread that leaves it would be the first to get in again, alone.
                while self._syncing:
                    self._sync_turn.wait()
                    if self._log.synced_lsn >= lsn:
                        return
                mine = True  # first, so that an interruption anywhere returns the turn
                self._syncing = True
            began = clocks.elapsed()
            self._log.sync()
            self._syncs.add(seconds(clocks.elapsed() - began), 1)
        except OutriderError as error:
            self._failure.stop(error, "a sync of the log")
            raise
        finally:
            if mine:
                with self._sync_turn:
                    self._syncing = False
                    self._sync_turn.notify_all()

    def _wait_durable(self) -> None:
        self._durable(self._log.appended_lsn)

    @lengthy
    def checkpoint(self) -> None:
        """Makes a whole checkpoint now, and drops the log before it. Without room for it the log is kept, and a
        later round tries again.

        Raises StoreFailedError when it failed: the previous one counts, and the store must be opened again.
        """
        with self._alone():
            self._check(reads=False)
            self._check_owner()
            self._rounds.whole(self._instant())

    def __repr__(self) -> str:
        if self._closed:
            return "<Frontier closed>"
        return f"<Frontier {self._files.describe()}: {self._machine!r}>"


def _core(
    tables: Tables,
    log: Log,
    options: FrontierSettings,
    manifest: Manifest,
    owned: frozenset[int] | None,
    robots: str,
    addresses: str,
    *,
    seed: int = 0,
    keeps_lines: bool = False,
) -> Core:
    return Core(
        tables,
        log,
        options,
        slot_key=manifest.slot_key_bytes,
        seed=seed,
        errands=robots == "errands",
        locates=addresses == "errands",
        keeps_lines=keeps_lines,
        owned=owned,
    )


def _given_up(
    error: str | None, host: str | None, after: Key | None, machine: Machine, now: Instant
) -> Reading[tuple[Heads, Key | None]]:
    return machine.looks.given_up(error, host, after)


def _retry(chosen: Heads, error: str | None, machine: Machine, now: Instant) -> int:
    return machine.urls.retry(chosen, error, now)


def _socket_in(directory: str, frontier: Frontier) -> StoreSocket:
    from outrider.engine.store_socket import StoreSocket  # its questions are made from the methods of `Frontier`

    return StoreSocket(directory, frontier)


def _check_stream(stream: object, known: tuple[str, ...] = STREAMS) -> None:
    if not isinstance(stream, str) or stream not in known:
        raise SettingsError(f"stream {shown(stream)}: there are {', '.join(known)}")


if TYPE_CHECKING:
    from outrider.engine.remote import RemoteFrontier
    from outrider.engine.store_socket import StoreSocket

    def _speaks(frontier: Frontier) -> Verbs:
        """Lets the type checker prove that a frontier has the verbs of `journey`."""
        return frontier
