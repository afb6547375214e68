"""Replay: runs `on_page` over the pages in a crawl's archive, without a request, in one process per core.

Pages are replayed in the order of `pages.jsonl`. The partial file `TARGET.partial` has one block per finished chunk of
pages. Each block ends with a mark:

    item lines
    # {"pages": lines of pages.jsonl until here, "crc": crc32c of the item lines, "counts": …}

The first line of the file is `# {"replay": 1, "of": …}`. `of` is a digest of everything that the items depend on: the
function and the file of its module, the settings, and the first line of `pages.jsonl`. A later run with the same digest
continues after the last whole block. So each page is in the target once, however often a run was killed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import selectors
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import BinaryIO, Final, TextIO

import msgspec

from outrider.crawl.orders.replay_process import ReplayProcess, replay_options
from outrider.crawl.orders.replayed_pages import Replayed
from outrider.crawl.output.counter import Counter
from outrider.crawl.output.progress import eta_text
from outrider.crawl.output.summary import counted
from outrider.crawl.output.tabular import ITEMS, JSON_LINES, WRITTEN, form_of, replacing, write_table
from outrider.crawl.output.terminal import safe, say
from outrider.crawl.output.written_lines import PageLines
from outrider.crawl.run.hook_failures import MOST_SHARE
from outrider.crawl.setup.directory import ARCHIVE_NAME, settings_of
from outrider.crawl.setup.options import SETTINGS_FILE, CrawlOptions
from outrider.errors import DamagedStoreError, NamedPathError, StoreFullError, StoreInUseError
from outrider.kernels import crc32c
from outrider.limits import REPLAY_NAMED_MAX, REPLAY_PAGES_AT_ONCE
from outrider.storage.files import is_no_space

DEFAULT_NAME: Final = "replayed.jsonl"
"""The target without `--to`, in the directory of the crawl."""
PARTIAL: Final = ".partial"
HOOK_FAILED: Final = 10


class _Head(msgspec.Struct):
    replay: int
    of: str


class _Mark(msgspec.Struct):
    """The end of a block. pages: how many lines of pages.jsonl are finished. The counts are of the whole replay."""

    pages: int
    crc: int  # crc32c of the item lines of the block
    counts: Replayed


@dataclass(slots=True)
class Replay:
    """The result of a replay: its counts, its target, and how many pages earlier runs of it had finished."""

    target: str
    counts: Replayed = field(default_factory=Replayed)
    continued_at: int = 0

    @property
    def exit_code(self) -> int:
        """0, 10 if the hook failed on most pages, 5 if records are damaged or missing."""
        if self.counts.failed > MOST_SHARE * max(1, self.counts.pages):
            return HOOK_FAILED
        return DamagedStoreError.exit_code if self.counts.damaged else 0


def replay(directory: str, on_page: str, to: str | None, talk: TextIO, *, anew: bool = False) -> Replay:
    """Runs a function over the archived pages of the crawl, or of the worker, in a directory.

    to: the target, otherwise `replayed.jsonl` in the directory. anew: starts from the first page even if an earlier
    replay could be continued. Raises SettingsError for a function that cannot be loaded, NamedPathError for a directory
    without an archive and for a target that the crawl writes itself, StoreInUseError while another replay writes it.
    """
    lines = PageLines([directory])
    target = _target(directory, to)
    if not os.path.isdir(os.path.join(directory, ARCHIVE_NAME)):
        raise NamedPathError(
            f"{directory} has no archive (--no-warc), but a replay reads pages from the archive; crawl with it: "
            f"`outrider crawl URL -o DIR --on-page {on_page}` also runs the function on each page"
        )
    options = replay_options(settings_of(directory), directory, on_page)
    total = sum(1 for _ in lines.raw())
    processes: list[ReplayProcess] = []
    done = Replay(target)
    try:
        processes += (ReplayProcess(options) for _ in range(_process_count(total)))
        sources = [process.load() for process in processes]
        with _partial(target) as file:
            run = _ReplayRun(lines, total, processes, _digest(directory, lines, sources[0], options), file, done, talk)
            run.all(anew=anew)
            _finish(file, target)
    finally:
        for process in processes:
            process.close()
    os.unlink(target + PARTIAL)
    return done


def _process_count(total: int) -> int:
    """One process per core, but none that would get no page."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, -(-total // REPLAY_PAGES_AT_ONCE)))


