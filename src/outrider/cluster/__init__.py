"""A cluster: many stores as one frontier. Each store is a partition of the slots, and one node owns it at a time.

The frames of a partition are in the log of its owner and in a topic, its changelog. The changelog decides which frames
count and who owns the partition, so membership of nodes is only advice.

    records.py    the records of a changelog: claims, frames, heartbeats, ends
    counting.py   which records count, and who owns the partition
    changelog.py  the changelog of the owner: sends frames, and knows until when this node may send requests
    snapshots.py  checkpoint and runs of a partition as objects, so that a node without the directory can make it
    owning.py     claims a partition, and opens its store
"""

from __future__ import annotations
