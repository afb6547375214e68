"""Recovery makes tables from a checkpoint, the ledger and the tail of the log. It applies facts again and calls no
policy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from outrider.errors import DamagedStoreError, ForeignStoreError, StoreError
from outrider.frontier.format.facts import FRAME_KIND, STREAMS, Fact, decode, unpacked
from outrider.frontier.format.page_lines import completed
from outrider.frontier.state import kept_schedule
from outrider.frontier.state.replay import Window, applied, apply
from outrider.frontier.state.tables import HOSTS, LEASES, OWN, RUNS, Tables
from outrider.kernels import FRAME_BYTES_MAX
from outrider.limits import REPLAY_WINDOW_BYTES
from outrider.storage.checkpoint import Checkpoint
from outrider.storage.log import Frame, Log
from outrider.storage.read_ahead import ahead


def run_names(checkpoint: Checkpoint | None) -> list[str]:
    """The runs that a checkpoint lists, of all families."""
    names: list[str] = []
    if checkpoint is not None:
        for _, section, _, _, payload in checkpoint.ranges():
            if section == RUNS:
                for _, values in decode(payload):
                    names += values[1].list()
    return names


def load(tables: Tables, checkpoint: Checkpoint | None, log: Log, schedule: Checkpoint | None = None) -> str:
    """Fills empty tables. schedule: the file of `kept_schedule` for this checkpoint, if there is one. Returns a
    sentence about a schedule that was not used, otherwise "". Raises DamagedStoreError or ForeignStoreError, naming
    the place.

    A round copies hosts, queues and authorities between calls, each range at its own LSN. Facts have absolute values,
    so replay of all facts from the checkpoint's start, also of facts older than a range, ends in the last state. URLs
    and open leases are exactly those of the checkpoint's start."""
    leases: list[bytes] = []
    window, here = Window(tables), OWN
    for ranges in ahead(_ranges(checkpoint)):
        for section, payload in ranges:
            if section == LEASES:
                leases.append(payload)
            elif section != RUNS:
                if section != here:
                    window.finish()
                    here = section
                    if section not in (OWN, HOSTS):
                        tables.meet_cold()  # calls during the round may have recalled hosts after the copied rows
                window.add(payload)
    window.finish()
    unused = _restore_urls(tables, checkpoint, schedule)
    tables.urls.seen.note_additions()
    for payload in leases:
        with applied(0, 0):
            apply(tables, payload)
    window = Window(tables, carries=True)
    for payloads in ahead(_payloads(log, checkpoint.start_lsn if checkpoint is not None else 0)):
        for lsn, payload in payloads:
            window.add(payload, lsn)
            if tables.urls.unread is not None and tables.urls.unread.are_searched_often():
                window.finish()
                tables.urls.unread.read_all()
    window.finish()
    tables.urls.seen.add_noted()
    _read_slots(tables)
    if lost := tables.robots.settle():
        raise DamagedStoreError(f"the robots.txt file {lost[0]:016x}, which an authority names, is lost")
    tables.urls.wake_all(tables.now)
    tables.leaving.drop(len(tables.leaving.stalled))
    tables.forget_changed()
    return unused


def _restore_urls(tables: Tables, checkpoint: Checkpoint | None, schedule: Checkpoint | None) -> str:
    """Fills everything that is derived from the ledger, from the schedule or by a scan. Returns a sentence about a
    schedule that was not used, otherwise ""."""
    unused = ""
    if checkpoint is not None and schedule is not None:
        try:
            kept_schedule.restore(tables, checkpoint, schedule)
        except (StoreError, FileNotFoundError, kept_schedule.UnfitScheduleError) as error:
            unused = kept_schedule.describe(schedule, error)
        else:
            if tables.urls.unread is None or not tables.urls.voids():
                return ""
            # Counts are of the checkpoint's start, and queues were copied later, perhaps with deletions: the counts
            # may contain these URLs or not.
    tables.urls.unread = None
    tables.urls.restore()
    return unused


def _read_slots(tables: Tables) -> None:
    """Reads all slots that the opening left for later, if a call could need all of them at once."""
    unread, crawls = tables.urls.unread, tables.crawls
    if unread is not None and (unread.parked or crawls.orders or crawls.callers or tables.urls.plans):
        unread.read_all()


def _ranges(checkpoint: Checkpoint | None) -> Iterator[list[tuple[int, bytes]]]:
    """The sections and payloads of a checkpoint's ranges, in lists of about a window's size."""
    ranges = checkpoint.ranges() if checkpoint is not None else ()
    return _in_windows((section, payload) for _, section, _, _, payload in ranges)


def _payloads(log: Log, after: int) -> Iterator[list[tuple[int, bytes]]]:
    """Yields the LSNs and payloads of the frames after an LSN, in lists of about a window's size."""
    return _in_windows((frame.lsn, _payload(frame)) for frame in log.replay(after))


def _in_windows(payloads: Iterable[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    some: list[tuple[int, bytes]] = []
    size = 0
    for number, payload in payloads:
        some.append((number, payload))
        size += len(payload)
        if size >= REPLAY_WINDOW_BYTES:
            yield some
            some, size = [], 0
    yield some


def _payload(frame: Frame) -> bytes:
    if frame.kind != FRAME_KIND:
        raise ForeignStoreError(
            f"LSN {frame.lsn} has frame kind {frame.kind}: made by another release, open it with that one"
        )
    with applied(frame.lsn, frame.lsn):
        return unpacked(frame.payload, frame.codec, bytes_max=FRAME_BYTES_MAX)


def check(log: Log, after: int) -> None:
    """Applies the facts of all frames after an LSN. Raises DamagedStoreError, ForeignStoreError."""
    for frame in log.replay(after):
        payload = _payload(frame)
        with applied(frame.lsn, frame.lsn):
            for _ in decode(payload):
                pass


def lines(log: Log, stream: str, after: int) -> Iterator[tuple[int, bytes]]:
    """The lines of a stream that were logged after an LSN, as (LSN, line)."""
    number = STREAMS.index(stream)
    for frame in log.replay(after):
        for kind, values in decode(_payload(frame)):
            if kind == Fact.LINE:
                _, _, streams, new_links, texts = values
                for place, new, text in zip(streams.tolist(), new_links.tolist(), texts, strict=True):
                    if place == number:
                        yield frame.lsn, completed(text, new)
