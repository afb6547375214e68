"""Servers of object storage for tests: SeaweedFS and moto, as S3, on loopback, each with an empty bucket."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from servers.programs import free_port, listens, running, wait_for
from servers.seaweed import OWNER, judge, seaweed_server

BUCKET = "archive-bucket"


@contextmanager
def _seaweed(project: Path, place: Path) -> Iterator[str]:
    with seaweed_server(project, place) as server:
        yield server.address


@contextmanager
def _moto(project: Path, place: Path) -> Iterator[str]:
    place.mkdir(exist_ok=True)
    port = free_port()
    words = [judge(project, "moto_server"), "-H", "127.0.0.1", "-p", port]
    with running(words, log=place / "log", ready=lambda: listens(port)):
        yield f"http://127.0.0.1:{port}"


def _make_bucket(project: Path, surroundings: dict[str, str]) -> None:
    code = f"import boto3; boto3.client('s3').create_bucket(Bucket={BUCKET!r})"
    words = [judge(project, "python"), "-c", code]
    environment = {**os.environ, "AWS_DEFAULT_REGION": OWNER["AWS_REGION"], **surroundings}
    problem = ""

    def made() -> bool:
        nonlocal problem
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        problem = done.stderr
        return done.returncode == 0

    wait_for(made, lambda: problem)


SERVERS = {"seaweed": _seaweed, "moto": _moto}


@contextmanager
def object_store(project: Path, place: Path, name: str) -> Iterator[dict[str, str]]:
    """A server with an empty bucket. Yields the environment of its owner."""
    with SERVERS[name](project, place) as address:
        surroundings = {**OWNER, "AWS_ENDPOINT_URL": address}
        _make_bucket(project, surroundings)
        yield surroundings
