"""One page at hand: fetched now with its robots verdict and the fate of each link, or read back from the archive."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from outrider.archive import WarcPlace, read_record
from outrider.clock import elapsed
from outrider.crawl.directory import ARCHIVE_NAME, GIVE_A_CRAWL, Found, inspect, no_crawl
from outrider.crawl.options import CrawlOptions, is_function
from outrider.crawl.output import FILES, PAGES
from outrider.crawl.seeds import loopback_of, require_contact
from outrider.crawl.visit import location_of
from outrider.errors import NamedPathError, UnreachableError
from outrider.fetch import AddressGuard, Decoding, FetchFailure, Request, Resolver, Response
from outrider.fetch.codings import codings_of, decoded, unchunk
from outrider.fetch.downloader import Downloader, Headers
from outrider.limits import BODY_BYTES_MAX, DELAY_FACTOR_SECONDS_MAX, OUTPUT_LINE_BYTES_MAX, REDIRECT_HOPS_MAX
from outrider.page import FOLLOWABLE, Page, PageLink, read
from outrider.robots import ALLOW_ALL, REFUSE_ALL, Rules, verdict_of_status
from outrider.storage.files import Directory
from outrider.url import Scope, Url, host_of, join

UNFOLLOWED: Final = ("nofollow", "ugc", "sponsored")


@dataclass(frozen=True, slots=True)
class Fate:
    """A link of a page and what a crawl from that page would do with it."""

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
    """The line that decided, or why there is none."""
    robots_status: int | None = None
    robots_seconds: float = 0.0
    waited_seconds: float = 0.0
    response: Response | None = None
    page: Page | None = None
    links: list[Fate] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """All of it as values that JSON knows."""
        response, page = self.response, self.page
        return {
            "url": self.url,
            "status": response.status if response is not None else None,
            "error": str(response.error) if response is not None and response.error is not None else None,
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


async def fetch_page(url: str, options: CrawlOptions, hosts: Mapping[str, tuple[str, ...]]) -> OnePage:
    """Asks for robots.txt, rests as a crawl would, and asks for the page if that allows it.

    Raises SettingsError without a contact, UnreachableError where the robots.txt of the site cannot be asked for.
    """
    from outrider.fetch.chosen import make_downloader

    allowed = (*options.allow_address, *loopback_of([url], hosts, options.allow_address))
    site = _Site(
        options,
        hosts,
        Resolver(hosts),
        AddressGuard(allowed, hosts),
        make_downloader(clock=elapsed, ca_file=options.ca),
    )
    found = OnePage(url)
    try:
        began = time.monotonic()
        rules, why, found.robots_status = await site.robots(url)
        found.robots_seconds = round(time.monotonic() - began, 6)
        line = None if rules is REFUSE_ALL else rules.explain(options.user_agent, url)
        found.allowed = rules.allowed(options.user_agent, url)
        found.robots = why if line is None else f"line {line.number}: {line}"
        if not found.allowed:
            return found
        factor = min(options.delay_factor * found.robots_seconds, DELAY_FACTOR_SECONDS_MAX)
        found.waited_seconds = max(options.delay, factor, rules.crawl_delay(options.user_agent) or 0.0)
        await asyncio.sleep(found.waited_seconds)
        response = found.response = await site.get(url)
    except FetchFailure as failure:
        raise UnreachableError(f"{url}: {failure.facts}") from failure
    finally:
        await site.close()
    if response.status is not None and 200 <= response.status < 300 and response.decoding is not Decoding.UNKNOWN:
        content_type = response.headers.get("content-type") or ""
        found.page = read(response.content, url, content_type, agent=options.user_agent)
        found.links = fates(found.page, options, rules)
    return found


class _Site:
    """Requests one after the other, each to a checked address."""

    def __init__(
        self,
        options: CrawlOptions,
        hosts: Mapping[str, tuple[str, ...]],
        names: Resolver,
        guard: AddressGuard,
        downloader: Downloader,
    ) -> None:
        self._options, self._hosts = options, hosts
        self._names, self._guard, self._downloader = names, guard, downloader

    async def get(self, url: str) -> Response:
        # A redirect may lead from this machine to others.
        require_contact([url], self._options.contact, self._hosts)
        target = Url(url)
        address = self._guard.choose(target.host, await self._names.resolve(target.host, target.port))
        return await self._downloader.fetch(Request(url, address, self._options.user_agent_sent))

    async def robots(self, url: str) -> tuple[Rules, str, int | None]:
        """The rules for a URL, words where no line decides, and the status."""
        asked = join(url, "/robots.txt")
        for _ in range(REDIRECT_HOPS_MAX + 1):
            response = await self.get(asked)
            status = response.status if response.error is None else None
            verdict = verdict_of_status(status)
            location = location_of(response) if verdict == "redirect" else None
            if location is not None:
                asked = location
                continue
            if verdict == "rules" and response.decoding in (Decoding.WHOLE, Decoding.CUT):
                rules = Rules.parse(response.content)
                return rules, "no line matches" if rules.records else f"{asked} holds no rule", status
            if verdict in ("allow", "redirect"):
                return ALLOW_ALL, f"{asked} answers {status}: there are no rules", status
            told = f"answers {status}" if status is not None else f"fails ({response.error})"
            return REFUSE_ALL, f"{asked} {told}: nothing is allowed while it cannot be read", status
        return ALLOW_ALL, f"{asked}: more than {REDIRECT_HOPS_MAX} redirects, so there are no rules", None

    async def close(self) -> None:
        await self._downloader.close()
        await self._names.close()


def fates(page: Page, options: CrawlOptions, rules: Rules | None = None) -> list[Fate]:
    """Of each link of a page: whether a crawl that begins there would follow it, and why."""
    kind: Any = "any" if is_function(options.scope) else options.scope
    scope = Scope.of_seeds(kind, [page.url], options.include, options.exclude)
    own = Url(page.url).origin
    found = []
    for link in page.links:
        reason = _passed_by(link, page, options) or scope_reason(scope, link.url)
        if not reason and rules is not None and Url(link.url).origin == own:
            line = rules.explain(options.user_agent, link.url)
            if line is not None and not rules.allowed(options.user_agent, link.url):
                reason = f"robots.txt, line {line.number}: {line}"
        found.append(Fate(link.url, link.kind, link.rel, not reason, reason or "in scope"))
    return found


def _passed_by(link: PageLink, page: Page, options: CrawlOptions) -> str:
    if link.kind not in FOLLOWABLE:
        return f"a link of {link.kind} is recorded, not followed"
    if options.follow_nofollow:
        return ""
    if page.robots & {"nofollow", "none"}:
        return "the page says nofollow"
    words = [word for word in link.rel.split() if word in UNFOLLOWED]
    return f"rel={words[0]}" if words else ""


def scope_reason(scope: Scope, url: str) -> str:
    """The rule of a scope that refuses a URL; "" for a URL in scope."""
    if scope.verdicts([url], [0])[0]:
        return ""
    if scope.kind == "host" and host_of(url) not in scope.hosts:
        return f"scope host: {host_of(url)} is none of {', '.join(sorted(scope.hosts)[:3])}"
    place = Scope(scope.kind, scope.hosts, scope.domains, scope.prefixes)
    if not place.verdicts([url], [0])[0]:
        spans = sorted(scope.domains or scope.prefixes)[:3]
        return f"scope {scope.kind}: it is not in {', '.join(spans)}"
    for pattern in scope.exclude:
        if not Scope("any", exclude=(pattern,)).verdicts([url], [0])[0]:
            return f"--exclude {pattern}"
    if scope.include:
        return "no --include pattern is found in it"
    return "it is no URL that can be crawled"


# -- what was archived -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Kept:
    """A page of a crawl: its last line in pages.jsonl and, where it was archived, what came."""

    line: dict[str, Any]
    head: bytes = b""
    content: bytes = b""
    page: Page | None = None


def kept_page(directory: str, url: str) -> Kept:
    """The last finished attempt at a URL. Raises NamedPathError where there is none, StoreError for damage."""
    found = inspect(directory, GIVE_A_CRAWL)
    if found is not Found.CRAWL:
        raise no_crawl(directory, found)
    line = _last_line(os.path.join(directory, FILES[PAGES]), url)
    if line is None:
        raise NamedPathError(
            f"{url} stands in no line of {directory}/{FILES[PAGES]}; `outrider explain {url} -o {directory}` says what "
            "is known of it"
        )
    place = line.get("warc")
    if not isinstance(place, dict):
        return Kept(line)
    files = Directory(os.path.join(directory, ARCHIVE_NAME), create=False, read_only=True)
    try:
        record = read_record(files, WarcPlace(str(place["file"]), int(place["offset"]), int(place["length"])))
    except FileNotFoundError:
        raise NamedPathError(f"{directory}/{ARCHIVE_NAME}/{place['file']} is gone; bring it back") from None
    finally:
        files.close()
    head, _, body = record.block.partition(b"\r\n\r\n")
    headers = Headers.parse(head)
    if "chunked" in codings_of(headers.get_all("transfer-encoding")):
        body = unchunk(body).content
    content, _ = decoded(body, codings_of(headers.get_all("content-encoding")), BODY_BYTES_MAX)
    page = read(content, url, headers.get("content-type") or "") if content else None
    return Kept(line, head, content, page)


def _last_line(path: str, url: str) -> dict[str, Any] | None:
    wanted = b'"url":' + msgspec.json.encode(url)
    found: dict[str, Any] | None = None
    try:
        with open(path, "rb") as file:
            while octets := file.readline(OUTPUT_LINE_BYTES_MAX):
                if wanted in octets and octets.endswith(b"\n"):
                    line = msgspec.json.decode(octets, type=dict[str, Any])
                    found = line if line.get("url") == url else found
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise NamedPathError(f"{path} cannot be read ({error})") from None
    return found
