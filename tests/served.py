"""A desk over a frontier in memory, for tests of its answers."""

from __future__ import annotations

import asyncio
import json

from outrider import AsyncFrontier, Frontier
from outrider.service.access import ServerNames, TokenRoles
from outrider.service.app import application
from outrider.service.audit import Audit
from outrider.service.connection import CONNECTION
from outrider.service.service_state import ServiceState

API = "/api/v1"
NOW = 1_700_000_000_000_000
A, B = "http://a.com/", "http://b.com/"


class Served:
    """A desk over a frontier in memory, and requests to it without a socket."""

    def __init__(self, *, robots="caller", tokens=None, loopback=True, directory=None, frontier=None):
        self.now = NOW
        self.frontier = frontier or Frontier.memory(
            clock=lambda: self.now, robots=robots, settings={"delay": 1, "delay_factor": 0}
        )
        audit = Audit(str(directory)) if directory is not None else None
        self.desk = ServiceState(
            AsyncFrontier(self.frontier), hosts=ServerNames(loopback), tokens=tokens or TokenRoles(), audit=audit
        )
        self.app = application(self.desk)

    async def asked(self, method, path, body=None, *, headers=None, gone=None, connection=None):
        """(status, headers, JSON or bytes)"""
        path, _, query = path.partition("?")
        octets = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        sent = {"host": "127.0.0.1:7070", **({"content-type": "application/json"} if octets else {}), **(headers or {})}
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in sent.items() if value is not None],
            "server": ("127.0.0.1", 7070),
            "client": ("127.0.0.1", 50_000),
            "scheme": "http",
            "root_path": "",
            CONNECTION: connection,
        }
        pieces = [octets[at : at + 65_536] for at in range(0, len(octets), 65_536)] or [b""]
        messages = [
            {"type": "http.request", "body": piece, "more_body": place + 1 < len(pieces)}
            for place, piece in enumerate(pieces)
        ]
        told = []

        async def receive():
            if messages:
                return messages.pop(0)
            await (gone.wait() if gone is not None else asyncio.Event().wait())
            return {"type": "http.disconnect"}

        async def send(message):
            told.append(message)

        await self.app(scope, receive, send)
        answered = {name.decode(): value.decode() for name, value in told[0]["headers"]}
        content = b"".join(one.get("body", b"") for one in told[1:])
        return told[0]["status"], answered, json.loads(content) if "json" in answered["content-type"] else content

    def ask(self, *args, **kwargs):
        return asyncio.run(self.asked(*args, **kwargs))

    def answer(self, *args, **kwargs):
        status, _, found = self.ask(*args, **kwargs)
        assert 200 == status, found
        return found

    def problem(self, *args, **kwargs):
        """(status, the last word of the type)"""
        status, headers, found = self.ask(*args, **kwargs)
        assert "application/problem+json" == headers["content-type"]
        assert {"type", "title", "status", "detail"} <= set(found)
        assert status == found["status"]
        return status, found["type"].rpartition(":")[2]

    def add(self, *urls, **more):
        return self.answer("POST", f"{API}/frontier/urls", {"urls": list(urls), **more})

    def next(self, query="worker_id=w&batch_size=10"):
        return self.answer("GET", f"{API}/frontier/next?{query}")

    def results(self, lease_id, *results, headers=None):
        body = {"lease_id": lease_id, "results": [{"status": "success", **one} for one in results]}
        return self.ask("POST", f"{API}/frontier/results", body, headers=headers)
