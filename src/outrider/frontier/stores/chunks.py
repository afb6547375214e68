"""Chunks: some dozens of cards of one queue as bytes, a third of the size of the cards.

| count u8 | dictionary u8 | fingerprints u64 × count | zstd frame |. The frame contains the first order and due, the
first head without its fingerprint, a bit for each byte of it that differs between heads, the differing bytes column by
column (order and due as differences), and the bodies. Fingerprints are outside: they do not compress, and a search
reads only them.

`laid_out` writes the few cards of a short queue uncompressed.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from outrider.frontier.format.card_columns import Cards
from outrider.kernels.card_layout import HEAD, HEAD_BYTES
from outrider.limits import CHUNK_DICTIONARY_BYTES, CHUNK_SAMPLE_BYTES
from outrider.storage.record_columns import body_bytes

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CARDS_MAX = 255
"""The most cards of one chunk."""
_LEVEL = 3
_PRINT_BYTES = 8  # the fingerprint leads a head
_PLANES = HEAD_BYTES - _PRINT_BYTES
_FIRST = struct.Struct("<QQ")
_START = _FIRST.size + _PLANES + _PLANES // 8


class Packer:
    """Packs and unpacks chunks. The dictionary is made of the ends of the first chunks, which costs nothing. A trained
    one would save only 5 % more and need 70 ms in which all calls wait."""

    def __init__(self) -> None:
        self._samples = bytearray()
        self._dictionary: zstd.ZstdDict | None = None
        self._compressor = self._new_compressor()

    def _new_compressor(self) -> zstd.ZstdCompressor:
        options: dict[int, int] = {
            zstd.CompressionParameter.compression_level: _LEVEL,
            zstd.CompressionParameter.checksum_flag: 0,  # a chunk has its own
            zstd.CompressionParameter.dict_id_flag: 0,
        }
        dictionary = None if self._dictionary is None else self._dictionary.as_digested_dict
        return zstd.ZstdCompressor(options=options, zstd_dict=dictionary)

    @property
    def dictionary(self) -> bytes:
        """The dictionary of the chunks that have one; empty before there is one."""
        return b"" if self._dictionary is None else self._dictionary.dict_content

    def continue_from(self, dictionary: bytes) -> None:
        """Uses the dictionary of another packer, whose chunks it can then unpack."""
        self._dictionary = zstd.ZstdDict(dictionary, is_raw=True) if dictionary else None
        self._compressor = self._new_compressor()
        self._samples = bytearray()

    def pack(self, cards: Cards, spans: Sequence[tuple[int, int]]) -> list[bytes]:
        """Returns a chunk for each of these spans of rows (first, end), which have 1 to CARDS_MAX cards each. The spans
        ascend and do not overlap."""
        if not spans:
            return []
        starts, ends = np.array(spans, np.intp).T
        counts = ends - starts
        assert ((counts > 0) & (counts <= CARDS_MAX)).all(), spans
        planes = np.frombuffer(bytearray(cards.heads.tobytes()), np.uint8).reshape(len(cards), HEAD_BYTES)
        heads = planes.view(HEAD)[:, 0]
        first_orders, first_dues = heads["order"][starts].tolist(), heads["due"].view(np.uint64)[starts].tolist()
        for numbers in (heads["order"], heads["due"].view(np.uint64)):
            numbers[1:] -= numbers[:-1].copy()
            numbers[starts] = 0
        varied = _varied(planes, starts, counts)
        prints = planes[:, :_PRINT_BYTES].tobytes()
        rows = planes[starts, _PRINT_BYTES:].tobytes()
        bits = np.packbits(varied, axis=1).tobytes()
        columns = np.ascontiguousarray(planes[:, _PRINT_BYTES:].T)
        offsets = cards.offsets
        bodies = zip(offsets[starts].tolist(), offsets[ends].tolist(), strict=True)
        chunks: list[bytes] = []
        for place, ((start, end), (body, stop)) in enumerate(zip(spans, bodies, strict=True)):
            content = b"".join(
                (
                    _FIRST.pack(first_orders[place], first_dues[place]),
                    rows[_PLANES * place : _PLANES * (place + 1)],
                    bits[_PLANES // 8 * place : _PLANES // 8 * (place + 1)],
                    columns[varied[place], start:end].tobytes(),
                    cards.arena[body:stop],
                )
            )
            frame = self._compressor.compress(content, self._compressor.FLUSH_FRAME)
            flags = bytes((end - start, self._dictionary is not None))
            chunks.append(b"".join((flags, prints[_PRINT_BYTES * start : _PRINT_BYTES * end], frame)))
            if self._dictionary is None:
                self._sample(content)
        return chunks

    def _sample(self, content: bytes) -> None:
        """Adds the end of a chunk to the dictionary, which counts when it is long enough."""
        self._samples += content[-CHUNK_SAMPLE_BYTES:]
        if len(self._samples) >= CHUNK_DICTIONARY_BYTES:
            self._dictionary = zstd.ZstdDict(bytes(self._samples), is_raw=True)
            self._compressor = self._new_compressor()
            self._samples = bytearray()

    def unpack(self, chunk: bytes) -> Cards:
        """The cards of a chunk that this packer made."""
        count, with_dictionary = chunk[0], chunk[1]
        frame = chunk[2 + _PRINT_BYTES * count :]
        content = zstd.decompress(frame, zstd_dict=self._dictionary if with_dictionary else None)
        first_order, first_due = _FIRST.unpack_from(content)
        row = np.frombuffer(content, np.uint8, _PLANES, _FIRST.size)
        varied = np.unpackbits(np.frombuffer(content, np.uint8, _PLANES // 8, _FIRST.size + _PLANES)).view(np.bool_)
        width = int(np.count_nonzero(varied))
        heads = np.empty(count, HEAD)
        planes = heads.view(np.uint8).reshape(count, HEAD_BYTES)
        planes[:, :_PRINT_BYTES] = np.frombuffer(chunk, np.uint8, _PRINT_BYTES * count, 2).reshape(count, _PRINT_BYTES)
        planes[:, _PRINT_BYTES:] = row
        columns = np.frombuffer(content, np.uint8, width * count, _START).reshape(width, count)
        planes[:, _PRINT_BYTES + np.flatnonzero(varied)] = columns.T
        for name, first in (("order", first_order), ("due", first_due)):
            numbers = heads[name].view(np.uint64)
            numbers[0] = first
            numbers[:] = np.cumsum(numbers, dtype=np.uint64)
        offsets = np.zeros(count + 1, np.int64)
        sizes = heads["url_bytes"].astype(np.int64) + heads["referrer_bytes"] + heads["extra_bytes"]
        np.cumsum(sizes, out=offsets[1:])
        return Cards(heads, content[_START + width * count :], offsets)


def _varied(
    planes: npt.NDArray[np.uint8], starts: npt.NDArray[np.intp], counts: npt.NDArray[np.intp]
) -> npt.NDArray[np.bool_]:
    """Returns for each span of heads which bytes after the fingerprint differ in it: spans × bytes."""
    offsets = counts.cumsum() - counts
    rows = np.arange(int(counts.sum())) + (starts - offsets).repeat(counts)
    words = planes.view(np.uint64)[:, 1:]
    differing = np.bitwise_or.reduceat(words[rows] ^ words[starts.repeat(counts)], offsets, axis=0)
    found: npt.NDArray[np.bool_] = differing.view(np.uint8) != 0
    return found


def laid_out(counts: npt.NDArray[np.uint32], cards: Cards) -> list[bytes]:
    """Returns chunks of few cards, `counts` cards each, as they are in memory: | heads | bodies |. Packing one card
    needs ten times as long as writing it, and saves half of its bytes."""
    ends = counts.cumsum().tolist()
    heads, arena, offsets = cards.heads.tobytes(), cards.arena, cards.offsets.tolist()
    chunks, start = [], 0
    for end in ends:
        chunks.append(heads[HEAD_BYTES * start : HEAD_BYTES * end] + arena[offsets[start] : offsets[end]])
        start = end
    return chunks


def read_out(counts: Sequence[int], chunks: Sequence[bytes]) -> Cards:
    """The cards of chunks that were laid out, one chunk after the other."""
    some = list(zip((HEAD_BYTES * count for count in counts), chunks, strict=True))
    heads = np.frombuffer(b"".join([chunk[:end] for end, chunk in some]), HEAD)
    offsets = np.zeros(len(heads) + 1, np.int64)
    np.cumsum(body_bytes(heads), out=offsets[1:])
    return Cards(heads, b"".join([chunk[end:] for end, chunk in some]), offsets)


def fingerprints_of(chunk: bytes) -> npt.NDArray[np.uint64]:
    """The fingerprints of a chunk's cards, without unpacking it."""
    return np.frombuffer(chunk, "<u8", chunk[0], 2)
