"""Why a crawl did not follow a link: by the page in its archive that has the link, and by its settings.

The frontier never sees a skipped link, so it can only say that no link named the URL. The page has the reason.
Without an archive, the settings name the kinds of links that are skipped.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from outrider.crawl.output.archive_source import ArchiveSource
from outrider.crawl.output.omissions import OVER_LIMIT, whole_page
from outrider.crawl.output.output import FILES, PAGES
from outrider.crawl.output.summary import counted
from outrider.crawl.output.written_lines import place_of
from outrider.crawl.questions.single_page import answer_of, passed_by
from outrider.crawl.setup.host_settings import PerHost
from outrider.crawl.setup.options import CrawlOptions, is_function, spelled
from outrider.errors import OutriderError
from outrider.fetch.downloader import Headers
from outrider.limits import EXPLAINED_SEARCH_SECONDS_MAX, LINKS_PER_PAGE_MAX, URL_BYTES_MAX
from outrider.page import FOLLOWABLE, Page, PageLink
from outrider.page.reader import Unread, read_many
from outrider.robots.directives import header_directives, strictest
from outrider.storage.files import Directory
from outrider.url import LossyRules, host_of

NOFOLLOW: Final = "nofollow"
RECORDED: Final = "recorded"
_WORD: Final = re.compile(rb"[A-Za-z0-9_-]{3,}")


@dataclass(frozen=True, slots=True)
class NamingPage:
    """A page with a link to a URL: the URL of the page, its links from a seed, and the word and the text of the
    reason why the link was skipped; both empty if neither the page nor its element has a reason."""

    url: str
    depth: int
    word: str
    text: str


def why_skipped(directory: str, options: CrawlOptions, url: str, ticks: Callable[[], float]) -> tuple[str, str]:
    """Returns why no link to a URL inside the scope was followed: the word of the reason, and the text. ticks: a
    clock in seconds that limits the search."""
    if len(url) > URL_BYTES_MAX:
        return "unknown", f"its URL has {len(url):,} bytes; links of more than {URL_BYTES_MAX:,} bytes are not followed"
    named = naming_page(directory, url, options, ticks)
    if named is None:
        return "unknown", "it is in scope, but no link or call has named it" + _never_followed(options)
    who = f"{named.url} links to it"
    if named.text:
        way_out = "; --follow-nofollow follows such links" if named.word == NOFOLLOW else ""
        return "unknown", f"{who}, and the link was not followed: {named.text}{way_out}"
    most = options.max_depth
    if most is not None and named.depth + 1 > most:
        far = f"--max-depth {most}: {who}, and it is {counted(named.depth + 1, 'link')} from a seed"
        return "out_of_scope", f"it is out of scope: {far}"
    if is_function(options.scope):
        return "out_of_scope", f"{who}, and the function of the scope ({spelled(options.scope)}) decides about the link"
    return "unknown", f"{who}, but the link was not added when the page was read; `outrider add` adds it"


def _never_followed(options: CrawlOptions) -> str:
    """Returns in words the links that these settings skip."""
    passed = [] if options.follow_nofollow else ["with rel=nofollow"]
    if options.max_depth is not None:
        passed.append(f"more than {counted(options.max_depth, 'link')} from a seed")
    return f"; links {' or '.join(passed)} are not followed" if passed else ""


def naming_page(directory: str, url: str, options: CrawlOptions, ticks: Callable[[], float]) -> NamingPage | None:
    """Returns the first archived page with a link to a URL, preferably with a link that may be followed. None if no
    page was found in `EXPLAINED_SEARCH_SECONDS_MAX`."""
    until, wanted = ticks() + EXPLAINED_SEARCH_SECONDS_MAX, _Wanted(url, options)
    passed: NamingPage | None = None
    try:
        files = ArchiveSource(directory)
    except (OSError, OutriderError):
        return None
    try:
        for line in archived_lines(os.path.join(directory, FILES[PAGES])):
            if ticks() > until:
                break
            for named in wanted.named_by(line, files):
                if not named.text:
                    return named
                passed = passed or named
    finally:
        files.close()
    return passed


def archived_lines(path: str) -> Iterator[Mapping[str, Any]]:
    """Yields the lines of archived pages; unreadable lines are left out, because `verify` names them."""
    decoder = msgspec.json.Decoder(dict[str, Any])
    try:
        with open(path, "rb") as file:
            for text in file:
                try:
                    line = decoder.decode(text)
                except (msgspec.DecodeError, UnicodeDecodeError):
                    continue
                if line.get("warc") is not None and isinstance(line.get("url"), str):
                    yield line
    except OSError:
        return


class _Wanted:
    """A URL that pages may name."""

    def __init__(self, url: str, options: CrawlOptions) -> None:
        self._url, self._agent, self._options = url, options.user_agent, options
        self._rules = LossyRules.parse(options.url_rules or "")
        self._per_host = PerHost(options)
        path = url.partition("://")[2].partition("/")[2].encode()
        # A word of each page with such a link, in any form of the link: its host may be left out, and characters with
        # percent escapes may be written without.
        self._sign = b"" if b"%" in path else max(_WORD.findall(path), key=len, default=b"")

    def named_by(self, line: Mapping[str, Any], files: Directory) -> Iterator[NamingPage]:
        """Yields the links of a line's page that lead to the URL."""
        own, depth = str(line["url"]), line.get("depth")
        try:
            _, headers, content = answer_of(files, place_of(line, own, PAGES))
        except (OSError, OutriderError):
            return
        if self._sign not in content and headers.get("link") is None and headers.get("refresh") is None:
            return
        page = page_as_read(headers, content, own, self._agent)
        follow, whole, count = self._per_host.of(host_of(own)).follow_nofollow, whole_page(line, self._options), 0
        for link in page.links:
            count += link.kind in FOLLOWABLE
            if link.url == self._url or (self._rules and self._rules.apply(link.url) == self._url):
                why = passed_why(link, page, follow, whole, beyond=count > LINKS_PER_PAGE_MAX)
                yield NamingPage(own, depth if isinstance(depth, int) else 0, *why)


def page_as_read(headers: Headers, content: bytes, url: str, agent: str) -> Page:
    """Returns the page of an archived answer as the crawl read it: with the links and the directives of the answer's
    head."""
    page = read_many([Unread(content, url, headers.joined("content-type"))], agent=agent).pages[0]
    page = page.with_header(headers.get_all("link"), headers.get("refresh"))
    said = header_directives(headers, agent)
    return replace(page, robots=strictest(page.robots | said)) if said else page


def passed_why(link: PageLink, page: Page, follow: bool, whole: tuple[str, str], *, beyond: bool) -> tuple[str, str]:
    """Returns the word and the text of a reason in the page or the link; empty without one. follow: also links with
    nofollow."""
    if link.kind not in FOLLOWABLE:
        return RECORDED, passed_by(link, page, follow_nofollow=follow)
    if nofollow := passed_by(link, page, follow_nofollow=follow):
        return NOFOLLOW, nofollow
    if whole[0]:
        return whole
    if len(link.url) > URL_BYTES_MAX:
        return OVER_LIMIT, f"it is longer than {URL_BYTES_MAX:,} bytes"
    if beyond:
        return OVER_LIMIT, f"it is not among the first {LINKS_PER_PAGE_MAX:,} links of its page"
    return "", ""
