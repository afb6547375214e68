"""Hooks: functions of the user at the steps of a crawl, each with its arguments, its results, and its failure.

    on_request(request, lease) -> Request | None        event loop   headers and times of one request
    on_response(response, lease) -> Response | None     writer       the content that is read, original or corrected
    readers {type: read(body, url, content_type)}       a process    the text and links of a type other than HTML
    on_page(page) -> mapping, mappings | None           writer       items; links added and dropped
    scope(urls, page) -> column of true and false       writer       which links are followed
    priority(urls, page) -> column of 0 to 1            writer       what is fetched first
    key(urls, page) -> column of texts or None          writer       the queue of each link
    revisit(page) -> seconds | None                     writer       the next visit of the page
    downloader(options, clock) -> Downloader            event loop   the client that fetches

`writer` is the one thread that writes the store and the archive, one page at a time, in the order in which their
outcomes are stored. A function that fails ends its page with the error `hook_<name>`, its traceback is in
crawl.log, and the crawl continues. A reader has its own process (`reader_process.py`), with limits; one that cannot be
imported by name (a lambda) runs in the writer thread. Without such a reader and without `on_response`, answers are read
in other threads.
"""

from __future__ import annotations

import importlib
import inspect
import ipaddress
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from outrider.clock import rfc3339
from outrider.crawl.run.reader_page import checked_page
from outrider.crawl.run.reader_process import ReaderFailedError, ReaderProcess
from outrider.crawl.setup.options import LOST, CrawlOptions, is_function, spelled
from outrider.errors import InvalidUrlError, SettingsError, UnreachableError
from outrider.fetch.downloader import TRUNCATIONS, Decoding, Downloader, Headers, Request, Response
from outrider.fetch.failures import FetchError, FetchFailure
from outrider.frontier import priority as priorities
from outrider.frontier.format.metadata import depth_of, packed
from outrider.frontier.verbs import arguments
from outrider.journey import Lease, Link, Word
from outrider.limits import (
    HOOK_ITEMS_BYTES_MAX,
    HOOK_REVISIT_SECONDS_MAX,
    HOOK_SHARE_SLOW,
    HOOK_TEXT_CHARACTERS_MAX,
    HOOK_TRACEBACK_LINES_MAX,
    INSTANT_MAX,
    JSON_DEPTH_MAX,
    LINKS_PER_PAGE_BYTES_MAX,
    LINKS_PER_PAGE_MAX,
    READER_SECONDS_MAX,
    URL_BYTES_MAX,
)
from outrider.page import Page, PageLink, Source, media_type
from outrider.page.pdf import PDF_READER, PDF_TYPE, reads_pdf
from outrider.url import UrlBatch, normalize

if TYPE_CHECKING:
    from parsel import Selector, SelectorList

NO_LINKS: Final = UrlBatch.of(())
_NO_SIGNALS: Final[Mapping[str, float]] = {}


