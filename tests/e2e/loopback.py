"""A site on loopback whose answers a function returns, and which keeps its requests."""

from __future__ import annotations

import contextlib
import http.server
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Answer:
    """body: text is sent as UTF-8. fields: of the head, in addition to Content-Type and Content-Length."""

    body: str | bytes = b""
    status: int = 200
    fields: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "text/html"


MISSING = Answer("nothing", 404)


class Site(http.server.ThreadingHTTPServer):
    """answer: from the name of the host and the request target to the answer; the target of a form that is sent by POST
    ends with "?" and its fields. requests: (target, instant of the monotonic clock), in order. cookies: the cookies
    that each target was last requested with."""

    daemon_threads = True
    request_queue_size = 128  # connections that wait; the default is 5, and others would come a second later

    def __init__(self, answer: Callable[[str, str], Answer], host: str) -> None:
        self.requests: list[tuple[str, float]] = []
        self.cookies: dict[str, str] = {}

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(handler) -> None:
                handler.answer(handler.path)

            def do_POST(handler) -> None:
                form = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
                handler.answer(f"{handler.path}?{form.decode('ascii', 'replace')}")

            def answer(handler, target: str) -> None:
                self.requests.append((target, time.monotonic()))
                self.cookies[target] = handler.headers.get("Cookie") or ""
                given = answer((handler.headers.get("Host") or "").partition(":")[0], target)
                body = given.body.encode() if isinstance(given.body, str) else given.body
                handler.send_response(given.status)
                handler.send_header("Content-Type", given.content_type)
                handler.send_header("Content-Length", str(len(body)))
                for name, value in given.fields.items():
                    handler.send_header(name, value)
                handler.end_headers()
                with contextlib.suppress(OSError):  # the client may have had enough
                    handler.wfile.write(body)

            def log_message(handler, *_: object) -> None:
                pass

        super().__init__((host, 0), Handler)
        self.root = f"http://{host}:{self.server_port}"

    @property
    def asked(self) -> Counter[str]:
        """How often each target was requested."""
        return Counter(target for target, _ in self.requests)


@contextmanager
def site(answer: Callable[[str, str], Answer], host: str = "127.0.0.1") -> Iterator[Site]:
    """Answers at a free port of this address until the block ends."""
    with Site(answer, host) as server:
        thread = threading.Thread(target=server.serve_forever, args=(POLL_SECONDS,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def listening(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[str]:
    """Answers requests with a handler until the block ends. Yields the address, with a slash at its end."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