def _target(directory: str, to: str | None) -> str:
    target = to if to is not None else os.path.join(directory, DEFAULT_NAME)
    form_of(target, WRITTEN)
    own = {"pages.jsonl", "items.jsonl", "politeness.jsonl", "sitemaps.jsonl", "probes.jsonl", "tdmrep.jsonl"}
    folder, name = os.path.split(os.path.abspath(target))
    if name in own and os.path.realpath(folder) == os.path.realpath(directory):
        raise NamedPathError(f"{target!r} belongs to the crawl itself; choose another name with --to")
    return target


class _partial:  # noqa: N801 - used as a block
    """The partial file, open and locked. Its lock ends with this process, and the file stays for the next one."""

    def __init__(self, target: str) -> None:
        self._path = target + PARTIAL

    def __enter__(self) -> BinaryIO:
        try:
            self._file = open(self._path, "a+b")
        except OSError as error:
            raise NamedPathError(f"{self._path!r} cannot be written ({error.strerror}); choose another --to") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise StoreInUseError(
                f"another replay writes {self._path}; wait for its end, or choose another --to"
            ) from None
        return self._file

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        try:
            self._file.close()
        except OSError as closing:  # there was no room for the last bytes
            error = error or closing
        if isinstance(error, OSError) and is_no_space(error):
            raise StoreFullError(f"{self._path}: {error.strerror}; free space and run the same command again") from None