class CrawledPage:
    """A page as the hooks of a crawl see it: its answer, its content, and the links that will be followed.

    A page that could not be read (a redirect, an error, a type without a reader) has no text and no links.
    """

    def __init__(self, lease: Lease, response: Response | None, outcome: Word, content: Page | None, links: UrlBatch):
        self._lease = lease
        self.response = response
        self.outcome = outcome
        """The word of pages.jsonl: done, truncated, duplicate, redirect, gone …"""
        self.content = content
        """The result of the reader, None if nothing was read."""
        self.signals: Mapping[str, float] = _NO_SIGNALS
        """Signals for `priority`, by name; `on_page` may set them."""
        self.line: Mapping[str, Any] = {}
        """The page's line in pages.jsonl, once it is kept."""
        self._links = links
        self._follow: Iterable[str | Link] | None = None
        self._source: Source | None = None

    @property
    def lease(self) -> Lease:
        """The lease that it was fetched under."""
        return self._lease

    @property
    def url(self) -> str:
        """Where it was fetched from, in canonical spelling."""
        return self._lease.url

    @property
    def status(self) -> int | None:
        """The HTTP status, None without an answer."""
        return self.response.status if self.response is not None else None

    @property
    def headers(self) -> Headers:
        """The fields of the answer, by name in any case."""
        return self.response.headers if self.response is not None else Headers()

    @property
    def body(self) -> bytes:
        """The content, codings undone."""
        return self.response.content if self.response is not None else b""

    @property
    def content_type(self) -> str:
        """The Content-Type as the site sent it, "" without one."""
        return self.headers.joined("content-type")

    @property
    def title(self) -> str:
        return self.content.title if self.content is not None else ""

    @property
    def text(self) -> str:
        return self.content.text if self.content is not None else ""

    @property
    def html(self) -> str:
        """The body as text, decoded by the charset of the page as browsers do."""
        return self._decoded().html

    def css(self, selector: str) -> SelectorList[Selector]:
        """The elements of the page that a CSS selector matches, as parsel's selectors: `.get()` is the first, and
        `.getall()` has all. `::text` and `::attr(name)` end a selector. Raises SelectorError."""
        return self._decoded().css(selector)

    def xpath(self, expression: str, **variables: Any) -> SelectorList[Selector]:
        """Returns the nodes of the page that an XPath expression selects, as `css` does. variables: values of the
        names with a `$` in the expression. Raises SelectorError."""
        return self._decoded().xpath(expression, **variables)

    def _decoded(self) -> Source:
        if self._source is None:
            charset = self.content.charset if self.content is not None else "utf-8"
            self._source = Source(self.body, self.url, self.content_type, charset)
        return self._source

    @property
    def links(self) -> tuple[PageLink, ...]:
        """All links that were found, also those that are not followed: `.url .kind .rel .text` of each."""
        return self.content.links if self.content is not None else ()

    @property
    def depth(self) -> int:
        """Links from a seed."""
        return self.lease.depth

    @property
    def priority(self) -> float:
        return self.lease.priority

    @property
    def referrer(self) -> str | None:
        """The page that named it first."""
        return self.lease.referrer

    @property
    def follow(self) -> list[str | Link]:
        """The links for the frontier: a list that you may change or replace. A text may be relative
        to the page; a `Link` may have a priority or metadata."""
        if not isinstance(self._follow, list):
            self._follow = list(self._links.strings() if self._follow is None else islice(self._follow, _FOLLOW_MAX))
        return self._follow

    @follow.setter
    def follow(self, links: Iterable[str | Link]) -> None:
        if isinstance(links, str | bytes | Link) or not isinstance(links, Iterable):
            raise TypeError(f"page.follow was set to {links!r:.80}; use a list of URLs as text, and Links")
        self._follow = links

    @property
    def follow_was_used(self) -> bool:
        """Whether a hook looked at `follow`, or set it."""
        return self._follow is not None

    def chosen(self) -> tuple[UrlBatch, list[Link | None] | None]:
        """Returns the links for the frontier, and for each the `Link` of a hook; None if no hook changed the list."""
        if self._follow is None:
            return self._links, None
        items = list(islice(self._follow, LINKS_PER_PAGE_MAX))
        for item in items:
            if not isinstance(item, str | Link):
                raise TypeError(f"page.follow has {item!r:.80}; use URLs as text, and Links")
            if isinstance(item, Link):
                arguments.link(item)
                packed(item.metadata)
                priorities.checked(item.priority)
        base = self.content.base if self.content is not None and self.content.base else self.url
        batch = UrlBatch.of([item.url if isinstance(item, Link) else item for item in items], base)
        costs = np.where(batch.valid, batch.lengths + len(self.url), 0).cumsum()
        kept = np.flatnonzero(batch.valid & (costs <= LINKS_PER_PAGE_BYTES_MAX))
        made = [items[row] for row in kept.tolist()]
        told = (
            [item if isinstance(item, Link) else None for item in made]
            if any(isinstance(item, Link) for item in made)
            else None
        )
        return batch.take(kept), told

    def __repr__(self) -> str:
        return f"<CrawledPage {self.url} {self.outcome}>"


_FOLLOW_MAX: Final = LINKS_PER_PAGE_MAX


class OnPage(Protocol):
    """Looks at a page that was read. Each mapping that it returns or yields is an item. It may change `page.follow`."""

    def __call__(self, page: CrawledPage, /) -> Mapping[str, object] | Iterable[Mapping[str, object]] | None: ...


class LinkColumn(Protocol):
    """Returns one value per link. `page` is the page of the links, None for seeds. The column `depth` has their
    depths."""

    def __call__(self, urls: UrlBatch, page: CrawledPage | None, /) -> npt.ArrayLike: ...


class OnRequest(Protocol):
    """May replace the request for a page: other headers, times or `bytes_max`. URL, address and
    user agent remain, because robots.txt was requested with them."""

    def __call__(self, request: Request, lease: Lease, /) -> Request | None: ...


class OnResponse(Protocol):
    """May replace the received content; the archive stores the original."""

    def __call__(self, response: Response, lease: Lease, /) -> Response | None: ...


