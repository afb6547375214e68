"""Carries links between partitions: from the outboxes of own stores to the topic `urls`, and from there to own stores.

A partition that receives more slowly than others send slows them down. When `LINK_RECORDS_MAX` of its records wait,
nothing more is sent to it. The links stay in the outboxes of their stores, and a store with `LINKS_UNSENT_MAX` of them
leases nothing. Receiving needs no sending, so partitions never wait for each other in a circle.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

import msgspec

from outrider.cluster.description import ClusterManifest
from outrider.cluster.kafka import Brokers
from outrider.cluster.links import Parcel, Refused, packed_parcels, unpacked
from outrider.cluster.stores import OwnStore, OwnStores
from outrider.errors import ClosedError, DamagedStoreError, OutriderError, StoreError
from outrider.journey import Link
from outrider.limits import (
    CLUSTER_REFUSED_SAID_MAX,
    LINK_RECORDS_MAX,
    LINK_STORES_AT_ONCE,
    LINKS_CARRIED_AT_ONCE,
    LINKS_UNSENT_MAX,
    SLOTS,
)

_LINKS: Final = "links"
"""The name of the place up to which a store has received links."""


@dataclass(slots=True)
class _TopicPlace:
    """Where one partition is in the topic. received: the offset up to which its store has received links; noted: what
    the store says about that, changed under `noting`; trimmed: the offset before which this node has deleted the
    records."""

    received: int = 0
    noted: int = 0
    noting: threading.Lock = field(default_factory=threading.Lock)
    trimmed: int = 0


@dataclass(slots=True)
class _RecordBatch:
    """Records that a store receives at once, and their links."""

    records: list[tuple[int, bytes]]
    links: list[Link]
    parcels: list[Parcel]


class LinkTransport:
    """The links of one node. One thread calls `carry`, another one `receive`; any thread may call the rest."""

    def __init__(
        self,
        manifest: ClusterManifest,
        brokers: Brokers,
        stores: OwnStores,
        *,
        applied: Callable[[int], int],
        say: Callable[[str], None],
    ) -> None:
        """applied: up to which offset a partition has received its links, by the messages of all nodes. say: prints a
        line for people."""
        self._brokers, self._stores, self._applied, self._say = brokers, stores, applied, say
        self._places = [_TopicPlace() for _ in range(manifest.partitions)]
        self.refused = 0
        """Messages of this run that are not links. Changed under `_counting`."""
        self._ends = [0] * manifest.partitions  # the known ends of the partitions of the topic, under `_counting`
        self._counting = threading.Lock()
        self._reader = brokers.reader("urls")
        self._senders = ThreadPoolExecutor(LINK_STORES_AT_ONCE, thread_name_prefix="outrider-sends")
        self._receivers = ThreadPoolExecutor(LINK_STORES_AT_ONCE, thread_name_prefix="outrider-receives")
        self._size = SLOTS // manifest.partitions

    def opened(self, store: OwnStore) -> None:
        """Takes the place of a store that was opened."""
        place = self._places[store.number]
        place.received = place.noted = int(store.frontier.watermarks().get(_LINKS, b"0"))

    def received(self, number: int) -> int:
        """Returns the offset up to which an own store has received links."""
        return self._places[number].received

    # -- sending ------------------------------------------------------------------------------------------------------

    def carry(self) -> int:
        """Sends some links of each own store. Returns how many. Raises UnreachableError."""
        stores = []
        for store in self._stores.all():
            if store.frontier._in_transit:
                stores.append(store)
            else:
                store.slow_target, store.leases_wait = None, False
        return sum(count or 0 for count in self._stores.each(stores, self._carry_from, threads=self._senders))

    def _carry_from(self, store: OwnStore) -> int:
        if store.slow_target is not None and self._is_full(store.slow_target):
            self._slow_down(store)
            return 0
        parcels: list[Parcel] = store.frontier.outbox(LINKS_CARRIED_AT_ONCE)
        unsent = self._held_back(store, parcels)
        by_target: dict[int, list[Parcel]] = {}
        for parcel in _before(unsent, parcels):
            by_target.setdefault(self._target(parcel), []).append(parcel)
        sent = []
        for target, of_target in by_target.items():
            record, count = packed_parcels(store.number, of_target)
            sent.append((target, self._brokers.send(self._brokers.file.topic("urls"), target, record)))
            _leave_from(unsent, of_target[count:])
        for target, message in sent:
            end = message.offset() + 1
            with self._counting:
                self._ends[target] = max(self._ends[target], end)
        through: dict[int, int] = {}
        for parcel in _before(unsent, parcels):
            source, sequence = _sequence(parcel)
            through[source] = max(sequence, through.get(source, 0))
        if through:
            store.frontier.delivered(through)
        if len(parcels) < LINKS_CARRIED_AT_ONCE:
            store.leases_wait = False
        else:
            self._slow_down(store)
        return sum(map(len, by_target.values()))

    def _slow_down(self, store: OwnStore) -> None:
        """Lets a store lease nothing while too many of its links wait."""
        store.leases_wait = store.frontier._in_transit >= LINKS_UNSENT_MAX

    def _held_back(self, store: OwnStore, parcels: Sequence[Parcel]) -> dict[int, int]:
        """Returns for each source slot the first sequence that is not sent now: the links of a slot are sent in their
        order, and those for a partition with too many records wait."""
        store.slow_target = None
        found: dict[int, int] = {}
        full = {target: self._is_full(target) for target in {self._target(parcel) for parcel in parcels}}
        for parcel in parcels:
            if full[target := self._target(parcel)]:
                store.slow_target = target
                _leave_from(found, [parcel])
        return found

    def _is_full(self, target: int) -> bool:
        received = max(self._applied(target), self._places[target].received)
        return self._ends[target] - received >= LINK_RECORDS_MAX

    def _target(self, parcel: Parcel) -> int:
        return int(str(parcel[2])) // self._size

    # -- receiving ----------------------------------------------------------------------------------------------------

    def receive(self) -> int:
        """Waits a moment for links, and passes them to own stores. Returns the number of their records. Raises
        UnreachableError."""
        stores = {store.number: store for store in self._stores.all() if not store.leaves}
        if not stores:
            return 0
        records = self._reader.read({number: self.received(number) for number in stores})
        received = self._stores.each(
            [stores[number] for number in records],
            lambda store: self._receive_for(store, records[store.number]),
            threads=self._receivers,
        )
        return sum(count or 0 for count in received)

    def _receive_for(self, store: OwnStore, records: Sequence[tuple[int, bytes]] | None) -> int:
        """Passes links to one store. records: None if the topic has dropped them. Returns their number."""
        place = self._places[store.number]
        if records is None:
            # After a pause of this node, the new owner may have received and deleted these records. Else it is damage.
            store.owned.changelog.keep()
            raise DamagedStoreError(
                f"the topic {self._brokers.file.topic('urls')} has dropped the records of partition {store.number} "
                f"from offset {place.received} on, which are needed"
            )
        for batch in self._batches(store, records):
            self._apply(store, batch)
            place.received = batch.records[-1][0] + 1
        store.touch()
        return len(records)

    def _batches(self, store: OwnStore, records: Sequence[tuple[int, bytes]]) -> Iterator[_RecordBatch]:
        """Yields records in batches, because each call of a store waits for its changelog. A batch has links of nodes
        or of programs. Refused records are in a batch without their links."""
        batch = _RecordBatch([], [], [])
        for offset, octets in records:
            found = unpacked(octets)
            links = [found] if isinstance(found, Link) else []
            parcels = found if isinstance(found, list) else []
            mixed = bool(batch.links) if parcels else bool(batch.parcels)
            full = len(batch.links) + len(batch.parcels) + len(parcels) > LINKS_CARRIED_AT_ONCE
            if batch.records and (mixed or full):
                yield batch
                batch = _RecordBatch([], [], [])
            if isinstance(found, Refused):
                self._refuse(store.number, offset, found)
            batch.records.append((offset, octets))
            batch.links += links
            batch.parcels += parcels
        if batch.records:
            yield batch

    def _apply(self, store: OwnStore, batch: _RecordBatch) -> None:
        try:
            if batch.links:
                store.frontier.discover(batch.links)
            if batch.parcels:
                store.frontier.receive(batch.parcels)
        except (StoreError, ClosedError):
            raise
        except OutriderError as error:  # a record that no release of ours writes
            if len(batch.records) > 1:
                for offset, octets in batch.records:
                    found = unpacked(octets)
                    if not isinstance(found, Refused):  # `_batches` has refused these
                        links, parcels = ([found], []) if isinstance(found, Link) else ([], found)
                        self._apply(store, _RecordBatch([(offset, octets)], links, parcels))
                return
            ((offset, octets),) = batch.records
            self._refuse(store.number, offset, Refused(octets, str(error)[:300]))

    def _refuse(self, number: int, offset: int, refused: Refused) -> None:
        record = {
            "partition": number,
            "offset": offset,
            "reason": refused.reason,
            "record": refused.octets[:64_000].decode("utf-8", "replace"),
        }
        self._brokers.send(self._brokers.file.topic("dead"), 0, msgspec.json.encode(record)).offset()
        with self._counting:
            self.refused += 1
            count = self.refused
        if count <= CLUSTER_REFUSED_SAID_MAX:
            dead = self._brokers.file.topic("dead")
            more = "; further ones are counted" if count == CLUSTER_REFUSED_SAID_MAX else ""
            self._say(
                f"a message for partition {number} is not a link ({refused.reason:.80}); it is in topic {dead}{more}"
            )

    def note_received(self, store: OwnStore) -> None:
        """Notes in a store up to where it has received links."""
        place = self._places[store.number]
        with place.noting:
            received = place.received
            if received != place.noted:
                store.frontier.note_watermark(_LINKS, str(received).encode())
                place.noted = received

    def close(self) -> None:
        """Ends its threads and connections. `carry` and `receive` may not be called after it."""
        self._senders.shutdown()
        self._receivers.shutdown()
        self._reader.close()

    def trim(self, number: int) -> None:
        """Deletes the links that a partition has received: its store says so, and the next owner begins after them."""
        place = self._places[number]
        through = place.noted
        if through > place.trimmed:
            self._brokers.trim("urls", number, through)
            place.trimmed = through


def _sequence(parcel: Parcel) -> tuple[int, int]:
    """Returns the source slot of a parcel and its sequence there."""
    return int(str(parcel[0])), int(str(parcel[1]))


def _leave_from(unsent: dict[int, int], parcels: Sequence[Parcel]) -> None:
    """Notes that these parcels, and the later ones of their source slots, are not sent."""
    for parcel in parcels:
        source, sequence = _sequence(parcel)
        unsent[source] = min(sequence, unsent.get(source, sequence))


def _before(unsent: dict[int, int], parcels: Sequence[Parcel]) -> list[Parcel]:
    """Returns the parcels that are sent."""
    return [one for one in parcels if (at := _sequence(one))[1] < unsent.get(at[0], at[1] + 1)]
