"""Seals the lines of a node: from time to time what its line files have is written to object storage, and then it is
noted in the stores. One thread does it. Without the storage the crawl continues, and the lines wait in the files.

begin    (crawl) the files are synced; how far they reach, and the last line of each store
write    (here) the lines since the last seal become objects, after the archive files that they name
end      (crawl) the places of the lines are noted, or refused: lines were removed meanwhile, and all begins again
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from outrider.cluster.sealed_lines import LineObjects
from outrider.cluster.stores import OwnStore
from outrider.errors import OutriderError, SettingsError, StoreFullError, UnreachableError
from outrider.limits import NODE_SEAL_SECONDS, SEALED_LINES_BYTES

_RETRY_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Seal:
    """One seal. begins, ends: of each line file, in bytes. lsns: of the last line of each store. drops: how
    often lines were removed before."""

    begins: Mapping[str, int]
    ends: Mapping[str, int]
    lsns: Mapping[OwnStore, int]
    drops: int


class SealedCrawl(Protocol):
    """The work of a crawl when its lines are sealed. The thread calls it."""

    def begin_seal(self) -> Seal:
        """Syncs the line files. Raises StoreError."""
        ...

    def upload_archive(self) -> None:
        """Uploads the archive files that these lines name, if the archive is uploaded. Raises OutriderError, OSError
        and UnreachableError."""
        ...

    def end_seal(self, seal: Seal) -> bool:
        """Notes the places in the stores, unless lines were removed meanwhile. Raises StoreError."""
        ...

    def fails(self, error: BaseException) -> None:
        """Ends the crawl: its files cannot be used."""
        ...

    def say(self, text: str) -> None:
        """Prints a line for people."""
        ...


class Sealing:
    """The seals of one node."""

    def __init__(
        self,
        crawl: SealedCrawl,
        objects: LineObjects,
        files: Mapping[str, str],
        *,
        each_seconds: float = NODE_SEAL_SECONDS,
    ) -> None:
        """files: the paths of the line files that are sealed, by stream. each_seconds: the time between two seals."""
        self._crawl, self._objects, self._files, self._each = crawl, objects, files, each_seconds
        self._changed = threading.Condition()
        self._wanted = self._done = 0
        self._is_ending = False
        self._problem = ""
        self._thread = threading.Thread(target=self._run, name="outrider-seals", daemon=True)

    def start(self) -> None:
        """Starts to seal."""
        self._thread.start()

    def now(self, seconds_max: float) -> bool:
        """Seals all lines that are written before this call. Returns whether it was possible in this time."""
        with self._changed:
            self._wanted += 1
            mine = self._wanted
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._done >= mine or self._is_ending, seconds_max)
            return self._done >= mine

    def end(self) -> None:
        """Ends the thread."""
        with self._changed:
            self._is_ending = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        pause = self._each
        while True:
            with self._changed:
                self._changed.wait_for(self._is_due, pause)
                if self._is_ending:
                    return
                wanted = self._wanted
            try:
                self._seal()
            except (UnreachableError, StoreFullError, SettingsError) as error:
                if str(error) != self._problem:
                    self._crawl.say(f"pages are not sealed: {error}; trying again")
                self._problem, pause = str(error), _RETRY_SECONDS
            except (OutriderError, OSError) as error:
                self._crawl.fails(error)
                return
            else:
                self._problem, pause = "", self._each
                with self._changed:
                    self._done = max(self._done, wanted)
                    self._changed.notify_all()

    def _is_due(self) -> bool:
        return self._is_ending or (self._wanted > self._done and not self._problem)

    def _seal(self) -> None:
        while True:
            seal = self._crawl.begin_seal()
            self._crawl.upload_archive()
            for stream, path in self._files.items():
                for lines in pieces(path, seal.begins[stream], seal.ends[stream]):
                    self._objects.write(stream, lines)
            if self._crawl.end_seal(seal):
                return


def pieces(path: str, begin: int, end: int) -> Iterator[bytes]:
    """Yields a part of a line file in pieces that end with a line."""
    if begin >= end:
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while begin < end:
            size = min(SEALED_LINES_BYTES, end - begin)
            while True:
                octets = os.pread(descriptor, size, begin)
                whole = octets.rfind(b"\n") + 1
                if whole or len(octets) < size or size >= end - begin:
                    break
                size = min(2 * size, end - begin)  # a line that is longer than a piece
            if not whole:
                return  # the file was cut meanwhile: the seal is refused
            yield octets[:whole]
            begin += whole
    finally:
        os.close(descriptor)
