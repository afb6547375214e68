"""Finds the whole parts of a store's files, and writes new files without the damaged parts. Old files are kept.

`survey` reads every byte and changes nothing. `mend` writes each damaged file anew from its whole parts. A log gets an
empty frame for every lost one, so that its LSNs have no gaps; a checkpoint and a run omit the damaged parts. The old
files move to the folder `damaged-<n>`, with `report.json`; nothing is removed. The frontier judges the content of the
lost pieces: this room handles frames, ranges and blocks.

The author of a page can put a whole frame or range inside the bytes of another one. After damage one counts only if
its LSN (or place) is possible at this byte.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from typing import Any, Final

from outrider.kernels import FRAME_BYTES_MAX, FRAME_HEADER_BYTES, crc32c, find_frame, pack_frames, scan_frames
from outrider.limits import LOG_READ_BYTES, MANIFEST_BYTES_MAX
from outrider.storage import checkpoint as ckpt
from outrider.storage import log as logs
from outrider.storage.checkpoint import CheckpointWriter, Range, checkpoint_name
from outrider.storage.files import File, Files, replace_in_pieces
from outrider.storage.log import SEGMENT_HEADER_BYTES, segment_name
from outrider.storage.losses import Loss, MendableFiles, corrected, read_as_can_be
from outrider.storage.manifest import MANIFEST_NAME, is_manifest
from outrider.storage.run_repair import RunFound, mend_runs, survey_run
from outrider.storage.runs import COLD, LEDGER, family_of
from outrider.storage.sealed import CRC, is_whole, sealed, unsealed_head

DAMAGED_PREFIX: Final = "damaged-"
REPORT_NAME: Final = "report.json"
_MANIFEST_OCTETS: Final = (0x0A, *range(0x20, 0x7F))
_COVERED_FROM: Final = 8  # a frame's length counts what follows length and crc
_LENGTH = struct.Struct("<I")
_RANGE_HEAD_BYTES: Final = ckpt._RANGE.size + CRC.size
_MARKS_BEGIN: Final = b"rng"  # as every mark of a range does


@dataclass(frozen=True, slots=True)
class Filler:
    """An empty frame in the place of a lost one."""

    kind: int
    version: int
    codec: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Stretch:
    """Whole frames one after another: bytes begin … end of a segment, LSNs first … last."""

    begin: int
    end: int
    first_lsn: int
    last_lsn: int


@dataclass(slots=True)
class Segment:
    """The whole parts of one segment."""

    name: str
    first_lsn: int
    size: int
    header_whole: bool
    epoch: int = 0
    stretches: list[Stretch] = field(default_factory=list)
    next_lsn: int = 0
    """The byte after its last whole frame."""
    until: int = 0
    """The last LSN that the segment must contain, because the next segment continues there or because it was synced."""
    clean: bool = True
    """Nothing but unused space follows its last whole frame."""
    damaged: bool = False

    @property
    def right_name(self) -> str:
        """The name that a segment with its LSNs has."""
        return segment_name(self.first_lsn)


@dataclass(slots=True)
class CheckpointFound:
    """The whole parts of the newest checkpoint."""

    number: int
    start_lsn: int | None
    """None: its header is lost, and the whole log is to be replayed."""
    lsn: int
    places: list[int] = field(default_factory=list)
    """Where its whole ranges begin, in bytes."""
    damaged: bool = False


@dataclass(slots=True)
class Survey:
    """The result of a look at every byte of a store."""

    store: bytes
    segments: list[Segment] = field(default_factory=list)
    checkpoint: CheckpointFound | None = None
    known_lsn: int = 0
    """The last LSN that is known to have been synced."""
    covered_lsn: int = 0
    """Replay begins after it."""
    gaps: list[tuple[int, int]] = field(default_factory=list)
    """LSNs (first, last) without any segment."""
    begins_late: bool = False
    """Whether the log begins after the first LSN that replay needs; earlier frames are lost."""
    foreign: list[str] = field(default_factory=list)
    """Files that have the name of one of ours and are not: kept aside, so that the store can be opened."""
    losses: list[Loss] = field(default_factory=list)
    runs: list[RunFound] = field(default_factory=list)
    """Runs of the ledger and of cold hosts; in each family the oldest first."""

    @property
    def last_lsn(self) -> int:
        """The LSN of the last frame that is known."""
        return max([self.known_lsn, *(segment.until for segment in self.segments), *(last for _, last in self.gaps)])

    @property
    def whole(self) -> bool:
        """Nothing is lost."""
        return not self.losses and not self.foreign


def survey(files: Files, store: bytes) -> Survey:
    """Reads log and checkpoint to the last byte; nothing is written.

    store: the store's id, 16 bytes. Raises ForeignStoreError for files of a newer format.
    """
    found = Survey(store)
    _survey_checkpoint(files, found)
    _survey_log(files, found)
    return found


def survey_runs(files: Files, found: Survey, names: Iterable[str] | None) -> None:
    """Reads the runs of all families to the last byte, and adds its findings.

    names: the runs that the checkpoint lists, oldest first. None where that list is lost: all that are there, by their
    ages. A merged run has the age of its newest part, and a higher number. Raises ForeignStoreError for files of a
    newer format.
    """
    listed = sorted(name for name in files.names() if family_of(name) is not None) if names is None else names
    found.runs = [survey_run(files, found.store, name, found.losses) for name in listed]
    if names is None:
        found.runs.sort(key=lambda run: (family_of(run.name) or "", run.age, run.name))


# -- the manifest -----------------------------------------------------------------------------------------------------


def manifest_of(files: Files, losses: list[Loss]) -> bytes | None:
    """The manifest's bytes as they were if one of them was changed, which is added to `losses`; None where that is not
    the whole damage: without its keys a store cannot be read. Raises FileNotFoundError."""
    file = files.open(MANIFEST_NAME)
    try:
        data = read_as_can_be(file, 0, min(file.size(), MANIFEST_BYTES_MAX))
    finally:
        file.close()
    if is_manifest(data):
        return data
    trial = bytearray(data)
    for place, was in enumerate(data):
        for value in _MANIFEST_OCTETS:
            trial[place] = value
            if value != was and is_manifest(bytes(trial)):
                losses.append(Loss(MANIFEST_NAME, place, place + 1, "one byte of it was wrong", pieces=0))
                return bytes(trial)
        trial[place] = was
    return None


# -- the checkpoint ---------------------------------------------------------------------------------------------------


def _survey_checkpoint(files: Files, found: Survey) -> None:
    numbers = ckpt._numbers(files)
    if not numbers:
        return
    number = numbers[-1]
    name = checkpoint_name(number)
    file = files.open(name)
    try:
        _walk_checkpoint(file, files.describe(name), number, found)
    finally:
        file.close()


def _walk_checkpoint(file: File, where: str, number: int, found: Survey) -> None:
    name = checkpoint_name(number)
    size = file.size()
    header = corrected(read_as_can_be(file, 0, ckpt._HEADER_BYTES), ckpt._HEADER)
    start: int | None = None
    damaged = False
    if header is not None:
        owner, named, start = unsealed_head(
            header,
            ckpt._HEADER,
            magic=ckpt._HEADER_MAGIC,
            newest=ckpt.CHECKPOINT_FORMAT,
            where=where,
            file_format="checkpoint",
            what="checkpoint",
        )
        if owner != found.store or named != number:
            found.foreign.append(name)
            found.losses.append(Loss(name, 0, size, "it belongs to another store, or was renamed"))
            return
    if header is None or header != read_as_can_be(file, 0, ckpt._HEADER_BYTES):
        damaged = True
        told = "the header fails its checksum" + ("; one byte of it was wrong" if header is not None else "")
        found.losses.append(Loss(name, 0, ckpt._HEADER_BYTES, told, pieces=0 if header is not None else None))
    at = max(size - ckpt._FOOTER_BYTES, 0)
    footer = corrected(read_as_can_be(file, at, size), ckpt._FOOTER)
    count: int | None = None
    lsn = start or 0
    end = size
    if footer is not None and footer[:4] == ckpt._FOOTER_MARK:
        _, _, count, _, lsn = ckpt._FOOTER.unpack_from(footer)
        end = at
        if footer != read_as_can_be(file, at, size):
            damaged = True
            found.losses.append(Loss(name, at, size, "the footer had one wrong byte", pieces=0))
    else:
        damaged = True
    checkpoint = CheckpointFound(number, start, lsn, damaged=damaged)
    place = 0
    expected = ckpt._HEADER_BYTES
    for position, stop, this, range_lsn in _whole_ranges(file, ckpt._HEADER_BYTES, end):
        if position > expected:
            found.losses.append(_lost_ranges(name, expected, position, this - place))
        checkpoint.places.append(position)
        checkpoint.lsn = max(checkpoint.lsn, range_lsn)
        expected, place = stop, this + 1
    if expected < end or (count is not None and place < count):
        pieces = None if count is None else count - place
        found.losses.append(_lost_ranges(name, expected, end, pieces))
    elif count is None:
        found.losses.append(Loss(name, at, size, "the footer is not whole; ranges at the end may be missing"))
    checkpoint.damaged = damaged or any(loss.file == name for loss in found.losses)
    found.checkpoint = checkpoint
    found.covered_lsn = start or 0


def _lost_ranges(name: str, begin: int, end: int, pieces: int | None) -> Loss:
    several = "ranges of rows" if pieces is None else f"{pieces:,} range{'s' if pieces != 1 else ''} of rows"
    return Loss(name, begin, end, f"{several} cannot be read", pieces=pieces)


def _whole_ranges(file: File, begin: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yields (first byte, end, place, LSN) of each whole range, in order."""
    position, place = begin, 0
    while position + _RANGE_HEAD_BYTES <= end:
        whole = _range_at(file, position, end, place, place)
        if whole is None:
            whole = _next_range(file, position, end, place)
        if whole is None:
            return
        yield whole
        position, place = whole[1], whole[2] + 1


