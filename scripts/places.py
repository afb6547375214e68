"""Counts the files that an addition changes: each one is made in a copy of the package, and then proved by a run.

    .venv/bin/python scripts/places.py          a table; exit code 1 if an addition changes too many files
    .venv/bin/python scripts/places.py --json   the same as JSON

Edits are insertions after an anchor, a line of the present file. A missing anchor, or one that occurs twice, is an
error with its name. Then move the edit to the new place of the code. The package is not changed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROOF_SECONDS_MAX = 60  # a crawl of three pages, or a server with three calls; both need a second or two


class AnchorError(Exception):
    """An edit no longer has a place."""


@dataclass(frozen=True)
class Edit:
    """Text that is inserted into a file of the package, after or before an anchor."""

    file: str
    anchor: str
    text: str
    before: bool = False

    def apply(self, package: Path) -> None:
        """Makes the edit. Raises AnchorError."""
        path = package / self.file
        if not path.is_file():
            raise AnchorError(f"{self.file} does not exist")
        text = path.read_text("utf-8")
        found = text.count(self.anchor)
        if found != 1:
            raise AnchorError(f"{self.file} has the anchor {self.anchor!r} {found} times")
        new = self.text + self.anchor if self.before else self.anchor + self.text
        path.write_text(text.replace(self.anchor, new), "utf-8")


@dataclass(frozen=True)
class Addition:
    """An addition: its edits, how many files they may change, and a program that fails without them."""

    name: str
    files_max: int
    edits: tuple[Edit, ...]
    proof: str

    @property
    def files(self) -> list[str]:
        """The files that are changed by hand."""
        return sorted({edit.file for edit in self.edits})


_CRAWL = """
import http.server, json, os, pathlib, sys, tempfile, threading
import outrider
from outrider import Frontier

PAGES = {"/": b"<title>home</title><a href=/tea>tea</a>", "/icon": b"an icon"}

class Site(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        status = 200 if self.path in PAGES else 418 if self.path == "/tea" else 404
        self.send_response(status)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(PAGES.get(self.path, b"no"))

    def log_message(self, *_):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site)
threading.Thread(target=server.serve_forever, daemon=True).start()
home = f"http://localhost:{server.server_port}/"
out = pathlib.Path(tempfile.mkdtemp(dir=os.environ["PLACES"])) / "out"

def crawl():
    quick = {"delay": 0, "delay_factor": 0, "sitemaps": False, "progress": "none"}
    return outrider.crawl([home], output=out, **quick)
"""

_STUBS = f"""
import subprocess, sys
subprocess.run([sys.executable, {str(ROOT / "scripts" / "stubs.py")!r}], check=True)
"""
_SERVED = """
import asyncio, json, os, pathlib, tempfile, urllib.request
from outrider import Frontier
from outrider.crawl.output.tabular import FRONTIER, read_records, write_records
from outrider.engine import AsyncFrontier
from outrider.errors import SettingsError
from outrider.journey import OutcomeBatch
from unit.test_worker import House

house = House(pathlib.Path(os.environ["PLACES"]))

def pages(frontier, want):
    frontier.report([lease.robots(404) for lease in frontier.lease(want, errands=True)])
    return frontier.lease(want)

def asked(path, body=None):
    octets = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{house.address}/api/v1/{path}", octets, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)
"""

ADDITIONS = (
    Addition(
        "an outcome field",
        2,
        (
            Edit("journey.py", "    foreign_copy: _Flag = False\n", "    starred: _Flag = False\n"),
            Edit(
                "frontier/verbs/settling.py",
                "        read = 0\n        if outcomes.bytes_read is not None:\n",
                "        for _ in range(0 if outcomes.starred is None else int(np.count_nonzero(outcomes.starred))):\n"
                '            draft.error("starred")\n',
                before=True,
            ),
        ),
        _SERVED
        + """
