"""No way leads to an address that is not permitted: links, redirects, robots.txt, sitemaps, names that turn to it."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import outrider
from e2e.hostile import Connection, hostile
from e2e.name_server import Stub, served_beside

ADDRESS = "127.66.255.254"  # on this machine, and not the one that the crawl is allowed
SPELLINGS = [
    ADDRESS,
    "2135097342",
    "0x7f42fffe",
    "0177.0102.0377.0376",
    "127.66.65534",
    f"[::ffff:{ADDRESS}]",
    "[::ffff:7f42:fffe]",
    f"{ADDRESS}.",
    f"good.test@{ADDRESS}",
    "①②⑦.66.255.254",
    "canary.test",
    "CANARY.test.",
]


@dataclass
class Canary:
    """Listens where no client may connect, on the port of the site."""

    port: int = 0
    connections: int = 0
    over: threading.Event = field(default_factory=threading.Event)

    def listen(self) -> None:
        with socket.create_server((ADDRESS, self.port)) as listener:
            listener.settimeout(0.05)
            while not self.over.is_set():
                try:
                    listener.accept()[0].close()
                except TimeoutError:
                    continue
                self.connections += 1


def _page(port: int) -> bytes:
    there = [f"http://{spelling}:{port}" for spelling in SPELLINGS]
    links = [f"<a href='{url}/link'>x</a><a href='/go/{number}'>x</a>" for number, url in enumerate(there)]
    more = [
        f"<meta http-equiv=refresh content='0;url={url}/refresh'><link rel=canonical href={url}/c>" for url in there
    ]
    return "".join([*more, *links, f"<iframe src='//{ADDRESS}:{port}/frame'></iframe>"]).encode()


def _answer(status: str, fields: str, body: bytes = b"") -> bytes:
    return f"HTTP/1.1 {status}\r\n{fields}Content-Length: {len(body)}\r\n\r\n".encode() + body


@pytest.fixture
def site() -> Iterator[tuple[int, Canary]]:
    """The port of a site that leads to the canary by every way, and the canary."""
    canary = Canary()
    begun, over = threading.Event(), threading.Event()

    async def script(connection: Connection) -> None:
        port = canary.port
        while True:
            head = await connection.request()
            path, host = head.split(b" ", 2)[1].decode(), head.lower().partition(b"\r\nhost: ")[2]
            if path == "/robots.txt" and host.startswith(b"robots.test"):
                answer = _answer("302 Found", f"Location: http://{ADDRESS}:{port}/robots.txt\r\n")
            elif path == "/robots.txt":
                text = f"Sitemap: http://{ADDRESS}:{port}/map.xml\nSitemap: /map.xml\nSitemap: /go/0\n"
                answer = _answer("200 OK", "Content-Type: text/plain\r\n", text.encode())
            elif path == "/map.xml":
                entries = "".join(f"<url><loc>http://{name}:{port}/entry</loc></url>" for name in SPELLINGS[:6])
                answer = _answer("200 OK", "Content-Type: text/xml\r\n", f"<urlset>{entries}</urlset>".encode())
            elif path.startswith("/go/"):
                answer = _answer("302 Found", f"Location: http://{SPELLINGS[int(path[4:])]}:{port}/hop\r\n")
            else:
                link = f"Content-Type: text/html\r\nLink: <http://{ADDRESS}:{port}/l>; rel=canonical\r\n"
                answer = _answer("200 OK", link, _page(port))
            await connection.send(answer)

    async def main() -> None:
        async with hostile(script) as server:
            canary.port = server.port
            begun.set()
            await asyncio.to_thread(over.wait)

    threads = [threading.Thread(target=lambda: asyncio.run(main()), daemon=True)]
    threads[0].start()
    begun.wait(10)
    threads.append(threading.Thread(target=canary.listen, daemon=True))
    threads[1].start()
    yield canary.port, canary
    over.set()
    canary.over.set()
    for thread in threads:
        thread.join(10)


def test_no_way_leads_to_an_address_that_is_not_permitted(site: tuple[int, Canary], tmp_path: Path) -> None:
    port, canary = site
    good = [("127.0.0.1", 0)]
    stub = Stub(dict.fromkeys(("good.test", "robots.test", "turns.test"), good))
    bad = [(ADDRESS, 0)]
    stub.table |= {"canary.test": bad, "mixed.test": bad + good}
    out = str(tmp_path / "out")
    with served_beside(stub) as server:
        told = {"resolver": server, "allow_address": "127.0.0.1/32", "scope": "any", "delay": 0, "delay_factor": 0}
        seeds = [f"http://{name}.test:{port}/" for name in ("good", "turns", "mixed", "canary")]
        outrider.crawl(seeds, output=out, contact="a@b.test", retries=0, max_seconds=20, **told)
        # Its robots.txt leads to the canary: it is requested again, so that this crawl would continue for minutes.
        aside = str(tmp_path / "robots")
        outrider.crawl([f"http://robots.test:{port}/"], output=aside, contact="a@b.test", max_seconds=2, **told)
        # The good name now resolves to the canary; the next run looks it up anew.
        stub.table["turns.test"] = [(ADDRESS, 0)]
        more = [f"http://turns.test:{port}/later/{number}" for number in range(3)]
        # The crawls before pinned it to the address where it was found; without groups no lease pins it any more.
        outrider.crawl(more, output=out, contact="a@b.test", retries=0, max_seconds=20, group="none", **told)
    lines = [json.loads(line) for line in (tmp_path / "out" / "pages.jsonl").read_text().splitlines()]
    fetched = {line["url"].split("/")[2].split(":")[0] for line in lines if line["status"] == 200}
    later = {line.get("error") for line in lines if "/later/" in line["url"]}
    assert {"good.test", "turns.test", "mixed.test"} == fetched
    assert {"blocked_address"} == later
    assert len([line for line in lines if line.get("error") == "blocked_address"]) > 5
    assert 0 == canary.connections
    socket.create_connection((ADDRESS, port)).close()  # the canary would have noticed it
    for _ in range(100):
        if canary.connections:
            break
        canary.over.wait(0.05)
    assert 1 == canary.connections
