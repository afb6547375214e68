"""The ledger after power cuts: the runs of a finished checkpoint are there and read as they did."""

from __future__ import annotations

import errno
import json
import random

import numpy as np
import pytest

from outrider.errors import StoreError
from outrider.frontier.format.card_columns import Cards
from outrider.frontier.stores.ledger import Ledger
from outrider.kernels.card_layout import HEAD
from outrider.sim.disk import CrashDisk
from outrider.storage.files import Files, read_whole, replace
from outrider.storage.record_columns import RecordColumns
from outrider.storage.runs import RunWriter

STORE = b"ledger-crash-tst"
LIST = "listed"
Content = dict[int, tuple[int, bytes]]


def cards(numbers: list[int], order: int) -> Cards:
    heads = np.zeros(len(numbers), HEAD)
    heads["fingerprint"], heads["slot"], heads["order"], heads["state"] = numbers, np.array(numbers) % 3, order, 1
    bodies = [b"http://a.test/%d/%d" % (number, order) for number in numbers]
    heads["url_bytes"] = [len(body) for body in bodies]
    return Cards(heads, b"".join(bodies), np.array([0, *map(len, bodies)]).cumsum())


def content(ledger: Ledger) -> Content:
    found: Content = {}
    for some in ledger.scan():
        rows = zip(some.heads["fingerprint"].tolist(), some.heads["order"].tolist(), some.urls(), strict=True)
        found.update({number: (order, url.encode()) for number, order, url in rows})
    return found


def listed(files: Files) -> list[str]:
    """The newest checkpoint's list: here a small file, replaced as checkpoints are."""
    try:
        names: list[str] = json.loads(read_whole(files, LIST, bytes_max=10_000))
    except FileNotFoundError:
        return []
    return names


class History:
    """A ledger on a disk that may crash, with the records that its checkpoints may contain."""

    def __init__(self, disk: CrashDisk, seed: int, *, checkpointed: Content | None = None) -> None:
        self.disk = disk
        self.rng = random.Random(seed)
        self.model: Content = dict(checkpointed or {})
        self.checkpointed = dict(self.model)
        self.attempted: Content | None = None
        self.frozen: Content | None = None  # the records of the checkpoint that began last
        self.ledger = Ledger.open(disk, store=STORE, names=listed(disk))
        self.ledger.remove_leftovers()
        self.turn = max([order for order, _ in self.model.values()], default=0)

    def step(self) -> None:
        """Begins or ends a round of a checkpoint, perhaps with younger runs, and perhaps merges before or after that.
        During a merge further rounds begin and end."""
        merges = self.rng.choice(["before", "after", "never"])
        if merges == "before":
            self.merge()
        self.half()
        if merges == "after":
            self.merge()

    def half(self) -> None:
        if self.frozen is None:
            self.begin()
        else:
            self.end()

    def begin(self) -> None:
        self.ledger.give_up()  # the last step may have failed
        self.append()
        self.ledger.freeze(for_checkpoint=True)
        self.frozen = dict(self.model)
        for _ in range(self.rng.randrange(3)):
            self.append()
            self.ledger.freeze()
            self.ledger.write_frozen()

    def end(self) -> None:
        """The checkpoint is durable, or the disk fails; then nothing is known of it, and another one begins."""
        frozen, self.frozen = self.frozen, None
        self.ledger.write_frozen(for_checkpoint=True)
        names = self.ledger.names()
        assert self.model == content(self.ledger)
        self.attempted = frozen
        replace(self.disk, LIST, json.dumps(names).encode())
        assert frozen is not None
        self.checkpointed, self.attempted = frozen, None
        self.ledger.settled()

    def merge(self) -> None:
        halves, writers, add = self.rng.randrange(4), [], RunWriter.add

        def adding(writer: RunWriter, records: RecordColumns) -> None:
            add(writer, records)
            if writers:  # a round inside the merge writes this run
                return
            writers.append(writer)
            for _ in range(halves):
                self.half()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(RunWriter, "add", adding)
            self.ledger.merge()

    def append(self) -> None:
        """Some records, new or changed."""
        self.turn += 1
        numbers = self.rng.sample(range(60), self.rng.randrange(1, 20))
        self.ledger.append(cards(numbers, self.turn))
        self.model.update({number: (self.turn, b"http://a.test/%d/%d" % (number, self.turn)) for number in numbers})

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.step()

    def check(self, image: CrashDisk) -> Content:
        """The last durable list, or the one that was on its way, and all that it lists."""
        found = content(Ledger.open(image, store=STORE, names=listed(image)))
        assert found in [self.checkpointed, self.attempted]
        return found


class Watched(CrashDisk):
    """A disk that is looked at before every counted call."""

    def __init__(self) -> None:
        super().__init__()
        self.history: History | None = None
        self.looked = 0

    def _call(self, verb: str, name: str) -> None:
        history, self.history = self.history, None
        if history is not None:
            for image in self.crash_images(history.rng, 2):
                history.check(image)
                self.looked += 1
        self.history = history
        super()._call(verb, name)


@pytest.mark.parametrize("seed", range(4))
def test_the_rows_of_a_checkpoint_survive_a_crash_before_every_call(seed: int) -> None:
    disk = Watched()
    history = disk.history = History(disk, seed)
    for _ in range(24):
        history.step()
    assert disk.looked > 200
    assert [name for verb, name in disk.calls if verb == "remove" and name.endswith(".run")], (
        "merged runs went on the way"
    )


@pytest.mark.parametrize("seed", range(4))
def test_a_ledger_that_was_cut_off_continues_and_is_as_safe_as_before(seed: int) -> None:
    """Eight lives, each ended in the middle of an act: leftovers do no harm and do not pile up."""
    rng = random.Random(seed)
    disk = CrashDisk()
    kept: Content = {}
    for _ in range(8):
        history = History(disk, rng.randrange(1 << 30), checkpointed=kept)
        runs = [name for name in disk.names() if name.startswith("run-")]
        assert sorted(listed(disk)) == runs
        disk.fail(rng.randrange(5, 70), errno.EIO, forever=True)
        with pytest.raises(StoreError):
            history.steps(30)
        disk = rng.choice(list(disk.crash_images(rng, 4)))
        kept = history.check(disk)


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("partial", [False, True])
def test_any_call_may_fail_once_and_what_was_listed_is_there(error: int, partial: bool) -> None:
    for nth in range(1, 60):
        disk = CrashDisk()
        history = History(disk, 5)
        disk.fail(nth, error, partial=partial)
        for _ in range(16):
            try:
                history.step()
            except StoreError:
                continue
        assert history.model == content(history.ledger), "what is in memory stays readable"
        for image in disk.crash_images(history.rng, 1):
            history.check(image)