def _range_at(file: File, position: int, end: int, least: int, most: int) -> tuple[int, int, int, int] | None:
    """The whole range that begins at this byte, if its place in the file is one from `least` to `most`."""
    head = read_as_can_be(file, position, min(position + _RANGE_HEAD_BYTES, end))
    if len(head) < _RANGE_HEAD_BYTES:
        return None
    mark, length, _, _, _, lsn, place = ckpt._RANGE.unpack_from(head)
    stop = position + _RANGE_HEAD_BYTES + length
    if mark not in ckpt._RANGE_MARKS or stop > end or length > ckpt.RANGE_BYTES_LIMIT or not least <= place <= most:
        return None
    payload = read_as_can_be(file, position + _RANGE_HEAD_BYTES, stop)
    if CRC.pack(crc32c(payload, crc32c(head[: ckpt._RANGE.size]))) != head[ckpt._RANGE.size :]:
        return None
    if ckpt.unpacked_payload(mark, payload) is None:
        return None
    return position, stop, place, lsn


def _next_range(file: File, broken: int, end: int, place: int) -> tuple[int, int, int, int] | None:
    """Returns the first whole range after a broken one: at the end of its length, or else at the next mark."""
    head = read_as_can_be(file, broken, min(broken + ckpt._RANGE.size, end))
    if len(head) == ckpt._RANGE.size:
        hop = broken + _RANGE_HEAD_BYTES + int(ckpt._RANGE.unpack(head)[1])
        if hop < end and (whole := _range_at(file, hop, end, place + 1, place + 1)) is not None:
            return whole
    position = broken + 1
    while position < end:
        window = read_as_can_be(file, position, min(position + LOG_READ_BYTES, end))
        at = window.find(_MARKS_BEGIN)
        while at >= 0:
            most = place + (position + at - broken) // _RANGE_HEAD_BYTES
            whole = _range_at(file, position + at, end, place + 1, most)
            if whole is not None:
                return whole
            at = window.find(_MARKS_BEGIN, at + 1)
        position += max(len(window) - len(_MARKS_BEGIN) + 1, 1)
    return None


