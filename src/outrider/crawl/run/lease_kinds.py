"""The kinds of leases in a crawl, a row each: its request, the limit of its answer, its reading, outcome and log line.

The loop, its workers and a server with errands of its own read these rows. The frontier has a row for each kind of
errand, too: its order among the pages of its host (`KINDS` in `frontier/state/errand.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec.structs import replace

from outrider.causes import STOPPED
from outrider.clock import Instant, seconds
from outrider.crawl.run.bottleneck import Stage
from outrider.crawl.run.hook_failures import TOO_LARGE
from outrider.crawl.run.hooks import NO_LINKS, Hooks
from outrider.crawl.run.probes import Probes
from outrider.crawl.run.sitemaps import SitemapContent, Sitemaps
from outrider.crawl.run.tdm_files import TdmFiles
from outrider.crawl.run.visit import (
    Judgement,
    Visit,
    address_outcome,
    errand_outcome,
    judged,
    page_outcome,
    politeness_of,
    robots_outcome,
)
from outrider.crawl.setup.host_settings import PerHost
from outrider.fetch.meaning import NOT_MODIFIED
from outrider.journey import Kind, Link, Outcome, RobotsAnswer, Verdict, Word
from outrider.limits import BODY_BYTES_MAX, HEAD_BYTES_MAX, SITEMAP_BYTES_MAX, TDMREP_BYTES_MAX
from outrider.robots import ignored_lines
from outrider.url import UrlBatch

if TYPE_CHECKING:
    from outrider.crawl.run.reading import Reading

Links: TypeAlias = UrlBatch | list[Link]
LogLine: TypeAlias = tuple[str, Mapping[str, Any]]
"""The event of a line in `crawl.log`, and its fields."""


@dataclass(frozen=True, slots=True)
class Tools:
    """The parts of a crawl that read the answers to errands."""

    sitemaps: Sitemaps
    probes: Probes
    tdm_files: TdmFiles
    hooks: Hooks
    per_host: PerHost
    agent: str


# -- readings: from the answer of an errand to its judgement and its content ------------------------------------------


def _judge(tools: Tools, one: Reading) -> None:
    """Judges an answer that has no content to read."""
    one.judgement = judged(one.visit, tools.per_host.of(one.visit.lease.host).retries)


def _read_robots(tools: Tools, one: Reading) -> None:
    """Finds the sitemaps that a robots.txt names, and queues the tdmrep.json. The frontier reads its rules."""
    lease = one.visit.lease
    tools.tdm_files.of_robots(lease, one.visit.status)
    answer = robots_outcome(one.visit).robots
    one.found = tools.sitemaps.of_robots(lease.url, lease.authority, answer)
    if answer is not None and answer.body:
        one.found.problem = ignored_lines(answer.body, tools.agent)


def _read_sitemap(tools: Tools, one: Reading) -> None:
    """Reads the URLs of a sitemap. Raises HookFailed."""
    visit = one.visit
    judgement = judged(visit, tools.per_host.of(visit.lease.host).retries, may_be_packed=True)
    same = visit.status == NOT_MODIFIED or (one.digest is not None and one.digest == visit.lease.digest)
    one.judgement, one.found = tools.sitemaps.of_sitemap(visit, judgement, is_same=same)
    one.links, refused = tools.hooks.mapped(one.found.links, visit)
    if refused:
        one.passed["scope"] = refused


def _read_tdmrep(tools: Tools, one: Reading) -> None:
    """Keeps the rules of a tdmrep.json for the pages of its site."""
    _judge(tools, one)
    assert one.judgement is not None
    one.judgement, problem = tools.tdm_files.of_file(one.visit, one.judgement)
    one.found = SitemapContent(problem=problem)


def _read_probe(tools: Tools, one: Reading) -> None:
    """Keeps the answer to a probe for the pages of its site. Its links are dropped."""
    assert one.judgement is not None
    assert isinstance(one.links, UrlBatch)
    one.judgement = tools.probes.of_probe(one.visit, one.judgement, one.page, one.links)
    one.page, one.links, one.passed = None, NO_LINKS, {}


# -- outcomes ---------------------------------------------------------------------------------------------------------


def _of_errand(visit: Visit, judgement: Judgement | None, links: Links, digest: bytes | None) -> Outcome:
    assert judgement is not None
    return errand_outcome(visit, judgement, links)


def _of_sitemap(visit: Visit, judgement: Judgement | None, links: Links, digest: bytes | None) -> Outcome:
    assert judgement is not None
    return errand_outcome(visit, judgement, links, digest)


def _of_robots(visit: Visit, judgement: Judgement | None, links: Links, digest: bytes | None) -> Outcome:
    """The outcome of an errand for a robots.txt. judgement: that of a file that cannot be kept, else None."""
    outcome = robots_outcome(visit)
    if judgement is None:
        return outcome
    return replace(outcome, robots=RobotsAnswer(None), error=judgement.error)


def _of_address(visit: Visit, judgement: Judgement | None, links: Links, digest: bytes | None) -> Outcome:
    return address_outcome(visit) if judgement is None else visit.lease.gone(error=judgement.error)


# -- outcomes of requests that we broke off ---------------------------------------------------------------------------


def _request_again(token: int, now: Instant) -> Outcome:
    """Requests the URL again as soon as its host may be visited. The attempt does not count."""
    return Outcome(token, Verdict.AGAIN, error=STOPPED, at=now, answered=False)


def _no_file(token: int, now: Instant) -> Outcome:
    """Requests a robots.txt again after a pause. Until then it is unreachable."""
    return Outcome(token, Verdict.DONE, error=STOPPED, robots=RobotsAnswer(None), answered=False)


def _no_address(token: int, now: Instant) -> Outcome:
    return Outcome(token, Verdict.RETRY, error=STOPPED, answered=False)


# -- lines of crawl.log -----------------------------------------------------------------------------------------------


def _page_line(one: Reading, outcome: Outcome) -> LogLine | None:
    visit, lease = one.visit, one.visit.lease
    if one.judgement is None or not one.judgement.word.logged:
        return None
    text = visit.error_text or (visit.response.error_text if visit.response is not None else None) or None
    return one.judgement.word, {
        "url": lease.url,
        "status": visit.status,
        "error": outcome.error,
        "attempt": lease.attempt,
        "retry_after": outcome.retry_after_seconds,
        "text": text,
    }


def _errand_line(one: Reading, outcome: Outcome) -> LogLine:
    visit, found = one.visit, one.found or SitemapContent()
    return str(visit.lease.kind), {
        "url": visit.lease.url,
        "status": visit.status,
        "error": outcome.error,
        "bytes": len(visit.response.content) if visit.response is not None else None,
        "location": outcome.robots.location if outcome.robots is not None else outcome.location,
        "seconds": outcome.seconds,
        "urls": len(found.links) or None,
        "left_out": found.left_out or None,
        "text": visit.error_text or found.problem,
    }


def _address_line(one: Reading, outcome: Outcome) -> LogLine:
    visit = one.visit
    facts = {"url": visit.lease.url, "address": visit.address, "error": outcome.error}
    return str(visit.lease.kind), facts | {"text": visit.error_text or None}


# -- the table --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CrawlKind:
    """One kind of lease.

    stage: the stage of its request, for the report on throughput. A request of the stage NAMED ends with the address of
    its host. bytes_max: the limit of its answer, None: by the settings of its host. few: at most `SITEMAPS_AT_ONCE` of
    these requests at once. parsed: whether the reading threads judge its answer and parse it as a page. read: makes the
    judgement and the content of an answer; None: the reading threads made them, or there is nothing to read. outcome:
    made from a visit, its judgement, its links and the digest of its content; None for a page, which the writer thread
    first compares with other pages. broken_off: the outcome of a request that we interrupted, by its token, now. line:
    its line in `crawl.log`, None for no line. by_server: whether a server does it for its workers. by_any: whether a
    worker whose own guard refuses its address leaves it to other workers.
    """

    kind: Kind
    stage: Stage = Stage.SITE
    bytes_max: int | None = None
    few: bool = False
    parsed: bool = False
    read: Callable[[Tools, Reading], None] | None = _judge
    outcome: Callable[[Visit, Judgement | None, Links, bytes | None], Outcome] | None = _of_errand
    broken_off: Callable[[int, Instant], Outcome] = _request_again
    line: Callable[[Reading, Outcome], LogLine | None] = _errand_line
    by_server: bool = False
    by_any: bool = True


KINDS: Final[Mapping[Kind, CrawlKind]] = {
    row.kind: row
    for row in (
        CrawlKind(Kind.PAGE, parsed=True, read=None, outcome=None, line=_page_line),
        CrawlKind(
            Kind.ROBOTS,
            stage=Stage.ROBOTS,
            bytes_max=BODY_BYTES_MAX,
            read=_read_robots,
            outcome=_of_robots,
            broken_off=_no_file,
            by_server=True,
            by_any=False,  # the frontier has its own rule for a robots.txt that a worker may not request
        ),
        CrawlKind(
            Kind.ADDRESS,
            stage=Stage.NAMED,
            read=None,
            outcome=_of_address,
            broken_off=_no_address,
            line=_address_line,
            by_server=True,
            by_any=False,
        ),
        CrawlKind(
            Kind.SITEMAP,
            bytes_max=SITEMAP_BYTES_MAX + HEAD_BYTES_MAX,
            few=True,
            read=_read_sitemap,
            outcome=_of_sitemap,
        ),
        CrawlKind(Kind.PROBE, parsed=True, read=_read_probe),
        CrawlKind(Kind.TDMREP, bytes_max=TDMREP_BYTES_MAX + HEAD_BYTES_MAX, read=_read_tdmrep),
    )
}
_UNKEPT: Final = Judgement(Word.ERROR, Verdict.GONE, TOO_LARGE)


def errand_of(
    visit: Visit, judgement: Judgement | None = None, links: Links = NO_LINKS, digest: bytes | None = None
) -> Outcome:
    """The outcome of an errand. digest: of its content."""
    outcome = KINDS[visit.lease.kind].outcome
    assert outcome is not None, visit.lease.kind
    return outcome(visit, judgement, links, digest)


def stopped_outcome(visit: Visit) -> Outcome:
    """Returns the outcome of a request that we interrupted: its host rests as after any other request."""
    began = visit.began if visit.began is not None else visit.now
    took = max(0.0, seconds(visit.now - began))
    outcome = KINDS[visit.lease.kind].broken_off(visit.lease.token, visit.now)
    politeness = politeness_of(visit, began, visit.now, took, STOPPED)
    return replace(outcome, seconds=took, ended_at=visit.now, politeness=politeness)


def unkept_outcome(visit: Visit, digest_shown: str | None, warc: dict[str, Any] | None) -> Outcome:
    """The outcome in place of one that the frontier cannot keep. The request counts and its content is left out."""
    if KINDS[visit.lease.kind].outcome is not None:
        return errand_of(visit, _UNKEPT)
    links = UrlBatch.of(())
    return page_outcome(visit, _UNKEPT, page=None, links=links, digest=None, digest_shown=digest_shown, warc=warc)
