"""robots.txt against the suites of Google, crawler-commons, Protego and others, and against 2,553 real files.

The data are next to the project (`../shared/data/robots`, with a README that names sources, licences and classes).
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from model.inside import inspect
from outrider import Frontier
from outrider.limits import MICROSECONDS
from outrider.robots import Rules, verdict_of_status

pytestmark = pytest.mark.conformance

Case = dict[str, Any]

# The number of cases on which the reference parsers disagree, and that are answered as their source wants. A change
# here is a change of behaviour; explain it in docs/decisions/robots.md.
AS_THE_SOURCE_WANTS = {"source+google": 13, "source+protego": 75, "source-only": 8}

ODD = re.compile(r",|/robots\.txt$")

KNOWN_DIFFERENCES = [
    "SimpleRobotRulesParserTest.testSitemap",  # a bare URL on a line of its own counts as a sitemap
    # Rules and delays without an agent line: there they are for all agents, here for no agent (RFC 9309 section 2.2.1).
    "test_robots.py:test_no_leading_user_agent",
    # A Crawl-delay ends no list of agents, so two agents share the longer delay. One case is as the one above.
    "test.rs:test_parser_line_elements",
    "test.rs:test_parser_line_elements",
    "test.rs:test_parser_line_elements",
    "test.rs:test_parser_line_elements",
    "test.rs:test_repcpp_no_leading_user_agent",
    "test.rs:test_repcpp_no_leading_user_agent",
]


@pytest.fixture(scope="module")
def robots_data(shared: Path) -> Path:
    return shared / "data" / "robots"


def json_lines(file: Path) -> list[Case]:
    lines = (gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()).splitlines()
    return [json.loads(line) for line in lines if line]


def body_of(case: Case) -> bytes:
    if "robots" in case:
        return str(case["robots"]).encode("utf-8", "surrogatepass")
    return base64.b64decode(case["robots_b64"])


def absolute(url: str) -> str:
    if "://" in url:
        return url
    return "http://example.com" + (url if url.startswith("/") else "/" + url)


def read(case: Case, *, lenient: bool = False) -> Rules:
    return Rules.parse(body_of(case), lenient=lenient)


def real_bodies(robots_data: Path) -> dict[str, bytes]:
    with tarfile.open(robots_data / "real-robots.tar.xz") as archive:
        return {
            member.name.removeprefix("robots/"): content.read()
            for member in archive
            if (content := archive.extractfile(member)) is not None
        }


def answered(case: Case) -> bool:
    return read(case).allowed(case["agent"], absolute(case["url"]))


def test_where_google_protego_and_the_source_agree_so_do_we(robots_data: Path) -> None:
    cases = [case for case in json_lines(robots_data / "cases.jsonl") if case["class"] == "consensus"]
    assert [] == [case for case in cases if answered(case) != case["allowed"]]


def test_where_they_disagree_our_side_is_known(robots_data: Path) -> None:
    cases = [case for case in json_lines(robots_data / "cases.jsonl") if case["class"] != "consensus"]
    agree = Counter(case["class"] for case in cases if answered(case) == case["allowed"])
    assert AS_THE_SOURCE_WANTS == dict(agree)


def test_real_files_are_read_as_google_and_protego_read_them(robots_data: Path) -> None:
    """No difference, also in files longer than the 500 KiB that RFC 9309 section 2.5 wants."""
    bodies = real_bodies(robots_data)
    judged, wrong = 0, []
    for case in json_lines(robots_data / "real-consensus.jsonl.gz"):
        body = bodies[case["file"]]
        rules = Rules.parse(body)
        for agent, path, allowed in case["tests"]:
            judged += 1
            if rules.allowed(agent, absolute(path)) != bool(allowed):
                wrong.append((case["file"], agent, path))
    assert (175_649, []) == (judged, wrong)


def test_the_lenient_reading_decides_as_googles_parser_does(robots_data: Path) -> None:
    """Except for a URL that is not percent-encoded, /robots.txt itself, and an agent that is a list."""
    cases = [
        case for case in json_lines(robots_data / "cases.jsonl") if case["class"] in ("consensus", "source+google")
    ]
    other = [
        case
        for case in cases
        if read(case, lenient=True).allowed(case["agent"], absolute(case["url"])) != case["google"]
    ]
    assert [] == [case for case in other if case["url"].isascii() and not ODD.search(case["agent"] + case["url"])]


def test_disputed_verdicts_are_known(robots_data: Path) -> None:
    """Where Google and Protego disagree; a change here is a change of behaviour (docs/decisions/robots.md)."""
    bodies = real_bodies(robots_data)
    sides = Counter()
    for case in json_lines(robots_data / "real-disputed.jsonl.gz"):
        ours = Rules.parse(bodies[case["file"]]).allowed(case["agent"], absolute(case["path"]))
        sides["google" if ours == case["google"] else "protego"] += 1
    assert {"google": 1_179, "protego": 24} == dict(sides)


def test_crawl_delays_and_sitemaps(robots_data: Path) -> None:
    wrong = []
    for case in json_lines(robots_data / "directives.jsonl"):
        rules = Rules.parse(body_of(case))
        agent = case["args"][0] if case.get("args") else case.get("agent", "")
        if case["query"] == "crawl_delay":
            got: object = rules.crawl_delay(agent)
        elif case["query"] == "crawl_delay_ms":
            delay = rules.crawl_delay(agent)
            got = None if delay is None else round(delay * 1000)
        elif case["query"] == "sitemaps":
            got = rules.sitemaps
        elif case["query"] == "sitemap_count":
            got = len(rules.sitemaps)
        else:
            continue
        if got != case["expected"]:
            wrong.append(case["src"])
    assert KNOWN_DIFFERENCES == wrong


def test_the_meaning_of_a_status(robots_data: Path) -> None:
    meaning = {"parse": {"rules"}, "follow>=5-hops": {"redirect"}, "disallow-all": {"unreachable"}}
    for case in json_lines(robots_data / "http_status.jsonl"):
        # An empty body (204) is parsed, and then allows everything.
        expected = meaning.get(case["expect"], {"allow", "rules"} if case["expect"] == "allow-all" else {"unreachable"})
        assert verdict_of_status(case["status"]) in expected


_MANY = """
import os, signal, sys
from outrider import Frontier
from outrider.limits import MICROSECONDS
sys.path.insert(0, sys.argv[3])
from conformance.test_robots import host_number, real_bodies
from pathlib import Path