def whole_ranges(files: Files, checkpoint: CheckpointFound) -> Iterator[Range]:
    """(slot, section, first row, LSN, payload) of every whole range, in order."""
    if not checkpoint.places:
        return
    file = files.open(checkpoint_name(checkpoint.number))
    try:
        for position in checkpoint.places:
            head = read_as_can_be(file, position, position + _RANGE_HEAD_BYTES)
            mark, length, slot, section, first_row, lsn, _ = ckpt._RANGE.unpack_from(head)
            stored = read_as_can_be(file, position + _RANGE_HEAD_BYTES, position + _RANGE_HEAD_BYTES + length)
            payload = ckpt.unpacked_payload(mark, stored)
            if payload is not None:  # it was whole when it was looked for
                yield slot, section, first_row, lsn, payload
    finally:
        file.close()


# -- the log ----------------------------------------------------------------------------------------------------------


def _survey_log(files: Files, found: Survey) -> None:
    mirror = _mirror(files, found.store)
    found.known_lsn = max(mirror, found.covered_lsn, found.checkpoint.lsn if found.checkpoint else 0)
    segments = sorted(_segments(files, found), key=lambda segment: segment.first_lsn)
    for segment, follower in zip_longest(segments, segments[1:]):
        bound = follower.first_lsn if follower is not None else None
        _scan(files, segment, bound, found)
    _judge(segments, found)


