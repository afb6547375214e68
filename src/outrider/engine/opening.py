"""Opening a store: files, manifest, the tables at the log's end, and a clock that continues from there."""

from __future__ import annotations

import contextlib
import gc
import os
import secrets
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, replace

from outrider import clock as clocks
from outrider.clock import ClockFunction, Instant, checked, rfc3339, seconds
from outrider.errors import ForeignStoreError, NoStoreError, SettingsError, StoreError, shown
from outrider.frontier.policy.frontier_settings import FrontierSettings
from outrider.frontier.state import kept_schedule, recovery
from outrider.frontier.state.cold import ColdHosts
from outrider.frontier.state.tables import Tables
from outrider.frontier.stores.ledger import Ledger
from outrider.frontier.verbs import arguments
from outrider.limits import SLOTS
from outrider.storage.checkpoint import SCHEDULES, Checkpoint, newest_checkpoint
from outrider.storage.files import Directory, Files
from outrider.storage.log import Changelog, Log
from outrider.storage.manifest import Manifest, slot_ranges
from outrider.storage.runs import COLD, LEDGER, family_of
from outrider.url import PUBLIC_SUFFIX_VERSION, SPELLING_VERSION, LossyRules

KEY_BYTES = 16
_KEYS = 2


@dataclass(frozen=True, slots=True)
class Opening:
    """The findings of an opening. notes: sentences for people. clock_step_seconds: below 0 when the wall clock was
    set back."""

    number: int
    fresh: bool
    notes: tuple[str, ...] = ()
    clock_step_seconds: float = 0.0
    leases_ended: int = 0
    previous_state: str = ""


@dataclass(frozen=True, slots=True)
class Recovered:
    """The content of a store before its opening writes anything, for a judge of the files next to the store."""

    tables: Tables
    log: Log

    @property
    def token(self) -> int:
        """The last token that was given out."""
        return self.tables.token

    def watermarks(self) -> dict[str, bytes]:
        """As `Frontier.watermarks`."""
        return dict(self.tables.registry.watermarks)

    def projection(self, stream: str) -> tuple[int, int]:
        """As `Frontier.projection`."""
        return self.tables.registry.projections.get(stream, (0, 0))

    def lines(self, stream: str, after: int) -> Iterator[tuple[int, bytes]]:
        """As `Frontier.lines`."""
        return recovery.lines(self.log, stream, after)


def judge_recovered(judge: Callable[[Recovered], None] | None, tables: Tables, log: Log) -> None:
    """Calls a judge, if there is one, and closes the log that was read."""
    try:
        if judge is not None:
            judge(Recovered(tables, log))
    finally:
        log.close()


def open_log(
    files: Files,
    store: bytes,
    checkpoint: Checkpoint | None,
    *,
    read_only: bool = False,
    changelog: Changelog | None = None,
) -> Log:
    """Opens the log after a checkpoint; its epoch is set when the number of the opening is known."""
    after, synced = (checkpoint.start_lsn, checkpoint.lsn) if checkpoint is not None else (0, 0)
    return Log.open(files, store=store, epoch=0, after=after, synced=synced, read_only=read_only, changelog=changelog)


def schedule_of(files: Files, store: bytes, checkpoint: Checkpoint | None) -> tuple[Checkpoint | None, str]:
    """Returns the file of `kept_schedule` for a checkpoint (None without one), and a sentence about a damaged file (""
    for a whole one)."""
    if checkpoint is None:
        return None, ""
    try:
        found = newest_checkpoint(files, store=store, stem=SCHEDULES)
    except FileNotFoundError:
        return None, ""  # the owner of the store has just removed it
    except StoreError as error:
        return None, kept_schedule.unused_because(error.facts)
    if found is None or (found.number, found.start_lsn) != (checkpoint.number, checkpoint.start_lsn):
        return None, ""
    return found, ""


