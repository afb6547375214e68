"""Which node a directory is of: `DIR/cluster/node.json`. A node keeps its name when it starts again."""

from __future__ import annotations

import os
import socket
from typing import Final

import msgspec

from outrider.cluster.description import ClusterFile, ClusterManifest
from outrider.errors import ForeignStoreError
from outrider.limits import NODE_FILE_BYTES_MAX
from outrider.storage.files import Directory, read_whole, replace

NODE_FILE: Final = "node.json"


class NodeIdentity(msgspec.Struct, frozen=True, omit_defaults=True):
    """The name of a node, and its cluster. serves: its pages are fetched by workers."""

    node: str
    cluster: str
    serves: bool = False


_IDENTITIES: Final = msgspec.json.Decoder(NodeIdentity)


def node_name(
    own: Directory, output: str, file: ClusterFile, manifest: ClusterManifest, *, serves: bool = False
) -> str:
    """Returns the name of the node whose directory is `output`; a new directory gets one. own: its folder of the
    cluster. Raises ForeignStoreError for the directory of another cluster or of another kind of node."""
    other = "choose another directory" if serves else "choose another directory with -o"
    try:
        known = _IDENTITIES.decode(read_whole(own, NODE_FILE, bytes_max=NODE_FILE_BYTES_MAX))
    except FileNotFoundError:
        known = NodeIdentity(f"{socket.gethostname()[:40]}-{os.urandom(4).hex()}", manifest.cluster, serves)
        replace(own, NODE_FILE, msgspec.json.encode(known) + b"\n")
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ForeignStoreError(f"{own.describe(NODE_FILE)} cannot be read; {other}") from None
    if known.cluster != manifest.cluster:
        raise ForeignStoreError(f"{output} belongs to another cluster than {file.path}; {other}")
    if known.serves != serves:
        kinds = ("of `outrider crawl --cluster`", "of `outrider serve --cluster`")
        raise ForeignStoreError(f"{output} is the directory of a node {kinds[known.serves]}; {other}")
    return known.node
