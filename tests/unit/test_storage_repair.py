"""Damage of every kind in log and checkpoint: whole parts stay, lost parts are named, and no bytes are thrown away."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct

import numpy as np
import pytest

from crash.directories import Killed, Killer
from limiting import set_limits
from outrider.errors import DamagedStoreError, ForeignStoreError
from outrider.frontier.format.card_columns import Cards
from outrider.frontier.stores.ledger import Ledger
from outrider.kernels import pack_frames
from outrider.kernels.card_layout import HEAD
from outrider.storage.checkpoint import CheckpointWriter, newest_checkpoint
from outrider.storage.files import Directory
from outrider.storage.log import Log
from outrider.storage.losses import corrected
from outrider.storage.manifest import Manifest
from outrider.storage.repair import (
    Filler,
    Survey,
    manifest_of,
    mend,
    survey,
    survey_runs,
    whole_frames,
    whole_ranges,
)
from outrider.storage.run_repair import survey_run
from outrider.storage.runs import Run, run_name
from outrider.storage.sealed import check_store, sealed

STORE = bytes(range(16))
FILLER = Filler(9, 1, 0, b"nothing.")
FRAMES = 300
RANGES = 40
COVERED = 60
SEGMENT = 4_096


def payload(lsn):
    return b"%06d " % lsn + bytes((lsn * 7 + place) % 256 for place in range(20 + lsn % 90))


def a_range(number):
    return (
        number % 5,
        1,
        number * 10,
        COVERED + number % 3,
        b"r%05d" % number + bytes(number % 256 for _ in range(200)),
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A closed log of several segments, all synced, with a checkpoint at LSN 60."""
    folder = tmp_path_factory.mktemp("made") / "store"
    files = Directory(folder)
    log = Log.open(files, store=STORE, epoch=1, segment_bytes_first=SEGMENT, segment_bytes_max=SEGMENT)
    for lsn in range(1, FRAMES + 1):
        assert lsn == log.append(1, payload(lsn))
        if lsn % 5 == 0:
            log.sync()
    log.sync()
    writer = CheckpointWriter(files, store=STORE, number=3, start_lsn=COVERED)
    for number in range(RANGES):
        writer.add(*a_range(number))
    writer.finish(COVERED + 2)
    log.close()
    files.close()
    return folder


@pytest.fixture
def store(made, tmp_path):
    shutil.copytree(made, tmp_path / "store")
    return tmp_path / "store"


def segments(store):
    return sorted(store.glob("log-*.seg"))


def flip(path, at, with_=0xFF):
    data = bytearray(path.read_bytes())
    data[at] ^= with_
    path.write_bytes(data)


def place_of(store, lsn):
    """(file, first byte, length) of a frame."""
    frame = pack_frames([(lsn, 0, 0, 0, 0, 0, payload(lsn))])[31:]
    for path in segments(store):
        at = path.read_bytes().find(frame)
        if at >= 0:
            return path, at - 31, len(frame) + 31
    raise AssertionError(lsn)


def opened(store, after=None):
    """Returns (frames by LSN, ranges) as the store's own readers see them. Raises their errors."""
    files = Directory(store)
    try:
        checkpoint = newest_checkpoint(files, store=STORE)
        start, synced = (checkpoint.start_lsn, checkpoint.lsn) if checkpoint else (0, 0)
        log = Log.open(files, store=STORE, epoch=2, after=start, synced=synced)
        frames = {frame.lsn: frame for frame in log.replay(start if after is None else after)}
        log.close()
        return frames, list(checkpoint.ranges()) if checkpoint else []
    finally:
        files.close()


def repaired(store):
    """Repairs, and returns the report."""
    files = Directory(store)
    files.lock()
    try:
        found = survey(files, STORE)
        return found, mend(files, found, FILLER)
    finally:
        files.close()


def lost_frames(found):
    return sorted(lsn for loss in found.losses if loss.first_lsn for lsn in range(loss.first_lsn, loss.last_lsn + 1))


