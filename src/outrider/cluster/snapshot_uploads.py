"""The uploads of a node: a newer checkpoint of an own store becomes a snapshot, and what is older is deleted."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from outrider.cluster.description import ClusterManifest
from outrider.cluster.kafka import Brokers
from outrider.cluster.snapshots import Objects, delete_old, upload
from outrider.cluster.stores import OwnStore
from outrider.errors import DamagedStoreError, SettingsError
from outrider.storage.files import Directory


@dataclass(slots=True)
class _Uploaded:
    """Where the newest snapshot of this node begins. lsn: in the log; position: in the topic."""

    lsn: int = -1
    position: int = 0


class SnapshotUploads:
    """The snapshots of one node. One thread at a time calls it for a partition."""

    def __init__(
        self,
        manifest: ClusterManifest,
        brokers: Brokers,
        objects_of: Callable[[int], Objects],
        directory: str,
        say: Callable[[str], None],
    ) -> None:
        """directory: of the stores. say: prints a line for people."""
        self._manifest, self._brokers, self._objects_of = manifest, brokers, objects_of
        self._directory, self._say = directory, say
        self._uploaded = [_Uploaded() for _ in range(manifest.partitions)]
        self._not_deleted = ""

    def upload(self, store: OwnStore) -> None:
        """Uploads the newest checkpoint of a store, unless it is uploaded. Raises StoreError, UnreachableError."""
        last = self._uploaded[store.number]
        start = int(store.frontier.statistics()["checkpoint"]["start_lsn"])
        if start == last.lsn or not start:
            return
        # Frames with lines that are not sealed are necessary, too: the next owner puts their pages back.
        kept_after = store.frontier._log_kept_after()
        store.owned.changelog.settle()  # the notes of sealed lines count
        counting = store.owned.changelog.mark(kept_after)
        if counting.lsn > kept_after:
            return
        files = Directory(os.path.join(self._directory, f"{store.number:04d}"))
        try:
            done = upload(
                files,
                self._objects_of(store.number),
                store=bytes.fromhex(self._manifest.partition(store.number).store),
                counting=counting,
                start_lsn=start,
                kept_after=min(start, kept_after),
            )
        finally:
            files.close()
        if done is not None:
            before, last.lsn, last.position = last.position, start, done.position
            if before:  # a node that claims now may begin at the snapshot before this one: its frames stay
                self._brokers.trim("facts", store.number, before)
            self._delete_old(store.number)

    def _delete_old(self, number: int) -> None:
        """Deletes the old snapshots of a partition. The crawl continues if that is not possible."""
        try:
            delete_old(self._objects_of(number))
        except (SettingsError, DamagedStoreError) as error:
            if error.facts != self._not_deleted:
                self._not_deleted = error.facts
                self._say(f"old snapshots are not deleted: {error.facts}")
