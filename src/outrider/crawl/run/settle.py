"""From finished visits to durable outcomes: read, archive, sync, report, lines; then the next leases (one thread).

When the disk is full, unfinished work is kept, and the next call continues it: nothing is archived twice.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from outrider.archive import WarcPlace
from outrider.causes import error_words
from outrider.crawl.output.journal import Journal
from outrider.crawl.output.omissions import OVER_LIMIT
from outrider.crawl.output.output import Output
from outrider.crawl.output.output_frontier import OutputFrontier
from outrider.crawl.output.summary import counted
from outrider.crawl.run.bottleneck import Stage
from outrider.crawl.run.copies import Copies
from outrider.crawl.run.hook_failures import TOO_LARGE, HookFailures
from outrider.crawl.run.hooks import CrawledPage, HookFailed, Hooks
from outrider.crawl.run.lease_kinds import KINDS, Tools, errand_of, stopped_outcome, unkept_outcome
from outrider.crawl.run.payloads import Payloads
from outrider.crawl.run.probes import SOFT_404, Probes
from outrider.crawl.run.reading import NO_LINKS, Reader, Reading, Step
from outrider.crawl.run.sitemaps import Sitemaps
from outrider.crawl.run.spelling_redirects import SpellingRedirects
from outrider.crawl.run.tdm_files import TdmFiles
from outrider.crawl.run.visit import Judgement, Visit, has_text_of, page_outcome, visit_bytes
from outrider.crawl.setup.group_settings import groups_of
from outrider.crawl.setup.host_settings import PerHost
from outrider.crawl.setup.options import CrawlOptions
from outrider.errors import SettingsError, StoreFullError
from outrider.fetch.meaning import NOT_MODIFIED
from outrider.frontier.policy.grouping import SharedClocks
from outrider.journey import Code, Kind, Lease, LeaseBatch, Link, Outcome, Report, Settled, State, Verdict, Word
from outrider.limits import (
    DEPTH_MAX,
    HOOK_TRACEBACKS_MAX,
    HOSTS_RULED_MAX,
    METADATA_BYTES_MAX,
    TURN_BYTES_MAX,
    URL_BYTES_MAX,
)
from outrider.page import NO_LINKS as NO_FOUND
from outrider.page import Page
from outrider.url import LossyRules, UrlBatch, canonical_target

LEASE_SECONDS: Final = 90.0  # DNS (15 s) and a fetch (60 s) end before
LINKS_TIMES: Final = 4  # the factor for the bytes of links: read, decided, logged and stored


def _bytes(one: Reading) -> int:
    """Returns about the memory that a visit uses until its outcome is durable."""
    links, page = one.links, one.page
    size = visit_bytes(one.visit) + (len(page.octets) if page is not None else 0)
    if len(links):
        own = len(links.arena) if isinstance(links, UrlBatch) else sum(len(one.url) for one in links)
        size += LINKS_TIMES * (own + len(links) * len(one.visit.lease.url))
    return size


@dataclass(frozen=True, slots=True)
class Turn:
    """The result of one turn: leases, seconds until the next ones (None: waiting does not help), number of reported
    answers."""

    leases: LeaseBatch
    next_ready_seconds: float | None
    answered: int


def train_arguments(trains: tuple[int, int] | None) -> dict[str, Any]:
    """The arguments of a call that leases trains."""
    return {} if trains is None else {"queues_max": trains[0], "per_queue": trains[1], "train_seconds": 0.0}


def _last(links: UrlBatch | list[Link]) -> UrlBatch | list[Link]:
    """Links with the lowest priority there is."""
    if isinstance(links, UrlBatch):
        return links.with_columns(priority=0.0) if len(links) else links
    return [replace(one, priority=0.0) for one in links]


class Settler:
    """Accepts finished visits and returns leases; only one thread may use it."""

    def __init__(
        self,
        frontier: OutputFrontier,
        output: Output,
        options: CrawlOptions,
        journal: Journal,
        hooks: Hooks | None = None,
        *,
        tell: Callable[[CrawledPage], None] | None = None,
        copies: Copies | None = None,
        payloads: Payloads | None = None,
        sitemaps: Sitemaps | None = None,
        probes: Probes | None = None,
        tdm_files: TdmFiles | None = None,
        reader: Reader | None = None,
        told: Callable[[Settled], None] = lambda _: None,
        failures: HookFailures | None = None,
        say: Callable[[str], None] = lambda _: None,
        lease_seconds: float = LEASE_SECONDS,
        draw: Callable[[int, tuple[int, int] | None], tuple[LeaseBatch, float | None]] | None = None,
    ) -> None:
        """tell: is called with each answered page once it is stored. reader: may have read some visits ahead. told: is
        called with the code of each page. failures: counts the failures of hooks. say: prints a line for people: the
        first failure of each class. draw: leases as `turn` does, if the frontier is elsewhere."""
        self._say, self._lease_seconds = say, lease_seconds
        self._draw = draw or self._drawn
        self._failures = failures if failures is not None else HookFailures()
        self._told = told
        self._hooks = hooks or Hooks(options)
        self._copies = copies if copies is not None else Copies()
        self._payloads = payloads if payloads is not None else Payloads()
        self._sitemaps = sitemaps if sitemaps is not None else Sitemaps(frontier, options)
        self._probes = probes if probes is not None else Probes(frontier, options)
        self._tdm_files = tdm_files if tdm_files is not None else TdmFiles(frontier, options)
        self._tell = tell
        said = self._tdm_files.about if options.tdmrep else None
        self._reader = reader or Reader(options, self._hooks, output, keeps_links=tell is not None, said_in_file=said)
        self._tools = Tools(
            self._sitemaps, self._probes, self._tdm_files, self._hooks, PerHost(options), options.user_agent
        )
        self.spellings = SpellingRedirects(LossyRules.parse(options.url_rules) if options.url_rules else None)
        """URLs that are requested in another spelling than their own."""
        self._ruled: set[str] = set()
        self._tracebacks = 0
        self.gone: dict[str, int] = {}
        """Pages of this run that are gone, by the class of their status, as `http_404`."""
        self._errors_said: set[str] = set()
        self.not_followed: dict[str, int] = {}
        """Links of this run that were not followed, by reason."""
        grouping = groups_of(options.group, options.contact)
        self._clocks = SharedClocks(grouping) if grouping is not None else None
        self._frontier = frontier
        self._output = output
        self._options = options
        self._journal = journal
        self._pending: list[Reading] = []

    def turn(self, visits: Sequence[Visit], want: int, *, trains: tuple[int, int] | None = None) -> Turn:
        """Reports these visits and those of calls that met a full disk, then leases. Raises StoreError.

        trains: the largest number of queues with leases, and of leases each, if no gap is due between them.
        """
        answered = self.settle(visits)
        leases, ready = self._draw(want, trains) if want else (LeaseBatch(), None)
        self._journal.flush()
        return Turn(leases, ready, answered)

    def _drawn(self, want: int, trains: tuple[int, int] | None) -> tuple[LeaseBatch, float | None]:
        """Leases, and the seconds until there are more."""
        leases = self._frontier.lease(want, ttl_seconds=self._lease_seconds, errands=True, **train_arguments(trains))
        if leases.lines:
            self._output.write(leases.lines, leases.lsn)
        if self._options.host:
            self._rule(leases)
        return leases, self._frontier.next_ready_seconds() if len(leases) < want else None

    def _rule(self, leases: LeaseBatch) -> None:
        """Sets the delay and capacity of a [[host]] table in the frontier, once per host and run: with its
        first lease, a robots.txt, so before its first page."""
        for lease in leases:
            if lease.host in self._ruled or KINDS[lease.kind].stage is Stage.NAMED:
                continue
            if len(self._ruled) >= HOSTS_RULED_MAX:
                self._ruled.clear()
            self._ruled.add(lease.host)
            own = self._tools.per_host.of(lease.host)
            # The host may have queues of other names alone.
            with contextlib.suppress(SettingsError):
                if own.delay is not None:
                    self._frontier.set_delay(own.delay, lease.host)
                if own.capacity is not None:
                    self._frontier.set_limit(own.capacity, lease.host)

    def settle(self, visits: Sequence[Visit]) -> int:
        """Makes the outcomes of these visits durable; answers how many were answers of a site. Raises StoreError."""
        self._pending.extend(Reading(visit) for visit in visits)
        self._output.settle_debts()
        pending = self._pending
        unsent = [one.visit.lease.token for one in pending if one.visit.stopped and one.visit.began is None]
        if unsent:
            self._frontier.release(unsent)
            pending = self._pending = [one for one in pending if not one.visit.stopped or one.visit.began is not None]
        answered = 0
        while self._pending:
            answered += self._settle_some()
        return answered

    def _settle_some(self) -> int:
        """The first of those that wait, as many as may be in memory at once; they wait no longer then."""
        some: list[Reading] = []
        size = 0
        for one in self._pending:
            if one.step < Step.READ:
                self._pending[len(some)] = one = self._read(one.visit)
            some.append(one)
            size += _bytes(one)
            if size > TURN_BYTES_MAX:
                break
        self._tell_copies([one for one in some if one.step < Step.COMPARED])
        self._ask_hooks(some)
        self._archive(some)
        self._sitemaps.queue([one.found for one in some if one.found is not None and one.step < Step.JUDGED])
        for one in some:
            if one.step < Step.JUDGED:
                one.outcome = self._outcome_of(one)
                one.page = None
                one.step = Step.JUDGED
        self._probes.write()
        self._tdm_files.write()
        watermark = self._output.sync_archive()
        return sum(self._written(done, report) for done, report in self._reported(some, watermark))

    def _written(self, done: Sequence[Reading], report: Report) -> int:
        """Writes down those that are durable now; they wait no longer. Returns how many were answers of a site."""
        del self._pending[: len(done)]
        answered = 0
        for one, code in zip(done, report.outcomes, strict=True):
            assert one.outcome is not None
            answered += code is Settled.OK and bool(one.outcome.answered)
            self._note(one, one.outcome, code)
            if code is Settled.OK and (one.outcome.error is not None or one.outcome.verdict is Verdict.GONE):
                self._count_failed(one, one.outcome)
            self._note_fault(one)
            if one.visit.lease.kind is Kind.PAGE:
                if code is Settled.OK and one.may_be_repeated and one.shown is not None and one.warc is not None:
                    self._payloads.add(one.shown, WarcPlace(**one.warc))
                self._told(code)
                if one.outcome.answered and one.judgement is not None and one.judgement.word.has_content:
                    self._failures.page_was_read()
        self._count_passed(done, report)
        self._output.write(report.lines, report.lsn)
        self._forget_addresses(done)
        self._tell_pages(done, report)
        return answered

    def _count_failed(self, one: Reading, outcome: Outcome) -> None:
        """Counts a page that is gone by its status, and says the first failure of each class at once."""
        word, url = outcome.error, one.visit.lease.url
        if word is None:
            if one.visit.status is None or one.visit.lease.kind is not Kind.PAGE:
                return
            word = f"http_{one.visit.status}"
            self.gone[word] = self.gone.get(word, 0) + 1
        if word not in self._errors_said and not word.startswith("hook_") and not one.visit.stopped:
            self._errors_said.add(word)
            text = one.visit.error_text or error_words(word)
            self._say(f"{url}: {text or word} (the first {word}; crawl.log and pages.jsonl have the next ones)")

    def _count_passed(self, settled: Sequence[Reading], report: Report) -> None:
        """Counts the links that were not followed: by nofollow, by the scope of the crawl or of a hook, by number."""
        for one, code, codes in zip(settled, report.outcomes, report.links, strict=False):
            outside = codes.count(Code.OUT_OF_SCOPE) if codes else 0
            if codes and isinstance(one.links, list) and code is Settled.OK:  # a hook or a sitemap made them
                self._tell_refused(one, codes.count(Code.OVER_LIMIT))
            if code is not Settled.OK or not (outside or one.passed or one.left_out):
                continue
            for reason, count in (*one.passed.items(), ("scope", outside), (OVER_LIMIT, one.left_out)):
                if count:
                    self.not_followed[reason] = self.not_followed.get(reason, 0) + count

    def _tell_refused(self, one: Reading, count: int) -> None:
        """Says that links of a hook are over a limit, for the first page of a run."""
        if count and one.visit.lease.kind is Kind.PAGE:
            most = f"{URL_BYTES_MAX:,} bytes of URL, {METADATA_BYTES_MAX:,} bytes of metadata"
            self._journal.note("hook_link", url=one.visit.lease.url, over_limit=count)
            self._failures.refused(
                f"{counted(count, 'link')} of {one.visit.lease.url}", f"a hook added more than a link may have ({most})"
            )

    def _tell_pages(self, settled: Sequence[Reading], report: Report) -> None:
        """Passes the stored answered pages to their readers."""
        if self._tell is None:
            return
        for one, code in zip(settled, report.outcomes, strict=True):
            if one.seen is not None and code is Settled.OK and one.outcome is not None and one.outcome.line is not None:
                one.seen.line = msgspec.json.decode(one.outcome.line)
                self._tell(one.seen)

    # -- hooks --------------------------------------------------------------------------------------------------------

    def _ask_hooks(self, some: Sequence[Reading]) -> None:
        """Lets the hooks look at pages that were read, each page once."""
        if not self._hooks.looks_at_pages and self._tell is None:
            return
        for one in some:
            if one.step >= Step.SHOWN or one.judgement is None:
                continue
            if one.visit.stopped or one.visit.lease.kind is not Kind.PAGE:
                continue
            one.step = Step.SHOWN
            self._seen_by_hooks(one, one.judgement)
            if one.page is not None:
                one.page = replace(one.page, found=NO_FOUND)

    def _seen_by_hooks(self, one: Reading, judgement: Judgement) -> None:
        visit, hooks = one.visit, self._hooks
        page = CrawledPage(visit.lease, visit.response, judgement.word, one.page, _batch(one.links))
        if visit.status is not None and self._tell is not None:
            one.seen = page
        try:
            if one.page is not None:
                one.items = hooks.items(page)
                one.links, refused = hooks.links(page)
                if refused:
                    one.passed["scope"] = refused
                one.due_again = hooks.due_again(page)
            elif visit.status == NOT_MODIFIED and judgement.verdict is Verdict.DONE:
                one.due_again = hooks.due_again(page)
            elif judgement.location is not None:
                one.follows = hooks.follows(judgement.location, page)
        except HookFailed as failed:
            self._fail(one, failed)

    def _fail(self, one: Reading, failed: HookFailed) -> None:
        """Ends a page whose hook failed: as an error of its own class, without links."""
        one.fault = failed
        challenged = one.judgement is not None and one.judgement.challenged
        one.judgement = Judgement(Word.ERROR, Verdict.GONE, failed.word, challenged=challenged)
        one.page, one.links, one.items, one.due_again = None, NO_LINKS, None, None
        if one.seen is not None:
            one.seen.outcome = Word.ERROR

    def _note_fault(self, one: Reading) -> None:
        """The traceback of a failed hook, for the first ones of a run; later ones have their last line."""
        fault = one.fault or one.visit.fault
        if fault is None:
            return
        self._tracebacks += 1
        self._failures.failed(fault, one.visit.lease.url, page=one.visit.lease.kind is Kind.PAGE)
        lines = fault.lines()
        for line in lines if self._tracebacks <= HOOK_TRACEBACKS_MAX else lines[-1:]:
            self._journal.note(fault.word, url=one.visit.lease.url, text=line)

    def _forget_addresses(self, settled: Sequence[Reading]) -> None:
        """Resolves a host again that refused a connection at the address in its lease: it may have other addresses."""
        visits = [one.visit for one in settled if one.visit.lease.address is not None]
        gone = {one.lease.host for one in visits if one.response is not None and one.response.unconnected}
        if gone:
            with contextlib.suppress(StoreFullError):
                self._frontier.set_addresses(dict.fromkeys(gone))

    def _reported(
        self, some: Sequence[Reading], watermark: tuple[str, bytes] | None
    ) -> Iterator[tuple[Sequence[Reading], Report]]:
        """Reports these outcomes, together or one by one, and yields durable ones before it reports the next.

        One that the frontier cannot store ends as an error of its URL, not of the crawl."""
        try:
            outcomes = [one.outcome for one in some if one.outcome is not None]
            yield some, self._frontier.report(outcomes, watermark=watermark)
            return
        except SettingsError as error:
            if len(some) == 1:
                (one,) = some
                if one.outcome is None or one.outcome.error == TOO_LARGE:
                    raise
                self._journal.note(TOO_LARGE, url=one.visit.lease.url, text=str(error))
                self._failures.refused(f"the page {one.visit.lease.url}", str(error))
                one.outcome = unkept_outcome(one.visit, one.shown, one.warc)
        for one in some:
            yield from self._reported([one], watermark)

    @property
    def waiting(self) -> int:
        """Visits whose outcomes are not durable yet."""
        return len(self._pending)

    @property
    def leases(self) -> list[Lease]:
        """The leases of these visits; another thread may call this."""
        return [one.visit.lease for one in list(self._pending)]

    def _read(self, visit: Visit) -> Reading:
        """Adds the results of reading a visit."""
        one = self._reader.of(visit)
        one.step = Step.READ
        if self._options.tdmrep and visit.lease.kind is Kind.PAGE:
            self._tdm_files.of_page(visit.lease.url)
        if self._clocks is not None:
            clocks = self._clocks.of(visit.lease.host, visit.lease.address)
            told = tuple({"name": name, "capacity": most, "gap": gap} for name, most, gap in clocks)
            one.visit = replace(one.visit, groups=told)
        if one.fault is not None:
            self._fail(one, one.fault)
        elif not visit.stopped and (read := KINDS[visit.lease.kind].read) is not None:
            try:
                read(self._tools, one)
            except HookFailed as failed:
                self._fail(one, failed)
        return one

    def _tell_copies(self, fresh: Sequence[Reading]) -> None:
        """Says which of the pages that were read are copies."""
        accepted = [one for one in fresh if one.page is not None and one.visit.response and one.visit.response.content]
        accepted = [one for one in accepted if not self._is_nothing(one, one.page)]
        known = self._frontier.seen_content([one.digest or b"" for one in accepted]) if accepted else []
        here: set[bytes] = set()
        for one, seen in zip(accepted, known, strict=True):
            assert one.judgement is not None
            assert one.digest is not None
            copy = bool(seen or one.digest in here)
            assert one.page is not None
            unchanged = one.digest == one.visit.lease.digest
            same_text = not unchanged and has_text_of(one.page, one.visit.lease)
            if unchanged or same_text:
                one.judgement = one.judgement.as_known(Word.UNCHANGED)
            if same_text:  # a page repeats its own words, which is no sign of a trap
                self._copies.add(one.visit.lease.url, one.digest, one.page.simhash, one.page.shingles)
                here.add(one.digest)
                continue
            self._name_original(one, one.digest, copy)
            here.add(one.digest)
            copy = copy or one.copy_of is not None or one.probe is not None
            if not unchanged:
                self._probes.count(one.visit.lease.url, one.page, one.visit.now, copy=copy)
        self._go_to_canonical(accepted)
        for one in fresh:
            one.step = Step.COMPARED

    def _is_nothing(self, one: Reading, page: Page | None) -> bool:
        """Whether a page is only the answer to any name, and says so. Then it is gone, and its links are not
        followed. Any other page like an answer is kept without new content; links that the answer has too are followed
        last."""
        assert page is not None
        assert isinstance(one.links, UrlBatch)
        lease = one.visit.lease
        like = self._probes.judged(lease.url, lease.depth, page, one.links)
        if like is None:
            return False
        one.probe, one.repeats, one.last = like.probe, True, not like.leads_on
        if not like.nothing:
            return False
        if len(one.links):
            one.passed[SOFT_404] = len(one.links)
        one.judgement, one.links = Judgement(Word.GONE, Verdict.GONE, SOFT_404), NO_LINKS
        return True

    def _name_original(self, one: Reading, digest: bytes, known: bool) -> None:
        """Finds the original of a copy. The links of the same bytes were met with the first page: they are followed
        last, or not at all."""
        page, url = one.page, one.visit.lease.url
        assert page is not None
        assert one.judgement is not None
        one.repeats |= self._copies.repeats(one.wording)
        if known:
            original = self._copies.exact(url, digest)
            one.copy_of = (original, None) if original is not None else None
            one.mirrored = original is not None and self._copies.is_of_mirror(url, original)
            if one.mirrored:
                return
            one.judgement = one.judgement.as_known(Word.DUPLICATE)
            if original is not None and self._options.copies == "drop":
                if len(one.links):
                    one.passed["copy"] = len(one.links)
                one.links = NO_LINKS
            one.last |= original is not None
            return
        one.copy_of = self._copies.near(url, page.simhash, page.shingles)
        near = one.copy_of[0] if one.copy_of is not None else None
        one.mirrored = near is not None and self._copies.is_of_mirror(url, near)
        one.differs = not self._copies.says_nothing_new(url, page, near)
        one.repeats |= near is None and not one.differs
        one.last |= one.repeats  # links of a page without end are followed after those of other pages
        self._copies.add(url, digest, page.simhash, page.shingles)

    def _go_to_canonical(self, accepted: Sequence[Reading]) -> None:
        """With `--honour-canonical`: a page that names another canonical URL is a copy of it; that URL is its one link.

        Not if this crawl does not fetch that URL: the page would be all there is of it. Nor back to the page on which
        this one was found: two pages that name each other would both be copies.
        """
        if not self._options.honour_canonical:
            return
        named: list[tuple[Reading, str]] = []
        for one in accepted:
            lease = one.visit.lease
            target = canonical_target(lease.url, one.page.canonical) if one.page and one.page.canonical else None
            if target is None:
                continue
            known = self._frontier.status(target)  # its URL is spelled by the lossy rules of this crawl
            if known.url not in {lease.url, lease.referrer} and known.state not in {State.GONE, State.PARKED}:
                named.append((one, known.url))
        links = [
            Link(target, depth=min(lease.depth + 1, DEPTH_MAX), referrer=lease.url, crawl=lease.crawl)
            for lease, target in ((one.visit.lease, target) for one, target in named)
        ]
        codes = self._frontier.discover(links) if links else []
        for (one, target), code in zip(named, codes, strict=True):
            if code in {Code.NEW, Code.KNOWN} and one.judgement is not None:
                one.links = UrlBatch.of([target])
                one.last = False
                one.judgement = one.judgement.as_known(Word.DUPLICATE)

    def _archive(self, some: Sequence[Reading]) -> None:
        """Appends the records of visits to the archive, all in one write."""
        fresh = [one for one in some if one.step < Step.ARCHIVED]
        kept = [one for one in fresh if one.records is not None and not one.visit.stopped]
        for one in kept:
            self._repeat(one)
        places = self._output.keep([one.records for one in kept if one.records])
        for one, place in zip(kept, places, strict=True):
            assert one.records is not None
            one.warc = _as_json(place)
            if one.original is not None:
                one.warc["payload"] = _as_json(one.original)
            one.may_be_repeated = bool(one.records.head)
            one.records = None
        for one in fresh:
            one.step = Step.ARCHIVED

    def _repeat(self, one: Reading) -> None:
        """Makes the record of a page refer to an earlier response with the same payload, if the archive has one."""
        if one.records is None or not one.records.head or one.visit.lease.kind is not Kind.PAGE:
            return
        place = self._payloads.find(one.records.payload_digest)
        made = self._output.repeated(one.records, place) if place is not None else None
        if made is not None:
            one.records, one.warc_record, one.original = made, made.mark, place

    def _outcome_of(self, one: Reading) -> Outcome:
        visit = one.visit
        if visit.stopped:
            return stopped_outcome(visit)
        if KINDS[visit.lease.kind].outcome is not None:
            self._respell(visit)
            return errand_of(visit, one.judgement, one.links, one.digest)
        assert one.judgement is not None
        return page_outcome(
            visit,
            self._respelled(one, one.judgement),
            page=one.page,
            links=_last(one.links) if one.last else one.links,
            digest=one.digest if visit.response is not None and visit.response.content else None,
            digest_shown=one.shown,
            warc=one.warc,
            preferences=one.preferences,
            items=one.items,
            not_followed=one.passed,
            follows=one.follows,
            due_again=one.due_again,
            copy_of=one.copy_of,
            probe=one.probe,
            repeats=one.repeats or (one.copy_of is not None and not one.mirrored and not one.differs),
            first_copy=not one.repeats and self._copies.is_first_of_shape(visit.lease.url, one.copy_of),
            foreign_copy=not one.repeats and self._copies.is_first_of_host(visit.lease.url, one.copy_of),
            keeps_text=self._options.keeps_text,
            warc_record=one.warc_record,
        )

    def _respelled(self, one: Reading, judgement: Judgement) -> Judgement:
        """Judges a redirect to another spelling of the same URL: that one is requested next, if robots.txt
        allows it as written."""
        written = self._respell(one.visit) if judgement.location is not None and one.follows else None
        return judgement if written is None else replace(judgement, verdict=Verdict.AGAIN, location=written)

    def _respell(self, visit: Visit) -> str | None:
        """The spelling in which the URL of a visit is requested next, where its answer leads to another one. The next
        hop of an errand is a request for that URL anyway."""
        written = self.spellings.found(visit)
        if written is None or self._frontier.robots_allow([written]) == [False]:
            return None
        return written if self.spellings.note(visit.lease.url, written) else None

    def _note(self, one: Reading, outcome: Outcome, code: Settled) -> None:
        lease, visit = one.visit.lease, one.visit
        if code is Settled.STALE:
            self._journal.note("stale", url=lease.url, token=lease.token)
        elif visit.stopped:
            self._journal.note("broken_off", url=lease.url, token=lease.token)
        elif (line := KINDS[lease.kind].line(one, outcome)) is not None:
            event, fields = line
            self._journal.note(event, **fields)


def _as_json(place: WarcPlace) -> dict[str, Any]:
    return {"file": place.file, "offset": place.offset, "length": place.length}


def _batch(links: UrlBatch | list[Link]) -> UrlBatch:
    return links if isinstance(links, UrlBatch) else UrlBatch.of([one.url for one in links])
