"""Three nodes claim one partition at once, step by step in an order drawn by seed: each epoch has one owner, and what
an owner was promised is what the topic counts."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest

from outrider.cluster.changelog import OwnersChangelog
from outrider.cluster.counting import Counting, read_all
from outrider.cluster.owning import Partition, claim
from outrider.errors import ClaimLostError, ClaimRefusedError
from outrider.kernels import pack_frames, scan_frames
from outrider.limits import MICROSECONDS
from outrider.sim.topic import Faults, FaultyTopic, NodesTopic

PART = Partition(0, 1, b"c" * 16, (bytes(16), bytes(range(16))), "2026-01-01T00:00:00Z")
NODES, CLAIMS, FRAMES = 3, 4, 3
TENURE = 10.0
HARSH = Faults(lost=0.05, unknown=0.1, late=0.1, twice=0.1)


class Turns:
    """Threads of which one runs at a time, each up to its next `stop`; chance decides which."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._goes: dict[int, threading.Semaphore] = {}
        self._stopped = threading.Semaphore(0)
        self.failures: list[Exception] = []

    def run(self, works: list[Callable[[], None]]) -> None:
        """Returns when all works have ended."""
        threads = {number: threading.Thread(target=self._live, args=(number, one)) for number, one in enumerate(works)}
        self._goes = {number: threading.Semaphore(0) for number in threads}
        for thread in threads.values():
            thread.start()
        while alive := sorted(self._goes):
            self._goes[self._chance.choice(alive)].release()
            self._stopped.acquire()
        for thread in threads.values():
            thread.join()
        if self.failures:
            raise self.failures[0]

    def stop(self, number: int) -> None:
        self._stopped.release()
        self._goes[number].acquire()

    def _live(self, number: int, work: Callable[[], None]) -> None:
        self._goes[number].acquire()
        try:
            work()
        except Exception as error:  # noqa: BLE001 - raised again by `run`
            self.failures.append(error)
        finally:
            del self._goes[number]
            self._stopped.release()


class Race:
    """Nodes that claim, append some frames, and claim again."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        self.turns = Turns(chance)
        self.topic = FaultyTopic(chance, HARSH, read_max=chance.choice([2, 50]))
        self.now = 0
        self.owners: list[tuple[int, str]] = []  # (epoch, mark), as each winner was promised
        self.frames: list[tuple[int, int]] = []  # (LSN, epoch), as each owner was promised
        self.refused = self.lost = 0
        self.turns.run([lambda number=number: self.live(number) for number in range(NODES)])  # type: ignore[misc]

    def live(self, number: int) -> None:
        def stop() -> None:
            self.now += MICROSECONDS // 100
            self.turns.stop(number)

        seen = self.topic.seen_by(stop, lambda: True)
        for turn in range(CLAIMS):
            topic = Stopping(seen, stop)
            try:
                mark = f"{number}.{turn}"
                found = claim(topic, PART, None, node=f"n{number}", mark=mark, pause=stop)
                self.owners.append((found.after.epoch, mark))
                owner = OwnersChangelog(
                    topic, found.base, found.after, tenure_seconds=TENURE, elapsed=lambda: self.now, pause=stop
                )
                for lsn in range(found.after.lsn + 1, found.after.lsn + 1 + FRAMES):
                    owner.append(lsn, pack_frames([(lsn, lsn - 1, owner.epoch, 1, 1, 0, b"x")]))
                    owner.wait(lsn)
                    self.frames.append((lsn, owner.epoch))
            except ClaimRefusedError:
                self.refused += 1
            except ClaimLostError:
                self.lost += 1


class Stopping:
    """A topic of which each call is a step."""

    def __init__(self, topic: NodesTopic, stop: Callable[[], None]) -> None:
        self._topic, self._stop = topic, stop

    def send(self, record: bytes) -> object:
        self._stop()
        return self._topic.send(record)

    def read(self, offset: int) -> list[tuple[int, bytes]]:
        self._stop()
        return self._topic.read(offset)


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_each_epoch_has_one_owner_when_nodes_claim_at_once(first: int) -> None:
    refused = lost = 0
    for seed in range(first, first + 100):
        race = Race(seed)
        counting = Counting()
        claims: list[tuple[int, str]] = []
        frames: list[tuple[int, int]] = []
        for offset, record in enumerate(race.topic.records):
            counted = counting.take(offset, record)
            if counting.claim is not None and (counting.epoch, counting.claim.mark) not in claims[-1:]:
                claims.append((counting.epoch, counting.claim.mark))
            frames += [(row[2], counting.epoch) for row in scan_frames(counted)[0]]
        again = Counting()
        read_all(race.topic.seen_by(lambda: None, lambda: True), again)
        assert (counting.epoch, counting.lsn, counting.crc) == (again.epoch, again.lsn, again.crc)
        epochs = [epoch for epoch, _ in claims]
        assert epochs == sorted(set(epochs)), f"seed {seed}"
        assert set(race.owners) <= set(claims), f"seed {seed}"
        assert len(race.owners) == len({epoch for epoch, _ in race.owners}), f"seed {seed}"
        assert set(race.frames) <= set(frames), f"seed {seed}"
        assert [lsn for lsn, _ in frames] == list(range(1, len(frames) + 1)), f"seed {seed}"
        refused, lost = refused + race.refused, lost + race.lost
    assert refused > 100
    assert lost > 100
