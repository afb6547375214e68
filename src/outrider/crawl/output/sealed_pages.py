"""The pages of a cluster, from the lines of all nodes in object storage (`cluster/sealed_lines.py`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from outrider.cluster.description import read_cluster_file
from outrider.cluster.sealed_lines import SealedLines
from outrider.crawl.output.cluster_objects import ClusterObjects, read_manifest
from outrider.crawl.output.output import PAGES
from outrider.crawl.output.written_lines import items_of_pages, with_archive_in
from outrider.errors import DamagedStoreError


class SealedPages:
    """The pages that the nodes of a cluster have sealed, each token once."""

    def __init__(self, path: str) -> None:
        """path: of the file of the cluster. Raises SettingsError, NamedPathError, UnreachableError."""
        file = read_cluster_file(path)
        objects = ClusterObjects(file.objects)
        read_manifest(objects, file)
        self._lines = SealedLines(objects, file.name)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        """Yields the lines as objects. A line names its WARC file with its node, as the object of that file is named.
        Raises DamagedStoreError, UnreachableError."""
        decoder = msgspec.json.Decoder(dict[str, Any])
        passed = self._lines.not_counted()
        for node, name, octets in self._lines.of(PAGES):
            try:
                line = decoder.decode(octets)
                token = int(line["token"])
            except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
                raise DamagedStoreError(
                    f"the object {name} has a line that is not a page ({error}); restore it"
                ) from None
            if token not in passed:
                passed.add(token)
                yield with_archive_in(line, f"{node}-")

    def items(self) -> Iterator[Mapping[str, Any]]:
        """Yields the lines of the items of all pages."""
        return items_of_pages(self)
