"""The archive in real object storage: SeaweedFS and moto, as S3, on loopback."""

from __future__ import annotations

import gzip
import http.client
import io
import json
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from obstore import get_range
from obstore.store import S3Store
from warcio.archiveiterator import ArchiveIterator

from e2e.crawling import on, started, web
from e2e.crawling import outrider as command
from outrider.sim.web import RunningWeb
from servers.programs import free_port, running

SECRET = "SECRETofTheTest77"
KEYS = {"AWS_ACCESS_KEY_ID": "AKEYofTheTest77", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}
READER = {"AWS_ACCESS_KEY_ID": "READERofTheTest", "AWS_SECRET_ACCESS_KEY": "READERsecret88", "AWS_REGION": "us-east-1"}
BUCKET = "archive-bucket"
SEAL = ("--seal-bytes", "20000")


def program(project: Path, name: str) -> str:
    path = project / ".venv-judges" / "bin" / name
    if not path.exists():
        pytest.fail(".venv-judges is missing: run `python3 scripts/install.py --servers`")
    return str(path)


def listens(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status < 500
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def children_of(pid: int) -> list[int]:
    """The processes that a process has started, of all levels."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError):
                continue
            if parent == pid:
                found += [int(entry.name), *children_of(int(entry.name))]
    return found


def low_ports(count: int) -> list[int]:
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
    ports = low_ports(4)
    words = [program(project, "weed"), "server", "-dir", place, "-ip", "127.0.0.1", "-ip.bind", "127.0.0.1", "-s3"]
    words += ["-s3.config", place / "people.json", "-s3.port", ports[0], "-master.port", ports[1]]
    words += ["-volume.port", ports[2], "-filer.port", ports[3], "-volume.max", "20", "-master.telemetry=false"]
    words += ["-s3.port.iceberg", 0, "-s3.port.lance", 0]
    with running(words, log=place / "log", ready=lambda: listens(ports[0])) as process:
        children = children_of(process.pid)
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
    words = [program(project, "moto_server"), "-H", "127.0.0.1", "-p", port]
    with running(words, log=place / "log", ready=lambda: listens(port)):
        yield {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}


def make_bucket(project: Path, surroundings: dict[str, str]) -> None:
    code = f"import boto3; boto3.client('s3').create_bucket(Bucket={BUCKET!r})"
    end = time.monotonic() + 30
    while True:
        words = [program(project, "python"), "-c", code]
        keys = {**KEYS, "AWS_DEFAULT_REGION": "us-east-1", **surroundings}
        done = subprocess.run(words, env={**os.environ, **keys}, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        assert time.monotonic() < end, done.stderr
        time.sleep(0.5)


@pytest.fixture(scope="module", params=["seaweed", "moto"])
def store(
    request: pytest.FixtureRequest, project: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    place = tmp_path_factory.mktemp(request.param)
    with {"seaweed": seaweed, "moto": moto}[request.param](project, place / "data") as surroundings:
        make_bucket(project, surroundings)
        yield {**KEYS, **surroundings, "NAME": request.param}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningWeb]:
    with web(tmp_path_factory.mktemp("web"), hosts=16, pages=160, quirks=True) as running_web:
        yield running_web


def crawled(served: RunningWeb, output: Path, surroundings: dict[str, str], *more: str) -> Any:
    words = on(served, output, "--archive", f"s3://{BUCKET}/{output.parent.name}", *SEAL, *more)
    return command(*words, seconds=200, **surroundings)


def objects_of(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (output / "objects.jsonl").read_text().splitlines()][1:]


def test_each_page_is_one_ranged_request_and_one_gunzip(
    served: RunningWeb, store: dict[str, str], tmp_path: Path
) -> None:
    done = crawled(served, tmp_path / "out", store, "--keep-archive", "0")
    assert 0 == done.returncode, done.stderr
    assert [] == list((tmp_path / "out/archive").iterdir())
    objects = {one["file"]: one for one in objects_of(tmp_path / "out")}
    assert len(objects) > 3
    client = S3Store(
        BUCKET,
        prefix=tmp_path.name,
        client_options={"allow_http": True},
        access_key_id=store["AWS_ACCESS_KEY_ID"],
        secret_access_key=store["AWS_SECRET_ACCESS_KEY"],
        endpoint=store["AWS_ENDPOINT_URL"],
        region="us-east-1",
    )
    count = 0
    for line in map(json.loads, (tmp_path / "out/pages.jsonl").read_text().splitlines()):
        if line["warc"] is None:
            continue
        place = line["warc"].get("payload") or line["warc"]
        name = objects[place["file"]]["name"]
        member = bytes(get_range(client, name, start=place["offset"], length=place["length"]))
        (record,) = ArchiveIterator(io.BytesIO(member))
        assert line["digest"] == record.rec_headers.get_header("WARC-Payload-Digest")
        assert gzip.decompress(member).startswith(b"WARC/1.1\r\n")
        count += 1
    assert count > 80
    lines = (tmp_path / "out/pages.jsonl").read_text().splitlines()
    page = next(one for one in map(json.loads, lines) if one["title"])
    shown = command("show", page["url"], "-o", tmp_path / "out", "--text", **store)
    assert 0 == shown.returncode, shown.stderr
    for words in (("verify", tmp_path / "out"), ("export", tmp_path / "out", "--to", tmp_path / "x.wacz")):
        done = command(*words, **store)
        assert 0 == done.returncode, done.stderr


def test_no_file_and_no_message_has_a_secret(served: RunningWeb, store: dict[str, str], tmp_path: Path) -> None:
    done = crawled(served, tmp_path / "out", store, "--max-pages", "20")
    texts = [done.stdout, done.stderr]
    wrong = {**store, "AWS_SECRET_ACCESS_KEY": SECRET[::-1]}
    texts += [
        one
        for one in (crawled(served, tmp_path / "out2", wrong, "--max-pages", "2"),)
        for one in (one.stderr, one.stdout)
    ]
    files = [one.read_bytes() for one in tmp_path.rglob("*") if one.is_file()]
    for secret in (SECRET, SECRET[::-1], KEYS["AWS_ACCESS_KEY_ID"]):
        assert not any(secret in text for text in texts)
        assert not any(secret.encode() in octets for octets in files)


def test_wrong_keys_and_missing_rights_are_refused_before_the_crawl(
    served: RunningWeb, store: dict[str, str], tmp_path: Path
) -> None:
    if store["NAME"] == "moto":
        pytest.skip("moto accepts any key")
    for number, keys in enumerate(({**store, "AWS_SECRET_ACCESS_KEY": "wrong"}, {**store, **READER})):
        output = tmp_path / f"out{number}"
        done = crawled(served, output, keys)
        assert 2 == done.returncode, done.stderr
        assert "AWS_SECRET_ACCESS_KEY" in done.stderr
        assert not output.exists()


def test_a_missing_bucket_is_refused(served: RunningWeb, store: dict[str, str], tmp_path: Path) -> None:
    if store["NAME"] == "seaweed":
        pytest.skip("SeaweedFS makes a bucket at the first upload of an owner")
    words = on(served, tmp_path / "out", "--archive", "s3://no-such-bucket/x")
    done = command(*words, **store)
    assert 2 == done.returncode, done.stderr
    assert "no such bucket" in done.stderr


def test_a_server_that_is_away_stops_no_crawl_and_gets_the_rest_later(
    served: RunningWeb, store: dict[str, str], tmp_path: Path
) -> None:
    away = {**store, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{free_port()}"}
    done = crawled(served, tmp_path / "out", away, "--keep-archive", "1")
    assert 8 == done.returncode, done.stderr
    assert "not uploaded" in done.stderr
    done = command("resume", tmp_path / "out", "--progress", "none", seconds=100, **store)
    assert 0 == done.returncode, done.stderr
    assert 1 == len(list((tmp_path / "out/archive").iterdir()))
    assert len(objects_of(tmp_path / "out")) > 3


def test_after_kills_each_record_is_in_the_store_once(
    served: RunningWeb, store: dict[str, str], tmp_path: Path
) -> None:
    output = tmp_path / "out"
    words = on(served, output, "--archive", f"s3://{BUCKET}/{tmp_path.name}", *SEAL, "--keep-archive", "1")
    for number in range(5):
        process = started(*(words if not number else ("resume", output, "--progress", "none")), **store)
        time.sleep(1.2 + 0.3 * number)
        process.kill()
        process.wait()
    done = command("resume", output, "--progress", "none", seconds=200, **store)
    assert 0 == done.returncode, done.stderr
    assert 0 == command("verify", output, **store).returncode
    objects = objects_of(output)
    assert len({one["file"] for one in objects}) == len(objects)
    done = command("export", output, "--to", tmp_path / "x.cdxj", **store)
    assert 0 == done.returncode, done.stderr
    lines = [json.loads(line.split(" ", 2)[2]) for line in (tmp_path / "x.cdxj").read_text("ascii").splitlines()]
    places = [(one["filename"], one["offset"]) for one in lines]
    assert len(set(places)) == len(places)
    pages = [json.loads(line) for line in (output / "pages.jsonl").read_text().splitlines()]
    assert {(one["warc"]["file"], str(one["warc"]["offset"])) for one in pages if one["warc"]} <= set(places)
