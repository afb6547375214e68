"""The robots.txt files of all authorities, each stored once: a bounded number of bytes in memory, the rest on disk.

An authority names its file by its digest, a keyed hash of the bytes. The rulebook stores the packed file, and after the
first use its rules for our agent. The least recently used file leaves memory first: its rules are dropped and parsed
again at the next use, and the packed bytes move to a scratch file, like the tails of queues. Only the digest and the
bytes are facts.

Authorities of cold hosts name files too, so that a common file is on disk once. They name at most `cold_files_max`
files, because each needs some hundred bytes here. A host gets places for its files before it goes cold (`promise`),
because it goes cold only if its record has room for the other files. A file that no authority names remains until the
next checkpoint begins (`drop_unused`): until then a call may name it again. A recovery reads files and names in
any order, and checks at its end for names without a file (`missing`).
"""

from __future__ import annotations

import hashlib
import sys
from collections import OrderedDict
from collections.abc import Sequence

from outrider.errors import StoreFullError
from outrider.frontier.format.facts import Block, Fact, columns_of
from outrider.limits import (
    BACKLOG_COLLECT_CHUNKS,
    BACKLOG_SPILL_PATIENCE,
    OWN_SLOT,
    ROBOTS_COLD_FILE_SHARE,
    ROBOTS_COLD_FILES_LEAST,
    ROBOTS_MEMORY_BYTES_LEAST,
    ROBOTS_MEMORY_SHARE,
    ROBOTS_PACKED_BYTES_MIN,
    RULES_READ_BYTES_PER_CALL,
)
from outrider.robots import ALLOW_ALL, AgentRules, Rules
from outrider.robots.hours import VisitWindow
from outrider.storage.files import Files
from outrider.storage.scratch import Scratch
from outrider.uses import UseLine

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_LEVEL = 1
_LEAVE_AT_ONCE = 64  # a call tries at most this number of files when the disk refuses all of them
_DELAYS_MAX = 4_096  # delays of files that `put` will bring; a report brings some hundreds
_OWNER = (1 << 32) - 1  # the bits of a digest that a chunk on disk has room for