def holds(store, lost=(), lost_ranges=(), first=COVERED + 1):
    """Checks that everything except the named losses is there, and that every lost frame has its filler."""
    frames, ranges = opened(store)
    expected = {lsn: FILLER.payload if lsn in lost else payload(lsn) for lsn in range(first, FRAMES + 1)}
    assert expected == {lsn: frame.payload for lsn, frame in frames.items() if lsn >= first}
    assert [a_range(number) for number in range(RANGES) if number not in lost_ranges] == ranges


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.name != "lock"}


def test_a_whole_store_is_not_changed(store):
    before = contents(store)
    found, mended = repaired(store)
    assert (True, "", before) == (found.whole, mended.folder, contents(store))


def test_every_frame_can_be_read_without_the_log(store):
    files = Directory(store)
    frames = list(whole_frames(files, survey(files, STORE), 250))
    assert [(lsn, payload(lsn)) for lsn in range(251, FRAMES + 1)] == [(frame.lsn, frame.payload) for frame in frames]


@pytest.mark.parametrize("at", [0, 2, 4, 9, 17, 25, 28, 31, 40])
def test_a_damaged_byte_of_a_frame_loses_only_that_frame(store, at):
    path, begin, length = place_of(store, 200)
    flip(path, begin + at)
    with pytest.raises(DamagedStoreError):
        opened(store)
    before = path.read_bytes()
    found, mended = repaired(store)
    assert ([200], 1) == (lost_frames(found), len(found.losses))
    assert (path.name, begin, begin + length) == (found.losses[0].file, found.losses[0].begin, found.losses[0].end)
    holds(store, lost=[200])
    assert ("damaged-1", (path.name,)) == (mended.folder, mended.kept)
    assert before == (store / "damaged-1" / path.name).read_bytes()


def test_the_report_names_what_was_lost(store):
    path, begin, length = place_of(store, 200)
    flip(path, begin + 40)
    repaired(store)
    report = json.loads((store / "damaged-1" / "report.json").read_text())
    assert [path.name] == report["kept"]
    (loss,) = report["lost"]
    assert (path.name, begin, begin + length, 200, 200, 1) == (
        loss["file"], loss["begin"], loss["end"], loss["first_lsn"], loss["last_lsn"], loss["pieces"],
    )  # fmt: skip


def test_damage_at_several_places_costs_only_the_frames_there(store):
    for lsn in (70, 71, 120, 200, 299):
        path, begin, _ = place_of(store, lsn)
        flip(path, begin + 33)
    found, _ = repaired(store)
    assert [70, 71, 120, 200, 299] == lost_frames(found)
    holds(store, lost=[70, 71, 120, 200, 299])


def test_zeros_over_some_frames_cost_only_those_frames(store):
    path, begin, _ = place_of(store, 200)
    data = bytearray(path.read_bytes())
    data[begin + 50 : begin + 400] = bytes(350)
    path.write_bytes(data)
    found, _ = repaired(store)
    lost = lost_frames(found)
    assert (200, list(range(200, lost[-1] + 1))) == (lost[0], lost)
    assert len(lost) <= 6
    holds(store, lost=lost)


def test_a_missing_segment_is_filled(store):
    middle = segments(store)[4]
    first = int(middle.stem[4:], 16)
    last = int(segments(store)[5].stem[4:], 16) - 1
    middle.unlink()
    found, mended = repaired(store)
    assert (list(range(first, last + 1)), ()) == (lost_frames(found), mended.kept)
    holds(store, lost=range(first, last + 1))


def test_a_segment_that_was_cut_loses_its_end(store):
    path, begin, _ = place_of(store, 200)
    os.truncate(path, begin + 10)
    found, _ = repaired(store)
    lost = lost_frames(found)
    assert 200 == lost[0]
    holds(store, lost=lost)


def test_the_loss_of_the_last_segment_is_known_from_the_mirror(store):
    last = segments(store)[-1]
    first = int(last.stem[4:], 16)
    last.unlink()
    found, _ = repaired(store)
    assert list(range(first, FRAMES + 1)) == lost_frames(found)
    holds(store, lost=range(first, FRAMES + 1))


def test_all_segments_gone_leaves_the_checkpoint(store):
    for path in segments(store):
        path.unlink()
    found, _ = repaired(store)
    assert list(range(COVERED + 1, FRAMES + 1)) == lost_frames(found)
    holds(store, lost=range(COVERED + 1, FRAMES + 1))


