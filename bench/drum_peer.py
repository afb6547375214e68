"""The child of `builds` for DRUM: requests for links, one of ten new, and their merges.

    python -m bench.drum_peer LINKS MEMORY PAYLOAD CALL FOLDER OUT

MEMORY: bytes for the DRUM; PAYLOAD: bytes of the text of a link; CALL: links of a call. Writes CPU microseconds of a
link for both parts.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

from outrider.sim.seen_measured import hashes
from outrider.storage.drum import Drum, Operation
from outrider.storage.files import Directory

NEW_EACH = 10


def main(links: int, memory: int, payload: int, call: int, folder: Path, out: Path) -> None:
    drum = Drum(Directory(folder, create=True), memory_bytes=memory, payload_bytes=payload, valued=False)
    draw = np.random.default_rng(0)
    spent = {"requests": 0.0, "merges": 0.0}
    known = new = 0
    for first in range(0, links, call):
        numbers = np.arange(first, min(first + call, links))
        is_new = numbers % NEW_EACH == 0
        places = known + np.cumsum(is_new) - 1
        drawn = (draw.random(len(numbers)) * (places + 1)).astype(np.int64)
        keys = hashes(np.where(is_new, places, drawn).astype(np.uint64))
        known = int(places[-1]) + 1
        texts = np.zeros(len(keys), np.dtype((np.void, payload)))
        begun = time.process_time()
        drum.add(Operation.CHECK_UPDATE, keys, payloads=texts if payload else None)
        spent["requests"] += time.process_time() - begun
        if drum.is_full or first + call >= links:
            begun = time.process_time()
            new += sum(int(np.count_nonzero(~answers.known)) for answers in drum.merge())
            spent["merges"] += time.process_time() - begun
    drum.close()
    assert known == new
    out.write_text(json.dumps({part: cpu / links * 1e6 for part, cpu in spent.items()}), encoding="utf-8")


if __name__ == "__main__":
    links, memory, payload, call = map(int, sys.argv[1:5])
    main(links, memory, payload, call, Path(sys.argv[5]), Path(sys.argv[6]))
