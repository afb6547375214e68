"""A crawl whose frontier is elsewhere: register, lease, fetch, report, until the frontier has no work left.

Requests run in the event loop; reports go in one thread and leases in another, for a lease may wait. A request ends
before its lease does: leases under way are extended, and a request whose lease cannot be is broken off.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Final

import msgspec

from outrider.causes import STOPPED as STOPPED_WORD
from outrider.clock import Instant, anchored, instant, wall
from outrider.crawl.accounts import Accounts
from outrider.crawl.directory import FRONTIER_NAME, WORK_FILE, WORKER_FOLDER, Known, write_settings
from outrider.crawl.fetching import Fetching, NameService
from outrider.crawl.hook_failures import HookFailures
from outrider.crawl.hooks import Hooks
from outrider.crawl.journal import JOURNAL_FILE, Journal
from outrider.crawl.options import SETTINGS_FILE, CrawlOptions, as_toml
from outrider.crawl.output import Output
from outrider.crawl.perhost import PerHost
from outrider.crawl.permission import closed
from outrider.crawl.probes import Probes
from outrider.crawl.seeds import is_loopback
from outrider.crawl.settle import LEASE_SECONDS, Settler
from outrider.crawl.sitemaps import Sitemaps
from outrider.crawl.version import version
from outrider.crawl.visit import Visit, visit_bytes
from outrider.crawl.worker_folder import LEASES_FILE, refuse_unknown_output
from outrider.engine.asking import Connections, Remote, is_on_loopback
from outrider.engine.messages import Registered
from outrider.engine.remote import RemoteFrontier
from outrider.errors import (
    ForeignStoreError,
    NamedPathError,
    OutriderError,
    StoreError,
    StoreFullError,
    UnreachableError,
)
from outrider.fetch.addresses import AddressGuard
from outrider.fetch.downloader import Downloader
from outrider.fetch.outcomes import FetchError
from outrider.journey import Kind, Lease, Outcome, RobotsAnswer, Settled, Verdict
from outrider.kernels import in_use
from outrider.limits import ANSWERS_BYTES_MAX, TURN_BYTES_MAX, WORK_FILE_BYTES_MAX
from outrider.storage.files import LOCK_NAME, TEMPORARY_SUFFIX, Directory, read_whole, replace

LEASES_BYTES_KEPT: Final = 1 << 20
WAIT_SECONDS: Final = 10.0  # a lease waits so long at the server; a stop cuts it off
STEP_SECONDS: Final = 2.0  # leases under way are looked at so often,
EXTEND_SECONDS: Final = 45.0  # extended when they end within so long,
END_SECONDS: Final = 10.0  # and their requests broken off when they could not be and end within so long
GATHER_SECONDS: Final = 0.005
STOP_SECONDS_MAX: Final = 30.0  # after the first stop requests may end for so long
PATIENCE_SECONDS: Final = 300.0  # so long a worker waits for its server
PATIENCE_SECONDS_EXTENDING: Final = 5.0
FULL_STEP_SECONDS: Final = 1.0
REFUSED_SECONDS: Final = 5.0  # a URL that this worker's guard refused is left to other workers for so long
REFUSED_TIMES_MAX: Final = 12  # a URL that it refused so often has that as its outcome: no other worker took it
REFUSED_URLS_MAX: Final = 10_000  # URLs whose refusals are counted
FINISHED, LIMIT, STOPPED, UNREACHABLE, HOOKS = 0, 3, 4, 8, 10


@dataclass(frozen=True, slots=True)
class Worked:
    """The end of a worker's run: its exit code, and how many pages counted and came too late. refused: how many leases
    this worker's own guard refused, and the words about the first of them."""

    exit_code: int
    accepted: int
    late: int
    refused: int = 0
    refused_text: str = ""


@dataclass(frozen=True, slots=True)
class Server:
    """The server of a worker. stay: go on when its frontier has no work left."""

    address: str
    token: str | None = None
    ca: str | None = None
    name: str | None = None
    stay: bool = False
    patience_seconds: float = PATIENCE_SECONDS


