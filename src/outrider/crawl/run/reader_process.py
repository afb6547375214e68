"""Readers in separate processes, with limits of time and memory, because their input is from the web.

A message is | length u32 | MessagePack |, little-endian. The first of a process is empty: its function is loaded.

    parent -> child     [body, url, content_type]
    child -> parent     an _Answer

One child reads one page at a time. A page that needs too long ends with its child; the next page gets a new one.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import os
import signal
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Sequence
from typing import IO, Any, Final

import msgspec

from outrider.crawl.run.reader_page import SentPage, as_sent, checked_page, sent_page
from outrider.limits import (
    HOOK_TRACEBACK_LINES_MAX,
    READER_ANSWER_BYTES_MAX,
    READER_MEMORY_BYTES_MAX,
    READER_SECONDS_MAX,
    READER_START_SECONDS_MAX,
)
from outrider.page import Page

LENGTH: Final = struct.Struct("<I")
_START: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); import outrider.crawl.run.reader_process as it; it.main()"
)
_LINE_CHARACTERS_MAX: Final = 1_000  # a line of a traceback may quote the page
_LINES_MAX: Final = 4 * HOOK_TRACEBACK_LINES_MAX
_STATM_DATA: Final = 5  # the column of /proc/self/statm with the pages of data and stack


class _Answer(msgspec.Struct, omit_defaults=True):
    page: SentPage | None = None
    failure: str = ""  # "raised" or "memory"
    lines: list[str] = []  # its traceback


# Made here, in one thread: two threads that decode a type for the first time can crash the interpreter (msgspec 0.22).
_decode_answer: Final = msgspec.msgpack.Decoder(_Answer).decode


class ReaderFailedError(Exception):
    """A reader returned no page. `kind`: raised, time (too long), memory (too much), died."""

    def __init__(self, kind: str, lines: Sequence[str]) -> None:
        super().__init__(lines[-1] if lines else kind)
        self.kind = kind
        self.lines = list(lines)


class ReaderProcess:
    """A reader by its name, `module:function`, for any number of threads: each has a process for its page."""

    def __init__(
        self,
        function: str,
        *,
        seconds_max: float = READER_SECONDS_MAX,
        memory_bytes_max: int = READER_MEMORY_BYTES_MAX,
        path: Sequence[str] | None = None,
    ) -> None:
        """path: where modules are looked for, else as here."""
        self._function = function
        self._seconds_max = seconds_max
        self._memory_bytes_max = memory_bytes_max
        self._path = list(sys.path if path is None else path)
        self._lock = threading.Lock()
        self._idle: list[_Child] = []

    def __repr__(self) -> str:
        return f"<ReaderApart {self._function}>"

    def __call__(self, body: bytes, url: str, content_type: str) -> Page:
        """The page. Raises ReaderFailedError."""
        with self._lock:
            child = self._idle.pop() if self._idle else None
        if child is not None:
            try:
                return self._read(child, body, url, content_type)
            except ReaderFailedError as failed:
                # It may have been killed since its last page: a fresh one says whether this page does it.
                if failed.kind != "died":
                    raise
        child = _Child(self._function, self._path, self._memory_bytes_max, self._seconds_max)
        return self._read(child, body, url, content_type)

    def _read(self, child: _Child, body: bytes, url: str, content_type: str) -> Page:
        try:
            page = child.read(body, url, content_type)
        except ReaderFailedError as failed:
            if failed.kind == "raised":
                self._keep(child)
            else:
                child.end()
            raise
        except BaseException:
            child.end()
            raise
        self._keep(child)
        return page

    def _keep(self, child: _Child) -> None:
        with self._lock:
            self._idle.append(child)

    def close(self) -> None:
        """Ends the processes; nothing is read meanwhile. A page after it gets a new one."""
        with self._lock:
            idle, self._idle = self._idle, []
        for child in idle:
            child.end()


class _Child:
    def __init__(self, function: str, path: Sequence[str], memory_bytes_max: int, seconds_max: float) -> None:
        self._seconds_max = seconds_max
        # A session of its own: Ctrl-C is for the crawl, and what the reader starts ends with it.
        self._process = subprocess.Popen(  # noqa: S603 - this interpreter, and a function that the settings name
            [sys.executable, "-c", _START, json.dumps(path), function, str(memory_bytes_max), str(seconds_max)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._late = False
        try:
            self._exchange(None, READER_START_SECONDS_MAX)
        except BaseException:
            self.end()
            raise

    def read(self, body: bytes, url: str, content_type: str) -> Page:
        octets = self._exchange(msgspec.msgpack.encode((body, url, content_type)), self._seconds_max)
        try:
            answer = _decode_answer(octets)
            if answer.failure:
                kind = "memory" if answer.failure == "memory" else "raised"
                raise ReaderFailedError(kind, answer.lines)
            return sent_page(answer.page or SentPage(), url)
        except (msgspec.DecodeError, ValueError) as error:
            raise ReaderFailedError("died", [f"its process returned an invalid answer: {error}"]) from None

    def _exchange(self, octets: bytes | None, seconds: float) -> bytes:
        """Sends a message, if there is one, and waits for the next one of the child."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if self._late:  # the timer of its last page ran too late to matter for that one
            raise ReaderFailedError("died", ["its process was ended"])
        # A timer ends the child, and with it the wait for a pipe: reading a pipe has no time limit.
        timer = threading.Timer(seconds, self._end_late)
        timer.daemon = True
        timer.start()
        try:
            if octets is not None:
                self._process.stdin.write(LENGTH.pack(len(octets)))
                self._process.stdin.write(octets)
                self._process.stdin.flush()
            return message(self._process.stdout)
        except (OSError, EOFError, ValueError) as error:
            if self._late or self._status() == -signal.SIGALRM:
                raise ReaderFailedError("time", [f"it took longer than {seconds:g} s"]) from None
            raise ReaderFailedError("died", [f"its process ended: {self._ending(error)}"]) from None
        finally:
            timer.cancel()

    def _end_late(self) -> None:
        self._late = True
        self._kill()

    def _status(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(1.0)
        return None

    def _ending(self, error: Exception) -> str:
        status = self._process.poll()
        if status is None:
            return str(error)
        return f"signal {-status}" if status < 0 else f"exit code {status}"

    def _kill(self) -> None:
        # The group of a child that was waited for may be another's: `poll` has not seen the end of this one.
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> None:
        self._kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._process.wait()


def message(pipe: IO[bytes], bytes_max: int = READER_ANSWER_BYTES_MAX) -> bytes:
    """The next message. Raises EOFError where it ends early, and ValueError for one that is too long."""
    head = pipe.read(LENGTH.size)
    if len(head) < LENGTH.size:
        raise EOFError("no answer")
    (length,) = LENGTH.unpack(head)
    if length > bytes_max:
        raise ValueError(f"an answer of {length:,} bytes; the limit is {bytes_max:,}")
    octets = pipe.read(length)
    if len(octets) < length:
        raise EOFError("half of an answer")
    return octets


# -- the child ---------------------------------------------------------------------------------------------------------


def main() -> None:
    """Reads pages until the parent is gone."""
    function, memory_bytes_max, seconds_max = sys.argv[2:]
    asked, told = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # Messages are not mixed with the reader's own output and input.
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    logging.disable(logging.CRITICAL)
    module, _, path = function.partition(":")
    read: Any = importlib.import_module(module)
    for part in path.split("."):
        read = getattr(read, part)
    _bound_memory(int(memory_bytes_max))
    _send(told, b"")
    while True:
        try:
            octets = message(asked, 2**32 - 1)
        except EOFError:
            return
        # A child whose parent was killed must end by itself, too.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, 2 * float(seconds_max))
        body, url, content_type = msgspec.msgpack.decode(octets, type=tuple[bytes, str, str])
        del octets
        answer = _answer(read, body, url, content_type)
        signal.setitimer(signal.ITIMER_REAL, 0)
        _send(told, msgspec.msgpack.encode(answer))


def _answer(read: Any, body: bytes, url: str, content_type: str) -> _Answer:
    try:
        return _Answer(as_sent(checked_page(read(body, url, content_type), url)))
    except MemoryError:
        return _Answer(failure="memory", lines=["it needed more memory than a reader has"])
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a reader may raise anything, and its page alone ends
        told = traceback.TracebackException.from_exception(error)
        told.stack = traceback.StackSummary.from_list(frame for frame in told.stack if frame.filename != __file__)
        lines = [part for line in told.format(chain=False) for part in line.rstrip().splitlines()]
        return _Answer(failure="raised", lines=[line[:_LINE_CHARACTERS_MAX] for line in lines[-_LINES_MAX:]])


def _bound_memory(bytes_max: int) -> None:
    """Limits the data of this process, in addition to that of its modules."""
    import resource

    try:
        with open("/proc/self/statm", "rb") as file:
            taken = int(file.read().split()[_STATM_DATA]) * resource.getpagesize()
    except OSError:  # not Linux; there the limit may cover less than all memory
        taken = 0
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (taken + bytes_max, taken + bytes_max))


def _send(pipe: IO[bytes], octets: bytes) -> None:
    pipe.write(LENGTH.pack(len(octets)))
    pipe.write(octets)
    pipe.flush()
