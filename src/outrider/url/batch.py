"""Many URLs in columns: canonical texts in one arena of bytes, their parts and hashes as columns; strings on request.

    arena     http://a.org/xhttps://b.org:81/      ASCII, one text after the other
    offsets   0             14                 33  row i is arena[offsets[i]:offsets[i + 1]]

Every input row keeps its place. A row that is not an http or https URL has an empty text, `valid` is False for it, and
it has no key. So results match the input row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, cast, overload

import numpy as np
import numpy.typing as npt

from outrider import kernels
from outrider.kernels.framing import Bytes
from outrider.kernels.urls import HTTPS, INVALID, ODD, SPELLED, USERINFO, Columns
from outrider.url import arrow
from outrider.url.keys import BY, By, registrable_domains
from outrider.url.keys import key as key_of
from outrider.url.spelling import BasePage, Canonical, Parsed, as_rows, host_of, opened, parsed

NO_KEY = 2**32 - 1
"""The code of a row without a key, which is one that is not valid."""
UNKEYED = bytes(kernels.FINGERPRINT_KEY_BYTES)
"""The default key of fingerprints: good within one program, but not against collisions on purpose."""

Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]
Uint8s = npt.NDArray[np.uint8]
Uint32s = npt.NDArray[np.uint32]
Uint64s = npt.NDArray[np.uint64]

_ODD_BYTE, _INVALID_BYTE = bytes((ODD,)), bytes((INVALID,))
_SHOWN = 3
_DOT = ord(".")
_ROWS_PER_STEP = 1_024  # made strings at a time when a batch is gone through: some 100 KB


class Keys(NamedTuple):
    """The keys of a batch: `names[codes[row]]` for a valid row; the code of any other row is NO_KEY."""

    codes: Uint32s
    names: list[str]
    """Each key once, in order of appearance."""


class Spans(NamedTuple):
    """Pieces of an arena, one per row: from `starts[row]` to `ends[row]`; empty for a row that is not valid."""

    starts: Int64s
    ends: Int64s


class UrlBatch:
    """URLs in columns; it never changes. Made by `of`, `from_buffers`, `from_arrow` or `concatenate`.

    Iterating yields the canonical strings of the valid rows; `len` counts all rows. `batch[i]` is the string of a row,
    "" if it is not valid; `batch[a:b]` is a batch.
    """

    __slots__ = (
        *("_arena", "_columns", "_cut_from", "_flags", "_hashes", "_host_lengths", "_host_spans", "_offsets"),
        *("_path_starts", "_valid"),
    )
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        arena: bytes,
        offsets: Int64s,
        valid: Bools,
        flags: Uint8s,
        host_lengths: Uint32s,
        path_starts: Uint32s,
        columns: Mapping[str, npt.NDArray[Any]] = MappingProxyType({}),
    ) -> None:
        """Uses canonical columns as they are; `of` makes them."""
        self._arena = arena
        self._offsets = _frozen(offsets)
        self._valid = _frozen(valid)
        self._flags = flags
        self._host_lengths = host_lengths
        self._path_starts = path_starts
        self._columns = {name: _frozen(column) for name, column in columns.items()}
        self._hashes: dict[tuple[str, bytes], Uint64s] = {}
        self._cut_from: tuple[UrlBatch, int, int] | None = None
        self._host_spans: Spans | None = None

    # -- making -------------------------------------------------------------------------------------------------------

    @classmethod
    def of(cls, urls: Iterable[object], base: str | Canonical | None = None, *, key: bytes | None = None) -> UrlBatch:
        """Returns the batch of these URLs in canonical spelling, relative to `base` if there is one. A batch is
        returned unchanged.

        An item that is not a `str` or `Url`, or not a URL that can be crawled, becomes a row that is not valid. If
        `base` is not an absolute URL, all rows do. With a `key` of 16 bytes, the same pass computes the fingerprints.
        """
        if isinstance(urls, UrlBatch):
            return urls
        rows = as_rows(urls)
        page = opened(base)
        if page is None:
            rows, page = [None] * len(rows), BasePage()
        columns = kernels.spell_urls(rows, page.canonical, key)
        if _INVALID_BYTE in columns[2] and any(isinstance(row, Canonical) for row in rows):
            return cls.of([row.text if isinstance(row, Canonical) else row for row in rows], base, key=key)
        return cls._drained(columns, lambda row: cast(str, rows[row]), page, key)

    @classmethod
    def from_arrow(cls, array: object, base: str | None = None, *, key: bytes | None = None) -> UrlBatch:
        """As `of`, for an Arrow array of texts: any object with `__arrow_c_array__`, the Arrow PyCapsule interface.

        Texts are read without a copy. A null is a row that is not valid; bytes that are not UTF-8 become U+FFFD, as in
        a browser. Raises TypeError for another object.
        """
        texts = arrow.texts_of(array)
        if texts.nulls is None:
            return cls.from_buffers(texts.octets, texts.offsets, base, key=key)
        # Nulls are rare, and must not become empty references: use strings.
        rows = [None if null else texts.text(row) for row, null in enumerate(texts.nulls.tolist())]
        return cls.of(rows, base, key=key)

    @classmethod
    def from_buffers(
        cls, octets: Bytes, offsets: Int64s, base: str | None = None, *, key: bytes | None = None
    ) -> UrlBatch:
        """As `of`, for texts in UTF-8 in one buffer: row i is octets[offsets[i]:offsets[i + 1]].

        Raises ValueError when a row is outside the buffer, BufferError for offsets that are not int64.
        """
        if np.ndim(offsets) != 1 or not len(offsets):
            raise ValueError("offsets are one row of numbers: where each URL begins, and where the last ends")
        page = opened(base)
        if page is None:
            return cls.of([None] * (len(offsets) - 1), key=key)
        columns = kernels.spell_arena(octets, offsets, page.canonical, key)
        view = memoryview(octets)
        return cls._drained(
            columns, lambda row: bytes(view[offsets[row] : offsets[row + 1]]).decode("utf-8", "replace"), page, key
        )

    @classmethod
    def of_columns(
        cls,
        arena: bytes,
        offsets: bytes,
        flags: bytes,
        host_lengths: bytes,
        path_starts: bytes,
        hashes: bytes = b"",
        host_hashes: bytes = b"",
        *,
        key: bytes | None = None,
    ) -> UrlBatch:
        """Returns the batch of canonical URLs in columns from a kernel, all valid. With a `key`, `columns` ends with
        the fingerprints of URLs and hosts under it."""
        numbers = np.frombuffer(flags, np.uint8)
        batch = cls(
            arena,
            np.frombuffer(offsets, np.int64),
            np.ones(len(numbers), np.bool_),
            numbers,
            np.frombuffer(host_lengths, np.uint32),
            np.frombuffer(path_starts, np.uint32),
        )
        if key is not None:
            for what, column in (("url", hashes), ("host", host_hashes)):
                batch._hashes[what, bytes(key)] = np.frombuffer(column, np.uint64)
        return batch

    @classmethod
    def concatenate(cls, batches: Iterable[UrlBatch]) -> UrlBatch:
        """The rows of several batches, one after the other. Raises ValueError when their further columns differ."""
        parts = list(batches)
        if len(parts) < 2:
            return parts[0] if parts else cls.of(())
        whole = _rejoined(parts)
        if whole is not None:
            return whole
        first = parts[0]
        for part in parts:
            if part._columns.keys() != first._columns.keys():
                told = [", ".join(sorted(one._columns)) or "none" for one in (first, part)]
                raise ValueError(f"batches with different columns cannot be put together: {' | '.join(told)}")
        sizes = np.array([0, *(len(part._arena) for part in parts)], dtype=np.int64).cumsum()
        offsets = [part._offsets[:-1] + size for part, size in zip(parts, sizes[:-1], strict=True)]
        joined = cls(
            b"".join(part._arena for part in parts),
            np.concatenate([*offsets, sizes[-1:]]),
            np.concatenate([part._valid for part in parts]),
            np.concatenate([part._flags for part in parts]),
            np.concatenate([part._host_lengths for part in parts]),
            np.concatenate([part._path_starts for part in parts]),
            {name: np.concatenate([part._columns[name] for part in parts]) for name in first._columns},
        )
        for what in first._hashes:
            if all(what in part._hashes for part in parts):
                joined._hashes[what] = _frozen(np.concatenate([part._hashes[what] for part in parts]))
        return joined

    @classmethod
    def _drained(cls, columns: Columns, text_of: Callable[[int], str], page: BasePage, key: bytes | None) -> UrlBatch:
        """Returns the batch of a kernel's spellings; the parser spells the rows that the kernel leaves."""
        arena, offset_bytes, state_bytes, *others = columns
        offsets, states = np.frombuffer(offset_bytes, np.int64), np.frombuffer(state_bytes, np.uint8)
        flags = np.frombuffer(others[0], np.uint8)
        host_lengths, path_starts = np.frombuffer(others[1], np.uint32), np.frombuffer(others[2], np.uint32)
        valid = states == SPELLED
        found: dict[int, Parsed] = {}
        if _ODD_BYTE in state_bytes:
            for row in np.flatnonzero(states == ODD).tolist():
                parts = parsed(text_of(row), page)
                if parts is not None:
                    found[row] = parts
        texts = [parts.canonical for parts in found.values()]
        hosts = [host_of(text) for text in texts]
        if found:
            rows = list(found)
            arena, offsets = _spliced(arena, offsets, rows, texts)
            valid[rows] = True
            flags, host_lengths, path_starts = flags.copy(), host_lengths.copy(), path_starts.copy()
            flags[rows] = [
                (HTTPS if text[4] == "s" else 0) | (USERINFO if parts.has_userinfo else 0)
                for text, parts in zip(texts, found.values(), strict=True)
            ]
            host_lengths[rows] = [len(host) for host in hosts]
            path_starts[rows] = [text.index("/", 8) for text in texts]
        batch = cls(arena, offsets, valid, flags, host_lengths, path_starts)
        if key is not None:
            for what, hashes, ours in (("url", others[3], texts), ("host", others[4], hosts)):
                numbers = np.frombuffer(hashes, np.uint64)
                if found:
                    numbers = numbers.copy()
                    numbers[list(found)] = np.frombuffer(kernels.fingerprints(ours, key), np.uint64)
                batch._hashes[what, bytes(key)] = _frozen(numbers)
        return batch

    # -- columns ------------------------------------------------------------------------------------------------------

    @property
    def arena(self) -> bytes:
        """The canonical texts, one after the other; ASCII."""
        return self._arena

    @property
    def offsets(self) -> Int64s:
        """Where each row begins in the arena, and where the last ends: as Arrow's large_utf8 has them."""
        return self._offsets

    @property
    def valid(self) -> Bools:
        """Whether each row is a URL that can be crawled."""
        return self._valid

    @property
    def lengths(self) -> Int64s:
        """Bytes of each row."""
        lengths: Int64s = self._offsets[1:] - self._offsets[:-1]
        return lengths

    @property
    def has_userinfo(self) -> Bools:
        """Whether each row had a user or password; they were dropped."""
        found: Bools = (self._flags & USERINFO) != 0
        return found

    @property
    def secure(self) -> Bools:
        """Whether the scheme of each row is https."""
        found: Bools = (self._flags & HTTPS) != 0
        return found

    @property
    def columns(self) -> Mapping[str, npt.NDArray[Any]]:
        """The additional columns by name, from `with_columns`."""
        return MappingProxyType(self._columns)

    def texts(self) -> Spans:
        """The start and end of each row's text in the arena."""
        return Spans(self._offsets[:-1], self._offsets[1:])

    def hosts(self) -> Spans:
        """The start and end of each row's host in the arena, IPv6 with its brackets."""
        if self._host_spans is None:
            # "http://" has seven bytes, "https://" eight; a row that is not valid has no bytes, and no host.
            starts: Int64s = self._offsets[:-1] + np.where(self._valid, 7 + (self._flags & HTTPS), 0)
            self._host_spans = Spans(_frozen(starts), _frozen(starts + self._host_lengths))
        return self._host_spans

    def dotted(self) -> npt.NDArray[np.intp]:
        """The rows whose host ends with a dot that `outrider.url.undotted` removes."""
        starts, ends = self.hosts()
        if not len(self._arena):
            return np.zeros(0, np.intp)
        octets = np.frombuffer(self._arena, np.uint8)
        rows: npt.NDArray[np.intp] = ((octets[ends - 1] == _DOT) & (ends - starts > 1)).nonzero()[0]
        return rows[octets[ends[rows] - 2] != _DOT] if len(rows) else rows

    def clock_hosts(self) -> Spans:
        """The start and end in the arena of each row's host for politeness: without the dot at its end."""
        starts, ends = self.hosts()
        rows = self.dotted()
        if len(rows):
            ends = ends.copy()
            ends[rows] -= 1
        return Spans(starts, ends)

    def origins(self) -> Spans:
        """The start and end of scheme, host and port of each row in the arena; each such authority has one
        robots.txt."""
        starts = self._offsets[:-1]
        return Spans(starts, starts + self._path_starts.astype(np.int64))

    def paths(self) -> Spans:
        """The start and end of path and query of each row in the arena, from the first slash on."""
        return Spans(self._offsets[:-1] + self._path_starts.astype(np.int64), self._offsets[1:])

    def fingerprints(self, key: bytes = UNKEYED) -> Uint64s:
        """The 64-bit fingerprint of each text (SipHash-1-3) under a key of 16 bytes; rows that are not valid have that
        of the empty text. Kept per key. Raises ValueError for a key of another size."""
        return self._hashed("url", self.texts, key)

    def host_fingerprints(self, key: bytes = UNKEYED) -> Uint64s:
        """The same of each host."""
        return self._hashed("host", self.hosts, key)

    def clock_fingerprints(self, key: bytes = UNKEYED) -> Uint64s:
        """As `host_fingerprints`, of each host for politeness, without the dot at its end."""
        place = ("clock", bytes(key))
        known = self._hashes.get(place)
        if known is None:
            known = self.host_fingerprints(key)
            rows = self.dotted()
            if len(rows):
                starts, ends = self.hosts()
                octets = kernels.hash_spans(self._arena, starts[rows], ends[rows] - 1, key)
                known = known.copy()
                known[rows] = np.frombuffer(octets, np.uint64)
            self._hashes[place] = _frozen(known)
        return known

    def _hashed(self, what: str, spans: Callable[[], Spans], key: bytes) -> Uint64s:
        if not isinstance(key, bytes | bytearray | memoryview):
            raise TypeError(f"a fingerprint key is {kernels.FINGERPRINT_KEY_BYTES} bytes, not a {type(key).__name__}")
        place = (what, bytes(key))
        known = self._hashes.get(place)
        if known is None:
            known = np.frombuffer(kernels.hash_spans(self._arena, *spans(), key), np.uint64)
            self._hashes[place] = known
        return known

    # -- keys ---------------------------------------------------------------------------------------------------------

    def keys(
        self,
        by: By | Callable[[str], str] = "host",
        *,
        private: bool = True,
        addresses: Mapping[str, str] = MappingProxyType({}),
    ) -> Keys:
        """Returns the key of each row, by number, and the keys.

        by         "host", "domain", "origin", "address", or a function from canonical URL to key: as `outrider.url.key`
        private    for "domain": whether the private section of the public suffix list applies
        addresses  for "address": the known addresses of hosts

        Each host is handled once, however many rows it has. Raises ValueError for another `by`, TypeError when a
        function does not return a text.
        """
        if callable(by):
            return self._coded(self.strings(), lambda url: key_of(url, by))
        if by not in BY:
            raise ValueError(f"a key is made by {', '.join(BY)} or a function, not by {by!r}")
        codes, names = self._distinct(self.origins() if by == "origin" else self.hosts())
        if by == "domain":
            return _renamed(
                codes, [domain or host for domain, host in zip(registrable_domains(names, private), names, strict=True)]
            )
        if by == "address":
            found = [key_of(f"http://{host}/", "address", address=addresses.get(host)) for host in names]
            return _renamed(codes, found)
        return Keys(codes, names)

    def group(self, by: By | Callable[[str], str] = "host") -> dict[str, npt.NDArray[np.intp]]:
        """The numbers of the valid rows of each key, in order; for `take`."""
        codes, names = self.keys(by)
        rows = np.argsort(codes, kind="stable")
        bounds = np.searchsorted(codes[rows], np.arange(len(names) + 1)).tolist()
        return {name: rows[start:end] for name, start, end in zip(names, bounds[:-1], bounds[1:], strict=True)}

    def _distinct(self, spans: Spans) -> Keys:
        rows = np.flatnonzero(~self._valid)
        starts, ends = spans
        if len(rows):
            starts, ends = starts[self._valid], ends[self._valid]
        code_bytes, first_bytes = kernels.distinct_spans(self._arena, starts, ends)
        codes, firsts = np.frombuffer(code_bytes, np.uint32), np.frombuffer(first_bytes, np.uint32)
        names = kernels.texts_of_spans(self._arena, starts[firsts], ends[firsts])
        if len(rows):
            all_codes = np.full(len(self), NO_KEY, dtype=np.uint32)
            all_codes[self._valid] = codes
            codes = all_codes
        return Keys(codes, names)

    def _coded(self, urls: Sequence[str], name_of: Callable[[str], str]) -> Keys:
        numbers: dict[str, int] = {}
        codes = [numbers.setdefault(name_of(url), len(numbers)) if url else NO_KEY for url in urls]
        return Keys(np.array(codes, dtype=np.uint32), list(numbers))

    # -- strings ------------------------------------------------------------------------------------------------------

    def strings(self, rows: npt.ArrayLike | None = None) -> list[str]:
        """The canonical strings of these rows, all by default; "" for one that is not valid."""
        starts, ends = self.texts()
        if rows is not None:
            chosen = _row_numbers(rows)
            starts, ends = starts[chosen], ends[chosen]
        return kernels.texts_of_spans(self._arena, starts, ends)

    def __len__(self) -> int:
        return len(self._valid)

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _ROWS_PER_STEP):
            rows = np.arange(start, min(start + _ROWS_PER_STEP, len(self)))
            yield from (url for url in self.strings(rows) if url)

    def __reduce__(self) -> tuple[Callable[..., UrlBatch], tuple[object, ...]]:
        """For copies and other processes; hashes are made there anew."""
        parts = (self._arena, self._offsets, self._valid, self._flags, self._host_lengths, self._path_starts)
        return UrlBatch, (*parts, dict(self._columns))

    @overload
    def __getitem__(self, row: int) -> str: ...
    @overload
    def __getitem__(self, row: slice) -> UrlBatch: ...
    def __getitem__(self, row: int | slice) -> str | UrlBatch:
        if isinstance(row, slice):
            start, stop, step = row.indices(len(self))
            if (start, step) == (0, 1) and stop == len(self):
                return self  # it never changes
            return self._piece(start, stop) if step == 1 and start < stop else self.take(np.arange(start, stop, step))
        return self.strings([row])[0]

    def __repr__(self) -> str:
        shown = ", ".join(self.strings(np.flatnonzero(self._valid)[:_SHOWN]))
        wrong = len(self) - int(self._valid.sum())
        parts = [f"{len(self)} URLs", *([f"{wrong} not valid"] if wrong else []), *self._columns]
        more = ", …" if len(self) - wrong > _SHOWN else ""
        return f"<UrlBatch: {', '.join(parts)}{': ' if shown else ''}{shown}{more}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, UrlBatch):
            return NotImplemented
        return (
            self._arena == other._arena
            and np.array_equal(self._offsets, other._offsets)
            and np.array_equal(self._valid, other._valid)
            and np.array_equal(self._flags, other._flags)
            and self._columns.keys() == other._columns.keys()
            and all(np.array_equal(column, other._columns[name]) for name, column in self._columns.items())
        )

    # -- other batches ------------------------------------------------------------------------------------------------

    def take(self, rows: npt.ArrayLike) -> UrlBatch:
        """The batch of these rows, in this order. Raises IndexError for a row that is not there."""
        chosen = _row_numbers(rows)
        starts, ends = self._offsets[:-1][chosen], self._offsets[1:][chosen]
        offsets = np.zeros(len(chosen) + 1, dtype=np.int64)
        np.cumsum(ends - starts, out=offsets[1:])
        return self._picked(chosen, kernels.gather_spans(self._arena, starts, ends), offsets)

    def _picked(self, chosen: npt.NDArray[Any], arena: bytes, offsets: Int64s) -> UrlBatch:
        """The batch of these rows, whose texts are these."""
        picked = UrlBatch(
            arena,
            offsets,
            self._valid[chosen],
            self._flags[chosen],
            self._host_lengths[chosen],
            self._path_starts[chosen],
            {name: column[chosen] for name, column in self._columns.items()},
        )
        picked._hashes = {what: _frozen(hashes[chosen]) for what, hashes in self._hashes.items()}
        return picked

    def _piece(self, start: int, stop: int) -> UrlBatch:
        """Rows that follow one another: columns are looked at, not copied."""
        first, last = int(self._offsets[start]), int(self._offsets[stop])
        piece = UrlBatch(
            self._arena[first:last],
            self._offsets[start : stop + 1] - first,
            self._valid[start:stop],
            self._flags[start:stop],
            self._host_lengths[start:stop],
            self._path_starts[start:stop],
            {name: column[start:stop] for name, column in self._columns.items()},
        )
        piece._hashes = {what: hashes[start:stop] for what, hashes in self._hashes.items()}
        piece._cut_from = (self, start, stop)
        return piece

    def filter(self, mask: npt.ArrayLike) -> UrlBatch:
        """The batch of the rows for which `mask` is true. Raises ValueError for a mask of another length or type."""
        wanted = self._masked(mask)
        return self if wanted.all() else self.take(np.flatnonzero(wanted))

    def _masked(self, mask: npt.ArrayLike) -> Bools:
        wanted = np.asarray(mask)
        if wanted.dtype != np.bool_ or wanted.shape != (len(self),):
            raise ValueError(f"a mask of {len(self)} bools is needed, not {wanted.shape} of {wanted.dtype}")
        return wanted

    def unique(self, mask: npt.ArrayLike | None = None) -> UrlBatch:
        """The valid rows, each URL where it appears first; with a `mask`, of those rows for which it is true."""
        wanted = self._valid if mask is None else self._masked(mask) & self._valid
        arena, offsets, firsts = kernels.unique_spans(self._arena, *self.texts(), wanted)
        # Numbers of the index type: otherwise each column would convert them again.
        chosen = np.frombuffer(firsts, np.uint32).astype(np.intp)
        return self._picked(chosen, arena, np.frombuffer(offsets, np.int64))

    def with_columns(self, **columns: npt.ArrayLike) -> UrlBatch:
        """Returns the same URLs with additional columns: one value per row, or one for all rows. They follow `take`,
        `filter` and `concatenate`; a column of a known name replaces the old one. Texts are stored as objects. Raises
        ValueError for another number of values."""
        made = dict(self._columns)
        for name, values in columns.items():
            array = np.array(values)
            if array.dtype.kind in "US":
                array = np.array(values, dtype=object)  # numpy's own texts are all as wide as the widest
            if array.shape not in ((), (len(self),)):
                raise ValueError(f"column {name}: {len(self)} values are needed, not {array.shape}")
            made[name] = np.broadcast_to(array, (len(self),)).copy()
        batch = UrlBatch(
            self._arena, self._offsets, self._valid, self._flags, self._host_lengths, self._path_starts, made
        )
        batch._hashes = self._hashes
        return batch

    def without_columns(self) -> UrlBatch:
        """The same URLs without further columns."""
        if not self._columns:
            return self
        batch = UrlBatch(self._arena, self._offsets, self._valid, self._flags, self._host_lengths, self._path_starts)
        batch._hashes = self._hashes
        return batch