class ContentReader(Protocol):
    """Reads one type of content: a `Page`, or a mapping with some of title, description, text, language, links."""

    def __call__(self, body: bytes, url: str, content_type: str, /) -> Page | Mapping[str, Any] | None: ...


class Revisit(Protocol):
    """Seconds until a page is due again, None: never."""

    def __call__(self, page: CrawledPage, /) -> float | None: ...


class MappedVisit(Protocol):
    """The parts of a visit to a sitemap that hooks look at."""

    @property
    def lease(self) -> Lease: ...
    @property
    def response(self) -> Response | None: ...


class MakeDownloader(Protocol):
    """Makes the downloader of a crawl; a class with this constructor is one. `clock` returns the frontier's
    instants."""

    def __call__(self, options: CrawlOptions, clock: Callable[[], int], /) -> Downloader: ...


class HookFailed(Exception):  # noqa: N818 - no error of the crawl: it ends one page
    """A hook raised, or returned an invalid value; or a built-in reader did. `word` is the error class of its page."""

    def __init__(self, name: str, error: BaseException, *, word: str | None = None) -> None:
        """word: another one than that of the hook of this name."""
        super().__init__(name)
        self.name = name
        self.word = word or f"hook_{name}"
        self.error = error

    def lines(self) -> list[str]:
        """Its traceback, at most `HOOK_TRACEBACK_LINES_MAX` lines. The frames of this file and of the checks of results
        are omitted: a refused value has only its reason."""
        if isinstance(self.error, ReaderFailedError):
            lines = self.error.lines
        else:
            told = traceback.TracebackException.from_exception(self.error)
            told.stack = traceback.StackSummary.from_list(
                frame for frame in told.stack if frame.filename not in _OUR_CHECKS
            )
            lines = [part for line in told.format(chain=False) for part in line.rstrip().splitlines()]
        if len(lines) > HOOK_TRACEBACK_LINES_MAX:
            lines = [*lines[: HOOK_TRACEBACK_LINES_MAX - 1], lines[-1]]
        return lines

    @property
    def is_of_user(self) -> bool:
        """Whether a function of the user failed, not a reader of ours."""
        return self.word.startswith("hook_")

    def text(self) -> str:
        """The exception in one line."""
        if isinstance(self.error, ReaderFailedError):
            told = self.error.lines[-1] if self.error.lines else ""
        else:
            told = "".join(traceback.TracebackException.from_exception(self.error).format_exception_only())
        return " ".join(told.split())[:HOOK_TEXT_CHARACTERS_MAX]

    def kind(self) -> tuple[str, ...]:
        """Failures of one kind are equal here: the hook, the class of the exception, and the line that raised it."""
        if isinstance(self.error, ReaderFailedError):
            return (self.word, self.text().partition(":")[0])
        frames = traceback.extract_tb(self.error.__traceback__)
        where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
        return (self.word, type(self.error).__qualname__, where)


_OUR_CHECKS: Final = frozenset(inspect.getfile(where) for where in (checked_page, arguments, priorities)) | {__file__}
_TEXT: Final = ("a text", lambda given: isinstance(given, str))
_BYTES: Final = ("bytes", lambda given: isinstance(given, bytes))
_BOOL: Final = ("True or False", lambda given: isinstance(given, bool))
_INSTANT: Final = ("an instant of the crawl's clock", lambda given: type(given) is int and 0 <= given <= INSTANT_MAX)


def _is_url(given: object) -> bool:
    if not isinstance(given, str):
        return False
    try:
        return len(normalize(given)) <= URL_BYTES_MAX
    except InvalidUrlError:
        return False


def _is_address(given: object) -> bool:
    try:
        return isinstance(given, str) and bool(ipaddress.ip_address(given))
    except ValueError:
        return False


def _are_headers(given: object) -> bool:
    return isinstance(given, Headers) and all(isinstance(name, str) and isinstance(value, str) for name, value in given)


_RESPONSE: Final[Mapping[str, tuple[str, Callable[[Any], bool]]]] = {
    "url": (f"an http or https URL of at most {URL_BYTES_MAX:,} bytes, such as that of the request", _is_url),
    "address": ("the IP address that was asked, such as that of the request", _is_address),
    "status": ("100 to 999, or None", lambda given: given is None or (type(given) is int and 100 <= given <= 999)),
    "error": ("a FetchError, or None", lambda given: given is None or isinstance(given, FetchError)),
    "error_text": _TEXT,
    "request_head": _BYTES,
    "head": _BYTES,
    "body": _BYTES,
    "content": _BYTES,
    "truncated": (f"{', '.join(sorted(TRUNCATIONS))}, or None", lambda given: given is None or given in TRUNCATIONS),
    "decoding": ("a Decoding", lambda given: isinstance(given, Decoding)),
    "headers": ("Headers of texts", _are_headers),
    "started_at": _INSTANT,
    "ended_at": _INSTANT,
    "seconds": (
        f"a number from 0 to {arguments.SPAN_SECONDS_MAX:.0f}",
        lambda given: isinstance(given, int | float) and 0 <= given <= arguments.SPAN_SECONDS_MAX,
    ),
    "new_connection": _BOOL,
    "first_byte_at": ("an instant, or None", lambda given: given is None or _INSTANT[1](given)),
    "verified": _BOOL,
}
"""The parts of a Response: the words for the accepted values, and a check of a value."""


