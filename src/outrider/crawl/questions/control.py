"""DIR/control.sock: a running crawl answers questions, one line of JSON in, one line of JSON out.

    {"ask": "status"}              ->  {"ok": true, "answer": {…}}
    {"ask": "explain", "url": "…"} ->  {"ok": false, "error": "…", "code": 2}

`engine/store_socket.py` names and binds the socket. A program that uses a store alone answers the same questions
there.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from outrider.engine.store_socket import SOCKET_NAME, address_of, listening_in, question_of
from outrider.errors import OutriderError, SettingsError, StoreInUseError, UnreachableError
from outrider.limits import (
    CONTROL_ANSWER_BYTES_MAX,
    CONTROL_ANSWER_SECONDS_MAX,
    CONTROL_QUESTION_BYTES_MAX,
    CONTROL_QUESTIONS_MAX,
    CONTROL_SLOW_SECONDS_MAX,
)

Answer = Callable[[Mapping[str, Any]], Awaitable[Any]]
Answers = Mapping[str, Answer]
"""Functions that answer questions, by name. Each gets the whole question and may raise OutriderError."""
SLOW: Final = ("verify", "export")
"""Questions that read a whole store. The other process waits longer for them."""


class Control:
    """Answers questions of other processes while a crawl runs; only the holder of the store's lock may have one."""

    def __init__(self, directory: str, answers: Answers) -> None:
        self._directory = directory
        self._answers = answers
        self._server: asyncio.Server | None = None
        self._asking = 0

    async def open(self) -> None:
        """Starts to listen. Raises UnreachableError if a socket is impossible here; a crawl continues without it."""
        listener = listening_in(self._directory)
        self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=CONTROL_QUESTION_BYTES_MAX)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._asking >= CONTROL_QUESTIONS_MAX:
                return
            self._asking += 1
            try:
                async with asyncio.timeout(CONTROL_ANSWER_SECONDS_MAX):
                    line = await reader.readline()
                slow = any(b'"' + name.encode() + b'"' in line for name in SLOW)
                async with asyncio.timeout(CONTROL_SLOW_SECONDS_MAX if slow else CONTROL_ANSWER_SECONDS_MAX):
                    answer = await self._answered(line)
                    writer.write(msgspec.json.encode(answer, enc_hook=str) + b"\n")
                    await writer.drain()
            finally:
                self._asking -= 1
        except (OSError, ValueError, TimeoutError):
            return  # the other process has ended, or sent no line
        finally:
            writer.close()

    async def _answered(self, line: bytes) -> dict[str, Any]:
        question = question_of(line)
        if question is None:
            return {"ok": False, "error": "the question must be a JSON object"}
        answer = self._answers.get(str(question.get("ask")))
        if answer is None:
            return {"ok": False, "error": "unknown question; use one of " + ", ".join(sorted(self._answers))}
        try:
            return {"ok": True, "answer": await answer(question)}
        except OutriderError as error:
            return {"ok": False, "error": error.facts, "code": error.exit_code}

    async def close(self) -> None:
        """Stops listening and removes the socket."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self._directory, SOCKET_NAME))


def ask(directory: str, question: str, *, seconds_max: float = CONTROL_ANSWER_SECONDS_MAX, **arguments: Any) -> Any:
    """Returns the answer of the crawl that runs in `directory`. Raises UnreachableError if no crawl runs or answers,
    SettingsError for refused arguments, StoreInUseError if the owner accepts no orders."""
    if question in SLOW:
        seconds_max = CONTROL_SLOW_SECONDS_MAX
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise UnreachableError(f"{directory}: {error.strerror}") from None
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
            asking.settimeout(seconds_max)
            asking.connect(address_of(descriptor, directory))
            asking.sendall(msgspec.json.encode({**arguments, "ask": question}) + b"\n")
            line = bytearray()
            while not line.endswith(b"\n") and len(line) < CONTROL_ANSWER_BYTES_MAX:
                part = asking.recv(65_536)
                if not part:
                    break
                line += part
    except OSError as error:
        raise UnreachableError(f"{directory}/{SOCKET_NAME} does not answer ({error.strerror or error})") from None
    finally:
        os.close(descriptor)
    try:
        answer = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise UnreachableError(f"{directory}/{SOCKET_NAME} did not answer with JSON") from None
    if answer.get("code") == SettingsError.exit_code:
        raise SettingsError(str(answer.get("error")))
    if answer.get("code") == StoreInUseError.exit_code:
        raise StoreInUseError(str(answer.get("error")))
    if not answer.get("ok"):
        raise UnreachableError(f"the crawl in {directory} answered: {answer.get('error')}")
    return answer.get("answer")
