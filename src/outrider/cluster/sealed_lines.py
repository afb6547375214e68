"""The lines of a cluster in object storage, so that no disk of a node is needed for them.

    NAME/lines/pages/NODE-0000000012.jsonl.gz     lines of one node; each object is written once
    NAME/lines/politeness/NODE-0000000013.jsonl.gz
    NAME/lines/without/0003-0000000002.json       the claim of partition 3 with epoch 2 found that these tokens do not
                                                  count: their pages are fetched again

A node notes its lines in the stores of its partitions after their objects are written. A node that claims a partition
of another node finds in the store which lines were noted. It writes the tokens of all later ones into `without`, before
it puts their pages back. So a page line counts if its token is in no such list, and each token counts once: a node that
was interrupted may write a line twice.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from outrider.cluster.page_shares import SharedObjects
from outrider.cluster.stores import OwnStore
from outrider.errors import DamagedStoreError

LINES_FOLDER: Final = "lines"
_PAGES: Final = "pages"
WITHOUT: Final = "without"
_LINES_NAME: Final = re.compile(r"(?P<node>.+)-(?P<number>\d{10})\.jsonl\.gz")


class _Without(msgspec.Struct, frozen=True):
    tokens: list[int]


_WITHOUT: Final = msgspec.json.Decoder(_Without)


class LineObjects:
    """Writes the lines of one node. One thread uses it."""

    def __init__(self, objects: SharedObjects, cluster: str, node: str, streams: Sequence[str]) -> None:
        """cluster: its name. streams: those that may be written."""
        self._objects, self._prefix, self._node, self._streams = objects, f"{cluster}/{LINES_FOLDER}/", node, streams
        self._last: int | None = None

    def write(self, stream: str, lines: bytes) -> None:
        """Writes whole lines as one object. Raises UnreachableError, and SettingsError for a store that refuses."""
        if self._last is None:
            self._last = self._newest()
        packed = gzip.compress(lines, compresslevel=6, mtime=0)
        while True:
            self._last += 1  # an attempt without an answer may have taken the number
            if self._objects.create(f"{self._prefix}{stream}/{self._node}-{self._last:010}.jsonl.gz", packed):
                return

    def _newest(self) -> int:
        numbers = [0]
        for stream in self._streams:
            for name in self._objects.names(f"{self._prefix}{stream}/{self._node}-"):
                found = _LINES_NAME.fullmatch(name.rpartition("/")[2])
                numbers.append(int(found["number"]) if found is not None else 0)
        return max(numbers)


def write_without(objects: SharedObjects, cluster: str, partition: int, epoch: int, tokens: Sequence[int]) -> None:
    """Says that lines do not count. Call it before their pages are put back. Raises UnreachableError."""
    name = f"{cluster}/{LINES_FOLDER}/{WITHOUT}/{partition:04}-{epoch:010}.json"
    objects.create(name, msgspec.json.encode(_Without(list(tokens))))


class _PageToFetch(msgspec.Struct):
    url: str
    token: int


_PAGES_TO_FETCH: Final = msgspec.json.Decoder(_PageToFetch)


def put_back(store: OwnStore, objects: SharedObjects, cluster: str) -> int:
    """Queues the pages again whose lines the former owner of a store has not sealed. Returns how many. Raises
    StoreError, UnreachableError."""
    after = store.frontier.projection(_PAGES)[1]
    pages = [_PAGES_TO_FETCH.decode(line) for _, line in store.frontier.lines(_PAGES, after)]
    if not pages:
        return 0
    write_without(objects, cluster, store.number, store.owned.changelog.epoch, [page.token for page in pages])
    count: int = store.frontier._put_back(list(dict.fromkeys(page.url for page in pages)))
    return count


class SealedLines:
    """The lines of all nodes, in any order."""

    def __init__(self, objects: SharedObjects, cluster: str) -> None:
        """Raises UnreachableError."""
        self._objects, self._prefix = objects, f"{cluster}/{LINES_FOLDER}/"

    def not_counted(self) -> set[int]:
        """Returns the tokens of lines that do not count. Raises DamagedStoreError, UnreachableError."""
        tokens: set[int] = set()
        for name in self._objects.names(f"{self._prefix}{WITHOUT}/"):
            try:
                tokens.update(_WITHOUT.decode(self._read(name)).tokens)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise DamagedStoreError(f"the object {name} is not a list of tokens ({error}); restore it") from None
        return tokens

    def of(self, stream: str) -> Iterator[tuple[str, str, bytes]]:
        """Yields (node, name of the object, line). Raises DamagedStoreError, UnreachableError."""
        for name in self._objects.names(f"{self._prefix}{stream}/"):
            found = _LINES_NAME.fullmatch(name.rpartition("/")[2])
            if found is None:
                continue  # another program has written it
            try:
                lines = gzip.decompress(self._read(name))
            except (OSError, EOFError, zlib.error) as error:
                raise DamagedStoreError(f"the object {name} is damaged ({error}); restore it") from None
            for line in lines.splitlines():
                yield found["node"], name, line

    def _read(self, name: str) -> bytes:
        octets = self._objects.read(name)
        if octets is None:
            raise DamagedStoreError(f"the object {name} is missing")
        return octets