def test_a_header_is_written_again_from_the_name(store):
    for at in (0, 5, 9, 20, 35, 61):
        path = segments(store)[5]
        flip(path, at)
        flip(path, at + 1)
        found, _ = repaired(store)
        assert ([], 1) == (lost_frames(found), len(found.losses))
        holds(store)


def test_a_renamed_segment_gets_its_old_name(store):
    path = segments(store)[5]
    path.rename(store / "log-00000000000fffff.seg")
    found, mended = repaired(store)
    assert ([], ("log-00000000000fffff.seg",)) == (lost_frames(found), mended.kept)
    assert not (store / "log-00000000000fffff.seg").exists()
    holds(store)


def test_a_segment_of_another_store_is_moved_aside(store, tmp_path):
    files = Directory(tmp_path / "other")
    Log.open(files, store=bytes(16), epoch=1, segment_bytes_first=SEGMENT, segment_bytes_max=SEGMENT).close()
    shutil.copy(tmp_path / "other" / "log-0000000000000001.seg", store / "log-0000000000000fff.seg")
    with pytest.raises(DamagedStoreError):
        opened(store)
    found, mended = repaired(store)
    assert ([], ("log-0000000000000fff.seg",)) == (lost_frames(found), mended.kept)
    holds(store)


def test_a_torn_tail_is_not_a_loss(made, tmp_path):
    """The log itself cuts bytes that were never synced."""
    shutil.copytree(made, tmp_path / "store")
    files = Directory(tmp_path / "store")
    log = Log.open(files, store=STORE, epoch=2, after=COVERED)
    log.append(1, b"never answered")
    log._mirror = None
    log.close()
    files.close()
    path = segments(tmp_path / "store")[-1]
    at = path.read_bytes().find(b"never answered")
    flip(path, at)
    before = contents(tmp_path / "store")
    found, _ = repaired(tmp_path / "store")
    assert (True, before) == (found.whole, contents(tmp_path / "store"))
    holds(tmp_path / "store")


def test_a_frame_inside_a_page_is_not_read_as_a_frame(made, tmp_path):
    """The author of a page can put a whole frame into it. After damage it must not be found in place of ours."""
    files = Directory(tmp_path / "store")
    log = Log.open(files, store=STORE, epoch=1, segment_bytes_first=SEGMENT, segment_bytes_max=SEGMENT)
    for lsn in range(1, 8):
        planted = b"".join(
            pack_frames([(guess, synced, 1, 1, 1, 0, b"planted")])
            for guess in (999, 1, 2)
            for synced in (0, 998)
            if synced < guess
        )
        log.append(1, planted if lsn == 4 else payload(lsn))
        log.sync()
    log.close()
    files.close()
    path = segments(tmp_path / "store")[0]
    begin = path.read_bytes().find(planted) - 31
    for at in (0, 1, 2, 3):  # the length, so that only a search can continue
        flip(path, begin + at, 0x55)
    found, _ = repaired(tmp_path / "store")
    assert [4] == lost_frames(found)
    assert [payload(lsn) if lsn != 4 else FILLER.payload for lsn in range(1, 8)] == [
        frame.payload for frame in opened(tmp_path / "store", 0)[0].values()
    ]


def test_a_log_of_a_newer_format_is_refused_and_not_changed(store):
    path = segments(store)[-1]
    files = Directory(store)
    data = bytearray(path.read_bytes())
    data[8] = 2
    from outrider.storage.sealed import sealed

    data[:64] = sealed(bytes(data[:60]))
    path.write_bytes(data)
    before = contents(store)
    with pytest.raises(ForeignStoreError):
        survey(files, STORE)
    assert before == contents(store)


# -- checkpoints


def the_checkpoint(store):
    (path,) = store.glob("checkpoint-*.ckpt")
    return path


def range_at(store, number):
    return the_checkpoint(store).read_bytes().find(b"r%05d" % number) - 44


