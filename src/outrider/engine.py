"""One owner per frontier: callers queue, one sync serves many, and nothing is answered before it is durable.

`Frontier` is the synchronous face, `AsyncFrontier` the awaitable one; both put a clock, a lock and a log behind the
machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, islice
from types import TracebackType
from typing import Any, Self, TypeVar

from outrider import clock as clocks
from outrider.clock import ClockFunction, Instant, rfc3339, seconds
from outrider.errors import (
    ClosedError,
    DamagedStoreError,
    ForeignStoreError,
    OutriderError,
    SettingsError,
    StoreError,
    StoreFailedError,
    StoreFullError,
    StoreInUseError,
)
from outrider.frontier import recovery
from outrider.frontier.facts import STREAMS, Fact, encode
from outrider.frontier.ledger import Ledger
from outrider.frontier.machine import Machine
from outrider.frontier.settings import FrontierSettings
from outrider.frontier.tables import COPY_ROWS, LEASES, OWN, RUNS, STATES, Tables
from outrider.journey import (
    Code,
    Explanation,
    HostStatus,
    Idle,
    LeaseBatch,
    Link,
    Outcome,
    OutcomeBatch,
    Page,
    QueueStatus,
    Report,
    RequestId,
    Settled,
    State,
    UrlStatus,
    Verification,
)
from outrider.limits import (
    CHECKPOINT_STEP_BYTES,
    DISCOVER_ROWS_PER_FRAME,
    LOG_BYTES_BEFORE_CHECKPOINT,
    OWN_SLOT,
    RECORDS_PER_SCAN,
    ROUND_PATIENCE_BYTES,
    SMALL_CALL_ROWS_MAX,
    VERIFY_PROBLEMS_MAX,
)
from outrider.storage.checkpoint import Checkpoint, CheckpointWriter, checkpoint_name, newest_checkpoint
from outrider.storage.files import Directory, Files
from outrider.storage.log import Log
from outrider.storage.manifest import MANIFEST_NAME, Manifest
from outrider.storage.memory import MemoryFiles
from outrider.url import PUBLIC_SUFFIX_VERSION, SPELLING_VERSION, Rules, UrlBatch

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Opening:
    """What opening a store found. notes: sentences for people. clock_step_seconds: below 0 when the wall clock was
    set back."""

    number: int
    fresh: bool
    notes: tuple[str, ...] = ()
    clock_step_seconds: float = 0.0
    leases_ended: int = 0
    previous_state: str = ""


class Frontier:
    """A URL frontier in this process. Any thread may call it; every method takes and gives batches.

    Errors: SettingsError for arguments that make no sense, StoreFullError (retryable) when the disk is full,
    StoreFailedError when
    the disk refused a write: open the store again, it replays what was acknowledged.
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
        self._small: deque[_Small] = deque()  # small calls that wait for their turn
        self._sync_turn = threading.Condition()
        self._syncing = False
        self._failure: BaseException | None = None
        self._told = True  # whether a caller was, of the failure
        self._closed = False
        self._process = os.getpid()
        self._last = 0  # the frontier's instant when it was asked last
        self._heard = 0  # what the clock said then
        self._stepped_back = False  # since then, and hosts were not rested yet
        self._read_only = False
        self._covered = checkpoint.start_lsn if checkpoint is not None else 0
        self._checkpoint_bytes = checkpoint.bytes if checkpoint is not None else 0
        self._checkpoint_number = checkpoint.number if checkpoint is not None else 0
        self._patience = 0  # so much log there must be before a round is tried again
        self._round: _Round | None = None
        self._finisher: threading.Thread | None = None
        self._finished_round: tuple[int, int, int] | None = None

    # -- opening and closing ------------------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] | Files,
        *,
        clock: ClockFunction | None = None,
        seed: int = 0,
        settings: Mapping[str, object] | None = None,
        robots: str = "caller",
        output: bool = False,
        slots: frozenset[int] | None = None,
        keys: tuple[bytes, bytes] | None = None,
    ) -> Frontier:
        """Open the store in a directory, making it when there is none.

        clock: gives instants (int microseconds); by default the wall clock at opening, or the last logged instant if
        that is later, plus the time elapsed since. seed: of all random choices. settings: names as the options of
        `crawl`. robots: "caller" judges by `set_robots` alone, "errands" withholds pages until the robots.txt of their
        authority was reported. output: keep the lines that outcomes carry, for `lines`. slots: the slots this frontier
        owns, None for all; links for others are answered `held` and wait in the `outbox`. keys: the pair of a cluster
        (of fingerprints, of slots; 16 bytes each) for a store that is made; by default two random ones.
        Raises StoreInUseError, DamagedStoreError, ForeignStoreError, StoreFullError, SettingsError.
        """
        if robots not in ("caller", "errands"):
            raise SettingsError(f"robots {robots!r}: give caller or errands")
        options = FrontierSettings.of(settings)
        files = _files_of(path)
        try:
            files.lock()
        except BaseException:
            _give_back(files)
            raise
        log: Log | None = None
        tables: Tables | None = None
        try:
            manifest = Manifest.load(files)
            fresh = manifest is None
            if manifest is None:
                manifest = _new_manifest(files, clock, keys, options)
            options = _pinned(files, manifest, options)
            store = manifest.store_bytes
            # Read before anything is written but tails, which go again: a store that cannot be read is left as it is.
            began = clock() if clock is not None else clocks.wall()
            checkpoint, tables, looked = _read(
                files, manifest, scratch=files, now=began, memory_bytes=options.memory_bytes
            )
            looked.close()
            tables.ledger.remove_leftovers()
            log = _open_log(files, store, checkpoint)
            machine = Machine(
                tables,
                log,
                options,
                slot_key=manifest.slot_key_bytes,
                seed=seed,
                errands=robots == "errands",
                keeps_lines=output,
                owned=slots,
            )
            source, at, passed, step = _clock_of(tables, clock)
            frontier = cls(files, machine, log, clock=source, store=store, checkpoint=checkpoint)
            previous = tables.closed or ("crashed" if tables.opening[0] else "")
            number = tables.opening[0] + 1
            log.continue_as(number)
            boot = clocks.boot() if clock is None else ""
            ended = machine.open_facts((number, at, clocks.wall(), boot, clocks.elapsed()), at, passed)
            log.sync()
            with _all_stays():
                machine.settle_all(at)
            frontier._last, frontier._heard = at, source()
            frontier.opening = Opening(number, fresh, tuple(_notes(log, previous, ended, step)), step, ended, previous)
        except BaseException:
            if log is not None:
                log.close()
            _let_go(tables)
            _give_back(files)
            raise
        return frontier

    @classmethod
    def memory(
        cls,
        *,
        clock: ClockFunction | None = None,
        seed: int = 0,
        settings: Mapping[str, object] | None = None,
        robots: str = "caller",
    ) -> Frontier:
        """A frontier that is forgotten with the process."""
        return cls.open(MemoryFiles(), clock=clock, seed=seed, settings=settings, robots=robots)

    @classmethod
    def look(cls, path: str | os.PathLike[str] | Files) -> Frontier:
        """Open a store that nobody owns for looking only: nothing in the directory changes, the verbs are refused."""
        _check_place(path)
        files: Files = Directory(path, create=False, read_only=True) if isinstance(path, str | os.PathLike) else path
        try:
            files.lock()
        except StoreInUseError:
            _give_back(files)
            raise
        except StoreError:
            pass  # it belongs to somebody else or lies on a read-only mount: nobody can own it from here
        log: Log | None = None
        tables: Tables | None = None
        try:
            manifest = Manifest.load(files)
            if manifest is None:
                raise ForeignStoreError(f"{files.describe()} holds no store")
            store = manifest.store_bytes
            checkpoint, tables, log = _read(files, manifest, scratch=None)
            machine = Machine(
                tables,
                log,
                FrontierSettings(),
                slot_key=manifest.slot_key_bytes,
            )
            with _all_stays():
                machine.settle_all(tables.now)
            last = tables.now
            frontier = cls(files, machine, log, clock=lambda: last, store=store, checkpoint=checkpoint)
            frontier._read_only = True
            state = tables.closed or "crashed"
            frontier.opening = Opening(tables.opening[0], False, previous_state=state)
        except BaseException:
            if log is not None:
                log.close()
            _let_go(tables)
            _give_back(files)
            raise
        return frontier

    def close(self, state: str = "stopped") -> None:
        """A clean stop; open leases of this process end. `state` is remembered: "finished" or "stopped".

        Raises StoreFailedError when the stop cannot be written, or when a checkpoint beside the calls had failed and no
        call has said so yet; the store is closed all the same, and what was acknowledged is in its log.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if self._process != os.getpid():
                return  # in a forked child: the store is the parent's
            try:
                self._join_finisher()
                if self._round is not None:
                    self._round.writer.abandon()
                if self._failure is None and not self._read_only:
                    self._machine.note_closing(state, self._instant())
                    self._log.sync()
                self._tell()
            finally:
                self._log.close()
                _let_go(self._machine.tables)
                _give_back(self._files)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close(
                "finished" if self._failure is None and not self._closed and self._machine.finished() else "stopped"
            )
            return
        # The error that ended the block is the one to tell; the store replays what was acknowledged.
        with contextlib.suppress(StoreError):
            self.close()

    # -- the three verbs ----------------------------------------------------------------------------------------------

    def discover(self, links: Iterable[str | Link] | UrlBatch, *, request_id: RequestId | None = None) -> list[Code]:
        """Tell the frontier of URLs: one code per link, in order; what is answered is durable.

        With `request_id` all links are one frame; without, a long input goes in as several and is synced once.
        """
        small = _Small.discover(links, request_id)
        if small is not None:
            found: list[Code] = self._gathered(small)
            return found
        codes: list[Code] = []
        for discovery in _discoveries(links, request_id):
            codes += self._call(discovery, wait=False)
        self._wait_durable()
        return codes

    def lease(
        self,
        want: int,
        *,
        ttl_seconds: float = 60,
        per_queue: int = 1,
        crawl: str | None = None,
        key: str | None = None,
        worker: str | None = None,
        errands: bool = False,
        request_id: RequestId | None = None,
    ) -> LeaseBatch:
        """Up to `want` URLs whose hosts may be visited now, at most `per_queue` of one queue; empty when nothing is
        ready.

        A lease without `worker` belongs to this process and ends with it; one of a named worker lives until its
        deadline.
        errands: whether robots.txt leases are taken too.
        """
        how = {"ttl_seconds": ttl_seconds, "per_queue": per_queue, "crawl": crawl, "key": key, "worker": worker}
        small = _Small.lease(want, how | {"errands": errands}, request_id)
        if small is not None:
            leases: LeaseBatch = self._gathered(small)
            return leases
        return self._call(partial(_lease, want, how | {"errands": errands, "request_id": request_id}))

    def report(
        self,
        outcomes: Sequence[Outcome] | OutcomeBatch,
        links: Sequence[tuple[int, str | Link]] | UrlBatch = (),
        *,
        request_id: RequestId | None = None,
        watermark: tuple[str, bytes] | None = None,
    ) -> Report:
        """Tell what came of leases, and the links found: durable together, one code per outcome.

        links: (row of the outcome, link), or a UrlBatch with a column `outcome`, beside those an outcome carries.
        watermark: (archive writer, opaque place) synced before.
        """
        small = _Small.report(outcomes, links, request_id, watermark) if not self._machine.keeps_lines else None
        if small is not None:
            told: Report = self._gathered(small)
            return told
        return self._call(lambda m, now: m.report(outcomes, links, now, request_id=request_id, watermark=watermark))

    # -- around them --------------------------------------------------------------------------------------------------

    def extend(self, tokens: Sequence[int], ttl_seconds: float) -> list[Settled]:
        """These leases live until ttl_seconds from now."""
        return self._call(lambda m, now: m.extend(tokens, ttl_seconds, now))

    def release(self, tokens: Sequence[int]) -> list[Settled]:
        """Give leases back unfetched."""
        return self._call(lambda m, now: m.release(tokens, now))

    def defer(self, tokens: Sequence[int], until: Instant) -> list[Settled]:
        """Give leases back unfetched; their URLs wait until an instant."""
        return self._call(lambda m, now: m.defer(tokens, until, now))

    def set_robots(self, authority: str, status: int | None, body: bytes = b"") -> None:
        """The answer of an authority's robots.txt, given by the caller: an HTTP status (None: no answer) and the
        body."""
        self._call(lambda m, now: m.set_robots(authority, status, body, now))

    def set_address(self, host: str, address: str | None) -> None:
        """The address that a host was found at, given by the caller; None: it is not known any more. It counts for
        groups by address (docs/groups.md), from the host's next offer on."""
        self.set_addresses({host: address})

    def set_addresses(self, addresses: Mapping[str, str | None]) -> int:
        """The addresses of many hosts; how many were not known to be there. Those that were cost nothing."""
        return self._call(lambda m, now: m.set_addresses(addresses, now))

    def note_projection(self, stream: str, length: int, lsn: int) -> None:
        """A projection is synced to `length` and holds the lines up to `lsn`."""
        self._call(lambda m, now: m.note_projection(stream, length, lsn, now))

    def note_watermark(self, writer: str, value: bytes) -> None:
        """An archive writer is synced up to this place."""
        self._call(lambda m, now: m.note_watermark(writer, value, now))

    def seen_content(self, digests: Sequence[bytes]) -> list[bool]:
        """Whether content with each digest was accepted for some URL before."""
        with self._lock:
            self._check()
            return self._machine.seen_content(digests)

    def next_ready_seconds(self) -> float | None:
        """Seconds until something can be leased, 0 when it can now, None when waiting alone brings nothing."""
        with self._lock:
            self._check()
            now = self._instant()
            at = self._machine.next_ready(now)
            return None if at is None else seconds(max(0, at - now))

    def finished(self) -> bool:
        """Whether nothing is queued, leased, waiting or on an errand."""
        with self._lock:
            self._check()
            return self._machine.finished()

    def at_limit(self) -> bool:
        """Whether work is left that a budget forbids."""
        with self._lock:
            self._check()
            return self._machine.at_limit()

    def pressure(self) -> float:
        """How far the limit of URLs (`max_urls`) is used up; at 1 and above callers do well to bring no more links."""
        with self._lock:
            self._check()
            return self._machine.pressure()

    def status(self, url: str, *, crawl: str | None = None) -> UrlStatus:
        """What is known of one URL, by any spelling."""
        with self._lock:
            self._check()
            self._instant()
            return self._machine.status(url, crawl)

    def explain(self, url: str, *, crawl: str | None = None) -> Explanation:
        """Everything known of one URL, and the one reason why it is not being fetched now."""
        with self._lock:
            self._check()
            return self._machine.explain(url, crawl, self._instant())

    def explain_idle(self) -> Idle:
        """Why nothing, or no more, can be leased now."""
        with self._lock:
            self._check()
            return self._machine.explain_idle(self._instant())

    def queues(self, *, crawl: str | None = None, after: str | None = None, limit: int = 100) -> Page[QueueStatus]:
        """A piece of the list of queues; `after` is the cursor of the piece before."""
        with self._lock:
            self._check()
            return self._machine.queues(crawl, after, limit)

    def hosts(self, *, after: str | None = None, limit: int = 100) -> Page[HostStatus]:
        """A piece of the list of hosts."""
        with self._lock:
            self._check()
            return self._machine.hosts(self._instant(), after, limit)

    def urls(
        self,
        *,
        state: str | None = None,
        host: str | None = None,
        crawl: str | None = None,
        key: str | None = None,
        after: str | None = None,
        limit: int = 1_000,
    ) -> Page[UrlStatus]:
        """A piece of the list of URLs, in an order that stays while others write."""
        with self._lock:
            self._check()
            return self._machine.urls(state=state, host=host, crawl=crawl, key=key, after=after, limit=limit)

    def count(
        self, *, state: str | None = None, host: str | None = None, crawl: str | None = None, key: str | None = None
    ) -> int:
        """How many URLs there are, in a state, of a host, a crawl, a key."""
        with self._lock:
            self._check()
            return self._machine.count(state=state, host=host, crawl=crawl, key=key)

    # -- what operators do --------------------------------------------------------------------------------------------

    def pause(self, key: str | None = None, *, crawl: str | None = None) -> int:
        """Lease nothing of the queues with this key (None: of the whole crawl) until `resume`; how many queues."""
        return self._call(lambda m, now: m.pause(key, crawl, now, paused=True))

    def resume(self, key: str | None = None, *, crawl: str | None = None) -> int:
        """What was paused goes on."""
        return self._call(lambda m, now: m.pause(key, crawl, now, paused=False))

    def block_until(self, until: Instant, key: str | None = None, *, crawl: str | None = None) -> int:
        """Lease nothing of these queues before an instant."""
        return self._call(lambda m, now: m.block_until(until, key, crawl, now))

    def set_delay(self, delay_seconds: float | None, key: str | None = None, *, crawl: str | None = None) -> int:
        """The least gap behind a request of these queues; None: that of the settings."""
        return self._call(lambda m, now: m.set_delay(delay_seconds, key, crawl, now))

    def set_limit(self, limit: int | None, key: str | None = None, *, crawl: str | None = None) -> int:
        """How many requests of each of these queues may be open at once; None: one."""
        return self._call(lambda m, now: m.set_limit(limit, key, crawl, now))

    def delete(self, key: str | None = None, *, crawl: str | None = None) -> int:
        """The URLs of these queues, or a whole crawl, are as if they had never been; how many queues. What was said of
        a queue (a pause, a delay, a limit) stays. A lease that is open goes on until it is reported, which rests the
        host and answers `stale`."""
        return self._call(lambda m, now: m.delete(key, crawl, now))

    def reprioritise(
        self,
        urls: str | Sequence[str] | Mapping[str, float],
        priority: float | None = None,
        *,
        crawl: str | None = None,
    ) -> list[State]:
        """Give URLs another priority; the state of each."""
        return self._call(lambda m, now: m.reprioritise(urls, priority, crawl, now))

    def retry(self, *, error: str | None = None, host: str | None = None) -> int:
        """Dead letters go back to their queues, all or those of an error class or host; how many."""
        return self._call(lambda m, now: m.retry(error, host, now))

    def records(self) -> Iterator[dict[str, Any]]:
        """Everything that belongs to each accepted URL, as JSON values, in the order in which they were accepted.

        A URL that is leased counts as queued; clocks and robots rules belong to hosts and are not told.
        """
        with self._lock:
            self._check()
            orders = self._machine.orders()
        for begin in range(0, len(orders), RECORDS_PER_SCAN):
            last = min(begin + RECORDS_PER_SCAN, len(orders)) - 1
            with self._lock:
                self._check()
                cards = self._machine.cards_between(int(orders[begin]), int(orders[last]))
            for row in range(len(cards)):
                yield self._machine.record_of(cards, row)

    def restore(self, records: Iterable[Mapping[str, Any]]) -> int:
        """Take URLs with the states that `records` told of them; those that are known stay as they are. How many are
        new. Raises SettingsError for a record that makes no sense."""
        return self._call(lambda m, now: m.restore(records, now))

    def statistics(self) -> dict[str, object]:
        """Counts for machines; the names of `status --json`."""
        with self._lock:
            self._check()
            return self._machine.statistics(self._instant()) | {
                "state": self.opening.previous_state if self._read_only else "running",
                "log": self._log.statistics(),
                "checkpoint": {
                    "number": self._checkpoint_number,
                    "bytes": self._checkpoint_bytes,
                    "start_lsn": self._covered,
                },
            }

    def verify(self) -> Verification:
        """Recount everything, and read every byte of manifest, checkpoint, ledger and log again; up to a hundred
        problems."""
        with self._lock:
            self._check()
            tables = self._machine.tables
            problems = list(islice(tables.ledger.check(), VERIFY_PROBLEMS_MAX))
            if problems:
                # Nobody can count what cannot be read.
                counts = {state.value: tables.counts[row] for row, state in enumerate(STATES) if row}
                counts = {"accepted": tables.accepted(), **counts}
            else:
                found = self._machine.verify()
                problems, counts = list(found.problems), dict(found.counts)
            for read in (self._read_manifest, self._read_checkpoint, self._read_log):
                try:
                    read()
                except StoreError as error:
                    problems.append(str(error))
            return Verification(not problems, tuple(problems), counts)

    def _read_manifest(self) -> None:
        if Manifest.load(self._files) is None:
            raise DamagedStoreError(f"{self._files.describe(MANIFEST_NAME)} is gone; bring a copy of it back")

    def _read_checkpoint(self) -> None:
        """Reads the newest one to its end. A round that ends meanwhile removes it: then the next one counts."""
        while (checkpoint := newest_checkpoint(self._files, store=self._store)) is not None:
            try:
                for _ in checkpoint.ranges():
                    pass
            except FileNotFoundError:
                continue
            return
        if self._checkpoint_number:
            where = self._files.describe(checkpoint_name(self._checkpoint_number))
            raise DamagedStoreError(f"{where} is gone, and the log begins behind it; bring it back")

    def _read_log(self) -> None:
        for _ in self._log.replay(self._kept_after()):
            pass

    def now(self) -> Instant:
        """The frontier's instant: int microseconds since 1970, never going back."""
        with self._lock:
            return self._instant()

    def watermarks(self) -> dict[str, bytes]:
        """The places that archive writers were synced to, by writer."""
        with self._lock:
            return dict(self._machine.tables.watermarks)

    def projection(self, stream: str) -> tuple[int, int]:
        """(length, LSN) of a projection as last noted."""
        with self._lock:
            return self._machine.tables.projections[stream]

    def lines(self, stream: str, after: int) -> Iterator[tuple[int, bytes]]:
        """Output lines that were logged after an LSN, as (LSN, line)."""
        if stream not in STREAMS:
            raise SettingsError(f"stream {stream!r}: there are {', '.join(STREAMS)}")
        return recovery.lines(self._log, stream, after)

    # -- between frontiers that own different slots -------------------------------------------------------------------

    def outbox(self, most: int) -> list[tuple[object, ...]]:
        """Up to `most` links for slots of other frontiers: durable parcels (source slot, sequence, target slot, …)."""
        return self._call(lambda m, now: m.outbox(most))

    def receive(self, parcels: Sequence[tuple[object, ...]]) -> list[Code]:
        """Take parcels of another frontier in; each counts once, however often it is brought."""
        return self._call(lambda m, now: m.receive(parcels, now))

    def delivered(self, source: int, sequence: int) -> None:
        """The receiver has answered for everything from this slot up to this sequence."""
        self._call(lambda m, now: m.delivered(source, sequence, now))

    # -- inside -------------------------------------------------------------------------------------------------------

    def _instant(self) -> Instant:
        now = self._clock()
        self._stepped_back = self._stepped_back or now < self._heard
        # Where the clock stepped back, time stands still until it has caught up.
        self._heard, self._last = now, max(self._last, now)
        return self._last

    def _check(self) -> None:
        if self._closed:
            raise ClosedError("open it again to go on")
        if self._process != os.getpid():
            # Its tables are a copy that goes stale, and its frames would lie on those of the owner.
            raise StoreInUseError(
                f"process {self._process} opened it, and this is a child of it; open it after the fork"
            )
        if self._failure is not None:
            self._told = True
            raise StoreFailedError(f"an earlier call failed ({self._failure}); open the store again") from self._failure

    def _tell(self) -> None:
        """Raises what went wrong beside the calls, once."""
        if self._failure is not None and not self._told:
            self._told = True
            if isinstance(self._failure, StoreFailedError):
                raise self._failure
            raise StoreFailedError(f"a checkpoint failed ({self._failure}); open the store again") from self._failure

    def _check_owner(self) -> None:
        if self._read_only:
            raise ForeignStoreError("it was opened for looking only")

    def _call(self, verb: Callable[[Machine, Instant], Answer], *, wait: bool = True) -> Answer:
        """Run a verb alone, then wait outside the lock until its frames are synced: callers that come meanwhile share
        the sync."""
        answer, lsn = self._decide(verb)
        if wait:
            self._durable(lsn)
        return answer

    def _gathered(self, small: _Small) -> Any:
        """Make a small call together with those that wait when its turn comes: whoever gets the lock makes the calls of
        all of them, in their order, and the others find them made."""
        self._small.append(small)
        with self._lock:
            if not small.made:
                self._make_small()
        if small.error is not None:
            raise small.error
        self._durable(small.lsn)
        return small.answer

    def _make_small(self) -> None:
        waiting: list[_Small] = []
        while self._small:
            waiting.append(self._small.popleft())
        for group in _alike(waiting):
            try:
                answers, lsn = self._decide(partial(_together, group))
            except (SettingsError, StoreFullError) as error:
                # One of them may be wrong, or too much for what room is left: each gets its own answer.
                for one in group:
                    one.fail(error) if len(group) == 1 else self._make_alone(one)
                continue
            except BaseException as error:
                for one in waiting:
                    if not one.made:
                        one.fail(error)
                raise
            for one, answer in zip(group, answers, strict=True):
                one.succeed(answer, lsn)

    def _make_alone(self, one: _Small) -> None:
        try:
            (answer,), lsn = self._decide(partial(_together, [one]))
        except (SettingsError, StoreFullError) as error:
            one.fail(error)
        else:
            one.succeed(answer, lsn)

    def _decide(self, verb: Callable[[Machine, Instant], Answer]) -> tuple[Answer, int]:
        with self._lock:
            self._check()
            self._check_owner()
            now = self._instant()
            try:
                if self._stepped_back:
                    self._machine.rest_everybody(now)
                    self._stepped_back = False
                answer = verb(self._machine, now)
                self._checkpoint_step(now)
            except (SettingsError, StoreFullError):
                raise
            except BaseException as error:
                # Half applied, perhaps: only a replay can tell. Whoever calls next is told to open the store again.
                self._failure = error
                raise
            return answer, self._log.appended_lsn

    def _durable(self, lsn: int) -> None:
        """Return when the frame of this LSN is synced: one caller syncs for all who came before it, the others wait."""
        if self._log.synced_lsn >= lsn:
            return
        with self._sync_turn:
            # Not a queue at the log's own lock: whoever comes out of it would be the first to get in again, alone.
            while self._syncing:
                self._sync_turn.wait()
                if self._log.synced_lsn >= lsn:
                    return
            self._syncing = True
        try:
            self._log.sync()
        except OutriderError as error:
            self._failure = error
            raise
        finally:
            with self._sync_turn:
                self._syncing = False
                self._sync_turn.notify_all()

    def _wait_durable(self) -> None:
        self._durable(self._log.appended_lsn)

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def _checkpoint_step(self, now: Instant) -> None:
        """Copy some ranges, or begin or end a round; a call never waits for more than one step."""
        if self._finished_round is not None:
            number, start, size = self._finished_round
            self._finished_round = None
            self._finisher = None
            self._checkpoint_number, self._covered, self._checkpoint_bytes = number, start, size
            self._patience = 0
            self._drop()
            return
        if self._finisher is not None:
            return
        if self._round is None:
            threshold = max(LOG_BYTES_BEFORE_CHECKPOINT, self._checkpoint_bytes // 2, self._patience)
            if self._log.bytes_after(self._covered) > threshold:
                self._begin_round(now)
            return
        round_ = self._round
        try:
            begun = round_.copied_bytes
            while (place := round_.next()) is not None:
                section, first, last = place
                self._copy(round_, section, first, last, now)
                # A slot of a few hosts makes small ranges; one per call, a round over all slots would never end.
                copied = round_.copied_bytes - begun
                if copied >= CHECKPOINT_STEP_BYTES:
                    return
        except StoreFullError:
            # No room for a checkpoint now: the log keeps everything, and a later round tries again.
            round_.writer.abandon()
            self._round = None
            self._try_later()
            return
        self._round = None
        self._finisher = threading.Thread(target=self._finish_round, args=(round_, self._log.appended_lsn), daemon=True)
        self._finisher.start()

    def _copy(self, round_: _Round, section: int, first: int, last: int, now: Instant) -> None:
        payload = encode(now, self._machine.tables.copy(section, first, last))
        round_.writer.add(OWN_SLOT, section, first, self._log.appended_lsn, payload)
        round_.copied_bytes += len(payload)

    def _begin_round(self, now: Instant | None = None) -> None:
        """From here on: what belongs to no slot, the open leases and the ledger are those of this LSN exactly."""
        now = self._instant() if now is None else now
        start = self._log.appended_lsn
        try:
            writer = CheckpointWriter(
                self._files, store=self._store, number=self._checkpoint_number + 1, start_lsn=start
            )
        except StoreFullError:
            self._try_later()
            return
        tables = self._machine.tables
        round_ = _Round(writer, tables.sections(), start)
        try:
            for section in (OWN, LEASES):
                self._copy(round_, section, 0, 1, now)
        except StoreFullError:
            writer.abandon()
            self._try_later()
            return
        except BaseException:
            with contextlib.suppress(StoreError):
                writer.abandon()
            raise
        tables.ledger.freeze()
        self._round = round_

    def _try_later(self) -> None:
        """A round found no room: the log keeps everything, and when it has grown some more the next one is tried."""
        self._patience = self._log.bytes_after(self._covered) + ROUND_PATIENCE_BYTES

    def _finish_round(self, round_: _Round, lsn: int) -> None:
        ledger = self._machine.tables.ledger
        try:
            ledger.write_frozen()
            while ledger.merge():
                pass
            names = ledger.names()
            if names:
                payload = encode(0, [(Fact.RUNS, [[OWN_SLOT] * len(names), names])])
                round_.writer.add(OWN_SLOT, RUNS, 0, lsn, payload)
            self._log.sync()
            size = round_.writer.size
            round_.writer.finish(lsn)
            ledger.settled()
            self._finished_round = (round_.writer.number, round_.start, size)
        except StoreFullError:
            try:
                round_.writer.abandon()
                self._try_later()
                self._finisher = None
            except OutriderError as error:
                self._fail_beside(error)
        except Exception as error:  # noqa: BLE001 - in a thread of its own: whoever calls next is told
            with contextlib.suppress(StoreError):
                round_.writer.abandon()
            self._fail_beside(error)

    def _fail_beside(self, error: Exception) -> None:
        if self._failure is None:
            self._told = False
            self._failure = error

    def checkpoint(self) -> None:
        """Take a whole checkpoint now, and drop the log before it. Where there is no room for it the log is kept, and a
        later round tries again.

        Raises StoreFailedError when it failed: the one before counts, and the store is to be opened again.
        """
        with self._lock:
            self._check()
            self._check_owner()
            try:
                self._end_round()
                if self._round is None:
                    self._begin_round(self._instant())
                while self._round is not None:
                    self._checkpoint_step(self._instant())
                self._end_round()
            except BaseException as error:
                if self._failure is None:
                    self._failure = error
                raise

    def _end_round(self) -> None:
        """Waits for the end of a round that is under way, and raises why it failed."""
        if self._join_finisher():
            self._tell()
            self._checkpoint_step(self._instant())

    def _join_finisher(self) -> bool:
        """Whether the end of a round was under way; it is over now."""
        finisher = self._finisher  # it clears this itself where it finds no room
        if finisher is not None:
            finisher.join()
        return finisher is not None

    def _drop(self) -> None:
        """Drop what the checkpoint and the synced projections have passed."""
        self._log.drop_through(self._kept_after())

    def _kept_after(self) -> int:
        """The log is wanted behind this LSN."""
        through = self._covered
        projected = [lsn for _, lsn in self._machine.tables.projections.values()]
        if self._machine.keeps_lines or any(projected):
            # Also where this process keeps no lines: those of an earlier one are not lost.
            through = min([through, *projected])
        return through

    def __repr__(self) -> str:
        if self._closed:
            return "<Frontier closed>"
        return f"<Frontier {self._files.describe()}: {self._machine!r}>"


class _Round:
    """One checkpoint in the making: what there was when it began, cut into ranges."""

    def __init__(self, writer: CheckpointWriter, sections: list[tuple[int, int]], start: int) -> None:
        self.writer = writer
        self.start = start
        self.copied_bytes = 0
        self._ranges = iter(
            (section, first, min(first + COPY_ROWS[section], rows))
            for section, rows in sections
            if section not in (OWN, LEASES)
            for first in range(0, rows, COPY_ROWS[section])
        )

    def next(self) -> tuple[int, int, int] | None:
        return next(self._ranges, None)


class _Small:
    """A call of few rows, which costs less together with others of its kind; and what came of it."""

    __slots__ = ("answer", "error", "how", "kind", "links", "lsn", "made", "rows", "want")

    def __init__(
        self,
        kind: str,
        rows: Sequence[Any] = (),
        links: Sequence[tuple[int, str | Link]] = (),
        want: int = 0,
        how: Mapping[str, Any] | None = None,
    ) -> None:
        self.kind, self.rows, self.links, self.want, self.how = kind, rows, links, want, how
        self.answer: Any = None
        self.error: BaseException | None = None
        self.lsn = 0
        self.made = False

    @classmethod
    def discover(cls, links: object, request_id: RequestId | None) -> _Small | None:
        """None where the call is long, or must be a frame of its own."""
        if request_id is not None or not isinstance(links, list | tuple) or len(links) > SMALL_CALL_ROWS_MAX:
            return None
        return cls("discover", links)

    @classmethod
    def lease(cls, want: object, how: Mapping[str, Any], request_id: RequestId | None) -> _Small | None:
        if request_id is not None or type(want) is not int or not 0 < want <= SMALL_CALL_ROWS_MAX:
            return None
        if not all(value is None or type(value) in (int, float, str, bool) for value in how.values()):
            return None  # nobody knows what such a value does when it is compared with that of another call
        return cls("lease", want=want, how=how)

    @classmethod
    def report(cls, outcomes: object, links: object, request_id: RequestId | None, watermark: object) -> _Small | None:
        if request_id is not None or watermark is not None or not isinstance(outcomes, list | tuple):
            return None
        if not isinstance(links, list | tuple) or len(outcomes) + len(links) > SMALL_CALL_ROWS_MAX:
            return None
        return cls("report", outcomes, links)

    def succeed(self, answer: object, lsn: int) -> None:
        self.answer, self.lsn, self.made = answer, lsn, True

    def fail(self, error: BaseException) -> None:
        self.error, self.made = error, True


def _alike(calls: Sequence[_Small]) -> Iterator[list[_Small]]:
    """Calls that can be one, in the order in which they came."""
    group: list[_Small] = []
    for one in calls:
        if group and (one.kind != group[0].kind or one.how != group[0].how):
            yield group
            group = []
        group.append(one)
    if group:
        yield group


def _together(calls: Sequence[_Small], machine: Machine, now: Instant) -> list[Any]:
    """One call of the machine for all of these, which are of one kind; the answer of each."""
    first = calls[0]
    if first.kind == "discover":
        codes = machine.discover([link for one in calls for link in one.rows], now)
        return _cut(codes, [len(one.rows) for one in calls])
    if first.kind == "lease":
        leases = machine.lease(sum(one.want for one in calls), now, **(first.how or {}))
        if len(calls) == 1:
            return [leases]
        pieces = _cut(list(leases), [one.want for one in calls])
        # What the call itself decided is told once, to the first.
        told = [leases.lines, *[()] * (len(calls) - 1)]
        return [LeaseBatch(piece, lines=lines, lsn=leases.lsn) for piece, lines in zip(pieces, told, strict=True)]
    starts = [0, *accumulate(len(one.rows) for one in calls)]
    links = [(_row_after(start, link), link) for one, start in zip(calls, starts, strict=False) for link in one.links]
    if len(calls) == 1:
        return [machine.report(first.rows, first.links, now)]
    report = machine.report(
        [outcome for one in calls for outcome in one.rows], [(row, link[1]) for row, link in links], now
    )
    lengths = [len(one.rows) for one in calls]
    return [
        Report(outcomes, found, report.lines if place == 0 else (), report.lsn)
        for place, (outcomes, found) in enumerate(
            zip(_cut(report.outcomes, lengths), _cut(report.links, lengths), strict=True)
        )
    ]


def _row_after(start: int, link: object) -> int:
    """The row of an outcome when calls are joined. Raises SettingsError, which makes each call alone, for a strange
    link."""
    if not isinstance(link, tuple) or len(link) != 2 or type(link[0]) is not int or link[0] < 0:
        raise SettingsError(f"link {link!r:.80}: give (row of the outcome, link)")
    return start + link[0]


def _cut(rows: Sequence[Any], lengths: Sequence[int]) -> list[Any]:
    """Rows in pieces of these lengths; where there are too few, the last pieces are shorter."""
    ends = list(accumulate(lengths))
    return [rows[end - length : end] for end, length in zip(ends, lengths, strict=True)]


def _lease(want: int, how: Mapping[str, Any], machine: Machine, now: Instant) -> LeaseBatch:
    return machine.lease(want, now, **how)


class AsyncFrontier:
    """The same verbs to await: deciding happens on the loop, waiting for the disk in a thread. Small calls of tasks
    that run in the same turn of the loop are made together."""

    def __init__(self, frontier: Frontier) -> None:
        self.sync = frontier
        self._pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="outrider-sync")
        self._small: list[tuple[_Small, asyncio.Future[None]]] = []

    @classmethod
    async def open(
        cls,
        path: str | os.PathLike[str] | Files,
        *,
        clock: ClockFunction | None = None,
        seed: int = 0,
        settings: Mapping[str, object] | None = None,
        robots: str = "caller",
        output: bool = False,
    ) -> AsyncFrontier:
        """As `Frontier.open`."""
        return cls(
            await asyncio.to_thread(
                Frontier.open, path, clock=clock, seed=seed, settings=settings, robots=robots, output=output
            )
        )

    @property
    def opening(self) -> Opening:
        return self.sync.opening

    async def _call(self, verb: Callable[[Machine, Instant], Answer]) -> Answer:
        answer, lsn = self.sync._decide(verb)
        if self.sync._log.synced_lsn < lsn:
            await asyncio.get_running_loop().run_in_executor(self._pool, self.sync._durable, lsn)
        return answer

    async def _gathered(self, small: _Small) -> Any:
        loop = asyncio.get_running_loop()
        made = loop.create_future()
        self._small.append((small, made))
        if len(self._small) == 1:
            loop.call_soon(self._make_small)
        await made
        if small.error is not None:
            raise small.error
        if self.sync._log.synced_lsn < small.lsn:
            await loop.run_in_executor(self._pool, self.sync._durable, small.lsn)
        return small.answer

    def _make_small(self) -> None:
        waiting, self._small = self._small, []
        self.sync._small.extend(small for small, _ in waiting)
        try:
            with self.sync._lock:
                self.sync._make_small()
        except BaseException as error:  # noqa: BLE001 - each of them is told what failed
            for small, _ in waiting:
                if not small.made:
                    small.fail(error)
        for _, made in waiting:
            if not made.done():
                made.set_result(None)

    async def discover(
        self, links: Iterable[str | Link] | UrlBatch, *, request_id: RequestId | None = None
    ) -> list[Code]:
        """As `Frontier.discover`; a long input gives way to others between its pieces."""
        small = _Small.discover(links, request_id)
        if small is not None:
            found: list[Code] = await self._gathered(small)
            return found
        codes: list[Code] = []
        for discovery in _discoveries(links, request_id):
            codes += await self._call(discovery)
        return codes

    async def lease(
        self,
        want: int,
        *,
        ttl_seconds: float = 60,
        per_queue: int = 1,
        crawl: str | None = None,
        key: str | None = None,
        worker: str | None = None,
        errands: bool = False,
        request_id: RequestId | None = None,
    ) -> LeaseBatch:
        """As `Frontier.lease`."""
        how = {"ttl_seconds": ttl_seconds, "per_queue": per_queue, "crawl": crawl, "key": key, "worker": worker}
        small = _Small.lease(want, how | {"errands": errands}, request_id)
        if small is not None:
            leases: LeaseBatch = await self._gathered(small)
            return leases
        return await self._call(partial(_lease, want, how | {"errands": errands, "request_id": request_id}))

    async def report(
        self,
        outcomes: Sequence[Outcome] | OutcomeBatch,
        links: Sequence[tuple[int, str | Link]] | UrlBatch = (),
        *,
        request_id: RequestId | None = None,
        watermark: tuple[str, bytes] | None = None,
    ) -> Report:
        """As `Frontier.report`."""
        small = _Small.report(outcomes, links, request_id, watermark) if not self.sync._machine.keeps_lines else None
        if small is not None:
            told: Report = await self._gathered(small)
            return told
        return await self._call(
            lambda m, now: m.report(outcomes, links, now, request_id=request_id, watermark=watermark)
        )

    async def extend(self, tokens: Sequence[int], ttl_seconds: float) -> list[Settled]:
        """As `Frontier.extend`."""
        return await self._call(lambda m, now: m.extend(tokens, ttl_seconds, now))

    async def release(self, tokens: Sequence[int]) -> list[Settled]:
        """As `Frontier.release`."""
        return await self._call(lambda m, now: m.release(tokens, now))

    async def defer(self, tokens: Sequence[int], until: Instant) -> list[Settled]:
        """As `Frontier.defer`."""
        return await self._call(lambda m, now: m.defer(tokens, until, now))

    async def pause(self, key: str | None = None, *, crawl: str | None = None) -> int:
        """As `Frontier.pause`."""
        return await self._call(lambda m, now: m.pause(key, crawl, now, paused=True))

    async def resume(self, key: str | None = None, *, crawl: str | None = None) -> int:
        """As `Frontier.resume`."""
        return await self._call(lambda m, now: m.pause(key, crawl, now, paused=False))

    async def block_until(self, until: Instant, key: str | None = None, *, crawl: str | None = None) -> int:
        """As `Frontier.block_until`."""
        return await self._call(lambda m, now: m.block_until(until, key, crawl, now))

    async def set_delay(self, delay_seconds: float | None, key: str | None = None, *, crawl: str | None = None) -> int:
        """As `Frontier.set_delay`."""
        return await self._call(lambda m, now: m.set_delay(delay_seconds, key, crawl, now))

    async def set_limit(self, limit: int | None, key: str | None = None, *, crawl: str | None = None) -> int:
        """As `Frontier.set_limit`."""
        return await self._call(lambda m, now: m.set_limit(limit, key, crawl, now))

    async def delete(self, key: str | None = None, *, crawl: str | None = None) -> int:
        """As `Frontier.delete`."""
        return await self._call(lambda m, now: m.delete(key, crawl, now))

    async def reprioritise(
        self,
        urls: str | Sequence[str] | Mapping[str, float],
        priority: float | None = None,
        *,
        crawl: str | None = None,
    ) -> list[State]:
        """As `Frontier.reprioritise`."""
        return await self._call(lambda m, now: m.reprioritise(urls, priority, crawl, now))

    async def retry(self, *, error: str | None = None, host: str | None = None) -> int:
        """As `Frontier.retry`."""
        return await self._call(lambda m, now: m.retry(error, host, now))

    async def explain(self, url: str, *, crawl: str | None = None) -> Explanation:
        """As `Frontier.explain`."""
        return self.sync.explain(url, crawl=crawl)

    async def explain_idle(self) -> Idle:
        """As `Frontier.explain_idle`."""
        return self.sync.explain_idle()

    async def queues(
        self, *, crawl: str | None = None, after: str | None = None, limit: int = 100
    ) -> Page[QueueStatus]:
        """As `Frontier.queues`."""
        return self.sync.queues(crawl=crawl, after=after, limit=limit)

    async def hosts(self, *, after: str | None = None, limit: int = 100) -> Page[HostStatus]:
        """As `Frontier.hosts`."""
        return self.sync.hosts(after=after, limit=limit)

    async def urls(
        self,
        *,
        state: str | None = None,
        host: str | None = None,
        crawl: str | None = None,
        key: str | None = None,
        after: str | None = None,
        limit: int = 1_000,
    ) -> Page[UrlStatus]:
        """As `Frontier.urls`, in a thread: it may read much."""
        look = partial(self.sync.urls, state=state, host=host, crawl=crawl, key=key, after=after, limit=limit)
        return await asyncio.get_running_loop().run_in_executor(self._pool, look)

    async def count(
        self, *, state: str | None = None, host: str | None = None, crawl: str | None = None, key: str | None = None
    ) -> int:
        """As `Frontier.count`, in a thread."""
        look = partial(self.sync.count, state=state, host=host, crawl=crawl, key=key)
        return await asyncio.get_running_loop().run_in_executor(self._pool, look)

    async def set_robots(self, authority: str, status: int | None, body: bytes = b"") -> None:
        """As `Frontier.set_robots`."""
        await self._call(lambda m, now: m.set_robots(authority, status, body, now))

    async def pressure(self) -> float:
        """As `Frontier.pressure`."""
        return self.sync.pressure()

    async def set_address(self, host: str, address: str | None) -> None:
        """As `Frontier.set_address`."""
        await self.set_addresses({host: address})

    async def set_addresses(self, addresses: Mapping[str, str | None]) -> int:
        """As `Frontier.set_addresses`."""
        return await self._call(lambda m, now: m.set_addresses(addresses, now))

    async def note_projection(self, stream: str, length: int, lsn: int) -> None:
        """As `Frontier.note_projection`."""
        await self._call(lambda m, now: m.note_projection(stream, length, lsn, now))

    async def note_watermark(self, writer: str, value: bytes) -> None:
        """As `Frontier.note_watermark`."""
        await self._call(lambda m, now: m.note_watermark(writer, value, now))

    async def seen_content(self, digests: Sequence[bytes]) -> list[bool]:
        """As `Frontier.seen_content`."""
        return self.sync.seen_content(digests)

    async def next_ready_seconds(self) -> float | None:
        """As `Frontier.next_ready_seconds`."""
        return self.sync.next_ready_seconds()

    async def finished(self) -> bool:
        """As `Frontier.finished`."""
        return self.sync.finished()

    async def at_limit(self) -> bool:
        """As `Frontier.at_limit`."""
        return self.sync.at_limit()

    async def status(self, url: str, *, crawl: str | None = None) -> UrlStatus:
        """As `Frontier.status`."""
        return self.sync.status(url, crawl=crawl)

    async def restore(self, records: Iterable[Mapping[str, Any]]) -> int:
        """As `Frontier.restore`."""
        return await self._call(lambda m, now: m.restore(records, now))

    async def statistics(self) -> dict[str, object]:
        """As `Frontier.statistics`."""
        return self.sync.statistics()

    async def verify(self) -> Verification:
        """As `Frontier.verify`, in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self.sync.verify)

    async def close(self, state: str = "stopped") -> None:
        """As `Frontier.close`."""
        await asyncio.to_thread(self.sync.close, state)
        self._pool.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.sync.__exit__, kind, error, trace)
        self._pool.shutdown(wait=False)


def _discoveries(
    links: Iterable[str | Link] | UrlBatch, request_id: RequestId | None
) -> Iterator[Callable[[Machine, Instant], list[Code]]]:
    """The calls that take these links in: one frame each, and one alone where the answer may have to be repeated."""
    if isinstance(links, str):
        raise SettingsError(f"discover takes a list of links, not one text: discover([{links!r}])")
    if request_id is not None:
        yield lambda machine, now: machine.discover(links, now, request_id=request_id)
        return
    if isinstance(links, UrlBatch):
        if len(links) <= DISCOVER_ROWS_PER_FRAME:
            yield partial(_discover, links)
            return
        for start in range(0, len(links), DISCOVER_ROWS_PER_FRAME):
            yield partial(_discover, links[start : start + DISCOVER_ROWS_PER_FRAME])
        return
    rest = iter(links)
    while piece := list(islice(rest, DISCOVER_ROWS_PER_FRAME)):
        yield partial(_discover, piece)


def _discover(links: list[str | Link] | UrlBatch, machine: Machine, now: Instant) -> list[Code]:
    return machine.discover(links, now)


def _open_log(files: Files, store: bytes, checkpoint: Checkpoint | None, *, read_only: bool = False) -> Log:
    """The log behind a checkpoint; its epoch is set when the number of the opening is known."""
    after, synced = (checkpoint.start_lsn, checkpoint.lsn) if checkpoint is not None else (0, 0)
    return Log.open(files, store=store, epoch=0, after=after, synced=synced, read_only=read_only)


def _read(
    files: Files, manifest: Manifest, *, scratch: Files | None, now: Instant = 0, memory_bytes: int | None = None
) -> tuple[Checkpoint | None, Tables, Log]:
    """The newest checkpoint, the tables as the log's end leaves them, and the log, open for reading only. scratch:
    where the tails of queues may lie, None to keep them in memory."""
    store = manifest.store_bytes
    checkpoint = newest_checkpoint(files, store=store)
    ledger = Ledger.open(files, store=store, names=recovery.run_names(checkpoint))
    try:
        log = _open_log(files, store, checkpoint, read_only=True)
    except BaseException:
        ledger.close()
        raise
    try:
        tables = Tables(
            ledger, fingerprint_key=manifest.fingerprint_key_bytes, scratch=scratch, now=now, memory_bytes=memory_bytes
        )
    except BaseException:
        log.close()
        ledger.close()
        raise
    try:
        with _all_stays():
            recovery.load(tables, checkpoint, log)
    except BaseException:
        log.close()
        _let_go(tables)
        raise
    return checkpoint, tables, log


def _let_go(tables: Tables | None) -> None:
    """Gives descriptors back, and the files of tails, which are made anew from the ledger."""
    if tables is not None:
        with contextlib.suppress(StoreError):
            tables.close()
        tables.ledger.close()


@contextlib.contextmanager
def _all_stays() -> Iterator[None]:
    """Recovery makes millions of objects that stay: looking for rubbish among them would be two thirds of its time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _files_of(path: str | os.PathLike[str] | Files) -> Files:
    """The directory at a path, made where it is missing; files that somebody brings are taken as they are."""
    _check_place(path)
    if not isinstance(path, str | os.PathLike):
        return path
    try:
        return Directory(path)
    except FileNotFoundError as error:
        raise StoreError(f"{os.fspath(path)} cannot be made ({error.strerror}); choose another directory") from None


