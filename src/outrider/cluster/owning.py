"""Claims a partition and opens its store: the directory that is here if it ends where the changelog ends, else a new
one.

claim()      the claim of this node counts, or it does not
make_ready() the directory contains what counts, and no frame more
open_store() the store, as any other, with its changelog
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from outrider.clock import ClockFunction, Instant
from outrider.cluster.changelog import OwnersChangelog
from outrider.cluster.counting import Counting, RecordTopic, crc_of, read_all
from outrider.cluster.records import Claim, packed
from outrider.cluster.snapshots import Objects, Snapshot, download
from outrider.engine.opening import Recovered
from outrider.engine.owner import Frontier
from outrider.errors import (
    ClaimRefusedError,
    DamagedStoreError,
    ForeignStoreError,
    SettingsError,
    StoreError,
    UnreachableError,
)
from outrider.kernels import FRAME_HEADER_BYTES, pack_frames, scan_frames
from outrider.limits import SLOTS
from outrider.storage.checkpoint import newest_checkpoint
from outrider.storage.files import LOCK_NAME, TEMPORARY_SUFFIX, Files
from outrider.storage.log import Log
from outrider.storage.manifest import MANIFEST_NAME, Manifest, slot_ranges
from outrider.url import PUBLIC_SUFFIX_VERSION, SPELLING_VERSION


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition of a cluster. number: from 0; count: of all partitions, a power of two up to 4,096. cluster: its
    id, 16 bytes. keys: of fingerprints and of slots. created: RFC 3339. url_rules: as in the manifest of a store."""

    number: int
    count: int
    cluster: bytes
    keys: tuple[bytes, bytes]
    created: str
    url_rules: str = ""

    @property
    def slots(self) -> frozenset[int]:
        """The slots of the partition: as many as of any other, without a gap."""
        size = SLOTS // self.count
        return frozenset(range(self.number * size, (self.number + 1) * size))

    @property
    def store(self) -> str:
        """The id of its store, 32 hex digits: the same on each node."""
        return sha256(self.cluster + self.number.to_bytes(4, "big")).hexdigest()[:32]

    def manifest(self) -> Mapping[str, object]:
        """Returns the arguments of `Manifest.create`: the same manifest on each node."""
        return {
            "store": self.store,
            "created": self.created,
            "fingerprint_key": self.keys[0].hex(),
            "slot_key": self.keys[1].hex(),
            "spelling": SPELLING_VERSION,
            "rules": {"public_suffix_list": PUBLIC_SUFFIX_VERSION, "url_rules": self.url_rules},
            "slots": slot_ranges(self.slots),
        }


@dataclass(slots=True)
class Claimed:
    """A claim that counts. before: what counted up to it, and after: with it. base: where the reading of the changelog
    began."""

    before: Counting
    after: Counting
    base: Counting
    snapshot: Snapshot | None = None

    @property
    def clean(self) -> bool:
        """Whether the last owner sends no request any more: it had given up, or there was no owner."""
        return self.before.closed or not self.before.epoch


@dataclass(eq=False, slots=True)
class Owned:
    """A partition that this node owns."""

    frontier: Frontier
    changelog: OwnersChangelog
    _given_up: bool = field(default=False)

    @property
    def is_open(self) -> bool:
        """Whether it was neither given up nor dropped."""
        return not self._given_up

    def give_up(self, state: str = "stopped") -> None:
        """Closes the store, and lets another node begin at once. Call it when no request runs. Raises
        ClaimLostError."""
        if not self._given_up:
            self._given_up = True
            self.frontier.close(state)
            self.changelog.end()

    def drop(self) -> None:
        """Closes the store after the claim was lost."""
        self._given_up = True
        self.changelog.abandon()
        with contextlib.suppress(StoreError):
            self.frontier.close()


def claim(
    topic: RecordTopic,
    partition: Partition,
    snapshot: Snapshot | None,
    *,
    node: str,
    mark: str,
    address: str = "",
    pause: Callable[[], None],
) -> Claimed:
    """Claims a partition. mark: a text that no other claim has.

    Raises ClaimRefusedError if another record was appended in between, SettingsError for the topic of another cluster
    or one that was made anew, and UnreachableError, DamagedStoreError.
    """
    base = snapshot.counting() if snapshot is not None else Counting()
    after = base.copy()
    read_all(topic, after)
    before = after.copy()
    if before.claim is not None and before.claim.store != partition.store:
        raise SettingsError(
            f"the changelog of partition {partition.number} has the records of another cluster of this name (of store "
            f"{before.claim.store:.32}, not {partition.store}); make a cluster with another name"
        )
    wanted = Claim(after.epoch + 1, after.lsn + 1, after.position, partition.store, node, mark, address)
    sent = topic.send(packed(wanted))
    while after.position <= wanted.offset:
        # The topic decides, whatever the answer was: another record may have taken the place of the claim.
        with contextlib.suppress(UnreachableError):
            _check_end(sent.offset(), before, partition)
        read_all(topic, after)
        if after.position <= wanted.offset:
            pause()
            sent = topic.send(packed(wanted))
    if after.claim != wanted:
        raise ClaimRefusedError(f"partition {partition.number}, offset {wanted.offset}")
    return Claimed(before, after, base, snapshot)