def _mirror(files: Files, store: bytes) -> int:
    try:
        file = files.open(logs.MIRROR_NAME)
    except FileNotFoundError:
        return 0
    best = 0
    try:
        for turn in (0, 1):
            begin = turn * logs._MIRROR_STEP_BYTES
            slot = read_as_can_be(file, begin, begin + logs._MIRROR_SLOT.size + CRC.size)
            if is_whole(slot, logs._MIRROR_SLOT):
                magic, owner, lsn = logs._MIRROR_SLOT.unpack_from(slot)
                best = max(best, lsn) if magic == logs._MIRROR_MAGIC and owner == store else best
    finally:
        file.close()
    return best


def _segments(files: Files, found: Survey) -> Iterator[Segment]:
    """The segments of this store, by the LSN that their header says, or their name where the header is lost."""
    seen: set[int] = set()
    names = files.names()
    for name in names:
        match = logs._SEGMENT_NAME.fullmatch(name)
        if not match:
            continue
        file = files.open(name)
        try:
            size = file.size()
            raw = read_as_can_be(file, 0, min(SEGMENT_HEADER_BYTES, size))
        finally:
            file.close()
        header = corrected(raw, logs._SEGMENT_HEADER)
        segment = Segment(name, int(match.group(1), 16), size, header == raw[:SEGMENT_HEADER_BYTES])
        if header is not None:
            segment.epoch, owner, first_lsn = unsealed_head(
                header,
                logs._SEGMENT_HEADER,
                magic=logs._SEGMENT_MAGIC,
                newest=logs.SEGMENT_FORMAT,
                where=files.describe(name),
                file_format="log",
                what="segment",
            )
            if owner != found.store:
                found.foreign.append(name)
                found.losses.append(Loss(name, 0, size, "it belongs to another store", pieces=0))
                continue
            if first_lsn != segment.first_lsn:
                if segment_name(first_lsn) in names or first_lsn in seen:
                    found.foreign.append(name)
                    found.losses.append(Loss(name, 0, size, f"it is a copy of {segment_name(first_lsn)}", pieces=0))
                    continue
                segment.first_lsn, segment.damaged = first_lsn, True
                found.losses.append(Loss(name, 0, size, f"it was {segment_name(first_lsn)} before", pieces=0))
        if not segment.header_whole:
            segment.damaged = True
            found.losses.append(
                Loss(
                    name, 0, SEGMENT_HEADER_BYTES, "the header fails its checksum; its name says what it said", pieces=0
                )
            )
        seen.add(segment.first_lsn)
        yield segment


def _scan(files: Files, segment: Segment, bound: int | None, found: Survey) -> None:
    """Finds the whole frames of a segment; `bound`: the LSN with which the next segment begins."""
    file = files.open(segment.name)
    try:
        data = read_as_can_be(file, 0, segment.size)
    finally:
        file.close()
    position, next_lsn, synced = SEGMENT_HEADER_BYTES, segment.first_lsn, 0
    while position < len(data):
        rows, _, _ = scan_frames(data, position)
        begin, first = position, next_lsn
        for offset, length, lsn, frame_synced, epoch, _, _, _ in rows:
            if lsn != next_lsn or frame_synced >= lsn or (bound is not None and lsn >= bound):
                break
            next_lsn, synced, position = lsn + 1, max(synced, frame_synced), offset + length
            segment.epoch = max(segment.epoch, epoch)
        if position > begin:
            segment.stretches.append(Stretch(begin, position, first, next_lsn - 1))
        if not data[position:].strip(b"\0"):
            break
        again = _next_frame(data, position, next_lsn, synced, bound)
        if again is None:
            break
        position, next_lsn = again
    last = segment.stretches[-1] if segment.stretches else None
    segment.next_lsn = last.last_lsn + 1 if last is not None else segment.first_lsn
    segment.clean = not data[last.end if last is not None else SEGMENT_HEADER_BYTES :].strip(b"\0")
    found.known_lsn = max(found.known_lsn, synced)


