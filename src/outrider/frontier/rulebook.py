"""The robots.txt files of all authorities, each once: a bounded number of bytes in memory, the rest on disk.

An authority names its file by its digest, a keyed hash of the bytes. A file is kept packed, whoever reads it; beside it
stands what it says to our agent, once somebody asked. What was used longest ago leaves memory first: its rules are read
again when they are asked for, and the packed file goes to a scratch file, as the ends of queues do. Nothing of this is
a fact: the facts are the digest and the bytes.
"""

from __future__ import annotations

import sys
from collections import OrderedDict

from outrider.errors import StoreFullError
from outrider.limits import (
    BACKLOG_COLLECT_CHUNKS,
    BACKLOG_SPILL_PATIENCE,
    ROBOTS_MEMORY_BYTES_LEAST,
    ROBOTS_MEMORY_SHARE,
    ROBOTS_PACKED_BYTES_MIN,
    RULES_READ_BYTES_PER_CALL,
)
from outrider.robots import ALLOW_ALL, AgentRules, Rules
from outrider.storage.files import Files
from outrider.storage.scratch import Scratch

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_LEVEL = 1
_LEAVE_AT_ONCE = 64  # files that leave memory before a call goes on, where a disk takes none of them
_DELAYS_MAX = 4_096  # of files that are on their way; a report brings some hundreds
_OWNER = (1 << 32) - 1  # as much of a digest as a chunk on disk tells