def checked_response(given: object, name: str) -> Response:
    """Returns the response of a hook if its parts are valid. Raises TypeError."""
    if not isinstance(given, Response):
        raise TypeError(f"{name} returned {given!r:.80}; use a Response")
    for part, (words, fits) in _RESPONSE.items():
        if not fits(value := getattr(given, part)):
            raise TypeError(f"{name} returned a Response whose {part} is {value!r:.80}; use {words}")
    if given.status is None and given.error is None:
        raise TypeError(f"{name} returned a Response whose status and error are None; use one of them")
    spelled_url = normalize(given.url)
    return given if spelled_url == given.url else replace(given, url=spelled_url)


def _cut(response: Response, request: Request) -> Response:
    """Cuts body and content of the response to the requested size: our downloaders stop there themselves,
    and a user's downloader need not."""
    body, content = request.room(len(response.head), response.headers.get("content-type"))
    if len(response.body) <= body and len(response.content) <= content:
        return response
    return replace(
        response,
        body=response.body[:body],
        content=response.content[:content],
        truncated=response.truncated or "length",
    )


class _UsersDownloader:
    """The downloader of a user: anything it raises, and any invalid result, becomes a HookFailed."""

    def __init__(self, made: Downloader, clock: Callable[[], int]) -> None:
        self._made = made
        self._clock = clock

    async def fetch(self, request: Request) -> Response:
        """The answer to a request. Raises HookFailed, and FetchFailure where the downloader does."""
        asked_at = self._clock()
        try:
            response = checked_response(await self._made.fetch(request), "downloader")
            began, ended = response.started_at, response.ended_at
            if not asked_at <= began <= ended <= self._clock():
                raise ValueError(
                    f"downloader returned a Response from {rfc3339(began)} to {rfc3339(ended)}, requested at "
                    f"{rfc3339(asked_at)}: take instants from the clock that the downloader is made with"
                )
        except FetchFailure:
            raise
        except BaseException as error:  # also errors that no program expects: its request must end
            raise HookFailed("downloader", error) from error
        return _cut(response, request)

    async def close(self) -> None:
        """Closes the downloader. Raises HookFailed."""
        try:
            await self._made.close()
        except Exception as error:
            raise HookFailed("downloader", error) from error


@dataclass(slots=True)
class HookTime:
    """The time that one hook needed, in seconds."""

    calls: int = 0
    seconds: float = 0.0
    seconds_max: float = 0.0


