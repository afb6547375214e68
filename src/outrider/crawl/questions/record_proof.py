"""A part of the politeness record that a stranger can check: `politeness --proof` writes it, `--check` reads it.

A file of JSON lines. The first one has the signed tree head and its key; each other line has a line of the record, its
index and its inclusion proof (base64, from the leaf to the root):

    {"format": "outrider-record-proof-1", "head": "NOTE", "key": "NAME+HASH+KEY", "host": "a.test", "lines": 2}
    {"index": 5, "line": "{…}", "proof": ["…"]}

After them are the robots.txt files whose digests are in these lines, as far as the archive has them:

    {"robots": "BASE64"}
"""

from __future__ import annotations

import base64
import contextlib
import os
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, Final

import msgspec

from outrider.crawl.output.output import FILES, POLITENESS, whole_lines
from outrider.crawl.output.record_heads import HEAD_ENDING, HEADS_FOLDER, head_text, record_name
from outrider.crawl.questions.captures import form_of_archive, rules_of
from outrider.crawl.questions.politeness_proof import Judge, Proof, host_of_line
from outrider.crawl.run.visit import rules_digest
from outrider.crawl.setup.directory import ARCHIVE_NAME, store_of
from outrider.crawl.setup.request_signer import identity_of
from outrider.errors import NamedPathError, SettingsError
from outrider.identity.merkle_tree import LineTree, ProofMaker, leaf_hash, proves
from outrider.identity.signed_note import TreeHead, head_of, public_key, read_head, verifier_key
from outrider.identity.signing_key import base64url, thumbprint
from outrider.limits import IDENTITY_FILE_BYTES_MAX, OUTPUT_LINE_BYTES_MAX, RECORD_PROOF_LINES_MAX

FORMAT: Final = "outrider-record-proof-1"
_PROOF_MAX: Final = 64  # hashes of one proof: a tree has at most 2^63 lines
_LINE_BYTES_MAX: Final = 2 * OUTPUT_LINE_BYTES_MAX + 8_192


class ProofHeader(msgspec.Struct):
    """The first line of the file. host: None for all hosts. lines: their number."""

    format: str
    head: str
    key: str
    host: str | None
    lines: int


class ProvenLine(msgspec.Struct):
    """A line of the record with its proof."""

    index: int
    line: str
    proof: list[str]


class ProvenRules(msgspec.Struct):
    """The content of a robots.txt, whose digest is in a line before."""

    robots: str


class _Digest(msgspec.Struct):
    """The digest of a line about a robots.txt."""

    digest: str = ""


@dataclass(slots=True)
class CheckedRecord:
    """The result of a check. key: the thumbprint of the key. head: the tree head, None if its signature is wrong.
    faults: the first ones, in words; `broken` counts all. rules: the digests of robots.txt files in the lines; missing:
    those without a file. politeness: the findings about gaps."""

    key: str = ""
    head: TreeHead | None = None
    host: str | None = None
    lines: int = 0
    broken: int = 0
    faults: list[str] = field(default_factory=list)
    rules: set[str] = field(default_factory=set)
    missing: set[str] = field(default_factory=set)
    politeness: Proof = field(default_factory=Proof)

    @property
    def ok(self) -> bool:
        """Whether each line is in the signed tree."""
        return self.head is not None and not self.broken

    def add(self, text: str) -> None:
        """Notes a fault."""
        self.broken += 1
        if len(self.faults) < _FAULTS_NAMED_MAX:
            self.faults.append(text)


_FAULTS_NAMED_MAX: Final = 20


