"""A list of the links that a crawl did not follow: read again from the archive, and checked in the frontier."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from outrider.crawl.output.omissions import COPY, OVER_LIMIT, SOFT_404, whole_page
from outrider.crawl.output.output import FILES, PAGES
from outrider.crawl.output.written_lines import place_of
from outrider.crawl.questions.crawl_queries import querying
from outrider.crawl.questions.import_pages import archive_beside
from outrider.crawl.questions.single_page import answer_of
from outrider.crawl.questions.skipped import NOFOLLOW, archived_lines, page_as_read, passed_why
from outrider.crawl.setup.directory import GIVE_A_CRAWL, DirectoryContent, inspect, no_crawl, settings_of
from outrider.crawl.setup.host_settings import PerHost
from outrider.crawl.setup.options import CrawlOptions
from outrider.errors import NamedPathError
from outrider.limits import LINKS_PER_PAGE_MAX, SKIPPED_ASKED_MAX, SKIPPED_KEPT_MAX
from outrider.page import FOLLOWABLE
from outrider.storage.files import Directory
from outrider.url import host_of

SCOPE: Final = "scope"
REASONS: Final = (SCOPE, NOFOLLOW, OVER_LIMIT, COPY, SOFT_404)


@dataclass(frozen=True, slots=True)
class Skipped:
    """A link that was not followed, the first page that has it, the word for the reason, and the reason in words."""

    url: str
    page: str
    reason: str
    text: str


def skipped(directory: str, reason: str | None = None) -> Iterator[Skipped]:
    """Yields the links of all pages of a crawl that it did not follow, each once. reason: only links with this reason.
    Raises NamedPathError for a crawl without an archive, StoreError."""
    found = inspect(directory, GIVE_A_CRAWL)
    if found is not DirectoryContent.CRAWL:
        raise no_crawl(directory, found)
    options = settings_of(directory)
    per_host = PerHost(options)
    path = os.path.join(directory, FILES[PAGES])
    told: set[tuple[str, str]] = set()
    with archive_beside(path) as files, querying(directory) as look:
        if files is None:
            raise NamedPathError(
                f"{directory} has no archive (--no-warc), which this list is read from; pages.jsonl has the number of "
                "such links for each page, as not_followed"
            )
        # Most links of a site are on each of its pages, and each question costs time of a running crawl.
        state_of = lru_cache(SKIPPED_ASKED_MAX)(lambda url: look("url-state", {"url": url}))
        for line in archived_lines(path):
            for one in _of_page(line, path, files, options, per_host, state_of):
                if (reason is None or one.reason == reason) and (one.url, one.reason) not in told:
                    if len(told) < SKIPPED_KEPT_MAX:
                        told.add((one.url, one.reason))
                    yield one


def _of_page(
    line: Mapping[str, Any],
    path: str,
    files: Directory,
    options: CrawlOptions,
    per_host: PerHost,
    state_of: Callable[[str], Mapping[str, Any]],
) -> Iterator[Skipped]:
    """Yields the links of one line that were not followed. state_of: returns the state of a URL, and its reason."""
    url = str(line["url"])
    if not isinstance(line.get("status"), int) or not 200 <= line["status"] < 300:
        return
    try:
        _, headers, content = answer_of(files, place_of(line, url, path))
    except FileNotFoundError:
        raise NamedPathError(f"an archive file that {path} names is missing; restore it") from None
    page = page_as_read(headers, content, url, options.user_agent)
    whole = whole_page(line, options)
    count, follow = 0, per_host.of(host_of(url)).follow_nofollow
    for link in page.links:
        if link.kind not in FOLLOWABLE:
            continue
        count += 1
        known = state_of(link.url)
        if known["state"] != "unknown":
            continue
        word, text = passed_why(link, page, follow, whole, beyond=count > LINKS_PER_PAGE_MAX)
        yield Skipped(link.url, url, word or SCOPE, text or known["reason_text"])
