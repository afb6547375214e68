"""A fuzzer of sizes: each text and bytes field of each verb, of `restore` and of each import form, through 2^k - 1, 2^k
and 2^k + 1 up to 4 MiB. A value is refused before anything is logged, by its name and with both sizes, or kept whole
and read back equal; and the store opens again.

`make test` walks each field once, `make test-long` for OUTRIDER_SIZES_SECONDS (an hour) with seeds of its own, or with
OUTRIDER_SIZES_SEED.
"""

from __future__ import annotations

import io
import os
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

from model.inside import inspect
from outrider import Frontier, Link
from outrider.crawl.orders import exchange
from outrider.crawl.output.tabular import FRONTIER, write_records
from outrider.errors import SettingsError
from outrider.frontier.state.payments import place_of
from outrider.journey import Lease, Outcome, Verdict
from outrider.kernels import in_use
from outrider.limits import (
    DIGEST_BYTES_MAX,
    ERROR_TEXT_MAX,
    LINE_BYTES_MAX,
    METADATA_BYTES_MAX,
    NAME_CHARACTERS_MAX,
    PAYMENT_TEXT_MAX,
    REFERRER_BYTES_MAX,
    ROBOTS_BYTES_MAX,
    SIGNALS_BYTES,
    TEXT_DIGEST_BYTES,
    UNIQUE_KEY_BYTES_MAX,
    URL_BYTES_MAX,
    VALIDATOR_BYTES_MAX,
    WARC_MARK_BYTES,
    WATERMARK_BYTES_MAX,
)
from outrider.sim.disk import FaultyFiles

START = 1_700_000_000_000_000
KEYS = (bytes(range(16)), bytes(range(16, 32)))
POWERS = range(23)
SIZES = sorted({size for power in POWERS for size in ((1 << power) - 1, 1 << power, (1 << power) + 1)} - {0})
SIZES_IN_QUICK_TESTS = 24
LETTERS = ("a", "ü", "\x01", "😀", '"')
TOLD = re.compile(r" has ([\d,]+) (?:bytes|characters); it may have ([\d,]+)")


