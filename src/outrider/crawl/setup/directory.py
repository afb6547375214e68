"""A crawl's directory: its content, the check that it is a crawl, its settings, and the seeds still to be accepted."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from outrider.crawl.setup.options import (
    SETTINGS_FILE,
    SETTINGS_FILE_BYTES_MAX,
    CrawlOptions,
    SettingsFile,
    from_environment,
    from_file,
    resolved,
)
from outrider.errors import (
    ForeignStoreError,
    NamedPathError,
    NoCrawlError,
    SettingsError,
    StoreError,
    StoreFailedError,
    StoreFullError,
)
from outrider.limits import RUN_FILE_BYTES_MAX, SEEDS_PENDING_BYTES_MAX, WORK_FILE_BYTES_MAX
from outrider.storage.files import Directory, read_whole, remove_if_possible, replace
from outrider.storage.manifest import MANIFEST_NAME

FRONTIER_NAME: Final = "frontier"
ARCHIVE_NAME: Final = "archive"
REPORT_FILE: Final = "report.html"
PENDING_FILE: Final = "seeds.pending"
RUN_FILE: Final = "run.json"
WORKER_FOLDER: Final = "work"
"""The folder of a worker's own files in its directory."""
CLUSTER_FOLDER: Final = "cluster"
"""The folder of a node's stores in its directory."""
WORK_FILE: Final = "work.json"
ASIDE_PREFIX: Final = "aside-"
"""The prefix of the folders into which `--anew` moves the old content of a directory."""


class DirectoryContent(StrEnum):
    """The content of the directory for a crawl."""

    NOTHING = "nothing"  # no directory, or an empty one
    PREPARED = "prepared"  # an outrider.toml that the user wrote, no crawl yet
    CRAWL = "crawl"


GIVE_A_CRAWL = "name the directory of a crawl"
"""The advice if the directory of a command that reads or continues a crawl has other content."""
NAME_BYTES_MAX: Final = 255  # the longest file name on most systems; longer hosts do not resolve anyway
CHOOSE_ANOTHER = "choose another name with -o"


def folder_name(host: str) -> str:
    """Returns the name of a crawl's directory for a host; an address loses its brackets and colons.

    It names a directory in the current one. Raises SettingsError for a host that would name another (`~`, `..`), or
    that reads like an option.
    """
    name = host.strip("[]").replace(":", "-")
    odd = name[:1] in ("", "-", ".", "~") or not name.isprintable() or "/" in name or "\\" in name
    if odd or len(name.encode()) > NAME_BYTES_MAX:
        raise SettingsError(f"output is missing, and the host {host!r:.80} cannot name a directory; choose one with -o")
    return name


def inspect(path: str, way_out: str = CHOOSE_ANOTHER) -> DirectoryContent:
    """Returns the content of `path`; makes and changes nothing. way_out: the advice in the error for other content.

    Raises ForeignStoreError for a directory with other content, NamedPathError for a path that is not a directory or
    cannot be read.
    """
    try:
        names = {name for name in os.listdir(path) if not name.startswith(ASIDE_PREFIX)}
    except FileNotFoundError:
        return DirectoryContent.NOTHING
    except NotADirectoryError:
        from outrider.cluster.description import is_cluster_file  # for this message alone

        if is_cluster_file(path):
            raise NamedPathError(
                f"{path!r} is the file of a cluster; name the directory of a crawl or of a node, or start a node: "
                f"outrider crawl --cluster {path} -o DIR"
            ) from None
        raise NamedPathError(f"{path!r} is not a directory; {way_out}") from None
    except OSError as error:
        raise NamedPathError(f"{path!r} cannot be read ({error.strerror}); {way_out}") from None
    if FRONTIER_NAME in names:
        return DirectoryContent.CRAWL
    if SETTINGS_FILE in names:
        return DirectoryContent.PREPARED
    if names:
        named = ", ".join(sorted(names)[:3]) + (" …" if len(names) > 3 else "")
        if MANIFEST_NAME in names:
            named = "the store of a program (Frontier.open), which has URLs but no pages"
        raise ForeignStoreError(f"{path} is not a crawl (it contains {named}); {way_out}")
    return DirectoryContent.NOTHING


