"""Servers of object storage for tests: SeaweedFS and moto, as S3, on loopback."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from servers.programs import free_port, running, wait_for

SECRET = "SECRETofTheTest77"
KEYS = {"AWS_ACCESS_KEY_ID": "AKEYofTheTest77", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}
READER = {"AWS_ACCESS_KEY_ID": "READERofTheTest", "AWS_SECRET_ACCESS_KEY": "READERsecret88", "AWS_REGION": "us-east-1"}
BUCKET = "archive-bucket"


def _program(project: Path, name: str) -> str:
    path = project / ".venv-judges" / "bin" / name
    if not path.exists():
        pytest.fail(".venv-judges is missing: run `python3 scripts/install.py --servers`")
    return str(path)


def _listens(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status < 500
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _children_of(pid: int) -> list[int]:
    """The processes that a process has started, of all levels."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError):
                continue
            if parent == pid:
                found += [int(entry.name), *_children_of(int(entry.name))]
    return found


def _low_ports(count: int) -> list[int]:
    """Free ports whose numbers plus 10,000 are free ports, too: SeaweedFS uses both."""
    found: list[int] = []
    for port in random.Random(os.getpid()).sample(range(20_000, 32_000), 400):
        with suppress(OSError), socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", port))
            second.bind(("127.0.0.1", port + 10_000))
            found.append(port)
        if len(found) == count:
            break
    return found


@contextmanager
def seaweed(project: Path, place: Path) -> Iterator[dict[str, str]]:
    """SeaweedFS with an owner and a reader. It leaves a child process, which is ended by its own id."""
    place.mkdir(exist_ok=True)
    everything = ["Admin", "Read", "Write", "List", "Tagging"]
    people = [
        {
            "name": name,
            "credentials": [{"accessKey": keys["AWS_ACCESS_KEY_ID"], "secretKey": keys["AWS_SECRET_ACCESS_KEY"]}],
            "actions": actions,
        }
        for name, keys, actions in (("owner", KEYS, everything), ("reader", READER, ["Read", "List"]))
    ]
    (place / "people.json").write_text(json.dumps({"identities": people}))
    ports = _low_ports(4)
    words = [_program(project, "weed"), "server", "-dir", place, "-ip", "127.0.0.1", "-ip.bind", "127.0.0.1", "-s3"]
    words += ["-s3.config", place / "people.json", "-s3.port", ports[0], "-master.port", ports[1]]
    words += ["-volume.port", ports[2], "-filer.port", ports[3], "-volume.max", "20", "-master.telemetry=false"]
    words += ["-s3.port.iceberg", 0, "-s3.port.lance", 0]
    words.append("-s3.autoCreateBucket=false")  # as S3 does, an upload into a missing bucket fails
    with running(words, log=place / "log", ready=lambda: _listens(ports[0])) as process:
        children = _children_of(process.pid)
        try:
            yield {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{ports[0]}"}
        finally:
            for child in children:
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGTERM)


@contextmanager
def moto(project: Path, place: Path) -> Iterator[dict[str, str]]:
    place.mkdir(exist_ok=True)
    port = free_port()
    words = [_program(project, "moto_server"), "-H", "127.0.0.1", "-p", port]
    with running(words, log=place / "log", ready=lambda: _listens(port)):
        yield {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}


def _make_bucket(project: Path, surroundings: dict[str, str]) -> None:
    code = f"import boto3; boto3.client('s3').create_bucket(Bucket={BUCKET!r})"
    words = [_program(project, "python"), "-c", code]
    environment = {**os.environ, **KEYS, "AWS_DEFAULT_REGION": "us-east-1", **surroundings}
    problem = ""

    def made() -> bool:
        nonlocal problem
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        problem = done.stderr
        return done.returncode == 0

    wait_for(made, lambda: problem)


SERVERS = {"seaweed": seaweed, "moto": moto}


@contextmanager
def object_store(project: Path, place: Path, name: str) -> Iterator[dict[str, str]]:
    """A server with an empty bucket. Yields the environment of its owner."""
    with SERVERS[name](project, place) as surroundings:
        _make_bucket(project, surroundings)
        yield {**KEYS, **surroundings}