@pytest.mark.parametrize("at", [0, 4, 8, 12, 16, 24, 32, 40, 44, 100])
def test_a_damaged_byte_of_a_range_loses_only_that_range(store, at):
    flip(the_checkpoint(store), range_at(store, 17) + at)
    with pytest.raises(DamagedStoreError):
        opened(store)
    found, mended = repaired(store)
    assert ([], 1, 1) == (lost_frames(found), len(found.losses), found.losses[0].pieces)
    assert ("checkpoint-0000000000000003.ckpt",) == mended.kept
    holds(store, lost_ranges=[17])


def test_the_first_and_the_last_range_can_be_lost_too(store):
    for number in (0, RANGES - 1):
        flip(the_checkpoint(store), range_at(store, number) + 50)
    found, _ = repaired(store)
    assert [1, 1] == [loss.pieces for loss in found.losses]
    holds(store, lost_ranges=[0, RANGES - 1])


def test_a_wrong_byte_in_a_checkpoints_header_or_footer_is_corrected(store):
    flip(the_checkpoint(store), 41)
    flip(the_checkpoint(store), the_checkpoint(store).stat().st_size - 10)
    found, _ = repaired(store)
    assert [0, 0] == [loss.pieces for loss in found.losses]
    holds(store)


def test_a_checkpoint_that_was_cut_keeps_its_beginning(store):
    os.truncate(the_checkpoint(store), range_at(store, 30) + 20)
    found, _ = repaired(store)
    assert [] == lost_frames(found)
    holds(store, lost_ranges=range(30, RANGES))


def test_without_its_header_the_whole_log_is_replayed(store):
    path = the_checkpoint(store)
    data = path.read_bytes()
    path.write_bytes(bytes(64) + data[64:])
    found, _ = repaired(store)
    assert found.checkpoint.start_lsn is None
    frames, ranges = opened(store)
    assert (list(range(1, FRAMES + 1)), RANGES) == (list(frames), len(ranges))


def test_a_missing_checkpoint_is_found_by_the_first_lsn_of_the_log(store):
    the_checkpoint(store).unlink()
    segments(store)[0].unlink()
    first = int(segments(store)[0].stem[4:], 16)
    with pytest.raises(DamagedStoreError):
        opened(store)
    found, _ = repaired(store)
    assert list(range(1, first)) == lost_frames(found)
    frames, ranges = opened(store)
    assert (list(range(first, FRAMES + 1)), []) == (list(frames), ranges)


def test_a_range_inside_a_page_is_not_read_as_a_range(store):
    files = Directory(store)
    planted = bytearray()
    for place in (0, 3, 999):
        writer = CheckpointWriter(Directory(store.parent / "other"), store=STORE, number=1, start_lsn=0)
        writer._ranges = place
        writer.add(1, 1, 1, 1, b"planted")
        planted += bytes(writer._buffer[64:])
        writer.abandon()
    writer = CheckpointWriter(files, store=STORE, number=4, start_lsn=COVERED)
    for number in range(6):
        writer.add(*(a_range(number)[:4]), bytes(planted) if number == 3 else a_range(number)[4])
    writer.finish(COVERED + 2)
    files.close()
    begin = the_checkpoint(store).read_bytes().find(bytes(planted)) - 44
    flip(the_checkpoint(store), begin + 4)
    flip(the_checkpoint(store), begin + 6)
    repaired(store)
    assert [a_range(number) for number in (0, 1, 2, 4, 5)] == opened(store)[1]


# -- all of it


def test_a_repair_that_was_killed_is_run_again(store, monkeypatch):
    """At every call of the disk: a second repair keeps all whole parts, and the original files."""
    path, begin, _ = place_of(store, 200)
    flip(path, begin + 40)
    flip(the_checkpoint(store), range_at(store, 17) + 60)
    damaged = store.parent / "damaged"
    shutil.copytree(store, damaged)

    killer = Killer(monkeypatch)
    finished = False
    kills = 0
    while not finished:
        kills += 1
        shutil.rmtree(store)
        shutil.copytree(damaged, store)
        killer.arm(kills)
        try:
            repaired(store)
            finished = True
        except Killed:
            killer.disarm()
            repaired(store)
        killer.disarm()
        holds(store, lost=[200], lost_ranges=[17])
        kept = [folder / path.name for folder in store.glob("damaged-*")]
        assert any(one.exists() and one.read_bytes() == (damaged / path.name).read_bytes() for one in kept)
    assert kills > 5