class WorkerOwner(msgspec.Struct, frozen=True):
    """The owner of a worker's directory: a store, the name under which it leases, and the address of its server; "" in
    a file of an earlier version."""

    store: str
    worker: str
    server: str = ""


def worker_of(path: str) -> WorkerOwner | None:
    """Returns the worker that owns a directory; None without a worker, or if its file cannot be read."""
    try:
        with open(os.path.join(path, WORKER_FOLDER, WORK_FILE), "rb") as file:
            return msgspec.json.decode(file.read(WORK_FILE_BYTES_MAX), type=WorkerOwner)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def refuse_owned(path: str) -> None:
    """Raises StoreInUseError where another process owns the crawl in `path`."""
    with contextlib.suppress(FileNotFoundError):
        store = Directory(os.path.join(path, FRONTIER_NAME), create=False)
        try:
            store.lock()
            store.unlock()
        finally:
            store.close()


def refuse_worker_or_node(path: str) -> None:
    """Raises ForeignStoreError for the directory of a worker or of a node of a cluster: a frontier made there would end
    their use of it."""
    if os.path.isdir(os.path.join(path, CLUSTER_FOLDER)) and not os.path.lexists(os.path.join(path, FRONTIER_NAME)):
        raise ForeignStoreError(
            f"{path} belongs to a node of a cluster; add --cluster FILE to start the node again, or choose another name"
        )
    worker = worker_of(path)
    if worker is not None and not os.path.lexists(os.path.join(path, FRONTIER_NAME)):
        again = f"outrider work {shlex.quote(worker.server or 'ADDRESS')} -o {shlex.quote(path)}"
        raise ForeignStoreError(
            f"{path} belongs to the worker {worker.worker!r:.200}, which `{again}` starts again; choose another name "
            "for a crawl"
        )


def no_crawl(path: str, found: DirectoryContent) -> NoCrawlError:
    """Returns the error for a command that needs a crawl and found this."""
    worker = worker_of(path) if found is DirectoryContent.PREPARED else None
    if worker is not None:
        at = worker.server
        told = f"the frontier is at {at}: use `outrider status {at}`" if at else "use the server of the frontier"
        return NoCrawlError(f"{path} belongs to the worker {worker.worker!r:.200}, and has no frontier; {told}")
    what = {DirectoryContent.PREPARED: f"contains {SETTINGS_FILE} and no {FRONTIER_NAME}"}.get(found, "is empty")
    if not os.path.lexists(path):
        from outrider.engine.http_requests import lacks_scheme  # for this message alone

        if lacks_scheme(path):
            return NoCrawlError(f"{path} does not exist; write http://{path} if it is the address of a server")
        what = "does not exist"
    return NoCrawlError(f"{path} {what}; `outrider crawl URL -o {shlex.quote(path)}` begins one")


