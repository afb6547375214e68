"""A crawler of a hundred lines for the judge: polite, or with one planted fault.

python faulty_crawler.py SEEDS FAULT SECONDS [HOSTS]
"""

from __future__ import annotations

import http.client
import re
import sys
import threading
import time
from urllib.parse import urlsplit

DELAY = 0.12
SEEDS, FAULT, SECONDS = sys.argv[1], sys.argv[2], float(sys.argv[3])
NAMES = {}
if len(sys.argv) > 4 and not sys.argv[4].startswith("-"):
    with open(sys.argv[4]) as told:
        NAMES = {name: address for address, name in (line.split() for line in told)}
BEGAN = time.monotonic()


def ask(origin: str, path: str) -> tuple[int, dict[str, str], str]:
    host, _, port = urlsplit(origin).netloc.partition(":")
    connection = http.client.HTTPConnection(NAMES.get(host, host), int(port), timeout=5)
    connection.request("GET", path, headers={"User-Agent": "faulty/1", "Host": f"{host}:{port}"})
    answer = connection.getresponse()
    body = answer.read().decode()
    connection.close()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, body


class Host(threading.Thread):
    def __init__(self, origin: str) -> None:
        super().__init__(daemon=True)
        self.origin = origin
        self.rest = DELAY if FAULT != "short gap" else DELAY / 3

    def pause(self, seconds: float) -> None:
        time.sleep(max(0.0, min(seconds, SECONDS - (time.monotonic() - BEGAN))))
        if time.monotonic() - BEGAN >= SECONDS:
            raise SystemExit

    def get(self, path: str) -> tuple[int, dict[str, str], str]:
        found = ask(self.origin, path)
        wait = self.rest
        if FAULT != "retry-after ignored":
            wait = max(wait, float(found[1].get("retry-after", 0)))
        if found[0] >= 429 and FAULT != "storm ignored":
            wait *= 2.5
        self.pause(wait)
        return found

    def run(self) -> None:
        path = "/robots.txt"
        for _ in range(3):
            status, headers, rules = self.get(path)
            path = headers.get("location", path)
            if status != 301:
                break
        if status >= 500 and FAULT != "robots error as leave":
            return
        rules = rules if status == 200 else ""
        delay = re.search(r"Crawl-delay: (\d+)", rules)
        if delay is not None and FAULT != "crawl-delay ignored":
            self.rest = max(self.rest, float(delay[1]))
            self.pause(self.rest)
        rate = re.search(r"Request-rate: (\d+)/(\d+)m", rules)
        if rate is not None and FAULT != "request-rate ignored":
            self.rest = max(self.rest, 60 * int(rate[2]) / int(rate[1]))
            self.pause(self.rest)
        closed = re.findall(r"Disallow: (/\S+)", rules) if FAULT != "rules ignored" else []
        todo, done = ["/"], {"/"}
        while todo:
            path = todo.pop(0)
            if any(path.startswith(prefix) for prefix in closed):
                continue
            status, _, body = self.get(path)
            todo += [path] if status >= 400 and status != 404 else []
            found = [link for link in re.findall(r'href="([^"]+)"', body) if link not in done]
            done.update(found)
            todo += found
            if FAULT == "two at once" and len(todo) > 1:
                other = threading.Thread(target=ask, args=(self.origin, todo[0]), daemon=True)
                other.start()


if FAULT != "nothing":
    with open(SEEDS) as lines:
        hosts = [Host(line.strip().rstrip("/")) for line in lines]
    for host in hosts:
        host.start()
    for host in hosts:
        host.join(max(0.0, SECONDS + 1 - (time.monotonic() - BEGAN)))
