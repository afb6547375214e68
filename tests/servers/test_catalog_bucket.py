"""Catalogs of Parquet files in S3: the contract of all catalogs on two servers, a whole crawl, and refusals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from contract import test_catalogs as contract
from contract import test_catalogs_parquet as of_parquet
from e2e import crawling
from outrider.catalog.destination import CatalogAccessError, CatalogError, UnavailableCatalogError
from servers.bucket_place import BucketPlace
from servers.object_stores import BUCKET, SERVERS, object_store
from servers.programs import free_port
from servers.seaweed import READER, owner_client

OUT_OF_REACH = 8
globals().update({name: getattr(contract, name) for name in of_parquet.CONTRACT})
ALSO = (
    "test_a_list_replaces_the_one_before",
    "test_a_program_that_was_stalled_cannot_store_a_position_after_another_one_opened_the_catalog",
    "test_lines_that_were_not_settled_are_stored_by_the_next_run",
    "test_parts_are_by_month_and_named_by_their_lines",
)
globals().update({name: getattr(of_parquet, name) for name in ALSO})


@pytest.fixture(scope="module", params=SERVERS)
def server(
    request: pytest.FixtureRequest, project: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    with object_store(project, tmp_path_factory.mktemp(request.param) / "data", request.param) as surroundings:
        yield surroundings


@pytest.fixture
def place(server: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BucketPlace:
    for name, text in server.items():
        monkeypatch.setenv(name, text)
    client = owner_client(server["AWS_ENDPOINT_URL"], BUCKET, tmp_path.name)
    return BucketPlace(client, tmp_path / "copies", f"s3://{BUCKET}/{tmp_path.name}")


def test_other_objects_are_refused_and_stay(place: BucketPlace) -> None:
    place.put("mine.txt", b"mine")
    for anew in (False, True):
        with pytest.raises(CatalogError, match="of another program"):
            place.catalog().open(anew=anew)
    assert ["mine.txt"] == place.names()


def test_a_missing_bucket_and_a_server_that_is_away_have_their_errors(
    place: BucketPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CatalogAccessError, match="no such bucket"):
        BucketPlace(None, place.path, "s3://no-such-bucket/a").catalog().open()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setattr("outrider.storage.object_store.OBJECT_RETRIES", 0)
    with pytest.raises(UnavailableCatalogError, match="does not answer"):
        place.catalog().open()


@pytest.mark.parametrize("server", ["seaweed"], indirect=True)  # moto accepts any keys
def test_a_user_who_may_not_write_is_refused(place: BucketPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in READER.items():
        monkeypatch.setenv(name, text)
    with pytest.raises(CatalogAccessError, match="AWS_ACCESS_KEY_ID") as found:
        place.catalog().open()
    assert READER["AWS_SECRET_ACCESS_KEY"] not in str(found.value)
    assert [] == place.names()


def test_a_command_follows_a_crawl_into_a_bucket_and_says_what_is_wrong(
    place: BucketPlace, server: dict[str, str], tmp_path: Path
) -> None:
    output, address = tmp_path / "out", f"parquet:s3://{BUCKET}/{tmp_path.name}"
    with crawling.web(tmp_path / "web", hosts=8, pages=80) as web:
        done = crawling.outrider(*crawling.on(web, output, "--catalog", address), seconds=200, **server)
    assert 0 == done.returncode, done.stderr
    tokens = sorted(page["token"] for page in crawling.pages(output) if page["token"] is not None)
    assert tokens == sorted(row["fetch_id"] for row in place.rows("page_content"))
    assert len(tokens) >= 80
    again = crawling.outrider("catalog", output, "--to", address, **server)
    assert 0 == again.returncode, again.stderr
    missing = crawling.outrider("catalog", output, "--to", "parquet:s3://no-such-bucket/a", **server)
    assert (OUT_OF_REACH, True) == (missing.returncode, "no such bucket" in missing.stderr), missing.stderr