def _rejoined(parts: Sequence[UrlBatch]) -> UrlBatch | None:
    """Returns the joint rows of parts of one batch, or None for parts of different batches."""
    cuts = [part._cut_from for part in parts]
    if cuts[0] is None:
        return None
    batch, first, last = cuts[0]
    for cut in cuts[1:]:
        if cut is None or cut[0] is not batch or cut[1] != last:
            return None
        last = cut[2]
    return batch[first:last]


def _frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array.flags.writeable = False
    return array


def _row_numbers(rows: npt.ArrayLike) -> npt.NDArray[np.intp]:
    numbers = np.asarray(rows)
    if numbers.size == 0:
        return np.zeros(0, dtype=np.intp)
    if numbers.dtype.kind not in "iu" or numbers.ndim != 1:
        raise TypeError(f"rows are chosen by their numbers, not by {numbers.dtype}; for a mask there is filter")
    return numbers.astype(np.intp, copy=False)


def _spliced(arena: bytes, offsets: Int64s, rows: Sequence[int], texts: Sequence[str]) -> tuple[bytes, Int64s]:
    """Returns an arena with texts for rows that had no text."""
    lengths = np.diff(offsets)
    lengths[rows] = [len(text) for text in texts]
    pieces: list[bytes] = []
    done = 0
    for row, text in zip(rows, texts, strict=True):
        place = int(offsets[row])
        pieces += (arena[done:place], text.encode("ascii"))
        done = place
    pieces.append(arena[done:])
    spliced = np.zeros(len(offsets), dtype=np.int64)
    np.cumsum(lengths, out=spliced[1:])
    return b"".join(pieces), spliced


def _renamed(codes: Uint32s, names: Sequence[str]) -> Keys:
    """Keys under other names, of which several may be equal."""
    numbers: dict[str, int] = {}
    new = np.array([*(numbers.setdefault(name, len(numbers)) for name in names), NO_KEY], dtype=np.uint32)
    return Keys(new[np.minimum(codes, len(names))], list(numbers))
