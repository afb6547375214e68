"""`outrider serve DIR --cluster FILE`: a node of a cluster whose pages are fetched by workers.

It claims partitions as any node, and leases from them over HTTP. The workers write the pages; the node keeps only the
stores of its partitions, in `DIR/cluster`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, cast

from outrider.cluster.description import read_cluster_file
from outrider.cluster.kafka import Brokers
from outrider.cluster.node import ClusterNode
from outrider.cluster.node_identity import node_name
from outrider.cluster.owning import Claimed
from outrider.cluster.sealed_lines import put_back
from outrider.cluster.served_stores import ServedStores
from outrider.cluster.stores import OwnStore
from outrider.cluster.written_places import OutputOwner, Places
from outrider.crawl.cluster_run import node_of, refuse_in_clusters
from outrider.crawl.output.cluster_objects import ClusterObjects, read_manifest
from outrider.crawl.questions.cluster_queries import ClusterQuestions
from outrider.crawl.setup.directory import (
    CLUSTER_FOLDER,
    FRONTIER_NAME,
    WORKER_FOLDER,
    kept_settings,
    settings_of,
    write_settings,
)
from outrider.crawl.setup.options import CrawlOptions, as_toml
from outrider.crawl.setup.permission import Permission
from outrider.crawl.setup.seeds import read_hosts
from outrider.engine import AsyncFrontier
from outrider.errors import NamedPathError
from outrider.install_hints import install_command
from outrider.limits import NODE_LEAVE_SECONDS_MAX
from outrider.service.access import Listening, TokenRoles
from outrider.service.audit import Audit
from outrider.service.http_server import bound, hosts_of, listened_at, served_until_signal
from outrider.service.node_frontier import AwaitedNode, NodeFrontier
from outrider.service.otlp import Endpoint
from outrider.service.served_identity import ServedIdentity
from outrider.service.server_errands import ServerErrands, visits_of
from outrider.service.service_state import ServiceState
from outrider.storage.files import Directory

_FORGET_SECONDS: Final = 1.0
"""How often a node forgets leases that have ended."""


class ServingNode:
    """A node from the reading of its file to its end, and what it does when it gets or loses a partition."""

    def __init__(self, options: CrawlOptions, file_path: str, say: Callable[[str], None]) -> None:
        """Raises SettingsError, StoreError and UnreachableError."""
        path, self._say = options.output, say
        self._changed = threading.Event()  # a thread of the node has ended a piece of work
        for name in (FRONTIER_NAME, WORKER_FOLDER):
            if os.path.lexists(os.path.join(path, name)):
                raise NamedPathError(f"{path} is the directory of another crawl; choose another one")
        file = self._file = read_cluster_file(file_path)
        self._objects = ClusterObjects(file.objects)
        self.manifest = read_manifest(self._objects, file)
        with contextlib.ExitStack() as opened:
            files = opened.enter_context(contextlib.closing(Directory(path, create=True)))
            own = opened.enter_context(contextlib.closing(Directory(os.path.join(path, CLUSTER_FOLDER), create=True)))
            own.lock()
            name = self.name = node_name(own, path, file, self.manifest, serves=True)
            brokers = opened.enter_context(
                contextlib.closing(Brokers(file, client=name, install=install_command("cluster")))
            )
            brokers.check_topics(self.manifest.partitions)
            write_settings(files, as_toml(options, kept_settings(path).seeds))
            places = Places(own, [])
            self.node: ClusterNode = node_of(
                self.manifest, brokers, self._objects, options, self, places, name, serves=True
            )
            questions = ClusterQuestions(file, self.manifest, brokers)
            self.frontier = NodeFrontier(
                self.node, self.manifest, questions, options.frontier_settings(), where=file.path
            )
            self._opened = opened.pop_all()

    # -- what the node's threads call ---------------------------------------------------------------------------------

    def opened(self, store: OwnStore, claimed: Claimed) -> None:
        """As `NodeWatcher.opened`. Pages that a node with output has not sealed are fetched again. This node has no
        lines to seal."""
        owner = OutputOwner.of(store)
        if owner is not None and not owner.closed and (count := put_back(store, self._objects, self._file.name)):
            self.say(f"partition {store.number}: {count} pages of its former node are fetched again")
        OutputOwner(self.name, store.owned.changelog.epoch, closed=True).note(store)

    def leaves(self, store: OwnStore) -> None:
        """As `NodeWatcher.leaves`."""

    def lost(self, store: OwnStore) -> None:
        """As `NodeWatcher.lost`."""

    def wake(self) -> None:
        """As `NodeWatcher.wake`, for the start. Calls that wait for a lease look by themselves."""
        self._changed.set()

    def say(self, text: str) -> None:
        """As `NodeWatcher.say`."""
        self._say(f"outrider: {text}")

    # -- its life -----------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Takes part in the cluster for the length of a block. The block begins when this node owns partitions, or
        after some time: other nodes may have all."""
        with self._opened:
            self.node.start()
            try:
                ends = time.monotonic() + NODE_LEAVE_SECONDS_MAX
                while not self.node.is_settled and self.node.failure is None and time.monotonic() < ends:
                    self._changed.wait(ends - time.monotonic())
                    self._changed.clear()
                yield
            finally:
                self.node.close()

    async def watched(self, service_state: ServiceState) -> None:
        """Forgets ended leases, and begins the rates anew when partitions have come or gone. Raises the error that
        ended the node."""
        stores = cast("ServedStores", self.node.stores)
        numbers = {store.number for store in stores.all()}
        while self.node.failure is None:
            await asyncio.to_thread(stores.forget_ended)
            before, numbers = numbers, {store.number for store in stores.all()}
            if numbers != before:
                await asyncio.to_thread(service_state.begin_rates)
            await asyncio.sleep(_FORGET_SECONDS)
        raise self.node.failure


def serve_in_cluster(
    directory: str | None,
    file_path: str,
    listening: Listening,
    tokens: TokenRoles,
    *,
    flags: Mapping[str, Any],
    names: frozenset[str] = frozenset(),
    drain_seconds: float = 10.0,
    collector: Endpoint | None = None,
    identity: ServedIdentity | None = None,
    say: Callable[[str], None],
) -> bool:
    """Serves the partitions of a node until a signal. Returns whether the whole crawl was over by then.

    directory: None for one with the name of the cluster. The other arguments are those of `http_server.serve`. Raises
    SettingsError, StoreError and UnreachableError.
    """
    path = os.path.abspath(os.path.expanduser(directory or read_cluster_file(file_path).name))
    options = settings_of(path, {**flags, "output": path})
    refuse_in_clusters(flags, options)
    hosts = read_hosts(options.hosts)
    with contextlib.ExitStack() as held:
        listener = held.enter_context(bound(listening))
        serving = ServingNode(options, file_path, say)
        held.enter_context(serving.running())
        audit = held.enter_context(contextlib.closing(Audit(path)))
        frontier = cast("AsyncFrontier", AwaitedNode(serving.frontier))
        permission = Permission.of_directory(path, options, hosts)
        service_state = ServiceState(
            frontier,
            hosts=hosts_of(listening, names, identity),
            tokens=tokens,
            audit=audit,
            permission=permission,
            identity=identity,
        )
        may_send = serving.node.stores.may_request
        service_state.errands = ServerErrands(
            frontier, visits_of(options, frontier, hosts, permission.guard, may_send=may_send)
        )
        http = listened_at(listening, listener), listener
        return asyncio.run(
            served_until_signal(service_state, path, http, drain_seconds, collector, say, beside=serving.watched)
        )
