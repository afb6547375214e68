"""How far the line files of a node reach: `DIR/cluster/places.json`, written after the files are synced.

lengths: of the line files. stores: for each partition the epoch of the claim and the LSN of its last line in the
files. A node that starts again cuts the files at these lengths, and writes the later lines of each partition that it
claims again and that no other node has claimed meanwhile.

The store of a partition knows whose lines its log has: a place of its own says node, epoch, and whether the owner gave
it up in good order. Another owner puts pages back whose lines are after the last noted place: their files may be lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from outrider.cluster.stores import OwnStore
from outrider.errors import DamagedStoreError
from outrider.limits import PLACES_FILE_BYTES_MAX
from outrider.storage.files import Files, read_whole, replace

PLACES_FILE: Final = "places.json"
OWNER: Final = "owner"
"""The name of the place in a store that says who writes its lines."""


class OutputOwner(msgspec.Struct, frozen=True):
    """Who writes the lines of a store. closed: given up in good order, with all lines noted."""

    node: str
    epoch: int
    closed: bool = False

    @classmethod
    def of(cls, store: OwnStore) -> OutputOwner | None:
        """Returns what a store says; None for a new store."""
        told = store.frontier.watermarks().get(OWNER)
        return None if told is None else msgspec.json.decode(told, type=cls)

    def note(self, store: OwnStore) -> None:
        """Makes it durable in a store."""
        store.frontier.note_watermark(OWNER, msgspec.json.encode(self))


class _Content(msgspec.Struct):
    lengths: dict[str, int] = {}
    watermarks: dict[str, str] = {}
    stores: dict[str, tuple[int, int]] = {}


class Places:
    """The places of one node. One thread uses it."""

    def __init__(self, files: Files, streams: Sequence[str]) -> None:
        """Raises DamagedStoreError."""
        self._files, self._streams = files, tuple(streams)
        try:
            octets = read_whole(files, PLACES_FILE, bytes_max=PLACES_FILE_BYTES_MAX)
            self._content = msgspec.json.decode(octets, type=_Content)
        except FileNotFoundError:
            self._content = _Content()
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DamagedStoreError(f"{files.describe(PLACES_FILE)} cannot be read ({error}); restore it") from None
        self.archive: bytes | None = None
        """The end of the archive, as found at the start."""

    # -- as the frontier's, for the output ----------------------------------------------------------------------------

    def projection(self, stream: str) -> tuple[int, int]:
        """Returns the length of a line file."""
        length = self._content.lengths.get(stream, 0)
        return length, 1 if length else 0

    def note_projection(self, stream: str, length: int, _lsn: int) -> None:
        """Notes the synced length of a line file; `commit` writes it."""
        self._content.lengths[stream] = length

    def watermarks(self) -> dict[str, bytes]:
        """Returns the places of writers."""
        found = {name: value.encode() for name, value in self._content.watermarks.items()}
        return found if self.archive is None else {**found, "archive": self.archive}

    def note_watermark(self, writer: str, value: bytes) -> None:
        """Notes a place; `commit` writes it."""
        self._content.watermarks[writer] = value.decode()

    # -- for the node -------------------------------------------------------------------------------------------------

    def of_store(self, store: OwnStore, owner: OutputOwner) -> int | None:
        """Returns the LSN of the last line of a store in the files, if they have all earlier lines of this owner."""
        epoch, lsn = self._content.stores.get(str(store.number), (0, 0))
        return lsn if epoch == owner.epoch else None

    def commit(self, stores: Sequence[OwnStore], each: Any) -> list[OwnStore]:
        """Writes the file with the places of these stores, and notes them in the stores: their logs need not keep these
        lines any more. The line files are synced. each: calls several stores at once.

        Returns the stores whose note does not count, because another node has claimed them before: that node puts the
        pages back whose lines are not noted. A note whose fate is unknown (no broker answers) is not among them: this
        node finds its lines in its files when it claims again."""
        changed = []
        for store in stores:
            known = self._content.stores.get(str(store.number))
            place = (store.owned.changelog.epoch, store.lsn)
            if known != place:
                self._content.stores[str(store.number)] = place
                changed.append(store)
        replace(self._files, PLACES_FILE, msgspec.json.encode(self._content))
        notes: dict[int, int] = {}  # the LSN of the note of each store

        def note(store: OwnStore) -> bool:
            lsn = self._content.stores[str(store.number)][1]
            lengths = self._content.lengths
            notes[store.number] = store.frontier._note_projections(
                {stream: (lengths.get(stream, 0), lsn) for stream in self._streams}
            )
            store.frontier._durable(notes[store.number])
            return True

        return [
            store
            for store, noted in zip(changed, each(changed, note), strict=True)
            if noted is None
            and (store.number not in notes or store.owned.changelog.counts(notes[store.number]) is False)
        ]
