"""One page: fetched now with its robots verdict and the fate of each link, or read from the archive."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import msgspec

from outrider.archive import WarcPlace, read_record
from outrider.archive.line_index import Wanted, last_line
from outrider.crawl.output.archive_source import ArchiveSource
from outrider.crawl.output.archived_answers import whole_record
from outrider.crawl.output.output import FILES, PAGES
from outrider.crawl.output.written_lines import place_of
from outrider.crawl.questions.manual_requests import ManualRequests, SiteRules
from outrider.crawl.setup.directory import ARCHIVE_NAME, GIVE_A_CRAWL, DirectoryContent, inspect, no_crawl
from outrider.crawl.setup.host_settings import PerHost
from outrider.crawl.setup.options import CrawlOptions, is_function
from outrider.errors import NamedPathError, UnreachableError
from outrider.fetch import FetchFailure, Response
from outrider.fetch.codings import codings_of, unchunk
from outrider.fetch.downloader import Headers
from outrider.fetch.judging import challenge_of, meaning_of_page
from outrider.fetch.meaning import NOT_MODIFIED, Meaning
from outrider.fetch.response_bytes import uncoded
from outrider.limits import BODY_BYTES_MAX, DELAY_FACTOR_SECONDS_MAX
from outrider.page import FOLLOWABLE, Page, PageLink, read
from outrider.robots import ALLOW_ALL, REFUSE_ALL, Rules
from outrider.storage.files import Directory
from outrider.url import Scope, Url, clock_host

WAIT_TOLD_SECONDS: Final = 3.0  # a longer wait looks like a command that hangs
UNFOLLOWED: Final = ("nofollow", "ugc", "sponsored")


@dataclass(frozen=True, slots=True)
class LinkFate:
    """A link of a page, and whether a crawl from that page would follow it."""

    url: str
    kind: str
    rel: str
    followed: bool
    reason: str


@dataclass(slots=True)
class OnePage:
    """The result of fetching one page."""

    url: str
    allowed: bool = True
    robots: str = ""
    """The line that decided, or why no line did."""
    robots_status: int | None = None
    robots_seconds: float = 0.0
    waited_seconds: float = 0.0
    response: Response | None = None
    meaning: Meaning | None = None
    """The entry that a crawl would write about the answer; None without an answer."""
    page: Page | None = None
    links: list[LinkFate] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Returns all fields as JSON values."""
        response, page, meaning = self.response, self.page, self.meaning
        return {
            "url": self.url,
            "status": response.status if response is not None else None,
            "outcome": meaning.word if meaning is not None else None,
            "error": meaning.error if meaning is not None else None,
            "address": response.address if response is not None else None,
            "headers": [list(pair) for pair in response.headers] if response is not None else [],
            "bytes": len(response.content) if response is not None else 0,
            "seconds": response.seconds if response is not None else None,
            "robots": {
                "allowed": self.allowed,
                "line": self.robots,
                "status": self.robots_status,
                "seconds": self.robots_seconds,
            },
            "waited_seconds": self.waited_seconds,
            "title": page.title if page is not None else None,
            "links": [
                {"url": one.url, "kind": one.kind, "rel": one.rel, "followed": one.followed, "reason": one.reason}
                for one in self.links
            ],
        }