try:
    house.frontier.discover(["http://a.test/", "http://b.test/", "http://c.test/"])
    one, two, three = pages(house.frontier, 3)
    house.frontier.report([one.done(starred=True)])
    house.frontier.report(OutcomeBatch([two.token], starred=True))
    with Frontier.connect(house.address) as remote:
        assert ["ok"] == list(remote.report([three.done(starred=True)]))
    assert 3 == house.frontier.statistics()["errors"]["starred"], house.frontier.statistics()
finally:
    house.close()
""",
    ),
    Addition(
        "an outcome word",
        2,
        (
            Edit(
                "journey.py",
                '    ROBOTS = "robots", False, False, False, True\n',
                '    TEAPOT = "teapot", False, True, True, False\n',
            ),
            Edit(
                "fetch/meaning.py",
                "    StatusRow(STATUSES, AlsoNeeded.NOTHING, _GONE),\n",
                "    StatusRow({418}, AlsoNeeded.NOTHING, Meaning(Word.TEAPOT, Verdict.GONE)),\n",
                before=True,
            ),
        ),
        _CRAWL
        + """
crawl()
lines = [json.loads(line) for line in (out / "pages.jsonl").read_text().splitlines()]
assert {"/": "done", "/tea": "teapot"} == {line["url"][len(home) - 1:]: line["outcome"] for line in lines}, lines
assert "teapot" in (out / "report.html").read_text()
""",
    ),
    Addition(
        "a record field",
        3,
        (
            Edit(
                "journey.py",
                "    foreign_copy: _Flag = False\n",
                '    licence: Annotated[str | None, OutcomeField(Form.TEXT, "licences", 200, kept="q")] = None\n',
            ),
            Edit("journey.py", "    capacity: int = 1\n", "    licence: str | None = None\n"),
        ),
        _SERVED
        + """
def kept(leases):
    return {lease.host: lease.licence for lease in leases}

path, store = os.environ["PLACES"] + "/urls.csv", os.environ["PLACES"] + "/store"
try:
    house.frontier.discover([f"http://{name}.test/" for name in "abc"])
    one, two, three = pages(house.frontier, 3)
    house.frontier.report([one.again(at=house.frontier.now(), licence="of a"), three.retry(after_seconds=0)])
    with Frontier.connect(house.address) as remote:
        remote.report([two.again(at=house.frontier.now(), licence="of b")])
        leases = remote.lease(3, queues_max=3)
        assert {"a.test": "of a", "b.test": "of b", "c.test": None} == kept(leases), leases
        remote.release(leases.tokens)
    given = asked("frontier/next?worker_id=w&batch_size=3")
    assert {"of a", "of b", None} == {one["licence"] for one in given["urls"]}, given
    results = [{"url": one["url"], "status": "success", "licence": one["licence"] or "of c"} for one in given["urls"]]
    asked("frontier/results", {"lease_id": given["lease_id"], "results": results})
    everything = list(house.frontier.records())
    write_records(path, everything, FRONTIER, lambda _: None)
finally:
    house.close()
assert ",licence," in open(path).readline()
with Frontier.open(store, robots="caller") as frontier:
    read = [dict(row.record, state="queued") for row in read_records(path, FRONTIER)]
    assert 3 == frontier.restore(read)
with Frontier.open(store, robots="caller") as frontier:
    assert {"a.test": "of a", "b.test": "of b", "c.test": "of c"} == kept(frontier.lease(3))
    assert [one["licence"] for one in everything] == [one["licence"] for one in frontier.records()]
""",
    ),
    Addition(
        "a lease kind",
        3,
        (
            Edit("journey.py", '    TDMREP = "tdmrep"\n', '    ICON = "icon"\n'),
            Edit(
                "frontier/state/errand.py",
                "        ErrandKind(Kind.TDMREP, 3, None, 1.0),\n",
                "        ErrandKind(Kind.ICON, 4, None, 0.25),\n",
            ),
            Edit(
                "crawl/run/lease_kinds.py",
                "        CrawlKind(Kind.PROBE, parsed=True, read=_read_probe),\n",
                "        CrawlKind(Kind.ICON),\n",
            ),
        ),
        _CRAWL
        + """