def _next_frame(data: bytes, broken: int, next_lsn: int, synced: int, bound: int | None) -> tuple[int, int] | None:
    """Returns (byte, LSN) of the first whole frame after a broken one that is possible there: at the end of the broken
    one's length, or else the next one that is found."""
    if len(data) - broken >= _COVERED_FROM:
        length = int(_LENGTH.unpack_from(data, broken)[0])
        hop = broken + _COVERED_FROM + length
        if FRAME_HEADER_BYTES - _COVERED_FROM <= length <= FRAME_BYTES_MAX and hop < len(data):
            lsn = _plausible(data, hop, next_lsn + 1, next_lsn + 1, synced, bound)
            if lsn is not None:
                return hop, lsn
    at = broken + 1
    while at < len(data) and (at := find_frame(data, at)) >= 0:
        most = next_lsn + (at - broken) // FRAME_HEADER_BYTES
        lsn = _plausible(data, at, next_lsn + 1, most, synced, bound)
        if lsn is not None:
            return at, lsn
        at += 1
    return None


def _plausible(data: bytes, at: int, least: int, most: int, synced: int, bound: int | None) -> int | None:
    rows, _, _ = scan_frames(data, at, 1)
    if not rows:
        return None
    _, _, lsn, frame_synced, _, _, _, _ = rows[0]
    fits = least <= lsn <= most and synced <= frame_synced < lsn and (bound is None or lsn < bound)
    return lsn if fits else None


def _judge(segments: list[Segment], found: Survey) -> None:
    """Separates damage from a torn tail, and finds LSNs that are in no segment."""
    if not segments:
        if found.known_lsn > found.covered_lsn:
            _gap(found, found.covered_lsn + 1, found.known_lsn)
        found.segments = segments
        return
    tail = segments[-1]
    # Bytes that were not synced may be torn, in any order: the log ends at the first break above the sync point.
    for place, stretch in enumerate(tail.stretches):
        before = tail.stretches[place - 1].last_lsn if place else tail.first_lsn - 1
        if stretch.first_lsn > before + 1 and before + 1 > found.known_lsn:
            del tail.stretches[place:]
            tail.next_lsn = before + 1
            break
    first = segments[0].first_lsn
    if first > found.covered_lsn + 1 and (found.checkpoint is None or found.checkpoint.start_lsn is not None):
        found.begins_late = True
        found.losses.append(_missing(found.covered_lsn + 1, first - 1))
    for segment, follower in zip_longest(segments, segments[1:]):
        segment.until = follower.first_lsn - 1 if follower is not None else max(found.known_lsn, segment.next_lsn - 1)
        _losses_of(segment, follower, found)
    found.segments = segments


def _losses_of(segment: Segment, follower: Segment | None, found: Survey) -> None:
    expected, end = segment.first_lsn, SEGMENT_HEADER_BYTES
    for stretch in segment.stretches:
        if stretch.first_lsn > expected:
            _lost_frames(segment, end, stretch.begin, expected, stretch.first_lsn - 1, found)
        expected, end = stretch.last_lsn + 1, stretch.end
    if expected > segment.until:
        return
    if not segment.clean:
        _lost_frames(segment, end, max(segment.size, end), expected, segment.until, found)
    elif segment.until > found.covered_lsn:
        # Below the checkpoint segments are removed, and a crash may bring some of them back.
        _gap(found, expected, segment.until)
        segment.until = expected - 1
    else:
        segment.until = expected - 1


def _lost_frames(segment: Segment, begin: int, end: int, first: int, last: int, found: Survey) -> None:
    segment.damaged = True
    count = last - first + 1
    told = f"LSN {first}" if count == 1 else f"LSN {first} to {last}, {count:,} frames"
    found.losses.append(Loss(segment.name, begin, end, f"{told} cannot be read", first, last, count))


def _gap(found: Survey, first: int, last: int) -> None:
    found.gaps.append((first, last))
    found.losses.append(_missing(first, last))


def _missing(first: int, last: int) -> Loss:
    count = last - first + 1
    told = f"no segment contains LSN {first} to {last}, {count:,} frame{'s' if count != 1 else ''}"
    return Loss(segment_name(first), 0, 0, told, first, last, count)


