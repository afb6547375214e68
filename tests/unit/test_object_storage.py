"""Object storage of an archive through a folder: sealed, uploaded, checked, listed, deleted here, and read again."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import outrider
from fake_web import FakeWeb
from outrider.archive.warc import WarcWriter
from outrider.cli.main import run
from outrider.crawl.orders.archive_export import export_archive
from outrider.crawl.orders.archive_uploads import ArchiveUploads, archive_end_to_upload, check_store
from outrider.crawl.output.object_list import ListedObject, ObjectList
from outrider.crawl.questions.single_page import kept_page
from outrider.crawl.questions.status import status_lines, status_of
from outrider.errors import DamagedStoreError, NamedPathError, SettingsError, UnreachableError
from outrider.storage.files import Directory
from outrider.storage.object_address import checked_object_store
from outrider.storage.object_store import ObjectStore

HOME = "http://one.test/"
COUNT = 12


class Site(FakeWeb):
    pages = {  # noqa: RUF012
        "/robots.txt": b"",
        "/": "".join(f"<a href=/{n}>{n}</a>" for n in range(COUNT)),
        **{f"/{n}": f"<title>page {n}</title>" + f"words of page {n} " * 30 for n in range(COUNT)},
    }


def crawl(place: Path, **more: Any) -> outrider.CrawlResult:
    (place / "hosts").write_text("127.0.0.1 one.test\n")
    options: dict[str, Any] = {"hosts": str(place / "hosts"), "downloader": Site, "delay": 0.01, "seal_bytes": 1_500}
    options["archive"] = f"file:{place / 'bucket'}"
    return outrider.crawl([HOME], output=place / "crawl", **{**options, **more})


def listed(place: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (place / "crawl/objects.jsonl").read_text().splitlines()]


def local(place: Path) -> set[str]:
    return {one.name for one in (place / "crawl/archive").iterdir()}


def pages(place: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (place / "crawl/pages.jsonl").read_text().splitlines()]


def test_all_files_are_uploaded_checked_and_listed(tmp_path: Path) -> None:
    assert 0 == crawl(tmp_path).exit_code
    head, *objects = listed(tmp_path)
    assert {one["file"] for one in objects} == local(tmp_path)
    assert len(objects) > 3
    for one in objects:
        assert f"{head['id']}-{one['file']}" == one["name"]
        octets = (tmp_path / "bucket" / one["name"]).read_bytes()
        assert ((tmp_path / "crawl/archive" / one["file"]).read_bytes(), len(octets)) == (octets, one["bytes"])
    for line in pages(tmp_path):
        place = line["warc"]
        octets = (tmp_path / "bucket" / f"{head['id']}-{place['file']}").read_bytes()
        assert gzip.decompress(octets[place["offset"] :][: place["length"]]).startswith(b"WARC/1.1")


@pytest.mark.parametrize("keep", [0, 2])
def test_after_the_upload_only_some_files_stay_and_the_others_are_read_from_the_store(
    tmp_path: Path, keep: int
) -> None:
    assert 0 == crawl(tmp_path, keep_archive=keep).exit_code
    names = sorted(one["file"] for one in listed(tmp_path)[1:])
    assert set(names[len(names) - keep :]) == local(tmp_path)
    for number in range(COUNT):
        found = kept_page(str(tmp_path / "crawl"), f"{HOME}{number}")
        assert f"<title>page {number}</title>".encode() in found.content
    done = export_archive([str(tmp_path / "crawl")], str(tmp_path / "x.wacz"), io.StringIO(), 0)
    assert (COUNT + 2, 0) == (done.records, done.exit_code)
    assert 0 == run(["verify", str(tmp_path / "crawl")])


def test_a_catalog_has_the_keys_of_the_store(tmp_path: Path) -> None:
    assert 0 == crawl(tmp_path, keep_archive=0, catalog=f"sqlite:{tmp_path / 'c.db'}").exit_code
    with closing(sqlite3.connect(tmp_path / "c.db")) as database:
        keys = [key for (key,) in database.execute("SELECT raw_content_key FROM page_content")]
    assert COUNT + 1 == len(keys)
    for key in keys:
        path, _, bounds = key.partition("#bytes=")
        first, last = map(int, bounds.split("-"))
        assert gzip.decompress(Path(path).read_bytes()[first : last + 1]).startswith(b"WARC/1.1")


def test_a_later_run_continues_with_the_next_file(tmp_path: Path) -> None:
    crawl(tmp_path, keep_archive=0, max_pages=4)
    first = {one["file"] for one in listed(tmp_path)[1:]}
    assert set() == local(tmp_path)
    assert 0 == crawl(tmp_path, keep_archive=0, max_pages=None).exit_code
    head, *objects = listed(tmp_path)
    names = [one["file"] for one in objects]
    assert (len(set(names)), first < set(names)) == (len(names), True)
    assert {f"{head['id']}-{name}" for name in names} | {f"{head['id']}.txt"} == set(os.listdir(tmp_path / "bucket"))
    assert COUNT + 1 == len({line["url"] for line in pages(tmp_path)})
    # The first run noted the lengths of its files, although the last file of its archive was deleted.
    assert " replayed " not in (tmp_path / "crawl/crawl.log").read_text()


def test_a_store_that_does_not_answer_stops_no_crawl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = ObjectStore.put_file

    def away(self: ObjectStore, name: str, path: str) -> Any:
        raise UnreachableError(f"{self.address} does not answer; try again later")

    monkeypatch.setattr(ObjectStore, "put_file", away)
    result = crawl(tmp_path, keep_archive=0)
    assert 8 == result.exit_code
    assert "not uploaded" in result.ending
    assert COUNT + 1 == len(pages(tmp_path))
    assert 1 == len(listed(tmp_path))
    here = len(local(tmp_path))
    uploads = status_of(str(tmp_path / "crawl"))["uploads"]
    assert (f"file:{tmp_path / 'bucket'}", 0, here) == tuple(uploads.values())
    monkeypatch.setattr(ObjectStore, "put_file", real)
    assert 0 == crawl(tmp_path, keep_archive=0).exit_code
    assert set() == local(tmp_path)
    status = status_of(str(tmp_path / "crawl"))
    assert (here, 0) == (status["uploads"]["uploaded_files"], status["uploads"]["files_only_here"])
    assert any(f"{here} files uploaded, 0 only here" in line for line in status_lines(status))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("403 Forbidden: <Error><Code>QuotaExceeded</Code></Error> status code: 403", "full (QuotaExceeded)"),
        ("<Error><Code>XMinioStorageFull</Code></Error> status code: 507", "full (XMinioStorageFull)"),
        ("status code: 507", "full (status 507)"),
        ("No space left on device (os error 28)", "full"),
    ],
)
def test_a_store_that_is_full_may_be_tried_again(answer: str, said: str, tmp_path: Path) -> None:
    store = ObjectStore(f"file:{tmp_path}")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(answer)

    store._library = SimpleNamespace(put=full)
    with pytest.raises(UnreachableError, match=f"{re.escape(said)}; make room there"):
        store.put_new("a", b"content")


def test_a_kill_between_upload_and_list_uploads_nothing_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = ObjectList.add
    monkeypatch.setattr(ObjectList, "add", lambda self, one: (_ for _ in ()).throw(OSError(5, "killed here")))
    assert 8 == crawl(tmp_path, keep_archive=0).exit_code
    before = {one.name: one.stat().st_mtime_ns for one in (tmp_path / "bucket").iterdir()}
    assert local(tmp_path)
    monkeypatch.setattr(ObjectList, "add", real)
    assert 0 == crawl(tmp_path, keep_archive=0).exit_code
    after = {one.name: one.stat().st_mtime_ns for one in (tmp_path / "bucket").iterdir()}
    assert before.items() <= after.items()
    assert set() == local(tmp_path)


def test_another_object_is_never_overwritten(tmp_path: Path) -> None:
    store = ObjectStore(f"file:{tmp_path / 'bucket'}")
    (tmp_path / "a").write_bytes(b"one")
    (tmp_path / "b").write_bytes(b"two")
    store.put_file("x", str(tmp_path / "a"))
    store.put_file("x", str(tmp_path / "a"))
    with pytest.raises(SettingsError, match="nothing was overwritten"):
        store.put_file("x", str(tmp_path / "b"))
    assert b"one" == (tmp_path / "bucket/x").read_bytes()


def test_an_upload_that_arrives_changed_is_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ObjectStore(f"file:{tmp_path / 'bucket'}")
    (tmp_path / "a").write_bytes(b"one")
    monkeypatch.setattr(ObjectStore, "is_equal", lambda self, name, wanted: False)
    with pytest.raises(DamagedStoreError, match="not equal"):
        store.put_file("x", str(tmp_path / "a"))


@pytest.mark.parametrize("harm", ["missing", "changed"])
def test_verify_compares_the_list_with_the_store(tmp_path: Path, harm: str, capsys: pytest.CaptureFixture[str]) -> None:
    crawl(tmp_path)
    one = listed(tmp_path)[2]
    path = tmp_path / "bucket" / one["name"]
    if harm == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert 5 == run(["verify", str(tmp_path / "crawl")])
    told = capsys.readouterr()
    assert one["file"] in told.out
    assert ("is missing" if harm == "missing" else "is not the object") in told.out


def test_the_log_decides_which_files_are_sealed(tmp_path: Path) -> None:
    crawl(tmp_path, archive=None, seal_bytes=1)
    numbered = sorted(local(tmp_path))
    place: list[tuple[str, int] | None] = [None]
    uploads = ArchiveUploads(
        f"file:{tmp_path / 'bucket'}", str(tmp_path / "crawl"), lambda: place[0], print, identity="a"
    )
    assert [] == uploads.waiting()
    place[0] = (numbered[0], 100)
    assert [] == uploads.waiting()
    place[0] = ("crawl-000001.warc.gz", 0)
    assert numbered[:1] == uploads.waiting()


def test_a_file_is_sealed_by_its_age(tmp_path: Path) -> None:
    from outrider.archive.warc import Exchange

    files = Directory(tmp_path)
    writer = WarcWriter(files, prefix="crawl", software="x", random_bytes=os.urandom, roll_age=1_000)
    for at in (5_000, 5_999, 6_000, 6_500, 7_000):
        writer.add(Exchange(HOME, "192.0.2.1", at, b"GET /\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n", b""))
    assert 3 == writer.statistics()["files"]
    assert writer.seal()
    assert ("crawl-000003.warc.gz", 0) == writer.watermark
    assert not writer.seal()
    writer.add(Exchange(HOME, "192.0.2.1", 7_001, b"GET /\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n", b""))
    assert "crawl-000003.warc.gz" == (writer.watermark or ("", 0))[0]
    writer.close()
    files.close()


def test_a_torn_line_of_the_list_is_overwritten(tmp_path: Path) -> None:
    first = ObjectList(str(tmp_path))
    made = first.begin("first", "file:/x")
    first.add(ListedObject("a", "file:/x", "n-a", 1, "0" * 32))
    with (tmp_path / "objects.jsonl").open("ab") as file:
        file.write(b'{"file": "b", "sto')
    second = ObjectList(str(tmp_path))
    assert (made, ["a"]) == (second.begin("second", "file:/y"), list(second.objects))
    second.add(ListedObject("c", "file:/x", "n-c", 1, "0" * 32))
    assert ["a", "c"] == list(ObjectList(str(tmp_path)).objects)
    (tmp_path / "objects.jsonl").write_bytes(b"no JSON\n")
    with pytest.raises(NamedPathError):
        ObjectList(str(tmp_path))


ADDRESSES = {
    "s3://bucket/a//b/": "s3://bucket/a/b",
    "s3://bucket": "s3://bucket",
    "file:/tmp/x/../y": "file:/tmp/y",
    "s3://b/x": None,
    "s3://user:secret99@bucket/x": None,
    "s3://bucket/x?key=secret99": None,
    "s3://bucket/../x": None,
    "s3://bucket/a b": None,
    "https://bucket/secret99": None,
    "file:": None,
}


@pytest.mark.parametrize("text", ADDRESSES)
def test_addresses_have_one_form_and_no_secrets(text: str, tmp_path: Path) -> None:
    wanted = ADDRESSES[text]
    if wanted is not None:
        assert wanted == checked_object_store(text)
        return
    with pytest.raises(SettingsError) as refused:
        crawl(tmp_path, archive=text)
    assert "secret99" not in str(refused.value).replace(repr(text), "")
    assert not (tmp_path / "crawl").exists()


def test_a_folder_that_cannot_be_written_is_refused_before_the_crawl(tmp_path: Path) -> None:
    (tmp_path / "bucket").write_text("a file")
    with pytest.raises(SettingsError):
        crawl(tmp_path)
    assert not (tmp_path / "crawl").exists()


def test_without_the_library_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins

    real = builtins.__import__

    def without(name: str, *more: Any, **others: Any) -> Any:
        if name.split(".", maxsplit=1)[0] == "obstore":
            raise ImportError(name)
        return real(name, *more, **others)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SettingsError, match=r"outrider\[s3\]"):
        check_store(f"file:{tmp_path}", str(tmp_path))


def test_uploads_end_within_their_time(tmp_path: Path) -> None:
    crawl(tmp_path, archive=None, seal_bytes=1)
    uploads = ArchiveUploads(
        f"file:{tmp_path / 'bucket'}", str(tmp_path / "crawl"), lambda: ("crawl-000001.warc.gz", 0), print, identity="a"
    )
    uploads.start()
    uploads.stop()
    uploads.finish()
    assert not any(one.name == "outrider-uploads" for one in threading.enumerate())


def test_an_archive_continues_with_a_new_file_if_the_newest_one_is_uploaded(tmp_path: Path) -> None:
    crawl(tmp_path)
    directory = tmp_path / "crawl"
    newest = max(local(tmp_path))
    following = (f"crawl-{int(newest[6:12]) + 1:06}.warc.gz", 0)
    assert following == archive_end_to_upload(str(directory))
    for name in local(tmp_path):
        (directory / "archive" / name).unlink()
    assert following == archive_end_to_upload(str(directory))
    (directory / "objects.jsonl").unlink()
    assert archive_end_to_upload(str(directory)) is None


def test_an_archive_without_uploads_continues_after_its_last_record(tmp_path: Path) -> None:
    crawl(tmp_path, archive=None)
    (name,) = local(tmp_path)
    size = (tmp_path / "crawl/archive" / name).stat().st_size
    assert (name, size) == archive_end_to_upload(str(tmp_path / "crawl"))