def _check_end(offset: int, before: Counting, partition: Partition) -> None:
    """Raises SettingsError if the topic ends before the place that the newest snapshot names: an append has got an
    offset before it."""
    if offset < before.position:
        raise SettingsError(
            f"the changelog of partition {partition.number} ends at offset {offset}, but the newest snapshot is of "
            f"offset {before.position}: its topic was deleted or made anew; restore the topic, or make a cluster with "
            "another name"
        )


def make_ready(files: Files, partition: Partition, claimed: Claimed, topic: RecordTopic, objects: Objects) -> bool:
    """Has what counted before the claim in a directory, and nothing else. Returns whether the directory was made anew.

    Raises ForeignStoreError for a directory with something else, StoreInUseError, DamagedStoreError, UnreachableError,
    StoreFullError.
    """
    files.lock()
    try:
        if _ends_at(files, partition, claimed.before):
            return False
        _clear(files, partition)
        Manifest.create(files, **partition.manifest())  # type: ignore[arg-type]
        start = 0
        if claimed.snapshot is not None:
            download(files, objects, claimed.snapshot)
            start = claimed.snapshot.start_lsn
        log = Log.open(files, store=bytes.fromhex(partition.store), epoch=0, first_lsn=start + 1)
        try:
            _adopt(log, claimed, topic, start)
        finally:
            log.close()
        return True
    finally:
        files.unlock()


def open_store(
    files: Files,
    claimed: Claimed,
    topic: RecordTopic,
    *,
    tenure_seconds: float,
    elapsed: Callable[[], Instant],
    pause: Callable[[], None],
    clock: ClockFunction | None = None,
    seed: int = 0,
    settings: Mapping[str, object] | None = None,
    robots: str = "errands",
    addresses: str = "caller",
    output: bool = False,
    judge: Callable[[Recovered], None] | None = None,
) -> Owned:
    """Opens the store of a partition, after the directory was made ready and the tenure of the last owner is over.
    Raises ClaimLostError, and as `Frontier.open`."""
    changelog = OwnersChangelog(
        topic, claimed.base, claimed.after, tenure_seconds=tenure_seconds, elapsed=elapsed, pause=pause
    )
    frontier = Frontier.open(
        files,
        clock=clock,
        seed=seed,
        settings=settings,
        robots=robots,
        addresses=addresses,
        output=output,
        judge=judge,
        control=False,
        changelog=changelog,
    )
    return Owned(frontier, changelog)


def _adopt(log: Log, claimed: Claimed, topic: RecordTopic, start: int) -> None:
    """Writes the frames after an LSN that count."""
    counting, end = claimed.base.copy(), claimed.before.position
    while counting.position < end:
        records = topic.read(counting.position)
        if not records:
            raise DamagedStoreError(f"the changelog ends at offset {counting.position}, but it had {end} records")
        for offset, octets in records:
            if offset >= end:
                break
            first = counting.lsn
            frames = counting.take(offset, octets)
            if frames and counting.lsn > start:
                log.adopt(frames if first >= start else _after(frames, start))
    log.sync()
    if log.appended_lsn != claimed.before.lsn:
        raise DamagedStoreError(
            f"the changelog has the frames up to LSN {claimed.before.lsn}, the store made of it those up to "
            f"{log.appended_lsn}"
        )


def _after(frames: bytes, lsn: int) -> bytes:
    """Returns the frames with a higher LSN."""
    rows, _, _ = scan_frames(frames)
    return frames[next(row[0] for row in rows if row[2] > lsn) - FRAME_HEADER_BYTES :]


def _ends_at(files: Files, partition: Partition, counting: Counting) -> bool:
    """Whether a directory has the store of a partition, up to exactly the last frame that counts. The last frame of an
    owner that lost its claim may have the same LSN, but has another checksum."""
    try:
        manifest = Manifest.load(files)
        if manifest is None or manifest.store != partition.store:
            return False
        checkpoint = newest_checkpoint(files, store=manifest.store_bytes)
        after, synced = (checkpoint.start_lsn, checkpoint.lsn) if checkpoint is not None else (0, 0)
        log = Log.open(files, store=manifest.store_bytes, epoch=0, after=after, synced=synced, read_only=True)
        try:
            if log.appended_lsn != counting.lsn:
                return False
            if not counting.lsn:
                return True
            frame = next(log.replay(counting.lsn - 1), None)
        finally:
            log.close()
    except (DamagedStoreError, ForeignStoreError):
        return False
    if frame is None:
        return False
    fields = (frame.lsn, frame.synced, frame.epoch, frame.kind, frame.version, frame.codec, frame.payload)
    return crc_of(pack_frames([fields])) == counting.crc


def _clear(files: Files, partition: Partition) -> None:
    """Removes the files of the partition's store. Raises ForeignStoreError if the directory has something else."""
    names = [name for name in files.names() if name not in (LOCK_NAME, MANIFEST_NAME + TEMPORARY_SUFFIX)]
    if not names:
        return
    manifest = Manifest.load(files)
    if manifest is None or manifest.store != partition.store:
        raise ForeignStoreError(
            f"{files.describe()} contains another store than that of partition {partition.number}; choose another "
            "directory"
        )
    # The manifest last: until then the directory is known as one that may be cleared.
    for name in [*(name for name in names if name != MANIFEST_NAME), MANIFEST_NAME]:
        files.remove(name)
    files.sync_directory()
