"""How far the line files of a node are sealed: `DIR/cluster/places.json`, written after their lines are in object
storage.

lengths: of the line files. stores: for each partition the epoch of the claim and the LSN of its last line in the
files. A node that starts again cuts the files at these lengths, and writes the later lines of each partition that it
claims again and that no other node has claimed meanwhile.

The store of a partition knows whose lines its log has: a place of its own says node, epoch, and whether the owner gave
it up in good order. Another owner puts pages back whose lines are after the last noted place: they are not sealed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    """The writer of the lines of a store. closed: given up in good order, with all lines noted."""

    node: str
    epoch: int
    closed: bool = False

    @classmethod
    def of(cls, store: OwnStore) -> OutputOwner | None:
        """Returns the owner that a store has noted; None for a new store."""
        noted = store.frontier.watermarks().get(OWNER)
        return None if noted is None else _OWNERS.decode(noted)

    def note(self, store: OwnStore) -> None:
        """Makes it durable in a store."""
        store.frontier.note_watermark(OWNER, msgspec.json.encode(self))


_OWNERS: Final = msgspec.json.Decoder(OutputOwner)


class _Content(msgspec.Struct):
    lengths: dict[str, int] = {}
    watermarks: dict[str, str] = {}
    stores: dict[str, tuple[int, int]] = {}


_CONTENTS: Final = msgspec.json.Decoder(_Content)


class Places:
    """The places of one node. One thread uses it."""

    def __init__(self, files: Files, streams: Sequence[str]) -> None:
        """Raises DamagedStoreError."""
        self._files, self._streams = files, tuple(streams)
        try:
            octets = read_whole(files, PLACES_FILE, bytes_max=PLACES_FILE_BYTES_MAX)
            self._content = _CONTENTS.decode(octets)
        except FileNotFoundError:
            self._content = _Content()
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DamagedStoreError(f"{files.describe(PLACES_FILE)} cannot be read ({error}); restore it") from None
        self._synced = _Content()  # what `commit` adds
        self.archive: bytes | None = None
        """The end of the archive, as found at the start."""

    # -- as the frontier's, for the output ----------------------------------------------------------------------------

    def projection(self, stream: str) -> tuple[int, int]:
        """Returns the length of a line file."""
        length = self._content.lengths.get(stream, 0)
        return length, 1 if length else 0

    def note_projection(self, stream: str, length: int, _lsn: int) -> None:
        """Notes the synced length of a line file; `commit` writes it."""
        self._synced.lengths[stream] = length

    def watermarks(self) -> dict[str, bytes]:
        """Returns the places of writers."""
        texts = {**self._content.watermarks, **self._synced.watermarks}
        places = {name: value.encode() for name, value in texts.items()}
        return places if self.archive is None else {**places, "archive": self.archive}

    def note_watermark(self, writer: str, value: bytes) -> None:
        """Notes a place; `commit` writes it."""
        self._synced.watermarks[writer] = value.decode()

    # -- for the node -------------------------------------------------------------------------------------------------

    def of_store(self, store: OwnStore, owner: OutputOwner) -> int | None:
        """Returns the LSN of the last line of a store in the files, if they have all earlier lines of this owner."""
        epoch, lsn = self._content.stores.get(str(store.number), (0, 0))
        return lsn if epoch == owner.epoch else None

    def begin(self, store: OwnStore, lsn: int) -> None:
        """Notes that the lines of a store after this LSN come later, by this claim."""
        self._content.stores[str(store.number)] = (store.owned.changelog.epoch, lsn)
        self._write()

    def commit(self, lsns: Mapping[OwnStore, int], each: Any) -> list[OwnStore]:
        """Writes the file with the synced lengths and the last LSN of each store, and notes them in the stores: their
        logs need not keep these lines any more. The lines are sealed. each: calls several stores at once.

        Returns the stores whose note does not count, because another node has claimed them before: that node puts the
        pages back whose lines are not noted. A note whose fate is unknown (no broker answers) is not among them: this
        node finds its lines in its files when it claims again."""
        self._content.lengths.update(self._synced.lengths)
        self._content.watermarks.update(self._synced.watermarks)
        changed = []
        for store, lsn in lsns.items():
            place = (store.owned.changelog.epoch, lsn)
            if self._content.stores.get(str(store.number)) != place:
                self._content.stores[str(store.number)] = place
                changed.append(store)
        self._write()
        notes: dict[int, int] = {}  # the LSN of the note of each store

        def note(store: OwnStore) -> bool:
            notes[store.number] = self._note(store, lsns[store])
            store.frontier._durable(notes[store.number])
            return True

        return [
            store
            for store, noted in zip(changed, each(changed, note), strict=True)
            if noted is None
            and (store.number not in notes or store.owned.changelog.counts(notes[store.number]) is False)
        ]

    def note_all_before(self, store: OwnStore) -> None:
        """Notes in a store that no line up to now will be written: those of earlier owners are written, or their pages
        are put back."""
        store.frontier._durable(self._note(store, store.owned.changelog.lsn))

    def _note(self, store: OwnStore, lsn: int) -> int:
        lengths = self._content.lengths
        noted: int = store.frontier._note_projections([(name, lengths.get(name, 0), lsn) for name in self._streams])
        return noted

    def _write(self) -> None:
        replace(self._files, PLACES_FILE, msgspec.json.encode(self._content))