def read_store(
    files: Files, manifest: Manifest, *, scratch: Files | None, now: Instant = 0, memory_bytes: int | None = None
) -> tuple[Checkpoint | None, Tables, Log, str]:
    """Returns the newest checkpoint, the tables at the log's end, the log, open for reading only, and a sentence about
    a kept schedule that cannot be used, or "". scratch: the files for the tails of queues, None to keep them in
    memory."""
    store = manifest.store_bytes
    checkpoint = newest_checkpoint(files, store=store)
    schedule, damage = schedule_of(files, store, checkpoint)
    names = recovery.run_names(checkpoint)
    with contextlib.ExitStack() as opened:
        ledger = Ledger.open(files, store=store, names=[name for name in names if family_of(name) == LEDGER])
        opened.callback(ledger.close)
        cold = ColdHosts.open(files, store=store, names=[name for name in names if family_of(name) == COLD])
        opened.callback(cold.close)
        log = open_log(files, store, checkpoint, read_only=True)
        opened.callback(log.close)
        tables = Tables(
            ledger,
            cold=cold,
            fingerprint_key=manifest.fingerprint_key_bytes,
            scratch=scratch,
            now=now,
            memory_bytes=memory_bytes,
        )
        opened.pop_all()
    try:
        with all_stays():
            unused = recovery.load(tables, checkpoint, log, schedule)
    except BaseException:
        log.close()
        let_go(tables)
        raise
    return checkpoint, tables, log, damage or unused


def let_go(tables: Tables | None) -> None:
    """Closes descriptors, and removes the files of tails, which are made anew from the ledger."""
    if tables is not None:
        with contextlib.suppress(StoreError):
            tables.close()
        for part in tables.kept_in_runs():
            part.close()


@contextlib.contextmanager
def all_stays() -> Iterator[None]:
    """Recovery makes millions of objects that stay: looking for rubbish among them would be two thirds of its time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def files_of(path: str | os.PathLike[str] | Files) -> Files:
    """Returns the directory at a path, made if it is missing; a caller's `Files` are used as they are."""
    check_place(path)
    if not isinstance(path, str | os.PathLike):
        return path
    try:
        return Directory(path)
    except FileNotFoundError as error:
        raise StoreError(f"{os.fspath(path)} cannot be made ({error.strerror}); choose another directory") from None


def files_to_look_at(path: str | os.PathLike[str] | Files) -> Files:
    """Returns the directory at a path. Raises NoStoreError if it is missing."""
    check_place(path)
    if not isinstance(path, str | os.PathLike):
        return path
    try:
        return Directory(path, create=False, read_only=True)
    except FileNotFoundError:
        raise NoStoreError(f"{os.fspath(path)} does not exist; use the directory of a store") from None


def check_asking(name: str, value: object) -> None:
    """Raises SettingsError for a word other than caller and errands."""
    if value not in ("caller", "errands"):
        raise SettingsError(f"{name} {shown(value)}: use caller or errands")


def check_options(
    clock: object, seed: object, slots: object, keys: object, *, robots: object, addresses: object
) -> None:
    """Raises SettingsError for arguments with which no store can be opened."""
    check_asking("robots", robots)
    if clock is not None and not callable(clock):
        raise SettingsError(f"clock {clock!r:.80}: use a function that returns instants, microseconds since 1970")
    check_asking("addresses", addresses)
    arguments.whole("seed", seed, 0, (1 << 64) - 1)
    if slots is not None and not (
        isinstance(slots, Set) and slots and all(type(slot) is int and 0 <= slot < SLOTS for slot in slots)
    ):
        raise SettingsError(
            f"slots {slots!r:.80}: use a frozenset of whole numbers below {SLOTS}, one or more, or None for all"
        )
    if keys is not None and not (
        isinstance(keys, tuple | list)
        and len(keys) == _KEYS
        and all(isinstance(key, bytes) and len(key) == KEY_BYTES for key in keys)
    ):
        raise SettingsError(f"keys: use two of {KEY_BYTES} bytes each, of fingerprints and of slots")


def check_place(path: str | os.PathLike[str] | Files) -> None:
    """Raises SettingsError for a value that is neither the path of a directory nor `Files`."""
    if not isinstance(path, str | os.PathLike):
        if path is None or isinstance(path, int | float | bytes):
            raise SettingsError(f"path {path!r}: use a directory's path as text or a Path")
        return
    where = os.fspath(path)
    try:
        named = bool(where) and b"\0" not in os.fsencode(where)
    except UnicodeEncodeError:
        named = False
    if not named:
        raise SettingsError(f"path {where!r}: it names no directory")


def let_all_go(files: Files, log: Log | None, tables: Tables | None) -> None:
    """Returns everything that an unfinished opening has acquired."""
    if log is not None:
        log.close()
    let_go(tables)
    give_back(files)


def give_back(files: Files) -> None:
    """Releases the lock of the directory and closes its descriptor."""
    files.unlock()
    if isinstance(files, Directory):
        files.close()


def locked(path: str | os.PathLike[str] | Files) -> Files:
    """As `files_of`, with the directory locked. Raises StoreInUseError."""
    files = files_of(path)
    try:
        files.lock()
    except BaseException:
        give_back(files)
        raise
    return files


