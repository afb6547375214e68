"""`robots`: robots.txt files read, matched and stored, compared with Protego. CPU time, in one process."""

from __future__ import annotations

import gzip
import json
import resource
import tarfile
from collections.abc import Iterator
from random import Random
from time import process_time

from bench.measuring import ROOT, cpu_seconds_of, resident_bytes
from bench.tables import Table, ratio
from outrider import Frontier
from outrider.frontier.state.tables import AUTHORITIES as OF_AUTHORITIES
from outrider.frontier.state.tables import ROBOTS_FILES
from outrider.limits import MICROSECONDS
from outrider.robots import Rules
from outrider.sim.disk import FaultyFiles
from outrider.storage.checkpoint import newest_checkpoint
from outrider.storage.manifest import Manifest

REAL = ROOT.parent / "shared" / "data" / "robots"
AUTHORITIES = 1 << 18
AT_ONCE = 1_000
AGENT = "Outrider"
START = 1_760_000_000 * MICROSECONDS
_STAR = b"User-agent: *\n"

Case = tuple[str, str, bool]
"""Agent, URL, and whether both Google's parser and Protego allow it."""


def tables() -> list[Table]:
    """Measures the speed, and the memory of many authorities with the same files."""
    files, cases = _real() if REAL.is_dir() else _made()
    return [_speed(files, cases), _shared(files)]


def _real() -> tuple[dict[str, bytes], dict[str, list[Case]]]:
    with tarfile.open(REAL / "real-robots.tar.xz") as archive:
        found = ((member.name.removeprefix("robots/"), archive.extractfile(member)) for member in archive)
        files = {name: content.read() for name, content in found if content is not None}
    cases = {}
    for line in gzip.decompress((REAL / "real-consensus.jsonl.gz").read_bytes()).splitlines():
        told = json.loads(line)
        cases[told["file"]] = [(agent, _absolute(path), bool(allowed)) for agent, path, allowed in told["tests"]]
    return files, cases


def _absolute(path: str) -> str:
    if "://" in path:
        return path
    return "http://example.com" + (path if path.startswith("/") else "/" + path)


def _made() -> tuple[dict[str, bytes], dict[str, list[Case]]]:
    """Returns 2,553 files of some 4.6 kB, and paths whose verdicts follow from their construction."""
    chance = Random(1)
    files, cases = {}, {}
    for number in range(2_553):
        folders = [f"/{chance.getrandbits(40):010x}/" for _ in range(190)]
        files[str(number)] = _STAR + "".join(f"Disallow: {one}\n" for one in folders).encode()
        cases[str(number)] = [(AGENT, f"http://example.com{one}page", False) for one in folders[:35]]
        cases[str(number)] += [(AGENT, f"http://example.com/open{one}page", True) for one in folders[:35]]
    return files, cases


def _speed(files: dict[str, bytes], cases: dict[str, list[Case]]) -> Table:
    verdicts = sum(map(len, cases.values()))
    ours, wrong = _judge(files, cases)
    theirs, theirs_wrong = _judge_with_protego(files, cases)
    rows: list[tuple[object, ...]] = [
        (f"{verdicts:,} verdicts on {len(cases):,} files, s", ours, theirs, ratio(theirs, ours)),
        ("of these wrong", wrong, theirs_wrong, None),
    ]
    rules = _STAR + b"".join(b"Disallow: /%x/a\n" % number for number in range(200_000))
    stars = Rules.parse(_STAR + b"Disallow: /" + b"*a" * 2_000 + b"b$\n").of(AGENT)
    long_url = "http://example.com/" + "a" * 8_000
    for name, work in {
        f"200,000 rules in {len(rules) / 1e6:.1f} MB, with those of one agent, ms": lambda: Rules.parse(rules).of(
            AGENT
        ),
        "one pattern of 2,000 stars, URL of 8 kB, ms": lambda: stars.allowed(long_url),
    }.items():
        rows.append((name, cpu_seconds_of(work) * 1e3, None, None))
    return Table(
        "robots",
        "robots: files read and URLs judged, beside Protego",
        ("what", "Outrider", "Protego", "theirs / ours"),
        tuple(rows),
        (
            "CPU time; files are read and judged in it. Verdicts are those on which Google's parser and Protego agree;",
            "Protego is given 500 KiB of a file, as RFC 9309 asks for; where it is wrong, a file is longer.",
        ),
    )


