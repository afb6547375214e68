"""Processes of a replay: pages of the archive in, the items of `on_page` out.

A message is | length u32 | MessagePack |, little-endian, as for readers (`reader_process.py`).

    child -> parent     first a _Loaded
    parent -> child     lines of pages.jsonl
    child -> parent     an _ReplayAnswer to each message

On Linux a child is a fork, which has all modules of Outrider from the beginning: a new interpreter would need longer to
import them than to replay a thousand pages. A fork is made only while the parent has one thread. Elsewhere the child is
a new interpreter. In both cases the functions of the user are loaded in the child alone, so their faults and their
threads stay there.
"""

from __future__ import annotations

import contextlib
import gc
import inspect
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import IO, Any, BinaryIO, Final, NoReturn

import msgspec

from outrider.crawl.orders.replayed_pages import Replayed, Replayer
from outrider.crawl.run.reader_process import LENGTH, message
from outrider.crawl.setup.directory import settings_of
from outrider.crawl.setup.options import CrawlOptions
from outrider.errors import SettingsError
from outrider.limits import COLLECT_OBJECTS, COLLECT_ROUNDS

_START: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "import outrider.crawl.orders.replay_process as it; it.main()"
)
_UNUSED: Final = ("on_request", "scope", "priority", "key", "revisit", "downloader")
_MESSAGE_BYTES_MAX: Final = 1 << 31


class _Loaded(msgspec.Struct):
    """The functions are loaded, or `fault` says why not. source: the file of `on_page`, "" for an unknown one."""

    source: str = ""
    fault: str = ""


class _ReplayAnswer(msgspec.Struct):
    counts: Replayed
    items: bytes


def replay_options(options: CrawlOptions, directory: str, on_page: str) -> CrawlOptions:
    """Returns the settings of a crawl with another `on_page`, and without the functions that a replay does not call."""
    plain = CrawlOptions()
    unused = {name: getattr(plain, name) for name in _UNUSED}
    return replace(options, **unused, on_page=on_page, output=os.path.abspath(directory))


@dataclass(frozen=True, slots=True)
class _Pipes:
    """The pipes of a running child, and how it is killed and waited for."""

    pages: IO[bytes]
    answers: IO[bytes]
    end: Callable[[], None]


class ReplayProcess:
    """A process that replays pages. If a page ends it, a new one replaces it."""

    def __init__(self, options: CrawlOptions) -> None:
        self._options = options
        self._child: _Pipes | None = _started(options)
        self._lines: Sequence[bytes] = ()
        self._is_loaded = False

    def fileno(self) -> int:
        """The pipe that is readable once an answer begins."""
        assert self._child is not None
        return self._child.answers.fileno()

    def load(self) -> str:
        """Waits until the functions are loaded. Returns the file of `on_page`, "" for an unknown one. Raises
        SettingsError."""
        assert self._child is not None
        try:
            loaded = msgspec.msgpack.decode(message(self._child.answers, _MESSAGE_BYTES_MAX), type=_Loaded)
        except EOFError:
            raise SettingsError(
                f"on-page is {self._options.on_page!r}: its module ended the process that imports it"
            ) from None
        if loaded.fault:
            raise SettingsError(loaded.fault)
        self._is_loaded = True
        return loaded.source

    def send(self, lines: Sequence[bytes]) -> None:
        """Sends pages. `receive` must follow."""
        self._lines = lines
        if self._child is None:
            self._child, self._is_loaded = _started(self._options), False
        with contextlib.suppress(BrokenPipeError):  # `receive` sees the end, too
            _write(self._child.pages, list(lines))

    def receive(self) -> tuple[Replayed, bytes]:
        """Waits for the counts and the item lines of the pages that were sent. A page that ends the process counts as
        failed. Raises SettingsError if the functions cannot be loaded again."""
        lines = self._lines
        try:
            return self._answer()
        except EOFError:
            self.close()
        if len(lines) == 1:
            url = msgspec.json.decode(lines[0]).get("url")
            text = f"the hook on_page failed for {url}: it ended its process (exit or memory)"
            return Replayed(pages=1, failed=1, named=[text]), b""
        whole, items = Replayed(), []
        for line in lines:
            self.send([line])
            counts, found = self.receive()
            whole.add(counts)
            whole.named += counts.named
            items.append(found)
        return whole, b"".join(items)

    def _answer(self) -> tuple[Replayed, bytes]:
        assert self._child is not None
        if not self._is_loaded:
            self.load()
        answer = msgspec.msgpack.decode(message(self._child.answers, _MESSAGE_BYTES_MAX), type=_ReplayAnswer)
        return answer.counts, answer.items

    def close(self) -> None:
        """Kills the process and closes its pipes. The next pages get a new one."""
        child, self._child = self._child, None
        if child is None:
            return
        child.end()
        for pipe in (child.pages, child.answers):
            with contextlib.suppress(OSError):
                pipe.close()