@pytest.mark.parametrize("seed", range(24))
def test_after_any_damage_the_rest_is_kept(store, seed):
    """Some bytes of some files are changed, zeroed, cut off or missing. After the repair the store opens, all content
    outside of the damage is there, and each frame is either unchanged or named as lost."""
    dice = random.Random(seed)
    hurt: set[int] = set()
    hurt_ranges: set[int] = set()
    where = {lsn: place_of(store, lsn) for lsn in range(1, FRAMES + 1)}
    for _ in range(dice.randint(1, 4)):
        if dice.random() < 0.7:
            path = dice.choice(segments(store))
            begin = dice.randrange(64, SEGMENT)
            end = min(begin + dice.choice([1, 1, 30, 600]), SEGMENT)
            data = bytearray(path.read_bytes())
            data[begin:end] = bytes(end - begin) if dice.random() < 0.5 else dice.randbytes(end - begin)
            path.write_bytes(data)
            hurt |= {lsn for lsn, (file, at, size) in where.items() if file == path and at < end and begin < at + size}
        else:
            path = the_checkpoint(store)
            places = [range_at(store, number) for number in range(RANGES)]
            number = dice.randrange(RANGES)
            if places[number] < 0:
                continue
            flip(path, places[number] + dice.randrange(8, 200), dice.randrange(1, 256))
            hurt_ranges.add(number)
    found, _ = repaired(store)
    lost = set(lost_frames(found))
    assert lost <= hurt
    frames, ranges = opened(store)
    for lsn in range(COVERED + 1, FRAMES + 1):
        expected = FILLER.payload if lsn in lost else payload(lsn)
        assert expected == frames[lsn].payload, lsn
    assert [a_range(number) for number in range(RANGES) if number not in hurt_ranges] == ranges
    assert repaired(store)[0].whole


def test_one_wrong_byte_of_a_sealed_record_is_found(store):
    import struct

    layout = struct.Struct("<8sQ")
    from outrider.storage.sealed import sealed

    record = sealed(layout.pack(b"outrider", 7))
    for place in range(len(record)):
        wrong = bytearray(record)
        wrong[place] ^= 0x41
        assert record == corrected(bytes(wrong), layout)
    wrong[0] ^= 1
    wrong[9] ^= 1
    assert corrected(bytes(wrong), layout) is None
    check_store(STORE, STORE, "")


def test_ranges_can_be_read_without_the_checkpoint(store):
    files = Directory(store)
    found = survey(files, STORE)
    assert [a_range(number) for number in range(RANGES)] == list(whole_ranges(files, found.checkpoint))


# -- runs of the ledger


def cards_of(numbers, order):
    heads = np.zeros(len(numbers), HEAD)
    bodies = [b"https://example.org/%d" % number for number in numbers]
    heads["fingerprint"] = np.array(numbers, np.uint64) * np.uint64(0x9E3779B97F4A7C15) & np.uint64((1 << 56) - 1)
    heads["order"], heads["state"] = order, 1
    heads["url_bytes"] = [len(body) for body in bodies]
    return Cards(heads, b"".join(bodies), np.array([0, *map(len, bodies)], np.int64).cumsum())


ROWS = 3_000


@pytest.fixture
def ledger(tmp_path, monkeypatch):
    """Two runs: 3,000 records, then new heads for every third of them and 100 new records; in blocks of up to 512."""
    set_limits(monkeypatch, RUN_BLOCK_ROWS=512)
    files = Directory(tmp_path / "ledger")
    kept = Ledger.open(files, store=STORE, names=[])
    kept.append(cards_of(range(ROWS), 1))
    kept.freeze()
    kept.write_frozen()
    kept.append_heads(cards_of(range(0, ROWS, 3), 2).heads)
    kept.append(cards_of(range(ROWS, ROWS + 100), 2))
    kept.freeze()
    kept.write_frozen()
    names = kept.names()
    kept.close()
    files.close()
    return tmp_path / "ledger", names