def _judge(files: dict[str, bytes], cases: dict[str, list[Case]]) -> tuple[float, int]:
    begun, wrong = process_time(), 0
    for name, asked in cases.items():
        rules = Rules.parse(files[name])
        wrong += sum(rules.allowed(agent, url) != allowed for agent, url, allowed in asked)
    return process_time() - begun, wrong


def _judge_with_protego(files: dict[str, bytes], cases: dict[str, list[Case]]) -> tuple[float | None, int | None]:
    try:
        from protego import Protego
    except ImportError:
        return None, None
    begun, wrong = process_time(), 0
    for name, asked in cases.items():
        rules = Protego.parse(files[name][: 500 << 10].decode("utf-8", "replace"))
        wrong += sum(rules.can_fetch(url, agent) != allowed for agent, url, allowed in asked)
    return process_time() - begun, wrong


def _shared(files: dict[str, bytes]) -> Table:
    """Measures as many authorities as files, and a hundred times as many with the same files, in memory."""
    rows = []
    few = len(files)
    for count in (few, AUTHORITIES):
        before = resident_bytes()
        disk = FaultyFiles()
        frontier, seconds, allowed = _filled(list(files.values()), count, disk)
        book = frontier._machine.tables.robots.rulebook.statistics()
        resident = (resident_bytes() - before) / count
        frontier.checkpoint()
        sizes = dict.fromkeys((ROBOTS_FILES, OF_AUTHORITIES), 0)
        checkpoint = newest_checkpoint(disk, store=Manifest.load(disk).store_bytes)
        assert checkpoint is not None
        for _, section, _, _, payload in checkpoint.ranges():
            if section in sizes:
                sizes[section] += len(payload)
        on_disk = (sizes[ROBOTS_FILES], sizes[OF_AUTHORITIES] / count)
        rows.append((count, book["files"], book["bytes"], *on_disk, seconds / count * 1e6, resident))
        frontier.close()
        assert allowed <= count
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    return Table(
        "robots shared",
        "robots: many authorities with the same files",
        (
            *("authorities", "files kept", "bytes of files and rules", "of files in a checkpoint"),
            *("and beside them an authority", "lease µs a URL", "resident bytes an authority"),
        ),
        tuple(rows),
        (
            "In memory; each host has one URL, judged as it is drawn; resident bytes are those of hosts, queues, URLs,",
            f"authorities and the log. A checkpoint is not packed. The process peaked at {peak:,} MB.",
        ),
    )


def _filled(bodies: list[bytes], count: int, disk: FaultyFiles) -> tuple[Frontier, float, int]:
    """Opens a frontier whose robots.txt files are known. Returns the CPU seconds of the leases that judge one URL of
    each, and the number of leased URLs."""
    now = [START]
    settings = {"delay": 1.0, "delay_factor": 0.0}
    frontier = Frontier.open(disk, clock=lambda: now[0], robots="errands", settings=settings)
    for some in _batches(count):
        frontier.discover([f"http://h{number}.test/page?x={number}" for number in some])
    answered = 0
    while answered < count:
        leases = list(frontier.lease(AT_ONCE, errands=True))  # no page: hosts pause after their robots.txt
        outcomes = [lease.robots(200, bodies[_number(lease.url) % len(bodies)], seconds=0.01) for lease in leases]
        frontier.report(outcomes)
        answered += len(leases)
    now[0] += 10 * MICROSECONDS
    begun, given = process_time(), 0
    while leases_left := frontier.lease(AT_ONCE):
        given += len(leases_left)
    return frontier, process_time() - begun, given


def _batches(count: int) -> Iterator[range]:
    for first in range(0, count, AT_ONCE):
        yield range(first, min(first + AT_ONCE, count))


def _number(url: str) -> int:
    return int(url.removeprefix("http://h").partition(".")[0])