class Watch:
    """The time that hooks need, in any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._lock = threading.Lock()
        self.times: dict[str, HookTime] = {}
        self.running: tuple[str, str, float] | None = None  # name, URL, since when

    @contextmanager
    def over(self, name: str, url: str) -> Iterator[None]:
        """Counts the time of a block as that of a hook; an exception in it becomes HookFailed."""
        began = self._clock()
        self.running = (name, url, began)
        try:
            yield
        except HookFailed:
            raise
        except BaseException as error:
            raise HookFailed(name, error) from error
        finally:
            self.spent(name, self._clock() - began)
            self.running = None

    def now(self) -> float:
        return self._clock()

    def spent(self, name: str, took: float) -> None:
        """Adds the seconds of one call of a hook."""
        with self._lock:
            spent = self.times.setdefault(name, HookTime())
            spent.calls += 1
            spent.seconds += took
            spent.seconds_max = max(spent.seconds_max, took)

    def now_running(self) -> tuple[str, str, float] | None:
        """Name and URL of the hook that runs now, and for how long."""
        running = self.running
        return None if running is None else (running[0], running[1], self._clock() - running[2])

    def shares(self) -> dict[str, dict[str, float]]:
        """For each hook: calls, seconds, the longest call, and its share of the time of this run."""
        passed = max(self._clock() - self._began, 0.001)
        return {
            name: {
                "calls": spent.calls,
                "seconds": round(spent.seconds, 3),
                "seconds_max": round(spent.seconds_max, 3),
                "share": round(min(1.0, spent.seconds / passed), 3),
            }
            for name, spent in list(self.times.items())
        }


class Hooks:
    """The hooks of one crawl, found and checked; all of them may be absent."""

    def __init__(self, options: CrawlOptions) -> None:
        """Imports the functions in options. Raises SettingsError for a wrong name, or one that is not a function."""
        places = [options.output] if options.output else []
        self.on_request: OnRequest | None = _function_of("on_request", options.on_request, places)
        self.on_response: OnResponse | None = _function_of("on_response", options.on_response, places)
        self.on_page: OnPage | None = _function_of("on_page", options.on_page, places)
        self.scope: LinkColumn | None = (
            _function_of("scope", options.scope, places) if is_function(options.scope) else None
        )
        self.priority: LinkColumn | None = _priority(options.priority, places)
        self.key: LinkColumn | None = _function_of("key", options.key, places)
        self.revisit: Revisit | None = (
            None if options.revisit_rule else _function_of("revisit", options.revisit, places)
        )
        self.readers: dict[str, ContentReader] = {
            essence: _reader(reader, places) for essence, reader in options.readers
        }
        if PDF_TYPE not in self.readers and reads_pdf():
            self.readers[PDF_TYPE] = ReaderProcess(PDF_READER)
        self.downloader: MakeDownloader | Downloader | None = _function_of("downloader", options.downloader, places)
        self.watch = Watch()
        self.looks_at_pages = bool(self.on_page or self.scope or self.priority or self.key or self.revisit)

    @property
    def look_at_answers(self) -> bool:
        """Whether a hook must run in the writer thread while an answer is read."""
        return self.on_response is not None or self.reads_here

    @property
    def reads_here(self) -> bool:
        """Whether a reader has no process of its own."""
        return not all(isinstance(reader, ReaderProcess) for reader in self.readers.values())

    def made_downloader(self, options: CrawlOptions, clock: Callable[[], int]) -> Downloader:
        """The user's downloader. Raises SettingsError for a maker that fails, or that makes something else."""
        maker = self.downloader
        assert maker is not None
        try:
            made = maker(options, clock) if callable(maker) else maker
        except (Exception, SystemExit) as error:
            raise SettingsError(f"downloader: making it failed ({type(error).__name__}: {error})") from error
        if not (hasattr(made, "fetch") and hasattr(made, "close")):
            raise SettingsError(f"downloader made {made!r:.80}; use an object with async fetch and close")
        return _UsersDownloader(made, clock)

    # -- per request and answer ---------------------------------------------------------------------------------------

    def request(self, request: Request, lease: Lease) -> Request:
        """The request that is sent. Raises HookFailed."""
        if self.on_request is None:
            return request
        with self.watch.over("on_request", lease.url):
            given = self.on_request(request, lease)
            if given is None:
                return request
            if not isinstance(given, Request):
                raise TypeError(f"on_request returned {given!r:.80}; use a Request or None")
            fixed = ("url", "address", "user_agent")
            if any(getattr(given, name) != getattr(request, name) for name in fixed):
                raise ValueError("on_request changed url, address or user_agent; robots.txt was checked for these")
            return given

    def response(self, response: Response, lease: Lease) -> Response:
        """The response that is read. Raises HookFailed."""
        if self.on_response is None:
            return response
        with self.watch.over("on_response", lease.url):
            given = self.on_response(response, lease)
            if given is None:
                return response
            given = checked_response(given, "on_response")
            # The archive and the record keep the original.
            return replace(response, content=given.content, headers=given.headers)

    def _reader_of(self, response: Response) -> Any:
        if not self.readers:
            return None
        return self.readers.get(media_type(response.content, response.headers.joined("content-type")).essence)

    def reads_apart(self, response: Response) -> bool:
        """Whether a separate process reads this answer, which may need its whole time limit."""
        return isinstance(self._reader_of(response), ReaderProcess)

    def has_reader(self, response: Response) -> bool:
        """Whether a reader of the user reads this answer."""
        return self._reader_of(response) is not None

    def read(self, response: Response) -> Page:
        """The content of a page by the user's reader of its type. Raises HookFailed."""
        content_type = response.headers.joined("content-type")
        reader = self._reader_of(response)
        if isinstance(reader, ReaderProcess):
            return self._read_apart(reader, response, content_type)
        with self.watch.over("readers", response.url):
            return checked_page(reader(response.content, response.url, content_type), response.url)

    def _read_apart(self, reader: ReaderProcess, response: Response, content_type: str) -> Page:
        began = self.watch.now()
        try:
            return reader(response.content, response.url, content_type)
        except ReaderFailedError as failed:
            raise HookFailed("readers" if failed.kind == "raised" else f"readers_{failed.kind}", failed) from failed
        finally:
            self.watch.spent("readers", self.watch.now() - began)

    def close(self) -> None:
        """Ends the processes of readers."""
        for reader in self.readers.values():
            if isinstance(reader, ReaderProcess):
                reader.close()

    # -- per page -----------------------------------------------------------------------------------------------------

    def items(self, page: CrawledPage) -> msgspec.Raw | None:
        """The items that `on_page` returns or yields, as a JSON array; None without any. Raises HookFailed."""
        if self.on_page is None:
            return None
        with self.watch.over("on_page", page.url):
            given = self.on_page(page)
            return None if given is None else items_given(given)

    def links(self, page: CrawledPage) -> tuple[UrlBatch | list[Link], int]:
        """Returns the links for the frontier, and the number that `scope` refused. Raises HookFailed."""
        with self.watch.over("on_page", page.url):
            batch, made = page.chosen()
        refused = 0
        if self.scope is not None and len(batch):
            wanted = self._wanted(batch, page)
            refused = len(batch) - int(np.count_nonzero(wanted))
            if refused:
                made = None if made is None else [one for one, yes in zip(made, wanted.tolist(), strict=True) if yes]
                batch = batch.filter(wanted)
        ranks = self._ranks(batch, page) if self.priority is not None and len(batch) else None
        keys = self._keys(batch, page) if self.key is not None and len(batch) else None
        if made is None and keys is None:
            return (batch if ranks is None else batch.with_columns(priority=ranks)), refused
        return _as_links(batch, made, ranks, keys), refused

    def mapped(self, found: list[Link], visit: MappedVisit) -> tuple[list[Link], int]:
        """Returns the links of a sitemap for the frontier, and the number that `scope` refused. A priority function
        overrides the sitemap. Raises HookFailed."""
        if not found or (self.scope is None and self.priority is None and self.key is None):
            return found, 0
        page = CrawledPage(visit.lease, visit.response, Word.DONE, None, UrlBatch.of([one.url for one in found]))
        links, refused = self.links(page)
        own = {one.url: one for one in found}
        if isinstance(links, UrlBatch):
            ranks = links.columns["priority"].tolist() if "priority" in links.columns else [None] * len(links)
            links = [Link(url, priority=rank) for url, rank in zip(links.strings(), ranks, strict=True)]
        return [
            replace(
                own[one.url], priority=one.priority if one.priority is not None else own[one.url].priority, key=one.key
            )
            for one in links
        ], refused

    def seeds(self, seeds: Sequence[str]) -> UrlBatch | list[Link] | Sequence[str]:
        """Seeds with their priorities and keys. Raises SettingsError when a hook fails: no page would be left."""
        if self.priority is None and self.key is None:
            return seeds
        batch = UrlBatch.of(seeds)
        ranks, keys = self._ranked(batch)
        if keys is None:
            return batch.with_columns(priority=ranks if ranks is not None else priorities.PRIORITY_DEFAULT)
        return _as_links(batch, None, ranks, keys)

    def with_priorities(self, links: Sequence[Link]) -> Sequence[Link]:
        """Adds priorities and keys to links from outside that lack them. Raises SettingsError as `seeds`."""
        if self.priority is None and self.key is None:
            return links
        spelled = list(UrlBatch.of([one.url for one in links]).strings())
        rows = [row for row, url in enumerate(spelled) if url]  # the frontier refuses the other rows
        if not rows:
            return links
        batch = UrlBatch.of([spelled[row] for row in rows])
        found = list(links)
        for row, link in zip(rows, _as_links(batch, [links[row] for row in rows], *self._ranked(batch)), strict=True):
            found[row] = link
        return found

    def _ranked(self, batch: UrlBatch) -> tuple[npt.NDArray[np.float64] | None, list[str | None] | None]:
        try:
            ranks = self._ranks(batch, None) if self.priority is not None else None
            keys = self._keys(batch, None) if self.key is not None else None
        except HookFailed as failed:
            raise SettingsError(f"{failed.name} failed for the seeds: {failed.lines()[-1]}") from failed.error
        return ranks, keys

    def follows(self, target: str, page: CrawledPage) -> bool:
        """Whether the target of a redirect is wanted. Raises HookFailed."""
        return self.scope is None or bool(self._wanted(UrlBatch.of([target]), page)[0])

    def due_again(self, page: CrawledPage) -> float | None:
        """Seconds until the page is due again. Raises HookFailed."""
        if self.revisit is None:
            return None
        with self.watch.over("revisit", page.url):
            given = self.revisit(page)
            if given is None:
                return None
            if isinstance(given, bool) or not isinstance(given, int | float) or not given >= 0:
                raise ValueError(f"revisit returned {given!r:.80}; use seconds from 0, or None")
            return min(float(given), HOOK_REVISIT_SECONDS_MAX)

    def _wanted(self, urls: UrlBatch, page: CrawledPage) -> npt.NDArray[np.bool_]:
        assert self.scope is not None
        with self.watch.over("scope", page.url):
            given = np.asarray(self.scope(_deeper(urls, page), page))
            if given.shape != (len(urls),) or given.dtype.kind not in "biu":
                raise ValueError(f"scope returned {_shape(given)} for {len(urls)} URLs; use true or false for each")
            return given.astype(np.bool_)

    def _ranks(self, urls: UrlBatch, page: CrawledPage | None) -> npt.NDArray[np.float64]:
        assert self.priority is not None
        with self.watch.over("priority", page.url if page is not None else "the seeds"):
            return priorities.priorities(self.priority, _deeper(urls, page), page)  # type: ignore[arg-type]

    def _keys(self, urls: UrlBatch, page: CrawledPage | None) -> list[str | None]:
        assert self.key is not None
        with self.watch.over("key", page.url if page is not None else "the seeds"):
            given: Any = self.key(_deeper(urls, page), page)
            keys = list(islice(given, len(urls) + 1))
            if len(keys) != len(urls) or not all(isinstance(one, str | None) for one in keys):
                raise ValueError(f"key returned {given!r:.80} for {len(urls)} URLs; use a text or None for each")
            return keys


