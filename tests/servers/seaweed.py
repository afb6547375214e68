"""A SeaweedFS server for tests: S3 on loopback, with an owner and a reader, in a folder of its own."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from servers.programs import STOP_SECONDS_MAX, listens, program, wait_for

OWNER = {
    "AWS_ACCESS_KEY_ID": "AKEYofTheTest77",
    "AWS_SECRET_ACCESS_KEY": "SECRETofTheTest77",
    "AWS_REGION": "us-east-1",
}
READER = {"AWS_ACCESS_KEY_ID": "READERofTheTest", "AWS_SECRET_ACCESS_KEY": "READERsecret88", "AWS_REGION": "us-east-1"}
GRPC = 10_000  # each port of SeaweedFS has a second one, larger by this


def owner_client(address: str, bucket: str, prefix: str = "") -> Any:
    """A client of obstore for the objects below a prefix."""
    from obstore.store import S3Store

    keys = {name.lower().removeprefix("aws_"): text for name, text in OWNER.items()}
    return S3Store(bucket, prefix=prefix or None, client_options={"allow_http": True}, endpoint=address, **keys)


def _ports(count: int) -> list[int]:
    """Free ports whose second ones are free, too, and below those that connections get (32,768 on Linux)."""
    found: list[int] = []
    for port in random.Random(os.getpid()).sample(range(12_000, 22_000), 400):
        with suppress(OSError), socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", port))
            second.bind(("127.0.0.1", port + GRPC))
            found.append(port)
        if len(found) == count:
            break
    return found


def judge(project: Path, name: str) -> Path:
    """A program of the environment that `make test-servers` makes for tools of others."""
    path = project / ".venv-judges" / "bin" / name
    if not path.exists():
        pytest.fail(".venv-judges is missing: run `python3 scripts/install.py --servers`")
    return path


class SeaweedServer:
    """One server. `kill` and `start` keep its data and its address."""

    def __init__(self, weed: Path, folder: Path) -> None:
        self._folder, self._weed = folder, weed
        self._ports = _ports(4)
        self._process: subprocess.Popen[bytes] | None = None
        self.address = f"http://127.0.0.1:{self._ports[0]}"
        self.environment = {**OWNER, "AWS_ENDPOINT_URL": self.address}
        folder.mkdir(parents=True, exist_ok=True)
        people = [
            {
                "name": name,
                "credentials": [{"accessKey": keys["AWS_ACCESS_KEY_ID"], "secretKey": keys["AWS_SECRET_ACCESS_KEY"]}],
                "actions": actions,
            }
            for name, keys, actions in (
                ("owner", OWNER, ["Admin", "Read", "Write", "List", "Tagging"]),
                ("reader", READER, ["Read", "List"]),
            )
        ]
        (folder / "people.json").write_text(json.dumps({"identities": people}))

    def start(self) -> None:
        s3, master, volume, filer = map(str, self._ports)
        words = [str(self._weed), "server", "-dir", str(self._folder), "-ip", "127.0.0.1", "-ip.bind", "127.0.0.1"]
        words += ["-s3", "-s3.config", str(self._folder / "people.json"), "-s3.port", s3, "-master.port", master]
        words += ["-volume.port", volume, "-filer.port", filer, "-volume.max", "20", "-master.telemetry=false"]
        # As S3 does, an upload into a missing bucket fails.
        words += ["-s3.port.iceberg", "0", "-s3.port.lance", "0", "-s3.autoCreateBucket=false"]
        with (self._folder / "log").open("ab") as log:
            # A group of its own, because the program starts a child.
            self._process = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        process = self._process
        wait_for(lambda: process.poll() is not None or listens(self._ports[0]), self.log)
        assert process.poll() is None, self.log()

    def _signal(self, number: signal.Signals) -> None:
        process = self._process
        if process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        wait_for(lambda: not listens(self._ports[0]), self.log)
        self._process = None

    def kill(self) -> None:
        """Ends the server at once."""
        self._signal(signal.SIGKILL)

    def stop(self) -> None:
        self._signal(signal.SIGTERM)

    def client(self, bucket: str, prefix: str = "") -> Any:
        return owner_client(self.address, bucket, prefix)

    def make_bucket(self, bucket: str) -> None:
        """Makes a bucket. It returns when the server accepts objects, which is later."""
        import obstore

        user = f"{OWNER['AWS_ACCESS_KEY_ID']}:{OWNER['AWS_SECRET_ACCESS_KEY']}"
        signed = ("--user", user, "--aws-sigv4", f"aws:amz:{OWNER['AWS_REGION']}:s3")
        words = [program("curl"), "--disable", "--silent", "--request", "PUT", *signed, f"{self.address}/{bucket}"]

        def made() -> bool:
            subprocess.run(words, stdout=subprocess.DEVNULL, timeout=STOP_SECONDS_MAX, check=False)
            with suppress(obstore.exceptions.BaseError):
                obstore.put(self.client(bucket), "first", b"x")
                obstore.delete(self.client(bucket), "first")
                return True
            return False

        wait_for(made, self.log)

    def keys(self, bucket: str) -> list[str]:
        """The keys of all objects."""
        import obstore

        return [one["path"] for piece in obstore.list(self.client(bucket)) for one in piece]

    def log(self) -> str:
        return (self._folder / "log").read_text("utf-8", "replace")


@contextmanager
def seaweed_server(project: Path, folder: Path) -> Iterator[SeaweedServer]:
    """A server that runs until the block ends."""
    server = SeaweedServer(judge(project, "weed"), folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()