bodies, count = list(real_bodies(Path(sys.argv[4])).values()), int(sys.argv[2])
frontier = Frontier.open(sys.argv[1], clock=lambda: 1_760_000_000 * MICROSECONDS, robots="errands",
                         settings={"delay": 1.0})
for first in range(0, count, 1_000):
    frontier.discover([f"http://h{n}.test/page?x={n}" for n in range(first, min(first + 1_000, count))])
answered = 0
while answered < count:
    leases = list(frontier.lease(1_000, errands=True))
    frontier.report([lease.robots(200, bodies[host_number(lease.url) % len(bodies)], seconds=0.01) for lease in leases])
    answered += len(leases)
os.kill(os.getpid(), signal.SIGKILL)
"""


_WAIT_SECONDS = 50_000  # less than the day for which a robots.txt is valid, and more than all Crawl-delays but one


def host_number(url: str) -> int:
    return int(url.removeprefix("http://h").partition(".")[0])


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_many_authorities_with_the_same_files_need_the_memory_of_few_and_a_kill_loses_no_file(
    robots_data: Path, tmp_path: Path
) -> None:
    """`OUTRIDER_ROBOTS_AUTHORITIES` says how many, 2^18 by default."""
    count = int(os.environ.get("OUTRIDER_ROBOTS_AUTHORITIES", 1 << 18))
    tests = str(Path(__file__).parents[1])
    life = [sys.executable, "-c", _MANY, str(tmp_path / "store"), str(count), tests, str(robots_data)]
    assert -signal.SIGKILL == subprocess.run(life, check=False).returncode
    bodies = list(real_bodies(robots_data).values())
    read = [Rules.parse(body) for body in bodies]
    now = [1_760_000_000 * MICROSECONDS]
    with Frontier.open(tmp_path / "store", clock=lambda: now[0], robots="errands", settings={"delay": 1.0}) as frontier:
        book = inspect(frontier).tables.robots.rulebook.statistics()
        assert len({body for number, body in enumerate(bodies) if body and number < count}) == book["files"]
        assert book["bytes"] < 16 << 20
        frontier.checkpoint()
        on_disk = sum(file.stat().st_size for file in (tmp_path / "store").glob("*.ckpt"))
        assert on_disk < sum(map(len, set(bodies[:count]))) + 400 * count, (
            "each file once, and a few bytes an authority"
        )
        now[0] += _WAIT_SECONDS * MICROSECONDS
        given = set()
        while leases := frontier.lease(1_000):
            given.update(host_number(url) for url in leases.urls)
    for number in range(count):
        rules = read[number % len(read)].of("outrider")
        waits = (rules.crawl_delay or 0.0) >= _WAIT_SECONDS
        assert (number in given) == (rules.allowed(f"http://h{number}.test/page?x={number}") and not waits)