def test_runs_without_a_list_are_found_by_their_ages(tmp_path):
    """A merge during a checkpoint gets a higher number than the run of younger records."""
    files = Directory(tmp_path / "ledger")
    kept = Ledger.open(files, store=STORE, names=[])
    for order in range(1, 5):
        kept.append(cards_of(range(ROWS), order))
        kept.freeze()
        kept.write_frozen()
    kept.names()
    kept.freeze(for_checkpoint=True)
    kept.append(cards_of(range(100), 5))
    kept.freeze()
    kept.write_frozen()
    assert kept.merge()
    kept.close()
    found = Survey(STORE)
    survey_runs(files, found, None)
    names = [run.name for run in found.runs]
    assert ([*map(run_name, (0, 1, 2, 3, 5, 4))], []) == (names, found.losses)
    files.close()
    orders = list(listed(tmp_path / "ledger", names).values())
    assert (100, ROWS - 100) == (orders.count(5), orders.count(4))


def test_a_run_of_an_earlier_build_is_as_old_as_its_number(ledger):
    """It had zeros in place of the age."""
    folder, names = ledger
    path = folder / names[1]
    head = sealed(struct.pack("<8sI4x16sQ20x", b"ORrun\r\n\x1a", 2, STORE, 1))
    path.write_bytes(head + path.read_bytes()[len(head) :])
    files, losses = Directory(folder), []
    run = Run(files, names[1], store=STORE)
    assert (1, 1, []) == (run.age, survey_run(files, STORE, names[1], losses).age, losses)
    run.close()
    files.close()


def listed(folder, names):
    """Returns order and URL of every record, by its number."""
    files = Directory(folder)
    try:
        kept = Ledger.open(files, store=STORE, names=names)
        rows = {}
        for cards in kept.scan():
            for row, url in enumerate(cards.urls()):
                rows[int(url.rsplit("/", 1)[1])] = int(cards.heads["order"][row])
        kept.close()
        return rows
    finally:
        files.close()


def runs_repaired(folder, names):
    files = Directory(folder)
    try:
        found = Survey(STORE)
        survey_runs(files, found, names)
        return mend(files, found, FILLER)
    finally:
        files.close()


def expected_rows(lost_old=(), lost_new=()):
    rows = dict.fromkeys(range(ROWS), 1)
    rows |= {number: 2 for number in range(0, ROWS, 3) if number not in lost_new}
    rows |= {number: 2 for number in range(ROWS, ROWS + 100) if number not in lost_new}
    return {number: order for number, order in rows.items() if number not in lost_old}


def blocks_of(folder, name):
    """Returns (first byte, end byte, numbers of its records) of each block."""
    files = Directory(folder)
    run = Run(files, name, store=STORE)
    numbers = {int(cards_of([number], 0).heads["fingerprint"][0]): number for number in range(ROWS + 100)}
    out = []
    for place, (begin, end) in enumerate(zip(run._offsets[:-1], run._offsets[1:], strict=True)):
        records, _ = run._heads((folder / name).read_bytes()[begin:end], 0, int(begin), place)
        out.append((int(begin), int(end), [numbers[int(one)] for one in records.heads["fingerprint"]]))
    files.close()
    return out


def test_whole_runs_are_unchanged(ledger):
    folder, names = ledger
    before = contents(folder)
    assert ("", before, expected_rows()) == (runs_repaired(folder, names).folder, contents(folder), listed(*ledger))


@pytest.mark.parametrize("at", [0, 5, 21, 25, 60, -1])
def test_a_damaged_byte_of_a_block_loses_its_records_and_their_newer_heads(ledger, at):
    folder, names = ledger
    begin, end, numbers = blocks_of(folder, names[0])[2]
    before = (folder / names[0]).read_bytes()
    flip(folder / names[0], begin + at if at >= 0 else end - 1)
    damaged = (folder / names[0]).read_bytes()
    mended = runs_repaired(folder, names)
    assert expected_rows(lost_old=numbers) == listed(folder, names)
    assert {len(numbers), len([one for one in numbers if one % 3 == 0])} == {loss.pieces for loss in mended.losses}
    assert (begin, end) == (mended.losses[0].begin, mended.losses[0].end)
    assert damaged == (folder / mended.folder / names[0]).read_bytes() != before