def _deeper(urls: UrlBatch, page: CrawledPage | None) -> UrlBatch:
    return urls.with_columns(depth=0 if page is None else page.depth + 1)


def _shape(given: npt.NDArray[Any]) -> str:
    return f"{given.dtype} of shape {given.shape}"


def _as_links(
    batch: UrlBatch,
    made: list[Link | None] | None,
    ranks: npt.NDArray[np.float64] | None,
    keys: list[str | None] | None,
) -> list[Link]:
    """Returns the links of a page as objects: the priority of a Link overrides that of the function."""
    links: list[Link] = []
    for row, url in enumerate(batch.strings()):
        own = made[row] if made is not None else None
        rank = float(ranks[row]) if ranks is not None else None
        key = keys[row] if keys is not None else None
        links.append(
            Link(url, key=key, priority=rank)
            if own is None
            else replace(
                own,
                url=url,
                priority=own.priority if own.priority is not None else rank,
                key=own.key if own.key is not None else key,
            )
        )
    return links


def items_given(given: object) -> msgspec.Raw | None:
    """Returns the result of an `on_page` function as a JSON array of items; None without items. Raises TypeError,
    ValueError, and any error of a generator."""
    if isinstance(given, Mapping):
        return msgspec.Raw(b"[%b]" % _item(given, HOOK_ITEMS_BYTES_MAX))
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise TypeError(f"on_page returned {given!r:.80}; return a mapping, several mappings or None")
    items: list[bytes] = []
    left = HOOK_ITEMS_BYTES_MAX
    for one in given:
        if not isinstance(one, Mapping):
            raise TypeError(f"item {len(items) + 1} of on_page is {one!r:.80}; an item is a mapping of names to values")
        items.append(_item(one, left))
        left -= len(items[-1]) + 1
    return msgspec.Raw(b"[%b]" % b",".join(items)) if items else None


