"""`outrider status FILE`: the counts of a cluster, from the messages of its nodes, and its fullest domains."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import closing
from typing import Any, Final

from outrider.clock import Instant, rfc3339, wall
from outrider.cluster.crawl_counts import COUNTED
from outrider.cluster.description import ClusterManifest, read_cluster_file
from outrider.cluster.kafka import Brokers
from outrider.cluster.words import NodeMessage, PartitionCounts, unpacked_word
from outrider.crawl.output.cluster_objects import ClusterObjects, read_manifest
from outrider.crawl.output.summary import counted
from outrider.crawl.questions.cluster_queries import ClusterQuestions, start_of_node
from outrider.errors import OutriderError
from outrider.install_hints import install_command
from outrider.limits import DOMAINS_SHOWN, MICROSECONDS, TENURE_SECONDS, WORDS_READ_RECORDS

_SILENT_SECONDS: Final = 3 * TENURE_SECONDS


class ClusterNews:
    """The newest messages of the nodes of a cluster: by node, and for each partition its counts and its owner."""

    def __init__(self, partitions: int) -> None:
        """partitions: of the cluster."""
        self._partitions = partitions
        self.nodes: dict[str, NodeMessage] = {}
        self.owners: dict[int, tuple[PartitionCounts, str]] = {}

    def read(self, brokers: Brokers) -> None:
        """Reads the newest part of the topic `words`. Raises UnreachableError."""
        at = max(0, brokers.ends("words", [0])[0] - WORDS_READ_RECORDS)
        words = brokers.records("words")
        while records := words.read(at):
            for offset, octets in records:
                at = offset + 1
                word = unpacked_word(octets)
                if isinstance(word, NodeMessage):
                    self.add(word)

    def add(self, message: NodeMessage) -> None:
        """Takes a message."""
        self.nodes[message.node] = message
        for one in message.counts:
            known = self.owners.get(one.partition)
            if one.partition < self._partitions and (known is None or one.epoch >= known[0].epoch):
                self.owners[one.partition] = one, message.node

    def running(self, now: Instant) -> set[str]:
        """Returns the nodes that run."""
        since = now - int(_SILENT_SECONDS * MICROSECONDS)
        return {name for name, one in self.nodes.items() if not one.ended and one.at > since}

    def partitions_of(self, nodes: Collection[str]) -> list[int]:
        """Returns the partitions of some nodes."""
        return sorted(number for number, (_, owner) in self.owners.items() if owner in nodes)


def cluster_status(path: str) -> dict[str, Any]:
    """Returns the status of the cluster in a file. Raises SettingsError, UnreachableError, DamagedStoreError."""
    file = read_cluster_file(path)
    manifest = read_manifest(ClusterObjects(file.objects), file)
    with closing(Brokers(file, client="outrider-status", install=install_command("cluster"))) as brokers:
        brokers.check_topics(manifest.partitions)
        return status_from(brokers, ClusterQuestions(file, manifest, brokers), manifest)


def status_from(brokers: Brokers, questions: ClusterQuestions, manifest: ClusterManifest) -> dict[str, Any]:
    """Returns the status of a cluster. Raises UnreachableError."""
    news = ClusterNews(manifest.partitions)
    news.read(brokers)
    running = news.running(wall())
    return {
        "cluster": manifest.name,
        "partitions": manifest.partitions,
        "known": len(news.owners),
        "urls": {name: sum(one.numbers.get(name, 0) for one, _ in news.owners.values()) for name in COUNTED},
        **_fullest_domains(questions, news.partitions_of(running)),
        "nodes": [
            {
                "node": name,
                "runs": name in running,
                "told_at": rfc3339(one.at),
                "partitions": news.partitions_of([name]),
            }
            for name, one in sorted(news.nodes.items())
        ],
    }


def _fullest_domains(questions: ClusterQuestions, partitions: list[int]) -> dict[str, Any]:
    """Returns the domains with the most queued URLs of these partitions, or why they are not known: the counts of the
    other fields are known also if a node does not answer."""
    if not partitions:
        return {"domains": None, "domains_missing": "no node runs"}
    try:
        return {"domains": questions.fullest_domains(partitions, DOMAINS_SHOWN), "domains_missing": ""}
    except OutriderError as error:
        return {"domains": None, "domains_missing": error.facts}


def cluster_status_lines(found: dict[str, Any], path: str) -> Iterator[str]:
    """Yields the status in words for people."""
    urls = found["urls"]
    yield f"cluster     {found['cluster']}, {counted(found['partitions'], 'partition')}"
    yield f"done        {urls['done']:,}"
    yield f"queued      {urls['queued'] + urls['waiting']:,}, and {urls['leased']:,} leased"
    yield f"gone        {urls['gone']:,}"
    yield f"parked      {urls['parked']:,}"
    if urls["in_transit"]:
        yield f"in transit  {urls['in_transit']:,} links between partitions"
    yield from _domain_lines(found)
    for node in found["nodes"]:
        state = "runs" if node["runs"] else f"silent since {node['told_at']}"
        yield f"node        {node['node']}: {state}, {counted(len(node['partitions']), 'partition')}"
    if found["known"] < found["partitions"]:
        missing = found["partitions"] - found["known"]
        yield f"unknown     {counted(missing, 'partition')}: no node has sent their counts lately"
    if not any(node["runs"] for node in found["nodes"]):
        yield f"no node runs; {start_of_node(path)}"


def _domain_lines(found: dict[str, Any]) -> Iterator[str]:
    if found["domains"] is None:
        if found["domains_missing"] != "no node runs":  # the last line says that
            yield f"domains     not known: {found['domains_missing']}"
        return
    for row in found["domains"]:
        yield f"  {row['queued']:>9,} queued of {row['domain']}"
