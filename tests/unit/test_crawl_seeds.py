"""Where a crawl begins: seeds, the contact that is required, and the directory."""

from __future__ import annotations

import io

import pytest

from outrider.crawl.setup.directory import (
    DirectoryContent,
    drop_pending,
    folder_name,
    inspect,
    opened,
    put_pending,
    take_pending,
)
from outrider.crawl.setup.seeds import BadSeeds, placed, read_seeds, require_contact
from outrider.errors import ForeignStoreError, InvalidUrlError, SettingsError


def test_seeds_are_spelled_canonically_and_stored_once():
    assert ["http://a.test/"] == read_seeds(["HTTP://A.test:80", "http://a.test/#x"])


def test_a_file_of_seeds_may_contain_comments_empty_lines_and_a_byte_order_mark(tmp_path):
    (tmp_path / "seeds").write_bytes("\ufeffhttp://a.test/\r\n\r\n# no\n  http://b.test/  \n".encode())
    assert ["http://a.test/", "http://b.test/"] == read_seeds([f"@{tmp_path}/seeds"])


@pytest.mark.parametrize("line", [b"ftp://a.test/", b"http://", b"\xff\xfe", b"http://a.test/" + b"x" * 20_000, b"a b"])
def test_a_line_without_a_valid_seed_is_named(tmp_path, line):
    (tmp_path / "seeds").write_bytes(b"http://a.test/\n" + line + b"\n")
    with pytest.raises(InvalidUrlError, match="seeds, line 2"):
        read_seeds([f"@{tmp_path}/seeds"])


def test_standard_input_is_read_where_it_is_named():
    assert ["http://a.test/"] == read_seeds(["-"], io.BytesIO(b"http://a.test/\n"))


def test_a_missing_file_is_named():
    with pytest.raises(SettingsError, match="/nowhere/seeds"):
        read_seeds(["@/nowhere/seeds"])


def test_sources_have_the_same_meaning_in_every_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert (f"@{tmp_path}/seeds", "-", "http://a.test/") == placed(["@seeds", "-", "http://a.test/"])


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1/", "http://[::1]/", "http://localhost/", "http://x.localhost/", "http://mine.test/"]
)
def test_this_machine_needs_no_contact(url):
    require_contact([url], None, {"mine.test": ("127.0.0.9",)})


@pytest.mark.parametrize("url", ["http://example.org/", "http://10.0.0.1/", "http://both.test/", "http://[fd00::1]/"])
def test_any_other_host_needs_a_contact(url):
    with pytest.raises(SettingsError, match="contact is missing"):
        require_contact([url], None, {"both.test": ("127.0.0.9", "192.0.2.1")})


def test_many_hosts_are_counted_and_not_listed():
    with pytest.raises(SettingsError, match="and 7 more"):
        require_contact([f"http://h{n}.test/" for n in range(10)], None, {})


def test_with_a_contact_every_host_is_accepted():
    require_contact(["http://example.org/"], "me@example.org", {})


def test_the_kinds_of_directories_are_distinguished(tmp_path):
    found = [inspect(str(tmp_path / "none")), inspect(str(tmp_path))]
    (tmp_path / "outrider.toml").touch()
    found.append(inspect(str(tmp_path)))
    (tmp_path / "frontier").mkdir()
    found.append(inspect(str(tmp_path)))
    assert [
        DirectoryContent.NOTHING,
        DirectoryContent.NOTHING,
        DirectoryContent.PREPARED,
        DirectoryContent.CRAWL,
    ] == found


def test_a_directory_with_other_content_is_refused_with_that_content(tmp_path):
    (tmp_path / "photo.jpg").touch()
    with pytest.raises(ForeignStoreError, match=r"photo\.jpg"):
        inspect(str(tmp_path))


def test_a_file_in_place_of_a_directory_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="not a directory"):
        inspect(str(tmp_path / "file"))


def test_stored_seeds_are_there_until_they_are_dropped(tmp_path):
    files = opened(str(tmp_path / "out"))
    try:
        put_pending(files, ["http://a.test/", "http://b.test/"])
        there = take_pending(files)
        drop_pending(files)
        assert (["http://a.test/", "http://b.test/"], []) == (there, take_pending(files))
    finally:
        files.close()


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("example.org", "example.org"),
        ("[2001:db8::1]", "2001-db8--1"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
    ],
)
def test_a_directory_is_named_after_the_first_seeds_host(host, name):
    assert name == folder_name(host)


@pytest.mark.parametrize("host", ["~", "~root", ".", "..", "...", "", "-rf", "[::]", "a/b", "a\\b", "a\nb", "a" * 256])
def test_a_host_that_would_name_another_place_names_no_directory(host):
    with pytest.raises(SettingsError, match="choose one with -o"):
        folder_name(host)


@pytest.mark.parametrize("where", ["file", "command"])
def test_a_seed_that_is_too_long_is_refused_with_the_limit(tmp_path, where):
    long = "http://a.test/" + "x" * 8_192
    (tmp_path / "seeds").write_text(f"http://b.test/\n{long}\n")
    faults = BadSeeds()
    sources = [f"@{tmp_path}/seeds"] if where == "file" else ["http://b.test/", long]
    assert ["http://b.test/"] == read_seeds(sources, None, faults)
    assert (1, True, True) == (faults.count, "8,192 bytes" in faults.texts[0], len(faults.texts[0]) < 200)


def test_the_first_bad_seeds_are_named_and_all_are_counted(tmp_path):
    (tmp_path / "seeds").write_text("http://a.test/\n" + "no url\n" * 30)
    faults = BadSeeds()
    read_seeds([f"@{tmp_path}/seeds"], None, faults)
    lines = list(faults.lines())
    assert (30, 21, True) == (faults.count, len(lines), "10 more" in lines[-1])
