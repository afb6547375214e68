"""The published Java client of URLFrontier crawls with a served frontier."""

from __future__ import annotations

import subprocess
from pathlib import Path

from grpc_client import serving
from servers.programs import java_program

CLIENT = Path(__file__).parent / "urlfrontier_client"
HOSTS, PAGES = 20, 50


def test_the_published_java_client_crawls_each_page_once(tmp_path):
    java = java_program(CLIENT, tmp_path / "client", "urlfrontier-API")
    with serving() as address:
        crawl = [*java, "Crawl", address, str(HOSTS), str(PAGES)]
        told = subprocess.run(crawl, capture_output=True, text=True, timeout=200, check=True).stdout.split()
    found = dict(word.split("=") for word in told[:8])
    assert found == {
        "fetched": str(HOSTS * PAGES),
        "twice": "0",
        "unanswered": "0",
        "failed": "0",
        "ended": "true",
        "size": "0",
        "completed": str(HOSTS * PAGES),
        "queues": str(HOSTS),
    }, told
