"""Signed heads of the politeness record: one file in `heads/` for each, named by its number of lines.

A crawl with an identity writes one at the end of each run and every hour, after the log has all lines of the tree.
"""

from __future__ import annotations

import os
import time
from typing import Final

from outrider.crawl.output.output import FILES, POLITENESS, whole_lines
from outrider.crawl.setup.options import CrawlOptions
from outrider.crawl.setup.request_signer import identity_of
from outrider.identity.folder import IdentityFolder
from outrider.identity.merkle_tree import LineTree, leaf_hash
from outrider.identity.signed_note import TreeHead, signed_head, verifier_key
from outrider.identity.signing_key import SigningKey
from outrider.limits import RECORD_HEAD_SECONDS
from outrider.storage.files import Directory, replace

HEADS_FOLDER: Final = "heads"
HEAD_ENDING: Final = ".note"
_NAME_BYTES: Final = 8  # the part of the first hash in the name of a record


class RecordHeads:
    """Writes the signed heads of one crawl; without an identity, none."""

    def __init__(self, options: CrawlOptions) -> None:
        """Raises SettingsError and NamedPathError for an identity that cannot be used."""
        self._output = options.output
        self._identity = identity_of(options.identity)
        self._last = time.monotonic()

    @property
    def is_due(self) -> bool:
        """Whether the next head is due, an hour after the last one."""
        return self._identity is not None and time.monotonic() - self._last >= RECORD_HEAD_SECONDS

    def write(self, tree: LineTree) -> None:
        """Writes the head of a tree whose lines are synced, unless there is one. Raises StoreError."""
        self._last = time.monotonic()
        if self._identity is None or not tree.size:
            return
        folder, key = self._identity
        name = f"{tree.size:012d}{HEAD_ENDING}"
        heads = Directory(os.path.join(self._output, HEADS_FOLDER))
        try:
            if name not in heads.names():
                record = os.path.join(self._output, FILES[POLITENESS])
                text = head_text(TreeHead(record_name(folder, record), tree.size, tree.root()), key)
                replace(heads, name, text.encode())
        finally:
            heads.close()


def head_text(head: TreeHead, key: SigningKey) -> str:
    """Returns a signed note, and the key that verifies it on a line of its own after it."""
    return f"{signed_head(head, key)}{verifier_key(head.name, key.public)}\n"


def record_name(folder: IdentityFolder, record: str) -> str:
    """Returns the name of a record: the crawler's site and name, and digits of the hash of the first line."""
    first = next(whole_lines(record)).rstrip(b"\n")
    crawler = folder.crawler
    return f"{crawler.authority}/{crawler.name.lower()}/{leaf_hash(first)[:_NAME_BYTES].hex()}"