@dataclass(frozen=True, slots=True)
class WholeFrame:
    """A frame that passes its checksum, and its bytes in the segment's file."""

    lsn: int
    kind: int
    codec: int
    payload: bytes
    segment: Segment
    begin: int
    end: int


def whole_frames(files: Files, found: Survey, after: int) -> Iterator[WholeFrame]:
    """Every whole frame with a higher LSN, in order."""
    for segment in found.segments:
        if segment.next_lsn <= after + 1:
            continue
        file = files.open(segment.name)
        try:
            for stretch in tuple(segment.stretches):
                data = read_as_can_be(file, stretch.begin, stretch.end)
                for offset, length, lsn, _, _, kind, _, codec in scan_frames(data)[0]:
                    if lsn > after:
                        payload = data[offset : offset + length]
                        begin = stretch.begin + offset - FRAME_HEADER_BYTES
                        yield WholeFrame(lsn, kind, codec, payload, segment, begin, stretch.begin + offset + length)
        finally:
            file.close()


def drop_frame(frame: WholeFrame, what: str) -> Loss:
    """A whole frame that cannot be applied counts as lost: its segment is mended with a filler in its place."""
    segment = frame.segment
    segment.damaged = True
    kept: list[Stretch] = []
    for stretch in segment.stretches:
        if not stretch.first_lsn <= frame.lsn <= stretch.last_lsn:
            kept.append(stretch)
            continue
        if stretch.first_lsn < frame.lsn:
            kept.append(Stretch(stretch.begin, frame.begin, stretch.first_lsn, frame.lsn - 1))
        if frame.lsn < stretch.last_lsn:
            kept.append(Stretch(frame.end, stretch.end, frame.lsn + 1, stretch.last_lsn))
    segment.stretches = kept
    return Loss(segment.name, frame.begin, frame.end, f"LSN {frame.lsn} {what}", frame.lsn, frame.lsn, 1)