crawl()
with Frontier.open(out / "frontier", robots="caller") as frontier:
    frontier.queue_errands("icon", [home + "icon"])
    assert not frontier.finished()
result = crawl()
events = [line for line in (out / "crawl.log").read_text().splitlines() if "icon" in line]
assert any("200" in line and home + "icon" in line for line in events), (result, events)
kinds = [json.loads(line)["kind"] for line in (out / "politeness.jsonl").read_text().splitlines()]
assert 1 == kinds.count("icon"), kinds
with Frontier.open(out / "frontier", robots="caller") as frontier:
    assert frontier.finished()
""",
    ),
    Addition(
        "a verb",
        3,
        (
            Edit(
                "engine/owner.py",
                "    @glance\n    def at_limit(self) -> bool:\n",
                '    @served("read")\n'
                "    @glance\n"
                "    def accepted(self) -> int:\n"
                '        """How many URLs were accepted so far."""\n'
                "        self._check()\n"
                "        return int(self._machine.looks.tables.urls.accepted())\n\n",
                before=True,
            ),
        ),
        _STUBS
        + _SERVED
        + """
try:
    house.frontier.discover(["http://a.test/", "http://b.test/"])
    assert 2 == house.frontier.accepted()

    async def awaited():
        frontier = AsyncFrontier(house.frontier)
        return await frontier.accepted()

    assert 2 == asyncio.run(awaited())
    with Frontier.connect(house.address) as remote:
        assert 2 == remote.accepted()
    assert {"answer": 2} == asked("verbs/accepted", {})
    with urllib.request.urlopen(house.address + "/openapi.json") as answer:
        assert "/api/v1/verbs/accepted" in json.load(answer)["paths"]
finally:
    house.close()
""",
    ),
    Addition(
        "an order",
        3,
        (
            Edit(
                "engine/owner.py",
                '    @served("operate", order=True, host_order="delay")\n',
                '    @served("operate", order=True)\n'
                "    @decision\n"
                "    def block_for(self, rest_seconds: float, keys: Sequence[str]) -> Verb[int]:\n"
                '        """Lease nothing of these queues for a time."""\n'
                "        return lambda m, now: m.operators.block_for(rest_seconds, keys, now)\n\n",
                before=True,
            ),
            Edit(
                "frontier/verbs/operations.py",
                "    def set_delay(",
                "    def block_for(self, rest: float, keys: Sequence[str], now: Instant) -> int:\n"
                "        until = now + instant(arguments.span('rest_seconds', rest))\n"
                "        keys = arguments.listed('keys', keys)\n"
                "        return sum(self.block_until(until, key, None, now) for key in keys)\n\n",
                before=True,
            ),
            Edit(
                "frontier/verbs/checking.py",
                '    "delay_seconds": arguments.delay,\n',
                '    "rest_seconds": partial(arguments.span, "rest_seconds"),\n'
                '    "keys": partial(arguments.listed, "keys"),\n',
            ),
        ),
        _STUBS
        + _SERVED
        + """
from outrider.engine.process_queries import ORDERS

try:
    house.frontier.discover(["http://a.test/", "http://b.test/"])

    async def awaited():
        frontier = AsyncFrontier(house.frontier)
        return await frontier.block_for(60, ["a.test", "b.test"])

    assert 2 == asyncio.run(awaited())
    with Frontier.connect(house.address) as remote:
        assert 2 == remote.block_for(60, keys=["a.test", "b.test"])
        refusals = []
        for frontier in (house.frontier, remote):
            try:
                frontier.block_for(-1, ["a.test"])
            except SettingsError as error:
                refusals.append(str(error))
        assert 2 == len(refusals) and refusals[0] == refusals[1], refusals
    body = {"rest_seconds": 60, "keys": ["b.test"]}
    assert {"answer": 1} == asked("verbs/block_for", body) == ORDERS["block_for"](house.frontier, body)
    assert "blocked" == asked("hosts/b.test")["state"]
    with urllib.request.urlopen(house.address + "/openapi.json") as answer:
        schemas = json.load(answer)["components"]["schemas"]
    assert {"rest_seconds", "keys"} == schemas["BlockForArguments"]["properties"].keys()
