"""A crawl on many machines, as one of its nodes: the loop of a crawl over the partitions that this node owns.

The node writes pages, politeness lines and archive to its own directory. `DIR/cluster` has the stores of its partitions
and how far the files reach (`cluster/written_places.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec

from outrider.clock import elapsed, rfc3339, wall
from outrider.cluster.description import MANIFEST_OBJECT, ClusterFile, ClusterManifest, new_manifest, read_cluster_file
from outrider.cluster.kafka import Brokers
from outrider.cluster.node import ClusterNode, NodeWatcher
from outrider.cluster.node_identity import node_name
from outrider.cluster.owning import Claimed
from outrider.cluster.page_shares import PageShares
from outrider.cluster.rate_shares import RateShares
from outrider.cluster.sealed_lines import LineObjects, put_back
from outrider.cluster.sealing import Seal, Sealing
from outrider.cluster.stores import OutputPlaces, OwnStore
from outrider.cluster.written_places import OutputOwner, Places
from outrider.crawl.orders.archive_uploads import ArchiveUploads, archive_end_to_upload, check_store
from outrider.crawl.output.cluster_objects import ClusterObjects, read_manifest
from outrider.crawl.output.output import FILES, PAGES, POLITENESS
from outrider.crawl.output.output_recovery import archive_end, packed_watermark
from outrider.crawl.run.loop import FINISHED, HOOKS, LIMIT, STOPPED, UNREACHABLE, CrawlLoop
from outrider.crawl.run.settle import Turn
from outrider.crawl.setup.directory import (
    CLUSTER_FOLDER,
    FRONTIER_NAME,
    WORKER_FOLDER,
    drop_pending,
    kept_settings,
    opened,
    put_pending,
    take_pending,
    write_settings,
)
from outrider.crawl.setup.options import (
    SETTINGS_FILE,
    CrawlOptions,
    SettingsFile,
    as_toml,
    from_environment,
    permitting,
    resolved,
)
from outrider.crawl.setup.seeds import BadSeeds, loopback_of, placed, read_hosts, read_seeds, require_contact
from outrider.crawl.setup.version import version
from outrider.errors import NamedPathError, SettingsError
from outrider.fetch.addresses import AddressGuard
from outrider.fetch.downloader import Downloader
from outrider.frontier.policy.revisit_plan import NAMES as REVISIT_RULES
from outrider.frontier.policy.revisit_plan import NEEDS_RATE
from outrider.frontier.verbs.census import ScheduleCounts
from outrider.install_hints import install_command
from outrider.journey import Link
from outrider.kernels import in_use
from outrider.limits import (
    NODE_ARCHIVE_SECONDS_MAX,
    NODE_LEASE_SECONDS,
    NODE_SEAL_SECONDS,
    NODE_SEAL_SECONDS_MAX,
    NODE_STORE_MEMORY_BYTES_MIN,
    TENURE_SECONDS,
    TOKEN_BITS,
)
from outrider.storage.files import Directory

SEALED: Final = (PAGES, POLITENESS)  # lines of items are in lines of pages
SAY_SECONDS: Final = 10.0
SEEDS_AT_ONCE: Final = 10_000
CREATED_AT_ONCE: Final = 8


class _Tokens(msgspec.Struct):
    token: int = 0
    page_token: int | None = None


_TOKENS: Final = msgspec.json.Decoder(_Tokens)


@dataclass(frozen=True, slots=True)
class NodeEnd:
    """The end of a node's run: its exit code and its reason. answered: the pages of this run. refused: messages for its
    partitions that it could not read as links. totals: of the whole crawl."""

    exit_code: int
    ending: str
    answered: int
    refused: int
    totals: Mapping[str, int]


class ClusterRun(CrawlLoop):
    """One run of one node. `run` does it all. Its leases are short: the hosts of a dead node wait for their ends."""

    @property
    def _lease_seconds(self) -> float:
        return NODE_LEASE_SECONDS

    @property
    def _extend_seconds(self) -> float:
        return NODE_LEASE_SECONDS / 2

    def __init__(
        self,
        options: CrawlOptions,
        file: ClusterFile,
        seeds: Sequence[str],
        sources: Sequence[str],
        *,
        hosts: Mapping[str, tuple[str, ...]],
        say: Callable[[str], None],
        make_downloader: Callable[[CrawlOptions, Callable[[], int]], Downloader] | None = None,
        tenure_seconds: float = TENURE_SECONDS,
    ) -> None:
        """Raises SettingsError for a hook that cannot be loaded."""
        guard = AddressGuard(options.allow_address, hosts)
        super().__init__(options, guard, hosts, say=say, make_downloader=make_downloader)
        self._file, self._seeds, self._sources, self._tenure = file, seeds, sources, tenure_seconds
        self._leaving = False
        self._sealed: Mapping[str, int] = {}
        self._drops = 0
        self._is_unsealed = False
        self._uploads: ArchiveUploads | None = None

    def stop(self, reason: str = "stopped by you") -> None:
        """As any crawl's; the second call also ends waits for brokers. Then other nodes claim the partitions of this
        one."""
        super().stop(reason)
        if self._stopping > 1 and self._event_loop is not None:
            for store in self._stores.all():
                store.owned.changelog.abandon()

    async def run(self) -> NodeEnd:
        """Crawls until the crawl of all nodes is over. Raises SettingsError, StoreError and UnreachableError."""
        await self._run()
        code, words = self._ending
        if code == FINISHED and self._hook_failures.on_most_pages:
            code, words = HOOKS, self._hook_failures.ending(self._options.output)
        words = words or "finished"
        if self._is_unsealed:
            code = UNREACHABLE if code == FINISHED else code
            words += "; its last pages are not sealed: start this node again with the same directory"
        return NodeEnd(code, words, self._answered, self._node.refused, self._node.totals())

    # -- opening and closing (in the writer thread) -------------------------------------------------------------------

    def _open(self) -> None:
        path = self._options.output
        for name in (FRONTIER_NAME, WORKER_FOLDER):
            if os.path.lexists(os.path.join(path, name)):
                raise NamedPathError(f"{path} is the directory of another crawl; choose another one with -o")
        objects = self._objects = ClusterObjects(self._file.objects)
        manifest = read_manifest(objects, self._file)
        self._files = opened(path)
        self._own = Directory(os.path.join(path, CLUSTER_FOLDER), create=True)
        try:
            self._own.lock()
            name = node_name(self._own, path, self._file, manifest)
            self._brokers = Brokers(self._file, client=name, install=install_command("cluster"))
            self._brokers.check_topics(manifest.partitions)
            self._places = Places(self._own, list(FILES))
            end = archive_end_to_upload(path) if self._options.archive else archive_end(path, None)[0]
            self._places.archive = packed_watermark(end) if end is not None else None
            self._node = node_of(
                manifest, self._brokers, objects, self._options, self, self._places, name, tenure_seconds=self._tenure
            )
            self._stores = self._node.stores
            self._set_up(self._stores, self._files)
            self._output.notes_alone = False
            self._journal.note("open", version=version(), kernels=in_use(), node=name, pid=os.getpid())
            write_settings(self._files, as_toml(self._options, self._sources))
            self._output.open()
            self._sealed = self._output.noted()
            self._uploads = self._new_uploads(name)
            self._make_settler(self._files)
            line_objects = LineObjects(objects, manifest.name, name, SEALED)
            sealed_files = {stream: os.path.join(path, FILES[stream]) for stream in SEALED}
            each = min(self._options.seal_seconds, NODE_ARCHIVE_SECONDS_MAX) if self._uploads else NODE_SEAL_SECONDS
            self._sealing = Sealing(self, line_objects, sealed_files, each_seconds=each)
            self._node.start()
            self._sealing.start()
            try:
                self._send_seeds()
            except BaseException:  # also Ctrl-C: its threads would go on
                self._node.abandon()
                self._sealing.end()
                raise
        except BaseException:  # raised again: the locks of the directory are given back first
            self._own.close()
            self._files.close()
            raise

    def _new_uploads(self, node: str) -> ArchiveUploads | None:
        """Returns what uploads the files of the archive when they are sealed; None without `--archive`. Raises
        SettingsError for a store that refuses."""
        options = self._options
        if not options.archive or not options.warc:
            return None
        _, problem = check_store(options.archive, options.output, new=node)
        if problem:
            self.say(f"{problem}; the archive is uploaded later")
        return ArchiveUploads(
            options.archive,
            options.output,
            lambda: self._output.archived,
            self._say_soon,
            identity=node,
            keep=options.keep_archive,
        )

    def _send_seeds(self) -> None:
        seeds = list(dict.fromkeys([*take_pending(self._files), *self._seeds]))
        if not seeds:
            return
        put_pending(self._files, seeds)
        for first in range(0, len(seeds), SEEDS_AT_ONCE):
            some = self._hooks.seeds(seeds[first : first + SEEDS_AT_ONCE])
            self._node.send_links([Link(one) if isinstance(one, str) else one for one in some])
        drop_pending(self._files)
        self._journal.note("seeds", sent=len(seeds))

    def _close(self) -> None:
        self._hooks.close()
        code, words = self._ending
        self._journal.note("close", exit_code=code, ending=words or "finished")
        self._output.close()
        self._journal.close()
        self._brokers.close()
        self._own.close()
        self._files.close()

    # -- what the node's threads call ---------------------------------------------------------------------------------

    def opened(self, store: OwnStore, claimed: Claimed) -> None:
        """As `NodeWatcher.opened`."""
        self._books.submit(self._opened, store).result()

    def leaves(self, store: OwnStore) -> None:
        """As `NodeWatcher.leaves`."""
        if self._sealing.now(NODE_SEAL_SECONDS_MAX):
            self._books.submit(self._give_up, store).result()
        else:
            self.lost(store)

    def lost(self, store: OwnStore) -> None:
        """As `NodeWatcher.lost`. A store whose claim still counts could not be sealed in time."""
        self._is_unsealed = self._is_unsealed or store.holds()
        self._books.submit(self._lost, store.number).result()

    def begin_seal(self) -> Seal:
        """As `SealedCrawl.begin_seal`."""
        return self._books.submit(self._begin_seal).result()

    def upload_archive(self) -> None:
        """As `SealedCrawl.upload_archive`."""
        if self._uploads is not None:
            self._uploads.upload()

    def end_seal(self, seal: Seal) -> bool:
        """As `SealedCrawl.end_seal`."""
        return self._books.submit(self._end_seal, seal).result()

    def fails(self, error: BaseException) -> None:
        """As `SealedCrawl.fails`."""
        self._node.failure = self._node.failure or error
        self.wake()

    def wake(self) -> None:
        """As `NodeWatcher.wake`."""
        if self._event_loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop was closed
                self._event_loop.call_soon_threadsafe(self._wake_now)

    def say(self, text: str) -> None:
        """As `NodeWatcher.say`."""
        self._journal.note("note", text=text)
        self._say_soon(text)

    def _wake_now(self) -> None:
        self._ready_at = 0.0
        self._wake.set()

    # -- lines (in the writer thread) ---------------------------------------------------------------------------------

    def _opened(self, store: OwnStore) -> None:
        """Brings the line files up to the lines of a store, or puts the pages of lost lines back."""
        owner, after = OutputOwner.of(store), None
        if owner is not None and not owner.closed:
            if owner.node == self._node.name:
                after = self._places.of_store(store, owner)
            if after is None:
                self._put_back(store)
        if after is None:
            self._places.note_all_before(store)
            after = store.owned.changelog.lsn
        else:
            self._replay(store, after)
        store.lsn = store.owned.changelog.lsn
        self._places.begin(store, after)
        self._note_owner(store)

    def _replay(self, store: OwnStore, after: int) -> None:
        """Writes the lines of a store after an LSN again: the opening of the files has cut them."""
        streams = (PAGES, POLITENESS)
        lines = [(lsn, stream, line) for stream in streams for lsn, line in store.frontier.lines(stream, after)]
        lines.sort(key=lambda one: one[0])
        self._output.write([(stream, line) for _, stream, line in lines], 0)
        if lines:
            self._journal.note("replayed", partition=store.number, lines=len(lines))

    def _put_back(self, store: OwnStore) -> None:
        """Queues the pages again whose lines the former owner has not sealed."""
        if count := put_back(store, self._objects, self._file.name):
            self.say(f"partition {store.number}: {count} pages of its former node are fetched again")

    def _note_owner(self, store: OwnStore, *, closed: bool = False) -> None:
        OutputOwner(self._node.name, store.owned.changelog.epoch, closed).note(store)

    def _give_up(self, store: OwnStore) -> None:
        """Notes that all lines of a store are sealed. From here on its outcomes are stale."""
        self._note_owner(store, closed=True)
        self._stores.remove(store.number)

    def _lost(self, number: int) -> None:
        """Removes the lines of a partition that are not sealed."""
        dropped = self._output.drop(partial(_is_of, {number}), self._sealed)
        if dropped:
            self._drops += 1
            self._journal.note("dropped", partition=number, lines=dropped)

    def _begin_seal(self) -> Seal:
        """Asks whether this node still owns its partitions, removes the lines of others, and syncs the files."""
        stores = self._stores.all()
        for store, kept in zip(stores, self._stores.each(stores, _keep), strict=True):
            if kept is None:
                self._lost(store.number)
        self._output.seal()
        self._output.note()
        lsns = {store: store.lsn for store in stores if store.holds()}
        return Seal(self._sealed, self._output.noted(), lsns, self._drops)

    def _end_seal(self, seal: Seal) -> bool:
        """Notes how far the files reach. The lines of a store whose note does not count are removed."""
        if seal.drops != self._drops:
            return False
        lost = self._places.commit(seal.lsns, self._stores.each)
        before, self._sealed = self._sealed, dict(seal.ends)
        if lost:
            self._output.drop(partial(_is_of, {store.number for store in lost}), before)
            self._output.note()
            self._sealed = self._output.noted()
            self._places.commit({}, self._stores.each)
        return True

    # -- the crawl ----------------------------------------------------------------------------------------------------

    @property
    def _may_send(self) -> Callable[[int], bool]:
        return self._stores.may_request

    def _schedule_counts(self) -> ScheduleCounts:
        return ScheduleCounts()

    async def _at_end(self, turn: Turn) -> bool:
        if self._node.failure is not None:
            raise self._node.failure
        if self._stopping:
            return True
        if self._stores.is_finished:
            if self._node.at_limit():
                self._ending = (LIMIT, f"stopped at a limit (--max-pages {self._options.max_pages}), work is left")
            return True
        self._ready_at = asyncio.get_running_loop().time() + (turn.next_ready_seconds or 0.25)
        return False

    async def _watch(self) -> None:
        """Says from time to time how far the crawl is."""
        while True:
            await asyncio.sleep(SAY_SECONDS)
            totals = self._node.totals()
            self._say(
                f"{totals['done']:,} pages done, {totals['queued'] + totals['waiting']:,} queued, "
                f"{len(self._stores.all())} of {totals['partitions']} partitions here, {totals['nodes']} nodes"
            )

    async def _end_beside(self) -> None:
        if self._stopping and not self._ending[1]:
            self._ending = (STOPPED, "stopped by you")
        await asyncio.to_thread(self._node.close)
        await asyncio.to_thread(self._sealing.end)


def node_of(
    manifest: ClusterManifest,
    brokers: Brokers,
    objects: ClusterObjects,
    options: CrawlOptions,
    watcher: NodeWatcher,
    places: OutputPlaces,
    name: str,
    *,
    tenure_seconds: float = TENURE_SECONDS,
    serves: bool = False,
) -> ClusterNode:
    """Returns a node with the settings of a crawl, in its directory. serves: its pages are fetched by workers."""
    memory = max(NODE_STORE_MEMORY_BYTES_MIN, options.memory_bytes // manifest.partitions)
    limit, rate = options.max_pages, options.rate  # of all nodes together
    return ClusterNode(
        manifest,
        brokers,
        lambda number: objects.of_partition(f"{manifest.name}/{number:04d}/"),
        os.path.join(options.output, CLUSTER_FOLDER, "partitions"),
        watcher,
        places,
        name=name,
        settings={**options.frontier_settings(), "memory_bytes": memory, "max_pages": None, "rate": None},
        shares=None if limit is None else PageShares(objects, manifest.name, manifest.partitions, limit),
        rate=None if rate is None else RateShares(rate, manifest.partitions, elapsed),
        seed=options.seed,
        tenure_seconds=tenure_seconds,
        serves=serves,
    )


def make_cluster(file: ClusterFile, partitions: int) -> tuple[ClusterManifest, bool]:
    """Makes the topics and the manifest of a cluster. Returns the manifest, and whether it is new. Raises SettingsError
    for a store of objects that does not refuse to write an object twice."""
    objects = ClusterObjects(file.objects)
    _check_creation(objects, file)
    found = objects.read(f"{file.name}/{MANIFEST_OBJECT}")
    new = found is None
    made = new_manifest(file.name, partitions, created=rfc3339(wall()), random_bytes=os.urandom(48))
    brokers = Brokers(file, client="outrider-init", install=install_command("cluster"))
    try:
        if not new:
            made = read_manifest(objects, file)
            if made.partitions != partitions:
                raise SettingsError(
                    f"the cluster {file.name} has {made.partitions} partitions and not {partitions}, and their number "
                    f"cannot change; use --partitions {made.partitions}, or another name for another cluster"
                )
        made_facts = brokers.make_topics(made.partitions)
        if new and not made_facts and any(brokers.ends("facts", range(partitions)).values()):
            raise SettingsError(
                f"the topic {file.topic('facts')} has the records of another cluster, and {file.objects} has no "
                f"manifest of it; use its objects, choose another name in {file.path}, or delete the four topics"
            )
        if new and not objects.create(f"{file.name}/{MANIFEST_OBJECT}", made.octets()):
            return read_manifest(objects, file), False  # another init was first
    finally:
        brokers.close()
    return made, new


def _check_creation(objects: ClusterObjects, file: ClusterFile) -> None:
    """Checks that of several nodes that write one object at once, one alone succeeds."""
    name = f"{file.name}/checks/{os.urandom(8).hex()}"
    with ThreadPoolExecutor(CREATED_AT_ONCE) as pool:
        made = list(pool.map(lambda number: objects.create(name, b"%d" % number), range(CREATED_AT_ONCE)))
    if sum(made) != 1 or objects.create(name, b"again"):
        raise SettingsError(
            f"objects is {file.objects}: it lets several nodes write one object, so it cannot keep the snapshots of a "
            "cluster; use a store with conditional writes (If-None-Match)"
        )


def _partition_of(line: bytes) -> int:
    """Returns the partition of a line, by its token."""
    told = _TOKENS.decode(line)
    return (told.token if told.page_token is None else told.page_token) >> TOKEN_BITS


def _is_of(partitions: Collection[int], line: bytes) -> bool:
    return _partition_of(line) in partitions


def _keep(store: OwnStore) -> bool:
    store.owned.changelog.keep()
    return True


def crawl_in_cluster(
    file_path: str, seeds: Sequence[str], flags: Mapping[str, Any], *, stdin: Any, say: Callable[[str], None]
) -> NodeEnd:
    """Runs a node of a cluster, with these seeds. Raises SettingsError, InvalidUrlError, StoreError and
    UnreachableError."""
    file = read_cluster_file(file_path)
    output = flags.get("output")
    if not output:
        raise SettingsError("output is missing: name the directory of this node with -o")
    path = os.path.abspath(os.path.expanduser(str(output)))
    faults = BadSeeds()
    sources = placed(seeds)
    canonical = read_seeds(sources, stdin, faults)
    kept = SettingsFile({})
    if os.path.lexists(path):
        kept = kept_settings(path)
    options = resolved({**flags, "output": path}, from_environment(os.environ), kept.options, path)
    refuse_in_clusters(flags, options)
    for line in faults.lines():
        say(line)
    hosts = read_hosts(options.hosts)
    options = permitting(options, loopback_of(canonical, hosts, options.allow_address))
    require_contact(canonical, options.contact, hosts)
    say(f"joining the cluster {file.name} at {file.kafka}; Ctrl-C gives the partitions of this node to other nodes")

    async def run() -> NodeEnd:
        return await ClusterRun(options, file, canonical, sources, hosts=hosts, say=say).run()

    return asyncio.run(run())


_NOT_IN_CLUSTERS: Final = {
    "anew": "a node continues what the cluster has",
    "catalog": "a node does not fill a catalog yet: use `outrider catalog` when it has ended",
    "tdmrep": "a node does not give the files that it read to the next owner of a partition",
    "discovery_share": "each node has shares of the rate, and uses them for new and known pages alike",
}
_CLUSTER_RULES: Final = tuple(name for name in REVISIT_RULES if name not in NEEDS_RATE)


def refuse_in_clusters(flags: Mapping[str, Any], options: CrawlOptions) -> None:
    """Raises SettingsError for an option that a node cannot keep, also of the environment or of its directory."""
    for name, reason in _NOT_IN_CLUSTERS.items():
        if flags.get(name) or getattr(options, name, None):
            raise SettingsError(f"{_place_of(name, flags)} and --cluster cannot be used together: {reason}")
    if options.revisit is not None and options.revisit not in _CLUSTER_RULES:
        raise SettingsError(
            f"{_place_of('revisit', flags)} {options.revisit!r:.80}: a node has no budget of its own for a rule, and "
            f"functions are not called; with --cluster, use {', '.join(_CLUSTER_RULES)}"
        )


def _place_of(name: str, flags: Mapping[str, Any]) -> str:
    """Returns the words for an option: its flag, or where else it may be set."""
    if name in flags:
        return f"--{name.replace('_', '-')}"
    return f"{name} (of OUTRIDER_{name.upper()} or of the {SETTINGS_FILE} of this node)"
