"""The loop of a crawl: lease, fetch, read, report, until nothing is left or the user stops it; for a frontier in this
process (`run`) and for one elsewhere (`work`).

Requests run in the event loop. One writer thread writes everything (frontier, archive, line files), one
turn after the other: a turn reports the finished visits and returns the next leases. Leases of visits without an
outcome are extended in another thread, and a request ends before its lease does.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import sys
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, ParamSpec, TypeVar

from outrider.clock import Instant, anchored, instant, wall
from outrider.crawl.output.journal import JOURNAL_FILE, Journal
from outrider.crawl.output.output import Output
from outrider.crawl.output.output_frontier import OutputFrontier
from outrider.crawl.output.summary import counted
from outrider.crawl.run.bottleneck import Bottleneck, Stage
from outrider.crawl.run.concurrency import slow_max
from outrider.crawl.run.copies import Copies
from outrider.crawl.run.fetching import Fetching, NameService
from outrider.crawl.run.hook_failures import HookFailures
from outrider.crawl.run.hooks import HookFailed, Hooks
from outrider.crawl.run.payloads import Payloads
from outrider.crawl.run.probes import Probes
from outrider.crawl.run.reading import Reader, Readings
from outrider.crawl.run.settle import LEASE_SECONDS, Settler, Turn
from outrider.crawl.run.sitemaps import Sitemaps
from outrider.crawl.run.tdm_files import TdmFiles
from outrider.crawl.run.trains import Trains, trains_of
from outrider.crawl.run.visit import Visit, large_bytes, visit_bytes
from outrider.crawl.setup.descriptors import DESCRIPTORS_SPARE, allow_descriptors, open_files
from outrider.crawl.setup.group_settings import groups_of
from outrider.crawl.setup.host_settings import PerHost
from outrider.crawl.setup.options import CrawlOptions
from outrider.crawl.setup.request_signer import signer_of
from outrider.errors import OutriderError, StoreFullError
from outrider.fetch.addresses import AddressGuard
from outrider.fetch.default_downloader import make_downloader as _chosen_downloader
from outrider.fetch.downloader import Downloader
from outrider.fetch.names import make_resolver
from outrider.frontier.verbs.census import ScheduleCounts
from outrider.journey import Kind, Lease, Settled
from outrider.limits import (
    ANSWERS_BYTES_MAX,
    CONNECTIONS_MAX,
    DNS_THREADS,
    DNS_THREADS_MAX,
    DOCUMENTS_ASIDE_MAX,
    LARGE_BYTES_MAX,
    LARGE_HELD_BYTES_MAX,
    LEASES_PER_PLACE_MAX,
    TURN_BYTES_MAX,
)
from outrider.storage.files import Directory

# Finished visits wait for others, because one sync serves them all: while some follow this closely,
GATHER_SECONDS: Final = 0.005
GATHER_STEPS_MAX: Final = 4  # but at most this number of steps,
GATHER_VISITS_MAX: Final = 64  # and only up to this number of visits
READY_SLACK_SECONDS: Final = 0.000_5  # a look at a host a moment before its instant would be in vain
WAIT_SECONDS_MAX: Final = 30.0  # the longest time between two turns: we do not rely on being woken
FULL_SECONDS_MAX: Final = 30.0  # how long a crawl waits for space when the disk is full
FULL_STEP_SECONDS: Final = 0.5
ASIDE_MAX: Final = 1_500  # visits whose name or answer is slow, in addition to those with a slot
EXTEND_STEP_SECONDS: Final = 2.0  # how often leases of visits without an outcome are checked,
EXTEND_SECONDS: Final = 45.0  # they are extended if they end within this time,
END_SECONDS: Final = 10.0  # and their requests interrupted if that failed and they end within this time
# The longest wait of an answer for the GIL while another thread reads or writes: with a tenth of the usual 5 ms, a
# crawl of quick sites is a sixth faster, at the same CPU time.
SWITCH_SECONDS: Final = 0.000_5
STOP_SECONDS_MAX: Final = 30.0  # after the first stop, requests may need this time; then they are interrupted
DESCRIPTORS_KEPT: Final = 24  # descriptors kept back for look-ups of names, log segments and questions for the status

FINISHED, BUG, LIMIT, STOPPED, FULL, UNREACHABLE, HOOKS = 0, 1, 3, 4, 7, 8, 10

P = ParamSpec("P")
T = TypeVar("T")


class _QuickSwitches:
    """Lets threads of this process wait less for the GIL as long as a crawl runs in it, or several do."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self._usual_seconds = 0.0

    def begin(self) -> None:
        with self._lock:
            self._running += 1
            if self._running == 1:
                self._usual_seconds = sys.getswitchinterval()
                sys.setswitchinterval(min(self._usual_seconds, SWITCH_SECONDS))

    def end(self) -> None:
        with self._lock:
            self._running -= 1
            if not self._running:
                sys.setswitchinterval(self._usual_seconds)