finally:
    house.close()
""",
    ),
    Addition(
        "a budget by domain",
        3,
        (
            Edit(
                "frontier/policy/budgets.py",
                "BUDGETS = (\n",
                '    Budget("max_pages_per_domain", CountedBy.DOMAIN, "the budget of its domain is used up"),\n',
            ),
            Edit(
                "frontier/policy/frontier_settings.py",
                "    max_pages_per_host: int | None = None\n",
                "    max_pages_per_domain: int | None = None\n",
            ),
            Edit(
                "crawl/setup/options.py",
                "    max_pages_per_host: int | None = _limit(",
                '    max_pages_per_domain: int | None = _limit(OptionTopic.LIMITS, "Fetch N pages of a domain.")\n',
                before=True,
            ),
        ),
        _CRAWL
        + """
PAGES.update({f"/{number}": b"<title>%d</title>page" % number for number in range(2)})
PAGES["/"] = b"<title>home</title>" + b"".join(b"<a href=/%d>p</a> " % number for number in range(2))
(out.parent / "hosts").write_text("127.0.0.1 a.one.test b.one.test c.two.test\\n")
names = ("a.one.test", "b.one.test", "c.two.test")
seeds = [f"http://{name}:{server.server_port}/" for name in names]
quick = {"delay": 0, "delay_factor": 0, "sitemaps": False, "progress": "none", "traps": False}
result = outrider.crawl(seeds, output=out, hosts=str(out.parent / "hosts"), max_pages_per_domain=5, **quick)
urls = [json.loads(line)["url"] for line in (out / "pages.jsonl").read_text().splitlines()]
count = {domain: sum(f".{domain}:" in url for url in urls) for domain in ("one.test", "two.test")}
assert ({"one.test": 5, "two.test": 3}, 3) == (count, result.exit_code), (count, result)
assert all(any(f"/{name}:" in url for url in urls) for name in names), urls
""",
    ),
)


def made(addition: Addition, folder: Path) -> str:
    """Makes an addition in a copy of the package below a folder and runs its proof. Returns its fault, or ""."""
    place = folder / addition.name.replace(" ", "-")
    shutil.copytree(ROOT / "src", place / "src", ignore=shutil.ignore_patterns("__pycache__"))
    try:
        for edit in addition.edits:
            edit.apply(place / "src" / "outrider")
    except AnchorError as error:
        return str(error)
    variables = {
        **{name: value for name, value in os.environ.items() if not name.startswith("OUTRIDER_")},
        "PYTHONPATH": os.pathsep.join([str(place / "src"), str(ROOT / "tests")]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PLACES": str(place),
    }
    try:
        done = subprocess.run(
            [sys.executable, "-c", addition.proof],
            cwd=place, env=variables, capture_output=True, text=True, timeout=PROOF_SECONDS_MAX, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"its proof took longer than {PROOF_SECONDS_MAX} s"
    return "" if done.returncode == 0 else done.stderr.strip()[-2_000:] or f"exit code {done.returncode}"


def main(arguments: list[str]) -> int:
    """Makes all additions, each in its own copy, and prints the table."""
    with tempfile.TemporaryDirectory(prefix="places-") as folder:
        faults = {one.name: made(one, Path(folder)) for one in ADDITIONS}
    rows = [
        {"addition": one.name, "files": one.files, "files_max": one.files_max, "fault": faults[one.name]}
        for one in ADDITIONS
    ]
    if "--json" in arguments:
        print(json.dumps({"rows": rows}))
    else:
        for one in ADDITIONS:
            works = "works" if not faults[one.name] else "FAILS"
            over = "  TOO MANY" if len(one.files) > one.files_max else ""
            print(f"{one.name:20} {len(one.files)} of {one.files_max} files  {works}{over}  {', '.join(one.files)}")
            if faults[one.name]:
                print(faults[one.name])
    over = any(len(one.files) > one.files_max for one in ADDITIONS)
    return int(over or any(faults.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