class Worker:
    """One run of one worker. `run` does it all; `stop` may be called from the event loop, twice for at once."""

    def __init__(
        self,
        options: CrawlOptions,
        server: Server,
        *,
        hosts: Mapping[str, tuple[str, ...]],
        make_downloader: Callable[[CrawlOptions, Callable[[], int]], Downloader],
        make_names: Callable[[], NameService],
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """say: is told what happens, in words for people."""
        self._options, self._server, self._hosts, self._say = options, server, hosts, say
        self._make_downloader, self._make_names = make_downloader, make_names
        self._guard = AddressGuard(options.allow_address, hosts)
        self._hooks = Hooks(options)
        self._hook_failures = HookFailures(say)
        self._books = ThreadPoolExecutor(max_workers=1, thread_name_prefix="outrider-books")
        self._asking = ThreadPoolExecutor(max_workers=2, thread_name_prefix="outrider-asking")
        self._given_up, self._stopped = threading.Event(), threading.Event()
        self._leasing: Connections | None = None
        self._client, self._requests = f"leases-{os.urandom(8).hex()}", count()
        self._wake, self._news = asyncio.Event(), asyncio.Event()
        self._running: dict[asyncio.Task[Visit], Lease] = {}
        self._until: dict[int, Instant] = {}  # when leases under way end, by token
        self._finished: list[Visit] = []
        self._held_bytes = 0  # of answers that no turn has taken
        self._settling = 0
        self._failure: BaseException | None = None
        self._stopping = 0
        self._code = FINISHED
        self._accepted = self._late = 0
        self._leases_written = False  # since they were synced
        self._sent = 0  # visits that sent a request
        self._refused = 0  # visits that the guard of this worker refused
        self._refused_text = ""  # the words about the first of them
        self._refused_times: dict[str, int] = {}  # by URL, for those that were refused last

    # -- from outside -------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """The first call leases no more and lets the requests in flight end. The second call ends them now."""
        self._stopping += 1
        self._stopped.set()
        if self._leasing is not None:
            self._leasing.cut()
        self._code = STOPPED
        if self._stopping == 1:
            self._say(f"stopping: {len(self._running)} requests in flight may end; once more stops at once")
            asyncio.get_running_loop().call_later(STOP_SECONDS_MAX, self._give_up)
        else:
            self._give_up()
        self._wake.set()
        self._news.set()

    def _give_up(self) -> None:
        self._given_up.set()
        self._break_off()

    async def run(self) -> Worked:
        """Works to the end. Raises SettingsError, StoreError and UnreachableError."""
        loop = asyncio.get_running_loop()
        caught = []
        for number in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):
                loop.add_signal_handler(number, self.stop)
                caught.append(number)
        try:
            await loop.run_in_executor(self._books, self._open)
            try:
                await self._work()
            finally:
                await loop.run_in_executor(self._books, self._close)
        finally:
            for number in caught:
                loop.remove_signal_handler(number)
            self._given_up.set()
            self._books.shutdown(wait=True)
            self._asking.shutdown(wait=True)
        if self._code in (FINISHED, LIMIT) and self._hook_failures.on_most_pages:
            self._code = HOOKS
            self._say(f"outrider: {self._hook_failures.ending(self._server.address)}")
        if self._code == FINISHED and self._refused and not self._sent:
            self._code = UNREACHABLE
        return Worked(self._code, self._accepted, self._late, self._refused, self._refused_text)

    # -- opening and closing (in the books' thread) -------------------------------------------------------------------

    def _remote(
        self, connections: Connections, name: str, patience: float, ends: threading.Event | None = None
    ) -> RemoteFrontier:
        """ends: no request is repeated once it is set."""
        event = ends or self._given_up

        def sleep(seconds: float) -> None:
            if event.wait(seconds):
                raise UnreachableError(f"nobody answers at {self._server.address}, and the worker was stopped")

        remote = Remote(self._server.address, connections, patience_seconds=patience, sleep=sleep)
        return RemoteFrontier(remote, worker=name)

    def _open(self) -> None:
        path = self._options.output
        if os.path.lexists(os.path.join(path, FRONTIER_NAME)):
            raise NamedPathError(f"{path} is a crawl with a frontier of its own; give a worker another one with -o")
        # Before anything is made or sent: what is refused stays as it is.
        refuse_unknown_output(path)
        self._files = Directory(path, create=True)
        self._own = Directory(os.path.join(path, WORKER_FOLDER), create=True)
        self._connections, self._leasing = (
            Connections(self._server.address, token=self._server.token, ca=self._server.ca) for _ in range(2)
        )
        try:
            self._own.lock()
            refuse_unknown_output(path)  # once more: the process before may have ended in between
            known = _known(self._own)
            name = self._server.name or (known.worker if known is not None else _name())
            self._frontier = self._remote(self._connections, name, self._server.patience_seconds)
            patience = self._server.patience_seconds
            self._waiting = self._remote(self._leasing, name, patience, self._stopped)
            self._hasty = self._remote(self._connections, name, PATIENCE_SECONDS_EXTENDING)
            registered = self._register()
            if known is not None and known.store != registered.store:
                raise ForeignStoreError(
                    f"{path} holds pages for another frontier than the one at {self._server.address}; choose another -o"
                )
            replace(
                self._own, WORK_FILE, msgspec.json.encode(Known(registered.store, name, self._server.address)) + b"\n"
            )
            write_settings(self._files, as_toml(self._options, ()))
            self._journal = Journal(os.path.join(path, JOURNAL_FILE), form=self._options.log_format, clock=wall)
            self._journal.note(
                "open", version=version(), kernels=in_use(), server=self._server.address, worker=name, pid=os.getpid()
            )
            self._accounts = Accounts(self._frontier, self._own)
            self._give_back()
            self._output = Output(self._files, self._accounts, self._options)
            again = self._output.open()
            self._leases.truncate(0)  # not before: their tokens tell which records may be cut
            if again or self._accounts.settled_again:
                self._journal.note("replayed", lines=again, reports=self._accounts.settled_again)
            self._settler = Settler(
                self._accounts,
                self._output,
                self._options,
                self._journal,
                self._hooks,
                under_way=lambda: [lease.token for lease in list(self._running.values())],
                sitemaps=Sitemaps(self._accounts, self._options, self._files),
                probes=Probes(self._accounts, self._options, self._files),
                told=self._told,
                failures=self._hook_failures,
            )
            self._clock = anchored(self._frontier.now())
        except BaseException:
            self._close_connections()
            self._own.close()
            self._files.close()
            raise

    def _register(self) -> Registered:
        """Tells the server that this worker is there. Permits the loopback addresses that the owner of the store named,
        where the server is on this machine: elsewhere they are another machine's."""
        registered = self._frontier.register(self._options.user_agent)
        if is_on_loopback(self._server.address):
            known = {str(network) for network in self._guard.allowed}
            self._guard.allow([one for one in registered.allow_address if one not in known])
        return registered

    def _follow(self, leases: Sequence[Lease]) -> None:
        """Looks for addresses that were permitted since this worker registered, where a lease names one."""
        if is_on_loopback(self._server.address) and any(
            is_loopback(host, self._hosts) and closed(host, self._hosts, self._guard)
            for host in {lease.host for lease in leases}
        ):
            self._register()

    def _give_back(self) -> None:
        """Ends the leases of the process before, whose requests nobody knows of: their hosts rest as behind any other
        request."""
        self._leases = self._own.open(LEASES_FILE, create=True)
        told = self._leases.read_at(0, self._leases.size()).decode("ascii", "replace").splitlines()
        held = {int(token): kind for token, _, kind in (line.partition(" ") for line in told) if token.isdigit()}
        for token in self._accounts.reported():
            held.pop(token, None)
        outcomes = [_broken_off(token, kind, self._frontier.now()) for token, kind in held.items() if kind in _KINDS]
        if outcomes:
            codes = self._frontier.report(outcomes).outcomes
            self._journal.note("given_back", leases=sum(code is Settled.OK for code in codes))

    def _remember(self, leases: Sequence[Lease]) -> None:
        """Writes leases down before their requests are sent. They are synced before an answer is kept: a power cut that
        takes earlier lines leaves leases that end at their deadlines."""
        if self._leases.size() > LEASES_BYTES_KEPT:
            leases = [*leases, *self._running.values(), *(visit.lease for visit in self._finished)]
            self._leases.truncate(0)
        lines = "".join(f"{lease.token} {lease.kind}\n" for lease in leases)
        self._leases.write_at(self._leases.size(), lines.encode())
        self._leases_written = True

    def _told(self, code: Settled) -> None:
        if code is Settled.OK:
            self._accepted += 1
        else:
            self._late += 1

    def _close(self) -> None:
        self._hooks.close()
        with contextlib.suppress(StoreError):
            self._output.note()
            self._accounts.keep()
            if not self._accounts.owes:
                self._leases.truncate(0)
        self._leases.close()
        self._journal.note("close", accepted=self._accepted, late=self._late)
        self._output.close()
        self._accounts.close()
        self._journal.close()
        self._close_connections()
        self._own.close()
        self._files.close()

    def _close_connections(self) -> None:
        for connections in (self._connections, self._leasing):
            if connections is not None:
                connections.close()

    # -- the work -----------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        options = self._options
        fetching = Fetching(
            self._make_downloader(options, self._clock),
            self._make_names(),
            self._guard,
            user_agent=options.user_agent_sent,
            loopback_only=options.contact is None,
            clock=self._clock,
            concurrency=options.concurrency,
            make_room=self._wake.set,
            hooks=self._hooks,
            per_host=PerHost(options),
            headers=options.headers_sent,
            spelling=self._settler.spellings.of,
        )
        beside = [asyncio.create_task(self._keep_leases()), asyncio.create_task(self._settle(fetching))]
        try:
            try:
                await self._lease(fetching)
            except UnreachableError:
                self._raise_failure()  # which broke that call off, and says what happened
                raise
            while self._running:
                await asyncio.wait([*self._running, beside[1]], return_when=asyncio.FIRST_COMPLETED)
                self._raise_failure()
            self._settling = -1  # the settler ends when it has nothing left
            self._news.set()
            await beside[1]
            self._raise_failure()
            await asyncio.get_running_loop().run_in_executor(self._books, self._output.check)
        finally:
            self._break_off()
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, *self._running, return_exceptions=True)
            await fetching.close()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _lease(self, fetching: Fetching) -> None:
        """Leases while there is room, until the frontier is done or the worker is stopped."""
        loop = asyncio.get_running_loop()
        while not self._stopping:
            self._raise_failure()
            room = self._options.concurrency - len(self._running) - len(self._finished)
            if room <= 0:
                self._wake.clear()
                await self._wake.wait()
                continue
            leases = await loop.run_in_executor(self._asking, self._next, room)
            if leases and self._refuses_all(leases):
                await loop.run_in_executor(self._asking, self._hasty.release, [one.token for one in leases])
                return
            if self._is_stopping():
                if leases:
                    with contextlib.suppress(OutriderError):
                        await loop.run_in_executor(self._asking, self._hasty.release, [one.token for one in leases])
                return
            if leases:
                self._remember(leases)
            for lease in leases:
                self._until[lease.token] = lease.deadline
                task = asyncio.create_task(fetching.visit(lease))
                self._running[task] = lease
                task.add_done_callback(partial(self._visited, fetching))
            if not leases and not self._server.stay and await self._is_over(loop):
                return

    def _is_stopping(self) -> bool:
        return self._stopping > 0

    def _next(self, room: int) -> Sequence[Lease]:
        """Leases that came, for which it waits. A stop cuts that question off; then it is asked once more by its id
        without a wait, so that leases which were on their way are known, and given back."""
        request = (self._client, next(self._requests))
        asked = partial(RemoteFrontier.lease, want=room, ttl_seconds=LEASE_SECONDS, errands=True, request_id=request)
        try:
            leases = asked(self._waiting, wait_seconds=WAIT_SECONDS)
            self._follow(leases)
            return leases
        except UnreachableError:
            if not self._stopping:
                raise
            with contextlib.suppress(OutriderError):
                return asked(self._hasty)
            return ()

    def _refuses_all(self, leases: Sequence[Lease]) -> bool:
        """Whether this worker may only refuse these leases, as it refused all before them: it has no use then, and ends
        for other workers to go on. A lease of a URL that it has not refused yet is tried."""
        if self._server.stay or not self._refused or self._sent or self._running or self._finished:
            return False
        return all(lease.url in self._refused_times for lease in leases)

    async def _is_over(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether there is nothing left, here or with other workers; sets how it ended."""
        if self._running or self._finished:
            return False
        if await loop.run_in_executor(self._asking, self._frontier.finished):
            return True
        if await loop.run_in_executor(self._asking, self._frontier.at_limit):
            self._code = LIMIT
            return True
        return False

    def _visited(self, fetching: Fetching, task: asyncio.Task[Visit]) -> None:
        lease = self._running.pop(task)
        if task.cancelled():
            self._finished.append(Visit(lease, wall(), self._clock(), stopped=True))
        elif (error := task.exception()) is not None:
            self._failure = error
        else:
            self._count(task.result())
            self._finished.append(task.result())
            self._hold(visit_bytes(task.result()), fetching)
        self._wake.set()
        self._news.set()

    def _count(self, visit: Visit) -> None:
        """Counts a visit: whether it sent a request, or this worker's own guard refused it."""
        if visit.response is not None or visit.began is not None:
            self._sent += 1
        elif visit.error is FetchError.BLOCKED_ADDRESS:
            if not self._refused:
                self._refused_text = visit.error_text
                self._say(f"refused: {visit.error_text}")
            self._refused += 1
            times = self._refused_times.pop(visit.lease.url, 0) + 1
            self._refused_times[visit.lease.url] = times
            if len(self._refused_times) > REFUSED_URLS_MAX:
                del self._refused_times[next(iter(self._refused_times))]

    def _hold(self, size: int, fetching: Fetching) -> None:
        """Counts the bytes of answers; while there are too many, large answers rest on their way."""
        self._held_bytes += size
        fetching.rest(self._held_bytes > ANSWERS_BYTES_MAX)

    async def _settle(self, fetching: Fetching) -> None:
        """Reports what is finished, until nothing comes any more."""
        loop = asyncio.get_running_loop()
        some: list[Visit] = []
        try:
            while True:
                if not self._finished and not some:
                    if self._settling < 0:
                        return
                    self._news.clear()
                    await self._news.wait()
                    await asyncio.sleep(GATHER_SECONDS)
                size = 0
                while self._finished and size < TURN_BYTES_MAX:
                    size += visit_bytes(self._finished[0])
                    some.append(self._finished.pop(0))
                self._hold(-size, fetching)
                try:
                    await loop.run_in_executor(self._books, self._turn, some)
                except StoreFullError as error:
                    self._journal.note("disk_full", text=str(error))
                    if self._stopping:
                        raise
                    await asyncio.sleep(FULL_STEP_SECONDS)
                for visit in some:
                    self._until.pop(visit.lease.token, None)
                some = []
                self._wake.set()
        except Exception as error:  # noqa: BLE001 - told where the work is waited for
            self._failure = error
            self._stopping = max(self._stopping, 1)
            self._wake.set()
            self._give_up()

    def _turn(self, some: Sequence[Visit]) -> None:
        if self._leases_written:
            self._leases_written = False
            self._leases.sync()  # before the archive is: a record without its lease looks like another worker's
        left = {visit.lease.token for visit in some if self._is_left_to_others(visit)}
        if left:
            at = self._frontier.now() + instant(REFUSED_SECONDS)
            error = str(FetchError.BLOCKED_ADDRESS)
            self._frontier.report([Outcome(one, Verdict.AGAIN, error=error, at=at, answered=False) for one in left])
            for visit in some:
                if visit.lease.token in left:
                    self._journal.note("refused", url=visit.lease.url, text=visit.error_text)
        self._settler.settle([visit for visit in some if visit.lease.token not in left])
        if self._accounts.is_long:
            self._output.note()
            self._accounts.keep()
        self._journal.flush()

    def _is_left_to_others(self, visit: Visit) -> bool:
        """Whether this worker's guard refused a URL that another worker may request. The frontier has its own rule for
        a robots.txt."""
        if visit.error is not FetchError.BLOCKED_ADDRESS or visit.lease.kind in (Kind.ROBOTS, Kind.ADDRESS):
            return False
        return self._refused_times.get(visit.lease.url, 0) < REFUSED_TIMES_MAX

    async def _keep_leases(self) -> None:
        """Extends the leases under way; breaks off a request whose lease is about to end, or has."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(STEP_SECONDS)
            now = self._frontier.now()
            soon = [token for token, until in self._until.items() if until < now + instant(EXTEND_SECONDS)]
            if soon:
                with contextlib.suppress(OutriderError):
                    codes = await loop.run_in_executor(self._asking, self._hasty.extend, soon, LEASE_SECONDS)
                    for token, code in zip(soon, codes, strict=True):
                        if token in self._until:
                            self._until[token] = now + instant(LEASE_SECONDS) if code is Settled.OK else now
            self._end_requests(self._frontier.now())

    def _end_requests(self, now: Instant) -> None:
        for task, lease in list(self._running.items()):
            if self._until.get(lease.token, now) < now + instant(END_SECONDS):
                task.cancel()

    def _break_off(self) -> None:
        for task in list(self._running):
            task.cancel()


_KINDS: Final = frozenset(map(str, Kind))


def _broken_off(token: int, kind: str, now: Instant) -> Outcome:
    """The outcome of a request that died with its process, if it was sent at all."""
    robots = RobotsAnswer(None) if kind == Kind.ROBOTS else None
    verdict = Verdict.DONE if robots is not None else Verdict.RETRY if kind == Kind.ADDRESS else Verdict.AGAIN
    at = now if verdict is Verdict.AGAIN else None
    return Outcome(token, verdict, seconds=0.0, error=STOPPED_WORD, at=at, robots=robots, answered=False)


def _name() -> str:
    return f"{socket.gethostname()[:40]}-{os.urandom(4).hex()}"


def _known(files: Directory) -> Known | None:
    try:
        return msgspec.json.decode(read_whole(files, WORK_FILE, bytes_max=WORK_FILE_BYTES_MAX), type=Known)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ForeignStoreError(f"{files.describe(WORK_FILE)} cannot be read; give another directory with -o") from None


def _is_begun(path: str) -> bool:
    """Whether a worker was killed in a new directory, before its settings stood there."""
    names = {name.removesuffix(TEMPORARY_SUFFIX) for name in os.listdir(path)}
    if not {WORKER_FOLDER} <= names <= {WORKER_FOLDER} | {SETTINGS_FILE}:
        return False
    with contextlib.suppress(OSError):
        own = {name.removesuffix(TEMPORARY_SUFFIX) for name in os.listdir(os.path.join(path, WORKER_FOLDER))}
        return own <= {LOCK_NAME, WORK_FILE}
    return False


def work(flags: Mapping[str, Any], server: Server, *, say: Callable[[str], None] = lambda _: None) -> Worked:
    """Works for a server until its frontier has no work left. flags: options of a crawl, `output` among them."""
    from outrider.crawl.directory import inspect, kept_settings
    from outrider.crawl.loop import _connections_max, _downloader, _look_ups_max
    from outrider.crawl.options import from_environment, resolved
    from outrider.crawl.seeds import read_hosts
    from outrider.fetch.names import make_resolver

    output = os.path.abspath(os.path.expanduser(str(flags["output"])))
    try:
        inspect(output)
    except ForeignStoreError:
        if not _is_begun(output):
            raise
    options = resolved({**flags, "output": output}, from_environment(os.environ), kept_settings(output).options, output)
    hosts = read_hosts(options.hosts)
    look_ups = _look_ups_max(_connections_max(options.concurrency))
    worker = Worker(
        options,
        server,
        hosts=hosts,
        make_downloader=_downloader,
        make_names=lambda: make_resolver(hosts, options.resolver, threads_max=look_ups),
        say=say,
    )

    async def run() -> Worked:
        return await worker.run()

    return asyncio.run(run())
