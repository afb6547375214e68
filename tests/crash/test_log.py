"""The log after power cuts, torn writes and flipped bits: synced frames are there, then a prefix; damage is loud."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator

import pytest

from outrider.errors import DamagedStoreError, ForeignStoreError, StoreError, StoreFullError
from outrider.kernels import FRAME_HEADER_BYTES, pack_frames
from outrider.sim.disk import CrashDisk, FaultyFiles
from outrider.storage.files import Files
from outrider.storage.log import MIRROR_NAME, SEGMENT_HEADER_BYTES, Log, segment_name

STORE = b"crash-test-store"


def opened(files: Files) -> Log:
    return Log.open(files, store=STORE, epoch=1, segment_bytes_first=1024, segment_bytes_max=4096)


def payloads(log: Log) -> list[bytes]:
    return [frame.payload for frame in log.replay(0)]


def recovered(files: Files) -> list[bytes]:
    log = opened(files)
    found = payloads(log)
    log.close()
    return found


class History:
    """A log on a disk, with the appended frames and how far they were acknowledged."""

    def __init__(self, disk: FaultyFiles, seed: int) -> None:
        self.disk = disk
        self.rng = random.Random(seed)
        self.log = opened(disk)
        self.appended = payloads(self.log)
        self.attempted: list[bytes] = []

    @property
    def synced(self) -> list[bytes]:
        return self.appended[: self.log.synced_lsn]

    def step(self) -> None:
        """One append of any size, or a sync, or a segment's worth at once."""
        choice = self.rng.random()
        if choice < 0.3:
            self.log.sync()
            return
        length = self.rng.choice([0, 1, 40, 200, 700, self.rng.randrange(3_000)])
        # Zeros and 0xff in turn: the first look like unused space, the second like no length at all.
        payload = bytes([self.rng.choice([0, 255, 65])]) * length + b"%d" % len(self.appended)
        self.attempted = [payload]
        self.log.append(1, payload)
        self.appended.append(payload)
        self.attempted = []


def check(history: History, image: Files) -> None:
    """P1 and no hole: all that was acknowledged, then at most what else was appended, in order, nothing else."""
    found = recovered(image)
    possible = history.appended + history.attempted
    assert history.synced == found[: len(history.synced)]
    assert possible[: len(found)] == found


@pytest.mark.parametrize("seed", range(6))
def test_synced_frames_survive_every_crash_and_the_rest_is_a_prefix(seed: int) -> None:
    disk = CrashDisk()
    history = History(disk, seed)
    for _ in range(50):
        history.step()
        for image in disk.crash_images(history.rng, 3):
            check(history, image)


@pytest.mark.parametrize("seed", range(4))
def test_a_recovered_log_continues_and_is_as_safe_as_before(seed: int) -> None:
    """Ten lives, each ended by a power cut: no frame of an earlier life reappears after later ones."""
    rng = random.Random(seed)
    disk = CrashDisk()
    for _ in range(10):
        history = History(disk, rng.randrange(1 << 30))
        for _ in range(rng.randrange(12)):
            history.step()
        disk = rng.choice(list(disk.crash_images(rng, 4)))
        check(history, disk)


@pytest.mark.parametrize("seed", range(3))
def test_a_crash_during_recovery_loses_nothing(seed: int) -> None:
    """The power fails once at each call that opening makes; the next opening finds the same."""
    rng = random.Random(seed)
    disk = CrashDisk()
    history = History(disk, seed)
    for _ in range(25):
        history.step()
    for crashed in disk.crash_images(rng, 4):
        before = crashed.contents()
        expected = recovered(crashed.copy())
        for nth in range(1, 40):
            image = CrashDisk()
            for name, data in before.items():
                image.put(name, data)
            image.fail(nth, errno.EIO, forever=True)
            try:
                opened(image).close()
            except StoreError:
                for again in image.crash_images(rng, 2):
                    assert expected == recovered(again)
            else:
                break
        else:
            pytest.fail("opening makes more calls than were tried")


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("partial", [False, True])
def test_any_call_may_fail_once_and_nothing_acknowledged_is_lost(error: int, partial: bool) -> None:
    """The 1st, 2nd, 3rd … call fails: the log stops or says full, and every crash image after it has all acknowledged
    frames."""
    for nth in range(1, 80):
        disk = CrashDisk()
        history = History(disk, 5)
        disk.fail(nth, error, partial=partial)
        for _ in range(40):
            try:
                history.step()
            except StoreFullError:
                continue
            except StoreError:
                break
        for image in disk.crash_images(history.rng, 2):
            check(history, image)