def _digest(directory: str, lines: PageLines, source: str, options: CrawlOptions) -> str:
    """Returns a digest of everything that the items depend on, except for modules that the function's module
    imports. source: the file of the function."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(str(options.on_page).encode())
    digest.update(next(iter(lines.raw()), (directory, b""))[1])
    for path in (source, os.path.join(directory, SETTINGS_FILE)):
        try:
            with open(path, "rb") as file:
                digest.update(b"\0" + file.read())
        except OSError:
            digest.update(b"\0")
    return digest.hexdigest()


# -- the partial file --------------------------------------------------------------------------------------------------


def _marked(entry: _Head | _Mark) -> bytes:
    return b"# " + msgspec.json.encode(entry) + b"\n"


def _whole_blocks(file: BinaryIO, of: str) -> tuple[int, _Mark | None]:
    """Returns where the last whole block of a partial file ends, and its mark; (0, None) for a file of another
    replay."""
    file.seek(0)
    try:
        head = msgspec.json.decode(file.readline()[2:], type=_Head)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return 0, None
    if head != _Head(1, of):
        return 0, None
    end, last, crc = file.tell(), None, 0
    at = end
    for line in file:
        at += len(line)
        if not line.startswith(b"# "):
            crc = crc32c(line, crc)
            continue
        try:
            mark = msgspec.json.decode(line[2:], type=_Mark)
        except (msgspec.DecodeError, UnicodeDecodeError):
            break
        if mark.crc != crc or not line.endswith(b"\n"):
            break
        end, last, crc = at, mark, 0
    return end, last


def _items(file: BinaryIO) -> Iterator[bytes]:
    file.seek(0)
    return (line for line in file if not line.startswith(b"# "))


def _finish(file: BinaryIO, target: str) -> None:
    """Writes the target from the partial file: whole, or not at all."""
    file.flush()
    form = form_of(target, WRITTEN)
    if form == JSON_LINES:
        with replacing(target) as whole:
            whole.writelines(_items(file))
        return
    decode = msgspec.json.Decoder(dict[str, object]).decode
    write_table(target, lambda: map(decode, _items(file)), ITEMS, lambda count: None)


# -- the run -----------------------------------------------------------------------------------------------------------


class _Progress(Counter):
    """Prints the numbers of finished pages and items, the rate and the remaining time."""

    def __init__(self, stream: TextIO, total: int, before: int, items: int) -> None:
        super().__init__(stream, "replayed")
        self._pages = total
        self._before = before
        self.items = items

    def _line(self, now: float) -> str:
        seconds = now - self._began
        rate = self.total / seconds if seconds >= 0.1 else 0.0
        done = self._before + self.total
        parts = [f"replayed {done:,} of {counted(self._pages, 'line')} of pages.jsonl, {counted(self.items, 'item')}"]
        if rate:
            parts.append(f"{rate:,.0f} a second")
            if done < self._pages:
                parts.append(eta_text((self._pages - done) / rate))
        return ", ".join(parts)


@dataclass(slots=True)
class _ReplayRun:
    """One run of a replay. `of` is its digest."""

    lines: PageLines
    total: int
    processes: Sequence[ReplayProcess]
    of: str
    file: BinaryIO
    done: Replay
    talk: TextIO

    def all(self, *, anew: bool) -> None:
        """Replays all pages that are not in the partial file. anew: also these."""
        done, file = self.done, self.file
        finished, named = self._begin(anew=anew), 0
        progress = _Progress(self.talk, self.total, finished, done.counts.items)
        for chunk, found, items in _replayed(self.lines, self.processes, finished):
            finished += chunk
            done.counts.add(found)
            for text in found.named[: max(0, REPLAY_NAMED_MAX - named)]:
                for line in text.splitlines():
                    say(safe(line), self.talk)
            named += len(found.named)
            file.write(items + _marked(_Mark(finished, crc32c(items, 0), done.counts)))
            file.flush()
            progress.items = done.counts.items
            progress.add(chunk)
        progress.end(f" to {done.target}")

    def _begin(self, *, anew: bool) -> int:
        """Cuts the partial file after its last whole block. Returns how many lines of pages.jsonl are finished."""
        file = self.file
        end, mark = (0, None) if anew else _whole_blocks(file, self.of)
        if not end and os.fstat(file.fileno()).st_size and not anew:
            name = f"{self.done.target}{PARTIAL}"
            say(f"{name} is of another function or crawl; the replay starts at the first page", self.talk)
        file.truncate(end)
        file.seek(0, os.SEEK_END)
        if not end:
            file.write(_marked(_Head(1, self.of)))
        if mark is not None:
            self.done.counts, self.done.continued_at = mark.counts, mark.pages
            say(f"continues after {counted(mark.pages, 'line')} of pages.jsonl", self.talk)
        return self.done.continued_at


def _replayed(
    lines: PageLines, processes: Sequence[ReplayProcess], after: int
) -> Iterator[tuple[int, Replayed, bytes]]:
    """Yields the chunks of pages after some lines, in order: lines, counts and item lines of each."""
    raw = (line for _, line in islice(lines.raw(), after, None))
    idle = list(processes)
    finished: dict[int, tuple[int, Replayed, bytes]] = {}
    begun = yielded = 0
    with selectors.DefaultSelector() as busy:
        while True:
            while idle and begun - yielded < 3 * len(processes) and (chunk := list(islice(raw, REPLAY_PAGES_AT_ONCE))):
                process = idle.pop()
                process.send(chunk)
                busy.register(process, selectors.EVENT_READ, (process, begun, len(chunk)))
                begun += 1
            if begun == yielded:
                return
            for key, _ in busy.select():
                process, number, count = key.data
                busy.unregister(process)
                finished[number] = (count, *process.receive())
                idle.append(process)
            while yielded in finished:
                yield finished.pop(yielded)
                yielded += 1


def lines_of(done: Replay, directory: str) -> Iterator[str]:
    """Yields the result of a replay in lines, each failure with the command that helps."""
    counts = done.counts
    yield f"{counted(counts.items, 'item')} of {counted(counts.pages, 'page')} in {done.target}"
    if counts.failed:
        yield (
            f"on_page failed on {counts.failed:,} of {counted(counts.pages, 'page')}; fix the function and run the "
            "same command again"
        )
    if counts.absent:
        yield f"{counted(counts.absent, 'page')} skipped: no record in the archive (fetched with --no-warc)"
    if counts.damaged:
        yield (
            f"{counted(counts.damaged, 'record')} damaged or missing in {os.path.join(directory, ARCHIVE_NAME)}; "
            f"restore the files from a copy and run the same command again; `outrider verify {shlex.quote(directory)}` "
            "checks the rest"
        )
