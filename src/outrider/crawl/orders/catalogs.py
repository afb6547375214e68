"""Catalogs of a crawl: followed by threads of a running crawl, or by the command `catalog`.

A thread of a crawl only reads `pages.jsonl` and lists URLs, as other processes do. So a catalog that is out of reach,
full or slow never stops a crawl: it lacks lines for a time, and catches up.
"""

from __future__ import annotations

import os
import shlex
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache, partial
from typing import TextIO

from outrider.catalog.address import check_place, checked_address, shown_address
from outrider.catalog.catalog_notes import CatalogNote, missing_lines, put_note
from outrider.catalog.following import Follower, ListFrontier, ListPiece
from outrider.catalog.kinds import catalog_at, require_extra
from outrider.catalog.rows import ARCHIVE_PREFIX
from outrider.clock import elapsed, wall
from outrider.crawl.output.object_list import ObjectList
from outrider.crawl.output.output import FILES, PAGES
from outrider.crawl.output.summary import counted
from outrider.crawl.output.terminal import say
from outrider.crawl.questions.crawl_queries import Looks, querying
from outrider.crawl.setup.directory import refuse_worker_or_node, store_of
from outrider.engine import Frontier
from outrider.engine.process_queries import LOOKS
from outrider.errors import NoCrawlError, OutriderError, SettingsError
from outrider.limits import CATALOG_END_SECONDS_MAX, CATALOG_URLS_AT_ONCE


def catalog_command(directory: str, address: str, more: str = "") -> str:
    """Returns the command that completes a catalog, as a user types it."""
    return f"outrider catalog {shlex.quote(directory)} --to {shlex.quote(shown_address(address))}{more}"


def missing_text(directory: str, note: CatalogNote, lines: int, length: int) -> str:
    """Returns in words which lines a catalog lacks, and the command that helps."""
    why = f" ({note.problem})" if note.problem else ""
    what = f"lacks {counted(lines, 'line')} ({length:,} bytes)" if lines else "is not complete"
    return f"catalog {note.to} {what}{why}; `{catalog_command(directory, note.to)}` completes it"


def _piece(look: Looks, after: str | None) -> ListPiece:
    """Returns the piece after a cursor: of the list of URLs, and after its end of the list of robots.txt files. The
    cursor names the list."""
    name, _, cursor = (after or f"{_URLS} ").partition(" ")
    found = look(name, {"after": cursor or None, "limit": CATALOG_URLS_AT_ONCE})
    left = f"{name} {found['cursor']}" if found["cursor"] is not None else None
    if name == _URLS:
        return ListPiece(found["rows"], left or f"{_ROBOTS} ")
    return ListPiece((), left, found["rows"])


_URLS, _ROBOTS = "urls", "robots-files"


class FrontierList:
    """Lists the URLs and robots.txt files of an open frontier, piece by piece."""

    def __init__(self, frontier: Frontier) -> None:
        self._frontier = frontier

    def __call__(self, after: str | None) -> ListPiece:
        return _piece(lambda name, question: LOOKS[name](self._frontier, question), after)


