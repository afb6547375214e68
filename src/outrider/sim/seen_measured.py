"""The disk traffic of exact seen-sets, measured at real files and compared with the published formulas.

Every method gets the same links: 8 bytes of a hash and a text of 110 bytes, one of nine new. Bytes are counted at the
calls that read and write files; the cache of the system may answer them. The seen-set of Outrider uses more memory than
others if the limit is small: up to 65,536 new keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from outrider import kernels
from outrider.chart import ChartLine, log_log
from outrider.errors import SettingsError
from outrider.frontier.stores.spilled_keys import SpilledKeys
from outrider.sim.seen_formulas import HASH_BYTES, NEW_SHARE, POINTER_BYTES, URL_BYTES
from outrider.storage.drum import BUFFER_BYTES_MIN, Drum, Operation
from outrider.storage.files import Directory, File, Files

BUCKETS: Final = 64  # DRUM has these; a buffer is 1/256 of the memory
LINKS_LEAST: Final = 10_000
LINKS_MOST: Final = 100_000_000
MEMORY_LEAST: Final = 4 * BUCKETS * BUFFER_BYTES_MIN
MEMORY_MOST: Final = 1 << 30
BATCH: Final = 1_000  # links of one call
SEEKS_MOST: Final = 30_000  # links for the method that reads a page for each; more cost the same
PAGE_BYTES: Final = 4_096
Links = tuple[npt.NDArray[np.uint64], npt.NDArray[np.void]]


@dataclass(frozen=True, slots=True)
class Measured:
    """bytes_per_link: read and written. overhead: the same as a multiple of the text of a link. formula: this multiple
    by the formula, None without one. new: links that were accepted."""

    method: str
    links: int
    new: int
    bytes_per_link: float
    overhead: float
    formula: float | None


class CountedFiles:
    """The files of a directory, with a count of the bytes that are read and written."""

    def __init__(self, files: Files) -> None:
        self.bytes = 0
        self._files = files

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def open(self, name: str, *, create: bool = False) -> File:
        """As the directory does it."""
        return _CountedFile(self, self._files.open(name, create=create))


class _CountedFile:
    def __init__(self, owner: CountedFiles, file: File) -> None:
        self._owner = owner
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read_at(self, offset: int, length: int) -> bytes:
        octets = self._file.read_at(offset, length)
        self._owner.bytes += len(octets)
        return octets

    def write_at(self, offset: int, data: bytes) -> None:
        self._file.write_at(offset, data)
        self._owner.bytes += len(data)


def hashes(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Distinct numbers give distinct, evenly spread hashes."""
    mixed = numbers * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ mixed >> np.uint64(shift)) * np.uint64(factor)
    return mixed ^ mixed >> np.uint64(31)


def batches(links: int) -> Iterator[Links]:
    """The links of a crawl in calls of `BATCH`: one of nine is new, the others are drawn among all before."""
    draw, known = np.random.default_rng(0), 0
    for first in range(0, links, BATCH):
        number = np.arange(first, min(first + BATCH, links))
        new = number % round(1 / NEW_SHARE) == 0
        places = known + np.cumsum(new) - 1
        drawn = (draw.random(len(number)) * (places + 1)).astype(np.int64)
        keys = hashes(np.where(new, places, drawn).astype(np.uint64))
        texts = np.zeros((len(keys), URL_BYTES), np.uint8)
        texts[:, :HASH_BYTES] = keys.view(np.uint8).reshape(-1, HASH_BYTES)
        known = int(places[-1]) + 1
        yield keys, texts.view(np.dtype((np.void, URL_BYTES)))[:, 0]


class _TextFile:
    """A file to which texts are appended."""

    def __init__(self, files: Files, name: str) -> None:
        self.size = 0
        self._file = files.open(name, create=True)

    def append(self, texts: npt.NDArray[np.void]) -> None:
        self._file.write_at(self.size, texts.tobytes())
        self.size += texts.nbytes

    def read(self, first: int, size: int) -> npt.NDArray[np.void]:
        return np.frombuffer(self._file.read_at(first, size), np.dtype((np.void, URL_BYTES)))


# -- methods: each returns how many links were new