def _check_place(path: str | os.PathLike[str] | Files) -> None:
    """Raises SettingsError for what names no directory, unless it is files that somebody brings."""
    if not isinstance(path, str | os.PathLike):
        if path is None or isinstance(path, int | float | bytes):
            raise SettingsError(f"path {path!r}: give a directory's path as text or a Path")
        return
    where = os.fspath(path)
    try:
        named = bool(where) and b"\0" not in os.fsencode(where)
    except UnicodeEncodeError:
        named = False
    if not named:
        raise SettingsError(f"path {where!r}: it names no directory")


def _give_back(files: Files) -> None:
    files.unlock()
    if isinstance(files, Directory):
        files.close()


def _new_manifest(
    files: Files, clock: ClockFunction | None, keys: tuple[bytes, bytes] | None, options: FrontierSettings
) -> Manifest:
    fingerprint_key, slot_key = keys or (secrets.token_bytes(16), secrets.token_bytes(16))
    return Manifest.create(
        files,
        store=secrets.token_hex(16),
        created=rfc3339(clock() if clock is not None else clocks.wall()),
        fingerprint_key=fingerprint_key.hex(),
        slot_key=slot_key.hex(),
        spelling=SPELLING_VERSION,
        rules={"public_suffix_list": PUBLIC_SUFFIX_VERSION, "url_rules": (options.url_rules or Rules()).text},
    )