_quick_switches = _QuickSwitches()


class CrawlLoop(ABC):
    """One run of one crawl; a subclass says where the frontier is and when the run is over. `stop` may be called from
    the event loop, twice for at once, and `stop_soon` from any thread."""

    def __init__(
        self,
        options: CrawlOptions,
        guard: AddressGuard,
        hosts: Mapping[str, tuple[str, ...]],
        *,
        say: Callable[[str], None],
        make_downloader: Callable[[CrawlOptions, Callable[[], int]], Downloader] | None = None,
        make_names: Callable[[], NameService] | None = None,
        full_seconds_max: float = FULL_SECONDS_MAX,
        stop_seconds_max: float = STOP_SECONDS_MAX,
    ) -> None:
        """say: prints a line for people, in the event loop. Raises SettingsError for a hook that cannot be loaded."""
        self._options, self._guard, self._say = options, guard, say
        self._hooks = Hooks(options)
        self._hook_failures = HookFailures(self._say_soon)
        if make_downloader is None and self._hooks.downloader is not None:
            make_downloader = self._hooks.made_downloader
        self._make_downloader = make_downloader or _downloader
        self._make_names = make_names or (
            lambda: make_resolver(
                hosts, options.resolver, threads_max=_look_ups_max(_connections_max(options.concurrency))
            )
        )
        self._concurrency = options.concurrency
        self._full_seconds_max, self._stop_seconds_max = full_seconds_max, stop_seconds_max
        self._books = ThreadPoolExecutor(max_workers=1, thread_name_prefix="outrider-books")
        self._wake = asyncio.Event()
        self._fetching: Fetching | None = None  # while requests may be made
        self._read_soon: list[Visit] = []  # answers of one turn of the loop, which are read together
        self._trains = Trains()
        # Hosts need no gap between two requests. A gap that depends on the time of an answer is unknown for the second
        # of two requests; so is that of a [[host]] table, until the host's first lease.
        self._has_trains = not (options.delay or options.delay_factor or options.host)
        self._places_free = 0  # as of the last look
        self._held_bytes = 0  # bytes of answers that no turn has handled
        self._held_large = 0  # the part of them above the usual limit of a page
        self._ready_at: float | None = None  # when the frontier has more leases, by the clock of the event loop
        self._until: dict[int, Instant] = {}  # the ends of leases that are being extended, by token
        self._finished: list[Visit] = []
        self._in_turn: Sequence[Visit] = ()
        self._unwritten: list[int] = []  # tokens of visits whose turn has not ended well yet
        self._failure: BaseException | None = None
        self._stopping = 0
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._beginning = threading.Lock()
        self._ending = (FINISHED, "")
        self._full_since: float | None = None
        self._answered = 0
        self._began = 0.0
        self._network: dict[str, float] = {}  # counts of the run's requests, at its end
        # Made by `_open`, in the writer thread.
        self._frontier: OutputFrontier
        self._clock: Callable[[], Instant]
        self._journal: Journal
        self._output: Output
        self._settler: Settler
        self._readings: Readings
        self._bottleneck: Bottleneck

    @property
    def _lease_seconds(self) -> float:
        """How long a lease lasts, unless it is extended."""
        return LEASE_SECONDS

    @property
    def _extend_seconds(self) -> float:
        """A lease that ends within this time is extended."""
        return EXTEND_SECONDS

    # -- where the frontier is ----------------------------------------------------------------------------------------

    @abstractmethod
    def _open(self) -> None:
        """Opens frontier and output, in the writer thread; calls `_set_up` and `_make_settler`."""

    @abstractmethod
    def _close(self) -> None:
        """Returns leases, in the writer thread."""

    @abstractmethod
    async def _at_end(self, turn: Turn) -> bool:
        """Whether the crawl is over, now that nothing is in flight; sets how it ended."""

    def _settle(self, visits: Sequence[Visit], want: int, trains: tuple[int, int] | None) -> Turn:
        """Runs a turn of the writer thread, in that thread."""
        return self._settler.turn(visits, want, trains=trains)

    def _extend(self, tokens: Sequence[int]) -> list[Settled]:
        """Extends leases, in a thread other than the writer thread. Raises OutriderError."""
        return self._frontier.extend(tokens, self._lease_seconds)

    def _now(self) -> Instant:
        """The frontier's instant."""
        return self._clock()

    def _schedule_counts(self) -> ScheduleCounts | None:
        """Returns the counts of hosts, if they are known here; in the writer thread."""
        return None

    def _synced_seconds(self) -> float:
        """Returns the seconds of all syncs of the frontier that this process waited for."""
        return 0.0

    @property
    def _may_send(self) -> Callable[[int], bool] | None:
        """Whether the request of a token may be sent now; None for always."""
        return None

    def _is_held(self) -> bool:
        """Whether nothing is leased for now."""
        return False

    async def _begin_beside(self) -> None:  # noqa: B027 - some crawls have nothing to do here
        """Starts the tasks that run during the crawl."""

    async def _watch(self) -> None:  # noqa: B027 - some crawls have nothing to do here
        """Runs during the loop, and is cancelled at its end."""

    async def _conclude(self) -> None:  # noqa: B027 - some crawls have nothing to do here
        """Says how the crawl ended, while the frontier is open."""

    async def _end_beside(self) -> None:  # noqa: B027 - some crawls have nothing to do here
        """Ends the tasks that run during the crawl."""

    def _set_up(self, frontier: OutputFrontier, files: Directory) -> None:
        """Sets the opened frontier, in the writer thread."""
        options = self._options
        self._frontier = frontier
        self._clock = anchored(frontier.now())
        self._connections = _connections_max(options.concurrency)
        self._concurrency = min(options.concurrency, self._connections)
        self._bottleneck = Bottleneck(self._concurrency, self._clock())
        self._journal = Journal(os.path.join(options.output, JOURNAL_FILE), form=options.log_format, clock=wall)
        self._output = Output(
            files, frontier, options, clock=self._clock, note=lambda text: self._journal.note("note", text=text)
        )

    def _make_settler(self, files: Directory, *, keeps_links: bool = False, **more: Any) -> None:
        """Makes what reads and settles visits, now that the output is open. more: arguments of the settler."""
        options, frontier = self._options, self._frontier
        copies = Copies()
        copies.read(self._output.pages())
        payloads = Payloads()
        if options.warc:
            payloads.read(self._output.pages())
        tdm_files = TdmFiles(frontier, options, files)
        said = tdm_files.about if options.tdmrep else None
        reader = Reader(options, self._hooks, self._output, keeps_links=keeps_links, said_in_file=said)
        self._settler = Settler(
            frontier,
            self._output,
            options,
            self._journal,
            self._hooks,
            copies=copies,
            payloads=payloads,
            sitemaps=Sitemaps(frontier, options, files),
            probes=Probes(frontier, options, files),
            tdm_files=tdm_files,
            reader=reader,
            failures=self._hook_failures,
            lease_seconds=self._lease_seconds,
            say=self._say_soon if options.progress != "none" else lambda _: None,
            **more,
        )
        self._readings = Readings(reader.ahead, self._read, is_slow=reader.is_slow)

    # -- from outside -------------------------------------------------------------------------------------------------

    def stop(self, reason: str = "stopped by you") -> None:
        """The first call sends no new requests and lets the requests in flight end. The second call ends them now."""
        if self._stopping == 0:
            self._ending = (STOPPED, reason)
            self._say(
                f"stopping: {counted(self._in_flight, 'request')} in flight may end; once more stops at once"
                if self._in_flight
                else "stopping"
            )
        self._stopping += 1
        if self._stopping > 1:
            self._break_off()
        else:
            self._let_requests_end()
        self._wake.set()

    def _let_requests_end(self) -> None:
        """Lets the requests in flight finish, for a limited time."""
        self._let_trains_go()
        if self._event_loop is not None:
            self._event_loop.call_later(self._stop_seconds_max, self._break_off)

    def stop_soon(self, reason: str) -> None:
        """As `stop`, from any thread. A run that has not begun ends as soon as it does; one that ended stays ended."""
        with self._beginning:
            if self._event_loop is None:
                self.stop(reason)
                return
        with contextlib.suppress(RuntimeError):  # the loop was closed: the run has ended
            self._event_loop.call_soon_threadsafe(self.stop, reason)

    async def _run(self) -> None:
        """Crawls to the end. Raises SettingsError, StoreError and UnreachableError."""
        self._began = time.monotonic()
        with self._beginning:
            self._event_loop = asyncio.get_running_loop()
        if self._stopping:
            self._let_requests_end()
        restore = self._catch_signals()
        _quick_switches.begin()
        try:
            await self._in_books(self._open)
            try:
                await self._begin_beside()
                await self._crawl()
                await self._conclude()
            except BaseException as error:
                self._failure = self._failure or (error if isinstance(error, Exception) else None)
                raise
            finally:
                try:
                    await self._end_beside()
                finally:
                    await self._in_books(self._close)
        finally:
            restore()
            _quick_switches.end()
            self._books.shutdown(wait=True)

    # -- the crawl ----------------------------------------------------------------------------------------------------

    def _made_fetching(self) -> Fetching:
        options = self._options
        grouping = groups_of(options.group, options.contact)
        return Fetching(
            self._make_downloader(options, self._clock),
            self._make_names(),
            self._guard,
            user_agent=options.user_agent_sent,
            loopback_only=options.contact is None,
            clock=self._clock,
            concurrency=self._concurrency,
            aside_most=slow_max(self._concurrency, self._connections),
            make_room=self._wake.set,
            hooks=self._hooks,
            per_host=PerHost(options),
            headers=options.headers_sent,
            bottleneck=self._bottleneck,
            pins=grouping is not None and grouping.needs_addresses,
            goes_on=self._goes_on,
            spelling=self._settler.spellings.of,
            may_send=self._may_send,
            signer=signer_of(options, lambda text: self._journal.note("note", text=text)),
        )

    async def _crawl(self) -> None:
        if self._concurrency < self._options.concurrency:
            text = f"{self._concurrency} requests at once, for few files may be open (`ulimit -n` says how many)"
            self._journal.note("note", text=text)
        fetching = self._fetching = self._made_fetching()
        beside = [asyncio.create_task(self._watch()), asyncio.create_task(self._keep_leases(fetching))]
        try:
            await self._loop(fetching)
            await self._in_books(self._output.check)
        except asyncio.CancelledError:
            self._ending = (STOPPED, "cancelled")
            raise
        except BaseException as error:
            self._failure = error
            self._note_failure(error)
            raise
        finally:
            for task in beside:
                task.cancel()
            self._break_off()
            await asyncio.gather(*beside, return_exceptions=True)
            try:
                await fetching.close()
            except HookFailed as failed:
                self._journal.note(failed.word, text=failed.text())
                self._say(f"the hook {failed.name} failed at its close: {failed.text()}")
            await asyncio.to_thread(self._readings.close)
            self._network = fetching.statistics()
            self._journal.note("network", **{name: round(count, 3) for name, count in self._network.items()})

    async def _loop(self, fetching: Fetching) -> None:
        while True:
            if self._finished:
                await self._lease_due(fetching)
            visits = self._some_finished()
            held = not self._stopping and self._is_held()
            want = 0 if held else self._want(fetching)
            try:
                turn = await self._turn(visits, want, held=held)
                if want or self._stopping:
                    self._full_since = None
            except StoreFullError as error:
                if await self._out_of_space(error):
                    return
                continue
            self._answered += turn.answered
            self._begin_all(turn, fetching)
            if self._failure is not None:
                raise self._failure
            if not self._at_work and not self._finished and not turn.leases and not held and await self._at_end(turn):
                return
            if want and len(turn.leases) == want and fetching.held_up and self._room(fetching):
                continue  # hosts that never answered wait: a host that answers promptly may be next
            await self._wait(fetching)

    async def _lease_due(self, fetching: Fetching) -> None:
        """Leases the URLs that are due by now, in a turn without outcomes: writing those would delay a host after its
        gap. If no gap is due, one turn does both."""
        if self._has_trains or self._ready_at is None or asyncio.get_running_loop().time() < self._ready_at:
            return
        want = 0 if self._full_since is not None else self._want(fetching)
        if want:
            with contextlib.suppress(StoreFullError):  # the next turn meets it too, and says so
                self._begin_all(await self._turn((), want, held=False), fetching)

    def _begin_all(self, turn: Turn, fetching: Fetching) -> None:
        """Begins the visits of a turn's leases, and remembers when more of them may begin."""
        if self._stopping:  # they arrived after the crawl was stopped
            self._finished += [Visit(lease, wall(), self._clock(), stopped=True) for lease in turn.leases]
            return
        trains = trains_of(turn.leases) if self._has_trains else [[lease] for lease in turn.leases]
        for train in trains:
            fetching.begin(train, self._visited)
        self._bottleneck.behind = len(fetching) - fetching.trains
        ready = turn.next_ready_seconds
        self._ready_at = None if ready is None else asyncio.get_running_loop().time() + ready + READY_SLACK_SECONDS

    async def _turn(self, visits: Sequence[Visit], want: int, *, held: bool) -> Turn:
        """Makes a turn of the writer thread, and then counts the slots. held: it leases nothing, for a reader is
        full."""
        self._unwritten += [visit.lease.token for visit in visits]
        self._in_turn = visits
        archive, began = self._output.archive_synced, self._clock()
        trains = (self._places_free, self._trains.pages_max) if self._has_trains and want else None

        def made() -> tuple[Turn, ScheduleCounts | None, float]:
            before = self._synced_seconds()
            turn = self._settle(visits, want, trains)
            return turn, self._schedule_counts(), self._synced_seconds() - before

        try:
            turn, standing, log = await self._in_books(made)
        except StoreFullError:
            self._bottleneck.turned(None, self._clock(), held="disk")
            raise
        finally:
            self._in_turn = ()
        now = self._clock()
        synced = (instant(log) + self._output.archive_synced - archive) / max(1, now - began)
        self._bottleneck.turned(standing, now, synced=synced, held="paused" if held or self._stopping else None)
        self._bottleneck.end(self._unwritten, now)
        self._unwritten.clear()
        return turn

    def _some_finished(self) -> list[Visit]:
        """Returns the visits of this turn; the others wait for the next turn."""
        size = large = count = 0
        while count < len(self._finished) and size < TURN_BYTES_MAX:
            size += visit_bytes(self._finished[count])
            large += large_bytes(self._finished[count])
            count += 1
        some, self._finished = self._finished[:count], self._finished[count:]
        self._hold(-size, -large)
        return some

    def _visited(self, lease: Lease, visit: Visit | BaseException) -> None:
        """A visit has ended, one way or another."""
        if isinstance(visit, BaseException):
            self._failure = visit  # a bug in one visit ends the crawl, in good order
        else:
            self._hold(visit_bytes(visit), large_bytes(visit))
            if visit.response is not None or visit.began is not None:
                if lease.kind is Kind.PAGE and visit.response is not None and visit.seconds is not None:
                    self._trains.answered(visit.seconds)
                # Also a request without an answer: the record has those of a host in order.
                if not self._read_soon:
                    asyncio.get_running_loop().call_soon(self._have_read)
                self._read_soon.append(visit)
                return
            self._finished.append(visit)
        self._bottleneck.move(lease.token, Stage.BOOKS, self._clock())
        self._wake.set()

    def _hold(self, size: int, large: int) -> None:
        """Counts the bytes of answers. Large ones are paused while too many bytes of them are here: documents
        that need seconds to read do not stop leases of other pages."""
        self._held_bytes += size
        self._held_large += large
        if self._fetching is not None:
            self._fetching.rest(self._held_large > LARGE_HELD_BYTES_MAX)

    @property
    def _holds_enough(self) -> bool:
        """Whether enough answers are here to begin no lease."""
        usual = self._held_bytes - self._held_large
        return usual > ANSWERS_BYTES_MAX or self._held_large > LARGE_HELD_BYTES_MAX + LARGE_BYTES_MAX

    def _goes_on(self) -> bool:
        """Whether trains continue: not while too many answers wait, nor while the disk is full."""
        return self._full_since is None and not self._holds_enough

    def _let_trains_go(self) -> None:
        if self._fetching is not None:
            self._fetching.let_go()

    def _have_read(self) -> None:
        """Starts the reading of the answers that arrived in one turn of the event loop."""
        self._readings.put(self._read_soon)
        self._read_soon = []

    def _read(self, visits: Sequence[Visit], error: BaseException | None) -> None:
        """Visits were read; or one could not be, which is a bug."""
        self._bottleneck.move_all([visit.lease.token for visit in visits], Stage.BOOKS, self._clock())
        self._finished += visits
        self._failure = self._failure or error
        self._wake.set()

    @property
    def _at_work(self) -> int:
        """Visits that have not ended: under way, waiting for an earlier one, or being read."""
        under_way = len(self._fetching) if self._fetching is not None else 0
        return under_way + len(self._read_soon) + len(self._readings)

    @property
    def _in_flight(self) -> int:
        """Requests under way, and trains that wait to send theirs."""
        return self._fetching.trains if self._fetching is not None else 0

    def _leases_under_way(self) -> list[Lease]:
        """The leases of visits under way, and of those that are being read."""
        asked = self._fetching.leases if self._fetching is not None else []
        return [*asked, *(visit.lease for visit in list(self._read_soon)), *self._readings.leases]

    async def _keep_leases(self, fetching: Fetching) -> None:
        """Extends the leases of visits without an outcome, even while a turn of the writer thread is slow: a look-up, a
        function of the user, or the wait of a finished visit for its turn, may last longer than a lease. A
        request whose lease cannot be extended is interrupted before that ends."""
        while True:
            await asyncio.sleep(EXTEND_STEP_SECONDS)
            now = self._now()
            ends = self._until = {one.token: self._until.get(one.token, one.deadline) for one in self._held_leases()}
            ending = {token for token, until in ends.items() if until < now + instant(self._extend_seconds)}
            if not ending:
                continue
            with contextlib.suppress(OutriderError):
                tokens = sorted(ending)
                for token, code in zip(tokens, await asyncio.to_thread(self._extend, tokens), strict=True):
                    ends[token] = now
                    if code is Settled.OK:
                        ends[token] = now + instant(self._lease_seconds)
                        ending.remove(token)
            by = self._now() + instant(END_SECONDS)
            fetching.break_off([token for token in ending if ends[token] < by])

    def _held_leases(self) -> list[Lease]:
        """The leases of all visits without an outcome."""
        ended = (*self._finished, *self._in_turn)
        return [*self._leases_under_way(), *(visit.lease for visit in ended), *self._settler.leases]

    def _want(self, fetching: Fetching) -> int:
        """Returns the number of leases to request: 0 while we stop or wait for space."""
        if self._stopping or (self._full_since is not None and self._at_work):
            return 0
        limit = self._options.max_seconds
        if limit is not None and time.monotonic() - self._began >= limit:
            self._ending = (LIMIT, f"stopped at a limit (--max-seconds {limit:g}), work is left")
            self._stopping = 1
            self._let_requests_end()
            self._let_trains_go()
            return 0
        return self._room(fetching)

    def _room(self, fetching: Fetching) -> int:
        """Returns the number of leases to request. A request under way uses a slot; a visit whose name or answer is
        slow uses none, nor does one with an answer. Leases without slots are limited, and so are the bytes of answers
        that are being read or wait for their turn."""
        if self._holds_enough:
            return 0
        aside = min(fetching.aside, ASIDE_MAX)
        documents = min(self._readings.slow, DOCUMENTS_ASIDE_MAX)
        self._places_free = max(0, self._concurrency - (self._in_flight - aside))
        held = self._at_work + len(self._finished) - aside - documents
        most = LEASES_PER_PLACE_MAX * self._concurrency
        return max(0, min(self._places_free * (self._trains.pages_max if self._has_trains else 1), most - held))

    async def _wait(self, fetching: Fetching) -> None:
        """Waits until a visit has ended (and a little longer, for more of them), a URL is ready, or it is time to
        stop."""
        if self._finished and not self._at_work:
            return
        seconds_max = WAIT_SECONDS_MAX
        if self._ready_at is not None and self._room(fetching):
            seconds_max = min(seconds_max, max(0.0, self._ready_at - asyncio.get_running_loop().time()))
        if not self._stopping and self._options.max_seconds is not None:
            left = self._began + self._options.max_seconds - time.monotonic()
            seconds_max = min(seconds_max, max(0.0, left))
        if not self._finished:
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds_max):
                    await self._wake.wait()
        there = 0
        for _ in range(GATHER_STEPS_MAX):
            if not self._at_work or not there < len(self._finished) < GATHER_VISITS_MAX:
                return
            there = len(self._finished)
            await asyncio.sleep(GATHER_SECONDS)
            await self._lease_due(fetching)

    async def _out_of_space(self, error: StoreFullError) -> bool:
        """The disk is full: lets the visits in flight end and waits for space. True when the wait was in vain."""
        now = time.monotonic()
        if self._full_since is None:
            self._full_since = now
            self._journal.note("disk_full", text=str(error))
            most = f" {self._full_seconds_max:g} s" if self._full_seconds_max < math.inf else ""
            self._say(f"{error}; waiting{most} for space")
        if now - self._full_since >= self._full_seconds_max and not self._at_work:
            self._ending = (FULL, str(error))
            return True
        if self._stopping > 1 or (self._stopping and not self._at_work):
            return True
        await asyncio.sleep(min(FULL_STEP_SECONDS, self._full_seconds_max))
        return False

    def _break_off(self) -> None:
        """Ends the requests under way now."""
        if self._fetching is not None:
            self._fetching.break_off()

    # -- beside it ----------------------------------------------------------------------------------------------------

    def _say_soon(self, line: str) -> None:
        """Says a line from any thread."""
        assert self._event_loop is not None, "a run that has begun has a loop"
        with contextlib.suppress(RuntimeError):  # the loop was closed
            self._event_loop.call_soon_threadsafe(self._say, line)

    async def _in_books(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a function in the thread that owns frontier, archive and line files."""
        return await asyncio.get_running_loop().run_in_executor(self._books, lambda: work(*args, **kwargs))

    def _note_failure(self, error: BaseException) -> None:
        if isinstance(error, OutriderError):
            self._journal.note("failure", text=str(error))
        else:
            for line in traceback.format_exception(error):
                for part in line.rstrip().splitlines():
                    self._journal.note("bug", text=part)
        self._journal.flush()

    def _catch_signals(self) -> Callable[[], None]:
        """The first SIGINT, SIGTERM or SIGHUP stops, the second at once; only the main thread may catch them."""
        if threading.current_thread() is not threading.main_thread():
            return lambda: None
        loop = asyncio.get_running_loop()
        caught: list[signal.Signals] = []
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(number, self.stop)
                caught.append(number)

        def restore() -> None:
            for number in caught:
                loop.remove_signal_handler(number)

        return restore


def _downloader(options: CrawlOptions, clock: Callable[[], int]) -> Downloader:
    return _chosen_downloader(clock=clock, ca_file=options.ca, connections_max=_connections_max(options.concurrency))


def _connections_max(concurrency: int) -> int:
    """Returns the number of sockets that may be open: a missing socket here must not count against a host."""
    connections = max(concurrency, CONNECTIONS_MAX)
    files = allow_descriptors(connections + DNS_THREADS_MAX + DESCRIPTORS_SPARE)
    return connections if files is None else max(1, min(connections, files - open_files() - DESCRIPTORS_KEPT))


def _look_ups_max(connections: int) -> int:
    """Returns how many look-ups may hang, each with a socket, in addition to this number of connections."""
    files = allow_descriptors(connections + DNS_THREADS_MAX + DESCRIPTORS_SPARE)
    left = DNS_THREADS_MAX if files is None else files - open_files() - DESCRIPTORS_KEPT - connections
    return max(DNS_THREADS, min(DNS_THREADS_MAX, left))