# -- mending ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mended:
    """The result of a repair. folder: where the damaged files are now; "" when there was nothing to do."""

    folder: str = ""
    kept: tuple[str, ...] = ()
    """Files of which that folder has what they were before."""
    losses: tuple[Loss, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


def mend(files: MendableFiles, found: Survey, filler: Filler, folder: str | None = None) -> Mended:
    """Writes the damaged files anew from their whole parts. Call it under the directory's lock.

    After a crash in between, run it again. folder: where the old files are kept, by default a new one.
    Raises StoreFullError, StoreFailedError; then each file is unchanged or repaired.
    """
    if found.whole:
        return Mended()
    if folder is None:
        folder = new_folder(files.names())
    kept, more = mend_ledger(files, found, folder)
    kept += mend_checkpoint(files, found, folder)
    kept += mend_log(files, found, filler, folder)
    mended = Mended(folder, tuple(kept), (*found.losses, *more))
    report(files, mended, {})
    return mended


def mend_ledger(files: MendableFiles, found: Survey, folder: str) -> tuple[list[str], list[Loss]]:
    """Writes runs without their damaged blocks. Returns the files kept in the folder, and other losses."""
    kept: list[str] = []
    losses: list[Loss] = []
    for family in (LEDGER, COLD):
        runs = [run for run in found.runs if family_of(run.name) == family]
        if any(run.damaged for run in runs):
            names, more = mend_runs(files, found.store, runs, folder)
            kept += names
            losses += more
    return kept, losses


def mend_checkpoint(files: MendableFiles, found: Survey, folder: str) -> list[str]:
    """Writes a checkpoint of the whole ranges, if the newest one is damaged or the log begins after it."""
    if not found.begins_late and (found.checkpoint is None or not found.checkpoint.damaged):
        return []
    kept = keep_checkpoints(files, folder)
    _write_checkpoint(files, found)
    return kept


def checkpoint_numbers(files: Files) -> list[int]:
    """The numbers of all checkpoints that are there, ascending."""
    return ckpt._numbers(files)


def keep_checkpoints(files: MendableFiles, folder: str) -> list[str]:
    """Keeps all checkpoints as they are in the folder: the next finished checkpoint removes them."""
    names = [checkpoint_name(number) for number in ckpt._numbers(files)]
    for name in names:
        files.keep_copy(name, folder)
    return names


def mend_log(files: MendableFiles, found: Survey, filler: Filler, folder: str) -> list[str]:
    """Writes segments of all whole frames, with fillers between them, and without foreign files."""
    kept = []
    for name in found.foreign:
        if logs._SEGMENT_NAME.fullmatch(name):
            files.keep_copy(name, folder)
            files.remove(name)
            kept.append(name)
    for first, last in found.gaps:
        _write_segment(files, found, Segment(segment_name(first), first, 0, True, until=last, next_lsn=first), filler)
    for segment in found.segments:
        if segment.damaged:
            files.keep_copy(segment.name, folder)
            kept.append(segment.name)
            _write_segment(files, found, segment, filler)
            if segment.name != segment.right_name:
                files.remove(segment.name)
    files.sync_directory()
    return kept


def report(files: MendableFiles, mended: Mended, facts: Mapping[str, object]) -> None:
    """Writes report.json next to the damaged files. Raises StoreFullError, StoreFailedError."""
    told = {**facts, "kept": list(mended.kept), "lost": [asdict(loss) for loss in mended.losses]}
    files.put_copy(REPORT_NAME, mended.folder, json.dumps(told, indent=2).encode("ascii") + b"\n")


def new_folder(names: Sequence[str]) -> str:
    """The name of a folder for damaged files that is not there yet."""
    taken = [int(match.group(1)) for name in names if (match := re.fullmatch(DAMAGED_PREFIX + r"(\d{1,9})", name))]
    return f"{DAMAGED_PREFIX}{max(taken, default=0) + 1}"


def _write_segment(files: Files, found: Survey, segment: Segment, filler: Filler) -> None:
    """A segment of the frames that are whole, with fillers for those that are not, under its own name."""
    header = logs._SEGMENT_HEADER.pack(
        logs._SEGMENT_MAGIC, logs.SEGMENT_FORMAT, segment.epoch, found.store, segment.first_lsn
    )
    pieces = _segment_pieces(files, segment, sealed(header), filler)
    replace_in_pieces(files, segment.right_name, _padded(pieces, segment.size))


def _segment_pieces(files: Files, segment: Segment, header: bytes, filler: Filler) -> Iterator[bytes]:
    yield header
    expected = segment.first_lsn
    file = files.open(segment.name) if segment.stretches else None
    try:
        for stretch in segment.stretches:
            yield from _fillers(expected, stretch.first_lsn - 1, segment.epoch, filler)
            assert file is not None
            yield read_as_can_be(file, stretch.begin, stretch.end)
            expected = stretch.last_lsn + 1
        yield from _fillers(expected, segment.until, segment.epoch, filler)
    finally:
        if file is not None:
            file.close()


def _fillers(first: int, last: int, epoch: int, filler: Filler) -> Iterator[bytes]:
    """Frames that say nothing; each says that the one before was synced, as the log's witnesses do."""
    step = LOG_READ_BYTES // (FRAME_HEADER_BYTES + len(filler.payload)) + 1
    for begin in range(first, last + 1, step):
        rows = [
            (lsn, lsn - 1, epoch, filler.kind, filler.version, filler.codec, filler.payload)
            for lsn in range(begin, min(begin + step, last + 1))
        ]
        yield pack_frames(rows)


def _padded(pieces: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Yields the pieces, and zeros after them up to `size`."""
    position = 0
    for piece in pieces:
        yield piece
        position += len(piece)
    while position < size:
        piece = bytes(min(size - position, LOG_READ_BYTES))
        yield piece
        position += len(piece)


def _write_checkpoint(files: Files, found: Survey) -> None:
    """The whole ranges as a checkpoint of the next number; older ones are removed when it is there."""
    checkpoint = found.checkpoint or CheckpointFound(0, None, 0)
    start = checkpoint.start_lsn
    if start is None or found.begins_late:
        # Facts are absolute: replaying more of them than are missing ends in the same state.
        start = found.segments[0].first_lsn - 1 if found.segments else checkpoint.lsn
    writer = CheckpointWriter(files, store=found.store, number=checkpoint.number + 1, start_lsn=start)
    try:
        for piece in whole_ranges(files, checkpoint):
            writer.add(*piece)
        writer.finish(max(checkpoint.lsn, start))
    except BaseException:
        writer.abandon()
        raise
