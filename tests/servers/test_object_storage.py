"""The archive in real object storage: SeaweedFS and moto, as S3, on loopback."""

from __future__ import annotations

import gzip
import io
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from obstore import get_range
from warcio.archiveiterator import ArchiveIterator

from e2e.crawling import kill_when_longer, length_of, on, started, web
from e2e.crawling import outrider as command
from outrider.sim.web import RunningWeb
from servers.object_stores import BUCKET, SERVERS, object_store
from servers.programs import free_port
from servers.seaweed import OWNER, READER, owner_client

SECRET = OWNER["AWS_SECRET_ACCESS_KEY"]
SEAL = ("--seal-bytes", "20000")


@pytest.fixture(scope="module", params=SERVERS)
def store(
    request: pytest.FixtureRequest, project: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    place = tmp_path_factory.mktemp(request.param)
    with object_store(project, place / "data", request.param) as surroundings:
        yield surroundings


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
    client = owner_client(store["AWS_ENDPOINT_URL"], BUCKET, tmp_path.name)
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
    for secret in (SECRET, SECRET[::-1], OWNER["AWS_ACCESS_KEY_ID"]):
        assert not any(secret in text for text in texts)
        assert not any(secret.encode() in octets for octets in files)


@pytest.mark.parametrize("store", ["seaweed"], indirect=True)  # moto accepts any key
def test_wrong_keys_and_missing_rights_are_refused_before_the_crawl(
    served: RunningWeb, store: dict[str, str], tmp_path: Path
) -> None:
    for number, keys in enumerate(({**store, "AWS_SECRET_ACCESS_KEY": "wrong"}, {**store, **READER})):
        output = tmp_path / f"out{number}"
        done = crawled(served, output, keys)
        assert 2 == done.returncode, done.stderr
        assert "AWS_SECRET_ACCESS_KEY" in done.stderr
        assert not output.exists()


def test_a_missing_bucket_is_refused(served: RunningWeb, store: dict[str, str], tmp_path: Path) -> None:
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
    chance, lines = random.Random(77), output / "pages.jsonl"
    for number in range(5):
        process = started(*(words if not number else ("resume", output, "--progress", "none")), **store)
        kill_when_longer(process, lines, length_of(lines) + chance.randrange(1_000, 16_000))
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