def _pinned(files: Files, manifest: Manifest, options: FrontierSettings) -> FrontierSettings:
    """What a store was made with stays in force; changing it would give old URLs new names."""
    if manifest.spelling != SPELLING_VERSION:
        raise ForeignStoreError(
            f"{files.describe()} was made with URL spelling {manifest.spelling}, this is {SPELLING_VERSION}: "
            "open it with the version it was made with"
        )
    rules = Rules.parse(manifest.rules.get("url_rules", ""))
    if options.url_rules is not None and options.url_rules != rules:
        raise SettingsError(
            f"url_rules {options.url_rules.text!r}: {files.describe()} was made with {rules.text!r}, "
            "and other rules would give old URLs new names; leave them out, or choose a new directory"
        )
    return replace(options, url_rules=rules)


def _clock_of(tables: Tables, clock: ClockFunction | None) -> tuple[ClockFunction, Instant, Instant | None, float]:
    """(clock, instant of the opening, real time since the last logged instant if it is known, step of the wall clock
    in seconds)."""
    last = tables.now
    if clock is not None:
        at = clock()
        return clock, max(at, last), max(0, at - last), min(0.0, seconds(at - last))
    wall = clocks.wall()
    at = max(wall, last)
    passed: Instant | None = None
    _, opened_at, _, boot, elapsed = tables.opening
    if boot and boot == clocks.boot():
        # The same start of the machine: what has elapsed since the last logged instant is known whatever the wall
        # clock did.
        since = clocks.elapsed() - (elapsed + last - opened_at)
        passed = since if since >= 0 else None
    return clocks.anchored(at), at, passed, min(0.0, seconds(wall - last)) if last else 0.0


def _notes(log: Log, previous: str, ended: int, step: float) -> list[str]:
    notes = []
    cut = log.statistics()["cut_bytes"]
    if previous == "crashed":
        notes.append("the last run did not end cleanly; what it had acknowledged is here")
    if cut:
        notes.append(f"a torn tail of {cut} bytes was cut off the log (it was never acknowledged)")
    if ended:
        notes.append(f"{ended} leases of the process that died were ended; their hosts rest one whole delay")
    if step < -1.0:
        notes.append(f"the clock was set back by {-step:.0f} s; time goes on from where the last run left it")
    return notes
