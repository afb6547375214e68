"""A node of a cluster: claims partitions that the group of nodes gives it, keeps and gives up its claims, carries links
between partitions, and uploads snapshots. Threads of its own do this while a crawl calls its stores.

The group only advises. A claim in the changelog decides, and a lost claim is found at the next append.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from outrider.clock import elapsed, wall
from outrider.cluster.answering import Answering
from outrider.cluster.crawl_counts import CrawlCounts, counts_of
from outrider.cluster.description import ClusterManifest
from outrider.cluster.kafka import Brokers, Membership
from outrider.cluster.link_transport import LinkTransport
from outrider.cluster.links import send_links
from outrider.cluster.owning import Claimed, claim, make_ready, open_store
from outrider.cluster.page_shares import PageShares
from outrider.cluster.rate_loans import RateLoans, note_lent, note_returned, rest_of
from outrider.cluster.rate_shares import RateShares
from outrider.cluster.served_stores import ServedStores
from outrider.cluster.snapshot_uploads import SnapshotUploads
from outrider.cluster.snapshots import Objects, newest_snapshot
from outrider.cluster.stores import OutputPlaces, OwnStore, OwnStores
from outrider.cluster.words import NodeMessage, PartitionCounts, RateLoan
from outrider.errors import (
    ClaimLostError,
    ClaimRefusedError,
    ClosedError,
    DamagedStoreError,
    SettingsError,
    StoreFailedError,
    UnreachableError,
)
from outrider.journey import Link
from outrider.limits import (
    CLUSTER_STORES_AT_ONCE,
    KAFKA_READ_RECORDS,
    LINKS_CARRIED_AT_ONCE,
    NODE_COUNT_SECONDS,
    NODE_LEAVE_SECONDS_MAX,
    NODE_LISTEN_SECONDS,
    NODE_SNAPSHOT_SECONDS,
    TENURE_SECONDS,
)
from outrider.storage.files import Directory

_STEP_SECONDS: Final = 0.05
_LINKS_SECONDS: Final = 0.2
"""How long links gather before a node sends and receives them, unless there are many: each store that has some waits
for its changelog."""
_GROUP_SECONDS: Final = 0.25
"""How often a node compares the partitions that it should own with those that it owns, if the group changes nothing."""
_NAMESAKE_SECONDS: Final = 3 * NODE_COUNT_SECONDS
"""In this time a node hears two messages of another one with its name."""


class NodeWatcher(Protocol):
    """The work of a crawl when its node gets, gives up or loses a partition. The node's threads call it."""

    def opened(self, store: OwnStore, claimed: Claimed) -> None:
        """Called after a store is opened and before the first lease. Raises StoreError."""
        ...

    def leaves(self, store: OwnStore) -> None:
        """Called before a store is given up, after its last lease has ended. Raises StoreError."""
        ...

    def lost(self, store: OwnStore) -> None:
        """Called after the claim of a store was lost."""
        ...

    def wake(self) -> None:
        """There may be something to lease."""
        ...

    def say(self, text: str) -> None:
        """Prints a line for people."""
        ...


@dataclass(slots=True)
class _PartitionState:
    """The state of one partition on a node. wanted: whether it should own it. busy: a thread works on that.
    lost_epoch: of its newest claim that another node has ended."""

    wanted: bool = False
    busy: bool = False
    failed_until: float = 0.0
    lost_epoch: int = 0