def manifest_of(
    files: Files,
    clock: ClockFunction | None,
    keys: tuple[bytes, bytes] | None,
    options: FrontierSettings,
    slots: Set[int] | None,
) -> tuple[Manifest, bool]:
    """The manifest of a store, and whether it is made now. Raises SettingsError for other slots than it was made
    with."""
    found = Manifest.load(files)
    if found is None:
        return new_manifest(files, clock, keys, options, slots), True
    if found.slots and slots is not None and slots != found.owned:
        raise SettingsError(
            f"slots {slot_ranges(slots)!r:.80}: {files.describe()} was made with {found.slots!r:.80}, and its URLs "
            "remain in these; leave slots out, or choose a new directory"
        )
    return found, False


def new_manifest(
    files: Files,
    clock: ClockFunction | None,
    keys: tuple[bytes, bytes] | None,
    options: FrontierSettings,
    slots: Set[int] | None,
) -> Manifest:
    """Writes the manifest of a store that is made, with new keys unless some are given. Raises StoreFullError."""
    fingerprint_key, slot_key = keys or (secrets.token_bytes(16), secrets.token_bytes(16))
    return Manifest.create(
        files,
        store=secrets.token_hex(16),
        created=rfc3339(checked(clock()) if clock is not None else clocks.wall()),
        fingerprint_key=fingerprint_key.hex(),
        slot_key=slot_key.hex(),
        spelling=SPELLING_VERSION,
        rules={"public_suffix_list": PUBLIC_SUFFIX_VERSION, "url_rules": (options.url_rules or LossyRules()).text},
        slots="" if slots is None else slot_ranges(slots),
    )


def pinned(files: Files, manifest: Manifest, options: FrontierSettings) -> FrontierSettings:
    """The rules of a new store remain in force; other rules would rename old URLs."""
    if manifest.spelling != SPELLING_VERSION:
        raise ForeignStoreError(
            f"{files.describe()} was made with URL spelling {manifest.spelling}, this is {SPELLING_VERSION}: "
            "open it with the version it was made with"
        )
    rules = LossyRules.parse(manifest.rules.get("url_rules", ""))
    if options.url_rules is not None and options.url_rules != rules:
        raise SettingsError(
            f"url_rules {options.url_rules.text!r}: {files.describe()} was made with {rules.text!r}, "
            "and other rules would give old URLs new names; leave them out, or choose a new directory"
        )
    return replace(options, url_rules=rules)


def clock_of(
    tables: Tables, clock: ClockFunction | None, *, takeover: bool = False
) -> tuple[ClockFunction, Instant, Instant | None, float]:
    """Returns (clock, instant of the opening, real time since the last logged instant if it is known, step of the wall
    clock in seconds).

    The clock never loses time that is known to have passed. Otherwise, after a wall clock was set back, the rests of
    hosts would be shorter in the record of their requests than they were. takeover: the log was dated by the clock of
    another machine, so no time is known to have passed: all rests begin anew where they were.
    """
    last = tables.now
    passed: Instant | None
    if clock is not None:
        at = checked(clock())
        passed = 0 if takeover else max(0, at - last)
        return clock, max(at, last), passed, min(0.0, seconds(at - last))
    wall = clocks.wall()
    at = max(wall, last)
    passed = 0 if takeover else None
    _, opened_at, _, boot, elapsed = tables.registry.opening
    if boot and boot == clocks.boot() and not takeover:
        # The same start of the machine: the time since the last logged instant is known, however the wall clock jumped.
        since = clocks.elapsed() - (elapsed + last - opened_at)
        passed = since if since >= 0 else None
        at = max(at, last + (passed or 0))
    return clocks.anchored(at), at, passed, min(0.0, seconds(wall - last)) if last else 0.0


def notes_of(log: Log, previous: str, ended: int, step: float) -> list[str]:
    """The notes of an opening for people, a sentence each."""
    notes = []
    cut = log.statistics()["cut_bytes"]
    if previous == "crashed":
        notes.append("the last run did not end cleanly; what it had acknowledged is here")
    if cut:
        notes.append(f"a torn tail of {cut} bytes was cut off the log (it was never acknowledged)")
    if ended:
        noun = "lease" if ended == 1 else "leases"
        notes.append(f"{ended:,} {noun} of the process that died had to end; each host rests one whole delay")
    if step < -1.0:
        notes.append(f"the clock was set back by {-step:.0f} s; time goes on from where the last run left it")
    return notes
