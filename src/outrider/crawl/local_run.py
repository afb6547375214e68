"""A crawl whose frontier is in this process: its seeds, its store, its questions from outside, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Protocol

from outrider.clock import rfc3339
from outrider.crawl.orders.archive_uploads import ArchiveUploads, check_store
from outrider.crawl.orders.catalogs import Catalogs
from outrider.crawl.orders.own_faults import retry_own_faults, words_of
from outrider.crawl.output.omissions import BAD_SEED, omission_counts, rows_of
from outrider.crawl.output.output_recovery import judge_of, refuse_output_alone
from outrider.crawl.output.progress import Progress
from outrider.crawl.output.rates import RateMeter, eta_seconds, status_fields
from outrider.crawl.output.record_heads import RecordHeads
from outrider.crawl.output.summary import HookFailure, finished_before, held_back, left_alone, nothing_done
from outrider.crawl.output.tabular import FRONTIER, Count, write_records
from outrider.crawl.questions.control import Answer, Answers, Control
from outrider.crawl.questions.crawl_queries import answers_of, with_refused
from outrider.crawl.questions.side_server import RunningCrawl, SideServer, across
from outrider.crawl.run.fetching import NameService
from outrider.crawl.run.hooks import CrawledPage, HookRunningError, hook_running_text, idle_in_hook, idle_with_hooks
from outrider.crawl.run.loop import (
    BUG,
    FINISHED,
    FULL_SECONDS_MAX,
    HOOKS,
    LIMIT,
    STOP_SECONDS_MAX,
    UNREACHABLE,
    CrawlLoop,
)
from outrider.crawl.run.settle import Turn
from outrider.crawl.setup.directory import (
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
from outrider.crawl.setup.host_settings import unverified_hosts
from outrider.crawl.setup.options import CrawlOptions, as_toml
from outrider.crawl.setup.permission import Admitted, Permission
from outrider.crawl.setup.seeds import BadSeeds
from outrider.crawl.setup.version import version
from outrider.engine import Frontier
from outrider.engine.process_queries import ORDERS, facts_of
from outrider.errors import SettingsError, StoreError, StoreFullError, UnreachableError
from outrider.fetch.downloader import Downloader
from outrider.frontier.policy.budgets import budgets_over
from outrider.frontier.verbs.census import ScheduleCounts
from outrider.journey import Code, UrlStatus
from outrider.kernels import in_use
from outrider.limits import CATALOG_LOOK_SECONDS, CONTROL_PAGE_ROWS_MAX, HOOK_ANSWER_SECONDS, RETRY_SECONDS
from outrider.storage.files import Directory
from outrider.url import host_of

WAIT_SLACK_SECONDS: Final = 1.0  # between two looks at the same rest
OWN_WAIT_SECONDS_MAX: Final = max(RETRY_SECONDS)  # a crawl makes such pauses itself, also beyond --max-wait
SEEDS_AT_ONCE: Final = 100_000
NOTE_SECONDS: Final = 30.0  # how often the line files' lengths and the run's rates are recorded
STATISTICS_SHARE: Final = 20  # counting hosts may use at most 1/20 of the time


@dataclass(frozen=True, slots=True)
class CrawlResult:
    """The result of a crawl's run: its exit code, why it ended in words, its directory, the counts of the
    frontier, and the failures of hooks in this run."""

    exit_code: int
    ending: str
    output: str
    statistics: Mapping[str, Any]
    hook_failures: tuple[HookFailure, ...] = ()


class PageReader(Protocol):
    """Reads the pages of a crawl while it runs."""

    def tell(self, page: CrawledPage) -> None:
        """Accepts a stored page; called in the writer thread."""
        ...

    def full(self) -> bool:
        """Whether enough pages wait to be read to stop leasing."""
        ...


class CrawlRun(CrawlLoop):
    """One run of one crawl with a frontier of its own. `run` does it all."""

    _frontier: Frontier

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
        beside: SideServer | None = None,
    ) -> None:
        """reader: gets each answered page once it is stored. beside: answers questions of other processes while the
        crawl runs. Raises SettingsError for a hook that cannot be loaded."""
        self._permission = Permission(options, sources, hosts)
        super().__init__(
            options,
            self._permission.guard,
            hosts,
            say=progress.say,
            make_downloader=make_downloader,
            make_names=make_names,
            full_seconds_max=full_seconds_max,
            stop_seconds_max=stop_seconds_max,
        )
        self._beside, self._reader, self._progress = beside, reader, progress
        self._seeds, self._sources, self._seeds_again, self._bad_seeds = seeds, sources, seeds_again, bad_seeds
        self._was_finished = ""  # words for a crawl of which nothing was left when this run began
        self._left_out_last: dict[str, int] = {}
        self._left_out_again = 0.0  # when what was left out may be counted again
        self._pace = RateMeter(0.0)
        self._noted = 0.0
        self._control: Control | None = None
        self._catalogs: Catalogs | None = None
        self._uploads: ArchiveUploads | None = None
        self._archive_id = ""
        self._heads = RecordHeads(options)
        self._result: CrawlResult | None = None
        # Opened by `_open`, in the writer thread.
        self._before: LastRun
        self._files: Directory

    @property
    def options(self) -> CrawlOptions:
        """Returns the settings of this run."""
        return self._options

    @property
    def sources(self) -> tuple[str, ...]:
        """Returns the sources of the seeds, as typed."""
        return tuple(self._sources)

    # -- from outside -------------------------------------------------------------------------------------------------

    async def status(self) -> dict[str, Any]:
        """Returns the fields of `status --json` for this crawl now."""
        return await self._status(self._in_books)

    async def _status(
        self, calling: Callable[[Callable[[], Any]], Awaitable[Any]], *, left_out: bool = False
    ) -> dict[str, Any]:
        """calling: makes a query, in some thread. left_out: with the skipped URLs, whose cost grows with the number
        of URLs: they are counted again after a multiple of the time of the last count."""
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
        found = status_fields(statistics, rates, "running", eta, self._not_followed(), counts)
        if self._full_since is not None:  # the log may have room that the output lacks
            found["disk"]["full"] = True
        return found

    def _not_followed(self) -> dict[str, int]:
        """Links of all runs that were not followed, by reason; as of the last note where no settler is there yet."""
        counts = dict(self._before.not_followed)
        for reason, count in self._settler.not_followed.copy().items():
            counts[reason] = counts.get(reason, 0) + count
        return counts

    def _wait_seconds(self) -> float:
        """Returns the seconds that this run waits for resting hosts, and for all hosts with nothing in flight; the run
        ends if hosts rest for longer than --max-wait."""
        longest = self._frontier.waits(within_seconds=self._options.max_wait).longest_seconds
        ready = None if self._at_work else self._frontier.next_ready_seconds()
        return longest if ready is None or ready > self._options.max_wait else max(longest, ready)

    def go_on(self) -> None:
        """Requests leases at once: the reader has room again."""
        self._wake.set()

    async def run(self) -> CrawlResult:
        """Crawls to the end. Raises SettingsError and StoreError for a directory or store that cannot be used."""
        try:
            await self._run()
        finally:
            self._progress.close()
        assert self._result is not None, "a run without an error has its result"
        return self._result

    async def _begin_beside(self) -> None:
        await self._serve_beside()
        now = time.monotonic()
        self._pace = RateMeter(now, pages=self._answered)
        self._noted = now
        self._control = Control(self._options.output, self._answers())
        try:
            await self._control.open()
        except UnreachableError as error:
            self._journal.note("note", text=str(error))
        if self._options.archive and self._options.warc:
            self._uploads = ArchiveUploads(
                self._options.archive,
                self._options.output,
                lambda: self._output.archived,
                self._say_soon,
                identity=self._archive_id,
                keep=self._options.keep_archive,
            )
            self._uploads.start()
        self._catalogs = Catalogs(self._options.catalog, self._options.output, self._frontier, self._say_soon)
        self._catalogs.start()

    async def _end_beside(self) -> None:
        for one in (self._catalogs, self._uploads):
            if one is not None:
                one.stop()
                await asyncio.to_thread(one.finish)
        if self._control is not None:
            await self._control.close()
        if self._beside is not None:
            await asyncio.to_thread(self._beside.close, at_once=self._stopping > 1)

    # -- opening and closing (in the writer thread) -------------------------------------------------------------------

    def _open(self) -> None:
        options = self._options
        refuse_output_alone(options.output)
        self._check_archive()
        self._files = opened(options.output)
        self._before = last_run(options.output)
        try:
            frontier = Frontier.open(
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
        self._set_up(frontier, self._files)
        try:
            self._take_up(frontier)
            self._make_settler(
                self._files,
                keeps_links=self._reader is not None,
                tell=self._reader.tell if self._reader is not None else None,
            )
        except BaseException:
            self._shut("stopped")
            raise

    def _check_archive(self) -> None:
        """Checks the object storage before the crawl begins. Raises SettingsError for one that refuses."""
        if not self._options.archive or not self._options.warc:
            return
        self._archive_id, problem = check_store(self._options.archive, self._options.output)
        if problem:
            self._progress.say(f"outrider: {problem}; the archive is uploaded later")

    def _take_up(self, frontier: Frontier) -> None:
        """Continues where the previous run ended, with the seeds of this one."""
        options, opening = self._options, frontier.opening
        self._journal.note("open", version=version(), kernels=in_use(), opening=opening.number, pid=os.getpid())
        for host in unverified_hosts(options):
            self._journal.note("tls", host=host, text="its certificate need prove nothing, by a table of outrider.toml")
        for note in opening.notes:
            self._journal.note("note", text=note)
            self._progress.say(note)
        before = kept_settings(options.output).options
        write_settings(self._files, as_toml(options, self._sources))
        again = self._output.open()
        if again:
            self._journal.note("replayed", lines=again)
        self._note_bad_seeds()
        if not opening.fresh and (back := retry_own_faults(frontier, before, options)):
            self._journal.note("put_back", **back)
            self._progress.say(words_of(back))
        self._take_seeds()
        statistics = frontier.statistics()
        if not statistics["accepted"]:
            raise SettingsError("seeds are missing: this crawl has no URLs yet; name at least one")
        self._answered = int(str(statistics["answered"]))
        if opening.number > 1 and frontier.finished() and not frontier.at_limit():
            self._was_finished = finished_before(statistics, options.output)
            self._progress.say(self._was_finished)

    def _take_seeds(self) -> None:
        seeds = list(dict.fromkeys([*take_pending(self._files), *self._seeds]))
        if not seeds and self._seeds_again is not None and not self._frontier.statistics()["accepted"]:
            # A run that died before it read its seeds; outrider.toml contains their sources.
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
            self._heads.write(self._output.politeness_tree)
        self._note_run()
        self._journal.note("close", exit_code=code, ending=words or "finished")
        self._shut(_state_of(code))

    def _shut(self, state: str) -> None:
        """Closes everything; if the disk refuses even that, the next opening replays the store."""
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
        """Returns the number of seeds that were not URLs: of this run, or of the last one that read seeds."""
        return self._before.bad_seeds if self._bad_seeds is None else self._bad_seeds.count

    def _left_out(self, statistics: Mapping[str, Any]) -> dict[str, int]:
        """Counts the parked URLs, skipped links and bad seeds of the crawl, by reason; in the writer thread."""
        return omission_counts(statistics, self._frontier._parked(), self._not_followed(), self._count_bad_seeds())

    # -- the crawl ----------------------------------------------------------------------------------------------------

    def _schedule_counts(self) -> ScheduleCounts | None:
        return self._frontier._schedule_counts()

    def _synced_seconds(self) -> float:
        return self._frontier._synced_seconds()

    def _is_held(self) -> bool:
        return self._reader is not None and self._reader.full()

    async def _conclude(self) -> None:
        output, (code, words) = self._options.output, self._ending
        statistics: Mapping[str, Any] = await self._in_books(self._frontier.statistics)
        left_out = await self._in_books(self._left_out, statistics)
        for row in rows_of(left_out, output):
            self._journal.note("left_out", reason=row.reason, count=row.count, text=row.text, command=row.command)
        if code in (FINISHED, LIMIT) and self._hook_failures.on_most_pages:
            code, words = HOOKS, self._hook_failures.ending(output)
        elif code == FINISHED and not statistics["urls"]["done"]:
            silent = {host_of(one.url) for one in await self._in_books(self._unread)}
            code, words = UNREACHABLE, nothing_done(statistics, output, self._settler.gone, silent)
        elif code == FINISHED and self._was_finished:
            words = self._was_finished
        self._ending = (code, words or "finished")
        with contextlib.suppress(StoreFullError):
            await self._in_books(self._output.seal)
        late = "; ".join(filter(None, [await self._complete(self._catalogs), await self._complete(self._uploads)]))
        if late and code == FINISHED:
            code, words = UNREACHABLE, f"finished; {late}"
        told = {**statistics, "state": _state_of(self._ending[0]), "network": self._network, "left_out": left_out}
        self._result = CrawlResult(code, words or "finished", output, told, self._hook_failures.found())

    async def _complete(self, followers: Catalogs | ArchiveUploads | None) -> str:
        """Waits a limited time for the catalogs, or for uploads; the user may end it. Returns in words what is not
        complete."""
        if followers is None:
            return ""
        ending = asyncio.ensure_future(asyncio.to_thread(followers.finish))
        while not ending.done():
            await asyncio.wait({ending}, timeout=CATALOG_LOOK_SECONDS)
            if self._stopping > 1:
                followers.stop()
        for text in ending.result():
            self._journal.note("note", text=text)
            self._say(f"outrider: {text}")
        return "; ".join(ending.result())

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
        """Whether nothing can be fetched for longer than a crawl waits; then the remaining hosts are named.

        A gap of this crawl's own and the pause before a retry are not reasons to end.
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

    # -- questions ----------------------------------------------------------------------------------------------------

    def _answers(self) -> Answers:
        """Returns the answers of this crawl to questions; while a hook blocks the writer thread, the answer says so."""
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
        return self._bottleneck.last_minute(self._clock())

    def _with_shares(self, why_idle: Answer, throughput: Answer) -> Answer:
        """Adds the time of hooks and of slots to the answer."""

        async def answered(question: Mapping[str, Any]) -> dict[str, Any]:
            places = await throughput({})
            try:
                found = idle_with_hooks(await why_idle(question), self._hooks.watch.shares())
            except HookRunningError as running:
                found = idle_in_hook(running.facts)
            return {**found, "throughput": places}

        return answered

    async def _serve_beside(self) -> None:
        """Starts the server of another thread. It answers queries without the writer thread, orders and status here."""
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
        running = RunningCrawl(
            self._options.output,
            self._frontier,
            answers,
            lambda links, request: add({"links": links, "request_id": request}),
            lambda urls, owner: admit({"urls": urls, "owner": owner}),
        )
        self._progress.say(f"outrider: serving at {await asyncio.to_thread(self._beside.open, running)}")

    async def _added(self, question: Mapping[str, Any]) -> list[Code]:
        """Adds links from a server in this process, which has admitted their URLs."""
        links = await self._in_books(self._hooks.with_priorities, question["links"])
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
            facts = {**facts_of(question), **(found if name == "add" else facts_of(found))}
            await self._in_books(lambda: self._journal.note(name, **facts))
            self._wake.set()
            return found

        return answered

    async def _admit(self, urls: Sequence[str], *, owner: bool) -> Admitted:
        """Permits the loopback addresses in the owner's URLs, as for seeds, and says which URLs may be added."""
        admitted = await self._in_books(lambda: self._permission.admit(urls, owner=owner))
        self._options = self._permission.options
        return admitted

    async def _verified(self, _: Mapping[str, Any]) -> dict[str, Any]:
        """Recounts the store during the crawl, whose calls wait meanwhile."""
        return asdict(await asyncio.to_thread(self._frontier.verify))

    async def _exported(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Writes the frontier's records to a file during the crawl, which continues between two pieces."""
        path, count = str(question.get("path", "")), Count()
        if not os.path.isabs(path):
            raise SettingsError(f"path is {path!r}: a running crawl needs an absolute path")
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
        if self._heads.is_due:
            self._heads.write(self._output.politeness_tree)
        self._note_run()
        self._journal.flush()


def _state_of(code: int) -> str:
    """The state that the store remembers of a run."""
    return "finished" if code == FINISHED else "stopped"