def _started(options: CrawlOptions) -> _Pipes:
    return _forked(options) if _may_fork() else _spawned(options)


def _may_fork() -> bool:
    """Whether this process can be copied: only its calling thread would be there, and locks of others would stay."""
    try:
        return sys.platform == "linux" and len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return False


def _spawned(options: CrawlOptions) -> _Pipes:
    path = [*sys.path, *(place for place in (os.getcwd(), options.output) if place not in sys.path)]
    words = [options.output, str(options.on_page)]
    process = subprocess.Popen(  # noqa: S603 - this interpreter, and a function that the user names
        [sys.executable, "-c", _START, msgspec.json.encode(path).decode(), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def end() -> None:
        process.kill()
        process.wait()

    return _Pipes(process.stdin, process.stdout, end)


def _forked(options: CrawlOptions) -> _Pipes:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, AttributeError, ValueError):
            stream.flush()  # otherwise the child would print the text again
    their_pages, pages = os.pipe()
    answers, their_answers = os.pipe()
    number = os.fork()
    if not number:
        _in_fork(options, their_pages, their_answers)
    os.close(their_pages)
    os.close(their_answers)

    def end() -> None:
        os.kill(number, signal.SIGKILL)
        os.waitpid(number, 0)

    return _Pipes(os.fdopen(pages, "wb"), os.fdopen(answers, "rb"), end)


def _write(pipe: IO[bytes], value: Any) -> None:
    octets = msgspec.msgpack.encode(value)
    pipe.write(LENGTH.pack(len(octets)) + octets)
    pipe.flush()


# -- in the child ------------------------------------------------------------------------------------------------------


def _in_fork(options: CrawlOptions, pages: int, answers: int) -> NoReturn:
    """Replays pages in a fork, which never returns to the code of its parent."""
    code = 1
    try:
        gc.freeze()  # the parent's objects stay, also those that close a file at their end
        own = {0, 1, 2, pages, answers}
        for number in map(int, os.listdir("/proc/self/fd")):
            if number not in own:  # a lock or a pipe of the parent must not outlive it
                with contextlib.suppress(OSError):
                    os.close(number)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _serve(options, os.fdopen(pages, "rb"), os.fdopen(answers, "wb"))
        code = 0
    except BaseException:  # noqa: BLE001 - the parent's handlers must not see it
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(code)


def main() -> None:
    """Replays pages in an interpreter of its own."""
    directory, on_page = sys.argv[2:4]
    pages, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    _serve(replay_options(settings_of(directory), directory, on_page), pages, answers)


def _serve(options: CrawlOptions, pages: BinaryIO, answers: BinaryIO) -> None:
    """Replays the pages of each message until the last. Standard error gets the text that the functions print."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command, which ends this process
    gc.set_threshold(COLLECT_OBJECTS, COLLECT_ROUNDS, COLLECT_ROUNDS)
    sys.argv[1:] = []
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", buffering=1, closefd=False)
    try:
        replayer = Replayer(options)
    except SettingsError as error:
        _write(answers, _Loaded(fault=error.facts))
        return
    with contextlib.suppress(EOFError, BrokenPipeError):
        _write(answers, _Loaded(source=_source_of(replayer.hooks.on_page)))
        while True:
            lines = msgspec.msgpack.decode(message(pages, _MESSAGE_BYTES_MAX), type=list[bytes])
            _write(answers, _ReplayAnswer(*replayer.replay(lines)))


def _source_of(function: Any) -> str:
    """Returns the file of a function, or of the class of a callable object."""
    try:
        return inspect.getsourcefile(inspect.unwrap(function)) or ""
    except TypeError:
        with contextlib.suppress(TypeError):
            return inspect.getsourcefile(type(function)) or ""
        return ""
