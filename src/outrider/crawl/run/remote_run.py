"""A crawl whose frontier is elsewhere: a worker registers with its server, and its loop leases and reports there.

Three things are special: leases are written to disk before their requests, and the next process returns them; a lease
may wait at the server; and a URL that this worker's own guard refuses is left to other workers.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Final

import msgspec
from msgspec.structs import replace as replace_fields

from outrider.clock import Instant, instant
from outrider.crawl.output.report_log import ReportLog
from outrider.crawl.output.worker_folder import LEASES_FILE, refuse_unknown_output
from outrider.crawl.run.fetching import Fetching, NameService
from outrider.crawl.run.lease_kinds import KINDS
from outrider.crawl.run.loop import FINISHED, HOOKS, LIMIT, UNREACHABLE, CrawlLoop
from outrider.crawl.run.settle import LEASE_SECONDS, Turn, train_arguments
from outrider.crawl.run.visit import Visit
from outrider.crawl.setup.directory import FRONTIER_NAME, WORK_FILE, WORKER_FOLDER, WorkerOwner, write_settings
from outrider.crawl.setup.options import SETTINGS_FILE, CrawlOptions, as_toml
from outrider.crawl.setup.permission import closed
from outrider.crawl.setup.seeds import is_loopback
from outrider.crawl.setup.version import version
from outrider.engine.http_requests import RepeatedRequests, Transport, is_on_loopback, transport_to
from outrider.engine.messages import Registered
from outrider.engine.remote import RemoteFrontier
from outrider.errors import (
    ForeignStoreError,
    NamedPathError,
    OutriderError,
    SettingsError,
    StoreError,
    UnreachableError,
)
from outrider.fetch.addresses import AddressGuard
from outrider.fetch.downloader import Downloader
from outrider.fetch.failures import FetchError
from outrider.frontier.policy.revisit_plan import NAMES as REVISIT_RULES
from outrider.frontier.verbs.census import ScheduleCounts
from outrider.journey import Lease, LeaseBatch, Outcome, Settled, Verdict
from outrider.kernels import in_use
from outrider.limits import SERVICE_BATCH_MAX, WORK_FILE_BYTES_MAX
from outrider.storage.files import LOCK_NAME, TEMPORARY_SUFFIX, Directory, read_whole, replace

LEASES_BYTES_KEPT: Final = 1 << 20
WAIT_SECONDS: Final = 2.0  # the wait at the server of a worker without work; a stop interrupts it
POLL_SECONDS: Final = 1.0  # how often a worker with some work requests more: other workers find links too
PATIENCE_SECONDS: Final = 300.0  # how long a worker waits for its server
PATIENCE_SECONDS_EXTENDING: Final = 5.0
REFUSED_SECONDS: Final = 5.0  # how long a URL that this worker's guard refused is left to other workers
REFUSED_TIMES_MAX: Final = 12  # after this number of refusals, the refusal is the outcome: no other worker fetched it
REFUSED_URLS_MAX: Final = 10_000  # URLs whose refusals are counted


@dataclass(frozen=True, slots=True)
class WorkerEnd:
    """The end of a worker's run: its exit code, and the numbers of accepted and of late pages. refused: the number of
    leases that this worker's own guard refused, and the message about the first of them."""

    exit_code: int
    accepted: int
    late: int
    refused: int = 0
    refused_text: str = ""


@dataclass(frozen=True, slots=True)
class Server:
    """The server of a worker. stay: continue when its frontier has no work left."""

    address: str
    token: str | None = None
    ca: str | None = None
    name: str | None = None
    stay: bool = False
    patience_seconds: float = PATIENCE_SECONDS


