#!/bin/sh
# A Scrapy job with JOBDIR that is killed resumes without its queue, fetches nothing more and reports success.
#
# Scrapy documents JOBDIR for pausing and resuming a job after a clean stop. After SIGKILL the file of seen requests is
# on disk and the queue is not. So the next run drops every link as a duplicate, logs finish_reason "finished" and exits
# with 0, though most pages of the site were never fetched.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet scrapy==2.19.0
cd "$folder"
cat > spider.py <<'SPIDER'
import scrapy


class Links(scrapy.Spider):
    name = "links"

    def __init__(self, url):
        self.start_urls = [url]

    def parse(self, response):
        yield {"url": response.url}
        yield from response.follow_all(css="a")
SPIDER
"$folder/venv/bin/python" - <<'PROGRAM'
import subprocess, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path

PAGES, ENOUGH = 1_000, 200
seen, reached = set(), threading.Event()


class Site(BaseHTTPRequestHandler):
    def log_message(self, *arguments):
        pass

    def do_GET(self):
        number = int(self.path[1:])
        seen.add(number)
        if len(seen) >= ENOUGH:
            reached.set()
        links = "".join(f"<a href=/{n}>{n}</a>" for n in (2 * number + 1, 2 * number + 2) if n < PAGES)
        body = f"<title>{number}</title>{links}".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    def handle_error(self, request, client):
        pass  # the kill resets open connections


server = Server(("127.0.0.1", 0), Site)
threading.Thread(target=server.serve_forever, daemon=True).start()
command = [
    str(Path(sys.executable).with_name("scrapy")), "runspider", "spider.py", "-a", f"url=http://127.0.0.1:{server.server_port}/0",
    "-s", "JOBDIR=job",
]  # fmt: skip
first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
assert reached.wait(60)
first.kill()
first.wait()
killed = len(seen)
second = subprocess.run(command, capture_output=True, text=True, timeout=120)
finished = "'finish_reason': 'finished'" in second.stderr
print("scrapy", version("scrapy"))
print(f"killed after {killed} of {PAGES} pages; the next run ended with {second.returncode}, finished: {finished}; {len(seen)} pages")
assert second.returncode == 0 and finished and len(seen) < PAGES, "this has changed"
PROGRAM