# ------------------------------------------------------------------------------------------- the tail, byte by byte


def synced_log(count: int) -> tuple[FaultyFiles, list[bytes], list[int]]:
    """A log of synced frames in one segment: the disk, its payloads, and where each frame begins, the end last."""
    files = FaultyFiles()
    log = Log.open(files, store=STORE, epoch=1, segment_bytes_first=2048)
    written = [b"frame %d" % number * 3 for number in range(count)]
    begins = [SEGMENT_HEADER_BYTES]
    for payload in written:
        log.append(1, payload)
        log.sync()
        begins.append(begins[-1] + FRAME_HEADER_BYTES + len(payload))
    log.close()
    return files, written, begins


def cut(files: FaultyFiles, at: int, *, zeroed: bool) -> FaultyFiles:
    """The segment ends at a byte: the file is shorter there, or the rest never reached the device."""
    copy = files.copy()
    content = files.contents()[segment_name(1)]
    copy.put(segment_name(1), content[:at] + (bytes(len(content) - at) if zeroed else b""))
    return copy


@pytest.mark.parametrize("zeroed", [True, False])
def test_a_log_cut_at_any_byte_keeps_every_whole_frame_where_nothing_says_more_was_synced(zeroed: bool) -> None:
    """Without the mirror a lost tail looks like a tail that was never written; whole frames are kept."""
    files, written, begins = synced_log(6)
    files.drop(MIRROR_NAME)
    for at in range(begins[2], begins[-1] + 1):
        whole = sum(begin <= at for begin in begins[1:])
        image = cut(files, at, zeroed=zeroed)
        assert written[:whole] == recovered(image), at
        log = opened(image)
        log.append(1, b"next life")
        log.sync()
        log.close()
        assert [*written[:whole], b"next life"] == recovered(image), at


@pytest.mark.parametrize("zeroed", [True, False])
def test_a_log_cut_at_any_byte_below_its_mirrored_sync_point_is_refused_untouched(zeroed: bool) -> None:
    files, _, begins = synced_log(6)
    for at in range(begins[2], begins[-1]):
        image = cut(files, at, zeroed=zeroed)
        before = image.contents()
        with pytest.raises(DamagedStoreError, match=r"log-0000000000000001\.seg at byte \d+"):
            opened(image)
        assert before == image.contents()


