"""Runs of seen keys: immutable scratch files of sorted keys, in pages of 4,096 bytes.

docs/formats/seen.md draws them. They are derived: never synced, removed at the next opening. Memory keeps 8 bytes for
each page, so a look-up reads one page. Many sorted look-ups read the file once, in its order.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from outrider import kernels
from outrider.errors import DamagedStoreError, StoreError
from outrider.kernels.key_pages import PAGE_BYTES
from outrider.limits import SEEN_FIND_PAGES, SEEN_READ_PAGES
from outrider.storage.files import File, Files, remove_if_possible
from outrider.storage.scratch import SUFFIX

Slots = npt.NDArray[np.uint16]
Prints = npt.NDArray[np.uint64]
Keys = tuple[Slots, Prints]
"""Slots and fingerprints."""
PREFIX_END = 1 << 64
"""A number above each prefix."""
_NAME = "seen-"
_SPREAD = 0x9E37_79B1


def columns_of(octets: tuple[bytes, bytes]) -> Keys:
    """Keys from the bytes that a kernel returns."""
    return np.frombuffer(octets[0], np.uint16), np.frombuffer(octets[1], np.uint64)


def prefixes_of(slots: Slots, fingerprints: Prints) -> Prints:
    """The upper 64 of the 68 bits of each key. Keys in order have prefixes in order."""
    found: Prints = slots.astype(np.uint64) << np.uint64(52) | fingerprints >> np.uint64(4)
    return found


def remove_key_runs(files: Files) -> None:
    """Removes the files of an earlier process, as far as the disk allows."""
    for name in files.names():
        if name.startswith(_NAME) and name.endswith(SUFFIX):
            remove_if_possible(files, name)


class KeyRun:
    """A run of sorted, distinct keys. Made by `KeyRunWriter.finish`."""

    def __init__(self, files: Files, name: str, file: File, first: int, prefixes: Prints, rows: int) -> None:
        self.rows = rows
        self.bytes = len(prefixes) * PAGE_BYTES
        self._files = files
        self._name = name
        self._file = file
        self._first = first
        self._prefixes = prefixes
        self._closing = weakref.finalize(self, file.close)

    def __len__(self) -> int:
        return self.rows

    @property
    def memory_bytes(self) -> int:
        """The places of its pages."""
        return self._prefixes.nbytes

    def find(self, slots: Slots, fingerprints: Prints) -> npt.NDArray[np.bool_]:
        """Whether each of these ascending, distinct keys is in the run. Raises DamagedStoreError, naming file and
        byte."""
        found = np.zeros(len(slots), np.bool_)
        wanted = prefixes_of(slots, fingerprints)
        highs = np.maximum(self._prefixes.searchsorted(wanted, "right"), 1) - 1
        lows = highs.copy()
        # A page that begins with the prefix of the key: the key may be in the one before, too.
        shared = np.flatnonzero(self._prefixes[highs] == wanted)
        lows[shared] = np.maximum(self._prefixes.searchsorted(wanted[shared], "left"), 1) - 1
        start = 0
        while start < len(slots):
            # As many keys as have their pages in one read of bounded size.
            pages, end = self._pages_for(lows[start:], highs[start:])
            end += start
            octets = b"".join(self._octets(first, count) for first, count in _spans(pages))
            numbers = self._numbers(pages)
            try:
                answers = kernels.find_keys(octets, numbers, slots[start:end], fingerprints[start:end])
            except ValueError as error:
                raise self._damage(octets, pages) from error
            found[start:end] = np.frombuffer(answers, np.bool_)
            start = end
        return found

    @staticmethod
    def _pages_for(lows: npt.NDArray[np.intp], highs: npt.NDArray[np.intp]) -> tuple[npt.NDArray[np.intp], int]:
        """Returns the pages of the first keys, and how many keys these are."""
        end = max(int(highs.searchsorted(lows[0] + SEEN_FIND_PAGES, "left")), 1)
        lows, highs = lows[:end], highs[:end]
        pages = lows[np.append(True, lows[1:] != lows[:-1])]
        more = highs > lows
        if more.any():
            between = [np.arange(low, high + 1) for low, high in zip(lows[more], highs[more], strict=True)]
            pages = np.unique(np.concatenate([pages, *between]))
        return pages, end

    def _octets(self, first: int, pages: int) -> bytes:
        octets = self._file.read_at(first * PAGE_BYTES, pages * PAGE_BYTES)
        if len(octets) < pages * PAGE_BYTES:
            raise DamagedStoreError(f"{self._where(first + len(octets) // PAGE_BYTES)}: the file ends there")
        return octets

    def _numbers(self, pages: npt.NDArray[np.intp]) -> npt.NDArray[np.uint32]:
        return ((pages + self._first) & 0xFFFF_FFFF).astype(np.uint32)

    def _where(self, page: int) -> str:
        return f"{self._files.describe(self._name)} at byte {page * PAGE_BYTES}"

    def _damage(self, octets: bytes, pages: npt.NDArray[np.intp]) -> DamagedStoreError:
        """Names the first of these pages that is damaged."""
        for place, page in enumerate(pages.tolist()):
            some = octets[place * PAGE_BYTES : (place + 1) * PAGE_BYTES]
            try:
                kernels.unpack_keys(some, self._numbers(pages[place : place + 1]))
            except ValueError:
                return DamagedStoreError(
                    f"{self._where(page)}: a page of seen keys fails its checksum; "
                    "open the store again, and the file is made anew from the ledger"
                )
        return DamagedStoreError(f"{self._where(int(pages[0]))}: seen keys cannot be read")

    def read(self, first: int = 0, end: int = PREFIX_END) -> Iterator[Keys]:
        """Yields its keys with prefixes from `first` to below `end` in order, some thousand at once. Raises
        DamagedStoreError, naming file and byte."""
        begin, last = self._between(first, end)
        for place in range(max(begin - 1, 0), last, SEEN_READ_PAGES):  # keys of `first` may be in the page before
            pages = np.arange(place, min(place + SEEN_READ_PAGES, last))
            octets = self._octets(place, len(pages))
            try:
                slots, fingerprints = columns_of(kernels.unpack_keys(octets, self._numbers(pages)))
            except ValueError as error:
                raise self._damage(octets, pages) from error
            if first > 0 or end < PREFIX_END:
                prefixes = prefixes_of(slots, fingerprints)
                low = int(prefixes.searchsorted(np.uint64(first), "left"))
                high = int(prefixes.searchsorted(np.uint64(end), "left")) if end < PREFIX_END else len(prefixes)
                slots, fingerprints = slots[low:high], fingerprints[low:high]
            yield slots, fingerprints

    def page_prefixes(self, first: int, end: int) -> Prints:
        """Returns the prefixes from `first` to below `end` with which its pages begin."""
        place, last = self._between(first, end)
        return self._prefixes[place:last]

    def _between(self, first: int, end: int) -> tuple[int, int]:
        """Returns the first page that begins with a prefix from `first` on, and the first that begins with `end` or
        above."""
        last = int(self._prefixes.searchsorted(np.uint64(end), "left")) if end < PREFIX_END else len(self._prefixes)
        return int(self._prefixes.searchsorted(np.uint64(first), "left")), last

    def check(self) -> Iterator[str]:
        """Reads every page again: the first damage in words, naming file and byte."""
        try:
            for _ in self.read():
                pass
        except DamagedStoreError as error:
            yield str(error)

    def remove(self) -> bool:
        """Closes the file and removes it. Returns whether the disk allowed it."""
        self._closing()
        return remove_if_possible(self._files, self._name)


def _spans(pages: npt.NDArray[np.intp]) -> Iterator[tuple[int, int]]:
    """Yields (first, count) of pages in a row."""
    cuts = np.flatnonzero(np.diff(pages) > 1) + 1
    starts = [0, *cuts.tolist()]
    for start, end in zip(starts, [*starts[1:], len(pages)], strict=True):
        yield int(pages[start]), end - start


class KeyRunWriter:
    """Writes one run."""

    def __init__(self, files: Files, number: int) -> None:
        """number: of no other run of this process. Raises StoreFullError, StoreFailedError."""
        self.rows = 0
        self._files = files
        self._name = f"{_NAME}{number:08x}{SUFFIX}"
        self._first = number * _SPREAD & 0xFFFF_FFFF
        self._pages = 0
        self._prefixes: list[Prints] = []
        self._rest: Keys = (np.zeros(0, np.uint16), np.zeros(0, np.uint64))
        self._file: File | None = files.open(self._name, create=True)
        try:
            self._file.truncate(0)
        except StoreError:
            self.abandon()
            raise

    def add(self, slots: Slots, fingerprints: Prints) -> None:
        """Adds distinct, ascending keys above all keys before. Raises StoreFullError, StoreFailedError."""
        self.rows += len(slots)
        rest_slots, rest_prints = self._rest
        if len(rest_slots):
            slots, fingerprints = np.concatenate([rest_slots, slots]), np.concatenate([rest_prints, fingerprints])
        self._write(slots, fingerprints, whole=False)

    def _write(self, slots: Slots, fingerprints: Prints, *, whole: bool) -> None:
        if self._file is None:
            raise ValueError(f"{self._name} was finished or abandoned")
        first = self._first + self._pages & 0xFFFF_FFFF
        octets, taken = kernels.pack_keys(slots, fingerprints, first, whole)
        self._rest = (slots[taken:], fingerprints[taken:])
        if not octets:
            return
        self._file.write_at(self._pages * PAGE_BYTES, octets)
        heads = np.frombuffer(octets, np.uint8).reshape(-1, PAGE_BYTES)
        firsts = np.ascontiguousarray(heads[:, 12:14]).view(np.uint16)[:, 0]
        self._prefixes.append(prefixes_of(firsts, np.ascontiguousarray(heads[:, 14:22]).view(np.uint64)[:, 0]))
        self._pages += len(heads)

    def finish(self) -> KeyRun:
        """Writes the rest, and returns the run. Raises StoreFullError, StoreFailedError."""
        self._write(*self._rest, whole=True)
        file, self._file = self._file, None
        assert file is not None
        prefixes = np.concatenate(self._prefixes) if self._prefixes else np.zeros(0, np.uint64)
        return KeyRun(self._files, self._name, file, self._first, prefixes, self.rows)

    def abandon(self) -> None:
        """Removes the written part; after `finish` nothing happens."""
        if self._file is not None:
            self._file.close()
            self._file = None
            with contextlib.suppress(StoreError):
                remove_if_possible(self._files, self._name)


def merged_keys(runs: Sequence[KeyRun]) -> Iterator[Keys]:
    """The keys of several runs in order, each once, some thousand at once. Raises DamagedStoreError."""
    readers = [_Reader(run) for run in runs]
    while True:
        for reader in readers:
            if not len(reader.prefixes):
                reader.load()
        bounds = [reader.prefixes[-1] for reader in readers if reader.more]
        if not bounds:
            parts = [reader.take(len(reader.prefixes)) for reader in readers]
        else:
            # Keys with the prefix of the bound wait: the next page of a run may have more of them.
            bound = min(bounds)
            parts = [reader.take(int(reader.prefixes.searchsorted(bound, "left"))) for reader in readers]
            if not sum(len(slots) for slots, _ in parts):
                for reader in readers:
                    if reader.more and reader.prefixes[-1] == bound:
                        reader.load()
                continue
        slots, prints = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        if len(slots):
            yield columns_of(kernels.sort_keys(slots, prints))
        if not bounds:
            return


class _Reader:
    """The keys of a run that are read and not merged yet. more: whether the run has others."""

    def __init__(self, run: KeyRun) -> None:
        self.more = True
        self.slots: Slots = np.zeros(0, np.uint16)
        self.fingerprints: Prints = np.zeros(0, np.uint64)
        self.prefixes: Prints = np.zeros(0, np.uint64)
        self._pieces = run.read()

    def load(self) -> None:
        piece = next(self._pieces, None)
        if piece is None:
            self.more = False
            return
        self.slots = np.concatenate([self.slots, piece[0]])
        self.fingerprints = np.concatenate([self.fingerprints, piece[1]])
        self.prefixes = prefixes_of(self.slots, self.fingerprints)

    def take(self, count: int) -> Keys:
        taken = self.slots[:count], self.fingerprints[:count]
        self.slots, self.fingerprints = self.slots[count:], self.fingerprints[count:]
        self.prefixes = self.prefixes[count:]
        return taken