def test_a_damaged_block_of_the_newer_run_reveals_the_older_records(ledger):
    folder, names = ledger
    begin, _, numbers = blocks_of(folder, names[1])[0]
    flip(folder / names[1], begin + 30)
    (loss,) = runs_repaired(folder, names).losses
    assert len(numbers) == loss.pieces
    assert expected_rows(lost_new=numbers) == {
        number: order for number, order in listed(folder, names).items() if number < ROWS or number not in numbers
    }


@pytest.mark.parametrize("part", ["header", "index", "footer", "all"])
def test_blocks_are_found_without_header_index_and_footer(ledger, part):
    folder, names = ledger
    size = (folder / names[0]).stat().st_size
    places = {"header": [9, 20], "index": [size - 100, size - 120], "footer": [size - 10, size - 40]}
    for at in [at for name, some in places.items() if part in (name, "all") for at in some]:
        flip(folder / names[0], at)
    runs_repaired(folder, names)
    assert expected_rows() == listed(folder, names)


def test_without_an_index_one_block_is_lost_and_the_next_is_found(ledger):
    folder, names = ledger
    size = (folder / names[0]).stat().st_size
    begin, _, numbers = blocks_of(folder, names[0])[2]
    for at in (begin + 1, begin + 10, size - 100, size - 10, size - 40):
        flip(folder / names[0], at)
    runs_repaired(folder, names)
    assert expected_rows(lost_old=numbers) == listed(folder, names)


def test_a_missing_run_is_named_and_the_other_runs_stay(ledger):
    folder, names = ledger
    (folder / names[1]).unlink()
    (loss,) = runs_repaired(folder, names).losses
    assert (names[1], None) == (loss.file, loss.pieces)
    assert dict.fromkeys(range(ROWS), 1) == listed(folder, names)
    (folder / names[0]).unlink()
    runs_repaired(folder, names)
    assert {} == listed(folder, names)


def test_without_the_checkpoints_list_all_runs_count_in_their_order(ledger):
    folder, names = ledger
    files = Directory(folder)
    found = Survey(STORE)
    survey_runs(files, found, None)
    assert names == [run.name for run in found.runs]


def test_a_killed_repair_of_runs_is_run_again(ledger, monkeypatch):
    folder, names = ledger
    begin, _, numbers = blocks_of(folder, names[0])[2]
    flip(folder / names[0], begin + 60)
    damaged = folder.parent / "damaged"
    shutil.copytree(folder, damaged)
    real = Directory.rename
    for kill in range(3):
        shutil.rmtree(folder)
        shutil.copytree(damaged, folder)
        calls = []

        def dies(self, old, new, calls=calls, kill=kill):
            calls.append(new)
            if len(calls) == kill + 1:
                raise KeyboardInterrupt
            real(self, old, new)

        monkeypatch.setattr(Directory, "rename", dies)
        with pytest.raises(KeyboardInterrupt):
            runs_repaired(folder, names)
        monkeypatch.setattr(Directory, "rename", real)
        runs_repaired(folder, names)
        assert expected_rows(lost_old=numbers) == listed(folder, names)


# -- the manifest


@pytest.fixture
def manifest(tmp_path):
    files = Directory(tmp_path / "manifest")
    Manifest.create(
        files, store="ab" * 16, created="2026-01-02T03:04:05Z", fingerprint_key="0f" * 16, slot_key="f0" * 16,
        spelling="1", rules={"url_rules": ""},
    )  # fmt: skip
    return files, tmp_path / "manifest" / "manifest.json"


def test_a_wrong_byte_in_the_manifest_is_corrected(manifest):
    files, path = manifest
    data = path.read_bytes()
    for at in (0, data.find(b"fingerprint"), data.find(b"0f0f") + 7, data.find(b"crc32c") + 12, len(data) - 3):
        path.write_bytes(data)
        flip(path, at, 0x11)
        losses = []
        assert data == manifest_of(files, losses)
        assert [(at, at + 1)] == [(loss.begin, loss.end) for loss in losses]


def test_a_manifest_with_two_wrong_bytes_is_not_guessed(manifest):
    files, path = manifest
    at = path.read_bytes().find(b"0f0f")
    flip(path, at, 0x01)
    flip(path, at + 5, 0x01)
    assert manifest_of(files, []) is None
