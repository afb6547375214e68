"""The loop: lease, fetch, read, report, until nothing is left or the user stops the crawl.

Requests run in the event loop; everything that writes (frontier, archive, line files) runs in one thread beside it, one
turn after the other: a turn reports what was finished meanwhile and brings the next leases.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, Final, ParamSpec, Protocol, TypeVar

from outrider.clock import Instant, anchored, instant, rfc3339, wall
from outrider.crawl.beside import Beside, Running, across
from outrider.crawl.bottleneck import Bottleneck, Stage
from outrider.crawl.control import Answer, Answers, Control
from outrider.crawl.copies import Copies
from outrider.crawl.descriptors import DESCRIPTORS_SPARE, allow_descriptors, open_files
from outrider.crawl.directory import (
    FRONTIER_NAME,
    LastRun,
    drop_pending,
    kept_settings,
    last_run,
    opened,
    put_pending,
    put_run,
    take_pending,
    write_settings,
)
from outrider.crawl.fetching import Fetching, NameService
from outrider.crawl.groups import groups_of
from outrider.crawl.hook_failures import HookFailures
from outrider.crawl.hooks import (
    CrawledPage,
    HookFailed,
    HookRunningError,
    Hooks,
    hook_running_text,
    idle_in_hook,
    idle_with_hooks,
)
from outrider.crawl.journal import JOURNAL_FILE, Journal
from outrider.crawl.kept_output import judge_of, refuse_output_alone
from outrider.crawl.left_out import BAD_SEED, left_out_of, rows_of
from outrider.crawl.looks import answers_of, with_refused
from outrider.crawl.options import CrawlOptions, as_toml
from outrider.crawl.output import Output
from outrider.crawl.pace import Pace, eta_seconds, status_fields
from outrider.crawl.perhost import PerHost, unverified_hosts
from outrider.crawl.permission import Admitted, Permission
from outrider.crawl.places import aside_max
from outrider.crawl.probes import Probes
from outrider.crawl.progress import Progress
from outrider.crawl.put_back import put_back, words_of
from outrider.crawl.reading import Reader, Readings
from outrider.crawl.seeds import BadSeeds
from outrider.crawl.settle import LEASE_SECONDS, Settler, Turn
from outrider.crawl.sitemaps import Sitemaps
from outrider.crawl.summary import HookFailure, counted, finished_before, held_back, left_alone, nothing_done
from outrider.crawl.tabular import FRONTIER, Count, write_records
from outrider.crawl.trains import Trains, trains_of
from outrider.crawl.version import version
from outrider.crawl.visit import Visit, large_bytes, visit_bytes
from outrider.engine import Frontier
from outrider.engine.answers import ORDERS
from outrider.errors import SettingsError, StoreError, StoreFullError, UnreachableError
from outrider.fetch.chosen import make_downloader
from outrider.fetch.downloader import Downloader
from outrider.fetch.names import make_resolver
from outrider.frontier.policy.budgets import budgets_over
from outrider.frontier.verbs.census import Standing
from outrider.journey import Code, Kind, Lease, UrlStatus
from outrider.kernels import in_use
from outrider.limits import (
    ANSWERS_BYTES_MAX,
    CONNECTIONS_MAX,
    CONTROL_PAGE_ROWS_MAX,
    DNS_THREADS,
    DNS_THREADS_MAX,
    DOCUMENTS_ASIDE_MAX,
    HOOK_ANSWER_SECONDS,
    LARGE_BYTES_MAX,
    LARGE_HELD_BYTES_MAX,
    LEASES_PER_PLACE_MAX,
    RETRY_SECONDS,
    TURN_BYTES_MAX,
)
from outrider.storage.files import Directory
from outrider.url import host_of

# Finished visits wait for others, for one sync serves them all: while some come so closely,
GATHER_SECONDS: Final = 0.005
GATHER_STEPS_MAX: Final = 4  # but not longer than so many times that,
GATHER_VISITS_MAX: Final = 64  # and no longer once so many are there
READY_SLACK_SECONDS: Final = 0.000_5  # a look at a host a moment before its instant would be in vain
WAIT_SECONDS_MAX: Final = 30.0  # a turn at least so often: nothing is trusted to wake us for ever
FULL_SECONDS_MAX: Final = 30.0  # how long a crawl waits for space when the disk is full
FULL_STEP_SECONDS: Final = 0.5
ASIDE_MAX: Final = 1_500  # visits whose name or answer is long in coming, beside those that have a place
EXTEND_STEP_SECONDS: Final = 10.0  # leases under way are looked at so often,
EXTEND_SECONDS: Final = 45.0  # and extended when they end within so long: before then there is another look
WAIT_SLACK_SECONDS: Final = 1.0  # between two looks at the same rest
OWN_WAIT_SECONDS_MAX: Final = max(RETRY_SECONDS)  # a crawl makes such pauses itself, also beyond --max-wait
# An answer waits for the GIL no longer while another thread reads or writes down: a tenth of the usual 5 ms, for the
# same CPU time, lets a crawl of quick sites get a sixth more.
SWITCH_SECONDS: Final = 0.000_5
STOP_SECONDS_MAX: Final = 30.0  # after the first stop requests may end for so long; then they are broken off
SEEDS_AT_ONCE: Final = 100_000
NOTE_SECONDS: Final = 30.0  # the line files' lengths and the run's rates are noted so often
STATISTICS_SHARE: Final = 20  # counting hosts may take 1/20 of the time at most
DESCRIPTORS_KEPT: Final = 24  # descriptors kept back for look-ups of names, log segments and questions for the status

FINISHED, BUG, LIMIT, STOPPED, FULL, UNREACHABLE, HOOKS = 0, 1, 3, 4, 7, 8, 10

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CrawlResult:
    """The result of a crawl's run: its exit code (surface), why it ended in words, its directory, the counts of the
    frontier, and the failures of hooks in this run."""

    exit_code: int
    ending: str
    output: str
    statistics: Mapping[str, Any]
    hook_failures: tuple[HookFailure, ...] = ()


class PageReader(Protocol):
    """Reads the pages of a crawl while it runs."""

    def tell(self, page: CrawledPage) -> None:
        """Takes a page that is kept; called in the books' thread."""
        ...

    def full(self) -> bool:
        """Whether so many pages wait to be read that the crawl leases no more."""
        ...


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


