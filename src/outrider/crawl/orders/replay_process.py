"""One process of a replay: pages of the archive in, the items of `on_page` out.

A message is | length u32 | MessagePack |, little-endian, as for readers (`reader_process.py`).

    parent -> child     lines of pages.jsonl; the first message is empty: the functions are loaded
    child -> parent     an _Answer

The child builds each page from its record with the code of a crawl: `response_of`, `judged` and `Reader`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from outrider.archive import read_record
from outrider.archive.projection import tame
from outrider.clock import instant
from outrider.crawl.output.line_fields import item_lines
from outrider.crawl.output.output import FILES, PAGES
from outrider.crawl.output.tabular import instant_of
from outrider.crawl.questions.single_page import place_of
from outrider.crawl.questions.skipped import whole_page
from outrider.crawl.run.hooks import NO_LINKS, CrawledPage, HookFailed, Hooks
from outrider.crawl.run.reader_process import LENGTH, message
from outrider.crawl.run.reading import Reader, Reading
from outrider.crawl.run.visit import Visit, visit_bytes
from outrider.crawl.setup.directory import ARCHIVE_NAME
from outrider.crawl.setup.host_settings import PerHost
from outrider.crawl.setup.options import CrawlOptions
from outrider.errors import DamagedStoreError, OutriderError
from outrider.fetch.downloader import Headers
from outrider.fetch.failures import FetchError
from outrider.fetch.response_bytes import TransferEnd, response_of
from outrider.journey import Kind, Lease, Word
from outrider.limits import READ_AT_ONCE, READ_BYTES_AT_ONCE, REPLAY_NAMED_MAX
from outrider.storage.files import Directory
from outrider.url import UrlBatch, authority_of, host_of

_START: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "import outrider.crawl.orders.replay_process as it; it.main()"
)
_UNUSED: Final = ("on_request", "scope", "priority", "key", "revisit", "downloader")


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


class _ReplayAnswer(msgspec.Struct):
    counts: Replayed
    items: bytes


def replay_options(options: CrawlOptions, directory: str, on_page: str) -> CrawlOptions:
    """Returns the settings of a crawl with another `on_page`, and without the functions that a replay does not call."""
    plain = CrawlOptions()
    unused = {name: getattr(plain, name) for name in _UNUSED}
    return replace(options, **unused, on_page=on_page, output=os.path.abspath(directory))


class ReplayProcess:
    """A process that replays pages. If a page ends it, a new one replaces it."""

    def __init__(self, options: CrawlOptions) -> None:
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = False

    def replay(self, lines: Sequence[bytes]) -> tuple[Replayed, bytes]:
        """Returns the counts and the item lines of pages. A page that ends the process counts as failed."""
        try:
            return self._asked(lines)
        except (EOFError, OSError):
            self._stop()
            if self._ended:
                raise
        if len(lines) == 1:
            url = msgspec.json.decode(lines[0]).get("url")
            text = f"the hook on_page failed for {url}: it ended its process (exit or memory)"
            return Replayed(pages=1, failed=1, named=[text]), b""
        whole, items = Replayed(), []
        for line in lines:
            found, some = self.replay([line])
            whole.add(found)
            whole.named += found.named
            items.append(some)
        return whole, b"".join(items)

    def _asked(self, lines: Sequence[bytes]) -> tuple[Replayed, bytes]:
        process = self._process or self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        octets = msgspec.msgpack.encode(list(lines))
        process.stdin.write(LENGTH.pack(len(octets)) + octets)
        process.stdin.flush()
        answer = msgspec.msgpack.decode(message(process.stdout, 1 << 31), type=_ReplayAnswer)
        return answer.counts, answer.items

    def _started(self) -> subprocess.Popen[bytes]:
        path = [*sys.path, *(place for place in (os.getcwd(), self._options.output) if place not in sys.path)]
        words = [self._options.output, str(self._options.on_page)]
        self._process = subprocess.Popen(  # noqa: S603 - this interpreter, and a function that the user names
            [sys.executable, "-c", _START, msgspec.json.encode(path).decode(), *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        if self._ended:
            self._stop()
        return self._process

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    if pipe is not None:
                        pipe.close()
            process.wait()

    def close(self) -> None:
        """Ends the process and closes its pipes; no thread replays meanwhile."""
        self._ended = True
        self._stop()

    def end(self) -> None:
        """Ends the process, also while another thread waits for it."""
        self._ended = True
        process = self._process
        if process is not None:
            process.kill()
            process.wait()


# -- in the child ------------------------------------------------------------------------------------------------------


def main() -> None:
    """Replays the pages of each message until the last. Standard error gets the text that the functions print."""
    from outrider.crawl.questions.crawl_queries import settings_of

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command, which ends this process
    directory, on_page = sys.argv[2:4]
    sys.argv[1:] = []
    pages, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    replayer = Replayer(replay_options(settings_of(directory), directory, on_page))
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            counts, items = replayer.replay(msgspec.msgpack.decode(message(pages, 1 << 31), type=list[bytes]))
            octets = msgspec.msgpack.encode(_ReplayAnswer(counts, items))
            answers.write(LENGTH.pack(len(octets)) + octets)
            answers.flush()


class _NoArchive:
    """The output of a reader that packs no records."""

    def packed(self, answers: Sequence[object]) -> list[None]:
        return [None] * len(answers)


class Replayer:
    """Reads archived pages as the crawl did, and runs `on_page` on them."""

    def __init__(self, options: CrawlOptions) -> None:
        self._options = options
        self._hooks = Hooks(options)
        self._per_host = PerHost(options)
        self._reader = Reader(options, self._hooks, _NoArchive())
        self._files = Directory(os.path.join(options.output, ARCHIVE_NAME), create=False, read_only=True)
        self._path = os.path.join(options.output, FILES[PAGES])

    def replay(self, lines: Sequence[bytes]) -> tuple[Replayed, bytes]:
        """Returns the counts and the item lines of these lines of pages.jsonl."""
        counts, items = Replayed(), []
        for visits in _batches(self._visits(lines, counts)):
            self._reader.ahead([visit for _, visit in visits])
            for line, visit in visits:
                for item in self._items(line, self._reader.of(visit), counts):
                    items.append(tame(item) + b"\n")
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
        record = read_record(self._files, place_of(line, url, self._path))
        requested = str(line.get("requested") or url)
        if record.fields.get("warc-target-uri") != requested:
            raise DamagedStoreError(f"the record is about {record.fields.get('warc-target-uri', 'no URL')!r:.200}")
        head, separator, body = record.block.partition(b"\r\n\r\n")
        at = instant_of(line["fetched_at"])
        took = float(line.get("seconds") or 0.0)
        lease = _lease_of(line, url)
        address = record.fields.get("warc-ip-address", "127.0.0.1")
        request = self._per_host.of(lease.host).request(requested, address, self._options.user_agent_sent, ())
        content_type = Headers.parse(head + separator).get("content-type")
        if line.get("bytes", 0) > request.room(len(head), content_type)[1]:  # `on_request` had raised the limit
            request = replace(request, bytes_max=line["bytes"], type_bytes_max=())
        truncated = record.fields.get("warc-truncated")
        ended = TransferEnd(
            *(line["status"], _error_of(line), truncated, "", True, head + separator, body),
            *(at, at + instant(took), took, True, None),
        )
        return Visit(lease, at, at + instant(took), response_of(request, ended))

    def _items(self, line: Mapping[str, Any], one: Reading, counts: Replayed) -> Sequence[bytes]:
        """Returns the lines of the items of one page."""
        response, url = one.visit.response, one.visit.lease.url
        failed = one.fault
        if failed is None and (one.page is None or one.judgement is None):
            return ()
        counts.pages += 1
        try:
            if failed is not None:
                raise failed
            assert one.judgement is not None
            page = CrawledPage(
                one.visit.lease, response, _word(line, one.judgement.word), one.page, self._links(line, one)
            )
            items = self._hooks.items(page)
            self._hooks.links(page)  # a wrong `page.follow` fails the page, as in a crawl
        except HookFailed as error:
            counts.failed += 1
            name = f"the hook {error.name}" if error.is_of_user else "a reader of Outrider (this is a bug)"
            counts.named.append("\n  ".join((f"{name} failed for {url}", *error.lines())))
            return ()
        if items is None:
            return ()
        head = msgspec.json.encode({"url": url, "token": one.visit.lease.token})
        return item_lines(b'%b,"items":%b}' % (head[:-1], bytes(items)))

    def _links(self, line: Mapping[str, Any], one: Reading) -> UrlBatch:
        if whole_page(line, self._options)[0]:  # a copy, or a soft 404: the crawl followed no link of it
            return NO_LINKS
        return one.links if isinstance(one.links, UrlBatch) else UrlBatch.of([link.url for link in one.links])


def _word(line: Mapping[str, Any], judged: Word) -> Word:
    """Returns the outcome of the crawl, or its outcome if no function had failed."""
    if str(line.get("error", "")).startswith("hook_"):
        return judged
    return next((word for word in Word if word.value == line["outcome"]), judged)


def _error_of(line: Mapping[str, Any]) -> FetchError | None:
    """Returns how the fetch of a page failed. Reading the content finds a wrong coding again."""
    word = line.get("error")
    return FetchError(word) if word in set(FetchError) - {FetchError.DECODE} else None


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
