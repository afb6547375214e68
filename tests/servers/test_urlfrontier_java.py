"""The published Java client of URLFrontier crawls with a served frontier."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from grpc_client import serving
from servers.programs import program, skip_unfetched

CLIENT = Path(__file__).parent / "urlfrontier_client"
HOSTS, PAGES = 20, 50


def test_the_published_java_client_crawls_each_page_once(tmp_path):
    java, maven = program("java"), program("mvn")
    built = tmp_path / "client"
    shutil.copytree(CLIENT, built)
    command = [maven, "-q", "-B", "compile", "dependency:copy-dependencies", "-DoutputDirectory=lib"]
    done = subprocess.run(command, cwd=built, capture_output=True, text=True, timeout=280, check=False)
    if done.returncode:
        skip_unfetched("urlfrontier-API", done.stdout)
    assert 0 == done.returncode, done.stdout[-3000:]
    with serving() as address:
        crawl = [java, "-cp", f"{built}/lib/*:{built}/target/classes", "Crawl", address, str(HOSTS), str(PAGES)]
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
