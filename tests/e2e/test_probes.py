"""Domains that answer any name, crawled by the names of a DNS server of the test's own."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import outrider
from e2e.hostile import Connection, served
from e2e.name_server import Stub, served_beside
from outrider import Frontier
from outrider.limits import RETURNS_HOSTS_MIN

HOSTS_MIN: Final = 8
CONCURRENCY: Final = 8
GOOD: Final = 30


class Zone(dict[str, list[tuple[str, int]]]):
    """The names of three domains, of which one answers for any name."""

    def get(self, name: str, default: object = None) -> object:  # type: ignore[override]
        known = name == "hub.test" or name.endswith(".wild.test") or name in {f"h{n}.good.test" for n in range(GOOD)}
        return [("127.0.0.1", 60)] if known else default


def body_of(host: str, port: int) -> str:
    """Each host under wild.test says the same and leads to four others that nobody has named."""
    if host == "hub.test":
        names = [f"h{number}.good.test" for number in range(GOOD)] + ["first.wild.test", "gone.good.test"]
    elif host.endswith(".wild.test"):
        drawn = hashlib.sha1(host.encode(), usedforsecurity=False).hexdigest()
        names = [f"x{drawn[place : place + 8]}.wild.test" for place in range(0, 32, 8)]
    else:
        names = []
    links = "".join(f"<a href=http://{name}:{port}/>on</a>" for name in names)
    return f"<title>Welcome</title><p>{'Welcome' if host.endswith('.wild.test') else host}</p>{links}"


async def _script(connection: Connection) -> None:
    while True:
        head = (await connection.request()).decode()
        (host,) = [line[5:].strip() for line in head.split("\r\n") if line.lower().startswith("host:")]
        name, _, port = host.partition(":")
        missing = head.split(" ")[1] != "/"
        content = b"" if missing else body_of(name, int(port)).encode()
        answer = f"HTTP/1.1 {'404 Not Found' if missing else '200 OK'}\r\nContent-Type: text/html\r\n"
        await connection.send(f"{answer}Content-Length: {len(content)}\r\n\r\n".encode() + content)


def test_a_domain_that_answers_any_name_ends_and_the_hosts_of_others_are_all_fetched(tmp_path: Path) -> None:
    output = tmp_path / "out"
    with served(_script) as port, served_beside(Stub(Zone())) as server:
        result = outrider.crawl(
            [f"http://hub.test:{port}/"],
            output=str(output),
            scope="any",
            resolver=[server],
            allow_address=["127.0.0.0/8"],
            contact="a@b.test",
            delay=0,
            delay_factor=0,
            concurrency=CONCURRENCY,
            probe_hosts=HOSTS_MIN,
            warc=False,
        )
    assert (0, 0) == (result.exit_code, result.statistics["urls"]["queued"])
    lines = [json.loads(line) for line in (output / "pages.jsonl").read_text().splitlines()]
    fetched = {str(urlsplit(line["url"]).hostname) for line in lines if line["outcome"] != "error"}
    assert {"hub.test", *(f"h{number}.good.test" for number in range(GOOD))} <= fetched
    wild = {name for name in fetched if name.endswith(".wild.test")}
    # Hosts before the answer to the probe, 48 of one budget, five whose names its mean takes to fall, and leases held.
    assert HOSTS_MIN <= len(wild) <= HOSTS_MIN + RETURNS_HOSTS_MIN + 5 + 4 * CONCURRENCY
    requests = [json.loads(line) for line in (output / "politeness.jsonl").read_text().splitlines()]
    probes = [urlsplit(line["url"]).hostname or "" for line in requests if line["kind"] == "probe"]
    assert ["wild.test"] == [name.partition(".")[2] for name in probes if name.endswith(".wild.test")]
    assert len(probes) <= 2
    with Frontier.look(output / "frontier") as frontier:
        assert {"trap_hosts"} == {row.error for row in frontier.urls(state="parked")}
