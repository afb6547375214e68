"""Real processes, real files, SIGKILL at any moment: frames acknowledged over the pipe are in the log."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import outrider.storage.log as log_room
from outrider.storage.files import Directory
from outrider.storage.log import Log

STORE = b"kill--test-store"

WRITER = """
import random, sys
from outrider.storage.files import Directory
from outrider.storage.log import Log
directory = Directory(sys.argv[1])
directory.lock()
log = Log.open(directory, store=b"kill--test-store", epoch=1, segment_bytes_first=16384, segment_bytes_max=65536)
rng = random.Random(int(sys.argv[2]))
while True:
    for _ in range(rng.randrange(1, 20)):
        lsn = log.appended_lsn + 1
        log.append(1, b"%d:" % lsn + bytes([lsn % 256]) * rng.randrange(2000))
    print(log.sync(), flush=True)
"""


def lives(path: Path, rounds: int, seed: int) -> None:
    rng = random.Random(seed)
    acknowledged = 0
    for number in range(rounds):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(rng.randrange(1 << 30))],
            env={**os.environ, "PYTHONPATH": str(Path(log_room.__file__).parents[2])},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        first = process.stdout.readline()
        time.sleep(rng.uniform(0.001, 0.05))
        os.kill(process.pid, signal.SIGKILL)
        lines = [first, *process.stdout.readlines()]
        process.stdout.close()
        process.wait()
        whole = [int(line) for line in lines if line.endswith("\n")]
        assert whole, f"round {number} acknowledged nothing"
        acknowledged = max(acknowledged, *whole)
        directory = Directory(path)
        directory.lock()
        log = Log.open(directory, store=STORE, epoch=1)
        assert log.appended_lsn >= acknowledged
        for frame in log.replay(0):
            head, _, rest = frame.payload.partition(b":")
            assert (b"%d" % frame.lsn, bytes([frame.lsn % 256]) * len(rest)) == (head, rest)
        acknowledged = log.synced_lsn
        log.close()
        directory.close()


def test_acknowledged_frames_survive_kill_9(tmp_path: Path) -> None:
    lives(tmp_path / "store", 8, seed=1)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_acknowledged_frames_survive_two_hundred_kills(tmp_path: Path) -> None:
    for seed in range(8):
        lives(tmp_path / f"store-{seed}", 25, seed=seed)