def robots_bytes(memory_bytes: int) -> int:
    """How many of a frontier's bytes of memory are for robots.txt files and their rules."""
    return max(memory_bytes // ROBOTS_MEMORY_SHARE, ROBOTS_MEMORY_BYTES_LEAST)


class _Kept:
    """One robots.txt. users: authorities that have it. packed: its bytes in memory, place: on disk; one of them."""

    __slots__ = ("crawl_delay", "packed", "place", "rules", "size", "users")

    def __init__(self) -> None:
        self.users = 0
        self.size = 0  # of its bytes when they are unpacked
        self.packed: bytes | None = None
        self.place: int | None = None
        self.rules: AgentRules | None = None
        self.crawl_delay: float | None = None  # None: nobody has looked yet

    def memory_bytes(self) -> int:
        return (len(self.packed) if self.packed else 0) + (self.rules.memory_bytes if self.rules else 0)


class Rulebook:
    """Files by digest, and what they say to `agent`, a setting. scratch: where files go that find no place in memory,
    None: they stay there. bytes_max: what may be in memory; the file that was used last may alone take more."""

    def __init__(self, scratch: Files | None, *, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.agent = ""
        self._scratch = None if scratch is None else Scratch(scratch, name="robots")
        self._patience = 0  # a disk that was full is tried again after so many files
        self._files: dict[int, _Kept] = {}
        self._at: dict[int, _Kept] = {}  # those on disk, by place
        self._in_memory: OrderedDict[int, int] = OrderedDict()  # their bytes; those used last at the end
        self._bytes = 0
        self._delays: OrderedDict[int, float] = OrderedDict()  # of files that are on their way
        self._room = RULES_READ_BYTES_PER_CALL

    def __len__(self) -> int:
        return len(self._files)

    def __repr__(self) -> str:
        return f"<Rulebook {len(self)} files, {self.memory_bytes} of {self.bytes_max} bytes in memory>"

    @property
    def memory_bytes(self) -> int:
        """What files and rules take in memory, without the rows that say where they are."""
        return self._bytes

    def statistics(self) -> dict[str, int]:
        """Files, how many of them have their rules in memory, bytes in memory and on disk."""
        read = sum(1 for digest in self._in_memory if self._files[digest].rules is not None)
        disk = self._scratch.disk_bytes if self._scratch is not None else 0
        return {"files": len(self), "read": read, "bytes": self._bytes, "disk_bytes": disk}

    # -- the files ----------------------------------------------------------------------------------------------------

    def take(self, digest: int, body: bytes) -> None:
        """One more authority has this file. Nothing is kept of an empty one."""
        if not body:
            return
        kept = self._files.setdefault(digest, _Kept())
        kept.users += 1
        if kept.users == 1:
            kept.size, kept.packed = len(body), _packed(body)
            kept.crawl_delay = self._delays.pop(digest, kept.crawl_delay)
            self._use(digest, kept)
            self._tidy()

    def let_go(self, digest: int) -> None:
        """One authority less has it."""
        kept = self._files.get(digest)
        if kept is None:
            return
        kept.users -= 1
        if kept.users <= 0:
            self._forget(digest, kept)

    def body(self, digest: int) -> bytes:
        """The bytes of a file that some authority has; none of any other."""
        kept = self._files.get(digest)
        if kept is None or not kept.users:
            return b""
        packed = kept.packed
        if packed is None:
            assert self._scratch is not None
            assert kept.place is not None
            packed = self._scratch.read(kept.place, digest & _OWNER)
        return packed if len(packed) == kept.size else zstd.decompress(packed)

    def size(self, digest: int) -> int:
        """How many bytes a file has."""
        kept = self._files.get(digest)
        return kept.size if kept is not None else 0

    # -- what they say ------------------------------------------------------------------------------------------------

    def begin_call(self) -> None:
        """A call may read some small files itself, `RULES_READ_BYTES_PER_CALL` together."""
        self._room = RULES_READ_BYTES_PER_CALL

    def rules(self, digest: int) -> AgentRules | None:
        """What a file says to our agent; None where it is too long to be read in this call, and must be read outside of
        it (`keep`)."""
        kept = self._files.get(digest)
        if kept is None:
            return _NO_RULES
        if kept.rules is None:
            if kept.size > self._room:
                return None
            self._room -= kept.size
            self.keep(digest, Rules.parse(self.body(digest)).of(self.agent))
        elif digest in self._in_memory:
            self._in_memory.move_to_end(digest)
        return kept.rules

    def note_delay(self, digest: int, seconds: float) -> None:
        """This is the Crawl-delay of a file that is about to be taken."""
        self._delays[digest] = seconds
        if len(self._delays) > _DELAYS_MAX:
            self._delays.popitem(last=False)

    def delay_of(self, digest: int, body: bytes) -> float:
        """The Crawl-delay of a file that has just come, as `crawl_delay` tells it of others."""
        kept = self._files.get(digest)
        known = kept.crawl_delay if kept is not None else self._delays.get(digest)
        if known is None:
            known = crawl_delay_of(body, self.agent)
            self.note_delay(digest, known)
        return known

    def count(self, digest: int) -> int:
        """How many rules a file has for our agent, 0 where that is not known."""
        kept = self._files.get(digest)
        return kept.rules.count if kept is not None and kept.rules is not None else 0

    def keep(self, digest: int, rules: AgentRules) -> None:
        """These are the rules of a file; perhaps of one that is about to be taken."""
        kept = self._files.setdefault(digest, _Kept())
        kept.rules, kept.crawl_delay = rules, rules.crawl_delay or 0.0
        self._use(digest, kept)

    def crawl_delay(self, digest: int) -> float:
        """Seconds between requests that a file asks of our agent, 0 where it asks for none; read once."""
        kept = self._files.get(digest)
        if kept is None:
            return 0.0
        if kept.crawl_delay is None:
            kept.crawl_delay = crawl_delay_of(self.body(digest), self.agent)
        return kept.crawl_delay

    # -- what stays in memory -----------------------------------------------------------------------------------------

    def _use(self, digest: int, kept: _Kept) -> None:
        """It was used now; those that were used longest ago make room."""
        self._bytes += kept.memory_bytes() - self._in_memory.pop(digest, 0)
        self._in_memory[digest] = kept.memory_bytes()
        for _ in range(_LEAVE_AT_ONCE):
            oldest = next(iter(self._in_memory))
            if self._bytes <= self.bytes_max or oldest == digest:
                break
            self._leave(oldest, self._files[oldest])

    def _leave(self, digest: int, kept: _Kept) -> None:
        """It leaves memory, but for bytes that no disk takes."""
        self._bytes -= self._in_memory.pop(digest)
        kept.rules = None
        if not kept.users:
            del self._files[digest]
        elif kept.packed is not None and not self._spill(digest, kept, kept.packed):
            self._in_memory[digest] = kept.memory_bytes()
            self._bytes += kept.memory_bytes()

    def _spill(self, digest: int, kept: _Kept, packed: bytes) -> bool:
        if self._scratch is None:
            return False
        if self._patience:
            self._patience -= 1
            return False
        try:
            (kept.place,) = self._scratch.append(digest & _OWNER, [packed])
        except StoreFullError:
            self._patience = BACKLOG_SPILL_PATIENCE
            return False
        self._at[kept.place] = kept
        kept.packed = None
        return True

    def _forget(self, digest: int, kept: _Kept) -> None:
        self._bytes -= self._in_memory.pop(digest, 0)
        del self._files[digest]
        if kept.place is not None and self._scratch is not None:
            del self._at[kept.place]
            self._scratch.release(kept.place)

    def _tidy(self) -> None:
        """Of a scratch file that is mostly garbage the rest is written anew."""
        if self._scratch is None or self._patience:
            return
        try:
            for owner, place, chunk in self._scratch.survivors(BACKLOG_COLLECT_CHUNKS):
                kept = self._at.get(place)
                if kept is not None:
                    (kept.place,) = self._scratch.append(owner, [chunk])
                    self._at[kept.place] = self._at.pop(place)
                    self._scratch.release(place)
        except StoreFullError:
            self._patience = BACKLOG_SPILL_PATIENCE

    def close(self) -> None:
        """Gives the files on disk back."""
        if self._scratch is not None:
            self._scratch.close()


def _packed(body: bytes) -> bytes:
    if len(body) < ROBOTS_PACKED_BYTES_MIN:
        return body
    packed: bytes = zstd.compress(body, _LEVEL)
    return packed if len(packed) < len(body) else body


def crawl_delay_of(body: bytes, agent: str) -> float:
    """Seconds, 0 for none. Most files have no such line, and are not read for it."""
    if b"delay" not in body.replace(b"\0", b"").lower():
        return 0.0
    return Rules.parse(body).crawl_delay(agent) or 0.0


_NO_RULES = ALLOW_ALL.of("")