def _item(given: Mapping[Any, object], bytes_max: int) -> bytes:
    """An item as JSON. bytes_max: the room that the items before it left. Raises TypeError and ValueError."""
    for name in given:
        if not isinstance(name, str):
            raise TypeError(f"on_page returned the name {name!r:.80}; use a text")
    octets = msgspec.json.encode(dict(given), enc_hook=_plain)
    if len(octets) > bytes_max:
        raise ValueError(f"the items of on_page have more than {HOOK_ITEMS_BYTES_MAX:,} bytes, the limit of one page")
    if depth_of(octets) > _ITEM_DEPTH_MAX:
        raise ValueError(f"an item of on_page has {depth_of(octets)} levels; the limit is {_ITEM_DEPTH_MAX}")
    if b"null" in octets and (name := _no_number(given)):
        raise ValueError(
            f"the field {name!r:.80} of an item is not a finite number, which JSON cannot express: use None"
        )
    return octets


_ITEM_DEPTH_MAX: Final = JSON_DEPTH_MAX - 2  # the list of items and the page's line are around it


def _no_number(given: Mapping[Any, object]) -> str:
    """Returns the name of the first field with a NaN or an infinity in it, or ""."""
    for name, value in given.items():
        left = [value]
        while left:
            one = left.pop()
            if isinstance(one, float | np.floating) and not np.isfinite(one):
                return str(name)
            if isinstance(one, Mapping):
                left += one.values()
            elif isinstance(one, np.ndarray):
                left += one.tolist()
            elif isinstance(one, list | tuple | set | frozenset):
                left += one
    return ""


