"""The one downloader and the one name service of all tests that need no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from outrider.fetch.downloader import Decoding, Headers, Request, Response

HTML = (("Content-Type", "text/html"),)
Fields = Sequence[tuple[str, str]]


def answer(
    url: str, status: int | None = 200, body: bytes = b"", fields: Fields = HTML, *, at: int = 0, **parts: Any
) -> Response:
    """An answer that arrived whole at one instant; parts: other values of the Response."""
    head = "".join([f"HTTP/1.1 {status} X\r\n", *(f"{name}: {value}\r\n" for name, value in fields), "\r\n"])
    plain = {
        "address": "127.0.0.1", "error": None, "error_text": "", "request_head": b"GET / HTTP/1.1\r\n\r\n",
        "head": b"" if status is None else head.encode(), "content": body, "truncated": None,
        "decoding": Decoding.WHOLE, "headers": Headers(tuple(fields)), "started_at": at, "ended_at": at,
        "seconds": 0.0, "new_connection": True,
    }  # fmt: skip
    return Response(**{"url": url, "status": status, "body": body, **plain, **parts})


class FakeWeb:
    """A downloader that is a web. `pages` has the answer of a URL or its path: a text, or a status and where it leads;
    anything else is a 404. Another web overrides `page`, or `fetch` where requests need time or fail."""

    pages: Mapping[str, Any] = {}
    types: ClassVar[Mapping[str, str]] = {}  # the Content-Type by path, where it is another than text/html
    last: ClassVar[FakeWeb]  # the one that was made last

    def __init__(self, options: object = None, clock: Any = lambda: 0) -> None:
        self.clock = clock
        self.asked: list[Request] = []
        FakeWeb.last = self

    def page(self, url: str, path: str) -> tuple[int, str | bytes, Fields]:
        """Status, body and fields."""
        found = self.pages.get(url, self.pages.get(path, (404, "")))
        fields = [("Content-Type", self.types.get(path, "text/html"))]
        if not isinstance(found, tuple):
            return 200, found, fields
        return found[0], b"", fields + [("Location", found[1])] * bool(found[1])

    async def fetch(self, request: Request) -> Response:
        self.asked.append(request)
        at = self.clock()
        status, body, fields = self.page(request.url, "/" + request.url.split("/", 3)[3])
        octets = body.encode() if isinstance(body, str) else body
        return answer(request.url, status, octets, fields, at=at, address=request.address, request_head=request.head())

    async def close(self) -> None:
        pass

    @property
    def urls(self) -> list[str]:
        """The requests in order."""
        return [one.url for one in self.asked]


class FakeNames:
    """A name service that answers from a table."""

    def __init__(self, hosts: Mapping[str, Sequence[str]]) -> None:
        self.hosts = hosts

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        return self.hosts[host]

    async def close(self) -> None:
        pass