def write_proof(path: str, host: str | None, file: str, identity: str | None) -> ProofHeader:
    """Writes the lines of a host, or all, with proofs. identity: signs a new head over all lines; None takes the newest
    head of the crawl. Raises SettingsError, NamedPathError; SettingsError also for a record that is not that of its
    signed heads."""
    store_of(path)
    record = os.path.join(path, FILES[POLITENESS])
    heads = _heads(path)
    leaves, wanted = _leaves(record, host, heads)
    if identity is not None:
        note, key = _new_head(record, leaves, identity)
    elif heads:
        note, key = heads[max(heads)]
    else:
        raise SettingsError(
            f"{path} has no signed tree head: crawl with --identity DIR, or sign one now with --identity DIR"
        )
    head = head_of(note)
    maker = ProofMaker(leaves[: 32 * head.size])
    lines = [index for index in wanted if index < head.size]
    if host is not None and not lines:
        raise SettingsError(f"host {host!r:.260} has no line in the signed record; `outrider hosts` lists hosts")
    header = ProofHeader(FORMAT, note, key, host, len(lines))
    _write_file(file, record, header, maker, lines)
    return header


def _archived_rules(path: str, wanted: set[str]) -> Iterator[bytes]:
    """Yields the robots.txt files of the archive with these digests, each once."""
    folder = os.path.join(path, ARCHIVE_NAME)
    names = sorted(os.listdir(folder)) if wanted and os.path.isdir(folder) else []
    for name in names:
        if form_of_archive(name) is None or not wanted:
            continue
        for content in rules_of(os.path.join(folder, name)):
            digest = rules_digest(content)
            if digest in wanted:
                wanted.discard(digest)
                yield content


def _digest_of(line: bytes) -> str:
    try:
        return msgspec.json.decode(line, type=_Digest).digest
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""


def _write_file(file: str, record: str, header: ProofHeader, maker: ProofMaker, lines: list[int]) -> None:
    chosen = iter(lines)
    following = next(chosen, None)
    wanted: set[str] = set()
    try:
        with open(file, "xb") as target:
            target.write(msgspec.json.encode(header) + b"\n")
            for index, line in enumerate(whole_lines(record)):
                if following is None:
                    break
                if index == following:
                    proof = [base64.b64encode(one).decode() for one in maker.proof(index)]
                    target.write(msgspec.json.encode(ProvenLine(index, line[:-1].decode(), proof)) + b"\n")
                    following = next(chosen, None)
                    wanted.add(_digest_of(line))
            for content in _archived_rules(os.path.dirname(record), wanted - {""}):
                target.write(msgspec.json.encode(ProvenRules(base64.b64encode(content).decode())) + b"\n")
    except FileExistsError:
        raise NamedPathError(f"{file} exists already; choose another name, or remove it") from None
    except OSError as error:
        raise NamedPathError(f"{file} cannot be written ({error.strerror}); choose another place") from None