class CrawlWorker(CrawlLoop):
    """One run of one worker. `run` does it all."""

    def __init__(
        self,
        options: CrawlOptions,
        server: Server,
        *,
        hosts: Mapping[str, tuple[str, ...]],
        make_downloader: Callable[[CrawlOptions, Callable[[], int]], Downloader] | None = None,
        make_names: Callable[[], NameService] | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """say: prints events, in words for people."""
        guard = AddressGuard(options.allow_address, hosts)
        super().__init__(
            options,
            guard,
            hosts,
            say=say,
            make_downloader=make_downloader,
            make_names=make_names,
            full_seconds_max=math.inf,
        )
        self._server, self._hosts = server, hosts
        self._given_up, self._stopped = threading.Event(), threading.Event()
        self._leasing: Transport | None = None
        self._client, self._requests = f"leases-{os.urandom(8).hex()}", count()
        self._accepted = self._late = 0
        self._leases_written = False  # since they were synced
        self._stood = ScheduleCounts()  # counts of hosts, as of the last lease
        self._waits = False  # nothing is to be done now, and the crawl is not over
        self._sent = 0  # visits that sent a request
        self._refused = 0  # visits that the guard of this worker refused
        self._refused_text = ""  # the words about the first of them
        self._refused_times: dict[str, int] = {}  # by URL, for those that were refused last

    # -- from outside -------------------------------------------------------------------------------------------------

    def stop(self, reason: str = "stopped by you") -> None:
        """As any crawl's; a wait at the server is cut off."""
        self._stopped.set()
        if self._leasing is not None:
            self._leasing.cut()
        super().stop(reason)

    def _break_off(self) -> None:
        self._given_up.set()
        super()._break_off()

    async def run(self) -> WorkerEnd:
        """Works to the end. Raises SettingsError, StoreError and UnreachableError."""
        try:
            await self._run()
        finally:
            self._given_up.set()
        code, _ = self._ending
        if code in (FINISHED, LIMIT) and self._hook_failures.on_most_pages:
            code = HOOKS
            self._say(f"outrider: {self._hook_failures.ending(self._server.address)}")
        if code == FINISHED and self._refused and not self._sent:
            code = UNREACHABLE
        return WorkerEnd(code, self._accepted, self._late, self._refused, self._refused_text)

    # -- opening and closing (in the writer thread) -------------------------------------------------------------------

    def _remote(
        self, transport: Transport, name: str, patience: float, ends: threading.Event | None = None
    ) -> RemoteFrontier:
        """ends: no request is repeated once it is set."""
        event = ends or self._given_up

        def sleep(seconds: float) -> None:
            if event.wait(seconds):
                raise UnreachableError(f"no server answers at {self._server.address}, and the worker was stopped")

        remote = RepeatedRequests(self._server.address, transport, patience_seconds=patience, sleep=sleep)
        return RemoteFrontier(remote, worker=name)

    def _open(self) -> None:
        path = self._options.output
        if os.path.lexists(os.path.join(path, FRONTIER_NAME)):
            raise NamedPathError(f"{path} is a crawl with its own frontier; choose another directory with -o")
        # Before anything is made or sent: what is refused stays as it is.
        refuse_unknown_output(path)
        self._files = Directory(path, create=True)
        self._own = Directory(os.path.join(path, WORKER_FOLDER), create=True)
        server = self._server
        self._reporting, self._leasing = (
            transport_to(server.address, token=server.token, ca=server.ca) for _ in range(2)
        )
        try:
            self._own.lock()
            refuse_unknown_output(path)  # once more: the process before may have ended in between
            self._meet(self._reporting, self._leasing)
            self._take_up()
        except BaseException:
            self._close_transports()
            self._own.close()
            self._files.close()
            raise

    def _meet(self, reporting: Transport, leasing: Transport) -> None:
        """Registers with the server, which must be the one of the directory."""
        path, known = self._options.output, _known(self._own)
        name = self._server.name or (known.worker if known is not None else _name())
        patience = self._server.patience_seconds
        self._served = self._remote(reporting, name, patience)
        self._waiting = self._remote(leasing, name, patience, self._stopped)
        self._hasty = self._remote(reporting, name, PATIENCE_SECONDS_EXTENDING)
        registered = self._register()
        if known is not None and known.store != registered.store:
            raise ForeignStoreError(
                f"{path} contains pages of a frontier other than the one at {self._server.address}; choose another -o"
            )
        self._has_trains = registered.gapless
        replace(
            self._own, WORK_FILE, msgspec.json.encode(WorkerOwner(registered.store, name, self._server.address)) + b"\n"
        )
        write_settings(self._files, as_toml(self._options, ()))
        self._name = name

    def _take_up(self) -> None:
        """Continues where the previous process ended."""
        self._accounts = ReportLog(self._served, self._own)
        self._set_up(self._accounts, self._files)
        address, name = self._server.address, self._name
        self._journal.note("open", version=version(), kernels=in_use(), server=address, worker=name, pid=os.getpid())
        self._give_back()
        again = self._output.open()
        self._leases.truncate(0)  # not before: their tokens determine which records may be cut
        if again or self._accounts.settled_again:
            self._journal.note("replayed", lines=again, reports=self._accounts.settled_again)
        self._make_settler(self._files, told=self._count_code, draw=self._draw)

    def _register(self) -> Registered:
        """Registers this worker with the server. Permits the loopback addresses in URLs of the store's owner, if the
        server is on this machine: elsewhere they belong to another machine."""
        registered = self._served.register(self._options.user_agent)
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
        """Ends the leases of the previous process, whose requests are unknown: their hosts rest as after any other
        request."""
        self._leases = self._own.open(LEASES_FILE, create=True)
        told = self._leases.read_at(0, self._leases.size()).decode("ascii", "replace").splitlines()
        held = {int(token): kind for token, _, kind in (line.partition(" ") for line in told) if token.isdigit()}
        for token in self._accounts.reported():
            held.pop(token, None)
        rows = {token: _ROWS[kind] for token, kind in held.items() if kind in _ROWS}
        now = self._served.now()
        outcomes = [replace_fields(row.broken_off(token, now), seconds=0.0) for token, row in rows.items()]
        if outcomes:
            codes = self._served.report(outcomes).outcomes
            self._journal.note("given_back", leases=sum(code is Settled.OK for code in codes))

    def _remember(self, leases: Sequence[Lease]) -> None:
        """Writes leases to disk before their requests are sent. They are synced before an answer is stored: if a power
        cut removes earlier lines, their leases end at their deadlines."""
        if self._leases.size() > LEASES_BYTES_KEPT:
            leases = [*leases, *self._held_leases()]
            self._leases.truncate(0)
        lines = "".join(f"{lease.token} {lease.kind}\n" for lease in leases)
        self._leases.write_at(self._leases.size(), lines.encode())
        self._leases_written = True

    def _count_code(self, code: Settled) -> None:
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
        places = self._bottleneck.last_minute(self._clock())
        shares = {cause: share for cause, share in places["shares"].items() if share}
        self._journal.note("places", bound=places["bound"], seconds=places["seconds"], **shares)
        self._journal.note("close", accepted=self._accepted, late=self._late)
        self._output.close()
        self._accounts.close()
        self._journal.close()
        self._close_transports()
        self._own.close()
        self._files.close()

    def _close_transports(self) -> None:
        for transport in (self._reporting, self._leasing):
            if transport is not None:
                transport.close()

    # -- the work -----------------------------------------------------------------------------------------------------

    def _now(self) -> Instant:
        return self._accounts.now()

    def _extend(self, tokens: Sequence[int]) -> list[Settled]:
        return self._hasty.extend(tokens, LEASE_SECONDS)

    def _settle(self, visits: Sequence[Visit], want: int, trains: tuple[int, int] | None) -> Turn:
        if self._leases_written:
            self._leases_written = False
            self._leases.sync()  # before the archive is: a record without its lease looks like another worker's
        left = {visit.lease.token for visit in visits if self._is_left_to_others(visit)}
        if left:
            at = self._accounts.now() + instant(REFUSED_SECONDS)
            error = str(FetchError.BLOCKED_ADDRESS)
            self._served.report([Outcome(one, Verdict.AGAIN, error=error, at=at, answered=False) for one in left])
            for visit in visits:
                if visit.lease.token in left:
                    self._journal.note("refused", url=visit.lease.url, text=visit.error_text)
        turn = self._settler.turn([visit for visit in visits if visit.lease.token not in left], want, trains=trains)
        if self._accounts.is_long:
            self._output.note()
            self._accounts.keep()
        return turn

    def _draw(self, want: int, trains: tuple[int, int] | None) -> tuple[LeaseBatch, float | None]:
        """Leases; a worker without work waits at the server. A stop interrupts that request. It is then repeated
        by its id without a wait, so that leases on their way are known, and returned."""
        want, request = min(want, SERVICE_BATCH_MAX), (self._client, next(self._requests))
        wish = train_arguments(trains if trains is None else (min(trains[0], SERVICE_BATCH_MAX), trains[1]))
        asked = partial(RemoteFrontier.lease, want=want, ttl_seconds=LEASE_SECONDS, errands=True, request_id=request)
        waits, self._waits = self._waits, False
        try:
            leases = asked(self._waiting, wait_seconds=WAIT_SECONDS if waits else 0.0, **wish)
            self._follow(leases)
        except UnreachableError:
            if not self._stopped.is_set():  # set before the request is cut; `_stopping` follows
                raise
            leases = LeaseBatch()
            with contextlib.suppress(OutriderError):
                leases = asked(self._hasty, **wish)
        if leases:
            self._remember(leases)
        ready = self._waiting.ready_seconds
        if len(leases) >= want:
            self._stood = ScheduleCounts(ready=self._concurrency, queued=1)
            return leases, None
        self._stood = ScheduleCounts(resting=0 if ready is None else self._concurrency)
        return leases, POLL_SECONDS if ready is None else min(POLL_SECONDS, ready)

    def _schedule_counts(self) -> ScheduleCounts:
        return self._stood

    def _begin_all(self, turn: Turn, fetching: Fetching) -> None:
        if turn.leases and self._refuses_all(turn.leases):
            self._stopping = 1  # and they are given back
        super()._begin_all(turn, fetching)

    def _refuses_all(self, leases: Sequence[Lease]) -> bool:
        """Whether this worker can only refuse these leases, as it refused all earlier ones: then it is useless, and
        ends so that other workers can continue. A lease of a URL that it has not refused yet is tried."""
        if self._server.stay or not self._refused or self._sent or self._at_work or self._finished:
            return False
        return all(lease.url in self._refused_times for lease in leases)

    async def _at_end(self, turn: Turn) -> bool:
        if self._stopping:
            return True
        self._waits, self._ready_at = True, 0.0  # the next turn starts at once, and waits at the server
        if self._server.stay:
            return False
        finished, at_limit = await self._in_books(lambda: (self._served.finished(), self._served.at_limit()))
        if at_limit and not finished:
            self._ending = (LIMIT, "")
        return finished or at_limit

    def _visited(self, lease: Lease, visit: Visit | BaseException) -> None:
        if isinstance(visit, Visit):
            self._count(visit)
        super()._visited(lease, visit)

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

    def _is_left_to_others(self, visit: Visit) -> bool:
        """Whether this worker's guard refused a URL that another worker may request. The frontier has its own rule for
        a robots.txt."""
        if visit.error is not FetchError.BLOCKED_ADDRESS or not KINDS[visit.lease.kind].by_any:
            return False
        return self._refused_times.get(visit.lease.url, 0) < REFUSED_TIMES_MAX


_ROWS: Final = {str(kind): row for kind, row in KINDS.items()}


def _name() -> str:
    return f"{socket.gethostname()[:40]}-{os.urandom(4).hex()}"


def _known(files: Directory) -> WorkerOwner | None:
    try:
        return msgspec.json.decode(read_whole(files, WORK_FILE, bytes_max=WORK_FILE_BYTES_MAX), type=WorkerOwner)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ForeignStoreError(
            f"{files.describe(WORK_FILE)} cannot be read; choose another directory with -o"
        ) from None


def _is_begun(path: str) -> bool:
    """Whether a worker was killed in a new directory, before its settings were written."""
    names = {name.removesuffix(TEMPORARY_SUFFIX) for name in os.listdir(path)}
    if not {WORKER_FOLDER} <= names <= {WORKER_FOLDER} | {SETTINGS_FILE}:
        return False
    with contextlib.suppress(OSError):
        own = {name.removesuffix(TEMPORARY_SUFFIX) for name in os.listdir(os.path.join(path, WORKER_FOLDER))}
        return own <= {LOCK_NAME, WORK_FILE}
    return False


def _refuse_revisits(flags: Mapping[str, Any]) -> None:
    """Raises SettingsError for a revisit rule or a rate: the server decides when pages are visited again."""
    named = [name for name in ("rate", "discovery_share") if name in flags]
    named += ["revisit"] if flags.get("revisit") in REVISIT_RULES else []
    for name in named:
        flag = "--" + name.replace("_", "-")
        raise SettingsError(
            f"{flag} {flags[name]!r:.80}: the server decides when pages are visited again; use {flag} with `outrider "
            "serve`. A worker accepts only a function of pages for --revisit"
        )


def _refuse_destinations(options: CrawlOptions, environment: Mapping[str, object]) -> None:
    """Raises SettingsError for a catalog or an archive in object storage: a worker would ignore them. They come from
    the environment or from the directory's settings, for `work` has no flags for them."""
    for name, reason in _NOT_OF_WORKERS.items():
        if not getattr(options, name):
            continue
        if name in environment:
            raise SettingsError(f"OUTRIDER_{name.upper()} is set, but {reason}; unset it")
        raise SettingsError(f"{os.path.join(options.output, SETTINGS_FILE)} has {name}, but {reason}; remove the line")


_NOT_OF_WORKERS: Final = {
    "tdmrep": "workers do not share the files that they read",
    "catalog": "a worker fills no catalog (`outrider export DIR… --what pages --to FILE` merges the pages of workers)",
    "archive": "a worker uploads nothing (its WARC files stay in its directory)",
}


def work(flags: Mapping[str, Any], server: Server, *, say: Callable[[str], None] = lambda _: None) -> WorkerEnd:
    """Works for a server until its frontier has no work left. flags: options of a crawl, `output` among them."""
    from outrider.crawl.setup.directory import inspect, kept_settings
    from outrider.crawl.setup.options import from_environment, resolved
    from outrider.crawl.setup.seeds import read_hosts

    _refuse_revisits(flags)
    output = os.path.abspath(os.path.expanduser(str(flags["output"])))
    try:
        inspect(output)
    except ForeignStoreError:
        if not _is_begun(output):
            raise
    environment, kept = from_environment(os.environ), kept_settings(output).options
    options = resolved({**flags, "output": output}, environment, kept, output)
    _refuse_destinations(options, environment)

    async def run() -> WorkerEnd:
        return await CrawlWorker(options, server, hosts=read_hosts(options.hosts), say=say).run()

    return asyncio.run(run())
