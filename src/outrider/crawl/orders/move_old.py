"""`--anew`: moves the content of a crawl's directory into a folder there, whole; nothing is removed."""

from __future__ import annotations

import contextlib
import os
from typing import Final

from outrider.archive.line_index import INDEX_FOLDER
from outrider.clock import Instant, rfc3339
from outrider.crawl.output.journal import JOURNAL_FILE
from outrider.crawl.output.output import FILES
from outrider.crawl.output.record_heads import HEADS_FOLDER
from outrider.crawl.run.probes import PROBES_FILE
from outrider.crawl.run.sitemaps import SITEMAPS_FILE
from outrider.crawl.run.tdm_files import TDMREP_FILE
from outrider.crawl.setup.directory import (
    ARCHIVE_NAME,
    ASIDE_PREFIX,
    FRONTIER_NAME,
    PENDING_FILE,
    REPORT_FILE,
    RUN_FILE,
)
from outrider.crawl.setup.options import SETTINGS_FILE, SETTINGS_FILE_BYTES_MAX
from outrider.engine.store_socket import SOCKET_NAME
from outrider.errors import NamedPathError, StoreError
from outrider.storage.files import Directory, read_whole, replace

# The store is moved first: after a crash in between, the other files have no store, and are refused until moved too.
_MOVED: Final = (
    FRONTIER_NAME,
    *FILES.values(),
    INDEX_FOLDER,
    HEADS_FOLDER,
    ARCHIVE_NAME,
    JOURNAL_FILE,
    REPORT_FILE,
    RUN_FILE,
    PENDING_FILE,
    SITEMAPS_FILE,
    PROBES_FILE,
    TDMREP_FILE,
    SOCKET_NAME,
)


def move_old(path: str, now: Instant) -> str | None:
    """Moves the crawl in `path` into a new folder there. Returns the folder, None if there was nothing to move.

    The settings stay in force, and the folder gets a copy of their file. Raises StoreInUseError while a process owns
    the crawl, and NamedPathError if a file cannot be moved.
    """
    there = [name for name in _MOVED if os.path.lexists(os.path.join(path, name))]
    if not there:
        return None
    with contextlib.ExitStack() as held:
        try:
            store = Directory(os.path.join(path, FRONTIER_NAME), create=False)
            held.callback(store.close)
            store.lock()
            held.callback(store.unlock)
        except FileNotFoundError:
            pass  # the store was moved already, so no process can own the crawl
        folder = _new_folder(path, now)
        for name in there:
            try:
                os.rename(os.path.join(path, name), os.path.join(folder, name))
            except OSError as error:
                raise NamedPathError(
                    f"{os.path.join(path, name)} cannot be moved into {folder} ({error.strerror}); move it by hand"
                ) from None
        _settle(path, folder)
    return folder


def _new_folder(path: str, now: Instant) -> str:
    """Returns a new folder, named by the time: `aside-20260102T030405Z`."""
    name = ASIDE_PREFIX + rfc3339(now)[:19].replace("-", "").replace(":", "") + "Z"
    for number in range(1, 1_000):
        folder = os.path.join(path, name if number == 1 else f"{name}-{number}")
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            continue
        except OSError as error:
            raise NamedPathError(f"{folder} cannot be made ({error.strerror})") from None
        return folder
    raise NamedPathError(f"{path} has a thousand folders {name}; remove some")


def _settle(path: str, folder: str) -> None:
    """Copies the settings, and makes the moves durable: first in the new folder, then in the old one."""
    with contextlib.closing(Directory(path, create=False)) as here:
        with contextlib.closing(Directory(folder, create=False)) as there:
            with contextlib.suppress(FileNotFoundError, StoreError):
                replace(there, SETTINGS_FILE, read_whole(here, SETTINGS_FILE, bytes_max=SETTINGS_FILE_BYTES_MAX))
            there.sync_directory()
        here.sync_directory()
