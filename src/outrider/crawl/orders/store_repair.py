"""Verify and repair of a whole store: a survey of its files, their facts, and a new checkpoint of the whole ones."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from outrider.clock import Instant, instant, rfc3339, wall
from outrider.cluster.description import is_cluster_file
from outrider.crawl.output import worker_folder
from outrider.crawl.output.object_list import ObjectList
from outrider.crawl.output.output import ARCHIVE_WRITER, FILES, ITEMS, PAGES, items_of
from outrider.crawl.output.output_recovery import (
    archive_end,
    cut_short,
    judge_of,
    line_file_end,
    packed_watermark,
    unpacked_watermark,
)
from outrider.crawl.questions.cluster_queries import verify_cluster
from outrider.crawl.questions.crawl_queries import ask_owner
from outrider.crawl.setup.directory import kept_settings, store_of
from outrider.crawl.setup.options import from_environment, resolved
from outrider.engine import Frontier, Recovered
from outrider.errors import (
    DamagedStoreError,
    ForeignStoreError,
    NoStoreError,
    StoreError,
    StoreInUseError,
    UnknownOutputError,
)
from outrider.frontier.format.facts import (
    FRAME_KIND,
    STREAMS,
    Fact,
    columns_of,
    decode,
    encode,
    encode_in_pieces,
    unpacked,
)
from outrider.frontier.format.page_lines import completed
from outrider.frontier.state.cold import ColdHosts
from outrider.frontier.state.salvage import Salvage, Salvaged, empty_payload, names_of_runs
from outrider.frontier.state.tables import COPY_ROWS, RUNS, Tables
from outrider.frontier.stores.ledger import Ledger
from outrider.journey import Verification
from outrider.kernels import FRAME_BYTES_MAX
from outrider.limits import CHECKPOINT_PAYLOAD_BYTES_MAX, DELAY_SECONDS_FLOOR, OWN_SLOT
from outrider.storage.checkpoint import CheckpointWriter, checkpoint_name, remove_schedules
from outrider.storage.files import Directory, replace
from outrider.storage.losses import Loss
from outrider.storage.manifest import MANIFEST_NAME, Manifest
from outrider.storage.object_store import ObjectStore, StoredObject
from outrider.storage.repair import (
    Filler,
    Mended,
    Survey,
    WholeFrame,
    checkpoint_numbers,
    drop_frame,
    keep_checkpoints,
    manifest_of,
    mend_ledger,
    mend_log,
    new_folder,
    report,
    survey,
    survey_runs,
    whole_frames,
    whole_ranges,
)
from outrider.storage.runs import COLD, LEDGER, family_of

_TAIL_BYTES_MIN = 1 << 20  # bytes at the end of a line file that are searched, even for a short log
_NOTHING = Filler(FRAME_KIND, 1, 0, empty_payload(0))


@dataclass(frozen=True, slots=True)
class Verified:
    """The findings of a check: damaged places, the recount of a store that can be opened, and why its opening would
    refuse the output in the same directory."""

    damage: tuple[Loss, ...] = ()
    found: Verification | None = None
    unknown: UnknownOutputError | None = None

    @property
    def ok(self) -> bool:
        """Whether every file is whole and every count is correct."""
        return not self.damage and self.unknown is None and self.found is not None and self.found.ok


@dataclass(frozen=True, slots=True)
class Repaired:
    """The result of a repair: the folder of the store and the files kept in it, the losses, and the facts made
    again."""

    folder: str = ""
    kept: tuple[str, ...] = ()
    losses: tuple[Loss, ...] = ()
    salvaged: Salvaged = field(default_factory=Salvaged)

    def as_dict(self) -> dict[str, Any]:
        """As JSON values."""
        found = asdict(self)
        return {**found, "losses": list(found["losses"]), "kept": list(found["kept"])}


def verify(path: str) -> Verified:
    """Checks every checksum of a store, recounts the store, and compares the length of its crawl's output with it, and
    the list of uploaded files with their object storage. Changes nothing. A running crawl recounts itself, and so do
    the nodes of the cluster in a file.

    Raises StoreError if it cannot be read and the reason is unknown: StoreInUseError, ForeignStoreError.
    """
    if is_cluster_file(path):
        return Verified((), verify_cluster(path))
    if worker_folder.is_worker(path):
        books = worker_folder.surveyed(path)
        return Verified(books.damage, Verification(not books.problems, books.problems, books.counts), books.unknown)
    store = store_of(path)
    try:
        verified = _verified(store, _crawl_of(path, store))
    except StoreInUseError as owned:
        found = ask_owner(path, owned, "verify")
        verified = Verified((), Verification(bool(found["ok"]), tuple(found["problems"]), dict(found["counts"])))
    if store == path:
        return verified
    return Verified((*verified.damage, *_lost_objects(path)), verified.found, verified.unknown)


def _lost_objects(path: str) -> Iterator[Loss]:
    """Yields the listed objects that are missing or changed in their store. Raises SettingsError and UnreachableError
    for a store that cannot be asked."""
    stores: dict[str, ObjectStore] = {}
    for one in ObjectList(path).objects.values():
        store = stores.get(one.store) or stores.setdefault(one.store, ObjectStore(one.store))
        if store.find(one.name) is None:
            yield Loss(one.file, 0, 0, f"{store.key(one.name)} is missing in {one.store}; upload it from a copy")
        elif not store.is_equal(one.name, StoredObject(one.bytes, one.md5)):
            yield Loss(one.file, 0, 0, f"{store.key(one.name)} in {one.store} is not the object that was uploaded")


def _crawl_of(path: str, store: str) -> str | None:
    """Returns the directory of the crawl with this store, None for the store of a program."""
    return path if store != path else None


def _verified(store: str, crawl: str | None) -> Verified:
    with _held(store, read_only=True) as files:
        losses: list[Loss] = []
        data = _manifest(files, losses)
        if data is None:
            losses.append(Loss(MANIFEST_NAME, 0, 0, "it fails its checksum; restore a copy of it"))
        elif not losses:
            manifest = Manifest.load(files)
            assert manifest is not None
            losses = _survey(files, manifest).losses
    if losses:
        return Verified(tuple(losses))
    unknown: list[UnknownOutputError] = []

    def judge(known: Recovered) -> None:
        if crawl is None:
            return
        losses.extend(cut_short(crawl, known))
        try:
            judge_of(crawl)(known)
        except UnknownOutputError as error:
            unknown.append(error)

    try:
        frontier = Frontier.look(store, judge=judge)
    except DamagedStoreError as error:
        return Verified((Loss(store, 0, 0, error.facts),))
    try:
        return Verified(tuple(losses), frontier.verify(), next(iter(unknown), None))
    finally:
        frontier.close()


def repair(path: str, *, now: Instant | None = None) -> Repaired:
    """Repairs a store without an owner so that it opens. The whole parts stay, and a folder of the store keeps the
    replaced files. now: from this instant hosts rest one whole delay (default: the wall clock's now), because a visit
    may be lost. Raises StoreError; the next attempt repairs the rest. Raises UnknownOutputError for a store that is
    older than its output: nothing in it is damaged.
    """
    if worker_folder.is_worker(path):
        return Repaired(*worker_folder.mend(path))
    store = store_of(path)
    crawl = _crawl_of(path, store)
    verified = _verified(store, crawl)
    if verified.ok:
        return Repaired()
    if verified.unknown is not None:
        raise verified.unknown
    delay = _delay_of(path)
    with _held(store, read_only=False) as files:
        losses: list[Loss] = []
        data = _manifest(files, losses)
        if data is None:
            raise DamagedStoreError(
                f"{files.describe(MANIFEST_NAME)} has more than one wrong byte, and it contains the store's keys; "
                "restore a copy of it"
            )
        folder = new_folder(files.names())
        kept: list[str] = []
        if losses:
            files.keep_copy(MANIFEST_NAME, folder)
            kept.append(MANIFEST_NAME)
            replace(files, MANIFEST_NAME, data)
        manifest = Manifest.load(files)
        assert manifest is not None
        found = _survey(files, manifest)
        losses += found.losses
        facts = {"at": rfc3339(wall()), "store": manifest.store}
        report(files, Mended(folder, tuple(kept), tuple(losses)), facts)
        # This order survives a kill in between. After the new checkpoint no lost part is needed any more. Until then
        # the log stays as it is, and a damaged log refuses to open.
        # A kept schedule may name lost records. It is removed first, because the checkpoint that it belongs to counts
        # until the new one is complete.
        remove_schedules(files)
        names, more = mend_ledger(files, found, folder)
        kept += names
        losses += more
        kept += keep_checkpoints(files, folder)
        until = (wall() if now is None else now) + instant(delay)
        salvaged = _salvage(files, manifest, found, until, crawl, losses)
        kept += mend_log(files, found, _NOTHING, folder)
        done = Repaired(folder, tuple(kept), tuple(losses), salvaged)
        report(files, Mended(folder, done.kept, done.losses), facts | {"salvaged": asdict(salvaged)})
        return done


@contextmanager
def _held(store: str, *, read_only: bool) -> Iterator[Directory]:
    try:
        files = Directory(store, create=False, read_only=read_only)
    except FileNotFoundError as error:
        raise NoStoreError(f"{error.filename} does not exist; name the directory of a crawl") from None
    try:
        try:
            files.lock()
        except StoreInUseError:
            raise
        except StoreError:
            if not read_only:
                raise
        yield files
    finally:
        files.close()


def _manifest(files: Directory, losses: list[Loss]) -> bytes | None:
    try:
        return manifest_of(files, losses)
    except FileNotFoundError:
        raise ForeignStoreError(f"{files.describe()} has no {MANIFEST_NAME}; restore a copy of it") from None


def _survey(files: Directory, manifest: Manifest) -> Survey:
    found = survey(files, manifest.store_bytes)
    checkpoint = found.checkpoint
    ranges = (
        [] if checkpoint is None else [(one[1], one[4]) for one in whole_ranges(files, checkpoint) if one[1] == RUNS]
    )
    names = names_of_runs(ranges)
    if names is None and checkpoint is not None and not checkpoint.damaged:
        names = []
    survey_runs(files, found, names)
    return found


def _salvage(
    files: Directory, manifest: Manifest, found: Survey, until: Instant, crawl: str | None, losses: list[Loss]
) -> Salvaged:
    """Writes a checkpoint of all facts in whole files, after the last known frame."""
    names = [run.name for run in found.runs]
    ledger = Ledger.open(files, store=found.store, names=[name for name in names if family_of(name) == LEDGER])
    cold = ColdHosts.open(files, store=found.store, names=[name for name in names if family_of(name) == COLD])
    tables = Tables(ledger, cold=cold, fingerprint_key=manifest.fingerprint_key_bytes, scratch=None)
    checkpoint = found.checkpoint
    start = checkpoint.start_lsn if checkpoint is not None else 0
    try:
        salvage = Salvage(tables)
        if checkpoint is not None:
            name = checkpoint_name(checkpoint.number)
            for _, section, _, _, payload in whole_ranges(files, checkpoint):
                why = salvage.take_range(section, payload)
                if why:
                    losses.append(Loss(name, 0, 0, f"a range of rows cannot be applied ({why})", pieces=1))
        salvage.meet_cold()
        for frame in _frames(files, found, start or 0):
            why = _apply_frame(frame, salvage)
            if why:
                losses.append(drop_frame(frame, f"cannot be applied, and was left out ({why})"))
        epoch = max([0, *(segment.epoch for segment in found.segments)])
        salvage.finish(epoch=epoch, rest_until=until, behind_checkpoint=start != 0 or found.begins_late)
        if crawl is not None:
            _keep_output(crawl, files, found, tables, losses)
        _write(files, found, tables)
    finally:
        tables.close()
        cold.close()
        ledger.close()
    return salvage.found


def _frames(files: Directory, found: Survey, after: int) -> Iterator[WholeFrame]:
    """Yields the whole frames with a higher LSN. Raises ForeignStoreError for frames without facts."""
    for frame in whole_frames(files, found, after):
        if frame.kind != FRAME_KIND:
            raise ForeignStoreError(
                f"LSN {frame.lsn} has frame kind {frame.kind}, made by another release; open it with that release"
            )
        yield frame


def _payload(frame: WholeFrame) -> bytes:
    return unpacked(frame.payload, frame.codec, bytes_max=FRAME_BYTES_MAX)


def _apply_frame(frame: WholeFrame, salvage: Salvage) -> str:
    """Applies the facts of a frame. Returns why they cannot be applied, "" if they can."""
    try:
        payload = _payload(frame)
    except DamagedStoreError as error:
        return error.facts
    return salvage.take(payload)


def _keep_output(crawl: str, files: Directory, found: Survey, tables: Tables, losses: list[Loss]) -> None:
    """Notes the true ends of archive and line files in the tables, so that opening cuts nothing that is whole."""
    tail = 2 * sum(segment.size for segment in found.segments) + _TAIL_BYTES_MIN
    for stream in FILES:
        noted = tables.registry.projections.get(stream, (0, 0))
        lines = _lines(files, found, STREAMS.index(PAGES if stream == ITEMS else stream), noted[1])
        place, loss = line_file_end(crawl, stream, noted, items_of(lines) if stream == ITEMS else lines, tail)
        tables.apply(Fact.PROJECTION, columns_of([(OWN_SLOT, stream, *place)]))
        losses += [loss] if loss is not None else []
    known = tables.registry.watermarks.get(ARCHIVE_WRITER)
    end, loss = archive_end(crawl, unpacked_watermark(known) if known is not None else None)
    if end is not None:
        tables.apply(Fact.WATERMARK, columns_of([(OWN_SLOT, ARCHIVE_WRITER, packed_watermark(end))]))
    losses += [loss] if loss is not None else []


def _lines(files: Directory, found: Survey, number: int, after: int) -> Iterator[tuple[int, bytes]]:
    """Output lines of a stream by its number, as (LSN, line)."""
    for frame in _frames(files, found, after):
        for kind, values in decode(_payload(frame)):
            if kind == Fact.LINE:
                _, _, streams, new_links, texts = values
                for stream, new, text in zip(streams.tolist(), new_links.tolist(), texts, strict=True):
                    if stream == number:
                        yield frame.lsn, completed(text, new)


def _write(files: Directory, found: Survey, tables: Tables) -> None:
    """Writes the tables as one checkpoint of one LSN, with the ledger in runs."""
    lsn = found.last_lsn
    number = max([0, *checkpoint_numbers(files)]) + 1
    writer = CheckpointWriter(files, store=found.store, number=number, start_lsn=lsn)
    try:
        for section, rows in tables.sections():
            step = COPY_ROWS[section]
            for first in range(0, rows, step):
                blocks = tables.copy(section, first, min(first + step, rows))
                for payload in encode_in_pieces(tables.now, blocks, CHECKPOINT_PAYLOAD_BYTES_MAX):
                    writer.add(OWN_SLOT, section, first, lsn, payload)
        tables.urls.ledger.freeze()
        tables.urls.ledger.write_frozen()
        names = tables.urls.ledger.names()
        if names:
            writer.add(OWN_SLOT, RUNS, 0, lsn, encode(0, [(Fact.RUNS, [[OWN_SLOT] * len(names), names])]))
        writer.finish(lsn)
    except BaseException:
        writer.abandon()
        raise


def _delay_of(path: str) -> float:
    kept = kept_settings(path) if os.path.isdir(path) else None
    if kept is None or not kept.options:
        return DELAY_SECONDS_FLOOR
    return resolved({}, from_environment(os.environ), kept.options, path).delay