def robots_bytes(memory_bytes: int) -> int:
    """The share of a frontier's memory for robots.txt files and their rules, in bytes."""
    return max(memory_bytes // ROBOTS_MEMORY_SHARE, ROBOTS_MEMORY_BYTES_LEAST)


class _RobotsFile:
    """One robots.txt. users: the number of authorities with it; cold: those of cold hosts. packed: its bytes in memory;
    place: its place on disk; one of the two is set, except before its bytes have arrived. number: its place among the
    files that a checkpoint copies."""

    __slots__ = ("cold", "crawl_delay", "name", "number", "packed", "place", "rules", "size", "users")

    def __init__(self) -> None:
        self.users = 0
        self.cold = 0
        self.number = -1
        self.size = 0  # bytes before packing
        self.packed: bytes | None = None
        self.place: int | None = None
        self.rules: AgentRules | None = None
        self.crawl_delay: float | None = None  # None: not looked up yet
        self.name: str | None = None  # None: not computed yet

    def memory_bytes(self) -> int:
        return (len(self.packed) if self.packed else 0) + (self.rules.memory_bytes if self.rules else 0)


class Rulebook:
    """Files by digest, and their rules for `agent`, a setting. scratch: the files for bytes above the limit, None to
    keep all in memory. bytes_max: the limit for memory; only the most recently used file may exceed it."""

    def __init__(self, scratch: Files | None, *, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.agent = ""
        self._scratch = None if scratch is None else Scratch(scratch, name="robots")
        self._patience = 0  # a full disk is tried again after this number of files
        self._files: dict[int, _RobotsFile] = {}
        self._at: dict[int, _RobotsFile] = {}  # files on disk, by place
        # bytes of files in memory by digest, the last used at the end
        self._in_memory: OrderedDict[int, int] = OrderedDict()
        self._bytes = 0
        self._delays: OrderedDict[int, float] = OrderedDict()  # delays of files that `put` will bring
        self._room = RULES_READ_BYTES_PER_CALL
        self.says_uses = False  # whether a file with lines about uses was read since the opening
        self._listed: list[int] = []  # digests of the files whose bytes are here, each at its `number`
        self._unused: set[int] = set()  # files that no authority names, in `_files` until `drop_unused`
        self._cold_files = 0  # files that an authority of a cold host names
        self._promised: set[int] = set()  # and files of hosts that are next to go cold

    def __len__(self) -> int:
        return len(self._files)

    def __repr__(self) -> str:
        return f"<Rulebook {len(self)} files, {self.memory_bytes} of {self.bytes_max} bytes in memory>"

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory for files and rules, without the index."""
        return self._bytes

    def statistics(self) -> dict[str, int]:
        """Files, how many of them have their rules in memory, bytes in memory and on disk."""
        read = sum(1 for digest in self._in_memory if self._files[digest].rules is not None)
        disk = self._scratch.disk_bytes if self._scratch is not None else 0
        return {"files": len(self), "read": read, "bytes": self._bytes, "disk_bytes": disk}

    # -- the files ----------------------------------------------------------------------------------------------------

    def put(self, digest: int, body: bytes) -> None:
        """Keeps the bytes of a file, named or not, where they are not here yet."""
        kept = self._files.setdefault(digest, _RobotsFile())
        if kept.size or not body:
            return
        kept.size, kept.packed = len(body), _packed(body)
        kept.crawl_delay = self._delays.pop(digest, kept.crawl_delay)
        kept.number = len(self._listed)
        self._listed.append(digest)
        if not kept.users and not kept.cold:
            self._unused.add(digest)
        self._use(digest, kept)
        self._tidy()

    def name(self, digest: int) -> None:
        """Counts one more authority for a file; 0 means no file."""
        if digest:
            self._files.setdefault(digest, _RobotsFile()).users += 1
            self._unused.discard(digest)

    def let_go(self, digest: int) -> None:
        """Counts one authority less for a file."""
        kept = self._files.get(digest)
        if kept is not None and kept.users:
            kept.users -= 1
            if not kept.users and not kept.cold:
                self._unused.add(digest)

    def has(self, digest: int) -> bool:
        """Whether the bytes of a file are here, or need not be: it is empty."""
        return not digest or self.size(digest) > 0

    @property
    def cold_files_max(self) -> int:
        """The number of files that authorities of cold hosts may name: their entries use a tenth of the memory for
        files."""
        return max(ROBOTS_COLD_FILES_LEAST, self.bytes_max // ROBOTS_COLD_FILE_SHARE)

    def places_for(self, digests: Sequence[int]) -> tuple[list[int], int]:
        """Returns the files that get a place if a host with these goes cold, the longest first, and the number of bytes
        of the others in its record. digests: one for each authority."""
        left = max(0, self.cold_files_max - self._cold_files - len(self._promised))
        new = sorted({one for one in digests if one in self._files and not self.stays(one)}, key=self.size)
        without = set(new[: max(0, len(new) - left)])
        return new[len(without) :], sum(self.size(one) for one in digests if one in without)

    def promise(self, digests: Sequence[int]) -> None:
        """Reserves places for files of a host that is next to go cold."""
        self._promised.update(digests)

    def stays(self, digest: int) -> bool:
        """Whether an authority of a host that goes cold names its file, which then remains here."""
        kept = self._files.get(digest)
        return kept is not None and (kept.cold > 0 or digest in self._promised)

    def go_cold(self, digest: int) -> None:
        """Counts an authority with a file that goes cold, and names it."""
        self.note_cold(digest)
        self._promised.discard(digest)
        self._files[digest].users -= 1

    def come_back(self, digest: int) -> None:
        """An authority that names a file is no longer cold."""
        kept = self._files[digest]
        kept.users += 1
        kept.cold -= 1
        self._cold_files -= not kept.cold

    def note_cold(self, digest: int) -> None:
        """Counts one more authority of a cold host for a file."""
        kept = self._files.setdefault(digest, _RobotsFile())
        self._cold_files += not kept.cold
        kept.cold += 1
        self._unused.discard(digest)

    def drop_unused(self) -> None:
        """Forgets the files that no authority names."""
        for digest in self._unused:
            kept = self._files[digest]
            if kept.size:
                last = self._listed.pop()
                if last != digest:
                    self._listed[kept.number], self._files[last].number = last, kept.number
            self._forget(digest, kept)
        self._unused.clear()

    def missing(self) -> list[int]:
        """The digests that authorities name and whose bytes are not here."""
        return [digest for digest, kept in self._files.items() if not kept.size and (kept.users or kept.cold)]

    def named(self) -> tuple[dict[int, int], dict[int, int]]:
        """By digest, how many authorities name each file, and how many of cold hosts."""
        users = {digest: kept.users for digest, kept in self._files.items() if kept.users}
        return users, {digest: kept.cold for digest, kept in self._files.items() if kept.cold}

    def places(self) -> int:
        """How many files a checkpoint copies."""
        return len(self._listed)

    def blocks(self, first: int, last: int) -> list[Block]:
        """The facts that rebuild the files in the places `first` … `last - 1`."""
        rows = [(OWN_SLOT, digest, self.body(digest)) for digest in self._listed[first:last]]
        return [(Fact.ROBOTS_FILE, columns_of(rows))] if rows else []

    def body(self, digest: int) -> bytes:
        """The bytes of a file; empty when they are not here."""
        kept = self._files.get(digest)
        if kept is None or not kept.size:
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
        """Begins a call, which may parse `RULES_READ_BYTES_PER_CALL` bytes of files itself."""
        self._room = RULES_READ_BYTES_PER_CALL

    def rules(self, digest: int) -> AgentRules | None:
        """Returns the rules of a file for our agent; None if it is too long to parse in this call: then another thread
        parses it, and `keep` stores the rules."""
        kept = self._files.get(digest)
        if kept is None:
            return NO_RULES
        if kept.rules is None:
            if kept.size > self._room:
                return None
            self._room -= kept.size
            self.keep(digest, Rules.parse(self.body(digest)).of(self.agent))
        elif digest in self._in_memory:
            self._in_memory.move_to_end(digest)
        return kept.rules

    def note_delay(self, digest: int, seconds: float) -> None:
        """Notes the Crawl-delay of a file before `put`."""
        self._delays[digest] = seconds
        if len(self._delays) > _DELAYS_MAX:
            self._delays.popitem(last=False)

    def delay_of(self, digest: int, body: bytes) -> float:
        """Returns the Crawl-delay of a file that has just arrived; `crawl_delay` is for stored files."""
        kept = self._files.get(digest)
        known = kept.crawl_delay if kept is not None else self._delays.get(digest)
        if known is None:
            known = crawl_delay_of(body, self.agent)
            self.note_delay(digest, known)
        return known

    def about_uses(self, digest: int, url: str) -> tuple[UseLine, ...]:
        """Returns the lines of a file that say what a URL may be used for."""
        if digest not in self._files:
            return ()
        rules = self.rules(digest)
        if rules is None:  # longer than one call may parse, and no longer in memory
            rules = Rules.parse(self.body(digest)).of(self.agent)
            self.keep(digest, rules)
        return rules.about_uses(url)

    def ruled_by(self, digest: int, url: str) -> tuple[str, int] | None:
        """Returns the name of a file, which is the digest of its bytes, and the number of its line that decides about a
        URL, 0 if no line does; None for a file whose rules are not in memory."""
        kept = self._files.get(digest)
        if kept is None or kept.rules is None:
            return None
        if kept.name is None:
            kept.name = f"sha256:{hashlib.sha256(self.body(digest)).hexdigest()}"
        return kept.name, abs(kept.rules.verdict(url))

    def hours(self, digest: int) -> tuple[VisitWindow, ...]:
        """Returns the windows of Visit-time, none for a file whose rules are not in memory."""
        kept = self._files.get(digest)
        return kept.rules.hours if kept is not None and kept.rules is not None else ()

    def count(self, digest: int) -> int:
        """How many rules a file has for our agent, 0 where its rules are not in memory."""
        kept = self._files.get(digest)
        return kept.rules.count if kept is not None and kept.rules is not None else 0

    def keep(self, digest: int, rules: AgentRules) -> None:
        """Keeps the rules of a file, also before `put`."""
        kept = self._files.setdefault(digest, _RobotsFile())
        kept.rules, kept.crawl_delay = rules, rules.crawl_delay or 0.0
        self.says_uses |= rules.uses is not None
        self._use(digest, kept)

    def crawl_delay(self, digest: int) -> float:
        """Returns the Crawl-delay of a file for our agent in seconds, 0 without one; parsed once."""
        kept = self._files.get(digest)
        if kept is None:
            return 0.0
        if kept.crawl_delay is None:
            kept.crawl_delay = crawl_delay_of(self.body(digest), self.agent)
        return kept.crawl_delay

    # -- what stays in memory -----------------------------------------------------------------------------------------

    def _use(self, digest: int, kept: _RobotsFile) -> None:
        """Notes a use of a file, and makes room: the files that were used longest ago leave memory."""
        self._bytes += kept.memory_bytes() - self._in_memory.pop(digest, 0)
        self._in_memory[digest] = kept.memory_bytes()
        for _ in range(_LEAVE_AT_ONCE):
            oldest = next(iter(self._in_memory))
            if self._bytes <= self.bytes_max or oldest == digest:
                break
            self._leave(oldest, self._files[oldest])

    def _leave(self, digest: int, kept: _RobotsFile) -> None:
        """Removes a file from memory; its packed bytes remain if the disk refuses them."""
        self._bytes -= self._in_memory.pop(digest)
        kept.rules = None
        if not kept.size:
            if not kept.users and not kept.cold:
                del self._files[digest]
        elif kept.packed is not None and not self._spill(digest, kept, kept.packed):
            self._in_memory[digest] = kept.memory_bytes()
            self._bytes += kept.memory_bytes()

    def _spill(self, digest: int, kept: _RobotsFile, packed: bytes) -> bool:
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

    def _forget(self, digest: int, kept: _RobotsFile) -> None:
        self._bytes -= self._in_memory.pop(digest, 0)
        del self._files[digest]
        if kept.place is not None and self._scratch is not None:
            del self._at[kept.place]
            self._scratch.release(kept.place)

    def _tidy(self) -> None:
        """Writes the living chunks of a scratch file anew when most of it is garbage."""
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
        """Closes and removes the scratch files."""
        if self._scratch is not None:
            self._scratch.close()


def _packed(body: bytes) -> bytes:
    if len(body) < ROBOTS_PACKED_BYTES_MIN:
        return body
    packed: bytes = zstd.compress(body, _LEVEL)
    return packed if len(packed) < len(body) else body


def crawl_delay_of(body: bytes, agent: str) -> float:
    """Returns the seconds of Crawl-delay and Request-rate, 0 without both. Most files are not parsed."""
    text = body.replace(b"\0", b"").lower()
    if b"delay" not in text and b"request" not in text:
        return 0.0
    return Rules.parse(body).gap(agent) or 0.0


NO_RULES = ALLOW_ALL.of("")