def kept_settings(path: str) -> SettingsFile:
    """Returns the settings in DIR/outrider.toml; empty without the file. Raises NamedPathError."""
    where = os.path.join(path, SETTINGS_FILE)
    try:
        with open(where, "rb") as file:
            data = file.read(SETTINGS_FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return SettingsFile({})
    except OSError as error:
        raise NamedPathError(f"{where} cannot be read ({error.strerror})") from None
    if len(data) > SETTINGS_FILE_BYTES_MAX:
        raise NamedPathError(f"{where} is longer than {SETTINGS_FILE_BYTES_MAX} bytes")
    try:
        return from_file(data.decode(), where, path)
    except UnicodeDecodeError:
        raise NamedPathError(f"{where} is not UTF-8") from None


def kept_of_crawl(path: str) -> SettingsFile:
    """Returns the settings of the crawl in `path`. Raises NoCrawlError without a crawl, NamedPathError, and
    ForeignStoreError for other content."""
    found = inspect(path, GIVE_A_CRAWL)
    if found is DirectoryContent.NOTHING:
        raise no_crawl(path, found)
    return kept_settings(os.path.abspath(path))


def opened(path: str) -> Directory:
    """Returns the directory; makes it if missing. Raises NamedPathError if it cannot be made or written."""
    try:
        return Directory(path, create=True)
    except (StoreFailedError, StoreFullError) as error:
        raise NamedPathError(f"{path!r} cannot be made ({error.facts}); choose another with -o") from None
    except StoreError as error:
        raise NamedPathError(error.facts) from None
    except FileNotFoundError as error:
        raise NamedPathError(f"{path!r} cannot be made ({error.strerror}); choose another with -o") from None


def write_settings(files: Directory, text: str) -> None:
    """Replaces DIR/outrider.toml durably. Raises StoreFullError, StoreFailedError."""
    replace(files, SETTINGS_FILE, text.encode())


def put_pending(files: Directory, seeds: list[str]) -> None:
    """Writes seeds to a file before the frontier accepts them, so that a crash between two batches does not lose
    any."""
    replace(files, PENDING_FILE, "".join(seed + "\n" for seed in seeds).encode())


def take_pending(files: Directory) -> list[str]:
    """Returns the seeds in the file of an earlier run that the frontier may not have accepted."""
    try:
        return read_whole(files, PENDING_FILE, bytes_max=SEEDS_PENDING_BYTES_MAX).decode().split()
    except FileNotFoundError:
        return []


def drop_pending(files: Directory) -> None:
    """Removes the file: the frontier has all seeds. If that fails, the next run adds them again, which changes
    nothing."""
    remove_if_possible(files, PENDING_FILE)


class LastRun(msgspec.Struct, frozen=True):
    """The facts of a crawl's runs that its store does not keep.

    average, peak: answered pages per second of the last run. seconds: the time of all runs together. not_followed:
    links that were not followed, by reason, in all runs. bad_seeds: seeds that are not URLs, as of the last reading. A
    killed run loses its last half minute of these.
    """

    average: float = 0.0
    peak: float = 0.0
    seconds: float = 0.0
    not_followed: dict[str, int] = {}  # msgspec copies it
    bad_seeds: int = 0


def put_run(files: Directory, run: LastRun) -> None:
    """Stores a run's facts for `status` after its end; on a full disk they may be lost."""
    with contextlib.suppress(StoreError):
        replace(files, RUN_FILE, msgspec.json.encode(run) + b"\n")


def last_run(path: str) -> LastRun:
    """Returns the facts that `put_run` stored; zeros if there are no usable facts."""
    try:
        with open(os.path.join(path, RUN_FILE), "rb") as file:
            return msgspec.json.decode(file.read(RUN_FILE_BYTES_MAX), type=LastRun)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return LastRun()


def store_of(path: str) -> str:
    """Returns the store's folder in a crawl's directory, or `path` itself for the store of a program.

    Raises NoCrawlError without a crawl, NamedPathError, and ForeignStoreError for other content.
    """
    try:
        found = inspect(path, GIVE_A_CRAWL)
        if found is DirectoryContent.CRAWL:
            return os.path.join(path, FRONTIER_NAME)
    except ForeignStoreError:
        if not os.path.lexists(os.path.join(path, MANIFEST_NAME)):
            raise
        return path
    raise no_crawl(path, found)


def settings_of(path: str, flags: Mapping[str, object] | None = None) -> CrawlOptions:
    """Returns the settings of the crawl in `path`; without an outrider.toml, those of a new crawl there. flags: typed
    settings, which override all the rest."""
    kept = kept_settings(path).options if os.path.isdir(path) else {}
    return resolved(flags or {}, from_environment(os.environ), kept, path)