async def fetch_page(
    url: str,
    options: CrawlOptions,
    hosts: Mapping[str, tuple[str, ...]],
    *,
    tell: Callable[[str], None] = lambda _: None,
    rest: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> OnePage:
    """Requests robots.txt, waits as a crawl would, and requests the page if that allows it.

    tell: prints a sentence about a long wait. rest: waits a number of seconds. Raises SettingsError without a contact,
    UnreachableError if robots.txt or the page cannot be requested.
    """
    sites = ManualRequests.named([url], options, hosts)
    found = OnePage(url)
    try:
        began = time.monotonic()
        told = await sites.rules(url)
        found.robots_seconds = round(time.monotonic() - began, 6)
        found.robots_status = told.status
        rules = _judged(found, told, options)
        if not found.allowed:
            return found
        await _rested(found, options, rules, tell, rest)
        response = found.response = await sites.page(url)
    except FetchFailure as failure:
        raise UnreachableError(f"{url}: {failure.facts}") from failure
    finally:
        await sites.close()
    found.meaning = meaning_of_page(response, challenged=challenge_of(response) is not None)
    if found.meaning.word.has_content:
        content_type = response.headers.joined("content-type")
        found.page = read(response.content, url, content_type, agent=options.user_agent)
        found.page = found.page.with_header(response.headers.get_all("link"), response.headers.get("refresh"))
        found.links = fates(found.page, options, rules)
    return found


def _judged(found: OnePage, told: SiteRules, options: CrawlOptions) -> Rules:
    """Returns the rules that count for a crawl with these settings, and notes the verdict."""
    rules, why = told.rules, told.why or "no line matches"
    if rules is REFUSE_ALL and options.robots_unreachable == "open":
        rules, why = ALLOW_ALL, f"{told.why}, but --robots-unreachable is open"
    if not options.obey_robots:
        rules, why = ALLOW_ALL, "the settings ignore robots.txt (--ignore-robots)"
    line = None if rules is REFUSE_ALL else rules.explain(options.user_agent, found.url)
    found.allowed = rules.allowed(options.user_agent, found.url)
    found.robots = why if line is None else f"line {line.number}: {line}"
    most, delay = options.crawl_delay_max, rules.gap(options.user_agent) or 0.0
    if found.allowed and most is not None and delay > most and options.crawl_delay_over == "skip":
        found.allowed = False
        found.robots = f"its Crawl-delay of {delay:g} s is above --crawl-delay-max {most:g}, and such pages are skipped"
    return rules


async def _rested(
    found: OnePage,
    options: CrawlOptions,
    rules: Rules,
    tell: Callable[[str], None],
    rest: Callable[[float], Awaitable[None]],
) -> None:
    """Waits the gap that a crawl would keep between robots.txt and the page."""
    own = PerHost(options).of(clock_host(found.url)).delay
    delay = rules.gap(options.user_agent) or 0.0
    if options.crawl_delay_max is not None and options.crawl_delay_over == "cap":
        delay = min(delay, options.crawl_delay_max)
    if options.crawl_delay_as == "window":  # its phase is unknown: one window after the start of the request before
        delay = max(0.0, delay - found.robots_seconds)
    factor = min(options.delay_factor * found.robots_seconds, DELAY_FACTOR_SECONDS_MAX)
    usual = max(options.delay if own is None else own, factor)
    found.waited_seconds = max(usual, delay)
    if found.waited_seconds >= WAIT_TOLD_SECONDS:
        asked = f"robots.txt has a Crawl-delay of {delay:g} s" if delay > usual else "the gap of the settings"
        tell(f"waiting {found.waited_seconds:g} s before the page: {asked}; Ctrl-C stops")
    await rest(found.waited_seconds)


def fates(page: Page, options: CrawlOptions, rules: Rules | None = None) -> list[LinkFate]:
    """Returns the fate of each link of a page: whether a crawl that begins there would follow it, and why."""
    kind: Any = "any" if is_function(options.scope) else options.scope
    scope = Scope.of_seeds(kind, [page.url], options.include, options.exclude)
    own = Url(page.url).origin
    found = []
    for link in page.links:
        reason = passed_by(link, page, follow_nofollow=options.follow_nofollow) or scope.refusal(link.url)
        if not reason and rules is not None and Url(link.url).origin == own:
            line = rules.explain(options.user_agent, link.url)
            if line is not None and not rules.allowed(options.user_agent, link.url):
                reason = f"robots.txt, line {line.number}: {line}"
        found.append(LinkFate(link.url, link.kind, link.rel, not reason, reason or "in scope"))
    return found


def passed_by(link: PageLink, page: Page, *, follow_nofollow: bool) -> str:
    """Returns in words why a link with any URL is not followed; "" for one that may be."""
    if link.kind not in FOLLOWABLE:
        return f"a link of {link.kind} is recorded, not followed"
    if follow_nofollow:
        return ""
    if page.robots & {"nofollow", "none"}:
        return "the page says nofollow"
    words = [word for word in link.rel.split() if word in UNFOLLOWED]
    return f"rel={words[0]}" if words else ""


# -- what was archived -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ArchivedPage:
    """A page of a crawl: its last line in pages.jsonl and, if archived, the answer. After a 304, the content is that of
    the last answer with content."""

    line: dict[str, Any]
    head: bytes = b""
    content: bytes = b""
    page: Page | None = None


def kept_page(directory: str, url: str) -> ArchivedPage:
    """Returns the last finished attempt at a URL. Raises NamedPathError without one, StoreError for damage."""
    found = inspect(directory, GIVE_A_CRAWL)
    if found is not DirectoryContent.CRAWL:
        raise no_crawl(directory, found)
    path = os.path.join(directory, FILES[PAGES])
    line = _last_line(path, url)
    if line is None:
        raise NamedPathError(
            f"{url} is not in {directory}/{FILES[PAGES]}; `outrider explain {url} -o {directory}` shows what is known "
            "about it"
        )
    if line.get("warc") is None:
        return ArchivedPage(line)
    place = place_of(line, url, path)
    files = ArchiveSource(directory)
    try:
        head, content, page = archived(files, place, url)
        whole = _last_line(path, url, _has_content) if line.get("status") == NOT_MODIFIED else None
        if whole is not None:
            place = place_of(whole, url, path)
            _, content, page = archived(files, place, url)
        return ArchivedPage(line, head, content, page)
    except FileNotFoundError:
        raise NamedPathError(f"{directory}/{ARCHIVE_NAME}/{place.file} is missing; restore it") from None
    finally:
        files.close()


def archived(files: Directory, place: WarcPlace, url: str) -> tuple[bytes, bytes, Page | None]:
    """Returns the head, the content and the page of an archived answer. Raises FileNotFoundError, DamagedStoreError."""
    head, headers, content = answer_of(files, place)
    if not content and headers.get("refresh") is None:
        return head, content, None
    page = read(content, url, headers.joined("content-type"))
    return head, content, page.with_header(headers.get_all("link"), headers.get("refresh"))


def answer_of(files: Directory, place: WarcPlace) -> tuple[bytes, Headers, bytes]:
    """Returns the head of an archived answer, as bytes and as fields, and its content. Raises as `archived`."""
    record = whole_record(partial(read_record, files), place)
    head, _, body = record.block.partition(b"\r\n\r\n")
    headers = Headers.parse(head)
    if "chunked" in codings_of(headers.get_all("transfer-encoding")):
        body = unchunk(body).content
    content, _ = uncoded(headers, body, BODY_BYTES_MAX)
    return head, headers, content


def _has_content(line: dict[str, Any]) -> bool:
    """Whether the answer of a line is archived and can be what a later 304 confirms."""
    return line.get("warc") is not None and 200 <= (line.get("status") or 0) < 300


def _last_line(path: str, url: str, wanted: Wanted = lambda line: True) -> dict[str, Any] | None:
    try:
        return last_line(path, url, wanted=wanted)
    except (OSError, msgspec.DecodeError) as error:
        raise NamedPathError(f"{path} cannot be read ({error})") from None
