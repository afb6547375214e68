"""Keeps one catalog up to date: the lines of `pages.jsonl` first, then the list of all URLs, in bounded steps.

Lines and lists are stored by one thread. A piece of a list is requested after the lines before it are stored, and is
stored at once. So a row of `urls` always has the newer of the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from outrider.catalog.catalog_notes import CatalogNote
from outrider.catalog.destination import CatalogError, Destination, Stored
from outrider.catalog.line_file import LineFile
from outrider.catalog.rows import ARCHIVE_PREFIX, batch_of, listed_urls, robots_rows
from outrider.clock import ClockFunction, Instant, instant, rfc3339_exact
from outrider.errors import OutriderError
from outrider.limits import (
    CATALOG_LINES_BYTES_AT_ONCE,
    CATALOG_LIST_SECONDS,
    CATALOG_LIST_SHARE,
    CATALOG_LOOK_SECONDS,
    CATALOG_NOTE_SECONDS,
    CATALOG_RETRY_SECONDS,
)


class ListPiece(NamedTuple):
    """A piece of the lists of a frontier: URLs as the question `urls` returns them, or robots.txt files as the question
    `robots-files` does, and the next cursor, None at the end of both."""

    urls: Sequence[Mapping[str, Any]]
    cursor: str | None
    robots: Sequence[Mapping[str, Any]] = ()


ListFrontier = Callable[[str | None], ListPiece]
"""Returns the piece after a cursor, None: the first one."""
Wait = Callable[[float], bool]
"""Waits for seconds, or until the end. Returns whether it is time to end."""
_SHORT: Final = "the crawl has not written its last lines again; `outrider resume` does"


class Follower:
    """One catalog of one crawl. All calls are from one thread; `note` may be read by others."""

    def __init__(
        self,
        path: str,
        destination: Destination,
        list_frontier: ListFrontier,
        *,
        clock: ClockFunction,
        wall: ClockFunction,
        keep: Callable[[CatalogNote], None] = lambda _: None,
        again: str = "",
        archive_prefix: Callable[[], str] = lambda: ARCHIVE_PREFIX,
    ) -> None:
        """path: of `pages.jsonl`. clock: for durations; wall: for the time of a list. keep: stores a note. again: the
        command that makes the catalog anew, for messages. archive_prefix: returns the beginning of the keys of archive
        files, when lines are read."""
        self._file = LineFile(path)
        self._path, self._again, self._archive_prefix = path, again, archive_prefix
        self._destination, self._list_frontier = destination, list_frontier
        self._clock, self._wall, self._keep = clock, wall, keep
        self._open = False
        self._stored = Stored()
        self._cursor: str | None = None
        self._listing_since: tuple[Instant, str] | None = None  # when the list began, by clock and by wall
        self._list_at: Instant = clock()
        self._kept_at: Instant = 0
        self.note = CatalogNote(destination.name)

    # -- steps --------------------------------------------------------------------------------------------------------

    def open(self, *, anew: bool = False) -> None:
        """Opens the catalog, and continues where it ended. Raises CatalogError if that is not a place of this file."""
        self._stored = self._destination.open(anew=anew)
        self._seek()
        self._open = True
        self._listing_since = self._cursor = None
        self._changed("")

    def _seek(self) -> None:
        position = self._stored.position
        reason = self._file.seek(position)
        if not reason:
            return
        if self._file.length() < position.length:
            reason += f" ({_SHORT})"
        raise CatalogError(
            f"{self._destination.name} has {position.lines:,} lines, but {self._path} does not belong to it: {reason}. "
            f"It follows another crawl, or this one was repaired; {self._again or '--anew'} makes it again"
        )

    def take_lines(self) -> int:
        """Stores the next lines. Returns their bytes, 0 if there are none now. Raises CatalogError and its kin."""
        before = self._file.position
        lines = self._file.next()
        if lines is None:
            self._seek()
            lines = self._file.next()
        if not lines:
            return 0
        batch = batch_of(lines, self._archive_prefix())
        after = self._file.position
        self._destination.append(batch, before, after)
        stored = self._stored
        self._stored = Stored(after, stored.urls_as_of, stored.cut + batch.cut, stored.unreadable + batch.unreadable)
        self._changed("")
        return after.length - before.length

    def _take_all(self, ended: Callable[[], bool]) -> bool:
        """Stores the lines that the file has now, and no later ones: a running crawl always writes more. Returns False
        if `ended` said to stop before."""
        goal = self._file.length()
        while self._file.position.length < goal and self.take_lines():
            if ended():
                return False
        return True

    def list_step(self) -> bool:
        """Stores the next piece of the list of all URLs. Returns whether the list is complete."""
        return self._store_piece(self._next_piece())

    def _next_piece(self) -> ListPiece:
        if self._listing_since is None:
            self._destination.restart_list()
            self._listing_since = self._clock(), rfc3339_exact(self._wall())
        return self._list_frontier(self._cursor)

    def _store_piece(self, piece: ListPiece) -> bool:
        assert self._listing_since is not None, "_next_piece comes first"
        begun, as_of = self._listing_since
        self._cursor, ended = piece.cursor, piece.cursor is None
        self._destination.refresh(listed_urls(piece.urls), robots_rows(piece.robots), as_of if ended else None)
        if ended:
            took = self._clock() - begun
            self._list_at = self._clock() + max(instant(CATALOG_LIST_SECONDS), CATALOG_LIST_SHARE * took)
            self._listing_since = None
            stored = self._stored
            self._stored = Stored(stored.position, as_of, stored.cut, stored.unreadable)
            self._changed("")
        return ended

    def _changed(self, problem: str) -> None:
        stored, position = self._stored, self._stored.position
        self.note = CatalogNote(
            self._destination.name,
            position.lines,
            position.length,
            stored.urls_as_of,
            stored.cut,
            stored.unreadable,
            problem,
        )
        if self._clock() >= self._kept_at or problem:
            self._kept_at = self._clock() + instant(CATALOG_NOTE_SECONDS)
            self._keep(self.note)

    def close(self) -> None:
        """Closes the catalog, and stores the note."""
        self._destination.close()
        self._open = False
        self._keep(self.note)

    # -- whole roads --------------------------------------------------------------------------------------------------

    def complete(self, ended: Callable[[], bool] = lambda: False) -> bool:
        """Stores all lines, then a whole list that begins now. Returns False if `ended` said to stop before. Raises
        CatalogError and its kin, and what the list raises."""
        if not self._open:
            self.open()
        self._listing_since = self._cursor = None
        while self._take_all(ended):
            if self.list_step():
                taken = self._take_all(ended)
                self._destination.settle()
                return taken
            if ended():
                return False
        return False

    def follow(self, wait: Wait) -> None:
        """Stores lines and lists until `wait` says that it is time to end. A catalog that is out of reach is tried
        again. Raises CatalogError if it cannot be used, also later."""
        failures = 0
        while True:
            try:
                busy = self._step()
                failures = 0
            except OutriderError as error:
                short = isinstance(error, CatalogError) and self._file.length() < self._stored.position.length
                self.fail(error)
                if not (error.retryable or short):
                    raise
                pause = CATALOG_RETRY_SECONDS[min(failures, len(CATALOG_RETRY_SECONDS) - 1)]
                failures += 1
                if wait(pause):
                    return
                continue
            if wait(0.0 if busy else CATALOG_LOOK_SECONDS):
                return

    def fail(self, error: OutriderError) -> None:
        """Ends the connection, and notes the error as the problem of this catalog."""
        self._destination.close()
        self._open = False
        self._changed(str(error))

    def _step(self) -> bool:
        """Stores the next lines, and a piece of the list if one is due. Returns whether there may be more at once."""
        if not self._open:
            self.open()
        busy = self.take_lines() > CATALOG_LINES_BYTES_AT_ONCE // 2
        if self._clock() < self._list_at:
            return busy
        try:
            piece = self._next_piece()
        except OutriderError:  # the frontier does not answer now, because its owner starts or ends
            self._listing_since = self._cursor = None
            self._list_at = self._clock() + instant(CATALOG_LIST_SECONDS)
            return busy
        return not self._store_piece(piece) or busy