def text(size: int, letter: str = "a") -> str:
    """Returns this number of bytes of UTF-8."""
    octets = len(letter.encode("utf-8", "surrogatepass"))
    return letter * (size // octets) + "a" * (size % octets)


def names(size: int, letter: str = "a") -> str:
    """Returns this number of characters."""
    return letter * size


def metadata(size: int, letter: str = "a") -> dict[str, object]:
    """Returns this number of bytes as JSON, and never fewer than 8."""
    return {"x": "a" * (size - 8)}


def url(number: int, size: int = 0) -> str:
    """Returns the URL of a case, of this number of bytes."""
    start = f"http://h{number}.test/"
    return start + "a" * (size - len(start))


@dataclass
class Case:
    """One value of one field, and where it is read after it was accepted."""

    number: int
    size: int
    letter: str
    rng: random.Random

    @property
    def url(self) -> str:
        return url(self.number)


Look = Callable[["Walk"], object]
Taken = tuple[object, Look] | None  # the value to be read back, and how; None where an answer refused it


class Walk:
    """A frontier that gets one case after the other."""

    def __init__(self, disk: FaultyFiles, **how: Any) -> None:
        self.disk, self.how = disk, how
        self.at = START
        self.open()

    def open(self) -> None:
        self.frontier = Frontier.open(
            self.disk, clock=lambda: self.at, output=True, keys=KEYS, **{"robots": "caller", **self.how}
        )
        self._records: dict[tuple[str, str], Mapping[str, Any]] | None = None

    def again(self) -> None:
        self.frontier.close()
        self.open()

    @property
    def records(self) -> Mapping[tuple[str, str], Mapping[str, Any]]:
        if self._records is None:
            self._records = {(one["crawl"], one["url"]): one for one in self.frontier.records()}
        return self._records

    def lease(self, case: Case, **more: Any) -> Lease:
        self.frontier.discover([case.url])
        leases = self.frontier.lease(1, key=f"h{case.number}.test", **more)
        assert [case.url] == leases.urls
        return leases[0]

    def lsn(self) -> int:
        return self.frontier._log.appended_lsn


Give = Callable[[Walk, Case], Taken]


def of_record(case: Case, name: str, crawl: str = "default") -> Look:
    return lambda walk: walk.records[crawl, case.url][name]


# -- discover ---------------------------------------------------------------------------------------------------------


def discover(walk: Walk, link: Link | str, **more: Any) -> bool:
    (code,) = walk.frontier.discover([link], **more)
    assert code in {"new", "over_limit", "invalid"}, code
    return code == "new"


def link_url(walk: Walk, case: Case) -> Taken:
    given = url(case.number, case.size)
    return (given, lambda walk: walk.records["default", given]["url"]) if discover(walk, given) else None


def link_referrer(walk: Walk, case: Case) -> Taken:
    given = text(case.size, case.letter)
    discover(walk, Link(case.url, referrer=given))
    return given, of_record(case, "referrer")


def link_key(walk: Walk, case: Case) -> Taken:
    given = names(case.size, case.letter)
    discover(walk, Link(case.url, key=given))
    return given, of_record(case, "key")


def link_crawl(walk: Walk, case: Case) -> Taken:
    given = names(case.size, case.letter)
    discover(walk, Link(case.url, crawl=given))
    return given, of_record(case, "crawl", given)


def link_metadata(walk: Walk, case: Case) -> Taken:
    given = metadata(max(case.size, 8))
    return (given, of_record(case, "metadata")) if discover(walk, Link(case.url, metadata=given)) else None


def link_unique_key(walk: Walk, case: Case) -> Taken:
    given = case.rng.randbytes(case.size)
    discover(walk, Link(case.url, crawl="mine", unique_key=given))
    return given.hex(), of_record(case, "unique_key", "mine")


def request_client(walk: Walk, case: Case) -> Taken:
    client = names(case.size, case.letter)
    discover(walk, case.url, request_id=(client, 1))
    return True, lambda walk: client in inspect(walk.frontier).tables.registry.requests


# -- lease and report -------------------------------------------------------------------------------------------------


def lease_worker(walk: Walk, case: Case) -> Taken:
    given = names(case.size, case.letter)
    walk.lease(case, worker=given, ttl_seconds=86_400)
    return True, lambda walk: given in inspect(walk.frontier).tables.registry.holder_rows


def lease_name(what: str) -> Callable[[Walk, Case], Taken]:
    def give(walk: Walk, case: Case) -> Taken:
        walk.frontier.lease(1, **{what: names(case.size, case.letter)})
        return None

    return give


def lease_key(walk: Walk, case: Case) -> Taken:
    """The key of a queue that is there: a text that is neither a key nor a host is refused at any size."""
    walk.frontier.discover([Link(case.url, key=names(case.size, case.letter))])
    walk.frontier.lease(1, key=names(case.size, case.letter))
    return None


def outcome(name: str, value: Callable[[Case], Any], look: Callable[[Case], Look]) -> Callable[[Walk, Case], Taken]:
    """A field of an outcome."""

    def give(walk: Walk, case: Case) -> Taken:
        lease = walk.lease(case)
        given = value(case)
        try:
            walk.frontier.report([Outcome(lease.token, Verdict.DONE, status=200, **{name: given})])
        except SettingsError:
            walk.frontier.report([lease.done()])  # the frontier continues, and the lease is open as before
            raise
        return (given.hex() if isinstance(given, bytes) and name in RECORD else given), look(case)

    return give


def line_of(stream: str) -> Callable[[Case], Look]:
    def of(case: Case) -> Look:
        def look(walk: Walk) -> object:
            end = b',"new_links":0}' if stream == "pages" else b""
            for _, line in walk.frontier.lines(stream, 0):
                if line.startswith(b'{"n":%d,' % case.number):
                    return line.removesuffix(end) + b"}" if end else line
            return None

        return look

    return of


def line(case: Case) -> bytes:
    start = b'{"n":%d,"x":"' % case.number
    return start + b"a" * (case.size - len(start) - 2) + b'"}'


def location(walk: Walk, case: Case) -> Taken:
    lease = walk.lease(case)
    given = f"http://to{case.number}.test/" + "a" * case.size
    walk.frontier.report([lease.done(status=301, location=given)])
    if ("default", given) not in {(one["crawl"], one["url"]) for one in walk.frontier.records()}:
        assert len(given) > URL_BYTES_MAX
        return None
    return case.url, lambda walk: walk.records["default", given]["referrer"]


def found_referrer(walk: Walk, case: Case) -> Taken:
    lease = walk.lease(case)
    given = text(case.size, case.letter)
    found = f"http://found{case.number}.test/"
    try:
        walk.frontier.report([lease.done(links=[Link(found, referrer=given)])])
    except SettingsError:
        walk.frontier.report([lease.done()])
        raise
    return given, lambda walk: walk.records["default", found]["referrer"]


def watermark(walk: Walk, case: Case) -> Taken:
    given = case.letter.encode() * (case.size // len(case.letter.encode())) or b"x"
    walk.frontier.report([], watermark=("writer", given))
    return True, lambda walk: len(walk.frontier.watermarks()["writer"]) >= len(given)


def noted(walk: Walk, case: Case) -> Taken:
    given = b"x" * case.size
    walk.frontier.note_watermark(f"w{case.number}", given)
    return given, lambda walk: walk.frontier.watermarks()[f"w{case.number}"]


def writer(walk: Walk, case: Case) -> Taken:
    given = names(case.size, case.letter)
    walk.frontier.note_watermark(given, b"%d" % case.number)
    return b"%d" % case.number, lambda walk: walk.frontier.watermarks()[given]


# -- robots rules and addresses ---------------------------------------------------------------------------------------


def robots_body(walk: Walk, case: Case) -> Taken:
    given = (b"#" * 63 + b"\n") * (case.size // 64) + b"#" * (case.size % 64)
    walk.frontier.set_robots(case.url, 200, given)
    name = case.url.rstrip("/")
    # RFC 9309 section 2.5: lines after the limit are not read.
    kept = given if len(given) <= ROBOTS_BYTES_MAX else given[: given.rindex(b"\n", 0, ROBOTS_BYTES_MAX) + 1]

    def look(walk: Walk) -> object:
        tables = inspect(walk.frontier).tables
        return tables.robots.rulebook.body(tables.robots.by_name[name].digest)

    return kept, look


def authority(walk: Walk, case: Case) -> Taken:
    name = f"http://{text(case.size)}.test"
    walk.frontier.set_robots(name, 200, b"User-agent: *")
    return True, lambda walk: name in inspect(walk.frontier).tables.robots.by_name


def addressed(walk: Walk, case: Case) -> Taken:
    name = f"{text(case.size)}.test"
    walk.frontier.set_address(name, "192.0.2.1")
    return True, lambda walk: walk.frontier.count(host=name) == 0


def address(walk: Walk, case: Case) -> Taken:
    walk.frontier.set_address(f"h{case.number}.test", f"fe80::1%{text(case.size)}")
    return None


# -- links between logs -----------------------------------------------------------------------------------------------


def parcel(place: int, value: Callable[[Case], Any], look: Callable[[Case, Any], Look]) -> Give:
    """A field of a parcel, by its place."""

    def give(walk: Walk, case: Case) -> Taken:
        row: list[Any] = [1, case.number + 1, 2, "default", "", -1, 0.5, 0, 0, 0, "", b"", case.url]
        row[place] = given = value(case)
        (code,) = walk.frontier.receive([tuple(row)])
        if code != "new":
            assert code in {"over_limit", "invalid"}
            return None
        return msgspec.json.decode(given) if isinstance(given, bytes) else given, look(case, given)

    return give


def outboxed(name: str, place: int, value: Callable[[Case], Any]) -> Callable[[Walk, Case], Taken]:
    """A field of a link that is written to another log."""

    def give(walk: Walk, case: Case) -> Taken:
        given = value(case)
        more = {} if name == "url" else {name: given}
        (code,) = walk.frontier.discover([Link(given if name == "url" else case.url, **more)])
        if code == "over_limit":
            return None
        assert code == "held"
        where = given if name == "url" else case.url

        def look(walk: Walk) -> object:
            (row,) = [row for row in walk.frontier.outbox(10_000) if row[12] == where]
            return msgspec.json.decode(row[place]) if isinstance(row[place], bytes) else row[place]

        return given, look

    return give


# -- operators, closing, restore and imports --------------------------------------------------------------------------


def operator(verb: str, *places: object, **more: Callable[[Case], Any]) -> Callable[[Walk, Case], Taken]:
    """A verb whose texts only name what is there."""

    def give(walk: Walk, case: Case) -> Taken:
        getattr(walk.frontier, verb)(*places, **{name: value(case) for name, value in more.items()})
        return None

    return give


def closing(walk: Walk, case: Case) -> Taken:
    given = names(case.size, case.letter)
    walk.frontier.close(given)
    walk.open()
    seen = walk.frontier.opening.previous_state
    return given, lambda walk: seen


RECORD: dict[str, tuple[Callable[[Case], Any], int | None]] = {
    "url": (lambda case: url(case.number, case.size), URL_BYTES_MAX),
    "crawl": (lambda case: names(case.size, case.letter), NAME_CHARACTERS_MAX),
    "key": (lambda case: names(case.size, case.letter), NAME_CHARACTERS_MAX),
    "state": (lambda case: names(case.size), 0),
    "reason": (lambda case: names(case.size), 0),
    "referrer": (lambda case: text(case.size, case.letter), REFERRER_BYTES_MAX),
    "error": (lambda case: names(case.size, case.letter), ERROR_TEXT_MAX),
    "digest": (lambda case: "ab" * case.size, DIGEST_BYTES_MAX),
    "text_digest": (lambda case: "cd" * case.size, TEXT_DIGEST_BYTES),
    "warc_record": (lambda case: "ef" * case.size, WARC_MARK_BYTES),
    "signals": (lambda case: "01" * case.size, SIGNALS_BYTES),
    "etag": (lambda case: text(case.size, case.letter), VALIDATOR_BYTES_MAX),
    "last_modified": (lambda case: text(case.size, case.letter), VALIDATOR_BYTES_MAX),
    "metadata": (lambda case: metadata(max(case.size, 8)), METADATA_BYTES_MAX),
    "unique": (lambda case: names(case.size), 0),
    "order": (lambda case: names(case.size), 0),
    "unique_key": (lambda case: "ef" * case.size, UNIQUE_KEY_BYTES_MAX),
}
"""The fields of a record: a value of a size, and the size up to which it is accepted."""


def record(name: str, case: Case) -> dict[str, Any]:
    of_crawl = {"crawl": "mine", "unique": "caller"} if name == "unique_key" else {}
    return {"url": case.url, "state": "done"} | of_crawl | {name: RECORD[name][0](case)}


def record_look(name: str, given: Mapping[str, Any]) -> Look:
    place = (given.get("crawl", "default"), given["url"])
    return lambda walk: walk.records[place][name]


def restored(name: str) -> Callable[[Walk, Case], Taken]:
    def give(walk: Walk, case: Case) -> Taken:
        given = record(name, case)
        assert 1 == walk.frontier.restore([given])
        return given[name], record_look(name, given)

    return give


# -- all fields -------------------------------------------------------------------------------------------------------


def charged(case: Case) -> Look:
    """The sum of the last answer of a host."""
    return lambda walk: inspect(walk.frontier).tables.urls.payments.get(place_of(case.url)).charged


@dataclass(frozen=True)
class Field:
    """give: passes a value of a case to the frontier; most: the size up to which it must be accepted and above which it
    must be refused, None where an answer says so; how: of the opening; of_callers: whether it is in a crawl by unique
    keys."""

    give: Give
    most: int | None = None
    how: Mapping[str, Any] = field(default_factory=dict)
    least: int = 1
    of_callers: bool = False


NAMES = NAME_CHARACTERS_MAX
ABROAD = {"slots": frozenset({0})}
FIELDS: dict[str, Field] = {
    "discover url": Field(link_url, least=40),
    "discover referrer": Field(link_referrer, REFERRER_BYTES_MAX),
    "discover key": Field(link_key, NAMES),
    "discover crawl": Field(link_crawl, NAMES),
    "discover metadata": Field(link_metadata),
    "discover unique_key": Field(link_unique_key, UNIQUE_KEY_BYTES_MAX, of_callers=True),
    "request_id": Field(request_client, NAMES),
    "lease worker": Field(lease_worker, NAMES),
    "lease crawl": Field(lease_name("crawl"), NAMES),
    "lease key": Field(lease_key, NAMES),
    "error": Field(
        outcome("error", lambda case: names(case.size, case.letter), lambda case: of_record(case, "error")),
        ERROR_TEXT_MAX,
    ),
    "etag": Field(
        outcome("etag", lambda case: text(case.size, case.letter), lambda case: of_record(case, "etag")),
        VALIDATOR_BYTES_MAX,
    ),
    "last_modified": Field(
        outcome("last_modified", lambda case: text(case.size), lambda case: of_record(case, "last_modified")),
        VALIDATOR_BYTES_MAX,
    ),
    "digest": Field(
        outcome("digest", lambda case: b"\xff" * case.size, lambda case: of_record(case, "digest")), DIGEST_BYTES_MAX
    ),
    "text_digest": Field(
        outcome("text_digest", lambda case: b"\xff" * case.size, lambda case: of_record(case, "text_digest")),
        TEXT_DIGEST_BYTES,
        how={"settings": {"keep_text_digest": True}},
    ),
    "warc_record": Field(
        outcome("warc_record", lambda case: b"\xff" * case.size, lambda case: of_record(case, "warc_record")),
        WARC_MARK_BYTES,
    ),
    "payment": Field(
        outcome("payment", lambda case: text(case.size, case.letter), charged),
        PAYMENT_TEXT_MAX,
    ),
    "metadata": Field(
        outcome("metadata", lambda case: metadata(case.size), lambda case: of_record(case, "metadata")),
        METADATA_BYTES_MAX,
        least=8,
    ),
    "line": Field(outcome("line", line, line_of("pages")), LINE_BYTES_MAX, least=40),
    "politeness": Field(outcome("politeness", line, line_of("politeness")), LINE_BYTES_MAX, least=40),
    "location": Field(location),
    "referrer of a found link": Field(found_referrer, REFERRER_BYTES_MAX),
    "watermark of a report": Field(watermark),
    "watermark": Field(noted, WATERMARK_BYTES_MAX),
    "writer": Field(writer, NAMES),
    "robots body": Field(robots_body),
    "authority": Field(authority),
    "host of an address": Field(addressed),
    "address": Field(address),
    "parcel crawl": Field(
        parcel(
            3,
            lambda case: names(case.size, case.letter),
            lambda case, given: of_record(case, "crawl", given),
        ),
        NAMES,
    ),
    "parcel key": Field(
        parcel(4, lambda case: names(case.size, case.letter), lambda case, given: of_record(case, "key")), NAMES
    ),
    "parcel referrer": Field(
        parcel(10, lambda case: text(case.size, case.letter), lambda case, given: of_record(case, "referrer")),
        REFERRER_BYTES_MAX,
    ),
    "parcel metadata": Field(
        parcel(
            11,
            lambda case: msgspec.json.encode(metadata(case.size)),
            lambda case, given: of_record(case, "metadata"),
        ),
        METADATA_BYTES_MAX,
        least=8,
    ),
    "parcel url": Field(
        parcel(
            12,
            lambda case: url(case.number, case.size),
            lambda case, given: lambda walk: walk.records["default", given]["url"],
        ),
        least=40,
    ),
    "outbox url": Field(outboxed("url", 12, lambda case: url(case.number, case.size)), how=ABROAD, least=40),
    "outbox crawl": Field(outboxed("crawl", 3, lambda case: names(case.size, case.letter)), NAMES, ABROAD),
    "outbox key": Field(outboxed("key", 4, lambda case: names(case.size, case.letter)), NAMES, ABROAD),
    "outbox referrer": Field(
        outboxed("referrer", 10, lambda case: text(case.size, case.letter)), REFERRER_BYTES_MAX, ABROAD
    ),
    "outbox metadata": Field(outboxed("metadata", 11, lambda case: metadata(case.size)), how=ABROAD, least=8),
    "pause": Field(operator("pause", key=lambda case: names(case.size))),
    "resume": Field(operator("resume", crawl=lambda case: names(case.size))),
    "block_until": Field(operator("block_until", START, key=lambda case: names(case.size))),
    "set_delay": Field(operator("set_delay", 1.0, key=lambda case: names(case.size))),
    "set_limit": Field(operator("set_limit", 1, key=lambda case: names(case.size))),
    "delete": Field(operator("delete", key=lambda case: names(case.size))),
    "retry error": Field(operator("retry", error=lambda case: names(case.size))),
    "retry host": Field(operator("retry", host=lambda case: names(case.size))),
    "reprioritise": Field(operator("reprioritise", priority=lambda case: 0.5, urls=lambda case: [url(0, case.size)])),
    "seen_content": Field(operator("seen_content", digests=lambda case: [b"x" * case.size])),
    "status": Field(operator("status", url=lambda case: url(case.number, case.size))),
    "closing": Field(closing, NAMES),
    **{f"restore {name}": Field(restored(name), most, least=40) for name, (_, most) in RECORD.items()},
}


def walked(give: Field, cases: Iterator[Case]) -> None:
    """Each case is refused before the log or accepted; an accepted value is read back now, when the store is opened
    again, and after a checkpoint."""
    walk = Walk(FaultyFiles(), **give.how)
    if give.how:
        walk.frontier.discover([])
    if give.of_callers:
        walk.frontier.make_crawl("mine", unique="caller")
    taken: list[tuple[Case, object, Look]] = []
    for case in cases:
        before = walk.lsn()
        found, error = answered(give, walk, case)
        assert give.most is None or (error is not None) == (case.size > give.most), (case, error)
        if error is not None:
            assert len(error) < 1_000
            assert give.most in {None, 0, told_bound(error)}
            assert give.give not in QUIET or before == walk.lsn()
        if found is not None:
            taken.append((case, *found))
    for turn in range(3):
        for case, value, look in taken:
            assert value == look(walk), (turn, case)
        assert () == walk.frontier.verify().problems
        if turn == 1:
            walk.frontier.checkpoint()
        walk.again()
    walk.frontier.close()


QUIET = frozenset(
    [
        link_referrer,
        link_key,
        link_crawl,
        link_metadata,
        link_unique_key,
        request_client,
        noted,
        writer,
        robots_body,
        authority,
    ]
)
"""Fields whose refused call logs nothing; the other fields make a URL and a lease first."""


def answered(give: Field, walk: Walk, case: Case) -> tuple[Taken, str | None]:
    """Returns the accepted value, or the message that refuses it."""
    try:
        return give.give(walk, case), None
    except SettingsError as error:
        return None, error.facts


def told_bound(words: str) -> int | None:
    """Returns the bound that a refusal names with the size, which is above it; None where it names something else."""
    told = TOLD.search(words)
    if told is None:
        return None
    given, most = (int(number.replace(",", "")) for number in told.groups())
    assert given > most
    return most


def cases(rng: random.Random, sizes: list[int]) -> Iterator[Case]:
    for number, size in enumerate(sizes):
        yield Case(number, size, rng.choice(LETTERS), rng)


def sizes_of(give: Field, rng: random.Random, some_sizes: int) -> list[int]:
    """Some sizes, those around the bound of the field and of 16 bits among them."""
    always = {65_535, 65_536, 65_537}
    if in_use() == "native":  # plain kernels hash a megabyte in a second, and their bounds are the same
        always |= {1 << 20, (1 << 20) + 1, 1 << 22}
    if give.most:
        always |= {give.most - 1, give.most, give.most + 1}
    some = sorted(always | set(rng.sample(SIZES, some_sizes)))
    return [size for size in some if size >= give.least]


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_of_any_size_is_refused_before_the_log_or_read_back_equal(name):
    rng = random.Random(name)
    give = FIELDS[name]
    walked(give, cases(rng, sizes_of(give, rng, SIZES_IN_QUICK_TESTS)))


# -- imports ----------------------------------------------------------------------------------------------------------

FORMS = (".jsonl", ".csv", ".parquet")


def imported(name: str, form: str, folder: Path, rng: random.Random, sizes: list[int]) -> None:
    """Each row of a file is accepted whole, or skipped and named with its place."""
    given = {case.number: (case, record(name, case)) for case in cases(rng, sizes)}
    path = str(folder / f"rows{form}")
    write_records(path, [one for _, one in given.values()], FRONTIER, lambda rows: None)
    walk = Walk(FaultyFiles())
    found = exchange.Imported()
    before = exchange.IMPORT_FAULTS_NAMED_MAX
    exchange.IMPORT_FAULTS_NAMED_MAX = len(sizes)  # type: ignore[misc]  # each is to be seen here
    try:
        exchange.take_file(walk.frontier, path, found, exchange.Counter(io.StringIO(), "read"))
    finally:
        exchange.IMPORT_FAULTS_NAMED_MAX = before  # type: ignore[misc]
    most = RECORD[name][1] or 0
    head = 2 if form == ".csv" else 1
    too_long = [number + head for number, (case, _) in given.items() if case.size > most]
    assert (len(sizes), too_long) == (found.rows, sorted(place for _, place, _ in found.faults))
    assert all(0 < len(words) < 1_000 for _, _, words in found.faults)
    for turn in range(2):
        for case, one in given.values():
            if case.size <= most:
                assert one[name] == record_look(name, one)(walk), (turn, case)
        walk.again()
    walk.frontier.close()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", RECORD)
def test_a_row_with_a_field_of_any_size_is_accepted_whole_or_skipped_and_named(name, form, tmp_path):
    if form == ".parquet":
        pytest.importorskip("pyarrow")
    rng = random.Random(f"{name}{form}")
    sizes = sorted({*rng.sample(SIZES, 6), 200, 201, 8_192, 8_193, 65_536, 70_013, 1 << 20, 1 << 22})
    imported(name, form, tmp_path, rng, [size for size in sizes if size >= 40])


def test_every_text_and_bytes_of_the_verbs_is_walked():
    """A new field of a link, an outcome or a record is to be walked, too."""
    texts = {name for name, kind in FRONTIER.columns.items() if kind in ("text", "json")}
    assert texts == RECORD.keys()
    of_outcomes = {"error", "location", "line", "politeness", "digest", "etag", "last_modified", "metadata", "address"}
    of_outcomes |= {"text_digest", "warc_record", "payment"}
    told = {one for one, kind in Outcome.__annotations__.items() if re.search(r"str\b|bytes|Mapping|Link|Robots", kind)}
    assert told == {*of_outcomes, "links", "robots"}
    assert of_outcomes <= FIELDS.keys()


# -- for long ---------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.timeout(90_000)
def test_fields_of_any_size_are_refused_or_read_back_for_long(tmp_path):
    """Seeds of its own, or OUTRIDER_SIZES_SEED; a failure names the seed and the field."""
    until = time.monotonic() + float(os.environ.get("OUTRIDER_SIZES_SECONDS", "3600"))
    only = os.environ.get("OUTRIDER_SIZES_SEED")
    for seed in [int(only)] if only else count(random.SystemRandom().randrange(1 << 40)):
        if time.monotonic() >= until:
            break
        rng = random.Random(seed)
        sizes = sorted({*rng.sample(SIZES, 12), *(rng.randrange(1, 1 << rng.choice(POWERS[1:])) for _ in range(12))})
        sizes = [size for size in sizes if size >= 40]
        try:
            if rng.random() < 0.7:
                name = rng.choice(list(FIELDS))
                walked(FIELDS[name], cases(rng, sizes))
            else:
                name, form = rng.choice(list(RECORD)), rng.choice(FORMS)
                with suppress(ImportError):
                    imported(name, form, tmp_path, rng, sizes)
        except Exception as error:
            raise AssertionError(f"seed {seed}, {name}: {error}") from error