class ClusterNode:
    """One node. `start` begins, `close` gives everything up."""

    def __init__(
        self,
        manifest: ClusterManifest,
        brokers: Brokers,
        objects_of: Callable[[int], Objects],
        directory: str,
        watcher: NodeWatcher,
        places: OutputPlaces,
        *,
        name: str,
        address: str = "",
        settings: Mapping[str, object],
        shares: PageShares | None = None,
        rate: RateShares | None = None,
        seed: int = 0,
        tenure_seconds: float = TENURE_SECONDS,
        serves: bool = False,
    ) -> None:
        """directory: for the stores. name: no other node has it; the same for the same directory. shares: of the limit
        of pages of the whole crawl. rate: of the whole crawl. serves: workers fetch its pages, and it goes on when the
        crawl is over."""
        self.manifest, self.name = manifest, name
        self._brokers, self._objects_of, self._directory, self._watcher = brokers, objects_of, directory, watcher
        self._address, self._settings, self._seed, self._tenure = address, settings, seed, tenure_seconds
        self._serves = serves
        stores = ServedStores if serves else OwnStores
        self.stores = stores(
            manifest, send=self.send_links, lost=self._lost_soon, places=places, shares=shares, rate=rate
        )
        self._places = [_PartitionState() for _ in range(manifest.partitions)]
        self._stop = threading.Event()
        self._turn = threading.Lock()
        self._closing = False
        self._works = ThreadPoolExecutor(CLUSTER_STORES_AT_ONCE, thread_name_prefix="outrider-claims")
        self._threads: list[threading.Thread] = []
        self._round = 0
        self._run = ""  # of this process; those of later ones are greater
        self._alone_at = 0.0  # when another node of this name would have been heard
        self._namesake: tuple[str, int] | None = None  # run and round of its last message
        self._counts = CrawlCounts(manifest.partitions, node_seconds=3 * tenure_seconds)
        self._links = LinkTransport(manifest, brokers, self.stores, applied=self._counts.received, say=self._say)
        self._rate, self._loans = rate, None if rate is None else RateLoans(name, elapsed)
        if self._loans is not None:
            self.stores.borrowed_shares = self._loans.borrowed
        self._answering = Answering(brokers, self.stores, name, self._hear)
        self._snapshots = SnapshotUploads(manifest, brokers, objects_of, directory, self._say)
        self._last_sum: tuple[object, ...] = ()
        self.failure: BaseException | None = None
        self._membership: Membership | None = None

    # -- from outside -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Joins the group of nodes. Raises UnreachableError."""
        self._begin()
        self._membership = Membership(self._brokers, self._want)
        for work in (
            self._take_part, self._keep, self._carry, self._receive, self._count, self._listen, self._answer,
            self._upload_some,
        ):  # fmt: skip
            thread = threading.Thread(target=self._guarded, args=(work,), name=f"outrider{work.__name__}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def _begin(self) -> None:
        self._answering.begin()
        self._run = f"{self._answering.begun:016x}-{os.urandom(8).hex()}"
        self._alone_at = time.monotonic() + _NAMESAKE_SECONDS

    def send_links(self, links: Sequence[Link]) -> None:
        """Sends links to the partitions that own them, and waits until they are durable there. Raises
        UnreachableError."""
        send_links(self._brokers, self.manifest, links)

    @property
    def refused(self) -> int:
        """Messages of this run that are not links."""
        return self._links.refused

    def totals(self) -> dict[str, int]:
        """As `CrawlCounts.totals`."""
        return self._counts.totals()

    @property
    def is_settled(self) -> bool:
        """Whether this node owns partitions, and works on no claim."""
        return bool(self.stores.all()) and not any(place.busy for place in self._places)

    def at_limit(self) -> bool:
        """Whether a partition has ended at the limit of pages."""
        return self._counts.at_limit()

    def close(self) -> None:
        """Gives all partitions up, and leaves the group."""
        self._closing = True
        self._want(frozenset())
        end = time.monotonic() + NODE_LEAVE_SECONDS_MAX
        while (self.stores.all() or any(place.busy for place in self._places)) and time.monotonic() < end:
            self._arrange()
            time.sleep(_STEP_SECONDS)
        self._stop.set()
        for store in self.stores.all():  # could not be given up: another node claims it after its tenure
            self._lose(store)
        self._end_threads()
        if self._membership is not None:
            self._membership.close()
        with contextlib.suppress(UnreachableError):
            self._brokers.records("words").send(self._word([], ended=True)).offset()

    def abandon(self) -> None:
        """Ends the threads after a failed start; this node owns nothing yet, or another node claims it later."""
        self._closing = True
        self._end_threads()

    def _end_threads(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        self._works.shutdown()
        self._links.close()
        self.stores.close()

    # -- threads ------------------------------------------------------------------------------------------------------

    def _say(self, text: str) -> None:
        self._watcher.say(text)

    def _guarded(self, work: Callable[[], None]) -> None:
        """Runs a thread. While the brokers or the objects are out of reach it waits; another error ends the crawl."""
        said = ""
        while not self._stop.is_set():
            try:
                work()
                said = ""
            except UnreachableError as error:
                if str(error) != said:
                    said = str(error)
                    self._watcher.say(f"{said}; waiting")
                self._stop.wait(1.0)
            except Exception as error:  # noqa: BLE001 - it ends the crawl, and the loop says so
                self.failure = self.failure or error
                self._watcher.wake()
                return

    def _take_part(self) -> None:
        """Takes part in the group, and begins what follows from it."""
        assert self._membership is not None
        problem = self._membership.poll(_GROUP_SECONDS)
        if problem:
            raise UnreachableError(f"the group of nodes at {self._brokers.file.kafka} ({problem})")
        self._arrange()

    def _want(self, partitions: frozenset[int], *, wait: bool = False) -> None:
        """Changes which partitions this node should own. wait: returns when the others are given up, so that the group
        gives them to other nodes only then."""
        for number, place in enumerate(self._places):
            place.wanted = number in partitions and not self._closing
        end = time.monotonic() + NODE_LEAVE_SECONDS_MAX
        while wait and time.monotonic() < end and not self._stop.is_set():
            self._arrange()
            if all(store.number in partitions for store in self.stores.all()):
                return
            time.sleep(_STEP_SECONDS)

    def _arrange(self) -> None:
        """Begins to claim partitions that this node should own, and to give up the others."""
        with self._turn:
            self._arrange_alone()

    def _arrange_alone(self) -> None:
        now = time.monotonic()
        for number, place in enumerate(self._places):
            if place.busy:
                continue
            store = self.stores.get(number)
            if place.wanted and store is None and now >= place.failed_until and not self._stop.is_set():
                place.busy = True
                self._works.submit(self._working, number, self._claim)
            elif store is not None and (not place.wanted or not store.holds()):
                place.busy = True
                self._works.submit(self._working, number, self._leave)

    def _working(self, number: int, work: Callable[[int], None]) -> None:
        place = self._places[number]
        try:
            work(number)
        except (ClaimRefusedError, ClaimLostError):
            place.failed_until = time.monotonic() + 1.0
        except UnreachableError as error:
            self._watcher.say(f"partition {number}: {error}; trying again")
            place.failed_until = time.monotonic() + 2.0
        except Exception as error:  # noqa: BLE001 - it ends the crawl, and the loop says so
            self.failure = self.failure or error
        finally:
            place.busy = False
            self._watcher.wake()

    # -- claims -------------------------------------------------------------------------------------------------------

    def _claim(self, number: int) -> None:
        place, topic = self._places[number], self._brokers.changelog(number)
        path = os.path.join(self._directory, f"{number:04d}")
        os.makedirs(path, exist_ok=True)
        claimed, claimed_at = self._claimed(number, path)
        # A former process of this node in this directory is dead: the directory was locked. But a node with a copy of
        # the directory may run.
        before = claimed.before.claim
        if not claimed.clean:
            is_own = before is not None and before.node == self.name
            opens_at = self._alone_at if is_own else claimed_at + self._tenure
            while (left := opens_at - time.monotonic()) > 0:
                if self._stop.wait(left) or not place.wanted:
                    return  # this node leaves: the next owner claims
        try:
            owned = open_store(
                Directory(path),
                claimed,
                topic,
                tenure_seconds=self._tenure,
                elapsed=elapsed,
                pause=self._pause,
                seed=self._seed,
                settings=self._settings,
                robots="errands",
                addresses="errands",
                output=True,
            )
        except ClaimLostError:
            self._say_lost(number, claimed.after.epoch)
            raise
        is_first = not claimed.before.epoch
        store = OwnStore(number, owned)
        store.rate_from = 0 if is_first else elapsed() + rest_of(store)
        try:
            owned.changelog.keep()
            self._links.opened(store)
            self._answering.opened(store)
            self._watcher.opened(store, claimed)
        except UnreachableError:
            owned.drop()  # claimed again later
            raise
        except (StoreFailedError, ClosedError):
            if store.holds():
                raise
            if owned.changelog.is_lost:
                self._say_lost(number, owned.changelog.epoch)
            owned.drop()
            return
        self.stores.add(store)

    def _claimed(self, number: int, path: str) -> tuple[Claimed, float]:
        """Returns a claim and its time, when the directory has what counts."""
        partition = self.manifest.partition(number)
        topic, objects = self._brokers.changelog(number), self._objects_of(number)
        mark = os.urandom(8).hex()
        snapshot = newest_snapshot(objects)
        try:
            found = claim(
                topic, partition, snapshot, node=self.name, mark=mark, address=self._address, pause=self._pause
            )
            at = time.monotonic()
            make_ready(Directory(path), partition, found, topic, objects)
        except DamagedStoreError:
            if newest_snapshot(objects) == snapshot:
                raise
            # This node was paused, and the owner has deleted the records of the snapshot meanwhile.
            raise ClaimRefusedError(f"partition {number}, by an old snapshot") from None
        return found, at

    def _pause(self) -> None:
        self._stop.wait(0.2)

    def _leave(self, number: int) -> None:
        """Gives a partition up, or drops it after its claim was lost."""
        store = self.stores.get(number)
        if store is None:
            return
        try:
            if store.holds():
                self._give_up(store)
            else:
                self._lose(store)
        except (StoreFailedError, ClosedError):
            if store.owned.changelog.is_held:
                raise
            self._lose(store)

    def _give_up(self, store: OwnStore) -> None:
        """Gives a partition up when its requests have ended, unless this node should own it again meanwhile. Raises
        StoreFailedError and ClosedError, also if its claim is lost meanwhile."""
        store.leaves = True
        end = time.monotonic() + NODE_LEAVE_SECONDS_MAX
        while store.leased and time.monotonic() < end and store.holds():
            self._watcher.wake()
            time.sleep(_STEP_SECONDS)
            if self._places[store.number].wanted and not self._stop.is_set():
                store.leaves = False  # it came back
                return
        self._watcher.leaves(store)
        self._links.note_received(store)
        self._answering.note(store)
        self.stores.remove(store.number)
        if store.leased:
            store.owned.drop()  # requests still run: the next owner waits for their leases
            return
        with contextlib.suppress(UnreachableError):  # the changelog has everything; it is only longer to read
            store.owned.frontier.checkpoint()
            self._snapshots.upload(store)
        store.owned.give_up()

    def _lost_soon(self, number: int) -> None:
        """A call found that the claim of a partition is lost: `_arrange` drops it."""
        self._watcher.wake()

    def _lose(self, store: OwnStore) -> None:
        """Drops a store, unless it is closed, and says if another node has claimed it. Its lines that are not noted are
        dropped first: as long as it is among the stores, the crawl asks it before it notes lines."""
        if store.owned.is_open:
            store.owned.changelog.abandon()
            self._watcher.lost(store)
            self.stores.remove(store.number)
            store.owned.drop()
        if store.owned.changelog.is_lost:
            self._say_lost(store.number, store.owned.changelog.epoch)

    def _say_lost(self, number: int, epoch: int) -> None:
        """Says that another node has claimed a partition, once for each claim of this node."""
        if self._places[number].lost_epoch < epoch:
            self._places[number].lost_epoch = epoch
            self._watcher.say(f"another node owns partition {number} now")

    def _keep(self) -> None:
        """Appends to changelogs without a recent append, so that their tenure does not end."""
        self._stop.wait(self._tenure / 10)
        due = [store for store in self.stores.all() if store.owned.changelog.tenure_left() < self._tenure * 0.7]
        self.stores.each(due, lambda store: store.owned.changelog.keep())

    # -- links --------------------------------------------------------------------------------------------------------

    def _carry(self) -> None:
        """Sends the links in the outboxes of own stores."""
        if self._links.carry() < LINKS_CARRIED_AT_ONCE:
            self._stop.wait(_LINKS_SECONDS)

    def _receive(self) -> None:
        """Passes links that arrived to own stores."""
        received = self._links.receive()
        if received:
            self._watcher.wake()
        if received < KAFKA_READ_RECORDS:
            self._stop.wait(_LINKS_SECONDS)

    # -- counts -------------------------------------------------------------------------------------------------------

    def _count(self) -> None:
        """Sends the counts of the own partitions to the other nodes."""
        self._stop.wait(NODE_COUNT_SECONDS)
        counts = []
        for store in self.stores.all():
            with self.stores.may_be_lost(store):
                counts.append(counts_of(store, self._links.received(store.number), self._answering.begun))
        self._brokers.records("words").send(self._word(counts, loans=self._lend())).offset()
        self._judge_end()

    def _listen(self) -> None:
        """Reads the messages of other nodes and of commands."""
        if not self._answering.read():
            self._stop.wait(NODE_LISTEN_SECONDS)

    def _answer(self) -> None:
        """Answers the questions of commands."""
        self._answering.answer(NODE_COUNT_SECONDS)

    def _word(self, counts: list[PartitionCounts], *, ended: bool = False, loans: Sequence[RateLoan] = ()) -> bytes:
        self._round += 1
        needs = self._loans.ask(self._rate.short_at) if self._rate is not None and self._loans is not None else ""
        message = NodeMessage(self.name, wall(), self._round, counts, self._address, ended, needs, [*loans], self._run)
        return msgspec.json.encode(message)

    def _hear(self, message: NodeMessage) -> None:
        if message.node == self.name and message.run < self._run and not message.ended:
            self._hear_namesake(message)
        self._counts.hear(message)
        if self._loans is not None:
            self._loans.hear(message.node, message.needs_rate, message.loans)

    def _hear_namesake(self, message: NodeMessage) -> None:
        """Ends this node if an earlier process has its name and runs. One message alone may be the last one of a former
        process of this node, which came late."""
        heard, self._namesake = self._namesake, (message.run, message.round)
        if heard is not None and heard[0] == message.run and heard[1] < message.round and self.failure is None:
            self.failure = SettingsError(
                f"another node with the name {self.name} runs, so the directory of this node is a copy; remove the "
                "copy, and start this node with a new directory"
            )
            self._closing = True
            self._want(frozenset())
            self._watcher.wake()

    def _lend(self) -> list[RateLoan]:
        """Lends shares of the rate that this node does not need, and notes this in their stores."""
        if self._rate is None or self._loans is None:
            return []
        with self._rate.turn:
            loans = self._loans.lend(self.stores.all(), self._rate.used_at)
        lent = {loan.partition: loan for loan in loans}
        noted = []
        for store in self.stores.all():
            with self.stores.may_be_lost(store):
                note_returned(store, elapsed())
                if store.number in lent:
                    note_lent(store)
                    noted.append(lent[store.number])
        return noted

    def _judge_end(self) -> None:
        """The crawl is over if two counts in a row over all partitions are equal and show nothing to do. A node that
        serves goes on when URLs arrive later."""
        total, before = self._counts.at_end(self._ends_of_links), self._last_sum
        self._last_sum = total
        if total and total == before and not self.stores.is_finished:
            self.stores.is_finished = True
            self._watcher.wake()
        elif not total and self._serves:
            self.stores.is_finished = False

    def _ends_of_links(self) -> Mapping[int, int]:
        return self._brokers.ends("urls", range(self.manifest.partitions))

    # -- snapshots ----------------------------------------------------------------------------------------------------

    def _upload_some(self) -> None:
        self._stop.wait(NODE_SNAPSHOT_SECONDS)
        for store in self.stores.all():
            with self.stores.may_be_lost(store):
                self._answering.note_sometimes(store)
                self._snapshots.upload(store)
                self._links.note_received(store)
                self._links.trim(store.number)
        self._trim_words()

    def _trim_words(self) -> None:
        """Deletes old records of `words`: the owner of the first partition does this, when all partitions are known."""
        heard = self._counts.heard()
        if self.stores.get(0) is not None and heard is not None:
            self._answering.trim(heard)
