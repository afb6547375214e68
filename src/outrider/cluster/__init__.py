"""A cluster: many stores as one frontier. Each store is a partition of the slots, and one node owns it at a time.

The frames of a partition are in the log of its owner and in a topic, its changelog. The changelog decides which frames
count and who owns the partition, so membership of nodes is only advice.

A node has many threads. So each type of a record has one decoder, made when its module is imported: two threads that
decode a type for the first time can crash the interpreter (msgspec 0.22).

    description.py     the file and the manifest of a cluster
    records.py         the records of a changelog: claims, frames, heartbeats, ends
    counting.py        which records count, and who owns the partition
    changelog.py       the changelog of the owner: sends frames, and knows until when this node may send requests
    snapshots.py       checkpoint and runs of a partition as objects, so that a node without the directory can make it
    snapshot_uploads.py  when snapshots are uploaded, and what is older is deleted
    owning.py          claims a partition, and opens its store
    kafka.py           topics, records and the group of nodes, in Kafka
    links.py           links between partitions, and from other programs
    link_transport.py  carries links from own stores to the topic, and from there to own stores
    stores.py          the stores of a node as one frontier
    served_stores.py   the same for a node whose pages are fetched by workers
    page_shares.py     a limit of pages of the whole crawl, divided among partitions
    rate_shares.py     the rate of the whole crawl, divided among partitions
    rate_loans.py      shares of the rate that idle nodes lend
    written_places.py  how far the line files of a node are sealed, for each partition
    sealing.py         seals the lines of a node from time to time
    sealed_lines.py    the lines of all nodes in object storage
    words.py           the records in which nodes and commands talk to each other
    node_identity.py   which node a directory is of
    answering.py       carries out orders and answers questions
    crawl_counts.py    the counts of all partitions, and whether they show work
    node.py            a node: claims partitions, keeps them and gives them up
"""

from __future__ import annotations