def flips(content: bytes, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
    """The content with one bit of one byte changed, for every byte of the range."""
    for at in range(begin, end):
        spoiled = bytearray(content)
        spoiled[at] ^= 1 << at % 8
        yield at, bytes(spoiled)


def test_a_bit_flipped_anywhere_in_synced_frames_is_refused_with_file_and_byte() -> None:
    files, _, begins = synced_log(6)
    content = files.contents()[segment_name(1)]
    for at, spoiled in flips(content, SEGMENT_HEADER_BYTES, begins[-1]):
        image = files.copy()
        image.put(segment_name(1), spoiled)
        before = image.contents()
        frame = max(begin for begin in begins if begin <= at)
        with pytest.raises(DamagedStoreError, match=rf"at byte {frame}: the frame of LSN \d is not whole"):
            opened(image)
        assert before == image.contents()


def test_without_the_mirror_a_bit_flipped_before_the_last_synced_group_is_refused() -> None:
    """The next frame's sync point covers it. Only the very last group looks like a torn tail, and is cut whole."""
    files, written, begins = synced_log(6)
    files.drop(MIRROR_NAME)
    content = files.contents()[segment_name(1)]
    for at, spoiled in flips(content, SEGMENT_HEADER_BYTES, begins[-1]):
        image = files.copy()
        image.put(segment_name(1), spoiled)
        if at < begins[-2]:
            with pytest.raises(DamagedStoreError):
                opened(image)
        else:
            assert written[:-1] == recovered(image)


def test_a_bit_flipped_in_a_header_is_refused() -> None:
    files, _, _ = synced_log(2)
    content = files.contents()[segment_name(1)]
    for at, spoiled in flips(content, 0, SEGMENT_HEADER_BYTES):
        image = files.copy()
        image.put(segment_name(1), spoiled)
        with pytest.raises((DamagedStoreError, ForeignStoreError), match=r"log-0000000000000001\.seg"):
            opened(image)
        assert spoiled == image.contents()[segment_name(1)], at


def test_a_bit_flipped_in_unused_space_harms_nothing() -> None:
    files, written, begins = synced_log(2)
    content = files.contents()[segment_name(1)]
    for _, spoiled in flips(content, begins[-1], len(content)):
        image = files.copy()
        image.put(segment_name(1), spoiled)
        assert written == recovered(image)
        assert content == image.contents()[segment_name(1)]


def test_a_bit_flipped_in_the_mirror_harms_nothing() -> None:
    """One slot is left; and a number without its checksum is never believed."""
    files, written, _ = synced_log(2)
    content = files.contents()[MIRROR_NAME]
    for at, spoiled in flips(content, 0, len(content)):
        if content[at] == 0 and at % 4096 > 40:
            continue
        image = files.copy()
        image.put(MIRROR_NAME, spoiled)
        assert written == recovered(image)


def test_a_bit_flipped_in_any_segment_but_the_last_is_refused_even_without_the_mirror() -> None:
    files = FaultyFiles()
    log = opened(files)
    while log.statistics()["segments"] < 3:
        log.append(1, bytes(150))  # no sync of ours: a new segment says that everything before it was synced
    log.close()
    files.drop(MIRROR_NAME)
    for name in (name for name in files.names()[:2]):
        content = files.contents()[name]
        used = len(content.rstrip(b"\0"))
        for _, spoiled in flips(content, SEGMENT_HEADER_BYTES, used):
            image = files.copy()
            image.put(name, spoiled)
            with pytest.raises(DamagedStoreError, match=name):
                opened(image)


def test_the_frames_of_one_unsynced_group_are_cut_from_the_first_one_that_is_torn() -> None:
    """No hole: a later whole frame is not kept while an earlier one is lost."""
    disk = CrashDisk()
    log = opened(disk)
    log.append(1, b"synced")
    log.sync()
    begin = log._position
    for payload in (b"torn", b"whole", b"whole too"):
        log.append(1, payload)
    content = bytearray(disk.contents()[segment_name(1)])
    content[begin + FRAME_HEADER_BYTES] ^= 0xFF
    disk.put(segment_name(1), bytes(content))
    assert [b"synced"] == recovered(disk)
    left = disk.contents()[segment_name(1)][begin:]
    assert bytes(len(left)) == left


def test_a_frame_inside_a_torn_payload_does_not_pass_for_evidence_of_damage() -> None:
    """A page can contain the bytes of a frame that claims everything was synced; its LSN shows that it is not one."""
    planted = pack_frames([(10**6, 10**6 - 1, 1, 1, 1, 0, b"planted")])
    files = FaultyFiles()
    log = opened(files)
    log.append(1, b"synced")
    log.sync()
    begin = log._position
    log.append(1, b"text " + planted + b" text")
    log.close()
    content = bytearray(files.contents()[segment_name(1)])
    content[begin + FRAME_HEADER_BYTES] ^= 0xFF
    files.put(segment_name(1), bytes(content))
    assert [b"synced"] == recovered(files)


def test_a_frame_that_ends_in_zeros_is_still_evidence_of_damage() -> None:
    files = FaultyFiles()
    log = opened(files)
    begin = log._position
    log.append(1, b"damaged below")
    log.sync()
    log.append(1, b"x" + bytes(300))
    log.sync()
    log.close()
    files.drop(MIRROR_NAME)
    content = bytearray(files.contents()[segment_name(1)])
    content[begin + FRAME_HEADER_BYTES] ^= 0xFF
    files.put(segment_name(1), bytes(content))
    with pytest.raises(
        DamagedStoreError, match=f"at byte {begin}: the frame of LSN 1 is not whole, but LSN 1 was synced"
    ):
        opened(files)


def test_a_zeroed_hole_in_synced_frames_is_damage_and_not_the_end() -> None:
    """A sector that reads as zeros looks like unused space at its first byte."""
    files, _, begins = synced_log(6)
    files.drop(MIRROR_NAME)
    content = bytearray(files.contents()[segment_name(1)])
    content[begins[2] : begins[4]] = bytes(begins[4] - begins[2])
    files.put(segment_name(1), bytes(content))
    with pytest.raises(DamagedStoreError, match=f"at byte {begins[2]}"):
        opened(files)
