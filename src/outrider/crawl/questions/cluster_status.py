"""`outrider status FILE`: the counts of a cluster, from what its nodes tell each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from outrider.clock import rfc3339, wall
from outrider.cluster.description import read_cluster_file
from outrider.cluster.kafka import Brokers
from outrider.cluster.node import COUNTED
from outrider.cluster.words import NodeMessage, PartitionCounts
from outrider.crawl.output.cluster_objects import ClusterObjects, read_manifest
from outrider.crawl.output.summary import counted
from outrider.install_hints import install_command
from outrider.limits import MICROSECONDS, TENURE_SECONDS, WORDS_READ_RECORDS

_SILENT_SECONDS: Final = 3 * TENURE_SECONDS


def cluster_status(path: str) -> dict[str, Any]:
    """Returns the status of the cluster in a file. Raises SettingsError, UnreachableError, DamagedStoreError."""
    file = read_cluster_file(path)
    manifest = read_manifest(ClusterObjects(file.objects), file)
    brokers = Brokers(file, client="outrider-status", install=install_command("cluster"))
    nodes: dict[str, NodeMessage] = {}
    owners: dict[int, tuple[PartitionCounts, str]] = {}
    try:
        brokers.check_topics(manifest.partitions)
        at = max(0, brokers.ends("words", [0])[0] - WORDS_READ_RECORDS)
        words = brokers.records("words")
        while records := words.read(at):
            for offset, octets in records:
                at = offset + 1
                try:
                    told = msgspec.json.decode(octets, type=NodeMessage)
                except (msgspec.DecodeError, UnicodeDecodeError):
                    continue  # of another program
                nodes[told.node] = told
                for one in told.counts:
                    if one.partition not in owners or one.epoch >= owners[one.partition][0].epoch:
                        owners[one.partition] = one, told.node
    finally:
        brokers.close()
    now = wall()
    return {
        "cluster": manifest.name,
        "partitions": manifest.partitions,
        "known": len(owners),
        "urls": {name: sum(one.numbers.get(name, 0) for one, _ in owners.values()) for name in COUNTED},
        "nodes": [
            {
                "node": name,
                "runs": not told.ended and now - told.at < _SILENT_SECONDS * MICROSECONDS,
                "told_at": rfc3339(told.at),
                "partitions": sorted(number for number, (_, owner) in owners.items() if owner == name),
            }
            for name, told in sorted(nodes.items())
        ],
    }


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
    for node in found["nodes"]:
        state = "runs" if node["runs"] else f"silent since {node['told_at']}"
        yield f"node        {node['node']}: {state}, {counted(len(node['partitions']), 'partition')}"
    if found["known"] < found["partitions"]:
        missing = found["partitions"] - found["known"]
        yield f"unknown     {counted(missing, 'partition')}: no node has told about them lately"
    if not any(node["runs"] for node in found["nodes"]):
        yield f"no node runs; start one: outrider crawl --cluster {path} -o DIR"
