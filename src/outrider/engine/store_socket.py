"""control.sock in the directory of a store: the process that owns the store answers questions of other processes.

One line of JSON in, one line of JSON out, as docs/howto/frontier.md shows. A crawl answers in its own directory by its
event loop (`crawl/questions/control.py`); here threads answer for a program that keeps a store alone. The socket is
bound and reached through the directory's descriptor: the path in a socket's address ends after 107 bytes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from outrider.engine.process_queries import LOOKS, ORDERS, totals
from outrider.errors import OutriderError, StoreInUseError, UnreachableError
from outrider.limits import (
    CONTROL_ANSWER_SECONDS_MAX,
    CONTROL_PAUSE_SECONDS,
    CONTROL_QUESTION_BYTES_MAX,
    CONTROL_QUESTIONS_MAX,
    SOCKET_PATH_BYTES_MAX,
)

if TYPE_CHECKING:
    from outrider.engine.owner import Frontier

SOCKET_NAME: Final = "control.sock"
_CLOSED: Final = frozenset({errno.EBADF, errno.EINVAL})
"""The errors of `accept` on a socket that was closed or shut down."""
ANSWERS: Final[dict[str, Callable[[Frontier, Mapping[str, Any]], dict[str, Any]]]] = {
    **LOOKS,
    "totals": totals,
}
"""All that a program's store answers: questions, and no orders, which are the program's own."""


def address_of(directory_descriptor: int, path: str) -> str:
    """Returns the address to bind or connect to: a short name for a directory of any depth. Raises UnreachableError."""
    through = f"/proc/self/fd/{directory_descriptor}"
    if os.path.isdir(through):
        return f"{through}/{SOCKET_NAME}"
    whole = os.path.join(path, SOCKET_NAME)
    if len(os.fsencode(whole)) > SOCKET_PATH_BYTES_MAX:
        raise UnreachableError(f"{whole} is too long for a socket's address on this system")
    return whole


def listening_in(directory: str) -> socket.socket:
    """Returns a socket named control.sock in a directory, for its owner alone, not listening yet. Raises
    UnreachableError if it cannot be made. Only the process with the lock of the store may call it: any other socket
    there belongs to a dead process."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISSOCK(os.stat(SOCKET_NAME, dir_fd=descriptor, follow_symlinks=False).st_mode):
                os.unlink(SOCKET_NAME, dir_fd=descriptor)
        os.fchmod(listener.fileno(), 0o600)  # before it has a name, so that other users can never open it
        listener.bind(address_of(descriptor, directory))
        os.chmod(SOCKET_NAME, 0o600, dir_fd=descriptor)
    except BaseException as error:
        listener.close()
        if isinstance(error, OSError):
            raise UnreachableError(f"{directory}/{SOCKET_NAME} cannot be made ({error.strerror})") from None
        raise
    finally:
        os.close(descriptor)
    return listener


def question_of(line: bytes) -> dict[str, Any] | None:
    """Returns the query in a line of JSON; None for a line that is not a JSON object."""
    try:
        return msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


class StoreSocket:
    """Answers for a frontier that this process opened, until it is closed or dropped. If a directory cannot have a
    socket, its frontier works without one."""

    def __init__(self, directory: str, frontier: Frontier) -> None:
        self._path = os.path.join(directory, SOCKET_NAME)
        self._process = os.getpid()
        self._room = threading.BoundedSemaphore(CONTROL_QUESTIONS_MAX)
        self._frontier = weakref.ref(frontier)  # a program may forget a frontier without closing it
        self._listener: socket.socket | None = None
        self._file = (0, 0)
        with contextlib.suppress(OSError, UnreachableError):
            self._listener = listening_in(directory)
            self._listener.listen(CONTROL_QUESTIONS_MAX)
            told = os.lstat(self._path)
            self._file = told.st_dev, told.st_ino
            threading.Thread(target=self._serve, args=(self._listener,), name="outrider-control", daemon=True).start()
        self._end = weakref.finalize(
            frontier, StoreSocket._close, self._listener, self._path, self._file, self._process
        )

    def close(self) -> None:
        """Stops listening, and removes the name."""
        self._end()

    @staticmethod
    def _close(listener: socket.socket | None, path: str, file: tuple[int, int], process: int) -> None:
        if listener is None or process != os.getpid():
            return  # in a forked child the socket is the parent's
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        listener.close()
        with contextlib.suppress(OSError):
            told = os.lstat(path)
            if (told.st_dev, told.st_ino) == file:  # not the one of a process that opened the store since
                os.unlink(path)

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError as error:
                if error.errno in _CLOSED:
                    return
                time.sleep(CONTROL_PAUSE_SECONDS)  # no descriptor is left, perhaps
                continue
            if not self._room.acquire(blocking=False):
                connection.close()
                continue
            try:
                threading.Thread(target=self._answer, args=(connection,), name="outrider-control", daemon=True).start()
            except RuntimeError:  # no thread is left
                connection.close()
                self._room.release()

    def _answer(self, connection: socket.socket) -> None:
        try:
            with connection:
                connection.settimeout(CONTROL_ANSWER_SECONDS_MAX)
                line = bytearray()
                while not line.endswith(b"\n") and len(line) <= CONTROL_QUESTION_BYTES_MAX:
                    part = connection.recv(65_536)
                    if not part:
                        return
                    line += part
                connection.sendall(msgspec.json.encode(self._answered(bytes(line)), enc_hook=str) + b"\n")
        except OSError:
            return  # the other process closed the connection, or sent no line
        finally:
            self._room.release()

    def _answered(self, line: bytes) -> dict[str, Any]:
        question, frontier = question_of(line), self._frontier()
        if question is None:
            return {"ok": False, "error": "the question is no JSON object"}
        answer = ANSWERS.get(str(question.get("ask")))
        if str(question.get("ask")) in ORDERS:
            return {
                "ok": False,
                "error": "the program that opened the store takes no orders from outside; stop it, or let it call the "
                "method of its frontier",
                "code": StoreInUseError.exit_code,
            }
        if answer is None or frontier is None:
            return {"ok": False, "error": "this can be asked: " + ", ".join(sorted(ANSWERS))}
        try:
            return {"ok": True, "answer": answer(frontier, question)}
        except OutriderError as error:
            return {"ok": False, "error": error.facts, "code": error.exit_code}
        except Exception as error:  # noqa: BLE001 - a bug in an answer ends that answer, not the program
            return {"ok": False, "error": f"{type(error).__name__}: {error}"}