class DirectoryList:
    """Lists the URLs and robots.txt files of the crawl in a directory: of the process that runs it, or of its files,
    which stay open for the whole list."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._open = ExitStack()
        self._look: Looks | None = None

    def __call__(self, after: str | None) -> ListPiece:
        if after is None or self._look is None:
            self.close()
            self._look = self._open.enter_context(querying(self._directory))
        try:
            found = _piece(self._look, after)
        except OutriderError:
            self.close()
            raise
        if found.cursor is None:
            self.close()
        return found

    def close(self) -> None:
        """Closes the files, so that another process may open them."""
        self._open.close()
        self._look = None


def _archive_prefix(directory: str) -> str:
    """Returns the beginning of the keys of archive files: in object storage, or in the directory."""
    return ObjectList(directory).prefix or ARCHIVE_PREFIX


def _follower(directory: str, address: str, list_frontier: ListFrontier) -> Follower:
    return Follower(
        os.path.join(directory, FILES[PAGES]),
        catalog_at(address),
        list_frontier,
        clock=elapsed,
        wall=wall,
        keep=partial(put_note, directory),
        archive_prefix=cache(partial(_archive_prefix, directory)),
        again=f"`{catalog_command(directory, address, ' --anew')}`",
    )


class Catalogs:
    """The catalogs of a running crawl, each followed by a thread of its own. The methods are called by one thread."""

    def __init__(
        self, addresses: Sequence[str], directory: str, frontier: Frontier, tell: Callable[[str], None]
    ) -> None:
        """tell: called by the threads with a sentence about a catalog that cannot be used."""
        self._directory, self._tell = directory, tell
        self._followers = [_follower(directory, address, FrontierList(frontier)) for address in addresses]
        self._ending = threading.Event()
        self._ended_at = 0.0
        self._at_once = False
        self._threads = [
            threading.Thread(target=self._run, args=(one,), name="outrider-catalog", daemon=True)
            for one in self._followers
        ]

    def start(self) -> None:
        """Starts to follow."""
        for thread in self._threads:
            thread.start()

    def _run(self, follower: Follower) -> None:
        try:
            follower.follow(self._ending.wait)
            follower.complete(self._is_over)
        except OutriderError as error:
            follower.fail(error)
            if not self._ending.is_set():
                self._tell(f"outrider: {follower.note.to} is not followed: {error}")
        finally:
            follower.close()

    def _is_over(self) -> bool:
        return self._at_once or time.monotonic() > self._ended_at

    def stop(self) -> None:
        """Ends the threads before their next step."""
        self._at_once = True
        self._ending.set()

    def finish(self) -> list[str]:
        """Completes each catalog for a limited time. Returns in words which ones lack lines. It may be called again."""
        self._ended_at = time.monotonic() + CATALOG_END_SECONDS_MAX
        self._ending.set()
        for thread in self._threads:
            thread.join(max(0.0, self._ended_at - time.monotonic()) + _JOIN_SECONDS)
        path = os.path.join(self._directory, FILES[PAGES])
        found = []
        for one in self._followers:
            lines, length = missing_lines(path, one.note.length)
            if lines or one.note.problem:
                found.append(missing_text(self._directory, one.note, lines, length))
        return found


_JOIN_SECONDS = 5.0  # for the step that runs when the time is over


def follow_directory(directory: str, to: str, *, follow: bool, anew: bool, talk: TextIO) -> CatalogNote:
    """Brings the catalog at `to` up to date with the crawl in `directory`; with `follow` until it is interrupted.
    Returns its note. Raises SettingsError, StoreError, CatalogError and its kin."""
    address = checked_address(to)
    require_extra(address)
    check_place(address, directory)
    refuse_worker_or_node(directory)
    if store_of(directory) == directory:
        raise NoCrawlError(f"{directory} is the store of a program, and has no pages; name the directory of a crawl")
    directory = os.path.abspath(directory)
    listed = DirectoryList(directory)
    follower = _follower(directory, address, listed)
    try:
        follower.open(anew=anew)
        follower.complete()
        if follow:
            say(f"following into {follower.note.to}; Ctrl-C ends", talk)
            follower.follow(threading.Event().wait)
    finally:
        follower.close()
        listed.close()
    return follower.note


def detach_month(to: str, month: str) -> list[str]:
    """Detaches a month from the catalog at `to`. Returns the names of the tables that are not part of it any more.
    Raises SettingsError, CatalogError and its kin."""
    address = checked_address(to)
    require_extra(address)
    catalog = catalog_at(address)
    detach = getattr(catalog, "detach", None)
    if detach is None:
        raise SettingsError(f"{catalog.name} has no months; only catalogs in PostgreSQL are parted by month")
    try:
        catalog.open()
        found: list[str] = detach(month)
        return found
    finally:
        catalog.close()