def mercator_b(files: Files, links: int, memory_bytes: int) -> int:
    """Hashes and places of links fill half of the memory. Then they are merged with the sorted file of all hashes,
    which is written anew. All their texts are read, and those of new ones are written."""
    texts, accepted = _TextFile(files, "texts"), _TextFile(files, "accepted")
    room = max(memory_bytes // 2 // (HASH_BYTES + POINTER_BYTES), 1)
    waiting: list[npt.NDArray[np.uint64]] = []
    begun, number, size = 0, 0, 0

    def merge() -> None:
        nonlocal begun, number, size
        keys = np.concatenate(waiting)
        old = files.open(f"hashes{number}", create=True)
        before = np.frombuffer(old.read_at(0, size), np.uint64)
        found, first = np.unique(keys, return_index=True)
        new = ~np.isin(found, before, assume_unique=True)
        number += 1
        files.open(f"hashes{number}", create=True).write_at(0, np.union1d(before, found).tobytes())
        files.remove(f"hashes{number - 1}")
        size += HASH_BYTES * int(np.count_nonzero(new))
        accepted.append(texts.read(begun, texts.size - begun)[np.sort(first[new])])
        begun = texts.size
        waiting.clear()

    for keys, some in batches(links):
        waiting.append(keys)
        texts.append(some)
        if sum(map(len, waiting)) >= room:
            merge()
    if waiting:
        merge()
    return accepted.size // URL_BYTES


def drum(files: Files, links: int, memory_bytes: int) -> int:
    """The part `outrider.storage.drum`; as in the paper, each merge writes all keys anew."""
    made = Drum(
        files,
        memory_bytes=memory_bytes,
        payload_bytes=URL_BYTES,
        valued=False,
        buffer_bytes=memory_bytes // 4 // BUCKETS,
        merges_per_rewrite=1,
    )
    accepted = _TextFile(files, "accepted")

    def merge() -> None:
        for answers in made.merge():
            accepted.append(answers.payloads[~answers.known])

    for keys, texts in batches(links):
        made.add(Operation.CHECK_UPDATE, keys, payloads=texts)
        if made.is_full:
            merge()
    merge()
    return accepted.size // URL_BYTES


def seeks(files: Files, links: int, memory_bytes: int) -> int:
    """A page is read for each link, and written for each new one: a table of hashes on disk, without memory."""
    pages = max(links // 100, 1)
    table = files.open("table", create=True)
    table.write_at(pages * PAGE_BYTES - 1, b"\0")
    new = 0
    for keys, _ in batches(links):
        for key in keys.tolist():
            place = key % pages * PAGE_BYTES
            page = bytearray(table.read_at(place, PAGE_BYTES))
            rows = np.frombuffer(page, np.uint64)
            if key in rows[1 : 1 + int(rows[0])]:
                continue
            rows[0] += np.uint64(1)
            rows[int(rows[0])] = key
            table.write_at(place, bytes(page))
            new += 1
    return new


def ours(files: Files, links: int, memory_bytes: int) -> int:
    """The seen-set of the frontier beyond its memory, without its table of recent URLs. It answers at once, so texts
    need not wait in files."""
    numbered, new = count(1), 0
    made = SpilledKeys(files, lambda: next(numbered), kernels.FingerprintSet(), bytes_max=memory_bytes)
    for keys, _ in batches(links):
        keys = np.unique(keys)
        parts = (keys >> np.uint64(52)).astype(np.uint16), keys & np.uint64((1 << 56) - 1)
        fresh = ~np.frombuffer(made.check(*parts), np.bool_)
        made.add(parts[0][fresh], parts[1][fresh])
        new += int(np.count_nonzero(fresh))
    made.close()
    return new


# -- formulas, as multiples of the text of a link


def formula_of_mercator_b(links: int, memory_bytes: int) -> float:
    """That of `seen_formulas.overhead`, for a crawl that begins without URLs."""
    sorted_bytes = NEW_SHARE * HASH_BYTES * links
    return 2 * sorted_bytes * (HASH_BYTES + POINTER_BYTES) / (URL_BYTES * memory_bytes) + 2 + NEW_SHARE


def formula_of_drum(links: int, memory_bytes: int) -> float:
    """The same, for buckets of half of the memory each."""
    sorted_bytes = NEW_SHARE * HASH_BYTES * links
    on_disk = BUCKETS * memory_bytes / 2
    return (HASH_BYTES + URL_BYTES) * sorted_bytes / (URL_BYTES * on_disk) + 2 + NEW_SHARE + 2 * HASH_BYTES / URL_BYTES


def formula_of_seeks(links: int, memory_bytes: int) -> float:
    """A page for each link, and one more for each new link."""
    return PAGE_BYTES * (1 + NEW_SHARE) / URL_BYTES


Method = Callable[[Files, int, int], int]
METHODS: Final[dict[str, tuple[Method, Callable[[int, int], float] | None]]] = {
    "Mercator-B": (mercator_b, formula_of_mercator_b),
    "DRUM": (drum, formula_of_drum),
    "Outrider": (ours, None),
    "a seek each": (seeks, formula_of_seeks),
}


def measured(links: int, memory_bytes: int, folder: str | None = None) -> Iterator[Measured]:
    """Measures each method with a tenth of the links, a third, and all of them, in scratch folders of `folder`. Raises
    SettingsError before the first one, and StoreError."""
    if not LINKS_LEAST <= links <= LINKS_MOST:
        raise SettingsError(f"--links {links}: use {LINKS_LEAST:,} to {LINKS_MOST:,}")
    if not MEMORY_LEAST <= memory_bytes <= MEMORY_MOST:
        raise SettingsError(f"--memory {memory_bytes}: use {MEMORY_LEAST >> 10}K to {MEMORY_MOST >> 30}G")
    return _measured(links, memory_bytes, folder)


def _measured(links: int, memory_bytes: int, folder: str | None) -> Iterator[Measured]:
    for some in (links // 10, links // 3, links):
        for name, (method, formula) in METHODS.items():
            taken = min(some, SEEKS_MOST) if method is seeks else some
            with TemporaryDirectory(prefix="outrider-", dir=folder) as path:
                files = CountedFiles(Directory(Path(path), create=True))
                new = method(files, taken, memory_bytes)
            times = files.bytes / taken / URL_BYTES
            expected = formula(taken, memory_bytes) if formula is not None else None
            yield Measured(name, taken, new, files.bytes / taken, times, expected)


def measured_svg(rows: list[Measured], memory_bytes: int) -> str:
    """Returns the measured overheads as a drawing. Methods that used no file have no point."""
    points = {
        name: tuple((row.links, row.overhead) for row in rows if row.method == name and row.overhead)
        for name in METHODS
    }
    return log_log(
        [ChartLine(name, some, ours=name == "Outrider") for name, some in points.items()],
        title=f"Bytes read and written, as a multiple of the text of a link, with {memory_bytes >> 10} KB of memory",
        x_title="links, one of nine new",
        y_title="times",
    )
