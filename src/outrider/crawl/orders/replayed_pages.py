"""From archived pages to the items of `on_page`: what one process of a replay does with the lines of pages.jsonl.

Each page is built from its record with the code of a crawl: `response_of`, `judged` and `Reader`. Digests, records and
the comparison with other pages are left out, because no item depends on them. The content of a page is read when the
function looks at it; while it looks at most pages, those of a batch are read together, which is cheaper.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import msgspec

from outrider.archive import WarcPlace, WarcRecord, record_in
from outrider.archive.projection import tame
from outrider.clock import instant
from outrider.crawl.output.archive_source import ArchiveSource
from outrider.crawl.output.archived_answers import whole_record
from outrider.crawl.output.line_fields import item_lines
from outrider.crawl.output.omissions import whole_page
from outrider.crawl.output.output import FILES, PAGES
from outrider.crawl.output.tabular import instant_of
from outrider.crawl.output.written_lines import place_of
from outrider.crawl.run.hooks import NO_LINKS, CrawledPage, HookFailed, Hooks
from outrider.crawl.run.reading import Reader, Reading
from outrider.crawl.run.visit import Visit, visit_bytes
from outrider.crawl.setup.host_settings import PerHost
from outrider.crawl.setup.options import CrawlOptions
from outrider.errors import DamagedStoreError, OutriderError
from outrider.fetch.failures import FetchError
from outrider.fetch.response_bytes import TransferEnd, response_of
from outrider.journey import Kind, Lease, Word
from outrider.limits import READ_AT_ONCE, READ_BYTES_AT_ONCE, REPLAY_NAMED_MAX
from outrider.page import Page, Source
from outrider.sniffing import declared_type
from outrider.storage.files import File
from outrider.url import UrlBatch, authority_of, host_of


class Replayed(msgspec.Struct):
    """The counts of a replay, or of a part of it.

    pages: pages that `on_page` saw. failed: pages on which it, or another function of the crawl, failed. absent: pages
    without a record. damaged: pages whose record is damaged or missing. named: sentences about the first of these.
    """

    pages: int = 0
    items: int = 0
    failed: int = 0
    absent: int = 0
    damaged: int = 0
    named: list[str] = []

    def add(self, more: Replayed) -> None:
        """Adds the counts of a later part."""
        for name in ("pages", "items", "failed", "absent", "damaged"):
            setattr(self, name, getattr(self, name) + getattr(more, name))


class _ReplayedPage(CrawledPage):
    """A page whose content and links are made when the function looks at them."""

    def __init__(self, lease: Lease, response: Any, outcome: Word, read: Callable[[], tuple[Page | None, UrlBatch]]):
        super().__init__(lease, response, outcome, None, NO_LINKS)
        del self.content, self._links
        self._read = read

    def __getattr__(self, name: str) -> Any:
        if name not in ("content", "_links"):
            raise AttributeError(f"a page has no {name!r}")
        self.content, self._links = self._read()
        return getattr(self, name)

    @property
    def was_read(self) -> bool:
        """Whether the function has looked at the content or the links."""
        return "content" in self.__dict__

    def _decoded(self) -> Source:
        # The reader of the page would find the same encoding.
        if self._source is None and not self.was_read and self._is_utf8():
            self._source = Source(self.body, self.url, self.content_type, "utf-8")
        return super()._decoded()

    def _is_utf8(self) -> bool:
        label = declared_type(self.content_type).label
        return label is not None and label.lower() == "utf-8"


class Replayer:
    """Reads archived pages as the crawl did, and runs `on_page` on them."""

    def __init__(self, options: CrawlOptions) -> None:
        """Raises SettingsError for a function that cannot be loaded."""
        self.hooks = Hooks(options)
        self._options = options
        self._user_agent = options.user_agent_sent
        self._per_host = PerHost(options)
        self._reader = Reader(options, self.hooks, None)
        self._archive = _OpenArchive(options.output)
        self._path = os.path.join(options.output, FILES[PAGES])
        self._reads_ahead = False

    def replay(self, lines: Sequence[bytes]) -> tuple[Replayed, bytes]:
        """Returns the counts and the item lines of these lines of pages.jsonl."""
        counts, items = Replayed(), []
        for visits in _batches(self._visits(lines, counts)):
            made, unread = self._reader.judge([visit for _, visit in visits])
            if self._reads_ahead and unread:
                self._reader.read(unread)
                unread = []
            looked = 0
            waiting = {id(one) for one in unread}
            for (line, _), one in zip(visits, made, strict=True):
                lines_made, was_read = self._items(line, one, counts, is_read=id(one) not in waiting)
                looked += was_read
                items += [tame(item) + b"\n" for item in lines_made]
            self._reads_ahead = 2 * looked > len(visits)
        counts.items = len(items)
        counts.named = counts.named[:REPLAY_NAMED_MAX]
        return counts, b"".join(items)

    def _visits(self, lines: Sequence[bytes], counts: Replayed) -> Iterator[tuple[Mapping[str, Any], Visit]]:
        for octets in lines:
            url: str = "a page"
            line: dict[str, Any] = {}
            try:
                line = msgspec.json.decode(octets)
                url, status = str(line["url"]), line["status"]
                if not isinstance(status, int) or not 200 <= status < 300:
                    continue  # other answers are not read as pages
                if line.get("warc") is None:
                    counts.absent += 1
                    continue
                yield line, self._visit(line)
            except FileNotFoundError:
                counts.damaged += 1
                counts.named.append(f"{url}: the archive file {line['warc'].get('file')} is missing")
            except OutriderError as error:
                counts.damaged += 1
                counts.named.append(f"{url}: its record is damaged ({error.facts})")
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                counts.damaged += 1
                counts.named.append(f"a line of pages.jsonl is unusable ({type(error).__name__}: {error})")

    def _visit(self, line: Mapping[str, Any]) -> Visit:
        """Returns the visit of a line, made again from its record. Raises DamagedStoreError, FileNotFoundError."""
        url = str(line["url"])
        record = whole_record(self._archive.record, place_of(line, url, self._path))
        requested = str(line.get("requested") or url)
        if record.fields.get("warc-target-uri") != requested:
            raise DamagedStoreError(f"the record is about {record.fields.get('warc-target-uri', 'no URL')!r:.200}")
        head, separator, body = record.block.partition(b"\r\n\r\n")
        at = instant_of(line["fetched_at"])
        took = float(line.get("seconds") or 0.0)
        lease = _lease_of(line, url)
        address = record.fields.get("warc-ip-address", "127.0.0.1")
        request = self._per_host.of(lease.host).request(requested, address, self._user_agent, ())
        ended = TransferEnd(
            *(line["status"], _error_of(line), record.fields.get("warc-truncated"), "", True, head + separator, body),
            *(at, at + instant(took), took, True, None),
        )
        response = response_of(request, ended)
        bytes_read = line.get("bytes", 0)
        if bytes_read > request.room(len(head), response.headers.get("content-type"))[1]:
            # `on_request` had raised the limit.
            response = response_of(replace(request, bytes_max=bytes_read, type_bytes_max=()), ended)
        return Visit(lease, at, at + instant(took), response)

    def _items(
        self, line: Mapping[str, Any], one: Reading, counts: Replayed, *, is_read: bool
    ) -> tuple[Sequence[bytes], bool]:
        """Returns the lines of the items of one page, and whether the function looked at its content. is_read: whether
        the page has the content that it will have."""
        url = one.visit.lease.url
        failed = one.fault
        if failed is None and is_read and (one.page is None or one.judgement is None):
            return (), False
        counts.pages += 1
        page: _ReplayedPage | None = None
        try:
            if failed is not None:
                raise failed
            assert one.judgement is not None
            read = partial(self._content_of, line, one, is_read=is_read)
            page = _ReplayedPage(one.visit.lease, one.visit.response, _word(line, one.judgement.word), read)
            items = self.hooks.items(page)
            if page.follow_was_used:
                self.hooks.links(page)  # a wrong `page.follow` fails the page, as in a crawl
        except HookFailed as error:
            counts.failed += 1
            name = f"the hook {error.name}" if error.is_of_user else "a reader of Outrider (this is a bug)"
            counts.named.append("\n  ".join((f"{name} failed for {url}", *error.lines())))
            items = None
        was_read = page is not None and page.was_read
        if items is None:
            return (), was_read
        head = msgspec.json.encode({"url": url, "token": one.visit.lease.token})
        return item_lines(b'%b,"items":%b}' % (head[:-1], bytes(items))), was_read

    def _content_of(self, line: Mapping[str, Any], one: Reading, *, is_read: bool) -> tuple[Page | None, UrlBatch]:
        """Returns the content of a page, and the links that the crawl followed. Raises HookFailed for a bug of ours."""
        if not is_read and one.page is None:
            self._reader.read([one])
            if one.fault is not None:
                raise one.fault
        if whole_page(line, self._options)[0]:  # a copy, or a soft 404: the crawl followed no link of it
            return one.page, NO_LINKS
        links = one.links if isinstance(one.links, UrlBatch) else UrlBatch.of([link.url for link in one.links])
        return one.page, links


class _OpenArchive:
    """The files of an archive; the last one that was read is kept open, because pages of one file follow each other."""

    def __init__(self, path: str) -> None:
        self._files = ArchiveSource(path)
        self._open: tuple[str, File, str] | None = None  # its name, the file, and its name for a message

    def record(self, place: WarcPlace) -> WarcRecord:
        """Reads a record. Raises FileNotFoundError, and DamagedStoreError without a whole record there."""
        if self._open is None or self._open[0] != place.file:
            if self._open is not None:
                self._open[1].close()
            self._open = None
            self._open = place.file, self._files.open(place.file), self._files.describe(place.file)
        return record_in(self._open[1], place, self._open[2])


def _word(line: Mapping[str, Any], judged: Word) -> Word:
    """Returns the outcome of the crawl, or its outcome if no function had failed."""
    if str(line.get("error", "")).startswith("hook_"):
        return judged
    return next((word for word in Word if word.value == line["outcome"]), judged)


_FETCH_ERRORS: Final = frozenset(FetchError) - {FetchError.DECODE}


def _error_of(line: Mapping[str, Any]) -> FetchError | None:
    """Returns how the fetch of a page failed. Reading the content finds a wrong coding again."""
    word = line.get("error")
    return FetchError(word) if word in _FETCH_ERRORS else None


def _batches(
    visits: Iterator[tuple[Mapping[str, Any], Visit]],
) -> Iterator[list[tuple[Mapping[str, Any], Visit]]]:
    """Pages that are read together, with the limits of a crawl, so that few large pages are in memory at once."""
    some: list[tuple[Mapping[str, Any], Visit]] = []
    size = 0
    for line, visit in visits:
        some.append((line, visit))
        size += visit_bytes(visit)
        if len(some) >= READ_AT_ONCE or size >= READ_BYTES_AT_ONCE:
            yield some
            some, size = [], 0
    if some:
        yield some


def _lease_of(line: Mapping[str, Any], url: str) -> Lease:
    host = host_of(url)
    return Lease(
        url=url,
        key=host,
        kind=Kind.PAGE,
        authority=authority_of(url),
        host=host,
        token=int(line.get("token") or 0),
        deadline=0,
        priority=float(line.get("priority") or 0.0),
        depth=int(line.get("depth") or 0),
        attempt=int(line.get("attempt") or 1),
        not_before=0,
        referrer=line.get("referrer"),
    )