def _plain(value: object) -> object:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"on_page returned a {type(value).__name__}, which JSON cannot contain")


def _reader(option: object, places: Sequence[str]) -> Any:
    """A reader in a process of its own, where a name imports it."""
    found = _function_of("readers", option, places)
    name = spelled(option)
    if name == LOST:
        return found
    path = [*sys.path, *(place for place in (os.getcwd(), *places) if place not in sys.path)]
    return ReaderProcess(name, seconds_max=READER_SECONDS_MAX, path=path)


def _priority(option: object, places: Sequence[str]) -> LinkColumn | None:
    made: Any = None
    if option == "weighted":
        made = priorities.weighted()
    elif option == "by_domain_page_freshness":
        made = priorities.by_domain_page_freshness()
    found: LinkColumn | None = made if made is not None else _function_of("priority", option, places)
    return found


def _function_of(name: str, option: object, places: Sequence[str]) -> Any:
    """Returns the function that an option names, or is; None without one."""
    shown = name.replace("_", "-")
    if option is None or not isinstance(option, str):
        return _no_coroutine(shown, option)
    if option == LOST:
        raise SettingsError(
            f"{shown} was a function without a name, of the program that began this crawl: pass it again, or set "
            f"`--{shown} none`"
        )
    module, _, path = option.partition(":")
    # The current directory, and the crawl's own: a hook is usually next to the crawl, not among installed packages.
    before = list(sys.path)
    sys.path.extend(place for place in (os.getcwd(), *places) if place not in sys.path)
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:
        raise SettingsError(
            f"{shown} is {option!r}: it cannot be loaded ({type(error).__name__}: {error}); use module:function, "
            "looked for on Python's path, in the directory you are in, and in the crawl's"
        ) from error
    finally:
        sys.path[:] = before
    if not callable(found) and not (name == "downloader" and hasattr(found, "fetch")):
        raise SettingsError(f"{shown} is {option!r}: it is not a function, but {found!r:.80}")
    return _no_coroutine(shown, found)


def _no_coroutine(shown: str, function: Any) -> Any:
    """The function itself. Raises SettingsError for one that returns a coroutine, which no crawl runs, or a generator,
    which only on_page may be."""
    kinds = {
        "async def": (inspect.iscoroutinefunction, inspect.isasyncgenfunction),
        "a function with yield": () if shown == "on-page" else (inspect.isgeneratorfunction,),
    }
    for kind, tests in kinds.items():
        if any(test(function) or test(getattr(function, "__call__", None)) for test in tests):  # noqa: B004
            raise SettingsError(f"{shown} is {kind}: a crawl calls plain functions, and uses what they return")
    return function


# -- why nothing more is fetched ---------------------------------------------------------------------------------------


class HookRunningError(UnreachableError):
    """A hook of this crawl is running, and nothing else is decided meanwhile."""


def hook_running_text(name: str, url: str, seconds: float) -> str:
    """One clause on the hook that runs now."""
    return f"the hook {name} has run for {seconds:.0f} s for {url}, and the crawl waits for it"


def idle_in_hook(text: str) -> dict[str, Any]:
    """Returns the answer of `why-idle` while a hook delays the crawl: no count is available then."""
    return {"reason": "hook", "text": text, "next_at": None, "next_seconds": None}


def idle_with_hooks(found: Mapping[str, Any], shares: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """Adds the time of hooks to the answer of `why-idle`; a hook that needs half of it is the reason."""
    told = {**found, "hooks": dict(shares)}
    slowest = max(shares, key=lambda name: shares[name]["share"], default=None)
    if slowest is None or shares[slowest]["share"] < HOOK_SHARE_SLOW:
        return told
    spent = shares[slowest]
    clause = (
        f"the hook {slowest} uses {spent['share']:.0%} of the time of this run ({spent['calls']:,} calls, the longest "
        f"{spent['seconds_max']:.3g} s)"
    )
    return {**told, "reason": "hook", "text": f"{clause}; {found['text']}"}