class CrawlRun:
    """One run of one crawl. `run` does it all; `stop` may be called from the event loop, twice for at once, and
    `stop_soon` from any thread."""

    def __init__(
        self,
        options: CrawlOptions,
        seeds: Sequence[str],
        sources: Sequence[str],
        *,
        hosts: Mapping[str, tuple[str, ...]],
        progress: Progress,
        seeds_again: Callable[[], Sequence[str]] | None = None,
        bad_seeds: BadSeeds | None = None,
        make_downloader: Callable[[CrawlOptions, Callable[[], int]], Downloader] | None = None,
        make_names: Callable[[], NameService] | None = None,
        full_seconds_max: float = FULL_SECONDS_MAX,
        stop_seconds_max: float = STOP_SECONDS_MAX,
        reader: PageReader | None = None,
        beside: Beside | None = None,
    ) -> None:
        """reader: gets each answered page once it is kept. beside: answers questions from elsewhere while the crawl
        runs. Raises SettingsError for a hook that cannot be loaded."""
        self._options = options
        self._beside = beside
        self._reader = reader
        self._hooks = Hooks(options)
        self._hook_failures = HookFailures(self._say_soon)
        if make_downloader is None and self._hooks.downloader is not None:
            make_downloader = self._hooks.made_downloader
        self._seeds = seeds
        self._sources = sources
        self._seeds_again = seeds_again
        self._bad_seeds = bad_seeds
        self._hosts = hosts
        self._permission = Permission(options, sources, hosts)
        self._progress = progress
        self._make_downloader = make_downloader or _downloader
        self._make_names = make_names or (
            lambda: make_resolver(
                hosts, options.resolver, threads_max=_look_ups_max(_connections_max(options.concurrency))
            )
        )
        self._concurrency = options.concurrency
        self._full_seconds_max = full_seconds_max
        self._stop_seconds_max = stop_seconds_max
        self._books = ThreadPoolExecutor(max_workers=1, thread_name_prefix="outrider-books")
        self._wake = asyncio.Event()
        self._fetching: Fetching | None = None  # while requests may be made
        self._read_soon: list[Visit] = []  # answers of one turn of the loop, which go to be read together
        self._trains = Trains()
        # A gap that depends on the time of an answer is not known for the second of two requests; nor is that of a
        # [[host]] table, until the host's first lease.
        self._has_trains = not (options.delay or options.delay_factor or options.host)
        self._places_free = 0  # as of the last look
        self._held_bytes = 0  # of answers that no turn has taken
        self._held_large = 0  # of them, what pages have beyond the usual limit
        self._ready_at: float | None = None  # when the frontier has more leases, by the clock of the event loop
        self._extended: dict[int, Instant] = {}  # until when leases under way were extended, by token
        self._looked_at: Instant = 0
        self._finished: list[Visit] = []
        self._unwritten: list[int] = []  # tokens of visits whose turn has not ended well yet
        self._failure: BaseException | None = None
        self._stopping = 0
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._beginning = threading.Lock()
        self._ending = (FINISHED, "")
        self._stop_by: float | None = None
        self._full_since: float | None = None
        self._answered = 0
        self._was_finished = ""  # words for a crawl of which nothing was left when this run began
        self._left_out_last: dict[str, int] = {}
        self._left_out_again = 0.0  # when what was left out may be counted again
        self._pace = Pace(0.0)
        self._began = 0.0
        self._noted = 0.0
        # Opened by `_open`, in the books' thread.
        self._before: LastRun
        self._files: Directory
        self._frontier: Frontier
        self._journal: Journal
        self._output: Output
        self._settler: Settler
        self._readings: Readings
        self._bottleneck: Bottleneck

    @property
    def options(self) -> CrawlOptions:
        """The settings of this run."""
        return self._options

    @property
    def sources(self) -> tuple[str, ...]:
        """Where the seeds came from, as they were typed."""
        return tuple(self._sources)

    # -- from outside -------------------------------------------------------------------------------------------------

    def stop(self, reason: str = "stopped by you") -> None:
        """The first call sends no new requests and lets the requests in flight end. The second call ends them now."""
        if self._stopping == 0:
            self._ending = (STOPPED, reason)
            self._stop_by = time.monotonic() + self._stop_seconds_max
            self._progress.say(
                f"stopping: {counted(self._in_flight, 'request')} in flight may end; once more stops at once"
                if self._in_flight
                else "stopping"
            )
        self._stopping += 1
        if self._stopping > 1:
            self._break_off()
        else:
            self._let_trains_go()
        self._wake.set()

    def stop_soon(self, reason: str) -> None:
        """As `stop`, from any thread. A run that has not begun ends as soon as it does; one that ended stays ended."""
        with self._beginning:
            if self._event_loop is None:
                self.stop(reason)
                return
        with contextlib.suppress(RuntimeError):  # the loop was closed: the run has ended
            self._event_loop.call_soon_threadsafe(self.stop, reason)

    async def status(self) -> dict[str, Any]:
        """The fields of `status --json` for this crawl now."""
        return await self._status(self._in_books)

    async def _status(
        self, calling: Callable[[Callable[[], Any]], Awaitable[Any]], *, left_out: bool = False
    ) -> dict[str, Any]:
        """calling: makes a call that looks, in some thread. left_out: with what was left out, which costs by the number
        of URLs: it is counted again when a multiple of the time has passed that the last count took."""
        statistics, wait, tail = await calling(
            lambda: (self._frontier.statistics(), self._wait_seconds(), self._frontier.explain_idle().tail_seconds)
        )
        rates = self._pace.rates(time.monotonic())
        eta = eta_seconds(statistics, rates, self._options.max_pages, wait, tail or 0.0)
        if left_out and time.monotonic() >= self._left_out_again:
            began = time.monotonic()
            self._left_out_last = await calling(lambda: self._left_out(statistics))
            self._left_out_again = time.monotonic() + STATISTICS_SHARE * (time.monotonic() - began)
        counts = self._left_out_last if left_out else None
        return status_fields(statistics, rates, "running", eta, self._not_followed(), counts)

    def _not_followed(self) -> dict[str, int]:
        """Links of all runs that were not followed, by reason; as of the last note where no settler is there yet."""
        counts = dict(self._before.not_followed)
        for reason, count in self._settler.not_followed.copy().items():
            counts[reason] = counts.get(reason, 0) + count
        return counts

    def _wait_seconds(self) -> float:
        """Seconds that this run will wait for resting hosts, and for all hosts when nothing is in flight; the run ends
        before hosts that rest for longer than --max-wait."""
        longest = self._frontier.waits(within_seconds=self._options.max_wait).longest_seconds
        ready = None if self._at_work else self._frontier.next_ready_seconds()
        return longest if ready is None or ready > self._options.max_wait else max(longest, ready)

    def go_on(self) -> None:
        """The reader has room again: leases are drawn at once."""
        self._wake.set()

    async def run(self) -> CrawlResult:
        """Crawls to the end. Raises SettingsError and StoreError for a directory or store that cannot be used."""
        self._began = time.monotonic()
        with self._beginning:
            self._event_loop = asyncio.get_running_loop()
        restore = self._catch_signals()
        _quick_switches.begin()
        try:
            await self._in_books(self._open)
            try:
                await self._serve_beside()
                return await self._crawl()
            except BaseException as error:
                self._failure = self._failure or (error if isinstance(error, Exception) else None)
                raise
            finally:
                try:
                    if self._beside is not None:
                        await asyncio.to_thread(self._beside.close, at_once=self._stopping > 1)
                finally:
                    await self._in_books(self._close)
        finally:
            restore()
            _quick_switches.end()
            self._progress.close()
            self._books.shutdown(wait=True)

    # -- opening and closing (in the books' thread) -------------------------------------------------------------------

    def _open(self) -> None:
        options = self._options
        refuse_output_alone(options.output)
        self._files = opened(options.output)
        self._before = last_run(options.output)
        try:
            self._frontier = Frontier.open(
                os.path.join(options.output, FRONTIER_NAME),
                seed=options.seed,
                settings=options.frontier_settings(),
                robots="errands",
                addresses="errands",
                output=True,
                judge=judge_of(options.output),
                control=False,
            )
        except BaseException:
            self._files.close()
            raise
        self._clock = anchored(self._frontier.now())
        self._bottleneck = Bottleneck(self._concurrency, self._clock())
        self._journal = Journal(os.path.join(options.output, JOURNAL_FILE), form=options.log_format, clock=wall)
        self._output = Output(self._files, self._frontier, options, clock=self._clock)
        try:
            opening = self._frontier.opening
            self._journal.note("open", version=version(), kernels=in_use(), opening=opening.number, pid=os.getpid())
            for host in unverified_hosts(self._options):
                self._journal.note(
                    "tls", host=host, text="its certificate need prove nothing, by a table of outrider.toml"
                )
            for note in opening.notes:
                self._journal.note("note", text=note)
                self._progress.say(note)
            before = kept_settings(options.output).options
            write_settings(self._files, as_toml(options, self._sources))
            again = self._output.open()
            if again:
                self._journal.note("replayed", lines=again)
            self._note_bad_seeds()
            if not opening.fresh and (back := put_back(self._frontier, before, options)):
                self._journal.note("put_back", **back)
                self._progress.say(words_of(back))
            self._take_seeds()
            statistics = self._frontier.statistics()
            if not statistics["accepted"]:
                raise SettingsError("seeds are missing: this crawl holds no URL yet; give at least one")
            self._answered = int(str(statistics["answered"]))
            if opening.number > 1 and self._frontier.finished() and not self._frontier.at_limit():
                self._was_finished = finished_before(statistics, options.output)
                self._progress.say(self._was_finished)
            copies = Copies()
            copies.read(self._output.pages())
            reader = Reader(options, self._hooks, self._output, keeps_links=self._reader is not None)
            self._settler = Settler(
                self._frontier,
                self._output,
                options,
                self._journal,
                self._hooks,
                tell=self._reader.tell if self._reader is not None else None,
                under_way=lambda: [lease.token for lease in self._leases_under_way()],
                copies=copies,
                sitemaps=Sitemaps(self._frontier, options, self._files),
                probes=Probes(self._frontier, options, self._files),
                reader=reader,
                failures=self._hook_failures,
                say=self._say_soon if options.progress != "none" else lambda _: None,
            )
            self._readings = Readings(reader.ahead, self._read, is_slow=reader.is_slow)
        except BaseException:
            self._shut("stopped")
            raise

    def _take_seeds(self) -> None:
        seeds = list(dict.fromkeys([*take_pending(self._files), *self._seeds]))
        if not seeds and self._seeds_again is not None and not self._frontier.statistics()["accepted"]:
            # A run that died before it took its seeds; outrider.toml says where they came from.
            seeds = list(self._seeds_again())
        if not seeds:
            return
        put_pending(self._files, seeds)
        counts: dict[str, int] = {}
        for start in range(0, len(seeds), SEEDS_AT_ONCE):
            for code in self._frontier.discover(self._hooks.seeds(seeds[start : start + SEEDS_AT_ONCE])):
                counts[str(code)] = counts.get(str(code), 0) + 1
        drop_pending(self._files)
        self._journal.note("seeds", **counts)

    def _note_bad_seeds(self) -> None:
        for text in self._bad_seeds.texts if self._bad_seeds is not None else ():
            self._journal.note(BAD_SEED, text=text)

    def _close(self) -> None:
        code, words = self._ending
        if self._failure is not None:
            code = self._failure.exit_code if isinstance(self._failure, StoreError) else BUG
            words = "failed"
        with contextlib.suppress(StoreError):
            self._output.note()
        self._note_run()
        self._journal.note("close", exit_code=code, ending=words or "finished")
        self._shut(_state_of(code))

    def _shut(self, state: str) -> None:
        """Gives everything back; a disk that refuses even that leaves a store that the next opening replays."""
        self._hooks.close()
        self._output.close()
        self._journal.close()
        try:
            with contextlib.suppress(StoreError):
                self._frontier.close(state)
        finally:
            self._files.close()

    def _note_run(self) -> None:
        now = time.monotonic()
        rates = self._pace.rates(now)
        seconds = self._before.seconds + now - self._began
        put_run(self._files, LastRun(rates.average, rates.peak, seconds, self._not_followed(), self._count_bad_seeds()))

    def _count_bad_seeds(self) -> int:
        """How many seeds were no URLs: of this run, or of the last one that read seeds."""
        return self._before.bad_seeds if self._bad_seeds is None else self._bad_seeds.count

    def _left_out(self, statistics: Mapping[str, Any]) -> dict[str, int]:
        """Counts the parked URLs, skipped links and bad seeds of the crawl, by reason; for the books' thread."""
        return left_out_of(statistics, self._frontier._parked(), self._not_followed(), self._count_bad_seeds())

    # -- the crawl ----------------------------------------------------------------------------------------------------

    async def _crawl(self) -> CrawlResult:
        options = self._options
        now = time.monotonic()
        self._pace = Pace(now, pages=self._answered)
        self._noted = now
        self._concurrency = min(options.concurrency, _connections_max(options.concurrency))
        if self._concurrency < options.concurrency:
            text = f"{self._concurrency} requests at once, for few files may be open (`ulimit -n` says how many)"
            self._journal.note("note", text=text)
        self._bottleneck = Bottleneck(self._concurrency, self._clock())
        downloader = self._make_downloader(options, self._clock)
        control = Control(options.output, self._answers())
        try:
            await control.open()
        except UnreachableError as error:
            self._journal.note("note", text=str(error))
        grouping = groups_of(options.group, options.contact)
        fetching = self._fetching = Fetching(
            downloader,
            self._make_names(),
            self._permission.guard,
            user_agent=options.user_agent_sent,
            loopback_only=options.contact is None,
            clock=self._clock,
            concurrency=self._concurrency,
            aside_most=aside_max(self._concurrency, _connections_max(options.concurrency)),
            make_room=self._wake.set,
            hooks=self._hooks,
            per_host=PerHost(options),
            headers=options.headers_sent,
            bottleneck=self._bottleneck,
            pins=grouping is not None and grouping.needs_addresses,
            goes_on=self._goes_on,
            spelling=self._settler.spellings.of,
        )
        watching = asyncio.create_task(self._watch())
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
            watching.cancel()
            self._break_off()
            await asyncio.gather(watching, return_exceptions=True)
            await control.close()
            try:
                await fetching.close()
            except HookFailed as failed:
                self._journal.note(failed.word, text=failed.text())
                self._progress.say(f"the hook {failed.name} failed at its close: {failed.text()}")
            await asyncio.to_thread(self._readings.close)
            network = fetching.statistics()
            self._journal.note("network", **{name: round(count, 3) for name, count in network.items()})
        code, words = self._ending
        statistics: Mapping[str, Any] = await self._in_books(self._frontier.statistics)
        left_out = await self._in_books(self._left_out, statistics)
        for row in rows_of(left_out, options.output):
            self._journal.note("left_out", reason=row.reason, count=row.count, text=row.text, command=row.command)
        if code in (FINISHED, LIMIT) and self._hook_failures.on_most_pages:
            code, words = HOOKS, self._hook_failures.ending(options.output)
        elif code == FINISHED and not statistics["urls"]["done"]:
            silent = {host_of(one.url) for one in await self._in_books(self._unread)}
            code, words = UNREACHABLE, nothing_done(statistics, options.output, self._settler.gone, silent)
        elif code == FINISHED and self._was_finished:
            words = self._was_finished
        self._ending = (code, words or "finished")
        told = {**statistics, "state": _state_of(code), "network": network, "left_out": left_out}
        return CrawlResult(code, words or "finished", options.output, told, self._hook_failures.found())

    async def _loop(self, fetching: Fetching) -> None:
        while True:
            if self._finished:
                await self._lease_due(fetching)
            visits = self._some_finished()
            held = self._reader is not None and not self._stopping and self._reader.full()
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
                continue  # hosts that never answered are held up: behind them may be one that answers promptly
            await self._wait(fetching)

    async def _lease_due(self, fetching: Fetching) -> None:
        """Leases what may be fetched by now, in a turn without outcomes: writing those down takes longer than a host
        should be kept waiting behind its gap. Where no gap is due, one turn does both."""
        if self._has_trains or self._ready_at is None or asyncio.get_running_loop().time() < self._ready_at:
            return
        want = 0 if self._full_since is not None else self._want(fetching)
        if want:
            with contextlib.suppress(StoreFullError):  # the next turn meets it too, and says so
                self._begin_all(await self._turn((), want, held=False), fetching)

    def _begin_all(self, turn: Turn, fetching: Fetching) -> None:
        """Begins the visits of a turn's leases, and remembers when more of them may begin."""
        trains = trains_of(turn.leases) if self._has_trains else [[lease] for lease in turn.leases]
        for train in trains:
            fetching.begin(train, self._visited)
        self._bottleneck.behind = len(fetching) - fetching.trains
        ready = turn.next_ready_seconds
        self._ready_at = None if ready is None else asyncio.get_running_loop().time() + ready + READY_SLACK_SECONDS

    async def _turn(self, visits: Sequence[Visit], want: int, *, held: bool) -> Turn:
        """A turn of the books, after which the places are counted. held: it leases nothing, for a reader is full."""
        self._unwritten += [visit.lease.token for visit in visits]
        ending, archive, began = self._ending_leases(), self._output.archive_synced, self._clock()
        trains = (self._places_free, self._trains.pages_max) if self._has_trains and want else None

        def made() -> tuple[Turn, Standing, float]:
            before = self._frontier._synced_seconds()
            turn = self._settler.turn(visits, want, ending, trains=trains)
            standing, after = self._frontier._standing()
            return turn, standing, after - before

        try:
            turn, standing, log = await self._in_books(made)
        except StoreFullError:
            self._bottleneck.turned(None, self._clock(), held="disk")
            raise
        now = self._clock()
        synced = (instant(log) + self._output.archive_synced - archive) / max(1, now - began)
        self._bottleneck.turned(standing, now, synced=synced, held="paused" if held or self._stopping else None)
        self._bottleneck.end(self._unwritten, now)
        self._unwritten.clear()
        return turn

    def _some_finished(self) -> list[Visit]:
        """The visits that this turn takes; the others wait for the next turn."""
        size = large = count = 0
        while count < len(self._finished) and size < TURN_BYTES_MAX:
            size += visit_bytes(self._finished[count])
            large += large_bytes(self._finished[count])
            count += 1
        some, self._finished = self._finished[:count], self._finished[count:]
        self._hold(-size, -large)
        for visit in some if self._extended else ():
            self._extended.pop(visit.lease.token, None)
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
        """Counts the bytes of answers. Large ones rest on their way while too many bytes of such are here: documents
        that take seconds to read stop no lease of other pages."""
        self._held_bytes += size
        self._held_large += large
        if self._fetching is not None:
            self._fetching.rest(self._held_large > LARGE_HELD_BYTES_MAX)

    @property
    def _holds_enough(self) -> bool:
        """Whether so many answers are here that no lease is begun."""
        usual = self._held_bytes - self._held_large
        return usual > ANSWERS_BYTES_MAX or self._held_large > LARGE_HELD_BYTES_MAX + LARGE_BYTES_MAX

    def _goes_on(self) -> bool:
        """Whether trains go on: not while more answers wait than are held, nor while the disk is full."""
        return self._full_since is None and not self._holds_enough

    def _let_trains_go(self) -> None:
        if self._fetching is not None:
            self._fetching.let_go()

    def _have_read(self) -> None:
        """Has the answers read that came in one turn of the event loop."""
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
        """Visits that have not come to their end: under way, waiting behind one that is, or being read."""
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

    def _want(self, fetching: Fetching) -> int:
        """How many leases may be asked for: none while we stop or wait for space."""
        if self._stopping or (self._full_since is not None and self._at_work):
            return 0
        limit = self._options.max_seconds
        if limit is not None and time.monotonic() - self._began >= limit:
            self._ending = (LIMIT, f"stopped at a limit (--max-seconds {limit:g}), work is left")
            self._stop_by = time.monotonic() + self._stop_seconds_max
            self._stopping = 1
            self._let_trains_go()
            return 0
        return self._room(fetching)

    def _room(self, fetching: Fetching) -> int:
        """The number of leases that may be asked for. A place is held by a request under way; a visit holds none whose
        name or answer is long in coming, nor one that has its answer. Leases beside the places are bounded, and so are
        the bytes of answers that are read or wait for their turn."""
        if self._holds_enough:
            return 0
        aside = min(fetching.aside, ASIDE_MAX)
        documents = min(self._readings.slow, DOCUMENTS_ASIDE_MAX)
        self._places_free = max(0, self._concurrency - (self._in_flight - aside))
        held = self._at_work + len(self._finished) - aside - documents
        most = LEASES_PER_PLACE_MAX * self._concurrency
        return max(0, min(self._places_free * (self._trains.pages_max if self._has_trains else 1), most - held))

    def _ending_leases(self) -> list[int]:
        """Tokens of visits whose leases end soon: a look-up, or the wait of a finished visit for its turn, may take
        longer than a lease lasts."""
        now = self._clock()
        if now < self._looked_at + instant(EXTEND_STEP_SECONDS):
            return []
        self._looked_at, soon, until = now, now + instant(EXTEND_SECONDS), now + instant(LEASE_SECONDS)
        leases = [*self._leases_under_way(), *(visit.lease for visit in self._finished)]
        ending = [one.token for one in leases if self._extended.get(one.token, one.deadline) < soon]
        self._extended.update(dict.fromkeys(ending, until))
        return ending

    def _unread(self) -> Sequence[UrlStatus]:
        """Some pages whose robots.txt cannot be read."""
        return self._frontier.urls(state="parked", reason="robots_unreachable", limit=CONTROL_PAGE_ROWS_MAX)

    async def _at_end(self, turn: Turn) -> bool:
        """Whether the crawl is over, now that nothing is in flight; sets how it ended."""
        finished, at_limit = await self._in_books(lambda: (self._frontier.finished(), self._frontier.at_limit()))
        if self._stopping:
            if finished and not at_limit:
                self._ending = (FINISHED, "")
            return True
        if at_limit:
            over = budgets_over(self._options, self._answered)
            which = ", ".join(f"{budget.flag} {limit}" for budget, limit in over) or "of pages"
            self._ending = (LIMIT, f"stopped at a limit ({which}), work is left")
            return True
        if finished:
            return True
        if turn.next_ready_seconds is None:
            hosts = await self._in_books(lambda: self._frontier.hosts(state="blocked"))
            self._ending = (LIMIT, held_back(hosts, self._options.output))
            return True
        return await self._waits_too_long(turn.next_ready_seconds)

    async def _waits_too_long(self, ready_seconds: float) -> bool:
        """Whether nothing can be fetched for longer than a crawl waits; then the hosts that are left are named.

        A gap of this crawl's own and the pause before a retry are no reason to end.
        """
        most = self._options.max_wait
        if ready_seconds <= most:
            return False
        waits = await self._in_books(lambda: self._frontier.waits(beyond_seconds=max(0.0, most - WAIT_SLACK_SECONDS)))
        first = waits.soonest[0] if waits.soonest else None
        asked = first is not None and first.asked and first.seconds <= ready_seconds + WAIT_SLACK_SECONDS
        if not asked and ready_seconds <= max(self._options.delay, OWN_WAIT_SECONDS_MAX):
            return False
        for one in waits.soonest:
            self._journal.note("left", host=one.name, until=rfc3339(one.until), urls=one.urls, reason=one.reason)
        self._ending = (LIMIT, left_alone(most, waits, ready_seconds))
        return True

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
        if self._stop_by is not None and self._stopping == 1:
            left = self._stop_by - time.monotonic()
            if left <= 0:
                self._break_off()
            else:
                seconds_max = min(seconds_max, left)
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
            self._progress.say(f"{error}; waiting {self._full_seconds_max:g} s for space")
        if now - self._full_since >= self._full_seconds_max and not self._at_work:
            self._ending = (FULL, str(error))
            return True
        if self._stopping > 1 or (self._stopping and not self._at_work):
            return True
        await asyncio.sleep(min(FULL_STEP_SECONDS, self._full_seconds_max))
        return False

    def _break_off(self) -> None:
        if self._fetching is not None:
            self._fetching.break_off()

    # -- questions ----------------------------------------------------------------------------------------------------

    def _answers(self) -> Answers:
        """The questions that this crawl answers; where a hook keeps the books from answering, that is the answer."""
        looks: dict[str, Answer] = {
            "status": lambda _: self._status(self._in_books, left_out=True),
            **answers_of(self._frontier, self._in_books, self._options.output),
        }
        answers: dict[str, Answer] = {name: self._patient(look) for name, look in looks.items()}
        for order in ORDERS:
            answers[order] = self._ordered(order, answers[order])
        answers |= {"verify": self._verified, "export": self._exported}
        return {**answers, "why-idle": self._with_shares(answers["why-idle"], self._throughput)}

    async def _throughput(self, _: Mapping[str, Any]) -> dict[str, Any]:
        return self._bottleneck.told(self._clock())

    def _with_shares(self, why_idle: Answer, throughput: Answer) -> Answer:
        """With the time of hooks, and that of places."""

        async def answered(question: Mapping[str, Any]) -> dict[str, Any]:
            places = await throughput({})
            try:
                found = idle_with_hooks(await why_idle(question), self._hooks.watch.shares())
            except HookRunningError as running:
                found = idle_in_hook(running.facts)
            return {**found, "throughput": places}

        return answered

    async def _serve_beside(self) -> None:
        """Lets a server on another thread answer: looks past the books, orders and the status on this loop."""
        if self._beside is None:
            return
        loop = asyncio.get_running_loop()
        looks = dict(answers_of(self._frontier, asyncio.to_thread, self._options.output))
        here = self._answers()
        orders = {name: across(loop, here[name]) for name in ORDERS}
        status = across(loop, lambda _: self._status(asyncio.to_thread, left_out=True))
        add = across(loop, self._patient(self._added))
        admit = across(loop, self._patient(lambda asked: self._admit(asked["urls"], owner=asked["owner"])))
        why_idle = self._with_shares(looks["why-idle"], across(loop, self._throughput))
        answers = {**looks, **orders, "status": status, "why-idle": why_idle}
        running = Running(
            self._options.output,
            self._frontier,
            answers,
            lambda links, request: add({"links": links, "request_id": request}),
            lambda urls, owner: admit({"urls": urls, "owner": owner}),
        )
        self._progress.say(f"outrider: serving at {await asyncio.to_thread(self._beside.open, running)}")

    async def _added(self, question: Mapping[str, Any]) -> list[Code]:
        """Takes links from a server beside this crawl, which has admitted their URLs."""
        links = await self._in_books(self._hooks.told, question["links"])
        codes = await self._in_books(self._frontier.discover, links, request_id=question["request_id"])
        counts: dict[str, int] = {}
        for code in codes:
            counts[str(code)] = counts.get(str(code), 0) + 1
        await self._in_books(lambda: self._journal.note("add", codes=counts))
        self._wake.set()
        return codes

    def _ordered(self, name: str, order: Answer) -> Answer:
        """Carries an order out, writes it down, and looks at once for what may be fetched now."""

        async def answered(question: Mapping[str, Any]) -> Any:
            if name == "add":
                urls = [str(url) for url in question.get("urls", ())]
                admitted = await self._admit(urls, owner=True)
                some = [urls[place] for place in admitted.places]
                question = {**question, "urls": await self._in_books(lambda: self._hooks.seeds(some))}
                found = with_refused(await order(question), admitted, urls)
            else:
                found = await order(question)
            told = {key: value for key, value in question.items() if key not in ("ask", "urls")}
            await self._in_books(lambda: self._journal.note(name, **{**told, **found}))
            self._wake.set()
            return found

        return answered

    async def _admit(self, urls: Sequence[str], *, owner: bool) -> Admitted:
        """Permits the loopback addresses that the owner's URLs name, as seeds do, and tells which URLs may be added."""
        admitted = await self._in_books(lambda: self._permission.admit(urls, owner=owner))
        self._options = self._permission.options
        return admitted

    async def _verified(self, _: Mapping[str, Any]) -> dict[str, Any]:
        """Recounts the store beside the crawl, whose calls wait meanwhile."""
        return asdict(await asyncio.to_thread(self._frontier.verify))

    async def _exported(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Writes the frontier's records to a file beside the crawl, which goes on between two pieces."""
        path, count = str(question.get("path", "")), Count()
        if not os.path.isabs(path):
            raise SettingsError(f"path is {path!r}: a running crawl takes a whole path")
        await asyncio.to_thread(write_records, path, self._frontier.records(), FRONTIER, count.add)
        return {"count": count.total}

    def _patient(self, look: Answer) -> Answer:
        async def answered(question: Mapping[str, Any]) -> Any:
            task = asyncio.ensure_future(look(question))
            done, _ = await asyncio.wait({task}, timeout=HOOK_ANSWER_SECONDS)
            running = self._hooks.watch.now_running()
            if not done and running is not None and running[2] > HOOK_ANSWER_SECONDS / 2:
                task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # it is answered in vain
                raise HookRunningError(hook_running_text(*running))
            return await task

        return answered

    # -- beside it ----------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Shows progress, and from time to time notes how far the line files reach."""
        shown = time.monotonic()
        pause = self._progress.seconds
        while True:
            await asyncio.sleep(min(1.0, pause))
            now = time.monotonic()
            self._pace.add(now, self._answered)
            try:
                if now - shown >= pause:
                    status = await self.status()
                    took = time.monotonic() - now
                    self._progress.show(status, self._in_flight, now - self._began)
                    shown, pause = now, max(self._progress.seconds, took * STATISTICS_SHARE)
                if now - self._noted >= NOTE_SECONDS and self._full_since is None:
                    self._noted = now
                    await self._in_books(self._note)
            except StoreFullError:
                continue  # the loop meets it too, and says so
            except StoreError as error:
                self._failure = error
                self._wake.set()
                return

    def _note(self) -> None:
        self._output.note()
        self._note_run()
        self._journal.flush()

    def _say_soon(self, line: str) -> None:
        """Says a line from any thread; progress is drawn in that of the event loop."""
        assert self._event_loop is not None, "a run that has begun knows its loop"
        with contextlib.suppress(RuntimeError):  # the loop was closed
            self._event_loop.call_soon_threadsafe(self._progress.say, line)

    async def _in_books(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a function in the thread that owns frontier, archive and line files."""
        return await asyncio.get_running_loop().run_in_executor(self._books, lambda: work(*args, **kwargs))

    def _note_failure(self, error: BaseException) -> None:
        if isinstance(error, StoreError):
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


def _state_of(code: int) -> str:
    """The state that the store remembers of a run."""
    return "finished" if code == FINISHED else "stopped"


def _downloader(options: CrawlOptions, clock: Callable[[], int]) -> Downloader:
    return make_downloader(clock=clock, ca_file=options.ca, connections_max=_connections_max(options.concurrency))


def _connections_max(concurrency: int) -> int:
    """How many sockets may be open: a socket that cannot be had here must not be held against a host."""
    connections = max(concurrency, CONNECTIONS_MAX)
    files = allow_descriptors(connections + DNS_THREADS_MAX + DESCRIPTORS_SPARE)
    return connections if files is None else max(1, min(connections, files - open_files() - DESCRIPTORS_KEPT))


def _look_ups_max(connections: int) -> int:
    """How many look-ups may hang, each with a socket, beside so many connections."""
    files = allow_descriptors(connections + DNS_THREADS_MAX + DESCRIPTORS_SPARE)
    left = DNS_THREADS_MAX if files is None else files - open_files() - DESCRIPTORS_KEPT - connections
    return max(DNS_THREADS, min(DNS_THREADS_MAX, left))