def _new_head(record: str, leaves: bytearray, identity: str) -> tuple[str, str]:
    found = identity_of(identity)
    assert found is not None, "an identity is named"
    folder, key = found
    if not leaves:
        raise SettingsError(f"{record} has no line yet")
    name = record_name(folder, record)
    head = TreeHead(name, len(leaves) // 32, ProofMaker(leaves).root())
    return head_text(head, key).removesuffix(verifier_key(name, key.public) + "\n"), verifier_key(name, key.public)


def _leaves(record: str, host: str | None, heads: dict[int, tuple[str, str]]) -> tuple[bytearray, array[int]]:
    """Returns the hashes of all lines, and the indexes of the lines of a host. Raises SettingsError if the record at
    the size of a head has another root."""
    leaves, wanted, tree = bytearray(), array("q"), LineTree()
    for index, line in enumerate(whole_lines(record)):
        line = line[:-1]
        leaves += leaf_hash(line)
        tree.extend((line,))
        if host is None or host_of_line(line) == host:
            wanted.append(index)
        if tree.size in heads and head_of(heads[tree.size][0]).root != tree.root():
            raise SettingsError(
                f"the first {tree.size:,} lines of {record} are not those of the signed head: lines were changed; "
                "`outrider politeness` names them"
            )
        if tree.size > RECORD_PROOF_LINES_MAX:
            raise SettingsError(f"{record} has more than {RECORD_PROOF_LINES_MAX:,} lines, too many for a proof")
    if heads and max(heads) > tree.size:
        raise SettingsError(f"{record} has {tree.size:,} lines, but {max(heads):,} were signed: lines were removed")
    return leaves, wanted


def _heads(path: str) -> dict[int, tuple[str, str]]:
    """Returns the signed heads of a crawl with their keys, by size."""
    folder, found = os.path.join(path, HEADS_FOLDER), {}
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(folder):
            if name.endswith(HEAD_ENDING):
                with open(os.path.join(folder, name), "rb") as file:
                    text = file.read(IDENTITY_FILE_BYTES_MAX).decode("utf-8", "replace")
                note, _, key = text.rstrip("\n").rpartition("\n")
                found[head_of(note + "\n").size] = (note + "\n", key)
    return found


def check_proof(file: str) -> CheckedRecord:
    """Checks a file of `write_proof` by itself. Raises NamedPathError if it cannot be read or has another form."""
    try:
        with open(file, "rb") as source:
            return _checked(file, source)
    except OSError as error:
        raise NamedPathError(f"{file} cannot be read ({error.strerror})") from None


def _checked(file: str, source: BinaryIO) -> CheckedRecord:
    found = CheckedRecord()
    try:
        header = msgspec.json.decode(source.readline(_LINE_BYTES_MAX), type=ProofHeader)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        header = None
    if header is None or header.format != FORMAT:
        raise NamedPathError(f"{file} is not a file that `outrider politeness --proof` wrote")
    found.host = header.host
    try:
        found.key = thumbprint(base64url(public_key(header.key)[1]))
        found.head = read_head(header.head, header.key)
    except SettingsError as error:
        found.add(error.facts)
        return found
    judge = Judge(found.politeness)
    last = -1
    for number, line in _proven_lines(source, found):
        if line.index <= last:
            found.add(f"line {number} of the file: its index {line.index} is not after {last}")
        last = line.index
        octets = _check_line(number, line, found)
        if octets is not None and (digest := _digest_of(octets)):
            found.rules.add(digest)
            found.missing.add(digest)
        if octets is not None and judge.take(line.index + 1, octets) is None:
            continue
        if header.host is not None and octets is not None and host_of_line(octets) != header.host:
            found.add(f"line {number} of the file: it is not of host {header.host:.260}")
    if found.lines != header.lines:
        found.add(f"the file has {found.lines:,} lines of the record, but its first line says {header.lines:,}")
    if header.host is None and found.lines != found.head.size:
        found.add(f"the file has {found.lines:,} lines, but {found.head.size:,} were signed")
    judge.end(true_to_store=True)
    return found


def _proven_lines(source: BinaryIO, found: CheckedRecord) -> Iterator[tuple[int, ProvenLine]]:
    """Yields the lines with their numbers in the file, from 2."""
    number = 1
    while text := source.readline(_LINE_BYTES_MAX):
        number += 1
        if text.startswith(b'{"robots":'):
            _check_rules(number, text, found)
            continue
        found.lines += 1
        try:
            yield number, msgspec.json.decode(text, type=ProvenLine)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            found.add(f"line {number} of the file is malformed: {error}")


def _check_rules(number: int, text: bytes, found: CheckedRecord) -> None:
    """Checks a robots.txt by the digests of the lines before."""
    try:
        content = base64.b64decode(msgspec.json.decode(text, type=ProvenRules).robots, validate=True)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        found.add(f"line {number} of the file is malformed: {error}")
        return
    if rules_digest(content) not in found.rules:
        found.add(f"line {number} of the file: no line of the record has the digest of this robots.txt")
    found.missing.discard(rules_digest(content))


def _check_line(number: int, line: ProvenLine, found: CheckedRecord) -> bytes | None:
    """Returns the line of the record if it is in the signed tree."""
    assert found.head is not None
    octets = line.line.encode("utf-8", "surrogatepass")
    try:
        proof = [base64.b64decode(one, validate=True) for one in line.proof[: _PROOF_MAX + 1]]
    except ValueError:
        proof = []
    if proves(leaf_hash(octets), line.index, found.head.size, proof, found.head.root):
        return octets
    found.add(f"line {number} of the file: it is not line {line.index + 1:,} of the signed record")
    return None
