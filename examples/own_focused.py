"""A focused crawler on the three verbs: the frontier keeps order and politeness, this fetches one URL after the other.

python examples/own_focused.py STORE CONTACT TOPIC URL...
"""

import contextlib
import http.client
import sys
import time
from urllib.parse import urlsplit

from outrider import Frontier, Link
from outrider.fetch import retry_after_seconds
from outrider.page import read


def get(url, contact):  # follows no redirect: the target is a URL of its own, with a host and rules of its own
    parts, began = urlsplit(url), time.monotonic()
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    sent = {"User-Agent": f"Outrider/0.1 ({contact})"}
    with contextlib.closing(kind(parts.netloc, timeout=20)) as wire:
        wire.request("GET", parts._replace(scheme="", netloc="").geturl(), headers=sent)
        answer = wire.getresponse()
        return answer.status, answer.headers, answer.read(1_000_000), time.monotonic() - began


def outcome(lease, topic, status, headers, body, seconds):
    location, wait = headers["Location"], retry_after_seconds(headers["Retry-After"] or "", time.time())
    if lease.kind == "robots":
        return lease.robots(status, body, location=location, seconds=seconds)
    if status in (429, 503):
        return lease.retry(retry_after_seconds=wait, seconds=seconds, status=status, refused=True)
    if status != 200:
        return lease.done(status=status, location=location, seconds=seconds)
    page = read(body, lease.url, headers["Content-Type"] or "text/html")
    score = min(1.0, page.text.lower().count(topic) / 3)
    links = [Link(one.url, priority=0.1 + 0.9 * score, depth=lease.depth + 1) for one in page.links if one.kind == "a"]
    return lease.done(status=status, seconds=seconds, links=links if score or not lease.depth else [])


def crawl(store, contact, topic, seeds, most=1_000, **settings):
    with Frontier.open(store, robots="errands", settings={"max_depth": 4, "max_pages": most, **settings}) as frontier:
        frontier.discover(seeds)
        while not (frontier.finished() or frontier.at_limit()):
            for lease in frontier.lease(want=1, errands=True, wait_seconds=5):
                try:
                    frontier.report([outcome(lease, topic, *get(lease.url, contact))])
                except OSError as error:
                    frontier.report([lease.retry(error=type(error).__name__)])


if __name__ == "__main__":
    crawl(sys.argv[1], sys.argv[2], sys.argv[3].lower(), sys.argv[4:])
