"""The objects of a cluster in object storage: its manifest, and the snapshots of its partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from outrider.cluster.description import MANIFEST_OBJECT, ClusterFile, ClusterManifest
from outrider.errors import SettingsError
from outrider.storage.object_address import checked_object_store
from outrider.storage.object_store import ObjectStore, pieces_of


class ClusterObjects:
    """The objects of one cluster."""

    def __init__(self, address: str) -> None:
        """address: `s3://BUCKET/PREFIX`, or `file:FOLDER` for nodes that share a folder. Raises SettingsError."""
        try:
            self._store = ObjectStore(checked_object_store(address))
        except SettingsError as error:
            # Without the address itself: it may contain a secret.
            raise SettingsError(f"objects cannot be used: {error.facts}") from None

    def create(self, name: str, octets: bytes) -> bool:
        """Writes an object unless its name is taken. Returns whether it was written."""
        return self._store.put_new(name, octets)

    def read(self, name: str) -> bytes | None:
        """Returns an object; None if there is none."""
        found = self._store.find(name)
        return None if found is None else b"".join(pieces_of(self._store, name, found.bytes))

    def names(self, prefix: str) -> list[str]:
        """Returns the names that begin with a prefix, sorted."""
        return self._store.names(prefix)

    def of_partition(self, prefix: str) -> PartitionObjects:
        """Returns the objects of one partition."""
        return PartitionObjects(self._store, prefix)


class PartitionObjects:
    """The objects of one partition, with the methods of `cluster.snapshots.Objects`."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store, self._prefix = store, prefix

    def put(self, name: str, pieces: Iterable[bytes]) -> None:
        """As `Objects.put`."""
        self._store.put_new(self._prefix + name, b"".join(pieces))

    def get(self, name: str) -> Iterator[bytes]:
        """As `Objects.get`."""
        found = self._store.find(self._prefix + name)
        if found is None:
            raise FileNotFoundError(self._prefix + name)
        yield from pieces_of(self._store, self._prefix + name, found.bytes)

    def names(self, prefix: str) -> list[str]:
        """As `Objects.names`."""
        return [name.removeprefix(self._prefix) for name in self._store.names(self._prefix + prefix)]

    def remove(self, name: str) -> None:
        """As `Objects.remove`."""
        self._store.remove(self._prefix + name)


def read_manifest(objects: ClusterObjects, file: ClusterFile) -> ClusterManifest:
    """Reads the manifest of a cluster. Raises SettingsError, DamagedStoreError, ForeignStoreError,
    UnreachableError."""
    octets = objects.read(f"{file.name}/{MANIFEST_OBJECT}")
    if octets is None:
        raise SettingsError(
            f"{file.objects} has no cluster with the name {file.name}; run `outrider cluster init {file.path}` first"
        )
    return ClusterManifest.of_octets(octets, f"{file.objects}: {file.name}/{MANIFEST_OBJECT}")
